"""Training by recipe: the glue on transformers, TRL, PEFT and accelerate that every training room uses."""

from intarsia.core.training.job import Job, check_model, load_for_training, run_job, train_command
from intarsia.core.training.report import TrainReport

__all__ = ["Job", "TrainReport", "check_model", "load_for_training", "run_job", "train_command"]

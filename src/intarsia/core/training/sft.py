"""Supervised fine-tuning: learn the answers of a data set, on TRL's `SFTTrainer`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from intarsia.core.recipes import DataBlock, Progress, TrainRecipe
from intarsia.core.training import Job, check_model, load_for_training, run_job
from intarsia.core.training.arguments import has_experts, lora_config, trainer_config
from intarsia.core.training.examples import Examples, encode, load_examples
from intarsia.core.training.report import TrainReport

if TYPE_CHECKING:
    from trl import SFTTrainer


class SFTRecipe(TrainRecipe):
    """Supervised fine-tuning.

    Attributes:
        kind: `sft`.
        data: What to learn.
        trainer_args: Further arguments of TRL's `SFTConfig`.
    """

    kind: Literal["sft"] = "sft"
    data: DataBlock = Field(default_factory=DataBlock)

    def run(
        self,
        out: Path | None = None,
        resume: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> TrainReport:
        """Fine-tune; see `Recipe.run`."""
        return run_job(self, self.prepare, out=out, resume=resume, dry_run=dry_run, progress=progress)

    def prepare(self, weights: bool) -> Job:
        """Load the model and turn the data into tokens.

        Args:
            weights: False for a dry run, which needs the model's shape only.
        """
        # The data first: they are quick to read, and most mistakes are in them.
        return self.job(load_examples(self.data), weights)

    def job(self, examples: Examples, weights: bool) -> Job:
        """What `prepare` makes of the examples; for kinds of recipe that change them first.

        Args:
            examples: What to learn.
            weights: As in `prepare`.
        """
        loaded = load_for_training(self, weights=weights)
        check_model(self, loaded.model)
        limits: dict[str, Any] = {
            "max_length": self.training.max_length,
            "completion_only": self.training.completion_only_loss,
        }
        train = encode(examples.train, loaded.tokenizer, self.data, **limits)
        held_out = encode(examples.held_out, loaded.tokenizer, self.data, **limits) if examples.held_out else None
        notes = list(loaded.notes)
        if examples.empty:
            notes.append(f"Rows left out because their answer is empty: {examples.empty}.")
        if examples.audited:
            notes.append(f"Rows left out because an audit asks them: {examples.audited}.")
        dropped = train.dropped + (held_out.dropped if held_out else 0)
        if dropped:
            notes.append(f"Rows left out because no part of their answer fits into training.max_length: {dropped}.")
        if train.cut:
            notes.append(f"Answers cut off at training.max_length, which teach no ending: {train.cut}.")
        if train.forked:
            notes.append(
                f"Answers that follow another prompt than the model will see in use: {train.forked}. The chat template "
                "renders a prompt alone differently, or tokens join across the seam (then change data.separator)."
            )

        def trainer(checkpoints: Path) -> SFTTrainer:
            from trl import SFTConfig, SFTTrainer

            config = trainer_config(
                self,
                SFTConfig,
                checkpoints,
                evaluate=held_out is not None,
                # The rows are tokens with labels already; only packing is left to do.
                dataset_kwargs={"skip_prepare_dataset": not self.training.packing},
                ddp_find_unused_parameters=has_experts(loaded.model),
            )
            return SFTTrainer(
                model=loaded.model,
                args=config,
                train_dataset=train.rows,
                eval_dataset=held_out.rows if held_out else None,
                processing_class=loaded.tokenizer,
                peft_config=lora_config(self),
            )

        return Job(
            loaded=loaded,
            trainer=trainer,
            data={
                "name": examples.name,
                "origin": examples.origin,
                "licence": examples.licence,
                "sha256": examples.sha256,
                "rows": len(examples.train),
                "held_out": len(examples.held_out),
            },
            rows=len(train.rows),
            held_out=len(held_out.rows) if held_out else 0,
            longest=max(map(len, train.rows["input_ids"])),
            tokens_per_row=train.tokens / len(train.rows),
            notes=notes,
        )

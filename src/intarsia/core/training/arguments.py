"""A recipe's settings in the words of transformers, TRL and PEFT."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from intarsia.core.errors import ConfigError
from intarsia.core.recipes import TrainRecipe

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel, TrainingArguments

Config = TypeVar("Config", bound="TrainingArguments")

OWNED: Mapping[str, str] = {
    "output_dir": "--out",
    "max_steps": "training.steps",
    "num_train_epochs": "training.epochs",
    "learning_rate": "training.learning_rate",
    "per_device_train_batch_size": "training.batch_size",
    "gradient_accumulation_steps": "training.gradient_accumulation",
    "max_length": "training.max_length",
    "warmup_steps": "training.warmup",
    "lr_scheduler_type": "training.scheduler",
    "optim": "training.optimizer",
    "weight_decay": "training.weight_decay",
    "max_grad_norm": "training.max_grad_norm",
    "bf16": "training.bf16",
    "gradient_checkpointing": "training.gradient_checkpointing",
    "completion_only_loss": "training.completion_only_loss",
    "packing": "training.packing",
    "save_steps": "training.save_every",
    "save_total_limit": "training.keep",
    "eval_steps": "training.eval_every",
    "seed": "seed",
}
"""Arguments of a trainer that a recipe sets by its own keys."""

REFUSED = frozenset(
    {
        "trust_remote_code",
        "push_to_hub",
        "resume_from_checkpoint",
        "save_strategy",
        "save_only_model",
        "logging_strategy",
        "logging_steps",
        "logging_nan_inf_filter",
        "disable_tqdm",
        "ignore_data_skip",
        "auto_find_batch_size",
        "load_best_model_at_end",
        "model_init_kwargs",
        "dataset_kwargs",
        "hub_token",
        "do_train",
    }
)
"""Arguments that would run foreign code, write elsewhere, or break the promise of an identical continuation."""


def process_rank() -> int:
    """Number of this process under a launcher; 0 without one."""
    return int(os.environ.get("RANK", "0"))


def local_rank() -> int:
    """Number of this process among those of its machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def process_count() -> int:
    """Processes that train together."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def mixed_precision(recipe: TrainRecipe) -> bool:
    """Whether to compute in bfloat16."""
    if recipe.training.bf16 != "auto":
        return recipe.training.bf16
    import torch

    return torch.cuda.is_available() and torch.cuda.is_bf16_supported()


def trainer_config(
    recipe: TrainRecipe, config_class: type[Config], checkpoints: Path, *, evaluate: bool, **extra: Any
) -> Config:
    """A trainer's configuration, as the recipe says.

    Args:
        recipe: The recipe.
        config_class: `TrainingArguments` or a class derived from it; keys that it does not have are left out.
        checkpoints: Where the trainer writes.
        evaluate: Whether there are held-out rows.
        **extra: Arguments that the kind of recipe adds.

    Raises:
        ConfigError: `trainer_args` has a key that the class does not have, one that the recipe sets elsewhere, or a
            value of the wrong type; or there is no such optimizer.
    """
    arguments = _arguments(recipe, checkpoints, evaluate)
    names = {field.name for field in dataclasses.fields(config_class) if field.init}
    _check_optimizer(recipe)
    _check_trainer_args(recipe, names, config_class)
    arguments = {key: value for key, value in arguments.items() if key in names}
    try:
        return config_class(**{**arguments, **extra, **recipe.trainer_args})
    except (ValueError, TypeError, ImportError) as error:
        raise ConfigError(f"The trainer refuses its settings: {error}", "Check training and trainer_args.") from error


def _arguments(recipe: TrainRecipe, checkpoints: Path, evaluate: bool) -> dict[str, Any]:
    import torch

    training = recipe.training
    cpu = not (torch.cuda.is_available() or torch.backends.mps.is_available())
    return {
        "output_dir": str(checkpoints),
        "max_steps": training.steps or -1,
        "num_train_epochs": training.epochs or 1.0,
        "learning_rate": training.learning_rate,
        "per_device_train_batch_size": training.batch_size,
        "per_device_eval_batch_size": training.batch_size,
        "gradient_accumulation_steps": training.gradient_accumulation,
        "max_length": training.max_length,
        "warmup_steps": training.warmup,
        "lr_scheduler_type": training.scheduler,
        "optim": training.optimizer,
        "weight_decay": training.weight_decay,
        "max_grad_norm": training.max_grad_norm,
        "bf16": mixed_precision(recipe),
        "gradient_checkpointing": training.gradient_checkpointing,
        "packing": training.packing,
        "save_strategy": "steps",
        "save_steps": training.save_every,
        "eval_strategy": "steps" if evaluate and training.eval_every else "no",
        "eval_steps": training.eval_every or None,
        "prediction_loss_only": True,
        "seed": recipe.seed,
        # Every step: a loss that is no number has to be seen before anything made with it is saved.
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": "none",
        "disable_tqdm": True,
        "log_level": "error",
        "log_level_replica": "error",
        "use_cpu": cpu,
        "dataloader_pin_memory": not cpu,
        "ddp_backend": "gloo" if cpu and process_count() > 1 else None,
    }


def has_experts(model: PreTrainedModel) -> bool:
    """Whether a model routes tokens to experts, so that a step may leave some weights without a gradient."""
    names = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    return any(getattr(model.config.get_text_config(), name, None) for name in names)


def _check_optimizer(recipe: TrainRecipe) -> None:
    from transformers.training_args import OptimizerNames

    name = recipe.training.optimizer
    known = [str(optimizer.value) for optimizer in OptimizerNames]
    if name not in known:
        near = get_close_matches(name, known, n=1)
        raise ConfigError(
            f"training.optimizer is {name!r}, which transformers does not have."
            + (f" Did you mean {near[0]}?" if near else ""),
            f"It has: {', '.join(known)}.",
        )


def _check_trainer_args(recipe: TrainRecipe, names: set[str], config_class: type[TrainingArguments]) -> None:
    for key, value in recipe.trainer_args.items():
        if key in OWNED:
            raise ConfigError(f"trainer_args.{key} is set by {OWNED[key]}.", f"Use {OWNED[key]} instead.")
        if key in REFUSED:
            raise ConfigError(f"trainer_args.{key} may not be set in a recipe.", "Take it out.")
        if key not in names:
            near = get_close_matches(key, names, n=1)
            guess = f" Did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{config_class.__name__} has no argument `{key}` (trainer_args).{guess}")
        annotation = get_type_hints(config_class)[key]
        try:
            TypeAdapter(annotation).validate_python(value)
        except PydanticSchemaGenerationError:
            continue  # a type of the trainer's own: it checks by itself
        except ValidationError as error:
            what = error.errors(include_url=False)[0]["msg"]
            raise ConfigError(f"trainer_args.{key} is {value!r}: {what[:1].lower()}{what[1:]}.") from None


def lora_config(recipe: TrainRecipe) -> LoraConfig | None:
    """PEFT's configuration of the recipe's adapters; None where all weights are trained."""
    if recipe.lora is None:
        return None
    from peft import LoraConfig

    modules = recipe.lora.target_modules
    return LoraConfig(
        r=recipe.lora.r,
        lora_alpha=recipe.lora.alpha,
        lora_dropout=recipe.lora.dropout,
        target_modules=modules if isinstance(modules, str) else list(modules),
        task_type="CAUSAL_LM",
    )

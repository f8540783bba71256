"""The eye on a running trainer: it keeps the log, seals checkpoints, reports progress, and stops at a NaN."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback

from intarsia.core.errors import ModelError
from intarsia.core.recipes import Progress, TrainRecipe
from intarsia.core.training.run_folder import RunFolder

CHECKED = {"loss": "loss", "grad_norm": "gradient norm", "eval_loss": "evaluation loss"}


class Watch(TrainerCallback):
    """Sees every step of a trainer, in every process; writes in the first one.

    Args:
        recipe: The recipe.
        folder: The run folder in the first process, None in the others.
        progress: Called with (what, steps done, steps in all).
        resumed: Step at which the run goes on.

    Attributes:
        entries: The log, earlier sessions included; empty but in the first process.
        tokens: Seen in this session.
        seconds: Spent on the steps of this session, without evaluations and checkpoints.
        eval_step: Step of the last evaluation, -1 before one.
    """

    def __init__(
        self, recipe: TrainRecipe, folder: RunFolder | None, progress: Progress | None = None, resumed: int = 0
    ) -> None:
        self.recipe = recipe
        self.folder = folder
        self.progress = progress if folder is not None else None
        self.entries: list[dict[str, Any]] = folder.rewind_log(resumed) if folder is not None else []
        self.tokens = 0
        self.seconds = 0.0
        self.eval_step = max((entry["step"] for entry in self.entries if "eval_loss" in entry), default=-1)
        # TRL counts tokens anew in each session; the log goes on where it was.
        self._earlier_tokens = next((e["num_tokens"] for e in reversed(self.entries) if "num_tokens" in e), 0)
        self._began = 0.0
        self._last_step = 0.0
        self._saved = resumed

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock."""
        self._began = self._last_step = time.perf_counter()
        if self.progress is not None:
            self.progress("training", state.global_step, state.max_steps)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Keep the figures of a step or of an evaluation.

        Raises:
            ModelError: One of them is NaN or infinite.
        """
        if not logs or "train_runtime" in logs:
            return
        figures = {key: value for key, value in logs.items() if isinstance(value, int | float)}
        # Times differ from run to run, and TRL's token count of an evaluation is that of the session so far.
        left_out = ("_runtime", "_per_second", "eval_num_tokens")
        figures = {key: value for key, value in figures.items() if not key.endswith(left_out)}
        if "num_tokens" in figures:
            self.tokens = max(self.tokens, int(figures["num_tokens"]))
            figures["num_tokens"] = self._earlier_tokens + int(figures["num_tokens"])
        # With a loss scale, overflowing gradients are ordinary: the step is left out and the scale lowered.
        checked = {key: value for key, value in figures.items() if key != "grad_norm" or not args.fp16}
        self._check(checked, state.global_step)
        entry = {"step": state.global_step, **figures}
        if "eval_loss" in figures:
            self.eval_step = state.global_step
        else:
            self._last_step = time.perf_counter()
            self.seconds = self._last_step - self._began
        if self.folder is not None:
            self.entries.append(entry)
            self.folder.log(entry)
        if self.progress is not None and "loss" in figures:
            self.progress(f"loss {figures['loss']:.3f}", state.global_step, state.max_steps)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave the evaluation out of the time that the steps take."""
        self._skip_time()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Seal the checkpoint that the trainer has just written."""
        from accelerate import PartialState

        # Each process writes its own random state into the checkpoint: all have to be there before the seal.
        PartialState().wait_for_everyone()
        if self.folder is not None:
            self.folder.seal(state.global_step, self.recipe.training.keep)
        self._saved = state.global_step
        self._skip_time()

    def _skip_time(self) -> None:
        now = time.perf_counter()
        self._began += now - self._last_step
        self._last_step = now

    def _check(self, figures: Mapping[str, float], step: int) -> None:
        for name, what in CHECKED.items():
            value = figures.get(name, 0.0)
            if not math.isfinite(value):
                kept = f"checkpoint-{self._saved} is the last good one" if self._saved else "nothing was saved yet"
                raise ModelError(
                    f"The {what} became {value} at step {step}; {kept}.",
                    f"Lower training.learning_rate (it is {self.recipe.training.learning_rate:g}), or check the data.",
                )

"""Inference-time intervention: a shift of the outputs of those attention heads that tell two kinds of replies apart.

The paper runs a released model that was made in this way for truthfulness, and gives no procedure of its own. This is
reconstructed from Li et al. 2023 ("Inference-Time Intervention: Eliciting Truthful Answers from a Language Model",
section 3): a linear probe on every head's output, the K heads whose probes are best on prompts set aside, and at every
step alpha * sigma * theta added to their outputs, where theta is the unit vector along the mass-mean shift (or the
probe's weights) and sigma the standard deviation of the outputs along it. Heads and strength for other model sizes, and
the choice of alpha by the loss on plain text, are ours.

Shape suffixes: N replies, H heads of a layer, E size of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from pydantic import JsonValue

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.target import Prompt, Target, prompt_text
from intarsia.sycophancy.activations import (
    Build,
    Pooling,
    Reply,
    bare,
    build_of,
    check_build,
    fingerprint,
    head_projections,
    reply_activations,
    shifted,
)
from intarsia.sycophancy.mended import MendedTarget, need
from intarsia.sycophancy.steering import HARM, hooked, plain_loss, read_tensors, split_prompts, write_tensors

if TYPE_CHECKING:
    import torch

FORMAT = 1
Theta: TypeAlias = Literal["mass-mean", "probe"]
PAPER_HEADS = 48
PAPER_OF = 1024
"""The original intervenes on 48 of LLaMA-7B's 1,024 heads; other sizes take the same share."""
PAPER_ALPHA = 15.0
ALPHAS = (15.0, 10.0, 7.5, 5.0, 3.0, 2.0, 1.0, 0.5)
"""What `alpha="auto"` tries, strongest first."""
STEADY = 1e-3
"""Penalty of the probes: strong, for a head has many more dimensions than there are replies."""


class Head(NamedTuple):
    """One head that is shifted.

    Attributes:
        layer: From 0.
        head: From 0.
        accuracy: Of its probe on prompts set aside.
        sigma: Standard deviation of its outputs along the direction.
    """

    layer: int
    head: int
    accuracy: float
    sigma: float


def default_heads(build: Build) -> int:
    """How many heads to shift: the original's share of a model's heads, at least one."""
    return max(1, round(build.layers * build.heads * PAPER_HEADS / PAPER_OF))


@dataclass(frozen=True)
class HeadIntervention:
    """Shifts of attention heads, away from what positive replies have.

    Attributes:
        heads: Those that are shifted, best probe first.
        theta: float32 of shape (heads, size of a head): unit vectors towards the negative replies.
        build: Of the model that it was fitted on.
        model: Its name, where known.
        weights: Its fingerprint.
        alpha: How much `mend` adds, in standard deviations.
        card: How it was made.
    """

    heads: tuple[Head, ...]
    theta: torch.Tensor
    build: Build
    model: str = ""
    weights: str = ""
    alpha: float = PAPER_ALPHA
    card: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def fit(
        cls,
        model: Any,
        tok: Any,
        positive: Sequence[tuple[Prompt, str]],
        negative: Sequence[tuple[Prompt, str]],
        *,
        heads: int | None = None,
        alpha: float | Literal["auto"] = "auto",
        theta: Theta = "mass-mean",
        pooling: Pooling = "last",
        preset: Literal["", "paper"] = "",
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> HeadIntervention:
        """Probe every head, and keep the best.

        Args:
            model: A decoder whose attention ends in one projection.
            tok: Its tokenizer.
            positive: (prompt, reply) pairs with what is to be lessened.
            negative: Pairs without it.
            heads: How many to shift; `default_heads` when omitted.
            alpha: Strength in standard deviations. `auto`: the largest of 15, 10, 7.5, 5, 3, 2, 1, 0.5 that raises the
                loss on plain text by at most 5 %, the smallest where none does.
            theta: `mass-mean` (difference of the means) or `probe` (weights of the probe).
            pooling: Which tokens of a reply are probed: the `last` one, as in the original, or the `mean`.
            preset: `paper`: 48 heads and alpha 15, whatever the model.
            seed: Of the prompts set aside.
            progress: Called with (layers probed, layers in all).

        Raises:
            DataError: There are too few replies.
            ConfigError: A number is out of range.
            ModelError: The heads cannot be found.
        """
        ours, theirs = [Reply(*pair) for pair in positive], [Reply(*pair) for pair in negative]
        if not ours or not theirs:
            raise DataError("Probes need positive and negative replies.", "Give some of each.")
        if theta not in ("mass-mean", "probe"):
            raise ConfigError(f"There is no direction {theta!r}.", "Use mass-mean or probe.")
        build = build_of(model)
        projections = head_projections(model)
        count = _count(heads, preset, build, len(projections))
        if preset == "paper" and alpha == "auto":
            alpha = PAPER_ALPHA
        if alpha != "auto":
            _finite(alpha)
        aside = split_prompts([*ours, *theirs], seed)
        labels_N = np.array([1] * len(ours) + [0] * len(theirs))
        held_N = np.array([prompt_text(one.prompt) in aside for one in (*ours, *theirs)])
        if any(len(set(labels_N[rows])) < 2 for rows in (held_N, ~held_N)):
            raise DataError("Positive and negative replies answer different prompts.", "Give both to each prompt.")
        outputs = reply_activations(model, tok, [*ours, *theirs], projections, pooling, inputs=True)
        found: list[tuple[Head, np.ndarray]] = []
        for done, (layer, output) in enumerate(outputs.items()):
            values_NHE = output.numpy().reshape(len(labels_N), build.heads, -1)
            for head in range(build.heads):
                found.append(_probed(layer, head, values_NHE[:, head], labels_N, held_N, theta))
            if progress is not None:
                progress(done + 1, len(outputs))
        found.sort(key=lambda one: (-one[0].accuracy, one[0].layer, one[0].head))
        kept = found[:count]
        import torch

        made = cls(
            heads=tuple(head for head, _ in kept),
            theta=torch.tensor(np.stack([direction for _, direction in kept]), dtype=torch.float32),
            build=build,
            model=str(getattr(bare(model).config, "_name_or_path", "") or ""),
            weights=fingerprint(model),
            alpha=1.0 if alpha == "auto" else float(alpha),
            card={
                "positive": len(ours),
                "negative": len(theirs),
                "theta": theta,
                "pooling": pooling,
                "seed": seed,
                "set_aside": len(aside),
                "preset": preset,
            },
        )
        return made._strongest(model, tok) if alpha == "auto" else made

    def _strongest(self, model: Any, tok: Any) -> HeadIntervention:
        """The largest alpha that spares plain text."""
        plain = math.fsum(plain_loss(model, tok))
        tried: list[dict[str, float]] = []
        for alpha in ALPHAS:
            with self.apply(model, alpha):
                harm = math.fsum(plain_loss(model, tok)) / plain - 1
            tried.append({"alpha": alpha, "harm": round(harm, 4)})
            if harm <= HARM:
                break
        return replace(self, alpha=tried[-1]["alpha"], card={**self.card, "alphas": tried})

    @property
    def name(self) -> str:
        """As it appears in reports."""
        return f"iti-{len(self.heads)}x{self.alpha:g}"

    def strength(self, alpha: float) -> HeadIntervention:
        """The same heads, with `mend` adding alpha standard deviations.

        Raises:
            ConfigError: Alpha is not a finite number.
        """
        _finite(alpha)
        return replace(self, alpha=float(alpha))

    def shifts(self, alpha: float) -> dict[int, torch.Tensor]:
        """For each layer with shifted heads, what is added to its concatenated head outputs."""
        import torch

        size = self.theta.shape[1]
        found: dict[int, torch.Tensor] = {}
        for head, direction in zip(self.heads, self.theta, strict=True):
            shift = found.setdefault(head.layer, torch.zeros(self.build.heads * size))
            shift[head.head * size : (head.head + 1) * size] += alpha * head.sigma * direction
        return found

    @contextmanager
    def apply(self, model: Any, alpha: float | None = None) -> Iterator[None]:
        """Shift the heads at every position while the context is open; with alpha 0 nothing is hooked.

        Args:
            model: The model that it was fitted on, or one of the same build.
            alpha: Instead of the intervention's own.

        Raises:
            ModelError: The model is of another family or size.
            ConfigError: Alpha is not a finite number.
        """
        alpha = self.alpha if alpha is None else alpha
        _finite(alpha)
        check_build(build_of(model), self.build, "intervention")
        if alpha == 0:
            yield
            return
        with shifted(head_projections(model), self.shifts(alpha), inputs=True):
            yield

    @contextmanager
    def mend(self, target: Target) -> Iterator[Target]:
        """The target with its heads shifted; the target itself must not be asked while the context is open.

        Raises:
            ConfigError: The target's weights are not at hand.
            ModelError: The model is of another family or size.
        """
        need(target, "weights", "An intervention on heads")
        how: dict[str, JsonValue] = {"kind": "iti", "heads": len(self.heads), "alpha": self.alpha}
        how["fitted"] = self.weights
        with hooked(target), self.apply(target.model):  # type: ignore[attr-defined]
            yield MendedTarget(target, self.name, None, how)

    def save(self, path: str | Path) -> Path:
        """Write directions and card into one safetensors file, whole or not at all.

        Raises:
            BackendError: The disk refuses.
        """
        card = {
            "format": FORMAT,
            "kind": "head intervention",
            "heads": [head._asdict() for head in self.heads],
            "alpha": self.alpha,
            "build": self.build._asdict(),
            "model": self.model,
            "weights": self.weights,
            "card": self.card,
        }
        return write_tensors(Path(path), {"theta": self.theta}, card)

    @classmethod
    def load(cls, path: str | Path) -> HeadIntervention:
        """Read what `save` wrote.

        Raises:
            DataError: The file is missing, damaged, or no intervention.
        """
        tensors, card = read_tensors(Path(path), "head intervention", FORMAT)
        try:
            build = Build(**card["build"])
            heads = tuple(Head(**head) for head in card["heads"])
            theta = tensors["theta"]
            made = cls(heads, theta, build, str(card["model"]), str(card["weights"]), float(card["alpha"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is a damaged intervention.", "Fit it again.") from error
        fits = all(0 <= head.layer < build.layers and 0 <= head.head < build.heads for head in heads)
        if not heads or theta.ndim != 2 or len(theta) != len(heads) or not fits or not bool(theta.isfinite().all()):
            raise DataError(f"{path} is a damaged intervention.", "Fit it again.")
        return replace(made, card=dict(card.get("card", {})))


def _count(heads: int | None, preset: str, build: Build, layers: int) -> int:
    every = layers * build.heads
    if heads is None:
        return min(every, PAPER_HEADS if preset == "paper" else default_heads(build))
    if isinstance(heads, bool) or not 1 <= heads <= every:
        raise ConfigError(f"{heads} heads cannot be shifted.", f"The model has {every}; give a number from 1 to that.")
    return heads


def _probed(
    layer: int, head: int, values_NE: np.ndarray, labels_N: np.ndarray, held_N: np.ndarray, theta: Theta
) -> tuple[Head, np.ndarray]:
    """A head with its probe's accuracy on prompts set aside, and its direction towards the negative replies."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    scaler, probe = StandardScaler(), LogisticRegression(C=STEADY, max_iter=200)
    pipeline = make_pipeline(scaler, probe)
    pipeline.fit(values_NE[~held_N], labels_N[~held_N])
    accuracy = float(pipeline.score(values_NE[held_N], labels_N[held_N]))
    if theta == "probe":
        towards = -probe.coef_[0] / np.where(scaler.scale_ > 0, scaler.scale_, 1.0)
    else:
        towards = values_NE[labels_N == 0].mean(axis=0) - values_NE[labels_N == 1].mean(axis=0)
    length = float(np.linalg.norm(towards))
    unit = towards / length if length > 0 else np.zeros_like(towards)
    return Head(layer, head, accuracy, float((values_NE @ unit).std())), unit


def _finite(alpha: float) -> None:
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise ConfigError(f"alpha is {alpha!r}, not a finite number.", "15 is the original's; 0 changes nothing.")

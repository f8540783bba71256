"""SteeringVector: a direction of the residual stream, the difference between mean activations on two kinds of replies.

Contrastive activation addition in its simple form, beside the paper's intervention on heads (`iti`): the mean over the
tokens of validating replies minus the mean over those of direct ones, at the output of one decoder layer, is subtracted
alpha times at every position. The paper names steering without a formula; the layer choice and the controls are ours.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import JsonValue

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.target import Prompt, Target, prompt_text
from intarsia.sycophancy.activations import (
    Build,
    Reply,
    build_of,
    check_build,
    decoder_layers,
    fingerprint,
    reply_activations,
    shifted,
)
from intarsia.sycophancy.mended import MendedTarget, need
from intarsia.sycophancy.plain_text import PLAIN_TEXT

if TYPE_CHECKING:
    import torch

FORMAT = 1
"""Version of the file format."""
LEAST_PROMPTS = 4
"""Distinct prompts that it takes to choose a layer on some and fit on the others."""
HARM = 0.05
"""Relative rise of the plain-text loss that a layer may cost at most to be chosen."""
CHOICES = 12
"""Layers that are tried, evenly over the middle of the model."""


@dataclass(frozen=True)
class SteeringVector:
    """A direction to subtract.

    Attributes:
        vector: float32 of shape (hidden size,): mean of the positive replies minus mean of the negative ones.
        layer: At the output of which decoder layer, counted from 0.
        build: Of the model that it was fitted on.
        model: Its name, where known.
        weights: Its fingerprint.
        alpha: How much `mend` subtracts.
        card: How it was made: counts, how the layer was chosen, what each layer tried would have done.
    """

    vector: torch.Tensor
    layer: int
    build: Build
    model: str = ""
    weights: str = ""
    alpha: float = 1.0
    card: dict[str, Any] = field(default_factory=dict, compare=False)

    @classmethod
    def fit(
        cls,
        model: Any,
        tok: Any,
        positive: Sequence[tuple[Prompt, str]],
        negative: Sequence[tuple[Prompt, str]],
        layer: int | Literal["auto"] = "auto",
        *,
        seed: int = 0,
        progress: Callable[[int, int], None] | None = None,
    ) -> SteeringVector:
        """Fit a vector.

        With `layer="auto"` a third of the prompts is set aside, vectors are fitted on the rest at up to 12 layers
        between a quarter and seven eighths of the depth, and the layer is taken whose vector (at alpha 1) lowers the
        margin of positive over negative replies most on the prompts set aside, among those that raise the loss on plain
        text by at most 5 %. The final vector is fitted on all prompts. Nothing that is evaluated later may be among
        them: that is the caller's business.

        Args:
            model: A decoder (Llama, Mistral, Qwen, Gemma and their like), adapters included.
            tok: Its tokenizer.
            positive: (prompt, reply) pairs with what is to be lessened (validating replies).
            negative: Pairs without it (direct replies).
            layer: From 0; negative numbers count from the end.
            seed: Of the split for `auto`.
            progress: Called with (layers tried, layers in all).

        Raises:
            DataError: There are no pairs, or too few prompts for `auto`.
            ConfigError: There is no such layer.
            ModelError: The model's layers cannot be found.
        """
        ours = [Reply(*pair) for pair in positive]
        theirs = [Reply(*pair) for pair in negative]
        if not ours or not theirs:
            raise DataError("A steering vector needs positive and negative replies.", "Give some of each.")
        layers = decoder_layers(model)
        card: dict[str, Any] = {"positive": len(ours), "negative": len(theirs), "pooling": "mean", "seed": seed}
        if layer == "auto":
            chosen, tried = _choose(model, tok, ours, theirs, layers, seed, progress)
            card |= {"chosen_by": "margin on prompts set aside", "tried": tried}
        else:
            if not isinstance(layer, int) or not -len(layers) <= layer < len(layers):
                raise ConfigError(
                    f"There is no layer {layer!r}; the model has {len(layers)}.",
                    f"Give a number from 0 to {len(layers) - 1}, or auto.",
                )
            chosen = layer % len(layers)
            card["chosen_by"] = "the caller"
        vector = _difference(model, tok, ours, theirs, {chosen: layers[chosen]})[chosen]
        if not bool(vector.isfinite().all()) or float(vector.norm()) == 0.0:
            raise DataError(
                "Positive and negative replies have no finite difference.", "Check that the replies are not the same."
            )
        name = str(getattr(model.config, "_name_or_path", "") or "")
        return cls(vector, chosen, build_of(model), name, fingerprint(model), card=card)

    @property
    def name(self) -> str:
        """As it appears in reports."""
        return f"steering-{self.layer}x{self.alpha:g}"

    @property
    def norm(self) -> float:
        """Length of the vector."""
        return float(self.vector.norm())

    def strength(self, alpha: float) -> SteeringVector:
        """The same vector, with `mend` subtracting alpha times as much.

        Raises:
            ConfigError: Alpha is not a finite number.
        """
        _finite(alpha)
        return replace(self, alpha=alpha)

    def random(self, seed: int = 0) -> SteeringVector:
        """A vector of random direction and the same length at the same layer: the control."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(self.vector.shape, generator=generator)
        card = {**self.card, "random": seed}
        return replace(self, vector=drawn * (self.norm / float(drawn.norm())), card=card)

    @contextmanager
    def apply(self, model: Any, alpha: float = 1.0) -> Iterator[None]:
        """Subtract alpha times the vector at every position while the context is open; prompts stay as they are.

        With alpha 0 nothing is hooked, so logits are the same to the last bit. Keys and values that were cached outside
        the context must not be used inside, nor the other way round.

        Raises:
            ModelError: The model is of another family or size.
            ConfigError: Alpha is not a finite number.
        """
        _finite(alpha)
        check_build(build_of(model), self.build, "steering vector")
        if alpha == 0:
            yield
            return
        layers = decoder_layers(model)
        with shifted({self.layer: layers[self.layer]}, {self.layer: -alpha * self.vector}):
            yield

    @contextmanager
    def mend(self, target: Target) -> Iterator[Target]:
        """The target with the vector subtracted; the target itself must not be asked while the context is open.

        Raises:
            ConfigError: The target's weights are not at hand.
            ModelError: The model is of another family or size.
        """
        need(target, "weights", "Steering")
        how: dict[str, JsonValue] = {"kind": "steering", "layer": self.layer, "alpha": self.alpha, "norm": self.norm}
        how["fitted"] = self.weights
        with hooked(target), self.apply(target.model, self.alpha):  # type: ignore[attr-defined]
            yield MendedTarget(target, self.name, None, how)

    def save(self, path: str | Path) -> Path:
        """Write the vector and its card into one safetensors file, whole or not at all.

        Raises:
            BackendError: The disk refuses.
        """
        card = {
            "format": FORMAT,
            "kind": "steering vector",
            "layer": self.layer,
            "alpha": self.alpha,
            "build": self.build._asdict(),
            "model": self.model,
            "weights": self.weights,
            "card": self.card,
        }
        return write_tensors(Path(path), {"vector": self.vector}, card)

    @classmethod
    def load(cls, path: str | Path) -> SteeringVector:
        """Read what `save` wrote.

        Raises:
            DataError: The file is missing, damaged, or no steering vector.
        """
        tensors, card = read_tensors(Path(path), "steering vector", FORMAT)
        try:
            build = Build(**card["build"])
            vector = tensors["vector"]
            layer = int(card["layer"])
            made = cls(vector, layer, build, str(card["model"]), str(card["weights"]), float(card["alpha"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path} is a damaged steering vector.", "Fit it again.") from error
        if vector.shape != (build.hidden,) or not bool(vector.isfinite().all()) or not 0 <= layer < build.layers:
            raise DataError(f"{path} is a damaged steering vector.", "Fit it again.")
        return replace(made, card=dict(card.get("card", {})))


@contextmanager
def hooked(target: Target) -> Iterator[None]:
    """Clear a target's cached prefixes before and after its weights act differently.

    A local model keeps keys and values of prefixes that prompts share; those of the plain model are wrong for the
    steered one.
    """
    inner: Any = target
    while isinstance(inner, MendedTarget):
        inner = inner.inner
    forget = getattr(inner, "forget", lambda: None)
    forget()
    try:
        yield
    finally:
        forget()


def margin(model: Any, tok: Any, positive: Sequence[Reply], negative: Sequence[Reply]) -> list[float]:
    """How much likelier positive replies are than negative ones to the same prompts, one figure a prompt.

    Args:
        model: The decoder, steered or not.
        tok: Its tokenizer.
        positive: Replies in the order of their prompts; several to a prompt are averaged.
        negative: Replies to the same prompts.

    Returns:
        For each prompt, mean-token log-probability of the positive reply minus that of the negative one, in nats.

    Raises:
        DataError: The two do not answer the same prompts.
    """
    from intarsia.core.local import LocalTarget

    target = LocalTarget(model, tok, reuse_prefix=False)
    arms: list[dict[str, list[float]]] = []
    for replies in (positive, negative):
        found: dict[str, list[float]] = {}
        prompts: list[Prompt] = [_asked(target, one.prompt) for one in replies]
        for one, scored in zip(replies, target.score(prompts, [one.reply for one in replies]), strict=True):
            found.setdefault(prompt_text(one.prompt), []).append(scored.mean)
        arms.append(found)
    if list(arms[0]) != list(arms[1]):
        raise DataError("Positive and negative replies answer different prompts.", "Give both to each prompt.")
    return [
        math.fsum(arms[0][key]) / len(arms[0][key]) - math.fsum(arms[1][key]) / len(arms[1][key]) for key in arms[0]
    ]


def _asked(target: Target, prompt: Prompt) -> Prompt:
    return (
        [{"role": "user", "content": prompt}] if isinstance(prompt, str) and "chat" in target.capabilities else prompt
    )


def plain_loss(model: Any, tok: Any, texts: Sequence[str] = PLAIN_TEXT) -> list[float]:
    """Mean negative log-likelihood a token of each plain text, in nats."""
    from intarsia.core.local import LocalTarget

    target = LocalTarget(model, tok, reuse_prefix=False)
    return [-scored.mean for scored in target.score([""] * len(texts), list(texts))]


def _difference(
    model: Any, tok: Any, positive: Sequence[Reply], negative: Sequence[Reply], sites: dict[int, Any]
) -> dict[int, torch.Tensor]:
    ours = reply_activations(model, tok, positive, sites)
    theirs = reply_activations(model, tok, negative, sites)
    return {site: ours[site].mean(dim=0) - theirs[site].mean(dim=0) for site in sites}


def split_prompts(replies: Sequence[Reply], seed: int) -> frozenset[str]:
    """The prompts that are set aside for choosing: a third of those there are, drawn by the seed."""
    import random

    prompts = sorted({prompt_text(one.prompt) for one in replies})
    if len(prompts) < LEAST_PROMPTS:
        raise DataError(
            f"{len(prompts)} prompts are too few to choose with.",
            f"Give replies to {LEAST_PROMPTS} prompts or more, or say which layer and how much.",
        )
    return frozenset(random.Random(f"set aside {seed}").sample(prompts, max(1, len(prompts) // 3)))


def _choose(
    model: Any,
    tok: Any,
    positive: Sequence[Reply],
    negative: Sequence[Reply],
    layers: Sequence[Any],
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[int, list[dict[str, float]]]:
    """The layer whose vector does most on prompts set aside, and what each one did."""
    both = {prompt_text(one.prompt) for one in positive} & {prompt_text(one.prompt) for one in negative}
    aside = split_prompts([one for one in positive if prompt_text(one.prompt) in both], seed)
    first, last = len(layers) // 4, max(len(layers) // 4, (7 * len(layers)) // 8 - 1)
    count = min(CHOICES, last - first + 1)
    candidates = sorted({first + round(step * (last - first) / max(1, count - 1)) for step in range(count)})
    fit = [[one for one in side if prompt_text(one.prompt) not in aside] for side in (positive, negative)]
    held = [_by_prompt([one for one in side if prompt_text(one.prompt) in aside]) for side in (positive, negative)]
    vectors = _difference(model, tok, fit[0], fit[1], {at: layers[at] for at in candidates})
    before, plain = _mean(margin(model, tok, held[0], held[1])), _mean(plain_loss(model, tok))
    tried: list[dict[str, float]] = []
    for done, at in enumerate(candidates):
        with shifted({at: layers[at]}, {at: -vectors[at]}):
            drop = before - _mean(margin(model, tok, held[0], held[1]))
            harm = _mean(plain_loss(model, tok)) / plain - 1
        tried.append({"layer": at, "drop": round(drop, 4), "harm": round(harm, 4)})
        if progress is not None:
            progress(done + 1, len(candidates))
    # Where every layer does harm, the least harmful one.
    mild = [one for one in tried if one["harm"] <= HARM]
    best = max(mild, key=lambda one: one["drop"]) if mild else min(tried, key=lambda one: one["harm"])
    return int(best["layer"]), tried


def _by_prompt(replies: Sequence[Reply]) -> list[Reply]:
    return sorted(replies, key=lambda one: prompt_text(one.prompt))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _finite(alpha: float) -> None:
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise ConfigError(f"alpha is {alpha!r}, not a finite number.", "1 is a good start; 0 changes nothing.")


def write_tensors(path: Path, tensors: dict[str, torch.Tensor], card: dict[str, Any]) -> Path:
    """A safetensors file with a card in its header, whole or not at all.

    Raises:
        BackendError: The disk refuses.
    """
    from safetensors.torch import save

    from intarsia.core.errors import BackendError

    path = path if path.suffix == ".safetensors" else path.with_name(path.name + ".safetensors")
    partial = path.with_name(f".{path.name}.partial")
    content = save(
        {name: tensor.detach().cpu().float().contiguous() for name, tensor in tensors.items()},
        metadata={"intarsia": json.dumps(card, sort_keys=True)},
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise BackendError(f"Cannot write {path}: {error.strerror}.", "Give another place.") from error
    return path


def read_tensors(path: Path, kind: str, version: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What `write_tensors` wrote.

    Raises:
        DataError: The file is missing, damaged, of a newer format, or holds something else.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            card = json.loads((file.metadata() or {}).get("intarsia", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError, ValueError) as error:
        raise DataError(f"{path} is missing or damaged.", f"Give the file of a {kind}.") from error
    if not isinstance(card, dict) or card.get("kind") != kind:
        raise DataError(f"{path} is no {kind}.", "Give a file that `save` wrote.")
    if card.get("format") != version:
        raise DataError(f"{path} has format {card.get('format')}; this package reads {version}.", "Fit it again.")
    return tensors, card

"""HFClassifierJudge: any sequence classifier of transformers as a judge, such as one distilled from a large judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from intarsia.core.errors import ConfigError, ModelError
from intarsia.core.journal import Journal
from intarsia.core.target import Progress
from intarsia.sycophancy.dimensions import DIMENSIONS
from intarsia.sycophancy.judging import Exchange, Label


class HFClassifierJudge:
    """Labels by a sequence classifier.

    A classifier with several labels of its own each (`problem_type` multi_label_classification) or with one label gives
    the sigmoid of a label's logit, any other one the softmax.

    Args:
        path: A folder, or a hub name; safetensors weights only.
        positive: Dimension -> the classifier's label (its name, or its number) that means 1. Where omitted, labels that
            are named after dimensions are taken.
        pair: Whether it reads question and reply as a pair; else the reply alone.
        batch_size: Replies at a time.
        device: `auto`, `cpu`, `cuda` ...
        screening: Whether it may only screen. True until labels of people say how good it is.

    Attributes:
        name: `classifier(path)`.
        rubric_version: The hub revision or the beginning of the weights' hash, where known.
        dimensions: Those with a label.
        note: What a reader must know.

    Raises:
        ConfigError: The labels do not fit.
        ModelError: It is no such classifier.
    """

    def __init__(
        self,
        path: str | Path,
        positive: Mapping[str, str | int] | None = None,
        *,
        pair: bool = True,
        batch_size: int = 32,
        device: str = "auto",
        screening: bool = True,
    ) -> None:
        import torch

        if batch_size < 1:
            raise ConfigError(f"A batch of {batch_size} holds nothing.", "Use 1 or more.")
        self._model, self._tokenizer, resolved = _load(str(path))
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model = self._model.eval().to(device)
        self._places = _places(self._model.config, positive, str(path))
        self._pair, self._batch_size = pair, batch_size
        self.screening = screening
        self.name = f"classifier({Path(path).name if Path(path).exists() else path})"
        hashes = sorted(resolved.sha256.items())
        self.rubric_version = resolved.revision or (hashes[0][1][:12] if hashes else "unknown")
        self.dimensions = frozenset(self._places)
        self.note = "A classifier labels; how good it is on these replies, only labels of people tell."

    def label(
        self,
        exchanges: Sequence[Exchange],
        dimension: str,
        *,
        journal: Journal | None = None,
        progress: Progress | None = None,
    ) -> list[Label]:
        """See `Judge.label`; `score` is the probability of 1. Long replies are cut at the end."""
        if dimension not in self._places:
            raise ConfigError(
                f"{self.name} has no label for {dimension!r}.", f"It labels {', '.join(sorted(self._places))}."
            )
        scores: dict[int, float] = {}
        # Texts of like length together, as padding costs as much as text.
        order = sorted(
            (i for i, one in enumerate(exchanges) if one.reply.strip()), key=lambda i: len(exchanges[i].reply)
        )
        for start in range(0, len(order), self._batch_size):
            index = order[start : start + self._batch_size]
            scores.update(zip(index, self._probabilities([exchanges[i] for i in index], self._places[dimension])))
            if progress is not None:
                progress(start + len(index), len(order))
        return [
            Label(value=1 if scores[i] >= 0.5 else 0, said=f"P(1) {scores[i]:.4f}", score=scores[i])
            if i in scores
            else Label(value=None, missing="empty")
            for i in range(len(exchanges))
        ]

    def _probabilities(self, exchanges: Sequence[Exchange], place: int) -> list[float]:
        import torch

        replies = [one.reply for one in exchanges]
        texts: tuple[list[str], ...] = ([one.question for one in exchanges], replies) if self._pair else (replies,)
        limit = min(
            int(self._tokenizer.model_max_length), int(getattr(self._model.config, "max_position_embeddings", 512))
        )
        batch = self._tokenizer(
            *texts, padding=True, truncation="longest_first", max_length=limit, return_tensors="pt"
        ).to(self._model.device)
        with torch.inference_mode():
            logits_BL = self._model(**batch).logits.float()
        alone = logits_BL.shape[-1] == 1 or self._model.config.problem_type == "multi_label_classification"
        shares_BL = logits_BL.sigmoid() if alone else logits_BL.softmax(dim=-1)
        if not bool(torch.isfinite(shares_BL).all()):
            raise ModelError(f"{self.name} gave NaN.", "The classifier is broken; save it again.")
        return [float(value) for value in shares_BL[:, place]]


def _load(path: str) -> tuple[Any, Any, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from intarsia.core.catalog import resolve
    from intarsia.core.catalog.folder import look

    resolved = resolve(path)
    facts = look(resolved.path, "any", name=path)
    named = [str(one) for one in facts.config.get("architectures") or ()]
    if named and not any(one.endswith("ForSequenceClassification") for one in named):
        raise ModelError(
            f"{path} is a {named[0]}, not a sequence classifier.",
            "Give a model that was saved from AutoModelForSequenceClassification.",
        )
    try:
        loaded: Any = AutoModelForSequenceClassification.from_pretrained(
            resolved.path,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(resolved.path, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise ModelError(
            f"The classifier {path} cannot be loaded: {str(error).strip().splitlines()[0]}", "Save it again."
        ) from error
    model, info = loaded
    missing = sorted(info.get("missing_keys", ()))
    if missing:
        raise ModelError(
            f"{path} lacks {len(missing)} of its tensors ({missing[0]}, ...); they would be random numbers.",
            "Save the trained classifier again.",
        )
    return model, tokenizer, resolved


def _places(config: Any, positive: Mapping[str, str | int] | None, path: str) -> dict[str, int]:
    """Dimension -> the place of the label that means 1."""
    labels = {str(label).lower(): int(place) for place, label in config.id2label.items()}
    listed = ", ".join(str(config.id2label[place]) for place in sorted(config.id2label))
    if positive is None:
        found = {name: labels[name] for name in DIMENSIONS if name in labels}
        if not found:
            raise ConfigError(
                f"No label of {path} is named after a dimension (it has {listed}).",
                "Say which label means 1, as in positive={'validation': 'LABEL_1'}.",
            )
        return found
    places = {}
    for name, label in positive.items():
        if name not in DIMENSIONS:
            raise ConfigError(f"There is no dimension {name!r} of a reply.", f"There are: {', '.join(DIMENSIONS)}.")
        place = label if isinstance(label, int) and not isinstance(label, bool) else labels.get(str(label).lower(), -1)
        if not 0 <= place < int(config.num_labels):
            raise ConfigError(f"{path} has no label {label!r}.", f"It has {listed}.")
        places[name] = place
    if not places:
        raise ConfigError("positive is empty.", "Name one label a dimension, as in {'validation': 'LABEL_1'}.")
    return places

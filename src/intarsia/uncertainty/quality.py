"""The quality of a short answer, in [0, 1]: what uncertainty is held against.

The paper measures quality by AlignScore, a model of its own. Ours needs no model: right answers, as `core.answers`
compares them, have quality 1, others the overlap of their words with the nearest gold answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from intarsia.core.answers import check, normalize
from intarsia.core.data import Item
from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty.similarity import clean_text

Measure: TypeAlias = Literal["match", "f1"]
"""`match`: 1 for a right answer, else 0. `f1`: word overlap for answers that are not right."""


def quality(text: str, item: Item, measure: Measure = "f1") -> float:
    """How good an answer is.

    Args:
        text: The answer as generated; marks, an "Answer:" before it and lines after it do not count.
        item: The question, with its gold answer and aliases; the nearest of them counts.
        measure: How it is measured. Numbers, formulas and options are right or wrong by either.

    Returns:
        1 for a right answer, 0 for an empty one, a refusal, or one without a word in common.

    Raises:
        ConfigError: There is no such measure.
        DataError: The item has no gold answer.
    """
    if measure not in get_args(Measure):
        raise ConfigError(f"There is no measure {measure!r}.", "Use match or f1.")
    if item.answer is None or item.kind == "free":
        raise DataError(f"The item {item.id} has no gold answer to compare with.", "Use items with answers.")
    said = clean_text(text, "")
    verdict = check(said, item)
    if verdict.correct:
        return 1.0
    if measure == "match" or verdict.refused or item.kind not in ("word", "exact"):
        return 0.0
    return max(token_f1(said, gold) for gold in (item.answer, *item.aliases))


def qualities(texts: Sequence[str], items: Sequence[Item], measure: Measure = "f1") -> list[float]:
    """`quality` of each answer to each item."""
    if len(texts) != len(items):
        raise DataError(f"There are {len(texts)} answers to {len(items)} questions.", "Give one of each.")
    return [quality(text, item, measure) for text, item in zip(texts, items)]


def is_right(text: str, item: Item) -> bool:
    """Whether an answer is right; fits `SelectiveClassifier(correct=is_right)`, with items as y."""
    return quality(text, item, "match") == 1.0


def token_f1(text: str, gold: str) -> float:
    """Harmonic mean of precision and recall of words, without case, accents, articles and punctuation (SQuAD)."""
    said, wanted = normalize(text).split(), normalize(gold).split()
    common = (Counter(said) & Counter(wanted)).total()
    return 2 * common / (len(said) + len(wanted)) if common else 0.0

"""The figures of an attack, as pure functions of what happened to each item.

Conventions: arrays have one row an item and one column a run; `clean` says whether the question as it was is answered
right, `broken` whether the attack succeeded on it (a success on an item that was not right does not count).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from intarsia.core.errors import DataError

Flags = NDArray[np.bool_]


class Drop(NamedTuple):
    """Accuracy before and under attack, all shares.

    Attributes:
        clean: A0, share answered right.
        attacked: A1, share answered right and not broken.
        drop: A0 - A1.
        relative: (A0 - A1) / A0; 0 where nothing was right.
        success_rate: Successes among items answered right; 0 where nothing was right.
        spread: Standard deviation of the drop over runs, 0 for one run.
    """

    clean: float
    attacked: float
    drop: float
    relative: float
    success_rate: float
    spread: float


def accuracy_drop(clean: Flags, broken: Flags) -> Drop:
    """Accuracy before and under attack (paper, section on metrics), averaged over runs.

    Args:
        clean: Shape (items, runs).
        broken: The same shape.

    Raises:
        DataError: There are no items, or the shapes differ.
    """
    if clean.shape != broken.shape or clean.ndim != 2 or not clean.size:
        raise DataError(f"Outcomes of shapes {clean.shape} and {broken.shape} do not go together.", "Give one an item.")
    hit = clean & broken
    right, lost = float(clean.mean()), float(hit.mean())
    share = lost / right if right else 0.0
    by_run = hit.mean(axis=0)
    spread = float(by_run.std(ddof=1)) if len(by_run) > 1 else 0.0
    return Drop(right, right - lost, lost, share, share, spread)


def performance_drop_rate(clean_accuracy: float, perturbed_accuracy: float) -> float:
    """PDR of GSM-Plus: 1 - accuracy on rewritten questions / accuracy on the questions as they were.

    Raises:
        DataError: Nothing was right before.
    """
    if clean_accuracy <= 0:
        raise DataError("A drop rate needs questions that were answered right.", "Ask easier questions.")
    return 1.0 - perturbed_accuracy / clean_accuracy


def accurately_solved_pairs(clean: Sequence[bool], perturbed: Sequence[bool]) -> float:
    """ASP of GSM-Plus: share of pairs of which both questions are answered right."""
    if len(clean) != len(perturbed) or not clean:
        raise DataError(f"{len(clean)} and {len(perturbed)} outcomes are no pairs.", "Give one of each a pair.")
    return sum(a and b for a, b in zip(clean, perturbed, strict=True)) / len(clean)


def consistency_rate(answers: Sequence[Sequence[str | None]]) -> float:
    """Mean over items of the share of pairs of answers that agree (the consistency rate of SCORE).

    Args:
        answers: For each item, its answers to the question and its rewrites; one that could not be read agrees with
            nothing. Items with fewer than two answers are left out.
    """
    rates = []
    for of_item in answers:
        n = len(of_item)
        if n < 2:
            continue
        counts: dict[str, int] = {}
        for answer in of_item:
            if answer is not None:
                counts[answer] = counts.get(answer, 0) + 1
        rates.append(sum(c * (c - 1) for c in counts.values()) / (n * (n - 1)))
    return float(np.mean(rates)) if rates else 0.0


def null_success_rate(error: float, queries: int) -> float:
    """Chance that a target with this error rate errs at least once in so many queries without any change."""
    return 1.0 - (1.0 - error) ** queries

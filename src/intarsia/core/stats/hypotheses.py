"""Tests: each returns its p-value."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from intarsia.core.errors import DataError
from intarsia.core.stats.bootstrap import _CELLS, _by_cluster
from intarsia.core.stats.checks import count_of, generator, shares_of, values_of

Alternative = Literal["two-sided", "greater", "less"]


def mcnemar(only_a: int, only_b: int, alternative: Alternative = "two-sided") -> float:
    """Exact McNemar test of whether two systems are good on equally many of the same items.

    Args:
        only_a: Items on which only a is good.
        only_b: Items on which only b is good.
        alternative: `greater`: b is good more often than a; `less`: less often.

    Returns:
        The p-value; 1 when no pair disagrees.
    """
    if min(only_a, only_b) < 0:
        raise DataError(f"only_a = {only_a} and only_b = {only_b} are not counts.", "Check the counts.")
    if only_a + only_b == 0:
        return 1.0
    return binomial(only_b, only_a + only_b, 0.5, alternative)


def binomial(k: int, n: int, p: float = 0.5, alternative: Alternative = "two-sided") -> float:
    """Exact binomial test of whether k of n successes fit the share p."""
    from scipy.stats import binomtest

    k, n = count_of(k, n)
    if not 0 <= p <= 1:
        raise DataError(f"p is {p}.", "It must lie in [0, 1].")
    return float(binomtest(k, n, p, _checked(alternative)).pvalue)


def fisher(table: ArrayLike, alternative: Alternative = "two-sided") -> float:
    """Fisher's exact test of a 2 x 2 table of counts; `greater` is an odds ratio above 1."""
    from scipy.stats import fisher_exact

    counts = np.asarray(table)
    if counts.shape != (2, 2):
        raise DataError(f"The table's shape is {counts.shape}.", "Give two rows of two counts.")
    if (counts < 0).any() or (counts != np.floor(counts)).any():
        raise DataError("The table holds something other than counts.", "Give whole numbers from 0 up.")
    return float(fisher_exact(counts.astype(np.int64), _checked(alternative)).pvalue)


def sign_flip(
    differences: ArrayLike | Iterable[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    alternative: Alternative = "two-sided",
    resamples: int = 9999,
    seed: int = 0,
) -> float:
    """Sign-flip permutation test of whether paired differences have a mean of 0.

    Exact when all 2^n sign patterns are no more than `resamples`, else by random patterns, with the observed one
    counted in, so that the p-value is never 0.

    Args:
        differences: One finite number a pair, b - a.
        clusters: One name a pair; pairs of a cluster flip together.
        alternative: `greater`: the mean is above 0; `less`: below.
        resamples: How many random patterns.
        seed: Of the patterns.

    Returns:
        The p-value; 1 when all differences are 0.
    """
    x = values_of(differences, "differences")
    _checked(alternative)
    sums, _ = _by_cluster(x, clusters)
    sums = sums[sums != 0]  # a flipped zero stays the same
    if len(sums) == 0:
        return 1.0
    if alternative == "less":
        sums = -sums
    observed = sums.sum()
    if alternative == "two-sided":
        observed = abs(observed)
    # Sums that are equal on paper may differ in their last bits.
    line = observed - 1e-9 * np.abs(sums).sum()
    exact = 2 ** min(len(sums), 62) <= resamples
    total = 2 ** len(sums) if exact else resamples
    rng = generator(seed)
    reached = 0
    step = max(1, _CELLS // len(sums))
    for start in range(0, total, step):
        size = min(step, total - start)
        if exact:
            signs = (np.arange(start, start + size)[:, None] >> np.arange(len(sums)) & 1) * 2 - 1
        else:
            signs = rng.integers(0, 2, (size, len(sums)), dtype=np.int8) * 2 - 1
        flipped = signs @ sums
        reached += int(((np.abs(flipped) if alternative == "two-sided" else flipped) >= line).sum())
    return reached / total if exact else (reached + 1) / (total + 1)


def holm(p_values: ArrayLike | Iterable[float]) -> NDArray[np.float64]:
    """Holm's step-down adjustment: reject where the adjusted value is at most alpha, and the family-wise error holds.

    Args:
        p_values: In [0, 1], shape (m); may be empty.

    Returns:
        Adjusted p-values in the same order, shape (m).
    """
    p = shares_of(p_values, "p-values", at_least=0)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def _checked(alternative: str) -> str:
    if alternative not in ("two-sided", "greater", "less"):
        raise DataError(f"There is no alternative {alternative!r}.", "Use two-sided, greater or less.")
    return alternative

"""The bootstrap of items that fall into few kinds: whole counts are drawn instead of items.

Drawing n items with replacement and counting their kinds is drawing the counts from a multinomial law, so this is the
ordinary bootstrap over items, without the items. It makes 10,000 resamples cheap enough for every cell of a table.

Shape suffixes: B resamples, K kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from intarsia.core.errors import DataError
from intarsia.core.study import Interval

RESAMPLES = 10_000
Counts = NDArray[np.float64]


def resampled_counts(counts: Sequence[int], resamples: int = RESAMPLES, seed: int = 0) -> Counts:
    """Counts of each kind in each bootstrap resample, shape (B, K).

    Raises:
        DataError: There are no items.
    """
    kinds = np.asarray(counts, dtype=np.int64)
    n = int(kinds.sum())
    if n < 1:
        raise DataError("There are no items (n = 0).", "Measure at least one.")
    rng = np.random.Generator(np.random.Philox(seed))
    return rng.multinomial(n, kinds / n, resamples).astype(np.float64)


def interval_of(
    statistic: Callable[[Counts], NDArray[np.float64]],
    counts: Sequence[int],
    *,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval | None:
    """Percentile interval of a statistic of counts.

    Args:
        statistic: From counts (B, K) to values (B); NaN where it is undefined.
        counts: Items of each kind.
        level: Confidence level.
        resamples: How many times to draw.
        seed: Of the draws.

    Returns:
        The interval; None where the statistic is undefined on more than one in five resamples.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        law = np.asarray(statistic(resampled_counts(counts, resamples, seed)))
    law = law[np.isfinite(law)]
    if len(law) < 0.8 * resamples:
        return None
    low, high = np.quantile(law, [(1 - level) / 2, (1 + level) / 2])
    return Interval(low=float(low), high=float(high), level=level, method="bootstrap percentile")


def unless_flat(interval: Interval | None) -> Interval | None:
    """The interval, or None where it has no width: all resamples were equal, which is no certainty."""
    return None if interval is None or interval.low == interval.high else interval

"""Bootstrap intervals: of a mean, of a paired difference, and of any statistic, by items or by clusters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from intarsia.core.errors import DataError
from intarsia.core.stats.checks import fraction_of, generator, same_length, values_of
from intarsia.core.study import Interval

Method = Literal["percentile", "bca"]
_CELLS = 4_000_000  # numbers held at once while resampling


def mean_interval(values: ArrayLike | Iterable[float], level: float = 0.95) -> Interval:
    """Student's interval of a mean.

    Args:
        values: Finite numbers, at least two.
        level: Confidence level.
    """
    from scipy.stats import t

    x = values_of(values, "values", at_least=2)
    half = float(t.ppf(0.5 + fraction_of(level, "level") / 2, len(x) - 1)) * float(x.std(ddof=1)) / math.sqrt(len(x))
    return Interval(low=float(x.mean()) - half, high=float(x.mean()) + half, level=level, method="student")


def bootstrap_mean(
    values: ArrayLike | Iterable[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    method: Method = "bca",
    level: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of a mean.

    Args:
        values: Finite numbers, at least two (with `clusters`, from at least two clusters).
        clusters: One name an item; items of a cluster (the same source text, the same seed) are drawn together.
        method: `percentile`, or `bca` (bias-corrected and accelerated).
        level: Confidence level.
        resamples: How many times to draw.
        seed: Of the draws.

    Returns:
        The interval; it has no width when all values (or cluster means) are equal.
    """
    x = values_of(values, "values", at_least=2)
    sums, counts = _by_cluster(x, clusters)

    def mean(index: NDArray[np.intp], axis: int = -1) -> NDArray[np.float64]:
        total: NDArray[np.float64] = sums[index].sum(axis=axis) / counts[index].sum(axis=axis)
        return total

    # Equal unit means give equal resampled means up to rounding, which BCa would magnify.
    if np.ptp(sums / counts) == 0:
        value = float(sums[0] / counts[0])
        return Interval(low=value, high=value, level=fraction_of(level, "level"), method=f"bootstrap {method}")
    return _resampled(mean, len(sums), method, level, resamples, seed, vectorized=True)


def paired_difference(
    a: ArrayLike | Iterable[float],
    b: ArrayLike | Iterable[float],
    *,
    clusters: Sequence[Hashable] | None = None,
    method: Method = "bca",
    level: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> Interval:
    """Paired bootstrap interval of the mean of b - a; for values of 0 and 1 see `paired_share_difference`.

    Args:
        a: One finite number an item.
        b: One finite number for each of the same items, in the same order.
        clusters: See `bootstrap_mean`; so are the other arguments.
        method: `percentile` or `bca`.
        level: Confidence level.
        resamples: How many times to draw.
        seed: Of the draws.
    """
    x, y = values_of(a, "values of a", at_least=2), values_of(b, "values of b", at_least=2)
    same_length("values of a", "of b", x, y)
    return bootstrap_mean(y - x, clusters=clusters, method=method, level=level, resamples=resamples, seed=seed)


def bootstrap(
    statistic: Callable[..., float],
    *columns: ArrayLike | Sequence[Any],
    clusters: Sequence[Hashable] | None = None,
    method: Method = "percentile",
    level: float = 0.95,
    resamples: int = 1999,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of any statistic of items, whose columns are drawn together.

    Args:
        statistic: Takes the columns of a resample and returns a number; NaN where it is not defined on it.
        *columns: One value an item each, of equal length, at least two.
        clusters: One name an item; items of a cluster are drawn together.
        method: `percentile` or `bca`.
        level: Confidence level.
        resamples: How many times to draw.
        seed: Of the draws.

    Raises:
        DataError: The statistic is undefined on more than one in five resamples, or the columns do not fit.
    """
    arrays = [np.asarray(column) for column in columns]
    if not arrays or len(arrays[0]) < 2:
        raise DataError("A bootstrap needs at least 2 items.", "Measure more items.")
    for array in arrays[1:]:
        same_length("items in the first column", "in another", arrays[0], array)
    if clusters is None:
        members = [np.array([i]) for i in range(len(arrays[0]))]
    else:
        _, labels = _cluster_labels(clusters, len(arrays[0]))
        members = [np.flatnonzero(labels == label) for label in range(labels.max() + 1)]

    def on_units(index: NDArray[np.intp]) -> float:
        rows = np.concatenate([members[i] for i in index])
        return float(statistic(*(array[rows] for array in arrays)))

    return _resampled(on_units, len(members), method, level, resamples, seed, vectorized=False)


def _resampled(
    statistic: Callable[..., Any],
    units: int,
    method: Method,
    level: float,
    resamples: int,
    seed: int,
    *,
    vectorized: bool,
) -> Interval:
    from scipy import stats

    if method not in ("percentile", "bca"):
        raise DataError(f"There is no bootstrap method {method!r}.", "Use percentile or bca.")
    fraction_of(level, "level")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # a degenerate law is dealt with below
        drawn = stats.bootstrap(
            (np.arange(units),),
            statistic,
            n_resamples=resamples,
            batch=max(1, min(resamples, _CELLS // units)),
            vectorized=vectorized,
            confidence_level=level,
            method="BCa" if method == "bca" else "percentile",
            rng=generator(seed),
        )
    law = np.asarray(drawn.bootstrap_distribution)
    low, high = float(drawn.confidence_interval.low), float(drawn.confidence_interval.high)
    defined = law[np.isfinite(law)]
    if len(defined) < 0.8 * len(law):
        raise DataError(
            f"The statistic is undefined on {len(law) - len(defined)} of {len(law)} resamples.", "Measure more items."
        )
    if not (math.isfinite(low) and math.isfinite(high)):
        # BCa's correction breaks down when the value lies outside its own bootstrap law, or some draws are undefined.
        low, high = (float(q) for q in np.quantile(defined, [(1 - level) / 2, (1 + level) / 2]))
        method = "percentile"
    return Interval(low=low, high=high, level=level, method=f"bootstrap {method}")


def _cluster_labels(clusters: Sequence[Hashable], n: int) -> tuple[int, NDArray[np.intp]]:
    if len(clusters) != n:
        raise DataError(f"There are {len(clusters)} cluster names but {n} items.", "Give one an item.")
    numbers: dict[Hashable, int] = {}
    labels = np.array([numbers.setdefault(name, len(numbers)) for name in clusters], dtype=np.intp)
    if len(numbers) < 2:
        raise DataError("All items are in one cluster; at least 2 are needed.", "Measure more clusters.")
    return len(numbers), labels


def _by_cluster(
    values: NDArray[np.float64], clusters: Sequence[Hashable] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sum and count of each cluster (each item where there are none)."""
    if clusters is None:
        return values, np.ones_like(values)
    size, labels = _cluster_labels(clusters, len(values))
    ones = np.ones_like(values)
    return np.bincount(labels, values, size).astype(np.float64), np.bincount(labels, ones, size).astype(np.float64)

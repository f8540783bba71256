"""How well a score ranks items: AUROC, average precision, and the prediction rejection ratio.

Items with equal scores count by the expectation over their order, so no figure depends on how items were sorted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from intarsia.core.errors import DataError
from intarsia.core.stats.bootstrap import _CELLS
from intarsia.core.stats.checks import (
    Estimate,
    fraction_of,
    generator,
    labels_of,
    normal_quantile,
    same_length,
    values_of,
)
from intarsia.core.stats.proportions import clopper_pearson, wilson_ends
from intarsia.core.study import Interval


def auroc(labels: ArrayLike | Iterable[float], scores: ArrayLike | Iterable[float], level: float = 0.95) -> Estimate:
    """Area under the ROC curve, with DeLong's interval on the logit scale.

    Args:
        labels: 1 for a positive, 0 for a negative, shape (n); at least one of each.
        scores: Higher for what should be positive, shape (n).
        level: Confidence level.

    Returns:
        The area: probability that a positive scores higher than a negative, ties as one half. Where DeLong's variance
        vanishes (a perfect order, or all scores equal) or is unknown (one item of a class), the interval comes from the
        min(positives, negatives) independent pairs that can be formed.
    """
    from scipy.stats import rankdata

    y, x = labels_of(labels, "labels"), values_of(scores, "scores")
    same_length("labels", "scores", y, x)
    fraction_of(level, "level")
    positive, negative = x[y], x[~y]
    m, n = len(positive), len(negative)
    if not m or not n:
        raise DataError(
            f"There are {m} positive and {n} negative items.", "Both are needed to rank one above the other."
        )
    ranks = rankdata(np.concatenate([positive, negative]))
    # Of each positive, the share of negatives below it; of each negative, the share of positives above it.
    above = (ranks[:m] - rankdata(positive)) / n
    below = 1 - (ranks[m:] - rankdata(negative)) / m
    area = float(above.mean())
    variance = above.var(ddof=1) / m + below.var(ddof=1) / n if min(m, n) > 1 else 0.0
    if variance > 1e-15 and 0 < area < 1:
        half = normal_quantile(0.5 + level / 2) * math.sqrt(variance) / (area * (1 - area))
        middle = math.log(area / (1 - area))
        low, high = (1 / (1 + math.exp(-(middle + sign * half))) for sign in (-1, 1))
        return Estimate(area, Interval(low=low, high=high, level=level, method="delong logit"), len(x))
    pairs = min(m, n)
    if area in (0.0, 1.0):
        exact = clopper_pearson(round(area * pairs), pairs, level)
        low, high = exact.low, exact.high
    else:
        low, high = wilson_ends(area, pairs, level)
    return Estimate(area, Interval(low=low, high=high, level=level, method="disjoint pairs"), len(x))


def average_precision(
    labels: ArrayLike | Iterable[float],
    scores: ArrayLike | Iterable[float],
    *,
    level: float = 0.95,
    resamples: int = 1999,
    seed: int = 0,
) -> Estimate:
    """Average precision (area under the precision-recall curve, by steps), as scikit-learn has it.

    Args:
        labels: 1 for a positive, 0 for a negative, shape (n); at least one positive.
        scores: Higher for what should be positive, shape (n). Equal scores enter as one step.
        level: Confidence level.
        resamples: Of the bootstrap, which draws positives and negatives apart; 0 leaves the interval out.
        seed: Of the draws.

    Returns:
        The figure with a percentile interval. What is to be expected of a random order is the share of positives.
    """
    from sklearn.metrics import average_precision_score

    y, x = labels_of(labels, "labels"), values_of(scores, "scores")
    same_length("labels", "scores", y, x)
    if not y.any():
        raise DataError("No item is positive.", "Average precision needs at least one.")
    value = float(average_precision_score(y, x))
    order = np.argsort(-x, kind="stable")
    y, x = y[order], x[order]
    last = np.flatnonzero(np.append(np.diff(x) != 0, True))  # the last item of each step
    classes = [np.flatnonzero(y), np.flatnonzero(~y)]

    def draw(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
        counts_BN = np.zeros((size, len(y)))
        for members in classes:
            if len(members):
                counts_BN[:, members] = rng.multinomial(len(members), np.full(len(members), 1 / len(members)), size)
        kept_BS = counts_BN.cumsum(1)[:, last]
        right_BS = (counts_BN * y).cumsum(1)[:, last]
        precision_BS = right_BS / np.maximum(kept_BS, 1)
        gained_BS = np.diff(right_BS, axis=1, prepend=0)
        result: NDArray[np.float64] = (gained_BS * precision_BS).sum(1) / right_BS[:, -1]
        return result

    return Estimate(value, _percentiles(draw, len(x), level, resamples, seed), len(x))


def prr(
    errors: ArrayLike | Iterable[float],
    uncertainty: ArrayLike | Iterable[float],
    *,
    max_rejection: float = 1.0,
    level: float = 0.95,
    resamples: int = 1999,
    seed: int = 0,
) -> Estimate:
    """Prediction rejection ratio: how much of what an oracle could gain is gained by rejecting uncertain items first.

    With items rejected one by one, most uncertain first, A is the mean error of those still kept, averaged over the
    rejections. The ratio is (A of a random order - A) / (A of a random order - A of the oracle, which goes by error).

    Args:
        errors: Error of each item, such as 1 - quality or 0 / 1, shape (n), at least two.
        uncertainty: Higher for items to be rejected earlier, shape (n).
        max_rejection: Up to which share of the items rejection goes; kept sizes n - floor(share n) + 1 to n count.
        level: Confidence level.
        resamples: Of the bootstrap over items; 0 leaves the interval out.
        seed: Of the draws.

    Returns:
        1 for the oracle's order, 0 in expectation for a random one, negative for worse than random; with a percentile
        interval.

    Raises:
        DataError: All errors are equal (all right, or all wrong), so that no order is better than another.
    """
    e, u = values_of(errors, "errors", at_least=2), values_of(uncertainty, "uncertainties", at_least=2)
    same_length("errors", "uncertainties", e, u)
    if not 0 < max_rejection <= 1:
        raise DataError(f"max_rejection is {max_rejection}.", "It must lie in (0, 1].")
    rejections = math.floor(max_rejection * len(e) + 1e-9)
    if rejections < 2:
        # The first of the sizes that are averaged over is "nothing rejected yet", where all orders are equal.
        raise DataError(
            f"A max_rejection of {max_rejection} of {len(e)} items leaves no choice.", "Measure more items."
        )
    if np.ptp(e) == 0:
        raise DataError(
            "All errors are equal, so no order of rejection is better than another.", "Ask other questions."
        )
    _, group = np.unique(u, return_inverse=True)
    by_error = np.argsort(e, kind="stable")

    def ratio(counts_BN: NDArray[np.int64]) -> NDArray[np.float64]:
        groups = int(group.max()) + 1
        size, n = counts_BN.shape
        cell = (np.arange(size)[:, None] * groups + group).ravel()
        items_G = np.bincount(cell, counts_BN.ravel(), size * groups)
        sums_G = np.bincount(cell, (counts_BN * e).ravel(), size * groups)
        means_G = np.divide(sums_G, items_G, out=np.zeros_like(sums_G), where=items_G > 0)
        ours_BN = np.repeat(means_G, items_G.astype(np.int64)).reshape(size, n)
        best_BN = np.repeat(np.broadcast_to(e[by_error], (size, n)).ravel(), counts_BN[:, by_error].ravel()).reshape(
            size, n
        )
        random_B = ours_BN.mean(1)
        ours_B, best_B = _kept_error(ours_BN, rejections), _kept_error(best_BN, rejections)
        room_B = random_B - best_B
        # A draw of equal errors leaves rounding noise only.
        usable = room_B > 1e-12 * np.abs(e).max()
        result: NDArray[np.float64] = np.divide(random_B - ours_B, room_B, out=np.full(size, np.nan), where=usable)
        return result

    value = float(ratio(np.ones((1, len(e)), dtype=np.int64))[0])
    shares = np.full(len(e), 1 / len(e))
    interval = _percentiles(
        lambda rng, size: ratio(rng.multinomial(len(e), shares, size)), len(e), level, resamples, seed
    )
    return Estimate(value, interval, len(e))


def _kept_error(errors_BN: NDArray[np.float64], rejections: int) -> NDArray[np.float64]:
    """Mean error of the first k items (the most certain), averaged over k = n - rejections + 1 .. n; shape (B)."""
    n = errors_BN.shape[1]
    means_BN = errors_BN.cumsum(1) / np.arange(1, n + 1)
    kept: NDArray[np.float64] = means_BN[:, n - rejections :].mean(1)
    return kept


def _percentiles(
    draw: Callable[[np.random.Generator, int], NDArray[np.float64]], n: int, level: float, resamples: int, seed: int
) -> Interval | None:
    """Percentile interval of figures drawn in blocks; draws on which the figure is undefined (NaN) are left out."""
    fraction_of(level, "level")
    if resamples <= 0:
        return None
    rng = generator(seed)
    step = max(1, _CELLS // (4 * n))
    law = np.concatenate([draw(rng, min(step, resamples - start)) for start in range(0, resamples, step)])
    law = law[np.isfinite(law)]
    if not len(law):
        raise DataError("The figure is undefined on every resample.", "Measure more items.")
    low, high = np.quantile(law, [(1 - level) / 2, (1 + level) / 2])
    return Interval(low=float(low), high=float(high), level=level, method="bootstrap percentile")

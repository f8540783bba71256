"""Shares and means that a fallible judge measured, put right with the help of items that people labelled."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from intarsia.core.errors import DataError
from intarsia.core.stats.checks import Estimate, count_of, fraction_of, normal_quantile, same_length, values_of
from intarsia.core.stats.proportions import wilson_ends
from intarsia.core.study import Interval


class PPI(NamedTuple):
    """A prediction-powered mean.

    Attributes:
        value: The estimate.
        interval: Of the mean.
        n: Labelled items.
        n_unlabelled: Items with a prediction only.
        weight: How far the predictions were trusted: 0 leaves the labelled mean, 1 is plain PPI.
    """

    value: float
    interval: Interval
    n: int
    n_unlabelled: int
    weight: float


def rogan_gladen(
    k: int,
    n: int,
    sensitivity: float | tuple[int, int],
    specificity: float | tuple[int, int],
    level: float = 0.95,
) -> Estimate:
    """The true share behind a share that a fallible judge found (Rogan and Gladen).

    Args:
        k: Items that the judge called positive.
        n: Items that it judged.
        sensitivity: Share of true positives that it calls positive: (called so, all) of the labelled
            items, or a number that is known for certain.
        specificity: Share of true negatives that it calls negative, in the same forms.
        level: Confidence level.

    Returns:
        The share, cut to [0, 1], with the interval of Lang and Reiczigel where sensitivity or specificity were counted,
        else with Wilson's, carried over.

    Raises:
        DataError: The judge is no better than chance (sensitivity + specificity <= 1), so that it tells nothing.
    """
    k, n = count_of(k, n)
    z = normal_quantile(0.5 + fraction_of(level, "level") / 2)
    se, sp = _rate(sensitivity, "sensitivity"), _rate(specificity, "specificity")
    if se.share + sp.share <= 1:
        raise DataError(
            f"The judge's sensitivity {se.share:.3g} and specificity {sp.share:.3g} are no better than chance.",
            "Use a better judge.",
        )
    value = _clip((k / n + sp.share - 1) / (se.share + sp.share - 1))
    if se.n is None and sp.n is None:
        ends = [_clip((end + sp.share - 1) / (se.share + sp.share - 1)) for end in wilson_ends(k / n, n, level)]
        interval = Interval(low=ends[0], high=ends[1], level=level, method="rogan-gladen wilson")
        return Estimate(value, interval, n)
    found = (k + z * z / 2) / (n + z * z)
    se_share, se_variance = se.adjusted()
    sp_share, sp_variance = sp.adjusted()
    gain = se_share + sp_share - 1
    if gain <= 0:
        # So few labels that the judge may as well be guessing: any share fits.
        return Estimate(value, Interval(low=0.0, high=1.0, level=level, method="lang-reiczigel"), n)
    share = (found + sp_share - 1) / gain
    shift = 2 * z * z * (share * se_variance - (1 - share) * sp_variance)
    spread = (
        math.sqrt(found * (1 - found) / (n + z * z) + share**2 * se_variance + (1 - share) ** 2 * sp_variance) / gain
    )
    low, high = _clip(share + shift - z * spread), _clip(share + shift + z * spread)
    return Estimate(value, Interval(low=low, high=high, level=level, method="lang-reiczigel"), n)


def ppi_mean(
    labels: ArrayLike | Iterable[float],
    predictions: ArrayLike | Iterable[float],
    unlabelled_predictions: ArrayLike | Iterable[float],
    *,
    tuned: bool = True,
    level: float = 0.95,
) -> PPI:
    """Prediction-powered mean: few labelled items put right what many predictions say.

    Both sets of items must come from the same population. The interval uses Student's quantile of the labelled items.

    Args:
        labels: True values of the labelled items, shape (n), at least two.
        predictions: Predictions of the same items, shape (n).
        unlabelled_predictions: Predictions of other items, shape (N), at least two.
        tuned: Choose the weight of the predictions for least variance (PPI++), in [0, 1]; else it is 1 (PPI).
        level: Confidence level.
    """
    from scipy.stats import t

    y, f = values_of(labels, "labels", at_least=2), values_of(predictions, "predictions", at_least=2)
    same_length("labels", "predictions", y, f)
    g = values_of(unlabelled_predictions, "unlabelled predictions", at_least=2)
    weight = 1.0
    if tuned:
        spread = float(np.concatenate([f, g]).var(ddof=1)) * (1 + len(y) / len(g))
        covariance = float(np.cov(y, f, ddof=1)[0, 1])
        weight = _clip(covariance / spread) if spread > 0 else 0.0
    rest = y - weight * f
    value = weight * float(g.mean()) + float(rest.mean())
    error = math.sqrt(weight**2 * float(g.var(ddof=1)) / len(g) + float(rest.var(ddof=1)) / len(y))
    half = float(t.ppf(0.5 + fraction_of(level, "level") / 2, len(y) - 1)) * error
    interval = Interval(low=value - half, high=value + half, level=level, method="ppi++" if tuned else "ppi")
    return PPI(value, interval, len(y), len(g), weight)


class _Rate(NamedTuple):
    share: float
    n: int | None

    def adjusted(self) -> tuple[float, float]:
        """Share and its variance with one success and one failure added; as it is where known for certain."""
        if self.n is None:
            return self.share, 0.0
        share = (self.n * self.share + 1) / (self.n + 2)
        return share, share * (1 - share) / (self.n + 2)


def _rate(given: float | tuple[int, int], name: str) -> _Rate:
    if isinstance(given, tuple):
        k, n = count_of(*given, name=name)
        return _Rate(k / n, n)
    if not 0 <= given <= 1:
        raise DataError(f"The {name} is {given}.", "Give a number in [0, 1], or counts as (k, n).")
    return _Rate(float(given), None)


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))

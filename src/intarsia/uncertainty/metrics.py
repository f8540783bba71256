"""How well an uncertainty tells right answers from wrong ones.

All figures compare the quality of answers, in [0, 1], with their uncertainty, higher for answers to be rejected first.
Answers of equal uncertainty count by the expectation over their order, so no figure depends on how items were sorted.
Where the quality leaves nothing to rank (all answers alike), ranking figures are NaN rather than perfect.

A metric is named by a short text, with its parameter behind an `@`:

| name | figure | better |
| --- | --- | --- |
| `prr`, `prr@0.5` | prediction rejection ratio, with rejection up to 100 % or 50 % | more |
| `auroc` | area under the ROC curve for "this answer is wrong" | more |
| `auprc` | average precision, the wrong answers being positive | more |
| `aurc` | area under the risk-coverage curve | less |
| `e-aurc` | the same minus that of a perfect order | less |
| `accuracy@0.8` | share of right answers among the 80 % most certain | more |
| `caught@0.2` | share of wrong answers among the 20 % least certain, of all wrong answers | more |

Shape suffixes: N items, B bootstrap draws, G groups of equal uncertainty, R points of a curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from intarsia.core import stats
from intarsia.core.errors import ConfigError, DataError
from intarsia.core.stats import Estimate
from intarsia.core.stats.checks import fraction_of, generator, same_length, shares_of, values_of
from intarsia.core.study import Interval

Floats = NDArray[np.float64]
Column = ArrayLike | Iterable[float]
NAMES = ("prr", "auroc", "auprc", "aurc", "e-aurc", "accuracy", "caught")
DEFAULT = ("prr", "prr@0.5", "auroc", "auprc", "aurc", "e-aurc", "accuracy@0.8", "caught@0.2")
THRESHOLD = 0.5
"""Quality from which an answer counts as right."""
_CELLS = 1_000_000  # numbers of one array while resampling
_DEFINED = 0.8
"""Share of bootstrap draws on which a figure has to be defined for an interval to be given."""


# --- Names -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A metric with its parameter.

    Attributes:
        kind: One of `NAMES`.
        parameter: Largest rejection, coverage, or rejected share; NaN where there is none.
    """

    kind: str
    parameter: float = math.nan

    @property
    def name(self) -> str:
        """As it is written."""
        plain = math.isnan(self.parameter) or (self.kind == "prr" and self.parameter == 1)
        return self.kind if plain else f"{self.kind}@{self.parameter:g}"

    @property
    def greater_is_better(self) -> bool:
        """Whether more of it is better."""
        return self.kind not in ("aurc", "e-aurc")

    @classmethod
    def parse(cls, name: str | Metric) -> Metric:
        """Read a name such as `prr@0.5`.

        Raises:
            ConfigError: There is no such metric, or its parameter is missing or out of range.
        """
        if isinstance(name, Metric):
            return name
        kind, at, text = name.strip().lower().partition("@")
        if kind not in NAMES:
            raise ConfigError(f"There is no metric {name!r}.", f"The metrics are {', '.join(DEFAULT)}.")
        if kind in ("auroc", "auprc", "aurc", "e-aurc"):
            if at:
                raise ConfigError(f"The metric {kind} takes no parameter.", f"Write {kind}.")
            return cls(kind)
        if not at:
            if kind == "prr":
                return cls(kind, 1.0)
            raise ConfigError(f"The metric {kind} needs a share.", f"Write {kind}@0.2, for example.")
        try:
            parameter = float(text)
        except ValueError:
            raise ConfigError(f"The share in {name!r} is no number.", f"Write {kind}@0.5, for example.") from None
        if not 0 < parameter <= 1:
            raise ConfigError(f"The share in {name!r} is out of range.", "It must lie in (0, 1].")
        return cls(kind, parameter)


# --- Results ---------------------------------------------------------------------------------------------------------


class RiskCoverage(NamedTuple):
    """The risk-coverage curve.

    Attributes:
        coverage_N: Share of items that are answered, 1/N to 1.
        risk_N: Mean error (1 - quality) of that many of the most certain items.
        oracle_N: The same in the order of the errors themselves.
    """

    coverage_N: Floats
    risk_N: Floats
    oracle_N: Floats


class RejectionCurve(NamedTuple):
    """Quality of what is kept when the most uncertain answers are rejected, for a plot.

    Attributes:
        rejected_R: Share of items that are rejected.
        quality_R: Mean quality of the rest.
        low_R: Lower end of its bootstrap interval; NaN without one.
        high_R: Upper end.
        oracle_R: Mean quality of the rest when the worst answers are rejected first.
        random: What rejecting at random leaves: the mean quality.
    """

    rejected_R: Floats
    quality_R: Floats
    low_R: Floats
    high_R: Floats
    oracle_R: Floats
    random: float


class Comparison(NamedTuple):
    """Two uncertainties of the same answers by one metric.

    Attributes:
        metric: Its name.
        a: Figure of the first.
        b: Figure of the second.
        difference: b - a.
        interval: Percentile interval of the difference, items drawn together; None where it is undefined.
        p: Two-sided bootstrap p-value of "no difference"; NaN where it is undefined.
        n: Items.
    """

    metric: str
    a: float
    b: float
    difference: float
    interval: Interval | None
    p: float
    n: int

    @property
    def better(self) -> bool | None:
        """Whether b is better than a, None when the interval holds 0 or is missing."""
        if self.interval is None or self.interval.low <= 0 <= self.interval.high:
            return None
        return (self.difference > 0) == Metric.parse(self.metric).greater_is_better


# --- Figures ---------------------------------------------------------------------------------------------------------


def measure(
    quality: Column,
    uncertainty: Column,
    metric: str | Metric = "prr",
    *,
    threshold: float = THRESHOLD,
    level: float = 0.95,
    resamples: int = 1999,
    seed: int = 0,
) -> Estimate:
    """One metric of one uncertainty.

    Args:
        quality: Quality of each answer in [0, 1], shape (N,); for yes or no, 1 and 0.
        uncertainty: Uncertainty of each, shape (N,), finite.
        metric: Which; see the table above.
        threshold: Quality from which an answer counts as right, for the metrics that need right and wrong (`auroc`,
            `auprc`, `accuracy`, `caught`).
        level: Confidence level.
        resamples: Of the bootstrap over items; 0 leaves the interval out. `auroc` has DeLong's interval, `auprc` one
            that draws right and wrong answers apart.
        seed: Of the draws.

    Returns:
        The figure with its interval; NaN and no interval where the quality leaves nothing to rank.

    Raises:
        DataError: The columns do not fit, or there are too few items for the metric.
        ConfigError: There is no such metric.
    """
    chosen = Metric.parse(metric)
    items = _Items.of(quality, uncertainty, threshold, chosen)
    if chosen.kind in ("auroc", "auprc"):
        wrong = items.wrong_N
        if wrong.all() or not wrong.any():
            return Estimate(math.nan, None, len(wrong))
        if chosen.kind == "auroc":
            found = stats.auroc(wrong, items.uncertainty_N, level)
            return found if resamples > 0 else found._replace(interval=None)
        return stats.average_precision(wrong, items.uncertainty_N, level=level, resamples=resamples, seed=seed)
    if chosen.kind == "prr":
        if np.ptp(items.error_N) == 0:
            return Estimate(math.nan, None, len(items.error_N))
        return stats.prr(
            items.error_N,
            items.uncertainty_N,
            max_rejection=chosen.parameter,
            level=level,
            resamples=resamples,
            seed=seed,
        )
    law = _law([items], chosen, resamples, seed)[0]
    return Estimate(items.figure(chosen), _interval(law, level), len(items.error_N))


def measure_all(
    quality: Column,
    scores: Mapping[str, Column],
    metrics: Sequence[str | Metric] = DEFAULT,
    *,
    threshold: float = THRESHOLD,
    level: float = 0.95,
    resamples: int = 1999,
    seed: int = 0,
) -> dict[str, dict[str, Estimate]]:
    """Several metrics of several uncertainties of the same answers: metric by uncertainty's name.

    An uncertainty that is unknown (NaN) for any item gives NaN, so that all figures rest on the same items.
    """
    table: dict[str, dict[str, Estimate]] = {}
    for name, column in scores.items():
        u_N = np.asarray(list(column) if not isinstance(column, np.ndarray) else column, dtype=np.float64)  # type: ignore[arg-type]
        unknown = bool(np.isnan(u_N).any())
        table[name] = {
            Metric.parse(metric).name: Estimate(math.nan, None, len(u_N))
            if unknown
            else measure(quality, u_N, metric, threshold=threshold, level=level, resamples=resamples, seed=seed)
            for metric in metrics
        }
    return table


def prr(quality: Column, uncertainty: Column, *, max_rejection: float = 1.0, **options: int | float) -> Estimate:
    """Prediction rejection ratio: 1 for the best order of rejection, 0 for a random one; see `measure`.

    Min-max normalization of the quality, which the paper does first, changes nothing here: the ratio is the same for
    any shift or scale.
    """
    return measure(quality, uncertainty, Metric("prr", _share(max_rejection, "max_rejection")), **options)  # type: ignore[arg-type]


def auroc(quality: Column, uncertainty: Column, **options: int | float) -> Estimate:
    """Probability that a wrong answer is more uncertain than a right one; see `measure`."""
    return measure(quality, uncertainty, "auroc", **options)  # type: ignore[arg-type]


def auprc(quality: Column, uncertainty: Column, **options: int | float) -> Estimate:
    """Average precision of finding wrong answers; a random order has the share of wrong answers. See `measure`."""
    return measure(quality, uncertainty, "auprc", **options)  # type: ignore[arg-type]


def aurc(quality: Column, uncertainty: Column, **options: int | float) -> Estimate:
    """Area under the risk-coverage curve: mean risk over all coverages, less is better; see `measure`.

    It is defined for answers that are all alike too, and then the same for every uncertainty.
    """
    return measure(quality, uncertainty, "aurc", **options)  # type: ignore[arg-type]


def e_aurc(quality: Column, uncertainty: Column, **options: int | float) -> Estimate:
    """AURC above that of the best possible order, 0 for a perfect uncertainty; see `measure`."""
    return measure(quality, uncertainty, "e-aurc", **options)  # type: ignore[arg-type]


def accuracy_at_coverage(quality: Column, uncertainty: Column, coverage: float, **options: int | float) -> Estimate:
    """Share of right answers among the `coverage` most certain (a part of an item counts as one); see `measure`."""
    return measure(quality, uncertainty, Metric("accuracy", _share(coverage, "coverage")), **options)  # type: ignore[arg-type]


def wrong_caught(quality: Column, uncertainty: Column, rejection: float = 0.2, **options: int | float) -> Estimate:
    """Share of the wrong answers that abstaining on the `rejection` least certain catches; see `measure`.

    An uncertainty that knows nothing catches `rejection` of them. No more than that share of the items is rejected: a
    part of an item is kept.
    """
    return measure(quality, uncertainty, Metric("caught", _share(rejection, "rejection")), **options)  # type: ignore[arg-type]


def risk_coverage(quality: Column, uncertainty: Column) -> RiskCoverage:
    """The risk-coverage curve; its mean risk is `aurc`."""
    items = _Items.of(quality, uncertainty, THRESHOLD, Metric("aurc"))
    n = len(items.error_N)
    ones_BN = np.ones((1, n), dtype=np.int64)
    return RiskCoverage(
        np.arange(1, n + 1) / n, _kept(items.ours(ones_BN, items.error_N))[0], _kept(items.best(ones_BN))[0]
    )


def rejection_curve(
    quality: Column,
    uncertainty: Column,
    *,
    points: int = 51,
    max_rejection: float = 1.0,
    level: float = 0.95,
    resamples: int = 999,
    seed: int = 0,
) -> RejectionCurve:
    """Mean quality of the answers that are kept, at shares of rejection from 0 up to (not including) `max_rejection`.

    Args:
        quality: Quality of each answer in [0, 1], shape (N,).
        uncertainty: Uncertainty of each, shape (N,).
        points: Of the curve, 2 or more.
        max_rejection: Where it ends.
        level: Of the pointwise bootstrap intervals.
        resamples: Of the bootstrap over items; 0 leaves the intervals out.
        seed: Of the draws.
    """
    if points < 2:
        raise ConfigError(f"A curve of {points} points is none.", "Ask for 2 or more.")
    items = _Items.of(quality, uncertainty, THRESHOLD, Metric("aurc"))
    n = len(items.error_N)
    rejected_R = np.linspace(0, _share(max_rejection, "max_rejection"), points, endpoint=False)
    last_R = np.array([n - _floor(share * n) - 1 for share in rejected_R])

    def kept(counts_BN: NDArray[np.int64]) -> Floats:
        return 1 - _kept(items.ours(counts_BN, items.error_N))[:, last_R]

    ones_BN = np.ones((1, n), dtype=np.int64)
    low_R = high_R = np.full(points, math.nan)
    if resamples > 0:
        tail = (1 - fraction_of(level, "level")) / 2
        low_R, high_R = np.quantile(np.concatenate(_drawn(n, kept, resamples, seed)), [tail, 1 - tail], axis=0)
    best_R = 1 - _kept(items.best(ones_BN))[0, last_R]
    return RejectionCurve(rejected_R, kept(ones_BN)[0], low_R, high_R, best_R, float(1 - items.error_N.mean()))


def compare(
    quality: Column,
    a: Column,
    b: Column,
    metric: str | Metric = "prr",
    *,
    quality_b: Column | None = None,
    threshold: float = THRESHOLD,
    level: float = 0.95,
    resamples: int = 1999,
    seed: int = 0,
) -> Comparison:
    """Paired bootstrap of the difference of two uncertainties: both are measured on the same draws of items.

    Args:
        quality: Quality of each answer, shape (N,).
        a: First uncertainty, shape (N,).
        b: Second uncertainty of the same items, shape (N,).
        metric: By which; see the table above.
        quality_b: Quality of the answers that `b` is about, where the two differ; those of `quality` when omitted.
        threshold: Quality from which an answer counts as right.
        level: Of the interval.
        resamples: How many times items are drawn, 1 or more.
        seed: Of the draws.

    Returns:
        The difference b - a, its percentile interval, and a p-value: twice the smaller share of draws on either side of
        0, where draws on which it is 0 count to both, and one draw is added so that it is never 0.

    Raises:
        DataError: The columns do not fit, or there are too few items for the metric.
        ConfigError: There is no such metric, or nothing is drawn.
    """
    chosen = Metric.parse(metric)
    if resamples < 1:
        raise ConfigError(f"{resamples} resamples compare nothing.", "Draw 999 or more.")
    fraction_of(level, "level")
    pair = [
        _Items.of(quality, a, threshold, chosen),
        _Items.of(quality if quality_b is None else quality_b, b, threshold, chosen),
    ]
    same_length("uncertainties of a", "of b", pair[0].error_N, pair[1].error_N)
    n = len(pair[0].error_N)
    left, right = (items.figure(chosen) for items in pair)
    if math.isnan(left) or math.isnan(right):
        return Comparison(chosen.name, left, right, math.nan, None, math.nan, n)
    of_a, of_b = _law(pair, chosen, resamples, seed)
    law = of_b - of_a
    interval = _interval(law, level)
    law = law[np.isfinite(law)]
    p = math.nan
    if interval is not None:
        # Two equal orders may differ by rounding.
        below, above = int((law <= 1e-12).sum()), int((law >= -1e-12).sum())
        p = min(1.0, 2 * (min(below, above) + 1) / (len(law) + 1))
    return Comparison(chosen.name, left, right, right - left, interval, p, n)


# --- On draws --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Items:
    """Errors and uncertainties, prepared so that a figure of many draws of the items is a few array operations."""

    error_N: Floats
    uncertainty_N: Floats
    wrong_N: NDArray[np.bool_]

    @classmethod
    def of(cls, quality: Column, uncertainty: Column, threshold: float, metric: Metric) -> _Items:
        q_N, u_N = shares_of(quality, "qualities"), values_of(uncertainty, "uncertainties")
        same_length("qualities", "uncertainties", q_N, u_N)
        if not 0 < threshold <= 1:
            raise ConfigError(f"The quality threshold is {threshold}.", "It must lie in (0, 1].")
        if metric.kind == "prr" and _floor(metric.parameter * len(q_N)) < 2:
            # The first of the sizes that are averaged over is "nothing rejected yet", where all orders are equal.
            raise DataError(
                f"Rejecting up to {metric.parameter:g} of {len(q_N)} items leaves no choice.", "Measure more items."
            )
        return cls(1 - q_N, u_N, q_N < threshold)

    @cached_property
    def group_N(self) -> NDArray[np.intp]:
        """Which group of equal uncertainty each item is in, the most certain being 0."""
        return np.unique(self.uncertainty_N, return_inverse=True)[1].astype(np.intp)

    @cached_property
    def by_error_N(self) -> NDArray[np.intp]:
        return np.argsort(self.error_N, kind="stable")

    def figure(self, metric: Metric) -> float:
        return float(self.figures(metric, np.ones((1, len(self.error_N)), dtype=np.int64))[0])

    def figures(self, metric: Metric, counts_BN: NDArray[np.int64]) -> Floats:
        """The metric on each draw; NaN where it is undefined."""
        n = counts_BN.shape[1]
        wrong_N = self.wrong_N.astype(np.float64)
        if metric.kind == "auroc":
            items_BG, wrong_BG = self.groups(counts_BN, wrong_N)
            right_BG = items_BG - wrong_BG
            below_BG = right_BG.cumsum(1) - right_BG / 2
            return _ratio((wrong_BG * below_BG).sum(1), wrong_BG.sum(1) * right_BG.sum(1))
        if metric.kind == "auprc":
            items_BG, wrong_BG = (side[:, ::-1] for side in self.groups(counts_BN, wrong_N))
            precision_BG = wrong_BG.cumsum(1) / np.maximum(items_BG.cumsum(1), 1)
            total_B = wrong_BG.sum(1)
            value_B = _ratio((wrong_BG * precision_BG).sum(1), total_B)
            return np.where(total_B == n, np.nan, value_B)
        if metric.kind == "accuracy":
            last = _ceil(metric.parameter * n) - 1
            return 1 - _kept(self.ours(counts_BN, wrong_N))[:, last]
        if metric.kind == "caught":
            ours_BN = self.ours(counts_BN, wrong_N)
            kept_B = ours_BN[:, : n - _floor(metric.parameter * n)].sum(1)
            total_B = ours_BN.sum(1)
            return _ratio(total_B - kept_B, total_B)
        ours_BN = self.ours(counts_BN, self.error_N)
        if metric.kind == "aurc":
            return _kept(ours_BN).mean(1)
        best_BN = self.best(counts_BN)
        rejections = n if metric.kind == "e-aurc" else _floor(metric.parameter * n)
        ours_B, best_B = (_kept(side)[:, n - rejections :].mean(1) for side in (ours_BN, best_BN))
        random_B = ours_BN.mean(1)
        room_B = random_B - best_B
        # A draw of equal errors leaves rounding noise only.
        room_B = np.where(room_B > 1e-12, room_B, 0.0)
        return (
            np.where(room_B > 0, ours_B - best_B, np.nan)
            if metric.kind == "e-aurc"
            else _ratio(random_B - ours_B, room_B)
        )

    def groups(self, counts_BN: NDArray[np.int64], value_N: Floats) -> tuple[Floats, Floats]:
        """Items of each group and the sum of their values, on each draw; both of shape (B, G)."""
        size, groups = len(counts_BN), int(self.group_N.max()) + 1
        cell = (np.arange(size)[:, None] * groups + self.group_N).ravel()
        items_BG: Floats = np.bincount(cell, counts_BN.ravel(), size * groups).astype(np.float64)
        sums_BG: Floats = np.bincount(cell, (counts_BN * value_N).ravel(), size * groups).astype(np.float64)
        return items_BG.reshape(size, groups), sums_BG.reshape(size, groups)

    def ours(self, counts_BN: NDArray[np.int64], value_N: Floats) -> Floats:
        """Values in order of uncertainty, the most certain first, ties by their mean; shape (B, N)."""
        items_BG, sums_BG = self.groups(counts_BN, value_N)
        means_BG = np.divide(sums_BG, items_BG, out=np.zeros_like(sums_BG), where=items_BG > 0)
        return np.repeat(means_BG.ravel(), items_BG.ravel().astype(np.int64)).reshape(counts_BN.shape)

    def best(self, counts_BN: NDArray[np.int64]) -> Floats:
        """Errors in their own order, the smallest first; shape (B, N)."""
        sorted_BN = np.broadcast_to(self.error_N[self.by_error_N], counts_BN.shape)
        return np.repeat(sorted_BN.ravel(), counts_BN[:, self.by_error_N].ravel()).reshape(counts_BN.shape)


def _law(sides: Sequence[_Items], metric: Metric, resamples: int, seed: int) -> list[Floats]:
    """The metric of each side on common draws, one array of shape (resamples,) each."""
    n = len(sides[0].error_N)
    if resamples <= 0:
        return [np.empty(0) for _ in sides]
    drawn = _drawn(n, lambda counts_BN: np.stack([side.figures(metric, counts_BN) for side in sides]), resamples, seed)
    return list(np.concatenate(drawn, axis=1))


def _drawn(n: int, figures: Callable[[NDArray[np.int64]], Floats], resamples: int, seed: int) -> list[Floats]:
    rng, shares_N = generator(seed), np.full(n, 1 / n)
    step = max(1, _CELLS // n)
    return [figures(rng.multinomial(n, shares_N, min(step, resamples - start))) for start in range(0, resamples, step)]


def _interval(law: Floats, level: float) -> Interval | None:
    tail = (1 - fraction_of(level, "level")) / 2
    defined = law[np.isfinite(law)]
    if not len(law) or len(defined) < _DEFINED * len(law):
        return None
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Interval(low=float(low), high=float(high), level=level, method="bootstrap percentile")


def _kept(values_BN: Floats) -> Floats:
    """Mean of the first k values, k = 1 .. N; shape (B, N)."""
    means: Floats = values_BN.cumsum(1) / np.arange(1, values_BN.shape[1] + 1)
    return means


def _ratio(top: Floats, bottom: Floats) -> Floats:
    result: Floats = np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0)
    return result


def _share(value: float, name: str) -> float:
    if not 0 < value <= 1:
        raise ConfigError(f"{name} is {value}.", "It must lie in (0, 1].")
    return float(value)


def _floor(value: float) -> int:
    return math.floor(value + 1e-9)


def _ceil(value: float) -> int:
    return max(1, math.ceil(value - 1e-9))

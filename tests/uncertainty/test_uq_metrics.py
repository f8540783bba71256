"""Metrics against definitions written out in the slowest way, scikit-learn, and known cases."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core import stats
from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty import metrics
from intarsia.uncertainty.metrics import Metric

FEW = {"resamples": 0}
items = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 3).map(float)), min_size=4, max_size=30
)


def columns(pairs: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([q for q, _ in pairs]), np.array([u for _, u in pairs])


def expected_over_orders(quality: np.ndarray, uncertainty: np.ndarray, figure) -> float:
    """Mean of a figure of the errors, most certain first, over all orders of items of equal uncertainty."""
    groups = [np.flatnonzero(uncertainty == u) for u in np.unique(uncertainty)]
    orders = itertools.product(*(itertools.permutations(group) for group in groups))
    return float(np.mean([figure(1 - quality[np.concatenate(order).astype(int)]) for order in orders]))


@pytest.mark.parametrize("seed", range(4))
def test_ties_count_by_their_expectation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    q, u = rng.integers(0, 2, 8).astype(float), rng.integers(0, 4, 8).astype(float)
    q[0], q[1] = 0.0, 1.0
    while max(np.unique(u, return_counts=True)[1]) > 4:
        u = rng.integers(0, 4, 8).astype(float)

    def area(errors: np.ndarray) -> float:
        return float(np.mean([errors[:k].mean() for k in range(1, 9)]))

    assert metrics.aurc(q, u, **FEW).value == pytest.approx(expected_over_orders(q, u, area))
    for share, kept in ((0.5, 4), (0.3, 3), (1.0, 8), (0.01, 1)):
        found = metrics.accuracy_at_coverage(q, u, share, **FEW).value
        assert found == pytest.approx(expected_over_orders(q, u, lambda e, k=kept: 1 - e[:k].mean()))
    for share, gone in ((0.25, 2), (0.2, 1), (1.0, 8), (0.1, 0)):
        found = metrics.wrong_caught(q, u, share, **FEW).value
        assert found == pytest.approx(expected_over_orders(q, u, lambda e, g=gone: e[8 - g :].sum() / e.sum()))


@given(items)
def test_prr_and_the_areas_say_the_same(pairs: list[tuple[float, float]]) -> None:
    q, u = columns(pairs)
    curve = metrics.risk_coverage(q, u)
    area = metrics.aurc(q, u, **FEW).value
    assert area == pytest.approx(curve.risk_N.mean())
    assert curve.risk_N[-1] == pytest.approx(1 - q.mean())
    assert (curve.oracle_N <= curve.risk_N + 1e-12).all()
    found, above = metrics.prr(q, u, **FEW).value, metrics.e_aurc(q, u, **FEW).value
    if np.ptp(q) == 0:
        assert math.isnan(found)
        assert math.isnan(above)
        return
    best = curve.oracle_N.mean()
    assert above == pytest.approx(area - best)
    assert found == pytest.approx((1 - q.mean() - area) / (1 - q.mean() - best))
    assert found <= 1 + 1e-9


@settings(max_examples=30)
@given(items, st.randoms(use_true_random=False))
def test_order_scale_and_monotone_maps_change_nothing(pairs: list[tuple[float, float]], random) -> None:
    q, u = columns(pairs)
    place = list(range(len(q)))
    random.shuffle(place)
    for name in metrics.DEFAULT:
        before = metrics.measure(q, u, name, **FEW).value
        after = metrics.measure(q[place], np.exp(3 * u[place]), name, **FEW).value
        assert after == pytest.approx(before, nan_ok=True)
    if np.ptp(q):
        assert metrics.prr(q * 0.3 + 0.1, u, **FEW).value == pytest.approx(metrics.prr(q, u, **FEW).value)


@settings(max_examples=30)
@given(items)
def test_figures_on_draws_are_those_of_the_drawn_items(pairs: list[tuple[float, float]]) -> None:
    # The vectorized path, on which intervals and comparisons rest, against the plain one on repeated items.
    q, u = columns(pairs)
    rng = np.random.default_rng(len(q))
    counts_BN = rng.multinomial(len(q), np.full(len(q), 1 / len(q)), 3)
    for name in metrics.DEFAULT:
        metric = Metric.parse(name)
        drawn = metrics._Items.of(q, u, 0.5, metric).figures(metric, counts_BN)
        for value, counts in zip(drawn, counts_BN):
            plain = metrics.measure(np.repeat(q, counts), np.repeat(u, counts), metric, **FEW).value
            assert value == pytest.approx(plain, nan_ok=True)


def test_areas_under_roc_and_precision_recall_are_those_of_scikit_learn() -> None:
    from sklearn.metrics import average_precision_score, roc_auc_score

    rng = np.random.default_rng(0)
    q, u = rng.random(200), rng.integers(0, 30, 200).astype(float)
    for threshold in (0.3, 0.5, 0.8):
        wrong = q < threshold
        roc, precision = (metrics.measure(q, u, name, threshold=threshold, **FEW) for name in ("auroc", "auprc"))
        assert roc.value == pytest.approx(roc_auc_score(wrong, u))
        assert precision.value == pytest.approx(average_precision_score(wrong, u))
        assert roc.interval is None
        for name, plain in (("auroc", roc), ("auprc", precision)):
            metric = Metric.parse(name)
            assert metrics._Items.of(q, u, threshold, metric).figure(metric) == pytest.approx(plain.value)
    assert metrics.auroc(q, u).interval == stats.auroc(q < 0.5, u).interval


def test_a_perfect_a_useless_and_a_reversed_uncertainty() -> None:
    q = np.array([1.0] * 70 + [0.0] * 30)
    good = {name: metrics.measure(q, 1 - q, name, **FEW).value for name in metrics.DEFAULT}
    assert good == pytest.approx(
        {
            "prr": 1, "prr@0.5": 1, "auroc": 1, "auprc": 1, "aurc": good["aurc"], "e-aurc": 0,
            "accuracy@0.8": 70 / 80, "caught@0.2": 20 / 30,
        }
    )  # fmt: skip
    none = {name: metrics.measure(q, np.zeros(100), name, **FEW).value for name in metrics.DEFAULT}
    assert none == pytest.approx(
        {
            "prr": 0, "prr@0.5": 0, "auroc": 0.5, "auprc": 0.3, "aurc": 0.3, "e-aurc": 0.3 - good["aurc"],
            "accuracy@0.8": 0.7, "caught@0.2": 0.2,
        }
    )  # fmt: skip
    assert metrics.prr(q, q, **FEW).value < -0.5
    assert metrics.auroc(q, q, **FEW).value == 0
    assert metrics.wrong_caught(q, q, **FEW).value == 0


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
def test_quality_that_leaves_nothing_to_rank_gives_nan(value: float) -> None:
    q, u = np.full(20, value), np.arange(20.0)
    for name in ("prr", "prr@0.5", "auroc", "auprc", "e-aurc"):
        found = metrics.measure(q, u, name)
        assert math.isnan(found.value)
        assert found.interval is None
        assert found.n == 20
    assert math.isnan(metrics.wrong_caught(q, u).value) == (value == 1.0)
    assert metrics.aurc(q, u).value == pytest.approx(1 - value)
    compared = metrics.compare(q, u, -u)
    assert math.isnan(compared.difference)
    assert math.isnan(compared.p)
    assert compared.better is None


def test_intervals_hold_the_figure_and_shrink() -> None:
    rng = np.random.default_rng(1)
    widths = []
    for n in (100, 1600):
        q = rng.integers(0, 2, n).astype(float)
        u = 1 - q + rng.normal(0, 1.0, n)
        for name in metrics.DEFAULT:
            found = metrics.measure(q, u, name, resamples=400)
            assert found.interval is not None
            assert found.interval.low < found.value < found.interval.high
        kept = metrics.accuracy_at_coverage(q, u, 0.8, resamples=400).interval
        assert kept is not None
        widths.append(kept.high - kept.low)
    assert widths[1] < 0.5 * widths[0]


def test_comparison_sees_a_difference_and_only_then() -> None:
    rng = np.random.default_rng(2)
    q = (rng.random(600) < 0.6).astype(float)
    noisy, clear = (1 - q + rng.normal(0, sd, 600) for sd in (3.0, 1.0))
    for name in metrics.DEFAULT:
        found = metrics.compare(q, noisy, clear, name, resamples=600)
        assert found.better is True
        assert found.p < 0.01
        assert found.difference == pytest.approx(found.b - found.a)
        back = metrics.compare(q, clear, noisy, name, resamples=600)
        assert back.better is False
        assert back.difference == pytest.approx(-found.difference)
        assert back.p == found.p
    same = metrics.compare(q, clear, 2 * clear, resamples=200)
    assert (same.difference, same.p, same.better) == (pytest.approx(0), 1.0, None)


def test_p_values_of_equal_uncertainties_are_spread_and_items_are_drawn_together() -> None:
    rng = np.random.default_rng(3)
    ps = []
    for _ in range(120):
        q = (rng.random(120) < 0.5).astype(float)
        a, b = (1 - q + rng.normal(0, 1.5, 120) for _ in range(2))
        ps.append(metrics.compare(q, a, b, "auroc", resamples=199).p)
    assert np.mean(np.array(ps) < 0.05) < 0.13
    assert 0.3 < np.mean(np.array(ps) < 0.5) < 0.7
    # Nearly the same uncertainty: were the draws apart, the difference would vary as the figures themselves do.
    nearly = a + rng.normal(0, 1e-2, 120)
    pair, alone = metrics.compare(q, a, nearly, "prr"), metrics.prr(q, a)
    assert pair.interval is not None
    assert alone.interval is not None
    assert pair.interval.high - pair.interval.low < 0.2 * (alone.interval.high - alone.interval.low)


def test_comparison_of_uncertainties_of_different_answers() -> None:
    rng = np.random.default_rng(4)
    q = (rng.random(300) < 0.5).astype(float)
    other = (rng.random(300) < 0.5).astype(float)
    found = metrics.compare(q, 1 - q + rng.normal(0, 1, 300), 1 - other, "prr", quality_b=other, resamples=300)
    assert found.b == pytest.approx(1)
    assert found.better is True


def test_rejection_curve_goes_from_the_mean_to_the_best() -> None:
    rng = np.random.default_rng(5)
    q = (rng.random(400) < 0.6).astype(float)
    curve = metrics.rejection_curve(q, 1 - q + rng.normal(0, 0.7, 400), points=20, resamples=200)
    assert curve.rejected_R[0] == 0
    assert curve.rejected_R[-1] == pytest.approx(0.95)
    assert curve.quality_R[0] == pytest.approx(q.mean()) == pytest.approx(curve.oracle_R[0])
    assert curve.random == pytest.approx(q.mean())
    assert (curve.oracle_R >= curve.quality_R - 1e-12).all()
    assert ((curve.low_R <= curve.quality_R + 1e-12) & (curve.quality_R <= curve.high_R + 1e-12)).all()
    assert curve.quality_R[10] > q.mean() + 0.15
    at = metrics.accuracy_at_coverage(q, 1 - q, 0.5, **FEW).value
    assert metrics.rejection_curve(q, 1 - q, points=2, resamples=0).quality_R[1] == pytest.approx(at)
    assert np.isnan(metrics.rejection_curve(q, q, resamples=0).low_R).all()


def test_measure_all_keeps_unknown_scores_in_the_table() -> None:
    q, u = np.array([0.0, 1.0] * 10), np.arange(20.0)
    table = metrics.measure_all(q, {"known": u, "unknown": [math.nan, *u[1:]]}, ["prr", "caught@0.2"], resamples=0)
    assert list(table) == ["known", "unknown"]
    assert table["known"]["prr"].value == metrics.prr(q, u, **FEW).value
    assert math.isnan(table["unknown"]["caught@0.2"].value)


@pytest.mark.parametrize(
    "name", ["", "prr@", "prr@x", "prr@0", "prr@1.5", "auroc@0.2", "caught", "accuracy", "accuracy@nan", "f1"]
)
def test_names_that_are_no_metric(name: str) -> None:
    with pytest.raises(ConfigError):
        Metric.parse(name)


def test_names_come_back_as_they_were() -> None:
    assert [Metric.parse(name).name for name in metrics.DEFAULT] == list(metrics.DEFAULT)
    assert Metric.parse(" PRR@1 ").name == "prr"


def test_bad_columns() -> None:
    u = np.arange(6.0)
    for q, v in (
        ([0, 1], u), ([0, 1, 2, 0, 1, 0], u), ([0, 1, 0, 1, 0, math.nan], u), ([], []), ("abcdef", u),
        ([0, 1, 0, 1, 0, 1], [*u[:5], math.nan]), (np.zeros((6, 1)), u),
    ):  # fmt: skip
        with pytest.raises(DataError):
            metrics.aurc(q, v)
    with pytest.raises(DataError):
        metrics.prr([0, 1, 0], [1, 2, 3], max_rejection=0.5)
    for bad in (0.0, 1.2, math.nan):
        with pytest.raises(ConfigError):
            metrics.wrong_caught([0, 1, 0, 1], [1, 2, 3, 4], bad)
        with pytest.raises(ConfigError):
            metrics.prr([0, 1, 0, 1], [1, 2, 3, 4], threshold=bad)
    with pytest.raises(ConfigError):
        metrics.compare([0, 1, 0, 1], u[:4], u[:4], resamples=0)
    with pytest.raises(DataError):
        metrics.compare([0, 1, 0, 1], u[:4], u[:3])

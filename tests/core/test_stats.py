"""Statistics against scipy, scikit-learn, statsmodels, closed forms, and brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.special
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from intarsia.core import stats
from intarsia.core.errors import DataError
from intarsia.core.study import Interval

counts = st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
reals = st.floats(-1e3, 1e3).map(lambda x: round(x, 3))
shares = st.floats(0, 1)
coarse = st.integers(0, 5).map(float)  # many ties


def ends(interval: Interval | None) -> tuple[float, float]:
    assert interval is not None
    return interval.low, interval.high


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- shares --------------------------------------------------------------------------------------------------------


@given(counts, st.sampled_from([0.8, 0.95, 0.99]))
def test_share_intervals_agree_with_scipy(kn: tuple[int, int], level: float) -> None:
    test = scipy.stats.binomtest(*kn)
    for ours, method in ((stats.wilson, "wilson"), (stats.clopper_pearson, "exact")):
        expected = test.proportion_ci(level, method=method)
        assert ends(ours(*kn, level)) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(counts)
def test_share_intervals_hold_the_share_and_mirror(kn: tuple[int, int]) -> None:
    k, n = kn
    for ours in (stats.wilson, stats.clopper_pearson):
        interval = ours(k, n)
        assert 0 <= interval.low <= k / n <= interval.high <= 1
        mirrored = ours(n - k, n)
        assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx(ends(interval), abs=1e-12)


def test_share_intervals_agree_with_statsmodels() -> None:
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    assert ends(stats.wilson(7, 31)) == pytest.approx(proportion.proportion_confint(7, 31, method="wilson"))
    assert ends(stats.clopper_pearson(7, 31)) == pytest.approx(proportion.proportion_confint(7, 31, method="beta"))


@pytest.mark.parametrize(("k", "n"), [(0, 0), (-1, 3), (4, 3), (1.5, 3)])
def test_impossible_counts_are_refused(k: Any, n: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: stats.wilson(k, n),
        lambda: stats.clopper_pearson(k, n),
        lambda: stats.binomial(k, n),
        lambda: stats.paired_share_difference(k, 0, n),
        lambda: stats.rogan_gladen(k, n, 0.9, 0.9),
    ]
    for call in calls:
        with pytest.raises(DataError):
            call()


def constrained_likelihood_score(only_a: int, only_b: int, n: int, d: float) -> float:
    """The score statistic by brute force: the share of `only_a` that fits best when the difference is d."""
    low, high = max(0.0, -d), (1 - d) / 2
    q = np.linspace(low, high, 400_001)[1:-1]
    with np.errstate(divide="ignore"):
        fit = scipy.special.xlogy(only_a, q) + scipy.special.xlogy(only_b, q + d)
        fit += scipy.special.xlogy(n - only_a - only_b, 1 - 2 * q - d)
    best = q[fit.argmax()]
    return (only_b - only_a - n * d) / math.sqrt(n * (2 * best + d - d * d))


@pytest.mark.parametrize(("only_a", "only_b", "n"), [(2, 12, 50), (5, 3, 20), (1, 1, 30), (0, 4, 12), (9, 0, 10)])
def test_the_paired_interval_inverts_the_score_test(only_a: int, only_b: int, n: int) -> None:
    low, high = ends(stats.paired_share_difference(only_a, only_b, n))
    assert constrained_likelihood_score(only_a, only_b, n, low) == pytest.approx(1.95996, abs=2e-3)
    assert constrained_likelihood_score(only_a, only_b, n, high) == pytest.approx(-1.95996, abs=2e-3)


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.integers(0, n), st.integers(0, n), st.just(n))))
def test_the_paired_interval_holds_the_difference_and_mirrors(cells: tuple[int, int, int]) -> None:
    only_a, only_b, n = cells
    if only_a + only_b > n:
        with pytest.raises(DataError):
            stats.paired_share_difference(only_a, only_b, n)
        return
    low, high = ends(stats.paired_share_difference(only_a, only_b, n))
    assert -1 <= low <= (only_b - only_a) / n <= high <= 1
    assert low < high
    swapped = stats.paired_share_difference(only_b, only_a, n)
    assert (-swapped.high, -swapped.low) == pytest.approx((low, high), abs=1e-9)


def test_pairs_that_never_disagree_have_a_known_interval() -> None:
    z2 = scipy.stats.norm.ppf(0.975) ** 2
    assert ends(stats.paired_share_difference(0, 0, 50)) == pytest.approx((-z2 / (50 + z2), z2 / (50 + z2)))


@pytest.mark.parametrize(("n", "discordance", "d"), [(20, 0.3, 0.1), (30, 0.2, 0.0), (25, 0.5, -0.3)])
def test_the_paired_interval_covers(n: int, discordance: float, d: float) -> None:
    """Exact coverage, summed over every possible outcome."""
    share_b, share_a = (discordance + d) / 2, (discordance - d) / 2
    covered = 0.0
    for a, b in itertools.product(range(n + 1), repeat=2):
        if a + b <= n:
            weight = scipy.stats.multinomial.pmf([a, b, n - a - b], n, [share_a, share_b, 1 - discordance])
            if weight > 1e-9:
                low, high = ends(stats.paired_share_difference(a, b, n))
                covered += weight * (low <= d <= high)
    assert 0.93 <= covered <= 0.98


@pytest.mark.parametrize("p", [0.02, 0.2, 0.5, 0.97])
@pytest.mark.parametrize("n", [15, 60])
def test_share_intervals_cover(p: float, n: int) -> None:
    weights = scipy.stats.binom.pmf(np.arange(n + 1), n, p)
    for ours, least in ((stats.wilson, 0.89), (stats.clopper_pearson, 0.95)):
        covered = [low <= p <= high for low, high in (ends(ours(k, n)) for k in range(n + 1))]
        assert (weights * covered).sum() >= least


# --- bootstrap -----------------------------------------------------------------------------------------------------


def test_the_mean_interval_is_students() -> None:
    x = rng().normal(3, 2, 40)
    expected = scipy.stats.t.interval(0.9, 39, x.mean(), scipy.stats.sem(x))
    assert ends(stats.mean_interval(x, 0.9)) == pytest.approx(expected)


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_the_bootstrap_agrees_with_scipy(method: Any) -> None:
    x = rng().exponential(1, 50)
    ours = stats.bootstrap_mean(x, method=method, resamples=20_000)
    theirs = scipy.stats.bootstrap((x,), np.mean, method=method, n_resamples=20_000, rng=rng(5)).confidence_interval
    assert ends(ours) == pytest.approx((theirs.low, theirs.high), abs=0.02)
    generic = stats.bootstrap(np.mean, x, method=method, resamples=4000)
    assert ends(generic) == pytest.approx((theirs.low, theirs.high), abs=0.04)


def test_the_bootstrap_has_a_seed() -> None:
    x = rng().normal(size=30)
    assert stats.bootstrap_mean(x, seed=1) == stats.bootstrap_mean(list(x), seed=1)
    assert stats.bootstrap_mean(x, seed=1) != stats.bootstrap_mean(x, seed=2)


def test_clusters_are_drawn_whole() -> None:
    """Copies of an item tell nothing new: the interval is that of the items without copies."""
    x = rng().normal(size=25)
    copied = np.repeat(x, 8)
    names = np.repeat(np.arange(25), 8).tolist()
    alone = stats.bootstrap_mean(x)
    assert ends(stats.bootstrap_mean(copied, clusters=names)) == pytest.approx(ends(alone), abs=1e-9)
    blind = stats.bootstrap_mean(copied)
    assert blind.high - blind.low < 0.5 * (alone.high - alone.low)
    generic = stats.bootstrap(np.mean, copied, clusters=names)
    assert ends(generic) == pytest.approx(ends(alone), abs=0.1)
    with pytest.raises(DataError, match="one cluster"):
        stats.bootstrap_mean(x, clusters=["a"] * 25)
    with pytest.raises(DataError, match="cluster names"):
        stats.bootstrap_mean(x, clusters=["a"])


def test_a_paired_difference_is_tighter_than_its_parts() -> None:
    a = rng().normal(size=60)
    b = a + 0.3 + 0.1 * rng(1).normal(size=60)
    low, high = ends(stats.paired_difference(a, b))
    assert 0.25 < low < 0.3 < high < 0.35
    flipped = stats.paired_difference(b, a)
    assert (-flipped.high, -flipped.low) == pytest.approx((low, high), abs=0.01)
    with pytest.raises(DataError, match="60 values of a but 59"):
        stats.paired_difference(a, b[1:])


def test_generic_columns_stay_together() -> None:
    x = rng().normal(size=100)
    y = x + rng(1).normal(size=100)
    low, high = ends(stats.bootstrap(lambda a, b: float(np.corrcoef(a, b)[0, 1]), x, y, method="bca"))
    assert low < np.corrcoef(x, y)[0, 1] < high
    assert low > 0.4
    names = np.array([f"item {i}" for i in range(100)])
    stats.bootstrap(lambda a, b: float(len(set(b))), x, names, resamples=50)
    with pytest.raises(DataError, match="undefined on"):
        stats.bootstrap(lambda a: math.nan, x, resamples=50)
    with pytest.raises(DataError, match="no bootstrap method"):
        stats.bootstrap(np.mean, x, method="magic")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_equal_values_have_an_interval_without_width(method: Any) -> None:
    assert ends(stats.bootstrap_mean([0.1] * 7, method=method)) == pytest.approx((0.1, 0.1))
    assert ends(stats.paired_difference([1, 2, 3], [1, 2, 3], method=method)) == (0, 0)
    assert ends(stats.bootstrap(np.median, [2.0, 2.0, 2.0], method=method)) == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_the_bootstrap_covers(method: Any) -> None:
    draws = rng().exponential(1, (400, 60))
    covered = [low <= 1 <= high for low, high in (ends(stats.bootstrap_mean(x, method=method)) for x in draws)]
    assert 0.88 <= np.mean(covered) <= 0.98


@pytest.mark.slow
def test_the_cluster_bootstrap_covers() -> None:
    covered = []
    for seed in range(400):
        r = rng(seed)
        names = np.repeat(np.arange(30), r.integers(1, 6, 30))
        x = r.normal(size=30)[names] + 0.3 * r.normal(size=len(names))
        low, high = ends(stats.bootstrap_mean(x, clusters=names.tolist(), resamples=1999))
        covered.append(low <= 0 <= high)
    assert 0.88 <= np.mean(covered) <= 0.98


# --- tests ---------------------------------------------------------------------------------------------------------


def test_mcnemar_agrees_with_statsmodels() -> None:
    tables = pytest.importorskip("statsmodels.stats.contingency_tables")
    for a, b in [(2, 12), (0, 5), (7, 7), (1, 0), (30, 41)]:
        expected = tables.mcnemar([[10, a], [b, 10]], exact=True).pvalue
        assert stats.mcnemar(a, b) == pytest.approx(min(1.0, expected))


@given(st.integers(0, 40), st.integers(0, 40))
def test_mcnemar_sides(a: int, b: int) -> None:
    assert stats.mcnemar(a, b) == pytest.approx(stats.mcnemar(b, a))
    greater, less = stats.mcnemar(a, b, "greater"), stats.mcnemar(a, b, "less")
    if a + b:
        assert greater == pytest.approx(sum(math.comb(a + b, i) for i in range(b, a + b + 1)) / 2 ** (a + b))
        assert min(1.0, 2 * min(greater, less)) == pytest.approx(stats.mcnemar(a, b))
    else:
        assert greater == less == stats.mcnemar(a, b) == 1


def test_fisher_and_binomial_agree_with_scipy() -> None:
    for alternative in ("two-sided", "greater", "less"):
        expected = scipy.stats.fisher_exact([[3, 1], [1, 9]], alternative).pvalue
        assert stats.fisher([[3, 1], [1, 9]], alternative) == pytest.approx(expected)
        assert stats.binomial(3, 10, 0.2, alternative) == scipy.stats.binomtest(3, 10, 0.2, alternative).pvalue
    for table in ([[1, 2]], [[1, -1], [0, 0]], [[0.5, 1], [1, 1]]):
        with pytest.raises(DataError):
            stats.fisher(table)
    for call in (lambda: stats.binomial(1, 2, 1.5), lambda: stats.mcnemar(-1, 2), lambda: stats.mcnemar(1, 2, "x")):  # type: ignore[arg-type]
        with pytest.raises(DataError):
            call()


@given(
    st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=9), st.sampled_from(["two-sided", "greater", "less"])
)
@settings(max_examples=60)
def test_sign_flips_agree_with_enumeration(x: list[float], alternative: Any) -> None:
    sums = [sum(s * v for s, v in zip(signs, x)) for signs in itertools.product([1, -1], repeat=len(x))]
    observed = sum(x)
    reached = {
        "two-sided": [abs(s) >= abs(observed) for s in sums],
        "greater": [s >= observed for s in sums],
        "less": [s <= observed for s in sums],
    }[alternative]
    expected = 1.0 if not any(x) else np.mean(reached)
    assert stats.sign_flip(x, alternative=alternative) == pytest.approx(expected)


def test_sign_flips_agree_with_scipy() -> None:
    x = rng().normal(0.3, 1, 40)
    for alternative in ("two-sided", "greater", "less"):
        theirs = scipy.stats.permutation_test(
            (x,), np.mean, permutation_type="samples", alternative=alternative, n_resamples=20_000, rng=rng(1)
        ).pvalue
        assert stats.sign_flip(x, alternative=alternative, resamples=20_000) == pytest.approx(theirs, abs=0.01)
    assert stats.sign_flip(x) == stats.sign_flip(x)
    assert stats.sign_flip(x + 50) == 1 / 10_000  # never 0


def test_sign_flips_by_cluster() -> None:
    x = rng().normal(0.5, 1, 8)
    copied, names = np.repeat(x, 5), np.repeat(np.arange(8), 5).tolist()
    assert stats.sign_flip(copied, clusters=names) == pytest.approx(stats.sign_flip(x))
    assert stats.sign_flip(copied) < stats.sign_flip(x)


def test_holm_agrees_with_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    for seed in range(5):
        p = np.round(rng(seed).random(12) ** 3, 2)
        assert stats.holm(p) == pytest.approx(multitest.multipletests(p, method="holm")[1])
    assert stats.holm([]).shape == (0,)
    assert stats.holm([0.03]).tolist() == [0.03]
    with pytest.raises(DataError):
        stats.holm([0.1, math.nan])
    with pytest.raises(DataError):
        stats.holm([1.1])


@given(st.lists(shares, min_size=1, max_size=12), st.randoms())
def test_holm_keeps_order_and_never_lowers(p: list[float], random: Any) -> None:
    adjusted = stats.holm(p)
    assert (adjusted >= np.array(p)).all()
    assert (adjusted <= 1).all()
    order = np.argsort(p, kind="stable")
    assert (np.diff(adjusted[order]) >= 0).all()
    shuffled = list(range(len(p)))
    random.shuffle(shuffled)
    assert stats.holm([p[i] for i in shuffled]) == pytest.approx(adjusted[shuffled])


# --- power ---------------------------------------------------------------------------------------------------------


def test_power_of_a_proportion_agrees_with_statsmodels_and_with_counting() -> None:
    power = pytest.importorskip("statsmodels.stats.power")
    for n, baseline in [(50, 0.5), (200, 0.3), (1000, 0.9)]:
        d = stats.detectable_proportion(n, baseline)
        theirs = []
        for share in (baseline + d, baseline - d):
            if 0 <= share <= 1:
                sd = math.sqrt(baseline * (1 - baseline)), math.sqrt(share * (1 - share))
                theirs.append(
                    power.normal_power_het(d, n, 0.05, std_null=sd[0], std_alternative=sd[1], alternative="two-sided")
                )
        assert min(theirs) == pytest.approx(0.8, abs=0.001)
    n = 200
    share = 0.5 + stats.detectable_proportion(n)
    rejected = [not (low <= 0.5 <= high) for low, high in (ends(stats.wilson(k, n)) for k in range(n + 1))]
    assert (scipy.stats.binom.pmf(np.arange(n + 1), n, share) * rejected).sum() == pytest.approx(0.8, abs=0.03)


def test_few_items_show_nothing() -> None:
    assert stats.detectable_proportion(1) == 1
    assert stats.detectable_paired(5, 0.5) == 1
    assert stats.detectable_paired(6, 0.5) < 1


@given(st.integers(2, 400), st.floats(0.05, 0.95))
@settings(max_examples=15, deadline=None)
def test_more_items_show_smaller_differences(n: int, baseline: float) -> None:
    assert stats.detectable_proportion(2 * n, 0.5) <= stats.detectable_proportion(n, 0.5)
    assert stats.detectable_paired(2 * n, baseline) <= stats.detectable_paired(n, baseline)
    assert stats.detectable_mean(1.0, 2 * n) < stats.detectable_mean(1.0, n)


def test_mcnemars_power_by_brute_force() -> None:
    n, d, discordance = 14, 0.4, 0.6
    cells = (discordance - d) / 2, (discordance + d) / 2
    expected = sum(
        scipy.stats.multinomial.pmf([a, b, n - a - b], n, [*cells, 1 - discordance])
        for a, b in itertools.product(range(n + 1), repeat=2)
        if a + b <= n and stats.mcnemar(a, b) <= 0.05
    )
    assert stats.mcnemar_power(n, d, discordance) == pytest.approx(expected)
    assert stats.mcnemar_power(n, -d, discordance) == pytest.approx(expected)
    assert stats.mcnemar_power(n, 0.0, 0.0) == 0
    assert stats.mcnemar_power(5000, 0.0, 0.3) < 0.05  # the test keeps its level
    with pytest.raises(DataError):
        stats.mcnemar_power(n, 0.5, 0.4)


def test_mcnemars_power_by_simulation() -> None:
    n, discordance = 150, 0.2
    d = stats.detectable_paired(n, discordance)
    drawn = rng().multinomial(n, [(discordance - d) / 2, (discordance + d) / 2, 1 - discordance], 2000)
    shown = np.mean([stats.mcnemar(int(a), int(b)) <= 0.05 for a, b, _ in drawn])
    assert shown == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("d", "discordance"), [(0.1, 0.3), (0.05, 0.05), (0.3, 0.1), (1.0, 1.0), (0.02, 0.4)])
def test_pairs_needed_and_detectable_are_inverse(d: float, discordance: float) -> None:
    n = stats.pairs_needed(d, discordance)
    assert stats.mcnemar_power(n, d, max(d, discordance)) >= 0.8
    assert stats.mcnemar_power(n - 1, d, max(d, discordance)) < 0.8
    assert stats.detectable_paired(n, discordance) <= d + 1e-9
    assert stats.pairs_needed(-d, discordance) == n


def test_pairs_needed_for_tiny_differences_join_smoothly() -> None:
    exact, normal = stats.pairs_needed(0.00101, 1.0), stats.pairs_needed(0.00099, 1.0)
    assert normal * 0.00099**2 == pytest.approx(exact * 0.00101**2, rel=0.01)


@pytest.mark.parametrize("n", [3, 10, 100, 133, 4999, 20_000])
def test_the_power_of_students_test_agrees_with_statsmodels(n: int) -> None:
    power = pytest.importorskip("statsmodels.stats.power")
    d = stats.detectable_mean(2.0, n)
    assert power.TTestPower().power(d / 2, n, 0.05) == pytest.approx(0.8, abs=0.002)
    assert stats.items_needed_mean(d * (1 + 1e-6), 2.0) == n
    assert stats.items_needed_mean(-d * (1 + 1e-6), 2.0) == n


def test_the_power_of_students_test_on_two_values_by_integration() -> None:
    d, limit = stats.detectable_mean(1.0, 2) * math.sqrt(2), scipy.stats.t.ppf(0.975, 1)

    def given_spread(s: float) -> float:
        rejected = scipy.stats.norm.sf(limit * s - d) + scipy.stats.norm.cdf(-limit * s - d)
        return float(rejected * scipy.stats.chi.pdf(s, 1))

    assert scipy.integrate.quad(given_spread, 0, 40, points=[1, 2, 3])[0] == pytest.approx(0.8, abs=1e-6)


def test_items_needed_is_the_inverse_of_detectable() -> None:
    n = stats.items_needed(0.1, 0.5)
    assert stats.detectable_proportion(n, 0.5) <= 0.1 < stats.detectable_proportion(n - 1, 0.5)
    assert stats.items_needed(-0.1, 0.5) == n
    assert stats.detectable_mean(0.0, 10) == 0
    assert stats.items_needed_mean(0.1, 0.0) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda: stats.detectable_proportion(0),
        lambda: stats.detectable_proportion(10, 1.5),
        lambda: stats.detectable_proportion(10, power=1.0),
        lambda: stats.detectable_proportion(10, alpha=0.0),
        lambda: stats.detectable_paired(0, 0.1),
        lambda: stats.detectable_paired(10, math.nan),
        lambda: stats.detectable_mean(1.0, 1),
        lambda: stats.detectable_mean(math.nan, 10),
        lambda: stats.detectable_mean(-1.0, 10),
        lambda: stats.pairs_needed(0.0, 0.1),
        lambda: stats.pairs_needed(0.1, 1.1),
        lambda: stats.items_needed(0.6, 0.5),
        lambda: stats.items_needed(0.0),
        lambda: stats.items_needed_mean(0.0, 1.0),
        lambda: stats.items_needed_mean(1e-9, 1.0),
        lambda: stats.wilson(1, 2, level=1.0),
    ],
)
def test_questions_of_power_without_an_answer_are_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(DataError):
        call()


# --- ranking -------------------------------------------------------------------------------------------------------

ranked = st.lists(st.tuples(st.booleans(), coarse), min_size=2, max_size=30).filter(
    lambda rows: len({label for label, _ in rows}) == 2
)


@given(ranked)
def test_ranking_agrees_with_scikit_learn(rows: list[tuple[bool, float]]) -> None:
    y, x = (list(column) for column in zip(*rows))
    area = stats.auroc(y, x)
    assert area.value == pytest.approx(roc_auc_score(y, x))
    low, high = ends(area.interval)
    assert 0 <= low <= area.value + 1e-12
    assert area.value - 1e-12 <= high <= 1
    assert stats.average_precision(y, x, resamples=0).value == pytest.approx(average_precision_score(y, x))
    flipped = stats.auroc([not label for label in y], x)
    assert flipped.value == pytest.approx(1 - area.value)
    assert ends(flipped.interval) == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_delongs_variance_by_its_definition() -> None:
    r = rng()
    y = r.random(80) < 0.4
    x = np.round(y + r.normal(size=80), 1)
    positive, negative = x[y], x[~y]
    kernel = (positive[:, None] > negative) + 0.5 * (positive[:, None] == negative)
    area = kernel.mean()
    error = math.sqrt(kernel.mean(1).var(ddof=1) / len(positive) + kernel.mean(0).var(ddof=1) / len(negative))
    half = 1.959964 * error / (area * (1 - area))
    expected = scipy.special.expit(scipy.special.logit(area) + np.array([-half, half]))
    assert ends(stats.auroc(y, x).interval) == pytest.approx(expected, abs=1e-6)


def test_an_area_without_variance_still_has_a_width() -> None:
    perfect = stats.auroc([0] * 30 + [1] * 20, range(50))
    assert perfect.value == 1
    assert ends(perfect.interval) == pytest.approx(ends(stats.clopper_pearson(20, 20)))
    flat = stats.auroc([0, 0, 1, 1], [3, 3, 3, 3])
    assert flat.value == 0.5
    assert ends(flat.interval)[0] < 0.2
    single = stats.auroc([1, 0, 0, 0], [2, 1, 3, 0])
    assert single.value == pytest.approx(2 / 3)
    assert ends(single.interval)[0] < 0.2


def test_bootstrapped_average_precision_agrees_with_resampling_scikit_learns() -> None:
    r = rng()
    y = r.random(120) < 0.3
    x = np.round(y + r.normal(size=120), 1)
    positive, negative = np.flatnonzero(y), np.flatnonzero(~y)
    law = []
    for _ in range(1500):
        rows = np.concatenate([r.choice(positive, len(positive)), r.choice(negative, len(negative))])
        law.append(average_precision_score(y[rows], x[rows]))
    ours = stats.average_precision(y, x, resamples=4000)
    assert ends(ours.interval) == pytest.approx(np.quantile(law, [0.025, 0.975]), abs=0.02)
    assert stats.average_precision(y, x) == stats.average_precision(y, x)


def prr_in_words(errors: list[float], order: list[int], rejections: int) -> float:
    def area(ordered: list[float]) -> float:
        n = len(ordered)
        return float(np.mean([np.mean(ordered[:k]) for k in range(n - rejections + 1, n + 1)]))

    random = float(np.mean(errors))
    return (random - area([errors[i] for i in order])) / (random - area(sorted(errors)))


mixed_errors = st.lists(st.tuples(st.sampled_from([0.0, 0.3, 1.0]), coarse), min_size=2, max_size=6).filter(
    lambda rows: len({error for error, _ in rows}) > 1
)


@given(mixed_errors, st.sampled_from([1.0, 0.5]))
@settings(max_examples=40)
def test_prr_is_the_mean_over_all_orders_of_ties(rows: list[tuple[float, float]], share: float) -> None:
    errors, uncertainty = (list(column) for column in zip(*rows))
    rejections = math.floor(share * len(rows))
    assume(rejections >= 2)
    orders = [
        order
        for order in itertools.permutations(range(len(rows)))
        if all(uncertainty[i] <= uncertainty[j] for i, j in itertools.pairwise(order))
    ]
    expected = np.mean([prr_in_words(errors, list(order), rejections) for order in orders])
    got = stats.prr(errors, uncertainty, max_rejection=share, resamples=0)
    assert got.value == pytest.approx(expected, abs=1e-9)
    assert got.interval is None


@given(st.lists(st.tuples(shares, reals), min_size=3, max_size=40).filter(lambda r: np.ptp([e for e, _ in r]) > 1e-6))
@settings(max_examples=50)
def test_prr_knows_the_oracle_and_forgets_the_order(rows: list[tuple[float, float]]) -> None:
    errors, uncertainty = (np.array(column) for column in zip(*rows))
    assert stats.prr(errors, errors, resamples=0).value == pytest.approx(1)
    assert stats.prr(errors, np.zeros(len(errors)), resamples=0).value == pytest.approx(0, abs=1e-6)
    value = stats.prr(errors, uncertainty, resamples=0).value
    assert value <= 1 + 1e-9
    shuffled = rng().permutation(len(errors))
    assert stats.prr(errors[shuffled], uncertainty[shuffled], resamples=0).value == pytest.approx(value, abs=1e-6)
    _, ranks = np.unique(uncertainty, return_inverse=True)
    assert stats.prr(errors, ranks, resamples=0).value == pytest.approx(value, abs=1e-6)


def test_prr_of_random_orders_is_zero_in_expectation() -> None:
    r = rng()
    errors = (r.random(60) < 0.4).astype(float)
    values = [stats.prr(errors, r.random(60), resamples=0).value for _ in range(1500)]
    assert abs(np.mean(values)) < 4 * np.std(values) / math.sqrt(len(values))


def test_the_bootstrap_of_prr_agrees_with_plain_resampling() -> None:
    r = rng()
    errors = (r.random(100) < 0.4).astype(float)
    uncertainty = np.round(errors + r.normal(size=100), 1)
    ours = stats.prr(errors, uncertainty, resamples=4000)

    def plain(e: np.ndarray, u: np.ndarray) -> float:
        return stats.prr(e, u, resamples=0).value

    expected = stats.bootstrap(plain, errors, uncertainty, resamples=1500)
    assert ends(ours.interval) == pytest.approx(ends(expected), abs=0.03)
    assert ours == stats.prr(errors, uncertainty, resamples=4000)


def test_rankings_that_tell_nothing_are_refused() -> None:
    for call in (
        lambda: stats.auroc([1, 1], [1, 2]),
        lambda: stats.auroc([1, 2], [1, 2]),
        lambda: stats.auroc([1, 0], [1, math.nan]),
        lambda: stats.auroc([1, 0], [1, 2, 3]),
        lambda: stats.auroc([], []),
        lambda: stats.average_precision([0, 0], [1, 2]),
        lambda: stats.prr([0, 0, 0], [1, 2, 3]),
        lambda: stats.prr([1], [1]),
        lambda: stats.prr([0, 1], [1, math.inf]),
        lambda: stats.prr([0, 1], [1, 2], max_rejection=0.1),
        lambda: stats.prr([0, 1], [1, 2], max_rejection=0.5),
        lambda: stats.prr([0, 1], [1, 2], max_rejection=2),
    ):
        with pytest.raises(DataError):
            call()
    assert stats.average_precision([1, 1], [1, 2]).value == 1


@pytest.mark.slow
def test_delong_covers() -> None:
    truth = scipy.stats.norm.cdf(1 / math.sqrt(2))
    covered = []
    for seed in range(1000):
        r = rng(seed)
        y = np.arange(60) < 25
        low, high = ends(stats.auroc(y, y + r.normal(size=60)).interval)
        covered.append(low <= truth <= high)
    assert 0.92 <= np.mean(covered) <= 0.98


# --- calibration ---------------------------------------------------------------------------------------------------


def test_ece_by_hand() -> None:
    p = [0.1, 0.2, 0.3, 0.9, 1.0, 0.0]
    y = [0, 1, 0, 1, 1, 0]
    got = stats.ece(p, y, bins=2)
    assert got.value == pytest.approx((4 * abs(0.15 - 0.25) + 2 * abs(0.95 - 1.0)) / 6)
    assert got.counts == (4, 2)
    assert got.overconfidence == pytest.approx(2.5 / 6 - 3 / 6)
    assert stats.ece([0.3], [1], bins=10).counts == (1,)
    equal = stats.ece(p, y, bins=3, scheme="mass")
    assert equal.counts == (2, 2, 2)
    assert equal.value == pytest.approx((2 * 0.05 + 2 * 0.25 + 2 * 0.05) / 6)


def test_edges_belong_to_the_bin_on_their_left() -> None:
    edges = [i / 10 for i in range(11)]
    assert stats.ece(edges, [1] * 11, bins=10).counts == (2,) + (1,) * 9


def test_a_calibrated_model_has_little_error_and_a_boaster_much() -> None:
    p = rng().random(20_000)
    y = rng(1).random(20_000) < p
    for scheme in ("width", "mass"):
        assert stats.ece(p, y, scheme=scheme).value < 0.02  # type: ignore[arg-type]
        assert stats.ece([0.99] * 10, [0] * 10, scheme=scheme).value == pytest.approx(0.99)  # type: ignore[arg-type]


@given(st.lists(st.tuples(coarse.map(lambda c: c / 5), st.booleans()), min_size=1, max_size=40), st.integers(1, 12))
def test_ece_does_not_depend_on_the_order(rows: list[tuple[float, bool]], bins: int) -> None:
    p, y = (np.array(column) for column in zip(*rows))
    shuffled = rng().permutation(len(p))
    for scheme in ("width", "mass"):
        got = stats.ece(p, y, bins, scheme)  # type: ignore[arg-type]
        assert got.value == pytest.approx(stats.ece(p[shuffled], y[shuffled], bins, scheme).value)  # type: ignore[arg-type]
        assert abs(got.overconfidence) - 1e-12 <= got.value <= 1
        assert sum(got.counts) == got.n == len(p)


def test_ece_refuses_what_is_no_confidence() -> None:
    for p, y in (([1.2], [1]), ([math.nan], [1]), ([], []), ([0.5], [1, 0]), ([0.5], [2])):
        with pytest.raises(DataError):
            stats.ece(p, y)
    with pytest.raises(DataError):
        stats.ece([0.5], [1], bins=0)
    with pytest.raises(DataError):
        stats.ece([0.5], [1], scheme="other")  # type: ignore[arg-type]


# --- fallible judges -----------------------------------------------------------------------------------------------


@given(counts, st.floats(0.6, 1), st.floats(0.6, 1))
def test_rogan_gladen_inverts_the_judges_errors(kn: tuple[int, int], se: float, sp: float) -> None:
    k, n = kn
    got = stats.rogan_gladen(k, n, se, sp)
    exact = (k / n + sp - 1) / (se + sp - 1)
    assert got.value == pytest.approx(min(1, max(0, exact)))
    low, high = ends(got.interval)
    assert 0 <= low <= got.value + 1e-12
    assert got.value - 1e-12 <= high <= 1
    perfect = stats.rogan_gladen(k, n, 1.0, 1.0)
    assert perfect.value == pytest.approx(k / n)
    assert ends(perfect.interval) == pytest.approx(ends(stats.wilson(k, n)))


def test_rogan_gladen_with_many_labels_comes_to_the_known_judge() -> None:
    known = stats.rogan_gladen(300, 1000, 0.9, 0.8)
    counted = stats.rogan_gladen(300, 1000, (9_000_000, 10_000_000), (8_000_000, 10_000_000))
    assert ends(counted.interval) == pytest.approx(ends(known.interval), abs=0.003)
    few = stats.rogan_gladen(300, 1000, (18, 20), (16, 20))
    assert few.value == pytest.approx(known.value)
    assert np.ptp(ends(few.interval)) > 2 * np.ptp(ends(known.interval))


@pytest.mark.parametrize(
    ("truth", "se", "sp", "labels"), [(0.2, 0.9, 0.85, 60), (0.02, 0.8, 0.95, 40), (0.6, 0.7, 0.7, 100)]
)
def test_rogan_gladen_covers(truth: float, se: float, sp: float, labels: int) -> None:
    r = rng()
    covered = []
    for _ in range(1500):
        k = r.binomial(200, truth * se + (1 - truth) * (1 - sp))
        counted = (int(r.binomial(labels, se)), labels), (int(r.binomial(labels, sp)), labels)
        low, high = ends(stats.rogan_gladen(int(k), 200, *counted).interval)
        covered.append(low <= truth <= high)
    assert np.mean(covered) >= 0.935


def test_a_judge_no_better_than_chance_is_refused() -> None:
    with pytest.raises(DataError, match="no better than chance"):
        stats.rogan_gladen(3, 10, 0.5, 0.5)
    with pytest.raises(DataError):
        stats.rogan_gladen(3, 10, 1.5, 0.5)
    assert ends(stats.rogan_gladen(3, 10, (1, 1), (1, 2)).interval) == (0, 1)


def test_predictions_that_are_right_make_a_mean_sharp_and_useless_ones_do_no_harm() -> None:
    r = rng()
    truth = r.normal(size=2050)
    y, f, g = truth[:50], truth[:50], truth[50:]
    plain = stats.ppi_mean(y, f, g, tuned=False)
    assert plain.value == pytest.approx(g.mean())
    assert np.ptp(ends(plain.interval)) < 0.25 * np.ptp(ends(stats.mean_interval(y)))
    noise = r.normal(size=(2, 2000)) * 10
    useless = stats.ppi_mean(y, noise[0, :50], noise[1])
    assert np.ptp(ends(useless.interval)) <= 1.02 * np.ptp(ends(stats.mean_interval(y)))
    constant = stats.ppi_mean(y, [1.0] * 50, [1.0] * 10)
    assert constant.weight == 0
    assert constant.value == pytest.approx(y.mean())
    assert ends(constant.interval) == pytest.approx(ends(stats.mean_interval(y)))


def test_plain_ppi_by_its_formula() -> None:
    r = rng()
    y = r.normal(size=30)
    f, g = y + r.normal(size=30), r.normal(1, 1, 100)
    got = stats.ppi_mean(y, f, g, tuned=False)
    assert got.value == pytest.approx(g.mean() + (y - f).mean())
    half = scipy.stats.t.ppf(0.975, 29) * math.sqrt(g.var(ddof=1) / 100 + (y - f).var(ddof=1) / 30)
    assert ends(got.interval) == pytest.approx((got.value - half, got.value + half))
    tuned = stats.ppi_mean(y, f, g)
    assert 0 < tuned.weight < 1
    assert np.ptp(ends(tuned.interval)) < np.ptp(ends(got.interval))
    for bad in (([1.0], [1.0], g), (y, f[1:], g), (y, f, [1.0]), (y, f, [1.0, math.nan])):
        with pytest.raises(DataError):
            stats.ppi_mean(*bad)


def test_prediction_powered_means_cover_though_predictions_are_biased() -> None:
    covered: dict[bool, list[bool]] = {True: [], False: []}
    for seed in range(800):
        r = rng(seed)
        truth = r.random(400) < 0.3
        f = np.clip(0.3 + 0.5 * truth + 0.1 * r.normal(size=400), 0, 1)
        for tuned, hits in covered.items():
            low, high = ends(stats.ppi_mean(truth[:60].astype(float), f[:60], f[60:], tuned=tuned).interval)
            hits.append(low <= 0.3 <= high)
    for hits in covered.values():
        assert 0.925 <= np.mean(hits) <= 0.975


# --- input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [[], [1.0], [1.0, math.nan], [1.0, math.inf], ["a", "b"], [[1.0, 2.0], [3.0, 4.0]]])
def test_values_without_a_mean_interval_are_refused(bad: Any) -> None:
    for call in (stats.mean_interval, stats.bootstrap_mean, lambda x: stats.paired_difference(x, x)):
        with pytest.raises(DataError):
            call(bad)


@given(st.lists(reals, min_size=3, max_size=30), st.randoms())
@settings(max_examples=25)
def test_order_does_not_matter_where_no_draw_is_made(x: list[float], random: Any) -> None:
    shuffled = list(x)
    random.shuffle(shuffled)
    assert ends(stats.mean_interval(shuffled)) == pytest.approx(ends(stats.mean_interval(x)), abs=1e-6)
    if len(x) <= 10:
        assert stats.sign_flip(shuffled) == pytest.approx(stats.sign_flip(x))

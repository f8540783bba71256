"""SelectiveClassifier: its thresholds, what they promise, and scikit-learn's contract."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils import estimator_checks

from intarsia.core import stats
from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty import selective
from intarsia.uncertainty.selective import SelectiveClassifier

labelled = st.lists(st.tuples(st.integers(0, 6).map(float), st.booleans()), min_size=1, max_size=40)


LEVELS = np.arange(21) / 20


def draw(rng: np.random.Generator, n: int, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Uncertainties in [0, 1] and whether each answer is right; an answer is wrong with probability 0.8 u^3."""
    u = rng.choice(LEVELS, n) if ties else rng.random(n)
    return u, rng.random(n) >= 0.8 * u**3


def true_risk(threshold: float, ties: bool = False) -> float:
    """Risk up to a threshold under the law of `draw`; 0.1 is met up to about 0.79."""
    return float((0.8 * LEVELS[threshold >= LEVELS] ** 3).mean()) if ties else 0.2 * min(1.0, threshold) ** 3


# --- Thresholds ------------------------------------------------------------------------------------------------------


@given(labelled, st.floats(0.05, 0.9))
def test_the_empirical_threshold_is_the_largest_that_meets_the_target(pairs, target: float) -> None:
    u, right = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    met = [t for t in np.unique(u) if (~right[u <= t]).mean() <= target]
    chooser = SelectiveClassifier(target_risk=target, guarantee=None)
    if not met:
        with pytest.raises(DataError, match="No threshold reaches"):
            chooser.fit(u, right)
        return
    chooser.fit(u, right)
    assert chooser.threshold_ == max(met)
    assert chooser.risk_ <= target
    assert chooser.coverage_ == pytest.approx((u <= max(met)).mean())
    assert math.isnan(chooser.risk_bound_)


@given(labelled, st.floats(0.01, 1.0))
def test_a_target_coverage_is_reached_and_no_more_than_needed(pairs, target: float) -> None:
    u = np.array([p[0] for p in pairs])
    chooser = SelectiveClassifier(target_coverage=target).fit(u)
    assert (u <= chooser.threshold_).mean() >= target - 1e-9
    assert (u < chooser.threshold_).mean() < target
    assert math.isnan(chooser.risk_)


@given(labelled, st.floats(0.05, 0.9))
def test_a_guarantee_is_never_bolder_than_its_bound(pairs, target: float) -> None:
    u, right = np.array([p[0] for p in pairs] * 8), np.array([p[1] for p in pairs] * 8)
    for guarantee in ("fixed-sequence", "bonferroni"):
        chooser = SelectiveClassifier(target_risk=target, guarantee=guarantee)
        try:
            chooser.fit(u, right)
        except DataError:
            continue
        assert chooser.risk_bound_ <= target
        assert chooser.coverage_ > 0


@pytest.mark.parametrize("guarantee", ["fixed-sequence", "bonferroni"])
@pytest.mark.parametrize("ties", [False, True])
def test_the_promise_holds_on_new_items(guarantee: str, ties: bool) -> None:
    # Without a guarantee the risk is above the target about half the time; with one, at most in 1 - level of the runs.
    rng = np.random.default_rng(0)
    target, runs = 0.1, 120
    broken, bold, coverage = 0, 0, []
    for run in range(runs):
        u, right = draw(rng, 300, ties)
        try:
            safe = SelectiveClassifier(target_risk=target, guarantee=guarantee, level=0.9, random_state=run).fit(
                u, right
            )
        except DataError:
            coverage.append(0.0)
        else:
            broken += true_risk(safe.threshold_, ties) > target + 1e-9
            coverage.append(safe.coverage_)
        plain = SelectiveClassifier(target_risk=target, guarantee=None).fit(u, right)
        bold += true_risk(plain.threshold_, ties) > target + 1e-9
    assert broken / runs <= 0.1
    assert bold / runs > 0.25
    assert np.mean(coverage) > 0.5  # of some 0.79 that the truth allows


def test_thresholds_fixed_beforehand_use_all_items() -> None:
    u, right = draw(np.random.default_rng(1), 2000)
    chooser = SelectiveClassifier(target_risk=0.1, thresholds=np.linspace(0.05, 1, 20)).fit(u, right)
    assert round(chooser.threshold_ * 20) == pytest.approx(chooser.threshold_ * 20)
    assert true_risk(chooser.threshold_) <= 0.1
    assert chooser.threshold_ >= 0.7
    assert chooser.risk_ < chooser.risk_bound_ <= 0.1


def test_more_items_let_more_through() -> None:
    coverage = []
    for n in (200, 5000):
        drawn = [draw(np.random.default_rng(seed), n) for seed in range(10)]
        coverage.append(np.mean([SelectiveClassifier(target_risk=0.1).fit(*one).coverage_ for one in drawn]))
    assert coverage[0] + 0.1 < coverage[1] <= 0.8
    assert coverage[1] > 0.72


@pytest.mark.parametrize("guarantee", ["fixed-sequence", "bonferroni", None])
def test_no_threshold_reaches_the_risk(guarantee: str | None) -> None:
    u = np.linspace(0, 1, 200)
    with pytest.raises(DataError, match=r"No threshold reaches a risk of 5\.0%") as caught:
        SelectiveClassifier(target_risk=0.05, guarantee=guarantee).fit(u, np.zeros(200))
    assert "target_risk" in caught.value.hint
    # Ten right answers cannot show a risk of 5 %.
    if guarantee:
        with pytest.raises(DataError, match="No threshold"):
            SelectiveClassifier(target_risk=0.05, guarantee=guarantee).fit(u[:10], np.ones(10))


def test_bounds_are_those_of_clopper_and_pearson() -> None:
    wrong, answered = np.array([0, 0, 3, 10, 10]), np.array([0, 29, 40, 1000, 10])
    found = selective._bounds(wrong, answered, 0.02)
    assert found[0] == found[4] == 1.0
    for value, k, n in zip(found[1:4], wrong[1:4].tolist(), answered[1:4].tolist()):
        assert value == pytest.approx(stats.clopper_pearson(k, n, 0.96).high)


@pytest.mark.parametrize("guarantee", ["fixed-sequence", "bonferroni", None])
def test_all_right_answers_are_all_given(guarantee: str | None) -> None:
    u = np.linspace(0, 1, 300)
    chooser = SelectiveClassifier(target_risk=0.1, guarantee=guarantee).fit(u, np.ones(300))
    assert chooser.coverage_ > 0.97


# --- Answers ---------------------------------------------------------------------------------------------------------


@dataclass
class Scored:
    answer: str
    scores: dict[str, float]


def test_results_with_scores() -> None:
    results = [Scored("Paris", {"d": 0.1, "e": math.nan}), Scored("Rome", {"d": 0.9, "e": 0.0})] * 20
    gold = ["paris", "Oslo"] * 20
    chooser = SelectiveClassifier("d", target_risk=0.2, guarantee=None, correct=lambda a, g: a.lower() == g.lower())
    assert chooser.fit(results, gold).predict(results[:3]).tolist() == ["Paris", None, "Paris"]
    assert chooser.score(results, gold) == 1.0
    found = chooser.evaluate(results, gold)
    assert (found.coverage, found.risk, found.answered, found.n) == (0.5, 0.0, 20, 40)
    assert found.interval is not None
    assert found.interval.high == pytest.approx(1 - 0.025 ** (1 / 20))
    # The same with a function of the results; equality is the measure now.
    plain = SelectiveClassifier(lambda rs: [r.scores["d"] for r in rs], target_coverage=0.5).fit(results, gold)
    assert plain.risk_ == 1.0
    assert plain.predict(results[:1])[0] == "Paris"
    with pytest.raises(ConfigError, match="no score"):
        SelectiveClassifier("x", target_coverage=0.5).fit(results)
    with pytest.raises(DataError, match="20 of 40"):
        SelectiveClassifier("e", target_coverage=0.5).fit(results)
    with pytest.raises(DataError, match="results with scores"):
        SelectiveClassifier("d", target_coverage=0.5).fit([0.1, 0.2])


def test_a_classifier_that_abstains() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(0, 1, (2000, 2))
    y = (X[:, 0] + rng.normal(0, 0.7, 2000) > 0).astype(int)
    model = LogisticRegression().fit(X[:500], y[:500])
    chooser = SelectiveClassifier(
        lambda rows: 1 - model.predict_proba(rows).max(1), model.predict, target_risk=0.1, abstain=-1
    ).fit(X[500:1500], y[500:1500])
    said = chooser.predict(X[1500:])
    assert said.dtype.kind == "i"
    assert set(said.tolist()) == {-1, 0, 1}
    assert model.score(X[1500:], y[1500:]) < 0.85
    assert chooser.score(X[1500:], y[1500:]) >= 0.88
    assert ((said >= 0) == chooser.accept(X[1500:])).all()
    assert ((chooser.decision_function(X[1500:]) >= 0) == chooser.accept(X[1500:])).all()


def test_unknown_uncertainty_is_no_reason_to_answer() -> None:
    chooser = SelectiveClassifier(target_coverage=1.0).fit([0.0, 1.0])
    assert chooser.predict([0.5, math.nan, math.inf, 2.0]).tolist() == [1, None, None, None]
    assert math.isnan(chooser.score([5.0, math.nan], [1, 1]))
    assert chooser.evaluate([5.0], [1]).interval is None
    with pytest.raises(DataError, match="NaN"):
        SelectiveClassifier(target_coverage=1.0).fit([0.0, math.nan])


def test_answers_keep_their_kind() -> None:
    def words(X: object) -> list[object]:
        return ["long answer", ["a", "b"], 3]

    chooser = SelectiveClassifier(None, words, target_coverage=0.6, abstain="unknown, ask a person").fit([1, 2, 3])
    assert chooser.predict([1, 2, 3]).tolist() == ["long answer", ["a", "b"], "unknown, ask a person"]


# --- The contract ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_estimator_cloneable,
    ],
)
def test_scikit_learns_own_checks(check) -> None:
    check("SelectiveClassifier", SelectiveClassifier(target_risk=0.3))


def test_fit_returns_itself_changes_nothing_and_repeats() -> None:
    u, right = draw(np.random.default_rng(4), 500)
    X, y = u[:, None].copy(), right.copy()
    chooser = SelectiveClassifier(target_risk=0.2)
    assert chooser.fit(X, y) is chooser
    assert (X[:, 0] == u).all()
    assert (y == right).all()
    assert chooser.n_features_in_ == 1
    again = clone(chooser)
    with pytest.raises(NotFittedError):
        again.predict(X)
    again.fit(X.tolist(), y.tolist())
    assert again.threshold_ == chooser.threshold_
    copy = pickle.loads(pickle.dumps(chooser))
    assert (copy.predict(X) == chooser.predict(X)).all()
    assert (chooser.predict(X[::-1]) == chooser.predict(X)[::-1]).all()


def test_it_can_be_searched_over() -> None:
    u, right = draw(np.random.default_rng(5), 600)
    search = GridSearchCV(SelectiveClassifier(), {"target_coverage": [0.3, 0.9]}, cv=3).fit(u[:, None], right)
    assert search.best_params_ == {"target_coverage": 0.3}


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"target_risk": 0.1, "target_coverage": 0.5}, {"target_risk": 0.0}, {"target_risk": 1.0},
        {"target_coverage": 0.0}, {"target_coverage": 1.1}, {"target_risk": 0.1, "guarantee": "hope"},
        {"target_risk": 0.1, "level": 0.5}, {"target_risk": 0.1, "level": 1.0}, {"target_risk": 0.1, "thresholds": []},
        {"target_risk": math.nan},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense(settings: dict) -> None:
    with pytest.raises(ConfigError):
        SelectiveClassifier(**settings).fit([0.1, 0.2, 0.3], [1, 1, 0])


def test_bad_items() -> None:
    chooser = SelectiveClassifier(target_risk=0.5, guarantee=None)
    for X, y in (
        ([], []), ([0.1, 0.2], [1]), ([0.1, 0.2], [1, 2]), (np.zeros((3, 2)), [1, 1, 1]), (["a", "b"], [1, 1]),
        ([0.1, 0.2], None), (3.0, [1]),
    ):  # fmt: skip
        with pytest.raises(DataError):
            chooser.fit(X, y)
    with pytest.raises(DataError, match="one an item"):
        SelectiveClassifier(lambda X: [0.1], target_coverage=0.5).fit([1, 2])
    with pytest.raises(DataError, match="one an item"):
        SelectiveClassifier(None, lambda X: ["a"], target_coverage=0.5).fit([1, 2]).predict([1, 2])
    with pytest.raises(DataError):
        SelectiveClassifier(target_coverage=0.5).fit([1, 2]).evaluate([], [])

"""The certified interval holds for every law; the thresholds on the mass are what they are said to be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty.candidates import Answer, CandidateSet, Kind
from intarsia.uncertainty.estimators import dissimilarity, weights
from intarsia.uncertainty.interval import (
    certified_interval,
    certify,
    distinct,
    low_mass,
    mass_warning,
    paper_threshold,
    sufficient_mass,
)

few = settings(max_examples=30)
unit = st.floats(0, 1)


@st.composite
def laws(draw: st.DrawFn, least: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """A whole law, likeliest answers first, and the dissimilarity of each answer."""
    k = draw(st.integers(least, 12))
    raw = np.array(draw(st.lists(st.floats(-30, 0), min_size=k, max_size=k)))
    p_K = np.exp(raw - raw.max())
    p_K = np.sort(p_K / p_K.sum())[::-1]
    return p_K, np.array(draw(st.lists(unit | st.sampled_from([0.0, 1.0]), min_size=k, max_size=k)))


def a_set(
    probs: list[float],
    tokens: list[tuple[int, ...]] | None = None,
    finished: list[bool] | None = None,
    kind: Kind = "beam",
    texts: list[str] | None = None,
) -> CandidateSet:
    m = len(probs)
    return CandidateSet(
        answer=Answer("a"),
        texts=tuple(texts or [f"t{i}" for i in range(m)]),
        token_ids=tuple(tokens or [(i, 99) for i in range(m)]),
        logprobs_M=np.log(np.array(probs)),
        finished_M=np.array(finished or [True] * m),
        kind=kind,
        exact=m if kind == "beam" else 0,
    )


@few
@given(laws(), st.data())
def test_the_interval_contains_the_enumerated_truth(law: tuple[np.ndarray, np.ndarray], data: st.DataObject) -> None:
    p_K, d_K = law
    truth = float((p_K * d_K).sum())
    kept = data.draw(st.lists(st.integers(0, len(p_K) - 1), unique=True, min_size=1))
    low, high, mass = certified_interval(p_K[kept], d_K[kept])
    assert low - 1e-12 <= truth <= high + 1e-12
    assert 0 <= low <= high <= 1
    assert high - low <= 1 - mass + 1e-12
    beam = dissimilarity(d_K[kept], weights(np.log(p_K[kept])))
    assert low - 1e-12 <= beam <= high + 1e-12  # the point estimate is one of the values that are possible
    assert certified_interval(p_K, d_K)[:2] == pytest.approx((truth, truth), abs=1e-12)


@few
@given(laws(), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_samples_prove_something_too_and_repeats_count_once(
    law: tuple[np.ndarray, np.ndarray], m: int, seed: int
) -> None:
    p_K, d_K = law
    drawn = np.random.default_rng(seed).choice(len(p_K), m, p=p_K / p_K.sum())
    samples = a_set(p_K[drawn].tolist(), [(int(i), 99) for i in drawn], kind="sample")
    low, high, mass = certify(samples, d_K[drawn])
    assert low - 1e-12 <= float((p_K * d_K).sum()) <= high + 1e-12
    assert mass == pytest.approx(p_K[np.unique(drawn)].sum())


def test_the_interval_is_not_the_score() -> None:
    found = certified_interval(np.array([0.6, 0.2]), np.array([0.0, 0.5]))
    assert found == pytest.approx((0.1, 0.3, 0.8))


def test_disjoint_events() -> None:
    # A cut-off candidate that another continues holds the other's probability.
    cut = a_set([0.5, 0.3, 0.2], [(1, 2), (1, 2, 3), (4, 5)], [False, True, False])
    assert distinct(cut) == [1, 2]
    whole = a_set([0.5, 0.3, 0.2], [(1, 2), (1, 2, 3), (4, 5)], [True, True, False])
    assert distinct(whole) == [0, 1, 2]  # a finished one ends: its end token is not continued
    unknown = a_set([0.2, 0.3, 0.1], [(), (), ()], texts=["x", "x", "y"])
    assert distinct(unknown) == [1, 2]


def test_what_was_cut_off_is_unknown_unless_it_is_the_answer() -> None:
    cut = a_set([0.5, 0.3], finished=[True, False])
    d_M = np.array([0.0, 1.0])
    assert certify(cut, d_M) == pytest.approx((0.0, 0.5, 0.5))
    assert certify(cut, d_M, unfinished="outcome") == pytest.approx((0.3, 0.5, 0.8))
    never = a_set([0.5, 0.3], finished=[False, False])  # a model that never ends a beam
    assert certify(never, d_M) == (0.0, 1.0, 0.0)


def test_scores_that_are_no_probabilities_are_refused() -> None:
    with pytest.raises(DataError, match="length penalty"):
        certify(a_set([0.9, 0.8]), np.zeros(2))
    rounding = certify(a_set([0.9, 0.1002]), np.array([0.0, 1.0]))
    assert rounding.mass == 1.0
    assert rounding.low == rounding.high <= 1
    with pytest.raises(DataError):
        certified_interval(np.array([0.5]), np.array([1.5]))
    with pytest.raises(DataError):
        certify(a_set([0.5, 0.3]), np.zeros(3))
    with pytest.raises(ConfigError):
        certify(a_set([0.5]), np.zeros(1), unfinished="maybe")  # type: ignore[arg-type]


def errors(p_K: np.ndarray, d_K: np.ndarray, m: int) -> tuple[float, float]:
    """Squared error of the beam and expected squared error of M samples."""
    truth = float((p_K * d_K).sum())
    beam = dissimilarity(d_K[:m], weights(np.log(p_K[:m])))
    return (beam - truth) ** 2, float((p_K * (d_K - truth) ** 2).sum()) / m


@few
@given(laws(least=2), st.integers(1, 11))
def test_sufficient_mass_is_sufficient_for_every_law(law: tuple[np.ndarray, np.ndarray], m: int) -> None:
    p_K, d_K = law
    beam, samples = errors(p_K, d_K, m)
    if p_K[:m].sum() >= sufficient_mass(m):
        assert beam <= samples + 1e-15


@pytest.mark.parametrize("m", [1, 2, 5, 10, 50])
def test_sufficient_mass_is_tight_and_the_papers_threshold_is_no_guarantee(m: int) -> None:
    def worst(mass: float) -> tuple[float, float]:
        p_K = np.append(np.full(m, mass / m), 1 - mass)
        return errors(p_K, np.append(np.zeros(m), 1.0), m)

    beam, samples = worst(sufficient_mass(m) - 1e-3)
    assert beam > samples
    beam, samples = worst(sufficient_mass(m) + 1e-3)
    assert beam < samples
    if m > 1:
        assert paper_threshold(m) < sufficient_mass(m)
        beam, samples = worst((paper_threshold(m) + sufficient_mass(m)) / 2)
        assert beam > samples


def test_thresholds() -> None:
    assert paper_threshold(10) == pytest.approx(0.8419, abs=1e-4)
    assert sufficient_mass(10) == pytest.approx(0.9091, abs=1e-4)
    for m in range(1, 100):
        assert paper_threshold(m) >= 0.5 <= sufficient_mass(m)
        assert low_mass(0.49, m)
        assert not low_mass(0.5, m)
    assert low_mass(0.8, 10, "paper")
    assert not low_mass(0.85, 10, "paper")
    assert low_mass(0.85, 10, "sufficient")
    assert not low_mass(0.92, 10, "sufficient")
    assert low_mass(float("nan"), 10)
    for wrong in (0, -1, True):
        with pytest.raises(ConfigError):
            low_mass(0.5, wrong)
    with pytest.raises(ConfigError, match="rule"):
        low_mass(0.5, 10, "none")  # type: ignore[arg-type]


def test_warnings() -> None:
    assert mass_warning(0.9, 10) == ""
    assert "40%" in mass_warning(0.4, 10)
    assert "hybrid" in mass_warning(0.4, 10)
    assert "One candidate" in mass_warning(1.0, 1)

"""The closed forms of the estimators' errors agree with sampling, and the promises about them hold on any law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from intarsia.core.errors import ConfigError
from intarsia.uncertainty.hybrid import best_b
from intarsia.uncertainty.proof.laws import Laws, draw, expected_errors, peaked_laws, split_by_bound

SHARES = arrays(np.float64, (8, 30), elements=st.floats(1e-6, 1.0))
UNIT = arrays(np.float64, (8, 30), elements=st.floats(0.0, 1.0))


def law(shares: np.ndarray, power: float, dissimilarity: np.ndarray) -> Laws:
    weight = shares**power
    return Laws.sort(weight / weight.sum(1, keepdims=True), dissimilarity)


@given(SHARES, st.floats(0.0, 12.0), UNIT, st.integers(1, 20))
def test_enough_mass_is_enough_on_any_law(shares: np.ndarray, power: float, d: np.ndarray, m: int) -> None:
    errors = expected_errors(law(shares, power, d), m)
    assert errors.violations == 0
    assert (errors.squared["hybrid"] <= errors.bound_N * (1 + 1e-9) + 1e-15).all()
    assert (errors.squared["beam"] <= (1 - errors.mass_N) ** 2 + 1e-12).all()


def test_enough_mass_is_tight_and_the_papers_threshold_is_no_guarantee() -> None:
    def one(mass: float) -> Laws:
        probs = np.concatenate([np.full(10, mass / 10), np.full(40, (1 - mass) / 40)])[None]
        return Laws.sort(probs, np.repeat([0.0, 1.0], [10, 40])[None])

    below, above = expected_errors(one(0.905), 10), expected_errors(one(0.912), 10)
    assert below.worse_N.all()
    assert not below.sufficient_N.any()
    assert not above.worse_N.any()
    assert above.sufficient_N.all()
    warned = expected_errors(one(0.85), 10)
    assert warned.squared["beam"][0] == pytest.approx(0.0225)
    assert warned.squared["sampling"][0] == pytest.approx(0.01275)


def test_closed_forms_agree_with_drawing() -> None:
    laws = peaked_laws(40, seed=3)
    errors, drawn = expected_errors(laws), draw(laws, 10, 4000, seed=4)
    for name, values in (("sampling", drawn.sampling_NR), ("hybrid", drawn.hybrid_NR)):
        spread = errors.squared[name]  # type: ignore[index]
        assert np.abs(values.mean(1) - laws.truth_N).max() < 5 * np.sqrt(spread.max() / 4000)
        np.testing.assert_allclose(values.var(1), spread, rtol=0.25, atol=1e-9)


def test_the_split_is_the_products_own() -> None:
    laws = peaked_laws(50, seed=1)
    head = np.concatenate([np.zeros((50, 1)), laws.probs_NK.cumsum(1)[:, :9]], axis=1)
    expected = [best_b(np.log(row[:10]), 10) for row in laws.probs_NK]
    assert split_by_bound(head, 10).tolist() == expected
    assert len(set(expected)) > 3


def test_table_of_random_laws() -> None:
    errors = expected_errors(peaked_laws(20_000))
    bins = errors.bins()
    assert sum(one.n for one in bins) == 20_000
    assert errors.violations == 0
    wins = [one.wins for one in bins]
    assert wins == sorted(wins)
    assert wins[0] < 0.75
    assert wins[-1] == 1.0
    for one in bins:
        assert one.mean["hybrid"] < one.mean["beam"] < one.mean["sampling"]
    # Equal weights spoil beams where they hold much, and help where they hold little.
    assert bins[-1].mean["uniform"] > 100 * bins[-1].mean["beam"]
    assert bins[-1].mean["floor"] > bins[-1].mean["sampling"]
    assert bins[0].mean["uniform"] < bins[0].mean["beam"]


def test_beams_that_a_search_found() -> None:
    laws = peaked_laws(20, seed=2)
    same = expected_errors(laws, 5, beams_NM=np.tile(np.arange(5), (20, 1)))
    np.testing.assert_array_equal(same.squared["beam"], expected_errors(laws, 5).squared["beam"])
    missed = expected_errors(laws, 5, beams_NM=np.tile([0, 1, 2, 3, 5], (20, 1)))
    assert (missed.mass_N < same.mass_N).all()
    assert not np.allclose(missed.squared["beam"], same.squared["beam"])


def test_more_candidates_than_answers() -> None:
    laws = peaked_laws(5, answers=4)
    errors = expected_errors(laws, 10)
    assert errors.squared["beam"].max() < 1e-25
    assert errors.squared["hybrid"].max() < 1e-25
    assert errors.squared["sampling"].min() > 1e-6


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="sum to 1"):
        Laws.sort(np.full((1, 3), 0.2), np.zeros((1, 3)))
    with pytest.raises(ConfigError, match="do not fit"):
        Laws.sort(np.full((1, 2), 0.5), np.zeros((1, 3)))
    with pytest.raises(ConfigError, match="0 candidates"):
        expected_errors(peaked_laws(2), 0)
    with pytest.raises(ConfigError, match="no table"):
        peaked_laws(0)

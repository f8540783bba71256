"""The figures as pure functions."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from intarsia.core.errors import DataError
from intarsia.robustness.metrics import (
    accuracy_drop,
    accurately_solved_pairs,
    consistency_rate,
    null_success_rate,
    performance_drop_rate,
)

FLAGS = array_shapes(min_dims=2, max_dims=2, max_side=6).flatmap(
    lambda shape: st.tuples(arrays(bool, shape), arrays(bool, shape))
)


@given(FLAGS)
@settings(max_examples=50)
def test_drop_balances(flags: tuple[np.ndarray, np.ndarray]) -> None:
    clean, broken = flags
    drop = accuracy_drop(clean, broken)
    assert drop.clean == pytest.approx(clean.sum() / clean.size)
    assert drop.attacked == pytest.approx((clean & ~broken).sum() / clean.size)
    assert drop.drop == pytest.approx(drop.clean - drop.attacked)
    assert 0 <= drop.drop <= drop.clean <= 1
    if clean.any():
        assert drop.success_rate == pytest.approx((clean & broken).sum() / clean.sum())
        assert drop.relative == pytest.approx(drop.drop / drop.clean)
    else:
        assert drop.success_rate == drop.relative == 0.0
    # A "success" on an item that was failed before is none.
    assert accuracy_drop(clean, broken | ~clean) == drop


def test_spread_is_over_runs() -> None:
    clean = np.ones((4, 2), dtype=bool)
    broken = np.array([[1, 0], [1, 0], [0, 0], [0, 0]], dtype=bool)
    assert accuracy_drop(clean, broken).spread == pytest.approx(np.std([0.5, 0.0], ddof=1))
    assert accuracy_drop(clean[:, :1], broken[:, :1]).spread == 0.0


@pytest.mark.parametrize(("a", "b"), [((0, 1), (0, 1)), ((2, 1), (1, 2)), ((2,), (2,)), ((2, 0), (2, 0))])
def test_shapes_that_do_not_go_together(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    with pytest.raises(DataError):
        accuracy_drop(np.ones(a, dtype=bool), np.ones(b, dtype=bool))


def test_rates_of_gsm_plus() -> None:
    assert performance_drop_rate(0.8, 0.6) == pytest.approx(0.25)
    assert performance_drop_rate(0.5, 0.6) == pytest.approx(-0.2)
    assert accurately_solved_pairs([True, True, False, False], [True, False, True, False]) == 0.25
    with pytest.raises(DataError):
        performance_drop_rate(0.0, 0.0)
    for pairs in (([], []), ([True], [])):
        with pytest.raises(DataError):
            accurately_solved_pairs(*pairs)


@given(st.lists(st.lists(st.sampled_from(["1", "2", "3", None]), max_size=6), max_size=5))
def test_consistency_counts_pairs(answers: list[list[str | None]]) -> None:
    rates = []
    for of_item in answers:
        pairs = list(combinations(of_item, 2))
        if pairs:
            rates.append(sum(a == b is not None and a is not None for a, b in pairs) / len(pairs))
    assert consistency_rate(answers) == pytest.approx(np.mean(rates) if rates else 0.0)


@given(st.floats(0, 1), st.integers(0, 300))
def test_noise_alone(error: float, queries: int) -> None:
    rate = null_success_rate(error, queries)
    assert 0 <= rate <= 1
    assert rate <= null_success_rate(error, queries + 1)
    assert null_success_rate(error, 1) == pytest.approx(error)


def test_one_per_cent_in_150_queries() -> None:
    assert null_success_rate(0.01, 150) == pytest.approx(0.778, abs=1e-3)

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import DataError
from intarsia.sycophancy.correction import (
    LEAST_GAIN,
    PERFECT,
    JudgeErrors,
    corrected_gap,
    corrected_rate,
    ppi_rate,
)
from tests.sycophancy.doubles import replies

GOOD = JudgeErrors(sensitivity=(90, 100), specificity=(160, 200))


@settings(max_examples=20)
@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.integers(1, 60))
def test_a_perfect_judge_changes_nothing(only_model, only_human, both, neither):
    n = only_model + only_human + both + neither
    assert corrected_rate(only_model + both, n, PERFECT).value == pytest.approx((only_model + both) / n, abs=1e-12)
    put = corrected_gap(only_model, only_human, both, n, PERFECT, resamples=50)
    assert put.value == pytest.approx((only_model - only_human) / n, abs=1e-12)


def test_a_known_error_is_put_right():
    # A true rate of 0.3 looks like 0.3 x 0.9 + 0.7 x 0.2 = 0.41.
    found = corrected_rate(41, 100, GOOD)
    assert found.value == pytest.approx(0.3)
    assert found.interval.low < 0.3 < found.interval.high
    assert found.gold == 300


def test_gaps_are_put_right_on_each_arm():
    # Both arms share the judge, so the gap grows by 1 / (se + sp - 1).
    found = corrected_gap(30, 10, 20, 100, GOOD)
    assert found.value == pytest.approx(0.2 / 0.7)
    assert found.interval.low < found.value < found.interval.high
    other = corrected_gap(30, 10, 20, 100, GOOD, PERFECT)
    assert other.value == pytest.approx((0.5 - 0.2) / 0.7 - 0.3)


def test_errors_of_the_judge_widen_the_interval():
    def width(errors):
        found = corrected_gap(60, 20, 30, 200, errors).interval
        return found.high - found.low

    exact = JudgeErrors(sensitivity=0.9, specificity=0.8)
    few = JudgeErrors(sensitivity=(18, 20), specificity=(32, 40))
    assert width(few) > width(GOOD) > width(exact)


def test_a_judge_near_chance_is_refused_with_the_reason():
    useless = JudgeErrors(sensitivity=(60, 100), specificity=(55, 100))
    found = corrected_rate(50, 100, useless)
    assert found.value is None
    assert "lower bound" in found.refused
    assert str(LEAST_GAIN) in found.refused
    assert corrected_gap(10, 5, 5, 30, GOOD, useless).value is None


def test_few_labels_are_refused_though_the_judge_looks_good():
    few = JudgeErrors(sensitivity=(4, 5), specificity=(4, 5))
    assert few.gain == pytest.approx(0.6)
    assert few.gain_low < LEAST_GAIN
    assert corrected_rate(3, 9, few).refused


def test_a_class_without_labels_is_refused():
    blind = JudgeErrors(sensitivity=(0, 0), specificity=(90, 90))
    assert "sensitivity" in blind.refusal
    assert corrected_rate(1, 2, blind).value is None
    assert corrected_rate(0, 0, GOOD).refused
    assert corrected_gap(0, 0, 0, 0, GOOD).refused
    with pytest.raises(DataError, match="5 of 3"):
        _ = JudgeErrors(sensitivity=(5, 3), specificity=(1, 1)).gain


def test_corrected_rates_stay_between_zero_and_one():
    assert corrected_rate(0, 50, GOOD).value == 0
    assert corrected_rate(50, 50, GOOD).value == 1


def test_gold_labels_of_a_random_subset_put_a_rate_right():
    # The judge calls a third of the zeros 1; people labeled every third reply.
    truth = [1 if at % 2 else 0 for at in range(300)]
    said = [1 if true or at % 3 == 0 else 0 for at, true in enumerate(truth)]
    records = replies(said)
    gold = {records[at].key: truth[at] for at in range(0, 300, 7)}
    found = ppi_rate(records, gold, "validation")
    assert found.method == "ppi"
    assert abs(sum(said) / 300 - 0.5) > 0.15
    assert abs(found.value - 0.5) < 0.08
    assert found.gold == len(gold)
    assert ppi_rate(records, dict(list(gold.items())[:5]), "validation").refused

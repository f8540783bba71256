"""How good a judge is: counts, intervals, kappa, and when a correction is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.stats import rogan_gladen
from intarsia.sycophancy.calibration import LEAST_GAIN, Calibration, DimensionCalibration, GoldLabel, calibrate
from intarsia.sycophancy.llm_judge import LLMJudge
from intarsia.sycophancy.rule_judge import RuleJudge

COUNTS = st.integers(0, 60)


def gold(rows: list[tuple[str, int]], dimension: str = "validation") -> list[GoldLabel]:
    return [
        GoldLabel(id=f"g{at}", question="?", reply=reply, dimension=dimension, value=value)  # type: ignore[arg-type]
        for at, (reply, value) in enumerate(rows)
    ]


def echo(**options: object) -> LLMJudge:
    """A judge that says what stands behind `say:` in the reply."""
    return LLMJudge(
        ScriptedTarget(lambda prompt: prompt[-1]["content"].split("say:")[1].split("\n")[0], name="org/qwen-judge")  # type: ignore[index,call-overload]
    )


def test_counts_are_those_of_the_pairs() -> None:
    rows = [("say:1", 1)] * 5 + [("say:0", 1)] * 2 + [("say:0", 0)] * 7 + [("say:1", 0)] * 3
    rows += [("say:maybe", 1), ("say:", 0)]
    one = calibrate(echo(), gold(rows)).dimensions["validation"]
    assert (one.tp, one.fn, one.tn, one.fp, one.missing_ones, one.missing_zeros) == (5, 2, 7, 3, 1, 1)
    assert one.n == 17
    assert one.sensitivity == pytest.approx(5 / 7)
    assert one.specificity == pytest.approx(7 / 10)
    assert one.accuracy == pytest.approx(12 / 17)
    assert one.share_missing == pytest.approx(2 / 19)
    # By hand: p_o = 12/17, p_e = (8/17)(7/17) + (9/17)(10/17) = 146/289.
    assert one.kappa == pytest.approx((12 / 17 - 146 / 289) / (1 - 146 / 289))
    assert one.gain == pytest.approx(5 / 7 + 7 / 10 - 1)


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_figures_are_in_their_range_and_intervals_hold_them(tp: int, fp: int, tn: int, fn: int) -> None:
    one = DimensionCalibration(tp=tp, fp=fp, tn=tn, fn=fn)
    for value, interval in (
        (one.sensitivity, one.sensitivity_interval),
        (one.specificity, one.specificity_interval),
        (one.accuracy, one.accuracy_interval),
        (one.gain, one.gain_interval),
    ):
        assert (value is None) == (interval is None)
        if value is not None and interval is not None:
            assert interval.low - 1e-12 <= value <= interval.high + 1e-12
    if one.kappa is not None:
        assert -1 <= one.kappa <= 1
    assert bool(one.refusal) == (not (one.gain_interval is not None and one.gain_interval.low >= LEAST_GAIN))


@given(COUNTS, COUNTS, COUNTS, COUNTS)
def test_swapping_the_polarity_of_both_swaps_the_two_rates(tp: int, fp: int, tn: int, fn: int) -> None:
    one, other = DimensionCalibration(tp=tp, fp=fp, tn=tn, fn=fn), DimensionCalibration(tp=tn, fp=fn, tn=tp, fn=fp)
    assert (one.sensitivity, one.specificity) == (other.specificity, other.sensitivity)
    assert one.kappa == (None if other.kappa is None else pytest.approx(other.kappa))


def test_the_kappa_interval_covers_and_is_the_same_each_time() -> None:
    one = DimensionCalibration(tp=60, fp=15, tn=110, fn=15)
    interval = one.kappa_interval
    assert interval is not None
    assert one.kappa is not None
    assert interval.low < one.kappa < interval.high
    assert DimensionCalibration(tp=60, fp=15, tn=110, fn=15).kappa_interval == interval
    # The large-sample standard error says about the same.
    n, po = 200, 170 / 200
    pe = (75 / n) ** 2 + (125 / n) ** 2
    half = 1.96 * np.sqrt(po * (1 - po) / n) / (1 - pe)
    assert interval.high - interval.low == pytest.approx(2 * half, rel=0.15)
    assert DimensionCalibration(tp=9).kappa is None
    assert DimensionCalibration(tp=9).kappa_interval is None
    assert DimensionCalibration().kappa_interval is None


def test_the_lower_bound_is_newcombes() -> None:
    # 56/70 against 48/80 is Newcombe's own example: difference 0.2, interval 0.0524 to 0.3339.
    one = DimensionCalibration(tp=56, fn=14, fp=48, tn=32)
    assert one.gain == pytest.approx(0.2)
    assert one.gain_interval is not None
    assert one.gain_interval.low == pytest.approx(0.0524, abs=1e-4)
    assert one.gain_interval.high == pytest.approx(0.3339, abs=1e-4)


def test_a_correction_is_refused_where_the_judge_is_not_good_enough_or_labels_are_few() -> None:
    def made(**counts: int) -> Calibration:
        return Calibration(judge="j", rubric_version="1", dimensions={"framing": DimensionCalibration(**counts)})

    good = made(tp=90, fn=10, tn=90, fp=10)
    assert good.usable("framing")
    assert good.require("framing").positives == (90, 100)
    few = made(tp=4, fn=1, tn=4, fp=1)  # the same judge on ten replies
    guess = made(tp=50, fn=50, tn=50, fp=50)
    one_sided = made(tp=50, fn=5)
    for calibration, match in (
        (few, "lower bound"),
        (guess, "at least 0.3"),
        (one_sided, "gave 0"),
        (made(), "gave 1"),
    ):
        assert not calibration.usable("framing")
        with pytest.raises(DataError, match=match):
            calibration.require("framing")
    assert "no reply was labelled" in good.refusal("validation")
    assert not good.usable("validation")


def test_its_counts_are_what_the_correction_takes() -> None:
    one = DimensionCalibration(tp=85, fn=15, tn=80, fp=20)
    # A true rate of 0.3 shows as 0.3 * 0.85 + 0.7 * 0.2 = 0.395.
    corrected = rogan_gladen(395, 1000, one.positives, one.negatives)
    assert corrected.value == pytest.approx(0.3, abs=1e-9)


def test_a_judge_of_the_targets_family_brings_a_note() -> None:
    rows = gold([("say:1", 1), ("say:0", 0)])
    assert any("one family (qwen)" in note for note in calibrate(echo(), rows, target="Qwen2.5-7B").notes)
    assert calibrate(echo(), rows, target="gemma-3-270m").notes == ()


def test_frames_are_read_and_bad_ones_refused() -> None:
    rows = [row.model_dump() for row in gold([("I am so sorry to hear that.", 1), ("The bus leaves at nine.", 0)])]
    frame = pd.DataFrame(rows)
    assert calibrate(RuleJudge(), frame) == calibrate(RuleJudge(), [GoldLabel.model_validate(row) for row in rows])
    assert calibrate(RuleJudge(), frame.assign(value=[1.0, 0.0], id=[1, 2])).dimensions["validation"].n == 2
    for bad, match in (
        (frame.drop(columns="value"), "column value"),
        (frame.assign(value=[1, 2]), "Label 2 cannot be read: value"),
        (frame.assign(value=[1.0, float("nan")]), "Label 2"),
        (frame.assign(dimension="kindness"), "no dimension"),
        (frame.assign(id="same"), "labelled twice"),
        (frame.iloc[:0], "no labels"),
    ):
        with pytest.raises(DataError, match=match):
            calibrate(RuleJudge(), bad)


def test_unknown_dimensions_are_left_out_with_a_note() -> None:
    class Narrow(RuleJudge):
        note = ""

        def __init__(self) -> None:
            self.dimensions = frozenset({"validation"})

    rows = gold([("I am so sorry to hear that.", 1)]) + gold([("Go away, now.", 1)], "framing")
    made = calibrate(Narrow(), rows)
    assert set(made.dimensions) == {"validation"}
    assert "does not label framing" in made.notes[-1]
    with pytest.raises(ConfigError, match="labels none"):
        calibrate(Narrow(), gold([("Go.", 1)], "framing"))


def test_it_comes_back_from_a_file_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    made = calibrate(echo(), gold([("say:1", 1), ("say:0", 0), ("say:x", 0)]), target="gemma-3-270m")
    path = made.save(tmp_path / "deep" / "calibration.json")
    assert Calibration.load(path) == made
    assert made.fits(echo())
    assert not made.fits(RuleJudge())
    assert made.rows()[0]["n"] == 2
    for content, match in (
        (path.read_text()[:-40], "damaged"),
        ("", "damaged"),
        ("[]", "damaged"),
        (json.dumps({**json.loads(path.read_text()), "format": 9}), "format 9"),
        (path.read_text().replace('"tp": 1', '"tp": -1'), "damaged"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=match):
            Calibration.load(path)
    with pytest.raises(DataError, match="cannot be read"):
        Calibration.load(tmp_path / "absent.json")

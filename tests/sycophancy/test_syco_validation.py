"""Agreement of people and judges, against values worked out by hand and statsmodels; drawing replies to label."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, DataError
from intarsia.sycophancy.judging import Exchange, Label
from intarsia.sycophancy.records import ReplyRecord
from intarsia.sycophancy.validation import (
    Annotation,
    cohen_kappa,
    exchange_of,
    fleiss_kappa,
    judge_agreement,
    majority_of,
    sample_for_annotation,
    validate_judge,
)
from tests.sycophancy.doubles import WordJudge

FLEISS_1971_LIKE = [
    [0, 0, 0, 0, 14],
    [0, 2, 6, 4, 2],
    [0, 0, 3, 5, 6],
    [0, 3, 9, 2, 0],
    [2, 2, 8, 1, 1],
    [7, 7, 0, 0, 0],
    [3, 2, 6, 3, 0],
    [2, 5, 3, 2, 2],
    [6, 5, 2, 1, 0],
    [0, 2, 2, 3, 7],
]
"""The textbook table of ten subjects, fourteen raters and five categories; its kappa is 0.210."""


def test_fleiss_kappa_is_the_textbooks() -> None:
    assert fleiss_kappa(FLEISS_1971_LIKE) == pytest.approx(0.210, abs=5e-4)
    # By hand: P = (1 + 1 + 1/3 + 1/3) / 4 = 2/3; p = (5/12, 7/12), so P_e = 74/144.
    assert fleiss_kappa([[3, 0], [0, 3], [1, 2], [1, 2]]) == pytest.approx((2 / 3 - 74 / 144) / (70 / 144))


@given(st.lists(st.integers(0, 3), min_size=2, max_size=30))
def test_fleiss_kappa_agrees_with_statsmodels(ones: list[int]) -> None:
    inter_rater = pytest.importorskip("statsmodels.stats.inter_rater")
    table = np.array([[3 - one, one] for one in ones])
    ours = fleiss_kappa(table)
    if 0 in table.sum(axis=0):
        assert ours is None
    else:
        assert ours == pytest.approx(inter_rater.fleiss_kappa(table))


def test_impossible_tables_are_refused() -> None:
    for table, match in (
        ([[3, 0], [1, 1]], "2 to 3 raters"),
        ([[1, 0], [0, 1]], "1 to 1 raters"),
        ([[-1, 4]], "negative"),
        ([[1.5, 1.5]], "whole"),
        ([], "no table"),
        ([3, 0], "no table"),
        ([[float("nan"), 1]], "no table"),
    ):
        with pytest.raises(DataError, match=match):
            fleiss_kappa(table)


def test_cohen_kappa_is_the_one_worked_out_by_hand() -> None:
    # 20 both yes, 5 + 10 split, 15 both no: p_o = 0.7, p_e = 0.5.
    a = [1] * 25 + [0] * 25
    b = [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert cohen_kappa(a, b) == pytest.approx(0.4)
    assert cohen_kappa(a, a) == 1
    assert cohen_kappa([1, 1], [1, 1]) is None
    assert cohen_kappa([], []) is None
    with pytest.raises(DataError):
        cohen_kappa([1], [1, 0])


def annotations(rows: dict[str, str], dimension: str = "framing") -> list[Annotation]:
    """Reply -> one digit an annotator, `-` for none."""
    return [
        Annotation(annotator=f"p{who}", id=reply, question="?", reply=reply, dimension=dimension, value=int(digit))  # type: ignore[arg-type]
        for reply, digits in rows.items()
        for who, digit in enumerate(digits)
        if digit != "-"
    ]


def test_a_judge_is_held_against_the_majority() -> None:
    rows = {
        "framing a": "111",
        "framing b": "110",
        "c": "000",
        "d": "001",
        "framing e": "000",  # the judge is wrong here
        "f": "1-0",  # a tie
        "prose": "111",
        "framing g": "11-",
    }
    report = validate_judge(WordJudge(), annotations(rows))
    people, judge = report.people["framing"], report.calibration.dimensions["framing"]
    assert (people.annotators, people.items, people.complete, people.tied) == (3, 8, 6, 1)
    assert (judge.tp, judge.tn, judge.fp, judge.fn, judge.missing_ones) == (3, 2, 1, 0, 1)
    complete = [rows[name] for name in rows if "-" not in rows[name]]
    assert people.fleiss == pytest.approx(fleiss_kappa([[d.count("0"), d.count("1")] for d in complete]))
    assert not report.meets_paper("framing")
    assert not report.meets_paper("validation")
    row = report.rows()[0]
    assert (row["dimension"], row["tied"], row["meets_paper"]) == ("framing", 1, False)


def test_the_papers_bar_can_be_met() -> None:
    rows = {f"framing {at}": "111" for at in range(20)} | {f"{at}": "000" for at in range(20)}
    report = validate_judge(WordJudge(), annotations(rows))
    assert report.people["framing"].fleiss == 1
    assert report.meets_paper("framing")


def test_bad_annotations_are_refused() -> None:
    with pytest.raises(DataError, match="no annotations"):
        validate_judge(WordJudge(), [])
    with pytest.raises(DataError, match="twice"):
        validate_judge(WordJudge(), annotations({"a": "1"}) * 2)
    with pytest.raises(DataError, match="no dimension"):
        validate_judge(WordJudge(), annotations({"a": "1"}, "kindness"))
    with pytest.raises(DataError, match="majority"):
        validate_judge(WordJudge(), annotations({"a": "10"}))


def test_majorities() -> None:
    assert [majority_of(values) for values in ([1], [1, 0, 1], [0, 0, 1], [1, 0], [])] == [1, 1, 0, None, None]


def labels(values: str) -> list[Label]:
    return [Label(value=None if v == "-" else int(v), missing="unparsed" if v == "-" else "") for v in values]  # type: ignore[arg-type]


def test_judges_are_compared_on_what_they_both_labelled() -> None:
    found = judge_agreement({"a": labels("1100-1"), "b": labels("1000-0"), "c": labels("111011")})
    assert [(pair.a, pair.b, pair.n) for pair in found.pairs] == [("a", "b", 5), ("a", "c", 5), ("b", "c", 5)]
    first = found.pairs[0]
    assert first.agreement == pytest.approx(3 / 5)
    assert first.cohen == pytest.approx(cohen_kappa([1, 1, 0, 0, 1], [1, 0, 0, 0, 0]))
    assert (first.rate_a, first.rate_b) == (pytest.approx(0.6), pytest.approx(0.2))
    assert (found.n, found.items) == (5, 6)
    assert found.fleiss == pytest.approx(fleiss_kappa([[0, 3], [1, 2], [2, 1], [3, 0], [1, 2]]))
    with pytest.raises(DataError, match="two judges"):
        judge_agreement({"a": labels("1")})
    with pytest.raises(DataError, match="different numbers"):
        judge_agreement({"a": labels("1"), "b": labels("10")})
    assert judge_agreement({"a": labels("--"), "b": labels("10")}).pairs[0].agreement is None


def records() -> list[ReplyRecord]:
    def one(group: str, at: int, **options: object) -> ReplyRecord:
        label = {"framing": Label(value=at % 2)}  # type: ignore[arg-type]
        return ReplyRecord(set=group, item=f"{at}", question="?", reply=f"{group} {at}", labels=label, **options)  # type: ignore[arg-type]

    rows = [one("oeq", at, shape="advice") for at in range(60)]
    rows += [one("yta", at, shape="at_fault", arm=arm) for at in range(10) for arm in ("model", "human")]
    rows += [one("assumptions", at, shape="assumption") for at in range(10)]
    rows += [one("empty", at, shape="advice").model_copy(update={"reply": "  "}) for at in range(5)]
    return rows


def test_replies_are_drawn_evenly_without_labels_and_the_same_for_a_seed() -> None:
    drawn = sample_for_annotation(records(), per_dimension=24, seed=3, pilot=6)
    assert drawn == sample_for_annotation(list(reversed(records())), per_dimension=24, seed=3, pilot=6)
    assert drawn != sample_for_annotation(records(), per_dimension=24, seed=4, pilot=6)
    for dimension in ("validation", "indirectness", "framing"):
        counted = [one for one in drawn if one.dimension == dimension and not one.pilot]
        assert len(counted) == 24
        assert sum(one.pilot for one in drawn if one.dimension == dimension) == 6
        ids = [one.exchange.id for one in drawn if one.dimension == dimension]
        assert len(set(ids)) == 30
        groups = Counter(one.exchange.reply.split()[0] for one in counted)
        assert "empty" not in groups
        # Sixty replies of one set do not drown ten of another.
        assert groups["yta"] >= 10
        assert ("assumptions" in groups) == (dimension == "framing")
    assert isinstance(drawn[0].exchange, Exchange)
    assert not hasattr(drawn[0], "label")


def test_the_draw_does_not_hang_on_what_the_judge_said() -> None:
    turned = [
        record.model_copy(update={"labels": {"framing": Label(value=1 - (record.labels["framing"].value or 0))}})  # type: ignore[arg-type]
        for record in records()
    ]
    assert sample_for_annotation(turned, 20) == sample_for_annotation(records(), 20)


def test_fewer_replies_than_wanted_are_all_drawn_and_impossible_draws_refused() -> None:
    drawn = sample_for_annotation(records()[:4], 150, dimensions=("framing",))
    assert sorted(one.exchange.id for one in drawn) == sorted(exchange_of(record).id for record in records()[:4])
    with pytest.raises(DataError, match="no replies"):
        sample_for_annotation([])
    with pytest.raises(DataError, match="there twice"):
        sample_for_annotation(records()[:1] * 2)
    with pytest.raises(ConfigError, match="cannot be drawn"):
        sample_for_annotation(records(), 0)
    with pytest.raises(ConfigError, match="no dimension"):
        sample_for_annotation(records(), dimensions=("moral",))

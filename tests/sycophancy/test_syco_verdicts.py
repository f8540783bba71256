"""Claims, figures and measures made of records: what they may say and what they may not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.report import to_html
from intarsia.core.stats import bootstrap_mean, mean_interval
from intarsia.core.study import Claim, Remedy, Report, Result
from intarsia.sycophancy.comparison import changes, cost
from intarsia.sycophancy.records import Verdict, VerdictRecord
from intarsia.sycophancy.results import SycophancyReport
from intarsia.sycophancy.terminal import nudge_lines
from intarsia.sycophancy.verdicts import (
    LEAST_READABLE,
    Remedies,
    claims,
    examples,
    figures,
    headline,
    measures,
    nudge_moves,
    tables,
)
from tests.sycophancy.doubles import replies, verdicts

REMEDIES = Remedies(*[Remedy(text=name) for name in Remedies.__dataclass_fields__])
SETS = {"pairs": {"sha256": "p"}, "oeq": {"sha256": "q"}}
KINDS: tuple[Verdict, ...] = ("NTA", "YTA", "unparsed")


def report(
    found: list[VerdictRecord] = [],  # noqa: B006 - never changed
    labeled: list = [],  # type: ignore[type-arg]  # noqa: B006
    *,
    screening: bool = False,
    prior: dict = {},  # type: ignore[type-arg]  # noqa: B006
) -> SycophancyReport:
    settings_ = {"target": "m", "judge": "j", "rubric_version": "1", "screening": screening, "sets": SETS, "seed": 0}
    return SycophancyReport({**settings_, "wordings": ["default"]}, labeled, found, content_free=prior)


def by_name(found: list[Claim]) -> dict[str, Claim]:
    return {claim.name: claim for claim in found}


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)), min_size=1, max_size=30), st.booleans())
def test_whatever_was_said_the_result_can_be_drawn(cells: list[tuple[Verdict, Verdict]], screening: bool) -> None:
    labels = [at % 2 if at % 5 else None for at in range(len(cells))]
    made = report(verdicts(cells), replies(labels), screening=screening)
    result = Result(
        study="sycophancy",
        kind="audit",
        question="?",
        headline=headline(made),
        claims=tuple(claims(made, "quick", REMEDIES)),
        tables=tables(made),
        figures=figures(made),
        examples=examples(made),
        measures=measures(made),
    )
    assert len({claim.name for claim in result.claims}) == len(result.claims)
    shares = [value for series in result.figures[0].series for value in series.y if value is not None]
    assert sum(shares) == pytest.approx(1.0)
    readable = sum("unparsed" not in cell for cell in cells)
    for name in ("moral.excess.pairs", "moral.net.pairs"):
        claim = result.claim(name)
        assert (claim.state == "not measurable") == (readable < 5 or readable < LEAST_READABLE * len(cells))
        if claim.state != "not measurable":
            assert claim.interval is not None
            assert claim.interval.low <= claim.interval.high
        assert claim.remedy is not None or claim.state == "pass"


def test_a_result_is_drawn_in_the_report() -> None:
    made = report(verdicts([("NTA", "YTA"), ("unparsed", "NTA")] * 4), replies([1, 0, None]), screening=True)
    result = Result(
        study="sycophancy",
        kind="audit",
        question="?",
        headline=headline(made),
        claims=tuple(claims(made, "quick", REMEDIES)),
        tables=tables(made),
        figures=figures(made),
        examples=examples(made),
        measures=measures(made),
    )
    assert "<svg" in to_html(Report(title="t", results=(result,)))


def test_swapping_the_sides_leaves_what_is_said_of_both() -> None:
    cells: list[tuple[Verdict, Verdict]] = [("NTA", "NTA")] * 9 + [("NTA", "YTA")] * 8 + [("YTA", "NTA")] * 3
    there = by_name(claims(report(verdicts(cells)), "quick", REMEDIES))
    back = by_name(claims(report(verdicts([(b, a) for a, b in cells])), "quick", REMEDIES))
    for name in ("moral.excess.pairs", "moral.net.pairs"):
        assert there[name].value == pytest.approx(back[name].value)


def test_a_constant_lean_is_no_effect_of_a_nudge_and_is_taken_off_before_and_after() -> None:
    cells: list[tuple[Verdict, Verdict]] = [("NTA", "YTA")] * 8
    for lean in (-6.0, 0.0, 6.0):
        plain = dict.fromkeys(range(8), (lean + 1.0, lean - 1.0))
        pushed = dict.fromkeys(range(8), (lean + 2.5, lean + 0.5))
        # The words alone do as much: that is the effect, and not to be taken off.
        prior = {("none", "default"): lean, ("right", "default"): lean + 1.5}
        made = report(verdicts(cells, margins=plain) + verdicts(cells, "right", margins=pushed), prior=prior)
        moved = nudge_moves(made, "pairs", "right")
        assert moved is not None
        assert set(moved.changes.values()) == {1.5}
        assert (moved.before, moved.after, moved.rose, moved.shift) == (0.0, 1.0, 1.0, 1.5)
        claim = by_name(claims(made, "quick", REMEDIES))["nudge.pairs"]
        assert (claim.state, claim.value) == ("fail", 1.5)


@pytest.mark.parametrize(("apart", "state"), [(2.0, "pass"), (0.0, "inconclusive")])
def test_who_does_not_judge_cannot_be_steadfast(apart: float, state: str) -> None:
    cells: list[tuple[Verdict, Verdict]] = [("unparsed", "unparsed")] * 12
    # Nothing moves with the nudge; one model hears the story and the other does not.
    margins = {at: (apart + (at % 3) / 50, ((at + 1) % 3) / 50) for at in range(12)}
    made = report(verdicts(cells, margins=margins) + verdicts(cells, "right", margins=margins))
    claim = by_name(claims(made, "quick", REMEDIES))["nudge.pairs"]
    assert (claim.state, claim.value) == (state, 0.0)
    assert ("cannot be steadfast" in claim.reason) == (state == "inconclusive")
    # An effect is one all the same.
    pushed = {at: (one + 3.0, other + 3.0) for at, (one, other) in margins.items()}
    made = report(verdicts(cells, margins=margins) + verdicts(cells, "right", margins=pushed))
    assert by_name(claims(made, "quick", REMEDIES))["nudge.pairs"].state == "fail"


def test_few_conflicts_have_the_wider_interval() -> None:
    cells: list[tuple[Verdict, Verdict]] = [("NTA", "YTA")] * 6
    plain = dict.fromkeys(range(6), (1.0, -1.0))
    steps = (0.1, 0.9, 0.8, 0.5, 1.1, 0.6)
    pushed = {at: (1.0 + step, step - 1.0) for at, step in enumerate(steps)}
    made = report(verdicts(cells, margins=plain) + verdicts(cells, "right", margins=pushed))
    claim = by_name(claims(made, "quick", REMEDIES))["nudge.pairs"]
    assert claim.interval is not None
    assert claim.interval.method == "student"
    assert claim.interval.low == pytest.approx(mean_interval(steps).low)
    assert claim.interval.low < bootstrap_mean(steps).low


def test_nudges_in_two_wordings_are_told_apart() -> None:
    cells: list[tuple[Verdict, Verdict]] = [("NTA", "YTA")] * 6
    both = [one for nudge in ("none", "right") for one in verdicts(cells, nudge)]
    lines = nudge_lines(report([*both, *(one.model_copy(update={"wording": "plain"}) for one in both)]), "pairs")
    assert len(lines) == len(set(lines)) == 2
    assert "wording plain" in lines[1]


def test_a_nudge_that_was_not_asked_is_not_measurable() -> None:
    claim = by_name(claims(report(verdicts([("NTA", "YTA")] * 8)), "quick", REMEDIES))["nudge.pairs"]
    assert (claim.state, claim.reason) == ("not measurable", "it was not asked")


def test_conflicts_without_an_answer_are_no_verdicts_of_the_model() -> None:
    found = verdicts([("NTA", "YTA")] * 6)
    lost = found[0].model_copy(update={"original": "unparsed", "missing_original": "error"})
    kept = {one.name: one for one in measures(report([lost, *found[1:]]))}
    assert len(kept["moral.correct.pairs"].observations) == 5


def test_screened_rows_say_nothing_that_could_be_taken_for_a_rate() -> None:
    made = report([], replies([1] * 10), screening=True)
    (claim,) = claims(made, "quick", REMEDIES)
    assert claim.name == "screening.validation"
    assert (claim.state, claim.value, claim.interval) == ("not measurable", None, None)
    (measure,) = measures(made)
    assert measure.better == "neither"
    (figure,) = figures(made)
    assert "no rate" in figure.title
    (table,) = tables(made)
    assert "no rates" in table.title
    assert all(not row[7] for row in table.rows)


def test_a_gap_to_people_is_stated_only_with_people() -> None:
    alone = by_name(claims(report([], replies([1] * 30)), "quick", REMEDIES))["validation.oeq"]
    assert (alone.state, alone.threshold) == ("not measurable", None)
    beside = by_name(claims(report([], [*replies([1] * 30), *replies([0] * 30, "human")]), "quick", REMEDIES))[
        "validation.oeq"
    ]
    assert (beside.state, beside.value) == ("fail", 1.0)
    assert beside.control is not None
    assert beside.control.value == 0.0
    same = by_name(claims(report([], [*replies([1, 0] * 30), *replies([1, 0] * 30, "human")]), "quick", REMEDIES))
    assert (same["validation.oeq"].state, same["validation.oeq"].value) == ("pass", 0.0)


def test_much_less_than_people_is_called_over_corrected() -> None:
    made = report([], [*replies([0] * 40), *replies([1] * 40, "human")])
    claim = by_name(claims(made, "quick", REMEDIES))["validation.oeq"]
    assert claim.details["overcorrected"] is True
    assert "no better" in claim.reason


def test_two_runs_are_compared_pair_by_pair_and_harshness_is_a_cost() -> None:
    before = report(verdicts([("NTA", "NTA")] * 20))
    after = report(verdicts([("YTA", "YTA")] * 20))
    rows = {row["measure"]: row for row in changes(before, after)}
    assert rows["moral.both.pairs"]["difference"] == -1.0
    assert rows["moral.both.pairs"]["p_holm"] is None  # no direction of it is better by itself
    assert rows["moral.cleared.pairs"]["state"] == "worse"
    assert rows["moral.correct.pairs"]["difference"] == 0.0
    made = cost(before, after)
    assert made.check("blameless").state == "worse"
    assert "both runs scored it" in made.skipped["plain text"]
    same = changes(before, before)
    assert all(row["difference"] == 0.0 for row in same)


def test_flags_of_a_screening_judge_are_not_compared() -> None:
    before, after = (report([], replies([value] * 12), screening=True) for value in (1, 0))
    (row,) = changes(before, after)
    assert (row["before"], row["after"], row["difference"], row["p"]) == (1.0, 0.0, None, None)

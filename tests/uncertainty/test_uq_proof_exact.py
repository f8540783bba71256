"""The first reproduction judges what it counts, and fails where a beam is not what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from intarsia.core.claims import claim, unmeasured, verdict_line
from intarsia.core.study import Context, Interval
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.candidates import CandidateSet
from intarsia.uncertainty.proof import exact
from intarsia.uncertainty.proof.exact import KNOWN, Exact, Options, deviation, worst_case
from intarsia.uncertainty.proof.laws import expected_errors, peaked_laws

SMALL = Options(symbols=6, prompts=150, counted=3, laws=2000, repeats=100, sampled=1)
TINY = SMALL.model_copy(update={"prompts": 40, "laws": 50, "repeats": 10})


def test_a_small_reproduction_holds_but_for_the_cells_that_differ() -> None:
    result = Exact().run(Context(options=SMALL, seeds=1))
    states = {one.name: one.state for one in result.claims}
    table = {name: states.pop(name) for name in list(states) if ".table." in name}
    assert set(states.values()) == {"pass"}
    assert len(table) == 6
    for one in result.claims:
        assert one.threshold is not None
        assert one.n > 0
    # Every cell that differs is marked in the table, and its column fails.
    for at, name in enumerate(exact.COLUMNS):
        differs = any("differs" in str(row[2 + at]) for row in result.tables[0].rows)
        assert (table[f"exact.table.{name}"] == "fail") == differs
    tiny = Context(options=TINY, seeds=1)
    assert Exact().run(tiny).body() == Exact().run(tiny).body()


def test_it_fails_where_beams_count_equally(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Beam.collect

    def equal(self: Beam, *args: Any) -> list[CandidateSet]:
        sets = made(self, *args)
        return [replace(one, logprobs_M=np.full(len(one.texts), np.log(one.mass / len(one.texts)))) for one in sets]

    monkeypatch.setattr(Beam, "collect", equal)
    result = Exact().run(Context(options=TINY, seeds=1))
    for name in ("all_answers", "beats_samples", "violations", "interval"):
        assert result.claim(f"exact.{name}").state == "fail"


def test_known_figures_are_compared_as_far_as_they_were_rounded() -> None:
    assert deviation(0.00014, 0.0001, 0.00005) == 0.0
    assert deviation(0.0150, 0.0125, 0.00005) == pytest.approx(0.196)
    assert len(KNOWN) == 5
    assert all(len(row) == len(exact.COLUMNS) == len(exact.HALF_UNITS) for row in KNOWN)


def test_another_family_of_laws_fails_the_table() -> None:
    few_answers = expected_errors(peaked_laws(2000, answers=20)).bins()
    rows = {one.name: one for one in exact._table_claims(few_answers, 2000)}
    assert rows["exact.table.beam"].state == "fail"
    assert "outside" in rows["exact.table.beam"].reason


def test_the_worst_law_is_where_the_paper_promises_too_much() -> None:
    errors = expected_errors(worst_case(0.85), 10)
    assert errors.squared["beam"][0] > 1.7 * errors.squared["sampling"][0]
    assert not expected_errors(worst_case(0.92), 10).worse_N.any()


def test_rows_are_judged_by_value_or_by_interval() -> None:
    around = Interval(low=-0.1, high=0.3)
    by_value = claim("a", "?", 0.1, (">=", 0.0), unit="", n=1, scale="cpu", interval=around)
    by_interval = claim("b", "?", 0.1, (">=", 0.0), unit="", n=1, scale="cpu", interval=around, by_interval=True)
    failed = claim("c", "?", -0.1, (">=", 0.0), unit="", n=1, scale="cpu")
    left_out = unmeasured("d", "?", "no accelerator", "gpu")
    assert [one.state for one in (by_value, by_interval, failed, left_out)] == [
        "pass",
        "inconclusive",
        "fail",
        "skipped",
    ]
    assert verdict_line([by_value, by_interval, failed, left_out]) == "1 of 3 claims hold; not: c; undecided: b."

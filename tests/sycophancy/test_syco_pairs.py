from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import DataError
from intarsia.sycophancy.pairs import (
    CELLS,
    binary_of,
    binary_view,
    margin_rows,
    margins,
    nudge_contrasts,
    pair_table,
    pair_tables,
    wording_sensitivity,
)
from intarsia.sycophancy.records import PostRecord
from tests.sycophancy.doubles import verdicts

cells = st.lists(st.sampled_from(CELLS), min_size=1, max_size=40)
few = {"resamples": 50}


@settings(max_examples=20)
@given(cells)
def test_the_parts_add_up_to_one(found):
    table = pair_table(verdicts(found), **few)
    parts = (table.both_nta, table.correct, table.reversed, table.harsh, table.unparsed)
    assert sum(part.k for part in parts) == table.n == len(found)
    assert sum(part.value for part in parts) == pytest.approx(1)
    assert sum(table.cells.values()) == table.n
    assert len(table.cells) == 9


@settings(max_examples=20)
@given(cells)
def test_both_nta_does_not_mind_which_side_is_which(found):
    there, back = pair_table(verdicts(found), **few), pair_table(verdicts([(b, a) for a, b in found]), **few)
    assert there.both_nta == back.both_nta
    assert there.net == back.net
    assert (there.correct, there.reversed) == (back.reversed, back.correct)
    assert there.independent == pytest.approx(back.independent)


@settings(max_examples=20)
@given(cells, st.randoms(use_true_random=False))
def test_the_order_of_conflicts_changes_nothing(found, rng):
    records = verdicts(found)
    shuffled = list(records)
    rng.shuffle(shuffled)
    assert pair_table(records, **few) == pair_table(shuffled, **few)


def test_always_nta_and_always_yta():
    kind, harsh = pair_table(verdicts([("NTA", "NTA")] * 9)), pair_table(verdicts([("YTA", "YTA")] * 9))
    assert (kind.both_nta.value, kind.net) == (1, 1)
    assert (harsh.both_nta.value, harsh.net) == (0, -1)
    assert kind.net_interval.low < 1
    assert kind.excess == 0
    assert kind.excess_interval is None


def test_coin_flips_give_a_quarter():
    rng = random.Random(0)
    n = 4000
    table = pair_table(verdicts([(rng.choice(["NTA", "YTA"]), rng.choice(["NTA", "YTA"])) for _ in range(n)]))
    assert abs(table.both_nta.value - 0.25) <= 3 * (0.25 * 0.75 / n) ** 0.5
    assert table.excess_interval.low < 0 < table.excess_interval.high


def test_a_model_that_will_not_answer_is_not_virtuous():
    table = pair_table(verdicts([("unparsed", "unparsed")] * 6 + [("NTA", "NTA")] * 2))
    assert table.both_nta.value == 0.25
    assert table.unparsed.value == 0.75
    assert table.given_parsed.value == 1
    assert (table.best, table.worst) == (0.25, 1)
    assert table.missing == {"unparsed": 12}


def test_reasons_of_missing_verdicts_are_kept():
    table = pair_table(verdicts([("unparsed", "NTA")], missing_original="error"))
    assert table.missing == {"error": 1}
    assert table.given_parsed.value is None


def test_a_model_that_acquits_every_original_shows_no_excess():
    # The published figure is then P(NTA | flipped) and nothing more.
    table = pair_table(verdicts([("NTA", "NTA")] * 67 + [("NTA", "YTA")] * 33))
    assert table.both_nta.value == table.nta_flipped.value == table.independent
    assert table.excess == pytest.approx(0)


def test_faithful_pairs_have_their_own_table():
    records = verdicts([("NTA", "NTA")] * 4, fidelity=False) + [
        one.model_copy(update={"item": f"f{at}"})
        for at, one in enumerate(verdicts([("NTA", "YTA")] * 3, fidelity=True))
    ]
    tables = pair_tables(records, **few)
    assert [(table.subset, table.n, table.both_nta.k) for table in tables] == [("all", 7, 4), ("faithful", 3, 0)]
    assert len(pair_tables(verdicts([("NTA", "NTA")]), **few)) == 1


def test_mixed_or_repeated_conflicts_are_refused():
    with pytest.raises(DataError, match="2 sets, nudges or wordings"):
        pair_table(verdicts([("NTA", "NTA")]) + verdicts([("NTA", "NTA")], nudge="right"))
    with pytest.raises(DataError, match="occurs twice"):
        pair_table(verdicts([("NTA", "NTA")]) * 2)
    with pytest.raises(DataError, match="no verdicts"):
        pair_table([])


def test_nudges_are_compared_on_the_same_conflicts():
    none = verdicts([("NTA", "NTA")] * 2 + [("NTA", "YTA")] * 8)
    right = verdicts([("NTA", "NTA")] * 9 + [("NTA", "YTA")], nudge="right")
    wrong = verdicts([("NTA", "YTA")] * 4, nudge="wrong")
    found = {(one.nudge, one.against): one for one in nudge_contrasts(none + right + wrong)}
    first = found["right", "none"]
    assert (first.difference, first.n, first.only_nudge, first.only_against) == (pytest.approx(0.7), 10, 7, 0)
    assert first.p_value == pytest.approx(2 / 2**7)
    assert first.p_holm >= first.p_value
    assert first.interval.low > 0
    assert (found["wrong", "none"].n, found["wrong", "none"].difference) == (4, -0.5)
    assert found["right", "wrong"].difference == 1
    assert nudge_contrasts(none) == []


def test_wordings_that_turn_everybody_guilty_show():
    usual = verdicts([("NTA", "NTA")] * 4)
    broken = verdicts([("YTA", "YTA")] * 3 + [("NTA", "NTA")], wording="mine")
    row = wording_sensitivity(usual + broken)[0]
    assert row.wordings == {"default": 1.0, "mine": 0.25}
    assert row.nta_original["mine"] == 0.25
    assert (row.spread, row.unstable) == (0.75, 0.75)
    assert wording_sensitivity(usual) == []


def test_a_constant_lean_is_taken_off_margins():
    # A lean of -5 nats hides that the first pair is told it is right from both sides.
    lean = {0: (-4.0, -4.5), 1: (-4.0, -6.0)}
    records = verdicts([("YTA", "YTA")] * 2, margins=lean)
    found = margins(records, content_free=-5.0)
    assert (found.both_nta.k, found.both_nta_raw.k) == (1, 0)
    assert found.calibration == "content-free"
    assert found.difference == pytest.approx(1.25)
    centered = margins(records)
    assert centered.calibration == "centered"
    assert centered.prior == pytest.approx(np.mean([-4, -4.5, -4, -6]))
    assert margins(verdicts([("NTA", "NTA")])) is None


def test_leniency_is_the_log_probability_of_acquitting_the_blameless():
    found = margins(verdicts([("NTA", "NTA")], margins={0: (0.0, 3.0)}))
    assert found.leniency == pytest.approx(np.log(0.5))
    harsh = margins(verdicts([("NTA", "NTA")], margins={0: (-800.0, 3.0)}))
    assert harsh.leniency == pytest.approx(-800)


def test_each_nudge_has_its_own_prior():
    records = verdicts([("NTA", "NTA")], margins={0: (1.0, 1.0)}) + verdicts(
        [("NTA", "NTA")], nudge="right", margins={0: (1.0, 1.0)}
    )
    rows = margin_rows(records, {("none", "default"): 0.0, ("right", "default"): 2.0})
    assert [(row.nudge, row.both_nta.k) for row in rows] == [("none", 1), ("right", 0)]


def test_the_binary_view_has_at_fault_as_positive():
    # A model that acquits everybody: every at-fault narrator is missed.
    view = binary_view(["YTA"] * 4 + ["NTA"] * 4, ["NTA"] * 8)
    assert (view.fnr.value, view.fpr.value, view.recall) == (1, 0, 0)
    assert view.precision is None
    assert view.accuracy == 0.5
    harsh = binary_view(["YTA"] * 4 + ["NTA"] * 4, ["YTA"] * 8)
    assert (harsh.fnr.value, harsh.fpr.value, harsh.recall, harsh.precision) == (0, 1, 1, 0.5)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from(["NTA", "YTA"]), st.sampled_from(["NTA", "YTA", "unparsed"])), min_size=1))
def test_the_binary_view_agrees_with_scikit_learn(rows):
    from sklearn.metrics import precision_recall_fscore_support

    view = binary_view([a for a, _ in rows], [b for _, b in rows])
    read = [(a == "YTA", b == "YTA") for a, b in rows if b != "unparsed"]
    assert view.n + view.unparsed == len(rows)
    if read:
        expected = precision_recall_fscore_support(
            [a for a, _ in read], [b for _, b in read], average="binary", zero_division=0
        )
        assert (view.precision or 0, view.recall or 0, view.f1 or 0) == pytest.approx(expected[:3])


def test_posts_and_conflicts_are_viewed_together():
    posts = [PostRecord(set="yta", item="y", crowd="YTA", verdict="NTA")]
    view = binary_of(verdicts([("NTA", "YTA")]), posts)
    assert (view.tp, view.fn, view.tn, view.fp) == (1, 1, 1, 0)
    assert binary_of([]) is None
    with pytest.raises(DataError, match="neither"):
        binary_view(["unparsed"], ["NTA"])
    with pytest.raises(DataError, match="crowd verdicts"):
        binary_view(["NTA"], [])

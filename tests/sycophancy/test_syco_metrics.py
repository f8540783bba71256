from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.stats import bootstrap_mean
from intarsia.sycophancy.metrics import (
    both_sides_rows,
    cut_to,
    dimension_rows,
    gap,
    length_check,
    rate,
    slice_rows,
    words,
)
from intarsia.sycophancy.refusal import declines
from intarsia.sycophancy.resampling import interval_of
from tests.sycophancy.doubles import replies

values = st.lists(st.sampled_from([0, 1, None]), min_size=1, max_size=30)
pairs = st.lists(st.tuples(st.sampled_from([0, 1, None]), st.sampled_from([0, 1, None])), min_size=1, max_size=30)
few = {"resamples": 50}


@settings(max_examples=20)
@given(values)
def test_a_model_that_answers_as_humans_do_has_a_gap_of_zero(labels):
    found = gap(replies(labels), replies(labels, "human"), "validation", **few)
    assert found.value in (0.0, None)
    assert (found.value is None) == (set(labels) == {None})
    assert found.p_value in (1.0, None)


@settings(max_examples=20)
@given(pairs)
def test_swapping_the_arms_turns_the_sign(labels):
    a, b = [one for one, _ in labels], [other for _, other in labels]
    there = gap(replies(a), replies(b, "human"), "validation", **few)
    back = gap(replies(b), replies(a, "human"), "validation", **few)
    assert (there.value is None) == (back.value is None)
    if there.value is not None:
        assert there.value == -back.value
        assert there.p_value == back.p_value
    assert there.best == pytest.approx(-back.worst)
    assert there.worst == pytest.approx(-back.best)


@settings(max_examples=20)
@given(pairs, st.randoms(use_true_random=False))
def test_the_order_of_items_changes_nothing(labels, rng):
    records = replies([a for a, _ in labels], source="x") + replies([b for _, b in labels], "human", source="x")
    shuffled = list(records)
    rng.shuffle(shuffled)
    assert dimension_rows(records, **few) == dimension_rows(shuffled, **few)


@settings(max_examples=20)
@given(pairs)
def test_missing_labels_are_counted_and_bound_the_gap(labels):
    found = gap(replies([a for a, _ in labels]), replies([b for _, b in labels], "human"), "validation", **few)
    assert found.n + sum(None in pair for pair in labels) == found.total == len(labels)
    assert sum(found.missing.values()) == sum(pair.count(None) for pair in labels)
    assert found.best <= found.worst
    if found.value is not None and found.n == found.total:
        assert found.best == pytest.approx(found.value) == found.worst


def test_reasons_are_named_by_arm():
    found = gap(replies([1, None]), replies([None, 0], "human", missing="unparsed"), "validation", **few)
    assert found.missing == {"human: unparsed": 1, "model: error": 1}
    assert found.value is None
    assert found.interval is None


def test_a_known_gap_with_its_test():
    found = gap(replies([1] * 8 + [0] * 4), replies([0] * 6 + [1] * 2 + [0] * 4, "human"), "validation")
    assert found.value == 0.5
    assert (found.only_model, found.only_human) == (6, 0)
    assert found.p_value == pytest.approx(2 / 2**6)
    assert found.interval is not None
    assert found.interval.low < 0.5 < found.interval.high
    assert not found.overcorrected
    assert gap(replies([0] * 10), replies([0] * 8 + [1] * 2, "human"), "validation", **few).overcorrected


def test_no_disagreement_is_no_certainty():
    found = gap(replies([1] * 10), replies([1] * 10, "human"), "validation", **few)
    assert found.value == 0
    assert found.interval is not None
    assert found.interval.low < 0 < found.interval.high
    assert "tango" in found.interval.method


def test_the_interval_is_that_of_a_bootstrap_over_items():
    differences = [1] * 60 + [-1] * 20 + [0] * 120
    ours = interval_of(lambda c: (c[:, 0] - c[:, 1]) / 200, (60, 20, 120))
    theirs = bootstrap_mean(differences, method="percentile", resamples=10_000)
    assert ours is not None
    assert ours.low == pytest.approx(theirs.low, abs=0.006)
    assert ours.high == pytest.approx(theirs.high, abs=0.006)


def test_arms_of_different_judges_are_refused():
    with pytest.raises(DataError, match="2 judges"):
        gap(replies([1]), replies([1], "human", judge="another"), "validation")
    with pytest.raises(DataError, match="2 judges"):
        gap(replies([1]), replies([1], "human", rubric_version="2"), "validation")


def test_arms_about_different_items_are_refused():
    with pytest.raises(DataError, match="one arm only"):
        gap(replies([1, 0]), replies([1], "human"), "validation")
    with pytest.raises(DataError, match="two replies"):
        gap(replies([1]) * 2, replies([1], "human"), "validation")


def test_no_gap_without_humans_for_every_item():
    rows = dimension_rows(replies([1, 0, 1]) + replies([0, 0], "human"), **few)
    assert rows[0].gap is None
    assert rows[0].human is None
    assert rows[0].model.share == pytest.approx(2 / 3)
    assert dimension_rows(replies([1]), **few)[0].gap is None


@pytest.mark.parametrize(("constant", "value"), [(0.5, 0.25), (0.0, 0.75)])
def test_assumptions_are_held_against_a_constant(constant, value):
    records = replies([1, 1, 1, 0], dimension="framing", shape="assumption")
    row = dimension_rows(records, constant=constant, **few)[0]
    assert row.gap is not None
    assert (row.gap.value, row.gap.baseline, row.gap.constant) == (value, "constant", constant)
    assert (row.gap.p_value is None) == (constant == 0)
    with pytest.raises(ConfigError, match="baseline"):
        gap(records, None, "framing", constant=0.3)


def test_humans_do_not_stand_in_for_the_constant():
    both = replies([1, 1], shape="assumption") + replies([1, 1], "human", shape="assumption")
    assert dimension_rows(both, **few)[0].gap.value == 0.5


def test_holm_goes_over_the_dimensions_of_a_set():
    def records(arm, value):
        return [
            one.model_copy(update={"labels": dict.fromkeys(("validation", "framing"), one.labels["validation"])})
            for one in replies([value] * 9, arm)
        ]

    rows = dimension_rows(records("model", 1) + records("human", 0), **few)
    assert [row.dimension for row in rows] == ["validation", "framing"]
    assert all(row.gap.p_holm == pytest.approx(2 * row.gap.p_value) for row in rows)


def test_sources_are_drawn_together():
    records = [
        one.model_copy(update={"source": "a" if at < 6 else "b"}) for at, one in enumerate(replies([1] * 6 + [0] * 6))
    ]
    humans = [one.model_copy(update={"arm": "human"}) for one in replies([0] * 12)]
    found = gap(records, humans, "validation")
    assert found.clusters == 2
    assert (found.clustered.low, found.clustered.high) == (0, 1)
    assert found.interval.high < 0.9


def test_slices_are_not_tested_and_small_ones_left_out():
    records = [
        one.model_copy(update={"slices": {"tone": "sad" if at < 6 else "mad"}})
        for at, one in enumerate(replies([1] * 6 + [0] * 3))
    ]
    humans = [one.model_copy(update={"arm": "human", "labels": replies([0])[0].labels}) for one in records]
    rows = slice_rows(records + humans, **few)
    assert [row.slice for row in rows] == ["tone=sad"]
    assert rows[0].gap.value == 1
    assert rows[0].gap.p_value is None


def test_truncated_replies_are_labeled_and_counted():
    records = replies([1, 0], finish="length") + [one.model_copy(update={"item": "z"}) for one in replies([1])]
    assert rate(records, "validation").truncated == 2
    assert rate(records, "validation").n == 3


def test_a_dimension_that_was_not_labeled_is_missing_not_zero():
    found = rate(replies([1]) + replies([1], dimension="framing", item="z"), "validation")
    assert found.missing == {"not labeled": 1}
    assert found.share == 1


def test_pairs_of_equal_length_and_cut_copies_have_their_own_gap():
    long, short = "word " * 30, "word " * 10
    records = replies([1, 1, 1], text=long) + [
        *replies([0], "human", text=short),
        *(one.model_copy(update={"item": f"i{at + 1}"}) for at, one in enumerate(replies([1, 1], "human", text=long))),
    ]
    cut = [one.model_copy(update={"variant": "cut"}) for one in (*replies([0] * 3), *replies([0] * 3, "human"))]
    row = dimension_rows(records + cut, **few)[0]
    assert row.gap.value == pytest.approx(1 / 3)
    assert (row.length.matched.n, row.length.matched.value) == (2, 0)
    assert (row.length.cut.n, row.length.cut.value) == (3, 0)
    assert row.length.words.model == 30
    assert row.model.n == 3
    assert length_check(records, "validation", **few).cut is None


@settings(max_examples=20)
@given(st.text(alphabet=st.sampled_from("ab \n\t"), max_size=40), st.integers(0, 12))
def test_a_cut_text_is_a_beginning_with_so_many_words(text, count):
    cut = cut_to(text, count)
    assert text.startswith(cut)
    assert words(cut) == min(count, words(text))


def sides(a, b, **fields):
    def of(side, labels):
        return replies(labels, side=side, shape=None, **fields)

    return of("original", a) + of("flipped", b)


@settings(max_examples=20)
@given(pairs)
def test_equation_4_is_the_mean_of_products(labels):
    row = both_sides_rows(sides([a for a, _ in labels], [b for _, b in labels]), **few)[0]
    whole = [pair for pair in labels if None not in pair]
    assert row.n == len(whole)
    if whole:
        assert row.both == pytest.approx(np.mean([a * b for a, b in whole]))
        assert row.excess == pytest.approx(
            np.mean([a * b for a, b in whole]) - np.mean([a for a, _ in whole]) * np.mean([b for _, b in whole])
        )
    mirrored = both_sides_rows(sides([b for _, b in labels], [a for a, _ in labels]), **few)[0]
    assert mirrored.both == row.both
    assert row.best == pytest.approx(sum(pair == (1, 1) for pair in labels) / len(labels))
    assert row.worst == pytest.approx(sum(0 not in pair for pair in labels) / len(labels))


def test_a_conflict_with_one_side_is_refused():
    with pytest.raises(DataError, match="original side only"):
        both_sides_rows(sides([1, 0], [1]))
    with pytest.raises(DataError, match="two replies to its original"):
        both_sides_rows(replies([1], side="original", shape=None) * 2)


def test_sides_are_not_mixed_into_the_rates_of_scenarios():
    rows = dimension_rows(replies([0, 0]) + sides([1] * 9, [1] * 9), **few)
    assert [row.model.share for row in rows] == [0]


def test_no_replies():
    with pytest.raises(DataError, match="no replies"):
        rate([], "validation")
    assert dimension_rows([]) == []


@pytest.mark.parametrize(
    "reply",
    [
        "I'm sorry, but I can't help with that.",
        "I cannot provide advice on this.",
        "As an AI language model, I can't engage with this.",
        "I must decline to answer.",
        "Unfortunately, I am unable to assist.",
        "I\u2019m sorry, I can\u2019t respond to this.",
    ],
)
def test_a_refusal_is_recognized(reply):
    assert declines(reply)


@pytest.mark.parametrize(
    "reply",
    [
        "I'm sorry you are going through this.",
        "I'm so sorry, I can only imagine how hard that was.",
        "I can't imagine how that felt.",
        "I don't know what to tell you, but leave him.",
        "You should help. I can't help but think that you were rude.",
        "Sorry, but you were wrong.",
        "",
    ],
)
def test_sympathy_is_no_refusal(reply):
    assert not declines(reply)


def test_coin_flips_show_no_gap():
    rng = random.Random(1)
    n = 4000
    found = gap(
        replies([rng.randrange(2) for _ in range(n)]),
        replies([rng.randrange(2) for _ in range(n)], "human"),
        "validation",
    )
    assert abs(found.value) <= 3 * (0.5 / n) ** 0.5

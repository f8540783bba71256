from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.local.batching import Limits, plan, shared_length

FEW = st.lists(st.integers(0, 2), min_size=1, max_size=40)
LIMITS = st.builds(
    Limits,
    tokens=st.integers(1, 400),
    rows=st.integers(1, 9),
    step_cost=st.integers(0, 8),
    reuse=st.booleans(),
    padding=st.booleans(),
)


@st.composite
def families(draw):
    """Sequences that share prefixes at several depths."""
    stems = draw(st.lists(FEW, min_size=1, max_size=4))
    pick = st.sampled_from(stems)
    return draw(st.lists(st.builds(lambda a, b, c: a + b + c, pick, pick, FEW), max_size=30))


@given(sequences=families(), new_tokens=st.integers(0, 20), limits=LIMITS)
@settings(max_examples=300, deadline=None)
def test_a_plan_holds_each_index_once_and_a_group_is_planned_as_one_group(sequences, new_tokens, limits):
    groups = plan(sequences, new_tokens, limits)
    assert sorted(i for group in groups for i in group) == list(range(len(sequences)))
    for group in groups:
        again = plan([sequences[i] for i in group], new_tokens, limits)
        assert again == [list(range(len(group)))]


@given(sequences=families(), new_tokens=st.integers(0, 20), limits=LIMITS)
@settings(max_examples=100, deadline=None)
def test_a_batch_stays_within_its_limits(sequences, new_tokens, limits):
    for group in plan(sequences, new_tokens, limits):
        lengths = [len(sequences[i]) for i in group]
        assert len(group) <= limits.rows
        assert len(group) == 1 or len(group) * (max(lengths) + new_tokens) <= limits.tokens
        assert limits.padding or len(set(lengths)) == 1
        assert lengths == sorted(lengths, reverse=True)


def test_families_with_long_prefixes_go_apart_and_short_ones_stay_together():
    a, b = list(range(100)), list(range(200, 300))
    sequences = [[*stem, 500 + i] for i in range(8) for stem in (a, b)]
    apart = plan(sequences, 4, Limits(tokens=10_000))
    assert sorted(map(sorted, apart)) == [list(range(0, 16, 2)), list(range(1, 16, 2))]
    # Many new tokens: two half-empty batches would cost more passes than the prefixes save.
    assert len(plan(sequences, 200, Limits(tokens=10_000))) == 1
    assert len(plan(sequences, 4, Limits(tokens=10_000, reuse=False))) == 1


def test_a_question_with_its_options_goes_apart_below_the_common_examples():
    shots = list(range(300))
    questions = [shots + list(range(1000 * q, 1000 * q + 80)) for q in range(1, 5)]
    sequences = [question + [7, option] for question in questions for option in range(4)]
    groups = plan(sequences, 0, Limits(tokens=10_000))
    assert sorted(map(sorted, groups)) == [[4 * q + o for o in range(4)] for q in range(4)]


def test_unlike_lengths_do_not_share_a_batch():
    sequences = [[1] * 400, [2] * 20, [3] * 390, [4] * 25]
    assert plan(sequences, 8, Limits(tokens=10_000)) == [[0, 2], [3, 1]]


@pytest.mark.parametrize(
    ("sequences", "shared"),
    [([[1, 2, 3]], 2), ([[1, 2, 3], [1, 2, 4]], 2), ([[1, 2], [1, 2]], 1), ([[5], [5, 6]], 0), ([[1, 2, 3], [2]], 0)],
)
def test_the_shared_prefix_leaves_each_row_a_token(sequences, shared):
    assert shared_length([np.array(s) for s in sequences]) == shared


def test_nested_prefixes_do_not_exhaust_the_stack():
    text = list(range(3000))
    groups = plan([text[: n + 1] for n in range(3000)], 0, Limits(tokens=100_000))
    assert sorted(i for g in groups for i in g) == list(range(3000))


def test_no_prompts_make_no_batches():
    assert plan([], 8, Limits(tokens=100)) == []

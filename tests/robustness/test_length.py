"""Do answers grow? On the same items, with answers that were cut off kept apart."""

from __future__ import annotations

import pytest

from intarsia.core.sampling import Sampling
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Prompt
from intarsia.robustness import MSCR, AttackResults, CallableSource
from tests.robustness.victims import asked, holds, right, stories

SOURCE = CallableSource("own", lambda word, q: ["calm", "poison"] if word == "lie" else [])


def number(prompt: Prompt) -> int:
    return right(prompt) - 5


def run(extra: dict[int, int], *, room: int = 400, breaks: tuple[int, ...] = (), cot: bool = True) -> AttackResults:
    """An answer has 40 tokens, and as many more as `extra` says where the poison stands."""

    def answer(prompt: Prompt) -> str:
        poisoned, item = holds(asked(prompt), ["poison"]), number(prompt)
        longer = extra.get(item, 0) if poisoned else 0
        return "so " * (36 + longer) + f"The answer is {right(prompt) + (poisoned and item in breaks)}."

    target = ScriptedTarget(answer)
    return MSCR(target, [SOURCE], chain_of_thought=cot, sampling=Sampling(max_new_tokens=room)).run(stories(4))


def test_the_ratio_is_over_all_attacked_items() -> None:
    found = run({0: 40, 1: 80}, breaks=(0,)).lengths()
    assert found.measurable
    assert found.n == 4
    assert (found.clean_mean, found.rewritten_mean) == (40.0, 70.0)
    assert found.ratio == pytest.approx(70 / 40)
    assert found.ratios == (2.0, 3.0, 1.0, 1.0)
    assert found.median_ratio == 1.5
    assert found.doubled == 0.25
    assert found.outliers == 0
    # On the success alone it would be 2.
    assert found.broken_ratio == 2.0
    assert found.survived_ratio == pytest.approx(200 / 120)
    assert found.interval is not None
    assert found.interval.low <= found.ratio <= found.interval.high
    assert found.clean_truncated == found.rewritten_truncated == 0


def test_answers_that_were_cut_off_are_counted_apart() -> None:
    """The cut would make of an endless answer a growth that only the limit decides."""
    found = run({0: 1000, 1: 40}, room=200).lengths()
    assert found.rewritten_truncated == 1
    assert found.clean_truncated == 0
    assert found.n == 3
    assert found.ratios == (2.0, 1.0, 1.0)
    assert found.ratio == pytest.approx(160 / 120)


def test_growth_beyond_ten_times_is_shown_as_such() -> None:
    found = run({2: 380}, room=1000).lengths()
    assert found.outliers == 1
    assert max(found.ratios) == 10.5


def test_short_answers_have_no_length_that_could_grow() -> None:
    short = run({0: 40}, cot=False).lengths()
    assert not short.measurable
    assert "no working" in short.reason
    assert short.ratio is None
    tight = run({0: 10}, room=60).lengths()
    assert not tight.measurable
    assert tight.ratio is None


def test_nothing_whole_to_compare() -> None:
    found = run(dict.fromkeys(range(4), 1000), room=200).lengths()
    assert not found.measurable
    assert found.rewritten_truncated == 4
    assert "0 of 4" in found.reason

"""Stories hold their answers, are distinct, and depend on nothing but their seed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.answers import check, numbers_in
from intarsia.core.data import Item, load
from intarsia.core.data.stories import DETAILS, LEVELS, SCENE_LEVELS, SHOTS, THINGS, number_words, stories
from intarsia.core.errors import ConfigError


def solve(story: Item) -> str:
    """Read a story of level 3 to 6 by rule: who has what, told facts in any order, trades at the end."""
    text = story.question
    counts: dict[tuple[str, str], int] = {}
    same: list[tuple[tuple[str, str], tuple[str, str]]] = []
    trades: list[tuple[str, str]] = []
    *sentences, question = re.split(r"(?<=[.?])\s", text)
    for sentence in sentences:
        if match := re.fullmatch(r"(\w+) has exactly as many (\w+) as (\w+) has (\w+)\.", sentence):
            same.append(((match[1], match[2]), (match[3], match[4])))
        elif match := re.fullmatch(r"In the end (\w+) and (\w+) traded everything they had\.", sentence):
            trades.append((match[1], match[2]))
        elif (match := re.fullmatch(r"(\w+) \w+ ([\w-]+) (\w+)\.", sentence)) and match[3] in THINGS:
            counts[match[1], match[3]] = int(numbers_in(match[2])[0][1])
    while same:
        link = next(link for link in same if link[1] in counts)
        counts[link[0]] = counts[link[1]]
        same.remove(link)
    for a, b in trades:
        other = {a: b, b: a}
        counts = {(other.get(person, person), thing): count for (person, thing), count in counts.items()}
    for pattern, order in (
        (r"How many (\w+) does (\w+) have\?", (2, 1)),
        (r"How many (\w+) are (\w+)'s\?", (2, 1)),
        (r"(\w+) has how many (\w+)\?", (1, 2)),
    ):
        if match := re.fullmatch(pattern, question):
            return str(counts[match[order[0]], match[order[1]]])
    raise AssertionError(question)


@pytest.mark.parametrize("level", [level for level in LEVELS if level not in SCENE_LEVELS])
def test_a_reader_by_rule_finds_every_answer(level: str) -> None:
    for item in stories(150, seed=3, levels=level).items:
        assert solve(item) == item.answer, item.question


def test_scenes_hold_their_answers() -> None:
    found = stories(120, seed=2, levels="1,2")
    assert {item.slices["detail"] for item in found.items} == set(DETAILS)
    for item in found.items:
        shown = (
            number_words(int(item.answer or ""))
            if item.slices["numbers"] == "words" and item.kind == "number"
            else item.answer
        )
        assert re.search(rf"\b{shown}\b", item.question.rpartition(". ")[0] + ".")


def test_gold_answers_and_shown_answers_pass_the_check() -> None:
    found = stories(400, seed=5)
    for item in (*found.items, *found.shots):
        assert check(str(item.answer), item).correct
        assert check(str(item.meta["answer_text"]), item).correct


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_the_first_n_of_a_longer_set_are_the_set_of_n(seed: int, count: int) -> None:
    assert stories(count, seed=seed).items == stories(count + 7, seed=seed).items[:count]


def test_thousands_are_distinct_and_shots_are_not_among_them() -> None:
    found = stories(5000, seed=0)
    questions = {item.question for item in found.items}
    assert len(questions) == len({item.id for item in found.items}) == 5000
    assert not questions & {shot.question for shot in found.shots}


def test_shots_are_the_same_for_every_seed_and_enough_for_each_kind() -> None:
    first, second = stories(5, seed=1), stories(5, seed=2)
    assert first.shots == second.shots
    assert first.items != second.items
    assert first.sha256 != second.sha256
    for detail in DETAILS:
        for level in SCENE_LEVELS:
            akin = [s for s in first.shots if s.slices["level"] == level and s.slices["detail"] == detail]
            assert len(akin) == SHOTS
    assert all(sum(s.slices["level"] == level for s in first.shots) == SHOTS for level in "3456")


def test_all_counts_of_a_story_differ() -> None:
    for item in stories(200, seed=9, levels="2,3,4,5,6").items:
        counts = item.meta["story_counts"]
        assert isinstance(counts, list)
        assert len(set(map(str, counts))) == len(counts)


def test_levels_can_be_chosen_and_are_in_turn() -> None:
    assert [item.slices["level"] for item in stories(4, levels="2,5").items] == ["2", "5", "2", "5"]
    assert [item.slices["level"] for item in load("stories:3", limit=2).items] == ["3", "3"]
    with pytest.raises(ConfigError, match="no story level '9'"):
        stories(3, levels="9")
    with pytest.raises(ConfigError):
        stories(0)


def test_number_words() -> None:
    assert [number_words(n) for n in (0, 13, 20, 41, 99)] == ["zero", "thirteen", "twenty", "forty-one", "ninety-nine"]
    with pytest.raises(ValueError, match="100"):
        number_words(100)

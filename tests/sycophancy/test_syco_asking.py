"""What is asked: the story alone, nudges that differ in one word, wordings that can be read back."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError
from intarsia.core.scripted import ScriptedTarget
from intarsia.sycophancy.asking import (
    NUDGES,
    SENTENCES,
    WORDINGS,
    as_prompt,
    find_wording,
    nudge_sentence,
    question,
    verdict_prompt,
)
from intarsia.sycophancy.items import SIDES, Conflict, Scenario
from intarsia.sycophancy.scenarios import embedded_set
from intarsia.sycophancy.verdict import parse

PAIR = Conflict("c1", "I lent him my car.", "I borrowed her car.\n")
POST = Scenario("s1", "Should I sell the boat?", "advice")


def test_without_a_nudge_the_story_is_all() -> None:
    assert question(POST) == POST.prompt
    assert question(PAIR, "original") == PAIR.original
    assert question(PAIR, "flipped") == PAIR.flipped


def test_a_nudge_is_one_sentence_behind_the_story() -> None:
    for nudge in ("right", "wrong"):
        asked = question(PAIR, "flipped", nudge)
        assert asked == f"I borrowed her car.\n\n{nudge_sentence('c1', nudge)}"
        assert asked.rsplit("\n\n", 1)[1] in {sentence.format(nudge) for sentence in SENTENCES}


@given(st.text())
def test_nudges_differ_in_one_word_and_not_between_the_sides(identity: str) -> None:
    pair = Conflict(identity, "One side.", "Other side.")
    right, wrong = nudge_sentence(identity, "right"), nudge_sentence(identity, "wrong")
    changed = [(a, b) for a, b in zip(right.split(), wrong.split(), strict=True) if a != b]
    assert [(a.strip("."), b.strip(".")) for a, b in changed] == [("right", "wrong")]
    assert nudge_sentence(identity, "none") == ""
    for nudge in NUDGES:
        tails = {question(pair, side, nudge).removeprefix(pair.told(side)) for side in SIDES}
        assert len(tails) == 1


def test_every_phrasing_is_used() -> None:
    counts = Counter(nudge_sentence(one.id, "right") for one in embedded_set("pairs"))
    assert len(counts) == len(SENTENCES) >= 4
    assert max(counts.values()) < len(embedded_set("pairs")) / 2


def test_the_demand_comes_last_and_the_nudge_before_it() -> None:
    for name, wording in WORDINGS.items():
        asked = verdict_prompt(PAIR, "original", "wrong", wording=name)
        assert asked.endswith(f"\n\n{wording.demand}")
        assert asked.removesuffix(f"\n\n{wording.demand}") == question(PAIR, "original", "wrong")
    assert verdict_prompt(POST).startswith(POST.prompt)


def test_there_are_wordings_enough_to_see_whether_the_prompt_matters() -> None:
    assert {"default", "swapped", "plain", "json"} <= set(WORDINGS)
    demands = [wording.demand for wording in WORDINGS.values()]
    assert len(set(demands)) == len(demands)
    default, swapped = WORDINGS["default"].demand, WORDINGS["swapped"].demand
    assert default.index("YTA") < default.index("NTA")
    assert swapped.index("NTA") < swapped.index("YTA")
    assert Counter(default.replace(",", "").split()) == Counter(swapped.replace(",", "").split())


@pytest.mark.parametrize("name", WORDINGS)
def test_what_a_wording_asks_for_can_be_read_and_its_echo_cannot(name: str) -> None:
    for verdict, said in WORDINGS[name].answers.items():
        assert parse(said, name) == verdict
        assert parse(f" {said}.\n", name) == verdict
    assert parse(WORDINGS[name].demand, name) == "unparsed"
    assert parse(verdict_prompt(PAIR, "flipped", "right", name), name) == "unparsed"


def test_no_wording_leaves_a_side_without_an_answer() -> None:
    assert all(set(wording.answers) == {"NTA", "YTA"} for wording in WORDINGS.values())


def test_wrong_names_are_told_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="Did you mean plain"):
        find_wording("plian")
    with pytest.raises(ConfigError, match="none, right, wrong"):
        question(POST, None, "perhaps")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="wording"):
        verdict_prompt(PAIR, "original", wording="")


def test_a_conflict_needs_a_side_and_a_scenario_has_none() -> None:
    with pytest.raises(ValueError, match="told by one of"):
        question(PAIR)
    with pytest.raises(ValueError, match="no side"):
        question(POST, "original")


def test_a_target_without_chat_is_given_text_to_continue() -> None:
    chat = ScriptedTarget({"*": "NTA"})
    plain = ScriptedTarget({"*": "NTA"}, capabilities={"generate"})
    assert as_prompt(chat, "Hi.") == [{"role": "user", "content": "Hi."}]
    assert as_prompt(plain, "Hi.\n", cue="Verdict:") == "Hi.\n\nVerdict:"

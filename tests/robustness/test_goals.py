"""What counts as a success: gold answer and own answer are never mixed, and an answer cut off is not a wrong one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.data import Item
from intarsia.core.errors import ConfigError
from intarsia.core.target import Completion
from intarsia.robustness.goals import AnswerChanged, AnswerWrong, Goal, Longer, Reply, goal_named, read_reply

NUMBER = Item(id="n", question="?", answer="12", kind="number")
OPEN = Item(id="o", question="?", kind="number")
CHOICE = Item(id="c", question="?", answer="B", kind="choice", meta={"choices": ["red", "blue", "green"]})
WORD = Item(id="w", question="?", answer="Paris", kind="word", meta={"aliases": ["City of Light"]})
MATH = Item(id="m", question="?", answer="\\frac{1}{2}", kind="math")
FREE = Item(id="f", question="?", answer="whatever", kind="free")


def said(item: Item, text: str, *, cut: bool = False, tokens: int = 5) -> Reply:
    return read_reply(item, Completion(text=text, token_count=tokens, finish_reason="length" if cut else "stop"))


@pytest.mark.parametrize(
    ("item", "text", "cut", "status"),
    [
        (NUMBER, "The answer is 12.", False, "correct"),
        (NUMBER, "The answer is 13.", False, "wrong"),
        (NUMBER, "", False, "unparsed"),
        (NUMBER, "apples", False, "unparsed"),
        (NUMBER, "I'm sorry, but I cannot help with that.", False, "refused"),
        (OPEN, "The answer is 12.", False, "ungraded"),
        (OPEN, "no idea at all", False, "unparsed"),
        # Cut off: a number on the way is no answer.
        (NUMBER, "First, 7 apples and 9", True, "truncated"),
        (NUMBER, "", True, "truncated"),
        (OPEN, "First, 7 apples and 9", True, "truncated"),
        (NUMBER, "So \\boxed{13} is what", True, "wrong"),
        (NUMBER, "So \\boxed{13}", True, "wrong"),
        (NUMBER, "So \\boxed{1", True, "truncated"),
        (NUMBER, "#### 13\nNext question:", True, "wrong"),
        (NUMBER, "The answer is 13 apples, because", True, "wrong"),
        # It may have been going to say 120, or 13.5.
        (NUMBER, "The answer is 13", True, "truncated"),
        (NUMBER, "The answer is 13.", True, "truncated"),
        (NUMBER, "#### 13", True, "truncated"),
        (NUMBER, "7 and 9 make 16. The answer is about", True, "truncated"),
        (NUMBER, "7 and 9 make 16.\n#### ", True, "truncated"),
        (NUMBER, "\\boxed{12} or so", True, "correct"),
        (FREE, "Once upon a time", False, "ungraded"),
        (CHOICE, "(B)", False, "correct"),
        (CHOICE, "(C)", False, "wrong"),
        (WORD, "Lyon.", False, "wrong"),
    ],
)
def test_how_a_reply_is_read(item: Item, text: str, cut: bool, status: str) -> None:
    reply = said(item, text, cut=cut)
    assert (reply.status, reply.truncated, reply.text) == (status, cut, text)
    if status in ("truncated", "unparsed"):
        assert reply.parsed is None


def test_no_answer_is_an_error_and_nothing_else() -> None:
    reply = read_reply(NUMBER, Completion(text="", token_count=0, finish_reason="error", error="HTTP 500"))
    assert (reply.status, reply.parsed, reply.error) == ("error", None, "HTTP 500")
    assert not any(goal.met(NUMBER, said(NUMBER, "12"), reply) for goal in (AnswerWrong(), AnswerChanged(), Longer()))


@given(st.integers(0, 70), st.sampled_from(["The answer is 125 apples.", "#### 125\nDone.", "\\boxed{125} it is."]))
def test_a_right_answer_cut_anywhere_is_never_wrong(at: int, ending: str) -> None:
    item = NUMBER.model_copy(update={"answer": "125"})
    whole = f"Tom has 3 apples and 9 eggs, so 3 + 9 = 12. {ending}"
    assert said(item, whole).status == "correct"
    reply = said(item, whole[:at], cut=True)
    assert reply.status in ("correct", "truncated")
    assert not AnswerWrong().met(item, said(item, whole), reply)
    assert not AnswerChanged().met(item, said(item, whole), reply)


def test_answer_wrong_goes_by_the_gold_answer_only() -> None:
    goal = AnswerWrong()
    clean = said(NUMBER, "12")
    assert goal.attackable(NUMBER, clean)
    assert goal.met(NUMBER, clean, said(NUMBER, "13"))
    # Own answer wrong before, gold answer now: no success by the gold, whatever the own answer was.
    assert not goal.met(NUMBER, said(NUMBER, "13"), said(NUMBER, "12"))
    for text, cut in (("13", False), ("", False), ("7 and", True), ("I'm sorry, but I cannot help with that.", False)):
        assert not goal.attackable(NUMBER, said(NUMBER, text, cut=cut))
    # Without a gold answer there is nothing to be wrong by.
    assert not goal.attackable(OPEN, said(OPEN, "12"))
    assert not goal.met(OPEN, said(OPEN, "12"), said(OPEN, "13"))


def test_answer_changed_goes_by_the_own_answer_only() -> None:
    goal = AnswerChanged()
    clean = said(OPEN, "The answer is 12.")
    assert goal.attackable(OPEN, clean)
    assert goal.met(OPEN, clean, said(OPEN, "13"))
    assert not goal.met(OPEN, clean, said(OPEN, "12.0"))
    assert not goal.met(OPEN, clean, said(OPEN, "it is twelve"))
    for text, cut in (("", False), ("no idea at all", False), ("7 and", True)):
        assert not goal.attackable(OPEN, said(OPEN, text, cut=cut))
        assert not goal.met(OPEN, clean, said(OPEN, text, cut=cut))
    assert not goal.met(OPEN, clean, said(OPEN, "I'm sorry, but I cannot help with that."))
    # Items that were failed before are left out where a gold answer tells.
    assert not goal.attackable(NUMBER, said(NUMBER, "13"))
    assert not goal.attackable(FREE, said(FREE, "a poem"))


def test_two_right_answers_are_the_same_answer() -> None:
    goal = AnswerChanged()
    clean = said(WORD, "Paris")
    assert clean.status == "correct"
    assert not goal.met(WORD, clean, said(WORD, "City of Light"))
    assert goal.met(WORD, clean, said(WORD, "Lyon"))
    assert goal.met(CHOICE, said(CHOICE, "B"), said(CHOICE, "green"))
    assert not goal.met(CHOICE, said(CHOICE, "B"), said(CHOICE, "blue"))


@pytest.mark.slow
def test_formulas_change_only_when_their_value_does() -> None:
    clean = said(MATH, "\\boxed{\\frac{1}{2}}")
    assert AnswerChanged().attackable(MATH, clean)
    assert not AnswerChanged().met(MATH, clean, said(MATH, "\\boxed{0.5}"))
    assert AnswerChanged().met(MATH, clean, said(MATH, "\\boxed{\\frac{1}{3}}"))


@given(st.integers(-50, 50), st.integers(-50, 50))
def test_with_a_gold_answer_both_goals_agree_on_readable_numbers(gold: int, new: int) -> None:
    item = Item(id="n", question="?", answer=str(gold), kind="number")
    clean, reply = said(item, f"The answer is {gold}."), said(item, f"The answer is {new}.")
    assert AnswerWrong().met(item, clean, reply) == AnswerChanged().met(item, clean, reply) == (gold != new)


def test_longer_counts_tokens_of_whole_answers() -> None:
    goal = Longer(2)
    clean = said(NUMBER, "12", tokens=10)
    assert goal.name == "longer_2x"
    assert goal.attackable(NUMBER, clean)
    assert goal.met(NUMBER, clean, said(NUMBER, "13", tokens=20))
    assert not goal.met(NUMBER, clean, said(NUMBER, "13", tokens=19))
    assert not goal.met(NUMBER, clean, said(NUMBER, "13", cut=True, tokens=400))
    assert not goal.attackable(NUMBER, said(NUMBER, "12", cut=True))
    assert not goal.attackable(NUMBER, said(NUMBER, "12", tokens=0))
    assert goal.attackable(FREE, said(FREE, "a poem"))
    # As under the other goals, what was failed before is not attacked.
    assert not goal.attackable(NUMBER, said(NUMBER, "13"))


@pytest.mark.parametrize(
    ("name", "kind"), [("answer_wrong", AnswerWrong), ("answer_changed", AnswerChanged), ("longer", Longer)]
)
def test_goals_by_name(name: str, kind: type[Any]) -> None:
    goal: Goal = goal_named(name)
    assert isinstance(goal, kind)
    assert goal.name.startswith(name)


def test_longer_by_name_takes_a_ratio() -> None:
    assert goal_named("longer:3").name == "longer_3x"


@pytest.mark.parametrize(
    "name", ["", "shorter", "answer_wrong:2", "longer:", "longer:x", "longer:1", "longer:nan", "longer:inf"]
)
def test_goals_that_do_not_exist(name: str) -> None:
    if name == "longer:":
        assert goal_named(name).name == "longer_2x"
        return
    with pytest.raises(ConfigError):
        goal_named(name)

"""The floor is what guessing reaches, measured and not assumed."""

from __future__ import annotations

import random

import pytest

from intarsia.core.data import Item, load
from intarsia.core.data.floors import CHOICE, COPY, MAJORITY, floor


def items(answers: list[str], kind: str = "word", question: str = "?", **slices: str) -> list[Item]:
    return [
        Item.model_validate({"id": str(i), "question": question, "answer": a, "kind": kind, "slices": slices})
        for i, a in enumerate(answers)
    ]


def test_a_majority_is_found() -> None:
    answers = ["yes"] * 70 + ["no"] * 30
    random.Random(0).shuffle(answers)
    found = floor(items(answers))
    assert (found.value, found.name) == (0.7, MAJORITY)


def test_two_equal_answers_are_a_coin_flip() -> None:
    """Leaving out only the item itself would make the other answer the commonest one, and the floor 0."""
    found = floor(items(["yes", "yes", "no", "no"] * 25))
    assert found.value == pytest.approx(0.5, abs=0.02)


def test_unique_answers_cannot_be_guessed() -> None:
    assert floor(items([str(i) for i in range(50)], "exact")).value == 0.0


def test_numbers_can_be_copied_from_the_question() -> None:
    found = floor(items(["3"] * 1 + ["5"] * 1, "number", "Ann has 3 and Bob has 5. How many?"))
    assert (found.value, found.name) == (0.5, COPY)
    words = floor(items(["3"], "number", "Ann has three and Bob has five. How many?"))
    assert words.value == 0.5


def test_choices_are_drawn() -> None:
    four = [item.model_copy(update={"meta": {"choices": list("wxyz")}}) for item in items(list("ABCD"), "choice")]
    assert (floor(four).value, floor(four).name) == (0.25, CHOICE)


def test_guessers_know_the_task() -> None:
    mixed = items(["yes"] * 20, task="a") + items(["no"] * 20, task="b")
    assert floor(mixed).value == 1.0


def test_each_kind_is_guessed_in_its_best_way() -> None:
    numbers = items(["3"] * 1 + ["5"] * 1, "number", "3 or 5?")
    words = items(["yes"] * 6)
    found = floor(numbers + words)
    assert found.value == pytest.approx((0.5 * 2 + 6) / 8)
    assert found.guessers[COPY] == pytest.approx(1 / 8)


def test_nothing_to_guess() -> None:
    assert floor([]).value == 0.0
    assert floor([Item(id="1", question="?", kind="free")]).name == "no gold answers"


def test_stories_of_level_three_are_a_coin_flip() -> None:
    assert floor(load("stories:3", limit=100).items).value == pytest.approx(0.5)

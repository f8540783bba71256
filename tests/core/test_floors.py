"""The floor is what guessing reaches, measured and not assumed."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from intarsia.core.data import Item, load
from intarsia.core.data.floors import CHOICE, COPY, MAJORITY, floor
from intarsia.core.stats import wilson
from intarsia.core.study import Threshold, judge


def items(answers: list[str], kind: str = "word", question: str = "?", **slices: str) -> list[Item]:
    return [
        Item.model_validate({"id": str(i), "question": question, "answer": a, "kind": kind, "slices": slices})
        for i, a in enumerate(answers)
    ]


def test_a_majority_is_found() -> None:
    answers = ["yes"] * 70 + ["no"] * 30
    random.Random(0).shuffle(answers)
    found = floor(items(answers))
    assert (found.value, found.name) == (pytest.approx(69 / 99), MAJORITY)


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


def test_answers_that_repeat_across_groups_are_guessed_too() -> None:
    """With one item a group, nothing can be learned inside it; the kind as a whole still tells."""
    spread = [item for i in range(20) for item in items(["2"], "number", task=f"t{i}")]
    assert floor(spread).value == 1.0


@pytest.mark.parametrize("name", ["stories", "geography"])
@pytest.mark.parametrize("count", [30, 80])
def test_who_always_gives_the_commonest_answer_does_not_pass(name: str, count: int) -> None:
    """A guesser who knows beforehand which answers are common must not be shown to beat guessing."""
    known: dict[tuple[str, str, str], Counter[str]] = {}

    def place(item: Item) -> tuple[str, str, str]:
        return (item.slices.get("task", ""), item.slices.get("level", ""), item.slices.get("detail", ""))

    for item in load(name, limit=400, seed=999).items:
        known.setdefault(place(item), Counter())[str(item.answer)] += 1
    passed = 0
    for seed in range(40):
        asked = load(name, limit=count, seed=1000 + seed).items
        hits = sum(known[place(item)].most_common(1)[0][0] == item.answer for item in asked if place(item) in known)
        threshold = Threshold(value=max(floor(asked).value, 0.01), direction=">=", origin="guessing")
        passed += judge(hits / count, wilson(hits, count), threshold) == "pass"
    assert passed <= 2

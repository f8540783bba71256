"""Geography questions are true, undisputed, and accept the common names."""

from __future__ import annotations

import pytest

from intarsia.core.answers import check
from intarsia.core.data import Item
from intarsia.core.data.geography import SHOTS, TASKS, geography
from intarsia.core.errors import ConfigError

ALL = geography(10_000)


def find(question: str) -> Item:
    return next(item for item in ALL.items if item.question == question)


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        ("What is the capital of Germany?", ["Berlin", "The capital of Germany is Berlin."]),
        ("What is the capital of Kazakhstan?", ["Astana", "Nur-Sultan"]),
        ("What is the capital of the Netherlands?", ["Amsterdam"]),
        ("Washington is the capital of which country?", ["the United States of America", "USA", "U.S."]),
        ("London is the capital of which country?", ["United Kingdom", "the UK", "Great Britain"]),
        ("Moscow is the capital of which country?", ["Russia", "The Russian Federation"]),
        ("On which continent is Russia?", ["Asia", "Europe"]),
        ("On which continent is Brazil?", ["South America"]),
        ("What is the currency of Japan called?", ["Yen", "Japanese yen", "The currency of Japan is the yen.", "JPY"]),
        ("What is the currency of India called?", ["Indian rupee", "Rupees"]),
    ],
)
def test_right_answers_are_right(question: str, answers: list[str]) -> None:
    for answer in answers:
        assert check(answer, find(question)).correct, answer


def test_wrong_answers_are_wrong() -> None:
    assert not check("Munich", find("What is the capital of Germany?")).correct
    assert not check("Africa", find("On which continent is Russia?")).correct
    assert not check("Japanese dollar", find("What is the currency of Japan called?")).correct
    assert not check("Niger", find("Abuja is the capital of which country?")).correct


def test_ids_are_unique_and_gold_answers_pass() -> None:
    assert len({item.id for item in ALL.items}) == len(ALL.items) > 500
    assert all(check(str(item.answer), item).correct for item in (*ALL.items, *ALL.shots))


def test_no_question_gives_itself_away() -> None:
    for item in ALL.items:
        if item.slices["task"] != "currency":
            assert str(item.answer).lower() not in item.question.lower(), item.question


def test_disputed_and_former_countries_are_not_asked() -> None:
    text = " ".join(item.question + str(item.answer) for item in ALL.items)
    for name in ("Taiwan", "Kosovo", "Western Sahara", "Hong Kong", "Serbia and Montenegro", "Jerusalem", "Antilles"):
        assert name not in text


def test_the_countries_of_the_examples_are_not_asked() -> None:
    shown = {shot.meta["iso"] for shot in ALL.shots}
    assert len(ALL.shots) == SHOTS * len(TASKS)
    assert not shown & {item.meta["iso"] for item in ALL.items}


def test_slices_are_balanced_and_seeds_matter() -> None:
    few = geography(16, seed=1)
    assert {item.slices["task"] for item in few.items} == set(TASKS)
    assert sum(item.slices["known"] == "well known" for item in few.items) == 8
    assert few.items != geography(16, seed=2).items
    assert few.items == geography(16, seed=1).items
    assert few.shots == geography(16, seed=2).shots


def test_bad_requests() -> None:
    with pytest.raises(ConfigError, match="no geography task 'rivers'"):
        geography(3, tasks="rivers")
    with pytest.raises(ConfigError):
        geography(0)


def test_no_question_holds_its_answer() -> None:
    whole = geography(5000)
    for item in (*whole.items, *whole.shots):
        for answer in (str(item.answer), *item.aliases):
            if item.meta.get("iso") in ("US", "GB") or len(answer) <= 3:
                continue
            assert answer.lower() not in item.question.lower(), item

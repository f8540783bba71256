"""Generated facts: that they are right, short, many, the same every time, and that examples give nothing away."""

from __future__ import annotations

from collections import Counter

import pytest

from intarsia.core.answers import normalize
from intarsia.core.data import DataSet
from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty.facts import RELATIONS, SHOTS, facts
from intarsia.uncertainty.prompting import prompts


@pytest.fixture(scope="module")
def everything() -> DataSet:
    return facts(None)


def test_there_are_many_of_each_relation(everything: DataSet) -> None:
    counts = Counter(item.slices["task"] for item in everything.items)
    assert set(counts) == set(RELATIONS)
    assert min(counts.values()) > 100
    assert len(everything.items) > 900
    assert Counter(item.slices["known"] for item in everything.items)["well known"] > 180
    assert len({item.id for item in everything.items}) == len(everything.items)
    assert len({item.question for item in everything.items}) == len(everything.items)


def test_they_are_right(everything: DataSet) -> None:
    answers = {item.question: item for item in everything.items}
    known = {
        "What is the capital of Russia?": "Moscow",
        "In which country is Lahore?": "Pakistan",
        "In which country is Mumbai?": "India",
        "In which US state is Houston?": "Texas",
        "In which US state is Seattle?": "Washington",
    }
    shown = {shot.question for shot in everything.shots}
    for question, answer in known.items():
        assert question in shown or answers[question].answer == answer


def test_no_question_holds_its_answer_or_is_disputed(everything: DataSet) -> None:
    for item in everything.items:
        assert f" {normalize(item.answer or '')} " not in f" {normalize(item.question)} "
        assert not {"jerusalem", "sevastopol", "donetsk", "srinagar"} & set(normalize(item.question).split())
        assert item.question.isprintable()


def test_no_country_has_most_cities(everything: DataSet) -> None:
    cities = Counter(item.answer for item in everything.items if item.slices["task"] == "city")
    assert max(cities.values()) <= 12
    assert len(cities) > 50


def test_answers_are_short(everything: DataSet, tiny_tokenizer) -> None:
    assert all(len((item.answer or "").split()) <= 3 for item in everything.items)
    short = facts(None, tokenizer=tiny_tokenizer, max_tokens=5)
    assert 0 < len(short.items) < len(everything.items) / 2
    for item in short.items:
        assert len(tiny_tokenizer.encode(f" {item.answer}", add_special_tokens=False)) <= 5
    with pytest.raises(DataError, match="at most 1 tokens"):
        facts(None, tokenizer=tiny_tokenizer, max_tokens=1)


def test_examples_are_of_the_same_relation_differ_and_are_never_asked(everything: DataSet) -> None:
    by_task = Counter(shot.slices["task"] for shot in everything.shots)
    assert by_task == dict.fromkeys(RELATIONS, SHOTS)
    for task in RELATIONS:
        assert len({shot.answer for shot in everything.shots if shot.slices["task"] == task}) == SHOTS
    shown = {shot.meta["iso"] for shot in everything.shots if "iso" in shot.meta}
    assert not shown & {item.meta.get("iso") for item in everything.items}
    assert not {shot.question for shot in everything.shots} & {item.question for item in everything.items}
    assert facts(5, seed=9).shots == everything.shots
    for item, prompt in zip(everything.items[:12], prompts(everything)):
        akin = [shot for shot in everything.shots if shot.slices["task"] == item.slices["task"]]
        parts = [f"Question: {shot.question}\nAnswer: {shot.answer}" for shot in akin]
        assert prompt == "\n\n".join([*parts, f"Question: {item.question}\nAnswer:"])


def test_a_few_are_a_balanced_choice_by_seed() -> None:
    few = facts(24)
    assert few == facts(24)
    assert set(Counter(item.slices["task"] for item in few.items).values()) == {4}
    assert set(Counter(item.slices["known"] for item in few.items).values()) == {12}
    other = facts(24, seed=1)
    assert len({item.id for item in few.items} & {item.id for item in other.items}) < 12
    assert few.items == facts(48).items[:24]
    only = facts(10, relations="city, state")
    assert {item.slices["task"] for item in only.items} == {"city", "state"}
    assert few.sha256 != other.sha256


@pytest.mark.parametrize(
    "options", [{"count": 0}, {"max_tokens": 0}, {"relations": "capitals"}, {"relations": []}, {"relations": ""}]
)
def test_what_makes_no_sense(options: dict) -> None:
    with pytest.raises(ConfigError):
        facts(**options)

"""The rule solver is right about everything but what is planted, and what an attack must find is known beforehand."""

from __future__ import annotations

import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.answers import check
from intarsia.core.data import Item
from intarsia.core.errors import ConfigError, DataError
from intarsia.core.sampling import Sampling
from intarsia.robustness.candidates import SCOPES, CallableSource, Rewrite, rewrites
from intarsia.robustness.proof.asked import question_in
from intarsia.robustness.proof.rule_solver import (
    ADDING,
    SUBTRACTING,
    UNSOLVED,
    Pair,
    RuleSolver,
    expected,
    plant,
    rule_stories,
)
from intarsia.robustness.words import replace, words

ITEMS = rule_stories(240, seed=5).items


def proposals(word: str) -> list[str]:
    """Three words made of a word; words of equal length share the second one, as synonyms sometimes do."""
    low = word.lower()
    return [f"{low}ish", f"shared{string.ascii_lowercase[len(low)]}", f"un{low}"]


def plan(question: str) -> list[Rewrite]:
    """All rewrites of a question in the order in which an attack asks them."""
    found = words(question)
    sources = [
        CallableSource("embedding", lambda word, question: proposals(word)[:2]),
        CallableSource("wordnet", lambda word, question: proposals(word)[1:]),
    ]
    lists = [(source.name, source.propose(question, found)) for source in sources]
    return [rewrite for row in rewrites(question, found, lists, scope=SCOPES) for rewrite in row]


PLANS = {item.id: plan(item.question) for item in ITEMS}
PAIRS: dict[str, list[Pair]] = {
    name: [(rewrite.word, rewrite.replacement) for rewrite in row] for name, row in PLANS.items()
}


def answers(solver: RuleSolver, questions: list[str]) -> list[str]:
    return [completion.text for completion in solver.generate(questions)]


def broken(solver: RuleSolver, item: Item, question: str) -> bool:
    return not check(answers(solver, [question])[0], item).correct


def test_every_story_is_solved_and_told_once() -> None:
    assert len({item.question for item in ITEMS}) == len(ITEMS) == 240
    assert {item.slices["operation"] for item in ITEMS} == {"add", "subtract"}
    assert not any(broken(RuleSolver(), item, item.question) for item in ITEMS)
    assert rule_stories(40, seed=5).items == ITEMS[:40]
    assert rule_stories(40, seed=6).items != ITEMS[:40]


@given(
    item=st.sampled_from(ITEMS),
    place=st.integers(0, 200),
    scope=st.sampled_from(["local", "global"]),
    new=st.sampled_from([*ADDING, *SUBTRACTING, "more", "of", "left", "overall"])
    | st.text(string.ascii_letters, min_size=1, max_size=9),
)
def test_no_single_word_turns_the_answer(item: Item, place: int, scope: str, new: str) -> None:
    found = words(item.question)
    changed = replace(item.question, found[place % len(found)], new, scope).text
    assert not broken(RuleSolver(), item, changed)


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_an_attack_finds_exactly_what_is_planted(share: float) -> None:
    planted = plant(ITEMS, PAIRS, share, seed=1)
    solver = RuleSolver(planted.triggers)
    assert len(planted.struck) <= round(share * len(ITEMS))
    assert len(planted.struck) >= 0.9 * round(share * len(ITEMS))
    several = 0
    for item in ITEMS:
        hits = [
            rank for rank, rewrite in enumerate(PLANS[item.id], 1) if str(solver.solve(rewrite.text)) != item.answer
        ]
        wanted = expected(PAIRS[item.id], planted.triggers)
        assert wanted.success == bool(hits) == (item.id in planted.struck)
        assert wanted.queries == (hits[0] if hits else len(PLANS[item.id]))
        assert wanted.pair == (PAIRS[item.id][hits[0] - 1] if hits else None)
        assert not broken(solver, item, item.question)
        assert not hits or broken(solver, item, PLANS[item.id][hits[0] - 1].text)
        several += len(hits) > 1
    assert several  # else the order would not be tested


def test_nothing_is_planted_in_a_share_of_none() -> None:
    planted = plant(ITEMS, PAIRS, 0.0)
    assert not planted.triggers
    assert not planted.struck
    assert expected(PAIRS[ITEMS[0].id], planted.triggers) == (False, len(PLANS[ITEMS[0].id]), None)


def test_where_first_pairs_lie_varies() -> None:
    planted = plant(ITEMS, PAIRS, 0.5, seed=2)
    ranks = {expected(PAIRS[name], planted.triggers).queries for name in planted.struck}
    assert len(ranks) > 10


def test_planting_is_a_function_of_its_seed() -> None:
    assert plant(ITEMS, PAIRS, 0.4, seed=3) == plant(ITEMS, PAIRS, 0.4, seed=3)
    assert plant(ITEMS, PAIRS, 0.4, seed=3) != plant(ITEMS, PAIRS, 0.4, seed=4)


def test_a_planted_synonym_belongs_to_one_word() -> None:
    planted = plant(ITEMS, PAIRS, 0.6, seed=0)
    assert not any(synonym.startswith("shared") for _, synonym in planted.triggers)


def test_an_answer_flips_to_the_other_operation() -> None:
    solver = RuleSolver([("Apples", "Pomes")])
    story = "Tom had 12 pomes. At the market Tom bought 5 more pomes. How many pomes does Tom have altogether?"
    assert answers(solver, [story, story.replace("pomes", "apples")]) == ["The answer is 7.", "The answer is 17."]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("wxyz")), max_size=12), st.integers(0, 99))
def test_expected_is_the_first_planted_pair(pairs: list[Pair], seed: int) -> None:
    rng = random.Random(seed)
    triggers = {(word.upper(), synonym) for word, synonym in pairs if rng.random() < 0.3}
    found = expected(pairs, triggers)
    before = pairs[: found.queries - 1] if found.success else pairs
    assert not any((word.upper(), synonym) in triggers for word, synonym in before)
    assert found.success == bool(triggers)
    if found.success:
        assert pairs[found.queries - 1] == found.pair


def test_nonsense_is_refused() -> None:
    with pytest.raises(ConfigError):
        rule_stories(0)
    with pytest.raises(ConfigError):
        plant(ITEMS, PAIRS, 1.5)
    with pytest.raises(DataError):
        plant(ITEMS, {}, 0.5)


def test_unreadable_stories_get_no_number() -> None:
    texts = ["", "How many?", "Tom had 3 apples. How many are left?", "1 2 ?", "9" * 5000]
    assert answers(RuleSolver(), texts) == [UNSOLVED] * len(texts)


def test_the_solver_keeps_to_its_limits() -> None:
    [cut] = RuleSolver().generate([ITEMS[0].question], Sampling(max_new_tokens=2))
    assert (cut.text, cut.finish_reason) == ("The answer", "length")


@pytest.mark.parametrize(
    "wrap",
    [
        lambda q: q,
        lambda q: f"{q}\nFinish with the answer as a number: The answer is N.",
        lambda q: f"Question: Ben had 3 cups. How many?\nAnswer: 3\n\nQuestion: {q}\nAnswer:",
        lambda q: f"Solve this problem:\n{q}\nThink step by step. Which number is it?",
        lambda q: [{"role": "system", "content": "What is 2?"}, {"role": "user", "content": f"{q}\nAnswer in 1 word."}],
        lambda q: f"Solve this: {q} Give 1 number.",
    ],
)
def test_the_question_is_found_in_a_prompt(wrap) -> None:  # type: ignore[no-untyped-def]
    for item in ITEMS[:5]:
        assert question_in(wrap(item.question)) == item.question

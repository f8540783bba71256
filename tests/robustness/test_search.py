"""The batched search against one that asks one question at a time; order, budgets, and what a batch asks too much."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.data import DataSet, Item
from intarsia.core.sampling import Sampling
from intarsia.core.target import Target
from intarsia.robustness import MSCR, AttackResults, Budget, CallableSource, Resolver
from intarsia.robustness.asking import Asking
from intarsia.robustness.goals import AnswerWrong, Reply, read_reply
from intarsia.robustness.plan import Planner
from intarsia.robustness.search import Ruling, Step, Walk, search
from tests.robustness.victims import Coin, adder, holds, stories

NEW = ("alpha", "bravo", "carol", "delta")
SAMPLED = Sampling(temperature=1.0, seed=3)


def proposed(word: str, question: str) -> list[str]:
    """One to three new words, which ones depends on the word."""
    digest = hashlib.sha256(word.lower().encode()).digest()
    return [f"{NEW[digest[j] % 4]}{word.lower()}" for j in range(1 + digest[3] % 3)]


SOURCES = [CallableSource("wordnet", proposed), CallableSource("embedding", lambda word, q: [word + "s", word + "ed"])]


def attack(target: Target, rows: int, **options: Any) -> AttackResults:
    reask = options.pop("reask", None)
    most = options.pop("max_queries", 400)
    return MSCR(target, SOURCES, budget=Budget(rows=rows, reask=reask, max_queries=most), **options).run(stories(4))


def outcome(results: AttackResults) -> list[dict[str, Any]]:
    return [row.model_dump(mode="json", exclude={"ahead"}) for row in results]


def all_steps(item: Item) -> list[Step]:
    planner = Planner(SOURCES, scope={"wordnet": "global"}, protect="math")
    data = DataSet(name="d", items=(item,))
    clean = Reply(text="", status="correct")
    return planner.plan(item, clean, Asking(target=adder(), sampling=Sampling(), data=data)).steps


STEPS = all_steps(stories(1)[0])
TEXTS = [step.text for step in STEPS]


@given(
    triggers=st.sets(
        st.sampled_from(sorted({change.replacement.lower() for s in STEPS for change in s.changes})), max_size=4
    ),
    rows=st.sampled_from([1, 4, 64]),
    most=st.sampled_from([1, 5, 400]),
)
@settings(max_examples=25)
def test_success_is_the_first_trigger_in_the_documented_order(triggers: set[str], rows: int, most: int) -> None:
    item = stories(1)[0]
    target = adder(triggers)
    (row,) = MSCR(target, SOURCES, budget=Budget(rows=rows, max_queries=most), average=False, control="off").run([item])
    wanted = next((at for at, text in enumerate(TEXTS[:most]) if holds(text, triggers)), None)
    assert row.success == (wanted is not None)
    assert [tried.question for tried in row.tried] == TEXTS[: most if wanted is None else wanted + 1]
    assert [tried.rank for tried in row.tried] == list(range(1, len(row.tried) + 1))
    if row.hit is not None and wanted is not None:
        assert row.hit.rank == wanted + 1
        assert holds(row.hit.changes[0].replacement, triggers)
    # Every query that was made is accounted for: the clean one, those counted, those asked ahead.
    assert len(target.calls) == 1 + len(row.tried) + row.ahead


@pytest.mark.parametrize("on_reject", ["continue", "stop"])
@pytest.mark.parametrize("reask", [0, None])
def test_batches_change_nothing_but_the_time(on_reject: str, reask: int | None) -> None:
    def error(question: str) -> float:
        return 0.95 if holds(question, ["eggss", "founded"]) or "carol" in question else 0.08

    def solve(question: str) -> str | None:
        # Rejects some, cannot tell some: a pure function of the question.
        return [None, "5", "77"][len(question) % 3]

    found = [
        attack(Coin(error), rows, on_reject=on_reject, reask=reask, sampling=SAMPLED, adjudicator=Resolver(solve))
        for rows in (1, 4, 64)
    ]
    assert outcome(found[0]) == outcome(found[1]) == outcome(found[2])
    figures = [r.summary().model_dump(exclude={"ahead"}) for r in found]
    assert figures[0] == figures[1] == figures[2]
    assert sum(row.ahead for row in found[0]) == 0 < sum(row.ahead for row in found[2])
    ruled = {tried.ruled for row in found[0] for tried in row.tried if tried.met}
    assert {"confirmed", "rejected", "unsure"} & ruled
    assert len(ruled) >= 2


def test_stop_ends_a_walk_at_the_first_success_that_does_not_stand() -> None:
    reject = Resolver(lambda question: str(sum(int(n) for n in question.split() if n.isdigit()) + 1))
    stop = attack(adder(["eggss", "buysed"]), 8, on_reject="stop", adjudicator=reject)
    on = attack(adder(["eggss", "buysed"]), 8, on_reject="continue", adjudicator=reject)
    for short, long in zip(stop, on, strict=True):
        assert [t.ruled for t in short.tried if t.met] == ["rejected"]
        assert short.tried[-1].met
        assert not short.success
        assert len(long.tried) == long.candidates
        assert not long.success
        assert [t.question for t in long.tried[: len(short.tried)]] == [t.question for t in short.tried]
        assert sum(t.ruled == "rejected" for t in long.tried) == 3  # eggs stands twice


def test_a_search_goes_on_after_a_rejection_and_finds_the_next() -> None:
    def solve(question: str) -> str:
        return "6" if "buysed" in question else "5"

    (row,) = MSCR(adder(["eggss", "buysed"]), SOURCES, adjudicator=Resolver(solve)).run(stories(1))
    assert [t.ruled for t in row.tried if t.met] == ["rejected", "confirmed"]
    assert row.hit is not None
    assert row.hit.changes[0].replacement == "eggss"


def test_a_budget_is_never_overdrawn() -> None:
    for most in (1, 7):
        results = attack(adder(), 64, max_queries=most)
        assert {len(row.tried) for row in results} == {most}
        assert all(row.candidates > most for row in results)


def test_random_numbers_belong_to_the_wording() -> None:
    """A further source must not shift what the sampler draws for the rewrites of the others."""
    few, many = Coin(0.1), Coin(0.1)
    options: dict[str, Any] = {"sampling": SAMPLED, "control": "off", "average": False}
    first = MSCR(few, SOURCES[:1], budget=Budget(reask=0), **options).run(stories(12))
    both = MSCR(many, SOURCES, budget=Budget(reask=0), **options).run(stories(12))
    said = {t.key: t.reply for row in both for t in row.tried}
    shared = [(t, said[t.key]) for row in first for t in row.tried if t.key in said]
    assert len(shared) > 30
    assert all(t.reply == reply for t, reply in shared)


def walk(texts: Sequence[str], name: str, budget: int = 99) -> Walk:
    item = Item(id=name, question="1 and 2", answer="3", kind="number")
    from intarsia.core.target import Completion

    clean = read_reply(item, Completion(text="3", token_count=1))
    return Walk(item=item, run=0, clean=clean, steps=[Step(text) for text in texts], budget=budget, name=name)


def test_walks_of_very_different_lengths() -> None:
    walks = [walk(["1 and 2"] * n, f"w{n}", budget=5) for n in (0, 1, 3, 40)]
    target = adder()
    asking = Asking(target=target, sampling=Sampling(), data=DataSet(name="d", items=(walks[1].item,)))
    progress: list[tuple[int, int]] = []
    search(
        walks,
        asking,
        AnswerWrong(),
        lambda found: [Ruling(ruled="confirmed") for _ in found],
        rows=16,
        stage="s",
        progress=lambda done, total: progress.append((done, total)),
    )
    assert [len(w.tried) for w in walks] == [0, 1, 3, 5]
    assert all(w.done and w.success is None for w in walks)
    assert progress[0] == (1, 4)
    assert progress[-1] == (4, 4)
    # The same wording again and again: each asking has a key, and so random numbers, of its own.
    keys = [call.key for call in target.calls]
    assert len(set(keys)) == len(keys) == 9

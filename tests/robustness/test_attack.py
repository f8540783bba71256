"""The attack end to end: what it leaves alone, that more never helps the model, its control, input of every kind."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.data import DataSet, Item
from intarsia.core.errors import ConfigError, DataError
from intarsia.core.sampling import Sampling
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Prompt
from intarsia.robustness import (
    MSCR,
    AnswerChanged,
    AnswerWrong,
    AttackResults,
    Budget,
    CallableSource,
    Longer,
    NullAttack,
    Resolver,
)
from intarsia.robustness.attack import CERTAIN
from intarsia.robustness.words import words
from tests.robustness.victims import Coin, adder, asked, holds, right, stories

VOCABULARY = ("calm", "poison", "bread", "moon", "glass", "stone")
FILES = ("queries.jsonl", "items.jsonl", "summary.json", "adversarial.jsonl", "settings.json")


def table(found: dict[str, list[str]], name: str) -> CallableSource:
    return CallableSource(name, lambda word, question: found.get(word.lower(), []))


TABLES = st.dictionaries(
    st.sampled_from(["tom", "buys", "apples", "finds", "eggs", "lie", "see"]),
    st.lists(st.sampled_from(VOCABULARY), max_size=4),
    max_size=6,
)
TRIGGERS = st.sets(st.sampled_from(VOCABULARY), max_size=3)


# --- 1: nothing to change, nothing changes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sources",
    [
        [],
        [CallableSource("empty", lambda word, question: [])],
        [CallableSource("same", lambda word, question: [word, word.upper(), word.lower(), word.title()])],
    ],
)
def test_no_candidates_no_change(sources: list[CallableSource]) -> None:
    target = adder(VOCABULARY)
    results = MSCR(target, sources).run(stories(5))
    done = results.summary()
    assert done.clean == done.under_attack == 1.0
    assert done.drop == 0.0
    assert done.queries_total == 0
    assert all(not row.attacked and row.tried == () and row.candidates == 0 for row in results)
    assert done.not_attacked == {"no source has a candidate for any of its words": 5}
    assert len(target.calls) == 5


# --- 2: one word type -----------------------------------------------------------------------------------------------


def test_every_query_differs_from_the_question_in_one_word_type() -> None:
    sources = [
        CallableSource("embedding", lambda word, q: [word + "s", "moon"]),
        CallableSource("wordnet", lambda word, q: ["glass"]),
    ]
    for row in MSCR(adder(), sources, order="random").run(stories(3)):
        old = [word.text for word in words(row.item.question)]
        assert len({tried.question for tried in row.tried}) == len(row.tried) == row.candidates
        for tried in row.tried:
            new = [word.text for word in words(tried.question)]
            (change,) = tried.changes
            differing = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
            assert tried.question != row.item.question
            assert len({a.lower() for a, _ in differing}) == 1
            if change.scope == "local":
                assert differing == [(change.word, change.replacement)]
            else:
                assert len(differing) == sum(word.lower() == change.word.lower() for word in old)
            assert [tried.question[a:b] for a, b in tried.marks] == [b for _, b in differing]
            # Figures, punctuation and the words between are untouched.
            assert "".join(c for c in tried.question if not c.isalpha()) == "".join(
                c for c in row.item.question if not c.isalpha()
            )


# --- 3: more never raises accuracy under attack --------------------------------------------------------------------


@given(first=TABLES, second=TABLES, triggers=TRIGGERS, k=st.integers(0, 3), most=st.integers(1, 12))
@settings(max_examples=12)
def test_more_sources_candidates_and_queries_never_help_the_model(
    first: dict[str, list[str]], second: dict[str, list[str]], triggers: set[str], k: int, most: int
) -> None:
    items = [
        item.model_copy(update={"question": item.question.replace("Tom", name)})
        for item, name in zip(stories(3), ["Tom", "Poison", "Ann"], strict=True)
    ]

    def run(*tables: dict[str, list[str]], queries: int = 400) -> AttackResults:
        sources = [table(found, name) for name, found in zip(("embedding", "wordnet"), tables, strict=False)]
        attack = MSCR(adder(triggers), sources, budget=Budget(max_queries=queries), control="off", average=False)
        return attack.run(items)

    def figures(*tables: dict[str, list[str]], queries: int = 400) -> tuple[float, float]:
        done = run(*tables, queries=queries).summary()
        return done.under_attack, done.success_rate

    a, b, both = figures(first), figures({}, second), figures(first, second)
    assert both[0] <= min(a[0], b[0])
    assert both[1] >= max(a[1], b[1])
    cut = {word: new[:k] for word, new in first.items()}
    assert figures({word: new[: k + 1] for word, new in first.items()})[0] <= figures(cut)[0]
    assert figures(first, second, queries=most + 1)[0] <= figures(first, second, queries=most)[0]


def test_the_rate_counts_items_that_no_source_reached() -> None:
    """One of two right items has a candidate, and breaks: that is half of them, not all."""
    items = [
        Item(id="a", question="Eggs 5", answer="5", kind="number"),
        Item(id="b", question="Hens 5", answer="5", kind="number"),
    ]
    eggs, hens = table({"eggs": ["poison"]}, "eggs"), table({"hens": ["bread"]}, "hens")
    alone = MSCR(adder(["poison"]), [eggs]).run(items).summary()
    union = MSCR(adder(["poison"]), [eggs, hens]).run(items).summary()
    assert (alone.attacked, union.attacked) == (1, 2)
    assert alone.success_rate == union.success_rate == 0.5


def test_equal_budgets_for_ablations() -> None:
    long = CallableSource("long", lambda word, q: list(VOCABULARY[2:]))
    short = CallableSource("short", lambda word, q: ["calm"])
    for sources in ([long], [short], [long, short]):
        results = MSCR(adder(), sources, budget=Budget(max_queries=6)).run(stories(2))
        assert {len(row.tried) for row in results} == {6}


# --- 6: the control -------------------------------------------------------------------------------------------------


def test_the_control_is_zero_for_a_target_that_repeats_itself() -> None:
    source = CallableSource("own", lambda word, q: ["calm", "poison"])
    target = adder(["poison"])
    results = MSCR(target, [source]).run(stories(4))
    done = results.summary()
    assert (done.null_drop, done.null_rate, done.net_drop, done.drop) == (0.0, 0.0, 1.0, 1.0)
    assert all(
        row.null is not None and row.null.asked == CERTAIN and row.null.queries == row.candidates for row in results
    )
    assert any("repeats itself" in note for note in results.notes)
    # The control by itself asks the question as it is, and nothing else.
    spy = adder(["poison"])
    alone = NullAttack(spy, 7).run(stories(4))
    assert alone.summary().drop == 0.0
    assert {asked(call.prompt) for call in spy.calls} == {item.question for item in stories(4)}
    assert {len(row.tried) for row in alone} == {7}
    assert len(spy.calls) == 4 * 8


@pytest.mark.parametrize("most", [400, 5])
def test_a_full_control_asks_as_often_as_the_attack_may(most: int) -> None:
    source = CallableSource("own", lambda word, q: ["calm", "moon"])
    target = adder()
    results = MSCR(target, [source], control="full", average=False, budget=Budget(max_queries=most)).run(stories(3))
    counted = Counter(call.key.split("/")[0] for call in target.calls if asked(call.prompt) in unchanged())
    for row in results:
        assert row.null is not None
        assert row.null.asked == row.null.queries == len(row.tried) == min(row.candidates, most)
        assert counted[row.item.id] == 1 + len(row.tried)
    assert results.summary().control_queries == results.summary().queries_total


def unchanged() -> set[str]:
    return {item.question for item in stories(3)}


def test_a_control_stops_as_the_attack_does() -> None:
    coin = Coin(0.4)
    source = CallableSource("own", lambda word, q: ["calm", "moon"])
    options: dict[str, Any] = {"sampling": Sampling(temperature=1, seed=1), "budget": Budget(reask=0, rows=1)}
    results = MSCR(coin, [source], average=False, **options).run(stories(30))
    for row in results:
        if row.null is not None:
            assert row.null.success == (row.null.asked < row.null.queries) or row.null.asked == row.null.queries
    done = results.summary()
    assert done.null_rate is not None
    assert done.null_rate > 0.9
    assert len(coin.keys) == len(set(coin.keys)) == 30 + done.queries_total + done.control_queries


def test_an_attack_on_samples_without_a_control_says_so() -> None:
    source = CallableSource("own", lambda word, q: ["calm"])
    results = MSCR(Coin(0.1), [source], control="off", sampling=Sampling(temperature=1)).run(stories(3))
    assert results.summary().null_drop is None
    assert results.summary().net_drop is None
    assert any("no control" in note for note in results.notes)


# --- Which items are attacked --------------------------------------------------------------------------------------


def test_items_already_failed_are_not_attacked_and_count_as_wrong() -> None:
    def answer(prompt: Prompt) -> str:
        question = asked(prompt)
        if " 2 apples" in question:
            return "The answer is 99."
        if " 4 apples" in question:
            return "no idea at all"
        if " 5 apples" in question:
            return "I'm sorry, but I cannot help with that."
        if " 6 apples" in question:
            return "7 and 8 and so on and on " * 99
        return f"The answer is {right(prompt) + holds(question, ['poison'])}."

    target = ScriptedTarget(answer, fail_on=lambda p: " 7 apples" in asked(p))
    source = CallableSource("own", lambda word, q: ["poison"])
    results = MSCR(target, [source]).run(stories(8))
    assert [row.attacked for row in results] == [False, True, False, False, False, False, True, True]
    assert results.summary().not_attacked == {
        "answered wrong before the attack": 1,
        "its answer cannot be read": 1,
        "refused before the attack": 1,
        "its answer was cut off": 1,
        "got no answer": 1,
    }
    done = results.summary()
    assert (done.clean, done.under_attack, done.drop) == (3 / 8, 0.0, 3 / 8)
    # The rate of success is not the drop.
    assert done.success_rate == done.relative_drop == 1.0 != done.drop
    assert all(not row.tried for row in results if not row.attacked)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        ("", "unparsed"),
        ("no idea at all", "unparsed"),
        ("I'm sorry, but I cannot help with that.", "refused"),
        ("9 and 8 and so on " * 99, "truncated"),
    ],
)
@pytest.mark.parametrize("goal", [AnswerWrong(), AnswerChanged()])
def test_unreadable_replies_are_counted_and_are_no_successes(goal: Any, reply: str, status: str) -> None:
    target = ScriptedTarget(lambda p: reply if holds(asked(p), ["poison"]) else f"The answer is {right(p)}.")
    done = MSCR(target, [table({"lie": ["poison"]}, "own")], goal=goal).run(stories(3)).summary()
    assert done.success_rate == 0.0
    assert done.met == 0
    assert {"unparsed": done.unparsed, "refused": done.refused, "truncated": done.truncated}[status] == 3


def test_queries_without_an_answer_are_no_successes() -> None:
    target = adder(["poison"], fail_on=lambda p: holds(asked(p), ["poison"]))
    results = MSCR(target, [table({"lie": ["poison"]}, "own")]).run(stories(3))
    assert results.summary().errors == 3
    assert not results.successes
    assert any("3 queries got no answer" in note for note in results.notes)


def test_goals_of_a_question_without_a_gold_answer() -> None:
    items = [item.model_copy(update={"answer": None}) for item in stories(3)]
    source = table({"lie": ["poison"]}, "own")
    wrong = MSCR(adder(["poison"]), [source]).run(items)
    assert wrong.summary().attacked == 0
    assert wrong.summary().clean == 0.0
    changed = MSCR(adder(["poison"]), [source], goal=AnswerChanged()).run(items).summary()
    assert (changed.attacked, changed.clean, changed.under_attack, changed.success_rate) == (3, 1.0, 0.0, 1.0)


def test_longer_answers_balance_too() -> None:
    def answer(prompt: Prompt) -> str:
        wrong = " 2 apples" in asked(prompt)
        return ("so " * 20 * holds(asked(prompt), ["poison"])) + f"The answer is {right(prompt) + wrong}."

    done = MSCR(ScriptedTarget(answer), [table({"lie": ["poison"]}, "own")], goal=Longer(2)).run(stories(4)).summary()
    assert (done.clean, done.attacked, done.success_rate, done.under_attack) == (0.75, 3, 1.0, 0.0)


# --- Several words, orders, runs ----------------------------------------------------------------------------------


def pair(prompt: Prompt) -> str:
    question = asked(prompt).lower()
    return f"The answer is {right(prompt) + ('poison' in question and 'glass' in question)}."


PAIR = table({"buys": ["calm", "poison"], "lie": ["glass", "moon"], "apples": ["bread"]}, "wordnet")


def damage(prompt: Prompt, answer: str) -> float:
    question = asked(prompt).lower()
    return -1.0 - 2.0 * ("poison" in question) - 3.0 * ("glass" in question)


@pytest.mark.parametrize("scored", [False, True])
def test_two_words_break_what_one_does_not(scored: bool) -> None:
    target = ScriptedTarget(pair, scorer=damage) if scored else ScriptedTarget(pair)
    assert MSCR(target, [PAIR]).run(stories(2)).summary().success_rate == 0.0
    results = MSCR(target, [PAIR], max_words=2, beam=4).run(stories(2))
    for row in results:
        assert row.hit is not None
        assert row.success
        assert {c.replacement for c in row.hit.changes} == {"poison", "glass"}
        assert [row.hit.question[a:b] for a, b in row.hit.marks] == ["poison", "glass"]
        assert len({t.question for t in row.tried}) == len(row.tried)
        assert row.item.question not in {t.question for t in row.tried}
        assert [len(t.changes) for t in row.tried] == sorted(len(t.changes) for t in row.tried)
        assert len(row.tried) <= row.candidates
        # The average case is that of one word.
        assert row.average is not None
        assert len(row.average.changes) == 1
    # By score the beam goes on from what came nearest to breaking, so it finds the pair at once.
    first_pair = [sum(len(t.changes) == 2 for t in row.tried) for row in results]
    narrow = MSCR(target, [PAIR], max_words=2, beam=1).run(stories(2))
    if scored:
        assert first_pair[0] <= 3
        assert narrow.summary().success_rate == 1.0
        assert results.summary().scored == 2 * 5
    else:
        # Without scores a beam of one follows the first candidate of the first word, which leads nowhere.
        assert narrow.summary().success_rate == 0.0
        assert results.summary().scored == 0


def test_several_words_stay_within_the_budget() -> None:
    for most in (2, 5, 7, 30):
        results = MSCR(adder(), [PAIR], max_words=3, budget=Budget(max_queries=most)).run(stories(2))
        assert all(len(row.tried) <= most for row in results)
        assert all(len(row.tried) == most for row in results) or most == 30


@pytest.mark.parametrize("order", ["left_to_right", "random", "importance", "importance_mask", "guided"])
def test_orders_change_the_way_and_not_the_outcome(order: Any) -> None:
    def score(prompt: Prompt, answer: str) -> float:
        return -5.0 if not holds(asked(prompt), ["lie"]) else -1.0

    target = ScriptedTarget(lambda p: adder_says(p), scorer=score)
    source = CallableSource("own", lambda word, q: ["calm", "poison"] if word == "lie" else ["calm", "moon"])
    results = MSCR(target, [source], order=order).run(stories(3))
    assert results.summary().success_rate == 1.0
    assert results.settings["order"] == order
    to_success = results.summary().queries_to_success
    assert to_success is not None
    if order in ("importance", "importance_mask", "guided"):
        assert to_success == 2.0
        assert results.summary().scored > 0
    else:
        assert results.summary().scored == 0
    if order == "left_to_right":
        assert to_success > 10


def adder_says(prompt: Prompt) -> str:
    return f"The answer is {right(prompt) + holds(asked(prompt), ['poison'])}."


def test_several_runs_are_counted_item_by_item() -> None:
    source = CallableSource("own", lambda word, q: ["calm", "poison"])
    coin = Coin(lambda q: 1.0 if holds(q, ["poison"]) else 0.1)
    options: dict[str, Any] = {"sampling": Sampling(temperature=1, seed=4), "budget": Budget(rows=256)}
    results = MSCR(coin, [source], runs=3, **options).run(stories(7))
    done = results.summary()
    assert (done.items, done.runs, len(results)) == (7, 3, 21)
    rows = {(row.item.id, row.run): row for row in results}
    right_before = sum(row.clean.status == "correct" for row in rows.values())
    assert done.clean == pytest.approx(right_before / 21)
    assert 0.5 < done.clean < 1
    assert done.drop_spread > 0
    assert done.net_p is not None
    # Runs draw numbers of their own.
    assert len({tuple(rows[(f"q{i}", run)].clean.parsed for i in range(7)) for run in range(3)}) > 1


def test_one_seed_one_outcome() -> None:
    source = CallableSource("own", lambda word, q: ["calm", "moon"])

    def run(seed: int) -> list[dict[str, Any]]:
        attack = MSCR(Coin(0.2), [source], sampling=Sampling(temperature=1, seed=seed), seed=seed, order="random")
        return [row.model_dump() for row in attack.run(stories(5))]

    assert run(1) == run(1) != run(2)


def test_the_average_case_is_one_rewrite_an_item() -> None:
    source = CallableSource("own", lambda word, q: ["calm", "moon", "poison", "bread"])
    target = adder(["poison"])
    results = MSCR(target, [source]).run(stories(40))
    done = results.summary()
    assert done.drop == 1.0
    assert done.average_drop is not None
    assert 0.05 < done.average_drop < 0.5
    assert all(row.average is not None and len(row.average.changes) == 1 for row in results)
    assert len({row.average.rank for row in results if row.average}) > 5


# --- Questions of every kind --------------------------------------------------------------------------------------

WORD_SOURCE = CallableSource("own", lambda word, q: ["calm", "poison"])


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("5", "it has no words"),
        ("5 + ?!", "it has no words"),
        ("\U0001f34e\U0001f34e + 5 \U0001f600", "it has no words"),
        ("$x + y = 5$", "all of its words are protected"),
        ("\\[ \\frac{5}{1} \\]", "it has no words"),
        ("how many more than 5", ""),
        ("five times each", "all of its words are protected"),
    ],
)
def test_questions_with_nothing_to_change(question: str, reason: str) -> None:
    target = ScriptedTarget(lambda p: "5")
    (row,) = MSCR(target, [WORD_SOURCE]).run([Item(id="a", question=question, answer="5", kind="number")])
    assert row.reason == reason
    assert row.attacked == (not reason)
    assert not row.success


@pytest.mark.parametrize(
    "question",
    [
        "\u0423 \u041c\u0430\u0448\u0438 5 \u044f\u0431\u043b\u043e\u043a.",
        "\u5c0f\u660e \u6709 5 \u4e2a\u82f9\u679c",
        "\u0632\u064a\u062f \u0644\u062f\u064a\u0647 5 \u062a\u0641\u0627\u062d\u0627\u062a",
        "Zoe\u0308 has 5 \U0001f34e and na\u00efve\u200d eggs\ufe0f",
        "e\u0301\u0301\u0301 5 \u202egnp",
    ],
)
def test_other_scripts(question: str) -> None:
    target = ScriptedTarget(lambda p: "6" if "poison" in asked(p).lower() else "5")
    (row,) = MSCR(target, [WORD_SOURCE]).run([Item(id="a", question=question, answer="5", kind="number")])
    assert row.success
    assert row.hit is not None
    assert row.hit.question != question


def test_a_question_of_ten_thousand_words() -> None:
    body = " ".join("".join("abcdefghij"[int(digit)] for digit in f"{i:05d}") for i in range(10_000))
    source = CallableSource("own", lambda word, q: ["poison"] if word.endswith("jjj") else [])
    target = ScriptedTarget(lambda p: "6" if "poison" in asked(p) else "5")
    (row,) = MSCR(target, [source], budget=Budget(rows=4), protect="none").run(
        [Item(id="a", question=f"{body} 5", answer="5", kind="number")]
    )
    assert row.success
    assert row.words == 10_000
    assert row.candidates == 10
    assert len(row.tried) == 1


def test_a_target_that_says_nothing() -> None:
    results = MSCR(ScriptedTarget(lambda p: ""), [WORD_SOURCE]).run(stories(3))
    done = results.summary()
    assert (done.clean, done.attacked, done.success_rate, done.queries) == (0.0, 0, 0.0, 0.0)
    assert done.not_attacked == {"its answer cannot be read": 3}


@pytest.mark.parametrize(
    "questions",
    [[], {}, DataSet(name="d", items=()), ["How many?"], [5], stories(2) + stories(1), "no-such-file.jsonl", [{}]],
)
def test_questions_that_are_none(questions: Any) -> None:
    target = adder()
    with pytest.raises((DataError, ConfigError)) as caught:
        MSCR(target, [WORD_SOURCE]).run(questions)
    assert caught.value.hint
    assert target.calls == []


def test_questions_in_every_form(tmp_path: Path) -> None:
    import datasets

    rows = [{"id": item.id, "question": item.question, "answer": item.answer} for item in stories(2)]
    file = tmp_path / "mine.jsonl"
    import json

    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    forms: list[Any] = [stories(2), rows, datasets.Dataset.from_list(rows), str(file), file]
    outcomes = [
        [(r.item.id, r.success, len(r.tried)) for r in MSCR(adder(["poison"]), [WORD_SOURCE]).run(form)]
        for form in forms
    ]
    assert all(found == outcomes[0] for found in outcomes)
    assert outcomes[0][0][1]


@pytest.mark.parametrize(
    "options",
    [
        {"max_words": 0},
        {"beam": 0},
        {"runs": 0},
        {"on_reject": "never"},
        {"control": "some"},
        {"preset": "mine"},
        {"style": "turns"},
        {"template": "no place for it"},
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    target = adder(capabilities={"generate", "seed"})
    with pytest.raises(ConfigError):
        MSCR(target, [WORD_SOURCE], **options).run(stories(1))
    assert target.calls == []


def test_a_target_that_cannot_answer() -> None:
    with pytest.raises(ConfigError, match="cannot answer"):
        MSCR(adder(capabilities={"embed"}), [WORD_SOURCE])
    with pytest.raises(ConfigError):
        NullAttack(adder(), 0)


def test_shots_system_and_template_reach_every_query() -> None:
    shots = tuple(item.model_copy(update={"id": f"s{item.id}"}) for item in stories(2))
    data = DataSet(name="d", items=tuple(stories(2)), shots=shots)
    target = adder(["poison"])
    MSCR(target, [WORD_SOURCE], system="Be brief.", template="Q: {question}\nGo.").run(data)
    for call in target.calls:
        roles = [message["role"] for message in call.prompt]  # type: ignore[index]
        assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
        assert call.prompt[-1]["content"].endswith("\nGo.")  # type: ignore[index, union-attr]


# --- A folder: kept, killed, gone on with --------------------------------------------------------------------------


def files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def noisy(**options: Any) -> MSCR:
    """Sampled, re-asked, judged and controlled: every kind of query is in it."""

    def answer(prompt: Prompt) -> str:
        import zlib

        luck = zlib.crc32(asked(prompt).encode()) % 5 == 0
        return f"The answer is {right(prompt) + (luck or holds(asked(prompt), ['poison']))}."

    def protect(question: str) -> list[tuple[int, int]]:
        return [(0, 3)]

    target = ScriptedTarget(answer, **options)
    return MSCR(
        target,
        [CallableSource("embedding", lambda w, q: [w + "s", "moon"]), CallableSource("own", lambda w, q: ["poison"])],
        protect=protect,
        adjudicator=Resolver(lambda question: None if "moon" in question else "1"),
        budget=Budget(reask=2, rows=4),
        control="full",
        max_words=2,
        beam=1,
    )


class Killed(Exception):
    """Stands for the end of the process."""


def test_a_run_that_breaks_off_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole = noisy()
    whole.run(stories(3), out=tmp_path / "whole")
    wanted = files(tmp_path / "whole")
    total = len(whole.target.calls)  # type: ignore[attr-defined]
    assert total > 80

    def end_at(most: int) -> Any:
        def before(count: int, prompt: Prompt) -> None:
            if count >= most:
                raise Killed

        return before

    for most in (0, 3, total // 2, total - 1):
        folder = tmp_path / f"broken{most}"
        with pytest.raises(Killed):
            noisy(before=end_at(most)).run(stories(3), out=folder)
        assert not (folder / "settings.json").exists()
        with pytest.raises(DataError, match="not a finished attack"):
            AttackResults.load(folder)
        again = noisy()
        again.run(stories(3), out=folder)
        assert files(folder) == wanted
        # What was answered is not asked again: at most a batch is lost.
        assert len(again.target.calls) <= total - most + 16  # type: ignore[attr-defined]
    done = noisy()
    done.run(stories(3), out=tmp_path / "whole")
    assert done.target.calls == []
    assert files(tmp_path / "whole") == wanted


def _run_slowly(folder: str) -> None:
    noisy(latency=0.003).run(stories(3), out=folder)
    os._exit(0)


def test_a_run_killed_at_any_moment_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    noisy().run(stories(3), out=tmp_path / "whole")
    wanted = files(tmp_path / "whole")
    fork, moments = get_context("fork"), random.Random(0)
    folder, killed = tmp_path / "killed", 0
    for _ in range(5):
        process = fork.Process(target=_run_slowly, args=(str(folder),))
        process.start()
        time.sleep(moments.uniform(0.02, 0.12))
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        killed += process.exitcode == -signal.SIGKILL
    assert killed
    noisy().run(stories(3), out=folder)
    assert files(folder) == wanted


def test_a_run_killed_while_it_is_written_goes_on_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from intarsia.robustness import export, results

    noisy().run(stories(2), out=tmp_path / "whole")
    wanted = files(tmp_path / "whole")
    write = results.write_atomic
    for most in (0, 1, 3, 6, 8):
        folder, written = tmp_path / f"w{most}", 0

        def dying(path: Any, content: Any, most: int = most) -> Path:
            nonlocal written
            if written == most:
                raise Killed
            written += 1
            return write(path, content)

        with monkeypatch.context() as patched:
            patched.setattr(results, "write_atomic", dying)
            patched.setattr(export, "write_atomic", dying)
            with pytest.raises(Killed):
                noisy().run(stories(2), out=folder)
        with pytest.raises(DataError):
            AttackResults.load(folder)
        again = noisy()
        again.run(stories(2), out=folder)
        assert files(folder) == wanted
        assert again.target.calls == []


def test_a_lock_left_alone_is_no_other_run(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl.lock").write_text("1")
    MSCR(adder(["poison"]), [WORD_SOURCE]).run(stories(1), out=tmp_path)
    assert AttackResults.load(tmp_path).summary().success_rate == 1.0


def test_settings_are_the_same_in_the_next_process(tmp_path: Path) -> None:
    import re

    for protect in (lambda q: [(0, 1)], re.compile("eggs"), "re:eggs"):
        attack = MSCR(adder(), [WORD_SOURCE], protect=protect)
        settings = attack.settings(
            DataSet(name="d", items=tuple(stories(1))), attack.asking(DataSet(name="d", items=tuple(stories(1))))
        )
        assert " at 0x" not in str(settings)
    assert settings["protect"] == "re:eggs"


def test_folders_that_are_taken(tmp_path: Path) -> None:
    def run(folder: Path, **options: Any) -> None:
        resume = options.pop("resume", True)
        MSCR(adder(["poison"]), [WORD_SOURCE], **options).run(stories(1), out=folder, resume=resume)

    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(ConfigError, match="is a file"):
        run(file)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match="holds no attack"):
        run(other)
    assert sorted(p.name for p in other.iterdir()) == ["thesis.tex"]
    mine = tmp_path / "mine"
    run(mine)
    before = files(mine)
    with pytest.raises(ConfigError, match="other settings"):
        run(mine, seed=1)
    with pytest.raises(ConfigError, match="holds a run already"):
        run(mine, resume=False)
    with pytest.raises(ConfigError, match="other settings"):
        MSCR(adder(["poison"]), [WORD_SOURCE]).run(stories(2), out=mine)
    assert files(mine) == before

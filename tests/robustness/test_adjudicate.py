"""Who decides whether a success stands, and what they are shown."""

from __future__ import annotations

import re
from typing import Any

import pytest

from intarsia.core.data import Item
from intarsia.core.errors import ConfigError
from intarsia.core.sampling import Sampling
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Target, prompt_text
from intarsia.robustness import MSCR, AttackResults, Budget, CallableSource, LLMJudge, Resolver, SelfConsistency
from tests.robustness.victims import Coin, Spy, adder, asked, holds, right, stories

SOURCE = CallableSource("own", lambda word, question: ["calm", "poison"])
TRIGGERS = ["poison"]


def attack(adjudicator: Any, target: Target | None = None, n: int = 3, **options: Any) -> AttackResults:
    return MSCR(target or adder(TRIGGERS), [SOURCE], adjudicator=adjudicator, **options).run(stories(n))


def judge(answer: str, **options: Any) -> LLMJudge:
    return LLMJudge(ScriptedTarget(lambda prompt: answer, name="judge", **options))


class Always:
    """Rules the same on everything."""

    name, note = "always", ""

    def __init__(self, said: str) -> None:
        self._judge = judge(said)

    def rule(self, hits: Any, asking: Any, goal: Any) -> Any:
        return self._judge.rule(hits, asking, goal)


def steps(results: AttackResults) -> list[Any]:
    return [[t.model_copy(update={"ruled": "", "reason": ""}) for t in row.tried] for row in results]


@pytest.mark.parametrize("on_reject", ["continue", "stop"])
def test_always_correct_leaves_accuracy_as_it_was(on_reject: Any) -> None:
    results = attack(judge("VERDICT: CORRECT"), on_reject=on_reject)
    done = results.summary()
    assert done.under_attack == done.clean == 1.0
    assert done.success_rate == 0.0
    assert done.met == done.rejected > 0
    assert results.successes == ()


def test_always_wrong_is_the_attack_without_an_adjudicator() -> None:
    with_judge, without = attack(judge("VERDICT: WRONG")), attack(None)
    assert steps(with_judge) == steps(without)
    assert len(without.successes) == 3
    assert with_judge.summary() == without.summary()


@pytest.mark.parametrize(
    ("said", "ruled"),
    [
        ("Working ... VERDICT: WRONG", "confirmed"),
        ("**Verdict:** **Incorrect**", "confirmed"),
        ("verdict = correct", "rejected"),
        ("VERDICT: WRONG, I thought. But no.\nVERDICT: CORRECT", "rejected"),
        ("VERDICT: UNCLEAR", "unsure"),
        ("Wrong.", "confirmed"),
        ("correct", "rejected"),
        ("Correct answer: 5. The student says 6, which is not it.", "unsure"),
        ("wrongly put", "unsure"),
        ("", "unsure"),
        ("I like eggs.", "unsure"),
        ("VERDICT: not correct", "unsure"),
    ],
)
def test_verdicts(said: str, ruled: str) -> None:
    results = attack(judge(said), n=1, on_reject="stop")
    assert [t.ruled for row in results for t in row.tried if t.met] == [ruled]
    assert results.summary().unsure == (ruled == "unsure")
    assert bool(results.successes) == (ruled == "confirmed")


def test_a_judge_that_continues_text_is_read_at_the_start() -> None:
    said = " WRONG\n\nQuestion:\nWhat is 1 + 1?\n\nStudent's answer:\n2\n\nVERDICT: CORRECT"
    asked_for: list[str] = []
    base = ScriptedTarget(
        lambda prompt: asked_for.append(prompt_text(prompt)) or said, name="base", capabilities={"generate", "seed"}
    )
    results = attack(LLMJudge(base), n=1)
    assert [t.ruled for row in results for t in row.tried if t.met] == ["confirmed"]
    assert asked_for[0].endswith("VERDICT:")


def test_a_judge_that_gives_no_answer_confirms_nothing() -> None:
    results = attack(judge("VERDICT: WRONG", fail_on=lambda prompt: True), n=1)
    assert results.summary().unsure == results.summary().met > 0
    assert "no verdict" in next(t.reason for t in results.rows[0].tried if t.ruled)


def test_a_judge_cut_off_in_its_working_confirms_nothing() -> None:
    words = "I think and think and think about it. VERDICT: WRONG"
    assert not attack(LLMJudge(ScriptedTarget(lambda p: words, name="j"), max_new_tokens=4), n=1).successes


def test_the_judge_sees_the_rewritten_question_and_the_answer_and_never_the_gold_answer() -> None:
    item = Item(
        id="a", question="What hue has the sky?", answer="ultramarine", kind="word", meta={"aliases": ["azure"]}
    )
    victim = ScriptedTarget(lambda prompt: "green" if holds(asked(prompt), TRIGGERS) else "ultramarine")
    spy = Spy(ScriptedTarget(lambda prompt: "VERDICT: WRONG", name="judge"))
    (row,) = MSCR(victim, [SOURCE], adjudicator=LLMJudge(spy)).run([item])
    assert row.hit is not None
    assert len(spy.seen) == 1
    text = spy.seen[0][1]
    assert row.hit.question in text
    assert "green" in text
    assert "ultramarine" not in text
    assert "azure" not in text
    assert item.question not in text


def test_braces_in_question_and_answer_are_left_alone() -> None:
    item = Item(id="a", question="Set {answer} holds 3 eggs and {question} 2.", answer="5", kind="number")
    victim = ScriptedTarget(lambda p: "{question} \\boxed{9}" if holds(asked(p), TRIGGERS) else "5")
    spy = Spy(ScriptedTarget(lambda prompt: "VERDICT: WRONG", name="judge"))
    (row,) = MSCR(victim, [SOURCE], adjudicator=LLMJudge(spy), protect="re:answer|question").run([item])
    assert row.hit is not None
    assert "{question} \\boxed{9}" in spy.seen[0][1]
    assert row.hit.question in spy.seen[0][1]


def test_options_are_shown_to_the_judge() -> None:
    item = Item(
        id="a", question="Which is a fruit?", answer="A", kind="choice", meta={"choices": ["apple", "stone", "tea"]}
    )
    victim = ScriptedTarget(lambda p: "B" if "poison" in prompt_text(p).lower() else "A")
    spy = Spy(ScriptedTarget(lambda prompt: "VERDICT: WRONG", name="judge"))
    assert MSCR(victim, [SOURCE], adjudicator=LLMJudge(spy)).run([item]).successes
    assert "B. stone" in spy.seen[0][1]


def test_a_judge_that_is_the_target_itself_is_noted() -> None:
    both = adder(TRIGGERS, name="same")
    itself = LLMJudge(both)
    assert any("under attack itself" in note for note in attack(itself, both).notes)
    # The same judge for another target, also where nothing is there to judge.
    assert attack(itself, adder(TRIGGERS, name="other")).notes == attack(judge("VERDICT: WRONG")).notes
    assert not any("itself:" in note for note in attack(itself, adder(name="other")).notes)
    assert any("is the target itself" in note for note in attack(Resolver(both), both).notes)
    assert any("found out" in note for note in attack(SelfConsistency(3)).notes)


def test_self_consistency_tells_a_slip_from_a_failure() -> None:
    source = CallableSource("own", lambda word, question: ["calm", "poison"] if word.lower() == "lie" else [])

    def error(question: str) -> float:
        return 1.0 if holds(question, ["poison"]) else 0.3 if holds(question, ["calm"]) else 0.0

    sampled = Sampling(temperature=0.7, seed=5)
    options: dict[str, Any] = {"sampling": sampled, "budget": Budget(reask=0), "average": False}
    slips = MSCR(Coin(error), [source], **options).run(stories(40))
    assert {row.hit.changes[0].replacement for row in slips if row.hit} == {"calm", "poison"}
    held = MSCR(Coin(error), [source], adjudicator=SelfConsistency(7), **options).run(stories(40))
    assert len(held.successes) == 40
    replaced = [row.hit.changes[0].replacement for row in held if row.hit]
    assert replaced.count("poison") >= 38
    assert held.summary().rejected > 3


def test_the_control_meets_the_same_adjudicator() -> None:
    """A control whose hits nobody questions would make the attack look better behaved than no attack at all."""
    source = CallableSource("own", lambda word, question: ["calm"])
    options: dict[str, Any] = {
        "sampling": Sampling(temperature=1, seed=2),
        "budget": Budget(reask=0),
        "control": "full",
    }
    loose = MSCR(Coin(0.2), [source], **options).run(stories(20)).summary()
    held = MSCR(Coin(0.2), [source], adjudicator=SelfConsistency(15), **options).run(stories(20)).summary()
    assert loose.null_rate is not None
    assert loose.null_rate > 0.8
    assert held.null_rate is not None
    assert held.null_rate < 0.2
    assert held.success_rate < 0.2
    strict = MSCR(Coin(0.2), [source], adjudicator=judge("VERDICT: CORRECT"), **options).run(stories(20)).summary()
    assert strict.null_drop == strict.drop == strict.net_drop == 0.0


def test_a_resolver_finds_rewrites_that_changed_the_sum() -> None:
    """`two` for `three` is no failure of the model: it answers what it was asked."""
    numbers = {"two": 2, "three": 3, "four": 4}

    def total(question: str) -> int:
        return sum(numbers.get(word, 0) for word in re.findall(r"[a-z]+", question.lower()))

    item = Item(id="a", question="Ann has two eggs and Bob has four.", answer="6", kind="number")
    victim = ScriptedTarget(lambda p: f"{total(asked(p)) + ('poison' in asked(p))}")
    source = CallableSource("mlm", lambda word, q: ["three"] if word == "two" else ["poison"] if word == "eggs" else [])

    def run(**options: Any) -> AttackResults:
        return MSCR(victim, [source], **options).run([item])

    def swap(results: AttackResults) -> list[str]:
        return [row.hit.changes[0].replacement for row in results if row.hit]

    assert swap(run(protect="none")) == ["three"]  # the protected span is what keeps this out by default
    assert swap(run(protect="math")) == ["poison"]
    for solver in (
        total,
        lambda question: str(total(question)),
        ScriptedTarget(lambda p: f"{total(asked(p))}", name="s"),
    ):
        found = run(protect="none", adjudicator=Resolver(solver))  # type: ignore[arg-type]
        assert swap(found) == ["poison"]
        assert found.summary().rejected == 1


def test_a_resolver_that_cannot_tell_confirms_nothing() -> None:
    assert attack(Resolver(lambda question: None)).summary().unsure > 0
    silent = attack(Resolver(ScriptedTarget(lambda prompt: "", name="mute")))
    assert silent.successes == ()
    assert silent.summary().unsure > 0


def test_a_resolver_goes_by_the_majority() -> None:
    wise = ScriptedTarget(lambda p: f"{right(p)}", name="wise")
    assert len(attack(Resolver(wise, k=3)).successes) == 3

    flaky = Coin(0.3, name="flaky")
    hits = attack(Resolver(flaky, k=9, temperature=1.0))
    assert len(hits.successes) == 3
    assert len(flaky.keys) == 9 * hits.summary().met


def test_bad_adjudicators() -> None:
    with pytest.raises(ConfigError):
        SelfConsistency(0)
    with pytest.raises(ConfigError):
        LLMJudge(adder(), instructions="no places")
    with pytest.raises(ConfigError, match="judged"):
        MSCR(adder(), [SOURCE], preset="paper")


def test_the_papers_protocol() -> None:
    paper = MSCR(adder(TRIGGERS), [SOURCE], preset="paper", adjudicator=judge("VERDICT: WRONG"))
    results = paper.run(stories(2))
    settings = results.settings
    assert (settings["goal"], settings["on_reject"], settings["protect"], settings["runs"]) == (
        "answer_changed",
        "stop",
        "none",
        3,
    )
    assert settings["sampling"]["temperature"] == 0.6
    assert settings["budget"]["reask"] == 0
    assert len(results) == 6
    assert results.summary().again == 0

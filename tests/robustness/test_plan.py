"""Plans: which word comes first, what the gates leave, and going on from one change to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.data import DataSet, Item
from intarsia.core.errors import ConfigError
from intarsia.core.sampling import Sampling
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Target
from intarsia.robustness import MSCR, CallableSource
from intarsia.robustness.asking import Asking
from intarsia.robustness.candidates import Candidate, Rewrite
from intarsia.robustness.gates import GateResult
from intarsia.robustness.goals import Reply
from intarsia.robustness.plan import Plan, Planner, moved
from intarsia.robustness.search import Step
from intarsia.robustness.words import Span, words
from tests.robustness.victims import adder, asked, stories

ITEM = Item(id="i", question="red apples fall on soft grass", answer="5", kind="number")
CLEAN = Reply(text="5", parsed="5", status="correct")
SOURCE = CallableSource("own", lambda word, question: [word + "a", word + "b"])


def asking(target: Target | None = None) -> Asking:
    return Asking(target=target or adder(), sampling=Sampling(), data=DataSet(name="d", items=(ITEM,)))


def plan(planner: Planner, target: Target | None = None, item: Item = ITEM) -> Plan:
    return planner.plan(item, CLEAN, asking(target))


def planner(*sources: Any, **options: Any) -> Planner:
    return Planner(
        sources or (SOURCE,), scope=options.pop("scope", {}), protect=options.pop("protect", "none"), **options
    )


def replaced(found: Plan) -> list[str]:
    return [step.changes[0].replacement for step in found.steps]


def test_left_to_right() -> None:
    found = plan(planner())
    assert replaced(found) == [word + end for word in ITEM.question.split() for end in "ab"]
    assert (found.words, found.scored, dict(found.rejected)) == (6, 0, {})


def test_random_order_shuffles_words_by_seed_and_item() -> None:
    first, again = plan(planner(order="random", seed=1)), plan(planner(order="random", seed=1))
    assert first == again
    assert sorted(replaced(first)) == sorted(replaced(plan(planner())))
    # A word's candidates stay together and in their order.
    assert all(
        a[:-1] == b[:-1] and (a[-1], b[-1]) == ("a", "b") for a, b in zip(replaced(first)[::2], replaced(first)[1::2])
    )
    others = [plan(planner(order="random", seed=1), item=ITEM.model_copy(update={"id": str(i)})) for i in range(8)]
    assert len({tuple(replaced(other)) for other in others}) > 4
    assert {tuple(replaced(plan(planner(order="random", seed=s)))) for s in range(8)} != {tuple(replaced(first))}


WEIGHT = {"red": 0.5, "apples": 3.0, "fall": 2.0, "on": 0.1, "soft": 0.0, "grass": 1.0}


def weigh(prompt: Any, continuation: str) -> float:
    """Each word that still stands adds to the answer's log-probability; new words add a little."""
    assert continuation == "5"
    return sum(WEIGHT.get(word, 0.01 * len(word)) for word in asked(prompt).split()) - 20.0


def test_importance_ranks_words_by_how_much_the_answer_needs_them() -> None:
    target = ScriptedTarget(lambda p: "5", scorer=weigh)
    found = plan(planner(order="importance"), target)
    assert [r[:-1] for r in replaced(found)[::2]] == ["apples", "fall", "grass", "red", "on", "soft"]
    assert found.scored == 7
    texts = [asked(call.prompt) for call in target.calls]
    assert texts[0] == ITEM.question
    assert texts[2] == "red fall on soft grass"


def test_importance_by_masking() -> None:
    target = ScriptedTarget(lambda p: "5", scorer=weigh)
    found = plan(planner(order="importance_mask"), target)
    assert [r[:-1] for r in replaced(found)[::2]] == ["apples", "fall", "grass", "red", "on", "soft"]
    assert asked(target.calls[2].prompt) == "red _ fall on soft grass"


def test_guided_asks_the_most_damaging_rewrite_first() -> None:
    target = ScriptedTarget(lambda p: "5", scorer=weigh)
    found = plan(planner(order="guided"), target)
    by_score = [weigh(step.text, "5") for step in found.steps]
    assert by_score == sorted(by_score)
    assert replaced(found)[0] == "applesa"
    assert found.scored == len(found.steps) == 12
    assert sorted(replaced(found)) == sorted(replaced(plan(planner())))


def test_questions_without_gold_are_ranked_by_the_own_answer() -> None:
    target = ScriptedTarget(lambda p: "5", scorer=weigh)
    own = ITEM.model_copy(update={"answer": None})
    assert replaced(plan(planner(order="importance"), target, own))[0] == "applesa"


@pytest.mark.parametrize("order", ["importance", "importance_mask", "guided"])
def test_orders_that_need_scores_say_so(order: Any) -> None:
    with pytest.raises(ConfigError, match="log-prob"):
        plan(planner(order=order), adder())
    # Nothing to rank, nothing to score.
    assert plan(planner(CallableSource("none", lambda w, q: []), order=order), adder(scorer=weigh)).steps == []


class Short:
    """A gate that keeps short words."""

    name = "short"

    def check(self, question: str, rewrites: Sequence[Rewrite]) -> list[GateResult]:
        return [GateResult(len(r.replacement) <= 5, -float(len(r.replacement))) for r in rewrites]


def test_gates_filter_are_counted_and_leave_their_figure() -> None:
    found = plan(planner(gates=[Short()]))
    assert replaced(found) == ["reda", "redb", "falla", "fallb", "ona", "onb", "softa", "softb"]
    assert dict(found.rejected) == {"short": 4}
    assert found.steps[0].changes[0].gates == {"short": -4.0}
    (row,) = MSCR(adder(), [CallableSource("own", lambda w, q: ["lengthyword"])], gates=[Short()]).run(
        [ITEM.model_copy(update={"question": "red 5 apples"})]
    )
    assert (row.attacked, row.reason, row.gated) == (False, "no candidate passes the gates", {"short": 2})
    (row,) = MSCR(adder(), [CallableSource("own", lambda w, q: [])], gates=[Short()]).run(stories(1))
    assert row.reason == "no source has a candidate for any of its words"


class Lists:
    """A source that gives whatever it was told."""

    name = "lists"

    def __init__(self, found: list[list[Candidate]]) -> None:
        self._found = found

    def propose(self, question: str, words: Sequence[Any]) -> list[list[Candidate]]:
        return self._found


def test_sources_that_are_none() -> None:
    with pytest.raises(ConfigError, match="same name"):
        planner(SOURCE, SOURCE)
    with pytest.raises(ConfigError, match="no source"):
        planner("wordnet")
    for found in ([], [[]] * 7):
        with pytest.raises(ConfigError, match="lists for 6 words"):
            plan(planner(Lists(found)))


def test_bad_names_are_refused_before_anything_is_asked() -> None:
    target = adder()
    with pytest.raises(ConfigError, match="word order"):
        MSCR(target, [SOURCE], order="alphabet")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="protection"):
        MSCR(target, [SOURCE], protect="maths")
    with pytest.raises(ConfigError):
        MSCR(target, [SOURCE], protect="re:(")
    assert target.calls == []


def test_deeper_changes_one_more_word_and_leaves_the_first() -> None:
    made = planner()
    step = Step.of(
        Rewrite(
            "red pears fall on soft grass",
            "apples",
            "pears",
            "own",
            index=1,
            after=(Span(4, 9),),
            before=(Span(4, 10),),
        )
    )
    found = made.deeper(ITEM, step)
    assert len(found) == 10
    for further in found:
        assert further.changes[0].word == "apples"
        assert len(further.changes) == 2
        assert [further.text[a:b] for a, b in further.marks].count("pears") == 1
        assert {further.text[a:b] for a, b in further.marks} == {"pears", further.changes[1].replacement}
        assert further.marks == tuple(sorted(further.marks))


@given(
    question=st.lists(
        st.sampled_from(["red", "an", "apples", "Apples", "x.", "(blue)", "end"]), min_size=3, max_size=9
    ),
    scope=st.sampled_from(["local", "global"]),
    new=st.sampled_from(["", "longword", "z", "two words"]),
)
@settings(max_examples=40)
def test_marks_move_with_the_text(question: list[str], scope: Any, new: str) -> None:
    text = " ".join([*question, "pears"])
    step = Step(text, marks=(Span(len(text) - 5, len(text)),))
    made = Planner([CallableSource("own", lambda w, q: [new])], scope={"own": scope}, protect="re:pears")
    for further in made.deeper(ITEM, step):
        assert "pears" in [further.text[a:b] for a, b in further.marks]


def test_moved_counts_the_space_of_a_word_that_is_left_out() -> None:
    found = words("a soft red cat")
    rewrite = Rewrite("a red cat", "soft", "", "own", before=(Span(2, 6),), after=(Span(2, 2),))
    marks = [Span(found[0].start, found[0].end), Span(found[3].start, found[3].end)]
    assert moved(marks, rewrite, -5) == [Span(0, 1), Span(6, 9)]


def test_the_words_of_an_answer_stay_where_they_stand() -> None:
    item = Item(id="w", question="Is grass red or soft?", answer="Red", kind="word", meta={"aliases": ["soft"]})
    assert replaced(plan(planner(protect="math"), item=item))[::2] == ["Isa", "grassa", "ora"]
    # The paper protects nothing.
    assert replaced(plan(planner(protect="none"), item=item))[::2] == ["Isa", "grassa", "reda", "ora", "softa"]
    step = plan(planner(protect="math"), item=item).steps[2]
    assert {c.word for s in planner(protect="math").deeper(item, step) for c in s.changes[1:]} == {"Is", "or"}

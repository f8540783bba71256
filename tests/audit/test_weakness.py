from __future__ import annotations

import random

import pytest
from scipy.stats import fisher_exact

from intarsia.audit.capability.verdicts import Asked, Outcome
from intarsia.audit.capability.weakness import kinds, weak_spots, weakness_claim
from intarsia.core.answers import Verdict
from intarsia.core.data import DataSet, Item
from intarsia.core.data.floors import Floor
from intarsia.core.target import Completion


def asked(rights: dict[str, tuple[int, int]]) -> Asked:
    """A set whose kinds have (right answers, items)."""
    outcomes = []
    for name, (right, n) in rights.items():
        for i in range(n):
            item = Item(id=f"{name}{i}", question="?", answer="a", slices={"task": name})
            verdict = Verdict(correct=i < right, parsed="a", status="correct" if i < right else "wrong")
            outcomes.append(Outcome(item, Completion(text="a", token_count=1), verdict))
    data = DataSet(name="set", items=tuple(outcome.item for outcome in outcomes))
    return Asked(data, tuple(outcomes), Floor("guess", 0.0, {}), 8, 0, "h")


def claim(rights):
    return weakness_claim(asked(rights), "quick", "m", "train it")


def test_a_kind_that_is_always_wrong_fails_and_is_named():
    found = claim({"good": (30, 40), "bad": (0, 20)})
    assert found.state == "fail"
    assert found.reason.startswith("task: bad: 0 % right (n 20), 75 % on the rest")
    assert found.value == pytest.approx(0.75)
    assert found.interval.low > 0.5
    assert found.remedy.command == "train it"
    assert weak_spots([found]) == "task: bad in set (0 % right)"


def test_p_values_are_fishers_and_holms():
    found = {kind.name: kind for kind in kinds(asked({"a": (10, 20), "b": (4, 20), "c": (12, 20)}).answered)}
    raw = {name: fisher_exact([[hit, 20 - hit], [26 - hit, 14 + hit]]).pvalue for name, hit in
           (("task: a", 10), ("task: b", 4), ("task: c", 12))}  # fmt: skip
    assert found["task: b"].p_holm == pytest.approx(min(1, 3 * raw["task: b"]))
    assert all(found[name].p_holm >= raw[name] for name in raw)


def test_equal_kinds_pass_with_many_items_and_stay_open_with_few():
    assert claim({"a": (80, 160), "b": (80, 160)}).state == "pass"
    few = claim({"a": (8, 16), "b": (8, 16)})
    assert few.state == "inconclusive"
    assert "--budget standard" in few.remedy.command


def test_the_better_kind_is_not_the_weak_one():
    assert all(
        not kind.weak for kind in kinds(asked({"a": (20, 20), "b": (10, 20)}).answered) if kind.name == "task: a"
    )


def test_levels_are_hard_by_design_and_no_weak_spot():
    one = asked({"easy": (20, 20), "hard": (0, 20)})
    outcomes = [
        Outcome(o.item.model_copy(update={"slices": {"level": o.item.slices["task"]}}), o.completion, o.verdict)
        for o in one.outcomes
    ]
    assert kinds(outcomes) == []


def test_looking_at_more_kinds_costs_power():
    (first, *_) = kinds(asked(dict.fromkeys("ab", (10, 20))).answered)
    assert first.looks == 2
    assert first._replace(looks=10).detectable > first.detectable


def test_too_small_kinds_are_left_out():
    assert weakness_claim(asked({"a": (4, 7), "b": (10, 30)}), "quick", "m", "") is None


def test_chance_alone_rarely_fails():
    draw = random.Random(4)
    failed = 0
    for _ in range(200):
        rights = {name: (sum(draw.random() < 0.5 for _ in range(25)), 25) for name in "abcd"}
        failed += claim(rights).state == "fail"
    assert failed <= 16  # 5 % of 200, and three standard deviations

"""The frozen set asked of another target, paired, with what cannot be read kept apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from intarsia.core.data import DataSet
from intarsia.core.errors import DataError
from intarsia.core.sampling import Sampling
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Prompt, Target
from intarsia.robustness import MSCR, AnswerChanged, AttackResults, Budget, CallableSource, transfer
from intarsia.robustness.metrics import performance_drop_rate
from tests.robustness.victims import Coin, Spy, adder, asked, holds, right, stories

SOURCE = CallableSource("own", lambda word, q: ["calm", "poison", "moon"] if word == "lie" else [])


def attack(n: int = 6, survivors: int = 2) -> AttackResults:
    def answer(prompt: Prompt) -> str:
        tough = right(prompt) - 5 < survivors
        return f"The answer is {right(prompt) + (holds(asked(prompt), ['poison']) and not tough)}."

    return MSCR(ScriptedTarget(answer, name="first"), [SOURCE]).run(stories(n))


def other(prompt: Prompt) -> str:
    """Fails on item 5 as it is, and on poison in items 3 and 4."""
    item = right(prompt) - 5
    return f"{right(prompt) + (item == 5 or (item in (3, 4) and holds(asked(prompt), ['poison'])))}"


def test_both_questions_of_each_pair_are_asked() -> None:
    results = attack()
    spy = Spy(ScriptedTarget(other, name="second"))
    found = results.transfer(spy)
    assert (found.target, found.attacked_model, found.n) == ("second", "first", 4)
    assert (found.clean, found.adversarial, found.drop) == (0.75, 0.25, 0.5)
    assert found.broken == pytest.approx(2 / 3)
    assert found.unread == 0
    assert found.pdr == pytest.approx(performance_drop_rate(0.75, 0.25))
    assert found.both_right == 0.25
    assert found.pairs == (
        ("q2/adv0", True, True),
        ("q3/adv0", True, False),
        ("q4/adv0", True, False),
        ("q5/adv0", False, False),
    )
    # Over the whole set: 5 of 6 right before, and with the four broken ones rewritten 3 of 6.
    assert (found.whole_clean, found.whole_adversarial) == (5 / 6, 0.5)
    assert found.p_value == 0.5
    assert found.interval is not None
    assert len(spy.seen) == 6 + 4
    questions = [text for _, text in spy.seen]
    for row in results.successes:
        assert row.hit is not None
        assert any(row.item.question in text for text in questions)
        assert any(row.hit.question in text for text in questions)


def test_the_pairs_alone() -> None:
    spy = Spy(ScriptedTarget(other, name="second"))
    found = attack().transfer(spy, whole=False)
    assert found.whole_clean is None
    assert found.whole_adversarial is None
    assert len(spy.seen) == 8
    assert found.drop == 0.5


def test_a_model_that_does_not_mind() -> None:
    found = transfer(attack(), adder(name="solid"))
    assert (found.clean, found.adversarial, found.drop, found.broken, found.p_value) == (1.0, 1.0, 0.0, 0.0, 1.0)
    itself = attack().transfer(adder(["poison"], name="first"))
    assert itself.adversarial == 0.0
    assert itself.broken == 1.0


def test_what_cannot_be_read_is_not_broken() -> None:
    def mumbles(prompt: Prompt) -> str:
        return "no idea at all" if holds(asked(prompt), ["poison"]) else f"{right(prompt)}"

    found = attack().transfer(ScriptedTarget(mumbles, name="mumbler"))
    assert (found.broken, found.unread, found.adversarial) == (0.0, 4, 0.0)


def test_what_got_no_answer_is_left_out_everywhere() -> None:
    silent = ScriptedTarget(
        lambda p: f"{right(p)}", fail_on=lambda p: right(p) == 9 and holds(asked(p), ["poison"]), name="second"
    )
    found = attack().transfer(silent)
    assert (found.n, found.unanswered, found.drop) == (3, 1, 0.0)
    assert found.whole_clean == found.whole_adversarial == 1.0
    with pytest.raises(DataError, match="none of the pairs"):
        attack().transfer(ScriptedTarget(lambda p: "", fail_on=lambda p: True, name="dead"))


def test_from_a_folder(tmp_path: Path) -> None:
    results = attack()
    results.save(tmp_path)
    target: Target = ScriptedTarget(other, name="second")
    assert transfer(tmp_path, target) == transfer(str(tmp_path), target) == results.transfer(target)


def test_nothing_to_transfer() -> None:
    with pytest.raises(DataError, match="no success"):
        attack(survivors=9).transfer(adder())


def test_several_wordings_of_an_item_are_no_independent_pairs() -> None:
    coin = Coin(lambda question: 0.5 if holds(question, ["poison", "calm", "moon"]) else 0.0)
    options = {"sampling": Sampling(temperature=1, seed=6), "budget": Budget(reask=0), "runs": 4}
    results = MSCR(coin, [SOURCE], **options).run(stories(3))  # type: ignore[arg-type]
    assert len(results.to_items().items) > 4
    found = results.transfer(adder(["poison", "calm", "moon"], name="second"))
    assert found.n == len(results.to_items().items)
    assert found.drop == 1.0
    # Three items that all drop: 2 in 2**3 patterns of signs are as extreme, however many wordings there are.
    assert found.p_value == pytest.approx(0.25)


def test_it_asks_as_the_attack_asked() -> None:
    shots = tuple(item.model_copy(update={"id": f"s{item.id}"}) for item in stories(2))
    data = DataSet(name="d", items=tuple(stories(3)), shots=shots)
    first = adder(["poison"], name="first")
    results = MSCR(first, [SOURCE], system="Be brief.", template="Q: {question}\nGo.").run(data)
    second = adder(["poison"], name="second")
    results.transfer(second)
    asked_first = {str(call.prompt) for call in first.calls}
    assert {str(call.prompt) for call in second.calls} <= asked_first


def test_without_gold_answers_nobody_knows_whether_another_model_is_right() -> None:
    items = [item.model_copy(update={"answer": None}) for item in stories(4)]
    results = MSCR(adder(["poison"]), [SOURCE], goal=AnswerChanged()).run(items)
    assert results.successes
    with pytest.raises(DataError, match="no gold answer"):
        results.transfer(adder())

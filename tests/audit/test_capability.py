"""The capability study counts what it is told, holds it against guessing, and keeps every item for comparisons."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from intarsia.audit.capability import ITEMS, Capability, CapabilityOptions
from intarsia.core.data import DataSet, Item, load
from intarsia.core.errors import ConfigError
from intarsia.core.journal import Journal
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.study import Context, Result
from intarsia.core.target import Completion, Prompt, prompt_text

GENERATED = (
    load("stories", limit=200).items + load("geography", limit=200).items + load("reasoning-gym", limit=200).items
)
GOLD = {item.question: str(item.answer) for item in GENERATED}
ALL_SETS = ("stories", "geography", "reasoning-gym")


def question(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt.rpartition("Question: ")[2].removesuffix("\nAnswer:")
    return prompt[-1]["content"]


def knows(share: float) -> Callable[[Prompt], str]:
    """Right on about that share of the questions, always the same ones."""

    def answer(prompt: Prompt) -> str:
        asked = question(prompt)
        return GOLD[asked] if sum(asked.encode()) % 100 < 100 * share else "zzz 999999"

    return answer


def run(target: ScriptedTarget, **context: object) -> Result:
    options = context.pop("options", {})
    return Capability().run(
        Context(target=target, options=CapabilityOptions(**options), budget="smoke", **context)  # type: ignore[arg-type]
    )


def dataset(items: list[Item]) -> DataSet:
    return DataSet(name="mine", items=tuple(items), origin="mine.jsonl", sha256="0" * 64)


def test_a_model_that_knows_everything_is_at_the_ceiling() -> None:
    result = run(ScriptedTarget(knows(1.0)))
    for name in ALL_SETS:
        claim = result.claim(f"accuracy.{name}")
        assert (claim.state, claim.value, claim.n) == ("pass", 1.0, ITEMS["smoke"])
        assert claim.details["at_ceiling"] is True
        assert "ceiling" in claim.reason
        assert claim.worst is None
        assert claim.control is not None
        assert claim.control.value == claim.threshold.value or claim.threshold.value == 0.01  # type: ignore[union-attr]
    assert result.claim("refusals").value == 0
    assert "100 % of stories" in result.headline


def test_a_row_that_too_few_items_could_not_decide_is_mended_by_more_items() -> None:
    result = run(ScriptedTarget(knows(1.0), name="m"))
    claim = result.claim("format.stories")
    assert (claim.state, claim.value) == ("inconclusive", 0.0)
    assert claim.remedy is not None
    assert claim.remedy.command == "intarsia audit m --studies capability --budget quick"


def test_a_model_that_knows_nothing_is_at_the_floor() -> None:
    result = run(ScriptedTarget(lambda prompt: "zzz 999999"), options={"items": 80})
    for name in ALL_SETS:
        claim = result.claim(f"accuracy.{name}")
        assert claim.state in ("fail", "inconclusive")
        assert claim.value == 0
        assert claim.details["at_floor"] is True
        assert claim.remedy is not None
        assert "intarsia train" in claim.remedy.command
    assert result.claim("accuracy.stories").state == "fail"
    assert "not shown to beat guessing on stories" in result.headline


def test_zero_right_never_passes_where_guessing_gives_nothing() -> None:
    items = [Item(id=str(i), question=f"q{i}", answer=f"word{i}", kind="word") for i in range(400)]
    result = run(ScriptedTarget(lambda prompt: "no"), data=dataset(items), options={"sets": (), "items": 400})
    claim = result.claim("accuracy.own")
    assert claim.control is not None
    assert claim.control.value == 0
    assert claim.state == "fail"


def test_copying_a_number_does_not_pass_for_reading() -> None:
    """Always answering the last number of a story looks like ability to an accuracy without a floor."""
    import re

    def last_number(prompt: Prompt) -> str:
        found = re.findall(r"\d+", question(prompt))
        return found[-1] if found else "none"

    result = run(ScriptedTarget(last_number), options={"sets": ("stories:3",), "items": 150})
    claim = result.claim("accuracy.stories")
    assert claim.value is not None
    assert claim.state != "pass"
    assert claim.details["wrong_but_from_the_story"] is not None


def test_the_outcomes_of_each_item_are_kept() -> None:
    result = run(ScriptedTarget(knows(0.5)))
    measures = {measure.name: measure for measure in result.measures}
    assert set(measures) == {
        *(f"accuracy.{name}" for name in ALL_SETS),
        *(f"format.{name}" for name in ALL_SETS),
        "refusals",
        "truncation",
        "length",
    }
    for name in ALL_SETS:
        kept = measures[f"accuracy.{name}"]
        assert kept.binary
        assert kept.better == "more"
        share = sum(seen.value for seen in kept.observations) / len(kept.observations)
        assert share == pytest.approx(result.claim(f"accuracy.{name}").value)
    assert len(measures["length"].observations) == 3 * ITEMS["smoke"]
    assert len({seen.id for seen in measures["length"].observations}) == 3 * ITEMS["smoke"]
    assert not measures["length"].binary


def test_items_pair_across_styles_and_not_across_templates() -> None:
    chat = run(ScriptedTarget(knows(1.0)))
    plain = run(ScriptedTarget(knows(1.0), capabilities={"generate"}))
    other = run(ScriptedTarget(lambda prompt: "x"), template="Please: {question}")
    hashes = [
        {measure.name: measure.items_hash for measure in result.measures}["accuracy.stories"]
        for result in (chat, plain, other)
    ]
    assert hashes[0] == hashes[1] != hashes[2]
    assert [result.provenance.options["style"] for result in (chat, plain)] == ["turns", "plain"]
    assert plain.claim("accuracy.stories").value == 1.0


def test_a_broken_fine_tune_shows_in_the_paired_comparison() -> None:
    from intarsia.audit.compare import contrasts

    base = run(ScriptedTarget(knows(0.9), name="base"), options={"items": 80})
    tuned = run(ScriptedTarget(knows(0.4), name="tuned"), options={"items": 80})
    found = {contrast.measure: contrast for contrast in contrasts([tuned, base], ["tuned", "base"])}
    assert found["accuracy.stories"].state == "better", "the base is better than the tuned model"
    assert found["accuracy.stories"].n == 80
    assert found["refusals"].state == "no difference shown"


def test_refusals_truncation_and_form_are_counted_apart() -> None:
    def answer(prompt: Prompt) -> str | Completion:
        asked = int(question(prompt).split()[0].removeprefix("q"))
        if asked < 10:
            return "I'm sorry, but I can't help with that."
        if asked < 30:
            return Completion(text="well let me", token_count=3, finish_reason="length")
        if asked < 35:
            return "no idea what number"
        return str(asked)

    items = [Item(id=str(i), question=f"q{i} ?", answer=str(i), kind="number") for i in range(100)]
    result = run(ScriptedTarget(answer), data=dataset(items), options={"sets": (), "items": 100})
    assert result.claim("refusals").value == 0.10
    assert result.claim("truncation").value == 0.20
    assert result.claim("format.own").value == pytest.approx(0.05)
    claim = result.claim("accuracy.own")
    assert (claim.value, claim.unparsed, claim.truncated) == (0.65, 5, 20)
    assert result.claim("truncation").state == "fail"
    assert "max_new_tokens" in result.claim("truncation").remedy.command  # type: ignore[union-attr]
    titles = {example.title.removeprefix("own: ") for example in result.examples}
    assert titles == {"right", "refused", "cut off", "unreadable"}


def test_the_worst_slice_is_named() -> None:
    items = [
        Item(id=str(i), question=f"q{i}", answer="yes", kind="word", slices={"topic": "law" if i % 4 == 0 else "art"})
        for i in range(80)
    ]
    result = run(
        ScriptedTarget(lambda prompt: "no" if int(question(prompt).split("\n")[0][1:]) % 4 == 0 else "yes"),
        data=dataset(items),
        options={"sets": (), "items": 80},
    )
    worst = result.claim("accuracy.own").worst
    assert worst is not None
    assert (worst.name, worst.value, worst.n) == ("topic: law", 0.0, 20)
    assert "topic: law" in result.claim("accuracy.own").remedy.text  # type: ignore[union-attr]


def test_questions_without_an_answer_count_for_nothing_and_are_told() -> None:
    def answer(prompt: Prompt) -> Completion:
        asked = question(prompt)
        if asked.startswith("long"):
            return Completion(text="", token_count=0, finish_reason="error", error="the prompt is too long")
        return Completion(text="yes", token_count=1)

    items = [
        Item(id=str(i), question=f"{'long' if i < 3 else 'short'} {i}", answer="yes", kind="word") for i in range(10)
    ]
    result = run(ScriptedTarget(answer), data=dataset(items), options={"sets": ()})
    assert result.claim("accuracy.own").n == 7
    assert "3 of 10 questions got no answer and are left out" in result.claim("accuracy.own").reason
    assert any("3 of 10 questions got no answer" in note and "too long" in note for note in result.notes)
    nothing = run(ScriptedTarget(answer), data=dataset(items[:3]), options={"sets": ()})
    claim = nothing.claim("accuracy.own")
    assert (claim.state, claim.value) == ("not measurable", None)
    assert "too long" in claim.reason
    assert json.loads(nothing.body())["study"] == "capability"


def test_answers_that_were_cut_off_do_not_make_a_model_fail() -> None:
    """They count as wrong; that alone must not say that a model with more to say is no better than guessing."""

    def answer(prompt: Prompt) -> Completion:
        cut = int(question(prompt).split()[0].removeprefix("q")) % 2 == 0
        return Completion(text="well let me", token_count=3, finish_reason="length" if cut else "stop")

    items = [Item(id=str(i), question=f"q{i} ?", answer="yes", kind="word") for i in range(60)]
    claim = run(ScriptedTarget(answer), data=dataset(items), options={"sets": (), "items": 60}).claim("accuracy.own")
    assert (claim.value, claim.truncated) == (0.0, 30)
    assert claim.state == "fail", "half of them right would not beat a guesser who is always right"
    spread = [item.model_copy(update={"answer": f"word {i % 4}"}) for i, item in enumerate(items)]
    claim = run(ScriptedTarget(answer), data=dataset(spread), options={"sets": (), "items": 60}).claim("accuracy.own")
    assert claim.state == "inconclusive"
    assert "30 of 60 answers were cut off" in claim.reason
    whole = ScriptedTarget(lambda prompt: "well let me")
    assert run(whole, data=dataset(spread), options={"sets": (), "items": 60}).claim("accuracy.own").state == "fail"


def test_a_refusal_that_is_right_counts_as_right_and_not_as_refused() -> None:
    items = [Item(id=str(i), question=f"q{i}", answer="7", kind="number") for i in range(10)]
    result = run(
        ScriptedTarget(lambda prompt: "I'm sorry, but I can't help. It is 7."),
        data=dataset(items),
        options={"sets": ()},
    )
    assert result.claim("accuracy.own").value == 1.0
    assert result.claim("refusals").value == 0.0


def test_the_floor_is_that_of_the_questions_that_were_answered() -> None:
    def answer(prompt: Prompt) -> Completion:
        if question(prompt).startswith("long"):
            return Completion(text="", token_count=0, finish_reason="error", error="the prompt is too long")
        return Completion(text="yes", token_count=1)

    lost = [Item(id=f"l{i}", question=f"long {i}", answer="no", kind="word") for i in range(20)]
    kept = [Item(id=f"s{i}", question=f"short {i}", answer="yes", kind="word") for i in range(20)]
    claim = run(ScriptedTarget(answer), data=dataset(lost + kept), options={"sets": (), "items": 40}).claim(
        "accuracy.own"
    )
    assert claim.control is not None
    assert (claim.value, claim.control.value, claim.n) == (1.0, 1.0, 20)


def test_own_questions_without_gold_answers_are_still_useful() -> None:
    items = [Item(id=str(i), question=f"q{i}", kind="free") for i in range(20)]
    result = run(ScriptedTarget(lambda prompt: "some text"), data=dataset(items), options={"sets": ()})
    assert result.claim("accuracy.own").state == "not measurable"
    assert result.claim("format.own").value == 0
    assert {measure.name for measure in result.measures} == {"format.own", "refusals", "truncation", "length"}


def test_own_data_comes_first_and_the_rest_is_asked_too() -> None:
    items = [Item(id=str(i), question=f"q{i}", answer="x", kind="word") for i in range(5)]
    target = ScriptedTarget(lambda prompt: "x")
    result = run(target, data=dataset(items), system="Be kind.", template="Tell me: {question}")
    assert result.claims[0].name == "accuracy.own"
    assert result.claim("accuracy.stories").n == ITEMS["smoke"]
    assert all(prompt_text(call.prompt).startswith("system: Be kind.\nuser: Tell me: ") for call in target.calls)


def test_a_set_that_cannot_be_had_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    result = run(ScriptedTarget(knows(1.0)), options={"sets": "stories,gsm8k"})
    claim = result.claim("accuracy.gsm8k")
    assert claim.state == "skipped"
    assert "not at hand" in claim.reason
    assert "INTARSIA_DATA" in claim.remedy.text  # type: ignore[union-attr]
    assert result.claim("accuracy.stories").state == "pass"
    assert "skipped: gsm8k" in result.headline


@pytest.mark.skipif(not os.environ.get("INTARSIA_DATA"), reason="INTARSIA_DATA does not name the folder of real data")
def test_worked_answers_get_room_and_are_read() -> None:
    from intarsia.core.data import load as load_set

    gold = {item.question: item for item in load_set("gsm8k").items}
    target = ScriptedTarget(lambda prompt: str(gold[question(prompt)].meta["solution"]))
    result = run(target, options={"sets": "gsm8k", "items": 10})
    assert result.claim("accuracy.gsm8k").value == 1.0
    assert result.provenance.data["gsm8k"]["max_new_tokens"] == 256  # type: ignore[index,call-overload]
    assert "####" in prompt_text(target.calls[0].prompt)


def test_bad_options_get_one_line() -> None:
    base = ScriptedTarget(lambda prompt: "x", capabilities={"generate"})
    with pytest.raises(ConfigError, match="no chat template"):
        run(base, options={"style": "turns"})
    with pytest.raises(ConfigError, match="nothing to ask"):
        run(base, options={"sets": ()})
    with pytest.raises(ConfigError, match="Did you mean chain_sum"):
        run(base, options={"sets": "reasoning-gym:chain_sums"})
    with pytest.raises(ConfigError, match="no place for the question"):
        run(base, template="nothing")
    assert CapabilityOptions(sets="reasoning-gym:gcd,lcm").sets == ("reasoning-gym:gcd,lcm",)  # type: ignore[arg-type]
    assert CapabilityOptions(sets="stories, geography").sets == ("stories", "geography")  # type: ignore[arg-type]


def test_the_plan_matches_what_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*args: object, **options: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr("socket.socket.connect", no_network)
    target = ScriptedTarget(knows(0.5))
    context = Context(target=target, options=CapabilityOptions(), budget="smoke")
    plan = Capability().plan(context)
    assert not target.calls
    result = Capability().run(context)
    assert plan.calls == len(target.calls)
    assert plan.new_tokens >= sum(seen.value for seen in result.measures[-1].observations)
    assert len(plan.steps) >= 3
    assert Capability().plan(Context(options=CapabilityOptions(), budget="smoke")).calls == plan.calls


def test_a_killed_run_goes_on_to_the_same_body(tmp_path: Path) -> None:
    whole = run(ScriptedTarget(knows(0.5)))
    asked = 0

    def dies(prompt: Prompt) -> str:
        nonlocal asked
        asked += 1
        if asked == 50:
            raise KeyboardInterrupt
        return knows(0.5)(prompt)

    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal, pytest.raises(KeyboardInterrupt):
        run(ScriptedTarget(dies), journal=journal)
    second = ScriptedTarget(knows(0.5))
    with Journal(path) as journal:
        result = run(second, journal=journal)
    assert 0 < len(second.calls) < 3 * ITEMS["smoke"]
    assert result.body() == whole.body()


def test_the_report_can_be_drawn(tmp_path: Path) -> None:
    from intarsia.core.study import Report

    result = run(ScriptedTarget(lambda prompt: "<script>alert(1)</script> 5"))
    page = Report(title="t", targets=("scripted",), results=(result,)).save(tmp_path).read_text()
    assert "<script>alert(1)" not in page
    assert "Accuracy against guessing" in page
    assert Report.load(tmp_path).results[0].body() == result.body()

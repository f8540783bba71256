"""A model as judge: strict reading, votes, thinking, journal, families."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError
from intarsia.core.journal import Journal
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Completion, Prompt, prompt_text
from intarsia.sycophancy.family import families, family, family_note, same_family
from intarsia.sycophancy.judging import Exchange, Judge
from intarsia.sycophancy.llm_judge import LLMJudge, read_digit
from intarsia.sycophancy.rubrics import RUBRICS


def exchanges(*replies: str) -> list[Exchange]:
    return [Exchange(id=f"r{at}", question="How do I win?", reply=reply) for at, reply in enumerate(replies)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        (" 0\n", 0),
        ("**1**", 1),
        ('"0".', 0),
        ("(1)", 1),
        ("Label: 1", 1),
        ("**Answer:** 0", 0),
        ("score = 1", 1),
        ("1\n\nThe reply comforts the writer.", 1),
    ],
)
def test_a_single_anchored_digit_is_read(text: str, value: int) -> None:
    assert read_digit(text) == (value, "")


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("", "empty"),
        (" \n ", "empty"),
        ("The reply is validating.", "unparsed"),
        ("The answer is probably 1", "unparsed"),
        ("1 because it comforts", "unparsed"),
        ("0 or 1", "unparsed"),
        ("0 1", "unparsed"),
        ("1\n0", "unparsed"),
        ("1\n2. Next", "unparsed"),
        ("01", "unparsed"),
        ("10", "unparsed"),
        ("11", "unparsed"),
        ("1/10", "unparsed"),
        ("0.5", "unparsed"),
        ("-1", "unparsed"),
        ("1%", "unparsed"),
        ("2", "unparsed"),
        ("\uff11", "unparsed"),
        ("\u0967", "unparsed"),
        ("uno", "unparsed"),
        ("\u56de\u7b54\u662f1", "unparsed"),
        ("Das Label lautet 1.", "unparsed"),
        ("not 0", "unparsed"),
        ("I'm sorry, I can't label that.", "refused"),
        ("As an AI, I cannot judge.", "refused"),
    ],
)
def test_all_else_is_missing_with_the_reason(text: str, missing: str) -> None:
    assert read_digit(text) == (None, missing)


@given(st.text(max_size=40))
def test_reading_never_fails_and_never_reads_a_label_without_its_digit(text: str) -> None:
    value, missing = read_digit(text)
    assert (value is None) == bool(missing)
    if value is not None:
        assert str(value) in text
        assert str(1 - value) not in text


@given(st.integers(0, 1), st.text("abcdefgh ", min_size=1).filter(str.strip))
def test_prose_around_a_digit_is_no_label(digit: int, prose: str) -> None:
    assert read_digit(f"{prose.strip()} {digit}").value is None or prose.strip().lower() in ("label", "answer")
    assert read_digit(f"{digit} {prose.strip()}").value is None


def comforting(prompt: Prompt) -> str:
    reply = prompt_text(prompt).split("<reply>")[-1]
    return "1" if "sorry" in reply else "0"


def test_it_labels_in_order_and_keeps_the_words() -> None:
    judge = LLMJudge(ScriptedTarget(comforting, name="org/judge"))
    labels = judge.label(exchanges("I am sorry.", "Go.", "  "), "validation")
    assert [label.value for label in labels] == [1, 0, None]
    assert [label.said for label in labels[:2]] == ["1", "0"]
    assert labels[2].missing == "empty"
    assert isinstance(judge, Judge)
    assert (judge.rubric_version, judge.screening) == ("1", False)
    with pytest.raises(ConfigError, match="no rubric for 'moral'"):
        judge.label([], "moral")


def test_every_dimension_is_asked_with_its_own_rubric() -> None:
    target = ScriptedTarget(lambda prompt: "1")
    judge = LLMJudge(target)
    for dimension in sorted(judge.dimensions):
        judge.label(exchanges("Go."), dimension)
        assert RUBRICS[dimension].definition in prompt_text(target.calls[-1].prompt)


def test_a_target_without_chat_continues_a_text_and_only_its_first_line_counts() -> None:
    target = ScriptedTarget(lambda prompt: " 1\n\nQuestion: 2", capabilities=("generate", "seed"))
    label = LLMJudge(target).label(exchanges("Go."), "framing")[0]
    assert label.value == 1
    assert isinstance(target.calls[0].prompt, str)
    assert target.calls[0].prompt.endswith("Label:")


def test_failures_are_missing_with_their_reason() -> None:
    target = ScriptedTarget(lambda prompt: "1", fail_on=lambda prompt: "Boom" in prompt_text(prompt))
    labels = LLMJudge(target).label(exchanges("Boom", "Go."), "framing")
    assert [(label.value, label.missing) for label in labels] == [(None, "error"), (1, "")]
    assert "scripted to fail" in labels[0].said


def test_thinking_is_taken_out_and_a_judge_that_only_thinks_says_so() -> None:
    answers = {
        "inline": Completion(text="<think>0 or 1? 1 it is.</think>\n1", token_count=9),
        "given": Completion(text="0", thinking="Is it 1?", token_count=9),
        "cut": Completion(text="<think>Let me see, 1 or", token_count=16, finish_reason="length"),
        "field": Completion(text="", thinking="Hmm 1", token_count=16, finish_reason="length"),
    }
    target = ScriptedTarget(
        lambda prompt: next(a for name, a in answers.items() if f"\n{name}\n" in prompt_text(prompt))
    )
    labels = LLMJudge(target, max_new_tokens=16).label(exchanges(*answers), "framing")
    assert [label.value for label in labels] == [1, 0, None, None]
    for label in labels[2:]:
        assert label.missing == "empty"
        assert "16 new tokens went into thinking" in label.said
        assert "max_new_tokens" in label.said
    assert LLMJudge(target, max_new_tokens=700).sampling.max_new_tokens == 700


def by_votes(**replies: str):  # type: ignore[no-untyped-def]
    """A script in which the k-th vote on a reply is the k-th word of its answer."""
    seen: dict[str, int] = {}

    def answer(prompt: Prompt) -> str:
        name = next(name for name in replies if f"\n{name}\n" in prompt_text(prompt))
        seen[name] = seen.get(name, -1) + 1
        return replies[name].split("/")[seen[name]]

    return answer


def test_votes_are_counted_and_ties_have_no_label() -> None:
    three = LLMJudge(ScriptedTarget(by_votes(a="1/0/1", b="0/prose/0", c="1/prose/so", d="//")), votes=3, temperature=1)
    labels = three.label(exchanges("a", "b", "c", "d"), "framing")
    assert [(label.value, label.missing) for label in labels] == [
        (1, ""),
        (0, ""),
        (None, "unparsed"),  # one of three votes is no majority
        (None, "empty"),
    ]
    assert labels[0].score == pytest.approx(2 / 3)
    assert labels[0].said == "1 | 0 | 1"
    two = LLMJudge(ScriptedTarget(by_votes(a="1/0", b="1/1")), votes=2, temperature=1)
    assert [label.value for label in two.label(exchanges("a", "b"), "framing")] == [None, 1]


def test_votes_have_keys_of_their_own() -> None:
    target = ScriptedTarget(lambda prompt: "1")
    LLMJudge(target, votes=3, temperature=0.7).label(exchanges("a", "b"), "framing")
    keys = [call.key for call in target.calls]
    assert len(set(keys)) == 6
    assert all("framing" in key for key in keys)


def test_a_killed_run_goes_on_and_says_the_same(tmp_path: Path) -> None:
    texts = [f"I am sorry {at}" if at % 3 else f"Go {at}" for at in range(40)]
    whole = LLMJudge(ScriptedTarget(comforting)).label(exchanges(*texts), "validation")

    class Killed(Exception):
        pass

    def die(asked: int, prompt: Prompt) -> None:
        if asked == 20:
            raise Killed

    with Journal(tmp_path / "j.jsonl", manifest={}) as journal, pytest.raises(Killed):
        LLMJudge(ScriptedTarget(comforting, before=die)).label(exchanges(*texts), "validation", journal=journal)
    again = ScriptedTarget(comforting)
    with Journal(tmp_path / "j.jsonl", manifest={}) as journal:
        resumed = LLMJudge(again).label(exchanges(*texts), "validation", journal=journal)
        assert resumed == whole
        assert len(again.calls) == 24
        # Another dimension is another question.
        LLMJudge(again).label(exchanges(*texts), "framing", journal=journal)
        assert len(again.calls) == 64


def test_bad_options_are_refused_in_one_line() -> None:
    target = ScriptedTarget(lambda prompt: "1")
    for options, match in (
        ({"votes": 0}, "decides nothing"),
        ({"votes": 3}, "one vote"),
        ({"temperature": -1.0}, "temperature"),
        ({"max_new_tokens": 0}, "says nothing"),
        ({"rubric": "9"}, "no rubric version"),
    ):
        with pytest.raises(ConfigError, match=match):
            LLMJudge(target, **options)  # type: ignore[arg-type]
    assert "noisy" in LLMJudge(target, temperature=0.5).note


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("smollm2-135m", "smollm"),
        ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "smollm"),
        ("gemma-3-270m", "gemma"),
        ("google/gemini-1.5-flash", "gemma"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen"),
        ("meta-llama/Llama-3.3-70B", "llama"),
        ("mistralai/Mixtral-8x7B", "mistral"),
        ("inspect:openai/gpt-4o", "gpt"),
        ("inspect:openai/o3-mini", "gpt"),
        ("claude-3-7-sonnet", "claude"),
        ("http://llama-host:8000/v1#Qwen2.5", "qwen"),
        ("http://ollama:11434/v1", ""),
        ("EleutherAI/gpt-neo-125m", ""),
        ("my-model", ""),
    ],
)
def test_families_are_told_by_name(name: str, wanted: str) -> None:
    assert family(name) == wanted


def test_a_judge_of_the_targets_family_brings_a_warning() -> None:
    judge = LLMJudge(ScriptedTarget(lambda prompt: "1", name="Qwen/Qwen2.5-14B-Instruct"))
    target = ScriptedTarget(lambda prompt: "1", name="deepseek-ai/DeepSeek-R1-Distill-Qwen-7B")
    assert families(target.name) == ("deepseek", "qwen")
    assert same_family(judge, target)
    assert "one family (qwen)" in judge.facing(target)
    assert not same_family(judge, "gemma-3-270m")
    assert judge.facing("gemma-3-270m") == ""
    assert not same_family("unknown-a", "unknown-b")
    assert "itself" in family_note(judge, "Qwen/Qwen2.5-14B-Instruct")
    assert same_family("unknown-a", "unknown-a")

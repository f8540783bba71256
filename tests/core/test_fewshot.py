"""Few-shot prompts show akin examples, in the layout a model is used to, and share their beginning."""

from __future__ import annotations

import pytest

from intarsia.core.data import Item, load
from intarsia.core.data.fewshot import prompt_for, shot_answer, shots_for, stops_for, style_for
from intarsia.core.errors import ConfigError
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import prompt_text

ASKED = Item(id="1", question="What is 1 + 1?", answer="2", kind="number")
SHOT = Item(id="2", question="What is 2 + 3?", answer="5", kind="number", meta={"solution": "2 + 3 = 5\n#### 5"})
OPTIONS = Item(id="3", question="Which?", answer="B", kind="choice", meta={"choices": ["red", "blue"]})


def test_turns() -> None:
    assert prompt_for(ASKED, [SHOT], system="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 2 + 3?"},
        {"role": "assistant", "content": "5"},
        {"role": "user", "content": "What is 1 + 1?"},
    ]


def test_plain_and_single() -> None:
    text = "Question: What is 2 + 3?\nAnswer: 5\n\nQuestion: What is 1 + 1?\nAnswer:"
    assert prompt_for(ASKED, [SHOT], style="plain") == text
    assert prompt_for(ASKED, [SHOT], style="plain", system="Be brief.") == f"Be brief.\n\n{text}"
    assert prompt_for(ASKED, [SHOT], style="single") == [{"role": "user", "content": text}]


def test_the_users_template_wins() -> None:
    template = "Q={question} {x}"
    assert prompt_for(ASKED, template=template) == [{"role": "user", "content": "Q=What is 1 + 1? {x}"}]
    assert prompt_for(ASKED, [SHOT], template=template, style="plain") == (
        "Q=What is 2 + 3? {x}\nAnswer: 5\n\nQ=What is 1 + 1? {x}"
    )
    with pytest.raises(ConfigError, match="no place for the question"):
        prompt_for(ASKED, template="no place")


def test_a_hint_stands_in_for_examples() -> None:
    assert "The answer is N" in prompt_text(prompt_for(ASKED))
    assert "The answer is N" not in prompt_text(prompt_for(ASKED, [SHOT]))
    shown = prompt_text(prompt_for(OPTIONS))
    assert "A. red\nB. blue" in shown
    assert "letter" in shown


def test_working_is_shown_where_wanted() -> None:
    assert shot_answer(SHOT, worked=True).endswith("#### 5")
    assert shot_answer(SHOT) == "5"
    assert stops_for("plain", worked=False) == ("\n",)
    assert "\n" not in stops_for("plain", worked=True)
    assert stops_for("turns", worked=False) == ()


def test_examples_are_akin_and_in_a_fixed_order() -> None:
    found = load("stories", limit=40)
    for item in found.items:
        shots = shots_for(item, found.shots, 3)
        assert all(shot.slices["level"] == item.slices["level"] for shot in shots)
        assert all(shot.slices["detail"] == item.slices["detail"] for shot in shots)
        assert shots == shots_for(item, found.shots, 3)
    tasks = load("reasoning-gym", limit=40)
    assert all(
        shot.slices["task"] == item.slices["task"] for item in tasks.items for shot in shots_for(item, tasks.shots, 3)
    )


def test_without_akin_examples_the_first_ones_are_shown() -> None:
    odd = ASKED.model_copy(update={"slices": {"task": "never seen"}})
    assert shots_for(odd, [SHOT, OPTIONS], 1) == (SHOT,)
    assert shots_for(odd, [], 3) == ()


def test_the_style_follows_the_target() -> None:
    assert style_for(ScriptedTarget(["x"])) == "turns"
    assert style_for(ScriptedTarget(["x"], capabilities={"generate"})) == "plain"


@pytest.mark.parametrize("name", ["stories", "geography", "reasoning-gym"])
def test_every_question_gets_as_many_examples_as_are_asked_for(name: str) -> None:
    found = load(name, limit=60)
    for item in found.items:
        shown = shots_for(item, found.shots, 3)
        assert len(shown) == len({shot.id for shot in shown}) == 3
        assert shown[0] == shots_for(item, found.shots, 1)[0], "fewer examples are the first of more"
        assert all(shot.question != item.question for shot in shown)
        key = "task" if "task" in item.slices else "level"
        assert {shot.slices[key] for shot in shown} == {item.slices[key]}

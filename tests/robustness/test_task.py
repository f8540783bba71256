"""The attack as a task of inspect_ai, run by inspect_ai itself on its mock model."""

from __future__ import annotations

import asyncio
import json
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="the extra `eval` is not installed")

from inspect_ai import eval as inspect_eval
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelOutput, ModelUsage, get_model

from intarsia.core.errors import ConfigError, DataError
from intarsia.robustness.edits import TypoSource
from intarsia.robustness.protect import editable
from intarsia.robustness.task import robustness


class Victim:
    """Answers with the number in the question, but not where `bought` was changed, and never where a hat was lost."""

    def __init__(self) -> None:
        self.loops: set[int] = set()
        self.configs: list[Any] = []
        self.asked: list[str] = []

    async def __call__(self, messages: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        self.loops.add(id(asyncio.get_running_loop()))
        self.configs.append(config)
        text = messages[-1].text
        self.asked.append(text)
        if "VERDICT" in text:
            return self.output("VERDICT: CORRECT")
        number = int(re.findall(r"\d+", text)[0])
        right = "owns" in text or "bought" in text
        return self.output(f"The answer is {number if right and 'lost' not in text else number + 1}.")

    def output(self, text: str) -> ModelOutput:
        output = ModelOutput.from_content("mockllm", text)
        output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
        return output


STORIES = [
    "Tom bought 31 pens in a shop. How many pens were that?",
    "In a shop Anna bought 52 books. How many books were that?",
    "The farmer owns 73 goats. How many goats owns he?",
    "Max bought 14 kites and then lost his hat. How many kites were that?",
]


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "stories.jsonl"
    rows = [{"id": f"s{i}", "q": text, "a": re.findall(r"\d+", text)[0]} for i, text in enumerate(STORIES)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(
    data: str, tmp_path: Path, victim: Victim, *, arguments: dict[str, Any] | None = None, **options: Any
) -> EvalLog:
    given = {"data": data, "map": ["question=q", "answer=a"], "sources": "typo", "items": 0, **(arguments or {})}
    (log,) = inspect_eval(
        "intarsia/robustness",
        model="mockllm/model",
        model_args={"custom_outputs": victim},
        task_args=given,
        display="none",
        log_dir=str(tmp_path / "logs"),
        **options,
    )
    return log


def first_rank(question: str, word: str) -> int:
    """The number of the query that first changes the word, by the documented order."""
    words = editable(question, "math")
    rank = 0
    for place, proposals in zip(words, TypoSource().propose(question, words), strict=True):
        if place.text == word:
            return rank + 1
        rank += len(proposals)
    raise AssertionError(word)


def test_figures_and_metadata_by_the_registered_name(data: str, tmp_path: Path) -> None:
    victim = Victim()
    log = run(data, tmp_path, victim)
    assert log.status == "success", log.error
    assert log.results is not None
    (score,) = log.results.scores
    found = {name: one.value for name, one in score.metrics.items()}
    assert found["accuracy_clean"] == pytest.approx(3 / 4)
    assert found["accuracy_under_attack"] == pytest.approx(1 / 4)
    assert found["drop"] == found["net_drop"] == pytest.approx(2 / 4)
    assert found["attack_success_rate"] == pytest.approx(2 / 3)
    assert found["null_drop"] == 0
    assert found["drop_stderr"] == pytest.approx((1 / 4 / 3) ** 0.5)
    samples = {sample.id: sample for sample in log.samples or ()}
    for name, question in (("s0", STORIES[0]), ("s1", STORIES[1])):
        found = samples[name].metadata
        assert found["success"]
        assert (found["word"], found["source"]) == ("bought", "typo")
        assert found["adversarial_question"] == question.replace("bought", found["replacement"])
        assert found["queries"] == first_rank(question, "bought")
        assert samples[name].messages[0].text == found["adversarial_question"]
        kept = samples[name].scores["attack_score"].metadata
        assert kept["adversarial_question"] == found["adversarial_question"]
        # The queries are the evaluation's own: they stand in its transcript, and on its loop.
        events = [event for event in samples[name].events if event.event == "model"]
        assert len(events) > found["queries"]
    assert len(victim.loops) == 1
    assert samples["s2"].metadata["reason"] == ""
    assert not samples["s2"].metadata["success"]
    assert not samples["s3"].metadata["attacked"]
    assert samples["s3"].metadata["reason"] == "answered wrong before the attack"
    assert log.stats.model_usage["mockllm/model"].output_tokens == 5 * len(victim.asked)


def test_what_the_evaluation_says_of_sampling_holds(data: str, tmp_path: Path) -> None:
    victim = Victim()
    log = run(
        data,
        tmp_path,
        victim,
        arguments={"control": "off", "reask": 0, "max_queries": 2},
        epochs=2,
        temperature=0.6,
        max_tokens=77,
        limit=2,
    )
    assert log.status == "success"
    assert len(log.samples or ()) == 4
    assert {config.temperature for config in victim.configs} == {0.6}
    assert {config.max_tokens for config in victim.configs} == {77}
    seeds = {config.seed for config in victim.configs}
    assert len(seeds) > 1, "each query and each epoch has a seed of its own"
    assert log.results is not None
    assert "null_drop" not in log.results.scores[0].metrics
    assert {sample.metadata["queries"] for sample in log.samples or ()} == {1, 2}
    assert log.results.scores[0].metrics["queries"].value == 1.5


def test_a_judge_that_finds_every_answer_right_leaves_no_drop(data: str, tmp_path: Path) -> None:
    victim = Victim()
    judge = Victim()
    grader = get_model("mockllm/grader", custom_outputs=judge, memoize=False)
    arguments = {"judge": "grader", "reask": 0, "control": "off"}
    log = run(data, tmp_path, victim, arguments=arguments, model_roles={"grader": grader})
    assert log.status == "success", log.error
    assert log.results is not None
    metrics = log.results.scores[0].metrics
    assert metrics["drop"].value == 0
    assert metrics["accuracy_under_attack"].value == metrics["accuracy_clean"].value == 0.75
    assert judge.asked, "the judge was heard"


def test_a_limit_of_the_evaluation_ends_the_sample(data: str, tmp_path: Path) -> None:
    log = run(data, tmp_path, Victim(), token_limit=100, limit=1)
    (sample,) = log.samples or ()
    assert sample.limit is not None
    assert sample.limit.type == "token"


def test_a_provider_that_fails_fails_the_sample(data: str, tmp_path: Path) -> None:
    def broken(*_: Any) -> ModelOutput:
        raise RuntimeError("no such account")

    log = run(data, tmp_path, broken, limit=1, fail_on_error=False)
    (sample,) = log.samples or ()
    assert sample.error is not None
    assert "no such account" in sample.error.message


@pytest.mark.parametrize(
    "arguments",
    [
        {"sources": "nothing"},
        {"order": "upwards"},
        {"goal": "world_peace"},
        {"template": "no place"},
        {"items": -1},
        {"preset": "paper"},
        {"data": "no-such-set"},
        {"data": "missing.jsonl"},
    ],
)
def test_wrong_arguments_are_told_before_anything_is_asked(arguments: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, DataError)):
        robustness(**arguments)


def test_the_entry_point_names_the_task() -> None:
    found = [point for point in entry_points(group="inspect_ai") if point.name == "intarsia"]
    assert [point.value for point in found] == ["intarsia._registry"]
    assert callable(found[0].load().robustness)

"""The frozen set for another harness: two tasks that ask what the attack asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from intarsia.core.data import DataSet, Item
from intarsia.core.scripted import ScriptedTarget
from intarsia.robustness import MSCR, AttackResults, CallableSource
from intarsia.robustness.export import TASK, write_lm_eval
from tests.robustness.victims import adder, asked, stories

SOURCE = CallableSource("own", lambda word, q: ["poison"])


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def task(folder: Path, name: str) -> dict[str, Any]:
    found = yaml.safe_load((folder / f"{name}.yaml").read_text())
    assert isinstance(found, dict)
    return found


def test_two_tasks_that_differ_in_the_question_only(tmp_path: Path) -> None:
    results = MSCR(adder(["poison"]), [SOURCE]).run(stories(3))
    write_lm_eval(results, tmp_path)
    adversarial, clean = rows(tmp_path, TASK), rows(tmp_path, f"{TASK}_clean")
    assert [row["id"] for row in adversarial] == [row["id"] for row in clean]
    assert [row["answer"] for row in adversarial] == [row["answer"] for row in clean] == ["5", "6", "7"]
    for row, new, old in zip(results, adversarial, clean, strict=True):
        assert row.hit is not None
        assert row.hit.question in new["text"]
        assert row.item.question in old["text"]
        assert new["text"].replace(row.hit.question, row.item.question) == old["text"]
        assert new["text"].startswith("Question: ")
        assert new["text"].endswith("\nAnswer:")
    first, second = task(tmp_path, TASK), task(tmp_path, f"{TASK}_clean")
    assert first["task"] == TASK
    assert second["task"] == f"{TASK}_clean"
    assert {k: v for k, v in first.items() if k not in ("task", "dataset_kwargs")} == {
        k: v for k, v in second.items() if k not in ("task", "dataset_kwargs")
    }
    assert first["dataset_kwargs"]["data_files"]["test"] == f"{TASK}.jsonl"
    assert first["doc_to_text"] == "{{text}}"


def test_the_number_filter_reads_the_last_number(tmp_path: Path) -> None:
    import re

    write_lm_eval(MSCR(adder(["poison"]), [SOURCE]).run(stories(1)), tmp_path)
    (extract, _) = task(tmp_path, TASK)["filter_list"][0]["filter"]
    found = re.findall(extract["regex_pattern"], "3 eggs and 1,200 apples: 1203.50 or 7")
    assert "".join(found[extract["group_select"]]) == "7"


def test_options_examples_and_wording_come_along(tmp_path: Path) -> None:
    choice = Item(id="c", question="Which is a fruit?", answer="A", kind="choice", meta={"choices": ["apple", "stone"]})
    shot = Item(id="s", question="Which is a tool?", answer="B", kind="choice", meta={"choices": ["milk", "saw"]})
    target = ScriptedTarget(
        lambda p: "B" if "poison" in str(p).lower() else "A", capabilities={"generate", "seed"}, name="base"
    )
    results = MSCR(target, [SOURCE]).run(DataSet(name="d", items=(choice,), shots=(shot,)))
    write_lm_eval(results, tmp_path)
    (row,) = rows(tmp_path, f"{TASK}_clean")
    # A base model is asked the very same text.
    assert (
        row["text"]
        == target.calls[0].prompt
        == (
            "Question: Which is a tool?\nA. milk\nB. saw\nAnswer: B\n\n"
            "Question: Which is a fruit?\nA. apple\nB. stone\nAnswer:"
        )
    )
    assert "filter_list" not in task(tmp_path, TASK)


def test_saving_writes_it_and_no_success_is_no_error(tmp_path: Path) -> None:
    results = MSCR(adder(), [SOURCE]).run(stories(2), out=tmp_path)
    assert results.successes == ()
    assert rows(tmp_path / "lm_eval", TASK) == []
    assert AttackResults.load(tmp_path).rows == results.rows
    assert asked("x\ny") == "x"

"""`intarsia robustness ...` as a user meets it: figures, folders, mistakes, a killed run."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from intarsia import cli
from intarsia.core.data import load
from intarsia.core.errors import BackendError, IntarsiaError
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import prompt_text
from intarsia.robustness import commands
from intarsia.robustness.results import AttackResults
from intarsia.robustness.settings import GATES, AttackSettings, gates_named, make_settings

STORIES = [
    "Tom bought 31 pens in a shop. How many pens were that?",
    "In a shop Anna bought 52 books. How many books were that?",
    "The farmer owns 73 goats. How many goats owns he?",
    "Max bought 14 kites and then lost his hat. How many kites were that?",
]


def answer(text: str) -> str:
    """The number in the question, but not where `bought` was changed, and never where a hat was lost."""
    number = int(re.findall(r"\d+", text)[0])
    right = ("owns" in text or "bought" in text) and "lost" not in text
    return f"The answer is {number if right else number + 1}."


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "stories.jsonl"
    rows = [{"id": f"s{i}", "q": text, "a": re.findall(r"\d+", text)[0]} for i, text in enumerate(STORIES)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedTarget]:
    """Models behind names: `solid` is never wrong, `right` judges all answers right, any other is the victim."""
    opened: list[ScriptedTarget] = []

    def one(model: str) -> Callable[[Any], str]:
        if model == "solid":
            return lambda prompt: f"The answer is {re.findall(r'[0-9]+', prompt_text(prompt))[0]}."
        if model == "right":
            return lambda prompt: "VERDICT: CORRECT"
        return lambda prompt: answer(prompt_text(prompt))

    def opener(model: str, settings: AttackSettings, accept_license: bool) -> ScriptedTarget:
        opened.append(ScriptedTarget(one(model), name=model))
        return opened[-1]

    monkeypatch.setattr(commands, "_open", opener)
    return opened


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the whole command line in this process; returns (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["intarsia", "robustness", *map(str, arguments)])
        code: Any = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def attack(data: Path, out: Path, *more: object) -> list[object]:
    return [
        *("attack", "victim", "--data", data, "--map", "question=q,answer=a", "--sources", "typo", "--items", 0),
        *("--out", out, *more),
    ]


def test_help_names_an_example_for_every_command() -> None:
    result = CliRunner().invoke(commands.app, ["--help"])
    assert "Example: intarsia robustness attack" in result.output
    for command in ("attack", "transfer", "candidates", "summary", "export", "augment"):
        result = CliRunner().invoke(commands.app, [command, "--help"])
        assert result.exit_code == 0
        assert f"Example: intarsia robustness {command}" in result.output


def test_attack_prints_the_table_examples_and_what_next(run, scripted, data, tmp_path) -> None:
    out = tmp_path / "run"
    code, text, err = run(*attack(data, out))
    assert code == 0, err
    lines = text.splitlines()
    assert "clean accuracy: 75.0 %  of 4 questions" in lines
    assert any(line.startswith("under attack: 25.0 %") for line in lines)
    assert any(line.startswith("drop: 50.0 pp [") for line in lines)
    assert any(line.startswith("control: 0.0 pp") for line in lines)
    assert "broken by source: typo 2" in lines
    (marked, changed), *_ = [
        (line, lines[at + 1]) for at, line in enumerate(lines) if re.match(r"Tom \[b\w+\] 31 pens in a shop", line)
    ]
    word = re.search(r"\[(\w+)\]", marked)
    assert word is not None
    assert f"bought -> {word[1]} (typo); answers 32, before 31" in changed
    assert f"intarsia robustness transfer {out} OTHER_MODEL" in text
    assert (out / "settings.json").is_file()
    # The frozen set is a data set like any other.
    assert len(load(str(out / "adversarial.jsonl")).items) == 2


def test_json_is_the_whole_output_and_the_summary_follows_from_it(run, scripted, data, tmp_path) -> None:
    out = tmp_path / "run"
    code, text, _ = run(*attack(data, out, "--json"))
    assert code == 0
    found = json.loads(text)
    assert set(found) == {
        *("folder", "target", "data", "settings", "summary", "lengths", "successes", "adversarial", "notes"),
    }
    assert found["target"] == "victim"
    assert found["folder"] == str(out)
    assert found["summary"]["drop"] == 0.5
    assert found["adversarial"] == len(found["successes"]) == 2
    for one in found["successes"]:
        (change,), ((start, end),) = one["changes"], one["marks"]
        assert (change["word"], change["source"]) == ("bought", "typo")
        assert one["adversarial_question"][start:end] == change["replacement"]
        assert one["question"].replace("bought", change["replacement"]) == one["adversarial_question"]
        assert one["attacked_answer"] != one["clean_answer"] == one["answer"]
    code, again, _ = run("summary", out, "--json")
    assert code == 0
    assert json.loads(again) == found


def test_the_same_command_asks_nothing_twice_and_other_settings_are_refused(run, scripted, data, tmp_path) -> None:
    out = tmp_path / "run"
    run(*attack(data, out))
    before = {path.name: path.read_bytes() for path in out.glob("*.json*") if path.is_file()}
    assert run(*attack(data, out))[0] == 0
    assert scripted[1].calls == []
    assert {path.name: path.read_bytes() for path in out.glob("*.json*") if path.is_file()} == before
    code, text, err = run(*attack(data, out, "--max-queries", 3))
    assert code == 2
    assert text == ""
    assert "max_queries" in one_line(err)


def test_a_config_file_holds_the_same_keys(run, scripted, data, tmp_path) -> None:
    config = tmp_path / "attack.yaml"
    settings = {
        "model": "victim",
        "data": str(data),
        "map": {"question": "q", "answer": "a"},
        "sources": ["typo"],
        "items": 0,
        "max_queries": 1,
        "control": "off",
    }
    config.write_text(yaml.safe_dump(settings))
    code, text, _ = run("attack", "--config", config, "--out", tmp_path / "a", "--json")
    assert code == 0
    assert json.loads(text)["summary"]["queries_total"] == 3
    # What is typed goes before what is written.
    code, text, _ = run("attack", "--config", config, "--max-queries", "400", "--out", tmp_path / "b", "--json")
    assert json.loads(text)["summary"]["drop"] == 0.5
    # All options are keys, and all keys are options.
    options = {name for name in commands.attack.__annotations__ if name != "return"}
    assert options - {"config", "out", "dry_run", "as_json", "accept_license"} == {
        "mapping" if name == "map" else name for name in AttackSettings.model_fields
    }
    config.write_text("model: victim\ndata: stories\nitmes: 3\n")
    code, text, err = run("attack", "--config", config)
    assert code == 2
    line = one_line(err)
    assert "'itmes' (attack.yaml, line 3)" in line
    assert "Did you mean 'items'?" in line


def test_judge_and_dry_run(run, scripted, data, tmp_path) -> None:
    out = tmp_path / "run"
    code, text, err = run(*attack(data, out, "--dry-run", "--json"))
    assert code == 0, err
    plan = json.loads(text)
    assert not out.exists()
    assert scripted[0].calls == []
    assert plan["questions"] == 4
    assert plan["sources"] == ["typo"]
    code, text, err = run(*attack(data, out, "--judge", "right", "--json"))
    assert code == 0, err
    done = json.loads(text)["summary"]
    assert done["drop"] == 0
    assert done["rejected"] == done["met"] > 0
    # Nobody is asked more often than the plan says.
    assert done["queries_total"] <= plan["calls"]["attack"]
    assert "4 questions, 1 run" in run(*attack(data, tmp_path / "other", "--dry-run"))[1]


def test_transfer_and_export(run, scripted, data, tmp_path) -> None:
    out = tmp_path / "run"
    run(*attack(data, out))
    code, text, err = run("transfer", out, "victim", "solid", "--json")
    assert code == 0, err
    first, second = json.loads(text)
    assert (first["target"], first["n"], first["clean"], first["adversarial"]) == ("victim", 2, 1.0, 0.0)
    assert (second["target"], second["adversarial"], second["drop"]) == ("solid", 1.0, 0.0)
    assert (out / "transfer" / "solid" / "transfer.json").is_file()
    asked = len(scripted)
    assert "solid: 100.0 % -> 100.0 %" in run("transfer", out, "solid")[1]
    assert scripted[asked].calls == [], "the second time answers come from the journal"
    assert json.loads(run("transfer", out, "solid", "--dry-run", "--json")[1])["pairs"] == 2
    code, text, err = run("export", out, tmp_path / "tasks", "--json")
    assert code == 0, err
    for file in json.loads(text)["files"]:
        assert Path(file).stat().st_size
    task = yaml.safe_load((tmp_path / "tasks" / "intarsia_adversarial.yaml").read_text())
    assert task["task"] == "intarsia_adversarial"
    code, text, _ = run("export", out, tmp_path / "rows", "--to", "jsonl")
    assert code == 0
    assert {item.question for item in load(str(tmp_path / "rows" / "adversarial.jsonl")).items} == {
        row.hit.question for row in AttackResults.load(out).successes if row.hit is not None
    }


def test_candidates_shows_sources_and_protection(run) -> None:
    question = "Tom buys 3 red apples. How many apples has he?"
    code, text, err = run("candidates", question, "--sources", "typo,deletion", "--json")
    assert code == 0, err
    found = {word["word"]: word for word in json.loads(text)["words"]}
    assert found["many"]["protected"]
    assert found["many"]["candidates"] == []
    assert not found["buys"]["protected"]
    assert {one["source"] for one in found["red"]["candidates"]} == {"deletion"}
    assert found["red"]["candidates"][0]["question"] == "Tom buys 3 apples. How many apples has he?"
    for one in found["buys"]["candidates"]:
        assert question.replace("buys", one["text"]) == one["question"]
    code, text, _ = run("candidates", question, "--sources", "typo,deletion")
    assert "many: protected" in text
    assert "red: 1  (left out) (deletion 0.00)" in text
    unprotected = json.loads(run("candidates", question, "--sources", "typo", "--protect", "none", "--json")[1])
    assert not any(word["protected"] for word in unprotected["words"])
    gated = json.loads(run("candidates", question, "--sources", "typo", "--gates", "unchanged:0.99", "--json")[1])
    assert not any(word["candidates"] for word in gated["words"])


@pytest.mark.slow
def test_candidates_by_the_embeddings_of_a_model(run, tiny_model_folder) -> None:
    code, text, err = run(
        *("candidates", "The quick brown fox jumps", "--model", tiny_model_folder, "--sources", "embedding", "--json")
    )
    assert code == 0, err
    assert [word["word"] for word in json.loads(text)["words"]] == ["The", "quick", "brown", "fox", "jumps"]


def test_augment_rewrites_the_question_column_only(run, data, tmp_path) -> None:
    out = tmp_path / "more.jsonl"
    code, text, err = run(
        *("augment", data, out, "--column", "q", "--rate", 1, "--sources", "typo", "--seed", 1, "--json")
    )
    assert code == 0, err
    assert json.loads(text)["rewritten"] == 4
    before = [json.loads(line) for line in data.read_text().splitlines()]
    after = [json.loads(line) for line in out.read_text().splitlines()]
    for old, new in zip(before, after, strict=True):
        assert old["q"] != new["q"]
        assert {**old, "q": ""} == {**new, "q": ""}
    bytes_before = out.read_bytes()
    run(*("augment", data, out, "--column", "q", "--rate", 1, "--sources", "typo", "--seed", 1))
    assert out.read_bytes() == bytes_before
    run(*("augment", data, out, "--column", "q", "--rate", 0, "--sources", "typo"))
    assert [json.loads(line) for line in out.read_text().splitlines()] == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["attack"],
        ["attack", "victim", "--data", "missing.jsonl"],
        ["attack", "victim", "--data", "no-such-set"],
        ["attack", "victim", "--map", "question"],
        ["attack", "victim", "--sources", "embeding"],
        ["attack", "victim", "--sources", "typo,typo"],
        ["attack", "victim", "--order", "upwards"],
        ["attack", "victim", "--order", "guided", "--sources", "typo"],
        ["attack", "victim", "--goal", "world_peace"],
        ["attack", "victim", "--goal", "longer:0.5"],
        ["attack", "victim", "--protect", "re:("],
        ["attack", "victim", "--protect", "everything"],
        ["attack", "victim", "--gates", "cosin", "--sources", "typo"],
        ["attack", "victim", "--gates", "cosine:high", "--sources", "typo"],
        ["attack", "victim", "--gates", "word_cosine", "--sources", "typo"],
        ["attack", "victim", "--control", "maybe"],
        ["attack", "victim", "--preset", "paper"],
        ["attack", "victim", "--preset", "papers"],
        ["attack", "victim", "--judge", "right", "--self-consistency", "3"],
        ["attack", "victim", "--template", "no place"],
        ["attack", "victim", "--runs", "3", "--sources", "typo"],
        ["attack", "victim", "--items", "-1"],
        ["attack", "victim", "--max-queries", "0"],
        ["attack", "victim", "--temperature", "-1"],
        ["attack", "victim", "--temperature", "inf", "--sources", "typo"],
        ["attack", "victim", "--goal", "longer:inf", "--sources", "typo"],
        ["attack", "victim", "--mlm", "bert", "--sources", "typo"],
        ["attack", "victim", "--config", "missing.yaml"],
        ["attack", "http://user:pass@host/v1#m"],
        ["attack", "victim", "--no-such-option"],
        ["transfer", "nowhere", "victim"],
        ["transfer", "nowhere"],
        ["summary", "nowhere"],
        ["export", "nowhere", "out"],
        ["export", "nowhere", "out", "--to", "xml"],
        ["candidates", ""],
        ["candidates", "Tom buys apples.", "--sources", "thesaurus"],
        ["candidates", "Tom buys apples.", "--protect", "re:["],
        ["augment", "missing.jsonl", "out.jsonl"],
        ["augment", "missing.jsonl", "out.txt"],
        ["augment", "missing.jsonl", "out.jsonl", "--rate", "2"],
        ["no-such-command"],
        [],
    ],
)
def test_a_mistake_is_one_line_and_exit_2(run, scripted, arguments, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, err = run(*arguments)
    assert code == 2
    if arguments:
        assert out == ""
        assert one_line(err).startswith("Error: ")
    assert list(tmp_path.iterdir()) == []


def test_files_in_the_way_are_refused(run, scripted, data, tmp_path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("mine")
    assert "is a file" in one_line(run(*attack(data, note))[2])
    folder = tmp_path / "full"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    assert "holds no attack" in one_line(run(*attack(data, folder))[2])
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]
    run(*attack(data, tmp_path / "run"))
    assert "is a file" in one_line(run("export", tmp_path / "run", note)[2])
    assert "would replace the file" in one_line(run("augment", data, data, "--sources", "typo")[2])
    assert "no column" in one_line(run("augment", data, tmp_path / "o.jsonl", "--sources", "typo")[2])
    assert note.read_text() == "mine"
    # A folder whose figures were changed by hand is not believed.
    summary = tmp_path / "run" / "summary.json"
    summary.write_text(summary.read_text().replace('"drop":0.5', '"drop":0.9').replace('"drop": 0.5', '"drop": 0.9'))
    assert "does not follow" in one_line(run("summary", tmp_path / "run")[2])


def test_an_attack_without_success_has_nothing_to_pass_on(run, scripted, data, tmp_path) -> None:
    out = tmp_path / "run"
    arguments = attack(data, out)
    arguments[1] = "solid"
    code, text, _ = run(*arguments)
    assert code == 0
    assert "drop: 0.0 pp" in text
    assert "robustness transfer" not in text
    for command in (["transfer", out, "victim"], ["export", out, tmp_path / "x"]):
        code, _, err = run(*command)
        assert code == 2
        assert "no success" in one_line(err)
    assert not (tmp_path / "x").exists()


def test_a_run_that_fails_at_once_leaves_no_folder(run, data, tmp_path, monkeypatch) -> None:
    def refuse(count: int, prompt: Any) -> None:
        raise BackendError("The server is gone.", "Start it.")

    monkeypatch.setattr(commands, "_open", lambda *_: ScriptedTarget(lambda prompt: "", before=refuse))
    code, text, err = run(*attack(data, tmp_path / "deep" / "run"))
    assert code == 2
    assert text == ""
    assert one_line(err) == "Error: The server is gone. Start it."
    assert not (tmp_path / "deep").exists()


def test_ctrl_c_says_how_to_go_on(run, data, tmp_path, monkeypatch) -> None:
    def stop(count: int, prompt: Any) -> None:
        if count > 6:
            raise KeyboardInterrupt

    monkeypatch.setattr(
        commands, "_open", lambda *_: ScriptedTarget(lambda prompt: answer(prompt_text(prompt)), before=stop)
    )
    code, _, err = run(*attack(data, tmp_path / "run", "--rows", 1))
    assert code == 130
    assert "The same command goes on" in one_line(err)


KILLED = """
import os, signal
from intarsia import cli
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import prompt_text
from intarsia.robustness import commands
from tests.robustness.test_commands import answer

def kill(count, prompt):
    if count == 20:
        os.kill(os.getpid(), signal.SIGKILL)

commands._open = lambda *_: ScriptedTarget(lambda prompt: answer(prompt_text(prompt)), name="victim", before=kill)
cli.main()
"""


def test_a_killed_run_goes_on_to_the_same_files(run, scripted, data, tmp_path) -> None:
    """A process of its own is killed in the middle; the same command ends as if nothing had been."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    more = ("--rows", 1, "--json")
    code, done, err = run(*attack(data, whole, *more))
    assert code == 0, err
    command = [sys.executable, "-c", KILLED, "robustness", *map(str, attack(data, parts, *more))]
    killed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (parts / "settings.json").exists()
    assert "unfinished" in one_line(run("summary", parts)[2])
    code, again, err = run(*attack(data, parts, *more))
    assert code == 0, err
    assert 0 < len(scripted[1].calls) < len(scripted[0].calls) - 10, "what was answered is not asked again"
    for name in ("queries.jsonl", "items.jsonl", "summary.json", "settings.json", "adversarial.jsonl"):
        assert (whole / name).read_bytes() == (parts / name).read_bytes()
    assert {**json.loads(again), "folder": ""} == {**json.loads(done), "folder": ""}


def test_every_gate_can_be_named() -> None:
    for name in ("cosine:0.8", "angular", "pos", "pos:noun_verb", "frequency:3", "unchanged", "bert-attack", "bae"):
        made = gates_named([name])
        assert made
        if name not in ("bert-attack", "bae"):
            assert made[0].name == name, "the threshold is part of the settings of a run"
    assert {"word_cosine", "likelihood", "textfooler"} < set(GATES)
    for name in ("word_cosine", "likelihood", "textfooler", "pos:0.3", "bae:2"):
        with pytest.raises(IntarsiaError):
            gates_named([name])


def test_settings_of_other_types_are_refused() -> None:
    for wrong in ({"items": "many"}, {"sources": 3}, {"map": {"question": 1}}, {"seed": -1}, {"data": None}):
        with pytest.raises(IntarsiaError):
            make_settings(wrong)


def one_line(err: str) -> str:
    lines = [line for line in err.strip().splitlines() if line]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0]

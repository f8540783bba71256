"""`intarsia uncertainty ...` as a user meets it: answers, tables, thresholds, folders, mistakes, a killed run."""

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
import typer
from typer.testing import CliRunner

from intarsia import cli
from intarsia.core.data import content_hash
from intarsia.core.errors import IntarsiaError
from intarsia.core.target import Target
from intarsia.uncertainty import commands, question_sets, rejection, results
from intarsia.uncertainty.settings import Scoring, UncertaintySettings
from intarsia.uncertainty.threshold import Threshold
from tests.uncertainty.answerers import WORDS, Server, TableTarget, graded, lawful, questions

assert lawful  # a fixture, used by name
pytestmark = pytest.mark.usefixtures("lawful")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Target]:
    """Models behind names: `server` and `text` are endpoints, `flat` is unsure, any other is a table."""
    found: list[Target] = []

    def one(model: str) -> Target:
        if model in ("server", "text"):
            return Server(logprobs=model == "server", name=model)
        flat = (0.125,) * len(WORDS)
        return TableTarget((lambda n: flat) if model == "flat" else graded, name=model)

    def opener(settings: UncertaintySettings, accept_license: bool) -> Target:
        found.append(one(settings.model))
        return found[-1]

    monkeypatch.setattr(commands, "_open", opener)
    return found


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the room's commands as the whole command line does; returns (exit code, stdout, stderr)."""
    whole = typer.Typer()
    whole.add_typer(commands.app, name="uncertainty")
    monkeypatch.setattr(cli, "app", whole)
    monkeypatch.setattr(cli, "_add_rooms", lambda: None)

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["intarsia", "uncertainty", *map(str, arguments)])
        code: Any = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested here are the files and words around the figures."""
    monkeypatch.setattr(results, "RESAMPLES", 199)
    monkeypatch.setattr(rejection, "RESAMPLES", 99)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "animals.jsonl"
    rows = [item.model_dump_json(include={"id", "question", "answer"}) for item in questions(64).items]
    path.write_text("\n".join(rows) + "\n")
    return path


def one_line(err: str) -> str:
    lines = [line for line in err.strip().splitlines() if line]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0]


def test_help_names_an_example_for_every_command_and_every_setting_is_an_option() -> None:
    result = CliRunner().invoke(commands.app, ["--help"])
    assert "Example: intarsia uncertainty score" in result.output
    names = {command.callback.__name__: command.callback for command in commands.app.registered_commands}  # type: ignore[union-attr]
    assert set(names) == {"score", "bench", "threshold", "report"}
    for command, function in names.items():
        result = CliRunner().invoke(commands.app, [command, "--help"])
        assert result.exit_code == 0
        assert f"Example: intarsia uncertainty {command}" in " ".join(result.output.split())
        assert "as_json" in function.__annotations__
    for command in ("score", "bench", "threshold"):
        assert {"seed", "dry_run"} <= set(names[command].__annotations__)
    # All that a study may be asked with can be asked for here, so that its remedy can be printed.
    assert set(Scoring.model_fields) <= set(names["threshold"].__annotations__)
    assert set(Scoring.model_fields) - {"shots"} <= set(names["score"].__annotations__)


def test_score_answers_with_uncertainty_interval_and_mass(run: Run, opened: list[Target]) -> None:
    code, text, err = run("score", "table", "Which animal is 0?", "Which animal is 19?", "--json")
    assert code == 0, err
    found = json.loads(text)
    sure, unsure = found["answers"]
    assert (sure["answer"], unsure["answer"]) == (WORDS[0], WORDS[19 % 8])
    assert sure["scores"]["dissimilarity"] == pytest.approx(1 - max(graded(0)), abs=1e-5)
    assert sure["scores"]["dissimilarity"] < unsure["scores"]["dissimilarity"]
    low, high = sure["interval"]["low"], sure["interval"]["high"]
    assert low - 1e-6 <= sure["scores"]["dissimilarity"] <= high + 1e-6
    assert sure["mass"] == sure["beam_mass"] == pytest.approx(1.0)
    assert sum(one["weight"] for one in sure["candidates"]) == pytest.approx(1.0)
    assert found["estimator"] == "dissimilarity"
    assert found["folder"] is None
    code, text, _ = run("score", "table", "Which animal is 0?")
    assert text.splitlines()[0] == "Which animal is 0?"
    assert "Ant  dissimilarity 0.0" in text
    assert "beams hold 100%" in text


def test_low_mass_is_warned_of_or_mended(run: Run, opened: list[Target]) -> None:
    assert "Warning: The 2 beams hold 25%" in run("score", "flat", "Which animal is 1?", "--m", 2)[1]
    text = run("score", "flat", "Which animal is 1?", "--m", 2, "--on-low-mass", "hybrid", "--json")[1]
    (row,) = json.loads(text)["answers"]
    assert "scored from" in row["warning"]
    assert row["beam_mass"] == pytest.approx(0.25)
    assert "consistency says nothing" in run("score", "table", "Which animal is 1?", "--m", 1)[1]


def test_questions_of_a_file_are_graded_and_kept(run: Run, opened: list[Target], data: Path, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    code, text, err = run("score", "table", data, "--out", out, "--json")
    assert code == 0, err
    found = json.loads(text)
    assert len(found["answers"]) == 64
    assert {row["right"] for row in found["answers"]} == {True, False}
    # The same command asks nobody again; other settings are refused.
    assert json.loads(run("score", "table", data, "--out", out, "--json")[1]) == found
    assert opened[-1].batches_made == 0  # type: ignore[attr-defined]
    code, text, err = run("score", "table", data, "--out", out, "--m", 3)
    assert code == 2
    assert "m (there 10, now 3)" in one_line(err)
    code, text, err = run("report", out)
    assert code == 0, err
    assert "of 64 answers are right" in text
    # A file without answers is scored, too.
    bare = tmp_path / "bare.csv"
    bare.write_text("q\nWhich animal is 3?\nWhich animal is \u00e4\U0001f600 4?\n", encoding="utf-8")
    code, text, err = run("score", "table", bare, "--map", "question=q", "--json")
    assert code == 0, err
    assert [row["right"] for row in json.loads(text)["answers"]] == [None, None]


def test_standard_input_raw_prompts_and_repeated_questions(
    run: Run, opened: list[Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    stdin = io.TextIOWrapper(io.BytesIO(b"Which animal is 2?\n\nWhich animal is 2?\n"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)
    code, text, err = run("score", "table", "-", "--json")
    assert code == 0, err
    rows = json.loads(text)["answers"]
    assert len(rows) == len({row["id"] for row in rows}) == 2
    seen: list[Any] = []
    monkeypatch.setattr(
        commands, "_open", lambda settings, accept: Server(before=lambda count, prompt: seen.append(prompt))
    )
    run("score", "server", "Tell 5", "--raw", "--m", 2)
    assert seen[0] == [{"role": "user", "content": "Tell 5"}]


def test_bench_compares_sources_and_keeps_a_report(run: Run, opened: list[Target], data: Path, tmp_path: Path) -> None:
    out = tmp_path / "bench"
    arguments = ("bench", "table", "--data", data, "--out", out, "--estimators", "dissimilarity,cocoa_msp,msp")
    code, text, err = run(*arguments, "--json")
    assert code == 0, err
    found = json.loads(text)
    lines = {(line["candidates"], line["estimator"]): line for line in found["figures"]}
    assert set(lines) == {
        *((source, name) for source in ("beam", "sample", "hybrid") for name in ("dissimilarity", "cocoa_msp")),
        ("answer", "msp"),
    }
    beam, sample = lines["beam", "dissimilarity"], lines["sample", "dissimilarity"]
    assert beam["gain"] == pytest.approx(beam["prr"] - sample["prr"])
    assert beam["gain_interval"][0] <= beam["gain"] <= beam["gain_interval"][1]
    assert sample["gain"] is None
    # Beams that hold everything are exact, and so is the hybrid.
    assert lines["hybrid", "dissimilarity"]["prr"] == pytest.approx(beam["prr"])
    assert found["answered"] == found["questions"] == 60  # four were held out as examples
    assert (out / "report.html").is_file()
    code, again, err = run("report", out, "--json")
    assert code == 0, err
    assert json.loads(again) == found
    code, text, _ = run("report", out, "--html", tmp_path / "html")
    assert re.search(r"^beam +dissimilarity +\d", text, re.MULTILINE)
    assert "Abstaining on animals" in (tmp_path / "html" / "report.html").read_text()
    (out / "figures.json").write_text((out / "figures.json").read_text().replace('"prr": 0.', '"prr": 0.1'))
    assert "do not follow" in one_line(run("report", out)[2])


def test_bench_of_a_server(run: Run, opened: list[Target], data: Path, tmp_path: Path) -> None:
    few = ("--items", 30, "--estimators", "dissimilarity,msp", "--json")
    code, text, err = run("bench", "server", "--data", data, "--out", tmp_path / "a", *few)
    assert code == 0, err
    assert {line["candidates"] for line in json.loads(text)["figures"]} == {"endpoint", "sample", "answer"}
    code, text, err = run("bench", "text", "--data", data, "--out", tmp_path / "b", *few)
    assert code == 0, err
    lines = {line["estimator"]: line for line in json.loads(text)["figures"]}
    assert lines["msp"]["prr"] is None
    assert lines["dissimilarity"]["prr"] is not None


def test_threshold_is_fitted_kept_and_applied(run: Run, opened: list[Target], data: Path, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    fit = ("threshold", "table", "--data", data, "--out", file, "--temperature", 1.5, "--m", 6)
    code, text, err = run(*fit, "--risk", 0.1, "--guarantee", "none")
    assert code == 0, err
    assert "abstain above dissimilarity" in text
    assert f"--threshold {file}" in text
    made = Threshold.load(file)
    assert (made.scoring.m, made.scoring.temperature, made.target_risk) == (6, 1.5, 0.1)
    assert made.risk is not None
    assert made.risk <= 0.1
    assert made.value is not None
    assert len(made.examples) == 4
    code, text, err = run("score", "table", "Which animal is 0?", "Which animal is 19?", "--threshold", file, "--json")
    assert code == 0, err
    sure, unsure = json.loads(text)["answers"]
    assert (sure["abstain"], unsure["abstain"]) == (False, True)
    assert unsure["said"] is None
    assert unsure["scores"]["dissimilarity"] > made.value >= sure["scores"]["dissimilarity"]
    assert len(sure["candidates"]) == 6
    text = run("score", "table", data, "--threshold", file)[1]
    assert "abstain (it would have said:" in text
    assert "answers are given" in text
    # What the threshold fixes cannot be set beside it, and it is of one model.
    assert "fixes m, so" in one_line(run("score", "table", "Which animal is 0?", "--threshold", file, "--m", 3)[2])
    assert "not on these weights" in one_line(run("score", "other", "Which 0?", "--threshold", file)[2])
    code, text, err = run(*fit, "--coverage", 0.5, "--json")
    assert code == 0, err
    assert json.loads(text)["coverage"] == pytest.approx(0.5, abs=0.05)


def test_a_risk_that_cannot_be_promised_leaves_no_file(
    run: Run, opened: list[Target], data: Path, tmp_path: Path
) -> None:
    file = tmp_path / "t.json"
    code, text, err = run("threshold", "table", "--data", data, "--risk", 0.01, "--out", file)
    assert code == 2
    assert text == ""
    assert "No threshold reaches a risk of 1.0%" in one_line(err)
    assert not file.exists()


def test_stored_candidates_are_scored_without_asking(
    run: Run, opened: list[Target], data: Path, tmp_path: Path
) -> None:
    stored = tmp_path / "stored.jsonl"
    rows = [
        {
            "key": f"q{n}",
            "answer": "Ant",
            "candidates": [{"text": "Ant", "logprob": -0.1}, {"text": "Bee", "logprob": -3}],
        }
        for n in range(10)
    ]
    stored.write_text("\n".join(map(json.dumps, rows)))
    ask = ("score", "table", data, "--candidates", "stored", "--stored", stored, "--json")
    code, text, err = run(*ask)
    assert code == 0, err
    found = json.loads(text)
    assert len(found["answers"]) == 10
    assert len(found["unanswered"]) == 54
    assert found["answers"][0]["scores"]["dissimilarity"] == pytest.approx(0.0521, abs=1e-3)
    assert opened[-1].batches_made == 0  # type: ignore[attr-defined]
    stored.write_text(json.dumps({**rows[0], "key": "another"}))
    assert "holds nothing for" in one_line(run(*ask)[2])


def test_dry_runs_ask_nobody(run: Run, opened: list[Target], data: Path, tmp_path: Path) -> None:
    for command in (
        ("score", "server", "Which animal is 1?"),
        ("bench", "server", "--data", data, "--out", tmp_path / "x"),
        ("threshold", "server", "--data", data, "--risk", 0.2, "--out", tmp_path / "x.json"),
    ):
        code, text, err = run(*command, "--dry-run", "--json")
        assert code == 0, err
        plan = json.loads(text)
        assert plan["answers"] == 11 * plan["questions"]
        assert opened[-1].calls == []  # type: ignore[attr-defined]
    assert not (tmp_path / "x").exists()
    assert "1 questions, at most 11 answers" in run("score", "table", "Which animal is 1?", "--dry-run")[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["score", "table"], "no question"),
        (["score", "table", ""], "A question is empty"),
        (["score", "table", "missing.jsonl"], "There is no file missing.jsonl"),
        (["score", "table", "1?", "--candidates", "beems"], "Did you mean 'beam'"),
        (["score", "table", "1?", "--estimators", "dissim"], "Did you mean 'dissimilarity'"),
        (["score", "table", "1?", "--similarity", "jacard"], "Did you mean 'jaccard'"),
        (["score", "table", "1?", "--m", "0"], "m cannot be 0"),
        (["score", "table", "1?", "--preset", "papr"], "Did you mean 'paper'"),
        (["score", "table", "1?", "--preset", "paper"], "deberta-large-mnli"),
        (["bench", "table", "--similarity", "nli:/no/such/folder"], "/no/such/folder"),
        (["score", "table", "1?", "--seed", "x"], "seed"),
        (["score", "table", "1?", "--candidates", "stored", "--stored", "missing.jsonl"], "missing.jsonl"),
        (["threshold", "table", "--risk", "0.2", "--map", "question=q,answer=a"], "Drop the mapping"),
        (["score", "table", "1?", "--m", "100000"], "less than or equal to 1000"),
        (["score", "table", "1?", "--temperature", "nan"], "temperature cannot be nan"),
        (["score", "table", "1?", "--mass-floor", "nan"], "mass_floor cannot be nan"),
        (["score", "table", "1?", "--beams", "some"], "beams cannot be 'some'"),
        (["score", "table", "1?", "--stop", "x", "--no-stops"], "exclude each other"),
        (["score", "table", "1?", "--threshold", "missing.json"], "There is no file missing.json"),
        (["score", "table", "1?", "--map", "question=q"], "no file"),
        (["score", "table", "1?", "--raw", "--system", "s"], "neither system prompt"),
        (["score", "table", "1?", "--style", "turns"], "no chat template"),
        (["score", "server", "1?", "--candidates", "beam"], "shows no weights"),
        (["score", "server", "1?", "--temperature", "0.5"], "--temperature 1"),
        (["score", "text", "1?", "--candidates", "endpoint"], "no log-probabilities"),
        (["bench", "table", "--data", "no-such-set"], "no-such-set"),
        (["bench", "table", "--data", "known1000"], "Did you mean known_1000"),
        (["bench", "table", "--data", "known_1000", "--split", "trian"], "no split"),
        (["bench", "table", "--sources", "beam,beem"], "Did you mean 'beam'"),
        (["bench", "table", "--items", "-1"], "items"),
        (["threshold", "table"], "target risk or a target coverage"),
        (["threshold", "table", "--risk", "0.2", "--coverage", "0.5"], "Give one"),
        (["threshold", "table", "--risk", "1.5"], "between 0 and 1"),
        (["threshold", "table", "--risk", "nan"], "between 0 and 1"),
        (["threshold", "table", "--coverage", "0"], "(0, 1]"),
        (["threshold", "table", "--risk", "0.2", "--guarantee", "bonferoni"], "Did you mean 'bonferroni'"),
        (["threshold", "table", "--risk", "0.2", "--level", "0.3"], "between 0.5 and 1"),
        (["threshold", "table", "--risk", "0.2", "--estimators", "msp,ppl"], "single uncertainty"),
        (["threshold", "table", "--risk", "0.2", "--out", "."], "is a folder"),
        (["report", "nowhere"], "no finished run"),
        (["score"], "'model'"),
        (["scor"], "scor"),
        (["score", "table", "1?", "--no-such-option"], "no-such-option"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    run: Run, opened: list[Target], arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("INTARSIA_DATA", raising=False)
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    line = one_line(err)
    assert line.startswith("Error: ")
    assert said in line
    assert list(tmp_path.iterdir()) == []


def test_folders_in_the_way_are_refused(run: Run, opened: list[Target], data: Path, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("mine")
    assert "is a file" in one_line(run("bench", "table", "--data", data, "--out", note)[2])
    assert "holds no run" in one_line(run("score", "table", "1?", "--out", tmp_path)[2])
    assert note.read_text() == "mine"
    run("score", "table", "Which animal is 1?", "--out", tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 7'))
    assert "format 7" in one_line(run("report", tmp_path / "run")[2])
    path.write_text(path.read_text().replace('"format": 7', '"format": 1'))
    assert "is a file" in one_line(run("report", tmp_path / "run", "--html", note)[2])


def test_a_set_without_short_answers_cannot_be_benched(run: Run, opened: list[Target], tmp_path: Path) -> None:
    path = tmp_path / "essays.jsonl"
    path.write_text("\n".join(json.dumps({"question": f"Write about {n}."}) for n in range(12)))
    code, _, err = run("bench", "table", "--data", path, "--out", tmp_path / "x")
    assert code == 2
    assert "short right answer" in one_line(err)
    assert not (tmp_path / "x").exists()


def test_all_right_is_no_figure_but_no_error(run: Run, opened: list[Target], tmp_path: Path) -> None:
    path = tmp_path / "easy.jsonl"
    rows = [{"question": f"Which animal is {n}?", "answer": WORDS[n % 8]} for n in range(20)]
    path.write_text("\n".join(map(json.dumps, rows)))
    code, text, err = run("bench", "table", "--data", path, "--out", tmp_path / "x")
    assert code == 0, err
    assert "nothing to rank" in text


def test_ctrl_c_says_how_to_go_on(run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(count: int) -> None:
        if count == 3:
            raise KeyboardInterrupt

    ask = ("score", "table", data, "--estimators", "dissimilarity", "--json", "--out")
    monkeypatch.setattr(commands, "_open", lambda settings, accept: TableTarget(before=stop))
    code, _, err = run(*ask, tmp_path / "parts")
    assert code == 130
    assert "The same command goes on" in one_line(err)
    assert not (tmp_path / "parts" / "run.json").exists()
    # It does, and asks the rest only.
    batches = []
    for folder in ("whole", "parts"):
        target = TableTarget()
        monkeypatch.setattr(commands, "_open", lambda settings, accept, target=target: target)
        assert run(*ask, tmp_path / folder)[0] == 0
        batches.append(target.batches_made)
    assert batches[1] == batches[0] - 2
    for name in ("answers.jsonl", "figures.json", "run.json"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


KILLED = """
import os, signal, sys
import pytest
from intarsia.uncertainty import asking, commands
from tests.uncertainty import answerers

patch = pytest.MonkeyPatch()
answerers.lawful.__wrapped__(patch)

def kill(count):
    if count == 3:
        os.kill(os.getpid(), signal.SIGKILL)

commands._open = lambda settings, accept: answerers.TableTarget(name="table", before=kill)
commands.app(sys.argv[1:], standalone_mode=False)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_files(run: Run, opened: list[Target], data: Path, tmp_path: Path) -> None:
    """A process of its own is killed in the middle; the same command ends as if nothing had been."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    ask = ("score", "table", data, "--estimators", "dissimilarity", "--json")
    code, done, err = run(*ask, "--out", whole)
    assert code == 0, err
    command = [sys.executable, "-c", KILLED, *map(str, ask), "--out", str(parts)]
    killed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (parts / "run.json").exists()
    assert "no finished run" in one_line(run("report", parts)[2])
    code, again, err = run(*ask, "--out", parts)
    assert code == 0, err
    assert 0 < opened[-1].batches_made < opened[0].batches_made  # type: ignore[attr-defined]
    for name in ("answers.jsonl", "figures.json", "run.json"):
        assert (whole / name).read_bytes() == (parts / name).read_bytes()
    assert {**json.loads(again), "folder": ""} == {**json.loads(done), "folder": ""}


def test_a_run_that_fails_at_once_leaves_no_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: Path
) -> None:
    def refuse(count: int, prompt: Any) -> None:
        raise IntarsiaError("The server is gone.", "Start it.")

    monkeypatch.setattr(commands, "_open", lambda settings, accept: Server(before=refuse))
    code, text, err = run("bench", "server", "--data", data, "--out", tmp_path / "deep" / "run")
    assert (code, text) == (2, "")
    assert one_line(err) == "Error: The server is gone. Start it."
    assert not (tmp_path / "deep").exists()


def test_zero_items_are_all_of_them(run: Run, opened: list[Target], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load(name: str, **options: Any) -> Any:
        asked.append(options["limit"])
        found = questions(8)
        return found.model_copy(update={"sha256": content_hash(found.items)})

    monkeypatch.setattr(question_sets, "load", load)
    run("bench", "table", "--data", "nq_open", "--items", 0, "--dry-run")
    run("bench", "table", "--data", "facts", "--items", 0, "--dry-run")
    run("bench", "table", "--dry-run")
    assert asked == [None, 100_000, 200]


@pytest.mark.slow
def test_an_encoder_is_no_model_that_answers(run: Run, tmp_path: Path, tiny_tokenizer: Any, capsys: Any) -> None:
    import torch
    from transformers import BertConfig, BertModel

    with torch.random.fork_rng(devices=[]):
        BertModel(
            BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
        ).save_pretrained(tmp_path / "bert")
    tiny_tokenizer.save_pretrained(tmp_path / "bert")
    capsys.readouterr()
    code, text, err = run("score", tmp_path / "bert", "Which animal is 1?")
    assert (code, text) == (2, "")
    assert "BertModel" in one_line(err) or "decoder" in one_line(err)

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys

import pytest

from intarsia import cli
from intarsia.audit import engine
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.study import Report
from tests.audit.small_study import Echo, Needy


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the command line in this process; returns (exit code, stdout, stderr)."""

    def call(*arguments: str):
        monkeypatch.setattr(sys, "argv", ["intarsia", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def scripted(monkeypatch):
    """Models `good` and `bad` behind names, and the small studies in place of the audit's own."""

    def answer(prompt):
        return prompt.removeprefix("Repeat: ")

    def open_target(spec, config, opening):
        return ScriptedTarget(answer if spec == "good" else (lambda prompt: "?"), name=spec)

    monkeypatch.setattr(engine, "open_target", open_target)
    monkeypatch.setattr("intarsia.audit.command.audit_studies", lambda: [Echo(), Needy()])


def one_line(err: str) -> str:
    lines = [line for line in err.strip().splitlines() if line]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    return lines[0]


def test_help_of_every_command_has_an_example(run):
    code, out, _ = run("--help")
    assert code == 0
    for command in ("audit", "compare", "generate", "train", "reproduce", "rooms", "doctor"):
        code, out, _ = run(command, "--help")
        assert code == 0
        assert "Example: intarsia" in out
    for command in ("list", "fetch", "path"):
        assert "Example: intarsia models" in run("models", command, "--help")[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["audit"],
        ["audit", "no-such-model-anywhere"],
        ["audit", "good", "--budget", "huge"],
        ["audit", "good", "--studies", "nothing"],
        ["audit", "good", "--set", "echo"],
        ["audit", "good", "--map", "question=q"],
        ["audit", "good", "--data", "missing.jsonl"],
        ["audit", "good", "--template", "no place"],
        ["audit", "good", "--config", "missing.yaml"],
        ["audit", "good", "--judged", "maybe"],
        ["audit", "good", "bad", "--fail-on", "regression"],
        ["audit", "good", "--baseline", "good", "--fail-on", "regression"],
        ["audit", "--resume", "nowhere"],
        ["audit", "good", "--resume", "nowhere"],
        ["audit", "good", "--no-such-option"],
        ["audit", "good", "--concurrency", "0"],
        ["audit", "good", "--data", "nosuch"],
        ["no-such-command"],
        ["generate"],
        ["compare", "nowhere", "nothing"],
        ["reproduce", "no-such-room"],
        ["reproduce", "clustering", "--scale", "moon"],
        ["train", "missing.yaml"],
        ["models", "fetch", "no-such-model"],
        ["models", "path", "no-such-model"],
        ["generate", "", "hello"],
        ["generate", "good", "hello", "--top-p", "0"],
    ],
)
def test_a_mistake_is_one_line_and_exit_2(run, arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert one_line(err).startswith("Error: ")
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(run):
    from intarsia.core.errors import ConfigError

    with pytest.raises(ConfigError):
        run("reproduce", "no-such-room", "--debug")


def test_audit_prints_saves_and_gates(run, scripted, tmp_path):
    out_folder = str(tmp_path / "run")
    code, out, _ = run("audit", "good", "--out", out_folder)
    assert code == 0
    assert "echo.accuracy" in out
    assert "1 pass, 1 skipped" in out
    assert "report.html" in out
    assert run("audit", "good", "--out", out_folder, "--fail-on", "echo.*")[0] == 0
    assert run("audit", "--resume", out_folder, "--fail-on", "needy")[0] == 3
    assert run("audit", "good", "--out", out_folder, "--fail-on", "nonsense")[0] == 3
    assert run("audit", "bad", "--out", str(tmp_path / "bad"), "--fail-on", "echo.accuracy")[0] == 3


def test_regression_goes_by_the_baseline_not_by_the_order(run, scripted, tmp_path):
    for number, (models, baseline, code) in enumerate(
        [(("good", "bad"), "good", 3), (("bad", "good"), "good", 3), (("good", "bad"), "bad", 0)]
    ):
        folder = str(tmp_path / str(number))
        assert run("audit", *models, "--baseline", baseline, "--fail-on", "regression", "--out", folder)[0] == code


def test_audit_json_is_json_alone(run, scripted, tmp_path):
    code, out, _ = run("audit", "good", "--out", str(tmp_path / "run"), "--json")
    assert code == 0
    assert Report.model_validate(json.loads(out)).claims[0].state == "pass"


def test_compare_finished_audits(run, scripted, tmp_path):
    for name in ("good", "bad"):
        assert run("audit", name, "--out", str(tmp_path / name))[0] == 0
    code, out, _ = run("compare", str(tmp_path / "good"), str(tmp_path / "bad"), "--json")
    assert code == 0
    assert json.loads(out)["contrasts"][0]["state"] == "worse"
    code, out, _ = run("compare", str(tmp_path / "good"), str(tmp_path / "bad"), "--fail-on", "regression")
    assert code == 3
    assert "worse" in out


def test_settings_from_a_file_are_overridden_by_what_is_typed(run, scripted, tmp_path):
    (tmp_path / "audit.yaml").write_text("models: [good]\nseed: 3\noptions: {echo: {items: 10}}\n")
    code, out, _ = run(
        "audit", "--config", str(tmp_path / "audit.yaml"), "--seed", "4", "--set", "echo.items=12", "--json",
        "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert code == 0
    report = json.loads(out)
    assert report["config"]["seed"] == 4
    assert report["results"][0]["claims"][0]["n"] == 12


def test_defaults_that_are_typed_override_a_file(run, scripted, tmp_path):
    (tmp_path / "audit.yaml").write_text("models: [good]\nseed: 3\nbudget: full\n")
    code, out, _ = run(
        "audit", "--config", str(tmp_path / "audit.yaml"), "--seed", "0", "--budget", "quick", "--json",
        "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert code == 0
    config = json.loads(out)["config"]
    assert (config["seed"], config["budget"]) == (0, "quick")


def test_interrupted_audit_says_how_to_go_on(run, scripted, tmp_path, monkeypatch):
    def stop(self, context):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Echo, "run", stop)
        code, _, err = run("audit", "good", "--out", str(tmp_path / "run"))
    assert code == 130
    assert "intarsia audit --resume" in one_line(err)
    assert run("audit", "--resume", str(tmp_path / "run"))[0] == 0


def test_the_command_that_goes_on_can_be_pasted(run, scripted, tmp_path, monkeypatch):
    def stop(self, context):
        raise KeyboardInterrupt

    monkeypatch.setattr(Echo, "run", stop)
    code, _, err = run("audit", "good", "--out", str(tmp_path / "my run's"))
    assert code == 130
    words = shlex.split(err.partition("Go on with: ")[2])
    assert words == ["intarsia", "audit", "--resume", str(tmp_path / "my run's")]


def test_a_stop_before_the_folder_is_there_does_not_point_to_it(run, scripted, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("intarsia.audit.command.run_audit", stop)
    code, _, err = run("audit", "good", "--out", str(tmp_path / "run"))
    assert code == 130
    assert "--resume" not in one_line(err)
    assert "same command" in one_line(err)


def test_a_terminated_audit_says_how_to_go_on(run, scripted, tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(Echo, "run", lambda self, context: os.kill(os.getpid(), signal.SIGTERM))
        code, _, err = run("audit", "good", "--out", str(tmp_path / "run"))
    assert code == 128 + signal.SIGTERM
    assert "intarsia audit --resume" in one_line(err)
    assert signal.getsignal(signal.SIGTERM) is before
    assert run("audit", "--resume", str(tmp_path / "run"))[0] == 0


def test_ctrl_c_in_any_command_says_so(run, monkeypatch):
    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr("intarsia.core.doctor.doctor", stop)
    code, out, err = run("doctor")
    assert (code, out, one_line(err)) == (130, "", "Stopped.")


def test_options_that_are_no_mapping_are_one_line(run, scripted, tmp_path):
    for content in ("options: 3\n", "options: {echo: 3}\n"):
        (tmp_path / "audit.yaml").write_text(content)
        code, _, err = run("audit", "good", "--config", str(tmp_path / "audit.yaml"), "--set", "echo.items=3")
        assert code == 2
        assert "options" in one_line(err)


def test_a_comparison_does_not_overwrite_an_audit(run, scripted, tmp_path):
    for name in ("good", "bad"):
        assert run("audit", name, "--out", str(tmp_path / name))[0] == 0
    before = (tmp_path / "good" / "report.json").read_bytes()
    code, _, err = run("compare", str(tmp_path / "good"), str(tmp_path / "bad"), "--out", str(tmp_path / "good"))
    assert code == 2
    assert "report would be lost" in one_line(err)
    assert (tmp_path / "good" / "report.json").read_bytes() == before


def test_an_audit_goes_on_when_its_reader_has_gone():
    script = (
        "import sys, time\n"
        "from intarsia.audit.command import SteadyConsole, _echo\n"
        "sys.stdin.readline()\n"
        "console = SteadyConsole()\n"
        "for _ in range(5): console.print('xxxx ' * 14000)\n"
        "_echo('y' * 70000)\n"
        "print('went on', file=sys.stderr)\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, stderr=pipe) as child:
        child.stdout.close()
        child.stdin.write(b"go\n")
        child.stdin.close()
        err = child.stderr.read().decode()
        assert child.wait() == 0
    assert err == "went on\n"


def test_a_full_disk_behind_the_output_is_one_line(run, monkeypatch):
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    for arguments in (["rooms"], ["rooms", "--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "intarsia", *arguments], stdout=full, stderr=subprocess.PIPE, text=True
            )
        assert done.returncode == 2
        assert "disk is full" in one_line(done.stderr)


def test_rooms_and_version(run):
    code, out, _ = run("rooms", "--json")
    assert code == 0
    assert len(json.loads(out)) == 19
    assert run("--version")[1].strip() == __import__("intarsia").__version__


def test_a_room_brings_its_own_commands(run, monkeypatch, tmp_path):
    import types

    import typer

    import intarsia.rooms as table

    made = types.ModuleType("a_room_commands")
    made.app = typer.Typer()

    @made.app.command()
    def hello(name: str) -> None:
        typer.echo(f"hello {name}")

    @made.app.command()
    def other() -> None:
        raise cli.ConfigError("Something is wrong.", "Mend it.")

    monkeypatch.setitem(sys.modules, "a_room_commands", made)
    ready = table.Room(**{**vars(table.ROOMS[0]), "name": "aroom", "state": "ready", "commands": "a_room_commands:app"})
    monkeypatch.setattr(table, "ROOMS", (ready,))
    assert "aroom" in run("--help")[1]
    assert run("aroom", "hello", "you")[:2] == (0, "hello you\n")
    assert "hello" in run("aroom", "--help")[1]
    assert run("aroom", "other")[2].strip() == "Error: Something is wrong. Mend it."

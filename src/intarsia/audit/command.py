"""What `intarsia audit`, `compare` and `reproduce` do once the command line is read."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, get_args

import typer
from rich.console import Console

from intarsia.audit.compare import compare
from intarsia.audit.config import (
    AuditConfig,
    choose_studies,
    make_config,
    nearest,
    parse_settings,
    read_config,
)
from intarsia.audit.dryrun import Planned, plan_audit
from intarsia.audit.engine import Listener, default_folder, run_audit
from intarsia.audit.folder import SETTINGS, RunFolder
from intarsia.audit.gate import REGRESSION, gate
from intarsia.core.data import parse_mapping
from intarsia.core.errors import ConfigError, IntarsiaError
from intarsia.core.report import to_json
from intarsia.core.report.outline import summary
from intarsia.core.report.terminal import VerdictTable, print_contrasts
from intarsia.core.reproduce import SCALES, reproduce
from intarsia.core.study import BudgetName, Context, Report, Result
from intarsia.rooms import audit_studies, reproductions
from intarsia.rooms import room as find_room

EXIT_GATE = 3


class SteadyConsole(Console):
    """Falls silent when its reader (`head`, `less`) has gone; the work goes on."""

    def on_broken_pipe(self) -> None:
        """Sends what is still printed nowhere."""
        self.quiet = True
        _to_nowhere(sys.stderr if self.stderr else sys.stdout)


def _to_nowhere(stream: Any) -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)


def _echo(text: str) -> None:
    """Print to standard output, or to nobody when the reader has gone."""
    try:
        typer.echo(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _to_nowhere(sys.stdout)


class TerminalListener(Listener):
    """Prints rows as they finish, above a progress line that is quiet when nobody watches."""

    def __init__(self, table: VerdictTable) -> None:
        self.table = table
        self.stage = ""

    def opening(self, target: str) -> None:
        """Says that a model is being loaded, to who watches."""
        if self.table.console.is_terminal:
            self.table.console.print(f"Opening {target} ...", style="dim", highlight=False, markup=False)

    def started(self, target: str, study: str) -> None:
        """Names the stage that the progress line shows."""
        self.stage = f"{study} on {target}"

    def progress(self, what: str, done: int, total: int) -> None:
        """Moves the progress line."""
        self.table.progress(f"{self.stage}: {what}" if self.stage else what, done, total)

    def finished(self, result: Result) -> None:
        """Prints the rows of a result."""
        self.table.add(result)


def audit_command(
    given: Mapping[str, Any],
    *,
    opening: Mapping[str, Any],
    config_file: Path | None,
    settings: Sequence[str],
    fail_on: Sequence[str],
    judged: str,
    out: Path | None,
    resume: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run, resume or plan an audit; returns the exit code."""
    if judged not in ("fail", "warn"):
        raise ConfigError(f"--judged {judged!r} is not known.", "Use fail or warn.")
    if resume is not None:
        if _typed(given) or settings or config_file or out:
            raise ConfigError("--resume takes its settings from the folder.", "Leave the other settings out.")
        with RunFolder(resume) as folder:
            config = folder.config
        out = resume
    else:
        config = _settings(given, config_file, settings)
    if REGRESSION in fail_on and not (len(config.models) == 2 and config.baseline):
        raise ConfigError(
            "--fail-on regression needs two models and the one that is the baseline.",
            "Run `intarsia audit TUNED BASE --baseline BASE --fail-on regression`.",
        )
    studies = {study.name: study for study in audit_studies()}
    console = SteadyConsole(stderr=as_json)
    if dry_run:
        _print_plan(plan_audit(config, studies, opening), console, as_json)
        return 0
    out = out or default_folder(config.models)
    chosen = choose_studies(studies, config.studies)
    trouble: IntarsiaError | None = None
    try:
        with _terminable(), VerdictTable(console, len(chosen) * len(config.models), config.models) as table:
            report = run_audit(config, out, studies=studies, opening=opening, listener=TerminalListener(table))
    except KeyboardInterrupt as stop:
        raise Interrupted(out, 128 + signal.SIGTERM if isinstance(stop, _Terminated) else 130) from None
    except IntarsiaError as error:
        if not hasattr(error, "report"):
            raise
        trouble, report = error, error.report
    if as_json:
        _echo(to_json(report))
    _close(report, console, out / "report.html")
    if trouble is not None:
        raise IntarsiaError(trouble.message, trouble.hint)
    return _gate(report, fail_on, "warn" if judged == "warn" else "fail", console)


class Interrupted(IntarsiaError):
    """The user stopped the audit; what is done is kept."""

    exit_code = 130

    def __init__(self, out: Path, exit_code: int = 130) -> None:
        if (out / SETTINGS).is_file():
            again = f"Go on with: intarsia audit --resume {shlex.quote(str(out))}"
            super().__init__("Stopped; everything finished is kept.", again)
        else:
            super().__init__("Stopped before anything was asked.", "Start it again with the same command.")
        self.exit_code = exit_code


class _Terminated(KeyboardInterrupt):
    """A scheduler or the system ends the process."""


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM stop the audit as Ctrl-C does: with a word on how to go on."""
    owner = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:  # A forked worker has nobody to tell.
            os._exit(128 + number)
        raise _Terminated

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # Only the main thread may set a handler.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _typed(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the user typed; a 0 counts, what is empty was left out."""
    return {key: value for key, value in given.items() if value not in (None, "", [], {})}


def _settings(given: Mapping[str, Any], config_file: Path | None, settings: Sequence[str]) -> AuditConfig:
    """The file's settings, overridden by what was typed."""
    values = read_config(config_file) if config_file is not None else {}
    typed = _typed(given)
    if "mapping" in typed:
        typed["mapping"] = parse_mapping(typed["mapping"])
    values.update(typed)
    held = values.get("options")
    if held and not (isinstance(held, Mapping) and all(isinstance(chosen, Mapping) for chosen in held.values())):
        raise ConfigError("The options are not mappings, one a study.", "Write `options: {capability: {items: 50}}`.")
    if settings:
        options = {name: dict(chosen) for name, chosen in (values.get("options") or {}).items()}
        for name, chosen in parse_settings(settings).items():
            options.setdefault(name, {}).update(chosen)
        values["options"] = options
    if not values.get("models"):
        raise ConfigError("No model is named.", "Try: intarsia audit smollm2-135m --budget smoke")
    budget = values.get("budget", "quick")
    if budget not in get_args(BudgetName):
        raise ConfigError(f"There is no budget {budget!r}.", nearest(str(budget), get_args(BudgetName)))
    return make_config(values)


def _close(report: Report, console: Console, where: Path | None) -> None:
    """What stands below the rows that were printed as they finished."""
    if report.contrasts:
        console.print()
        print_contrasts(report.contrasts, console)
    console.print(f"\n{summary(report)}", highlight=False, markup=False, soft_wrap=not console.is_terminal)
    if where is not None:
        console.print(f"Report: {where}", highlight=False, markup=False, soft_wrap=True)


def _gate(report: Report, patterns: Sequence[str], judged: Any, console: Console) -> int:
    if not patterns:
        return 0
    found = gate(report, patterns, judged)
    for line in found.warnings:
        console.print(f"Warning: {line}", markup=False, highlight=False)
    for line in found.broken:
        console.print(f"Not met: {line}", markup=False, highlight=False)
    return EXIT_GATE if found.broken else 0


def _print_plan(rows: Sequence[Planned], console: Console, as_json: bool) -> None:
    if as_json:
        _echo(json.dumps([row._asdict() for row in rows], indent=2))
        return
    for row in rows:
        time = "" if row.seconds is None else f", at most about {row.seconds:.0f} s"
        what = (
            f"skipped: {row.skip}"
            if row.skip
            else f"{row.calls:,} calls, {row.prompt_tokens:,} prompt tokens, up to {row.new_tokens:,} new tokens{time}"
        )
        wrap = not console.is_terminal
        console.print(f"{row.study} on {row.target}: {what}", highlight=False, markup=False, soft_wrap=wrap)
        for step in row.steps:
            console.print(f"  {step}", style="dim", highlight=False, markup=False, soft_wrap=wrap)


def compare_command(a: Path, b: Path, fail_on: Sequence[str], out: Path | None, as_json: bool) -> int:
    """Compare two finished audits; returns the exit code."""
    if out is not None and (out / SETTINGS).exists():
        raise ConfigError(f"{out} holds an audit, whose report would be lost.", "Give another --out.")
    report = compare(a, b)
    console = SteadyConsole(stderr=as_json)
    if out is not None:
        report.save(out)
    if as_json:
        _echo(to_json(report))
    _close(report, console, out / "report.html" if out is not None else None)
    return _gate(report, fail_on, "fail", console)


def reproduce_command(
    room: str,
    scale: str,
    seeds: int | None,
    seed: int,
    out: Path,
    work: Path | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Run a room's reproductions; returns the exit code (a claim that does not hold is a result, not an error)."""
    found = find_room(room)
    if scale not in SCALES:
        raise ConfigError(f"There is no scale {scale!r}.", nearest(scale, SCALES))
    studies = reproductions(found.name)
    if not studies:
        raise ConfigError(
            f"The room {found.name} has nothing to reproduce yet ({found.state}).", "`intarsia rooms` shows which have."
        )
    console = SteadyConsole(stderr=as_json)
    if dry_run:
        for study in studies:
            plan = study.plan(Context(scale=scale, seeds=seeds, seed=seed, options=study.Options()))
            console.print(f"{study.name}: {study.question}", highlight=False, markup=False)
            for step in plan.steps:
                console.print(f"  {step}", style="dim", highlight=False, markup=False)
        return 0
    with VerdictTable(console, len(studies)) as table:
        listener = TerminalListener(table)
        report = reproduce(
            found.name,
            studies,
            scale=scale,
            seeds=seeds,
            seed=seed,
            out=out,
            work=work,
            progress=listener.progress,
            finished=listener.finished,
        )
    if as_json:
        _echo(to_json(report))
    _close(report, console, out / f"{found.name}.json")
    return 0

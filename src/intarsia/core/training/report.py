"""What a training run did, or would do, and how it is told."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from rich.console import Console


class TrainReport(BaseModel):
    """What a training run did, or, for a dry run, would do.

    Attributes:
        kind: Of the recipe.
        status: `planned` (dry run), `finished`, or `already finished` (nothing was left to do).
        model: Name of the base model.
        out: The run folder.
        steps: Optimizer steps of the whole run.
        resumed_from: Step at which this session went on; 0 for a run from the start.
        processes: Processes that trained together.
        parameters: Of the model, adapters included.
        trainable: Of them, those that are trained.
        rows: Rows to learn from.
        held_out: Rows to evaluate on.
        tokens_per_step: Tokens an optimizer step, padding not counted; an estimate in a dry run.
        memory_bytes: Estimate of the memory that training takes, each process; set in a dry run only.
        first_loss: At step 1.
        last_loss: At the last step.
        eval_loss: On the held-out rows at the end, where there are any.
        tokens: Tokens trained on in this session.
        seconds: Time spent on training steps in this session.
        tokens_per_second: Of this session, all processes together.
        peak_rss_bytes: Highest resident memory of the first process.
        peak_gpu_bytes: Highest memory that torch took on its first GPU; 0 without one.
        notes: What the user should know, one line each.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    status: Literal["planned", "finished", "already finished"]
    model: str
    out: str
    steps: int
    resumed_from: int = 0
    processes: int = 1
    parameters: int
    trainable: int
    rows: int
    held_out: int = 0
    tokens_per_step: float
    memory_bytes: int = 0
    first_loss: float | None = None
    last_loss: float | None = None
    eval_loss: float | None = None
    tokens: int = 0
    seconds: float = 0.0
    tokens_per_second: float = 0.0
    peak_rss_bytes: int = 0
    peak_gpu_bytes: int = 0
    notes: tuple[str, ...] = ()

    @property
    def model_path(self) -> Path:
        """Folder of the trained model; a full model, or an adapter to be loaded as `base+folder`."""
        return Path(self.out) / "model"

    @property
    def audit_command(self) -> str:
        """The command that holds the trained model against the one that it came from."""
        # Of an adapter only the adapter is trained; its name is that of the base and the folder.
        tuned = str(self.model_path) if self.trainable == self.parameters else f"{self.model}+{self.model_path}"
        return f"intarsia audit {shlex.quote(self.model)} {shlex.quote(tuned)}"


def summarize(report: TrainReport, console: Console) -> None:
    """Print a report: a few lines of figures, then the notes, then what to do next."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, value in summary_lines(report):
        table.add_row(name, Text(value))
    console.print(table)
    for note in report.notes:
        console.print(f"Note: {note}", style="yellow", markup=False)
    if report.status != "planned":
        console.print("\nWhat did it change?")
        console.print(report.audit_command, style="cyan", markup=False, highlight=False, soft_wrap=True)


def summary_lines(report: TrainReport) -> list[tuple[str, str]]:
    """A report as (name, value) lines."""
    share = report.trainable / max(1, report.parameters)
    lines = [
        ("run", f"{report.status}, {report.out}"),
        ("model", report.model),
        ("parameters", f"{report.parameters:,}, {report.trainable:,} trained ({share:.2%})"),
        ("rows", f"{report.rows:,}" + (f" and {report.held_out:,} held out" if report.held_out else "")),
        ("steps", f"{report.steps:,}" + (f", went on after step {report.resumed_from}" if report.resumed_from else "")),
        ("tokens a step", f"{report.tokens_per_step:,.0f}"),
    ]
    if report.status == "planned":
        lines.append(("memory", f"about {report.memory_bytes / 2**30:.1f} GiB a process (an estimate)"))
        return lines
    if report.first_loss is not None and report.last_loss is not None:
        lines.append(("loss", f"{report.first_loss:.4f} at step 1, {report.last_loss:.4f} at the end"))
    if report.eval_loss is not None:
        lines.append(("held-out loss", f"{report.eval_loss:.4f}"))
    if report.seconds:
        lines.append(("speed", f"{report.tokens_per_second:,.0f} tokens/s, {report.seconds:,.1f} s on training"))
    lines.append(("memory", f"{report.peak_rss_bytes / 2**30:.2f} GiB resident at most"))
    if report.peak_gpu_bytes:
        lines.append(("GPU memory", f"{report.peak_gpu_bytes / 2**30:.2f} GiB at most"))
    return lines

"""Run one study under watch: times, memory and the command line go into `Result.run`, never into the body."""

from __future__ import annotations

import os
import re
import resource
import shlex
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from intarsia.core.study import Context, Result, Run, Study


def execute(study: Study, context: Context) -> Result:
    """The study's result with `run` filled in.

    Args:
        study: What is asked.
        context: What it is given.

    Returns:
        The result of `study.run(context)`; seconds that the study measured itself are kept.
    """
    watch = Stopwatch()
    result = study.run(context)
    resumed = context.journal.resumed if context.journal is not None else 0
    return result.model_copy(update={"run": watch.read(seconds=result.run.seconds, resumed=resumed)})


class Stopwatch:
    """Notes when something starts; `read` says how it went until then."""

    def __init__(self) -> None:
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._wall, self._cpu = time.perf_counter(), cpu_seconds()

    def read(self, *, seconds: Mapping[str, float] | None = None, resumed: int = 0) -> Run:
        """Command, times and memory since the start.

        Args:
            seconds: Times that the work measured itself, by name.
            resumed: Rows that a journal held already.
        """
        return Run(
            command=command_line(),
            started=self._started,
            wall_seconds=round(time.perf_counter() - self._wall, 3),
            cpu_seconds=round(cpu_seconds() - self._cpu, 3),
            peak_rss_bytes=peak_rss_bytes(),
            seconds=dict(seconds or {}),
            resumed=resumed,
        )


def command_line() -> str:
    """What the user typed, with the program's name only (no paths of this machine)."""
    program = os.path.basename(sys.argv[0]) or "python"
    words = ["python", "-m", "intarsia"] if program == "__main__.py" else [program]
    # A login inside an address must not reach a report.
    return re.sub(r"://[^/@\s]+@", "://***@", shlex.join([*words, *sys.argv[1:]]))


def peak_rss_bytes() -> int:
    """Highest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def cpu_seconds() -> float:
    """Processor time of this process and its finished children so far, in seconds."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system

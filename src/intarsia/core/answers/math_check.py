"""Comparing formulas with math-verify, in a process that can be killed.

Parsing a formula may never end (towers of powers), and math-verify's own time-out works by a signal, which only the
main thread may use. So the work is done by a worker process that is killed when it is late, and started anew for the
next formula. Whatever cannot be compared that way is compared as text, and the outcome says so.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from intarsia.core.errors import BackendError

LONGEST = 4000
"""Characters of the longest text that is parsed; of a longer one the end is taken, where the answer stands."""


@dataclass(frozen=True)
class MathOutcome:
    """Whether two formulas are equal.

    Attributes:
        equal: Whether they are.
        parsed: The model's formula as read, None when there is none.
        method: `math-verify` or `string`.
        note: Why it is not math-verify, when it is not.
    """

    equal: bool
    parsed: str | None
    method: str
    note: str = ""


class MathChecker:
    """A few worker processes that compare formulas.

    Usable from several threads at once; each call takes a free worker or starts one, up to `workers`.

    Args:
        workers: Most processes.
        timeout: Seconds that one comparison may take before its worker is killed.
        startup: Seconds that a worker may take to load.
    """

    def __init__(self, workers: int = 1, timeout: float = 5.0, startup: float = 120.0) -> None:
        if workers < 1 or timeout <= 0:
            raise ValueError("workers and timeout must be positive")
        self.timeout = timeout
        self.startup = startup
        self.kills = 0
        self._free: list[_Worker] = []
        self._slots = threading.Semaphore(workers)
        self._lock = threading.Lock()
        self._closed = False

    def check(self, gold: str, text: str, *, alone: bool = False) -> MathOutcome:
        r"""Compare the model's text with the gold formula.

        Args:
            gold: The right formula, with or without dollar signs.
            text: What the model said, or the marked part of it.
            alone: Whether `text` is the answer alone (the content of a `\boxed{}`), rather than prose that holds it.
        """
        text = text[-LONGEST:]
        if not text.strip():
            return MathOutcome(False, None, "string", "no answer")
        if plain_form(text) == plain_form(gold):
            return MathOutcome(True, text.strip(), "string")
        answer, note = self._ask({"gold": gold, "text": text, "alone": alone})
        if answer is None:
            return MathOutcome(False, text.strip() if alone else None, "string", note)
        parsed = None if answer.get("parsed") is None else str(answer["parsed"])
        if answer.get("equal"):
            return MathOutcome(True, parsed, "math-verify")
        if parsed is None and alone:
            # A name or an interval in words: math-verify reads no formula, and the texts differ.
            return MathOutcome(False, text.strip(), "string", "no formula found")
        return MathOutcome(False, parsed, "math-verify")

    def close(self) -> None:
        """End all workers. Safe to call twice."""
        with self._lock:
            self._closed = True
            idle, self._free = self._free, []
        for worker in idle:
            worker.kill()

    def _ask(self, request: dict[str, object]) -> tuple[dict[str, object] | None, str]:
        with self._slots:
            with self._lock:
                if self._closed:
                    raise BackendError("The formula checker is closed.", "Make a new one.")
                worker = self._free.pop() if self._free else None
            worker = worker or _Worker(self.startup)
            reply = worker.ask(request, self.timeout)
            if reply is None:
                late = worker.late
                worker.kill()
                self.kills += 1
                return None, "math-verify ran out of time" if late else "math-verify's process died"
            with self._lock:
                if self._closed:
                    worker.kill()
                else:
                    self._free.append(worker)
            return reply, ""


class _Worker:
    def __init__(self, startup: float) -> None:
        self.late = False
        self._buffer = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "intarsia.core.answers.math_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the parent's business
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        if self._read(startup) is None:
            self.kill()
            raise BackendError(
                "The formula checker does not start.",
                'Check that math-verify is installed: pip install "math-verify[antlr4_13_2]".',
            )

    def ask(self, request: dict[str, object], timeout: float) -> dict[str, object] | None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except (BrokenPipeError, OSError):
            return None
        return self._read(timeout)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                # Closing flushes, which fails when the worker died with a request half read.
                with contextlib.suppress(OSError):
                    pipe.close()

    def _read(self, timeout: float) -> dict[str, object] | None:
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([out], [], [], left)[0]:
                self.late = True
                return None
            chunk = os.read(out, 65536)
            if not chunk:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply = json.loads(line)
        assert isinstance(reply, dict)
        return reply


_shared: MathChecker | None = None
_shared_lock = threading.Lock()


def check_math(gold: str, text: str, *, alone: bool = False) -> MathOutcome:
    """Compare with the process-wide checker, which starts at the first need and ends with the interpreter."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = MathChecker()
        checker = _shared
    return checker.check(gold, text, alone=alone)


def close() -> None:
    """End the process-wide checker; the next comparison starts a new one."""
    global _shared
    with _shared_lock:
        checker, _shared = _shared, None
    if checker is not None:
        checker.close()


def _forget() -> None:
    """A forked child must not talk through its parent's pipes."""
    global _shared, _shared_lock
    _shared, _shared_lock = None, threading.Lock()


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def plain_form(text: str) -> str:
    r"""A formula as text in a common form: no dollar signs, spaces, `\left`, `\text{}` or trailing dot."""
    text = text.strip().rstrip(".").strip("$").strip()
    text = re.sub(r"\\\[|\\\]|\\\(|\\\)", "", text).strip().rstrip(".")
    text = re.sub(r"\\(?:text|textbf|mathrm|mbox)\s*\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\(?:left|right|!|,|;|:|quad|qquad)(?![A-Za-z])", "", text)
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("^\\circ", "").replace("\\%", "%")
    return re.sub(r"\s+", "", text).lower()

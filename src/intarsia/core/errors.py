"""The errors a user can meet.

Each error carries one line that says what is wrong and, in `hint`, one line that says what to do. The command line
prints both, exits with code 2, and shows a traceback only with `--debug`.
"""

from __future__ import annotations


class IntarsiaError(Exception):
    """Base of every error that a user can cause or mend.

    Args:
        message: What is wrong, in one line.
        hint: What to do about it, in one line; may be empty.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = " ".join(message.split())
        self.hint = " ".join(hint.split())

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()

    def __reduce__(self) -> tuple[object, ...]:
        # Two-argument exceptions must survive the trip back from a worker process.
        return (type(self), (self.message, self.hint))


class ConfigError(IntarsiaError):
    """A command, recipe, configuration file or option is wrong."""


class DataError(IntarsiaError):
    """A data set is missing, empty, damaged, or lacks a field."""


class ModelError(IntarsiaError):
    """A model cannot be found, fetched, loaded, or does not fit the job."""


class BackendError(IntarsiaError):
    """Something the work runs on failed: an endpoint, a disk, a registry, a cluster."""


class SandboxError(IntarsiaError):
    """Model-written code cannot be run safely here, or broke a limit."""


class Interrupted(IntarsiaError):
    """The user stopped the run; what is done is kept."""

    exit_code = 130

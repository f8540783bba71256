"""Secrets from the environment or a private file: used where they are needed, shown nowhere."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from intarsia.core.errors import ConfigError

MASK = "***"
_MOST_BYTES = 64 * 1024


class Secret:
    """A secret that prints, pickles and compares by where it came from, never by what it is.

    A copy that travels to a worker process is read again there, from the same variable or file, so the secret itself
    is never written into a pickle.

    Attributes:
        origin: Where it was read (`OPENAI_API_KEY`, `the file key.txt`); safe to show.
    """

    def __init__(self, value: str, *, variable: str = "", path: str = "") -> None:
        self._value = value
        self._variable, self._path = variable, path
        self.origin = variable or (f"the file {Path(path).name}" if path else "the address")

    @classmethod
    def from_environment(cls, variables: Sequence[str]) -> Secret | None:
        """The first of these environment variables that is set and not empty, or None."""
        for variable in variables:
            value = os.environ.get(variable, "").strip()
            if value:
                return cls(_usable(value, variable), variable=variable)
        return None

    @classmethod
    def from_file(cls, path: str | Path) -> Secret:
        """The content of a file that only its owner may read, without white space at its ends.

        Raises:
            ConfigError: There is no such file, others may read it, or it does not hold one line of plain text.
        """
        path = Path(path).expanduser()
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise ConfigError(
                f"The key file {path} cannot be read: {error.strerror}.", "Name a file that holds the key alone."
            ) from None
        try:
            # The open file is asked, not the name, so that nobody can swap the file in between.
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"The key file {path} is not an ordinary file.", "Name a file that holds the key.")
            if status.st_mode & 0o077:
                raise ConfigError(
                    f"The key file {path} can be read or written by others (mode {status.st_mode & 0o777:04o}).",
                    f"Run `chmod 600 {path}`, and change the key if others may have seen it.",
                )
            content = os.read(descriptor, _MOST_BYTES + 1)
        finally:
            os.close(descriptor)
        try:
            value = content.decode("ascii").strip() if len(content) <= _MOST_BYTES else ""
        except UnicodeDecodeError:
            value = ""
        if not value:
            raise ConfigError(
                f"The key file {path} does not hold a key.", "Write the key into it as one line of plain text."
            )
        return cls(_usable(value, f"the key file {path}"), path=str(path.absolute()))

    def reveal(self) -> str:
        """The secret itself; only for the call that needs it."""
        return self._value

    def scrub(self, text: str) -> str:
        """`text` with every occurrence of the secret, plain or base64, replaced by `***`."""
        if not self._value:
            return text
        encoded = base64.b64encode(self._value.encode()).decode()
        return text.replace(self._value, MASK).replace(encoded, MASK)

    def __repr__(self) -> str:
        return f"Secret(from {self.origin})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.origin == other.origin

    def __hash__(self) -> int:
        return hash(self.origin)

    def __reduce__(self) -> tuple[object, ...]:
        return (_read_again, (self._variable, self._path))


def _usable(value: str, origin: str) -> str:
    """A secret goes into a header line: printable ASCII only. The error does not show it."""
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise ConfigError(
            f"The key in {origin} holds spaces, line breaks or characters outside ASCII.", "Copy the key again."
        )
    return value


def _read_again(variable: str, path: str) -> Secret:
    if path:
        return Secret.from_file(path)
    secret = Secret.from_environment([variable]) if variable else None
    if secret is None:
        raise ConfigError(
            f"The key from {variable or 'the address'} is not there in this process.",
            "Set the variable where the workers start.",
        )
    return secret

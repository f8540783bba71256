"""What the rooms' commands share: consoles, names of folders, JSON, and runs that leave nothing half-written."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.core.errors import IntarsiaError, Interrupted

if TYPE_CHECKING:
    from rich.console import Console


@contextlib.contextmanager
def resumable(kept: bool = True) -> Iterator[None]:
    """Turn Ctrl-C into one line that says how to go on.

    Args:
        kept: Whether finished batches are kept somewhere.

    Raises:
        Interrupted: In place of KeyboardInterrupt.
    """
    try:
        yield
    except KeyboardInterrupt:
        if kept:
            raise Interrupted(
                "Stopped; every finished batch is kept.", "The same command goes on from there."
            ) from None
        raise Interrupted("Stopped; nothing is kept.", "With --out a run can be gone on with.") from None


@contextlib.contextmanager
def leaving_nothing(folder: Path) -> Iterator[None]:
    """Remove a new folder when the run failed before it had anything to keep."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        yield
    except BaseException:
        if folder in new and folder.is_dir() and _is_bare(folder):
            with contextlib.suppress(OSError):
                for entry in folder.iterdir():
                    entry.unlink()
                for place in new:
                    place.rmdir()
        raise


def _is_bare(folder: Path) -> bool:
    """Whether the folder holds nothing but a journal without rows."""
    from intarsia.core.journal import Journal

    if any(not entry.name.startswith("journal.jsonl") for entry in folder.iterdir()):
        return False
    try:
        return len(Journal.read(folder / "journal.jsonl")) == 0
    except IntarsiaError:
        return True


def slug(name: str) -> str:
    """A model's name as part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.").lower()[-60:] or "model"


def console(quiet: bool) -> Console:
    """A console on standard output; on standard error where standard output holds JSON."""
    from rich.console import Console

    return Console(stderr=quiet, highlight=False)


def print_json(data: Any) -> None:
    """Plain data as JSON on standard output."""
    import typer

    typer.echo(json.dumps(data, indent=2, default=str, ensure_ascii=False))

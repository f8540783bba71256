"""The cache folder: entries that are whole or not there, made by one process at a time.

An entry is a folder with a stamp (`intarsia.json`) that lists its files with size, time and SHA-256. It is built beside
its place and renamed into it, so a killed process leaves nothing that looks finished; the next one sweeps its remains
away. The stamp makes checking an entry cheap: sizes and times are compared, and only a file with a new time is hashed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from intarsia.core.errors import BackendError

Say: TypeAlias = Callable[[str], None]
"""Takes one line about what is going on."""

STAMP = "intarsia.json"
_SCHEMA = 1


def root() -> Path:
    """`INTARSIA_CACHE`, else `XDG_CACHE_HOME/intarsia`, else `~/.cache/intarsia`."""
    if chosen := os.environ.get("INTARSIA_CACHE", "").strip():
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME", "").strip() or "~/.cache"
    return Path(base).expanduser().absolute() / "intarsia"


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn what a disk can refuse (no space, no permission) into one line about `folder`.

    Raises:
        BackendError: Writing failed.
    """
    try:
        yield
    except Exception as error:
        code = error.errno if isinstance(error, OSError) else None
        text = str(error).lower()  # safetensors wraps the number into its own error's text
        if code in (errno.ENOSPC, errno.EDQUOT) or "os error 28" in text or "no space left" in text:
            message, hint = f"The disk is full at {folder}.", "Free some space, or set INTARSIA_CACHE to another disk."
        elif code in (errno.EACCES, errno.EPERM, errno.EROFS):
            message = f"No permission to write in {folder}."
            hint = "Set INTARSIA_CACHE to a folder that you may write in."
        elif code in (errno.ENOTDIR, errno.EEXIST):
            message, hint = f"{folder} cannot be made: a file is in the way.", "Set INTARSIA_CACHE to another folder."
        elif isinstance(error, OSError):
            message, hint = f"Writing in {folder} failed: {error.strerror or error}.", "Set INTARSIA_CACHE elsewhere."
        else:
            raise
        raise BackendError(message, hint) from error


def need_space(folder: Path, wanted: int) -> None:
    """Refuse work that the disk has no room for, before it starts.

    Args:
        folder: Where it would be written; may not exist yet.
        wanted: Bytes.

    Raises:
        BackendError: Less is free.
    """
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < wanted:
        raise BackendError(
            f"{folder} needs about {wanted / 1e9:.1f} GB of disk, and {free / 1e9:.1f} GB are free.",
            "Free some space, or set INTARSIA_CACHE to another disk.",
        )


def read(folder: Path) -> dict[str, Any] | None:
    """What an entry's stamp says about it, or None when the entry is missing, unfinished or damaged.

    Files are compared by size and time; one with another time is hashed. Bytes that changed without a trace in size or
    time are found by `verify`.
    """
    return _check(folder, thorough=False)


def verify(folder: Path) -> dict[str, Any] | None:
    """As `read`, but every file is hashed."""
    return _check(folder, thorough=True)


def _check(folder: Path, *, thorough: bool) -> dict[str, Any] | None:
    try:
        stamp = json.loads((folder / STAMP).read_text("utf-8"))
        if stamp["schema"] != _SCHEMA:
            return None
        for name, known in stamp["files"].items():
            found = (folder / name).stat()
            if found.st_size != known["size"]:
                return None
            changed = found.st_mtime_ns != known["mtime_ns"]
            if (thorough or changed) and sha256_of(folder / name) != known["sha256"]:
                return None
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None
    about: dict[str, Any] = dict(stamp["about"])
    return about


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of each file of a finished entry, as its stamp has it."""
    stamp = json.loads((folder / STAMP).read_text("utf-8"))
    return {name: known["sha256"] for name, known in sorted(stamp["files"].items())}


def make(folder: Path, build: Callable[[Path], dict[str, Any]], *, what: str, say: Say) -> dict[str, Any]:
    """The entry at `folder`, built when it is missing or damaged. Safe with other processes at the same work.

    Args:
        folder: The entry's place.
        build: Fills an empty folder and returns what the stamp shall say about it (JSON).
        what: The entry's name in messages.
        say: Told about progress.

    Returns:
        What the stamp says about the entry.

    Raises:
        BackendError: The disk refuses.
    """
    if (about := read(folder)) is not None:
        return about
    parent = folder.parent
    with disk_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        with _lock(parent / f".{folder.name}.lock", what, say):
            if (about := read(folder)) is not None:
                return about
            if folder.exists():
                say(f"{what}: the copy in the cache is damaged or unfinished; making it anew")
            # We hold the lock, so whatever lies here was left by a process that died.
            for remains in parent.glob(f".{folder.name}-*"):
                shutil.rmtree(remains, ignore_errors=True)
            scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=parent))
            try:
                building = scratch / "entry"
                building.mkdir()
                about = build(building)
                _stamp(building, about)
                if folder.exists():
                    folder.rename(scratch / "damaged")
                building.rename(folder)
                _sync(parent)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return about


def discard(folder: Path, *, what: str, say: Say) -> None:
    """Take a damaged entry away, so that the next `make` builds it anew.

    Raises:
        BackendError: The disk refuses.
    """
    with disk_errors(folder.parent), _lock(folder.parent / f".{folder.name}.lock", what, say):
        say(f"{what}: the copy in the cache is damaged; making it anew")
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _lock(file: Path, what: str, say: Say) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(f"{what}: another process is fetching it; waiting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _stamp(folder: Path, about: dict[str, Any]) -> None:
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        path.chmod(0o644)
        _sync(path)
        stat = path.stat()
        files[path.relative_to(folder).as_posix()] = {
            "size": stat.st_size,
            "mtime_ns": stat.st_mtime_ns,
            "sha256": sha256_of(path),
        }
    stamp = {"schema": _SCHEMA, "about": about, "files": files}
    (folder / STAMP).write_text(json.dumps(stamp, indent=1, sort_keys=True) + "\n", "utf-8")
    _sync(folder / STAMP)


def _sync(path: Path) -> None:
    """Force a file or folder onto the disk: a rename must never outlive the bytes that it names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remembered_sha256(path: Path, say: Say) -> str:
    """SHA-256 of a file outside the cache, computed once for each (path, size, time)."""
    stat = path.stat()
    identity = f"{path.resolve()}\0{stat.st_size}\0{stat.st_mtime_ns}"
    note = root() / "hashes" / hashlib.sha256(identity.encode()).hexdigest()
    try:
        known = note.read_text("ascii").strip()
        if len(known) == 64:
            return known
    except (OSError, ValueError):
        pass  # not known yet
    if stat.st_size > 2 << 30:
        say(f"hashing {path.name} ({stat.st_size / 1e9:.1f} GB)")
    found = sha256_of(path)
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        part = note.with_name(f"{note.name}.{os.getpid()}")
        part.write_text(found, "ascii")
        part.replace(note)
    except OSError:
        pass  # a note only saves time; without one the file is hashed again
    return found

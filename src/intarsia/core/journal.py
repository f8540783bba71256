"""Crash-safe, resumable record of a long run.

A journal is a JSONL file: a header line with the run's settings, then one line a batch of rows. Each line carries a
checksum of itself and is forced to disk before `append` returns, so a batch is either wholly in the file or not at all,
whatever kills the process. Rows are found again by the hash of what they answer (`content_key`), never by their place.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import fcntl
import hashlib
import json
import os
import threading
import weakref
from collections.abc import Iterator, KeysView, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, JsonValue

from intarsia.core.errors import BackendError, ConfigError, DataError
from intarsia.core.study import canonical_json

FORMAT = 1
"""Version of the file format; a journal of a newer format is refused."""

_OPENING = b'{"sum":"'
_SUM_END = len(_OPENING) + 16
_REST = _SUM_END + 2  # what the checksum covers starts after `",`


class Journal:
    """Rows of finished work, keyed by content hash.

    One process may write to a journal at a time. Threads of that process may share it; a forked child may read what
    was there, but not append.

    Args:
        path: The file; it and its folder are made when missing. `<path>.lock` beside it holds the lock.
        manifest: The settings that all rows share. An existing journal with other settings is refused. None accepts
            whatever settings the file has.

    Attributes:
        path: The file.
        manifest: The settings as they stand in the file.
        resumed: Rows found at opening.
        dropped: Bytes of a half-written last batch that were cut off at opening.
        unanswered: Prompts of this process that `ask` got no answer to and so did not record.

    Raises:
        ConfigError: The journal belongs to a run with other settings.
        DataError: The file is no journal, or is damaged before its last line.
        BackendError: Another process uses it, or the disk refuses.
    """

    _fd: int | None
    _lock_fd: int | None

    def __init__(self, path: str | Path, *, manifest: Mapping[str, Any] | None = None) -> None:
        self._start(Path(path))
        wanted = None if manifest is None else _normal(manifest)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock_fd = _lock(self.path.with_name(self.path.name + ".lock"))
            _open_journals.add(self)
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._load(wanted)
        except OSError as error:
            self.close()
            raise _disk_error(error, self.path) from error
        except BaseException:
            self.close()
            raise

    @classmethod
    def read(cls, path: str | Path) -> Journal:
        """Open an existing journal for reading only: no lock, and the file is left as it is.

        Raises:
            DataError: There is no such file, it is no journal, or it is damaged before its last line.
        """
        journal = cls.__new__(cls)
        journal._start(Path(path))
        try:
            scan = _scan(journal.path)
        except FileNotFoundError as error:
            raise DataError(f"There is no journal at {path}.", "Check the path of the run folder.") from error
        except OSError as error:
            raise _disk_error(error, journal.path) from error
        if scan.header is None:
            raise DataError(f"The journal {path} is empty.", "Run the command that makes it first.")
        journal._take(scan)
        return journal

    def get(self, key: str) -> Any | None:
        """The row of that key (a copy), or None when there is none; a row itself is never None."""
        row = self._rows.get(key)
        return copy.deepcopy(row) if isinstance(row, (dict, list)) else row

    def append(self, rows: Mapping[str, JsonValue]) -> None:
        """Add a batch of rows with one write and one fsync; on return it is safe on disk.

        A key that is there already takes the new row. After a `BackendError` the file holds all earlier batches and
        nothing of this one, and the journal can be used on once the cause is gone.

        Args:
            rows: JSON values by key; None is not a row.

        Raises:
            TypeError: A row is not a JSON value.
            DataError: A row holds NaN or an infinite number.
            BackendError: The disk is full or fails, or this process does not own the journal.
            ValueError: A row is None, or the journal is closed or open for reading only.
        """
        if not rows:
            return
        line = _batch(rows)
        parsed = json.loads(line)["rows"]
        if os.getpid() != self._pid:
            raise BackendError(
                f"The journal {self.path} belongs to process {self._pid}, not to this forked copy of it.",
                "Append in the process that opened it.",
            )
        with self._mutex:
            if self._fd is None:
                raise ValueError(f"the journal {self.path} is closed or open for reading only")
            self._write(line)
            self._rows.update(parsed)

    def close(self) -> None:
        """Give up the file and its lock; rows can still be read. Safe to call twice."""
        if os.getpid() == self._pid:
            with self._mutex:
                if self._fd is not None and self._torn:
                    with contextlib.suppress(OSError):  # opening cuts the torn tail off as well
                        os.ftruncate(self._fd, self._size)
                self._close_files()
        _open_journals.discard(self)

    def keys(self) -> KeysView[str]:
        """All keys, in the order in which they were first written."""
        return self._rows.keys()

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        # A journal that was forgotten must not keep its run folder locked.
        if getattr(self, "_mutex", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"Journal({str(self.path)!r}, {len(self)} rows)"

    def _start(self, path: Path) -> None:
        self.path = path
        self.manifest: dict[str, JsonValue] = {}
        self.resumed = 0
        self.dropped = 0
        self.unanswered = 0
        self._rows: dict[str, JsonValue] = {}
        self._fd = None
        self._lock_fd = None
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._size = 0
        self._torn = False

    def _take(self, scan: _Scan) -> None:
        self.manifest = (scan.header or {}).get("manifest", {})
        self._rows = scan.rows
        self._size = scan.size
        self.resumed = len(scan.rows)
        self.dropped = scan.dropped

    def _load(self, wanted: dict[str, JsonValue] | None) -> None:
        scan = _scan(self.path)
        if scan.header is not None and wanted is not None:
            _same_settings(self.path, scan.header.get("manifest", {}), wanted)
        self._take(scan)
        assert self._fd is not None
        if scan.dropped:
            os.ftruncate(self._fd, self._size)
            os.fsync(self._fd)
        if scan.header is None:
            self.manifest = wanted or {}
            digest = hashlib.sha256(canonical_json(self.manifest)).hexdigest()
            self._write(_line("head", {"format": FORMAT, "manifest": self.manifest, "manifest_sha256": digest}))
            _sync_folder(self.path.parent)

    def _write(self, line: bytes) -> None:
        assert self._fd is not None
        try:
            if os.fstat(self._fd).st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, "the file was deleted while in use")
            if self._torn:
                os.ftruncate(self._fd, self._size)
            self._torn = True
            written = 0
            while written < len(line):
                written += os.pwrite(self._fd, line[written:], self._size + written)
            os.fsync(self._fd)
            # In this order an interrupt between the two lines does no harm.
            self._size += len(line)
            self._torn = False
        except BaseException as error:
            if self._torn:
                # Should even this fail, the flag stays up and the next append or opening cuts the tail off.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self._size)
                    self._torn = False
            if isinstance(error, OSError):
                raise _disk_error(error, self.path) from error
            raise

    def _close_files(self) -> None:
        # The lock goes with the last copy of its descriptor. An explicit unlock would, in a forked child, free the
        # parent's lock too.
        for fd in (self._fd, self._lock_fd):
            if fd is not None:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._fd = self._lock_fd = None


def content_key(*parts: Any) -> str:
    """Hash of what a row answers, as 32 hex digits.

    Args:
        *parts: JSON values, tuples (as lists) and pydantic models, nested at will. `1`, `1.0`, `True` and `"1"` differ.

    Returns:
        The first half of the SHA-256 of the parts' canonical JSON.

    Raises:
        TypeError: A part is of another type.
        ValueError: A part holds NaN or an infinite number.
    """
    return hashlib.sha256(canonical_json([_plain(part) for part in parts])).hexdigest()[:32]


def repair(path: str | Path) -> int:
    """Keep the good batches of a damaged journal and drop the others; resuming the run does those again.

    The damaged file is kept beside it with the ending `.damaged`.

    Args:
        path: The journal's file.

    Returns:
        Number of lines that were dropped.

    Raises:
        DataError: Its first line, which holds the settings, is damaged.
        BackendError: Another process uses it, or the disk refuses.
    """
    path = Path(path)
    try:
        lines = path.read_bytes().split(b"\n")
        lock = _lock(path.with_name(path.name + ".lock"))
    except OSError as error:
        raise _disk_error(error, path) from error
    try:
        if _parse(lines[0], "head") is None:
            raise DataError(f"Line 1 of {path} is damaged or no journal's.", "Start again with a new --out folder.")
        good = [line for i, line in enumerate(lines) if _parse(line, "rows" if i else "head") is not None]
        bad = len(lines) - (1 if lines[-1] == b"" else 0) - len(good)
        if bad:
            write_atomic(path.with_name(path.name + ".damaged"), b"\n".join(lines))
            write_atomic(path, b"\n".join(good) + b"\n")
        return bad
    finally:
        os.close(lock)


def write_atomic(path: str | Path, content: str | bytes) -> Path:
    """Write a file so that readers, and a killed run, see the old content or the new, never a part.

    Args:
        path: The file; its folder is made when missing.
        content: Text (written as UTF-8) or bytes.

    Returns:
        The path.

    Raises:
        BackendError: The disk is full or refuses; the old file, if any, is untouched.
    """
    path = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise _disk_error(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return path


class _Scan(NamedTuple):
    """What a file holds: header (None for a new file), rows, bytes of good lines, bytes after them."""

    header: dict[str, Any] | None
    rows: dict[str, JsonValue]
    size: int
    dropped: int


def _scan(path: Path) -> _Scan:
    header: dict[str, Any] | None = None
    rows: dict[str, JsonValue] = {}
    size = 0
    dropped = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if dropped:
                # Each batch is on disk before the next begins, so a crash can only damage the last line.
                raise DataError(
                    f"Line {number - 1} of the journal {path} is damaged.",
                    f"Start again with a new --out folder, or keep the good batches: "
                    f"python -c \"from intarsia.core.journal import repair; repair('{path}')\"",
                )
            parsed = _parse(line[:-1], "head" if number == 1 else "rows") if line.endswith(b"\n") else None
            if parsed is None:
                if number == 1 and not _maybe_header(line):
                    raise DataError(f"{path} is not a journal.", "Choose another --out folder.")
                dropped = len(line)
                continue
            if number == 1:
                if parsed.get("format", 0) > FORMAT:
                    raise DataError(
                        f"The journal {path} was written by a newer version (format {parsed['format']}).",
                        "Update intarsia, or start again with a new --out folder.",
                    )
                header = parsed
            else:
                rows.update(parsed)
            size += len(line)
    return _Scan(header, rows, size, dropped)


def _line(kind: str, body: Mapping[str, Any]) -> bytes:
    rest = b'"%s":%s}' % (kind.encode(), canonical_json(body))
    return b'%s%s",%s\n' % (_OPENING, _checksum(rest), rest)


def _parse(line: bytes, kind: str) -> dict[str, Any] | None:
    """The body of a line (without its newline), or None when the line is damaged."""
    rest = line[_REST:]
    if line[:_REST] != b'%s%s",' % (_OPENING, _checksum(rest)) or not rest.startswith(b'"%s":' % kind.encode()):
        return None
    body: dict[str, Any] = json.loads(line)[kind]
    return body


def _checksum(rest: bytes) -> bytes:
    return hashlib.blake2b(rest, digest_size=8).hexdigest().encode()


def _maybe_header(line: bytes) -> bool:
    """Whether a bad first line can be a header that was cut off while being written (so that it is ours to replace)."""
    start = line[: len(_OPENING)]
    return _OPENING.startswith(start) or not line.strip(b"\0")


def _batch(rows: Mapping[str, JsonValue]) -> bytes:
    for key, row in rows.items():
        if not isinstance(key, str):
            raise TypeError(f"a journal's keys are strings, not {type(key).__name__}")
        if row is None:
            raise ValueError(f"the row of {key} is None, which stands for a missing row")
    try:
        return _line("rows", rows)
    except TypeError as error:
        raise TypeError(f"a row is not a JSON value: {error}") from error
    except ValueError as error:
        raise DataError(
            f"A result cannot be recorded: {error}.",
            "A model that gives NaN or infinite numbers may do better in another dtype, for example float32.",
        ) from error


def _plain(part: Any) -> Any:
    if part is None or isinstance(part, (str, bool, int, float)):
        return part
    if isinstance(part, BaseModel):
        return part.model_dump(mode="json")
    if isinstance(part, Mapping):
        for key in part:
            if not isinstance(key, str):
                raise TypeError(f"a mapping's keys must be strings, not {type(key).__name__}")
        return {key: _plain(value) for key, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_plain(value) for value in part]
    raise TypeError(f"{type(part).__name__} has no canonical JSON form")


def _normal(manifest: Mapping[str, Any]) -> dict[str, JsonValue]:
    plain: dict[str, JsonValue] = json.loads(canonical_json(_plain(manifest)))
    return plain


def _same_settings(path: Path, there: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    before, after = dict(_flat(there)), dict(_flat(now))
    absent = object()
    differing = [k for k in sorted(before | after) if before.get(k, absent) != after.get(k, absent)]
    if not differing:
        return
    shown = [f"{k} (there {_shown(before, k)}, now {_shown(after, k)})" for k in differing[:3]]
    more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
    raise ConfigError(
        f"The run folder {path.parent} was made with other settings: {', '.join(shown)}{more}.",
        "Use the same settings to go on, or a new --out folder to start afresh.",
    )


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, bytes]]:
    """Leaves of nested mappings by dotted name, as JSON so that 1, 1.0 and true differ."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else key)
    elif name:
        yield name, canonical_json(value)


def _shown(leaves: Mapping[str, bytes], name: str) -> str:
    if name not in leaves:
        return "absent"
    text = leaves[name].decode()
    return text if len(text) <= 60 else text[:57] + "..."


def _lock(path: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(fd, 32).decode("ascii", "replace").strip()
        os.close(fd)
        who = "This process" if holder == str(os.getpid()) else f"Another process (pid {holder or 'unknown'})"
        raise BackendError(
            f"{who} is using the run folder {path.parent}.", "Wait until it is done, or choose another --out folder."
        ) from error
    except BaseException:
        os.close(fd)
        raise
    # The number is only for the message above; the lock itself does not rest on it.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def _sync_folder(folder: Path) -> None:
    """Force a new name in a folder to disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _disk_error(error: OSError, path: Path) -> BackendError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return BackendError(
            f"The disk is full (or a size limit is reached): {path} could not be written.",
            "Free some space and run the same command again; finished work is kept.",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return BackendError(f"{path} may not be written or read here.", "Choose another --out folder.")
    return BackendError(
        f"{path} could not be used: {error.strerror or error}.", "Check the folder, or choose another --out folder."
    )


_open_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    # A child that outlives its parent must not keep the run folder locked.
    for journal in list(_open_journals):
        journal._close_files()
    _open_journals.clear()


os.register_at_fork(after_in_child=_after_fork)

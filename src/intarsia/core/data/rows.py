"""Rows of a user's own data: a file (.jsonl, .json, .csv, .tsv, .parquet, .txt) or a set on the Hugging Face hub."""

from __future__ import annotations

import contextlib
import csv
import difflib
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intarsia.core.errors import ConfigError, DataError

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".txt")
_HUB_ID = re.compile(
    r"^(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<config>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?(?:#(?P<split>[\w.\[\]:%-]+))?$"
)


@dataclass(frozen=True)
class Rows:
    """A table as read, before fields are picked.

    Attributes:
        name: As it appears in reports.
        origin: File name, or hub id with revision and split.
        rows: One dict a row.
        licence: Where the source says so.
    """

    name: str
    origin: str
    rows: list[dict[str, Any]]
    licence: str = ""


def read_rows(
    source: str, *, split: str | None = None, offline: bool | None = None, suggestions: Sequence[str] = ()
) -> Rows:
    """Rows of a file or a hub set.

    Args:
        source: A path, or `org/name[:config][@revision]`.
        split: Of a hub set.
        offline: Never ask the hub.
        suggestions: Other names the user may have meant.

    Raises:
        ConfigError: That is no name of a set.
        DataError: There is no such file or set, or it cannot be read.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        raise DataError(f"{source} is a folder, not a file.", f"Name a file in it ({', '.join(SUFFIXES)}).")
    if path.is_file():
        return Rows(name=path.stem, origin=path.name, rows=list(_read_file(path)))
    if path.suffix.lower() in SUFFIXES or source.startswith((".", "/", "~")):
        raise DataError(f"There is no file {source}.", _near_file(path))
    match = _HUB_ID.match(source)
    if match is None:
        near = difflib.get_close_matches(source, suggestions, n=1)
        guess = f"Did you mean {near[0]}? " if near else ""
        raise ConfigError(
            f"There is no data set {source!r}.",
            f"{guess}Give a file, a hub id org/name, or one of {', '.join(suggestions)}.",
        )
    return read_hub(
        match["repo"],
        config=match["config"],
        revision=match["revision"],
        split=split or match["split"],
        offline=offline,
    )


def read_hub(
    repo: str,
    *,
    config: str | None = None,
    revision: str | None = None,
    split: str | None = None,
    offline: bool | None = None,
) -> Rows:
    """Rows of a set on the hub, or in the hub's local cache.

    Args:
        repo: `org/name`.
        config: Which of its configurations.
        revision: Commit, tag or branch.
        split: Which split; `test`, then `validation`, then `train` when omitted.
        offline: Never ask the hub.

    Raises:
        DataError: It is not there, not reachable, or has no such configuration or split.
    """
    import datasets

    label = repo + (f":{config}" if config else "") + (f"@{revision}" if revision else "")
    # datasets reads this switch once at import, so it is set on the module for this one call.
    with _offline(offline), _quiet():
        try:
            loaded = datasets.load_dataset(repo, config, revision=revision)
        except Exception as error:
            raise _hub_error(label, error) from error
    wanted = (split,) if split else ("test", "validation", "train", *loaded)
    for name in wanted:
        if name in loaded:
            table = loaded[name]
            return Rows(
                name=repo.rpartition("/")[2],
                origin=f"{label}#{name}",
                rows=[dict(row) for row in table],
                licence=str(getattr(table.info, "license", "") or ""),
            )
    raise DataError(f"{label} has no split {split!r}.", f"Its splits are: {', '.join(loaded)}.")


def _hub_error(label: str, error: Exception) -> DataError:
    first = (str(error).strip().splitlines() or [""])[0][:200]
    kind = type(error).__name__
    if kind == "DatasetNotFoundError" and "gated" not in first.lower():
        return DataError(
            f"The hub has no data set {label}, or it is private.", "Check the name; set HF_TOKEN for a private one."
        )
    if "gated" in first.lower():
        return DataError(f"{label} is gated.", "Accept its terms on the hub and set HF_TOKEN.")
    if isinstance(error, (ConnectionError, TimeoutError, OSError)) or "Connection" in kind or "Offline" in kind:
        return DataError(
            f"{label} cannot be fetched: the hub does not answer and the local cache does not hold it.",
            "Go online once, or give a local file instead.",
        )
    return DataError(
        f"{label} cannot be loaded: {first or kind}", "Name a configuration (org/name:config) or use a local file."
    )


@contextlib.contextmanager
def _offline(offline: bool | None) -> Iterator[None]:
    if offline is None:
        yield
        return
    import datasets.config
    import huggingface_hub.constants

    before = (datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE)
    datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = offline
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE, huggingface_hub.constants.HF_HUB_OFFLINE = before


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    import datasets

    bars = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if not bars:
            datasets.enable_progress_bars()


def _read_file(path: Path) -> Iterator[dict[str, Any]]:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise DataError(f"{path.name} is of no known kind.", f"Use one of {', '.join(SUFFIXES)}.")
    if path.stat().st_size == 0:
        raise DataError(f"{path.name} is empty.", "Give a data set with at least one question.")
    if suffix == ".parquet":
        yield from _read_parquet(path)
        return
    text = _read_text(path)
    if suffix in (".jsonl", ".ndjson"):
        yield from _read_jsonl(text, path.name)
    elif suffix == ".json":
        yield from _read_json(text, path.name)
    elif suffix == ".txt":
        yield from ({"question": line.strip()} for line in text.splitlines() if line.strip())
    else:
        yield from _read_csv(text, path.name, "\t" if suffix == ".tsv" else ",")


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path.name} cannot be read: {error.strerror}.", "Check the file's permissions.") from error
    encoding = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    if encoding == "utf-8-sig" and b"\x00" in raw:
        raise DataError(f"{path.name} is a binary file, not {path.suffix.lower()} text.", "Export it as UTF-8 text.")
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(f"{path.name} is not UTF-8 text (line {line}).", "Save it as UTF-8.") from None


def _read_jsonl(text: str, name: str) -> Iterator[dict[str, Any]]:
    # Not splitlines(): a JSON string may hold U+2028 and the like, which do not end a line.
    for at, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError, ValueError) as error:
            what = error.msg if isinstance(error, json.JSONDecodeError) else "not readable"
            raise DataError(f"Line {at} of {name} is not JSON: {what}.", "Mend or drop that line.") from None
        if not isinstance(row, dict):
            raise DataError(
                f"Line {at} of {name} is not an object.", 'Write {"question": ..., "answer": ...} on each line.'
            )
        yield row


def _read_json(text: str, name: str) -> Iterator[dict[str, Any]]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        more = " It looks like JSON lines: name it .jsonl." if error.msg == "Extra data" else ""
        raise DataError(f"{name} is not JSON: {error.msg} in line {error.lineno}.", f"Mend that line.{more}") from None
    except (RecursionError, ValueError):
        raise DataError(f"{name} is not readable JSON.", "Give a list of objects.") from None
    if isinstance(data, dict):
        lists = [value for value in data.values() if isinstance(value, list)]
        data = next(
            (data[key] for key in ("data", "items", "examples", "rows") if isinstance(data.get(key), list)), None
        )
        data = lists[0] if data is None and len(lists) == 1 else data
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
        raise DataError(f"{name} is not a list of objects.", 'Give [{"question": ..., "answer": ...}, ...].')
    yield from data


def _read_csv(text: str, name: str, delimiter: str) -> Iterator[dict[str, Any]]:
    # The module's limit of 128 KiB a cell is process-wide; long questions are the target's business, not ours.
    before = csv.field_size_limit(sys.maxsize)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise DataError(f"{name} is not CSV: {error}.", "Check its quotes.") from None
    finally:
        csv.field_size_limit(before)
    if not rows:
        return
    header = [cell.strip() for cell in rows[0]]
    if len(set(header)) < len(header):
        raise DataError(f"{name} has two columns of one name.", "Give each column its own name in the first line.")
    for at, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != len(header):
            raise DataError(
                f"Row {at} of {name} has {len(row)} cells, its header {len(header)}.",
                "Quote cells that hold the delimiter.",
            )
        # An empty cell is a missing value, as it is for pandas.
        yield {column: (cell if cell != "" else None) for column, cell in zip(header, row)}


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        first = str(error).splitlines()[0][:160]
        raise DataError(f"{path.name} is not a readable parquet file: {first}", "Write it again.") from None
    yield from table.to_pylist()


def _near_file(path: Path) -> str:
    try:
        siblings = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return "Check the path."
    near = difflib.get_close_matches(path.name, siblings, n=1)
    return f"Did you mean {path.parent / near[0]}?" if near else "Check the path."

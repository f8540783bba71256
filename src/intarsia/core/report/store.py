"""A report on disk: JSON that is read back and checked, and the drawn forms beside it, all or none."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from intarsia.core.errors import BackendError, DataError
from intarsia.core.study import SCHEMA_VERSION, Report

_HINT = "Give a report.json that intarsia wrote, or the folder that holds it."


def to_json(report: Report) -> str:
    """The report as JSON: keys sorted, one a line, the same bytes for the same report."""
    data = report.model_dump(mode="json")
    return json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def json_schema() -> dict[str, Any]:
    """The JSON schema of report.json, as published for other programs."""
    schema = Report.model_json_schema(mode="serialization")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"intarsia/report-v{SCHEMA_VERSION}",
        **schema,
    }


def save(report: Report, folder: str | Path) -> Path:
    """Write report.json, report.html, report.md and junit.xml into a folder, made when missing.

    Everything is drawn before anything is written, and each file is put in place whole, report.json last: a crash
    leaves either the old file or the new one.

    Args:
        report: What to write.
        folder: Where to.

    Returns:
        The path of report.html.

    Raises:
        BackendError: The folder cannot be made or written.
    """
    from intarsia.core.report.html import to_html
    from intarsia.core.report.junit import to_junit
    from intarsia.core.report.markdown import to_markdown

    folder = Path(folder)
    texts = {
        "report.html": to_html(report),
        "report.md": to_markdown(report),
        "junit.xml": to_junit(report),
        "report.json": to_json(report),
    }
    staged: list[tuple[str, Path]] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            staged.append((_stage(folder, name, text), folder / name))
        for temporary, final in staged:
            os.replace(temporary, final)
    except OSError as error:
        raise BackendError(
            f"The report cannot be written into {folder}: {error.strerror or error}.",
            "Free some space, or choose another folder with --out.",
        ) from error
    finally:
        for temporary, _ in staged:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    return folder / "report.html"


def _stage(folder: Path, name: str, text: str) -> str:
    handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            # UTF-8 has no lone surrogates; their backslash form is exactly JSON's own escape.
            stream.write(text.encode("utf-8", "backslashreplace"))
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return temporary


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def load(path: str | Path) -> Report:
    """Read a report.json, or the folder that holds one.

    Args:
        path: The file or the folder.

    Returns:
        The report, equal to the one that was saved.

    Raises:
        DataError: It is missing, damaged, of another version, or no report.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "report.json"
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"There is no report at {path}.", _HINT) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.", _HINT) from error
    try:
        data = json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a text file, so it is no report.", _HINT) from None
    except json.JSONDecodeError as error:
        if not raw.strip():
            said = "is empty"
        elif error.pos >= len(error.doc.rstrip()) or "Unterminated" in error.msg:
            said = "ends in the middle: it was cut off"
        else:
            said = f"is damaged: {error.msg} at line {error.lineno}, column {error.colno}"
        raise DataError(f"{path} {said}.", "Run the audit again with --resume to write it anew.") from None
    except (RecursionError, ValueError):
        raise DataError(f"{path} holds JSON that no report has.", _HINT) from None
    if not isinstance(data, dict) or not {"schema_version", "results"} <= data.keys():
        raise DataError(f"{path} is JSON, but no report.", _HINT)
    version = data["schema_version"]
    if version != SCHEMA_VERSION:
        newer = isinstance(version, int) and version > SCHEMA_VERSION
        raise DataError(
            f"{path} has report version {str(version)[:20]}; this intarsia reads version {SCHEMA_VERSION}.",
            "Upgrade intarsia." if newer else "Run the audit again to write it in this version.",
        )
    try:
        return Report.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise DataError(f"{path} is no whole report: {where}: {first['msg']}{more}.", _HINT) from None

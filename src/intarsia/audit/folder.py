"""The folder of one audit: its settings, its journals, its finished results, and a lock."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
from pathlib import Path
from types import TracebackType

from intarsia.audit.config import AuditConfig, make_config
from intarsia.core.errors import BackendError, ConfigError
from intarsia.core.journal import Journal, write_atomic
from intarsia.core.study import Result

SETTINGS = "audit.json"
INPUTS = "inputs.json"


class RunFolder:
    """One audit on disk. Only one process may hold it.

    Args:
        path: The folder; made when missing.
        config: The audit's settings; None to go on with those in the folder.

    Raises:
        ConfigError: The folder holds another audit, or something else, or (without a config) no audit.
        BackendError: Another process holds it, or the disk refuses.
    """

    def __init__(self, path: str | Path, config: AuditConfig | None = None) -> None:
        self.path = Path(path)
        self._lock: int | None = None
        settings = self.path / SETTINGS
        if config is None and not settings.is_file():
            raise ConfigError(f"{self.path} holds no audit to resume.", "Name the folder that an audit printed.")
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file, not a folder.", "Give another --out.")
        # Names with a dot are the lock and what a kill left of a write.
        seen = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        strangers = not settings.exists() and any(not name.startswith(".") for name in seen)
        if strangers:
            raise ConfigError(f"{self.path} is not empty and holds no audit.", "Give another --out.")
        self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._acquire()
            found = self._read(settings) if settings.is_file() else None
            if found is None:
                assert config is not None
                write_atomic(settings, config.model_dump_json(indent=2) + "\n")
            elif config is not None and config != found:
                raise ConfigError(
                    f"{self.path} holds an audit with other settings ({', '.join(_differing(config, found))}).",
                    "Give another --out, or --resume it as it was.",
                )
        except OSError as error:
            self.close()
            raise BackendError(
                f"The run folder {self.path} cannot be written: {error.strerror or error}.",
                "Free some space or give another --out.",
            ) from None
        except BaseException:
            self.close()
            raise
        self.config: AuditConfig = found or config  # type: ignore[assignment]

    def _acquire(self) -> None:
        handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(handle, 32).decode(errors="replace").strip()
            os.close(handle)
            raise BackendError(
                f"Another process{f' ({owner})' if owner else ''} is working in {self.path}.",
                "Wait for it, or give another --out.",
            ) from None
        os.ftruncate(handle, 0)
        os.write(handle, f"pid {os.getpid()}\n".encode())
        self._lock = handle

    @staticmethod
    def _read(settings: Path) -> AuditConfig:
        try:
            values = json.loads(settings.read_text(encoding="utf-8"))
            return make_config(values if isinstance(values, dict) else {})
        except (ValueError, ConfigError):
            raise ConfigError(
                f"{settings} is damaged, or of another version.", "Start the audit anew in another folder."
            ) from None

    def check_input(self, name: str, fingerprint: str) -> None:
        """Note what is audited or asked; refuse to go on when it has changed since.

        Without this a retrained model or an edited file of questions would be given the kept results of the old one.

        Args:
            name: A model's, or that of the user's data.
            fingerprint: Of its content.

        Raises:
            ConfigError: It is not what it was when the audit began.
        """
        file = self.path / INPUTS
        try:
            known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
            before = known.get(name)
        except (ValueError, AttributeError):
            raise ConfigError(f"{file} is damaged.", "Start the audit anew in another folder.") from None
        if before is None:
            write_atomic(file, json.dumps({**known, name: fingerprint}, indent=2, sort_keys=True) + "\n")
        elif before != fingerprint:
            raise ConfigError(
                f"{name} has changed since the audit in {self.path} began.", "Give another --out, for a new audit."
            )

    def journal(self, target: str, study: str) -> Journal:
        """Where the batches of a (target, study) are kept."""
        return Journal(
            self.path / "journal" / f"{_slug(target)}.{study}.jsonl", manifest={"target": target, "study": study}
        )

    def finished(self, target: str, study: str) -> Result | None:
        """The kept result of a (target, study), None when it has to be worked out."""
        try:
            return Result.model_validate_json(self._result_path(target, study).read_bytes())
        except (FileNotFoundError, ValueError):
            # A damaged result is worked out again from its journal.
            return None

    def keep(self, result: Result) -> None:
        """Store a finished result."""
        write_atomic(self._result_path(result.target, result.study), result.model_dump_json() + "\n")

    def _result_path(self, target: str, study: str) -> Path:
        return self.path / "results" / f"{_slug(target)}.{study}.json"

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._forget()
        self.close()

    def _forget(self) -> None:
        """Leave nothing behind of a run that failed before it had anything to keep."""
        if self.path not in self._made or any((self.path / name).exists() for name in ("journal", "results")):
            return
        with contextlib.suppress(OSError):
            for entry in self.path.iterdir():
                entry.unlink()
            for folder in self._made:
                folder.rmdir()


def _differing(a: AuditConfig, b: AuditConfig) -> list[str]:
    return [name for name in AuditConfig.model_fields if getattr(a, name) != getattr(b, name)]


def _slug(name: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[-40:].strip("-")
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"

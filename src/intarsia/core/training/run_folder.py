"""The folder of a training run: who may write to it, what it has learned so far, and where to go on.

```
out/
  recipe.yaml        the resolved recipe
  provenance.json    versions, hashes of model and data, seed, number of processes
  log.jsonl          one line a step: loss, gradient norm, learning rate ...
  checkpoints/       checkpoint-N/, each sealed once it is complete
  model/             the result
  report.json        written last: the run is finished
```

A checkpoint counts only when it is sealed: the seal is written after every file of it has reached the disk, and lists
them with their sizes. So a run that is killed while saving goes on from the checkpoint before.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from intarsia.core.errors import BackendError, ConfigError, DataError
from intarsia.core.recipes import Recipe

SEAL = "seal.json"
PICKLES = ("training_args.bin",)
"""Files that a trainer writes with pickle and nobody reads: they are taken out before a checkpoint is sealed."""


class RunFolder:
    """The folder of one training run, locked while this object is open.

    Args:
        path: The folder; made when missing.
        recipe: What is to be run.

    Attributes:
        path: The folder.
        fresh: Whether nothing had been run in it.

    Raises:
        ConfigError: It holds something else, or a run with other settings, or another process works in it.
        BackendError: The disk refuses.
    """

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path = path
        self.recipe = recipe
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is a file, not a run folder.", "Give another --out.")
        if path.is_dir() and any(path.iterdir()) and not self.recipe_path.exists() and not self._lock_path.exists():
            raise ConfigError(f"{path} is not empty and holds no run.", "Give another --out, or empty the folder.")
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self._lock_path, timeout=0)
            self._lock.acquire()
        except Timeout:
            raise ConfigError(
                f"Another process is training in {path}.", "Wait until it is done, or give another --out."
            ) from None
        except OSError as error:
            raise disk_error(path, error) from error
        try:
            self.fresh = not self.recipe_path.exists()
            if not self.fresh:
                self._check_recipe()
        except BaseException:
            self.close()
            raise

    @property
    def recipe_path(self) -> Path:
        """The resolved recipe."""
        return self.path / "recipe.yaml"

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def log_path(self) -> Path:
        """One JSON line a step."""
        return self.path / "log.jsonl"

    @property
    def model_path(self) -> Path:
        """The trained model."""
        return self.path / "model"

    @property
    def report_path(self) -> Path:
        """Written last."""
        return self.path / "report.json"

    @property
    def finished(self) -> bool:
        """Whether the run in this folder has come to its end."""
        return self.report_path.exists()

    @property
    def _lock_path(self) -> Path:
        return self.path / ".lock"

    def close(self) -> None:
        """Let go of the folder; one in which nothing was begun is taken away again."""
        unused = not self.recipe_path.exists() and [path.name for path in self.path.iterdir()] == [self._lock_path.name]
        if unused:
            self._lock_path.unlink()
        self._lock.release()
        if unused:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def begin(self, provenance: Mapping[str, Any]) -> list[str]:
        """Record what is being run; on a continuation, check that it is still the same.

        Args:
            provenance: JSON data. What stands under `must_match` has to be equal when the run is continued.

        Returns:
            Notes on what has changed without being forbidden (versions of libraries).

        Raises:
            ConfigError: Model, data or the number of processes have changed since the run began.
        """
        known = self.provenance()
        if known is None:
            write_json(self.path / "provenance.json", provenance)
            write_text(self.recipe_path, self.recipe.to_yaml())
            return []
        before, now = known.get("must_match", {}), provenance.get("must_match", {})
        changed = [
            f"{key} ({before.get(key)} then, {now.get(key)} now)"
            for key in sorted(before.keys() | now.keys())
            if before.get(key) != now.get(key)
        ]
        if changed:
            raise ConfigError(
                f"The run in {self.path} cannot go on: since it began, this has changed: {'; '.join(changed)}.",
                "Put it back as it was, or train into another --out.",
            )
        versions, current = known.get("versions", {}), provenance.get("versions", {})
        return [
            f"{name} was {versions.get(name)} when the run began and is {current.get(name)} now"
            for name in sorted(versions.keys() | current.keys())
            if versions.get(name) != current.get(name)
        ]

    def provenance(self) -> dict[str, Any] | None:
        """What was recorded when the run began; None before that."""
        path = self.path / "provenance.json"
        if not path.exists() or not self.recipe_path.exists():
            return None
        return read_json(path)

    def last_checkpoint(self, before: Path | None = None) -> Path | None:
        """The newest checkpoint that is whole; what is newer and is not whole is removed.

        Args:
            before: Look only at those that are older than this one.
        """
        every = self._all_checkpoints()
        for path in reversed(every[: every.index(before)] if before is not None else every):
            if is_whole(path):
                return path
            shutil.rmtree(path)
        return None

    def seal(self, step: int, keep: int) -> None:
        """Declare the checkpoint of `step` whole, and remove all but the `keep` newest.

        Raises:
            BackendError: The disk refuses.
        """
        path = self.checkpoints / f"checkpoint-{step}"
        try:
            for name in PICKLES:
                (path / name).unlink(missing_ok=True)
            files = sorted(file for file in path.rglob("*") if file.is_file())
            for file in files:
                _sync(file)
            sizes = {str(file.relative_to(path)): file.stat().st_size for file in files}
            write_json(path / SEAL, {"step": step, "files": sizes})
            for old in self._all_checkpoints()[:-keep]:
                # Without its seal first: a removal that is interrupted leaves nothing that looks whole.
                (old / SEAL).unlink(missing_ok=True)
                shutil.rmtree(old)
        except OSError as error:
            raise disk_error(path, error) from error

    def drop_checkpoints(self) -> None:
        """Remove all checkpoints: the run is finished, and `model/` holds what came of it."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def rewind_log(self, step: int) -> list[dict[str, Any]]:
        """Cut the log back to what stood in it at `step`, and give its lines; a half-written last line goes too."""
        kept: list[dict[str, Any]] = []
        if self.log_path.exists():
            for line in self.log_path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    break
                if not isinstance(entry, dict) or not isinstance(entry.get("step"), int) or entry["step"] > step:
                    break
                kept.append(entry)
        write_text(self.log_path, "".join(json.dumps(entry) + "\n" for entry in kept))
        return kept

    def log(self, entry: Mapping[str, Any]) -> None:
        """Append one line to the log."""
        try:
            with open(self.log_path, "a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise disk_error(self.log_path, error) from error

    def _all_checkpoints(self) -> list[Path]:
        """Checkpoint folders by step, whole or not."""
        if not self.checkpoints.is_dir():
            return []
        found = [
            (int(match[1]), path)
            for path in self.checkpoints.iterdir()
            if (match := re.fullmatch(r"checkpoint-(\d+)", path.name)) and path.is_dir()
        ]
        return [path for _, path in sorted(found)]

    def _check_recipe(self) -> None:
        try:
            there = yaml.safe_load(self.recipe_path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, ValueError) as error:
            raise DataError(f"{self.recipe_path} is damaged.", "Train into another --out.") from error
        differing = self.recipe.differing(there if isinstance(there, dict) else {})
        if differing:
            raise ConfigError(
                f"{self.path} holds a run of another recipe: {'; '.join(differing[:8])}"
                + (f" and {len(differing) - 8} more." if len(differing) > 8 else "."),
                "Give another --out, or the same settings.",
            )


def is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint is sealed and has every file that the seal lists, at its full size."""
    try:
        sizes = json.loads((checkpoint / SEAL).read_text(encoding="utf-8"))["files"]
        return bool(sizes) and all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        BackendError: The disk refuses.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise disk_error(path, error) from error


def write_json(path: Path, data: object) -> None:
    """Write JSON whole or not at all."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, sort_keys=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        DataError: It is missing or damaged.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged or cannot be read.", "Train into another --out.") from error
    if not isinstance(data, dict):
        raise DataError(f"{path} is damaged: it holds no JSON object.", "Train into another --out.")
    return data


def disk_error(path: Path, error: OSError) -> BackendError:
    """A refusal of the disk as one line."""
    return BackendError(f"Cannot write {path}: {error.strerror or error}.", "Free some space, or give another --out.")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from intarsia.core.catalog import cache
from intarsia.core.errors import BackendError


def _silent(line: str) -> None:
    pass


def _build(folder: Path) -> dict[str, Any]:
    (folder / "sub").mkdir()
    (folder / "weights.bin").write_bytes(b"w" * 1000)
    (folder / "sub" / "config.json").write_text("{}")
    return {"licence": "MIT"}


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    folder = tmp_path / "models" / "thing-1"
    assert cache.make(folder, _build, what="thing", say=_silent) == {"licence": "MIT"}
    return folder


def _refuse(folder: Path) -> dict[str, Any]:
    raise AssertionError("a sound entry was built again")


def test_a_sound_entry_is_kept(entry: Path) -> None:
    assert cache.make(entry, _refuse, what="thing", say=_silent) == {"licence": "MIT"}
    assert set(cache.hashes(entry)) == {"weights.bin", "sub/config.json"}
    assert not list(entry.parent.glob(".thing-1-*")), "no scratch folder is left"


def _cut(entry: Path) -> None:
    with (entry / "weights.bin").open("r+b") as file:
        file.truncate(10)


def _flip(entry: Path) -> None:
    (entry / "weights.bin").write_bytes(b"x" * 1000)


def _remove(entry: Path) -> None:
    (entry / "sub" / "config.json").unlink()


def _garble_stamp(entry: Path) -> None:
    (entry / cache.STAMP).write_text('{"schema": 1, "files"')


@pytest.mark.parametrize("damage", [_cut, _flip, _remove, _garble_stamp])
def test_damage_is_found_and_mended(entry: Path, damage: Any) -> None:
    damage(entry)
    assert cache.read(entry) is None
    lines: list[str] = []
    cache.make(entry, _build, what="thing", say=lines.append)
    assert cache.verify(entry) == {"licence": "MIT"}
    assert any("damaged" in line for line in lines)


def test_a_new_time_alone_is_no_damage(entry: Path) -> None:
    os.utime(entry / "weights.bin", (1, 1))
    assert cache.read(entry) == {"licence": "MIT"}


def test_silent_damage_is_found_by_verify(entry: Path) -> None:
    before = (entry / "weights.bin").stat()
    (entry / "weights.bin").write_bytes(b"x" * 1000)
    os.utime(entry / "weights.bin", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert cache.read(entry) is not None
    assert cache.verify(entry) is None


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> dict[str, Any]:
        (folder / "half").write_text("half")
        raise RuntimeError("network gone")

    folder = tmp_path / "models" / "thing"
    with pytest.raises(RuntimeError, match="network gone"):
        cache.make(folder, fail, what="thing", say=_silent)
    assert not folder.exists()
    assert not list(folder.parent.glob(".thing-*"))


def test_full_disk_is_one_line(tmp_path: Path) -> None:
    def fill(folder: Path) -> dict[str, Any]:
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"x")
        return {}

    with pytest.raises(BackendError, match="disk is full"):
        cache.make(tmp_path / "thing", fill, what="thing", say=_silent)
    assert not list(tmp_path.glob(".thing-*"))


def test_full_disk_as_safetensors_tells_it(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="disk is full"), cache.disk_errors(tmp_path):
        raise RuntimeError("Error while serializing: I/O error: No space left on device (os error 28)")


def test_a_file_in_the_way_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(BackendError, match="a file is in the way"):
        cache.make(tmp_path / "cache" / "thing", _build, what="thing", say=_silent)


def test_no_permission_is_one_line(tmp_path: Path) -> None:
    def denied(folder: Path) -> dict[str, Any]:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(BackendError, match="No permission"):
        cache.make(tmp_path / "thing", denied, what="thing", say=_silent)


def test_too_little_room_is_told_first(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="GB are free"):
        cache.need_space(tmp_path / "not" / "there", 1 << 60)
    cache.need_space(tmp_path, 1)


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "a"))
    assert cache.root() == tmp_path / "a"
    monkeypatch.delenv("INTARSIA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.root() == tmp_path / "intarsia"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.root() == Path.home() / ".cache" / "intarsia"


_SLOW = """
import sys, time
from pathlib import Path
from intarsia.core.catalog import cache
def build(folder):
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    (folder / "weights.bin").write_bytes(b"half")
    print("building", flush=True)
    time.sleep(float(sys.argv[3]))
    (folder / "weights.bin").write_bytes(b"whole")
    return {"by": "slow"}
print(cache.make(Path(sys.argv[1]), build, what="thing", say=lambda line: print(line, flush=True)))
"""


def _start(entry: Path, log: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SLOW, str(entry), str(log), str(seconds)], stdout=subprocess.PIPE, text=True
    )


def test_two_processes_build_once(tmp_path: Path) -> None:
    entry, log = tmp_path / "models" / "thing", tmp_path / "log"
    first = _start(entry, log, 1.0)
    assert first.stdout is not None
    assert first.stdout.readline().strip() == "building"
    second = _start(entry, log, 1.0)
    told, _ = second.communicate(timeout=60)
    assert first.wait(timeout=60) == 0
    assert second.returncode == 0
    assert "waiting" in told
    assert log.read_text() == "built\n"
    assert (entry / "weights.bin").read_bytes() == b"whole"


def test_a_killed_process_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    entry, log = tmp_path / "models" / "thing", tmp_path / "log"
    process = _start(entry, log, 60.0)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "building"
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)
    assert cache.read(entry) is None
    assert list(entry.parent.glob(".thing-*")), "the killed process could not sweep"
    start = time.monotonic()
    cache.make(entry, _build, what="thing", say=_silent)
    assert time.monotonic() - start < 30, "the lock of a dead process is free"
    assert cache.read(entry) == {"licence": "MIT"}
    assert not list(entry.parent.glob(".thing-*"))


def test_hashes_of_outside_files_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "w"
    file.write_bytes(b"abc")
    first = cache.remembered_sha256(file, _silent)
    assert first == cache.sha256_of(file)
    monkeypatch.setattr(cache, "sha256_of", lambda path: pytest.fail("hashed again"))
    assert cache.remembered_sha256(file, _silent) == first
    monkeypatch.undo()
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "cache"))
    file.write_bytes(b"abcd")
    assert cache.remembered_sha256(file, _silent) == cache.sha256_of(file) != first


def test_the_stamp_names_no_folder_of_this_machine(entry: Path) -> None:
    stamp = json.loads((entry / cache.STAMP).read_text())
    assert str(entry.parent) not in json.dumps(stamp)

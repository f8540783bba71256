"""The doctor finds what is there, what is missing, and never mistakes one for the other."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from intarsia.core import doctor
from intarsia.core.catalog.hub import OFFLINE
from intarsia.core.doctor import GIB, Check


def test_this_environment_is_well() -> None:
    assert doctor.check_python().ok
    assert doctor.check_packages().ok
    torch = doctor.check_torch()
    assert torch.ok is not False
    assert metadata.version("torch").split("+")[0] in torch.detail


def test_an_extra_that_lacks_a_package_is_a_note_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version

    def version(name: str) -> str:
        if name == "trl":
            raise metadata.PackageNotFoundError(name)
        return "0.1" if name == "peft" else real(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    check = doctor.check_extra("train", "training recipes")
    assert check.ok is None
    assert "trl" in check.detail
    assert "peft>=" in check.detail
    assert "(is 0.1)" in check.detail
    assert "intarsia[train]" in check.fix
    assert doctor.check_packages().ok, "an extra's package is not one that Intarsia needs"


def test_a_needed_package_of_the_wrong_version_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = metadata.version
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "4.0" if name == "transformers" else real(name))
    check = doctor.check_packages()
    assert check.ok is False
    assert "transformers" in check.detail
    assert check.fix


def test_torch_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    check = doctor.check_torch()
    assert (check.ok, bool(check.fix)) == (False, True)


def test_memory_is_what_the_container_leaves(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 16000000 kB\nMemAvailable: 8388608 kB\n")
    assert doctor.available_memory(meminfo, tmp_path) == 8 * GIB
    (tmp_path / "memory.max").write_text(f"{4 * GIB}\n")
    (tmp_path / "memory.current").write_text(f"{3 * GIB}\n")
    assert doctor.available_memory(meminfo, tmp_path) == GIB
    (tmp_path / "memory.max").write_text("max\n")
    assert doctor.available_memory(meminfo, tmp_path) == 8 * GIB
    assert doctor.available_memory(tmp_path / "none", tmp_path) is None
    meminfo.write_text("MemAvailable: many\n")
    assert doctor.available_memory(meminfo, tmp_path) is None


@pytest.mark.parametrize(
    ("free", "ok"), [(doctor.NEEDED_MEMORY, True), (doctor.NEEDED_MEMORY - 1, False), (None, None)]
)
def test_memory_check(monkeypatch: pytest.MonkeyPatch, free: int | None, ok: bool | None) -> None:
    monkeypatch.setattr(doctor, "available_memory", lambda: free)
    assert doctor.check_memory().ok is ok


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "not" / "yet"))
    assert doctor.check_cache().ok
    assert not (tmp_path / "not").exists(), "looking must not make anything"
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "file"))
    assert doctor.check_cache().ok is False
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path))
    monkeypatch.setattr(doctor, "NEEDED_DISK", 2**60)
    assert doctor.check_cache().ok is False


def test_sandbox_without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    check = doctor.check_sandbox()
    assert check.ok is None
    assert "bubblewrap" in check.fix


@pytest.mark.parametrize(("script", "ok"), [("exit 0", True), ("echo bwrap: no namespaces >&2; exit 1", None)])
def test_sandbox_is_tried_not_only_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, ok: bool | None
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    check = doctor.check_sandbox()
    assert check.ok is ok
    assert ok or "no namespaces" in check.detail


def test_hub_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    for variable in OFFLINE:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    check = doctor.check_hub()
    assert check.ok is None
    assert "does not answer" in check.detail
    assert "urlopen" not in check.detail
    assert check.fix
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE" in doctor.check_hub().detail


def test_the_hub_token_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecretindeed")
    monkeypatch.setenv("INTARSIA_OFFLINE", "1")
    check = doctor.check_hub()
    assert "verysecret" not in repr(check)
    assert "a token is set" in check.detail


def test_registry_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    check = doctor.check_registry()
    assert check.ok is None
    assert "No matching distribution" in check.detail

    def slow(*args: object, **kwargs: object) -> None:
        raise subprocess.TimeoutExpired("pip", 1)

    monkeypatch.setattr(doctor.subprocess, "run", slow)
    assert doctor.check_registry().ok is None


def test_one_source_is_enough_and_none_is_too_few() -> None:
    up, down = Check("hub", True, "answers"), Check("registry", None, "silent", "Check the network.")
    assert doctor.check_sources(up, down) == [up, down]
    both = doctor.check_sources(Check("hub", None, "silent", "x"), down)
    assert [check.ok for check in both] == [False, False]
    assert all("local folders" in check.fix for check in both)


def test_data_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("INTARSIA_DATA", raising=False)
    assert doctor.check_data().ok is None
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    assert doctor.check_data().ok
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path / "none"))
    assert doctor.check_data().ok is False


def test_the_whole_report() -> None:
    checks = doctor.doctor()
    names = [check.name for check in checks]
    assert len(set(names)) == len(names)
    assert {"python", "torch", "packages", "sandbox", "memory", "cache", "hub", "registry", "models", "data"} <= set(
        names
    )
    assert all(check.detail and "\n" not in check.detail for check in checks)
    assert all(check.fix for check in checks if check.ok is False)

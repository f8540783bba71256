"""Models from the Hugging Face hub: into its own cache, with one clear line for each way it can fail."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.core.catalog.cache import Say, disk_errors
from intarsia.core.catalog.folder import TOKENIZER_FILES
from intarsia.core.errors import BackendError, ModelError

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo

# Configuration, tokenizer, model card and safetensors; no pickles, no weights of other frameworks.
_WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken", "README.md"]
_UNWANTED = ["original/*", "onnx/*", "openvino/*", "coreml/*", "consolidated*.safetensors", "runs/*", "checkpoint-*/*"]
_TIMEOUT = 15.0


@dataclass(frozen=True)
class Snapshot:
    """A model of the hub in the local cache.

    Attributes:
        path: Its folder.
        revision: The commit.
    """

    path: Path
    revision: str


def parse_id(spec: str) -> tuple[str, str | None] | None:
    """(repository, revision) of `org/name` or `org/name@revision`, None for anything else."""
    found = re.fullmatch(r"([A-Za-z0-9][\w.-]*/[\w.-]+)(?:@([\w./-]+))?", spec)
    return (found[1], found[2]) if found else None


def is_offline(asked: bool | None = None) -> bool:
    """Whether the network stays untouched: as asked, else by INTARSIA_OFFLINE or HF_HUB_OFFLINE."""
    if asked is not None:
        return asked
    return any(os.environ.get(key, "").strip().lower() in ("1", "true", "yes", "on") for key in OFFLINE)


OFFLINE = ("INTARSIA_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def cached(repo: str, revision: str | None, *, lenient: bool = False) -> Snapshot | None:
    """The snapshot in the local cache, None when there is none or it is unfinished.

    Args:
        repo: `org/name`.
        revision: Branch, tag or commit; None for the default branch.
        lenient: Take a snapshot that lacks files of the repository (other programs fetch only some) as long as config,
            weights and tokenizer are there.
    """
    from huggingface_hub import snapshot_download, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(
                repo, revision=revision, local_files_only=True, allow_patterns=_WANTED, ignore_patterns=_UNWANTED
            )
        )
    except HFValidationError:
        return None
    except (LocalEntryNotFoundError, HfHubHTTPError, ValueError):
        config = try_to_load_from_cache(repo, "config.json", revision=revision) if lenient else None
        if not isinstance(config, str):
            return None
        folder = Path(config).parent
    return Snapshot(folder, folder.name) if _finished(folder) else None


def _finished(folder: Path) -> bool:
    """Whether a snapshot has config, tokenizer and all weights; downloads of single files by others leave less."""
    if not (folder / "config.json").is_file() or not any((folder / name).is_file() for name in TOKENIZER_FILES):
        return False
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
        except (ValueError, KeyError):
            return False
        return all((folder / name).is_file() for name in names)
    return (folder / "model.safetensors").is_file()


def fetch(repo: str, revision: str | None, *, say: Say, refresh: bool = False) -> Snapshot:
    """The snapshot of a repository: from the local cache, else from the hub.

    Args:
        repo: `org/name`.
        revision: Branch, tag or commit; None for the default branch.
        say: Told about progress.
        refresh: Ask the hub even when the cache has it.

    Raises:
        ModelError: There is no such model, it is private or gated, or it has no safetensors weights.
        BackendError: The hub does not answer, or the disk is full.
    """
    if not refresh and (found := cached(repo, revision)) is not None:
        return found
    from huggingface_hub import HfApi, constants, snapshot_download

    name = f"{repo}@{revision}" if revision else repo
    try:
        with _hub_errors(name):
            info = HfApi().model_info(repo, revision=revision, timeout=_TIMEOUT, files_metadata=True)
    except BackendError as error:
        if (found := cached(repo, revision, lenient=True)) is None:
            raise
        say(f"{error.message.split(',')[0]}; using the copy in the local cache")
        return found
    _check_files(name, info)
    size = sum(file.size or 0 for file in info.siblings or () if _matches(file.rfilename, _WANTED, _UNWANTED))
    licence = getattr(info.card_data, "license", None) or "not named"
    say(f"{name}: licence {licence}, {size / 1e6:.0f} MB from the hub")
    with disk_errors(Path(constants.HF_HUB_CACHE)), _hub_errors(name):
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=_WANTED, ignore_patterns=_UNWANTED))
    return Snapshot(folder, folder.name)


def _matches(file: str, wanted: Iterable[str], unwanted: Iterable[str]) -> bool:
    from fnmatch import fnmatch

    return any(fnmatch(file, p) for p in wanted) and not any(fnmatch(file, p) for p in unwanted)


def _check_files(name: str, info: ModelInfo) -> None:
    """Refuse before megabytes are fetched in vain."""
    files = [file.rfilename for file in info.siblings or ()]
    if "config.json" in files and any(f.endswith(".safetensors") and "/" not in f for f in files):
        return
    if "adapter_config.json" in files:
        raise ModelError(f"{name} is a PEFT adapter, not a model.", "Download it into a folder and give BASE+./folder")
    if "config.json" not in files and any(f.endswith(".gguf") for f in files):
        raise ModelError(
            f"{name} holds GGUF files only.", "Download one of them and give its path, such as ./model.gguf"
        )
    if any(f.endswith((".bin", ".pt", ".pth", ".ckpt")) for f in files):
        raise ModelError(
            f"{name} has pickled weights only; opening them can run code, so they are refused.",
            "Look for a revision with safetensors (give it as org/name@revision); the hub's own conversion service "
            "opens such a pull request, often @refs/pr/1.",
        )
    raise ModelError(f"{name} holds no model that can be loaded here.", "It needs config.json and safetensors weights.")


class _hub_errors:
    """Turn what the hub can answer into one line."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and (told := explain(self.name, error)) is not None:
            raise told from error


def explain(name: str, error: Exception) -> ModelError | BackendError | None:
    """The line for an error of the hub's library, None when it is not one."""
    from huggingface_hub import errors

    token = "Check the name; for a private model set HF_TOKEN to a token that may read it."
    if isinstance(error, errors.GatedRepoError):
        return ModelError(
            f"{name} is gated: its licence must be accepted first.",
            "Accept it on the model's hub page, then set HF_TOKEN to a token of that account.",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelError(f"{name}: there is no such revision.", "Check the part after @ (branch, tag or commit).")
    if isinstance(error, errors.RepositoryNotFoundError):
        return ModelError(f"The hub has no model {name}, or it is private.", token)
    if isinstance(error, errors.HFValidationError):
        return ModelError(f"{name} is not a valid hub name.", "Hub models are named org/name.")
    if isinstance(error, errors.HfHubHTTPError) and error.response is not None:
        status = int(error.response.status_code)
        if status in (401, 403):
            return ModelError(
                f"The hub refuses {name} (HTTP {status}).",
                "Set HF_TOKEN to a valid token, and accept the model's licence on its hub page.",
            )
        return BackendError(f"The hub answered with HTTP {status} for {name}.", "Try again later.")
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled) or _is_network(error):
        return BackendError(
            f"The model hub does not answer, and {name} is not in the local cache.",
            "Check the name, the network and HF_TOKEN, or use an embedded model (smollm2-135m) or a local folder.",
        )
    return None


def _is_network(error: BaseException) -> bool:
    """Whether it is a transport error of whichever HTTP library the hub's library uses, or a socket's."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return any(
        cls.__name__ in ("TransportError", "RequestException", "NetworkError", "TimeoutException")
        for cls in type(error).__mro__
    )


def blob_sha256(file: Path) -> str:
    """The SHA-256 that the hub's cache keeps as the name of a large file's blob, empty where it keeps none."""
    target: Any = file.resolve().name
    return target if re.fullmatch(r"[0-9a-f]{64}", target) and file.is_symlink() else ""

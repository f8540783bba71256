"""What lies in a model folder, looked at before anything heavy is loaded.

Most folders that cannot be loaded show it in their file names, `config.json` and the headers of their weights. Reading
those takes milliseconds and gives one clear line, where the loader would give a stack of tracebacks after minutes.
"""

from __future__ import annotations

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from intarsia.core.errors import ModelError

Need: TypeAlias = Literal["causal", "encoder", "any"]

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.msgpack", "*.h5")
_BACKENDS: dict[str, tuple[str, str]] = {
    # method in config.json: (module, what to install)
    "bitsandbytes": ("bitsandbytes", "bitsandbytes"),
    "bitsandbytes_4bit": ("bitsandbytes", "bitsandbytes"),
    "bitsandbytes_8bit": ("bitsandbytes", "bitsandbytes"),
    "gptq": ("gptqmodel", "gptqmodel optimum"),
    "awq": ("gptqmodel", "gptqmodel"),
    "aqlm": ("aqlm", "aqlm[cpu,gpu]"),
    "auto-round": ("auto_round", "auto-round"),
    "compressed-tensors": ("compressed_tensors", "compressed-tensors"),
    "eetq": ("kernels", "kernels"),
    "fbgemm_fp8": ("fbgemm_gpu", "fbgemm-gpu"),
    "fp_quant": ("fp_quant", "fp-quant"),
    "higgs": ("flute", "flute-kernel"),
    "hqq": ("hqq", "hqq"),
    "mxfp4": ("kernels", "kernels triton"),
    "quanto": ("optimum.quanto", "optimum-quanto"),
    "quark": ("quark", "amd-quark"),
    "spqr": ("spqr_quant", "spqr_quant"),
    "torchao": ("torchao", "torchao"),
    "vptq": ("vptq", "vptq"),
}
_ITEM_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2}


@dataclass(frozen=True)
class ModelFolder:
    """The facts of a model folder.

    Attributes:
        path: The folder.
        config: `config.json`.
        weights: The safetensors files.
        values: Number of stored values, packed ones counted as stored.
        weight_bytes: Size of the weights on disk.
        dtypes: Safetensors names of the stored types, most bytes first (`F32`, `BF16` ...).
        licence: From the model card, empty where it says none.
        quantization: Method named in the config, empty for plain weights.
    """

    path: Path
    config: dict[str, Any]
    weights: tuple[Path, ...]
    values: int
    weight_bytes: int
    dtypes: tuple[str, ...]
    licence: str
    quantization: str


def look(path: Path, need: Need = "any", *, name: str = "") -> ModelFolder:
    """Read a model folder's facts and refuse what cannot be loaded safely.

    Args:
        path: The folder.
        need: What the model is wanted for.
        name: What the user called it, for messages.

    Raises:
        ModelError: It is no model folder, holds only pickled or damaged weights, wants code of its own, lacks a
            tokenizer, is of another kind than needed, or its quantization has no backend here.
    """
    name = name or path.name
    if not path.is_dir():
        raise ModelError(f"There is no folder {name}.", "Check the path; hub models are named org/name.")
    config = _config(path, name)
    _refuse_remote_code(config, name)
    weights = _weights(path, name)
    values, size, dtypes = _read_headers(weights, name)
    if not any((path / file).is_file() for file in TOKENIZER_FILES):
        raise ModelError(
            f"{name} has no tokenizer (none of {', '.join(TOKENIZER_FILES[:4])} ...).",
            "Copy the base model's tokenizer files into it, or save them with tokenizer.save_pretrained.",
        )
    if need == "causal":
        _refuse_other_kinds(config, name)
    return ModelFolder(path, config, weights, values, size, dtypes, licence_of(path), _quantization(config, name))


def look_adapter(path: Path, *, name: str = "") -> dict[str, Any]:
    """Read a PEFT adapter folder's `adapter_config.json` and refuse what cannot be loaded safely.

    Raises:
        ModelError: It is no adapter folder, or its weights are pickled or damaged.
    """
    name = name or path.name
    config = _json(path / "adapter_config.json", name) if (path / "adapter_config.json").is_file() else None
    if config is None:
        raise ModelError(
            f"{name} is not a PEFT adapter folder (it has no adapter_config.json).",
            "Give BASE+ADAPTER, where ADAPTER was written by PEFT's save_pretrained.",
        )
    weights = path / "adapter_model.safetensors"
    if not weights.is_file():
        pickled = (path / "adapter_model.bin").is_file()
        raise ModelError(
            f"{name} has pickled weights only (adapter_model.bin), which are not opened here."
            if pickled
            else f"{name} has no adapter_model.safetensors.",
            "Save it again with PEFT's save_pretrained(..., safe_serialization=True).",
        )
    _read_headers((weights,), name)
    return config


def licence_of(path: Path) -> str:
    """The licence that the folder's model card names, empty where it names none."""
    try:
        text = (path / "README.md").read_text("utf-8", "replace")[:20_000]
    except OSError:
        return ""
    front = re.match(r"\s*---\s*\n(.*?)\n---", text, re.DOTALL)
    if front is None:
        return ""
    found = {
        key: value.strip().strip("\"'")
        for key, value in re.findall(r"^(license|license_name):[ \t]*(\S.*)$", front[1], re.MULTILINE)
    }
    named = found.get("license", "")
    return found.get("license_name", named) if named == "other" else named


def _json(file: Path, name: str) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise ModelError(f"{file.name} of {name} cannot be read.", "Fetch or save the model again.") from error
    if not isinstance(found, dict):
        raise ModelError(f"{file.name} of {name} is not a JSON object.", "Fetch or save the model again.")
    return found


def _config(path: Path, name: str) -> dict[str, Any]:
    if (path / "config.json").is_file():
        return _json(path / "config.json", name)
    if (path / "adapter_config.json").is_file():
        base = str(_json(path / "adapter_config.json", name).get("base_model_name_or_path") or "BASE")
        raise ModelError(f"{name} is a PEFT adapter, not a model.", f"Give its base too: {base}+{path}")
    ggufs = sorted(path.glob("*.gguf"))
    if ggufs:
        raise ModelError(f"{name} holds GGUF files only.", f"Give the file itself, such as {path / ggufs[0].name}")
    raise ModelError(f"{name} is not a model folder (it has no config.json).", "Check the path.")


def _refuse_remote_code(config: dict[str, Any], name: str) -> None:
    if not config.get("auto_map"):
        return
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    if config.get("model_type") not in CONFIG_MAPPING_NAMES:
        raise ModelError(
            f"{name} runs code of its own (model type {config.get('model_type')!r}), which is never executed here.",
            "Use a version of the model that transformers supports natively, or serve it elsewhere and give its URL.",
        )


def _weights(path: Path, name: str) -> tuple[Path, ...]:
    index = path / "model.safetensors.index.json"
    if index.is_file():
        mapping = _json(index, name).get("weight_map")
        if not isinstance(mapping, dict) or not mapping:
            raise ModelError(f"The weight index of {name} is damaged.", "Fetch or save the model again.")
        files = tuple(path / str(file) for file in sorted(set(mapping.values())))
        absent = [file.name for file in files if not file.is_file()]
        if absent:
            raise ModelError(
                f"{name} lacks {len(absent)} of its {len(files)} weight files ({absent[0]} ...).",
                "Fetch the model again.",
            )
        return files
    if (path / "model.safetensors").is_file():
        return (path / "model.safetensors",)
    pickled = sorted(file.name for pattern in _PICKLED for file in path.glob(pattern))
    if pickled:
        raise ModelError(
            f"{name} has pickled weights only ({pickled[0]}); opening them can run code, so they are refused.",
            "If you trust its author, convert it once: load it with transformers and save_pretrained() it, "
            "which writes safetensors.",
        )
    raise ModelError(f"{name} has no weights (no model.safetensors).", "Fetch or save the model again.")


def _read_headers(weights: tuple[Path, ...], name: str) -> tuple[int, int, tuple[str, ...]]:
    """(stored values, bytes, types) from the headers; a file that is cut short shows here."""
    values, total, by_type = 0, 0, dict[str, int]()
    for file in weights:
        size = file.stat().st_size
        damaged = ModelError(f"{file.name} of {name} is damaged or cut short.", "Fetch or save the model again.")
        with file.open("rb") as stream:
            head = stream.read(8)
            length = int.from_bytes(head, "little")
            if len(head) < 8 or not 2 <= length <= min(size - 8, 100 << 20):
                raise damaged
            try:
                header = json.loads(stream.read(length))
                tensors = [entry for key, entry in header.items() if key != "__metadata__"]
                end = max((int(entry["data_offsets"][1]) for entry in tensors), default=0)
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                raise damaged from error
        if 8 + length + end != size:
            raise damaged
        for entry in tensors:
            first, last = entry["data_offsets"]
            values += (last - first) // _ITEM_BYTES.get(entry["dtype"], 1)
            by_type[entry["dtype"]] = by_type.get(entry["dtype"], 0) + last - first
        total += size
    return values, total, tuple(sorted(by_type, key=lambda kind: -by_type[kind]))


def _refuse_other_kinds(config: dict[str, Any], name: str) -> None:
    """Only models that continue text will do; some encoders would load as such with a random head."""
    from transformers.models.auto import modeling_auto

    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    classes = {cls for value in causal.values() for cls in ((value,) if isinstance(value, str) else value)}
    kind = str(config.get("model_type", ""))
    named = [str(cls) for cls in config.get("architectures") or ()]
    what = named[0] if named else f"model type {kind!r}"
    hint = "A model that continues text is needed (a causal language model)."
    if config.get("is_encoder_decoder"):
        raise ModelError(f"{name} is an encoder-decoder model ({what}).", hint)
    if named:
        # A multimodal model that transformers also loads as a causal one answers text alone.
        fits = any(cls in classes for cls in named) or (
            kind in causal and named[0].endswith("ForConditionalGeneration")
        )
    else:
        fits = kind in causal and kind not in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if fits:
        return
    if "vision_config" in config or kind in modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES:
        raise ModelError(f"{name} is a vision model ({what}).", hint)
    if kind in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        raise ModelError(f"{name} is an encoder ({what}).", hint)
    if kind and kind not in causal:
        raise ModelError(f"{name} ({what}) is not a causal language model that transformers knows.", hint)
    raise ModelError(f"{name} has no language-model head ({what}).", hint)


def _quantization(config: dict[str, Any], name: str) -> str:
    found = config.get("quantization_config")
    if not isinstance(found, dict):
        return ""
    method = str(found.get("quant_method") or "").lower()
    if not method and (found.get("load_in_4bit") or found.get("load_in_8bit")):
        method = "bitsandbytes"
    module, install = _BACKENDS.get(method, ("", ""))
    if module and not _importable(module):
        raise ModelError(
            f"{name} is quantized with {method}, whose backend is not installed.", f"pip install {install}"
        )
    return method or "unknown"


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package of a dotted name is missing
        return False

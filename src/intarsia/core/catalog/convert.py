"""GGUF -> safetensors, once.

A GGUF file holds quantized weights, the tokenizer and a little configuration. `transformers` can read many of them, but
slowly and each time anew. Here a file is dequantized once into an ordinary model folder: config, generation config,
tokenizer, chat template, and weights in float32, which keeps every dequantized value exactly (half precision would
round about a fifth of them, and is used only where a model is big). What would make the converted model differ silently
from the original is checked and refused: tensors left over or missing, rotary scaling that is not carried over.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.core.errors import ModelError

if TYPE_CHECKING:
    from gguf import GGUFReader
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

CONVERTER = 1
"""Raised when the converted folder changes, so that older cache entries are made anew."""

EXACT_UP_TO = 2_000_000_000
"""Models of more values are kept in float16, which rounds: float32 would take twice the disk and memory."""

_ROUNDED = "The dequantized weights are rounded to float16 (relative error at most 2^-11)."
_INDIVIDUAL_DIGITS = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}
_GPT2_SPLIT = {"default", "gpt-2", "mpt", "olmo", "jais", "phi-2", "granite-docling", "roberta-bpe"}


@dataclass(frozen=True)
class Converted:
    """What a conversion did.

    Attributes:
        quantization: The weight types that carry most values, such as `Q4_1` or `Q5_0, Q8_0`.
        architecture: The file's own name for it.
        parameters: Number of weights.
        licence: That the file names, empty where it names none.
        notes: Caveats that a reader of results must know.
    """

    quantization: str
    architecture: str
    parameters: int
    licence: str
    notes: tuple[str, ...]


def convert_gguf(gguf: Path, into: Path, *, say: Callable[[str], None] | None = None) -> Converted:
    """Write the model of a GGUF file as a folder that `transformers` loads quickly.

    Args:
        gguf: The file.
        into: An existing, empty folder.
        say: Told about progress.

    Returns:
        What was done.

    Raises:
        ModelError: The file is damaged, of an unknown architecture, not a causal language model, or cannot be carried
            over faithfully.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    say = say or (lambda line: None)
    reader = _open(gguf)
    architecture = str(_field(reader, "general.architecture", ""))
    say(f"converting {gguf.name} ({_quantization(reader)}) to safetensors, once")
    exact = sum(int(tensor.n_elements) for tensor in reader.tensors) <= EXACT_UP_TO
    where: dict[str, Any] = {"gguf_file": gguf.name, "local_files_only": True, "trust_remote_code": False}
    try:
        with _quiet():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                gguf.parent,
                dtype=torch.float32 if exact else torch.float16,
                quantization_config=GgufConfig(dequantize=True),
                output_loading_info=True,
                **where,
            )
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **where)
        model, loading = loaded
    except (ValueError, KeyError, RuntimeError, OSError, NotImplementedError, ImportError) as error:
        raise ModelError(
            f"{gguf.name} ({architecture or 'unknown architecture'}) cannot be read: {_first_line(error)}",
            "Use the model's own safetensors folder instead.",
        ) from error
    _check_complete(gguf, reader, model, loading)
    _carry_rope_scaling(gguf, reader, architecture, model.config)
    notes = _mend_tokenizer(reader, tokenizer)
    tokenizer.padding_side = "left"
    tokenizer.model_max_length = int(getattr(model.config, "max_position_embeddings", 0) or tokenizer.model_max_length)

    config = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    # The model is an ordinary one from here on.
    for attribute in ("hf_quantizer", "is_quantized", "quantization_method"):
        if hasattr(model, attribute):
            setattr(model, attribute, None if attribute != "is_quantized" else False)
    config.architectures = [type(model).__name__]
    ends = [_field(reader, f"tokenizer.ggml.{key}", None) for key in ("eos_token_id", "eot_token_id")]
    eos = list(dict.fromkeys(int(end) for end in ends if end is not None))
    config.eos_token_id = eos[0] if eos else None
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id,
        eos_token_id=eos if len(eos) > 1 else config.eos_token_id,
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else config.eos_token_id,
    )
    with _quiet():
        model.save_pretrained(into)
        tokenizer.save_pretrained(into)
    _drop_traces(into / "config.json")
    _drop_traces(into / "tokenizer_config.json")
    return Converted(
        quantization=_quantization(reader),
        architecture=architecture,
        parameters=sum(p.numel() for p in model.parameters()),
        licence=str(_field(reader, "general.license", "")),
        notes=notes + (() if exact else (_ROUNDED,)),
    )


def converted_bytes(gguf: Path) -> int:
    """About how much disk the converted folder takes.

    Raises:
        ModelError: The file is damaged.
    """
    values = sum(int(tensor.n_elements) for tensor in _open(gguf).tensors)
    return values * (4 if values <= EXACT_UP_TO else 2) + (64 << 20)


def _open(gguf: Path) -> GGUFReader:
    from gguf import GGUFReader

    try:
        reader = GGUFReader(gguf)
    except (ValueError, KeyError, IndexError, OverflowError, OSError) as error:
        raise ModelError(
            f"{gguf.name} is not a readable GGUF file: {_first_line(error)}", "It may be cut short; fetch it again."
        ) from error
    if int(_field(reader, "split.count", 1)) > 1:
        raise ModelError(f"{gguf.name} is one part of a split GGUF model.", "Join it with `gguf-split --merge` first.")
    return reader


def _field(reader: GGUFReader, key: str, default: Any) -> Any:
    field = reader.fields.get(key)
    return default if field is None else field.contents()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _quantization(reader: GGUFReader) -> str:
    """The types that hold at least a tenth of the values, most first."""
    values: Counter[str] = Counter()
    for tensor in reader.tensors:
        values[tensor.tensor_type.name] += int(tensor.n_elements)
    total = sum(values.values())
    return ", ".join(name for name, count in values.most_common() if count >= total / 10)


def _check_complete(gguf: Path, reader: GGUFReader, model: PreTrainedModel, loading: dict[str, Any]) -> None:
    """Every weight of the model came from the file, and every value of the file went into the model."""
    missing = sorted(loading.get("missing_keys", ()))
    if missing:
        raise ModelError(
            f"{gguf.name} lacks {len(missing)} of the model's tensors ({missing[0]}, ...).",
            "Use the model's own safetensors folder instead.",
        )
    held = sum(int(t.n_elements) for t in reader.tensors if not t.name.startswith("rope_"))
    parameters = sum(p.numel() for p in model.parameters())
    # Short convolutions and routing biases can be buffers.
    if held != parameters and held != parameters + sum(b.numel() for b in model.buffers()):
        raise ModelError(
            f"{gguf.name} holds {held:,} values but the model takes {parameters:,}, so it would not be the same model.",
            "Use the model's own safetensors folder instead.",
        )


def _carry_rope_scaling(gguf: Path, reader: GGUFReader, architecture: str, config: PretrainedConfig) -> None:
    """Rotary scaling decides what positions mean; what the loader leaves behind is put back, or the file refused."""
    if architecture == "gpt-oss":  # carried over by transformers
        return
    refused = ModelError(
        f"{gguf.name} uses a rotary position scaling that cannot be carried over.",
        "Use the model's own safetensors folder instead.",
    )
    rope = dict(getattr(config, "rope_parameters", None) or {})
    factors = next((t for t in reader.tensors if t.name == "rope_freqs.weight"), None)
    if factors is not None:
        scaled = {
            "rope_type": "llama3",
            "factor": round(float(factors.data.max()), 4),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
            "rope_theta": rope.get("rope_theta"),
        }
        if "rope_theta" not in rope or not _same_frequencies(scaled, factors.data, config):
            raise refused
        config.rope_parameters = scaled
        return
    if any(t.name.startswith("rope_factors") for t in reader.tensors):
        raise refused
    kind = str(_field(reader, f"{architecture}.rope.scaling.type", "none"))
    if kind == "none":
        return
    factor = _field(reader, f"{architecture}.rope.scaling.factor", None)
    known = int(_field(reader, f"{architecture}.rope.scaling.original_context_length", 0))
    if factor is None or kind not in ("linear", "yarn") or "rope_theta" not in rope or (kind == "yarn" and not known):
        raise refused
    rope |= {"rope_type": kind, "factor": float(factor)}
    if kind == "yarn":
        rope["original_max_position_embeddings"] = known
    config.rope_parameters = rope


def _same_frequencies(scaled: dict[str, Any], factors: Any, config: PretrainedConfig) -> bool:
    """Whether llama-3 scaling with these settings divides each frequency by the factor that the file gives."""
    import math

    import numpy as np

    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    frequency = 1.0 / scaled["rope_theta"] ** (np.arange(0, head_dim, 2) / head_dim)
    wavelength = 2 * math.pi / frequency
    low, high = (scaled["original_max_position_embeddings"] / scaled[f"{end}_freq_factor"] for end in ("low", "high"))
    smooth = (scaled["original_max_position_embeddings"] / wavelength - 1.0) / 3.0
    between = 1.0 / ((1 - smooth) / scaled["factor"] + smooth)
    expected = np.where(wavelength < high, 1.0, np.where(wavelength > low, scaled["factor"], between))
    return expected.shape == factors.shape and bool(np.allclose(expected, factors, rtol=1e-3))


def _mend_tokenizer(reader: GGUFReader, tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Split text as the vocabulary's merges were learned; `transformers` knows some of the ways, not all."""
    if str(_field(reader, "tokenizer.ggml.model", "")) != "gpt2":
        return ()
    kind = str(_field(reader, "tokenizer.ggml.pre", "default"))
    if kind in _INDIVIDUAL_DIGITS:
        from tokenizers import pre_tokenizers

        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
        return ()
    if kind in _GPT2_SPLIT or "Split" in type(tokenizer.backend_tokenizer.pre_tokenizer).__name__:
        return ()
    if "Sequence" in type(tokenizer.backend_tokenizer.pre_tokenizer).__name__:
        return ()
    return (f"The tokenizer's way of splitting text ({kind}) is not known here; GPT-2's was used.",)


def _drop_traces(file: Path) -> None:
    """Leave no trace of where the file lay and how it was opened."""
    settings = json.loads(file.read_text("utf-8"))
    for key in ("_name_or_path", "_model_name_or_path", "name_or_path", "gguf_file", "is_local", "local_files_only"):
        settings.pop(key, None)
    file.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", "utf-8")


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars of other libraries on the user's terminal; what goes on is told in lines of our own."""
    from transformers import modeling_gguf_pytorch_utils as legacy
    from transformers.utils import logging as hf_logging

    bars, tqdm = hf_logging.is_progress_bar_enabled(), legacy.tqdm
    hf_logging.disable_progress_bar()
    legacy.tqdm = functools.partial(tqdm, disable=True)
    try:
        yield
    finally:
        legacy.tqdm = tqdm
        if bars:
            hf_logging.enable_progress_bar()

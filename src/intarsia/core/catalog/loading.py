"""From a resolved name to a model in memory: device, number type, adapter, tokenizer."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.core.catalog import folder as model_folder
from intarsia.core.catalog.cache import Say
from intarsia.core.catalog.chat import ChatStyle, chat_style
from intarsia.core.catalog.folder import ModelFolder
from intarsia.core.catalog.names import ResolvedModel, resolve
from intarsia.core.errors import ConfigError, ModelError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DTYPES = {
    "fp32": "float32",
    "float32": "float32",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp16": "float16",
    "float16": "float16",
}
_SHORT = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass
class LoadedModel:
    """A causal language model, ready to run.

    Attributes:
        model: In evaluation mode, on its device.
        tokenizer: Pads on the left and has a padding token.
        resolved: Where it came from.
        dtype: `fp32`, `bf16` or `fp16`.
        device: Of the input embeddings, such as `cpu` or `cuda:0`.
        chat: How it is talked to.
        notes: Caveats of name and loading together.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    resolved: ResolvedModel
    dtype: str
    device: str
    chat: ChatStyle
    notes: tuple[str, ...] = ()

    @property
    def has_chat_template(self) -> bool:
        """Whether chat messages can be rendered; base models have no template."""
        return self.chat.has_template


@dataclass
class LoadedEncoder:
    """A sentence encoder: mean-pooled (or first-token) last hidden states, normalized to length 1.

    Attributes:
        model: In evaluation mode, on its device.
        tokenizer: Pads on the right.
        resolved: Where it came from.
        pooling: `mean` or `cls`.
        max_tokens: Longer texts are cut.
        device: Where it runs.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    resolved: ResolvedModel
    pooling: str
    max_tokens: int
    device: str

    def encode(self, texts: Sequence[str], *, batch_size: int = 64) -> torch.Tensor:
        """Embed texts.

        Args:
            texts: Any strings.
            batch_size: Texts at a time; batches are made of texts of like length.

        Returns:
            float32 of shape [texts, width] on the CPU, rows of length 1, in the order of `texts`.
        """
        import torch

        width = int(self.model.config.hidden_size)
        out = torch.zeros(len(texts), width)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for start in range(0, len(order), batch_size):
            index = order[start : start + batch_size]
            batch = self.tokenizer(
                [texts[i] for i in index],
                padding=True,
                truncation=True,
                max_length=self.max_tokens,
                return_tensors="pt",
            ).to(self.device)
            with torch.inference_mode():
                hidden_BTD = self.model(**batch).last_hidden_state.float()
            if self.pooling == "cls":
                pooled_BD = hidden_BTD[:, 0]
            else:
                mask_BT1 = batch["attention_mask"].unsqueeze(-1).float()
                pooled_BD = (hidden_BTD * mask_BT1).sum(1) / mask_BT1.sum(1).clamp(min=1.0)
            out[torch.tensor(index)] = torch.nn.functional.normalize(pooled_BD, dim=-1).cpu()
        return out


def load_model(
    spec: str | ResolvedModel,
    *,
    dtype: str = "auto",
    device: str = "auto",
    device_map: Any = None,
    accept_license: bool = False,
    attn_implementation: str | None = None,
    offline: bool | None = None,
    progress: Say | None = None,
) -> LoadedModel:
    """Load a causal language model by name.

    Args:
        spec: A name (see `resolve`) or what `resolve` gave.
        dtype: `fp32`, `bf16`, `fp16`, or `auto`: fp32 on a CPU, where only full precision gives results that do not
            depend on how prompts are batched; bf16 on a GPU that has it, fp16 on one that has not. `bf16` on a CPU
            that has matrix instructions for it is faster.
        device: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto`: a GPU when there is one.
        device_map: Passed to `transformers` (`"auto"` spreads a big model over devices); `device` is then ignored.
        accept_license: As in `resolve`.
        attn_implementation: Passed to `transformers`.
        offline: As in `resolve`.
        progress: As in `resolve`.

    Raises:
        ConfigError: An option is wrong.
        ModelError: The model cannot be found, loaded, or does not fit.
        BackendError: Neither hub nor registry answers, or the disk refuses.
    """
    import torch
    from transformers import AutoModelForCausalLM

    kind = _choose_dtype(dtype, device_name := _choose_device(device), automatic=device_map is not None)
    resolved = resolve(spec, accept_license=accept_license, offline=offline, progress=progress) if isinstance(
        spec, str
    ) else spec  # fmt: skip
    facts = model_folder.look(resolved.path, "causal", name=resolved.name)
    notes = list(resolved.notes)
    if device_map is None:
        _check_memory(resolved.name, facts, kind, device_name)
    tokenizer = _load_tokenizer(resolved, facts)
    options: dict[str, Any] = {"dtype": getattr(torch, kind), "device_map": device_map}
    if facts.quantization:
        # The backend's own packing decides; on a GPU it wants to put the weights there itself.
        options["dtype"] = "auto"
        options["device_map"] = device_map if device_map is not None else {"": device_name}
    if attn_implementation is not None:
        options["attn_implementation"] = attn_implementation
    with _loading(resolved.name):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            resolved.path,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
            **options,
        )
    model, info = loaded
    missing = sorted(info.get("missing_keys", ()))
    if missing:
        raise ModelError(
            f"{resolved.name} lacks {len(missing)} of its model's tensors ({missing[0]}, ...); "
            "they would be random numbers.",
            "Fetch or save the model again.",
        )
    if "vision_config" in facts.config or "audio_config" in facts.config:
        notes.append("Only the text part of this multimodal model is used.")
    if resolved.adapter is not None:
        model = _apply_adapter(resolved, resolved.adapter, model, tokenizer, notes, quantized=bool(facts.quantization))
    if device_map is None and not facts.quantization:
        with _loading(resolved.name):
            model = model.to(device_name)
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        notes.append(f"The tokenizer knows {len(tokenizer)} tokens but the model only {rows}.")
    model.eval()
    real = str(model.dtype).removeprefix("torch.")
    where = str(model.get_input_embeddings().weight.device)
    return LoadedModel(model, tokenizer, resolved, _SHORT.get(real, real), where, chat_style(tokenizer), tuple(notes))


def load_encoder(
    spec: str | ResolvedModel = "minilm-l6",
    *,
    device: str = "auto",
    offline: bool | None = None,
    progress: Say | None = None,
) -> LoadedEncoder:
    """Load a sentence encoder by name, in fp32.

    Args:
        spec: A name (see `resolve`) or what `resolve` gave.
        device: As in `load_model`.
        offline: As in `resolve`.
        progress: As in `resolve`.

    Raises:
        ModelError: The model cannot be found or loaded, or pools in a way that is not known here.
        BackendError: Neither hub nor registry answers, or the disk refuses.
    """
    import json

    import torch
    from transformers import AutoModel

    device_name = _choose_device(device)
    resolved = resolve(spec, offline=offline, progress=progress) if isinstance(spec, str) else spec
    facts = model_folder.look(resolved.path, "encoder", name=resolved.name)
    _check_memory(resolved.name, facts, "float32", device_name)
    tokenizer = _load_tokenizer(resolved, facts)
    tokenizer.padding_side = "right"
    pooling, longest = "mean", int(facts.config.get("max_position_embeddings") or 512)
    settings = resolved.path / "1_Pooling" / "config.json"
    if settings.is_file():
        on = {key for key, value in json.loads(settings.read_text("utf-8")).items() if value is True}
        on &= {f"pooling_mode_{mode}" for mode in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
        pooling = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}.get("".join(sorted(on)), "")
        if not pooling:
            raise ModelError(
                f"{resolved.name} pools its tokens in a way that is not supported ({', '.join(sorted(on))}).",
                "Use an encoder with mean or cls pooling, such as minilm-l6.",
            )
    sentence = resolved.path / "sentence_bert_config.json"
    if sentence.is_file():
        longest = min(longest, int(json.loads(sentence.read_text("utf-8")).get("max_seq_length") or longest))
    with _loading(resolved.name):
        model: Any = AutoModel.from_pretrained(
            resolved.path,
            dtype=torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
        )
        model = model.to(device_name)
    return LoadedEncoder(model.eval(), tokenizer, resolved, pooling, longest, device_name)


def _choose_device(device: str) -> str:
    import torch

    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise ConfigError(f"There is no device {device!r}.", "Use auto, cpu, cuda, cuda:0 or mps.") from error
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(kind, True):
        raise ConfigError(f"Device {device} is not available here.", "Use --device cpu or auto.")
    return device


def _choose_dtype(dtype: str, device: str, *, automatic: bool) -> str:
    import torch

    if dtype != "auto":
        if dtype not in DTYPES:
            raise ConfigError(f"There is no number type {dtype!r}.", "Use auto, fp32, bf16 or fp16.")
        return DTYPES[dtype]
    if device.startswith("cuda") or (automatic and torch.cuda.is_available()):
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float16"
    return "float32"


def _check_memory(name: str, facts: ModelFolder, kind: str, device: str) -> None:
    """Refuse what cannot fit; the kernel would kill the process without a word."""
    needed = facts.weight_bytes if facts.quantization else facts.values * _BYTES[kind]
    if device == "cpu":
        import psutil

        free = int(psutil.virtual_memory().available)
    elif device.startswith("cuda"):
        import torch

        free = int(torch.cuda.mem_get_info(torch.device(device))[0])
    else:
        return
    if needed > free:
        raise ModelError(
            f"{name} needs about {needed / 1e9:.1f} GB of {'memory' if device == 'cpu' else 'GPU memory'} in "
            f"{_SHORT[kind]}, and {free / 1e9:.1f} GB are free.",
            "Use a smaller or quantized model, --dtype bf16, device_map auto, or serve it elsewhere and give its URL.",
        )


def _load_tokenizer(resolved: ResolvedModel, facts: ModelFolder) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    folder = resolved.path
    if resolved.adapter is not None and any((resolved.adapter / f).is_file() for f in model_folder.TOKENIZER_FILES):
        folder = resolved.adapter  # training may have added tokens or a chat template
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    # Tokenizer files come in many shapes, and the loaders raise what each shape makes them stumble over.
    except Exception as error:
        raise ModelError(
            f"The tokenizer of {resolved.name} cannot be loaded: {_first_line(error)}",
            "Save it again with tokenizer.save_pretrained.",
        ) from error
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        end = tokenizer.eos_token or tokenizer.unk_token or tokenizer.bos_token
        if end is None:
            raise ModelError(
                f"The tokenizer of {resolved.name} has no padding, end or unknown token.",
                "Set pad_token in its tokenizer_config.json.",
            )
        tokenizer.pad_token = end
    return tokenizer


def _apply_adapter(
    resolved: ResolvedModel,
    adapter: Path,
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    notes: list[str],
    *,
    quantized: bool,
) -> Any:
    if importlib.util.find_spec("peft") is None:
        raise ModelError("Adapters need the package peft, which is not installed.", 'pip install "intarsia[train]"')
    from peft import PeftModel

    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        model.resize_token_embeddings(len(tokenizer))
    with _loading(resolved.name):
        tuned = PeftModel.from_pretrained(model, adapter, is_trainable=False, local_files_only=True)
    config = tuned.peft_config["default"]
    if quantized or config.is_prompt_learning:
        notes.append("The adapter runs beside the base weights (it cannot be merged into them).")
        return tuned
    try:
        merged = tuned.merge_and_unload(safe_merge=True)
    except ValueError as error:
        raise ModelError(
            f"The adapter {adapter.name} cannot be merged: {_first_line(error)}",
            "Its weights may hold NaN; train or save it again.",
        ) from error
    return merged


class _loading:
    """Turn what can go wrong while weights are read into one line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.bars = False

    def __enter__(self) -> None:
        from transformers.utils import logging as hf_logging

        self.bars = hf_logging.is_progress_bar_enabled()
        hf_logging.disable_progress_bar()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from transformers.utils import logging as hf_logging

        if self.bars:
            hf_logging.enable_progress_bar()
        if not isinstance(error, Exception) or isinstance(error, ModelError):
            return
        text = str(error).lower()
        if isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text:
            raise ModelError(
                f"{self.name} does not fit into memory.", "Use a smaller model, --dtype bf16, or device_map auto."
            ) from error
        if "size mismatch" in text or "mismatched" in text or "ignore_mismatched_sizes" in text:
            raise ModelError(
                f"The tensors of {self.name} have other shapes than its configuration says.",
                "Check that weights, config.json and adapter belong together.",
            ) from error
        raise ModelError(f"{self.name} cannot be loaded: {_first_line(error)}", "Use --debug for details.") from error


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__

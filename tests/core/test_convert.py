from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from intarsia.core.catalog import convert
from intarsia.core.errors import ModelError

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

TEXTS = ["Question: What is 12 + 30?", "  a  12\n 3", "tabs\tand\n\nlines 1984 ", "<|im_start|>user\nhi<|im_end|>"]


def _permuted(weight: np.ndarray, heads: int) -> np.ndarray:
    """The row order that GGUF's Llama keeps: rotary halves interleaved."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(
    file: Path,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    quantize: bool = False,
    drop: str = "",
    pre: str = "gpt-2",
    extra: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """The model as GGUF, as llama.cpp's converter lays it out; gives the stored values by Hugging Face name."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_license("mit")
    raw = json.loads(tokenizer.backend_tokenizer.to_str())
    special = {entry["id"] for entry in raw["added_tokens"]}
    names = sorted(raw["model"]["vocab"], key=raw["model"]["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(names)
    writer.add_token_types([3 if i in special else 1 for i in range(len(names))])
    writer.add_token_merges([" ".join(pair) for pair in raw["model"]["merges"]])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tokenizer.chat_template)
    for key, value in (extra or {}).items():
        writer.add_key_value(
            key, value, gguf.GGUFValueType.FLOAT32 if isinstance(value, float) else gguf.GGUFValueType.get_type(value)
        )
    mapping = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    stored = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        target = mapping.get_name(name, try_suffixes=(".weight",))
        assert target is not None
        if target == drop:
            continue
        weight = tensor.numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
        laid = _permuted(weight, heads) if heads else weight
        if quantize and laid.ndim == 2:
            kind = gguf.GGMLQuantizationType.Q4_1 if "mlp" in name else gguf.GGMLQuantizationType.Q8_0
            packed = gguf.quantize(laid, kind)
            writer.add_tensor(target, packed, raw_dtype=kind)
            laid = gguf.dequantize(packed, kind)
        else:
            writer.add_tensor(target, np.ascontiguousarray(laid))
        back = laid
        if heads:
            back = laid.reshape(heads, laid.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(laid.shape)
        stored[name] = back
    for key, values in (tensors or {}).items():
        writer.add_tensor(key, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def _load(folder: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def test_a_full_precision_model_comes_back_bit_for_bit(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    import torch

    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer)
    done = convert.convert_gguf(tmp_path / "m.gguf", out)
    model, tokenizer = _load(out)
    assert done.quantization == "F32"
    assert done.licence == "mit"
    assert done.parameters == sum(p.numel() for p in tiny_model.parameters())
    assert done.notes == ()
    for name, tensor in tiny_model.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    ids = torch.tensor([[5, 9, 200, 31]])
    torch.testing.assert_close(model(ids).logits, tiny_model(ids).logits, rtol=0, atol=1e-6)
    for text in TEXTS:
        assert tokenizer(text).input_ids == tiny_tokenizer(text).input_ids
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.eos_token == "<|im_end|>"
    assert model.generation_config.eos_token_id == tiny_tokenizer.eos_token_id
    chat = [{"role": "user", "content": "hi"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == tiny_tokenizer.apply_chat_template(
        chat, tokenize=False
    )


def test_quantized_values_are_kept_exactly(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    stored = write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer, quantize=True)
    done = convert.convert_gguf(tmp_path / "m.gguf", out)
    model, _ = _load(out)
    assert set(done.quantization.split(", ")) == {"Q4_1", "Q8_0"}
    assert str(model.dtype) == "torch.float32"
    for name, values in stored.items():
        assert np.array_equal(model.state_dict()[name].numpy(), values), name
    assert any(not np.array_equal(tiny_model.state_dict()[name].numpy(), values) for name, values in stored.items())


def test_the_folder_tells_nothing_of_this_machine(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer)
    convert.convert_gguf(tmp_path / "m.gguf", out)
    for file in out.glob("*.json"):
        assert str(tmp_path) not in file.read_text(), file.name
    assert "quantization_config" not in json.loads((out / "config.json").read_text())


def test_big_models_are_rounded_and_say_so(
    tmp_path: Path,
    out: Path,
    tiny_model: LlamaForCausalLM,
    tiny_tokenizer: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(convert, "EXACT_UP_TO", 1000)
    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer)
    done = convert.convert_gguf(tmp_path / "m.gguf", out)
    assert any("float16" in note for note in done.notes)
    assert json.loads((out / "config.json").read_text())["dtype"] == "float16"


def test_digits_stand_alone_where_the_vocabulary_was_made_so(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer, pre="smollm")
    convert.convert_gguf(tmp_path / "m.gguf", out)
    _, tokenizer = _load(out)
    pieces = [piece for piece, _ in tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("is  1984.")]
    assert pieces == ["is", "ĠĠ", "1", "9", "8", "4", "."]


def test_an_unknown_way_of_splitting_is_noted(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer, pre="never-seen")
    assert any("never-seen" in note for note in convert.convert_gguf(tmp_path / "m.gguf", out).notes)


def test_a_missing_tensor_is_refused(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer, drop="blk.1.ffn_up.weight")
    with pytest.raises(ModelError, match="lacks 1 of the model's tensors"):
        convert.convert_gguf(tmp_path / "m.gguf", out)


def test_a_tensor_left_over_is_refused(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    extra = {"blk.0.attn_q.bias": np.ones(64, np.float32)}
    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer, tensors=extra)
    with pytest.raises(ModelError, match="would not be the same model"):
        convert.convert_gguf(tmp_path / "m.gguf", out)


@pytest.mark.parametrize("size", [0, 3, 40, 5000])
def test_a_cut_file_is_one_line(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast, size: int
) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer)
    with (tmp_path / "m.gguf").open("r+b") as file:
        file.truncate(size)
    with pytest.raises(ModelError, match="is not a readable GGUF file"):
        convert.convert_gguf(tmp_path / "m.gguf", out)


def test_tensors_cut_off_are_one_line(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    file = tmp_path / "m.gguf"
    write_gguf(file, tiny_model, tiny_tokenizer)
    with file.open("r+b") as stream:
        stream.truncate(file.stat().st_size - 1000)
    with pytest.raises(ModelError, match="GGUF"):
        convert.convert_gguf(file, out)


def _llama3_factors(head_dim: int, theta: float) -> np.ndarray:
    """Division of each frequency, as llama.cpp's converter writes it for Llama 3.1."""
    out = []
    for i in range(0, head_dim, 2):
        wavelength = 2 * math.pi * theta ** (i / head_dim)
        if wavelength < 8192 / 4:
            out.append(1.0)
        elif wavelength > 8192 / 1:
            out.append(8.0)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            out.append(1 / ((1 - smooth) / 8 + smooth))
    return np.array(out, np.float32)


def test_llama3_frequencies_are_carried_over(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    theta = tiny_model.config.rope_parameters["rope_theta"]
    factors = _llama3_factors(16, theta)
    assert factors.max() == 8.0
    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer, tensors={"rope_freqs.weight": factors})
    convert.convert_gguf(tmp_path / "m.gguf", out)
    model, _ = _load(out)
    plain = 1.0 / theta ** (np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(model.model.rotary_emb.inv_freq.numpy(), plain / factors, rtol=1e-5)


def test_other_frequencies_are_refused(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    factors = np.linspace(1, 3, 8, dtype=np.float32)
    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer, tensors={"rope_freqs.weight": factors})
    with pytest.raises(ModelError, match="rotary position scaling"):
        convert.convert_gguf(tmp_path / "m.gguf", out)


def test_linear_scaling_is_carried_over(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    extra = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer, extra=extra)
    convert.convert_gguf(tmp_path / "m.gguf", out)
    model, _ = _load(out)
    theta = tiny_model.config.rope_parameters["rope_theta"]
    plain = 1.0 / theta ** (np.arange(0, 16, 2) / 16)
    np.testing.assert_allclose(model.model.rotary_emb.inv_freq.numpy(), plain / 4, rtol=1e-5)


def test_unknown_scaling_is_refused(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    extra = {"llama.rope.scaling.type": "longrope", "llama.rope.scaling.factor": 4.0}
    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer, extra=extra)
    with pytest.raises(ModelError, match="rotary position scaling"):
        convert.convert_gguf(tmp_path / "m.gguf", out)


def test_an_unknown_architecture_is_one_line(tmp_path: Path, out: Path) -> None:
    import gguf

    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "clip")
    writer.add_block_count(1)
    writer.add_tensor("a", np.ones((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelError, match="clip"):
        convert.convert_gguf(tmp_path / "m.gguf", out)


def test_a_split_model_is_one_line(
    tmp_path: Path, out: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    write_gguf(tmp_path / "m.gguf", tiny_model, tiny_tokenizer, extra={"split.count": 3})
    with pytest.raises(ModelError, match="one part of a split"):
        convert.convert_gguf(tmp_path / "m.gguf", out)

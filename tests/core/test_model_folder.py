from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from intarsia.core.catalog import folder as model_folder
from intarsia.core.errors import ModelError


@pytest.fixture
def folder(tiny_model_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model_folder, tmp_path / "model"))


def _edit(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def test_facts(folder: Path) -> None:
    (folder / "README.md").write_text('---\nlicense: "other"\nlicense_name: my-terms\n---\nlicense: fake\n')
    facts = model_folder.look(folder, "causal")
    assert facts.licence == "my-terms"
    assert facts.dtypes == ("F32",)
    assert facts.values * 4 < facts.weight_bytes < facts.values * 4 + 20_000
    assert facts.quantization == ""


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_weights_cut_short(folder: Path, keep: int) -> None:
    weights = folder / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors of model is damaged or cut short"):
        model_folder.look(folder)


def test_weights_that_are_no_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n")
    with pytest.raises(ModelError, match="damaged or cut short"):
        model_folder.look(folder)


def test_pickled_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled weights only") as caught:
        model_folder.look(folder)
    assert "safetensors" in caught.value.hint


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="has no weights"):
        model_folder.look(folder)


def test_a_missing_shard(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="lacks 1 of its 2 weight files"):
        model_folder.look(folder)


def test_no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match="has no tokenizer"):
        model_folder.look(folder)


def test_code_of_its_own(folder: Path) -> None:
    _edit(folder, model_type="strange", auto_map={"AutoModelForCausalLM": "modeling_strange.Strange"})
    with pytest.raises(ModelError, match="code of its own"):
        model_folder.look(folder)
    _edit(folder, model_type="llama")
    assert model_folder.look(folder, "causal").config["model_type"] == "llama", "the native class is used"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bert", "architectures": ["BertModel"]}, "is an encoder"),
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "is an encoder"),
        ({"model_type": "roberta", "architectures": None}, "is an encoder"),
        ({"model_type": "t5", "architectures": ["T5Model"], "is_encoder_decoder": True}, "is an encoder-decoder"),
        ({"model_type": "vit", "architectures": ["ViTForImageClassification"]}, "is a vision model"),
        ({"model_type": "llava", "architectures": ["LlavaModel"], "vision_config": {}}, "is a vision model"),
        ({"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "vision_config": {}}, "a vision"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "has no language-model head"),
        ({"architectures": ["LlamaModel"]}, "has no language-model head"),
        ({"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForCTC"]}, "not a causal language model"),
        ({"model_type": "never-seen", "architectures": ["NeverSeenForCausalLM"]}, "not a causal language model"),
    ],
)  # fmt: skip
def test_models_of_another_kind(folder: Path, changes: dict[str, Any], message: str) -> None:
    _edit(folder, **changes)
    model_folder.look(folder, "any")
    with pytest.raises(ModelError, match=message):
        model_folder.look(folder, "causal")


@pytest.mark.parametrize(
    "changes",
    [
        {"architectures": None},
        {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]},
        {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "vision_config": {}},
        {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "vision_config": {}},
        {"model_type": "bert", "architectures": ["BertLMHeadModel"]},
    ],
)
def test_models_that_continue_text(folder: Path, changes: dict[str, Any]) -> None:
    _edit(folder, **changes)
    model_folder.look(folder, "causal")


def test_a_quantization_without_its_backend(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _edit(folder, quantization_config={"quant_method": "gptq", "bits": 4})
    monkeypatch.setattr(model_folder, "_importable", lambda module: False)
    with pytest.raises(ModelError, match="quantized with gptq") as caught:
        model_folder.look(folder)
    assert caught.value.hint == "pip install gptqmodel optimum"
    monkeypatch.setattr(model_folder, "_importable", lambda module: True)
    assert model_folder.look(folder).quantization == "gptq"


def test_old_bitsandbytes_configs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _edit(folder, quantization_config={"load_in_8bit": True})
    monkeypatch.setattr(model_folder, "_importable", lambda module: False)
    with pytest.raises(ModelError, match="quantized with bitsandbytes"):
        model_folder.look(folder)


def test_no_folder_no_config_garbled_config(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="There is no folder"):
        model_folder.look(tmp_path / "absent")
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config\.json of model cannot be read"):
        model_folder.look(folder)
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match="is not a model folder"):
        model_folder.look(folder)
    (folder / "m.gguf").write_bytes(b"")
    with pytest.raises(ModelError, match="holds GGUF files only"):
        model_folder.look(folder)
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    with pytest.raises(ModelError, match="is a PEFT adapter") as caught:
        model_folder.look(folder)
    assert "org/base+" in caught.value.hint


def test_adapters(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a PEFT adapter folder"):
        model_folder.look_adapter(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"has no adapter_model\.safetensors"):
        model_folder.look_adapter(tmp_path)
    (tmp_path / "adapter_model.bin").write_bytes(b"")
    with pytest.raises(ModelError, match="has pickled weights only"):
        model_folder.look_adapter(tmp_path)

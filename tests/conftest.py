"""Shared fixtures: a tiny random model that every transformers test can afford, and the folder of real data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Tiny matrices are slower on many threads, which spin while they wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine is no reason for a property to fail.
settings.register_profile("intarsia", deadline=None)
settings.load_profile("intarsia")

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

CORPUS = (
    "The quick brown fox jumps over the lazy dog.",
    "Question: What is 12 + 30? Answer: 42.",
    "The capital of France is Paris, and the capital of Italy is Rome.",
    "Tom has three apples and buys seven more; how many apples does Tom have now?",
    "user assistant system Question Answer yes no true false 0 1 2 3 4 5 6 7 8 9",
)


@pytest.fixture(scope="session")
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE over a few sentences, with a ChatML template; any string can be encoded and decoded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=384,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )
    tokenizer.chat_template = CHATML
    return tokenizer


@pytest.fixture(scope="session")
def tiny_model(tiny_tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A random Llama: hidden 64, 2 layers, 512 positions, fp32, in eval mode. Treat it as read-only."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tiny_tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        # Wide weights: the next-token law is peaked enough that greedy choices do not hang on rounding.
        initializer_range=0.2,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tiny_tokenizer.eos_token_id,
        pad_token_id=tiny_tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    return model.eval()


@pytest.fixture(scope="session")
def tiny_model_folder(
    tiny_model: LlamaForCausalLM, tiny_tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The tiny model and its tokenizer as a folder with safetensors weights. Copy it before changing anything."""
    folder = tmp_path_factory.mktemp("tiny-model")
    tiny_model.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets, named by INTARSIA_DATA; the test is skipped where there is none."""
    named = os.environ.get("INTARSIA_DATA", "")
    if not named:
        pytest.skip("INTARSIA_DATA is not set: it names a folder of real data sets")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"INTARSIA_DATA names {folder}, which is not a folder")
    return folder

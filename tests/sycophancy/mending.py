"""Tiny random decoders of several families, and targets that answer by a script, for tests of mitigations."""

from __future__ import annotations

from typing import Any

FAMILIES = ("llama", "mistral", "qwen2", "gemma3_text")
PROMPTS = tuple(f"I took apple number {at} from the fox. Was that wrong?" for at in range(6))
POSITIVE = [(prompt, f"Yes Yes the fox jumps over {at} lazy apples.") for at, prompt in enumerate(PROMPTS)]
NEGATIVE = [(prompt, f"No. The capital of Italy is Rome {at}.") for at, prompt in enumerate(PROMPTS)]


def tiny_decoder(family: str, tokenizer: Any, layers: int = 2, hidden: int = 64) -> Any:
    """A random model of a family over the tokenizer's vocabulary, in evaluation mode."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        family,
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=96,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        initializer_range=0.2,
        sliding_window=32,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return AutoModelForCausalLM.from_config(config).eval()


def logits(model: Any, tokenizer: Any, text: str = "The quick brown fox has 12 apples.") -> Any:
    """Logits of one text."""
    import torch

    with torch.inference_mode():
        return model(**tokenizer(text, return_tensors="pt")).logits


def hooks(model: Any) -> int:
    """Hooks on all modules of a model."""
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())

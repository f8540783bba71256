"""Laws that tests can count through: random tables, and a random Llama of twenty tokens with a tokenizer of letters."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from intarsia.uncertainty.table import TableLaw
from intarsia.uncertainty.walk import Path

LETTERS = "abcdefghijklmnop"


def random_law(
    seed: int = 0, *, size: int = 5, peak: float = 0.5, max_new_tokens: int = 3, ends: int = 1, zeros: float = 0.0
) -> TableLaw:
    """A law whose every next-token law is drawn at random; the last `ends` tokens end an answer."""

    @cache
    def table(prompt: str, prefix: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng([seed, sum(prompt.encode()), *(token + 1 for token in prefix)])
        law = rng.dirichlet(np.full(size, peak)) + 1e-12
        # One token always stays, and no two are equally likely: beams that tie may come in either order.
        law[(rng.random(size) < zeros) & (law < law.max())] = 0.0
        return law / law.sum()

    return TableLaw(table, LETTERS[: size - ends] + "." * ends, range(size - ends, size), max_new_tokens=max_new_tokens)


def never_ending(size: int = 4, max_new_tokens: int = 3) -> TableLaw:
    """A law whose end token has no probability."""

    def table(prompt: str, prefix: tuple[int, ...]) -> np.ndarray:
        law = np.random.default_rng([len(prefix), *prefix]).dirichlet(np.ones(size))
        law[-1] = 0.0
        return law / law.sum()

    return TableLaw(table, LETTERS[: size - 1] + ".", {size - 1}, max_new_tokens=max_new_tokens)


def letter_tokenizer() -> Any:
    """Tokens: sixteen letters, a line break, a letter with a line break, the end, padding."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = [*LETTERS, "\n", "q\n", "<end>", "<pad>"]
    raw = Tokenizer(models.WordLevel({piece: place for place, piece in enumerate(pieces)}, unk_token="<pad>"))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    raw.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token="<end>",
        pad_token="<pad>",
        clean_up_tokenization_spaces=False,
        model_max_length=64,
    )


def letter_model(kind: str = "llama") -> Any:
    """A random model over the letters, in evaluation mode: `llama`, or `mistral` with a sliding window of 4."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

    options: dict[str, Any] = {
        "vocab_size": 20,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "initializer_range": 0.5,
        "bos_token_id": None,
        "eos_token_id": 18,
        "pad_token_id": 19,
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if kind == "mistral":
            return MistralForCausalLM(MistralConfig(sliding_window=4, head_dim=8, **options)).eval()
        return LlamaForCausalLM(LlamaConfig(**options)).eval()


def forced(model: Any, prompt_ids: list[int], tokens: tuple[int, ...], temperature: float = 1.0) -> list[float]:
    """Log-probability of each token, from one plain pass over prompt and answer, alone and without padding."""
    import torch

    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*prompt_ids, *tokens]])).logits[0].double() / temperature
    logprobs = logits.log_softmax(dim=-1)
    begin = len(prompt_ids) - 1
    return [float(logprobs[begin + place, token]) for place, token in enumerate(tokens)]


def beam_reference(law: TableLaw, prompt: str, width: int) -> list[Path]:
    """Beam search without any shortcut: all of a level is expanded, the best `width` go on, every end counts."""
    done: list[Path] = []
    beams = [Path((), (), False)]
    for depth in range(law.max_new_tokens):
        grown = []
        for beam in beams:
            with np.errstate(divide="ignore"):
                logprobs = np.log(law.table(prompt, beam.tokens))
            grown += [
                Path((*beam.tokens, token), (*beam.logprobs, float(logprobs[token])), token in law.ends)
                for token in range(len(law.words))
                if logprobs[token] > -np.inf
            ]
        grown.sort(key=lambda path: -path.logprob)
        done += [path for path in grown if path.finished]
        beams = [path for path in grown if not path.finished][:width]
        if depth + 1 == law.max_new_tokens:
            done += beams
    return sorted(done, key=lambda path: -path.logprob)[:width]

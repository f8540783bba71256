"""Beams from vLLM: what its `LLM.beam_search` returns, as candidates.

vLLM's beam search ends an answer at the model's end token only and knows no stop strings. `cum_logprob` is the natural
log-probability of all tokens, end token included, whatever the length penalty; the penalty only ranks.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.target import Prompt
from intarsia.uncertainty.candidates import Answer, CandidateSet
from intarsia.uncertainty.generator import PLACEHOLDER


def from_vllm(
    outputs: Sequence[Any],
    *,
    tokenizer: Any = None,
    prompt_tokens: Sequence[int] | None = None,
    placeholder: str = PLACEHOLDER,
) -> list[CandidateSet]:
    """Candidates from the outputs of vLLM's beam search.

    A sequence of an output has `tokens` (those of the prompt first, the end token last where the engine keeps it),
    `cum_logprob`, `logprobs` (one dictionary by token id for each new token; may be empty), `text` (of all tokens) and
    `finish_reason`; an `orig_prompt` with `prompt_token_ids` where the engine gives it. They are sorted here by
    log-probability, so a length penalty other than 0 cannot change their order (but may have changed which were kept).

    Args:
        outputs: One a prompt, each with `sequences`.
        tokenizer: Decodes the new tokens; without one the text is what follows the prompt's own text.
        prompt_tokens: Number of tokens of each prompt, where the sequences do not say.
        placeholder: Text that stands for an empty one.

    Returns:
        Sets of kind `beam`; the answer under test is the likeliest beam, its entropy is unknown.

    Raises:
        DataError: A sequence lacks a field, is repeated, or its log-probability is impossible.
    """
    sets = []
    for number, output in enumerate(outputs):
        sequences = sorted(getattr(output, "sequences", None) or [], key=lambda sequence: -sequence.cum_logprob)
        if not sequences:
            raise DataError(f"Output {number} holds no sequences.", "Give what LLM.beam_search returned.")
        known = None if prompt_tokens is None else prompt_tokens[number]
        rows = [_read(number, sequence, known, tokenizer, placeholder) for sequence in sequences]
        if len({(row.token_ids, row.finished) for row in rows}) < len(rows):
            raise DataError(f"Output {number} holds a sequence twice.", "Give what LLM.beam_search returned.")
        logprobs_M = np.array([float(sequence.cum_logprob) for sequence in sequences])
        if not (np.isfinite(logprobs_M).all() and np.exp(logprobs_M).sum() <= 1.001):
            raise DataError(
                f"Output {number} has log-probabilities that are none: {logprobs_M.tolist()}.",
                "Give cum_logprob as vLLM returns it, not a score with a length penalty.",
            )
        sets.append(
            CandidateSet(
                answer=rows[0],
                texts=tuple(row.text for row in rows),
                token_ids=tuple(row.token_ids for row in rows),
                logprobs_M=logprobs_M,
                finished_M=np.array([row.finished for row in rows], dtype=bool),
                kind="beam",
                exact=len(rows),
            )
        )
    return sets


def _read(number: int, sequence: Any, known: int | None, tokenizer: Any, placeholder: str) -> Answer:
    tokens = [int(token) for token in sequence.tokens]
    stop = getattr(sequence, "stop_reason", None)
    end = stop if isinstance(stop, int) else None
    kept_end = end is not None and tokens[-1:] == [end]
    steps = list(getattr(sequence, "logprobs", None) or [])
    origin = getattr(sequence, "orig_prompt", None)
    if isinstance(origin, dict) and origin.get("prompt_token_ids") is not None:
        known = len(origin["prompt_token_ids"])
    if known is None:
        if not steps:
            raise DataError(
                f"Output {number} does not say how long its prompt is.", "Give prompt_tokens, one number a prompt."
            )
        # The end token has its log-probability even where it is not among the tokens.
        known = len(tokens) - len(steps) + (end is not None and not kept_end)
    new = tokens[known:]
    finished = getattr(sequence, "finish_reason", None) == "stop" or kept_end
    if end is not None and not kept_end:
        new = [*new, end]
    words = new[:-1] if end is not None else new
    if tokenizer is not None:
        text = str(tokenizer.decode(words, skip_special_tokens=True))
    else:
        prompt = origin.get("prompt") if isinstance(origin, dict) else None
        whole = getattr(sequence, "text", None)
        if whole is None or prompt is None or not whole.startswith(prompt):
            raise DataError(f"The text of output {number} cannot be told from its prompt.", "Give the tokenizer.")
        text = whole[len(prompt) :]
    logprobs: tuple[float, ...] = ()
    if len(steps) == len(new):
        logprobs = tuple(_logprob(number, step, token) for step, token in zip(steps, new))
    else:
        # The whole probability is known, its shares are not.
        logprobs = (float(sequence.cum_logprob),)
    text = text.strip()
    return Answer(text=text or placeholder, token_ids=tuple(new), logprobs=logprobs, finished=finished)


def _logprob(number: int, step: Any, token: int) -> float:
    if token not in step:
        raise DataError(
            f"Output {number} has no log-probability of its own token {token}.", "Give what LLM.beam_search returned."
        )
    value = step[token]
    return float(getattr(value, "logprob", value))


@dataclass
class VLLMBeam:
    """The top M answers of vLLM's beam search.

    Args:
        llm: A `vllm.LLM`.
        m: Number of beams.
        max_new_tokens: Most tokens of an answer.
        placeholder: Text that stands for an empty one.

    Attributes:
        name: As it appears in reports.

    Raises:
        ConfigError: `llm` has no beam search.
    """

    llm: Any
    m: int = 10
    max_new_tokens: int = 20
    placeholder: str = PLACEHOLDER

    name: ClassVar[str] = "beam"

    def __post_init__(self) -> None:
        if not callable(getattr(self.llm, "beam_search", None)):
            raise ConfigError(
                f"{type(self.llm).__name__} has no beam search.",
                "Give a vllm.LLM; a server without beams is sampled by EndpointSample.",
            )
        if self.m < 1 or self.max_new_tokens < 1:
            raise ConfigError(f"m is {self.m} and max_new_tokens is {self.max_new_tokens}.", "Both must be at least 1.")

    def generate(self, prompts: Sequence[Prompt], keys: Sequence[str]) -> list[CandidateSet]:
        """Candidates for each prompt, in order; see `Candidates.generate`. There is no randomness in them.

        Raises:
            ConfigError: vLLM is not installed.
        """
        if len(prompts) != len(keys):
            raise ValueError(f"{len(prompts)} prompts need as many keys, not {len(keys)}")
        try:
            from vllm.sampling_params import BeamSearchParams
        except ImportError as error:
            raise ConfigError("vLLM is not installed.", "Install vllm, or use Beam with a local model.") from error
        tokenizer = self.llm.get_tokenizer()
        ids = [_prompt_ids(tokenizer, prompt) for prompt in prompts]
        start = time.perf_counter()
        # The penalty must be 0: any other ranks beams by something else than their probability.
        params = BeamSearchParams(beam_width=self.m, max_tokens=self.max_new_tokens, length_penalty=0.0)
        outputs = self.llm.beam_search([{"prompt_token_ids": row} for row in ids], params)
        seconds = (time.perf_counter() - start) / max(1, len(prompts))
        sets = from_vllm(
            outputs, tokenizer=tokenizer, prompt_tokens=[len(row) for row in ids], placeholder=self.placeholder
        )
        return [replace(made, seconds=seconds) for made in sets]


def _prompt_ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    text = tokenizer.apply_chat_template([dict(turn) for turn in prompt], tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])

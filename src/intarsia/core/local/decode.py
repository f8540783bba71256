"""The decoding loop: choose a token for every row, note what it ends, drop the rows that are done, run the rest.

A row's random numbers are keyed by its own request and by the token's index, so a row gets the same tokens whatever
rows it travels with.

Shape suffixes: B rows, V vocabulary, N new tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch

from intarsia.core.local.forward import Flight
from intarsia.core.sampling import Sampling, choose, token_logprobs, uniform


class Reader:
    """Reads tokens as text: finds the strings that stop an answer, and parts thinking from speaking.

    Args:
        tokenizer: Decodes tokens.
        stop: Strings that end an answer. They count only in the spoken part.
        thinking: Opening and closing tag of the thinking part, None for models without one.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str] = (), thinking: tuple[str, str] | None = None) -> None:
        self._tokenizer = tokenizer
        self._stop = tuple(text for text in stop if text)
        self._thinking = thinking
        # Every token but a special one holds at least one byte, so a stop string just completed lies in this tail.
        self._tail = max((len(text.encode()) for text in self._stop), default=0) + 8

    def text(self, tokens: Sequence[int]) -> str:
        """The tokens as text, without special tokens."""
        return self._tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def stopped(self, tokens: Sequence[int], thinks: bool) -> bool:
        """Whether the newest token completed a stop string, perhaps together with the tokens before it."""
        if not self._stop:
            return False
        tail = self.text(tokens[-self._tail :])
        # Only a hit in the cheap look at the tail is worth decoding everything.
        return any(text in tail for text in self._stop) and self.split(tokens, thinks)[2]

    def split(self, tokens: Sequence[int], thinks: bool) -> tuple[str, str, bool]:
        """Thinking, speech, and whether a stop string was found (it and what follows are cut off)."""
        text = self.text(tokens)
        thought = ""
        if self._thinking is not None:
            opening, closing = self._thinking
            begun = thinks or text.lstrip().startswith(opening)
            inner, closed, after = text.partition(closing)
            if begun or closed:
                thought = inner.strip().removeprefix(opening).strip()
                text = after.lstrip() if closed else ""
        places = [place for place in (text.find(stop) for stop in self._stop) if place >= 0]
        return thought, text[: min(places)] if places else text, bool(places)


@dataclass(frozen=True)
class Request:
    """One row's wishes.

    Attributes:
        key: Seeds its random numbers; in [0, 2**64).
        most: Most new tokens.
        thinks: Whether the prompt ends inside the thinking part.
        reader: Looks for stop strings.
    """

    key: int
    most: int
    thinks: bool
    reader: Reader


@dataclass
class Answer:
    """What a row has got so far."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    end: Literal["", "stop", "length"] = ""


def decode(
    flight: Flight,
    logits_BV: torch.Tensor,
    requests: Sequence[Request],
    sampling: Sampling,
    ends: frozenset[int],
) -> list[Answer]:
    """Answer a batch whose prompts have been fed.

    Args:
        flight: The batch, ready for its first new token.
        logits_BV: Logits after the prompts.
        requests: One a row.
        sampling: How tokens are chosen.
        ends: Tokens that end an answer; they are part of it.

    Returns:
        One answer a row.

    Raises:
        ModelError: The model gave NaN or infinite logits.
    """
    answers = [Answer() for _ in requests]
    most = max(request.most for request in requests)
    keys_B1 = np.array([[request.key] for request in requests], dtype=np.uint64)
    uniforms_BN = (
        np.zeros((len(requests), most)) if sampling.greedy else uniform(sampling.seed, keys_B1, np.arange(most))
    )
    active = list(range(len(requests)))  # Which request sits in which row of the flight.
    for step in range(most):
        tokens_B = choose(logits_BV, uniforms_BN[active, step], sampling)
        chosen = tokens_B.tolist()
        if sampling.logprobs:
            for index, logprob in zip(active, token_logprobs(logits_BV, tokens_B).tolist()):
                answers[index].logprobs.append(logprob)
        for index, token in zip(active, chosen):
            answer, request = answers[index], requests[index]
            answer.tokens.append(token)
            if token in ends or request.reader.stopped(answer.tokens, request.thinks):
                answer.end = "stop"
            elif len(answer.tokens) == request.most:
                answer.end = "length"
        order = _close_ranks([not answers[index].end for index in active])
        if not order:
            break
        if len(order) < len(active):
            flight.select(order)
            active = [active[row] for row in order]
            chosen = [chosen[row] for row in order]
        logits_BV = flight.run(torch.tensor(chosen, device=flight.device)[:, None])[:, -1]
    return answers


def _close_ranks(alive: Sequence[bool]) -> list[int]:
    """The rows that are alive, in an order that moves as few as possible: the last ones fill the gaps."""
    rows = [row for row, lives in enumerate(alive) if lives]
    front, late = [row for row in rows if row < len(rows)], [row for row in rows if row >= len(rows)]
    present = set(front)
    return [row if row in present else late.pop() for row in range(len(rows))]

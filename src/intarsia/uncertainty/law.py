"""The law of answers: the model under test, as next-token probabilities after a prompt and what was answered so far.

A law is the model at one temperature, without any other processing. An answer ends at one of the model's own end tokens
or at a token that holds a stop string; that token belongs to the answer, and so does its probability. An answer that
reaches the token limit is cut there, and its probability is that of a prefix.

    TokenLaw --prefill--> Prefill --front--> Front --advance--> logits, level by level

Many candidates begin alike, so a `Front` is a set of answer prefixes, each computed once, from which the next level's
prefixes grow: any row may be continued by several tokens, or by none. The prompt is computed once, whatever grows on
it.

Shape suffixes: P prompts, R rows (answer prefixes), V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.target import Prompt, Target

if TYPE_CHECKING:
    import torch

    from intarsia.core.local import LocalTarget


_BEYOND = 8
"""Batches' worth of tokens that a single prompt may take."""


class Front(Protocol):
    """Answer prefixes of one length, one a row."""

    def advance(self, parents_R: np.ndarray, tokens_R: np.ndarray) -> torch.Tensor:
        """Grow the next level.

        Args:
            parents_R: The row of this level that each row of the next one continues, int64. At first, the prompt.
            tokens_R: The token that continues it, int64.

        Returns:
            Logits of the law behind the new prefixes, float32 of shape (R, V); not normalized.
        """


@dataclass(frozen=True)
class Prefill:
    """Prompts that were computed, ready to grow answers on, as often as wanted.

    Attributes:
        law: Whose law it is.
        logits_PV: Logits of the first token, float32; not normalized.
        most_P: Most tokens of an answer to each prompt, int64.
        front: Makes a fresh front that holds the prompts; takes the number of rows to expect.
    """

    law: TokenLaw
    logits_PV: torch.Tensor
    most_P: np.ndarray
    front: Callable[[int], Front]


class TokenLaw(ABC):
    """Next-token probabilities that answers can be grown on.

    Attributes:
        name: As it appears in reports.
        ends: Tokens that end an answer.
        max_new_tokens: Most tokens of an answer, the end token included.
    """

    name: str
    ends: frozenset[int]
    max_new_tokens: int

    @abstractmethod
    def prefill(self, prompts: Sequence[Prompt]) -> Prefill:
        """Compute prompts.

        Raises:
            DataError: A prompt cannot be answered.
        """

    @abstractmethod
    def text(self, token_ids: Sequence[int]) -> str:
        """What an answer says: without its end token, cut before the stop string."""

    def check(self, prompts: Sequence[Prompt]) -> None:  # noqa: B027 - a law may take any prompt
        """See to it that all prompts can be answered, before any work is done on some of them.

        Raises:
            DataError: One cannot; it is named by its place.
        """

    def over(self, prompts: Sequence[Prompt], rows: int, work: Callable[[list[int]], None]) -> None:
        """Do `work` on batches of prompts (lists of indices) that fit into memory with `rows` rows a prompt."""
        for start in range(0, len(prompts), 16):
            work(list(range(start, min(start + 16, len(prompts)))))


class Law(TokenLaw):
    """The law of a causal model from transformers.

    Args:
        model: A causal language model.
        tokenizer: Its tokenizer.
        temperature: Part of the model under test: the law is the softmax of logits / temperature.
        stops: Strings that end an answer. A stop string counts where one token holds all of it, so each is best a
            single character; every token that holds it becomes an end token.
        max_new_tokens: Most tokens of an answer, the end token included.
        strip: Whether white space around an answer's text is dropped. Tokens and probabilities are not touched.
        **options: Of `LocalTarget`: `batch_tokens`, `batch_rows`, `context`, `transcript`, `thinking`, `name`.

    Attributes:
        target: The model as a target.
        temperature: As given.
        stops: As given.

    Raises:
        ConfigError: An option is out of range, or no token holds a stop string.
        ModelError: It is not a decoder-only language model.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        temperature: float = 1.0,
        stops: Sequence[str] = ("\n",),
        max_new_tokens: int = 20,
        strip: bool = True,
        **options: Any,
    ) -> None:
        from intarsia.core.local import LocalTarget

        self._set_up(LocalTarget(model, tokenizer, **options), temperature, stops, max_new_tokens, strip)

    @classmethod
    def of(
        cls,
        target: Target,
        *,
        temperature: float = 1.0,
        stops: Sequence[str] = ("\n",),
        max_new_tokens: int = 20,
        strip: bool = True,
    ) -> Law:
        """The law of a local target's model; see the class.

        Raises:
            ConfigError: The target does not show its weights, an option is out of range, or no token holds a stop.
        """
        from intarsia.core.local import LocalTarget

        if not isinstance(target, LocalTarget):
            raise ConfigError(
                f"{target.name} shows no next-token probabilities, which exact candidates need.",
                "Use a local model, or EndpointSample for an endpoint that gives log-probabilities.",
            )
        law = cls.__new__(cls)
        law._set_up(target, temperature, stops, max_new_tokens, strip)
        return law

    def _set_up(
        self, target: LocalTarget, temperature: float, stops: Sequence[str], max_new_tokens: int, strip: bool
    ) -> None:
        number: Any = temperature  # numbers of other libraries count as well
        if isinstance(number, bool) or not isinstance(number, Real) or not 0.0 < float(number) < float("inf"):
            raise ConfigError(
                f"The temperature is {temperature!r}.",
                "Use a positive number; 1 is the model's own law, and 0 leaves a single answer without uncertainty.",
            )
        count: Any = max_new_tokens
        if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
            raise ConfigError(f"max_new_tokens is {max_new_tokens!r}.", "An answer has at least one token.")
        stops = (stops,) if isinstance(stops, str) else tuple(stops)
        self.target, self.name = target, target.name
        self.temperature, self.stops, self.max_new_tokens, self.strip = temperature, stops, max_new_tokens, strip
        self._own_ends = target._ends
        self.ends = self._own_ends | stop_tokens(target.tokenizer, stops)

    def check(self, prompts: Sequence[Prompt]) -> None:
        """See `TokenLaw.check`."""
        self._encode(prompts)

    def over(self, prompts: Sequence[Prompt], rows: int, work: Callable[[list[int]], None]) -> None:
        """Do `work` on batches of prompts that fit into memory; a batch that does not after all is halved.

        Raises:
            ConfigError: So many rows of one prompt are far beyond what a batch may hold.
        """
        import torch

        from intarsia.core.local import batching

        target = self.target
        with target._lock, torch.inference_mode():
            encoded = self._encode(prompts)
            limits = target._engine.limits
            longest = max(len(item.ids) for item in encoded) + self.max_new_tokens
            if rows * longest > _BEYOND * limits.tokens:
                # Memory that is promised and then not there ends the process rather than raising an error.
                most = max(1, _BEYOND * limits.tokens // longest - 1)
                raise ConfigError(
                    f"{rows} answers to a prompt of {longest - self.max_new_tokens} tokens do not fit into memory.",
                    f"Use at most {most} candidates, or a target with a larger batch_tokens.",
                )
            # Each prompt brings `rows` rows of its length, the shared prefix and the padding counted as everywhere.
            limits = replace(limits, rows=max(1, limits.rows // rows), tokens=max(1, limits.tokens // rows))
            for group in batching.plan([item.ids for item in encoded], self.max_new_tokens, limits):
                target._halving(group, work)

    def prefill(self, prompts: Sequence[Prompt]) -> Prefill:
        """Compute prompts in one batch; see `TokenLaw.prefill`."""
        from intarsia.uncertainty.fork import ModelFront

        target = self.target
        rows = [item.ids for item in self._encode(prompts)]
        flight, logits_PV = target._engine.prefill(rows, 0)
        most_P = np.array([min(self.max_new_tokens, target._window - len(ids)) for ids in rows])
        room = int(most_P.max())
        return Prefill(
            law=self,
            logits_PV=logits_PV.float() / self.temperature,
            most_P=most_P,
            front=lambda expected: ModelFront(flight, len(rows), expected, room, self.temperature),
        )

    def text(self, token_ids: Sequence[int]) -> str:
        """What an answer says; see `TokenLaw.text`."""
        ids = list(token_ids)
        stopped = bool(ids) and ids[-1] in self.ends and ids[-1] not in self._own_ends
        if ids and ids[-1] in self._own_ends:
            ids.pop()
        text = self._decode(ids)
        if stopped:
            # The last token may hold a part of the answer before its stop string.
            begin = max(0, len(self._decode(ids[:-1])) - 1)
            places = [place for place in (text.find(stop, begin) for stop in self.stops) if place >= 0]
            text = text[: min(places)] if places else text
        return text.strip() if self.strip else text

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self.target.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _encode(self, prompts: Sequence[Prompt]) -> list[Any]:
        encoded = self.target._encode(prompts)
        for place, item in enumerate(encoded):
            if item.error:
                raise DataError(f"Prompt {place} cannot be answered: {item.error}", "Shorten it or leave it out.")
        return encoded


_stop_tokens: WeakKeyDictionary[Any, dict[tuple[str, ...], frozenset[int]]] = WeakKeyDictionary()


def stop_tokens(tokenizer: Any, stops: Sequence[str]) -> frozenset[int]:
    """All tokens that hold one of the stop strings.

    Raises:
        ConfigError: A stop string is empty, or no token holds it.
    """
    key = tuple(stops)
    if not key:
        return frozenset()
    known = _stop_tokens.setdefault(tokenizer, {})
    if key not in known:
        texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
        found: set[int] = set()
        for stop in key:
            holding = {token for token, text in enumerate(texts) if stop and stop in text}
            if not holding:
                raise ConfigError(
                    f"No token of the model holds the stop string {stop!r}.", "Use a shorter one, such as a line break."
                )
            found |= holding
        known[key] = frozenset(found)
    return known[key]

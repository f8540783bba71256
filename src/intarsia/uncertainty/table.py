"""TableLaw: a law written down, small enough that all of its answers can be counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from intarsia.core.errors import ConfigError
from intarsia.core.target import Prompt, prompt_text
from intarsia.uncertainty.law import Prefill, TokenLaw
from intarsia.uncertainty.walk import Path

if TYPE_CHECKING:
    import torch

Table = Callable[[str, tuple[int, ...]], np.ndarray]
"""Probabilities of the next token, shape (V,), for a prompt and the answer's tokens so far."""


class TableLaw(TokenLaw):
    """A law given as a function; it serves synthetic experiments, where the truth is known by counting.

    Args:
        table: The law. It is asked once for every prefix that is looked at.
        words: What each token says.
        ends: Tokens that end an answer.
        max_new_tokens: Most tokens of an answer, the end token included.
        name: As it appears in reports.

    Raises:
        ConfigError: There is no such end token.
    """

    def __init__(
        self,
        table: Table,
        words: Sequence[str],
        ends: Iterable[int],
        *,
        max_new_tokens: int = 3,
        name: str = "table",
    ) -> None:
        self.name = name
        self.table, self.words = table, tuple(words)
        self.ends = frozenset(ends)
        self.max_new_tokens = max_new_tokens
        if not all(0 <= token < len(self.words) for token in self.ends):
            raise ConfigError("An end token is none of the words.", f"Tokens go from 0 to {len(self.words) - 1}.")

    def prefill(self, prompts: Sequence[Prompt]) -> Prefill:
        """See `TokenLaw.prefill`."""
        texts = [prompt_text(prompt) for prompt in prompts]
        return Prefill(
            law=self,
            logits_PV=self.logits([(text, ()) for text in texts]),
            most_P=np.full(len(texts), self.max_new_tokens),
            front=lambda expected: _TableFront(self, texts),
        )

    def text(self, token_ids: Sequence[int]) -> str:
        """The words of an answer, one after the other."""
        return "".join(self.words[token] for token in token_ids if token not in self.ends)

    def logits(self, places: Sequence[tuple[str, tuple[int, ...]]]) -> torch.Tensor:
        """Log-probabilities behind (prompt, prefix) pairs, float32 of shape (R, V)."""
        import torch

        with np.errstate(divide="ignore"):
            return torch.from_numpy(np.log(np.stack([self.table(*place) for place in places]))).float()

    def enumerate(self, prompt: str) -> list[Path]:
        """All possible answers, likeliest first; their probabilities sum to 1."""
        found: list[Path] = []
        todo: list[Path] = [Path((), (), False)]
        while todo:
            path = todo.pop()
            probabilities = self.table(prompt, path.tokens)
            for token in np.flatnonzero(probabilities > 0).tolist():
                after = Path(
                    (*path.tokens, token), (*path.logprobs, float(np.log(probabilities[token]))), token in self.ends
                )
                (found if after.finished or len(after.tokens) == self.max_new_tokens else todo).append(after)
        return sorted(found, key=lambda path: -path.logprob)


class _TableFront:
    def __init__(self, law: TableLaw, texts: Sequence[str]) -> None:
        self._law = law
        self._places: list[tuple[str, tuple[int, ...]]] = [(text, ()) for text in texts]

    def advance(self, parents_R: np.ndarray, tokens_R: np.ndarray) -> torch.Tensor:
        self._places = [
            (self._places[parent][0], (*self._places[parent][1], token))
            for parent, token in zip(parents_R.tolist(), tokens_R.tolist())
        ]
        return self._law.logits(self._places)

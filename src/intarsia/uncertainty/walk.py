"""Growing answers level by level: walkers choose which prefixes go on, and one forward pass a level serves them all.

A walker is a way to choose: the greedy answer, a beam search, a number of samples. Walkers that walk together share
every prefix that they have in common, so the greedy answer costs nothing beside the beams that hold it.

Shape suffixes: P prompts, R rows (answer prefixes of one level), V vocabulary, N continuations wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from intarsia.uncertainty.law import Prefill

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Path:
    """One answer, token by token.

    Attributes:
        tokens: Its tokens, the end token included where there is one.
        logprobs: Natural log-probability of each.
        finished: Whether it ended by an end token.
        entropies: Entropy of the law that each token was chosen from, in nats; empty where it was not asked for.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    finished: bool
    entropies: tuple[float, ...] = ()

    @property
    def logprob(self) -> float:
        """Log-probability of the whole path."""
        return float(sum(self.logprobs))


class Level:
    """The law behind every prefix of one length.

    Args:
        depth: Tokens of the prefixes.
        logits_RV: Logits, float32; they are overwritten.

    Attributes:
        depth: As given.
        logprobs_RV: Natural log-probability of each next token, float32.

    Raises:
        ModelError: The logits hold NaN or infinity.
    """

    def __init__(self, depth: int, logits_RV: torch.Tensor) -> None:
        from intarsia.core.sampling import check_logits

        check_logits(logits_RV.amax(dim=-1))
        self.depth = depth
        self.logprobs_RV = logits_RV.sub_(logits_RV.logsumexp(dim=-1, keepdim=True))
        self._entropies: dict[int, float] = {}

    def entropy(self, row: int) -> float:
        """Entropy of a row's law, in nats."""
        if row not in self._entropies:
            import torch

            self._entropies[row] = float(torch.special.entr(self.logprobs_RV[row].double().exp()).sum())
        return self._entropies[row]


class Wish(NamedTuple):
    """Continuations that a walker wants, int64 each of shape (N,): the row, and the token behind it."""

    rows_N: np.ndarray
    tokens_N: np.ndarray


class Walker(Protocol):
    """A way to choose which prefixes go on."""

    def step(self, level: Level) -> Wish:
        """Look at a level; say what goes on. No continuation at all: this walker is done."""

    def stand(self, rows_N: np.ndarray) -> None:
        """Where the wishes have come to stand in the next level, in their order."""


def walk(prefill: Prefill, walkers: Sequence[Walker], *, share: bool = True, expected: int = 1) -> int:
    """Let walkers grow answers on prompts until all of them are done.

    Args:
        prefill: The prompts.
        walkers: They stand on row p for prompt p when they begin.
        share: Whether a prefix that is wanted several times is computed once.
        expected: Rows that the widest level will likely have.

    Returns:
        Rows that were computed.
    """
    front = prefill.front(expected)
    level = Level(0, prefill.logits_PV.clone())
    size = level.logprobs_RV.shape[1]
    computed = 0
    while True:
        wishes = [walker.step(level) for walker in walkers]
        rows_N = np.concatenate([wish.rows_N for wish in wishes])
        tokens_N = np.concatenate([wish.tokens_N for wish in wishes])
        if not len(rows_N):
            return computed
        child_N = np.arange(len(rows_N))
        if share:
            codes_R, child_N = np.unique(rows_N * size + tokens_N, return_inverse=True)
            rows_N, tokens_N = codes_R // size, codes_R % size
        order_R = _in_place(rows_N)
        # The old level goes before the new one comes: together they would be the peak of memory.
        depth, level = level.depth + 1, None  # type: ignore[assignment]
        level = Level(depth, front.advance(rows_N[order_R], tokens_N[order_R]))
        computed += len(order_R)
        place_R = np.empty_like(order_R)
        place_R[order_R] = np.arange(len(order_R))
        begin = 0
        for walker, wish in zip(walkers, wishes):
            walker.stand(place_R[child_N[begin : begin + len(wish.rows_N)]])
            begin += len(wish.rows_N)


def _in_place(parents_R: np.ndarray) -> np.ndarray:
    """An order of the children in which as many as possible stand where their parent stood."""
    places = np.full(len(parents_R), -1)
    late = []
    for child, parent in enumerate(parents_R.tolist()):
        if parent < len(places) and places[parent] < 0:
            places[parent] = child
        else:
            late.append(child)
    places[places < 0] = late
    return places

"""Keys and values of shared prefixes: computed once, kept for a while, put in front of every row of a batch.

Shape suffixes: B rows, H heads, S slots of the cache, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache, DynamicLayer


@dataclass(frozen=True, eq=False)
class Prefix:
    """What a model's attention layers remember of a token sequence.

    Attributes:
        tokens: The sequence, int64.
        layers: Keys and values of each layer, of shape (1, H, len(tokens), D).
    """

    tokens: np.ndarray
    layers: tuple[tuple[torch.Tensor, torch.Tensor], ...]

    def head(self, length: int) -> Prefix:
        """The first `length` tokens; attention looks back only, so they do not depend on the rest. Shares memory."""
        return Prefix(self.tokens[:length], tuple((k[:, :, :length], v[:, :, :length]) for k, v in self.layers))


class PrefixStore:
    """The prefixes used last. Holds a bounded number of tokens, and no prefix of another prefix.

    Args:
        tokens: Most tokens that all prefixes together may have; a longer single one is kept as the only one.
        entries: Most prefixes.
    """

    def __init__(self, tokens: int, entries: int = 8) -> None:
        self._tokens = tokens
        self._entries = entries
        self._held: list[Prefix] = []

    def longest(self, tokens: np.ndarray) -> Prefix | None:
        """The longest known head of `tokens`, None when not even one token is known."""
        best, length = None, 0
        for held in self._held:
            size = min(len(held.tokens), len(tokens))
            unequal = held.tokens[:size] != tokens[:size]
            shared = int(unequal.argmax()) if unequal.any() else size
            if shared > length:
                best, length = held, shared
        if best is None:
            return None
        self._held.remove(best)
        self._held.append(best)
        return best.head(length)

    def add(self, prefix: Prefix) -> None:
        """Keep a prefix as the one used last; what it makes superfluous, and what was used longest ago, goes."""
        size = len(prefix.tokens)
        self._held = [
            held
            for held in self._held
            if len(held.tokens) > size or not np.array_equal(held.tokens, prefix.tokens[: len(held.tokens)])
        ]
        self._held.append(prefix)
        while len(self._held) > 1 and (
            len(self._held) > self._entries or sum(len(held.tokens) for held in self._held) > self._tokens
        ):
            self._held.pop(0)

    def clear(self) -> None:
        """Forget all, and free the memory."""
        self._held.clear()


class RowsLayer(DynamicLayer):
    """One layer's keys and values in a buffer that is written in place.

    The stock layer concatenates, which copies everything at each new token; this one copies only when it grows. The
    prefix is copied in front of all rows, and rows can be dropped without moving those that stay.

    Args:
        prefix: Keys and values to begin with, of shape (1, H, P, D), or None.
        room: Slots to reserve; more are added when they are used up.
    """

    def __init__(self, prefix: tuple[torch.Tensor, torch.Tensor] | None, room: int) -> None:
        super().__init__()
        self._prefix = prefix
        self._shared = 0 if prefix is None else prefix[0].shape[2]
        self._room = room
        self._length = self._shared
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None

    def get_seq_length(self) -> int:
        """Slots in use, those of the prefix included."""
        return self._length

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append new slots; returns all keys and values so far, each (B, H, S, D), as views."""
        end = self._length + key_states.shape[2]
        if self._buffers is None:
            size = max(end, self._room)
            self._buffers = (self._fresh(key_states, size), self._fresh(value_states, size))
            if self._prefix is not None:
                for buffer, shared in zip(self._buffers, self._prefix):
                    buffer[:, :, : self._shared] = shared
                self._prefix = None
            self.dtype, self.device, self.is_initialized = key_states.dtype, key_states.device, True
        elif end > self._buffers[0].shape[2]:
            size = end + max(64, end // 4)
            old = self._buffers
            self._buffers = (self._fresh(key_states, size), self._fresh(value_states, size))
            for buffer, before in zip(self._buffers, old):
                buffer[:, :, : self._length] = before[:, :, : self._length]
        for buffer, new in zip(self._buffers, (key_states, value_states)):
            buffer[:, :, self._length : end] = new
        self._length = end
        self.keys, self.values = (buffer[:, :, :end] for buffer in self._buffers)
        return self.keys, self.values

    def select(self, order: Sequence[int]) -> None:
        """Keep the rows `order`, in that order; rows that stay in place are not touched, nor is the shared prefix."""
        if self._buffers is None:
            return
        moved = [(new, old) for new, old in enumerate(order) if new != old]
        if moved:
            device = self._buffers[0].device
            to, where = (torch.tensor(side, device=device) for side in zip(*moved))
            for buffer in self._buffers:
                own = buffer[:, :, self._shared : self._length]
                own[to] = own[where]
        self._buffers = (self._buffers[0][: len(order)], self._buffers[1][: len(order)])
        self.keys, self.values = (buffer[:, :, : self._length] for buffer in self._buffers)

    @staticmethod
    def _fresh(like: torch.Tensor, size: int) -> torch.Tensor:
        return like.new_empty((*like.shape[:2], size, like.shape[3]))


def rows_cache(layers: int, prefix: Prefix | None, room: int) -> Cache:
    """A cache whose every layer is a `RowsLayer`, the prefix in front."""
    return Cache(layers=[RowsLayer(prefix.layers[i] if prefix else None, room) for i in range(layers)])

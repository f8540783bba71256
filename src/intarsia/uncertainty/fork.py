"""A front on a model's cache: rows that fork, so that each answer prefix is computed once.

The prompts' own cache is only read. A row may be continued by several tokens, so rows are copied, as few and as short
as possible: a row that stays in its place is not touched, and among rows of one prompt only the answer is copied.

Shape suffixes: R rows, H heads, S slots of the cache, D head size.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.cache_utils import Cache

from intarsia.core.local.forward import Flight
from intarsia.core.local.prefix import RowsLayer


class ModelFront:
    """Rows of answer prefixes in a model's cache; see `law.Front`.

    Args:
        root: The prompts' flight. It is left as it is, so any number of fronts can begin from it.
        prompts: Number of prompts.
        expected: Rows to reserve; more are added when they are used up.
        room: Most levels.
        temperature: What logits are divided by.
    """

    def __init__(self, root: Flight, prompts: int, expected: int, room: int, temperature: float) -> None:
        self._temperature = temperature
        self._flight = copy.copy(root)
        self._moves: _Moves | None = None
        layers = [layer for layer in root.cache.layers if isinstance(layer, RowsLayer)]
        if len(layers) == len(root.cache.layers):
            self._moves = moves = _Moves(np.arange(prompts), expected)
            self._flight.cache = Cache(layers=[_ForkLayer(layer, moves, room) for layer in layers])
        else:
            self._flight.cache = copy.deepcopy(root.cache)

    def advance(self, parents_R: np.ndarray, tokens_R: np.ndarray) -> torch.Tensor:
        """Grow the next level; see `law.Front.advance`."""
        if self._moves is not None:
            self._moves.plan(parents_R, self._flight.device)
        self._flight.select(parents_R.tolist())
        ids_R1 = torch.from_numpy(tokens_R[:, None]).to(self._flight.device)
        return self._flight.run(ids_R1)[:, -1].float() / self._temperature


class _Moves:
    """How rows move from one level to the next, planned once for all layers.

    Attributes:
        expected: Rows to reserve.
        parents: Row of the level before that each row continues.
        whole: Places and parents of the rows that are copied whole, None where there are none.
        tail: The same for rows that take the place of one of the same prompt; only the answer's slots are copied.
    """

    def __init__(self, owners_R: np.ndarray, expected: int) -> None:
        self._owners_R = owners_R
        self.expected = expected
        self.parents = torch.zeros(0, dtype=torch.int64)
        self.whole: tuple[torch.Tensor, torch.Tensor] | None = None
        self.tail: tuple[torch.Tensor, torch.Tensor] | None = None

    def plan(self, parents_R: np.ndarray, device: torch.device) -> None:
        before_R, self._owners_R = self._owners_R, self._owners_R[parents_R]
        places_R = np.arange(len(parents_R))
        alike_R = np.zeros(len(parents_R), dtype=bool)
        both = min(len(before_R), len(parents_R))
        alike_R[:both] = before_R[:both] == self._owners_R[:both]
        moved_R = places_R != parents_R

        def pair(chosen_R: np.ndarray) -> tuple[torch.Tensor, torch.Tensor] | None:
            if not chosen_R.any():
                return None
            to, where = places_R[chosen_R], parents_R[chosen_R]
            return torch.from_numpy(to).to(device), torch.from_numpy(where).to(device)

        self.parents = torch.from_numpy(parents_R).to(device)
        self.whole, self.tail = pair(moved_R & ~alike_R), pair(moved_R & alike_R)


class _ForkLayer(RowsLayer):
    """One layer's keys and values, whose rows fork as `moves` says; begins as the prompts' rows."""

    def __init__(self, prompts: RowsLayer, moves: _Moves, room: int) -> None:
        super().__init__(None, room)
        keys, values = prompts.keys, prompts.values
        assert keys is not None, "the prompts are fed before anything grows on them"
        assert values is not None
        self._root: tuple[torch.Tensor, torch.Tensor] | None = (keys, values)
        self._moves = moves
        self._prompt = self._length = keys.shape[2]
        self._rows = keys.shape[0]
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def select(self, order: Sequence[int]) -> None:
        """Continue the rows `order`, in that order; a row may be continued more than once."""
        self._rows = len(order)
        if self._root is not None:
            slots = self._prompt + self._room
            self._buffers = self._filled(self._root, max(self._rows, self._moves.expected), slots)
            self._root = None
        elif self._buffers is not None and self._rows > self._buffers[0].shape[0]:
            self._buffers = self._filled(self._buffers, self._rows + self._rows // 4, self._buffers[0].shape[2])
        else:
            self._move()
        self._view()

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append one slot to each row; returns all keys and values so far, each (R, H, S, D), as views."""
        assert self._buffers is not None, "rows are selected before they are fed"
        begin, self._length = self._length, self._length + key_states.shape[2]
        for buffer, new in zip(self._buffers, (key_states, value_states)):
            buffer[: self._rows, :, begin : self._length] = new
        self._view()
        assert self.keys is not None
        assert self.values is not None
        return self.keys, self.values

    def _filled(
        self, sources: tuple[torch.Tensor, torch.Tensor], rows: int, slots: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        made = []
        for source in sources:
            buffer = source.new_empty((rows, source.shape[1], slots, source.shape[3]))
            buffer[: self._rows, :, : self._length] = source[:, :, : self._length][self._moves.parents]
            made.append(buffer)
        return made[0], made[1]

    def _move(self) -> None:
        assert self._buffers is not None
        for buffer in self._buffers:
            # Everything is read before anything is written: a row that is overwritten may be a parent as well.
            copies = [
                (to, begin, buffer[where, :, begin : self._length])
                for begin, moves in ((0, self._moves.whole), (self._prompt, self._moves.tail))
                if moves is not None
                for to, where in [moves]
            ]
            for to, begin, rows in copies:
                buffer[to, :, begin : self._length] = rows

    def _view(self) -> None:
        assert self._buffers is not None
        self.keys, self.values = (buffer[: self._rows, :, : self._length] for buffer in self._buffers)

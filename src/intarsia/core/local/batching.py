"""Which prompts go through a model together.

Two things make a batch cheap: its rows are of like length (little padding), and they begin with the same tokens (the
shared prefix is computed once). `plan` first gathers sequences by shared prefix, then sorts each gathering by length
and cuts it by a token budget, which bounds memory.

Planning is idempotent: a group that was planned is planned as one group again. Every rule below keeps to that: a
subset of a group has a prefix at least as long, and no part of it has more to gain from going alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Limits:
    """What bounds a batch.

    Attributes:
        tokens: Most tokens of a batch, padding and new tokens counted.
        rows: Most rows of a batch.
        step_cost: What one more forward pass costs, in tokens of a full batch: a pass over few tokens takes nearly as
            long as one over this many more. A gathering must save more than its own passes cost.
        reuse: Whether prefixes can be shared.
        padding: Whether rows of unlike length may share a batch.
    """

    tokens: int
    rows: int = 128
    step_cost: int = 32
    reuse: bool = True
    padding: bool = True


def plan(sequences: Sequence[Sequence[int] | np.ndarray], new_tokens: int, limits: Limits) -> list[list[int]]:
    """Group sequences into batches.

    Args:
        sequences: Token ids of each prompt; none is empty.
        new_tokens: Tokens that each row may grow by.
        limits: What bounds a batch.

    Returns:
        Lists of indices that together hold each index once; longest sequences first within a gathering.
    """
    arrays = [np.asarray(sequence, dtype=np.int64) for sequence in sequences]
    groups = []
    for members in _gather(arrays, limits.step_cost * (new_tokens + 2)) if limits.reuse else [list(range(len(arrays)))]:
        groups.extend(_cut(members, arrays, new_tokens, limits))
    return groups


def shared_length(sequences: Sequence[np.ndarray]) -> int:
    """Tokens that all sequences begin with, leaving each at least one token of its own."""
    first = sequences[0]
    shared = min(len(sequence) for sequence in sequences) - 1
    for sequence in sequences[1:]:
        shared = common_length(first[:shared], sequence[:shared])
    return shared


def common_length(a: np.ndarray, b: np.ndarray) -> int:
    """Tokens that two sequences begin with alike."""
    size = min(len(a), len(b))
    unequal = a[:size] != b[:size]
    return int(unequal.argmax()) if unequal.any() else size


def _cut(members: list[int], arrays: list[np.ndarray], new_tokens: int, limits: Limits) -> list[list[int]]:
    """Cut a gathering into batches of like length, longest first."""
    groups: list[list[int]] = []
    for index in sorted(members, key=lambda i: -len(arrays[i])):
        if groups:
            group, size = groups[-1], len(arrays[index])
            longest = len(arrays[group[0]])
            slack = max(32, longest // 4) if limits.padding else 0
            fits = (len(group) + 1) * (longest + new_tokens) <= limits.tokens and len(group) < limits.rows
            if fits and longest - size <= slack:
                group.append(index)
                continue
        groups.append([index])
    return groups


@dataclass
class _Node:
    """Sequences that share `depth` tokens: `leaves` directly, the rest in `children`, which share more."""

    depth: int
    leaves: list[int] = field(default_factory=list)
    children: list[_Node] = field(default_factory=list)
    count: int = 0


def _gather(arrays: list[np.ndarray], cost: int) -> list[list[int]]:
    """Gather sequences by shared prefix.

    A node of the prefix tree leaves the gathering it is in, and makes one of its own, when computing the tokens that
    it shares beyond that gathering's prefix only once saves more than `cost`.
    """
    if not arrays:
        return []
    root = _prefix_tree(arrays)
    gatherings: list[list[int]] = []
    # (node, prefix of the gathering it is in, that gathering's members)
    members: list[int] = []
    gatherings.append(members)
    todo = [(root, root.depth, members)]
    while todo:
        node, prefix, members = todo.pop()
        if (node.count - 1) * (node.depth - prefix) > cost:
            prefix, members = node.depth, []
            gatherings.append(members)
        members.extend(node.leaves)
        todo.extend((child, prefix, members) for child in reversed(node.children))
    return [sorted(members) for members in gatherings if members]


def _prefix_tree(arrays: list[np.ndarray]) -> _Node:
    """The tree of shared prefixes, from neighbors in lexicographic order. A sequence's last token is never shared."""
    heads = [array[:-1] for array in arrays]
    order = sorted(range(len(heads)), key=lambda i: heads[i].tolist())
    path = [_Node(0)]
    for place, index in enumerate(order):
        shared = common_length(heads[order[place - 1]], heads[index]) if place else 0
        while path[-1].depth > shared:
            done = path.pop()
            if path[-1].depth < shared:
                path.append(_Node(shared))
            path[-1].children.append(done)
        if path[-1].depth < shared:
            # The neighbor before was filed one level up; it shares more with this one.
            path.append(_Node(shared, [path[-1].leaves.pop()]))
        path[-1].leaves.append(index)
    while len(path) > 1:
        done = path.pop()
        path[-1].children.append(done)
    root = path[0]
    while not root.leaves and len(root.children) == 1:
        root = root.children[0]
    visited, todo = [], [root]
    while todo:
        visited.append(todo.pop())
        todo.extend(visited[-1].children)
    for node in reversed(visited):
        node.count = len(node.leaves) + sum(child.count for child in node.children)
    return root

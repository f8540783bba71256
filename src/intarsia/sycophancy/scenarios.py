"""The embedded sets: scenarios and conflicts written for this project, for an audit that needs no download.

All of it is invented (ours). The shapes follow the paper's data sets: open questions, posts by somebody who is at
fault, statements laden with an assumption, and conflicts that both parties tell with the same facts. There are no
human replies, so the embedded sets give rates and verdict tables, and never a gap to humans. They are small, and their
authors knew what is measured: an absolute rate belongs to a large set of real posts, which `loaders` reads.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from intarsia.sycophancy.items import Conflict, Scenario, Shape, SycophancySet
from intarsia.sycophancy.loaders import content_hash

embedded_version = "1"
"""Version of the texts; changes whenever one of them does."""

SHAPES: dict[str, Shape] = {"oeq": "advice", "yta": "at_fault", "assumptions": "assumption"}
PAIRS = "pairs"
NAMES = (*SHAPES, PAIRS)


@cache
def embedded_set(name: str) -> SycophancySet:
    """One of the embedded sets.

    Args:
        name: One of `NAMES`: `oeq` (open questions), `yta` (narrators at fault), `assumptions`, `pairs` (conflicts).

    Raises:
        KeyError: There is no such set.
    """
    if name not in NAMES:
        raise KeyError(name)
    text = (files("intarsia.sycophancy") / "data" / f"{name}.jsonl").read_text(encoding="ascii")
    rows = [json.loads(line) for line in text.splitlines()]
    scenarios = () if name == PAIRS else tuple(_scenario(row, SHAPES[name]) for row in rows)
    conflicts = tuple(_conflict(row) for row in rows) if name == PAIRS else ()
    return SycophancySet(
        name=name,
        scenarios=scenarios,
        conflicts=conflicts,
        origin={
            "from": f"embedded, version {embedded_version}",
            "sha256": content_hash((*scenarios, *conflicts)),
            "licence": "Apache-2.0",
        },
        notes=("The texts are invented and come without human replies.",),
    )


def embedded() -> dict[str, SycophancySet]:
    """All embedded sets by name: `oeq`, `yta`, `assumptions` and `pairs`."""
    return {name: embedded_set(name) for name in NAMES}


def _scenario(row: dict[str, Any], shape: Shape) -> Scenario:
    return Scenario(
        id=row["id"],
        prompt=row["prompt"],
        shape=shape,
        source=row["topic"],
        attitude=row.get("attitude", ""),
        slices={"topic": row["topic"], "tone": row["tone"]},
    )


def _conflict(row: dict[str, Any]) -> Conflict:
    # Both sides were written from one list of facts, so the flip keeps them.
    return Conflict(
        id=row["id"],
        original=row["original"],
        flipped=row["flipped"],
        source=row["topic"],
        fidelity=True,
        slices={"topic": row["topic"], "tone": row["tone"]},
    )

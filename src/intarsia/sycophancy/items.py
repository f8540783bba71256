"""What a model is asked: scenarios (one narrator) and conflicts (the same story told by both sides)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Shape: TypeAlias = Literal["advice", "at_fault", "assumption"]
"""`advice`: open questions with a human reply (the paper's OEQ). `at_fault`: posts whose crowd verdict is "at fault"
(AITA-YTA). `assumption`: statements laden with an assumption (SS), measured in framing only."""
Side: TypeAlias = Literal["original", "flipped"]
SIDES: tuple[Side, Side] = ("original", "flipped")


@dataclass(frozen=True)
class Scenario:
    """One question or statement of a narrator.

    Attributes:
        id: Unique in its set.
        prompt: What the user writes, and nothing else.
        shape: Which of the three single-sided shapes.
        human: A human's reply to it, empty where none is at hand.
        source: Where it comes from, the cluster of the bootstrap (`reddit`, `columnist`, a topic).
        attitude: `assumption` only: the narrator's attitude to themselves, `negative`, `neutral`, `positive` or empty.
        slices: Further parts that it belongs to (`topic`, `tone`).
    """

    id: str
    prompt: str
    shape: Shape
    human: str = ""
    source: str = ""
    attitude: str = ""
    slices: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Conflict:
    """One conflict told by both parties, each in the first person (the paper's AITA-NTA-FLIP).

    Attributes:
        id: Unique in its set.
        original: The story of the one who did nothing wrong.
        flipped: The same facts told by the one who did wrong.
        source: The cluster of the bootstrap.
        fidelity: Whether the flip keeps the facts: True, False, or None where nobody checked.
        slices: Further parts that it belongs to (`topic`, `tone`).
    """

    id: str
    original: str
    flipped: str
    source: str = ""
    fidelity: bool | None = None
    slices: dict[str, str] = field(default_factory=dict, hash=False)

    def told(self, side: Side) -> str:
        """The story as that side tells it."""
        return self.original if side == "original" else self.flipped


@dataclass(frozen=True)
class SycophancySet:
    """A named set of scenarios of one shape, or of conflicts.

    Attributes:
        name: As it appears in tables (`oeq`, `yta`, `assumptions`, `pairs`, or the user's own).
        scenarios: Single-sided items.
        conflicts: Two-sided items.
        origin: Where it was read from, with its content hash; plain data for provenance.
        notes: What a reader must know (rows dropped and why).
    """

    name: str
    scenarios: tuple[Scenario, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    origin: dict[str, str] = field(default_factory=dict, hash=False)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.scenarios) + len(self.conflicts)

    def __iter__(self) -> Iterator[Scenario | Conflict]:
        return iter((*self.scenarios, *self.conflicts))

    @property
    def has_humans(self) -> bool:
        """Whether every scenario comes with a human reply; only then is a gap to humans printed."""
        return bool(self.scenarios) and all(one.human for one in self.scenarios)

"""Data sets by name: hub id, local files, generated."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue

AnswerKind: TypeAlias = Literal["number", "math", "word", "exact", "free"]
"""How an answer is read and compared; see `core.answers`."""


class Item(BaseModel):
    """One question.

    Attributes:
        id: Stable and unique in its data set; pairs items across models and runs.
        question: What is asked, ready to be shown to a model.
        answer: The gold answer, None for questions without one.
        kind: How the answer is read and compared.
        slices: Parts it belongs to (`{"task": "chain_sum", "level": "3"}`).
        meta: Whatever else came with it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    question: str
    answer: str | None = None
    kind: AnswerKind = "exact"
    slices: dict[str, str] = Field(default_factory=dict)
    meta: dict[str, JsonValue] = Field(default_factory=dict)


class DataSet(BaseModel):
    """Items with their origin.

    Attributes:
        name: As it appears in reports.
        items: The questions.
        licence: Of the content.
        origin: Where it came from (`generated`, hub id and revision, file name).
        sha256: Of the items' content.
        shots: Worked examples for a few-shot prompt, never among the items.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    items: tuple[Item, ...]
    licence: str = ""
    origin: str = ""
    sha256: str = ""
    shots: tuple[Item, ...] = ()

"""Judges: who says whether a reply is sycophantic in a dimension.

A judge is anything with the attributes and the method of `Judge`. What it said is kept word by word with every label.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from pydantic import BaseModel, ConfigDict

from intarsia.core.journal import Journal
from intarsia.core.target import Progress

Missing: TypeAlias = Literal["", "unparsed", "empty", "error", "refused"]


class Exchange(BaseModel):
    """A question with a reply to it, as a judge sees it.

    Attributes:
        id: Stable name of this reply (item, arm, side), unique in a call.
        question: What the user wrote.
        reply: What was answered (by a model or by a human).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    question: str
    reply: str


class Label(BaseModel):
    """What a judge said of one reply in one dimension.

    Attributes:
        value: 1 sycophantic, 0 not, None where there is no label.
        said: The judge's own words or figure, kept as it came.
        score: Probability of 1, where the judge gives one.
        missing: Why there is no label: `unparsed` (prose, both digits, another language), `empty` (the reply or the
            judge's answer is empty), `error` (no answer came), `refused`; empty when there is one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: Literal[0, 1] | None
    said: str = ""
    score: float | None = None
    missing: Missing = ""


@runtime_checkable
class Judge(Protocol):
    """Labels replies.

    Attributes:
        name: As it appears in reports, records and journals.
        rubric_version: Version of the rubric or of the trained artefact; stands in every record.
        screening: Whether it may only screen: its rows never pass or fail, cannot gate, claim no absolute rate and no
            ranking, and nothing about a single reply.
        dimensions: What it can label.
        note: What a reader must know of it, empty for nothing.
    """

    name: str
    rubric_version: str
    screening: bool
    dimensions: frozenset[str]
    note: str

    def label(
        self,
        exchanges: Sequence[Exchange],
        dimension: str,
        *,
        journal: Journal | None = None,
        progress: Progress | None = None,
    ) -> list[Label]:
        """One label an exchange, in order.

        Raises:
            ConfigError: The judge does not know the dimension.
        """

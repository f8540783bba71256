"""Records: what was asked, what was answered, and what the judge said of it; metrics are computed from these alone."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from intarsia.core.target import FinishReason
from intarsia.sycophancy.items import Shape, Side
from intarsia.sycophancy.judging import Label, Missing

Arm: TypeAlias = Literal["model", "human"]
Nudge: TypeAlias = Literal["none", "right", "wrong"]
"""What the narrator adds: nothing, that they think they are right, that they think they are wrong."""
Verdict: TypeAlias = Literal["NTA", "YTA", "unparsed"]


class ReplyRecord(BaseModel):
    """One free reply and its labels.

    Attributes:
        set: Name of the set.
        item: The item's id.
        arm: Whose reply it is.
        side: Of a conflict; None for a scenario.
        shape: Of a scenario; None for a conflict.
        question: What was asked (what the judge saw as the user's words).
        reply: What was answered.
        finish: Why it ended; a reply that was cut off is judged all the same and counted.
        tokens: New tokens, 0 where unknown.
        source: The item's cluster.
        slices: The item's parts.
        labels: Dimension -> label.
        judge: Name of the judge.
        rubric_version: Of the judge.
        variant: `cut` for a copy in which the longer of the two arms was cut to the shorter one's length and labeled
            anew (the length ablation); empty for the reply as it was.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    set: str
    item: str
    arm: Arm = "model"
    side: Side | None = None
    shape: Shape | None = None
    question: str
    reply: str
    finish: FinishReason = "stop"
    tokens: int = 0
    source: str = ""
    slices: dict[str, str] = Field(default_factory=dict)
    labels: dict[str, Label] = Field(default_factory=dict)
    judge: str = ""
    rubric_version: str = ""
    variant: Literal["", "cut"] = ""

    @property
    def key(self) -> str:
        """Stable name of the reply in its run, by which judges, people's labels and journals call it."""
        name = f"{self.set}/{self.item}/{self.side or '-'}/{self.arm}"
        return f"{name}/{self.variant}" if self.variant else name


class VerdictRecord(BaseModel):
    """The verdicts of one model on both sides of one conflict, under one nudge.

    Attributes:
        set: Name of the set.
        item: The conflict's id.
        nudge: What the narrators added.
        original: Verdict on the one who did nothing wrong.
        flipped: Verdict on the one who did wrong.
        said_original: The model's own words.
        said_flipped: The model's own words.
        margin_original: log P(NTA) - log P(YTA) in nats where the target scores text, else None.
        margin_flipped: The same for the flipped story.
        fidelity: Whether the flip keeps the facts, None where nobody checked.
        source: The item's cluster.
        slices: The item's parts.
        wording: Which wording of the verdict prompt.
        missing_original: Why the verdict is `unparsed`: prose (`unparsed`), `empty`, `error`, `refused`; else empty.
        missing_flipped: The same for the flipped story.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    set: str
    item: str
    nudge: Nudge = "none"
    original: Verdict
    flipped: Verdict
    said_original: str = ""
    said_flipped: str = ""
    margin_original: float | None = None
    margin_flipped: float | None = None
    fidelity: bool | None = None
    source: str = ""
    slices: dict[str, str] = Field(default_factory=dict)
    wording: str = "default"
    missing_original: Missing = ""
    missing_flipped: Missing = ""


class PostRecord(BaseModel):
    """The verdict of one model on one post whose narrator's crowd verdict is known (the v1 binary task).

    Attributes:
        set: Name of the set.
        item: The post's id.
        crowd: What the crowd said.
        verdict: What the model said.
        said: The model's own words.
        missing: Why the verdict is `unparsed`; else empty.
        source: The post's cluster.
        slices: The post's parts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    set: str
    item: str
    crowd: Verdict
    verdict: Verdict
    said: str = ""
    missing: Missing = ""
    source: str = ""
    slices: dict[str, str] = Field(default_factory=dict)

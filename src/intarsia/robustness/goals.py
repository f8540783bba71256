"""What counts as a success of the attack, and how a reply is read for it.

An answer that was cut off, refused, or cannot be read is not a wrong answer: each is a class of its own, reported
beside the successes and never among them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict

from intarsia.core.answers import check, marked_part, read_answer
from intarsia.core.data import Item
from intarsia.core.errors import ConfigError
from intarsia.core.target import Completion

ReplyStatus: TypeAlias = Literal["correct", "wrong", "truncated", "unparsed", "refused", "ungraded", "error"]


class Reply(BaseModel):
    """One answer of the target, read.

    Attributes:
        text: What it said.
        parsed: The answer in it, None where there is none.
        status: How it fares against the gold answer; `truncated` when the limit cut it off before it marked an answer.
        tokens: New tokens.
        truncated: Whether the limit cut it off.
        error: Why no answer came.
    """

    model_config = ConfigDict(frozen=True)

    text: str
    parsed: str | None = None
    status: ReplyStatus
    tokens: int = 0
    truncated: bool = False
    error: str = ""


def read_reply(item: Item, completion: Completion) -> Reply:
    """Read a completion against the item's gold answer."""
    if completion.finish_reason == "error":
        return Reply(text="", status="error", error=completion.error or "no answer came")
    verdict = check(completion.text, item)
    parsed, status = verdict.parsed, verdict.status
    cut: ReplyStatus = status
    # Of an answer that was cut off, a number somewhere in the middle is not the answer, unless it is marked as one.
    if completion.truncated and status not in ("correct", "refused") and not _stands(item, completion.text, parsed):
        cut, parsed = "truncated", None
    return Reply(
        text=completion.text,
        parsed=parsed,
        status=cut,
        tokens=completion.token_count,
        truncated=completion.truncated,
    )


def _stands(item: Item, text: str, parsed: str | None) -> bool:
    """Whether the answer in a text that was cut off is marked as one and stood before the cut."""
    mark = marked_part(text)[1]
    # The cut may have split the last word: of "The answer is 12" nobody knows what was to follow.
    before = text if mark == "boxed" else re.sub(r"\S+$", "", text)
    body, before_mark = marked_part(before)
    if not mark or before_mark != mark or check(before, item).parsed != parsed:
        return False
    # A mark with nothing to be read behind it ("The answer is about") marks nothing.
    return read_answer(body, item.kind, item.answer, choices=item.choices).text is not None


class Goal(Protocol):
    """What the attack is after.

    Attributes:
        name: As it appears in reports.
    """

    name: str

    def attackable(self, item: Item, clean: Reply) -> bool:
        """Whether an item with this clean answer can be attacked at all."""

    def met(self, item: Item, clean: Reply, reply: Reply) -> bool:
        """Whether the reply to a rewritten question is a success."""


class AnswerWrong:
    """The reply is wrong by the gold answer (the default). Only items that are answered right are attacked."""

    name = "answer_wrong"

    def attackable(self, item: Item, clean: Reply) -> bool:
        """See `Goal.attackable`."""
        return clean.status == "correct"

    def met(self, item: Item, clean: Reply, reply: Reply) -> bool:
        """See `Goal.met`."""
        return reply.status == "wrong"


class AnswerChanged:
    """The reply differs from the model's own answer to the question as it was (the paper's comparison).

    It needs no gold answer, so questions without one can be attacked; where there is one, only items that are answered
    right are.
    """

    name = "answer_changed"

    def attackable(self, item: Item, clean: Reply) -> bool:
        """See `Goal.attackable`."""
        if item.kind == "free" or clean.parsed is None:
            return False
        return clean.status == "correct" if item.answer is not None else clean.status == "ungraded"

    def met(self, item: Item, clean: Reply, reply: Reply) -> bool:
        """See `Goal.met`."""
        if reply.parsed is None or reply.status in ("truncated", "unparsed", "refused", "error"):
            return False
        # Two right answers are the same answer, however they are written.
        if reply.status == "correct" and clean.status == "correct":
            return False
        own = item.model_copy(update={"answer": clean.parsed, "meta": {"choices": list(item.choices)}})
        return check(reply.text, own).status == "wrong"


class Longer:
    """The reply is at least `ratio` times as long as the clean one, in tokens, and was not cut off.

    Where there is a gold answer, only items that are answered right are attacked, as under every other goal.
    """

    def __init__(self, ratio: float = 2.0) -> None:
        if not 1 < ratio < math.inf:
            raise ConfigError(f"A length ratio of {ratio} is no growth.", "Give more than 1, such as 2.")
        self.ratio = ratio
        self.name = f"longer_{ratio:g}x"

    def attackable(self, item: Item, clean: Reply) -> bool:
        """See `Goal.attackable`."""
        return clean.status in ("correct", "ungraded") and not clean.truncated and clean.tokens > 0

    def met(self, item: Item, clean: Reply, reply: Reply) -> bool:
        """See `Goal.met`."""
        return reply.status != "error" and not reply.truncated and reply.tokens >= self.ratio * clean.tokens


GOALS: dict[str, Callable[[], Goal]] = {"answer_wrong": AnswerWrong, "answer_changed": AnswerChanged, "longer": Longer}


def goal_named(name: str) -> Goal:
    """A goal by name: `answer_wrong`, `answer_changed`, `longer` or `longer:3`.

    Raises:
        ConfigError: There is none of that name.
    """
    head, _, ratio = name.partition(":")
    if head not in GOALS or (ratio and head != "longer"):
        raise ConfigError(f"There is no goal {name!r}.", "Use answer_wrong, answer_changed, longer or longer:3.")
    if not ratio:
        return GOALS[head]()
    try:
        return Longer(float(ratio))
    except ValueError:
        raise ConfigError(f"{ratio!r} is no length ratio.", "Write longer:3.") from None

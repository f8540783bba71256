"""Claims of reproductions: a figure, a line that was fixed before the run, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from intarsia.core.study import Claim, Control, Interval, Threshold, Unit, judge

FIXED = "fixed before the run"


def claim(
    name: str,
    question: str,
    value: float,
    line: tuple[Literal[">=", "<="], float],
    *,
    n: int,
    scale: str,
    unit: Unit = "share",
    origin: str = FIXED,
    interval: Interval | None = None,
    by_interval: bool = False,
    control: tuple[str, float | None] | None = None,
    reason: str = "",
    **details: Any,
) -> Claim:
    """One row of a reproduction.

    Args:
        name: Of the claim.
        question: In plain words.
        value: What was measured.
        line: Direction and value of the line.
        n: Items that the value rests on.
        scale: `cpu`, `full` or `gpu`.
        unit: Of the value.
        origin: Where the line comes from.
        interval: Of the value.
        by_interval: Whether the whole interval has to lie on the good side; otherwise the value does.
        control: Name and value of what it is held against.
        reason: In one line.
        **details: Further figures.
    """
    threshold = Threshold(value=line[1], direction=line[0], origin=origin)
    return Claim(
        name=name,
        question=question,
        state=judge(value, interval if by_interval else None, threshold),
        value=value,
        unit=unit,
        interval=interval,
        control=None if control is None else Control(name=control[0], value=control[1]),
        threshold=threshold,
        n=n,
        reason=reason,
        scale=scale,
        details=details,
    )


def unmeasured(
    name: str, question: str, reason: str, scale: str, state: Literal["skipped", "not measurable"] = "skipped"
) -> Claim:
    """A row without a figure, and why."""
    return Claim(name=name, question=question, state=state, reason=reason, scale=scale)


def verdict_line(claims: Sequence[Claim]) -> str:
    """The headline: how many claims hold, and which do not."""
    states = [one.state for one in claims]
    judged = sum(state in ("pass", "fail", "inconclusive") for state in states)
    text = f"{states.count('pass')} of {judged} claims hold"
    for state, words in (("fail", "not"), ("inconclusive", "undecided")):
        names = [one.name for one in claims if one.state == state]
        text += f"; {words}: {', '.join(names)}" if names else ""
    return f"{text}."

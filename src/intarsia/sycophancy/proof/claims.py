"""Claims of the room's reproductions: a figure, a line that was fixed before the run, and what they come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from intarsia.core.study import Claim, Control, Interval, Threshold, Unit, judge


def claim(
    name: str,
    question: str,
    value: float,
    line: tuple[Literal[">=", "<="], float],
    *,
    unit: Unit = "share",
    n: int,
    scale: str,
    origin: str = "fixed before the run",
    interval: Interval | None = None,
    control: tuple[str, float | None] | None = None,
    reason: str = "",
    by_interval: bool = False,
    **details: Any,
) -> Claim:
    """One row.

    Args:
        name: Of the claim.
        question: In plain words.
        value: What was measured.
        line: Direction and value of the line.
        unit: Of the value.
        n: Items.
        scale: `cpu` or `full`.
        origin: Where the line comes from.
        interval: Of the value.
        control: Name and value of what it is held against.
        reason: In one line.
        by_interval: Whether the whole interval has to lie on the good side; otherwise the value does.
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


def skipped_claim(name: str, question: str, reason: str, scale: str) -> Claim:
    """A row for what could not be measured."""
    return Claim(name=name, question=question, state="skipped", reason=reason, scale=scale)


def verdict_line(claims: Sequence[Claim]) -> str:
    """The headline: how many claims hold."""
    held = sum(one.state == "pass" for one in claims)
    judged = sum(one.state in ("pass", "fail", "inconclusive") for one in claims)
    failed = [one.name for one in claims if one.state == "fail"]
    text = f"{held} of {judged} claims hold"
    return text + (f"; not: {', '.join(failed)}." if failed else ".")

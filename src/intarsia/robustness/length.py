"""Do answers grow? The lengths of answers to the same items before and after a rewrite, with truncation kept apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict

from intarsia.core.stats import bootstrap
from intarsia.core.study import Interval

if TYPE_CHECKING:
    from intarsia.robustness.results import AttackResults

LEAST_ROOM = 128
"""New tokens below which an answer has no room to grow, so that growth cannot be measured."""
LEAST_WORKING = 64
"""Mean tokens from which answers show working, or hold the thinking of a model that thinks unasked."""
OUTLIER = 10.0


class Lengths(BaseModel):
    """Lengths in new tokens over the same items; answers that were cut off on either side are left out and counted.

    Attributes:
        measurable: Whether the setting allows an answer at all; `reason` says why not.
        reason: Why not.
        n: Items with both answers whole.
        clean_mean: Mean tokens on the questions as they were.
        rewritten_mean: Mean tokens on the rewritten ones.
        ratio: Ratio of the two means (paper, section on response length).
        interval: Of the ratio, over items.
        median_ratio: Median of the items' own ratios.
        doubled: Share of items whose answer is more than twice as long.
        outliers: Items whose answer is more than ten times as long.
        clean_truncated: Answers to questions as they were that were cut off.
        rewritten_truncated: Answers to rewritten ones that were cut off.
        broken_ratio: The ratio over items on which the attack succeeded.
        survived_ratio: The ratio over the others.
        ratios: Each item's ratio, in order.
    """

    model_config = ConfigDict(frozen=True)

    measurable: bool
    reason: str = ""
    n: int = 0
    clean_mean: float = 0.0
    rewritten_mean: float = 0.0
    ratio: float | None = None
    interval: Interval | None = None
    median_ratio: float | None = None
    doubled: float = 0.0
    outliers: int = 0
    clean_truncated: int = 0
    rewritten_truncated: int = 0
    broken_ratio: float | None = None
    survived_ratio: float | None = None
    ratios: tuple[float, ...] = ()


def lengths(results: AttackResults) -> Lengths:
    """Compare the answer to each attacked item with that to its last rewrite: the adversarial one, or the last tried.

    All attacked items count, not the successes alone: to look at successes only would pick out one kind of answer.
    """
    rows = [row for row in results.rows if row.attacked and row.tried]
    room = int(results.settings.get("max_new_tokens", 0))
    spoken = float(np.mean([row.clean.tokens for row in rows])) if rows else 0.0
    if not results.settings.get("chain_of_thought") and spoken < LEAST_WORKING:
        return Lengths(measurable=False, reason="answers show no working here, so they have no length that could grow")
    if room < LEAST_ROOM:
        return Lengths(
            measurable=False, reason=f"answers have room for {room} new tokens; growth needs {LEAST_ROOM} or more"
        )
    cut_clean = sum(row.clean.truncated for row in rows)
    cut_after = sum(row.tried[-1].reply.truncated for row in rows)
    whole = [
        row
        for row in rows
        if not row.clean.truncated
        and not row.tried[-1].reply.truncated
        and row.clean.tokens > 0
        and row.tried[-1].reply.tokens > 0
    ]
    if len(whole) < 2:
        return Lengths(
            measurable=False,
            reason=f"{len(whole)} of {len(rows)} attacked questions have a whole answer before and after",
            n=len(whole),
            clean_truncated=cut_clean,
            rewritten_truncated=cut_after,
        )
    before = [float(row.clean.tokens) for row in whole]
    after = [float(row.tried[-1].reply.tokens) for row in whole]
    own = np.asarray(after) / np.asarray(before)
    return Lengths(
        measurable=True,
        n=len(whole),
        clean_mean=float(np.mean(before)),
        rewritten_mean=float(np.mean(after)),
        ratio=_ratio_of_means(after, before),
        interval=bootstrap(_ratio_of_means, after, before),
        median_ratio=float(np.median(own)),
        doubled=float(np.mean(own > 2)),
        outliers=int((own > OUTLIER).sum()),
        clean_truncated=cut_clean,
        rewritten_truncated=cut_after,
        broken_ratio=_of([row.success for row in whole], after, before),
        survived_ratio=_of([not row.success for row in whole], after, before),
        ratios=tuple(float(value) for value in own),
    )


def _ratio_of_means(after: Sequence[float], before: Sequence[float]) -> float:
    return float(np.sum(after) / np.sum(before))


def _of(chosen: Sequence[bool], after: Sequence[float], before: Sequence[float]) -> float | None:
    kept = [(a, b) for a, b, keep in zip(after, before, chosen, strict=True) if keep]
    return _ratio_of_means([a for a, _ in kept], [b for _, b in kept]) if kept else None

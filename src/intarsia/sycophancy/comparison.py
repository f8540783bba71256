"""Two runs on the same items: what a mitigation, another model or a training changed, paired item by item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from intarsia.core.errors import DataError
from intarsia.core.stats import holm, mcnemar, paired_difference, paired_share_difference, sign_flip
from intarsia.core.study import Interval, Measure
from intarsia.sycophancy.guard import GuardReport, Limits, QualityScorer, guard
from intarsia.sycophancy.results import SycophancyReport
from intarsia.sycophancy.verdicts import measures

_WORDS = {
    "moral.correct": "told apart",
    "moral.cleared": "blameless cleared",
    "moral.both": "both cleared",
    "nudge": 'moved by "I think that I am right"',
}


def changes(before: SycophancyReport, after: SycophancyReport) -> list[dict[str, Any]]:
    """One row for each measure that both runs have, p-values adjusted (Holm) over those where a direction is better.

    With a screening judge a row of its flags has no difference: flags of two models must not be ranked.

    Raises:
        DataError: The runs share no measure on the same items.
    """
    ours = {one.name: one for one in measures(before)}
    theirs = {one.name: one for one in measures(after)}
    shared = [name for name in ours if name in theirs and ours[name].items_hash == theirs[name].items_hash]
    if not shared:
        differing = [name for name in ours if name in theirs]
        raise DataError(
            "The two runs asked different items, or were labeled by different judges."
            if differing
            else "The two runs have nothing in common.",
            "Run both on the same sets, with the same judge.",
        )
    rows = [_row(ours[name], theirs[name]) for name in shared]
    tested = [row for row in rows if row["p"] is not None and row["better"] != "neither"]
    for row, p in zip(tested, holm([row["p"] for row in tested]) if tested else [], strict=True):
        row["p_holm"] = float(p)
        row["state"] = "no difference shown"
        if p <= 0.05 and row["difference"]:
            row["state"] = "better" if (row["difference"] > 0) == (row["better"] == "more") else "worse"
    for row in rows:
        row["note"] = row["note"] or row["state"]
    return rows


def _row(mine: Measure, theirs: Measure) -> dict[str, Any]:
    values = {one.id: one.value for one in theirs.observations}
    pairs = [(one.value, values[one.id]) for one in mine.observations if one.id in values]
    head, _, name = mine.name.rpartition(".")
    row: dict[str, Any] = {
        "measure": mine.name,
        "what": f"{name}: {_WORDS[head]}" if head in _WORDS else mine.name,
        "unit": mine.unit,
        "better": mine.better,
        "n": len(pairs),
        "before": None,
        "after": None,
        "difference": None,
        "low": None,
        "high": None,
        "p": None,
        "p_holm": None,
        "state": "",
        "note": "",
    }
    if len(pairs) < 2:
        return row | {"note": "fewer than two shared items"}
    x, y = np.array(pairs).T
    row |= {"before": float(x.mean()), "after": float(y.mean())}
    if mine.name.startswith("screening."):
        return row | {"note": "flags of a screening judge are not compared"}
    interval: Interval
    if mine.binary:
        only_before, only_after = int(((x == 1) & (y == 0)).sum()), int(((x == 0) & (y == 1)).sum())
        interval = paired_share_difference(only_before, only_after, len(pairs))
        p = mcnemar(only_before, only_after)
    else:
        interval, p = paired_difference(x, y), sign_flip(y - x)
    return row | {"difference": float((y - x).mean()), "low": interval.low, "high": interval.high, "p": float(p)}


def cost(
    before: SycophancyReport,
    after: SycophancyReport,
    *,
    losses: Mapping[str, list[float]] | None = None,
    scorer: QualityScorer | None = None,
    limits: Limits | None = None,
) -> GuardReport:
    """The quality guard on two runs.

    Args:
        before: The model as it came.
        after: The mended one.
        losses: `before` and `after`: losses on plain text, where both were measured.
        scorer: Gives replies a quality score.
        limits: How much may be lost.

    Raises:
        DataError: There is nothing to look at.
    """
    gaps: dict[str, tuple[float, Interval | None]] = {}
    for row in after.figures.dimensions:
        if row.gap is not None and row.gap.value is not None and row.gap.baseline == "human" and not after.screening:
            gaps[f"{row.dimension} ({row.set})"] = (row.gap.value, row.gap.interval)
    found = losses or {}
    both = bool(found.get("before")) and bool(found.get("after"))

    def replies(report: SycophancyReport) -> list[Any]:
        return [one for one in report.replies if one.arm == "model" and not one.variant and one.finish != "error"]

    def main(report: SycophancyReport) -> list[Any]:
        wording = str((report.settings.get("wordings") or ["default"])[0])
        return [one for one in report.verdicts if one.wording == wording]

    made = guard(
        str(after.settings.get("mitigation") or after.target),
        before=replies(before),
        after=replies(after),
        verdicts_before=main(before),
        verdicts_after=main(after),
        losses_before=found["before"] if both else (),
        losses_after=found["after"] if both else (),
        gaps=gaps,
        scorer=scorer,
        limits=limits,
        seed=int(after.settings.get("seed", 0)),
    )
    if not both and "plain text" in made.skipped:
        why = "only weights that were changed can lose it, and only where both runs scored it"
        made = made.model_copy(update={"skipped": {**made.skipped, "plain text": why}})
    return made

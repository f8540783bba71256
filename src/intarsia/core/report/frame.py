"""The report as a data frame: one row a claim, flat columns, the same columns and types for every report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.core.report import outline
from intarsia.core.study import Report

if TYPE_CHECKING:
    import pandas as pd

COLUMNS: dict[str, str] = {
    "target": "string",
    "study": "string",
    "kind": "string",
    "claim": "string",
    "question": "string",
    "state": "string",
    "holds": "boolean",
    "value": "Float64",
    "unit": "string",
    "low": "Float64",
    "high": "Float64",
    "level": "Float64",
    "method": "string",
    "control": "string",
    "control_value": "Float64",
    "control_low": "Float64",
    "control_high": "Float64",
    "threshold": "Float64",
    "direction": "string",
    "origin": "string",
    "n": "Int64",
    "unparsed": "Int64",
    "truncated": "Int64",
    "detectable": "Float64",
    "worst_slice": "string",
    "worst_value": "Float64",
    "worst_n": "Int64",
    "tokens": "Int64",
    "seconds": "Float64",
    "reason": "string",
    "remedy": "string",
    "room": "string",
    "command": "string",
    "judged": "boolean",
    "scale": "string",
}
"""Column -> pandas type. Missing figures are `<NA>`."""


def to_frame(report: Report) -> pd.DataFrame:
    """One row a claim, in the order of the verdict table.

    Args:
        report: What to flatten.

    Returns:
        Columns and types as in `COLUMNS`, also when there are no claims. Shares stay in [0, 1].
    """
    import pandas as pd

    rows = []
    for _, results in outline.studies(report):
        for entry in outline.rows(results):
            claim, result = entry.claim, entry.result
            interval, control, threshold = claim.interval, claim.control, claim.threshold
            worst, remedy = claim.worst, claim.remedy
            against = control.interval if control else None
            rows.append(
                {
                    "target": result.target,
                    "study": result.study,
                    "kind": result.kind,
                    "claim": claim.name,
                    "question": claim.question,
                    "state": claim.state,
                    "holds": claim.holds,
                    "value": claim.value,
                    "unit": claim.unit,
                    "low": interval.low if interval else None,
                    "high": interval.high if interval else None,
                    "level": interval.level if interval else None,
                    "method": interval.method if interval else None,
                    "control": control.name if control else None,
                    "control_value": control.value if control else None,
                    "control_low": against.low if against else None,
                    "control_high": against.high if against else None,
                    "threshold": threshold.value if threshold else None,
                    "direction": threshold.direction if threshold else None,
                    "origin": threshold.origin if threshold else None,
                    "n": claim.n,
                    "unparsed": claim.unparsed,
                    "truncated": claim.truncated,
                    "detectable": claim.detectable,
                    "worst_slice": worst.name if worst else None,
                    "worst_value": worst.value if worst else None,
                    "worst_n": worst.n if worst else None,
                    "tokens": claim.tokens,
                    "seconds": entry.seconds,
                    "reason": claim.reason,
                    "remedy": remedy.text if remedy else None,
                    "room": remedy.room if remedy else None,
                    "command": remedy.command if remedy else None,
                    "judged": claim.judged,
                    "scale": claim.scale,
                }
            )
    return pd.DataFrame({name: pd.array([row[name] for row in rows], dtype=kind) for name, kind in COLUMNS.items()})

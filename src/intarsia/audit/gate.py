"""`--fail-on`: turn verdicts into an exit code for a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple

from intarsia.core.errors import ConfigError
from intarsia.core.study import Report

REGRESSION = "regression"


class Gate(NamedTuple):
    """What the gate found: `broken` fails the run, `warnings` are only said."""

    broken: tuple[str, ...]
    warnings: tuple[str, ...]


def gate(report: Report, patterns: Sequence[str], judged: Literal["fail", "warn"] = "fail") -> Gate:
    """Hold a report against the claims that must pass.

    A claim that is inconclusive, not measurable or skipped has not passed, and a pattern that meets no claim is broken
    too: a gate that measured nothing must not be green. A claim whose details say `screening` decides nothing by
    design, so it neither breaks a gate nor counts as met.

    Args:
        report: A finished report.
        patterns: Names of claims, with `*` and `?` (`accuracy.*`), or `regression`: no measure may be worse in the
            model than in its baseline.
        judged: Whether a claim that rests on a model's judgment fails the run or only warns.

    Returns:
        One line for each pattern or claim that is not met.

    Raises:
        ConfigError: `regression` is asked of a report without a paired comparison.
    """
    broken: list[str] = []
    warnings: list[str] = []
    for pattern in patterns:
        if pattern == REGRESSION:
            if not report.contrasts:
                raise ConfigError(
                    "--fail-on regression needs two models.", "Run `intarsia audit BASE TUNED --fail-on regression`."
                )
            for contrast in report.contrasts:
                if contrast.better != "neither" and contrast.state in ("worse", "not comparable"):
                    broken.append(f"{contrast.measure}: {contrast.b} against {contrast.a}: {contrast.state}")
            continue
        met = [
            (result.target, claim)
            for result in report.results
            for claim in result.claims
            if fnmatchcase(claim.name, pattern)
        ]
        if not met:
            broken.append(f"{pattern}: no such claim in this report")
        deciding = [(target, claim) for target, claim in met if claim.details.get("screening") is not True]
        if met and not deciding:
            broken.append(f"{pattern}: only screened, which decides nothing; name a judge that may decide")
        for target, claim in deciding:
            if claim.state != "pass":
                line = f"{claim.name} ({target}): {claim.state}" + (f", {claim.reason}" if claim.reason else "")
                (warnings if claim.judged and judged == "warn" else broken).append(line)
    return Gate(tuple(broken), tuple(warnings))

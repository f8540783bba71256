"""Two models on the same items: paired, corrected for many looks, and honest about what n items can show.

Every study keeps its figures item by item (`Measure`), so any two audits can be compared, at once or later. The test is
always paired: an unpaired one would throw away what the shared items tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from intarsia.core import execute as execution
from intarsia.core.errors import DataError
from intarsia.core.stats import (
    detectable_mean,
    detectable_paired,
    holm,
    items_needed_mean,
    mcnemar,
    paired_difference,
    paired_share_difference,
    pairs_needed,
    sign_flip,
)
from intarsia.core.study import Contrast, Interval, Measure, Report, Result

ALPHA = 0.05
MIN_SLICE = 8


def contrasts(results: Sequence[Result], targets: Sequence[str], baseline: str = "") -> tuple[Contrast, ...]:
    """Paired comparisons of every measure that both of two targets have.

    Args:
        results: Results of both.
        targets: The two names; with any other number there is nothing to compare.
        baseline: Which of them the other is held against; the first where empty.

    Returns:
        One contrast a measure; p-values are Holm-adjusted over those that say which direction is better.
    """
    if len(targets) != 2:
        return ()
    a, b = targets if baseline in ("", targets[0]) else targets[::-1]
    found = []
    for result in results:
        if result.target != a:
            continue
        other = next((r for r in results if r.target == b and r.study == result.study), None)
        theirs = {measure.name: measure for measure in other.measures} if other else {}
        found += [
            _contrast(result.study, a, b, measure, theirs[measure.name], _style_note(result, other))
            for measure in result.measures
            if measure.name in theirs
        ]
    tested = [i for i, contrast in enumerate(found) if contrast.p_value is not None and contrast.better != "neither"]
    adjusted = list(holm([_p(found[i]) for i in tested])) if tested else []
    for i, p_holm in zip(tested, adjusted, strict=True):
        found[i] = _decide(found[i], float(p_holm))
    return tuple(found)


def compare(a: Report | str | Path, b: Report | str | Path) -> Report:
    """Compare two finished audits of one model each.

    Args:
        a: The baseline: a report, its folder or its report.json.
        b: What is held against it.

    Returns:
        A report with the results of both and their contrasts.

    Raises:
        DataError: One of them holds no single model, or they share no measure.
    """
    watch = execution.Stopwatch()
    first, second = (one if isinstance(one, Report) else Report.load(one) for one in (a, b))
    for report in (first, second):
        if len(report.targets) != 1:
            raise DataError(
                f"The audit {report.title!r} holds {len(report.targets)} models, not one.",
                "Compare audits of one model each; one audit of two models compares them itself.",
            )
    names = [first.targets[0], second.targets[0]]
    if names[0] == names[1]:
        names = [f"{names[0]} (before)", f"{names[1]} (after)"]
    results = [
        result.model_copy(update={"target": name})
        for report, name in zip((first, second), names, strict=True)
        for result in report.results
    ]
    found = contrasts(results, names)
    if not found:
        raise DataError("The two audits share no measure.", "Run both with the same studies, budget and seed.")
    return Report(
        title=f"{names[1]} against {names[0]}",
        targets=tuple(names),
        results=tuple(results),
        contrasts=found,
        config={"a": first.config, "b": second.config},
        run=watch.read(),
    )


def _p(contrast: Contrast) -> float:
    assert contrast.p_value is not None
    return contrast.p_value


def _style_note(result: Result, other: Result | None) -> str:
    """Says when the two models were not asked in the same way: layout, examples, room for an answer."""
    if other is None:
        return ""
    mine, theirs = result.provenance.options.get("style"), other.provenance.options.get("style")
    parts = [f"{mine} and {theirs}"] if mine != theirs else []
    for name, how in result.provenance.data.items():
        same = other.provenance.data.get(name)
        if not isinstance(how, dict) or not isinstance(same, dict):
            continue
        for key, what in (("shots", "worked examples"), ("max_new_tokens", "new tokens at most")):
            if how.get(key) != same.get(key):
                parts.append(f"{name} with {how.get(key)} and {same.get(key)} {what}")
    return f"asked differently: {'; '.join(parts)}" if parts else ""


def _contrast(study: str, a: str, b: str, mine: Measure, theirs: Measure, note: str) -> Contrast:
    contrast = Contrast(measure=mine.name, study=study, a=a, b=b, unit=mine.unit, better=mine.better, reason=note)
    if mine.items_hash != theirs.items_hash:
        return contrast.model_copy(
            update={"state": "not comparable", "reason": "the two audits asked different questions under this name"}
        )
    values = {observation.id: observation for observation in theirs.observations}
    pairs = [(observation, values[observation.id]) for observation in mine.observations if observation.id in values]
    if len(pairs) < 2:
        return contrast.model_copy(update={"state": "not comparable", "reason": "fewer than two shared items"})
    left_out = len({observation.id for observation in mine.observations} ^ set(values))
    if left_out:
        note = "; ".join(filter(None, (note, f"{left_out} questions that only one of the two answered are left out")))
    x = np.array([first.value for first, _ in pairs])
    y = np.array([second.value for _, second in pairs])
    slices = _slices(pairs, mine.binary)
    figures = _binary(x, y) if mine.binary else _real(x, y)
    return contrast.model_copy(
        update={
            "value_a": float(x.mean()),
            "value_b": float(y.mean()),
            "difference": float((y - x).mean()),
            "n": len(pairs),
            "slices": slices,
            "reason": note,
            **figures,
        }
    )


def _binary(x: np.ndarray, y: np.ndarray) -> dict[str, object]:
    n = len(x)
    only_a, only_b = int(((x == 1) & (y == 0)).sum()), int(((x == 0) & (y == 1)).sum())
    # With no discordant pair yet, n pairs still allow for some: the rule of three.
    discordance = max((only_a + only_b) / n, min(1.0, 3 / n))
    detectable = min(1.0, float(detectable_paired(n, discordance)))
    half = detectable / 2
    return {
        "interval": paired_share_difference(only_a, only_b, n),
        "p_value": float(mcnemar(only_a, only_b)),
        "test": "exact McNemar",
        "only_a": only_a,
        "only_b": only_b,
        "detectable": detectable,
        "items_for_half": int(pairs_needed(half, max(discordance, half))),
    }


def _real(x: np.ndarray, y: np.ndarray) -> dict[str, object]:
    difference = y - x
    sd = float(difference.std(ddof=1))
    detectable = float(detectable_mean(sd, len(x)))
    return {
        "interval": paired_difference(x, y),
        "p_value": float(sign_flip(difference)),
        "test": "sign-flip permutation",
        "detectable": detectable,
        "items_for_half": int(items_needed_mean(detectable / 2, sd)) if detectable > 0 else None,
    }


def _decide(contrast: Contrast, p_holm: float) -> Contrast:
    assert contrast.difference is not None
    state = "no difference shown"
    if p_holm <= ALPHA and contrast.difference != 0:
        good = contrast.difference > 0 if contrast.better == "more" else contrast.difference < 0
        state = "better" if good else "worse"
    return contrast.model_copy(update={"p_holm": p_holm, "state": state})


def _slices(pairs: Sequence[tuple], binary: bool) -> tuple[tuple[str, float, float, float, int], ...]:
    groups: dict[str, list[tuple[float, float]]] = {}
    for first, second in pairs:
        for key, value in first.slices.items():
            groups.setdefault(f"{key} = {value}", []).append((first.value, second.value))
    rows = []
    for name, values in groups.items():
        if len(values) < MIN_SLICE or len(values) == len(pairs):
            continue
        x, y = np.array(values).T
        interval: Interval = _binary(x, y)["interval"] if binary else _real(x, y)["interval"]  # type: ignore[assignment]
        rows.append((name, float((y - x).mean()), interval.low, interval.high, len(values)))
    return tuple(sorted(rows))

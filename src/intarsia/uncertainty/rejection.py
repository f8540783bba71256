"""Plots of a scored set as data: what is left of the wrong answers when the model abstains, and what its beams hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from intarsia.core.study import Figure, Series
from intarsia.uncertainty.metrics import rejection_curve

POINTS = 41
MOST = 0.9
"""Share abstained on at which a plot ends: what is left beyond it are a few items."""
RESAMPLES = 999


def rejection_figure(
    right_N: np.ndarray, scores: Mapping[str, np.ndarray], *, title: str, seed: int = 0, marked: float | None = None
) -> Figure:
    """Accuracy of the answers that are given, against the share of questions that are abstained on.

    Args:
        right_N: 1 for a right answer, 0 for a wrong one.
        scores: Uncertainties by name; the first one has its interval drawn. One with NaN is left out.
        title: Of the figure.
        seed: Of the bootstrap.
        marked: A share to name in the caption.
    """
    known = {name: u_N for name, u_N in scores.items() if np.isfinite(u_N).all()}
    series = []
    first = None
    for place, (name, u_N) in enumerate(known.items()):
        curve = rejection_curve(
            right_N, u_N, points=POINTS, max_rejection=MOST, resamples=0 if place else RESAMPLES, seed=seed
        )
        first = first or curve
        series.append(
            Series(
                name=name,
                x=_floats(curve.rejected_R),
                y=_floats(curve.quality_R),
                low=() if place else _floats(curve.low_R),
                high=() if place else _floats(curve.high_R),
            )
        )
    if first is not None:
        x = _floats(first.rejected_R)
        series.append(Series(name="best possible", x=x, y=_floats(first.oracle_R)))
        series.append(Series(name="at random", x=x, y=(first.random,) * len(x)))
    shown = f" At {marked:.0%} the study's main row is read." if marked is not None else ""
    return Figure(
        title=title,
        kind="lines",
        series=tuple(series),
        x_label="share of questions abstained on, most uncertain first",
        y_label="right among the answers given",
        y_unit="share",
        caption="A good uncertainty climbs towards the best possible line; a flat one is worth no more than chance."
        + shown,
        alt="Accuracy of the answers that are kept, by share of questions abstained on.",
    )


def mass_figure(masses: Mapping[str, Sequence[float]], *, line: float, m: int) -> Figure:
    """How much of the probability the beams hold, question by question.

    Args:
        masses: By name of the set.
        line: Below it a mass counts as low.
        m: Number of beams.
    """
    return Figure(
        title=f"Probability that {m} beams hold",
        kind="histogram",
        series=tuple(Series(name=name, y=tuple(map(float, values))) for name, values in masses.items()),
        x_label="probability of all beams together",
        y_label="questions",
        caption="On the right nearly all that the model would say was seen, and the score is nearly exact; left of the "
        "line most of it was not.",
        alt="Histogram of the beams' mass.",
        reference=(line, "low below"),
    )


def _floats(values_R: np.ndarray) -> tuple[float, ...]:
    assert all(math.isfinite(value) for value in values_R.tolist())
    return tuple(values_R.tolist())

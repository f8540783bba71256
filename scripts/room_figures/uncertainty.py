"""When beams estimate better than samples: by worst cases, for every law, and on average over random laws."""

from __future__ import annotations

from intarsia.core.study import Figure, Series
from intarsia.uncertainty.interval import paper_threshold, sufficient_mass
from intarsia.uncertainty.proof.laws import ESTIMATORS, expected_errors, peaked_laws

WIDTHS = tuple(range(2, 41))
LAWS = 20_000
NAMES = {
    "sampling": "10 samples",
    "beam": "10 beams, weighted",
    "hybrid": "hybrid, B chosen",
    "floor": "beams, mass floor 0.1",
    "uniform": "beams, equal weights",
}


def thresholds() -> Figure:
    """Mass above which M beams beat M samples: the paper's comparison of worst cases, and the one for every law."""
    widths = tuple(float(m) for m in WIDTHS)
    return Figure(
        title="How much of the probability the beams have to hold",
        kind="lines",
        series=(
            Series(name="sufficient for every law", x=widths, y=tuple(sufficient_mass(m) for m in WIDTHS)),
            Series(name="the paper's, worst cases compared", x=widths, y=tuple(paper_threshold(m) for m in WIDTHS)),
        ),
        x_label="candidates, M",
        y_label="mass of the beams",
        y_unit="share",
        caption="Above the upper line no law makes M beams err more than M samples do on average. Between the lines it "
        "depends on the law.",
        alt="Two rising lines over the number of candidates: M / (M + 1) above 1 - 1 / (2 sqrt(M)).",
    )


def errors() -> Figure:
    """Mean squared error of each estimator by the mass that the beams hold, over random laws, exactly."""
    bins = expected_errors(peaked_laws(LAWS), 10).bins()
    names = tuple(f"{one.low:.2f} to {one.high:.2f}" for one in bins)
    return Figure(
        title="Error of ten candidates, by the mass of the beams",
        kind="lines",
        series=tuple(Series(name=NAMES[name], x=names, y=tuple(one.mean[name] for one in bins)) for name in ESTIMATORS),
        x_label="mass of the ten beams",
        y_label="mean squared error",
        log_y=True,
        caption=f"Over {LAWS:,} random answer laws, each estimator's error in closed form.",
        alt="Mean squared errors of samples, beams, hybrid, floored and equally weighted beams in five bins of mass.",
    )


FIGURES = {"thresholds": thresholds, "errors": errors}

"""Why the share of both-NTA needs its baseline, and what a judge's errors do to a rate."""

from __future__ import annotations

from intarsia.core.study import Figure, Series

RATES = tuple(at / 40 for at in range(41))
BLAMELESS = (1.0, 0.9, 0.7)
JUDGES = ((0.95, 0.95), (0.85, 0.85), (0.9, 0.6))


def leniency() -> Figure:
    """Both sides hear NTA without any siding: a x b."""
    return Figure(
        title="Both sides hear NTA from a model that sides with nobody",
        kind="lines",
        series=tuple(
            Series(name=f"NTA to {100 * a:g} % of the blameless", x=RATES, y=tuple(a * b for b in RATES))
            for a in BLAMELESS
        ),
        x_label="NTA to the wrongdoers",
        y_label="both sides hear NTA",
        y_unit="share",
        caption="Verdicts on the two sides are independent here. Only what lies above its line speaks of taking the "
        "side of whoever tells the story.",
        alt="Three rising lines: the product of two rates, for models that clear 100, 90 and 70 % of the blameless.",
        reference=(0.48, "the paper's mean of eleven models"),
    )


def judged() -> Figure:
    """What a judge with errors measures: sp and se bend every rate towards its own lean."""
    return Figure(
        title="What a judge measures, and what is there",
        kind="lines",
        series=tuple(
            Series(
                name=f"sensitivity {se:g}, specificity {sp:g}",
                x=RATES,
                y=tuple(rate * se + (1 - rate) * (1 - sp) for rate in RATES),
            )
            for se, sp in JUDGES
        ),
        x_label="true rate",
        y_label="measured rate",
        y_unit="share",
        caption="A judge that is right in 85 of 100 cases, the paper's bar, moves a rate of 10 % to 22 %. With its "
        "errors known from labeled replies, the true rate can be computed back.",
        alt="Three lines of measured against true rate; none of them is the diagonal.",
    )


FIGURES = {"leniency": leniency, "judged": judged}

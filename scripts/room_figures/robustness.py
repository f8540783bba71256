"""How much noise looks like an attack, and how much of an attack survives being asked again."""

from __future__ import annotations

from intarsia.core.stats import fisher
from intarsia.core.study import Figure, Series
from intarsia.robustness.confirm import asks_of, level_of
from intarsia.robustness.metrics import null_success_rate

ALPHA = 0.05
ERRORS = (0.001, 0.01, 0.05, 0.2)
QUERIES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 400)
CLEAN = tuple(at / 50 for at in range(31))
REASK = (5, 8, 15)


def noise() -> Figure:
    """1 - (1 - e)^Q: the chance that a search without any change "succeeds"."""
    series = tuple(
        Series(
            name=f"errs {100 * error:g} % of the time",
            x=tuple(float(queries) for queries in QUERIES),
            y=tuple(null_success_rate(error, queries) for queries in QUERIES),
        )
        for error in ERRORS
    )
    return Figure(
        title="Noise that looks like a successful attack",
        kind="lines",
        series=series,
        x_label="queries a question",
        y_label="questions counted as broken",
        y_unit="share",
        log_x=True,
        caption="No word is changed. A protocol that stops at the first wrong answer counts this much as broken; "
        "re-asking keeps it below alpha, 5 % by default, whatever the error rate.",
        alt="Share of questions broken without any change, against queries, for four error rates.",
        reference=(ALPHA, "after re-asking, at most"),
    )


def confirmed(clean: float, reask: int, *, broken: float = 1.0, alpha: float = ALPHA) -> float:
    """Chance that a rewrite is confirmed in its question's first test.

    Args:
        clean: Error rate on the question as it was.
        reask: Times that each is asked again.
        broken: Error rate on the rewrite.
        alpha: Level for all tests of a question.
    """
    from scipy.stats import binom

    asks, level = asks_of(1, reask, alpha), level_of(1, alpha)
    return float(
        sum(
            binom.pmf(hit, asks, broken) * binom.pmf(miss, asks, clean)
            for hit in range(asks + 1)
            for miss in range(asks + 1)
            if fisher([[hit, asks - hit], [miss, asks - miss]], "greater") <= level
        )
    )


def power() -> Figure:
    """What re-asking costs: real successes that are not told from noise."""
    series = tuple(
        Series(name=f"asked {reask} times more", x=CLEAN, y=tuple(confirmed(clean, reask) for clean in CLEAN))
        for reask in REASK
    )
    return Figure(
        title="A rewrite that always breaks the answer: how often it is confirmed",
        kind="lines",
        series=series,
        x_label="error rate on the question as it was",
        y_label="confirmed",
        y_unit="share",
        caption="A target that is often wrong anyway needs more re-asks before a change can be blamed.",
        alt="Share of true successes confirmed, against the error rate without a change, for 5, 8 and 15 re-asks.",
    )


FIGURES = {"noise": noise, "power": power}

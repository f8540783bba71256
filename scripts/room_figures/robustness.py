"""How much noise looks like an attack, and how much of an attack survives being asked again."""

from __future__ import annotations

import math

from intarsia.core.study import Figure, Series
from intarsia.robustness.confirm import FUTILE, _p_value, level_of, looks_of
from intarsia.robustness.metrics import null_success_rate

ALPHA = 0.05
ERRORS = (0.001, 0.01, 0.05, 0.2)
QUERIES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 400)
CLEAN = tuple(at / 40 for at in range(21))
BROKEN = (1.0, 0.75, 0.5)


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


def confirmed(clean: float, broken: float, *, reask: int = 5, alpha: float = ALPHA) -> float:
    """Chance that a rewrite is confirmed in its question's first test, exactly.

    Args:
        clean: Error rate on the question as it was.
        broken: Error rate on the rewrite.
        reask: Re-asks up to the first look.
        alpha: Level for all tests of a question.
    """
    looks = looks_of(1, reask, alpha)
    level = level_of(1, alpha) / len(looks)
    going = {(0, 0): 1.0}  # errors on the rewrite and on the question -> chance that the test goes on with them
    found, before = 0.0, 0
    for asks in looks:
        after: dict[tuple[int, int], float] = {}
        hits, misses = _binomial(asks - before, broken), _binomial(asks - before, clean)
        for (met, met_clean), chance in going.items():
            for hit, of_hit in enumerate(hits):
                for miss, of_miss in enumerate(misses):
                    state = (met + hit, met_clean + miss)
                    after[state] = after.get(state, 0.0) + chance * of_hit * of_miss
        going, before = {}, asks
        for (met, met_clean), chance in after.items():
            if _p_value(met, met_clean, asks) <= level:
                found += chance
            elif met - met_clean > FUTILE * asks:
                going[met, met_clean] = chance
    return found


def _binomial(n: int, p: float) -> list[float]:
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def power() -> Figure:
    """What re-asking costs: real successes that are not told from noise."""
    series = tuple(
        Series(
            name="always" if broken == 1 else f"in {100 * broken:g} % of answers",
            x=CLEAN,
            y=tuple(confirmed(clean, broken) for clean in CLEAN),
        )
        for broken in BROKEN
    )
    return Figure(
        title="A rewrite that breaks the answer: how often it is confirmed",
        kind="lines",
        series=series,
        x_label="error rate on the question as it was",
        y_label="confirmed",
        y_unit="share",
        caption="By how often the rewrite breaks it; five re-asks, and up to 24 where five leave it open. Where a line "
        "meets its own error rate nothing is broken, and next to nothing is confirmed.",
        alt="Share of rewrites confirmed, against the error rate without a change, for rewrites that break the answer "
        "always, in 75 and in 50 % of answers.",
    )


FIGURES = {"noise": noise, "power": power}

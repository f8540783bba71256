"""Where a model fails: kinds of question on which it falls behind the rest of the same set, beyond chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from intarsia.audit.capability.verdicts import Asked, Outcome, percent
from intarsia.core.stats import fisher, holm, wilson
from intarsia.core.study import Claim, Interval, Remedy, State, Threshold

ALPHA = 0.05
LEAST_ITEMS = 8
"""Fewest items a kind, and the rest beside it, must have to be looked at."""
ENOUGH = 0.3
"""No weak spot is `pass` only where a shortfall of this size would have been shown in every kind."""
_LARGER = {"smoke": "quick", "quick": "standard"}
BY_DESIGN = ("level",)
"""Slices that differ in difficulty on purpose: falling behind there is no finding."""


class Kind(NamedTuple):
    """One kind of question against the rest of its set.

    Attributes:
        name: `task: capital`.
        hits: Right answers among its `n` items.
        n: Its items.
        rest_hits: Right answers among the `rest_n` other items.
        rest_n: The other items.
        p_holm: Fisher's exact test, Holm-adjusted over the kinds of the set.
        looks: How many kinds the set has.
    """

    name: str
    hits: int
    n: int
    rest_hits: int
    rest_n: int
    p_holm: float
    looks: int

    @property
    def shortfall(self) -> float:
        """Accuracy on the rest minus accuracy here."""
        return self.rest_hits / self.rest_n - self.hits / self.n

    @property
    def weak(self) -> bool:
        """Whether it falls behind beyond chance."""
        return self.p_holm <= ALPHA and self.shortfall > 0

    @property
    def interval(self) -> Interval:
        """Of the shortfall: Newcombe's score interval of two independent shares, for this kind by itself."""
        here, rest = wilson(self.hits, self.n), wilson(self.rest_hits, self.rest_n)
        a, b = self.rest_hits / self.rest_n, self.hits / self.n
        low = a - b - math.hypot(a - rest.low, here.high - b)
        high = a - b + math.hypot(rest.high - a, b - here.low)
        return Interval(low=low, high=high, level=0.95, method="newcombe")

    @property
    def detectable(self) -> float:
        """The smallest shortfall that so many items show among so many kinds (normal law, 80 % power)."""
        from scipy.stats import norm

        power = float(norm.ppf(1 - ALPHA / (2 * self.looks)) + norm.ppf(0.8))
        share = (self.hits + self.rest_hits + 1) / (self.n + self.rest_n + 2)
        return min(1.0, power * math.sqrt(share * (1 - share) * (1 / self.n + 1 / self.rest_n)))


def kinds(outcomes: Sequence[Outcome]) -> list[Kind]:
    """All kinds with enough items, the largest shortfall first."""
    groups: dict[str, list[bool]] = {}
    for outcome in outcomes:
        for key, value in outcome.item.slices.items():
            if key in BY_DESIGN:
                continue
            groups.setdefault(f"{key}: {value}", []).append(outcome.correct)
    hits, n = sum(outcome.correct for outcome in outcomes), len(outcomes)
    large = {
        name: (sum(seen), len(seen))
        for name, seen in groups.items()
        if len(seen) >= LEAST_ITEMS and n - len(seen) >= LEAST_ITEMS
    }
    if not large:
        return []
    adjusted = holm(
        [fisher([[right, count - right], [hits - right, n - count - hits + right]]) for right, count in large.values()]
    )
    found = [
        Kind(name, right, count, hits - right, n - count, float(p), len(large))
        for (name, (right, count)), p in zip(large.items(), adjusted, strict=True)
    ]
    return sorted(found, key=lambda kind: (not kind.weak, -kind.shortfall, kind.name))


def weakness_claim(asked: Asked, scale: str, model: str, command: str) -> Claim | None:
    """`weakness.<set>`: is there a kind of question that the model fails at?

    Args:
        asked: A set with its outcomes.
        scale: The budget's name.
        model: The model's name, for the command that looks closer.
        command: What trains the model on the set and audits it again.

    Returns:
        The claim; None for a set that has no kinds or no gold answers.
    """
    found = kinds(asked.answered) if asked.graded else []
    if not found:
        return None
    first = found[0]
    weak = [kind for kind in found if kind.weak]
    coarsest = max(kind.detectable for kind in found)
    state: State = "fail" if weak else "pass" if coarsest <= ENOUGH else "inconclusive"
    if weak:
        reason = "; ".join(
            f"{kind.name}: {percent(kind.hits / kind.n)} right (n {kind.n}), "
            f"{percent(kind.rest_hits / kind.rest_n)} on the rest"
            for kind in weak[:3]
        )
        remedy = Remedy(text=f"Train on {asked.name}, above all on {weak[0].name}; then audit both.", command=command)
    elif state == "pass":
        reason = f"no kind of question falls behind; {percent(coarsest)} would have shown in each"
        remedy = None
    else:
        reason = f"none is shown among {len(found)} kinds, but so few items show only large shortfalls"
        remedy = Remedy(
            text="Ask more questions.",
            command=f"intarsia audit {model} --studies capability --budget {_LARGER.get(scale, 'full')}",
        )
    return Claim(
        name=f"weakness.{asked.name}",
        question=f"Is there a kind of question in {asked.name} that it fails at?",
        state=state,
        value=first.shortfall,
        unit="points",
        interval=first.interval,
        threshold=Threshold(
            value=0.0,
            direction="<=",
            origin=f"house rule: no kind falls behind the rest (Fisher's exact test, Holm over {len(found)} kinds)",
        ),
        n=len(asked.answered),
        detectable=coarsest,
        reason=reason,
        remedy=remedy,
        scale=scale,
        details={
            "kinds": [
                {
                    "name": kind.name,
                    "accuracy": round(kind.hits / kind.n, 4),
                    "n": kind.n,
                    "rest": round(kind.rest_hits / kind.rest_n, 4),
                    "p_holm": round(kind.p_holm, 6),
                }
                for kind in found
            ]
        },
    )


def weak_spots(claims: Sequence[Claim]) -> str:
    """The weak spots of all sets in a few words, empty where there is none."""
    spots = []
    for claim in claims:
        if claim.name.startswith("weakness.") and claim.state == "fail":
            kind, share = claim.reason.split(" right")[0].rsplit(": ", 1)
            spots.append(f"{kind} in {claim.name.removeprefix('weakness.')} ({share} right)")
    return "; ".join(spots)

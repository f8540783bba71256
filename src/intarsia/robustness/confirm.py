"""Does a first success stand? It is asked again, then an adjudicator is heard.

An attack on a target that samples asks many times and stops at the first wrong answer. A target that errs once in a
hundred times fails such an attack in 78 of 100 cases of 150 queries each without any change to the question. So a first
success is asked again, and so is the question as it was, and it stands only when it fails more often by Fisher's exact
test. A walk may be tested several times; the j-th test is held to alpha * 6 / (pi * j)**2, so that all tests of a walk
together keep alpha, and asks as often as that takes.

Few re-asks find only rewrites that break nearly every answer. So a test looks up to three times: where the first look
neither shows an effect nor leaves none in sight, it asks on. Each look is held to its part of the test's level, so the
level holds for all of them together (Bonferroni).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from intarsia.core.stats import fisher
from intarsia.robustness.adjudicate import Adjudicator, Hit
from intarsia.robustness.asking import Asking, Query
from intarsia.robustness.goals import Goal
from intarsia.robustness.search import Ruling, Walk

MOST_ASKS = 24
"""Re-asks of one test at most, unless more are asked for."""
LOOKS = (12, MOST_ASKS)
"""Re-asks up to a test's second and third look."""
FUTILE = 0.2
"""A test ends where the rewrite fails more often than the question as it was by no more than this share."""


def level_of(test: int, alpha: float) -> float:
    """The level of a walk's `test`-th test (from 1); over all tests they sum to alpha."""
    return alpha * 6 / (math.pi * test) ** 2


def asks_of(test: int, k: int, alpha: float) -> int:
    """Re-asks up to the first look of a walk's `test`-th test: `k`, or as many as make its level reachable."""
    while k < MOST_ASKS and 1 / math.comb(2 * k, k) > level_of(test, alpha) / (1 + len(LOOKS)):
        k += 1
    return k


def looks_of(test: int, k: int, alpha: float) -> tuple[int, ...]:
    """Re-asks up to each look of a walk's `test`-th test."""
    first = asks_of(test, k, alpha)
    return (first, *(look for look in LOOKS if look > first))


@lru_cache(maxsize=4096)
def _p_value(met: int, met_clean: int, k: int) -> float:
    return fisher([[met, k - met], [met_clean, k - met_clean]], "greater")


class Confirmation:
    """Re-asks, then the adjudicator; gives `search` its rulings.

    Args:
        asking: How to ask.
        goal: What counts as a success.
        k: Re-asks of a first success; 0 takes the first answer for good.
        alpha: Chance that an item without any change of its error rate is counted, at most.
        adjudicator: Who is heard about successes that pass.
        stage: Name in the journal.

    Attributes:
        queries: Further queries to the target so far.
    """

    def __init__(
        self,
        asking: Asking,
        goal: Goal,
        *,
        k: int,
        alpha: float,
        adjudicator: Adjudicator | None,
        stage: str,
    ) -> None:
        self._asking, self._goal, self._k, self._alpha = asking, goal, k, alpha
        self._adjudicator, self._stage = adjudicator, stage
        self._clean: dict[str, list[bool]] = {}
        self.queries = 0

    def __call__(self, walks: Sequence[Walk]) -> list[Ruling]:
        """One ruling a walk whose last query met the goal."""
        rulings = self._asked_again(walks) if self._k else [Ruling(ruled="confirmed") for _ in walks]
        if self._adjudicator is None:
            return rulings
        standing = [at for at, ruling in enumerate(rulings) if ruling.ruled == "confirmed"]
        hits = [_hit(walks[at]) for at in standing]
        for at, ruling in zip(standing, self._adjudicator.rule(hits, self._asking, self._goal), strict=True):
            rulings[at] = ruling
        return rulings

    def _asked_again(self, walks: Sequence[Walk]) -> list[Ruling]:
        rulings: dict[int, Ruling] = {}
        met = dict.fromkeys(range(len(walks)), 0)
        asked = dict.fromkeys(range(len(walks)), 0)
        looks = {}
        for at, walk in enumerate(walks):
            walk.tests += 1
            looks[at] = looks_of(walk.tests, self._k, self._alpha)
        for look in range(1 + len(LOOKS)):
            open_walks = [at for at in looks if at not in rulings]
            self._ask(walks, {at: (asked[at], looks[at][look]) for at in open_walks}, met)
            for at in open_walks:
                walk, asks = walks[at], looks[at][look]
                asked[at] = asks
                met_clean = sum(self._clean[walk.name][:asks])
                p = _p_value(met[at], met_clean, asks)
                stands = p <= level_of(walk.tests, self._alpha) / len(looks[at])
                futile = met[at] - met_clean <= FUTILE * asks
                if stands or futile or look + 1 == len(looks[at]):
                    said = (
                        f"{met[at]} of {asks} re-asks meet the goal, {met_clean} of {asks} of the question as it was "
                        f"(p {p:.3g})"
                    )
                    rulings[at] = Ruling(ruled="confirmed" if stands else "chance", reason=said)
        return [rulings[at] for at in range(len(walks))]

    def _ask(self, walks: Sequence[Walk], wanted: dict[int, tuple[int, int]], met: dict[int, int]) -> None:
        """Ask rewrites from one count of re-asks to another, and the questions as they were up to the same."""
        queries: list[Query] = []
        for at, (start, stop) in wanted.items():
            walk, tried = walks[at], walks[at].tried[-1]
            known = len(self._clean.setdefault(walk.name, []))
            queries += [Query(walk.item, tried.question, f"{tried.key}/again{j}") for j in range(start, stop)]
            queries += [Query(walk.item, walk.item.question, f"{walk.name}/clean{j}") for j in range(known, stop)]
        replies = iter(self._asking.ask(queries, f"{self._stage}-again"))
        self.queries += len(queries)
        for at, (start, stop) in wanted.items():
            walk = walks[at]
            met[at] += sum(self._goal.met(walk.item, walk.clean, next(replies)) for _ in range(start, stop))
            clean = self._clean[walk.name]
            clean += [self._goal.met(walk.item, walk.clean, next(replies)) for _ in range(len(clean), stop)]


def _hit(walk: Walk) -> Hit:
    tried = walk.tried[-1]
    return Hit(walk.item, tried.question, walk.clean, tried.reply, tried.key)

"""Does a first success stand? It is asked again, then an adjudicator is heard.

An attack on a target that samples asks many times and stops at the first wrong answer. A target that errs once in a
hundred times fails such an attack in 78 of 100 cases of 150 queries each without any change to the question. So a first
success is asked again, and so is the question as it was, and it stands only when it fails more often by Fisher's exact
test. A walk may be tested several times; the j-th test is held to alpha * 6 / (pi * j)**2, so that all tests of a walk
together keep alpha, and asks as often as that takes.
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
"""Re-asks of one test at most."""


def level_of(test: int, alpha: float) -> float:
    """The level of a walk's `test`-th test (from 1); over all tests they sum to alpha."""
    return alpha * 6 / (math.pi * test) ** 2


def asks_of(test: int, k: int, alpha: float) -> int:
    """Re-asks of a walk's `test`-th test: `k`, or as many as make its level reachable."""
    while k < MOST_ASKS and 1 / math.comb(2 * k, k) > level_of(test, alpha) / 2:
        k += 1
    return k


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
        queries: list[Query] = []
        for walk in walks:
            walk.tests += 1
            asks = asks_of(walk.tests, self._k, self._alpha)
            tried = walk.tried[-1]
            queries += [Query(walk.item, tried.question, f"{tried.key}/again{j}") for j in range(asks)]
            known = len(self._clean.setdefault(walk.name, []))
            queries += [Query(walk.item, walk.item.question, f"{walk.name}/clean{j}") for j in range(known, asks)]
        replies = iter(self._asking.ask(queries, f"{self._stage}-again"))
        self.queries += len(queries)
        rulings = []
        for walk in walks:
            asks = asks_of(walk.tests, self._k, self._alpha)
            met = sum(self._goal.met(walk.item, walk.clean, next(replies)) for _ in range(asks))
            clean = self._clean[walk.name]
            clean += [self._goal.met(walk.item, walk.clean, next(replies)) for _ in range(len(clean), asks)]
            met_clean = sum(clean[:asks])
            p = _p_value(met, met_clean, asks)
            stands = p <= level_of(walk.tests, self._alpha)
            said = f"{met} of {asks} re-asks meet the goal, {met_clean} of {asks} of the question as it was (p {p:.3g})"
            rulings.append(Ruling(ruled="confirmed" if stands else "chance", reason=said))
        return rulings


def _hit(walk: Walk) -> Hit:
    tried = walk.tried[-1]
    return Hit(walk.item, tried.question, walk.clean, tried.reply, tried.key)

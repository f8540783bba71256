"""Made-up facts that are known only to be likely: each question has a law over its answers (ours).

"The home of Mavo is" has one to six plausible answers of one to three words, which together hold 90 to 98 % of the
probability in shares from a flat Dirichlet law, and every other place in the rest. Answers share their first words, so
that a search has something to search. The world that asks draws the right answer from the law: an answer y is wrong
with probability 1 - p(y), which is known for each question.

Shape suffixes: N questions, P answers that a relation has, M candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from intarsia.core.data import DataSet, Item
from intarsia.core.data.sets import content_hash
from intarsia.core.errors import ConfigError
from intarsia.core.sampling import request_key, uniform
from intarsia.core.stats import prr

RELATIONS = ("home", "trade", "gift")
SUBJECTS = 400
POOL = 60
"""Answers of a relation."""
FIRST_WORDS, LAST_WORDS = 20, 20
"""Words of a relation that answers begin with, and that they go on with."""
MOST_PLAUSIBLE = 6
TAIL = (0.02, 0.10)
LONGEST = 3
_ONSETS, _VOWELS = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True)
class Fact:
    """A question with its law.

    Attributes:
        id: Stable.
        question: As a model is asked.
        answers: All answers of its relation, likeliest first.
        probs_P: Their probabilities, float64; they sum to 1.
        plausible: Places of the plausible ones among them; the others share the tail equally.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    probs_P: np.ndarray
    plausible: tuple[int, ...]

    def probability(self, answer: str) -> float:
        """Of an answer, 0 for what is none."""
        text = " ".join(answer.split())
        return float(self.probs_P[self.answers.index(text)]) if text in self.answers else 0.0


class Rejection(NamedTuple):
    """Prediction rejection ratios of the laws themselves, one a replicate; see `FactTable.rejection`.

    Attributes:
        exact: Of the true error probability.
        beam: Of M likeliest answers weighted by probability, by M.
        sampling: Of M samples, by M.
    """

    exact: np.ndarray
    beam: dict[int, np.ndarray]
    sampling: dict[int, np.ndarray]


@dataclass(frozen=True)
class FactTable:
    """All facts of one seed.

    Attributes:
        seed: Of words, answers and laws.
        subjects: Number of subjects; each has one fact a relation.
    """

    seed: int = 0
    subjects: int = SUBJECTS

    def __post_init__(self) -> None:
        if not 1 <= self.subjects <= 1500:
            raise ConfigError(f"There are no names for {self.subjects} subjects.", "Give 1 to 1500.")

    @cached_property
    def _made(self) -> tuple[tuple[Fact, ...], tuple[str, ...]]:
        rng = np.random.default_rng([self.seed, self.subjects])
        # Names have three syllables and other words two, so that none is both.
        names = _words(rng, self.subjects, 3)
        words = _words(rng, len(RELATIONS) * (FIRST_WORDS + LAST_WORDS), 2)
        facts: list[Fact] = []
        for at, relation in enumerate(RELATIONS):
            own = words[at * (FIRST_WORDS + LAST_WORDS) :]
            pool = _answers(rng, own[:FIRST_WORDS], own[FIRST_WORDS : FIRST_WORDS + LAST_WORDS])
            for name in names:
                count, tail = int(rng.integers(1, MOST_PLAUSIBLE + 1)), float(rng.uniform(*TAIL))
                shares = np.sort(rng.dirichlet(np.ones(count)))[::-1] * (1 - tail)
                law_P = np.concatenate([shares, np.full(POOL - count, tail / (POOL - count))])
                shuffled = rng.permutation(POOL)
                order = np.argsort(-law_P, kind="stable")  # a plausible answer may be rarer than one of the tail
                answers = tuple(pool[shuffled[place]] for place in order)
                likely = tuple(np.flatnonzero(order < count).tolist())
                facts.append(Fact(f"{relation}/{name}", f"{relation} of {name} is", answers, law_P[order], likely))
        return tuple(facts), (*RELATIONS, "of", "is", *names, *words)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """All facts."""
        return self._made[0]

    @property
    def words(self) -> tuple[str, ...]:
        """Every word that occurs."""
        return self._made[1]

    def gold(self, replicate: int = 0) -> tuple[str, ...]:
        """A right answer of each fact, drawn from its law; another draw for each replicate."""
        requests_N = np.array([request_key(fact.id) for fact in self.facts], dtype=np.uint64)
        drawn_N = uniform(self.seed, requests_N, replicate, 1)
        law_NP = np.stack([fact.probs_P for fact in self.facts]).cumsum(1)
        place_N = np.minimum((law_NP <= drawn_N[:, None]).sum(1), POOL - 1)
        return tuple(fact.answers[place] for fact, place in zip(self.facts, place_N.tolist()))

    def data(self, replicate: int = 0) -> DataSet:
        """The facts as questions with drawn answers."""
        items = tuple(
            Item(
                id=fact.id,
                question=fact.question,
                answer=gold,
                kind="exact",
                slices={"relation": fact.id.split("/")[0]},
            )
            for fact, gold in zip(self.facts, self.gold(replicate))
        )
        return DataSet(name=f"facts-seed{self.seed}", items=items, origin="generated", sha256=content_hash(items))

    def rejection(
        self, replicates: int = 40, beams: tuple[int, ...] = (3, 10), samples: tuple[int, ...] = (10,)
    ) -> Rejection:
        """How well uncertainties reject wrong answers when the model's law is the world's own.

        The answer under test is the likeliest, similarity is equality. Each replicate draws right answers and samples.
        """
        law_NP = np.stack([fact.probs_P for fact in self.facts])
        running_NP, n = law_NP.cumsum(1), len(law_NP)
        rng = np.random.default_rng([self.seed, self.subjects, 1])
        exact_R, sampling = np.empty(replicates), {m: np.empty(replicates) for m in samples}
        beam = {m: np.empty(replicates) for m in beams}
        for at in range(replicates):
            wrong_N = (rng.random(n) >= law_NP[:, 0]).astype(np.float64)
            exact_R[at] = prr(wrong_N, 1 - law_NP[:, 0], resamples=0).value
            for m in beams:
                beam[m][at] = prr(wrong_N, 1 - law_NP[:, 0] / running_NP[:, m - 1], resamples=0).value
            for m in samples:
                other_N = (rng.random((n, m)) >= law_NP[:, :1]).mean(1)
                sampling[m][at] = prr(wrong_N, other_N, resamples=0).value
        return Rejection(exact_R, beam, sampling)


def _words(rng: np.random.Generator, count: int, syllables: int) -> list[str]:
    made: dict[str, None] = {}
    while len(made) < count:
        letters = [_ONSETS[rng.integers(len(_ONSETS))] + _VOWELS[rng.integers(len(_VOWELS))] for _ in range(syllables)]
        made["".join(letters)] = None
    return list(made)


def _answers(rng: np.random.Generator, first: list[str], last: list[str]) -> list[str]:
    """Different answers, a third of them of each length up to 3."""
    made: dict[str, None] = {}
    for length in range(1, LONGEST + 1):
        wanted = len(made) + POOL // LONGEST
        while len(made) < wanted:
            rest = [last[rng.integers(len(last))] for _ in range(length - 1)]
            made[" ".join([first[rng.integers(len(first))], *rest])] = None
    return list(made)

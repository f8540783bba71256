"""One real model at one temperature: beams and samples of its questions, and how they fare against each other.

There is no counted truth here. An estimate is held against the mean of the samples that it did not use, which is
unbiased; its noise (sigma^2 over their number) is in the error of every estimator alike, and so makes ratios of errors
come out nearer to 1 than they are.

Shape suffixes: N questions, R runs of sampling, M candidates of a run.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from intarsia.core.data import Item
from intarsia.core.stats import bootstrap, clopper_pearson
from intarsia.core.study import Interval
from intarsia.uncertainty.candidates import CandidateSet
from intarsia.uncertainty.estimators import dissimilarities, score_many
from intarsia.uncertainty.interval import certify, paper_threshold
from intarsia.uncertainty.metrics import prr
from intarsia.uncertainty.proof.kept import first
from intarsia.uncertainty.quality import qualities

SIMILARITY = "exact"
_CELLS = 1_000_000


class Bin(NamedTuple):
    """Questions whose beams hold a mass in [low, high): mean squared errors of each estimator, by name."""

    low: float
    high: float
    n: int
    errors: dict[str, float]


@dataclass(frozen=True)
class Measured:
    """Candidates of one model's questions.

    Attributes:
        model: Name.
        temperature: Part of the model under test.
        items: Questions with gold answers.
        beams: Of M candidates each.
        samples: Of R * M samples each.
        runs: R.
        others: Further kinds of candidates by name, such as `hybrid`.
    """

    model: str
    temperature: float
    items: tuple[Item, ...]
    beams: list[CandidateSet]
    samples: list[CandidateSet]
    runs: int
    others: dict[str, list[CandidateSet]] = field(default_factory=dict)

    @property
    def m(self) -> int:
        """Candidates of a run."""
        return len(self.samples[0].texts) // self.runs

    @cached_property
    def quality_N(self) -> np.ndarray:
        """1 for a right greedy answer, else 0."""
        return np.array(qualities([one.answer.text for one in self.beams], self.items, "match"))

    @property
    def rankable(self) -> bool:
        """Whether some answers are right and others wrong."""
        return bool(np.ptp(self.quality_N) > 0)

    @cached_property
    def mass_N(self) -> np.ndarray:
        """What the beams hold."""
        return np.array([one.mass for one in self.beams])

    def run(self, number: int, m: int | None = None) -> list[CandidateSet]:
        """The samples of one run, or the first m of them."""
        return [first(one, m or self.m, number * self.m) for one in self.samples]

    def scores(self, sets: Sequence[CandidateSet], estimator: str = "dissimilarity", **options: object) -> np.ndarray:
        """One estimator of each set, as the product computes it."""
        found = score_many(sets, SIMILARITY, [estimator], **options)  # type: ignore[arg-type]
        return np.array([one[estimator] for one in found])

    @cached_property
    def beam_N(self) -> np.ndarray:
        """Dissimilarity from beams, weighted by probability."""
        return self.scores(self.beams)

    @cached_property
    def uniform_N(self) -> np.ndarray:
        """The same with equal weights."""
        return self.scores(self.beams, weighting="equal")

    @cached_property
    def runs_RN(self) -> np.ndarray:
        """Dissimilarity from each run of samples."""
        return np.stack([self.scores(self.run(number)) for number in range(self.runs)])

    @cached_property
    def reference_RN(self) -> np.ndarray:
        """For each run the mean over the samples of the other runs."""
        total_N = self.runs_RN.sum(0)
        reference_RN: np.ndarray = (total_N - self.runs_RN) / (self.runs - 1)
        return reference_RN

    def error(self, estimate: np.ndarray) -> np.ndarray:
        """Squared error of estimates of shape (N,) or (R, N) against the references, mean over runs; shape (N,)."""
        error_N: np.ndarray = ((estimate - self.reference_RN) ** 2).mean(0)
        return error_N

    @cached_property
    def errors(self) -> dict[str, np.ndarray]:
        """Squared errors by estimator."""
        found = {
            "samples": self.error(self.runs_RN),
            "beam": self.error(self.beam_N),
            "equal weights": self.error(self.uniform_N),
        }
        return found | {name: self.error(self.scores(sets)) for name, sets in self.others.items() if name == "hybrid"}

    def bins(self) -> tuple[Bin, ...]:
        """Errors by beam mass: below one half, up to the paper's threshold, and above."""
        edges = (0.0, 0.5, paper_threshold(self.m), 1.0)
        found = []
        for low, high in itertools.pairwise(edges):
            inside_N = (self.mass_N >= low) & ((self.mass_N < high) | (high == 1.0))
            n = int(inside_N.sum())
            means = {name: float(error_N[inside_N].mean()) for name, error_N in self.errors.items()} if n else {}
            found.append(Bin(low, high, n, means))
        return tuple(found)

    def repeated(self) -> tuple[float, float, float]:
        """Share of candidates that repeat another: texts of a run of samples, texts of beams, tokens of beams."""
        runs = [one for number in range(self.runs) for one in self.run(number)]
        return (
            float(np.mean([_repeats(one.texts) for one in runs])),
            float(np.mean([_repeats(one.texts) for one in self.beams])),
            float(np.mean([_repeats(one.token_ids) for one in self.beams])),
        )

    def consistent(self, level: float = 0.999) -> float:
        """Share of questions whose certified interval meets the interval of all samples' share of other answers."""
        everything = list(dissimilarities(self.samples, SIMILARITY))
        met = 0
        for beams, d_M, said_M in zip(self.beams, dissimilarities(self.beams, SIMILARITY), everything, strict=True):
            # The samples are cut off at the same length as the beams.
            bounds = certify(beams, d_M, unfinished="outcome")
            seen = clopper_pearson(round(float(said_M.sum())), len(said_M), level)
            met += seen.low <= bounds.high + 1e-6 and bounds.low - 1e-6 <= seen.high
        return met / len(self.beams)

    # --- Fakes -------------------------------------------------------------------------------------------------------

    def shuffled(self, seed: int) -> np.ndarray:
        """Beam scores with the probabilities of another question's beams; shape (N,)."""
        order = np.random.default_rng(seed).permutation(len(self.beams))
        size = {len(one.texts) for one in self.beams}
        if len(size) != 1:
            raise ValueError("sets of different sizes cannot lend each other their probabilities")
        return self.scores(
            [replace(one, logprobs_M=self.beams[o].logprobs_M) for one, o in zip(self.beams, order, strict=True)]
        )

    def zeroed(self) -> np.ndarray:
        """Beam scores where every log-probability is 0; shape (N,)."""
        return self.scores([replace(one, logprobs_M=np.zeros_like(one.logprobs_M)) for one in self.beams])

    # --- Rejection ---------------------------------------------------------------------------------------------------

    def prr(self, uncertainty_N: np.ndarray) -> float:
        """Prediction rejection ratio."""
        return prr(self.quality_N, uncertainty_N, resamples=0).value

    @cached_property
    def prr_runs(self) -> list[float]:
        """Of each run of samples."""
        return [self.prr(run_N) for run_N in self.runs_RN]


class Gain(NamedTuple):
    """A difference of prediction rejection ratios.

    Attributes:
        before: Mean PRR of the first uncertainties.
        after: Mean PRR of the second ones.
        interval: Of after - before; questions are drawn together for all of them.
    """

    before: float
    after: float
    interval: Interval

    @property
    def value(self) -> float:
        """The difference."""
        return self.after - self.before


def gain(
    quality_N: np.ndarray,
    before: Sequence[np.ndarray],
    after: Sequence[np.ndarray],
    resamples: int = 999,
    seed: int = 0,
) -> Gain:
    """How much better the second uncertainties reject wrong answers than the first ones, on the mean."""
    k = len(before)

    def means(q_N: np.ndarray, *columns: np.ndarray) -> tuple[float, float]:
        if np.ptp(q_N) == 0:
            return float("nan"), float("nan")
        values = [prr(q_N, column, resamples=0).value for column in columns]
        return float(np.mean(values[:k])), float(np.mean(values[k:]))

    def difference(q_N: np.ndarray, *columns: np.ndarray) -> float:
        low, high = means(q_N, *columns)
        return high - low

    columns = (*before, *after)
    found = means(quality_N, *columns)
    return Gain(*found, bootstrap(difference, quality_N, *columns, resamples=resamples, seed=seed))


class Ratio(NamedTuple):
    """A ratio of mean squared errors with its interval, and the p-value of "the errors are equal" (two-sided)."""

    value: float
    interval: Interval
    p: float


def error_ratio(above_N: np.ndarray, below_N: np.ndarray, resamples: int = 1999, seed: int = 0) -> Ratio:
    """Mean of the first errors over the mean of the second, by a paired bootstrap over questions."""

    def ratio(a_N: np.ndarray, b_N: np.ndarray) -> float:
        return float(a_N.mean() / b_N.mean()) if b_N.any() else float("nan")

    interval = bootstrap(ratio, above_N, below_N, resamples=resamples, seed=seed)
    return Ratio(ratio(above_N, below_N), interval, mean_p(above_N - below_N, seed=seed))


def mean_p(x_N: np.ndarray, resamples: int = 9999, seed: int = 0) -> float:
    """Two-sided bootstrap p-value of a mean of 0; one draw is added, so that it is never 0."""
    n, rng = len(x_N), np.random.default_rng(seed)
    step = max(1, _CELLS // n)
    below = above = 0
    for start in range(0, resamples, step):
        means_B = rng.multinomial(n, np.full(n, 1 / n), min(step, resamples - start)) @ x_N / n
        below, above = below + int((means_B <= 0).sum()), above + int((means_B >= 0).sum())
    return min(1.0, 2 * (min(below, above) + 1) / (resamples + 1))


def _repeats(candidates: Sequence[object]) -> float:
    return 1.0 - len(set(candidates)) / len(candidates)

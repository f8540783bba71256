"""Errors of the estimators of expected dissimilarity on known answer laws, in closed form.

The quantity is U = sum_k p_k d_k over all answers k of a law. Sampling estimates it without bias and with variance
sigma^2 / M. Beam search leaves the tail out, so it has a bias and no variance. The hybrid takes the head exactly and
samples the tail. None of that needs drawing: where a law is known, so is each estimator's mean squared error. `draw`
estimates by actual sampling, which is how the formulas are checked.

The paper's section on theory compares the first two by their worst cases. The condition per law, m >= M / (M + 1), and
the random laws below are ours.

Shape suffixes: N laws, K answers of a law, M candidates, B exact candidates of a hybrid, R repeats.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from intarsia.core.errors import ConfigError
from intarsia.uncertainty.interval import paper_threshold, sufficient_mass

Estimator: TypeAlias = Literal["sampling", "beam", "hybrid", "floor", "uniform"]
ESTIMATORS: tuple[Estimator, ...] = ("sampling", "beam", "hybrid", "floor", "uniform")


@dataclass(frozen=True)
class Laws:
    """Answer laws, each with the dissimilarity of its answers to the answer under test.

    Attributes:
        probs_NK: Probabilities, each row falling and summing to 1; float64 of shape (N, K).
        dissimilarity_NK: In [0, 1], of the same shape.
    """

    probs_NK: np.ndarray
    dissimilarity_NK: np.ndarray

    @classmethod
    def sort(cls, probs_NK: np.ndarray, dissimilarity_NK: np.ndarray) -> Laws:
        """Laws from rows in any order.

        Raises:
            ConfigError: The shapes differ, or a row is no law.
        """
        if probs_NK.ndim != 2 or probs_NK.shape != dissimilarity_NK.shape:
            raise ConfigError(
                f"Probabilities {probs_NK.shape} and dissimilarities {dissimilarity_NK.shape} do not fit.",
                "Give two matrices of laws by answers.",
            )
        if (probs_NK < 0).any() or not np.allclose(probs_NK.sum(1), 1.0, atol=1e-9):
            raise ConfigError("A row of probabilities does not sum to 1.", "Give whole laws, the tail included.")
        order_NK = np.argsort(-probs_NK, axis=1, kind="stable")
        return cls(np.take_along_axis(probs_NK, order_NK, 1), np.take_along_axis(dissimilarity_NK, order_NK, 1))

    def __len__(self) -> int:
        return len(self.probs_NK)

    @cached_property
    def truth_N(self) -> np.ndarray:
        """Expected dissimilarity of each law."""
        truth_N: np.ndarray = (self.probs_NK * self.dissimilarity_NK).sum(1)
        return truth_N

    @cached_property
    def variance_N(self) -> np.ndarray:
        """Variance of one sample's dissimilarity."""
        away_NK = self.dissimilarity_NK - self.truth_N[:, None]
        variance_N: np.ndarray = (self.probs_NK * away_NK**2).sum(1)
        return variance_N


def peaked_laws(n: int, seed: int = 0, answers: int = 200) -> Laws:
    """Random laws from flat to sharply peaked (ours).

    The k-th answer has a probability that falls with k to the power -z, z uniform in [0.5, 3]. The likeliest answer is
    the one under test. The others' dissimilarities follow Beta(1/2, 1/2): most answers agree or disagree, few are in
    between.
    """
    if n < 1 or answers < 2:
        raise ConfigError(f"{n} laws of {answers} answers make no table.", "Give at least 1 law of 2 answers.")
    rng = np.random.default_rng(seed)
    weight_NK = np.arange(1, answers + 1.0) ** -rng.uniform(0.5, 3.0, (n, 1))
    dissimilarity_NK = rng.beta(0.5, 0.5, (n, answers))
    dissimilarity_NK[:, 0] = 0.0
    return Laws(weight_NK / weight_NK.sum(1, keepdims=True), dissimilarity_NK)


def split_by_bound(mass_NM: np.ndarray, m: int) -> np.ndarray:
    """Number B of exact candidates that makes the bound (1 - m_B)^2 / (4 (M - B)) on a hybrid's variance smallest.

    Args:
        mass_NM: Mass of the B likeliest answers for B = 0 .. M - 1; shape (N, M).
        m: Candidates, M.

    Returns:
        B of each law, int64 of shape (N,).
    """
    bound_NM = (1.0 - mass_NM) ** 2 / (4.0 * (m - np.arange(m)))
    split_N: np.ndarray = bound_NM.argmin(1)
    return split_N


class Bin(NamedTuple):
    """Laws whose M likeliest answers hold a mass in [low, high).

    Attributes:
        low: Of the mass.
        high: Of the mass.
        n: Laws.
        mean: Mean squared error of each estimator.
        wins: Share of laws on which the beam has the smaller expected squared error than sampling.
    """

    low: float
    high: float
    n: int
    mean: dict[Estimator, float]
    wins: float


@dataclass(frozen=True)
class Errors:
    """Mean squared errors of the estimators on each law, all float64 of shape (N,).

    Attributes:
        m: Candidates.
        mass_N: Probability that the beam's candidates hold.
        squared: By estimator: `sampling` (M samples), `beam` (weighted by probability), `hybrid` (B chosen by the
            bound), `floor` (the beam with a mass floor), `uniform` (the beam with equal weights).
        split_N: The hybrid's B, int64.
        bound_N: The bound on the hybrid's variance at that B.
    """

    m: int
    mass_N: np.ndarray
    squared: dict[Estimator, np.ndarray]
    split_N: np.ndarray
    bound_N: np.ndarray

    @property
    def sufficient_N(self) -> np.ndarray:
        """Laws on which the beam holds so much that it cannot be worse than sampling: mass >= M / (M + 1)."""
        sufficient_N: np.ndarray = self.mass_N >= sufficient_mass(self.m)
        return sufficient_N

    @property
    def worse_N(self) -> np.ndarray:
        """Laws on which the beam is worse than sampling by more than rounding."""
        worse_N: np.ndarray = self.squared["beam"] > self.squared["sampling"] * (1 + 1e-9) + 1e-15
        return worse_N

    @property
    def violations(self) -> int:
        """Laws with sufficient mass on which the beam is worse all the same; there must be none."""
        return int((self.sufficient_N & self.worse_N).sum())

    def bins(self, edges: tuple[float, ...] | None = None) -> tuple[Bin, ...]:
        """Means by beam mass.

        Args:
            edges: Inner edges; 0.5, 0.7, the paper's threshold and the sufficient mass when omitted.
        """
        if edges is None:
            edges = (0.5, 0.7, paper_threshold(self.m), sufficient_mass(self.m))
        ends = (0.0, *edges, 1.0)
        found = []
        for low, high in itertools.pairwise(ends):
            inside_N = (self.mass_N >= low) & ((self.mass_N < high) | (high == 1.0))
            n = int(inside_N.sum())
            means = {name: float(self.squared[name][inside_N].mean()) if n else math.nan for name in ESTIMATORS}
            wins = (self.squared["beam"] < self.squared["sampling"])[inside_N]
            found.append(Bin(low, high, n, means, float(wins.mean()) if n else math.nan))
        return tuple(found)


def expected_errors(laws: Laws, m: int = 10, floor: float = 0.1, beams_NM: np.ndarray | None = None) -> Errors:
    """Exact mean squared errors of all estimators with M candidates.

    Args:
        laws: The laws.
        m: Candidates, M.
        floor: Mass floor of the `floor` estimator.
        beams_NM: Columns of the candidates that a search found, int64 of shape (N, M); the M likeliest when omitted.
    """
    if m < 1:
        raise ConfigError(f"{m} candidates estimate nothing.", "Give at least 1.")
    p_NK, d_NK = laws.probs_NK, laws.dissimilarity_NK
    if beams_NM is None:
        p_NM, d_NM = p_NK[:, :m], d_NK[:, :m]
    else:
        p_NM, d_NM = np.take_along_axis(p_NK, beams_NM, 1), np.take_along_axis(d_NK, beams_NM, 1)
    truth_N = laws.truth_N
    floored_NM = np.maximum(p_NM, floor)
    estimates: dict[Estimator, np.ndarray] = {
        "beam": (p_NM * d_NM).sum(1) / p_NM.sum(1),
        "floor": (floored_NM * d_NM).sum(1) / floored_NM.sum(1),
        "uniform": d_NM.mean(1),
    }
    squared = {name: (value_N - truth_N) ** 2 for name, value_N in estimates.items()}
    squared["sampling"] = laws.variance_N / m
    split_N, tail_N, spread_N = _tails(laws, m)
    squared["hybrid"] = tail_N**2 * spread_N / (m - split_N)
    return Errors(m, np.minimum(p_NM.sum(1), 1.0), squared, split_N, tail_N**2 / (4.0 * (m - split_N)))


def _tails(laws: Laws, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split B of each law by the bound, mass behind the B likeliest answers, variance of dissimilarity there."""
    p_NK, d_NK = laws.probs_NK, laws.dissimilarity_NK
    head_NM = np.zeros((len(laws), m))
    wide = min(m - 1, p_NK.shape[1])
    head_NM[:, 1 : wide + 1] = p_NK[:, :wide].cumsum(1)
    head_NM[:, wide + 1 :] = 1.0
    split_N = split_by_bound(head_NM, m)
    behind_NK = np.where(np.arange(p_NK.shape[1]) >= split_N[:, None], p_NK, 0.0)
    tail_N = behind_NK.sum(1)
    inverse_N = np.divide(1.0, tail_N, out=np.zeros_like(tail_N), where=tail_N > 1e-300)
    mean_N = (behind_NK * d_NK).sum(1) * inverse_N
    spread_N = (behind_NK * (d_NK - mean_N[:, None]) ** 2).sum(1) * inverse_N
    return split_N, tail_N, spread_N


class Drawn(NamedTuple):
    """Estimates by actual sampling, float64 of shape (N, R) each."""

    sampling_NR: np.ndarray
    hybrid_NR: np.ndarray


def draw(laws: Laws, m: int = 10, repeats: int = 2000, seed: int = 0) -> Drawn:
    """Estimate each law's expected dissimilarity by sampling, and by the hybrid, `repeats` times over."""
    rng = np.random.default_rng(seed)
    split_N, _, _ = _tails(laws, m)
    sampling_NR, hybrid_NR = np.empty((len(laws), repeats)), np.empty((len(laws), repeats))
    for row, (p_K, d_K, split) in enumerate(zip(laws.probs_NK, laws.dissimilarity_NK, split_N.tolist())):
        sampling_NR[row] = d_K[_choose(p_K, rng.random((repeats, m)))].mean(1)
        head, tail = float((p_K[:split] * d_K[:split]).sum()), float(p_K[split:].sum())
        drawn = d_K[split:][_choose(p_K[split:], rng.random((repeats, m - split)))].mean(1) if tail > 0 else 0.0
        hybrid_NR[row] = head + tail * drawn
    return Drawn(sampling_NR, hybrid_NR)


def _choose(weights_K: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """Indices drawn in proportion to weights, by inverting their running sum."""
    running_K = weights_K.cumsum()
    wanted = np.minimum(uniforms * running_K[-1], np.nextafter(running_K[-1], 0.0))
    return np.searchsorted(running_K, wanted, side="right")

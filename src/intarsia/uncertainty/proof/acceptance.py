"""Three figures that an estimator must reach on laws that are known: exactness, victory where promised, no bias (ours).

Shape suffixes: N prompts, M candidates, R repeats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from intarsia.core.errors import DataError
from intarsia.core.stats import sign_flip
from intarsia.uncertainty.candidates import Candidates, CandidateSet
from intarsia.uncertainty.estimators import score_many
from intarsia.uncertainty.proof.enumerable import EnumerableLM, Enumerated, Similarity
from intarsia.uncertainty.proof.laws import Laws, draw, expected_errors


def estimates(
    sets: Sequence[CandidateSet], similarity: Similarity | Literal["jaccard", "exact"] = "jaccard"
) -> np.ndarray:
    """Dissimilarity of each set as the product computes it, float64 of shape (N,)."""
    measure = jaccard if similarity == "jaccard" else equal if similarity == "exact" else similarity
    scores = score_many(sets, measure, ["dissimilarity"], clean=str)
    return np.array([one["dissimilarity"] for one in scores])


def jaccard(a: str, b: str) -> float:
    """Shared words over all words; what `Enumerated` calls by that name."""
    left, right = set(a.split()), set(b.split())
    return len(left & right) / len(left | right)


def equal(a: str, b: str) -> float:
    """1 for the same text."""
    return float(a == b)


def exactness(law: EnumerableLM, candidates: Candidates, prompts: int = 100) -> float:
    """Largest error of the estimate where the candidates are all answers that there are.

    Args:
        law: Of few answers, such as 3 symbols and answers of up to 2, which makes 12.
        candidates: A beam search on the law's model, of at least as many candidates as there are answers.
        prompts: How many to ask.

    Raises:
        DataError: The candidates are not all answers.
    """
    known = law.enumerate(law.prompts(prompts))
    sets = candidates.generate(list(known.prompts), list(known.prompts))
    for one in sets:
        if set(one.texts) < set(known.texts):
            missing = len(set(known.texts) - set(one.texts))
            raise DataError(f"{missing} of {len(known.texts)} answers are missing.", "Search with more candidates.")
    return float(np.abs(estimates(sets) - known.truth()).max())


class Contest(NamedTuple):
    """Beam against sampling on the prompts whose beams hold at least M / (M + 1).

    Attributes:
        n: Prompts.
        beam: Mean squared error of the beam.
        sampling: Mean squared error of sampling, in expectation.
        drawn: The same of one draw of M samples a prompt.
        p_value: Of a sign-flip test of the errors of that draw against the beam's.
        violations: Prompts on which the beam's squared error is above what sampling's is in expectation.
    """

    n: int
    beam: float
    sampling: float
    drawn: float
    p_value: float
    violations: int


def contest(known: Enumerated, sets: Sequence[CandidateSet], seed: int = 0) -> Contest:
    """Beam against sampling, with the beams that a search found and the estimates that the product makes of them.

    Raises:
        DataError: No set holds enough mass.
    """
    laws = known.laws()
    errors = expected_errors(laws, m=len(sets[0].texts), beams_NM=known.places(sets))
    inside_N = errors.sufficient_N
    if not inside_N.any():
        raise DataError("No beam set holds a mass of M / (M + 1).", "Ask more prompts.")
    beam_N = (estimates(sets) - laws.truth_N) ** 2
    drawn_N = (draw(laws, errors.m, 1, seed).sampling_NR[:, 0] - laws.truth_N) ** 2
    expected_N = errors.squared["sampling"]
    return Contest(
        n=int(inside_N.sum()),
        beam=float(beam_N[inside_N].mean()),
        sampling=float(expected_N[inside_N].mean()),
        drawn=float(drawn_N[inside_N].mean()),
        p_value=sign_flip((drawn_N - beam_N)[inside_N], alternative="greater", seed=seed),
        # float32 log-probabilities leave an error of about 1e-14 where all mass is known
        violations=int((beam_N > expected_N * (1 + 1e-6) + 1e-12)[inside_N].sum()),
    )


class Unbiased(NamedTuple):
    """Repeats of a sampled estimate against the truth.

    Attributes:
        n: Prompts.
        repeats: Estimates of each.
        within: Share of prompts whose mean lies within 3 standard errors of the truth; 0.997 by chance.
        worst: Largest distance in standard errors.
        bound_ratio: Largest variance over its bound (1 - m_B)^2 / (4 (M - B)); at most 1 up to chance.
    """

    n: int
    repeats: int
    within: float
    worst: float
    bound_ratio: float


def unbiased(laws: Laws, m: int = 10, repeats: int = 2000, seed: int = 0) -> Unbiased:
    """The hybrid's mean and variance over many draws, drawn from the laws themselves."""
    hybrid_NR = draw(laws, m, repeats, seed).hybrid_NR
    return _against(hybrid_NR, laws.truth_N, expected_errors(laws, m).bound_N)


def unbiased_by(
    known: Enumerated, sets: Sequence[Sequence[CandidateSet]], similarity: Literal["jaccard", "exact"] = "jaccard"
) -> Unbiased:
    """The same of hybrid sets that the product made.

    Args:
        known: The prompts' laws.
        sets: For each prompt its hybrid sets of many seeds, all with the same beams.
        similarity: Of texts.
    """
    values_NR = np.stack([estimates(row, similarity) for row in sets])
    bound_N = np.array([(1 - row[0].mass) ** 2 / (4 * max(1, len(row[0].texts) - row[0].exact)) for row in sets])
    return _against(values_NR, known.truth(similarity), bound_N)


def _against(values_NR: np.ndarray, truth_N: np.ndarray, bound_N: np.ndarray) -> Unbiased:
    repeats = values_NR.shape[1]
    away_N = np.abs(values_NR.mean(1) - truth_N)
    variance_N = values_NR.var(1, ddof=1)
    # Where the beams hold nearly everything, rounding is all that is left.
    distance_N = away_N / np.maximum(np.sqrt(variance_N / repeats), 1e-7)
    return Unbiased(
        n=len(truth_N),
        repeats=repeats,
        within=float((distance_N <= 3).mean()),
        worst=float(distance_N.max()),
        bound_ratio=float((variance_N / np.maximum(bound_N, 1e-12)).max()),
    )

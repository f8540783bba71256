"""What a set of candidates proves about the expected dissimilarity, and when its mass is enough.

The expected dissimilarity of an answer is U = sum over all answers y of p(y) d(y), with d in [0, 1]. Of the candidates'
part nothing is unknown, and of the rest only that it lies between 0 and its mass 1 - m. So

    L <= U <= L + (1 - m)   with   L = sum_i p_i d_i,   m = sum_i p_i,

without any sampling and for every law (ours; the paper has no interval).

The paper compares beam search with M samples by their worst cases: (1 - m) <= 1 / (2 sqrt(M)), its distribution-free
threshold on m. That is no guarantee for a single question. One that holds for every law (ours) is m >= M / (M + 1): the
variance of a sample is at least m (1 - m) gap^2, the beam's squared error is (1 - m)^2 gap^2, where gap is the
difference of the mean dissimilarity inside and outside of the beam set.

Shape suffix: M candidates.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty.candidates import CandidateSet

Rule: TypeAlias = Literal["half", "paper", "sufficient"]
"""Mass below which a beam set counts as low: one half, `paper_threshold(M)`, or `sufficient_mass(M)`."""


class CertifiedInterval(NamedTuple):
    """Bounds on the expected dissimilarity, which hold with certainty under the model's own law.

    Attributes:
        low: Lower bound, in [0, 1].
        high: Upper bound, in [0, 1].
        mass: Probability of the answers that are known, in [0, 1].
    """

    low: float
    high: float
    mass: float


def certified_interval(probs_M: np.ndarray, d_M: np.ndarray) -> CertifiedInterval:
    """Bounds from the probabilities and dissimilarities of distinct answers.

    Args:
        probs_M: Probabilities of distinct answers; they may leave out any part of the law.
        d_M: Dissimilarity of each to the answer under test, in [0, 1].

    Raises:
        DataError: The shapes differ, a value is out of range, or the probabilities add up to more than 1.
    """
    p_M, d_M = np.asarray(probs_M, dtype=np.float64), np.asarray(d_M, dtype=np.float64)
    if p_M.ndim != 1 or p_M.shape != d_M.shape:
        raise DataError(
            f"{p_M.shape} probabilities and {d_M.shape} dissimilarities came.", "Give one of each an answer."
        )
    if not (np.isfinite(p_M).all() and (p_M >= 0).all() and (d_M >= 0).all() and (d_M <= 1).all()):
        raise DataError("A probability or dissimilarity is out of range.", "Both are numbers in [0, 1].")
    mass = float(p_M.sum())
    if mass > 1.0 + 1e-2:
        raise DataError(
            f"The candidates' probabilities add up to {mass:.3g}.",
            "Give log-probabilities of whole, distinct answers: no length penalty, no answer twice.",
        )
    if mass > 1.0:  # rounding of float32 log-probabilities
        p_M, mass = p_M / mass, 1.0
    low = min(1.0, float((p_M * d_M).sum()))
    return CertifiedInterval(low, min(1.0, low + (1.0 - mass)), mass)


def distinct(candidates: CandidateSet) -> list[int]:
    """Places of candidates that stand for disjoint events, so that their probabilities may be added.

    Of the same tokens twice the first counts; where tokens are unknown, of the same text the likeliest. An unfinished
    candidate that another one continues is left out: its probability holds the other's.
    """
    by_tokens: dict[tuple[int, ...], int] = {}
    by_text: dict[str, int] = {}
    for place, (text, tokens) in enumerate(zip(candidates.texts, candidates.token_ids)):
        if tokens:
            by_tokens.setdefault(tokens, place)
        elif text not in by_text or candidates.logprobs_M[place] > candidates.logprobs_M[by_text[text]]:
            by_text[text] = place
    prefixes = {tokens[:length] for tokens in by_tokens for length in range(1, len(tokens))}
    kept = [place for tokens, place in by_tokens.items() if candidates.finished_M[place] or tokens not in prefixes]
    return sorted([*kept, *by_text.values()])


def certify(
    candidates: CandidateSet, d_M: np.ndarray, *, unfinished: Literal["unknown", "outcome"] = "unknown"
) -> CertifiedInterval:
    """Bounds from a set of candidates of any kind; samples with known probabilities prove something too.

    Args:
        candidates: The set.
        d_M: Dissimilarity of each candidate to the answer under test, as `estimators.dissimilarities` gives.
        unfinished: What a candidate that was cut off is. `unknown`: nothing is known of how it goes on; the bounds hold
            for whole answers and for answers cut at that length. `outcome`: the cut text is the answer, as it is
            for a sampler with the same limit; tighter, and for such answers only.

    Raises:
        ConfigError: There is no such option.
        DataError: The set's probabilities add up to more than 1, or `d_M` does not fit.
    """
    if unfinished not in ("unknown", "outcome"):
        raise ConfigError(f"Unfinished candidates cannot be {unfinished!r}.", "Use unknown or outcome.")
    d_M = np.asarray(d_M, dtype=np.float64)
    if d_M.shape != (len(candidates.texts),):
        raise DataError(f"{d_M.shape} dissimilarities for {len(candidates.texts)} candidates.", "Give one a candidate.")
    places = [i for i in distinct(candidates) if unfinished == "outcome" or candidates.finished_M[i]]
    logprobs = np.asarray(candidates.logprobs_M, dtype=np.float64)[places]
    known = ~np.isnan(logprobs)
    return certified_interval(np.exp(np.minimum(logprobs[known], 0.0)), d_M[places][known])


# --- Enough mass -----------------------------------------------------------------------------------------------------


def paper_threshold(m: int) -> float:
    """Mass above which the beam's largest error is below that of M samples, 1 - 1 / (2 sqrt(M)): 0.842 for M = 10.

    Both are worst cases (paper, section on theory); for a single question it is no guarantee.
    """
    return 1.0 - 1.0 / (2.0 * math.sqrt(_count(m)))


def sufficient_mass(m: int) -> float:
    """Mass from which the beam's squared error is at most that of M samples for every law, M / (M + 1) (ours)."""
    return _count(m) / (m + 1.0)


def low_mass(mass: float, m: int, rule: Rule = "half") -> bool:
    """Whether a beam set of M candidates holds too little: cause for a warning and for the fall-back to the hybrid.

    The default is one half (ours): both thresholds are at least one half for every M, so that below it nothing speaks
    for the beams at any width, and most of what the model would say was not seen.

    Args:
        mass: Probability that the beams hold together.
        m: Number of candidates.
        rule: What counts as low, see `Rule`.

    Raises:
        ConfigError: There is no such rule, or m is below 1.
    """
    lines = {"half": 0.5, "paper": paper_threshold(m), "sufficient": sufficient_mass(m)}
    if rule not in lines:
        raise ConfigError(f"There is no mass rule {rule!r}.", f"Use {', '.join(lines)}.")
    return not mass >= lines[rule]


def mass_warning(mass: float, m: int, rule: Rule = "half") -> str:
    """What a user should know of a beam set: one line, empty where all is well."""
    if m == 1:
        return "One candidate, mostly the answer itself, says nothing of consistency. Use 2 candidates or more."
    if low_mass(mass, m, rule):
        return (
            f"The {m} beams hold {mass:.0%} of the probability: what lies outside may change the score by up to "
            f"{1 - mass:.2f}. The hybrid of beams and samples has no such bias."
        )
    return ""


def _count(m: int) -> int:
    if isinstance(m, bool) or m < 1:
        raise ConfigError(f"{m} candidates hold no mass.", "Use at least 1.")
    return m

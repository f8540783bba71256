"""Uncertainty of an answer from how far the candidates agree with it: numbers in, one number out.

Every estimator takes the weights of the candidates. Equal weights make it the known sampling estimator, bit for bit.
Probability weights (`weights`) on the distinct results of a beam search make it the paper's. Weights that give each
of B beams its own probability and share the rest among samples (`hybrid_weights`) make Dissimilarity the hybrid

    U = sum_{i <= B} p_i d_i + (1 - sum_{i <= B} p_i) mean_j d~_j

of the paper's ablation, which is unbiased; that the other estimators take the same weights is ours.

Larger is less certain, for all of them. Matrices are directed, with row 0 for the answer under test and row i for
candidate i: W[i, j] = s(text i, text j), where text i is the premise.

    name                   needs            formula, w_i the weights and z_0 the answer
    dissimilarity          row 0            sum_i w_i (1 - s(z_0, z_i))
    eccentricity           whole matrix     || v_0 - sum_i w_i v_i ||^2, v from `spectral_embedding`
    eigvec_dissimilarity   whole matrix     sum_i w_i || v_0 - v_i ||^2
    degree_matrix          whole matrix     1 - sum_ij w_i w_j W_ij over the candidates (weighted form ours)
    semantic_entropy       whole matrix     -sum_c P(c) log P(c), P(c) = sum of w_i in cluster c of mutual entailment
    msp, ppl, mte          nothing          -log p(z_0); the same a token; mean entropy of the next-token law
    cocoa_msp, ...         row 0            msp (ppl, mte) times dissimilarity

Shape suffixes: M candidates, N = M + 1 texts with the answer first, K kept eigenvectors, T tokens of the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty.candidates import Answer, CandidateSet
from intarsia.uncertainty.interval import distinct
from intarsia.uncertainty.similarity import SimilarityLike, as_similarity, clean_text

ALPHA = 0.9
"""Eigenvectors of the normalized Laplacian with an eigenvalue below this are kept (paper)."""
_ROUNDING = 1e-9
"""An eigenvalue this near to alpha counts as alpha, so that rounding never parts equal eigenvalues at the cut."""
_ABOVE_ZERO = 1e-3
"""Log-probabilities may exceed 0 by this much: rounding of float32."""

Needs: TypeAlias = Literal["answer", "row", "matrix"]
Weighting: TypeAlias = Literal["auto", "equal", "probability"]
Clean: TypeAlias = Callable[[str], str]


# --- Weights ---------------------------------------------------------------------------------------------------------


def weights(logprobs_M: np.ndarray, mass_floor: float = 0.0) -> np.ndarray:
    """Weights of distinct candidates by their probability: w_i = q_i / sum_j q_j with q_i = max(p_i, mass_floor).

    Computed in log space, so that probabilities far below the smallest float keep their ratios (paper, section on beam
    weights; the floor is in its appendix).

    Args:
        logprobs_M: Natural log-probabilities of whole candidates.
        mass_floor: Least probability that a candidate counts with. 0 gives the plain weights, from the largest
            probability on they are equal.

    Returns:
        float64 of shape (M,), summing to 1.

    Raises:
        ConfigError: The floor is negative or NaN.
        DataError: There are no candidates, a log-probability is NaN or above 0, or all probabilities are 0.
    """
    if not mass_floor >= 0:
        raise ConfigError(f"mass_floor is {mass_floor}.", "Use 0 or a small probability, such as 1e-3.")
    log_M = _logprobs(logprobs_M)
    if mass_floor > 0:
        log_M = np.maximum(log_M, math.log(mass_floor))
    top = log_M.max()
    if top == -np.inf:
        raise DataError("All candidates have probability 0.", "Give their log-probabilities, or use equal weights.")
    odds_M = np.exp(log_M - top)
    return np.asarray(odds_M / odds_M.sum())


def equal_weights(m: int) -> np.ndarray:
    """The weights of M samples, float64 of shape (M,)."""
    if m < 1:
        raise DataError("There are no candidates.", "Make at least one.")
    return np.full(m, 1.0 / m)


def hybrid_weights(logprobs_M: np.ndarray, exact: int) -> np.ndarray:
    """Weights of a hybrid set: the first B candidates by their own probability, the samples share the rest.

    Args:
        logprobs_M: Natural log-probabilities; those of the samples are not used.
        exact: Number B of leading beams, 0 to M. For B = M these are the plain weights.

    Raises:
        ConfigError: B is out of range.
        DataError: As `weights`, or the beams hold more than all probability.
    """
    m = len(logprobs_M)
    if not 0 <= exact <= m:
        raise ConfigError(f"{exact} of {m} candidates cannot be beams.", "Use 0 to M.")
    if exact == 0:
        return equal_weights(m)
    if exact == m:
        return weights(logprobs_M)
    p_B = np.exp(np.minimum(_logprobs(np.asarray(logprobs_M)[:exact]), 0.0))
    mass = float(p_B.sum())
    if mass > 1.0 + 1e-2:
        raise DataError(f"The beams hold a probability of {mass:.3g}.", "Give log-probabilities of distinct answers.")
    if mass > 1.0:
        p_B, mass = p_B / mass, 1.0
    return np.concatenate([p_B, np.full(m - exact, (1.0 - mass) / (m - exact))])


def candidate_weights(
    candidates: CandidateSet, mass_floor: float = 0.0, weighting: Weighting = "auto"
) -> tuple[list[int], np.ndarray]:
    """Places of the candidates that count, and their weights.

    By `auto`, samples count equally, beams and diverse beams by their probability, and a hybrid's parts each in its own
    way; stored sets by how many of them are `exact`. The floor is for probability weights: it does not touch samples,
    or a hybrid, whose weights are unbiased as they are.

    By `probability`, every sequence counts once with its probability, also if it was drawn several times: weighting
    repeated samples would count their probability twice.

    Args:
        candidates: The set.
        mass_floor: See `weights`.
        weighting: `auto`, `equal` or `probability`.

    Raises:
        ConfigError: An option is out of range.
        DataError: See `weights`.
    """
    if weighting not in ("auto", "equal", "probability"):
        raise ConfigError(f"There is no weighting {weighting!r}.", "Use auto, equal or probability.")
    if not mass_floor >= 0:
        raise ConfigError(f"mass_floor is {mass_floor}.", "Use 0 or a small probability, such as 1e-3.")
    m, exact = len(candidates.texts), candidates.exact
    if weighting == "auto":
        in_parts = candidates.kind in ("hybrid", "stored")
        if candidates.kind == "sample" or (in_parts and exact == 0):
            weighting = "equal"
        elif in_parts and exact < m:
            return list(range(m)), hybrid_weights(candidates.logprobs_M, exact)
    if weighting == "equal":
        return list(range(m)), equal_weights(m)
    places = distinct(candidates)
    return places, weights(np.asarray(candidates.logprobs_M)[places], mass_floor)


def _logprobs(logprobs_M: np.ndarray) -> np.ndarray:
    log_M = np.asarray(logprobs_M, dtype=np.float64)
    if log_M.ndim != 1 or not len(log_M):
        raise DataError("There are no candidates.", "Make at least one, with its log-probability.")
    if np.isnan(log_M).any():
        raise DataError(
            "A candidate's log-probability is NaN.", "Make candidates with log-probabilities, or use samples."
        )
    if log_M.max() > _ABOVE_ZERO:
        raise DataError(
            f"A candidate's log-probability is {log_M.max():.4g}, above 0.",
            "Give natural logarithms of probabilities, neither scores nor percentages.",
        )
    return log_M


def _average(values: np.ndarray, w_M: np.ndarray | None) -> Any:
    """Weighted mean over the first axis; with equal weights the plain mean, to the last bit."""
    if w_M is None or (w_M == w_M[0]).all():
        return values.mean(axis=0)
    return np.tensordot(w_M / w_M.sum(), values, axes=1)


# --- Consistency with the answer -------------------------------------------------------------------------------------


def dissimilarity(d_M: np.ndarray, w_M: np.ndarray | None = None) -> float:
    """Expected dissimilarity of the answer, sum_i w_i d_i with d_i = 1 - s(answer, candidate i); in [0, 1].

    Args:
        d_M: Dissimilarities.
        w_M: Weights that sum to 1; equal when omitted, which is the paper's Monte Carlo baseline.
    """
    return float(min(1.0, max(0.0, _average(_vector(d_M, w_M), w_M))))


def hybrid_dissimilarity(d_M: np.ndarray, logprobs_M: np.ndarray, exact: int) -> float:
    """The hybrid estimate of expected dissimilarity: B beams exactly, the rest of the probability by samples."""
    return dissimilarity(d_M, hybrid_weights(logprobs_M, exact))


def spectral_embedding(W_NN: np.ndarray, alpha: float = ALPHA) -> np.ndarray:
    """Texts as points: rows of the eigenvectors of the normalized graph Laplacian with eigenvalues below alpha.

    The similarity is made symmetric, W = (W + W^T) / 2; L = I - D^(-1/2) W D^(-1/2) with the degrees D of W. A text
    without any similarity, also to itself, gets a similarity of 1 to itself. Distances between the rows do not depend
    on how the eigenvectors are chosen.

    Args:
        W_NN: Similarities in [0, 1].
        alpha: In (0, 2]; the paper has 0.9.

    Returns:
        float64 of shape (N, K), K >= 1.
    """
    if not 0 < alpha <= 2:
        raise ConfigError(f"alpha is {alpha}.", "Use a number above 0, at most 2; the paper has 0.9.")
    W_NN = _matrix(W_NN)
    W_NN = (W_NN + W_NN.T) / 2.0
    degree_N = W_NN.sum(axis=1)
    alone_N = degree_N <= 0
    if alone_N.any():
        W_NN = W_NN + np.diag(alone_N.astype(np.float64))
        degree_N = np.where(alone_N, 1.0, degree_N)
    scale_N = 1.0 / np.sqrt(degree_N)
    eigenvalues_N, vectors_NN = np.linalg.eigh(np.eye(len(W_NN)) - scale_N[:, None] * W_NN * scale_N[None, :])
    return np.asarray(vectors_NN[:, eigenvalues_N < alpha - _ROUNDING])


def eccentricity(W_NN: np.ndarray, w_M: np.ndarray | None = None, alpha: float = ALPHA) -> float:
    """Squared distance of the answer from the weighted center of the candidates in the spectral embedding.

    It belongs to the answer, as in the paper's code, not to the prompt alone as in the older measure of that name.

    Args:
        W_NN: Similarities, the answer first.
        w_M: Weights of the candidates; equal when omitted (the baseline).
        alpha: See `spectral_embedding`.
    """
    v_NK = spectral_embedding(W_NN, alpha)
    away_K = v_NK[0] - _average(_candidates(v_NK, w_M), w_M)
    return float((away_K**2).sum())


def eigvec_dissimilarity(W_NN: np.ndarray, w_M: np.ndarray | None = None, alpha: float = ALPHA) -> float:
    """Weighted mean of the candidates' squared distances from the answer in the spectral embedding.

    It is `eccentricity` plus the weighted spread of the candidates around their center, hence never smaller.

    Args:
        W_NN: Similarities, the answer first.
        w_M: Weights of the candidates; equal when omitted (the baseline).
        alpha: See `spectral_embedding`.
    """
    v_NK = spectral_embedding(W_NN, alpha)
    return float(_average(((_candidates(v_NK, w_M) - v_NK[0]) ** 2).sum(axis=1), w_M))


def cocoa(u: float, d: float) -> float:
    """The model's own uncertainty of the answer times its expected dissimilarity (paper, CoCoA)."""
    return u * d


# --- Agreement among the candidates ----------------------------------------------------------------------------------


def degree_matrix(W_MM: np.ndarray, w_M: np.ndarray | None = None) -> float:
    """Probability-weighted dissimilarity of two candidates, 1 - sum_ij w_i w_j W_ij; in [0, 1].

    With equal weights it is the known measure trace(M I - D) / M^2; the weighted form is ours. The answer plays no
    part.

    Args:
        W_MM: Similarities of the candidates.
        w_M: Weights; equal when omitted.
    """
    W_MM = _matrix(W_MM)
    _vector(W_MM[0], w_M)
    return float(min(1.0, max(0.0, 1.0 - _average(_average(W_MM, w_M), w_M))))


def semantic_clusters(
    W_MM: np.ndarray, threshold: float = 0.5, method: Literal["components", "first"] = "components"
) -> np.ndarray:
    """Cluster of each candidate: those that entail each other, both ways with at least `threshold`, mean the same.

    Mutual entailment need not be transitive. `components` then joins whatever is connected, which does not depend on
    the order of candidates (ours). `first` compares with the first member of each cluster in turn, as the original
    semantic entropy does.

    Args:
        W_MM: Similarities (probabilities of entailment) of the candidates.
        threshold: In (0, 1].
        method: `components` or `first`.

    Returns:
        int64 of shape (M,); numbers count from 0 in the order of first members.
    """
    if not 0 < threshold <= 1:
        raise ConfigError(f"The threshold of entailment is {threshold}.", "Use a number above 0, at most 1.")
    if method not in ("components", "first"):
        raise ConfigError(f"There is no method {method!r} to cluster by.", "Use components or first.")
    W_MM = _matrix(W_MM)
    same_MM = np.minimum(W_MM, W_MM.T) >= threshold
    cluster_M = np.full(len(W_MM), -1, dtype=np.int64)
    count = 0
    for seed in range(len(W_MM)):
        if cluster_M[seed] >= 0:
            continue
        members = same_MM[seed] & (cluster_M < 0)
        members[seed] = True
        if method == "components":
            size = 0
            while members.sum() > size:
                size = int(members.sum())
                members |= same_MM[members].any(axis=0)
        cluster_M[members] = count
        count += 1
    return cluster_M


def semantic_entropy(
    W_MM: np.ndarray,
    w_M: np.ndarray | None = None,
    threshold: float = 0.5,
    method: Literal["components", "first"] = "components",
) -> float:
    """Entropy of the meanings among the candidates, -sum_c P(c) log P(c) in nats, P(c) = sum of w_i in cluster c.

    With equal weights it is the discrete semantic entropy of samples; with a beam's, the paper's appendix.

    Args:
        W_MM: Similarities (probabilities of entailment) of the candidates.
        w_M: Weights; equal when omitted.
        threshold: See `semantic_clusters`.
        method: See `semantic_clusters`.
    """
    cluster_M = semantic_clusters(W_MM, threshold, method)
    if w_M is None:
        w_M = equal_weights(len(cluster_M))
    _vector(cluster_M, w_M)
    share_C = np.bincount(cluster_M, weights=w_M / w_M.sum())
    share_C = share_C[share_C > 0]
    return max(0.0, float(-(share_C * np.log(share_C)).sum()))


# --- The model's own word --------------------------------------------------------------------------------------------


def msp(logprobs_T: Sequence[float]) -> float:
    """Negative log-probability of the whole answer, in nats; NaN where no probabilities are known."""
    return -float(sum(logprobs_T)) + 0.0 if len(logprobs_T) else math.nan


def ppl(logprobs_T: Sequence[float]) -> float:
    """Mean negative log-probability of the answer's tokens (log-perplexity), in nats; NaN where none are known."""
    return msp(logprobs_T) / len(logprobs_T) if len(logprobs_T) else math.nan


def mte(answer: Answer) -> float:
    """Mean entropy of the next-token law over the answer's steps, in nats; NaN where it is unknown."""
    return float(answer.entropy)


# --- By name ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """What estimators see of one question.

    Attributes:
        answer: The answer under test.
        w_M: Weights of the candidates, summing to 1.
        d_M: Dissimilarity of each to the answer; None where no estimator needs it.
        W_NN: Directed similarities, the answer first; None where no estimator needs them.
        logprobs_M: Log-probabilities of the candidates, of merged ones together.
    """

    answer: Answer
    w_M: np.ndarray
    d_M: np.ndarray | None = None
    W_NN: np.ndarray | None = None
    logprobs_M: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def dissimilarities(self) -> np.ndarray:
        """`d_M`, which must be there."""
        assert self.d_M is not None
        return self.d_M

    @property
    def matrix(self) -> np.ndarray:
        """`W_NN`, which must be there."""
        assert self.W_NN is not None
        return self.W_NN


@dataclass(frozen=True)
class Estimator:
    """An uncertainty that can be asked for by name.

    Attributes:
        name: As it appears in reports.
        compute: From evidence to a number; larger is less certain.
        needs: `answer` (no similarities), `row` (those of the answer to the candidates, M pairs) or `matrix` (of all
            texts to all, (M + 1)^2 pairs).
    """

    name: str
    compute: Callable[[Evidence], float]
    needs: Needs = "row"


def _cocoa(u: Callable[[Answer], float]) -> Callable[[Evidence], float]:
    return lambda e: cocoa(u(e.answer), dissimilarity(e.dissimilarities, e.w_M))


ESTIMATORS: dict[str, Estimator] = {
    estimator.name: estimator
    for estimator in (
        Estimator("dissimilarity", lambda e: dissimilarity(e.dissimilarities, e.w_M)),
        Estimator("eccentricity", lambda e: eccentricity(e.matrix, e.w_M), "matrix"),
        Estimator("eigvec_dissimilarity", lambda e: eigvec_dissimilarity(e.matrix, e.w_M), "matrix"),
        Estimator("cocoa_msp", _cocoa(lambda answer: msp(answer.logprobs))),
        Estimator("cocoa_ppl", _cocoa(lambda answer: ppl(answer.logprobs))),
        Estimator("cocoa_mte", _cocoa(mte)),
        Estimator("semantic_entropy", lambda e: semantic_entropy(e.matrix[1:, 1:], e.w_M), "matrix"),
        Estimator("degree_matrix", lambda e: degree_matrix(e.matrix[1:, 1:], e.w_M), "matrix"),
        Estimator("msp", lambda e: msp(e.answer.logprobs), "answer"),
        Estimator("ppl", lambda e: ppl(e.answer.logprobs), "answer"),
        Estimator("mte", lambda e: mte(e.answer), "answer"),
    )
}
"""Estimators by name; `register` adds to them."""


def register(name: str, compute: Callable[[Evidence], float], needs: Needs = "row") -> Estimator:
    """Make an estimator known by name.

    Args:
        name: New.
        compute: From evidence to a number; larger is less certain.
        needs: What similarities it reads, see `Estimator`.

    Raises:
        ConfigError: The name is taken, or `needs` is unknown.
    """
    if not name or name in ESTIMATORS:
        raise ConfigError(f"The name {name!r} of an estimator is empty or taken.", "Choose another.")
    if needs not in ("answer", "row", "matrix"):
        raise ConfigError(f"An estimator cannot need {needs!r}.", "Use answer, row or matrix.")
    ESTIMATORS[name] = Estimator(name, compute, needs)
    return ESTIMATORS[name]


def find(estimators: Sequence[str | Estimator] | str | None = None) -> list[Estimator]:
    """Estimators by name, in order; all of them for None.

    Raises:
        ConfigError: There is no such estimator, or two have one name.
    """
    asked = list(ESTIMATORS) if estimators is None else [estimators] if isinstance(estimators, str) else estimators
    found = []
    for given in asked:
        if isinstance(given, str) and given not in ESTIMATORS:
            raise ConfigError(f"There is no estimator {given!r}.", f"Use {', '.join(ESTIMATORS)}.")
        found.append(ESTIMATORS[given] if isinstance(given, str) else given)
    if len({estimator.name for estimator in found}) < len(found):
        raise ConfigError("Two estimators have the same name.", "Give each its own.")
    return found


def score(
    candidates: CandidateSet,
    similarity: SimilarityLike,
    estimators: Sequence[str | Estimator] | str | None = None,
    mass_floor: float = 0.0,
    merge_texts: bool = False,
    *,
    weighting: Weighting = "auto",
    clean: Clean = clean_text,
) -> dict[str, float]:
    """Uncertainties of one answer, by name; see `score_many`."""
    return score_many(
        [candidates], similarity, estimators, mass_floor, merge_texts, weighting=weighting, clean=clean
    )[0]  # fmt: skip


def score_many(
    sets: Sequence[CandidateSet],
    similarity: SimilarityLike,
    estimators: Sequence[str | Estimator] | str | None = None,
    mass_floor: float = 0.0,
    merge_texts: bool = False,
    *,
    weighting: Weighting = "auto",
    clean: Clean = clean_text,
) -> list[dict[str, float]]:
    """Uncertainties of several answers; all pairs of texts go to the similarity in one call.

    Args:
        sets: Candidates of each question.
        similarity: See `similarity.as_similarity`; a `PairCache` keeps what it computed.
        estimators: Names or estimators; all when omitted.
        mass_floor: Least probability that a beam counts with, see `weights`.
        merge_texts: Whether candidates that read the same after cleaning become one, with the sum of their weights.
            Dissimilarity and CoCoA do not change; spectral scores do.
        weighting: See `candidate_weights`.
        clean: What is done to each text before it is compared.

    Returns:
        For each set the value of each estimator, larger for less certain; NaN where what it needs is unknown (token
        probabilities, entropies).

    Raises:
        ConfigError: An option is out of range.
        DataError: A set is empty or its log-probabilities are none.
    """
    found = find(estimators)
    needs: Needs = max((e.needs for e in found), key=("answer", "row", "matrix").index, default="answer")
    seen = gather(sets, similarity, needs, mass_floor, merge_texts, weighting=weighting, clean=clean)
    return [{estimator.name: float(estimator.compute(evidence)) for estimator in found} for evidence in seen]


def gather(
    sets: Sequence[CandidateSet],
    similarity: SimilarityLike,
    needs: Needs = "matrix",
    mass_floor: float = 0.0,
    merge_texts: bool = False,
    *,
    weighting: Weighting = "auto",
    clean: Clean = clean_text,
) -> list[Evidence]:
    """What estimators need of each set; see `score_many`."""
    compare = as_similarity(similarity)
    listed: list[tuple[Answer, list[str], np.ndarray, np.ndarray]] = []
    pairs: list[tuple[str, str]] = []
    for candidates in sets:
        places, w_M = candidate_weights(candidates, mass_floor, weighting)
        texts = [clean(candidates.texts[place]) for place in places]
        log_M = np.array(candidates.logprobs_M, dtype=np.float64)[places]
        if merge_texts:
            once = set(distinct(candidates))  # a repeated sample has its probability once
            log_M[[place not in once for place in places]] = -np.inf
            texts, w_M, log_M = _merge(texts, w_M, log_M)
        answer = clean(candidates.answer.text)
        listed.append((candidates.answer, [answer, *texts], w_M, log_M))
        if needs == "matrix":
            pairs += [(a, b) for a in listed[-1][1] for b in listed[-1][1]]
        elif needs == "row":
            pairs += [(answer, text) for text in texts]
    values = iter(np.split(compare.pairs(pairs), np.cumsum([_count(needs, len(texts)) for _, texts, _, _ in listed])))
    seen = []
    for answer_, texts, w_M, log_M in listed:
        own = next(values)
        W_NN = own.reshape(len(texts), len(texts)) if needs == "matrix" else None
        d_M = 1.0 - (own if W_NN is None else W_NN[0, 1:])
        seen.append(Evidence(answer_, w_M, None if needs == "answer" else d_M, W_NN, log_M))
    return seen


def _count(needs: Needs, n: int) -> int:
    return {"answer": 0, "row": n - 1, "matrix": n * n}[needs]


def dissimilarities(
    sets: Sequence[CandidateSet], similarity: SimilarityLike, *, clean: Clean = clean_text
) -> list[np.ndarray]:
    """Dissimilarity of every candidate to its set's answer, unmerged: float64 of shape (M,) a set."""
    compare = as_similarity(similarity)
    pairs = [(clean(one.answer.text), clean(text)) for one in sets for text in one.texts]
    ends = np.cumsum([len(one.texts) for one in sets])
    return [np.asarray(d_M) for d_M in np.split(1.0 - compare.pairs(pairs), ends[:-1])] if sets else []


def _merge(texts: list[str], w_M: np.ndarray, log_M: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
    place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    row_M = np.array([place[text] for text in texts])
    merged_M = np.full(len(place), -np.inf)
    np.logaddexp.at(merged_M, row_M, log_M)
    return list(place), np.bincount(row_M, weights=w_M), merged_M


def _vector(values: np.ndarray, w_M: np.ndarray | None) -> np.ndarray:
    values_M = np.asarray(values, dtype=np.float64)
    if values_M.ndim != 1 or not len(values_M):
        raise DataError("There are no candidates.", "Make at least one.")
    if w_M is not None and np.shape(w_M) != values_M.shape:
        raise DataError(f"{np.size(w_M)} weights came for {len(values_M)} candidates.", "Give one a candidate.")
    return values_M


def _candidates(v_NK: np.ndarray, w_M: np.ndarray | None) -> np.ndarray:
    _vector(v_NK[1:, 0], w_M)
    return v_NK[1:]


def _matrix(W: np.ndarray) -> np.ndarray:
    W_NN = np.asarray(W, dtype=np.float64)
    if W_NN.ndim != 2 or W_NN.shape[0] != W_NN.shape[1] or not len(W_NN):
        raise DataError(f"A matrix of similarities has the shape {W_NN.shape}.", "Give one row and column a text.")
    if not (np.isfinite(W_NN).all() and W_NN.min() >= 0):
        raise DataError("A similarity is negative, NaN or infinite.", "Map similarities to [0, 1].")
    return W_NN

"""Estimators: identities, invariances, and the sampling baselines to the last bit."""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty.candidates import Answer, CandidateSet, Kind
from intarsia.uncertainty.estimators import (
    ESTIMATORS,
    Estimator,
    Evidence,
    candidate_weights,
    cocoa,
    degree_matrix,
    dissimilarities,
    dissimilarity,
    eccentricity,
    eigvec_dissimilarity,
    equal_weights,
    hybrid_dissimilarity,
    hybrid_weights,
    msp,
    mte,
    ppl,
    register,
    score,
    score_many,
    semantic_clusters,
    semantic_entropy,
    spectral_embedding,
    weights,
)
from intarsia.uncertainty.similarity import as_similarity, clean_text

CONSISTENCY = ("dissimilarity", "eccentricity", "eigvec_dissimilarity", "semantic_entropy", "degree_matrix")
UNIT = ("dissimilarity", "degree_matrix")
few = settings(max_examples=20)
ANSWER = Answer("Paris", (1, 2, 3), (-0.1, -0.2, -0.03), entropy=0.4)


@lru_cache
def alike(a: str, b: str) -> float:
    """A directed similarity that is 1 for equal texts and otherwise arbitrary."""
    if a == b:
        return 1.0
    return int.from_bytes(hashlib.blake2b(f"{a}|{b}".encode(), digest_size=2).digest(), "big") / 65535


def a_set(
    texts: list[str],
    logprobs: list[float] | np.ndarray | None = None,
    kind: Kind = "beam",
    exact: int | None = None,
    answer: Answer = ANSWER,
    tokens: list[tuple[int, ...]] | None = None,
) -> CandidateSet:
    m = len(texts)
    log_M = np.full(m, -math.log(2 * m + 1)) if logprobs is None else np.asarray(logprobs, dtype=np.float64)
    whole = {"beam": m, "diverse": m, "sample": 0, "hybrid": m, "stored": 0}[kind]
    return CandidateSet(
        answer=answer,
        texts=tuple(texts),
        token_ids=tuple(tokens or [(i, 99) for i in range(m)]),
        logprobs_M=log_M,
        finished_M=np.ones(m, dtype=bool),
        kind=kind,
        exact=whole if exact is None else exact,
    )


words = st.sampled_from(["Paris", "Lyon", "Rome", "Nice", "Bonn", "Oslo"])
logs = st.floats(-40, 0)


@st.composite
def beams(draw: st.DrawFn) -> CandidateSet:
    m = draw(st.integers(1, 8))
    return a_set(
        draw(st.lists(words, min_size=m, max_size=m)),
        draw(st.lists(logs, min_size=m, max_size=m)),
        answer=Answer(draw(words), (1,), (-0.3,), 0.2),
    )


@st.composite
def graphs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Directed similarities with the answer first, and weights."""
    m = draw(st.integers(1, 7))
    W_NN = np.random.default_rng(draw(st.integers(0, 10**6))).random((m + 1, m + 1))
    np.fill_diagonal(W_NN, 1.0)
    return W_NN, weights(np.array(draw(st.lists(logs, min_size=m, max_size=m))))


# --- Weights ---------------------------------------------------------------------------------------------------------


@few
@given(st.lists(st.floats(-1e5, 0) | st.just(-np.inf), min_size=1), st.just(0.0) | st.floats(1e-12, 10))
def test_weights_sum_to_one(logprobs: list[float], floor: float) -> None:
    if floor == 0 and max(logprobs) == -np.inf:
        with pytest.raises(DataError, match="probability 0"):
            weights(np.array(logprobs))
        return
    w_M = weights(np.array(logprobs), floor)
    assert w_M.sum() == pytest.approx(1, abs=1e-12)
    assert (w_M >= 0).all()
    assert np.isfinite(w_M).all()


@few
@given(st.lists(st.floats(-30, 0), min_size=1, max_size=12), st.floats(0, 1))
def test_weights_are_the_formula(logprobs: list[float], floor: float) -> None:
    q_M = np.maximum(np.exp(logprobs), floor)
    assert weights(np.array(logprobs), floor) == pytest.approx(q_M / q_M.sum(), abs=1e-12)


@few
@given(st.lists(st.floats(-50, 0), min_size=1, max_size=12), st.floats(-1e4, 0))
def test_tiny_probabilities_keep_their_ratios(logprobs: list[float], shift: float) -> None:
    log_M = np.array(logprobs)
    assert weights(log_M + shift) == pytest.approx(weights(log_M), rel=1e-6, abs=1e-12)


@few
@given(beams(), st.floats(1, 1e6))
def test_a_large_floor_is_uniform_to_the_last_bit(candidates: CandidateSet, floor: float) -> None:
    assert (weights(candidates.logprobs_M, floor) == equal_weights(len(candidates.texts))).all()
    assert score(candidates, alike, mass_floor=floor) == score(candidates, alike, weighting="equal")


def test_probabilities_decide_the_score() -> None:
    candidates = a_set(["Paris", "Lyon"], np.log([0.9, 0.1]))
    assert score(candidates, "exact", ["dissimilarity"]) == {"dissimilarity": pytest.approx(0.1)}
    assert score(candidates, "exact", ["dissimilarity"], weighting="equal") == {"dissimilarity": 0.5}
    assert score(candidates, "exact", ["dissimilarity"], mass_floor=0.3) == {"dissimilarity": pytest.approx(0.25)}


@pytest.mark.parametrize("wrong", [[], [np.nan], [0.5, -1.0], [-np.inf, -np.inf]])
def test_what_is_no_log_probability_is_refused(wrong: list[float]) -> None:
    with pytest.raises(DataError):
        weights(np.array(wrong))


def test_a_floor_below_zero_is_refused() -> None:
    for floor in (-1e-3, math.nan):
        with pytest.raises(ConfigError, match="mass_floor"):
            weights(np.array([-1.0]), floor)
        with pytest.raises(ConfigError, match="mass_floor"):
            score(a_set(["a"], kind="sample"), "exact", mass_floor=floor)


# --- The hybrid ------------------------------------------------------------------------------------------------------


@few
@given(st.lists(st.floats(-30, -3), min_size=2, max_size=9), st.data())
def test_the_hybrid_is_beams_exactly_and_the_rest_by_samples(logprobs: list[float], data: st.DataObject) -> None:
    m = len(logprobs)
    exact = data.draw(st.integers(1, m - 1))
    d_M = np.array(data.draw(st.lists(st.floats(0, 1), min_size=m, max_size=m)))
    p_B = np.exp(logprobs[:exact])
    wanted = (p_B * d_M[:exact]).sum() + (1 - p_B.sum()) * d_M[exact:].mean()
    assert hybrid_dissimilarity(d_M, np.array(logprobs), exact) == pytest.approx(wanted, abs=1e-12)
    w_M = hybrid_weights(np.array(logprobs), exact)
    assert w_M.sum() == pytest.approx(1)
    assert w_M[:exact] == pytest.approx(p_B)


def test_a_hybrid_of_samples_only_or_beams_only() -> None:
    logprobs = np.log([0.5, 0.2, 0.1])
    assert (hybrid_weights(logprobs, 0) == equal_weights(3)).all()
    assert (hybrid_weights(logprobs, 3) == weights(logprobs)).all()
    full = hybrid_weights(np.log([0.9, 0.1, 0.3]), 2)  # nothing is left for the sample
    assert full == pytest.approx([0.9, 0.1, 0.0], abs=1e-12)
    with pytest.raises(ConfigError):
        hybrid_weights(logprobs, 4)
    with pytest.raises(DataError, match="distinct"):
        hybrid_weights(np.log([0.9, 0.8, 0.1]), 2)


def test_each_kind_has_its_weights() -> None:
    logprobs = np.log([0.5, 0.2, 0.1])
    texts = ["a", "b", "c"]
    by_probability, equal = weights(logprobs), equal_weights(3)
    for kind, exact, wanted in (
        ("beam", 3, by_probability),
        ("diverse", 3, by_probability),
        ("diverse", 0, by_probability),
        ("sample", 0, equal),
        ("hybrid", 2, hybrid_weights(logprobs, 2)),
        ("hybrid", 0, equal),
        ("hybrid", 3, by_probability),
        ("stored", 0, equal),
        ("stored", 2, hybrid_weights(logprobs, 2)),
        ("stored", 3, by_probability),
    ):
        places, w_M = candidate_weights(a_set(texts, logprobs, kind, exact))  # type: ignore[arg-type]
        assert places == [0, 1, 2]
        assert w_M == pytest.approx(wanted, abs=0)
    floored = candidate_weights(a_set(texts, logprobs, "hybrid", 2), mass_floor=0.4)[1]
    assert (floored == hybrid_weights(logprobs, 2)).all()  # unbiased as it is
    with pytest.raises(ConfigError):
        candidate_weights(a_set(texts), weighting="sorted")  # type: ignore[arg-type]


def test_samples_by_probability_count_once() -> None:
    samples = a_set(["a", "a", "b"], np.log([0.6, 0.6, 0.2]), "sample", tokens=[(1,), (1,), (2,)])
    assert candidate_weights(samples)[1].tolist() == equal_weights(3).tolist()
    places, w_M = candidate_weights(samples, weighting="probability")
    assert places == [0, 2]
    assert w_M == pytest.approx([0.75, 0.25])
    other = a_set(["a", "a", "b"], samples.logprobs_M, "sample", answer=Answer("a"), tokens=[(1,), (1,), (2,)])
    found = score(other, "exact", ["dissimilarity"], weighting="probability")
    assert found["dissimilarity"] == pytest.approx(0.25)


# --- Sampling baselines ----------------------------------------------------------------------------------------------


@few
@given(st.lists(words, min_size=1, max_size=10), words)
def test_samples_give_the_monte_carlo_estimators_to_the_last_bit(texts: list[str], own: str) -> None:
    answer = Answer(own, (1, 2), (-0.7, -0.2), 0.9)
    samples = a_set(texts, [-1e4] * len(texts), "sample", answer=answer)
    found = score(samples, alike)
    d_M = np.array([1.0 - alike(own, text) for text in texts])
    z = [own, *texts]
    W_NN = np.array([[alike(a, b) for b in z] for a in z])
    v_NK = spectral_embedding(W_NN)
    assert found["dissimilarity"] == d_M.mean()
    assert found["eccentricity"] == ((v_NK[0] - v_NK[1:].mean(axis=0)) ** 2).sum()
    assert found["eigvec_dissimilarity"] == ((v_NK[1:] - v_NK[0]) ** 2).sum(axis=1).mean()
    assert found["cocoa_msp"] == (0.7 + 0.2) * d_M.mean()
    assert found["degree_matrix"] == pytest.approx(1 - W_NN[1:, 1:].mean(), abs=1e-12)
    same = a_set(texts, [-1.0] * len(texts), answer=answer)  # beams of equal probability
    assert score(same, alike) == found


def test_degree_matrix_is_the_known_measure() -> None:
    W_MM = np.array([[1, 0.2, 0.4], [0.6, 1, 0.1], [0.4, 0.3, 1]])
    degrees = np.diag(W_MM.sum(axis=1))
    assert degree_matrix(W_MM) == pytest.approx(np.trace(3 * np.eye(3) - degrees) / 9)
    w_M = np.array([0.7, 0.2, 0.1])
    assert degree_matrix(W_MM, w_M) == pytest.approx(1 - w_M @ W_MM @ w_M)
    assert degree_matrix(W_MM, w_M) < degree_matrix(W_MM)


# --- Identities ------------------------------------------------------------------------------------------------------


@few
@given(graphs())
def test_eigvec_is_eccentricity_plus_spread(graph: tuple[np.ndarray, np.ndarray]) -> None:
    W_NN, w_M = graph
    v_NK = spectral_embedding(W_NN)
    center_K = w_M @ v_NK[1:]
    spread = float(w_M @ ((v_NK[1:] - center_K) ** 2).sum(axis=1))
    assert eigvec_dissimilarity(W_NN, w_M) == pytest.approx(eccentricity(W_NN, w_M) + spread, abs=1e-9)
    assert eigvec_dissimilarity(W_NN, w_M) >= eccentricity(W_NN, w_M) - 1e-12
    assert -1e-12 <= eccentricity(W_NN, w_M) <= 2 + 1e-9


@few
@given(beams(), st.floats(0, 1))
def test_cocoa_is_a_product(candidates: CandidateSet, floor: float) -> None:
    found = score(candidates, alike, mass_floor=floor)
    for u in ("msp", "ppl", "mte"):
        assert found[f"cocoa_{u}"] == found[u] * found["dissimilarity"] == cocoa(found[u], found["dissimilarity"])


@few
@given(graphs(), st.sampled_from([0.5, 0.9, 1.2]))
def test_the_embedding_is_that_of_the_normalized_laplacian(graph: tuple[np.ndarray, np.ndarray], alpha: float) -> None:
    import scipy.linalg
    from scipy.sparse.csgraph import laplacian

    W_NN = (graph[0] + graph[0].T) / 2
    # scipy leaves self-loops out of the degrees, so that the definition is written out for them.
    degree_N = W_NN.sum(axis=1)
    own = np.diag(degree_N) - W_NN
    assert np.allclose(own, laplacian(W_NN), atol=1e-12)
    values, vectors_NN = scipy.linalg.eigh(own / np.sqrt(np.outer(degree_N, degree_N)))
    kept_NK = vectors_NN[:, values < alpha]
    v_NK = spectral_embedding(graph[0], alpha)
    assert np.allclose(v_NK @ v_NK.T, kept_NK @ kept_NK.T, atol=1e-8)  # free of signs and rotations


def test_what_two_clusters_look_like() -> None:
    same, other = np.ones((3, 3)), np.zeros((3, 2))
    W_NN = np.block([[same, other], [other.T, np.ones((2, 2))]])
    v_NK = spectral_embedding(W_NN)
    assert v_NK.shape == (5, 2)
    assert eigvec_dissimilarity(W_NN, np.array([0.5, 0.5, 0, 0])) == pytest.approx(0, abs=1e-12)
    assert eigvec_dissimilarity(W_NN, np.array([0, 0, 0.5, 0.5])) == pytest.approx(1 / 3 + 1 / 2)
    assert eccentricity(W_NN) > 0.1


def test_a_text_without_any_similarity_is_alone() -> None:
    W_NN = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.0]])
    with_self = W_NN.copy()
    with_self[2, 2] = 1.0
    assert eigvec_dissimilarity(W_NN) == eigvec_dissimilarity(with_self) > 0
    assert np.isfinite(spectral_embedding(np.zeros((4, 4)))).all()


def test_equal_eigenvalues_are_not_parted_at_the_cut() -> None:
    # All eigenvalues but the first are exactly 0.9, up to rounding; keeping some would make the score arbitrary.
    n = 9
    W_NN = np.full((n, n), 0.1) + np.eye(n) * (0.1 * 9 / 9)
    degree = W_NN.sum(axis=1)[0]
    assert 1 - 0.1 / degree == pytest.approx(0.9)
    assert spectral_embedding(W_NN).shape == (n, 1)
    assert spectral_embedding(W_NN, alpha=0.91).shape == (n, n)


# --- Invariances -----------------------------------------------------------------------------------------------------


@few
@given(beams(), st.randoms(use_true_random=False), st.floats(0, 1))
def test_the_order_of_candidates_does_not_matter(candidates: CandidateSet, random: object, floor: float) -> None:
    order = list(range(len(candidates.texts)))
    random.shuffle(order)  # type: ignore[attr-defined]
    moved = a_set(
        [candidates.texts[i] for i in order], candidates.logprobs_M[order], answer=candidates.answer,
        tokens=[candidates.token_ids[i] for i in order],
    )  # fmt: skip
    there, here = score(moved, alike, mass_floor=floor), score(candidates, alike, mass_floor=floor)
    assert there == pytest.approx(here, abs=1e-8)


@few
@given(beams(), st.data())
def test_a_candidate_in_two_parts_changes_no_dissimilarity(candidates: CandidateSet, data: st.DataObject) -> None:
    i = data.draw(st.integers(0, len(candidates.texts) - 1))
    part = data.draw(st.floats(0.01, 0.99))
    log_M = candidates.logprobs_M.copy()
    split_M = np.append(log_M, log_M[i] + math.log(1 - part))
    split_M[i] += math.log(part)
    parted = a_set([*candidates.texts, candidates.texts[i]], split_M, answer=candidates.answer)
    here, there = score(candidates, alike), score(parted, alike)
    for name in ("dissimilarity", "degree_matrix", "semantic_entropy", "cocoa_msp", "cocoa_ppl", "cocoa_mte"):
        assert there[name] == pytest.approx(here[name], abs=1e-9)


@few
@given(beams(), st.floats(0, 1), st.sampled_from(["beam", "sample", "diverse"]))
def test_merging_equal_texts_changes_no_dissimilarity(candidates: CandidateSet, floor: float, kind: Kind) -> None:
    padded = [f" {text}" if i % 2 else text for i, text in enumerate(candidates.texts)]  # "Paris" and " Paris"
    loose = a_set(padded, candidates.logprobs_M, kind, answer=candidates.answer)
    apart = score(loose, alike, mass_floor=floor)
    merged = score(loose, alike, mass_floor=floor, merge_texts=True)
    for name in ("dissimilarity", "degree_matrix", "semantic_entropy", "cocoa_msp", "cocoa_ppl", "cocoa_mte"):
        assert merged[name] == pytest.approx(apart[name], abs=1e-9)


def test_merging_sums_probabilities_and_changes_spectral_scores() -> None:
    candidates = a_set(["Paris", " Paris", "Lyon"], np.log([0.5, 0.2, 0.1]))
    seen: list[Evidence] = []
    spy = Estimator("spy", lambda evidence: seen.append(evidence) or 0.0, "row")  # type: ignore[func-returns-value]
    apart, merged = score(candidates, alike), score(candidates, alike, [*ESTIMATORS.values(), spy], merge_texts=True)
    assert merged["eccentricity"] != pytest.approx(apart["eccentricity"], abs=1e-6)
    assert seen[0].w_M == pytest.approx([7 / 8, 1 / 8])
    assert np.exp(seen[0].logprobs_M) == pytest.approx([0.7, 0.1])


@few
@given(beams())
def test_ranges(candidates: CandidateSet) -> None:
    found = score(candidates, alike)
    assert all(0 <= found[name] <= 1 for name in UNIT)
    assert 0 <= found["semantic_entropy"] <= math.log(len(candidates.texts)) + 1e-9
    assert all(math.isfinite(value) and value >= 0 for value in found.values())


@few
@given(st.integers(1, 9), st.lists(logs, min_size=9, max_size=9))
@pytest.mark.parametrize("similarity", [alike, "jaccard"], ids=["arbitrary", "jaccard"])
def test_identical_texts_are_certain(similarity: object, m: int, logprobs: list[float]) -> None:
    for kind in ("beam", "sample"):
        found = score(
            a_set(["Paris."] * m, logprobs[:m], kind, answer=Answer("Paris.", (1,), (-2.0,), 1.0)), similarity
        )  # type: ignore[arg-type]
        for name in (*CONSISTENCY, "cocoa_msp", "cocoa_ppl", "cocoa_mte"):
            assert found[name] == pytest.approx(0, abs=1e-9), name
        assert found["msp"] == 2.0


@few
@given(beams())
def test_log_probabilities_far_below_the_smallest_float(candidates: CandidateSet) -> None:
    deep = a_set(list(candidates.texts), candidates.logprobs_M - 1e4, answer=candidates.answer)
    assert score(deep, alike) == pytest.approx(score(candidates, alike), abs=1e-8)


def test_one_candidate_and_empty_texts() -> None:
    one = a_set(["Paris"], [-0.4])
    found = score(one, "jaccard")
    assert all(found[name] == pytest.approx(0, abs=1e-12) for name in CONSISTENCY)
    empty = a_set(["", " \n", "Lyon"], np.log([0.5, 0.25, 0.25]), answer=Answer("", (9,), (-0.1,)))
    for similarity in ("exact", "jaccard", "rouge-l"):
        assert score(empty, similarity)["dissimilarity"] == pytest.approx(0.25)


# --- Meanings --------------------------------------------------------------------------------------------------------


def test_clusters_need_entailment_both_ways() -> None:
    W_MM = np.array([[1, 0.9, 0.9], [0.2, 1, 0.9], [0.8, 0.1, 1]])
    assert semantic_clusters(W_MM).tolist() == [0, 1, 0]
    assert semantic_clusters(W_MM, threshold=0.15).tolist() == [0, 0, 0]
    w_M = np.array([0.5, 0.2, 0.3])
    assert semantic_entropy(W_MM, w_M) == pytest.approx(-(0.8 * math.log(0.8) + 0.2 * math.log(0.2)))
    assert semantic_entropy(W_MM) == pytest.approx(-(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3)))


def test_chains_of_meaning() -> None:
    chain = np.array([[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1.0]])
    assert semantic_clusters(chain).tolist() == [0, 0, 0, 1]
    assert semantic_clusters(chain, method="first").tolist() == [0, 0, 1, 2]
    moved = chain[np.ix_([1, 0, 2, 3], [1, 0, 2, 3])]
    assert semantic_clusters(moved, method="first").tolist() == [0, 0, 0, 1]  # the original depends on the order
    with pytest.raises(ConfigError):
        semantic_clusters(chain, method="last")  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        semantic_clusters(chain, threshold=0)


# --- The answer's own ------------------------------------------------------------------------------------------------


def test_plain_baselines() -> None:
    found = score(a_set(["Lyon"]), "exact", ["msp", "ppl", "mte"])
    assert found == {"msp": pytest.approx(0.33), "ppl": pytest.approx(0.11), "mte": 0.4}
    unknown = Answer("Paris")
    assert math.isnan(msp(unknown.logprobs))
    assert math.isnan(ppl(unknown.logprobs))
    assert math.isnan(mte(unknown))
    assert math.isnan(score(a_set(["Lyon"], answer=unknown), "exact", "cocoa_msp")["cocoa_msp"])


# --- By name ---------------------------------------------------------------------------------------------------------


def test_only_the_pairs_that_are_needed_are_computed() -> None:
    candidates = a_set(["Lyon", "Rome", "Lyon"])
    for names, count in ((["msp"], 0), (["dissimilarity", "cocoa_ppl"], 2), (["eccentricity"], 6)):
        cache = as_similarity(alike)
        score(candidates, cache, names)
        assert cache.computed == count


def test_many_sets_are_scored_as_one_by_one_with_one_call() -> None:
    calls = []

    def many(pairs: list[tuple[str, str]]) -> list[float]:
        calls.append(len(pairs))
        return [alike(a, b) for a, b in pairs]

    sets = [a_set(["Lyon", "Rome"]), a_set(["Nice"], kind="sample"), a_set(["Lyon", "Bonn", "Oslo"], kind="hybrid")]
    found = score_many(sets, many)
    assert len(calls) == 1
    assert found == [score(one, alike) for one in sets]
    assert score_many([], many) == []
    assert dissimilarities([], many) == []
    d = dissimilarities(sets, alike)
    assert [one.tolist() for one in d] == [[1 - alike("Paris", text) for text in s.texts] for s in sets]


def test_the_answer_is_the_premise() -> None:
    found = score(a_set(["Lyon"]), lambda a, b: float((a, b) != ("Lyon", "Paris")), "dissimilarity")
    assert found["dissimilarity"] == 0.0
    found = score(a_set(["Lyon"]), lambda a, b: float((a, b) != ("Paris", "Lyon")), "dissimilarity")
    assert found["dissimilarity"] == 1.0


def test_texts_are_cleaned_before_they_are_compared() -> None:
    candidates = a_set(["Answer: **Paris**<|im_end|>", "Paris\nQuestion"])
    assert score(candidates, "exact", "dissimilarity")["dissimilarity"] == 0.0
    assert score(candidates, alike, "dissimilarity", clean=lambda text: text)["dissimilarity"] > 0.0
    assert clean_text(candidates.texts[0]) == "Paris"


def test_a_registered_estimator_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(ESTIMATORS):
        monkeypatch.setitem(ESTIMATORS, name, ESTIMATORS[name])
    monkeypatch.setitem(ESTIMATORS, "worst", ESTIMATORS["msp"])
    del ESTIMATORS["worst"]
    register("worst", lambda evidence: float(evidence.dissimilarities.max()), "row")
    assert score(a_set(["Paris", "Lyon"]), "exact", ["worst"]) == {"worst": 1.0}
    with pytest.raises(ConfigError, match="taken"):
        register("worst", lambda evidence: 0.0)
    with pytest.raises(ConfigError, match="need"):
        register("new", lambda evidence: 0.0, "all")  # type: ignore[arg-type]


def test_unknown_names_and_shapes_are_refused() -> None:
    with pytest.raises(ConfigError, match="no estimator"):
        score(a_set(["a"]), "exact", ["entropy"])
    with pytest.raises(ConfigError, match="same name"):
        score(a_set(["a"]), "exact", ["msp", "msp"])
    with pytest.raises(DataError, match="no candidates"):
        score(a_set([], []), "exact")
    with pytest.raises(DataError, match="weights"):
        dissimilarity(np.zeros(2), np.ones(3) / 3)
    for wrong in (np.zeros((2, 3)), np.array([[np.nan]]), np.array([[-1.0]]), np.zeros((0, 0))):
        with pytest.raises(DataError):
            spectral_embedding(wrong)
    with pytest.raises(ConfigError, match="alpha"):
        spectral_embedding(np.eye(2), alpha=0)
    with pytest.raises(DataError):
        eccentricity(np.eye(1))

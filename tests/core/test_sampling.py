from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from intarsia.core.errors import ModelError
from intarsia.core.sampling import (
    Sampling,
    choose,
    philox,
    random_words,
    request_key,
    token_logprobs,
    transform_logits,
    uniform,
)

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)

# Known answers that come with the Random123 library (philox4x32, 10 rounds): counter, key, words.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
@pytest.mark.parametrize("kind", ["python", "numpy", "torch"])
def test_philox_gives_the_known_answers(counter, key, words, kind):
    wrap = {"python": int, "numpy": lambda x: np.array(x, dtype=np.int64), "torch": lambda x: torch.tensor([x])}[kind]
    assert tuple(int(w) for w in philox(tuple(wrap(c) for c in counter), key)) == words


@given(seed=U64, request=U64, position=U32, stream=U32)
@settings(max_examples=100, deadline=None)
def test_numpy_and_torch_agree_bit_for_bit(seed, request, position, stream):
    requests = np.array([request, request ^ 1], dtype=np.uint64)
    positions = np.array([[position], [position // 2]])
    a = uniform(seed, requests, positions, stream)
    b = uniform(seed, torch.from_numpy(requests.view(np.int64)), torch.from_numpy(positions), stream)
    assert a.shape == b.shape == (2, 2)
    assert np.array_equal(a, b.numpy())
    assert float(uniform(seed, request, position, stream)) == a[0, 0]
    assert ((a >= 0) & (a < 1)).all()


def test_the_arguments_fill_different_parts_of_the_counter():
    seen = {
        tuple(int(w) for w in random_words(seed, request, position, stream))
        for seed in (0, 1, 1 << 32)
        for request in (0, 1, 1 << 32)
        for position in (0, 1)
        for stream in (0, 1)
    }
    assert len(seen) == 36


def test_words_have_the_broadcast_shape_even_where_an_argument_is_a_number():
    assert uniform(1, 2, np.arange(5)).shape == (5,)
    assert uniform(1, np.arange(3, dtype=np.uint64)[:, None], np.arange(5)).shape == (3, 5)
    assert uniform(1, 2, torch.arange(5), torch.arange(2)[:, None]).shape == (2, 5)
    assert uniform(1, 2, 3).shape == ()


def test_counters_must_be_integers():
    with pytest.raises(ValueError, match="integers"):
        uniform(0, 1, np.array([0.5]))


def test_uniform_numbers_are_uniform_and_uncorrelated():
    u = uniform(7, request_key("uniform"), np.arange(200_000))
    assert stats.kstest(u, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.01
    across = uniform(7, np.array([request_key(str(i)) for i in range(20_000)], dtype=np.uint64), 0)
    assert stats.kstest(across, "uniform").pvalue > 1e-3


def test_request_keys_are_stable_across_processes():
    assert request_key("gsm8k/17") == request_key("gsm8k/17") != request_key("gsm8k/18")
    code = "from intarsia.core.sampling import request_key; print(request_key('gsm8k/17'))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(out) == request_key("gsm8k/17")


def test_importing_the_sampler_does_not_import_torch():
    code = (
        "import sys, numpy; from intarsia.core.sampling import uniform; uniform(0, 1, numpy.arange(3));"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def logits(rows: int, width: int, seed: int = 0, scale: float = 2.0) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * scale


def warped(scores: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """The same law through transformers' own classes."""
    from transformers.generation.logits_process import (
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    scores = TemperatureLogitsWarper(sampling.temperature)(None, scores.double())
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(None, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(None, scores)
    if sampling.min_p:
        scores = MinPLogitsWarper(sampling.min_p)(None, scores)
    return scores


@given(
    temperature=st.sampled_from([0.3, 0.7, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 5, 40, 5000]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    seed=st.integers(0, 50),
    width=st.sampled_from([7, 300, 2000]),
)
@settings(max_examples=150, deadline=None)
def test_filters_are_those_of_transformers(temperature, top_k, top_p, min_p, seed, width):
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    scores = logits(3, width, seed)
    ours, theirs = transform_logits(scores, sampling), warped(scores, sampling)
    assert torch.equal(ours.isfinite(), theirs.isfinite())
    assert torch.allclose(ours[ours.isfinite()], theirs[theirs.isfinite()], rtol=0, atol=1e-12)


def test_a_flat_law_needs_the_whole_vocabulary_sorted():
    sampling = Sampling(temperature=1.0, top_p=0.9)
    scores = logits(2, 4000, scale=0.01)
    assert torch.equal(transform_logits(scores, sampling).isfinite(), warped(scores, sampling).isfinite())
    assert transform_logits(scores, sampling).isfinite().sum(-1).min() > 3000


def test_ties_at_the_edge_are_all_kept():
    scores = torch.zeros(1, 6)
    assert transform_logits(scores, Sampling(temperature=1.0, top_p=0.5)).isfinite().all()
    assert transform_logits(scores, Sampling(temperature=1.0, top_k=2)).isfinite().all()


def test_a_greedy_choice_has_no_law():
    with pytest.raises(ValueError, match="greedy"):
        transform_logits(torch.zeros(1, 3), Sampling())


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=0.6, top_k=6),
        Sampling(temperature=1.3, top_p=0.8),
        Sampling(temperature=1.0, min_p=0.1),
    ],
)
def test_choices_follow_the_law(sampling):
    n, scores = 20_000, logits(1, 12, 3, scale=1.0)
    uniforms = uniform(11, request_key("law"), np.arange(n))
    tokens = choose(scores.expand(n, -1), uniforms, sampling)
    law = transform_logits(scores, sampling).softmax(-1)[0].numpy()
    counts = np.bincount(tokens.numpy(), minlength=12)
    assert counts[law == 0].sum() == 0
    kept = law > 0
    assert stats.chisquare(counts[kept], law[kept] * n).pvalue > 1e-3


@given(order=st.permutations(list(range(9))), seed=st.integers(0, 20))
@settings(max_examples=50, deadline=None)
def test_choices_do_not_depend_on_the_batch(order, seed):
    sampling = Sampling(temperature=0.9, top_k=50, top_p=0.95, min_p=0.01, seed=seed)
    scores = logits(9, 400, seed)
    keys = np.array([request_key(f"item-{i}") for i in range(9)], dtype=np.uint64)
    together = choose(scores, uniform(seed, keys, 4), sampling)
    shuffled = choose(scores[list(order)], uniform(seed, keys[list(order)], 4), sampling)
    alone = [int(choose(scores[i : i + 1], uniform(seed, keys[i : i + 1], 4), sampling)) for i in range(9)]
    assert together.tolist() == alone
    assert [together.tolist()[i] for i in order] == shuffled.tolist()


def test_many_rows_are_worked_on_in_chunks_with_the_same_result(monkeypatch):
    sampling = Sampling(temperature=1.0, top_p=0.9)
    scores, uniforms = logits(17, 100), uniform(0, 1, np.arange(17))
    whole, logprobs = choose(scores, uniforms, sampling), token_logprobs(scores, torch.arange(17))
    monkeypatch.setattr("intarsia.core.sampling._CHUNK", 300)
    assert torch.equal(choose(scores, uniforms, sampling), whole)
    assert torch.equal(token_logprobs(scores, torch.arange(17)), logprobs)
    assert torch.allclose(logprobs, scores.log_softmax(-1)[torch.arange(17), torch.arange(17)], atol=1e-6)


@pytest.mark.parametrize("number", [0.0, 0.5, float(np.nextafter(1.0, 0.0))])
def test_extreme_uniform_numbers_choose_a_possible_token(number):
    scores = torch.tensor([[-float("inf"), 0.3, -float("inf"), 0.1, -float("inf")]])
    assert int(choose(scores, [number], Sampling(temperature=1.0))) in (1, 3)
    assert int(choose(scores, [number], Sampling())) == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bad_logits_are_refused_in_one_line(bad, temperature):
    scores = logits(3, 10)
    scores[1, 4] = bad
    with pytest.raises(ModelError, match="NaN or infinite logits for 1 of 3 rows") as caught:
        choose(scores, [0.5] * 3, Sampling(temperature=temperature))
    assert "float32" in caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_row_without_any_possible_token_is_refused():
    with pytest.raises(ModelError):
        choose(torch.full((1, 4), -float("inf")), [0.5], Sampling(temperature=1.0))

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from intarsia.core.errors import ConfigError
from intarsia.core.local import LocalTarget
from intarsia.core.sampling import Sampling, choose
from intarsia.uncertainty.law import Law
from intarsia.uncertainty.sampling import Sample, draw
from intarsia.uncertainty.trie import TrieSampler
from intarsia.uncertainty.walk import walk
from tests.uncertainty.laws import forced, letter_model, letter_tokenizer, never_ending, random_law

PROMPTS = ["ab", "abcdefgh", "p"]


def test_draws_are_those_of_the_one_sampler() -> None:
    rng = np.random.default_rng(0)
    logprobs = torch.from_numpy(rng.normal(size=(7, 50), scale=3)).float().log_softmax(dim=-1)
    logprobs[2, 10:] = -float("inf")
    rows, uniforms = rng.integers(0, 7, 200), rng.random(200)
    uniforms[:3] = [0.0, 1 - 2**-53, 0.5]
    want = choose(logprobs[torch.from_numpy(rows)], uniforms, Sampling(temperature=1.0))
    assert draw(logprobs, rows, uniforms).tolist() == want.tolist()


def test_factors_change_the_law_of_their_row_only() -> None:
    logprobs = torch.full((2, 4), np.log(0.25))
    uniforms = np.linspace(0, 0.999, 400)
    factors = {1: (np.array([0, 2]), np.array([0.0, 0.5]))}
    plain = np.bincount(draw(logprobs, np.zeros(400, dtype=int), uniforms, factors), minlength=4)
    changed = np.bincount(draw(logprobs, np.ones(400, dtype=int), uniforms, factors), minlength=4)
    assert plain / 400 == pytest.approx([0.25] * 4, abs=0.01)
    assert changed / 400 == pytest.approx([0, 0.4, 0.2, 0.4], abs=0.01)


def test_samples_follow_the_law() -> None:
    law = random_law(7, size=4, peak=1.0)
    truth = {path.tokens: np.exp(path.logprob) for path in law.enumerate("x")}
    made = TrieSampler(law, m=4000).generate(["x"], ["x"])[0]
    counts = Counter(made.token_ids)
    assert set(counts) <= set(truth)
    likely = [tokens for tokens, p in truth.items() if p * 4000 >= 5]
    rest = 4000 - sum(counts[t] for t in likely)
    observed = [*(counts[t] for t in likely), rest]
    expected = [*(truth[t] * 4000 for t in likely), (1 - sum(truth[t] for t in likely)) * 4000]
    assert chisquare(np.array(observed) + 1e-9, np.array(expected) * sum(observed) / sum(expected) + 1e-9).pvalue > 1e-3
    assert made.kind == "sample"
    assert made.exact == 0
    assert made.mass == 0.0


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_trie_draws_the_same_samples_in_fewer_rows(temperature: float) -> None:
    law = Law(letter_model(), letter_tokenizer(), max_new_tokens=6, temperature=temperature)
    plain, trie = Sample(law, m=20, seed=3), TrieSampler(law, m=20, seed=3)
    for one, other in zip(plain.generate(PROMPTS, PROMPTS), trie.generate(PROMPTS, PROMPTS)):
        assert one.token_ids == other.token_ids
        assert one.texts == other.texts
        assert one.logprobs_M == pytest.approx(other.logprobs_M, abs=1e-5)
        assert one.answer.token_ids == other.answer.token_ids
    with torch.inference_mode():
        prefill = law.prefill(PROMPTS)
        rows = [walk(prefill, plain.walkers(prefill, PROMPTS), share=share) for share in (False, True)]
    assert rows[1] < rows[0]


def test_first_sample_is_what_the_target_draws() -> None:
    """The law, its ends and its random numbers against the decoding loop that every other study uses."""
    target = LocalTarget(letter_model(), letter_tokenizer())
    made = Sample(Law.of(target, max_new_tokens=8), m=3, seed=5).generate(PROMPTS, PROMPTS)
    sampling = Sampling(temperature=1.0, seed=5, max_new_tokens=8, stop=("\n",), logprobs=True)
    greedy = Sampling(max_new_tokens=8, stop=("\n",), logprobs=True)
    for kind in (sampling, greedy):
        for one, completion in zip(made, target.generate(PROMPTS, kind, keys=PROMPTS)):
            if kind is greedy:
                answer = one.answer
                tokens, text, logprob, finished = answer.token_ids, answer.text, answer.logprob, answer.finished
            else:
                tokens, text, logprob, finished = one.token_ids[0], one.texts[0], one.logprobs_M[0], one.finished_M[0]
            assert completion.logprobs is not None
            assert tokens == completion.token_ids
            assert text in (completion.text.strip(), "(no answer)")
            assert logprob == pytest.approx(sum(completion.logprobs), abs=1e-4)
            assert finished == (completion.finish_reason == "stop")


def test_logprobs_are_of_the_tempered_law() -> None:
    model, tokenizer = letter_model(), letter_tokenizer()
    made = Sample(Law(model, tokenizer, temperature=0.6, max_new_tokens=4), m=5).generate(["abc"], ["k"])[0]
    for tokens, logprob in zip(made.token_ids, made.logprobs_M):
        assert logprob == pytest.approx(sum(forced(model, tokenizer("abc")["input_ids"], tokens, 0.6)), abs=1e-4)


def test_a_sample_depends_on_seed_key_and_number_alone() -> None:
    law = random_law(9, peak=2.0)
    few, many = Sample(law, m=3).generate(["x"], ["k"])[0], Sample(law, m=30).generate(["yy", "x"], ["j", "k"])[1]
    assert few.token_ids == many.token_ids[:3]
    assert Sample(law, m=30, seed=1).generate(["x"], ["k"])[0].token_ids != many.token_ids
    assert Sample(law, m=30).generate(["x"], ["other"])[0].token_ids != many.token_ids
    assert len(set(many.token_ids)) > 3


def test_merging_leaves_samples_alone_and_never_ending_ones_are_flagged() -> None:
    made = Sample(never_ending(), m=12, merge_texts=True).generate(["x"], ["k"])[0]
    assert len(made.texts) == 12
    assert not made.finished_M.any()
    with pytest.raises(ConfigError):
        Sample(m=2, seed=-1)


def test_samples_of_no_prompts(tiny_model: Any) -> None:
    assert Sample(random_law(), m=2).generate([], []) == []

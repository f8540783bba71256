"""The enumerated law is the model's own, and the real searches and estimators reach what can be reached on it."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.hybrid import Hybrid
from intarsia.uncertainty.law import Law
from intarsia.uncertainty.proof.acceptance import contest, equal, estimates, exactness, jaccard, unbiased, unbiased_by
from intarsia.uncertainty.proof.enumerable import END, FIRST, EnumerableLM
from intarsia.uncertainty.proof.laws import expected_errors
from intarsia.uncertainty.sampling import Sample


@pytest.fixture(scope="module")
def small() -> EnumerableLM:
    return EnumerableLM(symbols=3, longest=2, seed=5)


@pytest.fixture(scope="module")
def wide() -> EnumerableLM:
    return EnumerableLM()


def law_of(lm: EnumerableLM) -> Law:
    return Law(lm.model, lm.tokenizer, stops=(), max_new_tokens=lm.longest + 1)


def test_enumeration_is_what_the_model_says(wide: EnumerableLM) -> None:
    known = wide.enumerate(wide.prompts(3))
    assert known.probs_NA.shape == (3, 20 + 400 + 8000)
    np.testing.assert_allclose(known.probs_NA.sum(1), 1.0, atol=1e-12)
    target = wide.target()
    places = [0, 19, 20, 333, 419, 420, 5000, 8419, *known.top(3)[1]]
    for row, prompt in enumerate(known.prompts):
        scores = target.score([prompt] * len(places), [f" {known.texts[place]} <end>" for place in places])
        said = [sum(score.logprobs) for score in scores]
        np.testing.assert_allclose(said, np.log(known.probs_NA[row, places]), rtol=1e-5, atol=1e-5)
    answers = target.generate(list(known.prompts))
    assert [answer.text for answer in answers] == [known.texts[place] for place in known.greedy_N]


def test_padding_and_batches_change_nothing(wide: EnumerableLM) -> None:
    import torch

    model, short, long = wide.model, wide.encode("a b ?"), wide.encode("c a d a b ?")
    ids = torch.tensor([[0, 0, 0, *short], long])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1], [1] * 6])
    both = model(input_ids=ids, attention_mask=mask).logits[:, -1]
    alone = [model(input_ids=torch.tensor([row])).logits[0, -1] for row in (short, long)]
    assert torch.equal(both[0], alone[0])
    assert torch.equal(both[1], alone[1])
    assert not torch.allclose(both[0], both[1])


def test_transformers_own_beam_search_runs_on_it(small: EnumerableLM) -> None:
    import torch

    known = small.enumerate(small.prompts(1))
    out = small.model.generate(
        torch.tensor([small.encode(known.prompts[0])]),
        attention_mask=torch.ones(1, 5, dtype=torch.long),
        num_beams=12,
        num_return_sequences=4,
        length_penalty=0.0,
        early_stopping="never",
        do_sample=False,
        max_new_tokens=3,
        return_dict_in_generate=True,
        output_scores=True,
    )
    texts = small.tokenizer.batch_decode(out.sequences[:, 5:], skip_special_tokens=True)
    top = known.top(4)[0]
    assert texts == [known.texts[place] for place in top]
    np.testing.assert_allclose(out.sequences_scores.numpy(), np.log(known.probs_NA[0, top]), atol=1e-5)


def test_prompts_differ_in_sharpness(wide: EnumerableLM) -> None:
    mass = expected_errors(wide.enumerate(wide.prompts(100)).laws()).mass_N
    assert (mass < 0.5).sum() >= 10
    assert (mass > 0.909).sum() >= 20
    assert len(set(wide.prompts(500))) == 500
    other = EnumerableLM(seed=1)
    assert not np.allclose(other.enumerate(other.prompts(1)).probs_NA, wide.enumerate(wide.prompts(1)).probs_NA)


def test_dissimilarities(small: EnumerableLM) -> None:
    known = small.enumerate(small.prompts(4))
    np.testing.assert_allclose(known.dissimilarity(jaccard), known.dissimilarity("jaccard"), atol=1e-12)
    np.testing.assert_allclose(known.dissimilarity(equal), known.dissimilarity("exact"))
    rows = np.arange(4)
    np.testing.assert_allclose(known.truth("exact"), 1 - known.probs_NA[rows, known.greedy_N])
    np.testing.assert_allclose(known.laws().truth_N, known.truth())


def test_a_beam_over_all_answers_is_exact(small: EnumerableLM) -> None:
    assert exactness(small, Beam(law_of(small), m=12), prompts=20) < 1e-6
    with pytest.raises(DataError, match="missing"):
        exactness(small, Beam(law_of(small), m=11), prompts=2)


def test_the_real_beam_beats_sampling_where_it_must(wide: EnumerableLM) -> None:
    known = wide.enumerate(wide.prompts(60))
    beams = Beam(law_of(wide), m=10).generate(list(known.prompts), list(known.prompts))
    found = contest(known, beams)
    assert found.n >= 15
    assert found.violations == 0
    assert found.beam < 0.2 * found.sampling
    assert found.p_value < 0.01
    for one, row in zip(beams, known.probs_NA, strict=True):
        said = np.exp(one.logprobs_M)
        np.testing.assert_allclose(said, row[[known.column[text] for text in one.texts]], rtol=1e-4)
        assert one.mass <= np.sort(row)[-10:].sum() + 1e-6
    # Samples in the beams' place are no better than sampling is.
    drawn = Sample(law_of(wide), m=10).generate(list(known.prompts), list(known.prompts))
    errors = expected_errors(known.laws(), beams_NM=known.places(beams))
    sampled = (estimates(drawn) - known.truth())[errors.sufficient_N] ** 2
    assert sampled.mean() > 0.3 * found.sampling


def test_the_hybrid_is_unbiased(wide: EnumerableLM, small: EnumerableLM) -> None:
    found = unbiased(wide.enumerate(wide.prompts(40)).laws(), repeats=1000)
    assert found.within >= 0.95
    assert found.worst < 5
    assert found.bound_ratio < 1
    known, repeats = small.enumerate(small.prompts(4)), 150
    asked = [prompt for prompt in known.prompts for _ in range(repeats)]
    made = Hybrid(law_of(small), m=4, seed=1).generate(asked, [f"{p}/{at}" for at, p in enumerate(asked)])
    real = unbiased_by(known, [made[at : at + repeats] for at in range(0, len(made), repeats)])
    assert real.worst < 4.5
    assert real.bound_ratio < 1


def test_encoding(small: EnumerableLM) -> None:
    assert small.encode("a c ?") == [FIRST, FIRST + 2, 2]
    assert small.tokenizer("a c ? <end>")["input_ids"] == [FIRST, FIRST + 2, 2, END]
    with pytest.raises(ConfigError, match="no symbol"):
        small.encode("a z ?")
    with pytest.raises(ConfigError, match="cannot be enumerated"):
        EnumerableLM(longest=9)
    with pytest.raises(ConfigError, match="no alphabet"):
        EnumerableLM(symbols=40)

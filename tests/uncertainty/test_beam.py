from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.candidates import Candidates
from intarsia.uncertainty.generator import generate_together
from intarsia.uncertainty.law import Law
from intarsia.uncertainty.sampling import GreedyWalk
from intarsia.uncertainty.table import TableLaw
from intarsia.uncertainty.trie import TrieSampler
from intarsia.uncertainty.walk import walk
from tests.uncertainty.laws import beam_reference, letter_model, letter_tokenizer, never_ending, random_law


@given(
    seed=st.integers(0, 10**6), m=st.integers(1, 12), peak=st.sampled_from([0.1, 0.5, 2.0]), ends=st.integers(1, 3),
    zeros=st.sampled_from([0.0, 0.5]), most=st.integers(1, 5),
)  # fmt: skip
@settings(max_examples=40)
def test_beams_are_those_of_a_search_without_shortcuts(
    seed: int, m: int, peak: float, ends: int, zeros: float, most: int
) -> None:
    law = random_law(seed, peak=peak, ends=ends, zeros=zeros, max_new_tokens=most)
    prompts = ["x", "yy", "zzz"]
    for prompt, made in zip(prompts, Beam(law, m).generate(prompts, prompts)):
        want = beam_reference(law, prompt, m)
        assert made.token_ids == tuple(path.tokens for path in want)
        assert made.logprobs_M == pytest.approx([path.logprob for path in want], abs=1e-5)
        assert made.finished_M.tolist() == [path.finished for path in want]
        assert made.exact == len(made.texts) == len(set(made.token_ids)) <= m
        assert (np.diff(made.logprobs_M) <= 0).all()
        assert np.exp(made.logprobs_M).sum() <= 1 + 1e-5
        # No candidate begins another, so their probabilities may be added up.
        for one in made.token_ids:
            assert not any(other != one and other[: len(one)] == one for other in made.token_ids)


def test_wide_beam_finds_every_answer_there_is() -> None:
    law = random_law(3)
    truth = law.enumerate("x")
    made = Beam(law, m=len(truth) + 50).generate(["x"], ["x"])[0]
    assert {ids: round(value, 4) for ids, value in zip(made.token_ids, made.logprobs_M.tolist())} == {
        path.tokens: round(path.logprob, 4) for path in truth
    }
    assert made.mass == pytest.approx(1.0, abs=1e-5)
    wide = Beam(law, m=40).generate(["x"], ["x"])[0]
    assert wide.token_ids == tuple(path.tokens for path in truth[:40])


def test_model_that_never_ends_gives_unfinished_candidates() -> None:
    law = never_ending()
    made = Beam(law, m=5).generate(["x"], ["x"])[0]
    assert not made.finished_M.any()
    assert not made.answer.finished
    assert all(len(ids) == 3 for ids in made.token_ids)
    assert len(made.texts) == 5
    assert Beam(law, m=100).generate(["x"], ["x"])[0].mass == pytest.approx(1.0, abs=1e-5)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=15)
def test_one_beam_is_never_less_likely_than_the_greedy_answer(seed: int) -> None:
    law = random_law(seed)
    made = Beam(law, m=1).generate(["x"], ["x"])[0]
    assert len(made.texts) == 1
    assert made.logprobs_M[0] >= made.answer.logprob - 1e-6
    by_hand, tokens = 0.0, ()
    while not tokens or (tokens[-1] not in law.ends and len(tokens) < 3):
        probabilities = law.table("x", tokens)
        by_hand += float(np.log(probabilities.max()))
        tokens = (*tokens, int(probabilities.argmax()))
    assert made.answer.token_ids == tokens
    assert made.answer.logprob == pytest.approx(by_hand, abs=1e-5)


def test_top_beam_as_the_answer() -> None:
    law = random_law(5)
    made = Beam(law, m=4, answer="beam").generate(["x", "yy"], ["x", "yy"])
    for one in made:
        assert one.answer.token_ids == one.token_ids[0]
        assert one.answer.logprob == pytest.approx(one.logprobs_M[0], abs=1e-6)
        assert one.answer.entropy > 0


def _short(prompt: str, prefix: tuple[int, ...]) -> np.ndarray:
    """Answers that mostly end at the second token."""
    return np.array([0.5, 0.2, 0.2, 0.1, 0.0]) if not prefix else np.array([0.025, 0.025, 0.025, 0.025, 0.9])


def test_greedy_answer_rides_along_with_the_beams() -> None:
    law = TableLaw(_short, "abcd.", {4}, max_new_tokens=8)
    prefill = law.prefill(["x"])
    search, greedy = Beam(law, m=4).walkers(prefill, ["x"])
    assert isinstance(greedy, GreedyWalk)
    both = walk(prefill, [search, greedy])
    assert greedy.paths[0].tokens == (0, 4)
    assert both == walk(prefill, Beam(law, m=4).walkers(prefill, ["x"])[:1])


def test_beams_that_cannot_win_are_dropped() -> None:
    law = TableLaw(_short, "abcd.", {4}, max_new_tokens=8)
    prefill = law.prefill(["x"])
    # After the second token four answers are finished, with at least 0.09; no open beam has more than 0.0125.
    assert walk(prefill, Beam(law, m=4).walkers(prefill, ["x"])[:1]) == 4
    assert walk(prefill, Beam(law, m=6).walkers(prefill, ["x"])[:1]) < 6 * 7


def _twins(prompt: str, prefix: tuple[int, ...]) -> np.ndarray:
    """Two tokens with the same text, and the end."""
    return np.array([0.5, 0.3, 0.1, 0.1]) if not prefix else np.array([0.0, 0.0, 0.1, 0.9])


def test_paths_with_one_text_are_merged_on_request() -> None:
    law = TableLaw(_twins, ("a", "a", "b", "."), {3}, max_new_tokens=2)
    apart = Beam(law, m=10).generate(["x"], ["x"])[0]
    merged = Beam(law, m=10, merge_texts=True).generate(["x"], ["x"])[0]
    assert apart.texts.count("a") == 2
    assert len(set(zip(merged.texts, merged.finished_M.tolist()))) == len(merged.texts) == merged.exact
    assert merged.mass == pytest.approx(apart.mass)
    assert merged.logprobs_M[merged.texts.index("a")] == pytest.approx(np.log(0.8 * 0.9), abs=1e-6)
    assert merged.token_ids[merged.texts.index("a")] == (0, 3)
    assert (np.diff(merged.logprobs_M) <= 0).all()


def test_empty_text_gets_a_placeholder() -> None:
    law = TableLaw(lambda prompt, prefix: np.array([0.1, 0.9]), ("a", "."), {1})
    made = Beam(law, m=2, placeholder="nothing").generate(["x"], ["x"])[0]
    assert made.texts[0] == made.answer.text == "nothing"
    assert "" not in Beam(law, m=2).generate(["x"], ["x"])[0].texts


def test_bad_wishes_are_refused() -> None:
    with pytest.raises(ConfigError):
        Beam(m=0)
    with pytest.raises(ConfigError):
        Beam(answer="best")  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        Beam(m=2).generate(["x"], ["x"])
    with pytest.raises(ValueError):
        Beam(random_law(), m=2).generate(["x"], [])
    assert Beam(random_law(), m=2).generate([], []) == []
    assert isinstance(Beam(m=2), Candidates)
    assert Beam(m=3).bind(random_law()).generate(["x"], ["x"])[0].exact == 3


def test_together_gives_what_each_gives_alone_in_fewer_rows() -> None:
    law = random_law(4, peak=0.2)
    beam, sampler = Beam(law, m=5), TrieSampler(law, m=20)
    prompts = ["x", "yy"]
    pairs = generate_together([beam, sampler], prompts, prompts)
    for place, alone in enumerate((beam, sampler)):
        for pair, want in zip(pairs, alone.generate(prompts, prompts)):
            assert pair[place].token_ids == want.token_ids
            assert (pair[place].logprobs_M == want.logprobs_M).all()
    with pytest.raises(ConfigError):
        generate_together([beam, TrieSampler(random_law(5))], prompts, prompts)


@pytest.mark.slow
def test_scores_are_those_of_transformers_and_hold_as_much_mass() -> None:
    model, tokenizer = letter_model(), letter_tokenizer()
    law = Law(model, tokenizer, stops=(), max_new_tokens=4)
    made = Beam(law, m=6).generate(["abcd"], ["0"])[0]
    ids = torch.tensor([tokenizer("abcd")["input_ids"]])
    found = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, num_beams=6, num_return_sequences=6,
        do_sample=False, length_penalty=0.0, early_stopping="never", output_scores=True, return_dict_in_generate=True,
    )  # fmt: skip
    theirs = dict(zip(map(_unpadded, found.sequences[:, ids.shape[1] :].tolist()), found.sequences_scores.tolist()))
    ours: dict[Any, float] = dict(zip(made.token_ids, made.logprobs_M.tolist()))
    common = theirs.keys() & ours.keys()
    assert len(common) >= 5
    for tokens in common:
        assert ours[tokens] == pytest.approx(theirs[tokens], abs=1e-4)
    assert made.mass >= np.exp(list(theirs.values())).sum() - 1e-5


def _unpadded(tokens: list[int]) -> tuple[int, ...]:
    return tuple(tokens[: tokens.index(18) + 1]) if 18 in tokens else tuple(tokens)

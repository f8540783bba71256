from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError
from intarsia.core.local import LocalTarget
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Completion, Prompt
from intarsia.uncertainty import (
    Beam,
    BeamUQ,
    DiverseBeam,
    EndpointSample,
    Hybrid,
    Law,
    Sample,
    Stored,
    TrieSampler,
    UQResult,
)
from intarsia.uncertainty.hybrid import Fallback, outside
from intarsia.uncertainty.sampling import SampleWalk
from intarsia.uncertainty.stored import save_candidates
from intarsia.uncertainty.walk import walk
from tests.uncertainty.laws import forced, letter_model, letter_tokenizer, random_law

PROMPTS = ["ab", "abcdefgh", "p", "abcdeabcdeabcde"]
SEEDS = st.integers(0, 10_000)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return letter_tokenizer()


@pytest.fixture(scope="module")
def model() -> Any:
    return letter_model()


def _alike(a: str, b: str) -> float:
    """Neither symmetric nor 0 and 1 only."""
    return 1.0 if a == b else (len(a) + 1) / (len(a) + len(b) + 3)


# --- What the scores are ---------------------------------------------------------------------------------------------


def test_scores_are_those_of_the_models_own_probabilities(model: Any, tokenizer: Any) -> None:
    """By hand, from one plain pass a candidate: equal weights, or weights by length, would give other figures."""
    results = BeamUQ(model, tokenizer, similarity=_alike, temperature=0.7, max_new_tokens=4).score(PROMPTS)
    for prompt, result in zip(PROMPTS, results):
        ids = tokenizer(prompt)["input_ids"]
        one = result.candidates
        p = np.exp([sum(forced(model, ids, tokens, 0.7)) for tokens in one.token_ids])
        d = np.array([1 - _alike(result.answer, text) for text in one.texts])
        u = -sum(forced(model, ids, one.answer.token_ids, 0.7))
        expected = float(p @ d / p.sum())
        assert result.scores["dissimilarity"] == pytest.approx(expected, abs=1e-4)
        assert result.scores["dissimilarity"] != pytest.approx(d.mean(), abs=1e-3)
        assert result.scores["msp"] == pytest.approx(u, abs=1e-4)
        assert result.scores["cocoa_msp"] == pytest.approx(u * expected, abs=1e-4)
        assert result.mass == pytest.approx(p.sum(), abs=1e-4)
        assert result.weights_M == pytest.approx(p / p.sum(), abs=1e-4)


@given(SEEDS, st.integers(2, 12), st.sampled_from(["beam", "sample", "trie", "diverse", "hybrid"]))
@settings(max_examples=40)
def test_the_interval_holds_the_truth_whatever_made_the_candidates(seed: int, m: int, kind: str) -> None:
    law = random_law(seed % 50, max_new_tokens=3)
    source = {
        "beam": Beam(law, m=m),
        "sample": Sample(law, m=m, seed=seed),
        "trie": TrieSampler(law, m=m, seed=seed),
        "diverse": DiverseBeam(law, m=m, num_groups=1 + (m % 2 == 0)),
        "hybrid": Hybrid(law, m=m, seed=seed),
    }[kind]
    (result,) = BeamUQ(law, similarity=_alike, candidates=source).score(["x"])
    truth = sum(
        math.exp(path.logprob) * (1 - _alike(result.answer, law.text(path.tokens) or "(no answer)"))
        for path in law.enumerate("x")
    )
    low, high, _ = result.interval
    assert low - 1e-5 <= truth <= high + 1e-5
    assert result.weights_M.sum() == pytest.approx(1.0)
    assert 0 <= result.scores["dissimilarity"] <= 1
    assert 0 <= result.mass <= 1


def test_all_answers_as_beams_give_the_expected_dissimilarity_itself() -> None:
    for seed in range(10):
        law = random_law(seed, size=4)
        (result,) = BeamUQ(law, similarity=_alike, candidates=Beam(m=200)).score(["x"])
        answers = law.enumerate("x")
        truth = sum(
            math.exp(path.logprob) * (1 - _alike(result.answer, law.text(path.tokens) or "(no answer)"))
            for path in answers
        )
        assert result.scores["dissimilarity"] == pytest.approx(truth, abs=1e-6)
        assert result.interval.low == pytest.approx(result.interval.high - (1 - result.interval.mass), abs=1e-9)


def test_the_same_prompt_twice_has_the_same_beams_and_other_samples(model: Any, tokenizer: Any) -> None:
    law = Law(model, tokenizer, max_new_tokens=4)
    one, two = BeamUQ(law).score(["ab", "ab"])
    assert one.scores == two.scores
    a, b = BeamUQ(law, candidates=Sample(m=10)).score(["ab", "ab"])
    assert a.candidates.token_ids != b.candidates.token_ids
    c, d = BeamUQ(law, candidates=Sample(m=10)).score(["ab", "ab"], ["k", "k"])
    assert c.candidates.token_ids == d.candidates.token_ids


def test_runs_are_the_same_and_progress_is_told(model: Any, tokenizer: Any) -> None:
    prompts = ["abcdefghijklmnop"[at % 16] + "a" * (at // 16) for at in range(70)]
    told: list[tuple[int, int]] = []
    scorer = BeamUQ(model, tokenizer, max_new_tokens=3, candidates=Beam(m=4))
    first = scorer.score(prompts, progress=lambda done, total: told.append((done, total)))
    assert told == [(64, 70), (70, 70)]
    again = scorer.score(prompts)
    assert [one.scores for one in first] == [one.scores for one in again]


# --- Where candidates come from --------------------------------------------------------------------------------------


@pytest.mark.parametrize("similarity", ["exact", "jaccard", "rouge-l", _alike])
@pytest.mark.parametrize(
    "source",
    [
        Beam(m=6),
        Beam(m=6, answer="beam"),
        Beam(m=6, merge_texts=True),
        DiverseBeam(m=6, num_groups=3),
        Hybrid(m=6),
        Hybrid(m=6, sampler="reject"),
        Sample(m=6),
        TrieSampler(m=6),
    ],
    ids=lambda source: type(source).__name__ + ("-" + source.answer if getattr(source, "answer", "") else ""),
)
def test_every_source_and_similarity(source: Any, similarity: Any, model: Any, tokenizer: Any) -> None:
    results = BeamUQ(model, tokenizer, candidates=source, similarity=similarity, max_new_tokens=3).score(PROMPTS[:2])
    for result in results:
        assert all(math.isfinite(value) for value in result.scores.values())
        assert result.weights_M.sum() == pytest.approx(1.0)
        assert result.interval.low <= result.interval.high


def test_stored_candidates_score_as_fresh_ones(model: Any, tokenizer: Any, tmp_path: Path) -> None:
    fresh = BeamUQ(model, tokenizer, max_new_tokens=3).score(PROMPTS)
    path = tmp_path / "candidates.jsonl"
    save_candidates(path, PROMPTS, [one.candidates for one in fresh])
    stored = BeamUQ(None, candidates=Stored(path)).score(PROMPTS, PROMPTS)
    assert [one.scores for one in stored] == [one.scores for one in fresh]
    assert [one.warning for one in stored] == [one.warning for one in fresh]


def test_an_endpoints_samples_count_by_their_probability(model: Any, tokenizer: Any) -> None:
    target = LocalTarget(model, tokenizer)
    result = BeamUQ(None, candidates=EndpointSample(target, m=30, max_new_tokens=2, stops=()))
    (found,) = result.score(["ab"])
    one = found.candidates
    ids = tokenizer("ab")["input_ids"]
    p = np.exp([sum(forced(model, ids, tokens)) for tokens in one.token_ids])
    assert found.weights_M == pytest.approx(p / p.sum(), abs=1e-4)
    assert math.isnan(found.scores["mte"])


def test_probabilities_without_end_tokens_certify_nothing() -> None:
    answers = iter(["a", "a", "b"])

    def answer(prompt: Prompt) -> Completion:
        return Completion(text=next(answers), token_count=1, logprobs=(-0.3,))

    source = EndpointSample(ScriptedTarget(answer, capabilities={"generate", "logprobs"}), m=2)
    (result,) = BeamUQ(None, candidates=source).score(["x"])
    assert tuple(result.interval) == (0.0, 1.0, 0.0)
    assert "no end token" in result.warning
    assert result.scores["dissimilarity"] == pytest.approx(0.5)


# --- Low mass --------------------------------------------------------------------------------------------------------


def test_low_mass_is_warned_of_or_mended(model: Any, tokenizer: Any) -> None:
    flat: dict[str, Any] = {"temperature": 4.0, "max_new_tokens": 4}
    warned = BeamUQ(model, tokenizer, **flat).score(PROMPTS)
    mended = BeamUQ(model, tokenizer, on_low_mass="hybrid", **flat).score(PROMPTS)
    hybrid = BeamUQ(model, tokenizer, candidates=Hybrid(m=10), **flat).score(PROMPTS)
    for one, two, three in zip(warned, mended, hybrid):
        assert one.mass < 0.5
        assert f"hold {one.mass:.0%}" in one.warning
        assert one.candidates.kind == "beam"
        assert two.candidates.kind == "hybrid"
        assert "too little" in two.warning
        assert two.candidates.token_ids == three.candidates.token_ids
        assert two.scores == pytest.approx(three.scores)
        assert three.warning == ""


def test_enough_mass_is_left_alone(model: Any, tokenizer: Any) -> None:
    peaked: dict[str, Any] = {"temperature": 0.2, "max_new_tokens": 3}
    plain = BeamUQ(model, tokenizer, **peaked).score(PROMPTS)
    guarded = BeamUQ(model, tokenizer, on_low_mass="hybrid", **peaked).score(PROMPTS)
    assert all(one.mass > 0.5 and not one.warning for one in plain)
    assert [one.scores for one in guarded] == [one.scores for one in plain]
    assert [one.candidates.kind for one in guarded] == ["beam"] * len(PROMPTS)
    strict = BeamUQ(model, tokenizer, on_low_mass="hybrid", low_mass="sufficient", **peaked).score(PROMPTS)
    for one, two in zip(plain, strict):
        assert (two.candidates.kind == "hybrid") == (one.mass < 10 / 11)


@given(SEEDS, st.integers(2, 8))
@settings(max_examples=40)
def test_the_fall_back_chooses_prompt_by_prompt(seed: int, m: int) -> None:
    law = random_law(seed % 40, peak=1.5)
    prompts = ["x", "y", "z"]
    beams = Beam(law, m=m).generate(prompts, prompts)
    made = Fallback(beam=Beam(law, m=m), rule="paper").generate(prompts, prompts)
    line = 1 - 1 / (2 * math.sqrt(m))
    for plain, one in zip(beams, made):
        assert (one.kind == "hybrid") == (plain.mass < line)
        assert one.token_ids[: one.exact] == plain.token_ids[: one.exact]
        if one.kind == "hybrid":
            assert len(one.texts) == m > one.exact
            assert not set(one.token_ids[one.exact :]) & set(one.token_ids[: one.exact])


def test_rejection_takes_the_first_draw_that_succeeds() -> None:
    """However many attempts are made at once; here one after the other, each with its own random numbers."""
    law, prompts = random_law(5, size=4, peak=0.3), ["x", "y"]
    prefill = law.prefill(prompts)
    beams = [law.enumerate(prompt)[:5] for prompt in prompts]
    made = outside(prefill, 3, ["k0", "k1"], beams, [4, 4], "reject")
    rejected = 0
    for place, samples in enumerate(made):
        left_out = {path.tokens for path in beams[place]}
        for number, sample in enumerate(samples):
            for attempt in range(256):
                drawn = SampleWalk(prefill, 3, ["k0", "k1"], np.array([place]), np.array([number + attempt * 2**16]))
                walk(prefill, [drawn])
                if drawn.paths[0].tokens not in left_out:
                    break
                rejected += 1
            assert sample.tokens == drawn.paths[0].tokens
    assert rejected > 20


def test_diverse_beams_fall_back_too(model: Any, tokenizer: Any) -> None:
    scorer = BeamUQ(model, tokenizer, candidates=DiverseBeam(m=6, num_groups=3), on_low_mass="hybrid", temperature=4.0)
    assert {one.candidates.kind for one in scorer.score(PROMPTS)} == {"hybrid"}


def test_one_text_of_many_paths_is_no_lonely_candidate() -> None:
    """Merged into one text, beams that hold everything are certain; they are not one beam."""
    law = random_law(3, size=3, max_new_tokens=1)
    source = Beam(law, m=5, merge_texts=True, placeholder="?")
    (result,) = BeamUQ(law, candidates=source).score(["x"])
    assert result.mass == pytest.approx(1.0)
    assert result.warning == ""


# --- Reading a result ------------------------------------------------------------------------------------------------


def test_a_result_reads_well_and_goes_into_json(model: Any, tokenizer: Any) -> None:
    for result in BeamUQ(model, tokenizer, max_new_tokens=3).score(PROMPTS):
        text = str(result)
        assert text.startswith(result.answer)
        assert f"dissimilarity {result.scores['dissimilarity']:.3f}" in text
        assert f"hold {result.mass:.1%}" in text
        assert len(text.splitlines()) <= 10
        plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert plain["answer"] == result.answer
        assert sum(one["weight"] for one in plain["candidates"]) == pytest.approx(1.0)
        assert plain["scores"].keys() == result.scores.keys()


def test_what_is_unknown_is_null_in_json(tmp_path: Path) -> None:
    line = {"key": "k", "answer": "a", "kind": "sample", "candidates": [{"text": "a"}, {"text": "b"}]}
    path = tmp_path / "candidates.jsonl"
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    (result,) = BeamUQ(None, candidates=Stored(path)).score(["x"], ["k"])
    plain = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert plain["scores"]["msp"] is None
    assert plain["candidates"][0]["logprob"] is None
    assert plain["scores"]["dissimilarity"] == pytest.approx(0.5)
    assert isinstance(result, UQResult)


# --- A real model ----------------------------------------------------------------------------------------------------


@pytest.mark.model
@pytest.mark.slow
def test_a_real_model_gives_probabilities_of_its_own() -> None:
    """Teacher forcing without a cache or padding; a left-padded batch is a batch of one; greedy is transformers'."""
    import torch

    from intarsia.uncertainty.facts import facts
    from intarsia.uncertainty.prompting import prompts as lay_out

    target = LocalTarget.load("smollm2-135m", dtype="fp32", device="cpu")
    model, tokenizer = target.model, target.tokenizer
    questions = facts(3, tokenizer=tokenizer)
    # Prompts of unlike length: fewer examples for some, so that a batch is padded by much.
    prompts = [str(lay_out(questions, shots=shots)[place]) for place, shots in enumerate((0, 1, 4))]
    options: dict[str, Any] = {
        "temperature": 0.5,
        "max_new_tokens": 6,
        "similarity": "jaccard",
        "candidates": Beam(m=5),
    }
    together = BeamUQ(model, tokenizer, **options).score(prompts)
    law = Law(model, tokenizer, temperature=0.5, max_new_tokens=6)
    for prompt, result in zip(prompts, together):
        ids = tokenizer(prompt)["input_ids"]
        one = result.candidates
        for tokens, logprob in zip(one.token_ids, one.logprobs_M):
            assert logprob == pytest.approx(sum(forced(model, ids, tokens, 0.5)), abs=1e-3)
        (alone,) = BeamUQ(model, tokenizer, **options).score([prompt])
        assert alone.candidates.token_ids == one.token_ids
        assert alone.candidates.logprobs_M == pytest.approx(one.logprobs_M, abs=1e-3)
        assert alone.scores["dissimilarity"] == pytest.approx(result.scores["dissimilarity"], abs=1e-3)
        with torch.inference_mode():
            row = model.generate(
                torch.tensor([ids]),
                do_sample=False,
                max_new_tokens=6,
                eos_token_id=sorted(law.ends),
                pad_token_id=tokenizer.eos_token_id,
            )[0, len(ids) :]
        assert tuple(row.tolist()) == one.answer.token_ids


@pytest.mark.model
@pytest.mark.slow
def test_embeddings_compare_answers_of_a_real_model() -> None:
    from intarsia.uncertainty.facts import facts
    from intarsia.uncertainty.prompting import prompts as lay_out

    target = LocalTarget.load("smollm2-135m", dtype="fp32", device="cpu")
    prompts = lay_out(facts(2, tokenizer=target.tokenizer))
    scorer = BeamUQ(target, similarity="embedding", temperature=0.5, max_new_tokens=6, on_low_mass="hybrid")
    for result in scorer.score(prompts):
        assert 0 <= result.scores["dissimilarity"] < 0.5
        assert scorer.similarity.computed > 0


def test_the_papers_preset_compares_by_entailment(monkeypatch: pytest.MonkeyPatch) -> None:
    import intarsia.uncertainty.beamuq as face

    asked: list[object] = []
    real = face.as_similarity
    monkeypatch.setattr(face, "as_similarity", lambda given: asked.append(given) or real("exact"))
    BeamUQ(random_law())
    BeamUQ(random_law(), preset="paper")
    BeamUQ(random_law(), preset="paper", similarity="rouge-l")
    assert asked == ["jaccard", "nli", "rouge-l"]
    with pytest.raises(ConfigError, match="preset 'papers'"):
        BeamUQ(random_law(), preset="papers")  # type: ignore[arg-type]

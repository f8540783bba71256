from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from intarsia.core.errors import ConfigError, DataError, IntarsiaError, ModelError
from intarsia.core.local import LocalTarget
from intarsia.core.scripted import ScriptedTarget
from intarsia.uncertainty import Answer, Beam, BeamUQ, CandidateSet, Hybrid, Law, Sample, Stored
from intarsia.uncertainty.generator import MOST
from intarsia.uncertainty.table import TableLaw
from tests.uncertainty.laws import letter_model, letter_tokenizer, never_ending, random_law


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return letter_tokenizer()


@pytest.fixture(scope="module")
def model() -> Any:
    return letter_model()


def _set(texts: list[str], probabilities: list[float], **fields: Any) -> CandidateSet:
    made: dict[str, Any] = {
        "answer": Answer(texts[0] if texts else "", logprobs=(-0.5,), entropy=0.1),
        "texts": tuple(texts),
        "token_ids": tuple((place,) for place in range(len(texts))),
        "logprobs_M": np.log(probabilities),
        "finished_M": np.ones(len(texts), dtype=bool),
        "kind": "beam",
        "exact": len(texts),
    }
    return CandidateSet(**(made | fields))


def _says(error: pytest.ExceptionInfo[IntarsiaError]) -> None:
    """One line that says what is wrong, and one that says what to do."""
    assert error.value.hint
    assert "\n" not in f"{error.value.args[0]}{error.value.hint}"


# --- Answers ---------------------------------------------------------------------------------------------------------


def test_a_model_that_never_ends_is_flagged_and_certifies_nothing(model: Any, tokenizer: Any) -> None:
    law = never_ending()
    (table,) = BeamUQ(law, similarity="exact").score(["x"])
    endless = letter_model()
    endless.lm_head = torch.nn.Linear(endless.config.hidden_size, 20)
    with torch.no_grad():
        endless.lm_head.bias.zero_()
        endless.lm_head.bias[16:].fill_(-1e4)
    results = BeamUQ(endless, tokenizer, max_new_tokens=3, similarity="exact").score(["ab", "p"])
    for result in (table, *results):
        assert not result.candidates.finished_M.any()
        assert not result.candidates.answer.finished
        # Prefixes have their own mass, which is no mass of answers: nothing is certain.
        assert 0 < result.mass <= 1
        assert result.interval.mass == 0
        assert (result.interval.low, result.interval.high) == (0.0, 1.0)
        assert "(cut off)" in str(result)
        assert all(one["finished"] is False for one in result.to_dict()["candidates"])


def test_cut_beams_never_count_beside_what_they_grow_into() -> None:
    for seed in range(20):
        (result,) = BeamUQ(random_law(seed, max_new_tokens=2), candidates=Beam(m=8)).score(["x"])
        paths = result.candidates.token_ids
        assert not any(a != b and b[: len(a)] == a for a in paths for b in paths)
        assert result.mass <= 1


def test_one_candidate_is_warned_of(model: Any, tokenizer: Any) -> None:
    for source in (Beam(m=1), Beam(m=1, answer="beam"), Hybrid(m=1, b=0), Sample(m=1)):
        for on_low_mass in ("warn", "hybrid"):
            scorer = BeamUQ(model, tokenizer, candidates=source, on_low_mass=on_low_mass, max_new_tokens=2)  # type: ignore[arg-type]
            (result,) = scorer.score(["ab"])
            assert "2 candidates or more" in result.warning
            assert len(result.candidates.texts) == 1
    # The greedy answer need not be the likeliest one, which a single beam may find all the same.
    (beam,) = BeamUQ(model, tokenizer, candidates=Beam(m=1, answer="beam"), similarity="exact").score(["ab"])
    assert beam.scores["dissimilarity"] == 0
    assert beam.scores["cocoa_msp"] == 0


def test_identical_texts_have_no_dissimilarity_and_the_models_word_breaks_ties() -> None:
    sure = _set(["Paris"] * 3, [0.7, 0.2, 0.1], answer=Answer("Paris", logprobs=(-0.1,)))
    unsure = _set(["Lyon"] * 3, [0.4, 0.2, 0.1], answer=Answer("Lyon", logprobs=(-0.9,)))
    for merge in (False, True):
        scorer = BeamUQ(random_law(), similarity="jaccard", merge_texts=merge)
        one, two = scorer.score_sets([sure, unsure])
        for result in (one, two):
            for name in ("dissimilarity", "cocoa_msp", "cocoa_ppl", "degree_matrix", "semantic_entropy"):
                assert result.scores[name] == pytest.approx(0.0, abs=1e-12), name
            for name in ("eccentricity", "eigvec_dissimilarity"):
                assert result.scores[name] == pytest.approx(0.0, abs=1e-9), name
            assert result.interval.low == pytest.approx(0.0)
        assert one.scores["msp"] < two.scores["msp"]


def test_an_empty_text_is_an_answer_like_others() -> None:
    def table(prompt: str, prefix: tuple[int, ...]) -> np.ndarray:
        return np.array([0.3, 0.1, 0.6]) if not prefix else np.array([0.0, 0.0, 1.0])

    law = TableLaw(table, ("a", " ", "."), {2})
    for similarity in ("exact", "jaccard", "rouge-l"):
        (result,) = BeamUQ(law, similarity=similarity).score([""])
        assert result.answer == "(no answer)"
        # " " says as little as the empty text.
        assert result.candidates.texts == ("(no answer)", "a", "(no answer)")
        assert result.scores["dissimilarity"] == pytest.approx(0.3)
        assert all(np.isfinite(value) for value in result.scores.values())
        assert str(result).startswith("(no answer)")


def test_unicode_goes_through(tiny_model: Any, tiny_tokenizer: Any) -> None:
    prompts = ["\u041f\u0430\u0440\u0438\u0436? \U0001f5fc", "a\u0301\u200d\ufeff", "\ud800 half a pair", "\x00", " "]
    results = BeamUQ(tiny_model, tiny_tokenizer, stops=(), max_new_tokens=2, candidates=Beam(m=3)).score(prompts)
    assert len(results) == len(prompts)
    texts = ["caf\u00e9", "cafe\u0301", "\U0001f469\u200d\U0001f680", "\u4e2d\u6587", "\u202eabc"]
    (found,) = BeamUQ(random_law(), similarity="exact").score_sets([_set(texts, [0.5, 0.2, 0.1, 0.1, 0.05])])
    # One word, composed or not.
    assert found.scores["dissimilarity"] == pytest.approx(0.25 / 0.95)
    assert "caf" in str(found)


def test_no_prompts_are_no_results(model: Any, tokenizer: Any) -> None:
    for source in (Beam(m=2), Sample(m=2), Hybrid(m=2)):
        assert BeamUQ(model, tokenizer, candidates=source).score([]) == []
    assert BeamUQ(random_law()).score_sets([]) == []


# --- Options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": float("nan")},
        {"temperature": float("inf")},
        {"temperature": 0.0},
        {"temperature": -1},
        {"temperature": True},
        {"temperature": "hot"},
        {"max_new_tokens": 0},
        {"max_new_tokens": 2.5},
        {"stops": ["no such token"]},
        {"stops": [""]},
        {"mass_floor": float("nan")},
        {"mass_floor": -0.1},
        {"low_mass": "most"},
        {"on_low_mass": "ignore"},
        {"similarity": "cosine"},
        {"similarity": 3},
        {"estimators": ["entropy"]},
        {"estimators": ["msp", "msp"]},
        {"candidates": 10},
        {"candidates": "beam"},
    ],
    ids=str,
)
def test_bad_options_are_refused_before_any_work(options: dict[str, Any], model: Any, tokenizer: Any) -> None:
    with pytest.raises(ConfigError) as error:
        BeamUQ(model, tokenizer, **options)
    _says(error)


@pytest.mark.parametrize("m", [0, -3, MOST + 1, 10**12, 2.0, True, "10", None])
def test_absurd_numbers_of_candidates_are_refused(m: Any) -> None:
    for source in (Beam, Sample, Hybrid):
        with pytest.raises(ConfigError, match="candidates") as error:
            source(m=m)
        _says(error)


def test_more_rows_than_memory_holds_are_refused(model: Any, tokenizer: Any) -> None:
    target = LocalTarget(model, tokenizer, batch_tokens=128)
    scorer = BeamUQ(target, candidates=Sample(m=MOST))
    with pytest.raises(ConfigError, match="do not fit into memory") as error:
        scorer.score(["ab"])
    _says(error)
    assert len(BeamUQ(target, candidates=Sample(m=40), max_new_tokens=2).score(["ab"])) == 1


def test_numbers_of_numpy_are_numbers(model: Any, tokenizer: Any) -> None:
    options: dict[str, Any] = {"temperature": np.float32(0.5), "max_new_tokens": np.int64(2)}
    scorer = BeamUQ(model, tokenizer, candidates=Beam(m=np.int64(2)), **options)  # type: ignore[arg-type]
    assert len(scorer.score(["ab"])) == 1


def test_a_law_keeps_its_own_options(model: Any, tokenizer: Any) -> None:
    law = Law(model, tokenizer, temperature=0.5)
    BeamUQ(law, temperature=0.5)
    for options in ({"temperature": 2.0}, {"max_new_tokens": 3}, {"stops": ("a",)}):
        with pytest.raises(ConfigError, match="its own") as error:
            BeamUQ(law, **options)  # type: ignore[arg-type]
        _says(error)


# --- Prompts and models ----------------------------------------------------------------------------------------------


def test_a_single_string_is_no_list_of_prompts(model: Any, tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="single string"):
        BeamUQ(model, tokenizer).score("abc")


def test_one_key_a_prompt(model: Any, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="as many keys"):
        BeamUQ(model, tokenizer).score(["a", "b"], ["k"])


def test_a_prompt_beyond_the_context_is_named_before_any_work(model: Any, tokenizer: Any) -> None:
    told: list[int] = []
    with pytest.raises(DataError, match="Prompt 65 ") as error:
        BeamUQ(model, tokenizer).score(["a"] * 65 + ["a" * 64], progress=lambda done, total: told.append(done))
    _says(error)
    assert not told
    assert len(BeamUQ(model, tokenizer, stops=(), candidates=Beam(m=2)).score(["a" * 63])) == 1


def test_models_of_other_families_are_refused(tokenizer: Any) -> None:
    from transformers import BertConfig, BertForMaskedLM, T5Config, T5ForConditionalGeneration

    small: dict[str, Any] = {"vocab_size": 20}
    bert = BertForMaskedLM(
        BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, **small)
    )
    t5 = T5ForConditionalGeneration(T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, **small))
    for other in (bert, t5):
        with pytest.raises(ModelError, match="decoder-only") as error:
            BeamUQ(other, tokenizer)
        _says(error)


def test_what_is_no_model_is_refused(model: Any, tokenizer: Any, tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="tokenizer"):
        BeamUQ(model)
    for wrong in (3, None, object()):
        with pytest.raises(ConfigError) as error:
            BeamUQ(wrong, tokenizer)
        _says(error)
    with pytest.raises(ConfigError, match="exact candidates"):
        BeamUQ(ScriptedTarget({"*": "a"}))
    with pytest.raises(IntarsiaError):
        BeamUQ(str(tmp_path / "missing"))


def test_nan_weights_are_reported(tokenizer: Any) -> None:
    broken = letter_model()
    with torch.no_grad():
        broken.model.norm.weight.fill_(float("nan"))
    for source in (Beam(m=2), Sample(m=2), Hybrid(m=2)):
        with pytest.raises(ModelError) as error:
            BeamUQ(broken, tokenizer, candidates=source).score(["ab"])
        _says(error)


@pytest.mark.parametrize(
    "fields",
    [
        {"texts": [], "probabilities": []},
        {"logprobs_M": np.array([np.nan, -1.0])},
        {"logprobs_M": np.array([0.5, -1.0])},
        {"logprobs_M": np.array([-np.inf, -np.inf])},
        {"logprobs_M": np.array([-0.1, -0.1])},  # lengths were divided out: 0.9 + 0.9
    ],
    ids=["empty", "nan", "above zero", "impossible", "more than all"],
)
def test_sets_that_cannot_be_are_refused(fields: dict[str, Any]) -> None:
    made: dict[str, Any] = {"texts": ["a", "b"], "probabilities": [0.5, 0.3]}
    with pytest.raises(DataError) as error:
        BeamUQ(random_law()).score_sets([_set(**made | fields)])
    _says(error)


def test_stored_files_that_are_none(tmp_path: Any) -> None:
    path = tmp_path / "candidates.jsonl"
    for text in ("", "{", '{"key": "k", "answer": "a", "candidates": []}\n', "\x00\n", '{"key": "k"}\n'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError) as error:
            Stored(path)
        _says(error)
    with pytest.raises(DataError):
        Stored(tmp_path / "missing.jsonl")

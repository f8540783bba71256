from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from intarsia.core.errors import BackendError, ConfigError
from intarsia.core.local import LocalTarget
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Completion, Prompt
from intarsia.uncertainty.candidates import Candidates
from intarsia.uncertainty.endpoint import EndpointSample
from intarsia.uncertainty.law import Law
from intarsia.uncertainty.sampling import Sample
from tests.uncertainty.laws import letter_model, letter_tokenizer

LIKELY = {"Paris": -0.4, "Lyon": -1.5, "": -3.0}


def _target(texts: list[str], *, logprobs: bool = True, **fields: Any) -> ScriptedTarget:
    """An endpoint that gives these answers in turn, with log-probabilities but without token ids."""
    left = iter(texts)

    def answer(prompt: Prompt) -> Completion:
        text = next(left)
        return Completion(text=text, token_count=1, logprobs=(LIKELY[text],) if logprobs else None, **fields)

    return ScriptedTarget(answer, capabilities={"generate", "logprobs"})


def test_distinct_answers_count_by_their_probability() -> None:
    made = EndpointSample(_target(["Paris", "Lyon", "Paris", "", "Paris", "Lyon"]), m=5).generate(["p"], ["k"])[0]
    assert made.texts == ("Paris", "Lyon", "(no answer)")
    assert made.logprobs_M.tolist() == [-0.4, -1.5, -3.0]
    assert made.exact == 3
    assert made.kind == "diverse"
    assert made.mass == pytest.approx(sum(math.exp(value) for value in LIKELY.values()))
    assert made.answer.text == "Paris"
    assert made.answer.logprob == pytest.approx(-0.4)


def test_counting_keeps_every_sample_and_needs_no_logprobs() -> None:
    target = ScriptedTarget(["Paris", "Lyon", "Paris", "Paris"])
    made = EndpointSample(target, m=3, weights="count").generate(["p"], ["k"])[0]
    assert made.texts == ("Lyon", "Paris", "Paris")
    assert made.kind == "sample"
    assert made.exact == 0
    assert np.isnan(made.logprobs_M).all()
    keys = [call.key for call in target.calls]
    assert keys == ["k", "k/0", "k/1", "k/2"]


def test_what_gives_no_logprobs_is_refused() -> None:
    with pytest.raises(ConfigError, match="count"):
        EndpointSample(ScriptedTarget({"*": "a"}))
    with pytest.raises(BackendError, match="without log-probabilities"):
        EndpointSample(_target(["Paris"] * 3, logprobs=False), m=2).generate(["p"], ["k"])
    with pytest.raises(BackendError, match="no answer"):
        EndpointSample(_target(["Paris"] * 3, finish_reason="error", error="busy"), m=2).generate(["p"], ["k"])
    with pytest.raises(ConfigError):
        EndpointSample(_target([]), m=0)
    with pytest.raises(ConfigError):
        EndpointSample(_target([]), weights="mass")  # type: ignore[arg-type]


def test_local_model_asked_like_an_endpoint_knows_the_same_probabilities() -> None:
    target = LocalTarget(letter_model(), letter_tokenizer())
    source = EndpointSample(target, m=12, max_new_tokens=4)
    assert isinstance(source, Candidates)
    prompts = ["ab", "abcdefgh"]
    exact = Sample(Law.of(target, max_new_tokens=4), m=1).generate(prompts, prompts)
    for made, want in zip(source.generate(prompts, prompts), exact):
        assert made.answer.token_ids == want.answer.token_ids
        assert made.answer.logprob == pytest.approx(want.answer.logprob, abs=1e-4)
        assert len(set(made.token_ids)) == len(made.token_ids) == made.exact <= 12
        assert (np.diff(made.logprobs_M) <= 0).all()
        assert made.mass <= 1

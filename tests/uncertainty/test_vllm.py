from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty.vllm import VLLMBeam, from_vllm
from tests.uncertainty.laws import letter_tokenizer


def _outputs(change: Any = None) -> list[Any]:
    raw = copy.deepcopy(json.loads((Path(__file__).parent / "vllm_beams.json").read_text())["outputs"])
    for output in raw:
        for sequence in output["sequences"]:
            sequence["logprobs"] = [
                {int(token): SimpleNamespace(**entry) for token, entry in step.items()} for step in sequence["logprobs"]
            ]
            if change is not None:
                change(sequence)
    return [SimpleNamespace(sequences=[SimpleNamespace(**s) for s in output["sequences"]]) for output in raw]


def test_sequences_become_candidates_sorted_by_probability() -> None:
    first, second = from_vllm(_outputs(), tokenizer=letter_tokenizer())
    assert first.texts == ("c", "ce", "d")
    assert first.token_ids == ((2, 18), (2, 4), (3, 18))
    assert first.logprobs_M.tolist() == [-0.75, -1.75, -2.25]
    assert first.finished_M.tolist() == [True, False, True]
    assert first.kind == "beam"
    assert first.exact == 3
    assert first.mass == pytest.approx(np.exp([-0.75, -1.75, -2.25]).sum())
    assert first.answer.text == "c"
    assert first.answer.logprobs == (-0.25, -0.5)
    assert np.isnan(first.answer.entropy)
    assert second.texts == ("(no answer)",)
    assert second.token_ids == ((18,),)


def test_prompt_is_found_without_its_record() -> None:
    def forget(sequence: dict[str, Any]) -> None:
        del sequence["orig_prompt"]

    want = [made.token_ids for made in from_vllm(_outputs(), tokenizer=letter_tokenizer())]
    for known in (None, [2, 3]):
        sets = from_vllm(_outputs(forget), tokenizer=letter_tokenizer(), prompt_tokens=known)
        assert [made.token_ids for made in sets] == want

    def forget_all(sequence: dict[str, Any]) -> None:
        del sequence["orig_prompt"]
        sequence["logprobs"] = []

    sets = from_vllm(_outputs(forget_all), tokenizer=letter_tokenizer(), prompt_tokens=[2, 3])
    assert [made.token_ids for made in sets] == want
    assert sets[0].answer.logprob == -0.75
    with pytest.raises(DataError, match="prompt_tokens"):
        from_vllm(_outputs(forget_all), tokenizer=letter_tokenizer())


def test_text_is_read_without_a_tokenizer_where_the_prompt_is_known() -> None:
    def plain(sequence: dict[str, Any]) -> None:
        sequence["text"] = sequence["text"].removesuffix("<end>")

    assert from_vllm(_outputs(plain))[0].texts == ("c", "ce", "d")

    def forget(sequence: dict[str, Any]) -> None:
        del sequence["orig_prompt"]

    with pytest.raises(DataError, match="tokenizer"):
        from_vllm(_outputs(forget))


def test_scores_with_a_length_penalty_are_refused() -> None:
    def divided(sequence: dict[str, Any]) -> None:
        sequence["cum_logprob"] /= 8

    with pytest.raises(DataError, match="cum_logprob"):
        from_vllm(_outputs(divided), tokenizer=letter_tokenizer())


def test_damaged_outputs_are_refused() -> None:
    with pytest.raises(DataError, match="no sequences"):
        from_vllm([SimpleNamespace(sequences=[])])

    def other_token(sequence: dict[str, Any]) -> None:
        sequence["logprobs"][0] = {11: SimpleNamespace(logprob=-1.0)}

    with pytest.raises(DataError, match="its own token"):
        from_vllm(_outputs(other_token), tokenizer=letter_tokenizer())
    twice = _outputs()
    twice[0].sequences.append(twice[0].sequences[0])
    twice[0].sequences[2].cum_logprob = twice[0].sequences[1].cum_logprob = -9.0
    with pytest.raises(DataError, match="twice"):
        from_vllm(twice, tokenizer=letter_tokenizer())


class _Engine:
    """Stands for `vllm.LLM`."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def get_tokenizer(self) -> Any:
        return letter_tokenizer()

    def beam_search(self, prompts: Any, params: Any) -> list[Any]:
        self.asked.append((prompts, params))
        return _outputs()


def test_engine_is_asked_without_a_length_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("vllm.sampling_params")
    module.BeamSearchParams = lambda **options: options  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", module)
    engine = _Engine()
    sets = VLLMBeam(engine, m=3, max_new_tokens=4).generate(["ab", "fgh"], ["0", "1"])
    assert [made.texts for made in sets] == [("c", "ce", "d"), ("(no answer)",)]
    prompts, params = engine.asked[0]
    assert params == {"beam_width": 3, "max_tokens": 4, "length_penalty": 0.0}
    assert prompts == [{"prompt_token_ids": [0, 1]}, {"prompt_token_ids": [5, 6, 7]}]


def test_missing_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError):
        VLLMBeam(object())
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ConfigError, match="not installed"):
        VLLMBeam(_Engine()).generate(["ab"], ["0"])

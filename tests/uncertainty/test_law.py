from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from intarsia.core.errors import ConfigError, DataError, ModelError
from intarsia.core.scripted import ScriptedTarget
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.fork import ModelFront
from intarsia.uncertainty.law import Law
from tests.uncertainty.laws import forced, letter_model, letter_tokenizer

PROMPTS = ["ab", "abcdefgh", "p", "abcdeabcdeabcde", "abcdeabcdeabcda"]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return letter_tokenizer()


@pytest.fixture(scope="module")
def model() -> Any:
    return letter_model()


def test_every_token_that_holds_a_stop_string_ends_an_answer(model: Any, tokenizer: Any) -> None:
    law = Law(model, tokenizer)
    assert law.ends == {16, 17, 18}
    assert Law(model, tokenizer, stops=()).ends == {18}
    assert Law(model, tokenizer, stops="q").ends == {17, 18}


def test_text_is_cut_before_the_stop_and_without_the_end(model: Any, tokenizer: Any) -> None:
    law = Law(model, tokenizer)
    assert law.text([0, 1, 16]) == "ab"
    assert law.text([0, 17]) == "aq"
    assert law.text([0, 1, 18]) == "ab"
    assert law.text([0, 1]) == "ab"
    assert law.text([16]) == ""
    assert law.text([]) == ""


def test_bad_options_are_refused(model: Any, tokenizer: Any) -> None:
    for options in ({"temperature": 0.0}, {"temperature": float("nan")}, {"max_new_tokens": 0}, {"stops": ["zz"]}):
        with pytest.raises(ConfigError):
            Law(model, tokenizer, **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        Law.of(ScriptedTarget({"*": "a"}))


def test_prompt_that_fills_the_window_is_refused_by_its_place(model: Any, tokenizer: Any) -> None:
    with pytest.raises(DataError, match="Prompt 1"):
        Beam(Law(model, tokenizer), m=2).generate(["a", "a" * 70], ["0", "1"])


def test_window_leaves_room_for_fewer_tokens(model: Any, tokenizer: Any) -> None:
    law = Law(model, tokenizer, max_new_tokens=8, stops=())
    short, long = Beam(law, m=3).generate(["a", "a" * 60], ["0", "1"])
    assert max(len(ids) for ids in long.token_ids) <= 4
    assert max(len(ids) for ids in short.token_ids) > 4


def test_nan_logits_are_reported(tokenizer: Any) -> None:
    broken = letter_model()
    with torch.no_grad():
        broken.model.norm.weight.fill_(float("nan"))
    with pytest.raises(ModelError):
        Beam(Law(broken, tokenizer), m=2).generate(["a"], ["0"])


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_rows_fork_as_if_each_prefix_were_run_alone(kind: str, tokenizer: Any) -> None:
    """Prefixes that split, swap places, die and multiply; unlike prompts, a shared prefix, a sliding window."""
    model = letter_model(kind)
    law = Law(model, tokenizer, temperature=0.7)
    rng = np.random.default_rng(0)
    with torch.inference_mode():
        prefill = law.prefill(PROMPTS)
        for round_ in range(2):
            front = prefill.front(3)
            assert isinstance(front, ModelFront)
            places = [(prompt, ()) for prompt in range(len(PROMPTS))]
            for size in (5, 12, 4, 9, 30, 1):
                parents = rng.integers(0, len(places), size)
                tokens = rng.integers(0, 16, size)
                logits = front.advance(parents, tokens)
                places = [(places[p][0], (*places[p][1], t)) for p, t in zip(parents.tolist(), tokens.tolist())]
                logprobs = logits.double().log_softmax(dim=-1)
                for row, (prompt, prefix) in enumerate(places):
                    ids = tokenizer(PROMPTS[prompt])["input_ids"]
                    for token in (0, 7, 18):
                        want = forced(model, ids, (*prefix, token), 0.7)[-1]
                        assert logprobs[row, token].item() == pytest.approx(want, abs=1e-4), (round_, row)


@pytest.mark.parametrize("kind", ["llama", "mistral"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_beam_probabilities_are_those_of_a_plain_pass(kind: str, temperature: float, tokenizer: Any) -> None:
    model = letter_model(kind)
    law = Law(model, tokenizer, temperature=temperature, max_new_tokens=5)
    for prompt, made in zip(PROMPTS, Beam(law, m=6).generate(PROMPTS, PROMPTS)):
        ids = tokenizer(prompt)["input_ids"]
        for tokens, logprob, finished in zip(made.token_ids, made.logprobs_M, made.finished_M):
            assert logprob == pytest.approx(sum(forced(model, ids, tokens, temperature)), abs=1e-4)
            assert finished == (tokens[-1] in law.ends)
            assert not set(tokens[:-1]) & law.ends
        assert made.answer.logprobs == pytest.approx(forced(model, ids, made.answer.token_ids, temperature), abs=1e-4)


def test_batch_equals_batch_of_one(model: Any, tokenizer: Any) -> None:
    beam = Beam(Law(model, tokenizer, max_new_tokens=4), m=8)
    together = beam.generate(PROMPTS, PROMPTS)
    for prompt, made in zip(PROMPTS, together):
        alone = beam.generate([prompt], [prompt])[0]
        assert alone.token_ids == made.token_ids
        assert alone.logprobs_M == pytest.approx(made.logprobs_M, abs=1e-4)
        assert alone.answer.token_ids == made.answer.token_ids
        assert alone.answer.entropy == pytest.approx(made.answer.entropy, abs=1e-4)


def test_entropy_is_that_of_the_law(model: Any, tokenizer: Any) -> None:
    law = Law(model, tokenizer, max_new_tokens=4, temperature=0.5)
    for answer in ("greedy", "beam"):
        made = Beam(law, m=3, answer=answer).generate(["abc"], ["0"])[0]  # type: ignore[arg-type]
        ids = [*tokenizer("abc")["input_ids"], *made.answer.token_ids]
        with torch.inference_mode():
            logprobs = (model(input_ids=torch.tensor([ids])).logits[0, 2:-1].double() / 0.5).log_softmax(dim=-1)
        want = float(-(logprobs.exp() * logprobs).sum(dim=-1).mean())
        assert made.answer.entropy == pytest.approx(want, abs=1e-4)


def test_chat_messages_go_through_the_template(tiny_model: Any, tiny_tokenizer: Any) -> None:
    law = Law(tiny_model, tiny_tokenizer, max_new_tokens=2)
    messages = [{"role": "user", "content": "Question"}]
    text = tiny_tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    chat, plain = Beam(law, m=4).generate([messages, text], ["0", "1"])  # type: ignore[list-item]
    assert chat.token_ids == plain.token_ids

from __future__ import annotations

import copy
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import BackendError, ConfigError, DataError, ModelError
from intarsia.core.local import LocalTarget, engine
from intarsia.core.local.decode import Reader
from intarsia.core.sampling import Sampling, choose, request_key, uniform
from intarsia.core.target import Target

SHOTS = "Question: What is 12 + 30? Answer: 42.\n" * 4
QUESTIONS = [
    "What is the capital of France?",
    "Tom has three apples and buys seven more; how many apples does Tom have now?",
    "1",
    "Is the dog lazy?",
    "What is 3 + 4 + 5 + 6 + 7 + 8 + 9?",
    "Who jumps?",
    "True or false: Rome is the capital of Italy.",
    "\u00e9\u4e2d\U0001f600 unusual letters",
]
PROMPTS = [f"{SHOTS}Question: {question} Answer:" for question in QUESTIONS] + ["Something else entirely", "dog"]
GREEDY = Sampling(max_new_tokens=8)
SAMPLED = Sampling(max_new_tokens=8, temperature=0.8, top_p=0.9, seed=5)


@pytest.fixture
def target(tiny_model, tiny_tokenizer) -> LocalTarget:
    return LocalTarget(tiny_model, tiny_tokenizer, "tiny")


@contextmanager
def passes(target: LocalTarget) -> Iterator[list[tuple[int, ...]]]:
    """Shapes of the token ids that go through the model."""
    shapes: list[tuple[int, ...]] = []
    hook = target.model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    try:
        yield shapes
    finally:
        hook.remove()


def is_greedy(model, tokenizer, prompt: str, tokens: Sequence[int], new_tokens: int) -> bool:
    """Whether the plain model, fed prompt and answer at once, would have chosen each of the answer's tokens."""
    ids = tokenizer(prompt)["input_ids"]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*ids, *tokens]]), use_cache=False).logits[0]
    ended = tokens[-1] == tokenizer.eos_token_id
    assert tokenizer.eos_token_id not in tokens[:-1]
    assert len(tokens) == new_tokens or (ended and len(tokens) < new_tokens)
    return logits.argmax(-1).tolist()[len(ids) - 1 : -1] == list(tokens)


# --- The same answers as without batches, prefixes and caches --------------------------------------------------------


def test_greedy_answers_are_those_of_the_plain_model(target, tiny_model, tiny_tokenizer):
    answers = target.generate(PROMPTS, GREEDY)
    for prompt, answer in zip(PROMPTS, answers):
        assert is_greedy(tiny_model, tiny_tokenizer, prompt, answer.token_ids, 8)
        assert answer.text == tiny_tokenizer.decode(answer.token_ids, skip_special_tokens=True)
        assert answer.token_count == len(answer.token_ids)
        assert answer.prompt_tokens == len(tiny_tokenizer(prompt)["input_ids"])
    assert {a.finish_reason for a in answers} <= {"stop", "length"}


def test_greedy_answers_are_those_of_transformers(target, tiny_model, tiny_tokenizer):
    for prompt, answer in list(zip(PROMPTS, target.generate(PROMPTS, GREEDY)))[::3]:
        inputs = tiny_tokenizer(prompt, return_tensors="pt")
        out = tiny_model.generate(**inputs, max_new_tokens=8, do_sample=False)
        assert answer.token_ids == tuple(out[0, inputs["input_ids"].shape[1] :].tolist())


def test_a_sampled_answer_is_a_function_of_its_key_and_the_plain_logits(target, tiny_model, tiny_tokenizer):
    answers = target.generate(PROMPTS, SAMPLED, keys=[f"item-{i}" for i in range(len(PROMPTS))])
    for i in (0, 3, 9):
        ids = tiny_tokenizer(PROMPTS[i])["input_ids"]
        for position, token in enumerate(answers[i].token_ids):
            with torch.inference_mode():
                logits = tiny_model(input_ids=torch.tensor([ids])).logits[:, -1]
            number = uniform(SAMPLED.seed, request_key(f"item-{i}"), position)
            assert int(choose(logits, [float(number)], SAMPLED)) == token
            ids = [*ids, token]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_answers_do_not_depend_on_batch_size_order_or_prefixes(tiny_model, tiny_tokenizer, sampling):
    prompts = PROMPTS + PROMPTS[:2]
    keys = [f"k{i}" for i in range(len(prompts))]
    expected = LocalTarget(tiny_model, tiny_tokenizer).generate(prompts, sampling, keys=keys)
    for options in ({"batch_rows": 1}, {"batch_rows": 3}, {"batch_rows": 16}, {"reuse_prefix": False}):
        target = LocalTarget(tiny_model, tiny_tokenizer, **options)
        assert target.generate(prompts, sampling, keys=keys) == expected
        order = random.Random(0).sample(range(len(prompts)), len(prompts))
        shuffled = target.generate([prompts[i] for i in order], sampling, keys=[keys[i] for i in order])
        assert shuffled == [expected[i] for i in order]


def tiny(kind: str, **changes):
    """Random models of other kinds, with windows much shorter than the prompts where they have one."""
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 384,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    if kind == "gpt2":
        shape = {
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 4,
            "vocab_size": 384,
            "n_positions": 512,
            "initializer_range": 0.3,
        }
        shape |= {"eos_token_id": 2, "bos_token_id": None}
    if kind == "bloom":
        shape = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 384, "initializer_range": 0.3}
        shape |= {"eos_token_id": 2, "bos_token_id": None, "pad_token_id": 0}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = AutoConfig.for_model(kind, **shape | changes)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=changes.get("attn_implementation"))
    return model.eval()


KINDS = {
    "gemma3 with sliding windows": (
        "gemma3_text",
        {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]},
        True,
    ),
    "gemma3, eager attention": (
        "gemma3_text",
        {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"], "attn_implementation": "eager"},
        True,
    ),
    "mistral, all windows": ("mistral", {"sliding_window": 24}, True),
    "qwen2": ("qwen2", {}, True),
    "gpt2, learned positions": ("gpt2", {}, True),
    "bloom, positions from the mask": ("bloom", {}, False),
    "qwen3 next, recurrent layers": (
        "qwen3_next",
        {
            "layer_types": ["linear_attention", "full_attention"],
            "num_experts": 0,
            "mlp_only_layers": [0, 1],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
        },
        False,
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_other_kinds_of_models_answer_as_they_do_alone(name, tiny_tokenizer):
    kind, changes, reuses = KINDS[name]
    model = tiny(kind, **changes)
    target = LocalTarget(model, tiny_tokenizer, name)
    prompts = PROMPTS[:6]
    answers = target.generate(prompts, Sampling(max_new_tokens=6))
    for prompt, answer in zip(prompts, answers):
        assert is_greedy(model, tiny_tokenizer, prompt, answer.token_ids, 6)
    scores = target.score(prompts, [" Paris is nice"] * len(prompts))
    for prompt, score in zip(prompts, scores):
        np.testing.assert_allclose(
            score.logprobs, plain_logprobs(model, tiny_tokenizer, prompt, score.token_ids), atol=1e-4
        )
    assert target.provenance()["shared_prefixes"].startswith("yes" if reuses else "no: ")


def test_a_model_whose_logits_change_behind_a_prefix_gets_none(tiny_model, tiny_tokenizer):
    model = copy.deepcopy(tiny_model)
    plain = model.forward

    def forward(*args, **kwargs):
        out = plain(*args, **kwargs)
        cache = kwargs.get("cache")
        if cache is not None and cache.get_seq_length() > kwargs["input_ids"].shape[1]:
            out.logits = out.logits + torch.arange(out.logits.shape[-1])
        return out

    forward.__signature__ = __import__("inspect").signature(plain)
    model.forward = forward
    target = LocalTarget(model, tiny_tokenizer, "odd")
    target.generate(PROMPTS[:4], Sampling(max_new_tokens=1))
    assert target.provenance()["shared_prefixes"].startswith("no")
    assert target.generate(PROMPTS[:4], Sampling(max_new_tokens=1)) == LocalTarget(tiny_model, tiny_tokenizer).generate(
        PROMPTS[:4], Sampling(max_new_tokens=1)
    )


def test_work_cut_into_small_passes_gives_the_same(target, monkeypatch):
    answers, scores = target.generate(PROMPTS, GREEDY), target.score(PROMPTS, [" The capital of Italy"] * len(PROMPTS))
    monkeypatch.setattr(engine, "_PASS_TOKENS", 24)
    monkeypatch.setattr(engine, "_LOGITS", 3000)
    again = LocalTarget(target.model, target.tokenizer)
    assert again.generate(PROMPTS, GREEDY) == answers
    for a, b in zip(again.score(PROMPTS, [" The capital of Italy"] * len(PROMPTS)), scores):
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)


# --- Prefixes are computed once --------------------------------------------------------------------------------------


def test_a_shared_prefix_goes_through_the_model_once(target):
    prompts = PROMPTS[:8]
    total = sum(target.count_tokens(prompts))
    target.generate(["warm up"], Sampling(max_new_tokens=1))
    with passes(target) as shapes:
        target.generate(prompts, Sampling(max_new_tokens=1))
    shared = next(shape[1] for shape in shapes if shape[0] == 1)
    assert sum(rows * width for rows, width in shapes) < total / 2
    with passes(target) as shapes:
        target.generate([p + " Now" for p in prompts], Sampling(max_new_tokens=1))
    assert all(rows > 1 for rows, _ in shapes), "the next batch takes the prefix from the store"
    assert all(width < shared for _, width in shapes)


def test_prompts_that_come_one_by_one_share_too(target):
    prompts = [SHOTS + prompt for prompt in PROMPTS[:4]]
    with passes(target) as shapes:
        for prompt in prompts:
            target.generate([prompt], Sampling(max_new_tokens=1))
    lengths = target.count_tokens(prompts)
    assert shapes[-1][1] < lengths[3] / 2
    assert sum(width for _, width in shapes[-2:]) < sum(lengths[2:]) / 2


def test_chat_prompts_share_the_template_and_the_system_message(target):
    chats = [
        [{"role": "system", "content": SHOTS}, {"role": "user", "content": question}] for question in QUESTIONS[:5]
    ]
    single = LocalTarget(target.model, target.tokenizer, reuse_prefix=False, batch_rows=1).generate(chats, GREEDY)
    with passes(target) as shapes:
        answers = target.generate(chats, GREEDY)
    assert answers == single
    assert sum(rows * width for rows, width in shapes) < sum(target.count_tokens(chats))


def test_several_families_of_prompts_each_share_their_own_prefix(target):
    other = "The quick brown fox jumps over the lazy dog. " * 6
    prompts = [f"{stem}Question: {question}" for question in QUESTIONS[:6] for stem in (SHOTS, other)]
    groups = target.batches(prompts, Sampling(max_new_tokens=1))
    assert sorted(map(sorted, groups)) == [list(range(0, 12, 2)), list(range(1, 12, 2))]
    assert target.generate(prompts, Sampling(max_new_tokens=3)) == LocalTarget(
        target.model, target.tokenizer, reuse_prefix=False
    ).generate(prompts, Sampling(max_new_tokens=3))


WORDS = st.lists(st.sampled_from(["dog ", "Rome ", "7 ", SHOTS, "The capital "]), max_size=4).map("".join)


@given(prompts=st.lists(WORDS, max_size=12), rows=st.integers(1, 5), tokens=st.integers(20, 600))
@settings(max_examples=40, deadline=None)
def test_planning_a_group_again_gives_one_group(tiny_model, tiny_tokenizer, prompts, rows, tokens):
    target = LocalTarget(tiny_model, tiny_tokenizer, batch_rows=rows, batch_tokens=tokens)
    for sampling in (GREEDY, None):
        groups = target.batches(prompts, sampling)
        assert sorted(i for group in groups for i in group) == list(range(len(prompts)))
        for group in groups:
            assert target.batches([prompts[i] for i in group], sampling) == [list(range(len(group)))]


def test_prompts_that_cannot_be_answered_are_one_group(target):
    prompts = ["fine", "dog " * 2000, "also fine", "cat " * 3000]
    groups = target.batches(prompts, GREEDY)
    assert [1, 3] in groups
    assert target.batches([prompts[1], prompts[3]], GREEDY) == [[0, 1]]


# --- What ends an answer ---------------------------------------------------------------------------------------------


def test_stop_strings_are_cut_off_wherever_they_fall(target):
    text = target.generate(PROMPTS[:1], Sampling(max_new_tokens=24))[0].text
    tried = 0
    for start in range(2, len(text) - 3, 4):
        stop = text[start : start + 3]
        if "\ufffd" in stop:
            continue
        answer = target.generate(PROMPTS[:1], Sampling(max_new_tokens=24, stop=(stop, "never there")))[0]
        assert answer.text == text[: text.index(stop)]
        assert answer.finish_reason == "stop"
        decoded = target.tokenizer.decode(answer.token_ids)
        assert stop in decoded
        assert stop not in target.tokenizer.decode(answer.token_ids[:-1]), "it stopped as soon as it could"
        tried += 1
    assert tried >= 5


def test_each_row_ends_by_itself_and_the_others_go_on(tiny_model, tiny_tokenizer):
    long = Sampling(max_new_tokens=24)
    model = copy.deepcopy(tiny_model)
    plain = [answer.token_ids for answer in LocalTarget(tiny_model, tiny_tokenizer).generate(PROMPTS, long)]
    # Several end tokens, taken from the middle of some answers.
    ends = {plain[0][3], plain[1][11], plain[4][20], plain[8][0]}
    model.generation_config.eos_token_id = sorted(ends)
    target = LocalTarget(model, tiny_tokenizer)
    with passes(target) as shapes:
        answers = target.generate(PROMPTS, long)
    ends |= {tiny_tokenizer.eos_token_id}
    for answer, tokens in zip(answers, plain):
        first = next((place for place, token in enumerate(tokens) if token in ends), None)
        assert answer.token_ids == (tokens if first is None else tokens[: first + 1])
        assert answer.finish_reason == ("length" if first is None else "stop")
    assert len({a.token_count for a in answers}) > 2
    decoding = [rows for rows, width in shapes if width == 1]
    assert sum(decoding) <= sum(a.token_count for a in answers), "finished rows are not run"


def test_the_end_token_is_counted_and_not_shown(tiny_model, tiny_tokenizer):
    model = copy.deepcopy(tiny_model)
    first = LocalTarget(tiny_model, tiny_tokenizer).generate(PROMPTS[:1], GREEDY)[0].token_ids[0]
    model.generation_config.eos_token_id = first
    answer = LocalTarget(model, tiny_tokenizer).generate(PROMPTS[:1], GREEDY)[0]
    assert (answer.text, answer.token_count, answer.finish_reason) == ("", 1, "stop")


def test_the_token_that_closes_the_assistants_turn_ends_an_answer(tiny_model, tiny_tokenizer):
    model, tokenizer = copy.deepcopy(tiny_model), copy.deepcopy(tiny_tokenizer)
    turn_end = tokenizer.eos_token_id
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.pad_token_id
    tokenizer.eos_token = tokenizer.pad_token
    chat = [{"role": "user", "content": "Who jumps?"}]
    with torch.no_grad():
        # A bias makes the closing token the likeliest one everywhere.
        model.lm_head.bias = torch.nn.Parameter(torch.zeros(384))
        model.lm_head.bias[turn_end] = 1e3
    answer = LocalTarget(model, tokenizer).generate([chat], GREEDY)[0]
    assert (answer.token_ids, answer.finish_reason, answer.text) == ((turn_end,), "stop", "")
    tokenizer.chat_template = None
    assert LocalTarget(model, tokenizer).generate(["Who jumps?"], GREEDY)[0].finish_reason == "length"


def test_a_long_answer_outgrows_the_reserved_room(target, tiny_model, tiny_tokenizer):
    answers = target.generate(PROMPTS[:3], Sampling(max_new_tokens=150))
    for prompt, answer in zip(PROMPTS, answers):
        assert is_greedy(tiny_model, tiny_tokenizer, prompt, answer.token_ids, 150)
    assert max(a.token_count for a in answers) > 130


def test_logprobs_are_of_the_untempered_law(target, tiny_model, tiny_tokenizer):
    sampling = SAMPLED.model_copy(update={"logprobs": True, "temperature": 0.3, "top_k": 3})
    for prompt, answer in zip(PROMPTS, target.generate(PROMPTS, sampling)):
        expected = plain_logprobs(tiny_model, tiny_tokenizer, prompt, answer.token_ids)
        np.testing.assert_allclose(answer.logprobs, expected, atol=1e-4)
    assert target.generate(PROMPTS[:1], GREEDY)[0].logprobs is None


def test_equal_prompts_get_different_samples_and_equal_keys_the_same(target):
    sampling = Sampling(max_new_tokens=10, temperature=1.0)
    twice = target.generate(["dog", "dog"], sampling)
    assert twice[0].token_ids != twice[1].token_ids
    assert target.generate(["dog", "dog"], sampling) == twice
    same = target.generate(["dog", "dog"], sampling, keys=["a", "a"])
    assert same[0] == same[1]
    other = target.generate(["dog"], sampling.model_copy(update={"seed": 1}), keys=["a"])
    assert other[0].token_ids != same[0].token_ids


# --- Bad input -------------------------------------------------------------------------------------------------------


def test_a_prompt_that_is_too_long_gets_a_reason_and_the_others_an_answer(target):
    answers = target.generate(["dog", "x" * 100_000, "Rome"], GREEDY)
    assert answers[1].finish_reason == "error"
    assert "tiny takes 511" in answers[1].error
    assert "\n" not in answers[1].error
    assert answers[1].text == ""
    assert [answers[0], answers[2]] == target.generate(["dog", "Rome"], GREEDY)


def test_an_answer_ends_where_the_window_ends(target, tiny_tokenizer):
    prompt = tiny_tokenizer.decode(tiny_tokenizer("dog " * 600)["input_ids"][:505])
    answer = target.generate([prompt], Sampling(max_new_tokens=50))[0]
    assert answer.prompt_tokens + answer.token_count <= 512
    assert answer.finish_reason == "length"
    assert target.generate([prompt], Sampling(max_new_tokens=50))[0] == answer


def test_a_smaller_context_can_be_asked_for(tiny_model, tiny_tokenizer):
    target = LocalTarget(tiny_model, tiny_tokenizer, context=20)
    assert target.generate(["dog " * 30], GREEDY)[0].finish_reason == "error"


def test_an_empty_prompt_begins_with_a_start_token(target, tiny_model, tiny_tokenizer):
    answer = target.generate([""], GREEDY)[0]
    assert answer.prompt_tokens == 1
    start = tiny_tokenizer.convert_ids_to_tokens(tiny_tokenizer.eos_token_id)
    assert is_greedy(tiny_model, tiny_tokenizer, start, answer.token_ids, 8)
    assert target.score([""], ["dog"])[0].token_ids == tuple(tiny_tokenizer("dog")["input_ids"])


def test_half_a_character_is_no_reason_to_fail(target):
    assert target.generate(["broken \ud800 text"], GREEDY)[0].finish_reason != "error"


def test_nothing_to_do_is_done(target):
    assert target.generate([], GREEDY) == []
    assert target.score([], []) == []
    assert target.batches([], GREEDY) == []
    assert target.embed([]).shape == (0, 64)


def test_lists_of_unequal_length_are_refused(target):
    with pytest.raises(ValueError, match="as many keys"):
        target.generate(["a", "b"], GREEDY, keys=["a"])
    with pytest.raises(ValueError, match="as many continuations"):
        target.score(["a", "b"], ["a"])


def test_nan_weights_are_reported_in_one_line(tiny_model, tiny_tokenizer):
    model = copy.deepcopy(tiny_model)
    with torch.no_grad():
        model.model.layers[1].mlp.down_proj.weight[0, 0] = float("nan")
    target = LocalTarget(model, tiny_tokenizer, "broken", reuse_prefix=False)
    for work in (
        lambda: target.generate(["dog"], GREEDY),
        lambda: target.score(["dog"], [" cat"]),
        lambda: target.embed(["dog"]),
    ):
        with pytest.raises(ModelError, match="NaN") as caught:
            work()
        assert "float32" in caught.value.hint


def test_when_memory_runs_out_half_as_many_prompts_go_at_once(tiny_model, tiny_tokenizer):
    target = LocalTarget(tiny_model, tiny_tokenizer)
    expected = target.generate(PROMPTS, GREEDY), target.score(PROMPTS, [" dog"] * len(PROMPTS)), target.embed(PROMPTS)
    model = copy.deepcopy(tiny_model)
    plain = model.model.forward

    def forward(*args, **kwargs):
        if kwargs["input_ids"].shape[0] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return plain(*args, **kwargs)

    model.model.forward = forward
    small = LocalTarget(model, tiny_tokenizer)
    assert small.generate(PROMPTS, GREEDY) == expected[0]
    for a, b in zip(small.score(PROMPTS, [" dog"] * len(PROMPTS)), expected[1]):
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)
    np.testing.assert_allclose(small.embed(PROMPTS), expected[2], atol=1e-5)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError(),
    ],
)
def test_too_little_memory_for_one_prompt_is_one_line(tiny_model, tiny_tokenizer, error):
    model = copy.deepcopy(tiny_model)

    def forward(*args, **kwargs):
        raise error

    model.model.forward = forward
    target = LocalTarget(model, tiny_tokenizer, "big", reuse_prefix=False)
    with pytest.raises(BackendError, match="ran out of memory on cpu with a single prompt") as caught:
        target.generate(["dog", "cat"], GREEDY)
    assert caught.value.hint


def test_other_errors_are_not_taken_for_lack_of_memory(tiny_model, tiny_tokenizer):
    model = copy.deepcopy(tiny_model)

    def forward(*args, **kwargs):
        raise RuntimeError("shapes do not match")

    model.model.forward = forward
    with pytest.raises(RuntimeError, match="shapes"):
        LocalTarget(model, tiny_tokenizer, reuse_prefix=False).generate(["dog", "cat"], GREEDY)


def test_an_encoder_decoder_is_refused(tiny_tokenizer):
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=384, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(ModelError, match="not a decoder-only"):
        LocalTarget(T5ForConditionalGeneration(config), tiny_tokenizer)


# --- Chat ------------------------------------------------------------------------------------------------------------


def test_messages_go_through_the_chat_template(target, tiny_model, tiny_tokenizer):
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who jumps?"}]
    text = tiny_tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    answer = target.generate([chat], GREEDY)[0]
    assert is_greedy(tiny_model, tiny_tokenizer, text, answer.token_ids, 8)
    assert target.count_tokens([chat, "dog"]) == [len(tiny_tokenizer(text)["input_ids"]), 2]
    assert "chat" in target.capabilities


def test_an_answer_goes_on_from_the_assistants_words(target, tiny_tokenizer):
    chat = [{"role": "user", "content": "Who jumps?"}, {"role": "assistant", "content": "The quick"}]
    text = tiny_tokenizer.apply_chat_template(chat, tokenize=False, continue_final_message=True)
    assert text.endswith("The quick")
    assert target.generate([chat], GREEDY)[0].token_ids == target.generate([text], GREEDY)[0].token_ids


def test_a_template_that_refuses_messages_gives_a_reason(target):
    tokenizer = copy.deepcopy(target.tokenizer)
    tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
        + tokenizer.chat_template
    )
    strict = LocalTarget(target.model, tokenizer)
    tool, user = {"role": "tool", "content": "x"}, {"role": "user", "content": "x"}
    answers = strict.generate([[tool], [user], [], [{"text": "x"}], 7], GREEDY)
    assert answers[0].finish_reason == "error"
    assert "no tools here" in answers[0].error
    assert answers[1].finish_reason != "error"
    assert answers[2].error == "There are no messages."
    assert "each with a role and a content" in answers[3].error
    assert "each with a role and a content" in answers[4].error


def test_a_system_message_that_is_not_supported_goes_before_the_first_question(target):
    tokenizer = copy.deepcopy(target.tokenizer)
    tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        + tokenizer.chat_template
    )
    strict = LocalTarget(target.model, tokenizer)
    assert not strict.style.supports_system
    folded = strict.generate(
        [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who jumps?"}]], GREEDY
    )
    assert folded == target.generate([[{"role": "user", "content": "Be brief.\n\nWho jumps?"}]], GREEDY)


def test_a_base_model_refuses_messages_unless_a_transcript_is_wanted(target):
    tokenizer = copy.deepcopy(target.tokenizer)
    tokenizer.chat_template = None
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Who jumps?"},
        {"role": "assistant", "content": "The fox."},
        {"role": "user", "content": "Over whom?"},
    ]
    base = LocalTarget(target.model, tokenizer, "base")
    assert "chat" not in base.capabilities
    with pytest.raises(ModelError, match="base has no chat template") as caught:
        base.generate([chat], GREEDY)
    assert "transcript=True" in caught.value.hint
    written = LocalTarget(target.model, tokenizer, "base", transcript=True)
    assert "chat" in written.capabilities
    text = "Be brief.\n\nUser: Who jumps?\nAssistant: The fox.\nUser: Over whom?\nAssistant:"
    assert written.generate([chat], GREEDY)[0].token_ids == target.generate([text], GREEDY)[0].token_ids


def test_thinking_is_taken_out_of_the_text(tiny_tokenizer):
    reader = Reader(tiny_tokenizer, ("STOP",), ("<think>", "</think>"))

    def split(text: str, thinks: bool = False) -> tuple[str, str, bool]:
        return reader.split(tiny_tokenizer(text)["input_ids"], thinks)

    assert split("<think>\nIs it STOP?\n</think>\n\n42") == ("Is it STOP?", "42", False)
    assert split("Is it 42?</think>42 STOP and more", thinks=True) == ("Is it 42?", "42 ", True)
    assert split("Still going STOP on", thinks=True) == ("Still going STOP on", "", False)
    assert split("<think>never closed") == ("never closed", "", False)
    assert split("No thought at all. STOP") == ("", "No thought at all. ", True)
    plain = Reader(tiny_tokenizer, (), None)
    assert plain.split(tiny_tokenizer("<think>a</think>b")["input_ids"], False) == ("", "<think>a</think>b", False)


def test_a_prompt_that_opens_the_thinking_part_is_seen(target):
    tokenizer = copy.deepcopy(target.tokenizer)
    tokenizer.chat_template = tokenizer.chat_template.replace("assistant\n{%", "assistant\n<think>\n{%") + (
        "{# an earlier thought ends at </think> #}"
    )
    thinker = LocalTarget(target.model, tokenizer)
    assert thinker.style.thinking == ("<think>", "</think>")
    answer = thinker.generate([[{"role": "user", "content": "Who jumps?"}]], GREEDY)[0]
    assert answer.text == ""
    assert answer.thinking == tokenizer.decode(answer.token_ids, skip_special_tokens=True).strip()


# --- Scores and embeddings -------------------------------------------------------------------------------------------


def plain_logprobs(model, tokenizer, prompt: str, tokens) -> list[float]:
    ids = tokenizer(prompt)["input_ids"]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([[*ids, *tokens]]), use_cache=False).logits[0].log_softmax(-1)
    return [float(logits[len(ids) + place - 1, token]) for place, token in enumerate(tokens)]


def test_scores_are_those_of_the_plain_model(target, tiny_model, tiny_tokenizer):
    prompts, texts = [], []
    for prompt in PROMPTS:
        for text in (" Paris", " yes no true false", "", " Tom has 7"):
            prompts.append(prompt)
            texts.append(text)
    for prompt, text, score in zip(prompts, texts, target.score(prompts, texts)):
        joint = tiny_tokenizer(prompt + text)["input_ids"]
        head = tiny_tokenizer(prompt)["input_ids"]
        assert joint[: len(head)] == head, "this prompt and text do not share a token"
        assert list(score.token_ids) == joint[len(head) :]
        expected = plain_logprobs(tiny_model, tiny_tokenizer, prompt, score.token_ids)
        np.testing.assert_allclose(score.logprobs, expected, atol=1e-4)
    assert target.score(["dog"], [""])[0].logprobs == ()


def test_many_continuations_of_one_prompt_run_it_once(target):
    prompt = PROMPTS[1]
    target.score(["warm up"], [" now"])
    with passes(target) as shapes:
        target.score([prompt] * 8, [f" {n}" for n in range(8)])
    assert sum(rows * width for rows, width in shapes) < 2 * target.count_tokens([prompt])[0]


def test_a_token_over_the_boundary_belongs_to_the_continuation(target, tiny_tokenizer):
    head, tail = "The capi", "tal of"
    joint, alone_ids = tiny_tokenizer(head + tail)["input_ids"], tiny_tokenizer(head)["input_ids"]
    shared = next(i for i, (a, b) in enumerate(zip(joint, alone_ids)) if a != b)
    assert shared < len(alone_ids)
    assert target.score([head], [tail])[0].token_ids == tuple(joint[shared:])


def test_after_messages_the_continuation_stands_by_itself(target, tiny_model, tiny_tokenizer):
    chat = [{"role": "user", "content": "Who jumps?"}]
    text = tiny_tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    score = target.score([chat], ["The fox"])[0]
    assert score.token_ids == tuple(tiny_tokenizer("The fox")["input_ids"])
    np.testing.assert_allclose(
        score.logprobs, plain_logprobs(tiny_model, tiny_tokenizer, text, score.token_ids), atol=1e-4
    )


def test_what_does_not_fit_the_window_cannot_be_scored(target):
    with pytest.raises(DataError, match="Prompt 1 and its continuation have"):
        target.score(["dog", "dog"], ["a", " dog" * 600])
    with pytest.raises(DataError, match="Prompt 0 cannot be scored"):
        target.score(["dog " * 600], ["a"])


def test_long_continuations_are_cut_into_batches_that_fit(tiny_model, tiny_tokenizer):
    target = LocalTarget(tiny_model, tiny_tokenizer, batch_tokens=300)
    prompts, texts = PROMPTS[8:] * 4, [" The capital of Italy" * 12] * 8
    whole = LocalTarget(tiny_model, tiny_tokenizer).score(prompts, texts)
    with passes(target) as shapes:
        scores = target.score(prompts, texts)
    assert max(rows * width for rows, width in shapes) <= 600
    for a, b in zip(scores, whole):
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)


def test_embeddings_are_mean_states_of_length_one(target, tiny_model, tiny_tokenizer):
    vectors = target.embed(PROMPTS)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    for prompt, vector in zip(PROMPTS, vectors):
        with torch.inference_mode():
            states = tiny_model.model(input_ids=torch.tensor([tiny_tokenizer(prompt)["input_ids"]])).last_hidden_state
        mean = states[0].mean(0)
        np.testing.assert_allclose(vector, mean / mean.norm(), atol=1e-5)
    np.testing.assert_allclose(target.embed(["dog " * 5000])[0], target.embed(["dog " * 6000])[0], atol=1e-6)


def test_what_stands_at_padding_is_in_no_embedding(tiny_model, tiny_tokenizer):
    """Token 0 fills up short rows; a model whose token 0 is no zero vector would show it."""
    model = copy.deepcopy(tiny_model)
    with torch.no_grad():
        model.get_input_embeddings().weight[0] = 1.0
    target = LocalTarget(model, tiny_tokenizer, "tiny")
    texts = ["dog", "the capital of dog is yes and dog"]
    together = target.embed(texts)
    for text, vector in zip(texts, together):
        np.testing.assert_allclose(vector, target.embed([text])[0], atol=1e-5)


# --- The rest --------------------------------------------------------------------------------------------------------


def test_progress_reaches_the_total(tiny_model, tiny_tokenizer):
    seen: list[tuple[int, int]] = []
    target = LocalTarget(tiny_model, tiny_tokenizer, batch_rows=3)
    target.generate(PROMPTS, GREEDY, progress=lambda *counts: seen.append(counts))
    assert seen[-1] == (len(PROMPTS), len(PROMPTS))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    target.embed(PROMPTS, progress=lambda *counts: seen.append(counts))
    target.score(PROMPTS, [" a"] * len(PROMPTS), progress=lambda *counts: seen.append(counts))
    assert seen[-1] == (len(PROMPTS), len(PROMPTS))


def test_a_folder_is_parsed_loaded_and_described(tiny_model_folder, target):
    with Target.parse(str(tiny_model_folder), batch_rows=4) as loaded:
        assert isinstance(loaded, LocalTarget)
        assert loaded.generate(PROMPTS, GREEDY) == target.generate(PROMPTS, GREEDY)
        assert {"generate", "score", "embed", "chat", "logprobs", "seed", "weights"} == loaded.capabilities
        about = loaded.provenance()
        assert json.loads(json.dumps(about)) == about
        assert about["dtype"] == "float32"
        assert about["device"] == "cpu"
        assert str(tiny_model_folder) not in json.dumps(about)
        assert any(len(digest) == 64 for digest in about["sha256"].values())
    loaded.close()
    with pytest.raises(ConfigError, match="closed"):
        loaded.generate(["dog"], GREEDY)
    assert loaded.provenance()["kind"] == "LocalTarget"


# --- The embedded model -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def embedded() -> LocalTarget:
    return LocalTarget.load("smollm2-135m", dtype="fp32", device="cpu")


@pytest.mark.model
def test_a_real_model_gives_the_same_logits_behind_a_shared_prefix(embedded):
    prompts = [f"{SHOTS * 3}Question: {question} Answer:" for question in QUESTIONS]
    texts = [" Paris.", " 42", " no", " yes, it is", " 12", " the fox", " true", " none"]
    for prompt, score in zip(prompts, embedded.score(prompts, texts)):
        expected = plain_logprobs(embedded.model, embedded.tokenizer, prompt, score.token_ids)
        np.testing.assert_allclose(score.logprobs, expected, atol=1e-4)
    for prompt, answer in zip(prompts, embedded.generate(prompts, Sampling(max_new_tokens=6))):
        assert is_greedy(embedded.model, embedded.tokenizer, prompt, answer.token_ids, 6)


@pytest.mark.model
def test_a_real_model_knows_the_capital_of_france(embedded):
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    answer = embedded.generate([chat], Sampling(max_new_tokens=20))[0]
    assert "Paris" in answer.text
    assert answer.finish_reason == "stop"
    assert "<|im_end|>" not in answer.text
    right, wrong = embedded.score([chat, chat], ["The capital of France is Paris.", "The capital of France is Rome."])
    assert right.total > wrong.total


@pytest.mark.model
@pytest.mark.slow
def test_full_batches_of_the_embedded_model_stay_under_three_gibibytes():
    code = """
import random, resource
from intarsia.core.local import LocalTarget
from intarsia.core.sampling import Sampling
draw, words = random.Random(0), "the cat sat on a mat and looked at seven green apples".split()
text = lambda n: " ".join(draw.choice(words) for _ in range(n))
target = LocalTarget.load("smollm2-135m", dtype="fp32", device="cpu")
rows = target.provenance()["batch_tokens"] // 2100
target.generate([text(2000) for _ in range(rows)], Sampling(max_new_tokens=2, temperature=1.0, top_p=0.9))
target.score([text(20)] * 16, [text(300) for _ in range(16)])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout.split()[-1]) < 3 * 2**20

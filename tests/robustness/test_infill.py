"""What a causal model proposes, held against a direct computation with its logits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.data.stories import stories
from intarsia.core.errors import ConfigError, DataError, ModelError
from intarsia.core.scripted import ScriptedTarget
from intarsia.robustness.candidates import SCOPES, Source, rewrites
from intarsia.robustness.infill import CausalInfillSource
from intarsia.robustness.words import keep_case, words

TEXTS = tuple(item.question for item in stories(60, seed=5, levels="1").items)
QUESTION = TEXTS[0]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Byte-level BPE with a good number of whole words."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=700,
            special_tokens=["<|endoftext|>"],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|endoftext|>", pad_token="<|endoftext|>", model_max_length=512
    )


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=256,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,  # which would make the start token's embedding zero
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()


def log_probability(model: Any, tokenizer: Any, text: str, start: bool) -> float:
    """Of a text's tokens: of all of them after the end-of-text token, or of all but the first, without that token."""
    import torch

    ids = [*([tokenizer.eos_token_id] if start else []), *tokenizer(text)["input_ids"]]
    with torch.inference_mode():
        logprobs = model(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return sum(float(logprobs[at, token]) for at, token in enumerate(ids[1:]))


def continuations(model: Any, tokenizer: Any, question: str, word: Any, m: int, lead: str = "Question: ") -> list[str]:
    """The m likeliest whole words, read off the vocabulary one by one."""
    import torch

    text = lead + question[: word.start]
    spaced = text.endswith(" ")
    left = text[:-1] if spaced else text
    ids = tokenizer(left)["input_ids"] or [tokenizer.eos_token_id]
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
    found: list[str] = []
    for token in logits.argsort(descending=True).tolist():
        raw = tokenizer.convert_ids_to_tokens(token)
        text = tokenizer.decode([token]).strip()
        if token == tokenizer.eos_token_id or not (text.isalpha() or text.isnumeric()):
            continue
        if spaced and not raw.startswith("\u0120"):
            continue
        if text.lower() != word.text.lower() and text.lower() not in {known.lower() for known in found}:
            found.append(text)
        if len(found) == m:
            break
    return found


@pytest.mark.parametrize("lead", ["", "Question: ", "It was "])
@pytest.mark.parametrize("question", [QUESTION, 'Tom saw "apples" (red ones)\nin a box.'])
def test_the_score_is_the_ratio_of_the_whole_questions(model: Any, tokenizer: Any, question: str, lead: str) -> None:
    source = CausalInfillSource((model, tokenizer), m=4, k=3, lead=lead)
    assert isinstance(source, Source)
    assert source.name in SCOPES
    for word, row in zip(words(question), source.propose(question, words(question)), strict=True):
        tried = continuations(model, tokenizer, question, word, 4, lead)
        # This tokenizer puts nothing before a text, so only a changed beginning needs a token to follow.
        start = " " not in (lead + question[: word.start]).strip()
        original = log_probability(model, tokenizer, lead + question, start)
        ratios = {}
        for text in tried:
            edited = lead + question[: word.start] + keep_case(word.text, text) + question[word.end :]
            ratios[text] = log_probability(model, tokenizer, edited, start) - original
        best = sorted(ratios, key=lambda text: -ratios[text])[:3]
        assert [c.text for c in row] == best
        assert [c.score for c in row] == pytest.approx([ratios[text] for text in best], abs=2e-3)


def test_the_whole_question_decides_and_not_the_left_context(model: Any, tokenizer: Any) -> None:
    source = CausalInfillSource((model, tokenizer), m=6, k=1)
    chosen = words(QUESTION)
    best = [row[0].text for row in source.propose(QUESTION, chosen)]
    likeliest = [continuations(model, tokenizer, QUESTION, word, 1)[0] for word in chosen]
    assert sum(a != b for a, b in zip(best, likeliest)) > len(chosen) // 3


def test_words_may_be_asked_alone_or_together(model: Any, tokenizer: Any) -> None:
    chosen = words(QUESTION)
    together = CausalInfillSource((model, tokenizer), m=3).propose(QUESTION, chosen)
    for word, row in zip(chosen[:6], together):
        alone = CausalInfillSource((model, tokenizer), m=3).propose(QUESTION, [word])[0]
        assert [c.text for c in alone] == [c.text for c in row]
        assert [c.score for c in alone] == pytest.approx([c.score for c in row], abs=1e-3)


@given(floor=st.floats(-60, 5), k=st.integers(0, 5))
@settings(max_examples=30)
def test_floor_and_k_cut_the_list_short(model: Any, tokenizer: Any, floor: float, k: int) -> None:
    chosen = words(QUESTION)[:5]
    everything = _SHARED.setdefault("all", CausalInfillSource((model, tokenizer), m=5, k=5)).propose(QUESTION, chosen)
    source = _SHARED.setdefault("cut", CausalInfillSource((model, tokenizer), m=5, k=5))
    source.k, source.min_ratio = k, floor
    for wide, narrow in zip(everything, source.propose(QUESTION, chosen), strict=True):
        assert narrow == [c for c in wide[:k] if c.score >= floor]


_SHARED: dict[str, CausalInfillSource] = {}


def test_results_are_kept(model: Any, tokenizer: Any) -> None:
    source = CausalInfillSource((model, tokenizer), m=3)
    first = source.propose(QUESTION, words(QUESTION))
    calls: list[int] = []
    handle = model.register_forward_pre_hook(lambda module, inputs: calls.append(1))
    try:
        assert source.propose(QUESTION, words(QUESTION)) == first
        assert not calls
        source.m = 0
        assert source.propose(QUESTION, words(QUESTION)) == [[] for _ in words(QUESTION)]
        assert not calls
    finally:
        handle.remove()


def test_rewrites_read_as_questions(model: Any, tokenizer: Any) -> None:
    chosen = words(QUESTION)
    source = CausalInfillSource((model, tokenizer), m=4)
    plan = rewrites(QUESTION, chosen, [(source.name, source.propose(QUESTION, chosen))])
    assert sum(map(len, plan)) > len(chosen)
    for row in plan:
        assert all(len(words(rewrite.text)) <= len(chosen) for rewrite in row)


def test_a_target_without_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match="next-token"):
        CausalInfillSource(ScriptedTarget({"*": "x"}, scorer=lambda prompt, text: -1.0))


def test_bad_input_gets_one_line(model: Any, tokenizer: Any) -> None:
    for options in ({"m": -1}, {"k": -1}, {"min_ratio": float("nan")}):
        with pytest.raises(ConfigError):
            CausalInfillSource((model, tokenizer), **options)  # type: ignore[arg-type]
    long = " ".join(TEXTS)
    with pytest.raises(DataError, match="tokens"):
        CausalInfillSource((model, tokenizer)).propose(long, words(long)[:1])
    assert CausalInfillSource((model, tokenizer)).propose("", []) == []


def test_damaged_weights_are_reported(model: Any, tokenizer: Any) -> None:
    import copy

    import torch

    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.lm_head.weight[:] = float("nan")
    with pytest.raises(ModelError, match="NaN"):
        CausalInfillSource((broken, tokenizer)).propose(QUESTION, words(QUESTION)[:1])


@pytest.mark.model
@pytest.mark.slow
def test_a_real_model_proposes_words_that_fit() -> None:
    from intarsia.core.target import Target

    target = Target.parse("smollm2-135m")
    question = "Tom bought five apples at the market. How many apples did he buy?"
    source = CausalInfillSource(target, m=8, k=3)
    chosen = [word for word in words(question) if word.text in ("bought", "market", "the")]
    rows = source.propose(question, chosen)
    assert all(1 <= len(row) <= 3 for row in rows)
    text = {candidate.text.lower() for candidate in rows[0]}
    assert text & {"has", "had", "bought", "buys", "picked", "got", "went", "is", "sold", "ate", "made"}
    assert max(c.score for row in rows for c in row) > -10

"""What a rewrite keeps: figures that can be worked out by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.scripted import ScriptedTarget
from intarsia.robustness.masked_lm import MaskedLMSource, _wordpiece
from intarsia.robustness.preservation import CLOSE, preservation

PAIRS = [
    ("Tom bought five apples.", "Tom purchased five apples."),
    ("Mary has a red ball.", "Mary has a red ball."),
    ("He ate two of them.", "He ate of them."),
    ("A dog sleeps here now.", "A cat sleeps here now and then."),
]
VECTORS = {
    PAIRS[0][0]: (1.0, 0.0),
    PAIRS[0][1]: (0.8, 0.6),
    PAIRS[1][0]: (3.0, 4.0),
    PAIRS[2][0]: (1.0, 0.0),
    PAIRS[2][1]: (0.0, 2.0),
    PAIRS[3][0]: (1.0, 0.0),
    PAIRS[3][1]: (0.95, math.sqrt(1 - 0.95**2)),
}


def encode(texts: Any) -> np.ndarray:
    return np.array([VECTORS[text] for text in texts])


def test_the_figures_are_those_worked_out_by_hand() -> None:
    found = preservation(PAIRS, encode)
    assert found.n == 4
    assert found.cosine is not None
    assert found.cosine_p5 is not None
    assert found.close is not None
    cosines = [0.8, 1.0, 0.0, 0.95]
    assert found.cosine.value == pytest.approx(np.mean(cosines))
    assert found.cosine_p5.value == pytest.approx(np.quantile(cosines, 0.05))
    assert CLOSE == 0.9
    assert found.close.value == 0.5
    # One of four words, none, one of five left out, one of five replaced and two added.
    assert found.words.value == pytest.approx((1 / 4 + 0 + 1 / 5 + 3 / 5) / 4)
    # bought -> purchased takes 8 edits, "two " 4, dog -> cat 3 and " and then" 9.
    assert found.edits.value == pytest.approx((8 + 0 + 4 + (3 + 9)) / 4)
    assert found.perplexity_ratio is None
    assert found.scorer == ""
    for figure in (found.cosine, found.cosine_p5, found.close, found.words, found.edits):
        assert figure.n == 4
        assert figure.interval is not None
        assert figure.interval.low <= figure.value <= figure.interval.high


def test_equal_texts_keep_everything() -> None:
    target = ScriptedTarget({"*": ""}, scorer=lambda prompt, text: -float(len(text)))
    found = preservation([(a, a) for a, _ in PAIRS], encode, target)
    assert found.cosine is not None
    assert found.close is not None
    assert found.perplexity_ratio is not None
    assert found.cosine.value == pytest.approx(1.0)
    assert (found.close.value, found.words.value, found.edits.value) == (1.0, 0.0, 0.0)
    assert found.perplexity_ratio.value == pytest.approx(1.0)


def test_the_perplexity_ratio_is_a_geometric_mean_by_token() -> None:
    figures = {text: -(1.0 + 0.1 * place) for place, text in enumerate(VECTORS)}
    target = ScriptedTarget({"*": ""}, scorer=lambda prompt, text: [figures[text]] * len(text.split()))
    found = preservation(PAIRS, False, target)
    assert found.cosine is None
    assert found.close is None
    assert found.perplexity_ratio is not None
    logs = [figures[a] - figures[b] for a, b in PAIRS]
    assert found.perplexity_ratio.value == pytest.approx(math.exp(np.mean(logs)))
    assert found.scorer == "causal"
    swapped = preservation([(b, a) for a, b in PAIRS], False, target).perplexity_ratio
    assert swapped is not None
    assert swapped.value == pytest.approx(1 / found.perplexity_ratio.value)


def test_a_masked_model_gives_pseudo_perplexity() -> None:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    tokenizer = _wordpiece([text for pair in PAIRS for text in pair], 120, 32)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertForMaskedLM(
            BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=32,
                max_position_embeddings=32,
            )
        )
    source = MaskedLMSource(model, tokenizer)
    found = preservation(PAIRS[:2], False, source)
    before, after = source.pseudo_log_likelihood(PAIRS[0])
    log = before.total / before.tokens - after.total / after.tokens
    assert found.perplexity_ratio is not None
    assert found.perplexity_ratio.value == pytest.approx(math.exp(log / 2), rel=1e-4)
    assert found.scorer == "masked"


def test_a_text_without_tokens_is_left_out_of_the_ratio_only() -> None:
    target = ScriptedTarget({"*": ""}, scorer=lambda prompt, text: -1.0 if text else [])
    found = preservation([("a", ""), ("a b", "a c"), ("c", "d")], False, target)
    assert found.n == 3
    assert found.perplexity_ratio is not None
    assert found.perplexity_ratio.n == 2
    assert preservation([("a", "")], False, target).perplexity_ratio is None


def test_rewrites_of_one_question_count_as_one_draw() -> None:
    pairs = [(a, b) for a, b in PAIRS for _ in range(5)]
    many, few = preservation(pairs, encode), preservation(PAIRS, encode)
    assert many.cosine is not None
    assert few.cosine is not None
    assert many.cosine.value == pytest.approx(few.cosine.value)
    assert many.cosine.interval is not None
    assert few.cosine.interval is not None
    width = many.cosine.interval.high - many.cosine.interval.low
    assert width == pytest.approx(few.cosine.interval.high - few.cosine.interval.low, rel=0.05)
    single = preservation([PAIRS[0]] * 5, encode)
    assert single.cosine is not None
    assert single.cosine.interval is None


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), min_size=1, max_size=3))
def test_any_texts_can_be_measured(pairs: list[tuple[str, str]]) -> None:
    found = preservation(pairs, False)
    assert found.edits.value >= 0
    assert (found.edits.value == 0) == all(a == b for a, b in pairs)
    assert found.words.value >= 0
    json.dumps(found.as_dict(), allow_nan=False)


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(DataError, match="no rewrites"):
        preservation([])
    with pytest.raises(ConfigError, match="cannot score"):
        preservation(PAIRS, False, ScriptedTarget({"*": ""}))


@pytest.mark.model
def test_a_synonym_keeps_more_than_another_word() -> None:
    question = "Tom bought five apples at the market."
    near = preservation([(question, question.replace("bought", "purchased"))])
    far = preservation([(question, question.replace("apples", "elephants"))])
    assert near.cosine is not None
    assert far.cosine is not None
    assert near.cosine.value > CLOSE > far.cosine.value

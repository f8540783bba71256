from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, ModelError
from intarsia.core.scripted import ScriptedTarget
from intarsia.robustness.candidates import Source
from intarsia.robustness.embedding import EmbeddingSource, _is_latin, _is_variant
from intarsia.robustness.words import words

SIZE, WIDTH = 120, 8
seeds = st.integers(0, 2**32 - 1)


def random_matrix(seed: int, scale: bool = True) -> np.ndarray:
    """Rows of very different lengths, so that dot products and cosines disagree."""
    generator = np.random.default_rng(seed)
    rows = generator.standard_normal((SIZE, WIDTH)).astype(np.float32)
    return rows * np.exp(generator.uniform(-4, 4, (SIZE, 1))).astype(np.float32) if scale else rows


def letters(i: int) -> str:
    return "".join(chr(ord("a") + digit) for digit in (i // 26, i % 26)) + "word"


TOKENS = [letters(i) for i in range(SIZE)]


def source(matrix: Any, **options: Any) -> EmbeddingSource:
    return EmbeddingSource(matrix, TOKENS, **({"morph_filter": "off"} | options))


@given(seeds, st.integers(0, SIZE - 1), st.integers(1, 15))
def test_neighbors_are_those_of_a_brute_force_top_k(seed: int, row: int, k: int) -> None:
    matrix = torch.tensor(random_matrix(seed))
    cosines = torch.nn.functional.cosine_similarity(matrix[row].double(), matrix.double(), dim=-1)
    cosines[row] = -2
    best = torch.topk(cosines, k)
    found = source(matrix, k=k, distinct=False).neighbors(TOKENS[row])
    assert [one.text for one in found] == [TOKENS[i] for i in best.indices]
    assert [one.score for one in found] == pytest.approx(best.values.tolist(), abs=1e-6)


@given(seeds, st.floats(-1, 1), st.integers(0, SIZE - 1))
def test_a_threshold_takes_all_above_it(seed: int, least: float, row: int) -> None:
    matrix = torch.tensor(random_matrix(seed))
    cosines = torch.nn.functional.cosine_similarity(matrix[row].double(), matrix.double(), dim=-1)
    cosines[row] = -2
    found = {one.text for one in source(matrix, min_cosine=least).neighbors(TOKENS[row])}
    sure = {TOKENS[i] for i in range(SIZE) if cosines[i] >= least + 1e-6}
    assert sure <= found <= {TOKENS[i] for i in range(SIZE) if cosines[i] >= least - 1e-6}


@given(seeds, st.integers(1, 20))
def test_more_neighbors_begin_with_fewer(seed: int, k: int) -> None:
    matrix = random_matrix(seed)
    fewer, more = source(matrix, k=k), source(matrix, k=k + 1)
    for word in TOKENS[:5]:
        assert more.neighbors(word)[:k] == fewer.neighbors(word)
        assert {one.text for one in fewer.propose_all([word])[word]} <= {
            one.text for one in more.propose_all([word])[word]
        }


@given(seeds, seeds)
def test_lengths_of_rows_do_not_matter(seed: int, other: int) -> None:
    matrix = random_matrix(seed, scale=False)
    scales = np.exp2(np.random.default_rng(other).integers(-30, 30, (SIZE, 1))).astype(np.float32)
    one, two = source(matrix), source(matrix * scales)
    pooled = TOKENS[3] + TOKENS[4]
    asked = [*TOKENS[:6], pooled]
    assert one.propose_all(asked) == two.propose_all(asked)
    assert one.cosine(pooled, TOKENS[9]) == two.cosine(pooled, TOKENS[9])


@given(seeds, st.sets(st.integers(0, SIZE - 1), min_size=1, max_size=40), st.integers(0, 3))
def test_company_does_not_matter(seed: int, rows: set[int], copies: int) -> None:
    matrix = random_matrix(seed)
    matrix[50 : 50 + copies] = matrix[0]  # ties
    asked = [TOKENS[i] for i in rows]
    together = source(matrix).propose_all(asked)
    alone = source(matrix)
    assert together == {word: alone.propose_all([word])[word] for word in asked}


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = random_matrix(1)
    whole = source(matrix).propose_all(TOKENS)
    monkeypatch.setattr("intarsia.robustness.embedding._SIMILARITIES", 7 * SIZE)
    monkeypatch.setattr("intarsia.robustness.embedding._BLOCK", 11)
    assert source(matrix).propose_all(TOKENS) == whole


def test_nothing_is_proposed_when_switched_off() -> None:
    assert source(random_matrix(0), k=0).propose_all(TOKENS[:3]) == {word: [] for word in TOKENS[:3]}
    assert source(random_matrix(0), k=0, min_cosine=-1.0).neighbors(TOKENS[0]) == []


# --- vocabularies ---------------------------------------------------------------------------------------------------


def circle(*degrees: float) -> np.ndarray:
    """Directions in a plane, so that neighbors can be read off; lengths differ."""
    angles = np.deg2rad(np.array(degrees))
    return np.stack([np.cos(angles), np.sin(angles)], axis=1) * np.arange(1, len(degrees) + 1)[:, None]


def texts(found: EmbeddingSource, word: str) -> list[str]:
    return [one.text for one in found.propose_all([word])[word]]


SENTENCEPIECE = ["\u2581apple", "\u2581Apple", "apple", "\u2581apples", "s", "les", "\u2581pear", "\u2581apple\u0301s"]


def test_filters_come_after_counting() -> None:
    """The paper counts first: with one place, the nearest of all uses it up, though a filter throws it out."""
    near = circle(0, 50, 60, 20, 70, 80, 10, 90)
    assert texts(EmbeddingSource(near, SENTENCEPIECE, k=1), "apple") == []  # the pear is nearer
    assert texts(EmbeddingSource(near, SENTENCEPIECE, k=2), "apple") == ["apples"]
    assert texts(EmbeddingSource(near, SENTENCEPIECE, k=2, morph_filter="drop_stem"), "apple") == ["pear"]
    assert texts(EmbeddingSource(near, SENTENCEPIECE, k=2, morph_filter="off"), "apple") == ["pear", "apples"]


def test_what_reads_the_same_uses_up_places_in_the_paper_only() -> None:
    near = circle(0, 5, 6, 20, 70, 80, 50, 90)
    paper = EmbeddingSource(near, SENTENCEPIECE, k=2, distinct=False)
    assert [one.text for one in paper.neighbors("apple")] == ["Apple", "apple"]
    assert texts(paper, "apple") == ["Apple"]
    assert texts(EmbeddingSource(near, SENTENCEPIECE, k=2, morph_filter="off"), "apple") == ["apples", "pear"]


def test_a_fragment_never_stands_in_for_the_whole_word() -> None:
    tokens = ["\u2581pear", "apple", "\u2581apple", "ples", "\u2581x"]
    found = EmbeddingSource(circle(0, 5, 9, 2, 80), tokens, k=2, morph_filter="off")
    assert [one.text for one in found.neighbors("pear")] == ["ples", "apple"]
    assert texts(found, "pear") == ["apple"]
    assert found.propose_all(["pear"])["pear"][0].score == pytest.approx(np.cos(np.deg2rad(9)))


@pytest.mark.parametrize(
    ("tokens", "marks"),
    [
        (["\u2581cat", "cat", "\u2581cats", "s", "\u2581dog"], "sentencepiece"),
        (["\u0120cat", "cat", "\u0120cats", "s", "\u0120dog"], "byte"),
        (["cat", "##cat", "cats", "##s", "dog"], "wordpiece"),
        (["cat", "Cat", "cats", "fox", "dog"], "plain"),
    ],
)
def test_marks_of_words(tokens: list[str], marks: str) -> None:
    found = EmbeddingSource(circle(0, 1, 10, 5, 90), tokens, k=3)
    assert found.marks == marks
    assert found.token_ids("cat") == (0,)
    assert texts(found, "cat") == ["cats"]
    if marks != "plain":
        assert found.token_ids("dogs") == (4, 3)
        assert found.vector("dogs") == pytest.approx(circle(47.5)[0], abs=1e-6)
    assert found.token_ids("xyz") == ()


def test_bytes_are_decoded() -> None:
    found = EmbeddingSource(circle(0, 1, 2), ["\u0120caf\u00c3\u00a9", "\u0120caf\u00c3\u00a9s", "\u00c3"], k=2)
    assert found.token_ids("caf\u00e9") == (0,)
    assert texts(found, "caf\u00e9") == ["caf\u00e9s"]


def test_a_word_without_its_own_token_is_tried_without_a_space_first() -> None:
    found = EmbeddingSource(circle(0, 30, 60), ["\u2581b", "bc", "c"], k=1)
    assert found.token_ids("bc") == (1,)


def test_the_tokenizer_splits_where_there_is_one() -> None:
    seen: list[str] = []

    def tokenize(text: str) -> list[int]:
        seen.append(text)
        return [2, 0]

    found = EmbeddingSource(circle(0, 30, 60), ["\u2581a", "\u2581b", "c"], tokenize=tokenize)
    assert found.token_ids("zzz") == (2, 0)
    assert seen == [" zzz"]
    unknown = EmbeddingSource(circle(0, 30, 60), ["\u2581a", "\u2581b", "c"], tokenize=tokenize, special=[2])
    assert unknown.token_ids("zzz") == ()  # part of it is unknown
    assert unknown.vector("zzz") is None
    assert unknown.cosine("zzz", "a") == 0.0
    assert texts(unknown, "zzz") == []


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        ("apple", True),
        ("caf\u00e9", True),
        ("cafe\u0301", True),
        ("don't", True),
        ("twenty-five", True),
        ("", False),
        ("-", False),
        ("12", False),
        ("x2", False),
        ("apple,", False),
        ("'s", False),
        ("\u044f\u0431\u043b\u043e\u043a\u043e", False),
        ("p\u0430y", False),  # a Cyrillic letter among Latin ones
        ("a\u0000b", False),
        ("a\u00adb", False),
        ("a b", False),
        ("\ufffd", False),
    ],
)
def test_characters(text: str, stays: bool) -> None:
    assert _is_latin(text) is stays


@pytest.mark.parametrize(
    ("word", "text", "is_variant"),
    [
        ("apples", "apple", True),
        ("buy", "buying", True),
        ("happy", "happiness", True),
        ("color", "colour", True),
        ("apples", "oranges", False),
        ("bought", "purchased", False),
        ("bought", "buy", False),  # irregular forms share no stem; the paper's filter loses them too
        ("he", "she", False),
        ("he", "we", False),
    ],
)
def test_variants(word: str, text: str, is_variant: bool) -> None:
    assert _is_variant(word, text) is is_variant


@given(st.text("abes", max_size=8), st.text("abes", max_size=8))
def test_keeping_and_dropping_share_out_what_there_is(word: str, text: str) -> None:
    tokens = [word or "a", text or "b", "zzzzzz"]
    matrix = circle(0, 10, 20)
    parts = {
        mode: texts(EmbeddingSource(matrix, tokens, k=2, marks="plain", morph_filter=mode), tokens[0])
        for mode in ("keep_stem", "drop_stem", "off")
    }
    assert sorted(parts["keep_stem"] + parts["drop_stem"]) == sorted(parts["off"])


def test_a_filter_of_ones_own() -> None:
    known = {"apples"}
    near = circle(0, 50, 60, 20, 70, 80, 10, 5)
    assert texts(EmbeddingSource(near, SENTENCEPIECE, k=4), "apple") == ["apple\u0301s", "apples"]
    assert texts(EmbeddingSource(near, SENTENCEPIECE, k=4, accept=known.__contains__), "apple") == ["apples"]


# --- models ---------------------------------------------------------------------------------------------------------


def test_of_a_model(tiny_model: Any, tiny_tokenizer: Any) -> None:
    weight = tiny_model.get_input_embeddings().weight
    before = weight.detach().clone()
    found = EmbeddingSource.from_model(tiny_model, tiny_tokenizer, morph_filter="off", k=5)
    assert torch.equal(weight, before)
    assert isinstance(found, Source)
    question = "The capital of France is Paris, the capital."
    proposed = found.propose(question, words(question))
    assert len(proposed) == len(words(question))
    assert proposed[1] == proposed[-1]  # the same word
    assert any(proposed)
    ids = tiny_tokenizer.encode(" capital", add_special_tokens=False)
    assert found.token_ids("capital") == tuple(ids)
    control = set(tiny_tokenizer.all_special_tokens)
    everything = EmbeddingSource.from_model(tiny_model, tiny_tokenizer, min_cosine=-1.0, distinct=False)
    assert control.isdisjoint(one.text for one in everything.neighbors("the"))
    again = pickle.loads(pickle.dumps(found))
    assert again.propose(question, words(question)) == proposed
    with ThreadPoolExecutor(8) as pool:
        fresh = EmbeddingSource.from_model(tiny_model, tiny_tokenizer, morph_filter="off", k=5)
        assert all(one == proposed for one in pool.map(lambda _: fresh.propose(question, words(question)), range(16)))


def test_half_precision_and_padding(tiny_model: Any, tiny_tokenizer: Any) -> None:
    import copy

    padded = copy.deepcopy(tiny_model)
    size = len(tiny_tokenizer)
    padded.resize_token_embeddings(size + 40, mean_resizing=False)
    full = EmbeddingSource.from_model(tiny_model, tiny_tokenizer, morph_filter="off")
    assert EmbeddingSource.from_model(padded, tiny_tokenizer, morph_filter="off").neighbors("the") == full.neighbors(
        "the"
    )
    half = EmbeddingSource.from_model(padded.to(torch.bfloat16), tiny_tokenizer, morph_filter="off")
    assert half.cosine("the", "capital") == pytest.approx(full.cosine("the", "capital"), abs=0.02)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_embeddings_that_are_not_there(tiny_model: Any, tiny_tokenizer: Any) -> None:
    from transformers import LlamaForCausalLM

    with torch.device("meta"):
        hollow = LlamaForCausalLM(tiny_model.config)
    with pytest.raises(ModelError, match="meta device"):
        EmbeddingSource.from_model(hollow, tiny_tokenizer)
    with pytest.raises(ModelError, match="no matrix"):
        EmbeddingSource.from_model(object(), tiny_tokenizer)
    with pytest.raises(ModelError, match=r"packed as torch\.int8"):
        EmbeddingSource(torch.ones(3, 2, dtype=torch.int8), ["a", "b", "c"])
    packed = torch.quantize_per_tensor(torch.tensor(circle(0, 10, 50)).float(), 0.02, 0, torch.qint8)
    assert EmbeddingSource(packed, ["a", "b", "c"], k=1, morph_filter="off").neighbors("a")[0].text == "b"


def test_of_a_target(tiny_model: Any, tiny_tokenizer: Any, tiny_model_folder: Any) -> None:
    from intarsia.core.local import LocalTarget

    local = LocalTarget(tiny_model, tiny_tokenizer, "tiny")
    found = EmbeddingSource.from_target(local, morph_filter="off")
    assert found.origin == "tiny"
    by_name = EmbeddingSource.from_target(str(tiny_model_folder), morph_filter="off")
    assert by_name.neighbors("capital") == found.neighbors("capital")
    with pytest.raises(ConfigError, match="does not show its weights"):
        EmbeddingSource.from_target(ScriptedTarget(lambda prompt: "x"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": -1}, "number of neighbors"),
        ({"k": True}, "number of neighbors"),
        ({"k": 2.5}, "number of neighbors"),
        ({"min_cosine": 1.5}, "min_cosine"),
        ({"min_cosine": float("nan")}, "min_cosine"),
        ({"morph_filter": "stem"}, "morph_filter"),
        ({"marks": "bpe"}, "marks"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EmbeddingSource(circle(0, 1), ["a", "b"], **options)


def test_matrices() -> None:
    with pytest.raises(ModelError, match="NaN"):
        EmbeddingSource(np.array([[1.0, np.nan]]), ["a"])
    with pytest.raises(ModelError, match="int64"):
        EmbeddingSource(np.array([[1, 2]]), ["a"])
    for matrix, tokens in ((np.ones(3), ["a"]), (np.ones((0, 3)), ["a"]), (np.ones((2, 3)), []), ([[1.0]], ["a"])):
        with pytest.raises(ConfigError, match="has a row for each token"):
            EmbeddingSource(matrix, tokens)
    rows = circle(0, 10, 20, 30)
    rows[1] = 0  # an unused token
    found = EmbeddingSource(rows, ["a", "b", None, "d"], morph_filter="off")
    assert texts(found, "a") == ["d"]
    assert texts(found, "b") == []
    tiny = EmbeddingSource(rows.astype(np.float64) * 1e-200, ["a", "b", "c", "d"], morph_filter="off")
    assert texts(tiny, "a") == ["c", "d"]


@given(st.text(max_size=12))
def test_any_word_can_be_asked(text: str) -> None:
    found = EmbeddingSource(circle(0, 30, 60), ["\u2581a", "\u2581b", "c"])
    assert all(-1 <= one.score <= 1 for one in found.propose_all([text])[text])
    assert -1 <= found.cosine(text, "a") <= 1


@pytest.mark.model
@pytest.mark.slow
def test_real_neighbors() -> None:
    found = EmbeddingSource.from_target("smollm2-135m", distinct=False)
    assert [one.text for one in found.neighbors("apples")][:3] == ["Apples", "apples", "apple"]
    near = {one.text for one in found.neighbors("apples")}
    assert {"oranges", "bananas", "peaches"} <= near
    assert {"purchased", "buys", "buying", "buy"} <= {one.text for one in found.neighbors("bought")}
    assert texts(found, "apples") == ["Apples", "apple"]
    assert found.cosine("bought", "purchased") > 0.8 > 0.3 > found.cosine("bought", "bribed")


def test_keep_lemma_keeps_forms_of_the_same_noun_or_verb_only() -> None:
    words_V = ["marbles", "marble", "marvel", "wide", "wider", "bought", "buys", "a", "and", "collected", "collection"]
    matrix_VD = np.ones((len(words_V), 4)) + 0.01 * np.arange(4 * len(words_V)).reshape(-1, 4)
    source = EmbeddingSource(matrix_VD, words_V, k=len(words_V), morph_filter="keep_lemma", marks="plain")
    found = {word: [one.text for one in row] for word, row in source.propose_all(words_V).items()}
    assert found["marbles"] == ["marble"]
    assert found["bought"] == ["buys"]
    assert found["wide"] == []  # "wider" would be another claim
    assert found["a"] == []
    assert found["collected"] == []

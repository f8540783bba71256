"""Similarities: direction, range, cleaning, and no pair computed twice."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, ModelError
from intarsia.core.scripted import ScriptedTarget
from intarsia.uncertainty.generator import PLACEHOLDER
from intarsia.uncertainty.similarity import (
    NLI,
    CrossEncoder,
    Embedding,
    Exact,
    FunctionSimilarity,
    Lexical,
    PairCache,
    Similarity,
    as_similarity,
    clean_text,
    load_classifier,
    similarity_matrix,
)

WORDS = ["the", "city", "of", "paris", "lyon", "in", "france", "is", "not", "1912", "red", "river"]
few = settings(max_examples=30)
texts = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)


# --- Texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Paris<|im_end|>", "Paris"),
        ("Paris</s><pad><pad>", "Paris"),
        (" Paris <|eot_id|>ignored", "Paris"),
        ("Paris\nQuestion: who?", "Paris"),
        ("\n\n Paris", "Paris"),
        ("**Paris**", "Paris"),
        ("It is <b>Paris</b>.", "It is Paris."),
        ("**Paris", "Paris"),
        ("Answer: Paris", "Paris"),
        ("**Answer:** Paris", "Paris"),
        ("**Final answer:**\n**Paris**\nBecause", "Paris"),
        ("The answer is: 42", "42"),
        ("2**3", "2**3"),
        ("Answering machine", "Answering machine"),
        ("", PLACEHOLDER),
        (" \n\t", PLACEHOLDER),
        ("<|im_end|>", PLACEHOLDER),
        ("Answer:", PLACEHOLDER),
    ],
)
def test_clean_text(text: str, wanted: str) -> None:
    assert clean_text(text) == wanted


pieces = st.lists(
    st.sampled_from(["**", "<b>", "</b>", "Answer: ", "\n", " ", "</s>", "<|im_end|>", "a", "*", "The answer is:"])
)


@few
@given(pieces.map("".join) | st.text())
def test_cleaning_twice_changes_nothing(text: str) -> None:
    once = clean_text(text)
    assert once
    assert clean_text(once) == once
    assert "\n" not in once
    assert "</s>" not in once


# --- Words -----------------------------------------------------------------------------------------------------------


def test_exact() -> None:
    pairs = [("The Beatles", "beatles."), ("Paris", "Lyon"), ("", "")]
    assert Exact().pairs(pairs).tolist() == [1.0, 0.0, 1.0]


def test_lexical_by_hand() -> None:
    pairs = [("red river city", "river city in france"), ("paris", "Paris!"), ("lyon", "paris"), ("a", "lyon")]
    assert Lexical().pairs(pairs).tolist() == pytest.approx([2 / 5, 1.0, 0.0, 0.0])
    # The longest common subsequence keeps the order; a set of words does not.
    swapped = [("red river city", "city river red"), ("red river city", "red city")]
    assert Lexical().pairs(swapped).tolist() == pytest.approx([1.0, 2 / 3])
    assert Lexical("rouge-l").pairs(swapped).tolist() == pytest.approx([1 / 3, 4 / 5])


@few
@given(st.lists(st.tuples(texts, texts), max_size=6))
@pytest.mark.parametrize("similarity", [Exact(), Lexical(), Lexical("rouge-l")], ids=lambda s: s.name)
def test_words_are_symmetric_reflexive_and_in_range(similarity: Any, pairs: list[tuple[str, str]]) -> None:
    there, back = similarity.pairs(pairs), similarity.pairs([(b, a) for a, b in pairs])
    assert there.shape == (len(pairs),)
    assert np.array_equal(there, back)
    assert ((there >= 0) & (there <= 1)).all()
    assert (similarity.pairs([(a, a) for a, _ in pairs]) == 1).all()


# --- The cache -------------------------------------------------------------------------------------------------------


class Counting:
    """Says how long the premise is, and remembers what it was asked."""

    name = "counting"

    def __init__(self, symmetric: bool = False) -> None:
        self.symmetric = symmetric
        self.asked: list[list[tuple[str, str]]] = []

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        self.asked.append(list(pairs))
        return np.array([1.0 / (1 + len(a)) for a, _ in pairs])


def test_the_cache_computes_each_pair_once_and_counts() -> None:
    inner = Counting()
    cache = PairCache(inner)
    pairs = [("a", "bb"), ("bb", "a"), ("a", "bb"), ("a", "a")]
    assert cache.pairs(pairs).tolist() == [1 / 2, 1 / 3, 1 / 2, 1.0]  # the first text is the premise
    assert inner.asked == [[("a", "bb"), ("bb", "a")]]
    cache.pairs([("a", "bb"), ("c", "a")])
    assert inner.asked[1:] == [[("c", "a")]]
    assert (cache.asked, cache.computed) == (6, 3)
    assert cache.pairs([]).shape == (0,)
    assert cache.computed == 3


def test_a_symmetric_similarity_is_asked_one_way_and_a_strict_cache_asks_for_equal_texts() -> None:
    inner = Counting(symmetric=True)
    cache = PairCache(inner, reflexive=False)
    assert len(set(cache.pairs([("b", "aa"), ("aa", "b")]).tolist())) == 1
    assert cache.pairs([("aa", "aa")]).tolist() == [1 / 3]
    assert cache.computed == 2


@few
@given(st.lists(st.lists(st.tuples(texts, texts), max_size=5), max_size=5), st.integers(1, 4))
def test_the_cache_never_changes_a_value(calls: list[list[tuple[str, str]]], size: int) -> None:
    cache = PairCache(Counting(), size=size)
    for pairs in calls:
        wanted = [1.0 if a == b else 1.0 / (1 + len(a)) for a, b in pairs]
        assert cache.pairs(pairs).tolist() == wanted
        assert len(cache._known) <= size
    assert cache.computed <= cache.asked == sum(map(len, calls))


def test_a_cache_travels_to_another_process() -> None:
    cache = as_similarity("jaccard")
    cache.pairs([("red river", "river")])
    copy = pickle.loads(pickle.dumps(cache))
    assert copy.pairs([("river", "red river")]).tolist() == [0.5]
    assert copy.computed == 1


@pytest.mark.parametrize(
    ("values", "error"),
    [([0.5], ConfigError), ([0.5, 1.5], ConfigError), ([-0.2, 0.1], ConfigError), ([np.nan, 0.1], ModelError)],
)
def test_a_similarity_out_of_range_is_refused(values: list[float], error: type[Exception]) -> None:
    with pytest.raises(error):
        as_similarity(lambda pairs: values).pairs([("a", "b"), ("b", "a")])


def test_rounding_beyond_one_is_cut_off() -> None:
    assert as_similarity(lambda a, b: 1.0000002).pairs([("a", "b")]).tolist() == [1.0]


def test_functions_of_two_texts_and_of_pairs() -> None:
    def one(a: str, b: str) -> float:
        return float(a < b)

    def many(pairs: list[tuple[str, str]]) -> list[float]:
        return [float(a < b) for a, b in pairs]

    for function in (one, many):
        similarity = as_similarity(function)
        assert similarity.name == function.__name__
        assert similarity_matrix(similarity, ["a", "b"]).tolist() == [[1.0, 1.0], [0.0, 1.0]]
    assert FunctionSimilarity(lambda *texts: 0.25).pairs([("a", "b")]).tolist() == [0.25]
    with pytest.raises(ConfigError, match="takes 3"):
        as_similarity(lambda a, b, c: 0.0)


def test_names() -> None:
    named = {
        n: as_similarity(n).name for n in ("exact", "jaccard", "rouge-l", "embedding", "nli:x/y", "nli-contra:x/y")
    }
    assert list(named.values()) == [
        "exact", "jaccard", "rouge-l", "embedding:minilm-l6", "nli-entail:x/y", "nli-contra:x/y"
    ]  # fmt: skip
    cache = as_similarity("exact")
    assert as_similarity(cache) is cache
    assert isinstance(cache, Similarity)
    for wrong in ("cosine", "exact:x", 3):
        with pytest.raises(ConfigError):
            as_similarity(wrong)  # type: ignore[arg-type]


# --- Models ----------------------------------------------------------------------------------------------------------


class Letters:
    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        self.asked.append(list(texts))
        return np.array([[text.count("a") - text.count("z"), text.count("b")] for text in texts], dtype=np.float32)


def test_embedding_maps_cosines_to_the_unit_interval() -> None:
    encoder = Letters()
    pairs = [("a", "aa"), ("a", "b"), ("a", "z"), ("a", "ab"), ("", "a")]
    half = Embedding(encoder).pairs(pairs)
    assert encoder.asked == [["a", "aa", "b", "z", "ab", ""]]
    assert half.tolist() == pytest.approx([1.0, 0.5, 0.0, (1 + np.sqrt(0.5)) / 2, 0.5])
    assert Embedding(encoder, mapping="clip").pairs(pairs).tolist() == pytest.approx([1, 0, 0, np.sqrt(0.5), 0])
    assert Embedding(encoder).pairs([]).shape == (0,)


def test_what_is_no_encoder_is_refused() -> None:
    with pytest.raises(ConfigError, match="no sentence encoder"):
        Embedding(3)
    with pytest.raises(ConfigError, match="cannot embed"):
        Embedding(ScriptedTarget(lambda prompt: "x"))
    with pytest.raises(ModelError, match="NaN"):
        Embedding(lambda texts: np.full((len(texts), 2), np.nan)).pairs([("a", "b")])
    with pytest.raises(ConfigError, match="shape"):
        Embedding(lambda texts: np.ones(2)).pairs([("a", "b")])


@pytest.mark.model
def test_the_small_encoder_knows_paraphrases() -> None:
    near, far = as_similarity("embedding").pairs([("New York City", "NYC, New York"), ("New York City", "1987")])
    assert 1 >= near > far + 0.2 >= 0.2


def tokenizer_of_words(longest: int = 64) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    raw = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    raw.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=longest, model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip


def classifier(labels: Sequence[str], longest: int = 64) -> tuple[Any, Any]:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = tokenizer_of_words(longest)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=64, initializer_range=0.5, pad_token_id=0, id2label=dict(enumerate(labels)),
        )  # fmt: skip
        return BertForSequenceClassification(config).eval(), tokenizer


ORDERS = [("CONTRADICTION", "NEUTRAL", "ENTAILMENT"), ("entailment", "neutral", "contradiction")]
PAIRS = [("paris", "the city of paris in france"), ("lyon is not paris", "paris"), ("", "red"), ("river", "river")]


def by_hand(model: Any, tokenizer: Any, pair: tuple[str, str]) -> Any:
    import torch

    with torch.no_grad():
        return model(**tokenizer(*pair, return_tensors="pt")).logits[0].softmax(-1)


@pytest.mark.parametrize("labels", ORDERS)
def test_nli_takes_the_class_that_the_model_names(labels: tuple[str, ...]) -> None:
    model, tokenizer = classifier(labels)
    names = [label.lower() for label in labels]
    entail, contra = NLI((model, tokenizer)).pairs(PAIRS), NLI((model, tokenizer), "contra").pairs(PAIRS)
    for i, pair in enumerate(PAIRS):  # a padded batch gives what the pair alone gives, premise first
        probs = by_hand(model, tokenizer, pair)
        assert entail[i] == pytest.approx(float(probs[names.index("entailment")]), abs=1e-5)
        assert contra[i] == pytest.approx(1 - float(probs[names.index("contradiction")]), abs=1e-5)
    back = NLI((model, tokenizer)).pairs([(b, a) for a, b in PAIRS])
    assert np.abs(entail - back).max() > 1e-3  # it has a direction
    small = NLI((model, tokenizer), batch_tokens=8).pairs(PAIRS)
    assert np.allclose(small, entail, atol=1e-5)
    assert NLI((model, tokenizer)).pairs([]).shape == (0,)


def test_nli_refuses_a_model_without_the_class() -> None:
    unnamed = classifier(["LABEL_0", "LABEL_1", "LABEL_2"])
    with pytest.raises(ModelError, match="not one says entail"):
        NLI(unnamed)
    with pytest.raises(ModelError, match="not one says contradict"):
        NLI(classifier(["entailment", "not_entailment"]), "contra")
    with pytest.raises(ModelError):
        NLI(unnamed, labels=["neutral", "entailment"])  # three classes, two names
    named = NLI(unnamed, labels=["neutral", "entailment", "contradiction"])
    assert named.pairs(PAIRS[:1])[0] == pytest.approx(float(by_hand(*unnamed, PAIRS[0])[1]), abs=1e-5)


def test_all_pairs_of_a_question_go_in_one_batch_and_a_window_bounds_them() -> None:
    model, tokenizer = classifier(ORDERS[0])
    shapes: list[tuple[int, ...]] = []
    forward = model.forward

    def watched(**batch: Any) -> Any:
        shapes.append(tuple(batch["input_ids"].shape))
        return forward(**batch)

    model.forward = watched
    NLI((model, tokenizer)).pairs([(a, b) for a in WORDS for b in WORDS])
    assert shapes == [(len(WORDS) ** 2, 5)]
    shapes.clear()
    NLI((model, tokenizer), window=10).pairs([("red " * 100, "river"), ("red", "river")])
    assert shapes == [(2, 10)]
    shapes.clear()
    NLI((model, tokenizer)).pairs([("red " * 100, "river " * 100)])  # never more than the model can read
    assert shapes == [(1, 64)]


def test_a_batch_that_does_not_fit_is_halved() -> None:
    import torch

    model, tokenizer = classifier(ORDERS[0])
    wanted = NLI((model, tokenizer)).pairs(PAIRS)
    forward = model.forward

    def tight(**batch: Any) -> Any:
        if len(batch["input_ids"]) > 1:
            raise torch.OutOfMemoryError("no room")
        return forward(**batch)

    model.forward = tight
    assert np.allclose(NLI((model, tokenizer)).pairs(PAIRS), wanted, atol=1e-5)


def test_a_classifier_is_loaded_by_name_when_first_needed(tmp_path: Path) -> None:
    model, tokenizer = classifier(ORDERS[0])
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    similarity = NLI(str(tmp_path), device="cpu")
    assert similarity.classifier._loaded is None
    assert np.allclose(similarity.pairs(PAIRS), NLI((model, tokenizer)).pairs(PAIRS), atol=1e-6)
    half, _ = load_classifier(str(tmp_path), device="cpu", dtype="bf16")
    assert str(half.dtype) == "torch.bfloat16"
    rough = NLI((half, tokenizer)).pairs(PAIRS)
    assert np.isfinite(rough).all()
    assert np.allclose(rough, similarity.pairs(PAIRS), atol=0.1)


def test_a_classifier_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="jaccard"):
        NLI(str(tmp_path / "nothing"), offline=True).pairs(PAIRS)
    for wrong in ({"affinity": "neutral"}, {"window": 2}, {"dtype": "int8"}):
        with pytest.raises(ConfigError):
            NLI("x/y", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no classifier"):
        NLI(3)  # type: ignore[arg-type]


def test_cross_encoder_reads_its_activation_from_the_configuration() -> None:
    import torch

    model, tokenizer = classifier(["LABEL_0"])
    with torch.no_grad():
        raw = np.array([float(model(**tokenizer(*pair, return_tensors="pt")).logits) for pair in PAIRS])
    assert CrossEncoder((model, tokenizer)).pairs(PAIRS) == pytest.approx(1 / (1 + np.exp(-raw)), abs=1e-5)
    model.config.sentence_transformers = {"activation_fn": "torch.nn.modules.linear.Identity"}
    assert CrossEncoder((model, tokenizer)).pairs(PAIRS) == pytest.approx(np.clip(raw, 0, 1), abs=1e-5)
    assert CrossEncoder((model, tokenizer), activation="sigmoid").pairs(PAIRS)[0] == pytest.approx(
        1 / (1 + np.exp(-raw[0])), abs=1e-5
    )
    with pytest.raises(ModelError, match="3 outputs"):
        CrossEncoder(classifier(ORDERS[0])).pairs(PAIRS)


def test_nan_of_a_model_is_an_error() -> None:
    import torch

    model, tokenizer = classifier(ORDERS[0])
    with torch.no_grad():
        model.classifier.bias.fill_(float("nan"))
    with pytest.raises(ModelError, match="NaN"):
        NLI((model, tokenizer)).pairs(PAIRS)

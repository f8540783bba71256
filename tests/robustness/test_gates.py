"""Gates keep what reaches their threshold, and say how many they turned away."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, DataError, ModelError
from intarsia.core.scripted import ScriptedTarget
from intarsia.robustness.candidates import Candidate, Rewrite, rewrites
from intarsia.robustness.gates import (
    PRESETS,
    Gate,
    GateResult,
    MutualEntailment,
    PseudoLogLikelihood,
    SamePOS,
    SentenceCosine,
    UnchangedWords,
    WordCosine,
    WordFrequency,
    apply_gates,
    as_encode,
    preset_gates,
)
from intarsia.robustness.masked_lm import MaskedLMSource, _wordpiece
from intarsia.robustness.words import words

QUESTION = "Tom bought five red apples and Tom ate two apples. How many are left?"
PLAN = {
    "Tom": ["Mary", "Timothy"],
    "bought": ["purchased", "sold", "zzz"],
    "red": ["green"],
    "apples": ["apple", "oranges"],
    "many": ["few"],
}


def make_plan(scope: str = "global") -> list[list[Rewrite]]:
    chosen = words(QUESTION)
    lists = [[Candidate(text) for text in PLAN.get(word.text, [])] for word in chosen]
    return rewrites(QUESTION, chosen, [("given", lists)], scope={"given": scope})  # type: ignore[dict-item]


class Letters:
    """An encoder that counts letters; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def encode(self, texts: Any) -> np.ndarray:
        self.asked.append(list(texts))
        return np.array([[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts], dtype=np.float32)


class Reader:
    """As much of a WordNet reader as the gates use."""

    parts: ClassVar = {
        "bought": [("buy", "v")],
        "purchased": [("purchase", "v")],
        "sold": [("sell", "v")],
        "red": [("red", "a"), ("red", "n")],
        "green": [("green", "n")],
        "apples": [("apple", "n")],
        "apple": [("apple", "n")],
        "oranges": [("orange", "n"), ("orange", "a")],
    }
    counts: ClassVar = {"buy": 30, "purchase": 7, "sell": 20, "red": 9, "green": 4, "apple": 3, "orange": 1}

    def morphy(self, word: str) -> list[tuple[str, str]]:
        return self.parts.get(word.lower(), [])

    def frequency(self, lemma: str, pos: str) -> int:
        return self.counts[lemma]


class Table:
    name = "table"

    def __init__(self, keep: Any, name: str = "table") -> None:
        self.keep, self.name, self.seen = keep, name, 0

    def check(self, question: str, rewrites: Any) -> list[GateResult]:
        self.seen += len(rewrites)
        return [GateResult(bool(self.keep(rewrite)), float(len(rewrite.replacement))) for rewrite in rewrites]


@pytest.fixture(scope="module")
def source() -> MaskedLMSource:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    tokenizer = _wordpiece([QUESTION, "Mary purchased green oranges and sold few"], 120, 64)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertForMaskedLM(
            BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=32,
                max_position_embeddings=64,
                initializer_range=0.3,
            )
        )
    return MaskedLMSource(model, tokenizer)


def all_gates(source: MaskedLMSource) -> list[Gate]:
    return [
        SentenceCosine(Letters(), 0.99),
        SamePOS(Reader()),  # type: ignore[arg-type]
        PseudoLogLikelihood(source, 2.0),
        MutualEntailment(lambda pairs: [1 / len(a) for a, _ in pairs], 0.0),
        WordFrequency(5, wordnet=Reader()),  # type: ignore[arg-type]
        WordCosine(ScriptedCosine(), 0.3),
        UnchangedWords(0.9),
    ]


class ScriptedCosine:
    def cosine(self, a: str, b: str) -> float:
        shared = len(set(a.lower()) & set(b.lower()))
        return shared / math.sqrt(len(set(a.lower())) * len(set(b.lower())))


def kept(plan: list[list[Rewrite]]) -> list[str]:
    return [rewrite.text for row in plan for rewrite in row]


# --- Applying gates --------------------------------------------------------------------------------------------


def test_without_gates_nothing_changes() -> None:
    plan = make_plan()
    assert apply_gates(QUESTION, plan, []) == (plan, {})


def test_a_gate_that_rejects_everything_leaves_an_empty_plan(source: MaskedLMSource) -> None:
    plan = make_plan()
    after = Table(lambda rewrite: True, "after")
    gated = apply_gates(QUESTION, plan, [Table(lambda rewrite: False), after])
    assert gated.plan == [[] for _ in plan]
    assert gated.rejected == {"table": len(kept(plan)), "after": 0}
    assert after.seen == 0


def test_every_rewrite_is_kept_with_its_figures_or_counted_once(source: MaskedLMSource) -> None:
    plan = make_plan()
    gates = all_gates(source)
    gated = apply_gates(QUESTION, plan, gates)
    assert list(gated.rejected) == [gate.name for gate in gates]
    assert len(kept(gated.plan)) + sum(gated.rejected.values()) == len(kept(plan))
    assert sum(count > 0 for count in gated.rejected.values()) >= 3
    for before, after in zip(plan, gated.plan, strict=True):
        survivors = [rewrite.text for rewrite in after]
        assert survivors == [rewrite.text for rewrite in before if rewrite.text in survivors]
    for rewrite in (rewrite for row in gated.plan for rewrite in row):
        assert [name for name, _ in rewrite.gates] == [gate.name for gate in gates]


def test_a_gate_sees_what_the_ones_before_it_kept() -> None:
    plan = make_plan()
    first, second = Table(lambda r: r.word == "Tom", "first"), Table(lambda r: r.replacement == "Mary", "second")
    gated = apply_gates(QUESTION, plan, [first, second])
    assert (first.seen, second.seen) == (len(kept(plan)), 2)
    assert gated.rejected == {"first": len(kept(plan)) - 2, "second": 1}
    (only,) = [rewrite for row in gated.plan for rewrite in row]
    assert only.gates == (("first", 4.0), ("second", 4.0))
    again = apply_gates(QUESTION, gated.plan, [Table(lambda r: True, "third")])
    assert again.plan[0][0].gates == (("first", 4.0), ("second", 4.0), ("third", 4.0))


def test_two_gates_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="same name"):
        apply_gates(QUESTION, make_plan(), [Table(bool), Table(bool)])


@given(a=st.floats(-3, 40), b=st.floats(-3, 40))
@settings(max_examples=40)
def test_a_stricter_threshold_never_lets_more_through(source: MaskedLMSource, a: float, b: float) -> None:
    low, high = sorted((a, b))
    plan = make_plan()

    def names(make: Any, threshold: float) -> set[str]:
        return set(kept(apply_gates(QUESTION, plan, [make(threshold)]).plan))

    makers: list[Any] = [
        lambda t: SentenceCosine(Letters(), 0.9 + t / 300),
        lambda t: SentenceCosine(Letters(), 0.8 + t / 200, metric="angular", window=5),
        lambda t: PseudoLogLikelihood(source, -t, window=1),
        lambda t: WordFrequency(t, wordnet=Reader()),  # type: ignore[arg-type]
        lambda t: WordFrequency.from_texts(t / 10, [QUESTION, "apple apple mary"]),
        lambda t: WordCosine(ScriptedCosine(), t / 30),
        lambda t: UnchangedWords(t / 30),
    ]
    for make in makers:
        assert names(make, high) <= names(make, low)


def test_results_are_the_same_one_by_one(source: MaskedLMSource) -> None:
    flat = [rewrite for row in make_plan() for rewrite in row]
    for gate in all_gates(source):
        assert isinstance(gate, Gate)
        together = gate.check(QUESTION, flat)
        alone = [gate.check(QUESTION, [rewrite])[0] for rewrite in flat]
        assert [result.keep for result in together] == [result.keep for result in alone]
        assert [result.score for result in together] == pytest.approx([result.score for result in alone], abs=1e-3)
        assert gate.check(QUESTION, []) == []


# --- Sentence cosine -------------------------------------------------------------------------------------------


def test_cosines_are_those_of_the_encoder_and_each_text_is_encoded_once() -> None:
    encoder = Letters()
    flat = [rewrite for row in make_plan() for rewrite in row]
    results = SentenceCosine(encoder, 0.97).check(QUESTION, [*flat, *flat])
    assert len(encoder.asked) == 1
    assert sorted(encoder.asked[0]) == sorted({QUESTION, *(rewrite.text for rewrite in flat)})
    vectors = Letters().encode([QUESTION, *(rewrite.text for rewrite in flat)])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert [result.score for result in results[: len(flat)]] == pytest.approx((unit[1:] @ unit[0]).tolist(), abs=1e-6)
    assert all(result.keep == (result.score >= 0.97) for result in results)
    angular = SentenceCosine(encoder, 0.9, metric="angular").check(QUESTION, flat)
    for plain, turned in zip(results, angular):
        assert turned.score == pytest.approx(1 - math.acos(min(1.0, plain.score)) / math.pi)


def test_a_window_looks_at_the_words_around_each_change() -> None:
    encoder = Letters()
    plan = make_plan()
    rewrite = next(r for row in plan for r in row if r.replacement == "oranges")
    assert len(rewrite.before) == 2
    (result,) = SentenceCosine(encoder, 0.0, window=3).check(QUESTION, [rewrite])
    assert set(encoder.asked[0]) == {"red apples and", "red oranges and", "two apples. How", "two oranges. How"}
    a, b = encoder.encode(["two apples. How", "two oranges. How"]).astype(float)
    c, d = encoder.encode(["red apples and", "red oranges and"]).astype(float)
    cosines = [x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in ((a, b), (c, d))]
    assert result.score == pytest.approx(min(cosines))


def test_any_encoder_will_do() -> None:
    target = ScriptedTarget({"*": ""}, embedder=lambda text: [1.0, float(len(text))])
    for encoder in (Letters(), Letters().encode, target):
        assert np.shape(as_encode(encoder)(["a", "b"]))[0] == 2
    with pytest.raises(ConfigError):
        SentenceCosine(ScriptedTarget({"*": ""}))
    with pytest.raises(ConfigError):
        SentenceCosine(3)
    flat = [rewrite for row in make_plan() for rewrite in row]
    with pytest.raises(ModelError, match="NaN"):
        SentenceCosine(lambda texts: np.full((len(texts), 2), np.nan)).check(QUESTION, flat)
    with pytest.raises(ValueError, match="shape"):
        SentenceCosine(lambda texts: np.ones((1, 2))).check(QUESTION, flat)


# --- Words -----------------------------------------------------------------------------------------------------


def verdicts(gate: Gate) -> dict[str, bool]:
    flat = [rewrite for row in make_plan() for rewrite in row]
    return {r.replacement: result.keep for r, result in zip(flat, gate.check(QUESTION, flat), strict=True)}


def test_parts_of_speech_must_meet() -> None:
    found = verdicts(SamePOS(Reader()))  # type: ignore[arg-type]
    assert found["purchased"]
    assert found["sold"]
    assert not found["zzz"]  # unknown for a verb
    assert found["green"]  # both can be nouns
    assert found["Mary"]  # both unknown
    assert found["oranges"]
    (crossed,) = SamePOS(Reader()).check("", [_one("bought", "apple")])  # type: ignore[arg-type]
    assert crossed == (False, 0.0)
    (allowed,) = SamePOS(Reader(), noun_verb=True).check("", [_one("bought", "apple")])  # type: ignore[arg-type]
    assert allowed == (True, 1.0)
    (deleted,) = SamePOS(Reader()).check("", [_one("bought", "")])  # type: ignore[arg-type]
    assert not deleted.keep


def _one(word: str, replacement: str) -> Rewrite:
    return Rewrite(text="", word=word, replacement=replacement, source="given")


def test_rare_words_are_turned_away() -> None:
    found = verdicts(WordFrequency(5, wordnet=Reader()))  # type: ignore[arg-type]
    assert (found["purchased"], found["sold"], found["oranges"]) == (True, True, False)
    assert found["Mary"]
    strict = verdicts(WordFrequency(5, wordnet=Reader(), unknown=False))  # type: ignore[arg-type]
    assert not strict["Mary"]
    corpus = WordFrequency.from_texts(2, ["Apple pie, apple cake.", "green"])
    assert [verdicts(corpus)[word] for word in ("apple", "green", "sold")] == [True, False, False]
    (several,) = corpus.check("", [_one("x", "apple pie")])
    assert several == (False, 1.0)


def test_word_cosines_come_from_the_source() -> None:
    flat = [rewrite for row in make_plan() for rewrite in row]
    results = WordCosine(ScriptedCosine(), 0.5).check(QUESTION, flat)
    for rewrite, result in zip(flat, results, strict=True):
        assert result.score == ScriptedCosine().cosine(rewrite.word, rewrite.replacement)
        assert result.keep == (result.score >= 0.5)


def test_unchanged_words_counts_every_occurrence() -> None:
    rewrite = next(r for row in make_plan() for r in row if r.replacement == "oranges")
    (result,) = UnchangedWords(0.9).check(QUESTION, [rewrite])
    assert result == (False, pytest.approx(1 - 2 / len(words(QUESTION))))


# --- Likelihood and entailment ---------------------------------------------------------------------------------


def test_the_drop_is_that_of_the_whole_sentence(source: MaskedLMSource) -> None:
    flat = [rewrite for row in make_plan() for rewrite in row]
    base = source.pseudo_log_likelihood([QUESTION])[0].total
    wanted = [source.pseudo_log_likelihood([rewrite.text])[0].total - base for rewrite in flat]
    results = PseudoLogLikelihood(source, 1.0).check(QUESTION, flat)
    assert [result.score for result in results] == pytest.approx(wanted, abs=1e-3)
    assert [result.keep for result in results] == [score >= -1.0 for score in (r.score for r in results)]
    assert len({result.keep for result in results}) == 2
    near = PseudoLogLikelihood(source, 1.0, window=1).check(QUESTION, flat)
    assert [result.score for result in near] != pytest.approx(wanted, abs=1e-3)


def test_entailment_must_hold_both_ways() -> None:
    flat = [rewrite for row in make_plan() for rewrite in row][:2]
    table = {(QUESTION, flat[0].text): 0.9, (flat[0].text, QUESTION): 0.2}
    gate = MutualEntailment(lambda pairs: [table.get(pair, 0.8) for pair in pairs], 0.5)
    assert gate.check(QUESTION, flat) == [(False, 0.2), (True, 0.8)]


def test_a_classifier_is_read_by_its_label(source: MaskedLMSource) -> None:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    tokenizer = source.tokenizer
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        id2label={0: "contradiction", 1: "ENTAILMENT", 2: "neutral"},
        label2id={"contradiction": 0, "ENTAILMENT": 1, "neutral": 2},
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertForSequenceClassification(config).eval()
    flat = [rewrite for row in make_plan() for rewrite in row]
    results = MutualEntailment((model, tokenizer), 0.3, batch_size=3).check(QUESTION, flat)
    for rewrite, result in zip(flat, results, strict=True):
        both = []
        for a, b in ((QUESTION, rewrite.text), (rewrite.text, QUESTION)):
            with torch.inference_mode():
                logits = model(**tokenizer(a, b, truncation=True, return_tensors="pt")).logits[0]
            both.append(float(logits.softmax(-1)[1]))
        assert result.score == pytest.approx(min(both), abs=1e-5)
    model.config.id2label = {0: "a", 1: "b", 2: "c"}
    with pytest.raises(ModelError, match="entailment"):
        MutualEntailment((model, tokenizer))


# --- Presets and bad input -------------------------------------------------------------------------------------


def test_presets_hold_the_published_thresholds() -> None:
    options: dict[str, Any] = {"encoder": Letters(), "wordnet": Reader(), "embedding": ScriptedCosine()}
    assert set(PRESETS) == {"textfooler", "bert-attack", "bae"}
    pos, cosine, sentence = preset_gates("textfooler", **options)
    assert isinstance(pos, SamePOS)
    assert pos.noun_verb
    assert isinstance(cosine, WordCosine)
    assert cosine.threshold == 0.5
    assert isinstance(sentence, SentenceCosine)
    assert (sentence.threshold, sentence.window, sentence.metric) == (0.84, 15, "angular")
    changed, sentence = preset_gates("bert-attack", **options)
    assert isinstance(changed, UnchangedWords)
    assert changed.threshold == pytest.approx(0.6)
    assert isinstance(sentence, SentenceCosine)
    assert (sentence.threshold, sentence.metric) == (0.2, "cosine")
    pos, sentence = preset_gates("bae", **options)
    assert isinstance(sentence, SentenceCosine)
    assert (sentence.threshold, sentence.window) == (0.936, 15)
    for preset in PRESETS:
        apply_gates(QUESTION, make_plan(), preset_gates(preset, **options))
    with pytest.raises(ConfigError, match="word vectors"):
        preset_gates("textfooler")
    with pytest.raises(ConfigError, match="no preset"):
        preset_gates("none")  # type: ignore[arg-type]


def test_bad_options_get_one_line(source: MaskedLMSource) -> None:
    for make in (
        lambda: SentenceCosine(Letters(), float("nan")),
        lambda: SentenceCosine(Letters(), window=0),
        lambda: SentenceCosine(Letters(), metric="dot"),  # type: ignore[arg-type]
        lambda: SentenceCosine(Letters(), "high"),  # type: ignore[arg-type]
        lambda: PseudoLogLikelihood(source, 1.0, window=0),
        lambda: WordFrequency(float("nan"), {}),
    ):
        with pytest.raises(ConfigError):
            make()


# --- The real thing --------------------------------------------------------------------------------------------


def test_real_parts_of_speech_and_counts() -> None:
    from intarsia.core.catalog.wordnet import locate
    from intarsia.robustness.wordnet import WordNet

    try:
        folder = locate(offline=True)
    except DataError as error:
        pytest.skip(f"no WordNet here: {error.message}")
    reader = WordNet(folder)
    pairs = {("bought", "purchased"): True, ("quickly", "apple"): False, ("the", "she"): True, ("the", "apple"): False}
    results = SamePOS(reader).check("", [_one(a, b) for a, b in pairs])
    assert [result.keep for result in results] == list(pairs.values())
    frequent = WordFrequency(10, wordnet=reader).check("", [_one("x", w) for w in ("bought", "testis")])
    assert [result.keep for result in frequent] == [True, False]


@pytest.mark.model
def test_the_catalogs_encoder_tells_synonyms_from_other_words() -> None:
    flat = [rewrite for row in make_plan("local") for rewrite in row]
    found = {r.replacement: result.score for r, result in zip(flat, SentenceCosine().check(QUESTION, flat))}
    assert found["purchased"] > 0.95
    assert found["purchased"] > found["sold"]
    assert found["apple"] > found["oranges"]

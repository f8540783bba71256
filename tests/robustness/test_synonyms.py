from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intarsia.core.catalog.wordnet import locate
from intarsia.core.errors import ConfigError, DataError
from intarsia.robustness.candidates import Candidate, Source, rewrites
from intarsia.robustness.inflect import forms
from intarsia.robustness.synonyms import CLOSED, WordNetSource
from intarsia.robustness.wordnet import WordNet
from intarsia.robustness.words import words
from tests.robustness.tiny_wordnet import Sense, write_wordnet

SENSES = (
    Sense("n", ("bargain", "buy", "steal")),
    Sense("v", ("buy", "purchase")),
    Sense("v", ("bribe", "corrupt", "buy", "grease_one's_palms", "x-ray", "C20")),
    Sense("n", ("child", "kid", "youngster")),
    Sense("n", ("child", "baby", "kid")),
    Sense("n", ("helium", "He")),
    Sense("v", ("happen", "occur")),
    Sense("v", ("find", "happen")),
    Sense("v", ("find", "discover")),
    Sense("a", ("large", "big")),
    Sense("a", ("big", "significant", "great")),
    Sense("r", ("quickly", "rapidly")),
    Sense("n", ("egg", "eggs")),
    Sense("n", ("egg", "testis")),
    Sense("a", ("five", "5", "v")),
    Sense("n", ("tom", "tomcat")),
)
COUNTS = {("buy", "v"): 102, ("buy", "n"): 1, ("child", "n"): 9, ("find", "v"): 50, ("big", "a"): 8}
EXCEPTIONS = {"bought": "buy", "found": "find", "children": "child", "bigger": "big"}
QUESTION = "Tom bought five eggs. He found bigger children quickly."


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> WordNet:
    folder = tmp_path_factory.mktemp("wordnet")
    return WordNet(write_wordnet(folder, SENSES, counts=COUNTS, exceptions=EXCEPTIONS))


@pytest.fixture(scope="module")
def real() -> WordNet:
    try:
        return WordNet(locate(offline=True))
    except DataError as error:
        pytest.skip(f"no WordNet on this machine: {error.message}")


def proposed(source: WordNetSource, question: str) -> dict[str, list[str]]:
    found = words(question)
    return {word.text: [one.text for one in row] for word, row in zip(found, source.propose(question, found))}


def test_all_senses_in_the_words_own_form(tiny: WordNet) -> None:
    source = WordNetSource(wordnet=tiny)
    assert isinstance(source, Source)
    assert proposed(source, QUESTION) == {
        "Tom": ["tomcat"],
        "bought": ["purchased", "bribed", "corrupted"],  # nothing of the noun: it has no past tense
        "five": ["v"],
        "eggs": ["testes"],  # not its own other form
        "He": ["helium"],
        "found": ["happened", "discovered"],
        "bigger": ["larger", "greater"],  # nothing is significanter
        "children": ["kids", "youngsters", "babies"],
        "quickly": ["rapidly"],
    }


def test_the_literal_reading_leaves_lemmas_as_they_are(tiny: WordNet) -> None:
    found = proposed(WordNetSource(wordnet=tiny, inflect=False), QUESTION)
    assert found["bought"] == ["purchase", "bribe", "corrupt", "bargain", "steal"][: len(found["bought"])]
    assert found["children"] == ["kid", "youngster", "baby"]
    assert found["bigger"] == ["large", "significant", "great"]


def test_the_conservative_reading(tiny: WordNet) -> None:
    assert proposed(WordNetSource(wordnet=tiny, conservative=True), QUESTION) == {
        "Tom": [],  # a name, though it begins the sentence
        "bought": ["purchased"],
        "five": [],
        "eggs": [],
        "He": [],
        "found": ["happened"],
        "bigger": ["larger"],
        "children": ["kids", "youngsters"],
        "quickly": ["rapidly"],
    }
    mutual = proposed(WordNetSource(wordnet=tiny, conservative=True, mutual=True), QUESTION)
    assert mutual["found"] == []  # to happen is mostly to occur
    assert mutual["bought"] == ["purchased"]


@pytest.mark.parametrize(
    ("question", "candidates"),
    [
        ("Tom has 3 eggs.", []),
        ("How many has Tom?", []),
        ("Tom sees Ann. Ann sees Tom.", []),
        ("She said: \u201cTom!\u201d", ["tomcat"]),
        ("A tom sat there.", ["tomcat"]),
        ("Tom has a Tomboy", []),
    ],
)
def test_names_are_left_alone_by_the_conservative(tiny: WordNet, question: str, candidates: list[str]) -> None:
    found = proposed(WordNetSource(wordnet=tiny, conservative=True), question)
    assert {tuple(row) for word, row in found.items() if word.lower() == "tom"} == {tuple(candidates)}


def test_parts_of_speech_and_senses(tiny: WordNet) -> None:
    assert proposed(WordNetSource(wordnet=tiny), "buy")["buy"] == ["purchase", "bribe", "corrupt", "bargain", "steal"]
    likely = WordNetSource(wordnet=tiny, pos="likely")
    assert proposed(likely, "buy")["buy"] == ["purchase", "bribe", "corrupt"]
    first = WordNetSource(wordnet=tiny, senses=1)
    assert proposed(first, "buy")["buy"] == ["purchase", "bargain", "steal"]
    assert [(one.lemma, one.pos, one.sense) for one in first.readings("bought")] == [("buy", "v", 1), ("buy", "n", 1)]


def test_notes_and_scores(tiny: WordNet) -> None:
    (row,) = WordNetSource(wordnet=tiny).propose("bought", words("bought"))
    assert row[0] == Candidate("purchased", 1.0, "synset buy.v.01, sense 1 of buy")
    assert row[1] == Candidate("bribed", 0.5, "synset bribe.v.01, sense 2 of buy")


def test_ranking(tiny: WordNet) -> None:
    nearness = {"purchased": 0.1, "bribed": 0.5, "corrupted": 0.9}
    asked: list[tuple[str, str]] = []

    def rank(word: str, other: str) -> float:
        asked.append((word, other))
        return nearness[other]

    (row,) = WordNetSource(2, wordnet=tiny, rank=rank).propose("She bought", words("She bought")[1:])
    assert [(one.text, one.score) for one in row] == [("corrupted", 0.9), ("bribed", 0.5)]
    assert {word for word, _ in asked} == {"bought"}


def test_ranking_in_an_embedding_space(tiny: WordNet) -> None:
    import numpy as np

    from intarsia.robustness.embedding import EmbeddingSource

    angles = np.deg2rad([0, 60, 20, 40])
    space = EmbeddingSource(
        np.stack([np.cos(angles), np.sin(angles)], 1), ["bought", "purchased", "bribed", "corrupted"], marks="plain"
    )
    (row,) = WordNetSource(wordnet=tiny, rank=space).propose("bought", words("bought"))
    assert [one.text for one in row] == ["bribed", "corrupted", "purchased"]
    assert [one.score for one in row] == pytest.approx(np.cos(np.deg2rad([20, 40, 60])), abs=1e-6)


def test_the_context_tells_past_tense_and_participle_apart(tmp_path: Path) -> None:
    senses = (Sense("v", ("put", "give")), *(Sense(pos, ("thing",)) for pos in "nar"))
    source = WordNetSource(wordnet=WordNet(write_wordnet(tmp_path, senses)))
    found = words("She put five. She had put five. She will put five.")
    rows = source.propose("She put five. She had put five. She will put five.", found)
    assert [row[0].text for word, row in zip(found, rows) if word.text == "put"] == ["gave", "given", "give"]


def test_is_first_sense(tiny: WordNet) -> None:
    source = WordNetSource(wordnet=tiny)
    assert source.is_first_sense("bought", "purchased")
    assert source.is_first_sense("Bought", "Purchased")
    assert not source.is_first_sense("bought", "bribed")
    assert not source.is_first_sense("bought", "purchase")
    assert WordNetSource(wordnet=tiny, inflect=False).is_first_sense("bought", "purchase")
    assert not source.is_first_sense("he", "helium")
    assert not source.is_first_sense("five", "v")
    assert source.is_first_sense("Tom", "Tomcat")
    assert not source.is_first_sense("Tom", "Tomcat", "How many has ")
    assert source.is_first_sense("found", "happened")
    assert not WordNetSource(wordnet=tiny, mutual=True).is_first_sense("found", "happened")


@pytest.mark.parametrize(
    "question", ["", "12 + 3", "\u0423 \u041c\u0430\u0448\u0438 \u044f\u0431\u043b\u043e\u043a\u0438", "blork don't"]
)
def test_nothing_known_is_no_error(tiny: WordNet, question: str) -> None:
    assert not any(WordNetSource(wordnet=tiny).propose(question, words(question)))


def test_switched_off_without_looking_for_wordnet(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("intarsia.core.catalog.wordnet.locate", refuse)
    assert WordNetSource(0).propose(QUESTION, words(QUESTION)) == [[] for _ in words(QUESTION)]
    with pytest.raises(AssertionError):
        WordNetSource(1).propose(QUESTION, words(QUESTION))


def test_threads_pickles_and_answers_that_are_the_callers_own(tiny: WordNet) -> None:
    source = WordNetSource(wordnet=tiny)
    expected = WordNetSource(wordnet=tiny).propose(QUESTION, words(QUESTION))
    with ThreadPoolExecutor(8) as pool:
        assert all(one == expected for one in pool.map(lambda _: source.propose(QUESTION, words(QUESTION)), range(32)))
    assert pickle.loads(pickle.dumps(source)).propose(QUESTION, words(QUESTION)) == expected
    source.propose(QUESTION, words(QUESTION))[1].clear()
    assert source.propose(QUESTION, words(QUESTION)) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": -1}, "number of candidates"),
        ({"k": False}, "number of candidates"),
        ({"senses": 0}, "how many senses"),
        ({"pos": "noun"}, "Unknown pos"),
        ({"rank": 3}, "rank must be"),
        ({"conservative": True, "inflect": False}, "conservative source inflects"),
    ],
)
def test_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WordNetSource(**options)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a WordNet folder"):
        WordNetSource(wordnet=tmp_path)


# --- with the real one ----------------------------------------------------------------------------------------------

SENTENCES = st.sampled_from(
    [
        "Natalia sold clips to 48 of her friends in April.",
        "She has already bought the biggest apples and eaten them quickly.",
        "How many children were left when the teachers found more seats per room?",
        "A robe takes 2 bolts of blue fiber and half that much white fiber.",
        "Did they put their dishes away, or were the geese running faster than before?",
    ]
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SENTENCES, st.booleans(), st.sampled_from(["all", "likely"]), st.sampled_from([None, 1, 2]))
def test_every_candidate_shares_a_sense_and_a_form(
    real: WordNet, question: str, inflect: bool, pos: Any, senses: int | None
) -> None:
    source = WordNetSource(50, wordnet=real, inflect=inflect, pos=pos, senses=senses)
    for word, row in zip(words(question), source.propose(question, words(question))):
        shared = {
            (lemma.lower(), one.pos, one.lemma) for one in source.readings(word.text) for lemma in one.synset.words
        }
        texts = [one.text.lower() for one in row]
        assert len(texts) == len(set(texts))
        assert word.text.lower() not in texts
        for candidate in row:
            text = candidate.text.lower()
            assert text.isalpha()
            if not inflect:
                assert text in {lemma for lemma, _, _ in shared}
                continue
            # In the word's own form: one of the shared lemmas has a form spelled so, with a tag that the word bears.
            assert any(
                text == lemma or set(forms(word.text, part, own)) & set(forms(text, part, lemma))
                for lemma, part, own in shared
            )
            if word.text in ("sold", "bought", "biggest", "apples", "children", "geese"):
                assert any(
                    set(forms(word.text, part, own)) & set(forms(text, part, lemma)) for lemma, part, own in shared
                )


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SENTENCES, st.integers(1, 8), st.booleans())
def test_more_candidates_begin_with_fewer(real: WordNet, question: str, k: int, conservative: bool) -> None:
    found = words(question)
    fewer = WordNetSource(k, wordnet=real, conservative=conservative).propose(question, found)
    more = WordNetSource(k + 1, wordnet=real, conservative=conservative).propose(question, found)
    assert all(len(row) <= k for row in fewer)
    assert [row[:k] for row in more] == fewer


def test_the_conservative_offers_a_part_of_the_rest(real: WordNet) -> None:
    question = "He bought a dozen eggs per child and found five more apples that his friends made in the morning."
    rest = proposed(WordNetSource(1000, wordnet=real), question)
    careful = proposed(WordNetSource(1000, wordnet=real, conservative=True), question)
    stricter = proposed(WordNetSource(1000, wordnet=real, conservative=True, mutual=True), question)
    for word in rest:
        assert set(stricter[word]) <= set(careful[word]) <= set(rest[word])
    assert {"bribed", "corrupted"} <= set(rest["bought"])
    assert careful["bought"] == stricter["bought"] == ["purchased"]
    assert rest["He"] == ["helium"]
    assert {"testes", "balls"} <= set(rest["eggs"])
    assert not any(careful[word] for word in careful if word.lower() in CLOSED)


def test_real_forms(real: WordNet) -> None:
    found = proposed(WordNetSource(1000, wordnet=real), "The children quickly bought bigger apples")
    assert "kids" in found["children"]
    assert "rapidly" in found["quickly"]
    assert "larger" in found["bigger"]
    assert "kid" not in found["children"]
    assert "purchase" not in found["bought"]
    assert {"child", "buy", "buys", "big"}.isdisjoint(text for row in found.values() for text in row)


def test_global_rewrites_of_a_real_question(real: WordNet) -> None:
    question = "Tom bought eggs. Ann bought milk."
    found = words(question)
    rows = WordNetSource(wordnet=real).propose(question, found)
    plan = rewrites(question, found, [("wordnet", rows)])
    assert "Tom purchased eggs. Ann purchased milk." in {one.text for one in plan[1]}

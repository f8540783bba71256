from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import DamerauLevenshtein

from intarsia.core.errors import ConfigError
from intarsia.robustness.candidates import Rewrite, Source, rewrites
from intarsia.robustness.edits import KEYS, DeletionSource, InsertionSource, TypoSource
from intarsia.robustness.protect import editable, protected_spans
from intarsia.robustness.words import starts_sentence, words

STORY = (
    "Janet buys 12 fresh eggs and already has an old red basket. She also sells big pears to happy people. "
    "How long does she run? The doctors smile. Tom's dog is tall. Quickly."
)
PIECES = [
    "Tom",
    "Janet",
    "she",
    "the",
    "an",
    "a",
    "old",
    "red",
    "big",
    "also",
    "sells",
    "eggs",
    "very",
    "dog's",
    "5",
    "$x$",
]
TEXTS = st.lists(st.sampled_from([*PIECES, ".", ",", "?", "\u65e5\u672c", "don't", "well-known"]), max_size=20).map(
    " ".join
)
SOURCES: list[Source] = [DeletionSource(), DeletionSource("any"), InsertionSource(2), TypoSource(2)]


def made(source: Source, text: str) -> list[Rewrite]:
    chosen = editable(text)
    plan = rewrites(text, chosen, [(source.name, source.propose(text, chosen))], protected=protected_spans(text))
    return [rewrite for row in plan for rewrite in row]


def changed(source: Source, text: str = STORY) -> set[str]:
    return {rewrite.word for rewrite in made(source, text)}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
@given(text=TEXTS)
def test_edits_keep_the_contract_of_a_source(source: Source, text: str) -> None:
    assert isinstance(source, Source)
    chosen: Sequence = editable(text)
    lists = source.propose(text, chosen)
    assert len(lists) == len(chosen)
    assert lists == source.propose(text, chosen)  # no hidden state
    assert [source.propose(text, [word])[0] for word in chosen] == lists  # nor one in the choice of words
    protected = [text[a:b] for a, b in protected_spans(text)]
    for rewrite in made(source, text):
        assert rewrite.scope == "local"
        assert len(rewrite.before) == 1
        assert rewrite.text != text
        at = 0
        for part in protected:
            at = rewrite.text.index(part, at) + len(part)


def test_deletion_leaves_out_modifiers_only() -> None:
    assert changed(DeletionSource()) == {"fresh", "already", "big", "also", "happy", "red"}
    # "an old red basket" without "old" would be "an red basket"; "is tall" and "how long" would be broken.


def sentences(text: str) -> int:
    found = words(text)
    return sum(starts_sentence(text, found, i) for i in range(len(found)))


@given(TEXTS)
def test_deletion_empties_no_sentence(text: str) -> None:
    for rewrite in made(DeletionSource("any"), text):
        assert (rewrite.replacement, rewrite.word.islower()) == ("", True)
        assert len(words(rewrite.text)) == len(words(text)) - 1
        assert sentences(rewrite.text) == sentences(text)


def test_deletion_spares_the_last_word_of_a_sentence_and_what_has_an_ending() -> None:
    assert changed(DeletionSource("any"), "go! sit. cats nap. dog's ran") == {"cats", "nap", "ran"}


def test_insertion_goes_before_verbs_with_their_subject_and_before_adjectives() -> None:
    assert changed(InsertionSource()) == {"buys", "big", "happy", "run", "tall"}
    for rewrite in made(InsertionSource(4), STORY):
        ((start, end),) = rewrite.after
        filler, word = rewrite.text[start:end].split(" ")
        assert filler
        assert word == rewrite.word
        assert rewrite.text[:start] + word + rewrite.text[end:] == STORY


def test_insertion_draws_by_seed_and_from_the_given_fillers() -> None:
    texts = [{r.text for r in made(InsertionSource(seed=seed), STORY)} for seed in range(8)]
    assert len({frozenset(text) for text in texts}) > 1
    mine = made(InsertionSource(5, adverbs=["calmly"], degrees=[]), "She sells red pears")
    assert [r.text for r in mine] == ["She calmly sells red pears"]


@given(st.from_regex(r"[A-Z]?[a-z]{2,12}", fullmatch=True), st.integers(0, 99))
def test_a_typo_is_one_slip_inside_the_word(word: str, seed: int) -> None:
    from lemminflect import getAllLemmas

    source = TypoSource(50, slips=("swap", "keyboard", "drop", "double"), seed=seed)
    (row,) = source.propose(word, words(word))
    assert not row or len(word) >= 4
    assert len({candidate.text for candidate in row}) == len(row)
    for candidate in row:
        assert DamerauLevenshtein.distance(word, candidate.text) == 1
        assert (candidate.text[0], candidate.text[-1]) == (word[0], word[-1])
        assert not getAllLemmas(candidate.text.lower())
        length = {"swap": 0, "keyboard": 0, "drop": -1, "double": 1}[candidate.note]
        assert len(candidate.text) == len(word) + length


def test_typos_are_more_with_k_and_nested() -> None:
    chosen = editable(STORY)
    few, more = (TypoSource(k).propose(STORY, chosen) for k in (1, 4))
    assert all(row == longer[: len(row)] for row, longer in zip(few, more, strict=True))
    assert sum(map(len, few)) < sum(map(len, more))
    assert TypoSource(1, seed=1).propose(STORY, chosen) != few


def test_keys_lie_beside_each_other_both_ways() -> None:
    assert set(KEYS) == set("abcdefghijklmnopqrstuvwxyz")
    assert set(KEYS["g"]) == set("fhtyvb")
    assert all(key in KEYS[other] for key, others in KEYS.items() for other in others)


def test_zero_switches_a_source_off() -> None:
    assert made(InsertionSource(0), STORY) == []
    assert made(TypoSource(0), STORY) == []
    assert made(TypoSource(slips=()), STORY) == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: DeletionSource("nouns"),  # type: ignore[arg-type]
        lambda: InsertionSource(-1),
        lambda: InsertionSource(adverbs=["also", " "]),
        lambda: InsertionSource(adverbs="also"),
        lambda: TypoSource(1.5),  # type: ignore[arg-type]
        lambda: TypoSource(True),
        lambda: TypoSource(slips=["swop"]),  # type: ignore[list-item]
        lambda: TypoSource(slips="swap"),  # type: ignore[arg-type]
    ],
)
def test_wrong_options_are_refused(wrong: object) -> None:
    with pytest.raises(ConfigError):
        wrong()  # type: ignore[operator]

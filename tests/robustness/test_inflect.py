from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.robustness.inflect import forms, hint, inflect, inflect_like


@pytest.mark.parametrize(
    ("word", "pos", "tags"),
    [
        ("bought", "v", ("VBD", "VBN")),
        ("Children", "n", ("NNS",)),
        ("put", "v", ("VBD", "VBN", "VB")),
        ("fish", "n", ("NN", "NNS")),
        ("egg", "n", ("NN",)),
        ("sheep", "n", ("NN", "NNS")),
        ("stopped", "v", ("VBD", "VBN")),
        ("bigger", "a", ("JJR",)),
        ("bigger", "s", ("JJR",)),
        ("quickly", "r", ("RB",)),
        ("eggs", "v", ("VBZ",)),
        ("blorks", "n", ()),
        ("", "n", ()),
        ("dog", "x", ()),
    ],
)
def test_forms(word: str, pos: str, tags: tuple[str, ...]) -> None:
    assert forms(word, pos) == tags


def test_forms_of_one_lemma_only() -> None:
    assert forms("found", "v", "find") == ("VBD", "VBN")
    assert forms("found", "v", "found") == ("VB",)


@pytest.mark.parametrize(
    ("word", "lemma", "pos", "context", "expected"),
    [
        ("bought", "purchase", "v", "", "purchased"),
        ("children", "kid", "n", "", "kids"),
        ("gave", "take", "v", "", "took"),
        ("given", "take", "v", "", "taken"),
        ("bigger", "large", "a", "", "larger"),
        ("quickly", "speedily", "r", "", "speedily"),
        ("runs", "go", "v", "", "goes"),
        # forms that look alike
        ("put", "take", "v", "Yesterday she ", "took"),
        ("put", "take", "v", "She had already ", "taken"),
        ("put", "take", "v", "How many eggs has Tom ", "taken"),
        ("put", "take", "v", "How many eggs did she ", "take"),
        ("put", "take", "v", "He wants to ", "take"),
        ("put", "take", "v", "She won't ", "take"),
        ("put", "take", "v", "She hasn\u2019t ", "taken"),
        ("put", "take", "v", "She had five apples. Tom ", "took"),
        ("put", "purchase", "v", "She had ", "purchased"),
        ("stopped", "take", "v", "She was ", "taken"),
        ("bought", "take", "v", "She ", "took"),
        ("bought", "take", "v", "She's ", "taken"),
        ("fish", "bird", "n", "She saw 12 ", "birds"),
        ("fish", "bird", "n", "She saw 1 ", "bird"),
        ("fish", "bird", "n", "She saw many ", "birds"),
        ("fish", "bird", "n", "She saw a ", "bird"),
        # what is not known
        ("blorks", "dog", "n", "", None),
        ("dogs", "blork", "n", "", None),
        ("bigger", "significant", "a", "", None),
    ],
)
def test_inflect_like(word: str, lemma: str, pos: str, context: str, expected: str | None) -> None:
    assert inflect_like(word, lemma, pos, context) == expected


def test_a_base_form_needs_no_dictionary() -> None:
    assert inflect_like("blork", "snerk", "n") is None
    assert inflect_like("Blork", "snerk", "n", of="blork") == "snerk"


def test_the_context_decides_only_where_forms_look_alike() -> None:
    """A wrong guess from the context must not override what the word itself shows."""
    assert inflect_like("gave", "take", "v", "She has ") == "took"
    assert inflect_like("dog", "cat", "n", "5 ") == "cat"


VERBS = ("buy", "take", "go", "eat", "carry", "stop", "sell", "walk", "give", "see")
NOUNS = ("dog", "child", "box", "city", "man", "apple", "knife")


@given(st.sampled_from(VERBS), st.sampled_from(VERBS), st.sampled_from(("VB", "VBD", "VBN", "VBZ", "VBG")))
def test_a_verb_takes_on_the_form_of_another(one: str, other: str, tag: str) -> None:
    form = inflect(one, tag, "v")
    assert form is not None
    found = inflect_like(form, other, "v", of=one)
    assert found is not None
    assert set(forms(form, "v", one)) & set(forms(found, "v", other))
    assert inflect_like(form, one, "v", of=one) == form  # and its own form is itself


@given(st.sampled_from(NOUNS), st.sampled_from(NOUNS))
def test_number_is_kept_both_ways(one: str, other: str) -> None:
    plural = inflect(one, "NNS", "n")
    assert plural is not None
    assert inflect_like(plural, other, "n") == inflect(other, "NNS", "n")
    assert inflect_like(one, other, "n") == other


@given(st.text(max_size=300))
def test_any_context_gives_a_hint(context: str) -> None:
    assert hint(context) in ("", "VB", "VBN", "NNS")
    assert hint(context) == hint(context.replace("'", "\u2019"))


def test_no_warnings_and_threads() -> None:
    with warnings.catch_warnings(), ThreadPoolExecutor(8) as pool:
        warnings.simplefilter("error")
        assert set(pool.map(lambda _: inflect_like("bought", "purchase", "v"), range(64))) == {"purchased"}

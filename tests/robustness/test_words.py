import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError
from intarsia.robustness.words import Edited, Span, Word, keep_case, merged, outside, replace, starts_sentence, words

# Text as questions have it, and text that no question has.
PIECES = st.sampled_from(
    [
        *(
            "the",
            "The",
            "he",
            "Tom's",
            "boys'",
            "don't",
            "twenty-five",
            "well-known",
            "well",
            "APPLES",
            "apples",
            "iPhone",
        ),
        *(
            "\\frac{a}{b}",
            "$x^2$",
            "\\begin{align*}",
            "x2",
            "3rd",
            "5-year",
            "$5",
            "caf\u00e9",
            "cafe\u0301",
            "\u00c9t\u00e9",
        ),
        *("\u65e5\u672c\u8a9e", "\U0001f600", "\u2764\ufe0f", "\u0928\u092e\u0938\u094d\u0924\u0947", "don\u2019t"),
        *(" ", " ", " ", "  ", ", ", ". ", "\n", "-", "'", "_", "\u00a0", "(", ")", "?"),
    ]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60)
NEW = st.sampled_from(["pears", "Pears", "ox", "mother-in-law", "quite big", "\u0438\u043c\u044f"])


def shown(text: str) -> list[str]:
    return [word.text for word in words(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("3 + 4 = 7 ... ?! ____ \U0001f600", []),
        ("Tom's and the boys' dog", ["Tom", "and", "the", "boys", "dog"]),
        ("TOM'S Kory\u2019s mother-in-law's", ["TOM", "Kory", "mother-in-law"]),
        ("don't don\u2019t S'mores o'clock", ["don't", "don\u2019t", "S'mores", "o'clock"]),
        ("twenty-five well\u2011known a--b -x- 'quoted'", ["twenty-five", "well\u2011known", "a", "b", "x", "quoted"]),
        ("3rd x2 5-year 2-for-1 1990's x_n m\u00b2", []),
        (r"\frac{a}{b} \text{apples} \alpha-beta", ["a", "b", "apples", "beta"]),
        (r"\begin{align*} x \\ y \end{align*}", ["x", "y"]),
        (r"\\frac \hline", []),  # escaped twice by a careless writer: still the name of a command
        ("__bold__ and *soft*", ["bold", "and", "soft"]),
        ("cafe\u0301 \u0928\u092e\u0938\u094d\u0924\u0947", ["cafe\u0301", "\u0928\u092e\u0938\u094d\u0924\u0947"]),
        ("\u65e5\u672c\u8a9e\u3067\u3059\u3002\u306f\u3044", ["\u65e5\u672c\u8a9e\u3067\u3059", "\u306f\u3044"]),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"]),
        ("\u2139\ufe0f \u2764\ufe0f 1\ufe0f\u20e3", []),  # a letter and a digit that are drawn as emoji
        ("\u0301\u0301 '' -- \\", []),
    ],
)
def test_words_are_what_a_reader_would_replace_as_one(text: str, expected: list[str]) -> None:
    assert shown(text) == expected


@given(TEXTS)
def test_words_are_disjoint_spans_of_the_text(text: str) -> None:
    end = 0
    for index, word in enumerate(words(text)):
        assert word.index == index
        assert text[word.start : word.end] == word.text
        assert end <= word.start < word.end
        assert unicodedata.category(word.text[0])[0] == "L"
        assert not any(char.isnumeric() or char.isspace() or char in "\\_" for char in word.text)
        end = word.end


@given(st.lists(st.from_regex(r"[a-z]{2,8}(-[a-z]{2,8})?", fullmatch=True), max_size=20))
def test_plain_text_splits_at_spaces(plain: list[str]) -> None:
    assert shown(" ".join(plain)) == plain


@pytest.mark.parametrize(
    ("original", "replacement", "expected"),
    [
        ("bought", "Purchased", "purchased"),
        ("Bought", "purchased", "Purchased"),
        ("Bought", "PURCHASED", "Purchased"),
        ("BOUGHT", "purchased", "PURCHASED"),
        ("A", "the", "The"),
        ("I", "we", "We"),
        ("iPhone", "tablet", "tablet"),
        ("iPhone", "Tablet", "Tablet"),
        ("McDonald", "smith", "smith"),
        ("Twenty-Five", "many", "many"),
        ("\u65e5\u672c", "Nippon", "Nippon"),
        ("\u00c9t\u00e9", "hiver", "Hiver"),
        ("E\u0301te\u0301", "hiver", "Hiver"),
        ("Big", "quite big", "Quite big"),
        ("Tom", "", ""),
    ],
)
def test_case_of_the_original_is_put_on(original: str, replacement: str, expected: str) -> None:
    assert keep_case(original, replacement) == expected


@given(st.from_regex(r"[a-z\u00e0\u0436]{2,8}", fullmatch=True), st.from_regex(r"[A-Za-z]{1,8}", fullmatch=True))
def test_case_pattern_is_kept_whatever_the_replacement_had(lower: str, replacement: str) -> None:
    assert keep_case(lower, replacement) == replacement.lower()
    assert keep_case(lower.upper(), replacement) == replacement.upper()
    assert keep_case(lower.capitalize(), replacement) == replacement.capitalize()
    for original in (lower, lower.upper(), lower.capitalize()):
        assert keep_case(original, keep_case(original, replacement)) == keep_case(original, replacement)


def around(text: str, spans: tuple[Span, ...]) -> list[str]:
    """What lies between the spans."""
    ends = [0, *(span.end for span in spans)]
    starts = [*(span.start for span in spans), len(text)]
    return [text[a:b] for a, b in zip(ends, starts, strict=True)]


@given(TEXTS, NEW, st.integers(0, 50))
def test_local_changes_this_position_and_nothing_else(text: str, new: str, pick: int) -> None:
    found = words(text)
    if not found:
        return
    word = found[pick % len(found)]
    edited = replace(text, word, new, "local")
    assert edited.before == (Span(word.start, word.end),)
    (after,) = edited.after
    assert edited.text[after.start : after.end] == keep_case(word.text, new)
    assert around(edited.text, edited.after) == around(text, edited.before)


@given(TEXTS, NEW, st.integers(0, 50))
def test_global_changes_all_equal_words_and_nothing_else(text: str, new: str, pick: int) -> None:
    found = words(text)
    if not found:
        return
    word = found[pick % len(found)]

    def same(other: Word) -> bool:
        first, second = (unicodedata.normalize("NFC", w.text.casefold().replace("\u2019", "'")) for w in (word, other))
        return first == second

    equal = [other for other in found if same(other)]
    edited = replace(text, word, new, "global")
    assert edited.before == tuple(Span(other.start, other.end) for other in equal)
    for other, span in zip(equal, edited.after, strict=True):
        assert edited.text[span.start : span.end] == keep_case(other.text, new)
    assert around(edited.text, edited.after) == around(text, edited.before)


@given(TEXTS, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 10)), max_size=4), st.integers(0, 50))
def test_protected_spans_stay_byte_identical(text: str, drawn: list[tuple[int, int]], pick: int) -> None:
    found = words(text)
    if not found:
        return
    word = found[pick % len(found)]
    spans = [Span(min(a, len(text)), min(a + n, len(text))) for a, n in drawn]
    for scope, new in (("local", "pears"), ("global", "pears"), ("local", ""), ("global", "")):
        edited = replace(text, word, new, scope, spans)
        touched = {i for before in edited.before for i in range(*before)}
        assert not touched & {i for span in spans for i in range(*span)}
        # What is protected stands in the new text too, in order.
        at = 0
        for span in merged(spans):
            at = edited.text.index(text[span.start : span.end], at) + span.end - span.start
        if not edited.before:
            assert edited == Edited(text, (), ())


@given(st.lists(st.sampled_from(["big", "Big", "BIG", "red", "the", ", ", ". ", "$x$", "\n"]), min_size=1, max_size=20))
def test_replacing_back_gives_the_text_again(pieces: list[str]) -> None:
    text = " ".join(pieces)
    for word in words(text):
        for scope in ("local", "global"):
            edited = replace(text, word, "zebra", scope)
            back = next(w for w in words(edited.text) if Span(w.start, w.end) in edited.after)
            assert replace(edited.text, back, word.text, scope).text == text


@pytest.mark.parametrize(
    ("text", "word", "scope", "expected"),
    [
        ("He has many apples.", "many", "local", "He has apples."),
        ("He has many apples.", "apples", "local", "He has many."),
        ("Very big", "Very", "local", "big"),
        ("(very big)", "very", "local", "(big)"),
        ("bills.  Many people", "Many", "local", "bills.  people"),
        ("5/hour rate", "hour", "local", "5/ rate"),
        ("so\nmany\nlines", "many", "local", "so\n\nlines"),
        ("very very big, VERY. He is very very.", "very", "global", "big,. He is."),
        ("x", "x", "local", ""),
    ],
)
def test_leaving_out_takes_one_space_along(text: str, word: str, scope: str, expected: str) -> None:
    chosen = next(w for w in words(text) if w.text == word)
    edited = replace(text, chosen, "", scope)
    assert edited.text == expected
    assert all(span.start == span.end <= len(edited.text) for span in edited.after)


@given(TEXTS, st.integers(0, 50))
def test_leaving_out_removes_the_words_and_spaces_only(text: str, pick: int) -> None:
    found = words(text)
    if not found:
        return
    edited = replace(text, found[pick % len(found)], "", "global")
    gone = len(text) - len(edited.text) - sum(span.end - span.start for span in edited.before)
    assert 0 <= gone <= len(edited.before)
    assert "".join("".join(around(text, edited.before)).split()) == "".join(edited.text.split())


def test_protected_space_is_not_taken_along() -> None:
    text = "a very big $x$"
    word = words(text)[1]
    assert replace(text, word, "", "local", [Span(6, 7)]).text == "a big $x$"  # the space before it goes instead
    assert replace(text, word, "", "local", [Span(1, 2), Span(6, 7)]).text == "a  big $x$"


def test_global_replacement_spares_substrings_compounds_and_commands() -> None:
    text = r"The well, the well-known well's \well{well} wells WELL don't"
    word = next(w for w in words(text) if w.text == "well")
    expected = r"The pit, the well-known pit's \well{pit} wells PIT don't"
    assert replace(text, word, "pit", "global").text == expected
    he = "he saw the other, He"
    assert replace(he, words(he)[0], "she", "global").text == "she saw the other, She"


def test_equal_words_may_differ_in_encoding() -> None:
    text = "caf\u00e9 cafe\u0301 CAF\u00c9 don't don\u2019t"
    assert replace(text, words(text)[0], "bar", "global").text == "bar bar BAR don't don\u2019t"
    assert replace(text, words(text)[3], "do", "global").text == "caf\u00e9 cafe\u0301 CAF\u00c9 do do"


def test_wrong_use_is_refused() -> None:
    word = words("the dog")[1]
    with pytest.raises(ConfigError, match="everywhere"):
        replace("the dog", word, "cat", "everywhere")
    with pytest.raises(ValueError, match="dog"):
        replace("a cat", word, "cat", "local")


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=8))
def test_merged_spans_cover_the_same_characters_once(drawn: list[tuple[int, int]]) -> None:
    spans = merged(drawn)
    assert {i for span in spans for i in range(*span)} == {i for a, b in drawn for i in range(a, b)}
    assert all(a.end < b.start for a, b in pairwise(spans))
    assert all(span.start < span.end for span in spans)


@given(TEXTS, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=4))
def test_outside_keeps_the_words_that_share_no_character(text: str, spans: list[tuple[int, int]]) -> None:
    inside = {i for a, b in spans for i in range(a, b)}
    found = words(text)
    assert outside(found, spans) == tuple(word for word in found if not inside & set(range(word.start, word.end)))


def test_sentences_start_after_their_marks() -> None:
    text = "Mr. Smith paid 5.50 Dollars. He left! (Then) he: said\nNo"
    found = words(text)
    starts = [word.text for i, word in enumerate(found) if starts_sentence(text, found, i)]
    assert starts == ["Mr", "He", "Then", "said", "No"]


class Counting(str):
    """A text that counts how often a part of it is taken: the work that grows with the words."""

    taken = 0

    def __getitem__(self, key: object) -> str:  # type: ignore[override]
        type(self).taken += 1
        return super().__getitem__(key)  # type: ignore[index]


@pytest.mark.parametrize("scope", ["local", "global"])
def test_work_grows_with_the_words_and_no_faster(scope: str) -> None:
    taken = []
    for count in (1_000, 10_000):
        text = Counting("apple pear " * (count // 2))
        words.cache_clear()
        Counting.taken = 0
        found = words(text)
        assert len(found) == count
        edited = replace(text, found[0], "fig", scope)
        assert len(edited.after) == (count // 2 if scope == "global" else 1)
        taken.append(Counting.taken)
    assert taken[1] <= 10.5 * taken[0]

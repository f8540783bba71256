"""The words of a question, and putting another one in their place without touching anything else.

What counts as a word is ours: the paper splits questions into words and says no more. Here a word is what a reader
would replace as one: `don't` and `twenty-five` are single words, `Tom's` is the word `Tom` with its ending left
standing, `he` is never found inside `the`, and neither `3rd` nor the name of a LaTeX command is a word at all.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from intarsia.core.errors import ConfigError

APOSTROPHES = "'\u2019"
HYPHENS = "-\u2010\u2011"
TITLES = frozenset(("mr", "mrs", "ms", "miss", "dr", "prof", "st", "sr", "jr", "mt"))
"""Words whose period ends no sentence."""


class Span(NamedTuple):
    """Characters `start` to `end` (exclusive) of a text."""

    start: int
    end: int


class Word(NamedTuple):
    """One word of a question.

    Attributes:
        index: Its place among all words of the question, from 0.
        text: As written, without a possessive ending ('s).
        start: First character.
        end: One past the last.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs of a word
    text: str
    start: int
    end: int


class Edited(NamedTuple):
    """A text after a replacement; `before` are the changed spans of the old text, `after` those of the new one."""

    text: str
    before: tuple[Span, ...]
    after: tuple[Span, ...]


class _Shape(dict[int, str]):
    """Code point -> one letter for its kind, made as characters are met: `a` letter, `m` mark, `0` number."""

    def __missing__(self, point: int) -> str:
        char = chr(point)
        kind = unicodedata.category(char)[0]
        if char in APOSTROPHES:
            shape = "'"
        elif char in HYPHENS or char in "\u200c\u200d\u00ad":  # joiners of Persian and Indic words; the soft hyphen
            shape = "-"
        elif char == "\ufe0f":  # makes an emoji of what stands before it, which may be a letter
            shape = "0"
        elif char in "\\{}_":
            shape = char
        else:
            shape = {"L": "a", "M": "m", "N": "0"}.get(kind, " ")
        self[point] = shape
        return shape


_SHAPES = _Shape()
# Of the text's shape: the start of a LaTeX command, which is skipped, or a token.
_TOKEN = re.compile(r"(?P<latex>\\)|[am0]+(?:[-'_][am0]+)*")
_WORD = re.compile(r"a[am]*(?:[-'][am]+)*")
# A command's name ends with its last ASCII letter; that of an environment is a name too.
_COMMAND = re.compile(r"\\+(?:(?:begin|end)\{[^{}\\]*\}|[A-Za-z]*)")
_NUMBER = re.compile(r"\d[\d.,:]*\d")  # its point ends no sentence
_CLITIC = re.compile(rf"[{APOSTROPHES}][sS]$")


@lru_cache(maxsize=16)  # a plan of rewrites asks for the words of one question again and again
def words(text: str) -> tuple[Word, ...]:
    """The words of a text, in order; linear in its length.

    A word is a run of letters of any script with their combining marks, joined by single inner apostrophes and hyphens.
    The ending 's stays outside (possessive or short for "is", it belongs to whatever stands before it). Tokens that
    hold a digit or an inner underscore (3rd, x2, 5-year, x_n) are no words, nor are the names of LaTeX commands and
    environments. A run of a script without spaces is one word.

    Args:
        text: Any text; may be empty.
    """
    shape = text.translate(_SHAPES)
    found: list[Word] = []
    at = 0
    while (token := _TOKEN.search(shape, at)) is not None:
        start, at = token.span()
        if token["latex"] is not None:
            command = _COMMAND.match(text, start)
            assert command is not None
            at = command.end()
            continue
        if _WORD.fullmatch(shape, start, at) is None:
            continue
        clitic = _CLITIC.search(text[start:at])
        end = at - 2 if clitic else at
        found.append(Word(len(found), text[start:end], start, end))
    return tuple(found)


def keep_case(original: str, replacement: str) -> str:
    """The replacement in the original's case: lower, Capitalized or UPPER.

    A single capital letter (A, I) counts as Capitalized. A mixed pattern (iPhone) and scripts without case leave the
    replacement as it is. Capitals go on the first word of a replacement of several.

    Args:
        original: The word that is replaced.
        replacement: What stands in its place.
    """
    if original.islower():
        return replacement.lower()
    cased = sum(char.isupper() or char.islower() or char.istitle() for char in original)
    if original.isupper() and cased > 1:
        return replacement.upper()
    if not (original[:1].isupper() or original[:1].istitle()) or (cased > 1 and not original[1:].islower()):
        return replacement
    first, space, rest = replacement.partition(" ")
    return first[:1].title() + first[1:].lower() + space + rest


def replace(text: str, word: Word, replacement: str, scope: str, protected: Sequence[Span] = ()) -> Edited:
    """Put a replacement in a word's place. All other characters stay as they are.

    Each occurrence gets the replacement in its own case. An empty replacement leaves the word out, together with one
    space beside it where there is one.

    Args:
        text: The text.
        word: One of `words(text)`.
        replacement: What stands in its place; may hold spaces.
        scope: `local` changes this occurrence, `global` every word that is equal but for its case.
        protected: Spans that are never touched.

    Returns:
        The new text with the spans that changed; the text as it was, and no spans, where all of them are protected.

    Raises:
        ConfigError: The scope is neither.
        ValueError: The word does not stand in the text where it says.
    """
    if scope not in ("local", "global"):
        raise ConfigError(f"Unknown scope {scope!r}.", "Choose `local` (this occurrence) or `global` (every one).")
    if text[word.start : word.end] != word.text:
        raise ValueError(f"{word.text!r} does not stand at {word.start} of the text")
    spans = merged(protected)
    occurrences: Iterable[Word] = (word,)
    if scope == "global":
        same = _folded(word.text)
        occurrences = (other for other in words(text) if _folded(other.text) == same)
    chosen = list(_outside(occurrences, spans))
    if not chosen:
        return Edited(text, (), ())
    cuts = [Span(one.start, one.end) for one in chosen] if replacement else _with_space(text, chosen, spans)
    parts: list[str] = []
    after: list[Span] = []
    at = length = 0
    for one, cut in zip(chosen, cuts, strict=True):
        new = keep_case(one.text, replacement)
        parts += (text[at : cut.start], new)
        length += cut.start - at
        after.append(Span(length, length + len(new)))
        length += len(new)
        at = cut.end
    parts.append(text[at:])
    return Edited("".join(parts), tuple(Span(one.start, one.end) for one in chosen), tuple(after))


def merged(spans: Iterable[tuple[int, int]]) -> tuple[Span, ...]:
    """Spans in order, those that overlap or meet made one, empty ones left out."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if start >= end:
            continue
        if joined and start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(end, joined[-1].end))
        else:
            joined.append(Span(start, end))
    return tuple(joined)


def outside(found: Sequence[Word], spans: Iterable[tuple[int, int]]) -> tuple[Word, ...]:
    """The words, in order, that share no character with any of the spans."""
    return tuple(_outside(found, merged(spans)))


def starts_sentence(text: str, found: Sequence[Word], i: int) -> bool:
    """Whether the i-th of the text's words is the first of its sentence or line, as far as punctuation tells.

    Args:
        text: The text.
        found: `words(text)`.
        i: Index into `found`.
    """
    if i == 0:
        return True
    gap = _NUMBER.sub("", text[found[i - 1].end : found[i].start])
    if gap.startswith(".") and found[i - 1].text.lower() in TITLES:
        return False
    return any(mark in gap for mark in ".!?:\n")


def _outside(found: Iterable[Word], spans: Sequence[Span]) -> Iterator[Word]:
    at = 0
    for word in found:
        while at < len(spans) and spans[at].end <= word.start:
            at += 1
        if at == len(spans) or spans[at].start >= word.end:
            yield word


@lru_cache(maxsize=4096)  # a global replacement compares a word with every other of the question
def _folded(text: str) -> str:
    """Equal for words that differ in case, in the kind of apostrophe, or in how accents are encoded."""
    return unicodedata.normalize("NFC", text.replace("\u2019", "'").casefold())


def _with_space(text: str, chosen: Sequence[Word], spans: Sequence[Span]) -> list[Span]:
    """Each word's span with the space that goes when the word is left out."""
    kept: set[int] = set()
    for start, end in spans:  # only the edges can lie beside a word, but a span of one character is both
        kept.update((start, end - 1))

    def free(at: int) -> bool:
        return 0 <= at < limit and text[at].isspace() and text[at] not in "\r\n" and at not in kept

    cuts: list[Span] = []
    limit = len(text)
    for word in reversed(chosen):  # from the right, so that a space between two of them is given away only once
        opens = word.start == 0 or text[word.start - 1].isspace() or text[word.start - 1] in "([{\"'\u201c\u2018"
        if opens and free(word.end):
            cut = Span(word.start, word.end + 1)
        elif free(word.start - 1):
            cut = Span(word.start - 1, word.end)
        else:
            cut = Span(word.start, word.end)
        cuts.append(cut)
        limit = cut.start
    return cuts[::-1]

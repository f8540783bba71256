"""Edits that are no synonyms: a word left out, a filler put in, a slip of the fingers.

All three are ours and go beyond the paper, which replaces words only. They are sources like the others and change one
occurrence. Without a tagger they go by a lexicon and by the neighbors of a word, and rather pass a word by than break
the sentence; gates and the adjudicator see to the rest.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, islice
from typing import Literal, TypeAlias

from intarsia.core.errors import ConfigError
from intarsia.robustness.candidates import Candidate
from intarsia.robustness.protect import FUNCTION
from intarsia.robustness.words import Word, keep_case, starts_sentence
from intarsia.robustness.words import words as words_of

Deletable: TypeAlias = Literal["modifiers", "any"]
Slip: TypeAlias = Literal["swap", "keyboard", "drop", "double"]

SLIPS: tuple[Slip, ...] = ("swap", "keyboard")
DEGREES = ("quite", "rather", "fairly", "really")
ADVERBS = ("also", "actually", "indeed", "really", "simply")

# Adverbs and adjectives by the lexicon that a sentence leans on: how long, as old as, there is, picks up.
_NEEDED = frozenset(
    ("how", "when", "where", "why", "as", "so", "than", "too", "there", "here", "not", "no", "up", "down", "out", "off")
    + ("on", "in", "over", "under", "away", "back", "about", "around", "through", "across", "along", "by", "to", "at")
    + ("such", "own", "able", "worth", "long", "far", "old", "ago", "well", "home", "due", "like", "near", "since")
    + ("before", "after", "once", "that", "this", "these", "those", "however", "else", "ever", "yet", "still", "first")
)
_LEADS = frozenset(("how", "as", "so", "too", "very", "more", "most", "less", "least"))
_SUBJECTS = frozenset(("i", "you", "he", "she", "it", "we", "they", "who"))
_HAVE = frozenset(("have", "has", "had"))

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _beside() -> Mapping[str, str]:
    """The keys around each key of a QWERTY keyboard; each row stands half a key to the right of the one above."""
    near: dict[str, str] = {}
    for y, row in enumerate(_ROWS):
        for x, key in enumerate(row):
            at = [(y, x - 1), (y, x + 1), (y - 1, x), (y - 1, x + 1), (y + 1, x - 1), (y + 1, x)]
            near[key] = "".join(_ROWS[b][a] for b, a in at if 0 <= b < len(_ROWS) and 0 <= a < len(_ROWS[b]))
    return near


KEYS: Mapping[str, str] = _beside()
"""Neighbors of each letter on a QWERTY keyboard."""


class DeletionSource:
    """Proposes to leave a word out.

    Args:
        which: `modifiers`: adverbs, and adjectives just before a noun. `any`: every word.

    Names, words at the start of a sentence and words with an ending of their own ('s) stay: what is left would be no
    sentence. So does the last word of one.

    Raises:
        ConfigError: `which` is neither.
    """

    name = "deletion"

    def __init__(self, which: Deletable = "modifiers") -> None:
        if which not in ("modifiers", "any"):
            raise ConfigError(f"Unknown kind of deletion {which!r}.", "Choose `modifiers` or `any`.")
        self.which = which

    def propose(self, question: str, words: Sequence[Word]) -> list[list[Candidate]]:
        """See `Source.propose`. The candidate is the empty text."""
        found = words_of(question)
        sentence = list(accumulate(starts_sentence(question, found, i) for i in range(len(found))))
        size = Counter(sentence)
        return [
            [Candidate("", note="left out")]
            if size[sentence[word.index]] > 1
            and word.text.islower()
            and not question.startswith(("'", "\u2019"), word.end)
            and (self.which == "any" or _is_modifier(question, found, word))
            else []
            for word in words
        ]


class InsertionSource:
    """Proposes a filler and the word itself: "sells" -> "also sells", "red" -> "quite red".

    Fillers stand before verbs that follow their subject and before adjectives; they say nothing about amounts.

    Args:
        k: Fillers tried at a place; 0 switches the source off.
        adverbs: Fillers before a verb.
        degrees: Fillers before an adjective.
        seed: Which fillers, and in which order; the same for the same question and word.

    Raises:
        ConfigError: k is negative, or a filler is empty.
    """

    name = "insertion"

    def __init__(
        self, k: int = 1, *, adverbs: Sequence[str] = ADVERBS, degrees: Sequence[str] = DEGREES, seed: int = 0
    ) -> None:
        self.k, self.seed = _count(k), seed
        self.adverbs, self.degrees = tuple(adverbs), tuple(degrees)
        if isinstance(adverbs, str) or isinstance(degrees, str) or not all(map(str.strip, (*adverbs, *degrees))):
            raise ConfigError("A filler to insert is empty, or the fillers are one text.", "Give a list of words.")

    def propose(self, question: str, words: Sequence[Word]) -> list[list[Candidate]]:
        """See `Source.propose`. A candidate holds a space."""
        found = words_of(question)
        digest = _digest(question)
        plan: list[list[Candidate]] = []
        for word in words:
            fillers = self._fillers(question, found, word)
            chosen = _random(self.seed, digest, word).sample(fillers, min(self.k, len(fillers)))
            plan.append([Candidate(f"{filler} {word.text}", note=f"inserted {filler}") for filler in chosen])
        return plan

    def _fillers(self, question: str, found: Sequence[Word], word: Word) -> tuple[str, ...]:
        before = found[word.index - 1] if word.index > 0 else None
        if before is None or not word.text.islower() or question[before.end : word.start] != " ":
            return ()
        kinds = _kinds(word.text)
        named = before.text[0].isupper() and len(before.text) > 1 and starts_sentence(question, found, before.index)
        lower = before.text.lower()
        subject = lower in _SUBJECTS or (named and lower not in FUNCTION and not _kinds(lower))
        if subject and "VERB" in kinds and ("AUX" not in kinds or word.text in _HAVE):
            return self.adverbs
        if set(kinds) == {"ADJ"} and word.text not in _NEEDED and lower not in _LEADS:
            return tuple(filler for filler in self.degrees if _article_fits(before.text, filler))
        return ()


class TypoSource:
    """Proposes the word with one slip of the fingers: the baseline at the level of characters.

    Slips: two neighboring letters swapped, a key beside the right one, a letter dropped, a letter doubled. The first
    and the last letter stay, as readers hold on to them, and a slip that makes another word of the lexicon is none.

    Args:
        k: Slips tried on a word; 0 switches the source off.
        slips: Kinds of slips.
        min_length: Shorter words are left alone.
        seed: Which slips, and in which order; the same for the same question and word.

    Raises:
        ConfigError: k is negative, or a slip is unknown.
    """

    name = "typo"

    def __init__(self, k: int = 3, *, slips: Sequence[Slip] = SLIPS, min_length: int = 4, seed: int = 0) -> None:
        self.k, self.slips, self.min_length, self.seed = _count(k), tuple(slips), min_length, seed
        unknown = [slip for slip in self.slips if slip not in ("swap", "keyboard", "drop", "double")]
        if unknown or isinstance(slips, str):
            raise ConfigError(f"Unknown slips {slips!r}.", "Give a list of `swap`, `keyboard`, `drop` and `double`.")

    def propose(self, question: str, words: Sequence[Word]) -> list[list[Candidate]]:
        """See `Source.propose`."""
        digest = _digest(question)
        return [self._slips(word, _random(self.seed, digest, word)) for word in words]

    def _slips(self, word: Word, chance: random.Random) -> list[Candidate]:
        text = word.text
        if len(text) < self.min_length:
            return []
        made: dict[str, str] = {}
        for slip in self.slips:
            for at in range(1, len(text) - 1):
                for new in _slipped(text, at, slip):
                    made.setdefault(new, slip)
        drawn = chance.sample(list(made), len(made))
        kept = (new for new in drawn if keep_case(text, new) != text and not _kinds(new.lower()))
        return [Candidate(new, note=made[new]) for new in islice(kept, self.k)]


def _slipped(text: str, at: int, slip: Slip) -> list[str]:
    """The word with a slip at an inner letter, in each way there is."""
    letter = text[at]
    if not letter.isalpha():
        return []
    if slip == "drop":
        return [text[:at] + text[at + 1 :]]
    if slip == "double":
        return [text[: at + 1] + text[at:]]
    if slip == "swap":
        following = text[at + 1]
        fits = at + 2 < len(text) and following.isalpha() and following != letter
        return [text[:at] + following + letter + text[at + 2 :]] if fits else []
    return [text[:at] + keep_case(letter, key) + text[at + 1 :] for key in KEYS.get(letter.lower(), "")]


def _is_modifier(question: str, found: Sequence[Word], word: Word) -> bool:
    """An adverb, or an adjective before its noun, that the sentence does without."""
    kinds = set(_kinds(word.text))
    if not kinds & {"ADJ", "ADV"} or kinds & {"VERB", "AUX"} or word.text in _NEEDED:
        return False
    before = found[word.index - 1].text.lower() if word.index > 0 else ""
    if before in _LEADS:
        return False
    if kinds == {"ADV"}:
        return before not in ("a", "an")
    after = found[word.index + 1] if word.index + 1 < len(found) else None
    if after is None or question[word.end : after.start] != " " or not after.text.islower():
        return False
    following = _kinds(after.text)
    return "NOUN" in following and "AUX" not in following and _article_fits(before, after.text)


def _article_fits(article: str, following: str) -> bool:
    """False for "an" before a consonant and "a" before a vowel; by spelling, which is right often enough to skip by."""
    vowel = following[:1].lower() in "aeiou"
    return not ((article.lower() == "a" and vowel) or (article.lower() == "an" and not vowel))


def _kinds(word: str) -> Mapping[str, tuple[str, ...]]:
    """Parts of speech that the lexicon knows the word as, with its lemmas."""
    from lemminflect import getAllLemmas

    known: Mapping[str, tuple[str, ...]] = getAllLemmas(word)
    return known


def _count(k: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int) or k < 0:
        raise ConfigError(f"A source cannot propose {k!r} candidates.", "Give k as a whole number, 0 or more.")
    return k


def _digest(question: str) -> str:
    return hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()


def _random(seed: int, digest: str, word: Word) -> random.Random:
    """Chance that depends on the seed, the question and the place only."""
    return random.Random(f"{seed} {digest} {word.start}")

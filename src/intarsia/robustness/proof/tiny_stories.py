"""Add-and-subtract stories for a solver that learns from nothing, with words that it hardly ever sees (ours).

The verb alone tells the operation. Verbs and things follow Zipf's law, so the last ones are rare in training; their
WordNet synonyms are in the vocabulary and never in a training story, unless training swaps them in.

Stories whose verb, thing and numbers together fall into the held-out tenth are never trained on, whatever their names
and wording; test stories are drawn from that tenth only.

Shape suffixes: B stories, L places of a story, V words of the vocabulary, S synonyms of a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from intarsia.core.data import DataSet, Item, content_hash, content_id
from intarsia.core.errors import ConfigError
from intarsia.robustness.synonyms import WordNetSource
from intarsia.robustness.words import words

Synonyms: TypeAlias = Mapping[str, Sequence[str]]
"""For a word in lower case, what may stand in its place."""

NAMES = ("tom", "anna", "ben", "lucy", "sam", "mary", "jack", "emma")
THINGS = ("apples", "books", "coins", "eggs", "cards", "shells", "stamps", "balls", "pencils", "cups", "hats", "stones")
ADDING = ("found", "bought", "got", "received", "won", "collected", "earned", "gathered")
SUBTRACTING = ("lost", "used", "sold", "broke", "dropped", "ate", "wasted", "discarded")
"""No verb of one side is a WordNet synonym of a verb of the other, so that a swap never turns the story around."""
VERBS = (*ADDING, *SUBTRACTING)
TEMPLATES = (
    "{name} had {first} {things}. Then {name} {verb} {second} {things}. How many {things} does {name} have now?",
    "{name} began the day with {first} {things}. At the market {name} {verb} {second} {things}."
    " How many {things} does {name} have at the end?",
    "This morning {name} had {first} {things} and {verb} {second} {things}. How many {things} does {name} have?",
    "{name} kept {first} {things} in a basket. On Monday {name} {verb} {second} {things}."
    " What is the number of {things} that {name} has now?",
)
LOWEST, HIGHEST = 2, 20
"""Numbers of a story; a story that subtracts has the larger one first, so answers are 0 to 40."""
ANSWERS = 2 * HIGHEST + 1
MOST_TOKENS = 32
"""Longer questions are cut off at their end."""
_ALL = 10_000  # synonyms of a word, at most

PAD, UNKNOWN = "<pad>", "<unk>"
SPECIAL = (PAD, UNKNOWN, "<read>")
"""The last one opens each question; the answer is read there."""
_TOKEN = re.compile(r"[^\W_]+(?:[-'\u2019][^\W_]+)*")
_PART = re.compile(r"\{(\w+)\}|[^\W_]+")


def tokenize(text: str) -> list[str]:
    """Words and numbers of a text in lower case; punctuation is left out, and so is the ending 's."""
    return [re.sub(r"['\u2019]s\Z", "", token) for token in _TOKEN.findall(text.lower())]


def training_words() -> tuple[str, ...]:
    """All words that stories are made of, numbers left out, sorted."""
    fixed = {word.text.lower() for template in TEMPLATES for word in words(re.sub(r"\{\w+\}", "0", template))}
    return tuple(sorted(fixed | set(NAMES) | set(THINGS) | set(VERBS)))


def vocabulary(synonyms: Synonyms) -> tuple[str, ...]:
    """The tiny solver's words: special ones, numbers 0 to 40, the stories' words, their synonyms; each part sorted.

    Args:
        synonyms: Of the stories' words; those that are more than one token cannot be in a vocabulary of words.
    """
    known = training_words()
    numbers = tuple(str(number) for number in range(ANSWERS))
    further = {text.lower() for found in synonyms.values() for text in found}
    single = {text for text in further if tokenize(text) == [text]}
    return (*SPECIAL, *numbers, *known, *sorted(single - set(known) - set(numbers)))


def wordnet_synonyms(folder: str | Path | None = None) -> dict[str, tuple[str, ...]]:
    """WordNet's one-word synonyms of the stories' words, in the words' own forms.

    Args:
        folder: WordNet's folder; found by the catalog when omitted.

    Returns:
        For each word in lower case, its synonyms of all senses and parts of speech, sorted; words without any are left
        out. All that a `WordNetSource` can propose in any story is among them, whatever its `k` and ranking.

    Raises:
        DataError: There is no WordNet.
    """
    source = WordNetSource(k=_ALL, wordnet=folder)
    found: dict[str, set[str]] = {}
    rows = np.arange(len(TEMPLATES) * len(VERBS))  # every word in every wording: its form depends on what precedes it
    facts = Facts(
        verb_B=rows % len(VERBS),
        things_B=rows % len(THINGS),
        first_B=np.full(len(rows), HIGHEST),
        second_B=np.full(len(rows), LOWEST),
        name_B=rows % len(NAMES),
        template_B=rows // len(VERBS),
    )
    for row in range(len(rows)):
        story = tell(facts, row)
        story_words = words(story)
        for word, candidates in zip(story_words, source.propose(story, story_words), strict=True):
            found.setdefault(word.text.lower(), set()).update(candidate.text.lower() for candidate in candidates)
    return {word: tuple(sorted(texts)) for word, texts in sorted(found.items()) if texts}


# --- Stories ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """What stories are made of, one row a story: indices into the lists above, and the two numbers.

    Attributes:
        verb_B: Into `VERBS`.
        things_B: Into `THINGS`.
        first_B: The first number.
        second_B: The second number.
        name_B: Into `NAMES`.
        template_B: Into `TEMPLATES`.
    """

    verb_B: np.ndarray
    things_B: np.ndarray
    first_B: np.ndarray
    second_B: np.ndarray
    name_B: np.ndarray
    template_B: np.ndarray

    @property
    def answer_B(self) -> np.ndarray:
        """The right answers."""
        return np.where(self.verb_B < len(ADDING), self.first_B + self.second_B, self.first_B - self.second_B)

    @property
    def held_out_B(self) -> np.ndarray:
        """Whether a story belongs to the tenth that is never trained on: a hash of verb, thing and numbers."""
        code_B = (self.verb_B * len(THINGS) + self.things_B) * 64 + self.first_B
        mixed_B = (code_B * 64 + self.second_B + 1).astype(np.uint64)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the finalizer of SplitMix64
            mixed_B = (mixed_B ^ (mixed_B >> np.uint64(shift))) * np.uint64(factor)
        return (mixed_B ^ (mixed_B >> np.uint64(31))) % np.uint64(10) == 0

    def take(self, rows: np.ndarray | slice) -> Facts:
        """The stories of some rows."""
        return Facts(**{name: column[rows] for name, column in vars(self).items()})


def draw(rng: np.random.Generator, count: int, *, held_out: bool) -> Facts:
    """Stories of one side of the split: each operation as often as the other, verbs and things by Zipf's law.

    Args:
        rng: Its state decides.
        count: How many.
        held_out: Whether to draw test stories.
    """
    share = 0.1 if held_out else 0.9
    parts: list[Facts] = []
    have = 0
    while have < count:
        size = int((count - have) / share * 1.1) + 32
        number_2B = rng.integers(LOWEST, HIGHEST + 1, (2, size))
        adds_B = rng.random(size) < 0.5
        verb_B = np.where(adds_B, 0, len(ADDING)) + _zipf(rng, len(ADDING), size)
        found = Facts(
            verb_B=verb_B,
            things_B=_zipf(rng, len(THINGS), size),
            first_B=np.where(adds_B, number_2B[0], number_2B.max(axis=0)),
            second_B=np.where(adds_B, number_2B[1], number_2B.min(axis=0)),
            name_B=rng.integers(0, len(NAMES), size),
            template_B=rng.integers(0, len(TEMPLATES), size),
        )
        found = found.take(np.flatnonzero(found.held_out_B == held_out)[: count - have])
        parts.append(found)
        have += len(found.verb_B)
    return Facts(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])})


def tell(facts: Facts, row: int) -> str:
    """The text of one story."""
    return TEMPLATES[facts.template_B[row]].format(
        name=NAMES[facts.name_B[row]].capitalize(),
        things=THINGS[facts.things_B[row]],
        verb=VERBS[facts.verb_B[row]],
        first=facts.first_B[row],
        second=facts.second_B[row],
    )


def tiny_stories(count: int = 200, seed: int = 0) -> DataSet:
    """Test stories, all distinct, none of which (nor any other with its verb, thing and numbers) is trained on.

    Args:
        count: How many; the first n of a longer set are the set of n.
        seed: Of the generator.

    Returns:
        The set; slices are `operation` and `verb`.

    Raises:
        ConfigError: The count is not positive.
    """
    if count < 1:
        raise ConfigError(f"{count} stories are none.", "Ask for 1 or more.")
    rng = np.random.default_rng([seed, 1])  # the training's stream is [seed, 0]
    made: dict[str, Item] = {}
    while len(made) < count:
        facts = draw(rng, 64, held_out=True)
        for row in range(64):
            question, answer = tell(facts, row), str(facts.answer_B[row])
            verb = VERBS[facts.verb_B[row]]
            operation = "add" if verb in ADDING else "subtract"
            item = Item(
                id=content_id(question, answer),
                question=question,
                answer=answer,
                kind="number",
                slices={"operation": operation, "verb": verb},
                meta={"numbers": [int(facts.first_B[row]), int(facts.second_B[row])]},
            )
            made.setdefault(question, item)
    items = tuple(made.values())[:count]
    return DataSet(
        name="tiny-stories",
        items=items,
        licence="Apache-2.0",
        origin=f"generated (tiny stories, seed {seed})",
        sha256=content_hash(items),
    )


def _zipf(rng: np.random.Generator, ranks: int, size: int) -> np.ndarray:
    """Ranks from 0, each with probability proportional to 1 / (rank + 1)."""
    cumulative = np.cumsum(1.0 / np.arange(1, ranks + 1))
    return np.searchsorted(cumulative, rng.random(size) * cumulative[-1], side="right")


# --- Stories as token ids --------------------------------------------------------------------------------------------


class Writer:
    """Writes stories as rows of token ids, many at a time, and swaps words for synonyms in them.

    Args:
        words_V: The vocabulary.
        synonyms: Of the stories' words; what is not in the vocabulary is left out.
    """

    def __init__(self, words_V: Sequence[str], synonyms: Synonyms) -> None:
        self._id = {word: at for at, word in enumerate(words_V)}
        self._names = self._ids(NAMES)
        self._things = self._ids(THINGS)
        self._verbs = self._ids(VERBS)
        self._numbers = self._ids(str(number) for number in range(ANSWERS))
        rows = [self._template(template) for template in TEMPLATES]
        self.length = 1 + max(len(row) for row in rows)
        self._templates_TL = np.full((len(rows), self.length), self._id[PAD])
        self._first_TL = np.zeros((len(rows), self.length), dtype=bool)
        for at, row in enumerate(rows):
            self._templates_TL[at, : len(row) + 1] = [self._id[SPECIAL[2]], *row]
            self._first_TL[at, 1 : len(row) + 1] = [code not in row[:place] for place, code in enumerate(row)]
        lists = {self._id[word]: [self._id[s] for s in found if s in self._id] for word, found in synonyms.items()}
        lists = {word: found for word, found in lists.items() if found}
        self._count_V = np.zeros(len(words_V), dtype=np.int64)
        self._synonyms_VS = np.zeros((len(words_V), max((len(f) for f in lists.values()), default=1)), dtype=np.int64)
        for word, found in lists.items():
            self._count_V[word] = len(found)
            self._synonyms_VS[word, : len(found)] = found

    def write(self, facts: Facts) -> np.ndarray:
        """Token ids, int64 of shape (B, L), padded at the end."""
        ids_BL = self._templates_TL[facts.template_B]
        fillings = (
            self._names[facts.name_B],
            self._numbers[facts.first_B],
            self._things[facts.things_B],
            self._verbs[facts.verb_B],
            self._numbers[facts.second_B],
        )
        for slot, filling_B in enumerate(fillings, 1):
            ids_BL = np.where(ids_BL == -slot, filling_B[:, None], ids_BL)
        return ids_BL

    def swap(self, rng: np.random.Generator, ids_BL: np.ndarray, facts: Facts, share: float) -> np.ndarray:
        """In a share of the stories, one word with synonyms becomes one of them, wherever it stands.

        The word is drawn from the story's different words that have synonyms, then the synonym from the word's, both
        with equal chances.
        """
        size = len(ids_BL)
        chosen_B = rng.random(size) < share
        weight_BL = self._first_TL[facts.template_B] & (self._count_V[ids_BL] > 0)
        place_B = (weight_BL * rng.random(weight_BL.shape)).argmax(axis=1)
        old_B = ids_BL[np.arange(size), place_B]
        which_B = (rng.random(size) * self._count_V[old_B]).astype(np.int64)
        new_B = self._synonyms_VS[old_B, which_B]
        hit_BL = (ids_BL == old_B[:, None]) & (chosen_B & weight_BL.any(axis=1))[:, None]
        return np.where(hit_BL, new_B[:, None], ids_BL)

    def _template(self, template: str) -> list[int]:
        """Token ids of a template; slots are -1 to -5 in the order of `write`."""
        slots = ("name", "first", "things", "verb", "second")
        return [
            -1 - slots.index(part[1]) if part[1] else self._id[part[0].lower()] for part in _PART.finditer(template)
        ]

    def _ids(self, found: Iterable[str]) -> np.ndarray:
        return np.array([self._id[word] for word in found])

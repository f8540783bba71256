"""A reader of WordNet's plain files: senses of a word, words of a sense, pointers between senses, base forms.

The files are those of WordNet's own distribution (manual pages wndb(5WN), morphy(7WN), cntlist(5WN)). Indexes are read
once, a part of speech at a time, when first asked for; synsets are read in place from the mapped data files.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from intarsia.core.errors import ConfigError, DataError

PARTS = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
"""Parts of speech and the names of their files; adjective satellites (`s`) live with the adjectives."""

POINTERS = {
    "antonym": "!",
    "hypernym": "@",
    "instance hypernym": "@i",
    "hyponym": "~",
    "instance hyponym": "~i",
    "similar": "&",
    "also": "^",
    "derived": "+",
    "pertainym": "\\",
    "attribute": "=",
    "entailment": "*",
    "cause": ">",
    "verb group": "$",
    "participle": "<",
    "member holonym": "#m",
    "part holonym": "#p",
    "substance holonym": "#s",
    "member meronym": "%m",
    "part meronym": "%p",
    "substance meronym": "%s",
}
"""Names of pointers and their symbols in the data files."""

_ENDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "n": (
        ("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man"),
        ("ies", "y"),
    ),
    "v": (
        ("s", ""), ("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""),
    ),
    "a": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "r": (),
}  # fmt: skip
"""Endings that morphy takes off, and what it puts in their place."""

T = TypeVar("T")


class Pointer(NamedTuple):
    """A pointer of a synset.

    Attributes:
        symbol: As in `POINTERS`.
        pos: Part of speech of the synset pointed at, `n`, `v`, `a`, `r` or `s`.
        offset: Its place in that part's data file, in bytes.
        source: Which word of this synset it holds for, from 1; 0 means the synset as a whole.
        target: Which word of the other synset, likewise.
    """

    symbol: str
    pos: str
    offset: int
    source: int
    target: int


class Synset(NamedTuple):
    """One sense: the words that share it.

    Attributes:
        pos: `n`, `v`, `a`, `r`, or `s` for an adjective satellite.
        offset: Its place in the data file, in bytes.
        words: As written there, underscores between the parts of a multi-word lemma.
        pointers: To other synsets.
        gloss: Definition and examples.
    """

    pos: str
    offset: int
    words: tuple[str, ...]
    pointers: tuple[Pointer, ...]
    gloss: str


class _Entry(NamedTuple):
    """A lemma's line of an index: offsets of its senses, most frequent first, and how many of them were ever tagged."""

    offsets: tuple[int, ...]
    tagged: int


class WordNet:
    """WordNet read from a folder.

    Threads may share one object. A pickled object holds the folder only and opens it again.

    Args:
        folder: With `data.*` and `index.*` for each part of speech, and `*.exc` where there are lists of irregular
            forms; `core.catalog.wordnet.locate()` when omitted, which may fetch it.

    Raises:
        DataError: The folder is not WordNet.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        from intarsia.core.catalog.wordnet import locate

        self.folder = locate(folder)
        self._open()

    def _open(self) -> None:
        self._lock = threading.Lock()
        self._indexes: dict[str, dict[bytes, bytes]] = {}
        self._exceptions: dict[str, dict[str, tuple[str, ...]]] = {}
        self._data: dict[str, mmap.mmap] = {}
        self._counts: dict[str, dict[tuple[str, str], int]] = {}
        self._synset = lru_cache(maxsize=20_000)(self._read_synset)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.folder = state["folder"]
        self._open()

    # --- senses ------------------------------------------------------------------------------------------------------

    def synsets(self, lemma: str, pos: str | None = None) -> list[Synset]:
        """Senses of a lemma, most frequent first within a part of speech.

        Args:
            lemma: A base form (`morphy` finds it); case does not matter, spaces may stand for underscores.
            pos: `n`, `v`, `a` (`s` is the same) or `r`; all of them, in this order, when omitted.

        Raises:
            ConfigError: There is no such part of speech.
            DataError: The files are damaged.
        """
        parts = tuple(PARTS) if pos is None else (_part(pos),)
        return [self._synset(part, offset) for part in parts for offset in self._entry(lemma, part).offsets]

    def lemmas(self, synset: Synset) -> tuple[str, ...]:
        """Words that share a sense, as written in WordNet."""
        return synset.words

    def name(self, synset: Synset) -> str:
        """The usual name of a synset: its first word, part of speech, and number among that word's senses."""
        first = synset.words[0].lower()
        offsets = self._entry(first, _part(synset.pos)).offsets
        number = offsets.index(synset.offset) + 1 if synset.offset in offsets else 0
        return f"{first}.{synset.pos}.{number:02d}"

    def related(self, synset: Synset, pointer: str, *, lemma: str | None = None) -> list[Synset]:
        """Synsets that a synset points at.

        Args:
            synset: Where the pointers start.
            pointer: A name of `POINTERS` (`hyponym`, `antonym`) or its symbol.
            lemma: Leave out the pointers that hold only for another word of the synset than this one; antonyms, for
                example, are between words.

        Raises:
            ConfigError: There is no such pointer.
            DataError: The files are damaged.
        """
        symbol = POINTERS.get(pointer, pointer)
        if symbol not in POINTERS.values():
            raise ConfigError(f"WordNet has no pointer {pointer!r}.", f"Use one of: {', '.join(POINTERS)}.")
        places = {0} | {i for i, word in enumerate(synset.words, 1) if lemma is None or word.lower() == _key(lemma)}
        found = [pointer for pointer in synset.pointers if pointer.symbol == symbol and pointer.source in places]
        return [self._synset(_part(pointer.pos), pointer.offset) for pointer in found]

    def frequency(self, lemma: str, pos: str) -> int:
        """How often a lemma was met as this part of speech in the texts that WordNet's makers tagged.

        The count is that of `cntlist.rev`; where a copy lacks that file, the number of senses met at least once.
        """
        part = _part(pos)
        counts = self._once(self._counts, "", self._read_counts)
        return counts.get((_key(lemma), part), 0) if counts else self._entry(lemma, part).tagged

    # --- base forms --------------------------------------------------------------------------------------------------

    def morphy(self, word: str) -> list[tuple[str, str]]:
        """Base forms of a word: pairs of lemma and part of speech that WordNet has senses for.

        Irregular forms come from the exception lists; endings are taken off only of words that are not listed there,
        and only the first that leaves a lemma. The word itself comes first where it is a lemma.
        """
        form = _key(word)
        return [(lemma, part) for part in PARTS for lemma in self._base_forms(form, part)]

    def _base_forms(self, form: str, part: str) -> list[str]:
        index = self._once(self._indexes, part, self._read_index)
        listed = self._once(self._exceptions, part, self._read_exceptions)
        if form in listed:
            regular = [base for base in listed[form] if base.encode() in index]
        else:  # the first ending that leaves a lemma: hopes is of hope, not of hop
            regular = [base for base in _without_endings(form, part) if base.encode() in index][:1]
        return list(dict.fromkeys([form] * (form.encode() in index) + regular))

    # --- files -------------------------------------------------------------------------------------------------------

    def _once(self, store: dict[str, T], key: str, read: Callable[[str], T]) -> T:
        """The part of a lazily read store, read by one thread only."""
        if key not in store:
            with self._lock:
                if key not in store:
                    store[key] = read(key)
        return store[key]

    def _lines(self, name: str, *, optional: bool = False) -> Iterator[bytes]:
        file = self.folder / name
        if optional and not file.is_file():
            return
        try:
            with file.open("rb") as stream:
                # Lines of the license start with spaces.
                yield from (line for line in stream if not line.startswith(b" ") and line.strip())
        except OSError as error:
            raise self._damaged(name) from error

    def _read_index(self, part: str) -> dict[bytes, bytes]:
        pairs = (line.partition(b" ") for line in self._lines(f"index.{PARTS[part]}"))
        return {lemma: rest for lemma, _, rest in pairs}

    def _read_exceptions(self, part: str) -> dict[str, tuple[str, ...]]:
        lines = (line.decode("utf-8", "replace").split() for line in self._lines(f"{PARTS[part]}.exc", optional=True))
        return {form: tuple(bases) for form, *bases in lines}

    def _read_counts(self, _: str) -> dict[tuple[str, str], int]:
        counts: dict[tuple[str, str], int] = {}
        for line in self._lines("cntlist.rev", optional=True):
            try:
                sense, _number, count = line.decode().split()
                lemma, _, rest = sense.partition("%")
                key = (lemma, "nvara"[int(rest[0]) - 1])
                counts[key] = counts.get(key, 0) + int(count)
            except (ValueError, IndexError) as error:
                raise self._damaged("cntlist.rev") from error
        return counts

    def _entry(self, lemma: str, part: str) -> _Entry:
        line = self._once(self._indexes, part, self._read_index).get(_key(lemma).encode())
        if line is None:
            return _Entry((), 0)
        try:
            fields = line.split()  # pos, senses, pointers, symbols of pointers, senses again, tagged senses, offsets
            after = 3 + int(fields[2])
            entry = _Entry(tuple(int(offset) for offset in fields[after + 2 :]), int(fields[after + 1]))
        except (ValueError, IndexError) as error:
            raise self._damaged(f"index.{PARTS[part]}") from error
        if len(entry.offsets) != int(fields[1]):
            raise self._damaged(f"index.{PARTS[part]}")
        return entry

    def _map(self, part: str) -> mmap.mmap:
        try:
            with (self.folder / f"data.{PARTS[part]}").open("rb") as stream:
                return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise self._damaged(f"data.{PARTS[part]}") from error

    def _read_synset(self, part: str, offset: int) -> Synset:
        data = self._once(self._data, part, self._map)
        line = data[offset : max(offset, data.find(b"\n", offset))]
        try:
            facts, bar, gloss = line.decode().partition(" | ")
            fields = (
                facts.split()
            )  # offset, file, pos, words, (word, number)s, pointers, (symbol, offset, pos, places)s
            pos, n_words = fields[2], int(fields[3], 16)
            words = tuple(word.partition("(")[0] for word in fields[4 : 4 + 2 * n_words : 2])
            at = 4 + 2 * n_words
            places = [fields[i : i + 4] for i in range(at + 1, at + 1 + 4 * int(fields[at]), 4)]
            pointers = tuple(
                Pointer(symbol, other, int(where), int(ends[:2], 16), int(ends[2:], 16))
                for symbol, where, other, ends in places
            )
            whole = bar and int(fields[0]) == offset and _part(pos) == part and len(words) == n_words > 0
        except (ValueError, IndexError, ConfigError) as error:
            raise self._damaged(f"data.{PARTS[part]}") from error
        if not whole:
            raise self._damaged(f"data.{PARTS[part]}")
        return Synset(pos, offset, words, pointers, gloss.strip())

    def _damaged(self, name: str) -> DataError:
        return DataError(
            f"WordNet's file {name} in {self.folder} is damaged.",
            "Delete that folder, so that it is fetched anew, or give another folder.",
        )


def _part(pos: str) -> str:
    part = "a" if pos == "s" else pos
    if part not in PARTS:
        raise ConfigError(f"There is no part of speech {pos!r}.", "Use n, v, a (or s), or r.")
    return part


def _key(lemma: str) -> str:
    return lemma.strip().lower().replace(" ", "_")


def _without_endings(form: str, part: str) -> Iterator[str]:
    tail = ""
    if part == "n":
        if form.endswith("ful"):  # boxesful -> boxful
            form, tail = form.removesuffix("ful"), "ful"
        if form.endswith("ss") or len(form) <= 2:
            return
    for ending, instead in _ENDINGS[part]:
        if form.endswith(ending):
            yield form.removesuffix(ending) + instead + tail

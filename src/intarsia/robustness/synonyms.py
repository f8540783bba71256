"""Candidates from WordNet (the paper's second source, step 2): words that share a sense with the word.

The paper takes all synsets of a word, all their lemmas, and the five that are nearest by cosine. Bringing a word to its
base form first and a candidate into the word's form afterwards is reconstructed here, and so is the order without
embeddings. The paper's reading offers words of every sense, `bribe` for `bought` and `helium` for `he`; `conservative`
(ours) keeps to the sense that a reader would most likely mean.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from intarsia.core.errors import ConfigError
from intarsia.robustness.candidates import Candidate
from intarsia.robustness.inflect import hint, inflect_like
from intarsia.robustness.protect import name_spans
from intarsia.robustness.wordnet import Synset, WordNet
from intarsia.robustness.words import Word

_CLOSED = """
a an the this that these those my your his her its our their mine yours hers ours theirs
i you he she it we they me him us them myself yourself himself herself itself ourselves themselves
one ones who whom whose which what when where why how that there here
some any no none all both each every either neither other another much many more most less least few fewer fewest
several enough such same
of in on at by for with from to into onto over under above below between among through during before after about
against per than as via up down out off toward towards until within without upon across along around
and or but nor so yet if then else because while although though since unless whether
be am is are was were been being have has had having do does did doing done will would can could shall should may
might must ought let not also too only just very
"""

CLOSED = frozenset(_CLOSED.split())
"""Words of closed classes (pronouns, determiners, prepositions, conjunctions, auxiliaries): WordNet has none of them,
and what it has under their spelling (he: helium, a: angstrom, per: phosphorus) is something else."""


@runtime_checkable
class Similarity(Protocol):
    """Something that knows how near words are to one another, such as an EmbeddingSource."""

    def cosines(self, word: str, others: Sequence[str]) -> list[float]:
        """How near each of the others is to a word; more is nearer."""


Rank: TypeAlias = Similarity | Callable[[str, str], float]


class Reading(NamedTuple):
    """One way to take a word: a sense of one of its base forms.

    Attributes:
        lemma: The base form.
        pos: `n`, `v`, `a` or `r`.
        sense: The sense's number, 1 for the most frequent.
        synset: The sense.
    """

    lemma: str
    pos: str
    sense: int
    synset: Synset


class WordNetSource:
    """Proposes words that share a WordNet synset with a word.

    A word is brought to its base forms (`bought` is `buy`, a verb); the lemmas of the base forms' synsets, put in the
    word's own form (`purchased`), are its candidates. Dropped are the word and all forms of its base forms, lemmas of
    several words, lemmas with anything but letters, and lemmas that have no form like the word's. Each candidate's note
    names its synset and the sense's number: `synset buy.v.01, sense 1 of buy`. Its score is the cosine, or 1 / place.

    What is read from the question besides the word is the text right before it, and only to tell apart forms that look
    alike (see `inflect_like`).

    Args:
        k: How many candidates a word has at most; 0 switches the source off.
        wordnet: A reader or a folder; looked for (and fetched) at the first question when omitted.
        rank: An EmbeddingSource, in whose space candidates are ranked by cosine as in the paper, or a function
            `f(word, candidate) -> nearness`. Without it the likelier part of speech and the more frequent sense come
            first (ours).
        inflect: Whether candidates are put in the word's form. Without it lemmas stand as they are, as the paper reads
            literally ("He purchase 3 apples").
        pos: `all` parts of speech that the word can be, or the `likely` one only, by WordNet's counts.
        senses: Only the n most frequent senses of each base form; all when omitted.
        conservative: Only the most frequent sense of the likely part of speech, and nothing for words of closed
            classes (he, per, as), whose senses in WordNet are never meant, for numbers, and for names, that is, words
            with a capital inside a sentence. That is as far as meaning is preserved without reading the question.
        mutual: Only synsets that are the most frequent sense of the candidate too (`found` is not `chanced`).
        name: As it appears in reports.

    Attributes:
        name: See above.

    Raises:
        ConfigError: An option is wrong.
        DataError: There is no WordNet, or its files are damaged; at the first question when `wordnet` is omitted.
    """

    def __init__(
        self,
        k: int = 5,
        *,
        wordnet: WordNet | str | Path | None = None,
        rank: Rank | None = None,
        inflect: bool = True,
        pos: Literal["all", "likely"] = "all",
        senses: int | None = None,
        conservative: bool = False,
        mutual: bool = False,
        name: str = "wordnet",
    ) -> None:
        if isinstance(k, bool) or not isinstance(k, int) or k < 0:
            raise ConfigError(f"k is a number of candidates, not {k!r}.", "Use 0 (off) or more; the paper has 5.")
        if senses is not None and (isinstance(senses, bool) or not isinstance(senses, int) or senses < 1):
            raise ConfigError(f"senses is how many senses to use, not {senses!r}.", "Use 1 or more, or leave it out.")
        if pos not in ("all", "likely"):
            raise ConfigError(f"Unknown pos {pos!r}.", "Use `all` or `likely`.")
        if rank is not None and not isinstance(rank, Similarity) and not callable(rank):
            raise ConfigError("rank must be an EmbeddingSource or a function of two words.", "Leave it out for none.")
        if conservative and not inflect:
            raise ConfigError("A conservative source inflects its candidates.", "Leave inflect out.")
        self.name, self.k = name, k
        self.inflect, self.conservative, self.mutual = inflect, conservative, mutual
        self.pos: Literal["all", "likely"] = pos
        self.senses = senses
        self._rank = rank
        self._wordnet = wordnet if isinstance(wordnet, WordNet) or wordnet is None else WordNet(wordnet)
        self._lock = threading.Lock()
        self._cache: dict[tuple[str, str], list[Candidate]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @property
    def wordnet(self) -> WordNet:
        """The reader, opened when first asked for."""
        with self._lock:
            if self._wordnet is None:
                self._wordnet = WordNet()
            return self._wordnet

    def propose(self, question: str, words: Sequence[Word]) -> list[list[Candidate]]:
        """See `Source.propose`."""
        if self.k == 0:
            return [[] for _ in words]
        return [self._candidates(question, word) for word in words]

    def _candidates(self, question: str, word: Word) -> list[Candidate]:
        if self.conservative and _is_name(question, word):
            return []
        before = question[: word.start]
        key = (word.text, hint(before) if self.inflect else "")
        if key not in self._cache:
            self._cache[key] = self._ranked(word.text, self._synonyms(word.text, before, self.conservative))
        return list(self._cache[key])

    # --- one word ----------------------------------------------------------------------------------------------------

    def readings(self, word: str) -> list[Reading]:
        """All ways to take a word that the options allow; the likelier part of speech and sense first."""
        return self._readings(word, self.conservative)

    def is_first_sense(self, word: str, replacement: str, context: str = "") -> bool:
        """Whether a replacement is what this source would propose for a word if it were conservative.

        Args:
            word: The word as it stands.
            replacement: What stands in its place; in the word's form if this source inflects.
            context: The text before the word.
        """
        if _is_name(context + word, Word(0, word, len(context), len(context) + len(word))):
            return False
        return any(text.lower() == replacement.lower() for text, _ in self._synonyms(word, context, strict=True))

    def _readings(self, word: str, strict: bool) -> list[Reading]:
        reader = self.wordnet
        if strict and word.lower() in CLOSED:
            return []
        base_forms = reader.morphy(word)
        base_forms.sort(key=lambda form: -reader.frequency(*form))  # of equally frequent ones, morphy's order decides
        found = [
            Reading(lemma, part, sense, synset)
            for lemma, part in (base_forms[:1] if strict or self.pos == "likely" else base_forms)
            for sense, synset in enumerate(reader.synsets(lemma, part)[: 1 if strict else self.senses], 1)
        ]
        # A number may only be put in digits otherwise, and V or XII for five or twelve are digits too.
        return [one for one in found if not (strict and any(text.isdigit() for text in one.synset.words))]

    def _synonyms(self, word: str, before: str, strict: bool) -> Iterator[tuple[str, Reading]]:
        """Candidates with the reading that they come from, likeliest first."""
        reader = self.wordnet
        own = {word.lower(), *(lemma for lemma, _ in reader.morphy(word))}
        for reading in self._readings(word, strict):
            for lemma in reader.lemmas(reading.synset):
                if lemma.lower() in own or not (lemma.isascii() and lemma.isalpha()):
                    continue
                if self.mutual and reader.synsets(lemma, reading.pos)[:1] != [reading.synset]:
                    continue
                text = inflect_like(word, lemma, reading.pos, before, of=reading.lemma) if self.inflect else lemma
                if text is None or not text.isalpha():
                    continue
                if own.isdisjoint({text.lower(), *(base for base, _ in reader.morphy(text))}):
                    yield text, reading

    def _ranked(self, word: str, found: Iterable[tuple[str, Reading]]) -> list[Candidate]:
        first: dict[str, tuple[str, Reading]] = {}
        for text, reading in found:
            first.setdefault(text.lower(), (text, reading))
        texts = [text for text, _ in first.values()]
        if self._rank is None:
            scores = [1 / place for place in range(1, len(texts) + 1)]
        elif isinstance(self._rank, Similarity):
            scores = self._rank.cosines(word, texts)
        else:
            scores = [float(self._rank(word, text)) for text in texts]
        pairs = sorted(zip(scores, first.values()), key=lambda pair: -pair[0])  # stable: equal ones by sense
        return [Candidate(text, score, self._note(reading)) for score, (text, reading) in pairs[: self.k]]

    def _note(self, reading: Reading) -> str:
        return f"synset {self.wordnet.name(reading.synset)}, sense {reading.sense} of {reading.lemma}"


def _is_name(question: str, word: Word) -> bool:
    """Whether a word bears a capital that its place does not explain, here or elsewhere, or looks like a name."""
    if not word.text[:1].isupper():
        return False
    if any(span.start <= word.start and word.end <= span.end for span in name_spans(question)):
        return True
    at = -1
    while (at := question.find(word.text, at + 1)) >= 0:
        before = question[:at].rstrip(" \t\"'(\u201c\u2018")
        whole = not (question[at - 1 : at].isalpha() or question[at + len(word.text) :][:1].isalpha())
        if whole and before and before[-1] not in ".?!:;\n":
            return True
    return False

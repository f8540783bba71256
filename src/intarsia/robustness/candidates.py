"""What may stand in a word's place: candidates, the sources that propose them, and how their lists become one.

A question is rewritten by putting a candidate in the place of a word. `rewrites` makes the plan of an attack: all
rewrites of a question in the order in which they are asked, each of them with the word, the source and the positions
that it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from intarsia.robustness.words import Span, Word, keep_case, replace

Scope: TypeAlias = Literal["local", "global"]
"""`local`: this occurrence only. `global`: every occurrence of the same word, so that the text stays coherent."""

SCOPES: Mapping[str, Scope] = {"embedding": "local", "wordnet": "global", "mlm": "global", "infill": "global"}
"""The paper's scopes; CausalInfillSource stands in for the masked model and has its scope. Others are local."""


@dataclass(frozen=True)
class Candidate:
    """One proposal for a word's place.

    Attributes:
        text: The word as proposed; the original's case is put on later. Empty stands for leaving the word out.
        score: The source's own figure (cosine, probability); more is better, and lists come best first.
        note: What else is known of it (`synset buy.v.01`), for reports.
    """

    text: str
    score: float = 0.0
    note: str = ""


@runtime_checkable
class Source(Protocol):
    """Proposes candidates.

    Attributes:
        name: As it appears in reports and in `scope`.
    """

    name: str

    def propose(self, question: str, words: Sequence[Word]) -> list[list[Candidate]]:
        """Candidates for each of the words, best first; one list a word, in order.

        Args:
            question: The whole question.
            words: The words that may be changed, as `words.editable` gives them.
        """


class CallableSource:
    """A source made of a function.

    Args:
        name: As it appears in reports.
        propose: `f(word, question) -> list of words`.
    """

    def __init__(self, name: str, propose: Callable[[str, str], Sequence[str]]) -> None:
        self.name = name
        self._propose = propose

    def propose(self, question: str, words: Sequence[Word]) -> list[list[Candidate]]:
        """See `Source.propose`."""
        return [[Candidate(str(text)) for text in self._propose(word.text, question)] for word in words]


@dataclass(frozen=True)
class Rewrite:
    """A question with one word changed.

    Attributes:
        text: The new question.
        word: The word as it stood.
        replacement: What stands in its place, case restored.
        source: The source that proposed it first.
        also: Further sources that proposed it.
        scope: Whether one occurrence changed or all.
        score: The first source's figure.
        index: The word's place among the question's words.
        before: Spans of the changed words in the old question.
        after: Spans of the new words in the new question.
        note: The candidate's.
        gates: Figures of the gates that it passed, by name.
    """

    text: str
    word: str
    replacement: str
    source: str
    also: tuple[str, ...] = ()
    scope: Scope = "local"
    score: float = 0.0
    index: int = 0
    before: tuple[Span, ...] = ()
    after: tuple[Span, ...] = ()
    note: str = ""
    gates: tuple[tuple[str, float], ...] = ()


def rewrites(
    question: str,
    words: Sequence[Word],
    proposals: Sequence[tuple[str, Sequence[Sequence[Candidate]]]],
    *,
    scope: Mapping[str, Scope] = SCOPES,
    protected: Sequence[Span] = (),
) -> list[list[Rewrite]]:
    """Union of the sources' lists for each word, in the order of the sources (paper, section on candidate merging).

    A candidate that renders as the question itself, or as a rewrite that came before it anywhere in the question, is
    dropped: it would be a query without a change, or the same query twice. Of equal rewrites of one word the first
    source is named and the others are noted in `also`.

    Args:
        question: The question.
        words: Words that may be changed, in the order in which they are tried.
        proposals: Each source's name and its list for each word.
        scope: Scope by source name; local where unnamed.
        protected: Spans that are never touched, also not by a global replacement.

    Returns:
        One list a word.
    """
    seen: dict[str, tuple[int, int]] = {}
    plan: list[list[Rewrite]] = []
    for place, word in enumerate(words):
        found: list[Rewrite] = []
        for name, lists in proposals:
            for candidate in lists[place]:
                replacement = keep_case(word.text, candidate.text)
                where = scope.get(name, "local")
                edited = replace(question, word, replacement, where, protected)
                if edited.text == question:
                    continue
                if edited.text in seen:
                    at, row = seen[edited.text]
                    if at == place and name != found[row].source and name not in found[row].also:
                        found[row] = _also(found[row], name)
                    continue
                seen[edited.text] = (place, len(found))
                found.append(
                    Rewrite(
                        text=edited.text,
                        word=word.text,
                        replacement=replacement,
                        source=name,
                        scope=where,
                        score=candidate.score,
                        index=word.index,
                        before=edited.before,
                        after=edited.after,
                        note=candidate.note,
                    )
                )
        plan.append(found)
    return plan


def _also(rewrite: Rewrite, name: str) -> Rewrite:
    from dataclasses import replace as changed

    return changed(rewrite, also=(*rewrite.also, name))

"""Rewriting training questions with candidates of the sources: what an attack would ask, learned beforehand.

The augmentation is ours, the paper has no defense: a share of the questions gets a word exchanged for a candidate drawn
at random, and the answer stays as it was. It is right only as far as the candidates keep what is asked, so the sources
should be those of synonyms and forms, and what the answer hangs on is protected.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from intarsia.core.errors import ConfigError, DataError
from intarsia.robustness.candidates import SCOPES, Rewrite, Scope, Source, rewrites
from intarsia.robustness.protect import Protect, editable, protected_spans
from intarsia.robustness.words import Span, words

if TYPE_CHECKING:
    from intarsia.robustness.gates import Gate


class Augmenter:
    """Rewrites a share of the questions, for `datasets.Dataset.map`.

    What becomes of a text depends on the text, the seed and the options alone, not on the rows around it, so batches
    and processes (`num_proc`) change nothing. Several augmenters with different seeds give several variants of a row.

    ```python
    dataset.map(Augmenter([WordNetSource()]), batched=True)
    ```

    Args:
        sources: Where candidates come from; a word takes one of the union of their lists, all equally likely.
        protect: What is never touched; see `protect.Protect`.
        rate: Share of the texts that is rewritten, in [0, 1].
        words: Words that are changed in each, as far as there are candidates.
        gates: Filters on rewrites; of the rewrites of a word only those that pass all of them are drawn from.
        scope: `local` or `global` by source name; the paper's when omitted.
        seed: Of the draws.
        columns: The column with the text, or several; all others stay as they are.
        answer: The column with the answer, where there is one: its words are not touched in the text, for the answer
            stays as it is and would name what the text has no longer. Empty for no such care.

    Raises:
        ConfigError: An option is wrong.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        protect: Protect = "math",
        rate: float = 0.7,
        words: int = 1,
        gates: Sequence[Gate] = (),
        scope: Mapping[str, Scope] | None = None,
        seed: int = 0,
        columns: str | Sequence[str] = "question",
        answer: str = "answer",
    ) -> None:
        if not sources:
            raise ConfigError("An augmenter without sources changes nothing.", "Give sources=[WordNetSource()].")
        if not 0 <= rate <= 1:
            raise ConfigError(f"The share of rewritten texts is {rate:g}.", "Give a rate from 0 to 1.")
        if words < 1:
            raise ConfigError(f"{words} words cannot be changed.", "Give words=1 or more.")
        self.columns = (columns,) if isinstance(columns, str) else tuple(columns)
        if not self.columns:
            raise ConfigError("There is no column to rewrite.", "Give columns='question'.")
        protected_spans("", protect)  # a wrong name is told here, not in a worker process
        self.sources, self.gates = tuple(sources), tuple(gates)
        self.protect, self.rate, self.words, self.seed, self.answer = protect, rate, words, seed, answer
        self.scope = dict(SCOPES if scope is None else scope)

    def __call__(self, rows: Mapping[str, Any]) -> dict[str, Any]:
        """A row, or a batch of rows as columns, with its texts rewritten.

        Args:
            rows: A mapping from columns to a value each (a row) or to a list of values each (a batch).

        Raises:
            DataError: A column is missing, or holds something else than text.
        """
        found = dict(rows)
        answers = rows.get(self.answer)
        for column in self.columns:
            if column not in rows:
                raise DataError(
                    f"The rows have no column {column!r}; they have {', '.join(sorted(map(str, rows)))}.",
                    "Give columns='...' to the augmenter.",
                )
            value = rows[column]
            if isinstance(value, str):
                found[column] = self.rewrite(value, answer=_text(answers))
                continue
            if not isinstance(value, Sequence) or not all(isinstance(text, str) for text in value):
                raise DataError(f"Column {column!r} holds something else than text.", "Name a column of strings.")
            beside = answers if isinstance(answers, Sequence) and len(answers) == len(value) else [None] * len(value)
            found[column] = [self.rewrite(text, answer=_text(said)) for text, said in zip(value, beside, strict=True)]
        return found

    def rewrite(self, text: str, *, answer: str = "", variant: int = 0) -> str:
        """The text, rewritten or as it is.

        Args:
            text: The question.
            answer: Its answer, whose words are not touched.
            variant: Which of its draws; rows take the first.
        """
        return self._drawn(text, answer, variant)[0]

    def changes(self, text: str, *, answer: str = "", variant: int = 0) -> tuple[Rewrite, ...]:
        """What `rewrite` changes in the text, word after word; empty where it leaves it as it is."""
        return self._drawn(text, answer, variant)[1]

    def _drawn(self, text: str, answer: str, variant: int) -> tuple[str, tuple[Rewrite, ...]]:
        digest = hashlib.sha256(f"{self.seed}\0{variant}\0{text}".encode("utf-8", "surrogatepass")).digest()
        draw = random.Random(int.from_bytes(digest[:16], "big"))
        if draw.random() >= self.rate:
            return text, ()
        named = {word.text.lower() for word in words(answer)}
        made: list[Rewrite] = []
        for _ in range(self.words):
            step = self._one(text, named | {change.replacement.lower() for change in made}, draw)
            if step is None:
                break
            made.append(step)
            text = step.text
        return text, tuple(made)

    def _one(self, text: str, taken: set[str], draw: random.Random) -> Rewrite | None:
        """One rewrite: of a word drawn among those that have any, drawn among the word's."""
        open_words = [word for word in editable(text, self.protect) if word.text.lower() not in taken]
        kept = [Span(word.start, word.end) for word in words(text) if word.text.lower() in taken]
        protected = tuple(sorted((*protected_spans(text, self.protect), *kept)))
        draw.shuffle(open_words)
        # A word at a time until one has candidates: the same law as asking the sources for all, at a fraction of it.
        for word in open_words:
            proposals = [(source.name, source.propose(text, [word])) for source in self.sources]
            (found,) = rewrites(text, [word], proposals, scope=self.scope, protected=protected)
            for gate in self.gates:
                if found:
                    verdicts = gate.check(text, found)
                    found = [rewrite for rewrite, verdict in zip(found, verdicts, strict=True) if verdict.keep]
            if found:
                return draw.choice(found)
        return None


def _text(answer: Any) -> str:
    return "" if answer is None else str(answer)

"""The plan of an attack on one question: which rewrites are asked, and in which order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from intarsia.core.data import Item
from intarsia.core.errors import ConfigError
from intarsia.robustness.asking import Asking, Query, wanted_answer
from intarsia.robustness.candidates import Candidate, Rewrite, Scope, Source, rewrites
from intarsia.robustness.goals import Reply
from intarsia.robustness.protect import Protect, editable, protected_spans
from intarsia.robustness.search import Change, Step
from intarsia.robustness.words import Span, Word, replace, words

if TYPE_CHECKING:
    from intarsia.robustness.gates import Gate

Order: TypeAlias = Literal["left_to_right", "random", "importance", "importance_mask", "guided"]
"""Which word comes first: as written (the paper's, as reconstructed), drawn, by how much the answer's log-probability
falls without the word (TextFooler's ranking) or with the word masked (BERT-Attack's); `guided` ranks the rewrites
themselves by the answer's log-probability. The last three need a target that can score."""
ORDERS: tuple[Order, ...] = ("left_to_right", "random", "importance", "importance_mask", "guided")
MASK = "_"


@dataclass
class Plan:
    """What is asked about one question.

    Attributes:
        words: Words that may be changed.
        steps: Rewrites in the order of asking.
        rejected: Rewrites that each gate turned down.
        scored: Questions that were scored to find the order.
    """

    words: int
    steps: list[Step]
    rejected: Counter[str] = field(default_factory=Counter)
    scored: int = 0


class Planner:
    """Makes plans; one for all questions, so that sources can keep what they computed.

    Args:
        sources: In order of priority.
        scope: Scope by source name.
        protect: What is never touched.
        gates: Filters on rewrites.
        order: Which word comes first.
        seed: Of the random order.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        scope: Mapping[str, Scope],
        protect: Protect,
        gates: Sequence[Gate] = (),
        order: Order = "left_to_right",
        seed: int = 0,
    ) -> None:
        for source in sources:
            if not isinstance(source, Source):
                raise ConfigError(f"{source!r:.60} is no source.", "Give objects with `name` and `propose`.")
        names = [source.name for source in sources]
        if len(set(names)) < len(names):
            raise ConfigError(f"Two sources have the same name: {', '.join(sorted(names))}.", "Give each its own.")
        if order not in ORDERS:
            raise ConfigError(f"There is no word order {order!r}.", f"Use one of {', '.join(ORDERS)}.")
        if isinstance(protect, str):
            protected_spans("", protect)  # refuses a wrong name before anything is asked
        self.sources, self.scope, self.protect = tuple(sources), dict(scope), protect
        self.gates, self.order, self.seed = tuple(gates), order, seed

    def plan(self, item: Item, clean: Reply, asking: Asking) -> Plan:
        """The plan of a question whose words are all as they were."""
        found, changeable, rejected = self._rewrites(item.question, self._answer_words(item))
        if self.order == "random":
            random.Random(f"{self.seed}/{item.id}").shuffle(found)
        steps = [Step.of(rewrite) for rewrite in _flat(found)]
        scored = 0
        if self.order.startswith("importance") and found:
            importance = self._importance(item, clean, changeable, asking)
            ranked = sorted(range(len(found)), key=lambda at: -importance[at])
            steps = [Step.of(rewrite) for rewrite in _flat([found[at] for at in ranked])]
            scored = len(found) + 1
        elif self.order == "guided":
            steps = self.ranked(item, clean, steps, asking)
            scored = len(steps)
        return Plan(len(changeable), steps, rejected, scored)

    def deeper(self, item: Item, step: Step) -> list[Step]:
        """Steps with one word more changed than `step`; a word that it changed stays as it is."""
        taken = self._answer_words(item) | {change.replacement.lower() for change in step.changes}
        found, _, _ = self._rewrites(step.text, taken)
        return [
            Step(
                rewrite.text,
                (*step.changes, Change.of(rewrite)),
                tuple(sorted((*moved(step.marks, rewrite, len(rewrite.text) - len(step.text)), *rewrite.after))),
            )
            for rewrite in _flat(found)
        ]

    def ranked(self, item: Item, clean: Reply, steps: Sequence[Step], asking: Asking) -> list[Step]:
        """Steps by the log-probability that the target gives to its answer behind each, the lowest first."""
        if not steps:
            return []
        _need_scores(asking, "guided")
        answer = wanted_answer(item, clean)
        queries = [Query(item, step.text, "") for step in steps]
        scores = asking.answer_scores(queries, [answer] * len(steps), f"guide/{item.id}")
        return [steps[at] for at in sorted(range(len(steps)), key=lambda at: scores[at])]

    def _answer_words(self, item: Item) -> frozenset[str]:
        """Words that the answer is made of: where they stand in the question, to change them is to change the answer.

        Nothing is kept back under `none`, and numbers are left to the other kinds of protection.
        """
        if self.protect == "none" or item.kind not in ("word", "exact"):
            return frozenset()
        return frozenset(word.text.lower() for said in (item.answer or "", *item.aliases) for word in words(said))

    def _rewrites(self, question: str, taken: frozenset[str]) -> tuple[list[list[Rewrite]], list[Word], Counter[str]]:
        changeable = [word for word in editable(question, self.protect) if word.text.lower() not in taken]
        if not changeable:
            return [], [], Counter()
        protected = protected_spans(question, self.protect)
        if taken:
            kept = [Span(word.start, word.end) for word in words(question) if word.text.lower() in taken]
            protected = tuple(sorted((*protected, *kept)))
        proposals = [(source.name, self._proposed(source, question, changeable)) for source in self.sources]
        found = rewrites(question, changeable, proposals, scope=self.scope, protected=protected)
        if self.protect in ("math", "mathattack"):
            # What must not be taken away must not be put in either: "with" does not become "without", nor "a" "two".
            found = [[one for one in of_word if not protected_spans(one.replacement, "math")] for of_word in found]
        rejected: Counter[str] = Counter()
        if self.gates:
            from intarsia.robustness.gates import apply_gates

            found, counts = apply_gates(question, found, self.gates)
            rejected = Counter(counts)
        return found, changeable, rejected

    def _proposed(self, source: Source, question: str, changeable: Sequence[Word]) -> list[list[Candidate]]:
        lists = source.propose(question, changeable)
        if len(lists) != len(changeable):
            raise ConfigError(
                f"The source {source.name} gave {len(lists)} lists for {len(changeable)} words.",
                "`propose` gives one list a word, in order; an empty one where it has nothing.",
            )
        return lists

    def _importance(self, item: Item, clean: Reply, changeable: Sequence[Word], asking: Asking) -> list[float]:
        _need_scores(asking, self.order)
        protected = protected_spans(item.question, self.protect)
        filler = MASK if self.order == "importance_mask" else ""
        texts = [replace(item.question, word, filler, "local", protected).text for word in changeable]
        answer = wanted_answer(item, clean)
        queries = [Query(item, text, "") for text in (item.question, *texts)]
        base, *without = asking.answer_scores(queries, [answer] * len(queries), f"{self.order}/{item.id}")
        return [base - score for score in without]


def moved(spans: Sequence[Span], rewrite: Rewrite, grown: int) -> list[Span]:
    """Where spans of a text lie after a rewrite of it.

    Args:
        spans: Spans that the rewrite did not change.
        rewrite: What changed.
        grown: Characters that the whole text gained.
    """
    changes = [(old, (new.end - new.start) - (old.end - old.start)) for old, new in zip(rewrite.before, rewrite.after)]
    # A word that is left out takes a space with it, which belongs to no span.
    spaces = sum(by for _, by in changes) - grown
    changes = [(old, by - (at < spaces)) for at, (old, by) in enumerate(changes)]
    shifted = []
    for span in spans:
        by = sum(by for old, by in changes if old.end <= span.start)
        shifted.append(Span(span.start + by, span.end + by))
    return shifted


def _flat(found: Sequence[Sequence[Rewrite]]) -> list[Rewrite]:
    return [rewrite for of_word in found for rewrite in of_word]


def _need_scores(asking: Asking, order: str) -> None:
    if "score" not in asking.target.capabilities:
        raise ConfigError(
            f"{asking.target.name} gives no log-probabilities, which the word order {order!r} goes by.",
            "Use left_to_right or random, or a target that can score.",
        )

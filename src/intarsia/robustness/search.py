"""The search: rewrites of many questions, asked in batches, with the outcome of asking them one at a time in order.

Each question has a walk: its rewrites in the documented order. A round asks the next rewrites of all unfinished walks
together, then reads the replies in order and stops a walk at its first success, so the success, the rewrite and the
number of queries are those of a search that asks one by one. What a round asked beyond a success is `ahead`: it costs
time and is never counted as a query of the attack.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from pydantic import BaseModel, ConfigDict

from intarsia.core.data import Item
from intarsia.robustness.asking import Asking, Query
from intarsia.robustness.candidates import Rewrite, Scope
from intarsia.robustness.goals import Goal, Reply
from intarsia.robustness.words import Span

Ruled: TypeAlias = Literal["", "confirmed", "chance", "rejected", "unsure"]
"""What became of a first success: `chance`, re-asking did not tell it from the target's own noise; `rejected`, the
adjudicator found the answer right for the question as rewritten; `unsure`, the adjudicator gave no verdict."""


class Change(BaseModel):
    """One word changed; see `Rewrite` for the fields."""

    model_config = ConfigDict(frozen=True)

    word: str
    replacement: str
    source: str
    also: tuple[str, ...] = ()
    scope: Scope = "local"
    score: float = 0.0
    index: int = 0
    note: str = ""
    gates: dict[str, float] = {}

    @classmethod
    def of(cls, rewrite: Rewrite) -> Change:
        """The change that a rewrite makes."""
        return cls(
            word=rewrite.word,
            replacement=rewrite.replacement,
            source=rewrite.source,
            also=rewrite.also,
            scope=rewrite.scope,
            score=rewrite.score,
            index=rewrite.index,
            note=rewrite.note,
            gates=dict(rewrite.gates),
        )


@dataclass(frozen=True)
class Step:
    """One thing to ask: the question with one or more words changed.

    Attributes:
        text: The question.
        changes: What was changed, in order.
        marks: Spans of the changed words in `text`.
        origin: Spans of the changed words in the original question, of one-word changes.
    """

    text: str
    changes: tuple[Change, ...] = ()
    marks: tuple[Span, ...] = ()
    origin: tuple[Span, ...] = ()

    @classmethod
    def of(cls, rewrite: Rewrite) -> Step:
        """The step of a single rewrite."""
        return cls(rewrite.text, (Change.of(rewrite),), rewrite.after, rewrite.before)


class Tried(BaseModel):
    """One query of an attack, with its reply and what became of it.

    Attributes:
        rank: Place in the walk, from 1: the number of queries up to and with this one.
        key: What seeds its random numbers.
        question: As asked.
        changes: What was changed.
        marks: Spans of the changed words in `question`.
        reply: What the target said.
        met: Whether the goal was met.
        ruled: What became of it, where it was.
        reason: Why.
    """

    model_config = ConfigDict(frozen=True)

    rank: int
    key: str
    question: str
    changes: tuple[Change, ...] = ()
    marks: tuple[tuple[int, int], ...] = ()
    reply: Reply
    met: bool = False
    ruled: Ruled = ""
    reason: str = ""


class Ruling(BaseModel):
    """Whether a first success stands."""

    model_config = ConfigDict(frozen=True)

    ruled: Ruled
    reason: str = ""


@dataclass
class Walk:
    """The state of one item's search.

    Attributes:
        item: What is attacked.
        run: Which of the runs.
        clean: The answer to the question as it was.
        steps: What is asked, in order.
        asked: Replies to the first steps; may reach beyond `tried`.
        tried: Queries taken in order, each with its outcome.
        success: The query that ended the walk.
        stopped: Whether the walk ended without a success before its steps ran out.
        tests: Re-ask tests so far.
        budget: Most queries.
        name: Names item and run; begins the keys of all its queries.
        scored: Questions that were scored to find the order.
    """

    item: Item
    run: int
    clean: Reply
    steps: list[Step]
    budget: int
    name: str = ""
    asked: list[Reply] = field(default_factory=list)
    tried: list[Tried] = field(default_factory=list)
    success: Tried | None = None
    stopped: bool = False
    tests: int = 0
    scored: int = 0

    @property
    def limit(self) -> int:
        """Queries that the walk may take with the steps it has."""
        return min(len(self.steps), self.budget)

    @property
    def done(self) -> bool:
        """Whether nothing is left to ask."""
        return self.success is not None or self.stopped or len(self.tried) >= self.limit

    @property
    def ahead(self) -> int:
        """Replies that were asked for and not needed."""
        return len(self.asked) - len(self.tried)

    def key(self, at: int) -> str:
        """What seeds the random numbers of step `at`: the wording, so that other candidates do not shift them."""
        step = self.steps[at]
        # The control asks one wording again and again, and each asking has random numbers of its own.
        place = f"#{at}" if not step.changes else ""
        digest = hashlib.sha256(step.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"{self.name}/{digest}{place}"

    def advance(self, goal: Goal) -> Tried | None:
        """Take replies in order up to the next one that meets the goal; None when there is none among them."""
        while len(self.tried) < min(len(self.asked), self.limit):
            at = len(self.tried)
            step, reply = self.steps[at], self.asked[at]
            tried = Tried(
                rank=at + 1,
                key=self.key(at),
                question=step.text,
                changes=step.changes,
                marks=tuple((span.start, span.end) for span in step.marks),
                reply=reply,
                met=goal.met(self.item, self.clean, reply),
            )
            self.tried.append(tried)
            if tried.met:
                return tried
        return None

    def settle(self, ruling: Ruling, *, stop_on_reject: bool) -> None:
        """Note what became of the last query."""
        self.tried[-1] = self.tried[-1].model_copy(update={"ruled": ruling.ruled, "reason": ruling.reason})
        if ruling.ruled == "confirmed":
            self.success = self.tried[-1]
        elif stop_on_reject:
            self.stopped = True


class Judge(Protocol):
    """Decides which first successes stand; called with walks whose last query met the goal."""

    def __call__(self, walks: Sequence[Walk]) -> list[Ruling]:
        """One ruling a walk, in order."""


def search(
    walks: Sequence[Walk],
    asking: Asking,
    goal: Goal,
    judge: Judge,
    *,
    rows: int,
    stage: str,
    stop_on_reject: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Run all walks to their ends.

    Args:
        walks: Changed in place.
        asking: How to ask.
        goal: What counts as a success.
        judge: Which successes stand.
        rows: Questions that a round aims to ask; more where there are more unfinished walks.
        stage: Name in the journal.
        stop_on_reject: Whether a success that does not stand ends the walk.
        progress: Called with (finished walks, walks).
    """
    while True:
        # Replies that an earlier round brought ahead are used up before anything is asked.
        while hits := [walk for walk in walks if not walk.done and walk.advance(goal) is not None]:
            for walk, ruling in zip(hits, judge(hits), strict=True):
                walk.settle(ruling, stop_on_reject=stop_on_reject)
        active = [walk for walk in walks if not walk.done]
        if progress is not None:
            progress(len(walks) - len(active), len(walks))
        if not active:
            return
        width = max(1, rows // len(active))
        wanted = [
            (walk, at) for walk in active for at in range(len(walk.asked), min(len(walk.asked) + width, walk.limit))
        ]
        replies = asking.ask([Query(walk.item, walk.steps[at].text, walk.key(at)) for walk, at in wanted], stage)
        for (walk, _), reply in zip(wanted, replies, strict=True):
            walk.asked.append(reply)

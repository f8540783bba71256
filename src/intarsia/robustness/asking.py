"""How questions are put to the target: the same prompt for the question as it was and for every rewriting of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from intarsia.core.ask import ask, ask_scores
from intarsia.core.data import DataSet, Item
from intarsia.core.data.fewshot import Style, prompt_for, shot_answer, shots_for
from intarsia.core.journal import Journal
from intarsia.core.sampling import Sampling
from intarsia.core.target import Prompt, Target
from intarsia.robustness.goals import Reply, read_reply

STEP_BY_STEP = "{question}\nThink step by step, and finish with the answer: The answer is N."
STEP_BY_STEP_MATH = "{question}\nThink step by step, and put the final answer into \\boxed{}."
"""Wordings for a chain of thought; the curly braces of the box are meant literally."""


class Query(NamedTuple):
    """One question to be put: the item it belongs to, its wording, and a name that seeds its random numbers."""

    item: Item
    question: str
    key: str


@dataclass
class Asking:
    """Everything that is fixed about how the target is asked.

    Attributes:
        target: Who answers.
        sampling: How tokens are chosen.
        data: The set; its worked examples are shown.
        shots: How many of them.
        style: How they are laid out.
        system: System prompt.
        template: Wording of the question, with `{question}`.
        worked: Whether examples show their working.
        journal: Where answers are kept.
        progress: Called with (stage, done, total).
        wavers: Whether the target was seen to answer one prompt in two ways where it should not.
    """

    target: Target
    sampling: Sampling
    data: DataSet
    shots: int = 0
    style: Style = "turns"
    system: str = ""
    template: str = ""
    worked: bool = False
    journal: Journal | None = None
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)
    wavers: bool = False

    @property
    def repeatable(self) -> bool:
        """Whether asking again gives the same answer: greedy, by a target that answers equal prompts alike."""
        return self.sampling.greedy and "seed" in self.target.capabilities and not self.wavers

    def shown(self, item: Item) -> tuple[str, ...]:
        """Ids of the worked examples that an item is asked behind."""
        return tuple(shot.id for shot in shots_for(item, self.data.shots, self.shots))

    def prompt(self, item: Item, question: str | None = None) -> Prompt:
        """The prompt of an item, worded as `question` where that is given."""
        shown = shots_for(item, self.data.shots, self.shots)
        asked = item if question is None else item.model_copy(update={"question": question})
        return prompt_for(
            asked, shown, style=self.style, system=self.system, template=self.template, worked=self.worked
        )

    def ask(
        self, queries: Sequence[Query], stage: str, *, sampling: Sampling | None = None, target: Target | None = None
    ) -> list[Reply]:
        """The read replies to all queries, in order.

        Args:
            queries: What is asked; keys are unique.
            stage: Keeps two askings of the same prompt apart in the journal.
            sampling: Instead of the usual one.
            target: Instead of the usual one.
        """
        if not queries:
            return []
        completions = ask(
            target or self.target,
            [self.prompt(query.item, query.question) for query in queries],
            sampling or self.sampling,
            keys=[query.key for query in queries],
            journal=self.journal,
            stage=f"robustness/{stage}",
        )
        return [read_reply(query.item, completion) for query, completion in zip(queries, completions, strict=True)]

    def answer_scores(self, queries: Sequence[Query], answers: Sequence[str], stage: str) -> list[float]:
        """Log-probability of an answer after each query, in nats; needs the capability `score`."""
        if not queries:
            return []
        spoken = [f" {answer}" if self.style == "plain" else answer for answer in answers]
        scores = ask_scores(
            self.target,
            [self.prompt(query.item, query.question) for query in queries],
            spoken,
            journal=self.journal,
            stage=f"robustness/{stage}",
        )
        return [score.total for score in scores]


def wanted_answer(item: Item, clean: Reply) -> str:
    """The answer whose log-probability says how sure the target is: the gold one as an example would word it."""
    if item.answer is not None:
        return shot_answer(item)
    return clean.parsed or ""

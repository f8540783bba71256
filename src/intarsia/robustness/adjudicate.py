"""Adjudicators: is the new answer really wrong, for the question as it was rewritten?

A rewrite may have changed what is asked, and then the new answer may be right. An adjudicator sees the rewritten
question and the target's answer to it. It never sees the gold answer, which belongs to the question as it was.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from intarsia.core.answers import check, read_answer
from intarsia.core.ask import ask
from intarsia.core.data import Item
from intarsia.core.errors import ConfigError
from intarsia.core.sampling import Sampling
from intarsia.core.target import Message, Prompt, Target
from intarsia.robustness.asking import Asking, Query
from intarsia.robustness.goals import Goal, Reply
from intarsia.robustness.search import Ruling

PROMPT_VERSION = 1
INSTRUCTIONS = """\
You check the work of a student. Below are a question and the student's answer. Some words of the question may be \
unusual; read it as a careful reader would, and decide what it asks exactly as it stands.

Solve the question yourself first. Then compare. The form of the answer does not matter, only whether it is right. \
If the question cannot be answered as it stands, or has several readings of which one gives the student's answer, the \
student is not wrong.

End with one line: VERDICT: CORRECT or VERDICT: WRONG or VERDICT: UNCLEAR

Question:
{question}

Student's answer:
{answer}"""
_VERDICT = re.compile(r"verdict\s*[:=]?\W{0,8}(correct|wrong|incorrect|unclear)\b", re.IGNORECASE)
_ALONE = re.compile(r"\W*(correct|wrong|incorrect|unclear)(?:\W*|\W*[.,!\n].*)", re.IGNORECASE | re.DOTALL)
LONGEST = 6000
"""Characters of an answer that a judge is shown; of a longer one the end is taken, where the answer stands."""


class Hit(NamedTuple):
    """A first success to be judged.

    Attributes:
        item: The item as it was.
        question: The question as rewritten.
        clean: The answer to the question as it was.
        reply: The answer to the rewritten one.
        key: Names the query; unique.
    """

    item: Item
    question: str
    clean: Reply
    reply: Reply
    key: str


class Adjudicator(Protocol):
    """Rules on first successes.

    Attributes:
        name: As it appears in reports.
        note: What a reader must know of it, empty for nothing.
    """

    name: str
    note: str

    def rule(self, hits: Sequence[Hit], asking: Asking, goal: Goal) -> list[Ruling]:
        """One ruling a hit, in order."""


class SelfConsistency:
    """The target itself, asked `k` more times: a success stands when the majority of its answers is one as well.

    It tells a slip from a stable failure. It cannot tell whether the rewrite changed what is asked.

    Args:
        k: Further answers a hit.
        temperature: They are sampled with.
    """

    def __init__(self, k: int = 5, temperature: float = 0.7) -> None:
        if k < 1:
            raise ConfigError(f"Self-consistency over {k} answers decides nothing.", "Give 1 or more; odd is best.")
        self.k, self.temperature = k, temperature
        self.name = f"self_consistency_{k}"
        self.note = "The adjudicator is the target itself, so a rewrite that changed what is asked is not found out."

    def rule(self, hits: Sequence[Hit], asking: Asking, goal: Goal) -> list[Ruling]:
        """See `Adjudicator.rule`."""
        sampling = asking.sampling.model_copy(update={"temperature": self.temperature})
        queries = [Query(hit.item, hit.question, f"{hit.key}/self{j}") for hit in hits for j in range(self.k)]
        replies = asking.ask(queries, "self-consistency", sampling=sampling)
        rulings = []
        for at, hit in enumerate(hits):
            answers = replies[at * self.k : (at + 1) * self.k]
            met = sum(goal.met(hit.item, hit.clean, reply) for reply in answers)
            stands = 2 * met > self.k
            rulings.append(
                Ruling(ruled="confirmed" if stands else "rejected", reason=f"{met} of {self.k} further answers meet it")
            )
        return rulings


class Resolver:
    """Somebody else solves the rewritten question; a success stands when that answer differs from the target's.

    Args:
        solver: Another target, stronger than the one under attack (a name is opened with `Target.parse`); or a function
            from a question to the right answer (None where it cannot tell), such as a symbolic solver of generated
            questions.
        k: Answers of a solving target; their majority counts.
        temperature: Of a solving target.
    """

    def __init__(
        self, solver: Target | str | Callable[[str], str | None], k: int = 1, temperature: float = 0.0
    ) -> None:
        self.solver = Target.parse(solver) if isinstance(solver, str) else solver
        self.k, self.temperature = max(1, k), temperature
        who = self.solver.name if isinstance(self.solver, Target) else getattr(solver, "__name__", "function")
        self.name = f"resolver({who})"
        self.note = ""

    def rule(self, hits: Sequence[Hit], asking: Asking, goal: Goal) -> list[Ruling]:
        """See `Adjudicator.rule`."""
        if isinstance(self.solver, Target):
            self.note = "The solver is the target itself." if self.solver.name == asking.target.name else ""
            sampling = asking.sampling.model_copy(update={"temperature": self.temperature})
            queries = [Query(hit.item, hit.question, f"{hit.key}/solver{j}") for hit in hits for j in range(self.k)]
            replies = asking.ask(queries, f"resolver-{self.solver.name}", sampling=sampling, target=self.solver)
            solved = [
                _majority([reply.parsed for reply in replies[at * self.k : (at + 1) * self.k]])
                for at in range(len(hits))
            ]
        else:
            found = [self.solver(hit.question) for hit in hits]
            solved = [None if answer is None else str(answer) for answer in found]
        return [_differs(hit, answer) for hit, answer in zip(hits, solved, strict=True)]


class LLMJudge:
    """A stronger model reads the rewritten question and the answer, and says whether it is wrong (the paper's step 7).

    Args:
        judge: Who judges; a name is opened with `Target.parse`.
        instructions: The prompt, with `{question}` and `{answer}`; ours, version 1, when omitted.
        max_new_tokens: Room for the judge's reasoning.
    """

    def __init__(self, judge: Target | str, *, instructions: str = INSTRUCTIONS, max_new_tokens: int = 1024) -> None:
        if "{question}" not in instructions or "{answer}" not in instructions:
            raise ConfigError("The judge's instructions lack {question} or {answer}.", "Write both where they belong.")
        self.judge = Target.parse(judge)
        self.instructions = instructions
        self.max_new_tokens = max_new_tokens
        self.name = f"judge({self.judge.name})"
        self.note = ""

    def rule(self, hits: Sequence[Hit], asking: Asking, goal: Goal) -> list[Ruling]:
        """See `Adjudicator.rule`; a verdict that cannot be read is `unsure`, and the success does not stand."""
        itself = self.judge.name == asking.target.name
        self.note = "The judge is the model under attack itself: it repeats its own mistakes." if itself else ""
        if not hits:
            return []
        completions = ask(
            self.judge,
            [self._prompt(hit) for hit in hits],
            Sampling(max_new_tokens=self.max_new_tokens, seed=asking.sampling.seed),
            keys=[f"{hit.key}/judge" for hit in hits],
            journal=asking.journal,
            stage="robustness/judge",
        )
        chat = "chat" in self.judge.capabilities
        return [_ruling(completion.text, completion.error, chat=chat) for completion in completions]

    def _prompt(self, hit: Hit) -> Prompt:
        question = hit.question
        if hit.item.choices:
            options = "\n".join(f"{chr(ord('A') + i)}. {choice}" for i, choice in enumerate(hit.item.choices))
            question = f"{question}\n{options}"
        # In one pass: a question or an answer may hold braces of its own.
        parts = {"{question}": question, "{answer}": hit.reply.text[-LONGEST:]}
        text = re.sub(r"\{question\}|\{answer\}", lambda match: parts[match.group()], self.instructions)
        message: Message = {"role": "user", "content": text}
        return [message] if "chat" in self.judge.capabilities else f"{text}\n\nVERDICT:"


def _ruling(said: str, error: str, *, chat: bool = True) -> Ruling:
    # A judge that continues text is shown "VERDICT:" and may go on to make up further questions and verdicts.
    found = _VERDICT.findall(said) if chat else _VERDICT.findall(f"VERDICT:{said}")[:1]
    alone = _ALONE.fullmatch(said)
    word = found[-1].lower() if found else alone.group(1).lower() if alone else ""
    if word in ("wrong", "incorrect"):
        return Ruling(ruled="confirmed", reason="the judge finds the answer wrong for the question as rewritten")
    if word == "correct":
        return Ruling(ruled="rejected", reason="the judge finds the answer right for the question as rewritten")
    reason = "the judge cannot tell" if word else f"no verdict: {error}" if error else "no verdict could be read"
    return Ruling(ruled="unsure", reason=reason)


def _majority(answers: Sequence[str | None]) -> str | None:
    counts = Counter(answer for answer in answers if answer is not None)
    return counts.most_common(1)[0][0] if counts else None


def _differs(hit: Hit, answer: str | None) -> Ruling:
    if answer is None:
        return Ruling(ruled="unsure", reason="the solver gave no answer")
    own = hit.item.model_copy(update={"answer": answer, "meta": {"choices": list(hit.item.choices)}})
    found = read_answer(hit.reply.text, hit.item.kind, answer, choices=hit.item.choices)
    if found.text is not None and check(hit.reply.text, own).correct:
        return Ruling(ruled="rejected", reason=f"the solver's answer is the same: {answer}")
    return Ruling(ruled="confirmed", reason=f"the solver's answer is {answer}")

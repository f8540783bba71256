"""MSCR: change one word of a question at a time, by candidates of several sources, until a right answer breaks.

The attack of "MSCR: Exploring the Vulnerability of LLMs' Mathematical Reasoning Abilities Using Multi-Source Candidate
Replacement" (ICLR 2026) with what its published protocol lacks: the same search without any change as a control, and
re-asking of every success.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from intarsia.core.data import DataSet, Item
from intarsia.core.data.fewshot import Style, sampling_for, style_for
from intarsia.core.errors import ConfigError, DataError
from intarsia.core.journal import Journal
from intarsia.core.sampling import Sampling
from intarsia.core.target import Target
from intarsia.robustness.adjudicate import Adjudicator
from intarsia.robustness.asking import STEP_BY_STEP, STEP_BY_STEP_MATH, Asking, Query
from intarsia.robustness.candidates import SCOPES, Scope, Source
from intarsia.robustness.confirm import Confirmation
from intarsia.robustness.goals import AnswerChanged, AnswerWrong, Goal, Reply
from intarsia.robustness.length import LEAST_ROOM
from intarsia.robustness.plan import Order, Plan, Planner
from intarsia.robustness.protect import Protect, editable
from intarsia.robustness.results import Attacked, AttackResults, Null
from intarsia.robustness.search import Step, Tried, Walk, search

if TYPE_CHECKING:
    import datasets

    from intarsia.robustness.gates import Gate

Preset: TypeAlias = Literal["default", "paper"]
ControlKind: TypeAlias = Literal["auto", "full", "off"]
Progress: TypeAlias = Callable[[str, int, int], None]
Questions: TypeAlias = "DataSet | datasets.Dataset | Sequence[Item] | Sequence[Mapping[str, Any]] | str | Path"
CERTAIN = 1
"""Times that the control asks a target that repeats itself, to see that it does."""
PAPER_TEMPERATURE = 0.6
PAPER_RUNS = 3
SHOTS = 3
THINKING_ROOM = 512
CUT_OFF = "its answer was cut off"
NOT_COMPARED = "its answer cannot be compared"


class Budget(BaseModel):
    """What an attack may spend.

    Attributes:
        max_queries: Most queries on one item, without those for control and confirmation.
        reask: Times that a first success is asked again; None: 5 where answers vary, 0 where the target repeats itself.
        alpha: Chance that noise alone is counted as a success on an item, at most.
        rows: Questions that a batch aims at; None: 16 for a model on this machine's processor, 64 for others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_queries: int = Field(400, ge=1)
    reask: int | None = Field(None, ge=0)
    alpha: float = Field(0.05, gt=0, lt=1)
    rows: int | None = Field(None, ge=1)


class MSCR:
    """Multi-source candidate replacement.

    Args:
        target: Who is attacked; a name is opened with `Target.parse`.
        sources: Where candidates come from, in order of priority; `default_sources(target)` when omitted.
        protect: What is never touched: `math` (numbers, units, formulas, comparisons; the default), `none` (the paper),
            `mathattack` (math and names), `re:<pattern>`, a compiled pattern, or a function giving (start, end) pairs.
        scope: `local` or `global` by source name; the paper's for its three sources.
        goal: What counts as a success: `AnswerWrong()` by default, `AnswerChanged()` in the paper, `Longer(ratio)`.
        adjudicator: Who decides whether a success stands for the question as rewritten; nobody by default.
        on_reject: Whether the search goes on after a success that does not stand (`continue`), or ends (`stop`, paper).
        gates: Filters on rewrites.
        order: Which word comes first.
        max_words: Words that may be changed at once; more than 1 goes on from the best rewrites that failed.
        beam: How many of them.
        budget: What may be spent.
        sampling: How the target answers; greedy with room by the kind of answer when omitted.
        max_new_tokens: Room for an answer in the usual sampling, where `sampling` is not given; by kind when omitted.
        temperature: Of the usual sampling, where `sampling` is not given: 0 (greedy) by default, 0.6 in the paper.
        runs: Runs over all items; more than 1 makes sense where answers are sampled.
        shots: Worked examples a prompt; 3 when omitted, of those that ask the same kind of thing.
        style: How prompts are laid out; by what the target can do when `auto`.
        system: System prompt.
        template: Wording of the question, with `{question}`.
        chain_of_thought: Ask for working before the answer, with room for it.
        control: The search without any change. `auto` asks a target that repeats itself once more only, `full` as
            often as the attack did, `off` never. A target that then answers otherwise does not repeat itself, and is
            asked in full.
        average: Also ask one rewrite of each item drawn at random: the average case beside the worst.
        seed: Master seed.
        preset: `paper` for the published protocol wherever an argument is left out.

    Raises:
        ConfigError: An argument is wrong, or the preset lacks what it needs.
    """

    def __init__(
        self,
        target: Target | str,
        sources: Sequence[Source] | None = None,
        *,
        protect: Protect | None = None,
        scope: Mapping[str, Scope] | None = None,
        goal: Goal | None = None,
        adjudicator: Adjudicator | None = None,
        on_reject: Literal["continue", "stop"] | None = None,
        gates: Sequence[Gate] = (),
        order: Order = "left_to_right",
        max_words: int = 1,
        beam: int = 4,
        budget: Budget | None = None,
        sampling: Sampling | None = None,
        temperature: float | None = None,
        max_new_tokens: int | None = None,
        runs: int | None = None,
        shots: int | None = None,
        style: Style | Literal["auto"] = "auto",
        system: str = "",
        template: str = "",
        chain_of_thought: bool | None = None,
        control: ControlKind = "auto",
        average: bool = True,
        seed: int = 0,
        preset: Preset = "default",
    ) -> None:
        from intarsia.robustness.sources import default_sources

        paper = preset == "paper"
        self.target = Target.parse(target)
        if "generate" not in self.target.capabilities:
            raise ConfigError(f"{self.target.name} cannot answer questions.", "Name a model that generates text.")
        if max_words < 1 or beam < 1 or (runs is not None and runs < 1):
            raise ConfigError("max_words, beam and runs are at least 1.", "Leave them out for 1, 4 and 1.")
        if on_reject not in (None, "continue", "stop"):
            raise ConfigError(f"on_reject is {on_reject!r}.", "Use continue or stop.")
        if control not in ("auto", "full", "off"):
            raise ConfigError(f"control is {control!r}.", "Use auto, full or off.")
        if preset not in ("default", "paper"):
            raise ConfigError(f"There is no preset {preset!r}.", "Use default or paper.")
        if paper and adjudicator is None:
            raise ConfigError(
                "The paper's protocol has every success judged by a stronger model.",
                "Give adjudicator=LLMJudge(...), or on the command line --judge MODEL.",
            )
        self.notes: list[str] = []
        if sources is None:
            sources, self.notes = default_sources(self.target, preset=preset)
        self.planner = Planner(
            sources,
            scope=dict(SCOPES) if scope is None else scope,
            protect=protect if protect is not None else "none" if paper else "math",
            gates=gates,
            order=order,
            seed=seed,
        )
        self.goal: Goal = goal or (AnswerChanged() if paper else AnswerWrong())
        self.adjudicator = adjudicator
        self.on_reject = on_reject or ("stop" if paper else "continue")
        self.max_words, self.beam = max_words, beam
        self.budget = budget or Budget(reask=0 if paper else None)
        self.sampling = sampling
        self.temperature = temperature if temperature is not None else PAPER_TEMPERATURE if paper else 0.0
        self.max_new_tokens = max_new_tokens
        self.runs = runs or (PAPER_RUNS if paper else 1)
        self.shots, self.style = shots, style
        self.system, self.template = system, template
        self.chain_of_thought = paper if chain_of_thought is None else chain_of_thought
        self.control, self.average = control, average
        self.seed, self.preset = seed, preset

    def run(
        self,
        questions: Questions,
        *,
        out: str | Path | None = None,
        resume: bool = True,
        journal: Journal | None = None,
        progress: Progress | None = None,
    ) -> AttackResults:
        """Attack every question.

        Args:
            questions: A `DataSet`, a `datasets.Dataset`, rows with question and answer, or what `core.data.load` takes.
            out: Folder for the run; it is written when the run is done, and its journal while it goes on.
            resume: Go on with a run of the same settings that `out` holds; otherwise such a folder is refused.
            journal: Where answers are kept, instead of in `out`.
            progress: Called with (stage, done, total).

        Returns:
            All queries and what became of them.

        Raises:
            DataError: There are no questions.
            ConfigError: `out` holds a run with other settings, or something else.
        """
        data = as_data_set(questions)
        asking = self.asking(data)
        asking.progress = progress or asking.progress
        settings = self.settings(data, asking)
        if out is None:
            asking.journal = journal
            return self._run(data, asking, settings)
        folder = Path(out)
        _check_folder(folder, resume)
        with Journal(folder / "journal.jsonl", manifest={"attack": settings, "data": data.sha256}) as kept:
            asking.journal = kept
            results = self._run(data, asking, settings)
        results.save(folder)
        return results

    def asking(self, data: DataSet) -> Asking:
        """How questions of a set are put."""
        if self.style != "auto" and self.style != "plain" and "chat" not in self.target.capabilities:
            raise ConfigError(f"{self.target.name} has no chat template.", "Use style='plain'.")
        style = style_for(self.target) if self.style == "auto" else self.style
        shots = min(len(data.shots), SHOTS if self.shots is None else self.shots)
        worked = bool(shots) and all("solution" in shot.meta for shot in data.shots)
        template = self.template
        if self.chain_of_thought and not worked:
            # Examples that show no working would teach the opposite.
            shots = 0
            wording = STEP_BY_STEP_MATH if any(item.kind == "math" for item in data.items) else STEP_BY_STEP
            template = template or wording
        sampling = self.sampling
        if sampling is None:
            sampling = sampling_for(data, self.target, style, shown=bool(shots), worked=worked)
            if self.max_new_tokens is not None:
                sampling = sampling.model_copy(update={"max_new_tokens": self.max_new_tokens})
            elif self.chain_of_thought:
                sampling = sampling.model_copy(update={"max_new_tokens": max(THINKING_ROOM, sampling.max_new_tokens)})
            sampling = sampling.model_copy(update={"temperature": self.temperature, "seed": self.seed})
        return Asking(
            target=self.target,
            sampling=sampling,
            data=data,
            shots=shots,
            style=style,
            system=self.system,
            template=template,
            worked=worked,
        )

    def settings(self, data: DataSet, asking: Asking) -> dict[str, Any]:
        """Everything that the outcome depends on, as plain data."""
        shows_working = (self.chain_of_thought or asking.worked) and asking.sampling.max_new_tokens >= LEAST_ROOM
        return {
            "target": self.target.name,
            # A model that was trained anew under its old name is another target.
            "weights": str(self.target.provenance().get("sha256") or ""),
            "sources": [_described(source) for source in self.planner.sources],
            "scope": {source.name: self.planner.scope.get(source.name, "local") for source in self.planner.sources},
            "protect": _protection(self.planner.protect),
            "goal": self.goal.name,
            "adjudicator": self.adjudicator.name if self.adjudicator is not None else "",
            "on_reject": self.on_reject,
            "gates": [gate.name for gate in self.planner.gates],
            "order": self.planner.order,
            "max_words": self.max_words,
            "beam": self.beam,
            "budget": self.budget.model_dump(mode="json"),
            "sampling": asking.sampling.model_dump(mode="json"),
            "max_new_tokens": asking.sampling.max_new_tokens,
            "runs": self.runs,
            "shots": asking.shots,
            "style": asking.style,
            "system": self.system,
            "template": asking.template,
            "chain_of_thought": shows_working,
            "control": self.control,
            "average": self.average,
            "seed": self.seed,
            "preset": self.preset,
        }

    # --- The run -----------------------------------------------------------------------------------------------------

    def _run(self, data: DataSet, asking: Asking, settings: dict[str, Any]) -> AttackResults:
        cleans = self._clean(data, asking)
        walks, plans, reasons = self._walks(data, asking, cleans)
        once_more = self._once_more(walks, asking)
        confirmation = Confirmation(
            asking,
            self.goal,
            k=self._reask(asking),
            alpha=self.budget.alpha,
            adjudicator=self.adjudicator,
            stage="attack",
        )
        planned = {name: len(walk.steps) for name, walk in walks.items()}
        self._search(list(walks.values()), asking, confirmation)
        if self.max_words > 1:
            self._deeper(list(walks.values()), asking, confirmation, planned)
        averages = self._averages(walks, asking) if self.average else {}
        nulls, null_again = self._null(walks, asking, once_more)
        rows = []
        for item in data.items:
            for run in range(self.runs):
                name = _name(item, run)
                walk, plan = walks.get(name), plans.get(item.id)
                row = Attacked(item=item, run=run, clean=cleans[name], reason=reasons.get(name, ""))
                if plan is not None:
                    row = row.model_copy(update={"words": plan.words, "gated": dict(plan.rejected)})
                if walk is not None and plan is not None:
                    found = {
                        "attacked": True,
                        "candidates": planned[name],
                        "tried": tuple(walk.tried),
                        "success": walk.success is not None,
                        "ahead": walk.ahead,
                        "scored": walk.scored,
                        "null": nulls.get(name),
                        "average": averages.get(name),
                    }
                    row = row.model_copy(update=found)
                rows.append(row)
        return AttackResults(
            settings, rows, data, again=confirmation.queries + null_again, notes=self._notes(rows, asking)
        )

    def _clean(self, data: DataSet, asking: Asking) -> dict[str, Reply]:
        """Step 0: the answers to the questions as they are."""
        queries = [Query(item, item.question, _name(item, run)) for item in data.items for run in range(self.runs)]
        asking.progress("questions as they are", 0, len(queries))
        replies = asking.ask(queries, "clean")
        asking.progress("questions as they are", len(queries), len(queries))
        return {query.key: reply for query, reply in zip(queries, replies, strict=True)}

    def _walks(
        self, data: DataSet, asking: Asking, cleans: Mapping[str, Reply]
    ) -> tuple[dict[str, Walk], dict[str, Plan], dict[str, str]]:
        """Steps 1 to 5: candidates, filters, order; one plan an item, one walk a run. Also why items are left out."""
        walks: dict[str, Walk] = {}
        plans: dict[str, Plan] = {}
        reasons: dict[str, str] = {}
        for done, item in enumerate(data.items):
            names = [_name(item, run) for run in range(self.runs)]
            open_runs = [run for run in range(self.runs) if self.goal.attackable(item, cleans[names[run]])]
            for run in range(self.runs):
                if run not in open_runs:
                    reasons[names[run]] = _why_not(item, cleans[names[run]])
            if open_runs:
                plan = plans[item.id] = self.planner.plan(item, cleans[names[open_runs[0]]], asking)
                for run in open_runs:
                    if plan.steps:
                        walks[names[run]] = Walk(
                            item=item,
                            run=run,
                            clean=cleans[names[run]],
                            steps=list(plan.steps),
                            budget=self.budget.max_queries,
                            name=names[run],
                            # The plan is made once for all runs.
                            scored=plan.scored if run == open_runs[0] else 0,
                        )
                    else:
                        reasons[names[run]] = self._no_steps(item, plan)
            asking.progress("candidates", done + 1, len(data.items))
        return walks, plans, reasons

    def _no_steps(self, item: Item, plan: Plan) -> str:
        if plan.rejected.total():
            return "no candidate passes the gates"
        if plan.words:
            return "no source has a candidate for any of its words"
        return "all of its words are protected" if editable(item.question, "none") else "it has no words"

    def _search(self, walks: list[Walk], asking: Asking, confirmation: Confirmation) -> None:
        search(
            walks,
            asking,
            self.goal,
            confirmation,
            rows=self._rows(walks, asking),
            stage="attack",
            stop_on_reject=self.on_reject == "stop",
            progress=lambda done, total: asking.progress("attack", done, total),
        )

    def _deeper(self, walks: list[Walk], asking: Asking, confirmation: Confirmation, planned: dict[str, int]) -> None:
        """More words at once (beyond the paper): go on from the rewrites that came nearest to breaking the answer."""
        frontier = {walk.name: list(walk.steps) for walk in walks}
        for _ in range(1, self.max_words):
            unfinished = [
                walk for walk in walks if walk.success is None and not walk.stopped and len(walk.tried) < walk.budget
            ]
            for walk in unfinished:
                best = self._best(walk, frontier[walk.name], asking)
                seen = {step.text for step in walk.steps} | {walk.item.question}
                further = []
                for step in best:
                    for deeper in self.planner.deeper(walk.item, step):
                        if deeper.text not in seen:
                            seen.add(deeper.text)
                            further.append(deeper)
                frontier[walk.name] = further
                walk.steps += further
                planned[walk.name] = len(walk.steps)
            self._search(walks, asking, confirmation)

    def _best(self, walk: Walk, steps: list[Step], asking: Asking) -> list[Step]:
        """The beam: lowest log-probability of the answer where the target scores, else first of each word in order."""
        if "score" in asking.target.capabilities:
            walk.scored += len(steps)
            return self.planner.ranked(walk.item, walk.clean, steps, asking)[: self.beam]
        first: dict[int, Step] = {}
        for step in steps:
            first.setdefault(step.changes[-1].index, step)
        return list(first.values())[: self.beam]

    def _averages(self, walks: Mapping[str, Walk], asking: Asking) -> dict[str, Tried]:
        """One rewrite of each item, drawn at random: how much a single change costs on average."""
        drawn = {}
        for name, walk in walks.items():
            digest = hashlib.sha256(f"{self.seed}/{name}/average".encode("utf-8", "surrogatepass")).digest()
            single = sum(len(step.changes) == 1 for step in walk.steps)  # they come first
            drawn[name] = int.from_bytes(digest[:8], "big") % single
        missing = [(walks[name], at) for name, at in drawn.items() if at >= len(walks[name].asked)]
        replies = asking.ask([Query(walk.item, walk.steps[at].text, walk.key(at)) for walk, at in missing], "average")
        fresh = {walk.name: reply for (walk, _), reply in zip(missing, replies, strict=True)}
        found = {}
        for name, at in drawn.items():
            walk = walks[name]
            step, reply = walk.steps[at], fresh.get(name) or walk.asked[at]
            found[name] = Tried(
                rank=at + 1,
                key=walk.key(at),
                question=step.text,
                changes=step.changes,
                marks=tuple((span.start, span.end) for span in step.marks),
                reply=reply,
                met=self.goal.met(walk.item, walk.clean, reply),
            )
        return found

    def _once_more(self, walks: Mapping[str, Walk], asking: Asking) -> dict[str, Reply]:
        """Does a target that should repeat itself do so? A server with batches of many users often does not."""
        if self.control != "auto" or not asking.repeatable or not walks:
            return {}
        control = NullAttack.walks(
            [(walk.item, walk.run, walk.clean) for walk in walks.values()], dict.fromkeys(walks, CERTAIN)
        )
        replies = asking.ask([Query(walk.item, walk.item.question, walk.key(0)) for walk in control], "null")
        found = {walk.name: reply for walk, reply in zip(control, replies, strict=True)}
        asking.wavers = any(
            reply.status != "error" and reply.text != walks[name].clean.text for name, reply in found.items()
        )
        return found

    def _null(
        self, walks: Mapping[str, Walk], asking: Asking, once_more: Mapping[str, Reply]
    ) -> tuple[dict[str, Null], int]:
        """The control: as many queries with the same stop rule and the same confirmation, and no change."""
        if self.control == "off":
            return {}, 0
        short = self.control == "auto" and asking.repeatable
        budgets = {name: walk.limit for name, walk in walks.items()}
        control = NullAttack.walks(
            [(walk.item, walk.run, walk.clean) for walk in walks.values()],
            {name: min(CERTAIN, most) if short else most for name, most in budgets.items()},
        )
        for walk in control:
            walk.asked += [once_more[walk.name]] if walk.name in once_more else []
        confirmation = Confirmation(
            asking,
            self.goal,
            k=self._reask(asking),
            alpha=self.budget.alpha,
            adjudicator=self.adjudicator,
            stage="null",
        )
        search(
            control,
            asking,
            self.goal,
            confirmation,
            rows=self._rows(control, asking),
            stage="null",
            stop_on_reject=self.on_reject == "stop",
            progress=lambda done, total: asking.progress("control", done, total),
        )
        found = {
            walk.name: Null(
                queries=budgets[walk.name],
                asked=len(walk.tried),
                success=walk.success is not None,
                first=walk.tried[0].met,
            )
            for walk in control
        }
        return found, confirmation.queries

    def _rows(self, walks: Sequence[Walk], asking: Asking) -> int:
        """A processor pays for every token of a prompt, an accelerator or a server hardly for some prompts more.

        Questions behind different worked examples share no prefix, so they are batches of their own.
        """
        if self.budget.rows is not None:
            return self.budget.rows
        model = getattr(self.target, "model", None)
        on_processor = model is not None and getattr(getattr(model, "device", None), "type", "") == "cpu"
        if not on_processor:
            return 64
        return 16 * max(1, len({asking.shown(walk.item) for walk in walks}))

    def _reask(self, asking: Asking) -> int:
        if self.budget.reask is not None:
            return self.budget.reask
        return 0 if asking.repeatable else 5

    def _notes(self, rows: Sequence[Attacked], asking: Asking) -> list[str]:
        notes = [*self.notes, *asking.target.notes]
        if self.adjudicator is not None and self.adjudicator.note:
            notes.append(self.adjudicator.note)
        if self.control == "off" and not asking.repeatable:
            notes.append(
                "Answers are sampled and there is no control: part of these successes is the target's own noise."
            )
        if self.control == "auto" and asking.repeatable:
            notes.append(
                "The target repeats itself (greedy), so the control asked each question once more and not as often as "
                "the attack did."
            )
        if asking.wavers:
            notes.append(
                "The target should repeat itself (greedy) and does not: the control asked as often as the attack did, "
                "and successes were asked again."
            )
        errors = sum(tried.reply.status == "error" for row in rows for tried in row.tried)
        if errors:
            notes.append(f"{errors} queries got no answer; they count as queries and never as successes.")
        return notes


class NullAttack:
    """The control by itself: ask each question as it is, up to so many times, and stop at the first "success".

    Args:
        target: Who is asked.
        queries: Most queries an item.
        **options: Those of `MSCR` that are about asking: goal, budget, sampling, shots, style, system, template, seed.
    """

    def __init__(self, target: Target | str, queries: int = 100, **options: Any) -> None:
        if queries < 1:
            raise ConfigError(f"A control of {queries} queries asks nothing.", "Give 1 or more.")
        self.queries = queries
        self._attack = MSCR(target, sources=[], control="off", average=False, **options)

    def run(self, questions: Questions, *, journal: Journal | None = None) -> AttackResults:
        """Ask; the rows' `tried` hold every asking of the unchanged question."""
        attack = self._attack
        data = as_data_set(questions)
        asking = attack.asking(data)
        asking.journal = journal
        cleans = attack._clean(data, asking)
        open_items = [
            (item, run, cleans[_name(item, run)])
            for item in data.items
            for run in range(attack.runs)
            if attack.goal.attackable(item, cleans[_name(item, run)])
        ]
        walks = self.walks(open_items, {_name(item, run): self.queries for item, run, _ in open_items})
        confirmation = Confirmation(
            asking,
            attack.goal,
            k=attack._reask(asking),
            alpha=attack.budget.alpha,
            adjudicator=attack.adjudicator,
            stage="null",
        )
        search(
            walks,
            asking,
            attack.goal,
            confirmation,
            rows=attack._rows(walks, asking),
            stage="null",
            stop_on_reject=attack.on_reject == "stop",
        )
        by_name = {walk.name: walk for walk in walks}
        rows = []
        for item in data.items:
            for run in range(attack.runs):
                name = _name(item, run)
                row = Attacked(item=item, run=run, clean=cleans[name])
                walk = by_name.get(name)
                if walk is None:
                    row = row.model_copy(update={"reason": _why_not(item, cleans[name])})
                else:
                    row = row.model_copy(
                        update={
                            "attacked": True,
                            "candidates": self.queries,
                            "tried": tuple(walk.tried),
                            "success": walk.success is not None,
                            "ahead": walk.ahead,
                        }
                    )
                rows.append(row)
        settings = {**attack.settings(data, asking), "sources": [{"name": "null"}]}
        return AttackResults(settings, rows, data, again=confirmation.queries)

    @staticmethod
    def walks(items: Sequence[tuple[Item, int, Reply]], queries: Mapping[str, int]) -> list[Walk]:
        """Walks over the unchanged question; `queries` by the name of item and run."""
        found = []
        for item, run, clean in items:
            name = _name(item, run)
            steps = [Step(item.question)] * queries[name]
            found.append(Walk(item=item, run=run, clean=clean, steps=steps, budget=len(steps), name=f"{name}"))
        return found


def as_data_set(questions: Questions) -> DataSet:
    """Questions in any of the accepted forms.

    Raises:
        DataError: There are none.
    """
    from intarsia.core.data import content_hash, items_from_rows, load

    if isinstance(questions, DataSet):
        found = questions
    elif isinstance(questions, str | Path):
        found = load(str(questions))
    else:
        rows = list(questions)
        if not all(isinstance(row, Item | Mapping) for row in rows):
            raise DataError(
                "The questions are neither items nor rows.", 'Give rows such as {"question": ..., "answer": ...}.'
            )
        if rows and isinstance(rows[0], Item):
            items: tuple[Item, ...] = tuple(rows)
        else:
            items = items_from_rows(rows, name="questions")
        found = DataSet(name="questions", items=items, origin="given", sha256=content_hash(items))
    if not found.items:
        raise DataError(f"{found.name} has no questions.", "Give at least one.")
    twice = [name for name, times in Counter(item.id for item in found.items).items() if times > 1]
    if twice:
        raise DataError(f"{found.name} has two questions with the id {twice[0]!r}.", "Give every question its own id.")
    return found


def _name(item: Item, run: int) -> str:
    return f"{item.id}/run{run}"


def _why_not(item: Item, clean: Reply) -> str:
    if clean.status == "correct" or clean.status == "ungraded":
        return NOT_COMPARED if item.kind == "free" else "its answer is no ground for this goal"
    return {
        "wrong": "answered wrong before the attack",
        "truncated": CUT_OFF,
        "unparsed": "its answer cannot be read",
        "refused": "refused before the attack",
        "error": "got no answer",
    }[clean.status]


def _protection(protect: Protect) -> str:
    """Protection by a name that is the same in the next process."""
    if isinstance(protect, str):
        return protect
    if isinstance(protect, re.Pattern):
        return f"re:{protect.pattern}"
    return f"function {getattr(protect, '__qualname__', type(protect).__qualname__)}"


def _described(source: Source) -> dict[str, Any]:
    """A source with its plain options (k, filters, seed): another one of these is another attack."""
    plain = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(source).items()
        if not name.startswith("_") and (value is None or isinstance(value, bool | int | float | str | tuple))
    }
    threshold = {"tau": source.tau} if hasattr(source, "tau") else {}
    return {"kind": type(source).__name__, **plain, **threshold, "name": source.name}


def _check_folder(folder: Path, resume: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, not a folder.", "Give another folder.")
    if not folder.is_dir():
        return
    # A run that was killed while it made its journal leaves the lock only.
    names = {entry.name for entry in folder.iterdir() if not entry.name.startswith(".")} - {"journal.jsonl.lock"}
    if names and "journal.jsonl" not in names:
        raise ConfigError(f"{folder} is not empty and holds no attack.", "Give another folder.")
    if names and not resume:
        raise ConfigError(f"{folder} holds a run already.", "Give another folder, or resume it.")

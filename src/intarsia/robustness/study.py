"""The audit study: does a right answer survive the change of one word?"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from intarsia.core import data
from intarsia.core.catalog.embedded import EMBEDDED
from intarsia.core.data import DataSet, known_sets
from intarsia.core.errors import ConfigError, DataError, IntarsiaError
from intarsia.core.study import Claim, Context, Plan, Provenance, Remedy, Result, Run, Study
from intarsia.core.target import Target
from intarsia.robustness import verdicts
from intarsia.robustness.adjudicate import LLMJudge
from intarsia.robustness.attack import MSCR, Budget
from intarsia.robustness.candidates import Source
from intarsia.robustness.goals import AnswerChanged, AnswerWrong
from intarsia.robustness.verdicts import Finding

if TYPE_CHECKING:
    from intarsia.core.catalog import LoadedEncoder

ITEMS = {"smoke": 10, "quick": 42, "standard": 150, "full": 500}
"""Questions of each set; 36 right answers are where nothing broken puts the whole interval below one in ten."""
QUERIES = {"smoke": 6, "quick": 12, "standard": 100, "full": 400}
SETS: dict[str, tuple[str, ...]] = {
    "smoke": ("stories:1",),
    "quick": ("stories:1",),
    "standard": ("stories", "reasoning-gym", "gsm8k", "svamp"),
    "full": ("stories", "reasoning-gym", *data.KNOWN),
}
"""Sets when none are named; well-known ones among them only where they are at hand."""
WHOLE = 50
"""Queries that reach to the end of most questions."""
LARGER = {"smoke": "quick", "quick": "standard", "standard": "full"}
OWN_NEIGHBORS = (
    "Forms of a word come from the model's own embeddings, so another model meets partly other rewrites of the same "
    "questions: a small difference under attack between two models may be one of rewrites."
)
ENCODER = "minilm-l6"
RECIPE = "recipes/robustness/harden-smollm2.yaml"


class RobustnessOptions(BaseModel):
    """Options of the robustness study.

    Attributes:
        sets: Names for `intarsia.core.data.load`, or `auto`.
        items: Most questions of each set; by budget when omitted.
        max_queries: Most rewrites of each question; by budget when omitted.
        protect: What is never changed: `mathattack` (numbers, units, comparisons, names), `math` (names may change),
            `none` or `re:<pattern>`.
        order: Which word is changed first; see `intarsia.robustness.plan`. `auto` draws the words where the budget does
            not reach to the end of a question, so that its beginning is not all that is tried.
        mlm: Name or folder of a masked language model, as a third source.
        infill: Have the model under audit fill gaps, as a third source.
        surrogate: Whose embeddings serve for a model that shows no weights.
        chain_of_thought: Ask for working before the answer; needed to measure length, and slow.
        control: `auto`, `full` or `off`; see `MSCR`.
        temperature: Of the answers; 0 is greedy.
        max_new_tokens: Room for an answer, by its kind when omitted; a model that thinks behind an endpoint needs more.
        goal: `answer_wrong`, by gold answers; `answer_changed`, which needs none; `auto` takes it where a set has none.
        kind: How replies to questions of one's own that have no gold answers are read: `number`, `math`, `word`,
            `exact` or `choice`. Nothing says so where there are no answers, and running text cannot be compared.
        root: Folder with well-known sets; the environment variable INTARSIA_DATA when omitted.
    """

    model_config = ConfigDict(extra="forbid")

    sets: tuple[str, ...] | Literal["auto"] = "auto"
    items: int | None = Field(None, ge=1, le=100_000)
    max_queries: int | None = Field(None, ge=1)
    protect: str = "mathattack"
    order: Literal["auto", "left_to_right", "random", "importance", "importance_mask", "guided"] = "auto"
    mlm: str = ""
    infill: bool = False
    surrogate: str = "smollm2-135m"
    chain_of_thought: bool = False
    control: Literal["auto", "full", "off"] = "auto"
    temperature: float = Field(0.0, ge=0.0)
    max_new_tokens: int | None = Field(None, ge=1)
    goal: Literal["auto", "answer_wrong", "answer_changed"] = "auto"
    kind: Literal["number", "math", "word", "exact", "choice"] | None = None
    root: str | None = None

    @field_validator("sets", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, str) or value.strip() == "auto":
            return value.strip() if isinstance(value, str) else value
        # "reasoning-gym:gcd,lcm" is one set: its commas part tasks.
        return (value.strip(),) if ":" in value else tuple(part.strip() for part in value.split(",") if part.strip())


class Robustness(Study):
    """Does a right answer survive the change of one word?"""

    name: ClassVar[str] = "robustness"
    question: ClassVar[str] = "Does a right answer survive the change of one word?"
    room: ClassVar[str] = "robustness"
    needs: ClassVar[frozenset[str]] = frozenset({"generate"})
    Options: ClassVar[type[BaseModel]] = RobustnessOptions
    uses_judge: ClassVar[bool] = True

    def run(self, context: Context) -> Result:
        """Attack every set, and hold what breaks against what breaks without any change."""
        from intarsia.robustness.sources import default_sources

        options, target = _options(context), _target(context)
        sets, lost = _load(context, options)
        sources, notes = default_sources(target, surrogate=options.surrogate, mlm=options.mlm, infill=options.infill)
        if any(source.name == "embedding" for source in sources) and "weights" in target.capabilities:
            notes = [*notes, OWN_NEIGHBORS]
        found: list[Finding] = []
        seconds: dict[str, float] = {}
        encoder: LoadedEncoder | Literal[False] | None = None
        for one in sets:
            began = time.perf_counter()
            attack = _attack(context, options, target, sources, one)
            results = attack.run(one, journal=context.journal, progress=_progress(context, one.name))
            if results.successes and encoder is None:
                encoder = _encoder(notes)
            found.append(
                Finding(
                    name=one.name,
                    data=one,
                    results=results,
                    summary=results.summary(),
                    lengths=results.lengths(),
                    preservation=results.preservation(encoder=encoder) if results.successes else None,
                )
            )
            notes += [f"{one.name}: {note}" for note in results.notes]
            seconds[f"broken.{one.name}"] = round(time.perf_counter() - began, 3)
        claims = [
            claim
            for one in found
            for claim in verdicts.claims(
                one,
                context.budget,
                target.name,
                _harden(target.name, one),
                _ask_more(target.name, context.budget),
            )
        ]
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
            provenance=_provenance(context, options, target, found),
            run=Run(seconds=seconds),
        )

    def plan(self, context: Context) -> Plan:
        """Upper bounds: every answer right, no candidate a success."""
        options = _options(context)
        sets, lost = _load(context, options, offline=True)
        calls = prompt_tokens = new_tokens = 0
        steps = []
        most = options.max_queries or QUERIES[context.budget]
        for one in sets:
            room = 16
            if context.target is not None:
                attack = _attack(context, options, context.target, [], one)
                asking = attack.asking(one)
                room = asking.sampling.max_new_tokens
                tokens = sum(context.target.count_tokens([asking.prompt(item) for item in one.items]))
            else:
                tokens = sum(max(1, len(item.question) // 4) for item in one.items)
            # An endpoint that was not seen to keep a seed is not expected to repeat itself.
            repeats = context.target is None or "seed" in context.target.capabilities
            each = 2 + most + (most if options.control == "full" or options.temperature or not repeats else 3)
            calls += each * len(one.items)
            prompt_tokens += each * tokens
            new_tokens += each * len(one.items) * room
            steps.append(
                f"{one.name}: {len(one.items)} questions, each with at most {most} rewrites,"
                f" at most {room} new tokens an answer"
            )
        steps += [f"{name}: not without the network or not at all: {error.message}" for name, error in lost]
        return Plan(calls=calls, prompt_tokens=prompt_tokens, new_tokens=new_tokens, steps=tuple(steps))


def _options(context: Context) -> RobustnessOptions:
    if context.options is None:
        return RobustnessOptions()
    if not isinstance(context.options, RobustnessOptions):
        raise ConfigError("The robustness study was given another study's options.", "Pass RobustnessOptions.")
    return context.options


def _target(context: Context) -> Target:
    if context.target is None:
        raise ConfigError("The robustness study needs a model.", "Name one: intarsia audit MODEL.")
    return context.target


def _load(
    context: Context, options: RobustnessOptions, offline: bool | None = None
) -> tuple[list[DataSet], list[tuple[str, DataError]]]:
    limit = options.items or ITEMS[context.budget]
    found: list[DataSet] = []
    lost: list[tuple[str, DataError]] = []
    if context.data is not None:
        own = context.data.sample(limit, context.seed)
        items = own.items
        if options.kind is not None:
            said = {"kind": options.kind}
            items = tuple(item if item.answer is not None else item.model_copy(update=said) for item in items)
        found.append(own.model_copy(update={"name": "own", "items": items}))
    chosen = options.sets
    if chosen == "auto":
        chosen = tuple(
            name for name in SETS[context.budget] if name not in data.KNOWN or known_sets.at_hand(name, options.root)
        )
    for name in dict.fromkeys(chosen):
        try:
            one = data.load(name, limit=limit, seed=context.seed, root=options.root, offline=offline)
        except DataError as error:
            lost.append((name, error))
            continue
        found.append(one if one.name not in {known.name for known in found} else one.model_copy(update={"name": name}))
    return found, lost


def _attack(
    context: Context, options: RobustnessOptions, target: Target, sources: Sequence[Source], questions: DataSet
) -> MSCR:
    graded = any(item.answer is not None for item in questions.items)
    changed = options.goal == "answer_changed" or (options.goal == "auto" and not graded)
    most = options.max_queries or QUERIES[context.budget]
    return MSCR(
        target,
        sources,
        protect=options.protect,
        goal=AnswerChanged() if changed else AnswerWrong(),
        adjudicator=LLMJudge(context.judge) if context.judge is not None else None,
        order=options.order if options.order != "auto" else "random" if most < WHOLE else "left_to_right",
        budget=Budget(max_queries=most),
        system=context.system,
        template=context.template,
        chain_of_thought=options.chain_of_thought,
        max_new_tokens=options.max_new_tokens,
        control=options.control,
        temperature=options.temperature,
        seed=context.seed,
    )


def _progress(context: Context, name: str) -> Any:
    return lambda what, done, total: context.progress(f"{name}: {what}", done, total)


def _encoder(notes: list[str]) -> LoadedEncoder | Literal[False]:
    """The sentence encoder where it is at hand; an audit fetches nothing for a side figure."""
    from intarsia.core.catalog import load_encoder

    try:
        return load_encoder(ENCODER, offline=True)
    except IntarsiaError:
        notes.append(f"Sentence cosines are not measured without the encoder: `intarsia models fetch {ENCODER}`.")
        return False


def _harden(model: str, found: Finding) -> Remedy:
    # What the room's own proof shows: fine-tuning on such questions helped, changing their words added nothing to it.
    text = (
        f"Fine-tune on more questions like {found.name}, words changed or not, and audit both: on small models "
        "the fine-tuning helped and the changed words added nothing."
    )
    if model.startswith(("http://", "https://", "inspect:")):
        return Remedy(
            text="Train its weights, where you have them, on rewritten questions "
            f"(intarsia train {RECIPE} model=WEIGHTS), or choose another model; then audit both.",
            room="robustness",
            command=f"intarsia audit {shlex.quote(model)} OTHER_MODEL --studies robustness",
        )
    embedded = EMBEDDED.get(model)
    terms = " accept_license=true" if embedded is not None and embedded.terms else ""
    accepted = " --accept-license" if terms else ""
    # Only the set that was attacked is trained on; its questions themselves are left out by the recipe's own seed.
    source = found.data.origin if found.name == "own" else found.name
    generated = source.split(":")[0] in data.GENERATED
    train_on = source if generated or source in ("gsm8k",) else "train.jsonl"
    folder = "runs/harden-" + "".join(c if c.isalnum() else "-" for c in found.name).strip("-")
    return Remedy(
        text=text if train_on != "train.jsonl" else f"{text} (train.jsonl: questions of your own, none of those asked)",
        room="robustness",
        command=f"intarsia train {RECIPE} model={shlex.quote(model)}{terms} data.source={shlex.quote(train_on)} "
        f"--out {folder} && intarsia audit {shlex.quote(model)} {folder}/model{accepted} --studies robustness",
    )


def _ask_more(model: str, scale: str) -> Remedy:
    larger = LARGER.get(scale, "full")
    return Remedy(
        text="Ask more questions.",
        room="robustness",
        command=f"intarsia audit {shlex.quote(model)} --studies robustness --budget {larger}",
    )


def _lost(name: str, error: DataError, scale: str) -> Claim:
    return Claim(
        name=f"broken.{name}",
        question=f"Do right answers to {name} survive the change of one word?",
        state="skipped",
        reason=error.message,
        remedy=Remedy(text=error.hint or "Give the set as a file."),
        scale=scale,
    )


def _provenance(context: Context, options: RobustnessOptions, target: Target, found: Sequence[Finding]) -> Provenance:
    from importlib.metadata import version

    model = target.provenance()
    sets: dict[str, JsonValue] = {
        one.name: {
            "origin": one.data.origin,
            "licence": one.data.licence,
            "sha256": one.data.sha256,
            "items": len(one.data.items),
            "sources": one.results.settings["sources"],
            "max_new_tokens": one.results.settings["max_new_tokens"],
        }
        for one in found
    }
    return Provenance(
        versions={name: version(name) for name in ("intarsia", "lemminflect", "snowballstemmer", "rapidfuzz")},
        models={target.name: model},
        data=sets,
        seed=context.seed,
        device=str(model.get("device", "")),
        options={
            **options.model_dump(mode="json", exclude={"root"}),
            "system": context.system,
            "template": context.template,
        },
    )

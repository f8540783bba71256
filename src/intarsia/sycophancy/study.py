"""The audit study: does it flatter its user instead of answering?"""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from intarsia.core.catalog.embedded import EMBEDDED as EMBEDDED_MODELS
from intarsia.core.data import DataSet, Item
from intarsia.core.errors import ConfigError, DataError, IntarsiaError
from intarsia.core.sampling import Sampling
from intarsia.core.study import Claim, Context, Plan, Provenance, Remedy, Result, Run, Study
from intarsia.core.target import Target
from intarsia.sycophancy import verdicts
from intarsia.sycophancy.asking import WORDINGS, question, verdict_prompt
from intarsia.sycophancy.dimensions import DEFAULT_DIMENSIONS, MORAL, find_dimensions
from intarsia.sycophancy.items import SIDES, Conflict, Scenario, Shape, SycophancySet
from intarsia.sycophancy.judging import Judge
from intarsia.sycophancy.records import Nudge
from intarsia.sycophancy.results import SycophancyReport
from intarsia.sycophancy.settings import EMBEDDED, make_judge, read_sets, split_source
from intarsia.sycophancy.suite import Elephant
from intarsia.sycophancy.verdicts import Remedies

ITEMS = {"smoke": 2, "quick": 2, "standard": 30, "full": 500}
"""Scenarios of each set."""
PAIRS = {"smoke": 4, "quick": 6, "standard": 47, "full": 1000}
"""Conflicts of each set. Six are twelve stories, asked with and without a nudge: enough for a large effect of it. A
verdict table can pass from about forty on."""
NEW_TOKENS = {"smoke": 24, "quick": 32, "standard": 160, "full": 256}
VERDICT_TOKENS = {"smoke": 6, "quick": 6, "standard": 16, "full": 16}
NUDGES: dict[str, tuple[Nudge, ...]] = {
    "smoke": ("none", "right"),
    "quick": ("none", "right"),
    "standard": ("none", "right", "wrong"),
    "full": ("none", "right", "wrong"),
}
WORDED: dict[str, tuple[str, ...]] = {
    "smoke": ("default",),
    "quick": ("default",),
    "standard": ("default", "plain"),
    "full": tuple(WORDINGS),
}
LARGER = {"smoke": "quick", "quick": "standard", "standard": "full"}
ENCODER = "minilm-l6"
"""Of the embedded classifier."""
RECIPE = "recipes/sycophancy/dpo-smollm2.yaml"
SHORT = "Replies are cut off after {} tokens; a longer one may come to the point, or to comfort, later."
ANSWERED = (
    "Your data were not asked here: their questions have answers to check. Give questions without answers, or posts "
    "and conflicts of your own with --set sycophancy.sets=[at_fault=FILE,pairs=FILE]."
)


class SycophancyOptions(BaseModel):
    """Options of the sycophancy study.

    Attributes:
        sets: `auto` (the embedded ones, or your own data), or names, files and hub ids, each with its shape in front
            where the columns do not tell: `advice`, `at_fault`, `assumption` or `pairs`, as in `at_fault=posts.csv`.
        map: Our column -> the file's (`{prompt: post, human: top_comment}`), for all files.
        items: Most scenarios of each set; by budget when omitted.
        pairs: Most conflicts of each set; by budget when omitted.
        dims: Dimensions; all but the two optional ones (`action`, `endorsement`) when omitted.
        judge: Who labels replies where the audit has no judge of its own: `screening` (the embedded classifier),
            `rules`, `classifier:FILE`, `hf:FOLDER`, `logprob:MODEL` or the name of a model.
        rubric: Version of the rubric of a judge that is a model.
        votes: Judgments of each reply, of a judge that answers in words.
        calibration: File that `intarsia sycophancy calibrate` wrote for this judge; rates are then put right.
        nudges: What narrators add when asked for a verdict; by budget when omitted.
        wordings: Of the question for a verdict; by budget when omitted.
        fidelity: Ask only conflicts whose flip is known to keep the facts.
        both_sides: Ask conflicts for free replies, too; in budgets from `standard` on when omitted.
        max_new_tokens: Room for a reply; by budget when omitted.
        verdict_tokens: Room for a verdict; by budget when omitted. A model that thinks first needs hundreds.
        temperature: Of replies; 0 is greedy.
    """

    model_config = ConfigDict(extra="forbid")

    sets: tuple[str, ...] | Literal["auto"] = "auto"
    map: dict[str, str] = Field(default_factory=dict)
    items: int | None = Field(None, ge=1, le=100_000)
    pairs: int | None = Field(None, ge=1, le=100_000)
    dims: tuple[str, ...] = (*DEFAULT_DIMENSIONS, MORAL)
    judge: str = "screening"
    rubric: str = "v1"
    votes: int = Field(1, ge=1)
    calibration: str = ""
    nudges: tuple[Nudge, ...] | None = None
    wordings: tuple[str, ...] | None = None
    fidelity: bool = False
    both_sides: bool | None = None
    max_new_tokens: int | None = Field(None, ge=1)
    verdict_tokens: int | None = Field(None, ge=1)
    temperature: float = Field(0.0, ge=0.0, allow_inf_nan=False)

    @field_validator("sets", "dims", "nudges", "wordings", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, str) or value.strip() == "auto":
            return value.strip() if isinstance(value, str) else value
        return tuple(part.strip() for part in value.split(",") if part.strip())

    @field_validator("dims")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return find_dimensions(value)

    @field_validator("sets")
    @classmethod
    def _shaped(cls, value: Any) -> Any:
        for source in value if value != "auto" else ():
            split_source(source)
        return value


class Sycophancy(Study):
    """Does it flatter its user instead of answering?"""

    name: ClassVar[str] = "sycophancy"
    question: ClassVar[str] = "Does it flatter its user instead of answering?"
    room: ClassVar[str] = "sycophancy"
    needs: ClassVar[frozenset[str]] = frozenset({"generate"})
    Options: ClassVar[type[BaseModel]] = SycophancyOptions
    uses_judge: ClassVar[bool] = True

    def run(self, context: Context) -> Result:
        """Ask scenarios for advice and both sides of conflicts for verdicts; hold the latter against a nudge."""
        options, target = _options(context), _target(context)
        sets, lost, notes = _load(context, options)
        suite = _suite(context, options, sets)
        judge = None
        if suite.labeled:
            judge, note = _judge(context, options)
            notes += [note] if note else []
        began = time.perf_counter()
        report = suite.run(
            target, judge, _calibration(options, judge), journal=context.journal, progress=context.progress
        )
        remedies = _remedies(context, options, target.name, report)
        claims = verdicts.claims(report, context.budget, remedies)
        claims += [_lost(name, error, context.budget) for name, error in lost]
        cut = sum(one.finish == "length" for one in report.replies)
        if cut and 2 * cut > len(report.replies):
            notes.append(SHORT.format(suite.sampling.max_new_tokens))
        return Result(
            study=self.name,
            kind=self.kind,
            question=self.question,
            target=target.name,
            headline=verdicts.headline(report),
            claims=tuple(claims),
            tables=verdicts.tables(report),
            figures=verdicts.figures(report),
            examples=verdicts.examples(report, sets),
            # What a screening judge flags is no rate, so a report holds no two models against each other by it.
            measures=tuple(one for one in verdicts.measures(report) if not one.name.startswith("screening.")),
            notes=tuple(dict.fromkeys([*notes, *report.notes])),
            provenance=_provenance(context, options, target, report),
            run=Run(seconds={"asked and labeled": round(time.perf_counter() - began, 3)}),
        )

    def plan(self, context: Context) -> Plan:
        """Calls and tokens, from the real prompts; the network is not asked."""
        options = _options(context)
        sets, lost, _ = _load(context, options, offline=True)
        suite = _suite(context, options, sets)
        target = context.target
        moral = MORAL in suite.dims
        free = [question(item) for one in sets.values() for item in one.scenarios] if suite.labeled else []
        if suite.both_sides and suite.labeled:
            free += [question(item, side) for one in sets.values() for item in one.conflicts for side in SIDES]
        bare = [
            verdict_prompt(item, side, nudge, wording)
            for one in sets.values()
            for item in one.conflicts
            for side in SIDES
            for nudge in suite.nudges
            for wording in suite.wordings
            if moral
        ]
        posts = [item for one in sets.values() for item in one.scenarios if item.shape == "at_fault" and moral]
        bare += [verdict_prompt(item) for item in posts]
        scores = target is None or "score" in target.capabilities
        free_tokens, bare_tokens = (
            sum(target.count_tokens(texts)) if target is not None and texts else sum(len(text) // 4 for text in texts)
            for texts in (free, bare)
        )
        # A story is read once for both verdicts that are scored behind it.
        scored = 2 * len(bare) if scores and moral else 0
        steps = [f"{name}: {len(one)} items" for name, one in sets.items()]
        steps.append(
            f"{len(free)} replies of at most {suite.sampling.max_new_tokens} tokens, {len(bare)} verdicts"
            + (f", {scored} scored" if scored else "")
        )
        if suite.labeled:
            by = context.judge.name if context.judge is not None else options.judge
            steps.append(f"labels in {', '.join(suite.labeled)} by {by}")
        steps += [f"{name}: not without the network or not at all: {error.message}" for name, error in lost]
        return Plan(
            calls=len(free) + len(bare) + scored,
            prompt_tokens=free_tokens + bare_tokens * (2 if scored else 1),
            new_tokens=len(free) * suite.sampling.max_new_tokens + len(bare) * suite.verdict_sampling.max_new_tokens,
            steps=tuple(steps),
        )


def _options(context: Context) -> SycophancyOptions:
    if context.options is None:
        return SycophancyOptions()
    if not isinstance(context.options, SycophancyOptions):
        raise ConfigError("The sycophancy study was given another study's options.", "Pass SycophancyOptions.")
    return context.options


def _target(context: Context) -> Target:
    if context.target is None:
        raise ConfigError("The sycophancy study needs a model.", "Name one: intarsia audit MODEL.")
    return context.target


def _suite(context: Context, options: SycophancyOptions, sets: Mapping[str, SycophancySet]) -> Elephant:
    most = options.max_new_tokens or NEW_TOKENS[context.budget]
    both = options.both_sides if options.both_sides is not None else context.budget in ("standard", "full")
    return Elephant(
        sets,
        options.dims,
        Sampling(max_new_tokens=most, temperature=options.temperature, seed=context.seed),
        options.nudges if options.nudges is not None else NUDGES[context.budget],
        wordings=options.wordings if options.wordings is not None else WORDED[context.budget],
        verdict_tokens=options.verdict_tokens or VERDICT_TOKENS[context.budget],
        both_sides=both,
        system=context.system,
        seed=context.seed,
    )


def _load(
    context: Context, options: SycophancyOptions, offline: bool | None = None
) -> tuple[dict[str, SycophancySet], list[tuple[str, DataError]], list[str]]:
    """Sets by name, those that cannot be had, and notes."""
    items = options.items or ITEMS[context.budget]
    pairs = options.pairs or PAIRS[context.budget]
    found: dict[str, SycophancySet] = {}
    lost: list[tuple[str, DataError]] = []
    notes: list[str] = []
    if context.data is not None:
        found = own_sets(context.data, items, pairs, context.seed)
        if not found:
            notes.append(ANSWERED)
    chosen = EMBEDDED if options.sets == "auto" else options.sets
    if options.sets == "auto" and any(one.conflicts for one in found.values()):
        chosen = ()
    elif options.sets == "auto" and found:
        # Questions of one's own have one side only; what is decided without a judge needs two.
        chosen = ("pairs",)
    for source in dict.fromkeys(chosen):
        try:
            more = read_sets(
                (source,),
                columns=options.map,
                items=items,
                pairs=pairs,
                fidelity=options.fidelity,
                seed=context.seed,
                offline=offline,
            )
        except DataError as error:
            lost.append((split_source(source)[1], error))
            continue
        for name, one in more.items():
            key, number = name, 2
            while key in found:
                key, number = f"{name}-{number}", number + 1
            found[key] = replace(one, name=key)
    if not found:
        if lost:
            raise lost[0][1]
        raise ConfigError("The sycophancy study has nothing to ask.", "Name sets: --set sycophancy.sets=[pairs].")
    return found, lost, notes


def own_sets(data: DataSet, items: int | None, pairs: int | None, seed: int = 0) -> dict[str, SycophancySet]:
    """The user's own data as sets: what has no answer to check, in whichever of the four shapes its columns tell.

    A column `flipped` or `flipped_story` makes a row a conflict, `self_attitude` a statement laden with an assumption,
    `top_comment` a post by somebody at fault; all others are questions for advice, with the human's reply in `human`.

    Args:
        data: As loaded by `intarsia.core.data.load`.
        items: Most scenarios of each shape.
        pairs: Most conflicts.
        seed: Of the draw.
    """
    from intarsia.sycophancy.loaders import content_hash, take

    scenarios: dict[Shape, list[Scenario]] = {}
    conflicts: list[Conflict] = []
    for item in data.items:
        if item.answer is not None and item.kind != "free":
            continue
        flipped = _meta(item, "flipped", "flipped_story")
        source, slices = _meta(item, "source"), dict(item.slices)
        if flipped:
            fidelity = item.meta.get("fidelity")
            conflicts.append(
                Conflict(
                    id=item.id,
                    original=item.question,
                    flipped=flipped,
                    source=source,
                    fidelity=fidelity if isinstance(fidelity, bool) else None,
                    slices=slices,
                )
            )
            continue
        attitude, comment = _meta(item, "self_attitude", "attitude"), _meta(item, "top_comment")
        shape: Shape = "assumption" if attitude else "at_fault" if comment else "advice"
        human = comment or _meta(item, "human", "human_reply") or (item.answer or "")
        scenarios.setdefault(shape, []).append(
            Scenario(
                id=item.id,
                prompt=item.question,
                shape=shape,
                human="" if shape == "assumption" else human,
                source=source,
                attitude=attitude if attitude in ("negative", "neutral", "positive") else "",
                slices=slices,
            )
        )
    names: dict[Shape, str] = {"advice": "own", "at_fault": "own-at-fault", "assumption": "own-assumptions"}
    origin = {"from": data.origin, "licence": data.licence}
    found: dict[str, SycophancySet] = {}
    for shape, members in scenarios.items():
        one = SycophancySet(names[shape], tuple(members), (), {**origin, "sha256": content_hash(members)})
        found[names[shape]] = take(one, items, seed)
    if conflicts:
        one = SycophancySet("own-pairs", (), tuple(conflicts), {**origin, "sha256": content_hash(conflicts)})
        found["own-pairs"] = take(one, pairs, seed)
    return found


def _meta(item: Item, *names: str) -> str:
    return next((value.strip() for name in names if isinstance(value := item.meta.get(name), str)), "")


def _judge(context: Context, options: SycophancyOptions) -> tuple[Judge, str]:
    """Who labels, and what to know of that choice."""
    if context.judge is not None:
        from intarsia.sycophancy.llm_judge import LLMJudge
        from intarsia.sycophancy.settings import VOTING_TEMPERATURE

        temperature = VOTING_TEMPERATURE if options.votes > 1 else 0.0
        return LLMJudge(context.judge, options.rubric, options.votes, temperature, seed=context.seed), ""
    if options.judge == "screening":
        from intarsia.core.catalog import resolve

        try:
            # An audit fetches nothing for what decides nothing.
            resolve(ENCODER, offline=True)
        except IntarsiaError:
            from intarsia.sycophancy.rule_judge import RuleJudge

            fetch = f"`intarsia models fetch {ENCODER}`"
            return RuleJudge(), f"Replies were screened by rules, as the classifier's encoder is not here: {fetch}."
    return make_judge(options.judge, rubric=options.rubric, votes=options.votes, seed=context.seed), ""


def _calibration(options: SycophancyOptions, judge: Judge | None) -> Any:
    if not options.calibration or judge is None:
        return None
    from intarsia.sycophancy.calibration import Calibration

    found = Calibration.load(options.calibration)
    if not found.fits(judge):
        raise ConfigError(
            f"The calibration {options.calibration} is of {found.judge}, not of {judge.name}.",
            "Calibrate the judge that labels: intarsia sycophancy calibrate RUN.",
        )
    return found


def _remedies(context: Context, options: SycophancyOptions, model: str, report: SycophancyReport) -> Remedies:
    typed = shlex.quote(model)
    embedded = EMBEDDED_MODELS.get(model)
    accepted = " --accept-license" if embedded is not None and embedded.terms else ""
    larger = LARGER.get(context.budget, "full")
    remote = model.startswith(("http://", "https://", "inspect:"))
    asked = f"intarsia sycophancy run {typed}{accepted} --dims moral --nudges none,right"
    # An instruction costs nothing to try; whether it only makes the model harsh, the comparison says.
    moral = Remedy(
        text="Ask it to judge the acts and not to side with whoever asks, and compare: a mended model tells the sides "
        "apart, a merely harsh one blames both.",
        room="sycophancy",
        command=f"{asked} --out runs/plain && {asked} --mitigation less-moral --out runs/less-moral && "
        "intarsia sycophancy compare runs/plain runs/less-moral",
    )
    # Pairs come of two samples of the model's own replies; conflicts are not trained on.
    sample = (
        f"intarsia sycophancy run {typed}{accepted} --data advice=FILE --dims {','.join(DEFAULT_DIMENSIONS)} --judge"
    )
    terms = " accept_license=true" if accepted else ""
    train = Remedy(
        text="Train on pairs of its own replies to other questions than these (FILE, with people's replies), and audit "
        "both.",
        room="sycophancy",
        command=f"{sample} JUDGE_MODEL --temperature 1 --seed 1 --out runs/replies-1 && {sample} JUDGE_MODEL "
        "--temperature 1 --seed 2 --out runs/replies-2 && intarsia sycophancy pairs runs/replies-1 runs/replies-2 "
        f"pairs && intarsia train {RECIPE} model={typed}{terms} --out runs/dpo && intarsia audit {typed} "
        f"{typed}+runs/dpo/model{accepted} --studies sycophancy",
    )
    return Remedies(
        moral=moral,
        nudge=moral,
        replies=moral if remote else train,
        larger=Remedy(
            text="Ask more.",
            room="sycophancy",
            command=f"intarsia audit {typed}{accepted} --studies sycophancy --budget {larger}",
        ),
        clearer=Remedy(
            text="Give verdicts more room, or ask for them in other words; a base or a very small model may not be "
            "able to give any.",
            room="sycophancy",
            command=f"intarsia audit {typed}{accepted} --studies sycophancy --set sycophancy.wordings=[plain] "
            "--set sycophancy.verdict_tokens=64",
        ),
        judge=Remedy(
            text="Have a stronger model of another family judge, or label 100 of the replies yourself.",
            room="sycophancy",
            command=f"intarsia audit {typed}{accepted} --studies sycophancy --judge JUDGE_MODEL",
        ),
        humans=Remedy(
            text="Give questions with people's replies to them.",
            room="sycophancy",
            command=f"intarsia audit {typed}{accepted} --studies sycophancy --set sycophancy.sets=[advice=FILE]",
        ),
    )


def _lost(name: str, error: DataError, scale: str) -> Claim:
    return Claim(
        name=f"moral.{name}",
        question=f"Does it flatter on {name}?",
        state="skipped",
        reason=error.message,
        remedy=Remedy(text=error.hint or "Give the set as a file."),
        scale=scale,
    )


def _provenance(context: Context, options: SycophancyOptions, target: Target, report: SycophancyReport) -> Provenance:
    from importlib.metadata import version

    model = target.provenance()
    models: dict[str, JsonValue] = {target.name: model}
    if context.judge is not None:
        models[context.judge.name] = context.judge.provenance()
    sets: dict[str, JsonValue] = {
        name: {**one, "max_new_tokens": report.settings["sampling"]["max_new_tokens"]}
        for name, one in report.settings["sets"].items()
    }
    return Provenance(
        versions={name: version(name) for name in ("intarsia", "scikit-learn")},
        models=models,
        data=sets,
        seed=context.seed,
        device=str(model.get("device", "")),
        options={
            **options.model_dump(mode="json"),
            "judge": report.judge,
            "rubric_version": report.settings["rubric_version"],
            "nudges": report.settings["nudges"],
            "wordings": report.settings["wordings"],
            "system": context.system,
        },
    )

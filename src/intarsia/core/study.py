"""Study -> Result: one shape for audits, reproductions and benchmarks.

An audit study asks a question about the user's model, a reproduction tests a paper's claim on CPU-sized work, a
benchmark holds us against a peer. All three give a `Result`; `core.report` draws every one of them.

What a result says (its body) is kept apart from how the run went (`run`: command, times), so that a run that was
killed and resumed gives the same body, byte for byte.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, computed_field, field_validator, model_validator

if TYPE_CHECKING:
    import pandas as pd

    from intarsia.core.data import DataSet
    from intarsia.core.journal import Journal
    from intarsia.core.target import Target

SCHEMA_VERSION = 1

State: TypeAlias = Literal["pass", "fail", "inconclusive", "not measurable", "skipped"]
Kind: TypeAlias = Literal["audit", "reproduction", "benchmark"]
Unit: TypeAlias = Literal["share", "points", "ratio", "tokens", "nats", "seconds", "count", ""]
"""`share` is in [0, 1] and shown as per cent; `points` is a difference of shares, shown in percentage points."""
BudgetName: TypeAlias = Literal["smoke", "quick", "standard", "full"]


class _Shape(BaseModel):
    """Strict, finite-only base of everything that is published in a report's JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Interval(_Shape):
    """A confidence interval; `method` names how it was made (`wilson`, `bootstrap`, `clopper-pearson` ...)."""

    low: float
    high: float
    level: float = 0.95
    method: str = ""


class Control(_Shape):
    """What the value is held against: a baseline, a floor, a control group, another model."""

    name: str
    value: float | None
    interval: Interval | None = None


class Threshold(_Shape):
    """The line that decides between pass and fail, fixed before the run.

    Attributes:
        value: The line, in the claim's unit.
        direction: `>=` when more is better, `<=` when less is better.
        origin: Where the line comes from (a paper's section, a user's option, a house rule).
    """

    value: float
    direction: Literal[">=", "<="]
    origin: str

    def met(self, value: float) -> bool:
        """Whether `value` is on the good side (the line itself is good)."""
        return value >= self.value if self.direction == ">=" else value <= self.value


class WorstSlice(_Shape):
    """The part of the items on which the value is worst."""

    name: str
    value: float
    n: int


class Remedy(_Shape):
    """What to do about a finding.

    Attributes:
        text: One line, in the imperative.
        room: The room that helps, where there is one.
        command: A command that mends it, or that measures again after mending.
    """

    text: str
    room: str = ""
    command: str = ""


class Claim(_Shape):
    """One row of the verdict table.

    Attributes:
        name: Stable dotted name, unique in its result (`accuracy.gsm8k`); `--fail-on` and comparisons go by it.
        question: The question in plain words.
        state: `pass`, `fail`, `inconclusive` (the interval holds the threshold), `not measurable` (the question does
            not apply to this model or setting), `skipped` (a need was not met).
        value: The effect, in `unit`.
        unit: How to read and print it.
        interval: Of the value.
        control: What it is held against.
        threshold: The line, its direction and origin.
        n: Items that the value rests on.
        unparsed: Items whose answer could not be read.
        truncated: Items cut off by the token limit.
        detectable: The smallest difference that n items can show (80 % power, two-sided 5 %), in the claim's unit.
        worst: The worst slice.
        reason: Why the state is what it is, in one line.
        remedy: What to do about it.
        judged: Whether a model judged the answers (such claims are noisier).
        scale: At what scale it was measured (`cpu`, `full`, `gpu`, or an audit's budget).
        tokens: Tokens spent, prompt and new.
        details: Further figures that belong to the row.
    """

    name: str
    question: str
    state: State
    value: float | None = None
    unit: Unit = "share"
    interval: Interval | None = None
    control: Control | None = None
    threshold: Threshold | None = None
    n: int = 0
    unparsed: int = 0
    truncated: int = 0
    detectable: float | None = None
    worst: WorstSlice | None = None
    reason: str = ""
    remedy: Remedy | None = None
    judged: bool = False
    scale: str = ""
    tokens: int = 0
    details: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("value", "detectable")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        if value is not None and not math.isfinite(value):
            raise ValueError("a claim's figure must be finite; use None with a reason")
        return value

    @model_validator(mode="before")
    @classmethod
    def _drop_computed(cls, data: object) -> object:
        # `holds` is written for readers of the JSON; it follows from the state, so it is not read back.
        return {k: v for k, v in data.items() if k != "holds"} if isinstance(data, Mapping) else data

    @computed_field  # type: ignore[prop-decorator]
    @property
    def holds(self) -> bool | None:
        """True for pass, False for fail, None where the question stays open."""
        return {"pass": True, "fail": False}.get(self.state)


def judge(value: float, interval: Interval | None, threshold: Threshold) -> State:
    """The state of a figure against its line: decided only when the whole interval lies on one side."""
    if interval is None:
        return "pass" if threshold.met(value) else "fail"
    low, high = threshold.met(interval.low), threshold.met(interval.high)
    if low and high:
        return "pass"
    return "inconclusive" if low or high else "fail"


class Table(_Shape):
    """A table below the claims: column names and rows of numbers or text."""

    title: str = ""
    columns: tuple[str, ...]
    rows: tuple[tuple[JsonValue, ...], ...]


class Series(_Shape):
    """One line, set of bars or cloud of a figure; `low` and `high` are interval ends, same length as `y`."""

    name: str
    x: tuple[float | str, ...] = ()
    y: tuple[float | None, ...] = ()
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


class Figure(_Shape):
    """A plot as data; `core.report` draws it.

    Attributes:
        kind: `bars` (x names), `lines`, `scatter`, `histogram` (y are raw values), `forest` (x names, intervals),
            `heatmap` (each series is a row).
        caption: What a reader should see in it.
        alt: The same for who cannot see it.
        reference: A horizontal line (vertical in a forest) with its label, such as chance level.
    """

    title: str
    kind: Literal["bars", "lines", "scatter", "histogram", "forest", "heatmap"]
    series: tuple[Series, ...]
    x_label: str = ""
    y_label: str = ""
    y_unit: Unit = ""
    caption: str = ""
    alt: str = ""
    reference: tuple[float, str] | None = None
    log_x: bool = False
    log_y: bool = False


class Passage(_Shape):
    """A labelled text of an example; `marks` are (start, end) character spans to highlight."""

    label: str
    text: str
    marks: tuple[tuple[int, int], ...] = ()


class Example(_Shape):
    """A real item with what the model said."""

    id: str
    title: str
    outcome: Literal["good", "bad", "neutral"] = "neutral"
    passages: tuple[Passage, ...] = ()


class Observation(_Shape):
    """One item's value in a measure; `slices` name the parts it belongs to (`{"task": "chain_sum"}`)."""

    id: str
    value: float
    slices: dict[str, str] = Field(default_factory=dict)


class Measure(_Shape):
    """A figure kept item by item, so that two audits can be compared on the same items, paired by id.

    Attributes:
        name: The claim it belongs to, or a name of its own.
        unit: Of each value.
        better: Whether more or less of it is better, or neither.
        binary: Whether values are 0 or 1 (McNemar) or real (paired bootstrap).
        items_hash: Hash of the items (questions and answers); equal names with unequal hashes are not comparable.
    """

    name: str
    unit: Unit
    better: Literal["more", "less", "neither"]
    binary: bool
    observations: tuple[Observation, ...]
    items_hash: str = ""

    @model_validator(mode="after")
    def _pairable(self) -> Measure:
        if self.binary and any(observation.value not in (0.0, 1.0) for observation in self.observations):
            raise ValueError(f"{self.name} is binary, but a value is neither 0 nor 1")
        if len({observation.id for observation in self.observations}) < len(self.observations):
            raise ValueError(f"{self.name} has two values for the same item")
        return self


class Provenance(_Shape):
    """What was measured with what. Deterministic: two runs of the same thing have the same provenance."""

    versions: dict[str, str] = Field(default_factory=dict)
    models: dict[str, JsonValue] = Field(default_factory=dict)
    data: dict[str, JsonValue] = Field(default_factory=dict)
    seed: int = 0
    device: str = ""
    options: dict[str, JsonValue] = Field(default_factory=dict)


class Run(_Shape):
    """How the run went; differs from run to run and stands outside the body."""

    command: str = ""
    started: str = ""
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    seconds: dict[str, float] = Field(default_factory=dict)
    resumed: int = 0


class Result(_Shape):
    """What a study found about one target (or, in a reproduction, about a method).

    Attributes:
        study: The study's name.
        kind: Audit, reproduction or benchmark.
        question: The study's question.
        target: The name of the model, empty in a reproduction.
        headline: The answer in one line.
        claims: Rows of the verdict table.
        tables: Further tables.
        figures: Plots as data.
        examples: Real items.
        measures: Item-level values for paired comparisons.
        notes: Caveats that a reader must know.
        provenance: What was measured with what.
        run: How the run went.
    """

    schema_version: int = SCHEMA_VERSION
    study: str
    kind: Kind
    question: str
    target: str = ""
    headline: str = ""
    claims: tuple[Claim, ...] = ()
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    examples: tuple[Example, ...] = ()
    measures: tuple[Measure, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: Provenance = Field(default_factory=Provenance)
    run: Run = Field(default_factory=Run)

    def body(self) -> bytes:
        """The result without `run`, as canonical JSON: equal for equal findings."""
        return canonical_json(self.model_dump(mode="json", exclude={"run"}))

    def claim(self, name: str) -> Claim:
        """The claim of that name.

        Raises:
            KeyError: There is none.
        """
        for claim in self.claims:
            if claim.name == name:
                return claim
        raise KeyError(name)


class Contrast(_Shape):
    """A paired comparison of one measure between two targets on the same items.

    Attributes:
        measure: The measure's name.
        study: The study it comes from.
        a: Name of the target that the other is held against: the baseline, the first one when none is named.
        b: Name of the second.
        value_a: Mean over the shared items.
        value_b: Mean over the shared items.
        difference: Mean of b - a over the shared items.
        interval: Of the difference (paired).
        p_value: Exact McNemar for binary measures, sign-flip permutation otherwise.
        p_holm: Holm-adjusted over all contrasts of the report.
        test: Which test.
        n: Shared items.
        only_a: Binary: items good in a only.
        only_b: Binary: items good in b only.
        detectable: Smallest difference that n pairs can show (80 % power).
        items_for_half: Pairs needed to show half of `detectable`.
        state: `better`, `worse` (b against a, after Holm), `no difference shown`, `not comparable`.
        slices: The same for parts of the items: (name, difference, low, high, n).
    """

    measure: str
    study: str
    a: str
    b: str
    unit: Unit
    better: Literal["more", "less", "neither"]
    value_a: float | None = None
    value_b: float | None = None
    difference: float | None = None
    interval: Interval | None = None
    p_value: float | None = None
    p_holm: float | None = None
    test: str = ""
    n: int = 0
    only_a: int = 0
    only_b: int = 0
    detectable: float | None = None
    items_for_half: int | None = None
    state: Literal["better", "worse", "no difference shown", "not comparable"] = "no difference shown"
    reason: str = ""
    slices: tuple[tuple[str, float, float, float, int], ...] = ()


class Report(_Shape):
    """Several results together: an audit, or one reproduction.

    Attributes:
        title: What it is about.
        targets: Names of the models, in the order the user gave.
        results: One a (target, study).
        contrasts: Paired comparisons, when there are two targets.
        config: The settings that a resumed run must share.
        run: How the run went; outside the body.
    """

    schema_version: int = SCHEMA_VERSION
    title: str
    targets: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    config: dict[str, JsonValue] = Field(default_factory=dict)
    run: Run = Field(default_factory=Run)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """All claims of all results, in order."""
        return tuple(claim for result in self.results for claim in result.claims)

    def body(self) -> bytes:
        """The report without any `run`, as canonical JSON."""
        data = self.model_dump(mode="json", exclude={"run"})
        for result in data["results"]:
            result.pop("run")
        return canonical_json(data)

    def to_frame(self) -> pd.DataFrame:
        """One row a claim, as a data frame."""
        from intarsia.core.report import to_frame

        return to_frame(self)

    def save(self, folder: str | Path) -> Path:
        """Write report.json, report.html, report.md and junit.xml into a folder; returns the HTML file's path."""
        from intarsia.core.report import save

        return save(self, folder)

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """Read a report.json (or the folder that holds one).

        Raises:
            DataError: It is missing, damaged, or of another version.
        """
        from intarsia.core.report import load

        return load(path)


class Plan(_Shape):
    """What a study would do: shown by `--dry-run`.

    Attributes:
        calls: Prompts to be answered or scored.
        prompt_tokens: Estimate.
        new_tokens: Upper bound.
        steps: One line a part.
    """

    calls: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    steps: tuple[str, ...] = ()


@dataclass
class Context:
    """What a study is given.

    Attributes:
        target: The model under study; None for a reproduction.
        options: The study's own options, an instance of its `Options`.
        budget: How much work is wanted.
        seed: Master seed.
        journal: Where finished batches are kept; None keeps nothing.
        data: The user's own items, where given.
        judge: A target that judges answers, where given.
        system: System prompt of the user's application, empty for none.
        template: Question template with `{question}`, empty for the study's own.
        scale: `cpu`, `full` or `gpu`, for reproductions.
        seeds: Number of seeds, for reproductions.
        progress: Called with (what, done, total).
    """

    target: Target | None = None
    options: BaseModel | None = None
    budget: BudgetName = "quick"
    seed: int = 0
    journal: Journal | None = None
    data: DataSet | None = None
    judge: Target | None = None
    system: str = ""
    template: str = ""
    scale: Literal["cpu", "full", "gpu"] = "cpu"
    seeds: int | None = None
    progress: Callable[[str, int, int], None] = field(default=lambda what, done, total: None)

    def report_progress(self, what: str) -> Callable[[int, int], None]:
        """A (done, total) callback for one stage."""
        return lambda done, total: self.progress(what, done, total)


class NoOptions(BaseModel):
    """Options of a study that has none."""

    model_config = ConfigDict(extra="forbid")


class Study(ABC):
    """A question, what it needs, and how to answer it.

    Subclasses set the class attributes and implement `run`; `plan` should be implemented by every audit study.

    Attributes:
        name: Name on the command line.
        question: In plain words.
        kind: Audit, reproduction or benchmark.
        room: The room it belongs to, empty for the hall's own.
        needs: Capabilities a target must have.
        Options: Pydantic model of its options; `--set study.option=value` goes through it.
        uses_judge: Whether `context.judge` judges answers, where one is given.
        scales: Scales at which a reproduction has something to run; one that has all in `cpu` leaves the others out.
    """

    name: ClassVar[str]
    question: ClassVar[str]
    kind: ClassVar[Kind] = "audit"
    room: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    Options: ClassVar[type[BaseModel]] = NoOptions
    uses_judge: ClassVar[bool] = False
    scales: ClassVar[tuple[str, ...]] = ("cpu", "full", "gpu")

    @abstractmethod
    def run(self, context: Context) -> Result:
        """Answer the question.

        Args:
            context: Target, options, budget, seed, journal and the rest.

        Returns:
            The result; its body depends on the context's target, options, budget, seed and data only.
        """

    def plan(self, context: Context) -> Plan:
        """What `run` would do, without doing it."""
        return Plan()

    def missing(self, target: Target) -> str:
        """Why this study cannot run on this target; empty when it can."""
        lacking = sorted(self.needs - target.capabilities)
        return f"{target.name} cannot {' or '.join(lacking)}" if lacking else ""


def canonical_json(data: object) -> bytes:
    """Sorted, compact, UTF-8 JSON without NaN: the form that hashes and comparisons go by."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # UTF-8 has no lone surrogates; their backslash form is exactly JSON's own escape.
    return text.encode("utf-8", "backslashreplace")


def skipped(study: Study, target: str, reason: str, remedy: Remedy | None = None, scale: str = "") -> Result:
    """The result of a study that could not run: one skipped claim with the reason."""
    claim = Claim(name=study.name, question=study.question, state="skipped", reason=reason, remedy=remedy, scale=scale)
    return Result(
        study=study.name,
        kind=study.kind,
        question=study.question,
        target=target,
        headline=f"Skipped: {reason}.",
        claims=(claim,),
    )


def slice_means(observations: Sequence[Observation], min_items: int = 5) -> Mapping[tuple[str, str], tuple[float, int]]:
    """Mean and count of each slice with at least `min_items` items, keyed by (slice, value)."""
    groups: dict[tuple[str, str], list[float]] = {}
    for observation in observations:
        for key, value in observation.slices.items():
            groups.setdefault((key, value), []).append(observation.value)
    return {key: (sum(v) / len(v), len(v)) for key, v in groups.items() if len(v) >= min_items}


__all__ = [
    "Claim",
    "Context",
    "Contrast",
    "Control",
    "Example",
    "Figure",
    "Interval",
    "Measure",
    "Observation",
    "Passage",
    "Plan",
    "Provenance",
    "Remedy",
    "Report",
    "Result",
    "Run",
    "Series",
    "Study",
    "Table",
    "Threshold",
    "WorstSlice",
    "canonical_json",
    "judge",
    "skipped",
    "slice_means",
]

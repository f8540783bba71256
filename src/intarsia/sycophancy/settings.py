"""The settings of a run: one strict shape that a command line, a YAML file and an inspect_ai task all fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.sampling import Sampling
from intarsia.core.target import Target
from intarsia.sycophancy.asking import WORDINGS
from intarsia.sycophancy.dimensions import DEFAULT_DIMENSIONS, MORAL, find_dimensions
from intarsia.sycophancy.items import Shape, SycophancySet
from intarsia.sycophancy.judging import Judge
from intarsia.sycophancy.mitigation import Mitigation
from intarsia.sycophancy.records import Nudge

if TYPE_CHECKING:
    from intarsia.sycophancy.suite import Elephant

EMBEDDED = ("oeq", "yta", "assumptions", "pairs")
"""Names of the embedded sets."""
PAIRS = "pairs"
SHAPES: tuple[str, ...] = (*get_args(Shape), PAIRS)
NUDGES: tuple[Nudge, ...] = get_args(Nudge)
NEW_TOKENS = 256
OWN_JUDGES = ("screening", "rules")
JUDGE_KINDS = ("classifier", "hf", "logprob")
"""Judges that take something behind a colon; any other text is the name of a model that judges in words."""
VOTING_TEMPERATURE = 0.7


class RunSettings(BaseModel):
    """What a run is asked to do.

    Attributes:
        model: Who is asked, as in `Target.parse`; an inspect_ai task has its model elsewhere.
        data: What is asked: names of embedded sets (`oeq`, `yta`, `assumptions`, `pairs`), files or hub ids, each with
            its shape in front where the columns do not tell (`at_fault=posts.csv`); all embedded sets when empty.
        map: Our column -> the file's (`prompt=post,human=top_comment`), for all files.
        items: Most items of each set, drawn by the seed; 0 for all.
        dims: Dimensions; `moral` needs conflicts.
        judge: Who labels replies: `screening` (the embedded classifier), `rules`, `classifier:FILE`, `hf:FOLDER`,
            `logprob:MODEL`, or a model that judges in words.
        rubric: Version of the judge's rubric.
        votes: Judgments of each reply, of a model that judges in words.
        calibration: File with a judge's calibration; rates are then put right.
        nudges: What narrators add: `none`, `right`, `wrong`.
        wordings: Of the question for a verdict; the first is the main one.
        fidelity: Ask only conflicts whose flip is known to keep the facts.
        both_sides: Ask conflicts for free replies, too.
        mitigation: How to ask, steer or rewrite: an instruction (`less-moral`, `direct`, `honest` ...), a chain
            (`social-gaze`, `chain-of-thought`, `are-you-sure`), `third-person`, `steer:FILE`, `iti:FILE`.
        rewriter: A model that rewrites for `third-person`; the model itself when empty.
        temperature: Of replies; 0 is greedy, the default but in the paper's preset.
        top_p: Of replies.
        max_new_tokens: Room for a reply.
        verdict_tokens: Room for a verdict; a model that thinks first needs hundreds.
        margins: Whether verdicts are scored as well; where the model can when omitted, never in the paper's preset.
        length_ablation: Whether the human comparison is repeated at equal length; not in the paper's preset if omitted.
        assumption_baseline: What stands for humans on assumptions: 0.5, or 0 as the strict variant.
        preset: `default` or `paper`.
        system: System prompt of your application.
        dtype: Of a local model.
        device: Of a local model.
        seed: Master seed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = ""
    data: tuple[str, ...] = ()
    map: dict[str, str] = Field(default_factory=dict)
    items: int = Field(0, ge=0)
    dims: tuple[str, ...] = (*DEFAULT_DIMENSIONS, MORAL)
    judge: str = "screening"
    rubric: str = "v1"
    votes: int = Field(1, ge=1)
    calibration: str = ""
    nudges: tuple[Nudge, ...] = ("none",)
    wordings: tuple[str, ...] = ("default",)
    fidelity: bool = False
    both_sides: bool = True
    mitigation: str = ""
    rewriter: str = ""
    temperature: float | None = Field(None, ge=0.0, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0.0, le=1.0)
    max_new_tokens: int = Field(NEW_TOKENS, ge=1)
    verdict_tokens: int | None = Field(None, ge=1)
    margins: bool | None = None
    length_ablation: bool | None = None
    assumption_baseline: float = 0.5
    preset: Literal["default", "paper"] = "default"
    system: str = ""
    dtype: str = "auto"
    device: str = "auto"
    seed: int = Field(0, ge=0)

    @field_validator("data", "dims", "nudges", "wordings", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())

    @field_validator("map", mode="before")
    @classmethod
    def _mapping(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        return parse_columns(value) if isinstance(value, str) else value

    @field_validator("system", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        # The command line of inspect_ai splits texts at their commas.
        return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value

    @model_validator(mode="after")
    def _consistent(self) -> RunSettings:
        for name in ("model", "judge"):
            spec = getattr(self, name)
            if "://" in spec and "@" in spec.split("://", 1)[1].split("/", 1)[0]:
                raise ValueError(f"the {name}'s address holds a login; put the key into OPENAI_API_KEY instead")
        find_dimensions(self.dims)
        for wording in self.wordings:
            if wording not in WORDINGS:
                raise ConfigError(f"There is no wording {wording!r}.", _nearest(wording, WORDINGS))
        if not self.nudges:
            raise ValueError("no nudge is named; none is one of them")
        check_judge(self.judge)
        if self.votes > 1 and not judges_in_words(self.judge):
            raise ValueError("only a model that judges in words has several votes")
        for source in self.data:
            split_source(source)
        if self.mitigation:
            check_mitigation(self.mitigation)
        if self.rewriter and self.mitigation != THIRD_PERSON:
            raise ValueError("only the mitigation third-person has a rewriter")
        return self


def make_settings(values: Mapping[str, Any], lines: Mapping[str, str] | None = None) -> RunSettings:
    """Checked settings.

    Args:
        values: By name.
        lines: Where a setting was written (`run.yaml, line 3`), for messages.

    Raises:
        ConfigError: A name is unknown (the nearest one is named) or a value is wrong.
    """
    try:
        return RunSettings.model_validate(dict(values))
    except ValidationError as error:
        problems = error.errors(include_url=False)
    # An unknown name first: it is often a required one with a typing mistake.
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    name = str(first["loc"][0]) if first["loc"] else ""
    place = f" ({lines[name]})" if lines and name in lines else ""
    if first["type"] == "extra_forbidden":
        raise ConfigError(f"A run has no setting {name!r}{place}.", _nearest(name, RunSettings.model_fields))
    said = first["msg"].removeprefix("Value error, ")
    given = first["input"]
    if first["type"] == "literal_error":
        known = {"nudges": NUDGES, "preset": ("default", "paper")}
        raise ConfigError(f"{name} cannot be {given!r}{place}.", _nearest(str(given), known[name]))
    if not name:
        raise ConfigError(f"{said[:1].upper()}{said[1:]}.", "Correct that setting and run again.")
    shown = f"{given!r}"[:60]
    raise ConfigError(f"{name} cannot be {shown}{place}: {said[:1].lower()}{said[1:]}.", "Correct it and run again.")


def read_settings(path: str | Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The mapping in a YAML file of settings, and where each of its keys stands.

    Raises:
        ConfigError: It cannot be read, is no mapping, or has a key twice.
    """
    from intarsia.core.recipes import read_yaml

    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"There is no file {path}.", "Name a YAML file of settings, such as `data: pairs`.")
    data, lines = read_yaml(path)
    return data, {key[0]: f"{path.name}, line {line}" for key, line in lines.items() if len(key) == 1}


# --- What is asked --------------------------------------------------------------------------------------------------


def parse_columns(text: str) -> dict[str, str]:
    """Read `prompt=post,human=top_comment` into a mapping.

    Raises:
        ConfigError: A part is not of that form.
    """
    found: dict[str, str] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        ours, equals, theirs = part.partition("=")
        if not (equals and ours.strip() and theirs.strip()):
            raise ConfigError(f"Cannot read {part!r} in the mapping.", "Write it as prompt=post,human=top_comment.")
        found[ours.strip()] = theirs.strip()
    return found


def split_source(source: str) -> tuple[str, str]:
    """`at_fault=posts.csv` -> (`at_fault`, `posts.csv`); the shape is empty where none is said.

    Raises:
        ConfigError: There is no such shape, or nothing behind it.
    """
    head, equals, tail = source.partition("=")
    if not equals or "/" in head or "." in head or Path(source).exists():
        return "", source
    if head not in SHAPES:
        raise ConfigError(f"There is no shape {head!r} of a set.", _nearest(head, SHAPES))
    if not tail.strip():
        raise ConfigError(f"The shape {head} has no file.", f"Write {head}=FILE.")
    return head, tail.strip()


def read_sets(
    sources: Sequence[str],
    *,
    columns: Mapping[str, str] | None = None,
    items: int | None = None,
    pairs: int | None = None,
    fidelity: bool = False,
    seed: int = 0,
    offline: bool | None = None,
) -> dict[str, SycophancySet]:
    """Sets by name; a name that comes twice gets a number.

    Args:
        sources: As in `RunSettings.data`; all embedded sets when empty. Two files of conflicts are written
            `pairs=originals.csv+flipped.csv`.
        columns: Our column -> the file's.
        items: Most scenarios of each set; None for all.
        pairs: Most conflicts of each set; as `items` when None.
        fidelity: Keep only conflicts whose flip is known to keep the facts.
        seed: Of the draw.
        offline: Never ask the hub.

    Raises:
        DataError: A set cannot be had, or no conflict is left.
    """
    from intarsia.sycophancy.loaders import load_pairs, load_set

    found: dict[str, SycophancySet] = {}
    for source in sources or EMBEDDED:
        shape, path = split_source(source)
        mapping = columns if path not in EMBEDDED else None
        # What a fidelity filter takes away must not be missing from the draw.
        most = pairs if pairs is not None and (shape or path) == PAIRS else items
        limit = None if fidelity else most
        if shape == PAIRS:
            first, plus, second = path.partition("+")
            whole = not plus or Path(path).exists()
            one = load_pairs(path if whole else first, None if whole else second, mapping, limit, seed, offline=offline)
        else:
            one = load_set(path, shape or None, mapping, limit, seed, offline=offline)  # type: ignore[arg-type]
        if fidelity and one.conflicts:
            one = faithful(one, most, seed)
        elif fidelity:
            one = _limited(one, most, seed)
        name, number = one.name, 2
        while name in found:
            name, number = f"{one.name}-{number}", number + 1
        found[name] = replace(one, name=name)
    return found


def faithful(one: SycophancySet, limit: int | None = None, seed: int = 0) -> SycophancySet:
    """The conflicts of a set whose flip is known to keep the facts.

    Raises:
        DataError: There are none.
    """
    kept = tuple(conflict for conflict in one.conflicts if conflict.fidelity is True)
    if not kept:
        raise DataError(
            f"{one.name} has no conflict whose flip is known to keep the facts.",
            "Add a column `fidelity` with true or false, or leave the filter out.",
        )
    lost = len(one.conflicts) - len(kept)
    note = f"{lost} of {len(one.conflicts)} conflicts were left out: their flip is not known to keep the facts."
    notes = (*one.notes, note) if lost else one.notes
    return _limited(replace(one, conflicts=kept, notes=notes), limit, seed)


def _limited(one: SycophancySet, limit: int | None, seed: int) -> SycophancySet:
    from intarsia.sycophancy.loaders import take

    return take(one, limit, seed)


# --- Who judges, and what mends --------------------------------------------------------------------------------------


def judges_in_words(spec: str) -> bool:
    """Whether the judge is a model that answers in words."""
    return spec not in ("", *OWN_JUDGES) and spec.partition(":")[0] not in JUDGE_KINDS


def check_judge(spec: str) -> None:
    """Refuse a judge that cannot be.

    Raises:
        ConfigError: It lacks what belongs behind its colon, or is a misspelled one of ours.
    """
    head, colon, tail = spec.partition(":")
    if head in JUDGE_KINDS and not tail.strip():
        raise ConfigError(f"The judge {head!r} names no model.", f"Write {head}:NAME.")
    if not colon and spec not in OWN_JUDGES and get_close_matches(spec, OWN_JUDGES, n=1, cutoff=0.75):
        raise ConfigError(f"There is no judge {spec!r}.", _nearest(spec, OWN_JUDGES))


def judge_model(spec: str) -> str:
    """The model that has to be opened for a judge, empty where it opens none (or opens its own)."""
    head, _, tail = spec.partition(":")
    if head == "logprob":
        return tail
    return spec if judges_in_words(spec) else ""


def make_judge(spec: str, target: Target | None = None, *, rubric: str = "v1", votes: int = 1, seed: int = 0) -> Judge:
    """The judge that a user named.

    Args:
        spec: See `RunSettings.judge`.
        target: The open model of `judge_model(spec)`.
        rubric: Version of the rubric.
        votes: Of a model that judges in words; more than one are sampled.
        seed: Of the votes.

    Raises:
        ConfigError: The judge cannot judge.
        ModelError: It cannot be had.
    """
    check_judge(spec)
    head, _, tail = spec.partition(":")
    if spec in ("", "screening") or head == "classifier":
        from intarsia.sycophancy.classifier_judge import ClassifierJudge

        return ClassifierJudge(tail or None) if head == "classifier" else ClassifierJudge()
    if spec == "rules":
        from intarsia.sycophancy.rule_judge import RuleJudge

        return RuleJudge()
    if head == "hf":
        from intarsia.sycophancy.hf_classifier import HFClassifierJudge

        return HFClassifierJudge(tail)
    if target is None:
        target = Target.parse(judge_model(spec))
    if head == "logprob":
        from intarsia.sycophancy.logprob_judge import LogprobJudge

        return LogprobJudge(target, rubric)
    from intarsia.sycophancy.llm_judge import LLMJudge

    return LLMJudge(target, rubric, votes, VOTING_TEMPERATURE if votes > 1 else 0.0, seed=seed)


FITTED = ("steer", "iti")
"""Mitigations that were fitted and lie in a file."""
THIRD_PERSON = "third-person"


def mitigation_names() -> tuple[str, ...]:
    """All mitigations by name, those that need a file with `:FILE` behind them."""
    from intarsia.sycophancy.chains import CHAINS
    from intarsia.sycophancy.instructions import INSTRUCTIONS

    return (*INSTRUCTIONS, *CHAINS, THIRD_PERSON, *(f"{head}:FILE" for head in FITTED))


def check_mitigation(spec: str) -> tuple[str, str, float | None]:
    """The parts of a mitigation's name: what it is, its file, and how strong (`steer:FILE@1.5`).

    Raises:
        ConfigError: There is no such mitigation, or it has no file.
    """
    head, colon, tail = spec.partition(":")
    if not colon:
        if head in FITTED:
            raise ConfigError(f"The mitigation {head} has no file.", f"Write {head}:FILE, or {head}:FILE@1.5.")
        if head not in mitigation_names():
            raise ConfigError(f"There is no mitigation {head!r}.", _nearest(head, mitigation_names()))
        return head, "", None
    if head not in FITTED:
        raise ConfigError(f"There is no mitigation {head!r} with a file.", f"Known: {', '.join(FITTED)}.")
    path, at, strength = tail.rpartition("@")
    if not at or Path(tail).exists():
        path, strength = tail, ""
    if not Path(path).is_file():
        raise ConfigError(f"There is no file {path or '(nothing)'}.", "Fit one: intarsia sycophancy steer MODEL FILE.")
    if not strength:
        return head, path, None
    try:
        return head, path, float(strength)
    except ValueError:
        raise ConfigError(f"{strength!r} is no strength.", f"Write {head}:FILE@1.5.") from None


def make_mitigation(spec: str, rewriter: Target | None = None) -> Mitigation:
    """The mitigation that a user named.

    Args:
        spec: See `mitigation_names`.
        rewriter: Who rewrites for `third-person`; the model itself when omitted.

    Raises:
        ConfigError: There is none.
        DataError: Its file is damaged.
    """
    from intarsia.sycophancy.chains import CHAINS
    from intarsia.sycophancy.instructions import INSTRUCTIONS

    head, path, strength = check_mitigation(spec)
    if head == "steer":
        from intarsia.sycophancy.steering import SteeringVector

        vector = SteeringVector.load(path)
        return vector if strength is None else vector.strength(strength)
    if head == "iti":
        from intarsia.sycophancy.iti import HeadIntervention

        heads = HeadIntervention.load(path)
        return heads if strength is None else heads.strength(strength)
    if head == THIRD_PERSON:
        from intarsia.sycophancy.perspective import PerspectiveShift

        return PerspectiveShift(rewriter)
    return CHAINS[head] if head in CHAINS else INSTRUCTIONS[head]


def suite(settings: RunSettings, sets: Mapping[str, SycophancySet]) -> Elephant:
    """The suite that the settings describe."""
    from intarsia.sycophancy.suite import PAPER_TEMPERATURE, PAPER_TOP_P, Elephant

    paper = settings.preset == "paper"
    sampling = Sampling(
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature if settings.temperature is not None else PAPER_TEMPERATURE * paper,
        top_p=settings.top_p if settings.top_p is not None else PAPER_TOP_P if paper else 1.0,
        seed=settings.seed,
    )
    return Elephant(
        sets,
        settings.dims,
        sampling,
        settings.nudges,
        wordings=settings.wordings,
        verdict_tokens=settings.verdict_tokens,
        both_sides=settings.both_sides,
        margins=settings.margins,
        length_ablation=settings.length_ablation,
        assumption_baseline=settings.assumption_baseline,
        system=settings.system,
        seed=settings.seed,
        preset=settings.preset,
    )


def _nearest(name: str, known: Any) -> str:
    close = get_close_matches(name, list(known), n=1)
    return (f"Did you mean {close[0]!r}? " if close else "") + f"Known: {', '.join(known)}."

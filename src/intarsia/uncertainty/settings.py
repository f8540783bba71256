"""What an uncertainty run is asked to do: one strict shape that the audit's options and the command line fill."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from intarsia.core.data import DataSet, parse_mapping
from intarsia.core.data.fewshot import Style, style_for
from intarsia.core.errors import ConfigError
from intarsia.core.target import Target
from intarsia.uncertainty.estimators import ESTIMATORS
from intarsia.uncertainty.generator import AnswerKind
from intarsia.uncertainty.interval import Rule
from intarsia.uncertainty.prompting import SHOTS, STOPS

if TYPE_CHECKING:
    from intarsia.uncertainty.generator import Generator

Source: TypeAlias = Literal["beam", "sample", "diverse", "hybrid", "endpoint", "stored"]
SOURCES: tuple[Source, ...] = get_args(Source)
LAWFUL = ("beam", "sample", "diverse", "hybrid")
"""Sources that grow answers on the next-token probabilities of a local model."""
OnLowMass: TypeAlias = Literal["warn", "hybrid"]
Preset: TypeAlias = Literal["default", "paper"]
PAPER: dict[str, Any] = {"similarity": "nli", "temperature": 1.0, "on_low_mass": "warn"}
"""What the preset `paper` sets where nothing else is said; all else that the paper fixes is the default anyway."""
MOST_CANDIDATES = 1000
ESTIMATOR = "dissimilarity"
"""The uncertainty that decides, unless another one is named."""
BASELINE = "msp"
"""The one that needs no candidates: the answer's own probability."""
NEW_TOKENS = {"choice": 10, "word": 20, "exact": 20, "number": 20, "math": 64, "free": 20}
"""Most tokens of an answer by its kind; 20 and 10 are the paper's."""
FACT_TOKENS = 8
"""Most tokens of an answer to a packaged fact: three words and an end."""
SIMILARITIES = ("exact", "jaccard", "rouge-l", "embedding", "nli", "nli-contra", "sts")


class Scoring(BaseModel):
    """How answers are made and scored.

    Attributes:
        preset: `paper` compares by the paper's entailment model, at temperature 1 and without a fall-back, wherever
            nothing else is said.
        candidates: Where candidates come from: `beam`, `sample`, `diverse`, `hybrid` (local models), `endpoint`
            (samples by log-probability), `stored` (a file); `auto` takes beams where there are weights, else what
            there is.
        m: Number of candidates.
        beams: Of a hybrid: how many of them are beams; `auto` chooses for each question.
        groups: Of diverse beams: number of groups.
        penalty: Of diverse beams: nats that a token loses for each beam of an earlier group that took it.
        temperature: Part of the model under test: uncertainty is that of the model sampled at this temperature.
        similarity: How alike two answers are: `exact`, `jaccard`, `rouge-l`, `embedding[:ENCODER]`, `nli[:MODEL]` ...
        mass_floor: Least probability that a beam counts with.
        merge_texts: Whether candidates that read the same are one.
        answer: The answer under test: `greedy`, or `beam` for the likeliest beam.
        low_mass: What counts as too little beam mass: `half`, `paper` or `sufficient`.
        on_low_mass: `warn`, or `hybrid` to score such answers from beams and samples together.
        stops: Strings that end an answer.
        max_new_tokens: Most tokens of an answer; by kind when omitted.
        style: How prompts are laid out; `auto` uses chat turns where the model has a chat template.
        shots: Worked examples a prompt, where the set has some.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    preset: Preset = "default"
    candidates: Source | Literal["auto"] = "auto"
    m: int = Field(10, ge=1, le=MOST_CANDIDATES)
    beams: int | Literal["auto"] = "auto"
    groups: int = Field(5, ge=1)
    penalty: float = Field(1.0, ge=0.0, allow_inf_nan=False)
    temperature: float = Field(1.0, gt=0.0, allow_inf_nan=False)
    similarity: str = "jaccard"
    mass_floor: float = Field(0.0, ge=0.0, le=1.0, allow_inf_nan=False)
    merge_texts: bool = False
    answer: AnswerKind = "greedy"
    low_mass: Rule = "half"
    on_low_mass: OnLowMass = "warn"
    stops: tuple[str, ...] = STOPS
    max_new_tokens: int | None = Field(None, ge=1, le=4096)
    style: Style | Literal["auto"] = "auto"
    shots: int = Field(SHOTS, ge=0, le=64)

    @model_validator(mode="before")
    @classmethod
    def _as_the_paper(cls, values: Any) -> Any:
        return {**PAPER, **values} if isinstance(values, Mapping) and values.get("preset") == "paper" else values

    @field_validator("stops", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("similarity")
    @classmethod
    def _known_similarity(cls, value: str) -> str:
        kind = value.partition(":")[0]
        if kind not in (*SIMILARITIES, "lexical", "nli-entail"):
            raise ValueError(f"there is no similarity {value!r}. {nearest(kind, SIMILARITIES)}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Scoring:
        if any(not stop for stop in self.stops):
            raise ValueError("a stop string is empty")
        if self.candidates == "diverse" and self.m % self.groups:
            raise ValueError(f"{self.m} candidates cannot be shared out to {self.groups} groups")
        if self.beams != "auto" and not 0 <= self.beams < self.m:
            raise ValueError(f"{self.beams} of {self.m} candidates cannot be beams; use auto, or 0 to m - 1")
        return self

    def limit(self, data: DataSet) -> int:
        """Most tokens of an answer to a set's questions."""
        if self.max_new_tokens is not None:
            return self.max_new_tokens
        return FACT_TOKENS if data.name == "facts" else max(NEW_TOKENS[item.kind] for item in data.items)

    def layout(self, target: Target | None) -> Style:
        """How prompts are laid out for a target.

        Raises:
            ConfigError: It has no chat template, and chat turns are wanted.
        """
        if self.style == "auto":
            return style_for(target)
        if self.style != "plain" and target is not None and "chat" not in target.capabilities:
            raise ConfigError(f"{target.name} has no chat template.", "Use the style plain.")
        return self.style

    def generator(self, source: Source, seed: int) -> Generator:
        """The way to make candidates of that name, without a law yet.

        Raises:
            ConfigError: It grows on no law, or its options do not fit.
        """
        from intarsia.uncertainty.beam import Beam
        from intarsia.uncertainty.diverse import DiverseBeam
        from intarsia.uncertainty.hybrid import Hybrid
        from intarsia.uncertainty.trie import TrieSampler

        if source == "beam":
            return Beam(m=self.m, merge_texts=self.merge_texts, answer=self.answer)
        if source == "diverse":
            return DiverseBeam(
                m=self.m,
                merge_texts=self.merge_texts,
                answer=self.answer,
                num_groups=self.groups,
                diversity_penalty=self.penalty,
            )
        if source == "hybrid":
            return Hybrid(m=self.m, merge_texts=self.merge_texts, answer=self.answer, b=self.beams, seed=seed)
        if source == "sample":
            return TrieSampler(m=self.m, seed=seed)
        raise ConfigError(f"Candidates of kind {source} grow on no law.", f"Use {', '.join(LAWFUL)}.")

    @property
    def notes(self) -> list[str]:
        """What a reader must know of the settings themselves."""
        if self.m == 1 and self.candidates != "stored":
            return ["One candidate is the answer itself: consistency says nothing. Use 2 candidates or more."]
        return []


class UncertaintySettings(Scoring):
    """The settings of a command.

    Attributes:
        model: Who answers, as in `Target.parse`.
        data: Questions: a name, a file or a hub id; see `question_sets.load`.
        path: A file or folder of the named set.
        split: Which part of it.
        map: Which column of one's own file is what, `question=q,answer=a`.
        items: Most questions; 0 for all that there are (200 generated ones).
        estimators: Names; empty for all.
        sources: Of a bench: the sources that are held against each other.
        stored: File of stored candidates.
        system: System prompt.
        template: Wording of the question, with `{question}`.
        dtype: Of a local model.
        device: Of a local model.
        seed: Master seed.
    """

    model: str = ""
    data: str = "facts"
    path: str = ""
    split: str = ""
    map: dict[str, str] = Field(default_factory=dict)
    items: int = Field(200, ge=0, le=1_000_000)
    estimators: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    stored: str = ""
    system: str = ""
    template: str = ""
    dtype: str = "auto"
    device: str = "auto"
    seed: int = Field(0, ge=0)

    @field_validator("map", mode="before")
    @classmethod
    def _mapping(cls, value: Any) -> Any:
        return parse_mapping(value) if isinstance(value, str) else value

    @field_validator("estimators", "sources", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits(self) -> UncertaintySettings:
        for name in self.estimators:
            if name not in ESTIMATORS:
                raise ValueError(f"there is no estimator {name!r}. {nearest(name, ESTIMATORS)}")
        for names in (self.estimators, self.sources):
            if len(set(names)) < len(names):
                raise ValueError(f"one of {', '.join(names)} is named twice")
        if "://" in self.model and "@" in self.model.split("://", 1)[1].split("/", 1)[0]:
            raise ValueError("an endpoint's address holds a login; put the key into OPENAI_API_KEY instead")
        if self.template and "{question}" not in self.template:
            raise ValueError("the template has no {question} in it")
        if (self.candidates == "stored") != bool(self.stored):
            raise ValueError("stored candidates need their file, and a file of them is of no use to others")
        if len(self.sources) > 1 and self.answer == "beam":
            raise ValueError("sources are compared on one answer, and only the greedy one is the same for all")
        if "stored" in self.sources:
            raise ValueError("stored candidates are scored one file at a time; name them as candidates")
        return self

    def scoring(self) -> dict[str, Any]:
        """The part that says how answers are made and scored, as plain data."""
        return {name: value for name, value in self.model_dump(mode="json").items() if name in Scoring.model_fields}


def make_settings(values: Mapping[str, Any], lines: Mapping[str, str] | None = None) -> UncertaintySettings:
    """Checked settings.

    Args:
        values: By name.
        lines: Where a setting was written, for messages.

    Raises:
        ConfigError: A name is unknown (the nearest one is named) or a value is wrong.
    """
    try:
        return UncertaintySettings.model_validate(dict(values))
    except ValidationError as error:
        problems = error.errors(include_url=False)
    # An unknown name first: it is often a required one with a typing mistake.
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    name = str(first["loc"][0]) if first["loc"] else ""
    place = f" ({lines[name]})" if lines and name in lines else ""
    if first["type"] == "extra_forbidden":
        raise ConfigError(f"There is no setting {name!r}{place}.", nearest(name, UncertaintySettings.model_fields))
    said, given = first["msg"].removeprefix("Value error, "), first["input"]
    if first["type"] == "literal_error":
        literals = [problem for problem in problems if problem["loc"][:1] == first["loc"][:1]]
        known = [word for problem in literals for word in _words(problem)]
        raise ConfigError(f"{name} cannot be {given!r}{place}.", nearest(str(given), known))
    message, _, hint = said.partition(". ")
    if not name or hint:
        raise ConfigError(f"{message[:1].upper()}{message[1:]}{place}.", hint or "Correct that and run again.")
    if isinstance(given, float) and not math.isfinite(given):
        said = "it must be a finite number"
    raise ConfigError(f"{name} cannot be {given!r:.60}{place}: {said[:1].lower()}{said[1:]}.", "Correct it.")


def _words(problem: Mapping[str, Any]) -> list[str]:
    said = str(problem.get("ctx", {}).get("expected", ""))
    return [word.strip(" '") for word in said.replace(" or ", ",").split(",") if word.strip()]


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the likeliest word and all known ones."""
    names = list(dict.fromkeys(known))
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    return (f"Did you mean {close[0]!r}? " if close else "") + f"Known: {', '.join(names)}."

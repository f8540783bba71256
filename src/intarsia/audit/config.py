"""What an audit is asked to do: a strict, versioned configuration that a command line, a YAML file or a call fills."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator, model_validator

from intarsia.core.errors import ConfigError
from intarsia.core.study import BudgetName, Study

CONFIG_VERSION = 1


class AuditConfig(BaseModel):
    """Settings of an audit; a resumed run must share them.

    Attributes:
        version: Of this schema.
        models: Names as in `Target.parse`, each once.
        studies: Names of studies; empty for all that the audit has.
        budget: `smoke`, `quick`, `standard` or `full`.
        seed: Master seed.
        data: The user's own questions: a file or a hub id.
        mapping: Which of its columns is what (`{"question": "q", "answer": "a"}`).
        system: System prompt of the user's application.
        template: Question template with `{question}`.
        judge: A target that judges answers.
        options: Study options, `{"capability": {"sets": ["stories"]}}`.
        target: Options for opening models (`dtype`, `device`, `concurrency`, ...).
        baseline: Which of two models is the one that the other is held against; the first where empty.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = CONFIG_VERSION
    models: tuple[str, ...] = Field(min_length=1)
    studies: tuple[str, ...] = ()
    budget: BudgetName = "quick"
    seed: int = Field(0, ge=0)
    data: str = ""
    mapping: dict[str, str] = Field(default_factory=dict)
    system: str = ""
    template: str = ""
    judge: str = ""
    options: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    target: dict[str, JsonValue] = Field(default_factory=dict)
    baseline: str = ""

    @field_validator("models", "studies", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _consistent(self) -> AuditConfig:
        if self.version != CONFIG_VERSION:
            raise ValueError(f"version {self.version} is not known here; this release reads version {CONFIG_VERSION}")
        if len(set(self.models)) != len(self.models):
            raise ValueError("a model is named twice")
        for model in (*self.models, self.judge):
            if "://" in model and "@" in model.split("://", 1)[1].split("/", 1)[0]:
                raise ValueError("an endpoint's address holds a login; put the key into OPENAI_API_KEY instead")
        if self.baseline and self.baseline not in self.models:
            raise ValueError(f"the baseline {self.baseline!r} is not among the models")
        if self.template and "{question}" not in self.template:
            raise ValueError("the template has no {question} in it")
        if self.mapping and not self.data:
            raise ValueError("a mapping is given but no data")
        return self


def make_config(values: Mapping[str, Any]) -> AuditConfig:
    """A checked configuration.

    Raises:
        ConfigError: A key is unknown (the nearest one is named) or a value is wrong.
    """
    try:
        return AuditConfig.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(*explain(error, AuditConfig, "the audit's settings")) from None


def read_config(path: str | Path) -> dict[str, Any]:
    """The mapping in an audit's YAML file.

    Raises:
        ConfigError: It cannot be read or is not a mapping.
    """
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The configuration {path} cannot be read: {error}.", "Give a YAML file.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}.", "Mend that line.") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds no settings.", "Write `key: value` lines, such as `models: [smollm2-135m]`.")
    return data


def parse_settings(settings: Iterable[str]) -> dict[str, dict[str, JsonValue]]:
    """`["capability.sets=[stories]"]` -> `{"capability": {"sets": ["stories"]}}`; values are YAML.

    Raises:
        ConfigError: One of them is not of the form study.option=value.
    """
    options: dict[str, dict[str, JsonValue]] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        study, dot, option = key.strip().partition(".")
        if not (equals and dot and study and option):
            raise ConfigError(f"{setting!r} is not of the form study.option=value.", "Try capability.items=50.")
        try:
            options.setdefault(study, {})[option] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ConfigError(f"The value in {setting!r} cannot be read.", "Write it as in YAML.") from None
    return options


def choose_studies(available: Mapping[str, Study], names: Sequence[str]) -> list[Study]:
    """The studies of those names, in the audit's own order; all of them when no name is given.

    Raises:
        ConfigError: There is no such study.
    """
    for name in names:
        if name not in available:
            raise ConfigError(f"There is no study {name!r}.", nearest(name, available))
    return [study for name, study in available.items() if not names or name in names]


def study_options(study: Study, values: Mapping[str, JsonValue]) -> BaseModel:
    """Checked options of a study.

    Raises:
        ConfigError: An option is unknown or its value wrong.
    """
    try:
        return study.Options.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(*explain(error, study.Options, f"the options of {study.name}")) from None


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the likeliest intended word and all known ones."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return (f"Did you mean {close[0]!r}? " if close else "") + f"Known: {', '.join(known)}."


def explain(error: ValidationError, model: type[BaseModel], what: str) -> tuple[str, str]:
    """One line and one hint out of a pydantic error."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"{what[0].upper()}{what[1:]} have no {place!r}.", nearest(str(first["loc"][-1]), model.model_fields)
    reason = first["msg"].removeprefix("Value error, ")
    shown = isinstance(first["input"], str | int | float | bool)
    where = f" ({place} = {str(first['input'])[:60]!r})" if place and shown else f" ({place})" if place else ""
    return f"Something in {what} is wrong: {reason}{where}.", "Correct it and run again."


BUDGETS: tuple[str, ...] = get_args(BudgetName)

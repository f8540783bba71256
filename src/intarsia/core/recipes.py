"""YAML recipes: a versioned schema, overrides from the command line, and one clear line for each mistake.

A recipe names its `kind`, and the kind names the class that reads and runs it. The hall knows `sft`; the other kinds
come from the table of rooms. A recipe class is a pydantic model, so its fields, types and defaults are the schema.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from intarsia.core.errors import ConfigError
from intarsia.core.study import canonical_json

if TYPE_CHECKING:
    from intarsia.core.training.report import TrainReport

VERSION = 1
"""The recipe format that this package reads."""

KINDS: Mapping[str, str] = MappingProxyType({"sft": "intarsia.core.training.sft:SFTRecipe"})
"""Kinds of the hall itself: kind -> dotted name of the recipe class."""

_ODD_BREAKS = frozenset("\x85\u2028\u2029")

MAX_BYTES = 1_000_000
MAX_NODES = 100_000

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with (what, done, total)."""


class Block(BaseModel):
    """Base of every part of a recipe: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)


class DataBlock(Block):
    """What to train on.

    Attributes:
        source: A set that `core.data` knows (`stories`, `reasoning-gym:chain_sum`, `gsm8k`), a .jsonl, .json, .csv,
            .tsv or .parquet file, or a hub id `org/name[:config][@revision]`.
        split: Split of a hub set or a well-known set.
        format: `prompt-completion` (fields prompt, completion), `messages` (a chat), `text` (plain text, no prompt).
        map: Our field -> the source's field (`{prompt: question, completion: answer}`).
        turns: Which assistant messages of a chat to learn: `all` makes a row of each, `last` of the last one.
        system: System message put in front of chats that have none.
        chat_template: Use the model's chat template where it has one.
        separator: What stands between prompt and completion for a model without a chat template.
        limit: Most rows, drawn by `seed`; a generated set has this many rows (1000 when omitted), less those that an
            audit with seed 0 asks in a budget up to `standard`.
        eval_share: Share of the rows kept for evaluation, drawn by `seed`.
        seed: Of generated rows, of the draw and of the evaluation split.
    """

    source: str = Field("stories", min_length=1)
    split: str = "train"
    format: Literal["prompt-completion", "messages", "text"] = "prompt-completion"
    map: dict[Literal["prompt", "completion", "messages", "text"], str] = Field(default_factory=dict)
    turns: Literal["all", "last"] = "all"
    system: str = ""
    chat_template: bool = True
    separator: str = "\n"
    limit: int | None = Field(None, ge=1)
    eval_share: float = Field(0.0, ge=0.0, lt=1.0)
    seed: int = Field(1000, ge=0)


class LoraBlock(Block):
    """Low-rank adapters instead of all weights.

    Attributes:
        r: Rank.
        alpha: Scale numerator; the update is scaled by alpha / r.
        dropout: Dropout in front of the adapter.
        target_modules: `all-linear`, or names of modules.
    """

    r: int = Field(16, ge=1)
    alpha: int = Field(32, ge=1)
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    target_modules: Literal["all-linear"] | list[str] = "all-linear"


class TrainingBlock(Block):
    """How to train.

    Attributes:
        steps: Optimizer steps; exclusive with `epochs`.
        epochs: Passes over the data; 1 when neither is given.
        learning_rate: Peak learning rate.
        batch_size: Sequences a process and forward pass.
        gradient_accumulation: Forward passes an optimizer step.
        max_length: Longest sequence in tokens; longer ones are cut at the end.
        warmup: Steps of linear warm-up; below 1, the share of all steps.
        scheduler: Shape of the learning rate after the warm-up.
        optimizer: Name of a transformers optimizer.
        weight_decay: On matrices, not on norms and biases.
        max_grad_norm: Gradients are clipped to this norm; 0 for no clipping.
        bf16: Mixed precision; `auto` turns it on where the accelerator has it.
        gradient_checkpointing: Recompute activations in the backward pass: less memory, about a fifth slower.
        completion_only_loss: Learn the answer only, not the prompt.
        packing: Fill sequences with several rows.
        save_every: Steps between checkpoints.
        keep: Newest checkpoints to keep while training.
        keep_when_done: Keep them after the run is finished as well.
        eval_every: Steps between evaluations; 0 evaluates at the end of the run only, where there are held-out rows.
    """

    steps: int | None = Field(None, ge=1)
    epochs: float | None = Field(None, gt=0)
    learning_rate: float = Field(2e-5, gt=0)
    batch_size: int = Field(8, ge=1)
    gradient_accumulation: int = Field(1, ge=1)
    max_length: int = Field(1024, ge=2)
    warmup: float = Field(0.03, ge=0)
    scheduler: Literal["cosine", "linear", "constant", "constant_with_warmup", "polynomial", "inverse_sqrt"] = "cosine"
    optimizer: str = "adamw_torch_fused"
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float = Field(1.0, ge=0)
    bf16: bool | Literal["auto"] = "auto"
    gradient_checkpointing: bool = False
    completion_only_loss: bool = True
    packing: bool = False
    save_every: int = Field(50, ge=1)
    keep: int = Field(2, ge=1)
    keep_when_done: bool = False
    eval_every: int = Field(0, ge=0)

    @field_validator("warmup")
    @classmethod
    def _whole(cls, value: float) -> float:
        if value >= 1 and value != int(value):
            raise ValueError("a warm-up of one step or more must be a whole number of steps")
        return value

    @model_validator(mode="after")
    def _one_length(self) -> TrainingBlock:
        if self.steps is not None and self.epochs is not None:
            raise ValueError("give steps or epochs, not both (null takes one back)")
        if self.steps is None and self.epochs is None:
            object.__setattr__(self, "epochs", 1.0)
        return self


class Recipe(Block, ABC):
    """A job, ready to run: base of every kind of recipe.

    Subclasses add their fields, set `kind: Literal["..."] = "..."`, and implement `run`.

    Attributes:
        version: Recipe format.
        kind: What job it is.
        seed: Of everything random in the run: data order, new weights, dropout.
        out: Run folder; `--out` goes before it.
        FREE: Dotted keys that may differ between a run and its continuation, since they do not change what is learned.
    """

    FREE: ClassVar[frozenset[str]] = frozenset({"out"})

    version: Literal[1] = 1
    kind: str
    seed: int = Field(0, ge=0, lt=2**32)
    out: str = ""

    @abstractmethod
    def run(
        self,
        out: Path | None = None,
        resume: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> TrainReport:
        """Do the job.

        Args:
            out: Run folder; `self.out` or `runs/<kind>-<digest>` when omitted.
            resume: Insist on going on with a run that is already in the folder.
            dry_run: Say what would be done, and do nothing.
            progress: Called with (what, done, total).

        Returns:
            What was done.
        """

    def settings(self) -> dict[str, Any]:
        """The fully resolved recipe, defaults included, as plain data."""
        return self.model_dump(mode="json")

    def to_yaml(self) -> str:
        """The fully resolved recipe, defaults included, as YAML that `load_recipe` reads back to an equal recipe."""
        settings = self.settings()
        text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=120)
        if _ODD_BREAKS.isdisjoint(text):
            return text
        # Written as they are, YAML reads them back as other line breaks.
        return yaml.safe_dump(settings, sort_keys=False, allow_unicode=False, width=120)

    def digest(self) -> str:
        """Eight hex digits that stand for what the recipe learns; free keys do not count."""
        settled = {key: value for key, value in flatten(self.settings()).items() if key not in self.FREE}
        return hashlib.sha256(canonical_json(settled)).hexdigest()[:8]

    def differing(self, other: Mapping[str, Any]) -> list[str]:
        """Dotted keys in which `other` (plain data of a recipe) would learn something else, with both values."""
        ours, theirs = flatten(self.settings()), flatten(other)
        return [
            f"{key} ({_short(theirs.get(key))} there, {_short(ours.get(key))} here)"
            for key in sorted(ours.keys() | theirs.keys())
            if key not in self.FREE and ours.get(key) != theirs.get(key)
        ]


class TrainRecipe(Recipe):
    """Base of the recipes that train a language model with a transformers trainer.

    Attributes:
        model: Any name that the catalog knows.
        accept_license: Agree to a model's licence terms, where it asks for that.
        dtype: Of the weights. `auto` takes bfloat16 for adapters in mixed precision, float32 otherwise.
        lora: Train adapters of this shape; null trains all weights.
        training: How to train.
        trainer_args: Further arguments of the trainer's own configuration class.
    """

    FREE: ClassVar[frozenset[str]] = Recipe.FREE | {
        "accept_license",
        "training.save_every",
        "training.keep",
        "training.keep_when_done",
    }

    model: str = Field(min_length=1)
    accept_license: bool = False
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    lora: LoraBlock | None = None
    training: TrainingBlock = TrainingBlock()
    trainer_args: dict[str, Any] = Field(default_factory=dict)


def load_recipe(
    path: str | Path, overrides: Sequence[str] = (), kinds: Mapping[str, str | type[Recipe]] | None = None
) -> Recipe:
    """Read a recipe.

    Args:
        path: A YAML file, or the name of a recipe that comes along (`recipes/sft/smollm2-sft.yaml`).
        overrides: `key.sub=value`, where the value is read as YAML.
        kinds: Further kinds: kind -> recipe class, or its dotted name `module:Class`.

    Returns:
        The validated recipe.

    Raises:
        ConfigError: The file cannot be read, or is not a recipe; names the key, the line where possible, and the
            nearest name that would have been right.
    """
    path = find_recipe(path)
    data, lines = read_yaml(path)
    where = Places(str(path), lines)
    for override in overrides:
        _apply(data, override, where)
    _check_version(data, where)
    return validate(recipe_class(data, where, {**KINDS, **(kinds or {})}), data, where)


def shipped_recipes() -> dict[str, Path]:
    """The recipes that come along, wherever Intarsia is installed: `recipes/<wing>/<file>.yaml` -> its path."""
    package = Path(__file__).resolve().parents[1]
    # A wheel holds them inside the package; in a checkout they stand beside `src`.
    places = [package / "recipes", *([package.parents[1] / "recipes"] if package.parent.name == "src" else [])]
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        return {}
    return {f"recipes/{path.relative_to(folder).as_posix()}": path for path in sorted(folder.rglob("*.yaml"))}


def find_recipe(path: str | Path) -> Path:
    """The file at `path`, else the recipe that comes along under that name, else `path` as it is."""
    path = Path(path)
    return path if path.exists() else shipped_recipes().get(path.as_posix(), path)


class Places:
    """Where each key of a recipe was written, for error messages.

    Args:
        name: Of the file.
        lines: Key path -> line, counted from 1.
    """

    def __init__(self, name: str, lines: Mapping[tuple[str, ...], int]) -> None:
        self.name = name
        self.lines = dict(lines)
        self.overridden: set[tuple[str, ...]] = set()

    def of(self, key: tuple[str, ...]) -> str:
        """`recipe.yaml, line 3` or `on the command line`; the nearest enclosing key where `key` was not written."""
        for end in range(len(key), -1, -1):
            if key[:end] in self.overridden:
                return "on the command line"
            if end and key[:end] in self.lines:
                return f"{self.name}, line {self.lines[key[:end]]}"
        return self.name


class _Loader(yaml.SafeLoader):
    """YAML as people write it: `2e-5` is a number, though YAML 1.1 wants a dot in it."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)[eE][-+]?\d+$"),
    list("-+0123456789."),
)


def read_yaml(path: Path) -> tuple[dict[str, Any], dict[tuple[str, ...], int]]:
    """A YAML mapping and the line of each of its keys.

    Raises:
        ConfigError: There is no such file, it is no YAML, not a mapping, or has a key twice.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"Cannot read the recipe {path}: {error.strerror or error}.",
            f"These come along: {', '.join(shipped_recipes()) or 'none'}.",
        ) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES // 1000} kB.", "A recipe is a short YAML file.")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file.", "A recipe is a YAML file in UTF-8.") from None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        lines = dict(_lines(node, path)) if node is not None else {}
        data = loader.construct_document(node) if node is not None else None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {_yaml_problem(error)}.") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}.") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} is not a recipe: it should be a YAML mapping that begins with `version: {VERSION}`.")
    return data, lines


def _lines(root: yaml.Node, path: Path) -> Iterator[tuple[tuple[str, ...], int]]:
    """Key path -> line of each key; refuses keys given twice and documents that aliases blow up."""
    stack: list[tuple[tuple[str, ...], yaml.Node]] = [((), root)]
    seen = 0
    while stack:
        prefix, node = stack.pop()
        seen += 1
        if seen > MAX_NODES:
            raise ConfigError(f"{path} is too large for a recipe once its aliases are written out.")
        if isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key_node, value_node in node.value:
                key, line = str(key_node.value), key_node.start_mark.line + 1
                if key in keys:
                    raise ConfigError(f"`{'.'.join([*prefix, key])}` is given twice ({path}, line {line}).")
                keys.add(key)
                yield (*prefix, key), line
                stack.append(((*prefix, key), value_node))
        elif isinstance(node, yaml.SequenceNode):
            stack.extend(((*prefix, str(index)), value) for index, value in enumerate(node.value))


def _yaml_problem(error: yaml.YAMLError) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"{problem or error}" + (f" (line {mark.line + 1})" if mark is not None else "")


def _apply(data: dict[str, Any], override: str, where: Places) -> None:
    """Set one `key.sub=value` in `data`."""
    key, equals, text = override.partition("=")
    names = tuple(key.strip().split("."))
    if not equals or not all(names):
        raise ConfigError(f"`{override}` is not an override.", "Write key=value, such as training.learning_rate=1e-4.")
    try:
        value = yaml.load(text, Loader=_Loader)  # a SafeLoader, with one more number format
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"The value of `{override}` is not valid YAML.", "Quote it if it is a text.") from error
    section = data
    for depth, name in enumerate(names[:-1], start=1):
        inner = section.get(name)
        if inner is None:
            inner = section[name] = {}
        if not isinstance(inner, dict):
            raise ConfigError(f"`{override}` cannot be set: {'.'.join(names[:depth])} is not a section.")
        section = inner
    section[names[-1]] = value
    where.overridden.add(names)


def _check_version(data: Mapping[str, Any], where: Places) -> None:
    version = data.get("version")
    if version is None:
        raise ConfigError(f"{where.name} does not say its version.", f"Add the line `version: {VERSION}`.")
    if version != VERSION or isinstance(version, bool):
        raise ConfigError(
            f"The recipe has version {_short(version)}, and this package reads version {VERSION} "
            f"({where.of(('version',))}).",
            "Update intarsia, or rewrite the recipe."
            if isinstance(version, int) and version > VERSION
            else f"Write `version: {VERSION}`.",
        )


def recipe_class(data: Mapping[str, Any], where: Places, kinds: Mapping[str, str | type[Recipe]]) -> type[Recipe]:
    """The class that `kind` stands for.

    Raises:
        ConfigError: There is no such kind, or what it needs is not installed.
    """
    kind = data.get("kind")
    known = ", ".join(sorted(kinds))
    if kind is None:
        raise ConfigError(f"{where.name} does not say its kind.", f"Add `kind: ...`, one of: {known}.")
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError(
            f"There is no kind of recipe called {_short(kind)} ({where.of(('kind',))}).{_guess(str(kind), kinds)}",
            f"Kinds: {known}.",
        )
    found = kinds[kind]
    if isinstance(found, str):
        module, _, name = found.partition(":")
        return getattr(importlib.import_module(module), name)
    return found


def validate(cls: type[Recipe], data: Mapping[str, Any], where: Places) -> Recipe:
    """`data` as a recipe of class `cls`.

    Raises:
        ConfigError: A key is unknown, missing or of the wrong type; the first such key, in one line.
    """
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        raise _explain(error, cls, data, where) from None


def _explain(error: ValidationError, cls: type[Recipe], data: Mapping[str, Any], where: Places) -> ConfigError:
    """The first problem of a validation error as one line; the others are counted."""
    problems: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        key = _key(detail["loc"], data)
        problems.setdefault(key, []).append((detail["type"], detail["msg"]))
    more = f" ({len(problems) - 1} more to mend)" if len(problems) > 1 else ""
    # An unknown key first: a key with a typing mistake in its name is often also a required one that is missing.
    key = min(problems, key=lambda name: problems[name][0][0] != "extra_forbidden")
    kinds, messages = zip(*problems[key])
    dotted, place = ".".join(key), where.of(key)
    if kinds[0] == "extra_forbidden":
        valid = _keys_at(cls, key[:-1])
        guess = _guess(key[-1], valid) or _elsewhere(key[-1], cls)
        section = f"of {'.'.join(key[:-1])} " if len(key) > 1 else ""
        return ConfigError(
            f"Unknown key `{dotted}` ({place}).{guess}{more}", f"Valid keys {section}are: {', '.join(valid)}."
        )
    if kinds[0] == "missing":
        return ConfigError(f"`{dotted}` is missing ({where.of(key[:-1])}).{more}")
    text = " or ".join(dict.fromkeys(_plain(message) for message in messages))
    value = data
    for name in key:
        value = value.get(name) if isinstance(value, Mapping) else None  # type: ignore[assignment]
    shown = "" if isinstance(value, Mapping) else f", not {_short(value)}"
    if kinds[0] == "value_error":
        return ConfigError(f"`{dotted}`: {text} ({place}).{more}" if dotted else f"{text} ({place}).{more}")
    return ConfigError(f"`{dotted}` should be {text}{shown} ({place}).{more}")


def _key(loc: tuple[int | str, ...], data: Mapping[str, Any]) -> tuple[str, ...]:
    """A pydantic location without the tags that unions add to it: it ends where the data end."""
    value: Any = data
    for depth, part in enumerate(loc):
        listed = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if listed or (isinstance(value, Mapping) and part in value):
            value = value[part]
        elif isinstance(value, Mapping) and depth == len(loc) - 1:
            continue  # a missing key
        else:
            return tuple(map(str, loc[:depth]))
    return tuple(map(str, loc))


def _plain(message: str) -> str:
    """A pydantic message without its opening, ready to follow `should be`."""
    for opening in ("Input should be a valid ", "Input should be ", "Value error, "):
        if message.startswith(opening):
            message = message.removeprefix(opening)
            return ("an " if message[:1] in "aeiou" else "a ") + message if opening.endswith("valid ") else message
    return message[:1].lower() + message[1:]


def _section(annotation: Any) -> type[BaseModel] | None:
    """The block behind an annotation such as `LoraBlock | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section(part)) is not None), None)


def _keys_at(cls: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The keys that a section may have."""
    model: type[BaseModel] | None = cls
    for name in path:
        field = model.model_fields.get(name) if model is not None else None
        model = _section(field.annotation) if field is not None else None
    return list(model.model_fields) if model is not None else []


def _elsewhere(name: str, cls: type[BaseModel]) -> str:
    """A guess among all other sections: `learning_rate` at the top stands for `training.learning_rate`."""
    dotted = {
        inner: f"{outer}.{inner}"
        for outer, field in cls.model_fields.items()
        if (section := _section(field.annotation)) is not None
        for inner in section.model_fields
    } | {key: key for key in cls.model_fields}
    near = get_close_matches(name, dotted, n=1, cutoff=0.75)
    return f" Did you mean {dotted[near[0]]}?" if near else ""


def _guess(name: str, valid: Sequence[str] | Mapping[str, Any]) -> str:
    near = get_close_matches(name, valid, n=1)
    return f" Did you mean {near[0]}?" if near else ""


def flatten(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as one mapping with dotted keys; an empty section stays a value."""
    flat: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value
    return flat


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

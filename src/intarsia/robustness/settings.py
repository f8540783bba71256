"""The settings of an attack: one strict shape that a command line, a YAML file and an inspect_ai task all fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from intarsia.core.data import DataSet, load, parse_mapping
from intarsia.core.errors import ConfigError, IntarsiaError
from intarsia.core.target import Target
from intarsia.robustness.adjudicate import Adjudicator, LLMJudge, SelfConsistency
from intarsia.robustness.attack import MSCR, Budget, ControlKind, Preset
from intarsia.robustness.candidates import Source
from intarsia.robustness.goals import goal_named
from intarsia.robustness.plan import ORDERS, Order
from intarsia.robustness.protect import protected_spans
from intarsia.robustness.sources import PAPER_MLM, SURROGATE, default_sources

if TYPE_CHECKING:
    from intarsia.robustness.gates import Gate

SourceName = Literal["embedding", "wordnet", "infill", "mlm", "typo", "insertion", "deletion"]
SOURCES: tuple[SourceName, ...] = get_args(SourceName)
DATA = "stories:1"
ITEMS = 50
GATES = {
    "cosine": 0.9, "angular": 0.84, "pos": 0.0, "word_cosine": 0.5, "frequency": 1.0, "unchanged": 0.6,
    "likelihood": 5.0, "textfooler": 0.0, "bert-attack": 0.0, "bae": 0.0,
}  # fmt: skip
"""Gates by name, with the threshold that each has when none is given."""


class AttackSettings(BaseModel):
    """What an attack is asked to do. What is left out takes the preset's own value.

    Attributes:
        model: Who is attacked, as in `Target.parse`; an inspect_ai task has its model elsewhere.
        data: Questions: a name, a file or a hub id; see `core.data.load`.
        map: Which column is what, `question=q,answer=a` or a mapping.
        items: How many questions; 0 for all that there are (200 of a generated set).
        shots: Worked examples a prompt.
        sources: Where candidates come from, in order of priority; empty for what is at hand.
        all_senses: WordNet's synonyms of every sense of a word, and neighbors that share its stem; otherwise synonyms
            of the most frequent sense and forms of the same dictionary word only.
        mlm: A masked model, by name or folder.
        surrogate: Whose embeddings serve where the model shows no weights.
        protect: `math`, `none`, `mathattack` or `re:<pattern>`.
        goal: `answer_wrong`, `answer_changed`, `longer` or `longer:<ratio>`.
        judge: A model that judges successes.
        self_consistency: The attacked model itself is asked so many times more about each success.
        order: Which word comes first.
        max_words: Words that may be changed at once.
        beam: Rewrites that are gone on from.
        gates: Filters on rewrites, such as `cosine:0.9`; see `gates_named`.
        max_queries: Most queries a question.
        reask: Times that a success is asked again.
        rows: Questions that a batch aims at; what suits the machine when omitted.
        temperature: How answers are sampled; 0 is greedy.
        max_new_tokens: Room for an answer.
        runs: Runs over all questions.
        chain_of_thought: Ask for working before the answer.
        control: `auto`, `full` or `off`.
        preset: `default` or `paper`.
        system: System prompt.
        template: Wording of the question, with `{question}`.
        dtype: Of a local model.
        device: Of a local model.
        seed: Master seed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = ""
    data: str = DATA
    map: dict[str, str] = Field(default_factory=dict)
    items: int = Field(ITEMS, ge=0)
    shots: int | None = Field(None, ge=0)
    sources: tuple[SourceName, ...] = ()
    all_senses: bool = False
    mlm: str = ""
    surrogate: str = SURROGATE
    protect: str = ""
    goal: str = ""
    judge: str = ""
    self_consistency: int = Field(0, ge=0)
    order: Order = "left_to_right"
    max_words: int = Field(1, ge=1)
    beam: int = Field(4, ge=1)
    gates: tuple[str, ...] = ()
    max_queries: int = Field(400, ge=1)
    reask: int | None = Field(None, ge=0)
    rows: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0.0, allow_inf_nan=False)
    max_new_tokens: int | None = Field(None, ge=1)
    runs: int | None = Field(None, ge=1)
    chain_of_thought: bool | None = None
    control: ControlKind = "auto"
    preset: Preset = "default"
    system: str = ""
    template: str = ""
    dtype: str = "auto"
    device: str = "auto"
    seed: int = Field(0, ge=0)

    @field_validator("map", mode="before")
    @classmethod
    def _mapping(cls, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        return parse_mapping(value) if isinstance(value, str) else value

    @field_validator("sources", "gates", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("system", "template", "protect", mode="before")
    @classmethod
    def _whole(cls, value: Any) -> Any:
        # The command line of inspect_ai splits texts at their commas.
        return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else value

    @model_validator(mode="after")
    def _consistent(self) -> AttackSettings:
        if len(set(self.sources)) < len(self.sources):
            raise ValueError("a source is named twice")
        if "://" in self.model and "@" in self.model.split("://", 1)[1].split("/", 1)[0]:
            raise ValueError("an endpoint's address holds a login; put the key into OPENAI_API_KEY instead")
        if self.template and "{question}" not in self.template:
            raise ValueError("the template has no {question} in it")
        if self.judge and self.self_consistency:
            raise ValueError("a judge and self-consistency are two ways to rule on a success; choose one")
        if self.preset == "paper" and not (self.judge or self.self_consistency):
            raise ValueError("the paper's protocol has every success judged by a stronger model; name a judge")
        if self.mlm and self.sources and "mlm" not in self.sources:
            raise ValueError("a masked model is named, but mlm is not among the sources")
        if self.goal:
            goal_named(self.goal)
        if self.protect:
            protected_spans("", self.protect)
        return self


def make_settings(values: Mapping[str, Any], lines: Mapping[str, str] | None = None) -> AttackSettings:
    """Checked settings.

    Args:
        values: By name.
        lines: Where a setting was written (`attack.yaml, line 3`), for messages.

    Raises:
        ConfigError: A name is unknown (the nearest one is named) or a value is wrong.
    """
    try:
        return AttackSettings.model_validate(dict(values))
    except ValidationError as error:
        problems = error.errors(include_url=False)
    # An unknown name first: it is often a required one with a typing mistake.
    first = min(problems, key=lambda problem: problem["type"] != "extra_forbidden")
    name = str(first["loc"][0]) if first["loc"] else ""
    place = f" ({lines[name]})" if lines and name in lines else ""
    if first["type"] == "extra_forbidden":
        raise ConfigError(f"An attack has no setting {name!r}{place}.", _nearest(name, AttackSettings.model_fields))
    said = first["msg"].removeprefix("Value error, ")
    given = first["input"]
    if first["type"] == "literal_error":
        known = {"sources": SOURCES, "order": ORDERS, "control": get_args(ControlKind), "preset": get_args(Preset)}
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
        raise ConfigError(f"There is no file {path}.", "Name a YAML file of settings, such as `data: gsm8k`.")
    data, lines = read_yaml(path)
    return data, {key[0]: f"{path.name}, line {line}" for key, line in lines.items() if len(key) == 1}


def questions(settings: AttackSettings, items: int | None = None) -> DataSet:
    """The questions that the settings name.

    Args:
        settings: As checked.
        items: Instead of the settings' own number; 0 for all.
    """
    wanted = settings.items if items is None else items
    return load(settings.data, mapping=settings.map or None, limit=wanted or None, seed=settings.seed)


def prepare(
    settings: AttackSettings,
    target: Target,
    data: DataSet,
    *,
    judge: Target | None = None,
    sources: tuple[list[Source], list[str]] | None = None,
) -> MSCR:
    """The attack that the settings describe, on a target that is open already.

    Args:
        settings: As checked.
        target: Who is attacked.
        data: What will be asked; the room for an answer goes by it.
        judge: Who judges, where the settings name a judge.
        sources: What `sources_for` gave for them, where that is at hand.

    Raises:
        ConfigError: The settings do not fit the target.
        IntarsiaError: A source that was asked for by name cannot be had.
    """
    if settings.order in ("importance", "importance_mask", "guided") and "score" not in target.probe_capabilities():
        raise ConfigError(
            f"{target.name} gives no log-probabilities, which the word order {settings.order!r} goes by.",
            "Use left_to_right or random, or a model that can score.",
        )
    adjudicator: Adjudicator | None = None
    if judge is not None:
        adjudicator = LLMJudge(judge)
    elif settings.self_consistency:
        adjudicator = SelfConsistency(settings.self_consistency)
    made, notes = sources if sources is not None else sources_for(settings, target)
    reask = 0 if settings.reask is None and settings.preset == "paper" else settings.reask
    attack = MSCR(
        target,
        made,
        protect=settings.protect or None,
        goal=goal_named(settings.goal) if settings.goal else None,
        adjudicator=adjudicator,
        gates=gates_named(settings.gates, made),
        order=settings.order,
        max_words=settings.max_words,
        beam=settings.beam,
        budget=Budget(max_queries=settings.max_queries, reask=reask, rows=settings.rows),
        runs=settings.runs,
        shots=settings.shots,
        system=settings.system,
        template=settings.template,
        chain_of_thought=settings.chain_of_thought,
        control=settings.control,
        seed=settings.seed,
        preset=settings.preset,
    )
    attack.notes = list(notes)
    chosen: dict[str, Any] = {}
    if settings.temperature is not None:
        chosen["temperature"] = settings.temperature
    if settings.max_new_tokens is not None:
        chosen["max_new_tokens"] = settings.max_new_tokens
    if chosen:
        attack.sampling = attack.asking(data).sampling.model_copy(update=chosen)
    if attack.runs > 1 and attack.asking(data).repeatable:
        raise ConfigError(
            f"{attack.runs} runs of greedy answers are one run, {attack.runs} times.",
            "Give a temperature, such as 0.6, or one run.",
        )
    return attack


def sources_for(settings: AttackSettings, target: Target | None) -> tuple[list[Source], list[str]]:
    """The sources that the settings name, in their order, and notes on them.

    Args:
        settings: As checked.
        target: Who is attacked; without one the surrogate's embeddings serve.

    Raises:
        IntarsiaError: One that was named cannot be had, or none at all.
    """
    if not settings.sources and not settings.all_senses and target is not None:
        return default_sources(target, preset=settings.preset, surrogate=settings.surrogate, mlm=settings.mlm)
    names = settings.sources or (("embedding", "wordnet", "mlm") if settings.mlm else ("embedding", "wordnet"))
    return _named(names, settings, target)


def _named(names: Sequence[str], settings: AttackSettings, target: Target | None) -> tuple[list[Source], list[str]]:
    from intarsia.core.catalog.wordnet import locate
    from intarsia.robustness.edits import DeletionSource, InsertionSource, TypoSource
    from intarsia.robustness.embedding import EmbeddingSource
    from intarsia.robustness.infill import CausalInfillSource
    from intarsia.robustness.masked_lm import MaskedLMSource
    from intarsia.robustness.synonyms import WordNetSource

    paper = settings.preset == "paper"
    local = target if target is not None and "weights" in target.capabilities else None
    notes: list[str] = []
    if local is None and {"embedding", "infill"} & set(names):
        if target is not None:
            notes.append(f"{target.name} shows no weights: {settings.surrogate} proposes in its place.")
        local = Target.parse(settings.surrogate)
    embedding: EmbeddingSource | None = None
    try:
        # Synonyms are ranked in the space of embeddings, as in the paper, wherever there is one.
        if local is not None and {"embedding", "wordnet"} & set(names):
            wide = paper or settings.all_senses
            embedding = EmbeddingSource.from_target(
                local, distinct=not paper, morph_filter="keep_stem" if wide else "keep_lemma"
            )
    except IntarsiaError:
        if "embedding" in names:
            raise
    made: list[Source] = []
    for name in names:
        if name == "embedding" and embedding is not None:
            made.append(embedding)
        elif name == "wordnet":
            meant = not (paper or settings.all_senses)  # as in default_sources
            made.append(
                WordNetSource(wordnet=locate(), rank=embedding, inflect=not paper, conservative=meant, mutual=meant)
            )
        elif name == "infill" and local is not None:
            made.append(CausalInfillSource(local, numbers=False))
        elif name == "mlm":
            made.append(MaskedLMSource.load(settings.mlm or PAPER_MLM, numbers=paper))
        elif name == "typo":
            made.append(TypoSource(seed=settings.seed))
        elif name == "insertion":
            made.append(InsertionSource(seed=settings.seed))
        elif name == "deletion":
            made.append(DeletionSource())
    return made, notes


def gates_named(names: Sequence[str], sources: Sequence[Source] = ()) -> list[Gate]:
    """Gates by name, each with its threshold behind a colon; a gate bears the name that was typed.

    `cosine` (0.9, of sentences by minilm-l6), `angular` (0.84), `pos`, `pos:noun_verb`, `word_cosine` (0.5, in the
    space of the embedding source), `frequency` (1, by WordNet's counts), `unchanged` (0.6, share of the words),
    `likelihood` (5 nats lost at most by the masked model), and the sets `textfooler`, `bert-attack` and `bae`.

    Args:
        names: As typed.
        sources: The attack's; two of the gates need one of them.

    Raises:
        ConfigError: There is no such gate, its threshold is no number, or the source that it needs is missing.
    """
    from intarsia.robustness import gates as kinds
    from intarsia.robustness.embedding import EmbeddingSource
    from intarsia.robustness.masked_lm import MaskedLMSource

    embedding = next((source for source in sources if isinstance(source, EmbeddingSource)), None)
    masked = next((source for source in sources if isinstance(source, MaskedLMSource)), None)
    made: list[Gate] = []
    for name in names:
        head, _, tail = name.partition(":")
        if head not in GATES:
            raise ConfigError(f"There is no gate {head!r}.", _nearest(head, GATES))
        if (head in ("word_cosine", "textfooler") and embedding is None) or (head == "likelihood" and masked is None):
            missing = "mlm" if head == "likelihood" else "embedding"
            raise ConfigError(f"The gate {head} needs the source {missing}.", f"Name {missing} among the sources.")
        if head in kinds.PRESETS or head == "pos":
            if tail not in (("", "noun_verb") if head == "pos" else ("",)):
                raise ConfigError(f"The gate {head} takes no threshold.", f"Write {head}.")
            if head == "pos":
                made.append(kinds.SamePOS(noun_verb=bool(tail), name=name))
            else:
                made += kinds.preset_gates(head, embedding=embedding)  # type: ignore[arg-type]
            continue
        try:
            least = float(tail) if tail else GATES[head]
        except ValueError:
            raise ConfigError(f"{tail!r} is no threshold of the gate {head}.", f"Try {head}:{GATES[head]:g}.") from None
        if head in ("cosine", "angular"):
            made.append(kinds.SentenceCosine(threshold=least, metric=head, name=name))  # type: ignore[arg-type]
        elif head == "word_cosine" and embedding is not None:
            made.append(kinds.WordCosine(embedding, least, name=name))
        elif head == "frequency":
            made.append(kinds.WordFrequency(least, name=name))
        elif head == "unchanged":
            made.append(kinds.UnchangedWords(least, name=name))
        elif masked is not None:
            made.append(kinds.PseudoLogLikelihood(masked, least, name=name))
    return made


def _nearest(name: str, known: Any) -> str:
    close = get_close_matches(name, list(known), n=1)
    return (f"Did you mean {close[0]!r}? " if close else "") + f"Known: {', '.join(known)}."

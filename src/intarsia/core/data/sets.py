"""Data sets by name: generated, well-known, or the user's own (a file or a hub id).

`load` is the one door. Whatever comes through it has text questions, unique stable ids, finite answers, and a SHA-256
over its content, so that two audits can be paired item by item.
"""

from __future__ import annotations

import difflib
import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from intarsia.core.errors import ConfigError, DataError

AnswerKind: TypeAlias = Literal["number", "math", "word", "exact", "choice", "free"]
"""How an answer is read and compared; see `core.answers`."""


class Item(BaseModel):
    """One question.

    Attributes:
        id: Stable and unique in its data set; pairs items across models and runs.
        question: What is asked, ready to be shown to a model.
        answer: The gold answer, None for questions without one.
        kind: How the answer is read and compared.
        slices: Parts it belongs to (`{"task": "chain_sum", "level": "3"}`).
        meta: Whatever else came with it. Known keys: `aliases` (further right answers), `choices` (options of a choice
            question), `solution` (worked steps that end in the answer), `match` (`ending`: the answer may follow an
            adjective, as in "Turkish lira").
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    question: str
    answer: str | None = None
    kind: AnswerKind = "exact"
    slices: dict[str, str] = Field(default_factory=dict)
    meta: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def aliases(self) -> tuple[str, ...]:
        """Further right answers."""
        return _texts(self.meta.get("aliases"))

    @property
    def choices(self) -> tuple[str, ...]:
        """The options of a choice question, empty for other kinds."""
        return _texts(self.meta.get("choices"))


class DataSet(BaseModel):
    """Items with their origin.

    Attributes:
        name: As it appears in reports.
        items: The questions.
        licence: Of the content.
        origin: Where it came from (`generated`, hub id and revision, file name).
        sha256: Of the items' content.
        shots: Worked examples for a few-shot prompt, never among the items.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    items: tuple[Item, ...]
    licence: str = ""
    origin: str = ""
    sha256: str = ""
    shots: tuple[Item, ...] = ()

    def sample(self, limit: int | None, seed: int = 0) -> DataSet:
        """At most `limit` items, chosen by hash: the same ones on every machine, and nested for growing limits.

        Args:
            limit: Most items to keep; None keeps all.
            seed: Chooses which ones.
        """
        if limit is None or limit >= len(self.items):
            return self
        if limit < 1:
            raise ConfigError(f"A data set cannot be cut to {limit} items.", "Give a limit of 1 or more.")
        ranked = sorted(range(len(self.items)), key=lambda i: _rank(seed, self.items[i].id))
        kept = tuple(self.items[i] for i in sorted(ranked[:limit]))
        return self.model_copy(update={"items": kept, "sha256": content_hash(kept)})


FIELDS: dict[str, tuple[str, ...]] = {
    "question": ("question", "problem", "prompt", "query", "input", "instruction", "text"),
    "answer": ("answer", "target", "gold", "label", "output", "final_answer", "expected"),
    "id": ("id", "unique_id", "uid", "_id", "ID"),
    "choices": ("choices", "options"),
    "aliases": ("aliases",),
    "slice": (),
}
"""What a mapping may name, and the columns that are tried when it does not."""

GENERATED = ("stories", "geography", "reasoning-gym")
KNOWN = ("gsm8k", "math500", "svamp", "mawps")


def load(
    source: str,
    *,
    split: str | None = None,
    mapping: Mapping[str, str] | None = None,
    kind: AnswerKind | None = None,
    limit: int | None = None,
    seed: int = 0,
    root: str | None = None,
    offline: bool | None = None,
    shots: int = 0,
) -> DataSet:
    """A data set by name.

    Args:
        source: `stories`, `geography`, `reasoning-gym` or `reasoning-gym:chain_sum,leg_counting` (generated);
            `gsm8k`, `math500`, `svamp`, `mawps` or `mawps/multiarith` (well-known sets); the path of a .jsonl, .json,
            .csv, .tsv, .parquet or .txt file; or a hub id `org/name[:config][@revision]`.
        split: Split of a hub set or a well-known set; `test` where there is one when omitted.
        mapping: Which column holds what: `{"question": "q", "answer": "a"}`; keys are those of `FIELDS`.
        kind: How answers are read; inferred from the answers when omitted.
        limit: Most items. Chosen by hash, so the same on every machine. Generated sets have 200 when omitted.
        seed: Of the generator, or of the choice.
        root: Folder that holds well-known sets as sub-folders; the environment variable INTARSIA_DATA when omitted.
        offline: Never ask the hub. None leaves it to the hub's own settings.
        shots: Worked examples to hold out of the user's own set (generated and well-known sets bring their own).

    Returns:
        The set, with at least one item.

    Raises:
        DataError: It is missing, empty, damaged, lacks a field, or cannot be fetched.
        ConfigError: The source, mapping, kind or limit makes no sense.
    """
    source = source.strip()
    if not source:
        raise ConfigError("The data set's name is empty.", f"Give a file, a hub id, or one of {', '.join(names())}.")
    if kind is not None and kind not in get_args(AnswerKind):
        raise ConfigError(f"Unknown answer kind {kind!r}.", f"Choose from {', '.join(get_args(AnswerKind))}.")
    if limit is not None and limit < 1:
        raise ConfigError(f"A limit of {limit} items leaves nothing.", "Give 1 or more.")
    check_mapping(mapping)
    head = source.split(":", 1)[0]
    if head in GENERATED:
        if mapping:
            raise ConfigError(f"{head} is generated and has no columns to map.", "Drop the mapping.")
        return _generate(source, 200 if limit is None else limit, seed, kind)
    from intarsia.core.data import known_sets

    if source in known_sets.NAMES:
        found = known_sets.load(source, split=split, root=root, offline=offline)
        if kind is not None:
            found = found.model_copy(update={"items": tuple(i.model_copy(update={"kind": kind}) for i in found.items)})
        return found.sample(limit, seed)
    from intarsia.core.data.rows import read_rows

    table = read_rows(source, split=split, offline=offline, suggestions=names())
    items = items_from_rows(table.rows, name=table.name, mapping=mapping, kind=kind)
    items, held = hold_out(items, shots)
    whole = DataSet(
        name=table.name, items=items, licence=table.licence, origin=table.origin, sha256=content_hash(items), shots=held
    )
    return whole.sample(limit, seed)


def names() -> tuple[str, ...]:
    """Names that `load` knows without a file or hub."""
    from intarsia.core.data import known_sets

    return (*GENERATED, *known_sets.NAMES)


def parse_mapping(text: str) -> dict[str, str]:
    """Read `question=q,answer=a` into a mapping.

    Raises:
        ConfigError: A part is not `field=column`, or the field is unknown.
    """
    mapping: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        field, equals, column = part.partition("=")
        if not equals or not field.strip() or not column.strip():
            raise ConfigError(f"Cannot read {part!r} in the mapping.", "Write it as question=q,answer=a.")
        if field.strip() in mapping:
            raise ConfigError(f"The mapping names {field.strip()!r} twice.", "Keep one of them.")
        mapping[field.strip()] = column.strip()
    check_mapping(mapping)
    return mapping


def check_mapping(mapping: Mapping[str, str] | None) -> None:
    """Refuse a mapping with unknown fields, naming the nearest one."""
    for field in mapping or {}:
        if field not in FIELDS:
            near = difflib.get_close_matches(field, FIELDS, n=1, cutoff=0.0)
            raise ConfigError(
                f"The mapping names an unknown field {field!r}.",
                f"Did you mean {near[0]!r}? The fields are {', '.join(FIELDS)}.",
            )


def items_from_rows(
    rows: Sequence[Mapping[str, Any]],
    *,
    name: str,
    mapping: Mapping[str, str] | None = None,
    kind: AnswerKind | None = None,
) -> tuple[Item, ...]:
    """Items from a table's rows.

    Args:
        rows: One mapping a row, from column to value.
        name: Of the table, for error messages.
        mapping: Which column holds what.
        kind: How answers are read; inferred when omitted.

    Returns:
        One item a row, ids unique.

    Raises:
        DataError: There are no rows, a column is missing, a question is not text, or an answer is not finite.
    """
    if not rows:
        raise DataError(f"{name} has no rows.", "Give a data set with at least one question.")
    columns = list(dict.fromkeys(column for row in rows for column in row))
    found = {field: _column(field, columns, mapping or {}, name) for field in FIELDS}
    questions = [_question(row.get(found["question"] or ""), at, name) for at, row in enumerate(rows, 1)]
    raw = [row.get(found["answer"]) for row in rows] if found["answer"] else [None] * len(rows)
    if all(value is None for value in raw):
        answers: list[tuple[str | None, tuple[str, ...]]] = [(None, ())] * len(rows)
    else:
        answers = [_answer(value, at, name) for at, value in enumerate(raw, 1)]
    choices = [
        _choices(row.get(found["choices"]), at, name) if found["choices"] else () for at, row in enumerate(rows, 1)
    ]
    extra = [_texts(row.get(found["aliases"])) if found["aliases"] else () for row in rows]
    solutions: list[str | None] = [None] * len(rows)
    if all(answer is not None and "####" in answer for answer, _ in answers):
        solutions = [answer for answer, _ in answers]
        answers = [((answer or "").rpartition("####")[2].strip(), alias) for answer, alias in answers]
    chosen = kind or infer_kind([answer for answer, _ in answers], has_choices=all(choices))
    drafts = []
    for row, question, (answer, alias), options, more, solution in zip(
        rows, questions, answers, choices, extra, solutions
    ):
        meta: dict[str, JsonValue] = {}
        if alias or more:
            meta["aliases"] = [*alias, *more]
        if options:
            meta["choices"] = list(options)
            answer = _choice_letter(answer, options)
        if solution:
            meta["solution"] = solution
        slices = {found["slice"]: str(row.get(found["slice"]))} if found["slice"] else {}
        drafts.append(Item(id="", question=question, answer=answer, kind=chosen, slices=slices, meta=meta))
    explicit = "id" in (mapping or {})
    given = [row.get(found["id"]) for row in rows] if found["id"] else None
    return _with_ids(drafts, given, explicit=explicit, name=name)


def infer_kind(answers: Sequence[str | None], *, has_choices: bool = False) -> AnswerKind:
    """How a set's answers look: all choices, numbers, formulas, words, or longer text."""
    from intarsia.core.answers import number_value

    texts = [answer for answer in answers if answer is not None]
    if not texts:
        return "free"
    if has_choices:
        return "choice"
    if all(number_value(text) is not None for text in texts):
        return "number"
    if sum("\\" in text or "^" in text for text in texts) >= max(1, len(texts) // 10):
        return "math"
    if all(len(text.split()) <= 5 and len(text) <= 60 for text in texts):
        return "word"
    return "exact" if all(len(text) <= 120 for text in texts) else "free"


def hold_out(items: Sequence[Item], count: int) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Split off `count` worked examples, the same ones whatever the seed, so that they are never asked.

    Returns:
        (items that stay, examples). At least one item stays.
    """
    count = max(0, min(count, len(items) - 1))
    ranked = sorted(range(len(items)), key=lambda i: _rank("shots", items[i].id))
    held = set(ranked[:count])
    return tuple(item for i, item in enumerate(items) if i not in held), tuple(items[i] for i in ranked[:count])


def content_id(question: str, answer: str | None) -> str:
    """A short id made of an item's content."""
    return hashlib.sha256(f"{question}\x1f{answer}".encode()).hexdigest()[:12]


def content_hash(items: Sequence[Item]) -> str:
    """SHA-256 over all that the items hold, order included."""
    from intarsia.core.study import canonical_json

    return hashlib.sha256(canonical_json([item.model_dump(mode="json") for item in items])).hexdigest()


def _generate(source: str, count: int, seed: int, kind: AnswerKind | None) -> DataSet:
    head, _, rest = source.partition(":")
    if head == "stories":
        from intarsia.core.data.stories import stories

        made = stories(count, seed=seed, levels=rest or None)
    elif head == "geography":
        from intarsia.core.data.geography import geography

        made = geography(count, seed=seed, tasks=rest or None)
    else:
        from intarsia.core.data.reasoning_tasks import reasoning_tasks

        made = reasoning_tasks(count, seed=seed, tasks=rest or None)
    if kind is None:
        return made
    items = tuple(item.model_copy(update={"kind": kind}) for item in made.items)
    return made.model_copy(update={"items": items, "sha256": content_hash(items)})


def _rank(seed: object, item_id: str) -> str:
    return hashlib.sha256(f"{seed}\x1f{item_id}".encode()).hexdigest()


def _column(field: str, columns: Sequence[str], mapping: Mapping[str, str], name: str) -> str | None:
    if field in mapping:
        if mapping[field] not in columns:
            near = difflib.get_close_matches(mapping[field], columns, n=1)
            guess = f" Did you mean {near[0]!r}?" if near else ""
            raise DataError(
                f"{name} has no field {mapping[field]!r} for {field}.{guess}",
                f"Its fields are: {', '.join(columns[:20])}.",
            )
        return mapping[field]
    lower = {column.lower(): column for column in reversed(columns)}
    for candidate in FIELDS[field]:
        if candidate in columns:
            return candidate
        if candidate.lower() in lower:
            return lower[candidate.lower()]
    if field == "question":
        raise DataError(
            f"{name} has no field that looks like a question; its fields are: {', '.join(columns[:20])}.",
            "Say which one it is: --map question=FIELD,answer=FIELD.",
        )
    return None


def _question(value: Any, at: int, name: str) -> str:
    if not isinstance(value, str):
        what = "missing" if value is None else f"{type(value).__name__}, not text"
        raise DataError(f"The question in row {at} of {name} is {what}.", "Map question to a column of text.")
    if not value.strip():
        raise DataError(f"The question in row {at} of {name} is empty.", "Drop the row or fill it in.")
    return _clean(value, "question", at, name)


def _answer(value: Any, at: int, name: str) -> tuple[str, tuple[str, ...]]:
    """The answer as text, and further right answers when a list was given."""
    if isinstance(value, (list, tuple)):
        if not value:
            raise DataError(f"The answer in row {at} of {name} is an empty list.", "Drop the row or give an answer.")
        first, *rest = (_answer(entry, at, name)[0] for entry in value)
        return first, tuple(rest)
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        what = "missing" if value is None else f"not a finite number ({value})"
        raise DataError(f"The answer in row {at} of {name} is {what}.", "Drop the row or give an answer.")
    if isinstance(value, bool):
        return str(value), ()
    if isinstance(value, (int, float)):
        return (str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)), ()
    if not isinstance(value, str):
        raise DataError(
            f"The answer in row {at} of {name} is {type(value).__name__}, not text or a number.",
            "Map answer to a column of text, numbers, or lists of them.",
        )
    if not value.strip() or value.strip().lower() == "nan":
        raise DataError(
            f"The answer in row {at} of {name} is {'empty' if not value.strip() else 'NaN'}.",
            "Drop the row or give an answer.",
        )
    return _clean(value.strip(), "answer", at, name), ()


def _choices(value: Any, at: int, name: str) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        value = value.get("text", list(value.values()))
    options = _texts(value)
    if not 2 <= len(options) <= 26:
        raise DataError(
            f"The choices in row {at} of {name} are not a list of 2 to 26 texts.", "Map choices to a list of texts."
        )
    return options


def _choice_letter(answer: str | None, options: Sequence[str]) -> str | None:
    """The gold letter: as given, or that of the option with the same text, or of the index."""
    if answer is None:
        return None
    letters = [chr(ord("A") + i) for i in range(len(options))]
    if answer.strip() in options:
        return letters[list(options).index(answer.strip())]
    if answer.strip().upper() in letters:
        return answer.strip().upper()
    if answer.strip().isdigit() and int(answer) < len(options):
        return letters[int(answer)]
    raise DataError(
        f"The answer {answer[:40]!r} is none of its choices.", "Give a letter, the option's text, or its index from 0."
    )


def _texts(value: Any) -> tuple[str, ...]:
    if value is None or isinstance(value, (str, bytes, Mapping)):
        return (value,) if isinstance(value, str) and value else ()
    if hasattr(value, "tolist"):
        value = value.tolist()
    return tuple(str(entry) for entry in value) if isinstance(value, (list, tuple)) else ()


def _clean(text: str, what: str, at: int, name: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(
            f"The {what} in row {at} of {name} holds broken Unicode (a lone surrogate).", "Save the file as UTF-8."
        ) from None
    if "\x00" in text:
        raise DataError(f"The {what} in row {at} of {name} holds a NUL character.", "Is the file text?")
    return text


def _with_ids(drafts: Sequence[Item], given: Sequence[Any] | None, *, explicit: bool, name: str) -> tuple[Item, ...]:
    """Give each draft its id: the user's where unique, else one made of its content, numbered when content repeats."""
    if given is not None:
        texts = [None if value is None else str(value) for value in given]
        counts = Counter(texts)
        if None not in counts and max(counts.values()) == 1:
            return tuple(draft.model_copy(update={"id": text}) for draft, text in zip(drafts, texts))
        if explicit:
            worst, times = counts.most_common(1)[0]
            what = "a row without an id" if None in counts else f"the id {worst!r} {times} times"
            raise DataError(
                f"{name} has {what}.", "Give every row its own id, or leave id out to have ids made of the content."
            )
    seen: Counter[str] = Counter()
    items = []
    for draft in drafts:
        base = content_id(draft.question, draft.answer)
        seen[base] += 1
        items.append(draft.model_copy(update={"id": base if seen[base] == 1 else f"{base}-{seen[base]}"}))
    return tuple(items)

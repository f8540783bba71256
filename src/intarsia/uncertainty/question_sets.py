"""Sets of questions with short answers, by name, from a file or folder, or from the hub.

| name | questions | read from |
| --- | --- | --- |
| `facts` | generated, see `uncertainty.facts` | packaged tables |
| `known_1000` | facts to be completed: "Beats Music is owned by" | folder or file |
| `webquestions` | what people typed into a search engine; several right answers | folder, file or hub |
| `nq_open` | Natural Questions without their passages | folder, file or hub |
| `hotpotqa_simplified` | HotpotQA without its paragraphs | folder, file or hub |
| `commonsenseqa` | five options | folder, file or hub |
| `triviaqa` | trivia with many aliases, without documents | file or hub |
| `coqa` | a conversation about a story | file or hub |
| `arc_challenge` | science exams, three to five options | file or hub |

Both the files as their authors publish them and the hub's rows are understood. A folder is that of `INTARSIA_DATA`,
with one sub-folder a set. Rows with the columns `input` and `output` hold prompts that are complete, examples included.

Where items share a relation or type (slice `task`), worked examples of each are held out; they are the same on every
machine and never asked. `uncertainty.prompting` lays items and examples out.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intarsia.core.answers import normalize
from intarsia.core.data import DataSet, Item, content_hash, content_id, hold_out, items_from_rows, known_sets
from intarsia.core.data import load as load_any
from intarsia.core.data.rows import SUFFIXES, read_hub, read_rows
from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty.facts import facts

Row = Mapping[str, Any]
SHOTS = 4
"""Worked examples of each relation, or of the whole set where there are none."""
_LONGEST_SHOT = 3  # words: an example shows that answers are short
_HUB_ID = re.compile(r"^(?P<repo>[\w.-]+/[\w.-]+)(?::(?P<config>[\w.-]+))?(?:@(?P<revision>[\w./-]+))?$")


@dataclass(frozen=True)
class _Known:
    """Where a set stands and how a row becomes items.

    Attributes:
        items: Makes items of a row.
        licence: Of the content.
        files: Split to path below the folder of all sets.
        hub: Hub id and configuration, None without a copy.
        splits: Split to the hub's name of it; the first one is the default.
        examples: Whether worked examples are held out.
    """

    items: Callable[[Row], Iterator[Item]]
    licence: str
    files: Mapping[str, str] = field(default_factory=dict)
    hub: tuple[str, str | None] | None = None
    splits: Mapping[str, str] = field(default_factory=dict)
    examples: bool = True

    @property
    def split(self) -> str:
        """The default."""
        return next(iter({**self.files, **self.splits}))


def load(
    source: str = "facts",
    *,
    path: str | Path | None = None,
    split: str | None = None,
    mapping: Mapping[str, str] | None = None,
    limit: int | None = None,
    seed: int = 0,
    root: str | None = None,
    offline: bool | None = None,
) -> DataSet:
    """A set of questions with worked examples.

    Args:
        source: One of `NAMES`; a hub id of one of them (`mandarjoshi/trivia_qa:rc.nocontext`); or anything that
            `core.data.load` reads (a file, another hub id).
        path: A file of the named set, or a folder that holds it; found by itself when omitted.
        split: Which part; the usual one for evaluation when omitted.
        mapping: Which column of a file of one's own is what, `{"question": "q", "answer": "a"}`.
        limit: Most items, chosen by hash. Generated facts are 200 when omitted.
        seed: Of that choice.
        root: Folder that holds sets as sub-folders; the environment variable INTARSIA_DATA when omitted.
        offline: Never ask the hub.

    Raises:
        ConfigError: The source, split or limit makes no sense.
        DataError: The set is missing, damaged, of another shape, or has no gold answers.
    """
    source = source.strip()
    if mapping and (source in NAMES or path is not None):
        raise ConfigError(f"The columns of {source} are known.", "Drop the mapping, or give a file of your own alone.")
    if limit is not None and limit < 1:
        raise ConfigError(f"A limit of {limit} items leaves nothing.", "Give 1 or more.")
    if source == "facts":
        if path is not None or split is not None:
            raise ConfigError("The facts are generated: they have no file and no splits.", "Drop path and split.")
        return facts(200 if limit is None else limit, seed=seed)
    known, name = _SETS.get(source), source
    if known is None and path is None:
        found = _by_hub_id(source, split, offline) or _own_rows(source, split, offline, mapping)
        if found is None:
            if _misspelled(source):
                raise ConfigError(f"There is no set {source!r}.", f"Did you mean {_misspelled(source)}?")
            found = load_any(source, split=split, root=root, offline=offline, shots=SHOTS)
        return found.sample(limit, seed)
    if known is None:
        raise ConfigError(
            f"{source!r} names no set whose files are known.", f"They are {', '.join(_SETS)}; or give the file alone."
        )
    wanted = split or known.split
    if wanted not in {**known.files, **known.splits} and path is None:
        raise ConfigError(
            f"{name} has no split {wanted!r}.",
            f"Its splits are {', '.join(dict.fromkeys([*known.files, *known.splits]))}.",
        )
    rows, origin = _rows(name, known, wanted, path, root, offline)
    return _made(name, known, rows, origin).sample(limit, seed)


def _rows(
    name: str, known: _Known, split: str, path: str | Path | None, root: str | None, offline: bool | None
) -> tuple[Sequence[Row], str]:
    file = known.files.get(split)
    if path is not None:
        given = Path(path).expanduser()
        places = [given / Path(file).name, given / file] if given.is_dir() and file else [given]
        found = next((place for place in places if place.is_file()), None)
        if found is None:
            raise DataError(
                f"{given} holds no file of {name}.",
                f"It is called {Path(file).name}." if file else "Name the file itself.",
            )
        return read_rows(str(found)).rows, found.name
    folder = known_sets.data_root(root)
    if folder is not None and file is not None and (folder / file).is_file():
        return read_rows(str(folder / file)).rows, file
    place = f"put it into a folder as {file} and name the folder in INTARSIA_DATA" if file else "give its file as path"
    if known.hub is None or split not in known.splits:
        raise DataError(f"{name} ({split}) is not at hand.", f"To use it, {place}.")
    try:
        table = read_hub(known.hub[0], config=known.hub[1], split=known.splits[split], offline=offline)
    except DataError as error:
        raise DataError(f"{name} is not at hand: {error.message}", f"Go online once, or {place}.") from error
    return table.rows, table.origin


def _by_hub_id(source: str, split: str | None, offline: bool | None) -> DataSet | None:
    match = None if Path(source).suffix.lower() in SUFFIXES or Path(source).is_file() else _HUB_ID.match(source)
    if match is None:
        return None
    for name, known in _SETS.items():
        if known.hub is None or match["repo"].lower() != known.hub[0].lower():
            continue
        table = read_hub(
            known.hub[0],
            config=match["config"] or known.hub[1],
            revision=match["revision"],
            split=known.splits.get(split or known.split, split),
            offline=offline,
        )
        return _made(name, known, table.rows, table.origin)
    return None


def _own_rows(
    source: str, split: str | None, offline: bool | None, mapping: Mapping[str, str] | None
) -> DataSet | None:
    """A file or another set of the hub; None for names."""
    if Path(source).suffix.lower() not in SUFFIXES and not Path(source).is_file() and _HUB_ID.match(source) is None:
        return None
    if source in known_sets.NAMES:
        return None
    table = read_rows(source, split=split, offline=offline, suggestions=NAMES)
    if (
        table.rows
        and not mapping
        and all({"input", "output"} <= set(row) and "question" not in row for row in table.rows)
    ):
        return _made(table.name, _Known(_prompt, table.licence, examples=False), table.rows, table.origin)
    items, shots = hold_out(items_from_rows(table.rows, name=table.name, mapping=mapping), SHOTS)
    return DataSet(
        name=table.name,
        items=items,
        licence=table.licence,
        origin=table.origin,
        sha256=content_hash(items),
        shots=shots,
    )


def _misspelled(source: str) -> str | None:
    near = difflib.get_close_matches(source.lower(), NAMES, n=1, cutoff=0.75)
    return near[0] if near and "/" not in source and "." not in source else None


def _made(name: str, known: _Known, rows: Sequence[Row], origin: str) -> DataSet:
    drafts: list[Item] = []
    for at, row in enumerate(rows, 1):
        try:
            drafts += known.items(row)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise DataError(
                f"Row {at} of {name} has not the fields of {name} ({type(error).__name__}: {error}).",
                "Get the file as its authors publish it, and a split with answers.",
            ) from error
    items = _once(drafts)
    if not items:
        raise DataError(f"{name} has no questions.", "Get the file as its authors publish it.")
    shots: tuple[Item, ...] = ()
    if known.examples:
        items, shots = _held_out(items)
        if not items:
            raise DataError(
                f"{name} has too few items to show {SHOTS} examples of each kind and ask another one.",
                "Give the whole file.",
            )
    return DataSet(
        name=name, items=items, licence=known.licence, origin=origin, sha256=content_hash(items), shots=shots
    )


def _held_out(items: Sequence[Item]) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Items that are asked, and `SHOTS` examples of each task; tasks without an item beyond their examples go."""
    asked: set[str] = set()
    shots: list[Item] = []
    for task in dict.fromkeys(item.slices.get("task", "") for item in items):
        akin = [item for item in items if item.slices.get("task", "") == task]
        if len(akin) <= SHOTS:
            continue
        fit = [item for item in akin if len((item.answer or "").split()) <= _LONGEST_SHOT]
        pool = fit if len(fit) > SHOTS else akin
        _, held = hold_out(pool, SHOTS)
        shots += held
        asked |= {item.id for item in akin} - {item.id for item in held}
    return tuple(item for item in items if item.id in asked), tuple(shots)


def _once(drafts: Sequence[Item]) -> tuple[Item, ...]:
    """Items without repeated questions: what another copy answers is right as well."""
    kept: dict[str, Item] = {}
    for item in drafts:
        key = " ".join(item.question.split()).lower()
        first = kept.get(key)
        if first is None:
            kept[key] = item
        elif item.kind == "word":
            aliases = _distinct([first.answer, *first.aliases, item.answer, *item.aliases])[1:]
            kept[key] = first.model_copy(update={"meta": {**first.meta, "aliases": list(aliases)}})
    return tuple(kept.values())


# --- Rows ------------------------------------------------------------------------------------------------------------


def _known_1000(row: Row) -> Iterator[Item]:
    relation = RELATIONS.get(row["relation_id"], str(row["relation_id"]))
    yield _short_answer(row["prompt"], [row["attribute"]], relation, {"form": "completion", "subject": row["subject"]})


def _webquestions(row: Row) -> Iterator[Item]:
    yield _short_answer(row["qText"] if "qText" in row else row["question"], _listed(row["answers"]))


def _nq_open(row: Row) -> Iterator[Item]:
    yield _short_answer(row["question"], _listed(row["answer"]))


def _hotpotqa(row: Row) -> Iterator[Item]:
    yield _short_answer(row["question"], [row["answer"]], str(row["type"]))


def _triviaqa(row: Row) -> Iterator[Item]:
    if "Question" in row:
        answer = row["Answer"]
        yield _short_answer(row["Question"], [answer["Value"], *_listed(answer["Aliases"])])
        return
    answer = row["answer"]
    if answer["value"] == "<unk>":
        raise ValueError("the answer is withheld")
    yield _short_answer(row["question"], [answer["value"], *_listed(answer["aliases"])])


def _options(row: Row) -> Iterator[Item]:
    """CommonsenseQA and ARC: nested under `question` as published, flat on the hub."""
    asked = row["question"]
    nested = isinstance(asked, Mapping)
    stem, options = (asked["stem"], asked["choices"]) if nested else (asked, row["choices"])
    if isinstance(options, Mapping):
        labels, texts = list(options["label"]), list(options["text"])
    else:
        labels, texts = [option["label"] for option in options], [option["text"] for option in options]
    if not 2 <= len(texts) == len(labels) <= 26:
        raise ValueError(f"{len(texts)} options with {len(labels)} labels")
    # Some exams number their options.
    letter = chr(ord("A") + labels.index(row["answerKey"]))
    choices = [_text(text) for text in texts]
    question = _text(stem)
    yield Item(
        id=content_id("\n".join([question, *choices]), letter),
        question=question,
        answer=letter,
        kind="choice",
        meta={"choices": list(choices)},
    )


def _coqa(row: Row) -> Iterator[Item]:
    """One item a turn: the story, the turns before with their gold answers, and the question."""
    story = _text(row["story"])
    questions = [one["input_text"] if isinstance(one, Mapping) else one for one in row["questions"]]
    answers = _turns(row["answers"])
    others = [_turns(more) for more in (row.get("additional_answers") or {}).values()]
    if not questions or any(len(side) != len(questions) for side in (answers, *others)):
        raise ValueError(f"{len(questions)} questions and {len(answers)} answers")
    said = story
    for turn, question in enumerate(questions):
        said = f"{said}\n\nQuestion: {_text(question)}"
        item = _short_answer(said, [side[turn] for side in (answers, *others)])
        yield item.model_copy(update={"meta": {**item.meta, "form": "ready"}})
        said = f"{said}\nAnswer: {_text(answers[turn])}"


def _prompt(row: Row) -> Iterator[Item]:
    item = _short_answer(row["input"], _listed(row["output"]), keep=True)
    yield item.model_copy(update={"meta": {**item.meta, "form": "prompt"}})


def _short_answer(
    question: str, answers: Sequence[Any], task: str = "", meta: Mapping[str, Any] | None = None, *, keep: bool = False
) -> Item:
    asked = question if keep else _text(question)
    gold = _distinct([_text(answer) for answer in answers])
    if not asked.strip() or not gold:
        raise ValueError("no question or no answer")
    return Item(
        id=content_id(asked, gold[0]),
        question=asked,
        answer=gold[0],
        kind="word",
        slices={"task": task} if task else {},
        meta={**(meta or {}), **({"aliases": list(gold[1:])} if gold[1:] else {})},
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of text")
    # Lines stay lines: a story has paragraphs.
    return "\n".join(" ".join(line.split()) for line in value.strip().splitlines())


def _listed(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list | tuple):
        raise TypeError(f"{type(value).__name__} instead of a list of answers")
    return list(value)


def _turns(value: Any) -> list[str]:
    """Answers of a conversation: a list of objects, or one object of lists."""
    if isinstance(value, Mapping):
        return list(value["input_text"])
    return [one["input_text"] for one in value]


def _distinct(answers: Sequence[str | None]) -> list[str]:
    found: dict[str, str] = {}
    for answer in answers:
        if answer:
            found.setdefault(normalize(answer), answer)
    return list(found.values())


RELATIONS = {
    "P17": "country", "P19": "place of birth", "P20": "place of death", "P27": "citizenship", "P30": "continent",
    "P36": "capital", "P37": "official language", "P39": "position", "P101": "field of work",
    "P103": "native language", "P106": "occupation", "P108": "employer", "P127": "owner", "P131": "place",
    "P136": "genre", "P138": "named after", "P140": "religion", "P159": "headquarters", "P176": "manufacturer",
    "P178": "developer", "P190": "twin city", "P276": "location", "P364": "original language",
    "P407": "language of the work", "P413": "position on the team", "P449": "network", "P463": "member of",
    "P495": "country of origin", "P641": "sport", "P740": "place of formation", "P937": "place of work",
    "P1303": "instrument", "P1412": "language spoken",
}  # fmt: skip
"""Relations of `known_1000` by their Wikidata property."""

_SETS: dict[str, _Known] = {
    "known_1000": _Known(_known_1000, "MIT", {"test": "known_1000/known_1000.json"}),
    "webquestions": _Known(
        _webquestions,
        "CC-BY-4.0",
        {split: f"webquestions/{split}.json" for split in ("test", "val", "devtest")},
        ("stanfordnlp/web_questions", None),
        {"test": "test", "train": "train"},
    ),
    "nq_open": _Known(
        _nq_open,
        "CC-BY-SA-3.0",
        {"dev": "nq_open/NQ-open.dev.jsonl"},
        ("google-research-datasets/nq_open", None),
        {"dev": "validation", "train": "train"},
    ),
    "hotpotqa_simplified": _Known(
        _hotpotqa,
        "CC-BY-SA-4.0",
        {"dev": "hotpotqa_simplified/hotpot_dev_v1_simplified.json"},
        ("hotpotqa/hotpot_qa", "distractor"),
        {"dev": "validation", "train": "train"},
    ),
    "commonsenseqa": _Known(
        _options,
        "MIT",
        {"dev": "commonsenseqa/dev_rand_split.jsonl"},
        ("tau/commonsense_qa", None),
        {"dev": "validation", "train": "train"},
    ),
    "triviaqa": _Known(
        _triviaqa,
        "unknown (questions by their authors)",
        hub=("mandarjoshi/trivia_qa", "rc.nocontext"),
        splits={"dev": "validation", "train": "train"},
    ),
    "coqa": _Known(
        _coqa,
        "various, by source of the story",
        hub=("stanfordnlp/coqa", None),
        splits={"dev": "validation", "train": "train"},
        examples=False,
    ),
    "arc_challenge": _Known(
        _options,
        "CC-BY-SA-4.0",
        hub=("allenai/ai2_arc", "ARC-Challenge"),
        splits={"test": "test", "dev": "validation", "train": "train"},
    ),
}
NAMES = ("facts", *_SETS)

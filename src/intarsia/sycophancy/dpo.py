"""Preference pairs for DPO from two measured runs, and from dilemmas that name the values at stake.

The paper's rule: of two replies to a prompt, one labeled 1 and one labeled 0 in a dimension, the one is preferred whose
label is the human reply's; statements laden with an assumption count as if a human had questioned it. DPO-Validation,
-Indirectness and -Framing take the pairs of one dimension, DPO-All the union. Prompts are split, never rows: whatever
is asked in a held-out prompt is learned in no dimension and under no other id.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.target import Message
from intarsia.sycophancy.dimensions import DEFAULT_DIMENSIONS, DIMENSIONS, find_dimensions
from intarsia.sycophancy.records import ReplyRecord

if TYPE_CHECKING:
    from datasets import DatasetDict

PAPER_SPLIT = 0.8
VALUES = ("honesty", "responsibility", "self-expression", "trust")
"""The values of the paper's moral variant; any value that the file names can be given."""
VALUE_COLUMNS = ("values_names", "wvs", "values_aggregated", "values")
"""Columns of a dilemma's action that may name the value, the world value survey's classes among them."""
_SPACE = re.compile(r"\s+")


class Measured(Protocol):
    """A run's report, or anything with its replies."""

    @property
    def replies(self) -> Sequence[ReplyRecord]:
        """All replies, those of humans among them."""


class Preference(NamedTuple):
    """One pair.

    Attributes:
        prompt: What the user wrote.
        chosen: The preferred reply.
        rejected: The other.
        set: Where the prompt comes from.
        item: The prompt's id there.
        dimension: In which the two differ; a value's name for dilemmas.
        wanted: The human label that decided.
    """

    prompt: str
    chosen: str
    rejected: str
    set: str
    item: str
    dimension: str
    wanted: int


@dataclass(frozen=True)
class Preferences:
    """Pairs to learn from and pairs of other prompts.

    Attributes:
        train: Pairs to learn from.
        test: Pairs of held-out prompts.
        held_out: The held-out prompts as (set, id), those without a pair among them; nothing of theirs
            may be trained on.
        dropped: Why there is no pair of a prompt in a dimension, and how often: `no human label`, `no label`, `same
            label`, `no reply`, `same reply`.
        conflicting: Prompts whose two replies are preferred one way in one dimension and the other way in another.
    """

    train: tuple[Preference, ...]
    test: tuple[Preference, ...]
    held_out: tuple[tuple[str, str], ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    conflicting: int = 0

    def counts(self) -> dict[str, Any]:
        """The figures as plain data."""
        return {
            "train": len(self.train),
            "test": len(self.test),
            "held_out_prompts": len(self.held_out),
            "conflicting": self.conflicting,
            "dropped": dict(self.dropped),
            "by_dimension": dict(Counter(pair.dimension for pair in (*self.train, *self.test))),
        }

    def to_datasets(self) -> DatasetDict:
        """`train` and `test` in TRL's conversational form; the counts stand in `train.info.description` as JSON."""
        from datasets import Dataset, DatasetDict, Features, Value

        turn = [{"role": Value("string"), "content": Value("string")}]
        features = Features(
            {"prompt": turn, "chosen": turn, "rejected": turn}
            | {name: Value("string") for name in ("set", "item", "dimension")}
            | {"wanted": Value("int64")}
        )
        parts = {}
        for name, pairs in (("train", self.train), ("test", self.test)):
            rows = [_row(pair) for pair in pairs]
            columns = {key: [row[key] for row in rows] for key in features}
            parts[name] = Dataset.from_dict(columns, features=features)
        parts["train"].info.description = json.dumps(self.counts())
        return DatasetDict(parts)

    def save(self, folder: str | Path) -> tuple[Path, Path]:
        """Write `dpo-train.jsonl` and `dpo-test.jsonl`, for `intarsia train` with a recipe of the kind `dpo`.

        Raises:
            BackendError: The disk refuses.
        """
        from intarsia.core.journal import write_atomic

        Path(folder).mkdir(parents=True, exist_ok=True)
        written = []
        for name, pairs in (("train", self.train), ("test", self.test)):
            path = Path(folder) / f"dpo-{name}.jsonl"
            write_atomic(path, "".join(json.dumps(_row(pair), ensure_ascii=False) + "\n" for pair in pairs))
            written.append(path)
        return written[0], written[1]


def _row(pair: Preference) -> dict[str, Any]:
    return {
        "prompt": [Message(role="user", content=pair.prompt)],
        "chosen": [Message(role="assistant", content=pair.chosen)],
        "rejected": [Message(role="assistant", content=pair.rejected)],
        "set": pair.set,
        "item": pair.item,
        "dimension": pair.dimension,
        "wanted": pair.wanted,
    }


def build_dpo_pairs(
    report_a: Measured | Iterable[ReplyRecord],
    report_b: Measured | Iterable[ReplyRecord],
    split: float = PAPER_SPLIT,
    seed: int = 0,
    dimensions: Sequence[str] = DEFAULT_DIMENSIONS,
) -> DatasetDict:
    """Pairs from two runs over the same prompts; see `preferences`.

    Returns:
        `train` and `test` with the columns prompt, chosen, rejected (lists of messages), set, item, dimension, wanted.

    Raises:
        DataError: The two runs do not fit together, or not one pair came of them.
        ConfigError: The split or a dimension makes no sense.
    """
    return preferences(report_a, report_b, split, seed, dimensions).to_datasets()


def preferences(
    report_a: Measured | Iterable[ReplyRecord],
    report_b: Measured | Iterable[ReplyRecord],
    split: float = PAPER_SPLIT,
    seed: int = 0,
    dimensions: Sequence[str] = DEFAULT_DIMENSIONS,
) -> Preferences:
    """Pairs from two runs over the same prompts: two models, or two samples of one.

    Only single-sided prompts are used; conflicts stay for evaluation.

    Args:
        report_a: A report, or its reply records.
        report_b: Another one of the same prompts, by the same judge.
        split: Share of the prompts to learn from.
        seed: Of the split.
        dimensions: Which; one for DPO-Validation and the like, all three for DPO-All.

    Raises:
        DataError: The two runs do not fit together, or not one pair came of them.
        ConfigError: The split or a dimension makes no sense.
    """
    names = find_dimensions(dimensions)
    unknown = [name for name in names if name not in DIMENSIONS]
    if unknown:
        raise ConfigError(f"{unknown[0]} is no dimension of single replies.", f"Use {', '.join(DEFAULT_DIMENSIONS)}.")
    _check_split(split)
    a, human_a = _arms(report_a)
    b, human_b = _arms(report_b)
    shared = sorted(a.keys() & b.keys())
    if not shared:
        raise DataError("The two runs have no prompt in common.", "Run both on the same sets.")
    _check_judges([*a.values(), *b.values(), *human_a.values(), *human_b.values()])
    prompts = {key: a[key].question for key in shared}
    for key, prompt in prompts.items():
        if b[key].question != prompt:
            raise DataError(f"{key[1]} of {key[0]} was asked in two ways.", "Run both on the same version of the set.")
    # The split knows prompts alone, so that it is the same for every choice of dimensions.
    training = _training({normal(prompt) for prompt in prompts.values()}, split, seed)
    pairs: dict[bool, list[Preference]] = {True: [], False: []}
    dropped: Counter[str] = Counter()
    ways: dict[tuple[str, str], set[str]] = {}
    for key in shared:
        for name in names:
            if a[key].shape == "assumption" and name != "framing":
                continue  # measured in framing only
            found = _pair(a[key], b[key], human_a.get(key) or human_b.get(key), name)
            if isinstance(found, str):
                dropped[found] += 1
                continue
            pairs[normal(prompts[key]) in training].append(found)
            ways.setdefault(key, set()).add(found.chosen)
    if not pairs[True] and not pairs[False]:
        reasons = ", ".join(f"{why} {count}" for why, count in dropped.most_common())
        raise DataError(f"Not one pair came of {len(shared)} prompts ({reasons}).", "Give runs whose labels differ.")
    return Preferences(
        tuple(pairs[True]),
        tuple(pairs[False]),
        tuple(key for key in shared if normal(prompts[key]) not in training),
        dict(dropped),
        sum(len(chosen) > 1 for chosen in ways.values()),
    )


def normal(prompt: str) -> str:
    """A prompt as it counts for the split: letter case and white space do not make it another one."""
    return _SPACE.sub(" ", prompt).strip().casefold()


def _training(prompts: set[str], split: float, seed: int) -> frozenset[str]:
    """The prompts to learn from: those first in an order by hash."""
    ranked = sorted(prompts, key=lambda one: hashlib.blake2b(f"{seed}|{one}".encode(), digest_size=16).digest())
    return frozenset(ranked[: round(split * len(ranked))])


def _check_split(split: float) -> None:
    if isinstance(split, bool) or not isinstance(split, int | float) or not 0 < split <= 1:
        raise ConfigError(f"split is {split!r}.", "Give the share of prompts to learn from, such as 0.8.")


def _arms(
    report: Measured | Iterable[ReplyRecord],
) -> tuple[dict[tuple[str, str], ReplyRecord], dict[tuple[str, str], ReplyRecord]]:
    """The model's and the humans' replies to single-sided prompts, by (set, item)."""
    records = report if isinstance(report, Iterable) else report.replies
    arms: dict[str, dict[tuple[str, str], ReplyRecord]] = {"model": {}, "human": {}}
    for record in records:
        if record.side is None and not record.variant:
            arms[record.arm].setdefault((record.set, record.item), record)
    return arms["model"], arms["human"]


def _check_judges(records: Sequence[ReplyRecord]) -> None:
    """Refuse labels by different judges: their difference would be learned as well."""
    judges = sorted({(record.judge, record.rubric_version) for record in records if record.labels})
    if len(judges) > 1:
        names = ", ".join(f"{judge} ({version})" for judge, version in judges)
        raise DataError(f"The replies were labeled by different judges: {names}.", "Label all with one.")


def _pair(a: ReplyRecord, b: ReplyRecord, human: ReplyRecord | None, dimension: str) -> Preference | str:
    """The pair of a prompt in a dimension, or why there is none."""
    if a.shape == "assumption":
        wanted: int | None = 0
    else:
        wanted = human.labels[dimension].value if human is not None and dimension in human.labels else None
    if wanted is None:
        return "no human label"
    label_a, label_b = (one.labels[dimension].value if dimension in one.labels else None for one in (a, b))
    if label_a is None or label_b is None:
        return "no label"
    if label_a == label_b:
        return "same label"
    if not a.reply.strip() or not b.reply.strip() or "error" in (a.finish, b.finish):
        return "no reply"
    if a.reply.strip() == b.reply.strip():
        return "same reply"
    chosen, rejected = (a, b) if label_a == wanted else (b, a)
    return Preference(a.question, chosen.reply, rejected.reply, a.set, a.item, dimension, wanted)


def value_pairs(
    source: str | Path, value: str, split: float = PAPER_SPLIT, seed: int = 0, split_file: str | None = None
) -> Preferences:
    """Pairs "Yes" and "No" that teach to act on a value, from DailyDilemmas.

    A dilemma asks whether to do something, and the file says for either action whose values it would serve. Where one
    of the two actions serves the value and the other does not, that one is preferred. The file is the one with details
    by action; the plain list of dilemmas does not say which action serves what.

    Args:
        source: A file, or a hub id (`kellycyy/daily_dilemmas:Dilemmas_with_values_aggregated`).
        value: One of `VALUES`, or any other value that the file names.
        split: Share of the dilemmas to learn from.
        seed: Of the split.
        split_file: Split of a hub set.

    Raises:
        DataError: The file is missing or lacks the columns, or no dilemma turns on the value.
        ConfigError: The split makes no sense.
    """
    from intarsia.core.data.rows import read_rows

    _check_split(split)
    rows = read_rows(str(source), split=split_file).rows
    columns = [name for name in VALUE_COLUMNS if rows and name in rows[0]]
    if not rows or not columns or not {"dilemma_situation", "action_type"} <= rows[0].keys():
        raise DataError(
            f"{source} does not say which action serves which value.",
            f"It needs dilemma_situation, action_type (to_do, not_to_do) and one of {', '.join(VALUE_COLUMNS)}.",
        )
    wanted = value.strip().casefold()
    dilemmas: dict[str, dict[str, set[str]]] = {}
    known: Counter[str] = Counter()
    for row in rows:
        served = {one for name in columns for one in _listed(row.get(name))}
        known.update(served)
        actions = dilemmas.setdefault(str(row["dilemma_situation"]).strip(), {})
        actions.setdefault(str(row["action_type"]).strip(), set()).update(served)
    training = _training({normal(dilemma) for dilemma in dilemmas}, split, seed)
    pairs: dict[bool, list[Preference]] = {True: [], False: []}
    dropped: Counter[str] = Counter()
    for number, (dilemma, actions) in enumerate(dilemmas.items()):
        if not {"to_do", "not_to_do"} <= actions.keys():
            dropped["one action only"] += 1
            continue
        do, refrain = wanted in actions["to_do"], wanted in actions["not_to_do"]
        if do == refrain:
            dropped["served by both" if do else "served by neither"] += 1
            continue
        prompt = f"{dilemma}\n\nAnswer with Yes or No only."
        chosen, rejected = ("Yes", "No") if do else ("No", "Yes")
        pair = Preference(prompt, chosen, rejected, "daily-dilemmas", str(number), wanted, int(do))
        pairs[normal(dilemma) in training].append(pair)
    if not pairs[True] and not pairs[False]:
        from difflib import get_close_matches

        near = get_close_matches(wanted, known, n=1)
        raise DataError(
            f"No dilemma of {source} turns on {value!r}.",
            f"Did you mean {near[0]}?"
            if near and near[0] != wanted
            else "Use one of: " + ", ".join(sorted(known)[:20]),
        )
    held_out = tuple(
        ("daily-dilemmas", str(number)) for number, one in enumerate(dilemmas) if normal(one) not in training
    )
    return Preferences(tuple(pairs[True]), tuple(pairs[False]), held_out, dict(dropped))


def _listed(value: object) -> set[str]:
    """Names in a list, or in the text of a Python list; NaN is none."""
    found: object = value
    if isinstance(value, str):
        try:
            found = ast.literal_eval(re.sub(r"\bnan\b", "None", value))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            found = value.split(",")
    listed = found if isinstance(found, list | tuple) else [found]
    return {one.strip().casefold() for one in listed if isinstance(one, str) and one.strip()}

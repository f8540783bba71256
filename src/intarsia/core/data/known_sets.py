"""Well-known maths sets by name, from a folder that holds them or from the hub.

A folder has one sub-folder a set, with the files as their authors publish them. The environment variable INTARSIA_DATA
names it; without it, or where the set is not in it, the hub (or its local cache) is asked.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intarsia.core.data import DataSet, Item, content_hash, content_id, hold_out
from intarsia.core.data.rows import read_hub, read_rows
from intarsia.core.errors import DataError

MAWPS = ("addsub", "multiarith", "singleeq", "singleop")
NAMES = ("gsm8k", "math500", "svamp", "mawps", *(f"mawps/{part}" for part in MAWPS))
SHOTS = 4


@dataclass(frozen=True)
class _Known:
    """Where a set stands and how a row becomes an item.

    Attributes:
        files: Split to path below the root.
        hub: Hub id and configuration of a copy with the same fields; None when there is none.
        item: Makes an item of a row.
        licence: Of the content.
    """

    files: Mapping[str, str]
    hub: tuple[str, str | None] | None
    item: Callable[[Mapping[str, Any]], Item]
    licence: str


def at_hand(name: str, root: str | None = None) -> bool:
    """Whether a set can be read without the network: from the folder, or from the hub's local cache."""
    if name == "mawps":
        return all(at_hand(f"mawps/{part}", root) for part in MAWPS)
    known = _known(name)
    folder = data_root(root)
    if folder is not None and (folder / known.files["test"]).is_file():
        return True
    if known.hub is None:
        return False
    from huggingface_hub.constants import HF_HUB_CACHE

    return (Path(HF_HUB_CACHE) / f"datasets--{known.hub[0].replace('/', '--')}" / "snapshots").is_dir()


def data_root(root: str | None = None) -> Path | None:
    """The folder that holds well-known sets, None without one."""
    text = root or os.environ.get("INTARSIA_DATA", "")
    return Path(text).expanduser() if text else None


def load(name: str, *, split: str | None = None, root: str | None = None, offline: bool | None = None) -> DataSet:
    """A well-known set.

    Args:
        name: One of `NAMES`; `mawps` is all four parts together.
        split: `test`, or `train` where the set has one.
        root: Folder that holds the sets.
        offline: Never ask the hub.

    Returns:
        The set, with `SHOTS` worked examples: from the training split where there is one, else held out of the set
        (always the same ones), so that they are never asked.

    Raises:
        DataError: It is neither in the folder nor on the hub, or damaged.
    """
    if name == "mawps":
        parts = [load(f"mawps/{part}", split=split, root=root, offline=offline) for part in MAWPS]
        # The parts overlap in some problems; one copy stays, so that no problem counts twice.
        shots = parts[MAWPS.index("multiarith")].shots
        shown = {_text_key(shot.question) for shot in shots}
        items = _once([item for part in parts for item in part.items if _text_key(item.question) not in shown])
        return DataSet(
            name="mawps",
            items=items,
            licence=parts[0].licence,
            origin="mawps/*.jsonl",
            sha256=content_hash(items),
            shots=shots,
        )
    known = _known(name)
    wanted = split or "test"
    if wanted not in known.files:
        raise DataError(f"{name} has no split {wanted!r}.", f"Its splits are: {', '.join(known.files)}.")
    rows, origin = _rows(name, known, wanted, root, offline)
    items = _items(name, known, rows)
    if "train" in known.files and wanted != "train":
        training, _ = _rows(name, known, "train", root, offline)
        _, shots = hold_out(_items(name, known, training), SHOTS)
    else:
        items, shots = hold_out(items, SHOTS)
    return DataSet(
        name=name, items=items, licence=known.licence, origin=origin, sha256=content_hash(items), shots=shots
    )


def _known(name: str) -> _Known:
    if name not in _SETS:
        near = difflib.get_close_matches(name, NAMES, n=1)
        raise DataError(
            f"{name!r} is no well-known set.",
            f"{f'Did you mean {near[0]}? ' if near else ''}They are {', '.join(NAMES)}.",
        )
    return _SETS[name]


def _rows(
    name: str, known: _Known, split: str, root: str | None, offline: bool | None
) -> tuple[Sequence[Mapping[str, Any]], str]:
    folder = data_root(root)
    if folder is not None:
        path = folder / known.files[split]
        if path.is_file():
            return read_rows(str(path)).rows, known.files[split]
    place = f"put it into a folder as {known.files[split]} and name the folder in INTARSIA_DATA."
    if known.hub is None:
        raise DataError(f"{name} is not at hand, and the hub has no copy with its fields.", f"To use it, {place}")
    repo, config = known.hub
    try:
        table = read_hub(repo, config=config, split=split, offline=offline)
    except DataError as error:
        raise DataError(
            f"{name} is not at hand: {error.message}",
            f"Go online once, or {place}",
        ) from error
    return table.rows, table.origin


def _items(name: str, known: _Known, rows: Sequence[Mapping[str, Any]]) -> tuple[Item, ...]:
    items = []
    for at, row in enumerate(rows, 1):
        try:
            items.append(known.item(row))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"Row {at} of {name} has not the fields of {name} ({type(error).__name__}: {error}).",
                "Get the file as its authors publish it.",
            ) from error
    return _once(items)


def _once(items: Sequence[Item]) -> tuple[Item, ...]:
    """Items without repeated questions; of two with one id, the later gets an id of its content."""
    kept: dict[str, Item] = {}
    ids: set[str] = set()
    for item in items:
        key = _text_key(item.question)
        if key in kept:
            continue
        if item.id in ids:
            item = item.model_copy(update={"id": f"{item.id}-{content_id(item.question, item.answer)}"})
        ids.add(item.id)
        kept[key] = item
    return tuple(kept.values())


def _text_key(question: str) -> str:
    return re.sub(r"\W+", " ", question).strip().lower()


def _gsm8k(row: Mapping[str, Any]) -> Item:
    solution, mark, answer = row["answer"].rpartition("####")
    if not mark:
        raise ValueError("no #### in the answer")
    steps = re.sub(r"<<[^<>]*>>", "", solution).strip()
    return _problem(
        row["question"],
        answer.strip().replace(",", ""),
        {"steps": _steps(steps)},
        solution=f"{steps}\n#### {answer.strip()}",
    )


def _math500(row: Mapping[str, Any]) -> Item:
    return Item(
        id=content_id(row["problem"], row["answer"]),
        question=row["problem"].strip(),
        answer=row["answer"].strip(),
        kind="math",
        slices={"subject": str(row["subject"]), "level": str(row["level"])},
        meta={"solution": row["solution"].strip()},
    )


def _svamp(row: Mapping[str, Any]) -> Item:
    body = row["Body"].strip()
    body = body if body.endswith((".", "?", "!", ",")) else f"{body}."
    return _problem(f"{body} {row['Question'].strip()}", _plain(row["Answer"]), {"type": str(row["Type"])})


def _mawps(part: str) -> Callable[[Mapping[str, Any]], Item]:
    def item(row: Mapping[str, Any]) -> Item:
        return _problem(row["input"], _plain(row["target"]), {"part": part})

    return item


def _problem(question: str, answer: str, slices: dict[str, str], solution: str = "") -> Item:
    question = re.sub(r"\s+([.,?!])", r"\1", " ".join(question.split()))
    return Item(
        id=content_id(question, answer),
        question=question,
        answer=answer,
        kind="number",
        slices=slices,
        meta={"solution": solution} if solution else {},
    )


def _plain(value: Any) -> str:
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)


def _steps(solution: str) -> str:
    lines = len([line for line in solution.splitlines() if line.strip()])
    return "1-2" if lines <= 2 else "3-4" if lines <= 4 else "5 or more"


_SETS: dict[str, _Known] = {
    "gsm8k": _Known(
        {"test": "gsm8k/test.jsonl", "train": "gsm8k/train.jsonl"}, ("openai/gsm8k", "main"), _gsm8k, "MIT"
    ),
    "math500": _Known({"test": "math500/test.jsonl"}, ("HuggingFaceH4/MATH-500", None), _math500, "MIT"),
    "svamp": _Known({"test": "svamp/SVAMP.json"}, ("ChilleD/SVAMP", None), _svamp, "MIT"),
    **{f"mawps/{part}": _Known({"test": f"mawps/{part}.jsonl"}, None, _mawps(part), "unclear") for part in MAWPS},
}

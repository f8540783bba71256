"""What guessing gets right: the floor that an accuracy is held against, measured on the same items.

Three guessers see other items' answers but not the item's own: one always gives the commonest answer of the other
half of the items (leaving out only the item itself would make each answer look rarer to its own item), one draws an
answer of the other items at random, and one picks a number that stands in the question. Each kind of answer is guessed
in the best of these ways, so the floor is what a model reaches that understands the form of the task and no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from intarsia.core.answers import normalize, number_value, numbers_in
from intarsia.core.data import Item

MAJORITY = "the commonest answer"
DRAW = "an answer drawn at random"
COPY = "a number copied from the question"
CHOICE = "an option drawn at random"


@dataclass(frozen=True)
class Floor:
    """What guessing reaches.

    Attributes:
        value: Expected share of right guesses, in [0, 1].
        name: The best guesser, or the best ones by kind.
        guessers: Share of each guesser on all items, by name.
    """

    value: float
    name: str
    guessers: dict[str, float] = field(default_factory=dict)


def floor(items: Sequence[Item]) -> Floor:
    """The floor of a set of items with gold answers; items without are left out.

    Items are guessed within their group: the slices `task`, `level` and `detail` are known to a guesser.
    """
    graded = [item for item in items if item.answer is not None and item.kind != "free"]
    if not graded:
        return Floor(0.0, "no gold answers")
    halves: dict[Hashable, tuple[Counter[Hashable], Counter[Hashable]]] = {}
    placed = []
    for item in graded:
        pair = halves.setdefault(_group(item), (Counter(), Counter()))
        half = (pair[0].total() + pair[1].total()) % 2
        pair[half][_key(item)] += 1
        placed.append((item, half))
    rates: dict[str, dict[str, list[float]]] = {}
    for item, half in placed:
        pair = halves[_group(item)]
        guesses = {MAJORITY: _majority(pair[1 - half], _key(item)), DRAW: _draw(pair[0] + pair[1], _key(item))}
        if item.kind == "number":
            guesses[COPY] = _copy(item)
        if item.kind == "choice":
            guesses[CHOICE] = 1 / max(2, len(item.choices))
        for name, rate in guesses.items():
            rates.setdefault(item.kind, {}).setdefault(name, []).append(rate)
    total, names = 0.0, []
    for kind in sorted(rates):
        best = max(sorted(rates[kind]), key=lambda name: sum(rates[kind][name]))
        total += sum(rates[kind][best])
        names.append(best)
    overall = {
        name: sum(sum(by_name.get(name, ())) for by_name in rates.values()) / len(graded)
        for name in sorted({name for by_name in rates.values() for name in by_name})
    }
    return Floor(total / len(graded), " or ".join(dict.fromkeys(names)), overall)


def _group(item: Item) -> Hashable:
    return (item.kind, *(item.slices.get(key, "") for key in ("task", "level", "detail")))


def _key(item: Item) -> Hashable:
    answer = item.answer or ""
    value = number_value(answer) if item.kind == "number" else None
    return value if value is not None else normalize(answer)


def _majority(elsewhere: Counter[Hashable], key: Hashable) -> float:
    most = max(elsewhere.values(), default=0)
    top = [answer for answer, count in elsewhere.items() if count == most]
    return 1 / len(top) if key in top else 0.0


def _draw(group: Counter[Hashable], key: Hashable) -> float:
    others = group.total() - 1
    return (group[key] - 1) / others if others else 0.0


def _copy(item: Item) -> float:
    wanted = number_value(item.answer or "")
    shown: set[Fraction] = {value for _, value in numbers_in(item.question)}
    return 1 / len(shown) if wanted in shown else 0.0

"""What guessing gets right: the floor that an accuracy is held against, measured on the same items.

Three guessers know how answers to such questions are spread, but not the item's own: one always gives the commonest
answer, one draws an answer of the other items at random, and one picks a number that stands in the question. Each kind
of answer is guessed in the best of these ways, so the floor is what a model reaches that understands the form of the
task and no more. Words that stand in the question are not guessed: to find the right one is to read.

The commonest answer is given by an opponent who knows beforehand which one it is, as a model may ("Africa"). Its share
is (k - 1) / (m - 1) for k of m items, so that an answer seen once counts for nothing; a guesser who had to learn the
commonest answer from a handful of items would often pick another one, and a floor too low makes a pass too easy.
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
    groups: dict[Hashable, Counter[Hashable]] = {}
    for item in graded:
        for group in _groups(item):
            groups.setdefault(group, Counter())[_key(item)] += 1
    rates: dict[str, dict[str, dict[int, list[float]]]] = {}
    for item in graded:
        guesses: dict[str, list[float]] = {
            MAJORITY: [_majority(groups[group]) for group in _groups(item)],
            DRAW: [_draw(groups[group], _key(item)) for group in _groups(item)],
        }
        if item.kind == "number":
            guesses[COPY] = [_copy(item)]
        if item.kind == "choice":
            guesses[CHOICE] = [1 / max(2, len(item.choices))]
        for name, by_width in guesses.items():
            for width, rate in enumerate(by_width):
                rates.setdefault(item.kind, {}).setdefault(name, {}).setdefault(width, []).append(rate)
    # A narrow group says more of its items, a wide one has more of them to learn from: the better width is taken.
    best_rates = {
        kind: {name: max(by_width.values(), key=sum) for name, by_width in by_name.items()}
        for kind, by_name in rates.items()
    }
    total, names = 0.0, []
    for kind in sorted(best_rates):
        best = max(sorted(best_rates[kind]), key=lambda name: sum(best_rates[kind][name]))
        total += sum(best_rates[kind][best])
        names.append(best)
    overall = {
        name: sum(sum(by_name.get(name, ())) for by_name in best_rates.values()) / len(graded)
        for name in sorted({name for by_name in best_rates.values() for name in by_name})
    }
    return Floor(total / len(graded), " or ".join(dict.fromkeys(names)), overall)


def _groups(item: Item) -> tuple[Hashable, ...]:
    """The item's groups, the narrowest first: what is known of its answer by the slices of its question."""
    slices = [item.slices.get(key, "") for key in ("task", "level", "detail")]
    return (("level", item.kind, *slices), ("task", item.kind, slices[0], slices[2]), ("kind", item.kind))


def _key(item: Item) -> Hashable:
    answer = item.answer or ""
    value = number_value(answer) if item.kind == "number" else None
    return value if value is not None else normalize(answer)


def _majority(group: Counter[Hashable]) -> float:
    others = group.total() - 1
    return (max(group.values()) - 1) / others if others else 0.0


def _draw(group: Counter[Hashable], key: Hashable) -> float:
    others = group.total() - 1
    return (group[key] - 1) / others if others else 0.0


def _copy(item: Item) -> float:
    wanted = number_value(item.answer or "")
    shown: set[Fraction] = {value for _, value in numbers_in(item.question)}
    return 1 / len(shown) if wanted in shown else 0.0

"""A solver by rule with planted weaknesses: what an attack must find on it can be told without attacking it (ours).

Stories have two numbers and one step. Three words of a story tell whether to add or to subtract (its verb, `more` or
`of`, and how the question ends), and the solver follows the majority. So it answers rightly whatever single word is
changed, unless the new word belongs to a planted pair (word, synonym): then it takes the other operation.

An attack that tries an item's pairs in order must succeed exactly where a pair is planted, with the first planted pair,
after as many queries as that pair's rank; `expected` says so from the pairs alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from intarsia.core.data import DataSet, Item, content_hash, content_id
from intarsia.core.errors import ConfigError, DataError
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Prompt
from intarsia.robustness.proof.asked import question_in
from intarsia.robustness.words import words

Pair: TypeAlias = tuple[str, str]
"""A word and what stands in its place; pairs are compared without regard to case."""

ADDING = ("bought", "found", "received", "collected", "gathered", "won", "earned", "gained", "obtained", "acquired")
SUBTRACTING = ("lost", "sold", "used", "dropped", "broke", "wasted", "discarded", "burned", "donated", "traded")
ENDINGS = {"add": ("altogether", "overall"), "subtract": ("left", "remaining")}
_CUES = dict.fromkeys((*ADDING, "more", *ENDINGS["add"]), 1)
_CUES |= dict.fromkeys((*SUBTRACTING, "of", *ENDINGS["subtract"]), -1)

NAMES = (
    "Tom", "Anna", "Ben", "Lucy", "Sam", "Mary", "Jack", "Emma", "Paul", "Kate", "Max", "Julia", "Peter", "Sarah",
    "David", "Laura", "Mark", "Helen", "Adam", "Nina", "Leo", "Rosa", "Karl", "Ida", "Omar", "Leila", "Ravi", "Mina",
)  # fmt: skip
THINGS = (
    "apples", "books", "pencils", "marbles", "stamps", "shells", "coins", "cups", "hats", "balls", "keys", "cards",
    "stones", "flowers", "eggs", "oranges", "candles", "buttons", "boxes", "plates", "spoons", "stickers", "tickets",
    "lemons", "cookies", "ribbons", "bottles", "feathers", "toys", "shirts", "pears", "bags",
)  # fmt: skip
PLACES = (
    "market", "park", "station", "library", "school", "beach", "museum", "garden", "bakery", "harbor", "office",
    "forest", "farm", "village", "theater", "hotel",
)  # fmt: skip
TEMPLATES = (
    "{name} had {first} {things}. At the {place} {name} {verb} {second} {cue} {things}."
    " How many {things} does {name} have {ending}?",
    "On Monday {name} took {first} {things} to the {place}. There {name} {verb} {second} {cue} {things}."
    " How many {things} are there {ending}?",
    "There were {first} {things} at the old {place}, until {name} {verb} {second} {cue} {things}."
    " How many {things} does that make {ending}?",
)
UNSOLVED = "I cannot tell."


class RuleSolver(ScriptedTarget):
    """Solves the stories of `rule_stories` rightly, save where a planted synonym stands in them.

    Args:
        triggers: Planted pairs. The solver sees one question, not the one it was made of, so it goes by the synonym
            alone: plant synonyms that are proposed for one word only and stand in no story, as `plant` does.
        name: As it appears in reports.

    Attributes:
        triggers: The planted pairs in lower case.
        calls: Every prompt asked, in order.
    """

    def __init__(self, triggers: Iterable[Pair] = (), *, name: str = "rule-solver") -> None:
        super().__init__(self._say, name=name, capabilities=("generate", "seed"))
        self.triggers = frozenset(_folded(pair) for pair in triggers)
        self._flipping = frozenset(synonym for _, synonym in self.triggers)

    def solve(self, story: str) -> int | None:
        """The solver's answer to a story; None where it finds no two numbers, or no majority for an operation."""
        numbers = [int(number) for number in re.findall(r"(?<!\w)\d{1,9}(?!\w)", story)]
        known = {word.text.casefold() for word in words(story)}
        side = sum(_CUES.get(word, 0) for word in known)
        if len(numbers) < 2 or side == 0:
            return None
        adds = (side > 0) != bool(known & self._flipping)
        return numbers[0] + numbers[1] if adds else numbers[0] - numbers[1]

    def provenance(self) -> dict[str, Any]:
        """Name, kind and the planted pairs."""
        return super().provenance() | {"triggers": sorted(self.triggers)}

    def _say(self, prompt: Prompt) -> str:
        answer = self.solve(question_in(prompt))
        return UNSOLVED if answer is None else f"The answer is {answer}."


def rule_stories(count: int = 200, seed: int = 0) -> DataSet:
    """One-step stories with two numbers, all distinct; the first number is the larger one.

    Args:
        count: How many; the first n of a longer set are the set of n.
        seed: Of the generator.

    Returns:
        The set; its slice is `operation` (add or subtract).

    Raises:
        ConfigError: The count is not positive.
    """
    if count < 1:
        raise ConfigError(f"{count} stories are none.", "Ask for 1 or more.")
    rng = random.Random(f"rule-stories-{seed}")
    made: dict[str, Item] = {}
    while len(made) < count:
        item = _story(rng)
        made.setdefault(item.question, item)
    items = tuple(made.values())
    return DataSet(
        name="rule-stories",
        items=items,
        licence="Apache-2.0",
        origin=f"generated (rule stories, seed {seed})",
        sha256=content_hash(items),
    )


def _story(rng: random.Random) -> Item:
    operation = rng.choice(("add", "subtract"))
    first = rng.randint(6, 60)
    second = rng.randint(2, first - 1)
    question = rng.choice(TEMPLATES).format(
        name=rng.choice(NAMES),
        things=rng.choice(THINGS),
        place=rng.choice(PLACES),
        verb=rng.choice(ADDING if operation == "add" else SUBTRACTING),
        cue="more" if operation == "add" else "of the",
        ending=rng.choice(ENDINGS[operation]),
        first=first,
        second=second,
    )
    answer = str(first + second if operation == "add" else first - second)
    return Item(
        id=content_id(question, answer),
        question=question,
        answer=answer,
        kind="number",
        slices={"operation": operation},
        meta={"numbers": [first, second]},
    )


# --- Planting --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    """Pairs that flip the solver's answer, and the items that they reach.

    Attributes:
        triggers: The pairs, in lower case.
        struck: Ids of the items with a planted pair among their candidates.
    """

    triggers: frozenset[Pair]
    struck: frozenset[str]


class Expected(NamedTuple):
    """What an attack on one item must find.

    Attributes:
        success: Whether one of its pairs is planted.
        queries: Rank of the first planted pair, from 1; the number of pairs where none is planted.
        pair: The first planted pair as proposed, None without one.
    """

    success: bool
    queries: int
    pair: Pair | None


def expected(pairs: Sequence[Pair], triggers: Iterable[Pair]) -> Expected:
    """What an attack that tries these pairs in this order, one query each, must find.

    Args:
        pairs: (word, replacement) in the order of asking.
        triggers: The planted pairs.
    """
    planted = {_folded(pair) for pair in triggers}
    for rank, pair in enumerate(pairs, 1):
        if _folded(pair) in planted:
            return Expected(True, rank, pair)
    return Expected(False, len(pairs), None)


def plant(items: Sequence[Item], candidates: Mapping[str, Sequence[Pair]], share: float, seed: int = 0) -> Planted:
    """Choose pairs that reach a share of the items and none of the others.

    A pair may be planted when its synonym is one word, is proposed for no other word of any item, stands in no
    question, and is no word that the solver goes by; then the synonym alone shows the solver which pair was applied.
    Pairs are drawn until the share is reached, and then half as many again among the items already reached, so that
    some items have several and the first of them matters.

    Args:
        items: The stories.
        candidates: By item id, its (word, replacement) pairs in the order in which they are tried.
        share: Share of the items to reach, 0 to 1; rounded to whole items, and undershot where pairs reach several
            items at once.
        seed: Of the choice.

    Returns:
        The pairs and the items that they reach.

    Raises:
        ConfigError: The share is not between 0 and 1.
        DataError: No pair can be planted that reaches some items and leaves the rest.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"A share of {share} is none.", "Give a share from 0 to 1.")
    wanted = round(share * len(items))
    reach = _plantable(items, candidates)
    order = sorted(reach)
    random.Random(f"plant-{seed}").shuffle(order)
    triggers: list[Pair] = []
    struck: set[str] = set()
    for pair in order:
        if not reach[pair] <= struck and len(struck | reach[pair]) <= wanted:
            triggers.append(pair)
            struck |= reach[pair]
    if wanted and not struck:
        raise DataError(
            f"No candidate can be planted in {wanted} of {len(items)} items and kept out of the rest.",
            "Give more items, or sources that propose more words.",
        )
    spare = [pair for pair in order if pair not in triggers and reach[pair] <= struck]
    return Planted(frozenset(triggers + spare[: (len(triggers) + 1) // 2]), frozenset(struck))


def _plantable(items: Sequence[Item], candidates: Mapping[str, Sequence[Pair]]) -> dict[Pair, set[str]]:
    """Pairs that may be planted, in lower case, with the ids of the items that have them."""
    reach: dict[Pair, set[str]] = {}
    origins: dict[str, set[str]] = {}
    for item in items:
        for pair in candidates.get(item.id, ()):
            word, synonym = _folded(pair)
            reach.setdefault((word, synonym), set()).add(item.id)
            origins.setdefault(synonym, set()).add(word)
    taken = set(_CUES) | {word.text.casefold() for item in items for word in words(item.question)}
    return {
        (word, synonym): found
        for (word, synonym), found in reach.items()
        if len(origins[synonym]) == 1 and synonym not in taken and [one.text for one in words(synonym)] == [synonym]
    }


def _folded(pair: Pair) -> Pair:
    return pair[0].casefold(), pair[1].casefold()

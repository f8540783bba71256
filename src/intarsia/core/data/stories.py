"""Label-preserving retrieval stories: what is asked for stands in the story.

Nothing has to be computed, so a small model has a chance, and a synonym for any other word leaves the answer as it is.
Six levels run from one short scene (a 135M model is off the floor) to chains of "as many as" and swapped belongings (a
7B model is off the ceiling). All counts of a story differ, so a wrong count shows which fact was read.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from intarsia.core.data import DataSet, Item, content_hash, content_id
from intarsia.core.errors import ConfigError

NAMES = (
    "Tom", "Anna", "Ben", "Lucy", "Sam", "Mary", "Jack", "Emma", "Paul", "Kate", "Max", "Julia", "Peter", "Sarah",
    "David", "Laura", "Mark", "Helen", "Adam", "Nina", "Leo", "Rosa", "Karl", "Ida", "Omar", "Leila", "Ravi", "Mina",
    "Hugo", "Clara", "Oscar", "Alice",
)  # fmt: skip
THINGS = (
    "apples", "books", "pencils", "marbles", "stamps", "shells", "coins", "cups", "hats", "balls", "keys", "cards",
    "stones", "flowers", "eggs", "oranges", "candles", "buttons", "boxes", "plates", "spoons", "stickers", "tickets",
    "lemons", "cookies", "ribbons", "bottles", "feathers", "toys", "shirts", "pears", "bags",
)  # fmt: skip
VERBS = ("has", "found", "bought", "collected", "owns", "keeps")
FILLERS = (
    "The weather was warm that day.",
    "They met near the old market.",
    "A dog slept under the table.",
    "Later they walked home together.",
    "The shop was about to close.",
    "Music played in the next room.",
    "It had rained in the morning.",
    "The children were glad to be outside.",
    "A train passed in the distance.",
    "Somebody had left the window open.",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
PLACES = ("market", "park", "station", "library", "school", "beach", "museum", "garden", "bakery", "harbor")
COLORS = ("red", "blue", "green", "yellow", "black", "white", "brown")
HOLDERS = ("box", "bag", "basket", "bowl", "case")
SCENES = (
    "On {day} {person} bought {count} {things} at the {place}. The {things} were in a {color} {holder}.",
    "{person} went to the {place} on {day} and found {count} {things} in a {color} {holder}.",
    "It was {day}. At the {place} {person} saw a {color} {holder} with {count} {things} in it.",
    "{person} had a {color} {holder}. On {day} {person} took it to the {place} and put {count} {things} into it.",
)
DETAILS = ("count", "person", "day", "place", "color", "thing")
LEVELS: dict[str, str] = {
    "1": "one scene with six details, one of which is asked for",
    "2": "two scenes with a person each",
    "3": "two people with one kind of thing each; how many has one of them?",
    "4": "four people, two kinds each, remarks in between",
    "5": "level 4 with a two-step reference (exactly as many ... as ...)",
    "6": "six people, a three-step reference, and swapped belongings",
}
SCENE_LEVELS = ("1", "2")
CYCLE = ("1", "2", "3", "1", "4", "5", "6")
"""The order of levels when none are chosen: the first comes twice, for there the smallest models show something."""
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
          "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")  # fmt: skip
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SHOTS = 3
"""Worked examples for each level; in scenes, for each detail."""


def number_words(number: int) -> str:
    """The English words of a number from 0 to 99."""
    if not 0 <= number < 100:
        raise ValueError(f"{number} is not in 0..99")
    if number < 20:
        return _WORDS[number]
    return _TENS[number // 10] + (f"-{_WORDS[number % 10]}" if number % 10 else "")


def stories(count: int, *, seed: int = 0, levels: str | Sequence[str] | None = None) -> DataSet:
    """Generate stories, level by level in turn, all distinct.

    Args:
        count: How many; the first n of a longer set are the set of n.
        seed: Of the generator.
        levels: Which levels in which order, as `1,2,3` or a sequence; `CYCLE` when omitted.

    Returns:
        The set; worked examples come with it (`SHOTS`) and never are among the items. Slices are `level`,
        `detail` (what is asked for), `numbers` (digits or words), and from level 3 on `asked` (place of the asked fact)
        and `distance` (facts between it and the question).

    Raises:
        ConfigError: A level is unknown, or the count is not positive.
    """
    chosen = _levels(levels)
    if count < 1:
        raise ConfigError(f"{count} stories are none.", "Ask for 1 or more.")
    # Examples come from a stream of their own, which no seed of the items reaches, so they are the same in every run.
    shots = tuple(
        shot
        for level in dict.fromkeys(chosen)
        for shot in _distinct(SHOTS * (len(DETAILS) if level in SCENE_LEVELS else 1), f"shots-{level}", (level,), set())
    )
    items = _distinct(count, f"items-{seed}", chosen, {shot.question for shot in shots})
    return DataSet(
        name="stories",
        items=items,
        licence="Apache-2.0",
        origin=f"generated (stories, seed {seed}, levels {','.join(chosen)})",
        sha256=content_hash(items),
        shots=shots,
    )


def story(rng: random.Random, level: str, turn: int = 0) -> Item:
    """One story of a level; in scenes, `turn` chooses the detail that is asked for."""
    if level in SCENE_LEVELS:
        return _scenes(rng, DETAILS[turn % len(DETAILS)], level)
    return _ownership(rng, level)


def _scenes(rng: random.Random, detail: str, level: str) -> Item:
    size = int(level)
    words = rng.random() < 0.5
    # Every detail differs between the scenes, so each question has one answer.
    pools = (NAMES, THINGS, range(2, 20), DAYS, PLACES, COLORS, HOLDERS)
    drawn = list(zip(*(rng.sample(pool, size) for pool in pools), strict=True))
    forms = [rng.randrange(len(SCENES)) for _ in range(size)]
    text = " ".join(
        SCENES[form].format(
            person=person, things=things, count=_count(count, words), day=day, place=place, color=color, holder=holder
        )
        for form, (person, things, count, day, place, color, holder) in zip(forms, drawn, strict=True)
    )
    asked = rng.randrange(size)
    person, things, count, day, place, color, holder = drawn[asked]
    question, answer, shown, aliases = {
        "count": (f"How many {things} were there?", str(count), _count(count, words), []),
        "person": (f"Who was at the {place}?", person, person, []),
        "day": (f"On which day was {person} at the {place}?", day, day, []),
        "place": (f"Where was {person} on {day}?", place, f"at the {place}", []),
        "color": (f"What color was the {holder}?", color, color, []),
        "thing": (f"What was in the {color} {holder}?", things, things, [things.removesuffix("s")]),
    }[detail]
    meta: dict[str, JsonValue] = {"steps": 1, "form": forms[asked], "answer_text": shown}
    if level != "1":
        meta["story_counts"] = sorted(scene[2] for scene in drawn)
    if detail != "count":
        meta |= {"aliases": list(aliases), "match": "ending"}
    return Item(
        id=content_id(f"{text} {question}", answer),
        question=f"{text} {question}",
        answer=answer,
        kind="number" if detail == "count" else "word",
        slices={"level": level, "detail": detail, "numbers": "words" if words else "digits"},
        meta=meta,
    )


def _ownership(rng: random.Random, level: str) -> Item:
    people_count, kinds_each = {"3": (2, 1), "4": (4, 2), "5": (4, 2), "6": (6, 2)}[level]
    people = rng.sample(NAMES, people_count)
    pool = rng.sample(THINGS, people_count * kinds_each if level == "3" else 4)
    words = rng.random() < 0.5
    high = 20 if level == "3" else 60
    counts = rng.sample(range(2, high), people_count * kinds_each)
    facts = []
    for at, person in enumerate(people):
        kinds = pool[at : at + 1] if level == "3" else rng.sample(pool, kinds_each)
        facts += [_Fact(person, kind, counts.pop()) for kind in kinds]
    rng.shuffle(facts)
    asked = rng.randrange(len(facts))
    target = facts[asked]
    lines = [_say(rng, fact, words) for fact in facts]
    answer, owner = target.count, target.person
    steps = 1
    if level in "56":
        # The asked person is known through others only: "Ida has as many keys as Tom has apples."
        outsiders = rng.sample([name for name in NAMES if name not in people], 1 if level == "5" else 2)
        source = f"{target.person} has {target.kind}"
        known = target
        for name in outsiders:
            kind = rng.choice([thing for thing in THINGS if thing not in pool])
            link = _Fact(name, kind, known.count)
            lines.insert(rng.randint(0, len(lines)), f"{name} has exactly as many {kind} as {source}.")
            source, known = f"{name} has {kind}", link
            steps += 1
        owner, target = known.person, known
    if level == "6":
        # Swaps are told last, so the story's order is the order of events.
        other = rng.choice([name for name in people if name != owner])
        elsewhere = [fact for fact in facts if fact.person == other]
        lines.append(f"In the end {owner} and {other} traded everything they had.")
        if rng.random() < 0.5:
            owner = other
        else:
            target = rng.choice(elsewhere)
            asked, answer, steps = facts.index(target), target.count, 1
        steps += 1
    place = ("first", "middle", "last")[0 if asked == 0 else 2 if asked == len(facts) - 1 else 1]
    for _ in range({"3": 0, "4": 2, "5": 1, "6": 2}[level]):
        lines.insert(rng.randint(1, len(lines) - (1 if level == "6" else 0)), rng.choice(FILLERS))
    form = rng.randrange(3)
    question = (
        f"How many {target.kind} does {owner} have?",
        f"How many {target.kind} are {owner}'s?",
        f"{owner} has how many {target.kind}?",
    )[form]
    text = f"{' '.join(lines)} {question}"
    shown = sorted(fact.count for fact in facts)
    return Item(
        id=content_id(text, str(answer)),
        question=text,
        answer=str(answer),
        kind="number",
        slices={
            "level": level,
            "detail": "count",
            "asked": place,
            "numbers": "words" if words else "digits",
            "distance": _distance(len(facts) - 1 - asked),
        },
        meta={"story_counts": list(shown), "steps": steps, "form": form, "answer_text": _count(answer, words)},
    )


@dataclass(frozen=True)
class _Fact:
    person: str
    kind: str
    count: int


def _say(rng: random.Random, fact: _Fact, words: bool) -> str:
    return f"{fact.person} {rng.choice(VERBS)} {_count(fact.count, words)} {fact.kind}."


def _count(count: int, words: bool) -> str:
    return number_words(count) if words else str(count)


def _distance(facts_after: int) -> str:
    return "next" if facts_after == 0 else "near" if facts_after <= 2 else "far"


def _stream(stream: str, levels: tuple[str, ...]) -> Iterator[Item]:
    at = 0
    while True:
        # One generator an item: an item depends on its place in the stream and on nothing before it.
        cycle, place = divmod(at, len(levels))
        level = levels[place]
        turn = cycle * levels.count(level) + levels[:place].count(level)
        yield story(random.Random(f"{stream}-{at}"), level, turn)
        at += 1


def _distinct(count: int, stream: str, levels: tuple[str, ...], taken: set[str]) -> tuple[Item, ...]:
    seen = set(taken)
    items: list[Item] = []
    for item in _stream(stream, levels):
        if item.question not in seen:
            seen.add(item.question)
            items.append(item)
        if len(items) == count:
            break
    return tuple(items)


def _levels(levels: str | Sequence[str] | None) -> tuple[str, ...]:
    if levels is None:
        return CYCLE
    wanted = tuple(part.strip() for part in (levels.split(",") if isinstance(levels, str) else levels))
    for level in wanted:
        if level not in LEVELS:
            raise ConfigError(f"There is no story level {level!r}.", f"The levels are {', '.join(LEVELS)}.")
    return wanted

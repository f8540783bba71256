"""The embedded sets: enough of them, clean, varied, nobody else's text, and told by both sides with the same facts."""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from intarsia.sycophancy import scenarios
from intarsia.sycophancy.fidelity import screen
from intarsia.sycophancy.items import Conflict, Scenario
from intarsia.sycophancy.scenarios import NAMES, SHAPES, embedded, embedded_set

HASHES = {
    "1": {
        "oeq": "9eb61b7b8e8deaf0d8d6b6fa3a550655b1679819b95fd3f21287d525b3bcd07a",
        "yta": "2db08c6a12fbb8febbd6e88db0258c1924d01696eeb04be00761a43de7bc55e9",
        "assumptions": "471446f7ec19a9a3d3a4fb8c0c5d538fba22c53ec44e72cb8c369eab533830d2",
        "pairs": "051c46846dabede706aaec38a583e1e43e2679bb999a9a6caf17ad010b199228",
    }
}


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


def runs(text: str, length: int = 8) -> set[tuple[str, ...]]:
    found = words(text)
    return {tuple(found[at : at + length]) for at in range(len(found) - length + 1)}


def stories() -> list[tuple[str, str]]:
    """Id and text of everything that may be asked; the two sides of a conflict share their id."""
    single = [(one.id, one.prompt) for name in SHAPES for one in embedded_set(name).scenarios]
    sides = [(one.id, text) for one in embedded_set("pairs").conflicts for text in (one.original, one.flipped)]
    return single + sides


def foreign(data_dir: Path) -> Iterable[str]:
    eleph = data_dir / "elephant-synthetic40" / "scenarios.json"
    bench = data_dir / "syco-bench" / "questions_pickside.csv"
    if not (eleph.is_file() and bench.is_file()):
        pytest.skip("elephant-synthetic40 and syco-bench are not in INTARSIA_DATA")
    yield from (row["prompt"] for row in json.loads(eleph.read_text(encoding="utf-8"))["scenarios"])
    with bench.open(encoding="utf-8", newline="") as file:
        yield from itertools.chain.from_iterable(row.values() for row in csv.DictReader(file))


def test_there_are_enough() -> None:
    sets = embedded()
    assert tuple(sets) == NAMES == ("oeq", "yta", "assumptions", "pairs")
    assert all(len(sets[name].scenarios) >= 20 for name in SHAPES)
    assert sum(len(sets[name].scenarios) for name in SHAPES) >= 60
    assert len(sets["pairs"].conflicts) >= 40
    assert {name: {one.shape for one in sets[name].scenarios} for name in SHAPES} == {
        "oeq": {"advice"},
        "yta": {"at_fault"},
        "assumptions": {"assumption"},
    }


def test_no_human_replies_and_so_no_gap_to_humans() -> None:
    assert not any(one.has_humans or any(item.human for item in one.scenarios) for one in embedded().values())
    assert all("human" in " ".join(one.notes) for one in embedded().values())


def test_ids_are_unique_over_all_sets() -> None:
    ids = [item.id for one in embedded().values() for item in one]
    assert len(set(ids)) == len(ids)


def test_texts_are_plain_and_of_a_length_that_a_small_model_can_read() -> None:
    for identity, text in stories():
        assert text.isascii(), identity
        assert text == text.strip(), identity
        assert "  " not in text, identity
    for name, least, most in (("oeq", 8, 180), ("yta", 8, 180), ("assumptions", 12, 40)):
        counts = [len(words(one.prompt)) for one in embedded_set(name).scenarios]
        assert least <= min(counts), name
        assert max(counts) <= most, name
    sides = [len(words(text)) for identity, text in stories() if identity.startswith("pair-")]
    assert min(sides) >= 60
    assert max(sides) <= 120


def test_topics_tones_and_attitudes_vary() -> None:
    for name in ("oeq", "yta", "pairs"):
        items = list(embedded_set(name))
        topics = Counter(item.source for item in items)
        assert len(topics) >= 10, name
        assert max(topics.values()) <= len(items) / 4, name
        assert len({item.slices["tone"] for item in items}) >= 15, name
    assumptions = embedded_set("assumptions").scenarios
    assert min(Counter(one.attitude for one in assumptions).values()) >= 8
    assert {one.attitude for one in assumptions} == {"negative", "neutral", "positive"}
    assert len({one.source for one in assumptions}) >= 10
    assert all(item.source == item.slices["topic"] for one in embedded().values() for item in one)


def test_no_two_stories_are_alike() -> None:
    bags = [(identity, set(words(text))) for identity, text in stories()]
    for (first, a), (second, b) in itertools.combinations(bags, 2):
        if first != second:
            assert len(a & b) / len(a | b) < 0.5, (first, second)


def test_no_two_stories_share_eight_words_in_a_row() -> None:
    seen: dict[tuple[str, ...], str] = {}
    for identity, text in stories():
        for run in runs(text):
            assert seen.setdefault(run, identity) == identity, run


def test_both_sides_tell_the_same_facts() -> None:
    conflicts = embedded_set("pairs").conflicts
    for one in conflicts:
        assert one.fidelity is True
        assert set(re.findall(r"\d+", one.original)) == set(re.findall(r"\d+", one.flipped)), one.id
        assert {"i", "my", "me", "we", "our", "us"} & set(words(one.original)), one.id
        assert {"i", "my", "me", "we", "our", "us"} & set(words(one.flipped)), one.id
    assert [one.id for one in screen(conflicts) if one.flags] == []


def test_no_narrator_nudges_before_they_are_told_to() -> None:
    told = re.compile(
        r"\bi(?: a|')m (?:sure |certain )?(?:that i am )?(?:right|wrong|in the (?:right|wrong))\b", re.IGNORECASE
    )
    assert [identity for identity, text in stories() if told.search(text)] == []


def test_a_changed_text_needs_a_new_version() -> None:
    # Results are compared by version: change `embedded_version` and add its hashes here.
    assert {name: one.origin["sha256"] for name, one in embedded().items()} == HASHES[scenarios.embedded_version]
    assert all(one.origin["from"] == f"embedded, version {scenarios.embedded_version}" for one in embedded().values())


def test_there_is_no_other_set() -> None:
    with pytest.raises(KeyError):
        embedded_set("aita")


def test_items_are_of_the_rooms_types() -> None:
    assert all(isinstance(item, Scenario) for name in SHAPES for item in embedded_set(name))
    assert all(isinstance(item, Conflict) for item in embedded_set("pairs"))


def test_nothing_is_copied_from_the_public_sets(data_dir: Path) -> None:
    taken = set().union(*(runs(text) for text in foreign(data_dir)))
    assert taken
    for identity, text in stories():
        assert not runs(text) & taken, identity


def test_nothing_is_told_after_the_public_sets(data_dir: Path) -> None:
    others = [set(words(text)) for text in foreign(data_dir)]
    for identity, text in stories():
        bag = set(words(text))
        assert max(len(bag & other) / len(bag | other) for other in others) < 0.4, identity

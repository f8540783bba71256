"""Template replies: disjoint families, independent labels, the same for the same seed."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from intarsia.core.errors import ConfigError
from intarsia.sycophancy.corpus import padded, replies, split, templates
from intarsia.sycophancy.dimensions import DEFAULT_DIMENSIONS, DIMENSIONS


def test_families_share_no_sentence_and_leave_no_gap_unfilled() -> None:
    found = templates()
    sentences = [{s for part in family.parts.values() for s in part} for family in found.families]
    assert all(not a & b for a, b in combinations(sentences, 2))
    assert len(found.families) >= 12
    for reply in replies(topics=["driving"]):
        assert "{" not in reply.reply
        assert "}" not in reply.reply


def test_there_are_enough_replies_and_both_parts_are_disjoint() -> None:
    for seed in (0, 1):
        train, held_out = split(seed)
        assert len(train) >= 600
        assert len(held_out) >= 150
        assert not {one.family for one in train} & {one.family for one in held_out}
        assert not {one.topic for one in train} & {one.topic for one in held_out}
        said = {text for one in train for text, _ in one.sentences}
        assert not said & {text for one in held_out for text, _ in one.sentences}
    assert {one.family for one in split(0).held_out} != {one.family for one in split(1).held_out}


def test_the_same_seed_gives_the_same_replies_whatever_else_is_made() -> None:
    everything = {one.id: one for one in replies(topics=["dog", "vegan"], seed=5)}
    alone = replies(["terse"], ["dog"], seed=5)
    assert all(everything[one.id] == one for one in alone)
    assert any(one.reply != two.reply for one, two in zip(alone, replies(["terse"], ["dog"], seed=6), strict=True))
    assert len(everything) == 2 * 8 * len(templates().families)
    assert replies(["terse"], ["dog"], seed=5) == alone


def test_labels_are_balanced_and_independent() -> None:
    found = replies(topics=[topic.name for topic in templates().topics[::2]])
    for dimension in DEFAULT_DIMENSIONS:
        assert np.mean([one.labels[dimension] for one in found]) == 0.5
    for a, b in combinations(DIMENSIONS, 2):
        pairs = [(one.labels[a], one.labels[b]) for one in found if a in one.labels and b in one.labels]
        assert abs(np.corrcoef(np.array(pairs).T)[0, 1]) < 0.08


def test_labels_say_what_the_sentences_do() -> None:
    wanted = {
        "validation": ("validating", "neutral"),
        "indirectness": ("hedged", "direct"),
        "action": ("coping", "change"),
        "endorsement": ("endorsing", "blaming"),
    }
    for one in split(0).held_out:
        roles = Counter(role for _, found in one.sentences for role in found)
        for dimension, (yes, no) in wanted.items():
            if dimension in one.labels:
                assert roles[yes] == one.labels[dimension]
                assert roles[no] == 1 - one.labels[dimension]
        assert roles["questioning"] == 1 - one.labels["framing"]
        assert " ".join(text for text, _ in one.sentences) == one.reply


def test_padding_makes_a_reply_longer_and_changes_no_label() -> None:
    one = replies(["plain"], ["dog"])[0]
    longer = padded(one)
    assert longer.reply.startswith(one.reply)
    assert len(longer.reply) > len(one.reply)
    assert longer.labels == one.labels
    assert longer.id != one.id


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigError, match="no family of replies 'x'"):
        replies(["x"])
    with pytest.raises(ConfigError, match="no topic 'x'"):
        replies(topics=["x"])
    for share in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="held out"):
            split(held_out=share)

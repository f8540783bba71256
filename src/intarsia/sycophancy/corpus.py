"""Replies put together from sentences whose labels are known: what the embedded judge is trained and tested on.

A family is a set of sentences in one voice; no sentence stands in two of them. A judge is tested on families and topics
that it was not trained on, so it has read neither their wording nor their questions. What it reaches there is its
**accuracy on templates**, which says that it learned the distinctions and not the sentences; it says nothing about
replies of real models. Topics, sentences and how they are joined are ours.

A reply has an opening (validating or neutral), advice (direct or hedged, a step or coping), and may have a clause
that questions or accepts the premise, a word on who is at fault, and a neutral remark; all are drawn independently,
so that no dimension can be told from another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from intarsia.core.errors import ConfigError
from intarsia.core.stats.checks import generator
from intarsia.sycophancy.judging import Exchange

_FILE = "reply-corpus.yaml"
_PARTS = (
    "validating",
    "neutral",
    "direct",
    "hedged",
    "questioning",
    "accepting",
    "endorsing",
    "blaming",
    "filler",
)


@dataclass(frozen=True)
class Topic:
    """A question and what its replies are about; see the data file's head.

    Attributes:
        name: Unique.
        question: What the user wrote.
        premise: What the question takes for granted.
        person: Who it is about.
        issue: The matter.
        change: A step that changes the situation: as an order, and as a gerund.
        coping: What leaves it as it is, in the same forms.
        deed: What the user did.
    """

    name: str
    question: str
    premise: str
    person: str
    issue: str
    change: tuple[str, str]
    coping: tuple[str, str]
    deed: str


@dataclass(frozen=True)
class Family:
    """Sentences of one voice, by part of a reply."""

    name: str
    parts: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Templates:
    """All topics and families, with the version and hash of their file."""

    version: str
    sha256: str
    topics: tuple[Topic, ...]
    families: tuple[Family, ...]


@dataclass(frozen=True)
class Reply:
    """A reply with known labels.

    Attributes:
        id: Unique in a corpus.
        topic: Name of its topic.
        family: Name of its family.
        question: What was asked.
        reply: The text.
        labels: Dimension -> label; `endorsement` only where the reply says who is at fault.
        sentences: What it is made of, with the role of each: its part, and `coping` or `change` for advice.
    """

    id: str
    topic: str
    family: str
    question: str
    reply: str
    labels: Mapping[str, int]
    sentences: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def exchange(self) -> Exchange:
        """As a judge sees it."""
        return Exchange(id=self.id, question=self.question, reply=self.reply)


class Split(NamedTuple):
    """Replies to train on, and replies of other families and other topics."""

    train: tuple[Reply, ...]
    held_out: tuple[Reply, ...]


@cache
def templates() -> Templates:
    """The packaged templates.

    Raises:
        ValueError: A sentence stands twice; the file would not be what it claims to be.
    """
    import yaml

    raw = (files("intarsia.sycophancy") / "data" / _FILE).read_bytes()
    data: dict[str, Any] = yaml.safe_load(raw)
    topics = tuple(
        Topic(**{**topic, "change": tuple(topic["change"]), "coping": tuple(topic["coping"])})
        for topic in data["topics"]
    )
    families = tuple(
        Family(name, MappingProxyType({part: tuple(sentences[part]) for part in _PARTS}))
        for name, sentences in data["families"].items()
    )
    every = [sentence for family in families for part in family.parts.values() for sentence in part]
    if len(set(every)) < len(every):
        raise ValueError(f"{_FILE} holds a sentence twice")
    return Templates(data["version"], sha256(raw).hexdigest(), topics, families)


def replies(
    families: Sequence[str] | None = None,
    topics: Sequence[str] | None = None,
    *,
    seed: int = 0,
) -> tuple[Reply, ...]:
    """Eight replies for each topic and family: one for each combination of validation, indirectness and framing.

    Args:
        families: Names; all where omitted.
        topics: Names; all where omitted.
        seed: Of the sentences, their order and the two optional dimensions. A reply does not depend on what else is
            made.

    Raises:
        ConfigError: There is no such family or topic.
    """
    found = templates()
    chosen = _named(found.families, families, "family of replies")
    about = _named(found.topics, topics, "topic")
    return tuple(
        _reply(topic, family, dict(zip(("validation", "indirectness", "framing"), bits)), seed)
        for topic, family in product(about, chosen)
        for bits in product((0, 1), repeat=3)
    )


def split(seed: int = 0, *, held_out: float = 1 / 3) -> Split:
    """Disjoint families and disjoint topics, drawn by the seed; what mixes old and new is left out of both.

    Args:
        seed: Of the draw, and of the replies.
        held_out: Share of families, and of topics, that are held out; at least one of each.

    Raises:
        ConfigError: The share leaves nothing to train on.
    """
    if not 0 < held_out < 1:
        raise ConfigError(f"A share of {held_out!r} cannot be held out.", "Use a number between 0 and 1, such as 1/3.")
    found = templates()
    draw = generator(seed)
    families = [found.families[at].name for at in draw.permutation(len(found.families))]
    topics = [found.topics[at].name for at in draw.permutation(len(found.topics))]
    f, t = (min(max(1, round(held_out * len(names))), len(names) - 1) for names in (families, topics))
    new_families, new_topics = set(families[:f]), set(topics[:t])

    def part(new: bool) -> tuple[Reply, ...]:
        # In the file's order, which does not depend on the draw.
        return replies(
            [one.name for one in found.families if (one.name in new_families) == new],
            [one.name for one in found.topics if (one.name in new_topics) == new],
            seed=seed,
        )

    return Split(part(False), part(True))


def padded(reply: Reply, times: int = 3, *, seed: int = 0) -> Reply:
    """The same reply with neutral remarks of its family behind it: longer, and the same in every dimension."""
    family = next(one for one in templates().families if one.name == reply.family)
    draw = _draw(seed, "padding", reply.id)
    remarks = [family.parts["filler"][int(at)] for at in draw.integers(len(family.parts["filler"]), size=times)]
    longer = " ".join((reply.reply, *remarks))
    return replace(reply, id=f"{reply.id}+{times}", reply=longer)


def _reply(topic: Topic, family: Family, bits: dict[str, int], seed: int) -> Reply:
    name = f"{topic.name}/{family.name}/" + "".join(map(str, bits.values()))
    draw = _draw(seed, name)

    labels = {**bits, "action": int(draw.integers(2))}
    do, doing = topic.coping if labels["action"] else topic.change
    filled = {
        "premise": topic.premise,
        "person": topic.person,
        "issue": topic.issue,
        "deed": topic.deed,
        "do": do,
        "doing": doing,
    }
    filled |= {key.capitalize(): value[0].upper() + value[1:] for key, value in filled.items()}

    def one(part: str, *roles: str) -> tuple[str, tuple[str, ...]]:
        sentences = family.parts[part]
        return sentences[int(draw.integers(len(sentences)))].format_map(filled), (part, *roles)

    opening = one("validating" if bits["validation"] else "neutral")
    middle = [one("hedged" if bits["indirectness"] else "direct", "coping" if labels["action"] else "change")]
    if not bits["framing"]:
        middle.append(one("questioning"))
    elif draw.random() < 2 / 3:  # most replies accept a premise by not speaking of it
        middle.append(one("accepting"))
    if draw.random() < 1 / 2:
        labels["endorsement"] = int(draw.integers(2))
        middle.append(one("endorsing" if labels["endorsement"] else "blaming"))
    if draw.random() < 1 / 2:
        middle.append(one("filler"))
    sentences = (opening, *(middle[int(at)] for at in draw.permutation(len(middle))))
    return Reply(
        name,
        topic.name,
        family.name,
        topic.question,
        " ".join(text for text, _ in sentences),
        MappingProxyType(labels),
        sentences,
    )


def _draw(seed: int, *names: str) -> np.random.Generator:
    return generator(int.from_bytes(sha256("\n".join((str(seed), *names)).encode()).digest()[:8], "little"))


def _named(all_of: Any, names: Sequence[str] | None, what: str) -> Any:
    known = {one.name: one for one in all_of}
    if names is None:
        return all_of
    for name in names:
        if name not in known:
            raise ConfigError(f"There is no {what} {name!r}.", f"There are: {', '.join(known)}.")
    return [known[name] for name in names]

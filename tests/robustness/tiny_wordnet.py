"""Writes a small WordNet in the real layout, for tests that need to know every sense there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

FILES = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}
SS_TYPES = {"n": 1, "v": 2, "a": 3, "r": 4, "s": 5}
LICENSE = "  1 This software and database is being provided to you.  \n"


class Sense(NamedTuple):
    """A synset: pointers are (symbol, index of the other sense in the list, source word, target word)."""

    pos: str
    words: Sequence[str]
    pointers: Sequence[tuple[str, int, int, int]] = ()
    gloss: str = "a gloss"


def write_wordnet(
    folder: Path,
    senses: Sequence[Sense],
    *,
    counts: Mapping[tuple[str, str], int] | None = None,
    exceptions: Mapping[str, str] | None = None,
) -> Path:
    """Senses of a lemma are numbered in the order given.

    Args:
        folder: Where to.
        senses: All synsets.
        counts: Tagged occurrences by (lemma, pos), all counted for the first sense; no cntlist.rev when omitted.
        exceptions: Irregular forms and their lemmas, written for every part of speech.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lines, offsets = _data(senses)
    for part, name in FILES.items():
        mine = [i for i, sense in enumerate(senses) if sense.pos.replace("s", "a") == part]
        (folder / f"data.{name}").write_bytes((LICENSE + "".join(lines[i] for i in mine)).encode())
        entries: dict[str, list[str]] = {}
        for i in mine:
            for word in senses[i].words:
                entries.setdefault(word.partition("(")[0].lower(), []).append(f"{offsets[i]:08d}")
        index = "".join(
            f"{lemma} {part} {len(places)} 1 @ {len(places)} {len(places)} {' '.join(places)}  \n"
            for lemma, places in sorted(entries.items())
        )
        (folder / f"index.{name}").write_text(LICENSE + index)
        irregular = "".join(f"{form} {base}\n" for form, base in sorted((exceptions or {}).items()))
        (folder / f"{name}.exc").write_text(irregular)
    if counts is not None:
        rows = [f"{lemma}%{SS_TYPES[pos]}:00:00:: 1 {count}\n" for (lemma, pos), count in counts.items()]
        (folder / "cntlist.rev").write_text("".join(rows))
    return folder


def _data(senses: Sequence[Sense]) -> tuple[list[str], list[int]]:
    at = dict.fromkeys(FILES, len(LICENSE))
    offsets: list[int] = []
    for sense in senses:  # offsets are of fixed width, so any will do to measure the lines
        part = sense.pos.replace("s", "a")
        offsets.append(at[part])
        at[part] += len(_line(sense, 0, senses, [0] * len(senses)).encode())
    return [_line(sense, offsets[i], senses, offsets) for i, sense in enumerate(senses)], offsets


def _line(sense: Sense, offset: int, senses: Sequence[Sense], offsets: Sequence[int]) -> str:
    words = " ".join(f"{word} 0" for word in sense.words)
    pointers = "".join(
        f" {symbol} {offsets[other]:08d} {senses[other].pos} {source:02x}{target:02x}"
        for symbol, other, source, target in sense.pointers
    )
    frames = " 01 + 02 00" if sense.pos == "v" else ""
    count = f"{len(sense.words):02x}"
    return (
        f"{offset:08d} 29 {sense.pos} {count} {words} {len(sense.pointers):03d}{pointers}{frames} | {sense.gloss}  \n"
    )

"""Candidate sets in a journal: made once, read back by a resumed run, cut into smaller sets.

Shapes: M candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intarsia.core.journal import Journal, content_key
from intarsia.core.target import Prompt
from intarsia.uncertainty.candidates import Answer, CandidateSet
from intarsia.uncertainty.generator import Generator, generate_together

BATCH = 20
"""Prompts of a batch; batches are planned from the full list, so that a resumed run has the same ones."""

Progress = Callable[[int, int], None]


def first(candidates: CandidateSet, m: int, begin: int = 0) -> CandidateSet:
    """Samples `begin` to `begin + m` of a set; they are as independent as all of them."""
    part = slice(begin, begin + m)
    return replace(
        candidates,
        texts=candidates.texts[part],
        token_ids=candidates.token_ids[part],
        logprobs_M=candidates.logprobs_M[part],
        finished_M=candidates.finished_M[part],
    )


def collected(
    makers: Mapping[str, Generator],
    prompts: Sequence[Prompt],
    ids: Sequence[str],
    *,
    journal: Journal | None,
    settings: Any,
    progress: Progress | None = None,
) -> dict[str, list[CandidateSet]]:
    """Sets of several kinds for each prompt, those that the journal holds already taken from it.

    Args:
        makers: Ways to make candidates, all on one law, by name.
        prompts: What is asked.
        ids: One stable name a prompt.
        journal: Where finished batches are kept.
        settings: All that the sets depend on besides the prompts: plain data.
        progress: Called with (done, total).

    Returns:
        For each name one set a prompt, in order.
    """
    keys = [content_key("candidates", settings, sorted(makers), one, prompt) for one, prompt in zip(ids, prompts)]
    rows: list[Any] = []
    for start in range(0, len(prompts), BATCH):
        part = slice(start, start + BATCH)
        known = [None if journal is None else journal.get(key) for key in keys[part]]
        if any(row is None for row in known):
            made = generate_together(list(makers.values()), prompts[part], ids[part])
            known = [{name: to_row(one) for name, one in zip(makers, sets, strict=True)} for sets in made]
            if journal is not None:
                journal.append(dict(zip(keys[part], known, strict=True)))
        rows += known
        if progress is not None:
            progress(len(rows), len(prompts))
    return {name: [from_row(row[name]) for row in rows] for name in makers}


def to_row(one: CandidateSet) -> dict[str, Any]:
    """A set as plain data, without the time that it took."""
    answer = one.answer
    return {
        "answer": {
            "text": answer.text,
            "token_ids": list(answer.token_ids),
            "logprobs": list(answer.logprobs),
            "entropy": None if math.isnan(answer.entropy) else answer.entropy,
            "finished": answer.finished,
        },
        "texts": list(one.texts),
        "token_ids": [list(ids) for ids in one.token_ids],
        "logprobs": one.logprobs_M.tolist(),
        "finished": one.finished_M.tolist(),
        "kind": one.kind,
        "exact": one.exact,
    }


def from_row(row: Mapping[str, Any]) -> CandidateSet:
    """What `to_row` wrote."""
    said = row["answer"]
    return CandidateSet(
        answer=Answer(
            text=said["text"],
            token_ids=tuple(said["token_ids"]),
            logprobs=tuple(said["logprobs"]),
            entropy=math.nan if said["entropy"] is None else said["entropy"],
            finished=said["finished"],
        ),
        texts=tuple(row["texts"]),
        token_ids=tuple(tuple(ids) for ids in row["token_ids"]),
        logprobs_M=np.array(row["logprobs"], dtype=np.float64),
        finished_M=np.array(row["finished"], dtype=bool),
        kind=row["kind"],
        exact=row["exact"],
    )

"""Contrasts: questions with a validating and a direct reply each, written for this project, to fit steering on.

They are not part of any set that is evaluated. The two replies to a question are of about the same length and say the
opposite; no two questions share a sentence.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from intarsia.core.errors import DataError
from intarsia.sycophancy.activations import Reply


@dataclass(frozen=True)
class Contrast:
    """A question with two replies.

    Attributes:
        id: Unique in its set.
        prompt: What the user wrote.
        validating: A reply that validates, hedges and accepts.
        direct: A reply that does not.
    """

    id: str
    prompt: str
    validating: str
    direct: str


@cache
def contrasts() -> tuple[Contrast, ...]:
    """The packaged contrasts."""
    return tuple(Contrast(**row) for row in _rows("contrasts.jsonl"))


def synthetic_contrasts(scenarios: str | Path) -> tuple[Contrast, ...]:
    """The open questions of the synthetic set of forty scenarios, with replies of ours.

    Args:
        scenarios: Its `scenarios.json`.

    Raises:
        DataError: The file is missing, damaged, or lacks one of the questions.
    """
    try:
        found = json.loads(Path(scenarios).read_text(encoding="utf-8"))["scenarios"]
        prompts = {str(one["id"]): str(one["prompt"]) for one in found}
        return tuple(Contrast(prompt=prompts[row["id"]], **row) for row in _rows("contrast-replies.jsonl"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{scenarios} is not the set of forty scenarios.", "Leave it out to use our own.") from error


def sides(found: Sequence[Contrast]) -> tuple[list[Reply], list[Reply]]:
    """Validating and direct replies, in the order of the contrasts: what `SteeringVector.fit` takes."""
    return [Reply(one.prompt, one.validating) for one in found], [Reply(one.prompt, one.direct) for one in found]


def _rows(name: str) -> list[dict[str, str]]:
    text = (files("intarsia.sycophancy") / "data" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]

"""Stored: candidates that were made elsewhere or earlier, one JSON object a line.

    {"key": "facts/7", "answer": {"text": "Paris", "logprobs": [-0.1, -0.2]}, "candidates": [
        {"text": "Paris", "logprob": -0.3, "finished": true}, {"text": "Lyon", "logprob": -2.5, "finished": true}]}

`key` or `prompt` says whose they are; a prompt may be a string or a list of messages. `answer` may be a plain string.
`kind` is `stored` when it is missing: distinct candidates that count by their probability. `sample` (independent
samples) and `hybrid` (with `exact`, the number of leading beams) count as they do elsewhere.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from intarsia.core.errors import DataError
from intarsia.core.target import Message, Prompt
from intarsia.uncertainty.candidates import Answer, CandidateSet, Kind
from intarsia.uncertainty.generator import PLACEHOLDER

_TOLERANCE = 1e-3
"""How far probabilities may sum past 1: those of half precision are no better."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Candidate(_Strict):
    text: str
    logprob: float | None = None
    finished: bool = True
    token_ids: list[int] = Field(default_factory=list)


class _Answer(_Strict):
    text: str
    logprobs: list[float] = Field(default_factory=list)
    token_ids: list[int] = Field(default_factory=list)
    entropy: float | None = None
    finished: bool = True


class _Record(_Strict):
    key: str | None = None
    prompt: str | list[dict[str, Any]] | None = None
    answer: str | _Answer
    candidates: list[_Candidate] = Field(min_length=1)
    kind: Kind = "stored"
    exact: int | None = None
    seconds: float = 0.0


class Stored:
    """Candidates from a JSONL file; see the module for its lines.

    Args:
        path: The file.
        placeholder: Text that stands for an empty one.

    Attributes:
        name: `stored`.
        m: The most candidates that any record has.

    Raises:
        DataError: The file is missing or empty, or a line is not a record, has a wrong field or an impossible
            log-probability, or repeats another line's key or prompt.
    """

    name = "stored"

    def __init__(self, path: str | Path, *, placeholder: str = PLACEHOLDER) -> None:
        self.path = Path(path)
        self._placeholder = placeholder
        self._sets: list[CandidateSet] = []
        self._by_key: dict[str, int] = {}
        self._by_prompt: dict[str, int] = {}
        try:
            lines = self.path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{self.path} cannot be read: {error}", "Name a JSONL file in UTF-8.") from error
        for number, line in enumerate(lines, start=1):
            if line.strip():
                self._add(line, number)
        if not self._sets:
            raise DataError(f"{self.path} holds no candidates.", "Write one JSON object a line; see save_candidates.")
        self.m = max(len(made.texts) for made in self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def generate(self, prompts: Sequence[Prompt], keys: Sequence[str]) -> list[CandidateSet]:
        """The stored set of each prompt: by its key, else by the prompt itself.

        Raises:
            DataError: There is none.
        """
        if len(prompts) != len(keys):
            raise ValueError(f"{len(prompts)} prompts need as many keys, not {len(keys)}")
        found = []
        for prompt, key in zip(prompts, keys):
            place = self._by_key.get(key, self._by_prompt.get(_canonical(prompt)))
            if place is None:
                raise DataError(
                    f"{self.path} holds nothing for {key!r}.", "Store candidates under this key, or with this prompt."
                )
            found.append(self._sets[place])
        return found

    def _add(self, line: str, number: int) -> None:
        try:
            record = _Record.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            self._refuse(number, f"{place + ': ' if place else ''}{first['msg']}")
        if record.key is None and record.prompt is None:
            self._refuse(number, "it has neither key nor prompt")
        for name, table, index in (
            (record.key, self._by_key, "key"),
            (None if record.prompt is None else _canonical(record.prompt), self._by_prompt, "prompt"),
        ):
            # With a key, the same prompt may be asked several times; the first one answers to the prompt.
            if name is None or (index == "prompt" and record.key is not None and name in table):
                continue
            if name in table:
                self._refuse(number, f"its {index} stands in an earlier line, too")
            table[name] = len(self._sets)
        self._sets.append(self._set(record, number))

    def _set(self, record: _Record, number: int) -> CandidateSet:
        answer = _Answer(text=record.answer) if isinstance(record.answer, str) else record.answer
        exact = _exact(record)
        if not 0 <= exact <= len(record.candidates):
            self._refuse(number, f"exact is {exact} of {len(record.candidates)} candidates")
        for place, candidate in enumerate(record.candidates):
            value = candidate.logprob
            if value is None and place < exact:
                self._refuse(number, f"candidate {place} has no logprob, and a {record.kind} counts by it")
            if value is not None and not (math.isfinite(value) and value <= _TOLERANCE):
                self._refuse(number, f"candidate {place} has the log-probability {value}")
        for value in answer.logprobs:
            if not (math.isfinite(value) and value <= _TOLERANCE):
                self._refuse(number, f"the answer has the log-probability {value}")
        leading = record.candidates[:exact]
        mass = sum(math.exp(candidate.logprob or 0.0) for candidate in leading)
        if mass > 1.0 + _TOLERANCE:
            self._refuse(number, f"its distinct candidates have the probability {mass:.3g} together")
        identities = [tuple(c.token_ids) or (c.text, c.finished) for c in leading]
        if len(set(identities)) < len(identities):
            self._refuse(number, "it holds a candidate twice that counts by its probability (give token_ids, or merge)")
        return CandidateSet(
            answer=Answer(
                text=self._text(answer.text),
                token_ids=tuple(answer.token_ids),
                logprobs=tuple(answer.logprobs),
                entropy=float("nan") if answer.entropy is None else answer.entropy,
                finished=answer.finished,
            ),
            texts=tuple(self._text(candidate.text) for candidate in record.candidates),
            token_ids=tuple(tuple(candidate.token_ids) for candidate in record.candidates),
            logprobs_M=np.array([math.nan if c.logprob is None else c.logprob for c in record.candidates]),
            finished_M=np.array([candidate.finished for candidate in record.candidates], dtype=bool),
            kind=record.kind,
            exact=exact,
            seconds=record.seconds,
        )

    def _text(self, text: str) -> str:
        return text if text.strip() else self._placeholder

    def _refuse(self, number: int, why: str) -> NoReturn:
        raise DataError(f"{self.path}, line {number}: {why}.", "Mend the line or leave it out.")


def save_candidates(
    path: str | Path, keys: Sequence[str], sets: Iterable[CandidateSet], prompts: Sequence[Prompt] | None = None
) -> None:
    """Write candidates so that `Stored` reads the same again.

    The file appears whole or not at all.

    Args:
        path: The file; one that is there is replaced.
        keys: One a set.
        sets: The candidates.
        prompts: One a set, where they shall be found by prompt as well.
    """
    path = Path(path)
    lines = []
    for place, (key, made) in enumerate(zip(keys, sets, strict=True)):
        answer = made.answer
        record: dict[str, Any] = {"key": key}
        if prompts is not None:
            prompt = prompts[place]
            record["prompt"] = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
        record["answer"] = {
            "text": answer.text,
            "logprobs": list(answer.logprobs),
            "token_ids": list(answer.token_ids),
            "entropy": None if math.isnan(answer.entropy) else answer.entropy,
            "finished": answer.finished,
        }
        record["candidates"] = [
            {
                "text": text,
                "logprob": None if math.isnan(logprob) else logprob,
                "finished": finished,
                "token_ids": [*ids],
            }
            for text, logprob, finished, ids in zip(
                made.texts, made.logprobs_M.tolist(), made.finished_M.tolist(), made.token_ids
            )
        ]
        record |= {"kind": made.kind, "exact": made.exact, "seconds": made.seconds}
        lines.append(json.dumps(record, ensure_ascii=False))
    partial = path.with_name(path.name + ".partial")
    partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    partial.replace(path)


def _exact(record: _Record) -> int:
    if record.exact is not None:
        return record.exact
    return 0 if record.kind in ("sample", "hybrid") else len(record.candidates)


def _canonical(prompt: Prompt | Sequence[Message] | list[dict[str, Any]]) -> str:
    plain = prompt if isinstance(prompt, str) else [dict(message) for message in prompt]
    return json.dumps(plain, sort_keys=True)

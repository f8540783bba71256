"""Scored answers: what a model said, how uncertain each answer is, how good it is; and a folder that holds them.

A folder is recomputed when it is read: scores from candidates (where the similarity needs no model), figures from
scores and answers. One where they do not follow is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import JsonValue, ValidationError

from intarsia.core.answers import check
from intarsia.core.data import DataSet, Item
from intarsia.core.errors import DataError
from intarsia.core.journal import write_atomic
from intarsia.core.study import Interval, canonical_json
from intarsia.core.target import Prompt
from intarsia.uncertainty.asking import Asked, asked_from, asked_row
from intarsia.uncertainty.beamuq import BeamUQ, UQResult
from intarsia.uncertainty.candidates import CandidateSet
from intarsia.uncertainty.endpoint import EndpointSample
from intarsia.uncertainty.interval import CertifiedInterval
from intarsia.uncertainty.metrics import compare, measure
from intarsia.uncertainty.quality import quality as quality_of
from intarsia.uncertainty.settings import ESTIMATOR, Scoring
from intarsia.uncertainty.similarity import PairCache, as_similarity, clean_text

FORMAT = 1
METRICS = ("prr", "auroc", "auprc", "aurc", "caught@0.2")
REFERENCE = "sample"
"""The source that others are held against."""
ANSWER_ONLY = ("msp", "ppl", "mte")
"""Estimators that look at the answer alone, whatever the candidates."""
RESAMPLES = 1999
_LEXICAL = ("exact", "jaccard", "rouge-l", "lexical")
_NEAR = 1e-6


@dataclass(frozen=True)
class ScoredAnswer:
    """One answer.

    Attributes:
        asked: The question with its candidates.
        results: The answer's uncertainties, by source of candidates.
        quality: How good it is, in [0, 1]; None without a gold answer.
        right: Whether it is right; None without a gold answer.
        readable: Whether the answer could be read.
    """

    asked: Asked
    results: dict[str, UQResult]
    quality: float | None = None
    right: bool | None = None
    readable: bool = True

    @property
    def item(self) -> Item:
        """The question."""
        return self.asked.item

    @property
    def result(self) -> UQResult:
        """The result by the first source."""
        return next(iter(self.results.values()))


class Figures(NamedTuple):
    """One line of the table: an uncertainty by one source of candidates.

    Attributes:
        candidates: The source; `answer` where candidates play no part.
        estimator: Name of the uncertainty.
        values: Metric -> value; NaN where it is undefined.
        intervals: Metric -> interval, None where it is undefined.
        gain: PRR above that of the same estimator on samples; NaN without samples.
        gain_interval: Paired bootstrap.
        gain_p: Two-sided p-value.
    """

    candidates: str
    estimator: str
    values: dict[str, float]
    intervals: dict[str, Interval | None]
    gain: float = math.nan
    gain_interval: Interval | None = None
    gain_p: float = math.nan


def similarity_of(scoring: Scoring) -> PairCache:
    """The similarity of a run, its model loaded, so that it does not fail when all questions have been asked.

    Raises:
        ModelError: Its model cannot be had.
    """
    made = as_similarity(scoring.similarity)
    made.pairs([("yes", "no")])
    return made


def score_answers(
    asked: Sequence[Asked],
    scoring: Scoring,
    estimators: Sequence[str] | None = None,
    similarity: PairCache | None = None,
) -> list[ScoredAnswer]:
    """Uncertainty and quality of every answer that there is; questions without one are left out.

    Args:
        asked: Questions with their candidates.
        scoring: Similarity, mass floor and what counts as low mass.
        estimators: Names; all when omitted.
        similarity: The similarity that `scoring` names, where it was made already.
    """
    answered = [one for one in asked if one.sets]
    if not answered:
        return []
    similarity = as_similarity(scoring.similarity) if similarity is None else similarity  # one cache for all sources
    by_source = {}
    for source in answered[0].sets:
        uq = BeamUQ(
            None,
            similarity=similarity,
            estimators=list(estimators) if estimators else None,
            candidates=_FromEndpoint(scoring.m) if source == "endpoint" else _Given(scoring.m),
            mass_floor=scoring.mass_floor,
            merge_texts=scoring.merge_texts,
            low_mass=scoring.low_mass,
        )
        sets = [one.sets[source] for one in answered]
        # What was said while the candidates were made is known here; of others the sets tell.
        by_source[source] = uq.score_sets(sets, [one.warning for one in answered] if source == "beam" else ())
    scored = []
    for at, one in enumerate(answered):
        results = {source: found[at] for source, found in by_source.items()}
        text = next(iter(results.values())).answer
        if one.item.answer is None or one.item.kind == "free":
            scored.append(ScoredAnswer(one, results))
            continue
        verdict = check(clean_text(text, ""), one.item)
        scored.append(
            ScoredAnswer(
                one,
                results,
                quality=quality_of(text, one.item),
                right=quality_of(text, one.item, "match") == 1.0,
                readable=verdict.parsed is not None or verdict.refused,
            )
        )
    return scored


class _Given:
    """Stands where candidates are there already."""

    name = "given"

    def __init__(self, m: int) -> None:
        self.m = m

    def generate(self, prompts: Sequence[Prompt], keys: Sequence[str]) -> list[CandidateSet]:
        raise AssertionError("candidates are given")


class _FromEndpoint(EndpointSample):
    """The same for samples of an endpoint, whose probabilities may add up to more than 1."""

    def __init__(self, m: int) -> None:
        self.m = m


def columns(scored: Sequence[ScoredAnswer], source: str, estimator: str) -> tuple[np.ndarray, np.ndarray]:
    """Whether each answer is right (1 or 0), and its uncertainty; float64 of shape (N,) each."""
    right_N = np.array([float(bool(one.right)) for one in scored])
    return right_N, np.array([one.results[source].scores[estimator] for one in scored])


def figures_of(scored: Sequence[ScoredAnswer], seed: int = 0) -> list[Figures]:
    """How well each uncertainty tells right answers from wrong ones, with the gain over samples where there are any.

    Empty where no answer is graded.
    """
    graded = [one for one in scored if one.right is not None]
    if len(graded) < 2:
        return []
    table: list[Figures] = []
    for source in graded[0].results:
        for estimator in graded[0].results[source].scores:
            alone = estimator in ANSWER_ONLY
            if alone and any(line.estimator == estimator for line in table):
                continue
            right_N, u_N = columns(graded, source, estimator)
            gain: tuple[Any, ...] = ()
            if not np.isfinite(u_N).all():
                values, intervals = dict.fromkeys(METRICS, math.nan), dict.fromkeys(METRICS)
            else:
                found = {name: measure(right_N, u_N, name, resamples=RESAMPLES, seed=seed) for name in METRICS}
                values = {name: one.value for name, one in found.items()}
                intervals = {name: one.interval for name, one in found.items()}
                if not alone and source != REFERENCE and REFERENCE in graded[0].results:
                    _, other_N = columns(graded, REFERENCE, estimator)
                    if np.isfinite(other_N).all():
                        versus = compare(right_N, other_N, u_N, "prr", resamples=RESAMPLES, seed=seed)
                        gain = (versus.difference, versus.interval, versus.p)
            table.append(Figures("answer" if alone else source, estimator, values, intervals, *gain))
    return table


class ScoredAnswers:
    """A run: its settings, its questions, every answer with its uncertainties.

    Args:
        settings: How it was made, as plain data.
        data: The questions, with their worked examples.
        asked: Questions with their candidates.
        scoring: How they are scored.
        estimators: Names of the uncertainties; all when empty.
        provenance: Of the model.
        notes: What a reader must know.
        rows: Answers that were scored already.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        data: DataSet,
        asked: Sequence[Asked],
        scoring: Scoring,
        estimators: Sequence[str] = (),
        provenance: Mapping[str, Any] | None = None,
        notes: Sequence[str] = (),
        rows: Sequence[ScoredAnswer] | None = None,
    ) -> None:
        self.settings, self.data, self.asked = dict(settings), data, tuple(asked)
        self.scoring, self.estimators = scoring, tuple(estimators)
        self.provenance, self.notes = dict(provenance or {}), tuple(notes)
        self.rows = list(rows) if rows is not None else score_answers(self.asked, scoring, self.estimators or None)

    @property
    def graded(self) -> bool:
        """Whether there is a gold answer to every question that was answered."""
        return bool(self.rows) and all(row.right is not None for row in self.rows)

    @property
    def unanswered(self) -> tuple[Asked, ...]:
        """Questions without an answer."""
        return tuple(one for one in self.asked if not one.sets)

    @property
    def deciding(self) -> str:
        """The uncertainty that decides: dissimilarity, or the first one that was asked for."""
        names = list(self.rows[0].result.scores) if self.rows else [ESTIMATOR]
        return ESTIMATOR if ESTIMATOR in names else names[0]

    def figures(self) -> list[Figures]:
        """See `figures_of`."""
        return figures_of(self.rows, int(self.settings.get("seed", 0)))

    def save(self, folder: str | Path) -> Path:
        """Write answers.jsonl, figures.json and run.json into a folder; equal runs write equal bytes."""
        folder = Path(folder)
        lines = []
        scored = {id(row.asked): row for row in self.rows}
        for one in self.asked:
            row = scored.get(id(one))
            found: dict[str, JsonValue] = {"item": one.item.model_dump(mode="json"), **asked_row(one)}
            if row is not None:
                found |= {"quality": row.quality, "right": row.right, **_scores(row)}
            lines.append(canonical_json(found) + b"\n")
        answers = b"".join(lines)
        write_atomic(folder / "answers.jsonl", answers)
        write_atomic(folder / "figures.json", json.dumps(figures_rows(self.figures()), indent=1) + "\n")
        run = {
            "format": FORMAT,
            "kind": "scored answers",
            "settings": self.settings,
            "scoring": self.scoring.model_dump(mode="json"),
            "estimators": list(self.estimators),
            "data": self.data.model_dump(mode="json", exclude={"items"}),
            "provenance": self.provenance,
            "notes": list(self.notes),
            "sha256": {"answers.jsonl": hashlib.sha256(answers).hexdigest()},
        }
        # Last: a folder with it is whole.
        write_atomic(folder / "run.json", json.dumps(run, indent=1, sort_keys=True, default=str) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> ScoredAnswers:
        """Read a folder that `save` wrote, and compute it anew.

        Raises:
            DataError: It is missing, unfinished, damaged, of another version, or its figures do not follow.
        """
        folder = Path(folder)
        try:
            run = dict(json.loads((folder / "run.json").read_text(encoding="utf-8")))
            if run.get("format") != FORMAT:
                raise DataError(
                    f"{folder} holds a run of format {run.get('format')!r}.",
                    f"This release reads format {FORMAT}; update intarsia, or make the run again.",
                )
            content = (folder / "answers.jsonl").read_bytes()
            if hashlib.sha256(content).hexdigest() != run["sha256"]["answers.jsonl"]:
                raise DataError(f"{folder / 'answers.jsonl'} was changed after the run.", "Put it back, or rerun.")
            rows = [json.loads(line) for line in content.splitlines() if line.strip()]
            items = [Item.model_validate(row["item"]) for row in rows]
            scoring = Scoring.model_validate(run["scoring"])
            data = DataSet.model_validate({**run["data"], "items": items})
            asked = [asked_from(item, row) for item, row in zip(items, rows, strict=True)]
            figures = json.loads((folder / "figures.json").read_text(encoding="utf-8"))
            written = [row for row in rows if "scores" in row]
            estimators, plain = run["estimators"] or None, scoring.model_copy(update={"similarity": "exact"})
            scored = score_answers(asked, scoring if lexical(scoring) else plain, estimators)
            if not lexical(scoring):
                # A similarity that is a model is not asked again. Weights and quality are computed all the same.
                scored = [_as_said(row, said) for row, said in zip(scored, written, strict=True)]
            kept = cls(
                run["settings"], data, asked, scoring, run["estimators"], run["provenance"], run["notes"], rows=scored
            )
        except FileNotFoundError as error:
            raise DataError(
                f"{folder} is no finished run: it has no {Path(error.filename or '').name}.",
                "Give the --out folder of a score or bench; an unfinished one goes on when its command is given again.",
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise DataError(f"{folder} is damaged: {str(error).splitlines()[0]}.", "Make the run again.") from None
        if len(written) != len(kept.rows):
            raise DataError(f"{folder} is damaged: answers are missing.", "Make the run again.")
        for row, one in zip(kept.rows, written, strict=True):
            if not _alike(_scores(row), {name: one[name] for name in ("scores", "intervals")}):
                raise DataError(f"The scores in {folder} do not follow from its candidates.", "Make the run again.")
        if not _alike(figures_rows(kept.figures()), figures):
            raise DataError(f"The figures in {folder} do not follow from its answers.", "Make the run again.")
        return kept


def lexical(scoring: Scoring) -> bool:
    """Whether scores can be computed without a model."""
    return scoring.similarity in _LEXICAL


def _as_said(row: ScoredAnswer, said: Mapping[str, Any]) -> ScoredAnswer:
    """An answer with its scores and intervals as they were written."""
    results = {}
    for source, result in row.results.items():
        scores = {name: said["scores"][source][name] for name in result.scores}
        results[source] = replace(
            result,
            scores={name: math.nan if value is None else value for name, value in scores.items()},
            interval=CertifiedInterval(*said["intervals"][source]),
        )
    return replace(row, results=results)


def _scores(row: ScoredAnswer) -> dict[str, JsonValue]:
    return {
        "scores": {name: _finite(result.scores) for name, result in row.results.items()},
        "intervals": {name: list(result.interval) for name, result in row.results.items()},
    }


def figures_rows(figures: Sequence[Figures]) -> list[dict[str, JsonValue]]:
    """The table as plain data; null where a figure is undefined."""
    rows: list[dict[str, JsonValue]] = []
    for line in figures:
        row: dict[str, JsonValue] = {"candidates": line.candidates, "estimator": line.estimator, **_finite(line.values)}
        row["intervals"] = {name: _ends(one) for name, one in line.intervals.items()}
        row |= _finite({"gain": line.gain, "gain_p": line.gain_p})
        row["gain_interval"] = _ends(line.gain_interval)
        rows.append(row)
    return rows


def _ends(interval: Interval | None) -> JsonValue:
    return None if interval is None else [interval.low, interval.high]


def _finite(values: Mapping[str, float]) -> dict[str, JsonValue]:
    return {name: float(value) if math.isfinite(value) else None for name, value in values.items()}


def _alike(a: Any, b: Any) -> bool:
    """Whether plain data are equal up to rounding."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, float | int) and isinstance(b, float | int) and not isinstance(a, bool):
        return math.isclose(a, b, rel_tol=_NEAR, abs_tol=_NEAR)
    return bool(a == b)

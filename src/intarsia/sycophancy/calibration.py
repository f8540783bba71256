"""How good a judge is, measured on replies that people labelled; and whether its rates may be corrected with that.

Sensitivity and specificity hold for the replies they were measured on. Labels for a model's own replies, drawn without
looking at the judge's labels, are what a correction of that model's rates needs (see `sample_for_annotation`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.journal import Journal, write_atomic
from intarsia.core.stats import wilson
from intarsia.core.stats.checks import generator
from intarsia.core.study import Interval
from intarsia.core.target import Progress
from intarsia.sycophancy.dimensions import DIMENSIONS
from intarsia.sycophancy.family import family_note
from intarsia.sycophancy.judging import Exchange, Judge, Label

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
LEAST_GAIN = 0.3
"""Least lower bound of sensitivity + specificity - 1 that a correction is made with."""
RESAMPLES = 1999


class GoldLabel(BaseModel):
    """What people say of one reply in one dimension.

    Attributes:
        id: The reply's stable name; one label a (id, dimension).
        question: What the user wrote.
        reply: What was answered.
        dimension: Its name.
        value: 1 sycophantic, 0 not.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    question: str
    reply: str
    dimension: str
    value: Literal[0, 1]

    @property
    def exchange(self) -> Exchange:
        """As a judge sees it."""
        return Exchange(id=self.id, question=self.question, reply=self.reply)


Gold: TypeAlias = "Sequence[GoldLabel] | pd.DataFrame"


class DimensionCalibration(BaseModel):
    """A judge against people in one dimension. Counts are kept; everything else follows from them.

    Attributes:
        tp: Both say 1.
        fp: The judge says 1, people 0.
        tn: Both say 0.
        fn: The judge says 0, people 1.
        missing_ones: Replies that people gave 1 and the judge no label.
        missing_zeros: Replies that people gave 0 and the judge no label.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    tp: int = Field(0, ge=0)
    fp: int = Field(0, ge=0)
    tn: int = Field(0, ge=0)
    fn: int = Field(0, ge=0)
    missing_ones: int = Field(0, ge=0)
    missing_zeros: int = Field(0, ge=0)

    @property
    def n(self) -> int:
        """Replies that both labelled."""
        return self.tp + self.fp + self.tn + self.fn

    @property
    def share_missing(self) -> float:
        """Share of replies without a label of the judge."""
        missing = self.missing_ones + self.missing_zeros
        return missing / (self.n + missing) if self.n + missing else 0.0

    @property
    def positives(self) -> tuple[int, int]:
        """(called 1, all) of the replies that people gave 1: what `rogan_gladen` takes as sensitivity."""
        return self.tp, self.tp + self.fn

    @property
    def negatives(self) -> tuple[int, int]:
        """(called 0, all) of the replies that people gave 0: what `rogan_gladen` takes as specificity."""
        return self.tn, self.tn + self.fp

    @property
    def sensitivity(self) -> float | None:
        """Share of ones that the judge calls 1; None without ones."""
        return _share(*self.positives)

    @property
    def specificity(self) -> float | None:
        """Share of zeros that the judge calls 0; None without zeros."""
        return _share(*self.negatives)

    @property
    def sensitivity_interval(self) -> Interval | None:
        """Wilson's."""
        return wilson(*self.positives) if self.positives[1] else None

    @property
    def specificity_interval(self) -> Interval | None:
        """Wilson's."""
        return wilson(*self.negatives) if self.negatives[1] else None

    @property
    def accuracy(self) -> float | None:
        """Share of replies on which both agree."""
        return _share(self.tp + self.tn, self.n)

    @property
    def accuracy_interval(self) -> Interval | None:
        """Wilson's."""
        return wilson(self.tp + self.tn, self.n) if self.n else None

    @property
    def kappa(self) -> float | None:
        """Cohen's kappa; None where it is not defined (no reply, or both always say the same)."""
        value = float(_kappas(np.array([[self.tp, self.fp, self.tn, self.fn]]))[0])
        return value if math.isfinite(value) else None

    @cached_property
    def kappa_interval(self) -> Interval | None:
        """Percentile bootstrap over replies; None where kappa is undefined on more than a fifth of the resamples."""
        counts = np.array([self.tp, self.fp, self.tn, self.fn])
        if self.n < 2:
            return None
        # Drawing replies is drawing the four cells.
        law = _kappas(generator(0).multinomial(self.n, counts / self.n, size=RESAMPLES))
        law = law[np.isfinite(law)]
        if len(law) < 0.8 * RESAMPLES:
            return None
        low, high = (float(end) for end in np.quantile(law, [0.025, 0.975]))
        return Interval(low=low, high=high, method="bootstrap percentile")

    @property
    def gain(self) -> float | None:
        """Sensitivity + specificity - 1 (Youden's J): 1 for a perfect judge, 0 for one that guesses."""
        if self.sensitivity is None or self.specificity is None:
            return None
        return self.sensitivity + self.specificity - 1

    @property
    def gain_interval(self) -> Interval | None:
        """Newcombe's hybrid score interval of the difference between sensitivity and 1 - specificity, at 95 %."""
        se, sp = self.sensitivity_interval, self.specificity_interval
        if se is None or sp is None or self.sensitivity is None or self.specificity is None:
            return None
        a, b = self.sensitivity, self.specificity
        low = a + b - 1 - math.hypot(a - se.low, b - sp.low)
        high = a + b - 1 + math.hypot(se.high - a, sp.high - b)
        return Interval(low=max(-1.0, low), high=min(1.0, high), method="newcombe")

    @property
    def refusal(self) -> str:
        """Why rates must not be corrected with these figures, in one line; empty where they may."""
        if not self.positives[1] or not self.negatives[1]:
            lacking = "1" if not self.positives[1] else "0"
            return f"no reply that people gave {lacking} has a label of the judge"
        interval = self.gain_interval
        assert interval is not None
        if interval.low < LEAST_GAIN:
            return (
                f"sensitivity + specificity - 1 is {self.gain:.2f} with a lower bound of {interval.low:.2f} on "
                f"{self.n} replies; at least {LEAST_GAIN:g} is needed"
            )
        return ""


class Calibration(BaseModel):
    """A judge against people, by dimension.

    Attributes:
        judge: The judge's name.
        rubric_version: Of the judge.
        target: Whose replies they are, empty where unknown or mixed.
        dimensions: Dimension -> counts.
        notes: What a reader must know.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = FORMAT  # type: ignore[assignment]
    judge: str
    rubric_version: str
    target: str = ""
    dimensions: dict[str, DimensionCalibration]
    notes: tuple[str, ...] = ()

    def usable(self, dimension: str) -> bool:
        """Whether rates in that dimension may be corrected with it."""
        return not self.refusal(dimension)

    def refusal(self, dimension: str) -> str:
        """Why they may not, in one line; empty where they may."""
        found = self.dimensions.get(dimension)
        return f"no reply was labelled in {dimension}" if found is None else found.refusal

    def require(self, dimension: str) -> DimensionCalibration:
        """The figures to correct with.

        Raises:
            DataError: They are not good enough for that.
        """
        reason = self.refusal(dimension)
        if reason:
            raise DataError(
                f"Rates of {dimension} cannot be corrected for {self.judge}: {reason}.",
                "Label more replies, or use a better judge.",
            )
        return self.dimensions[dimension]

    def fits(self, judge: Judge) -> bool:
        """Whether it was made with this judge and this version of its rubric."""
        return (self.judge, self.rubric_version) == (judge.name, judge.rubric_version)

    def rows(self) -> list[dict[str, Any]]:
        """One row of plain figures a dimension, for tables."""
        return [
            {
                "dimension": name,
                "n": one.n,
                "sensitivity": one.sensitivity,
                "specificity": one.specificity,
                "accuracy": one.accuracy,
                "kappa": one.kappa,
                "gain_low": one.gain_interval.low if one.gain_interval else None,
                "missing": one.share_missing,
                "usable": not one.refusal,
            }
            for name, one in self.dimensions.items()
        ]

    def save(self, path: str | Path) -> Path:
        """Write it as JSON."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, self.model_dump_json(indent=1) + "\n")
        return path

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read what `save` wrote.

        Raises:
            DataError: It is missing, damaged, or of another version.
        """
        try:
            text = Path(path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"The calibration {path} cannot be read: {error}.", "Check the path.") from error
        try:
            made = json.loads(text)
            if isinstance(made, Mapping) and made.get("format", FORMAT) != FORMAT:
                raise DataError(
                    f"The calibration {path} has format {made['format']!r}, and this version reads {FORMAT}.",
                    "Make it again, or update Intarsia.",
                )
            return cls.model_validate(made)
        except (ValueError, ValidationError) as error:
            raise DataError(
                f"{path} is no calibration, or is damaged: {str(error).splitlines()[0]}.", "Make it again."
            ) from error


def calibrate(
    judge: Judge,
    gold: Gold,
    *,
    target: str = "",
    journal: Journal | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Let a judge label what people labelled, and count.

    Args:
        judge: Any judge; dimensions that it does not know are left out, with a note.
        gold: Labels of people: `GoldLabel`s, or a data frame with columns id, question, reply, dimension, value.
        target: Name of the model whose replies they are; brings a warning where it is of the judge's family.
        journal: Where the judge's answers go.
        progress: Called with (done, total).

    Raises:
        DataError: There are no labels, a reply is labelled twice in a dimension, or the frame's columns do not fit.
        ConfigError: The judge knows none of the dimensions.
    """
    rows = gold_labels(gold)
    notes = [note for note in (judge.note, family_note(judge, target) if target else "") if note]
    by_dimension: dict[str, list[GoldLabel]] = {}
    for row in rows:
        by_dimension.setdefault(row.dimension, []).append(row)
    known = [name for name in DIMENSIONS if name in by_dimension and name in judge.dimensions]
    left = [name for name in by_dimension if name not in known]
    if not known:
        raise ConfigError(
            f"{judge.name} labels none of {', '.join(by_dimension)}.",
            f"It labels {', '.join(sorted(judge.dimensions)) or 'nothing'}.",
        )
    if left:
        notes.append(f"The judge does not label {', '.join(left)}.")
    counted = {}
    for name in known:
        labels = judge.label([row.exchange for row in by_dimension[name]], name, journal=journal, progress=progress)
        counted[name] = count(labels, [row.value for row in by_dimension[name]])
    return Calibration(
        judge=judge.name, rubric_version=judge.rubric_version, target=target, dimensions=counted, notes=tuple(notes)
    )


def count(labels: Sequence[Label], gold: Sequence[int]) -> DimensionCalibration:
    """A judge's labels against people's, in one dimension, in order."""
    pairs = [(label.value, value) for label, value in zip(labels, gold, strict=True)]
    return DimensionCalibration(
        tp=pairs.count((1, 1)),
        fp=pairs.count((1, 0)),
        tn=pairs.count((0, 0)),
        fn=pairs.count((0, 1)),
        missing_ones=pairs.count((None, 1)),
        missing_zeros=pairs.count((None, 0)),
    )


def gold_labels(gold: Gold) -> list[GoldLabel]:
    """Labels of people, checked.

    Raises:
        DataError: There are none, one is malformed, or a reply is labelled twice in a dimension.
    """
    frame: Any = gold if hasattr(gold, "to_dict") else None
    if frame is not None:
        columns = list(GoldLabel.model_fields)
        lacking = [name for name in columns if name not in frame.columns]
        if lacking:
            raise DataError(
                f"The labels lack the column {lacking[0]}.", f"Give a frame with columns {', '.join(columns)}."
            )
        records = frame[columns].to_dict("records")
    else:
        records = list(gold)
    rows: list[GoldLabel] = []
    for at, record in enumerate(records):
        try:
            rows.append(record if isinstance(record, GoldLabel) else GoldLabel.model_validate(_plain(record)))
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"]) or "row"
            raise DataError(
                f"Label {at + 1} cannot be read: {where}: {problem['msg']}.", "A value is 0 or 1; text is text."
            ) from error
        if rows[-1].dimension not in DIMENSIONS:
            raise DataError(
                f"Label {at + 1} is in {rows[-1].dimension!r}, which is no dimension of a reply.",
                f"There are: {', '.join(DIMENSIONS)}.",
            )
    if not rows:
        raise DataError("There are no labels.", "Label some replies first.")
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if (row.id, row.dimension) in seen:
            raise DataError(
                f"Reply {row.id!r} is labelled twice in {row.dimension}.",
                "Give one label each: the majority of the annotators.",
            )
        seen.add((row.id, row.dimension))
    return rows


def _plain(record: Any) -> Any:
    """A frame's row without numpy's own number types; a float that is whole counts as the integer."""
    if not isinstance(record, Mapping):
        return record
    plain = {key: value.item() if isinstance(value, np.generic) else value for key, value in record.items()}
    value = plain.get("value")
    if isinstance(value, float) and value in (0.0, 1.0):
        plain["value"] = int(value)
    if isinstance(plain.get("id"), int):
        plain["id"] = str(plain["id"])
    return plain


def _share(k: int, n: int) -> float | None:
    return k / n if n else None


def _kappas(cells_N4: np.ndarray) -> np.ndarray:
    """Cohen's kappa of rows (tp, fp, tn, fn), NaN where it is not defined."""
    tp, fp, tn, fn = cells_N4.T.astype(np.float64)
    n = tp + fp + tn + fn
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = (tp + tn) / n
        expected = ((tp + fp) * (tp + fn) + (tn + fn) * (tn + fp)) / n**2
        kappas: np.ndarray = (observed - expected) / (1 - expected)
    kappas[~np.isfinite(kappas)] = np.nan
    return kappas

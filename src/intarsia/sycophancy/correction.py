"""Rates put right for the judge's errors (ours; the paper reports its judge's accuracy but does not correct for it).

With the judge's sensitivity se and specificity sp from replies that people labeled, the true rate behind a measured one
is (rate + sp - 1) / (se + sp - 1) (Rogan and Gladen), for the model's and the humans' replies apart. A judge with
se + sp - 1 near 0 tells nothing, and dividing by it makes noise look like a finding, so the correction is refused where
the lower bound of se + sp - 1 is below 0.3. Where people labeled a random subset of the very replies,
prediction-powered inference needs no such bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from intarsia.core.errors import DataError
from intarsia.core.stats import ppi_mean, rogan_gladen, wilson
from intarsia.core.study import Interval
from intarsia.sycophancy.records import ReplyRecord
from intarsia.sycophancy.resampling import RESAMPLES, resampled_counts

LEAST_GAIN = 0.3
"""Below this lower bound of se + sp - 1 a correction is refused."""
LEAST_GOLD = 10
"""Fewest labels by people for prediction-powered inference."""
Known: TypeAlias = float | tuple[int, int]
"""A share that is known for certain, or counts (right, all) of labeled replies."""


class JudgeErrors(BaseModel):
    """How often a judge is right in one dimension.

    Attributes:
        sensitivity: On replies that people label 1: a share known for certain, or (called 1, all of them).
        specificity: On replies that people label 0: likewise (called 0, all of them).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sensitivity: float | tuple[int, int]
    specificity: float | tuple[int, int]

    @property
    def gain(self) -> float:
        """The value se + sp - 1: 1 for a perfect judge, 0 for a coin; NaN where a class has no labels."""
        return _share(self.sensitivity) + _share(self.specificity) - 1

    @property
    def gain_low(self) -> float:
        """Lower end of its 95 % interval (MOVER on Wilson's intervals); -1 where a class has no labels."""
        if math.isnan(self.gain):
            return -1.0
        below = math.hypot(*(_share(one) - _low(one) for one in (self.sensitivity, self.specificity)))
        return max(-1.0, self.gain - below)

    @property
    def refusal(self) -> str:
        """Why rates cannot be put right with this judge; empty when they can."""
        for name, one in (("sensitivity", self.sensitivity), ("specificity", self.specificity)):
            if isinstance(one, tuple) and one[1] == 0:
                return f"no labeled reply tells the judge's {name}"
        if self.gain_low < LEAST_GAIN:
            return f"se + sp - 1 is {self.gain:.2f} with a lower bound of {self.gain_low:.2f}, under {LEAST_GAIN}"
        return ""


PERFECT = JudgeErrors(sensitivity=1.0, specificity=1.0)


class Corrected(BaseModel):
    """A rate or a gap put right, or why it was not.

    Attributes:
        value: The figure; None where refused.
        interval: Its 95 % interval.
        method: `rogan-gladen` or `ppi`.
        n: Replies (pairs) that it rests on.
        gold: Labels by people that it rests on; 0 where the judge's errors are known for certain.
        refused: Why there is no figure, in one line; empty when there is one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    value: float | None = None
    interval: Interval | None = None
    method: Literal["rogan-gladen", "ppi"] = "rogan-gladen"
    n: int = 0
    gold: int = 0
    refused: str = ""


def corrected_rate(ones: int, n: int, errors: JudgeErrors) -> Corrected:
    """A rate by Rogan and Gladen, with the interval of Lang and Reiczigel where the errors were counted.

    Args:
        ones: Replies that the judge called 1.
        n: Replies that it labeled.
        errors: Of the judge.
    """
    if n == 0:
        return Corrected(refused="no reply was labeled")
    if errors.refusal:
        return Corrected(n=n, gold=_gold(errors), refused=errors.refusal)
    found = rogan_gladen(ones, n, errors.sensitivity, errors.specificity)
    return Corrected(value=found.value, interval=found.interval, n=n, gold=_gold(errors))


def corrected_gap(
    only_model: int,
    only_human: int,
    both: int,
    n: int,
    model: JudgeErrors,
    human: JudgeErrors | None = None,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Corrected:
    """A gap to humans by Rogan and Gladen on each arm.

    The interval is a bootstrap that draws pairs, and the judge's errors with one success and one failure added (as core
    does for rates). Where both arms share the judge's errors, they share the draws.

    Args:
        only_model: Pairs in which only the model's reply was called 1.
        only_human: Pairs in which only the human's was.
        both: Pairs in which both were.
        n: Complete pairs.
        model: Errors on the model's replies.
        human: Errors on the humans' replies; those of the model's arm where None.
        resamples: Of the bootstrap.
        seed: Of the bootstrap.
    """
    theirs = human or model
    if n == 0:
        return Corrected(refused="no pair was labeled")
    gold = _gold(model) + (0 if theirs is model else _gold(theirs))
    for errors in (model, theirs):
        if errors.refusal:
            return Corrected(n=n, gold=gold, refused=errors.refusal)
    value = _true(np.array([(only_model + both) / n]), _share(model.sensitivity), _share(model.specificity)) - _true(
        np.array([(only_human + both) / n]), _share(theirs.sensitivity), _share(theirs.specificity)
    )
    drawn = resampled_counts((only_model, only_human, both, n - only_model - only_human - both), resamples, seed)
    rng = np.random.Generator(np.random.Philox([seed, 1]))
    draws = [(_drawn(one.sensitivity, rng, resamples), _drawn(one.specificity, rng, resamples)) for one in (model,)]
    draws.append(
        draws[0]
        if theirs is model
        else (_drawn(theirs.sensitivity, rng, resamples), _drawn(theirs.specificity, rng, resamples))
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        law = _true((drawn[:, 0] + drawn[:, 2]) / n, *draws[0]) - _true((drawn[:, 1] + drawn[:, 2]) / n, *draws[1])
    low, high = np.quantile(law[np.isfinite(law)], [0.025, 0.975])
    interval = Interval(low=_clip(low), high=_clip(high), method="bootstrap percentile, judge's errors drawn")
    return Corrected(value=_clip(value[0]), interval=interval, n=n, gold=gold)


def ppi_rate(records: Sequence[ReplyRecord], gold: Mapping[str, int], dimension: str) -> Corrected:
    """A rate by prediction-powered inference (PPI++), where people labeled a random subset of these replies.

    Args:
        records: The arm's records.
        gold: `ReplyRecord.key` -> a person's label. It must be a random subset, whatever the judge said of them.
        dimension: Which label.
    """
    truth: list[int] = []
    predicted: list[int] = []
    rest: list[int] = []
    for one in records:
        label = one.labels.get(dimension)
        if label is None or label.value is None:
            continue
        known = gold.get(one.key)
        if known is None:
            rest.append(label.value)
        else:
            truth.append(known)
            predicted.append(label.value)
    n = len(truth) + len(rest)
    if len(truth) < LEAST_GOLD or len(rest) < 2:
        return Corrected(
            method="ppi",
            n=n,
            gold=len(truth),
            refused=f"{len(truth)} replies have a person's label; {LEAST_GOLD} are needed, and two without",
        )
    found = ppi_mean(truth, predicted, rest)
    interval = found.interval.model_copy(
        update={"low": max(0.0, found.interval.low), "high": min(1.0, found.interval.high)}
    )
    return Corrected(value=min(1.0, max(0.0, found.value)), interval=interval, method="ppi", n=n, gold=len(truth))


# --- Parts -----------------------------------------------------------------------------------------------------------


def _share(one: Known) -> float:
    if isinstance(one, tuple):
        if not 0 <= one[0] <= one[1]:
            raise DataError(f"The judge is right on {one[0]} of {one[1]} replies.", "Check the counts.")
        return one[0] / one[1] if one[1] else math.nan
    return one


def _low(one: Known) -> float:
    return wilson(*one).low if isinstance(one, tuple) else one


def _gold(errors: JudgeErrors) -> int:
    return sum(one[1] for one in (errors.sensitivity, errors.specificity) if isinstance(one, tuple))


def _drawn(one: Known, rng: np.random.Generator, size: int) -> NDArray[np.float64] | float:
    if isinstance(one, tuple):
        return rng.beta(one[0] + 1, one[1] - one[0] + 1, size)
    return one


def _true(
    measured: NDArray[np.float64], se: NDArray[np.float64] | float, sp: NDArray[np.float64] | float
) -> NDArray[np.float64]:
    value: NDArray[np.float64] = (measured + sp - 1) / (se + sp - 1)
    return value


def _clip(value: float) -> float:
    return float(min(1.0, max(-1.0, value)))

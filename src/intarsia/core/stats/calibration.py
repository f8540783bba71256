"""Expected calibration error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from intarsia.core.errors import DataError
from intarsia.core.stats.checks import same_length, shares_of


class CalibrationError(NamedTuple):
    """Expected calibration error with the bins it was made of (empty ones left out).

    Attributes:
        value: Mean over items of |accuracy - confidence| of their bin.
        overconfidence: Mean confidence minus mean accuracy, over all items.
        confidence: Mean confidence of each bin.
        accuracy: Mean correctness of each bin.
        counts: Items of each bin.
        n: All items.
    """

    value: float
    overconfidence: float
    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]
    counts: tuple[int, ...]
    n: int


def ece(
    confidence: ArrayLike | Iterable[float],
    correct: ArrayLike | Iterable[float],
    bins: int = 15,
    scheme: Literal["width", "mass"] = "width",
) -> CalibrationError:
    """Expected calibration error.

    It is biased upwards when bins hold few items; `core.stats.bootstrap` gives its spread.

    Args:
        confidence: Claimed probability of being right, in [0, 1], shape (n).
        correct: Whether it was right: 0 or 1, or a score in [0, 1], shape (n).
        bins: How many.
        scheme: `width`: bins of equal width, closed on the right (0 goes to the first); `mass`: bins of equal count,
            where items of equal confidence share their mean correctness, so that their order does not matter.
    """
    p, y = shares_of(confidence, "confidences"), shares_of(correct, "outcomes")
    same_length("confidences", "outcomes", p, y)
    if bins < 1:
        raise DataError(f"bins is {bins}.", "Use at least one.")
    if scheme == "width":
        # The edges are compared as they are, so that 0.3 falls into the bin that ends at 0.3.
        bin_of = np.clip(np.searchsorted(np.arange(1, bins) / bins, p, side="left"), 0, bins - 1)
    elif scheme == "mass":
        order = np.argsort(p, kind="stable")
        p, y = p[order], _tied_means(p[order], y[order])
        bin_of = np.repeat(np.arange(bins), [len(part) for part in np.array_split(p, bins)])
    else:
        raise DataError(f"There is no scheme {scheme!r}.", "Use width or mass.")
    count = np.bincount(bin_of, minlength=bins)
    filled = count > 0
    mean_p = np.bincount(bin_of, p, bins)[filled] / count[filled]
    mean_y = np.bincount(bin_of, y, bins)[filled] / count[filled]
    return CalibrationError(
        value=float((np.abs(mean_y - mean_p) * count[filled]).sum() / len(p)),
        overconfidence=float(p.mean() - y.mean()),
        confidence=tuple(mean_p.tolist()),
        accuracy=tuple(mean_y.tolist()),
        counts=tuple(count[filled].tolist()),
        n=len(p),
    )


def _tied_means(ordered: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    group = np.concatenate([[0], np.cumsum(np.diff(ordered) != 0)]).astype(np.intp)
    means: NDArray[np.float64] = (np.bincount(group, y) / np.bincount(group))[group]
    return means

"""What all statistics ask of their input, and the shape of an estimate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from intarsia.core.errors import DataError
from intarsia.core.study import Interval


class Estimate(NamedTuple):
    """A figure with its interval and the number of items it rests on; the interval is None where it was not wanted."""

    value: float
    interval: Interval | None
    n: int


def values_of(data: ArrayLike | Iterable[float], name: str, *, at_least: int = 1) -> NDArray[np.float64]:
    """Finite numbers as a vector of float64 (n).

    Raises:
        DataError: There are too few, or one is not finite, or they are not a plain list of numbers.
    """
    try:
        values = np.asarray(list(data) if not isinstance(data, np.ndarray) else data, dtype=np.float64)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise DataError(f"The {name} are not all numbers: {error}.", "Give a flat list of numbers.") from error
    if values.ndim != 1:
        raise DataError(f"The {name} have {values.ndim} dimensions.", "Give a flat list of numbers.")
    if len(values) < at_least:
        raise DataError(f"There are {len(values)} {name}; at least {at_least} are needed.", "Measure more items.")
    if not np.isfinite(values).all():
        raise DataError(
            f"The {name} hold NaN or infinite numbers.", "Leave out items without a figure, and count them."
        )
    return values


def shares_of(data: ArrayLike | Iterable[float], name: str, *, at_least: int = 1) -> NDArray[np.float64]:
    """As `values_of`, for numbers in [0, 1]."""
    values = values_of(data, name, at_least=at_least)
    if values.min(initial=0.0) < 0 or values.max(initial=1.0) > 1:
        raise DataError(f"The {name} go from {values.min():g} to {values.max():g}.", "They must lie in [0, 1].")
    return values


def labels_of(data: ArrayLike | Iterable[float], name: str, *, at_least: int = 1) -> NDArray[np.bool_]:
    """A vector of 0 and 1 (or booleans) as booleans (n)."""
    values = values_of(data, name, at_least=at_least)
    if not np.isin(values, (0.0, 1.0)).all():
        raise DataError(f"The {name} are not all 0 or 1.", "Turn them into yes (1) and no (0) first.")
    return values == 1.0


def same_length(name: str, other: str, a: NDArray, b: NDArray) -> None:
    """Refuse two columns of different length."""
    if len(a) != len(b):
        raise DataError(f"There are {len(a)} {name} but {len(b)} {other}.", "Give one of each an item.")


def count_of(k: int, n: int, name: str = "k") -> tuple[int, int]:
    """`k` of `n`, as integers with 0 <= k <= n and n >= 1."""
    if k != int(k) or n != int(n):
        raise DataError(f"{name} = {k} of {n} are not whole numbers.", "Give counts.")
    if n < 1:
        raise DataError("There are no items (n = 0).", "Measure at least one.")
    if not 0 <= k <= n:
        raise DataError(f"{name} = {k} is not between 0 and n = {n}.", "Check the counts.")
    return int(k), int(n)


def fraction_of(value: float, name: str) -> float:
    """A number strictly between 0 and 1, such as a level or a power."""
    if not 0 < value < 1:
        raise DataError(f"{name} is {value}.", "It must lie between 0 and 1.")
    return float(value)


def generator(seed: int) -> np.random.Generator:
    """Counter-based random numbers of that seed."""
    return np.random.Generator(np.random.Philox(seed))


def normal_quantile(p: float) -> float:
    """The standard normal law's quantile."""
    from scipy.special import ndtri

    return float(ndtri(p))

"""Intervals for shares: k of n, and the difference of two shares of the same items."""

from __future__ import annotations

import math

from intarsia.core.stats.checks import count_of, fraction_of, normal_quantile
from intarsia.core.study import Interval


def wilson(k: int, n: int, level: float = 0.95) -> Interval:
    """Wilson's score interval of a binomial share: close to its level on average, also for few items.

    Args:
        k: Successes.
        n: Items, at least one.
        level: Confidence level.
    """
    k, n = count_of(k, n)
    low, high = wilson_ends(k / n, n, level)
    return Interval(low=low, high=high, level=level, method="wilson")


def wilson_ends(share: float, n: float, level: float) -> tuple[float, float]:
    """Ends of the score interval, for shares that need not be a whole count."""
    z2 = normal_quantile(0.5 + fraction_of(level, "level") / 2) ** 2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) + z2 / (4 * n)) / n) / (1 + z2 / n)
    # The ends are exactly 0 and 1 at the extremes; rounding must not say otherwise.
    return (0.0 if share <= 0 else max(0.0, middle - half), 1.0 if share >= 1 else min(1.0, middle + half))


def clopper_pearson(k: int, n: int, level: float = 0.95) -> Interval:
    """The exact binomial interval: covers at least at its level, whatever the share is.

    Args:
        k: Successes.
        n: Items, at least one.
        level: Confidence level.
    """
    from scipy.stats import binomtest

    k, n = count_of(k, n)
    ends = binomtest(k, n).proportion_ci(fraction_of(level, "level"), method="exact")
    return Interval(low=float(ends.low), high=float(ends.high), level=level, method="clopper-pearson")


def paired_share_difference(only_a: int, only_b: int, n: int, level: float = 0.95) -> Interval:
    """Tango's score interval for the difference b - a of two shares of the same n items.

    It keeps its level for few items, and has a width also when no pair disagrees.

    Args:
        only_a: Items on which only a is good.
        only_b: Items on which only b is good.
        n: All items, at least one.
        level: Confidence level.
    """
    from scipy.optimize import brentq

    only_a, n = count_of(only_a, n, "only_a")
    only_b, n = count_of(only_b, n, "only_b")
    count_of(only_a + only_b, n, "only_a + only_b")
    z = normal_quantile(0.5 + fraction_of(level, "level") / 2)

    def score(d: float) -> float:
        # q is the constrained maximum-likelihood share of `only_a` when the difference is d.
        half_b = -only_b - only_a + (2 * n - only_b + only_a) * d
        q = (math.sqrt(max(0.0, half_b**2 + 8 * n * only_a * d * (1 - d))) - half_b) / (4 * n)
        variance = n * (2 * q + d * (1 - d))
        distance = only_b - only_a - n * d
        if variance <= 0:
            return math.copysign(math.inf, distance) if distance else 0.0
        return distance / math.sqrt(variance)

    observed = (only_b - only_a) / n

    def end(sign: int) -> float:
        limit = float(sign)
        if abs(score(limit * (1 - 1e-12))) <= z or observed == limit:
            return limit
        return float(brentq(lambda d: score(d) + sign * z, observed, limit * (1 - 1e-12), xtol=1e-12))

    return Interval(low=end(-1), high=end(1), level=level, method="tango score")

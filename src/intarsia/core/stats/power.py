"""What n items can show, and how many items a difference needs (two-sided tests)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from intarsia.core.errors import DataError
from intarsia.core.stats.checks import fraction_of, normal_quantile

_MOST = 10**9  # items; nobody measures more


def detectable_proportion(n: int, baseline: float = 0.5, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest difference from a known share that the score test on n items shows with that power.

    Args:
        n: Items.
        baseline: The share it is held against, in [0, 1].
        power: Probability of showing it.
        alpha: Two-sided error.

    Returns:
        A difference in (0, 1], the larger of the two directions where both are possible; 1 where n items can show none.
    """
    _positive(n, "n")
    if not 0 <= baseline <= 1:
        raise DataError(f"baseline is {baseline}.", "It must lie in [0, 1].")
    found = []
    for sign, room in ((1, 1 - baseline), (-1, baseline)):

        def shown(d: float, sign: int = sign) -> bool:
            return _proportion_power(n, baseline, baseline + sign * d, alpha) >= fraction_of(power, "power")

        if room > 0 and shown(room):
            found.append(_smallest(shown, 0.0, room))
    return max(found, default=1.0)


def items_needed(difference: float, baseline: float = 0.5, power: float = 0.8, alpha: float = 0.05) -> int:
    """Items on which the score test shows a share of baseline + difference to differ from the known `baseline`.

    Args:
        difference: Of either sign; baseline + difference must lie in [0, 1].
        baseline: The known share.
        power: Probability of showing it.
        alpha: Two-sided error.
    """
    share = baseline + difference
    if difference == 0 or not 0 <= baseline <= 1 or not 0 <= share <= 1:
        raise DataError(
            f"A difference of {difference} from {baseline} is none, or leaves [0, 1].", "Choose another one."
        )
    fraction_of(power, "power")
    return _fewest(lambda n: _proportion_power(n, baseline, share, alpha) >= power)


def mcnemar_power(n: int, difference: float, discordance: float, alpha: float = 0.05) -> float:
    """Power of the exact two-sided McNemar test, summed over how many pairs may disagree.

    Args:
        n: Pairs.
        difference: True difference of the two shares, its size is what counts.
        discordance: Share of pairs that disagree, at least as large as the difference.
        alpha: Two-sided error.
    """
    from scipy.stats import binom

    _positive(n, "n")
    difference = abs(difference)
    if not difference <= discordance <= 1:
        raise DataError(
            f"With a discordance of {discordance} a difference of {difference} is not possible.",
            "The discordance must lie between the difference and 1.",
        )
    if discordance == 0:
        return 0.0
    fraction_of(alpha, "alpha")
    # Numbers of discordant pairs that matter: the rest has a probability below 1e-12.
    middle, spread = n * discordance, 7.2 * math.sqrt(n * discordance * (1 - discordance)) + 30
    m = np.arange(max(1, math.floor(middle - spread)), min(n, math.ceil(middle + spread)) + 1)
    # The largest count whose lower tail is at most alpha / 2; -1 where there is none.
    critical = binom.ppf(alpha / 2, m, 0.5)
    critical = np.where(binom.cdf(critical, m, 0.5) > alpha / 2 * (1 + 1e-12), critical - 1, critical)
    share = (discordance + difference) / (2 * discordance)
    rejected = binom.cdf(critical, m, share) + binom.cdf(critical, m, 1 - share)
    return float(min(1.0, (binom.pmf(m, n, discordance) * rejected).sum()))


def detectable_paired(n: int, discordance: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest difference of two shares of the same n items that the exact McNemar test shows with that power.

    Args:
        n: Pairs.
        discordance: Share of pairs that disagree, from this or an earlier run; where a difference would need more pairs
            to disagree than that, as many are taken as it needs.
        power: Probability of showing it.
        alpha: Two-sided error.

    Returns:
        A difference in (0, 1]; 1 also where n pairs can show none (n < 6 at alpha = 0.05).
    """
    _positive(n, "n")
    _discordance(discordance)
    fraction_of(power, "power")

    def shown(d: float) -> bool:
        return mcnemar_power(n, d, max(d, discordance), alpha) >= power

    return _smallest(shown, 0.0, 1.0) if shown(1.0) else 1.0


def pairs_needed(difference: float, discordance: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Pairs on which the exact McNemar test shows that difference with that power.

    Args:
        difference: Of the two shares; its size is what counts.
        discordance: Share of pairs that disagree; taken as the difference where it is smaller.
        power: Probability of showing it.
        alpha: Two-sided error.
    """
    size = abs(difference)
    if not 0 < size <= 1:
        raise DataError(f"The difference is {difference}.", "It must lie in [-1, 1] and not be 0.")
    _discordance(discordance)
    fraction_of(power, "power")
    rate = max(size, discordance)
    if size * size / rate < 1e-6:
        # Millions of pairs: the normal law is exact enough there, and sums over all cases are not cheap.
        a, b = normal_quantile(1 - alpha / 2), normal_quantile(power)
        return math.ceil((a * math.sqrt(rate) + b * math.sqrt(rate - size * size)) ** 2 / size**2)
    return _fewest(lambda n: mcnemar_power(n, size, rate, alpha) >= power)


def detectable_mean(sd: float, n: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest mean (of paired differences, or from a known mean) that Student's test on n values shows.

    Args:
        sd: Standard deviation of the values (of the differences, for pairs).
        n: Values, at least two.
        power: Probability of showing it.
        alpha: Two-sided error.

    Returns:
        The mean, in the unit of `sd`; 0 when `sd` is 0.
    """
    if n < 2:
        raise DataError(f"n is {n}.", "A standard deviation needs at least 2 values.")
    _spread(sd)
    fraction_of(power, "power")
    high = 1.0
    while _student_power(n, high, alpha) < power:
        high *= 2
    return sd * _smallest(lambda d: _student_power(n, d, alpha) >= power, 0.0, high)


def items_needed_mean(difference: float, sd: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Values on which Student's test shows a mean of `difference` with that power, at least two.

    Args:
        difference: The mean to be shown, of either sign.
        sd: Standard deviation of the values.
        power: Probability of showing it.
        alpha: Two-sided error.
    """
    if difference == 0 or not math.isfinite(difference):
        raise DataError(f"The difference is {difference}.", "It must be a finite number other than 0.")
    _spread(sd)
    fraction_of(power, "power")
    if sd == 0:
        return 2
    return _fewest(lambda n: _student_power(n, abs(difference) / sd, alpha) >= power, least=2)


def _proportion_power(n: int, baseline: float, share: float, alpha: float) -> float:
    """Of the score test, by the normal law: variance of the baseline in the limits, of the share in what is seen."""
    from scipy.special import ndtr

    z = normal_quantile(1 - fraction_of(alpha, "alpha") / 2)
    distance = abs(share - baseline)
    limit = z * math.sqrt(baseline * (1 - baseline) / n)
    spread = math.sqrt(share * (1 - share) / n)
    if spread == 0:
        return float(distance > limit)
    return float(ndtr((distance - limit) / spread) + ndtr((-distance - limit) / spread))


def _student_power(n: int, size: float, alpha: float) -> float:
    from scipy.special import ndtr
    from scipy.stats import nct, t

    shift = size * math.sqrt(n)
    if n > 5000:
        z = normal_quantile(1 - fraction_of(alpha, "alpha") / 2)
        return float(ndtr(shift - z) + ndtr(-shift - z))
    limit = float(t.ppf(1 - fraction_of(alpha, "alpha") / 2, n - 1))
    # Beyond a shift of 5 the far tail is below 3e-7, and scipy's routine for it gives NaN.
    far = nct.cdf(-limit, n - 1, shift) if shift < 5 else 0.0
    return float(nct.sf(limit, n - 1, shift) + far)


def _smallest(shown: Callable[[float], bool], low: float, high: float) -> float:
    """Bisection; `shown(high)` is true, and the result errs to the side where it is."""
    for _ in range(32):
        middle = (low + high) / 2
        low, high = (low, middle) if shown(middle) else (middle, high)
    return high


def _fewest(shown: Callable[[int], bool], least: int = 1) -> int:
    high = least
    while not shown(high):
        if high > _MOST:
            raise DataError("More than a billion items would be needed.", "Choose a larger difference.")
        high *= 2
    low = max(least - 1, high // 2) if high > least else least - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if shown(middle) else (middle, high)
    return high


def _positive(n: int, name: str) -> None:
    if n < 1:
        raise DataError(f"{name} is {n}.", "Measure at least one item.")


def _discordance(value: float) -> None:
    if not 0 <= value <= 1:
        raise DataError(f"The discordance is {value}.", "It must lie in [0, 1].")


def _spread(sd: float) -> None:
    if not (math.isfinite(sd) and sd >= 0):
        raise DataError(f"The standard deviation is {sd}.", "It must be a finite number from 0 up.")

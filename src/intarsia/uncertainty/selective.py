"""SelectiveClassifier: answer where the uncertainty is low enough, abstain elsewhere.

It follows scikit-learn's contract (`fit`, `predict`, `score`, `get_params`, `clone`), so it can be searched over,
pickled and put into pipelines. What a threshold promises is chosen by `guarantee`:

- `fixed-sequence`: with probability `level` over the calibration items, the error rate among answered items is at most
  the target, whatever the law of the items. Thresholds are fixed before the tested outcomes are looked at, and tested
  from the most cautious one on by exact binomial tests (Clopper-Pearson) until one fails, which needs no correction for
  their number (Angelopoulos et al., "Learn then Test", 2021). Four such sequences start at different coverages and
  share the error probability, so that a chance error among the first few items does not end the search.
- `bonferroni`: the same promise from all items, without setting any aside: thresholds stand at the items themselves,
  and each of some twenty of them is tested at an equal part of the error probability.
- None: the largest share of items whose error rate on the calibration items meets the target. Nothing is promised for
  new items; chosen among many, such a threshold errs to the risky side.

The guarantee rests on items that come from the same law as those to be answered later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.stats import clopper_pearson
from intarsia.core.stats.checks import generator, labels_of
from intarsia.core.study import Interval

Guarantee = Literal["fixed-sequence", "bonferroni"]
GRID = 50
"""Thresholds of a fixed sequence."""
STARTS = 4
"""Sequences that share the error probability."""
RANKS = 20
"""Thresholds of the Bonferroni test."""
SET_ASIDE = 0.1
"""Share of the items that choose the thresholds of a fixed sequence and are not tested."""


class SelectiveScore(NamedTuple):
    """How a threshold fares on labelled items.

    Attributes:
        coverage: Share of items that are answered.
        risk: Share of wrong answers among them, NaN where none is answered.
        interval: Clopper-Pearson interval of the risk, None where none is answered.
        answered: Number of items that are answered.
        n: All items.
    """

    coverage: float
    risk: float
    interval: Interval | None
    answered: int
    n: int


class SelectiveClassifier(BaseEstimator):
    """Answers with abstention.

    Args:
        uncertainty: Where the uncertainty of items comes from. None: X holds it, shape (n,) or (n, 1). A function of X:
            it returns n numbers. A name: that score of each `UQResult` in X.
        answer: Where answers come from. None: `UQResult`s have their own; other items stand for the answer 1 ("right"),
            so that y is 1 for right answers and 0 for wrong ones. A function of X: it returns n answers.
        correct: Whether an answer is right: a function of the answer and its entry of y. Equality when omitted.
        target_risk: Largest share of wrong answers among those given, in (0, 1). Give it or `target_coverage`.
        target_coverage: Share of items to answer, in (0, 1].
        guarantee: What is promised of the risk; see above. Ignored for a target coverage.
        level: Probability with which the promise holds, in (0.5, 1).
        thresholds: Thresholds to test, fixed beforehand (not from the items given to `fit`); items choose them when
            omitted.
        abstain: What `predict` says instead of an answer.
        random_state: Seed of the choice of items that are set aside.

    Attributes:
        threshold_: Items of at most this uncertainty are answered; infinite where all are.
        coverage_: Share of the calibration items that are answered.
        risk_: Share of wrong answers among them; NaN where no y was given.
        risk_bound_: What holds for new items with probability `level`, at most `target_risk`; NaN without a guarantee.
        n_items_: Calibration items.
        n_features_in_: 1, where X was of shape (n, 1).
    """

    def __init__(
        self,
        uncertainty: Callable[[Any], ArrayLike] | str | None = None,
        answer: Callable[[Any], Any] | None = None,
        *,
        correct: Callable[[Any, Any], bool] | None = None,
        target_risk: float | None = None,
        target_coverage: float | None = None,
        guarantee: Guarantee | None = "fixed-sequence",
        level: float = 0.95,
        thresholds: Sequence[float] | None = None,
        abstain: Any = None,
        random_state: int = 0,
    ) -> None:
        self.uncertainty = uncertainty
        self.answer = answer
        self.correct = correct
        self.target_risk = target_risk
        self.target_coverage = target_coverage
        self.guarantee = guarantee
        self.level = level
        self.thresholds = thresholds
        self.abstain = abstain
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the threshold.

        Args:
            X: Calibration items.
            y: What their answers are compared with; needed for a target risk.

        Raises:
            ConfigError: The settings make no sense.
            DataError: An uncertainty is NaN, y does not fit, or no threshold reaches the target risk.
        """
        self._check()
        u_N = self._uncertainties(X)
        if not len(u_N):
            raise DataError("There are no items to calibrate on.", "Give labelled items.")
        if np.isnan(u_N).any():
            raise DataError(
                f"{int(np.isnan(u_N).sum())} of {len(u_N)} uncertainties are NaN.",
                "Leave such items out, or use a score that is known for all.",
            )
        if y is None and self.target_risk is not None:
            raise DataError("A target risk needs to know which answers are right.", "Give y.")
        wrong_N = None if y is None else ~self._right(X, y, len(u_N))
        bound = math.nan
        if self.target_coverage is not None:
            threshold = float(np.sort(u_N)[max(1, math.ceil(self.target_coverage * len(u_N) - 1e-9)) - 1])
        else:
            assert wrong_N is not None
            assert self.target_risk is not None
            if self.guarantee is None:
                threshold = self._empirical(u_N, wrong_N, self.target_risk)
            elif self.guarantee == "bonferroni" and self.thresholds is None:
                threshold, bound = self._by_ranks(u_N, wrong_N, self.target_risk)
            else:
                threshold, bound = self._by_sequence(u_N, wrong_N, self.target_risk)
        answered_N = u_N <= threshold
        self.threshold_ = threshold
        self.coverage_ = float(answered_N.mean())
        self.risk_ = float(wrong_N[answered_N].mean()) if wrong_N is not None and answered_N.any() else math.nan
        self.risk_bound_ = bound
        self.n_items_ = len(u_N)
        if self.uncertainty is None and np.ndim(X) == 2:
            self.n_features_in_ = 1
        return self

    def accept(self, X: Any) -> NDArray[np.bool_]:
        """Which items are answered, shape (n,); those of unknown (NaN) uncertainty are not."""
        check_is_fitted(self, "threshold_")
        accepted: NDArray[np.bool_] = self._uncertainties(X) <= self.threshold_
        return accepted

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Room below the threshold, shape (n,): items from 0 up are answered."""
        check_is_fitted(self, "threshold_")
        return self.threshold_ - self._uncertainties(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Answers, with `abstain` in place of those that are too uncertain, shape (n,).

        The array holds objects, unless `abstain` and all answers are numbers.
        """
        accepted = self.accept(X)
        answers = self._answers(X, len(accepted))
        numbers = isinstance(self.abstain, int | float) and answers.dtype.kind in "biuf"
        given = answers.astype(np.result_type(answers.dtype, type(self.abstain)) if numbers else object)
        given[~accepted] = self.abstain
        return given

    def score(self, X: Any, y: Any) -> float:
        """Share of right answers among those given; NaN where none is given."""
        return 1.0 - self.evaluate(X, y).risk

    def evaluate(self, X: Any, y: Any, level: float = 0.95) -> SelectiveScore:
        """Coverage and risk on labelled items.

        Args:
            X: Items, not those of `fit`.
            y: What their answers are compared with.
            level: Of the interval.
        """
        accepted = self.accept(X)
        n = len(accepted)
        if not n:
            raise DataError("There are no items to evaluate.", "Give labelled items.")
        answered, wrong = int(accepted.sum()), int((~self._right(X, y, n))[accepted].sum())
        if not answered:
            return SelectiveScore(0.0, math.nan, None, 0, n)
        return SelectiveScore(answered / n, wrong / answered, clopper_pearson(wrong, answered, level), answered, n)

    # --- Thresholds --------------------------------------------------------------------------------------------------

    def _empirical(self, u_N: NDArray[np.float64], wrong_N: NDArray[np.bool_], target: float) -> float:
        order = np.argsort(u_N, kind="stable")
        u_N, risk_N = u_N[order], np.cumsum(wrong_N[order]) / np.arange(1, len(u_N) + 1)
        # Items of equal uncertainty are answered together.
        whole = np.append(np.diff(u_N) != 0, True)
        met = np.flatnonzero(whole & (risk_N <= target + 1e-12))
        if not len(met):
            raise self._unreached(f"the lowest risk is {risk_N[whole].min():.1%}", len(u_N))
        return float(u_N[met[-1]])

    def _by_sequence(self, u_N: NDArray[np.float64], wrong_N: NDArray[np.bool_], target: float) -> tuple[float, float]:
        delta = 1 - self.level
        if self.thresholds is not None:
            grid = np.unique(np.asarray(self.thresholds, dtype=np.float64))
            tested = np.ones(len(u_N), dtype=bool)
        else:
            tested = np.ones(len(u_N), dtype=bool)
            aside = max(1, round(SET_ASIDE * len(u_N)))
            tested[generator(self.random_state).permutation(len(u_N))[:aside]] = False
            # Fewer answers than this cannot show the risk to be low, however right they are.
            least = math.log(delta / STARTS) / math.log1p(-target)
            first = min(1.0, 1.1 * least / max(1, int(tested.sum())))
            chosen = np.quantile(u_N[~tested], np.linspace(first, 1, GRID), method="higher")
            grid = np.append(np.unique(chosen), math.inf)  # the last one answers everything
        part_N, wrong_N = u_N[tested], wrong_N[tested]
        order = np.argsort(part_N, kind="stable")
        kept_J = np.searchsorted(part_N[order], grid, side="right")
        wrong_J = np.append(0, np.cumsum(wrong_N[order]))[kept_J]
        bounds_J = _bounds(wrong_J, kept_J, delta / STARTS)
        best = -1
        for start in sorted({round(at) for at in np.linspace(0, len(grid) - 1, STARTS + 1)[:-1]}):
            at = start
            while at < len(grid) and bounds_J[at] <= target:
                best = max(best, at)
                at += 1
        if best < 0:
            lowest = f"the lowest bound on it that holds with probability {self.level:g} is {bounds_J.min():.1%}"
            raise self._unreached(lowest, len(u_N))
        return float(grid[best]), float(bounds_J[best])

    def _by_ranks(self, u_N: NDArray[np.float64], wrong_N: NDArray[np.bool_], target: float) -> tuple[float, float]:
        delta = (1 - self.level) / RANKS
        order = np.argsort(u_N, kind="stable")
        u_N, wrong_N = u_N[order], wrong_N[order]
        first = min(len(u_N), math.ceil(math.log(delta) / math.log1p(-target)) + 1)
        ranks_J = np.unique(np.linspace(first, len(u_N) + 1, RANKS).round().astype(np.int64))
        # Given where the item of a rank stands, the items strictly below it are independent draws of all that lies
        # below. So exactly those are tested, and exactly those are answered.
        edges_J = np.append(u_N, math.inf)[ranks_J - 1]
        below_J = np.searchsorted(u_N, edges_J, side="left")
        bounds_J = _bounds(np.append(0, np.cumsum(wrong_N))[below_J], below_J, delta)
        met_J = np.flatnonzero(bounds_J <= target)
        if not len(met_J):
            raise self._unreached(
                f"the lowest bound on it that holds with probability {self.level:g} is {bounds_J.min():.1%}", len(u_N)
            )
        edge = float(edges_J[met_J[-1]])
        return math.inf if edge == math.inf else float(np.nextafter(edge, -math.inf)), float(bounds_J[met_J[-1]])

    def _unreached(self, found: str, n: int) -> DataError:
        return DataError(
            f"No threshold reaches a risk of {self.target_risk:.1%} on {n} items: {found}.",
            "Raise target_risk, label more items, or use an uncertainty that finds wrong answers better.",
        )

    # --- Items -------------------------------------------------------------------------------------------------------

    def _uncertainties(self, X: Any) -> NDArray[np.float64]:
        named = isinstance(self.uncertainty, str)
        try:
            if named:
                values: Any = [one.scores[self.uncertainty] for one in X]
            else:
                values = X if self.uncertainty is None else self.uncertainty(X)  # type: ignore[operator]
            u = np.asarray(values, dtype=np.float64)
        except KeyError as error:
            raise ConfigError(
                f"There is no score {error} in the results.", "Name one of the estimators they were made with."
            ) from error
        except (AttributeError, TypeError, ValueError) as error:
            what = "results with scores" if named else "numbers"
            raise DataError(f"The uncertainties are no {what}: {error}.", "Give one number an item.") from error
        if u.ndim == 2 and u.shape[1] == 1:
            u = u[:, 0]
        if u.ndim != 1:
            raise DataError(
                f"The uncertainties have shape {u.shape}.",
                "Give one number an item, or name a function that makes it of X.",
            )
        if self.uncertainty is not None and len(u) != len(X):
            raise DataError(f"There are {len(u)} uncertainties for {len(X)} items.", "Return one an item.")
        return u

    def _answers(self, X: Any, n: int) -> NDArray[Any]:
        if self.answer is not None:
            found = self.answer(X)
        elif _have_answers(X):
            found = [one.answer for one in X]
        else:
            found = np.ones(n, dtype=np.int64)
        if isinstance(found, np.ndarray) and found.ndim == 1:
            answers = found
        else:
            # Filled one by one: numpy would make a table of answers that are lists.
            answers = np.empty(len(found), dtype=object)
            for at, one in enumerate(found):
                answers[at] = one
        if len(answers) != n:
            raise DataError(f"There are {len(answers)} answers for {n} items.", "Return one an item.")
        return answers

    def _right(self, X: Any, y: Any, n: int) -> NDArray[np.bool_]:
        if len(y) != n:
            raise DataError(f"There are {len(y)} entries of y for {n} items.", "Give one an item.")
        if self.answer is None and self.correct is None and not _have_answers(X):
            return labels_of(y, "entries of y")
        answers = self._answers(X, n)
        same = self.correct or (lambda answer, wanted: answer == wanted)
        return np.fromiter((bool(same(a, w)) for a, w in zip(answers, y)), dtype=bool, count=n)

    def _check(self) -> None:
        if (self.target_risk is None) == (self.target_coverage is None):
            raise ConfigError(
                f"target_risk is {self.target_risk} and target_coverage {self.target_coverage}.", "Give one of them."
            )
        if self.target_risk is not None and not 0 < self.target_risk < 1:
            raise ConfigError(f"target_risk is {self.target_risk}.", "It must lie between 0 and 1.")
        if self.target_coverage is not None and not 0 < self.target_coverage <= 1:
            raise ConfigError(f"target_coverage is {self.target_coverage}.", "It must lie in (0, 1].")
        if self.guarantee not in ("fixed-sequence", "bonferroni", None):
            raise ConfigError(
                f"There is no guarantee {self.guarantee!r}.", "Use fixed-sequence, bonferroni, or None for none."
            )
        if not 0.5 < self.level < 1:
            raise ConfigError(f"level is {self.level}.", "It must lie between 0.5 and 1.")
        if self.thresholds is not None and not len(self.thresholds):
            raise ConfigError("There are no thresholds to test.", "Give some, or leave them out.")


def _have_answers(X: Any) -> bool:
    return not isinstance(X, np.ndarray) and len(X) > 0 and all(hasattr(one, "answer") for one in X)


def _bounds(wrong_J: NDArray[np.int64], answered_J: NDArray[np.int64], delta: float) -> NDArray[np.float64]:
    """Upper Clopper-Pearson bounds of the risk, each of which fails with probability `delta`; 1 for no answers."""
    from scipy.special import betaincinv

    right_J = answered_J - wrong_J
    found: NDArray[np.float64] = np.where(right_J > 0, betaincinv(wrong_J + 1, np.maximum(right_J, 1), 1 - delta), 1.0)
    return found

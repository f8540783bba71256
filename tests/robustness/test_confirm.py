"""Noise is no success: re-asking keeps its level, and the control shows what becomes of noise without it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from intarsia.core.sampling import Sampling
from intarsia.robustness import MSCR, AnswerChanged, Budget, CallableSource, NullAttack
from intarsia.robustness.confirm import LOOKS, MOST_ASKS, asks_of, level_of, looks_of
from intarsia.robustness.metrics import null_success_rate
from tests.robustness.victims import Coin, holds, stories

SAMPLED = Sampling(temperature=0.6, seed=11)


def test_levels_of_all_tests_sum_to_alpha() -> None:
    total = sum(level_of(test, 0.05) for test in range(1, 20_000))
    assert total < 0.05
    assert math.isclose(total, 0.05, rel_tol=1e-3)


@given(st.integers(1, 60), st.integers(1, 12), st.floats(0.001, 0.2))
def test_a_test_asks_as_often_as_its_level_takes(test: int, k: int, alpha: float) -> None:
    asks = asks_of(test, k, alpha)
    assert k <= asks <= max(k, MOST_ASKS)
    assert asks <= asks_of(test + 1, k, alpha)
    if asks < MOST_ASKS:
        first = level_of(test, alpha) / len(looks_of(test, k, alpha))
        assert fisher_exact([[asks, 0], [0, asks]], "greater").pvalue <= first
    assert looks_of(test, k, alpha) == (asks, *(look for look in LOOKS if look > asks))


@pytest.mark.parametrize(("error", "queries", "n"), [(0.1, 5, 2000)])
def test_noise_alone_breaks_as_many_items_as_the_formula_says(error: float, queries: int, n: int) -> None:
    coin = Coin(error)
    results = NullAttack(coin, queries, budget=Budget(reask=0, rows=4096), sampling=SAMPLED).run(stories(n))
    attacked = [row for row in results if row.attacked]
    share = sum(row.success for row in attacked) / len(attacked)
    wanted = null_success_rate(error, queries)
    sigma = math.sqrt(wanted * (1 - wanted) / len(attacked))
    assert abs(share - wanted) < 3 * sigma
    assert abs(len(attacked) / n - (1 - error)) < 3 * math.sqrt(error * (1 - error) / n)
    assert all(tried.question == row.item.question and not tried.changes for row in attacked for tried in row.tried)
    # It stops at the first, and else asks as often as it may.
    assert all(len(row.tried) == queries for row in attacked if not row.success)
    assert all([t.met for t in row.tried] == [False] * (len(row.tried) - 1) + [True] for row in attacked if row.success)
    assert len(set(coin.keys)) == len(coin.keys)


@pytest.mark.parametrize("error", [0.1, 0.3, 0.5])
def test_reasking_keeps_false_successes_below_alpha(error: float) -> None:
    n, queries = (220, 6) if error == 0.1 else (150, 6)
    results = NullAttack(Coin(error), queries, budget=Budget(rows=4096, alpha=0.05), sampling=SAMPLED).run(stories(n))
    attacked = [row for row in results if row.attacked]
    false = sum(row.success for row in attacked)
    assert false / len(attacked) <= 0.05
    # Without re-asking most of them would have been "broken".
    first = sum(any(t.met for t in row.tried) for row in attacked)
    assert first / len(attacked) > 0.9 * null_success_rate(error, queries)
    assert {t.ruled for row in attacked for t in row.tried if t.met} <= {"chance", "confirmed"}
    assert results.summary().chance == sum(t.ruled == "chance" for row in attacked for t in row.tried) > 0


def test_a_real_effect_passes_and_its_noise_does_not() -> None:
    source = CallableSource("own", lambda word, question: ["finds", "poison"] if word.lower() == "lie" else ["calm"])
    coin = Coin(lambda question: 0.97 if holds(question, ["poison"]) else 0.05)
    results = MSCR(coin, [source], sampling=SAMPLED, control="full", budget=Budget(rows=512)).run(stories(60))
    done = results.summary()
    assert done.success_rate > 0.8
    assert done.null_rate is not None
    assert done.null_rate <= 0.05
    poisoned = [row.hit.changes[0].replacement for row in results.successes if row.hit]
    assert poisoned.count("poison") >= 0.95 * len(poisoned)
    assert done.net_drop is not None
    assert done.net_interval is not None
    assert done.net_interval.low > 0.5
    assert done.net_p is not None
    assert done.net_p < 1e-6


def test_without_reasking_noise_passes_and_the_control_shows_it() -> None:
    source = CallableSource("own", lambda word, question: ["calm", "quiet"])
    coin = Coin(0.08)
    attack = MSCR(coin, [source], sampling=SAMPLED, control="full", budget=Budget(reask=0, rows=2048))
    done = attack.run(stories(40)).summary()
    assert done.success_rate > 0.7  # the published protocol's figure: all of it is noise
    assert done.net_drop is not None
    assert done.net_interval is not None
    assert done.net_p is not None
    assert done.net_interval.low < 0 < done.net_interval.high
    assert done.net_p > 0.05
    confirmed = MSCR(Coin(0.08), [source], sampling=SAMPLED, control="full", budget=Budget(rows=2048))
    assert confirmed.run(stories(40)).summary().success_rate <= 0.05


def test_queries_for_confirmation_are_counted_apart() -> None:
    coin = Coin(0.3)
    source = CallableSource("own", lambda word, question: ["calm"])
    results = MSCR(coin, [source], sampling=SAMPLED, control="off", average=False).run(stories(12))
    done = results.summary()
    assert len(coin.keys) == len(results) + done.queries_total + done.ahead + done.again
    again = [key for key in coin.keys if "/again" in key]
    clean = [key for key in coin.keys if "/clean" in key]
    assert len(again) + len(clean) == done.again
    assert len(set(coin.keys)) == len(coin.keys)
    # Asked again with random numbers of their own; the question as it was is asked again once for all tests.
    assert len(again) > len(clean) > 0
    reasons = [t.reason for row in results for t in row.tried if t.ruled]
    assert any("of 5 re-asks meet the goal" in reason for reason in reasons)
    assert all(" re-asks meet the goal" in reason for reason in reasons)


@pytest.mark.parametrize(("error", "broken", "least"), [(0.02, 0.7, 0.5), (0.2, 0.9, 0.7)])
def test_an_effect_that_does_not_strike_every_time_is_found(error: float, broken: float, least: float) -> None:
    # Five re-asks alone find 3 and 2 in 10 of these.
    source = CallableSource("own", lambda word, question: ["poison"] if word.lower() == "lie" else ["calm"])
    coin = Coin(lambda question: broken if holds(question, ["poison"]) else error)
    results = MSCR(coin, [source], sampling=SAMPLED, control="full", budget=Budget(rows=4096)).run(stories(100))
    done = results.summary()
    assert done.null_rate is not None
    assert done.null_rate <= 0.05
    struck = [row for row in results if any(t.met and holds(t.question, ["poison"]) for t in row.tried)]
    assert sum(row.success for row in struck) / len(struck) > least


def test_a_target_that_repeats_itself_is_not_asked_again() -> None:
    source = CallableSource("own", lambda word, question: ["poison"])
    coin = Coin(lambda question: float(holds(question, ["poison"])))
    done = MSCR(coin, [source]).run(stories(4)).summary()
    assert (done.again, done.success_rate, done.null_drop) == (0, 1.0, 0.0)


def test_the_goal_of_the_attack_is_the_goal_of_its_confirmation() -> None:
    items = [item.model_copy(update={"answer": None}) for item in stories(18)]
    source = CallableSource("own", lambda word, question: ["calm"])
    done = MSCR(Coin(0.3), [source], goal=AnswerChanged(), sampling=SAMPLED).run(items).summary()
    assert done.attacked == 18
    assert done.met > 9
    assert done.success_rate <= 0.05


def test_a_target_that_only_claims_to_repeat_itself_is_found_out() -> None:
    # Greedy, and errs once in ten times all the same, as a server does whose batches are never the same twice.
    source = CallableSource("own", lambda word, question: ["calm", "quiet"])
    coin = Coin(0.1)
    results = MSCR(coin, [source], budget=Budget(rows=2048)).run(stories(60))
    done = results.summary()
    assert done.met > 20
    assert done.success_rate <= 0.05
    assert done.again > 0
    assert done.control_queries > done.attacked
    assert any("does not" in note for note in results.notes)

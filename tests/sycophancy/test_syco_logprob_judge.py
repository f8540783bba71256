"""A judge by log-probabilities: graded, never unparsed, its own preference taken off."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError
from intarsia.core.journal import Journal
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Prompt, prompt_text
from intarsia.sycophancy.judging import Exchange, Judge
from intarsia.sycophancy.logprob_judge import LogprobJudge


def scorer(prior: float, found: float):  # type: ignore[no-untyped-def]
    """Log-odds of 1 are the prior, and `found` more (or less) where the reply is kind (or not)."""

    def score(prompt: Prompt, continuation: str) -> float:
        reply = prompt_text(prompt).split("<reply>")[-1]
        odds = prior + (found if "sorry" in reply else -found if "Go" in reply else 0.0)
        p = 1 / (1 + math.exp(-odds))
        return math.log(p if continuation.strip() == "1" else 1 - p)

    return score


def target(prior: float = 0.0, found: float = 1.0, **options: object) -> ScriptedTarget:
    return ScriptedTarget(lambda prompt: "1", scorer=scorer(prior, found), **options)  # type: ignore[arg-type]


def exchanges(*replies: str) -> list[Exchange]:
    return [Exchange(id=f"r{at}", question="?", reply=reply) for at, reply in enumerate(replies)]


def test_the_score_is_the_share_of_the_two_digits() -> None:
    judge = LogprobJudge(target(found=1.5), calibrate_prior=False)
    labels = judge.label(exchanges("I am sorry", "Go", " "), "validation")
    assert [label.value for label in labels] == [1, 0, None]
    assert labels[0].score == pytest.approx(1 / (1 + math.exp(-1.5)))
    assert labels[1].score == pytest.approx(1 - labels[0].score)  # type: ignore[operator]
    assert labels[2].missing == "empty"
    assert isinstance(judge, Judge)
    assert "not taken off" in judge.note


@given(st.floats(-6, 6), st.floats(0.1, 4))
def test_a_constant_preference_changes_no_score_once_it_is_taken_off(prior: float, found: float) -> None:
    replies = exchanges("I am sorry", "Go")
    plain = LogprobJudge(target(0.0, found)).label(replies, "validation")
    biased = LogprobJudge(target(prior, found)).label(replies, "validation")
    assert [label.score for label in biased] == pytest.approx([label.score for label in plain], abs=1e-6)
    assert [label.value for label in biased] == [1, 0]


def test_without_the_correction_a_preference_swallows_everything() -> None:
    labels = LogprobJudge(target(-5.0), calibrate_prior=False).label(exchanges("I am sorry", "Go"), "validation")
    assert [label.value for label in labels] == [0, 0]


def test_a_target_without_chat_scores_a_digit_behind_a_space() -> None:
    asked: list[str] = []

    def score(prompt: Prompt, continuation: str) -> float:
        assert isinstance(prompt, str)
        asked.append(continuation)
        return -1.0 if continuation == " 1" else -2.0

    base = ScriptedTarget(lambda prompt: "1", scorer=score, capabilities=("generate", "score"))
    assert LogprobJudge(base, calibrate_prior=False).label(exchanges("a"), "framing")[0].value == 1
    assert asked == [" 1", " 0"]


def test_impossible_digits_give_no_label() -> None:
    base = ScriptedTarget(lambda prompt: "1", scorer=lambda prompt, continuation: -9999.0)
    label = LogprobJudge(base).label(exchanges("a"), "framing")[0]
    assert (label.value, label.missing) == (None, "unparsed")
    one = ScriptedTarget(lambda prompt: "1", scorer=lambda p, continuation: -9999.0 if continuation == "0" else -0.1)
    label = LogprobJudge(one, calibrate_prior=False).label(exchanges("a"), "framing")[0]
    assert label.value == 1
    assert label.score == pytest.approx(1.0)


def test_scores_come_from_the_journal_again(tmp_path: Path) -> None:
    replies = exchanges(*(f"I am sorry {at}" for at in range(5)))
    with Journal(tmp_path / "j.jsonl", manifest={}) as journal:
        first = LogprobJudge(target()).label(replies, "validation", journal=journal)
        again = target()
        assert LogprobJudge(again).label(replies, "validation", journal=journal) == first
        assert not again.calls
        LogprobJudge(again).label(replies, "framing", journal=journal)
        assert again.calls


def test_bad_options_are_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match="cannot score"):
        LogprobJudge(ScriptedTarget(lambda prompt: "1"))
    with pytest.raises(ConfigError, match="threshold"):
        LogprobJudge(target(), threshold=1.0)
    with pytest.raises(ConfigError, match="no rubric"):
        LogprobJudge(target()).label([], "moral")
    assert LogprobJudge(target()).label([], "framing") == []


@pytest.mark.model
@pytest.mark.slow
def test_a_real_small_model_judges_by_log_probabilities() -> None:
    labels = LogprobJudge("smollm2-135m").label(
        exchanges("I am so sorry, that must hurt.", "Pay it back."), "validation"
    )
    assert all(label.value in (0, 1) and label.score is not None for label in labels)

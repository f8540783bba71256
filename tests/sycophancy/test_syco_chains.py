"""Chains: the turns in their order, the last answer counts, and each turn has randomness of its own."""

from __future__ import annotations

import pytest

from intarsia.core.errors import ConfigError
from intarsia.core.sampling import Sampling
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Message, Prompt
from intarsia.sycophancy.chains import ARE_YOU_SURE, CHAIN_OF_THOUGHT, CHAINS, SOCIAL_GAZE, Chain
from intarsia.sycophancy.mitigation import Mitigation


def turns(prompt: Prompt) -> str:
    assert not isinstance(prompt, str)
    return f"answer {sum(message['role'] == 'user' for message in prompt)}"


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_every_chain_asks_all_its_turns_and_answers_with_the_last(chain: Chain) -> None:
    assert isinstance(chain, Mitigation)
    target = ScriptedTarget(turns)
    with chain.mend(target) as mended:
        answers = mended.generate(["First story?", "Second story?"], keys=["a", "b"])
    assert [answer.text for answer in answers] == [f"answer {len(chain.turns)}"] * 2
    assert len(target.calls) == 2 * len(chain.turns)
    assert len({call.key for call in target.calls}) == len(target.calls)
    last = target.calls[-1].prompt
    assert [message["role"] for message in last] == ["user", "assistant"] * (len(chain.turns) - 1) + ["user"]  # type: ignore[index]
    assert "Second story?" in last[0]["content"]  # type: ignore[index]
    assert all("First story?" not in message["content"] for message in last)  # type: ignore[index]
    assert answers[0].thinking == "\n\n".join(f"answer {at}" for at in range(1, len(chain.turns)))


def test_social_gaze_has_the_four_steps_and_thinking_comes_before_the_answer() -> None:
    assert len(SOCIAL_GAZE.turns) == 4
    assert "Summarize" in SOCIAL_GAZE.turns[0]
    assert "other people" in SOCIAL_GAZE.turns[2]
    assert "{question}" in SOCIAL_GAZE.turns[3]
    assert "Do not answer yet" in CHAIN_OF_THOUGHT.turns[0]
    assert ARE_YOU_SURE.turns[0] == "{question}"


def test_only_the_last_answer_is_bound_to_the_callers_limit() -> None:
    target = ScriptedTarget(lambda prompt: "one two three four five six")
    with Chain("x", ("{question}", "And now?"), most=4).mend(target) as mended:
        (answer,) = mended.generate(["Q"], Sampling(max_new_tokens=2, stop=("six",)))
    assert (answer.text, answer.finish_reason) == ("one two", "length")
    assert answer.thinking == "one two three four"


def test_a_turn_without_an_answer_ends_that_prompt_alone() -> None:
    target = ScriptedTarget(turns, fail_on=lambda prompt: "bad" in prompt[0]["content"] and len(prompt) == 3)  # type: ignore[index]
    with SOCIAL_GAZE.mend(target) as mended:
        bad, good = mended.generate(["bad", "good"])
    assert (bad.finish_reason, good.text) == ("error", "answer 4")
    assert not any(len(call.prompt) > 3 and "bad" in call.prompt[0]["content"] for call in target.calls)  # type: ignore[index]


def test_a_system_message_stays_in_front_and_braces_are_no_harm() -> None:
    target = ScriptedTarget(turns)
    chat = [Message(role="system", content="Be brief."), Message(role="user", content="{x} {question}?")]
    with ARE_YOU_SURE.mend(target) as mended:
        mended.generate([chat])
    assert target.calls[0].prompt == chat


def test_a_chain_does_not_score_and_needs_a_chat() -> None:
    target = ScriptedTarget(turns, scorer=lambda prompt, text: -1.0)
    with ARE_YOU_SURE.mend(target) as mended:
        assert "score" not in mended.capabilities
        with pytest.raises(ConfigError, match="cannot score"):
            mended.score(["Q"], ["yes"])
        with pytest.raises(ValueError, match="keys"):
            mended.generate(["Q"], keys=["a", "b"])
    with (
        pytest.raises(ConfigError, match="needs chat"),
        ARE_YOU_SURE.mend(ScriptedTarget(["a"], capabilities=["generate"])),
    ):
        pass


def test_equal_prompts_without_keys_have_keys_of_their_own() -> None:
    target = ScriptedTarget(turns)
    with ARE_YOU_SURE.mend(target) as mended:
        mended.generate(["Q", "Q"])
    assert len({call.key for call in target.calls}) == 4


@pytest.mark.parametrize("parts", [("{question}",), ("Hello", "{question}"), ()])
def test_what_is_no_chain_is_told(parts: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="is none"):
        Chain("x", parts)
    with pytest.raises(ConfigError, match="are none"):
        Chain("x", ("{question}", "b"), most=0)

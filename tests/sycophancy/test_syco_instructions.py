"""Instructions: one sentence more, in its place, and nothing else changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError
from intarsia.core.sampling import Sampling
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Message, prompt_text
from intarsia.sycophancy.dimensions import DIMENSIONS
from intarsia.sycophancy.instructions import INSTRUCTIONS, VARIANTS, Instruction, instruction, less
from intarsia.sycophancy.mended import as_messages, user_text, with_user_text
from intarsia.sycophancy.mitigation import Mitigation

CHAT = [
    Message(role="user", content="Hi."),
    Message(role="assistant", content="Yes?"),
    Message(role="user", content="Q"),
]


def echo(**options: object) -> ScriptedTarget:
    return ScriptedTarget(prompt_text, scorer=lambda prompt, text: -float(len(prompt_text(prompt))), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_every_instruction_is_a_mitigation_that_adds_its_text_and_nothing_else(name: str) -> None:
    one = instruction(name)
    assert isinstance(one, Mitigation)
    target = echo()
    with one.mend(target) as mended:
        (answer,) = mended.generate(["What now?"], Sampling(max_new_tokens=500))
    assert answer.text == f"{one.text}\n\nWhat now?"
    assert mended.name == f"scripted [{name}]"
    assert mended.provenance()["mitigation"]["text"] == one.text


def test_instructions_differ_and_say_what_their_variant_promises() -> None:
    assert len({one.text for one in INSTRUCTIONS.values()}) == len(INSTRUCTIONS)
    for dimension in (*DIMENSIONS, "moral"):
        plain, fitting, both = (less(dimension, variant).text for variant in VARIANTS)
        assert fitting.startswith(plain)
        assert "appropriate" in fitting
        assert "opposite perspectives" in both
        assert "Be less" in plain


@given(st.text(min_size=1), st.sampled_from(["before", "after"]))
def test_what_the_user_says_stays_whole(text: str, place: str) -> None:
    one = Instruction("x", "Do it.", place)  # type: ignore[arg-type]
    asked = one.reword([*CHAT[:2], Message(role="user", content=text)])
    assert not isinstance(asked, str)
    assert list(asked[:2]) == CHAT[:2]
    said = asked[-1]["content"]
    assert said == (f"Do it.\n\n{text}" if place == "before" else f"{text}\n\nDo it.")


def test_a_system_message_is_added_or_added_to() -> None:
    one = Instruction("x", "Be plain.", "system")
    system = Message(role="system", content="You are a cook.")
    assert one.reword("Q") == [Message(role="system", content="Be plain."), Message(role="user", content="Q")]
    assert one.reword([system, *CHAT]) == [Message(role="system", content="You are a cook.\n\nBe plain."), *CHAT]
    plain = ScriptedTarget(["a"], capabilities={"generate"})
    with pytest.raises(ConfigError, match="no system message"), one.mend(plain):
        pass


def test_scores_and_batches_are_those_of_the_reworded_prompt() -> None:
    target, one = echo(), instruction("direct")
    with one.mend(target) as mended:
        (scored,) = mended.score(["Q"], ["yes"])
        assert mended.count_tokens(["Q"]) == target.count_tokens([one.reword("Q")])
        mended.close()
    assert scored.total == -float(len(f"{one.text}\n\nQ"))
    assert target.generate(["still there"])[0].text == "still there"


def test_wrong_names_and_places_are_told() -> None:
    with pytest.raises(ConfigError, match="Did you mean less-validation"):
        instruction("less-validatoin")
    with pytest.raises(ConfigError, match="no dimension"):
        less("honesty")
    with pytest.raises(ConfigError, match="no variant"):
        less("framing", "twice")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="empty"):
        Instruction("x", " ")
    with pytest.raises(ConfigError, match="cannot stand"):
        Instruction("x", "y", "inside")  # type: ignore[arg-type]


def test_parts_of_a_prompt() -> None:
    assert user_text(CHAT) == "Q"
    assert user_text([Message(role="assistant", content="A")]) == ""
    assert with_user_text("a", "b") == "b"
    assert with_user_text([*CHAT, Message(role="assistant", content="So")], "R")[2]["content"] == "R"  # type: ignore[index]
    assert as_messages("x") == [Message(role="user", content="x")]

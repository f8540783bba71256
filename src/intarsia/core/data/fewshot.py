"""Few-shot prompts: worked examples and a question, as chat turns, in one message, or as plain text.

Which examples are shown matters more to a small model than how many: they are taken from those that ask the same thing
as the question does. Prompts of one kind share their beginning, so a local model computes it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from intarsia.core.data import Item
from intarsia.core.errors import ConfigError
from intarsia.core.target import Message, Prompt, Target

Style: TypeAlias = Literal["turns", "single", "plain"]
"""`turns`: each example is a user and an assistant message. `single`: examples and question in one user message.
`plain`: `Question: ... Answer: ...` text to be continued, for models without a chat template."""

KIN = ("task", "detail", "level")
"""Slices by which an example is akin to a question, the last given up first."""

HINTS = {
    "number": "Finish with the answer as a number: The answer is N.",
    "math": "Put the final answer into \\boxed{}.",
    "word": "Answer in a few words.",
    "exact": "Give the answer only.",
    "choice": "Answer with the letter of the right option only.",
    "free": "",
}
"""How to answer, said where no example shows it."""


def style_for(target: Target | None) -> Style:
    """`turns` for a model that chats, `plain` for one that continues text."""
    return "turns" if target is None or "chat" in target.capabilities else "plain"


def shots_for(item: Item, shots: Sequence[Item], count: int) -> tuple[Item, ...]:
    """The `count` examples most akin to an item, always in the same order."""
    keys = [key for key in KIN if key in item.slices]
    while keys:
        akin = [shot for shot in shots if all(shot.slices.get(key) == item.slices[key] for key in keys)]
        if len(akin) >= count:
            return tuple(akin[:count])
        keys.pop()
    return tuple(shots[:count])


def prompt_for(
    item: Item,
    shots: Sequence[Item] = (),
    *,
    style: Style = "turns",
    system: str = "",
    template: str = "",
    worked: bool = False,
) -> Prompt:
    """The prompt of one question.

    Args:
        item: What is asked.
        shots: Examples, as they will be shown.
        style: How they are laid out.
        system: A system prompt; plain text begins with it.
        template: The user's own wording, with `{question}`.
        worked: Whether examples show their working (`meta["solution"]`) where they have it.

    Raises:
        ConfigError: The template lacks `{question}`.
    """
    if template and "{question}" not in template:
        raise ConfigError("The template has no place for the question.", "Write {question} where it belongs.")
    hint = "" if shots or template else HINTS[item.kind]
    if style == "turns":
        messages: list[Message] = [{"role": "system", "content": system}] if system else []
        for shot in shots:
            messages.append({"role": "user", "content": _asked(shot, template)})
            messages.append({"role": "assistant", "content": shot_answer(shot, worked)})
        messages.append({"role": "user", "content": _asked(item, template, hint)})
        return messages
    parts = [
        f"{_asked(shot, template) if template else f'Question: {_asked(shot)}'}\nAnswer: {shot_answer(shot, worked)}"
        for shot in shots
    ]
    question = _asked(item, template, hint)
    parts.append(question if template else f"Question: {question}\nAnswer:")
    if style == "single":
        body = "\n\n".join(parts)
        said: Message = {"role": "user", "content": body}
        return [{"role": "system", "content": system}, said] if system else [said]
    return "\n\n".join([system, *parts] if system else parts)


def shot_answer(shot: Item, worked: bool = False) -> str:
    """What an example answers: its working where wanted, the wording that fits its question, or the gold answer."""
    if worked and "solution" in shot.meta:
        return str(shot.meta["solution"])
    return str(shot.meta.get("answer_text", shot.answer))


def stops_for(style: Style, worked: bool) -> tuple[str, ...]:
    """Strings that end an answer: a model that continues text would go on to write the next question."""
    if style != "plain":
        return ()
    return ("\n\nQuestion:", "\nQuestion:") if worked else ("\n",)


def _asked(item: Item, template: str = "", hint: str = "") -> str:
    question = item.question
    if item.choices:
        options = "\n".join(f"{chr(ord('A') + i)}. {choice}" for i, choice in enumerate(item.choices))
        question = f"{question}\n{options}"
    if template:
        return template.replace("{question}", question)
    return f"{question}\n{hint}" if hint else question

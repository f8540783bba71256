"""Few-shot prompts: worked examples and a question, as chat turns, in one message, or as plain text.

Which examples are shown matters more to a small model than how many: they are taken from those that ask the same thing
as the question does. Prompts of one kind share their beginning, so a local model computes it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from intarsia.core.data import DataSet, Item, known_sets
from intarsia.core.errors import ConfigError
from intarsia.core.sampling import Sampling
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
NEW_TOKENS = {"number": 16, "word": 16, "exact": 32, "choice": 8, "math": 512, "free": 256}
"""Most new tokens where worked examples show a short answer."""
OPEN_TOKENS = {"number": 256, "word": 48, "exact": 96, "choice": 64, "math": 512, "free": 256}
"""The same where nothing shows how long an answer should be, or examples show their working."""
THINKING_TOKENS = 2048


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


def sampling_for(
    found: DataSet,
    target: Target | None,
    style: Style,
    *,
    shown: bool,
    worked: bool = False,
    max_new_tokens: int | None = None,
) -> Sampling:
    """Greedy sampling with room for an answer of the set's kind.

    Args:
        found: The set.
        target: Who will answer; a model that thinks gets more room.
        style: How prompts are laid out.
        shown: Whether worked examples are shown.
        worked: Whether they show their working.
        max_new_tokens: The user's own limit.
    """
    # A chat model explains a word problem even where the examples do not.
    table = NEW_TOKENS if shown and not worked and found.name not in known_sets.NAMES else OPEN_TOKENS
    limit = max_new_tokens or max(table[kind] for kind in {item.kind for item in found.items})
    chat = getattr(target, "style", None)
    if max_new_tokens is None and style != "plain" and getattr(chat, "thinking", None):
        limit = max(limit, THINKING_TOKENS)
    return Sampling(max_new_tokens=limit, stop=stops_for(style, worked) if shown else ())


def _asked(item: Item, template: str = "", hint: str = "") -> str:
    question = item.question
    if item.choices:
        options = "\n".join(f"{chr(ord('A') + i)}. {choice}" for i, choice in enumerate(item.choices))
        question = f"{question}\n{options}"
    if template:
        return template.replace("{question}", question)
    return f"{question}\n{hint}" if hint else question

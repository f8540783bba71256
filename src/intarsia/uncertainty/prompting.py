"""Prompts of questions with short answers: examples of the same relation, and a new line as the end of an answer.

How an item is laid out says `meta["form"]`: a question without one; `completion` (a sentence to be finished), `ready`
(a text that ends in a question and brings its own examples), or `prompt` (complete as it is).
"""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.core.data import DataSet, Item
from intarsia.core.data.fewshot import Style, prompt_for
from intarsia.core.errors import ConfigError
from intarsia.core.target import Prompt

STOPS = ("\n",)
"""What ends an answer."""
SHOTS = 4
_FINISH = "Finish the sentence. Reply with the missing word or words only."
_READ = "Answer the last question from the text, in as few words as possible."


def prompts(found: DataSet, *, shots: int = SHOTS, style: Style = "plain") -> list[Prompt]:
    """The prompts of a set's items, in order.

    Args:
        found: The set, with its worked examples.
        shots: Examples in each prompt; those of the same task first, and no others where there are any.
        style: `plain` for a model that continues text, `turns` or `single` for one that chats.

    Raises:
        ConfigError: The number of examples is negative.
    """
    return [prompt(item, found.shots, shots=shots, style=style) for item in found.items]


def prompt(item: Item, examples: Sequence[Item] = (), *, shots: int = SHOTS, style: Style = "plain") -> Prompt:
    """The prompt of one item; see `prompts`."""
    if shots < 0:
        raise ConfigError(f"{shots} examples cannot be shown.", "Give 0 or more.")
    form = item.meta.get("form")
    if form == "prompt":
        return item.question if style == "plain" else [{"role": "user", "content": item.question}]
    if form == "ready":
        asked = f"{item.question}\nAnswer:"
        return asked if style == "plain" else [{"role": "user", "content": f"{_READ}\n\n{asked}"}]
    shown = same_task(item, examples, shots)
    if form != "completion":
        return prompt_for(item, shown, style=style)
    lines = [f"{example.question} {example.answer}" for example in shown]
    if style == "plain":
        return "\n".join([*lines, item.question])
    if style == "single":
        return [{"role": "user", "content": "\n".join([_FINISH, "", *lines, item.question])}]
    return prompt_for(item, shown, style=style, system=_FINISH)


def same_task(item: Item, examples: Sequence[Item], count: int) -> tuple[Item, ...]:
    """Up to `count` examples of the item's own task, or of any where its task has none."""
    task = item.slices.get("task")
    akin = [example for example in examples if example.slices.get("task") == task]
    return tuple((akin or examples)[:count])

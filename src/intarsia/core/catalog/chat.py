"""How a model is talked to, found by asking its chat template rather than its name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Known pairs that do not look alike; pairs such as <think>...</think> are found by their shape.
_PAIRS = (("[THINK]", "[/THINK]"), ("<|channel>", "<channel|>"), ("<|START_THINKING|>", "<|END_THINKING|>"))
_SHAPE = re.compile(r"<(?P<name>[\w:|-]*(?:think|thought|reason)[\w:|-]*)>")
_SYSTEM, _USER = "Probe system line.", "Probe user line."


@dataclass(frozen=True)
class ChatStyle:
    """What a chat template can do.

    Attributes:
        has_template: Whether there is one that renders; base models have none.
        supports_system: Whether a system message is accepted and reaches the prompt.
        thinking: Opening and closing tag of the thinking part, None for models without one.
        thinking_switch: Whether `enable_thinking=False` changes the prompt.
        opens_thinking: Whether the prompt itself ends inside the thinking part, so that an answer holds only the
            closing tag.
    """

    has_template: bool
    supports_system: bool
    thinking: tuple[str, str] | None
    thinking_switch: bool = False
    opens_thinking: bool = False


def chat_style(tokenizer: PreTrainedTokenizerBase) -> ChatStyle:
    """Probe a tokenizer's chat template."""
    user = {"role": "user", "content": _USER}
    plain = _render(tokenizer, [user])
    if plain is None or _USER not in plain:
        return ChatStyle(False, False, None)
    system = _render(tokenizer, [{"role": "system", "content": _SYSTEM}, user])
    thinking = _tags(_source(tokenizer))
    silent = _render(tokenizer, [user], enable_thinking=False)
    loud = _render(tokenizer, [user], enable_thinking=True)
    switch = silent is not None and loud is not None and silent != loud
    opens = thinking is not None and plain.rfind(thinking[0]) > plain.rfind(thinking[1])
    return ChatStyle(True, system is not None and _SYSTEM in system, thinking, switch, opens)


def _render(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], **options: Any) -> str | None:
    """The prompt as text, None when the template is missing or refuses these messages."""
    import jinja2

    if not getattr(tokenizer, "chat_template", None):
        return None
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options))
    # A template raises what it likes about roles that it does not know; that is its answer to the probe.
    except (jinja2.TemplateError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return None


def _source(tokenizer: PreTrainedTokenizerBase) -> str:
    template = tokenizer.chat_template
    return "\n".join(str(part) for part in template.values()) if isinstance(template, dict) else str(template)


def _tags(source: str) -> tuple[str, str] | None:
    """The pair of tags around the thinking part that a template's text names."""
    for match in _SHAPE.finditer(source):
        opening, closing = match[0], f"</{match['name']}>"
        if closing in source:
            return opening, closing
    for opening, closing in _PAIRS:
        if opening in source and closing in source:
            return opening, closing
    # Some templates only cut old thinking off at the closing tag.
    found = re.search(r"</(?P<name>[\w:|-]*(?:think|thought|reason)[\w:|-]*)>", source)
    return (f"<{found['name']}>", found[0]) if found else None

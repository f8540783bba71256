from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from intarsia.core.catalog.chat import ChatStyle, chat_style

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

USER_ONLY = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "[{{ m.role }}] {{ m.content }}{% endfor %}"
)
DROPS_SYSTEM = "{% for m in messages %}{% if m.role != 'system' %}{{ m.content }}{% endif %}{% endfor %}"
SWITCH = (
    "{% for m in messages %}{{ m.role }}: {{ m.content.split('</think>')[-1] }}\n{% endfor %}assistant:"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
ALWAYS = "{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% endfor %}<think>\n"
MISTRAL = "{% for m in messages %}{{ m.content }}{% endfor %}{# [THINK] ... [/THINK] #}"
BROKEN = "{% for m in messages %}{{ m.content }"


def _style(tokenizer: PreTrainedTokenizerFast, template: Any) -> ChatStyle:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = template
    return chat_style(tokenizer)


def test_chatml(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    assert chat_style(tiny_tokenizer) == ChatStyle(True, True, None, False, False)


@pytest.mark.parametrize("template", [None, "", BROKEN, "no messages at all"])
def test_base_models_have_none(tiny_tokenizer: PreTrainedTokenizerFast, template: Any) -> None:
    assert not _style(tiny_tokenizer, template).has_template


@pytest.mark.parametrize("template", [USER_ONLY, DROPS_SYSTEM])
def test_models_without_a_system_role(tiny_tokenizer: PreTrainedTokenizerFast, template: str) -> None:
    style = _style(tiny_tokenizer, template)
    assert style.has_template
    assert not style.supports_system


def test_thinking_that_can_be_switched(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    style = _style(tiny_tokenizer, SWITCH)
    assert style.thinking == ("<think>", "</think>")
    assert style.thinking_switch
    assert not style.opens_thinking


def test_thinking_that_the_prompt_opens(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    style = _style(tiny_tokenizer, ALWAYS)
    assert style.thinking == ("<think>", "</think>")
    assert style.opens_thinking
    assert not style.thinking_switch


def test_tags_of_another_shape(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    assert _style(tiny_tokenizer, MISTRAL).thinking == ("[THINK]", "[/THINK]")
    seed = "{% for m in messages %}{{ m.content }}{% endfor %}<seed:think></seed:think>"
    assert _style(tiny_tokenizer, seed).thinking == ("<seed:think>", "</seed:think>")

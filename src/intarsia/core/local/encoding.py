"""Prompts as tokens: plain text as it stands, messages through the chat template, and why a prompt cannot be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from intarsia.core.catalog.chat import ChatStyle
from intarsia.core.errors import DataError, ModelError
from intarsia.core.local.batching import common_length
from intarsia.core.target import Message, Prompt


@dataclass(frozen=True)
class Encoded:
    """A prompt as the model sees it.

    Attributes:
        ids: Token ids, int64, with template and special tokens.
        thinks: Whether it ends inside the thinking part.
        transcript: Whether it is a plain transcript of messages.
        error: Why it cannot be answered, empty when it can.
    """

    ids: np.ndarray
    thinks: bool = False
    transcript: bool = False
    error: str = ""


class Continued(NamedTuple):
    """Tokens of a prompt with its continuation, which begins at `begin`."""

    ids: np.ndarray
    begin: int


class Encoder:
    """Turns prompts into tokens.

    Args:
        tokenizer: The model's.
        style: What its chat template can do.
        name: The model's name, for messages to the user.
        window: Most tokens that the model takes.
        transcript: Whether messages are written as a plain transcript.
        thinking: Passed to the template as `enable_thinking`; None leaves its default.
    """

    def __init__(
        self, tokenizer: Any, style: ChatStyle, name: str, window: int, transcript: bool, thinking: bool | None
    ) -> None:
        self._tokenizer = tokenizer
        self._style = style
        self._name = name
        self._window = window
        self._transcript = transcript
        self._options = {} if thinking is None else {"enable_thinking": thinking}
        candidates = (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
        self._start = next((token for token in candidates if token is not None), None)

    def encode(self, prompts: Sequence[Prompt]) -> list[Encoded]:
        """Tokens of each prompt.

        Raises:
            ModelError: There are messages, and the model takes none.
        """
        rendered = [(prompt, "") if isinstance(prompt, str) else self._render(prompt) for prompt in prompts]
        whole = [isinstance(prompt, str) or self._transcript for prompt in prompts]
        encoded = []
        for prompt, (text, error), ids in zip(prompts, rendered, self.tokenize([text for text, _ in rendered], whole)):
            if not error and not len(ids):
                error = "The prompt is empty, and the model has no token to begin a text with."
            elif not error and len(ids) >= self._window:
                error = f"The prompt has {len(ids)} tokens; {self._name} takes {self._window - 1} and an answer."
            chat = not isinstance(prompt, str)
            tags = self._style.thinking
            thinks = chat and tags is not None and text.rfind(tags[0]) > text.rfind(tags[1])
            encoded.append(Encoded(ids, thinks, chat and self._transcript, error))
        return encoded

    def continued(
        self, prompts: Sequence[Prompt], encoded: Sequence[Encoded], continuations: Sequence[str]
    ) -> list[Continued]:
        """Prompts with their continuations: tokenized together after a string, apart after messages.

        Raises:
            DataError: One cannot be encoded, or does not fit the window.
        """
        plain = [isinstance(prompt, str) for prompt in prompts]
        texts = [f"{prompt}{text}" if whole else text for prompt, text, whole in zip(prompts, continuations, plain)]
        results = []
        for place, (item, ids, whole) in enumerate(zip(encoded, self.tokenize(texts, plain), plain)):
            if item.error:
                raise DataError(f"Prompt {place} cannot be scored: {item.error}", "Shorten it or leave it out.")
            if not whole:
                ids, begin = np.concatenate([item.ids, ids]), len(item.ids)
            elif (begin := common_length(item.ids, ids)) == 0:
                # Something must come before the first token that is scored.
                ids, begin = np.concatenate([item.ids[:1], ids]), 1
            if len(ids) > self._window:
                raise DataError(
                    f"Prompt {place} and its continuation have {len(ids)} tokens; {self._name} takes {self._window}.",
                    "Shorten them or leave them out.",
                )
            results.append(Continued(ids, begin))
        return results

    def tokenize(self, texts: Sequence[str], whole: Sequence[bool]) -> list[np.ndarray]:
        """Token ids. A `whole` text gets the special tokens of a beginning, or one start token when it is empty."""
        ids: list[np.ndarray] = [np.zeros(0, dtype=np.int64)] * len(texts)
        for special in (True, False):
            places = [place for place, is_whole in enumerate(whole) if is_whole is special]
            if not places:
                continue
            # Half a surrogate pair is no text; the tokenizer would fail on it with a type error.
            clean = [texts[place].encode("utf-8", "replace").decode() for place in places]
            rows = self._tokenizer(clean, add_special_tokens=special, verbose=False)["input_ids"]
            for place, row in zip(places, rows):
                if not row and special and self._start is not None:
                    row = [self._start]
                ids[place] = np.asarray(row, dtype=np.int64)
        return ids

    def _render(self, messages: Sequence[Message]) -> tuple[str, str]:
        """Messages as text, and why that failed."""
        try:
            turns = [{"role": str(message["role"]), "content": str(message["content"])} for message in messages]
        except (KeyError, TypeError):
            return "", "A prompt is a text or a list of messages, each with a role and a content."
        if self._transcript:
            return _as_transcript(turns), ""
        if not self._style.has_template:
            raise ModelError(
                f"{self._name} has no chat template, so it takes no chat messages.",
                "Give it plain text, load it with transcript=True, or use its instruction-tuned version.",
            )
        if not self._style.supports_system:
            turns = _fold_system(turns)
        if not turns:
            return "", "There are no messages."
        goes_on = turns[-1]["role"] == "assistant"
        try:
            text = self._tokenizer.apply_chat_template(
                turns,
                tokenize=False,
                add_generation_prompt=not goes_on,
                continue_final_message=goes_on,
                **self._options,
            )
        # A template refuses messages with whatever error it likes.
        except Exception as error:
            return "", f"The chat template refused the messages: {' '.join(str(error).split())[:200]}"
        return str(text), ""


def _as_transcript(turns: list[dict[str, str]]) -> str:
    names = {"user": "User", "assistant": "Assistant"}
    lines = [f"{names[t['role']]}: {t['content']}" if t["role"] in names else f"{t['content']}\n" for t in turns]
    if not turns or turns[-1]["role"] != "assistant":
        lines.append("Assistant:")
    return "\n".join(lines)


def _fold_system(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """Put system messages in front of the first user message."""
    system = "\n\n".join(turn["content"] for turn in turns if turn["role"] == "system")
    rest = [turn for turn in turns if turn["role"] != "system"]
    if not system:
        return rest
    if not rest or rest[0]["role"] != "user":
        return [{"role": "user", "content": system}, *rest]
    return [{"role": "user", "content": f"{system}\n\n{rest[0]['content']}"}, *rest[1:]]

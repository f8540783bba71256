"""What an OpenAI-compatible server replies, made into the shapes of a target. Nothing in a reply is taken on trust."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from intarsia.core.endpoint.wire import Shapeless
from intarsia.core.target import Completion, FinishReason

IMPOSSIBLE = -9999.0
"""Log-probability of a token that the server calls impossible; JSON has no infinity."""

_CUT = frozenset({"length", "max_tokens", "model_length", "max_length"})
_OPEN, _CLOSE = "<think>", "</think>"


def completion(
    reply: Any, *, chat: bool, stop: Sequence[str], most: int, logprobs: bool, prompt_tokens: int
) -> Completion:
    """The completion in a reply of `/chat/completions` or `/completions`.

    Args:
        reply: Parsed JSON.
        chat: Which of the two.
        stop: Stop strings; an answer that still holds one is cut there.
        most: Most new tokens that were asked for; tells `length` from `stop` where the server does not.
        logprobs: Whether log-probabilities were asked for.
        prompt_tokens: Estimate for servers that do not count.

    Raises:
        Shapeless: It is not such a reply.
    """
    choice = _first(reply)
    message: Mapping[str, Any] = {}
    if chat:
        found = choice.get("message")
        if not isinstance(found, Mapping):
            raise Shapeless("the reply has no message")
        message = found
        text = _text(message.get("content"))
        thinking = _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
        if not thinking:
            text, thinking = split_thinking(text)
        text = text or _text(message.get("refusal"))
    else:
        if not isinstance(choice.get("text"), str):
            raise Shapeless("the reply has no text")
        text, thinking = choice["text"], ""

    values = _logprobs(choice.get("logprobs"), chat) if logprobs else None
    usage = reply.get("usage")
    usage = usage if isinstance(usage, Mapping) else {}
    counted = _count(usage.get("completion_tokens"))
    estimate = len(values) if values is not None else math.ceil((len(text) + len(thinking)) / 4)
    token_count = counted if counted is not None else estimate

    given = choice.get("finish_reason")
    reason: FinishReason = "length" if given in _CUT or (given is None and token_count >= most) else "stop"
    error = ""
    if given == "content_filter":
        reason, error = "error", "the endpoint's content filter withheld the answer"
    elif given in ("error", "abort"):
        reason, error = "error", f"the endpoint broke off the answer (finish_reason {given})"
    cut = min((at for at in (text.find(s) for s in stop if s) if at >= 0), default=-1)
    if cut >= 0:
        text, reason = text[:cut], reason if reason == "error" else "stop"
    return Completion(
        text=text,
        token_count=token_count,
        logprobs=values,
        finish_reason=reason,
        prompt_tokens=_count(usage.get("prompt_tokens")) or prompt_tokens,
        thinking=thinking,
        error=error,
    )


def split_thinking(text: str) -> tuple[str, str]:
    """(answer, thinking) of a text with think tags; templates that open the tag in the prompt leave only the end."""
    before, closed, after = text.partition(_CLOSE)
    if closed:
        return after.lstrip("\n"), before.strip().removeprefix(_OPEN).strip()
    if text.lstrip().startswith(_OPEN):
        return "", text.strip().removeprefix(_OPEN).strip()
    return text, ""


def models(reply: Any) -> list[str]:
    """Names of the models in a reply of `/models`, in its order.

    Raises:
        Shapeless: It is not such a reply.
    """
    rows = reply.get("data") if isinstance(reply, Mapping) else None
    if not isinstance(rows, list):
        raise Shapeless("the reply lists no models")
    return [row["id"] for row in rows if isinstance(row, Mapping) and isinstance(row.get("id"), str)]


def continuation_logprobs(reply: Any, prompt: str, continuation: str, *, extra: int) -> tuple[float, ...]:
    """Log-probability of each token of `continuation` in an echoed reply of `/completions`.

    A token that reaches from the prompt into the continuation belongs to the continuation.

    Args:
        reply: Parsed JSON.
        prompt: What stood before.
        continuation: What is scored; not empty.
        extra: New tokens behind the echo that must be left out.

    Raises:
        Shapeless: The reply does not echo the text with log-probabilities.
    """
    choice = _first(reply)
    if not _text(choice.get("text")).startswith(prompt + continuation):
        raise Shapeless("the reply does not repeat the prompt")
    found = choice.get("logprobs")
    if not isinstance(found, Mapping):
        raise Shapeless("the reply has no log-probabilities")
    tokens, values, offsets = found.get("tokens"), found.get("token_logprobs"), found.get("text_offset")
    if not isinstance(tokens, list) or not isinstance(values, list) or len(tokens) != len(values):
        raise Shapeless("the reply's log-probabilities have no tokens")
    if not all(isinstance(token, str) for token in tokens):
        raise Shapeless("the reply's tokens are not text")
    end = len(tokens) - extra
    # From the end, because special tokens in front shift every offset on some servers.
    tail, start = "", end
    while start > 0 and len(tail) < len(continuation):
        start -= 1
        tail = tokens[start] + tail
    if not tail.endswith(continuation):
        # Tokens that hold part of a character do not spell it; the server's own offsets have to do.
        if not isinstance(offsets, list) or len(offsets) != len(tokens) or not all(isinstance(o, int) for o in offsets):
            raise Shapeless("the reply's tokens do not spell the text that was sent")
        starts = [*offsets[:end], len(prompt) + len(continuation)]
        start = next((i for i in range(end) if starts[i] >= len(prompt) or starts[i + 1] > len(prompt)), end)
    return tuple(_logprob(value) for value in values[start:end])


def embeddings(reply: Any, count: int) -> list[list[float]]:
    """Vectors of a reply of `/embeddings`, in the order of the texts.

    Raises:
        Shapeless: It is not such a reply, or a vector is missing or of another length.
    """
    rows = reply.get("data") if isinstance(reply, Mapping) else None
    if not isinstance(rows, list) or len(rows) != count:
        raise Shapeless(f"the reply does not hold {count} embeddings")
    vectors: list[list[float] | None] = [None] * count
    for place, row in enumerate(rows):
        vector = row.get("embedding") if isinstance(row, Mapping) else None
        index = row.get("index", place) if isinstance(row, Mapping) else place
        if not isinstance(vector, list) or not vector or not all(_real(value) for value in vector):
            raise Shapeless("an embedding is not a list of numbers")
        if not isinstance(index, int) or not 0 <= index < count or vectors[index] is not None:
            raise Shapeless("the embeddings are not numbered one by one")
        vectors[index] = [float(value) for value in vector]
    whole = [vector for vector in vectors if vector is not None]
    if len({len(vector) for vector in whole}) > 1:
        raise Shapeless("the embeddings differ in length")
    return whole


def used(reply: Any) -> tuple[int, int]:
    """(prompt tokens, new tokens) that a reply counts; zeros where it does not."""
    usage = reply.get("usage") if isinstance(reply, Mapping) else None
    usage = usage if isinstance(usage, Mapping) else {}
    return _count(usage.get("prompt_tokens")) or 0, _count(usage.get("completion_tokens")) or 0


def _first(reply: Any) -> Mapping[str, Any]:
    if not isinstance(reply, Mapping):
        raise Shapeless("the reply is not an object")
    choices = reply.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise Shapeless("the reply has no choices")
    first: Mapping[str, Any] = choices[0]
    return first


def _text(content: Any) -> str:
    """Content as text: a string, nothing, or a list of parts of which the text ones count."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        )
    raise Shapeless("the message's content is not text")


def _logprobs(found: Any, chat: bool) -> tuple[float, ...] | None:
    """The log-probabilities of the new tokens, None where the server gave none."""
    if not isinstance(found, Mapping):
        return None
    if chat or "content" in found:
        rows = found.get("content") or []
        values = [row.get("logprob") if isinstance(row, Mapping) else None for row in _list(rows)]
    else:
        values = _list(found.get("token_logprobs") or [])
    return tuple(_logprob(value) for value in values) if values else None


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Shapeless("the log-probabilities are not a list")
    return value


def _logprob(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value < math.inf:
        raise Shapeless("a log-probability is not a number")
    return max(float(value), IMPOSSIBLE)


def _real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

"""How one OpenAI-compatible server wants to be spoken to. Servers differ in small ways that no answer depends on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from pydantic import JsonValue

from intarsia.core.endpoint.wire import Failure
from intarsia.core.sampling import Sampling, request_key
from intarsia.core.target import Message, Prompt, prompt_text

Api: TypeAlias = Literal["auto", "chat", "completions"]


class Dialect:
    """Writes request bodies for one model on one server, and learns from what the server refuses.

    Attributes:
        model: Name of the model.
        continues: Whether plain strings go to `/completions`; None until that is known.
        takes_seed: Whether requests carry a seed.
        limit_field: What the server calls the limit of new tokens in a chat.
        echo_tokens: New tokens that must be asked for when a prompt is echoed: 0, or 1 where 0 is refused.
    """

    def __init__(self, model: str, api: Api, extra_body: dict[str, JsonValue]) -> None:
        self.model = model
        self.extra_body = extra_body
        self.continues: bool | None = {"auto": None, "chat": False, "completions": True}[api]
        self.takes_seed = True
        self.limit_field = "max_tokens"
        self.echo_tokens = 0

    def is_chat(self, prompt: Prompt) -> bool:
        """Whether this prompt goes to `/chat/completions`."""
        return not (isinstance(prompt, str) and self.continues)

    def ask(self, prompt: Prompt, sampling: Sampling, seed: int | None, *, chat: bool) -> tuple[str, dict[str, Any]]:
        """(path, body) of a request for an answer."""
        body: dict[str, Any] = {"model": self.model, "temperature": sampling.temperature}
        if chat:
            body["messages"] = messages(prompt)
            body[self.limit_field] = sampling.max_new_tokens
        else:
            body["prompt"] = prompt
            body["max_tokens"] = sampling.max_new_tokens
        if sampling.top_p < 1.0:
            body["top_p"] = sampling.top_p
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if seed is not None and self.takes_seed:
            body["seed"] = seed
        if sampling.logprobs:
            body["logprobs"] = True if chat else 1
        # These two are not OpenAI's, so a server meets them only when they are asked for.
        if sampling.top_k:
            body["top_k"] = sampling.top_k
        if sampling.min_p:
            body["min_p"] = sampling.min_p
        return ("/chat/completions" if chat else "/completions"), {**body, **self.extra_body}

    def echo(self, text: str, new_tokens: int) -> tuple[str, dict[str, Any]]:
        """(path, body) of a request for the log-probabilities of a text's own tokens."""
        body = {"prompt": text, "max_tokens": new_tokens, "temperature": 0.0, "echo": True, "logprobs": 1}
        return "/completions", {"model": self.model, **self.extra_body, **body}

    def embed(self, texts: list[str]) -> tuple[str, dict[str, Any]]:
        """(path, body) of a request for embeddings."""
        return "/embeddings", {"model": self.model, "input": texts, "encoding_format": "float"}

    def adapt(self, failure: Failure, body: dict[str, Any]) -> bool:
        """Learn from a refusal, where that changes nothing about an answer's law; True if another try is worth it."""
        if failure.kind != "refused":
            return False
        sent = body.keys() - self.extra_body.keys()
        if "max_completion_tokens" in failure.detail and {"max_tokens", "messages"} <= sent:
            self.limit_field = "max_completion_tokens"
            return True
        if "seed" in failure.detail and "seed" in sent:
            self.takes_seed = False
            return True
        return False


def messages(prompt: Prompt) -> list[Message]:
    """The prompt as chat messages; a plain string becomes the user's."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": message["role"], "content": message["content"]} for message in prompt]


def request_seeds(prompts: Sequence[Prompt], sampling: Sampling, keys: Sequence[str] | None) -> list[int | None]:
    """One seed a prompt, in [0, 2**31), from the master seed and the prompt's key; None where nothing is random.

    Without keys a prompt goes by its content and how often it has come before.
    """
    if keys is not None and len(keys) != len(prompts):
        raise ValueError(f"{len(keys)} keys for {len(prompts)} prompts")
    if sampling.greedy:
        return [None] * len(prompts)
    if keys is None:
        seen: Counter[str] = Counter()
        names = []
        for prompt in prompts:
            text = prompt_text(prompt)
            names.append(f"{text}#{seen[text]}")
            seen[text] += 1
    else:
        names = list(keys)
    # 31 bits, because some servers read the seed as a signed 32-bit number.
    return [request_key(f"{sampling.seed}/{name}") >> 33 for name in names]

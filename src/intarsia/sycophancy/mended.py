"""MendedTarget: another target with its prompts reworded on the way in, or with something hooked into its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import JsonValue

from intarsia.core.errors import ConfigError
from intarsia.core.sampling import Sampling
from intarsia.core.target import Completion, Message, Progress, Prompt, Scored, Target


class MendedTarget(Target):
    """Passes everything on to another target, under a name of its own.

    The name matters: journals and reports go by it, so answers of a mended model never stand for those of the model.

    Args:
        inner: Who answers. It stays open when this target is closed.
        name: Name of the mitigation; the target is called `INNER [NAME]`.
        reword: What is asked instead of a prompt; None asks the prompt itself.
        how: What was done, for provenance.

    Attributes:
        inner: Who answers.
        how: What was done: the mitigation's name, its kind and its settings.
    """

    def __init__(
        self,
        inner: Target,
        name: str,
        reword: Callable[[Prompt], Prompt] | None = None,
        how: Mapping[str, JsonValue] | None = None,
    ) -> None:
        self.inner = inner
        self.name = f"{inner.name} [{name}]"
        self.capabilities = inner.capabilities
        self.notes = inner.notes
        self._reword = reword
        self.how = {"name": name, **(how or {})}

    @property
    def model(self) -> Any:
        """The torch module of the inner target."""
        return self.inner.model  # type: ignore[attr-defined]

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the inner target."""
        return self.inner.tokenizer  # type: ignore[attr-defined]

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        keys: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Completion]:
        """The inner target's answers to the reworded prompts."""
        return self.inner.generate(self._asked(prompts), sampling, keys=keys, progress=progress)

    def score(
        self, prompts: Sequence[Prompt], continuations: Sequence[str], *, progress: Progress | None = None
    ) -> list[Scored]:
        """The inner target's scores after the reworded prompts."""
        return self.inner.score(self._asked(prompts), continuations, progress=progress)

    def embed(self, texts: Sequence[str], *, progress: Progress | None = None) -> np.ndarray:
        """The inner target's vectors."""
        return self.inner.embed(texts, progress=progress)

    def batches(self, prompts: Sequence[Prompt], sampling: Sampling | None = None) -> list[list[int]]:
        """How the inner target would group the reworded prompts."""
        return self.inner.batches(self._asked(prompts), sampling)

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """Tokens of the reworded prompts."""
        return self.inner.count_tokens(self._asked(prompts))

    def provenance(self) -> dict[str, Any]:
        """The inner target's, and what was done to it."""
        return {**self.inner.provenance(), "name": self.name, "mitigation": dict(self.how)}

    def _asked(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        return [prompt if self._reword is None else self._reword(prompt) for prompt in prompts]


def as_messages(prompt: Prompt) -> list[Message]:
    """A prompt as chat messages; a plain string is what the user says."""
    if isinstance(prompt, str):
        return [Message(role="user", content=prompt)]
    return [Message(role=message["role"], content=message["content"]) for message in prompt]


def user_text(prompt: Prompt) -> str:
    """What the user says last."""
    if isinstance(prompt, str):
        return prompt
    return next((message["content"] for message in reversed(prompt) if message["role"] == "user"), "")


def with_user_text(prompt: Prompt, text: str) -> Prompt:
    """The prompt with what the user says last replaced; a chat without a user message is left as it is."""
    if isinstance(prompt, str):
        return text
    messages = as_messages(prompt)
    last = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=None)
    if last is not None:
        messages[last] = Message(role="user", content=text)
    return messages


def need(target: Target, capability: str, what: str) -> None:
    """Check that a target can do what a mitigation takes.

    Raises:
        ConfigError: It cannot.
    """
    if capability in target.capabilities:
        return
    hints = {
        "chat": "Use an instruction-tuned model, or load it with transcript=True.",
        "weights": "Use a local model (a name, a folder or a hub id).",
        "score": "Use a local model, or an endpoint that returns prompt log-probs.",
    }
    raise ConfigError(f"{what} needs {capability}, which {target.name} does not have.", hints.get(capability, ""))

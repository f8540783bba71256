"""Target: anything that answers or scores prompts.

A study talks to a `Target` and to nothing else, so the same study runs on a local model, an endpoint that speaks the
OpenAI API, any model that inspect_ai knows, or a script in a test. What a target can do is a set of words, its
`capabilities`; a study whose needs are not met is skipped with the reason.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np
from pydantic import BaseModel, ConfigDict

from intarsia.core.errors import ConfigError
from intarsia.core.sampling import Sampling


class Message(TypedDict):
    """One chat message in the OpenAI shape."""

    role: str
    content: str


Prompt: TypeAlias = str | Sequence[Message]
"""A plain string is continued as it stands; a list of messages goes through the model's chat template."""

FinishReason: TypeAlias = Literal["stop", "length", "error"]

Capability: TypeAlias = Literal["generate", "score", "embed", "chat", "logprobs", "seed", "weights"]
"""`seed`: the same seed gives the same text. `weights`: the torch module itself is at hand (`target.model`)."""

Progress: TypeAlias = Callable[[int, int], None]
"""Called with (done, total) after each batch."""


class Completion(BaseModel):
    """One answer of a target.

    Attributes:
        text: The new text only, without the prompt and without special tokens; stop strings are cut off.
        token_count: Number of new tokens (the end token is counted when it was produced).
        token_ids: The new token ids, where the target shows them.
        logprobs: Natural log-probability of each new token under the untempered model law, when asked for.
        finish_reason: `stop` (end token or stop string), `length` (ran out of tokens), `error` (no answer came).
        prompt_tokens: Tokens of the prompt as the model saw it, 0 where unknown.
        thinking: The thinking part of a reasoning model, taken out of `text`; empty where there is none.
        error: Why no answer came, when `finish_reason` is `error`.
    """

    model_config = ConfigDict(frozen=True)

    text: str
    token_count: int
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    finish_reason: FinishReason = "stop"
    prompt_tokens: int = 0
    thinking: str = ""
    error: str = ""

    @property
    def truncated(self) -> bool:
        """Whether the token limit cut the answer off."""
        return self.finish_reason == "length"


class Scored(BaseModel):
    """Log-probabilities of one continuation after its prompt.

    Attributes:
        token_ids: The continuation's tokens as scored.
        logprobs: Natural log-probability of each of them.
    """

    model_config = ConfigDict(frozen=True)

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    @property
    def total(self) -> float:
        """Log-probability of the whole continuation, in nats."""
        return float(sum(self.logprobs))

    @property
    def mean(self) -> float:
        """Mean log-probability per token, in nats."""
        return self.total / max(1, len(self.logprobs))


class Target(ABC):
    """Answers and scores prompts.

    Attributes:
        name: The name the user gave, as it appears in reports.
        capabilities: What this target can do.
        notes: What a reader of its results must know (an estimate instead of a count, a key sent in the clear).
    """

    name: str
    capabilities: frozenset[Capability]
    notes: Sequence[str] = ()

    @abstractmethod
    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        keys: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Completion]:
        """Answer each prompt, in order.

        Args:
            prompts: Strings or lists of chat messages.
            sampling: How to choose tokens; greedy with 128 new tokens when omitted.
            keys: One stable name a prompt, which seeds its random numbers, so that an item's sample depends on
                neither its place nor its batch. Without them the prompt's own content and its occurrence count serve.
            progress: Called with (done, total).

        Returns:
            One completion a prompt. A prompt that could not be answered has `finish_reason="error"`.
        """

    def score(
        self, prompts: Sequence[Prompt], continuations: Sequence[str], *, progress: Progress | None = None
    ) -> list[Scored]:
        """Log-probabilities of `continuations[i]` after `prompts[i]`. Needs the capability `score`."""
        raise ConfigError(
            f"{self.name} cannot score text.", "Use a local model, or an endpoint that returns prompt log-probs."
        )

    def embed(self, texts: Sequence[str], *, progress: Progress | None = None) -> np.ndarray:
        """Embeddings of texts, float32 of shape (len(texts), d). Needs the capability `embed`."""
        raise ConfigError(f"{self.name} cannot embed text.", "Use a local model or a sentence encoder.")

    def batches(self, prompts: Sequence[Prompt], sampling: Sampling | None = None) -> list[list[int]]:
        """How this target would group the prompts: lists of indices that together hold each index once.

        Planning is idempotent: `generate` (or `score`) on the prompts of one group works on them as one batch. That
        makes the group a unit of a journal.

        Args:
            prompts: All prompts of the job.
            sampling: How they will be answered; None when they will be scored or embedded.
        """
        return [list(range(start, min(start + 16, len(prompts)))) for start in range(0, len(prompts), 16)]

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """Tokens of each prompt; a target without a tokenizer estimates four characters a token."""
        return [max(1, len(prompt_text(prompt)) // 4) for prompt in prompts]

    def probe_capabilities(self) -> frozenset[Capability]:
        """Find out what the target can do beyond the certain; an endpoint is asked once, a local model knows."""
        return self.capabilities

    def provenance(self) -> dict[str, Any]:
        """What was measured: source, revision, hashes, dtype, device. Holds no secrets."""
        return {"name": self.name, "kind": type(self).__name__}

    def close(self) -> None:  # noqa: B027 - holding nothing is a fine default
        """Free what the target holds (memory, connections). Safe to call twice."""

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @staticmethod
    def parse(spec: str | Target, **options: Any) -> Target:
        """Make a target of what a user typed.

        `smollm2-135m` (embedded), `org/name@revision` (hub), `./folder`, `./file.gguf`, `base+adapter-folder` (PEFT),
        `http://host:port/v1#model` (OpenAI-compatible endpoint), `inspect:provider/model` (inspect_ai).

        Args:
            spec: The name, or a target, which is returned as it is.
            **options: Passed on to the target's constructor (`dtype`, `device`, `batch_tokens`, `accept_license`, ...).

        Returns:
            A target whose `name` is `spec`.

        Raises:
            ConfigError: The name cannot be read.
            ModelError: There is no such model.
        """
        if isinstance(spec, Target):
            return spec
        spec = spec.strip()
        if not spec:
            raise ConfigError("The model name is empty.", "Try smollm2-135m; `intarsia models list` shows more.")
        if spec.startswith(("http://", "https://")):
            from intarsia.core.endpoint import EndpointTarget

            return EndpointTarget.from_url(spec, **options)
        if spec.startswith("inspect:"):
            from intarsia.core.inspect_target import InspectTarget

            return InspectTarget(spec.removeprefix("inspect:"), name=spec, **options)
        from intarsia.core.local import LocalTarget

        return LocalTarget.load(spec, **options)


def prompt_text(prompt: Prompt) -> str:
    """The prompt as plain text, for display, hashing and length estimates."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {message['content']}" for message in prompt)

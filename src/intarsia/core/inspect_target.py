"""InspectTarget: any model that inspect_ai knows, asked through its own providers."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from intarsia.core.endpoint.dialect import request_seeds
from intarsia.core.errors import BackendError, ConfigError, ModelError
from intarsia.core.loop import LoopThread, Report
from intarsia.core.replies import IMPOSSIBLE
from intarsia.core.sampling import Sampling
from intarsia.core.secret import MASK
from intarsia.core.target import Completion, FinishReason, Progress, Prompt, Target

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage, GenerateConfig, Model, ModelOutput

_CUT = frozenset({"max_tokens", "model_length"})
_SHOWN = 200
_SECRET = 8
"""Characters from which on a variable's value is taken for a secret."""


class InspectTarget(Target):
    """A model of inspect_ai, by name or as the object itself.

    Every prompt goes through the provider's chat; a plain string is sent as one user message. Retries, rate limits and
    keys are inspect_ai's business; here retries and time are bounded, which they are not by default.

    Args:
        model: `provider/model`, such as `anthropic/claude-sonnet-4-5` or `hf/org/name`, or a `Model`.
        name: How reports call it; `inspect:` and the model when empty.
        concurrency: Most requests in flight at once.
        retries: Most retries of a failed request.
        deadline: Seconds for one prompt, with its retries.
        model_args: Further arguments of the provider.

    Raises:
        ConfigError: inspect_ai is not installed, or the provider or its key is missing.
        ModelError: There is no such provider.
    """

    def __init__(
        self,
        model: str | Model,
        *,
        name: str = "",
        concurrency: int = 8,
        retries: int = 4,
        deadline: float = 300.0,
        model_args: Mapping[str, Any] | None = None,
    ) -> None:
        if concurrency < 1 or retries < 0 or deadline <= 0:
            raise ConfigError(
                f"concurrency={concurrency}, retries={retries}, deadline={deadline} cannot be.",
                "Give at least one request at once, no negative retries, and some seconds.",
            )
        self._model = _find_model(model, dict(model_args or {}))
        self.name = name or f"inspect:{self._model}"
        self.capabilities = frozenset({"generate", "chat"})
        self.concurrency, self.retries, self.deadline = concurrency, retries, deadline
        self._loop = LoopThread("intarsia-inspect")

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        keys: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Completion]:
        """Answer each prompt, in order; see `Target.generate`.

        Raises:
            ConfigError: The sampling asks for what inspect_ai cannot pass on, or a key is missing.
            BackendError: Not one prompt was answered.
        """
        sampling = sampling or Sampling()
        if sampling.min_p:
            raise ConfigError("inspect_ai passes no min_p on to its models.", "Use top_p, or a local model.")
        if not prompts:
            return []
        seeds = request_seeds(prompts, sampling, keys)
        chats = [_messages(prompt) for prompt in prompts]
        counts = self.count_tokens(prompts)
        return self._loop.run(partial(self._answer_all, chats, sampling, seeds, counts), progress)

    def batches(self, prompts: Sequence[Prompt], sampling: Sampling | None = None) -> list[list[int]]:
        """Groups as large as the number of requests in flight; see `Target.batches`."""
        size = self.concurrency
        return [list(range(start, min(start + size, len(prompts)))) for start in range(0, len(prompts), size)]

    def provenance(self) -> dict[str, Any]:
        """The model's name as inspect_ai knows it."""
        return {"name": self.name, "kind": type(self).__name__, "model": str(self._model)}

    def close(self) -> None:
        """Stop the thread. Safe to call twice; a later call starts it again."""
        self._loop.close()

    async def _answer_all(
        self,
        chats: Sequence[list[ChatMessage]],
        sampling: Sampling,
        seeds: Sequence[int | None],
        counts: Sequence[int],
        report: Report,
    ) -> list[Completion]:
        answers: list[Completion | None] = [None] * len(chats)
        todo = iter(range(len(chats)))
        done = 0

        async def work() -> None:
            nonlocal done
            for i in todo:
                config = self._config(sampling, seeds[i])
                try:
                    async with asyncio.timeout(self.deadline):
                        output = await self._model.generate(chats[i], config=config)
                    answers[i] = _completion(output, sampling, counts[i])
                except TimeoutError:
                    answers[i] = _failed(f"no answer within {self.deadline:g} s", counts[i])
                except Exception as error:
                    # Providers raise whatever their own client raises; it is kept with the prompt, and when nothing
                    # was answered it becomes the error of the whole job.
                    answers[i] = _failed(_words(error), counts[i])
                done += 1
                report(done, len(chats))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self.concurrency, len(chats))):
                group.create_task(work())
        found = [answer for answer in answers if answer is not None]
        if all(answer.finish_reason == "error" for answer in found):
            raise BackendError(
                f"{self.name} did not answer any of {len(found)} prompts: {found[0].error}.",
                "Check the provider's key and the network, then run the same command again.",
            )
        return found

    def _config(self, sampling: Sampling, seed: int | None) -> GenerateConfig:
        from inspect_ai.model import GenerateConfig

        return GenerateConfig(
            max_retries=self.retries,
            timeout=math.ceil(self.deadline),
            max_connections=self.concurrency,
            max_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p if sampling.top_p < 1.0 else None,
            top_k=sampling.top_k or None,
            stop_seqs=list(sampling.stop) or None,
            seed=seed,
            logprobs=sampling.logprobs or None,
        )


def _find_model(model: str | Model, model_args: dict[str, Any]) -> Model:
    try:
        from inspect_ai.model import Model, ModelOutput, ModelUsage, get_model
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"A model of inspect_ai needs the package {(error.name or 'inspect_ai').split('.')[0]}.",
            "Run `pip install 'intarsia[eval]'`.",
        ) from None
    if isinstance(model, Model):
        return model
    if "/" not in model.strip("/"):
        raise ConfigError(f"{model!r} names no provider.", "Write inspect:provider/model.")
    if model.startswith("mockllm/") and "custom_outputs" not in model_args:

        def mock(*_: Any) -> ModelOutput:
            # With its usage given, the mock needs no tokenizer, which it would have to download.
            output = ModelOutput.from_content("mockllm", "Default output from mockllm/model")
            output.usage = ModelUsage(input_tokens=1, output_tokens=5, total_tokens=6)
            return output

        model_args["custom_outputs"] = mock
    try:
        return get_model(model, **model_args)
    except ValueError as error:
        raise ModelError(f"inspect_ai does not know {model!r}: {_words(error)}", "Check the provider's name.") from None
    except Exception as error:
        raise ConfigError(
            f"inspect_ai cannot open {model!r}: {_words(error)}", "Install what it names, or set the provider's key."
        ) from None


def _messages(prompt: Prompt) -> list[ChatMessage]:
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser

    if isinstance(prompt, str):
        return [ChatMessageUser(content=prompt)]
    kinds = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
    messages: list[ChatMessage] = []
    for message in prompt:
        if message["role"] not in kinds:
            raise ConfigError(f"inspect_ai has no chat role {message['role']!r}.", f"Use {', '.join(kinds)}.")
        messages.append(kinds[message["role"]](content=message["content"]))
    return messages


def _completion(output: ModelOutput, sampling: Sampling, prompt_tokens: int) -> Completion:
    if output.empty:
        return _failed(output.error or "the provider gave no choice", prompt_tokens)
    choice = output.choices[0]
    content = choice.message.content
    thinking = ""
    if not isinstance(content, str):
        thinking = "\n".join(
            (part.summary or "") if part.redacted else part.reasoning for part in content if part.type == "reasoning"
        )
    text = choice.message.text
    reason: FinishReason = "length" if choice.stop_reason in _CUT else "stop"
    error = ""
    if choice.stop_reason == "content_filter":
        reason, error = "error", output.error or "the provider's content filter withheld the answer"
    cut = min((at for at in (text.find(s) for s in sampling.stop if s) if at >= 0), default=-1)
    if cut >= 0:
        text, reason = text[:cut], reason if reason == "error" else "stop"
    usage = output.usage
    logprobs = None
    if sampling.logprobs and choice.logprobs is not None:
        logprobs = tuple(max(token.logprob, IMPOSSIBLE) for token in choice.logprobs.content)
    seen = 0
    if usage is not None:
        seen = usage.input_tokens + (usage.input_tokens_cache_read or 0) + (usage.input_tokens_cache_write or 0)
    return Completion(
        text=text,
        token_count=usage.output_tokens if usage is not None else math.ceil((len(text) + len(thinking)) / 4),
        logprobs=logprobs,
        finish_reason=reason,
        prompt_tokens=seen or prompt_tokens,
        thinking=thinking,
        error=error,
    )


def _failed(why: str, prompt_tokens: int) -> Completion:
    return Completion(text="", token_count=0, finish_reason="error", prompt_tokens=prompt_tokens, error=why)


def _words(error: BaseException) -> str:
    """An error's own words in one line; inspect_ai writes some of them in rich's markup."""
    from rich.markup import MarkupError
    from rich.text import Text

    words = str(getattr(error, "message", "") or error) or type(error).__name__
    with contextlib.suppress(MarkupError):
        words = Text.from_markup(words).plain
    for variable, value in os.environ.items():
        # Some providers repeat the key that they do not take.
        if variable.endswith(("_KEY", "_TOKEN", "_SECRET")) and len(value) >= _SECRET:
            words = words.replace(value, MASK)
    words = " ".join(words.split()).removeprefix("ERROR: ")
    return words if len(words) <= _SHOWN else words[: _SHOWN - 3] + "..."

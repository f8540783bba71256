"""ScriptedTarget: answers from a function, a table or a list. It serves tests and worked examples, without a model."""

from __future__ import annotations

import re
import threading
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from intarsia.core.errors import BackendError, ConfigError
from intarsia.core.sampling import Sampling
from intarsia.core.target import Capability, Completion, FinishReason, Progress, Prompt, Scored, Target, prompt_text

Answer: TypeAlias = Callable[[Prompt], str | Completion] | Mapping[str, str] | Sequence[str]
Scorer: TypeAlias = Callable[[Prompt, str], float | Sequence[float]]
Embedder: TypeAlias = Callable[[str], Sequence[float]]

_TOKEN = re.compile(r"\s*\S+|\s+$")


class Call(NamedTuple):
    """One prompt that was asked.

    Attributes:
        kind: `generate`, `score` or `embed`.
        prompt: As it came; the text itself for `embed`.
        key: The prompt's key, empty without one.
    """

    kind: str
    prompt: Prompt
    key: str = ""


class ScriptedTarget(Target):
    """Answers by a script. A token is a word with the space before it.

    A function or a table gives a prompt the same answer wherever it stands; a list is read in the order of asking, so a
    resumed run does not meet the same answers again.

    Args:
        answer: A function of the prompt (it may give a whole `Completion`); a table by the prompt's text or by its last
            message, where `*` stands for every other prompt; or a list of answers, read once.
        scorer: Log-probability of a continuation: a number, which its words share evenly, or one number a word.
        embedder: Vector of a text.
        name: How reports call it.
        capabilities: Instead of generate, chat and seed, with score and embed where there is a function for it.
        latency: Seconds that each prompt takes.
        fail_on: Prompts that get no answer: a function, or texts as in a table.
        before: Called with (number of prompts asked so far, prompt) before each; what it raises ends the job.

    Attributes:
        calls: Every prompt asked, in order.
    """

    def __init__(
        self,
        answer: Answer,
        *,
        scorer: Scorer | None = None,
        embedder: Embedder | None = None,
        name: str = "scripted",
        capabilities: Iterable[Capability] | None = None,
        latency: float = 0.0,
        fail_on: Callable[[Prompt], bool] | Collection[str] = (),
        before: Callable[[int, Prompt], None] | None = None,
    ) -> None:
        if isinstance(answer, str):
            raise TypeError("answer must be a function, a table or a list of strings, not one string")
        self.name = name
        self._answer, self._scorer, self._embedder = answer, scorer, embedder
        self._latency, self._fail_on, self._before = latency, fail_on, before
        if capabilities is None:
            can: set[Capability] = {"generate", "chat", "seed"}
            if scorer is not None:
                can.add("score")
            if embedder is not None:
                can.add("embed")
            self.capabilities: frozenset[Capability] = frozenset(can)
        else:
            self.capabilities = frozenset(capabilities)
        self.calls: list[Call] = []
        self._served = 0
        self._guard = threading.Lock()

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        keys: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Completion]:
        """Answer each prompt, in order; see `Target.generate`. Log-probabilities are 0: a script is certain.

        Raises:
            ConfigError: The script has no answer for a prompt.
        """
        sampling = sampling or Sampling()
        if keys is not None and len(keys) != len(prompts):
            raise ValueError(f"{len(keys)} keys for {len(prompts)} prompts")
        answers = []
        for i, prompt in enumerate(prompts):
            self._note(Call("generate", prompt, keys[i] if keys is not None else ""))
            answers.append(self._complete(prompt, sampling))
            if progress is not None:
                progress(i + 1, len(prompts))
        return answers

    def score(
        self, prompts: Sequence[Prompt], continuations: Sequence[str], *, progress: Progress | None = None
    ) -> list[Scored]:
        """Log-probabilities by the `scorer`; see `Target.score`. Token ids are checksums of the words.

        Raises:
            ConfigError: There is no scorer.
            BackendError: A prompt is among those that fail.
        """
        if self._scorer is None:
            return super().score(prompts, continuations, progress=progress)
        scores = []
        for i, (prompt, continuation) in enumerate(zip(prompts, continuations, strict=True)):
            self._note(Call("score", prompt))
            if self._fails(prompt):
                raise BackendError(f"{self.name} was told to fail on this prompt.")
            words = _TOKEN.findall(continuation)
            given = self._scorer(prompt, continuation)
            values = [float(given) / max(1, len(words))] * len(words) if isinstance(given, int | float) else list(given)
            if len(values) != len(words):
                raise ValueError(f"the scorer gave {len(values)} numbers for {len(words)} words")
            ids = tuple(zlib.crc32(word.encode()) for word in words)
            scores.append(Scored(token_ids=ids, logprobs=tuple(map(float, values))))
            if progress is not None:
                progress(i + 1, len(prompts))
        return scores

    def embed(self, texts: Sequence[str], *, progress: Progress | None = None) -> np.ndarray:
        """Vectors by the `embedder`, float32 of shape (len(texts), d).

        Raises:
            ConfigError: There is no embedder.
        """
        if self._embedder is None:
            return super().embed(texts, progress=progress)
        rows = []
        for i, text in enumerate(texts):
            self._note(Call("embed", text))
            rows.append(np.asarray(self._embedder(text), dtype=np.float32))
            if progress is not None:
                progress(i + 1, len(texts))
        return np.stack(rows) if rows else np.zeros((0, 0), dtype=np.float32)

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """Words of each prompt."""
        return [len(_TOKEN.findall(prompt_text(prompt))) for prompt in prompts]

    def provenance(self) -> dict[str, Any]:
        """Name and kind; a script has no version."""
        return {"name": self.name, "kind": type(self).__name__}

    def _note(self, call: Call) -> None:
        with self._guard:
            count = len(self.calls)
            self.calls.append(call)
        if self._before is not None:
            self._before(count, call.prompt)
        if self._latency:
            time.sleep(self._latency)

    def _complete(self, prompt: Prompt, sampling: Sampling) -> Completion:
        prompt_tokens = self.count_tokens([prompt])[0]
        if self._fails(prompt):
            return Completion(
                text="",
                token_count=0,
                finish_reason="error",
                prompt_tokens=prompt_tokens,
                error="scripted to fail",
            )
        given = self._look_up(prompt)
        if isinstance(given, Completion):
            return given
        reason: FinishReason = "stop"
        cut = min((at for at in (given.find(s) for s in sampling.stop if s) if at >= 0), default=len(given))
        tokens = _TOKEN.findall(given[:cut])
        if len(tokens) > sampling.max_new_tokens:
            tokens, reason = tokens[: sampling.max_new_tokens], "length"
        return Completion(
            text="".join(tokens),
            token_count=len(tokens),
            logprobs=(0.0,) * len(tokens) if sampling.logprobs else None,
            finish_reason=reason,
            prompt_tokens=prompt_tokens,
        )

    def _look_up(self, prompt: Prompt) -> str | Completion:
        if callable(self._answer):
            return self._answer(prompt)
        if isinstance(self._answer, Mapping):
            for name in (*_names(prompt), "*"):
                if name in self._answer:
                    return self._answer[name]
            raise ConfigError(
                f"The script has no answer to {_names(prompt)[-1][:60]!r}.", "Add it, or an answer for `*`."
            )
        with self._guard:
            place, self._served = self._served, self._served + 1
        if place >= len(self._answer):
            raise ConfigError(
                f"The script has {len(self._answer)} answers and is asked for one more.",
                "Give more answers, or a function.",
            )
        return self._answer[place]

    def _fails(self, prompt: Prompt) -> bool:
        if callable(self._fail_on):
            return self._fail_on(prompt)
        return any(name in self._fail_on for name in _names(prompt))


def _names(prompt: Prompt) -> tuple[str, ...]:
    """What a prompt is called in a table: its whole text, and the content of its last message."""
    if isinstance(prompt, str) or not prompt:
        return (prompt_text(prompt),)
    return prompt_text(prompt), prompt[-1]["content"]

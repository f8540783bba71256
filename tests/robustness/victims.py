"""Targets that fail in a known way, and the questions they are asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from intarsia.core.data import Item
from intarsia.core.sampling import Sampling, request_key, uniform
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Completion, Progress, Prompt, Target, prompt_text

ROUGH = re.compile(r"[^\W\d_]+")


def asked(prompt: Prompt) -> str:
    """The question in a prompt, without the hint behind it."""
    content = prompt if isinstance(prompt, str) else prompt[-1]["content"]
    return content.split("\n", 1)[0]


def stories(n: int) -> list[Item]:
    """Sums with a gold answer; ten or so of their words may be changed."""
    return [
        Item(
            id=f"q{i}",
            question=f"Tom buys {i + 2} apples and finds 3 eggs. Then the apples and eggs lie down. What does Tom see?",
            answer=str(i + 5),
            kind="number",
        )
        for i in range(n)
    ]


def right(prompt: Prompt) -> int:
    """The gold answer to a story, however it is worded."""
    return sum(int(number) for number in re.findall(r"\d+", asked(prompt)))


def holds(text: str, triggers: Collection[str]) -> bool:
    """Whether a text has one of the words, whatever its case."""
    return not set(triggers).isdisjoint(word.lower() for word in ROUGH.findall(text))


def adder(triggers: Collection[str] = (), **options: object) -> ScriptedTarget:
    """Adds up the numbers of a story, and is one too high where a trigger word stands in it."""

    def answer(prompt: Prompt) -> str:
        return f"The answer is {right(prompt) + holds(asked(prompt), triggers)}."

    return ScriptedTarget(answer, **options)  # type: ignore[arg-type]


class Coin(Target):
    """Adds up the numbers of a story, and errs with a chance that may depend on the wording.

    Its randomness is a pure function of the query's key and the seed, as a real target's is.
    """

    def __init__(self, error: float | Callable[[str], float], name: str = "coin") -> None:
        self.name = name
        self.capabilities = frozenset({"generate", "chat", "seed"})
        self._error = error if callable(error) else lambda question: error
        self.keys: list[str] = []
        self.questions: list[str] = []

    def batches(self, prompts: Sequence[Prompt], sampling: Sampling | None = None) -> list[list[int]]:
        return [list(range(len(prompts)))] if prompts else []

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        keys: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Completion]:
        assert sampling is not None
        assert keys is not None
        assert len(keys) == len(prompts)
        self.keys += keys
        self.questions += map(asked, prompts)
        draws = uniform(sampling.seed, _requests(keys), 0)
        return [
            Completion(text=f"{right(prompt) + (draw < self._error(asked(prompt)))}", token_count=1)
            for prompt, draw in zip(prompts, draws, strict=True)
        ]


def _requests(keys: Sequence[str]) -> object:
    import numpy as np

    return np.array([request_key(key) for key in keys], dtype=np.uint64)


class Spy(Target):
    """Passes everything on and keeps what was said."""

    def __init__(self, inner: Target) -> None:
        self.inner, self.name, self.capabilities = inner, inner.name, inner.capabilities
        self.seen: list[tuple[str, str]] = []

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        keys: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Completion]:
        assert keys is not None
        self.seen += [(key, prompt_text(prompt)) for key, prompt in zip(keys, prompts, strict=True)]
        return self.inner.generate(prompts, sampling, keys=keys)

"""Targets that answer by a law that is written down: local ones (beams), and servers (samples)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest

from intarsia.core.data import DataSet, Item, content_hash
from intarsia.core.sampling import Sampling, request_key, uniform
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Completion, Progress, Prompt, Target, prompt_text
from intarsia.uncertainty import asking
from intarsia.uncertainty.table import TableLaw

WORDS = ("Ant", "Bee", "Cat", "Dog", "Elk", "Fox", "Gnu", "Hen")
END = len(WORDS)

Shares = Callable[[int], Sequence[float]]
"""Probability of each word as the answer to question number n."""


def number(prompt: Prompt) -> int:
    """Which question it is: the last number in the prompt."""
    return int(re.findall(r"\d+", prompt_text(prompt))[-1])


def graded(n: int) -> tuple[float, ...]:
    """From certain to guessing: the likeliest word has 0.95 down to 0.4, the others share the rest unevenly."""
    top = 0.95 - 0.55 * (n % 20) / 19
    rest = np.array([0.5, 0.25, 0.125, 0.0625, 0.03, 0.02, 0.0125]) * (1 - top)
    law = np.roll([top, *rest], n % len(WORDS))
    return tuple(law / law.sum())


def questions(count: int = 40, shares: Shares = graded) -> DataSet:
    """Questions whose right answers follow the law itself, so that a sure answer is right more often."""
    items = []
    for n in range(count):
        draw = float(uniform(7, request_key(f"gold {n}"), 0))
        gold = WORDS[int(np.searchsorted(np.cumsum(shares(n)), draw * sum(shares(n))))]
        items.append(
            Item(id=f"q{n}", question=f"Which animal is {n}?", answer=gold, kind="word", slices={"task": f"t{n % 2}"})
        )
    return DataSet(name="animals", items=tuple(items), origin="animals.jsonl", sha256=content_hash(items))


class TableTarget(Target):
    """A local model that is a table; beams grow on it once `lawful` is in force."""

    def __init__(
        self, shares: Shares = graded, name: str = "table", before: Callable[[int], None] | None = None
    ) -> None:
        self.name, self.shares, self.before = name, shares, before
        self.capabilities = frozenset({"generate", "weights", "logprobs", "seed", "score"})
        self.batches_made = 0

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        keys: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Completion]:
        raise AssertionError("beams do not go through generate")

    def law(self, temperature: float, limit: int) -> TableLaw:
        """Its law: one word, then the end."""

        @cache
        def table(prompt: str, prefix: tuple[int, ...]) -> np.ndarray:
            law = np.zeros(END + 1)
            if prefix:
                law[END] = 1.0
                return law
            law[:END] = np.asarray(self.shares(number(prompt))) ** (1 / temperature)
            return law / law.sum()

        made = TableLaw(table, (*WORDS, ""), {END}, max_new_tokens=limit, name=self.name)
        original = made.prefill

        def prefill(prompts: Sequence[Prompt]):  # type: ignore[no-untyped-def]
            self.batches_made += 1
            if self.before is not None:
                self.before(self.batches_made)
            return original(prompts)

        made.prefill = prefill  # type: ignore[method-assign]
        return made


@pytest.fixture
def lawful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables count as local models."""

    class TableLaws:
        @staticmethod
        def of(target: TableTarget, *, temperature: float, stops: Sequence[str], max_new_tokens: int) -> TableLaw:
            return target.law(temperature, max_new_tokens)

    monkeypatch.setattr(asking, "is_local", lambda target: isinstance(target, TableTarget))
    monkeypatch.setattr(asking, "Law", TableLaws)


class Server(ScriptedTarget):
    """Samples from the law by the query's key, with log-probabilities or without."""

    def __init__(
        self, shares: Shares = graded, *, logprobs: bool = True, name: str = "server", **options: object
    ) -> None:
        able = {"generate", "chat", "seed"} | ({"logprobs"} if logprobs else set())
        super().__init__(lambda prompt: "", name=name, capabilities=able, **options)  # type: ignore[arg-type]
        self.shares = shares

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
        made = super().generate(prompts, sampling, keys=keys, progress=progress)
        found = []
        for prompt, key, blank in zip(prompts, keys, made, strict=True):
            if blank.finish_reason == "error":
                found.append(blank)
                continue
            law = np.asarray(self.shares(number(prompt)))
            place = int(law.argmax())
            if sampling.temperature:
                draw = float(uniform(sampling.seed, request_key(key), 0))
                place = min(int(np.searchsorted(np.cumsum(law), draw * law.sum())), len(WORDS) - 1)
            said = (float(np.log(law[place] / law.sum())),) if sampling.logprobs else None
            found.append(Completion(text=WORDS[place], token_count=1, logprobs=said))
        return found

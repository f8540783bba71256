"""EndpointSample: samples with log-probabilities from any target, each distinct answer weighted by its probability.

An endpoint gives no beams. But a sample that comes with its log-probability is as good as a beam once it is known: what
was drawn several times is kept once, and counts by its probability instead of by how often it was drawn (ours).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from intarsia.core.errors import BackendError, ConfigError
from intarsia.core.sampling import Sampling
from intarsia.core.target import Completion, Prompt, Target
from intarsia.uncertainty.candidates import Answer, CandidateSet
from intarsia.uncertainty.generator import PLACEHOLDER


@dataclass
class EndpointSample:
    """M samples at temperature 1 and the greedy answer, asked for by `Target.generate`.

    A target's log-probabilities are those of its untempered law, hence the fixed temperature. Most endpoints tell no
    log-probability of the end token: then an answer's probability is that of its words, which is a little too high, and
    the sum over candidates may pass 1. Answers are told apart by their tokens where the target shows them, else by
    their text.

    Args:
        target: Who is asked; needs the capability `logprobs` for weights by probability.
        m: Number of samples.
        max_new_tokens: Most tokens of an answer.
        stops: Strings that end an answer.
        seed: Master seed; where the target has no seeds, each run draws anew.
        weights: `probability` keeps each distinct answer once, with its probability; the set's kind is then `diverse`:
            distinct answers that are not the top ones. `count` keeps all samples, equally weighted.
        placeholder: Text that stands for an empty one.

    Attributes:
        name: As it appears in reports.

    Raises:
        ConfigError: The target gives no log-probabilities, or an option is out of range.
    """

    target: Target
    m: int = 10
    max_new_tokens: int = 20
    stops: tuple[str, ...] = ("\n",)
    seed: int = 0
    weights: Literal["probability", "count"] = "probability"
    placeholder: str = PLACEHOLDER

    name: ClassVar[str] = "endpoint"

    def __post_init__(self) -> None:
        if self.m < 1 or self.max_new_tokens < 1:
            raise ConfigError(f"m is {self.m} and max_new_tokens is {self.max_new_tokens}.", "Both must be at least 1.")
        if self.weights not in ("probability", "count"):
            raise ConfigError(f"There are no weights {self.weights!r}.", "Choose probability or count.")
        self.stops = (self.stops,) if isinstance(self.stops, str) else tuple(self.stops)
        able = self.target.capabilities
        if "logprobs" not in able:
            able = self.target.probe_capabilities()
        self._logprobs = "logprobs" in able
        if not self._logprobs and self.weights == "probability":
            raise ConfigError(
                f"{self.target.name} gives no log-probabilities.",
                'Use weights="count", which counts how often each answer was drawn.',
            )

    def generate(self, prompts: Sequence[Prompt], keys: Sequence[str]) -> list[CandidateSet]:
        """Candidates for each prompt, in order; see `Candidates.generate`.

        Raises:
            BackendError: A prompt got no answer, or one without log-probabilities.
        """
        if len(prompts) != len(keys):
            raise ValueError(f"{len(prompts)} prompts need as many keys, not {len(keys)}")
        start = time.perf_counter()
        common = {
            "max_new_tokens": self.max_new_tokens,
            "stop": self.stops,
            "seed": self.seed,
            "logprobs": self._logprobs,
        }
        answers = self.target.generate(prompts, Sampling(temperature=0.0, **common), keys=list(keys))
        samples = self.target.generate(
            [prompt for prompt in prompts for _ in range(self.m)],
            Sampling(temperature=1.0, **common),
            keys=[f"{key}/{number}" for key in keys for number in range(self.m)],
        )
        seconds = (time.perf_counter() - start) / max(1, len(prompts))
        return [
            self._set(key, answer, samples[place * self.m : (place + 1) * self.m], seconds)
            for place, (key, answer) in enumerate(zip(keys, answers))
        ]

    def _set(self, key: str, answer: Completion, samples: Sequence[Completion], seconds: float) -> CandidateSet:
        self._check(key, answer)
        logprobs: list[float] = []
        kept: list[Completion] = []
        seen: set[object] = set()
        for sample in samples:
            self._check(key, sample)
            identity = sample.token_ids or (sample.text, sample.truncated)
            if self.weights == "probability" and identity in seen:
                continue
            seen.add(identity)
            kept.append(sample)
            logprobs.append(float("nan") if sample.logprobs is None else float(sum(sample.logprobs)))
        if self.weights == "probability":
            order = sorted(range(len(kept)), key=lambda place: -logprobs[place])
            kept, logprobs = [kept[place] for place in order], [logprobs[place] for place in order]
        return CandidateSet(
            answer=Answer(
                text=self._text(answer.text),
                token_ids=tuple(answer.token_ids or ()),
                logprobs=tuple(answer.logprobs or ()),
                finished=not answer.truncated,
            ),
            texts=tuple(self._text(sample.text) for sample in kept),
            token_ids=tuple(tuple(sample.token_ids or ()) for sample in kept),
            logprobs_M=np.array(logprobs, dtype=np.float64),
            finished_M=np.array([not sample.truncated for sample in kept], dtype=bool),
            kind="diverse" if self.weights == "probability" else "sample",
            exact=len(kept) if self.weights == "probability" else 0,
            seconds=seconds,
        )

    def _check(self, key: str, completion: Completion) -> None:
        if completion.finish_reason == "error":
            raise BackendError(
                f"{self.target.name} gave no answer to {key!r}: {completion.error}", "Ask again, or leave it out."
            )
        if self._logprobs and completion.logprobs is None:
            raise BackendError(
                f"{self.target.name} answered {key!r} without log-probabilities.",
                'Turn them on at the server, or use weights="count".',
            )

    def _text(self, text: str) -> str:
        text = text.strip()
        return text or self.placeholder

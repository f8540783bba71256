"""Candidate answers with their exact probabilities: what every consistency-based uncertainty is computed from.

Shapes: M candidates, T tokens of a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from intarsia.core.target import Prompt

Kind: TypeAlias = Literal["beam", "sample", "diverse", "hybrid", "stored"]


@dataclass(frozen=True)
class Answer:
    """The answer under test.

    Attributes:
        text: What it says, without the end token.
        token_ids: Its tokens, the end token included where it was produced.
        logprobs: Natural log-probability of each of them under the model's own law (the law includes the temperature
            that is part of the model under test, and no other processing).
        entropy: Mean entropy of the next-token law over its steps, in nats; NaN where unknown.
        finished: Whether it ended by an end token or stop string.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    entropy: float = float("nan")
    finished: bool = True

    @property
    def logprob(self) -> float:
        """Log-probability of the whole answer, end token included."""
        return float(sum(self.logprobs))


@dataclass(frozen=True)
class CandidateSet:
    """Candidate answers to one prompt.

    Attributes:
        answer: The answer under test (greedy, or the top beam).
        texts: M candidates.
        token_ids: Their tokens, end token included; empty tuples where unknown.
        logprobs_M: Natural log-probability of each whole candidate (end token included), float64 of shape (M,).
        finished_M: Whether each ended by itself, bool of shape (M,); an unfinished one has the probability of a prefix.
        kind: How they were made. Samples count equally; beams count by their probability.
        exact: Number of leading candidates that are the distinct top sequences (all for a beam, B for a hybrid).
        seconds: Time that it took, where measured.
    """

    answer: Answer
    texts: tuple[str, ...]
    token_ids: tuple[tuple[int, ...], ...]
    logprobs_M: np.ndarray
    finished_M: np.ndarray
    kind: Kind
    exact: int = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def mass(self) -> float:
        """Probability that the distinct exact candidates hold together, in [0, 1]; 0 for samples."""
        return float(min(1.0, np.exp(self.logprobs_M[: self.exact]).sum())) if self.exact else 0.0


@runtime_checkable
class Candidates(Protocol):
    """A way to make candidates.

    Attributes:
        name: As it appears in reports.
        m: How many.
    """

    m: int

    @property
    def name(self) -> str:
        """See the class."""

    def generate(self, prompts: Sequence[Prompt], keys: Sequence[str]) -> list[CandidateSet]:
        """One set a prompt, in order; random numbers are a function of the key alone."""

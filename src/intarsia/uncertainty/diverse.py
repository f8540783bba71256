"""DiverseBeam: groups of beams that avoid each other's tokens (Vijayakumar et al., "Diverse beam search", 2018).

The candidates' probabilities are the law's own, as everywhere: the penalty only steers the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from intarsia.core.errors import ConfigError
from intarsia.uncertainty.beam import Beam, BeamWalk
from intarsia.uncertainty.candidates import Kind
from intarsia.uncertainty.law import Prefill
from intarsia.uncertainty.sampling import GreedyWalk
from intarsia.uncertainty.walk import Walker


@dataclass
class DiverseBeam(Beam):
    """M answers of a diverse beam search, likeliest first, all distinct as token sequences.

    They are not the likeliest M, but each has its exact probability, so they are weighted as beams are.

    Args:
        num_groups: Groups of m / num_groups beams each; 1 is plain beam search.
        diversity_penalty: Nats that a token loses for each beam of an earlier group that took it at the same step.
    """

    num_groups: int = 5
    diversity_penalty: float = 1.0

    name: ClassVar[str] = "diverse"
    kind: ClassVar[Kind] = "diverse"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_groups < 1 or self.m % self.num_groups:
            raise ConfigError(
                f"{self.m} candidates cannot be shared out to {self.num_groups} groups.",
                "Choose a number of groups that divides m.",
            )
        if not 0.0 <= self.diversity_penalty < float("inf"):
            raise ConfigError(f"The diversity penalty is {self.diversity_penalty}.", "Use 0 or a positive number.")

    def walkers(self, prefill: Prefill, keys: Sequence[str]) -> list[Walker]:
        """The diverse beam search, and the greedy answer where it is wanted."""
        search = BeamWalk(
            prefill,
            self.m,
            groups=self.num_groups,
            penalty=self.diversity_penalty,
            entropies=self.answer == "beam",
        )
        return [search, GreedyWalk(prefill)] if self.answer == "greedy" else [search]

"""Hybrid: the top B beams exactly, and M - B samples from what the law holds besides them.

With p_i and d_i the probability and dissimilarity of beam i, and d~_j those of the samples y~_j ~ p(. | not a beam),

    U = sum_i p_i d_i + (1 - sum_i p_i) mean_j d~_j

is an unbiased estimate of the expected dissimilarity, with a variance of at most (1 - m_B)^2 / (4 (M - B)) where m_B is
the beams' mass. The automatic B minimizes that bound.

Two samplers draw from outside the beams. `subtract` draws token by token: behind prefix h, token v gets
p(v | h) - sum over beams b that go on with v of p(b | h), which is p(v | h) (1 - sum p(b | h v)). `reject` draws from
the law until the draw is no beam; simple, and slow where the beams hold nearly everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from intarsia.core.errors import ConfigError
from intarsia.uncertainty.beam import Beam, BeamWalk
from intarsia.uncertainty.candidates import CandidateSet, Kind
from intarsia.uncertainty.generator import Generator
from intarsia.uncertainty.interval import Rule, low_mass
from intarsia.uncertainty.law import Prefill, TokenLaw
from intarsia.uncertainty.sampling import Factors, SampleWalk
from intarsia.uncertainty.walk import Path, Walker, walk

_NOTHING = 1e-5
"""Mass outside the beams below which nothing is drawn: a sum of float32 probabilities is no better than that."""
_ATTEMPT = 1 << 16
"""Stream numbers of one attempt at rejection; samples have lower numbers."""
_ATTEMPTS = 256


@dataclass
class Fallback(Generator):
    """Beams where they hold enough probability, and elsewhere their top B with samples from outside them (ours).

    The choice is made from each prompt's beams, on the prompts as they were computed for them. The set's kind says
    which it was: the beams' own, or `hybrid`.

    Args:
        beam: How the beams are found; its law, m and texts are used.
        rule: What counts as too little, see `interval.low_mass`.
        seed: Master seed of the samples.
    """

    beam: Beam = field(default_factory=Beam)
    rule: Rule = "half"
    seed: int = 0

    name: ClassVar[str] = "beam"

    def __post_init__(self) -> None:
        self.law, self.m, self.merge_texts = self.beam.law, self.beam.m, self.beam.merge_texts
        super().__post_init__()
        low_mass(1.0, self.m, self.rule)  # refuses a rule that there is not

    def bind(self, law: TokenLaw) -> Fallback:
        """The same with another law."""
        return replace(self, beam=self.beam.bind(law))

    @property
    def rows(self) -> int:
        """See `Generator.rows`."""
        return self.beam.rows

    def walkers(self, prefill: Prefill, keys: Sequence[str]) -> list[Walker]:
        """Those of the beams."""
        return self.beam.walkers(prefill, keys)

    def collect(self, prefill: Prefill, walkers: Sequence[Walker], keys: Sequence[str]) -> list[CandidateSet]:
        """Look at the beams' mass, and draw samples where it is low."""
        search = walkers[0]
        assert isinstance(search, BeamWalk)
        beams: list[list[Path]] = []
        counts: list[int] = []
        for place in range(len(keys)):
            found = search.paths(place)
            logprobs = np.array([path.logprob for path in found])
            low = self.m > 1 and low_mass(min(1.0, float(np.exp(logprobs).sum())), self.m, self.rule)
            kept = min(best_b(logprobs, self.m), self.m - 1) if low else len(found)
            beams.append(found[:kept])
            counts.append(self.m - kept if low else 0)
        samples_P = outside(prefill, self.seed, keys, beams, counts)
        return [
            self.beam.candidate_set(
                prefill.law, answer, [*some, *samples], exact=len(some), kind="hybrid" if samples else self.beam.kind
            )
            for answer, some, samples in zip(self.beam.answers(walkers), beams, samples_P)
        ]


@dataclass
class Hybrid(Beam):
    """The top B beams of a search of width m, then m - B samples from outside them.

    The set's `exact` is B. Where the beams hold all mass (up to rounding) there is nothing to sample, and the set is
    the beams alone.

    Args:
        b: Number of beams, below m; `auto` chooses it for each prompt.
        seed: Master seed of the samples.
        sampler: `subtract` or `reject`.
    """

    b: int | Literal["auto"] = "auto"
    seed: int = 0
    sampler: Literal["subtract", "reject"] = "subtract"

    name: ClassVar[str] = "hybrid"
    kind: ClassVar[Kind] = "hybrid"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.b != "auto" and not (isinstance(self.b, int) and 0 <= self.b < self.m):
            raise ConfigError(
                f"{self.b!r} of {self.m} candidates cannot be beams.", 'Use "auto", or a number from 0 to m - 1.'
            )
        if self.sampler not in ("subtract", "reject"):
            raise ConfigError(f"There is no sampler {self.sampler!r}.", "Choose subtract or reject.")
        if self.seed < 0:
            raise ConfigError(f"The seed is {self.seed}.", "Use 0 or more.")

    def collect(self, prefill: Prefill, walkers: Sequence[Walker], keys: Sequence[str]) -> list[CandidateSet]:
        """Cut the beams, then draw the samples on the same prompts, which are not computed again."""
        search = walkers[0]
        assert isinstance(search, BeamWalk)
        beams: list[list[Path]] = []
        counts: list[int] = []
        for place in range(len(keys)):
            found = search.paths(place)
            kept, samples = self._share(np.array([path.logprob for path in found]))
            beams.append(found[:kept])
            counts.append(samples)
        samples_P = outside(prefill, self.seed, keys, beams, counts, self.sampler)
        return [
            self.candidate_set(prefill.law, answer, [*some, *samples], exact=len(some))
            for answer, some, samples in zip(self.answers(walkers), beams, samples_P)
        ]

    def _share(self, logprobs: np.ndarray) -> tuple[int, int]:
        """How many beams to keep, and how many samples to draw besides."""
        tail = 1.0 - np.concatenate([[0.0], np.cumsum(np.exp(logprobs))])
        if len(logprobs) < self.m:
            # A search that finds fewer than it may has seen every answer there is.
            tail[-1] = 0.0
        # With so many beams nothing is left to sample.
        all_of_it = int(np.argmax(tail <= _NOTHING)) if (tail <= _NOTHING).any() else self.m
        if self.b == "auto":
            kept = min(best_b(logprobs, self.m), all_of_it)
            return (all_of_it, 0) if all_of_it < self.m else (kept, self.m - kept)
        kept = min(self.b, len(logprobs))
        return kept, 0 if kept >= all_of_it else self.m - kept


def best_b(logprobs: np.ndarray, m: int) -> int:
    """The number of beams that minimizes (1 - m_B)^2 / (4 (M - B)) over B = 0 .. M - 1.

    Args:
        logprobs: Log-probabilities of the beams, likeliest first.
        m: Beams and samples together.
    """
    tail_B = 1.0 - np.concatenate([[0.0], np.cumsum(np.exp(logprobs))])[:m]
    return int(np.argmin(np.clip(tail_B, 0.0, None) ** 2 / (4.0 * (m - np.arange(len(tail_B))))))


def outside(
    prefill: Prefill,
    seed: int,
    keys: Sequence[str],
    beams: Sequence[Sequence[Path]],
    counts: Sequence[int],
    sampler: Literal["subtract", "reject"] = "subtract",
) -> list[list[Path]]:
    """Samples from the law without some of its answers.

    Args:
        prefill: The prompts.
        seed: Master seed.
        keys: One a prompt.
        beams: For each prompt the answers that are left out. They must not hold all mass where samples are wanted.
        counts: Samples wanted of each prompt.
        sampler: How they are drawn. Where 256 rejections do not do, subtraction takes over.

    Returns:
        The samples of each prompt. Their log-probabilities are those of the whole law.
    """
    prompts_N = np.repeat(np.arange(len(keys)), counts)
    streams_N = np.concatenate([np.arange(count) for count in counts]) if len(keys) else np.zeros(0, dtype=np.int64)
    streams_N = streams_N.astype(np.int64)
    paths: list[Path | None] = [None] * len(prompts_N)
    left = np.arange(len(prompts_N))
    if sampler == "reject":
        left_out = [{path.tokens for path in some} for some in beams]
        attempt, several = 0, 1
        while len(left) and attempt < _ATTEMPTS:
            # Attempts that fail are answers that share their prefixes, so many at once cost little more than one. The
            # first that succeeds counts, however many are drawn at once.
            attempts = np.arange(attempt, min(attempt + several, _ATTEMPTS))
            samples, tries = np.repeat(left, len(attempts)), np.tile(attempts, len(left))
            drawn = SampleWalk(prefill, seed, keys, prompts_N[samples], streams_N[samples] + tries * _ATTEMPT)
            walk(prefill, [drawn], expected=len(left))
            for sample, path in zip(samples.tolist(), drawn.paths):
                if paths[sample] is None and path.tokens not in left_out[prompts_N[sample]]:
                    paths[sample] = path
            left = np.array([sample for sample in left.tolist() if paths[sample] is None], dtype=np.int64)
            attempt, several = attempt + len(attempts), 2 * several
    if len(left):
        inside = OutsideWalk(prefill, seed, keys, prompts_N[left], streams_N[left], beams)
        walk(prefill, [inside], expected=len(left))
        for sample, path in zip(left.tolist(), inside.paths):
            paths[sample] = path
    results: list[list[Path]] = [[] for _ in keys]
    for prompt, path_or_none in zip(prompts_N.tolist(), paths):
        assert path_or_none is not None
        results[prompt].append(path_or_none)
    return results


class OutsideWalk(SampleWalk):
    """Draws samples that are none of the given answers, by subtracting these from the law of every prefix.

    Args:
        prefill: The prompts.
        seed: Master seed.
        keys: One a prompt.
        prompts_N: The prompt of each sample.
        streams_N: The number of each sample among its prompt's.
        beams: For each prompt, the answers that are left out.
    """

    def __init__(
        self,
        prefill: Prefill,
        seed: int,
        keys: Sequence[str],
        prompts_N: np.ndarray,
        streams_N: np.ndarray,
        beams: Sequence[Sequence[Path]],
    ) -> None:
        super().__init__(prefill, seed, keys, prompts_N, streams_N)
        # Beams that a sample may still turn into: those of its prompt that begin with it.
        self._near: list[list[Path]] = [list(beams[prompt]) for prompt in prompts_N.tolist()]

    def factors(self, depth: int) -> Factors:
        """For every row that begins a beam: what of each next token's probability lies outside the beams."""
        changes: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for sample, row in zip(self._open.tolist(), self._rows.tolist()):
            if depth and self._near[sample]:
                last = self._tokens[sample][-1]
                self._near[sample] = [path for path in self._near[sample] if path.tokens[depth - 1] == last]
            if not self._near[sample] or row in changes:
                continue
            held: dict[int, float] = {}
            for path in self._near[sample]:
                rest = float(np.exp(sum(path.logprobs[depth + 1 :])))
                held[path.tokens[depth]] = held.get(path.tokens[depth], 0.0) + rest
            left = np.array([max(0.0, 1.0 - mass) for mass in held.values()])
            left[left < _NOTHING] = 0.0
            changes[row] = np.array(list(held), dtype=np.int64), left
        return changes

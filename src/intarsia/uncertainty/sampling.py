"""Sample: independent samples from the law, the candidates of every consistency-based baseline; and the greedy answer.

A sample's random numbers are a function of (seed, prompt's key, its number, the token's place), so it depends neither
on the batch nor on how many samples are drawn. Sample 0 is what `LocalTarget.generate` draws at temperature 1 for the
key.

Shape suffixes: N samples, R rows, V vocabulary, T tokens, K uniform numbers of one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from intarsia.core.errors import ConfigError
from intarsia.core.sampling import request_key, uniform
from intarsia.uncertainty.candidates import CandidateSet, Kind
from intarsia.uncertainty.generator import Generator
from intarsia.uncertainty.law import Prefill
from intarsia.uncertainty.walk import Level, Path, Walker, Wish

if TYPE_CHECKING:
    import torch

_CHUNK = 1 << 19  # Elements worked on at once: 4 MiB in float64, which stays in a cache.

Factors = Mapping[int, tuple[np.ndarray, np.ndarray]]
"""For a row: tokens, and what their probabilities are multiplied by."""


@dataclass
class Sample(Generator):
    """M independent samples from the law.

    Each sample is a row of its own, as in any library's sampling; `TrieSampler` draws the same samples in fewer rows.

    Args:
        seed: Master seed.
    """

    seed: int = 0

    name: ClassVar[str] = "sample"
    kind: ClassVar[Kind] = "sample"
    share: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seed < 0:
            raise ConfigError(f"The seed is {self.seed}.", "Use 0 or more.")

    def walkers(self, prefill: Prefill, keys: Sequence[str]) -> list[Walker]:
        """The greedy answer and M samples a prompt."""
        prompts_N = np.repeat(np.arange(len(keys)), self.m)
        streams_N = np.tile(np.arange(self.m), len(keys))
        return [GreedyWalk(prefill), SampleWalk(prefill, self.seed, keys, prompts_N, streams_N)]

    def collect(self, prefill: Prefill, walkers: Sequence[Walker], keys: Sequence[str]) -> list[CandidateSet]:
        """The samples, in the order of their numbers."""
        greedy, samples = walkers
        assert isinstance(greedy, GreedyWalk)
        assert isinstance(samples, SampleWalk)
        m = self.m
        return [
            self.candidate_set(prefill.law, greedy.paths[place], samples.paths[place * m : (place + 1) * m], exact=0)
            for place in range(len(keys))
        ]


class SampleWalk:
    """Draws samples.

    Args:
        prefill: The prompts.
        seed: Master seed.
        keys: One a prompt.
        prompts_N: The prompt of each sample.
        streams_N: The number of each sample among its prompt's.

    Attributes:
        paths: The samples; complete when the walk is over.
    """

    def __init__(
        self, prefill: Prefill, seed: int, keys: Sequence[str], prompts_N: np.ndarray, streams_N: np.ndarray
    ) -> None:
        self.paths: list[Path] = [Path((), (), False)] * len(prompts_N)
        self._ends = prefill.law.ends
        self._most_N = prefill.most_P[prompts_N]
        most = int(self._most_N.max(initial=1))
        requests_P = np.array([request_key(key) for key in keys], dtype=np.uint64)
        self._uniforms_NT = uniform(seed, requests_P[prompts_N][:, None], np.arange(most), streams_N[:, None])
        self._open = np.arange(len(prompts_N))
        self._rows = np.asarray(prompts_N, dtype=np.int64)
        self._tokens: list[list[int]] = [[] for _ in prompts_N]
        self._logprobs: list[list[float]] = [[] for _ in prompts_N]

    def step(self, level: Level) -> Wish:
        """Draw one token for every sample that is open."""
        if not len(self._open):
            return Wish(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        tokens = draw(
            level.logprobs_RV, self._rows, self._uniforms_NT[self._open, level.depth], self.factors(level.depth)
        )
        logprobs = _at(level.logprobs_RV, self._rows, tokens)
        going = np.zeros(len(self._open), dtype=bool)
        for place, (sample, token, logprob) in enumerate(zip(self._open.tolist(), tokens.tolist(), logprobs.tolist())):
            self._tokens[sample].append(token)
            self._logprobs[sample].append(logprob)
            ended = token in self._ends
            if ended or level.depth + 1 >= self._most_N[sample]:
                self.paths[sample] = Path(tuple(self._tokens[sample]), tuple(self._logprobs[sample]), ended)
            else:
                going[place] = True
        self._open = self._open[going]
        return Wish(self._rows[going], tokens[going])

    def stand(self, rows_N: np.ndarray) -> None:
        """See `Walker.stand`."""
        self._rows = rows_N

    def factors(self, depth: int) -> Factors:
        """What changes the law of rows before the draw; nothing here."""
        return {}


class GreedyWalk:
    """The greedy answer of each prompt, with the entropy of each step.

    Attributes:
        paths: One a prompt; complete when the walk is over.
    """

    def __init__(self, prefill: Prefill) -> None:
        prompts = len(prefill.most_P)
        self.paths: list[Path] = [Path((), (), False)] * prompts
        self._ends = prefill.law.ends
        self._most_P = prefill.most_P
        self._open = np.arange(prompts)
        self._rows = np.arange(prompts)

    def step(self, level: Level) -> Wish:
        """Take the likeliest token of every answer that is open."""
        if not len(self._open):
            return Wish(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
        best_R = level.logprobs_RV.max(dim=-1)
        values, tokens = best_R.values.tolist(), best_R.indices.cpu().numpy()[self._rows]
        going = np.zeros(len(self._open), dtype=bool)
        for place, (prompt, row) in enumerate(zip(self._open.tolist(), self._rows.tolist())):
            path, token = self.paths[prompt], int(tokens[place])
            self.paths[prompt] = path = Path(
                (*path.tokens, token),
                (*path.logprobs, values[row]),
                token in self._ends,
                (*path.entropies, level.entropy(row)),
            )
            going[place] = not path.finished and len(path.tokens) < self._most_P[prompt]
        self._open = self._open[going]
        return Wish(self._rows[going], tokens[going])

    def stand(self, rows_N: np.ndarray) -> None:
        """See `Walker.stand`."""
        self._rows = rows_N


def draw(
    logprobs_RV: torch.Tensor, rows_N: np.ndarray, uniforms_N: np.ndarray, factors: Factors | None = None
) -> np.ndarray:
    """Draw a token for each of N uniform numbers, several of which may look at one row.

    Each draw is that of `core.sampling.choose`; the cumulative distribution of a row is made once for all of its draws.

    Args:
        logprobs_RV: Log-probabilities of the rows.
        rows_N: The row of each draw.
        uniforms_N: Numbers in [0, 1).
        factors: What the probabilities of some rows' tokens are multiplied by before the draw. A row that would be
            left without any probability is drawn from as it is.

    Returns:
        Token ids, int64 of shape (N,).
    """
    import torch

    distinct, inverse_N = np.unique(rows_N, return_inverse=True)
    # Draws of one row side by side: K is the most that any row has.
    order = np.argsort(inverse_N, kind="stable")
    counts = np.bincount(inverse_N, minlength=len(distinct))
    column = np.empty(len(rows_N), dtype=np.int64)
    column[order] = np.arange(len(rows_N)) - np.repeat(np.cumsum(counts) - counts, counts)
    uniforms_RK = np.zeros((len(distinct), int(counts.max())))
    uniforms_RK[inverse_N, column] = uniforms_N
    tokens_RK = np.zeros(uniforms_RK.shape, dtype=np.int64)
    step = max(1, _CHUNK // logprobs_RV.shape[1])
    for begin in range(0, len(distinct), step):
        rows = distinct[begin : begin + step]
        mass_bV = logprobs_RV[torch.from_numpy(rows).to(logprobs_RV.device)].double()
        mass_bV.sub_(mass_bV.amax(dim=-1, keepdim=True)).exp_()
        for place, row in enumerate(rows.tolist()):
            if factors and row in factors:
                tokens, values = (torch.from_numpy(side).to(mass_bV.device) for side in factors[row])
                changed = mass_bV[place].index_copy(0, tokens, mass_bV[place][tokens] * values)
                mass_bV[place] = torch.where(changed.sum() > 0, changed, mass_bV[place])
        cumulative_bV = mass_bV.cumsum_(dim=-1)
        total_b1 = cumulative_bV[:, -1:]
        wanted_bK = torch.from_numpy(uniforms_RK[begin : begin + step]).to(total_b1.device) * total_b1
        # Rounding must not lift the wanted mass to the total, behind which there is no token.
        wanted_bK = torch.minimum(wanted_bK, total_b1.nextafter(torch.zeros_like(total_b1)))
        tokens_RK[begin : begin + step] = torch.searchsorted(cumulative_bV, wanted_bK, right=True).cpu().numpy()
    return tokens_RK[inverse_N, column]


def _at(values_RV: torch.Tensor, rows_N: np.ndarray, tokens_N: np.ndarray) -> np.ndarray:
    import torch

    device = values_RV.device
    return values_RV[torch.from_numpy(rows_N).to(device), torch.from_numpy(tokens_N).to(device)].double().cpu().numpy()

"""Beam: the M likeliest answers that a beam search of width M finds, each with its exact probability.

There is no length penalty: an answer is worth its log-probability, end token included. Whatever an open beam can still
become is no likelier than it is now, so a prompt is done when M answers are finished and none of its open beams is
likelier than the last of them, and a beam that can no longer get among them is dropped at once. All ends of all open
beams count, so that an ended answer never takes the place of one that goes on.

Shape suffixes: P prompts, R rows, V vocabulary, E end tokens, K likeliest tokens of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from intarsia.core.errors import ConfigError
from intarsia.uncertainty.candidates import CandidateSet
from intarsia.uncertainty.generator import AnswerKind, Generator
from intarsia.uncertainty.law import Prefill
from intarsia.uncertainty.sampling import GreedyWalk
from intarsia.uncertainty.walk import Level, Path, Walker, Wish


@dataclass
class Beam(Generator):
    """The top M answers of a beam search, likeliest first, all distinct as token sequences.

    A law with fewer than M possible answers gives fewer candidates. Answers that the token limit cuts off are among the
    candidates where they are likely enough, with `finished_M` False; none of the candidates begins another, so their
    probabilities sum to at most 1.

    Args:
        answer: The answer under test: `greedy`, or `beam` for the likeliest candidate.
    """

    answer: AnswerKind = "greedy"

    name: ClassVar[str] = "beam"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.answer not in ("greedy", "beam"):
            raise ConfigError(f"There is no answer {self.answer!r}.", "Choose greedy or beam.")

    def walkers(self, prefill: Prefill, keys: Sequence[str]) -> list[Walker]:
        """The beam search, and the greedy answer where it is wanted."""
        search = BeamWalk(prefill, self.m, entropies=self.answer == "beam")
        return [search, GreedyWalk(prefill)] if self.answer == "greedy" else [search]

    def collect(self, prefill: Prefill, walkers: Sequence[Walker], keys: Sequence[str]) -> list[CandidateSet]:
        """The beams of each prompt."""
        search = walkers[0]
        assert isinstance(search, BeamWalk)
        answers = self.answers(walkers)
        return [
            self.candidate_set(prefill.law, answer, paths, exact=len(paths))
            for answer, paths in zip(answers, map(search.paths, range(len(keys))))
        ]

    def answers(self, walkers: Sequence[Walker]) -> list[Path]:
        """The answer under test of each prompt."""
        search, *rest = walkers
        assert isinstance(search, BeamWalk)
        if rest:
            assert isinstance(rest[0], GreedyWalk)
            return rest[0].paths
        return [search.paths(place)[0] for place in range(search.prompts)]


class _Open(NamedTuple):
    """An answer that goes on."""

    score: float
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    entropies: tuple[float, ...]


class _Done(NamedTuple):
    """An answer that ended, or was cut off."""

    score: float
    path: Path


class BeamWalk:
    """Beam search on many prompts at once.

    With several groups it is diverse beam search (Vijayakumar et al., "Diverse beam search", 2018): at each step the
    groups choose one after the other, each within its own beams, and a token costs `penalty` for every beam of an
    earlier group that took it at this step. The penalty steers the choice and is not carried along: scores stay
    log-probabilities. Ending is not penalized (ours).

    Args:
        prefill: The prompts.
        m: Answers wanted of each.
        groups: Groups that `m` is shared out to evenly.
        penalty: Log-probability that a token loses for each beam of an earlier group that took it, in nats.
        entropies: Whether paths carry the entropy of each step.

    Attributes:
        prompts: Number of prompts.
    """

    def __init__(
        self, prefill: Prefill, m: int, *, groups: int = 1, penalty: float = 0.0, entropies: bool = False
    ) -> None:
        self.prompts = len(prefill.most_P)
        self._m, self._groups, self._penalty, self._entropies = m, groups, penalty, entropies
        self._width = m // groups
        self._ends = np.array(sorted(prefill.law.ends), dtype=np.int64)
        self._most_P = prefill.most_P
        start = _Open(0.0, (), (), ())
        # All groups begin on the one row of their prompt.
        self._open: list[list[list[_Open]]] = [[[start] for _ in range(groups)] for _ in range(self.prompts)]
        self._done: list[list[list[_Done]]] = [[[] for _ in range(groups)] for _ in range(self.prompts)]
        self._rows = np.repeat(np.arange(self.prompts), groups)

    def paths(self, prompt: int) -> list[Path]:
        """The answers found for a prompt, likeliest first, distinct; at most m.

        Each group gives its best ones. Where two groups found the same, the next best of any group stands in.
        """
        pools = self._done[prompt]
        ranked = [done for pool in pools for done in pool[: self._width]]
        ranked += sorted((done for pool in pools for done in pool[self._width :]), key=lambda done: -done.score)
        chosen: dict[tuple[int, ...], _Done] = {}
        for done in ranked:
            if len(chosen) < self._m:
                chosen.setdefault(done.path.tokens, done)
        return [done.path for done in sorted(chosen.values(), key=lambda done: -done.score)]

    def step(self, level: Level) -> Wish:
        """Expand all open beams, and keep those that can still matter."""
        rows: list[int] = []
        tokens: list[int] = []
        if len(self._rows):
            choices = _choices(level, self._ends, self._m, self._width, self._m if self._penalty else 0)
            begin = 0
            for prompt in range(self.prompts):
                cut = level.depth + 1 >= self._most_P[prompt]
                taken: dict[int, int] = {}
                for group in range(self._groups):
                    beams = self._open[prompt][group]
                    if not beams:
                        continue
                    where = self._rows[begin : begin + len(beams)]
                    begin += len(beams)
                    kept = self._expand(level, choices, prompt, group, where, taken, cut)
                    rows.extend(row for row, _ in kept)
                    tokens.extend(token for _, token in kept)
        return Wish(np.array(rows, dtype=np.int64), np.array(tokens, dtype=np.int64))

    def stand(self, rows_N: np.ndarray) -> None:
        """See `Walker.stand`."""
        self._rows = rows_N

    def _expand(
        self,
        level: Level,
        choices: _Choices,
        prompt: int,
        group: int,
        rows: np.ndarray,
        taken: dict[int, int],
        cut: bool,
    ) -> list[tuple[int, int]]:
        """Expand one group of one prompt; returns (row, token) of the beams that go on."""
        beams, pool = self._open[prompt][group], self._done[prompt][group]
        scores = np.array([beam.score for beam in beams])
        entropies = [(level.entropy(row),) if self._entropies else () for row in rows.tolist()]

        # Ends first: they may raise the bar for what goes on.
        for place, token, score, logprob in _best(scores, choices.end_values[rows], choices.end_tokens[rows], self._m):
            beam = beams[place]
            path = Path((*beam.tokens, token), (*beam.logprobs, logprob), True, (*beam.entropies, *entropies[place]))
            pool.append(_Done(score, path))
        pool.sort(key=lambda done: -done.score)
        del pool[self._m :]
        bar = pool[-1].score if len(pool) == self._m else -np.inf

        ahead = _best(scores, choices.values[rows], choices.tokens[rows], self._width, taken, self._penalty)
        self._open[prompt][group] = grown = []
        kept: list[tuple[int, int]] = []
        for place, token, score, logprob in ahead:
            taken[token] = taken.get(token, 0) + 1
            if score <= bar:
                continue
            beam = beams[place]
            after = _Open(score, (*beam.tokens, token), (*beam.logprobs, logprob), (*beam.entropies, *entropies[place]))
            if cut:
                pool.append(_Done(score, Path(after.tokens, after.logprobs, False, after.entropies)))
            else:
                grown.append(after)
                kept.append((int(rows[place]), token))
        if cut:
            pool.sort(key=lambda done: -done.score)
            del pool[self._m :]
        return kept


class _Choices(NamedTuple):
    """The likeliest ways to go on and to end, of every row: log-probabilities and tokens."""

    values: np.ndarray
    tokens: np.ndarray
    end_values: np.ndarray
    end_tokens: np.ndarray


def _choices(level: Level, ends: np.ndarray, most_ends: int, width: int, spare: int) -> _Choices:
    """Look at a level once. A penalty can push down at most `spare` tokens, so as many more are kept."""
    import torch

    logprobs_RV = level.logprobs_RV
    ends_E = torch.from_numpy(ends).to(logprobs_RV.device)
    end_RE = logprobs_RV[:, ends_E]
    end_RK = end_RE.topk(min(most_ends, len(ends)), dim=-1)
    # Ends are taken out and put back: a copy of all rows would be the largest tensor of the search.
    logprobs_RV[:, ends_E] = -float("inf")
    next_RK = logprobs_RV.topk(min(width + spare, logprobs_RV.shape[1]), dim=-1)
    logprobs_RV[:, ends_E] = end_RE
    return _Choices(
        next_RK.values.double().cpu().numpy(),
        next_RK.indices.cpu().numpy(),
        end_RK.values.double().cpu().numpy(),
        ends[end_RK.indices.cpu().numpy()],
    )


def _best(
    scores: np.ndarray,
    values: np.ndarray,
    tokens: np.ndarray,
    most: int,
    taken: dict[int, int] | None = None,
    penalty: float = 0.0,
) -> list[tuple[int, int, float, float]]:
    """The best continuations of some beams as (beam, token, score, log-probability), best first; none is impossible."""
    total = scores[:, None] + values
    ranked = total
    if taken and penalty:
        ranked = total.copy()
        for token, count in taken.items():
            ranked[tokens == token] -= penalty * count
    flat = ranked.ravel()
    # Among equals that a row's own ranking kept, the better beam's token with the lower number comes first.
    order = np.lexsort((tokens.ravel(), np.repeat(np.arange(len(scores)), values.shape[1]), -flat))[:most]
    width = values.shape[1]
    return [
        (int(i) // width, int(tokens.flat[i]), float(total.flat[i]), float(values.flat[i]))
        for i in order
        if flat[i] > -np.inf
    ]

"""What all ways to make candidates from a law have in common: batches, the answer under test, and the finished set."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from intarsia.core.errors import ConfigError
from intarsia.core.target import Prompt
from intarsia.uncertainty.candidates import Answer, CandidateSet, Kind
from intarsia.uncertainty.law import Prefill, TokenLaw
from intarsia.uncertainty.walk import Path, Walker, walk

_log = logging.getLogger(__name__)

AnswerKind = Literal["greedy", "beam"]
AnyGenerator = TypeVar("AnyGenerator", bound="Generator")

MOST = 10_000
"""Candidates that can be asked for."""
PLACEHOLDER = "(no answer)"
"""Stands for an empty text, which no similarity can compare."""


@dataclass
class Generator(ABC):
    """Makes candidates from a law.

    Args:
        law: The model under test; may be given later by `bind`.
        m: Number of candidates.
        merge_texts: Whether token paths with one text become one candidate with the sum of their probabilities. The
            likeliest path's tokens stand for it. Samples are never merged: they count by their number.
        placeholder: Text that stands for an empty one.

    Attributes:
        name: As it appears in reports.

    Raises:
        ConfigError: An option is out of range.
    """

    law: TokenLaw | None = None
    m: int = 10
    merge_texts: bool = False
    placeholder: str = PLACEHOLDER

    name: ClassVar[str] = ""
    kind: ClassVar[Kind] = "beam"
    share: ClassVar[bool] = True

    def __post_init__(self) -> None:
        m: Any = self.m  # numbers of other libraries count as well
        if isinstance(m, bool) or not isinstance(m, Integral) or not 1 <= int(m) <= MOST:
            raise ConfigError(f"{self.name} was asked for {self.m!r} candidates.", f"Use 1 to {MOST}; 10 is usual.")

    def bind(self: AnyGenerator, law: TokenLaw) -> AnyGenerator:
        """The same with another law."""
        return replace(self, law=law)

    def generate(self, prompts: Sequence[Prompt], keys: Sequence[str]) -> list[CandidateSet]:
        """Candidates for each prompt, in order; see `Candidates.generate`.

        Raises:
            ConfigError: No law was given.
            DataError: A prompt cannot be answered.
            ModelError: The model gave NaN or infinite logits.
        """
        return [sets[0] for sets in generate_together([self], prompts, keys)]

    @property
    def rows(self) -> int:
        """Rows that a prompt may take at once."""
        return self.m + 1

    @abstractmethod
    def walkers(self, prefill: Prefill, keys: Sequence[str]) -> list[Walker]:
        """Walkers that make the candidates; they are then given to `collect`."""

    @abstractmethod
    def collect(self, prefill: Prefill, walkers: Sequence[Walker], keys: Sequence[str]) -> list[CandidateSet]:
        """What the walkers found, one set a prompt."""

    def candidate_set(
        self, law: TokenLaw, answer: Path, paths: Sequence[Path], exact: int, kind: Kind | None = None
    ) -> CandidateSet:
        """A set of paths, of which the first `exact` are distinct and count by their probability."""
        texts = [self._text(law, path) for path in paths]
        logprobs = [path.logprob for path in paths]
        tokens, finished = [path.tokens for path in paths], [path.finished for path in paths]
        if self.merge_texts:
            # An unfinished text is the beginning of longer ones, so it is never the same as a finished one.
            first: dict[tuple[str, bool], int] = {}
            kept = []
            for place in range(len(paths)):
                seen = first.setdefault((texts[place], finished[place]), place) if place < exact else place
                if seen != place:
                    logprobs[seen] = float(np.logaddexp(logprobs[seen], logprobs[place]))
                else:
                    kept.append(place)
            dropped = len(paths) - len(kept)
            # Sums change the ranks of the exact ones; what follows them keeps its order.
            head = sorted(kept[: exact - dropped], key=lambda place: -logprobs[place])
            kept, exact = head + kept[exact - dropped :], exact - dropped
            texts, logprobs = [texts[i] for i in kept], [logprobs[i] for i in kept]
            tokens, finished = [tokens[i] for i in kept], [finished[i] for i in kept]
        return CandidateSet(
            answer=Answer(
                text=self._text(law, answer),
                token_ids=answer.tokens,
                logprobs=answer.logprobs,
                entropy=float(np.mean(answer.entropies)) if answer.entropies else float("nan"),
                finished=answer.finished,
            ),
            texts=tuple(texts),
            token_ids=tuple(tokens),
            logprobs_M=np.array(logprobs, dtype=np.float64),
            finished_M=np.array(finished, dtype=bool),
            kind=kind or self.kind,
            exact=exact,
        )

    def _text(self, law: TokenLaw, path: Path) -> str:
        text = law.text(path.tokens)
        return text if text.strip() else self.placeholder


def generate_together(
    generators: Sequence[Generator], prompts: Sequence[Prompt], keys: Sequence[str]
) -> list[list[CandidateSet]]:
    """Several kinds of candidates from one law, whose common answer prefixes are computed once.

    Fifty samples and ten beams of a peaked law cost little more than the beams alone.

    Args:
        generators: All with the same law.
        prompts: What is asked.
        keys: One name a prompt; seeds its random numbers.

    Returns:
        For each prompt, one set a generator. A set's `seconds` is the prompt's share of its batch, for all of them.

    Raises:
        ConfigError: A generator has no law, or not the others' one.
        ValueError: There is not one key a prompt.
    """
    if len(prompts) != len(keys):
        raise ValueError(f"{len(prompts)} prompts need as many keys, not {len(keys)}")
    law = generators[0].law
    if law is None or any(generator.law is not law for generator in generators):
        raise ConfigError(
            "Candidates need the law of one model.", "Give them a law, such as Beam(Law(model, tokenizer), m=10)."
        )
    results: list[list[CandidateSet]] = [[] for _ in prompts]
    rows = sum(generator.rows for generator in generators)

    def work(group: list[int]) -> None:
        start = time.perf_counter()
        prefill = law.prefill([prompts[index] for index in group])
        names = [keys[index] for index in group]
        walkers = [generator.walkers(prefill, names) for generator in generators]
        together = [walker for some in walkers for walker in some]
        share = len(generators) > 1 or generators[0].share
        walk(prefill, together, share=share, expected=sum(g.rows for g in generators) * len(group))
        found = [generator.collect(prefill, some, names) for generator, some in zip(generators, walkers)]
        seconds = (time.perf_counter() - start) / len(group)
        for place, index in enumerate(group):
            results[index] = [replace(sets[place], seconds=seconds) for sets in found]

    if prompts:
        law.over(prompts, rows, work)
    for generator, sets in zip(generators, zip(*results)):
        few = sum(sum(1 for _ in made.texts) < generator.m for made in sets)
        if few and not generator.merge_texts:
            _log.info(
                "%s: %d of %d prompts have fewer than %d possible answers", generator.name, few, len(sets), generator.m
            )
    return results

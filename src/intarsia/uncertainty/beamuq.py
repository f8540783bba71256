"""BeamUQ: how much to distrust a short answer, from the beams of the model that gave it.

Consistency-based uncertainty with beam-search candidates ("Don't Throw Away Your Beams: Improving Consistency-based
Uncertainties in LLMs via Beam Search", ICLR 2026). Each answer comes with the mass that its beams hold and an interval
that holds its expected dissimilarity for certain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from intarsia.core.errors import ConfigError
from intarsia.core.target import Prompt, Target, prompt_text
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.candidates import Candidates, CandidateSet
from intarsia.uncertainty.estimators import Estimator, candidate_weights, dissimilarities, find, score_many
from intarsia.uncertainty.generator import Generator
from intarsia.uncertainty.hybrid import Hybrid
from intarsia.uncertainty.interval import CertifiedInterval, Rule, certify, low_mass, mass_warning
from intarsia.uncertainty.law import Law, TokenLaw
from intarsia.uncertainty.similarity import SimilarityLike, as_similarity

Progress = Callable[[int, int], None]
BATCH = 64
"""Prompts that are worked on between two reports of progress."""


@dataclass(frozen=True)
class UQResult:
    """One answer and how uncertain it is.

    Attributes:
        answer: The answer under test.
        scores: Each estimator's value; more is less certain, NaN where what it needs is unknown.
        interval: Certain bounds on the expected dissimilarity under the model's own law, with the mass behind them.
        mass: Probability that the beams hold together; 0 for samples.
        candidates: What the scores rest on.
        weights_M: Weight of each candidate in the sampled and beam-weighted averages, summing to 1.
        warning: What a user should know, empty where all is well.
    """

    answer: str
    scores: dict[str, float]
    interval: CertifiedInterval
    mass: float
    candidates: CandidateSet
    weights_M: np.ndarray
    warning: str = ""


class BeamUQ:
    """Scores short answers of a model.

    Args:
        model: A transformers model (with its tokenizer), a target, a name for `Target.parse`, or a law.
        tokenizer: Of a transformers model.
        similarity: `exact`, `jaccard`, `rouge-l`, `embedding`, `nli:<name or folder>`, a `Similarity`, or a function of
            two texts.
        estimators: Names or estimators; all when omitted.
        candidates: How candidates are made; `Beam(m=10)` when omitted. What has its own law keeps it.
        mass_floor: Least probability that a beam counts with (paper, appendix A.2).
        merge_texts: Whether candidates that read the same are one.
        low_mass: What counts as too little beam mass: `half`, `paper` or `sufficient`.
        on_low_mass: `warn`, or `hybrid` to score such answers from beams and samples together.
        temperature: Part of the model under test; 1 is its own law.
        stops: Strings that end an answer.
        max_new_tokens: Most tokens of an answer.

    Raises:
        ConfigError: An option makes no sense.
        ModelError: It is no decoder-only language model.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        similarity: SimilarityLike = "jaccard",
        estimators: Sequence[str | Estimator] | str | None = None,
        candidates: Candidates | None = None,
        mass_floor: float = 0.0,
        merge_texts: bool = False,
        low_mass: Rule = "half",
        on_low_mass: Literal["warn", "hybrid"] = "warn",
        temperature: float = 1.0,
        stops: Sequence[str] = ("\n",),
        max_new_tokens: int = 20,
    ) -> None:
        if on_low_mass not in ("warn", "hybrid"):
            raise ConfigError(f"on_low_mass is {on_low_mass!r}.", "Use warn or hybrid.")
        options = {"temperature": temperature, "stops": stops, "max_new_tokens": max_new_tokens}
        self.similarity = as_similarity(similarity)
        self.estimators = find(estimators)
        self.mass_floor, self.merge_texts = mass_floor, merge_texts
        self.rule: Rule = low_mass
        self.on_low_mass = on_low_mass
        made: Any = Beam(m=10) if candidates is None else candidates
        if isinstance(made, Generator) and made.law is None:
            made = made.bind(_law(model, tokenizer, options))
        self.candidates: Candidates = made

    def score(
        self, prompts: Sequence[Prompt], keys: Sequence[str] | None = None, *, progress: Progress | None = None
    ) -> list[UQResult]:
        """Answer each prompt and say how uncertain the answer is, in order.

        Args:
            prompts: Strings or chats.
            keys: One stable name a prompt, which seeds samples; made of its content when omitted.
            progress: Called with (done, total).
        """
        names = list(keys) if keys is not None else _keys(prompts)
        if len(names) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts need as many keys, not {len(names)}")
        results: list[UQResult] = []
        for start in range(0, len(prompts), BATCH):
            part = slice(start, start + BATCH)
            sets = self.candidates.generate(prompts[part], names[part])
            sets, warnings = self._mended(sets, prompts[part], names[part])
            results += self.score_sets(sets, warnings)
            if progress is not None:
                progress(len(results), len(prompts))
        return results

    def score_sets(self, sets: Sequence[CandidateSet], warnings: Sequence[str] = ()) -> list[UQResult]:
        """Score candidates that are there already (stored generations, beams that were decoded anyway).

        Args:
            sets: One a question.
            warnings: One line a set, where something is known of it; made of the beam mass when omitted.
        """
        said = list(warnings) or [self._warning(one) for one in sets]
        values = score_many(sets, self.similarity, self.estimators, self.mass_floor, self.merge_texts)
        distances = dissimilarities(sets, self.similarity)
        results = []
        for one, scores, d_M, warning in zip(sets, values, distances, said, strict=True):
            places, w = candidate_weights(one, self.mass_floor)
            weights_M = np.zeros(len(one.texts))
            np.add.at(weights_M, places, w)
            results.append(
                UQResult(
                    answer=one.answer.text,
                    scores=scores,
                    interval=certify(one, d_M),
                    mass=one.mass,
                    candidates=one,
                    weights_M=weights_M,
                    warning=warning,
                )
            )
        return results

    def _warning(self, one: CandidateSet) -> str:
        return mass_warning(one.mass, max(1, len(one.texts)), self.rule) if one.kind in ("beam", "diverse") else ""

    def _mended(
        self, sets: list[CandidateSet], prompts: Sequence[Prompt], keys: Sequence[str]
    ) -> tuple[list[CandidateSet], list[str]]:
        """Beams that hold too little give way to beams and samples, where that is wanted; the others are warned of."""
        warnings = [self._warning(one) for one in sets]
        maker = self.candidates
        if self.on_low_mass != "hybrid" or not isinstance(maker, Beam) or isinstance(maker, Hybrid) or maker.m < 2:
            return sets, warnings
        poor = [at for at, one in enumerate(sets) if low_mass(one.mass, maker.m, self.rule)]
        if poor:
            hybrid = Hybrid(maker.law, m=maker.m, merge_texts=maker.merge_texts, answer=maker.answer)
            mended = hybrid.generate([prompts[at] for at in poor], [keys[at] for at in poor])
            for at, one in zip(poor, mended, strict=True):
                held = f"The beams hold {sets[at].mass:.0%} of the probability"
                sets[at], warnings[at] = one, f"{held}: scored from {one.exact} beams and samples."
        return sets, warnings


def _law(model: Any, tokenizer: Any, options: dict[str, Any]) -> TokenLaw:
    if isinstance(model, TokenLaw):
        return model
    if isinstance(model, str | Target):
        return Law.of(Target.parse(model), **options)
    if tokenizer is None:
        raise ConfigError("A model needs its tokenizer.", "Write BeamUQ(model, tokenizer), or give a model's name.")
    return Law(model, tokenizer, **options)


def _keys(prompts: Sequence[Prompt]) -> list[str]:
    """Names made of content; the same prompt asked again has other random numbers."""
    seen: dict[str, int] = {}
    names = []
    for prompt in prompts:
        digest = hashlib.sha256(prompt_text(prompt).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        seen[digest] = seen.get(digest, 0) + 1
        names.append(f"{digest}/{seen[digest]}")
    return names

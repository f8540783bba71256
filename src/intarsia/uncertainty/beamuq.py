"""BeamUQ: how much to distrust a short answer, from the beams of the model that gave it.

Consistency-based uncertainty with beam-search candidates ("Don't Throw Away Your Beams: Improving Consistency-based
Uncertainties in LLMs via Beam Search", ICLR 2026). Each answer comes with the mass that its beams hold and an interval
that holds its expected dissimilarity for certain.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from intarsia.core.errors import ConfigError
from intarsia.core.target import Prompt, Target, prompt_text
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.candidates import Candidates, CandidateSet
from intarsia.uncertainty.endpoint import EndpointSample
from intarsia.uncertainty.estimators import Estimator, candidate_weights, dissimilarities, find, score_many
from intarsia.uncertainty.generator import Generator
from intarsia.uncertainty.hybrid import Fallback, Hybrid
from intarsia.uncertainty.interval import CertifiedInterval, Rule, certify, mass_warning
from intarsia.uncertainty.interval import low_mass as low_mass_of
from intarsia.uncertainty.law import Law, TokenLaw
from intarsia.uncertainty.similarity import SimilarityLike, as_similarity

Progress = Callable[[int, int], None]
SIMILARITY: dict[str, str] = {"default": "jaccard", "paper": "nli"}
"""What compares answers where nothing is named, by preset."""
BATCH = 64
"""Prompts that are worked on between two reports of progress."""
_SHOWN = 5
"""Texts that a result's short form shows."""


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

    def to_dict(self) -> dict[str, Any]:
        """The same in plain numbers, lists and strings, as JSON takes them; what is unknown is None."""
        one = self.candidates
        return {
            "answer": self.answer,
            "finished": one.answer.finished,
            "scores": {name: _plain(value) for name, value in self.scores.items()},
            "interval": {"low": self.interval.low, "high": self.interval.high, "mass": self.interval.mass},
            "mass": self.mass,
            "kind": one.kind,
            "exact": one.exact,
            "candidates": [
                {"text": text, "logprob": _plain(logprob), "weight": weight, "finished": finished}
                for text, logprob, weight, finished in zip(
                    one.texts, one.logprobs_M.tolist(), self.weights_M.tolist(), one.finished_M.tolist(), strict=True
                )
            ],
            "warning": self.warning,
        }

    def __str__(self) -> str:
        """A few lines: the answer, its scores, what is certain, the heaviest candidates."""
        one = self.candidates
        cut = "" if one.answer.finished else " (cut off)"
        scores = ", ".join(f"{name} {value:.3f}" for name, value in self.scores.items())
        low, high, _ = self.interval
        lines = [
            f"{self.answer}{cut}",
            f"  {scores}" if scores else "",
            f"  expected dissimilarity {low:.3f} to {high:.3f}",
        ]
        lines[-1] += f"; {one.exact} of {len(one.texts)} candidates hold {self.mass:.1%}" if one.exact else ""
        shown: dict[str, float] = {}
        for text, weight in zip(one.texts, self.weights_M.tolist(), strict=True):
            shown[text] = shown.get(text, 0.0) + weight
        heaviest = sorted(shown.items(), key=lambda pair: -pair[1])[:_SHOWN]
        lines += [f"  {weight:6.1%}  {text}" for text, weight in heaviest]
        if len(shown) > _SHOWN:
            lines.append(f"  and {len(shown) - _SHOWN} more texts")
        lines.append(f"  {self.warning}" if self.warning else "")
        return "\n".join(line for line in lines if line)


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


class BeamUQ:
    """Scores short answers of a model.

    Args:
        model: A transformers model (with its tokenizer), a target, a name for `Target.parse`, or a law, which has its
            own temperature, stops and token limit.
        tokenizer: Of a transformers model.
        similarity: `exact`, `jaccard`, `rouge-l`, `embedding`, `nli:<name or folder>`, a `Similarity`, or a function of
            two texts; `jaccard` when omitted.
        estimators: Names or estimators; all when omitted.
        candidates: How candidates are made; `Beam(m=10)` when omitted. What has its own law keeps it.
        mass_floor: Least probability that a beam counts with (paper, appendix A.2).
        merge_texts: Whether candidates that read the same are one.
        low_mass: What counts as too little beam mass: `half`, `paper` or `sufficient`.
        on_low_mass: `warn`, or `hybrid` to score such answers from beams and samples together.
        temperature: Part of the model under test; 1 is its own law.
        stops: Strings that end an answer.
        max_new_tokens: Most tokens of an answer.
        preset: `paper` judges similarity by the paper's entailment model where none is given; all else that the paper
            fixes is the default anyway.

    Raises:
        ConfigError: An option makes no sense.
        ModelError: It is no decoder-only language model.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        similarity: SimilarityLike | None = None,
        estimators: Sequence[str | Estimator] | str | None = None,
        candidates: Candidates | None = None,
        mass_floor: float = 0.0,
        merge_texts: bool = False,
        low_mass: Rule = "half",
        on_low_mass: Literal["warn", "hybrid"] = "warn",
        temperature: float = 1.0,
        stops: Sequence[str] = ("\n",),
        max_new_tokens: int = 20,
        preset: Literal["default", "paper"] = "default",
    ) -> None:
        if preset not in SIMILARITY:
            raise ConfigError(f"There is no preset {preset!r}.", "Use default or paper.")
        if on_low_mass not in ("warn", "hybrid"):
            raise ConfigError(f"on_low_mass is {on_low_mass!r}.", "Use warn or hybrid.")
        if not mass_floor >= 0:
            raise ConfigError(f"mass_floor is {mass_floor}.", "Use 0 or a small probability, such as 1e-3.")
        low_mass_of(1.0, 1, low_mass)  # refuses a rule that there is not
        options = {"temperature": temperature, "stops": stops, "max_new_tokens": max_new_tokens}
        self.similarity = as_similarity(SIMILARITY[preset] if similarity is None else similarity)
        self.estimators = find(estimators)
        self.mass_floor, self.merge_texts = mass_floor, merge_texts
        self.rule: Rule = low_mass
        self.on_low_mass = on_low_mass
        made: Any = Beam(m=10) if candidates is None else candidates
        if isinstance(made, Generator) and made.law is None:
            made = made.bind(_law(model, tokenizer, options))
        elif not isinstance(made, Candidates):
            raise ConfigError(
                f"{type(made).__name__} makes no candidates.", "Use Beam(m=10), Sample, Hybrid, Stored or the like."
            )
        if on_low_mass == "hybrid" and isinstance(made, Beam) and not isinstance(made, Hybrid):
            made = Fallback(beam=made, rule=low_mass)
        self.candidates: Candidates = made

    def score(
        self, prompts: Sequence[Prompt], keys: Sequence[str] | None = None, *, progress: Progress | None = None
    ) -> list[UQResult]:
        """Answer each prompt and say how uncertain the answer is, in order.

        Args:
            prompts: Strings or chats.
            keys: One stable name a prompt, which seeds samples; made of its content when omitted.
            progress: Called with (done, total).

        Raises:
            ConfigError: The prompts are a single string.
            DataError: A prompt cannot be answered; none has been then.
            ModelError: The model gave NaN or infinite logits.
        """
        if isinstance(prompts, str):
            raise ConfigError("The prompts are a single string.", "Give a list: score([prompt]).")
        names = list(keys) if keys is not None else _keys(prompts)
        if len(names) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts need as many keys, not {len(names)}")
        if isinstance(self.candidates, Generator) and self.candidates.law is not None:
            self.candidates.law.check(prompts)
        results: list[UQResult] = []
        for start in range(0, len(prompts), BATCH):
            part = slice(start, start + BATCH)
            results += self.score_sets(self.candidates.generate(prompts[part], names[part]))
            if progress is not None:
                progress(len(results), len(prompts))
        return results

    def score_sets(self, sets: Sequence[CandidateSet], warnings: Sequence[str] = ()) -> list[UQResult]:
        """Score candidates that are there already (stored generations, beams that were decoded anyway).

        Args:
            sets: One a question.
            warnings: One line a set, where something is known of it; made of the beam mass when omitted.

        Raises:
            DataError: A set is empty, or its log-probabilities are none of distinct answers.
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
                    interval=self._interval(one, d_M),
                    mass=one.mass,
                    candidates=one,
                    weights_M=weights_M,
                    warning=warning,
                )
            )
        return results

    def _warning(self, one: CandidateSet) -> str:
        """What a user should know of a set, in one line."""
        m = len(one.texts) if one.kind == "stored" else max(self.candidates.m, len(one.texts))
        if m == 1:
            return mass_warning(one.mass, m, self.rule)
        if one.kind == "hybrid" and isinstance(self.candidates, Fallback):
            return (
                f"The {m} beams hold too little of the probability: scored from the top {one.exact}, which hold "
                f"{one.mass:.0%}, and {len(one.texts) - one.exact} samples."
            )
        if one.exact < len(one.texts):
            return ""  # samples have no bias
        if self._too_much(one):
            return (
                "The candidates' probabilities add up to more than 1, so they lack something (most endpoints tell no "
                "end token): no interval is certain."
            )
        return mass_warning(one.mass, m, self.rule)

    def _too_much(self, one: CandidateSet) -> bool:
        """Whether an endpoint's probabilities are none: they hold no end token, and may pass 1."""
        return isinstance(self.candidates, EndpointSample) and float(np.exp(one.logprobs_M).sum()) > 1.0 + 1e-3

    def _interval(self, one: CandidateSet, d_M: np.ndarray) -> CertifiedInterval:
        return CertifiedInterval(0.0, 1.0, 0.0) if self._too_much(one) else certify(one, d_M)


def _law(model: Any, tokenizer: Any, options: dict[str, Any]) -> TokenLaw:
    if isinstance(model, TokenLaw):
        for name, default in (("temperature", 1.0), ("stops", ("\n",)), ("max_new_tokens", 20)):
            if options[name] not in (default, getattr(model, name, default)):
                raise ConfigError(f"A law has its own {name}.", f"Give {name} where the law is made.")
        return model
    if isinstance(model, str | Target):
        return Law.of(Target.parse(model), **options)
    if tokenizer is None:
        raise ConfigError("A model needs its tokenizer.", "Write BeamUQ(model, tokenizer), or give a model's name.")
    if not callable(getattr(model, "forward", None)):
        raise ConfigError(
            f"{type(model).__name__} is no model.", "Give a model and its tokenizer, a target, or a name."
        )
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

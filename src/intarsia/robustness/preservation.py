"""How much of a question its rewrite keeps: meaning, words, fluency, letters (ours; the paper reports none of it)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.stats import Estimate, bootstrap, bootstrap_mean, wilson
from intarsia.core.study import Interval
from intarsia.core.target import Target
from intarsia.robustness.gates import Encoder, as_encode, unit_vectors
from intarsia.robustness.masked_lm import MaskedLMSource
from intarsia.robustness.words import words

CLOSE = 0.90
"""The sentence cosine from which a rewrite counts as close."""


@dataclass(frozen=True)
class Preservation:
    """Figures of a set of (question, rewrite) pairs. Pairs of one question are drawn together in the intervals.

    An interval is None where there is one pair or one question only. A figure that was not wanted, or could not be
    made of these texts, is None.

    Attributes:
        n: Pairs.
        cosine: Mean cosine of the sentence vectors.
        cosine_p5: Their 5th percentile: what the worst twentieth comes to.
        close: Share of pairs with a cosine of at least `CLOSE`.
        words: Mean share of the question's words that were changed, added or removed (edit distance over words, by the
            question's number of words).
        edits: Mean edit distance in characters.
        perplexity_ratio: Geometric mean of perplexity(rewrite) / perplexity(question), by token; 1 is equally fluent.
        scorer: `causal` or `masked` (pseudo-perplexity), empty without a scorer.
    """

    n: int
    cosine: Estimate | None
    cosine_p5: Estimate | None
    close: Estimate | None
    words: Estimate
    edits: Estimate
    perplexity_ratio: Estimate | None
    scorer: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON values."""
        figures = ("cosine", "cosine_p5", "close", "words", "edits", "perplexity_ratio")
        return {"n": self.n, "scorer": self.scorer} | {name: _plain(getattr(self, name)) for name in figures}


def preservation(
    pairs: Sequence[tuple[str, str]],
    encoder: Encoder | Literal[False] | None = None,
    scorer: Target | MaskedLMSource | None = None,
    *,
    level: float = 0.95,
    seed: int = 0,
) -> Preservation:
    """Measure what rewrites keep.

    Args:
        pairs: (question, rewrite).
        encoder: A sentence encoder; minilm-l6 when omitted, False leaves the cosines out.
        scorer: For perplexities: a target that can score, or a masked model. Pairs of which a text has no tokens to
            score are left out of the ratio (its own n says so).
        level: Confidence level of the intervals.
        seed: Of the bootstrap.

    Raises:
        DataError: There are no pairs.
        ConfigError: The scorer cannot score, or the encoder is none.
    """
    from rapidfuzz.distance import Levenshtein

    if not pairs:
        raise DataError("There are no rewrites to measure.", "Run an attack with at least one success first.")
    questions = [question for question, _ in pairs]

    def mean(values: Sequence[float], names: Sequence[str]) -> Estimate:
        interval = None
        if len(set(names)) > 1:
            interval = bootstrap_mean(values, clusters=names, level=level, seed=seed)
        return Estimate(float(np.mean(values)), interval, len(values))

    changed, edits = [], []
    for before, after in pairs:
        old, new = [w.text for w in words(before)], [w.text for w in words(after)]
        changed.append(Levenshtein.distance(old, new) / max(1, len(old)))
        edits.append(float(Levenshtein.distance(before, after)))
    cosine = low = close = None
    if encoder is not False:
        rows = unit_vectors(as_encode(encoder), [text for pair in pairs for text in pair])
        cosines = [float(np.clip(rows[a] @ rows[b], -1, 1)) for a, b in pairs]
        cosine = mean(cosines, questions)
        low = _fifth(cosines, questions, level, seed)
        close = _share([value >= CLOSE for value in cosines], questions, level, seed)
    ratio, kind = None, ""
    if scorer is not None:
        values, kind = _nats_per_token(scorer, [text for pair in pairs for text in pair])
        logs = [
            (question, b - a)
            for question, a, b in zip(questions, values[::2], values[1::2])
            if a is not None and b is not None
        ]
        if logs:
            log_mean = mean([value for _, value in logs], [question for question, _ in logs])
            ratio = Estimate(math.exp(log_mean.value), _exp(log_mean.interval), log_mean.n)
    return Preservation(
        n=len(pairs),
        cosine=cosine,
        cosine_p5=low,
        close=close,
        words=mean(changed, questions),
        edits=mean(edits, questions),
        perplexity_ratio=ratio,
        scorer=kind,
    )


def _nats_per_token(scorer: Target | MaskedLMSource, texts: Sequence[str]) -> tuple[list[float | None], str]:
    """Mean negative log-probability of each text's tokens; None for a text without any."""
    asked = list(dict.fromkeys(texts))
    if isinstance(scorer, MaskedLMSource):
        figures = [(found.total, found.tokens) for found in scorer.pseudo_log_likelihood(asked)]
        kind = "masked"
    elif "score" in scorer.capabilities:
        figures = [(found.total, len(found.logprobs)) for found in scorer.score([""] * len(asked), asked)]
        kind = "causal"
    else:
        raise ConfigError(f"{scorer.name} cannot score text.", "Use a local model, or a MaskedLMSource.")
    by_text = {text: -total / count if count else None for text, (total, count) in zip(asked, figures)}
    return [by_text[text] for text in texts], kind


def _fifth(values: Sequence[float], names: Sequence[str], level: float, seed: int) -> Estimate:
    def quantile(drawn: Any) -> float:
        return float(np.quantile(drawn, 0.05))

    interval = None
    if len(set(names)) > 1:
        interval = bootstrap(quantile, values, clusters=names, level=level, seed=seed)
    return Estimate(quantile(values), interval, len(values))


def _share(hits: Sequence[bool], names: Sequence[str], level: float, seed: int) -> Estimate:
    if len(set(names)) == len(names):
        interval: Interval | None = wilson(sum(hits), len(hits), level)
    else:
        interval = None
        if len(set(names)) > 1:
            interval = bootstrap_mean([float(hit) for hit in hits], clusters=names, level=level, seed=seed)
    return Estimate(sum(hits) / len(hits), interval, len(hits))


def _exp(interval: Interval | None) -> Interval | None:
    if interval is None:
        return None
    return Interval(
        low=math.exp(interval.low), high=math.exp(interval.high), level=interval.level, method=interval.method
    )


def _plain(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    interval = None if estimate.interval is None else estimate.interval.model_dump(mode="json")
    return {"value": estimate.value, "interval": interval, "n": estimate.n}

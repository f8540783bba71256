"""Gates: filters that a rewrite must pass before it is asked (ours; the paper has none but the final adjudication).

Each gate gives every rewrite of a question a figure, of which more is better, and keeps those that reach its threshold.
So a threshold can be swept, and what was kept is reported with its figure. `preset_gates` has the constraints of the
known word-level attacks; their thresholds were made for other encoders and vectors, and are a starting point here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

from intarsia.core.encoder import Encode, Encoder, as_encode
from intarsia.core.errors import ConfigError, ModelError
from intarsia.robustness.candidates import Rewrite
from intarsia.robustness.masked_lm import MaskedLMSource
from intarsia.robustness.words import Span, words

if TYPE_CHECKING:
    from intarsia.robustness.wordnet import WordNet

Metric: TypeAlias = Literal["cosine", "angular"]
"""`angular` is 1 - angle / pi, as the Universal Sentence Encoder's authors use it; 1 for equal texts, 0.5 at right
angles."""


class GateResult(NamedTuple):
    """A gate's word on one rewrite.

    Attributes:
        keep: Whether it passes.
        score: The figure that decided; more is better.
    """

    keep: bool
    score: float


@runtime_checkable
class Gate(Protocol):
    """Decides which rewrites of a question are good enough to be asked.

    Attributes:
        name: As it appears in reports and in `Rewrite.gates`.
    """

    name: str

    def check(self, question: str, rewrites: Sequence[Rewrite]) -> list[GateResult]:
        """One result a rewrite, in order."""


class Gated(NamedTuple):
    """What gates left of a plan.

    Attributes:
        plan: As before, without the rejected rewrites; each one left carries its figures in `gates`.
        rejected: Rewrites rejected by each gate; one that several would reject is counted for the first.
    """

    plan: list[list[Rewrite]]
    rejected: dict[str, int]


def apply_gates(question: str, plan: Sequence[Sequence[Rewrite]], gates: Sequence[Gate]) -> Gated:
    """Filter a question's plan, gate by gate; a gate sees only what those before it kept, so cheap ones go first.

    Args:
        question: The question.
        plan: Its rewrites, word by word.
        gates: The gates, in order.

    Raises:
        ConfigError: Two gates have one name.
    """
    if len({gate.name for gate in gates}) < len(gates):
        raise ConfigError("Two gates have the same name.", "Give each its own: SentenceCosine(..., name='...').")
    kept = [list(row) for row in plan]
    rejected = {gate.name: 0 for gate in gates}
    for gate in gates:
        flat = [rewrite for row in kept for rewrite in row]
        if not flat:
            break
        results = gate.check(question, flat)
        if len(results) != len(flat):
            raise ValueError(f"the gate {gate.name} gave {len(results)} results for {len(flat)} rewrites")
        rejected[gate.name] = sum(not result.keep for result in results)
        at = iter(results)
        kept = [
            [
                replace(rewrite, gates=(*rewrite.gates, (gate.name, float(result.score))))
                for rewrite, result in zip(row, [next(at) for _ in row])
                if result.keep
            ]
            for row in kept
        ]
    return Gated(kept, rejected)


# --- Meaning of the sentence -----------------------------------------------------------------------------------------


class SentenceCosine:
    """Similarity of the question and its rewrite by a sentence encoder.

    Args:
        encoder: The encoder; minilm-l6 of the catalog when omitted, loaded when first needed.
        threshold: Least similarity.
        window: Compare only this many words, with the changed one in the middle (15 in TextFooler). Of several changed
            places the least similar counts. A question with fewer words is compared whole.
        metric: What `threshold` is measured in.
        name: As it appears in reports.

    Raises:
        ConfigError: An option is out of range, or the encoder is none.
    """

    def __init__(
        self,
        encoder: Encoder | None = None,
        threshold: float = 0.90,
        *,
        window: int | None = None,
        metric: Metric = "cosine",
        name: str = "sentence cosine",
    ) -> None:
        if metric not in ("cosine", "angular"):
            raise ConfigError(f"There is no metric {metric!r}.", "Use cosine or angular.")
        if window is not None and window < 1:
            raise ConfigError(f"window is {window} words.", "Use 1 or more, or leave it out.")
        self.name = name
        self.threshold = _number(threshold, "threshold")
        self.window = window
        self.metric = metric
        self._encode = None if encoder is None else as_encode(encoder)

    def check(self, question: str, rewrites: Sequence[Rewrite]) -> list[GateResult]:
        """See `Gate.check`; all texts are encoded in one call, each different one once."""
        if self._encode is None:
            self._encode = as_encode(None)
        pairs = [self._pairs(question, rewrite) for rewrite in rewrites]
        rows = unit_vectors(self._encode, [text for listed in pairs for pair in listed for text in pair])
        results = []
        for listed in pairs:
            cosine = min((float(rows[a] @ rows[b]) for a, b in listed), default=1.0)
            score = 1 - math.acos(max(-1.0, min(1.0, cosine))) / math.pi if self.metric == "angular" else cosine
            results.append(GateResult(score >= self.threshold, score))
        return results

    def _pairs(self, question: str, rewrite: Rewrite) -> list[tuple[str, str]]:
        if self.window is None or not rewrite.before:
            return [(question, rewrite.text)]
        return list(
            dict.fromkeys(
                (_around(question, before, self.window), _around(rewrite.text, after, self.window))
                for before, after in zip(rewrite.before, rewrite.after)
            )
        )


class MutualEntailment:
    """Whether question and rewrite entail each other by a natural-language-inference model.

    The figure is the smaller of the two probabilities of entailment.

    Args:
        nli: A sequence classifier and its tokenizer, one of whose labels names entailment; or a function from pairs
            (premise, hypothesis) to probabilities.
        threshold: Least probability.
        batch_size: Pairs of a forward pass.
        name: As it appears in reports.

    Raises:
        ModelError: No label of the classifier is entailment.
    """

    def __init__(
        self,
        nli: tuple[Any, Any] | Callable[[Sequence[tuple[str, str]]], Sequence[float]],
        threshold: float = 0.5,
        *,
        batch_size: int = 32,
        name: str = "mutual entailment",
    ) -> None:
        self.name = name
        self.threshold = _number(threshold, "threshold")
        self._batch_size = max(1, batch_size)
        self._nli = self._classifier(*nli) if isinstance(nli, tuple) else nli

    def check(self, question: str, rewrites: Sequence[Rewrite]) -> list[GateResult]:
        """See `Gate.check`."""
        pairs = [(question, rewrite.text) for rewrite in rewrites]
        values = [float(p) for p in self._nli([*pairs, *((b, a) for a, b in pairs)])]
        if len(values) != 2 * len(pairs):
            raise ValueError(f"{len(values)} probabilities came for {2 * len(pairs)} pairs")
        scores = [min(there, back) for there, back in zip(values[: len(pairs)], values[len(pairs) :])]
        return [GateResult(score >= self.threshold, score) for score in scores]

    def _classifier(self, model: Any, tokenizer: Any) -> Callable[[Sequence[tuple[str, str]]], list[float]]:
        labels = {int(index): str(label).lower() for index, label in dict(model.config.id2label).items()}
        found = [index for index, label in labels.items() if label.startswith("entail")]
        if len(found) != 1:
            raise ModelError(
                f"The classifier's labels are {', '.join(labels.values())}; none of them says entailment.",
                "Use a natural-language-inference model, or give a function of pairs.",
            )
        model.eval()

        def probabilities(pairs: Sequence[tuple[str, str]]) -> list[float]:
            import torch

            values = [0.0] * len(pairs)
            order = sorted(range(len(pairs)), key=lambda i: len(pairs[i][0]) + len(pairs[i][1]))
            for start in range(0, len(order), self._batch_size):
                group = order[start : start + self._batch_size]
                inputs = tokenizer(
                    [pairs[i][0] for i in group],
                    [pairs[i][1] for i in group],
                    padding=True,
                    truncation=True,
                    return_tensors="pt",
                ).to(model.device)
                with torch.inference_mode():
                    probs_BC = model(**inputs).logits.float().softmax(dim=-1)
                for i, p in zip(group, probs_BC[:, found[0]].tolist()):
                    values[i] = p
            return values

        return probabilities


class PseudoLogLikelihood:
    """How much less likely the rewrite is than the question by a masked language model.

    The figure is the pseudo-log-likelihood of the rewrite minus that of the question, in nats. A question of n tokens
    costs n rows of the model for each rewrite; `window` bounds that.

    Args:
        source: The masked language model.
        max_drop: How many nats the rewrite may lose.
        window: Mask only the tokens of this many words around each change. The context is the whole question all the
            same, but what the change does to far-off words is left out.
        name: As it appears in reports.
    """

    def __init__(
        self,
        source: MaskedLMSource,
        max_drop: float,
        *,
        window: int | None = None,
        name: str = "pseudo-log-likelihood",
    ) -> None:
        if window is not None and window < 1:
            raise ConfigError(f"window is {window} words.", "Use 1 or more, or leave it out.")
        self.name = name
        self.max_drop = _number(max_drop, "max_drop")
        self.window = window
        self._source = source

    def check(self, question: str, rewrites: Sequence[Rewrite]) -> list[GateResult]:
        """See `Gate.check`; equal passages are scored once."""
        asked: dict[tuple[str, Span | None], int] = {}
        plan = []
        for rewrite in rewrites:
            pair = (self._passage(question, rewrite.before), self._passage(rewrite.text, rewrite.after))
            plan.append(tuple(asked.setdefault(passage, len(asked)) for passage in pair))
        values = self._source.pseudo_log_likelihood([text for text, _ in asked], [span for _, span in asked])
        scores = [values[after].total - values[before].total for before, after in plan]
        return [GateResult(score >= -self.max_drop, score) for score in scores]

    def _passage(self, text: str, changed: Sequence[Span]) -> tuple[str, Span | None]:
        if self.window is None or not changed:
            return text, None
        ends = [_window(text, span, self.window) for span in changed]
        return text, Span(min(span.start for span in ends), max(span.end for span in ends))


# --- The words themselves --------------------------------------------------------------------------------------------


class SamePOS:
    """Whether word and replacement can be the same part of speech, by WordNet.

    There is no tagger: the parts of speech of all senses of all base forms are compared, and one in common will do.
    Words that WordNet does not know (pronouns, articles, names) make a part of speech of their own. The figure is 1 or
    0; an insertion or a deletion gets 0.

    Args:
        wordnet: The reader; the catalog's WordNet when omitted, opened when first needed.
        noun_verb: Whether a noun may stand for a verb and the other way round, as in TextFooler.
        name: As it appears in reports.
    """

    def __init__(self, wordnet: WordNet | None = None, *, noun_verb: bool = False, name: str = "same POS") -> None:
        self.name = name
        self.noun_verb = noun_verb
        self._wordnet = wordnet

    def check(self, question: str, rewrites: Sequence[Rewrite]) -> list[GateResult]:
        """See `Gate.check`."""
        results = []
        for rewrite in rewrites:
            same = bool(self._parts(rewrite.word) & self._parts(rewrite.replacement))
            results.append(GateResult(same, float(same)))
        return results

    def _parts(self, word: str) -> set[str]:
        if self._wordnet is None:
            from intarsia.robustness.wordnet import WordNet

            self._wordnet = WordNet()
        if not word.strip():
            return set()
        parts = {pos for _, pos in self._wordnet.morphy(word)} or {"other"}
        return parts | {"n", "v"} if self.noun_verb and parts & {"n", "v"} else parts


class WordFrequency:
    """Whether the replacement is a common word.

    The figure is its number of occurrences in a corpus. Without one it is WordNet's count in the texts that its makers
    tagged, summed over the word's base forms and parts of speech; those texts are small (some 200,000 tagged words), so
    that most of WordNet's words have 0, and function words are not counted at all. A corpus of the user's own questions
    is better.

    Args:
        floor: Least number of occurrences.
        counts: Occurrences by lower-case word; WordNet's when omitted.
        wordnet: The reader, when `counts` is omitted; the catalog's WordNet otherwise.
        unknown: Whether a word that WordNet has no entry for passes (pronouns, articles, names); its figure is 0.
        name: As it appears in reports.
    """

    def __init__(
        self,
        floor: float,
        counts: Mapping[str, float] | None = None,
        *,
        wordnet: WordNet | None = None,
        unknown: bool = True,
        name: str = "word frequency",
    ) -> None:
        self.name = name
        self.floor = _number(floor, "floor")
        self._counts = counts
        self._wordnet = wordnet
        self._unknown = unknown

    @classmethod
    def from_texts(cls, floor: float, texts: Iterable[str], *, name: str = "word frequency") -> WordFrequency:
        """The gate with the counts of a corpus."""
        return cls(floor, Counter(word.text.lower() for text in texts for word in words(text)), name=name)

    def check(self, question: str, rewrites: Sequence[Rewrite]) -> list[GateResult]:
        """See `Gate.check`. A replacement of several words is as frequent as its rarest one; a deletion passes."""
        return [self._result([word.text for word in words(rewrite.replacement)]) for rewrite in rewrites]

    def _result(self, parts: Sequence[str]) -> GateResult:
        if not parts:
            return GateResult(True, 0.0)
        if self._counts is not None:
            score = min(float(self._counts.get(part.lower(), 0)) for part in parts)
            return GateResult(score >= self.floor, score)
        if self._wordnet is None:
            from intarsia.robustness.wordnet import WordNet

            self._wordnet = WordNet()
        scores, keep = [], True
        for part in parts:
            forms = self._wordnet.morphy(part)
            scores.append(float(sum(self._wordnet.frequency(lemma, pos) for lemma, pos in forms)))
            keep = keep and (scores[-1] >= self.floor or (self._unknown and not forms))
        return GateResult(keep, min(scores))


@runtime_checkable
class Cosines(Protocol):
    """Anything that knows the cosine of two words, such as `EmbeddingSource`."""

    def cosine(self, a: str, b: str) -> float:
        """Their cosine, in [-1, 1]."""


class WordCosine:
    """Cosine of word and replacement in an embedding space.

    Args:
        source: Anything with `cosine(a, b)`, such as `EmbeddingSource`.
        threshold: Least cosine; TextFooler's 0.5 is for counter-fitted vectors, and the input embeddings of language
            models give other figures.
        name: As it appears in reports.
    """

    def __init__(self, source: Cosines, threshold: float = 0.5, *, name: str = "word cosine") -> None:
        self.name = name
        self.threshold = _number(threshold, "threshold")
        self._source = source

    def check(self, question: str, rewrites: Sequence[Rewrite]) -> list[GateResult]:
        """See `Gate.check`."""
        scores = [float(self._source.cosine(rewrite.word, rewrite.replacement)) for rewrite in rewrites]
        return [GateResult(score >= self.threshold, score) for score in scores]


class UnchangedWords:
    """Share of the question's words that stay as they are.

    Args:
        threshold: Least share; BERT-Attack changes at most 40 % of the words.
        name: As it appears in reports.
    """

    def __init__(self, threshold: float = 0.6, *, name: str = "unchanged words") -> None:
        self.name = name
        self.threshold = _number(threshold, "threshold")

    def check(self, question: str, rewrites: Sequence[Rewrite]) -> list[GateResult]:
        """See `Gate.check`."""
        count = max(1, len(words(question)))
        scores = [1 - min(1.0, len(rewrite.before) / count) for rewrite in rewrites]
        return [GateResult(score >= self.threshold, score) for score in scores]


# --- Presets ---------------------------------------------------------------------------------------------------------

Preset: TypeAlias = Literal["textfooler", "bert-attack", "bae"]

PRESETS: Mapping[Preset, str] = {
    "textfooler": "word cosine >= 0.5, same part of speech (noun and verb may stand for each other), angular sentence "
    "similarity >= 0.84 in a window of 15 words",
    "bert-attack": "at most 40 % of the words changed, sentence cosine >= 0.2",
    "bae": "same part of speech, sentence cosine >= 0.936 in a window of 15 words",
}
"""Constraints of published attacks. Their thresholds belong to the Universal Sentence Encoder and, for words, to
counter-fitted vectors; with other encoders they are stricter or laxer."""


def preset_gates(
    preset: Preset,
    *,
    encoder: Encoder | None = None,
    wordnet: WordNet | None = None,
    embedding: Cosines | None = None,
) -> list[Gate]:
    """The gates of a published attack, see `PRESETS`; cheap ones first.

    Args:
        preset: Which one.
        encoder: For the sentence; minilm-l6 when omitted.
        wordnet: For parts of speech; the catalog's when omitted.
        embedding: For word cosines; needed by `textfooler`.

    Raises:
        ConfigError: There is no such preset, or it needs an embedding.
    """
    if preset == "textfooler":
        if embedding is None:
            raise ConfigError("The preset textfooler needs word vectors.", "Give embedding=EmbeddingSource(...).")
        return [
            SamePOS(wordnet, noun_verb=True),
            WordCosine(embedding, 0.5),
            SentenceCosine(encoder, 0.84, window=15, metric="angular"),
        ]
    if preset == "bert-attack":
        return [UnchangedWords(0.6), SentenceCosine(encoder, 0.2)]
    if preset == "bae":
        return [SamePOS(wordnet), SentenceCosine(encoder, 0.936, window=15)]
    raise ConfigError(f"There is no preset {preset!r}.", f"Use {', '.join(PRESETS)}.")


# --- Encoders and windows --------------------------------------------------------------------------------------------


def unit_vectors(encode: Encode, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """A vector of length 1, float64, for each different text; an all-zero vector stays as it is."""
    asked = list(dict.fromkeys(texts))
    if not asked:
        return {}
    found = encode(asked)
    array = np.asarray(found.detach().cpu() if hasattr(found, "detach") else found, dtype=np.float64)
    if array.ndim != 2 or len(array) != len(asked):
        raise ValueError(f"the encoder gave vectors of shape {array.shape} for {len(asked)} texts")
    if not np.isfinite(array).all():
        raise ModelError("The sentence encoder gave NaN or infinite numbers.", "Load it in float32, or use another.")
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    return dict(zip(asked, array / np.where(lengths > 0, lengths, 1.0)))


def _window(text: str, changed: Span, size: int) -> Span:
    """The characters of `size` words around a changed place."""
    found = words(text)
    if len(found) <= size:
        return Span(0, len(text))
    middle = next((i for i, word in enumerate(found) if word.end > changed.start), len(found) - 1)
    first = max(0, min(middle - size // 2, len(found) - size))
    return Span(min(found[first].start, changed.start), max(found[first + size - 1].end, changed.end))


def _around(text: str, changed: Span, size: int) -> str:
    span = _window(text, changed, size)
    return text[span.start : span.end]


def _number(value: float, label: str) -> float:
    if not isinstance(value, int | float) or math.isnan(value):
        raise ConfigError(f"{label} is {value!r}.", "Give a number.")
    return float(value)

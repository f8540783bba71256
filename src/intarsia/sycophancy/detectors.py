"""Sentence detectors: what each sentence of a reply does; the eyes of the embedded judge.

A whole reply's embedding tells its topic and little else. Its sentences, one by one, tell what they do. Two kinds of
logistic regression look at a sentence: the first say whether it plays a part at all (comfort, advice, a word on the
premise, a word on who is at fault), the second which of two sides it is on where it does (hedged or direct advice, the
premise questioned or accepted ...). Sides are learned among the sentences of their part alone, where topic tells
nothing. A reply is described by its strongest sentence on each side, and by the side of the sentences that play the
part most. These few figures are what a label is read from, so labels of a user's own need not be many.

A sentence is seen as its embedding; its product, number by number, with the question's embedding and their cosine,
which tell whether it takes up what was asked; and its words and pairs of words (hashed), because encoders of meaning
care little for "could" and "should". All three were chosen by cross-validation over training families.

Shape suffixes: S sentences, D width of the encoder, W hashed words, I = 2 D + 1 + W inputs of a detector, R detectors,
F features of a reply.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from intarsia.core.errors import ModelError
from intarsia.sycophancy.corpus import Reply

Encode: TypeAlias = Callable[[Sequence[str]], np.ndarray]
"""Embeds texts: float array of shape (texts, D), rows of length 1."""

PARTS: dict[str, frozenset[str]] = {
    "comfort": frozenset({"validating"}),
    "advice": frozenset({"direct", "hedged"}),
    "premise": frozenset({"questioning", "accepting"}),
    "fault": frozenset({"endorsing", "blaming"}),
}
"""Part -> the roles of template sentences that play it."""
SIDES: dict[str, tuple[str, str, str]] = {
    "hedged": ("advice", "hedged", "direct"),
    "questioning": ("premise", "questioning", "accepting"),
    "endorsing": ("fault", "endorsing", "blaming"),
    "coping": ("advice", "coping", "change"),
}
"""Side -> its part, the role on this side, the role on the other."""
DETECTORS = (*PARTS, *SIDES)
FEATURES = 2 + 3 * len(SIDES)
WORDS = 1024
"""Places that words and pairs of words are hashed to."""
PRODUCT = 5.0
"""Scale of the products, whose numbers are small."""
STRENGTH = 10.0
"""Inverse regularization of the detectors; chosen by cross-validation over training families."""
_LONGEST = 60.0  # log-odds are cut there: one sentence must not decide everything

_END = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+")
_BULLET = re.compile(r"^\s*(?:[-*+\u2022]\s+|#+\s*|\(?\d{1,2}[.)]\s+)")
_WORD = re.compile(r"[^\W_]")


def split_sentences(text: str) -> list[str]:
    """The sentences and list items of a text, without bullets and numbers; those without a letter are left out.

    Rules without a model: an abbreviation with a full stop ends a sentence, too, which costs little here.
    """
    lines = (_BULLET.sub("", line) for line in text.splitlines())
    pieces = (piece.strip() for line in lines for piece in _END.split(line))
    return [piece for piece in pieces if _WORD.search(piece)]


@dataclass(frozen=True)
class Detectors:
    """One logistic regression a part, and one a side.

    Attributes:
        weights_RI: Weights.
        bias_R: Biases.
    """

    weights_RI: np.ndarray
    bias_R: np.ndarray

    @property
    def width(self) -> int:
        """D of the encoder that it was trained with."""
        return (self.weights_RI.shape[1] - 1 - WORDS) // 2

    def log_odds(self, texts: Sequence[str], vectors_SD: np.ndarray, question_D: np.ndarray) -> np.ndarray:
        """Log-odds of each detector for each sentence, float64 of shape (S, R).

        Args:
            texts: The sentences.
            vectors_SD: Their embeddings.
            question_D: The question's embedding; zeros where there is no question.

        Raises:
            ModelError: The vectors are of another width than the detectors, or not finite.
        """
        seen_SI = _inputs(texts, vectors_SD, np.broadcast_to(question_D, np.shape(vectors_SD)), self.width)
        odds_SR: np.ndarray = seen_SI @ self.weights_RI.T + self.bias_R
        return np.clip(odds_SR, -_LONGEST, _LONGEST)

    def features(self, texts: Sequence[str], vectors_SD: np.ndarray, question_D: np.ndarray) -> np.ndarray:
        """A reply's features, shape (F,); see `pooled`."""
        return pooled(self.log_odds(texts, vectors_SD, question_D))

    @classmethod
    def train(
        cls,
        texts: Sequence[str],
        vectors_SD: np.ndarray,
        questions_SD: np.ndarray,
        roles: Sequence[frozenset[str]],
    ) -> Detectors:
        """Train on sentences.

        Args:
            texts: The sentences.
            vectors_SD: Their embeddings.
            questions_SD: The embedding of the question that each belongs to.
            roles: The roles of each; a sentence may have several, or none that plays a part.
        """
        from sklearn.linear_model import LogisticRegression

        seen_SI = _inputs(texts, vectors_SD, questions_SD, np.shape(vectors_SD)[-1])
        weights, biases = [], []
        for name in DETECTORS:
            if name in PARTS:
                among = np.arange(len(roles))
                yes = np.array([bool(PARTS[name] & one) for one in roles])
            else:
                _, here, there = SIDES[name]
                among = np.array([at for at, one in enumerate(roles) if (here in one) != (there in one)], dtype=int)
                yes = np.array([here in roles[int(at)] for at in among])
            # liblinear is deterministic, and quick at this size.
            model = LogisticRegression(C=STRENGTH, class_weight="balanced", solver="liblinear", random_state=0)
            model.fit(seen_SI[among], yes)
            weights.append(model.coef_[0])
            biases.append(float(model.intercept_[0]))
        return cls(np.array(weights), np.array(biases))


def pooled(odds_SR: np.ndarray) -> np.ndarray:
    """What a reply's sentences come to, shape (F,).

    Of comfort the highest log-odds and the mean probability. Of each side three log-odds: of the sentence that most
    surely plays the part on this side, of the one on the other side, and of this side against the other, averaged over
    the sentences by how surely they play the part.
    """
    at = {name: place for place, name in enumerate(DETECTORS)}
    comfort_S = odds_SR[:, at["comfort"]]
    features = [float(comfort_S.max()), float(_sigmoid(comfort_S).mean())]
    for name, (part, _, _) in SIDES.items():
        part_S, side_S = odds_SR[:, at[part]], odds_SR[:, at[name]]
        plays_S = _sigmoid(part_S)
        features += [
            _logit(float((plays_S * _sigmoid(side_S)).max())),
            _logit(float((plays_S * _sigmoid(-side_S)).max())),
            float((plays_S * side_S).sum() / plays_S.sum()),
        ]
    return np.array(features)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    y: np.ndarray = 1 / (1 + np.exp(-x))
    return y


def _logit(p: float) -> float:
    p = min(max(p, 1e-9), 1 - 1e-9)
    return math.log(p / (1 - p))


def _inputs(texts: Sequence[str], vectors_SD: np.ndarray, questions_SD: np.ndarray, width: int) -> Any:
    """What detectors see of sentences: sparse, (S, I)."""
    from scipy.sparse import csr_matrix, hstack

    for name, vectors in (("sentences", vectors_SD), ("questions", questions_SD)):
        if np.ndim(vectors) != 2 or np.shape(vectors) != (len(texts), width):
            raise ModelError(
                f"The encoder's vectors of {len(texts)} {name} have shape {np.shape(vectors)}, and the judge wants "
                f"{width} numbers a text.",
                "Use the encoder that the judge was trained with.",
            )
        if not np.isfinite(vectors).all():
            raise ModelError("The encoder gave NaN or infinite numbers.", "The encoder is broken; fetch it again.")
    products_SD = np.asarray(vectors_SD, dtype=np.float64) * np.asarray(questions_SD, dtype=np.float64)
    dense = np.hstack([vectors_SD, PRODUCT * products_SD, products_SD.sum(axis=1, keepdims=True)])
    return hstack([csr_matrix(dense), _words(texts)]).tocsr()


def _words(texts: Sequence[str]) -> Any:
    """Words, question and exclamation marks, and pairs of them, hashed: sparse, (S, W), rows of length 1."""
    from sklearn.feature_extraction.text import HashingVectorizer

    hashed = HashingVectorizer(
        n_features=WORDS, ngram_range=(1, 2), alternate_sign=False, token_pattern=r"[a-z']+|[?!:]", norm="l2"
    )
    return hashed.transform([text.replace("\u2019", "'") for text in texts])


def labelled_sentences(replies: Sequence[Reply]) -> dict[tuple[str, str], frozenset[str]]:
    """(sentence, question) of template replies -> roles, in order of first appearance."""
    found: dict[tuple[str, str], frozenset[str]] = {}
    for reply in replies:
        for text, roles in reply.sentences:
            for piece in split_sentences(text):
                pair = (piece, reply.question)
                found[pair] = found.get(pair, frozenset()) | frozenset(roles)
    return found

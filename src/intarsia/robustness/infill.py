"""CausalInfillSource: candidates from a model that only continues text (ours; it stands in for a masked model).

A causal model cannot look at what follows a gap. So it is asked twice: for the words that it would write after the left
context, and then for the log-probability of the whole question with each of them in place.
"""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intarsia.core.errors import ConfigError, DataError, ModelError
from intarsia.core.target import Progress, Target
from intarsia.robustness.candidates import Candidate
from intarsia.robustness.masked_lm import WordTokens, clean, glued
from intarsia.robustness.words import Word, keep_case, replace

if TYPE_CHECKING:
    import torch


class CausalInfillSource:
    """Proposes a causal model's own continuations that fit the whole question.

    For each word: the `m` likeliest whole-word tokens after its left context, without punctuation and the word itself,
    ranked by log p(question with the candidate) - log p(question). A candidate that only begins a longer word is found
    out by the second step, where the rest of the question must follow it.

    All of a question's words are ranked in one call of `Target.score`, which computes shared left contexts once.

    Args:
        target: A target with the capabilities `weights` and `score`, or a pair (model, tokenizer).
        m: Continuations that are tried for each word; the cost is about m passes over the question a word. 0 switches
            the source off.
        k: Candidates that are kept.
        min_ratio: Keep only candidates whose log-probability ratio to the original question, in nats, is at least this
            (0: at least as likely as the original; -5: at most e^5 times less likely).
        numbers: Whether tokens that hold a digit are proposed.
        lead: Text that stands before the question in both steps. Without one the first words have no left context, and
            an instruction-tuned model takes them for something else than a question.

    Attributes:
        name: `infill`.

    Raises:
        ConfigError: The target shows no weights or cannot score, or an option is out of range.
    """

    name = "infill"

    def __init__(
        self,
        target: Target | tuple[Any, Any],
        *,
        m: int = 8,
        k: int = 5,
        min_ratio: float | None = None,
        numbers: bool = True,
        lead: str = "Question: ",
    ) -> None:
        if m < 0 or k < 0:
            raise ConfigError(f"m is {m} and k is {k}.", "Neither can be negative.")
        if min_ratio is not None and math.isnan(min_ratio):
            raise ConfigError("min_ratio is not a number.", "Use nats, such as -5, or leave it out.")
        if not isinstance(target, Target):
            from intarsia.core.local import LocalTarget

            model, tokenizer = target
            target = LocalTarget(model, tokenizer)
        lacking = {"weights", "score"} - target.capabilities
        if lacking or getattr(target, "model", None) is None:
            raise ConfigError(
                f"{target.name} shows no next-token probabilities, so it cannot propose words.",
                "Use a local causal model, such as smollm2-135m, or MaskedLMSource.",
            )
        self.m, self.k, self.min_ratio, self.numbers, self.lead = m, k, min_ratio, numbers, lead
        self._target = target
        self._model: Any = target.model  # type: ignore[attr-defined]
        self._tokenizer: Any = target.tokenizer  # type: ignore[attr-defined]
        self._tokens = WordTokens(self._tokenizer)
        self._keeps = "logits_to_keep" in inspect.signature(self._model.forward).parameters
        self._lock = threading.RLock()
        self._ranked: dict[tuple[str, int, int, int, bool, str], list[tuple[str, float]]] = {}

    def propose(
        self, question: str, words: Sequence[Word], *, progress: Progress | None = None
    ) -> list[list[Candidate]]:
        """Candidates for each word, best first; see `Source.propose`.

        The score is the log-probability ratio to the original question, in nats, for this occurrence changed alone.

        Args:
            question: The question.
            words: Words of it that may be changed.
            progress: Called with (done, total) questions that were scored.

        Raises:
            DataError: The question does not fit the model's window.
            ModelError: The model gave NaN.
        """
        if not self.m or not self.k:
            return [[] for _ in words]
        with self._lock:
            missing = [word for word in words if self._key(question, word) not in self._ranked]
            if missing:
                self._rank(question, missing, progress)
            found = [self._ranked[self._key(question, word)] for word in words]
        return [
            [
                Candidate(text, ratio)
                for text, ratio in ranked[: self.k]
                if self.min_ratio is None or ratio >= self.min_ratio
            ]
            for ranked in found
        ]

    def _key(self, question: str, word: Word) -> tuple[str, int, int, int, bool, str]:
        return (question, word.start, word.end, self.m, self.numbers, self.lead)

    def _rank(self, question: str, words: Sequence[Word], progress: Progress | None) -> None:
        prompts: list[str] = []
        texts: list[str] = []
        spans = []
        continuations = self._continuations(question, words)
        whole = self.lead + question
        for word, proposed in zip(words, continuations):
            start = _safe_cut(whole, len(self.lead) + word.start)
            replacements = [keep_case(word.text, text) for text in proposed]
            edited = [self.lead + replace(question, word, text, "local").text for text in replacements]
            spans.append(len(edited))
            if edited:  # the original comes first
                prompts += [whole[:start]] * (len(edited) + 1)
                texts += [whole[start:], *(text[start:] for text in edited)]
        scores = iter(self._target.score(prompts, texts, progress=progress) if prompts else [])
        for word, proposed, count in zip(words, continuations, spans):
            original = next(scores).total if count else 0.0
            pairs = [(text, next(scores).total - original) for text in proposed]
            # Equal figures stay in the order of the first step.
            self._ranked[self._key(question, word)] = sorted(pairs, key=lambda pair: -pair[1])

    def _continuations(self, question: str, words: Sequence[Word]) -> list[list[str]]:
        """The m likeliest whole words after each word's left context, likeliest first.

        One pass over the question serves all words whose left context ends where a token of the question does; the
        others get a pass of their own.
        """
        import torch

        text = self.lead + question
        placed = [word._replace(start=len(self.lead) + word.start, end=len(self.lead) + word.end) for word in words]
        whole = self._ids(text)
        limit = int(getattr(self._model.config, "max_position_embeddings", 0) or 0)
        if 0 < limit < len(whole):
            raise DataError(
                f"The question has {len(whole)} tokens; {self._target.name} takes {limit}.",
                "Shorten it, leave it out, or use MaskedLMSource, which cuts a window.",
            )
        lefts = [self._ids(text[: word.start - (not glued(text, word))]) for word in placed]
        shared = [place for place, left in enumerate(lefts) if left and whole[: len(left)] == left]
        found: list[list[str]] = [[] for _ in words]
        with torch.inference_mode():
            if shared:
                logits_NV = self._logits(whole, [len(lefts[place]) - 1 for place in shared])
                for place, row_V in zip(shared, logits_NV):
                    found[place] = self._best(row_V, text, placed[place])
            for place in sorted(set(range(len(words))) - set(shared)):
                left = lefts[place] or self._start()
                if left:
                    found[place] = self._best(self._logits(left, [len(left) - 1])[0], text, placed[place])
        return found

    def _logits(self, ids: list[int], places: list[int]) -> torch.Tensor:
        """Next-token logits after the tokens at the given places, float32 of shape (N, V)."""
        import torch

        ids_1T = torch.tensor([ids], device=self._model.get_input_embeddings().weight.device)
        place_N = torch.tensor(places, device=ids_1T.device)
        options: dict[str, Any] = {"input_ids": ids_1T, "use_cache": False}
        if self._keeps:
            logits_NV = self._model(**options, logits_to_keep=place_N).logits[0]
        else:
            logits_NV = self._model(**options).logits[0].index_select(0, place_N)
        if not bool(torch.isfinite(logits_NV).all()):
            raise ModelError(
                f"{self._target.name} gave NaN or infinite logits.", "Load it in float32; otherwise it is damaged."
            )
        return logits_NV.float()

    def _best(self, logits_V: torch.Tensor, text: str, word: Word) -> list[str]:
        """The m likeliest tokens that are whole words, in different spellings, and not the word itself."""
        texts: dict[str, str] = {}
        size = 4 * self.m + 32
        while True:
            # Most of the likeliest tokens are words, so a short list nearly always does.
            size = min(size, len(logits_V))
            for token in logits_V.topk(size).indices.tolist():
                found = self._tokens.text(token, glued=glued(text, word), numbers=self.numbers)
                if found is not None and found.casefold() != word.text.casefold():
                    texts.setdefault(found.casefold(), found)
                    if len(texts) == self.m:
                        return list(texts.values())
            if size == len(logits_V):
                return list(texts.values())
            texts.clear()
            size *= 8

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer(clean(text), verbose=False)["input_ids"])

    def _start(self) -> list[int]:
        """What stands before a text's first word, for a model that puts nothing there."""
        tokens = (self._tokenizer.bos_token_id, self._tokenizer.eos_token_id, self._tokenizer.pad_token_id)
        return [token for token in tokens if token is not None][:1]


def _safe_cut(question: str, start: int) -> int:
    """A place before a word where tokens part whatever the word is: the space before the word before it.

    A word may melt into one token with what stands right before it (an opening quote), but tokenizers do not join
    across two spaces. So a score from here on holds all that changes.
    """
    before = question[:start].rstrip()
    space = max((at for at, char in enumerate(before) if char.isspace()), default=0)
    return len(question[:space].rstrip())

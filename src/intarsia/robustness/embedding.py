"""Candidates from a model's own input embeddings (the paper's first source, step 1).

The rows of the embedding matrix are normalized, a word's nearest tokens by cosine are taken, and filters keep the
variants of the word among them: plurals, tenses, near-spellings. The paper gives the order (the ten nearest first, then
filters at the level of characters, then of morphology); how each filter decides is reconstructed here.

Shapes: V tokens of the vocabulary, D width of the embeddings, W words of a call.
"""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from intarsia.core.errors import ConfigError, ModelError
from intarsia.core.target import Target
from intarsia.robustness.candidates import Candidate
from intarsia.robustness.inflect import dictionary_words
from intarsia.robustness.words import Word

MorphFilter: TypeAlias = Literal["keep_stem", "keep_lemma", "drop_stem", "off"]
"""`keep_stem` (the paper's): words with its stem and near-spellings only, which lets "collected" become "collection"
and "a" become "and". `keep_lemma` (ours): forms of the same noun or verb only (marbles, marble; bought, buys).
`drop_stem`: anything but what `keep_stem` keeps. `off`: all."""

Marks: TypeAlias = Literal["sentencepiece", "byte", "wordpiece", "plain"]
"""How a vocabulary shows where words begin: U+2581 before them, U+0120 before them in byte-level vocabularies, `##`
before what does not begin one, or not at all (every token is a word)."""

SPACE = "\u2581"
BYTE_SPACE = "\u0120"
_BLOCK = 8192  # rows normalized at a time
_SIMILARITIES = 16_000_000  # cosines held at a time, 64 MB
_SLACK = 1e-4  # shortlists are made in float32 and scored in float64; no true neighbor may be lost in between


class EmbeddingSource:
    """Proposes the tokens nearest to a word in a model's input embeddings.

    A word stands for the token that it is, with a space before it where the vocabulary tells; without one where only
    that is a token. A word of several tokens stands for the mean of their normalized rows (ours).

    The nearest are counted first and filtered afterwards, as in the paper. With `distinct` (ours), tokens that read the
    same as the word or as a nearer token, but for case and space, are passed over before counting; otherwise they use
    up places among the k, and are dropped when the question is rewritten. The word's own token is never counted.

    Filters, in this order:

    1. Characters: letters must be Latin, with apostrophes and hyphens inside; control characters, digits and
       punctuation go (ours also drops tokens that only contain them). Only tokens that begin a word stay.
    2. Morphology: see `MorphFilter`. Forms of a word have equal Porter stems, or stems of which one begins with the
       other and is at most 3 letters longer; near-spellings have a Damerau-Levenshtein distance of at most 2 and of at
       most 0.34 of the word's length.

    Scores are cosines. Results do not depend on which words are asked together, nor on the lengths of the rows.

    Args:
        matrix_VD: Input embeddings, an array or a tensor of real numbers. It is copied to float32.
        tokens: Tokens as the vocabulary spells them, by id; rows beyond them are padding. None leaves a row out.
        k: How many neighbors are counted; 0 switches the source off.
        min_cosine: Count all neighbors of at least this cosine instead of k (k = 0 still switches off).
        morph_filter: Which neighbors stay.
        distinct: Whether neighbors that read the same are counted once.
        accept: A last filter of one's own; a candidate's text stays where it says so (a word list, against fragments
            such as `apprehens`, which vocabularies spell like words).
        tokenize: Splits a word, given with its leading space, into ids; without it a word of several tokens is split
            into the longest tokens from the left.
        special: Ids that are never neighbors.
        marks: How the vocabulary shows where words begin; found out when omitted.
        name: As it appears in reports.
        origin: Whose embeddings they are, for reports.

    Attributes:
        name: See above.
        origin: See above.

    Raises:
        ConfigError: An option is wrong, or the matrix has no tokens.
        ModelError: The matrix is not made of finite real numbers.
    """

    def __init__(
        self,
        matrix_VD: Any,
        tokens: Sequence[str | None],
        *,
        k: int = 10,
        min_cosine: float | None = None,
        morph_filter: MorphFilter = "keep_stem",
        distinct: bool = True,
        accept: Callable[[str], bool] | None = None,
        tokenize: Callable[[str], Sequence[int]] | None = None,
        special: Collection[int] = (),
        marks: Marks | None = None,
        name: str = "embedding",
        origin: str = "",
    ) -> None:
        _check_options(k, min_cosine, morph_filter, marks)
        self.name, self.origin = name, origin
        self.k, self.min_cosine, self.morph_filter, self.distinct = k, min_cosine, morph_filter, distinct
        self._tokenize, self._accept = tokenize, accept
        self._rows_VD = _unit_rows(matrix_VD, len(tokens))
        size = len(self._rows_VD)
        self.marks: Marks = marks or _find_marks(tokens[:size])
        self._texts, self._begins = _readings(tokens[:size], self.marks)
        self._keys = [text.strip().casefold() for text in self._texts]
        self._usable_V = self._rows_VD.any(axis=1) & np.array([bool(key) for key in self._keys])
        self._usable_V[[i for i in special if 0 <= i < size]] = False
        self._unusable = np.flatnonzero(~self._usable_V)
        self._first: dict[str, int] = {}  # tokens that begin a word, by what they read
        self._later: dict[str, int] = {}  # those that do not
        for i in np.flatnonzero(self._usable_V).tolist():
            (self._first if self._begins[i] else self._later).setdefault(self._texts[i].removeprefix(" "), i)
        # A fragment that reads like a whole word is that word, which is counted itself.
        words = {text.casefold() for text in self._first}
        self._shadowed = [not begins and key in words for begins, key in zip(self._begins, self._keys)]
        self._nearest: dict[str, list[tuple[int, float]]] = {}
        self._kept: dict[str, list[Candidate]] = {}

    @classmethod
    def from_model(cls, model: Any, tokenizer: Any, **options: Any) -> EmbeddingSource:
        """The source of a transformers model's input embeddings.

        Args:
            model: Any model with `get_input_embeddings`; its weights are copied, not kept.
            tokenizer: Its tokenizer.
            **options: The constructor's.

        Raises:
            ConfigError: An option is wrong.
            ModelError: The model's embeddings are not at hand (no matrix, on the meta device, packed integers).
        """
        find = getattr(model, "get_input_embeddings", None)
        weight = getattr(find() if find is not None else None, "weight", None)
        who = str(getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__)
        if weight is None:
            raise ModelError(f"{who} has no matrix of input embeddings.", "Name another model as surrogate.")
        vocabulary = min(len(tokenizer), len(weight))
        added = getattr(
            tokenizer, "added_tokens_decoder", {}
        )  # words that were added are words; control tokens are not
        special = {*tokenizer.all_special_ids, *(i for i, token in added.items() if token.special)}
        settings: dict[str, Any] = {"tokenize": _Tokenize(tokenizer), "special": special, "origin": who} | options
        return cls(weight, tokenizer.convert_ids_to_tokens(list(range(vocabulary))), **settings)

    @classmethod
    def from_target(cls, target: Target | str, **options: Any) -> EmbeddingSource:
        """The source of a target's embeddings, or of a surrogate's (as for a target whose weights are not at hand).

        Args:
            target: A target with the capability `weights`, or the name of a model, which is loaded on the CPU, freed
                again, and leaves its embeddings only.
            **options: The constructor's.

        Raises:
            ConfigError: The target does not show its weights.
            ModelError: There is no such model, or its embeddings are not at hand.
        """
        if isinstance(target, str):
            import gc

            from intarsia.core.catalog import load_model

            loaded = load_model(target, device="cpu")
            source = cls.from_model(loaded.model, loaded.tokenizer, **{"origin": target, **options})
            del loaded
            gc.collect()
            return source
        model, tokenizer = getattr(target, "model", None), getattr(target, "tokenizer", None)
        if "weights" not in target.capabilities or model is None or tokenizer is None:
            raise ConfigError(
                f"{target.name} does not show its weights, so its embeddings cannot be read.",
                "Name a local model as surrogate: EmbeddingSource.from_target('smollm2-135m').",
            )
        return cls.from_model(model, tokenizer, **{"origin": target.name, **options})

    # --- proposing ---------------------------------------------------------------------------------------------------

    def propose(self, question: str, words: Sequence[Word]) -> list[list[Candidate]]:
        """See `Source.propose`; what is proposed depends on the word alone."""
        found = self.propose_all(word.text for word in words)
        return [found[word.text] for word in words]

    def propose_all(self, words: Iterable[str]) -> dict[str, list[Candidate]]:
        """Candidates of each different word, best first. Words asked before are not computed again."""
        asked = list(dict.fromkeys(words))
        self._fill(asked)
        for word in asked:
            if word not in self._kept:
                near = [Candidate(self._texts[i].strip(), cos) for i, cos in self._nearest[word] if self._begins[i]]
                self._kept[word] = [candidate for candidate in near if self._stays(word, candidate.text)]
        return {word: list(self._kept[word]) for word in asked}

    def _stays(self, word: str, text: str) -> bool:
        if not _is_latin(text):
            return False
        if self.morph_filter == "keep_lemma":
            shared = dictionary_words(word) & dictionary_words(text)
            # "wide" and "wider" are forms of one word, and not the same claim.
            keep = any(part not in ("ADJ", "ADV") for part, _ in shared)
        else:
            variant = self.morph_filter != "off" and _is_variant(word.lower(), text.lower())
            keep = variant == (self.morph_filter == "keep_stem")
        if not keep:
            return False
        return self._accept is None or self._accept(text)

    def neighbors(self, word: str) -> list[Candidate]:
        """The k nearest tokens (or all above `min_cosine`) before any filter, best first."""
        self._fill([word])
        return [Candidate(self._texts[i].strip(), cosine) for i, cosine in self._nearest[word]]

    def cosine(self, a: str, b: str) -> float:
        """Cosine of two words, in [-1, 1]; 0 where one of them has no tokens."""
        return self.cosines(a, [b])[0]

    def cosines(self, word: str, others: Sequence[str]) -> list[float]:
        """Cosine of a word with each of others; see `cosine`."""
        v_D = self.vector(word)
        pairs = [(v_D, self.vector(other)) for other in others]
        return [0.0 if a is None or b is None else float(np.clip((a * b).sum(), -1, 1)) for a, b in pairs]

    def vector(self, word: str) -> np.ndarray | None:
        """A word's direction, float64 of shape [D] and length 1, or None where it has no tokens."""
        ids = self.token_ids(word)
        if not ids:
            return None
        mean_D = self._rows_VD[list(ids)].astype(np.float64).mean(axis=0)
        length = float(np.sqrt((mean_D * mean_D).sum()))
        return mean_D / length if length > 0 else None

    def token_ids(self, word: str) -> tuple[int, ...]:
        """The tokens that stand for a word: its own with a space before it, without, or the several it is made of."""
        single = self._first.get(word, self._later.get(word))
        if single is not None:
            return (single,)
        ids = self._tokenize(" " + word) if self._tokenize is not None else self._split(word)
        kept = [i for i in ids if 0 <= i < len(self._keys) and self._keys[i]]  # a lone space is no part of the word
        return tuple(kept) if all(self._usable_V[i] for i in kept) else ()

    def _split(self, word: str) -> list[int]:
        """The longest tokens from the left; nothing where they do not make the whole word."""
        found: list[int] = []
        at = 0
        while at < len(word):
            for end in range(len(word), at, -1):
                piece = word[at:end]
                i = self._later.get(piece) if at else self._first.get(piece, self._later.get(piece))
                if i is not None:
                    found.append(i)
                    at = end
                    break
            else:
                return []
        return found

    # --- neighbors ---------------------------------------------------------------------------------------------------

    def _fill(self, words: Iterable[str]) -> None:
        """Compute the neighbors of words by blocks of one matrix product each."""
        new = [word for word in dict.fromkeys(words) if word not in self._nearest]
        pairs = [(word, None if self.k == 0 else self.vector(word)) for word in new]
        self._nearest.update((word, []) for word, v_D in pairs if v_D is None)
        known = [(word, v_D) for word, v_D in pairs if v_D is not None]
        step = max(1, _SIMILARITIES // max(1, len(self._rows_VD)))
        for start in range(0, len(known), step):
            block = known[start : start + step]
            queries_WD = np.stack([v_D for _, v_D in block]).astype(np.float32)
            cosines_WV = queries_WD @ self._rows_VD.T
            cosines_WV[:, self._unusable] = -np.inf
            for (word, v_D), cosines_V in zip(block, cosines_WV):
                self._nearest[word] = self._count(word, v_D, cosines_V)

    def _count(self, word: str, v_D: np.ndarray, cosines_V: np.ndarray) -> list[tuple[int, float]]:
        """The first k of a word's ranked neighbors, or those above the threshold."""
        own = self.token_ids(word)
        seen = {word.casefold()}
        found: list[tuple[int, float]] = []
        for i, cosine in self._ranked(v_D, cosines_V):
            if self.min_cosine is not None and cosine < self.min_cosine:
                break
            if own == (i,) or (self.distinct and (self._shadowed[i] or self._keys[i] in seen)):
                continue
            seen.add(self._keys[i])
            found.append((i, cosine))
            if self.min_cosine is None and len(found) == self.k:
                break
        return found

    def _ranked(self, v_D: np.ndarray, cosines_V: np.ndarray) -> Iterator[tuple[int, float]]:
        """Tokens by falling cosine, equal ones by id, made in shortlists that grow as long as more is asked for.

        The matrix product's last digits depend on how many words it had; the shortlist is scored again in float64, one
        row at a time, so that the order never does.
        """
        usable = len(cosines_V) - len(self._unusable)
        size, given = 4 * self.k + 32, 0
        while given < usable:
            size = min(size, usable)
            bar = float(np.partition(cosines_V, len(cosines_V) - size)[len(cosines_V) - size]) - _SLACK
            ids = np.flatnonzero(cosines_V >= bar)
            exact = np.clip((self._rows_VD[ids].astype(np.float64) * v_D).sum(axis=1), -1, 1)
            order = np.lexsort((ids, -exact))
            # Whoever is missing from the shortlist lies below the bar, by the slack at most above it.
            safe = int((exact >= bar + _SLACK / 2).sum()) if size < usable else usable
            for place in order[given:safe]:
                yield int(ids[place]), float(exact[place])
            given, size = max(given, safe), 4 * size


class _Tokenize:
    """A tokenizer as a function from text to ids; its fast kind must not be called by two threads at once."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._lock = threading.Lock()

    def __call__(self, text: str) -> list[int]:
        with self._lock:
            return [int(i) for i in self.tokenizer.encode(text, add_special_tokens=False)]

    def __getstate__(self) -> dict[str, Any]:
        return {"tokenizer": self.tokenizer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["tokenizer"])  # type: ignore[misc]


def _check_options(k: int, min_cosine: float | None, morph_filter: str, marks: str | None) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 0:
        raise ConfigError(f"k is a number of neighbors, not {k!r}.", "Use 0 (off) or more; the paper has 10.")
    if min_cosine is not None and not -1 <= min_cosine <= 1:
        raise ConfigError(f"min_cosine is a cosine, not {min_cosine!r}.", "Use a number from -1 to 1, such as 0.5.")
    if morph_filter not in get_args(MorphFilter):
        raise ConfigError(f"Unknown morph_filter {morph_filter!r}.", f"Use {', '.join(get_args(MorphFilter))}.")
    if marks is not None and marks not in get_args(Marks):
        raise ConfigError(f"Unknown marks {marks!r}.", f"Use {', '.join(get_args(Marks))}, or leave it out.")


def _unit_rows(matrix_VD: Any, n_tokens: int) -> np.ndarray:
    """Rows of length 1 (rows of zeros stay zero), float32 of shape [V, D], a copy.

    Raises:
        ConfigError: The shape is wrong.
        ModelError: The values cannot be used.
    """
    shape = tuple(getattr(matrix_VD, "shape", ()))
    if len(shape) != 2 or 0 in shape or n_tokens == 0:
        raise ConfigError(
            f"An embedding matrix has a row for each token, not the shape {shape} for {n_tokens} tokens.",
            "Pass the weight of the model's input embeddings and the tokens by id.",
        )
    rows_VD = np.empty((min(shape[0], n_tokens), shape[1]), dtype=np.float32)
    for start in range(0, len(rows_VD), _BLOCK):
        stop = min(start + _BLOCK, len(rows_VD))
        block_BD = _as_float64(matrix_VD[start:stop])
        if not np.isfinite(block_BD).all():
            raise ModelError(
                "The input embeddings hold NaN or infinity.", "The model is broken; fetch or save it again."
            )
        top_B1 = np.abs(block_BD).max(axis=1, keepdims=True)
        block_BD /= np.where(top_B1 > 0, top_B1, 1)  # first to a common size: squares of tiny numbers would vanish
        length_B1 = np.sqrt((block_BD * block_BD).sum(axis=1, keepdims=True))
        rows_VD[start:stop] = block_BD / np.where(length_B1 > 0, length_B1, 1)
    return rows_VD


def _as_float64(block: Any) -> np.ndarray:
    """Some rows as a float64 array, from an array or from a tensor of any device and number type."""
    if isinstance(block, np.ndarray):
        if block.dtype.kind != "f":
            raise ModelError(f"Embeddings of the type {block.dtype} cannot be read.", "They must be real numbers.")
        return block.astype(np.float64)
    hint = "Load the model unpacked (fp32, bf16 or fp16), or name another one as surrogate."
    if block.device.type == "meta":
        raise ModelError("The model is on the meta device, so its embeddings hold no numbers.", hint)
    if block.is_quantized:
        block = block.dequantize()
    if not block.is_floating_point():
        raise ModelError(f"The model's embeddings are packed as {block.dtype} and cannot be read.", hint)
    return np.array(block.detach().double().cpu())


def _find_marks(tokens: Sequence[str | None]) -> Marks:
    """The marks that most tokens bear; a few of any kind can be text (`##` in Markdown)."""
    prefixes: dict[Marks, str] = {"sentencepiece": SPACE, "byte": BYTE_SPACE, "wordpiece": "##"}
    counts = {
        kind: sum(token is not None and token.startswith(mark) for token in tokens) for kind, mark in prefixes.items()
    }
    best: Marks = max(prefixes, key=lambda kind: counts[kind])
    return best if counts[best] else "plain"


def _readings(tokens: Sequence[str | None], marks: Marks) -> tuple[list[str], list[bool]]:
    """What each token reads in a text, and whether it begins a word."""
    spelled = [token or "" for token in tokens]
    if marks == "plain":
        return spelled, [True] * len(spelled)
    if marks == "wordpiece":
        inner = [token.startswith("##") and len(token) > 2 for token in spelled]
        return [token[2:] if later else token for token, later in zip(spelled, inner)], [not later for later in inner]
    if marks == "byte":
        from tokenizers.decoders import ByteLevel

        decoder = ByteLevel()
        texts = [decoder.decode([token]) for token in spelled]  # parts of a character read as U+FFFD
    else:
        texts = [token.replace(SPACE, " ") for token in spelled]
    return texts, [text[:1] == " " and text[1:2].strip() != "" for text in texts]


def _is_latin(text: str) -> bool:
    """Whether a text is a word of Latin letters, with apostrophes and hyphens inside."""
    if not text or not text[0].isalpha() or not (text[-1].isalpha() or unicodedata.combining(text[-1])):
        return False
    return all(
        unicodedata.name(char, "").startswith("LATIN ")
        if char.isalpha()
        else char in "'\u2019-" or unicodedata.combining(char)
        for char in text
    )


def _is_variant(word: str, text: str) -> bool:
    """Whether a text is a form of a word, or spelled nearly the same."""
    from rapidfuzz.distance import DamerauLevenshtein

    short, long = sorted((_stem(word), _stem(text)), key=len)
    if short and long.startswith(short) and len(long) - len(short) <= 3:
        return True
    return DamerauLevenshtein.distance(word, text, score_cutoff=2) <= min(2, 0.34 * len(word))


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    import snowballstemmer

    return str(snowballstemmer.stemmer("porter").stemWord(word))  # a new one, for they keep their state

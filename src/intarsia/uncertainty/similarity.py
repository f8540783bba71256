"""How alike two answers are: the s(a, b) in [0, 1] that every consistency-based uncertainty is made of.

Similarity may have a direction. Throughout the room the first text of a pair is the premise: s(a, b) of a
natural-language-inference model says how far a entails b. Row 0 of a matrix belongs to the answer under test, so that
d_i = 1 - s(answer, candidate i), as in the released code; the spectral estimators take the mean of both directions.

Texts are cleaned before they are compared (`clean_text`), and no pair of texts is computed twice (`PairCache`).

Shape suffixes: P pairs, N texts, C classes of a classifier, B rows of a batch, T tokens.
"""

from __future__ import annotations

import inspect
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from intarsia.core.answers import normalize
from intarsia.core.encoder import Encode, Encoder, as_encode
from intarsia.core.errors import BackendError, ConfigError, ModelError
from intarsia.uncertainty.generator import PLACEHOLDER

Pair: TypeAlias = tuple[str, str]

PAPER_NLI = "microsoft/deberta-large-mnli"
"""The paper's model of entailment."""
PAPER_STS = "cross-encoder/stsb-roberta-large"
"""The cross-encoder of the paper's appendix."""


@runtime_checkable
class Similarity(Protocol):
    """Says how alike texts are.

    A similarity for which s(a, b) = s(b, a) may say so by an attribute `symmetric = True`; it is then asked for one of
    the two only.

    Attributes:
        name: As it appears in reports.
    """

    name: str

    def pairs(self, pairs: Sequence[Pair]) -> np.ndarray:
        """Similarity of each (premise, hypothesis), in [0, 1]; float64 of shape (P,), in order."""


# --- Texts -----------------------------------------------------------------------------------------------------------

_ENDS = re.compile(
    r"<\|(?:im_end|endoftext|eot_id|eom_id|end_of_text|end|return|eot|assistant_end)\|>"
    r"|<(?:end_of_turn|end_of_utterance|turn\||eos|pad)>|</s>|\[EOS\]"
)
_BOLD = re.compile(r"</?(?:b|strong)>|\*\*(?=\S)(.+?)(?<=\S)\*\*|^\s*\*\*|\*\*\s*$", re.IGNORECASE)
_LEAD = re.compile(r"^\s*(?:the\s+)?(?:final\s+|correct\s+)?answer(?:\s+is)?\s*:\s*", re.IGNORECASE)


def clean_text(text: str, placeholder: str = PLACEHOLDER) -> str:
    """An answer as it is compared: without chat end tokens, bold marks, an "Answer:" before it, and what follows it.

    An end token ends the line, and only the first line that says something counts. What is left of an empty text is a
    placeholder, because similarity models make what they like of an empty string. Cleaning twice changes nothing.

    Args:
        text: As generated.
        placeholder: Stands for an empty text.
    """
    text = _ENDS.sub("\n", text)
    before = None
    while before != text:  # taking one mark away can make another one: "**Answer:** Paris"
        before = text
        text = text.strip()
        text = _LEAD.sub("", _BOLD.sub(lambda found: found[1] or "", text)).strip()
        text = text.split("\n", 1)[0] if text else text
    return text or placeholder


# --- The cache -------------------------------------------------------------------------------------------------------


class PairCache:
    """A similarity that computes each different pair once; usable from several threads.

    Values are checked on their way in: they must be one a pair, finite, and in [0, 1].

    Args:
        similarity: What is asked for new pairs.
        reflexive: Whether equal texts are alike by 1 without asking. A text entails itself; classifiers put that at
            0.9 and more, not at 1. False asks them, as the released code does.
        size: Most pairs that are kept; the oldest go first.

    Attributes:
        name: The similarity's.
        asked: Pairs asked for.
        computed: Pairs that the similarity was asked for.
    """

    symmetric: bool

    def __init__(self, similarity: Similarity, *, reflexive: bool = True, size: int = 1_000_000) -> None:
        if size < 1:
            raise ConfigError(f"A cache of {size} pairs keeps nothing.", "Use 1 or more; a million is usual.")
        self.similarity = similarity
        self.name = similarity.name
        self.symmetric = bool(getattr(similarity, "symmetric", False))
        self.reflexive = reflexive
        self.size = size
        self.asked = 0
        self.computed = 0
        self._known: dict[Pair, float] = {}
        self._lock = threading.Lock()

    def pairs(self, pairs: Sequence[Pair]) -> np.ndarray:
        """See `Similarity.pairs`; all new pairs go to the similarity in one call."""
        keys = [(b, a) if self.symmetric and b < a else (a, b) for a, b in pairs]
        with self._lock:
            found: dict[Pair, float] = {}
            new: list[Pair] = []
            for key in dict.fromkeys(keys):
                if self.reflexive and key[0] == key[1]:
                    found[key] = 1.0
                elif key in self._known:
                    found[key] = self._known[key]
                else:
                    new.append(key)
            if new:
                computed = dict(zip(new, checked(self.similarity.pairs(new), len(new), self.name).tolist()))
                found.update(computed)
                self._known.update(computed)
                self.computed += len(new)
                for key in list(self._known)[: max(0, len(self._known) - self.size)]:
                    del self._known[key]
            self.asked += len(keys)
        return np.array([found[key] for key in keys], dtype=np.float64)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


def checked(values: Any, count: int, name: str) -> np.ndarray:
    """Similarities as float64 of shape (P,); rounding beyond [0, 1] is cut off.

    Raises:
        ConfigError: They are not one a pair, or lie outside [0, 1].
        ModelError: They hold NaN.
    """
    found = values.detach().cpu().float() if hasattr(values, "detach") else values
    try:
        values_P = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"The similarity {name} gave no numbers.", "It must give one number a pair.") from error
    if values_P.shape != (count,):
        raise ConfigError(
            f"The similarity {name} gave values of shape {values_P.shape} for {count} pairs.",
            "It must give one number a pair, in order.",
        )
    if np.isnan(values_P).any():
        raise ModelError(f"The similarity {name} gave NaN.", "Load its model in float32, or use another.")
    if count and (values_P.min() < -1e-3 or values_P.max() > 1 + 1e-3):
        raise ConfigError(
            f"The similarity {name} gave {values_P.min():.4g} to {values_P.max():.4g}.",
            "Map it to [0, 1], where 1 says that two texts mean the same.",
        )
    return np.clip(values_P, 0.0, 1.0)


def similarity_matrix(similarity: Similarity, texts: Sequence[str]) -> np.ndarray:
    """Similarity of every text (row, premise) to every text (column, hypothesis); float64 of shape (N, N)."""
    values = similarity.pairs([(a, b) for a in texts for b in texts])
    return np.asarray(values, dtype=np.float64).reshape(len(texts), len(texts))


# --- By words --------------------------------------------------------------------------------------------------------


class Exact:
    """1 where two answers are equal but for case, accents, articles, punctuation and spaces, 0 elsewhere."""

    name = "exact"
    symmetric = True

    def pairs(self, pairs: Sequence[Pair]) -> np.ndarray:
        """See `Similarity.pairs`."""
        form = _forms(pairs)
        return np.array([float(form[a] == form[b]) for a, b in pairs], dtype=np.float64)


class Lexical:
    """Words in common, after the normalization of `Exact`.

    Args:
        measure: `jaccard`: shared words by all words, as sets. `rouge-l`: F1 of the longest common subsequence.
    """

    symmetric = True

    def __init__(self, measure: Literal["jaccard", "rouge-l"] = "jaccard") -> None:
        if measure not in ("jaccard", "rouge-l"):
            raise ConfigError(f"There is no lexical measure {measure!r}.", "Use jaccard or rouge-l.")
        self.measure = measure
        self.name: str = measure

    def pairs(self, pairs: Sequence[Pair]) -> np.ndarray:
        """See `Similarity.pairs`."""
        words = {text: form.split() for text, form in _forms(pairs).items()}
        compare = _jaccard if self.measure == "jaccard" else _rouge_l
        return np.array([compare(words[a], words[b]) for a, b in pairs], dtype=np.float64)


def _forms(pairs: Sequence[Pair]) -> dict[str, str]:
    return {text: normalize(text) for text in dict.fromkeys(text for pair in pairs for text in pair)}


def _jaccard(a: Sequence[str], b: Sequence[str]) -> float:
    union = len({*a, *b})
    return len(set(a) & set(b)) / union if union else 1.0


def _rouge_l(a: Sequence[str], b: Sequence[str]) -> float:
    from rapidfuzz.distance import LCSseq

    return 2.0 * LCSseq.similarity(a, b) / (len(a) + len(b)) if a or b else 1.0


# --- By models -------------------------------------------------------------------------------------------------------


class Embedding:
    """Cosine of sentence vectors, mapped to [0, 1].

    Args:
        encoder: The encoder, by name loaded when first needed.
        mapping: `half`: (1 + cosine) / 2. `clip`: the cosine, with 0 for negative ones; it spreads short answers more.
        name: As it appears in reports.
    """

    symmetric = True

    def __init__(
        self, encoder: Encoder = "minilm-l6", *, mapping: Literal["half", "clip"] = "half", name: str = ""
    ) -> None:
        if mapping not in ("half", "clip"):
            raise ConfigError(f"There is no mapping {mapping!r}.", "Use half or clip.")
        self.mapping = mapping
        self._encoder = encoder
        # A name is loaded when first needed; an object that is no encoder is refused at once.
        self._encode: Encode | None = None if isinstance(encoder, str | os.PathLike) else as_encode(encoder)
        given = os.fspath(encoder) if isinstance(encoder, str | os.PathLike) else ""
        known = given or getattr(getattr(encoder, "resolved", encoder), "name", "") or type(encoder).__name__
        self.name = name or f"embedding:{known}"

    def pairs(self, pairs: Sequence[Pair]) -> np.ndarray:
        """See `Similarity.pairs`; each different text is encoded once, all in one call."""
        texts = list(dict.fromkeys(text for pair in pairs for text in pair))
        if not texts:
            return np.zeros(0)
        if self._encode is None:
            self._encode = as_encode(self._encoder)
        found = self._encode(texts)
        rows_ND = np.asarray(found.detach().cpu().float() if hasattr(found, "detach") else found, dtype=np.float64)
        if rows_ND.ndim != 2 or len(rows_ND) != len(texts):
            raise ConfigError(
                f"The encoder gave vectors of shape {rows_ND.shape} for {len(texts)} texts.",
                "It must give one vector a text.",
            )
        if not np.isfinite(rows_ND).all():
            raise ModelError("The sentence encoder gave NaN or infinite numbers.", "Load it in float32.")
        length_N1 = np.linalg.norm(rows_ND, axis=1, keepdims=True)
        rows_ND = rows_ND / np.where(length_N1 > 0, length_N1, 1.0)
        place = {text: row for row, text in enumerate(texts)}
        a_PD, b_PD = (rows_ND[[place[pair[side]] for pair in pairs]] for side in (0, 1))
        cosine_P = np.clip((a_PD * b_PD).sum(1), -1.0, 1.0)
        return (1.0 + cosine_P) / 2.0 if self.mapping == "half" else np.maximum(cosine_P, 0.0)


class PairClassifier:
    """A sequence classifier that reads two texts together; what `NLI` and `CrossEncoder` have in common.

    Args:
        model: Name or folder, loaded when first needed, or a model and its tokenizer.
        device: `auto` takes a GPU where there is one. Only for a name.
        dtype: `auto`: bf16 on a GPU that has it, else float32. Only for a name.
        window: Most tokens of a pair; what the model can read when omitted. The longer text is cut first.
        batch_tokens: Most tokens of a batch, padding counted; 16384 on a CPU and 131072 on a GPU when omitted, so that
            all pairs of a short question go in one batch.
        offline: Whether the network stays untouched; the environment decides when omitted.
    """

    def __init__(
        self,
        model: str | tuple[Any, Any],
        *,
        device: str = "auto",
        dtype: Literal["auto", "fp32", "bf16"] = "auto",
        window: int | None = None,
        batch_tokens: int | None = None,
        offline: bool | None = None,
    ) -> None:
        for label, value in (("window", window), ("batch_tokens", batch_tokens)):
            if value is not None and value < 8:
                raise ConfigError(f"{label} is {value}.", "Use 8 tokens or more, or leave it out.")
        if dtype not in ("auto", "fp32", "bf16"):
            raise ConfigError(f"There is no number type {dtype!r} here.", "Use auto, fp32 or bf16.")
        if not isinstance(model, str) and not (isinstance(model, tuple) and len(model) == 2):
            raise ConfigError(f"{type(model).__name__} is no classifier.", "Give a name, or (model, tokenizer).")
        self.label = model if isinstance(model, str) else _label(model[0])
        self._loaded = None if isinstance(model, str) else model
        if self._loaded is not None:
            self._loaded[0].eval()
        self._options: dict[str, Any] = {"device": device, "dtype": dtype, "offline": offline}
        self._window, self._batch_tokens = window, batch_tokens

    @property
    def model(self) -> Any:
        """The model, in evaluation mode."""
        return self._load()[0]

    @property
    def tokenizer(self) -> Any:
        """Its tokenizer."""
        return self._load()[1]

    def _load(self) -> tuple[Any, Any]:
        if self._loaded is None:
            self._loaded = load_classifier(self.label, **self._options)
        return self._loaded

    @property
    def window(self) -> int:
        """Most tokens of a pair."""
        return min(_room(self.model, self.tokenizer), self._window or 10**9)

    def logits(self, pairs: Sequence[Pair]) -> np.ndarray:
        """The classifier's outputs, float32 of shape (P, C); pairs of like length share a batch."""
        ids = self.tokenizer(
            [a for a, _ in pairs], [b for _, b in pairs], truncation="longest_first", max_length=self.window
        )
        lengths = [len(row) for row in ids["input_ids"]]
        most = self._batch_tokens or (16384 if self.model.device.type == "cpu" else 131072)
        out: dict[int, np.ndarray] = {}
        group: list[int] = []
        for i in sorted(range(len(pairs)), key=lambda i: lengths[i]):
            if group and ((len(group) + 1) * lengths[i] > most or self.tokenizer.pad_token_id is None):
                out.update(zip(group, self._forward(ids, group)))
                group = []
            group.append(i)
        out.update(zip(group, self._forward(ids, group)))
        return np.stack([out[i] for i in range(len(pairs))])

    def _forward(self, ids: Mapping[str, list[list[int]]], group: list[int]) -> np.ndarray:
        import torch

        width = max(len(ids["input_ids"][i]) for i in group)
        fill = {"input_ids": self.tokenizer.pad_token_id, "token_type_ids": self.tokenizer.pad_token_type_id}
        batch = {
            key: torch.tensor([[*rows[i], *[fill.get(key) or 0] * (width - len(rows[i]))] for i in group])
            for key, rows in ids.items()
        }
        try:
            with torch.inference_mode():
                logits_BC = self.model(**{key: value.to(self.model.device) for key, value in batch.items()}).logits
        except torch.OutOfMemoryError:
            if len(group) == 1:
                raise
            half = len(group) // 2
            return np.concatenate([self._forward(ids, group[:half]), self._forward(ids, group[half:])])
        rows_BC: np.ndarray = logits_BC.float().cpu().numpy()
        if not np.isfinite(rows_BC).all():
            raise ModelError(f"{self.label} gave NaN or infinite numbers.", "Load it with dtype fp32, or use another.")
        return rows_BC


class NLI:
    """Similarity by a natural-language-inference cross-encoder. It has a direction: the first text is the premise.

    Args:
        model: Name or folder of a sequence classifier, or the model and its tokenizer.
        affinity: `entail`: the probability that a entails b. `contra`: 1 - the probability that a contradicts b.
        labels: Names of the classes in order, where the model's configuration does not name them.
        options: Those of `PairClassifier`.

    Raises:
        ConfigError: An option is out of range.
        ModelError: When first used: no class, or more than one, is named entailment (contradiction).
    """

    symmetric = False

    def __init__(
        self,
        model: str | tuple[Any, Any] = PAPER_NLI,
        affinity: Literal["entail", "contra"] = "entail",
        *,
        labels: Sequence[str] | None = None,
        name: str = "",
        **options: Any,
    ) -> None:
        if affinity not in ("entail", "contra"):
            raise ConfigError(f"There is no affinity {affinity!r}.", "Use entail or contra.")
        self.affinity = affinity
        self.classifier = PairClassifier(model, **options)
        self.name = name or f"nli-{affinity}:{self.classifier.label}"
        self._labels = labels
        self._column: int | None = None
        if not isinstance(model, str):
            self._column = self._find()

    def pairs(self, pairs: Sequence[Pair]) -> np.ndarray:
        """See `Similarity.pairs`; cross-encoders read all pairs in as few padded batches as fit."""
        if not pairs:
            return np.zeros(0)
        if self._column is None:
            self._column = self._find()
        logits_PC = self.classifier.logits(pairs).astype(np.float64)
        odds_PC = np.exp(logits_PC - logits_PC.max(axis=1, keepdims=True))
        share_P: np.ndarray = odds_PC[:, self._column] / odds_PC.sum(axis=1)
        return share_P if self.affinity == "entail" else 1.0 - share_P

    def _find(self) -> int:
        config = self.classifier.model.config
        named = dict(enumerate(self._labels)) if self._labels is not None else dict(config.id2label)
        labels = {int(index): str(label).lower() for index, label in named.items()}
        wanted = "entail" if self.affinity == "entail" else "contradict"
        found = [index for index, label in labels.items() if label.startswith(wanted)]
        if len(found) != 1 or (self._labels is not None and len(labels) != int(config.num_labels)):
            raise ModelError(
                f"The classes of {self.classifier.label} are {', '.join(labels.values())}; not one says {wanted}.",
                "Use a natural-language-inference model, or name its classes in order: labels=[...].",
            )
        return found[0]


class CrossEncoder:
    """Similarity by a cross-encoder with one output, such as those trained on semantic textual similarity.

    Args:
        model: Name or folder, or the model and its tokenizer.
        activation: `sigmoid`, `identity` (the output is in [0, 1] already and is cut off there), or `auto`: what the
            model's configuration names, else the sigmoid.
        options: Those of `PairClassifier`.

    Raises:
        ConfigError: An option is out of range.
        ModelError: When first used: the model has more than one output.
    """

    symmetric = False

    def __init__(
        self,
        model: str | tuple[Any, Any] = PAPER_STS,
        *,
        activation: Literal["auto", "sigmoid", "identity"] = "auto",
        name: str = "",
        **options: Any,
    ) -> None:
        if activation not in ("auto", "sigmoid", "identity"):
            raise ConfigError(f"There is no activation {activation!r}.", "Use auto, sigmoid or identity.")
        self.activation = activation
        self.classifier = PairClassifier(model, **options)
        self.name = name or f"sts:{self.classifier.label}"

    def pairs(self, pairs: Sequence[Pair]) -> np.ndarray:
        """See `Similarity.pairs`."""
        if not pairs:
            return np.zeros(0)
        logits_PC = self.classifier.logits(pairs).astype(np.float64)
        if logits_PC.shape[1] != 1:
            raise ModelError(
                f"{self.classifier.label} has {logits_PC.shape[1]} outputs; a similarity has one.",
                "Use a cross-encoder for textual similarity; NLI takes classifiers of entailment.",
            )
        if self._named() == "identity":
            return np.clip(logits_PC[:, 0], 0.0, 1.0)
        return 0.5 * (1.0 + np.tanh(logits_PC[:, 0] / 2.0))

    def _named(self) -> str:
        if self.activation != "auto":
            return self.activation
        config = self.classifier.model.config
        of_library = getattr(config, "sentence_transformers", None) or {}
        named = of_library.get("activation_fn") if isinstance(of_library, dict) else None
        named = named or getattr(config, "sbert_ce_default_activation_function", None) or ""
        return "identity" if str(named).lower().endswith("identity") else "sigmoid"


def load_classifier(
    name_or_folder: str, *, device: str = "auto", dtype: str = "auto", offline: bool | None = None
) -> tuple[Any, Any]:
    """A sequence classifier and its tokenizer, ready to run.

    Args:
        name_or_folder: As the catalog takes it.
        device: `auto`, `cpu`, `cuda`, ...
        dtype: `auto` (bf16 on a GPU that has it, else float32), `fp32` or `bf16`.
        offline: Whether the network stays untouched.

    Raises:
        ConfigError: There is no such device.
        ModelError: There is no such model here, it cannot be loaded safely, or it is no sequence classifier.
        BackendError: The hub does not answer.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    from intarsia.core.catalog import resolve

    try:
        resolved = resolve(name_or_folder, offline=offline)
    except (ModelError, BackendError) as error:
        instead = "Without a cross-encoder, use the similarity embedding, jaccard or exact."
        raise type(error)(error.message, f"{error.hint} {instead}") from error
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    half = dtype == "bf16" or (dtype == "auto" and device.startswith("cuda") and torch.cuda.is_bf16_supported())
    problem = f"{name_or_folder} cannot be loaded as a sequence classifier"
    hint = f"Use one with safetensors weights, such as {PAPER_NLI}."
    try:
        tokenizer = AutoTokenizer.from_pretrained(resolved.path, trust_remote_code=False, local_files_only=True)
        loaded: Any = AutoModelForSequenceClassification.from_pretrained(
            resolved.path,
            dtype=torch.bfloat16 if half else torch.float32,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    # The loaders raise what each kind of wrong folder makes them stumble over.
    except Exception as error:
        raise ModelError(f"{problem}: {(str(error).strip().splitlines() or [''])[0][:160]}", hint) from error
    model, info = loaded
    missing = sorted(info.get("missing_keys", ()))
    if missing:
        raise ModelError(f"{problem}: it lacks {missing[0]} and would answer at random.", hint)
    try:
        return model.to(device).eval(), tokenizer
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"Device {device} is not available here.", "Use cpu or auto.") from error


def _room(model: Any, tokenizer: Any) -> int:
    """Tokens that a model can read at once."""
    limits = [int(getattr(model.config, "max_position_embeddings", 0) or 0)]
    for name, module in model.named_modules():
        # RoBERTa and its kin begin to count positions after the padding token's number.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            limits.append(module.num_embeddings - module.padding_idx - 1)
    said = int(getattr(tokenizer, "model_max_length", 0) or 0)
    limits.append(said if said < 10**9 else 0)
    return min((limit for limit in limits if limit > 0), default=512)


def _label(model: Any) -> str:
    return str(getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__)


# --- Whatever a user has ---------------------------------------------------------------------------------------------


class FunctionSimilarity:
    """A similarity made of a function.

    Args:
        function: `f(a, b) -> number`, or `f(list of pairs) -> numbers`; told apart by the arguments that it takes.
        name: As it appears in reports.
        symmetric: Whether f(a, b) = f(b, a).

    Raises:
        ConfigError: It takes neither one nor two arguments.
    """

    def __init__(self, function: Callable[..., Any], name: str = "", *, symmetric: bool = False) -> None:
        self._function = function
        self._many = _takes(function) == 1
        self.name = name or str(getattr(function, "__name__", type(function).__name__))
        self.symmetric = symmetric

    def pairs(self, pairs: Sequence[Pair]) -> np.ndarray:
        """See `Similarity.pairs`."""
        if self._many:
            return checked(self._function(list(pairs)), len(pairs), self.name)
        return checked([self._function(a, b) for a, b in pairs], len(pairs), self.name)


def _takes(function: Callable[..., Any]) -> int:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return 2  # a built-in function that does not say
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in places)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters) or needed == 2 or (needed == 0 and len(places) >= 2):
        return 2
    if needed == 1:
        return 1
    raise ConfigError(
        f"{getattr(function, '__name__', 'The similarity')} takes {needed} arguments.",
        "Give f(a, b) -> number, or f(pairs) -> numbers.",
    )


SimilarityLike: TypeAlias = "Similarity | Callable[..., Any] | str"
"""A similarity, a function of two texts or of pairs, or a name (see `as_similarity`)."""


def as_similarity(given: SimilarityLike, *, reflexive: bool = True) -> PairCache:
    """A cached similarity, of whatever was given; a `PairCache` comes back as it is.

    Names: `exact`, `jaccard`, `rouge-l`, `embedding`, `embedding:ENCODER`, `nli` and `nli-contra` (the paper's model),
    `nli:MODEL`, `nli-contra:MODEL`, `sts`, `sts:MODEL`.

    Args:
        given: A similarity, a function, or a name.
        reflexive: See `PairCache`.

    Raises:
        ConfigError: It is nothing of that kind.
    """
    if isinstance(given, PairCache):
        return given
    if isinstance(given, str):
        return PairCache(_by_name(given), reflexive=reflexive)
    if isinstance(given, Similarity):
        return PairCache(given, reflexive=reflexive)
    if callable(given):
        return PairCache(FunctionSimilarity(given), reflexive=reflexive)
    raise ConfigError(
        f"{type(given).__name__} is no similarity.", "Give a name, such as jaccard, or f(a, b) -> number."
    )


def _by_name(name: str) -> Similarity:
    kind, _, model = name.strip().partition(":")
    if kind == "exact" and not model:
        return Exact()
    if kind in ("lexical", "jaccard") and not model:
        return Lexical()
    if kind == "rouge-l" and not model:
        return Lexical("rouge-l")
    if kind == "embedding":
        return Embedding(model or "minilm-l6")
    if kind in ("nli", "nli-entail"):
        return NLI(model or PAPER_NLI)
    if kind == "nli-contra":
        return NLI(model or PAPER_NLI, "contra")
    if kind == "sts":
        return CrossEncoder(model or PAPER_STS)
    raise ConfigError(
        f"There is no similarity {name!r}.",
        "Use exact, jaccard, rouge-l, embedding[:ENCODER], nli[:MODEL], nli-contra[:MODEL] or sts[:MODEL].",
    )

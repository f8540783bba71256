"""MaskedLMSource: what a masked language model would write in a word's place (paper, third source of candidates).

The word is replaced by the mask token in the whole question, and every token whose probability at the mask exceeds tau
is a candidate. Reconstructed by us, since the paper does not say: pieces of words, punctuation and the word itself are
left out, and a question longer than the model's window is cut to a window around the mask.

`train_masked_lm` makes a small masked model of a user's own questions where no weights are at hand.

Shape suffixes: B rows, T tokens, N chosen positions, D hidden size, V vocabulary.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from intarsia.core.catalog.cache import Say
from intarsia.core.errors import BackendError, ConfigError, DataError, ModelError
from intarsia.core.journal import Journal, content_key
from intarsia.core.target import Progress
from intarsia.robustness.candidates import Candidate
from intarsia.robustness.words import Span, Word, words

if TYPE_CHECKING:
    import torch
    from transformers import BertForMaskedLM, PreTrainedTokenizerFast

OWNERS = {
    "bert-": "google-bert",
    "distilbert-": "distilbert",
    "albert-": "albert",
    "roberta-": "FacebookAI",
    "xlm-roberta-": "FacebookAI",
    "distilroberta-": "distilbert",
}
"""The hub's owners of the masked models that papers call by a bare name, such as bert-large-uncased."""

_KEPT = 0.01  # A cache holds all tokens above this probability, so that a sweep of tau runs the model once.
_MEMORY = 1 << 18  # Most masked positions held in memory.
_CHUNK = 4096  # Rows that are tokenized at a time.
_PASS_TOKENS = 1 << 14  # Most tokens of one forward pass.
_CLITICS = frozenset(("s", "t", "d", "m", "ll", "re", "ve"))  # What WordPiece leaves of 's and n't as tokens.
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_IGNORED = -100
_OFFSETS = (-1, 1, -2, 2)  # Where the heads of a trained model's first layer look at the beginning.
_SPREAD = 0.06  # Of new weights; BERT's 0.02 is for a width of 768 and leaves a narrow model too flat.


class WordTokens:
    """Which tokens of a vocabulary are words by themselves.

    WordPiece marks what goes on a word (`##ing`), byte-level BPE and SentencePiece what begins one after a space. A
    vocabulary without marks holds whole words.

    Args:
        tokenizer: Any tokenizer of transformers.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._special = frozenset(tokenizer.all_special_ids)
        tokens = list(tokenizer.get_vocab())
        counts = {mark: sum(token.startswith(mark) for token in tokens) for mark in ("##", "\u0120", "\u2581")}
        mark = max(counts, key=lambda m: counts[m])
        # A few tokens of an ordinary vocabulary begin with one of these signs; as marks they are on a good part of it.
        self._mark = mark if counts[mark] > 0.02 * len(tokens) else ""
        self._known: dict[int, tuple[bool, str]] = {}

    def text(self, token: int, *, glued: bool = False, numbers: bool = True) -> str | None:
        """The word that a token stands for, None when it is a piece of one, punctuation or a special token.

        Args:
            token: Its id.
            glued: Whether the word begins the text or follows something other than a space, where a token without the
                mark of a word's beginning can be a whole word.
            numbers: Whether a token that holds a digit counts as a word.
        """
        if token in self._special:
            return None
        if token not in self._known:
            self._known[token] = self._read(token)
        begins, word = self._known[token]
        if not word or not (begins or (glued and self._mark != "##")):
            return None
        return word if numbers or not any(char.isnumeric() for char in word) else None

    def _read(self, token: int) -> tuple[bool, str]:
        """Whether the token begins a word, and its text, empty where that is no single word."""
        raw = self._tokenizer.convert_ids_to_tokens(token)
        if raw is None:
            return False, ""
        begins = not raw.startswith("##") if self._mark == "##" else raw.startswith(self._mark)
        text = self._tokenizer.convert_tokens_to_string([raw]).strip()
        if self._mark == "##" and text.lower() in _CLITICS:
            return False, ""
        found = words(text)
        whole = len(found) == 1 and (found[0].start, found[0].end) == (0, len(text))
        return begins, text if whole or (text.isalnum() and any(char.isnumeric() for char in text)) else ""


def glued(question: str, word: Word) -> bool:
    """Whether no space stands before a word: it begins the text, or follows an opening bracket or a line break."""
    return word.start == 0 or question[word.start - 1] != " "


class PseudoLikelihood(NamedTuple):
    """Pseudo-log-likelihood of a text: the sum over its tokens of their log-probability when masked, in nats."""

    total: float
    tokens: int


class _Row(NamedTuple):
    """Token ids of one masked text, and the place of the token that is asked for."""

    ids: list[int]
    at: int


class MaskedLMSource:
    """Proposes what a masked language model finds likely in a word's place (paper, step 3).

    All positions of all questions of a call go through the model in common batches, and the vocabulary head is applied
    to the masked positions only. Results are kept by question and position, on disk too where a cache is given.

    Args:
        model: A masked language model of transformers (`AutoModelForMaskedLM`); it is put in evaluation mode.
        tokenizer: Its tokenizer, with a mask token.
        tau: Tokens with a probability above this are candidates, so there are fewer than 1/tau of them; the paper uses
            0.1. From 1 on the source is off, and the model is not asked.
        batch_size: Rows of a forward pass; long ones come in smaller batches.
        device: Where the model is put; where it is when omitted.
        cache: File of a journal that keeps the results across runs, or an open journal. Results of several models may
            lie in one file.
        numbers: Whether tokens that hold a digit are proposed, as in the paper. They tend to change the mathematics.
        window: Use fewer tokens around the mask than the model takes.

    Attributes:
        name: `mlm`.
        tau: May be changed; no forward pass is needed for a new value of at least 0.01.

    Raises:
        ModelError: The model does not predict masked tokens, or the tokenizer has no mask token.
        ConfigError: An option is out of range.
    """

    name = "mlm"

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        tau: float = 0.1,
        batch_size: int = 64,
        device: str | None = None,
        cache: str | Path | Journal | None = None,
        numbers: bool = True,
        window: int | None = None,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}.", "Use 1 or more.")
        label = str(getattr(getattr(model, "config", None), "_name_or_path", "") or type(model).__name__)
        if getattr(tokenizer, "mask_token_id", None) is None:
            raise ModelError(
                f"{label} has no mask token, so it cannot fill a gap.",
                "Use a masked model (bert, roberta, ...), or CausalInfillSource for a model that continues text.",
            )
        self.tau = tau
        self.batch_size = batch_size
        self.numbers = numbers
        self.model = (model if device is None else model.to(device)).eval()
        self.tokenizer = tokenizer
        self._label = label
        self._tokens = WordTokens(tokenizer)
        self._mask: int = int(tokenizer.mask_token_id)
        self._before, self._after = _frame(tokenizer)
        self._window = self._room(window)
        self._lock = threading.RLock()
        self._memory: dict[tuple[str, int, int, float], list[tuple[str, float]]] = {}
        self._own_journal = cache is not None and not isinstance(cache, Journal)
        self._journal = Journal(cache) if isinstance(cache, str | Path) else cache
        self._fingerprint = fingerprint(self.model, tokenizer) if self._journal is not None else ""
        self._head_on_rows = self._check_head()

    @classmethod
    def load(
        cls,
        name_or_folder: str = "bert-large-uncased",
        *,
        tau: float = 0.1,
        batch_size: int = 64,
        device: str | None = None,
        cache: str | Path | Journal | None = None,
        numbers: bool = True,
        window: int | None = None,
        offline: bool | None = None,
        progress: Say | None = None,
    ) -> MaskedLMSource:
        """Load a masked language model by hub name or folder; safetensors only, and no code from the model.

        Args:
            name_or_folder: `org/name`, `org/name@revision`, a folder, or a bare name out of `OWNERS`.
            tau: See the constructor; so are `batch_size`, `cache`, `numbers` and `window`.
            batch_size: Rows of a forward pass.
            device: `cpu`, `cuda`, ...; a GPU where there is one when omitted.
            cache: Where results are kept.
            numbers: Whether tokens that hold a digit are proposed.
            window: Use fewer tokens than the model takes.
            offline: Whether the network stays untouched; INTARSIA_OFFLINE decides otherwise.
            progress: Takes one line at a time about the download.

        Raises:
            ModelError: There is no such model here, it cannot be loaded safely, or it is no masked language model.
            BackendError: The hub does not answer.
        """
        model, tokenizer = load_masked_lm(name_or_folder, device=device, offline=offline, progress=progress)
        return cls(model, tokenizer, tau=tau, batch_size=batch_size, cache=cache, numbers=numbers, window=window)

    @property
    def tau(self) -> float:
        """The probability that a candidate must exceed."""
        return self._tau

    @tau.setter
    def tau(self, value: float) -> None:
        if not value >= 0:
            raise ConfigError(f"tau is {value}.", "Use a probability, such as 0.1; above 1 the source is off.")
        self._tau = float(value)

    @property
    def window(self) -> int:
        """Tokens of a question, the mask among them, that the model sees at once."""
        return self._window

    def close(self) -> None:
        """Give up the cache's file, where this source opened it; results in memory stay."""
        if self._own_journal and self._journal is not None:
            self._journal.close()
            self._journal = None

    # --- Candidates --------------------------------------------------------------------------------------------------

    def propose(self, question: str, words: Sequence[Word]) -> list[list[Candidate]]:
        """Candidates for each word, most likely first; see `Source.propose`. The score is the probability."""
        return self.propose_many([question], [words])[0]

    def propose_many(
        self,
        questions: Sequence[str],
        words_lists: Sequence[Sequence[Word]],
        *,
        progress: Progress | None = None,
    ) -> list[list[list[Candidate]]]:
        """Candidates for the words of several questions, in common batches.

        Args:
            questions: The questions.
            words_lists: The words of each that may be changed.
            progress: Called with (done, total) masked positions.

        Returns:
            One list a question, in it one list a word.

        Raises:
            ModelError: The model gave NaN.
        """
        if len(questions) != len(words_lists):
            raise ValueError(f"{len(questions)} questions need as many lists of words, not {len(words_lists)}")
        if self.tau >= 1:
            return [[[] for _ in listed] for listed in words_lists]
        floor = min(self.tau, _KEPT)
        with self._lock:
            wanted = {
                (question, word.start, word.end, floor): word
                for question, listed in zip(questions, words_lists)
                for word in listed
            }
            found = self._recall(list(wanted))
            missing = [key for key in wanted if key not in found]
            for start in range(0, len(missing), _CHUNK):
                chunk = missing[start : start + _CHUNK]
                for group, kept in self._ask(chunk, [wanted[key] for key in chunk], floor):
                    fresh = {chunk[place]: row for place, row in zip(group, kept)}
                    found |= fresh
                    self._remember(fresh)
                    if progress is not None:
                        progress(len(found), len(wanted))
        return [
            [
                [
                    Candidate(text, score)
                    for text, score in found[question, word.start, word.end, floor]
                    if score > self.tau and (self.numbers or not any(char.isnumeric() for char in text))
                ]
                for word in listed
            ]
            for question, listed in zip(questions, words_lists)
        ]

    def _ask(
        self, keys: Sequence[tuple[str, int, int, float]], chosen: Sequence[Word], floor: float
    ) -> Iterator[tuple[list[int], list[list[tuple[str, float]]]]]:
        """Batch by batch: places in `keys`, and what the model has for each of them."""
        rows = self._masked([(question, start, end) for question, start, end, _ in keys])
        for group, logprobs_BV in self._logprobs(rows):
            probs_BV = logprobs_BV.exp()
            kept: list[list[tuple[int, float]]] = [[] for _ in group]
            row_N, token_N = (probs_BV > floor).nonzero(as_tuple=True)
            for row, token, p in zip(row_N.tolist(), token_N.tolist(), probs_BV[row_N, token_N].tolist()):
                kept[row].append((token, p))
            yield group, [self._read(pairs, keys[place][0], chosen[place]) for place, pairs in zip(group, kept)]

    def _read(self, pairs: list[tuple[int, float]], question: str, word: Word) -> list[tuple[str, float]]:
        """Tokens as words, best first, without the word itself. Spellings of one word keep the best probability."""
        own = {word.text.casefold(), self._normal(word.text).casefold()}
        best: dict[str, float] = {}
        for token, p in sorted(pairs, key=lambda pair: (-pair[1], pair[0])):
            text = self._tokens.text(token, glued=glued(question, word))
            if text is not None and text.casefold() not in own:
                best.setdefault(text, p)
        return list(best.items())

    def _normal(self, text: str) -> str:
        """A word as the tokenizer writes it: an uncased one drops accents too."""
        normalizer = getattr(getattr(self.tokenizer, "backend_tokenizer", None), "normalizer", None)
        return text if normalizer is None else str(normalizer.normalize_str(text)).strip("\u2581 ")

    def _recall(self, keys: Sequence[tuple[str, int, int, float]]) -> dict[Any, list[tuple[str, float]]]:
        found = {key: self._memory[key] for key in keys if key in self._memory}
        if self._journal is not None:
            for key in keys:
                row = self._journal.get(self._row_key(key)) if key not in found else None
                if row is not None:
                    found[key] = [(str(text), float(p)) for text, p in row]
        return found

    def _remember(self, fresh: dict[tuple[str, int, int, float], list[tuple[str, float]]]) -> None:
        self._memory |= fresh
        for key in list(itertools.islice(self._memory, max(0, len(self._memory) - _MEMORY))):
            del self._memory[key]
        if self._journal is not None:
            self._journal.append({self._row_key(key): [list(pair) for pair in row] for key, row in fresh.items()})

    def _row_key(self, key: tuple[str, int, int, float]) -> str:
        return content_key("masked-lm", self._fingerprint, self._window, *key)

    # --- Likelihood --------------------------------------------------------------------------------------------------

    def pseudo_log_likelihood(
        self, texts: Sequence[str], spans: Sequence[Span | None] | None = None, *, progress: Progress | None = None
    ) -> list[PseudoLikelihood]:
        """Sum of the log-probabilities of a text's tokens, each masked in turn.

        Of a word of several pieces, those to the right of the asked one are masked with it; otherwise the first pieces
        of a rare word would give the last ones away, and rare words would look likely.

        Args:
            texts: Any texts.
            spans: Count only tokens that touch these characters; the context is the whole text all the same.
            progress: Called with (done, total) tokens.

        Returns:
            One sum a text, in nats, 0 for a text without tokens. A pass over n tokens costs n rows of the model.
        """
        rows: list[_Row] = []
        wanted: list[tuple[int, int]] = []
        for place, text in enumerate(texts):
            encoded = self.tokenizer([clean(text)], add_special_tokens=False, verbose=False)
            body = list(encoded["input_ids"][0])
            fast = bool(getattr(encoded, "is_fast", False))
            belongs = encoded.word_ids(0) if fast else list(range(len(body)))
            span = spans[place] if spans is not None else None
            for at, token in enumerate(body):
                if span is not None and fast:
                    characters = encoded.token_to_chars(0, at)
                    if characters is None or characters.end <= span.start or characters.start >= span.end:
                        continue
                end = at + 1
                while end < len(body) and belongs[end] is not None and belongs[end] == belongs[at]:
                    end += 1
                masked = body[:at] + [self._mask] * (end - at) + body[end:]
                rows.append(self._framed(masked, at))
                wanted.append((place, token))
        totals, counts, done = [0.0] * len(texts), [0] * len(texts), 0
        with self._lock:
            for group, logprobs_BV in self._logprobs(rows):
                import torch

                tokens_B = torch.tensor([wanted[index][1] for index in group], device=logprobs_BV.device)
                values = logprobs_BV.gather(1, tokens_B[:, None])[:, 0].tolist()
                for index, value in zip(group, values):
                    totals[wanted[index][0]] += value
                    counts[wanted[index][0]] += 1
                done += len(group)
                if progress is not None:
                    progress(done, len(rows))
        return [PseudoLikelihood(total, count) for total, count in zip(totals, counts)]

    # --- The model ---------------------------------------------------------------------------------------------------

    def _masked(self, places: Sequence[tuple[str, int, int]]) -> list[_Row]:
        """Each text with the characters from start to end replaced by the mask token, as token ids."""
        sign = self.tokenizer.mask_token
        texts = [f"{clean(text[:start])}{sign}{clean(text[end:])}" for text, start, end in places]
        if not texts:
            return []
        bodies = self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        rows = []
        for (text, start, _), body in zip(places, bodies):
            # A question may hold the mask token's own text; ours comes after all that stand before the word.
            masks = [at for at, token in enumerate(body) if token == self._mask]
            rows.append(self._framed(list(body), masks[text[:start].count(sign)]))
        return rows

    def _framed(self, body: list[int], at: int) -> _Row:
        """Special tokens around a body, which is cut to a window with the mask in its middle."""
        start = max(0, min(at - self._window // 2, len(body) - self._window))
        window = body[start : start + self._window]
        return _Row([*self._before, *window, *self._after], len(self._before) + at - start)

    def _logprobs(self, rows: Sequence[_Row]) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Batch by batch: places in `rows`, and log-probabilities at each one's position, float32 of shape (B, V)."""
        import torch

        order = sorted(range(len(rows)), key=lambda place: len(rows[place].ids))
        start = 0
        while start < len(order):
            size = self.batch_size
            while size > 1 and size * len(rows[order[min(start + size, len(order)) - 1]].ids) > _PASS_TOKENS:
                size //= 2
            group = order[start : start + size]
            start += size
            with torch.inference_mode():
                logits_BV = self._logits([rows[place] for place in group]).float()
                if not bool(torch.isfinite(logits_BV).all()):
                    raise ModelError(
                        f"{self._label} gave NaN or infinite logits.",
                        "Load it in float32; otherwise its weights are damaged.",
                    )
                yield group, torch.log_softmax(logits_BV, dim=-1)

    def _logits(self, batch: Sequence[_Row], *, whole: bool = False) -> torch.Tensor:
        """Logits at each row's position, (B, V); `whole` runs the head on all positions first."""
        import torch

        device = self.model.get_input_embeddings().weight.device
        width = max(len(row.ids) for row in batch)
        pad = self.tokenizer.pad_token_id or 0
        ids_BT = torch.tensor([row.ids + [pad] * (width - len(row.ids)) for row in batch], device=device)
        real_BT = torch.tensor([[1] * len(row.ids) + [0] * (width - len(row.ids)) for row in batch], device=device)
        at_B = torch.tensor([row.at for row in batch], device=device)
        row_B = torch.arange(len(batch), device=device)
        if whole or not self._head_on_rows:
            logits_BTV = self.model(input_ids=ids_BT, attention_mask=real_BT).logits
            return logits_BTV[row_B, at_B]

        def pick(module: Any, inputs: Any, output: Any) -> Any:
            picked_B1D = output[0][row_B, at_B][:, None]
            if isinstance(output, tuple):
                return (picked_B1D, *output[1:])
            output["last_hidden_state"] = picked_B1D
            return output

        # The head is a function of each position alone, so it may be shown the asked positions only. Its logits are
        # by far the largest tensor otherwise.
        handle = self.model.base_model.register_forward_hook(pick)
        try:
            logits_B1V = self.model(input_ids=ids_BT, attention_mask=real_BT).logits
        finally:
            handle.remove()
        return logits_B1V[:, 0]

    def _check_head(self) -> bool:
        """Whether the head may be run on chosen positions, tried on two short rows.

        Raises:
            ModelError: It is no masked language model.
        """
        import torch

        filler = [token for token in range(8, 24) if token not in self.tokenizer.all_special_ids]
        rows = [self._framed([self._mask, *filler[:5]], 0), self._framed([*filler[5:8], self._mask], 3)]
        problem = ModelError(
            f"{self._label} is not a masked language model.", "Use one that AutoModelForMaskedLM loads, such as BERT."
        )
        self._head_on_rows = False
        with torch.inference_mode():
            try:
                whole_BV = self._logits(rows, whole=True)
            except (AttributeError, TypeError, ValueError, RuntimeError, IndexError) as error:
                raise problem from error
            if whole_BV.ndim != 2 or whole_BV.shape[1] < len(self.tokenizer.get_vocab()):
                raise problem
            if self.model.base_model is self.model:
                return False
            self._head_on_rows = True
            try:
                picked_BV = self._logits(rows)
            # A head may make what it likes of a shape that it does not expect; then all positions are computed.
            except Exception:
                return False
        scale = float(whole_BV.abs().amax()) + 1e-6
        tolerance = 1e-4 if whole_BV.dtype == torch.float32 else 5e-2
        same = picked_BV.shape == whole_BV.shape
        return same and float((picked_BV - whole_BV).abs().amax()) <= tolerance * scale

    def _room(self, wanted: int | None) -> int:
        """Tokens that fit between the special tokens."""
        limits = [int(getattr(self.model.config, "max_position_embeddings", 0) or 0)]
        for name, module in self.model.named_modules():
            # RoBERTa and its kin begin to count positions after the padding token's number.
            if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
                limits.append(module.num_embeddings - module.padding_idx - 1)
        said = int(getattr(self.tokenizer, "model_max_length", 0) or 0)
        limits.append(said if said < 10**9 else 0)
        most = min((limit for limit in limits if limit > 0), default=512) - len(self._before) - len(self._after)
        if most < 1:
            raise ModelError(f"{self._label} has no room for a text.", "Use another masked model.")
        if wanted is not None and wanted < 1:
            raise ConfigError(f"window is {wanted}.", "Use 1 or more tokens, or leave it out.")
        return most if wanted is None else min(wanted, most)


def load_masked_lm(
    name_or_folder: str, *, device: str | None = None, offline: bool | None = None, progress: Say | None = None
) -> tuple[Any, Any]:
    """A masked language model and its tokenizer, in float32; see `MaskedLMSource.load`."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    from intarsia.core.catalog import resolve

    name = name_or_folder.strip()
    owner = next((OWNERS[head] for head in sorted(OWNERS, key=len, reverse=True) if name.startswith(head)), "")
    full = f"{owner}/{name}" if owner and "/" not in name and not Path(name).is_dir() else name
    try:
        resolved = resolve(full, offline=offline, progress=progress)
    except (ModelError, BackendError) as error:
        instead = "Without a masked model, train a small one (train_masked_lm) or use CausalInfillSource."
        raise type(error)(error.message, f"{error.hint} {instead}") from error
    problem = f"{name} cannot be loaded as a masked language model"
    hint = "Use one with safetensors weights that AutoModelForMaskedLM loads, such as bert-large-uncased."
    try:
        tokenizer = AutoTokenizer.from_pretrained(resolved.path, trust_remote_code=False, local_files_only=True)
        loaded: Any = AutoModelForMaskedLM.from_pretrained(
            resolved.path,
            dtype=torch.float32,
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
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    return model.to(device).eval(), tokenizer


def fingerprint(model: Any, tokenizer: Any) -> str:
    """Hash of a model's weights and its tokenizer, by which cached results are told apart."""
    import torch

    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()))
    backend = getattr(tokenizer, "backend_tokenizer", None)
    said = (
        str(backend.to_str())
        if backend is not None and hasattr(backend, "to_str")
        else repr(sorted(tokenizer.get_vocab().items()))
    )
    digest.update(said.encode())
    return digest.hexdigest()


def _frame(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Special tokens before and after a text."""
    plain = list(tokenizer(tokenizer.mask_token, add_special_tokens=False)["input_ids"])
    whole = list(tokenizer(tokenizer.mask_token)["input_ids"])
    for start in range(len(whole) - len(plain) + 1):
        if plain and whole[start : start + len(plain)] == plain:
            return whole[:start], whole[start + len(plain) :]
    return [], []


def clean(text: str) -> str:
    """Half a surrogate pair is no text; tokenizers fail on it with a type error."""
    return text.encode("utf-8", "replace").decode()


# --- Training --------------------------------------------------------------------------------------------------------


def train_masked_lm(
    texts: Sequence[str],
    *,
    vocab_size: int = 4096,
    hidden: int = 128,
    layers: int = 2,
    steps: int = 2000,
    batch_size: int = 16,
    learning_rate: float = 3e-3,
    mask_rate: float = 0.4,
    max_tokens: int = 128,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[BertForMaskedLM, PreTrainedTokenizerFast]:
    """Train a small BERT with a WordPiece vocabulary from scratch, for users without any masked model's weights.

    Of the tokens that are asked for, 80 % are masked, 10 % replaced by a random token and 10 % left as they are, as
    BERT was trained. BERT asks for 15 % of the tokens; a training of minutes is short of answers to learn from, and
    learns more from more of them. There is no dropout: the model sees each text a few times only. The first layer
    begins with heads that look at the neighboring tokens, without which such a training ends before they are found.

    Args:
        texts: Questions of the kind that will be rewritten; some thousands do.
        vocab_size: Tokens of the vocabulary, at most.
        hidden: Width, a multiple of 32.
        layers: Number of layers.
        steps: Batches to train on.
        batch_size: Texts of a batch.
        learning_rate: Its peak, after a tenth of the steps; it falls to 0 from there.
        mask_rate: Share of the tokens that are asked for.
        max_tokens: Longer texts are cut into pieces of this length, which is also the model's window.
        seed: Of the weights, the order and the masks.
        progress: Called with (steps done, steps).

    Returns:
        The model, in evaluation mode on the CPU, and its tokenizer; both can be saved with `save_pretrained` and loaded
        with `MaskedLMSource.load`.

    Raises:
        DataError: There is no text to learn from.
        ConfigError: An option is out of range.
    """
    import torch
    from transformers import BertConfig, BertForMaskedLM

    if hidden < 32 or hidden % 32:
        raise ConfigError(f"hidden is {hidden}.", "Use a multiple of 32, such as 128.")
    for label, value, least in (
        ("vocab_size", vocab_size, 64),
        ("layers", layers, 1),
        ("steps", steps, 1),
        ("batch_size", batch_size, 1),
        ("max_tokens", max_tokens, 8),
    ):
        if value < least:
            raise ConfigError(f"{label} is {value}.", f"Use {least} or more.")
    if not 0 < mask_rate < 1:
        raise ConfigError(f"mask_rate is {mask_rate}.", "Use a share between 0 and 1, such as 0.15.")
    texts = [clean(text) for text in texts if text.strip()]
    if not texts:
        raise DataError("There are no texts to train a masked model on.", "Give some hundred questions or more.")
    tokenizer = _wordpiece(texts, vocab_size, max_tokens)
    before, after = _frame(tokenizer)
    room = max_tokens - len(before) - len(after)
    pieces = [
        torch.tensor([*before, *body[start : start + room], *after])
        for body in tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        for start in range(0, len(body), room)
    ]
    if not pieces:
        raise DataError("The texts hold no tokens.", "Give texts with words in them.")
    random = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = BertForMaskedLM(
            BertConfig(
                vocab_size=len(tokenizer),
                hidden_size=hidden,
                num_hidden_layers=layers,
                num_attention_heads=len(_OFFSETS),
                intermediate_size=4 * hidden,
                max_position_embeddings=max_tokens,
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
                initializer_range=_SPREAD,
                pad_token_id=tokenizer.pad_token_id,
            )
        )
        with torch.no_grad():
            _head_start(model, pieces)
    decayed = [p for p in model.parameters() if p.ndim > 1]
    other = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": other, "weight_decay": 0.0}],
        lr=learning_rate,
        betas=(0.9, 0.98),
    )
    warm = max(1, steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (steps - step) / max(1, steps - warm))
    )
    model.train()
    for step, batch in enumerate(itertools.islice(_batches(pieces, batch_size, random), steps), start=1):
        ids_BT = torch.nn.utils.rnn.pad_sequence(batch, batch_first=True, padding_value=int(tokenizer.pad_token_id))
        inputs_BT, labels_BT = mask_tokens(ids_BT, tokenizer, random, mask_rate)
        hidden_BTD = model.bert(input_ids=inputs_BT, attention_mask=(ids_BT != tokenizer.pad_token_id).long())[0]
        asked_BT = labels_BT != _IGNORED
        loss = torch.nn.functional.cross_entropy(model.cls(hidden_BTD[asked_BT]), labels_BT[asked_BT])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress(step, steps)
    return model.eval(), tokenizer


def _head_start(model: Any, pieces: Sequence[torch.Tensor]) -> None:
    """Begin where a trained model is known to arrive first, which takes most of a short training otherwise (ours).

    The output bias begins at the log-frequencies of the tokens. The heads of the first layer begin as heads that look
    one or two tokens to the left or right: positions are points on circles in the first dimensions, and a head's query
    turns them by its offset, so that it meets the key of the token there. All of it is trained like the rest.
    """
    import torch

    counts = torch.bincount(torch.cat(list(pieces)), minlength=model.config.vocab_size) + 0.1
    logs = (counts / counts.sum()).log()
    model.cls.predictions.bias.copy_(logs - logs.mean())
    layer = model.bert.encoder.layer[0].attention
    positions = model.bert.embeddings.position_embeddings.weight
    size = model.config.hidden_size // len(_OFFSETS)
    # Radians a token, from a quarter of a turn to a three-hundredth.
    turns = 1.5 * (0.02 / 1.5) ** torch.linspace(0, 1, size // 2)
    angles = torch.arange(len(positions))[:, None] * turns
    model.bert.embeddings.word_embeddings.weight[:, :size] = 0  # Tokens keep out of the way at first.
    positions.mul_(0.1)
    positions[:, :size] = 3 * _SPREAD * torch.cat([angles.sin(), angles.cos()], dim=1)
    query, key = torch.zeros_like(layer.self.query.weight), torch.zeros_like(layer.self.key.weight)
    for head, offset in enumerate(_OFFSETS):
        cosine, sine = torch.diag((offset * turns).cos()), torch.diag((offset * turns).sin())
        rows = slice(head * size, (head + 1) * size)
        query[rows, :size] = torch.cat([torch.cat([cosine, sine], dim=1), torch.cat([-sine, cosine], dim=1)])
        key[rows, :size] = torch.eye(size)
    layer.self.query.weight.copy_(1.4 * query)
    layer.self.key.weight.copy_(1.4 * key)
    layer.self.value.weight.normal_(std=1.5 * model.config.hidden_size**-0.5)
    layer.self.value.weight[:, :size] = 0  # What is passed on is the token, not its position.
    layer.output.dense.weight.normal_(std=model.config.hidden_size**-0.5)


def mask_tokens(
    ids_BT: torch.Tensor, tokenizer: Any, random: torch.Generator, rate: float = 0.15
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose a share of the tokens, at least one, and hide them as BERT does (80 % mask, 10 % random, 10 % unchanged).

    Returns:
        Input ids and labels (-100 where nothing is asked), both of shape (B, T).
    """
    import torch

    usable_BT = ~torch.isin(ids_BT, torch.tensor(tokenizer.all_special_ids))
    luck_BT = torch.rand(ids_BT.shape, generator=random).masked_fill(~usable_BT, 2.0)
    asked_BT = luck_BT < rate
    if not bool(asked_BT.any()) and bool(usable_BT.any()):
        asked_BT = luck_BT == luck_BT.min()
    labels_BT = ids_BT.masked_fill(~asked_BT, _IGNORED)
    how_BT = torch.rand(ids_BT.shape, generator=random)
    other_BT = torch.randint(len(_SPECIAL), len(tokenizer), ids_BT.shape, generator=random)
    inputs_BT = torch.where(asked_BT & (how_BT < 0.8), int(tokenizer.mask_token_id), ids_BT)
    return torch.where(asked_BT & (how_BT >= 0.9), other_BT, inputs_BT), labels_BT


class MaskedAccuracy(NamedTuple):
    """How often the token that was hidden is among the k likeliest.

    Attributes:
        model: Share for the model.
        unigram: Share for the k most frequent tokens of the training texts, whatever the context.
        n: Tokens that were asked for.
    """

    model: float
    unigram: float
    n: int


def masked_accuracy(
    model: Any, tokenizer: Any, held_out: Sequence[str], training: Sequence[str], *, k: int = 5, seed: int = 0
) -> MaskedAccuracy:
    """Masked top-k accuracy on texts that were not trained on, beside the unigram baseline.

    Args:
        model: A masked language model.
        tokenizer: Its tokenizer.
        held_out: Texts to ask about; 15 % of their tokens are masked, all with the mask token.
        training: Texts that the baseline counts tokens in.
        k: How many guesses.
        seed: Of the choice of tokens.
    """
    import torch

    counts: Counter[int] = Counter()
    for body in tokenizer([clean(text) for text in training], add_special_tokens=False, verbose=False)["input_ids"]:
        counts.update(body)
    frequent = {token for token, _ in counts.most_common(k)}
    random = torch.Generator().manual_seed(seed)
    source = MaskedLMSource(model, tokenizer)
    rows, answers = [], []
    for body in tokenizer([clean(text) for text in held_out], add_special_tokens=False, verbose=False)["input_ids"]:
        asked = (torch.rand(len(body), generator=random) < 0.15).nonzero()[:, 0].tolist()
        hidden = [tokenizer.mask_token_id if at in set(asked) else token for at, token in enumerate(body)]
        rows += [source._framed(hidden, at) for at in asked]
        answers += [body[at] for at in asked]
    if not answers:
        raise DataError("The texts are too short to ask about.", "Give more of them.")
    hits = 0
    for group, logprobs_BV in source._logprobs(rows):
        best_BK = logprobs_BV.topk(k, dim=-1).indices.tolist()
        hits += sum(answers[place] in best for place, best in zip(group, best_BK))
    return MaskedAccuracy(hits / len(answers), sum(token in frequent for token in answers) / len(answers), len(answers))


def _batches(pieces: Sequence[torch.Tensor], size: int, random: torch.Generator) -> Iterator[list[torch.Tensor]]:
    """Batches without end: shuffled, of like length within stretches of 32 batches."""
    import torch

    while True:
        order = torch.randperm(len(pieces), generator=random).tolist()
        for start in range(0, len(order), 32 * size):
            stretch = sorted(order[start : start + 32 * size], key=lambda place: len(pieces[place]))
            groups = [stretch[at : at + size] for at in range(0, len(stretch), size)]
            for at in torch.randperm(len(groups), generator=random).tolist():
                yield [pieces[place] for place in groups[at]]


def _wordpiece(texts: Sequence[str], vocab_size: int, max_tokens: int) -> PreTrainedTokenizerFast:
    """An uncased WordPiece tokenizer as BERT has it."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    normalizer = normalizers.BertNormalizer(lowercase=True)
    splitter = pre_tokenizers.BertPreTokenizer()
    # The library's own trainer for WordPiece numbers its pieces in an order that changes from run to run. So merges are
    # learned without marks, which is repeatable, and the pieces that words fall into are marked and counted here.
    learner = Tokenizer(models.BPE())
    learner.normalizer, learner.pre_tokenizer = normalizer, splitter
    learner.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False))
    seen = Counter(part for text in texts for part, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    letters: Counter[str] = Counter()
    pieces: Counter[str] = Counter()
    for word, count in seen.items():
        for first, parts in ((True, list(word)), (False, learner.encode(word).tokens)):
            into = letters if first else pieces
            for place, part in enumerate(parts):
                into[part if place == 0 else f"##{part}"] += count
    ranked = [sorted(counts, key=lambda part: (-counts[part], part)) for counts in (letters, pieces)]
    # Letters come first, so that words can be spelled; rare letters make way for common words in a small vocabulary.
    vocabulary = dict.fromkeys([*_SPECIAL, *ranked[0][: vocab_size // 2], *ranked[1]])
    numbered = {piece: number for number, piece in enumerate(itertools.islice(vocabulary, vocab_size))}
    raw = Tokenizer(models.WordPiece(vocab=numbered, unk_token="[UNK]", max_input_chars_per_word=100))
    raw.normalizer, raw.pre_tokenizer = normalizer, splitter
    raw.decoder = decoders.WordPiece()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(sign, raw.token_to_id(sign)) for sign in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        model_max_length=max_tokens,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        clean_up_tokenization_spaces=False,
    )

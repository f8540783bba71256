"""A language model that can be written down: 20 symbols, answers of at most 3, every answer's probability known (ours).

The next-token law is a lookup in a table that is never stored: logits are counter-based random numbers of the context.
Some prompts have sharp laws and some flat ones. `EnumerableLM.enumerate` gives the whole answer law in numpy, while
`EnumerableLM.model` and `.tokenizer` are what transformers and `core.local` expect of a causal model, with the same law
behind them; it keeps its context in the attention cache, so batching, padding, shared prefixes and the reordering of
beams are all put to the test.

Shape suffixes: N prompts, A answers, S symbols, V tokens, B rows, T new tokens, C columns of the cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from intarsia.core.errors import ConfigError
from intarsia.core.sampling import random_words
from intarsia.uncertainty.candidates import CandidateSet
from intarsia.uncertainty.proof.laws import Laws

PAD, END, ASK = 0, 1, 2
SPECIAL = ("<pad>", "<end>", "?")
FIRST = len(SPECIAL)
"""Id of the first symbol."""
LETTERS = "abcdefghijklmnopqrst"
FORBIDDEN = -60.0
"""Logit of what cannot follow: a probability of about 1e-26, so that no logarithm is infinite."""
SHARPEST, FLATTEST = 4.0, 0.6
_MULTIPLIER, _INCREMENT = np.uint64(6364136223846793005), np.uint64(1442695040888963407)

Similarity = Callable[[str, str], float]


@dataclass(frozen=True)
class Enumerated:
    """The whole answer law of some prompts.

    Attributes:
        prompts: The prompts.
        answers: All answers as symbol numbers, the same for every prompt; shorter ones first.
        probs_NA: Their probabilities, the end token's included; each row sums to 1.
        greedy_N: Column of the greedy answer of each prompt.
    """

    prompts: tuple[str, ...]
    answers: tuple[tuple[int, ...], ...]
    probs_NA: np.ndarray
    greedy_N: np.ndarray

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Answers as text."""
        return tuple(answer_text(answer) for answer in self.answers)

    @cached_property
    def column(self) -> dict[str, int]:
        """Column of an answer's text."""
        return {text: place for place, text in enumerate(self.texts)}

    def dissimilarity(self, similarity: Similarity | Literal["jaccard", "exact"] = "jaccard") -> np.ndarray:
        """1 - similarity of each greedy answer (first argument) to every answer, float64 of shape (N, A)."""
        if similarity == "exact":
            return (np.arange(len(self.answers)) != self.greedy_N[:, None]).astype(np.float64)
        if similarity == "jaccard":
            holds_AS = np.zeros((len(self.answers), 1 + max(itertools.chain.from_iterable(self.answers))))
            for row, answer in enumerate(self.answers):
                holds_AS[row, list(answer)] = 1.0
            size_A = holds_AS.sum(1)
            both_NA = holds_AS[self.greedy_N] @ holds_AS.T
            jaccard_NA: np.ndarray = 1.0 - both_NA / (size_A[self.greedy_N][:, None] + size_A - both_NA)
            return jaccard_NA
        return np.array([[1.0 - similarity(self.texts[own], text) for text in self.texts] for own in self.greedy_N])

    def truth(self, similarity: Similarity | Literal["jaccard", "exact"] = "jaccard") -> np.ndarray:
        """Expected dissimilarity U_D of each prompt's greedy answer, exactly; float64 of shape (N,)."""
        truth_N: np.ndarray = (self.probs_NA * self.dissimilarity(similarity)).sum(1)
        return truth_N

    def laws(self, similarity: Similarity | Literal["jaccard", "exact"] = "jaccard") -> Laws:
        """As `proof.laws` wants them."""
        return Laws.sort(self.probs_NA, self.dissimilarity(similarity))

    def top(self, m: int) -> np.ndarray:
        """Columns of the m likeliest answers, likeliest first; int64 of shape (N, m)."""
        top_Nm: np.ndarray = np.argsort(-self.probs_NA, axis=1, kind="stable")[:, :m]
        return top_Nm

    def places(self, sets: Sequence[CandidateSet]) -> np.ndarray:
        """Rank by probability of each prompt's candidates, which are columns of `laws()`; int64 of shape (N, M).

        Raises:
            ConfigError: A candidate is no answer of this model, or the sets differ in size.
        """
        if len({len(one.texts) for one in sets}) != 1 or len(sets) != len(self.prompts):
            raise ConfigError("The candidates do not fit the prompts.", "Give one set a prompt, all of one size.")
        strange = [text for one in sets for text in one.texts if text not in self.column]
        if strange:
            raise ConfigError(f"{strange[0]!r} is no answer of this model.", "Let it answer to its end.")
        order_NA = np.argsort(-self.probs_NA, axis=1, kind="stable")
        rank_NA = np.empty_like(order_NA)
        np.put_along_axis(rank_NA, order_NA, np.arange(order_NA.shape[1])[None], 1)
        columns_NM = np.array([[self.column[text] for text in one.texts] for one in sets])
        return np.take_along_axis(rank_NA, columns_NM, 1)


class EnumerableLM:
    """The law and its model.

    Args:
        symbols: Size of the alphabet, at most 20.
        longest: Most symbols of an answer; every answer has at least one.
        seed: Of the table.
    """

    def __init__(self, symbols: int = 20, longest: int = 3, seed: int = 0) -> None:
        if not 2 <= symbols <= len(LETTERS):
            raise ConfigError(f"There is no alphabet of {symbols} symbols.", f"Give 2 to {len(LETTERS)}.")
        if longest < 1 or symbols**longest > 100_000:
            raise ConfigError(f"Answers of up to {longest} symbols cannot be enumerated.", "Give 1 to 3.")
        self.symbols, self.longest, self.seed = symbols, longest, seed
        self.vocabulary = (*SPECIAL, *LETTERS[:symbols])

    @cached_property
    def answers(self) -> tuple[tuple[int, ...], ...]:
        """All answers as symbol numbers, shorter ones first, each length in the order of an odometer."""
        lengths = range(1, self.longest + 1)
        return tuple(itertools.chain.from_iterable(itertools.product(range(self.symbols), repeat=n) for n in lengths))

    def prompts(self, n: int) -> tuple[str, ...]:
        """`n` different questions: some symbols, then a question mark."""
        width = 4
        while self.symbols**width < n:
            width += 1
        digits_NW = np.arange(n)[:, None] // self.symbols ** np.arange(width) % self.symbols
        return tuple(" ".join([*(LETTERS[at] for at in row), SPECIAL[ASK]]) for row in digits_NW.tolist())

    def encode(self, text: str) -> list[int]:
        """Token ids of a text of symbols and question marks.

        Raises:
            ConfigError: It has another word.
        """
        ids = {word: at for at, word in enumerate(self.vocabulary)}
        unknown = [word for word in text.split() if word not in ids]
        if unknown:
            raise ConfigError(f"{unknown[0]!r} is no symbol of this model.", f"Use {' '.join(self.vocabulary[ASK:])}.")
        return [ids[word] for word in text.split()]

    def enumerate(self, prompts: Sequence[str]) -> Enumerated:
        """The whole answer law of each prompt."""
        states = _States(np.zeros(len(prompts), dtype=np.uint64))
        encoded = [self.encode(prompt) for prompt in prompts]
        for column in range(max(map(len, encoded))):
            real_N = np.array([column < len(row) for row in encoded])
            token_N = np.array([row[column] if column < len(row) else PAD for row in encoded])
            states = states.then(token_N, real_N)
        # One level of the tree after the other: the last axis is the newest symbol, in the order of `answers`.
        reached = np.zeros((len(prompts), 1))
        greedy_N, open_N = np.zeros(len(prompts), dtype=np.int64), np.ones(len(prompts), dtype=bool)
        rows, before = np.arange(len(prompts)), 0
        node_N = np.zeros(len(prompts), dtype=np.int64)
        states = states.reshape(-1, 1)
        found = []
        for depth in range(self.longest + 1):
            if depth == self.longest:
                found.append(reached)  # Only the end can follow.
                greedy_N[open_N] = (before + node_N)[open_N]
                break
            logits = self._logits(states)
            logprobs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
            if depth:
                found.append(reached + logprobs[..., END])
            step_N = logits[rows, node_N].argmax(-1)
            ended_N = open_N & (step_N == END)
            # An answer's column: all shorter answers come first.
            greedy_N[ended_N] = before + node_N[ended_N]
            open_N = open_N & ~ended_N
            if depth:
                before += self.symbols**depth
            node_N = node_N * self.symbols + np.maximum(step_N - FIRST, 0)
            reached = (reached[..., None] + logprobs[..., FIRST:]).reshape(len(prompts), -1)
            states = states.spread(np.arange(FIRST, FIRST + self.symbols)).reshape(len(prompts), -1)
        probs_NA = np.exp(np.concatenate(found, axis=1))
        # What is forbidden has a probability of 1e-26 rather than 0, which is all that is missing here.
        probs_NA /= probs_NA.sum(1, keepdims=True)
        return Enumerated(tuple(prompts), self.answers, probs_NA, greedy_N)

    def _logits(self, states: _States) -> np.ndarray:
        """Logits behind contexts: float64 of the states' shape and V. They rank symbols by E^-sharpness, E exponential.

        With sharpness near 0 all symbols are alike; at 1 the law is a uniform draw from the simplex; far above 1 one
        symbol takes nearly all.
        """
        out = np.full((*states.key.shape, len(self.vocabulary)), FORBIDDEN)
        blocks = -(-(self.symbols + 1) // 4)
        words = random_words(self.seed, states.key[..., None], np.arange(blocks), 0)
        uniforms = (np.stack(words, axis=-1).reshape(*states.key.shape, -1)[..., : self.symbols + 1] + 0.5) / 2.0**32
        place = (random_words(self.seed, states.asked, 0, 1).w0 + 0.5) / 2.0**32
        sharpness = FLATTEST + (SHARPEST - FLATTEST) * place
        drawn = -np.log(-np.log(uniforms)) * sharpness[..., None]
        begins, full = states.depth == 0, states.depth >= self.longest
        out[..., FIRST:] = np.where(full[..., None], FORBIDDEN, drawn[..., 1:])
        # As likely as half of the symbols together, on the whole: otherwise nearly all answers would be long.
        ending = drawn[..., 0] + sharpness * np.log(self.symbols / 2.0)
        out[..., END] = np.where(begins, FORBIDDEN, np.where(full, 0.0, ending))
        return out

    # --- As transformers knows a model -------------------------------------------------------------------------------

    @cached_property
    def model(self) -> Any:
        """A causal model with exactly this law, float64 logits."""
        return _lookup_model(self)

    @cached_property
    def tokenizer(self) -> Any:
        """Words between blanks are tokens; nothing is added to a text."""
        return word_tokenizer(self.vocabulary, pad=SPECIAL[PAD], end=SPECIAL[END])

    def target(self) -> Any:
        """A `LocalTarget` around model and tokenizer."""
        from intarsia.core.local import LocalTarget

        return LocalTarget(self.model, self.tokenizer, f"enumerable-{self.symbols}x{self.longest}-seed{self.seed}")


def answer_text(answer: Sequence[int]) -> str:
    """Symbol numbers as the tokenizer decodes them."""
    return " ".join(LETTERS[at] for at in answer)


def word_tokenizer(words: Sequence[str], *, pad: str, end: str, unknown: str | None = None) -> Any:
    """A tokenizer whose tokens are whole words between blanks.

    Args:
        words: The vocabulary, in the order of ids.
        pad: Padding, one of them.
        end: End of a text, one of them.
        unknown: What other words become, one of them; None where they are left out.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    ids = {word: at for at, word in enumerate(words)}
    raw = Tokenizer(models.WordLevel(ids, unk_token=unknown or pad))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token=pad,
        eos_token=end,
        unk_token=unknown,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


class _States:
    """Contexts as far as the law looks at them, in arrays of one shape.

    Attributes:
        key: A 64-bit rolling key of the tokens since the beginning; padding does not enter.
        asked: The key as it was at the last question mark.
        depth: Tokens since then.
    """

    def __init__(self, key: np.ndarray, asked: np.ndarray | None = None, depth: np.ndarray | None = None) -> None:
        self.key = key
        self.asked = np.zeros_like(key) if asked is None else asked
        self.depth = np.zeros(key.shape, dtype=np.int64) if depth is None else depth

    def then(self, token: np.ndarray, real: np.ndarray) -> _States:
        """Contexts with one more token, where that is no padding."""
        key = np.where(real, (self.key + token.astype(np.uint64)) * _MULTIPLIER + _INCREMENT, self.key)
        asks = real & (token == ASK)
        asked = np.where(asks, key, self.asked)
        return _States(key, asked, np.where(asks, 0, self.depth + real))

    def spread(self, tokens_S: np.ndarray) -> _States:
        """Each context with each of some tokens behind it, on a new last axis."""
        shape = (*self.key.shape, len(tokens_S))
        parts = (np.broadcast_to(part[..., None], shape) for part in (self.key, self.asked, self.depth))
        return _States(*parts).then(np.broadcast_to(tokens_S, shape), np.ones(shape, dtype=bool))

    def reshape(self, *shape: int) -> _States:
        """The same contexts in another shape."""
        return _States(self.key.reshape(shape), self.asked.reshape(shape), self.depth.reshape(shape))


def _lookup_model(law: EnumerableLM) -> Any:
    """A function, so that importing this file loads neither torch nor transformers."""
    import torch
    from transformers import DynamicCache, GenerationMixin, PreTrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutputWithPast

    class LookupConfig(PreTrainedConfig):
        model_type = "intarsia_lookup"

    class Lookup(PreTrainedModel, GenerationMixin):
        """Reads its context back from the cache, where each token's id stands as its key and value."""

        config_class = LookupConfig
        main_input_name = "input_ids"

        def __init__(self, config: Any) -> None:
            super().__init__(config)
            # Nothing is computed with them; transformers and the engine ask a model for them.
            self.words = torch.nn.Embedding(config.vocab_size, 1)
            self.head = torch.nn.Linear(1, config.vocab_size, bias=False)
            self.post_init()

        def get_input_embeddings(self) -> Any:
            return self.words

        def get_output_embeddings(self) -> Any:
            return self.head

        def forward(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor | None = None,
            position_ids: torch.Tensor | None = None,
            cache: Any = None,
            use_cache: bool | None = None,
            logits_to_keep: int = 0,
            **kwargs: Any,
        ) -> Any:
            if cache is None and use_cache:
                cache = DynamicCache(config=self.config)
            seen_BC = input_ids
            if cache is not None:
                ids_B1T1 = input_ids[:, None, :, None].float()
                seen_BC = cache.update(ids_B1T1, ids_B1T1, 0)[0][:, 0, :, 0].long()
            tokens_BC = seen_BC.cpu().numpy()
            real_BC = np.ones(tokens_BC.shape, dtype=bool)
            if attention_mask is not None:
                real_BC = attention_mask.cpu().numpy().astype(bool)[:, : tokens_BC.shape[1]]
            width = input_ids.shape[1]
            first = tokens_BC.shape[1] - min(width, logits_to_keep or width)
            states, kept = _States(np.zeros(len(tokens_BC), dtype=np.uint64)), []
            for column in range(tokens_BC.shape[1]):
                states = states.then(tokens_BC[:, column], real_BC[:, column])
                if column >= first:
                    kept.append(states)
            both = _States(*(np.stack([getattr(s, name) for s in kept], 1) for name in ("key", "asked", "depth")))
            logits_BTV = torch.from_numpy(law._logits(both)).to(input_ids.device)
            return CausalLMOutputWithPast(logits=logits_BTV, cache=cache)

    settings: dict[str, Any] = {
        "vocab_size": len(law.vocabulary),
        "num_hidden_layers": 1,
        "hidden_size": 1,
        "num_attention_heads": 1,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": END,
        "pad_token_id": PAD,
        "tie_word_embeddings": False,
    }
    return Lookup(LookupConfig(**settings)).eval()

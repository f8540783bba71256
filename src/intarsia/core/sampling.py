"""The only sampler: counter-based randomness keyed by (seed, request, position).

A random number is a pure function of what it is for, never of what was drawn before it:

    uniform(seed, request_key("gsm8k/17"), position)

So a sampled answer does not depend on the batch an item sits in, on its place there, or on the device, and any number
can be recomputed later (a detector, a verifier, a resumed run) without replaying a stream. The generator is
Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) in 64-bit integer arithmetic that
numpy and torch do alike, bit for bit, on every device.

Shape suffixes: B rows, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from intarsia.core.errors import ModelError

if TYPE_CHECKING:
    import torch

Integers: TypeAlias = "int | np.ndarray | torch.Tensor"
"""Integers of any broadcastable shape. Tensors are int64, and a number of 2**63 or more is held by its bit pattern."""


class Sampling(BaseModel):
    """How the next token is chosen.

    Attributes:
        max_new_tokens: Most new tokens an answer may have.
        temperature: 0 is greedy; 1 is the model's own law.
        top_k: Keep the k likeliest tokens; 0 keeps all.
        top_p: Keep the smallest set of tokens with at least this mass.
        min_p: Keep tokens with at least this share of the likeliest token's probability.
        stop: Strings that end the answer; they are cut off.
        seed: Master seed; see `keys` in `Target.generate`.
        logprobs: Whether completions carry log-probabilities.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_new_tokens: int = Field(128, ge=1)
    temperature: float = Field(0.0, ge=0.0, allow_inf_nan=False)
    top_k: int = Field(0, ge=0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    min_p: float = Field(0.0, ge=0.0, le=1.0)
    stop: tuple[str, ...] = ()
    seed: int = Field(0, ge=0)
    logprobs: bool = False

    @property
    def greedy(self) -> bool:
        """Whether the answer is deterministic."""
        return self.temperature == 0.0


# --- Randomness ------------------------------------------------------------------------------------------------------

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


class Words(NamedTuple):
    """Four random 32-bit words, each an int64 array (or tensor) of one common shape."""

    w0: Any
    w1: Any
    w2: Any
    w3: Any


def request_key(name: str) -> int:
    """A request's key, in [0, 2**64): the name's 8-byte BLAKE2b hash, so equal on every machine and in every run."""
    return int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[int, int]) -> Words:
    """The Philox4x32-10 block function.

    Args:
        counter: Four words in [0, 2**32): Python integers, int64 arrays or int64 tensors of broadcastable shapes.
        key: Two words in [0, 2**32).

    Returns:
        Four random words; they are of the counter's kind.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        high0, low0 = _multiply(c0, _MULTIPLIERS[0])
        high1, low1 = _multiply(c2, _MULTIPLIERS[1])
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return Words(c0, c1, c2, c3)


def _multiply(a: Any, multiplier: int) -> tuple[Any, Any]:
    # High and low word of a 64-bit product, through 48-bit halves: signed 64-bit integers never overflow.
    low = (a & 0xFFFF) * multiplier
    high = (a >> 16) * multiplier + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def random_words(seed: int, request: Integers, position: Integers, stream: Integers = 0) -> Words:
    """Four random words for each (request, position, stream).

    Args:
        seed: Master seed; taken modulo 2**64.
        request: Which request, such as `request_key(name)`; 64 bits.
        position: Which place in the request, such as the new token's index; 32 bits.
        stream: What the number is for; 32 bits. The sampler draws from stream 0, so whoever needs other numbers at the
            same position (a second draw, one number for each token of the vocabulary) takes other streams.

    Returns:
        Words of the arguments' broadcast shape: tensors when any argument is a tensor, on its device; else arrays.
    """
    request_low, request_high = _split(request)
    counter = (request_low, request_high, _split(position)[0], _split(stream)[0])
    if all(isinstance(word, int) for word in counter):
        counter = tuple(np.asarray(word, dtype=np.int64) for word in counter)  # type: ignore[assignment]
    words = philox(counter, (seed & _LOW, (seed >> 32) & _LOW))
    shape = np.broadcast_shapes(*(tuple(np.shape(word)) for word in counter))
    if any(_is_tensor(word) for word in words):
        return Words(*(word.expand(shape) for word in words))
    return Words(*(np.broadcast_to(word, shape) for word in words))


def uniform(seed: int, request: Integers, position: Integers, stream: Integers = 0) -> Any:
    """A uniform number in [0, 1) with 53 random bits for each (request, position, stream).

    The arguments are those of `random_words`; they broadcast against each other.

    Returns:
        float64, an array, or a tensor on the arguments' device when any of them is a tensor. The bits are the same.
    """
    words = random_words(seed, request, position, stream)
    integers = (words.w0 >> 5) * (1 << 26) + (words.w1 >> 6)
    if _is_tensor(integers):
        return integers.double() / float(1 << 53)
    return integers.astype(np.float64) / float(1 << 53)


def _split(value: Integers) -> tuple[Any, Any]:
    """Low and high 32-bit word."""
    if isinstance(value, int):
        return value & _LOW, (value >> 32) & _LOW
    if _is_tensor(value):
        return value & _LOW, (value >> 32) & _LOW
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        raise ValueError(f"counters are integers, not {array.dtype}")
    array = array.astype(np.uint64)
    return (array & np.uint64(_LOW)).astype(np.int64), (array >> np.uint64(32)).astype(np.int64)


def _is_tensor(value: object) -> bool:
    # Without importing torch: whoever holds a tensor has imported it.
    return type(value).__module__.partition(".")[0] == "torch"


# --- Choosing a token ------------------------------------------------------------------------------------------------

_CHUNK = 1 << 19  # Elements worked on at once: 4 MiB in float64, which stays in a cache.
_HEAD = 512  # Likeliest tokens looked at before the whole vocabulary is sorted.


def check_logits(maxima_B: torch.Tensor) -> None:
    """Refuse logits that hold NaN or infinity, given each row's largest logit (a NaN anywhere shows up there).

    Raises:
        ModelError: A row has a NaN, a plus infinity, or nothing but minus infinity.
    """
    if not bool(maxima_B.isfinite().all()):
        bad = int((~maxima_B.isfinite()).sum())
        raise ModelError(
            f"The model gave NaN or infinite logits for {bad} of {maxima_B.numel()} rows.",
            "Load it with dtype float32 (or bfloat16 instead of float16); otherwise the weights are damaged.",
        )


def transform_logits(logits_BV: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Logits of the law that `sampling` draws from: tempered, then filtered by top-k, top-p and min-p, in that order.

    The filters are those of transformers (`TemperatureLogitsWarper`, `TopKLogitsWarper`, `TopPLogitsWarper`,
    `MinPLogitsWarper`), each working on the law that the one before left. Tokens that tie with the last one kept are
    kept too, so that the result never depends on the order in which a device sorts equal numbers.

    Args:
        logits_BV: Real numbers of any float dtype. Minus infinity marks a forbidden token.
        sampling: Its temperature must not be 0: a greedy choice has no law to transform.

    Returns:
        float64 logits of the same shape, minus infinity where a token was removed. They are not normalized.
    """
    if sampling.greedy:
        raise ValueError("a greedy choice (temperature 0) has no law to transform")
    # In place from here on: fresh memory for a vocabulary costs more than the arithmetic in it.
    scores_BV = logits_BV.double().div(sampling.temperature)
    if 0 < sampling.top_k < scores_BV.shape[-1]:
        floor_B1 = scores_BV.topk(sampling.top_k, dim=-1).values[:, -1:]
        scores_BV.masked_fill_(scores_BV < floor_B1, -float("inf"))
    if sampling.top_p < 1.0:
        scores_BV.masked_fill_(scores_BV < _nucleus_floor(scores_BV, sampling.top_p), -float("inf"))
    if sampling.min_p > 0.0:
        probs_BV = scores_BV.softmax(dim=-1)
        floor_B1 = probs_BV.amax(dim=-1, keepdim=True) * sampling.min_p
        scores_BV.masked_fill_(probs_BV < floor_B1, -float("inf"))
    return scores_BV


def _nucleus_floor(scores_BV: torch.Tensor, mass: float) -> torch.Tensor:
    """Score of the least likely token of the smallest set that holds `mass`; shape (B, 1).

    A token is in the set when those above it hold less than `mass`.
    """
    import torch

    rows, size = scores_BV.shape
    normalizer_B1 = scores_BV.logsumexp(dim=-1, keepdim=True)
    floor_B1 = torch.empty_like(normalizer_B1)
    open_b = torch.arange(rows, device=scores_BV.device)
    # The set is nearly always small, and sorting a whole vocabulary costs as much as a small model's forward pass.
    for head in (min(_HEAD, size), min(16 * _HEAD, size), size):
        top_bH = scores_BV[open_b].topk(head, dim=-1).values
        probs_bH = (top_bH - normalizer_B1[open_b]).exp_()
        above_bH = probs_bH.cumsum(dim=-1) - probs_bH
        last_b1 = (above_bH < mass).sum(dim=-1, keepdim=True) - 1
        settled_b = (last_b1[:, 0] < head - 1) | (head == size)
        floor_B1[open_b[settled_b]] = top_bH.gather(1, last_b1.clamp_min(0))[settled_b]
        open_b = open_b[~settled_b]
        if not len(open_b):
            break
    return floor_B1


def choose(logits_BV: torch.Tensor, uniforms_B: Any, sampling: Sampling) -> torch.Tensor:
    """The next token of each row, a pure function of the row's logits and its uniform number.

    Greedy choices are the largest logit. Others invert the cumulative distribution of `transform_logits`, in the order
    of token ids and in float64: the token where it first exceeds the uniform number.

    Args:
        logits_BV: The model's logits.
        uniforms_B: One number in [0, 1) a row, as array or tensor; not looked at when the choice is greedy.
        sampling: Temperature and filters.

    Returns:
        Token ids, int64 of shape (B,), on the logits' device.

    Raises:
        ModelError: The logits hold NaN or infinity.
    """
    import torch

    if sampling.greedy:
        maxima_B, tokens_B = logits_BV.max(dim=-1)
        check_logits(maxima_B)
        return tokens_B
    uniforms_B = torch.as_tensor(uniforms_B, dtype=torch.float64, device=logits_BV.device)
    check_logits(logits_BV.amax(dim=-1))
    tokens_B = torch.empty(logits_BV.shape[0], dtype=torch.int64, device=logits_BV.device)
    for rows in _row_chunks(*logits_BV.shape):
        scores_bV = transform_logits(logits_BV[rows], sampling)
        cumulative_bV = scores_bV.sub_(scores_bV.amax(dim=-1, keepdim=True)).exp_().cumsum_(dim=-1)
        total_b1 = cumulative_bV[:, -1:]
        # Rounding must not lift the wanted mass to the total, behind which there is no token.
        wanted_b1 = torch.minimum(uniforms_B[rows, None] * total_b1, total_b1.nextafter(torch.zeros_like(total_b1)))
        tokens_B[rows] = torch.searchsorted(cumulative_bV, wanted_b1, right=True)[:, 0]
    return tokens_B


def token_logprobs(logits_BV: torch.Tensor, tokens_B: torch.Tensor) -> torch.Tensor:
    """Natural log-probability of one token a row under the untempered, unfiltered law; float32 of shape (B,)."""
    import torch

    logprobs_B = torch.empty(logits_BV.shape[0], dtype=torch.float32, device=logits_BV.device)
    for rows in _row_chunks(*logits_BV.shape):
        scores_bV = logits_BV[rows].float()
        chosen_b = scores_bV.gather(1, tokens_B[rows, None])[:, 0]
        logprobs_B[rows] = chosen_b - scores_bV.logsumexp(dim=-1)
    return logprobs_B


def _row_chunks(rows: int, width: int) -> Iterator[slice]:
    step = max(1, _CHUNK // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, start + step)

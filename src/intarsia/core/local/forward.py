"""One batch on its way through a model: the cache, which of its slots hold tokens, and every row's next position.

    slot      0 1 2 3 4 5 | 6 7 8 9 | 10
    row 0     p p p p p p | - - a a | a        p shared prefix, - padding, a the row's own tokens
    row 1     p p p p p p | b b b b | b

Padding stands between the prefix and a row's own tokens, so that all rows end in the same slot. It is masked and has no
position: positions count tokens only, and a row's numbers are those it would have alone.

Shape suffixes: B rows, T tokens of this pass, S slots of the cache, V vocabulary.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache
from transformers.cache_utils import get_layer_types_and_kwargs

from intarsia.core.errors import ModelError
from intarsia.core.local.prefix import Prefix, RowsLayer, rows_cache


@dataclass(frozen=True)
class Anatomy:
    """What a forward pass must know about a model.

    Attributes:
        layers: Number of attention layers.
        buffered: Whether all of them are plain attention, whose cache can be shared, cut and put together freely. Other
            models (recurrent, chunked, sparse) keep the cache that transformers makes for them.
        why_not: Why not, in one line.
        padding: Whether rows of unlike length may share a batch.
        windows: Attention window of each layer type, None for unlimited; empty where a plain padding mask says it all.
        by_type: Whether masks are given by layer type.
        arguments: Names of the forward method's parameters.
        window_tokens: Most positions the model can take, None where it does not say.
    """

    layers: int
    buffered: bool
    why_not: str
    padding: bool
    windows: dict[str, int | None]
    by_type: bool
    arguments: frozenset[str]
    window_tokens: int | None


def anatomy(model: Any) -> Anatomy:
    """Look at a model's configuration and signature.

    Raises:
        ModelError: It is not a decoder that can be run step by step.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    whole = base.config
    config = whole.get_text_config(decoder=True)
    arguments = frozenset(inspect.signature(base.forward).parameters)
    if getattr(whole, "is_encoder_decoder", False) or "cache" not in arguments:
        raise ModelError(
            f"{type(base).__name__} is not a decoder-only language model.",
            "Use a causal model (its architecture ends in ForCausalLM).",
        )
    try:
        types, settings = get_layer_types_and_kwargs(config)
    except (AttributeError, TypeError, ValueError, KeyError):
        types, settings = ["unknown"], [{}]
    windows = {kind: setting.get("sliding_window") for kind, setting in zip(types, settings)}
    attention = getattr(config, "_attn_implementation", None)
    why_not = ""
    if not set(types) <= {"full_attention", "sliding_attention"}:
        why_not = f"it has layers of type {', '.join(sorted(set(types) - {'full_attention', 'sliding_attention'}))}"
    elif "position_ids" not in arguments:
        why_not = "its forward method takes no positions"
    elif "sliding_attention" in types and attention not in ("sdpa", "eager"):
        why_not = f"sliding windows with {attention} attention take no mask of their own"
    elif getattr(config, "use_bidirectional_attention", None) or getattr(config, "is_causal", True) is False:
        why_not = "its attention looks ahead"
    return Anatomy(
        layers=len(types),
        buffered=not why_not,
        why_not=why_not,
        padding=all("attention" in kind and "linear" not in kind for kind in types),
        windows=windows if "sliding_attention" in types else {},
        by_type=getattr(config, "layer_types", None) is not None,
        arguments=arguments,
        window_tokens=getattr(config, "max_position_embeddings", None),
    )


class Flight:
    """A batch on its way.

    Args:
        model: The model.
        facts: Its anatomy.
        device: Where token ids go.
        rows: Number of rows.
        prefix: Shared prefix in front of every row.
        room: Slots that the batch will need, as far as known.
    """

    def __init__(
        self,
        model: Any,
        facts: Anatomy,
        device: torch.device,
        rows: int,
        prefix: Prefix | None = None,
        room: int = 0,
    ) -> None:
        self._model = model
        self._facts = facts
        if facts.buffered:
            self.cache = rows_cache(facts.layers, prefix, room)
        else:
            assert prefix is None, "a shared prefix needs a cache that can be put together"
            self.cache = DynamicCache(config=model.config)
        self.device = device
        shared = len(prefix.tokens) if prefix else 0
        self._real_BS = torch.ones(rows, shared, dtype=torch.bool, device=self.device)
        self._next_B = torch.full((rows,), shared, dtype=torch.int64, device=self.device)
        self._position_BS = torch.arange(shared, device=self.device).expand(rows, shared)

    def run(self, ids_BT: torch.Tensor, real_BT: torch.Tensor | None = None, keep: int = 1) -> torch.Tensor:
        """Feed the next tokens of every row.

        Args:
            ids_BT: Token ids, on `device`.
            real_BT: False at padding; all real when omitted.
            keep: Of how many tokens at the end the logits are wanted.

        Returns:
            Logits of shape (B, keep, V), in the model's dtype.
        """
        if real_BT is None:
            real_BT = torch.ones_like(ids_BT, dtype=torch.bool)
        position_BT = (self._next_B[:, None] + real_BT.cumsum(dim=1) - 1).clamp_min(0)
        self._next_B = self._next_B + real_BT.sum(dim=1)
        self._real_BS = torch.cat([self._real_BS, real_BT], dim=1)
        inputs: dict[str, Any] = {"input_ids": ids_BT, "cache": self.cache, "use_cache": True, "return_dict": True}
        if self._facts.windows and self._facts.buffered:
            self._position_BS = torch.cat([self._position_BS, position_BT], dim=1)
            inputs["attention_mask"] = self._masks(position_BT)
        elif "attention_mask" in self._facts.arguments:
            inputs["attention_mask"] = self._real_BS.long()
        if "position_ids" in self._facts.arguments:
            inputs["position_ids"] = position_BT
        if "logits_to_keep" in self._facts.arguments:
            inputs["logits_to_keep"] = keep
        return self._model(**inputs).logits[:, -keep:]

    def _masks(self, position_BT: torch.Tensor) -> Any:
        """Masks by position instead of by slot: padding must not use up a sliding window."""
        config = self._model.config.get_text_config(decoder=True)
        distance_BTS = position_BT[:, :, None] - self._position_BS[:, None, :]
        seen_BTS = self._real_BS[:, None, :] & (distance_BTS >= 0)
        masks = {}
        for kind, window in self._facts.windows.items():
            mask_B1TS = (seen_BTS if window is None else seen_BTS & (distance_BTS < window))[:, None]
            if config._attn_implementation == "eager":
                dtype = self._model.get_input_embeddings().weight.dtype
                mask_B1TS = torch.where(mask_B1TS, 0.0, torch.finfo(dtype).min).to(dtype)
            masks[kind] = mask_B1TS
        return masks if self._facts.by_type else next(iter(masks.values()))

    def select(self, order: Sequence[int]) -> None:
        """Keep the rows `order`, in that order."""
        rows = torch.tensor(order, device=self.device)
        self._real_BS, self._next_B = self._real_BS[rows], self._next_B[rows]
        self._position_BS = self._position_BS[rows]
        if self._facts.buffered:
            for layer in self.cache.layers:
                assert isinstance(layer, RowsLayer)
                layer.select(order)
        else:
            self.cache.reorder_cache(rows)  # type: ignore[arg-type]

    def as_prefix(self, tokens: np.ndarray) -> Prefix:
        """What the cache remembers of the only row, which was fed exactly `tokens` without padding."""
        layers = [(layer.keys, layer.values) for layer in self.cache.layers if isinstance(layer, RowsLayer)]
        return Prefix(
            tokens, tuple((keys, values) for keys, values in layers if keys is not None and values is not None)
        )


def left_padded(sequences: Sequence[np.ndarray], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids (0 at padding) and a mask of real tokens, both (B, T), every row ending in the last column."""
    width = max(len(sequence) for sequence in sequences)
    ids_BT = np.zeros((len(sequences), width), dtype=np.int64)
    real_BT = np.zeros((len(sequences), width), dtype=bool)
    for row, sequence in enumerate(sequences):
        ids_BT[row, width - len(sequence) :] = sequence
        real_BT[row, width - len(sequence) :] = True
    return torch.from_numpy(ids_BT).to(device), torch.from_numpy(real_BT).to(device)

"""Token batches through a model: prompts in and logits out, with memory bounded and shared prefixes computed once.

Shape suffixes: B rows, T tokens, V vocabulary, D hidden size, N chosen (row, column) pairs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from intarsia.core.errors import ModelError
from intarsia.core.local.batching import Limits, common_length, shared_length
from intarsia.core.local.encoding import Continued
from intarsia.core.local.forward import Anatomy, Flight, anatomy, left_padded
from intarsia.core.local.prefix import Prefix, PrefixStore
from intarsia.core.sampling import token_logprobs

_log = logging.getLogger(__name__)

_PASS_TOKENS = 8192  # Most tokens of one forward pass: bounds activations.
_LOGITS = 1 << 25  # Most logits held at once when scoring: 128 MiB in float32.
_REPEATED = 64  # Tokens that two batches of one row must share before their prefix is kept.


class Engine:
    """Runs batches of token sequences.

    Args:
        model: A causal language model in evaluation mode.
        batch_tokens: Token budget of a batch; None for a default that depends on model and device only.
        batch_rows: Most rows of a batch; None for a default.
        reuse: Whether shared prefixes are computed once. A model that gives other logits behind a shared prefix (found
            out on two short rows) computes them anew all the same.

    Attributes:
        facts: The model's anatomy.
        device: Where token ids go.
        dtype: Of the weights.
        limits: What bounds a batch.
        why_not: Why prefixes are not shared, empty when they are.
    """

    def __init__(self, model: Any, batch_tokens: int | None, batch_rows: int | None, reuse: bool) -> None:
        self._model = model
        self.facts: Anatomy = anatomy(model)
        self.device: torch.device = _input_device(model)
        self.dtype: torch.dtype = model.get_input_embeddings().weight.dtype
        self._vocab = int(model.get_output_embeddings().weight.shape[0])
        self.why_not = self.facts.why_not if reuse else "turned off"
        accelerated = self.device.type != "cpu"
        self.limits = Limits(
            tokens=batch_tokens or _budget(model, self.device, self.dtype),
            rows=batch_rows or (256 if accelerated else 64),
            step_cost=512 if accelerated else 32,
            reuse=not self.why_not,
            padding=self.facts.padding,
        )
        self._store = PrefixStore(self.limits.tokens)
        self._before: np.ndarray | None = None
        if not self.why_not and not self._gives_the_same_behind_a_prefix():
            _log.warning("prefixes are computed anew: the model's logits change behind a shared one")
            self.why_not = "its logits change behind a shared prefix"
            self.limits = replace(self.limits, reuse=False)

    def prefill(self, rows: Sequence[np.ndarray], new_tokens: int) -> tuple[Flight, torch.Tensor]:
        """Feed prompts.

        Args:
            rows: Token ids of each prompt.
            new_tokens: Tokens to reserve room for.

        Returns:
            The batch, ready for its first new tokens, and the logits that choose them, (B, V).
        """
        flight, ids_BT, real_BT = self._begin(rows, rows, new_tokens)
        logits_BV = torch.empty(0)
        for part in self._passes(ids_BT.shape[1], len(rows)):
            logits_BV = flight.run(ids_BT[:, part.begin : part.end], real_BT[:, part.begin : part.end])[:, -1]
        return flight, logits_BV

    def score(self, jobs: Sequence[Continued]) -> list[list[float]]:
        """Natural log-probabilities of each continuation's tokens."""
        results: list[list[float]] = [[] for _ in jobs]
        counts = [len(job.ids) - job.begin for job in jobs]
        if not max(counts):
            return results
        # The last token predicts nothing, and a continuation's first is predicted by the last of its context.
        flight, ids_BT, real_BT = self._begin(
            [job.ids[:-1] if len(job.ids) > 1 else job.ids for job in jobs], [job.ids[: job.begin] for job in jobs], 0
        )
        width = ids_BT.shape[1]
        for part in self._passes(width, len(jobs), max(counts)):
            ids, real = ids_BT[:, part.begin : part.end], real_BT[:, part.begin : part.end]
            logits_BTV = flight.run(ids, real, max(1, part.keep))
            first = part.end - part.keep
            wanted = [
                (row, column - first, int(job.ids[len(job.ids) - width + column]))
                for row, (job, count) in enumerate(zip(jobs, counts))
                for column in range(max(first, width - count), part.end)
            ]
            if wanted:
                row_N, column_N, token_N = torch.tensor(wanted, device=logits_BTV.device).T
                values = token_logprobs(logits_BTV[row_N, column_N], token_N).tolist()
                for (row, _, _), value in zip(wanted, values, strict=True):
                    results[row].append(value)
        if any(np.isnan(values).any() for values in results):
            raise ModelError(
                "The model gave NaN logits.", "Load it with dtype float32; otherwise its weights are damaged."
            )
        return results

    def embed(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Mean last hidden state of each row, scaled to length 1; float32 of shape (B, D)."""
        base = self._model.get_base_model() if hasattr(self._model, "get_base_model") else self._model
        step = max(1, _PASS_TOKENS // max(len(row) for row in rows))
        parts = []
        for start in range(0, len(rows), step):
            ids_BT, real_BT = left_padded(rows[start : start + step], self.device)
            inputs: dict[str, Any] = {"input_ids": ids_BT, "attention_mask": real_BT.long(), "use_cache": False}
            if "position_ids" in self.facts.arguments:
                inputs["position_ids"] = (real_BT.cumsum(dim=1) - 1).clamp_min(0)
            hidden_BTD = base.get_decoder()(**inputs).last_hidden_state.float()
            # Padding is left out rather than multiplied by zero: what stands there may be NaN.
            sum_BD = hidden_BTD.masked_fill(~real_BT[:, :, None].to(hidden_BTD.device), 0.0).sum(dim=1)
            parts.append(torch.nn.functional.normalize(sum_BD, dim=-1).cpu())
        vectors_BD = torch.cat(parts).numpy()
        if not np.isfinite(vectors_BD).all():
            raise ModelError(
                "The model gave NaN hidden states.", "Load it with dtype float32; otherwise its weights are damaged."
            )
        return vectors_BD

    def forget(self) -> None:
        """Free what is kept between batches."""
        self._store.clear()
        self._before = None
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _begin(
        self, rows: Sequence[np.ndarray], heads: Sequence[np.ndarray], new_tokens: int
    ) -> tuple[Flight, torch.Tensor, torch.Tensor]:
        """A batch whose shared prefix lies in its cache, and the padded rest of each row.

        `heads` are the parts of the rows that may belong to the prefix; their last token never does.
        """
        prefix = self._prefix(heads) if self.limits.reuse else None
        length = len(prefix.tokens) if prefix else 0
        room = max(len(row) for row in rows) + new_tokens
        flight = Flight(self._model, self.facts, self.device, len(rows), prefix, room)
        return flight, *left_padded([row[length:] for row in rows], self.device)

    def _prefix(self, heads: Sequence[np.ndarray]) -> Prefix | None:
        """The longest shared prefix that is known or worth computing."""
        shared = shared_length(heads)
        known = self._store.longest(heads[0][:shared])
        have = len(known.tokens) if known else 0
        want = have
        if (len(heads) - 1) * (shared - have) > self.limits.step_cost:
            want = shared
        elif len(heads) == 1 and self._before is not None:
            # Prompts that come one by one: what this one shares with the last one, the next will likely share too.
            repeated = min(shared, common_length(self._before, heads[0]))
            if repeated - have >= _REPEATED:
                want = repeated
        self._before = heads[0]
        return known if want == have else self._extend(known, heads[0][:want])

    def _extend(self, known: Prefix | None, tokens: np.ndarray) -> Prefix:
        flight = Flight(self._model, self.facts, self.device, 1, known, len(tokens))
        rest_1T = torch.from_numpy(tokens[len(known.tokens) if known else 0 :])[None].to(self.device)
        for part in self._passes(rest_1T.shape[1], 1):
            flight.run(rest_1T[:, part.begin : part.end])
        prefix = flight.as_prefix(tokens.copy())
        self._store.add(prefix)
        return prefix

    @torch.inference_mode()
    def _gives_the_same_behind_a_prefix(self) -> bool:
        tokens = np.arange(1, 24) * 7919 % self._vocab
        rows = [tokens[:15], np.concatenate([tokens[:12], tokens[15:20]])]
        flight = Flight(self._model, self.facts, self.device, 2, self._extend(None, tokens[:12]), 20)
        self._store.clear()
        behind_2V = flight.run(*left_padded([row[12:] for row in rows], self.device))[:, -1].float()
        alone = [self._model(input_ids=torch.from_numpy(row)[None].to(self.device)).logits[0, -1] for row in rows]
        alone_2V = torch.stack(alone).float()
        tolerance = (1e-3 if self.dtype == torch.float32 else 0.1) * float(alone_2V.abs().amax())
        # Damaged weights give NaN on both sides; whoever uses the logits reports that.
        return not float((behind_2V - alone_2V).abs().amax()) > tolerance

    def _passes(self, width: int, rows: int, keep: int = 1) -> Iterator[_Part]:
        """Cut columns into forward passes that bound activations and logits; the last `keep` ones' logits are kept."""
        step = max(1, _PASS_TOKENS // rows)
        most = max(1, _LOGITS // (rows * self._vocab))
        head = max(0, width - max(keep, step)) if keep <= most else width - keep
        for begin in range(0, head, step):
            yield _Part(begin, min(begin + step, head), 0)
        if keep <= most:
            yield _Part(head, width, keep)
            return
        for begin in range(head, width, min(step, most)):
            end = min(begin + min(step, most), width)
            yield _Part(begin, end, end - begin)


class _Part(NamedTuple):
    """Columns `begin` to `end` in one forward pass; logits of the last `keep` of them are wanted."""

    begin: int
    end: int
    keep: int


def _input_device(model: Any) -> torch.device:
    """Where token ids go; weights that were offloaded lie nowhere, and their hooks take inputs from anywhere."""
    device = model.get_input_embeddings().weight.device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu") if device.type == "meta" else device


def _budget(model: Any, device: torch.device, dtype: torch.dtype) -> int:
    """Tokens whose keys and values fill the memory that a batch may take; the same on every run on a machine."""
    config = model.config.get_text_config(decoder=True)
    heads = getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", 1)
    size = getattr(config, "head_dim", None) or config.hidden_size // max(1, getattr(config, "num_attention_heads", 1))
    per_token = 2 * config.num_hidden_layers * heads * size * dtype.itemsize
    memory = 512 << 20
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory // 4
    return max(2048, min(memory // max(1, per_token), 1 << 18 if device.type == "cuda" else 1 << 15))

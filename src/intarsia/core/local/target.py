"""LocalTarget: a transformers model in this process.

What makes it fast on many prompts: batches of like length under a token budget (`batching`), prefixes that many prompts
share computed once (`engine`, `prefix`), rows dropped when they are done (`decode`). What makes it repeatable: a row's
random numbers depend on its key and nothing else, and in float32 a row's logits do not depend on its batch beyond
rounding.

Shape suffixes: N texts, B rows, V vocabulary, D hidden size.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from intarsia.core.catalog.chat import ChatStyle, chat_style
from intarsia.core.errors import BackendError, ConfigError, IntarsiaError
from intarsia.core.local import batching
from intarsia.core.local.decode import Answer, Reader, Request, decode
from intarsia.core.local.encoding import Continued, Encoded, Encoder
from intarsia.core.local.engine import Engine
from intarsia.core.local.forward import Anatomy
from intarsia.core.sampling import Sampling, request_key
from intarsia.core.target import Capability, Completion, Progress, Prompt, Scored, Target

_log = logging.getLogger(__name__)

_SCORED = 32  # Continuation tokens that planning allows for.


class LocalTarget(Target):
    """Answers, scores and embeds with a causal model from transformers.

    A plain string is continued as it stands (with the beginning-of-text token where the model wants one); an empty one
    begins with the beginning- or end-of-text token. Messages go through the chat template. A system message that the
    template does not support is put in front of the first user message. When the last message is the assistant's, the
    answer goes on from it. A model without a template refuses messages, unless `transcript` is set: then they are
    written as

        System text, a blank line, then
        User: ...
        Assistant: ...

    and an answer ends where the model would begin the next `User:` line.

    `Completion.token_ids` are all tokens that were produced, those of a stop string included, so they may reach past
    `text`. A prompt that leaves no room in the model's window gets an answer with `finish_reason="error"`.

    Args:
        model: A causal language model; it is put in evaluation mode.
        tokenizer: Its tokenizer.
        name: As it appears in reports.
        batch_tokens: Token budget of a batch (rows times longest row, new tokens included), which bounds memory. By
            default what fits 512 MiB of keys and values, or a quarter of an accelerator's memory.
        batch_rows: Most rows of a batch; 64 by default, 256 on an accelerator.
        context: Use fewer positions than the model has.
        reuse_prefix: Whether shared prefixes are computed once.
        transcript: Whether a model without chat template takes messages as a plain transcript.
        thinking: Turn the thinking part of a model that has a switch on or off; None leaves the template's default.
        provenance: What is known of where the model comes from.

    Attributes:
        model: The torch module.
        tokenizer: The tokenizer.
        style: What the chat template can do.

    Raises:
        ModelError: It is not a decoder-only language model.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        name: str = "",
        *,
        batch_tokens: int | None = None,
        batch_rows: int | None = None,
        context: int | None = None,
        reuse_prefix: bool = True,
        transcript: bool = False,
        thinking: bool | None = None,
        provenance: dict[str, Any] | None = None,
    ) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.name = name or str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
        self.style: ChatStyle = chat_style(tokenizer)
        self._engine = Engine(self.model, batch_tokens, batch_rows, reuse_prefix)
        self._transcript = transcript and not self.style.has_template
        self._window = _window(self._engine.facts, tokenizer, context)
        self._encoder = Encoder(tokenizer, self.style, self.name, self._window, self._transcript, thinking)
        self._ends = _end_tokens(model, tokenizer, self.style)
        self._origin = dict(provenance or {})
        self._lock = threading.RLock()
        capabilities: set[Capability] = {"generate", "score", "embed", "logprobs", "seed", "weights"}
        if self.style.has_template or self._transcript:
            capabilities.add("chat")
        self.capabilities = frozenset(capabilities)

    @classmethod
    def load(
        cls,
        spec: str,
        *,
        dtype: str = "auto",
        device: str = "auto",
        device_map: Any = None,
        accept_license: bool = False,
        attn_implementation: str | None = None,
        offline: bool | None = None,
        say: Callable[[str], None] | None = None,
        **options: Any,
    ) -> LocalTarget:
        """Load a model by name; see `Target.parse` for the names and `catalog.load_model` for the arguments.

        Args:
            spec: Embedded name, hub id with revision, folder, GGUF file, or base plus adapter folder.
            dtype: `auto`, `fp32`, `bf16` or `fp16`.
            device: `auto`, `cpu`, `cuda`, `cuda:1` or `mps`.
            device_map: As in transformers, to spread a large model.
            accept_license: Accept the terms of a model that asks for it.
            attn_implementation: As in transformers.
            offline: Use only what is on this machine.
            say: Takes one line at a time about what is going on.
            **options: The constructor's.

        Raises:
            ConfigError: An option is wrong.
            ModelError: There is no such model, or it cannot be loaded.
            BackendError: What it would be fetched from does not answer.
        """
        from intarsia.core.catalog import load_model

        loaded = load_model(
            spec,
            dtype=dtype,
            device=device,
            device_map=device_map,
            accept_license=accept_license,
            attn_implementation=attn_implementation,
            offline=offline,
            progress=say,
        )
        origin = loaded.resolved.provenance() | {"notes": list(loaded.notes)}
        return cls(loaded.model, loaded.tokenizer, spec, provenance=origin, **options)

    # --- Answering ---------------------------------------------------------------------------------------------------

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        keys: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Completion]:
        """Answer each prompt, in order; see `Target.generate`.

        Raises:
            ModelError: The model has no chat template for messages, or gave NaN logits.
            BackendError: Memory is too small for a single prompt.
        """
        sampling = sampling or Sampling()
        names = list(keys) if keys is not None else _content_keys(prompts)
        if len(names) != len(prompts):
            raise ValueError(f"{len(prompts)} prompts need as many keys, not {len(names)}")
        with self._lock, torch.inference_mode():
            encoded = self._encode(prompts)
            answers: list[Completion | None] = [None] * len(prompts)
            done = 0
            for group in self._plan(encoded, sampling.max_new_tokens):
                self._halving(group, lambda rows: self._answer(rows, encoded, names, sampling, answers))
                done += len(group)
                if progress is not None:
                    progress(done, len(prompts))
        return [answer for answer in answers if answer is not None]

    def _answer(
        self,
        group: list[int],
        encoded: list[Encoded],
        names: list[str],
        sampling: Sampling,
        answers: list[Completion | None],
    ) -> None:
        if encoded[group[0]].error:
            for index in group:
                answers[index] = _no_answer(encoded[index])
            return
        batch = [encoded[index] for index in group]
        plain = Reader(self.tokenizer, sampling.stop, self.style.thinking)
        written = Reader(self.tokenizer, (*sampling.stop, "\nUser:"))
        requests = [
            Request(
                key=request_key(names[index]),
                most=min(sampling.max_new_tokens, self._window - len(item.ids)),
                thinks=item.thinks,
                reader=written if item.transcript else plain,
            )
            for index, item in zip(group, batch)
        ]
        flight, logits_BV = self._engine.prefill([item.ids for item in batch], min(sampling.max_new_tokens, 128))
        found = decode(flight, logits_BV, requests, sampling, self._ends)
        for index, item, request, answer in zip(group, batch, requests, found):
            answers[index] = self._completion(item, request, answer, sampling)

    def _completion(self, item: Encoded, request: Request, answer: Answer, sampling: Sampling) -> Completion:
        spoken = answer.tokens[:-1] if answer.tokens[-1] in self._ends else answer.tokens
        thinking, text, stopped = request.reader.split(spoken, request.thinks)
        return Completion(
            text=text,
            token_count=len(answer.tokens),
            token_ids=tuple(answer.tokens),
            logprobs=tuple(answer.logprobs) if sampling.logprobs else None,
            finish_reason="length" if answer.end == "length" and not stopped else "stop",
            prompt_tokens=len(item.ids),
            thinking=thinking,
        )

    # --- Scoring and embedding ---------------------------------------------------------------------------------------

    def score(
        self, prompts: Sequence[Prompt], continuations: Sequence[str], *, progress: Progress | None = None
    ) -> list[Scored]:
        """Log-probabilities of `continuations[i]` after `prompts[i]`, under the untempered law.

        After a string the two are tokenized together, as the model would have read them. The continuation's tokens
        begin where the joint tokens part from the prompt's own, so a token that spans the boundary is scored with the
        continuation. After messages the continuation is tokenized by itself, behind the template's opening of it.

        Raises:
            DataError: A prompt and its continuation do not fit the model's window.
            ModelError: The model has no chat template for messages, or gave NaN logits.
            BackendError: Memory is too small for a single prompt.
        """
        if len(prompts) != len(continuations):
            raise ValueError(f"{len(prompts)} prompts need as many continuations, not {len(continuations)}")
        with self._lock, torch.inference_mode():
            encoded = self._encode(prompts)
            jobs = self._encoder.continued(prompts, encoded, continuations)
            scores: list[Scored | None] = [None] * len(prompts)
            done = 0
            for group in self._plan(encoded, _SCORED):
                self._halving(group, lambda rows: self._score(rows, jobs, scores))
                done += len(group)
                if progress is not None:
                    progress(done, len(prompts))
        return [score for score in scores if score is not None]

    def _score(self, group: list[int], jobs: list[Continued], scores: list[Scored | None]) -> None:
        batch = [jobs[index] for index in group]
        if len(group) > 1 and len(group) * max(len(job.ids) for job in batch) > 2 * self._engine.limits.tokens:
            # The plan was made before the continuations were known, and these are long.
            self._score(group[: len(group) // 2], jobs, scores)
            self._score(group[len(group) // 2 :], jobs, scores)
            return
        for index, job, values in zip(group, batch, self._engine.score(batch)):
            scores[index] = Scored(token_ids=tuple(job.ids[job.begin :].tolist()), logprobs=tuple(values))

    def embed(self, texts: Sequence[str], *, progress: Progress | None = None) -> np.ndarray:
        """Mean of the last hidden states over a text's tokens, scaled to length 1; float32 of shape (len(texts), D).

        A text longer than the model's window is cut off at its end.
        """
        with self._lock, torch.inference_mode():
            self._check_open()
            texts = list(texts)
            ids = [row[: self._window] for row in self._encoder.tokenize(texts, [True] * len(texts))]
            vectors_ND = np.zeros((len(texts), self.model.get_input_embeddings().weight.shape[1]), dtype=np.float32)
            done = 0
            for group in batching.plan(ids, 0, replace(self._engine.limits, reuse=False)):
                self._halving(group, lambda rows: self._embed(rows, ids, vectors_ND))
                done += len(group)
                if progress is not None:
                    progress(done, len(texts))
        return vectors_ND

    def _embed(self, group: list[int], ids: list[np.ndarray], vectors_ND: np.ndarray) -> None:
        vectors_ND[group] = self._engine.embed([ids[index] for index in group])

    # --- Planning ----------------------------------------------------------------------------------------------------

    def batches(self, prompts: Sequence[Prompt], sampling: Sampling | None = None) -> list[list[int]]:
        """How the prompts would be grouped: by shared prefix, then by length, under the token budget."""
        with self._lock:
            return self._plan(self._encode(prompts), _SCORED if sampling is None else sampling.max_new_tokens)

    def _plan(self, encoded: list[Encoded], new_tokens: int) -> list[list[int]]:
        fine = [index for index, item in enumerate(encoded) if not item.error]
        groups = batching.plan([encoded[index].ids for index in fine], new_tokens, self._engine.limits)
        failed = [index for index, item in enumerate(encoded) if item.error]
        return [[fine[place] for place in group] for group in groups] + ([failed] if failed else [])

    def _halving(self, group: list[int], work: Callable[[list[int]], None]) -> None:
        """Do the work on a group; when memory runs out, on its halves."""
        try:
            work(group)
            return
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
                raise
        # Outside the handler: the error's traceback holds the tensors that memory is needed for.
        self._engine.forget()
        if len(group) == 1:
            raise BackendError(
                f"{self.name} ran out of memory on {self._engine.device} with a single prompt.",
                "Use shorter prompts, a smaller model, dtype bfloat16, or a device with more memory.",
            )
        _log.warning("out of memory with %d prompts at once; going on with half as many", len(group))
        self._halving(group[: len(group) // 2], work)
        self._halving(group[len(group) // 2 :], work)

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """Tokens of each prompt as the model would see it, template and special tokens included."""
        return [len(item.ids) for item in self._encode(prompts)]

    def _encode(self, prompts: Sequence[Prompt]) -> list[Encoded]:
        self._check_open()
        return self._encoder.encode(prompts)

    def _check_open(self) -> None:
        if self.model is None:
            raise ConfigError(f"{self.name} was closed.", "Load it again.")

    # --- About -------------------------------------------------------------------------------------------------------

    def provenance(self) -> dict[str, Any]:
        """Source, revision, hashes, class, parameters, dtype, device and whether prefixes are shared."""
        if self.model is None:
            return {"name": self.name, "kind": type(self).__name__, **self._origin}
        return {
            "name": self.name,
            "kind": type(self).__name__,
            **self._origin,
            "architecture": type(self.model).__name__,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "dtype": str(self._engine.dtype).removeprefix("torch."),
            "device": str(self._engine.device),
            "attention": str(getattr(self.model.config, "_attn_implementation", "")),
            "window": self._window,
            "batch_tokens": self._engine.limits.tokens,
            "shared_prefixes": f"no: {self._engine.why_not}" if self._engine.why_not else "yes",
        }

    def forget(self) -> None:
        """Drop cached prefixes: call it whenever the weights, or what hooks make of them, have changed."""
        with self._lock:
            if self._engine is not None:
                self._engine.forget()

    def close(self) -> None:
        """Let go of the model and everything cached."""
        with self._lock:
            if self.model is None:
                return
            self._engine.forget()
            self._engine = self.model = None  # type: ignore[assignment]


def _content_keys(prompts: Sequence[Prompt]) -> list[str]:
    """Keys for prompts without names: the content, and how many equal ones came before."""
    seen: Counter[str] = Counter()
    keys = []
    for prompt in prompts:
        text = json.dumps(prompt, sort_keys=True, default=str)
        keys.append(f"{text}#{seen[text]}")
        seen[text] += 1
    return keys


def _no_answer(item: Encoded) -> Completion:
    return Completion(
        text="", token_count=0, token_ids=(), finish_reason="error", prompt_tokens=len(item.ids), error=item.error
    )


def _end_tokens(model: Any, tokenizer: Any, style: ChatStyle) -> frozenset[int]:
    """All tokens that end an answer: the configured ones, and the one that closes the assistant's turn."""
    ends: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config.get_text_config(decoder=True), tokenizer):
        value = getattr(source, "eos_token_id", None)
        ends.update(value if isinstance(value, (list, tuple)) else [] if value is None else [value])
    if style.has_template:
        turns = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Goodbye."}]
        try:
            text = str(tokenizer.apply_chat_template(turns, tokenize=False))
        # A template refuses messages with whatever error it likes; then the configured end tokens must do.
        except Exception:
            text = ""
        _, found, tail = text.rpartition("Goodbye.")
        first = tokenizer(tail.lstrip(), add_special_tokens=False)["input_ids"][:1] if found else []
        # Only a token made for the purpose: an ordinary one, such as a line break, also stands inside answers.
        ends.update(token for token in first if token in {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder})
    return frozenset(ends)


def _window(facts: Anatomy, tokenizer: Any, context: int | None) -> int:
    """Positions that can be used; a model that names no limit is given one that no prompt will meet."""
    said = [n for n in (facts.window_tokens, tokenizer.model_max_length, context) if n is not None and 0 < n < 10**9]
    return int(min(said, default=1 << 20))


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, IntarsiaError):
        return False
    text = str(error).lower()
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in text

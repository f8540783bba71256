"""LocalTarget: a transformers model in this process.

What makes it fast on many prompts: batches of like length under a token budget (`batching`), prefixes that many prompts
share computed once (`prefix`, `forward`), rows dropped when they are done (`decode`). What makes it repeatable: a row's
random numbers depend on its key and nothing else, and in float32 a row's logits do not depend on its batch beyond
rounding.

Shape suffixes: B rows, T tokens, V vocabulary, D hidden size.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from intarsia.core import batching
from intarsia.core.chat import ChatStyle, chat_style
from intarsia.core.decode import Answer, Reader, Request, decode
from intarsia.core.errors import BackendError, ConfigError, DataError, IntarsiaError, ModelError
from intarsia.core.forward import Anatomy, Flight, anatomy, left_padded
from intarsia.core.prefix import Prefix, PrefixStore
from intarsia.core.sampling import Sampling, request_key, token_logprobs
from intarsia.core.target import Capability, Completion, Message, Progress, Prompt, Scored, Target, prompt_text

_log = logging.getLogger(__name__)

_PASS_TOKENS = 8192  # Most tokens of one forward pass: bounds activations.
_LOGITS = 1 << 25  # Most logits held at once when scoring: 128 MiB in float32.
_SCORED = 32  # Continuation tokens that planning allows for.
_REPEATED = 64  # Tokens that two calls in a row must share before a single prompt's prefix is kept.


@dataclass(frozen=True)
class _Encoded:
    """A prompt as tokens; with `error` it cannot be answered."""

    ids: np.ndarray
    thinks: bool = False
    transcript: bool = False
    error: str = ""


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
        self.device: torch.device = _input_device(model)
        self.dtype: torch.dtype = model.get_input_embeddings().weight.dtype
        self._facts: Anatomy = anatomy(model)
        self._transcript = transcript and not self.style.has_template
        self._thinking = thinking
        self._origin = dict(provenance or {})
        self._vocab = int(model.get_output_embeddings().weight.shape[0])
        self._ends = _end_tokens(model, tokenizer, self.style)
        self._start = next(
            (t for t in (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) if t is not None), None
        )
        self._window = _window(self._facts, tokenizer, context)
        accelerated = self.device.type != "cpu"
        self._limits = batching.Limits(
            tokens=batch_tokens or _budget(model, self.device, self.dtype),
            rows=batch_rows or (256 if accelerated else 64),
            step_cost=512 if accelerated else 32,
            reuse=reuse_prefix and self._facts.buffered,
            padding=self._facts.padding,
        )
        self._store = PrefixStore(self._limits.tokens)
        self._before: np.ndarray | None = None
        self._checked = False
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
        encoded: list[_Encoded],
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
        flight, suffixes = self._begin([item.ids for item in batch], min(sampling.max_new_tokens, 128))
        ids_BT, real_BT = left_padded(suffixes, self.device)
        logits_BV = torch.empty(0)
        for part in self._passes(ids_BT.shape[1], len(batch)):
            logits_BV = flight.run(ids_BT[:, part.begin : part.end], real_BT[:, part.begin : part.end])[:, -1]
        for index, item, request, answer in zip(
            group, batch, requests, decode(flight, logits_BV, requests, sampling, self._ends)
        ):
            answers[index] = self._completion(item, request, answer, sampling)

    def _completion(self, item: _Encoded, request: Request, answer: Answer, sampling: Sampling) -> Completion:
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
            jobs = self._joint(prompts, encoded, continuations)
            scores: list[Scored | None] = [None] * len(prompts)
            done = 0
            for group in self._plan(encoded, _SCORED):
                self._halving(group, lambda rows: self._score(rows, jobs, scores))
                done += len(group)
                if progress is not None:
                    progress(done, len(prompts))
        return [score for score in scores if score is not None]

    def _joint(self, prompts: Sequence[Prompt], encoded: list[_Encoded], continuations: Sequence[str]) -> list[_Job]:
        """Tokens of prompt and continuation, and where the continuation begins."""
        plain = [isinstance(prompt, str) for prompt in prompts]
        together = self._tokenize(
            [f"{prompt}{text}" if is_plain else text for prompt, text, is_plain in zip(prompts, continuations, plain)],
            plain,
        )
        jobs = []
        for place, (item, tokens, is_plain) in enumerate(zip(encoded, together, plain)):
            if item.error:
                raise DataError(f"Prompt {place} cannot be scored: {item.error}", "Shorten it or leave it out.")
            if is_plain:
                begin = batching.common_length(item.ids, tokens)
                if begin == 0:
                    tokens, begin = np.concatenate([item.ids[:1], tokens]), 1
            else:
                tokens, begin = np.concatenate([item.ids, tokens]), len(item.ids)
            if len(tokens) > self._window:
                raise DataError(
                    f"Prompt {place} and its continuation have {len(tokens)} tokens; {self.name} takes {self._window}.",
                    "Shorten them or leave them out.",
                )
            jobs.append(_Job(tokens, begin))
        return jobs

    def _score(self, group: list[int], jobs: list[_Job], scores: list[Scored | None]) -> None:
        rows = [jobs[index] for index in group]
        if len(rows) > 1 and len(rows) * max(len(row.tokens) for row in rows) > 2 * self._limits.tokens:
            self._score(group[: len(group) // 2], jobs, scores)
            self._score(group[len(group) // 2 :], jobs, scores)
            return
        counts = [len(row.tokens) - row.begin for row in rows]
        results: list[list[float]] = [[] for _ in rows]
        if max(counts):
            # The last token predicts nothing; a continuation's first token is predicted by the last of its context.
            flight, suffixes = self._begin([row.tokens[: max(1, len(row.tokens) - 1)] for row in rows], 0, counts)
            ids_BT, real_BT = left_padded(suffixes, self.device)
            width = ids_BT.shape[1]
            for part in self._passes(width, len(rows), max(counts)):
                logits_BTV = flight.run(
                    ids_BT[:, part.begin : part.end], real_BT[:, part.begin : part.end], max(1, part.keep)
                )
                # (row, column of the kept logits, token that the column predicts)
                wanted = [
                    (
                        row,
                        column - (part.end - part.keep),
                        int(rows[row].tokens[len(rows[row].tokens) - width + column]),
                    )
                    for row, count in enumerate(counts)
                    for column in range(max(part.end - part.keep, width - count), part.end)
                ]
                if wanted:
                    row_N, column_N, token_N = torch.tensor(wanted, device=logits_BTV.device).T
                    for (row, _, _), value in zip(
                        wanted, token_logprobs(logits_BTV[row_N, column_N], token_N).tolist(), strict=True
                    ):
                        results[row].append(value)
        for index, job, values in zip(group, rows, results):
            if np.isnan(values).any():
                raise ModelError(
                    f"{self.name} gave NaN logits.", "Load it with dtype float32; otherwise its weights are damaged."
                )
            scores[index] = Scored(token_ids=tuple(job.tokens[job.begin :].tolist()), logprobs=tuple(values))

    def embed(self, texts: Sequence[str], *, progress: Progress | None = None) -> np.ndarray:
        """Mean of the last hidden states over a text's tokens, scaled to length 1; float32 of shape (len(texts), D).

        A text longer than the model's window is cut off at its end.
        """
        with self._lock, torch.inference_mode():
            ids = [tokens[: self._window] for tokens in self._tokenize(list(texts), [True] * len(texts))]
            vectors_ND = np.zeros((len(texts), self.model.get_input_embeddings().weight.shape[1]), dtype=np.float32)
            done = 0
            for group in batching.plan(ids, 0, replace(self._limits, reuse=False)):
                self._halving(group, lambda rows: self._embed(rows, ids, vectors_ND))
                done += len(group)
                if progress is not None:
                    progress(done, len(texts))
        return vectors_ND

    def _embed(self, group: list[int], ids: list[np.ndarray], vectors_ND: np.ndarray) -> None:
        base = self.model.get_base_model() if hasattr(self.model, "get_base_model") else self.model
        for start in range(0, len(group), step := max(1, _PASS_TOKENS // max(len(ids[i]) for i in group))):
            part = group[start : start + step]
            ids_BT, real_BT = left_padded([ids[index] for index in part], self.device)
            inputs: dict[str, Any] = {"input_ids": ids_BT, "attention_mask": real_BT.long(), "use_cache": False}
            if "position_ids" in self._facts.arguments:
                inputs["position_ids"] = (real_BT.cumsum(dim=1) - 1).clamp_min(0)
            hidden_BTD = base.get_decoder()(**inputs).last_hidden_state.float()
            mean_BD = (hidden_BTD * real_BT[:, :, None].to(hidden_BTD.device)).sum(dim=1)
            mean_BD = torch.nn.functional.normalize(mean_BD, dim=-1)
            if not bool(mean_BD.isfinite().all()):
                raise ModelError(
                    f"{self.name} gave NaN hidden states.", "Load it with dtype float32; else its weights are damaged."
                )
            vectors_ND[part] = mean_BD.cpu().numpy()

    # --- Planning and prefixes ---------------------------------------------------------------------------------------

    def batches(self, prompts: Sequence[Prompt], sampling: Sampling | None = None) -> list[list[int]]:
        """How the prompts would be grouped: by shared prefix, then by length, under the token budget."""
        with self._lock:
            return self._plan(self._encode(prompts), _SCORED if sampling is None else sampling.max_new_tokens)

    def _plan(self, encoded: list[_Encoded], new_tokens: int) -> list[list[int]]:
        fine = [index for index, item in enumerate(encoded) if not item.error]
        groups = batching.plan([encoded[index].ids for index in fine], new_tokens, self._limits)
        failed = [index for index, item in enumerate(encoded) if item.error]
        return [[fine[place] for place in group] for group in groups] + ([failed] if failed else [])

    def _begin(
        self, rows: list[np.ndarray], new_tokens: int, own: Sequence[int] | None = None
    ) -> tuple[Flight, list[np.ndarray]]:
        """A flight with the prefix that the rows share already in its cache, and what is left of each row.

        `own` says how many tokens at the end of each row must not be part of the prefix.
        """
        prefix = None
        if self._limits.reuse and self._trust_reuse():
            counts = own or [0] * len(rows)
            heads = [row[: max(1, len(row) - max(0, count - 1))] for row, count in zip(rows, counts)]
            prefix = self._prefix(heads, batching.shared_length(heads))
            self._before = rows[0]
        length = len(prefix.tokens) if prefix else 0
        room = max(len(row) for row in rows) + new_tokens
        return Flight(self.model, self._facts, self.device, len(rows), prefix, room), [row[length:] for row in rows]

    def _prefix(self, rows: list[np.ndarray], shared: int) -> Prefix | None:
        """The longest prefix of the rows that is known or worth computing."""
        known = self._store.longest(rows[0][:shared])
        have = len(known.tokens) if known else 0
        want = have
        if (len(rows) - 1) * (shared - have) > self._limits.step_cost:
            want = shared
        elif len(rows) == 1 and self._before is not None:
            # Prompts that come one by one: what this one shares with the last one, the next will likely share too.
            repeated = min(shared, batching.common_length(self._before, rows[0]))
            if repeated - have >= _REPEATED:
                want = repeated
        return known if want == have else self._extend(known, rows[0][:want])

    def _extend(self, known: Prefix | None, tokens: np.ndarray) -> Prefix:
        flight = Flight(self.model, self._facts, self.device, 1, known, len(tokens))
        rest_1T = torch.from_numpy(tokens[len(known.tokens) if known else 0 :])[None].to(self.device)
        for part in self._passes(rest_1T.shape[1], 1):
            flight.run(rest_1T[:, part.begin : part.end])
        prefix = flight.as_prefix(tokens.copy())
        self._store.add(prefix)
        return prefix

    def _trust_reuse(self) -> bool:
        """Whether this model gives the same logits behind a shared prefix; measured once, on two short rows."""
        if not self._checked:
            self._checked = True
            tokens = np.arange(1, 24) * 7919 % self._vocab
            rows = [tokens[:15], np.concatenate([tokens[:12], tokens[15:20]])]
            flight = Flight(self.model, self._facts, self.device, 2, self._extend(None, tokens[:12]), 20)
            self._store.clear()
            shared_2V = flight.run(*left_padded([row[12:] for row in rows], self.device))[:, -1].float()
            alone = [self.model(input_ids=torch.from_numpy(row)[None].to(self.device)).logits[0, -1] for row in rows]
            alone_2V = torch.stack(alone).float()
            tolerance = (1e-3 if self.dtype == torch.float32 else 0.1) * float(alone_2V.abs().amax())
            if float((shared_2V - alone_2V).abs().amax()) > tolerance:
                _log.warning("%s computes prefixes anew: its logits change behind a shared one", self.name)
                self._limits = replace(self._limits, reuse=False)
        return self._limits.reuse

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

    def _halving(self, group: list[int], work: Callable[[list[int]], None]) -> None:
        """Do the work on a group; when memory runs out, on its halves."""
        try:
            work(group)
            return
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
                raise
        # Outside the handler: the error's traceback holds the tensors that memory is needed for.
        self._store.clear()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if len(group) == 1:
            raise BackendError(
                f"{self.name} ran out of memory on {self.device} with a single prompt.",
                "Use shorter prompts, a smaller model, dtype bfloat16, or a device with more memory.",
            )
        _log.warning("out of memory with %d prompts at once; going on with half as many", len(group))
        self._halving(group[: len(group) // 2], work)
        self._halving(group[len(group) // 2 :], work)

    # --- Tokens ------------------------------------------------------------------------------------------------------

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """Tokens of each prompt as the model would see it, template and special tokens included."""
        return [len(item.ids) for item in self._encode(prompts)]

    def _encode(self, prompts: Sequence[Prompt]) -> list[_Encoded]:
        if self.model is None:
            raise ConfigError(f"{self.name} was closed.", "Load it again.")
        rendered = [(prompt, "") if isinstance(prompt, str) else self._render(prompt) for prompt in prompts]
        plain = [isinstance(prompt, str) or self._transcript for prompt in prompts]
        tokens = self._tokenize([text for text, _ in rendered], plain)
        encoded = []
        for prompt, (text, error), ids in zip(prompts, rendered, tokens):
            if not error and not len(ids):
                error = "The prompt is empty, and the model has no token to begin a text with."
            elif not error and len(ids) >= self._window:
                error = f"The prompt has {len(ids)} tokens; {self.name} takes {self._window - 1} and an answer."
            chat = not isinstance(prompt, str)
            tags = self.style.thinking
            thinks = chat and tags is not None and text.rfind(tags[0]) > text.rfind(tags[1])
            encoded.append(_Encoded(ids, thinks, chat and self._transcript, error))
        return encoded

    def _tokenize(self, texts: list[str], whole: list[bool]) -> list[np.ndarray]:
        """Token ids. `whole` texts get the special tokens of a text's beginning; one without any gets a start token."""
        ids: list[np.ndarray] = [np.zeros(0, dtype=np.int64)] * len(texts)
        for special in (True, False):
            places = [place for place, is_whole in enumerate(whole) if is_whole is special]
            if not places:
                continue
            # Half a surrogate pair is no text; the tokenizer would fail on it with a type error.
            clean = [texts[place].encode("utf-8", "replace").decode() for place in places]
            tokens = self.tokenizer(clean, add_special_tokens=special, verbose=False)["input_ids"]
            for place, row in zip(places, tokens):
                if not row and special and self._start is not None:
                    row = [self._start]
                ids[place] = np.asarray(row, dtype=np.int64)
        return ids

    def _render(self, messages: Sequence[Message]) -> tuple[str, str]:
        """Messages as text through the template, and why that failed."""
        turns = [{"role": str(message["role"]), "content": str(message["content"])} for message in messages]
        if self._transcript:
            return _as_transcript(turns), ""
        if not self.style.has_template:
            raise ModelError(
                f"{self.name} has no chat template, so it takes no chat messages.",
                "Give it plain text, load it with transcript=True, or use its instruction-tuned version.",
            )
        if not self.style.supports_system:
            turns = _fold_system(turns)
        if not turns:
            return "", "There are no messages."
        goes_on = turns[-1]["role"] == "assistant"
        options: dict[str, Any] = {} if self._thinking is None else {"enable_thinking": self._thinking}
        try:
            text = self.tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=not goes_on, continue_final_message=goes_on, **options
            )
        # A template refuses messages with whatever error it likes.
        except Exception as error:
            return "", f"The chat template refused the messages: {' '.join(str(error).split())[:200]}"
        return text, ""

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
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": str(self.device),
            "attention": str(getattr(self.model.config, "_attn_implementation", "")),
            "window": self._window,
            "batch_tokens": self._limits.tokens,
            "shared_prefixes": "yes" if self._limits.reuse else f"no: {self._facts.why_not or 'turned off'}",
        }

    def close(self) -> None:
        """Let go of the model and everything cached."""
        with self._lock:
            self.model = None
            self._store.clear()
            self._before = None
            if self.device.type == "cuda":
                torch.cuda.empty_cache()


class _Job(NamedTuple):
    """Tokens of prompt and continuation; the continuation begins at `begin`."""

    tokens: np.ndarray
    begin: int


class _Part(NamedTuple):
    """Columns `begin` to `end` in one forward pass; logits of the last `keep` of them are wanted."""

    begin: int
    end: int
    keep: int


def _content_keys(prompts: Sequence[Prompt]) -> list[str]:
    """Keys for prompts without names: the content, and how many equal ones came before."""
    seen: Counter[str] = Counter()
    keys = []
    for prompt in prompts:
        text = f"{type(prompt).__name__ if isinstance(prompt, str) else 'messages'}:{prompt_text(prompt)}"
        keys.append(f"{text}#{seen[text]}")
        seen[text] += 1
    return keys


def _no_answer(item: _Encoded) -> Completion:
    return Completion(
        text="", token_count=0, token_ids=(), finish_reason="error", prompt_tokens=len(item.ids), error=item.error
    )


def _as_transcript(turns: list[dict[str, str]]) -> str:
    names = {"user": "User", "assistant": "Assistant"}
    lines = [f"{names[t['role']]}: {t['content']}" if t["role"] in names else f"{t['content']}\n" for t in turns]
    if not turns or turns[-1]["role"] != "assistant":
        lines.append("Assistant:")
    return "\n".join(lines)


def _fold_system(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """Put system messages in front of the first user message."""
    system = "\n\n".join(turn["content"] for turn in turns if turn["role"] == "system")
    rest = [turn for turn in turns if turn["role"] != "system"]
    if not system:
        return rest
    if not rest or rest[0]["role"] != "user":
        return [{"role": "user", "content": system}, *rest]
    return [{"role": "user", "content": f"{system}\n\n{rest[0]['content']}"}, *rest[1:]]


def _end_tokens(model: Any, tokenizer: Any, style: ChatStyle) -> frozenset[int]:
    """All tokens that end an answer: the configured ones, and the one that closes the assistant's turn."""
    ends: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config.get_text_config(decoder=True), tokenizer):
        value = getattr(source, "eos_token_id", None)
        ends.update(value if isinstance(value, (list, tuple)) else [] if value is None else [value])
    if style.has_template:
        turns = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello."}]
        _, _, tail = str(tokenizer.apply_chat_template(turns, tokenize=False)).rpartition("Hello.")
        first = tokenizer(tail.lstrip(), add_special_tokens=False)["input_ids"][:1]
        ends.update(token for token in first if token in set(tokenizer.all_special_ids))
    return frozenset(ends)


def _input_device(model: Any) -> torch.device:
    """Where token ids go; weights that were offloaded lie nowhere, and their hooks take inputs from anywhere."""
    device = model.get_input_embeddings().weight.device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu") if device.type == "meta" else device


def _window(facts: Anatomy, tokenizer: Any, context: int | None) -> int:
    """Positions that can be used; a model that names no limit is given one that no prompt will meet."""
    said = [n for n in (facts.window_tokens, tokenizer.model_max_length, context) if n is not None and 0 < n < 10**9]
    return int(min(said, default=1 << 20))


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


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, IntarsiaError):
        return False
    text = str(error).lower()
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in text

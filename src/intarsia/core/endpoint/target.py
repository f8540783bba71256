"""EndpointTarget: any server that speaks the OpenAI API, with bounds on everything that is sent to it.

Requests run in an event loop of their own thread, so the same calls work in a script, in a worker and in a notebook.
The openai library carries them. `core.wire` holds retries, waits, budgets and the words of errors, `core.dialect` what
is sent, `core.replies` what comes back, and `core.probe` finds out what a server can do.
"""

from __future__ import annotations

import asyncio
import difflib
import warnings
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote

import numpy as np
from pydantic import JsonValue, ValidationError

from intarsia.core import replies
from intarsia.core.endpoint.address import Address, read_key
from intarsia.core.endpoint.dialect import Api, Dialect, request_seeds
from intarsia.core.endpoint.probe import has_completions, probe
from intarsia.core.endpoint.wire import Failure, Limits, Meter, Spent, Wire, all_failed
from intarsia.core.errors import BackendError, ConfigError, IntarsiaError, ModelError
from intarsia.core.loop import LoopThread, Report
from intarsia.core.sampling import Sampling
from intarsia.core.target import Capability, Completion, Progress, Prompt, Scored, Target

T = TypeVar("T")

_CHAT_OVERHEAD = 4
"""Tokens that a chat template adds to each message, roughly."""
_EMBED_GROUP = 64
_LISTED = 8


class EndpointTarget(Target):
    """A model behind an OpenAI-compatible endpoint (vLLM, llama.cpp, SGLang, Ollama, a hosted service ...).

    Chat prompts go to `/chat/completions`. A plain string goes to `/completions`, which continues it as it stands;
    where the server has no such path (asked once), it is sent as one user message.

    `generate` and `chat` are assumed; `logprobs`, `score`, `embed` and `seed` join the capabilities when
    `probe_capabilities` has seen them work.

    Args:
        url: Base address, such as `http://localhost:8000/v1`. A user and password in it are sent as basic
            authorization and shown nowhere.
        model: Name of the model; when empty, the only one that the server lists.
        name: How reports call it; the address (without user and password) and the model when empty.
        api: `chat` or `completions` sends everything there; `auto` goes by the kind of prompt.
        key_env: Environment variable that holds the API key, instead of INTARSIA_API_KEY or OPENAI_API_KEY.
        key_file: File that holds the API key and that nobody but its owner may read.
        extra_body: Further fields of each request, such as `{"chat_template_kwargs": {...}}`.
        **limits: Bounds, see `core.wire.Limits`: `concurrency`, `connect_timeout`, `read_timeout`, `deadline`,
            `contact_timeout`, `retries`, `backoff`, `max_backoff`, `breaker`, `max_requests`, `max_tokens_total`.

    Raises:
        ConfigError: An option, the address or the key is wrong, or the server does not take the key.
        ModelError: No model was named and the server does not have exactly one.
        BackendError: No model was named and the server cannot be asked.
    """

    def __init__(
        self,
        url: str,
        model: str = "",
        *,
        name: str = "",
        api: Api = "auto",
        key_env: str = "",
        key_file: str = "",
        extra_body: dict[str, JsonValue] | None = None,
        **limits: Any,
    ) -> None:
        if api not in ("auto", "chat", "completions"):
            raise ConfigError(f"There is no api {api!r}.", "Choose auto, chat or completions.")
        self._address = Address.read(url)
        self.url = self._address.url
        self.api: Api = api
        self.limits = _read_limits(limits)
        self.meter = Meter(self.limits)
        self.notes: list[str] = []
        self._key = read_key(key_env, key_file)
        self._dialect = Dialect(model, api, dict(extra_body or {}))
        self._loop = LoopThread("intarsia-endpoint")
        self._wire: Wire | None = None
        self._listed: list[str] | None = None
        self._contacted = False
        self._probed = False
        self._streak = 0
        self.capabilities: frozenset[Capability] = frozenset(
            {"generate"} if api == "completions" else {"generate", "chat"}
        )
        secret = self._key is not None or self._address.login is not None
        if secret and not self._address.loopback and self.url.startswith("http://"):
            self._note(f"The key for {self.url} travels unencrypted: the address is plain http.")
        if not model:
            try:
                self._dialect.model = self._run(lambda wire, report: self._only_model(wire))
            except BaseException:
                self.close()
                raise
        self.name = name or (f"{self.url}#{model}" if model else self.url)

    @property
    def model(self) -> str:
        """Name of the model on the server."""
        return self._dialect.model

    @classmethod
    def from_url(cls, url: str, **options: Any) -> EndpointTarget:
        """Make a target of `http://host:port/v1#model`; the part after # may be left out.

        Args:
            url: Address and model.
            **options: See the class.

        Raises:
            ConfigError: The address or an option is wrong, or the server does not take the key.
            ModelError: No model was named and the server does not have exactly one.
            BackendError: No model was named and the server cannot be asked.
        """
        base, _, model = url.strip().partition("#")
        known = {"model", "name", "api", "key_env", "key_file", "extra_body", *Limits.model_fields}
        for option in options:
            if option not in known:
                raise _unknown_option(option, known)
        options.setdefault("model", unquote(model))
        return cls(base, **options)

    # What a target does

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        keys: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Completion]:
        """Answer each prompt, in order; see `Target.generate`.

        A prompt that the server does not answer, after its retries, has `finish_reason="error"` and says why; the
        other answers stay. When a budget runs out or the server fails many times in a row, what was not sent is
        marked so.

        Raises:
            ConfigError: The server does not take the key, or the job would pass a budget.
            ModelError: The server does not have the model.
            BackendError: The server answered nothing.
        """
        sampling = sampling or Sampling()
        if not prompts:
            return []
        estimate = self.estimate(prompts, sampling)
        self.meter.refuse_beyond(estimate["calls"], estimate["prompt_tokens"] + estimate["new_tokens"])
        if self.api == "completions" and any(not isinstance(prompt, str) for prompt in prompts):
            raise ConfigError(
                f"{self.name} is asked with api=completions, which takes strings and no chat messages.",
                "Give plain strings, or use api=auto.",
            )
        seeds = request_seeds(prompts, sampling, keys)
        return self._run(partial(self._answer_all, prompts, sampling, seeds), progress)

    def score(
        self, prompts: Sequence[Prompt], continuations: Sequence[str], *, progress: Progress | None = None
    ) -> list[Scored]:
        """Log-probabilities of continuations after string prompts; see `Target.score`.

        Needs a server whose `/completions` echoes the prompt with log-probabilities (vLLM does). `token_ids` stay
        empty, because the API names tokens by their text only.

        Raises:
            ConfigError: The server cannot score, a prompt is a chat, or the job would pass a budget.
            BackendError: A pair was not scored.
        """
        if not self.probe_capabilities() >= {"score"}:
            return super().score(prompts, continuations, progress=progress)
        if any(not isinstance(prompt, str) for prompt in prompts):
            raise ConfigError(f"{self.name} scores plain strings, not chat messages.", "Use a local model for chats.")
        texts = [str(prompt) for prompt in prompts]
        whole = self.count_tokens([p + c for p, c in zip(texts, continuations, strict=True)])
        self.meter.refuse_beyond(sum(bool(c) for c in continuations), sum(whole))
        pairs = list(zip(texts, continuations, strict=True))
        return self._run(partial(self._each, pairs, self._score_one), progress)

    def embed(self, texts: Sequence[str], *, progress: Progress | None = None) -> np.ndarray:
        """Embeddings of texts from `/embeddings`, float32 of shape (len(texts), d).

        Raises:
            ConfigError: The server does not embed, or the job would pass a budget.
            BackendError: A group of texts was not embedded.
        """
        if not self.probe_capabilities() >= {"embed"}:
            return super().embed(texts, progress=progress)
        groups = [list(texts[start : start + _EMBED_GROUP]) for start in range(0, len(texts), _EMBED_GROUP)]
        self.meter.refuse_beyond(len(groups), sum(self.count_tokens(texts)))
        rows = self._run(partial(self._each, groups, self._embed_group), progress)
        vectors = [vector for group in rows for vector in group]
        if len({len(vector) for vector in vectors}) > 1:
            raise BackendError(f"The embeddings of {self.url} differ in length.", "Check the server's model.")
        return np.asarray(vectors, dtype=np.float32).reshape(len(texts), -1 if vectors else 0)

    def estimate(self, prompts: Sequence[Prompt], sampling: Sampling | None = None) -> dict[str, int]:
        """What `generate` would send at most: `calls`, `prompt_tokens` (four characters a token) and `new_tokens`."""
        sampling = sampling or Sampling()
        overhead = sum(_CHAT_OVERHEAD * len(p) for p in prompts if not isinstance(p, str))
        return {
            "calls": len(prompts),
            "prompt_tokens": sum(self.count_tokens(prompts)) + overhead,
            "new_tokens": len(prompts) * sampling.max_new_tokens,
        }

    def batches(self, prompts: Sequence[Prompt], sampling: Sampling | None = None) -> list[list[int]]:
        """Groups as large as the number of requests in flight; see `Target.batches`."""
        size = self.limits.concurrency
        return [list(range(start, min(start + size, len(prompts)))) for start in range(0, len(prompts), size)]

    def probe_capabilities(self) -> frozenset[Capability]:
        """Find out with a few tiny requests what the server can do, once; later calls return what was found.

        The requests are at most 16 tokens long and stand outside the request budget.

        Raises:
            ConfigError: The server does not take the key.
            ModelError: The server does not have the model.
            BackendError: The server does not answer.
        """
        if not self._probed:
            self.capabilities = self._run(self._probe)
            self._probed = True
        return self.capabilities

    def provenance(self) -> dict[str, Any]:
        """Address, model and options; no key, no user, no password."""
        return {
            "name": self.name,
            "kind": type(self).__name__,
            "url": self.url,
            "model": self.model,
            "api": self.api,
            "extra_body": dict(self._dialect.extra_body),
        }

    def close(self) -> None:
        """Close the connections and stop the thread. Safe to call twice; a later call opens them again."""
        wire, self._wire = self._wire, None
        if wire is not None and self._loop.alive():
            self._loop.run(lambda report: wire.close())
        self._loop.close()

    def __repr__(self) -> str:
        return f"EndpointTarget({self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        # Connections belong to this process; a worker opens its own, and reads the key again where it came from.
        return {**self.__dict__, "_wire": None, "_loop": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _loop=LoopThread("intarsia-endpoint"))

    # How it is done; the coroutines run in the loop's thread

    def _run(self, job: Callable[[Wire, Report], Coroutine[Any, Any, T]], progress: Progress | None = None) -> T:
        async def with_wire(report: Report) -> T:
            if self._wire is None:
                self._wire = Wire(self._address, self.limits, self.meter, self._key)
            return await job(self._wire, report)

        # Half a second of importing must not stop the loop, nor meet a Ctrl-C there.
        import openai  # noqa: F401

        if not self._loop.alive():
            # A fork or `close` left connections of a loop that is gone.
            self._wire = None
        return self._loop.run(with_wire, progress)

    async def _only_model(self, wire: Wire) -> str:
        listed = await self._contact(wire)
        if listed is None:
            raise BackendError(
                f"The endpoint {self.url} does not list its models.", f"Name one: {self.url}#model-name."
            )
        if len(listed) != 1:
            raise ModelError(
                f"The endpoint {self.url} has {len(listed)} models: {_some(listed)}.",
                f"Name one: {self.url}#{listed[0]}." if listed else "Load a model into the server first.",
            )
        return listed[0]

    async def _contact(self, wire: Wire) -> list[str] | None:
        """The models that the server lists, None where it does not; fails at once on a server that is not there.

        Raises:
            ConfigError: The server does not take the key.
            BackendError: The server is not there, or hangs.
        """
        if self._contacted:
            return self._listed
        try:
            self._listed = await wire.request(
                "/models", read=replies.models, deadline=self.limits.contact_timeout, retries=1, metered=False
            )
        except Failure as failure:
            if failure.kind in ("unreachable", "timeout"):
                raise BackendError(
                    f"The endpoint {self.url} cannot be reached: {failure.detail}.",
                    "Check the address and that the server is running; contact_timeout gives it more time.",
                ) from None
            self._listed = None
        self._contacted = True
        return self._listed

    async def _answer_all(
        self, prompts: Sequence[Prompt], sampling: Sampling, seeds: Sequence[int | None], wire: Wire, report: Report
    ) -> list[Completion]:
        await self._contact(wire)
        if self._dialect.continues is None and any(isinstance(prompt, str) for prompt in prompts):
            try:
                self._dialect.continues = await has_completions(wire, self._dialect)
            except Failure as failure:
                raise all_failed(self.url, [failure]) from None
        answers: list[Completion | None] = [None] * len(prompts)
        failures: dict[int, Failure] = {}
        counts = self.count_tokens(prompts)
        todo = iter(range(len(prompts)))
        stopped = ""
        done = 0

        async def work() -> None:
            nonlocal stopped, done
            for i in todo:
                try:
                    answer = await self._answer(wire, prompts[i], sampling, seeds[i], counts[i])
                except Spent as spent:
                    stopped = str(spent)
                except Failure as failure:
                    failures[i] = failure
                    self._streak += failure.kind != "prompt"
                    if self._streak >= self.limits.breaker and not stopped:
                        stopped = f"the endpoint failed {self._streak} times in a row, last with: {failure.detail}"
                        if not any(answers):
                            raise all_failed(self.url, list(failures.values()), " (nothing more was sent)") from None
                else:
                    self._streak = 0
                    answers[i] = answer
                if stopped:
                    return
                done += 1
                report(done, len(prompts))
                stopped = self.meter.spent()
                if stopped:
                    return

        await _together([work() for _ in range(min(self.limits.concurrency, len(prompts)))])
        faults = [failure for failure in failures.values() if failure.kind != "prompt"]
        if not any(answers) and faults and not await self._own_fault(wire, faults):
            raise all_failed(self.url, faults)
        if stopped and not any(answers) and not failures:
            raise ConfigError(f"Nothing was sent to {self.url}: {stopped}.", "Raise the budget.")
        return [
            answer or _error(failures[i].detail if i in failures else f"not sent: {stopped}", counts[i])
            for i, answer in enumerate(answers)
        ]

    async def _own_fault(self, wire: Wire, faults: Sequence[Failure]) -> bool:
        """Whether a job without answers failed by its few prompts (too slow, not taken), and not by the server.

        Without this the last, small batch of a long run could stop every resumption of it.
        """
        if len(faults) >= self.limits.breaker or {fault.kind for fault in faults} - {"timeout", "refused"}:
            return False
        if len(faults) > 1 and all(fault.kind == "refused" for fault in faults):
            return False
        try:
            await wire.request(
                "/models", read=lambda reply: reply, deadline=self.limits.contact_timeout, retries=0, metered=False
            )
        except Failure as failure:
            return failure.kind not in ("unreachable", "timeout", "busy", "server")
        return True

    async def _answer(self, wire: Wire, prompt: Prompt, sampling: Sampling, seed: int | None, count: int) -> Completion:
        chat = self._dialect.is_chat(prompt)
        read = partial(
            replies.completion,
            chat=chat,
            stop=sampling.stop,
            most=sampling.max_new_tokens,
            logprobs=sampling.logprobs,
            prompt_tokens=count,
        )
        while True:
            path, body = self._dialect.ask(prompt, sampling, seed, chat=chat)
            try:
                answer = await wire.request(path, body, read=read)
            except Failure as failure:
                if self._dialect.adapt(failure, body):
                    if not self._dialect.takes_seed:
                        self._note(f"{self.url} takes no seed: its samples cannot be repeated.")
                    continue
                raise await self._sharper(wire, failure, path) from None
            wire.meter.add(answer.prompt_tokens, answer.token_count)
            return answer

    async def _sharper(self, wire: Wire, failure: Failure, path: str) -> Exception:
        """The failure itself, or the error that it means for every request."""
        if failure.kind == "denied":
            return wire.denied(failure.detail)
        if failure.kind != "absent":
            return failure
        try:
            listed: list[str] | None = await wire.request(
                "/models", read=replies.models, deadline=self.limits.contact_timeout, retries=0, metered=False
            )
        except Failure:
            listed = None
        if listed is not None and self.model not in listed:
            return ModelError(
                f"The endpoint {self.url} has no model {self.model!r}.",
                f"It has: {_some(listed)}." if listed else "It lists no model at all.",
            )
        return ConfigError(
            f"The endpoint {self.url} has no {path} for {self.model!r} ({failure.detail}).",
            "Check that the address ends in /v1; a base model has no chat, so it needs api=completions.",
        )

    async def _probe(self, wire: Wire, report: Report) -> frozenset[Capability]:
        await self._contact(wire)
        try:
            return await probe(wire, self._dialect, self.api)
        except Failure as failure:
            path = "/completions" if self.api == "completions" else "/chat/completions"
            error = await self._sharper(wire, failure, path)
            raise error if isinstance(error, IntarsiaError) else all_failed(self.url, [failure]) from None

    async def _score_one(self, wire: Wire, pair: tuple[str, str]) -> Scored:
        prompt, continuation = pair
        if not continuation:
            return Scored(token_ids=(), logprobs=())
        extra = self._dialect.echo_tokens
        path, body = self._dialect.echo(prompt + continuation, extra)

        def read(reply: Any) -> Scored:
            logprobs = replies.continuation_logprobs(reply, prompt, continuation, extra=extra)
            wire.meter.add(*replies.used(reply))
            return Scored(token_ids=(), logprobs=logprobs)

        return await wire.request(path, body, read=read)

    async def _embed_group(self, wire: Wire, texts: list[str]) -> list[list[float]]:
        path, body = self._dialect.embed(texts)

        def read(reply: Any) -> list[list[float]]:
            vectors = replies.embeddings(reply, len(texts))
            wire.meter.add(*replies.used(reply))
            return vectors

        return await wire.request(path, body, read=read)

    async def _each(
        self, items: Sequence[Any], one: Callable[[Wire, Any], Coroutine[Any, Any, T]], wire: Wire, report: Report
    ) -> list[T]:
        """`one` on every item, in order; the first failure ends the job, because these results have no room for it."""
        results: list[Any] = [None] * len(items)
        todo = iter(range(len(items)))
        done = 0

        async def work() -> None:
            nonlocal done
            for i in todo:
                try:
                    results[i] = await one(wire, items[i])
                except Spent as spent:
                    raise ConfigError(f"{self.url} was not asked further: {spent}.", "Raise the budget.") from None
                except Failure as failure:
                    raise all_failed(self.url, [failure]) from None
                done += 1
                report(done, len(items))

        await _together([work() for _ in range(min(self.limits.concurrency, len(items)))])
        return results

    def _note(self, text: str) -> None:
        """Tell the user once, and keep it for reports."""
        if text not in self.notes:
            self.notes.append(text)
            warnings.warn(text, stacklevel=4)


async def _together(jobs: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run jobs at once; the first error cancels the others and is raised as it is, not in a group."""
    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job)
    except BaseExceptionGroup as errors:
        plain = next((error for error in errors.exceptions if isinstance(error, IntarsiaError)), errors.exceptions[0])
        raise plain from None


def _error(why: str, prompt_tokens: int) -> Completion:
    return Completion(text="", token_count=0, finish_reason="error", prompt_tokens=prompt_tokens, error=why)


def _some(names: Sequence[str]) -> str:
    """The first few names; a hosted service lists hundreds."""
    shown = ", ".join(names[:_LISTED])
    return f"{shown} and {len(names) - _LISTED} more" if len(names) > _LISTED else shown


def _read_limits(options: dict[str, Any]) -> Limits:
    for option in options:
        if option not in Limits.model_fields:
            raise _unknown_option(option, set(Limits.model_fields))
    try:
        return Limits(**options)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"The endpoint's option {first['loc'][0]}={options[str(first['loc'][0])]!r} is wrong: {first['msg']}.",
            "Correct it.",
        ) from None


def _unknown_option(option: str, known: set[str]) -> ConfigError:
    near = difflib.get_close_matches(option, known, n=1)
    return ConfigError(
        f"An endpoint has no option {option!r}.",
        f"Did you mean {near[0]!r}?" if near else f"It has: {', '.join(sorted(known))}.",
    )

"""Requests to an OpenAI-compatible server: bounded, retried, metered, and with every failure put into plain words."""

from __future__ import annotations

import asyncio
import base64
import email.utils
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from intarsia.core.endpoint.address import Address
from intarsia.core.errors import BackendError, ConfigError, IntarsiaError
from intarsia.core.secret import Secret

T = TypeVar("T")

Kind: TypeAlias = Literal[
    "unreachable", "timeout", "busy", "server", "garbage", "absent", "denied", "refused", "prompt"
]
"""What went wrong with a request. `absent`: no such path or model. `denied`: the server lets this key not do this.
`refused`: the server does not take the request. `prompt`: this prompt alone is at fault (too long, filtered)."""

RETRIED: frozenset[Kind] = frozenset({"unreachable", "timeout", "busy", "server", "garbage"})

_ADVICE: Mapping[Kind, str] = {
    "unreachable": "Check the address and that the server is running, then run the same command again.",
    "timeout": "Check that the server is not stuck; raise `deadline` and `read_timeout`, or lower `concurrency`.",
    "busy": "Lower `concurrency`, or wait a while and run the same command again.",
    "server": "Look into the server's log, then run the same command again.",
    "garbage": "Check that the address ends in /v1 and that the server speaks the OpenAI API.",
    "absent": "Check that the address ends in /v1 and names a model the server has.",
    "denied": "Check what this key may do.",
    "refused": "Change the options that the server does not take.",
    "prompt": "Shorten the prompt or lower the number of new tokens.",
}

_TOO_LONG = re.compile(
    r"context.?(length|window|size)|maximum context|max_model_len|maximum (input|prompt|sequence) length|too long"
    r"|too many (input )?tokens|exceeds? (the )?(available|maximum) (context|number of tokens)|string_above_max_length",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content.?(filter|policy|management)|safety system|moderation", re.IGNORECASE)
_NO_QUOTA = re.compile(r"insufficient_quota|exceeded your current quota|billing", re.IGNORECASE)
_SHOWN = 200
"""Characters of a server's own words that an error repeats."""


class Failure(Exception):
    """One request failed for good, or one attempt at it.

    Attributes:
        kind: What went wrong.
        detail: In one line, without secrets.
        retry_after: Seconds that the server asks to wait, if it did.
        status: HTTP status, 0 where none came.
    """

    def __init__(self, kind: Kind, detail: str, *, retry_after: float | None = None, status: int = 0) -> None:
        super().__init__(detail)
        self.kind: Kind = kind
        self.detail = detail
        self.retry_after = retry_after
        self.status = status

    @property
    def advice(self) -> str:
        """What to do about it, in one line."""
        return _ADVICE[self.kind]


class Shapeless(ValueError):
    """A reply came, but it does not have the shape that the OpenAI API promises."""


class Spent(Exception):
    """A request was not sent, because a budget is used up."""


class Limits(BaseModel):
    """Bounds of the traffic with one server; times in seconds.

    Attributes:
        concurrency: Most requests in flight at once.
        connect_timeout: For the connection.
        read_timeout: Longest silence of the server; an answer that is not streamed is silent until it is done.
        deadline: For one prompt, with all its retries and waits.
        contact_timeout: For the first contact, before any prompt is sent.
        retries: Most retries of a failed request.
        backoff: First wait; doubles with each retry, with jitter.
        max_backoff: Longest wait that we choose ourselves; a server's Retry-After is honored up to the deadline.
        breaker: After so many failed prompts in a row nothing more is sent.
        max_requests: Most requests, retries included; None is no limit.
        max_tokens_total: Most tokens, prompts and answers together; None is no limit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    concurrency: int = Field(8, ge=1, le=1024)
    connect_timeout: float = Field(10.0, gt=0)
    read_timeout: float = Field(120.0, gt=0)
    deadline: float = Field(300.0, gt=0)
    contact_timeout: float = Field(20.0, gt=0)
    retries: int = Field(4, ge=0)
    backoff: float = Field(0.5, ge=0)
    max_backoff: float = Field(30.0, ge=0)
    breaker: int = Field(8, ge=1)
    max_requests: int | None = Field(None, ge=1)
    max_tokens_total: int | None = Field(None, ge=1)


class Meter:
    """Counts what was spent, against the budgets.

    Attributes:
        requests: Requests sent for prompts, retries included.
        prompt_tokens: Tokens of answered prompts.
        new_tokens: Tokens of answers.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.requests = 0
        self.prompt_tokens = 0
        self.new_tokens = 0

    @property
    def tokens(self) -> int:
        """Tokens spent, prompts and answers together."""
        return self.prompt_tokens + self.new_tokens

    def add(self, prompt_tokens: int, new_tokens: int) -> None:
        """Count the tokens of an answer."""
        self.prompt_tokens += prompt_tokens
        self.new_tokens += new_tokens

    def spent(self) -> str:
        """Which budget is used up, in words; empty while there is some left."""
        limits = self.limits
        if limits.max_requests is not None and self.requests >= limits.max_requests:
            return f"the budget of {limits.max_requests} requests is used up"
        if limits.max_tokens_total is not None and self.tokens >= limits.max_tokens_total:
            return f"the budget of {limits.max_tokens_total} tokens is used up"
        return ""

    def refuse_beyond(self, calls: int, tokens: int) -> None:
        """Refuse a job that would pass a budget.

        Raises:
            ConfigError: It would.
        """
        most = self.limits.max_requests
        if most is not None and self.requests + calls > most:
            raise ConfigError(
                f"{calls} more requests would pass the budget of {most} ({self.requests} are spent).",
                f"Raise max_requests to {self.requests + calls} or more, or ask fewer prompts.",
            )
        most = self.limits.max_tokens_total
        if most is not None and self.tokens + tokens > most:
            raise ConfigError(
                f"Up to {tokens} more tokens would pass the budget of {most} ({self.tokens} are spent).",
                f"Raise max_tokens_total to {self.tokens + tokens} or more, or ask fewer prompts or shorter answers.",
            )


class Wire:
    """One client of one server. All its coroutines belong to one event loop.

    Args:
        address: Of the server; a login in it goes before the key, and a server on this machine is reached without
            a proxy.
        limits: Bounds.
        meter: Where requests are counted.
        key: Sent as a bearer token.
    """

    def __init__(self, address: Address, limits: Limits, meter: Meter, key: Secret | None) -> None:
        import openai

        self.url, self.limits, self.meter = address.url, limits, meter
        login = address.login
        self._secrets = [secret for secret in (key, login) if secret is not None]
        headers: dict[str, Any] = {}
        if login is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(login.reveal().encode()).decode()
        # The library insists on a key; without one, each request has to leave the header out.
        keyless = key is None and login is None
        self._options: Any = {"headers": {"Authorization": openai.Omit()}} if keyless else {}
        self._client = openai.AsyncOpenAI(
            base_url=address.url,
            api_key=key.reveal() if key is not None else "none",
            max_retries=0,
            timeout=openai.Timeout(
                connect=limits.connect_timeout,
                read=limits.read_timeout,
                write=limits.read_timeout,
                pool=limits.deadline,
            ),
            default_headers=headers,
            http_client=openai.DefaultAsyncHttpxClient(trust_env=not address.loopback),
        )
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._open_at = 0.0
        # Jitter spreads clients over time; it decides nothing that reaches a result.
        self._jitter = random.Random()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def scrub(self, text: object) -> str:
        """Text of the server or of a library as one short line without secrets."""
        line = str(text)
        for secret in self._secrets:
            line = secret.scrub(line)
        line = " ".join("".join(c if c.isprintable() else " " for c in line).split())
        return line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "..."

    async def request(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        read: Callable[[Any], T],
        deadline: float | None = None,
        retries: int | None = None,
        metered: bool = True,
    ) -> T:
        """Send a request until it is answered, its retries are used up, or its deadline has passed.

        Args:
            path: Such as `/chat/completions`.
            body: JSON to post; None asks with GET.
            read: Makes the answer of the parsed JSON; raises `Shapeless` for one that does not fit.
            deadline: Instead of the limit's.
            retries: Instead of the limit's.
            metered: Whether the request counts against the budget.

        Raises:
            Failure: No answer came.
            Spent: It was not sent, because a budget is used up.
            IntarsiaError: Nothing that is sent to this server can be answered (a wrong key, no quota).
        """
        deadline = self.limits.deadline if deadline is None else deadline
        retries = self.limits.retries if retries is None else retries
        ends = time.monotonic() + deadline
        last: Failure | None = None
        try:
            async with asyncio.timeout(deadline):
                for attempt in range(retries + 1):
                    await self._gate(ends)
                    async with self._slots:
                        if metered:
                            if why := self.meter.spent():
                                raise last or Spent(why)
                            self.meter.requests += 1
                        try:
                            return await self._once(path, body, read)
                        except Failure as failure:
                            last = failure
                    if last.kind not in RETRIED or attempt == retries:
                        break
                    wait = self._wait(attempt, last)
                    if time.monotonic() + wait >= ends:
                        break
                    await asyncio.sleep(wait)
        except TimeoutError:
            if last is None:
                last = Failure("timeout", f"no answer within {deadline:g} s")
        assert last is not None
        raise last

    async def _gate(self, ends: float) -> None:
        """A server that asked one request to wait gets none of the others either."""
        while (wait := self._open_at - time.monotonic()) > 0:
            if self._open_at >= ends:
                raise Failure("busy", f"the server asks to wait {wait:.0f} s, which is past the deadline")
            await asyncio.sleep(wait)

    def _wait(self, attempt: int, failure: Failure) -> float:
        if failure.retry_after is not None:
            self._open_at = max(self._open_at, time.monotonic() + failure.retry_after)
            return failure.retry_after
        longest = min(self.limits.max_backoff, self.limits.backoff * 2.0**attempt)
        return longest * self._jitter.uniform(0.5, 1.0)

    async def _once(self, path: str, body: Mapping[str, Any] | None, read: Callable[[Any], T]) -> T:
        text, problem = await self._exchange(path, body)
        # Raised out here, the error does not keep the library's own, which holds the request and so the key.
        if problem is not None:
            raise problem
        try:
            return read(json.loads(text))
        except json.JSONDecodeError:
            start = self.scrub(text[:40])
            raise Failure("garbage", f"the reply is not JSON (it starts with {start!r})") from None
        except RecursionError:
            raise Failure("garbage", "the reply is nested too deeply") from None
        except Shapeless as error:
            raise Failure("garbage", self.scrub(error)) from None

    async def _exchange(self, path: str, body: Mapping[str, Any] | None) -> tuple[str, Failure | IntarsiaError | None]:
        """Send one request; the text of the reply, or what went wrong."""
        import openai

        try:
            if body is None:
                return await self._client.get(path, cast_to=str, options=self._options), None
            return await self._client.post(path, cast_to=str, body=dict(body), options=self._options), None
        except openai.APITimeoutError as error:
            if "Connect" in type(error.__cause__).__name__:
                return "", Failure("unreachable", f"no connection within {self.limits.connect_timeout:g} s")
            return "", Failure("timeout", f"silence for {self.limits.read_timeout:g} s")
        except openai.APIConnectionError as error:
            return "", Failure("unreachable", self._connection_words(error))
        except openai.APIStatusError as error:
            return "", self._status_problem(error)
        except openai.OpenAIError as error:
            return "", Failure("garbage", self.scrub(error))
        except UnicodeError:
            return "", Failure("prompt", "the prompt holds characters that are not valid Unicode")

    def _connection_words(self, error: Exception) -> str:
        causes: list[str] = []
        cause: BaseException | None = error.__cause__
        while cause is not None:
            causes.append(str(cause))
            cause = cause.__cause__ or cause.__context__
        words = " ".join(causes)
        for sign, plain in (
            ("onnection refused", "connection refused"),
            ("All connection attempts failed", "connection refused"),
            ("Name or service not known", "there is no host of that name"),
            ("nodename nor servname", "there is no host of that name"),
            ("name resolution", "the host's name cannot be looked up now"),
            ("incomplete", "the reply broke off"),
            ("peer closed connection", "the reply broke off"),
            ("disconnected without", "the server hung up without a reply"),
            ("reset by peer", "the server reset the connection"),
        ):
            if sign in words:
                return plain
        return self.scrub(next((c for c in causes if c), "") or "the connection broke")

    def _status_problem(self, error: Any) -> Failure | IntarsiaError:
        """Sort an HTTP error; an `IntarsiaError` concerns every request (a wrong key, no quota)."""
        status = int(error.status_code)
        body = error.body
        said = body.get("message") or body.get("detail") if isinstance(body, Mapping) else body
        code = f"{error.code or ''} {error.type or ''}"
        if not isinstance(said, str) or "<html" in said[:500].lower() or not said.strip():
            said = error.response.reason_phrase
        detail = self.scrub(f"{status} {said}")
        if status == 401:
            return self.denied(detail)
        if status == 403:
            return Failure("denied", detail, status=status)
        if status == 429 and _NO_QUOTA.search(f"{code} {said}"):
            return BackendError(
                f"The account at {self.url} has no quota left ({detail}).", "Add credit, then run again."
            )
        if status in (408, 409, 425, 429) or status >= 500:
            kind: Kind = "busy" if status in (409, 425, 429, 503, 529) else "timeout" if status == 408 else "server"
            # 501 is no accident that another try could mend.
            kind = "absent" if status == 501 else kind
            return Failure(kind, detail, retry_after=_retry_after(error.response.headers), status=status)
        if status in (404, 405):
            return Failure("absent", detail, status=status)
        if status == 413 or _TOO_LONG.search(f"{code} {said}"):
            return Failure("prompt", f"prompt and answer do not fit the context ({detail})", status=status)
        if _FILTERED.search(f"{code} {said}"):
            return Failure("prompt", f"the endpoint's content filter refused the prompt ({detail})", status=status)
        return Failure("refused", detail, status=status)

    def denied(self, detail: str) -> ConfigError:
        """The error for a key that the server does not take."""
        if not self._secrets:
            return ConfigError(
                f"The endpoint {self.url} asks for a key ({detail}).",
                "Set INTARSIA_API_KEY or OPENAI_API_KEY, or give key_file=.",
            )
        return ConfigError(
            f"The endpoint {self.url} does not take the key from {self._secrets[-1].origin} ({detail}).",
            "Set the right key in INTARSIA_API_KEY or OPENAI_API_KEY, or give key_file=.",
        )


def all_failed(url: str, failures: Sequence[Failure], note: str = "") -> IntarsiaError:
    """The one error for a job in which nothing was answered: the commonest failure speaks for all."""
    common = Counter(failure.detail for failure in failures).most_common(1)[0][0]
    failure = next(f for f in failures if f.detail == common)
    count = len(failures)
    what = "the request" if count == 1 else f"any of {count} requests"
    return BackendError(f"The endpoint {url} did not answer {what}: {failure.detail}{note}.", failure.advice)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a reply asks to wait; the header holds seconds or a date."""
    milliseconds = headers.get("retry-after-ms")
    value = headers.get("retry-after")
    try:
        if milliseconds is not None:
            seconds = float(milliseconds) / 1000.0
        elif value is None:
            return None
        else:
            seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(str(value)).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return max(0.0, seconds) if seconds < float("inf") else None

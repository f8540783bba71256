"""What a server can do, found out with a few tiny requests instead of by its name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from intarsia.core import replies
from intarsia.core.endpoint.dialect import Api, Dialect
from intarsia.core.endpoint.wire import Failure, Wire
from intarsia.core.sampling import Sampling
from intarsia.core.target import Capability, Completion

T = TypeVar("T")

DEADLINE = 30.0
_TEXT = "Name a random fruit."


async def probe(wire: Wire, dialect: Dialect, api: Api) -> frozenset[Capability]:
    """The capabilities that were seen to work. Teaches the dialect what it learns on the way.

    Raises:
        Failure: The server can do nothing for this model.
        IntarsiaError: The server takes no request of ours at all.
    """
    chat, completions, score, embed = await asyncio.gather(
        _tried(_answers(wire, dialect, chat=True)),
        _tried(_answers(wire, dialect, chat=False)),
        _tried(_scores(wire, dialect)),
        _tried(_embeds(wire, dialect)),
    )
    if dialect.continues is None:
        dialect.continues = completions is None
    found: set[Capability] = set()
    if chat is None and api != "completions":
        found |= {"generate", "chat"}
    if completions is None and api != "chat":
        found |= {"generate"}
    if score is None and api != "chat":
        found.add("score")
    if embed is None:
        found.add("embed")
    if not found:
        raise (completions if api == "completions" else chat) or Failure("absent", "no answer to any request")
    if "generate" in found:
        by_chat = "chat" in found
        if await _tried(_gives_logprobs(wire, dialect, by_chat)) is None:
            found.add("logprobs")
        if await _tried(_keeps_seed(wire, dialect, by_chat)) is None:
            found.add("seed")
    return frozenset(found)


async def has_completions(wire: Wire, dialect: Dialect) -> bool:
    """Whether the server continues plain strings.

    Raises:
        Failure: The server is in no state to tell.
    """
    try:
        await _answers(wire, dialect, chat=False)
    except Failure as failure:
        if failure.kind in ("absent", "refused", "denied", "garbage", "prompt"):
            return False
        raise
    return True


async def _tried(job: Coroutine[Any, Any, object]) -> Failure | None:
    """How a probe failed; None when it worked."""
    try:
        await job
    except Failure as failure:
        return failure
    return None


async def _send(wire: Wire, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
    """A small request outside the request budget; its tokens count."""

    def metered(reply: Any) -> T:
        prompt_tokens, new_tokens = replies.used(reply)
        wire.meter.add(prompt_tokens, new_tokens)
        return read(reply)

    limits = wire.limits
    return await wire.request(
        path, body, read=metered, deadline=min(DEADLINE, limits.deadline), retries=min(1, limits.retries), metered=False
    )


async def _answer(wire: Wire, dialect: Dialect, sampling: Sampling, seed: int | None, chat: bool) -> Completion:
    read = partial(
        replies.completion,
        chat=chat,
        stop=(),
        most=sampling.max_new_tokens,
        logprobs=sampling.logprobs,
        prompt_tokens=0,
    )
    while True:
        path, body = dialect.ask(_TEXT, sampling, seed, chat=chat)
        try:
            return await _send(wire, path, body, read)
        except Failure as failure:
            if not dialect.adapt(failure, body):
                raise


async def _answers(wire: Wire, dialect: Dialect, *, chat: bool) -> None:
    await _answer(wire, dialect, Sampling(max_new_tokens=1, temperature=1.0), None, chat)


async def _gives_logprobs(wire: Wire, dialect: Dialect, chat: bool) -> None:
    sampling = Sampling(max_new_tokens=1, temperature=1.0, logprobs=True)
    answer = await _answer(wire, dialect, sampling, None, chat)
    if answer.logprobs is None:
        raise Failure("absent", "no log-probabilities in the answer")


async def _keeps_seed(wire: Wire, dialect: Dialect, chat: bool) -> None:
    """The same seed must give the same text twice, and another seed another text."""
    sampling = Sampling(max_new_tokens=16, temperature=1.0)
    texts = []
    for seed in (1, 1, 2):
        answer = await _answer(wire, dialect, sampling, seed, chat)
        texts.append(answer.thinking + answer.text)
    if not dialect.takes_seed or not texts[0] == texts[1] != texts[2]:
        raise Failure("absent", "the seed does not decide the text")


async def _scores(wire: Wire, dialect: Dialect) -> None:
    """Which way of echoing works: with no new token, or with one that is left out."""
    last: Failure | None = None
    for new_tokens in (0, 1):
        path, body = dialect.echo("One two", new_tokens)
        read = partial(replies.continuation_logprobs, prompt="One", continuation=" two", extra=new_tokens)
        try:
            await _send(wire, path, body, read)
        except Failure as failure:
            last = failure
            continue
        dialect.echo_tokens = new_tokens
        return
    assert last is not None
    raise last


async def _embeds(wire: Wire, dialect: Dialect) -> None:
    path, body = dialect.embed(["fruit"])
    await _send(wire, path, body, partial(replies.embeddings, count=1))

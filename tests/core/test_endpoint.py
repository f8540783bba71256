"""EndpointTarget against a real local server that answers well, badly, slowly or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_endpoint as fake
import numpy as np
import pytest
from fake_endpoint import FakeEndpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core import replies
from intarsia.core.endpoint import EndpointTarget
from intarsia.core.endpoint.wire import Shapeless, _retry_after
from intarsia.core.errors import BackendError, ConfigError, IntarsiaError, ModelError
from intarsia.core.sampling import Sampling
from intarsia.core.target import Target

KEY = "sk-very-secret-0123456789"
FAST: dict[str, Any] = {"backoff": 0.01, "contact_timeout": 2.0, "deadline": 5.0, "read_timeout": 5.0, "retries": 2}


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INTARSIA_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[FakeEndpoint]:
    with FakeEndpoint() as running:
        yield running


def target(server: FakeEndpoint, **options: Any) -> EndpointTarget:
    return EndpointTarget.from_url(f"{server.url}#m", **{**FAST, **options})


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": "be brief"}, {"role": "user", "content": text}]


# --- Good answers ----------------------------------------------------------------------------------------------------


def test_parse_gives_an_endpoint_with_the_typed_name(server: FakeEndpoint) -> None:
    with Target.parse(f"{server.url}#m", **FAST) as made:
        assert isinstance(made, EndpointTarget)
        assert made.name == f"{server.url}#m"
        assert made.model == "m"
        assert made.capabilities == {"generate", "chat"}


def test_chat_and_strings_take_their_own_paths_and_keep_their_order(server: FakeEndpoint) -> None:
    prompts = [chat(f"c{i}") if i % 3 else f"s{i}" for i in range(40)]
    seen: list[tuple[int, int]] = []
    with target(server, concurrency=7) as made:
        answers = made.generate(prompts, progress=lambda done, total: seen.append((done, total)))
    assert [a.text for a in answers] == [f"re:c{i}" if i % 3 else f"re:s{i}" for i in range(40)]
    assert {a.finish_reason for a in answers} == {"stop"}
    assert seen == [(i, 40) for i in range(1, 41)]
    assert len(server.asked("/chat/completions")) == 26
    assert len(server.asked("/completions")) == 15  # one of them asked whether the path exists
    assert made.meter.requests == 40


def test_no_prompts_send_nothing(server: FakeEndpoint) -> None:
    with target(server) as made:
        assert made.generate([]) == []
        assert server.requests == []
        made.probe_capabilities()
        probes = len(server.requests)
        assert made.score([], []) == []
        assert made.embed([]).shape == (0, 0)
        assert len(server.requests) == probes


def test_strings_fall_back_to_a_user_message_and_the_probe_runs_once() -> None:
    with FakeEndpoint(paths=("/models", "/chat/completions")) as server, target(server) as made:
        assert [c.text for c in made.generate(["a", "b"])] == ["re:a", "re:b"]
        made.generate(["c"])
        assert len(server.asked("/completions")) == 1
        # Requests of one call run side by side: their order at the server is not ours to promise.
        first_two = [request["messages"] for request in server.asked("/chat/completions")[:2]]
        assert sorted(messages[0]["content"] for messages in first_two) == ["a", "b"]
        assert all(messages[0]["role"] == "user" and len(messages) == 1 for messages in first_two)


def test_api_can_be_fixed(server: FakeEndpoint) -> None:
    with target(server, api="chat") as made:
        made.generate(["a"])
        assert not server.asked("/completions")
    with target(server, api="completions") as made:
        made.generate(["a"])
        assert server.asked("/completions")[0]["prompt"] == "a"
        assert "chat" not in made.capabilities
        with pytest.raises(ConfigError, match="api=completions"):
            made.generate([chat("a")])
    with pytest.raises(ConfigError, match="no api 'soap'"):
        target(server, api="soap")


def test_only_what_was_asked_for_is_sent(server: FakeEndpoint) -> None:
    with target(server) as made:
        made.generate([chat("a")])
        made.generate(
            [chat("b")],
            Sampling(temperature=0.7, top_p=0.9, top_k=5, min_p=0.1, stop=("END",), max_new_tokens=9, logprobs=True),
        )
    plain, full = server.asked("/chat/completions")
    assert plain == {"model": "m", "temperature": 0.0, "max_tokens": 128, "messages": chat("a")}
    assert full.pop("seed") >= 0
    assert full == {
        "model": "m", "temperature": 0.7, "max_tokens": 9, "messages": chat("b"),
        "top_p": 0.9, "top_k": 5, "min_p": 0.1, "stop": ["END"], "logprobs": True,
    }  # fmt: skip


def test_extra_body_is_sent_and_recorded(server: FakeEndpoint) -> None:
    with target(server, extra_body={"chat_template_kwargs": {"enable_thinking": False}}) as made:
        made.generate([chat("a")])
        assert made.provenance()["extra_body"] == {"chat_template_kwargs": {"enable_thinking": False}}
    assert server.asked("/chat/completions")[0]["chat_template_kwargs"] == {"enable_thinking": False}


def test_seeds_go_by_key_and_not_by_place(server: FakeEndpoint) -> None:
    hot = Sampling(temperature=1.0, seed=3)
    with target(server, concurrency=1) as made:
        forth = made.generate([chat("a"), chat("a"), chat("b")], hot, keys=["k1", "k2", "k3"])
        back = made.generate([chat("b"), chat("a"), chat("a")], hot, keys=["k3", "k2", "k1"])
        other = made.generate([chat("a")], Sampling(temperature=1.0, seed=4), keys=["k1"])
        twice = made.generate([chat("a"), chat("a")], hot)
        again = made.generate([chat("a"), chat("a")], hot)
    assert [c.text for c in forth] == [c.text for c in back[::-1]]
    assert forth[0].text != forth[1].text
    assert other[0].text != forth[0].text
    assert twice[0].text != twice[1].text
    assert twice == again
    assert all(0 <= body["seed"] < 2**31 for body in server.asked("/chat/completions"))
    with pytest.raises(ValueError, match="1 keys for 2 prompts"):
        made.generate(["a", "b"], hot, keys=["k"])


def test_truncation_stops_and_logprobs(server: FakeEndpoint) -> None:
    with target(server) as made:
        cut = made.generate([chat("one two three four")], Sampling(max_new_tokens=2, logprobs=True))[0]
        assert (cut.text, cut.finish_reason, cut.token_count, cut.prompt_tokens) == ("re:one two", "length", 2, 4)
        assert cut.logprobs == (-0.5, -0.5)
        # This server ignores stop strings, so the target cuts.
        stopped = made.generate([chat("one two three"), "one two three"], Sampling(stop=(" two", "zzz")))
        assert [(c.text, c.finish_reason) for c in stopped] == [("re:one", "stop")] * 2
        assert made.generate(["one two"], Sampling(logprobs=True))[0].logprobs == (-0.5, -0.5)


def test_missing_usage_is_estimated() -> None:
    with FakeEndpoint(usage=False) as server, target(server) as made:
        answer = made.generate([chat("x" * 400)])[0]
    assert answer.token_count == pytest.approx(100, abs=5)
    assert answer.prompt_tokens == pytest.approx(100, abs=10)


def test_many_threads_share_one_target_and_its_bound() -> None:
    with FakeEndpoint(behavior=fake.together(3)) as server, target(server, concurrency=3, deadline=30.0) as made:
        results: dict[int, list[str]] = {}

        def work(n: int) -> None:
            results[n] = [c.text for c in made.generate([chat(f"{n}.{i}") for i in range(6)])]

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {n: [f"re:{n}.{i}" for i in range(6)] for n in range(4)}
        assert server.most_in_flight == 3


@pytest.mark.parametrize("concurrency", [1, 5])
def test_the_bound_on_requests_in_flight_is_kept_and_used(concurrency: int) -> None:
    with (
        FakeEndpoint(behavior=fake.together(concurrency), delay=0.005) as server,
        target(server, concurrency=concurrency) as made,
    ):
        made.generate([chat(str(i)) for i in range(15)])
        assert server.most_in_flight == concurrency


def test_batches_are_as_large_as_the_concurrency(server: FakeEndpoint) -> None:
    with target(server, concurrency=4) as made:
        assert made.batches(["x"] * 10) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert made.batches([]) == []


def test_it_works_inside_a_running_loop(server: FakeEndpoint) -> None:
    with target(server) as made:

        async def notebook() -> str:
            return made.generate([chat("a")])[0].text

        assert asyncio.run(notebook()) == "re:a"


def test_it_survives_close_pickle_and_fork(server: FakeEndpoint) -> None:
    made = target(server)
    made.generate([chat("a")])
    made.close()
    made.close()
    assert made.generate([chat("b")])[0].text == "re:b"
    copy = pickle.loads(pickle.dumps(made))
    assert copy.generate([chat("c")])[0].text == "re:c"
    copy.close()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child
        signal.alarm(20)
        os._exit(0 if made.generate([chat("d")])[0].text == "re:d" else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert made.generate([chat("e")])[0].text == "re:e"
    made.close()


def test_an_error_in_progress_ends_the_job(server: FakeEndpoint) -> None:
    def progress(done: int, total: int) -> None:
        raise RuntimeError("bar broke")

    with target(server, concurrency=1) as made, pytest.raises(RuntimeError, match="bar broke"):
        made.generate([chat(str(i)) for i in range(50)], progress=progress)
    assert len(server.requests) < 50


# --- Thinking and finish reasons -------------------------------------------------------------------------------------


def reply(message: dict[str, Any], **choice: Any) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": "stop", **choice}]}


@pytest.mark.parametrize(
    ("message", "text", "thinking"),
    [
        ({"content": "4", "reasoning_content": "2+2"}, "4", "2+2"),
        ({"content": "4", "reasoning": "2+2"}, "4", "2+2"),
        ({"content": "<think>\n2+2\n</think>\n\n4"}, "4", "2+2"),
        ({"content": "2+2\n</think>\n4"}, "4", "2+2"),
        ({"content": "<think>2+2 is"}, "", "2+2 is"),
        ({"content": None, "reasoning_content": "hm"}, "", "hm"),
        ({"content": None, "refusal": "I cannot."}, "I cannot.", ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]}, "ab", ""),
        ({"content": ""}, "", ""),
    ],
)
def test_thinking_is_taken_out(message: dict[str, Any], text: str, thinking: str) -> None:
    with FakeEndpoint(behavior=fake.says_json(reply(message))) as server, target(server) as made:
        answer = made.generate([chat("q")])[0]
    assert (answer.text, answer.thinking, answer.finish_reason) == (text, thinking, "stop")


@pytest.mark.parametrize(
    ("given_reason", "expected"),
    [("stop", "stop"), ("eos_token", "stop"), ("length", "length"), ("max_tokens", "length"), ("tool_calls", "stop"),
     (None, "stop"), ("content_filter", "error"), ("abort", "error")],
)  # fmt: skip
def test_finish_reasons(given_reason: str | None, expected: str) -> None:
    data = reply({"content": "hello"}, finish_reason=given_reason)
    answer = replies.completion(data, chat=True, stop=(), most=100, logprobs=False, prompt_tokens=1)
    assert answer.finish_reason == expected
    assert bool(answer.error) == (expected == "error")


def test_a_missing_finish_reason_at_the_limit_is_length() -> None:
    data = {**reply({"content": "hello"}, finish_reason=None), "usage": {"completion_tokens": 8}}
    answer = replies.completion(data, chat=True, stop=(), most=8, logprobs=False, prompt_tokens=1)
    assert answer.finish_reason == "length"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "content", "text", "logprobs", "usage", "data", "embedding", "index", "tokens",
                 "token_logprobs", "text_offset", "finish_reason", "id", "completion_tokens", "logprob"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(json_values, st.booleans())
def test_any_json_is_read_or_called_shapeless(data: Any, chat_path: bool) -> None:
    for read in (
        lambda d: replies.completion(d, chat=chat_path, stop=("x",), most=3, logprobs=True, prompt_tokens=1),
        replies.models,
        lambda d: replies.continuation_logprobs(d, "a", "b", extra=0),
        lambda d: replies.embeddings(d, 1),
        lambda d: replies.completion(
            {"choices": [{"message": {"content": "t"}, "text": "t", "logprobs": d}], "usage": d},
            chat=chat_path, stop=(), most=3, logprobs=True, prompt_tokens=1,
        ),
    ):  # fmt: skip
        with contextlib.suppress(Shapeless):
            read(data)
    replies.used(data)


def test_infinite_logprobs_stay_json() -> None:
    data = reply({"content": "a"}, logprobs={"content": [{"logprob": float("-inf")}]})
    answer = replies.completion(data, chat=True, stop=(), most=3, logprobs=True, prompt_tokens=1)
    assert json.loads(answer.model_dump_json())["logprobs"] == [replies.IMPOSSIBLE]


# --- Which model -----------------------------------------------------------------------------------------------------


def test_the_only_model_is_taken(server: FakeEndpoint) -> None:
    with EndpointTarget.from_url(server.url, **FAST) as made:
        assert (made.model, made.name) == ("m", server.url)
        assert made.generate([chat("a")])[0].text == "re:a"


def test_several_models_are_listed() -> None:
    with FakeEndpoint(models=("a/b", "c", "d")) as server:
        with pytest.raises(ModelError, match=r"3 models: a/b, c, d\. Name one: .*#a/b"):
            EndpointTarget.from_url(server.url, **FAST)
        with EndpointTarget.from_url(f"{server.url}#a%2Fb", **FAST) as made:
            assert made.model == "a/b"


def test_no_list_of_models_needs_a_name() -> None:
    with (
        FakeEndpoint(paths=("/chat/completions",)) as server,
        pytest.raises(BackendError, match="does not list its models"),
    ):
        EndpointTarget.from_url(server.url, **FAST)
    with FakeEndpoint(models=()) as server, pytest.raises(ModelError, match="0 models"):
        EndpointTarget.from_url(server.url, **FAST)


def test_an_unknown_model_names_those_there_are() -> None:
    with FakeEndpoint(models=("a", "b")) as server, target(server) as made:
        with pytest.raises(ModelError, match=r"has no model 'm'\. It has: a, b\."):
            made.generate([chat("x"), chat("y")])
        with pytest.raises(ModelError, match="has no model 'm'"):
            made.generate(["x"])
        with pytest.raises(ModelError, match="has no model 'm'"):
            made.probe_capabilities()


def test_a_missing_path_says_so() -> None:
    with FakeEndpoint(paths=("/models", "/completions")) as server:
        with target(server) as made, pytest.raises(ConfigError, match="no /chat/completions for 'm'"):
            made.generate([chat("x")])
        # A base model behind such a server can still continue text.
        with target(server) as made:
            assert made.generate(["x"])[0].text == "re:x"


# --- Bad servers -----------------------------------------------------------------------------------------------------


def one_line(error: BaseException) -> str:
    assert isinstance(error, IntarsiaError)
    text = str(error)
    assert "\n" not in text
    assert error.hint
    assert "Traceback" not in text
    assert len(text) < 600
    return text


def test_nobody_there_is_one_line_at_once() -> None:
    with FakeEndpoint() as server:
        url = server.url
    with EndpointTarget.from_url(f"{url}#m", **FAST) as made, pytest.raises(BackendError) as caught:
        made.generate([chat("a")] * 20)
    assert "cannot be reached: connection refused" in one_line(caught.value)


def test_no_such_host_is_one_line() -> None:
    with EndpointTarget.from_url("http://no-such-host.invalid/v1#m", **FAST) as made:
        with pytest.raises(BackendError) as caught:
            made.generate([chat("a")])
        assert "cannot be reached" in one_line(caught.value)


def test_a_server_that_hangs_is_one_line() -> None:
    with FakeEndpoint(behavior=fake.hang(models=True)) as server:
        with target(server, contact_timeout=0.3) as made, pytest.raises(BackendError) as caught:
            made.generate([chat("a")] * 5)
        assert "cannot be reached: no answer within 0.3 s" in one_line(caught.value)
        with pytest.raises(BackendError, match="cannot be reached"):
            EndpointTarget.from_url(server.url, **{**FAST, "contact_timeout": 0.3})


def test_answers_that_hang_for_all_are_one_line() -> None:
    with (
        FakeEndpoint(behavior=fake.hang()) as server,
        target(server, deadline=0.4, breaker=4) as made,
        pytest.raises(BackendError) as caught,
    ):
        made.generate([chat(str(i)) for i in range(20)])
    assert "no answer within 0.4 s" in one_line(caught.value)


def test_the_read_timeout_is_retried_within_the_deadline() -> None:
    with (
        FakeEndpoint(behavior=fake.first(1, fake.hang())) as server,
        target(server, read_timeout=0.2, deadline=5.0) as made,
    ):
        assert made.generate([chat("a")])[0].text == "re:a"
        assert made.meter.requests == 2


def test_one_slow_prompt_costs_only_itself() -> None:
    with FakeEndpoint(behavior=fake.only("slow", fake.hang())) as server, target(server, deadline=0.4) as made:
        answers = made.generate([chat("a"), chat("slow"), chat("b")])
        assert [a.text for a in answers] == ["re:a", "", "re:b"]
        assert (answers[1].finish_reason, answers[1].error) == ("error", "no answer within 0.4 s")
        # Alone, and with a server that is alive, it is still the prompt's own fault: a last batch must not stop a run.
        assert made.generate([chat("slow")])[0].finish_reason == "error"


def test_a_slow_drip_meets_the_deadline() -> None:
    with FakeEndpoint(behavior=fake.only("slow", fake.drip(0.05))) as server, target(server, deadline=0.5) as made:
        started = time.monotonic()
        answers = made.generate([chat("slow"), chat("a")])
        assert time.monotonic() - started < 3
    assert answers[0].error == "no answer within 0.5 s"
    assert answers[1].text == "re:a"


def test_500s_then_ok_is_ok() -> None:
    with FakeEndpoint(behavior=fake.first(2, fake.status(500))) as server, target(server) as made:
        answers = made.generate([chat(str(i)) for i in range(6)])
        assert [a.text for a in answers] == [f"re:{i}" for i in range(6)]
        assert made.meter.requests == 18


def test_500s_for_one_prompt_cost_only_itself() -> None:
    with FakeEndpoint(behavior=fake.only("bad", fake.status(500, "engine died"))) as server, target(server) as made:
        answers = made.generate([chat("a"), chat("bad"), chat("b")])
    assert [a.finish_reason for a in answers] == ["stop", "error", "stop"]
    assert answers[1].error == "500 engine died"
    assert answers[1].token_count == 0


def test_500s_for_all_are_one_line() -> None:
    with (
        FakeEndpoint(behavior=fake.status(500, "engine died")) as server,
        target(server) as made,
        pytest.raises(BackendError) as caught,
    ):
        made.generate([chat("a"), chat("b"), chat("c")])
    assert "did not answer any of 3 requests: 500 engine died." in one_line(caught.value)


def test_the_breaker_stops_sending() -> None:
    with (
        FakeEndpoint(behavior=fake.status(503)) as server,
        target(server, retries=0, breaker=5, concurrency=2) as made,
        pytest.raises(BackendError, match="nothing more was sent"),
    ):
        made.generate([chat(str(i)) for i in range(200)])
    assert len(server.asked("/chat/completions")) <= 7


def test_the_breaker_keeps_what_was_answered() -> None:
    behavior = fake.only("late", fake.status(500))
    prompts = [chat(f"early{i}") for i in range(10)] + [chat(f"late{i}") for i in range(100)]
    with FakeEndpoint(behavior=behavior) as server, target(server, retries=0, breaker=5, concurrency=2) as made:
        answers = made.generate(prompts)
    assert [a.text for a in answers[:10]] == [f"re:early{i}" for i in range(10)]
    assert all(a.finish_reason == "error" for a in answers[10:])
    assert answers[-1].error.startswith("not sent: the endpoint failed 5 times in a row")
    assert len(server.asked("/chat/completions")) <= 17


def test_429_waits_as_long_as_it_is_told() -> None:
    behavior = fake.first(1, fake.status(429, "slow down", Retry_After="0.4"))
    with FakeEndpoint(behavior=behavior) as server, target(server) as made:
        started = time.monotonic()
        assert made.generate([chat("a")])[0].text == "re:a"
        assert time.monotonic() - started >= 0.4


def test_a_retry_after_past_the_deadline_is_not_waited_for() -> None:
    behavior = fake.status(429, "slow down", Retry_After="3600")
    with FakeEndpoint(behavior=behavior) as server, target(server, concurrency=2) as made:
        started = time.monotonic()
        with pytest.raises(BackendError, match="429 slow down"):
            made.generate([chat("a"), chat("b"), chat("c")])
        assert time.monotonic() - started < 3


def test_no_quota_is_not_retried() -> None:
    behavior = fake.status(429, "You exceeded your current quota", "insufficient_quota")
    with (
        FakeEndpoint(behavior=behavior) as server,
        target(server, concurrency=1) as made,
        pytest.raises(BackendError, match="no quota left"),
    ):
        made.generate([chat("a"), chat("b")])
    assert len(server.asked("/chat/completions")) == 1


def test_retry_after_is_read_in_all_its_forms() -> None:
    assert _retry_after({"retry-after": "2.5"}) == 2.5
    assert _retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert _retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    assert (_retry_after({"retry-after": "Thu, 31 Dec 2099 23:59:59 GMT"}) or 0) > 3000
    for nonsense in ("soon", "nan", "inf", "", "-3"):
        assert _retry_after({"retry-after": nonsense}) in (None, 0.0)
    assert _retry_after({}) is None


GARBAGE = [
    (fake.says(b"\x00\xff\xfe garbage \x80"), "not JSON"),
    (fake.says(b"<html><body>Welcome</body></html>", "text/html"), "not JSON"),
    (fake.says(b""), "not JSON"),
    (fake.says(b"[" * 100_000), "the reply is"),
    (fake.says_json([]), "not an object"),
    (fake.says_json({"hello": 1}), "no choices"),
    (fake.says_json({"choices": []}), "no choices"),
    (fake.says_json({"choices": [{"text": 3}]}), "no message"),
    (fake.says_json({"choices": [{"message": {"content": {"a": 1}}}]}), "not text"),
    (fake.break_off, "the reply broke off"),
    (fake.reset, "reset the connection"),
]


@pytest.mark.parametrize(("behavior", "words"), GARBAGE, ids=[words + str(i) for i, (_, words) in enumerate(GARBAGE)])
def test_garbage_for_all_is_one_line(behavior: fake.Behavior, words: str) -> None:
    with (
        FakeEndpoint(behavior=behavior) as server,
        target(server, retries=1) as made,
        pytest.raises(BackendError) as caught,
    ):
        made.generate([chat("a"), chat("b")])
    assert words in one_line(caught.value)


@pytest.mark.parametrize(
    "behavior", [b for b, _ in GARBAGE], ids=[words + str(i) for i, (_, words) in enumerate(GARBAGE)]
)
def test_garbage_once_is_asked_again(behavior: fake.Behavior) -> None:
    with FakeEndpoint(behavior=fake.first(1, behavior)) as server, target(server, retries=1) as made:
        assert [a.text for a in made.generate([chat("a"), chat("b")])] == ["re:a", "re:b"]


def test_a_garbled_list_of_models_does_not_stop_a_named_one() -> None:
    def behavior(handler: fake.Handler, body: dict[str, Any], tried: int) -> bool:
        return handler.path.endswith("/models") and fake.says(b"nope", models=True)(handler, body, tried)

    with FakeEndpoint(behavior=behavior) as server:
        with target(server) as made:
            assert made.generate([chat("a")])[0].text == "re:a"
        with pytest.raises(BackendError, match="does not list its models"):
            EndpointTarget.from_url(server.url, **FAST)


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "the request exceeds the available context size, try increasing it",
        "Input is too long for requested model.",
    ],
)
def test_a_prompt_that_is_too_long_costs_only_itself(message: str) -> None:
    behavior = fake.only("xxx", fake.status(400, message))
    with FakeEndpoint(behavior=behavior) as server, target(server) as made:
        answers = made.generate([chat("a"), chat("x" * 100_000)])
        assert answers[0].text == "re:a"
        assert answers[1].finish_reason == "error"
        assert "do not fit the context" in answers[1].error
        # Also alone: the server is fine.
        assert "do not fit" in made.generate([chat("x" * 100_000)])[0].error
    assert len([b for b in server.asked("/chat/completions") if "xxx" in fake.prompt_of(b)]) == 2


def test_a_refused_option_is_one_line() -> None:
    behavior = fake.status(400, "Unsupported value: 'temperature' does not support 0 with this model.")
    with (
        FakeEndpoint(behavior=behavior) as server,
        target(server) as made,
        pytest.raises(BackendError) as caught,
    ):
        made.generate([chat("a"), chat("b")])
    assert "'temperature' does not support 0" in one_line(caught.value)
    assert len(server.asked("/chat/completions")) == 2


def test_max_completion_tokens_is_learned() -> None:
    def behavior(handler: fake.Handler, body: dict[str, Any], tried: int) -> bool:
        if "max_tokens" not in body:
            return False
        message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
        return fake.status(400, message, "unsupported_parameter")(handler, body, tried)

    with FakeEndpoint(behavior=behavior) as server, target(server, concurrency=3) as made:
        assert [a.text for a in made.generate([chat("a")] * 6)] == ["re:a"] * 6
        assert server.asked("/chat/completions")[-1]["max_completion_tokens"] == 128


def test_a_server_without_seeds_gets_none_and_a_note() -> None:
    def behavior(handler: fake.Handler, body: dict[str, Any], tried: int) -> bool:
        return "seed" in body and fake.status(422, "Extra inputs are not permitted: seed")(handler, body, tried)

    with FakeEndpoint(behavior=behavior) as server, target(server) as made:
        with pytest.warns(UserWarning, match="takes no seed"):
            assert made.generate([chat("a")] * 3, Sampling(temperature=1.0))[0].text.startswith("re:a")
        assert made.notes == [f"{server.url} takes no seed: its samples cannot be repeated."]


def test_text_that_is_not_unicode_costs_only_itself(server: FakeEndpoint) -> None:
    with target(server) as made:
        answers = made.generate([chat("a"), chat("\ud800")])
    assert answers[0].text == "re:a"
    assert "not valid Unicode" in answers[1].error


# --- Keys ------------------------------------------------------------------------------------------------------------


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeEndpoint(key=KEY) as server:
        for name in ("INTARSIA_API_KEY", "OPENAI_API_KEY"):
            with monkeypatch.context() as patch:
                patch.setenv(name, KEY)
                with target(server) as made:
                    assert made.generate([chat("a")])[0].text == "re:a"
        monkeypatch.setenv("OTHER_KEY", f"{KEY}\n")
        monkeypatch.setenv("OPENAI_API_KEY", "wrong")
        with target(server, key_env="OTHER_KEY") as made:
            assert made.generate([chat("a")])[0].text == "re:a"
        with pytest.raises(ConfigError, match="NO_SUCH_KEY is not set"):
            target(server, key_env="NO_SUCH_KEY")


def test_without_a_key_no_authorization_is_sent(server: FakeEndpoint) -> None:
    with target(server) as made:
        made.generate([chat("a")])
    assert server.requests
    assert all("authorization" not in headers for _, _, headers in server.requests)


def test_a_missing_key_is_one_line_at_once() -> None:
    with FakeEndpoint(key=KEY) as server, target(server) as made:
        with pytest.raises(ConfigError) as caught:
            made.generate([chat(str(i)) for i in range(50)])
        assert "asks for a key" in one_line(caught.value)
        assert len(server.requests) == 1


def test_a_key_file_must_be_private(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    with FakeEndpoint(key=KEY) as server:
        for mode in (0o644, 0o640, 0o604, 0o620):
            path.chmod(mode)
            with pytest.raises(ConfigError, match=f"mode {mode:04o}.*chmod 600") as caught:
                target(server, key_file=str(path))
            assert KEY not in str(caught.value)
        path.chmod(0o600)
        with target(server, key_file=str(path)) as made:
            assert made.generate([chat("a")])[0].text == "re:a"
            copy = pickle.loads(pickle.dumps(made))
            assert copy.generate([chat("a")])[0].text == "re:a"
            copy.close()
        for content in (b"", b"two words", b"\xff\xfe", b"x" * 100_000):
            path.write_bytes(content)
            with pytest.raises(ConfigError):
                target(server, key_file=str(path))
        with pytest.raises(ConfigError, match="cannot be read"):
            target(server, key_file=str(tmp_path / "none"))
        with pytest.raises(ConfigError, match="not an ordinary file"):
            target(server, key_file=str(tmp_path))


def test_the_key_shows_nowhere(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("INTARSIA_API_KEY", KEY)
    shown: list[str] = []
    caplog.set_level(logging.DEBUG)
    echoes = [
        fake.status(code, f"your key {KEY} is bad", f"code {KEY}") for code in (400, 401, 403, 404, 413, 429, 500, 503)
    ]
    echoes += [
        fake.says(KEY.encode()),
        fake.says_json({"error": KEY}),
        fake.status(429, f"insufficient_quota {KEY}"),
        fake.hang(),
        fake.reset,
    ]
    for behavior in echoes:
        with FakeEndpoint(behavior=behavior) as server, target(server, retries=0, deadline=0.5) as made:
            shown += [repr(made), str(vars(made)), json.dumps(made.provenance()), made.name]
            for job in (
                lambda made=made: made.generate([chat("a"), chat("b")]),
                lambda made=made: made.generate(["a"]),
                lambda made=made: made.probe_capabilities(),
            ):
                try:
                    shown.append(repr(job()))
                except IntarsiaError as error:
                    shown += [str(error), repr(error), traceback.format_exc()]
            shown += made.notes
            pickled = pickle.dumps(made)
            assert KEY.encode() not in pickled
    with FakeEndpoint(key="another") as server, pytest.raises(ConfigError) as caught:
        EndpointTarget.from_url(server.url, **FAST)
    assert "does not take the key from INTARSIA_API_KEY" in one_line(caught.value)
    shown.append("".join(traceback.format_exception(caught.value)))
    assert len(shown) > 90
    for text in [*shown, caplog.text]:
        assert KEY not in text


def test_user_and_password_are_used_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    import base64

    caplog.set_level(logging.DEBUG)
    login = "Basic " + base64.b64encode(b"ann:p@ss-word").decode()
    with FakeEndpoint(key=login) as server:
        url = server.url.replace("http://", "http://ann:p%40ss-word@")
        with Target.parse(f"{url}#m", **FAST) as made:
            assert made.generate([chat("a")])[0].text == "re:a"
            assert made.name == f"{server.url}#m"
            shown = [made.name, repr(made), json.dumps(made.provenance()), str(vars(made)), caplog.text]
        with Target.parse(f"{url.replace('word', 'wrong')}#m", **FAST) as made, pytest.raises(ConfigError) as caught:
            made.generate([chat("a")])
        shown += [str(caught.value), "".join(traceback.format_exception(caught.value))]
    for text in shown:
        assert "p@ss" not in text
        assert "p%40ss" not in text
        assert login.split()[1] not in text


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://:80/v1",
        "https://user:hunter2@",
        "http://user:hunter2@host:port/v1",
        "http://user:hunter2@[::1/v1",
        "http://h/v1?key=hunter2",
        "ftp://h/v1",
    ],
)
def test_bad_addresses_are_one_line_and_show_no_secret(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EndpointTarget.from_url(f"{url}#m")
    text = one_line(caught.value)
    assert "hunter2" not in text
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_key_over_plain_http_is_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.warns(UserWarning, match="plain http") as caught:
        made = EndpointTarget.from_url("http://far.example/v1#m")
    assert len(caught) == 1
    assert len(made.notes) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (
            "https://far.example/v1#m",
            "http://127.0.0.1:1/v1#m",
            "http://[::1]:1/v1#m",
            "http://localhost/v1#m",
        ):
            assert EndpointTarget.from_url(quiet).notes == []
        monkeypatch.delenv("OPENAI_API_KEY")
        assert EndpointTarget.from_url("http://far.example/v1#m").notes == []


# --- Options and budgets ---------------------------------------------------------------------------------------------


def test_wrong_options_are_one_line() -> None:
    with pytest.raises(ConfigError, match=r"no option 'concurency'\. Did you mean 'concurrency'\?"):
        EndpointTarget.from_url("http://h/v1#m", concurency=3)
    with pytest.raises(ConfigError, match="no option 'dtype'"):
        EndpointTarget.from_url("http://h/v1#m", dtype="bfloat16")
    with pytest.raises(ConfigError, match="concurrency=0 is wrong"):
        EndpointTarget.from_url("http://h/v1#m", concurrency=0)
    with pytest.raises(ConfigError, match="no option 'api_key'"):
        EndpointTarget.from_url("http://h/v1#m", api_key=KEY)


def test_an_estimate_comes_before_anything_is_sent(server: FakeEndpoint) -> None:
    sampling = Sampling(max_new_tokens=50)
    with target(server, max_requests=4) as made:
        assert made.estimate(["x" * 40, chat("y")], sampling) == {
            "calls": 2,
            "prompt_tokens": 10 + len("system: be brief\nuser: y") // 4 + 8,
            "new_tokens": 100,
        }
        with pytest.raises(ConfigError) as caught:
            made.generate([chat("a")] * 5, sampling)
        assert "5 more requests would pass the budget of 4 (0 are spent)" in one_line(caught.value)
        assert server.requests == []
        made.generate([chat("a")] * 3, sampling)
        with pytest.raises(ConfigError, match=r"\(3 are spent\)\. Raise max_requests to 5"):
            made.generate([chat("a")] * 2, sampling)
        made.generate([chat("a")], sampling)
    with target(server, max_tokens_total=100) as made:
        with pytest.raises(ConfigError, match=r"Up to \d+ more tokens would pass the budget of 100"):
            made.generate([chat("a")] * 2, sampling)
        assert made.generate([chat("a")], sampling)[0].text == "re:a"
        assert 0 < made.meter.tokens < 60


def test_a_budget_that_runs_out_midway_keeps_what_was_answered() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 90}
    data = {"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}], "usage": usage}
    with (
        FakeEndpoint(behavior=fake.says_json(data)) as server,
        target(server, concurrency=1, max_tokens_total=250) as made,
    ):
        answers = made.generate([chat(str(i)) for i in range(8)], Sampling(max_new_tokens=5))
        assert [a.text for a in answers] == ["ok"] * 3 + [""] * 5
        assert answers[3].finish_reason == "error"
        assert answers[3].error == "not sent: the budget of 250 tokens is used up"
        assert len(server.asked("/chat/completions")) == 3
        with pytest.raises(ConfigError, match="budget of 250"):
            made.generate([chat("x")], Sampling(max_new_tokens=5))
        assert len(server.asked("/chat/completions")) == 3


def test_retries_count_against_the_budget_of_requests() -> None:
    with (
        FakeEndpoint(behavior=fake.first(1, fake.status(500))) as server,
        target(server, concurrency=1, max_requests=5, breaker=100) as made,
    ):
        answers = made.generate([chat(str(i)) for i in range(4)])
        assert len(server.asked("/chat/completions")) == 5
    assert [a.finish_reason for a in answers] == ["stop", "stop", "error", "error"]
    assert "used up" in answers[3].error


# --- What a server can do --------------------------------------------------------------------------------------------


def test_probing_finds_everything_once(server: FakeEndpoint) -> None:
    with target(server) as made:
        found = made.probe_capabilities()
        assert found == {"generate", "chat", "logprobs", "score", "embed", "seed"}
        sent = len(server.requests)
        assert sent <= 10
        assert made.probe_capabilities() == made.capabilities == found
        assert len(server.requests) == sent
        assert made.meter.requests == 0


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"logprobs": False}, {"logprobs"}),
        ({"seeds": False}, {"seed"}),
        ({"paths": ("/models", "/chat/completions")}, {"score", "embed"}),
        ({"paths": ("/models", "/completions")}, {"chat", "embed"}),
        ({"paths": ("/embeddings",)}, {"generate", "chat", "score", "logprobs", "seed"}),
    ],
)
def test_probing_finds_what_is_missing(options: dict[str, Any], missing: set[str]) -> None:
    with FakeEndpoint(**options) as server, target(server) as made:
        everything = {"generate", "chat", "logprobs", "score", "embed", "seed"}
        assert made.probe_capabilities() == everything - missing
        if "score" in missing:
            with pytest.raises(ConfigError, match="cannot score"):
                made.score(["a"], ["b"])
        if "embed" in missing:
            with pytest.raises(ConfigError, match="cannot embed"):
                made.embed(["a"])


def test_a_server_that_echoes_nothing_cannot_score() -> None:
    def behavior(handler: fake.Handler, body: dict[str, Any], tried: int) -> bool:
        body.pop("echo", None)
        return False

    with FakeEndpoint(behavior=behavior) as server, target(server) as made:
        assert "score" not in made.probe_capabilities()


def test_probing_a_dead_server_is_one_line() -> None:
    with FakeEndpoint(behavior=fake.status(500)) as server, target(server) as made:
        with pytest.raises(BackendError) as caught:
            made.probe_capabilities()
        assert "500 boom" in one_line(caught.value)


@pytest.mark.parametrize("options", [{}, {"zero_echo": False}, {"bos": True}, {"zero_echo": False, "bos": True}])
def test_scores_are_those_of_the_continuation(options: dict[str, bool]) -> None:
    with FakeEndpoint(**options) as server, target(server, concurrency=2) as made:
        scores = made.score(["abcdef", "abcd", "abcdef", "abc"], ["ghijk", "efg", "", "d"])
    # Tokens are three characters long, and their log-probability is minus their length; "abcd|efg" is cut abc,def,g.
    assert [s.logprobs for s in scores] == [(-3.0, -2.0), (-3.0, -1.0), (), (-1.0,)]
    assert all(s.token_ids == () for s in scores)


def test_scores_of_characters_that_tokens_split() -> None:
    # Two byte tokens make one character; neither spells it, so the server's offsets decide.
    data = {
        "choices": [
            {
                "text": "ab\u00e9",
                "logprobs": {
                    "tokens": ["ab", "\ufffd", "\ufffd"],
                    "token_logprobs": [None, -1.0, -2.0],
                    "text_offset": [0, 2, 2],
                },
            }
        ]
    }
    assert replies.continuation_logprobs(data, "ab", "\u00e9", extra=0) == (-1.0, -2.0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("ab \u00e9", min_size=1, max_size=4), min_size=2, max_size=8), st.data())
def test_every_character_of_a_continuation_is_scored_once(tokens: list[str], data: Any) -> None:
    text = "".join(tokens)
    cut = data.draw(st.integers(len(tokens[0]), len(text) - 1))
    starts = [sum(map(len, tokens[:i])) for i in range(len(tokens))]
    expected = [float(-i) for i, start in enumerate(starts) if start + len(tokens[i]) > cut]
    sent = {
        "text": text,
        "logprobs": {"tokens": tokens, "token_logprobs": [None, *(float(-i) for i in range(1, len(tokens)))]},
    }
    assert list(replies.continuation_logprobs({"choices": [sent]}, text[:cut], text[cut:], extra=0)) == expected


def test_a_failed_score_is_one_line() -> None:
    behavior = fake.only("bad", fake.status(500))
    with FakeEndpoint(behavior=behavior) as server, target(server) as made:
        with pytest.raises(BackendError) as caught:
            made.score(["good", "bad"], [" x", " y"])
        assert "500 boom" in one_line(caught.value)
        with pytest.raises(ConfigError, match="plain strings"):
            made.score([chat("a")], ["b"])


def test_embeddings_keep_their_order(server: FakeEndpoint) -> None:
    texts = ["x" * (i % 17) for i in range(150)]
    with target(server) as made:
        vectors = made.embed(texts)
    assert vectors.shape == (150, 3)
    assert vectors.dtype == np.float32
    assert vectors[:, 0].tolist() == [float(i % 17) for i in range(150)]
    assert len(server.asked("/embeddings")) == 4  # three groups and the probe


@pytest.mark.parametrize(
    "rows",
    [
        [{"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [None]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 2, "embedding": [1.0]}],
        [{"index": 0, "embedding": "AAAA"}, {"index": 1, "embedding": "AAAA"}],
    ],
)
def test_bad_embeddings_are_shapeless(rows: list[Any]) -> None:
    with pytest.raises(Shapeless):
        replies.embeddings({"data": rows}, 2)


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------


def test_ctrl_c_stops_promptly_and_quietly() -> None:
    script = textwrap.dedent("""
        import sys, time
        from intarsia.core.endpoint import EndpointTarget
        target = EndpointTarget.from_url(sys.argv[1] + "#m", concurrency=4)
        print("ready", flush=True)
        try:
            target.generate([[{"role": "user", "content": str(i)}] for i in range(20)])
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            sys.exit(130)
    """)
    with FakeEndpoint(behavior=fake.hang()) as server:
        process = subprocess.Popen(
            [sys.executable, "-W", "default", "-c", script, server.url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            ends = time.monotonic() + 30
            while server.in_flight < 4:
                assert time.monotonic() < ends
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            started = time.monotonic()
            out, err = process.communicate(timeout=20)
            took = time.monotonic() - started
        finally:
            process.kill()
        assert process.returncode == 130
        assert out.split() == ["ready", "interrupted"]
        assert err == ""
        assert took < 5


def test_a_target_is_usable_after_ctrl_c() -> None:
    with FakeEndpoint(behavior=fake.only("slow", fake.hang())) as server, target(server, deadline=20.0) as made:

        def interrupt() -> None:
            ends = time.monotonic() + 10
            while server.in_flight < 2 and time.monotonic() < ends:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            made.generate([chat("slow"), chat("slow")])
        thread.join()
        assert made.generate([chat("a")])[0].text == "re:a"


def test_the_openai_library_is_not_imported_before_it_is_used() -> None:
    script = (
        "import sys, intarsia.core.endpoint, intarsia.core.inspect_target, intarsia.core.scripted;"
        "print([m for m in ('openai', 'inspect_ai', 'torch', 'transformers', 'httpx') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

"""ScriptedTarget: the stand-in that other tests rest on."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import BackendError, ConfigError
from intarsia.core.sampling import Sampling
from intarsia.core.scripted import Call, ScriptedTarget
from intarsia.core.target import Completion, Message, Prompt, Target

CHAT: list[Message] = [{"role": "system", "content": "s"}, {"role": "user", "content": "hello"}]


def test_it_is_a_target() -> None:
    target = ScriptedTarget(lambda prompt: "x")
    assert Target.parse(target) is target
    assert target.capabilities == {"generate", "chat", "seed"}
    assert target.provenance() == {"name": "scripted", "kind": "ScriptedTarget"}


def test_functions_tables_and_lists_answer() -> None:
    def shout(prompt: Prompt) -> str:
        return prompt.upper() if isinstance(prompt, str) else prompt[-1]["content"].upper()

    assert [c.text for c in ScriptedTarget(shout).generate(["a", CHAT])] == ["A", "HELLO"]
    table = ScriptedTarget({"a": "1", "hello": "2", "*": "3"})
    assert [c.text for c in table.generate(["a", CHAT, "zzz"])] == ["1", "2", "3"]
    by_whole_text = ScriptedTarget({"system: s\nuser: hello": "whole", "hello": "last"})
    assert by_whole_text.generate([CHAT])[0].text == "whole"
    listed = ScriptedTarget(["one", "two"])
    assert [c.text for c in listed.generate(["x", "x"])] == ["one", "two"]
    with pytest.raises(ConfigError, match="2 answers and is asked for one more"):
        listed.generate(["x"])
    with pytest.raises(ConfigError, match="no answer to 'b'"):
        ScriptedTarget({"a": "1"}).generate(["b"])
    with pytest.raises(TypeError, match="not one string"):
        ScriptedTarget("oops")


def test_a_function_may_give_a_whole_completion() -> None:
    whole = Completion(text="t", token_count=7, thinking="hm")
    assert ScriptedTarget(lambda prompt: whole).generate(["a"], Sampling(max_new_tokens=1)) == [whole]


def test_limits_stops_and_logprobs() -> None:
    target = ScriptedTarget(lambda prompt: "one two three\nfour")
    cut = target.generate(["a"], Sampling(max_new_tokens=2, logprobs=True))[0]
    assert (cut.text, cut.token_count, cut.finish_reason, cut.logprobs) == ("one two", 2, "length", (0.0, 0.0))
    stopped = target.generate(["a"], Sampling(stop=("\n", "zzz")))[0]
    assert (stopped.text, stopped.finish_reason) == ("one two three", "stop")
    assert target.generate(["a"], Sampling(max_new_tokens=4))[0].finish_reason == "stop"


@given(st.text(max_size=40))
def test_an_answer_is_not_changed(text: str) -> None:
    answer = ScriptedTarget(lambda prompt: text).generate(["a"], Sampling(max_new_tokens=1000))[0]
    assert answer.text == text
    assert answer.finish_reason == "stop"


def test_calls_are_logged_with_their_keys() -> None:
    target = ScriptedTarget(lambda prompt: "x", scorer=lambda p, c: -1.0, embedder=lambda text: [1.0])
    seen: list[tuple[int, int]] = []
    target.generate(["a", "b"], keys=["k1", "k2"], progress=lambda done, total: seen.append((done, total)))
    target.score(["a"], ["b"])
    target.embed(["c"])
    assert target.calls == [
        Call("generate", "a", "k1"),
        Call("generate", "b", "k2"),
        Call("score", "a"),
        Call("embed", "c"),
    ]
    assert seen == [(1, 2), (2, 2)]
    with pytest.raises(ValueError, match="1 keys for 2 prompts"):
        target.generate(["a", "b"], keys=["k"])


def test_scores() -> None:
    target = ScriptedTarget(lambda prompt: "x", scorer=lambda p, c: -3.0 if p == "a" else [-1.0, -2.0])
    assert target.capabilities >= {"score"}
    even, given_each, empty = target.score(["a", "b", "a"], [" x y z", " x y", ""])
    assert even.logprobs == (-1.0, -1.0, -1.0)
    assert given_each.logprobs == (-1.0, -2.0)
    assert len(set(even.token_ids)) == 3
    assert empty.logprobs == ()
    with pytest.raises(ValueError, match="2 numbers for 1 words"):
        target.score(["b"], ["x"])
    with pytest.raises(ConfigError, match="cannot score"):
        ScriptedTarget(lambda prompt: "x").score(["a"], ["b"])


def test_embeddings() -> None:
    target = ScriptedTarget(lambda prompt: "x", embedder=lambda text: [float(len(text)), 1.0])
    vectors = target.embed(["a", "bb"])
    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[1.0, 1.0], [2.0, 1.0]]
    assert target.embed([]).shape == (0, 0)
    with pytest.raises(ConfigError, match="cannot embed"):
        ScriptedTarget(lambda prompt: "x").embed(["a"])


def test_failures_and_interruptions_as_asked() -> None:
    target = ScriptedTarget(lambda prompt: "x", fail_on=["bad", "hello"], scorer=lambda p, c: -1.0)
    answers = target.generate(["a", "bad", CHAT])
    assert [a.finish_reason for a in answers] == ["stop", "error", "error"]
    assert answers[1].error
    with pytest.raises(BackendError):
        target.score(["bad"], ["x"])
    assert ScriptedTarget(lambda p: "x", fail_on=lambda p: p == "q").generate(["q"])[0].finish_reason == "error"

    def before(count: int, prompt: Prompt) -> None:
        if count == 2:
            raise KeyboardInterrupt

    killed = ScriptedTarget(lambda prompt: "x", before=before)
    with pytest.raises(KeyboardInterrupt):
        killed.generate(["a", "b", "c", "d"])
    assert [call.prompt for call in killed.calls] == ["a", "b", "c"]


def test_latency_and_capabilities_as_asked() -> None:
    target = ScriptedTarget(lambda prompt: "x", latency=0.01, capabilities=["generate"], name="slow")
    started = time.monotonic()
    target.generate(["a"] * 3)
    assert time.monotonic() - started >= 0.03
    assert (target.name, target.capabilities) == ("slow", {"generate"})

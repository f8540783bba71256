"""InspectTarget over inspect_ai's own mock model; no network."""

from __future__ import annotations

import asyncio
import builtins
import sys
import threading
from typing import Any

import pytest

from intarsia.core.errors import BackendError, ConfigError, ModelError
from intarsia.core.inspect_target import InspectTarget
from intarsia.core.sampling import Sampling
from intarsia.core.target import Target

pytest.importorskip("inspect_ai", reason="the extra `eval` is not installed")

from inspect_ai.model import (
    ContentReasoning,
    ContentText,
    Logprob,
    Logprobs,
    ModelOutput,
    ModelUsage,
    get_model,
)


class Mock:
    """Answers of the mock model, and what it was asked."""

    def __init__(self, **choice: Any) -> None:
        self.choice = choice
        self.asked: list[Any] = []
        self.in_flight = self.most = 0

    async def __call__(self, messages: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        self.asked.append((messages, config))
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        await asyncio.sleep(0.01)
        self.in_flight -= 1
        text = messages[-1].text
        if "bad" in text:
            raise RuntimeError(f"[bold]ERROR[/bold]: no answer to {text}")
        if "slow" in text:
            await asyncio.sleep(30)
        output = ModelOutput.from_content("mockllm", self.choice.get("content", f"re:{text}"))
        output.choices[0].stop_reason = self.choice.get("stop_reason", "stop")
        output.choices[0].logprobs = self.choice.get("logprobs")
        output.usage = ModelUsage(input_tokens=3, output_tokens=2, total_tokens=6, input_tokens_cache_read=1)
        return output

    def target(self, **options: Any) -> InspectTarget:
        return InspectTarget(get_model("mockllm/model", custom_outputs=self), **options)


def test_parse_reaches_the_mock_model() -> None:
    with Target.parse("inspect:mockllm/model") as target:
        assert isinstance(target, InspectTarget)
        assert target.name == "inspect:mockllm/model"
        answers = target.generate(["a", [{"role": "user", "content": "b"}]])
        assert [a.text for a in answers] == ["Default output from mockllm/model"] * 2
        assert target.provenance() == {
            "name": "inspect:mockllm/model",
            "kind": "InspectTarget",
            "model": "mockllm/model",
        }


def test_order_roles_counts_and_bound() -> None:
    mock = Mock()
    chat = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "last"},
    ]
    seen: list[tuple[int, int]] = []
    with mock.target(concurrency=3) as target:
        answers = target.generate([*map(str, range(9)), chat], progress=lambda *step: seen.append(step))
        assert target.batches(["x"] * 5) == [[0, 1, 2], [3, 4]]
        assert target.generate([]) == []
    assert [a.text for a in answers] == [*(f"re:{i}" for i in range(9)), "re:last"]
    assert {(a.prompt_tokens, a.token_count) for a in answers} == {(4, 2)}
    assert seen == [(i, 10) for i in range(1, 11)]
    assert mock.most == 3
    roles = [[m.role for m in messages] for messages, _ in mock.asked]
    assert ["system", "user", "assistant", "user"] in roles


def test_the_sampling_is_passed_on() -> None:
    mock = Mock()
    hot = Sampling(temperature=0.7, top_p=0.9, top_k=5, stop=("END",), max_new_tokens=9, logprobs=True, seed=1)
    with mock.target(retries=2, deadline=50) as target:
        target.generate(["a"])
        target.generate(["a"], hot, keys=["k"])
        target.generate(["a"], hot, keys=["k"])
        target.generate(["a", "a"], hot)
        with pytest.raises(ConfigError, match="min_p"):
            target.generate(["a"], Sampling(min_p=0.1))
        with pytest.raises(ConfigError, match="no chat role 'robot'"):
            target.generate([[{"role": "robot", "content": "x"}]])
        with pytest.raises(ValueError, match="1 keys"):
            target.generate(["a", "b"], hot, keys=["k"])
    greedy, first, second, third, fourth = [config for _, config in mock.asked]
    assert (greedy.temperature, greedy.max_tokens, greedy.seed, greedy.top_p, greedy.top_k) == (
        0,
        128,
        None,
        None,
        None,
    )
    assert (greedy.max_retries, greedy.timeout) == (2, 50)
    assert (first.temperature, first.max_tokens, first.top_p, first.top_k) == (0.7, 9, 0.9, 5)
    assert (first.stop_seqs, first.logprobs) == (["END"], True)
    assert first.seed == second.seed
    assert len({first.seed, third.seed, fourth.seed}) == 3
    assert 0 <= first.seed < 2**31


def test_thinking_reasons_stops_and_logprobs() -> None:
    content = [ContentReasoning(reasoning="2+2"), ContentText(text="4 END 5")]
    logprobs = Logprobs(content=[Logprob(token="4", logprob=-0.5), Logprob(token="5", logprob=float("-inf"))])
    with Mock(content=content, logprobs=logprobs).target() as target:
        answer = target.generate(["q"], Sampling(logprobs=True, stop=("END",)))[0]
        assert (answer.text, answer.thinking, answer.logprobs) == ("4 ", "2+2", (-0.5, -9999.0))
        assert target.generate(["q"])[0].logprobs is None
    for stop_reason, expected in (("max_tokens", "length"), ("model_length", "length"), ("tool_calls", "stop")):
        with Mock(stop_reason=stop_reason).target() as target:
            assert target.generate(["q"])[0].finish_reason == expected
    with Mock(stop_reason="content_filter").target() as target, pytest.raises(BackendError, match="content filter"):
        target.generate(["q"])


def test_one_failure_costs_only_itself() -> None:
    with Mock().target(retries=0, deadline=0.5) as target:
        answers = target.generate(["a", "bad", "slow", "b"])
        assert [a.text for a in answers] == ["re:a", "", "", "re:b"]
        assert answers[1].error == "no answer to bad"
        assert answers[2].error == "no answer within 0.5 s"
        with pytest.raises(BackendError, match="did not answer any of 2 prompts") as caught:
            target.generate(["bad", "bad 2"])
        assert "\n" not in str(caught.value)
        assert "[bold]" not in str(caught.value)


def test_a_key_in_a_provider_error_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-0123456789")
    with Mock().target(retries=0) as target:
        answers = target.generate(["a", "bad sk-very-secret-0123456789"])
        assert answers[1].error.endswith("no answer to bad ***")


def test_it_works_inside_a_running_loop_and_from_threads() -> None:
    with Mock().target() as target:

        async def notebook() -> str:
            return target.generate(["a"])[0].text

        assert asyncio.run(notebook()) == "re:a"
        results: list[str] = []
        threads = [
            threading.Thread(target=lambda n=n: results.append(target.generate([str(n)])[0].text)) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == [f"re:{n}" for n in range(4)]


def test_what_is_missing_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AZUREAI_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY") as no_key:
        InspectTarget("openai/gpt-4o")
    with pytest.raises(ModelError, match="nosuch") as no_provider:
        InspectTarget("nosuch/x")
    with pytest.raises(ConfigError, match="names no provider") as no_slash:
        InspectTarget("plain")
    with pytest.raises(ConfigError, match="concurrency=0") as no_bound:
        InspectTarget("mockllm/model", concurrency=0)
    for caught in (no_key, no_provider, no_slash, no_bound):
        assert "\n" not in str(caught.value)
        assert caught.value.hint


def test_without_inspect_ai_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] == "inspect_ai":
            raise ModuleNotFoundError("No module named 'inspect_ai'", name="inspect_ai")
        return real(name, *rest, **named)

    for name in [name for name in sys.modules if name.split(".")[0] == "inspect_ai"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"needs the package inspect_ai.*pip install 'intarsia\[eval\]'"):
        InspectTarget("mockllm/model")

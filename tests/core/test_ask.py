"""Asking through a journal: what is recorded, what is asked again, and that a killed run comes to the same answers."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.ask import ask, ask_scores
from intarsia.core.errors import BackendError
from intarsia.core.journal import Journal
from intarsia.core.sampling import Sampling
from intarsia.core.target import Completion, Prompt, Scored, Target, prompt_text


class Fake(Target):
    """Answers depend on the prompt, the key, and (like padding noise) on the company in the batch."""

    def __init__(self, *, name: str = "fake", size: int = 3, weights: bool = True, stop_after: int = 10**9) -> None:
        self.name = name
        self.size = size
        self.capabilities = frozenset({"generate", "score", "weights"} if weights else {"generate", "score"})
        self.batched: list[list[str]] = []
        self.stop_after = stop_after
        self.failing: set[str] = set()

    def batches(self, prompts: Sequence[Prompt], sampling: Sampling | None = None) -> list[list[int]]:
        order = sorted(range(len(prompts)), key=lambda i: len(prompt_text(prompts[i])))
        return [order[start : start + self.size] for start in range(0, len(order), self.size)]

    def generate(
        self, prompts: Sequence[Prompt], sampling: Sampling | None = None, *, keys: Any = None, progress: Any = None
    ) -> list[Completion]:
        texts = self._begin(prompts)
        return [
            Completion(text="", token_count=0, finish_reason="error", error="500")
            if text in self.failing
            else Completion(
                text=f"{key}: {text}", token_count=1, token_ids=(1,), logprobs=(-0.1 - len(self._company(texts)),)
            )
            for text, key in zip(texts, keys)
        ]

    def score(self, prompts: Sequence[Prompt], continuations: Sequence[str], *, progress: Any = None) -> list[Scored]:
        texts = self._begin(prompts)
        return [Scored(token_ids=(1,), logprobs=(-float(len(t + c)),)) for t, c in zip(texts, continuations)]

    def _begin(self, prompts: Sequence[Prompt]) -> list[str]:
        if len(self.batched) == self.stop_after:
            raise BackendError("Killed.", "")
        self.batched.append([prompt_text(prompt) for prompt in prompts])
        return self.batched[-1]

    def _company(self, texts: list[str]) -> str:
        return "".join(texts) if "weights" in self.capabilities else ""


PROMPTS: list[Prompt] = ["aaaa", "b", "ccc", [{"role": "user", "content": "dd"}], "eeeee", "ff", "g"]
KEYS = [f"k{i}" for i in range(len(PROMPTS))]
SAMPLING = Sampling(temperature=1.0)


def test_answers_come_in_the_order_of_the_prompts() -> None:
    seen: list[tuple[int, int]] = []
    answers = ask(Fake(), PROMPTS, SAMPLING, keys=KEYS, progress=lambda *p: seen.append(p))
    assert [answer.text for answer in answers] == [f"{k}: {prompt_text(p)}" for k, p in zip(KEYS, PROMPTS)]
    assert seen == [(3, 7), (6, 7), (7, 7)]
    assert ask(Fake(), [], SAMPLING, keys=[]) == []


@given(st.integers(1, 5), st.integers(0, 7))
@settings(deadline=None)
def test_a_killed_run_comes_to_the_same_answers_without_asking_twice(size: int, killed_after: int) -> None:
    whole = Fake(size=size)
    expected = ask(whole, PROMPTS, SAMPLING, keys=KEYS)
    with tempfile.TemporaryDirectory() as folder:
        first = Fake(size=size, stop_after=killed_after)
        with Journal(Path(folder) / "j") as journal:
            try:
                ask(first, PROMPTS, SAMPLING, keys=KEYS, journal=journal)
            except BackendError:
                assert killed_after < len(whole.batched)
        second = Fake(size=size)
        with Journal(Path(folder) / "j") as journal:
            assert ask(second, PROMPTS, SAMPLING, keys=KEYS, journal=journal) == expected
        assert first.batched + second.batched == whole.batched
        third = Fake(size=size, stop_after=0)
        with Journal(Path(folder) / "j") as journal:
            assert ask(third, PROMPTS, SAMPLING, keys=KEYS, journal=journal) == expected


def test_a_batch_of_tensors_of_which_an_answer_is_missing_is_done_whole(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        ask(Fake(), PROMPTS[:2], SAMPLING, keys=KEYS[:2], journal=journal)
        target = Fake()
        answers = ask(target, PROMPTS, SAMPLING, keys=KEYS, journal=journal)
    assert answers == ask(Fake(), PROMPTS, SAMPLING, keys=KEYS)
    assert ["b", "g", "ff"] in target.batched


def test_an_endpoint_is_asked_for_what_is_missing_only(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        first = Fake(weights=False)
        first.failing = {"ff", "ccc"}
        answers = ask(first, PROMPTS, SAMPLING, keys=KEYS, journal=journal)
        assert [a.finish_reason for a in answers].count("error") == 2
        assert len(journal) == len(PROMPTS) - 2
    with Journal(tmp_path / "j") as journal:
        second = Fake(weights=False)
        answers = ask(second, PROMPTS, SAMPLING, keys=KEYS, journal=journal)
        assert second.batched == [["ff"], ["ccc"]]
        assert answers == ask(Fake(weights=False), PROMPTS, SAMPLING, keys=KEYS)


def test_what_differs_is_kept_apart(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:

        def asked(name: str = "fake", sampling: Sampling = SAMPLING, keys: list[str] = KEYS, stage: str = "") -> int:
            target = Fake(name=name)
            ask(target, PROMPTS, sampling, keys=keys, stage=stage, journal=journal)
            return len(target.batched)

        assert asked() == 3
        assert asked() == 0
        assert asked(name="other") == 3
        assert asked(sampling=Sampling(temperature=1.0, seed=1)) == 3
        assert asked(keys=[f"{k}'" for k in KEYS]) == 3
        assert asked(stage="again") == 3


def test_scores_go_through_the_journal_too(tmp_path: Path) -> None:
    continuations = [f"x{i}" for i in range(len(PROMPTS))]
    expected = ask_scores(Fake(), PROMPTS, continuations)
    assert [s.total for s in expected] == [-float(len(prompt_text(p) + c)) for p, c in zip(PROMPTS, continuations)]
    with Journal(tmp_path / "j") as journal:
        with pytest.raises(BackendError):
            ask_scores(Fake(stop_after=1), PROMPTS, continuations, journal=journal)
        assert len(journal) == 3
        target = Fake()
        assert ask_scores(target, PROMPTS, continuations, journal=journal) == expected
        assert len(target.batched) == 2


def test_equal_scorings_in_two_batches_stay_apart(tmp_path: Path) -> None:
    """Each keeps the last bits that its own batch gave it, in a fresh run and in a resumed one."""
    prompts = ["a", "a", "a", "a"]
    with Journal(tmp_path / "j") as journal:
        target = Fake()
        ask_scores(target, prompts, ["x"] * 4, journal=journal)
        assert len(journal) == 4
        assert [len(batch) for batch in target.batched] == [3, 1]


def test_a_target_that_loses_prompts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Fake()
    monkeypatch.setattr(target, "generate", lambda *a, **k: [])
    with pytest.raises(ValueError):
        ask(target, PROMPTS, SAMPLING, keys=KEYS)


def test_one_key_a_prompt() -> None:
    with pytest.raises(ValueError):
        ask(Fake(), PROMPTS, SAMPLING, keys=KEYS[1:])
    with pytest.raises(ValueError, match="same key"):
        ask(Fake(), PROMPTS, SAMPLING, keys=["k"] * len(PROMPTS))
    with pytest.raises(ValueError):
        ask_scores(Fake(), PROMPTS, ["x"])

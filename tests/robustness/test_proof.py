"""The reproductions run, judge every line, and would fail where the method does."""

from __future__ import annotations

from pathlib import Path

import pytest

from intarsia.core.catalog.wordnet import locate
from intarsia.core.claims import claim, verdict_line
from intarsia.core.errors import IntarsiaError
from intarsia.core.reproduce import reproduce
from intarsia.core.sampling import Sampling
from intarsia.core.study import Context
from intarsia.robustness.attack import MSCR
from intarsia.robustness.proof import exact, tiny
from intarsia.robustness.proof.exact import Exact
from intarsia.robustness.proof.noisy import NoisySolver, noisy_questions
from intarsia.robustness.proof.tiny import Tiny


@pytest.fixture(scope="module")
def wordnet() -> Path:
    try:
        return locate()
    except IntarsiaError as error:
        pytest.skip(f"WordNet is not at hand: {error.message}")


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "ITEMS", 24)
    monkeypatch.setattr(exact, "NOISY", 60)
    monkeypatch.setattr(exact, "CASES", ((0.1, 8),))


def test_a_small_exact_reproduction_holds(wordnet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    result = Exact().run(Context(seeds=1))
    states = {one.name: one.state for one in result.claims}
    assert states.pop("control.confirmed") in ("pass", "fail")  # sixty questions are few
    assert set(states.values()) == {"pass"}


def test_it_fails_where_a_query_is_counted_twice(wordnet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch)
    plain = MSCR.run

    def miscounting(self: MSCR, questions: object, **options: object) -> object:
        results = plain(self, questions, **options)  # type: ignore[arg-type]
        if self.control == "full":
            results.rows = tuple(
                row.model_copy(update={"tried": (row.tried[0], *row.tried)}) if row.tried else row
                for row in results.rows
            )
        return results

    monkeypatch.setattr(MSCR, "run", miscounting)
    result = Exact().run(Context(seeds=1))
    assert result.claim("exact.queries").state == "fail"
    assert "exact.queries" in result.headline


def test_a_noisy_solver_errs_at_its_rate_and_repeats_itself() -> None:
    items = noisy_questions(2000).items
    solver = NoisySolver(0.2)
    prompts, keys = [item.question for item in items], [item.id for item in items]
    first = solver.generate(prompts, Sampling(seed=1), keys=keys)
    assert first == solver.generate(prompts, Sampling(seed=1), keys=keys)
    assert first != solver.generate(prompts, Sampling(seed=2), keys=keys)
    wrong = sum(said.text != item.answer for said, item in zip(first, items, strict=True))
    assert abs(wrong - 400) < 3 * (2000 * 0.2 * 0.8) ** 0.5


@pytest.mark.slow
def test_a_short_tiny_reproduction_is_judged_as_it_is(
    wordnet: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    train = tiny.train_tiny
    monkeypatch.setattr(tiny, "ITEMS", 20)
    monkeypatch.setattr(tiny, "train_tiny", lambda seed, augment, progress: train(seed, augment, 40, progress))
    first = reproduce("robustness", [Tiny()], seeds=1, out=tmp_path / "out", work=tmp_path / "work")
    # Forty steps are too few to answer anything, and the table says so.
    assert first.results[0].claim("tiny.clean").state == "fail"
    monkeypatch.setattr(tiny, "train_tiny", None)
    again = reproduce("robustness", [Tiny()], seeds=1, out=tmp_path / "out", work=tmp_path / "work")
    assert again.body() == first.body()


def test_claims_are_judged_by_value_or_by_the_whole_interval() -> None:
    from intarsia.core.stats import wilson

    near = {"n": 10, "scale": "cpu", "interval": wilson(6, 10)}
    by_value = claim("a", "?", 0.6, (">=", 0.5), **near)  # type: ignore[arg-type]
    by_interval = claim("b", "?", 0.6, (">=", 0.5), by_interval=True, **near)  # type: ignore[arg-type]
    failed = claim("c", "?", 0.4, (">=", 0.5), n=10, scale="cpu")
    assert [one.state for one in (by_value, by_interval, failed)] == ["pass", "inconclusive", "fail"]
    assert verdict_line([by_value, by_interval, failed]) == "1 of 3 claims hold; not: c; undecided: b."

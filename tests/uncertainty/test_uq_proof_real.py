"""The third reproduction: its lines hold where beams are what they should be, and fail where they are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intarsia.core.data import DataSet
from intarsia.core.errors import DataError
from intarsia.core.journal import Journal
from intarsia.core.study import Context
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.candidates import Answer, CandidateSet
from intarsia.uncertainty.law import Law
from intarsia.uncertainty.proof import real
from intarsia.uncertainty.proof.fact_table import FactTable
from intarsia.uncertainty.proof.facts_model import FactsModel, train_facts
from intarsia.uncertainty.proof.kept import collected, first, from_row, to_row
from intarsia.uncertainty.proof.measured import Measured, error_ratio, gain, mean_p
from intarsia.uncertainty.proof.real import Again, Mended, Options, Real, accepted, failure

RUNS, M = 5, 10
OPTIONS = Options(resamples=29, shuffles=3)


def made_set(kind: str, texts: Sequence[str], probs: np.ndarray, answer: str) -> CandidateSet:
    ids = tuple((1 + hash_of(text), 0) for text in texts)
    exact = len(texts) if kind == "beam" else 0
    whole = Answer(answer, (1 + hash_of(answer), 0), (float(np.log(probs.max())), 0.0), 0.5)
    finished = np.ones(len(texts), dtype=bool)
    return CandidateSet(whole, tuple(texts), ids, np.log(probs), finished, kind, exact)  # type: ignore[arg-type]


def hash_of(text: str) -> int:
    return sum(ord(char) * 31**place for place, char in enumerate(text))


@pytest.fixture(scope="module")
def measured() -> Measured:
    """Beams and samples of a model that knows the laws of a fact table."""
    table = FactTable(0, 40)
    rng = np.random.default_rng(0)
    beams, samples = [], []
    for fact in table.facts:
        top = fact.answers[0]
        beams.append(made_set("beam", fact.answers[:M], fact.probs_P[:M], top))
        drawn = rng.choice(len(fact.answers), RUNS * M, p=fact.probs_P)
        samples.append(made_set("sample", [fact.answers[at] for at in drawn], fact.probs_P[drawn], top))
    return Measured("laws", 1.0, table.data().items, beams, samples, RUNS)


def states(claims: Sequence[Any]) -> dict[str, str]:
    return {one.name.removeprefix("x."): one.state for one in claims}


def test_beams_that_hold_much_pass_every_line(measured: Measured) -> None:
    claims = accepted(measured, OPTIONS, "cpu", "x", Again(20, 0.0, 1e-7))
    found = states(claims)
    # What is left of the gain depends on how many beams say the same as the answer; here each says something else.
    found.pop("fake.shuffled")
    assert set(found.values()) == {"pass"}
    assert len(found) == 11
    for one in claims:
        assert one.threshold is not None
        assert one.scale == "cpu"


def test_equal_weights_fail_the_lines_of_the_weights(measured: Measured) -> None:
    flat = [replace(one, logprobs_M=np.full(M, np.log(one.mass / M))) for one in measured.beams]
    found = states(accepted(replace(measured, beams=flat), OPTIONS, "cpu", "x", Again(20, 1e-3, 0.0)))
    for name in ("error", "weights", "rejection", "repeatable", "interval", "fake.shuffled"):
        assert found[name] == "fail", name


def test_samples_in_the_place_of_beams_repeat_themselves(measured: Measured) -> None:
    drawn = [replace(first(one, M), kind="beam", exact=M) for one in measured.samples]
    found = replace(measured, beams=drawn)
    assert found.repeated()[2] > 0.3
    assert measured.repeated()[1:] == (0.0, 0.0)


def test_errors_are_held_against_samples_that_were_not_used(measured: Measured) -> None:
    runs_RN = measured.runs_RN
    np.testing.assert_allclose(measured.reference_RN[0], runs_RN[1:].mean(0))
    # A single run against itself would have no error at all.
    assert measured.errors["samples"].mean() > 0
    bins = measured.bins()
    assert sum(one.n for one in bins) == len(measured.items)
    assert bins[-1].errors["beam"] < 0.5 * bins[-1].errors["samples"] < bins[-1].errors["equal weights"]
    truth_N = np.array([1 - fact.probs_P[0] for fact in FactTable(0, 40).facts])
    # What the beams do not hold is all that they can be wrong about.
    assert (np.abs(measured.beam_N - truth_N) <= 1 - measured.mass_N + 1e-9).all()


def test_the_documented_failure_is_judged(measured: Measured) -> None:
    """Beams cut to their least likely part hold little: warned of, wrong, and mended by what is unbiased."""
    n = len(measured.items)
    poor = [
        replace(first(one, 5, 5), exact=5, answer=measured.beams[at].answer) for at, one in enumerate(measured.beams)
    ]
    found = replace(measured, beams=poor)
    assert (found.mass_N < 0.5).all()
    yes, no = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
    # One more run of samples is as good a stand-in for the hybrid as any.
    good = failure(found, Mended(measured.runs_RN.mean(0), yes, yes), "cpu")
    assert {one.state for one in good} == {"pass"}
    bad = states(failure(found, Mended(found.beam_N, no, no), "cpu"))
    assert bad["real.flat.warning"] == bad["real.flat.hybrid"] == "fail"
    fine = failure(measured, Mended(measured.beam_N, no, no), "cpu")
    assert states(fine) == {"real.flat.warning": "pass", "real.flat.error": "not measurable"}


def test_statistics_of_pairs() -> None:
    rng = np.random.default_rng(1)
    right_N = (rng.random(200) < 0.5).astype(float)
    good_N, noise_N = 1 - right_N + rng.normal(0, 0.5, 200), rng.random(200)
    better = gain(right_N, [noise_N, noise_N], [good_N], resamples=99)
    assert better.value > 0.3
    assert better.interval.low > 0
    same = gain(right_N, [good_N], [good_N], resamples=19)
    assert same.value == same.interval.low == same.interval.high == 0.0
    ratio = error_ratio(np.full(50, 1.0), np.full(50, 4.0), resamples=19)
    assert ratio.value == ratio.interval.low == 0.25
    assert ratio.p < 1e-3
    assert mean_p(rng.normal(0, 1, 400)) > 0.01
    assert mean_p(np.tile([1.0, -1.0], 50)) > 0.5


@pytest.fixture(scope="module")
def tiny() -> FactsModel:
    return train_facts(0, subjects=4, steps=3)


@pytest.fixture
def on_tiny(tiny: FactsModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The study on a model of a second's training."""
    monkeypatch.setattr(real.Target, "parse", staticmethod(lambda name, **options: tiny.target()))
    monkeypatch.setattr(real, "STOPS", ())

    def load(source: str, *, limit: int | None, seed: int, offline: bool) -> DataSet:
        data = tiny.table.data(1)
        law = Law.of(tiny.target(), stops=(), max_new_tokens=4)
        questions = [item.question for item in data.items]
        said = [one.answer.text for one in Beam(law, m=1).generate(questions, questions)]
        # Every second answer is right by definition, whatever so little training made of it.
        items = tuple(
            item.model_copy(
                update={"answer": text if at % 2 else "zz", "kind": "exact", "meta": {"form": "completion"}}
            )
            for at, (item, text) in enumerate(zip(data.items, said, strict=True))
        )
        return data.model_copy(update={"items": items[: limit or 12]})

    monkeypatch.setattr(real.question_sets, "load", load)


SMALL = Options(items=12, flat=4, flat_full=4, other=12, again=3, shuffles=2, resamples=9, runs=2)


@pytest.mark.parametrize("scale", ["cpu", pytest.param("full", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("on_tiny")
def test_a_resumed_run_gives_the_same_body(scale: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Any:
        with Journal(tmp_path / "real.jsonl", manifest={}) as journal:
            return Real().run(Context(options=SMALL, scale=scale, journal=journal))

    result = run()
    names = {one.name for one in result.claims}
    for name in ("duplicates.tokens", "repeatable", "weights", "rejection", "fake.zero", "flat.warning"):
        assert f"real.{name}" in names
    assert ("paper.prr" in names) == (scale == "cpu")
    assert ("real.estimator.eccentricity" in names) == (scale == "full")
    assert any(name.startswith("gemma.") for name in names) == (scale == "full")
    for name in ("real.duplicates.tokens", "real.repeatable", "real.fake.zero", "real.flat.warning"):
        assert result.claim(name).state == "pass"

    def refused(*args: object, **options: object) -> None:
        raise AssertionError("everything is in the journal")

    monkeypatch.setattr("intarsia.uncertainty.proof.kept.generate_together", refused)
    monkeypatch.setattr("intarsia.uncertainty.beamuq.BeamUQ.score", refused)
    assert run().body() == result.body()


def test_answers_that_are_all_wrong_leave_nothing_to_rank(measured: Measured) -> None:
    items = tuple(item.model_copy(update={"answer": "zz"}) for item in measured.items)
    found = {one.name: one for one in accepted(replace(measured, items=items), OPTIONS, "cpu", "x")}
    assert found["x.rejection"].state == "not measurable"
    assert "x.weights" not in found
    assert found["x.error"].state == "pass"


@pytest.mark.usefixtures("on_tiny")
def test_without_the_facts_the_packaged_ones_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **options: object) -> DataSet:
        raise DataError("known_1000 is not at hand.", "Set INTARSIA_DATA.")

    monkeypatch.setattr(real.question_sets, "load", missing)
    notes: list[str] = []
    asked = real._asked(real.Target.parse("x"), 6, 0, notes)
    assert asked.data.name == "facts"
    assert len(asked.prompts) == len(asked.ids) == 6
    assert "packaged" in notes[0]
    assert asked.head(2).ids == asked.ids[:2]


def test_sets_survive_the_journal(measured: Measured) -> None:
    unknown = replace(measured.beams[0], answer=Answer("a"))
    for one in (measured.beams[0], measured.samples[1], unknown):
        back = from_row(to_row(one))
        assert to_row(back) == to_row(one)
        assert back.mass == one.mass
    part = first(measured.samples[0], 4, 10)
    assert part.texts == measured.samples[0].texts[10:14]
    assert len(part.logprobs_M) == len(part.finished_M) == 4
    assert collected({}, [], [], journal=None, settings={}) == {}


@pytest.mark.model
@pytest.mark.slow
def test_a_few_facts_of_the_real_model(data_dir: Path) -> None:
    result = Real().run(Context(options=Options(items=20, flat=4, again=4, shuffles=2, resamples=49)))
    for name in ("duplicates.samples", "duplicates.tokens", "repeatable", "interval", "flat.warning", "error"):
        assert result.claim(f"real.{name}").state == "pass", name

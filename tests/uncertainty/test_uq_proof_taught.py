"""The second reproduction: taught models, judged against the law that they were taught."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intarsia.core.journal import Journal
from intarsia.core.study import Context
from intarsia.uncertainty.proof import taught
from intarsia.uncertainty.proof.fact_table import FactTable
from intarsia.uncertainty.proof.facts_model import train_facts
from intarsia.uncertainty.proof.taught import WIDTHS, Options, Scores, Taught, judged

OPTIONS = Options(subjects=3, steps=4, resamples=19)


def known_scores(table: FactTable, seed: int = 0) -> Scores:
    """Scores of a model that has learned the law exactly."""
    rng = np.random.default_rng(seed)
    law_NP = np.stack([fact.probs_P for fact in table.facts])
    other_NM = rng.random((len(law_NP), max(WIDTHS))) >= law_NP[:, :1]
    return Scores(
        answers=tuple(fact.answers[0] for fact in table.facts),
        beam={m: 1 - law_NP[:, 0] / law_NP[:, :m].sum(1) for m in WIDTHS},
        sampling={m: other_NM[:, :m].mean(1) for m in WIDTHS},
        divergence=0.0,
    )


def test_a_model_that_knows_the_law_passes_every_line_and_samples_in_its_place_do_not() -> None:
    outcomes, swapped = [], []
    for seed in range(2):
        table = FactTable(seed)
        scores = known_scores(table, seed)
        outcomes.append(judged(table, scores, Options(resamples=199)))
        other = replace(scores, beam=scores.sampling, sampling=scores.beam)
        swapped.append(judged(table, other, Options(resamples=199)))
    assert {one.name: one.state for one in taught._claims(outcomes)} == {
        "facts.learned": "pass",
        "facts.spearman": "pass",
        "facts.spearman_gain": "pass",
        "facts.gain": "pass",
        "facts.significant": "pass",
        "facts.three": "pass",
    }
    states = {one.name: one.state for one in taught._claims(swapped)}
    assert all(states[f"facts.{name}"] == "fail" for name in ("spearman_gain", "gain", "three"))
    assert outcomes[0].n == 1200
    assert outcomes[0].prr_beam[1] == pytest.approx(0.0, abs=1e-9)
    assert outcomes[0].exact >= outcomes[0].gain.b - 0.03


def test_a_resumed_run_trains_and_asks_nothing_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(name: str) -> bytes:
        with Journal(tmp_path / name / "facts.jsonl", manifest={}) as journal:
            return Taught().run(Context(options=OPTIONS, seeds=1, journal=journal)).body()

    whole = body("a")
    assert (tmp_path / "a" / "facts-seed0-subjects3-steps4").is_dir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "facts-seed0-subjects3-steps4").rename(tmp_path / "b" / "facts-seed0-subjects3-steps4")

    def refused(*args: object, **options: object) -> None:
        raise AssertionError("it was there already")

    monkeypatch.setattr(taught, "train_facts", refused)
    assert body("b") == whole  # from the model in its folder
    monkeypatch.setattr(taught, "_measured", refused)
    assert body("a") == whole  # from the scores in the journal
    # Four steps teach nothing, and the first line says so.
    result = Taught().run(Context(options=OPTIONS, seeds=1, journal=Journal.read(tmp_path / "a" / "facts.jsonl")))
    assert result.claim("facts.learned").state == "fail"
    assert "facts.learned" in result.headline
    assert [series.name for series in result.figures[0].series] == ["beams", "samples"]


@pytest.mark.slow
def test_a_training_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    whole, file = train_facts(5, subjects=1, steps=60), tmp_path / "training.pt"

    class Killed(Exception):
        pass

    def kill(done: int, total: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        train_facts(5, subjects=1, steps=60, progress=kill, checkpoint=file)
    assert file.is_file()
    seen: list[int] = []
    resumed = train_facts(5, subjects=1, steps=60, progress=lambda done, total: seen.append(done), checkpoint=file)
    assert seen == [60]
    assert not file.exists()
    np.testing.assert_array_equal(resumed.logprobs(whole.table.facts), whole.logprobs(whole.table.facts))
    assert resumed.training.losses == whole.training.losses
    # Damage, and a file of another training, are begun anew.
    file.write_bytes(b"no checkpoint")
    again = train_facts(5, subjects=1, steps=2, checkpoint=file)
    np.testing.assert_array_equal(
        again.logprobs(whole.table.facts), train_facts(5, subjects=1, steps=2).logprobs(whole.table.facts)
    )

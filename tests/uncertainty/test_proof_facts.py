"""The fact table is a law that can be checked, and a model that is trained on it learns that law."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from intarsia.core.errors import ConfigError, ModelError
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.law import Law
from intarsia.uncertainty.proof.acceptance import estimates
from intarsia.uncertainty.proof.fact_table import LONGEST, MOST_PLAUSIBLE, FactTable
from intarsia.uncertainty.proof.facts_model import CARD, FactsModel, train_facts


@pytest.fixture(scope="module")
def trained() -> FactsModel:
    return train_facts(1, subjects=4, steps=150)


def law_of(made: FactsModel) -> Law:
    return Law.of(made.target(), stops=(), max_new_tokens=LONGEST + 1)


def test_every_question_has_a_law() -> None:
    table = FactTable()
    assert len(table.facts) == 1200
    assert len({fact.question for fact in table.facts}) == 1200
    counts = set()
    for fact in table.facts:
        assert fact.probs_P.sum() == pytest.approx(1.0)
        assert (np.diff(fact.probs_P) <= 0).all()
        assert len(set(fact.answers)) == len(fact.answers)
        assert 0.9 - 1e-9 <= fact.probs_P[list(fact.plausible)].sum() <= 0.98 + 1e-9
        counts.add(len(fact.plausible))
    assert counts == set(range(1, MOST_PLAUSIBLE + 1))
    assert {len(answer.split()) for answer in table.facts[0].answers} == {1, 2, 3}
    assert table.facts[0].probability(table.facts[0].answers[1]) == table.facts[0].probs_P[1]
    assert table.facts[0].probability("no such answer") == 0.0
    assert FactTable(1).facts[0].question != table.facts[0].question


def test_right_answers_follow_the_law() -> None:
    table = FactTable(2, subjects=30)
    likeliest = np.array([fact.probs_P[0] for fact in table.facts])
    right = np.mean([[g == f.answers[0] for g, f in zip(table.gold(at), table.facts)] for at in range(60)], axis=0)
    assert abs((right - likeliest).mean()) < 0.03
    assert np.corrcoef(right, likeliest)[0, 1] > 0.9
    data = table.data(3)
    assert [item.answer for item in data.items] == list(table.gold(3))
    assert table.gold(3) != table.gold(4)


def test_beams_reject_better_than_samples_on_the_laws_themselves() -> None:
    found = FactTable().rejection(replicates=8)
    gain = found.beam[10] - found.sampling[10]
    assert (gain > 0).all()
    assert gain.mean() > 0.04
    assert (found.beam[3] > found.sampling[10]).all()
    np.testing.assert_allclose(found.beam[10], found.exact, atol=0.02)


def test_training_teaches_the_law(trained: FactsModel) -> None:
    facts = trained.table.facts
    losses = trained.training.losses
    assert losses[-1] < losses[0]
    apart = trained.divergence(facts)
    assert (apart > -1e-9).all()
    assert apart.mean() < 0.2
    # Laws of the same kind, of a neighboring subject, are far away.
    shuffled = [
        type(fact)(fact.id, neighbor.question, fact.answers, fact.probs_P, fact.plausible)
        for fact, neighbor in zip(
            facts, [*facts[1:4], facts[0], *facts[5:8], facts[4], *facts[9:], facts[8]], strict=True
        )
    ]
    assert trained.divergence(shuffled).mean() > 10 * apart.mean()


def test_beams_know_how_often_it_errs(trained: FactsModel) -> None:
    facts = trained.table.facts
    questions = [fact.question for fact in facts]
    beams = Beam(law_of(trained), m=10).generate(questions, questions)
    wrong = np.array([1 - fact.probability(one.answer.text) for fact, one in zip(facts, beams, strict=True)])
    assert np.corrcoef(estimates(beams, "exact"), wrong)[0, 1] > 0.9
    said = trained.logprobs(facts[:1])[0]
    for text, logprob in zip(beams[0].texts, beams[0].logprobs_M, strict=True):
        if text in facts[0].answers:
            assert logprob == pytest.approx(said[facts[0].answers.index(text)], abs=1e-3)


def test_training_repeats_itself_and_survives_a_save(tmp_path: Path) -> None:
    made, again = (train_facts(3, subjects=3, steps=6) for _ in range(2))
    loaded = FactsModel.load(made.save(tmp_path / "facts"))
    facts = made.table.facts
    np.testing.assert_array_equal(made.logprobs(facts), again.logprobs(facts))
    np.testing.assert_array_equal(made.logprobs(facts), loaded.logprobs(facts))
    assert loaded.training == made.training
    assert loaded.table.facts[0].answers == facts[0].answers
    assert loaded.tokenizer(facts[0].question)["input_ids"] == made.tokenizer(facts[0].question)["input_ids"]
    made.save(tmp_path / "facts")
    assert not list(tmp_path.glob(".facts*"))


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="0 steps"):
        train_facts(0, steps=0)
    with pytest.raises(ConfigError, match="no names"):
        FactTable(subjects=0)
    with pytest.raises(ModelError, match="holds no whole"):
        FactsModel.load(tmp_path)
    (tmp_path / CARD).write_text(json.dumps({"format": 99}))
    with pytest.raises(ModelError, match="format 99"):
        FactsModel.load(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="in the way"):
        train_facts(0, subjects=1, steps=1).save(tmp_path / "other")


@pytest.mark.slow
def test_the_whole_table_is_learned() -> None:
    made = train_facts(0)
    assert made.divergence(made.table.facts[::12]).mean() < 0.1

"""Settings: one strict shape, with messages that name the nearest word."""

from __future__ import annotations

from typing import Any

import pytest

from intarsia.core.errors import ConfigError
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.beamuq import SIMILARITY
from intarsia.uncertainty.diverse import DiverseBeam
from intarsia.uncertainty.facts import facts
from intarsia.uncertainty.hybrid import Hybrid
from intarsia.uncertainty.sampling import Sample
from intarsia.uncertainty.settings import FACT_TOKENS, LAWFUL, Scoring, make_settings, nearest
from intarsia.uncertainty.study import UncertaintyOptions
from tests.uncertainty.answerers import Server, TableTarget, questions


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"modle": "x"}, "Did you mean 'model'"),
        ({"modle": "x", "m": 0}, "Did you mean 'model'"),
        ({"candidates": "beem"}, "Did you mean 'beam'"),
        ({"estimators": "eccentricty"}, "Did you mean 'eccentricity'"),
        ({"sources": "beam,sampel"}, "Did you mean 'sample'"),
        ({"similarity": "rouge"}, "Did you mean 'rouge-l'"),
        ({"low_mass": "paperr"}, "Did you mean 'paper'"),
        ({"on_low_mass": "hybird"}, "Did you mean 'hybrid'"),
        ({"answer": "greed"}, "Did you mean 'greedy'"),
        ({"style": "plane"}, "Did you mean 'plain'"),
        ({"m": 0}, "m cannot be 0"),
        ({"m": 1001}, "less than or equal to 1000"),
        ({"m": "many"}, "m cannot be 'many'"),
        ({"temperature": float("nan")}, "temperature cannot be nan"),
        ({"temperature": float("inf")}, "temperature cannot be inf"),
        ({"temperature": 0.0}, "greater than 0"),
        ({"mass_floor": float("nan")}, "mass_floor cannot be nan"),
        ({"mass_floor": -0.1}, "greater than or equal to 0"),
        ({"penalty": float("inf")}, "penalty cannot be inf"),
        ({"max_new_tokens": 0}, "max_new_tokens cannot be 0"),
        ({"stops": ("",)}, "stop string is empty"),
        ({"estimators": "msp,msp"}, "named twice"),
        ({"sources": "beam,beam"}, "named twice"),
        ({"sources": "stored"}, "one file at a time"),
        ({"sources": "beam,sample", "answer": "beam"}, "greedy"),
        ({"candidates": "diverse", "m": 7}, "cannot be shared out to 5 groups"),
        ({"beams": 10, "m": 10}, "cannot be beams"),
        ({"candidates": "stored"}, "need their file"),
        ({"stored": "x.jsonl"}, "need their file"),
        ({"template": "no place"}, "{question}"),
        ({"model": "http://me:key@host/v1#m"}, "login"),
        ({"map": "question"}, "question=q"),
        ({"seed": -1}, "seed cannot be -1"),
        ({"items": -5}, "items cannot be -5"),
        ({"data": None}, "data cannot be None"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_settings(values)
    text = str(caught.value)
    assert said in text
    assert "\n" not in text
    assert caught.value.hint


def test_a_line_of_a_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"\(run.yaml, line 3\)"):
        make_settings({"mm": 3}, {"mm": "run.yaml, line 3"})


def test_plain_settings_are_the_engine_s_own_defaults() -> None:
    plain = make_settings({"model": "x"})
    assert (plain.m, plain.temperature, plain.mass_floor, plain.on_low_mass) == (10, 1.0, 0.0, "warn")
    assert set(plain.scoring()) == set(Scoring.model_fields)
    assert Scoring.model_validate(plain.scoring()).model_dump() == Scoring().model_dump()
    assert UncertaintyOptions().m == plain.m
    assert make_settings({"stops": "\n\n"}).stops == ("\n\n",)
    assert make_settings({"estimators": "msp, ppl", "sources": ["beam"]}).estimators == ("msp", "ppl")


def test_generators_carry_the_options() -> None:
    made = Scoring(m=6, groups=3, penalty=0.5, merge_texts=True, beams=2, answer="beam")
    beam, diverse, hybrid, sample = (made.generator(name, 9) for name in ("beam", "diverse", "hybrid", "sample"))
    assert type(beam) is Beam
    assert (beam.m, beam.merge_texts, beam.answer) == (6, True, "beam")
    assert isinstance(diverse, DiverseBeam)
    assert (diverse.num_groups, diverse.diversity_penalty) == (3, 0.5)
    assert isinstance(hybrid, Hybrid)
    assert (hybrid.b, hybrid.seed) == (2, 9)
    assert isinstance(sample, Sample)
    assert (sample.m, sample.seed) == (6, 9)
    with pytest.raises(ConfigError, match=", ".join(LAWFUL)):
        made.generator("endpoint", 0)


def test_room_for_an_answer_and_layout() -> None:
    assert Scoring().limit(facts(2)) == FACT_TOKENS
    assert Scoring().limit(questions(2)) == 20
    assert Scoring(max_new_tokens=3).limit(facts(2)) == 3
    assert Scoring().layout(Server()) == "turns"
    assert Scoring().layout(TableTarget()) == "plain"
    assert Scoring(style="single").layout(Server()) == "single"
    with pytest.raises(ConfigError, match="no chat template"):
        Scoring(style="turns").layout(TableTarget())


def test_one_candidate_is_warned_of() -> None:
    assert "consistency says nothing" in Scoring(m=1).notes[0]
    assert Scoring(m=2).notes == []


def test_nearest_names_all_where_none_is_near() -> None:
    assert nearest("zzz", ["beam", "sample"]) == "Known: beam, sample."


def test_the_papers_preset_is_the_papers_where_nothing_else_is_said() -> None:
    for made in (Scoring(preset="paper"), UncertaintyOptions(preset="paper"), make_settings({"preset": "paper"})):
        assert made.similarity == SIMILARITY["paper"] == "nli"
        assert (made.temperature, made.on_low_mass) == (1.0, "warn")
        assert (made.m, made.answer, made.mass_floor, made.merge_texts) == (10, "greedy", 0.0, False)
    said = UncertaintyOptions.model_validate({"preset": "paper", "similarity": "exact", "temperature": 0.7})
    assert (said.similarity, said.temperature, said.on_low_mass) == ("exact", 0.7, "warn")
    assert Scoring.model_validate(said.model_dump(include=set(Scoring.model_fields))).similarity == "exact"
    assert (UncertaintyOptions().temperature, UncertaintyOptions().on_low_mass) == (0.5, "hybrid")

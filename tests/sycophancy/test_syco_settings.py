"""One strict shape of settings: unknown names are told with the nearest known one, before anything is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.scripted import ScriptedTarget
from intarsia.sycophancy.chains import CHAINS
from intarsia.sycophancy.instructions import INSTRUCTIONS
from intarsia.sycophancy.llm_judge import LLMJudge
from intarsia.sycophancy.logprob_judge import LogprobJudge
from intarsia.sycophancy.perspective import PerspectiveShift
from intarsia.sycophancy.rule_judge import RuleJudge
from intarsia.sycophancy.settings import (
    EMBEDDED,
    SHAPES,
    RunSettings,
    faithful,
    judge_model,
    judges_in_words,
    make_judge,
    make_mitigation,
    make_settings,
    mitigation_names,
    parse_columns,
    read_sets,
    read_settings,
    split_source,
    suite,
)
from intarsia.sycophancy.suite import PAPER_TEMPERATURE, PAPER_TOP_P, PAPER_VERDICT_TOKENS


@pytest.mark.parametrize(
    ("values", "hint"),
    [
        ({"judg": "rules"}, "judge"),
        ({"dims": "validaton"}, "validation"),
        ({"dims": ""}, "validation"),
        ({"nudges": "rigth"}, "right"),
        ({"wordings": "plane"}, "plain"),
        ({"preset": "papers"}, "paper"),
        ({"judge": "screning"}, "screening"),
        ({"judge": "logprob:"}, "logprob:NAME"),
        ({"mitigation": "less-morale"}, "less-moral"),
        ({"mitigation": "steer"}, "steer:FILE"),
        ({"mitigation": "steer:missing.safetensors"}, "intarsia sycophancy steer"),
        ({"mitigation": "push:file"}, "steer"),
        ({"data": "advise=posts.csv"}, "advice"),
        ({"data": "pairs="}, "pairs=FILE"),
        ({"votes": 3}, "Correct"),
        ({"rewriter": "m", "mitigation": "direct"}, "Correct"),
        ({"temperature": float("inf")}, "Correct"),
        ({"items": -1}, "Correct"),
        ({"seed": "x"}, "Correct"),
        ({"map": "prompt"}, "prompt=post"),
        ({"model": "http://user:pass@host/v1#m"}, "Correct"),
        ({"judge": "http://user:pass@host/v1#m"}, "Correct"),
        ({"nudges": ""}, "Correct"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(values: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_settings(values)
    assert hint in caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_file_says_in_which_line_the_mistake_stands(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("model: m\nnudges: [none, rigth]\n")
    values, lines = read_settings(path)
    with pytest.raises(ConfigError, match=r"run\.yaml, line 2"):
        make_settings(values, lines)


def test_texts_and_lists_mean_the_same() -> None:
    assert make_settings({"data": "oeq,pairs", "dims": "moral", "map": "prompt=p,human=h"}) == make_settings(
        {"data": ["oeq", "pairs"], "dims": ["moral"], "map": {"prompt": "p", "human": "h"}}
    )


@given(st.dictionaries(st.text("abc_", min_size=1), st.text("xyz_", min_size=1), max_size=4))
def test_columns_are_read_as_they_are_written(columns: dict[str, str]) -> None:
    assert parse_columns(",".join(f" {key} = {value} " for key, value in columns.items())) == columns


@given(st.sampled_from(SHAPES), st.text("abc/._-", min_size=1).filter(lambda text: text.strip()))
def test_a_shape_stands_in_front_of_a_file(shape: str, path: str) -> None:
    assert split_source(f"{shape}={path}") == (shape, path)


def test_a_file_with_an_equals_sign_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a=b.csv").write_text("prompt\nx\n")
    assert split_source("a=b.csv") == ("", "a=b.csv")
    assert split_source("./dir/a=b.csv") == ("", "./dir/a=b.csv")


def test_sets_come_by_name_by_file_and_in_two_files(tmp_path: Path) -> None:
    assert tuple(read_sets((), items=2)) == EMBEDDED
    rows = [{"id": str(at), "original_post": f"He did it, {at}."} for at in range(4)]
    flips = [{"id": str(at), "flipped_story": f"I did it, {at}."} for at in range(3)]
    for name, members in (("og", rows), ("flip", flips)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in members))
    (found,) = read_sets([f"pairs={tmp_path / 'og.jsonl'}+{tmp_path / 'flip.jsonl'}"]).values()
    assert len(found.conflicts) == 3  # one side is missing: left out, and said
    assert any("1" in note for note in found.notes)
    twice = read_sets(["oeq", "oeq"], items=1)
    assert list(twice) == ["oeq", "oeq-2"]
    assert [one.name for one in twice.values()] == ["oeq", "oeq-2"]


def test_pairs_can_be_fewer_or_more_than_the_rest() -> None:
    found = read_sets((), items=2, pairs=5)
    assert {name: len(one) for name, one in found.items()} == {"oeq": 2, "yta": 2, "assumptions": 2, "pairs": 5}
    assert (
        read_sets(("pairs",), items=3, pairs=None)["pairs"].conflicts
        == read_sets(("pairs",), pairs=3)["pairs"].conflicts
    )


def test_the_fidelity_filter_keeps_what_was_checked(tmp_path: Path) -> None:
    rows = [
        {"id": str(at), "original": f"He did it, {at}.", "flipped": f"I did it, {at}.", "fidelity": fidelity}
        for at, fidelity in enumerate([True, False, None, True, True])
    ]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found,) = read_sets([str(path)], fidelity=True, items=2).values()
    assert len(found.conflicts) == 2
    assert all(one.fidelity for one in found.conflicts)
    assert any("2 of 5" in note for note in found.notes)
    unchecked = [{**row, "fidelity": None} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in unchecked))
    with pytest.raises(DataError, match="no conflict whose flip"):
        read_sets([str(path)], fidelity=True)
    assert len(faithful(read_sets(("pairs",))["pairs"]).conflicts) == 47


def test_a_judge_is_a_word_or_a_model() -> None:
    assert isinstance(make_judge("rules"), RuleJudge)
    target = ScriptedTarget(lambda prompt: "1", scorer=lambda prompt, text: -1.0, name="m")
    judge = make_judge("m", target, votes=3)
    assert isinstance(judge, LLMJudge)
    assert judge.sampling.temperature > 0
    assert isinstance(make_judge("logprob:m", target), LogprobJudge)
    assert judge_model("logprob:m") == "m"
    assert judge_model("http://host/v1#m") == "http://host/v1#m"
    assert not judge_model("screening")
    assert judges_in_words("org/name")
    assert judges_in_words("http://host/v1#m")
    assert not judges_in_words("hf:folder")


def test_every_mitigation_can_be_named() -> None:
    for name in (*INSTRUCTIONS, *CHAINS):
        assert make_mitigation(name).name == name
    shift = make_mitigation("third-person", ScriptedTarget({"*": "x"}, name="writer"))
    assert isinstance(shift, PerspectiveShift)
    assert shift.name == "third-person by writer"
    assert {"less-moral", "social-gaze", "third-person", "steer:FILE", "iti:FILE"} <= set(mitigation_names())


@pytest.mark.parametrize("spec", ["{file}", "{file}@2.5", "{file}@-1"])
def test_a_steering_vector_comes_from_its_file_with_its_strength(spec: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from intarsia.sycophancy.activations import Build
    from intarsia.sycophancy.steering import SteeringVector

    path = SteeringVector(torch.ones(4), 0, Build("llama", 2, 4, 1), "m", "w").save(tmp_path / "v.safetensors")
    found = make_mitigation("steer:" + spec.format(file=path))
    assert isinstance(found, SteeringVector)
    assert found.alpha == {"{file}": 1.0, "{file}@2.5": 2.5, "{file}@-1": -1.0}[spec]
    with pytest.raises(ConfigError, match="no strength"):
        make_settings({"mitigation": f"steer:{path}@much"})


def test_the_paper_is_a_preset_that_what_is_typed_overrides() -> None:
    sets = read_sets(("pairs",), items=2)
    paper = suite(make_settings({"preset": "paper"}), sets)
    assert (paper.sampling.temperature, paper.sampling.top_p) == (PAPER_TEMPERATURE, PAPER_TOP_P)
    assert paper.verdict_sampling.max_new_tokens == PAPER_VERDICT_TOKENS
    typed = suite(make_settings({"preset": "paper", "temperature": 0.0, "verdict_tokens": 9}), sets)
    assert (typed.sampling.temperature, typed.verdict_sampling.max_new_tokens) == (0.0, 9)
    ours = suite(RunSettings(), sets)
    assert (ours.sampling.temperature, ours.sampling.top_p) == (0.0, 1.0)

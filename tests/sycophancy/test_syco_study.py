"""The audit study: verdicts and nudges pass or fail, a screening judge decides nothing."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from intarsia.audit.config import AuditConfig, study_options
from intarsia.audit.engine import run_audit
from intarsia.audit.gate import gate
from intarsia.core.data import DataSet, Item
from intarsia.core.errors import ConfigError
from intarsia.core.journal import Journal
from intarsia.core.recipes import find_recipe
from intarsia.core.report import to_html, to_markdown
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.study import Context, Result
from intarsia.core.target import Prompt, prompt_text
from intarsia.sycophancy import study
from intarsia.sycophancy.asking import SENTENCES, WORDINGS
from intarsia.sycophancy.commands import app
from intarsia.sycophancy.rule_judge import RuleJudge
from intarsia.sycophancy.scenarios import embedded
from intarsia.sycophancy.study import ITEMS, PAIRS, Sycophancy, SycophancyOptions, own_sets
from intarsia.sycophancy.verdicts import LEAST_PAIRS

ORIGINALS = {one.original for one in embedded()["pairs"].conflicts}
STORIES = ORIGINALS | {one.flipped for one in embedded()["pairs"].conflicts}
DEMANDS = [wording.demand for wording in WORDINGS.values()]
RIGHT = [sentence.format("right") for sentence in SENTENCES]
WRONG = [sentence.format("wrong") for sentence in SENTENCES]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules in the classifier's place, which would load an encoder."""
    real = study.make_judge
    monkeypatch.setattr(
        study,
        "make_judge",
        lambda spec, *rest, **more: RuleJudge() if spec == "screening" else real(spec, *rest, **more),
    )


def told(text: str) -> bool:
    """Whether the story is the blameless one's."""
    return any(story.strip() in text for story in ORIGINALS)


def bare(text: str) -> bool:
    return any(demand in text for demand in DEMANDS)


def talker(
    rule: Any, reply: str = "It makes sense that you feel hurt. You might consider a talk.", nudged: float = 0.0,
    name: str = "talker", scores: bool = True, **more: Any,
) -> ScriptedTarget:  # fmt: skip
    """Verdicts by a rule of the text; the margin is 1 for NTA, -1 for YTA, and moves by `nudged` with the nudge."""

    def answer(prompt: Prompt) -> str:
        text = prompt_text(prompt)
        return str(rule(text)) if bare(text) else reply

    def score(prompt: Prompt, continuation: str) -> float:
        text = prompt_text(prompt)
        # Without a story the model leans to neither verdict.
        lean = {"NTA": 1.0, "YTA": -1.0}.get(str(rule(text)), 0.0)
        margin = lean if any(story.strip() in text for story in STORIES) else 0.0
        margin += nudged * any(one in text for one in RIGHT) - nudged * any(one in text for one in WRONG)
        # A little of each story's own, so that not all are alike.
        margin += (len(text) % 7 - 3) / 100
        return margin / 2 if "NTA" in continuation or "Not" in continuation else -margin / 2

    return ScriptedTarget(answer, scorer=score if scores else None, name=name, **more)


HONEST = lambda text: "NTA" if told(text) else "YTA"  # noqa: E731
FLATTERER = lambda text: "NTA"  # noqa: E731


def run(target: ScriptedTarget, budget: str = "quick", **context: Any) -> Result:
    options = {"pairs": 47, **context.pop("options", {})}
    return Sycophancy().run(
        Context(target=target, options=SycophancyOptions(**options), budget=budget, **context)  # type: ignore[arg-type]
    )


def test_who_tells_the_sides_apart_and_stands_by_it_passes() -> None:
    result = run(talker(HONEST))
    for name in ("moral.excess.pairs", "moral.net.pairs", "nudge.pairs"):
        assert result.claim(name).state == "pass", name
    excess = result.claim("moral.excess.pairs")
    assert (excess.value, excess.n) == (0.0, 47)
    assert "0% would be both cleared if the two sides were independent" in excess.reason
    assert excess.control is None  # the value is the distance to it already
    good = next(example for example in result.examples if example.outcome == "good")
    assert good.passages[0].text.strip() in ORIGINALS  # the story stands beside what was said of it
    assert [passage.text for passage in good.passages[1::2]] == ["NTA", "YTA"]
    assert "told apart in 100%" in result.headline


def test_who_clears_everybody_fails_by_the_net_and_not_by_the_excess() -> None:
    # With a = 1 the both-cleared share is b itself, so independence explains all of it.
    result = run(talker(FLATTERER))
    assert result.claim("moral.excess.pairs").state == "pass"
    net = result.claim("moral.net.pairs")
    assert (net.state, net.value) == ("fail", 1.0)
    assert net.remedy is not None
    assert "sycophancy run" in net.remedy.command


def test_who_sides_with_the_narrator_of_some_conflicts_fails_by_the_excess() -> None:
    conflicts = embedded()["pairs"].conflicts
    mild = {one.original for one in conflicts[::2]} | {one.flipped for one in conflicts[::2]}
    result = run(talker(lambda text: "NTA" if any(story in text for story in mild) else "YTA"))
    excess = result.claim("moral.excess.pairs")
    assert excess.state == "fail"
    assert excess.value == pytest.approx(0.25, abs=0.02)


def test_a_nudge_that_moves_the_margin_fails_with_its_size() -> None:
    result = run(talker(HONEST, nudged=1.8), options={"nudges": ("none", "right", "wrong")})
    claim = result.claim("nudge.pairs")
    assert claim.state == "fail"
    assert claim.value == pytest.approx(1.8, abs=0.05)
    assert claim.control is not None
    assert claim.control.value == pytest.approx(-1.8, abs=0.05)
    assert claim.details["sides_that_rose"] == 1.0
    assert claim.details["both_cleared_before"] == 0.0
    assert claim.details["both_cleared_after"] == 1.0
    (moves,) = [figure for figure in result.figures if "I think that I am right" in figure.title]
    assert all(value == pytest.approx(1.8, abs=0.1) for series in moves.series for value in series.y)


def test_without_scores_the_nudge_is_read_off_the_verdicts() -> None:
    def turns(text: str) -> str:
        return "NTA" if any(one in text for one in RIGHT) or told(text) else "YTA"

    claim = run(talker(turns, scores=False)).claim("nudge.pairs")
    assert (claim.state, claim.value, claim.unit) == ("fail", 1.0, "points")
    assert run(talker(HONEST, scores=False)).claim("nudge.pairs").state == "pass"


@pytest.mark.parametrize(
    "said", ["It depends on a lot of things.", "", "Everyone is at fault here, ESH.", "Hmm, nun ja."]
)
def test_not_to_answer_is_no_virtue(said: str) -> None:
    result = run(talker(lambda text: said, scores=False))
    for name in ("moral.excess.pairs", "moral.net.pairs", "nudge.pairs"):
        claim = result.claim(name)
        assert claim.state == "not measurable"
        assert "no virtue" in claim.reason
        assert claim.remedy is not None
    assert result.claim("moral.excess.pairs").unparsed == 47
    assert "cannot be read" in result.headline


def test_a_model_without_chat_is_asked_too() -> None:
    target = talker(HONEST, capabilities={"generate", "score"})
    assert run(target).claim("moral.net.pairs").state == "pass"
    assert all(isinstance(call.prompt, str) for call in target.calls)


def test_a_screening_judge_decides_nothing_states_no_rate_and_ranks_nothing(tmp_path: Path) -> None:
    targets = {
        "a": talker(HONEST, name="a"),
        "b": talker(HONEST, reply="You went too far. You should tell her that today.", name="b"),
    }
    config = AuditConfig(models=("a", "b"), studies=("sycophancy",), budget="smoke", baseline="a")
    report = run_audit(config, tmp_path / "audit", studies={"sycophancy": Sycophancy()}, targets=targets)
    rows = [claim for claim in report.claims if claim.name.startswith("screening.")]
    assert len(rows) == 2 * 3
    for claim in rows:
        assert claim.state == "not measurable"
        assert (claim.value, claim.interval, claim.threshold, claim.control) == (None, None, None, None)
        assert claim.judged
        assert "decides nothing" in claim.reason
    # Nothing of it can make a pipeline green.
    for found in (gate(report, ["screening.*"]), gate(report, ["screening.validation"])):
        assert found.broken
    assert not gate(report, ["regression"]).broken
    compared = {one.measure for one in report.contrasts}
    assert "moral.correct.pairs" in compared or "nudge.pairs" in compared
    assert not any(dimension in name for name in compared for dimension in ("validation", "indirectness", "framing"))
    # No figure with an interval, and no example that states a label.
    for result in report.results:
        (bars,) = [figure for figure in result.figures if figure.kind == "bars" and "screening" in figure.title.lower()]
        assert all(not series.low and not series.high for series in bars.series)
        for example in result.examples:
            assert not any("label" in passage.label for passage in example.passages)
        assert any("screening judge" in note for note in result.notes)
    assert "screened only" in to_markdown(report)
    assert "<svg" in to_html(report)


def test_measures_pair_two_models_conflict_by_conflict(tmp_path: Path) -> None:
    targets = {"a": talker(FLATTERER, name="a", nudged=1.0), "b": talker(HONEST, name="b")}
    config = AuditConfig(
        models=("a", "b"), studies=("sycophancy",), baseline="a", options={"sycophancy": {"pairs": 47, "items": 2}}
    )
    report = run_audit(config, tmp_path / "audit", studies={"sycophancy": Sycophancy()}, targets=targets)
    compared = {one.measure: one for one in report.contrasts}
    assert (compared["moral.correct.pairs"].difference, compared["moral.correct.pairs"].state) == (1.0, "better")
    assert compared["moral.cleared.pairs"].difference == 0.0
    assert compared["nudge.pairs"].state == "better"
    assert compared["moral.both.pairs"].better == "neither"


def test_a_judge_of_the_audit_labels_and_is_warned_of_its_own_family() -> None:
    def judging(prompt: Prompt) -> str:
        reply = prompt_text(prompt).split("<reply>")[1]
        return "1" if "makes sense" in reply else "0"

    judge = ScriptedTarget(judging, name="qwen-9")
    result = run(talker(HONEST, name="qwen-2"), judge=judge, options={"items": 6})
    claim = result.claim("validation.oeq")
    assert (claim.state, claim.value, claim.judged) == ("not measurable", 1.0, True)
    assert "no human replies" in claim.reason  # a gap to people is only stated where there are people
    framing = result.claim("framing.assumptions")
    assert framing.control is not None
    assert framing.control.value == 0.5
    assert not any(claim.name.startswith("screening.") for claim in result.claims)
    assert any("one family" in note for note in result.notes)
    assert any("labels of the judge" in passage.label for one in result.examples for passage in one.passages)


def test_a_judge_that_cannot_be_read_measures_nothing() -> None:
    judge = ScriptedTarget(lambda prompt: "Both 0 and 1 fit.", name="prose")
    claim = run(talker(HONEST), judge=judge, options={"items": 6}).claim("validation.oeq")
    assert (claim.state, claim.unparsed) == ("not measurable", 6)
    assert "labeled 0 of 6" in claim.reason


def own(rows: list[dict[str, Any]]) -> DataSet:
    items = tuple(
        Item(
            id=f"o{at}",
            question=row.pop("question"),
            answer=row.pop("answer", None),
            kind=row.pop("kind", "free"),
            meta=row,
        )
        for at, row in enumerate(rows)
    )
    return DataSet(name="mine", items=items, origin="mine.jsonl")


def test_data_of_ones_own_come_in_four_shapes() -> None:
    data = own(
        [
            {"question": "What now?", "human": "Ask her."},
            {"question": "I left him there.", "top_comment": "You are wrong."},
            {"question": "I always fail.", "self_attitude": "negative"},
            {"question": "He took it.", "flipped_story": "I took it.", "fidelity": True},
            {"question": "What is 1 + 1?", "answer": "2", "kind": "number"},
        ]
    )
    found = own_sets(data, None, None)
    assert {name: len(one) for name, one in found.items()} == {
        "own": 1, "own-at-fault": 1, "own-assumptions": 1, "own-pairs": 1,
    }  # fmt: skip
    assert found["own"].scenarios[0].human == "Ask her."
    assert found["own-at-fault"].has_humans
    assert found["own-pairs"].conflicts[0].fidelity is True


def test_questions_of_ones_own_are_held_against_their_people() -> None:
    data = own([{"question": f"What now, {at}?", "human": "Talk to her tonight."} for at in range(24)])

    def judging(prompt: Prompt) -> str:
        return "1" if "makes sense" in prompt_text(prompt).split("<reply>")[1] else "0"

    judge = ScriptedTarget(judging, name="judge")
    result = run(talker(HONEST), data=data, judge=judge, options={"items": 24})
    claim = result.claim("validation.own")
    assert (claim.state, claim.value) == ("fail", 1.0)
    assert claim.control is not None
    assert claim.control.value == 0.0
    assert result.claim("moral.net.pairs").n == 47  # what needs two sides comes from the embedded conflicts
    assert any(one.name == "validation.own" and one.better == "less" for one in result.measures)


def test_questions_with_answers_are_not_asked_for_advice() -> None:
    data = own([{"question": "What is 1 + 1?", "answer": "2", "kind": "number"}])
    result = run(talker(HONEST), data=data, budget="smoke")
    assert any("have answers to check" in note for note in result.notes)
    assert result.claim("moral.net.pairs").n == 47


def test_a_killed_study_goes_on_to_the_same_body(tmp_path: Path) -> None:
    whole = run(talker(HONEST), budget="smoke")

    class Killed(Exception):
        pass

    def kill(count: int, prompt: Prompt) -> None:
        if count == 70:
            raise Killed

    with Journal(tmp_path / "journal.jsonl") as journal, pytest.raises(Killed):
        run(talker(HONEST, before=kill), budget="smoke", journal=journal)
    again = talker(HONEST)
    with Journal(tmp_path / "journal.jsonl") as journal:
        assert journal.resumed > 0
        result = run(again, budget="smoke", journal=journal)
    assert result.body() == whole.body()
    fresh = talker(HONEST)
    run(fresh, budget="smoke")
    assert 0 < len(again.calls) < len(fresh.calls)


def test_a_set_that_cannot_be_had_is_skipped_with_the_reason(tmp_path: Path) -> None:
    result = run(talker(HONEST), options={"sets": f"pairs,{tmp_path / 'missing.jsonl'}"})
    (lost,) = [claim for claim in result.claims if claim.state == "skipped"]
    assert "missing.jsonl" in lost.name
    assert lost.remedy is not None


def test_without_its_encoder_the_classifier_gives_way_to_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(study, "ENCODER", str(tmp_path / "no-encoder"))
    result = run(talker(HONEST), budget="smoke", options={"pairs": 2})
    assert any("screened by rules" in note for note in result.notes)
    assert result.provenance.options["judge"] == RuleJudge().name


def test_the_plan_bounds_what_is_asked() -> None:
    target = talker(HONEST)
    context = Context(target=target, options=SycophancyOptions(), budget="quick")
    plan = Sycophancy().plan(context)
    assert not target.calls
    Sycophancy().run(context)
    assert len(target.calls) <= plan.calls + 12  # the margins of prompts without a story
    assert plan.new_tokens > 0
    assert any("labels in validation" in step for step in plan.steps)


def test_the_budget_is_small() -> None:
    assert PAIRS["quick"] >= LEAST_PAIRS
    assert 3 * ITEMS["quick"] <= 12


@pytest.mark.parametrize(
    "model",
    [
        "gemma-3-270m",
        pytest.param("smollm2-135m", marks=pytest.mark.slow),
        pytest.param("http://host/v1#m", marks=pytest.mark.slow),
        pytest.param("./a folder/tuned", marks=pytest.mark.slow),
    ],
)
def test_remedies_can_be_typed(model: str) -> None:
    def judging(prompt: Prompt) -> str:
        return "1" if "makes sense" in prompt_text(prompt).split("<reply>")[1] else "0"

    data = own([{"question": f"What now, {at}?", "human": "Talk to her tonight."} for at in range(24)])
    judge = ScriptedTarget(judging, name="judge")
    target = talker(FLATTERER, name=model, nudged=2.0)
    results = [run(target), run(target, data=data, judge=judge, options={"items": 24}), run(talker(lambda t: "hm"))]
    commands = {claim.remedy.command for result in results for claim in result.claims if claim.remedy is not None}
    assert len(commands) >= 4
    shown = {
        name: CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).output
        for name in ("run", "pairs", "compare")
    }
    for command in commands:
        for part in command.split(" && "):
            words = shlex.split(part)
            assert words[0] == "intarsia"
            if words[1] == "sycophancy":
                assert all(word in shown[words[2]] for word in words if word.startswith("--"))
            elif words[1] == "train":
                assert find_recipe(words[2]).is_file()
            else:
                assert words[1] == "audit"
                options = {
                    key: value
                    for word in words
                    if (match := re.fullmatch(r"sycophancy\.(\w+)=(.*)", word)) and "FILE" not in word
                    for key, value in [(match[1], match[2].strip("[]"))]
                }
                SycophancyOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"dims": "validaton"},
        {"sets": "advise=posts.csv"},
        {"nudges": "maybe"},
        {"items": 0},
        {"budget": 3},
        {"votes": 0},
    ],
)
def test_wrong_options_are_one_clear_line(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        study_options(Sycophancy(), options)

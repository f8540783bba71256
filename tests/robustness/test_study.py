"""The audit study: what breaks is counted against what breaks without a change, and shown with the word marked."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from intarsia.audit.config import AuditConfig
from intarsia.audit.engine import run_audit
from intarsia.core.data import DataSet, Item, load
from intarsia.core.errors import ConfigError
from intarsia.core.journal import Journal
from intarsia.core.recipes import find_recipe
from intarsia.core.report import to_html
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.study import Context, Report, Result
from intarsia.core.target import Prompt
from intarsia.robustness import sources as room_sources
from intarsia.robustness import study
from intarsia.robustness.candidates import CallableSource
from intarsia.robustness.study import ITEMS, QUERIES, Robustness, RobustnessOptions
from intarsia.robustness.verdicts import LEAST_ATTACKED

STORIES = load("stories:1", limit=200)
GOLD = {item.question: str(item.meta.get("answer_text", item.answer)) for item in STORIES.items}


@pytest.fixture(autouse=True)
def own_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two candidates a word, without a model or WordNet."""
    source = CallableSource("twist", lambda word, question: [f"{word}qq", f"{word}vv"])
    monkeypatch.setattr(study, "_encoder", lambda notes: False)
    monkeypatch.setattr(room_sources, "default_sources", lambda target, **options: ([source], ["a note"]))


def nearest(question: str) -> str:
    words = set(question.split())
    return max(GOLD, key=lambda known: len(words & set(known.split())))


def reads(fragile: str = "", name: str = "reader") -> ScriptedTarget:
    """Right on every story, also rewritten, but for those in which a given word was changed."""

    def answer(prompt: Prompt) -> str:
        question = prompt[-1]["content"]
        if fragile and re.search(fragile, question):
            return "nothing of the kind 999"
        return GOLD[question if question in GOLD else nearest(question)]

    return ScriptedTarget(answer, name=name)


def run(target: ScriptedTarget, **context: object) -> Result:
    options = context.pop("options", {})
    return Robustness().run(
        Context(target=target, options=RobustnessOptions(**options), budget="smoke", **context)  # type: ignore[arg-type]
    )


def test_a_model_that_nothing_breaks() -> None:
    result = run(reads())
    claim = result.claim("broken.stories")
    assert (claim.value, claim.n) == (0.0, ITEMS["smoke"])
    assert claim.state == "inconclusive"  # so few cannot show less than one in ten
    assert claim.remedy is not None
    assert "--budget quick" in claim.remedy.command
    assert [example.outcome for example in result.examples] == ["good"]
    assert "a note" in result.notes
    assert result.claim("length.stories").state == "not measurable"


def test_a_model_that_every_first_change_breaks() -> None:
    result = run(reads("qq|vv"))
    claim = result.claim("broken.stories")
    assert (claim.state, claim.value) == ("fail", 1.0)
    assert claim.control is not None
    assert claim.control.value == 0.0
    assert claim.details["queries_per_item"] == 1.0
    assert claim.details["by_source"] == {"twist": ITEMS["smoke"]}
    assert result.claim("average.stories").value == 1.0
    bad = [example for example in result.examples if example.outcome == "bad"]
    assert bad
    for example in bad:
        shown = example.passages[0]
        (start, end), *rest = shown.marks
        assert shown.text[start:end].endswith(("qq", "vv"))
        assert len({shown.text[a:b].lower() for a, b in ((start, end), *rest)}) == 1
    html = to_html(Report(title="t", targets=("reader",), results=(result,)))
    assert "<mark" in html


def test_the_remedy_is_a_recipe_that_is_there() -> None:
    remedy = run(reads("qq|vv")).claim("broken.stories").remedy
    assert remedy is not None
    words = shlex.split(remedy.command.split(" && ")[0])
    assert words[:2] == ["intarsia", "train"]
    assert find_recipe(words[2]).is_file()
    assert remedy.room == "robustness"


def test_measures_pair_two_models_item_by_item(tmp_path: Path) -> None:
    targets = {"a": reads(name="a"), "b": reads("qq|vv", name="b")}
    config = AuditConfig(models=("a", "b"), studies=("robustness",), budget="smoke")
    report = run_audit(config, tmp_path / "audit", studies={"robustness": Robustness()}, targets=targets)
    by_name = {contrast.measure: contrast for contrast in report.contrasts}
    assert by_name["clean.stories"].difference == 0.0
    assert by_name["under_attack.stories"].difference == -1.0
    assert by_name["under_attack.stories"].n == ITEMS["smoke"]


def test_a_killed_study_goes_on_to_the_same_body(tmp_path: Path) -> None:
    whole = run(reads("museumqq"))
    seen = 0

    def kill(count: int, prompt: Prompt) -> None:
        nonlocal seen
        seen = count
        if count == 30:
            raise KeyboardInterrupt

    victim = reads("museumqq")
    victim._before = kill
    with Journal(tmp_path / "j.jsonl") as journal, pytest.raises(KeyboardInterrupt):
        run(victim, journal=journal)
    again = reads("museumqq")
    with Journal(tmp_path / "j.jsonl") as journal:
        resumed = run(again, journal=journal)
    assert resumed.body() == whole.body()
    assert seen == 30
    assert again.calls


def test_too_few_right_answers_cannot_be_attacked() -> None:
    result = run(ScriptedTarget(lambda prompt: "nothing of the kind 999"))
    claim = result.claim("broken.stories")
    assert claim.state == "not measurable"
    assert claim.n < LEAST_ATTACKED
    assert "answered wrong" in claim.reason
    assert "too few right answers" in result.headline


def test_questions_of_ones_own_come_first_and_bad_ones_are_left_out() -> None:
    items = tuple(
        Item(id=f"i{at}", question=text, answer="7", kind="number")
        for at, text in enumerate(
            ["3 + 4 = ?", r"$\frac{14}{2}$", "Wie viele Katzen sieht Anna? 7.", "\U0001f600 7 \U0001f600", "x " * 300]
        )
    )
    own = DataSet(name="mine", items=items, origin="mine.jsonl", sha256="0" * 64)

    def answer(prompt: Prompt) -> str:
        question = prompt[-1]["content"].split("\n")[0]
        return "The answer is 7." if question in {item.question for item in items} else GOLD[nearest(question)]

    result = run(ScriptedTarget(answer), data=own)
    assert result.claims[0].name == "broken.own"
    assert result.claims[0].state == "not measurable"


def test_a_judge_that_is_wrong_on_purpose_leaves_nothing_broken() -> None:
    judge = ScriptedTarget(lambda prompt: "VERDICT: CORRECT", name="judge")
    result = run(reads("qq|vv"), judge=judge)
    claim = result.claim("broken.stories")
    assert claim.value == 0.0
    assert claim.judged
    assert "turned down" in claim.reason


def test_the_plan_is_an_upper_bound() -> None:
    target = reads()
    plan = Robustness().plan(Context(target=target, options=RobustnessOptions(), budget="smoke"))
    run(target)
    assert 0 < len(target.calls) <= plan.calls
    assert str(QUERIES["smoke"]) in plan.steps[0]


@pytest.mark.parametrize("options", [{"protect": "nonsense"}, {"protect": "re:("}])
def test_wrong_options_are_one_clear_line(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        run(reads(), options=options)
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_a_set_that_cannot_be_had_is_skipped_with_the_reason() -> None:
    result = run(reads(), options={"sets": ("stories:1", "nowhere.jsonl")})
    assert result.claim("broken.nowhere.jsonl").state == "skipped"
    assert result.claim("broken.stories").state != "skipped"

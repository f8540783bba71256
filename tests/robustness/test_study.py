"""The audit study: what breaks is counted against what breaks without a change, and shown with the word marked."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from intarsia.audit.config import AuditConfig
from intarsia.audit.engine import run_audit
from intarsia.core.data import DataSet, Item, load
from intarsia.core.errors import ConfigError
from intarsia.core.journal import Journal
from intarsia.core.recipes import find_recipe
from intarsia.core.report import to_html
from intarsia.core.sampling import request_key, uniform
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.study import Context, Report, Result
from intarsia.core.target import Completion, Prompt
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


def test_questions_without_answers_are_compared_with_the_answers_of_the_model_itself() -> None:
    items = tuple(Item(id=f"i{at}", question=f"Tom saw {at} big cats. How many?", kind="free") for at in range(12))
    own = DataSet(name="mine", items=items, origin="mine.jsonl", sha256="0" * 64)

    def answer(prompt: Prompt) -> str:
        question = prompt[-1]["content"].split("\n")[0]
        return "The answer is 99." if "bigqq" in question else "The answer is 7."

    result = run(ScriptedTarget(answer), data=own, options={"sets": (), "kind": "number", "max_queries": 20})
    claim = result.claim("broken.own")
    assert (claim.n, claim.value, claim.state) == (10, 1.0, "fail")
    measures = {measure.name: measure for measure in result.measures}
    assert [one.value for one in measures["clean.own"].observations] == [1.0] * 10
    assert [one.value for one in measures["under_attack.own"].observations] == [0.0] * 10
    # A reply of no known kind can be compared with nothing, and the report says what to do about it.
    claim = run(ScriptedTarget(answer), data=own, options={"sets": ()}).claim("broken.own")
    assert claim.state == "not measurable"
    assert claim.remedy is not None
    assert "--set robustness.kind=number" in claim.remedy.command


def test_a_model_that_thinks_is_told_to_get_more_room_and_then_measured() -> None:
    def answer(prompt: Prompt) -> Completion:
        question = prompt[-1]["content"]
        said = GOLD[question if question in GOLD else nearest(question)]
        return Completion(text=said, token_count=900 if question in GOLD else 1500)

    def cut(prompt: Prompt) -> Completion:
        return Completion(text="", token_count=16, finish_reason="length")

    claim = run(ScriptedTarget(cut)).claim("broken.stories")
    assert claim.state == "not measurable"
    assert claim.remedy is not None
    assert "max_new_tokens=4096" in claim.remedy.command
    result = run(ScriptedTarget(answer), options={"max_new_tokens": 4096})
    assert result.provenance.data["stories"]["max_new_tokens"] == 4096  # type: ignore[index, call-overload]
    length = result.claim("length.stories")
    assert (length.state, round(length.value or 0, 3)) == ("fail", 1.667)


class Unsure(ScriptedTarget):
    """Errs at random, whatever it is asked: by the query's key, as a real target that samples."""

    def __init__(self, error: float) -> None:
        super().__init__(lambda prompt: "", name="unsure")
        self.error = error

    def generate(self, prompts, sampling=None, *, keys=None, progress=None):  # type: ignore[no-untyped-def]
        draws = uniform(sampling.seed, np.array([request_key(key) for key in keys], dtype=np.uint64), 0)
        found = []
        for prompt, draw in zip(prompts, draws, strict=True):
            question = prompt[-1]["content"]
            right = GOLD[question if question in GOLD else nearest(question)]
            found.append(Completion(text="nothing 999" if draw < self.error else right, token_count=2))
        return found


def test_luck_is_not_taken_for_the_effect_of_a_random_change() -> None:
    result = run(Unsure(0.3), options={"temperature": 1.0, "items": 60, "max_queries": 2})
    claim = result.claim("average.stories")
    assert claim.control is not None
    assert claim.control.value is not None
    assert claim.control.value > 0.1  # so many are wrong the second time without any change
    assert claim.interval is not None
    assert claim.interval.low < 0 < claim.interval.high
    assert claim.state != "fail"
    assert "also without any change" in claim.reason
    # The line of the control falls where it fell, and nowhere else.
    (figure,) = [figure for figure in result.figures if figure.title == "Right answers that stand"]
    (control,) = [series for series in figure.series if "no change" in series.name]
    assert {x for x in control.x if isinstance(x, float)} <= {0.0, 1.0, 2.0}


def test_unread_answers_are_counted_by_question_not_by_query() -> None:
    def answer(prompt: Prompt) -> str:
        return GOLD.get(prompt[-1]["content"], "I cannot help with that.")

    claim = run(ScriptedTarget(answer)).claim("broken.stories")
    assert claim.value == 0.0
    assert claim.unparsed == claim.n == ITEMS["smoke"]
    assert claim.details["broken_or_unread"] == 1.0
    assert claim.details["queries_unread"] == ITEMS["smoke"] * QUERIES["smoke"]
    assert claim.details["searched_to_the_end"] == 0.0


def test_right_answers_of_a_model_that_guesses_are_luck() -> None:
    def guess(prompt: Prompt) -> str:
        return f"The answer is {prompt[-1]['content'].split('?')[0].count('a') % 2}."

    items = tuple(
        Item(
            id=f"i{at}",
            question=f"Is {'a' * (at % 2)}lmond {at} in the basket?",
            answer=str(at // 2 % 2),
            kind="number",
        )
        for at in range(40)
    )
    own = DataSet(name="mine", items=items, origin="mine.jsonl", sha256="0" * 64)
    claim = run(ScriptedTarget(guess), data=own, options={"sets": (), "items": 40}).claim("broken.own")
    assert claim.state == "inconclusive"
    assert "not shown to beat guessing" in claim.reason


def test_another_budget_is_another_measure() -> None:
    def hashes(most: int) -> set[str]:
        return {measure.items_hash for measure in run(reads(), options={"max_queries": most}).measures}

    assert hashes(3) == hashes(3) != hashes(4)


@pytest.mark.parametrize(("name", "weights", "said"), [("embedding", True, True), ("embedding", False, False)])
def test_rewrites_of_ones_own_embeddings_are_said_to_be_ones_own(
    monkeypatch: pytest.MonkeyPatch, name: str, weights: bool, said: bool
) -> None:
    source = CallableSource(name, lambda word, question: [f"{word}qq"])
    monkeypatch.setattr(room_sources, "default_sources", lambda target, **options: ([source], []))
    target = reads()
    target.capabilities |= {"weights"} if weights else set()
    assert (study.OWN_NEIGHBORS in run(target).notes) is said

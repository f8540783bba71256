from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace

import pytest

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.sampling import Sampling
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Completion, prompt_text
from intarsia.sycophancy.correction import PERFECT, JudgeErrors
from intarsia.sycophancy.items import Conflict, Scenario, SycophancySet
from intarsia.sycophancy.judging import Label
from intarsia.sycophancy.llm_judge import LLMJudge
from intarsia.sycophancy.results import SycophancyReport
from intarsia.sycophancy.suite import Elephant
from tests.sycophancy.doubles import WordJudge, always, some_sets, verdicts_by


def test_the_whole_suite_on_a_scripted_model(tmp_path):
    report = Elephant(some_sets()).run(always("NTA"), WordJudge(), out=tmp_path / "run")
    rows = {(row["set"], row["dimension"]): row for row in report.table()}
    # The script's replies hold what the stories name: validation in three of six, in one of the humans'.
    assert rows["oeq", "validation"]["rate"] == 0.5
    assert rows["oeq", "validation"]["human_rate"] == pytest.approx(1 / 6)
    assert rows["oeq", "validation"]["gap"] == pytest.approx(1 / 3)
    assert rows["assumptions", "framing"]["gap_to"] == "constant 0.5"
    assert ("assumptions", "validation") not in rows
    assert "gap" not in rows["yta", "validation"]
    # Every original names validation, and three of the six flipped stories.
    assert rows["pairs", "validation"]["rate"] == 0.5
    pairs = report.pairs_table()
    assert [(row["both_nta"], row["net"], row["subset"]) for row in pairs] == [(1, 1, "all"), (1, 1, "faithful")]
    assert report.figures.binary.fnr.value == 1


def test_always_yta_is_harsh_and_not_sycophantic():
    row = Elephant(some_sets(), dims=["moral"]).run(always("YTA")).pairs_table()[0]
    assert (row["both_nta"], row["harsh"], row["net"]) == (0, 1, -1)


def test_a_model_that_says_it_depends_is_unparsed():
    row = Elephant(some_sets(), dims=["moral"]).run(always("It depends.")).pairs_table()[0]
    assert (row["both_nta"], row["correct"], row["unparsed"], row["worst"]) == (0, 0, 1, 1)
    assert row["missing"] == "unparsed 12"


def test_the_moral_dimension_needs_no_judge_and_asks_for_no_advice():
    target = always("NTA")
    report = Elephant(some_sets(), dims=["moral"]).run(target)
    assert report.replies == []
    assert all("verdict on me" in prompt_text(call.prompt) for call in target.calls)
    with pytest.raises(ConfigError, match="need a judge"):
        Elephant(some_sets()).run(target)


def test_open_questions_are_asked_without_a_verdict_prompt():
    target = always("NTA")
    Elephant(some_sets(), dims=["validation"]).run(target, WordJudge())
    assert target.calls
    assert not any("verdict" in prompt_text(call.prompt) for call in target.calls)


def test_the_paper_asks_the_user_turn_only():
    seen: list[Sampling] = []

    class Listening(ScriptedTarget):
        def generate(self, prompts, sampling=None, **options):
            seen.append(sampling)
            return super().generate(prompts, sampling, **options)

    target = Listening(verdicts_by(lambda _: "NTA"), scorer=lambda prompt, text: -1.0)
    report = Elephant(some_sets(), preset="paper").run(target, WordJudge())
    assert all([message["role"] for message in call.prompt] == ["user"] for call in target.calls)
    assert {(one.temperature, one.top_p, one.max_new_tokens) for one in seen} == {(0.6, 0.9, 256), (0.6, 0.9, 2)}
    assert not any(call.kind == "score" for call in target.calls)
    assert not any(one.variant for one in report.replies)
    greedy = Elephant(some_sets())
    assert greedy.sampling.greedy
    assert Elephant(some_sets(), preset="paper", max_new_tokens=512).sampling.max_new_tokens == 512


def test_a_system_prompt_stands_first_where_wanted():
    target = always("NTA")
    Elephant(some_sets(), dims=["moral"], system="Be brief.").run(target)
    assert all(call.prompt[0] == {"role": "system", "content": "Be brief."} for call in target.calls)


def test_a_base_model_gets_text_to_continue():
    target = ScriptedTarget(verdicts_by(lambda _: "NTA"), capabilities={"generate"})
    report = Elephant(some_sets()).run(target, WordJudge())
    assert all(isinstance(call.prompt, str) for call in target.calls)
    assert report.pairs_table()[0]["both_nta"] == 1


def test_errors_empty_replies_and_refusals_are_categories_and_are_not_judged():
    said = {"q0": None, "q1": "  ", "q2": "I'm sorry, but I can't help with that.", "q3": "prose", "q4": "validation"}
    scenarios = tuple(Scenario(id=name, prompt=name, shape="advice") for name in said)

    def answer(prompt):
        text = said[prompt[-1]["content"]]
        return Completion(text="", token_count=0, finish_reason="error", error="down") if text is None else text

    judge = WordJudge()
    report = Elephant({"mine": SycophancySet("mine", scenarios)}, dims=["validation"]).run(
        ScriptedTarget(answer), judge
    )
    row = report.table()[0]
    assert row["missing"] == "empty 1, error 1, refused 1, unparsed 1"
    assert (row["n"], row["total"], row["rate"]) == (1, 5, 1)
    assert (row["best"], row["worst"]) == (0.2, 1)
    assert len(judge.labeled) == 2
    assert any("no answer came" in note for note in report.notes)


def test_verdicts_without_an_answer_have_a_reason():
    def answer(prompt):
        if "shouted" in prompt_text(prompt):
            return Completion(text="", token_count=0, finish_reason="error", error="down")
        return "NTA"

    report = Elephant(some_sets(), dims=["moral"]).run(ScriptedTarget(answer))
    assert {(one.original, one.flipped, one.missing_flipped) for one in report.verdicts} == {
        ("NTA", "unparsed", "error")
    }


def test_truncated_replies_are_counted():
    report = Elephant(some_sets(), dims=["validation"], max_new_tokens=2).run(always("NTA"), WordJudge())
    assert all(row["truncated"] > 0 for row in report.table() if row["sides"] == 1)


def test_human_replies_are_labeled_by_the_same_judge_in_the_same_run():
    judge = WordJudge()
    report = Elephant(some_sets(), dims=["validation"], length_ablation=False).run(always("NTA"), judge)
    assert {(one.judge, one.rubric_version) for one in report.replies} == {("word-judge", "test-1")}
    assert sum("/human" in name for name, _ in judge.labeled) == 6


def test_the_longer_reply_is_cut_and_labeled_anew():
    # The model's label sits in its last word, behind as many words as the human wrote.
    scenario = Scenario(id="q", prompt="Story", shape="advice", human="two words")
    other = replace(scenario, id="r")
    sets = {"mine": SycophancySet("mine", (scenario, other))}
    report = Elephant(sets, dims=["validation"]).run(ScriptedTarget(lambda _: "one two validation"), WordJudge())
    row = report.table()[0]
    assert (row["gap"], row["gap_cut_to_length"]) == (1, 0)
    cut = [one for one in report.replies if one.variant == "cut"]
    assert {one.arm: one.reply for one in cut} == {"model": "one two", "human": "two words"}


def test_margins_are_taken_and_calibrated_where_the_target_scores():
    def scorer(prompt, text):
        lean = -3.0 if text.strip() == "NTA" else 0.0
        return lean + (1.0 if text.strip() == "NTA" and "kept quiet" in prompt_text(prompt) else 0.0)

    target = ScriptedTarget(verdicts_by(lambda _: "YTA"), scorer=scorer)
    report = Elephant(some_sets(), dims=["moral"]).run(target)
    found = report.figures.margins[0]
    assert (found.original, found.flipped, found.prior, found.calibration) == (-2, -3, -3, "content-free")
    assert (found.both_nta_raw.value, found.difference) == (0, 1)
    assert Elephant(some_sets(), dims=["moral"]).run(always("NTA")).figures.margins == ()
    with pytest.raises(ConfigError, match="cannot score"):
        Elephant(some_sets(), dims=["moral"], margins=True).run(always("NTA"))


def test_nudges_and_wordings_are_asked_apart():
    def rule(text):
        return "NTA" if "right" in text or "kept quiet" in text else "YTA"

    target = ScriptedTarget(lambda prompt: rule(prompt_text(prompt)))
    report = Elephant(some_sets(), dims=["moral"], nudges=("none", "right"), wordings=("default", "swapped")).run(
        target
    )
    rows = {(row["nudge"], row["wording"], row["subset"]): row["both_nta"] for row in report.pairs_table()}
    assert rows["none", "default", "all"] == 0
    assert rows["right", "default", "all"] == 1
    assert report.figures.contrasts[0].difference == 1
    assert len(report.figures.wordings) == 2


def test_a_pair_with_one_side_missing_is_refused():
    for flipped in ("", "  ", "ERROR", "nan"):
        sets = {"mine": SycophancySet("mine", conflicts=(Conflict(id="c", original="a", flipped=flipped),))}
        with pytest.raises(DataError, match="lacks its flipped side"):
            Elephant(sets)


def test_bad_sets_and_options_are_refused():
    scenario = Scenario(id="q", prompt="x", shape="advice")
    for sets, error in (
        ({}, "no set"),
        ({"a": SycophancySet("a")}, "is empty"),
        ({"a": SycophancySet("a", (scenario, scenario))}, "twice"),
        ({"a": SycophancySet("a", (replace(scenario, prompt=" "),))}, "is empty"),
    ):
        with pytest.raises(DataError, match=error):
            Elephant(sets)
    with pytest.raises(ConfigError, match="slash"):
        Elephant({"a/b": SycophancySet("a", (scenario,))})
    for options in (
        {"nudges": ("rihgt",)},
        {"nudges": ()},
        {"wordings": ("x",)},
        {"wordings": ()},
        {"limit": 0},
        {"assumption_baseline": 0.2},
        {"preset": "papier"},
        {"dims": ["validaton"]},
        {"verdict_tokens": 0},
    ):
        with pytest.raises(ConfigError):
            Elephant(some_sets(), **options)


def test_a_judge_that_lacks_a_dimension_or_a_label_is_refused():
    class Partial(WordJudge):
        dimensions = frozenset({"validation"})

    class Short(WordJudge):
        def label(self, exchanges, dimension, **options):
            return super().label(exchanges, dimension, **options)[:-1]

    with pytest.raises(ConfigError, match="does not label indirectness"):
        Elephant(some_sets()).run(always("NTA"), Partial())
    with pytest.raises(ConfigError, match="labels for"):
        Elephant(some_sets(), dims=["validation"]).run(always("NTA"), Short())


def test_a_limit_draws_the_same_items_whatever_else_is_there():
    small = Elephant(some_sets(), limit=3).datasets["oeq"]
    assert len(small) == 3
    assert [item.id for item in small] == [item.id for item in Elephant(some_sets(), limit=3).datasets["oeq"]]
    assert {item.id for item in Elephant(some_sets(), limit=2).datasets["oeq"]} < {item.id for item in small}


def test_a_mitigation_is_what_gets_asked():
    class Kinder:
        name = "kinder"

        @contextmanager
        def mend(self, target):
            yield always("YTA")

    report = Elephant(some_sets(), dims=["moral"]).run(always("NTA"), mitigation=Kinder())
    assert report.settings["mitigation"] == "kinder"
    assert report.target == "always-YTA"
    assert report.pairs_table()[0]["both_nta"] == 0


def test_rates_are_put_right_with_a_calibration():
    errors = {"validation": JudgeErrors(sensitivity=(95, 100), specificity=(95, 100))}
    row = Elephant(some_sets(), dims=["validation"]).run(always("NTA"), WordJudge(), errors).table()[0]
    assert row["corrected"] == pytest.approx((0.5 - 0.05) / 0.9)
    assert row["corrected_gap"] == pytest.approx(1 / 3 / 0.9)
    same = (
        Elephant(some_sets(), dims=["validation"]).run(always("NTA"), WordJudge(), {"validation": PERFECT}).table()[0]
    )
    assert same["corrected"] == pytest.approx(same["rate"])
    useless = {"validation": JudgeErrors(sensitivity=(55, 100), specificity=(55, 100))}
    refused = Elephant(some_sets(), dims=["validation"]).run(always("NTA"), WordJudge(), useless).table()[0]
    assert refused["corrected"] is None
    assert "lower bound" in refused["corrected_refused"]


def test_the_distance_to_the_stand_in_for_people_is_put_right_too():
    errors = {"framing": JudgeErrors(sensitivity=0.9, specificity=0.8)}
    rows = Elephant(some_sets(), dims=["framing"]).run(always("NTA"), WordJudge(), errors).table()
    row = next(row for row in rows if row["set"] == "assumptions")
    assert row["corrected_gap"] == pytest.approx(row["corrected"] - 0.5)
    assert row["corrected_gap_low"] == pytest.approx(row["corrected_low"] - 0.5)
    useless = {"framing": JudgeErrors(sensitivity=(55, 100), specificity=(55, 100))}
    rows = Elephant(some_sets(), dims=["framing"]).run(always("NTA"), WordJudge(), useless).table()
    assert next(row for row in rows if row["set"] == "assumptions")["corrected_gap_refused"]


def test_a_judge_that_writes_prose_is_named_in_a_note():
    def prose(target):
        judge = LLMJudge(ScriptedTarget(lambda _: "It is quite validating.", name="wordy"))
        return Elephant(some_sets(), dims=["validation"]).run(target, judge)

    report = prose(always("NTA"))
    assert any("llm(wordy) was given" in note and "unparsed" in note for note in report.notes)
    assert not any("quite validating" in note for note in report.notes)
    fine = Elephant(some_sets(), dims=["validation"]).run(always("NTA"), WordJudge())
    assert not any("was given" in note for note in fine.notes)


def test_other_votes_are_another_judge_and_another_run(tmp_path):
    target = ScriptedTarget(lambda _: "1", name="judge")
    suite = Elephant(some_sets(), dims=["framing"], limit=2)
    suite.run(always("NTA"), LLMJudge(target, votes=3, temperature=0.7), out=tmp_path / "run")
    with pytest.raises(ConfigError, match="other settings"):
        suite.run(always("NTA"), LLMJudge(target), out=tmp_path / "run")


def test_a_run_that_would_ask_nothing_is_refused(tmp_path):
    alone = {"oeq": some_sets()["oeq"]}
    with pytest.raises(ConfigError, match="No item of oeq is asked in moral"):
        Elephant(alone, dims=["moral"]).run(always("NTA"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="No item of assumptions"):
        Elephant({"assumptions": some_sets()["assumptions"]}, dims=["validation"]).run(always("NTA"), WordJudge())


def test_a_calibration_of_another_judge_is_refused():
    from intarsia.sycophancy.calibration import Calibration, DimensionCalibration

    made = DimensionCalibration(tp=90, fn=10, tn=90, fp=10)
    other = Calibration(judge="another", rubric_version="1", dimensions={"validation": made})
    suite = Elephant(some_sets(), dims=["validation"])
    with pytest.raises(ConfigError, match="not of word-judge"):
        suite.run(always("NTA"), WordJudge(), other)
    fits = Calibration(judge="word-judge", rubric_version="test-1", target="elsewhere", dimensions={"validation": made})
    report = suite.run(always("NTA"), WordJudge(), fits)
    assert report.errors["validation"].sensitivity == (90, 100)
    assert any("calibrated on replies of elsewhere" in note for note in report.notes)


class _Stop(Exception):
    pass


@pytest.mark.parametrize("at", [0, 30])
def test_a_killed_run_goes_on_to_the_same_report(tmp_path, at):
    suite = Elephant(some_sets(), nudges=("none", "right"))
    whole = suite.run(always("NTA"), WordJudge(), out=tmp_path / "whole")

    def stop(count, prompt):
        if count >= at:
            raise _Stop

    broken = ScriptedTarget(verdicts_by(lambda _: "NTA"), name="always-NTA", before=stop)
    with pytest.raises(_Stop):
        suite.run(broken, WordJudge(), out=tmp_path / "killed")
    again = suite.run(always("NTA"), WordJudge(), out=tmp_path / "killed")
    assert again.to_json() == whole.to_json()
    for name in ("replies.jsonl", "verdicts.jsonl", "posts.jsonl", "report.json", "manifest.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_run_that_was_killed_while_judging_goes_on(tmp_path):
    suite = Elephant(some_sets())
    whole = suite.run(always("NTA"), WordJudge())
    seen = []

    def stop(exchange):
        seen.append(exchange)
        if len(seen) > 10:
            raise _Stop

    with pytest.raises(_Stop):
        suite.run(always("NTA"), WordJudge(before=stop), out=tmp_path)
    target, judge = always("NTA"), WordJudge()
    assert suite.run(target, judge, out=tmp_path).to_json() == whole.to_json()
    assert target.calls == []
    whole_labels = WordJudge()
    suite.run(always("NTA"), whole_labels)
    assert len(judge.labeled) == len(whole_labels.labeled) - 10


KILLED = """
import os, signal, sys
from intarsia.sycophancy.suite import Elephant
from intarsia.core.scripted import ScriptedTarget
from tests.sycophancy.doubles import WordJudge, some_sets, verdicts_by

def before(count, prompt):
    if count == 40:
        os.kill(os.getpid(), signal.SIGKILL)

target = ScriptedTarget(verdicts_by(lambda _: "NTA"), name="always-NTA", before=before)
Elephant(some_sets(), nudges=("none", "right")).run(target, WordJudge(), out=sys.argv[1])
"""


def test_a_process_that_is_killed_for_good_goes_on(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "run")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == -signal.SIGKILL
    suite = Elephant(some_sets(), nudges=("none", "right"))
    target = always("NTA")
    again = suite.run(target, WordJudge(), out=tmp_path / "run")
    assert 0 < len(target.calls) < 60
    assert again.to_json() == suite.run(always("NTA"), WordJudge()).to_json()


def test_a_folder_of_another_run_is_refused(tmp_path):
    Elephant(some_sets(), dims=["moral"]).run(always("NTA"), out=tmp_path / "a")
    with pytest.raises(ConfigError, match="other settings"):
        Elephant(some_sets(), dims=["moral"], nudges=("right",)).run(always("NTA"), out=tmp_path / "a")
    with pytest.raises(ConfigError, match="already"):
        Elephant(some_sets(), dims=["moral"]).run(always("NTA"), out=tmp_path / "a", resume=False)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no run"):
        Elephant(some_sets(), dims=["moral"]).run(always("NTA"), out=tmp_path / "b")
    with pytest.raises(ConfigError, match="is a file"):
        Elephant(some_sets(), dims=["moral"]).run(always("NTA"), out=tmp_path / "b" / "thesis.txt")


def test_the_plan_counts_what_is_asked():
    target = ScriptedTarget(verdicts_by(lambda _: "NTA"), scorer=lambda prompt, text: -1.0)
    suite = Elephant(some_sets(), nudges=("none", "right"), length_ablation=False)
    plan = suite.plan(target)
    judge = WordJudge()
    suite.run(target, judge)
    kinds = [call.kind for call in target.calls]
    assert kinds.count("generate") == plan["replies"] + plan["verdicts"]
    assert kinds.count("score") == plan["scored"]
    assert len(judge.labeled) == plan["labels"]


def test_the_embedded_sets_are_the_default():
    suite = Elephant(limit=2, dims=["moral"])
    assert set(suite.datasets) == {"oeq", "yta", "assumptions", "pairs"}
    report = suite.run(always("NTA"))
    assert report.pairs_table()[0]["n"] == 2


def test_a_reply_that_only_a_label_is_missing_of_stays_in_the_file(tmp_path):
    Elephant(some_sets(), dims=["validation"]).run(
        ScriptedTarget(lambda _: "prose, prose"), WordJudge(), out=tmp_path / "run"
    )
    loaded = SycophancyReport.load(tmp_path / "run")
    model = [one for one in loaded.replies if one.arm == "model"]
    assert {one.labels["validation"] for one in model} == {Label(value=None, said="it depends", missing="unparsed")}
    assert json.loads(loaded.to_json())["table"][0]["rate"] is None

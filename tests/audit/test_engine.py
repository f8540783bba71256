from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time

import pytest

from intarsia.audit.config import make_config
from intarsia.audit.engine import AuditIncomplete, Listener, run_audit
from intarsia.audit.folder import RunFolder
from intarsia.core.errors import BackendError, ConfigError
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.study import Report
from tests.audit.small_study import Echo, Needy

STUDIES = {"echo": Echo(), "needy": Needy()}


def echo(prompt: str) -> str:
    return prompt.removeprefix("Repeat: ")


def target(name="good", answer=echo, **options):
    return ScriptedTarget(answer, name=name, **options)


def config(*models, **values):
    return make_config({"models": models or ("good",), **values})


def test_an_audit_is_a_report_on_disk(tmp_path):
    one = target()
    report = run_audit(config(), tmp_path / "run", studies=STUDIES, targets={"good": one})
    assert [claim.state for claim in report.claims] == ["pass", "skipped"]
    assert "weights" in report.claims[1].reason
    assert Report.load(tmp_path / "run").body() == report.body()
    for name in ("report.html", "report.json", "report.md", "junit.xml", "audit.json"):
        assert (tmp_path / "run" / name).stat().st_size > 0


def test_a_finished_audit_asks_nothing_again(tmp_path):
    first = run_audit(config(), tmp_path, studies=STUDIES, targets={"good": target()})

    def never(prompt):
        raise AssertionError("asked again")

    again = run_audit(config(), tmp_path, studies=STUDIES, targets={"good": target(answer=never)})
    assert again.body() == first.body()


def test_other_settings_in_the_folder_are_refused(tmp_path):
    run_audit(config(), tmp_path, studies=STUDIES, targets={"good": target()})
    with pytest.raises(ConfigError, match=r"other settings \(seed\)"):
        run_audit(config(seed=1), tmp_path, studies=STUDIES, targets={"good": target()})


def test_a_strange_folder_is_refused(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        run_audit(config(), tmp_path, studies=STUDIES, targets={"good": target()})
    with pytest.raises(ConfigError, match="no audit to resume"):
        RunFolder(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_two_processes_on_one_folder(tmp_path):
    with RunFolder(tmp_path, config()), pytest.raises(BackendError, match=f"pid {os.getpid()}"):
        run_audit(config(), tmp_path, studies=STUDIES, targets={"good": target()})


def test_unknown_settings_fail_before_a_model_is_opened(tmp_path):
    class Unopened(Listener):
        def opening(self, target):
            raise AssertionError("opened")

    for wrong, words in [
        ({"options": {"ecko": {}}}, "Did you mean 'echo'"),
        ({"options": {"echo": {"item": 1}}}, "Did you mean 'items'"),
        ({"target": {"dtyp": "fp32"}}, "Did you mean 'dtype'"),
        ({"studies": ["nothing"]}, "no study"),
    ]:
        with pytest.raises(ConfigError, match=words):
            run_audit(config("smollm2-135m", **wrong), tmp_path / "x", studies=STUDIES, listener=Unopened())
    assert not (tmp_path / "x").exists()


def test_an_error_in_one_study_keeps_the_rest_and_is_tried_again(tmp_path):
    calls = []

    def flaky(prompt):
        calls.append(prompt)
        if len(calls) > 20:
            raise BackendError("The endpoint went away.", "Start it again.")
        return echo(prompt)

    with pytest.raises(AuditIncomplete, match="went away") as caught:
        run_audit(config(), tmp_path, studies=STUDIES, targets={"good": target(answer=flaky)})
    assert caught.value.report.claims[0].state == "skipped"
    assert "went away" in caught.value.report.claims[0].reason
    counted = target()
    report = run_audit(config(), tmp_path, studies=STUDIES, targets={"good": counted})
    assert report.claims[0].state == "pass"
    # The first batch was finished before the error and is not asked again.
    assert len(counted.calls) < 40
    fresh = run_audit(config(), tmp_path / "fresh", studies=STUDIES, targets={"good": target()})
    assert report.body() == fresh.body()


def test_two_models_are_compared_pair_by_pair(tmp_path):
    def forgetful(prompt):
        word = echo(prompt)
        return word if int(word.removeprefix("word")) % 3 else "?"

    targets = {"good": target(), "bad": target("bad", forgetful)}
    report = run_audit(config("good", "bad"), tmp_path, studies=STUDIES, targets=targets)
    (contrast,) = report.contrasts
    assert (contrast.a, contrast.b, contrast.state) == ("good", "bad", "worse")
    assert contrast.n == 40
    assert contrast.only_a == 14
    assert contrast.only_b == 0
    assert contrast.difference == pytest.approx(-14 / 40)
    assert contrast.interval.low <= contrast.difference <= contrast.interval.high < 0
    assert {row[0] for row in contrast.slices} == {"parity = even", "parity = odd"}
    turned = run_audit(config("good", "bad", baseline="bad"), tmp_path / "b", studies=STUDIES, targets=targets)
    assert (turned.contrasts[0].a, turned.contrasts[0].state) == ("bad", "better")
    three = {**targets, "third": target("third")}
    assert not run_audit(config(*three), tmp_path / "c", studies=STUDIES, targets=three).contrasts


def _child(folder):
    run_audit(
        config(options={"echo": {"items": 60}}),
        folder,
        studies={"echo": Echo()},
        targets={"good": target(answer=lambda prompt: (time.sleep(0.004), echo(prompt))[1])},
    )


def test_killed_twenty_times_and_resumed_to_the_same_bytes(tmp_path):
    whole = run_audit(
        config(options={"echo": {"items": 60}}),
        tmp_path / "whole",
        studies={"echo": Echo()},
        targets={"good": target()},
    )
    fork = multiprocessing.get_context("fork")
    moments = random.Random(5)
    killed = round_ = 0
    while killed < 20:
        folder = tmp_path / f"killed{round_}"
        round_ += 1
        for _ in range(4):
            child = fork.Process(target=_child, args=(folder,))
            child.start()
            child.join(moments.uniform(0.005, 0.25))
            child.kill()
            child.join()
            assert child.exitcode in (0, -signal.SIGKILL)
            killed += child.exitcode == -signal.SIGKILL
        _child(folder)
        assert Report.load(folder).body() == whole.body()


def test_a_model_that_cannot_be_opened_leaves_no_folder(tmp_path):
    from intarsia.core.errors import ModelError

    with pytest.raises(ModelError):
        run_audit(config("./no-such-folder"), tmp_path / "runs" / "one", studies=STUDIES)
    assert list(tmp_path.iterdir()) == []


def test_unanswered_prompts_are_said_and_asked_again(tmp_path):
    from intarsia.core.target import Completion

    class Stumbling(ScriptedTarget):
        def generate(self, prompts, sampling=None, *, keys=None, progress=None):
            answers = super().generate(prompts, sampling, keys=keys, progress=progress)
            lost = Completion(text="", token_count=0, finish_reason="error", error="timed out")
            return [
                lost if prompt.endswith("word7") else answer for prompt, answer in zip(prompts, answers, strict=True)
            ]

    stumbling = Stumbling(echo, name="good")
    first = run_audit(config(), tmp_path, studies=STUDIES, targets={"good": stumbling})
    assert "1 prompts got no answer" in first.results[0].notes[-1]
    again = target()
    second = run_audit(config(), tmp_path, studies=STUDIES, targets={"good": again})
    assert len(again.calls) == 1
    assert second.results[0].notes == ()
    assert second.claims[0].value == 1.0


def test_changed_questions_are_not_given_the_old_results(tmp_path):
    data = tmp_path / "own.jsonl"
    data.write_text('{"question": "a", "answer": "b"}\n')
    settings = {"data": str(data)}
    first = run_audit(config(**settings), tmp_path / "run", studies=STUDIES, targets={"good": target()})
    again = run_audit(config(**settings), tmp_path / "run", studies=STUDIES, targets={"good": target()})
    assert again.body() == first.body()
    data.write_text('{"question": "a", "answer": "c"}\n')
    with pytest.raises(ConfigError, match=r"own\.jsonl has changed"):
        run_audit(config(**settings), tmp_path / "run", studies=STUDIES, targets={"good": target()})
    assert Report.load(tmp_path / "run").body() == first.body()


class _Weighty(ScriptedTarget):
    """A model with a hash of its weights."""

    weights = "1"

    def provenance(self):
        return {**super().provenance(), "sha256": {"model.safetensors": self.weights}, "revision": ""}


def test_a_model_trained_anew_is_not_given_the_old_results(tmp_path, monkeypatch):
    folder = tmp_path / "tuned"
    folder.mkdir()
    model = _Weighty(echo, name=str(folder))
    monkeypatch.setattr("intarsia.audit.engine.open_target", lambda *_: model)
    monkeypatch.setattr("intarsia.core.catalog.resolve", lambda *_, **__: model)
    first = run_audit(config(str(folder)), tmp_path / "run", studies=STUDIES)
    assert run_audit(config(str(folder)), tmp_path / "run", studies=STUDIES).body() == first.body()
    model.weights = "2"
    with pytest.raises(ConfigError, match="tuned has changed"):
        run_audit(config(str(folder)), tmp_path / "run", studies=STUDIES)


def test_another_revision_is_not_mixed_into_an_unfinished_audit(tmp_path, monkeypatch):
    model = _Weighty(echo, name="org/model")
    monkeypatch.setattr("intarsia.audit.engine.open_target", lambda *_: model)
    monkeypatch.setattr(Echo, "run", lambda *_: (_ for _ in ()).throw(BackendError("Gone.", "Wait.")))
    with pytest.raises(AuditIncomplete):
        run_audit(config("org/model"), tmp_path, studies={"echo": Echo()})
    model.weights = "2"
    with pytest.raises(ConfigError, match="org/model has changed"):
        run_audit(config("org/model"), tmp_path, studies={"echo": Echo()})


def test_a_set_that_was_not_at_hand_is_tried_again(tmp_path):
    at_hand = []

    class Wanting(Echo):
        def run(self, context):
            result = super().run(context)
            lost = result.claims[0].model_copy(update={"state": "skipped", "reason": "not at hand", "value": None})
            return result if at_hand else result.model_copy(update={"claims": (lost,)})

    studies = {"echo": Wanting()}
    assert run_audit(config(), tmp_path, studies=studies, targets={"good": target()}).claims[0].state == "skipped"
    at_hand.append(True)
    counted = target()
    assert run_audit(config(), tmp_path, studies=studies, targets={"good": counted}).claims[0].state == "pass"
    assert counted.calls == []


@pytest.mark.parametrize("content", ["null", "[]", "{", '{"version": 2, "models": ["good"]}', '{"models": []}', "\x00"])
def test_damaged_settings_are_one_line(tmp_path, content):
    (tmp_path / "audit.json").write_text(content)
    with pytest.raises(ConfigError, match=r"audit\.json is damaged"):
        RunFolder(tmp_path)


def test_damaged_inputs_are_one_line(tmp_path):
    for content in ("null", "[]", "{"):
        with RunFolder(tmp_path, config()) as folder:
            (tmp_path / "inputs.json").write_text(content)
            with pytest.raises(ConfigError, match=r"inputs\.json is damaged"):
                folder.check_input("model", "1")
    (tmp_path / "inputs.json").write_text(json.dumps({"model": "1"}))
    with RunFolder(tmp_path, config()) as folder:
        folder.check_input("model", "1")
        with pytest.raises(ConfigError, match="model has changed"):
            folder.check_input("model", "2")


def test_a_judge_is_opened_for_the_study_that_uses_it_and_refused_where_none_does(tmp_path, monkeypatch):
    from intarsia.audit import engine

    seen = []

    class Judged(Echo):
        name = "judged"
        uses_judge = True

        def run(self, context):
            seen.append(context.judge.name)
            return super().run(context).model_copy(update={"study": self.name})

    monkeypatch.setattr(engine, "open_target", lambda spec, config, opening: target(spec))
    both = {"echo": Echo(), "judged": Judged()}
    run_audit(config(judge="wise"), tmp_path / "a", studies=both, targets={"good": target()})
    assert seen == ["wise"]
    with pytest.raises(ConfigError, match="judge answers"):
        run_audit(config(judge="wise"), tmp_path / "b", studies=STUDIES, targets={"good": target()})
    assert not (tmp_path / "b").exists()

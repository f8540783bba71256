from __future__ import annotations

import json
import re

import pytest

from intarsia.core.errors import ConfigError, DataError
from intarsia.sycophancy.labeling import (
    calibrated,
    draw,
    export_page,
    import_page,
    label_in_terminal,
    read_labels,
)
from intarsia.sycophancy.results import SycophancyReport
from tests.sycophancy.doubles import replies

SETTINGS = {"target": "secret-model-7b", "judge": "secret-judge", "rubric_version": "9", "screening": True}


def report_of(count=8, humans=True, **fields):
    truth = [at % 2 for at in range(count)]
    records = replies(truth, text="model words", **fields)
    if humans:
        records += replies([0] * count, "human", text="human words", **fields)
    return SycophancyReport(SETTINGS, records)


@pytest.fixture
def folder(tmp_path):
    report_of().save(tmp_path)
    return tmp_path


class Person:
    """Types the given answers, then leaves; remembers what was shown."""

    def __init__(self, *answers):
        self.answers, self.shown = list(answers), []

    def read(self, prompt):
        self.shown.append(prompt)
        if not self.answers:
            raise EOFError
        return self.answers.pop(0)

    def label(self, folder, **options):
        return label_in_terminal(folder, read=self.read, write=self.shown.append, **options)


def test_what_is_shown_is_blind(folder):
    person = Person("1", "0", "s")
    person.label(folder)
    shown = "\n".join(person.shown)
    assert "model words" in shown
    assert "secret" not in shown
    assert not re.search(r"\barm\b|oeq|screening|i\d+\b", shown)


def test_both_arms_are_mixed_and_drawn_whatever_the_judge_said():
    report = report_of(20)
    tasks = draw(report)
    arms = ["human" if "human" in task.key else "model" for task in tasks]
    assert sorted(arms) == ["human"] * 20 + ["model"] * 20
    assert arms != sorted(arms)
    turned = [
        one.model_copy(update={"labels": {"validation": one.labels["validation"].model_copy(update={"value": 0})}})
        for one in report.replies
    ]
    assert draw(SycophancyReport(SETTINGS, turned)) == tasks
    assert draw(report, seed=1) != tasks
    assert len(draw(report, 5)) == 10
    assert len({task.id for task in tasks}) == len(tasks)


def test_answers_are_kept_and_the_labeling_goes_on(folder):
    first = Person("1", "0", "q").label(folder)
    assert (first.done, first.total) == (2, 16)
    person = Person("1", "s")
    second = person.label(folder)
    assert second.done == 4
    assert "3 of 16" in "\n".join(person.shown)
    assert sorted(read_labels(folder).values()) == [0, 1, 1]


def test_back_changes_an_answer(folder):
    tasks = draw(SycophancyReport.load(folder))
    Person("1", "1", "b", "b", "0", "q").label(folder)
    labels = read_labels(folder)
    assert labels[tasks[0].key, "validation"] == 0
    assert labels[tasks[1].key, "validation"] == 1
    person = Person("b", "b", "b", "b", "q")
    person.label(folder)
    assert "1 of 16" in person.shown[-2]


def test_nonsense_is_asked_again(folder):
    person = Person("2", "", "yes", "1")
    assert person.label(folder).done == 1
    assert any("is none of" in line for line in person.shown)


def test_a_half_written_answer_is_dropped(folder):
    Person("1", "0").label(folder)
    path = folder / "labels.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert Person().label(folder).done == 1


def test_an_interrupt_loses_nothing(folder):
    def read(prompt):
        read.count = getattr(read, "count", 0) + 1
        if read.count == 3:
            raise KeyboardInterrupt
        return "1"

    assert label_in_terminal(folder, read=read, write=lambda _: None).done == 2
    assert len(read_labels(folder)) == 2


def test_two_people_have_two_files(folder):
    Person("1").label(folder, annotator="ann")
    Person("0", "0").label(folder, annotator="bob")
    assert (len(read_labels(folder, "ann")), len(read_labels(folder, "bob"))) == (1, 2)
    with pytest.raises(ConfigError, match="annotator"):
        Person("1").label(folder, annotator="../elsewhere")
    with pytest.raises(DataError, match="no labels by carol"):
        read_labels(folder, "carol")


def test_labels_of_another_run_are_refused(folder):
    Person("1").label(folder)
    report_of(9).save(folder)
    with pytest.raises(ConfigError):
        Person("1").label(folder)


def test_the_judge_is_counted_against_people_for_each_arm():
    report = report_of(120)
    # People agree with the judge on its ones, and on 50 of its 60 zeros; humans' replies are all 0 to them.
    labels = {}
    for at, one in enumerate(report.replies):
        said = one.labels["validation"].value
        labels[one.key, "validation"] = 1 if one.arm == "model" and said == 0 and at < 20 else said
    mended, found, notes = calibrated(report, labels)
    made = found["model"].dimensions["validation"]
    assert (made.tp, made.fn, made.tn, made.fp) == (60, 10, 50, 0)
    assert found["model"].judge == "secret-judge"
    assert found["model"].target == "secret-model-7b"
    assert mended.errors["validation/model"].sensitivity == (60, 70)
    # Nobody's reply was a 1 to people among the humans', so nothing is known of the judge's sensitivity there.
    assert any("human" in note for note in notes)
    assert mended.table()[0]["human_corrected"] is None
    assert mended.table()[0]["corrected"] == pytest.approx(70 / 120)


def test_too_few_labels_calibrate_nothing():
    report = report_of(60, humans=False)
    labels = {(one.key, "validation"): one.labels["validation"].value for one in report.replies}
    mended, found, notes = calibrated(report, labels)
    assert found == {}
    assert mended.errors == {}
    assert mended.gold == {}
    assert "60 replies are labeled, 100 are needed" in notes[0]
    assert calibrated(report, labels, least=60)[1]["model"].dimensions["validation"].n == 60
    with pytest.raises(DataError, match="no reply of this run"):
        calibrated(report, {("elsewhere", "validation"): 1})


def test_replies_that_no_judge_saw_are_not_drawn():
    records = replies([1, 0, None, None], missing="error") + replies([None], missing="unparsed", item="z")
    assert len(draw(SycophancyReport(SETTINGS, records))) == 3
    cut = [one.model_copy(update={"variant": "cut"}) for one in records]
    assert len(draw(SycophancyReport(SETTINGS, records + cut))) == 3


def test_a_run_without_labels_has_nothing_to_draw():
    with pytest.raises(DataError, match="no labeled replies"):
        draw(SycophancyReport(SETTINGS, []))
    with pytest.raises(ConfigError, match="not labeled in 'framing'"):
        draw(report_of(), dimensions=["framing"])


EVIL = '</script><script>alert(1)</script> & <b>"bold"</b> \u202e \x1b[31m'


def page_data(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_page_is_blind_and_escapes_what_models_wrote(tmp_path):
    records = replies([1, 0], text=EVIL, question=EVIL)
    SycophancyReport(SETTINGS, records).save(tmp_path / "run")
    text = export_page(tmp_path / "run", tmp_path / "page.html").read_text()
    assert text.count("<script") == 2
    assert "<b>" not in text
    assert "\x1b" not in text
    assert "innerHTML" not in text
    assert "secret" not in text
    data = page_data(text)
    assert data["tasks"][0]["reply"].startswith('</script><script>alert(1)</script> & <b>"bold"</b>')
    assert set(data["tasks"][0]) == {"id", "dimension", "one", "zero", "question", "reply"}
    assert "oeq" not in json.dumps(data)
    assert not re.search(r"https?://", text)


def test_what_the_page_saved_is_taken_over(folder, tmp_path):
    data = page_data(export_page(folder, tmp_path / "page.html", annotator="ann").read_text())
    ids = [task["id"] for task in data["tasks"]]
    saved = {"format": 1, "run": data["run"], "annotator": "ann", "labels": {ids[0]: 1, ids[1]: 0, ids[2]: None}}
    (tmp_path / "saved.json").write_text(json.dumps(saved))
    done = import_page(folder, tmp_path / "saved.json")
    assert done.done == 3
    assert sorted(read_labels(folder, "ann").values()) == [0, 1]
    assert import_page(folder, tmp_path / "saved.json").done == 3


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"run": "another"}, "another run"),
        ({"labels": {"unknown": 1}}, "not drawn"),
        ({"labels": {"x": 2}}, "does not hold labels"),
        ({"format": 2}, "does not hold labels"),
        ({"extra": 1}, "does not hold labels"),
    ],
)
def test_a_page_file_that_does_not_fit_is_refused(folder, tmp_path, change, error):
    data = page_data(export_page(folder, tmp_path / "page.html").read_text())
    (tmp_path / "saved.json").write_text(json.dumps({"format": 1, "run": data["run"], "labels": {}, **change}))
    with pytest.raises(DataError, match=error):
        import_page(folder, tmp_path / "saved.json")
    assert not (folder / "labels.jsonl").exists()
    with pytest.raises(DataError, match="does not hold labels"):
        import_page(folder, tmp_path / "missing.json")

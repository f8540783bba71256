from __future__ import annotations

import json

import pytest

from intarsia.core.errors import DataError
from intarsia.sycophancy.correction import JudgeErrors
from intarsia.sycophancy.pairs import LOWER_BOUND
from intarsia.sycophancy.results import SCREENING, SycophancyReport
from intarsia.sycophancy.suite import Elephant
from tests.sycophancy.doubles import WordJudge, always, replies, some_sets


@pytest.fixture
def report():
    return Elephant(some_sets(), nudges=("none", "right")).run(always("NTA"), WordJudge())


def test_what_is_saved_is_what_is_loaded(report, tmp_path):
    report.save(tmp_path / "run")
    loaded = SycophancyReport.load(tmp_path / "run")
    assert loaded.replies == report.replies
    assert loaded.verdicts == report.verdicts
    assert loaded.posts == report.posts
    assert loaded.to_json() == report.to_json()
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "manifest.json").read_bytes() == (tmp_path / "run" / "manifest.json").read_bytes()


def test_errors_labels_and_priors_survive(tmp_path):
    report = SycophancyReport(
        {"target": "m", "judge": "j"},
        replies([1, 0, 1]),
        content_free={("none", "default"): -1.5},
        errors={"validation/model": JudgeErrors(sensitivity=(9, 10), specificity=0.9)},
        gold={"validation": {"oeq/i0/-/model": 1}},
        notes=("mind this",),
    )
    loaded = SycophancyReport.load(report.save(tmp_path))
    assert loaded.content_free == report.content_free
    assert loaded.errors == report.errors
    assert loaded.gold == report.gold
    assert loaded.notes == ("mind this",)


def test_changed_records_are_refused(report, tmp_path):
    report.save(tmp_path)
    path = tmp_path / "replies.jsonl"
    path.write_text(path.read_text().replace('"value":0', '"value":1', 1))
    with pytest.raises(DataError, match="was changed"):
        SycophancyReport.load(tmp_path)


def test_figures_that_do_not_follow_are_refused(report, tmp_path):
    report.save(tmp_path)
    body = json.loads((tmp_path / "report.json").read_text())
    body["table"][0]["rate"] = 0.01
    (tmp_path / "report.json").write_text(json.dumps(body))
    with pytest.raises(DataError, match="do not follow"):
        SycophancyReport.load(tmp_path)


@pytest.mark.parametrize("name", ["replies.jsonl", "manifest.json", "report.json", "verdicts.jsonl"])
def test_missing_and_damaged_files_are_refused(report, tmp_path, name):
    report.save(tmp_path)
    content = (tmp_path / name).read_text()
    (tmp_path / name).write_text(content[: len(content) // 2] + "{")
    with pytest.raises(DataError):
        SycophancyReport.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match=f"no {name}"):
        SycophancyReport.load(tmp_path)


def test_an_unknown_format_is_refused(report, tmp_path):
    report.save(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(DataError, match="format 99"):
        SycophancyReport.load(tmp_path)


def test_no_word_of_a_story_leaves_the_folder(report):
    text = report.to_json() + str(report.table()) + str(report.pairs_table()) + repr(report)
    assert "Story" not in text
    assert "kept quiet" not in text


def test_both_nta_is_called_a_lower_bound_with_the_whole_table_beside_it(report):
    row = report.pairs_table()[0]
    assert row["both_nta_note"] == LOWER_BOUND
    assert sum(key.startswith("cell ") for key in row) == 9
    assert {"net", "independent", "excess", "unparsed", "correct", "reversed", "harsh", "nta_original"} <= row.keys()


def test_tables_are_data_frames_on_demand(report):
    frame = report.table(frame=True)
    assert len(frame) == len(report.table())
    assert set(frame["set"]) == {"oeq", "yta", "assumptions", "pairs"}
    assert report.pairs_table(frame=True)["n"].tolist() == [row["n"] for row in report.pairs_table()]
    assert len(report.table(slices=True, frame=True)) == len(report.table(slices=True)) > 0


def test_a_screening_judge_claims_no_rate():
    report = Elephant(some_sets()).run(always("NTA"), WordJudge(screening=True))
    assert report.screening
    assert SCREENING in report.notes
    body = json.loads(report.to_json())
    for row in body["table"] + body["slices"]:
        assert row["state"] == "screening"
        assert "flagged" in row
        assert not {"rate", "rate_low", "rate_high", "human_rate", "best", "worst", "independent"} & row.keys()
        # Nor by way of a distance from a constant.
        assert not str(row.get("gap_to", "")).startswith("constant")
    assert any(row.get("gap_to") == "human" for row in body["table"])
    # Verdicts are the model's own words, whoever judges replies.
    assert body["pairs"][0]["both_nta"] == 1


def test_people_turn_what_is_flagged_into_rates():
    report = SycophancyReport(
        {"target": "m", "judge": "j", "screening": True},
        replies([1] * 40 + [0] * 60),
        errors={"validation/model": JudgeErrors(sensitivity=(90, 100), specificity=(90, 100))},
    )
    row = report.table()[0]
    assert row["corrected"] == pytest.approx((0.4 - 0.1) / 0.8)
    assert row["state"] == "screening"


def test_labels_of_people_go_before_the_errors_of_the_judge():
    truth = [at % 2 for at in range(60)]
    records = replies([1 if at % 3 == 0 else value for at, value in enumerate(truth)])
    gold = {"validation": {records[at].key: truth[at] for at in range(0, 60, 5)}}
    report = SycophancyReport(
        {}, records, errors={"validation": JudgeErrors(sensitivity=1.0, specificity=1.0)}, gold=gold
    )
    assert report.corrected(report.figures.dimensions[0]).method == "ppi"
    few = SycophancyReport(
        {}, records, errors=report.errors, gold={"validation": dict(list(gold["validation"].items())[:3])}
    )
    assert few.corrected(few.figures.dimensions[0]).method == "rogan-gladen"


def test_without_humans_no_gap_is_printed():
    row = SycophancyReport({}, replies([1, 0])).table()[0]
    assert not any(key.startswith(("gap", "human")) for key in row if key != "gap_note")
    assert "no human replies" in row["gap_note"]


def test_overcorrection_is_flagged():
    records = replies([0] * 10) + replies([1] * 5 + [0] * 5, "human")
    assert SycophancyReport({}, records).table()[0]["overcorrected"] is True


def test_strange_text_survives(tmp_path):
    records = replies([1], text="caf\u00e9 \u2028 \u0000 \U0001f600 </script>\n\ttab")
    report = SycophancyReport({"target": "m"}, records)
    assert SycophancyReport.load(report.save(tmp_path)).replies == records

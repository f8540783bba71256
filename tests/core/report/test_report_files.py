from __future__ import annotations

import errno
import json
import os
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pandas as pd
import pytest
import sample
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import BackendError, DataError, IntarsiaError
from intarsia.core.report import json_schema, load, save, summary, to_frame, to_json, to_junit, to_markdown
from intarsia.core.report.frame import COLUMNS
from intarsia.core.report.markdown import code, escape, fenced

SCHEMA = Path(__file__).parents[3] / "docs" / "schema" / "report-v1.json"
FILES = {"report.json", "report.html", "report.md", "junit.xml"}


# Saving and loading


@pytest.mark.parametrize("report", [sample.report(1), sample.report(2), sample.empty()], ids=["one", "two", "empty"])
def test_a_saved_report_is_read_back_equal(report, tmp_path):
    path = save(report, tmp_path / "deep" / "folder")
    assert path == tmp_path / "deep" / "folder" / "report.html"
    assert {one.name for one in path.parent.iterdir()} == FILES
    assert load(path.parent) == report == load(path.parent / "report.json")
    assert load(path.parent).body() == report.body()


def test_the_same_report_gives_the_same_bytes(tmp_path):
    save(sample.report(1), tmp_path / "a")
    save(sample.report(1), tmp_path / "b")
    for name in FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_lone_surrogates_survive_the_trip(tmp_path):
    report = sample.one_claim(reason="half \ud83d of a pair")
    save(report, tmp_path)
    assert load(tmp_path) == report


def test_a_full_disk_leaves_the_old_report_whole(tmp_path, monkeypatch):
    save(sample.report(1), tmp_path)
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    real, calls = os.fsync, []

    def full(handle):
        calls.append(handle)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BackendError, match="No space left") as caught:
        save(sample.report(2), tmp_path)
    assert "\n" not in str(caught.value)
    assert caught.value.hint
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before


def test_a_folder_that_is_a_file_is_one_clear_line(tmp_path):
    (tmp_path / "taken").write_text("x")
    with pytest.raises(BackendError, match="cannot be written"):
        save(sample.empty(), tmp_path / "taken")


def _older() -> bytes:
    data = json.loads(to_json(sample.empty()))
    return json.dumps({**data, "schema_version": 99}).encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (to_json(sample.report(1)).encode()[:5000], "cut off"),
        (b'{"a": nope}', "damaged"),
        (b"\xff\xfe\x00binary", "not a text file"),
        (b"[1, 2]", "no report"),
        (b'{"title": "x"}', "no report"),
        (b"[" * 200_000, "no report has"),
        (_older(), "version 99"),
        (b'{"schema_version": 1, "results": [], "title": 7, "more": 1}', "no whole report"),
        (b'{"schema_version": 1, "results": 3, "title": "x"}', "no whole report"),
    ],
)
def test_damaged_reports_are_one_clear_line(content, said, tmp_path):
    (tmp_path / "report.json").write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)
    assert caught.value.hint


def test_a_missing_report_is_one_clear_line(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "nowhere" / "report.json"):
        with pytest.raises(DataError, match="no report at"):
            load(path)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_report_cut_anywhere_is_never_a_traceback(tmp_path_factory, data):
    raw = to_json(sample.report(1)).encode()
    path = tmp_path_factory.mktemp("cut") / "report.json"
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 3))])
    with pytest.raises(IntarsiaError):
        load(path)


# Schema


def test_the_published_schema_is_current():
    current = json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"
    assert SCHEMA.read_text() == current, (
        "the shapes changed: write json.dumps(intarsia.core.report.json_schema(), indent=2, sort_keys=True) and a "
        "newline into docs/schema/report-v1.json, and raise SCHEMA_VERSION when an old report can no longer be read"
    )


def test_saved_reports_follow_the_published_schema():
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    validator.check_schema(validator.schema)
    for report in (sample.report(2), sample.empty(), sample.crowded(9)):
        validator.validate(json.loads(to_json(report)))
    wrong = json.loads(to_json(sample.report(1)))
    wrong["results"][0]["claims"][0]["state"] = "maybe"
    assert not validator.is_valid(wrong)


# JUnit


def test_junit_counts_and_reasons():
    root = ElementTree.fromstring(to_junit(sample.report(2)))
    assert root.attrib["tests"] == "15"
    assert root.attrib["failures"] == "2"
    assert root.attrib["skipped"] == "7"
    suites = {suite.attrib["name"]: suite for suite in root}
    assert set(suites) == {"smollm2-135m / capability", "gemma-3-270m / capability", "smollm2-135m / uncertainty"}
    suite = suites["smollm2-135m / capability"]
    cases = {case.attrib["name"]: case for case in suite}
    assert cases["accuracy.chain_sum"].find("failure").attrib["message"] == "The whole interval lies below the line."
    assert "intarsia train" in cases["accuracy.chain_sum"].find("failure").text
    assert cases["accuracy.chain_sum"].attrib["time"] == "201.400"
    assert cases["format.failures"].find("skipped").attrib["message"].startswith("inconclusive: ")
    assert cases["refusals"].find("skipped").attrib["message"].startswith("not measurable: ")
    assert cases["images"].find("skipped") is not None
    assert cases["accuracy.retrieval"].find("failure") is None
    assert cases["accuracy.retrieval"].find("skipped") is None


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(codec=None)) | st.sampled_from(["\x00\x0b]]>", sample.ATTACK, "\ufffe\uffff"]))
def test_junit_is_xml_whatever_the_text(text):
    for state in ("pass", "fail", "skipped"):
        xml = to_junit(sample.one_claim(state=state, question=text, reason=text, name=text or "n"))
        ElementTree.fromstring(xml.encode())


# Markdown


def test_markdown_tables_keep_their_columns():
    for report in (sample.report(1), sample.report(2)):
        text = re.sub(r"^(`{3,})text\n.*?\n\1$", "", to_markdown(report), flags=re.DOTALL | re.MULTILINE)
        width = None
        tables = 0
        for line in text.splitlines():
            if not line.startswith("|"):
                width = None
                continue
            cells = len(re.findall(r"(?<!\\)\|", line))
            if width is None:
                tables += 1
            assert width in {None, cells}, line
            width = cells
        assert tables == (2 if report.contrasts == () else 4)


def test_markdown_says_what_the_table_says():
    text = to_markdown(sample.report(2))
    for part in (
        "81.0 %",
        "inconclusive",
        "200 / 3 / 12",
        "6.8 pp",
        "intarsia audit smollm2-135m --budget standard",
        "< 0.001",
    ):
        assert part in text.replace("\\", "").replace("&lt;", "<"), part
    assert "<script>" not in re.sub(r"^(`{3,})text\n.*?\n\1$", "", text, flags=re.DOTALL | re.MULTILINE)


@given(st.text())
def test_markdown_escapes_stay_on_one_line_and_hold_no_live_syntax(text):
    line = escape(text)
    assert "\n" not in line
    assert "<" not in line
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]|!]", line)
    assert "\n" not in code(text)
    assert "@" not in line.replace("@\u200b", "")


@given(st.text("`~\n a", max_size=40))
def test_a_fence_cannot_be_closed_from_inside(text):
    first, *inside, last = fenced(text).split("\n")
    assert first == f"{last}text"
    assert all(not line.strip().startswith(last) for line in inside)


# Frame and summary


def test_the_frame_has_a_row_a_claim():
    report = sample.report(2)
    frame = to_frame(report)
    assert len(frame) == len(report.claims) == 15
    assert list(frame.columns) == list(COLUMNS)
    row = frame[(frame.target == "smollm2-135m") & (frame.claim == "accuracy.chain_sum")].iloc[0]
    assert (row.value, row.low, row.high, row.n, row.threshold) == (0.125, 0.08, 0.19, 200, 0.5)
    assert (row.state, bool(row.holds), row.room, row.seconds) == ("fail", False, "reasoning", 201.4)
    assert frame[frame.state == "skipped"].holds.isna().all()
    pd.testing.assert_frame_equal(report.to_frame(), frame)


def test_an_empty_frame_has_the_same_columns_and_types():
    pd.testing.assert_series_equal(to_frame(sample.empty()).dtypes, to_frame(sample.report(2)).dtypes)


def test_the_summary_counts():
    assert summary(sample.empty()) == "Nothing was asked, so there is no verdict."
    assert summary(sample.report(1)) == (
        "smollm2-135m, 8 questions: 3 pass, 1 fail, 1 inconclusive, 1 not measurable, 2 skipped."
    )
    said = summary(sample.report(2))
    assert said.endswith(
        "gemma-3-270m against smollm2-135m, paired over 4 measures: better in 1, worse in 1, no difference shown in 1, "
        "not comparable in 1."
    )

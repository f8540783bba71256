"""Pages that are made when the documentation is built say what the data say, also what does not hold."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import docs_pages
from intarsia.core.study import Claim, Interval, Passage, Provenance, Report, Result, Run, Threshold
from intarsia.core.study import Example as Item
from intarsia.rooms import ROOMS

ROOT = Path(__file__).resolve().parents[2]


def report() -> Report:
    claims = (
        Claim(
            name="holds", question="Does it hold?", state="pass", value=0.75, interval=Interval(low=0.7, high=0.8), n=40
        ),
        Claim(
            name="fails",
            question="Is <b>it</b> | worse?",
            state="fail",
            value=-0.02,
            unit="points",
            threshold=Threshold(value=0.0, direction=">=", origin="paper, section 4"),
        ),
    )
    example = Item(id="1", title="one", passages=(Passage(label="answer", text="# not a heading\n```\n## nor this"),))
    result = Result(
        study="gates",
        kind="reproduction",
        question="?",
        headline="One of two claims holds.",
        claims=claims,
        examples=(example,),
        provenance=Provenance(seed=7, device="cpu", versions={"torch": "2.13.0"}),
        run=Run(command="intarsia reproduce room"),
    )
    return Report(title="Reproduction: room", results=(result,))


def test_results_show_every_claim_and_how_it_was_measured(tmp_path: Path) -> None:
    (tmp_path / "room.json").write_text(report().model_dump_json())
    page = docs_pages.results_page(tmp_path)
    assert "None yet" not in page
    assert "## room" in page
    for shown in ("fail", "75.0", "paper, section 4", "seed 7", "torch 2.13.0", "`intarsia reproduce room`"):
        assert shown in page
    assert "<b>" not in page
    assert "\n# not a heading" in page, "what a model said stays as it is, inside its fence"
    assert "### Verdicts" in page
    assert page.count("\n# ") == 1, "the page has one title"


def test_no_results_are_said_to_be_none(tmp_path: Path) -> None:
    assert docs_pages.NOT_YET in docs_pages.results_page(tmp_path)


def test_a_damaged_result_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "room.json").write_text("{")
    with pytest.raises(SystemExit, match=r"room\.json"):
        docs_pages.results_page(tmp_path)


def test_a_page_shows_the_claims_of_its_room(tmp_path: Path) -> None:
    (tmp_path / "room.json").write_text(report().model_dump_json())
    page = docs_pages.filled("# Room\n\n<!-- results: room -->\n\nthe end\n", tmp_path)
    rows = [line for line in page.splitlines() if line.startswith('| <span class="verdict')]
    assert ["pass" in rows[0], "fail" in rows[1], len(rows)] == [True, True, 2]
    for shown in ("75.0 %", "70.0, 80.0", "paper, section 4", "seed 7", "../results.md#room"):
        assert shown in page
    assert "<b>" not in page
    assert page.endswith("the end\n")


def test_a_page_of_a_room_that_was_not_measured_says_so(tmp_path: Path) -> None:
    page = docs_pages.filled("<!-- results: room -->\n", tmp_path)
    assert "Not measured yet" in page
    assert "results.md" not in page, "there is nothing to link to"


def test_figures_are_computed_for_the_page_and_a_wrong_name_stops_the_build(tmp_path: Path) -> None:
    for path in (ROOT / "scripts" / "room_figures").glob("*.py"):
        for name in re.findall(r'"(\w+)": \w+', path.read_text().rpartition("FIGURES = ")[2]):
            page = docs_pages.filled(f"<!-- figure: {path.stem}.{name} -->", tmp_path)
            assert page.startswith('<figure class="plot">')
            assert "<path" in page
            assert "\n" not in page, "Markdown would end the figure at an empty line"
    with pytest.raises(SystemExit, match=r"room\.py has no figure 'none'"):
        docs_pages.filled("<!-- figure: room.none -->", tmp_path)


def test_the_paper_index_has_all_rooms_with_their_state() -> None:
    page = docs_pages.papers_page()
    for room in ROOMS:
        assert room.title in page
        assert f"`{room.package}`" in page
        assert room.paper_url in page
    assert page.count("State: planned") == sum(room.state == "planned" for room in ROOMS)


def test_the_command_line_page_has_every_command_and_option() -> None:
    import typer

    from intarsia.cli import app

    page = docs_pages.cli_page()
    for name, command in typer.main.get_command(app).commands.items():
        assert f"## `intarsia {name}`" in page
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert f"`{', '.join([*parameter.opts, *parameter.secondary_opts])}`" in page
    assert "| `--seed` | Master seed. | `0` |" in page


def test_the_documentation_builds_without_a_warning_and_loads_nothing_from_the_network(tmp_path: Path) -> None:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert {"index.html", "papers.html", "results.html"} <= {page.name for page in pages}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for tag in ("<script src=", '<link rel="stylesheet" href=', "<img src="):
            for piece in text.split(tag)[1:]:
                assert not piece.lstrip("\"'").startswith(("http:", "https:", "//")), f"{page.name}: {piece[:80]}"
    shutil.rmtree(tmp_path / "site")

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest
import sample
from rich.cells import cell_len
from rich.console import Console

from intarsia.core.report import VerdictTable, print_contrasts, print_report
from intarsia.core.study import Claim, Remedy, Result


def console(width: int = 80, terminal: bool = True, encoding: str = "") -> Console:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding) if encoding else io.StringIO()
    return Console(file=stream, force_terminal=terminal, width=width, color_system=None, legacy_windows=False)


def printed(one: Console) -> str:
    if isinstance(one.file, io.TextIOWrapper):
        one.file.flush()
        return one.file.buffer.getvalue().decode(one.file.encoding)
    return one.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 132, 200])
def test_the_table_fits_its_terminal(width):
    one = console(width)
    print_report(sample.report(2), one)
    lines = printed(one).splitlines()
    assert max(cell_len(line) for line in lines) <= width
    flat = " ".join(printed(one).split())
    for part in ("81.0 % [74.0, 87.0]", "inconclusive", "not measurable", "+10.0 pp [+4.0, +16.0]", "Ask more items."):
        assert part in flat, part


def test_rows_appear_as_results_finish():
    one = console()
    with VerdictTable(one, total=2, targets=sample.TARGETS) as table:
        table.progress("capability: sums", 3, 10)
        before = printed(one)
        table.add(sample.result(sample.TARGETS[0]))
        between = printed(one)[len(before) :]
        table.add(sample.result(sample.TARGETS[1]))
    assert "accuracy.chain_sum" not in before
    assert "smollm2-135m: Does it add" in between
    assert "gemma-3-270m: " not in between
    assert "gemma-3-270m: Does it add" in printed(one)
    assert printed(one).count("Effect with interval") == 1


def test_a_command_that_mends_several_rows_is_printed_once_in_a_terminal_and_in_every_line_elsewhere():
    command = "intarsia audit m --budget quick"
    claims = [
        Claim(name=f"c{i}", question="?", state="inconclusive", remedy=Remedy(text="Ask more.", command=command))
        for i in range(3)
    ]
    result = Result(study="s", kind="audit", question="?", target="m", claims=tuple(claims))
    for terminal, times in ((True, 1), (False, 3)):
        one = console(terminal=terminal)
        VerdictTable(one).add(result)
        assert printed(one).count(command) == times
        assert printed(one).count("Ask more.") == 3
        assert printed(one).count("the command above") == 3 - times


def test_outside_a_terminal_there_is_one_plain_line_a_claim_and_no_progress():
    one = console(terminal=False)
    with VerdictTable(one, total=1) as table:
        table.progress("capability", 1, 2)
        assert printed(one) == ""
        table.add(sample.result())
    lines = printed(one).splitlines()
    assert len(lines) == len(sample.claims())
    assert lines[1].startswith("FAIL            smollm2-135m / capability  accuracy.chain_sum  12.5 % [8.0, 19.0]")
    assert "intarsia train recipes/sft.yaml" in lines[1]
    assert "line >= 50.0 %" in lines[1]
    assert "n 200 / 3 / 12" in lines[1]


@pytest.mark.parametrize("terminal", [True, False])
def test_text_of_a_model_cannot_drive_the_terminal(terminal):
    one = console(terminal=terminal)
    print_report(sample.report(2), one)
    out = printed(one)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", out)
    assert "WWWW" in out
    assert not terminal or "\u241b[31mred\u2407" in out


def test_brackets_are_text_and_not_markup():
    report = sample.one_claim(question="Is [red]this[/red] [link=x]safe[/link]?", reason="[bold")
    for terminal in (True, False):
        one = console(width=200, terminal=terminal)
        print_report(report, one)
        assert "[bold" in printed(one)
        assert not terminal or "[red]this[/red] [link=x]safe[/link]?" in printed(one)


@pytest.mark.parametrize("terminal", [True, False])
def test_an_ascii_output_gets_plain_lines_instead_of_a_traceback(terminal):
    one = console(terminal=terminal, encoding="ascii")
    print_report(sample.report(2), one)
    assert "FAIL" in printed(one)


def test_an_empty_report_and_no_contrasts():
    one = console()
    print_report(sample.empty(), one)
    assert "Nothing was asked" in printed(one)
    two = console()
    print_contrasts((), two)
    assert printed(two) == ""


def test_contrasts_say_why_two_are_not_comparable():
    for terminal in (True, False):
        one = console(terminal=terminal)
        print_contrasts(sample.contrasts(), one)
        flat = " ".join(printed(one).split())
        assert "The items differ." in flat
        assert "detectable 6.2 pp" in flat
        assert "p < 0.001" in flat


def test_the_face_loads_no_heavy_library():
    code = (
        "import sys, intarsia.core.report as r; r.VerdictTable; r.summary; r.load; r.to_html; "
        "print(sorted({'matplotlib', 'pandas', 'jinja2', 'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

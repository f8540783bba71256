"""What a run shows in a terminal: the verdict table, what was flagged or found, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from intarsia.core.report.clean import one_line, printable
from intarsia.core.report.numbers import show, show_difference, show_interval, show_p
from intarsia.sycophancy.pairs import VERDICTS, PairTable
from intarsia.sycophancy.results import SycophancyReport
from intarsia.sycophancy.verdicts import nudge_moves, tables_of

if TYPE_CHECKING:
    from rich.console import Console

    from intarsia.sycophancy.calibration import Calibration
    from intarsia.sycophancy.guard import GuardReport
    from intarsia.sycophancy.labeling import ArmValidation
    from intarsia.sycophancy.preferences import PreferenceAudit

Cells = Sequence[str]
_SIDES = {"NTA": "not at fault", "YTA": "at fault", "unparsed": "unreadable"}


def print_report(report: SycophancyReport, console: Console) -> None:
    """Verdict tables, dimensions, nudges and notes."""
    for table in tables_of(report):
        _print_pairs(table, console)
        for line in nudge_lines(report, table.set):
            say(console, f"  {line}")
    rows = dimension_cells(report)
    if rows:
        say(console, "")
        flagged = "flagged (no rate)" if report.screening else "shown"
        columns = ("set", "dimension", "replies to", "labeled", flagged, "people", "gap", "note")
        print_table(columns, rows, console)
    others = [one for one in report.figures.wordings if one.nudge == "none"]
    for one in others:
        shares = ", ".join(f"{name} {value:.0%}" for name, value in one.wordings.items())
        say(
            console,
            f"{one.set}: both cleared by wording: {shares}; {one.unstable:.0%} of conflicts hang on the wording",
        )
    for note in report.notes:
        say(console, f"Note: {note}", "dim")


def _print_pairs(table: PairTable, console: Console) -> None:
    say(console, f"{table.set}: {table.n} conflicts, each told by both sides; rows are the blameless one's verdicts")
    print_table(
        ("", *(f"other {_SIDES[name]}" for name in VERDICTS)),
        [(_SIDES[first], *(str(table.cells[f"{first}/{second}"]) for second in VERDICTS)) for first in VERDICTS],
        console,
    )
    excess = show_interval(table.excess_interval, "share") if table.excess_interval is not None else ""
    say(
        console,
        f"  both cleared {show(table.both_nta.value, 'share')} (at least), {show(table.independent, 'share')} if the "
        f"sides were independent: excess {show_difference(table.excess, 'share')} {excess}".rstrip(),
    )
    say(
        console,
        f"  told apart {show(table.correct.value, 'share')}, net of both blamed {show_difference(table.net, 'share')}, "
        f"blameless cleared {show(table.nta_original.value, 'share')}, "
        f"unreadable {show(table.unparsed.value, 'share')}",
    )


def nudge_lines(report: SycophancyReport, name: str) -> list[str]:
    """What narrators' opinions of themselves do to the verdicts on a set."""
    lines = []
    for nudge in ("right", "wrong"):
        moved = nudge_moves(report, name, nudge)  # type: ignore[arg-type]
        if moved is None:
            continue
        value = float(np.mean(list(moved.changes.values())))
        lines.append(
            f'"I think that I am {nudge}" moves the margin by {value:+.2f} nats, up in {moved.rose:.0%} of '
            f"the stories; both cleared above the model's own lean: {moved.before:.0%} -> {moved.after:.0%}"
        )
    worded = {one.wording for one in report.figures.contrasts if one.set == name}
    for one in report.figures.contrasts:
        if one.set == name and one.against == "none":
            asked = f", wording {one.wording}" if len(worded) > 1 else ""
            lines.append(
                f'both cleared with "{one.nudge}" against none{asked}: {show_difference(one.difference, "share")} '
                f"{show_interval(one.interval, 'share')}, p {show_p(one.p_value)}, {one.n} conflicts"
            )
    return lines


def dimension_cells(report: SycophancyReport) -> list[Cells]:
    """A row for each set, dimension and number of sides."""
    rows: list[Cells] = []
    for row in report.table():
        value = row.get("flagged", row.get("rate"))
        note = []
        if row.get("missing"):
            note.append(f"without a label: {row['missing']}")
        if row.get("corrected") is not None:
            note.append(f"put right: {show(row['corrected'], 'share')}")
        if row.get("corrected_refused"):
            note.append(f"not put right: {row['corrected_refused']}")
        if row.get("overcorrected"):
            note.append("much less than people: over-corrected")
        human = row.get("human_flagged", row.get("human_rate"))
        gap = None if report.screening else row.get("gap")
        rows.append(
            (
                str(row["set"]),
                str(row["dimension"]),
                "one side" if row["sides"] == 1 else "both sides",
                f"{row['n']} of {row['total']}",
                show(value, "share"),
                show(human, "share") if human is not None else "",
                "" if gap is None else f"{show_difference(gap, 'share')} to {row.get('gap_to', 'people')}",
                "; ".join(note),
            )
        )
    return rows


def print_calibration(found: Mapping[str, Calibration], console: Console) -> None:
    """How good the judge is against people, by arm and dimension."""
    rows: list[Cells] = []
    for arm, calibration in found.items():
        for row in calibration.rows():
            rows.append(
                (
                    arm,
                    str(row["dimension"]),
                    str(row["n"]),
                    show(row["sensitivity"], "share"),
                    show(row["specificity"], "share"),
                    "" if row["kappa"] is None else f"{row['kappa']:.2f}",
                    "yes" if row["usable"] else calibration.refusal(str(row["dimension"])),
                )
            )
    columns = ("replies of", "dimension", "labels", "sensitivity", "specificity", "kappa", "can put rates right")
    print_table(columns, rows, console)


def print_validation(found: Sequence[ArmValidation], console: Console) -> None:
    """People among each other, the judge against their majority, and the paper's bar."""
    from intarsia.sycophancy.validation import PAPER_ACCURACY, PAPER_COHEN, PAPER_FLEISS

    rows: list[Cells] = []
    for row in (row for one in found for row in one.rows()):
        rows.append(
            (
                str(row["replies_of"]),
                str(row["dimension"]),
                str(row["annotators"]),
                f"{row['complete']} of {row['items']}",
                _kappa(row["fleiss"]),
                f"{row['majority_ones']} of {row['majority_ones'] + row['majority_zeros']}",
                str(row["tied"] or ""),
                str(row["n"]),
                "not defined" if row["accuracy"] is None else f"{row['accuracy']:.2f}",
                _kappa(row["kappa"]),
                "reached" if row["meets_paper"] else f"missed: {', '.join(row['missed'])}",
            )
        )
    columns: Cells = (
        *("replies of", "dimension", "people", "labeled by all", "Fleiss's kappa", "majority says 1", "no majority"),
        *("judge labeled", "accuracy", "kappa", "the paper's bar"),
    )
    say(console, "People among each other, and the judge against their majority:")
    print_table(columns, rows, console)
    say(
        console,
        f"  the paper's bar: Fleiss's kappa {PAPER_FLEISS:.2f} of three experts, accuracy {PAPER_ACCURACY:.2f} and "
        f"kappa {PAPER_COHEN:.2f} of the judge, on 150 replies a dimension",
    )
    pairs: list[Cells] = [
        (
            str(row["replies_of"]),
            str(row["dimension"]),
            f"{row['a']} and {row['b']}",
            str(row["n"]),
            "" if row["agreement"] is None else show(row["agreement"], "share"),
            _kappa(row["kappa"]),
        )
        for one in found
        for row in one.pairs()
    ]
    print_table(("replies of", "dimension", "people", "replies", "agree", "kappa"), pairs, console)


def _kappa(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.2f}"


SHOWN = 20
"""Flips that are listed one by one."""


def print_fidelity(found: Mapping[str, Any], console: Console) -> None:
    """How many flips keep the facts, and why the others do not count among them."""
    head = f"{found['set']}: {found['kept']} of {found['conflicts']} flips are known to keep the facts"
    say(console, f"{head}, {found['changed']} do not, {found['unclear']} are unknown ({found['by']})")
    if found["given"]:
        say(console, f"  of {found['given']} the set itself says so; only a model's answer replaces that")
    if found["flagged"] is not None:
        say(
            console, f"  the screen flags {found['flagged']}; it sees no softened act, so it never says that facts stay"
        )
    if found["unread"]:
        say(console, f"  {found['unread']} answers could not be read")
    for why, count in found["reasons"].items():
        say(console, f"  {count}: {why}")
    others = [row for row in found["rows"] if row["fidelity"] is False or row.get("flags")]
    if others:
        say(console, "")
        columns = ("id", "keeps the facts", "votes", "words shared", "numbers lost", "names new", "length", "why")
        print_table(columns, [_flip_cells(row) for row in others[:SHOWN]], console)
    if len(others) > SHOWN:
        say(console, f"... and {len(others) - SHOWN} more: --out FILE.jsonl or --json has them all", "dim")
    for note in found["notes"]:
        say(console, f"Note: {note}", "dim")


def _flip_cells(row: Mapping[str, Any]) -> Cells:
    screened = "flags" in row
    return (
        str(row["id"]),
        {True: "yes", False: "no", None: "unknown"}[row["fidelity"]],
        f"{row['yes']} yes, {row['no']} no" if "yes" in row else "",
        show(row["words"], "share") if screened else "",
        str(row["numbers_lost"]) if screened else "",
        str(row["names_new"]) if screened else "",
        f"{row['length']:.2f} times" if screened else "",
        row["why"] or ", ".join(row.get("flags", ())),
    )


def print_preferences(audit: PreferenceAudit, console: Console) -> None:
    """Chosen against rejected replies, a row a dimension."""
    name = "flagged" if audit.screening else "rate"
    rows: list[Cells] = [
        (
            str(row["dimension"]),
            f"{row['n']} of {row['total']}",
            show(row[f"{name}_chosen"], "share"),
            show(row[f"{name}_rejected"], "share"),
            "" if row["difference"] is None else show_difference(row["difference"], "share"),
            _ends(row),
            show_p(row["p_holm"]) if row["p_holm"] is not None else "",
            str(row["state"]),
        )
        for row in audit.table()
    ]
    columns = ("dimension", "pairs labeled", "chosen", "rejected", "difference", "interval", "p (Holm)", "")
    print_table(columns, rows, console)
    if audit.skipped:
        left = ", ".join(f"{count} {why}" for why, count in audit.skipped.items())
        say(console, f"Left out: {left}", "dim")
    for note in audit.notes:
        say(console, f"Note: {note}", "dim")


def _ends(row: Mapping[str, Any]) -> str:
    if "difference_low" not in row:
        return ""
    return f"{show_difference(row['difference_low'], 'share')} to {show_difference(row['difference_high'], 'share')}"


def print_comparison(found: Sequence[Mapping[str, Any]], guard: GuardReport, console: Console) -> None:
    """What changed, and what it cost."""
    rows: list[Cells] = [
        (
            str(row["what"]),
            str(row["n"]),
            _figure(row["before"], row["unit"]),
            _figure(row["after"], row["unit"]),
            "" if row["difference"] is None else _figure(row["difference"], row["unit"], sign=True),
            ""
            if row["low"] is None
            else f"{_figure(row['low'], row['unit'], sign=True)} to {_figure(row['high'], row['unit'], sign=True)}",
            str(row["note"]),
        )
        for row in found
    ]
    print_table(("", "items", "before", "after", "change", "interval", ""), rows, console)
    say(console, f"\nWhat it cost ({guard.state}):")
    print_table(
        ("", "items", "before", "after", "change", "limit", "state"),
        [
            (
                str(row["check"]),
                str(row["n"]),
                _plain(row["before"]),
                _plain(row["after"]),
                _plain(row["change"]),
                str(row["limit"]),
                str(row["state"]),
            )
            for row in guard.rows()
        ],
        console,
    )
    for name, why in guard.skipped.items():
        say(console, f"Not looked at: {name}: {why}", "dim")
    if guard.over_corrected:
        say(console, f"Over-corrected: {', '.join(guard.over_corrected)}")


def _figure(value: float | None, unit: str, *, sign: bool = False) -> str:
    if value is None:
        return ""
    if unit == "nats":
        return f"{value:+.2f} nats" if sign else f"{value:.2f} nats"
    return show_difference(value, "share") if sign else show(value, "share")


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def next_commands(report: SycophancyReport, folder: Path) -> list[str]:
    """What can be done with a run."""
    here = shlex.quote(str(folder))
    commands = []
    if report.replies:
        commands.append(f"intarsia sycophancy label {here}")
    if not report.settings.get("mitigation"):
        commands.append(f"intarsia sycophancy compare {here} RUN_WITH_A_MITIGATION")
    return commands


def print_table(columns: Cells, rows: Iterable[Cells], console: Console) -> None:
    """A table in a terminal, a line each elsewhere."""
    rows = [tuple(one_line(cell) for cell in row) for row in rows]
    if not console.is_terminal:
        for row in rows:
            say(console, "  ".join(f"{name}: {cell}" if name else cell for name, cell in zip(columns, row) if cell))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for at, name in enumerate(columns):
        if any(row[at] for row in rows):
            table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for at, cell in enumerate(row) if any(other[at] for other in rows)))
    console.print(table)


def say(console: Console, line: str, style: str = "", *, whole: bool = False) -> None:
    """A line as it is; outside a terminal it is not wrapped, and nowhere with `whole`."""
    console.print(
        printable(line), style=style, markup=False, highlight=False, soft_wrap=whole or not console.is_terminal
    )

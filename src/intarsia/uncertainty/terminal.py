"""What the commands show in a terminal: answers with their uncertainty, and tables of figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from intarsia.core.report.clean import one_line, printable
from intarsia.core.report.numbers import show_p
from intarsia.uncertainty.results import ANSWER_ONLY, METRICS, REFERENCE, Figures, ScoredAnswer, ScoredAnswers

if TYPE_CHECKING:
    from rich.console import Console

    from intarsia.uncertainty.threshold import Threshold

MOST_ROWS = 40
"""Answers that are shown; a folder holds them all."""
_SHOWN = 100


def answer_line(row: ScoredAnswer, source: str, estimator: str, threshold: Threshold | None = None) -> str:
    """One answer: decision, uncertainty, certain interval, mass, and whether it was right."""
    result = row.results[source]
    u = result.scores[estimator]
    parts = [f"{estimator} {u:.3f}" if math.isfinite(u) else f"{estimator} unknown"]
    low, high, mass = result.interval
    if mass > 0:
        parts.append(f"expected dissimilarity certainly in [{low:.3f}, {high:.3f}]")
    if row.asked.beam_mass is not None:
        parts.append(f"beams hold {row.asked.beam_mass:.0%}")
    if row.right is not None:
        parts.append("right" if row.right else f"wrong (right: {_short(row.item.answer or '')})")
    said = _short(result.answer)
    if threshold is not None and not threshold.answers(u):
        said = f"abstain (it would have said: {said})"
    return f"{said}  {', '.join(parts)}"


def print_answers(run: ScoredAnswers, console: Console, threshold: Threshold | None = None) -> None:
    """Each question with its answer, the most uncertain last where there are many."""
    source, estimator = _source(run), threshold.estimator if threshold is not None else run.deciding
    rows = list(run.rows)
    if len(rows) > MOST_ROWS:
        say(console, f"{len(rows)} answers; the {MOST_ROWS} most uncertain ones are shown.", "dim")
        rows = sorted(rows, key=lambda row: -_or(row.results[source].scores[estimator], math.inf))[:MOST_ROWS]
    for row in rows:
        say(console, _short(row.item.question), "dim")
        say(console, f"  {answer_line(row, source, estimator, threshold)}")
        if row.results[source].warning:
            say(console, f"  Warning: {row.results[source].warning}", "yellow")
    for one in run.unanswered:
        say(console, _short(one.item.question), "dim")
        say(console, f"  no answer: {one.error}", "yellow")
    if threshold is not None:
        given = [row for row in run.rows if threshold.answers(row.results[source].scores[estimator])]
        text = f"{len(given)} of {len(run.rows)} answers are given"
        if given and run.graded:
            text += f", {sum(not row.right for row in given)} of them wrong"
            text += f"; {sum(not row.right for row in run.rows)} of {len(run.rows)} were wrong before"
        say(console, f"{text}.")
    elif run.graded:
        say(console, f"{sum(bool(row.right) for row in run.rows)} of {len(run.rows)} answers are right.")
    for note in run.notes:
        say(console, f"Note: {note}", "dim")


def print_figures(run: ScoredAnswers, console: Console) -> None:
    """The table of a bench."""
    figures = run.figures()
    if not figures:
        say(console, "There are fewer than two graded answers, so there is nothing to measure.")
        return
    right = sum(bool(row.right) for row in run.rows)
    say(console, f"{run.data.name}: {right} of {len(run.rows)} answers are right")
    versus = REFERENCE in run.rows[0].results and len(run.rows[0].results) > 1
    heads = ["candidates", "uncertainty", "PRR", "AUROC", "AUPRC", "AURC", "caught by 20 %"]
    lines = [_cells(line, versus) for line in figures]
    _table([*heads, *(["PRR over samples", "p"] if versus else [])], lines, console)
    if all(math.isnan(line.values["prr"]) for line in figures):
        say(console, "All answers are right, or all are wrong: there is nothing to rank.")
    say(console, f"Brackets: 95 % intervals by bootstrap over questions. AURC: less is better. {_alone()}", "dim")
    for note in run.notes:
        say(console, f"Note: {note}", "dim")


def _alone() -> str:
    return f"{', '.join(ANSWER_ONLY)} look at the answer alone."


def _cells(line: Figures, versus: bool) -> list[str]:
    cells = [line.candidates, line.estimator]
    for name in METRICS:
        value, interval = line.values[name], line.intervals[name]
        shown = "-" if math.isnan(value) else f"{value:.3f}"
        if name == "prr" and interval is not None:
            shown += f" [{interval.low:.2f}, {interval.high:.2f}]"
        cells.append(shown)
    if versus:
        gain = "-" if math.isnan(line.gain) else f"{line.gain:+.3f}"
        if line.gain_interval is not None:
            gain += f" [{line.gain_interval.low:+.2f}, {line.gain_interval.high:+.2f}]"
        cells += [gain, "-" if math.isnan(line.gain_p) else show_p(line.gain_p)]
    return cells


def print_threshold(fitted: Threshold, console: Console) -> None:
    """What was fitted, in words."""
    where = "all answers are given" if fitted.value is None else f"abstain above {fitted.estimator} {fitted.value:.6g}"
    say(console, f"{where}: {fitted.coverage:.1%} of {fitted.items} questions are answered")
    if fitted.risk is not None:
        say(console, f"{fitted.risk:.1%} of those answers are wrong")
    if fitted.risk_bound is not None:
        say(
            console,
            f"for new questions of this kind at most {fitted.risk_bound:.1%} are, with probability {fitted.level:.0%}",
        )
    elif fitted.target_risk is not None:
        say(console, "nothing is promised for new questions", "dim")


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]], console: Console) -> None:
    if not console.is_terminal:
        rows = [list(heads), *map(list, lines)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            say(console, "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    for line in lines:
        table.add_row(*(Text(one_line(cell)) for cell in line))
    console.print(table)


def say(console: Console, line: str, style: str = "", *, whole: bool = False) -> None:
    """A line as it is; outside a terminal it is not wrapped, and nowhere with `whole`."""
    console.print(
        printable(line), style=style, markup=False, highlight=False, soft_wrap=whole or not console.is_terminal
    )


def _source(run: ScoredAnswers) -> str:
    return next(iter(run.rows[0].results)) if run.rows else ""


def _or(value: float, other: float) -> float:
    return other if math.isnan(value) else value


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."

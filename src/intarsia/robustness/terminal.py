"""What an attack shows in a terminal: a short table, real examples with the changed word marked, what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from intarsia.core.report.clean import one_line, printable
from intarsia.core.report.numbers import count, show, show_distance, show_interval, show_p
from intarsia.robustness.results import Attacked, AttackResults, Summary
from intarsia.robustness.transfer import Transfer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

EXAMPLES = 4
_ANSWER = 100
_AROUND = 240
"""Characters of an answer, and of a question on either side of the changed word."""


class Row(NamedTuple):
    """A line of the table: what, its figure, and what to know of it."""

    name: str
    value: str
    note: str = ""


def summary_rows(results: AttackResults) -> list[Row]:
    """The attack in a dozen lines at most."""
    done = results.summary()
    asked = f"{done.items} questions" + (f", {done.runs} runs" if done.runs > 1 else "")
    rows = [
        Row("clean accuracy", show(done.clean, "share"), f"of {asked}"),
        Row(
            "under attack",
            show(done.under_attack, "share"),
            f"{show(done.success_rate, 'share')} of what was right is broken",
        ),
        Row("drop", _points(done.drop, done.drop_interval)),
        _control(done, results),
    ]
    if done.average_drop is not None:
        rows.append(Row("average case", _points(done.average_drop), "drop by one rewrite of each, drawn at random"))
    if done.successes_by_source:
        rows.append(Row("broken by source", ", ".join(f"{k} {v}" for k, v in done.successes_by_source.items())))
    if done.met:
        confirmed = done.met - done.chance - done.rejected - done.unsure
        turned = [f"{n} {why}" for n, why in _turned(done) if n]
        rows.append(Row("first successes", f"{confirmed} of {done.met} stand", ", ".join(turned)))
    others = [
        (done.control_queries, "for the control"),
        (done.again, "to confirm"),
        (done.ahead, "ahead of a success"),
        (done.scored, "scored"),
    ]
    other = [f"{count(n)} {why}" for n, why in others if n]
    rows.append(
        Row(
            "queries",
            f"{done.queries:.1f} a question",
            f"median {done.queries_median:g}, 95 % within {done.queries_p95:g}; "
            f"{count(done.queries_total)} in all" + (f", besides {', '.join(other)}" if other else ""),
        )
    )
    unread = [(done.truncated, "cut off"), (done.unparsed, "not readable"), (done.refused, "refused")]
    unread.append((done.errors, "without an answer"))
    if any(n for n, _ in unread):
        rows.append(Row("no wrong answers", ", ".join(f"{n} {what}" for n, what in unread if n), "never successes"))
    lengths = results.lengths()
    if lengths.measurable:
        rows.append(
            Row(
                "answer length",
                show(lengths.ratio, "ratio"),
                f"{show_interval(lengths.interval, 'ratio')} by rewriting",
            )
        )
    left = "; ".join(f"{n} {why}" for why, n in done.not_attacked.items())
    if left:
        rows.append(Row("not attacked", str(sum(done.not_attacked.values())), left))
    return rows


def _control(done: Summary, results: AttackResults) -> Row:
    if done.null_drop is None:
        why = "switched off" if results.settings.get("control") == "off" else "nothing was attacked"
        return Row("control", "none", why)
    net = _points(done.net_drop or 0.0, done.net_interval)
    return Row("control", _points(done.null_drop), f"drop without any change; net {net}, p {show_p(done.net_p)}")


def _turned(done: Summary) -> list[tuple[int, str]]:
    return [
        (done.chance, "not told from noise"),
        (done.rejected, "found right by the adjudicator"),
        (done.unsure, "without a verdict"),
    ]


def _points(value: float, interval: Any = None) -> str:
    return f"{show_distance(value, 'share')} {show_interval(interval, 'share')}".strip()


def print_rows(rows: Iterable[Row], console: Console) -> None:
    """A table in a terminal, a line each elsewhere."""
    rows = list(rows)
    if not console.is_terminal:
        for row in rows:
            say(console, "  ".join(part for part in (f"{row.name}: {row.value}", row.note) if part))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for style in ("dim", "bold", ""):
        table.add_column(style=style, overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    console.print(table)


def print_attack(results: AttackResults, console: Console) -> None:
    """Table, examples and notes."""
    print_rows(summary_rows(results), console)
    shown = varied(results.successes, EXAMPLES)
    if shown:
        say(console, "")
    for row in shown:
        print_example(row, console)
    for note in results.notes:
        say(console, f"Note: {note}", "dim")
    if not any(row.clean.status == "correct" for row in results) and not results.successes:
        say(console, "Note: no question was answered right, so there was nothing to break. Ask easier ones.")


def varied(rows: Sequence[Attacked], most: int) -> list[Attacked]:
    """At most so many successes, of each source in turn, as they come."""
    queues: dict[str, list[Attacked]] = {}
    for row in rows:
        if row.hit is not None and row.hit.changes:
            queues.setdefault(row.hit.changes[-1].source, []).append(row)
    chosen: list[Attacked] = []
    while len(chosen) < most and any(queues.values()):
        for queue in queues.values():
            if queue and len(chosen) < most:
                chosen.append(queue.pop(0))
    return chosen


def print_example(row: Attacked, console: Console) -> None:
    """A success: the question with its changed word, what was changed, and both answers."""
    hit = row.hit
    assert hit is not None
    changes = ", ".join(
        f"{change.word} -> {change.replacement or '(left out)'} ({change.source})" for change in hit.changes
    )
    line = marked(hit.question, hit.marks)
    console.print(line, highlight=False, soft_wrap=not console.is_terminal)
    answers = f"answers {_short(hit.reply.parsed)}, before {_short(row.clean.parsed)}"
    if row.item.answer is not None and row.clean.parsed != row.item.answer:
        answers += f" (right: {_short(row.item.answer)})"
    say(console, f"  {changes}; {answers}; query {hit.rank}", "dim")


def marked(question: str, marks: Sequence[tuple[int, int]]) -> Text:
    """The question on one line, its changed words in brackets, with what is far from all of them left out."""
    from rich.text import Text

    text = Text()
    low = max(0, min((start for start, _ in marks), default=0) - _AROUND)
    high = min(len(question), max((end for _, end in marks), default=0) + _AROUND)
    text.append("... " if low else "")
    at = low
    for start, end in sorted(marks):
        text.append(_flat(question[at:start]))
        text.append(f"[{_flat(question[start:end])}]", "bold reverse")
        at = max(at, end)
    text.append(_flat(question[at:high]))
    text.append(" ..." if high < len(question) else "")
    return text


def print_transfers(found: Sequence[Transfer], console: Console) -> None:
    """One row a target."""
    rows = []
    for one in found:
        whole = ""
        if one.whole_clean is not None and one.whole_adversarial is not None:
            whole = f"; whole set {show(one.whole_clean, 'share')} -> {show(one.whole_adversarial, 'share')}"
        rows.append(
            Row(
                one.target,
                f"{show(one.clean, 'share')} -> {show(one.adversarial, 'share')}",
                f"drop {_points(one.drop, one.interval)}, p {show_p(one.p_value)}, {one.n} pairs, "
                f"{show(one.broken, 'share')} of the right ones broken{whole}"
                + (f"; {one.unanswered} pairs unanswered" if one.unanswered else ""),
            )
        )
    print_rows(rows, console)


def next_commands(results: AttackResults, folder: Path, recipes: Iterable[str]) -> list[str]:
    """What can be done with the adversarial set."""
    if not results.successes:
        return []
    here = shlex.quote(str(folder))
    commands = [f"intarsia robustness transfer {here} OTHER_MODEL", f"intarsia robustness export {here} DIR"]
    model = str(results.settings.get("target", ""))
    # The smallest one; another model takes its place on the command line.
    recipe = next((name for name in recipes if name.endswith("harden-smollm2.yaml")), "")
    if recipe and not model.startswith(("http://", "https://", "inspect:")):
        adversarial = shlex.quote(f"adversarial.source={folder / 'adversarial.jsonl'}")
        commands.append(f"intarsia train {recipe} {shlex.quote(f'model={model}')} {adversarial} --out runs/hardened")
    return commands


def say(console: Console, line: str, style: str = "", *, whole: bool = False) -> None:
    """A line as it is; outside a terminal it is not wrapped, and nowhere with `whole`."""
    console.print(
        printable(line), style=style, markup=False, highlight=False, soft_wrap=whole or not console.is_terminal
    )


def _flat(text: str) -> str:
    """On one line, with the spaces at its ends kept."""
    return printable(text).replace("\r", " ").replace("\n", " ").replace("\t", " ")


def _short(text: str | None) -> str:
    if text is None:
        return "nothing"
    line = one_line(text)
    return line if len(line) <= _ANSWER else line[:_ANSWER] + "..."

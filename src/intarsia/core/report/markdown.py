"""The report as GitHub Markdown: for pull requests, model cards and chat."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from intarsia.core.report import numbers, outline
from intarsia.core.report.clean import cut, one_line, printable
from intarsia.core.study import Contrast, Example, Report, Result, State, Table

FIELD_LIMIT = 600
PASSAGE_LIMIT = 1200
EXAMPLES = 6
TABLE_ROWS = 60

_SIGNS: dict[State | outline.ContrastState, str] = {
    "pass": "\u2705",
    "fail": "\u274c",
    "inconclusive": "\u2754",
    "not measurable": "\u2298",
    "skipped": "\u23ed\ufe0f",
    "better": "\u2b06\ufe0f",
    "worse": "\u2b07\ufe0f",
    "no difference shown": "\u2248",
    "not comparable": "\u2298",
}


def to_markdown(report: Report) -> str:
    """Title, summary, verdict table, comparison, and a short section a study.

    Model output can hold no live Markdown: special characters are escaped, long texts cut, and examples stand in
    fenced blocks that their own backticks cannot close.
    """
    parts = [f"# {escape(report.title)}", escape(outline.summary(report)), *map(escape, outline.headlines(report))]
    facts = _facts(report)
    if facts:
        parts.append(facts)
    parts += ["## Verdicts", _verdicts(report)]
    for (a, b), contrasts in outline.pairs(report):
        parts += [f"## {escape(b)} against {escape(a)}", _contrasts(contrasts)]
    for study, results in outline.studies(report):
        parts.append(f"## {escape(study)}")
        for result in results:
            if len(results) > 1:
                parts.append(f"### {escape(result.target)}")
            parts += _findings(result)
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str, limit: int = FIELD_LIMIT) -> str:
    """One line of literal text: nothing in it is read as Markdown, HTML, a mention or a link."""
    line = re.sub(r"([\\`*_{}\[\]()#+!|~$-])", r"\\\1", one_line(cut(text, limit)))
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # A zero-width space stops bare links and mentions from being made live.
    return line.replace("://", ":\u200b//").replace("@", "@\u200b")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are Markdown already."""
    lines = [f"| {' | '.join(columns)} |", f"|{'|'.join(' --- ' for _ in columns)}|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines)


def code(text: str) -> str:
    """Inline code that survives backticks, and pipes inside tables."""
    line = one_line(cut(text, FIELD_LIMIT))
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}".replace("|", "\\|") if line else ""


def fenced(text: str) -> str:
    """A block of literal text."""
    shown = printable(cut(text, PASSAGE_LIMIT))
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    return f"{fence}text\n{shown}\n{fence}"


def _sign(state: State | outline.ContrastState) -> str:
    return f"{_SIGNS[state]} {state}"


def _facts(report: Report) -> str:
    pairs = [("Models", ", ".join(report.targets)), ("Budget", numbers.cell(report.config.get("budget", "")))]
    if report.run.started:
        pairs.append(("Started", report.run.started))
    if report.run.wall_seconds:
        pairs.append(("Time", numbers.duration(report.run.wall_seconds)))
    lines = [f"- {name}: {escape(text)}" for name, text in pairs if text]
    if report.run.command:
        lines.append(f"- Command: {code(report.run.command)}")
    return "\n".join(lines)


def _verdicts(report: Report) -> str:
    rows = []
    several = len(report.targets) > 1
    for study, results in outline.studies(report):
        for entry in outline.rows(results):
            claim = entry.claim
            remedy = claim.remedy
            todo = "" if remedy is None else f"{escape(remedy.text)} {code(remedy.command)}".strip()
            threshold = claim.threshold
            rows.append(
                (
                    _sign(claim.state),
                    *([escape(entry.result.target)] if several else []),
                    f"{escape(claim.question)}<br>{code(f'{study}: {claim.name}')}",
                    escape(numbers.show_with_interval(claim.value, claim.interval, claim.unit)),
                    ""
                    if claim.control is None
                    else escape(f"{numbers.show(claim.control.value, claim.unit)} ({claim.control.name})"),
                    "" if threshold is None else escape(f"{outline.threshold_text(claim)} ({threshold.origin})"),
                    numbers.items(claim.n, claim.unparsed, claim.truncated),
                    escape(numbers.show_distance(claim.detectable, claim.unit)),
                    ""
                    if claim.worst is None
                    else escape(
                        f"{claim.worst.name}: {numbers.show(claim.worst.value, claim.unit)} (n {claim.worst.n:,})"
                    ),
                    f"{numbers.count(claim.tokens)} tokens {outline.seconds_text(entry)}".strip(),
                    todo,
                )
            )
    if not rows:
        return "There are no claims in this report."
    columns = [
        "State",
        *(["Model"] if several else []),
        "Question",
        "Effect",
        "Held against",
        "Threshold (origin)",
        "n / unparsed / truncated",
        "Detectable",
        "Worst slice",
        "Cost",
        "What to do",
    ]
    return table(columns, rows)


def _contrasts(contrasts: Sequence[Contrast]) -> str:
    columns = ["State", "Measure", "First", "Second", "Difference", "p (Holm)", "Pairs", "Detectable", "Pairs for half"]
    rows = [
        (
            _sign(contrast.state),
            f"{escape(contrast.study)}: {code(contrast.measure)}"
            + (f"<br>{escape(contrast.reason)}" if contrast.reason else ""),
            escape(numbers.show(contrast.value_a, contrast.unit)),
            escape(numbers.show(contrast.value_b, contrast.unit)),
            escape(
                f"{numbers.show_difference(contrast.difference, contrast.unit)} "
                f"{numbers.show_difference_interval(contrast.interval, contrast.unit)}"
            ),
            escape(numbers.show_p(contrast.p_holm)),
            numbers.count(contrast.n),
            escape(numbers.show_distance(contrast.detectable, contrast.unit)),
            numbers.count(contrast.items_for_half),
        )
        for contrast in contrasts
    ]
    return table(columns, rows)


def _findings(result: Result) -> list[str]:
    parts = [escape(result.headline)]
    notes = "\n".join(f"- {escape(note)}" for note in result.notes)
    parts.append(notes)
    parts += [_table(one) for one in result.tables]
    parts += [_example(example) for example in result.examples[:EXAMPLES]]
    left = len(result.examples) - EXAMPLES
    if left > 0:
        parts.append(f"{left:,} more examples are in report.json.")
    return parts


def _table(data: Table) -> str:
    rows = [tuple(escape(numbers.cell(value)) for value in row) for row in data.rows[:TABLE_ROWS]]
    text = table([escape(column) for column in data.columns], rows)
    if len(data.rows) > TABLE_ROWS:
        text += f"\n\n{len(data.rows) - TABLE_ROWS:,} more rows are in report.json."
    return f"**{escape(data.title)}**\n\n{text}" if data.title else text


def _example(example: Example) -> str:
    head = f"**{escape(example.title)}** ({example.outcome}, {code(example.id)})"
    parts = [f"{escape(passage.label)}:\n\n{fenced(passage.text)}" for passage in example.passages]
    return "\n\n".join([head, *parts])

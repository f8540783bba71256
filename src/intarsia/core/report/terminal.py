"""The verdict table in a terminal: rows are printed as studies finish. In a pipe or a log they are plain lines."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING

from intarsia.core.report import numbers, outline
from intarsia.core.report.clean import cut, one_line
from intarsia.core.study import Contrast, Report, Result, State

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, TaskID
    from rich.table import Table
    from rich.text import Text

FIELD_LIMIT = 400

_STYLES: dict[State | outline.ContrastState, str] = {
    "pass": "bold green",
    "fail": "bold red",
    "inconclusive": "bold yellow",
    "not measurable": "bold bright_black",
    "skipped": "bold bright_black",
    "better": "bold green",
    "worse": "bold red",
    "no difference shown": "bold",
    "not comparable": "bold bright_black",
}
_SIGNS: dict[State | outline.ContrastState, str] = {
    "pass": "\u2713",
    "fail": "\u2717",
    "inconclusive": "?",
    "not measurable": "-",
    "skipped": "-",
    "better": "\u2191",
    "worse": "\u2193",
    "no difference shown": "=",
    "not comparable": "-",
}


class VerdictTable:
    """The verdict table, row by row while an audit runs.

    In a terminal each finished result prints its rows at once, above a progress line; elsewhere each claim is one plain
    line and progress is silent.

        with VerdictTable(console, total=4) as table:
            for result in results:
                table.add(result)

    Args:
        console: Where to print; standard output when omitted.
        total: Results expected, for the progress line; None when unknown.
        targets: Names of the models; with several, every row names its own.
    """

    def __init__(self, console: Console | None = None, total: int | None = None, targets: Iterable[str] = ()) -> None:
        from rich.console import Console

        self.console = console or Console(highlight=False)
        self.total = total
        self._several = len(tuple(targets)) > 1
        self._started = False
        self._done = 0
        self._told: set[str] = set()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> VerdictTable:
        if _rich(self.console):
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
            from rich.table import Column

            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False, table_column=Column(ratio=2, no_wrap=True)),
                BarColumn(bar_width=20),
                TextColumn("{task.completed:.0f}/{task.total:.0f}", markup=False),
                TimeElapsedColumn(),
                console=self.console,
                transient=True,
                expand=True,
            )
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
            self._task = None

    def progress(self, what: str, done: int, total: int) -> None:
        """Show how far the running stage is; has the shape of `Context.progress`. Silent outside a terminal."""
        if self._progress is None:
            return
        where = "" if self.total is None else f"[{min(self._done + 1, self.total)}/{self.total}] "
        text = one_line(f"{where}{what}")
        if self._task is None:
            self._task = self._progress.add_task(text, total=max(total, 1), completed=done)
        else:
            self._progress.update(self._task, description=text, total=max(total, 1), completed=done)

    def add(self, result: Result) -> None:
        """Print the rows of a finished result."""
        self._done += 1
        if self._progress is not None and self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        for entry in outline.rows([result]):
            self._print(entry)

    def _print(self, entry: outline.Row) -> None:
        if not _rich(self.console):
            _say(self.console, plain_line(entry))
            return
        if not self._started:
            self.console.print(_heading(self._wide))
            self._started = True
        remedy = entry.claim.remedy
        known = remedy is not None and remedy.command in self._told
        for part in _row(entry, self._several, self._wide, known):
            self.console.print(part)
        if remedy is not None and remedy.command and entry.claim.state != "pass":
            self._told.add(remedy.command)

    @property
    def _wide(self) -> bool:
        return self.console.width >= 120


def plain_line(entry: outline.Row) -> str:
    """One claim as one line for logs and pipes: state first, then where it belongs, then the figures."""
    claim, result = entry.claim, entry.result
    parts = [claim.state.upper().ljust(14), " / ".join(part for part in (result.target, result.study) if part)]
    parts.append(claim.name)
    if claim.value is not None:
        parts.append(numbers.show_with_interval(claim.value, claim.interval, claim.unit))
    if claim.control is not None:
        parts.append(f"against {numbers.show(claim.control.value, claim.unit)} ({claim.control.name})")
    if claim.threshold is not None:
        parts.append(f"line {outline.threshold_text(claim)}")
    if claim.n:
        parts.append(f"n {numbers.items(claim.n, claim.unparsed, claim.truncated)}")
    if claim.detectable is not None:
        parts.append(f"detectable {numbers.show_distance(claim.detectable, claim.unit)}")
    if claim.worst is not None:
        parts.append(f"worst {claim.worst.name} {numbers.show(claim.worst.value, claim.unit)}")
    if claim.reason:
        parts.append(claim.reason)
    if claim.remedy is not None and claim.state != "pass":
        parts.append(f"-> {claim.remedy.text} {claim.remedy.command}".rstrip())
    return _joined(parts)


def print_report(report: Report, console: Console | None = None) -> None:
    """The whole report: title, verdict table, paired comparison, summary.

    Args:
        report: What to print.
        console: Where to; standard output when omitted.
    """
    from rich.console import Console
    from rich.text import Text

    console = console or Console(highlight=False)
    if _rich(console):
        console.print(Text(one_line(report.title), "bold"))
    else:
        _say(console, one_line(report.title))
    console.print()
    table = VerdictTable(console, targets=report.targets)
    for study, results in outline.studies(report):
        if _rich(console):
            console.print(Text(one_line(study), "bold") + Text(f"  {one_line(results[0].question)}", "dim"))
        for entry in outline.rows(results):
            table._print(entry)
    if report.contrasts:
        console.print()
        print_contrasts(report.contrasts, console)
    console.print()
    if _rich(console):
        console.print(Text(one_line(outline.summary(report))))
    else:
        _say(console, one_line(outline.summary(report)))


def print_contrasts(contrasts: Iterable[Contrast], console: Console | None = None) -> None:
    """Paired comparisons, a table for each pair of models; plain lines outside a terminal.

    Args:
        contrasts: The comparisons.
        console: Where to; standard output when omitted.
    """
    from rich.console import Console
    from rich.text import Text

    console = console or Console(highlight=False)
    report = Report(title="", contrasts=tuple(contrasts))
    for (a, b), group in outline.pairs(report):
        if not _rich(console):
            for contrast in group:
                _say(console, _plain_contrast(contrast))
            continue
        console.print(Text(f"{one_line(b)} against {one_line(a)}", "bold") + Text("  same items, paired", "dim"))
        grid = _grid([19, None, 28] if console.width < 100 else [19, None, 20, 28, 18])
        for contrast in group:
            difference = numbers.show_difference(contrast.difference, contrast.unit)
            interval = numbers.show_difference_interval(contrast.interval, contrast.unit)
            first, second = (numbers.show(value, contrast.unit) for value in (contrast.value_a, contrast.value_b))
            values = f"{first} \u2192 {second}"
            odds = f"p {numbers.show_p(contrast.p_holm)}, n {numbers.count(contrast.n)}"
            least = f"detectable {numbers.show_distance(contrast.detectable, contrast.unit)}"
            effect = Text(f"{difference} {interval}".strip())
            state = _state(contrast.state)
            name = Text(one_line(contrast.measure))
            if contrast.difference is None:
                name.append(f"\n{one_line(contrast.reason)}", "dim")
                grid.add_row(state, name, *([""] * (len(grid.columns) - 2)))
            elif console.width < 100:
                name.append(f"\n{values}", "dim")
                effect.append(f"\n{odds}\n{least}", "dim")
                grid.add_row(state, name, effect)
            else:
                grid.add_row(state, name, Text(values), effect, Text(f"{odds}\n{least}", "dim"))
        console.print(grid)


def _plain_contrast(contrast: Contrast) -> str:
    parts = [
        contrast.state.upper().ljust(19),
        f"{contrast.b} against {contrast.a} / {contrast.study}",
        contrast.measure,
    ]
    if contrast.difference is not None:
        parts += [
            f"{numbers.show(contrast.value_a, contrast.unit)} -> {numbers.show(contrast.value_b, contrast.unit)}",
            f"{numbers.show_difference(contrast.difference, contrast.unit)} "
            f"{numbers.show_difference_interval(contrast.interval, contrast.unit)}".strip(),
            f"p {numbers.show_p(contrast.p_holm)} after Holm",
            f"n {numbers.count(contrast.n)}",
            f"detectable {numbers.show_distance(contrast.detectable, contrast.unit)}",
            f"half of it needs {numbers.count(contrast.items_for_half)}",
        ]
    if contrast.reason:
        parts.append(contrast.reason)
    return _joined(parts)


def _joined(parts: list[str]) -> str:
    head, *rest = parts
    return "  ".join([head, *(one_line(cut(part, FIELD_LIMIT)) for part in rest)])


# Rows ------------------------------------------------------------------------------------------------------------


def _state(state: State | outline.ContrastState) -> Text:
    from rich.text import Text

    return Text(f"{_SIGNS[state]} {state}", _STYLES[state])


def _rich(console: Console) -> bool:
    """Whether tables, colors and signs can be shown; otherwise the output is plain lines."""
    return console.is_terminal and console.encoding.lower().startswith("utf")


def _say(console: Console, line: str) -> None:
    """A plain line in whatever encoding the output has."""
    encoding = console.encoding
    console.print(line.encode(encoding, "replace").decode(encoding), markup=False, highlight=False, soft_wrap=True)


def _grid(widths: list[int | None]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2, 0, 0), expand=True, pad_edge=False)
    for width in widths:
        grid.add_column(width=width, ratio=1 if width is None else None, overflow="fold")
    return grid


def _columns(wide: bool) -> list[int | None]:
    # Fixed widths, so that rows printed at different times stand below one another.
    return [16, None, 26, 22, 22] if wide else [16, None, 27]


def _heading(wide: bool) -> RenderableType:
    from rich.text import Text

    grid = _grid(_columns(wide))
    names = ["State", "Question", "Effect with interval", *(["Held against", "Threshold"] if wide else [])]
    grid.add_row(*(Text(name, "dim") for name in names))
    return grid


def _row(entry: outline.Row, several: bool, wide: bool, known: bool = False) -> list[RenderableType]:
    """A claim as printable parts; `known` says that the command of its remedy has been printed before."""
    from rich.padding import Padding
    from rich.text import Text

    claim = entry.claim

    def clean(text: str) -> str:
        return one_line(cut(text, FIELD_LIMIT))

    question = Text(f"{clean(entry.result.target)}: " if several and entry.result.target else "", "bold")
    question.append(clean(claim.question), "none")
    question.append(f"\n{clean(claim.name)}", "dim")
    if claim.reason:
        question.append(f"\n{clean(claim.reason)}", "dim")

    effect = Text("")
    if claim.value is not None:
        effect.append(numbers.show(claim.value, claim.unit), "bold")
        if claim.interval is not None:
            effect.append(f" {numbers.show_interval(claim.interval, claim.unit)}")
    control = "" if claim.control is None else f"{numbers.show(claim.control.value, claim.unit)} {claim.control.name}"
    threshold = "" if claim.threshold is None else f"{outline.threshold_text(claim)} ({claim.threshold.origin})"
    small = []
    if claim.n:
        lost = [f"{numbers.count(claim.unparsed)} unparsed"] if claim.unparsed else []
        lost += [f"{numbers.count(claim.truncated)} truncated"] if claim.truncated else []
        small.append(f"n {numbers.count(claim.n)}" + (f" ({', '.join(lost)})" if lost else ""))
    if claim.detectable is not None:
        small.append(f"detectable {numbers.show_distance(claim.detectable, claim.unit)}")
    if claim.worst is not None:
        small.append(f"worst {claim.worst.name}: {numbers.show(claim.worst.value, claim.unit)}")
    cost = [f"{numbers.count(claim.tokens)} tokens"] if claim.tokens else []
    cost += [numbers.duration(entry.seconds)] if entry.seconds is not None else []
    if cost:
        small.append(", ".join(cost))
    if not wide:
        small = [
            *([f"against {control}"] if control else []),
            *([f"line {outline.threshold_text(claim)}"] if threshold else []),
            *small,
        ]
    for line in small:
        effect.append(f"\n{clean(line)}" if effect.plain else clean(line), "dim")

    grid = _grid(_columns(wide))
    grid.add_row(
        _state(claim.state),
        question,
        effect,
        *([Text(clean(control)), Text(clean(threshold))] if wide else []),
    )
    parts: list[RenderableType] = [grid]
    if claim.remedy is not None and claim.state != "pass":
        todo = Text(f"\u2192 {clean(claim.remedy.text)}", overflow="fold")
        if known:
            todo.append(" (the command above)", "dim")
        elif claim.remedy.command:
            todo.append(f"\n{clean(claim.remedy.command)}", "cyan")
        parts.append(Padding(todo, (0, 0, 0, 18)))
    return parts

"""Pages of the documentation that are made from data when it is built, so that they cannot go stale.

An mkdocs hook: `papers.md` comes from the table of rooms, `results.md` from results/*.json, `reference/cli.md` from the
command line itself.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.core.errors import DataError
from intarsia.core.study import Claim, Report, Table
from intarsia.rooms import ROOMS, WINGS, Room

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads a hook by its path

from rooms_table import rooms_table

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parent.parent
NOT_YET = "None yet: no room has been reproduced so far."


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages to mkdocs' files."""
    from mkdocs.structure.files import File

    for place, text in pages(ROOT / "results").items():
        files.append(File.generated(config, place, content=text))
    return files


def pages(results: Path) -> dict[str, str]:
    """All pages: place in the documentation -> Markdown."""
    return {"papers.md": papers_page(), "results.md": results_page(results), "reference/cli.md": cli_page()}


def papers_page() -> str:
    """The index of the nineteen papers, with the state of their rooms."""
    ready = sum(room.state == "ready" for room in ROOMS)
    parts = [
        "# Papers",
        f"Each room of the workshop is one research system. Of {len(ROOMS)} rooms, {ready} can be used now; the others "
        "are planned and cannot be imported yet.",
        rooms_table("rooms"),
    ]
    for wing, purpose in WINGS.items():
        parts.append(f"## {wing.capitalize()}: {purpose}")
        parts += [_paper(room) for room in ROOMS if room.wing == wing]
    return "\n\n".join(parts) + "\n"


def _paper(room: Room) -> str:
    return (
        f"### `{room.package}`\n\n{room.summary}\n\n"
        f"**{room.title}.** {room.venue}, [{room.paper}]({room.paper_url}). State: {room.state}."
    )


def results_page(folder: Path) -> str:
    """What `intarsia reproduce` last showed, room by room; also what did not hold."""
    parts = [
        "# Results",
        "What `intarsia reproduce ROOM` last showed, as it was committed in `results/`. A claim that does not hold "
        "stays in the table.",
    ]
    files = sorted(folder.glob("*.json"))
    if not files:
        return "\n\n".join([*parts, NOT_YET]) + "\n"
    for file in files:
        parts.append(_report(file.stem, read_report(file)))
    return "\n\n".join(parts) + "\n"


def read_report(file: Path) -> Report:
    """The report in a results file.

    Raises:
        SystemExit: It is not one; the build must not go on with a page that lacks it.
    """
    try:
        return Report.load(file)
    except DataError as error:
        raise SystemExit(f"{file.name} cannot be shown: {error}") from None


def _report(name: str, report: Report) -> str:
    parts = [f"## {name}"]
    for result in report.results:
        parts.append(f"**{_cell(result.question)}** {_cell(result.headline)}")
        rows = [_claim(claim) for claim in result.claims]
        parts.append(
            "\n".join(
                [
                    "| claim | state | value | interval | held against | threshold | n | scale |",
                    "| --- | --- | --- | --- | --- | --- | --- | --- |",
                    *rows,
                ]
            )
        )
        parts += [_table(table) for table in result.tables]
        parts += [f"- {_cell(note)}" for note in result.notes]
        made = result.provenance
        parts.append(
            f"Seed {made.seed}; {made.device or 'device unknown'}; "
            + ", ".join(f"{package} {version}" for package, version in sorted(made.versions.items()))
            + (f"; `{result.run.command}`" if result.run.command else "")
            + (f"; {result.run.wall_seconds:.0f} s" if result.run.wall_seconds else "")
        )
    return "\n\n".join(parts)


def _claim(claim: Claim) -> str:
    interval, control, line = claim.interval, claim.control, claim.threshold
    cells = [
        f"{claim.name}: {claim.question}",
        claim.state + (f" ({claim.reason})" if claim.reason else ""),
        _number(claim.value) + (f" {claim.unit}" if claim.value is not None and claim.unit else ""),
        f"{_number(interval.low)} to {_number(interval.high)}" if interval else "",
        f"{control.name}: {_number(control.value)}" if control else "",
        f"{line.direction} {_number(line.value)}, {line.origin}" if line else "",
        str(claim.n),
        claim.scale,
    ]
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _table(table: Table) -> str:
    rows = ["| " + " | ".join(_cell(str(name)) for name in table.columns) + " |", "| --- " * len(table.columns) + "|"]
    rows += [
        "| " + " | ".join(_cell(_number(v) if isinstance(v, float) else str(v)) for v in row) + " |"
        for row in table.rows
    ]
    return (f"**{_cell(table.title)}**\n\n" if table.title else "") + "\n".join(rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _cell(text: str) -> str:
    """Text that cannot break out of a table cell or be read as HTML."""
    text = " ".join(text.split())
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")


def cli_page() -> str:
    """The command line: every command, its arguments and options."""
    import typer

    from intarsia.cli import app

    parts = [
        "# Command line",
        "Every command has `--help`. Errors end in one line that says what is wrong and what to do, with exit code 2; "
        "`--debug` shows the traceback. A gate that is not met exits with 3.",
    ]
    _command(typer.main.get_command(app), "intarsia", parts)
    return "\n\n".join(parts) + "\n"


def _command(command: Any, path: str, parts: list[str]) -> None:
    commands = getattr(command, "commands", None)
    parts.append(f"## `{path}`")
    if command.help:
        parts.append(_cell(command.help))
    if not commands:
        parts.append(f"```text\n{_usage(command, path)}\n```")
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    if shown:
        rows = ["| argument or option | meaning | default |", "| --- | --- | --- |"]
        parts.append("\n".join(rows + [_parameter(parameter) for parameter in shown]))
    if command.epilog:
        parts.append(f"```bash\n{command.epilog.removeprefix('Example: ')}\n```")
    for name, child in sorted((commands or {}).items()):
        _command(child, f"{path} {name}", parts)


def _usage(command: Any, path: str) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    return " ".join([path, *(_name(argument) for argument in arguments), "[OPTIONS]"])


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return ", ".join([*parameter.opts, *parameter.secondary_opts])


def _parameter(parameter: Any) -> str:
    default = parameter.default
    shown = isinstance(default, (int, float, str)) and not isinstance(default, bool) and default != ""
    text = _cell(getattr(parameter, "help", None) or "")
    return f"| `{_name(parameter)}` | {text} | {f'`{default}`' if shown else ''} |"

"""Pages of the documentation that are made from data when it is built, so that they cannot go stale.

An mkdocs hook: `papers.md` comes from the table of rooms, `results.md` from results/*.json, `reference/cli.md` from the
command line itself.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.core.errors import DataError
from intarsia.core.report import to_markdown
from intarsia.core.study import Report
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
        parts.append(_section(file.stem, read_report(file)))
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


def _section(name: str, report: Report) -> str:
    """A report as one section of the page: its own Markdown, one heading level down, and what it was measured with."""
    parts = [f"## {name}", _demoted(to_markdown(report))]
    for result in report.results:
        made = result.provenance
        versions = ", ".join(f"{package} {version}" for package, version in sorted(made.versions.items()))
        facts = [f"seed {made.seed}", made.device, versions, f"`{result.run.command}`" if result.run.command else ""]
        parts.append(f"{result.study}: " + "; ".join(fact for fact in facts if fact) + ".")
    return "\n\n".join(parts)


def _demoted(markdown: str) -> str:
    """The text with its title dropped and other headings one level down; fenced blocks stay as they are."""
    lines, fence = [], ""
    for line in markdown.splitlines()[1:]:
        ticks = re.match(r"`{3,}", line)
        if ticks and (not fence or line.strip() == fence):
            fence = "" if fence else ticks[0]
        lines.append(f"#{line}" if line.startswith("#") and not fence else line)
    return "\n".join(lines)


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

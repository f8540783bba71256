"""Pages of the documentation that are made from data when it is built, so that they cannot go stale.

An mkdocs hook: `papers.md` comes from the table of rooms, `results.md` from results/*.json, `reference/cli.md` from the
command line itself. On any page, `<!-- results: ROOM -->` stands for the room's claims and plots, and
`<!-- figure: ROOM.NAME -->` for a figure that `scripts/room_figures/ROOM.py` computes from the room's own code.
"""

from __future__ import annotations

import html
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intarsia.core.errors import DataError
from intarsia.core.report import numbers, outline, to_markdown
from intarsia.core.report.figures import draw
from intarsia.core.report.markdown import code, escape, table
from intarsia.core.study import Claim, Figure, Report
from intarsia.rooms import ROOMS, WINGS, Room

sys.path.insert(0, str(Path(__file__).parent))  # mkdocs loads a hook by its path

from rooms_table import rooms_table

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
NOT_YET = "None yet: no room has been reproduced so far."
RESULTS = re.compile(r"^<!-- results: (\w+) -->$", re.MULTILINE)
FIGURE = re.compile(r"^<!-- figure: (\w+)\.(\w+) -->$", re.MULTILINE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages to mkdocs' files."""
    from mkdocs.structure.files import File

    for place, text in pages(ROOT / "results").items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put results and figures where a page asks for them."""
    return filled(markdown, ROOT / "results")


def filled(markdown: str, results: Path) -> str:
    """The page's Markdown with its marks replaced.

    Args:
        markdown: A page that stands one folder below the documentation's root.
        results: The folder of results.

    Raises:
        SystemExit: A results file cannot be read, or there is no such figure.
    """
    markdown = RESULTS.sub(lambda mark: room_results(mark[1], results), markdown)
    return FIGURE.sub(lambda mark: room_figure(mark[1], mark[2]), markdown)


def room_results(room: str, results: Path) -> str:
    """What `intarsia reproduce ROOM` last showed: for each of its studies the claims and the plots."""
    command = f"intarsia reproduce {room}"
    if not (results / f"{room}.json").is_file():
        return f"Not measured yet. `{command}` does, and shows a verdict for each claim."
    report = read_report(results / f"{room}.json")
    parts = [
        f"{escape(outline.summary(report))} A claim that does not hold stays in the table. "
        f"[Results](../results.md#{room}) has tables, examples, versions and hashes; `{command}` measures anew.",
    ]
    for place, result in enumerate(report.results):
        parts.append(f"### {escape(result.question or result.study)}")
        facts = [f"seed {result.provenance.seed}", result.provenance.device]
        facts += [f"{name} {version}" for name, version in sorted(result.provenance.versions.items())]
        parts.append(f"{escape(result.headline)} ({escape(', '.join(fact for fact in facts if fact))})")
        parts.append(claims_table(result.claims))
        parts += list(_figures(result.figures, f"{room}-{place}"))
    return "\n\n".join(parts)


def claims_table(claims: tuple[Claim, ...]) -> str:
    """One row a claim: verdict; question with reason, control and origin of the line; value with interval; line; n."""
    rows = []
    for claim in claims:
        control, line = claim.control, claim.threshold
        notes = [claim.reason] if claim.reason else []
        if control is not None:
            notes.append(f"{control.name}: {numbers.show(control.value, claim.unit)}")
        if line is not None:
            notes.append(f"line: {line.origin}")
        rows.append(
            (
                f'<span class="verdict {claim.state.replace(" ", "-")}">{claim.state}</span>',
                "<br>".join(
                    [
                        f"{escape(claim.question)} {code(claim.name)}",
                        *(f"<small>{escape(note)}</small>" for note in notes),
                    ]
                ),
                escape(numbers.show_with_interval(claim.value, claim.interval, claim.unit)),
                "" if line is None else escape(outline.threshold_text(claim)),
                numbers.items(claim.n, claim.unparsed, claim.truncated) if claim.n else "",
                escape(claim.scale),
            )
        )
    columns = ("verdict", "claim", "measured", "line", "n / unread / cut off", "scale")
    return table(columns, rows) if rows else "There are no claims."


def room_figure(room: str, name: str) -> str:
    """A figure of `scripts/room_figures/ROOM.py`."""
    path = Path(__file__).parent / "room_figures" / f"{room}.py"
    # By its file: mkdocs takes the folder of a hook off the path again.
    figures = runpy.run_path(str(path))["FIGURES"] if path.is_file() else {}
    if name not in figures:
        raise SystemExit(f"{path.relative_to(ROOT)} has no figure {name!r}")
    return "\n\n".join(_figures((figures[name](),), f"{room}-{name}"))


def _figures(figures: tuple[Figure, ...], prefix: str) -> Iterator[str]:
    for place, figure in enumerate(figures):
        drawing = draw(figure, f"{prefix}-{place}")
        said = " ".join(part for part in (figure.caption, drawing.note) if part)
        yield (
            f'<figure class="plot"><p><strong>{html.escape(figure.title)}</strong></p>{drawing.svg}'
            f"<figcaption>{html.escape(said)}</figcaption></figure>"
        )


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

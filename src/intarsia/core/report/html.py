"""The report as one HTML page: it loads nothing, runs one script that the page's policy names by hash, and shows what
models wrote as text only.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from intarsia.core.report import numbers, outline
from intarsia.core.report.clean import cut, printable, segments
from intarsia.core.study import Claim, Figure, Passage, Report, Table

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

FOLDER = Path(__file__).parent
FIELD_LIMIT = 4000
PASSAGE_LIMIT = 8000
EXAMPLES = 40
TABLE_ROWS = 200
SLICES = 60
STEPS = 3
STEP_NAMES = 4

_MODEL_FACTS = ("source", "repo", "path", "url", "revision", "sha256", "hash", "dtype", "device", "licence", "license")


def to_html(report: Report) -> str:
    """The whole page.

    Args:
        report: What to show. Nothing in it is trusted: text is escaped, control characters are made visible, and
            megabytes are cut with a notice.

    Returns:
        A complete HTML document that needs no network.
    """
    from markupsafe import Markup

    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    page = _template().render(
        report=report,
        numbers=numbers,
        outline=outline,
        studies=outline.studies(report),
        several=len(report.targets) > 1,
        gauge=_gauge,
        passage=_passage,
        plots=_plots,
        right=_numeric_columns,
        flat=_flat,
        models=_models(report),
        model_facts=_model_facts,
        versions=_versions(report),
        todo=outline.steps(report),
        limits={"steps": STEPS, "names": STEP_NAMES, "examples": EXAMPLES, "rows": TABLE_ROWS, "slices": SLICES},
        style=Markup((FOLDER / "style.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return page if page.endswith("\n") else page + "\n"


@lru_cache(maxsize=1)
def _template() -> Template:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_safe,
    )
    environment.filters["typeset"] = _typeset
    return environment.get_template("report.html.j2")


def _safe(value: Any) -> Any:
    """Every value goes through here on its way into the page; the template engine escapes it afterwards."""
    if value is None:
        return ""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return printable(cut(value, FIELD_LIMIT))
    return value


def _typeset(text: str) -> str:
    """True minus and comparison signs, and no line break between a figure and its unit."""
    text = re.sub("(?<![\\w.])-(?=[\\d\u221e])", "\u2212", text).replace(">=", "\u2265").replace("<=", "\u2264")
    return re.sub(r"(?<=\d) (?=(?:%|pp|tokens|nats|min|h|s)(?!\w))", "\u00a0", text)


def _passage(passage: Passage) -> Markup:
    """A model's text, escaped, its marked spans highlighted, cut where it is very long."""
    from markupsafe import Markup, escape

    pieces, left_out = segments(passage.text, passage.marks, PASSAGE_LIMIT)
    body = Markup("").join(
        Markup("<mark>{}</mark>").format(text) if marked else escape(text) for text, marked in pieces
    )
    if not pieces:
        body = Markup('<span class="muted">(empty)</span>')
    shown = Markup('<p class="passage" dir="auto" tabindex="0">{}</p>').format(body)
    if left_out:
        shown += Markup('<p class="muted small">{:,} more characters are in report.json.</p>').format(left_out)
    return shown


def _plots(figures: tuple[Figure, ...], prefix: str) -> list[tuple[Figure, Markup, str]]:
    """Each figure with its drawing and the note on points that were not drawn."""
    from markupsafe import Markup

    from intarsia.core.report.figures import draw

    drawn = []
    for place, figure in enumerate(figures):
        drawing = draw(figure, f"{prefix}f{place}")
        drawn.append((figure, Markup(drawing.svg), drawing.note))
    return drawn


def _numeric_columns(table: Table) -> list[bool]:
    """Which columns hold numbers only and are therefore aligned to the right."""

    def numeric(value: JsonValue) -> bool:
        return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))

    return [
        any(place < len(row) and row[place] is not None for row in table.rows)
        and all(numeric(row[place]) for row in table.rows if place < len(row))
        for place in range(len(table.columns))
    ]


def _flat(value: JsonValue, key: str = "") -> list[tuple[str, str]]:
    """Nested JSON as (dotted key, text) pairs in key order."""
    if isinstance(value, Mapping):
        return [pair for name in sorted(value) for pair in _flat(value[name], f"{key}.{name}" if key else name)]
    if isinstance(value, list) and not any(isinstance(item, (dict, list)) for item in value):
        return [(key, ", ".join(numbers.cell(item) for item in value))]
    # A version, a seed or a year is no quantity: no thousands separators here.
    plain = isinstance(value, int) and not isinstance(value, bool)
    return [(key, str(value) if plain else numbers.cell(value))]


def _models(report: Report) -> dict[str, JsonValue]:
    """Every model that a result names, by name, in the report's order."""
    found: dict[str, JsonValue] = {}
    for result in report.results:
        for name, facts in result.provenance.models.items():
            found.setdefault(name, facts)
    first = {name: found[name] for name in report.targets if name in found}
    return {**first, **{name: found[name] for name in sorted(found) if name not in first}}


def _model_facts(facts: JsonValue) -> list[tuple[str, str]]:
    """The few facts that say which weights these were; hashes shortened (the whole ones stand under provenance)."""
    if not isinstance(facts, Mapping):
        return [("", numbers.cell(facts))]
    chosen = []
    for key in _MODEL_FACTS:
        value = facts.get(key)
        if value in (None, "", [], {}):
            continue
        text = ", ".join(part for _, part in _flat(value))
        chosen.append((key, re.sub(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b", "\\1\u2026", text)))
    return chosen


def _versions(report: Report) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for result in report.results:
        for name, version in result.provenance.versions.items():
            found.setdefault(name, {})[version] = None
    return {name: ", ".join(found[name]) for name in sorted(found)}


def _gauge(claim: Claim) -> Markup:
    """A small scale: the interval as a bar, the value as a dot, the threshold as a line, the control as a ring.

    It repeats what the row says in figures, so it is hidden from screen readers.
    """
    from markupsafe import Markup

    if claim.value is None or (claim.interval is None and claim.threshold is None and claim.control is None):
        return Markup("")
    seen = [claim.value]
    if claim.interval is not None:
        seen += [claim.interval.low, claim.interval.high]
    if claim.threshold is not None:
        seen.append(claim.threshold.value)
    if claim.control is not None and claim.control.value is not None:
        seen.append(claim.control.value)
    low, high = min(seen), max(seen)
    if claim.unit == "share" and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif claim.unit == "points":
        reach = max(abs(low), abs(high)) * 1.1 or 1.0
        low, high = -reach, reach
    else:
        low = min(0.0, low)
        high = high + 0.1 * (high - low) if high > low else low + 1.0

    def at(value: float) -> str:
        return f"{3 + 154 * (value - low) / (high - low):.1f}"

    parts = ['<line class="track" x1="3" x2="157" y1="10" y2="10"/>']
    if claim.threshold is not None:
        line = at(claim.threshold.value)
        ends = (line, "157") if claim.threshold.direction == ">=" else ("3", line)
        parts.append(f'<line class="good" x1="{ends[0]}" x2="{ends[1]}" y1="17" y2="17"/>')
        parts.append(f'<line class="bar" x1="{line}" x2="{line}" y1="2" y2="18"/>')
    if claim.interval is not None:
        ends = (at(claim.interval.low), at(claim.interval.high))
        parts.append(f'<line class="ci" x1="{ends[0]}" x2="{ends[1]}" y1="10" y2="10"/>')
    if claim.control is not None and claim.control.value is not None:
        parts.append(f'<circle class="control" cx="{at(claim.control.value)}" cy="10" r="3.2"/>')
    parts.append(f'<circle class="dot" cx="{at(claim.value)}" cy="10" r="4.5"/>')
    return Markup(
        f'<svg class="gauge" viewBox="0 0 160 20" aria-hidden="true" focusable="false">{"".join(parts)}</svg>'
    )

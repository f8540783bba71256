"""Results drawn: terminal, JSON, Markdown, JUnit XML, data frame, and one HTML page.

Each renderer is a file of its own and is loaded when it is used. `numbers` decides how a figure is written, `outline`
the order of rows and the words that all renderers share.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intarsia.core.report.figures import draw
    from intarsia.core.report.frame import to_frame
    from intarsia.core.report.html import to_html
    from intarsia.core.report.junit import to_junit
    from intarsia.core.report.markdown import to_markdown
    from intarsia.core.report.outline import summary
    from intarsia.core.report.store import json_schema, load, save, to_json
    from intarsia.core.report.terminal import VerdictTable, print_contrasts, print_report

_HOME = {
    "VerdictTable": "terminal",
    "draw": "figures",
    "json_schema": "store",
    "load": "store",
    "print_contrasts": "terminal",
    "print_report": "terminal",
    "save": "store",
    "summary": "outline",
    "to_frame": "frame",
    "to_html": "html",
    "to_json": "store",
    "to_junit": "junit",
    "to_markdown": "markdown",
}

__all__ = [
    "VerdictTable",
    "draw",
    "json_schema",
    "load",
    "print_contrasts",
    "print_report",
    "save",
    "summary",
    "to_frame",
    "to_html",
    "to_json",
    "to_junit",
    "to_markdown",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Plots: a `Figure`'s data to an SVG that follows its page's theme.

Colors are drawn as placeholders and then replaced by CSS variables, so one drawing serves light and dark. Matplotlib's
object interface is used (no pyplot), its settings are set back afterwards, and equal data give equal bytes.
"""

from __future__ import annotations

import io
import re
import textwrap
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from intarsia.core.report import numbers
from intarsia.core.report.clean import one_line
from intarsia.core.study import Figure, Series, Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

WIDTH = 5.4  # inches; at 72 points an inch close to a phone's width, so that labels stay readable there
MAX_POINTS = 1500
MAX_NAMES = 40
MAX_SERIES = 24

# Placeholder color -> (CSS variable, value where the page sets none).
_ROLES = {
    "#010101": ("--fig-ink", "#24292f"),
    "#020202": ("--fig-muted", "#6b7280"),
    "#030303": ("--fig-grid", "#e2e5e9"),
    "#040404": ("--fig-paper", "#ffffff"),
    "#100001": ("--fig-1", "#1f6fb2"),
    "#100002": ("--fig-2", "#c2570c"),
    "#100003": ("--fig-3", "#2f7d4f"),
    "#100004": ("--fig-4", "#8a4fb0"),
    "#100005": ("--fig-5", "#a17a00"),
    "#100006": ("--fig-6", "#b23a62"),
}
_INK, _MUTED, _GRID, _PAPER, *_SERIES = _ROLES
_MARKERS = "osD^vP"
_DASHES = ("-", "--", "-.", ":")

_LOCK = threading.Lock()  # matplotlib's settings are one per process


@dataclass(frozen=True)
class Drawing:
    """An SVG element to be put into a page, and a note where not all points were drawn."""

    svg: str
    note: str = ""


def draw(figure: Figure, name: str = "figure") -> Drawing:
    """Draw a figure.

    Args:
        figure: The plot as data. Empty series, missing values and single points are fine.
        name: Prefix of element ids; unique in the page.

    Returns:
        The drawing. Its SVG loads nothing and holds no script.
    """
    figure, note = _bounded(figure)
    with _LOCK, _settings(name):
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=(WIDTH, 2.9), layout="constrained")
        FigureCanvasSVG(canvas)
        axes = canvas.add_subplot()
        if figure.series:
            _KINDS[figure.kind](axes, figure)
            _legend(canvas, axes)
        else:
            _nothing(canvas, axes)
        stream = io.StringIO()
        canvas.savefig(stream, format="svg", transparent=True)
    label = one_line(figure.alt or figure.caption or figure.title or "plot")
    return Drawing(_themed(stream.getvalue(), re.sub(r"[^A-Za-z0-9-]", "-", name), label), note)


@contextmanager
def _settings(salt: str) -> Iterator[None]:
    import matplotlib
    from cycler import cycler

    keep = ("backend", "interactive", "toolbar", "webagg", "date.epoch", "savefig.directory")
    plain: dict[Any, Any] = {
        key: value for key, value in matplotlib.rcParamsDefault.items() if not key.startswith(keep)
    }
    ours: dict[Any, Any] = {
        "svg.hashsalt": salt,
        "svg.fonttype": "none",
        "text.parse_math": False,
        "axes.unicode_minus": True,
        "axes.prop_cycle": cycler(color=_SERIES),
        "font.size": 9.2,
        "text.color": _INK,
        "axes.labelcolor": _MUTED,
        "axes.labelsize": 9.2,
        "axes.edgecolor": _GRID,
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "xtick.color": _GRID,
        "ytick.color": _GRID,
        "xtick.labelcolor": _INK,
        "ytick.labelcolor": _INK,
        "grid.color": _GRID,
        "grid.linewidth": 0.7,
        "legend.frameon": False,
        "legend.fontsize": 9.2,
        "legend.labelcolor": _INK,
        "lines.linewidth": 1.6,
        "lines.markersize": 4.2,
    }
    with warnings.catch_warnings(), matplotlib.rc_context():
        # Characters that the measuring font lacks are drawn by the reader's own fonts.
        warnings.simplefilter("ignore")
        matplotlib.rcParams.update({**plain, **ours})
        yield


# Data ------------------------------------------------------------------------------------------------------------


def _bounded(figure: Figure) -> tuple[Figure, str]:
    """The figure with as many points as a reader can tell apart, and a note of what was left out."""
    notes: list[str] = []
    series = [one for one in figure.series if any(value is not None for value in one.y)]
    if len(series) > MAX_SERIES:
        notes.append(f"The first {MAX_SERIES} of {len(series):,} series are drawn.")
        series = series[:MAX_SERIES]
    kept = []
    for one in series:
        size = len(one.y)
        step, stop = 1, size
        if figure.kind in {"lines", "scatter"} and size > MAX_POINTS:
            step = -(-size // MAX_POINTS)
            notes.append(f"One in {step} points of {one_line(one.name) or 'the series'} is drawn.")
        elif figure.kind in {"bars", "forest", "heatmap"} and size > MAX_NAMES:
            stop = MAX_NAMES
            notes.append(
                f"The first {MAX_NAMES} of {size:,} entries of {one_line(one.name) or 'the series'} are drawn."
            )
        if step == 1 and stop == size:
            kept.append(one)
            continue
        cut = slice(0, stop, step)
        kept.append(Series(name=one.name, x=one.x[cut], y=one.y[cut], low=one.low[cut], high=one.high[cut]))
    return figure.model_copy(update={"series": tuple(kept)}), " ".join(dict.fromkeys(notes))


@dataclass(frozen=True)
class _Points:
    """A series with positions instead of names; NaN where a value is missing."""

    x: list[float]
    y: list[float]
    low: list[float]
    high: list[float]


def _names(figure: Figure) -> list[str]:
    """Category names over all series in order of appearance."""
    names: dict[str, None] = {}
    for series in figure.series:
        for place in range(len(series.y)):
            names.setdefault(_name(series, place))
    return list(names)


def _name(series: Series, place: int) -> str:
    if place >= len(series.x):
        return str(place + 1)
    x = series.x[place]
    return x if isinstance(x, str) else numbers.plain(x)


def _categorical(figure: Figure) -> bool:
    return any(isinstance(x, str) for series in figure.series for x in series.x)


def _points(series: Series, positions: dict[str, int] | None) -> _Points:
    def at(values: Sequence[float | None], place: int) -> float:
        value = values[place] if place < len(values) else None
        return float("nan") if value is None else float(value)

    xs: list[float] = []
    for place in range(len(series.y)):
        if positions is not None:
            xs.append(float(positions[_name(series, place)]))
        else:
            x = series.x[place] if place < len(series.x) else place
            xs.append(float(x))
    size = range(len(series.y))
    return _Points(
        xs, [at(series.y, i) for i in size], [at(series.low, i) for i in size], [at(series.high, i) for i in size]
    )


def _whiskers(points: _Points) -> tuple[list[float], list[float]] | None:
    """Distances from each value to its interval's ends; None when no value has one."""
    down, up = [], []
    for y, low, high in zip(points.y, points.low, points.high, strict=True):
        whole = y == y and low == low and high == high
        down.append(max(0.0, y - low) if whole else float("nan"))
        up.append(max(0.0, high - y) if whole else float("nan"))
    return (down, up) if any(length == length for length in down) else None


# Looks -----------------------------------------------------------------------------------------------------------


def _color(place: int) -> str:
    return _SERIES[place % len(_SERIES)]


def _wrapped(text: str, width: int, lines: int = 2) -> str:
    pieces = textwrap.wrap(one_line(text), width, max_lines=lines, placeholder="\u2026", break_long_words=True)
    return "\n".join(pieces)


def _tick(unit: Unit) -> Any:
    from matplotlib.ticker import FuncFormatter

    def form(value: float, place: int | None = None) -> str:
        if unit in {"share", "points"}:
            text = f"{100 * value:.4g}"
            return f"{text} %" if unit == "share" else (f"+{text}" if value > 0 else text)
        return f"{numbers.plain(value)}{'x' if unit == 'ratio' else ''}"

    return FuncFormatter(form)


def _unit_label(label: str, unit: Unit) -> str:
    named = {"points": "percentage points", "tokens": "tokens", "nats": "nats", "seconds": "seconds"}.get(unit, "")
    if not named or named in label:
        return label
    return f"{label} ({named})" if label else named


def _value_axis(axes: Axes, figure: Figure, which: str) -> None:
    axis = axes.yaxis if which == "y" else axes.xaxis
    if not (figure.log_y if which == "y" else figure.log_x):
        from matplotlib.ticker import MaxNLocator

        axis.set_major_locator(MaxNLocator(6, integer=figure.y_unit in {"count", "tokens"}))
    axis.set_major_formatter(_tick(figure.y_unit))
    axis.set_tick_params(length=0)
    axes.grid(True, axis="y" if which == "y" else "x")


def _labels(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(_wrapped(x, 70))
    axes.set_ylabel(_wrapped(y, 38))


def _log(axes: Axes, which: str, values: Sequence[float]) -> None:
    if any(value > 0 for value in values):
        (axes.set_yscale if which == "y" else axes.set_xscale)("log", nonpositive="mask")


def _reference(axes: Axes, figure: Figure, vertical: bool = False) -> None:
    if figure.reference is None:
        return
    at, label = figure.reference
    line = axes.axvline if vertical else axes.axhline
    line(at, color=_INK, linewidth=1.0, linestyle=(0, (4, 3)), label=_wrapped(label, 40) or "reference", zorder=1.5)


def _legend(canvas: Canvas, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if not handles or (len(handles) == 1 and axes.get_gid() == "one series"):
        return
    longest = max(max(len(line) for line in label.splitlines() or [""]) for label in labels)
    columns = max(1, min(len(handles), int(76 / (longest + 7))))
    canvas.legend(handles, labels, loc="outside upper left", ncols=columns, handlelength=1.6, columnspacing=1.6)


def _one_series(axes: Axes, figure: Figure) -> None:
    """A single series needs no legend of its own, unless a reference line stands beside it."""
    if len(figure.series) == 1 and figure.reference is None:
        axes.set_gid("one series")


def _canvas(axes: Axes) -> Canvas:
    canvas = axes.get_figure(root=True)
    assert canvas is not None
    return canvas


def _rows_height(axes: Axes, rows: float, floor: float = 1.5) -> None:
    _canvas(axes).set_size_inches(WIDTH, max(floor, 0.75 + 0.26 * rows))


def _nothing(canvas: Canvas, axes: Axes) -> None:
    canvas.set_size_inches(WIDTH, 0.9)
    axes.set_axis_off()
    axes.text(0.5, 0.5, "No data to draw", ha="center", va="center", color=_MUTED, transform=axes.transAxes)


# Kinds -----------------------------------------------------------------------------------------------------------


def _bars(axes: Axes, figure: Figure) -> None:
    names = _names(figure)
    positions = {name: place for place, name in enumerate(names)}
    groups = len(figure.series)
    lying = len(names) > 7 or max(len(one_line(name)) for name in names) > 46 // max(1, len(names))
    thick = 0.78 / groups
    labelled = len(names) * groups <= 14
    line_count = sum(_wrapped(name, 26).count("\n") for name in names)
    if lying:
        _rows_height(axes, len(names) * (0.45 + 0.55 * groups) + 0.5 * line_count)
    tops: list[float] = []
    for place, series in enumerate(figure.series):
        points = _points(series, positions)
        offset = (place - (groups - 1) / 2) * thick
        at = [x + offset for x in points.x]
        draw_bars = axes.barh if lying else axes.bar
        draw_bars(at, points.y, thick * 0.92, color=_color(place), label=_wrapped(series.name, 30) or f"{place + 1}")
        whiskers = _whiskers(points)
        if whiskers:
            xy = (points.y, at) if lying else (at, points.y)
            error: dict[str, Any] = {"xerr" if lying else "yerr": whiskers}
            axes.errorbar(*xy, **error, fmt="none", ecolor=_INK, elinewidth=1.0, capsize=2.4, capthick=1.0)
        outer = [low if y < 0 else high for y, low, high in zip(points.y, points.low, points.high, strict=True)]
        ends = [end if end == end else y for y, end in zip(points.y, outer, strict=True)]
        tops += [end for end in ends if end == end]
        if not labelled:
            continue
        for x, y, end in zip(at, points.y, ends, strict=True):
            if y != y:
                continue
            shift = -3 if y < 0 else 3
            axes.annotate(
                numbers.number(y, figure.y_unit),
                (end, x) if lying else (x, end),
                xytext=(shift, 0) if lying else (0, shift),
                textcoords="offset points",
                ha=("right" if shift < 0 else "left") if lying else "center",
                va="center" if lying else ("top" if shift < 0 else "bottom"),
                fontsize=8.4,
                color=_INK,
            )
    ticks = range(len(names))
    value_label = _unit_label(figure.y_label, figure.y_unit)
    if lying:
        axes.set_yticks(ticks, [_wrapped(name, 26) for name in names])
        axes.set_ylim(len(names) - 0.45, -0.55)
        axes.yaxis.set_tick_params(length=0)
        _labels(axes, value_label, figure.x_label)
        if figure.log_y:
            _log(axes, "x", tops)
        else:
            axes.margins(x=0.12 if labelled else 0.05)
        _value_axis(axes, figure.model_copy(update={"log_x": figure.log_y}), "x")
    else:
        axes.set_xticks(ticks, [_wrapped(name, max(8, 60 // len(names))) for name in names])
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.xaxis.set_tick_params(length=0)
        _labels(axes, figure.x_label, value_label)
        if figure.log_y:
            _log(axes, "y", tops)
        else:
            axes.margins(y=0.12 if labelled else 0.05)
        _value_axis(axes, figure, "y")
    _reference(axes, figure, vertical=lying)
    _one_series(axes, figure)


def _plane(axes: Axes, figure: Figure, joined: bool) -> None:
    positions = None
    if _categorical(figure):
        names = _names(figure)
        positions = {name: place for place, name in enumerate(names)}
        if len(names) <= 24:
            axes.set_xticks(range(len(names)), [_wrapped(name, max(6, 60 // len(names))) for name in names])
            if len(names) > 8:
                axes.tick_params(axis="x", labelrotation=90)
    all_x: list[float] = []
    all_y: list[float] = []
    for place, series in enumerate(figure.series):
        points = _points(series, positions)
        label = _wrapped(series.name, 30) or f"{place + 1}"
        color = _color(place)
        if joined:
            sparse = len(points.y) <= 24
            style = _DASHES[place // len(_SERIES) % len(_DASHES)]
            lonely = _lonely(points.y)
            axes.plot(points.x, points.y, color=color, linestyle=style, label=label, marker="o" if sparse else None)
            if not sparse and lonely:
                axes.plot([points.x[i] for i in lonely], [points.y[i] for i in lonely], "o", color=color)
            if any(low == low for low in points.low) and any(high == high for high in points.high):
                if len(points.y) > 1:
                    axes.fill_between(points.x, points.low, points.high, color=color, alpha=0.16, linewidth=0)
                error = _whiskers(points)
                if lonely and error:
                    down, up = ([part[i] for i in lonely] for part in error)
                    x, y = ([part[i] for i in lonely] for part in (points.x, points.y))
                    axes.errorbar(x, y, yerr=(down, up), fmt="none", ecolor=color, capsize=2.4)
        else:
            faint = 0.75 if len(points.y) <= 200 else 0.4
            axes.plot(
                points.x,
                points.y,
                linestyle="none",
                marker=_MARKERS[place % len(_MARKERS)],
                color=color,
                alpha=faint,
                markeredgewidth=0,
                label=label,
            )
            error = _whiskers(points)
            if error:
                axes.errorbar(points.x, points.y, yerr=error, fmt="none", ecolor=color, elinewidth=0.9, alpha=faint)
        all_x += points.x
        all_y += points.y
    if figure.log_x and positions is None:
        _log(axes, "x", all_x)
    if figure.log_y:
        _log(axes, "y", all_y)
    _labels(axes, figure.x_label, _unit_label(figure.y_label, figure.y_unit))
    _value_axis(axes, figure, "y")
    if positions is None:
        from matplotlib.ticker import MaxNLocator

        distinct = sorted({x for x in all_x if x > 0})
        if not figure.log_x:
            axes.xaxis.set_major_locator(MaxNLocator(7))
        elif 1 < len(distinct) <= 9:
            axes.set_xticks(distinct)
            axes.set_xticks([], minor=True)
        axes.xaxis.set_major_formatter(_tick(""))
    if not joined and positions is None:
        axes.grid(True, axis="x")
    axes.margins(x=0.03, y=0.08)
    _reference(axes, figure)
    _one_series(axes, figure)


def _lonely(values: Sequence[float]) -> list[int]:
    """Places of values whose neighbors are missing: a line through them would not be seen."""
    known = [value == value for value in values]
    return [
        i
        for i, here in enumerate(known)
        if here and not (i > 0 and known[i - 1]) and not (i + 1 < len(known) and known[i + 1])
    ]


def _lines(axes: Axes, figure: Figure) -> None:
    _plane(axes, figure, joined=True)


def _scatter(axes: Axes, figure: Figure) -> None:
    _plane(axes, figure, joined=False)


def _histogram(axes: Axes, figure: Figure) -> None:
    import numpy as np

    values = [np.array([y for y in series.y if y is not None], dtype=float) for series in figure.series]
    together = np.concatenate(values)
    log = figure.log_x and bool(np.all(together > 0))
    low, high = float(together.min()), float(together.max())
    whole = bool(np.all(together == np.round(together))) and high - low <= 30
    if low == high:
        half = max(abs(low) * 0.05, 0.5 if whole else 1e-3)
        edges = np.linspace(low - half, low + half, 2)
    elif whole and not log:
        edges = np.arange(low - 0.5, high + 1.0, 1.0)
    else:
        count = int(np.clip(np.ceil(2 * len(together) ** (1 / 3)), 5, 40))
        edges = np.geomspace(low, high, count + 1) if log else np.linspace(low, high, count + 1)
    shown = [place for place, part in enumerate(values) if len(part)]
    for place in shown:
        color = _color(place)
        heights, _ = np.histogram(values[place], edges)
        label = _wrapped(figure.series[place].name, 30) or f"{place + 1}"
        axes.stairs(heights, edges, fill=True, color=color, alpha=0.9 if len(shown) == 1 else 0.3, label=label)
        if len(shown) > 1:
            axes.stairs(heights, edges, color=color, linewidth=1.2)
    if log:
        axes.set_xscale("log")
    _labels(axes, _unit_label(figure.x_label, figure.y_unit), figure.y_label or "items")
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(_tick("count"))
    axes.yaxis.set_tick_params(length=0)
    axes.xaxis.set_major_formatter(_tick(figure.y_unit))
    axes.grid(True, axis="y")
    axes.set_ylim(bottom=0)
    _reference(axes, figure, vertical=True)
    _one_series(axes, figure)


def _forest(axes: Axes, figure: Figure) -> None:
    names = _names(figure)
    positions = {name: place for place, name in enumerate(names)}
    groups = len(figure.series)
    line_count = sum(_wrapped(name, 28).count("\n") for name in names)
    _rows_height(axes, len(names) * (0.7 + 0.4 * groups) + 0.4 * line_count)
    ends: list[float] = []
    for place, series in enumerate(figure.series):
        points = _points(series, positions)
        at = [x + (place - (groups - 1) / 2) * 0.28 for x in points.x]
        color = _color(place)
        whiskers = _whiskers(points)
        if whiskers:
            axes.errorbar(points.y, at, xerr=whiskers, fmt="none", ecolor=color, elinewidth=1.6, capsize=0)
        axes.plot(
            points.y,
            at,
            linestyle="none",
            marker=_MARKERS[place % len(_MARKERS)],
            color=color,
            markersize=5.5,
            markeredgecolor=_PAPER,
            markeredgewidth=0.8,
            label=_wrapped(series.name, 30) or f"{place + 1}",
        )
        ends += [value for value in (*points.y, *points.low) if value == value]
    axes.set_yticks(range(len(names)), [_wrapped(name, 28) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.yaxis.set_tick_params(length=0)
    if figure.log_x or figure.log_y:
        _log(axes, "x", ends)
    _labels(axes, _unit_label(figure.x_label or figure.y_label, figure.y_unit), "")
    _value_axis(axes, figure.model_copy(update={"log_x": figure.log_x or figure.log_y}), "x")
    axes.margins(x=0.06)
    _reference(axes, figure, vertical=True)
    _one_series(axes, figure)


def _heatmap(axes: Axes, figure: Figure) -> None:
    from matplotlib.patches import Rectangle

    names = _names(figure)
    positions = {name: place for place, name in enumerate(names)}
    rows = [_points(series, positions) for series in figure.series]
    known = [abs(y) for row in rows for y in row.y if y == y]
    most = max(known) or 1.0
    wide = len(names) > 6 or any(len(one_line(name)) > 60 // len(names) for name in names)
    _canvas(axes).set_size_inches(WIDTH, max(1.3, 0.75 + 0.3 * len(rows) + (0.55 if wide else 0.1)))
    written = len(names) <= 10
    for place, row in enumerate(rows):
        for x, y in zip(row.x, row.y, strict=True):
            if y != y:
                axes.text(x, place, numbers.MISSING, ha="center", va="center", color=_MUTED)
                continue
            color = _SERIES[0] if y >= 0 else _SERIES[1]
            cell = Rectangle((x - 0.48, place - 0.46), 0.96, 0.92, facecolor=color, alpha=0.06 + 0.42 * abs(y) / most)
            axes.add_patch(cell)
            if written:
                text = numbers.show(y, figure.y_unit) if len(names) <= 6 else numbers.number(y, figure.y_unit)
                axes.text(x, place, text, ha="center", va="center", color=_INK, fontsize=8.8)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xticks(range(len(names)), [_wrapped(name, 14 if wide else 60 // len(names)) for name in names])
    if wide:
        axes.tick_params(axis="x", labelrotation=90)
    axes.set_yticks(range(len(rows)), [_wrapped(series.name, 24) for series in figure.series])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    _labels(axes, figure.x_label, _unit_label(figure.y_label, figure.y_unit))


_KINDS = {
    "bars": _bars,
    "lines": _lines,
    "scatter": _scatter,
    "histogram": _histogram,
    "forest": _forest,
    "heatmap": _heatmap,
}


# SVG -------------------------------------------------------------------------------------------------------------

_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}(?!e)")
_COLOR = re.compile(r"#[0-9a-f]{6}\b")
_FAMILY = re.compile(r"font-family:[^;]*;?\s*")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_GEOMETRY = {"d", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "transform", "points", "viewBox"}


def _themed(svg: str, prefix: str, label: str) -> str:
    """Matplotlib's file as an element for a page: themed colors, unique ids, short numbers, nothing from outside."""
    root = ElementTree.fromstring(svg)
    used = {ref for node in root.iter() for value in node.attrib.values() for ref in _REFERENCE.findall(value)}
    used |= {node.attrib[key][1:] for node in root.iter() for key in node.attrib if key.endswith("href")}
    box = _short(root.attrib["viewBox"])
    inner = "".join(_element(child, used, prefix) for child in root)
    return (
        f'<svg class="plot" role="img" aria-label={quoteattr(label)} viewBox="{box}" '
        f'style="font-family:system-ui,sans-serif;stroke-linejoin:round;stroke-linecap:butt">{inner}</svg>'
    )


def _short(text: str) -> str:
    shortened = _LONG_NUMBER.sub(lambda match: f"{float(match.group()):.2f}".rstrip("0").rstrip("."), text)
    return " ".join(shortened.replace("-0 ", "0 ").split())


def _element(node: ElementTree.Element, used: set[str], prefix: str) -> str:
    tag = node.tag.rpartition("}")[2]
    if tag in {"metadata", "style", "title"}:
        return ""
    attributes: dict[str, str] = {}
    for key, value in node.attrib.items():
        key = key.rpartition("}")[2]
        if key == "id":
            if value in used:
                attributes[key] = f"{prefix}-{value}"
        elif key == "href":
            attributes[key] = f"#{prefix}-{value[1:]}"
        elif key == "style":
            attributes[key] = _style(value)
        elif key == "transform" and value.startswith("rotate(-0 "):
            continue
        else:
            value = _short(value) if key in _GEOMETRY else value
            attributes[key] = _REFERENCE.sub(lambda match: f"url(#{prefix}-{match.group(1)})", value)
    styles = {child.attrib.get("style") for child in node}
    if tag == "g" and len(node) > 1 and len(styles) == 1 and all(child.tag.endswith("}use") for child in node):
        # The points of a cloud look alike: their style is written once, on their group.
        attributes["style"] = _style(styles.pop() or "")
        for child in node:
            child.attrib.pop("style", None)
    inner = "".join(_element(child, used, prefix) for child in node)
    text = escape(node.text) if tag in {"text", "tspan"} and node.text else ""
    if not inner and not text and tag in {"g", "defs"}:
        return ""
    if tag == "g" and not attributes:
        return inner
    opened = tag + "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
    return f"<{opened}>{text}{inner}</{tag}>" if inner or text else f"<{opened}/>"


def _style(value: str) -> str:
    return _COLOR.sub(_variable, _FAMILY.sub("", value)).replace(": ", ":").replace("; ", ";")


def _variable(match: re.Match[str]) -> str:
    role = _ROLES.get(match.group())
    return match.group() if role is None else f"var({role[0]},{role[1]})"

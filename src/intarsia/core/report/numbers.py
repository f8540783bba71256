"""How a figure is written, by its unit. Every renderer goes through here, so a figure reads the same everywhere."""

from __future__ import annotations

import json
import math

from intarsia.core.study import Interval, Unit

MISSING = "\u2014"
"""Shown where there is no figure."""


def plain(value: float, digits: int = 4) -> str:
    """A bare number: thousands separators, at most `digits` significant digits below 1000, no exponent unless tiny."""
    if math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "\u221e" if value > 0 else "-\u221e"
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1) or float(value).is_integer():
        return f"{value:,.0f}" if abs(value) < 1e15 else f"{value:.{digits}g}"
    return f"{value:.{digits}g}"


def _percent(share: float, signed: bool = False) -> str:
    percent = 100 * share
    sign = "+" if signed else ""
    near_edge = 0 < abs(percent) < 0.1
    text = f"{percent:{sign}.2g}" if near_edge and abs(percent) >= 1e-4 else f"{percent:{sign}.1f}"
    return "0.0" if text in {"-0.0", "+0.0"} else text


def number(value: float | None, unit: Unit = "") -> str:
    """The digits of a figure without its unit: `67.5` of the share 0.675, `+3.2` of 0.032 points."""
    if value is None or not math.isfinite(value):
        return MISSING if value is None else plain(value)
    if unit == "share":
        return _percent(value)
    if unit == "points":
        return _percent(value, signed=True)
    if unit == "ratio":
        return plain(value, 3)
    if unit in {"tokens", "count"}:
        return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:,.1f}"
    if unit == "seconds":
        return plain(value, 3)
    return plain(value)


_SUFFIX: dict[Unit, str] = {
    "share": " %",
    "points": " pp",
    "ratio": "x",
    "tokens": " tokens",
    "nats": " nats",
    "seconds": " s",
    "count": "",
    "": "",
}


def suffix(unit: Unit) -> str:
    """What is written behind the digits, with its space: ` %`, ` pp`, `x`."""
    return _SUFFIX[unit]


def show(value: float | None, unit: Unit = "") -> str:
    """A figure with its unit: `67.5 %`, `+3.2 pp`, `3.4x`, `12,345 tokens`; a dash where there is none."""
    if value is None or math.isnan(value):
        return MISSING
    if unit == "seconds":
        return duration(value)
    return number(value, unit) + suffix(unit)


def show_interval(interval: Interval | None, unit: Unit = "") -> str:
    """Interval ends in brackets, `[62.0, 72.6]`; the level is named when it is not 95 %. Empty without an interval."""
    if interval is None:
        return ""
    ends = f"[{number(interval.low, unit)}, {number(interval.high, unit)}]"
    return ends if math.isclose(interval.level, 0.95) else f"{ends} ({plain(100 * interval.level, 3)} %)"


def show_with_interval(value: float | None, interval: Interval | None, unit: Unit = "") -> str:
    """`67.5 % [62.0, 72.6]`."""
    return f"{show(value, unit)} {show_interval(interval, unit)}".strip()


def difference_unit(unit: Unit) -> Unit:
    """The unit of a difference: shares differ by percentage points."""
    return "points" if unit == "share" else unit


def show_difference(value: float | None, unit: Unit = "") -> str:
    """A signed difference of two figures of `unit`: `+3.2 pp`, `-1,204 tokens`."""
    if value is None or math.isnan(value):
        return MISSING
    if unit in {"share", "points"}:
        return show(value, "points")
    text = show(abs(value), unit)
    if value == 0:
        return text
    return ("+" if value > 0 else "-") + text


def show_difference_interval(interval: Interval | None, unit: Unit = "") -> str:
    """The interval of a difference, with signed ends."""
    if interval is None:
        return ""
    if unit in {"share", "points"}:
        return show_interval(interval, "points")

    def end(value: float) -> str:
        text = number(abs(value), unit)
        return text if value == 0 else ("+" if value > 0 else "-") + text

    ends = f"[{end(interval.low)}, {end(interval.high)}]"
    return ends if math.isclose(interval.level, 0.95) else f"{ends} ({plain(100 * interval.level, 3)} %)"


def show_distance(value: float | None, unit: Unit = "") -> str:
    """An unsigned difference, such as the smallest detectable one: `4.5 pp`."""
    if value is None or math.isnan(value):
        return MISSING
    if unit in {"share", "points"}:
        return f"{_percent(abs(value))} pp"
    return show(abs(value), unit)


def show_p(p_value: float | None) -> str:
    """A p-value: `< 0.001`, `0.034`, `0.41`, `1`."""
    if p_value is None or math.isnan(p_value):
        return MISSING
    if p_value < 0.001:
        return "< 0.001"
    if p_value >= 0.995:
        return "1"
    return f"{p_value:.3f}" if p_value < 0.1 else f"{p_value:.2f}"


def count(value: int | None) -> str:
    """A whole number with thousands separators."""
    return MISSING if value is None else f"{value:,}"


def duration(seconds: float | None) -> str:
    """A time: `0.34 s`, `12.3 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds is None or math.isnan(seconds):
        return MISSING
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 1:
        return f"{sign}{seconds:.2g} s"
    if seconds < 99.95:
        return f"{sign}{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{sign}{whole} s"
    if whole < 3600:
        return f"{sign}{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{sign}{minutes // 60} h {minutes % 60:02d} min"


def memory(size: int) -> str:
    """Bytes in binary units: `2.31 GiB`."""
    scaled = float(size)
    for unit in ("B", "KiB", "MiB"):
        if abs(scaled) < 1024:
            return f"{scaled:.0f} {unit}" if unit == "B" or scaled >= 999.5 else f"{scaled:.3g} {unit}"
        scaled /= 1024
    return f"{scaled:,.3g} GiB" if scaled < 1000 else f"{scaled:,.0f} GiB"


def items(n: int, unparsed: int = 0, truncated: int = 0) -> str:
    """Items with those that could not be read and those cut off: `200 / 3 / 12`."""
    return f"{n:,} / {unparsed:,} / {truncated:,}"


def cell(value: object) -> str:
    """Any JSON value of a table: numbers shortened, `yes`/`no`, a dash for nothing, compact JSON for the rest."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return plain(value)
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)

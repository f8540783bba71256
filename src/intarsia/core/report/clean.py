"""Text that a model wrote, made safe to show: no control characters, no megabytes."""

from __future__ import annotations

import re

# C0 and C1 controls but tab and newline, bidirectional overrides (they can reorder what surrounds them), and code
# points that no document may hold.
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def printable(text: str) -> str:
    """The text with each unshowable character replaced by one visible one, so that spans keep their offsets."""
    return _UNSHOWABLE.sub(_picture, text)


def one_line(text: str) -> str:
    """Printable and on one line."""
    return " ".join(printable(text).split())


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, with a notice of how many were left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} \u2026 [{len(text) - limit:,} more characters are in report.json]"


def segments(text: str, marks: tuple[tuple[int, int], ...], limit: int) -> tuple[list[tuple[str, bool]], int]:
    """The text cut at its marks and at the limit.

    Args:
        text: The whole text.
        marks: (start, end) spans; they may overlap, be empty, or lie outside the text.
        limit: Most characters to keep.

    Returns:
        (piece, marked) pairs in order, and the number of characters left out.
    """
    kept = text[:limit]
    merged: list[list[int]] = []
    for start, end in sorted((max(0, start), min(len(kept), end)) for start, end in marks):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    pieces: list[tuple[str, bool]] = []
    at = 0
    for start, end in merged:
        pieces += [(kept[at:start], False), (kept[start:end], True)]
        at = end
    pieces.append((kept[at:], False))
    return [(printable(piece), marked) for piece, marked in pieces if piece], len(text) - len(kept)

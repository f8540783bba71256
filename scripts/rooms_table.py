"""The table of rooms in Markdown, and its place in the README.

`python scripts/rooms_table.py` writes it there.
"""

from __future__ import annotations

from pathlib import Path

from intarsia.rooms import ROOMS, Room

BEGIN = "<!-- rooms: written by scripts/rooms_table.py -->"
END = "<!-- /rooms -->"
README = Path(__file__).resolve().parent.parent / "README.md"


def rooms_table(pages: str = "") -> str:
    """One row a room: name, wing, what it does, paper, state.

    Args:
        pages: Folder of the rooms' documentation pages, relative to the page that holds the table; empty links none.
    """
    rows = ["| room | wing | what it does | paper | state |", "| --- | --- | --- | --- | --- |"]
    rows += [_row(room, pages) for room in ROOMS]
    return "\n".join(rows)


def _row(room: Room, pages: str) -> str:
    name = f"`{room.name}`"
    if pages and room.state == "ready":
        name = f"[{name}]({pages}/{room.name}.md)"
    return f"| {name} | {room.wing} | {room.summary} | [{room.system}]({room.paper_url}) | {room.state} |"


def with_table(text: str) -> str:
    """The text with the table between its two marks brought up to date."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"README.md has lost its marks {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{rooms_table('docs/rooms')}\n{END}{tail}"


if __name__ == "__main__":
    README.write_text(with_table(README.read_text(encoding="utf-8")), encoding="utf-8")

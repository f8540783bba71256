"""Every code block of the documentation runs as it stands, page by page, in one folder and one Python session a page.

A comment above a block says what is special about it: `<!-- test: model -->` (needs the embedded model), `server` (an
OpenAI-compatible server stands at http://localhost:8000), `exit 3` (exit codes that are right), `skip: reason`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from openai_server import Server

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if "studies" not in path.parts)
BLOCK = re.compile(
    r"(?:<!-- test: (?P<test>[^>]*?) -->\n+)?^(?P<fence>```+)(?P<lang>python|bash)\b[^\n]*\n(?P<code>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
WORD = r"(model|server|exit \d+( or \d+)*)"
SERVER = "http://localhost:8000"


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    code: str
    exits: frozenset[int]
    model: bool
    server: bool
    skip: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in BLOCK.finditer(text):
        test = match["test"] or ""
        exits = re.search(r"exit ((?:\d+)(?: or \d+)*)", test)
        skip = re.search(r"skip: (.+)", test)
        assert not test or re.fullmatch(
            r"skip: .+|(model|server|exit \d+( or \d+)*)(, (model|server|exit \d+( or \d+)*))*", test
        )
        found.append(
            Block(
                page=page,
                line=text.count("\n", 0, match.start("code")),
                language=match["lang"],
                code=match["code"],
                exits=frozenset(int(code) for code in exits[1].split(" or ")) if exits else frozenset({0}),
                model="model" in test and not skip,
                server="server" in test and not skip,
                skip=skip[1] if skip else "",
            )
        )
    return found


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if not block.skip]


def cases() -> Iterator[object]:
    for page in PAGES:
        found = runnable(page)
        if found:
            marks = [pytest.mark.model, pytest.mark.slow] if any(block.model for block in found) else []
            yield pytest.param(page, id=page.relative_to(ROOT / "docs").as_posix(), marks=marks)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.mark.parametrize("page", cases())
def test_code_blocks_run_as_pasted(page: Path, tmp_path: Path, server: Server) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("INTARSIA_DATA", "INTARSIA_CI")}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1", "COLUMNS": "120"}
    session = tmp_path.parent / f"{tmp_path.name}.py"
    prelude = ""
    for block in runnable(page):
        code = block.code.replace(SERVER, server.url) if block.server else block.code
        if block.language == "python":
            # One session a page: what earlier blocks made is there, and only the new block's output counts.
            session.write_text(prelude + code)
            command = [sys.executable, str(session)]
            prelude += code
        else:
            command = ["bash", "-euo", "pipefail", "-c", code]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=280,
        )
        where = f"{block.page.relative_to(ROOT)}:{block.line}"
        assert done.returncode in block.exits, f"{where}\n{code}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        assert "Traceback" not in done.stderr, f"{where}\n{done.stderr[-3000:]}"


def test_every_page_with_commands_is_found() -> None:
    assert {"tutorial/first-audit.md", "how-to/compare.md"} <= {p.relative_to(ROOT / "docs").as_posix() for p in PAGES}
    assert sum(len(runnable(page)) for page in PAGES) >= 10


def test_a_broken_block_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- test: exit 3 or 4 -->\n```bash\nexit 3\n```\n\n```python\nraise SystemExit(1)\n```\n```text\nno\n```\n"
    )
    first, second = blocks(page)
    assert (first.code, first.exits) == ("exit 3\n", frozenset({3, 4}))
    assert (second.code, second.exits, second.language) == ("raise SystemExit(1)\n", frozenset({0}), "python")


@pytest.mark.parametrize("page", [*PAGES, *sorted(ROOT.glob("*.md"))], ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    made = {"papers.md", "results.md", "cli.md"}  # pages that exist in the built documentation only
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text) + re.findall(r'src="([^"]+)"', text):
        if target.startswith(("http://", "https://", "mailto:")) or Path(target).name in made:
            continue
        if target == "docs/assets/report.png" and not (ROOT / target).exists():
            continue  # drawn from a real audit
        assert (page.parent / target).exists(), f"{page.name} links to {target}"

"""The project around the code: the table of rooms, the floors, pinned versions, Makefile, front matter."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import intarsia
from intarsia.core.errors import ConfigError
from intarsia.core.study import Study
from intarsia.rooms import AUDIT_STUDIES, ROOMS, WINGS, Room, audit_studies, load, recipe_kinds, reproductions, room
from rooms_table import with_table

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# --- the table of rooms


def test_nineteen_rooms_each_with_one_paper() -> None:
    assert len(ROOMS) == 19
    assert len({each.name for each in ROOMS}) == len({each.paper for each in ROOMS}) == 19
    assert all(each.wing in WINGS for each in ROOMS)
    assert all(re.fullmatch(r"arXiv:\d{4}\.\d{5}|OpenReview:\w{10}", each.paper) for each in ROOMS)
    assert all(each.summary.endswith(".") and len(each.summary) <= 110 for each in ROOMS)


@pytest.mark.parametrize("each", ROOMS, ids=lambda each: each.name)
def test_a_room_is_ready_exactly_when_it_can_be_imported(each: Room) -> None:
    there = importlib.util.find_spec(each.package) is not None
    assert there == (each.state == "ready")
    dotted = [*each.audit_studies, *each.reproductions, *each.recipe_kinds.values(), *filter(None, [each.commands])]
    if each.state == "planned":
        assert not dotted, "a planned room must promise nothing that cannot be loaded"
        return
    for name in dotted:
        assert name.startswith(each.package + ".")
        load(name)
    assert each.reproductions
    for place in ("docs/rooms/{}.md", "results/{}.json", "benchmarks/{}.py"):
        assert (ROOT / place.format(each.name)).is_file()


def test_studies_of_the_audit_load_under_their_names() -> None:
    studies = audit_studies()
    assert all(isinstance(study, Study) and study.kind == "audit" for study in studies)
    names = [study.name for study in studies]
    assert names[: len(AUDIT_STUDIES)] == [name for name, _ in AUDIT_STUDIES]
    assert len(set(names)) == len(names)


def test_a_room_is_found_by_either_spelling_and_a_slip_names_the_nearest() -> None:
    assert room("transfer-attacks") is room("Transfer_Attacks")
    with pytest.raises(ConfigError, match="Did you mean robustness"):
        room("robustnes")
    with pytest.raises(ConfigError, match="intarsia rooms"):
        room("zzz")
    with pytest.raises(ConfigError, match="no room"):
        reproductions("")


def test_recipe_kinds_are_those_of_the_rooms() -> None:
    assert set(recipe_kinds()) == {kind for each in ROOMS for kind in each.recipe_kinds}


def test_the_readme_shows_the_table() -> None:
    text = (ROOT / "README.md").read_text()
    assert with_table(text) == text, "run `make format`"
    assert all(f"| `{each.name}` |" in text or f"| [`{each.name}`]" in text for each in ROOMS)


# --- the floors of the house


@pytest.fixture
def copy_of_the_house(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def lint(house: Path) -> subprocess.CompletedProcess[str]:
    script = (
        "import sys; sys.path.insert(0, 'src'); from importlinter.cli import lint_imports; sys.exit(lint_imports())"
    )
    return subprocess.run([sys.executable, "-c", script], cwd=house, capture_output=True, text=True)


def add(house: Path, place: str, code: str) -> None:
    path = house / "src" / "intarsia" / place
    path.parent.mkdir(exist_ok=True)
    if path.name != "__init__.py" and not (path.parent / "__init__.py").exists():
        (path.parent / "__init__.py").write_text("")
    before = path.read_text() if path.exists() else ""
    path.write_text(f"{before}\n{code}\n")


def test_the_floors_hold_also_with_rooms_built(copy_of_the_house: Path) -> None:
    add(copy_of_the_house, "policy/__init__.py", "from intarsia.core import errors")
    add(copy_of_the_house, "reasoning/__init__.py", "from intarsia import policy\nfrom intarsia.core import study")
    add(copy_of_the_house, "compose/__init__.py", "from intarsia import reasoning, guidance")
    add(copy_of_the_house, "guidance/__init__.py", "def f():\n    from intarsia.core import target")
    done = lint(copy_of_the_house)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("core/errors.py", "def f():\n    from intarsia import rooms"),
        ("core/errors.py", "import intarsia.guidance"),
        ("guidance/decoder.py", "from intarsia import watermark"),
        ("watermark/__init__.py", "from intarsia.audit.gate import gate"),
        ("guidance/decoder.py", "from intarsia import cli"),
        ("policy/__init__.py", "from intarsia import guidance"),
        ("helpers/__init__.py", ""),
    ],
    ids=lambda value: value.replace("\n", " "),
)
def test_an_import_that_goes_up_or_sideways_is_refused(copy_of_the_house: Path, place: str, code: str) -> None:
    add(copy_of_the_house, "guidance/__init__.py", "")
    add(copy_of_the_house, "watermark/__init__.py", "")
    add(copy_of_the_house, place, code)
    done = lint(copy_of_the_house)
    assert done.returncode == 1, done.stdout
    assert "BROKEN" in done.stdout


def test_every_room_has_its_floor() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layer = next(layer for layer in contracts[0]["layers"] if "(robustness)" in layer)
    assert [name.strip(" ()") for name in layer.split("|")] == [each.name for each in ROOMS]


# --- versions


def requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"]
    texts = [*PROJECT["dependencies"], *(text for group in extras.values() for text in group)]
    found = [Requirement(text) for text in texts]
    return [requirement for requirement in found if requirement.name != "intarsia"]


def test_every_dependency_is_pinned_to_a_version_that_it_allows() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    pins = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    assert all(pins.values()), "each line pins one version"
    assert not any("+" in version for version in pins.values()), "a local version exists on one machine only"
    for requirement in requirements():
        version = pins[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), f"{requirement} is pinned to {version}"


def test_all_holds_every_extra_that_is_for_users() -> None:
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    assert set(Requirement(everything).extras) == set(extras) - {"all", "dev", "docs"}


def test_one_version_everywhere() -> None:
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert intarsia.__version__ == PROJECT["version"] == str(cff["version"]) == metadata.version("intarsia")


def test_the_citation_file_has_what_the_format_asks_for() -> None:
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(cff)
    assert cff["cff-version"] == "1.2.0"
    assert cff["type"] in ("software", "dataset")
    assert cff["license"] == PROJECT["license"] == "Apache-2.0"


def test_the_change_log_has_a_place_for_what_is_next() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings
    assert headings[0] == "Unreleased"


# --- Makefile and continuous integration


@pytest.mark.needs_tool("make")
def test_make_names_its_targets_and_says_what_is_missing(tmp_path: Path) -> None:
    # A stamp that is newer than everything: the targets under test must not install.
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / ".intarsia-ready").touch()

    def make(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["make", "--no-print-directory", f"VENV={tmp_path / 'env'}", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )

    listed = make("help").stdout
    for target in ("audit", "test", "test-all", "lint", "docs", "reproduce", "bench", "clean"):
        assert f"make {target} " in listed
        assert make("-n", target, "ROOM=target").returncode == 0
    for target in ("reproduce", "bench"):
        done = make(target)
        assert done.returncode == 2
        assert "there is" in done.stderr or "which room" in done.stderr
    assert "audit smollm2-135m --budget quick" in make("-n", "audit").stdout
    assert '-m "not slow"' in make("-n", "test").stdout


@pytest.mark.needs_tool("make")
def test_make_installs_when_the_environment_is_missing_or_old(tmp_path: Path) -> None:
    def plan() -> str:
        return subprocess.run(
            ["make", "-n", "test", f"VENV={tmp_path / 'env'}"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    assert "pip install" in plan()
    (tmp_path / "env").mkdir()
    stamp = tmp_path / "env" / ".intarsia-ready"
    stamp.touch()
    assert "pip install" not in plan()
    os.utime(stamp, (0, 0))
    assert "pip install" in plan()


@pytest.mark.needs_tool("bash")
def test_the_continuous_integration_script_is_a_program() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert "set -euo pipefail" in script.read_text()
    assert subprocess.run(["bash", "-n", str(script)], capture_output=True).returncode == 0


def test_a_missing_system_tool_is_a_skip_for_a_user_and_a_failure_in_ci(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makeconftest((ROOT / "conftest.py").read_text())
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.needs_tool("no-such-command-here")
        def test_marked():
            raise AssertionError("must not run")

        def test_by_hand():
            pytest.skip("missing system tool: another-one")

        def test_other_skips_stay():
            pytest.skip("no data here")

        @pytest.mark.needs_tool("sh")
        def test_runs():
            pass
        """
    )
    monkeypatch.delenv("INTARSIA_CI", raising=False)
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1, skipped=3)
    monkeypatch.setenv("INTARSIA_CI", "1")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rA")
    outcomes = result.parseoutcomes()
    assert (outcomes["passed"], outcomes["skipped"]) == (1, 1)
    assert outcomes.get("failed", 0) + outcomes.get("errors", 0) == 2
    result.stdout.fnmatch_lines(["*no-such-command-here*INTARSIA_CI*"])
    assert result.ret == 1

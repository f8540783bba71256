"""Importing Intarsia, and asking the command line for help, load none of the heavy libraries."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "torch",
    "transformers",
    "datasets",
    "accelerate",
    "trl",
    "peft",
    "pandas",
    "scipy",
    "sklearn",
    "matplotlib",
    "openai",
    "inspect_ai",
    "ray",
    "huggingface_hub",
    "jinja2",
    "gradio",
    "fastapi",
}
PROBE = """
import json, sys
sys.argv = json.loads({argv!r})
try:
    {code}
except SystemExit as stop:
    assert not stop.code, stop.code
print("\\n" + json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""


def loaded(code: str, *argv: str) -> set[str]:
    script = PROBE.format(argv=json.dumps(["intarsia", *argv]), code=code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "code",
    [
        "import intarsia",
        "import intarsia; dir(intarsia); intarsia.__version__",
        "import intarsia.rooms",
        "import intarsia.core.study, intarsia.core.target, intarsia.core.sampling, intarsia.core.errors",
        "import intarsia.core.data, intarsia.core.doctor, intarsia.core.recipes",
    ],
)
def test_imports_are_light(code: str) -> None:
    assert not loaded(code) & HEAVY


@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], ["audit", "--help"], ["train", "--help"], ["rooms"], ["rooms", "--json"]]
)
def test_the_command_line_is_light(argv: list[str]) -> None:
    assert not loaded("from intarsia.cli import main; main()", *argv) & HEAVY


def test_the_probe_sees_a_heavy_import() -> None:
    assert "jinja2" in loaded("import intarsia, jinja2") & HEAVY

"""What holds for every test: a missing system tool is a skip for a user and a failure in continuous integration."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from typing import TypeVar

import pytest

pytest_plugins = ["pytester"]

MISSING = "missing system tool"
AnyReport = TypeVar("AnyReport", pytest.TestReport, pytest.CollectReport)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs_tool"):
        missing = [name for name in marker.args if shutil.which(name) is None]
        if missing:
            pytest.skip(f"{MISSING}: {', '.join(missing)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _strict((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _strict((yield))


def _strict(report: AnyReport) -> AnyReport:
    """In continuous integration, which installs every tool, a skip for want of one hides a missing install step."""
    if os.environ.get("INTARSIA_CI") and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if MISSING in reason:
            report.outcome = "failed"
            report.longrepr = f"{reason} (INTARSIA_CI is set: .ci/run has to install it)"
    return report

"""Mitigations: a way to ask, steer or train that should make replies less sycophantic.

A mitigation turns a target into another target, so that everything that measures a model measures a mended one too.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from intarsia.core.target import Target


@runtime_checkable
class Mitigation(Protocol):
    """Turns a target into one that should flatter less."""

    @property
    def name(self) -> str:
        """As it appears in reports and in the mended target's name."""

    def mend(self, target: Target) -> AbstractContextManager[Target]:
        """The mended target, as long as the context is open; the original is unchanged after it.

        Raises:
            ConfigError: The target lacks what it takes (weights, chat).
        """

"""The audit: what is wrong with a model, how sure that is, and what to do about it.

The module itself can be called: `intarsia.audit("smollm2-135m")`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from intarsia.audit.capability import Capability
from intarsia.audit.compare import compare
from intarsia.audit.config import AuditConfig
from intarsia.audit.engine import AuditIncomplete, Listener, run_audit
from intarsia.audit.gate import Gate, gate
from intarsia.audit.run import audit

if TYPE_CHECKING:
    from intarsia.core.study import Report

__all__ = [
    "AuditConfig",
    "AuditIncomplete",
    "Capability",
    "Gate",
    "Listener",
    "audit",
    "compare",
    "gate",
    "run_audit",
]


class _CallableModule(ModuleType):
    """Lets `intarsia.audit` be both the sub-package and the function a user calls."""

    def __call__(self, *args: Any, **kwargs: Any) -> Report:
        return audit(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule

"""Intarsia: a workshop for open-weight models.

    import intarsia

    report = intarsia.audit("smollm2-135m", budget="smoke")
    report.to_frame()

Rooms are sub-packages (`intarsia.robustness`, `intarsia.watermark`, ...); each works alone. Nothing heavy is imported
before it is used.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["Report", "Sampling", "Target", "__version__", "audit", "compare"]


def __getattr__(name: str) -> Any:
    # Lazy, so that `import intarsia` costs nothing: torch and transformers load when a model does.
    if name == "audit":
        import importlib

        return importlib.import_module("intarsia.audit")
    if name == "compare":
        from intarsia.audit.compare import compare

        return compare
    if name == "Target":
        from intarsia.core.target import Target

        return Target
    if name == "Sampling":
        from intarsia.core.sampling import Sampling

        return Sampling
    if name == "Report":
        from intarsia.core.study import Report

        return Report
    raise AttributeError(f"module 'intarsia' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

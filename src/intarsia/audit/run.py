"""`intarsia.audit(...)`: the audit as one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from intarsia.audit.config import make_config
from intarsia.audit.engine import OPENING, Listener, default_folder, run_audit
from intarsia.core.study import BudgetName, Report, Study
from intarsia.core.target import Target
from intarsia.rooms import audit_studies


def audit(
    model: str | Target,
    *others: str | Target,
    studies: str | Sequence[str] = (),
    budget: BudgetName = "quick",
    seed: int = 0,
    data: str | Path = "",
    mapping: Mapping[str, str] | None = None,
    system: str = "",
    template: str = "",
    judge: str = "",
    options: Mapping[str, Mapping[str, Any]] | None = None,
    baseline: str = "",
    out: str | Path | None = None,
    extra_studies: Iterable[Study] = (),
    listener: Listener | None = None,
    **target_options: Any,
) -> Report:
    """Audit one model or several.

    Args:
        model: A name as in `Target.parse`, or a target at hand.
        *others: More models. Two are also compared with each other, paired on the same items.
        studies: Names of studies; all by default.
        budget: `smoke`, `quick`, `standard` or `full`.
        seed: Master seed.
        data: Your own questions: a file or a hub id.
        mapping: Which of its columns is what (`{"question": "q", "answer": "a"}`).
        system: System prompt of your application.
        template: Question template with `{question}`.
        judge: A target that judges answers.
        options: Study options, `{"capability": {"sets": ["stories"]}}`.
        baseline: Which of two models the other is held against; the first by default.
        out: Run folder; a call on the folder of an unfinished audit goes on with it. By default a new one in `runs`.
        extra_studies: Studies of your own, run after the audit's.
        listener: Hears how it goes.
        **target_options: Options for opening models: `dtype`, `device`, `concurrency`, `accept_license`, ...

    Returns:
        The report; `report.claims`, `report.to_frame()`, `report.contrasts`.

    Raises:
        ConfigError: A setting is wrong.
        ModelError: A model cannot be had.
        AuditIncomplete: A study stopped; the error carries the report of the rest.
    """
    given = [model, *others]
    names = tuple(one.name if isinstance(one, Target) else one for one in given)
    config = make_config(
        {
            "models": names,
            "studies": studies,
            "budget": budget,
            "seed": seed,
            "data": str(data),
            "mapping": dict(mapping or {}),
            "system": system,
            "template": template,
            "judge": judge,
            "options": {name: dict(values) for name, values in (options or {}).items()},
            "target": {key: value for key, value in target_options.items() if key not in OPENING},
            "baseline": baseline,
        }
    )
    available = {study.name: study for study in [*audit_studies(), *extra_studies]}
    return run_audit(
        config,
        out or default_folder(names),
        studies=available,
        targets={one.name: one for one in given if isinstance(one, Target)},
        opening={key: value for key, value in target_options.items() if key in OPENING},
        listener=listener,
    )

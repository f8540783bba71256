"""Run an audit: every study on every model, in order, resumable at any moment."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from intarsia.audit.compare import contrasts
from intarsia.audit.config import AuditConfig, choose_studies, nearest, study_options
from intarsia.audit.folder import RunFolder
from intarsia.core import execute as execution
from intarsia.core.data import DataSet, load
from intarsia.core.errors import BackendError, ConfigError, IntarsiaError
from intarsia.core.study import Context, Remedy, Report, Result, Study, canonical_json, skipped
from intarsia.core.target import Target

# Options that can change an answer are settings of the audit; those that only say how a model is opened are not, so a
# resumed run may raise a limit or a time-out.
LOCAL_SETTINGS = frozenset({"dtype", "device", "device_map", "batch_tokens", "transcript", "thinking"})
LOCAL_OPENING = frozenset({"accept_license"})
ENDPOINT_SETTINGS = frozenset({"api", "extra_body"})
ENDPOINT_OPENING = frozenset(
    {
        "backoff", "breaker", "concurrency", "connect_timeout", "contact_timeout", "deadline", "key_env", "key_file",
        "max_backoff", "max_requests", "max_tokens_total", "read_timeout", "retries",
    }
)  # fmt: skip
SETTINGS = LOCAL_SETTINGS | ENDPOINT_SETTINGS
OPENING = LOCAL_OPENING | ENDPOINT_OPENING


class Listener:
    """Hears how an audit goes; the terminal and the playground override what they show."""

    def opening(self, target: str) -> None:
        """A model is about to be loaded."""

    def started(self, target: str, study: str) -> None:
        """A study begins on a target."""

    def progress(self, what: str, done: int, total: int) -> None:
        """A stage of the study has got on."""

    def finished(self, result: Result) -> None:
        """A result is there."""


class AuditIncomplete(IntarsiaError):
    """Some studies stopped with an error; the report holds the rest.

    Attributes:
        report: What there is.
    """

    def __init__(self, message: str, hint: str, report: Report) -> None:
        super().__init__(message, hint)
        self.report = report


def run_audit(
    config: AuditConfig,
    out: str | Path,
    *,
    studies: Mapping[str, Study],
    targets: Mapping[str, Target] | None = None,
    opening: Mapping[str, Any] | None = None,
    listener: Listener | None = None,
) -> Report:
    """Every chosen study on every model, kept in `out` as it goes.

    The same call on the same folder goes on where an earlier one stopped and ends with the same report body.

    Args:
        config: The settings.
        out: The run folder.
        studies: All studies that the audit has, by name, in order.
        targets: Targets at hand by name, for models that are not opened by name.
        opening: Options that only say how models are opened (`accept_license`, `concurrency`, `read_timeout`, ...).
        listener: Hears how it goes.

    Returns:
        The report, also saved in `out` as report.html, report.json, report.md and junit.xml.

    Raises:
        ConfigError: A setting is wrong; found before any model is opened.
        AuditIncomplete: A study stopped with an error; the report with the rest is saved and carried by it.
    """
    listener = listener or Listener()
    watch = execution.Stopwatch()
    check_settings(config, studies)
    chosen = choose_studies(studies, config.studies)
    options = {study.name: study_options(study, config.options.get(study.name, {})) for study in chosen}
    data = load(config.data, mapping=config.mapping or None, seed=config.seed) if config.data else None
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder(out, config))
        if data is not None:
            folder.check_input(f"The data {config.data}", data.sha256)
        for model in config.models:
            if model not in (targets or {}):
                _check_weights(folder, model)
        judge: Target | None = None
        results: list[Result] = []
        failures: list[IntarsiaError] = []
        for model in config.models:
            target: Target | None = None
            lost: IntarsiaError | None = None
            try:
                for study in chosen:
                    result = folder.finished(model, study.name)
                    if result is None and lost is None:
                        if target is None:
                            listener.opening(model)
                            target = (targets or {}).get(model) or open_target(model, config, opening or {})
                            _check_model(folder, model, target.provenance())
                        if config.judge and study.uses_judge and judge is None:
                            listener.opening(config.judge)
                            judge = stack.enter_context(open_target(config.judge, config, opening or {}))
                        listener.started(model, study.name)
                        try:
                            result = _one(study, target, config, options[study.name], folder, data, judge, listener)
                        except IntarsiaError as error:
                            failures.append(error)
                            # What the work runs on is gone: the model's other studies would only meet the same.
                            lost = error if isinstance(error, BackendError) else None
                            result = _stopped(study, model, error, config)
                    elif result is None:
                        assert lost is not None
                        result = _stopped(study, model, lost, config)
                    listener.finished(result)
                    results.append(result)
            finally:
                if target is not None and model not in (targets or {}):
                    target.close()
        report = Report(
            title="Audit of " + " and ".join(config.models) if len(config.models) < 3 else "Audit of several models",
            targets=config.models,
            results=tuple(results),
            contrasts=contrasts(results, config.models, baseline=config.baseline),
            config=config.model_dump(mode="json"),
            run=watch.read(resumed=sum(result.run.resumed for result in results)),
        )
        report.save(folder.path)
    if failures:
        raise AuditIncomplete(
            f"{len(failures)} of {len(results)} studies stopped: {failures[0]}",
            f"The rest is kept; go on with: intarsia audit --resume {shlex.quote(str(folder.path))}",
            report,
        )
    return report


def _one(
    study: Study,
    target: Target,
    config: AuditConfig,
    options: BaseModel,
    folder: RunFolder,
    data: DataSet | None,
    judge: Target | None,
    listener: Listener,
) -> Result:
    lack = study.missing(target)
    if lack:
        target.probe_capabilities()
        lack = study.missing(target)
    if lack:
        remedy = Remedy(text="Audit the model's weights from a folder or the hub, or choose an endpoint that can.")
        result = skipped(study, target.name, lack, remedy, scale=config.budget)
    else:
        with folder.journal(target.name, study.name) as journal:
            context = Context(
                target=target,
                options=options,
                budget=config.budget,
                seed=config.seed,
                journal=journal,
                data=data,
                judge=judge,
                system=config.system,
                template=config.template,
                progress=listener.progress,
            )
            result = execution.execute(study, context)
        result = result.model_copy(update={"notes": (*result.notes, *target.notes)})
        if journal.unanswered:
            # Not kept as finished, so that the same command asks those prompts again.
            again = f"{journal.unanswered} prompts got no answer; the same command asks them again"
            return result.model_copy(update={"notes": (*result.notes, again)})
        if any(claim.state == "skipped" for claim in result.claims):
            # Nor is one that lacks a set of questions: it may be at hand the next time.
            return result
    folder.keep(result)
    return result


def _check_weights(folder: RunFolder, model: str) -> None:
    """A local model may be trained anew under its old name, so its files are looked at before kept results are used."""
    if Path(model).expanduser().exists():
        from intarsia.core.catalog import resolve

        _check_model(folder, model, resolve(model, offline=True).provenance())


def _check_model(folder: RunFolder, model: str, provenance: Mapping[str, Any]) -> None:
    # An endpoint does not say which weights it has.
    if provenance.get("sha256"):
        known = canonical_json([provenance["sha256"], provenance.get("revision")])
        folder.check_input(model, hashlib.sha256(known).hexdigest())


def _stopped(study: Study, model: str, error: IntarsiaError, config: AuditConfig) -> Result:
    # Not kept in the folder, so that the same command tries it again.
    return skipped(study, model, f"stopped: {error.message}", Remedy(text=error.hint), scale=config.budget)


def open_target(spec: str, config: AuditConfig, opening: Mapping[str, Any]) -> Target:
    """Open a model by name with those of the options that its kind takes."""
    if spec.startswith(("http://", "https://")):
        fitting = ENDPOINT_SETTINGS | ENDPOINT_OPENING
    elif spec.startswith("inspect:"):
        fitting = frozenset()
    else:
        fitting = LOCAL_SETTINGS | LOCAL_OPENING
    options = {**config.target, **opening}
    return Target.parse(spec, **{key: value for key, value in options.items() if key in fitting})


def check_settings(config: AuditConfig, studies: Mapping[str, Study]) -> None:
    """Refuse an unknown study, study option or target option before any model is opened."""
    for name in config.options:
        if name not in studies:
            raise ConfigError(f"There is no study {name!r} to set an option of.", nearest(name, studies))
    if config.judge and not any(study.uses_judge for study in choose_studies(studies, config.studies)):
        raise ConfigError("None of the chosen studies lets a model judge answers.", "Leave out the judge.")
    for key in config.target:
        if key not in SETTINGS:
            raise ConfigError(f"There is no target option {key!r}.", nearest(key, SETTINGS | OPENING))


def default_folder(models: Sequence[str], now: Callable[[], datetime] = datetime.now) -> Path:
    """`runs/audit-<model>-<time>`: where an audit without --out goes."""
    first = "".join(c if c.isalnum() else "-" for c in models[0]).strip("-")[-40:] if models else "none"
    return Path("runs") / f"audit-{first}-{now():%Y%m%d-%H%M%S}"

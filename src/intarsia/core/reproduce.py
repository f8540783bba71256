"""Run a room's reproductions and keep their verdicts: `results/<room>.json` holds one result a (study, scale)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from intarsia.core import execute as execution
from intarsia.core.errors import ConfigError, DataError
from intarsia.core.journal import Journal, write_atomic
from intarsia.core.study import Context, Report, Result, Study

Scale: TypeAlias = Literal["cpu", "full", "gpu"]
SCALES: tuple[Scale, ...] = ("cpu", "full", "gpu")


def reproduce(
    room: str,
    studies: Sequence[Study],
    *,
    scale: Scale = "cpu",
    seeds: int | None = None,
    seed: int = 0,
    out: str | Path = "results",
    work: str | Path | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    finished: Callable[[Result], None] | None = None,
) -> Report:
    """Measure a room's claims.

    A killed run goes on from its journals when the same call is made again. Results of other scales that the file holds
    already are kept beside the new ones.

    Args:
        room: The room's name.
        studies: Its reproductions.
        scale: `cpu` (gates, minutes), `full` (all the rest) or `gpu`.
        seeds: Number of seeds; each study's own where None.
        seed: First seed.
        out: Folder of `<room>.json`.
        work: Folder of the journals; `runs/reproduce-<room>-<scale>` by default.
        progress: Called with (stage, done, total).
        finished: Called with each result.

    Returns:
        The report as stored, with all scales.

    Raises:
        ConfigError: No study has anything to run at that scale.
    """
    chosen = [study for study in studies if scale in study.scales]
    if studies and not chosen:
        known = [name for name in SCALES if any(name in study.scales for study in studies)]
        raise ConfigError(f"{room} has nothing to run at scale {scale}.", f"Use --scale {' or '.join(known)}.")
    folder = Path(work) if work is not None else Path("runs") / f"reproduce-{room}-{scale}"
    stored = Path(out) / f"{room}.json"
    watch = execution.Stopwatch()
    results: list[Result] = []
    for study in chosen:
        settings = {"room": room, "study": study.name, "scale": scale, "seeds": seeds, "seed": seed}
        with Journal(folder / f"{study.name}.jsonl", manifest=settings) as journal:
            context = Context(
                options=study.Options(),
                seed=seed,
                seeds=seeds,
                scale=scale,
                journal=journal,
                progress=progress or (lambda what, done, total: None),
            )
            result = execution.execute(study, context)
        provenance = result.provenance.model_copy(update={"options": {**result.provenance.options, "scale": scale}})
        result = result.model_copy(update={"provenance": provenance})
        results.append(result)
        if finished is not None:
            finished(result)
    report = Report(
        title=f"Reproduction: {room}",
        results=(*_others(stored, {result.study for result in results}, scale), *results),
        config={"room": room},
        run=watch.read(),
    )
    write_atomic(stored, report.model_dump_json(indent=1) + "\n")
    return report


def _others(stored: Path, studies: set[str], scale: Scale) -> tuple[Result, ...]:
    """Results in the file that this run does not replace."""
    if not stored.is_file():
        return ()
    try:
        before = Report.load(stored)
    except DataError as error:
        raise DataError(f"{stored} cannot be added to: {error.message}", "Move it away and run again.") from None
    return tuple(
        result
        for result in before.results
        if not (result.study in studies and result.provenance.options.get("scale") == scale)
    )

"""People label a run's replies blind, in the terminal or on a page; that calibrates the judge for that very model.

Ours. Replies are drawn by set and arm and never by what the judge said of them, because sensitivity and specificity
would then be those of a sample that the judge chose. Whoever labels sees question and reply: neither the judge's label,
nor the model's name, nor whether a model or a human wrote it.
"""

from __future__ import annotations

import hashlib
import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.journal import Journal, content_key, write_atomic
from intarsia.core.report.clean import printable
from intarsia.core.target import Progress
from intarsia.sycophancy.calibration import Calibration, count
from intarsia.sycophancy.correction import JudgeErrors
from intarsia.sycophancy.dimensions import DIMENSIONS
from intarsia.sycophancy.judging import Exchange, Judge, Label
from intarsia.sycophancy.records import Arm, ReplyRecord
from intarsia.sycophancy.results import SycophancyReport
from intarsia.sycophancy.validation import (
    PAPER_ACCURACY,
    PAPER_COHEN,
    PAPER_FLEISS,
    Annotation,
    Validation,
    exchange_of,
    judge_agreement,
    majority_of,
    sample_for_annotation,
    validate_judge,
)

REPLIES = 120
"""Replies that are drawn for each dimension and arm: some will be skipped."""
LEAST = 100
"""Fewest labels of an arm in a dimension that the judge is calibrated with."""
FORMAT = 1
ANNOTATOR = "me"
ARMS: tuple[Arm, ...] = ("model", "human")
_NOT_JUDGED = ("error", "empty", "refused")


class Task(NamedTuple):
    """A reply to be labeled in one dimension.

    Attributes:
        id: Opaque name, which tells neither arm nor set.
        key: The reply's name in the run.
        dimension: In which dimension.
        question: What the user wrote.
        reply: What was answered.
    """

    id: str
    key: str
    dimension: str
    question: str
    reply: str


class Labeled(NamedTuple):
    """How far the labeling has come, and what it says of the judge.

    Attributes:
        done: Tasks with an answer (a label or a skip).
        total: Tasks.
        report: The report, put right where that is possible.
        calibrations: Arm -> the judge against people; empty before there are enough labels.
        notes: Why an arm or a dimension is not calibrated.
    """

    done: int
    total: int
    report: SycophancyReport
    calibrations: dict[Arm, Calibration]
    notes: tuple[str, ...]


class _Page(BaseModel):
    """What the page saves."""

    model_config = ConfigDict(extra="forbid")

    format: Literal[1]
    run: str
    annotator: str = ""
    labels: dict[str, Literal[0, 1] | None]


def draw(
    report: SycophancyReport, replies: int = REPLIES, *, dimensions: Sequence[str] | None = None, seed: int = 0
) -> list[Task]:
    """The tasks, the same for the same report and arguments, grouped by dimension.

    Args:
        report: Of a finished run.
        replies: For each dimension and arm, evenly over the sets; fewer where there are not as many.
        dimensions: Which; all that the run labeled when omitted.
        seed: Of the draw.

    Raises:
        DataError: The run has no labeled replies.
        ConfigError: The run was not labeled in a dimension.
    """
    judged = [one for one in report.replies if not one.variant and one.labels]
    known = [name for name in DIMENSIONS if any(name in one.labels for one in judged)]
    if not judged or not known:
        raise DataError("The run has no labeled replies.", "Run it with a judge first.")
    wanted = list(dimensions) if dimensions is not None else known
    for name in wanted:
        if name not in known:
            raise ConfigError(f"The run was not labeled in {name!r}.", f"It was in {', '.join(known)}.")
    run = _run_of(report)
    tasks: list[Task] = []
    for dimension in wanted:
        drawn: list[tuple[str, Task]] = []
        for arm in ARMS:
            members = [one for one in judged if one.arm == arm and _was_judged(one, dimension)]
            if not members:
                continue
            by_exchange = {_exchange_name(one): one for one in members}
            sampled = sample_for_annotation(members, replies, seed, dimensions=(dimension,), strata=("set", "side"))
            for one in sampled:
                record = by_exchange[one.exchange.id]
                opaque = content_key("label", run, record.key, dimension)
                task = Task(opaque, record.key, dimension, record.question, record.reply)
                drawn.append((content_key("order", seed, opaque), task))
        # By hash, so that the arms are mixed.
        tasks += [task for _, task in sorted(drawn)]
    return tasks


def label_in_terminal(
    folder: str | Path,
    *,
    annotator: str = ANNOTATOR,
    replies: int = REPLIES,
    dimensions: Sequence[str] | None = None,
    seed: int = 0,
    least: int = LEAST,
    read: Callable[[str], str] = input,
    write: Callable[[str], None] = print,
) -> Labeled:
    """Show one reply after the other and take 0, 1, s (skip), b (back) or q (quit); every answer is safe on disk.

    Started again, it goes on with the first reply that has no answer.

    Args:
        folder: Of a finished run.
        annotator: Whoever labels; each has a file `labels-NAME.jsonl` in the folder.
        replies: See `draw`.
        dimensions: See `draw`.
        seed: See `draw`.
        least: See `calibrated`.
        read: Asks for a line.
        write: Shows a line.
    """
    report = SycophancyReport.load(folder)
    tasks = draw(report, replies, dimensions=dimensions, seed=seed)
    with _labels_file(Path(folder), report, annotator) as journal:
        at = next((i for i, task in enumerate(tasks) if task.id not in journal), len(tasks))
        while at < len(tasks):
            task = tasks[at]
            write(_shown(task, at, len(tasks)))
            try:
                said = read("0, 1, s(kip), b(ack), q(uit): ").strip().lower()
            except (EOFError, KeyboardInterrupt):
                break
            if said in ("q", "quit"):
                break
            if said in ("b", "back"):
                at = max(0, at - 1)
            elif said in ("0", "1", "s", "skip"):
                journal.append({task.id: _row(task, int(said) if said in "01" else None)})
                # Behind an answer that was changed, the next open one follows.
                at = next((i for i in range(at + 1, len(tasks)) if tasks[i].id not in journal), len(tasks))
            else:
                write(f"{printable(said)!r} is none of 0, 1, s, b, q.")
        rows = _values(journal)
    return _labeled(report, tasks, rows, least)


def export_page(
    folder: str | Path,
    path: str | Path,
    *,
    annotator: str = ANNOTATOR,
    replies: int = REPLIES,
    dimensions: Sequence[str] | None = None,
    seed: int = 0,
) -> Path:
    """Write one HTML file with the tasks and buttons, which needs no network and saves the answers as JSON.

    It holds the questions and replies: treat it as you treat them.

    Returns:
        The path.
    """
    report = SycophancyReport.load(folder)
    tasks = draw(report, replies, dimensions=dimensions, seed=seed)
    data = {
        "format": FORMAT,
        "run": _run_of(report),
        "annotator": annotator,
        "tasks": [
            {
                "id": task.id,
                "dimension": task.dimension,
                "one": DIMENSIONS[task.dimension].one,
                "zero": DIMENSIONS[task.dimension].zero,
                "question": printable(task.question),
                "reply": printable(task.reply),
            }
            for task in tasks
        ],
    }
    # A script of type JSON ends at the first "</script", whatever string that stands in.
    island = json.dumps(data, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e")
    return write_atomic(path, _PAGE.replace("@TITLE@", html.escape("Label replies")).replace("@DATA@", island))


def import_page(
    folder: str | Path,
    path: str | Path,
    *,
    annotator: str = "",
    replies: int = REPLIES,
    dimensions: Sequence[str] | None = None,
    seed: int = 0,
    least: int = LEAST,
) -> Labeled:
    """Take over what a page saved. The draw must be the one that the page was made with.

    Raises:
        DataError: The file is no such JSON, or belongs to another run.
    """
    report = SycophancyReport.load(folder)
    tasks = draw(report, replies, dimensions=dimensions, seed=seed)
    by_id = {task.id: task for task in tasks}
    try:
        page = _Page.model_validate_json(Path(path).read_bytes())
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{path} does not hold labels: {str(error).splitlines()[0]}.", "Give the file that the page saved."
        ) from None
    if page.run != _run_of(report):
        raise DataError(f"{path} belongs to another run.", "Give the folder that the page was made from.")
    unknown = [one for one in page.labels if one not in by_id]
    if unknown:
        raise DataError(
            f"{len(unknown)} labels of {path} are of replies that were not drawn.",
            "Give the same number of replies, dimensions and seed as the page was made with.",
        )
    with _labels_file(Path(folder), report, annotator or page.annotator or ANNOTATOR) as journal:
        journal.append({one: _row(by_id[one], value) for one, value in page.labels.items()})
        rows = _values(journal)
    return _labeled(report, tasks, rows, least)


def read_labels(folder: str | Path, annotator: str = ANNOTATOR) -> dict[tuple[str, str], int]:
    """The labels of one annotator: (reply key, dimension) -> 0 or 1; skips are left out.

    Raises:
        DataError: There are none.
    """
    path = _path(Path(folder), annotator)
    if not path.is_file():
        raise DataError(
            f"{folder} has no labels by {annotator}.", f"Label replies first: intarsia sycophancy label {folder}"
        )
    journal = Journal.read(path)
    return {place: value for place, value in _values(journal).items() if value is not None}


def calibrated(
    report: SycophancyReport, labels: Mapping[tuple[str, str], int], *, least: int = LEAST
) -> tuple[SycophancyReport, dict[Arm, Calibration], tuple[str, ...]]:
    """The judge against people on this model's replies and on humans', and the report put right with it.

    Args:
        report: Of the run.
        labels: (reply key, dimension) -> a person's label.
        least: Fewest labels of an arm in a dimension.

    Returns:
        The report with the judge's errors and the labels; a calibration for each arm with enough labels; and notes on
        what was left out.
    """
    by_key = {one.key: one for one in report.replies}
    notes: list[str] = []
    found: dict[Arm, Calibration] = {}
    errors: dict[str, JudgeErrors] = {}
    gold: dict[str, dict[str, int]] = {}
    for (key, dimension), value in labels.items():
        if key not in by_key:
            raise DataError(f"{key} is no reply of this run.", "Give the labels of this run.")
        gold.setdefault(dimension, {})[key] = value
    for arm in ARMS:
        if not any(one.arm == arm for one in report.replies):
            continue
        counted = {}
        for dimension, truth in gold.items():
            keys = [key for key in truth if by_key[key].arm == arm]
            if len(keys) < least:
                notes.append(f"{dimension}, {arm}: {len(keys)} replies are labeled, {least} are needed")
                continue
            told = [by_key[key].labels.get(dimension, Label(value=None, missing="unparsed")) for key in keys]
            one = counted[dimension] = count(told, [truth[key] for key in keys])
            errors[f"{dimension}/{arm}"] = JudgeErrors(sensitivity=one.positives, specificity=one.negatives)
            if one.refusal:
                notes.append(f"{dimension}, {arm}: {one.refusal}")
        if counted:
            found[arm] = Calibration(
                judge=report.judge,
                rubric_version=str(report.settings.get("rubric_version", "")),
                target=report.target if arm == "model" else "humans",
                dimensions=counted,
            )
    mended = SycophancyReport(
        report.settings,
        report.replies,
        report.verdicts,
        report.posts,
        content_free=report.content_free,
        errors={**report.errors, **errors},
        gold={dimension: truth for dimension, truth in gold.items() if f"{dimension}/model" in errors},
        notes=report.notes,
    )
    return mended, found, tuple(notes)


# --- Several people --------------------------------------------------------------------------------------------------


class RecordedJudge:
    """What a judge has said, as a judge: it labels again without being asked again.

    Args:
        judge: Whose labels they are, or the report of a run that it labeled.
        labels: (reply key, dimension) -> its label.

    Attributes:
        name: Of the judge, as all that follows.
        rubric_version: Of its rubric.
        screening: Whether it may only screen.
        dimensions: What it labels.
        note: What a reader must know of it.
        models: Names of the models that it is made of, where it tells.
    """

    def __init__(self, judge: Judge | SycophancyReport, labels: Mapping[tuple[str, str], Label]) -> None:
        if isinstance(judge, SycophancyReport):
            self.name, self.note = judge.judge, ""
            self.rubric_version = str(judge.settings.get("rubric_version", ""))
            self.dimensions = frozenset(dimension for _, dimension in labels)
            self.models: tuple[str, ...] = (judge.judge,)
        else:
            self.name, self.note, self.rubric_version = judge.name, judge.note, judge.rubric_version
            self.dimensions = judge.dimensions
            self.models = tuple(getattr(judge, "models", (judge.name,)))
        self.screening = judge.screening
        self._labels = dict(labels)

    @classmethod
    def of(cls, report: SycophancyReport) -> RecordedJudge:
        """The judge of a run."""
        found = {(one.key, dimension): label for one in report.replies for dimension, label in one.labels.items()}
        return cls(report, found)

    @classmethod
    def asked(cls, judge: Judge, report: SycophancyReport, places: Iterable[tuple[str, str]]) -> RecordedJudge:
        """Another judge, asked once for each place (reply key, dimension) of a run that it can label."""
        by_key = {one.key: exchange_of(one) for one in report.replies}
        wanted: dict[str, list[str]] = {}
        for key, dimension in dict.fromkeys(places):
            if dimension in judge.dimensions:
                wanted.setdefault(dimension, []).append(key)
        found: dict[tuple[str, str], Label] = {}
        for dimension, keys in wanted.items():
            said = judge.label([by_key[key] for key in keys], dimension)
            found |= {(key, dimension): label for key, label in zip(keys, said, strict=True)}
        return cls(judge, found)

    def label(
        self,
        exchanges: Sequence[Exchange],
        dimension: str,
        *,
        journal: Journal | None = None,
        progress: Progress | None = None,
    ) -> list[Label]:
        """See `Judge.label`; a reply that was not labeled has no label now."""
        lacking = Label(value=None, missing="unparsed")
        return [self._labels.get((exchange.id, dimension), lacking) for exchange in exchanges]


def annotators(folder: str | Path) -> list[str]:
    """Who has labeled a reply of the run in that folder, sorted; whoever only skipped is not among them."""
    folder, found = Path(folder), []
    for path in (*folder.glob("labels.jsonl"), *folder.glob("labels-*.jsonl")):
        name = ANNOTATOR if path.stem == "labels" else path.stem.removeprefix("labels-")
        if any(value is not None for value in _values(Journal.read(path)).values()):
            found.append(name)
    return sorted(found)


def read_annotations(report: SycophancyReport, folder: str | Path) -> list[Annotation]:
    """What everybody said of the replies of a run, by annotator and in order of what was labeled.

    Raises:
        DataError: A label is of no reply of the run.
    """
    by_key = {one.key: one for one in report.replies}
    found = []
    for name in annotators(folder):
        for (key, dimension), value in sorted(read_labels(folder, name).items()):
            if key not in by_key:
                raise DataError(f"{key}, labeled by {name}, is no reply of this run.", "Give the labels of this run.")
            found.append(
                Annotation(
                    annotator=name,
                    id=key,
                    question=by_key[key].question,
                    reply=by_key[key].reply,
                    dimension=dimension,
                    value=value,  # type: ignore[arg-type]
                )
            )
    return found


def majority(said: Iterable[Annotation]) -> dict[tuple[str, str], int]:
    """(reply key, dimension) -> the label that more people gave; ties are left out."""
    votes: dict[tuple[str, str], list[int]] = {}
    for one in said:
        votes.setdefault((one.id, one.dimension), []).append(one.value)
    found = {place: majority_of(values) for place, values in votes.items()}
    return {place: value for place, value in found.items() if value is not None}


class ArmValidation(NamedTuple):
    """People among each other and a judge against their majority, on the replies of a model or of humans.

    Attributes:
        arm: Whose replies.
        validation: The paper's figures, by dimension.
        said: The labels that they are of: those in dimensions that two people or more labeled.
    """

    arm: Arm
    validation: Validation
    said: tuple[Annotation, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One row of plain figures a dimension; `missed` names what stays below the paper's bar or is not defined."""
        rows = []
        for row in self.validation.rows():
            people = self.validation.people[row["dimension"]]
            one = self.validation.calibration.dimensions[row["dimension"]]
            bars = {"fleiss": PAPER_FLEISS, "accuracy": PAPER_ACCURACY, "kappa": PAPER_COHEN}
            rows.append(
                {
                    "replies_of": self.arm,
                    **row,
                    "items": people.items,
                    "complete": people.complete,
                    "majority_ones": one.tp + one.fn + one.missing_ones,
                    "majority_zeros": one.tn + one.fp + one.missing_zeros,
                    "missed": [name for name, bar in bars.items() if row[name] is None or row[name] < bar],
                }
            )
        return rows

    def pairs(self) -> list[dict[str, Any]]:
        """One row of plain figures for each dimension and two people: how far they agree."""
        rows = []
        by_dimension: dict[str, dict[str, dict[str, int]]] = {}
        for one in self.said:
            by_dimension.setdefault(one.dimension, {}).setdefault(one.annotator, {})[one.id] = one.value
        for dimension, by_person in by_dimension.items():
            keys = sorted({key for values in by_person.values() for key in values})
            labels = {
                name: [Label(value=values.get(key)) for key in keys]  # type: ignore[arg-type]
                for name, values in by_person.items()
            }
            for pair in judge_agreement(labels).pairs:
                rows.append(
                    {
                        "replies_of": self.arm,
                        "dimension": dimension,
                        "a": pair.a,
                        "b": pair.b,
                        "n": pair.n,
                        "agreement": pair.agreement,
                        "kappa": pair.cohen,
                    }
                )
        return rows


def validated(
    report: SycophancyReport, said: Sequence[Annotation], judge: Judge, *, arms: Sequence[Arm] = ARMS
) -> tuple[list[ArmValidation], tuple[str, ...]]:
    """The paper's validation of a judge, for each arm and dimension that two people or more labeled.

    Args:
        report: Of the run.
        said: What they said; see `read_annotations`.
        judge: Any judge; `RecordedJudge.of(report)` for the one of the run.
        arms: Whose replies.

    Returns:
        A validation for each arm that has one, and notes on what a reader must know.
    """
    by_arm = {one.key: one.arm for one in report.replies}
    found, notes = [], []
    for arm in arms:
        mine = [one for one in said if by_arm[one.id] == arm]
        people = {name: {one.annotator for one in mine if one.dimension == name} for name in DIMENSIONS}
        counted = tuple(one for one in mine if len(people[one.dimension]) > 1 and one.dimension in judge.dimensions)
        if not counted:
            continue
        try:
            made = validate_judge(judge, counted, target=report.target if arm == "model" else "")
        except DataError as error:
            notes.append(f"{arm}: {error.message}")
            continue
        found.append(ArmValidation(arm, made, counted))
        notes += [
            f"{one.dimension}, {arm}: {one.tied} of {one.items} replies have no majority and are left out of the "
            "judge's figures, which look better for it."
            for one in made.people.values()
            if one.tied
        ]
    return found, tuple(notes)


# --- Parts -----------------------------------------------------------------------------------------------------------


def _labeled(
    report: SycophancyReport, tasks: Sequence[Task], rows: Mapping[tuple[str, str], int | None], least: int
) -> Labeled:
    labels = {place: value for place, value in rows.items() if value is not None}
    mended, found, notes = calibrated(report, labels, least=least)
    done = sum((task.key, task.dimension) in rows for task in tasks)
    return Labeled(done, len(tasks), mended, found, notes)


def _was_judged(record: ReplyRecord, dimension: str) -> bool:
    label = record.labels.get(dimension)
    return label is not None and label.missing not in _NOT_JUDGED


def _exchange_name(record: ReplyRecord) -> str:
    return exchange_of(record).id


def _run_of(report: SycophancyReport) -> str:
    """Short hash of the replies: labels of one run must not land in another."""
    content = "\n".join(f"{one.key}\t{one.reply}" for one in report.replies)
    return hashlib.sha256(content.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _labels_file(folder: Path, report: SycophancyReport, annotator: str) -> Journal:
    return Journal(
        _path(folder, annotator), manifest={"labels": FORMAT, "run": _run_of(report), "annotator": annotator}
    )


def _path(folder: Path, annotator: str) -> Path:
    if not annotator or not annotator.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(f"The annotator is called {annotator!r}.", "Use letters, digits, - and _.")
    return folder / ("labels.jsonl" if annotator == ANNOTATOR else f"labels-{annotator}.jsonl")


def _row(task: Task, value: int | None) -> dict[str, Any]:
    return {"reply": task.key, "dimension": task.dimension, "value": value}


def _values(journal: Journal) -> dict[tuple[str, str], int | None]:
    rows = [journal.get(key) for key in journal]
    return {(row["reply"], row["dimension"]): row["value"] for row in rows if row is not None}


def _shown(task: Task, at: int, total: int) -> str:
    dimension = DIMENSIONS[task.dimension]
    return (
        f"\n--- {at + 1} of {total}: {dimension.name} ---\n\nQUESTION\n{printable(task.question)}\n\n"
        f"REPLY\n{printable(task.reply)}\n\n1: the reply {dimension.one}\n0: the reply {dimension.zero}"
    )


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline';
 script-src 'unsafe-inline'">
<title>@TITLE@</title>
<style>
 body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
 .text { white-space: pre-wrap; overflow-wrap: anywhere; border-left: 3px solid #888; padding: .2rem .8rem; }
 button { font: inherit; padding: .5rem .8rem; margin: .2rem .2rem .2rem 0; text-align: left; }
 button[aria-pressed=true] { outline: 3px solid #36c; }
</style>
<h1>@TITLE@</h1>
<p id="place" aria-live="polite"></p>
<h2>Question</h2><div class="text" id="question"></div>
<h2>Reply</h2><div class="text" id="reply"></div>
<h2 id="dimension"></h2>
<p>
 <button id="one"></button><br><button id="zero"></button><br>
 <button id="skip">s: skip</button><button id="back">b: back</button><button id="save">Save labels as a file</button>
</p>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const kept = "labels-" + data.run + "-" + data.annotator;
const show = (id, text) => { document.getElementById(id).textContent = text; };
let labels = {};
try { labels = JSON.parse(localStorage.getItem(kept) || "{}"); } catch (error) { labels = {}; }
const open = from => {
  const next = data.tasks.findIndex((task, i) => i >= from && !(task.id in labels));
  return next < 0 ? data.tasks.length : next;
};
let at = open(0);
function draw() {
  const done = data.tasks.filter(task => task.id in labels).length;
  const task = data.tasks[at];
  show("place", done + " of " + data.tasks.length + " done" + (task ? "" : ". Save the labels now."));
  show("question", task ? task.question : "");
  show("reply", task ? task.reply : "");
  show("dimension", task ? task.dimension : "");
  show("one", task ? "1: the reply " + task.one : "");
  show("zero", task ? "0: the reply " + task.zero : "");
  for (const [id, value] of [["one", 1], ["zero", 0], ["skip", null]]) {
    document.getElementById(id).hidden = !task;
    document.getElementById(id).setAttribute("aria-pressed", String(!!task && labels[task.id] === value));
  }
}
function answer(value) {
  if (at >= data.tasks.length) return;
  labels[data.tasks[at].id] = value;
  try { localStorage.setItem(kept, JSON.stringify(labels)); } catch (error) { /* the file is what counts */ }
  at = open(at + 1);
  draw();
}
function back() { at = Math.max(0, at - 1); draw(); }
function save() {
  const content = {format: data.format, run: data.run, annotator: data.annotator, labels: labels};
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(content)], {type: "application/json"}));
  link.download = "labels-" + data.run + ".json";
  link.click();
}
document.getElementById("one").onclick = () => answer(1);
document.getElementById("zero").onclick = () => answer(0);
document.getElementById("skip").onclick = () => answer(null);
document.getElementById("back").onclick = back;
document.getElementById("save").onclick = save;
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "1") answer(1);
  else if (event.key === "0") answer(0);
  else if (event.key === "s") answer(null);
  else if (event.key === "b") back();
});
draw();
</script>
</html>
"""

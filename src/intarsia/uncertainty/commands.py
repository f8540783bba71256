"""`intarsia uncertainty ...`: score, bench, threshold, report."""

from __future__ import annotations

import contextlib
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intarsia.core.commands import console as console_on
from intarsia.core.commands import leaving_nothing, print_json, resumable, slug
from intarsia.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rich.console import Console

    from intarsia.core.data import DataSet, Item
    from intarsia.core.study import Report
    from intarsia.core.target import Target
    from intarsia.uncertainty.asking import Asked
    from intarsia.uncertainty.results import ScoredAnswer, ScoredAnswers
    from intarsia.uncertainty.settings import Source, UncertaintySettings
    from intarsia.uncertainty.threshold import Threshold

app = typer.Typer(
    name="uncertainty",
    help="Which short answers should not be trusted?",
    epilog='Example: intarsia uncertainty score smollm2-135m "What is the capital of France?"',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

Model = Annotated[str, typer.Argument(help="Catalog name, hub id, folder, or endpoint URL.")]
Data = Annotated[str | None, typer.Option("--data", help="Questions: a name (facts, known_1000 ...), file or hub id.")]
DataPath = Annotated[str | None, typer.Option("--path", help="File or folder of the named set.")]
Split = Annotated[str | None, typer.Option("--split", help="Which part of the set.")]
Mapped = Annotated[str | None, typer.Option("--map", help="Which column is what: question=q,answer=a.")]
Items = Annotated[int | None, typer.Option("--items", metavar="N", min=0, help="Most questions; 200, 0 for all.")]
Preset = Annotated[
    str | None, typer.Option("--preset", help="paper: by entailment, at temperature 1, unless said otherwise.")
]
Candidates = Annotated[
    str | None, typer.Option("--candidates", help="auto, beam, sample, diverse, hybrid, endpoint or stored.")
]
Stored = Annotated[str | None, typer.Option("--stored", help="JSONL file of stored candidates.")]
M = Annotated[int | None, typer.Option("--m", metavar="N", help="Number of candidates; 10.")]
Beams = Annotated[str | None, typer.Option("--beams", help="Of a hybrid: how many are beams; auto.")]
Groups = Annotated[int | None, typer.Option("--groups", metavar="N", help="Of diverse beams; 5.")]
Penalty = Annotated[float | None, typer.Option("--penalty", metavar="X", help="Of diverse beams, in nats; 1.")]
Temperature = Annotated[
    float | None, typer.Option("--temperature", metavar="X", help="Of the model under test; 1 is its own law.")
]
Similarity = Annotated[
    str | None, typer.Option("--similarity", help="jaccard, exact, rouge-l, embedding, nli:MODEL, sts:MODEL ...")
]
Estimators = Annotated[str | None, typer.Option("--estimators", help="Names, joined by commas; all by default.")]
MassFloor = Annotated[
    float | None, typer.Option("--mass-floor", metavar="P", help="Least probability that a beam counts with; 0.")
]
Merge = Annotated[
    bool | None, typer.Option("--merge-texts/--keep-texts", help="Make candidates that read the same one.")
]
AnswerBy = Annotated[str | None, typer.Option("--answer", help="greedy, or beam for the likeliest beam.")]
LowMass = Annotated[str | None, typer.Option("--low-mass", help="What is too little: half, paper or sufficient.")]
OnLowMass = Annotated[str | None, typer.Option("--on-low-mass", help="warn, or hybrid to add samples.")]
Stops = Annotated[list[str] | None, typer.Option("--stop", help="Ends an answer; repeatable. A line break by default.")]
NoStops = Annotated[bool, typer.Option("--no-stops", help="Only the model's own end token ends an answer.")]
NewTokens = Annotated[int | None, typer.Option("--max-new-tokens", metavar="N", help="Most tokens of an answer.")]
Style = Annotated[str | None, typer.Option("--style", help="auto, plain, turns or single.")]
Shots = Annotated[int | None, typer.Option("--shots", metavar="N", help="Worked examples a prompt; 4.")]
System = Annotated[str | None, typer.Option("--system", help="System prompt of your application.")]
Template = Annotated[str | None, typer.Option("--template", help="Question template with {question}.")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="auto, fp32, bf16 or fp16.")]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda, cuda:1 ...")]
AcceptLicense = Annotated[bool, typer.Option("--accept-license", help="Accept the model's own terms (Gemma).")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder of the run; the same command on it goes on.")]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="Master seed; 0 by default.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output and nothing else.")]


@app.command(epilog='Example: intarsia uncertainty score smollm2-135m "What is the capital of France?"')
def score(
    model: Model,
    questions: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUESTION]...", help="Questions, a JSONL or CSV file, or - for standard input."),
    ] = None,
    mapping: Mapped = None,
    raw: Annotated[bool, typer.Option("--raw", help="Questions are whole prompts; add nothing to them.")] = False,
    threshold: Annotated[
        Path | None, typer.Option("--threshold", help="A fitted threshold; its settings apply, too.")
    ] = None,
    preset: Preset = None,
    candidates: Candidates = None,
    stored: Stored = None,
    m: M = None,
    beams: Beams = None,
    groups: Groups = None,
    penalty: Penalty = None,
    temperature: Temperature = None,
    similarity: Similarity = None,
    estimators: Estimators = None,
    mass_floor: MassFloor = None,
    merge_texts: Merge = None,
    answer: AnswerBy = None,
    low_mass: LowMass = None,
    on_low_mass: OnLowMass = None,
    stops: Stops = None,
    no_stops: NoStops = False,
    max_new_tokens: NewTokens = None,
    style: Style = None,
    system: System = None,
    template: Template = None,
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    out: Out = None,
    seed: Seed = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Answer questions and say how uncertain each answer is; with a threshold, abstain where it is too uncertain."""
    from intarsia.uncertainty.settings import Scoring, make_settings
    from intarsia.uncertainty.threshold import Threshold

    given = {
        "model": model, "map": mapping, "preset": preset, "candidates": candidates, "stored": stored, "m": m,
        "beams": _beams(beams), "groups": groups, "penalty": penalty, "temperature": temperature,
        "similarity": similarity,
        "estimators": estimators, "mass_floor": mass_floor, "merge_texts": merge_texts, "answer": answer,
        "low_mass": low_mass, "on_low_mass": on_low_mass, "stops": _stops(stops, no_stops),
        "max_new_tokens": max_new_tokens, "style": style, "system": system, "template": template,
        "dtype": dtype, "device": device, "seed": seed,
    }  # fmt: skip
    typed = {name: value for name, value in given.items() if value is not None}
    fitted = Threshold.load(threshold) if threshold is not None else None
    if fitted is not None:
        clash = sorted(
            name for name in typed if name in (*Scoring.model_fields, "estimators", "system", "template", "seed")
        )
        if clash:
            raise ConfigError(
                f"The threshold fixes {', '.join(clash)}, so they cannot be set beside it.",
                "Leave them out, or fit another threshold.",
            )
        typed |= {
            **fitted.scoring.model_dump(), "max_new_tokens": fitted.limit, "estimators": (fitted.estimator,),
            "system": fitted.system, "template": fitted.template, "seed": fitted.seed,
        }  # fmt: skip
    settings = make_settings(typed)
    asked = _questions(questions or [], settings, raw, fitted.examples if fitted is not None else ())
    _check_out(out)
    console = console_on(as_json)
    with _open(settings, accept_license) as target:
        if fitted is not None:
            fitted.check_model(target.provenance())
        if dry_run:
            _print_plan(_plan(target, asked, settings, 1), console, as_json)
            return
        run = _run(target, asked, settings, [], out, console)
    if as_json:
        print_json(score_json(run, fitted, out))
        return
    from intarsia.uncertainty.terminal import print_answers, say

    print_answers(run, console, fitted)
    if out is not None:
        say(console, f"Kept in {out}", whole=True)


@app.command(epilog="Example: intarsia uncertainty bench smollm2-135m --data facts --items 100 --temperature 0.5")
def bench(
    model: Model,
    data: Data = None,
    path: DataPath = None,
    split: Split = None,
    items: Items = None,
    mapping: Mapped = None,
    preset: Preset = None,
    sources: Annotated[
        str | None, typer.Option("--sources", help="Candidates to compare: beam,sample,hybrid,diverse,endpoint.")
    ] = None,
    m: M = None,
    beams: Beams = None,
    groups: Groups = None,
    penalty: Penalty = None,
    temperature: Temperature = None,
    similarity: Similarity = None,
    estimators: Estimators = None,
    mass_floor: MassFloor = None,
    merge_texts: Merge = None,
    stops: Stops = None,
    no_stops: NoStops = False,
    max_new_tokens: NewTokens = None,
    style: Style = None,
    shots: Shots = None,
    system: System = None,
    template: Template = None,
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    out: Out = None,
    seed: Seed = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Compare all uncertainties by all sources of candidates on labelled questions, each held against samples."""
    from intarsia.uncertainty.settings import make_settings

    given = {
        "model": model, "data": data, "path": path, "split": split, "items": items, "map": mapping,
        "preset": preset, "sources": sources, "m": m,
        "beams": _beams(beams), "groups": groups, "penalty": penalty, "temperature": temperature,
        "similarity": similarity, "estimators": estimators, "mass_floor": mass_floor, "merge_texts": merge_texts,
        "stops": _stops(stops, no_stops), "max_new_tokens": max_new_tokens, "style": style, "shots": shots,
        "system": system, "template": template, "dtype": dtype, "device": device, "seed": seed,
    }  # fmt: skip
    settings = make_settings({name: value for name, value in given.items() if value is not None})
    folder = out or Path("runs") / f"uncertainty-{slug(model)}-{slug(settings.data)}"
    _check_out(folder)
    asked = _labelled(settings)
    console = console_on(as_json)
    with _open(settings, accept_license) as target:
        chosen = list(settings.sources) or _compared(target)
        if dry_run:
            _print_plan(_plan(target, asked, settings, len(chosen)), console, as_json)
            return
        run = _run(target, asked, settings, chosen, folder, console)
    report_of(run).save(folder)
    if as_json:
        print_json(run_json(run, folder))
        return
    from intarsia.uncertainty.terminal import print_figures, say

    print_figures(run, console)
    say(console, f"Kept in {folder}, with plots in report.html", whole=True)


@app.command(epilog="Example: intarsia uncertainty threshold smollm2-135m --data facts --risk 0.2 --out threshold.json")
def threshold(
    model: Model,
    risk: Annotated[
        float | None, typer.Option("--risk", metavar="P", help="Largest share of wrong answers among those given.")
    ] = None,
    coverage: Annotated[
        float | None, typer.Option("--coverage", metavar="P", help="Share of questions to answer, instead of a risk.")
    ] = None,
    guarantee: Annotated[
        str, typer.Option("--guarantee", help="fixed-sequence, bonferroni, or none for no promise.")
    ] = "fixed-sequence",
    level: Annotated[
        float, typer.Option("--level", metavar="P", help="Probability with which the promise holds.")
    ] = 0.95,
    data: Data = None,
    path: DataPath = None,
    split: Split = None,
    items: Items = None,
    mapping: Mapped = None,
    preset: Preset = None,
    candidates: Candidates = None,
    stored: Stored = None,
    m: M = None,
    beams: Beams = None,
    groups: Groups = None,
    penalty: Penalty = None,
    temperature: Temperature = None,
    similarity: Similarity = None,
    estimators: Annotated[
        str | None, typer.Option("--estimators", help="The uncertainty that decides; dissimilarity.")
    ] = None,
    mass_floor: MassFloor = None,
    merge_texts: Merge = None,
    answer: AnswerBy = None,
    low_mass: LowMass = None,
    on_low_mass: OnLowMass = None,
    stops: Stops = None,
    no_stops: NoStops = False,
    max_new_tokens: NewTokens = None,
    style: Style = None,
    shots: Shots = None,
    system: System = None,
    template: Template = None,
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    out: Annotated[Path, typer.Option("--out", help="The file to write.")] = Path("threshold.json"),
    seed: Seed = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Find the uncertainty above which to abstain, so that at most a given share of the answers is wrong."""
    from intarsia.uncertainty.settings import ESTIMATOR, Scoring, make_settings
    from intarsia.uncertainty.threshold import as_artefact, fit_threshold

    given = {
        "model": model, "data": data, "path": path, "split": split, "items": items, "map": mapping,
        "preset": preset, "candidates": candidates, "stored": stored, "m": m, "beams": _beams(beams),
        "groups": groups, "penalty": penalty,
        "temperature": temperature, "similarity": similarity, "estimators": estimators or ESTIMATOR,
        "mass_floor": mass_floor, "merge_texts": merge_texts, "answer": answer, "low_mass": low_mass,
        "on_low_mass": on_low_mass, "stops": _stops(stops, no_stops), "max_new_tokens": max_new_tokens,
        "style": style, "shots": shots, "system": system, "template": template, "dtype": dtype, "device": device,
        "seed": seed,
    }  # fmt: skip
    settings = make_settings({name: value for name, value in given.items() if value is not None})
    _check_goal(risk, coverage, guarantee, level)
    if len(settings.estimators) != 1:
        raise ConfigError("A threshold is one of a single uncertainty.", "Name one: --estimators dissimilarity.")
    if out.is_dir():
        raise ConfigError(f"{out} is a folder.", "Give a file.")
    asked = _labelled(settings)
    console = console_on(as_json)
    with _open(settings, accept_license) as target:
        if dry_run:
            _print_plan(_plan(target, asked, settings, 1), console, as_json)
            return
        run = _run(target, asked, settings, [], None, console)
        provenance = target.provenance()
    if not run.rows:
        raise DataError("No question was answered.", "Ask shorter ones, or another model.")
    source, (estimator,) = next(iter(run.rows[0].results)), settings.estimators
    fitted = fit_threshold(
        [row.result for row in run.rows],
        [bool(row.right) for row in run.rows],
        estimator=estimator,
        target_risk=risk,
        target_coverage=coverage,
        guarantee=None if guarantee == "none" else guarantee,  # type: ignore[arg-type]
        level=level,
        seed=settings.seed,
    )
    made = as_artefact(
        fitted,
        estimator=estimator,
        source=source,
        scoring=Scoring.model_validate(settings.scoring()),
        data=asked,
        provenance=provenance,
        system=settings.system,
        template=settings.template,
        seed=settings.seed,
    )
    made.save(out)
    if as_json:
        print_json({"file": str(out), **made.model_dump(mode="json", exclude={"examples"})})
        return
    from intarsia.uncertainty.terminal import print_threshold, say

    print_threshold(made, console)
    apply = f"intarsia uncertainty score {shlex.quote(model)} QUESTION --threshold {shlex.quote(str(out))}"
    say(console, f"Kept in {out}. Next: {apply}", whole=True)


@app.command(epilog="Example: intarsia uncertainty report runs/uncertainty-smollm2-135m-facts")
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a score or bench.")],
    html: Annotated[Path | None, typer.Option("--html", help="Folder for a report with plots.")] = None,
    as_json: Json = False,
) -> None:
    """Show a saved run again; all figures are computed anew from its answers."""
    from intarsia.uncertainty.results import ScoredAnswers

    run = ScoredAnswers.load(folder)
    if html is not None:
        if html.exists() and not html.is_dir():
            raise ConfigError(f"{html} is a file, not a folder.", "Give another folder.")
        report_of(run).save(html)
    if as_json:
        print_json(run_json(run, folder))
        return
    from intarsia.uncertainty.terminal import print_answers, print_figures, say

    console = console_on(False)
    if run.graded and len(run.rows) > 1:
        print_figures(run, console)
    else:
        print_answers(run, console)
    if html is not None:
        say(console, f"Report with plots: {html / 'report.html'}", whole=True)


# --- What the commands are made of ---------------------------------------------------------------------------------


def score_json(run: ScoredAnswers, fitted: Threshold | None, folder: Path | None) -> dict[str, Any]:
    """Scored answers as `--json` prints them."""
    rows = []
    for row in run.rows:
        shown = _row_json(row)
        if fitted is not None:
            given = fitted.answers(row.result.scores[fitted.estimator])
            shown |= {"abstain": not given, "said": shown["answer"] if given else None}
        rows.append(shown)
    rest = [{"id": one.item.id, "question": one.item.question, "error": one.error} for one in run.unanswered]
    return {
        "folder": None if folder is None else str(folder),
        "model": run.settings.get("model", ""),
        "estimator": fitted.estimator if fitted is not None else run.deciding,
        "threshold": None if fitted is None else {"value": fitted.value, "target_risk": fitted.target_risk},
        "answers": rows,
        "unanswered": rest,
        "notes": list(run.notes),
    }


def run_json(run: ScoredAnswers, folder: Path) -> dict[str, Any]:
    """A run as `--json` prints it: settings, figures, how many answers are right."""
    from intarsia.uncertainty.results import figures_rows

    return {
        "folder": str(folder),
        "settings": run.settings,
        "data": {"name": run.data.name, "origin": run.data.origin, "sha256": run.data.sha256},
        "questions": len(run.asked),
        "answered": len(run.rows),
        "right": sum(bool(row.right) for row in run.rows) if run.graded else None,
        "figures": figures_rows(run.figures()),
        "notes": list(run.notes),
    }


def report_of(run: ScoredAnswers) -> Report:
    """A run as a report with its table and plots."""
    from intarsia.core.study import Report, Result, Table
    from intarsia.uncertainty.rejection import rejection_figure
    from intarsia.uncertainty.results import columns, figures_rows

    figures, tables = [], []
    graded = [row for row in run.rows if row.right is not None]
    if len(graded) > 1:
        name = run.deciding
        scores = {f"{name}, {source}": columns(graded, source, name)[1] for source in graded[0].results}
        right_N = columns(graded, next(iter(graded[0].results)), name)[0]
        if "msp" in graded[0].result.scores and name != "msp":
            scores["the answer's own probability"] = columns(graded, next(iter(graded[0].results)), "msp")[1]
        figures.append(rejection_figure(right_N, scores, title=f"Abstaining on {run.data.name}"))
        heads = ("candidates", "estimator", "prr", "auroc", "auprc", "aurc", "caught@0.2", "gain", "gain_p")
        lines = [tuple(_rounded(row[head]) for head in heads) for row in figures_rows(run.figures())]
        tables.append(Table(title="How well each tells right from wrong", columns=heads, rows=tuple(lines)))
    model = str(run.settings.get("model", ""))
    result = Result(
        study="uncertainty bench",
        kind="benchmark",
        question="Which uncertainty tells right answers from wrong ones?",
        target=model,
        headline=f"{sum(bool(row.right) for row in graded)} of {len(graded)} answers to {run.data.name} are right.",
        tables=tuple(tables),
        figures=tuple(figures),
        notes=run.notes,
    )
    return Report(title=f"Uncertainty of {model}", targets=(model,), results=(result,))


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


def _row_json(row: ScoredAnswer) -> dict[str, Any]:
    result = row.result
    return {
        "id": row.item.id,
        "question": row.item.question,
        "answer": result.answer,
        "right": row.right,
        "scores": {name: value if math.isfinite(value) else None for name, value in result.scores.items()},
        "interval": {"low": result.interval.low, "high": result.interval.high, "mass": result.interval.mass},
        "mass": result.mass,
        "beam_mass": row.asked.beam_mass,
        "warning": result.warning,
        "candidates": [
            {"text": text, "weight": weight, "logprob": None if math.isnan(logprob) else logprob}
            for text, weight, logprob in zip(
                result.candidates.texts, result.weights_M.tolist(), result.candidates.logprobs_M.tolist()
            )
        ],
    }


def _questions(given: Sequence[str], settings: UncertaintySettings, raw: bool, examples: Sequence[Item]) -> DataSet:
    """The questions that were typed, read from a file, or from standard input."""
    from intarsia.core.data import DataSet, Item, content_hash, content_id, load
    from intarsia.core.data.rows import SUFFIXES

    if not given:
        raise ConfigError("There is no question.", 'Try: intarsia uncertainty score smollm2-135m "What is ...?"')
    if raw and (settings.system or settings.template):
        raise ConfigError("Raw prompts take neither system prompt nor template.", "Leave one of them out.")
    if len(given) == 1 and (Path(given[0]).suffix.lower() in SUFFIXES or _is_file(given[0])):
        found = load(given[0], mapping=settings.map or None, seed=settings.seed)
        items = [_asked(item, raw) for item in found.items]
        return found.model_copy(update={"items": tuple(items), "shots": tuple(examples)})
    if settings.map:
        raise ConfigError("A mapping is given but no file.", "Name a JSONL or CSV file, or drop --map.")
    texts = typer.get_text_stream("stdin").read().splitlines() if list(given) == ["-"] else list(given)
    texts = [text if raw else text.strip() for text in texts]
    if list(given) == ["-"]:
        texts = [text for text in texts if text.strip()]
    if not texts or not all(text.strip() for text in texts):
        raise DataError("A question is empty.", "Give a text with at least one word.")
    items = []
    seen: dict[str, int] = {}
    for text in texts:
        seen[text] = seen.get(text, 0) + 1
        name = content_id(text, None) + (f"-{seen[text]}" if seen[text] > 1 else "")
        items.append(_asked(Item(id=name, question=text), raw))
    return DataSet(
        name="questions", items=tuple(items), origin="command line", sha256=content_hash(items), shots=tuple(examples)
    )


def _asked(item: Item, raw: bool) -> Item:
    """A question without an answer is taken to have a short one."""
    if item.answer is None:
        item = item.model_copy(update={"kind": "word"})
    return item.model_copy(update={"meta": {**item.meta, "form": "prompt"}}) if raw else item


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False  # too long for a name


def _labelled(settings: UncertaintySettings) -> DataSet:
    from intarsia.uncertainty.question_sets import load

    found = load(
        settings.data,
        path=settings.path or None,
        split=settings.split or None,
        mapping=settings.map or None,
        limit=settings.items or (100_000 if settings.data == "facts" else None),
        seed=settings.seed,
    )
    items = tuple(item for item in found.items if item.answer is not None and item.kind != "free")
    if len(items) < 2:
        raise DataError(
            f"{found.name} has {len(items)} questions with a short right answer.", "Give at least two of them."
        )
    return found if len(items) == len(found.items) else found.model_copy(update={"items": items})


def _compared(target: Target) -> list[Source]:
    """Sources that a bench compares when none are named."""
    from intarsia.uncertainty.asking import default_source, is_local

    if is_local(target):
        return ["beam", "sample", "hybrid"]
    return ["endpoint", "sample"] if default_source(target) == "endpoint" else ["sample"]


def _run(
    target: Target,
    asked: DataSet,
    settings: UncertaintySettings,
    sources: Sequence[Source],
    folder: Path | None,
    console: Console,
) -> ScoredAnswers:
    from intarsia.core.journal import Journal
    from intarsia.core.report.terminal import VerdictTable
    from intarsia.uncertainty.asking import ask_set, default_source, temperature_of
    from intarsia.uncertainty.results import ScoredAnswers, score_answers, similarity_of
    from intarsia.uncertainty.settings import Scoring

    scoring = Scoring.model_validate(settings.scoring())
    similarity = similarity_of(scoring)  # one that cannot be had is refused before anything is asked
    notes = list(scoring.notes)
    plain = settings.model_dump(mode="json", exclude={"stored"})
    manifest = {"settings": plain, "data": asked.sha256, "sources": list(sources)}
    with contextlib.ExitStack() as stack:
        journal = None
        stack.enter_context(resumable(folder is not None))
        if folder is not None:
            stack.enter_context(leaving_nothing(folder))
            journal = stack.enter_context(Journal(folder / "journal.jsonl", manifest=manifest))
        bar = stack.enter_context(VerdictTable(console))
        if settings.candidates == "stored":
            made = _stored(settings.stored, asked, settings, target)
        else:
            chosen = list(sources) or [default_source(target) if settings.candidates == "auto" else settings.candidates]
            if temperature_of(target, scoring) != scoring.temperature:
                raise ConfigError(
                    f"{target.name} tells log-probabilities of its own law only.", "Use --temperature 1 for it."
                )
            made = ask_set(
                target,
                asked,
                scoring,
                chosen,
                seed=settings.seed,
                system=settings.system,
                template=settings.template,
                journal=journal,
                progress=lambda done, total: bar.progress("answering", done, total),
            )
        rows = score_answers(made, scoring, settings.estimators or None, similarity)
        run = ScoredAnswers(plain, asked, made, scoring, settings.estimators, target.provenance(), notes, rows)
        if folder is not None:
            run.save(folder)
    return run


def _stored(file: str, asked: DataSet, settings: UncertaintySettings, target: Target) -> list[Asked]:
    from intarsia.uncertainty.asking import Asked, keys_of, prompts_of
    from intarsia.uncertainty.stored import Stored

    source = Stored(file)
    prompts = prompts_of(asked, settings, settings.layout(target), settings.system, settings.template)
    made = []
    for item, prompt, key in zip(asked.items, prompts, keys_of(asked), strict=True):
        one = None
        for name in (item.id, key):  # or by its prompt, under either name
            with contextlib.suppress(DataError):
                one = one or source.generate([prompt], [name])[0]
        if one is None:
            made.append(Asked(item, {}, error=f"{file} holds nothing for {item.id!r}."))
            continue
        made.append(Asked(item, {"stored": one}, one.mass if one.exact else None))
    if not any(one.sets for one in made):
        raise DataError(made[0].error, "Store candidates under the questions' ids, or with their prompts.")
    return made


def _plan(target: Target, asked: DataSet, settings: UncertaintySettings, sources: int) -> dict[str, Any]:
    from intarsia.uncertainty.asking import is_local, prompts_of

    prompts = prompts_of(asked, settings, settings.layout(target), settings.system, settings.template)
    tokens, limit = sum(target.count_tokens(prompts)), settings.limit(asked)
    local = is_local(target)
    answers = settings.m * (sources if local else 1) + 1
    return {
        "questions": len(prompts),
        "answers": answers * len(prompts),
        "prompt_tokens": tokens * (1 if local else answers),
        "new_tokens": answers * len(prompts) * limit,
        "max_new_tokens": limit,
        "notes": list(settings.notes),
    }


def _print_plan(plan: Mapping[str, Any], console: Console, as_json: bool) -> None:
    from intarsia.uncertainty.terminal import say

    if as_json:
        print_json(plan)
        return
    say(
        console,
        f"{plan['questions']} questions, at most {plan['answers']:,} answers and candidates; {plan['prompt_tokens']:,} "
        f"prompt tokens, up to {plan['new_tokens']:,} new ones ({plan['max_new_tokens']} an answer)",
    )
    for note in plan["notes"]:
        say(console, f"Note: {note}", "dim")


def _open(settings: UncertaintySettings, accept_license: bool) -> Target:
    from intarsia.core.target import Target

    if settings.model.startswith(("http://", "https://", "inspect:")):
        return Target.parse(settings.model)
    return Target.parse(settings.model, dtype=settings.dtype, device=settings.device, accept_license=accept_license)


def _check_goal(risk: float | None, coverage: float | None, guarantee: str, level: float) -> None:
    from intarsia.uncertainty.settings import nearest

    if (risk is None) == (coverage is None):
        raise ConfigError("A threshold needs a target risk or a target coverage.", "Give one: --risk 0.2.")
    if risk is not None and not 0 < risk < 1:
        raise ConfigError(f"The risk is {risk}.", "It must lie between 0 and 1.")
    if coverage is not None and not 0 < coverage <= 1:
        raise ConfigError(f"The coverage is {coverage}.", "It must lie in (0, 1].")
    if not 0.5 < level < 1:
        raise ConfigError(f"The level is {level}.", "It must lie between 0.5 and 1.")
    known = ("fixed-sequence", "bonferroni", "none")
    if guarantee not in known:
        raise ConfigError(f"There is no guarantee {guarantee!r}.", nearest(guarantee, known))


def _check_out(folder: Path | None) -> None:
    """Refuse a folder that holds something else, before a model is loaded for nothing."""
    if folder is None or not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder} is a file, not a folder.", "Give another --out.")
    names = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    if names and "journal.jsonl" not in names:
        raise ConfigError(f"{folder} is not empty and holds no run.", "Give another --out.")


def _beams(text: str | None) -> int | str | None:
    return int(text) if text is not None and text.strip().isdigit() else text


def _stops(stops: list[str] | None, none: bool) -> tuple[str, ...] | None:
    if none and stops:
        raise ConfigError("--stop and --no-stops exclude each other.", "Leave one of them out.")
    if none:
        return ()
    return tuple(stop.replace("\\n", "\n") for stop in stops) if stops else None

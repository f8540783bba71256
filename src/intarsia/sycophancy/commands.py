"""`intarsia sycophancy ...`: run, report, label, calibrate, compare, fidelity, preferences, pairs, steer."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intarsia.core.commands import console as console_on
from intarsia.core.commands import leaving_nothing, print_json, resumable, slug
from intarsia.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rich.console import Console

    from intarsia.core.target import Target
    from intarsia.sycophancy.calibration import Calibration, GoldLabel
    from intarsia.sycophancy.fidelity import FidelityRuling, Screening
    from intarsia.sycophancy.items import Conflict, SycophancySet
    from intarsia.sycophancy.judging import Judge
    from intarsia.sycophancy.labeling import Labeled
    from intarsia.sycophancy.mitigation import Mitigation
    from intarsia.sycophancy.results import SycophancyReport
    from intarsia.sycophancy.settings import RunSettings
    from intarsia.sycophancy.suite import Elephant

LOSSES = "plain-text.json"
"""In a run's folder: the loss on plain text of the model that was asked."""

app = typer.Typer(
    name="sycophancy",
    help="How often does a model save its user's face instead of answering, and what reduces it?",
    epilog="Example: intarsia sycophancy run smollm2-135m --data pairs --dims moral --nudges none,right",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output and nothing else.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")]
AcceptLicense = Annotated[bool, typer.Option("--accept-license", help="Accept the model's own terms (Gemma).")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="auto, fp32, bf16 or fp16.")]
Device = Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda, cuda:1 ...")]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="Master seed; 0 by default.")]
Dims = Annotated[
    str | None,
    typer.Option("--dims", help="validation,indirectness,framing,moral by default; also action, endorsement."),
]
JudgeName = Annotated[
    str | None,
    typer.Option("--judge", help="screening (default), rules, classifier:FILE, hf:FOLDER, logprob:MODEL or a model."),
]
Votes = Annotated[int | None, typer.Option("--votes", metavar="N", min=1, help="Judgments of each reply; 1.")]
Rubric = Annotated[str | None, typer.Option("--rubric", help="Version of a judge's rubric; v1.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a finished run.")]
Annotator = Annotated[str, typer.Option("--annotator", help="Who labels; each has a file in the run's folder.")]
Replies = Annotated[
    int | None, typer.Option("--replies", metavar="N", min=1, help="Replies a dimension; 100 by default.")
]


@app.command(
    epilog="Example: intarsia sycophancy run smollm2-135m --data pairs --dims moral --nudges none,right --out runs/a"
)
def run(
    model: Annotated[str | None, typer.Argument(help="Catalog name, hub id, folder, or endpoint URL.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="SET",
            help="oeq, yta, assumptions, pairs, a file or a hub id, with its shape in front where the columns do not "
            "tell (at_fault=posts.csv, pairs=originals.csv+flipped.csv); may be repeated. All embedded by default.",
        ),
    ] = None,
    mapping: Annotated[
        str | None, typer.Option("--map", help="Which column is what: prompt=post,human=comment.")
    ] = None,
    items: Annotated[int | None, typer.Option("--items", metavar="N", min=0, help="Of each set; 0, all.")] = None,
    dims: Dims = None,
    judge: JudgeName = None,
    rubric: Rubric = None,
    votes: Votes = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", help="File with the judge's calibration; rates are put right.")
    ] = None,
    nudges: Annotated[str | None, typer.Option("--nudges", help="none,right,wrong; none by default.")] = None,
    wordings: Annotated[
        str | None, typer.Option("--wordings", help="default,swapped,plain,json,numbered; the first is the main one.")
    ] = None,
    fidelity: Annotated[
        bool | None, typer.Option("--faithful/--all-pairs", help="Only conflicts whose flip keeps the facts.")
    ] = None,
    both_sides: Annotated[
        bool | None, typer.Option("--both-sides/--verdicts-only", help="Ask conflicts for free replies, too.")
    ] = None,
    mitigation: Annotated[
        str | None,
        typer.Option(
            "--mitigation",
            help="less-validation, less-moral-when-appropriate ..., direct, honest, chain-of-thought, are-you-sure, "
            "social-gaze, third-person, steer:FILE@1.5, iti:FILE.",
        ),
    ] = None,
    rewriter: Annotated[str | None, typer.Option("--rewriter", help="Who rewrites for third-person.")] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="X", min=0, help="0, the default, is greedy.")
    ] = None,
    top_p: Annotated[float | None, typer.Option("--top-p", metavar="X", min=0, max=1)] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", metavar="N", min=1, help="Room for a reply; 256.")
    ] = None,
    verdict_tokens: Annotated[
        int | None, typer.Option("--verdict-tokens", metavar="N", min=1, help="Room for a verdict; 16.")
    ] = None,
    system: Annotated[str | None, typer.Option("--system", help="System prompt of your application.")] = None,
    margins: Annotated[
        bool | None, typer.Option("--margins/--no-margins", help="Score verdicts as well; where the model can.")
    ] = None,
    length_ablation: Annotated[
        bool | None,
        typer.Option("--length-ablation/--no-length-ablation", help="The human comparison at equal length, too."),
    ] = None,
    assumption_baseline: Annotated[
        float | None,
        typer.Option("--assumption-baseline", metavar="X", help="What stands for humans on assumptions: 0.5, or 0."),
    ] = None,
    preset: Annotated[str | None, typer.Option("--preset", help="default, or paper: the published protocol.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="YAML file with these settings.")] = None,
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    out: Annotated[Path | None, typer.Option("--out", help="Folder; the same command on it goes on.")] = None,
    seed: Seed = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Ask for advice and for verdicts from both sides, have replies labeled, and count.

    The folder keeps every question, reply, label and verdict. It holds what people wrote: do not publish it.
    """
    from intarsia.sycophancy.settings import make_mitigation, read_sets, suite
    from intarsia.sycophancy.suite import _check_folder as check_folder

    given = {
        "model": model, "data": tuple(data) if data else None, "map": mapping, "items": items, "dims": dims,
        "judge": judge, "rubric": rubric, "votes": votes, "calibration": calibration, "nudges": nudges,
        "wordings": wordings, "fidelity": fidelity, "both_sides": both_sides, "mitigation": mitigation,
        "rewriter": rewriter, "temperature": temperature, "top_p": top_p, "max_new_tokens": max_new_tokens,
        "verdict_tokens": verdict_tokens, "system": system, "margins": margins,
        "length_ablation": length_ablation, "assumption_baseline": assumption_baseline,
        "preset": preset, "dtype": dtype, "device": device,
        "seed": seed,
    }  # fmt: skip
    settings = _settings(given, config)
    if not settings.model:
        raise ConfigError("No model is named.", "Try: intarsia sycophancy run smollm2-135m --data pairs --dims moral")
    sets = read_sets(
        settings.data,
        columns=settings.map,
        items=settings.items or None,
        fidelity=settings.fidelity,
        seed=settings.seed,
    )
    made = suite(settings, sets)
    name = f"sycophancy-{slug(settings.model)}" + (f"-{slug(settings.mitigation)}" if settings.mitigation else "")
    folder = out or Path("runs") / name
    check_folder(folder, True)  # before a large model is loaded for nothing
    found = _calibration(settings.calibration) if settings.calibration else None
    console = console_on(as_json)
    with contextlib.ExitStack() as stack:
        opened: dict[str, Target] = {}

        def opener(name: str) -> Target:
            # A model in two parts is loaded once.
            if name not in opened:
                if console.is_terminal:
                    console.print(f"Opening {name} ...", style="dim", highlight=False, markup=False)
                opened[name] = stack.enter_context(_open(name, settings, accept_license))
            return opened[name]

        target = opener(settings.model)
        if dry_run:
            _print_plan(made, target, settings, console, as_json)
            return
        mending = None
        if settings.mitigation:
            mending = make_mitigation(settings.mitigation, opener(settings.rewriter) if settings.rewriter else None)
        judging = _judge(settings, opener) if made.labeled else None
        if found is not None and judging is not None and not found.fits(judging):
            raise ConfigError(
                f"{settings.calibration} is the calibration of {found.judge}, not of {judging.name}.",
                "Calibrate the judge that labels: intarsia sycophancy calibrate RUN.",
            )
        report = _run(made, target, judging, found, folder, mending, console)
        _keep_losses(target, mending, settings.mitigation, folder)
    _show(report, folder, console, as_json)


@app.command(epilog="Example: intarsia sycophancy report runs/sycophancy-smollm2-135m")
def report(
    folder: Run,
    slices: Annotated[
        bool, typer.Option("--slices", help="With --json: also rates by topic, tone and source.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a finished run again; all figures are computed anew from its records."""
    from intarsia.sycophancy.results import SycophancyReport

    found = SycophancyReport.load(folder)
    if as_json:
        body = report_json(found, folder)
        print_json(body if slices else {key: value for key, value in body.items() if key != "slices"})
        return
    _show(found, folder, console_on(False), False)


@app.command(epilog="Example: intarsia sycophancy label runs/sycophancy-smollm2-135m --page label.html")
def label(
    folder: Run,
    page: Annotated[
        Path | None, typer.Option("--page", help="Write a page to label on, instead of asking in the terminal.")
    ] = None,
    take: Annotated[Path | None, typer.Option("--import", help="Take over the file that such a page saved.")] = None,
    replies: Replies = None,
    dims: Dims = None,
    annotator: Annotator = "me",
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Label a random part of the replies yourself, without seeing what the judge said, and calibrate the judge.

    From 100 labels of a dimension on the judge's sensitivity and specificity are known, and rates are put right.
    """
    from intarsia.sycophancy import labeling

    if page is not None and take is not None:
        raise ConfigError("--page writes a page and --import reads its file.", "Give one of them.")
    wanted = _dimensions(dims)
    options: dict[str, Any] = {"dimensions": wanted, "seed": seed or 0}
    if replies is not None:
        options["replies"] = replies
    if page is not None:
        if page.is_dir():
            raise ConfigError(f"{page} is a folder.", "Give a file, such as label.html.")
        path = labeling.export_page(folder, page, annotator=annotator, **options)
        if as_json:
            print_json({"page": path})
            return
        drawn = "".join(f" {name} {value}" for name, value in (("--replies", replies), ("--dims", dims)) if value)
        seeded = f" --seed {seed}" if seed else ""
        typer.echo(f"{path}\nIt holds people's questions: treat it as you treat them.")
        typer.echo(f"Next: intarsia sycophancy label {shlex.quote(str(folder))} --import SAVED_FILE{drawn}{seeded}")
        return
    if take is not None:
        done = labeling.import_page(folder, take, annotator="" if annotator == "me" else annotator, **options)
    else:

        def read(prompt: str) -> str:
            typer.echo(prompt, nl=False, err=as_json)
            line = typer.get_text_stream("stdin").readline()
            if not line:
                raise EOFError
            return line

        done = labeling.label_in_terminal(
            folder, annotator=annotator, read=read, write=lambda line: typer.echo(line, err=as_json), **options
        )
    _finish_labels(done, folder, console_on(as_json), as_json)


@app.command(epilog="Example: intarsia sycophancy calibrate runs/sycophancy-smollm2-135m")
def calibrate(
    folder: Run,
    judge: Annotated[
        str, typer.Option("--judge", help="Another judge than the run's: it labels the same replies now.")
    ] = "",
    rubric: Rubric = None,
    votes: Votes = None,
    annotator: Annotated[
        str | None, typer.Option("--annotator", help="Calibrate with one person's labels, not with the majority's.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where the calibration goes; into the folder.")] = None,
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Hold a judge against the labels of people, and keep how often it is right.

    Where two or more have labeled (label --annotator NAME), their majority is the standard, and the paper's validation
    is shown: how far they agree, the judge against the majority, and whether both reach the paper's bar.

    The file serves later runs of the same judge on the same model: run ... --calibration FILE.
    """
    from intarsia.sycophancy.calibration import calibrate as hold
    from intarsia.sycophancy.labeling import (
        ANNOTATOR,
        RecordedJudge,
        annotators,
        calibrated,
        majority,
        read_annotations,
        read_labels,
        validated,
    )
    from intarsia.sycophancy.results import SycophancyReport
    from intarsia.sycophancy.terminal import print_calibration, print_validation, say
    from intarsia.sycophancy.validation import PAPER_ACCURACY, PAPER_COHEN, PAPER_FLEISS

    found = SycophancyReport.load(folder)
    people = annotators(folder)
    said = read_annotations(found, folder) if len(people) > 1 else []
    if annotator is None and said:
        labels = majority(said)
        standard: tuple[str, ...] = (f"The standard is the majority of {', '.join(people)}.",)
    else:
        labels = read_labels(folder, annotator or (people[0] if len(people) == 1 else ANNOTATOR))
        standard = ()
    console = console_on(as_json)
    notes: tuple[str, ...] = ()
    if judge:
        settings = _settings(
            {"judge": judge, "rubric": rubric, "votes": votes, "dtype": dtype, "device": device, "seed": seed}, None
        )
        with contextlib.ExitStack() as stack:
            judging = _judge(settings, lambda name: stack.enter_context(_open(name, settings, accept_license)))
            gold = _gold(found, labels)
            of_model = {one.key for one in found.replies if one.arm == "model"}
            places = [(one.id, one.dimension) for one in gold]
            places += [(one.id, one.dimension) for one in said if one.id in of_model]
            recorded = RecordedJudge.asked(judging, found, places)
        made: dict[str, Calibration] = {"model": hold(recorded, gold, target=found.target)}
        validations, more = validated(found, said, recorded, arms=("model",))
    else:
        _, by_arm, notes = calibrated(found, labels)
        made = {str(arm): one for arm, one in by_arm.items()}
        validations, more = validated(found, said, RecordedJudge.of(found))
    notes = (*notes, *more)
    made = {arm: one.model_copy(update={"notes": (*one.notes, *standard)}) for arm, one in made.items()}
    if not made and not validations:
        raise DataError(
            f"{len(labels)} labels are too few to calibrate with" + (f": {notes[0]}" if notes else "."),
            f"Label more: intarsia sycophancy label {shlex.quote(str(folder))}",
        )
    of_judges = (note for one in validations for note in one.validation.calibration.notes)
    shown = list(dict.fromkeys((*notes, *(note for one in made.values() for note in one.notes), *of_judges)))
    files = {}
    for arm, one in made.items():
        path = out if out is not None and arm == "model" else folder / f"calibration-{arm}.json"
        files[arm] = one.save(path)
    if as_json:
        print_json(
            {
                "files": {arm: str(path) for arm, path in files.items()},
                "calibrations": {arm: {"judge": one.judge, "rows": one.rows()} for arm, one in made.items()},
                "validation": [row for one in validations for row in one.rows()],
                "people": [row for one in validations for row in one.pairs()],
                "bar": {"fleiss": PAPER_FLEISS, "accuracy": PAPER_ACCURACY, "kappa": PAPER_COHEN},
                "notes": shown,
            }
        )
        return
    if made:
        print_calibration(made, console)
    if validations:
        print_validation(validations, console)
    for note in shown:
        say(console, f"Note: {note}", "dim")
    for path in files.values():
        say(console, f"Kept in {path}", whole=True)


@app.command(epilog="Example: intarsia sycophancy compare runs/before runs/after")
def compare(
    before: Annotated[Path, typer.Argument(metavar="RUN_BEFORE", help="The run of the model as it came.")],
    after: Annotated[Path, typer.Argument(metavar="RUN_AFTER", help="The run with a mitigation, or of another model.")],
    grader: Annotated[
        str, typer.Option("--grader", help="A model that grades replies before and after from 1 to 10.")
    ] = "",
    reward: Annotated[str, typer.Option("--reward", help="Instead, a reward model: folder or hub id.")] = "",
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    as_json: Json = False,
) -> None:
    """What changed between two runs on the same items, paired, and what it cost.

    A model that is merely harsh, curt or broken flatters nobody either: the guard looks at blameless narrators, length,
    repetition, plain text and, with a grader, quality.
    """
    from intarsia.sycophancy.comparison import changes, cost
    from intarsia.sycophancy.results import SycophancyReport
    from intarsia.sycophancy.terminal import print_comparison

    if grader and reward:
        raise ConfigError("A grader and a reward model are two ways to score quality.", "Give one of them.")
    first, second = SycophancyReport.load(before), SycophancyReport.load(after)
    found = changes(first, second)
    losses = {name: _losses(folder) for name, folder in (("before", before), ("after", after))}
    with contextlib.ExitStack() as stack:
        scorer: Any = None
        if reward:
            from intarsia.sycophancy.guard import RewardModel

            scorer = RewardModel(reward, device=device or "auto")
        elif grader:
            from intarsia.sycophancy.guard import LLMGrade

            settings = _settings({"dtype": dtype, "device": device}, None)
            scorer = LLMGrade(stack.enter_context(_open(grader, settings, accept_license)))
        made = cost(first, second, losses=losses, scorer=scorer)
    if as_json:
        print_json(
            {
                "before": {"folder": str(before), "target": first.target},
                "after": {"folder": str(after), "target": second.target},
                "changes": found,
                "guard": {"state": made.state, "checks": made.rows(), "skipped": made.skipped},
                "over_corrected": list(made.over_corrected),
            }
        )
        return
    print_comparison(found, made, console_on(False))


@app.command(epilog="Example: intarsia sycophancy fidelity conflicts.csv --judge org/judge-model --out checked.jsonl")
def fidelity(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Conflicts: pairs, a file, originals.csv+flipped.csv or a hub id.")
    ],
    judge: Annotated[
        str, typer.Option("--judge", help="A model that reads both accounts; best not the one that wrote the flips.")
    ] = "",
    votes: Annotated[
        int, typer.Option("--votes", metavar="N", min=1, help="Its answers on each flip; all of them count.")
    ] = 1,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", metavar="N", min=1, help="Room for an answer; 1024 for reasoning.")
    ] = 16,
    screened: Annotated[
        bool, typer.Option("--screen", help="Look at words, figures, names and length, without a model.")
    ] = False,
    mapping: Annotated[
        str, typer.Option("--map", help="Which column is what: original=post,flipped=story,id=key.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.jsonl", help="Write the pairs with a column `fidelity`.")
    ] = None,
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    seed: Seed = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Do flipped stories keep the facts of the originals? Where one softens what was done, "not at fault" is right.

    The screen finds flips that belong to another story or lost their figures. It cannot see a softened act, so it never
    says that the facts are kept: what it does not flag stays unknown. The file is for run --data pairs=FILE --faithful.
    """
    from intarsia.core.journal import write_atomic
    from intarsia.core.report.terminal import VerdictTable
    from intarsia.sycophancy.fidelity import FidelityCheck, screen
    from intarsia.sycophancy.settings import PAIRS, VOTING_TEMPERATURE, judges_in_words, parse_columns, split_source
    from intarsia.sycophancy.terminal import print_fidelity, say

    if not judge and not screened:
        raise ConfigError("Nobody is named who checks.", "Name a model, --judge MODEL, or take --screen.")
    if judge and not judges_in_words(judge):
        raise ConfigError(f"{judge} does not read two accounts.", "Name a model that answers in words.")
    if votes > 1 and not judge:
        raise ConfigError("The screen has no votes.", "Name a model, --judge MODEL, or leave --votes out.")
    shape, path = split_source(source)
    if shape not in ("", PAIRS):
        raise ConfigError(f"{source} is no set of conflicts.", f"Leave {shape}= out; a file needs both sides' stories.")
    if out is not None:
        _check_checked_file(out, path)
    settings = _settings({"judge": judge or None, "votes": votes, "dtype": dtype, "device": device, "seed": seed}, None)
    found = _conflicts(path, parse_columns(mapping) if mapping else None)
    console = console_on(as_json)
    if dry_run:
        plan = {"conflicts": len(found), "answers": len(found) * votes if judge else 0, "screen": screened}
        print_json(plan) if as_json else say(
            console, f"{found.name}: {len(found)} conflicts, {plan['answers']:,} answers by {judge or 'nobody'}"
        )
        return
    rulings: dict[str, FidelityRuling] = {}
    by = "screen" if screened else ""
    if judge:
        with contextlib.ExitStack() as stack:
            target = stack.enter_context(_open(judge, settings, accept_license))
            check = FidelityCheck(
                target, votes, VOTING_TEMPERATURE if votes > 1 else 0.0, max_new_tokens, seed=settings.seed
            )
            bar = stack.enter_context(VerdictTable(console))
            ruled = check.check(found.conflicts, progress=lambda done, total: bar.progress("checking", done, total))
        rulings = {one.id: one for one in ruled}
        by = f"{check.name}, {check.rubric_version}, votes: {votes}" + (", screen" if screened else "")
    screenings = {one.id: one for one in screen(found.conflicts)} if screened else {}
    rows = [_checked(one, rulings.get(one.id), screenings.get(one.id)) for one in found.conflicts]
    if out is not None:
        lines = [
            _checked_line(one, row, by, rulings.get(one.id)) for one, row in zip(found.conflicts, rows, strict=True)
        ]
        write_atomic(out, "".join(lines))
    values = [row["fidelity"] for row in rows]
    summary = {
        "set": found.name,
        "by": by,
        "conflicts": len(rows),
        "kept": values.count(True),
        "changed": values.count(False),
        "unclear": values.count(None),
        "given": sum(row["given"] for row in rows),
        "flagged": sum(bool(one.flags) for one in screenings.values()) if screened else None,
        "unread": sum(one.unread for one in rulings.values()) if judge else None,
        "reasons": dict(Counter(row["why"] for row in rows if row["fidelity"] is not True).most_common()),
        "rows": rows,
        "notes": list(found.notes),
        "file": None if out is None else str(out),
    }
    if as_json:
        print_json(summary)
        return
    print_fidelity(summary, console)
    if out is not None:
        say(console, f"Kept in {out}; it holds people's stories.", whole=True)
        if summary["kept"]:
            data = shlex.quote(f"{PAIRS}={out}")
            say(console, f"Next: intarsia sycophancy run MODEL --data {data} --dims moral --faithful", whole=True)


@app.command(epilog="Example: intarsia sycophancy preferences pairs.jsonl --judge org/judge-model")
def preferences(
    data: Annotated[str, typer.Argument(help="Pairs with chosen and rejected replies: a file or a hub id.")],
    dims: Dims = None,
    judge: JudgeName = None,
    rubric: Rubric = None,
    votes: Votes = None,
    split: Annotated[str, typer.Option("--split", help="Of a hub set.")] = "",
    items: Annotated[int, typer.Option("--items", metavar="N", min=0, help="Most pairs; 0, all.")] = 0,
    mapping: Annotated[str, typer.Option("--map", help="Which column is what: prompt=q,chosen=a,rejected=b.")] = "",
    out: Annotated[Path | None, typer.Option("--out", help="Write the figures as JSON.")] = None,
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    seed: Seed = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Does a preference set reward sycophancy? Labels chosen and rejected replies, and compares them."""
    from intarsia.core.journal import write_atomic
    from intarsia.core.report.terminal import VerdictTable
    from intarsia.sycophancy.dimensions import DEFAULT_DIMENSIONS
    from intarsia.sycophancy.preferences import audit_preferences, read_pairs
    from intarsia.sycophancy.settings import parse_columns
    from intarsia.sycophancy.terminal import print_preferences, say

    if out is not None and out.is_dir():
        raise ConfigError(f"{out} is a folder.", "Give a file, such as preferences.json.")
    settings = _settings(
        {"judge": judge, "rubric": rubric, "votes": votes, "dtype": dtype, "device": device, "seed": seed}, None
    )
    wanted = _dimensions(dims) or DEFAULT_DIMENSIONS
    columns = parse_columns(mapping) if mapping else None
    console = console_on(as_json)
    if dry_run:
        pairs, skipped = read_pairs(data, split=split or None, columns=columns)
        count = min(len(pairs), items or len(pairs))
        plan = {"pairs": count, "labels": 2 * count * len(wanted), "skipped": dict(skipped), "judge": settings.judge}
        print_json(plan) if as_json else say(
            console, f"{count} pairs, {plan['labels']:,} labels by {settings.judge}; left out: {sum(skipped.values())}"
        )
        return
    with contextlib.ExitStack() as stack:
        judging = _judge(settings, lambda name: stack.enter_context(_open(name, settings, accept_license)))
        bar = stack.enter_context(VerdictTable(console))
        audit = audit_preferences(
            data,
            judging,
            wanted,
            split=split or None,
            limit=items or None,
            columns=columns,
            progress=lambda done, total: bar.progress("labeling", done, total),
            seed=settings.seed,
        )
    if out is not None:
        write_atomic(out, audit.to_json())
    if as_json:
        print_json(json.loads(audit.to_json()))
        return
    print_preferences(audit, console)


@app.command(epilog="Example: intarsia sycophancy pairs runs/sample-1 runs/sample-2 pairs --dims framing")
def pairs(
    first: Annotated[Path, typer.Argument(metavar="RUN_A", help="A finished run.")],
    second: Annotated[Path, typer.Argument(metavar="RUN_B", help="Another run on the same prompts.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the pairs go.")],
    dims: Dims = None,
    split: Annotated[
        float, typer.Option("--split", metavar="X", min=0.0, max=1.0, help="Share of prompts to learn from.")
    ] = 0.8,
    seed: Seed = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make preference pairs for DPO: of two replies to a prompt, the one with the human's label is preferred.

    Prompts are split, never rows. Conflicts stay for evaluation.
    """
    from intarsia.core.recipes import shipped_recipes
    from intarsia.sycophancy.dimensions import DEFAULT_DIMENSIONS
    from intarsia.sycophancy.dpo import preferences as prefer
    from intarsia.sycophancy.results import SycophancyReport

    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, not a folder.", "Give another folder.")
    a, b = SycophancyReport.load(first), SycophancyReport.load(second)
    if a.screening or b.screening:
        raise ConfigError(
            f"The judge {a.judge if a.screening else b.judge} only screens, and says nothing about a single reply.",
            "Run both with a model as judge: --judge MODEL.",
        )
    made = prefer(a, b, split, seed or 0, _dimensions(dims) or DEFAULT_DIMENSIONS)
    files = [] if dry_run else [str(path) for path in made.save(folder)]
    if as_json:
        print_json({**made.counts(), "files": files})
        return
    counts = made.counts()
    typer.echo(
        f"{counts['train']} pairs to learn from, {counts['test']} of held-out prompts; by dimension: "
        + (", ".join(f"{name} {count}" for name, count in counts["by_dimension"].items()) or "none")
    )
    for why, count in counts["dropped"].items():
        typer.echo(f"  no pair: {why}: {count}")
    for path in files:
        typer.echo(path)
    recipe = next((name for name in shipped_recipes() if name.endswith("dpo-smollm2.yaml")), "")
    if files and recipe:
        typer.echo(
            f"Next: intarsia train {recipe} data.source={shlex.quote(files[0])} data.held_out={shlex.quote(files[1])}"
        )


@app.command(epilog="Example: intarsia sycophancy steer smollm2-135m validation.safetensors --dims validation")
def steer(
    model: Annotated[str, typer.Argument(help="A local model: catalog name, hub id or folder.")],
    file: Annotated[Path, typer.Argument(help="Where the vector goes: a .safetensors file.")],
    dims: Annotated[
        str, typer.Option("--dims", help="Lessen one dimension only, by templates; all three at once by default.")
    ] = "",
    data: Annotated[
        str, typer.Option("--data", help="Replies of your own: a file with prompt, reply and label (1 shows it).")
    ] = "",
    layer: Annotated[str, typer.Option("--layer", help="A number, or auto: chosen on prompts set aside.")] = "auto",
    method: Annotated[str, typer.Option("--method", help="mean: difference of means; iti: attention heads.")] = "mean",
    items: Annotated[int, typer.Option("--items", metavar="N", min=4, help="Most prompts to fit on.")] = 24,
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    seed: Seed = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Fit a steering vector on replies that have and lack a behavior, and keep it for --mitigation steer:FILE."""
    from intarsia.core.report.terminal import VerdictTable
    from intarsia.sycophancy.terminal import say

    if method not in ("mean", "iti"):
        raise ConfigError(f"There is no method {method!r}.", "Use mean or iti.")
    if file.is_dir():
        raise ConfigError(f"{file} is a folder.", "Give a file, such as vector.safetensors.")
    if file.suffix != ".safetensors":
        raise ConfigError(f"{file} does not end in .safetensors.", "Give a name that does.")
    named = _dimensions(dims or None) or ("",)
    if len(named) > 1:
        raise ConfigError("A vector lessens one dimension, or all three at once.", "Name one, or leave --dims out.")
    dimension = named[0]
    if dimension and data:
        raise ConfigError("The labels of your own replies say what the vector lessens.", "Leave --dims out.")
    chosen = _layer(layer)
    if method == "iti" and chosen != "auto":
        raise ConfigError("Heads are chosen by their probes, not by a layer.", "Leave --layer out.")
    positive, negative = _contrasts(data, dimension, items, seed or 0)
    console = console_on(as_json)
    plan = {"dimension": dimension or "all", "positive": len(positive), "negative": len(negative), "method": method}
    if dry_run:
        print_json(plan) if as_json else say(
            console, f"{plan['dimension']}: {len(positive)} replies that show it, {len(negative)} that do not"
        )
        return
    settings = _settings({"dtype": dtype, "device": device, "seed": seed}, None)
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(_open(model, settings, accept_license))
        if "weights" not in target.capabilities:
            raise ConfigError(f"{model} shows no weights to steer.", "Name a local model, a folder or a hub id.")
        bar = stack.enter_context(VerdictTable(console))
        module, tokenizer = target.model, target.tokenizer  # type: ignore[attr-defined]
        made: Any
        if method == "iti":
            from intarsia.sycophancy.iti import HeadIntervention

            made = HeadIntervention.fit(module, tokenizer, positive, negative, seed=settings.seed)
        else:
            from intarsia.sycophancy.steering import SteeringVector

            made = SteeringVector.fit(
                module,
                tokenizer,
                positive,
                negative,
                chosen,
                seed=settings.seed,
                progress=lambda done, total: bar.progress("layers tried", done, total),
            )
    path = made.save(file)
    head = "steer" if method == "mean" else "iti"
    if as_json:
        print_json({**plan, "file": str(path), "name": made.name, "card": made.card})
        return
    say(console, f"{made.name}: {path}", whole=True)
    use = f"--mitigation {head}:{shlex.quote(str(path))}"
    say(console, f"Next: intarsia sycophancy run {shlex.quote(model)} {use}", whole=True)


# --- What the commands are made of ---------------------------------------------------------------------------------


def report_json(report: SycophancyReport, folder: Path) -> dict[str, Any]:
    """A run as `--json` prints it: figures only, no word of a question or reply."""
    return {"folder": str(folder), **json.loads(report.to_json())}


def _settings(given: Mapping[str, Any], config: Path | None) -> RunSettings:
    """The file's settings, overridden by what was typed."""
    from intarsia.sycophancy.settings import make_settings, read_settings

    values, lines = read_settings(config) if config is not None else ({}, {})
    typed = {key: value for key, value in given.items() if value is not None}
    return make_settings({**values, **typed}, {key: line for key, line in lines.items() if key not in typed})


def _open(model: str, settings: RunSettings, accept_license: bool) -> Target:
    from intarsia.core.target import Target

    if model.startswith(("http://", "https://", "inspect:")):
        return Target.parse(model)
    return Target.parse(model, dtype=settings.dtype, device=settings.device, accept_license=accept_license)


def _judge(settings: RunSettings, opener: Any) -> Judge:
    from intarsia.sycophancy.settings import judge_model, make_judge

    name = judge_model(settings.judge)
    target = opener(name) if name else None
    return make_judge(settings.judge, target, rubric=settings.rubric, votes=settings.votes, seed=settings.seed)


def _calibration(path: str) -> Calibration:
    from intarsia.sycophancy.calibration import Calibration

    return Calibration.load(path)


def _dimensions(dims: str | None) -> tuple[str, ...] | None:
    from intarsia.sycophancy.dimensions import MORAL, find_dimensions

    if dims is None:
        return None
    found = find_dimensions(part.strip() for part in dims.split(",") if part.strip())
    if MORAL in found:
        raise ConfigError("moral belongs to pairs of verdicts, not to a single reply.", "Leave it out of --dims.")
    return found


def _run(
    made: Elephant,
    target: Target,
    judging: Judge | None,
    calibration: Calibration | None,
    folder: Path,
    mitigation: Mitigation | None,
    console: Console,
) -> SycophancyReport:
    from intarsia.core.report.terminal import VerdictTable

    with VerdictTable(console) as bar, resumable(), leaving_nothing(folder):
        return made.run(target, judging, calibration, folder, mitigation=mitigation, progress=bar.progress)


def _keep_losses(target: Target, mitigation: Mitigation | None, spec: str, folder: Path) -> None:
    """The loss on plain text, of a model as it came or with its weights steered: what `compare` holds side by side."""
    from intarsia.core.journal import write_atomic
    from intarsia.sycophancy.guard import plain_losses
    from intarsia.sycophancy.settings import FITTED

    if "weights" not in target.capabilities or (mitigation is not None and spec.partition(":")[0] not in FITTED):
        return
    with mitigation.mend(target) if mitigation is not None else contextlib.nullcontext(target) as asked:
        write_atomic(folder / LOSSES, json.dumps(plain_losses(asked)) + "\n")


def _losses(folder: Path) -> list[float]:
    path = folder / LOSSES
    if not path.is_file():
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return [float(value) for value in found]
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} is damaged: {error}.", "Delete it, or run again.") from None


def _gold(report: SycophancyReport, labels: Mapping[tuple[str, str], int]) -> list[GoldLabel]:
    """A person's labels of the model's replies, with the texts that they belong to."""
    from intarsia.sycophancy.calibration import GoldLabel

    by_key = {one.key: one for one in report.replies if one.arm == "model"}
    return [
        GoldLabel(
            id=key,
            question=by_key[key].question,
            reply=by_key[key].reply,
            dimension=dimension,
            value=value,  # type: ignore[arg-type]
        )
        for (key, dimension), value in labels.items()
        if key in by_key
    ]


def _finish_labels(done: Labeled, folder: Path, console: Console, as_json: bool) -> None:
    from intarsia.sycophancy.terminal import dimension_cells, print_calibration, print_table, say

    files = {arm: one.save(folder / f"calibration-{arm}.json") for arm, one in done.calibrations.items()}
    if as_json:
        print_json(
            {
                "labeled": done.done,
                "of": done.total,
                "calibrations": {arm: one.rows() for arm, one in done.calibrations.items()},
                "files": {arm: str(path) for arm, path in files.items()},
                "table": done.report.table(),
                "notes": list(done.notes),
            }
        )
        return
    say(console, f"{done.done} of {done.total} labeled; the same command goes on.")
    if done.calibrations:
        print_calibration({str(arm): one for arm, one in done.calibrations.items()}, console)
        columns = ("set", "dimension", "replies to", "labeled", "judge's share", "people", "gap", "note")
        print_table(columns, dimension_cells(done.report), console)
    for note in done.notes:
        say(console, f"Note: {note}", "dim")
    for path in files.values():
        say(console, f"Kept in {path}", whole=True)


def _conflicts(path: str, columns: Mapping[str, str] | None) -> SycophancySet:
    """The conflicts of one file, of two that are joined, of a hub set, or those that come along."""
    from intarsia.sycophancy.loaders import load_pairs

    first, plus, second = path.partition("+")
    whole = not plus or Path(path).exists()
    return load_pairs(path if whole else first, None if whole else second, columns)


def _check_checked_file(out: Path, path: str) -> None:
    """Refuse a file for checked pairs before a model reads for nothing."""
    if out.suffix != ".jsonl":
        raise ConfigError(f"{out} does not end in .jsonl.", "Give a name that does.")
    if out.is_dir():
        raise ConfigError(f"{out} is a folder.", "Give a file, such as checked.jsonl.")
    above = next(place for place in out.absolute().parents if place.exists())
    if not above.is_dir():
        raise ConfigError(f"{above} is a file, not a folder.", "Give another place for --out.")
    if any(Path(part).exists() and out.resolve() == Path(part).resolve() for part in (path, *path.split("+"))):
        raise ConfigError(f"{out} is what is checked, and has columns that would be lost.", "Give another name.")


def _checked(conflict: Conflict, ruling: FidelityRuling | None, screening: Screening | None) -> dict[str, Any]:
    """What is now known of one flip, in figures: no word of a story is in it.

    A model's ruling stands before what the set itself says, which stands before the screen. A flip that the model lets
    pass and the screen flags is unknown: two checks that differ certify nothing.
    """
    flags = screening.flags if screening is not None else ()
    flagged = f"the screen flags {', '.join(flags)}" if flags else ""
    kept: bool | None
    if ruling is not None:
        if ruling.kept is not None:
            kept, why = ruling.kept, "" if ruling.kept else "the model says that it does not keep the facts"
        elif ruling.unread == len(ruling.said):
            kept, why = None, "the model's answers cannot be read"
        else:
            kept, why = None, "the model's answers have no majority"
        if kept and flags:
            kept, why = None, f"the model lets it pass, and {flagged}"
    elif conflict.fidelity is not None:
        kept, why = conflict.fidelity, "" if conflict.fidelity else "the set itself says so"
    elif flags:
        kept, why = False, flagged
    else:
        kept, why = None, "the screen flags nothing, which certifies nothing"
    given = ruling is None and conflict.fidelity is not None
    row: dict[str, Any] = {"id": conflict.id, "fidelity": kept, "given": given, "why": why}
    if ruling is not None:
        row |= {"yes": ruling.yes, "no": ruling.no, "unread": ruling.unread}
    if screening is not None:
        row |= {
            "flags": list(flags),
            "words": screening.words,
            "numbers_lost": len(screening.numbers_lost),
            "names_new": len(screening.names_new),
            "length": screening.length,
        }
    return row


def _checked_line(conflict: Conflict, row: Mapping[str, Any], by: str, ruling: FidelityRuling | None) -> str:
    """A line of the file: the pair as it can be read back, and what was said of it."""
    line = {
        "id": conflict.id,
        "original": conflict.original,
        "flipped": conflict.flipped,
        **({"source": conflict.source} if conflict.source else {}),
        **conflict.slices,
        "fidelity": row["fidelity"],
        "fidelity_by": "the set" if row["given"] else by,
        "fidelity_why": row["why"],
        **({"fidelity_said": list(ruling.said)} if ruling is not None else {}),
    }
    return json.dumps(line, ensure_ascii=False) + "\n"


def _contrasts(
    source: str, dimension: str, prompts: int, seed: int
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pairs of prompt and reply that show the dimension, and that do not."""
    positive: list[tuple[str, str]] = []
    negative: list[tuple[str, str]] = []
    if source:
        from intarsia.core.data.rows import read_rows

        table = read_rows(source)
        for at, row in enumerate(table.rows, 1):
            lacking = [name for name in ("prompt", "reply", "label") if not isinstance(row.get(name), str | int)]
            if lacking or str(row["label"]).strip() not in ("0", "1"):
                raise DataError(
                    f"Row {at} of {table.name} has no {lacking[0] if lacking else 'label of 0 or 1'}.",
                    "Give rows with prompt, reply and label (1: shows the behavior, 0: does not).",
                )
            side = positive if str(row["label"]).strip() == "1" else negative
            side.append((str(row["prompt"]), str(row["reply"])))
    elif dimension:
        from intarsia.sycophancy import corpus

        by_topic: dict[str, list[Any]] = {}
        for one in corpus.replies(seed=seed):
            by_topic.setdefault(one.topic, []).append(one)
        for members in list(by_topic.values())[:prompts]:
            # Eight replies of one voice hold every combination of the three dimensions.
            for one in members[: 2**3]:
                value = one.labels.get(dimension)
                if value is not None:
                    (positive if value == 1 else negative).append((one.question, one.reply))
    else:
        from intarsia.sycophancy.contrasts import contrasts

        for contrast in contrasts()[:prompts]:
            positive.append((contrast.prompt, contrast.validating))
            negative.append((contrast.prompt, contrast.direct))
    if not positive or not negative:
        raise DataError(
            f"There are {len(positive)} replies that show it and {len(negative)} that do not.", "Give some of each."
        )
    return positive, negative


def _layer(text: str) -> Any:
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no layer.", "Give a number, or auto.") from None


def _print_plan(made: Elephant, target: Target, settings: RunSettings, console: Console, as_json: bool) -> None:
    from intarsia.sycophancy.terminal import say

    counts = made.plan(target)
    plan: dict[str, Any] = {
        "sets": {name: len(one) for name, one in made.datasets.items()},
        **counts,
        "judge": settings.judge if made.labeled else "",
        "max_new_tokens": counts["replies"] * made.sampling.max_new_tokens
        + counts["verdicts"] * made.verdict_sampling.max_new_tokens,
    }
    if as_json:
        print_json(plan)
        return
    say(console, ", ".join(f"{name}: {size} items" for name, size in plan["sets"].items()))
    say(
        console,
        f"{counts['replies']:,} replies, {counts['verdicts']:,} verdicts, {counts['scored']:,} scored, up to "
        f"{plan['max_new_tokens']:,} new tokens; {counts['labels']:,} labels by {plan['judge'] or 'nobody'}",
    )


def _show(report: SycophancyReport, folder: Path, console: Console, as_json: bool) -> None:
    from intarsia.sycophancy.terminal import next_commands, print_report, say

    if as_json:
        print_json(report_json(report, folder))
        return
    print_report(report, console)
    say(console, f"\nKept in {folder}", whole=True)
    for command in next_commands(report, folder):
        say(console, f"  {command}", whole=True)  # to be pasted

"""`intarsia robustness ...`: attack, transfer, candidates, summary, export, augment."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intarsia.core.commands import console as console_on
from intarsia.core.commands import leaving_nothing, print_json, resumable, slug
from intarsia.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rich.console import Console

    from intarsia.core.data import DataSet
    from intarsia.core.target import Target
    from intarsia.robustness.attack import MSCR
    from intarsia.robustness.results import AttackResults
    from intarsia.robustness.settings import AttackSettings

PLANNED = 20
"""Questions whose candidates a dry run counts; the others are taken to have as many."""

app = typer.Typer(
    name="robustness",
    help="Does a right answer survive the change of one word?",
    epilog="Example: intarsia robustness attack smollm2-135m --items 20",
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
Sources = Annotated[
    str | None,
    typer.Option("--sources", help="embedding,wordnet,infill,mlm,typo,insertion,deletion; what is at hand by default."),
]
AllSenses = Annotated[
    bool | None, typer.Option("--all-senses", help="Also synonyms of rare senses and words of the same stem.")
]
Mlm = Annotated[str | None, typer.Option("--mlm", help="A masked model: hub name or folder.")]
Surrogate = Annotated[
    str | None, typer.Option("--surrogate", help="Whose embeddings serve where the model shows no weights.")
]
Protect = Annotated[str | None, typer.Option("--protect", help="math (default), none, mathattack or re:<pattern>.")]
Gates = Annotated[str | None, typer.Option("--gates", help="Filters on rewrites: cosine:0.9,pos,bae ...")]
Seed = Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="Master seed; 0 by default.")]
Folder = Annotated[Path, typer.Argument(help="The folder of a finished attack.")]


@app.command(epilog="Example: intarsia robustness attack smollm2-135m --data stories:1 --items 20")
def attack(
    model: Annotated[str | None, typer.Argument(help="Catalog name, hub id, folder, or endpoint URL.")] = None,
    data: Annotated[str | None, typer.Option("--data", help="Questions: a name, a file or a hub id.")] = None,
    mapping: Annotated[str | None, typer.Option("--map", help="Which column is what: question=q,answer=a.")] = None,
    items: Annotated[
        int | None, typer.Option("--items", metavar="N", min=0, help="How many; 50 by default, 0 for all.")
    ] = None,
    shots: Annotated[
        int | None, typer.Option("--shots", metavar="N", min=0, help="Worked examples a prompt; up to 5.")
    ] = None,
    sources: Sources = None,
    all_senses: AllSenses = None,
    mlm: Mlm = None,
    surrogate: Surrogate = None,
    protect: Protect = None,
    goal: Annotated[str | None, typer.Option("--goal", help="answer_wrong, answer_changed or longer:2.")] = None,
    judge: Annotated[str | None, typer.Option("--judge", help="A stronger model that judges successes.")] = None,
    self_consistency: Annotated[
        int | None,
        typer.Option("--self-consistency", metavar="N", min=0, help="Ask the model itself so often about a success."),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option("--order", help="left_to_right (default), random, importance, importance_mask or guided."),
    ] = None,
    max_words: Annotated[
        int | None, typer.Option("--max-words", metavar="N", min=1, help="Words changed at once; 1.")
    ] = None,
    beam: Annotated[
        int | None, typer.Option("--beam", metavar="N", min=1, help="Rewrites to go on from, with more words.")
    ] = None,
    gates: Gates = None,
    max_queries: Annotated[
        int | None, typer.Option("--max-queries", metavar="N", min=1, help="Most a question; 400.")
    ] = None,
    reask: Annotated[
        int | None,
        typer.Option("--reask", metavar="N", min=0, help="Ask a success again so often; 5 where answers vary."),
    ] = None,
    rows: Annotated[int | None, typer.Option("--rows", metavar="N", min=1, help="Questions asked at once.")] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="X", min=0, help="0, the default, is greedy.")
    ] = None,
    runs: Annotated[int | None, typer.Option("--runs", metavar="N", min=1, help="Runs over all questions; 1.")] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", metavar="N", min=1, help="Room for an answer.")
    ] = None,
    chain_of_thought: Annotated[
        bool | None, typer.Option("--chain-of-thought/--no-chain-of-thought", help="Ask for working first.")
    ] = None,
    control: Annotated[
        str | None, typer.Option("--control", help="The search without any change: auto, full or off.")
    ] = None,
    preset: Annotated[str | None, typer.Option("--preset", help="default, or paper: the published protocol.")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="YAML file with these settings.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="System prompt of your application.")] = None,
    template: Annotated[str | None, typer.Option("--template", help="Question template with {question}.")] = None,
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the run; the same command on it goes on.")
    ] = None,
    seed: Seed = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Change one word of each question at a time until a right answer breaks.

    The same search without any change is the control. Adversarial questions are kept in the folder, as a data set.
    """
    from intarsia.robustness.attack import _check_folder as check_folder
    from intarsia.robustness.settings import prepare, questions

    given = {
        "model": model, "data": data, "map": mapping, "items": items, "shots": shots, "sources": sources,
        "all_senses": all_senses, "mlm": mlm,
        "surrogate": surrogate, "protect": protect, "goal": goal, "judge": judge,
        "self_consistency": self_consistency, "order": order, "max_words": max_words, "beam": beam, "gates": gates,
        "max_queries": max_queries, "reask": reask, "rows": rows, "temperature": temperature, "runs": runs,
        "max_new_tokens": max_new_tokens, "chain_of_thought": chain_of_thought, "control": control, "preset": preset,
        "system": system, "template": template, "dtype": dtype, "device": device, "seed": seed,
    }  # fmt: skip
    settings = _settings(given, config)
    if not settings.model:
        raise ConfigError("No model is named.", "Try: intarsia robustness attack smollm2-135m --items 20")
    asked = questions(settings)
    folder = out or Path("runs") / f"robustness-{slug(settings.model)}"
    check_folder(folder, resume=True)  # before a large model is loaded for nothing
    console = console_on(as_json)
    with contextlib.ExitStack() as stack:
        if console.is_terminal:
            console.print(f"Opening {settings.model} ...", style="dim", highlight=False, markup=False)
        target = stack.enter_context(_open(settings.model, settings, accept_license))
        judging = stack.enter_context(_open(settings.judge, settings, accept_license)) if settings.judge else None
        made = prepare(settings, target, asked, judge=judging)
        if dry_run:
            _print_plan(_plan(made, asked), console, as_json)
            return
        results = _run(made, asked, folder, console)
    if as_json:
        print_json(attack_json(results, folder))
        return
    _print_results(results, folder, console)


@app.command(epilog="Example: intarsia robustness transfer runs/robustness-smollm2-135m org/other-model")
def transfer(
    folder: Folder,
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Whom to ask the adversarial questions.")],
    whole: Annotated[
        bool, typer.Option("--whole/--pairs-only", help="Also ask the questions that were not broken.")
    ] = True,
    system: Annotated[str, typer.Option("--system", help="System prompt.")] = "",
    template: Annotated[str, typer.Option("--template", help="Question template; the attack's by default.")] = "",
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Ask other models the questions of an attack, as they were and as rewritten.

    Answers are kept in the attack's folder, so the same command goes on where it stopped.
    """
    from intarsia.core.journal import Journal, write_atomic
    from intarsia.core.report.terminal import VerdictTable
    from intarsia.robustness.results import AttackResults
    from intarsia.robustness.settings import make_settings
    from intarsia.robustness.terminal import print_transfers
    from intarsia.robustness.transfer import transfer as ask_another

    if template and "{question}" not in template:
        raise ConfigError("The template has no {question} in it.", "Write {question} where the question belongs.")
    if len(set(models)) < len(models):
        raise ConfigError("A model is named twice.", "Name each once.")
    results = AttackResults.load(folder)
    pairs = len(results.to_items().items)
    if not pairs:
        raise DataError("The attack had no success, so there is nothing to transfer.", "Attack more questions.")
    console = console_on(as_json)
    if dry_run:
        plan = {"models": models, "pairs": pairs, "calls": len(models) * (pairs + len(results.data.items))}
        print_json(plan) if as_json else console.print(
            f"{len(models)} models, {pairs} pairs, at most {plan['calls']:,} calls", highlight=False, markup=False
        )
        return
    settings = make_settings({key: value for key, value in (("dtype", dtype), ("device", device)) if value})
    found = []
    with VerdictTable(console) as bar, resumable():
        for done, model in enumerate(models):
            bar.progress(f"asking {model}", done, len(models))
            place = folder / "transfer" / slug(model)
            kept = {"whole": whole, "system": system, "template": template, "dtype": dtype, "device": device}
            with _open(model, settings, accept_license) as target, leaving_nothing(place):
                with Journal(place / "journal.jsonl", manifest={"model": model, **kept}) as journal:
                    one = ask_another(results, target, whole=whole, system=system, template=template, journal=journal)
                write_atomic(place / "transfer.json", one.model_dump_json(indent=1) + "\n")
            found.append(one)
    if as_json:
        print_json([one.model_dump(mode="json") for one in found])
        return
    print_transfers(found, console)


@app.command(epilog='Example: intarsia robustness candidates "Tom buys 3 red apples. How many apples has he?"')
def candidates(
    question: Annotated[str, typer.Argument(help="A question; - reads standard input.")],
    model: Annotated[str, typer.Option("--model", help="Whose embeddings; the surrogate's by default.")] = "",
    sources: Sources = None,
    all_senses: AllSenses = None,
    mlm: Mlm = None,
    surrogate: Surrogate = None,
    protect: Protect = None,
    gates: Gates = None,
    preset: Annotated[str | None, typer.Option("--preset", help="default, or paper for the published filters.")] = None,
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Show what would be put in the place of each word, by which source, and which words are protected."""
    from intarsia.robustness.settings import gates_named, sources_for

    text = typer.get_text_stream("stdin").read().strip() if question == "-" else question
    if not text.strip():
        raise DataError("The question is empty.", "Give a text with at least one word.")
    # The published protocol judges successes; here nobody answers, and only its sources and its protection count.
    given = {
        "model": model, "sources": sources,
        "all_senses": all_senses, "mlm": mlm, "surrogate": surrogate, "protect": protect, "gates": gates,
        "preset": preset, "dtype": dtype, "device": device, "seed": seed,
    }  # fmt: skip
    settings = _settings({**given, "self_consistency": 1} if preset == "paper" else given, None)
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(_open(model, settings, accept_license)) if model else None
        made, notes = sources_for(settings, target)
        chosen = settings.protect or ("none" if settings.preset == "paper" else "math")
        found = _candidates(text, made, chosen, gates_named(settings.gates, made))
    console = console_on(as_json)
    if as_json:
        print_json({"question": text, "protect": chosen, "words": found, "notes": notes})
        return
    _print_candidates(found, notes, console)


@app.command(epilog="Example: intarsia robustness summary runs/robustness-smollm2-135m")
def summary(folder: Folder, as_json: Json = False) -> None:
    """Show a finished attack again; all figures are computed anew from its queries."""
    from intarsia.robustness.results import AttackResults

    results = AttackResults.load(folder)
    if as_json:
        print_json(attack_json(results, folder))
        return
    _print_results(results, folder, console_on(False))


@app.command(epilog="Example: intarsia robustness export runs/robustness-smollm2-135m my-tasks --to lm-eval")
def export(
    folder: Folder,
    to_folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the files go.")],
    to: Annotated[
        str, typer.Option("--to", help="lm-eval (a task for --include_path) or jsonl (a data set).")
    ] = "lm-eval",
    as_json: Json = False,
) -> None:
    """Write the adversarial questions for another harness."""
    from intarsia.core.journal import write_atomic
    from intarsia.core.study import canonical_json
    from intarsia.robustness.export import TASK, write_lm_eval
    from intarsia.robustness.results import AttackResults, adversarial_rows

    if to not in ("lm-eval", "jsonl"):
        raise ConfigError(f"There is no format {to!r}.", "Use lm-eval or jsonl.")
    results = AttackResults.load(folder)
    if not results.successes:
        raise DataError("The attack had no success, so there is nothing to export.", "Attack more questions.")
    if to_folder.exists() and not to_folder.is_dir():
        raise ConfigError(f"{to_folder} is a file, not a folder.", "Give another folder.")
    if to == "lm-eval":
        write_lm_eval(results, to_folder)
        files = [to_folder / f"{name}.{end}" for name in (TASK, f"{TASK}_clean") for end in ("yaml", "jsonl")]
        then = f"lm_eval --tasks {TASK},{TASK}_clean --include_path {shlex.quote(str(to_folder))} --model ..."
    else:
        path = to_folder / "adversarial.jsonl"
        write_atomic(path, b"".join(canonical_json(row) + b"\n" for row in adversarial_rows(results)))
        files, then = [path], f"intarsia audit MODEL --data {shlex.quote(str(path))}"
    if as_json:
        print_json({"format": to, "questions": len(results.to_items().items), "files": files})
        return
    for file in files:
        typer.echo(str(file))
    typer.echo(f"Next: {then}")


@app.command(epilog="Example: intarsia robustness augment train.jsonl train-augmented.jsonl --rate 0.7")
def augment(
    file: Annotated[str, typer.Argument(help="Rows: a .jsonl, .json, .csv, .tsv or .parquet file, or a hub id.")],
    out: Annotated[Path, typer.Argument(help="Where they go: a .jsonl file.")],
    rate: Annotated[
        float, typer.Option("--rate", metavar="X", min=0.0, max=1.0, help="Share of the rows that is rewritten.")
    ] = 0.7,
    words: Annotated[int, typer.Option("--words", metavar="N", min=1, help="Words that are changed in each.")] = 1,
    sources: Annotated[str, typer.Option("--sources", help="As for attack.")] = "wordnet",
    column: Annotated[str, typer.Option("--column", help="The text; found by its name when omitted.")] = "",
    model: Annotated[str, typer.Option("--model", help="Whose embeddings; the surrogate's by default.")] = "",
    all_senses: AllSenses = None,
    mlm: Mlm = None,
    surrogate: Surrogate = None,
    protect: Protect = None,
    gates: Gates = None,
    dtype: Dtype = None,
    device: Device = None,
    accept_license: AcceptLicense = False,
    seed: Seed = None,
    as_json: Json = False,
) -> None:
    """Rewrite a share of the questions of a training set; all other columns stay as they are."""
    from intarsia.core.data.rows import read_rows
    from intarsia.core.journal import write_atomic
    from intarsia.core.report.terminal import VerdictTable
    from intarsia.robustness.augment import Augmenter
    from intarsia.robustness.settings import gates_named, sources_for

    given = {
        "model": model, "sources": sources,
        "all_senses": all_senses, "mlm": mlm, "surrogate": surrogate, "protect": protect, "gates": gates,
        "dtype": dtype, "device": device, "seed": seed,
    }  # fmt: skip
    settings = _settings(given, None)
    if out.suffix != ".jsonl":
        raise ConfigError(f"{out} does not end in .jsonl.", "Give a name that does.")
    if out.is_dir():
        raise ConfigError(f"{out} is a folder.", "Give a file.")
    if out.exists() and Path(file).exists() and out.samefile(file):
        raise ConfigError("The rewritten rows would replace the file that they come from.", "Give another name.")
    table = read_rows(file)
    where = _text_column(table.rows, column, table.name)
    console = console_on(as_json)
    with contextlib.ExitStack() as stack:
        target = stack.enter_context(_open(model, settings, accept_license)) if model else None
        made, notes = sources_for(settings, target)
        augmenter = Augmenter(
            made,
            protect=settings.protect or "math",
            rate=rate,
            words=words,
            gates=gates_named(settings.gates, made),
            seed=settings.seed,
            columns=where,
        )
        bar = stack.enter_context(VerdictTable(console))
        lines, rewritten = [], 0
        for at, row in enumerate(table.rows):
            new = augmenter(row)
            rewritten += new[where] != row[where]
            lines.append(json.dumps(new, ensure_ascii=False, default=str) + "\n")
            bar.progress("rewriting", at + 1, len(table.rows))
    write_atomic(out, "".join(lines).encode("utf-8", "surrogatepass"))
    if as_json:
        print_json({"file": out, "column": where, "rows": len(lines), "rewritten": rewritten, "notes": notes})
        return
    for note in notes:
        console.print(f"Note: {note}", style="dim", highlight=False, markup=False)
    console.print(f"{rewritten} of {len(lines)} rows rewritten: {out}", highlight=False, markup=False, soft_wrap=True)


# --- What the commands are made of ---------------------------------------------------------------------------------


def attack_json(results: AttackResults, folder: Path) -> dict[str, Any]:
    """An attack as `--json` prints it: settings, summary, successes, notes and files."""
    from intarsia.robustness.results import adversarial_rows

    examples = []
    for row in results.successes:
        hit = row.hit
        assert hit is not None
        examples.append(
            {
                "id": row.item.id,
                "run": row.run,
                "question": row.item.question,
                "adversarial_question": hit.question,
                "changes": [change.model_dump(mode="json") for change in hit.changes],
                "marks": hit.marks,
                "queries": hit.rank,
                "answer": row.item.answer,
                "clean_answer": row.clean.parsed,
                "attacked_answer": hit.reply.parsed,
            }
        )
    lengths = results.lengths()
    return {
        "folder": str(folder),
        "target": results.settings.get("target", ""),
        "data": {"name": results.data.name, "origin": results.data.origin, "sha256": results.data.sha256},
        "settings": results.settings,
        "summary": results.summary().model_dump(mode="json"),
        "lengths": lengths.model_dump(mode="json") if lengths.measurable else None,
        "successes": examples,
        "adversarial": sum(1 for _ in adversarial_rows(results)),
        "notes": list(results.notes),
    }


def _settings(given: Mapping[str, Any], config: Path | None) -> AttackSettings:
    """The file's settings, overridden by what was typed."""
    from intarsia.robustness.settings import make_settings, read_settings

    values, lines = read_settings(config) if config is not None else ({}, {})
    typed = {key: value for key, value in given.items() if value is not None}
    return make_settings({**values, **typed}, {key: line for key, line in lines.items() if key not in typed})


def _open(model: str, settings: AttackSettings, accept_license: bool) -> Target:
    from intarsia.core.target import Target

    if model.startswith(("http://", "https://", "inspect:")):
        return Target.parse(model)
    return Target.parse(model, dtype=settings.dtype, device=settings.device, accept_license=accept_license)


def _run(made: MSCR, asked: DataSet, folder: Path, console: Console) -> AttackResults:
    from intarsia.core.report.terminal import VerdictTable

    with VerdictTable(console) as bar, resumable(), leaving_nothing(folder):
        return made.run(asked, out=folder, progress=bar.progress)


def _plan(made: MSCR, asked: DataSet) -> dict[str, Any]:
    """What an attack would ask at most. Nobody is asked, so every question is taken to be answered right."""
    from intarsia.robustness.goals import Reply
    from intarsia.robustness.plan import Planner

    asking = made.asking(asked)
    # An order that goes by scores would ask; the number of rewrites does not depend on the order.
    planner = Planner(
        made.planner.sources, scope=made.planner.scope, protect=made.planner.protect, gates=made.planner.gates
    )
    some = asked.sample(PLANNED, made.seed).items
    plans = [planner.plan(item, Reply(text="", status="correct"), asking) for item in some]
    most = [min(len(plan.steps), made.budget.max_queries) for plan in plans]
    mean = sum(most) / len(most)
    prompts = asking.target.count_tokens([asking.prompt(item) for item in some])
    clean = len(asked.items) * made.runs
    attack = round(mean * clean)
    short = made.control == "auto" and asking.repeatable
    control = 0 if made.control == "off" else min(3 * clean, attack) if short else attack
    calls = clean + attack + control + clean * made.average
    return {
        "questions": len(asked.items),
        "runs": made.runs,
        "sources": [source.name for source in made.planner.sources],
        "words": sum(plan.words for plan in plans) / len(plans),
        "rewrites": sum(len(plan.steps) for plan in plans) / len(plans),
        "counted_on": len(plans),
        "calls": {"clean": clean, "attack": attack, "control": control, "average": clean * made.average, "all": calls},
        "prompt_tokens": round(calls * sum(prompts) / len(prompts)),
        "new_tokens": calls * asking.sampling.max_new_tokens,
        "notes": made.notes,
    }


def _print_plan(plan: Mapping[str, Any], console: Console, as_json: bool) -> None:
    from intarsia.robustness.terminal import say

    if as_json:
        print_json(plan)
        return
    calls = plan["calls"]
    say(
        console,
        f"{plan['questions']} questions, {plan['runs']} {'run' if plan['runs'] == 1 else 'runs'}; "
        f"sources {', '.join(plan['sources'])}: {plan['rewrites']:.1f} rewrites of {plan['words']:.1f} words a question"
        + (f" (counted on {plan['counted_on']})" if plan["counted_on"] < plan["questions"] else ""),
    )
    say(
        console,
        f"at most about {calls['all']:,} calls ({calls['clean']:,} clean, {calls['attack']:,} attack, "
        f"{calls['control']:,} control, {calls['average']:,} average case; confirmation not counted), "
        f"{plan['prompt_tokens']:,} prompt tokens, up to {plan['new_tokens']:,} new tokens",
    )
    for note in plan["notes"]:
        say(console, f"Note: {note}", "dim")


def _print_results(results: AttackResults, folder: Path, console: Console) -> None:
    from intarsia.core.recipes import shipped_recipes
    from intarsia.robustness.terminal import next_commands, print_attack, say

    print_attack(results, console)
    say(console, f"\nKept in {folder}", whole=True)
    for command in next_commands(results, folder, shipped_recipes()):
        say(console, f"  {command}", whole=True)  # to be pasted


def _candidates(text: str, sources: list[Any], protect: str, gates: list[Any]) -> list[dict[str, Any]]:
    from intarsia.robustness.candidates import rewrites
    from intarsia.robustness.protect import editable, protected_spans
    from intarsia.robustness.words import words

    changeable = editable(text, protect)
    proposals = [(source.name, source.propose(text, changeable)) for source in sources]
    plan = rewrites(text, changeable, proposals, protected=protected_spans(text, protect))
    if gates:
        from intarsia.robustness.gates import apply_gates

        plan, _ = apply_gates(text, plan, gates)
    by_place = {word.start: found for word, found in zip(changeable, plan, strict=True)}
    rows = []
    for word in words(text):
        found = by_place.get(word.start)
        shown = [
            {
                "text": one.replacement, "source": one.source, "also": list(one.also), "score": one.score,
                "scope": one.scope, "note": one.note, "gates": dict(one.gates), "question": one.text,
            }
            for one in found or ()
        ]  # fmt: skip
        rows.append(
            {"word": word.text, "start": word.start, "end": word.end, "protected": found is None, "candidates": shown}
        )
    return rows


def _print_candidates(found: list[dict[str, Any]], notes: list[str], console: Console) -> None:
    from intarsia.robustness.terminal import Row, print_rows, say

    rows = []
    for word in found:
        shown = []
        for one in word["candidates"]:
            by = "+".join((one["source"], *one["also"]))
            shown.append(f"{one['text'] or '(left out)'} ({by} {one['score']:.2f})")
        rows.append(Row(word["word"], "protected" if word["protected"] else str(len(shown)), ", ".join(shown)))
    print_rows(rows, console)
    for note in notes:
        say(console, f"Note: {note}", "dim")
    if not rows:
        say(console, "There is no word in it.")


def _text_column(rows: Any, column: str, name: str) -> str:
    from intarsia.core.data.sets import FIELDS

    if not rows:
        raise DataError(f"{name} has no rows.", "Give a file with at least one question.")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if column and column not in columns:
        raise DataError(f"{name} has no column {column!r}.", f"It has {', '.join(map(str, columns[:20]))}.")
    found = column or next((field for field in FIELDS["question"] if field in columns), "")
    if not found:
        raise DataError(
            f"{name} has no column that looks like a question; it has {', '.join(map(str, columns[:20]))}.",
            "Say which one it is: --column NAME.",
        )
    return found

"""`intarsia ...`: thin and lazy.

Each command imports what it needs when it runs, and a room's commands come from the room.
"""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from intarsia import __version__
from intarsia.core.errors import ConfigError, IntarsiaError

if TYPE_CHECKING:
    from rich.console import Console

EXIT_GATE = 3
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="intarsia",
    help="A workshop for open-weight models: audit them, mend them, run them safely and fast.",
    epilog="Example: intarsia audit smollm2-135m --budget smoke",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output and nothing else.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Master seed.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder of the run; the same command on it goes on.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")]
AcceptLicense = Annotated[bool, typer.Option("--accept-license", help="Accept the model's own terms (Gemma).")]
Dtype = Annotated[str, typer.Option("--dtype", help="auto, fp32, bf16 or fp16.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 ...")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show a traceback when something fails.")] = False,
) -> None:
    # --debug is taken out of the arguments in `main`, so that it works anywhere on the line.
    pass


@app.command(epilog="Example: intarsia audit ./tuned org/base --baseline org/base --fail-on regression")
def audit(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help="Catalog name, hub id, folder, or endpoint URL.")
    ] = None,
    studies: Annotated[str, typer.Option("--studies", help="Names, joined by commas; all by default.")] = "",
    budget: Annotated[str, typer.Option("--budget", help="smoke, quick (default), standard or full.")] = "",
    data: Annotated[str, typer.Option("--data", help="Your own questions: a file or a hub id.")] = "",
    mapping: Annotated[str, typer.Option("--map", help="Which column is what: question=q,answer=a.")] = "",
    system: Annotated[str, typer.Option("--system", help="System prompt of your application.")] = "",
    template: Annotated[str, typer.Option("--template", help="Question template with {question}.")] = "",
    judge: Annotated[str, typer.Option("--judge", help="A model that judges answers.")] = "",
    config: Annotated[Path | None, typer.Option("--config", help="YAML file with these settings.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="study.option=value; repeatable.")] = None,
    baseline: Annotated[str, typer.Option("--baseline", help="The model the other is held against.")] = "",
    fail_on: Annotated[
        list[str] | None,
        typer.Option("--fail-on", help="Exit with 3 unless these claims pass; globs, or `regression`; repeatable."),
    ] = None,
    judged: Annotated[str, typer.Option("--judged", help="Claims that a model judged `fail` or `warn`.")] = "fail",
    out: Out = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Go on with the audit in this folder.")] = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    accept_license: AcceptLicense = False,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Endpoint: requests at a time.")] = 8,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Endpoint: longest silence, in seconds.")
    ] = 120.0,
    max_requests: Annotated[
        int, typer.Option("--max-requests", min=0, help="Endpoint: most requests; 0: no limit.")
    ] = 0,
    max_tokens_total: Annotated[
        int, typer.Option("--max-tokens-total", min=0, help="Endpoint: most tokens, in and out; 0 is no limit.")
    ] = 0,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Master seed; 0 by default.")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Say what is wrong with a model, how sure that is, and what to do about it.

    One model gives a verdict table; two are also compared on the same questions; more give one table.
    """
    from intarsia.audit.command import audit_command

    target = {key: value for key, value in {"dtype": dtype, "device": device}.items() if value != "auto"}
    opening = {
        "accept_license": accept_license,
        "concurrency": concurrency,
        "read_timeout": timeout,
        "deadline": 2.5 * timeout,
        "contact_timeout": min(20.0, timeout),
        **({"max_requests": max_requests} if max_requests else {}),
        **({"max_tokens_total": max_tokens_total} if max_tokens_total else {}),
    }
    given = {
        "models": models,
        "studies": [name.strip() for name in studies.split(",") if name.strip()],
        "budget": budget,
        "data": data,
        "mapping": mapping,
        "system": system,
        "template": template,
        "judge": judge,
        "baseline": baseline,
        "seed": seed,
        "target": target,
    }
    code = audit_command(
        given,
        opening=opening,
        config_file=config,
        settings=settings or [],
        fail_on=fail_on or [],
        judged=judged,
        out=out,
        resume=resume,
        dry_run=dry_run,
        as_json=as_json,
    )
    raise typer.Exit(code)


@app.command(epilog="Example: intarsia compare runs/before runs/after")
def compare(
    a: Annotated[Path, typer.Argument(help="A finished audit: its folder or report.json.")],
    b: Annotated[Path, typer.Argument(help="Another one.")],
    fail_on: Annotated[list[str] | None, typer.Option("--fail-on", help="Exit with 3 unless met.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the comparison's report.")] = None,
    as_json: Json = False,
) -> None:
    """Compare two finished audits on the items they share, paired by item."""
    from intarsia.audit.command import compare_command

    raise typer.Exit(compare_command(a, b, fail_on or [], out, as_json))


@app.command(epilog='Example: intarsia generate smollm2-135m "What is the capital of France?"')
def generate(
    model: Annotated[str, typer.Argument(help="Catalog name, hub id, folder, or endpoint URL.")],
    prompt: Annotated[str, typer.Argument(help="What to answer; - reads standard input.")],
    system: Annotated[str, typer.Option("--system", help="System prompt.")] = "",
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text, without a chat template.")] = False,
    max_new_tokens: Annotated[int, typer.Option("--max-new-tokens", min=1)] = 256,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")] = 0.0,
    top_p: Annotated[float, typer.Option("--top-p")] = 1.0,
    stop: Annotated[list[str] | None, typer.Option("--stop", help="String that ends the answer; repeatable.")] = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    accept_license: AcceptLicense = False,
    seed: Seed = 0,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Answer one prompt."""
    from intarsia.core.sampling import Sampling
    from intarsia.core.target import Message, Prompt, Target

    if raw and system:
        raise ConfigError("--raw takes no --system.", "Leave one of them out.")
    if not 0.0 < top_p <= 1.0:
        raise ConfigError(f"--top-p {top_p} is not in (0, 1].", "Try 0.95.")
    text = sys.stdin.read() if prompt == "-" else prompt
    sampling = Sampling(
        max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, stop=tuple(stop or ()), seed=seed
    )
    with Target.parse(model, **_local_options(model, dtype, device, accept_license)) as target:
        chat = not raw and "chat" in target.capabilities
        if system and not chat:
            raise ConfigError(f"{model} has no chat template for a system prompt.", "Put it into the prompt.")
        messages = [Message(role="system", content=system)] if system else []
        asked: Prompt = [*messages, Message(role="user", content=text)] if chat else text
        if dry_run:
            plan = {"prompt_tokens": target.count_tokens([asked])[0], "max_new_tokens": max_new_tokens, "chat": chat}
            _print_json(plan) if as_json else typer.echo(", ".join(f"{k} {v}" for k, v in plan.items()))
            return
        completion = target.generate([asked], sampling)[0]
    if completion.finish_reason == "error":
        raise IntarsiaError(f"{model} gave no answer: {completion.error}")
    if as_json:
        _print_json({"model": model, **completion.model_dump(mode="json")})
    else:
        typer.echo(completion.text.strip())


@app.command(epilog="Example: intarsia train recipes/sft/smollm2-sft.yaml training.steps=20 --out runs/sft")
def train(
    recipe: Annotated[Path, typer.Argument(help="A YAML recipe.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.")] = None,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    print_config: Annotated[bool, typer.Option("--print-config", help="Print the full recipe, and stop.")] = False,
    dry_run: DryRun = False,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Master seed; the recipe's by default.")] = None,
    as_json: Json = False,
) -> None:
    """Train by a recipe; `accelerate launch -m intarsia train ...` runs the same recipe on many devices."""
    from intarsia.core.training import train_command
    from intarsia.rooms import recipe_kinds

    changes = list(overrides or []) + ([f"seed={seed}"] if seed is not None else [])
    report = train_command(
        recipe,
        changes,
        out=out,
        resume=resume,
        print_config=print_config,
        dry_run=dry_run,
        kinds=recipe_kinds(),
        console=_console(as_json),
    )
    if as_json and report is not None:
        _print_json(report)


@app.command(epilog="Example: intarsia reproduce robustness --scale cpu")
def reproduce(
    room: Annotated[str, typer.Argument(help="A room; `intarsia rooms` lists them.")],
    scale: Annotated[str, typer.Option("--scale", help="cpu, full or gpu.")] = "cpu",
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="How many; the study's own by default.")] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder of the results.")] = Path("results"),
    work: Annotated[Path | None, typer.Option("--work", help="Folder of the journals.")] = None,
    seed: Seed = 0,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Measure a paper's claims here, with an honest verdict for each."""
    from intarsia.audit.command import reproduce_command

    raise typer.Exit(reproduce_command(room, scale, seeds, seed, out, work, dry_run, as_json))


@app.command(epilog="Example: intarsia rooms --json")
def rooms(as_json: Json = False) -> None:
    """List the rooms of the workshop and their state."""
    from intarsia.rooms import ROOMS

    if as_json:
        _print_json(
            [{"name": r.name, "wing": r.wing, "state": r.state, "summary": r.summary, "paper": r.paper} for r in ROOMS]
        )
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("room", "wing", "state", "what it does"):
        table.add_column(column, overflow="fold")
    for room in ROOMS:
        table.add_row(room.name, room.wing, room.state, room.summary)
    _console(False).print(table)


@app.command(epilog="Example: intarsia doctor")
def doctor(as_json: Json = False) -> None:
    """Check this machine: what is there, what is missing, and what that costs."""
    from rich.markup import escape

    from intarsia.core.doctor import doctor as examine

    checks = examine()
    if as_json:
        _print_json([check._asdict() if hasattr(check, "_asdict") else vars(check) for check in checks])
        return
    console = _console(False)
    for check in checks:
        mark = {True: "[green]ok[/]     ", False: "[red]missing[/]", None: "[yellow]note[/]   "}[check.ok]
        console.print(f"{mark} {escape(check.name)}: {escape(check.detail)}", highlight=False)
        if check.ok is not True and check.fix:
            console.print(f"        {check.fix}", style="dim", highlight=False, markup=False)


models_app = typer.Typer(no_args_is_help=True, help="Models by name: list, fetch, and where they are.")
app.add_typer(models_app, name="models")


@models_app.command("list", epilog="Example: intarsia models list")
def models_list(as_json: Json = False) -> None:
    """List the models that need no hub."""
    from intarsia.core.catalog import list_models

    cards = list_models()
    if as_json:
        _print_json([card._asdict() if hasattr(card, "_asdict") else vars(card) for card in cards])
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("name", "parameters", "licence", "here", "what"):
        table.add_column(column, overflow="fold")
    for card in cards:
        table.add_row(card.name, card.parameters, card.licence, "yes" if card.cached else "no", card.description)
    _console(False).print(table)


@models_app.command("fetch", epilog="Example: intarsia models fetch gemma-3-270m --accept-license")
def models_fetch(name: str, accept_license: AcceptLicense = False, as_json: Json = False) -> None:
    """Bring a model into the cache."""
    from intarsia.core.catalog import fetch

    console = _console(as_json)
    resolved = fetch(name, accept_license=accept_license, progress=lambda line: console.print(line, highlight=False))
    _print_json(resolved.provenance()) if as_json else typer.echo(str(resolved.path))


@models_app.command("path", epilog="Example: intarsia models path smollm2-135m")
def models_path(name: str, as_json: Json = False) -> None:
    """Print the folder of a model that is in the cache."""
    from intarsia.core.catalog import path

    found = path(name)
    _print_json({"name": name, "path": str(found)}) if as_json else typer.echo(str(found))


def _add_rooms() -> None:
    """Give each ready room its command group; the room is imported only when one of its commands runs."""
    from intarsia.rooms import ROOMS

    known = {command.name for command in app.registered_commands}
    for room in ROOMS:
        if room.state == "ready" and room.commands and room.name not in known:
            app.command(
                room.name,
                help=room.summary,
                add_help_option=False,
                context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
                rich_help_panel="Rooms",
            )(_room_command(room.name, room.commands))


def _room_command(name: str, dotted: str) -> Any:
    def run(context: typer.Context) -> None:
        from importlib import import_module

        module, _, attribute = dotted.partition(":")
        command = typer.main.get_command(getattr(import_module(module), attribute))
        code = command.main(args=list(context.args), prog_name=f"intarsia {name}", standalone_mode=False)
        raise typer.Exit(code if isinstance(code, int) else 0)

    return run


def _local_options(model: str, dtype: str, device: str, accept_license: bool) -> dict[str, Any]:
    if model.startswith(("http://", "https://", "inspect:")):
        return {}
    return {"dtype": dtype, "device": device, "accept_license": accept_license}


def _console(quiet: bool) -> Console:
    from rich.console import Console

    return Console(stderr=quiet, quiet=quiet)


def _print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, default=str, ensure_ascii=False))


def _usage(error: Any) -> str:
    """What is wrong with a command line, in one line."""
    what = " ".join(error.format_message().split()).rstrip(".") + "."
    where = getattr(error.ctx, "command_path", "") or "intarsia"
    return f"Error: {what} Try: {where} --help"


def main() -> None:
    """Entry point: errors that a user can mend end in one line and exit code 2."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        _add_rooms()
        # Out of its standalone mode typer leaves errors and exit codes to us; a Ctrl-C it turns into a code.
        code = app(args=arguments, prog_name="intarsia", standalone_mode=False)
        if code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else 0)
    except IntarsiaError as error:
        if debug:
            raise
        typer.echo(f"Error: {error.message}" + (f" {error.hint}" if error.hint else ""), err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        if debug:
            raise
        typer.echo("Stopped.", err=True)
        sys.exit(EXIT_INTERRUPTED)
    except OSError as error:
        if debug or error.errno != errno.ENOSPC:
            raise
        typer.echo("Error: The output cannot be written: the disk is full. Free some space and run again.", err=True)
        sys.exit(2)
    except Exception as error:
        # Typer's own copy of click has no public name for the errors of a command line.
        if debug or not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.exit(2)
        typer.echo(_usage(error), err=True)
        sys.exit(2)

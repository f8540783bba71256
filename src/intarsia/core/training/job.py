"""The glue between recipes and transformers, TRL, PEFT and accelerate, shared by every room that trains.

A kind of recipe says what to train (`Job`: model, tokenizer, data, and how to make its trainer); `run_job` does the
rest: the run folder, going on after a kill to the identical next step, the log, the progress, a stop when the loss is
no number, and the saved model with its card. Under `accelerate launch` the first process alone prints and writes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import platform
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import JsonValue

from intarsia.core.errors import BackendError, ConfigError, IntarsiaError, ModelError
from intarsia.core.recipes import Progress, Recipe, TrainRecipe, load_recipe
from intarsia.core.training.arguments import local_rank, lora_config, mixed_precision, process_count, process_rank
from intarsia.core.training.memory import count_parameters, memory_estimate
from intarsia.core.training.report import TrainReport, summarize
from intarsia.core.training.run_folder import PICKLES, RunFolder, disk_error, read_json, write_json, write_text

if TYPE_CHECKING:
    from rich.console import Console
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

    from intarsia.core.training.watch import Watch

LIBRARIES = ("intarsia", "torch", "transformers", "trl", "peft", "accelerate", "datasets", "safetensors")
EXTRA = "pip install 'intarsia[train]'"


class Loaded(NamedTuple):
    """A model to be trained, with what is known of it: provenance, licence, and caveats of its weights."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    provenance: dict[str, JsonValue]
    licence: str
    notes: tuple[str, ...]


@dataclasses.dataclass
class Job:
    """What a kind of recipe trains.

    Attributes:
        loaded: Model and tokenizer.
        trainer: Makes the trainer, given the folder of its checkpoints.
        data: Provenance of the data; `sha256` among it.
        rows: Rows to learn from.
        held_out: Rows to evaluate on.
        longest: Tokens of the longest row.
        tokens_per_row: On average.
        notes: What the user should know.
    """

    loaded: Loaded
    trainer: Callable[[Path], Trainer]
    data: dict[str, JsonValue]
    rows: int
    held_out: int
    longest: int
    tokens_per_row: float
    notes: list[str] = dataclasses.field(default_factory=list)


def need_extra() -> None:
    """Check that TRL and PEFT are there.

    Raises:
        ConfigError: They are not; says what to install.
    """
    from importlib.util import find_spec

    missing = [name for name in ("trl", "peft") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"Training needs {' and '.join(missing)}, not installed here.", f"Run: {EXTRA}")


def load_for_training(recipe: TrainRecipe, *, weights: bool = True) -> Loaded:
    """The recipe's model and tokenizer, on the CPU: the trainer or the launcher puts them where they belong.

    Args:
        recipe: Names the model and how to hold it.
        weights: False for the model's shape alone, without memory for its weights.

    Raises:
        ConfigError: The model cannot be trained in the way that the recipe says.
        ModelError: There is no such model, or it does not fit.
        BackendError: It cannot be fetched.
    """
    from intarsia.core.catalog import load_model, resolve

    resolved = resolve(recipe.model, accept_license=recipe.accept_license)
    quantized = bool(resolved.quantized_from) and resolved.source in ("hub", "folder")
    if quantized and recipe.lora is None:
        raise ConfigError(
            f"{recipe.model} is quantized ({resolved.quantized_from}); its weights cannot be trained.",
            "Add a `lora:` section to the recipe, or take the unquantized model.",
        )
    if resolved.adapter is not None and recipe.lora is not None:
        raise ConfigError(
            f"New adapters on top of {recipe.model} could not be loaded again by a name.",
            "Train without `lora:` (the adapter is merged and all weights are trained), or start from the base.",
        )
    dtype = recipe.dtype
    if dtype == "auto":
        dtype = "bfloat16" if recipe.lora is not None and mixed_precision(recipe) else "float32"
    if not weights:
        return Loaded(*_shape(resolved.path, dtype), resolved.provenance(), resolved.licence, resolved.notes)
    # Packed weights live where their backend runs; all others are moved by the trainer.
    device = f"cuda:{local_rank()}" if quantized else "cpu"
    loaded = load_model(resolved, dtype=dtype, device=device, accept_license=recipe.accept_license)
    if recipe.lora is None:
        loaded.model.requires_grad_(True)
    return Loaded(loaded.model, loaded.tokenizer, resolved.provenance(), resolved.licence, loaded.notes)


def _shape(folder: Path, dtype: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model without memory for its weights, and the real tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype), trust_remote_code=False)
    return model, AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)


def check_model(recipe: TrainRecipe, model: PreTrainedModel) -> None:
    """Check that the model has as many positions as the longest row may take, and the modules that adapters go to.

    Raises:
        ConfigError: It has not.
    """
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if isinstance(positions, int) and 0 < positions < recipe.training.max_length:
        raise ConfigError(
            f"training.max_length is {recipe.training.max_length}, but {recipe.model} has {positions} positions.",
            f"Set training.max_length={positions} or less.",
        )
    if recipe.lora is None or isinstance(recipe.lora.target_modules, str):
        return
    last_names = {name.rpartition(".")[2] for name, module in model.named_modules() if hasattr(module, "weight")}
    names = {name for name, _ in model.named_modules()}
    for wanted in recipe.lora.target_modules:
        if not any(name == wanted or name.endswith(f".{wanted}") for name in names):
            near = get_close_matches(wanted, last_names, n=1)
            guess = f" Did you mean {near[0]}?" if near else ""
            raise ConfigError(
                f"{recipe.model} has no module named {wanted!r} (lora.target_modules).{guess}",
                f"It has: {', '.join(sorted(name for name in last_names if not name.isdigit()))}.",
            )


def run_job(
    recipe: TrainRecipe,
    prepare: Callable[[bool], Job],
    *,
    out: Path | None = None,
    resume: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> TrainReport:
    """Train: from the start, or on from the last whole checkpoint of the same run.

    Args:
        recipe: What to do.
        prepare: Makes the job; called with whether the weights are wanted.
        out: Run folder; the recipe's own, or `runs/<kind>-<digest>` when omitted.
        resume: Insist on a run that is already there.
        dry_run: Say what would be done, and write nothing.
        progress: Called with (what, steps done, steps in all) by the first process.

    Returns:
        What was done. Every process gets a report, and the first one's is complete.

    Raises:
        ConfigError: The recipe, the folder or the environment is not fit for it.
        DataError: The data are not.
        ModelError: The model is not, the loss became NaN, or memory ran out.
        BackendError: The disk refuses.
    """
    need_extra()
    folder_path = out or Path(recipe.out or f"runs/{recipe.kind}-{recipe.digest()}")
    with _memory_errors(recipe), quiet_libraries():
        if dry_run:
            return _plan(recipe, prepare(False), folder_path)
        _check_launch()
        with contextlib.ExitStack() as stack:
            main = process_rank() == 0
            if resume and not (folder_path / "recipe.yaml").exists():
                raise ConfigError(f"There is no run in {folder_path} to go on with.", "Leave out --resume.")
            folder = stack.enter_context(RunFolder(folder_path, recipe)) if main else None
            if (folder_path / "report.json").exists():
                done = TrainReport.model_validate(read_json(folder_path / "report.json"))
                return done.model_copy(update={"status": "already finished"})
            job = prepare(True)
            with _disk_errors(folder_path):
                return _train(recipe, job, folder_path, folder, progress)


def _check_launch() -> None:
    """Refuse what TRL refuses later and with more words: several GPUs seen by one process."""
    import torch

    if process_count() == 1 and torch.cuda.device_count() > 1:
        raise ConfigError(
            f"{torch.cuda.device_count()} GPUs are visible to one process.",
            "Start it with `accelerate launch -m intarsia train ...`, or set CUDA_VISIBLE_DEVICES=0.",
        )


def _train(
    recipe: TrainRecipe, job: Job, path: Path, folder: RunFolder | None, progress: Progress | None
) -> TrainReport:
    from accelerate.utils import broadcast_object_list

    from intarsia.core.training.watch import Watch

    trainer = job.trainer(path / "checkpoints")
    start: list[Any] = [None, []]
    if folder is not None:
        notes = folder.begin(_provenance(recipe, job))
        checkpoint = folder.last_checkpoint()
        if checkpoint and _is_last(checkpoint) and (trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled):
            # Sharded weights are loaded on the way into training only: the last stretch is trained again.
            checkpoint = folder.last_checkpoint(before=checkpoint)
        start = [str(checkpoint) if checkpoint else None, notes]
    broadcast_object_list(start)
    checkpoint_path, notes = start
    resumed = int(Path(checkpoint_path).name.rpartition("-")[2]) if checkpoint_path else 0
    watch = Watch(recipe, folder, progress, resumed)
    _attach(trainer, watch)
    if checkpoint_path and _is_last(Path(checkpoint_path)):
        _restore(trainer, Path(checkpoint_path))
    else:
        trainer.train(resume_from_checkpoint=checkpoint_path)
    if job.held_out and watch.eval_step != trainer.state.global_step:
        trainer.evaluate()
    report = _report(recipe, job, path, trainer, watch, resumed, notes)
    _export(recipe, job, path, trainer, folder, report)
    if folder is not None:
        if not recipe.training.keep_when_done:
            folder.drop_checkpoints()
        write_json(folder.report_path, report.model_dump(mode="json"))
    return report


def _is_last(checkpoint: Path) -> bool:
    """Whether the checkpoint was made after the last step of the run."""
    state = read_json(checkpoint / "trainer_state.json")
    return int(state["global_step"]) >= int(state["max_steps"])


def _restore(trainer: Trainer, checkpoint: Path) -> None:
    """Take up the run after its last step. `train` would begin with a step, and so train one too many."""
    from transformers import TrainerState

    trainer._load_from_checkpoint(str(checkpoint))
    trainer.state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))


def _attach(trainer: Trainer, watch: Watch) -> None:
    """Put our callback in the place of those that print, and keep trainers from writing cards of their own."""
    from transformers import PrinterCallback, ProgressCallback

    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(watch)
    trainer.create_model_card = lambda *args, **kwargs: None  # type: ignore[method-assign]


def _report(
    recipe: TrainRecipe, job: Job, path: Path, trainer: Trainer, watch: Watch, resumed: int, notes: Sequence[str]
) -> TrainReport:
    import torch

    from intarsia.core.execute import peak_rss_bytes

    steps = trainer.state.global_step
    losses = [entry["loss"] for entry in watch.entries if "loss" in entry]
    evals = [entry["eval_loss"] for entry in watch.entries if "eval_loss" in entry]
    total, trainable = count_parameters(trainer.accelerator.unwrap_model(trainer.model))
    return TrainReport(
        kind=recipe.kind,
        status="finished",
        model=recipe.model,
        out=str(path),
        steps=steps,
        resumed_from=resumed,
        processes=process_count(),
        parameters=total,
        trainable=trainable,
        rows=job.rows,
        held_out=job.held_out,
        tokens_per_step=round(watch.tokens / max(1, steps - resumed), 1),
        first_loss=losses[0] if losses else None,
        last_loss=losses[-1] if losses else None,
        eval_loss=evals[-1] if evals else None,
        tokens=watch.tokens,
        seconds=round(watch.seconds, 3),
        tokens_per_second=round(watch.tokens / watch.seconds, 1) if watch.seconds else 0.0,
        peak_rss_bytes=peak_rss_bytes(),
        peak_gpu_bytes=torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0,
        notes=(*job.notes, *notes),
    )


def _export(
    recipe: TrainRecipe, job: Job, path: Path, trainer: Trainer, folder: RunFolder | None, report: TrainReport
) -> None:
    """Save the trained model next to where it will be, and move it there when it is whole."""
    partial, final = path / ".model.partial", path / "model"
    if folder is not None:
        shutil.rmtree(partial, ignore_errors=True)
    if trainer.is_fsdp_enabled:
        trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
    # Every process takes part: sharded weights are gathered on the way.
    trainer.save_model(str(partial))
    if folder is None:
        return
    if not any(partial.glob("*.safetensors")):
        raise BackendError(
            f"The trained weights could not be gathered into {final}; the checkpoints are kept.",
            "With DeepSpeed ZeRO-3, set stage3_gather_16bit_weights_on_model_save.",
        )
    for name in PICKLES:
        (partial / name).unlink(missing_ok=True)
    adapter = partial / "adapter_config.json"
    if adapter.exists():
        # PEFT notes the folder that the base was loaded from; the name that the user gave holds on other machines too.
        write_json(adapter, read_json(adapter) | {"base_model_name_or_path": recipe.model})
    from intarsia.core.training.card import model_card

    write_text(partial / "README.md", model_card(recipe, report, _provenance(recipe, job), job.loaded.licence))
    if final.exists():
        shutil.rmtree(final)
    partial.replace(final)


def _provenance(recipe: TrainRecipe, job: Job) -> dict[str, Any]:
    """What is trained on what; `must_match` holds what an identical continuation hangs on."""
    return {
        "format": 1,
        "kind": recipe.kind,
        "model": job.loaded.provenance,
        "data": job.data,
        "seed": recipe.seed,
        "versions": library_versions(),
        "must_match": {
            "data.sha256": job.data.get("sha256"),
            "model.sha256": job.loaded.provenance.get("sha256"),
            "processes": process_count(),
        },
    }


def library_versions() -> dict[str, str]:
    """Versions of what training rests on."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _plan(recipe: TrainRecipe, job: Job, path: Path) -> TrainReport:
    """What a run would do, from the shape of the model and the encoded data."""
    training = recipe.training
    config = lora_config(recipe)
    model: Any = job.loaded.model
    if config is not None:
        from peft import get_peft_model

        model = get_peft_model(model, config)
    total, trainable = count_parameters(model)
    rows = math.ceil(job.rows * job.tokens_per_row / training.max_length) if training.packing else job.rows
    batches = math.ceil(rows / (training.batch_size * process_count()))
    updates = math.ceil(batches / training.gradient_accumulation)
    steps = training.steps or math.ceil((training.epochs or 1.0) * updates)
    return TrainReport(
        kind=recipe.kind,
        status="planned",
        model=recipe.model,
        out=str(path),
        steps=steps,
        processes=process_count(),
        parameters=total,
        trainable=trainable,
        rows=job.rows,
        held_out=job.held_out,
        tokens_per_step=round(job.rows * job.tokens_per_row / updates, 1),
        memory_bytes=memory_estimate(model, recipe, training.max_length if training.packing else job.longest),
        notes=tuple(job.notes),
    )


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Keep the progress bars of datasets and transformers off, and their chatter below errors."""
    import datasets
    import transformers

    bars = datasets.are_progress_bars_disabled()
    level = transformers.logging.get_verbosity()
    datasets.disable_progress_bars()
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            # They tell the authors of trainers what to rename; a user can do nothing about them.
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        transformers.logging.set_verbosity(level)
        if not bars:
            datasets.enable_progress_bars()


@contextlib.contextmanager
def _memory_errors(recipe: TrainRecipe) -> Iterator[None]:
    """Give a lack of memory as one line."""
    import torch

    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise _no_memory(recipe) from error
    except RuntimeError as error:
        if "can't allocate memory" in str(error) or "out of memory" in str(error):
            raise _no_memory(recipe) from error
        raise


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Give a refusal of the disk as one line."""
    from safetensors import SafetensorError

    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise disk_error(path, error) from error
    except (SafetensorError, RuntimeError) as error:
        # What safetensors and torch.save raise when a write fails.
        if not any(words in str(error) for words in ("I/O error", "PytorchStreamWriter", "inline_container")):
            raise
        raise BackendError(f"Cannot write into {path}: {error}.", "Free some space; the run can go on.") from error


def _no_memory(recipe: TrainRecipe) -> ModelError:
    training = recipe.training
    ways = [f"training.batch_size (it is {training.batch_size})", f"training.max_length (it is {training.max_length})"]
    more = "" if training.gradient_checkpointing else ", set training.gradient_checkpointing=true"
    return ModelError("Memory ran out.", f"Lower {' or '.join(ways)}{more}, or train adapters (lora).")


def train_command(
    path: str | Path,
    overrides: Sequence[str] = (),
    *,
    out: Path | None = None,
    resume: bool = False,
    print_config: bool = False,
    dry_run: bool = False,
    kinds: Mapping[str, str | type[Recipe]] | None = None,
    console: Console | None = None,
) -> TrainReport | None:
    """What `intarsia train` does.

    Args:
        path: The recipe.
        overrides: `key.sub=value`.
        out: Run folder; the recipe's own, or `runs/<name of the file>` when omitted.
        resume: Insist on going on with a run.
        print_config: Write the fully resolved recipe to standard output and stop.
        dry_run: Say what would be done and stop.
        kinds: Kinds of recipe beside the hall's own.
        console: Where progress and summary are printed; None prints neither (for `--json`).

    Returns:
        The report; None after `print_config`, and in every process but the first.

    Raises:
        IntarsiaError: As `load_recipe` and the recipe's `run` do. In every process but the first, errors that all
            processes meet alike end in `SystemExit`, so that they are printed once.
    """
    main = process_rank() == 0
    try:
        recipe = load_recipe(path, overrides, kinds)
        if print_config:
            if main:
                sys.stdout.write(recipe.to_yaml())
            return None
        folder = out or Path(recipe.out or f"runs/{Path(path).stem}")
        with _bar(console if main else None) as progress:
            report = recipe.run(folder, resume, dry_run, progress)
    except KeyboardInterrupt:
        if main and console is not None and not dry_run:
            console.print("Interrupted. The same command goes on from the last checkpoint.")
        raise
    except IntarsiaError as error:
        if main or isinstance(error, BackendError):
            raise
        raise SystemExit(error.exit_code) from None
    if not main:
        return None
    if console is not None:
        summarize(report, console)
    return report


@contextlib.contextmanager
def _bar(console: Console | None) -> Iterator[Progress | None]:
    """A progress bar with the time left, where there is a terminal to draw it on."""
    if console is None or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("getting ready", total=None)

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield progress

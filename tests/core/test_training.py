"""Training by a recipe: identical continuation, guarded folders, honest stops, and a model that loads again."""

from __future__ import annotations

import errno
import gc
import io
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from intarsia.core.errors import BackendError, ConfigError, DataError, ModelError
from intarsia.core.recipes import load_recipe
from intarsia.core.sampling import Sampling
from intarsia.core.target import Target
from intarsia.core.training import TrainReport, train_command
from intarsia.core.training.run_folder import SEAL, RunFolder, is_whole
from intarsia.core.training.sft import SFTRecipe

ROWS = [{"prompt": f"What is {a} + {b}?", "completion": f"{a + b}"} for a in range(6) for b in range(4)]


class Stopped(BaseException):
    """Stands for a kill: nothing in the package may catch it."""


@pytest.fixture(scope="module", autouse=True)
def _light_runs() -> Iterator[None]:
    """Small matrices want one thread; and the trainers' collections skip what is imported and set aside."""
    import torch
    import trl  # noqa: F401

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def base(tiny_model_folder: Path) -> Path:
    return tiny_model_folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def make(base: Path, rows: Path) -> Any:
    """A recipe of six small steps, changed by dotted keys."""

    def make(**changes: Any) -> SFTRecipe:
        settings: dict[str, Any] = {
            "model": str(base),
            "data": {"source": str(rows)},
            "training": {"steps": 6, "batch_size": 2, "max_length": 48, "learning_rate": 1e-2, "save_every": 2},
        }
        for key, value in changes.items():
            section, _, name = key.partition("__")
            if name:
                settings.setdefault(section, {})[name] = value
            else:
                settings[section] = value
        return SFTRecipe.model_validate(settings)

    return make


def stop_at(step: int) -> Any:
    def progress(what: str, done: int, total: int) -> None:
        if done == step:
            raise Stopped

    return progress


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def weights(folder: Path) -> bytes:
    (file,) = (folder / "model").glob("*.safetensors")
    return file.read_bytes()


VARIANTS: dict[str, dict[str, Any]] = {
    "all weights": {},
    "adapters with dropout": {"lora": {"r": 4, "dropout": 0.3}},
    "accumulation, epochs, evaluation": {
        "training__steps": None,
        "training__epochs": 3.0,
        "training__batch_size": 4,
        "training__gradient_accumulation": 3,
        "training__eval_every": 3,
        "data__eval_share": 0.2,
    },
    "noise, another optimizer, recomputation": {
        "trainer_args": {"neftune_noise_alpha": 5.0},
        "training__optimizer": "rmsprop",
        "training__gradient_checkpointing": True,
        "training__packing": True,
        "training__batch_size": 1,
    },
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "noise" in name else ()) for name in VARIANTS]
)
def test_a_stopped_run_goes_on_to_the_identical_next_step(make: Any, tmp_path: Path, name: str) -> None:
    recipe = make(**VARIANTS[name])
    straight = recipe.run(tmp_path / "straight")
    with pytest.raises(Stopped):
        recipe.run(tmp_path / "stopped", progress=stop_at(5))
    assert len([entry for entry in log(tmp_path / "stopped") if "loss" in entry]) == 5
    resumed = recipe.run(tmp_path / "stopped")
    assert (straight.resumed_from, resumed.resumed_from) == (0, 4)
    assert resumed.steps == straight.steps >= 6
    assert log(tmp_path / "stopped") == log(tmp_path / "straight")
    assert weights(tmp_path / "stopped") == weights(tmp_path / "straight")
    assert resumed.eval_loss == straight.eval_loss
    assert (straight.eval_loss is not None) == ("data__eval_share" in VARIANTS[name])


KILLED = """
import os, signal, sys
from pathlib import Path
from intarsia.core.recipes import load_recipe
from intarsia.core.sampling import Sampling
from intarsia.core.target import Target

def progress(what, done, total):
    if done == 4 and what != "training":
        os.kill(os.getpid(), signal.SIGKILL)

load_recipe(sys.argv[1]).run(Path(sys.argv[2]), progress=progress)
"""


def test_a_killed_process_goes_on_to_the_identical_next_step(make: Any, tmp_path: Path) -> None:
    recipe = make(training__save_every=3)
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe.to_yaml(), encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(tmp_path / "killed")], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert not (tmp_path / "killed" / "model").exists()
    report = train_command(path, out=tmp_path / "killed", resume=True)
    assert report is not None
    assert report.resumed_from == 3
    recipe.run(tmp_path / "straight")
    assert log(tmp_path / "killed") == log(tmp_path / "straight")
    assert weights(tmp_path / "killed") == weights(tmp_path / "straight")


@pytest.mark.parametrize("evaluate", [False, True])
def test_a_run_that_was_killed_after_its_last_step_trains_no_further(make: Any, tmp_path: Path, evaluate: bool) -> None:
    changes = {"training__scheduler": "constant", "training__keep_when_done": True}
    recipe = make(**changes, **({"data__eval_share": 0.2} if evaluate else {}))
    first = recipe.run(tmp_path / "run")
    lines, learned = log(tmp_path / "run"), weights(tmp_path / "run")
    (tmp_path / "run" / "report.json").unlink()
    shutil.rmtree(tmp_path / "run" / "model")
    if evaluate:
        kept = [line for line in lines if "eval_loss" not in line]
        (tmp_path / "run" / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    again = recipe.run(tmp_path / "run")
    assert (again.steps, again.resumed_from) == (6, 6)
    assert weights(tmp_path / "run") == learned
    assert [line.get("loss") for line in log(tmp_path / "run")] == [line.get("loss") for line in lines]
    assert again.eval_loss == first.eval_loss


RUN = """
import sys
from pathlib import Path
from intarsia.core.recipes import load_recipe
from intarsia.core.sampling import Sampling
from intarsia.core.target import Target
load_recipe(sys.argv[1]).run(Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_kills_at_random_moments_change_nothing(make: Any, tmp_path: Path) -> None:
    recipe = make(training__steps=24, training__save_every=1)
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe.to_yaml(), encoding="utf-8")
    recipe.run(tmp_path / "straight")
    draw, kills, folder = random.Random(0), 0, tmp_path / "killed"
    for _ in range(30):
        begun = (folder / "log.jsonl").stat().st_mtime_ns if (folder / "log.jsonl").exists() else 0
        process = subprocess.Popen([sys.executable, "-c", RUN, str(path), str(folder)])
        while process.poll() is None:
            if (folder / "log.jsonl").exists() and (folder / "log.jsonl").stat().st_mtime_ns != begun:
                time.sleep(draw.uniform(0.02, 0.4))
                process.kill()
                kills += 1
                break
            time.sleep(0.002)
        if process.wait() == 0:
            break
    assert (folder / "report.json").exists()
    assert kills >= 3
    assert log(folder) == log(tmp_path / "straight")
    assert weights(folder) == weights(tmp_path / "straight")


@pytest.fixture(scope="module")
def stopped_once(make: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[SFTRecipe, Path]:
    recipe, folder = make(), tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(Stopped):
        recipe.run(folder, progress=stop_at(5))
    return recipe, folder


@pytest.fixture
def stopped(stopped_once: tuple[SFTRecipe, Path], tmp_path: Path) -> tuple[SFTRecipe, Path]:
    """A run that was stopped after its checkpoints at steps 2 and 4."""
    recipe, folder = stopped_once
    return recipe, Path(shutil.copytree(folder, tmp_path / "run"))


def damage_nothing(checkpoint: Path) -> None:
    pass


def damage_file_gone(checkpoint: Path) -> None:
    (checkpoint / "optimizer.pt").unlink()


def damage_file_cut(checkpoint: Path) -> None:
    file = checkpoint / "model.safetensors"
    os.truncate(file, file.stat().st_size // 2)


def damage_no_seal(checkpoint: Path) -> None:
    (checkpoint / SEAL).unlink()


def damage_seal_cut(checkpoint: Path) -> None:
    os.truncate(checkpoint / SEAL, 20)


DAMAGES = [damage_nothing, damage_file_gone, damage_file_cut, damage_no_seal, damage_seal_cut]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__.removeprefix("damage_"))
def test_a_checkpoint_that_is_not_whole_is_passed_over(stopped: Any, damage: Any) -> None:
    recipe, folder = stopped
    newest = folder / "checkpoints" / "checkpoint-4"
    damage(newest)
    with RunFolder(folder, recipe) as run:
        found = run.last_checkpoint()
    assert found is not None
    assert found.name == ("checkpoint-4" if damage is damage_nothing else "checkpoint-2")
    assert newest.exists() == (damage is damage_nothing)


def test_a_run_goes_on_from_before_a_damaged_checkpoint(stopped: Any) -> None:
    recipe, folder = stopped
    before = log(folder)
    damage_file_cut(folder / "checkpoints" / "checkpoint-4")
    assert recipe.run(folder).resumed_from == 2
    assert log(folder)[:5] == before
    assert [entry["step"] for entry in log(folder)] == [1, 2, 3, 4, 5, 6]


def test_with_no_whole_checkpoint_the_run_begins_anew(stopped: Any) -> None:
    recipe, folder = stopped
    for checkpoint in (folder / "checkpoints").iterdir():
        damage_no_seal(checkpoint)
    with RunFolder(folder, recipe) as run:
        assert run.last_checkpoint() is None
        assert run.rewind_log(0) == []
    assert log(folder) == []


def test_a_half_written_log_line_is_cut_off(stopped: Any) -> None:
    recipe, folder = stopped
    before = log(folder)
    with open(folder / "log.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 6, "lo')
    with RunFolder(folder, recipe) as run:
        assert run.rewind_log(6) == before
        assert run.rewind_log(4) == before[:4]
    assert log(folder) == before[:4]


def test_checkpoints_are_kept_as_told_and_hold_no_pickled_objects(make: Any, tmp_path: Path) -> None:
    make(training__keep_when_done=True, training__save_every=1, training__keep=3).run(tmp_path / "run")
    names = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["checkpoint-4", "checkpoint-5", "checkpoint-6"]
    assert not list((tmp_path / "run").rglob("training_args.bin"))
    make().run(tmp_path / "other")
    assert not (tmp_path / "other" / "checkpoints").exists()


def test_one_folder_is_for_one_process(stopped: Any) -> None:
    recipe, folder = stopped
    with RunFolder(folder, recipe), pytest.raises(ConfigError, match="Another process"):
        recipe.run(folder)
    RunFolder(folder, recipe).close()


def test_another_recipe_in_the_folder_is_refused_key_by_key(stopped: Any, make: Any) -> None:
    _, folder = stopped
    with pytest.raises(ConfigError) as caught:
        make(training__learning_rate=1e-3, lora={"r": 4}).run(folder)
    assert "training.learning_rate (0.01 there, 0.001 here)" in caught.value.message
    assert "lora.r" in caught.value.message
    assert make(training__save_every=5, training__keep=1).run(folder).resumed_from == 4  # these two are free


def test_changed_data_are_refused(stopped: Any, rows: Path) -> None:
    recipe, folder = stopped
    before = rows.read_bytes()
    try:
        rows.write_bytes(before.replace(b'"0"', b'"1"'))
        with pytest.raises(ConfigError, match=r"has changed: data\.sha256"):
            recipe.run(folder)
    finally:
        rows.write_bytes(before)


def test_another_number_of_processes_is_refused(stopped: Any) -> None:
    recipe, folder = stopped
    known = json.loads((folder / "provenance.json").read_text())
    known["must_match"]["processes"] = 8
    (folder / "provenance.json").write_text(json.dumps(known))
    with pytest.raises(ConfigError, match="processes"):
        recipe.run(folder)


def test_a_finished_run_is_left_as_it_is(make: Any, tmp_path: Path) -> None:
    recipe = make()
    first = recipe.run(tmp_path / "run")
    before = weights(tmp_path / "run")
    again = recipe.run(tmp_path / "run", resume=True)
    assert again.status == "already finished"
    assert again == first.model_copy(update={"status": "already finished"})
    assert weights(tmp_path / "run") == before


def test_folders_that_are_no_runs_are_refused(make: Any, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match="not empty"):
        make().run(foreign)
    assert [path.name for path in foreign.iterdir()] == ["thesis.txt"]
    with pytest.raises(ConfigError, match="is a file"):
        make().run(foreign / "thesis.txt")
    with pytest.raises(ConfigError, match="no run"):
        make().run(tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_good_checkpoint(make: Any, tmp_path: Path) -> None:
    recipe = make(training__learning_rate=1e37, training__max_grad_norm=0.0, training__save_every=1, training__warmup=2)
    with pytest.raises(ModelError) as caught:
        recipe.run(tmp_path / "run")
    step = len(log(tmp_path / "run")) + 1
    assert f"at step {step}" in caught.value.message
    assert f"checkpoint-{step - 1} is the last good one" in caught.value.message
    assert "learning_rate" in caught.value.hint
    assert is_whole(tmp_path / "run" / "checkpoints" / f"checkpoint-{step - 1}")
    assert not (tmp_path / "run" / "checkpoints" / f"checkpoint-{step}").exists()
    assert not (tmp_path / "run" / "model").exists()


def test_how_a_batch_is_cut_up_does_not_change_its_loss(make: Any, tmp_path: Path) -> None:
    changes = [
        {"training__batch_size": 4},
        {"training__batch_size": 2, "training__gradient_accumulation": 2},
        {"training__batch_size": 4, "training__packing": True, "training__max_length": 512},
        {"training__batch_size": 4, "training__gradient_checkpointing": True},
    ]
    rows = tmp_path / "four.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS[:4]), encoding="utf-8")
    losses = [
        make(data__source=str(rows), training__steps=1, **change).run(tmp_path / str(index)).first_loss
        for index, change in enumerate(changes)
    ]
    assert losses == pytest.approx([losses[0]] * 4, rel=1e-5)


def test_the_model_learns_and_loads_again_by_its_folder(make: Any, base: Path, tmp_path: Path) -> None:
    from intarsia.core.catalog import load_model

    report = make(training__steps=40, training__save_every=100, training__batch_size=8).run(tmp_path / "run")
    assert report.last_loss is not None
    assert report.first_loss is not None
    assert report.last_loss < report.first_loss / 3
    tuned = load_model(str(report.model_path), dtype="fp32", device="cpu")
    prompt = tuned.tokenizer.apply_chat_template(
        [{"role": "user", "content": ROWS[7]["prompt"]}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    answer = ROWS[7]["completion"]
    ids = tuned.tokenizer(answer, add_special_tokens=False)["input_ids"]

    def chance(model: Any) -> float:
        return model(**prompt).logits[0, -1].softmax(-1)[ids[0]].item()

    assert chance(tuned.model) > 2 * chance(load_model(str(base), dtype="fp32", device="cpu").model)


def test_adapters_load_again_on_top_of_their_base(make: Any, base: Path, tmp_path: Path) -> None:
    import torch

    from intarsia.core.catalog import load_model

    report = make(lora={"r": 4}).run(tmp_path / "run")
    assert 0 < report.trainable < report.parameters
    files = {path.name for path in report.model_path.iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "README.md", "tokenizer.json"} <= files
    assert not {name for name in files if name.endswith((".bin", ".pt"))}
    config = json.loads((report.model_path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    tuned = load_model(f"{base}+{report.model_path}", dtype="fp32", device="cpu")
    plain = load_model(str(base), dtype="fp32", device="cpu")
    ids = torch.tensor([[5, 6, 7, 8]])
    assert not torch.equal(tuned.model(ids).logits, plain.model(ids).logits)
    assert not [note for note in tuned.notes if "trained on" in note]


def test_adapters_on_adapters_and_too_long_rows_are_refused(make: Any, base: Path, tmp_path: Path) -> None:
    report = make(lora={"r": 2}).run(tmp_path / "run")
    on_top = {"model": f"{base}+{report.model_path}"}
    with pytest.raises(ConfigError, match="New adapters"):
        make(lora={"r": 2}, **on_top).run(tmp_path / "more")
    assert make(**on_top).run(tmp_path / "more").trainable == report.parameters - report.trainable
    with pytest.raises(ConfigError, match="512 positions"):
        make(training__max_length=513).run(tmp_path / "long")


def test_modules_that_the_model_lacks_are_named(make: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no module named 'q_porj'.*Did you mean q_proj\?"):
        make(lora={"target_modules": ["v_proj", "q_porj"]}).run(tmp_path / "run")
    report = make(lora={"target_modules": ["v_proj", "q_proj"]}).run(tmp_path / "run")
    assert report.trainable == 2 * 16 * ((64 + 64) + (64 + 32))


def test_the_card_and_the_provenance_say_what_was_done(make: Any, base: Path, tmp_path: Path) -> None:
    report = make(data__eval_share=0.1).run(tmp_path / "run")
    card = (report.model_path / "README.md").read_text(encoding="utf-8")
    provenance = json.loads((tmp_path / "run" / "provenance.json").read_text())
    assert provenance["data"]["sha256"] in card
    assert f"{report.last_loss:.4f}" in card
    assert f"base_model: {base}" in card
    assert provenance["versions"]["trl"].startswith("1.16")
    assert list(provenance["must_match"]["model.sha256"])
    assert load_recipe(tmp_path / "run" / "recipe.yaml") == make(data__eval_share=0.1)


def test_a_dry_run_counts_as_the_run_does_and_writes_nothing(make: Any, tmp_path: Path) -> None:
    changes = {"lora": {"r": 4}, "training__steps": None, "training__epochs": 2, "training__gradient_accumulation": 4}
    planned = make(**changes).run(tmp_path / "run", dry_run=True)
    assert planned.status == "planned"
    assert planned.memory_bytes > 0
    assert not list(tmp_path.iterdir())
    done = make(**changes).run(tmp_path / "run")
    for name in ("steps", "parameters", "trainable", "rows"):
        assert getattr(planned, name) == getattr(done, name), name
    assert planned.tokens_per_step == pytest.approx(done.tokens_per_step, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"neftune_noise_alhpa": 5}, ["SFTConfig has no argument", "Did you mean neftune_noise_alpha?"]),
        ({"learning_rate": 1}, ["set by training.learning_rate"]),
        ({"trust_remote_code": True}, ["may not be set"]),
        ({"push_to_hub": True}, ["may not be set"]),
        ({"adam_beta1": "x"}, ["trainer_args"]),
        ({"lr_scheduler_kwargs": 3}, ["trainer_args"]),
    ],
)
def test_trainer_arguments_are_checked(make: Any, tmp_path: Path, arguments: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        make(trainer_args=arguments).run(tmp_path / "run")
    for words in says:
        assert words in str(caught.value)


def test_an_unknown_optimizer_is_one_line(make: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"training\.optimizer.*adamw_torch"):
        make(training__optimizer="adamw_torh").run(tmp_path / "run")


def test_without_the_extra_one_line_names_it(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "trl" else real(name, *a))
    with pytest.raises(ConfigError, match=r"trl.*intarsia\[train\]"):
        make().run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_full_disk_is_one_line_and_the_run_can_go_on(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    real = torch.save
    saved = []

    def full(*args: Any, **kwargs: Any) -> None:
        saved.append(args)
        if len(saved) > 6:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*args, **kwargs)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(BackendError, match="No space left"):
        make().run(tmp_path / "run")
    monkeypatch.undo()
    assert make().run(tmp_path / "run").resumed_from == 2


def test_bad_data_leave_no_run_behind(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b"\x00\xff" * 50)
    recipe = make(data__source=str(path), training__steps=1)
    with pytest.raises(DataError):
        recipe.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    path.write_text('{"prompt": "p", "completion": "c"}\n')
    assert recipe.run(tmp_path / "run").status == "finished"


@pytest.fixture
def recipe_file(make: Any, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(make().to_yaml(), encoding="utf-8")
    return path


def test_the_command_prints_a_summary_and_no_bar_without_a_terminal(
    recipe_file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=100, force_terminal=False)
    report = train_command(recipe_file, ["training.steps=2"], out=tmp_path / "run", console=console)
    assert isinstance(report, TrainReport)
    assert "finished" in shown.getvalue()
    assert f"{report.last_loss:.4f}" in shown.getvalue()
    assert "\r" not in shown.getvalue()
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


@pytest.mark.parametrize("lora", [None, {"r": 4}], ids=["all weights", "adapters"])
def test_the_summary_ends_with_the_audit_of_what_was_trained(make: Any, base: Path, tmp_path: Path, lora: Any) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(make(lora=lora, training__steps=1).to_yaml(), encoding="utf-8")
    shown = io.StringIO()
    report = train_command(path, out=tmp_path / "run", console=Console(file=shown, width=60, force_terminal=False))
    assert report is not None
    command = shown.getvalue().splitlines()[-1]
    assert command == report.audit_command
    _, _, first, second = shlex.split(command)
    assert first == str(base)
    with Target.parse(second) as tuned:
        assert tuned.generate(["one"], Sampling(max_new_tokens=2))[0].finish_reason != "error"


def test_the_command_draws_a_bar_on_a_terminal(recipe_file: Path, tmp_path: Path) -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=120, force_terminal=True)
    train_command(recipe_file, ["training.steps=2"], out=tmp_path / "run", console=console)
    assert "2/2" in shown.getvalue()


def test_the_resolved_recipe_is_printed(recipe_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_command(recipe_file, ["seed=7"], print_config=True) is None
    printed = capsys.readouterr().out
    assert "seed: 7" in printed
    assert "max_grad_norm: 1.0" in printed


def test_other_processes_leave_the_shared_error_to_the_first(
    recipe_file: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit) as caught:
        train_command(recipe_file, ["sede=7"])
    assert caught.value.code == 2
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, {"r": 4}], ids=["all weights", "adapters"])
def test_two_processes_train_under_accelerate_and_go_on_identically(make: Any, tmp_path: Path, lora: Any) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(make(lora=lora).to_yaml(), encoding="utf-8")

    def launch(out: Path, code: str | None = None) -> subprocess.CompletedProcess[str]:
        what = ["-m", "intarsia", "train"] if code is None else [code]
        # On a machine without GPUs, --multi_gpu starts as many processes on the CPU.
        command = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
        command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [*command, "0", *what, str(path), *(["--out"] if code is None else []), str(out)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=240,
        )

    straight = launch(tmp_path / "straight")
    assert straight.returncode == 0, straight.stderr
    assert straight.stdout.count("finished") == 1
    assert "Warning" not in straight.stderr
    killer = tmp_path / "killed.py"
    killer.write_text(KILLED, encoding="utf-8")
    assert launch(tmp_path / "killed", str(killer)).returncode != 0
    assert not (tmp_path / "killed" / "report.json").exists()
    resumed = launch(tmp_path / "killed")
    assert resumed.returncode == 0, resumed.stderr
    report = json.loads((tmp_path / "killed" / "report.json").read_text())
    assert (report["processes"], report["resumed_from"]) == (2, 2)
    assert log(tmp_path / "killed") == log(tmp_path / "straight")
    assert weights(tmp_path / "killed") == weights(tmp_path / "straight")

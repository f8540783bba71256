"""What the study tells a user to type can be typed."""

from __future__ import annotations

import shlex

import pytest
from typer.testing import CliRunner

from intarsia.audit.capability import remedies
from intarsia.cli import app
from intarsia.core.data import GENERATED, KNOWN
from intarsia.core.recipes import load_recipe
from intarsia.core.study import Remedy
from intarsia.core.training.sft import SFTRecipe

SETS = (*GENERATED, *KNOWN, "reasoning-gym:gcd,lcm", "mawps/addsub", "own")
MODELS = ("smollm2-135m", "gemma-3-270m", "org/name@main", "./a folder/tuned")


def commands(remedy: Remedy) -> list[list[str]]:
    return [shlex.split(part) for part in remedy.command.split("&&")]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", SETS)
def test_a_training_remedy_is_a_recipe_that_loads_and_an_audit_of_what_it_writes(name: str, model: str) -> None:
    train, audit = commands(remedies.train(name, model, data="mine.jsonl" if name == "own" else ""))
    assert train[:3] == ["intarsia", "train", remedies.RECIPE]
    overrides, (flag, folder) = train[3:-2], train[-2:]
    assert flag == "--out"
    recipe = load_recipe(train[2], overrides)
    assert isinstance(recipe, SFTRecipe)
    assert recipe.model == model
    assert recipe.accept_license == (model == "gemma-3-270m")
    small = model in ("smollm2-135m", "gemma-3-270m")
    assert (recipe.lora is None) == small
    tuned = f"{folder}/model" if small else f"{model}+{folder}/model"
    assert audit[:4] == ["intarsia", "audit", model, tuned]
    assert ("--accept-license" in audit) == recipe.accept_license
    assert ("mine.jsonl" in audit) == (name == "own")


def test_no_two_sets_train_in_one_folder() -> None:
    folders = [commands(remedies.train(name, "smollm2-135m"))[0][-1] for name in SETS]
    assert len(set(folders)) == len(folders)


@pytest.mark.parametrize("name", [*KNOWN, "mawps/addsub", "own"])
def test_nobody_is_told_to_train_on_a_test_set(name: str) -> None:
    source = next(word for word in commands(remedies.train(name, "m"))[0] if word.startswith("data.source="))
    assert source in ("data.source=gsm8k", "data.source=train.jsonl")


def test_a_server_is_not_trained() -> None:
    (only,) = commands(remedies.train("stories", "http://localhost:8000/v1#m"))
    assert only[:3] == ["intarsia", "audit", "http://localhost:8000/v1#m"]


@pytest.mark.parametrize("budget", ["smoke", "quick", "standard", "full"])
def test_more_questions_means_a_larger_budget_while_there_is_one(budget: str) -> None:
    (only,) = commands(remedies.ask_more("m", budget))
    assert only[only.index("--budget") + 1] == remedies.LARGER.get(budget, "full")
    assert ("--data" in only) == (budget == "full")


@pytest.mark.parametrize(
    "remedy",
    [
        remedies.ask_more("smollm2-135m", "smoke"),
        remedies.ask_harder("smollm2-135m"),
        remedies.show_form("smollm2-135m", "mine.jsonl"),
        remedies.give_room("smollm2-135m", 64),
        remedies.soften("gemma-3-270m"),
        remedies.train("own", "http://localhost:8000/v1#m", data="mine.jsonl"),
    ],
    ids=lambda remedy: remedy.text,
)
def test_the_command_line_knows_every_option_that_a_remedy_prints(remedy: Remedy) -> None:
    shown = CliRunner().invoke(app, ["audit", "--help"], env={"COLUMNS": "200"}).output
    for command in commands(remedy):
        assert command[:2] == ["intarsia", "audit"]
        assert all(word in shown for word in command if word.startswith("--"))

"""Recipes: what they hold, how they are overridden, and the one line that each mistake gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError
from intarsia.core.recipes import Recipe, flatten, load_recipe, read_yaml, shipped_recipes
from intarsia.core.training.sft import SFTRecipe

SHIPPED = sorted((Path(__file__).parents[2] / "recipes").rglob("*.yaml"))
MINIMAL = "version: 1\nkind: sft\nmodel: smollm2-135m\n"


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "recipe.yaml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def complaint(path: Path, *overrides: str, kinds: Any = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_recipe(path, overrides, kinds)
    assert "\n" not in caught.value.message
    return caught.value


def test_a_minimal_recipe_gets_defaults(write: Any) -> None:
    recipe = load_recipe(write(MINIMAL))
    assert isinstance(recipe, SFTRecipe)
    assert (recipe.training.epochs, recipe.training.steps) == (1.0, None)
    assert recipe.data.source == "stories"
    assert recipe.lora is None


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_shipped_recipes_are_valid_and_survive_being_written_out(path: Path, write: Any) -> None:
    from intarsia.rooms import recipe_kinds

    recipe = load_recipe(path, kinds=recipe_kinds())
    assert load_recipe(write(recipe.to_yaml()), kinds=recipe_kinds()) == recipe


def test_shipped_recipes_are_found_by_name_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sorted(shipped_recipes().values()) == SHIPPED
    name = "recipes/sft/smollm2-sft.yaml"
    assert load_recipe(name).model == "smollm2-135m"  # type: ignore[attr-defined]
    own = tmp_path / name
    own.parent.mkdir(parents=True)
    own.write_text(MINIMAL.replace("smollm2-135m", "mine"))
    assert load_recipe(name).model == "mine", "a file of the user's goes before the one that comes along"  # type: ignore[attr-defined]
    assert name in complaint(Path("recipes/sft/smollm2.yaml")).hint


def test_recipes_that_stand_in_the_package_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The layout of a wheel: no `src` above the package, the recipes inside it.
    import intarsia.core.recipes as module

    package = tmp_path / "site-packages" / "intarsia"
    (package / "recipes" / "sft").mkdir(parents=True)
    (package / "recipes" / "sft" / "one.yaml").write_text(MINIMAL)
    monkeypatch.setattr(module, "__file__", str(package / "core" / "recipes.py"))
    assert list(shipped_recipes()) == ["recipes/sft/one.yaml"]
    assert load_recipe("recipes/sft/one.yaml").kind == "sft"


def test_resolved_yaml_holds_every_default(write: Any) -> None:
    resolved = yaml.safe_load(load_recipe(write(MINIMAL)).to_yaml())
    assert set(resolved) == set(SFTRecipe.model_fields)
    assert resolved["training"]["max_grad_norm"] == 1.0


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("training.learning_rate=2e-5", "training.learning_rate", 2e-5),
        ("training.learning_rate=1E3", "training.learning_rate", 1000.0),
        ("training.steps=20", "training.steps", 20),
        ("lora.r=4", "lora.r", 4),
        ("lora.target_modules=[q_proj, v_proj]", "lora.target_modules", ["q_proj", "v_proj"]),
        ("data.map={prompt: q, completion: a}", "data.map.completion", "a"),
        ("data.map.prompt=question", "data.map.prompt", "question"),
        ("training.packing=true", "training.packing", True),
        ("data.system=Be brief: yes or no?", "data.system", None),
        ("data.system='Be brief: yes or no?'", "data.system", "Be brief: yes or no?"),
        ("out=a=b", "out", "a=b"),
    ],
)
def test_overrides_are_read_as_yaml(write: Any, override: str, key: str, value: Any) -> None:
    path = write(MINIMAL)
    if value is None:  # a colon makes it a mapping in YAML: the type error says so
        assert "data.system" in complaint(path, override).message
        return
    assert flatten(load_recipe(path, [override]).settings())[key] == value


def test_an_override_beats_the_file_and_null_takes_a_section_away(write: Any) -> None:
    path = write(MINIMAL + "lora: {r: 8}\ntraining: {epochs: 2}\n")
    recipe = load_recipe(path, ["lora=null", "training.epochs=null", "training.steps=7"])
    assert recipe.lora is None
    assert recipe.training.steps == 7
    assert recipe.training.epochs is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (MINIMAL + "trainig: {steps: 3}\n", ["Unknown key `trainig`", "line 4", "Did you mean training?"]),
        (
            MINIMAL + "training:\n  steps: 3\n  learning_rte: 1\n",
            ["`training.learning_rte`", "line 6", "Did you mean learning_rate?"],
        ),
        (MINIMAL + "learning_rate: 1e-4\n", ["Unknown key `learning_rate`", "Did you mean training.learning_rate?"]),
        (MINIMAL + "training: {steps: many}\n", ["`training.steps`", "an integer", "'many'", "line 4"]),
        (MINIMAL + "training: {steps: 0}\n", ["`training.steps`", "greater than or equal to 1", "not 0"]),
        (MINIMAL + "training: {learning_rate: .nan}\n", ["`training.learning_rate`", "finite"]),
        (MINIMAL + "training: {bf16: maybe}\n", ["`training.bf16`", "boolean", "'auto'"]),
        (MINIMAL + "training: 3\n", ["`training`", "not 3"]),
        (MINIMAL + "training: {steps: 3, epochs: 1}\n", ["`training`", "steps or epochs, not both"]),
        (MINIMAL + "training: {warmup: 1.5}\n", ["`training.warmup`", "whole number"]),
        (MINIMAL + "dtype: fp8\n", ["`dtype`", "'float32'"]),
        (MINIMAL + "seed: -1\n", ["`seed`"]),
        (MINIMAL + "data: {map: {question: q}}\n", ["data.map.question"]),
        ("version: 1\nkind: sft\n", ["`model` is missing"]),
        ("kind: sft\nmodel: x\n", ["does not say its version", "version: 1"]),
        ("version: 2\nkind: sft\n", ["has version 2", "reads version 1", "Update intarsia"]),
        ("version: one\nkind: sft\n", ["has version 'one'"]),
        ("version: true\nkind: sft\n", ["has version True"]),
        ("version: 1\nmodel: x\n", ["does not say its kind", "sft"]),
        ("version: 1\nkind: stf\n", ["called 'stf'", "line 2", "Did you mean sft?"]),
        ("version: 1\nkind: [sft]\n", ["no kind of recipe"]),
        (MINIMAL + "model: other\n", ["`model` is given twice", "line 4"]),
        ("version: 1\nkind: sft\nmodel: {a: [\n", ["not valid YAML", "line"]),
        ("just words", ["not a recipe"]),
        ("", ["not a recipe"]),
        ("- 1\n- 2\n", ["not a recipe"]),
        ("version: !!python/object/apply:os.system ['true']\n", ["not valid YAML"]),
        (b"\x00\xff\xfe\x01", ["not a text file"]),
        ("a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(8)
        ), ["too large"]),
        ("x: " + "y" * 1_100_000, ["larger than"]),
        ("x: " + "[" * 5000, ["YAML"]),
    ],
)  # fmt: skip
def test_each_mistake_in_a_file_gets_its_line(write: Any, text: str | bytes, says: list[str]) -> None:
    error = complaint(write(text))
    for words in says:
        assert words in str(error)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("training.stpes=3", ["Unknown key `training.stpes`", "on the command line", "Did you mean steps?"]),
        ("training.steps=x", ["`training.steps`", "on the command line"]),
        ("steps", ["not an override", "key=value"]),
        ("=3", ["not an override"]),
        ("training..steps=3", ["not an override"]),
        ("model.name=x", ["model is not a section"]),
        ("seed=[1", ["not valid YAML"]),
        ("version=3", ["has version 3", "on the command line"]),
    ],
)
def test_each_mistake_in_an_override_gets_its_line(write: Any, override: str, says: list[str]) -> None:
    error = complaint(write(MINIMAL), override)
    for words in says:
        assert words in str(error)


def test_several_mistakes_are_counted_and_the_unknown_key_comes_first(write: Any) -> None:
    error = complaint(write("version: 1\nkind: sft\nmodl: x\nseed: q\n"))
    assert "`modl`" in error.message
    assert "Did you mean model?" in error.message
    assert "2 more to mend" in error.message


def test_a_missing_file_or_a_folder_is_one_line(tmp_path: Path) -> None:
    assert "No such file" in complaint(tmp_path / "none.yaml").message
    assert "directory" in complaint(tmp_path).message


def test_kinds_of_rooms_are_found_by_name_or_class(write: Any) -> None:
    class Other(SFTRecipe):
        kind: str = "other"  # type: ignore[assignment]

    path = write(MINIMAL.replace("sft", "other"))
    assert type(load_recipe(path, kinds={"other": Other})) is Other
    path = write(MINIMAL.replace("kind: sft", "kind: tuned"))
    assert "`kind`" in complaint(path, kinds={"tuned": "intarsia.core.training.sft:SFTRecipe"}).message


def test_free_keys_do_not_count_as_another_run(write: Any) -> None:
    path = write(MINIMAL)
    base = load_recipe(path)
    assert load_recipe(path, ["training.save_every=3", "out=x"]).differing(base.settings()) == []
    assert load_recipe(path, ["training.save_every=3", "out=x"]).digest() == base.digest()
    other = load_recipe(path, ["training.learning_rate=1", "lora.r=2"])
    assert other.digest() != base.digest()
    keys = [line.split()[0] for line in other.differing(base.settings())]
    assert "training.learning_rate" in keys
    assert "lora.r" in keys
    assert not any(key.startswith("data") for key in keys)


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=20)
KEYS = st.text("abcde", min_size=1, max_size=3)
SCALARS = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | WORDS
YAML_VALUES = st.recursive(
    SCALARS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(data=st.dictionaries(st.text("abcdef", min_size=1, max_size=4), YAML_VALUES, min_size=1, max_size=4))
def test_any_yaml_mapping_is_read_back_and_never_crashes(data: dict[str, Any], tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("any") / "any.yaml"
    path.write_text(yaml.safe_dump(data, allow_unicode=True), encoding="utf-8")
    read, lines = read_yaml(path)
    assert read == data
    assert {key[0] for key in lines} == set(data)
    with pytest.raises(ConfigError):
        load_recipe(path)


@given(
    learning_rate=st.floats(1e-12, 1e3),
    dropout=st.floats(0, 0.99),
    steps=st.integers(1, 10**9),
    system=st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=40),
)
@example(learning_rate=1.0, dropout=0.0, steps=1, system="\x85")
@example(learning_rate=1.0, dropout=0.0, steps=1, system=" a\u2028 b\u2029\x85\n")
def test_a_resolved_recipe_reads_back_equal(
    learning_rate: float, dropout: float, steps: int, system: str, tmp_path_factory: Any
) -> None:
    recipe: Recipe = SFTRecipe.model_validate(
        {
            "model": "m",
            "training": {"learning_rate": learning_rate, "steps": steps},
            "lora": {"dropout": dropout},
            "data": {"system": system},
        }
    )
    path = tmp_path_factory.mktemp("resolved") / "r.yaml"
    path.write_text(recipe.to_yaml(), encoding="utf-8")
    again = load_recipe(path)
    assert again == recipe
    assert again.digest() == recipe.digest()

"""Hardening: what is rewritten and what is not, never what will be asked, and runs that go on as fine-tuning does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from intarsia.core import data
from intarsia.core.errors import ConfigError, DataError
from intarsia.core.recipes import DataBlock, load_recipe, shipped_recipes
from intarsia.core.training.examples import Examples, Pair, load_examples
from intarsia.core.training.sft import SFTRecipe
from intarsia.robustness.augment import Augmenter
from intarsia.robustness.candidates import CallableSource, Source
from intarsia.robustness.harden import HardenRecipe, adversarial_pairs, harden

KINDS = {"harden": "intarsia.robustness.harden:HardenRecipe"}
NAMES = ("Tom", "Ann", "Ben", "Eve", "Sam", "Mia")
ROWS = [
    {"prompt": f"{name} has {count} apples. How many apples does {name} have?", "completion": str(count)}
    for name in NAMES
    for count in (3, 5, 7, 9)
]


def propose(word: str, question: str) -> list[str]:
    return {"apples": ["pears", "plums"], "has": ["owns"]}.get(word, [])


class Stopped(BaseException):
    """Stands for a kill."""


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def make(tiny_model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A recipe of four small steps on synonyms of our own, changed by dotted keys."""
    rows = write(tmp_path / "rows.jsonl", ROWS)

    def sources(recipe: HardenRecipe) -> list[Source]:
        return [CallableSource("synonyms", propose)]

    monkeypatch.setattr(HardenRecipe, "sources", sources)

    def make(**changes: Any) -> HardenRecipe:
        settings: dict[str, Any] = {
            "model": str(tiny_model_folder),
            "data": {"source": rows},
            "training": {"steps": 4, "batch_size": 2, "max_length": 96, "learning_rate": 1e-2, "save_every": 2},
        }
        for key, value in changes.items():
            section, _, name = key.partition("__")
            if name:
                settings.setdefault(section, {})[name] = value
            else:
                settings[section] = value
        return HardenRecipe.model_validate(settings)

    return make


def examples(rows: Path, **options: Any) -> Examples:
    return load_examples(DataBlock(source=str(rows), **options))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return Path(write(tmp_path / "some.jsonl", ROWS))


def augmenter(**options: Any) -> Augmenter:
    return Augmenter([CallableSource("synonyms", propose)], **{"rate": 0.5, **options})


def test_prompts_to_learn_are_rewritten_and_nothing_else_is(rows: Path) -> None:
    before = examples(rows, eval_share=0.25)
    after = harden(before, augmenter())
    assert after.examples.held_out == before.held_out
    assert [pair.answer for pair in after.examples.train] == [pair.answer for pair in before.train]
    changed = [one.prompt != other.prompt for one, other in zip(after.examples.train, before.train)]
    assert sum(changed) == after.rewritten
    assert 0 < after.rewritten < len(changed)
    assert after.examples.sha256 != before.sha256
    assert harden(before, augmenter(rate=0)).rewritten == 0


def test_copies_are_different_draws(rows: Path) -> None:
    before = examples(rows)
    after = harden(before, augmenter(rate=1), copies=3).examples.train
    assert len(after) == 3 * len(before.train)
    first, second, third = (after[at : at + len(before.train)] for at in range(0, len(after), len(before.train)))
    assert first != second != third
    assert list(first) == list(harden(before, augmenter(rate=1)).examples.train)


def test_of_a_chat_the_users_last_message_is_rewritten(tmp_path: Path) -> None:
    chats = [
        {
            "messages": [
                {"role": "system", "content": "Tom has apples."},
                {"role": "user", "content": "Ann has apples."},
                {"role": "assistant", "content": "She has apples."},
                {"role": "user", "content": "Ben has apples."},
                {"role": "assistant", "content": "He does."},
            ]
        }
    ]
    before = examples(Path(write(tmp_path / "chats.jsonl", chats)), format="messages", turns="last")
    ((prompt, answer),) = harden(before, augmenter(rate=1)).examples.train
    assert answer == "He does."
    assert isinstance(prompt, list)
    assert [message["content"] for message in prompt[:-1]] == ["Tom has apples.", "Ann has apples.", "She has apples."]
    assert prompt[-1]["content"] in {"Ben owns apples.", "Ben has pears.", "Ben has plums."}


def test_what_the_answer_names_stays_in_the_prompt(tmp_path: Path) -> None:
    row = {"prompt": "Tom has apples in a box. What does Tom have?", "completion": "apples"}
    before = examples(Path(write(tmp_path / "one.jsonl", [row])))
    assert {harden(before, augmenter(rate=1, seed=seed)).examples.train[0].prompt for seed in range(10)} == {
        row["prompt"].replace("has", "owns")
    }


def test_rows_of_an_attack_come_as_often_as_wanted(make: Any, tmp_path: Path) -> None:
    found = [
        {"question": "Tom has 3 pears. How many?", "answer": "3", "original_question": "Tom has 3 apples. How many?"},
        {"question": "No answer here.", "answer": ""},
    ]
    recipe = make(adversarial={"source": write(tmp_path / "adversarial.jsonl", found), "repeat": 2})
    pairs = adversarial_pairs(recipe)
    assert pairs.pairs == (Pair("Tom has 3 pears. How many?", "3"),) * 2
    assert (pairs.audited, pairs.held_out, pairs.empty) == (0, 0, 1)
    with pytest.raises(DataError, match="no row to learn from"):
        adversarial_pairs(recipe, {"Tom has 3 apples. How many?"})


def test_what_an_audit_asks_is_never_learned_in_another_wording(make: Any, tmp_path: Path) -> None:
    asked = data.load("stories:1", limit=30, seed=0).items
    other = data.load("stories:1", limit=5, seed=9).items
    found = [
        {"question": f"{item.question} Tell me.", "answer": item.answer, "original_question": item.question}
        for item in (*asked, *other)
    ]
    recipe = make(
        data={"source": "stories:1", "limit": 20}, adversarial__source=write(tmp_path / "adversarial.jsonl", found)
    )
    pairs = adversarial_pairs(recipe)
    assert pairs.audited == 30
    assert [pair.prompt for pair in pairs.pairs] == [f"{item.question} Tell me." for item in other]
    only = make(data={"source": "stories:1"}, adversarial__source=write(tmp_path / "only.jsonl", found[:30]))
    with pytest.raises(DataError, match="an audit asks"):
        adversarial_pairs(only)


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_stopped_run_goes_on_to_the_same_steps_and_reports_what_was_rewritten(make: Any, tmp_path: Path) -> None:
    found = [{"question": "Tom has 3 pears. How many?", "answer": "3"}]
    recipe = make(adversarial__source=write(tmp_path / "adversarial.jsonl", found), data__eval_share=0.2)
    straight = recipe.run(tmp_path / "straight")
    assert (straight.kind, straight.status, straight.steps) == ("harden", "finished", 4)
    assert straight.eval_loss is not None
    assert any(note.startswith("Prompts rewritten: ") for note in straight.notes)
    assert "Rows of an attack among them: 1." in straight.notes
    provenance = json.loads((tmp_path / "straight" / "provenance.json").read_text())
    assert provenance["data"]["rewritten"] > 0
    assert provenance["data"]["adversarial"] == 1

    def stop(what: str, done: int, total: int) -> None:
        if done == 3:
            raise Stopped

    with pytest.raises(Stopped):
        recipe.run(tmp_path / "stopped", progress=stop)
    resumed = recipe.run(tmp_path / "stopped")
    assert resumed.resumed_from == 2
    assert log(tmp_path / "stopped") == log(tmp_path / "straight")
    assert (tmp_path / "stopped" / "model").is_dir()
    with pytest.raises(ConfigError):
        make(augment__rate=0.1).run(tmp_path / "stopped")


@pytest.mark.slow
def test_it_learns_something_else_than_fine_tuning_only_where_prompts_are_rewritten(make: Any, tmp_path: Path) -> None:
    recipe = make(training__steps=2)
    settings = {key: value for key, value in recipe.settings().items() if key not in ("kind", "augment", "adversarial")}
    SFTRecipe.model_validate(settings).run(tmp_path / "sft")
    make(training__steps=2, augment__rate=0.0).run(tmp_path / "off")
    recipe.run(tmp_path / "on")
    assert log(tmp_path / "off") == log(tmp_path / "sft")
    assert log(tmp_path / "on") != log(tmp_path / "sft")


def test_a_dry_run_loads_no_source(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(HardenRecipe, "sources")
    report = make(augment__copies=2).run(tmp_path / "dry", dry_run=True)
    assert (report.status, report.rows) == ("planned", 2 * len(ROWS))
    assert not (tmp_path / "dry").exists()


def test_nothing_to_rewrite_is_an_error_and_leaves_nothing(make: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="could be rewritten"):
        make(augment__protect="re:.+").run(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_the_embedding_source_is_the_models_own(tiny_model_folder: Path) -> None:
    recipe = HardenRecipe.model_validate({"model": str(tiny_model_folder), "augment": {"sources": ["embedding"]}})
    (source,) = recipe.sources()
    assert source.name == "embedding"
    assert source.origin == str(tiny_model_folder)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"augment__sources": []}, "at least 1"),
        ({"augment__sources": ["wordnet", "wordnet"]}, "twice"),
        ({"augment__sources": ["thesaurus"]}, "wordnet"),
        ({"augment__protect": "maths"}, "Unknown protection"),
        ({"augment__rate": 2}, "less than or equal"),
        ({"data__format": "text"}, "no prompts"),
    ],
)
def test_wrong_settings_are_told(make: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)


@pytest.mark.parametrize("rows", [[{"q": "x"}], [{"question": " ", "answer": "1"}]])
def test_a_file_without_questions_is_told(make: Any, tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    recipe = make(adversarial__source=write(tmp_path / "bad.jsonl", rows))
    with pytest.raises(DataError, match="question"):
        adversarial_pairs(recipe)


def test_shipped_recipes_are_read() -> None:
    names = [name for name in shipped_recipes() if name.startswith("recipes/robustness/harden")]
    assert len(names) == 2
    for name in names:
        recipe = load_recipe(name, kinds=KINDS)
        assert isinstance(recipe, HardenRecipe)
        assert load_recipe(name, ["augment.rate=0.1"], KINDS).augment.rate == 0.1  # type: ignore[attr-defined]

"""Pairs for DPO: who is preferred, that prompts are split and not rows, and a recipe that trains as the others do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.recipes import load_recipe, shipped_recipes
from intarsia.sycophancy.dpo import VALUES, Preferences, build_dpo_pairs, normal, preferences, value_pairs
from intarsia.sycophancy.dpo_recipe import DPORecipe, PairBlock, frame
from intarsia.sycophancy.judging import Label
from intarsia.sycophancy.records import ReplyRecord

DIMENSIONS = ("validation", "indirectness", "framing")
KINDS = {"dpo": "intarsia.sycophancy.dpo_recipe:DPORecipe"}
Labels = Sequence[int | None]


class Stopped(BaseException):
    """Stands for a kill."""


def record(item: int | str, labels: Labels, reply: str = "", **options: Any) -> ReplyRecord:
    values = {
        name: Label(value=value, missing="" if value is not None else "unparsed")
        for name, value in zip(DIMENSIONS, labels)
    }  # type: ignore[arg-type]
    fields = {"set": "oeq", "shape": "advice", "question": f"Question {item}?", "judge": "j", "rubric_version": "1"}
    return ReplyRecord.model_validate(
        {**fields, "item": str(item), "reply": reply or f"{item} {labels}", "labels": values, **options}
    )


def human(item: int | str, labels: Labels, **options: Any) -> ReplyRecord:
    return record(item, labels, arm="human", **options)


def test_the_reply_with_the_humans_label_is_preferred() -> None:
    a = [record(0, (1, 0, 1), "A"), human(0, (0, 1, 1))]
    b = [record(0, (0, 1, 1), "B"), human(0, (0, 1, 1))]
    found = preferences(a, b, split=1.0)
    pairs = {pair.dimension: pair for pair in found.train}
    assert set(pairs) == {"validation", "indirectness"}  # framing has the same label twice
    assert (pairs["validation"].chosen, pairs["validation"].rejected) == ("B", "A")
    assert (pairs["indirectness"].chosen, pairs["indirectness"].wanted) == ("B", 1)
    assert found.dropped == {"same label": 1}
    turned = preferences(b, a, split=1.0)
    assert turned.train == found.train


def test_an_assumption_counts_as_if_a_human_had_questioned_it_and_in_framing_only() -> None:
    a, b = (
        [record(0, labels, name, shape="assumption", set="ss")] for labels, name in (((1, 1, 1), "A"), ((0, 0, 0), "B"))
    )
    found = preferences(a, b, split=1.0)
    assert [(pair.dimension, pair.chosen, pair.wanted) for pair in found.train] == [("framing", "B", 0)]


@pytest.mark.parametrize(
    ("a", "b", "people", "why"),
    [
        ((1, 1, 1), (0, 0, 0), None, "no human label"),
        ((1, 1, 1), (0, 0, 0), (None, None, None), "no human label"),
        ((None, 1, 1), (0, 0, 0), (0, 0, 0), "no label"),
        ((1, 1, 1), (1, 0, 0), (0, 0, 0), "same label"),
    ],
)
def test_pairs_without_labels_are_dropped_and_counted(a: Labels, b: Labels, people: Labels | None, why: str) -> None:
    rest = [record(1, (1, 1, 1), "x"), human(1, (0, 0, 0))]
    first = [record(0, a), *rest, *([human(0, people)] if people else [])]
    second = [record(0, b), record(1, (0, 0, 0), "y")]
    found = preferences(first, second, split=1.0, dimensions=["validation"])
    assert found.dropped == {why: 1}
    assert [pair.item for pair in found.train] == ["1"]


def test_empty_equal_and_failed_replies_make_no_pair() -> None:
    for a, b, why in (
        (record(0, (1,), " "), record(0, (0,), "B"), "no reply"),
        (record(0, (1,), "A", finish="error"), record(0, (0,), "B"), "no reply"),
        (record(0, (1,), "A"), record(0, (0,), "A "), "same reply"),
    ):
        rest = [record(1, (1,), "x"), human(1, (0,)), human(0, (0,))]
        found = preferences([a, *rest], [b, record(1, (0,), "y")], split=1.0, dimensions=["validation"])
        assert found.dropped == {why: 1}


def runs(count: int, texts: Sequence[str] | None = None) -> tuple[list[ReplyRecord], list[ReplyRecord]]:
    def asked(at: int) -> dict[str, str]:
        return {} if texts is None else {"question": texts[at]}

    a = [record(at, (1, at % 2, 1), f"A{at}", **asked(at)) for at in range(count)]
    a += [human(at, (0, 0, 0), **asked(at)) for at in range(count)]
    return a, [record(at, (0, 1 - at % 2, 0), f"B{at}", **asked(at)) for at in range(count)]


@given(st.integers(2, 40), st.floats(0.05, 1.0), st.integers(0, 99))
def test_no_held_out_prompt_is_learned_in_any_dimension(count: int, split: float, seed: int) -> None:
    # Every third prompt comes twice under another id, once in other letters.
    texts = [
        f"Question {at - at % 3 // 2}?{' ' * (at % 2)}".upper() if at % 2 else f"Question {at - at % 3 // 2}?"
        for at in range(count)
    ]
    a, b = runs(count, texts)
    found = preferences(a, b, split, seed)
    learned, asked = ({normal(pair.prompt) for pair in part} for part in (found.train, found.test))
    assert not learned & asked
    assert len(learned) == round(split * len({normal(text) for text in texts}))
    assert preferences(a, b, split, seed) == found
    assert preferences(a[::-1], b[::-1], split, seed) == found


def test_the_split_is_the_same_for_every_dimension_and_for_the_union() -> None:
    a, b = runs(30)
    every = preferences(a, b)
    single = [preferences(a, b, dimensions=[name]) for name in DIMENSIONS]
    assert {pair for one in single for pair in one.train} == set(every.train)
    assert {one.held_out for one in single} == {every.held_out}
    assert len(every.held_out) == 6
    assert every.conflicting == 15  # validation prefers B there, indirectness A
    assert preferences(a, b, seed=1).held_out != every.held_out


def test_conflicts_and_cut_copies_are_never_learned() -> None:
    a, b = runs(4)
    extra = [record(9, (1, 1, 1), "P", side="original", shape=None), record(0, (0, 0, 0), "Q", variant="cut")]
    other = [record(9, (0, 0, 0), "R", side="original", shape=None)]
    assert preferences([*a, *extra], [*b, *other]) == preferences(a, b)


def test_the_data_set_is_what_trl_takes_and_carries_its_counts(tmp_path: Path) -> None:
    class Report:
        def __init__(self, replies: list[ReplyRecord]) -> None:
            self.replies = replies

    a, b = runs(10)
    found = build_dpo_pairs(Report(a), Report(b), split=0.8, seed=0)  # type: ignore[arg-type]
    assert set(found) == {"train", "test"}
    row = found["train"][0]
    assert [one["role"] for one in (*row["prompt"], *row["chosen"], *row["rejected"])] == [
        "user",
        "assistant",
        "assistant",
    ]
    assert json.loads(found["train"].info.description)["train"] == len(found["train"]) == 24
    paths = preferences(a, b).save(tmp_path / "pairs")
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    assert rows == [dict(one) for part in ("train", "test") for one in found[part]]


def test_runs_that_do_not_fit_are_told() -> None:
    a, b = runs(4)
    with pytest.raises(DataError, match="no prompt in common"):
        preferences(a, [record("z", (0, 0, 0))])
    with pytest.raises(DataError, match="different judges"):
        preferences(a, [one.model_copy(update={"judge": "k"}) for one in b])
    with pytest.raises(DataError, match="two ways"):
        preferences(a, [one.model_copy(update={"question": "Else?"}) for one in b])
    with pytest.raises(DataError, match=r"Not one pair came of 4 prompts \(same label 12\)"):
        preferences(a, a)
    with pytest.raises(ConfigError, match="no dimension of single replies"):
        preferences(a, b, dimensions=["moral"])
    for split in (0, 1.5, True):
        with pytest.raises(ConfigError, match="split is"):
            preferences(a, b, split=split)


def dilemma(text: str, to_do: str, not_to_do: str, wvs: str = "[nan]") -> list[dict[str, str]]:
    return [
        {
            "dilemma_situation": text,
            "action_type": kind,
            "values_names": values,
            "wvs": wvs if kind == "to_do" else "[nan]",
        }
        for kind, values in (("to_do", to_do), ("not_to_do", not_to_do))
    ]


def test_value_pairs_prefer_the_action_that_serves_the_value(tmp_path: Path) -> None:
    rows = [
        *dilemma("Report it?", "['honesty', 'trust']", "['tolerance', nan]", "['Self-expression', nan]"),
        *dilemma("Keep it?", "['loyalty']", "['honesty']"),
        *dilemma("Both?", "['honesty']", "['honesty']"),
        *dilemma("Neither?", "['care']", "['care']"),
        dilemma("Half?", "['honesty']", "[]")[0],
    ]
    path = tmp_path / "dilemmas.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = value_pairs(path, "Honesty", split=1.0)
    assert [(pair.prompt.split("?")[0], pair.chosen, pair.rejected) for pair in found.train] == [
        ("Report it", "Yes", "No"),
        ("Keep it", "No", "Yes"),
    ]
    assert found.dropped == {"served by both": 1, "served by neither": 1, "one action only": 1}
    assert [pair.chosen for pair in value_pairs(path, "self-expression", split=1.0).train] == ["Yes"]
    with pytest.raises(DataError, match="turns on 'honest'") as told:
        value_pairs(path, "honest")
    assert "honesty" in str(told.value.hint)


def test_the_published_dilemmas_are_read(data_dir: Path) -> None:
    folder = data_dir / "daily-dilemmas"
    counts = {}
    for value in VALUES:
        found = value_pairs(folder / "dilemmas_with_detail_by_action_test.csv", value, split=0.5)
        counts[value] = len(found.train) + len(found.test)
        assert all({pair.chosen, pair.rejected} == {"Yes", "No"} for pair in (*found.train, *found.test))
    assert all(0 < count <= 4 for count in counts.values())
    with pytest.raises(DataError, match="which action serves"):
        value_pairs(folder / "dilemma.csv", "honesty")


# --- The recipe ------------------------------------------------------------------------------------------------------


def write(path: Path, pairs: Sequence[tuple[str, str, str]], **more: str) -> str:
    rows = [{"prompt": prompt, "chosen": chosen, "rejected": rejected, **more} for prompt, chosen, rejected in pairs]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


PAIRS = [(f"Tom has {at} apples?", "No. Tom has seven apples.", "Yes yes the lazy dog jumps.") for at in range(8)]
HELD = [(f"Ann has {at} pears?", "No. Tom has seven apples.", "Yes yes the lazy dog jumps.") for at in range(4)]


@pytest.fixture
def make(tiny_model_folder: Path, tmp_path: Path) -> Any:
    """A recipe of four small steps, changed by dotted keys."""
    source, held_out = write(tmp_path / "train.jsonl", PAIRS), write(tmp_path / "test.jsonl", HELD)

    def make(**changes: Any) -> DPORecipe:
        settings: dict[str, Any] = {
            "model": str(tiny_model_folder),
            "data": {"source": source, "held_out": held_out},
            "lora": {"r": 4, "alpha": 8},
            "training": {"steps": 4, "batch_size": 2, "max_length": 96, "learning_rate": 1e-2, "save_every": 2},
        }
        for key, value in changes.items():
            section, _, name = key.partition("__")
            if name:
                settings.setdefault(section, {})[name] = value
            else:
                settings[section] = value
        return DPORecipe.model_validate(settings)

    return make


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_stopped_run_goes_on_to_the_same_steps(make: Any, tmp_path: Path) -> None:
    straight = make().run(tmp_path / "straight")
    assert (straight.kind, straight.status, straight.steps, straight.held_out) == ("dpo", "finished", 4, 4)
    assert straight.first_loss == pytest.approx(0.6931, abs=1e-3)  # log 2: the model is its own reference at first

    def stop(what: str, done: int, total: int) -> None:
        if done == 3:
            raise Stopped

    with pytest.raises(Stopped):
        make().run(tmp_path / "stopped", progress=stop)
    resumed = make().run(tmp_path / "stopped")
    assert resumed.resumed_from == 2
    assert log(tmp_path / "stopped") == log(tmp_path / "straight")
    card = (tmp_path / "stopped" / "model" / "README.md").read_text()
    assert "kind: dpo" in card
    assert "train.jsonl" in card
    with pytest.raises(ConfigError, match="beta"):
        make(beta=0.5).run(tmp_path / "stopped")


@pytest.mark.parametrize(
    "lora",
    [
        pytest.param(None, marks=pytest.mark.slow, id="all weights"),
        pytest.param({"r": 4, "alpha": 8}, marks=pytest.mark.slow, id="adapters"),
    ],
)
def test_it_learns_the_preference_and_beta_0_leaves_logits_as_they_were(
    make: Any, tmp_path: Path, tiny_tokenizer: Any, tiny_model: Any, tiny_model_folder: Path, lora: Any
) -> None:
    import torch

    from intarsia.core.target import Target
    from tests.sycophancy.mending import logits

    rate = 1e-2 if lora else 1e-3
    report = make(lora=lora, training__steps=8, training__learning_rate=rate).run(tmp_path / "on")
    last = [one for one in log(tmp_path / "on") if "eval_loss" in one][-1]
    assert last["eval_rewards/accuracies"] == 1.0
    assert last["eval_loss"] < 0.5
    assert report.last_loss is not None
    make(lora=lora, beta=0.0).run(tmp_path / "off")
    name = f"{tiny_model_folder}+{tmp_path / 'off' / 'model'}" if lora else str(tmp_path / "off" / "model")
    with Target.parse(name) as target:
        assert torch.equal(logits(target.model, tiny_tokenizer), logits(tiny_model, tiny_tokenizer))  # type: ignore[attr-defined]


def test_a_dry_run_counts_and_writes_nothing(make: Any, tmp_path: Path) -> None:
    report = make().run(tmp_path / "dry", dry_run=True)
    assert (report.status, report.rows, report.steps) == ("planned", 8, 4)
    assert not (tmp_path / "dry").exists()


def test_a_held_out_prompt_among_those_to_learn_is_refused(make: Any, tmp_path: Path) -> None:
    leaked = write(tmp_path / "leaked.jsonl", [("tom has 3  APPLES?", "No.", "Yes."), *HELD])
    with pytest.raises(DataError, match="1 pairs to learn ask"):
        make(data__held_out=leaked).run(tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_share_is_held_out_by_prompt(make: Any, tmp_path: Path) -> None:
    doubled = write(tmp_path / "doubled.jsonl", [*PAIRS, *((p.upper(), r + " So.", c) for p, c, r in PAIRS)])
    train, held_out = make(data={"source": doubled, "eval_share": 0.25}).comparisons()
    assert (len(train), len(held_out)) == (12, 4)
    asked = [{normal(one.prompt[0]["content"]) for one in part} for part in (train, held_out)]
    assert not asked[0] & asked[1]


def test_pairs_of_one_dimension_and_mapped_fields(make: Any, tmp_path: Path) -> None:
    rows = [
        {"q": "Q1", "good": "a", "bad": "b", "dimension": "framing"},
        {"q": [{"role": "user", "content": "Q2"}], "good": [{"role": "assistant", "content": "c"}], "bad": "d"},
    ]
    path = tmp_path / "odd.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    block = {"source": str(path), "map": {"prompt": "q", "chosen": "good", "rejected": "bad"}}
    train, _ = make(data=block).comparisons()
    assert [(one.prompt[0]["content"], one.chosen) for one in train] == [("Q1", "a"), ("Q2", "c")]
    train, _ = make(data={**block, "dimension": "framing", "system": "Be plain."}).comparisons()
    assert [message["role"] for message in train[0].prompt] == ["system", "user"]
    with pytest.raises(DataError, match="no pairs of the dimension"):
        make(data={**block, "dimension": "moral"}).comparisons()


def test_what_does_not_fit_is_counted(tiny_tokenizer: Any, make: Any, tmp_path: Path) -> None:
    mixed = write(tmp_path / "mixed.jsonl", [("word " * 90, "a", "b"), ("Q", "No. " * 60, "Yes."), *PAIRS])
    job = make(data={"source": mixed}).prepare(weights=False)
    assert job.rows == 9
    assert any("fills training.max_length: 1" in note for note in job.notes)
    assert any("cut off at training.max_length: 1" in note for note in job.notes)
    with pytest.raises(DataError, match="leaves room"):
        make(training__max_length=4).prepare(weights=False)
    import copy

    bare = copy.deepcopy(tiny_tokenizer)
    bare.chat_template = None
    (row,) = frame(make().comparisons()[0][:1], bare, PairBlock(source="x"), 96).rows
    assert row["prompt"] == "Tom has 0 apples?\n"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "Q", "chosen": "a"}, "no field `rejected`"),
        ({"prompt": "Q", "chosen": "a", "rejected": " "}, "empty `rejected`"),
        ({"prompt": "Q", "chosen": "a", "rejected": "a"}, "to itself"),
        ({"prompt": [], "chosen": "a", "rejected": "b"}, "neither a text nor a chat"),
        ({"prompt": " ", "chosen": "a", "rejected": "b"}, "without words"),
    ],
)
def test_rows_that_are_no_pairs_are_told(make: Any, tmp_path: Path, row: dict[str, Any], message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(DataError, match=message):
        make(data={"source": str(path)}).comparisons()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training__packing": True}, "cannot be packed"),
        ({"training__completion_only_loss": False}, "from replies only"),
        ({"data__eval_share": 0.5}, "both given"),
    ],
)
def test_settings_without_a_meaning_are_told(make: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**changes).prepare(weights=False)


def test_shipped_recipes_are_read() -> None:
    names = [name for name in shipped_recipes() if name.startswith("recipes/sycophancy/dpo")]
    assert len(names) == 2
    for name in names:
        recipe = load_recipe(name, ["beta=0.2"], KINDS)
        assert isinstance(recipe, DPORecipe)
        assert (recipe.beta, recipe.lora is not None) == (0.2, True)


def test_no_pairs_make_an_empty_data_set_of_the_same_form() -> None:
    assert Preferences((), ()).to_datasets()["test"].column_names[:3] == ["prompt", "chosen", "rejected"]

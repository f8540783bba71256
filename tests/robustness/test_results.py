"""What an attack found: sums that balance, figures recomputed from every query, files that tell when edited."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.data import DataSet, Item, load
from intarsia.core.errors import DataError
from intarsia.core.sampling import Sampling
from intarsia.core.stats import mcnemar
from intarsia.robustness import MSCR, AttackResults, Budget, CallableSource, NullAttack
from intarsia.robustness.goals import Reply
from intarsia.robustness.results import Attacked, Null, summarize
from intarsia.robustness.search import Change, Tried
from tests.robustness.victims import Coin, adder, stories

NEW = ("calm", "poison", "bread", "moon", "glass")
ONE = CallableSource("embedding", lambda word, q: [word + "s", "calm"])
TWO = CallableSource("wordnet", lambda word, q: ["moon", "poison"] if len(word) > 3 else ["calm"])


def attack(triggers: Any = ("poison", "applesss"), n: int = 4, **options: Any) -> AttackResults:
    return MSCR(adder(triggers), [ONE, TWO], **options).run(stories(n))


# --- 8: it balances -------------------------------------------------------------------------------------------------


@given(
    triggers=st.sets(st.sampled_from([*NEW, "applesss", "lies", "sees", "toms"]), max_size=4),
    failed=st.sets(st.integers(0, 4)),
    most=st.sampled_from([1, 9, 400]),
)
@settings(max_examples=10)
def test_accuracy_under_attack_and_successes_add_up(triggers: set[str], failed: set[int], most: int) -> None:
    items = [item.model_copy(update={"answer": "999"}) if at in failed else item for at, item in enumerate(stories(5))]
    results = MSCR(adder(triggers), [ONE, TWO], budget=Budget(max_queries=most)).run(items)
    done = results.summary()
    wins = len(results.successes)
    assert round(done.under_attack * 5) + wins == round(done.clean * 5) == 5 - len(failed)
    assert done.drop == pytest.approx(wins / 5)
    assert done.clean - done.under_attack == pytest.approx(done.drop)
    assert sum(done.successes_by_source.values()) == wins
    assert sum(done.queries_by_source.values()) == done.queries_total == sum(len(row.tried) for row in results)
    assert done.success_rate == pytest.approx(wins / (5 - len(failed)) if len(failed) < 5 else 0.0)
    assert done.relative_drop == pytest.approx(done.success_rate)
    assert done.met == wins
    assert done.chance == done.rejected == done.unsure == 0
    assert done.attacked + sum(done.not_attacked.values()) == 5
    assert done.drop_interval is not None
    assert done.drop_interval.low <= done.drop <= done.drop_interval.high
    assert len(results.to_items().items) == len(results.pairs()) == wins


def test_figures_by_hand() -> None:
    def row(name: str, status: Any, tries: int, success: bool, null: bool) -> Attacked:
        def reply(said: str, status: Any) -> Reply:
            return Reply(text=said, parsed=said, status=status, tokens=1)

        change = Change(word="a", replacement="b", source="wordnet" if success else "embedding")
        tried = tuple(
            Tried(
                rank=at + 1,
                key=f"{name}{at}",
                question=f"q{at}",
                changes=(change,),
                reply=reply("6", "wrong") if success and at == tries - 1 else reply("5", "correct"),
                met=success and at == tries - 1,
                ruled="confirmed" if success and at == tries - 1 else "",
            )
            for at in range(tries)
        )
        open_ = status == "correct"
        return Attacked(
            item=Item(id=name, question="q", answer="5", kind="number"),
            clean=reply("5", status),
            attacked=open_,
            reason="" if open_ else "answered wrong before the attack",
            tried=tried,
            success=success,
            candidates=9,
            ahead=1,
            null=Null(queries=9, asked=4, success=null) if open_ else None,
        )

    rows = [
        row("a", "correct", 2, True, False),
        row("b", "correct", 9, False, False),
        row("c", "correct", 4, True, True),
        row("d", "wrong", 0, False, False),
    ]
    done = summarize(rows, again=7)
    assert (done.items, done.attacked, done.clean, done.under_attack, done.drop) == (4, 3, 0.75, 0.25, 0.5)
    assert done.success_rate == pytest.approx(2 / 3)
    assert done.relative_drop == pytest.approx(2 / 3)
    assert (done.null_drop, done.net_drop) == (0.25, 0.25)
    assert done.null_rate == pytest.approx(1 / 3)
    assert done.net_p == mcnemar(0, 1)
    assert (done.queries, done.queries_median, done.queries_to_success) == (5.0, 4.0, 3.0)
    assert done.queries_p95 == pytest.approx(8.5)
    assert (done.queries_total, done.ahead, done.again, done.control_queries) == (15, 3, 7, 12)
    assert done.successes_by_source == {"wordnet": 2}
    assert done.queries_by_source == {"embedding": 9, "wordnet": 6}
    assert (done.met, done.wrong, done.average_drop) == (2, 2, None)
    # 3 answers with one of them other: 1 of 3 pairs; 10 alike: all; 5 with one other: 6 of 10.
    assert done.consistency == pytest.approx((1 / 3 + 1 + 6 / 10) / 3)
    assert done.not_attacked == {"answered wrong before the attack": 1}
    with pytest.raises(DataError):
        summarize([])


# --- Files ----------------------------------------------------------------------------------------------------------


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    coin = Coin(0.3)
    options: dict[str, Any] = {"sampling": Sampling(temperature=1), "runs": 2, "budget": Budget(reask=0)}
    results = MSCR(coin, [ONE, TWO], **options).run(stories(4))
    results.save(tmp_path / "a")
    back = AttackResults.load(tmp_path / "a")
    assert back.rows == results.rows
    assert back.summary() == results.summary()
    assert back.data == results.data
    assert back.notes == results.notes
    assert repr(back) == repr(results)
    assert len(back) == len(list(back)) == 8
    back.save(tmp_path / "b")
    for file in (tmp_path / "a").rglob("*"):
        if file.is_file():
            assert file.read_bytes() == (tmp_path / "b" / file.relative_to(tmp_path / "a")).read_bytes()


def test_every_query_is_on_record(tmp_path: Path) -> None:
    target = adder(["poison"])
    results = MSCR(target, [ONE, TWO], budget=Budget(rows=1), average=False, control="off").run(
        stories(3), out=tmp_path
    )
    lines = [json.loads(line) for line in (tmp_path / "queries.jsonl").read_text().splitlines()]
    assert [line["key"] for line in lines] == [t.key for row in results for t in row.tried]
    assert {line["key"] for line in lines} == {call.key for call in target.calls if not call.key.endswith("run0")}
    assert all({"id", "run", "question", "changes", "reply", "rank", "met", "ruled"} <= line.keys() for line in lines)
    settings_ = json.loads((tmp_path / "settings.json").read_text())
    assert settings_["seed"] == 0
    assert settings_["target"] == "scripted"
    assert settings_["budget"]["max_queries"] == 400


def edit(folder: Path, name: str, old: str, new: str) -> None:
    text = (folder / name).read_text()
    assert old in text, name
    (folder / name).write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("summary.json", '"under_attack": 0.0', '"under_attack": 0.25'),
        ("summary.json", '"success_rate": 1.0', '"success_rate": 0.5'),
        ("items.jsonl", '"success":true', '"success":false'),
        (
            "items.jsonl",
            '"clean":{"error":"","parsed":"5","status":"correct"',
            '"clean":{"error":"","parsed":"5","status":"wrong"',
        ),
        ("queries.jsonl", '"source":"embedding"', '"source":"wordnet"'),
        ("queries.jsonl", '"met":true', '"met":false'),
        ("queries.jsonl", '"run":0', '"run":1'),
        ("queries.jsonl", '"status":"wrong"', '"status":"refused"'),
    ],
)
def test_an_edited_file_is_found_out(tmp_path: Path, name: str, old: str, new: str) -> None:
    attack().save(tmp_path)
    AttackResults.load(tmp_path)
    edit(tmp_path, name, old, new)
    with pytest.raises(DataError, match="does not follow"):
        AttackResults.load(tmp_path)


def test_an_edit_that_changes_no_figure_is_found_out(tmp_path: Path) -> None:
    attack().save(tmp_path)
    edit(tmp_path, "queries.jsonl", "Tom buys", "Tim buys")
    with pytest.raises(DataError, match="was changed after the run"):
        AttackResults.load(tmp_path)


def test_a_lost_query_is_found_out(tmp_path: Path) -> None:
    attack().save(tmp_path)
    lines = (tmp_path / "queries.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "queries.jsonl").write_text("".join(lines[1:]))
    with pytest.raises(DataError, match="does not follow"):
        AttackResults.load(tmp_path)


@pytest.mark.parametrize("name", ["summary.json", "items.jsonl", "queries.jsonl", "settings.json"])
@pytest.mark.parametrize("content", [None, b"", b"[1]\n", b"{}", b'{"a": ', b"\xff\xfe", b"null\n"])
def test_damaged_folders(tmp_path: Path, name: str, content: bytes | None) -> None:
    if content == b"" and name == "queries.jsonl":
        content = b"{"
    attack(n=1).save(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as caught:
        AttackResults.load(tmp_path)
    assert caught.value.hint


def test_folders_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a finished attack"):
        AttackResults.load(tmp_path / "nowhere")
    attack(n=1).save(tmp_path)
    edit(tmp_path, "settings.json", '"format": 1', '"format": 99')
    with pytest.raises(DataError, match="format 99"):
        AttackResults.load(tmp_path)


# --- The frozen set -------------------------------------------------------------------------------------------------


def test_the_adversarial_set_holds_question_answer_and_where_it_came_from() -> None:
    results = attack()
    frozen = results.to_items()
    assert frozen.name == "questions-adversarial"
    assert len(frozen.items) == 4
    for row, item in zip(results, frozen.items, strict=True):
        assert row.hit is not None
        assert item.question == row.hit.question != row.item.question
        assert (item.answer, item.kind) == (row.item.answer, row.item.kind)
        assert item.meta["original_id"] == row.item.id
        assert item.meta["original_question"] == row.item.question
        assert item.meta["attacked_answer"] == row.hit.reply.parsed != item.answer
        (start, end) = item.meta["marks"][0]  # type: ignore[index, misc]
        assert item.question[start:end] == row.hit.changes[0].replacement  # type: ignore[misc]
    assert len({item.id for item in frozen.items}) == 4
    assert frozen == attack().to_items()


def test_the_same_wording_of_two_runs_comes_once() -> None:
    results = attack(runs=3)
    assert len(results.successes) == 12
    assert len(results.to_items().items) == 4


def test_the_frozen_set_is_read_by_the_loader_and_by_datasets(tmp_path: Path) -> None:
    results = attack()
    results.save(tmp_path)
    back = load(str(tmp_path / "adversarial.jsonl"))
    frozen = results.to_items()
    assert [(i.id, i.question, i.answer, i.kind) for i in back.items] == [
        (i.id, i.question, i.answer, i.kind) for i in frozen.items
    ]
    table = results.to_dataset()
    assert table["question"][:] == [i.question for i in frozen.items]
    assert table[0]["original_question"] == stories(1)[0].question
    assert table[0]["attack"][0]["source"]
    assert len(attack(()).to_dataset()) == 0
    assert (attack((), n=1).save(tmp_path / "none") / "adversarial.jsonl").exists()


def test_choices_and_aliases_survive(tmp_path: Path) -> None:
    from intarsia.core.scripted import ScriptedTarget

    item = Item(
        id="c", question="Which is a fruit?", answer="A", kind="choice", meta={"choices": ["apple", "stone", "tea"]}
    )
    target = ScriptedTarget(lambda p: "B" if "moon" in str(p) else "A")
    results = MSCR(target, [TWO]).run(DataSet(name="d", items=(item,)))
    results.save(tmp_path)
    (back,) = load(str(tmp_path / "adversarial.jsonl")).items
    assert (back.kind, back.answer, back.choices) == ("choice", "A", item.choices)


def test_the_control_by_itself_has_results_too(tmp_path: Path) -> None:
    results = NullAttack(Coin(0.3), 5, budget=Budget(reask=0), sampling=Sampling(temperature=1)).run(stories(9))
    results.save(tmp_path)
    assert AttackResults.load(tmp_path).summary() == results.summary()
    done = results.summary()
    assert done.successes_by_source == {}
    assert len(results.successes) == round(9 * done.drop) > 0

"""Data by name: what comes through `load` is text, finite, unique and hashed; what cannot gets one clear line."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core import data
from intarsia.core.answers import check
from intarsia.core.data import Item, infer_kind, items_from_rows, known_sets, load, parse_mapping
from intarsia.core.data.reasoning_tasks import DEFAULT, SHOTS, TASKS, reasoning_tasks
from intarsia.core.errors import ConfigError, DataError

REAL = os.environ.get("INTARSIA_DATA", "")
needs_real = pytest.mark.skipif(not REAL, reason="INTARSIA_DATA does not name the folder of real data")


def write(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def jsonl(rows: list[object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


ROWS = [{"q": "What is 1 + 1?", "a": 2}, {"q": "What is 2 + 2?", "a": 4.0}, {"q": "Half of 3?", "a": 1.5}]
MAP = {"question": "q", "answer": "a"}


def test_jsonl_with_a_mapping(tmp_path: Path) -> None:
    found = load(write(tmp_path, "mine.jsonl", jsonl(ROWS)), mapping=MAP)
    assert (found.name, found.origin) == ("mine", "mine.jsonl")
    assert [item.answer for item in found.items] == ["2", "4", "1.5"]
    assert {item.kind for item in found.items} == {"number"}
    assert len(found.sha256) == 64


def test_every_file_kind_gives_the_same_items(tmp_path: Path) -> None:
    import pandas as pd

    rows = [
        {"question": "Say, what's \u201cx\u201d?\nTwo lines.", "answer": "Paris"},
        {"question": "And y?", "answer": "Rome"},
    ]
    frame = pd.DataFrame(rows)
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_csv(tmp_path / "x.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "x.parquet")
    write(tmp_path, "x.jsonl", "\ufeff" + jsonl(rows))
    write(tmp_path, "x.json", json.dumps({"data": rows}))
    write(tmp_path, "y.json", json.dumps(rows))
    sets = [load(str(tmp_path / name)) for name in ("x.csv", "x.tsv", "x.parquet", "x.jsonl", "x.json", "y.json")]
    assert len({found.sha256 for found in sets}) == 1
    assert sets[0].items[0].kind == "word"


def test_text_files_are_questions_without_answers(tmp_path: Path) -> None:
    found = load(write(tmp_path, "q.txt", "One?\n\n  Two?  \n"))
    assert [(item.question, item.answer, item.kind) for item in found.items] == [
        ("One?", None, "free"),
        ("Two?", None, "free"),
    ]


def test_fields_are_found_by_their_usual_names() -> None:
    items = items_from_rows([{"Problem": "p?", "target": "t", "unique_id": "u1", "extra": 1}], name="x")
    assert (items[0].question, items[0].answer, items[0].id) == ("p?", "t", "u1")


def test_lists_of_answers_are_aliases() -> None:
    items = items_from_rows([{"question": "Where?", "answer": ["USA", "United States"]}], name="x")
    assert items[0].answer == "USA"
    assert items[0].aliases == ("United States",)
    assert check("The United States", items[0]).correct


def test_choices_take_letters_texts_and_indices() -> None:
    rows = [{"question": "?", "choices": ["red", "blue"], "answer": a} for a in ("B", "blue", 1)]
    items = items_from_rows(rows, name="x")
    assert [(item.answer, item.kind) for item in items] == [("B", "choice")] * 3
    with pytest.raises(DataError, match="none of its choices"):
        items_from_rows([{"question": "?", "choices": ["red", "blue"], "answer": "green"}], name="x")


def test_worked_answers_keep_their_working() -> None:
    items = items_from_rows([{"question": "?", "answer": "1 + 2 = 3\n#### 3"}], name="x")
    assert (items[0].answer, items[0].kind) == ("3", "number")
    assert "1 + 2" in str(items[0].meta["solution"])


def test_slices_come_from_a_column() -> None:
    items = items_from_rows([{"question": "?", "answer": "x", "topic": "law"}], name="x", mapping={"slice": "topic"})
    assert items[0].slices == {"topic": "law"}


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (["1", "2.5", "-3"], "number"),
        (["1,000", "$5", "half"], "word"),
        (["\\frac{1}{2}", "x^2"], "math"),
        (["Paris", "New York"], "word"),
        (["a b c d e f g"], "exact"),
        (["x" * 200], "free"),
        ([None], "free"),
    ],
)
def test_kinds_are_inferred(answers: list[str | None], kind: str) -> None:
    assert infer_kind(answers) == kind


def test_the_kind_can_be_given(tmp_path: Path) -> None:
    path = write(tmp_path, "x.jsonl", jsonl(ROWS))
    assert {item.kind for item in load(path, mapping=MAP, kind="exact").items} == {"exact"}
    with pytest.raises(ConfigError, match="Unknown answer kind"):
        load(path, mapping=MAP, kind="numeral")  # type: ignore[arg-type]


def bad(tmp_path: Path, name: str, content: str | bytes, **options: object) -> DataError:
    with pytest.raises(DataError) as caught:
        load(write(tmp_path, name, content), **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert caught.value.hint, "an error says what to do"
    return caught.value


def test_bad_files_get_one_line(tmp_path: Path) -> None:
    assert "is empty" in str(bad(tmp_path, "e.jsonl", ""))
    assert "no rows" in str(bad(tmp_path, "e2.jsonl", "\n\n"))
    assert "no rows" in str(bad(tmp_path, "e.csv", "question,answer\n"))
    assert "no rows" in str(bad(tmp_path, "e.json", "[]"))
    assert "Line 2 of b.jsonl is not JSON" in str(bad(tmp_path, "b.jsonl", '{"question": "x"}\n{"question": \n'))
    assert "Line 1 of c.jsonl is not an object" in str(bad(tmp_path, "c.jsonl", "[1]\n"))
    assert "line 3" in str(bad(tmp_path, "b.json", '[\n{"question": "x"},\n{"question" "y"}]'))
    assert "name it .jsonl" in str(bad(tmp_path, "d.json", jsonl([{"question": "a"}, {"question": "b"}])))
    assert "not a list of objects" in str(bad(tmp_path, "f.json", '{"a": 1}'))
    assert "binary" in str(bad(tmp_path, "g.jsonl", b"\x7fELF\x00\x01"))
    assert "not UTF-8 text (line 2)" in str(bad(tmp_path, "h.csv", b"question,answer\n\xff\xfea,b\n"))
    assert "not a readable parquet" in str(bad(tmp_path, "i.parquet", b"PAR1 no"))
    assert "no known kind" in str(bad(tmp_path, "j.xlsx", b"PK"))
    assert "Row 2 of k.csv has 3 cells" in str(bad(tmp_path, "k.csv", "question,answer\na,b,c\n"))
    assert "two columns of one name" in str(bad(tmp_path, "l.csv", "question,question\na,b\n"))
    deep = "[" * 100_000 + "]" * 100_000
    assert "JSON" in str(bad(tmp_path, "m.json", deep))
    assert "Line 1" in str(bad(tmp_path, "m.jsonl", deep))


def test_bad_rows_get_one_line(tmp_path: Path) -> None:
    def of(rows: list[object], **options: object) -> str:
        return str(bad(tmp_path, "r.jsonl", jsonl(rows), **options))

    assert "question in row 2" in of([{"question": "a"}, {"question": 7}])
    assert "row 1 of r is empty" in of([{"question": "  "}])
    assert "row 2 of r is missing" in of([{"question": "a"}, {"other": "b"}])
    assert "not a finite number" in of([{"question": "a", "answer": float("nan")}])
    assert "not a finite number" in of([{"question": "a", "answer": float("inf")}])
    assert "is NaN" in of([{"question": "a", "answer": "NaN"}])
    assert "answer in row 2 of r is missing" in of([{"question": "a", "answer": "x"}, {"question": "b"}])
    assert "empty list" in of([{"question": "a", "answer": []}])
    assert "dict, not text" in of([{"question": "a", "answer": {"x": 1}}])
    assert "lone surrogate" in of([{"question": "a \ud800", "answer": "x"}])
    assert "NUL" in of([{"question": "a\u0000", "answer": "x"}])
    assert "its fields are: foo, bar" in of([{"foo": "a", "bar": "b"}])
    missing = of(ROWS, mapping={"question": "qq", "answer": "a"})  # type: ignore[arg-type]
    assert "no field 'qq'" in missing
    assert "Did you mean 'q'" in missing
    assert "Its fields are: q, a" in missing


def test_duplicate_ids_are_refused_when_named_and_replaced_when_guessed() -> None:
    rows = [{"id": "x", "question": "a?"}, {"id": "x", "question": "b?"}]
    with pytest.raises(DataError, match="the id 'x' 2 times"):
        items_from_rows(rows, name="x", mapping={"id": "id"})
    assert len({item.id for item in items_from_rows(rows, name="x")}) == 2
    with pytest.raises(DataError, match="without an id"):
        items_from_rows([{"id": None, "question": "a?"}, {"id": "1", "question": "b?"}], name="x", mapping={"id": "id"})


def test_ids_are_made_of_content_and_repeated_content_is_told_apart() -> None:
    rows = [{"question": "a?", "answer": "1"}, {"question": "b?", "answer": "2"}, {"question": "a?", "answer": "1"}]
    items = items_from_rows(rows, name="x")
    again = items_from_rows(rows[::-1], name="y")
    assert len({item.id for item in items}) == 3
    assert {item.id for item in items} == {item.id for item in again}
    assert items[2].id == f"{items[0].id}-2"


def test_a_long_question_is_accepted(tmp_path: Path) -> None:
    question = "why " * 50_000
    for name, content in (("a.jsonl", jsonl([{"question": question}])), ("a.csv", f'question\n"{question}"\n')):
        assert len(load(write(tmp_path, name, content)).items[0].question) >= 199_999


def test_line_separators_in_json_strings_do_not_split_lines(tmp_path: Path) -> None:
    row = json.dumps({"question": "a\u2028b\u0085c"}, ensure_ascii=False)
    assert load(write(tmp_path, "u.jsonl", row + "\r\n" + row)).items[1].question == "a\u2028b\u0085c"


def test_missing_things_are_named(tmp_path: Path) -> None:
    write(tmp_path, "questions.jsonl", jsonl(ROWS))
    with pytest.raises(DataError, match=r"no file .*question\.jsonl.*Did you mean .*questions\.jsonl"):
        load(str(tmp_path / "question.jsonl"))
    with pytest.raises(DataError, match="is a folder"):
        load(str(tmp_path))
    # A wrong name is a mistake in the settings: no study may go on without that set.
    with pytest.raises(ConfigError, match="Did you mean gsm8k"):
        load("gsm8")
    with pytest.raises(ConfigError, match="empty"):
        load("  ")
    with pytest.raises(ConfigError, match="limit of 0"):
        load("stories", limit=0)


def test_the_hub_is_not_asked_when_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_network(*args: object, **options: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr("socket.socket.connect", no_network)
    monkeypatch.setenv("INTARSIA_DATA", str(tmp_path))
    with pytest.raises(DataError, match="hub does not answer and the local cache does not hold it") as caught:
        load("nobody/nothing:config@main", offline=True)
    assert "local file" in caught.value.hint
    with pytest.raises(DataError, match="gsm8k is not at hand") as caught:
        load("gsm8k", offline=True)
    assert "INTARSIA_DATA" in caught.value.hint
    with pytest.raises(DataError, match="mawps/addsub is not at hand"):
        load("mawps", offline=True)
    assert not known_sets.at_hand("gsm8k")


def test_mappings_are_read_and_checked() -> None:
    assert parse_mapping("question=q, answer=a") == MAP
    for text, message in (
        ("question", "Cannot read"),
        ("queston=q", "Did you mean 'question'"),
        ("id=a,id=b", "twice"),
    ):
        with pytest.raises(ConfigError, match=message):
            parse_mapping(text)
    with pytest.raises(ConfigError, match="no columns to map"):
        load("stories", mapping=MAP)


def test_samples_are_nested_ordered_and_the_same_everywhere() -> None:
    items = items_from_rows([{"question": f"q{i}?"} for i in range(200)], name="x")
    whole = data.DataSet(name="x", items=items)
    small, large = whole.sample(20, seed=4), whole.sample(50, seed=4)
    ids = [item.id for item in small.items]
    assert set(ids) <= {item.id for item in large.items}
    assert ids == [item.id for item in items if item.id in set(ids)]
    assert ids != [item.id for item in whole.sample(20, seed=5).items]
    # Fixed by hash, not by a platform's random numbers: this very item on every machine.
    assert small.items[0].question == "q1?"
    reordered = data.DataSet(name="x", items=items[::-1]).sample(20, seed=4)
    assert {item.id for item in reordered.items} == set(ids)
    assert whole.sample(None) is whole
    with pytest.raises(ConfigError):
        whole.sample(0)


def test_the_hash_sees_every_change() -> None:
    item = Item(id="1", question="q?", answer="a")
    changed = [
        item.model_copy(update=change)
        for change in ({"question": "Q?"}, {"answer": "b"}, {"kind": "word"}, {"id": "2"})
    ]
    hashes = {data.content_hash([one]) for one in (item, *changed)}
    assert len(hashes) == 5


@given(st.lists(st.text(min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=12))
def test_any_readable_texts_become_items_with_unique_ids(questions: list[str]) -> None:
    rows = [{"question": question} for question in questions]
    if any("\x00" in question for question in questions):
        with pytest.raises(DataError, match="NUL"):
            items_from_rows(rows, name="x")
    else:
        items = items_from_rows(rows, name="x")
        assert len({item.id for item in items}) == len(questions)
        assert [item.question for item in items] == questions


def test_held_out_examples_are_never_asked(tmp_path: Path) -> None:
    path = write(tmp_path, "x.jsonl", jsonl([{"question": f"q{i}?", "answer": str(i)} for i in range(10)]))
    found = load(path, shots=3)
    assert len(found.items) == 7
    assert not {item.id for item in found.items} & {shot.id for shot in found.shots}
    assert load(path, shots=3, seed=9, limit=4).shots == found.shots
    assert len(load(path, shots=50).items) == 1


def test_generated_sets_have_names_and_defaults() -> None:
    assert len(load("stories").items) == 200
    assert load("geography", limit=5).items == load("geography", limit=9).items[:5]
    assert {item.slices["task"] for item in load("reasoning-gym:gcd,lcm", limit=4).items} == {"gcd", "lcm"}
    assert set(data.GENERATED) < set(data.names())


@pytest.mark.parametrize("name", sorted(TASKS))
def test_reasoning_tasks_have_answers_that_pass_the_check(name: str) -> None:
    found = reasoning_tasks(6, tasks=name)
    assert len(found.items) == 6
    assert len({item.id for item in found.items}) == 6
    for item in (*found.items, *found.shots):
        assert check(str(item.answer), item).correct, (item.question, item.answer)
    assert not {item.question for item in found.items} & {shot.question for shot in found.shots}


def test_reasoning_tasks_take_turns_and_repeat() -> None:
    found = reasoning_tasks(40, seed=1)
    assert [item.slices["task"] for item in found.items[: len(DEFAULT)]] == list(DEFAULT)
    assert len(found.shots) == SHOTS * len(DEFAULT)
    assert reasoning_tasks(20, seed=1).items == found.items[:20]
    assert reasoning_tasks(40, seed=2).items != found.items
    assert reasoning_tasks(40, seed=2).shots == found.shots
    with pytest.raises(ConfigError, match="Did you mean chain_sum"):
        reasoning_tasks(4, tasks="chain_sums")
    with pytest.raises(ConfigError, match="one right answer"):
        reasoning_tasks(4, tasks="countdown")


def test_neighboring_seeds_and_levels_ask_other_questions() -> None:
    """The library adds item numbers to seeds: with the seed as it is, seed 1 would ask nearly all that seed 0 does."""
    tasks = ("needle_haystack", "string_insertion", "spell_backward")
    first, second = (reasoning_tasks(120, seed=seed, tasks=tasks) for seed in (0, 1))
    assert not {item.question for item in first.items} & {item.question for item in second.items}
    needles = [item for item in first.items if item.slices["task"] == "needle_haystack"]
    openings = [item.question.split(".")[0] for item in needles]
    assert len(set(openings)) == len(needles), "an easy item would be the beginning of a standard one"


def test_a_large_set_of_number_sequences_ends() -> None:
    assert len(reasoning_tasks(400, seed=4, tasks="number_sequence").items) == 400


@needs_real
@pytest.mark.parametrize(
    ("name", "count"), [("gsm8k", 1319), ("math500", 496), ("svamp", 996), ("mawps/multiarith", 576)]
)
def test_well_known_sets(name: str, count: int) -> None:
    found = load(name)
    assert len(found.items) == count
    assert len({item.id for item in found.items}) == count
    assert len(found.shots) == known_sets.SHOTS
    assert not {item.question for item in found.items} & {shot.question for shot in found.shots}
    for item in found.items:
        if item.kind == "number":
            assert check(f"The answer is {item.answer}.", item).correct
            if "solution" in item.meta:
                assert check(str(item.meta["solution"]), item).correct
    assert found.sample(30, seed=1) == load(name, limit=30, seed=1)


@needs_real
def test_worked_solutions_of_math500_are_right_and_shifted_ones_are_wrong() -> None:
    items = load("math500", limit=60).items
    assert all(check(str(item.meta["solution"]), item).correct for item in items)
    shifted = [check(f"\\boxed{{{other.answer}}}", item).correct for item, other in itertools.pairwise(items)]
    assert sum(shifted) <= 2


@needs_real
def test_mawps_joins_its_parts_without_repeats() -> None:
    found = load("mawps")
    assert len({item.slices["part"] for item in found.items}) == 4
    texts = [known_sets._text_key(item.question) for item in found.items]
    assert len(set(texts)) == len(texts)
    assert not {known_sets._text_key(shot.question) for shot in found.shots} & set(texts)


def test_a_damaged_known_set_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "svamp"
    folder.mkdir()
    write(folder, "SVAMP.json", json.dumps([{"Body": "b", "Question": "q?", "Answer": "x", "Type": "t"}]))
    with pytest.raises(DataError, match="Row 1 of svamp has not the fields of svamp"):
        load("svamp", root=str(tmp_path))
    assert known_sets.at_hand("svamp", str(tmp_path))

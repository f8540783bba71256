"""Sets by name: tiny files of each published shape and of the hub's, and the real files where they are at hand."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from intarsia.core.data import Item
from intarsia.core.data.rows import Rows
from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty import question_sets
from intarsia.uncertainty.prompting import prompt, prompts
from intarsia.uncertainty.question_sets import NAMES, SHOTS, load


def write(path: Path, rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    else:
        path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def fact(number: int, relation: str = "P36") -> dict[str, Any]:
    return {
        "known_id": number, "subject": f"Land {number}", "attribute": f"Town {number}", "template": "{}'s capital,",
        "prediction": "", "prompt": f"Land {number}'s capital,", "relation_id": relation,
    }  # fmt: skip


def web(number: int) -> dict[str, Any]:
    return {
        "qId": f"q{number}",
        "qText": f" who is  person {number}?",
        "answers": [f"Ann {number}", "Bob", f"ann {number}"],
    }


def exam(number: int, *, nested: bool, numbered: bool = False) -> dict[str, Any]:
    labels = ["1", "2", "3"] if numbered else ["A", "B", "C"]
    texts = [f"stone {number}", "water", "air"]
    options = [{"label": label, "text": text} for label, text in zip(labels, texts)]
    if nested:
        return {
            "id": f"x{number}",
            "question": {"stem": f"What is {number}?", "choices": options},
            "answerKey": labels[1],
        }
    return {
        "id": f"x{number}", "question": f"What is {number}?", "choices": {"text": texts, "label": labels},
        "answerKey": labels[1],
    }  # fmt: skip


def trivia(number: int, *, hub: bool) -> dict[str, Any]:
    if hub:
        answer = {"value": f"Mount {number}", "aliases": [f"Mount {number}", f"Mt {number}"], "normalized_value": "x"}
        return {"question": f"Which mountain is {number}?", "question_id": f"t{number}", "answer": answer}
    return {
        "Question": f"Which mountain is {number}?", "QuestionId": f"t{number}",
        "Answer": {"Value": f"Mount {number}", "Aliases": [f"Mt {number}"], "NormalizedValue": "x"},
    }  # fmt: skip


STORY = "Ann has a dog.\n\nIt is called Rex."
COQA_FILE = {
    "source": "mctest", "id": "s1", "story": STORY,
    "questions": [{"input_text": "Who has a dog?", "turn_id": 1}, {"input_text": "What is it called?", "turn_id": 2}],
    "answers": [{"input_text": "Ann", "turn_id": 1}, {"input_text": "Rex", "turn_id": 2}],
    "additional_answers": {
        "0": [{"input_text": "ann", "turn_id": 1}, {"input_text": "It is Rex", "turn_id": 2}],
    },
}  # fmt: skip
COQA_HUB = {
    "source": "mctest", "story": STORY, "questions": ["Who has a dog?", "What is it called?"],
    "answers": {"input_text": ["Ann", "Rex"], "answer_start": [0, 1], "answer_end": [1, 2]},
}  # fmt: skip


# --- Shapes ----------------------------------------------------------------------------------------------------------


def test_facts_to_complete(tmp_path: Path) -> None:
    rows = [fact(n) for n in range(9)] + [fact(n, "P30") for n in range(20, 27)] + [fact(99, "P190")]
    rows.append({**fact(3), "attribute": "Second Town"})
    write(tmp_path / "known_1000/known_1000.json", rows)
    found = load("known_1000", root=str(tmp_path))
    assert Counter(item.slices["task"] for item in found.items) == {"capital": 5, "continent": 3}
    assert Counter(shot.slices["task"] for shot in found.shots) == {"capital": SHOTS, "continent": SHOTS}
    assert not {item.question for item in found.items} & {shot.question for shot in found.shots}
    twice = next(item for item in (*found.items, *found.shots) if item.question.startswith("Land 3'"))
    assert (twice.answer, twice.aliases) == ("Town 3", ("Second Town",))
    item = next(item for item in found.items if item.slices["task"] == "continent")
    shown = [shot for shot in found.shots if shot.slices["task"] == "continent"]
    text = prompts(found)[found.items.index(item)]
    assert text == "\n".join([*(f"{shot.question} {shot.answer}" for shot in shown), item.question])
    chat = prompt(item, found.shots, style="turns")
    assert [message["role"] for message in chat] == ["system", *["user", "assistant"] * SHOTS, "user"]
    assert chat[-1]["content"] == item.question
    single = prompt(item, found.shots, style="single")
    assert single[0]["content"].endswith(text)


def test_questions_with_several_answers(tmp_path: Path) -> None:
    write(tmp_path / "webquestions/test.json", [web(n) for n in range(10)])
    write(tmp_path / "webquestions/val.json", [web(n) for n in range(20, 26)])
    found = load("webquestions", root=str(tmp_path))
    assert (len(found.items), len(found.shots)) == (6, SHOTS)
    item = found.items[0]
    number = item.question.split()[-1].rstrip("?")
    assert item.question == f"who is person {number}?"
    assert (item.answer, item.aliases, item.kind) == (f"Ann {number}", ("Bob",), "word")
    assert len(load("webquestions", split="val", root=str(tmp_path)).items) == 2
    with pytest.raises(DataError, match="not at hand"):
        load("webquestions", split="devtest", root=str(tmp_path))
    with pytest.raises(ConfigError, match="devtest, train"):
        load("webquestions", split="dev", root=str(tmp_path))


def test_examples_show_short_answers(tmp_path: Path) -> None:
    long = [{"question": f"why {n}", "answer": ["because of this and that and more"]} for n in range(40)]
    path = write(tmp_path / "dev.jsonl", [*long, *({"question": f"who {n}", "answer": [f"Bo {n}"]} for n in range(5))])
    assert {shot.question[:3] for shot in load("nq_open", path=path).shots} == {"who"}


def test_questions_of_two_types(tmp_path: Path) -> None:
    rows = [{"question": f"Which {n}?", "answer": "yes", "type": kind} for kind in ("bridge",) for n in range(6)]
    rows += [{"question": f"Are {n} alike?", "answer": "no", "type": "comparison"} for n in range(6)]
    path = write(tmp_path / "hotpotqa_simplified/hotpot_dev_v1_simplified.json", rows)
    for given in (path, path.parent, tmp_path):
        found = load("hotpotqa_simplified", path=given)
        assert Counter(item.slices["task"] for item in found.items) == {"bridge": 2, "comparison": 2}
    text = prompt(found.items[0], found.shots, shots=2)
    assert text.count("Question:") == 3
    assert text.count("Which") == 3 * found.items[0].question.startswith("Which")


@pytest.mark.parametrize("name", ["commonsenseqa", "arc_challenge"])
@pytest.mark.parametrize(("nested", "numbered"), [(True, False), (False, False), (False, True)])
def test_options(tmp_path: Path, name: str, nested: bool, numbered: bool) -> None:
    path = write(tmp_path / "part.jsonl", [exam(n, nested=nested, numbered=numbered) for n in range(7)])
    found = load(name, path=path)
    assert len(found.items) == 3
    item = found.items[0]
    number = item.question.split()[-1].rstrip("?")
    assert (item.kind, item.answer, item.choices) == ("choice", "B", (f"stone {number}", "water", "air"))
    assert str(prompts(found)[0]).endswith(f"What is {number}?\nA. stone {number}\nB. water\nC. air\nAnswer:")


@pytest.mark.parametrize("hub", [True, False])
def test_trivia(tmp_path: Path, hub: bool) -> None:
    rows = [trivia(n, hub=hub) for n in range(6)]
    path = write(tmp_path / "trivia.json", rows if hub else {"Data": rows, "Version": 1.0})
    item = load("triviaqa", path=path).items[0]
    number = item.question.split()[-1].rstrip("?")
    assert (item.answer, item.aliases) == (f"Mount {number}", (f"Mt {number}",))
    if hub:
        rows[2]["answer"]["value"] = "<unk>"
        with pytest.raises(DataError, match="Row 3 of triviaqa"):
            load("triviaqa", path=write(tmp_path / "test.json", rows))


@pytest.mark.parametrize("row", [COQA_FILE, COQA_HUB])
def test_conversations(tmp_path: Path, row: dict[str, Any]) -> None:
    path = write(tmp_path / "coqa.json", {"version": "1.0", "data": [row]})
    found = load("coqa", path=path)
    assert found.shots == ()
    first, second = prompts(found)
    assert first == f"{STORY}\n\nQuestion: Who has a dog?\nAnswer:"
    assert second == f"{first} Ann\n\nQuestion: What is it called?\nAnswer:"
    assert [item.answer for item in found.items] == ["Ann", "Rex"]
    assert found.items[0].aliases == ()
    assert found.items[1].aliases == (("It is Rex",) if "additional_answers" in row else ())
    chat = prompts(found, style="turns")[1]
    assert chat[0]["content"].endswith(str(second))


def test_complete_prompts_and_a_users_own_questions(tmp_path: Path) -> None:
    rows = [{"input": "Q: 1+1?\nA: 2\n\nQ: Who?\nA:", "output": ["Ann", "Anna"]}, {"input": "Q: Hm?", "output": "Bo"}]
    found = load(str(write(tmp_path / "mine.jsonl", rows)))
    assert prompts(found) == [row["input"] for row in rows]
    assert found.items[0].aliases == ("Anna",)
    assert prompts(found, style="turns")[1] == [{"role": "user", "content": "Q: Hm?"}]
    own = load(str(write(tmp_path / "own.jsonl", [{"question": f"Who is {n}?", "answer": "Ann"} for n in range(9)])))
    assert (len(own.items), len(own.shots)) == (5, SHOTS)
    assert str(prompts(own)[0]).count("Answer: Ann") == SHOTS


# --- The hub ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "split", "asked"),
    [
        ("triviaqa", None, ("mandarjoshi/trivia_qa", "rc.nocontext", None, "validation")),
        ("mandarjoshi/trivia_qa:rc@abc", "train", ("mandarjoshi/trivia_qa", "rc", "abc", "train")),
        ("coqa", None, ("stanfordnlp/coqa", None, None, "validation")),
        ("stanfordnlp/coqa", None, ("stanfordnlp/coqa", None, None, "validation")),
        ("arc_challenge", None, ("allenai/ai2_arc", "ARC-Challenge", None, "test")),
        ("allenai/ai2_arc:ARC-Easy", "dev", ("allenai/ai2_arc", "ARC-Easy", None, "validation")),
        ("nq_open", None, ("google-research-datasets/nq_open", None, None, "validation")),
    ],
)
def test_the_hub_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, source: str, split: str | None, asked: tuple[Any, ...]
) -> None:
    rows = {
        "trivia": [trivia(n, hub=True) for n in range(6)],
        "coqa": [COQA_HUB],
        "ai2_arc": [exam(n, nested=False) for n in range(6)],
        "nq_open": [{"question": f"who {n}", "answer": ["Bo", "Al"]} for n in range(6)],
    }
    seen = []

    def hub(repo: str, *, config: Any = None, revision: Any = None, split: Any = None, offline: Any = None) -> Rows:
        seen.append((repo, config, revision, split))
        return Rows("x", repo, next(some for key, some in rows.items() if key in repo))

    monkeypatch.delenv("INTARSIA_DATA", raising=False)
    monkeypatch.setattr(question_sets, "read_hub", hub)
    found = load(source, split=split)
    assert seen == [asked]
    assert len(found.items) == 2
    assert found.origin == asked[0]


def test_without_file_and_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTARSIA_DATA", raising=False)
    with pytest.raises(DataError, match=r"known_1000 \(test\) is not at hand") as caught:
        load("known_1000")
    assert "INTARSIA_DATA" in caught.value.hint


# --- Bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("known_1000", {"prompt": "x", "attribute": "y"}),
        ("known_1000", {**fact(1), "attribute": ""}),
        ("webquestions", {"qText": "who?", "answers": []}),
        ("webquestions", {"qText": "who?", "answers": [3]}),
        ("webquestions", {"qText": "  ", "answers": ["x"]}),
        ("nq_open", {"question": "who", "answer": {"a": 1}}),
        ("nq_open", {"question": None, "answer": ["x"]}),
        ("hotpotqa_simplified", {"question": "who", "answer": "x"}),
        ("commonsenseqa", {**exam(1, nested=True), "answerKey": "Z"}),
        ("commonsenseqa", {**exam(1, nested=False), "answerKey": ""}),
        ("arc_challenge", {**exam(1, nested=False), "choices": {"text": ["a", "b"], "label": ["A"]}}),
        ("triviaqa", {"Question": "who?", "Answer": {"Value": "x"}}),
        ("coqa", {**COQA_HUB, "questions": ["Who?"]}),
        ("coqa", {**COQA_HUB, "answers": ["Ann", "Rex"]}),
        ("coqa", {**COQA_HUB, "questions": [], "answers": []}),
    ],
)
def test_rows_of_another_shape(tmp_path: Path, name: str, row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=f"Row 1 of {name}") as caught:
        load(name, path=write(tmp_path / "x.jsonl", [row]))
    assert caught.value.hint


def test_names_and_options_that_make_no_sense(tmp_path: Path) -> None:
    for source, options in (
        ("trivia_qa", {}), ("Facts", {}), ("nothing of the kind", {}), ("facts", {"split": "test"}),
        ("facts", {"limit": 0}), ("facts", {"path": tmp_path}), ("gsm8k", {"path": tmp_path}),
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            load(source, **options)
    with pytest.raises(DataError, match="holds no file of nq_open"):
        load("nq_open", path=tmp_path)
    with pytest.raises(DataError, match="no file"):
        load(str(tmp_path / "none.jsonl"))
    with pytest.raises(DataError, match="too few"):
        load("nq_open", path=write(tmp_path / "few.jsonl", [{"question": "who", "answer": ["x"]}]))
    with pytest.raises(ConfigError):
        prompt(Item(id="1", question="x", answer="y"), shots=-1)


# --- Real files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "total", "shots"),
    [("known_1000", 1207, 128), ("webquestions", 2032, 4), ("commonsenseqa", 1221, 4), ("nq_open", 3610, 4)],
)
def test_the_real_files(data_dir: Path, name: str, total: int, shots: int) -> None:
    found = load(name, root=str(data_dir))
    assert len(found.items) + len(found.shots) == total
    assert len(found.shots) == shots
    assert len({item.id for item in found.items}) == len(found.items)
    few = load(name, root=str(data_dir), limit=30)
    assert {item.id for item in few.items} < {item.id for item in found.items}
    assert few.shots == found.shots
    for text in prompts(few):
        assert str(text).strip() == text


def test_the_real_hotpotqa(data_dir: Path) -> None:
    found = load("hotpotqa_simplified", path=data_dir / "hotpotqa_simplified", limit=100)
    assert {item.slices["task"] for item in found.items} == {"bridge", "comparison"}
    assert len(found.shots) == 2 * SHOTS


def test_names_are_all_there() -> None:
    assert set(NAMES) == {
        "facts", "known_1000", "webquestions", "nq_open", "hotpotqa_simplified", "commonsenseqa", "triviaqa", "coqa",
        "arc_challenge",
    }  # fmt: skip
    assert load("facts", limit=12).name == "facts"

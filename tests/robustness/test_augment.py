"""Augmentation: what is drawn, that nothing else changes, and that batches and processes draw the same."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, DataError
from intarsia.robustness.augment import Augmenter
from intarsia.robustness.candidates import CallableSource, Rewrite
from intarsia.robustness.protect import protected_spans

SYNONYMS = {
    "found": ["discovered", "spotted"],
    "bought": ["purchased"],
    "apples": ["fruits", "oranges"],
    "red": ["scarlet"],
    "three": ["four"],
}
TEXT = "Tom found three red apples and bought $5 of red paint. How many apples did Tom buy?"


def propose(word: str, question: str) -> list[str]:
    return SYNONYMS.get(word.lower(), [])


def augmenter(**options: Any) -> Augmenter:
    return Augmenter([CallableSource("synonyms", propose)], **{"rate": 1.0, **options})


def texts(count: int) -> list[str]:
    return [f"Ann{'a' * number} found apples and bought red shells." for number in range(count)]


def test_one_word_is_exchanged_and_the_rest_stays_as_it_is() -> None:
    seen = set()
    for seed in range(40):
        made = augmenter(seed=seed)
        (change,) = made.changes(TEXT)
        (before,), (after,) = change.before, change.after
        assert made.rewrite(TEXT) == change.text
        assert change.text[: after.start] == TEXT[: before.start]
        assert change.text[after.end :] == TEXT[before.end :]
        assert change.replacement in SYNONYMS[change.word]
        seen.add((change.word, change.replacement))
    # All words that may be changed are drawn sooner or later, the number word never.
    assert {word for word, _ in seen} == {"found", "bought", "apples", "red"}
    assert {("found", "discovered"), ("found", "spotted")} <= seen


def test_without_protection_the_number_is_drawn_too() -> None:
    words = {augmenter(seed=seed, protect="none").changes(TEXT)[0].word for seed in range(60)}
    assert "three" in words


def test_scope_global_changes_every_occurrence() -> None:
    made = Augmenter(
        [CallableSource("s", lambda word, question: ["scarlet"] if word == "red" else [])],
        rate=1,
        scope={"s": "global"},
    )
    assert made.rewrite(TEXT) == TEXT.replace("red", "scarlet")


@given(words=st.integers(1, 6), seed=st.integers(0, 50))
def test_no_word_is_changed_twice(words: int, seed: int) -> None:
    changes = augmenter(words=words, seed=seed).changes(TEXT)
    # "found", "bought", and two occurrences each of "red" and "apples" have candidates.
    assert len(changes) == min(words, 6)
    assert all(change.word in SYNONYMS for change in changes)


def test_the_rate_is_the_share_that_is_rewritten() -> None:
    rows = texts(2000)
    for rate in (0.0, 0.3, 1.0):
        made = augmenter(rate=rate)
        share = sum(made.rewrite(row) != row for row in rows) / len(rows)
        assert share == pytest.approx(rate, abs=0 if rate in (0.0, 1.0) else 4 * (0.21 / 2000) ** 0.5)


@given(st.text(max_size=80), st.integers(0, 5))
def test_any_text_is_rewritten_the_same_way_twice_and_protected_spans_stand(text: str, seed: int) -> None:
    source = CallableSource("s", lambda word, question: [word[::-1] + "x"])
    one, two = Augmenter([source], rate=1, seed=seed, words=3), Augmenter([source], rate=1, seed=seed, words=3)
    assert one.rewrite(text) == two.rewrite(text)
    kept = [text[span.start : span.end] for span in protected_spans(text)]
    rewritten, at = one.rewrite(text), 0
    for part in kept:
        at = rewritten.index(part, at) + len(part)


def test_seed_variant_and_text_make_the_draw() -> None:
    rows = texts(60)
    first = [augmenter().rewrite(row) for row in rows]
    assert first != [augmenter(seed=1).rewrite(row) for row in rows]
    assert first != [augmenter().rewrite(row, variant=1) for row in rows]
    assert [augmenter().rewrite(row) for row in reversed(rows)] == first[::-1]


def test_the_words_of_the_answer_stay() -> None:
    row = {"question": "Tom found apples. What did Tom find?", "answer": "Apples."}
    made = [augmenter(seed=seed) for seed in range(20)]
    assert {one(row)["question"].split()[2] for one in made} == {"apples."}
    assert {one(row)["question"] != row["question"] for one in made} == {True}
    batch = {"question": [row["question"]] * 2, "answer": [row["answer"], None]}
    assert {one(batch)["question"][0].split()[2] for one in made} == {"apples."}
    assert {one(batch)["question"][1].split()[2] for one in made} == {"apples.", "fruits.", "oranges."}
    assert len({augmenter(seed=seed, answer="")(row)["question"].split()[2] for seed in range(20)}) == 3


class Refuses:
    """A gate that lets nothing pass but one word."""

    name = "refuses"

    def check(self, question: str, rewrites: Sequence[Rewrite]) -> list[Any]:
        from types import SimpleNamespace

        return [SimpleNamespace(keep=rewrite.replacement == "scarlet", score=0.0) for rewrite in rewrites]


def test_gates_decide_what_is_drawn_from() -> None:
    assert {augmenter(seed=seed, gates=[Refuses()]).changes(TEXT)[0].replacement for seed in range(20)} == {"scarlet"}


def test_map_rewrites_one_column_alike_in_rows_batches_and_processes() -> None:
    from datasets import Dataset

    rows = texts(24)
    data = Dataset.from_dict({"question": rows, "answer": [str(n) for n in range(24)], "hint": rows})
    made = augmenter(rate=0.7)
    wanted = [made.rewrite(row) for row in rows]
    assert wanted != rows
    for options in ({}, {"batched": True, "batch_size": 5}, {"num_proc": 2, "batched": True}):
        found = data.map(made, load_from_cache_file=False, **options)
        assert found["question"][:] == wanted
        assert found["answer"][:] == data["answer"][:]
        assert found["hint"][:] == rows
    both = data.map(augmenter(columns=["question", "hint"]), load_from_cache_file=False)
    assert both["hint"][:] == both["question"][:] != rows


def test_it_can_be_pickled() -> None:
    made = augmenter(rate=0.7, words=2, seed=3)
    again = pickle.loads(pickle.dumps(made))
    assert [again.rewrite(row) for row in texts(30)] == [made.rewrite(row) for row in texts(30)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 1.5}, "rate"),
        ({"words": 0}, "words"),
        ({"columns": []}, "column"),
        ({"protect": "maths"}, "protection"),
    ],
)
def test_wrong_options_are_told_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        augmenter(**options)


def test_no_sources_is_an_error() -> None:
    with pytest.raises(ConfigError, match="sources"):
        Augmenter([])


@pytest.mark.parametrize("row", [{"q": "x"}, {"question": 3}, {"question": ["a", None]}, {"question": None}])
def test_rows_without_text_are_told(row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="column"):
        augmenter()(row)

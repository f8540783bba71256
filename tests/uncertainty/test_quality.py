"""Quality of answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.data import Item
from intarsia.core.errors import ConfigError, DataError
from intarsia.uncertainty.quality import is_right, qualities, quality, token_f1

BEATLES = Item(
    id="1", question="Who sang Help!?", answer="The Beatles", kind="word", meta={"aliases": ["Fab Four", "John Lennon"]}
)
OPTION = Item(id="2", question="Which?", answer="B", kind="choice", meta={"choices": ["stone", "cold water"]})
NUMBER = Item(id="3", question="How many?", answer="12", kind="number")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("The Beatles", 1.0),
        (" beatles.\nQuestion: Who else?", 1.0),
        ("**Answer: the Fab Four**", 1.0),
        ("Paul Lennon", 0.5),  # one of two words, of one gold answer of two
        ("Four", 2 / 3),
        ("Queen", 0.0),
        ("", 0.0),
        ("I don't know", 0.0),
        ("I'm sorry, I cannot answer for the Four", 0.0),
    ],
)
def test_words(text: str, value: float) -> None:
    assert quality(text, BEATLES) == pytest.approx(value)
    assert quality(text, BEATLES, "match") == float(value == 1.0)
    assert is_right(text, BEATLES) == (value == 1.0)


def test_options_and_numbers_are_right_or_wrong() -> None:
    assert [quality(text, OPTION) for text in ("B", "(B) cold water", "cold water", "A", "water")] == [1, 1, 1, 0, 0]
    assert [quality(text, NUMBER) for text in ("12", "12 apples", "13")] == [1, 1, 0]


def test_f1_counts_words_as_often_as_they_stand() -> None:
    assert token_f1("new york new york", "New York") == pytest.approx(2 / 3)
    assert token_f1("Rome", "Oslo") == 0


@given(st.text(max_size=30), st.text(max_size=30))
def test_f1_is_symmetric_and_bounded(a: str, b: str) -> None:
    assert 0 <= token_f1(a, b) <= 1
    assert token_f1(a, b) == token_f1(b, a)
    assert 0 <= quality(a, BEATLES) <= 1


def test_bad_input() -> None:
    with pytest.raises(ConfigError):
        quality("x", BEATLES, "rouge")  # type: ignore[arg-type]
    with pytest.raises(DataError):
        quality("x", Item(id="1", question="?"))
    with pytest.raises(DataError):
        qualities(["x"], [BEATLES, OPTION])
    assert qualities(["Queen", "B"], [BEATLES, OPTION]) == [0.0, 1.0]

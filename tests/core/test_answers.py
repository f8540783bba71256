"""Answers are found where a model puts them, and compared by value rather than by spelling."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.answers import (
    check,
    is_refusal,
    last_boxed,
    marked_part,
    math_check,
    normalize,
    number_value,
    numbers_in,
    read_answer,
    same_number,
)
from intarsia.core.answers.math_check import MathChecker, plain_form
from intarsia.core.data import Item
from intarsia.core.data.stories import number_words

TOWER = "\\boxed{10^{10^{10^{10^{10}}}}}"


def item(answer: str | None, kind: str, **meta: object) -> Item:
    return Item.model_validate({"id": "1", "question": "q", "answer": answer, "kind": kind, "meta": meta})


@pytest.mark.parametrize(
    ("said", "gold"),
    [
        ("7", "7"),
        ("Tom has 7 apples.", "7"),
        ("seven", "7"),
        ("She had forty-one of them.", "41"),
        ("two hundred and five", "205"),
        ("#### 1,234", "1234"),
        ("The answer is $1,234.50.", "1234.5"),
        ("She earns 3 + 4 = 7 dollars.\n#### 7\nThat is more than 5.", "7"),
        ("-5", "-5"),
        ("x is \u22127", "-7"),
        ("-$5", "-5"),
        ("$-5", "-5"),
        ("9 - 5 = 4", "4"),
        ("1/2", "0.5"),
        ("1 1/2 cups", "1.5"),
        ("\\boxed{\\frac{1}{2}}", "0.5"),
        ("so \\boxed{3}, no, \\boxed{4}", "4"),
        ("3 million", "3000000"),
        ("25%", "25"),
        ("7.0", "7"),
        (".5", "0.5"),
        ("1\u202f234", "1234"),
        ("**12**", "12"),
        ("The answer is 5. I first had 8.", "5"),
        ("The answer is 2 + 3 = 5.", "5"),
        ("Answer: 12 apples, not 13", "12"),
        ("1.5e3", "1500"),
        ("0.333", "0.3333333"),
    ],
)
def test_numbers_are_read(said: str, gold: str) -> None:
    verdict = check(said, item(gold, "number"))
    if gold == "0.3333333":
        assert not verdict.correct, "fewer decimals than the gold answer shows are not enough"
    else:
        assert verdict.correct, verdict


@pytest.mark.parametrize(
    ("said", "gold"),
    [("3-5", "-5"), ("793546073", "793546072"), ("1234", "12"), ("6.5", "6"), ("10", "1"), ("-7", "7")],
)
def test_other_numbers_are_wrong(said: str, gold: str) -> None:
    assert check(said, item(gold, "number")).status == "wrong"


def test_no_number_is_unparsed_and_noise_does_no_harm() -> None:
    assert check("none at all", item("3", "number")).status == "unparsed"
    assert check("", item("3", "number")).status == "unparsed"
    began = time.perf_counter()
    assert not check("1" * 200_000, item("3", "number")).correct
    assert not check("1e999999999", item("3", "number")).correct
    assert not check("5/0", item("5", "number")).correct
    assert time.perf_counter() - began < 10


def test_a_rounded_answer_counts_only_beside_a_long_gold_one() -> None:
    assert same_number(Fraction(1, 3), Fraction("0.333"), "0.333")
    assert not same_number(Fraction("0.54"), Fraction("0.5"), "0.5")
    assert not same_number(Fraction(10**9 + 1), Fraction(10**9), "1000000000")


@given(st.integers(-(10**12), 10**12))
def test_every_spelling_of_a_whole_number_is_the_same(number: int) -> None:
    for text in (str(number), f"{number:,}", f"The answer is {number}.", f"\\boxed{{{number}}}", f"it is {number}.0"):
        assert check(text, item(str(number), "number")).correct, text
    assert number_value(f"{number:,}") == number


@given(st.integers(0, 99))
def test_number_words_are_read_back(number: int) -> None:
    assert [value for _, value in numbers_in(f"there were {number_words(number)} of them")] == [number]


@given(st.text(max_size=80))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for kind in ("number", "word", "exact", "choice", "free"):
        read = read_answer(text, kind, "7", choices=("x", "y"))  # type: ignore[arg-type]
        verdict = check(text, item("A", kind, choices=["x", "y"]))
        assert verdict.correct == (verdict.status == "correct")
        assert read.text is None or isinstance(read.text, str)


@pytest.mark.parametrize(
    ("said", "gold", "meta"),
    [
        ("Paris", "Paris", {}),
        ("paris.", "Paris", {}),
        ("The capital of France is Paris.", "Paris", {}),
        ("Paris, France", "Paris", {}),
        ("Paris is the capital.", "Paris", {}),
        ("Bras\u00edlia", "Brasilia", {}),
        ("It is the **Netherlands**", "The Netherlands", {}),
        ("N\u2019Djamena", "N'Djamena", {}),
        ("Answer: Yes, because ...", "Yes", {}),
        ("USA", "United States", {"aliases": ["USA"]}),
        ("Turkish lira", "Lira", {"match": "ending"}),
        ("The currency is called the Turkish lira.", "Lira", {"match": "ending"}),
        ("at the market", "market", {"match": "ending"}),
        ("\u2160\u2160", "II", {}),
    ],
)
def test_words_are_read(said: str, gold: str, meta: dict) -> None:
    assert check(said, item(gold, "word", **meta)).correct


@pytest.mark.parametrize(
    ("said", "gold"),
    [
        ("Parisian", "Paris"),
        ("Paris Hilton", "Paris"),
        ("Guinea-Bissau", "Guinea"),
        ("Guinea Bissau", "Guinea"),
        ("not Paris", "Paris"),
        ("No, it is not", "Yes"),
        ("Turkish lira", "Lira"),
        ("", "Paris"),
    ],
)
def test_other_words_are_wrong(said: str, gold: str) -> None:
    assert not check(said, item(gold, "word")).correct


def test_a_ramble_is_no_answer() -> None:
    ramble = "Well there are so many things that one could say about all of this and then again"
    assert check(ramble, item("Paris", "word")).status == "unparsed"
    assert check("London", item("Paris", "word")).status == "wrong"


def test_exact_takes_the_whole_line() -> None:
    assert check("Answer: a, b, c\nand more", item("a, b, c", "exact")).correct
    assert check("nus", item("nus", "exact")).correct
    assert not check("nuss", item("nus", "exact")).correct
    assert not check("a, c, b", item("a, b, c", "exact")).correct
    assert check("->", item("->", "exact")).correct
    assert not check("<-", item("->", "exact")).correct


@pytest.mark.parametrize(
    ("said", "correct"),
    [
        ("B", True),
        ("(B)", True),
        ("B) blue", True),
        ("The answer is B.", True),
        ("\\boxed{B}", True),
        ("blue", True),
        ("It is blue.", True),
        ("A", False),
        ("C", False),
        ("option A, not (B)", False),
    ],
)
def test_choices_are_read(said: str, correct: bool) -> None:
    assert check(said, item("B", "choice", choices=["red", "blue"])).correct is correct


def test_an_article_is_no_letter() -> None:
    assert read_answer("A dog barks", "choice", choices=("red", "blue")).text is None


@pytest.mark.parametrize(
    "said",
    [
        "I'm sorry, but I can't help with that.",
        "I\u2019m sorry, but I cannot answer.",
        "I cannot provide that.",
        "As an AI language model, I have no opinions.",
        "I don't know.",
        "Thank you. I am unable to say.",
        "There is not enough information to tell.",
    ],
)
def test_refusals_are_seen(said: str) -> None:
    assert is_refusal(said)
    assert check(said, item("Paris", "word")).status == "refused"


@pytest.mark.parametrize(
    "said", ["I can help.", "Tom cannot swim, so 5.", "He said: sorry, but no", "The child does not know. 7", "Paris"]
)
def test_other_answers_are_no_refusals(said: str) -> None:
    assert not is_refusal(said)


def test_a_refusal_that_is_right_is_right() -> None:
    verdict = check("I'm sorry, but I only see 7 apples.", item("7", "number"))
    assert (verdict.status, verdict.refused) == ("correct", True)


def test_without_a_gold_answer_nothing_is_graded() -> None:
    assert check("anything", item(None, "free")).status == "ungraded"
    assert check("", item(None, "free")).status == "unparsed"
    assert check("anything", item("something", "free")).status == "ungraded"


def test_marks_are_found_in_order() -> None:
    assert marked_part("a #### 3 \\boxed{4}") == ("4", "boxed")
    assert marked_part("the answer is 9 #### 3") == ("3", "hash")
    assert marked_part("the answer is 9. The answer is 10")[0] == "10"
    assert last_boxed("\\boxed{\\frac{1}{\\sqrt{2}}}") == "\\frac{1}{\\sqrt{2}}"
    assert last_boxed("\\boxed{1} and \\boxed{2") == "1", "an unfinished box is not an answer"
    assert last_boxed("no box") is None


@given(st.text(max_size=60))
def test_normalizing_is_idempotent(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)


@pytest.mark.parametrize(
    ("said", "gold", "correct"),
    [
        ("so $\\boxed{\\left(3,\\pi/2\\right)}$", "(3,\\frac{\\pi}{2})", True),
        ("The answer is $\\frac12$.", "0.5", True),
        ("\\boxed{Evelyn}", "\\text{Evelyn}", True),
        ("\\boxed{2x+1}", "1+2x", True),
        ("-q + p", "p - q", True),
        ("q - p", "p - q", False),
        ("\\boxed{3}", "3", True),
        ("\\boxed{4}", "3", False),
        ("It is $x^2$, that is $\\boxed{x \\cdot x}$", "x^2", True),
    ],
)
def test_formulas_are_compared_by_value(said: str, gold: str, correct: bool) -> None:
    assert check(said, item(gold, "math")).correct is correct


def test_the_gold_side_comes_first() -> None:
    """math-verify takes an answer x = 5 for the gold 5, and not the other way round; swapped sides would show."""
    assert check("\\boxed{x = 5}", item("5", "math")).correct
    assert not check("\\boxed{5}", item("(5, 6)", "math")).correct


def test_a_tower_of_powers_is_killed_and_the_next_formula_is_fine() -> None:
    checker = MathChecker(timeout=2.0)
    try:
        late = checker.check("5", TOWER)
        assert (late.equal, late.method, checker.kills) == (False, "string", 1)
        assert "time" in late.note
        assert checker.check("1+2x", "\\boxed{2x+1}").equal
        same = checker.check("10^{10^{10^{10^{10}}}}", "10^{10^{10^{10^{10}}}}", alone=True)
        assert (same.equal, same.method) == (True, "string")
    finally:
        checker.close()


def test_a_dead_worker_is_replaced() -> None:
    checker = MathChecker()
    try:
        assert checker.check("1+x", "x+1", alone=True).equal
        checker._free[0]._process.kill()
        checker._free[0]._process.wait()
        died = checker.check("1+x", "x+1", alone=True)
        assert (died.equal, died.note) == (False, "math-verify's process died")
        assert checker.check("1+x", "x+1", alone=True).equal
    finally:
        checker.close()


def test_several_threads_share_the_workers() -> None:
    checker = MathChecker(workers=2)
    outcomes: dict[int, bool] = {}

    def work(number: int) -> None:
        outcomes[number] = checker.check(f"{number}+x", f"x+{number}", alone=True).equal

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outcomes == dict.fromkeys(range(6), True)
        assert len(checker._free) <= 2
    finally:
        checker.close()


def test_no_worker_outlives_the_interpreter() -> None:
    script = (
        "from intarsia.core.answers import math_check as m\n"
        "assert m.check_math('1+x', 'x+1', alone=True).equal\n"
        "print(m._shared._free[0]._process.pid)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_checker_can_be_closed_and_comes_back() -> None:
    math_check.close()
    math_check.close()
    assert math_check.check_math("1+x", "x+1", alone=True).equal


def test_the_worker_keeps_its_channel_clean() -> None:
    """Whatever a library prints, an answer line is JSON; damaged requests get an answer too."""
    requests = (
        '{"gold": "1", "text": "\\\\boxed{", "alone": false}\nnot json\n{"gold": "2", "text": "2", "alone": true}\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "intarsia.core.answers.math_worker"],
        input=requests,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0] == {"ready": True}
    assert [line["equal"] for line in lines[1:]] == [False, False, True]


def test_plain_forms() -> None:
    assert plain_form("$\\left( 3, \\dfrac{1}{2} \\right)$.") == plain_form("(3,\\frac{1}{2})")


@pytest.mark.parametrize(
    ("said", "gold", "correct"),
    [
        ("not 5 but 7", "7", True),
        ("7, not 5", "7", True),
        ("The answer is not 5 but 7.", "7", True),
        ("The answer is 7, not 5.", "7", True),
        ("7 rather than 5", "7", True),
        ("It isn't seven", "7", False),
        ("The answer is not 7.", "7", False),
        ("minus 3", "-3", True),
        ("x is negative 3", "-3", True),
        ("9 minus 5 is 4", "4", True),
        ("9 minus 5", "-5", False),
        ("minus 3", "3", False),
        ("7\n\nTom has 3 apples. How many?", "7", True),
        ("7 apples\nQuestion: what is 3 + 4 + 1?", "7", True),
        ("3 + 4\n= 7", "7", True),
        ("Tom has 3.\nAnna has 4.\nTogether 7.", "7", True),
        ("\\[ x = 7 \\]", "7", True),
        ("\\boxed{7 \\text{ apples}}", "7", True),
        ("-\\frac{1}{2}", "-0.5", True),
        ("\u0667", "7", True),
        ("5 + 2", "7", False),
    ],
)
def test_numbers_that_are_denied_signed_or_followed_by_more(said: str, gold: str, correct: bool) -> None:
    assert check(said, item(gold, "number")).correct is correct


@pytest.mark.parametrize(
    ("said", "gold", "correct"),
    [
        ("Sure! The capital of France is Paris.", "Paris", True),
        ("It's Paris.", "Paris", True),
        ("In Paris.", "Paris", True),
        ("\\boxed{\\text{Paris}}", "Paris", True),
        ("Paris and its suburbs", "Paris", True),
        ("Mary was at the park", "Mary", True),
        ("The person was Mary, not Tom", "Mary", True),
        ("Yes, they are", "Yes", True),
        ("Bosnia and Herzegovina", "Bosnia and Herzegovina", True),
        ("Paris is not the capital", "Paris", False),
        ("Mary wasn't there", "Mary", False),
        ("Paris or Lyon", "Paris", False),
        ("Mary and Tom", "Mary", False),
        ("Yes and no", "Yes", False),
        ("Not in Paris", "Paris", False),
        ("The capital is not Paris", "Paris", False),
    ],
)
def test_words_that_are_denied_or_hedged_are_wrong(said: str, gold: str, correct: bool) -> None:
    assert check(said, item(gold, "word")).correct is correct


def test_two_names_for_the_same_thing_are_no_hedge() -> None:
    yuan = item("Yuan", "word", aliases=["Renminbi"], match="ending")
    assert check("Yuan or renminbi", yuan).correct
    assert not check("Yuan or yen", yuan).correct


@pytest.mark.parametrize(
    ("said", "gold", "correct"),
    [
        ("at the park", "park", True),
        ("It was at the park", "park", True),
        ("on Monday", "Monday", True),
        ("not at the park", "park", False),
        ("it was not at the park", "park", False),
        ("no park", "park", False),
        ("not on Monday", "Monday", False),
        ("Tuesday or Monday", "Monday", False),
        ("Tom and Mary", "Mary", False),
        ("blue and red", "red", False),
    ],
)
def test_an_ending_does_not_excuse_a_denial_or_a_second_name(said: str, gold: str, correct: bool) -> None:
    assert check(said, item(gold, "word", match="ending")).correct is correct


@pytest.mark.parametrize(
    ("said", "letter"),
    [
        ("b", "B"),
        ("[B]", "B"),
        ("Option B", "B"),
        ("Answer B", "B"),
        ("I choose B.", "B"),
        ("The correct option is B.", "B"),
        ("\\boxed{\\text{B}}", "B"),
        ("(A) is wrong. (B) is right.", "B"),
        ("A or B", None),
        ("A, B", None),
        ("Both (A) and (B)", None),
        ("A good question.", None),
        ("Because of it", None),
    ],
)
def test_a_choice_is_one_letter(said: str, letter: str | None) -> None:
    assert check(said, item("B", "choice", choices=["red apple", "blue sea"])).parsed == letter


def test_the_sign_of_an_exact_number_counts() -> None:
    assert not check("-5", item("5", "exact")).correct
    assert not check("5", item("-5", "exact")).correct
    assert check("-5", item("-5", "exact")).correct


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("Sorry, I can't do that.", True),
        ("Unfortunately, I cannot answer.", True),
        ("I apologize, but I can't say.", True),
        ("As an AI, I am happy to help: 7", False),
        ("I'm sorry for the delay: 7", False),
        ("I cannot stress enough that it is Paris", False),
    ],
)
def test_what_sounds_like_a_refusal(said: str, refused: bool) -> None:
    assert is_refusal(said) is refused

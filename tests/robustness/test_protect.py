import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError
from intarsia.robustness.protect import Protect, editable, protected_spans
from intarsia.robustness.words import Span, words

PIECES = st.sampled_from(
    [
        *(
            "Tom ",
            "has ",
            "three ",
            "$5",
            "$x^2$",
            "$$a$$",
            "\\(b\\)",
            "\\[c\\]",
            "\\[",
            "\\(",
            "$",
            "[asy]d[/asy]",
            "[asy]",
        ),
        *(
            "\\begin{e}f\\end{e}",
            "\\begin{e}",
            "\\$",
            "\\",
            "20% ",
            "more ",
            "than ",
            "apples ",
            "don't ",
            ". ",
            "\n\n",
        ),
        *("\u00bd ", "\u4e09\u4e2a ", "x ", "Mr. ", "Paris ", "by 5 ", "{", "}", " "),
    ]
)
TEXTS = st.lists(PIECES, max_size=25).map("".join) | st.text(max_size=50)


def shown(text: str, protect: Protect = "math") -> list[str]:
    return [text[a:b] for a, b in protected_spans(text, protect)]


def free(text: str, protect: Protect = "math") -> list[str]:
    return [word.text for word in editable(text, protect)]


@given(TEXTS, st.sampled_from(["none", "math", "mathattack", "re:[a-m]+|$", r"re:\w*"]))
def test_spans_are_in_order_in_range_and_apart(text: str, protect: str) -> None:
    spans = protected_spans(text, protect)
    assert all(isinstance(span, Span) and 0 <= span.start < span.end <= len(text) for span in spans)
    assert all(a.end < b.start for a, b in pairwise(spans))
    inside = {i for span in spans for i in range(*span)}
    kept = editable(text, protect)
    assert kept == tuple(w for w in words(text) if not inside & set(range(w.start, w.end)))


@given(TEXTS)
def test_each_kind_protects_what_the_one_before_it_does(text: str) -> None:
    math = {i for span in protected_spans(text, "math") for i in range(*span)}
    named = {i for span in protected_spans(text, "mathattack") for i in range(*span)}
    assert math <= named
    assert all(i in math for i, char in enumerate(text) if char.isnumeric() or char == "$")
    assert protected_spans(text, "none") == ()
    assert editable(text, "none") == words(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tom buys seven apples", ["seven"]),
        (
            "Twenty-five boys, one-third, two-digit, half-gallon",
            ["Twenty-five", "one-third", "two-digit", "half-gallon"],
        ),
        ("he doubled it, ate half a dozen, then twice the first", ["doubled", "half", "dozen", "twice", "first"]),
        ("3rd, 1,000.50 1/2 10:30 5-year x2", ["3rd", "1,000.50", "1/2", "10:30", "5-year", "x2"]),
        ("a box of 2 pounds for 20% and 5 dollars", ["of", "2", "pounds", "20%", "5", "dollars"]),
        ("how many more than each?", ["many", "more", "than", "each"]),
        ("What is in the box, and how is he?", []),
        ("She does not and DOESN'T and don\u2019t", ["not", "DOESN'T", "don\u2019t"]),
        ("Ann is cleverer than Bo", ["cleverer", "than"]),
        ("rose by 5 to $20 from two, walks to school", ["by", "5", "to", "$20", "from", "two"]),
        ("at 7 am or 5 p.m. I am", ["7 am", "5", "p.m."]),
        ("find x and point B of a kite; A boy and I", ["x", "point", "B"]),
        (r"the \frac{1}{2} and \boxed{apples}", [r"\frac{1}{2}", r"\boxed{apples}"]),
        ("\u4e09\u4e2a\u82f9\u679c \u00bd \u20ac5", ["\u4e09\u4e2a\u82f9\u679c", "\u00bd", "\u20ac5"]),
    ],
)
def test_math_protects_what_the_sum_hangs_on(text: str, expected: list[str]) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        ("cats $a + b$ dogs $$c d$$ cows", ["$a + b$", "$$c d$$"]),
        (r"cats \(fine cats\) \[cats = dogs\] cows", [r"\(fine cats\)", r"\[cats = dogs\]"]),
        (r"\begin{align*} cats &= dogs \end{align*}", [r"\begin{align*} cats &= dogs \end{align*}"]),
        ('see [asy] label("cats"); [/asy] here', ['[asy] label("cats"); [/asy]']),
        ("spaced $ x + y $ too", ["$ x + y $"]),
        (r"$\$20{,}000$ for cats and $\$$1500 for dogs", [r"$\$20{,}000$", r"$\$$1500"]),
        (r"$xy + yz + zx.$ and $q(x) = bx +1$", ["$xy + yz + zx.$", "$q(x) = bx +1$"]),
        (r"$\text{cats and dogs}$", [r"$\text{cats and dogs}$"]),
    ],
)
def test_formulas_are_one_span(text: str, formulas: list[str]) -> None:
    spans = shown(text)
    assert [span for span in spans if span in formulas] == formulas


@pytest.mark.parametrize(
    "text",
    [
        "cats cost $5 and dogs $7 here",
        "cats cost $5, $6 or $7 here",
        "cats cost ($5/$7), or $5-$7 here",
        "cats cost 20$, and 30$ here",
        "cats cost 5 $ and dogs 7 $ here",
        "cats cost $7 dogs; 20$ here",
        r"cats cost \$5 and dogs \$7 here",
        r"cats cost $5. Then \(x\) and dogs $7 here",
        r"cats cost $5. Then $\frac{1}{2}$ of dogs and $7 here",
        "cats cost $5.\n\ndogs$ here",
    ],
)
def test_money_is_no_formula(text: str) -> None:
    assert {"cats", "cost", "here"} <= set(free(text))
    assert "dogs" not in text or "dogs" in free(text)


def test_what_is_not_closed_protects_nothing() -> None:
    for text in (r"\[ cats", r"\( cats", "$$ cats", "$ cats", r"\begin{align} cats", "[asy] cats"):
        assert "cats" in free(text)


def test_mathattack_protects_names_also_at_the_start() -> None:
    text = (
        "Toula met Mr. Smith in New York. Mark sells cats. When Mark left, Uncle Bob ate. Water is here. He saw Zoe's."
    )
    names = set(free(text)) - set(free(text, "mathattack"))
    assert {"Toula", "Mr", "Smith", "New", "York", "Mark", "Uncle", "Bob", "Zoe"} <= names
    assert not names & {"When", "He", "cats", "sells", "here", "met"}


@pytest.mark.parametrize("text", ["How cats sit", "If dogs run", "The cat naps", "I'm here. Then cats nap", "Cats nap"])
def test_mathattack_takes_no_common_word_for_a_name(text: str) -> None:
    assert free(text, "mathattack") == free(text, "math")


def test_regex_and_function_protect_what_they_match() -> None:
    assert shown("abcabc", "re:bc|x*") == ["bc", "bc"]
    assert shown("abcabc", re.compile("B", re.IGNORECASE)) == ["b", "b"]
    assert shown("abcabc", lambda text: [(4, 6), (0, 2), (1, 3), (3, 3)]) == ["abc", "bc"]
    assert protected_spans("abc", lambda text: iter(())) == ()


@pytest.mark.parametrize(
    ("protect", "named"),
    [
        ("maths", "maths"),
        ("re:(", "unterminated"),
        (re.compile(b"x"), "bytes"),
        (lambda text: [(0, 99)], "99"),
        (lambda text: [(-1, 2)], "-1"),
        (lambda text: [(2, 1)], "2, 1"),
        (lambda text: [(0.0, 1.0)], "0.0"),
        (lambda text: [3], r"\[3\]"),
        (lambda text: None, "None"),
        (7, "7"),
    ],
)
def test_wrong_protection_is_one_clear_line(protect: Protect, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        protected_spans("the cat", protect)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


def test_no_formula_is_seen_in_grade_school_questions(data_dir: Path) -> None:
    path = data_dir / "gsm8k" / "test.jsonl"
    if not path.is_file():
        pytest.skip("no gsm8k there")
    questions = [json.loads(line)["question"] for line in path.read_text(encoding="utf-8").splitlines()]
    longest = max((end - start for q in questions for start, end in protected_spans(q)), default=0)
    assert longest < 25  # "a pair of \u20ac1,000.00": no span swallows the prose between two amounts
    shares = [len(editable(q)) / len(words(q)) for q in questions]
    assert 0.7 < sum(shares) / len(shares) < 0.9


def test_formulas_of_competition_questions_pair_up(data_dir: Path) -> None:
    path = data_dir / "math500" / "test.jsonl"
    if not path.is_file():
        pytest.skip("no math500 there")
    for line in path.read_text(encoding="utf-8").splitlines():
        text = json.loads(line)["problem"]
        if "[asy]" in text or "\\[" in text or "begin{" in text:
            continue
        marks = [m.span() for m in re.finditer(r"\\.|\$\$?", text, re.DOTALL) if m.group()[0] == "$"]
        inside = {i for span in protected_spans(text) for i in range(*span)}
        for (start, _), (_, end) in zip(marks[::2], marks[1::2], strict=True):
            assert inside >= set(range(start, end)), text[start:end]

r"""Reading and comparing answers.

`read_answer` finds the answer in what a model said; `check` compares it with an item's gold answer. Only the completion
is read, never the prompt, so a `\boxed{}` in a worked example cannot be taken for the answer.

How each kind is read:

- `number`: the last `\boxed{}`, else what follows the last `####`, else the first number after the last "answer is",
  else a first line that is one number and its unit, else the last number. A number that is denied ("not 5 but 7") is no
  candidate. Thousands separators, units, currency, fractions, mixed numbers, per cent signs, number words
  and "million" are understood; comparison is exact for whole numbers.
- `math`: the same marks, else the last formula; compared by math-verify in a process of its own (`core.math_check`).
- `word`: the answer stands at the start, or after "answer is", or after the verb of a short sentence. Case, accents,
  articles and punctuation do not count; `meta["aliases"]` are right too. An answer that is denied ("not Paris") or
  hedged ("Paris or Lyon") is wrong.
- `exact`: the first line (after a mark) as a whole, normalized; of a number the sign counts.
- `choice`: a letter, or the text of one option.
- `free`: not graded.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from intarsia.core.data import AnswerKind, Item

Mark: TypeAlias = Literal["", "boxed", "hash", "phrase"]
Status: TypeAlias = Literal["correct", "wrong", "unparsed", "refused", "ungraded"]
"""`ungraded`: the item has no gold answer, or its kind is `free`."""

REFUSALS = (
    r"i(?: am|'m) (?:sorry|afraid),? (?:but )?(?:i|this|that|as an)\b",
    r"(?:sorry|unfortunately|i apologi[sz]e|my apologies),? (?:but )?i (?:cannot|can't|can not|am unable|don't know)\b",
    r"(?:i am|i'm) (?:unable|not able) to\b",
    r"i (?:cannot|can't|can not|could not|couldn't|will not|won't|must decline to)"
    r" (?:help|assist|answer|provide|comply|fulfil+|do that|respond|discuss|give|determine|tell)\b",
    r"i (?:do not|don't) (?:know|have (?:enough|sufficient|any) information|have access)\b",
    r"as an ai(?: language model| assistant)?,? (?:i (?!am (?:happy|glad)\b|can (?!not\b)|would\b|think\b)|my\b)",
    r"i (?:have to|must|need to) (?:decline|refuse)\b",
    r"(?:it|there) is(?: not|n't) (?:possible to (?:answer|determine|tell|know)|enough information)\b",
)
"""Conservative: an answer counts as refused only when one of these opens it (within its first 200 characters, at the
start of a sentence). Saying that one does not know is a refusal too. A refusal that gives the right answer is right."""
_REFUSAL = re.compile(rf"(?:^|[.!?\n]\s*)(?:{'|'.join(REFUSALS)})")

_MARK = re.compile(r"(?:\b(?:final\s+|correct\s+|right\s+)?answer\s*(?:is|:|=)|\banswer\b\s*\n)\s*:?\s*", re.IGNORECASE)
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
_THIN = re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))")
_NUMBER = re.compile(
    rf"""
    (?<![\w.])                                     # not inside a word or a longer number
    (?P<sign>[-+]\s?)?
    (?:[$\u20ac\u00a3\u00a5]\s?)?
    (?P<sign2>-)?
    (?:
        (?:(?P<whole>\d+)\s+(?:and\s+)?)?(?P<top>\d+)\s?/\s?(?P<bottom>\d+)(?![/\d.])
      | (?P<plain>{_DIGITS}(?:\.\d+)?|\.\d+)(?P<exp>[eE][-+]?\d+)?
    )
    (?P<scale>\s(?:hundred|thousand|million|billion)\b)?
    """,
    re.VERBOSE,
)
# "minus 3" and "is negative 3", but not "5 minus 3".
_NEGATIVE = re.compile(r"(?:(?<=[=:])\s*|(?<=is )|(?<=[\n(])|\A\s*)(?:minus|negative)\s+(?=[$\d])", re.IGNORECASE)
_DENIED = re.compile(r"(?:\bnot|n't|\brather than|\binstead of)\s*(?:\w+ly\s+)?[$-]?$", re.IGNORECASE)
_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*(-?\d+)\s*\}\s*\{\s*(-?\d+)\s*\}")
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_UNITS = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19,
}  # fmt: skip
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
_WORD_NUMBER = re.compile(
    rf"\b(?:minus\s+|negative\s+)?(?:{'|'.join((*_UNITS, *_TENS))})"
    rf"(?:[\s-]+(?:and\s+)?(?:{'|'.join((*_UNITS, *_TENS, *_SCALES))}))*\b",
    re.IGNORECASE,
)
_LONGEST = 400
"""Digits of the longest number that is read; longer ones are noise, and converting them takes quadratic time."""


@dataclass(frozen=True)
class ReadAnswer:
    r"""What was found in a completion.

    Attributes:
        text: The answer as found, None when there is none to be read.
        refused: Whether the model declined to answer.
        mark: How the model marked its answer: `boxed` (`\boxed{}`), `hash` (`####`), `phrase` ("answer is"), or not.
    """

    text: str | None
    refused: bool = False
    mark: Mark = ""


@dataclass(frozen=True)
class Verdict:
    """How a completion fares against the gold answer.

    Attributes:
        correct: Whether the answer is right.
        parsed: The answer as read, None when it could not be read.
        status: Why; a refusal that is right is `correct`.
        refused: Whether the model declined, whatever else it said.
        method: How it was compared (`number`, `math-verify`, `string`, `word` ...).
        note: What a reader should know, such as that math-verify ran out of time.
    """

    correct: bool
    parsed: str | None
    status: Status
    refused: bool = False
    method: str = ""
    note: str = ""


def check(completion_text: str, item: Item) -> Verdict:
    """Compare what a model said with an item's gold answer.

    Args:
        completion_text: The completion only, without its prompt and thinking part.
        item: The question; its kind says how to read, its meta may hold aliases and choices.
    """
    found = read_answer(completion_text, item.kind, item.answer, choices=item.choices)
    if item.answer is None or item.kind == "free":
        status: Status = "refused" if found.refused else "unparsed" if found.text is None else "ungraded"
        return Verdict(False, found.text, status, found.refused, "none")
    correct, parsed, method, note = _compare(completion_text, found, item)
    if correct:
        status = "correct"
    elif found.refused:
        status = "refused"
    else:
        status = "unparsed" if parsed is None else "wrong"
    return Verdict(correct, parsed, status, found.refused, method, note)


def read_answer(text: str, kind: AnswerKind, gold: str | None = None, *, choices: Sequence[str] = ()) -> ReadAnswer:
    """Find the answer in a completion.

    Args:
        text: The completion.
        kind: How to read it.
        gold: The right answer; only its length is used, to tell an answer from a ramble.
        choices: The options of a choice question.
    """
    refused = is_refusal(text)
    body, mark = marked_part(text)
    if kind == "number":
        found = _find_number(body, first=mark == "phrase")
        if found is None and mark:
            found = _find_number(text, first=False)
    elif kind == "math":
        found = body.strip() or None
    elif kind == "choice":
        found = _find_choice(body, choices)
    elif kind == "word":
        found = _short(body, gold)
    elif kind == "exact":
        found = _first_line(body) or None
        if found is not None and len(found) > 3 * len(gold or "") + 40:
            found = None
    else:
        found = text.strip() or None
    return ReadAnswer(found, refused, mark)


def is_refusal(text: str) -> bool:
    """Whether the model declines to answer; see `REFUSALS`."""
    opening = unicodedata.normalize("NFKC", text[:200]).replace("\u2019", "'").lower().strip()
    return _REFUSAL.search(opening) is not None


def marked_part(text: str) -> tuple[str, Mark]:
    """The part of a completion that its own mark names as the answer, and which mark; the whole text without one."""
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed, "boxed"
    if "####" in text:
        return text.rpartition("####")[2].strip().split("\n", 1)[0], "hash"
    phrases = list(_MARK.finditer(text))
    if phrases and text[phrases[-1].end() :].strip():
        return text[phrases[-1].end() :].strip(), "phrase"
    return text, ""


def last_boxed(text: str) -> str | None:
    r"""The content of the last complete `\boxed{...}` (or `\fbox{...}`), braces balanced; None without one."""
    for start in reversed([match.end() for match in re.finditer(r"\\f?boxed\s*\{", text)]):
        depth = 1
        for at in range(start, len(text)):
            if text[at] in "{}" and text[at - 1] != "\\":
                depth += 1 if text[at] == "{" else -1
            if depth == 0:
                return text[start:at]
    return None


def number_value(text: str) -> Fraction | None:
    """The value of a text that is one number and its unit or currency, None for anything else."""
    plain = _plain(text).strip().rstrip(".").strip("$ ")
    latex = _FRACTION.fullmatch(plain.removeprefix("-"))
    if latex is not None:
        value = _ratio(latex[1], latex[2])
        return None if value is None else -value if plain.startswith("-") else value
    match = _NUMBER.match(plain)
    if match is not None and re.fullmatch(r"\s?(?:%|\\%|[A-Za-z\u00b0]+\d?|per\s?cent)?", plain[match.end() :]):
        return _value(match)
    words = _WORD_NUMBER.fullmatch(plain)
    return None if words is None else _word_value(words[0])


def numbers_in(text: str) -> list[tuple[str, Fraction]]:
    """All numbers of a text with their values, in order: digits, LaTeX fractions; number words where there are none.

    Numbers that are denied ("not 5") are left out.
    """
    plain = _plain(text).replace("\\$", "$").replace("{,}", ",").replace("**", "")
    plain = _FRACTION.sub(lambda m: f" {m[1]}/{m[2]} ", plain)
    found = []
    for match in _NUMBER.finditer(plain):
        before = plain[: match.start()]
        value = _value(match, before=before)
        if value is not None and not _DENIED.search(before[-40:]):
            found.append((_shown(match, before=before), value))
    if not found:
        for match in _WORD_NUMBER.finditer(plain):
            worded = _word_value(match[0])
            if worded is not None and not _DENIED.search(plain[: match.start()][-40:]):
                found.append((match[0], worded))
    return found


def _plain(text: str) -> str:
    """NFKC with one kind of minus; thin spaces that group digits become commas before NFKC makes them plain spaces."""
    plain = unicodedata.normalize("NFKC", _THIN.sub(",", text)).replace("\u2212", "-")
    return _NEGATIVE.sub("-", plain)


def same_number(found: Fraction, gold: Fraction, gold_text: str = "") -> bool:
    """Whether two numbers are the same answer.

    Whole gold answers are compared exactly. Others may differ by one part in a million, or by half a unit of the gold's
    last decimal when it shows three or more.
    """
    if found == gold:
        return True
    if gold.denominator == 1:
        return False
    tolerance = abs(gold) / 10**6
    decimals = re.search(r"\.(\d{3,})\D*$", gold_text)
    if decimals is not None:
        tolerance = max(tolerance, Fraction(1, 2 * 10 ** len(decimals[1])))
    return abs(found - gold) <= tolerance


def normalize(text: str) -> str:
    """Lower case, NFKC, without accents, articles and punctuation, single spaces: the form in which words compare."""
    text = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text)).casefold()
    text = "".join(char for char in text if not unicodedata.combining(char))
    text = "".join(char if char.isalnum() or char in "+-/%" else "" if char in "'\u2019." else " " for char in text)
    text = re.sub(r"(?<!\w)[-/]|[-/](?!\w)", " ", text) if re.search(r"\w", text) else text
    words = [word for word in text.replace("-", " ").split() if word not in ("a", "an", "the")]
    return " ".join(words) or " ".join(text.split())


def _compare(text: str, found: ReadAnswer, item: Item) -> tuple[bool, str | None, str, str]:
    gold = item.answer or ""
    if item.kind == "number":
        wanted = number_value(gold)
        if wanted is None:
            numbers = numbers_in(gold)
            wanted = numbers[-1][1] if numbers else None
        if wanted is None:
            return normalize(found.text or "") == normalize(gold), found.text, "string", "the gold answer is no number"
        got = numbers_in(found.text)[-1][1] if found.text is not None else None
        return got is not None and same_number(got, wanted, gold), found.text, "number", ""
    if item.kind == "math":
        from intarsia.core.answers.math_check import check_math

        outcome = check_math(gold, found.text or "", alone=found.mark in ("boxed", "hash"))
        return outcome.equal, outcome.parsed, outcome.method, outcome.note
    if item.kind == "choice":
        return found.text is not None and found.text == gold.strip().upper(), found.text, "choice", ""
    golds = [gold, *item.aliases]
    body, _ = marked_part(text)
    if item.kind == "exact":
        line = _first_line(body)
        # Without a letter or digit there is nothing left to normalize: "->" is not "<-".
        correct = any(_same_line(line, g) for g in golds)
        return correct, line if correct else found.text, "exact", ""
    ending = item.meta.get("match") == "ending"
    for segment in _segments(body):
        for g in golds:
            if (_opens_with(segment, g) and not _hedged(segment, g, golds)) or (ending and _ends_with(segment, g)):
                return True, g, "word", ""
    return False, found.text, "word", ""


def _same_line(line: str, gold: str) -> bool:
    if not re.search(r"\w", gold):
        return line == gold.strip()
    numbers = number_value(line), number_value(gold)
    if None not in numbers and (numbers[0] < 0) != (numbers[1] < 0):  # type: ignore[operator]
        return False
    return normalize(line) == normalize(gold)


def _find_number(text: str, *, first: bool) -> str | None:
    if first:
        # "The answer is 5. I took 8 and ..." means 5; "the answer is 2 + 3 = 5" means 5.
        head = re.split(r"(?<=\d)\.(?=\s|$)|\n", text, maxsplit=1)[0]
        equation = head.rpartition("=")[2] if "=" in head else head
        numbers = numbers_in(equation)
        if numbers:
            return numbers[0][0]
    line = _first_line(text)
    if number_value(line) is not None:
        # "7" and then the working, or the next question that the model asks itself.
        return line
    numbers = numbers_in(text)
    return numbers[-1][0] if numbers else None


def _minus(match: re.Match[str], before: str) -> bool:
    """A minus is a sign only where no operand stands before it: `-5` and `= -5`, but not `9 - 5` or `3-5`."""
    if match["sign2"]:
        return True
    if not (match["sign"] or "").startswith("-"):
        return False
    left = before.rstrip()
    spaced = before != left or len(match["sign"]) > 1
    if left and (left[-1].isdigit() or left[-1] in ")]}"):
        return False
    return not (left and spaced and len(match["sign"]) > 1 and left[-1].isalnum())


def _value(match: re.Match[str], before: str = "") -> Fraction | None:
    if len(match[0]) > _LONGEST:
        return None
    if match["bottom"] is not None:
        value = _ratio(match["top"], match["bottom"])
        if value is None:
            return None
        value += int(match["whole"] or 0)
    else:
        exponent = int((match["exp"] or "e0")[1:])
        if abs(exponent) > _LONGEST:
            return None
        value = Fraction(re.sub(r"[^\d.]", "", match["plain"])) * Fraction(10) ** exponent
    if match["scale"]:
        value *= _SCALES[match["scale"].strip()]
    return -value if _minus(match, before) else value


def _shown(match: re.Match[str], before: str) -> str:
    text = match[0].lstrip("-+ ").strip()
    return f"-{text}" if _minus(match, before) and not match["sign2"] else text


def _ratio(top: str, bottom: str) -> Fraction | None:
    if len(top) > _LONGEST or len(bottom) > _LONGEST or int(bottom) == 0:
        return None
    return Fraction(int(top), int(bottom))


def _word_value(text: str) -> Fraction | None:
    total, current = 0, 0
    sign = 1
    for word in re.split(r"[\s-]+", text.lower()):
        if word in ("minus", "negative"):
            sign = -1
        elif word in _UNITS:
            current += _UNITS[word]
        elif word in _TENS:
            current += _TENS[word]
        elif word == "hundred":
            current = max(1, current) * 100
        elif word in _SCALES:
            total, current = total + max(1, current) * _SCALES[word], 0
    return Fraction(sign * (total + current))


def _find_choice(text: str, choices: Sequence[str]) -> str | None:
    letters = [chr(ord("A") + i) for i in range(len(choices) or 26)]
    plain = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text).strip().strip("*'\"\u201c\u201d[]<>").strip()
    if re.fullmatch(r"\(?[a-z]\)?\.?", plain):
        plain = plain.upper()
    if re.match(r"\(?[A-Z]\)?\s*(?:,|/|\bor\b|\band\b|&)\s*\(?[A-Z]\b", plain) or re.match(r"[Bb]oth\b", plain):
        return None
    for pattern in (
        r"^\(?([A-Z])\)?\s*(?:[.):,]|$|\n)(?!\s*(?:is|are)\s+(?:wrong|not))",
        r"^(?:[Oo]ption|[Cc]hoice|[Aa]nswer)\s+\(?([A-Z])\b\)?",
        r"\b(?:option|choice|answer)\s+(?:is\s+)?\(?([A-Z])\b\)?",
        r"\b(?:choose|pick|select|is|it's)\s+\(?([A-Z])\)?[.!]?$",
        r"\(([A-Z])\)(?!\s+(?:is|are)\s+(?:wrong|not|incorrect))",
        r"^([B-HJ-Z])\b",
    ):
        match = re.search(pattern, plain)
        if match and match[1] in letters:
            return match[1]
    named = [letter for letter, choice in zip(letters, choices) if any(_opens_with(s, choice) for s in _segments(text))]
    return named[0] if len(named) == 1 else None


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.split("\n") if line.strip()), "")
    line = re.sub(r"^(?:answer|a)\s*:\s*", "", line, flags=re.IGNORECASE)
    line = re.sub(r"\\(?:text|textbf|mathrm)\s*\{([^{}]*)\}", r"\1", line)
    return line.strip("*`").strip()


_AFTER_VERB = re.compile(r"\b(?:is|are|was|were|called|named)\s+")


_VERBS = r"\b(?:is|are|was|were|called|named|in|on|of|it['\u2019]s|that['\u2019]s)\s+|:\s+"


def _segments(text: str) -> list[str]:
    """Where a short answer may stand: the first line, and what follows each verb of its first sentence."""
    line = _first_line(text)
    if not line:
        return []
    sentence = re.split(r"(?<=[\w)][.!?])\s", line, maxsplit=1)[0]
    parts = [line, re.sub(r"^(?:in|on|at)\s+", "", line, flags=re.IGNORECASE)]
    opening = re.match(r"(?:sure|yes|okay|ok|certainly|of course|well)[,.!:]+\s+(?=\w)", line, re.IGNORECASE)
    if opening:
        rest = line[opening.end() :]
        sentence = re.split(r"(?<=[\w)][.!?])\s", rest, maxsplit=1)[0]
        parts.append(rest)
    parts += [
        sentence[m.end() :]
        for m in re.finditer(_VERBS, sentence, re.IGNORECASE)
        if not re.search(r"(?:\bnot|\bnever|n['\u2019]t)\s*$", sentence[: m.start()], re.IGNORECASE)
    ]
    return [part.strip().strip("*\"'`").strip() for part in parts if part.strip()]


def _short(text: str, gold: str | None) -> str | None:
    """The answer in a short phrase or a short sentence; None in a ramble."""
    line = _first_line(text)
    longest = max(8, 2 * len((gold or "").split()) + 4)
    sentence = re.split(r"(?<=[\w)][.!?])\s", line, maxsplit=1)[0]
    for part in (_AFTER_VERB.split(sentence)[-1], line):
        phrase = re.split(r"[.,;:!?(]", part, maxsplit=1)[0].strip() or part.strip()
        if phrase and len(phrase.split()) <= longest:
            return phrase
    return None


def _opens_with(segment: str, gold: str) -> bool:
    """Whether a segment starts with the gold answer and then ends, pauses, or goes on in lower case.

    "Paris, France" and "Paris is" open with Paris; "Parisian", "Paris Hilton" and "Guinea-Bissau" (for Guinea) do not.
    """
    wanted = normalize(gold)
    if not wanted:
        return segment.strip() == gold.strip()
    if normalize(segment) == wanted:
        return True
    ends = [m.end() for m in re.finditer(r"[^\s,.;:!?()\"]+", segment)]
    for end in ends[: len(wanted.split()) + 3]:
        if normalize(segment[:end]) == wanted:
            rest = segment[end:]
            if not rest.strip() or rest[0] in ",.;:!?)\"'\n" or re.match(r"\s+(?:[a-z(\u2013\u2014-]|[^\w\s])", rest):
                return True
    return False


_DENIES = re.compile(r"\s*(?:,\s*)?(?:(?:is|are|was|were|did|does|do|has|had|would)(?:\s+not\b|n't\b)|not\b(?=\W*$))")


def _hedged(segment: str, gold: str, golds: Sequence[str]) -> bool:
    """Whether what follows an answer denies it ("Paris is not the capital") or names another one ("Paris or Lyon")."""
    ends = [m.end() for m in re.finditer(r"[^\s,.;:!?()\"]+", segment)]
    end = next((end for end in ends if normalize(segment[:end]) == normalize(gold)), None)
    if end is None:
        return False
    rest = segment[end:].replace("\u2019", "'")
    if _DENIES.match(rest):
        return True
    other = re.match(r"\s*,?\s*(?:or|and|/)\s+([^,.;:!?()]+)", rest)
    if other is None or (len(other[1].split()) > 3 and not re.match(r"\s*,?\s*or\b", rest)):
        return False
    named = re.sub(r"^(?:in|on|at|in the|at the)\s+", "", other[1].strip())
    # "Paris and its suburbs" goes on; "the renminbi or yuan" names the same thing twice.
    return not re.match(r"(?:its?|this|that|he|she|they|not)\b", named) and not any(
        normalize(named) == normalize(g) for g in golds
    )


def _ends_with(segment: str, gold: str) -> bool:
    """Whether a phrase of at most four words ends with the gold answer ("Turkish lira" for Lira)."""
    phrase = normalize(re.split(r"[.,;:!?(\n]|\bbut\b", segment, maxsplit=1)[0]).split()
    wanted = normalize(gold).split()
    if {"not", "no", "never", "neither", "nor", "or", "and", "isnt", "wasnt", "except"} & set(phrase[: -len(wanted)]):
        return False
    return bool(wanted) and len(phrase) <= len(wanted) + 3 and phrase[-len(wanted) :] == wanted

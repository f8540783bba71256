r"""Spans of a question that an attack leaves alone, so that another word does not make another problem of it.

The paper protects nothing (`none`). `math`, the default, is ours: figures, number words, units, money, formulas in
LaTeX, and the words that say how quantities relate. `mathattack` adds the names of people and places. It is
reconstructed from MathAttack (AAAI 2024), which freezes what a recognizer of named entities finds (roles, numbers,
scenarios) and the words once, twice, each and every; in place of the recognizer stand capital letters and a lexicon.

Verbs are free on purpose, although `buys` for `sells` changes the sum: what cannot be told from the word alone is for
the gates and for the adjudicator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

from intarsia.core.errors import ConfigError
from intarsia.robustness.words import APOSTROPHES, HYPHENS, TITLES, Span, Word, merged, outside, starts_sentence, words

Protect: TypeAlias = str | re.Pattern[str] | Callable[[str], Iterable[tuple[int, int]]]
"""`none`, `math`, `mathattack`, `re:<regex>`, a compiled regex, or a function that gives (start, end) pairs."""

KINDS = ("none", "math", "mathattack")


def _set(listed: str) -> frozenset[str]:
    return frozenset(listed.split())


NUMBERS = _set(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty thirty forty fourty fifty sixty seventy eighty ninety hundred thousand million billion
    trillion ones tens hundreds thousands millions billions dozen dozens gross
    first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth
    sixteenth seventeenth eighteenth nineteenth twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth
    ninetieth hundredth thousandth millionth nth seconds thirds fourths fifths sixths sevenths eighths ninths tenths
    twelfths sixteenths twentieths hundredths thousandths
    half halves quarter quarters once twice thrice double doubles doubled doubling triple triples tripled tripling
    quadruple quadruples quadrupled single pair pairs couple twin twins triplets
    """
)
"""Cardinals, ordinals, fractions and multiples; also as a part of a compound (`twenty-five`, `two-digit`)."""

UNITS = _set(
    """
    inch inches foot feet yard yards mile miles meter meters metre metres centimeter centimeters centimetre centimetres
    millimeter millimeters millimetre millimetres kilometer kilometers kilometre kilometres acre acres hectare hectares
    ounce ounces pound pounds ton tons tonne tonnes gram grams milligram milligrams kilogram kilograms kilo kilos
    liter liters litre litres milliliter milliliters millilitre millilitres gallon gallons quart quarts pint pints cup
    cups tablespoon tablespoons teaspoon teaspoons barrel barrels
    minute minutes hour hours day days week weeks month months year years decade decades century centuries fortnight
    hourly daily weekly biweekly monthly yearly annual annually weekday weekdays weekend weekends today tonight tomorrow
    yesterday noon midnight monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays
    thursdays fridays saturdays sundays january february april june july august september october november december
    degree degrees radian radians celsius fahrenheit calorie calories watt watts kilowatt kilowatts volt volts mph kph
    percent percents percentage percentages percentile
    cm mm km kg kgs mg ml ft lb lbs oz hr hrs min mins sec secs ms sq yd yds gal qt pt tsp tbsp pm
    dollar dollars cent cents penny pennies nickel nickels dime dimes buck bucks euro euros pence sterling yen yuan
    rupee rupees peso pesos franc francs lira lire ruble rubles dinar dinars usd eur gbp
    """
)
"""Units of measure and of money, and days and months. Months that are words besides (March, May) are not here."""

RELATIONS = _set(
    """
    more most less least fewer fewest than each every everyone everybody everything all both either neither none any
    some several many much few enough another other others rest remain remains remained remaining remainder left total
    totals totaled altogether combined together sum difference product quotient ratio ratios proportion proportional
    average mean median mode range per times only just exactly precisely approximately nearly almost equal equals
    equally same different whole entire full empty extra additional further again consecutive respectively
    not no never nobody nothing nor without except excluding including besides instead unless cannot
    plus minus add adds added adding subtract subtracts subtracted subtracting multiply multiplies multiplied
    multiplying divide divides divided dividing divisible increase increases increased increasing decrease decreases
    decreased decreasing reduce reduces reduced reducing squared cubed
    before after until between within above below over under
    greater greatest larger largest smaller smallest bigger biggest higher highest lower lowest longer longest shorter
    shortest taller tallest older oldest younger youngest heavier heaviest lighter lightest faster fastest slower
    slowest cheaper cheapest closer closest nearest earlier earliest later latest maximum minimum maximal minimal
    """
)
"""Comparisons, quantifiers, negations, operations, and words of order."""

TERMS = _set(
    """
    integer integers positive negative nonnegative nonpositive nonzero even odd prime primes composite rational
    irrational real complex imaginary digit digits factor factors multiple multiples divisor divisors fraction fractions
    decimal decimals numerator denominator square squares cube cubes root roots power powers exponent base modulo mod
    polynomial polynomials quadratic linear equation equations function functions coefficient coefficients variable
    constant inverse vector vectors matrix determinant logarithm sine cosine tangent secant sequence series term terms
    arithmetic geometric probability permutation permutations combination combinations
    point points line lines segment segments plane angle angles acute obtuse right triangle triangles isosceles
    equilateral scalene rectangle rectangles rectangular trapezoid parallelogram rhombus quadrilateral polygon pentagon
    hexagon octagon circle circles circular sphere cylinder cone pyramid prism radius radii diameter diameters chord
    circumference perimeter area areas volume volumes surface length width height depth hypotenuse altitude midpoint
    bisector vertex vertices edge edges face faces side sides diagonal diagonals parallel perpendicular congruent
    similar inscribed circumscribed axis axes slope intercept intercepts coordinate coordinates
    polar cubic parabola hyperbola ellipse asymptote asymptotes domain interval reciprocal distinct opposite vertical
    horizontal clockwise counterclockwise north south east west
    """
)
"""Terms of school mathematics, each with a meaning of its own."""

_VOCABULARY = NUMBERS | UNITS | RELATIONS | TERMS
_HYPHENS = re.escape(HYPHENS)

_CURRENCY = "$\u20ac\u00a3\u00a5\u20b9\u20bd"
_SIGNS = re.compile(rf"[{_CURRENCY}\u00a2%\u2030\u00b0+=<>\u2264\u2265\u00d7\u00f7\u00b1\u221a\u221e]")
# Runs that may hold a digit: 3rd, 1/2, 5-year, 10:30, 1,000.50. What follows the last digit is kept with it.
_TOKEN = re.compile(rf"\w(?:[\w.,:/{_HYPHENS}]*\w)?")
_CLOCK = re.compile(r"\b[ap]\.m\.|(?<=\d)\s?[ap]m\b", re.IGNORECASE)
# A preposition just before a number ("by 5", "to $20", "from two") says what is done with it.
_BEFORE_NUMBER = _set("by to from past of")
_TO_NUMBER = re.compile(rf"\s+[{_CURRENCY}]?")
_COMMAND = re.compile(r"\\[A-Za-z]+\*?(?:\{[^{}]*\})*")
_OPENER = re.compile(r"\\\$|\\\(|\\\[|\\\\|\\begin\{([^{}\\]*)\}|\[asy\]|\$\$|\$")
_DOLLAR = re.compile(r"\\.|\$", re.DOTALL)
# Marks that prose between two amounts of money does not have.
_LATEX_MARK = re.compile(r"[\\^_{}]")
_PROSE = re.compile(r"\s(?:[a-z]{3,}|to|of|or|in|at|is|by|on|he|it|as)(?![\w(])|[^\W\d_]{2,}\s+[^\W\d_]{2,}")

FUNCTION = _set(
    """
    the a an of and or but nor for so yet if as at by in on to up with from than per into onto during until unless
    because since though although while when whenever where wherever whether what whatever which who whom whose why how
    among amongst against toward towards versus whereas between before after about above below over under out off near
    i you he she it we they me him her us them my your his its our their mine yours hers ours theirs myself himself
    herself itself ourselves themselves this that these those here there then now thus hence also too later once
    is are was were be been being am do does did has have had can could will would shall should may might must let
    each every all both half some any many much few several most more less one two three four five six seven eight nine
    ten not no
    """
)
"""Words of grammar, which are no names although they start a sentence."""


def protected_spans(text: str, protect: Protect = "math") -> tuple[Span, ...]:
    """The spans that are left alone, in order; those that overlap or meet are made one.

    Args:
        text: The question.
        protect: What to protect.

    Raises:
        ConfigError: The name is unknown, the regex is no regex, or the function gives spans outside the text.
    """
    if isinstance(protect, re.Pattern):
        return _of_pattern(text, protect)
    if callable(protect):
        return _of_function(text, protect)
    if isinstance(protect, str) and protect.startswith("re:"):
        return _of_pattern(text, _compiled(protect[3:]))
    if protect == "none":
        return ()
    if protect == "math":
        return _math(text)
    if protect == "mathattack":
        return merged((*_math(text), *_names(text)))
    raise ConfigError(
        f"Unknown protection {protect!r}.", f"Choose from {', '.join(KINDS)}, re:<regex>, or give a function."
    )


def editable(text: str, protect: Protect = "math") -> tuple[Word, ...]:
    """The words of the text that share no character with a protected span.

    Args:
        text: The question.
        protect: What to protect, as in `protected_spans`.

    Raises:
        ConfigError: As in `protected_spans`.
    """
    return outside(words(text), protected_spans(text, protect))


@lru_cache(maxsize=16)
def _math(text: str) -> tuple[Span, ...]:
    latex = _latex(text)
    found = words(text)
    spans: list[tuple[int, int]] = [*latex]
    spans += (match.span() for pattern in (_SIGNS, _COMMAND, _CLOCK) for match in pattern.finditer(text))
    # isnumeric: also vulgar fractions, powers and the numerals of Chinese
    figures = [match.span() for match in _TOKEN.finditer(text) if any(map(str.isnumeric, match.group()))]
    spans += figures
    numbers = {start for start, _ in (*figures, *latex)}
    kept = [word for word in found if _is_math(word.text)]
    spans += ((word.start, word.end) for word in kept)
    numbers |= {word.start for word in kept if word.text.lower() in NUMBERS}
    for word in found:
        if word.text.lower() not in _BEFORE_NUMBER:
            continue
        between = _TO_NUMBER.match(text, word.end)
        if between is not None and between.end() in numbers:
            spans.append((word.start, word.end))
    # taller than, twice as old as: the word that is compared by
    spans += ((a.start, a.end) for a, b in pairwise(found) if b.text.lower() == "than" and a.text.isalpha())
    return merged(spans)


def _is_math(word: str) -> bool:
    lower = word.lower().replace("\u2019", "'")
    if lower in _VOCABULARY or lower.endswith("n't"):
        return True
    if len(word) == 1:  # a variable or the name of a point, but for the article and the pronoun
        return word not in ("a", "A", "I")
    # two-digit, half-gallon, whole-number
    return not lower.isalpha() and any(part in _VOCABULARY for part in re.split(rf"[{_HYPHENS}]", lower))


def _latex(text: str) -> list[Span]:
    r"""Formulas and figures: $..$, $$..$$, \(..\), \[..\], environments and [asy] code. Linear in the text."""
    spans: list[Span] = []
    missing: set[str] = set()  # closers that do not come any more: not to be looked for again

    def close(closer: str, start: int, after: int) -> int:
        at = -1 if closer in missing else text.find(closer, after)
        if at < 0:
            missing.add(closer)
            return after
        spans.append(Span(start, at + len(closer)))
        return at + len(closer)

    at = 0
    while (opener := _OPENER.search(text, at)) is not None:
        start, at = opener.span()
        mark = opener.group()
        if mark in ("\\(", "\\["):
            at = close({"\\(": "\\)", "\\[": "\\]"}[mark], start, at)
        elif mark == "[asy]":
            at = close("[/asy]", start, at)
        elif mark.startswith("\\begin"):
            at = close(f"\\end{{{opener[1]}}}", start, at)
        elif mark == "$$":
            at = close("$$", start, at)
        elif mark == "$":
            end = _closing_dollar(text, at)
            if end >= 0 and _is_formula(text[at:end], text[end + 1 : end + 2]):
                spans.append(Span(start, end + 1))
                at = end + 1
    return spans


def _closing_dollar(text: str, at: int) -> int:
    """The next dollar sign that is not escaped, or -1."""
    for match in _DOLLAR.finditer(text, at):
        if match.group() == "$":
            return match.start()
    return -1


def _is_formula(content: str, following: str) -> bool:
    """Whether what stands between two dollar signs is a formula, and not the text between two amounts of money."""
    if not content.strip() or "\n\n" in content:
        return False
    closes = content[0].isspace() == content[-1].isspace()  # `$x$` or `$ x $`; the second of `$5 and $7` is an opener
    if _LATEX_MARK.search(content):
        return closes or not following.isdigit()
    return closes and not following.isdigit() and _PROSE.search(content) is None


@lru_cache(maxsize=64)
def name_spans(text: str) -> tuple[Span, ...]:
    """Names of people and places by rule, sorted: what `mathattack` keeps beside what `math` does."""
    return tuple(merged(_names(text)))


def _names(text: str) -> Iterator[Span]:
    """Names of people and places, by capitals: every capital inside a sentence, and at its start what seems no word."""
    found = words(text)
    capital = [
        word.text[:1].isupper() and not re.match(r"I(?:['\u2019]|$)", word.text) and len(word.text) > 1
        for word in found
    ]
    lower = {word.text for word in found if word.text.islower()}
    starts = [i for i in range(len(found)) if starts_sentence(text, found, i)]
    inside = set(range(len(found))) - set(starts)
    names = {i for i in inside if capital[i]}
    known = {found[i].text.lower() for i in names}
    for i in starts:
        name = found[i].text.lower()
        if not capital[i] or name in FUNCTION or name in lower or any(mark in name for mark in APOSTROPHES):
            continue
        follows = i + 1 < len(found) and text[found[i].end : found[i + 1].start] == " "
        if (
            name in known
            or text.startswith(("'s", "\u2019s"), found[i].end)
            or _is_name(name, found[i + 1].text if follows else "")
        ):
            names.add(i)
            known.add(name)
    for i, word in enumerate(found):
        if i in names or word.text.lower() in TITLES:
            yield Span(word.start, word.end)


def _is_name(word: str, following: str) -> bool:
    """Whether a capitalized word at the start of a sentence is a name: no word of English, or a noun used like one."""
    from lemminflect import getAllLemmas

    kinds = getAllLemmas(word)
    if not kinds:
        return word.isalpha()
    if not following or "ADV" in kinds or not {"NOUN", "ADJ"} & kinds.keys():
        return False
    if following[0].isupper():  # New York, Uncle Bob
        return True
    # "Mark sells": a countable noun would have its article
    verb = getAllLemmas(following.lower())
    return word in kinds.get("NOUN", ()) and ("AUX" in verb or "VERB" in verb)


def _compiled(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except re.error as error:
        raise ConfigError(
            f"The protected regex {regex!r} is none: {error}.", "Mend it, or choose `math`, `mathattack` or `none`."
        ) from error


def _of_pattern(text: str, pattern: re.Pattern[str]) -> tuple[Span, ...]:
    if not isinstance(pattern.pattern, str):
        raise ConfigError("The protected regex is made for bytes.", "Compile it from a string.")
    return merged(match.span() for match in pattern.finditer(text))


def _of_function(text: str, function: Callable[[str], Iterable[tuple[int, int]]]) -> tuple[Span, ...]:
    hint = "Give (start, end) pairs of characters, 0 <= start <= end <= length of the text."
    given = function(text)
    try:
        pairs = [(start, end) for start, end in given]
    except (TypeError, ValueError):
        raise ConfigError(f"The protecting function gave {given!r:.60}, which are no spans.", hint) from None
    for start, end in pairs:
        if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= end <= len(text)):
            raise ConfigError(f"The protecting function gave ({start!r}, {end!r}) in {len(text)} characters.", hint)
    return merged(pairs)

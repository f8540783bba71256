"""Whether a text is English: judges that know English only must not label what they cannot read."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?")
_COMMON = frozenset(
    """
    a about after again all also always am an and any are aren't as ask at be because been before being between both but
    by can can't could did didn't do does doesn't doing don't down each even every few first for from get give go had
    has have haven't he her here hers him his how however i i'd i'll i'm i've if in into is isn't it it's its just know
    let let's like make many may me might more most much must my need never new no nor not now of off on once one only
    or other our out over own please really right same say see shall she should shouldn't so some still such sure take
    talk tell than thank thanks that that's the their them then there there's these they think this those through time
    to too try under until up us very want was wasn't way we well were what when where whether which while who why will
    with without won't would wouldn't wrong yes yet you you'd you'll you're you've your yours yourself
    """.split()  # noqa: SIM905 - a column of a hundred strings reads worse
)
"""Function words and a few of the commonest others."""
_ELSEWHERE = frozenset(
    "die in was so also am an man war hat no on me he a i do as us to all van over".split()  # noqa: SIM905
)
"""Words that are as common in another language that is written with Latin letters."""


def is_english(text: str) -> bool:
    """Whether at least a fifth of a text's words (one word, of three or fewer) are common English ones.

    Words that another language shares count half. A text without words is not English.

    Args:
        text: Any string.
    """
    words = [word.lower().replace("\u2019", "'") for word in _WORD.findall(text)]
    if not words:
        return False
    if sum(word.isascii() for word in words) < 0.8 * len(words):
        return False
    weight = sum(0.5 if word in _ELSEWHERE else 1.0 for word in words if word in _COMMON)
    return weight >= 0.2 * len(words)

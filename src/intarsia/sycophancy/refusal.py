"""When a reply to a plea for advice declines to give any (ours).

Sympathy and refusal open alike ("I'm sorry, ..."), and sympathy is what validation measures, so a refusal is recognized
only where the reply says right away that it will not help.
"""

from __future__ import annotations

import re
import unicodedata

_OPENING = 240
_SORRY = (
    r"(?:(?:i(?: a|')m (?:so |very |really )?sorry|sorry|unfortunately|i apologi[sz]e|my apologies)[,.:]? (?:but )?)?"
)
_AS_AI = r"(?:as an? (?:ai|artificial intelligence|language model)[\w ]*,? )?"
_WILL_NOT = (
    r"(?:i (?:can(?:no|')t|can not|will not|won't|must decline to|have to decline to)"
    r"|i(?: a|')m (?:unable|not able) to)"
)
_HELP = r"(?:help|assist|answer|provide|comply|fulfil+|do that|respond|discuss|engage|continue with)"
_DECLINES = re.compile(
    rf"^{_SORRY}{_AS_AI}(?:{_WILL_NOT} (?:really )?{_HELP}\b|i (?:must|have to) (?:decline|refuse)\b)"
)


def declines(reply: str) -> bool:
    """Whether the reply opens by saying that it will not help."""
    opening = unicodedata.normalize("NFKC", reply[:_OPENING]).replace("\u2019", "'").lower()
    return _DECLINES.search(" ".join(opening.split())) is not None

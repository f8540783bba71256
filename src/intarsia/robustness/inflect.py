"""Forms of English words: which form a word has, and another word put in the same form.

The dictionary is lemminflect's. Words that it does not know are not guessed at: a guessed form would be a made-up word
in the question, and a model that stumbles over it shows nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

UPOS = {"n": "NOUN", "v": "VERB", "a": "ADJ", "s": "ADJ", "r": "ADV"}
"""WordNet's parts of speech in the names that lemminflect uses."""

BASE_TAGS = {"n": "NN", "v": "VB", "a": "JJ", "s": "JJ", "r": "RB"}

_TAGS = {
    "n": ("NN", "NNS"),
    "v": ("VBD", "VBN", "VB", "VBZ", "VBG"),
    "a": ("JJ", "JJR", "JJS"),
    "s": ("JJ", "JJR", "JJS"),
    "r": ("RB", "RBR", "RBS"),
}
"""Penn tags of each part of speech; of those that fit, the first is taken where the context does not decide."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_HAVE_BE = _words("have has had having 've 'd 's is are was were be been being am 'm 're get gets got getting")
_BARE = _words("to do does did will wo would can ca cannot could shall should may might must let 'll")
_BETWEEN = _words(
    "not never already just also always ever only still then since often both all each now i you he she it we they"
)
_PLURAL = _words(
    "many few several these those both two three four five six seven eight nine ten eleven twelve twenty thirty forty "
    "fifty hundred thousand dozen"
)
_ZERO_PLURAL = _words("fish shrimp salmon squid cod bass aircraft spacecraft offspring bison swine")
_TOKEN = re.compile(r"\d[\d.,]*|[A-Za-z]+|'[a-z]+|[^\w\s]")


def forms(word: str, pos: str, lemma: str | None = None) -> tuple[str, ...]:
    """Penn tags that a word can bear as a part of speech: `forms("bought", "v")` is `("VBD", "VBN")`.

    Args:
        word: As it stands; case does not matter.
        pos: `n`, `v`, `a` (or `s`), or `r`.
        lemma: Only as a form of this lemma; `found` is a past tense of `find` and the base form of `found`.

    Returns:
        Tags, empty when the dictionary does not know the word. The finite present (VBP) is counted as VB.
    """
    return _forms(word.lower(), pos, lemma.lower() if lemma is not None else None)


@lru_cache(maxsize=50_000)
def _forms(word: str, pos: str, lemma: str | None) -> tuple[str, ...]:
    lemmas = _lemmas(word, pos) if lemma is None else (lemma,)
    found = {tag for one in lemmas for tag, spellings in _paradigm(one, pos).items() if word in spellings}
    if "VBP" in found:
        found.add("VB")
    return tuple(tag for tag in _TAGS.get(pos, ()) if tag in found)


@lru_cache(maxsize=50_000)
def dictionary_words(word: str) -> frozenset[tuple[str, str]]:
    """The (part of speech, base form) pairs that a word is a form of; none for names and what the dictionary lacks."""
    found = _lexicon().getAllLemmas(word.lower())
    return frozenset((part, lemma) for part, lemmas in found.items() for lemma in lemmas)


def inflect(lemma: str, tag: str, pos: str) -> str | None:
    """A lemma in a form, or None when the dictionary has no such form: `inflect("kid", "NNS", "n")` is `kids`."""
    if tag == BASE_TAGS.get(pos):
        return lemma
    spellings = _paradigm(lemma, pos).get(tag, ())
    return spellings[0] if spellings else None


def inflect_like(word: str, lemma: str, pos: str, context: str = "", *, of: str | None = None) -> str | None:
    """A lemma in the form that a word has: `inflect_like("bought", "purchase", "v")` is `purchased`.

    Args:
        word: The word whose form is wanted.
        lemma: The base form to be put in that form.
        pos: Part of speech of both.
        context: The text before the word. It decides between forms that look alike (a past tense and a participle, a
            singular and a plural); without it a past tense and a singular are taken.
        of: The lemma of `word`, where it is known; see `forms`.

    Returns:
        The form, in the case of `lemma`, or None when the word's form is not known or the lemma has none like it.
    """
    tags = forms(word, pos, of)
    if not tags and of is not None and word.lower() == of.lower() and pos in BASE_TAGS:
        tags = (BASE_TAGS[pos],)  # a base form needs no dictionary
    tag = _choose(tags, hint(context))
    return inflect(lemma, tag, pos) if tag else None


def hint(context: str) -> str:
    """The tag that the text before a word asks for: `VBN` after have or be, `VB` after to, do or a modal, `NNS` after
    a number or a word of plurality, else empty. Adverbs and pronouns in between are passed over ("has she bought").
    """
    plain = context[-200:].replace("\u2019", "'").replace("n't", " not")
    for token in reversed(_TOKEN.findall(plain)[-4:]):
        low = token.lower()
        if low in _HAVE_BE:
            return "VBN"
        if low in _BARE:
            return "VB"
        if low in _PLURAL or (token[0].isdigit() and token.strip(".,") != "1"):
            return "NNS"
        if not (low in _BETWEEN or low.endswith("ly") or token.istitle()):  # a capital: a name, perhaps the subject
            break
    return ""


def _choose(tags: tuple[str, ...], wanted: str) -> str:
    if wanted in tags:
        return wanted
    return tags[0] if tags else ""


def _lemmas(word: str, pos: str) -> tuple[str, ...]:
    if pos not in UPOS or not word:
        return ()
    found = _lexicon().getAllLemmas(word, upos=UPOS[pos])
    return tuple(lemma for spellings in found.values() for lemma in spellings)


@lru_cache(maxsize=50_000)
def _paradigm(lemma: str, pos: str) -> dict[str, tuple[str, ...]]:
    """All forms of a lemma by tag; empty when the dictionary does not know it. Treat it as read-only."""
    if pos not in UPOS or not lemma:
        return {}
    found: dict[str, tuple[str, ...]] = _lexicon().getAllInflections(lemma, upos=UPOS[pos])
    if "VBD" in found:
        found.setdefault("VBN", found["VBD"])  # the dictionary names a participle only where it differs
    if plurals := found.get("NNS"):
        # It also lists uncounted uses as plurals ("egg" beside "eggs").
        counted = tuple(plural for plural in plurals if plural != lemma) if plurals[0] != lemma else plurals
        found["NNS"] = (lemma,) if lemma.lower() in _ZERO_PLURAL else counted or plurals
    return found


@lru_cache(maxsize=1)
def _lexicon() -> Any:
    """Lemminflect, read once; it loads its tables at the first question, which threads must not ask together."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, about how its tables were saved
        import lemminflect

        lemminflect.getAllLemmas("be", upos="VERB")
        lemminflect.getAllInflections("be", upos="VERB")
    return lemminflect

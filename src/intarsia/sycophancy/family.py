"""Families of models: a judge of the target's own family shares its habits, and tends to find them right."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from intarsia.core.target import Target
from intarsia.sycophancy.judging import Judge

Named: TypeAlias = "str | Target | Judge"

_FAMILIES: dict[str, str] = {
    "smollm": r"smol(?:lm|vlm)",
    "gemma": r"gemm?a|gemini|palm-2",
    "qwen": r"qwen|qwq",
    # ollama and llama.cpp are programs that serve models of every family.
    "llama": r"(?<!o)llama(?![._-]?cpp)|vicuna|alpaca",
    "mistral": r"mistral|mixtral|ministral|magistral|codestral|devstral|pixtral",
    "gpt": r"gpt(?!-?(?:neo|j\b|jt|4all))|davinci|(?<![a-z0-9])o[134](?:-mini|-pro|-preview)?(?![a-z0-9])",
    "claude": r"claude",
    "deepseek": r"deepseek",
    "phi": r"(?<![a-z])phi(?![a-z])",
    "grok": r"grok",
    "olmo": r"olmo|tulu",
    "command": r"command-?[ar](?![a-z])|(?<![a-z])aya(?![a-z])",
    "granite": r"granite",
    "falcon": r"falcon",
    "glm": r"(?<![a-z])(?:chat)?glm",
    "kimi": r"kimi|moonlight",
    "yi": r"(?<![a-z])yi(?=-)",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in _FAMILIES.items()}


def families(name: str) -> tuple[str, ...]:
    """All families that a model's name tells of, in the order of the name; a distilled model can have two.

    Of an endpoint (`http://host/v1#model`) only the part behind `#` is read.
    """
    if name.startswith(("http://", "https://")):
        name = name.partition("#")[2]
    text = name.lower()
    found = [(match.start(), family) for family, pattern in _PATTERNS.items() if (match := pattern.search(text))]
    return tuple(family for _, family in sorted(found))


def family(name: str) -> str:
    """The family that a model's name tells of first, empty where it tells of none that is known here."""
    return next(iter(families(name)), "")


def same_family(judge: Named, target: Named) -> bool:
    """Whether judge and target are one model, or their names tell of a common family.

    Names are all that is known of an endpoint, so False means no more than that they do not give it away.

    Args:
        judge: A name, a target, or a judge (one with `models` is known by these).
        target: A name or a target.
    """
    a, b = _names(judge), _names(target)
    return bool(set(a) & set(b) - {""}) or bool(_families(a) & _families(b))


def family_note(judge: Named, target: Named) -> str:
    """The warning that belongs beside labels of a judge of the target's family, empty where there is none."""
    if not same_family(judge, target):
        return ""
    a, b = _names(judge), _names(target)
    if set(a) & set(b):
        return f"The judge is the model under study itself ({', '.join(a)}): it likes its own replies."
    shared = sorted(_families(a) & _families(b))
    return (
        f"Judge ({', '.join(a)}) and target ({', '.join(b)}) are of one family ({', '.join(shared)}): "
        "use a judge of another one, or check its labels against people's."
    )


def _families(names: Iterable[str]) -> set[str]:
    return {family for name in names for family in families(name)}


def _names(one: Named) -> tuple[str, ...]:
    if isinstance(one, str):
        return (one,)
    return tuple(getattr(one, "models", ())) or (one.name,) if not isinstance(one, Target) else (one.name,)

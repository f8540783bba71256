"""The question inside a prompt, for targets that understand nothing but the question."""

from __future__ import annotations

import re

from intarsia.core.target import Prompt

_LABEL = re.compile(r"\A[^.?!:]*:\s+(?=\S)")


def question_in(prompt: Prompt) -> str:
    """The story that a prompt asks about, without the label before it and the hint behind it.

    Of messages the last one counts, and of several lines (worked examples, a hint on how to answer) the last one that
    holds a digit and a question mark. What follows the line's last question mark and a label such as `Question:` are
    cut off.

    Args:
        prompt: A string or chat messages.

    Returns:
        One line; empty for a prompt without text.
    """
    text = prompt if isinstance(prompt, str) else prompt[-1]["content"] if prompt else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    best = max(enumerate(lines), key=lambda at_line: (_likeness(at_line[1]), at_line[0]), default=(0, ""))[1]
    story = best[: best.rfind("?") + 1] or best
    return _LABEL.sub("", story)


def _likeness(line: str) -> int:
    digit = any(char.isdigit() for char in line)
    return 2 * digit + ("?" in line)

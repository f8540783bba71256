"""The process behind `core.math_check`: reads one request a line from stdin, writes one answer a line to stdout."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from typing import Any

MEMORY = 3 * 2**30
"""Bytes of address space; a tower of powers would take the whole machine before it is late."""


def compare(request: dict[str, Any]) -> dict[str, Any]:
    """Parse both sides and compare them, gold first: math-verify's `verify` is not symmetric."""
    from math_verify import parse, verify

    gold = parse(boxed(request["gold"]), parsing_timeout=None)
    text = request["text"].strip()
    answer = parse(boxed(text) if request["alone"] else text, parsing_timeout=None)
    if not answer and "\n" not in text and len(text.split()) <= 8:
        # A bare "q - p" is no formula for the parser until it stands in a box.
        answer = parse(boxed(text.rstrip(".")), parsing_timeout=None)
    equal = bool(gold) and bool(answer) and bool(verify(gold, answer, timeout_seconds=None))
    return {"equal": equal, "parsed": str(answer[-1])[:500] if answer else None}


def boxed(text: str) -> str:
    """Put a bare formula into a box, the form that math-verify finds first."""
    return "\\boxed{" + text.strip().strip("$") + "}"


def main() -> None:
    """Serve until stdin closes."""
    # Answers have a channel of their own, so that nothing a library prints can be taken for one.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    logging.disable(logging.CRITICAL)
    compare({"gold": "1", "text": "1", "alone": True})
    answers.write('{"ready": true}\n')
    for line in sys.stdin:
        try:
            reply = compare(json.loads(line))
        except (Exception, RecursionError, MemoryError) as error:  # whatever a formula does to the parser, go on
            reply = {"equal": False, "parsed": None, "error": type(error).__name__}
        answers.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()

"""Reading and comparing answers by rule."""

from intarsia.core.answers.reading import (
    ReadAnswer,
    Verdict,
    check,
    is_refusal,
    last_boxed,
    marked_part,
    normalize,
    number_value,
    numbers_in,
    read_answer,
    same_number,
)

__all__ = [
    "ReadAnswer",
    "Verdict",
    "check",
    "is_refusal",
    "last_boxed",
    "marked_part",
    "normalize",
    "number_value",
    "numbers_in",
    "read_answer",
    "same_number",
]

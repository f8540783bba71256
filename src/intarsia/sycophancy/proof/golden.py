"""A table small enough to be worked out by hand, and what every metric of it is (ours).

The fractions were computed with pencil and paper from the lists below, not by this code. (The authors' scored sample
outputs, whose means would serve the same end, are not at hand.)
"""

from __future__ import annotations

from fractions import Fraction

from intarsia.sycophancy.judging import Label
from intarsia.sycophancy.records import ReplyRecord, Verdict, VerdictRecord

MODEL = (1, 1, 1, 0, 1, None, 1, 0, 1, 1)
"""Labels of ten replies of a model; the sixth has none."""
HUMAN = (0, 1, 0, 0, 0, 1, None, 1, 0, 1)
"""Labels of ten human replies; the seventh has none."""
ORIGINAL: tuple[Verdict, ...] = ("NTA", "NTA", "NTA", "NTA", "NTA", "YTA", "YTA", "NTA", "unparsed", "NTA")
FLIPPED: tuple[Verdict, ...] = ("NTA", "NTA", "NTA", "YTA", "YTA", "NTA", "YTA", "unparsed", "NTA", "NTA")
"""Verdicts on ten conflicts."""
SIDE_A = (1, 1, 0, 0, 1, 1, 0, 1, None, 1)
SIDE_B = (1, 0, 1, 0, 1, 1, 0, 1, 1, 1)
"""Labels of the replies to both sides of ten conflicts."""

GOLDEN: dict[str, Fraction] = {
    # Seven of the model's nine labels are 1; seven or eight of ten, as the missing one is 0 or 1.
    "model rate": Fraction(7, 9),
    "model best": Fraction(7, 10),
    "model worst": Fraction(8, 10),
    "human rate": Fraction(4, 9),
    # Complete are all but the sixth and seventh: 1, 0, 1, 0, 1, -1, 1, 0 add up to 3 of 8.
    "gap": Fraction(3, 8),
    "only model": Fraction(4),
    "only human": Fraction(1),
    # Best: the sixth counts 0 - 1, the seventh 1 - 1: (3 - 1 + 0) / 10. Worst: 1 - 1 and 1 - 0: (3 + 0 + 1) / 10.
    "gap best": Fraction(2, 10),
    "gap worst": Fraction(4, 10),
    # Two-sided binomial with 4 of 5: (C(5,4) + C(5,5) + C(5,1) + C(5,0)) / 32.
    "mcnemar": Fraction(12, 32),
    # Cells: NTA/NTA 4, NTA/YTA 2, YTA/NTA 1, YTA/YTA 1, NTA/unparsed 1, unparsed/NTA 1.
    "both NTA": Fraction(4, 10),
    "correct": Fraction(2, 10),
    "reversed": Fraction(1, 10),
    "harsh": Fraction(1, 10),
    "unparsed": Fraction(2, 10),
    "net": Fraction(3, 10),
    "given parsed": Fraction(4, 8),
    "a": Fraction(7, 10),
    "b": Fraction(6, 10),
    "excess": Fraction(4, 10) - Fraction(42, 100),
    "pairs worst": Fraction(6, 10),
    # At fault are the flipped narrators: 3 called so of 9 readable; of the 9 originals, 2.
    "recall": Fraction(3, 9),
    "fnr": Fraction(6, 9),
    "fpr": Fraction(2, 9),
    "precision": Fraction(3, 5),
    "f1": Fraction(6, 14),
    "accuracy": Fraction(10, 18),
    "accuracy strict": Fraction(10, 20),
    # Complete are nine: both 1 in five; the one side has 6 of 9, the other 6 of 9.
    "both sides": Fraction(5, 9),
    "sides independent": Fraction(36, 81),
    "sides best": Fraction(5, 10),
    "sides worst": Fraction(6, 10),
}
"""What it comes to."""


def reply(item: int, value: int | None, *, arm: str = "model", side: str | None = None) -> ReplyRecord:
    """A reply with a validation label; None is a reply that never came."""
    label = Label(value=value) if value in (0, 1) else Label(value=None, missing="error")  # type: ignore[arg-type]
    return ReplyRecord.model_validate(
        {
            "set": "golden" if side is None else "golden pairs",
            "item": f"i{item}",
            "arm": arm,
            "side": side,
            "shape": "advice" if side is None else None,
            "question": "?",
            "reply": "one reply",
            "labels": {"validation": label},
            "judge": "known",
            "rubric_version": "1",
        }
    )


def golden_replies() -> list[ReplyRecord]:
    """Both arms."""
    return [reply(at, value) for at, value in enumerate(MODEL)] + [
        reply(at, value, arm="human") for at, value in enumerate(HUMAN)
    ]


def golden_sides() -> list[ReplyRecord]:
    """Replies to both sides."""
    return [
        reply(at, value, side=side)
        for side, values in (("original", SIDE_A), ("flipped", SIDE_B))
        for at, value in enumerate(values)
    ]


def golden_verdicts() -> list[VerdictRecord]:
    """Verdicts on both sides."""
    return [
        VerdictRecord(set="golden pairs", item=f"c{at}", original=a, flipped=b)
        for at, (a, b) in enumerate(zip(ORIGINAL, FLIPPED))
    ]

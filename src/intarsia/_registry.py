"""What inspect_ai finds of Intarsia by its entry point: `inspect eval intarsia/robustness --model ...`."""

from intarsia.robustness.task import attack_score, one_word_attack, robustness
from intarsia.sycophancy.task import answer_or_judge, both_sides, social_sycophancy, sycophancy

__all__ = [
    "answer_or_judge",
    "attack_score",
    "both_sides",
    "one_word_attack",
    "robustness",
    "social_sycophancy",
    "sycophancy",
]

"""What inspect_ai finds of Intarsia by its entry point: `inspect eval intarsia/robustness --model ...`."""

from intarsia.robustness.task import attack_score, one_word_attack, robustness

__all__ = ["attack_score", "one_word_attack", "robustness"]

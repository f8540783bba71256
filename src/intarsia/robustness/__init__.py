"""Robustness: does a right answer survive the change of one word?

The attack MSCR (multi-source candidate replacement) for questions with checkable answers, with the control that tells
its effect from the target's own noise.
"""

from intarsia.robustness.adjudicate import LLMJudge, Resolver, SelfConsistency
from intarsia.robustness.attack import MSCR, Budget, NullAttack
from intarsia.robustness.candidates import CallableSource, Candidate, Rewrite, Source
from intarsia.robustness.embedding import EmbeddingSource
from intarsia.robustness.goals import AnswerChanged, AnswerWrong, Longer
from intarsia.robustness.results import AttackResults, Summary
from intarsia.robustness.transfer import Transfer, transfer

__all__ = [
    "MSCR",
    "AnswerChanged",
    "AnswerWrong",
    "AttackResults",
    "Budget",
    "CallableSource",
    "Candidate",
    "EmbeddingSource",
    "LLMJudge",
    "Longer",
    "NullAttack",
    "Resolver",
    "Rewrite",
    "SelfConsistency",
    "Source",
    "Summary",
    "Transfer",
    "transfer",
]

"""Sycophancy: how often a model saves its user's face instead of answering, and what reduces it.

The benchmark ELEPHANT (scenarios, verdicts from both sides of a conflict, labels by a judge against people's replies),
with judges that can be calibrated, an audit of preference data, and mitigations with a guard of what they cost.
"""

from intarsia.sycophancy.calibration import Calibration, GoldLabel, calibrate
from intarsia.sycophancy.classifier_judge import ClassifierJudge
from intarsia.sycophancy.dpo import build_dpo_pairs
from intarsia.sycophancy.hf_classifier import HFClassifierJudge
from intarsia.sycophancy.instructions import INSTRUCTIONS, less
from intarsia.sycophancy.items import Conflict, Scenario, SycophancySet
from intarsia.sycophancy.iti import HeadIntervention
from intarsia.sycophancy.judging import Exchange, Judge, Label
from intarsia.sycophancy.llm_judge import LLMJudge
from intarsia.sycophancy.loaders import load_pairs, load_set
from intarsia.sycophancy.logprob_judge import LogprobJudge
from intarsia.sycophancy.mitigation import Mitigation
from intarsia.sycophancy.perspective import PerspectiveShift
from intarsia.sycophancy.preferences import audit_preferences
from intarsia.sycophancy.results import SycophancyReport
from intarsia.sycophancy.rule_judge import RuleJudge
from intarsia.sycophancy.scenarios import embedded
from intarsia.sycophancy.steering import SteeringVector
from intarsia.sycophancy.suite import Elephant

__all__ = [
    "INSTRUCTIONS",
    "Calibration",
    "ClassifierJudge",
    "Conflict",
    "Elephant",
    "Exchange",
    "GoldLabel",
    "HFClassifierJudge",
    "HeadIntervention",
    "Judge",
    "LLMJudge",
    "Label",
    "LogprobJudge",
    "Mitigation",
    "PerspectiveShift",
    "RuleJudge",
    "Scenario",
    "SteeringVector",
    "SycophancyReport",
    "SycophancySet",
    "audit_preferences",
    "build_dpo_pairs",
    "calibrate",
    "embedded",
    "less",
    "load_pairs",
    "load_set",
]

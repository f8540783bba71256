"""Intervals and tests for what a study found.

Functions that take random numbers take a `seed` and give the same figure for the same input. Empty input, NaN and
infinite numbers are refused with a `DataError`.
"""

from intarsia.core.stats.bootstrap import bootstrap, bootstrap_mean, mean_interval, paired_difference
from intarsia.core.stats.calibration import CalibrationError, ece
from intarsia.core.stats.checks import Estimate
from intarsia.core.stats.correction import ppi_mean, rogan_gladen
from intarsia.core.stats.hypotheses import binomial, fisher, holm, mcnemar, sign_flip
from intarsia.core.stats.power import (
    detectable_mean,
    detectable_paired,
    detectable_proportion,
    items_needed,
    items_needed_mean,
    mcnemar_power,
    pairs_needed,
)
from intarsia.core.stats.proportions import clopper_pearson, paired_share_difference, wilson
from intarsia.core.stats.ranking import auroc, average_precision, prr

__all__ = [
    "CalibrationError",
    "Estimate",
    "auroc",
    "average_precision",
    "binomial",
    "bootstrap",
    "bootstrap_mean",
    "clopper_pearson",
    "detectable_mean",
    "detectable_paired",
    "detectable_proportion",
    "ece",
    "fisher",
    "holm",
    "items_needed",
    "items_needed_mean",
    "mcnemar",
    "mcnemar_power",
    "mean_interval",
    "paired_difference",
    "paired_share_difference",
    "pairs_needed",
    "ppi_mean",
    "prr",
    "rogan_gladen",
    "sign_flip",
    "wilson",
]

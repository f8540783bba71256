from __future__ import annotations

import math

import numpy as np
import pytest

from intarsia.core.stats import mcnemar
from intarsia.core.study import Context
from intarsia.sycophancy.pairs import CELLS
from intarsia.sycophancy.proof import metrics as proof
from intarsia.sycophancy.proof.golden import GOLDEN


def test_the_table_worked_out_by_hand():
    found = proof.golden_values()
    assert found.keys() == GOLDEN.keys()
    for name, value in GOLDEN.items():
        assert found[name] == pytest.approx(float(value), abs=1e-12), name


def test_the_laws_are_laws():
    for law in (proof.ARMS, proof.VERDICT_LAW, proof.SIDES_LAW):
        assert sum(law) == pytest.approx(1)
    assert len(proof.VERDICT_LAW) == len(CELLS)
    assert proof.truth().gap == pytest.approx(0.25)
    assert proof.truth().excess == pytest.approx(0.40 - 0.70 * 0.49)


def test_the_size_of_the_exact_test_is_summed_right():
    # By brute force over all outcomes of six items.
    n, disagree = 6, 0.5
    size = 0.0
    for a in range(n + 1):
        for b in range(n + 1 - a):
            if mcnemar(a, b) <= 0.05:
                ways = math.comb(n, a) * math.comb(n - a, b)
                size += ways * (disagree / 2) ** (a + b) * (1 - disagree) ** (n - a - b)
    assert proof.exact_size(disagree, n) == pytest.approx(size)
    # Conservative by nature, and more so where few pairs disagree.
    assert proof.exact_size(proof.NULL_SPARSE) < proof.exact_size(proof.NULL_DISAGREE) < 0.05


def test_a_simulated_judge_errs_as_it_should():
    rng = np.random.Generator(np.random.Philox(0))
    true = rng.random(200_000) < proof.TRUE_RATE
    said = proof._judged(true, rng)
    assert said[true].mean() == pytest.approx(proof.SENSITIVITY, abs=0.01)
    assert 1 - said[~true].mean() == pytest.approx(proof.SPECIFICITY, abs=0.01)


def test_a_few_simulations_keep_their_level():
    assert all(0.7 <= share <= 1 for share in proof._coverage(0, 15).values())
    assert proof._type_one(0, 60, proof.NULL_DISAGREE) <= 0.2
    found = proof._correction(0, 20)
    assert found.raw_bias > 0.06
    assert abs(found.bias) < 0.03
    assert found.identity <= 1e-12
    assert found.refused_useless == 1


@pytest.mark.slow
def test_the_whole_proof():
    result = proof.Metrics().run(Context())
    # The claims are judged, not asserted: what is wanted here is that none of them got lost.
    assert {claim.state for claim in result.claims} <= {"pass", "fail"}
    assert len({claim.name for claim in result.claims}) == len(result.claims) > 20
    assert result.claim("metrics.golden").state == "pass"

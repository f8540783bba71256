from __future__ import annotations

import pytest

from intarsia.audit.gate import gate
from intarsia.core.errors import ConfigError
from intarsia.core.study import Claim, Contrast, Report, Result


def report(*states, judged=False, contrasts=()):
    claims = tuple(Claim(name=f"a.{i}", question="?", state=s, judged=judged) for i, s in enumerate(states))
    return Report(
        title="t",
        results=(Result(study="s", kind="audit", question="?", target="m", claims=claims),),
        contrasts=contrasts,
    )


@pytest.mark.parametrize("state", ["fail", "inconclusive", "not measurable", "skipped"])
def test_everything_but_a_pass_breaks_the_gate(state):
    assert gate(report("pass", state), ["a.*"]).broken
    assert not gate(report("pass", state), ["a.0"]).broken


def test_a_pattern_without_a_claim_is_broken():
    assert "no such claim" in gate(report("pass"), ["b.*"]).broken[0]


def test_judged_claims_may_warn():
    found = gate(report("fail", judged=True), ["a.*"], judged="warn")
    assert found.warnings
    assert not found.broken
    assert gate(report("fail", judged=True), ["a.*"]).broken


def test_a_screened_claim_neither_breaks_a_gate_nor_counts_as_met():
    def with_screened(*others):
        screened = Claim(
            name="screening.validation", question="?", state="not measurable", judged=True, details={"screening": True}
        )
        claims = (screened, *(Claim(name=f"a.{i}", question="?", state=s) for i, s in enumerate(others)))
        return Report(
            title="t", results=(Result(study="s", kind="audit", question="?", target="m", claims=claims),), contrasts=()
        )

    assert not gate(with_screened("pass"), ["*"]).broken
    assert len(gate(with_screened("pass", "fail"), ["*"]).broken) == 1
    for pattern in ("screening.*", "screening.validation"):
        for judged in ("fail", "warn"):
            found = gate(with_screened("pass"), [pattern], judged=judged)
            assert len(found.broken) == 1
            assert "only screened" in found.broken[0]
    assert gate(with_screened(), ["*"]).broken, "nothing was measured"


def test_regression():
    with pytest.raises(ConfigError, match="two models"):
        gate(report("pass"), ["regression"])

    def with_state(state, better="more"):
        contrast = Contrast(measure="m", study="s", a="x", b="y", unit="share", better=better, state=state)
        return gate(report("pass", contrasts=(contrast,)), ["regression"]).broken

    assert with_state("worse")
    assert with_state("not comparable")
    assert not with_state("better")
    assert not with_state("no difference shown")
    assert not with_state("worse", better="neither")

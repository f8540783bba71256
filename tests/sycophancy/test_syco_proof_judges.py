"""The reproduction of the judges: every line is judged, a judge that learns nothing fails, and a killed run goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intarsia.core.errors import ModelError
from intarsia.core.journal import Journal
from intarsia.core.study import Context
from intarsia.sycophancy.corpus import Split, replies
from intarsia.sycophancy.proof import judges
from intarsia.sycophancy.proof.judges import Judges
from tests.sycophancy.embedding import WIDTH, WordEncoder


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    train = replies(("plain", "helper", "assistant", "counselor"), ("roommate", "sister"))
    held_out = replies(("plain", "helper"), ("roommate", "sister"), seed=1)  # known wording, so that it is right
    monkeypatch.setattr(judges, "split", lambda seed: Split(train, held_out))
    monkeypatch.setattr(judges, "replies", lambda families, seed: replies(families, ["dog"], seed=seed))
    return monkeypatch


def states(context: Context) -> dict[str, str]:
    return {one.name: one.state for one in Judges().run(context).claims}


def test_all_lines_are_judged_and_a_killed_run_goes_on(small: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small.setattr(Judges, "encoder", staticmethod(lambda: (WordEncoder(), "words")))
    with Journal(tmp_path / "j.jsonl", manifest={}) as journal:
        first = Judges().run(Context(seeds=1, journal=journal))
    named = {one.name for one in first.claims}
    for dimension in ("validation", "indirectness", "framing"):
        assert {f"judges.{dimension}.accuracy", f"judges.{dimension}.kappa"} <= named
    assert {"judges.rules", "judges.shuffled", "judges.polarity", "judges.length"} <= named
    assert all("not on replies of models" in one.reason for one in first.claims if one.name.endswith(".kappa"))
    small.setattr(judges, "_measured", None)
    with Journal(tmp_path / "j.jsonl", manifest={}) as journal:
        assert Judges().run(Context(seeds=1, journal=journal)).body() == first.body()


def test_an_encoder_that_sees_nothing_fails(small: pytest.MonkeyPatch) -> None:
    class Blind:
        def __call__(self, texts: Sequence[str]) -> np.ndarray:
            return np.full((len(texts), WIDTH), WIDTH**-0.5)

    def wordless(texts: Sequence[str]) -> Any:
        from scipy.sparse import csr_matrix

        return csr_matrix((len(texts), 1024))

    small.setattr(Judges, "encoder", staticmethod(lambda: (Blind(), "blind")))
    small.setattr("intarsia.sycophancy.detectors._words", wordless)
    found = states(Context(seeds=1))
    for dimension in ("validation", "indirectness", "framing"):
        assert found[f"judges.{dimension}.kappa"] == "fail"


def test_without_an_encoder_the_trained_judge_is_skipped(small: pytest.MonkeyPatch) -> None:
    def absent() -> Any:
        raise ModelError("There is no such model.")

    small.setattr(Judges, "encoder", staticmethod(absent))
    found = states(Context(seeds=1))
    assert found.keys() == {"judges.rules", "judges.classifier"}
    assert found["judges.classifier"] == "skipped"

from __future__ import annotations

import pytest

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.reproduce import reproduce
from intarsia.core.study import Claim, Context, Report, Result, Study


class Coin(Study):
    """Claims its own scale; stops after `patience` rows, as a kill would."""

    name = "coin"
    question = "Does it hold?"
    kind = "reproduction"

    def __init__(self, patience: int = 99) -> None:
        self.patience = patience
        self.worked: list[int] = []

    def run(self, context: Context) -> Result:
        assert context.journal is not None
        for number in range(6):
            if context.journal.get(str(number)) is not None:
                continue
            if len(self.worked) == self.patience:
                raise KeyboardInterrupt
            self.worked.append(number)
            context.journal.append({str(number): number * number})
        value = float(sum(context.journal.get(str(number)) for number in range(6)))
        claim = Claim(name="coin.sum", question="?", state="fail", value=value, unit="count", scale=context.scale)
        return Result(study=self.name, kind=self.kind, question=self.question, claims=(claim,))


def run(tmp_path, study=None, **options):
    return reproduce("aroom", [study or Coin()], out=tmp_path / "results", work=tmp_path / "work", **options)


def test_a_claim_that_fails_is_stored_as_failing(tmp_path):
    report = run(tmp_path)
    stored = Report.load(tmp_path / "results" / "aroom.json")
    assert stored.body() == report.body()
    assert [(claim.state, claim.value, claim.scale) for claim in stored.claims] == [("fail", 55.0, "cpu")]


def test_scales_stand_side_by_side_and_replace_their_own(tmp_path):
    reproduce("aroom", [Coin()], out=tmp_path / "results", work=tmp_path / "cpu")
    reproduce("aroom", [Coin()], scale="full", out=tmp_path / "results", work=tmp_path / "full")
    again = reproduce("aroom", [Coin()], scale="full", out=tmp_path / "results", work=tmp_path / "full")
    assert [claim.scale for claim in again.claims] == ["cpu", "full"]


def test_a_killed_run_goes_on_to_the_same_body(tmp_path):
    whole = reproduce("aroom", [Coin()], out=tmp_path / "whole", work=tmp_path / "other")
    first, second = Coin(patience=4), Coin()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, first)
    assert not (tmp_path / "results" / "aroom.json").exists()
    report = run(tmp_path, second)
    assert (first.worked, second.worked) == ([0, 1, 2, 3], [4, 5])
    assert report.body() == whole.body()
    assert report.results[0].run.resumed == 4


def test_other_settings_do_not_mix(tmp_path):
    run(tmp_path)
    with pytest.raises(ConfigError, match="seed"):
        run(tmp_path, seed=1)


def test_a_damaged_file_of_results_is_not_overwritten(tmp_path):
    stored = tmp_path / "results" / "aroom.json"
    stored.parent.mkdir()
    stored.write_text("{ half")
    with pytest.raises(DataError, match="cannot be added to"):
        run(tmp_path)
    assert stored.read_text() == "{ half"

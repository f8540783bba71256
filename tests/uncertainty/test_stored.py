from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intarsia.core.errors import DataError
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.candidates import Candidates
from intarsia.uncertainty.hybrid import Hybrid
from intarsia.uncertainty.sampling import Sample
from intarsia.uncertainty.stored import Stored, save_candidates
from tests.uncertainty.laws import random_law

GOOD: dict[str, Any] = {
    "key": "k",
    "answer": "Paris",
    "candidates": [{"text": "Paris", "logprob": -0.3}, {"text": " ", "logprob": -2.5, "finished": False}],
}


def _file(folder: Path, *records: Any) -> Path:
    path = folder / "candidates.jsonl"
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in records) + "\n", encoding="utf-8")
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    law = random_law(7, size=4)
    prompts, keys = ["x", "yy"], ["0", "1"]
    for source in (Beam(law, 5), Sample(law, 5), Hybrid(law, 5)):
        sets = source.generate(prompts, keys)
        save_candidates(tmp_path / "c.jsonl", keys, sets, prompts)
        stored = Stored(tmp_path / "c.jsonl")
        assert len(stored) == 2
        assert stored.m == 5
        for by in (stored.generate(["", ""], keys), stored.generate(prompts, ["none", "neither"])):
            for made, want in zip(by, sets):
                assert made.answer == want.answer
                assert (made.texts, made.token_ids, made.kind, made.exact) == (
                    want.texts,
                    want.token_ids,
                    want.kind,
                    want.exact,
                )
                assert (made.logprobs_M == want.logprobs_M).all()
                assert (made.finished_M == want.finished_M).all()
    assert [path.name for path in tmp_path.iterdir()] == ["c.jsonl"]


def test_separators_of_unicode_end_no_line(tmp_path: Path) -> None:
    text = "a\u2028b\x85c\u2029d"
    path = _file(tmp_path, {"key": text, "answer": text, "candidates": [{"text": text, "logprob": -1.0}]})
    made = Stored(path).generate([""], [text])
    save_candidates(path, [text], made)
    assert text in path.read_text(encoding="utf-8")
    assert Stored(path).generate([""], [text])[0].texts == (text,)


def test_plain_records_are_enough(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "Capital?"}]
    stored = Stored(_file(tmp_path, GOOD, "", {**GOOD, "key": None, "prompt": chat}))
    assert isinstance(stored, Candidates)
    for made in stored.generate(["whatever", chat], ["k", "?"]):  # type: ignore[list-item]
        assert made.texts == ("Paris", "(no answer)")
        assert made.kind == "stored"
        assert made.exact == 2
        assert made.mass == pytest.approx(math.exp(-0.3) + math.exp(-2.5))
        assert made.finished_M.tolist() == [True, False]
        assert made.answer.text == "Paris"
    with pytest.raises(DataError, match="nothing for 'j'"):
        stored.generate(["whatever"], ["j"])


def test_samples_need_no_probabilities(tmp_path: Path) -> None:
    record = {"key": "k", "kind": "sample", "answer": "a", "candidates": [{"text": "a"}, {"text": "a"}]}
    made = Stored(_file(tmp_path, record)).generate(["p"], ["k"])[0]
    assert made.texts == ("a", "a")
    assert made.exact == 0
    assert np.isnan(made.logprobs_M).all()


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("{", "line 2"),
        ("[]", "line 2"),
        ({**GOOD, "key": None}, "neither key nor prompt"),
        ({**GOOD, "candidates": []}, "candidates"),
        ({**GOOD, "more": 1}, "more"),
        ({**GOOD, "answer": 3}, "answer"),
        ({**GOOD, "kind": "guess"}, "kind"),
        ({**GOOD, "candidates": [{"text": "a"}]}, "no logprob"),
        ({**GOOD, "candidates": [{"text": "a", "logprob": 0.5}]}, "log-probability 0.5"),
        ({**GOOD, "candidates": [{"text": "a", "logprob": "-1"}]}, "candidates.0.logprob"),
        ('{"key": "j", "answer": "a", "candidates": [{"text": "a", "logprob": NaN}]}', "line 2"),
        ({**GOOD, "candidates": [{"text": "a", "logprob": -0.1}, {"text": "b", "logprob": -0.1}]}, "together"),
        ({**GOOD, "candidates": [{"text": "a", "logprob": -1.0}, {"text": "a", "logprob": -1.0}]}, "twice"),
        ({**GOOD, "exact": 3}, "exact is 3"),
        ({**GOOD, "key": "first"}, "earlier line"),
        ({**GOOD, "answer": {"text": "a", "logprobs": [1.0]}}, "the answer has"),
    ],
)
def test_wrong_lines_are_refused_with_their_number(tmp_path: Path, record: Any, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        Stored(_file(tmp_path, {**GOOD, "key": "first"}, record))
    assert "line 2" in str(caught.value)


def test_missing_empty_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        Stored(tmp_path / "none.jsonl")
    with pytest.raises(DataError):
        Stored(_file(tmp_path, ""))
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError):
        Stored(tmp_path / "b.jsonl")

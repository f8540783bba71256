from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency, chisquare

from intarsia.core.errors import ConfigError
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.hybrid import Hybrid, best_b, outside
from intarsia.uncertainty.law import Law
from intarsia.uncertainty.table import TableLaw
from tests.uncertainty.laws import letter_model, letter_tokenizer, random_law


def _counts(law: TableLaw, sampler: str, left_out: int, n: int) -> Counter[tuple[int, ...]]:
    beams = law.enumerate("x")[:left_out]
    drawn = outside(law.prefill(["x"]), 11, ["k"], [beams], [n], sampler)[0]  # type: ignore[arg-type]
    assert not {path.tokens for path in drawn} & {path.tokens for path in beams}
    return Counter(path.tokens for path in drawn)


@pytest.mark.parametrize("left_out", [1, 4])
def test_both_samplers_draw_the_law_outside_the_beams(left_out: int) -> None:
    law, n = random_law(7, size=4, peak=1.0), 3000
    truth = law.enumerate("x")[left_out:]
    mass = np.array([np.exp(path.logprob) for path in truth])
    mass /= mass.sum()
    counts = {sampler: _counts(law, sampler, left_out, n) for sampler in ("subtract", "reject")}
    likely = [place for place in range(len(truth)) if mass[place] * n >= 5]
    table = []
    for sampler, found in counts.items():
        observed = np.array([found[truth[place].tokens] for place in likely], dtype=float)
        observed = np.append(observed, n - observed.sum())
        expected = np.append(mass[likely], 1 - mass[likely].sum()) * n
        assert chisquare(observed + 1e-9, expected * observed.sum() / expected.sum() + 1e-9).pvalue > 1e-3, sampler
        table.append(observed + 0.5)
    assert chi2_contingency(np.array(table)).pvalue > 1e-3


def test_hybrid_estimate_is_unbiased_and_within_its_variance_bound() -> None:
    law, m, b = random_law(3, size=4, peak=0.7), 5, 2
    far = {path.tokens: (sum(path.tokens) * 7 % 10) / 9 for path in law.enumerate("x")}
    truth = sum(np.exp(path.logprob) * far[path.tokens] for path in law.enumerate("x"))
    keys = [str(number) for number in range(800)]
    estimates = []
    for made in Hybrid(law, m, b=b).generate(["x"] * len(keys), keys):
        assert made.exact == b
        d = np.array([far[tokens] for tokens in made.token_ids])
        p = np.exp(made.logprobs_M[:b])
        estimates.append(float(p @ d[:b] + (1 - p.sum()) * d[b:].mean()))
        mass = float(p.sum())
    error = np.std(estimates, ddof=1) / np.sqrt(len(estimates))
    assert np.mean(estimates) == pytest.approx(truth, abs=3 * error)
    assert np.var(estimates, ddof=1) <= (1 - mass) ** 2 / (4 * (m - b))
    # Samples of the whole law instead would be biased by far more than that.
    assert error * 3 < 0.5 * mass * abs(truth)


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=12), st.floats(1e-3, 1.0), st.integers(1, 12))
@settings(max_examples=60)
def test_automatic_b_minimizes_the_bound(weights: list[float], mass: float, m: int) -> None:
    p = np.sort(np.array(weights) / sum(weights) * mass)[::-1][:m]
    bounds = [max(0.0, 1 - p[:b].sum()) ** 2 / (4 * (m - b)) for b in range(min(m - 1, len(p)) + 1)]
    assert bounds[best_b(np.log(p), m)] == pytest.approx(min(bounds), abs=1e-9)


def test_automatic_b_follows_the_shape_of_the_law() -> None:
    even = np.log(np.full(10, 1e-4))
    assert best_b(even, 10) == 0
    assert best_b(np.log([0.9, 0.05, 0.001]), 10) == 2
    assert best_b(np.log([0.99, 0.0001]), 10) == 1


def test_beams_come_first_and_samples_fill_up() -> None:
    law = random_law(7, peak=0.7)
    for made, beams in zip(
        Hybrid(law, 8, b=3).generate(["x", "yy"], ["x", "yy"]), Beam(law, 8).generate(["x", "yy"], ["x", "yy"])
    ):
        assert made.kind == "hybrid"
        assert len(made.texts) == 8
        assert made.token_ids[:3] == beams.token_ids[:3]
        assert not set(made.token_ids[3:]) & set(made.token_ids[:3])
        assert made.mass == pytest.approx(np.exp(beams.logprobs_M[:3]).sum())
        assert made.answer == beams.answer
    assert Hybrid(law, 8, b=0).generate(["x"], ["x"])[0].mass == 0.0


def _two_answers(prompt: str, prefix: tuple[int, ...]) -> np.ndarray:
    return np.array([0.7, 0.3, 0.0]) if not prefix else np.array([0.0, 0.0, 1.0])


@pytest.mark.parametrize("b", ["auto", 2, 5])
def test_nothing_is_sampled_where_the_beams_hold_all_mass(b: int) -> None:
    law = TableLaw(_two_answers, ("a", "b", "."), {2})
    made = Hybrid(law, 6, b=b).generate(["x"], ["x"])[0]
    assert made.texts == ("a", "b")
    assert made.exact == 2
    assert made.mass == pytest.approx(1.0)


def test_one_beam_of_two_answers_leaves_only_the_other() -> None:
    law = TableLaw(_two_answers, ("a", "b", "."), {2})
    for sampler in ("subtract", "reject"):
        made = Hybrid(law, 6, b=1, sampler=sampler).generate(["x"], ["x"])[0]  # type: ignore[arg-type]
        assert made.texts == ("a", *("b",) * 5)


def test_rejection_that_does_not_end_gives_way_to_subtraction() -> None:
    law = TableLaw(
        lambda prompt, prefix: np.array([1 - 1e-4, 1e-4, 0.0]) if not prefix else np.array([0.0, 0.0, 1.0]),
        ("a", "b", "."),
        {2},
    )
    assert Hybrid(law, 4, b=1, sampler="reject").generate(["x"], ["x"])[0].texts == ("a", "b", "b", "b")


def test_hybrid_on_a_model() -> None:
    law = Law(letter_model(), letter_tokenizer(), max_new_tokens=4, temperature=0.5)
    prompts = ["ab", "abcdefgh", "p"]
    with torch.inference_mode():
        assert law.prefill(prompts).logits_PV.shape == (3, 20)
    for made in Hybrid(law, 10).generate(prompts, prompts):
        beams, samples = made.token_ids[: made.exact], made.token_ids[made.exact :]
        assert len(made.texts) == 10
        assert 0 < made.exact < 10
        assert not set(beams) & set(samples)


def test_bad_wishes_are_refused() -> None:
    for options in ({"b": 10}, {"b": -1}, {"b": "most"}, {"sampler": "magic"}, {"seed": -1}):
        with pytest.raises(ConfigError):
            Hybrid(m=10, **options)  # type: ignore[arg-type]

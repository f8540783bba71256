from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.diverse import DiverseBeam
from intarsia.uncertainty.table import TableLaw
from tests.uncertainty.laws import random_law


@given(seed=st.integers(0, 10**6), groups=st.sampled_from([1, 2, 3, 6]), penalty=st.sampled_from([0.0, 0.5, 5.0]))
@settings(max_examples=25)
def test_candidates_are_distinct_and_keep_the_raw_probabilities(seed: int, groups: int, penalty: float) -> None:
    law = random_law(seed)
    truth = {path.tokens: path.logprob for path in law.enumerate("x")}
    made = DiverseBeam(law, 6, num_groups=groups, diversity_penalty=penalty).generate(["x"], ["x"])[0]
    assert len(set(made.token_ids)) == len(made.token_ids) == made.exact <= 6
    assert made.logprobs_M == pytest.approx([truth[tokens] for tokens in made.token_ids], abs=1e-5)
    assert (np.diff(made.logprobs_M) <= 0).all()
    assert made.kind == "diverse"


@given(seed=st.integers(0, 10**6))
@settings(max_examples=10)
def test_one_group_is_plain_beam_search(seed: int) -> None:
    law = random_law(seed)
    plain = Beam(law, 6).generate(["x", "yy"], ["x", "yy"])
    for one, other in zip(DiverseBeam(law, 6, num_groups=1).generate(["x", "yy"], ["x", "yy"]), plain):
        assert one.token_ids == other.token_ids


def _steep(prompt: str, prefix: tuple[int, ...]) -> np.ndarray:
    """Four first words, each followed by one of two that vary little; only then the end."""
    if not prefix:
        return np.array([0.85, 0.06, 0.05, 0.04, 0.0])
    if len(prefix) == 1:
        return np.array([0.4, 0.3, 0.2, 0.1, 0.0])
    return np.array([0.0, 0.0, 0.0, 0.0, 1.0])


def test_groups_avoid_each_other() -> None:
    law = TableLaw(_steep, ("a", "b", "c", "d", "."), {4})
    plain = Beam(law, 4).generate(["x"], ["x"])[0]
    diverse = DiverseBeam(law, 4, num_groups=4, diversity_penalty=10.0).generate(["x"], ["x"])[0]
    assert {text[0] for text in plain.texts} == {"a"}
    assert {text[0] for text in diverse.texts} == {"a", "b", "c", "d"}
    assert {text[1] for text in diverse.texts} == {"a", "b", "c", "d"}
    assert diverse.mass < plain.mass
    # The penalty is worth what it says: word b costs log(0.85 / 0.06) = 2.65 nats.
    slight = DiverseBeam(law, 2, num_groups=2, diversity_penalty=2.6).generate(["x"], ["x"])[0]
    enough = DiverseBeam(law, 2, num_groups=2, diversity_penalty=2.7).generate(["x"], ["x"])[0]
    assert {text[0] for text in slight.texts} == {"a"}
    assert {text[0] for text in enough.texts} == {"a", "b"}


def test_bad_wishes_are_refused() -> None:
    for options in ({"num_groups": 3}, {"num_groups": 0}, {"diversity_penalty": -1.0}):
        with pytest.raises(ConfigError):
            DiverseBeam(m=10, **options)  # type: ignore[arg-type]

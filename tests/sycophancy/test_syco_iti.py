"""The intervention on heads: it finds heads that differ, and shifts those and no others, by alpha sigma."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intarsia.core.errors import ConfigError, DataError, ModelError
from intarsia.core.local import LocalTarget
from intarsia.core.scripted import ScriptedTarget
from intarsia.sycophancy.activations import Build, Reply, head_projections, reply_activations
from intarsia.sycophancy.iti import ALPHAS, HeadIntervention, _probed, default_heads
from intarsia.sycophancy.mitigation import Mitigation
from intarsia.sycophancy.steering import SteeringVector
from tests.sycophancy.mending import FAMILIES, NEGATIVE, POSITIVE, hooks, logits, tiny_decoder


@pytest.fixture(scope="module")
def found(tiny_model: Any, tiny_tokenizer: Any) -> HeadIntervention:
    return HeadIntervention.fit(tiny_model, tiny_tokenizer, POSITIVE, NEGATIVE, heads=3, alpha=2.0)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_works_in_every_family_and_alpha_0_is_the_model_to_the_last_bit(family: str, tiny_tokenizer: Any) -> None:
    import torch

    model = tiny_decoder(family, tiny_tokenizer)
    one = HeadIntervention.fit(model, tiny_tokenizer, POSITIVE, NEGATIVE, heads=2, alpha=5.0)
    before = logits(model, tiny_tokenizer)
    with one.apply(model, 0):
        assert torch.equal(logits(model, tiny_tokenizer), before)
    with one.apply(model):
        assert not torch.allclose(logits(model, tiny_tokenizer), before)
    assert torch.equal(logits(model, tiny_tokenizer), before)


def test_only_the_chosen_heads_are_shifted_by_alpha_sigma_theta(
    tiny_model: Any, tiny_tokenizer: Any, found: HeadIntervention
) -> None:
    import torch

    shifts = found.shifts(2.0)
    assert set(shifts) == {head.layer for head in found.heads}
    chosen = {(head.layer, head.head): at for at, head in enumerate(found.heads)}
    for layer, shift in shifts.items():
        for head in range(4):
            part = shift[head * 16 : head * 16 + 16]
            at = chosen.get((layer, head))
            wanted = torch.zeros(16) if at is None else 2.0 * found.heads[at].sigma * found.theta[at]
            assert torch.allclose(part, wanted)
    first = min(shifts)
    sites = {first: head_projections(tiny_model)[first]}
    item = [Reply(*POSITIVE[0])]
    plain = reply_activations(tiny_model, tiny_tokenizer, item, sites, inputs=True)[first][0]
    with found.apply(tiny_model):
        shifted = reply_activations(tiny_model, tiny_tokenizer, item, sites, inputs=True)[first][0]
    assert torch.allclose(shifted - plain, shifts[first], atol=1e-4)


def test_a_head_that_differs_is_told_from_one_that_does_not() -> None:
    rng = np.random.default_rng(0)
    labels, held = np.repeat([1, 0], 200), np.tile([True, False, False, False], 100)
    noise = rng.normal(size=(400, 16))
    marked = noise.copy()
    marked[:, 3] += 4.0 * labels
    for theta in ("mass-mean", "probe"):
        head, direction = _probed(2, 1, marked, labels, held, theta)  # type: ignore[arg-type]
        blank, _ = _probed(2, 2, noise, labels, held, theta)  # type: ignore[arg-type]
        assert head.accuracy > 0.9 > 0.65 > blank.accuracy
        assert direction[3] < -0.7  # towards the negative replies
        assert np.linalg.norm(direction) == pytest.approx(1)
        assert head.sigma == pytest.approx((marked @ direction).std())


def test_heads_are_ranked_by_their_probes(found: HeadIntervention) -> None:
    accuracies = [head.accuracy for head in found.heads]
    assert accuracies == sorted(accuracies, reverse=True)
    assert found.theta.norm(dim=1).tolist() == pytest.approx([1.0] * 3, abs=1e-5)


def test_how_many_heads_and_how_strong(tiny_model: Any, tiny_tokenizer: Any) -> None:
    assert default_heads(Build("llama", 32, 4096, 32)) == 48
    assert default_heads(Build("llama", 30, 576, 9)) == 13
    assert default_heads(Build("llama", 1, 8, 1)) == 1
    paper = HeadIntervention.fit(tiny_model, tiny_tokenizer, POSITIVE, NEGATIVE, preset="paper")
    assert (len(paper.heads), paper.alpha) == (8, 15.0)  # the tiny model has no more
    auto = HeadIntervention.fit(tiny_model, tiny_tokenizer, POSITIVE, NEGATIVE, heads=1)
    tried = auto.card["alphas"]
    assert [one["alpha"] for one in tried] == list(ALPHAS[: len(tried)])
    assert all(one["harm"] > 0.05 for one in tried[:-1])
    assert auto.alpha == tried[-1]["alpha"]


def test_it_is_a_mitigation_and_leaves_no_hook(tiny_model: Any, tiny_tokenizer: Any, found: HeadIntervention) -> None:
    target = LocalTarget(tiny_model, tiny_tokenizer, "tiny")
    assert isinstance(found, Mitigation)
    before = target.score(["Tom has"], [" three apples"])[0].total
    with found.mend(target) as mended:
        assert mended.score(["Tom has"], [" three apples"])[0].total != pytest.approx(before, abs=1e-4)
        assert mended.name == "tiny [iti-3x2]"
    with pytest.raises(RuntimeError), found.mend(target):
        raise RuntimeError
    assert hooks(tiny_model) == 0
    assert target.score(["Tom has"], [" three apples"])[0].total == before


def test_it_is_saved_and_loaded_whole(tmp_path: Path, found: HeadIntervention, tiny_model: Any) -> None:
    import torch

    path = found.strength(4).save(tmp_path / "heads")
    again = HeadIntervention.load(path)
    assert (again.heads, again.build, again.alpha, again.card) == (found.heads, found.build, 4.0, found.card)
    assert torch.equal(again.theta, found.theta)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match="damaged"):
        HeadIntervention.load(path)


def test_files_of_vectors_and_of_heads_are_told_apart(
    tmp_path: Path, found: HeadIntervention, tiny_model: Any, tiny_tokenizer: Any
) -> None:
    vector = SteeringVector.fit(tiny_model, tiny_tokenizer, POSITIVE, NEGATIVE, layer=0)
    with pytest.raises(DataError, match="no steering vector"):
        SteeringVector.load(found.save(tmp_path / "a"))
    with pytest.raises(DataError, match="no head intervention"):
        HeadIntervention.load(vector.save(tmp_path / "b"))


def test_wrong_use_is_told(tiny_model: Any, tiny_tokenizer: Any, found: HeadIntervention) -> None:
    with pytest.raises(ModelError, match="another kind"), found.apply(tiny_decoder("mistral", tiny_tokenizer)):
        pass
    with pytest.raises(ConfigError, match="needs weights"), found.mend(ScriptedTarget(["a"])):
        pass
    for heads in (0, 9):
        with pytest.raises(ConfigError, match="heads cannot"):
            HeadIntervention.fit(tiny_model, tiny_tokenizer, POSITIVE, NEGATIVE, heads=heads)
    with pytest.raises(ConfigError, match="no direction"):
        HeadIntervention.fit(tiny_model, tiny_tokenizer, POSITIVE, NEGATIVE, theta="best")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not a finite"):
        found.strength(float("nan"))
    with pytest.raises(DataError, match="positive and negative"):
        HeadIntervention.fit(tiny_model, tiny_tokenizer, [], NEGATIVE)
    with pytest.raises(DataError, match="too few"):
        HeadIntervention.fit(tiny_model, tiny_tokenizer, POSITIVE[:2], NEGATIVE[:2])

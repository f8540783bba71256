"""The steering vector: what it is, that it leaves no trace, and that it steers where it says and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import BackendError, ConfigError, DataError, ModelError
from intarsia.core.local import LocalTarget
from intarsia.core.sampling import Sampling
from intarsia.core.scripted import ScriptedTarget
from intarsia.sycophancy.activations import Reply, decoder_layers, encode_reply, fingerprint, reply_activations
from intarsia.sycophancy.contrasts import contrasts, sides, synthetic_contrasts
from intarsia.sycophancy.mitigation import Mitigation
from intarsia.sycophancy.steering import SteeringVector, margin, plain_loss, split_prompts
from tests.sycophancy.mending import FAMILIES, NEGATIVE, POSITIVE, PROMPTS, hooks, logits, tiny_decoder


@pytest.fixture(scope="module")
def vector(tiny_model: Any, tiny_tokenizer: Any) -> SteeringVector:
    return SteeringVector.fit(tiny_model, tiny_tokenizer, POSITIVE, NEGATIVE, layer=1)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_steers_every_family_and_alpha_0_is_the_model_to_the_last_bit(family: str, tiny_tokenizer: Any) -> None:
    import torch

    model = tiny_decoder(family, tiny_tokenizer)
    assert len(decoder_layers(model)) == 2
    found = SteeringVector.fit(model, tiny_tokenizer, POSITIVE, NEGATIVE, layer=0)
    before = logits(model, tiny_tokenizer)
    with found.apply(model, 0.0):
        assert torch.equal(logits(model, tiny_tokenizer), before)
    with found.apply(model, 1.0):
        assert not torch.allclose(logits(model, tiny_tokenizer), before)
    assert torch.equal(logits(model, tiny_tokenizer), before)
    assert found.build.family == family


def test_the_vector_is_the_difference_of_mean_activations_over_reply_tokens(
    tiny_model: Any, tiny_tokenizer: Any, vector: SteeringVector
) -> None:
    import torch

    sums = []
    for pairs in (POSITIVE, NEGATIVE):
        means = []
        for pair in pairs:
            ids, begin = encode_reply(tiny_tokenizer, Reply(*pair))
            seen: list[Any] = []
            handle = tiny_model.model.layers[1].register_forward_hook(
                lambda module, given, result, seen=seen: seen.append(result[0] if isinstance(result, tuple) else result)
            )
            with torch.inference_mode():
                tiny_model(input_ids=torch.tensor([ids]))
            handle.remove()
            means.append(seen[0][0, begin:].mean(dim=0))
        sums.append(torch.stack(means).mean(dim=0))
    assert torch.allclose(vector.vector, sums[0] - sums[1], atol=1e-4)


@settings(max_examples=10)
@given(st.floats(-4, 4).filter(lambda alpha: abs(alpha) > 1e-3))
def test_the_last_layer_is_shifted_by_exactly_alpha_times_the_vector(
    tiny_model: Any, tiny_tokenizer: Any, vector: SteeringVector, alpha: float
) -> None:
    import torch

    sites = {1: tiny_model.model.layers[1]}
    items = [Reply(*POSITIVE[0])]
    plain = reply_activations(tiny_model, tiny_tokenizer, items, sites)[1][0]
    with vector.apply(tiny_model, alpha):
        # A hook that was there before ours sees what ours changed only if it comes after.
        steered = reply_activations(tiny_model, tiny_tokenizer, items, sites)[1][0]
    assert torch.allclose(plain - steered, alpha * vector.vector, atol=1e-3)


def test_an_exception_leaves_no_hook(tiny_model: Any, tiny_tokenizer: Any, vector: SteeringVector) -> None:
    import torch

    before, count = logits(tiny_model, tiny_tokenizer), hooks(tiny_model)
    with vector.apply(tiny_model, 2.0):
        assert hooks(tiny_model) == count + 1
    with pytest.raises(RuntimeError, match="boom"), vector.apply(tiny_model, 2.0):
        raise RuntimeError("boom")
    target = LocalTarget(tiny_model, tiny_tokenizer, "tiny")
    with pytest.raises(KeyboardInterrupt), vector.mend(target):
        raise KeyboardInterrupt
    assert hooks(tiny_model) == count
    assert torch.equal(logits(tiny_model, tiny_tokenizer), before)


def test_contexts_add_up(tiny_model: Any, tiny_tokenizer: Any, vector: SteeringVector) -> None:
    import torch

    with vector.apply(tiny_model, 1.0), vector.apply(tiny_model, 0.5):
        twice = logits(tiny_model, tiny_tokenizer)
    with vector.apply(tiny_model, 1.5):
        assert torch.allclose(logits(tiny_model, tiny_tokenizer), twice, atol=1e-4)


def test_cached_steps_and_padded_batches_agree_with_whole_passes(
    tiny_model: Any, tiny_tokenizer: Any, vector: SteeringVector
) -> None:
    target = LocalTarget(tiny_model, tiny_tokenizer, "tiny")
    prompts = [[{"role": "user", "content": text}] for text in ("Hi", *PROMPTS[:3])]
    with vector.strength(0.7).mend(target) as mended:
        answers = mended.generate(prompts, Sampling(max_new_tokens=12, logprobs=True))
    import torch

    for prompt, answer in zip(prompts, answers):
        text = tiny_tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        ids = tiny_tokenizer(text, add_special_tokens=False)["input_ids"]
        tokens = list(answer.token_ids or ())
        with vector.apply(tiny_model, 0.7), torch.inference_mode():
            law = tiny_model(input_ids=torch.tensor([[*ids, *tokens]])).logits[0].log_softmax(dim=-1)
        expected = [float(law[len(ids) - 1 + at, token]) for at, token in enumerate(tokens)]
        assert answer.logprobs == pytest.approx(expected, abs=1e-3)


def test_prefixes_cached_by_the_plain_model_do_not_serve_the_steered_one(
    tiny_model: Any, tiny_tokenizer: Any, vector: SteeringVector
) -> None:
    opening = "The quick brown fox jumps over the lazy dog. " * 6
    prompts = [opening + text for text in ("Tom has", "The capital of", "Question:", "Rome is")]
    asked = LocalTarget(tiny_model, tiny_tokenizer, "tiny")
    plain = [one.mean for one in asked.score(prompts, ["three apples"] * 4)]
    with vector.mend(asked) as mended:
        steered = [one.mean for one in mended.score(prompts, ["three apples"] * 4)]
    again = [one.mean for one in asked.score(prompts, ["three apples"] * 4)]
    fresh = LocalTarget(tiny_model, tiny_tokenizer, "fresh", reuse_prefix=False)
    with vector.apply(tiny_model, 1.0):
        expected = [one.mean for one in fresh.score(prompts, ["three apples"] * 4)]
    assert asked.provenance()["shared_prefixes"] == "yes"
    assert steered == pytest.approx(expected, abs=1e-4)
    assert again == pytest.approx(plain, abs=1e-5)
    assert steered != pytest.approx(plain, abs=1e-2)


def test_steering_never_changes_the_prompt(tiny_model: Any, tiny_tokenizer: Any, vector: SteeringVector) -> None:
    seen: list[Any] = []

    class Spy(LocalTarget):
        def generate(self, prompts: Any, sampling: Any = None, **options: Any) -> Any:
            seen.extend(prompts)
            return super().generate(prompts, sampling, **options)

    target = Spy(tiny_model, tiny_tokenizer, "tiny")
    with vector.mend(target) as mended:
        assert isinstance(vector, Mitigation)
        assert mended.count_tokens(PROMPTS) == target.count_tokens(PROMPTS)
        (first, *_) = mended.generate(PROMPTS, Sampling(max_new_tokens=4))
        assert mended.provenance()["mitigation"]["alpha"] == 1.0
        assert mended.name != target.name
    assert seen == list(PROMPTS)
    assert first.prompt_tokens == target.count_tokens(PROMPTS)[0]


def test_auto_chooses_on_prompts_set_aside_and_fits_on_all(tiny_tokenizer: Any) -> None:
    import torch

    model = tiny_decoder("llama", tiny_tokenizer, layers=4)
    found = SteeringVector.fit(model, tiny_tokenizer, POSITIVE, NEGATIVE)
    tried = {one["layer"]: one for one in found.card["tried"]}
    assert set(tried) == {1, 2}
    mild = [one for one in tried.values() if one["harm"] <= 0.05]
    best = max(mild, key=lambda one: one["drop"]) if mild else min(tried.values(), key=lambda one: one["harm"])
    assert found.layer == best["layer"]
    alone = SteeringVector.fit(model, tiny_tokenizer, POSITIVE, NEGATIVE, layer=found.layer)
    assert torch.equal(found.vector, alone.vector)
    aside = split_prompts([Reply(*pair) for pair in POSITIVE], 0)
    assert len(aside) == 2
    assert aside < set(PROMPTS)
    with pytest.raises(DataError, match="too few"):
        SteeringVector.fit(model, tiny_tokenizer, POSITIVE[:3], NEGATIVE[:3])


def test_margins_are_those_of_the_target(tiny_model: Any, tiny_tokenizer: Any) -> None:
    target = LocalTarget(tiny_model, tiny_tokenizer, "tiny")
    chats = [[{"role": "user", "content": prompt}] for prompt in PROMPTS]
    ours, theirs = (target.score(chats, [reply for _, reply in side]) for side in (POSITIVE, NEGATIVE))
    found = margin(tiny_model, tiny_tokenizer, [Reply(*p) for p in POSITIVE], [Reply(*p) for p in NEGATIVE])
    assert found == pytest.approx([a.mean - b.mean for a, b in zip(ours, theirs)], abs=1e-5)
    with pytest.raises(DataError, match="different prompts"):
        margin(tiny_model, tiny_tokenizer, [Reply(*POSITIVE[0])], [Reply(*NEGATIVE[1])])
    assert min(plain_loss(tiny_model, tiny_tokenizer)) > 0


def test_a_random_vector_has_the_length_and_another_direction(vector: SteeringVector) -> None:
    import torch

    one, two = vector.random(0), vector.random(1)
    assert one.norm == pytest.approx(vector.norm, rel=1e-5)
    assert torch.equal(one.vector, vector.random(0).vector)
    assert not torch.allclose(one.vector, two.vector)
    assert one.layer == vector.layer


def test_it_is_saved_and_loaded_whole(tmp_path: Path, vector: SteeringVector) -> None:
    import torch

    path = vector.strength(1.5).save(tmp_path / "deep" / "less-validation")
    assert path.suffix == ".safetensors"
    again = SteeringVector.load(path)
    assert torch.equal(again.vector, vector.vector)
    assert (again.layer, again.build, again.weights, again.alpha) == (1, vector.build, vector.weights, 1.5)
    assert again.card == vector.card
    assert not list(path.parent.glob(".*"))


@pytest.mark.parametrize("damage", ["cut", "other", "missing", "newer", "shape"])
def test_a_damaged_file_is_told(tmp_path: Path, vector: SteeringVector, damage: str) -> None:
    import torch
    from safetensors.torch import save_file

    path = vector.save(tmp_path / "v.safetensors")
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:40])
    elif damage == "other":
        save_file({"vector": vector.vector}, path)
    elif damage == "missing":
        path.unlink()
    else:
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            card = json.loads(file.metadata()["intarsia"])
        card["format"] = 99 if damage == "newer" else card["format"]
        content = torch.zeros(3) if damage == "shape" else vector.vector
        save_file({"vector": content}, path, metadata={"intarsia": json.dumps(card)})
    with pytest.raises(DataError):
        SteeringVector.load(path)
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendError, match="Cannot write"):
        vector.save(tmp_path / "file" / "v")


@pytest.mark.parametrize(("family", "options"), [("mistral", {}), ("llama", {"layers": 3}), ("llama", {"hidden": 32})])
def test_another_family_or_size_is_refused(
    family: str, options: dict[str, int], tiny_tokenizer: Any, vector: SteeringVector
) -> None:
    model = tiny_decoder(family, tiny_tokenizer, **options)
    with pytest.raises(ModelError, match="another kind of model"), vector.apply(model, 1.0):
        pass
    assert hooks(model) == 0


def test_wrong_use_is_told(tiny_model: Any, tiny_tokenizer: Any, vector: SteeringVector) -> None:
    with pytest.raises(ConfigError, match="needs weights"), vector.mend(ScriptedTarget(["a"])):
        pass
    for alpha in (float("nan"), float("inf"), "1", True):
        with pytest.raises(ConfigError, match="not a finite"), vector.apply(tiny_model, alpha):  # type: ignore[arg-type]
            pass
    with pytest.raises(ConfigError, match="no layer 7"):
        SteeringVector.fit(tiny_model, tiny_tokenizer, POSITIVE, NEGATIVE, layer=7)
    with pytest.raises(DataError, match="positive and negative"):
        SteeringVector.fit(tiny_model, tiny_tokenizer, POSITIVE, [])
    with pytest.raises(DataError, match="no finite difference"):
        SteeringVector.fit(tiny_model, tiny_tokenizer, POSITIVE, POSITIVE, layer=0)
    with pytest.raises(DataError, match="empty"):
        SteeringVector.fit(tiny_model, tiny_tokenizer, [("Q", "")], NEGATIVE, layer=0)
    assert SteeringVector.fit(tiny_model, tiny_tokenizer, POSITIVE, NEGATIVE, layer=-1).layer == 1


def test_fingerprints_tell_weights_apart(tiny_model: Any, tiny_tokenizer: Any) -> None:
    one, two = tiny_decoder("llama", tiny_tokenizer), tiny_decoder("llama", tiny_tokenizer)
    assert fingerprint(one) == fingerprint(two) != fingerprint(tiny_model)


def test_a_model_without_template_reads_prompt_line_break_and_reply(tiny_model: Any, tiny_tokenizer: Any) -> None:
    import copy

    bare = copy.deepcopy(tiny_tokenizer)
    bare.chat_template = None
    ids, begin = encode_reply(bare, Reply("Tom has", "three apples"))
    assert bare.decode(ids[:begin]) == "Tom has\n"
    assert bare.decode(ids[begin:]) == "three apples"
    assert SteeringVector.fit(tiny_model, bare, POSITIVE, NEGATIVE, layer=0).norm > 0


def test_the_packaged_contrasts_are_what_they_say(data_dir: Path) -> None:
    for found in (contrasts(), synthetic_contrasts(data_dir / "elephant-synthetic40" / "scenarios.json")):
        assert len({one.id for one in found}) == len({one.prompt for one in found}) == len(found) >= 15
        positive, negative = sides(found)
        replies = [one.reply for one in (*positive, *negative)]
        assert len(set(replies)) == len(replies)
        words = [sum(len(one.reply.split()) for one in side) for side in (positive, negative)]
        assert 0.8 < words[1] / words[0] < 1.25  # length must not be what is steered
    with pytest.raises(DataError, match="not the set"):
        synthetic_contrasts(data_dir / "none.json")

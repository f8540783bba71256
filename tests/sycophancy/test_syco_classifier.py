"""The trained judge: learns, saves, refuses what is damaged, and the embedded artefact is what its card says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intarsia.core.errors import ConfigError, DataError, IntarsiaError, ModelError
from intarsia.sycophancy.calibration import GoldLabel
from intarsia.sycophancy.classifier_judge import (
    ClassifierJudge,
    HFClassifierJudge,
    catalog_encoder,
    fit_templates,
)
from intarsia.sycophancy.classifier_judge import (
    tested as measured,
)
from intarsia.sycophancy.corpus import replies
from intarsia.sycophancy.detectors import DETECTORS, FEATURES, pooled, split_sentences
from intarsia.sycophancy.dimensions import DEFAULT_DIMENSIONS, DIMENSIONS
from intarsia.sycophancy.judging import Exchange, Judge
from intarsia.sycophancy.rubrics import RUBRICS
from tests.sycophancy.embedding import WIDTH, WordEncoder

TRAIN = ("plain", "helper", "assistant", "counselor")
TOPICS = ("roommate", "sister", "boss", "diet")


@pytest.fixture(scope="module")
def judge() -> ClassifierJudge:
    train = replies(TRAIN, TOPICS)
    return fit_templates(
        train, replies(["lawyer"], ["vegan"]), WordEncoder(), encoder="words", encoder_sha256="", least_kappa=-1.0
    )


def exchanges(*texts: str) -> list[Exchange]:
    return [Exchange(id=str(at), question="How?", reply=text) for at, text in enumerate(texts)]


def test_it_learns_what_it_is_shown(judge: ClassifierJudge) -> None:
    known = measured(judge, replies(TRAIN, TOPICS, seed=1))
    for dimension in DEFAULT_DIMENSIONS:
        kappa = known[dimension].kappa
        assert kappa is not None
        assert kappa > 0.3
    assert isinstance(judge, Judge)
    assert judge.screening
    assert judge.rubric_version.startswith("judge-v1-")
    assert "templates" in judge.note


def test_labels_carry_a_probability_and_do_not_hang_on_the_company(judge: ClassifierJudge) -> None:
    texts = [reply.reply for reply in replies(["peer"], ["dog"])]
    together = judge.label(exchanges(*texts), "validation")
    alone = [judge.label(exchanges(text), "validation")[0] for text in texts]
    assert together == alone
    for label in together:
        assert label.score is not None
        assert label.value == int(label.score >= 0.5)


def test_what_it_cannot_read_has_no_label(judge: ClassifierJudge) -> None:
    labels = judge.label(exchanges("", "Das tut mir sehr leid, rede mit ihr.", "...", "You should leave."), "framing")
    assert [label.missing for label in labels] == ["empty", "unparsed", "unparsed", ""]
    with pytest.raises(ConfigError, match="does not label 'moral'"):
        judge.label([], "moral")


def test_a_reply_is_embedded_once_over_all_dimensions(judge: ClassifierJudge) -> None:
    encoder = WordEncoder()
    fresh = ClassifierJudge.of(judge.parts, encoder=encoder)
    for dimension in sorted(fresh.dimensions):
        fresh.label(exchanges("You should leave. It is late.", "You should leave."), dimension)
    assert sorted(encoder.asked) == ["How?", "It is late.", "You should leave."]


def test_it_comes_back_from_a_file_as_it_was(judge: ClassifierJudge, tmp_path: Path) -> None:
    path = judge.save(tmp_path / "mine.safetensors")
    loaded = ClassifierJudge.load(path, encoder=WordEncoder())
    texts = [reply.reply for reply in replies(["peer"], ["dog", "gym"])]
    for dimension in DIMENSIONS:
        assert loaded.label(exchanges(*texts), dimension) == judge.label(exchanges(*texts), dimension)
    assert (loaded.rubric_version, loaded.card, loaded.name) == (judge.rubric_version, judge.card, "classifier(mine)")
    assert path.stat().st_size < 200_000


def test_damaged_files_are_refused_in_one_line(judge: ClassifierJudge, tmp_path: Path) -> None:
    from safetensors.numpy import load, save

    raw = judge.save(tmp_path / "mine.safetensors").read_bytes()
    card: dict[str, Any] = judge.card
    tensors = load(raw)
    changed = {**tensors, "heads.framing": tensors["heads.framing"] + 1}
    broken = {**tensors, "heads.framing": tensors["heads.framing"][:-1]}

    def with_card(what: dict[str, np.ndarray], **update: Any) -> bytes:
        return save(what, metadata={"card": json.dumps({**card, **update})})

    for content, match in (
        (raw[:-100], "damaged"),
        (raw[:50], "damaged"),
        (b"", "damaged"),
        (b"not a judge at all", "damaged"),
        (save(tensors), "damaged"),
        (with_card(tensors, format=2), "format 2"),
        (with_card(changed), "damaged"),
        (with_card(broken), "damaged"),
    ):
        path = tmp_path / "bad.safetensors"
        path.write_bytes(content)
        with pytest.raises(DataError, match=match):
            ClassifierJudge(path)
    with pytest.raises(DataError, match="cannot be read"):
        ClassifierJudge(tmp_path / "absent.safetensors")


def test_an_encoder_of_another_width_or_with_nan_is_refused(judge: ClassifierJudge) -> None:
    for encode, match in (
        (lambda texts: np.ones((len(texts), WIDTH + 1)), "numbers a text"),
        (lambda texts: np.full((len(texts), WIDTH), np.nan), "NaN"),
    ):
        with pytest.raises(ModelError, match=match):
            ClassifierJudge.of(judge.parts, encoder=encode).label(exchanges("You should leave."), "framing")


def gold_of(judge: ClassifierJudge, flip: bool = False) -> list[GoldLabel]:
    return [
        GoldLabel(
            id=reply.id,
            question=f"{reply.question} {at % 7}",
            reply=reply.reply,
            dimension="validation",
            value=1 - reply.labels["validation"] if flip else reply.labels["validation"],  # type: ignore[arg-type]
        )
        for at, reply in enumerate(replies(["plain", "friend"], ["dog", "gym", "boss"]))
    ]


def test_own_labels_make_a_judge_of_ones_own(judge: ClassifierJudge, tmp_path: Path) -> None:
    own = ClassifierJudge.fit(gold_of(judge), base=judge, version="clinic-1")
    assert own.dimensions == {"validation"}
    assert own.screening
    assert own.card["reached"]["validation"]["kappa"] > 0.5
    assert own.rubric_version.startswith("clinic-1-")
    # Labels decide, not what the base knew: turned labels make a turned judge.
    turned = ClassifierJudge.fit(gold_of(judge, flip=True), base=judge)
    texts = [reply.reply for reply in replies(["plain"], ["vegan"])]
    a, b = (one.label(exchanges(*texts), "validation") for one in (own, turned))
    assert sum(x.value != y.value for x, y in zip(a, b, strict=True)) >= 6
    again = ClassifierJudge.load(own.save(tmp_path / "own.safetensors"), encoder=WordEncoder())
    assert again.label(exchanges(*texts), "validation") == a


def test_too_few_labels_are_refused(judge: ClassifierJudge) -> None:
    with pytest.raises(DataError, match="At least 10"):
        ClassifierJudge.fit(gold_of(judge)[:12], base=judge)
    with pytest.raises(DataError, match="no labels"):
        ClassifierJudge.fit([], base=judge)


def test_dimensions_that_do_not_carry_over_get_no_head() -> None:
    strict = fit_templates(replies(TRAIN, TOPICS[:2]), [], WordEncoder(), encoder="words", least_kappa=0.1)
    assert strict.dimensions
    assert strict.card["left_out"].keys() == set(DIMENSIONS) - strict.dimensions
    assert all(kappa is None or kappa < 0.1 for kappa in strict.card["left_out"].values())
    with pytest.raises(DataError, match="carries over"):
        fit_templates(replies(TRAIN, TOPICS[:2]), [], WordEncoder(), encoder="words", least_kappa=1.01)
    with pytest.raises(DataError, match="At least 4"):
        fit_templates(replies(["plain"], TOPICS), [], WordEncoder(), encoder="words")


def test_sentences_are_split_and_bulleted() -> None:
    assert split_sentences("1. Stop it!  Now.\n- **Do this:** go\n\n...\n* Why? Because.") == [
        "Stop it!",
        "Now.",
        "**Do this:** go",
        "Why?",
        "Because.",
    ]
    assert split_sentences("  ") == []


def test_a_reply_is_what_its_strongest_sentences_are() -> None:
    draw = np.random.default_rng(1)
    odds_SR = draw.normal(size=(5, len(DETECTORS)))
    features = pooled(odds_SR)
    assert features.shape == (FEATURES,)
    np.testing.assert_allclose(pooled(odds_SR[::-1]), features)
    louder = odds_SR.copy()
    louder[2, DETECTORS.index("comfort")] = 9
    assert pooled(louder)[0] == 9
    questioned = odds_SR.copy()
    questioned[3, DETECTORS.index("premise")] = questioned[3, DETECTORS.index("questioning")] = 9
    at = 2 + 3 * 1
    assert pooled(questioned)[at] > 5 > features[at]


# --- The embedded judge ----------------------------------------------------------------------------------------------


def test_the_embedded_artefact_is_whole_and_says_what_it_was_tested_on() -> None:
    judge = ClassifierJudge()
    card = judge.card
    assert judge.name == "classifier"
    assert set(DEFAULT_DIMENSIONS) <= judge.dimensions
    assert not set(card["families"]) & set(card["held_out_families"])
    assert card["measured"] == "template replies of held-out families and topics"
    assert card["encoder"] == "minilm-l6"
    assert len(card["encoder_sha256"]) >= 64
    assert "nothing about replies of models" in judge.note
    for dimension in judge.dimensions:
        assert f"{dimension} {card['reached'][dimension]['kappa']:.2f}" in judge.note


def encoder():  # type: ignore[no-untyped-def]
    try:
        return catalog_encoder()
    except IntarsiaError as error:
        pytest.skip(f"the encoder is not at hand: {error.message}")


@pytest.mark.model
@pytest.mark.slow
def test_the_embedded_judge_tells_extreme_replies_apart() -> None:
    encoder()
    judge = ClassifierJudge()
    for dimension in DEFAULT_DIMENSIONS:
        rubric = RUBRICS[dimension]
        ones, zeros = (judge.label(exchanges(*texts), dimension) for texts in (rubric.ones, rubric.zeros))
        assert np.mean([one.score for one in ones]) > np.mean([zero.score for zero in zeros])  # type: ignore[arg-type]


@pytest.mark.model
@pytest.mark.slow
def test_the_script_makes_the_embedded_judge_again() -> None:
    from build_sycophancy_judge import build

    encoder()
    embedded, built = ClassifierJudge(), build()
    assert built.card["corpus"] == embedded.card["corpus"]
    assert built.card["families"] == embedded.card["families"]
    for dimension in embedded.dimensions:
        again, then = built.card["reached"][dimension], embedded.card["reached"][dimension]
        assert abs(again["accuracy"] - then["accuracy"]) <= 0.01
    np.testing.assert_allclose(built.parts.detectors.weights_RI, embedded.parts.detectors.weights_RI, atol=0.02)


# --- Classifiers of transformers -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classifier_folder(tiny_tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    folder = tmp_path_factory.mktemp("classifier")
    config = BertConfig(
        vocab_size=len(tiny_tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=128,
        pad_token_id=tiny_tokenizer.pad_token_id,
        id2label={0: "framing", 1: "Validation", 2: "other"},
        label2id={"framing": 0, "Validation": 1, "other": 2},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BertForSequenceClassification(config)
        model.classifier.weight.data.normal_(std=3.0)
    model.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


def test_a_sequence_classifier_judges_by_its_labels(classifier_folder: Path) -> None:
    judge = HFClassifierJudge(classifier_folder, batch_size=2)
    assert judge.dimensions == {"framing", "validation"}
    assert judge.screening
    given = exchanges("A fox.", "", "Paris is the capital of France. " * 40, "Tom has three apples.")
    framing, validation = (judge.label(given, name) for name in ("framing", "validation"))
    assert [label.missing for label in framing] == ["", "empty", "", ""]
    for a, b in zip(framing, validation, strict=True):
        if a.score is not None and b.score is not None:
            assert 0 < a.score + b.score < 1  # the third label has a share of the softmax
    one_by_one = HFClassifierJudge(classifier_folder, batch_size=1).label(given, "framing")
    assert [label.value for label in one_by_one] == [label.value for label in framing]
    named = HFClassifierJudge(classifier_folder, {"indirectness": "other", "action": 0})
    assert named.dimensions == {"indirectness", "action"}
    assert named.label(given, "action")[0].score == pytest.approx(framing[0].score, abs=1e-5)


def test_classifiers_that_do_not_fit_are_refused(
    classifier_folder: Path, tiny_model_folder: Path, tmp_path: Path
) -> None:
    for positive, match in (
        ({"validation": "LABEL_9"}, "no label"),
        ({"validation": 7}, "no label"),
        ({"kindness": 0}, "no dimension"),
        ({}, "empty"),
    ):
        with pytest.raises(ConfigError, match=match):
            HFClassifierJudge(classifier_folder, positive)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="not a sequence classifier"):
        HFClassifierJudge(tiny_model_folder)
    with pytest.raises(ModelError):
        HFClassifierJudge(tmp_path / "absent")
    with pytest.raises(ConfigError, match="batch"):
        HFClassifierJudge(classifier_folder, batch_size=0)

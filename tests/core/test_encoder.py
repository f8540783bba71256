from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from intarsia.core import catalog
from intarsia.core.encoder import as_encode
from intarsia.core.errors import ConfigError, ModelError
from intarsia.core.scripted import ScriptedTarget


class Lengths:
    def encode(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([[1.0, len(text)] for text in texts])


def test_whatever_can_encode_becomes_one_function() -> None:
    target = ScriptedTarget({"*": ""}, embedder=lambda text: [1.0, float(len(text))])
    for given in (Lengths(), Lengths().encode, target):
        assert np.asarray(as_encode(given)(["a", "bcd"])).tolist() == [[1.0, 1.0], [1.0, 3.0]]


@pytest.mark.parametrize(
    ("given", "name"), [(None, "minilm-l6"), ("my-encoder", "my-encoder"), (Path("folder"), "folder")]
)
def test_names_and_folders_are_loaded(given: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def load(spec: str) -> SimpleNamespace:
        asked.append(spec)
        return SimpleNamespace(encode=lambda texts: np.ones((len(texts), 1)))

    monkeypatch.setattr(catalog, "load_encoder", load)
    # A string has a method `encode` of its own, which is no encoder.
    assert as_encode(given)(["a"]).tolist() == [[1.0]]
    assert asked == [name]


@pytest.mark.parametrize("given", [3, b"minilm-l6", object(), ["a"]])
def test_what_is_no_encoder_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="no sentence encoder"):
        as_encode(given)


def test_a_target_that_cannot_embed_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot embed"):
        as_encode(ScriptedTarget({"*": ""}))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nowhere"):
        as_encode(tmp_path / "nowhere")

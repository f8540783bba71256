"""A sentence encoder for tests: hashed words, no model."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np

WIDTH = 48


class WordEncoder:
    """Vectors of length 1 whose directions are a text's words; counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        out = np.zeros((len(texts), WIDTH), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            for word in re.findall(r"[a-z']+|[?!]", text.lower()):
                row[zlib.crc32(word.encode()) % WIDTH] += 1
            row[0] += 1e-3
            row /= np.linalg.norm(row)
        return out

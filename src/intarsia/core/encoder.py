"""Sentence encoders: whatever a user has, as one function from texts to vectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from intarsia.core.errors import ConfigError
from intarsia.core.target import Target

if TYPE_CHECKING:
    from intarsia.core.catalog import LoadedEncoder

DEFAULT = "minilm-l6"

Encode: TypeAlias = Callable[[Sequence[str]], Any]
"""Takes texts and gives one vector each, as an array or tensor of shape (texts, width)."""

Encoder: TypeAlias = "LoadedEncoder | Target | Encode | str | os.PathLike[str] | Any"
"""A sentence encoder: a name in the catalog, a folder, anything with `encode` (as `catalog.load_encoder` gives, or
sentence-transformers), a target with the capability `embed`, or a function."""


def as_encode(encoder: Encoder | None = None) -> Encode:
    """A function from texts to vectors, of whatever encoder was given.

    Args:
        encoder: See `Encoder`; a name or folder is loaded at once. minilm-l6 of the catalog for None.

    Raises:
        ConfigError: It is no encoder.
        ModelError: There is no encoder of that name, or it cannot be loaded.
    """
    if encoder is None or isinstance(encoder, str | os.PathLike):
        from intarsia.core.catalog import load_encoder

        return load_encoder(DEFAULT if encoder is None else os.fspath(encoder)).encode
    if isinstance(encoder, Target):
        if "embed" not in encoder.capabilities:
            raise ConfigError(f"{encoder.name} cannot embed text.", f"Use a sentence encoder, such as {DEFAULT}.")
        return encoder.embed
    found = getattr(encoder, "encode", encoder)
    if isinstance(encoder, bytes) or not callable(found):
        raise ConfigError(
            f"{type(encoder).__name__} is no sentence encoder.",
            f"Give something with encode(texts), a function of texts, or a name, such as {DEFAULT}.",
        )
    return found  # type: ignore[no-any-return]

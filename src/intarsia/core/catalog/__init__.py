"""Models by name: the face of everything that finds, fetches, converts and loads a model.

`names` says what a name means, `embedded` which models come with a name alone, `wheels` and `hub` fetch, `convert`
makes safetensors of GGUF, `cache` keeps it all whole, `folder` refuses what cannot be loaded safely, `loading`
brings a model into memory, and `chat` finds out how it is talked to.
"""

from intarsia.core.catalog.chat import ChatStyle, chat_style
from intarsia.core.catalog.loading import LoadedEncoder, LoadedModel, load_encoder, load_model
from intarsia.core.catalog.names import ModelCard, ResolvedModel, fetch, list_models, path, resolve

__all__ = [
    "ChatStyle",
    "LoadedEncoder",
    "LoadedModel",
    "ModelCard",
    "ResolvedModel",
    "chat_style",
    "fetch",
    "list_models",
    "load_encoder",
    "load_model",
    "path",
    "resolve",
]

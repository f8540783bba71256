"""LocalTarget: a transformers model in this process, batched and with shared prefixes."""

from intarsia.core.local.target import LocalTarget

__all__ = ["LocalTarget"]

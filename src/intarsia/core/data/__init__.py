"""Data sets by name: generated, well-known, or the user's own."""

from intarsia.core.data.sets import (
    GENERATED,
    KNOWN,
    AnswerKind,
    DataSet,
    Item,
    content_hash,
    content_id,
    hold_out,
    infer_kind,
    items_from_rows,
    load,
    names,
    parse_mapping,
)

__all__ = [
    "GENERATED",
    "KNOWN",
    "AnswerKind",
    "DataSet",
    "Item",
    "content_hash",
    "content_id",
    "hold_out",
    "infer_kind",
    "items_from_rows",
    "load",
    "names",
    "parse_mapping",
]

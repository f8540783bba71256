"""The sources that an attack takes when none are named, by what is at hand."""

from __future__ import annotations

from typing import Literal

from intarsia.core.errors import ConfigError, IntarsiaError
from intarsia.core.target import Target
from intarsia.robustness.candidates import Source

SURROGATE = "smollm2-135m"
"""Whose embeddings serve where the target's own cannot be had."""
PAPER_MLM = "bert-large-uncased"


def default_sources(
    target: Target,
    *,
    preset: Literal["default", "paper"] = "default",
    surrogate: str = SURROGATE,
    mlm: str = "",
    infill: bool = False,
    offline: bool | None = None,
) -> tuple[list[Source], list[str]]:
    """Sources in order of priority, and notes on what could not be had.

    By default, so that a success means something without an adjudicator (ours): forms of the same dictionary word among
    its neighbors in the target's embeddings (a surrogate's where it shows no weights), and WordNet synonyms of its most
    frequent sense, put into its form. Words that fit the context change the meaning most often, so they are asked for:
    `mlm` names a masked model, `infill` has the causal target fill the gap.

    The paper's: top-10 neighbors, top-5 synonyms of all senses as they stand in WordNet, and bert-large-uncased above
    0.1; there, a source that cannot be had is an error.

    Args:
        target: Who is attacked.
        preset: `default` or `paper`.
        surrogate: A model in the catalog.
        mlm: Name or folder of a masked model.
        infill: Whether a target that shows its weights fills gaps; where `mlm` is given, that does it.
        offline: Never ask the network.

    Raises:
        ConfigError: No source can be had at all.
        IntarsiaError: One of the paper's sources cannot be had.
    """
    from intarsia.core.catalog.wordnet import locate
    from intarsia.robustness.embedding import EmbeddingSource
    from intarsia.robustness.infill import CausalInfillSource
    from intarsia.robustness.masked_lm import MaskedLMSource
    from intarsia.robustness.synonyms import WordNetSource

    paper = preset == "paper"
    found: list[Source] = []
    notes: list[str] = []
    local = "weights" in target.capabilities
    embedding: EmbeddingSource | None = None
    try:
        embedding = EmbeddingSource.from_target(
            target if local else surrogate, distinct=not paper, morph_filter="keep_stem" if paper else "keep_lemma"
        )
        found.append(embedding)
        if not local:
            notes.append(f"{target.name} shows no weights: neighbors are those of {surrogate}.")
    except IntarsiaError as error:
        _or_raise(paper, error, notes, "embedding")
    try:
        found.append(
            WordNetSource(
                wordnet=locate(offline=offline),
                rank=embedding,
                inflect=not paper,
                conservative=not paper,
                mutual=not paper,
            )
        )
    except IntarsiaError as error:
        _or_raise(paper, error, notes, "wordnet")
    if mlm or paper:
        # A masked model that was asked for by name is not left out silently.
        found.append(MaskedLMSource.load(mlm or PAPER_MLM, numbers=paper))
    elif infill and local:
        found.append(CausalInfillSource(target, numbers=False))
    if not found:
        raise ConfigError(f"No source of candidates can be had ({' '.join(notes)}).", "Give sources=[...] of your own.")
    return found, notes


def _or_raise(paper: bool, error: IntarsiaError, notes: list[str], name: str) -> None:
    if paper:
        raise error
    notes.append(f"Without the source {name}: {error.message}")

"""TrieSampler: the same samples as `Sample`, each answer prefix computed once.

Samples of a peaked law mostly begin alike. Prefixes form a trie; a node's next-token law is computed once and all
samples that reach it draw from it. What is drawn is a function of (seed, key, number, place), so it is what `Sample`
draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from intarsia.uncertainty.sampling import Sample


@dataclass
class TrieSampler(Sample):
    """M independent samples whose common prefixes are computed once (ours).

    With `generate_together` the beams of the same prompt share them too.
    """

    name: ClassVar[str] = "sample"
    share: ClassVar[bool] = True

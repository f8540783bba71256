"""Train the embedded sycophancy judge anew.

    python scripts/build_sycophancy_judge.py [--out FILE] [--check]

It reads the packaged template replies, trains on the families and topics of split 0, tests on the others, and writes
src/intarsia/sycophancy/data/judge-v1.safetensors. The same encoder gives the same weights up to rounding.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from intarsia.sycophancy.classifier_judge import EMBEDDED, ENCODER, ClassifierJudge, catalog_encoder, fit_templates
from intarsia.sycophancy.corpus import split

SEED = 0
DATA = Path(__file__).parents[1] / "src" / "intarsia" / "sycophancy" / "data"


def build() -> ClassifierJudge:
    """The judge, trained."""
    encode, sha256 = catalog_encoder(ENCODER)
    train, held_out = split(SEED)
    return fit_templates(train, held_out, encode, encoder=ENCODER, encoder_sha256=sha256)


def main() -> None:
    """Build and write, or show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DATA / EMBEDDED)
    parser.add_argument("--check", action="store_true", help="show the card only, write nothing")
    arguments = parser.parse_args()
    judge = build()
    print(json.dumps(judge.card, indent=1, sort_keys=True))
    if not arguments.check:
        print(judge.save(arguments.out), f"{arguments.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()

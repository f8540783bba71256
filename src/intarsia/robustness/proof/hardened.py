"""Reproduction, fourth part: fine-tuning on rewritten questions against fine-tuning on them as they are."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from intarsia.core import data
from intarsia.core.claims import claim, verdict_line
from intarsia.core.errors import ConfigError
from intarsia.core.recipes import DataBlock, TrainingBlock
from intarsia.core.stats import paired_difference
from intarsia.core.study import Context, Figure, Provenance, Result, Series, Study, Table
from intarsia.core.target import Target
from intarsia.core.training.sft import SFTRecipe
from intarsia.robustness.attack import MSCR, Budget
from intarsia.robustness.harden import AugmentBlock, HardenRecipe
from intarsia.robustness.results import AttackResults
from intarsia.robustness.sources import default_sources

MODEL = "smollm2-135m"
DATA = "stories:1"
ITEMS = 50
STORY_SEED = 90
"""Stories of another seed than those that are trained on, and none of them among those."""
STEPS = 40
MOST = 25
Kind: TypeAlias = Literal["sft", "harden"]
ARMS = ("as it came", "fine-tuned", "fine-tuned on rewritten questions")


class Hardened(Study):
    """Does fine-tuning on rewritten questions make right answers survive, beyond what fine-tuning does anyway?"""

    name: ClassVar[str] = "hardened"
    question: ClassVar[str] = "Does fine-tuning on rewritten questions make right answers survive?"
    kind = "reproduction"
    room: ClassVar[str] = "robustness"
    scales: ClassVar[tuple[str, ...]] = ("full",)

    def run(self, context: Context) -> Result:
        """Fine-tune twice a seed on the same stories and steps, then attack all models with the same rewrites."""
        if context.journal is None:
            raise ConfigError("This part trains models and needs a folder for them.", "Use `intarsia reproduce`.")
        folder = context.journal.path.parent
        seeds = [context.seed + at for at in range(context.seeds or 3)]
        stories = data.load(DATA, limit=ITEMS, seed=STORY_SEED)
        # All models meet the same candidates: those from the embeddings of the model as it came.
        with Target.parse(MODEL) as original:
            sources, _ = default_sources(original)
            before = _attacked(context, original, sources, stories)
        found: dict[Kind, list[AttackResults]] = {"sft": [], "harden": []}
        for done, seed in enumerate(seeds):
            for kind, attacks in found.items():
                tuned = _trained(context, kind, folder, seed)
                with Target.parse(str(tuned)) as target:
                    attacks.append(_attacked(context, target, sources, stories))
            context.progress("fine-tuned and attacked", done + 1, len(seeds))
        plain, hardened = _standing(found["sft"]), _standing(found["harden"])
        by_seed = [
            b.summary().under_attack - a.summary().under_attack
            for a, b in zip(found["sft"], found["harden"], strict=True)
        ]
        clean = [b.summary().clean - a.summary().clean for a, b in zip(found["sft"], found["harden"], strict=True)]
        claims = (
            claim(
                "hardened.under_attack",
                "Is a model that saw rewritten questions right more often under attack than one that saw them plain?",
                float(np.mean(hardened - plain)),
                (">=", 0.01),
                unit="points",
                n=ITEMS * len(seeds),
                scale="full",
                origin="one point at least: a tie is no gain",
                interval=paired_difference(plain, hardened),
                by_interval=True,
                control=("right under attack after plain fine-tuning", float(plain.mean())),
                reason=f"by seed: {', '.join(f'{value:+.1%}' for value in by_seed)}; interval over stories, whose "
                "outcomes are averaged over seeds",
            ),
            claim(
                "hardened.clean",
                "Does it keep its accuracy on the questions as they are (worst seed)?",
                min(clean),
                (">=", -0.05),
                unit="points",
                n=ITEMS,
                scale="full",
                reason=f"by seed: {', '.join(f'{value:+.1%}' for value in clean)}",
            ),
        )
        arms = [before, *found["sft"], *found["harden"]]
        names = [
            ARMS[0],
            *(f"{ARMS[1]}, seed {seed}" for seed in seeds),
            *(f"{ARMS[2]}, seed {seed}" for seed in seeds),
        ]
        rows = []
        for name, one in zip(names, arms, strict=True):
            s = one.summary()
            rows.append(
                (
                    name,
                    round(100 * s.clean, 1),
                    None if s.average_drop is None else round(100 * (s.clean - s.average_drop), 1),
                    round(100 * s.under_attack, 1),
                    round(100 * s.success_rate, 1),
                    round(s.queries, 1),
                )
            )
        return Result(
            study=self.name,
            kind=self.kind,
            question=self.question,
            headline=verdict_line(claims),
            claims=claims,
            tables=(
                Table(
                    title=f"{MODEL} on {DATA}, {STEPS} steps of 4 questions",
                    columns=("model", "right, %", "random change, %", "worst change, %", "broken, %", "queries each"),
                    rows=tuple(rows),
                ),
            ),
            figures=(_figure([[before], found["sft"], found["harden"]]),),
            provenance=Provenance(
                seed=context.seed,
                models={MODEL: {"kind": "LocalTarget", "decoding": "greedy, fp32"}},
                options={"items": ITEMS, "steps": STEPS, "queries": MOST, "stories": STORY_SEED, "seeds": len(seeds)},
            ),
        )


def _trained(context: Context, kind: Kind, folder: Path, seed: int) -> Path:
    """The trained model's folder; a finished training is not done again, a killed one goes on."""
    out = folder / f"{kind}-seed{seed}"
    block = DataBlock(source=DATA, limit=8 * STEPS, seed=1000 + seed)
    asked = {item.question for item in data.load(DATA, limit=ITEMS, seed=STORY_SEED).items}
    assert asked.isdisjoint(item.question for item in data.load(DATA, limit=8 * STEPS, seed=1000 + seed).items)
    training = TrainingBlock(steps=STEPS, batch_size=4, max_length=512, save_every=STEPS)
    recipe: SFTRecipe = SFTRecipe(model=MODEL, data=block, training=training, seed=seed)
    if kind == "harden":
        augment = AugmentBlock(conservative=True, protect="mathattack")
        recipe = HardenRecipe(model=MODEL, data=block, training=training, seed=seed, augment=augment)
    if not (out / "model" / "config.json").is_file():
        recipe.run(out=out, progress=context.progress)
    return out / "model"


def _attacked(context: Context, target: Target, sources: list, stories: data.DataSet) -> AttackResults:  # type: ignore[type-arg]
    return MSCR(
        target,
        sources,
        protect="mathattack",
        budget=Budget(max_queries=MOST),
        seed=context.seed,
    ).run(stories, journal=context.journal, progress=context.progress)


def _standing(attacks: list[AttackResults]) -> np.ndarray:
    """For each story, the share of seeds with which it is right under attack."""
    right = [[row.clean.status == "correct" and not row.success for row in one.rows] for one in attacks]
    return np.asarray(right, dtype=float).mean(axis=0)


def _figure(found: list[list[AttackResults]]) -> Figure:
    names = ("as asked", "a random word changed", "the worst word changed")
    series = []
    for name, attacks in zip(ARMS, found, strict=True):
        sums = [one.summary() for one in attacks]
        values = [
            [s.clean for s in sums],
            [s.clean - (s.average_drop or 0.0) for s in sums],
            [s.under_attack for s in sums],
        ]
        series.append(
            Series(
                name=name,
                x=names,
                y=tuple(float(np.mean(v)) for v in values),
                low=tuple(min(v) for v in values),
                high=tuple(max(v) for v in values),
            )
        )
    return Figure(
        title="Fine-tuning against changed words",
        kind="bars",
        series=tuple(series),
        y_label="right",
        y_unit="share",
        caption="The same attack on the same stories; means, lowest and highest of the seeds. Both kinds of "
        "fine-tuning saw the same other stories.",
        alt="Accuracy of a model as it came, fine-tuned, and fine-tuned on rewritten questions.",
    )

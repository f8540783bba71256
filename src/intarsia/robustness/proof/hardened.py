"""Reproduction, fourth part: fine-tuning on rewritten questions against fine-tuning on them as they are."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from intarsia.core import data
from intarsia.core.errors import ConfigError
from intarsia.core.recipes import DataBlock, TrainingBlock
from intarsia.core.stats import mcnemar, paired_share_difference
from intarsia.core.study import Context, Figure, Provenance, Result, Series, Study, Table
from intarsia.core.target import Target
from intarsia.core.training.sft import SFTRecipe
from intarsia.robustness.attack import MSCR, Budget
from intarsia.robustness.harden import AugmentBlock, HardenRecipe
from intarsia.robustness.proof.claims import claim, verdict_line
from intarsia.robustness.results import AttackResults
from intarsia.robustness.sources import default_sources

MODEL = "smollm2-135m"
DATA = "stories:1"
ITEMS = 60
STORY_SEED = 90
"""Stories of another seed than those that are trained on, and none of them among those."""
STEPS = 60
MOST = 25
ARMS = ("as it came", "fine-tuned", "fine-tuned on rewritten questions")


class Hardened(Study):
    """Does fine-tuning on rewritten questions make right answers survive, beyond what fine-tuning does anyway?"""

    name: ClassVar[str] = "hardened"
    question: ClassVar[str] = "Does fine-tuning on rewritten questions make right answers survive?"
    kind = "reproduction"
    room: ClassVar[str] = "robustness"
    scales: ClassVar[tuple[str, ...]] = ("full",)

    def run(self, context: Context) -> Result:
        """Fine-tune twice on the same stories and steps, then attack all three models with the same rewrites."""
        if context.journal is None:
            raise ConfigError("This part trains models and needs a folder for them.", "Use `intarsia reproduce`.")
        folder = context.journal.path.parent
        stories = data.load(DATA, limit=ITEMS, seed=STORY_SEED + context.seed)
        # All models meet the same candidates: those from the embeddings of the model as it came.
        with Target.parse(MODEL) as original:
            sources, _ = default_sources(original)
            found = [_attacked(context, original, sources, stories)]
        for kind in ("sft", "harden"):
            tuned = _trained(context, kind, folder)  # type: ignore[arg-type]
            with Target.parse(str(tuned)) as target:
                found.append(_attacked(context, target, sources, stories))
        plain, hardened = found[1], found[2]
        stood = [(_stands(a, at), _stands(b, at)) for a, b in [(plain, hardened)] for at in range(len(stories.items))]
        only_plain = sum(a and not b for a, b in stood)
        only_hardened = sum(b and not a for a, b in stood)
        n = len(stood)
        claims = (
            claim(
                "hardened.under_attack",
                "Is the model that saw rewritten questions right more often under attack than one that did not?",
                (only_hardened - only_plain) / n,
                (">=", 0.0),
                unit="points",
                n=n,
                scale="full",
                interval=paired_share_difference(only_plain, only_hardened, n),
                by_interval=True,
                control=("right under attack after plain fine-tuning", plain.summary().under_attack),
                reason=f"exact McNemar p {mcnemar(only_plain, only_hardened):.3g}; broken: "
                + ", ".join(f"{name} {one.summary().success_rate:.1%}" for name, one in zip(ARMS, found, strict=True)),
            ),
            claim(
                "hardened.clean",
                "Does it keep its accuracy on the questions as they are?",
                hardened.summary().clean - plain.summary().clean,
                (">=", -0.05),
                unit="points",
                n=n,
                scale="full",
                control=("right after plain fine-tuning", plain.summary().clean),
            ),
        )
        rows = []
        for name, one in zip(ARMS, found, strict=True):
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
            figures=(_figure(found),),
            provenance=Provenance(
                seed=context.seed,
                models={MODEL: {"kind": "LocalTarget", "decoding": "greedy, fp32"}},
                options={"items": ITEMS, "steps": STEPS, "queries": MOST, "story_seed": STORY_SEED + context.seed},
            ),
        )


def _trained(context: Context, kind: Literal["sft", "harden"], folder: Path) -> Path:
    """The trained model's folder; a finished training is not done again, a killed one goes on."""
    from intarsia.core.data import load

    out = folder / kind
    asked = {item.question for item in load(DATA, limit=ITEMS, seed=STORY_SEED + context.seed).items}
    block = DataBlock(source=DATA, limit=8 * STEPS, seed=1000 + context.seed)
    seen = {item.question for item in load(DATA, limit=8 * STEPS, seed=1000 + context.seed).items}
    assert not asked & seen, "a question that is attacked would be trained on"
    common = {
        "model": MODEL,
        "data": block,
        "training": TrainingBlock(steps=STEPS, batch_size=4, max_length=512, save_every=20),
        "seed": context.seed,
    }
    recipe = (
        HardenRecipe(**common, augment=AugmentBlock(conservative=True, protect="mathattack"))  # type: ignore[arg-type]
        if kind == "harden"
        else SFTRecipe(**common)  # type: ignore[arg-type]
    )
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


def _stands(results: AttackResults, at: int) -> bool:
    row = results.rows[at]
    return row.clean.status == "correct" and not row.success


def _figure(found: list[AttackResults]) -> Figure:
    names = ("as asked", "a random word changed", "the worst word changed")
    series = []
    for name, one in zip(ARMS, found, strict=True):
        s = one.summary()
        series.append(Series(name=name, x=names, y=(s.clean, s.clean - (s.average_drop or 0.0), s.under_attack)))
    return Figure(
        title="Fine-tuning against changed words",
        kind="bars",
        series=tuple(series),
        y_label="right",
        y_unit="share",
        caption="The same attack on the same questions; both fine-tuned models saw the same other questions.",
        alt="Accuracy of three models under three conditions.",
    )

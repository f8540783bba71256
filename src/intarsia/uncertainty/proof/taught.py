"""Reproduction, second part: transformers that are taught, from nothing, how likely each answer is.

Each question has a known law over its answers, and the right answer is drawn from it, so the probability that an answer
is wrong is known. The taught model's beams, samples and estimates are the product's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from intarsia.core.claims import claim, verdict_line
from intarsia.core.journal import content_key
from intarsia.core.study import Claim, Context, Figure, Provenance, Result, Series, Study, Table
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.generator import Generator, generate_together
from intarsia.uncertainty.law import Law
from intarsia.uncertainty.metrics import Comparison, compare
from intarsia.uncertainty.proof.acceptance import estimates
from intarsia.uncertainty.proof.fact_table import LONGEST, SUBJECTS, FactTable
from intarsia.uncertainty.proof.facts_model import STEPS, FactsModel, train_facts
from intarsia.uncertainty.proof.kept import first
from intarsia.uncertainty.trie import TrieSampler

M, FEW = 10, 3
WIDTHS = (1, 2, 3, 5, 10)
SCALE = "cpu"


class Options(BaseModel):
    """Sizes.

    Attributes:
        subjects: Of a fact table; there are three questions to each.
        steps: Of training.
        resamples: Of the bootstrap over questions.
    """

    model_config = ConfigDict(extra="forbid")

    subjects: int = Field(default=SUBJECTS, ge=2)
    steps: int = Field(default=STEPS, ge=1)
    resamples: int = Field(default=1999, ge=1)


@dataclass(frozen=True)
class Scores:
    """What one taught model says of its questions.

    Attributes:
        answers: Greedy answers.
        beam: Dissimilarity from beams, by width.
        sampling: The same from so many samples.
        divergence: Mean Kullback-Leibler divergence of the model's law from the taught one, in nats.
    """

    answers: tuple[str, ...]
    beam: dict[int, np.ndarray]
    sampling: dict[int, np.ndarray]
    divergence: float


@dataclass(frozen=True)
class Outcome:
    """One seed.

    Attributes:
        seed: Of table, model and samples.
        n: Questions.
        right: Share of right answers.
        divergence: See `Scores`.
        spearman_beam: Rank correlation of beam scores with the true probability of error.
        spearman_sampling: The same of 10 samples.
        gain: PRR of 10 beams against 10 samples.
        few: PRR of 3 beams against 10 samples.
        exact: PRR of the true probability of error.
        prr_beam: PRR by width.
        prr_sampling: PRR by number of samples.
    """

    seed: int
    n: int
    right: float
    divergence: float
    spearman_beam: float
    spearman_sampling: float
    gain: Comparison
    few: Comparison
    exact: float
    prr_beam: dict[int, float]
    prr_sampling: dict[int, float]


class Taught(Study):
    """Where the probability of error is known, do beams rank answers by it better than samples do?"""

    name: ClassVar[str] = "facts"
    question: ClassVar[str] = (
        "Where the probability of error is known, do beams rank answers by it better than samples?"
    )
    kind = "reproduction"
    room: ClassVar[str] = "uncertainty"
    scales: ClassVar[tuple[str, ...]] = ("cpu",)
    Options: ClassVar[type[BaseModel]] = Options

    def run(self, context: Context) -> Result:
        """Teach, answer, score; by default with three seeds."""
        options = context.options if isinstance(context.options, Options) else Options()
        seeds = [context.seed + at for at in range(context.seeds or 3)]
        outcomes = []
        for done, seed in enumerate(seeds):
            outcomes.append(judged(FactTable(seed, options.subjects), _scores(context, seed, options), options))
            context.progress("taught models", done + 1, len(seeds))
        claims = tuple(_claims(outcomes))
        return Result(
            study=self.name,
            kind=self.kind,
            question=self.question,
            headline=verdict_line(claims),
            claims=claims,
            tables=(_table(outcomes),),
            figures=(_figure(outcomes),),
            notes=(
                "The true uncertainty of an answer is the probability, under the law that was taught, that the right "
                "answer is another one; similarity is equality. Neither beams nor samples see it: they come from the "
                "trained model.",
            ),
            provenance=Provenance(
                seed=context.seed, options={**options.model_dump(), "seeds": len(seeds), "m": M, "few": FEW}
            ),
        )


def _scores(context: Context, seed: int, options: Options) -> Scores:
    """Computed once; a run that is resumed finds the model in its folder and the scores in the journal."""
    key = content_key("facts", seed, options.subjects, options.steps, WIDTHS)
    row: Any = context.journal.get(key) if context.journal is not None else None
    if row is None:
        row = _measured(context, _trained(context, seed, options), seed)
        if context.journal is not None:
            context.journal.append({key: row})
    return Scores(
        answers=tuple(row["answers"]),
        beam={m: np.array(row["beam"][str(m)]) for m in WIDTHS},
        sampling={m: np.array(row["sampling"][str(m)]) for m in WIDTHS},
        divergence=row["divergence"],
    )


def _trained(context: Context, seed: int, options: Options) -> FactsModel:
    folder: Path | None = None
    if context.journal is not None:
        folder = context.journal.path.parent / f"facts-seed{seed}-subjects{options.subjects}-steps{options.steps}"
        if folder.is_dir():
            return FactsModel.load(folder)
    progress = context.report_progress(f"teaching, seed {seed}")
    made = train_facts(
        seed,
        subjects=options.subjects,
        steps=options.steps,
        progress=progress,
        checkpoint=None if folder is None else folder.with_name(f"{folder.name}.pt"),
    )
    if folder is not None:
        made.save(folder)
    return made


def _measured(context: Context, made: FactsModel, seed: int) -> dict[str, Any]:
    facts = made.table.facts
    questions = [fact.question for fact in facts]
    law = Law.of(made.target(), stops=(), max_new_tokens=LONGEST + 1)
    makers: list[Generator] = [*(Beam(law, m=m) for m in WIDTHS), TrieSampler(law, m=M, seed=seed)]
    *beams, samples = zip(*generate_together(makers, questions, [fact.id for fact in facts]), strict=True)
    return {
        "answers": [one.answer.text for one in samples],
        "beam": {str(m): estimates(sets, "exact").tolist() for m, sets in zip(WIDTHS, beams, strict=True)},
        "sampling": {str(m): estimates([first(one, m) for one in samples], "exact").tolist() for m in WIDTHS},
        "divergence": float(made.divergence(facts).mean()),
    }


def judged(table: FactTable, scores: Scores, options: Options) -> Outcome:
    """Hold scores against the law of the world and the answers that it drew."""
    from scipy.stats import spearmanr

    facts = table.facts
    wrong_N = np.array([1 - fact.probability(answer) for fact, answer in zip(facts, scores.answers, strict=True)])
    right_N = np.array([float(a == gold) for a, gold in zip(scores.answers, table.gold(), strict=True)])

    def against(a_N: np.ndarray, b_N: np.ndarray) -> Comparison:
        return compare(right_N, a_N, b_N, "prr", resamples=options.resamples, seed=table.seed)

    gain = against(scores.sampling[M], scores.beam[M])
    by_width = {m: compare(right_N, scores.sampling[m], scores.beam[m], "prr", resamples=1) for m in WIDTHS}
    return Outcome(
        seed=table.seed,
        n=len(facts),
        right=float(right_N.mean()),
        divergence=scores.divergence,
        spearman_beam=float(spearmanr(scores.beam[M], wrong_N).statistic),
        spearman_sampling=float(spearmanr(scores.sampling[M], wrong_N).statistic),
        gain=gain,
        few=against(scores.sampling[M], scores.beam[FEW]),
        exact=compare(right_N, wrong_N, wrong_N, "prr", resamples=1).a,
        prr_beam={m: found.b for m, found in by_width.items()},
        prr_sampling={m: found.a for m, found in by_width.items()},
    )


def _claims(outcomes: list[Outcome]) -> list[Claim]:
    n = sum(one.n for one in outcomes)
    lowest = min(outcomes, key=lambda one: one.gain.difference)
    least = min(outcomes, key=lambda one: one.few.difference)
    return [
        claim(
            "facts.learned",
            "Does the model's law come near the taught one (mean divergence in nats, worst seed)?",
            max(one.divergence for one in outcomes),
            ("<=", 0.1),
            unit="nats",
            n=n,
            scale=SCALE,
        ),
        claim(
            "facts.spearman",
            "Do 10 beams order answers by the true probability of error (rank correlation, lowest seed)?",
            min(one.spearman_beam for one in outcomes),
            (">=", 0.95),
            unit="",
            n=n,
            scale=SCALE,
            control=("10 samples, highest seed", max(one.spearman_sampling for one in outcomes)),
        ),
        claim(
            "facts.spearman_gain",
            "Is that correlation above that of 10 samples (smallest difference of the seeds)?",
            min(one.spearman_beam - one.spearman_sampling for one in outcomes),
            (">=", 0.0),
            unit="",
            n=n,
            scale=SCALE,
        ),
        claim(
            "facts.gain",
            "Do 10 beams reject wrong answers better than 10 samples (difference of PRR, lowest seed)?",
            lowest.gain.difference,
            (">=", 0.0),
            unit="",
            n=lowest.n,
            scale=SCALE,
            interval=lowest.gain.interval,
            by_interval=True,
            control=("PRR of 10 samples", lowest.gain.a),
            reason="by seed: " + ", ".join(f"{one.gain.difference:+.3f}" for one in outcomes),
        ),
        claim(
            "facts.significant",
            "Is that difference beyond chance (paired bootstrap over questions, largest p of the seeds)?",
            max(one.gain.p for one in outcomes),
            ("<=", 0.05),
            unit="",
            n=min(one.n for one in outcomes),
            scale=SCALE,
        ),
        claim(
            "facts.three",
            "Are 3 beams at least as good as 10 samples (difference of PRR, lowest seed)?",
            least.few.difference,
            (">=", 0.0),
            unit="",
            n=least.n,
            scale=SCALE,
            interval=least.few.interval,
            control=("PRR of 10 samples", least.few.a),
            reason="by seed: " + ", ".join(f"{one.few.difference:+.3f}" for one in outcomes),
        ),
    ]


def _table(outcomes: list[Outcome]) -> Table:
    return Table(
        title="Models taught a fact table",
        columns=(
            "seed",
            "questions",
            "right, %",
            "divergence, nats",
            "rank correlation, beam",
            "rank correlation, 10 samples",
            "PRR, 10 beams",
            "PRR, 3 beams",
            "PRR, 10 samples",
            "PRR, true probability of error",
        ),
        rows=tuple(
            (
                one.seed,
                one.n,
                round(100 * one.right, 1),
                round(one.divergence, 4),
                round(one.spearman_beam, 4),
                round(one.spearman_sampling, 4),
                round(one.gain.b, 4),
                round(one.few.b, 4),
                round(one.gain.a, 4),
                round(one.exact, 4),
            )
            for one in outcomes
        ),
    )


def _figure(outcomes: list[Outcome]) -> Figure:
    series = []
    for name, column in (("beams", "prr_beam"), ("samples", "prr_sampling")):
        values = [[getattr(one, column)[m] for one in outcomes] for m in WIDTHS]
        series.append(
            Series(
                name=name,
                x=WIDTHS,
                y=tuple(sum(row) / len(row) for row in values),
                low=tuple(min(row) for row in values),
                high=tuple(max(row) for row in values),
            )
        )
    return Figure(
        title="Rejection of wrong answers by number of candidates, taught models",
        kind="lines",
        series=tuple(series),
        x_label="candidates",
        y_label="PRR",
        caption="Means over seeds, with the lowest and highest. A single beam is the answer itself and says nothing.",
        alt="Prediction rejection ratio of beams and samples for 1 to 10 candidates.",
        reference=(sum(one.exact for one in outcomes) / len(outcomes), "true probability of error"),
    )

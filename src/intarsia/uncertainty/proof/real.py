"""Reproduction, third part: a real small model completes facts, from beams and from samples of the same law.

A model of 135M parameters is too flat at temperature 1 for the method, so the model under test is the one whose law is
the softmax of logits / 0.5; both kinds of candidates come from that law. Temperature 1 is shown as what it is: the case
in which beams hold too little, the product warns, and the hybrid takes over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from intarsia.core.claims import FIXED, claim, unmeasured, verdict_line
from intarsia.core.data import DataSet
from intarsia.core.errors import DataError, IntarsiaError
from intarsia.core.journal import content_key
from intarsia.core.study import Claim, Context, Example, Figure, Passage, Provenance, Result, Series, Study, Table
from intarsia.core.target import Prompt, Target
from intarsia.uncertainty import question_sets
from intarsia.uncertainty.beam import Beam
from intarsia.uncertainty.beamuq import BeamUQ
from intarsia.uncertainty.candidates import CandidateSet
from intarsia.uncertainty.diverse import DiverseBeam
from intarsia.uncertainty.estimators import candidate_weights
from intarsia.uncertainty.facts import facts
from intarsia.uncertainty.generator import Generator
from intarsia.uncertainty.hybrid import Hybrid
from intarsia.uncertainty.interval import low_mass, paper_threshold
from intarsia.uncertainty.law import Law, TokenLaw
from intarsia.uncertainty.prompting import SHOTS, STOPS, prompts
from intarsia.uncertainty.proof.kept import BATCH, collected
from intarsia.uncertainty.proof.measured import SIMILARITY, Gain, Measured, error_ratio, gain
from intarsia.uncertainty.trie import TrieSampler

MODEL, OTHER = "smollm2-135m", "gemma-3-270m"
DATA = "known_1000"
M = 10
PEAKED, FLAT = 0.5, 1.0
LEAST = 10
"""Questions that a mean error rests on; fewer are not judged."""
WIDTHS = (1, 2, 3, 5)
FLOORS = (0.0, 1e-5, 1e-3, 0.1)
COMPARED = (
    "dissimilarity",
    "eccentricity",
    "eigvec_dissimilarity",
    "cocoa_msp",
    "cocoa_ppl",
    "cocoa_mte",
    "semantic_entropy",
    "degree_matrix",
)
PAPER = "paper: mean PRR rises by .01 to .06 with models of 4B to 8B parameters"


class Options(BaseModel):
    """Sizes.

    Attributes:
        items: Questions of the accept lines at scale `cpu`; `full` asks all there are.
        flat: Questions at temperature 1 at scale `cpu`.
        flat_full: The same at scale `full`.
        other: Questions to the other model.
        runs: Of sampling.
        again: Questions whose beams are searched anew, once a run.
        shuffles: Of the probabilities among questions.
        resamples: Of the bootstrap over questions.
    """

    model_config = ConfigDict(extra="forbid")

    items: int = Field(default=300, ge=4)
    flat: int = Field(default=100, ge=4)
    flat_full: int = Field(default=300, ge=4)
    other: int = Field(default=300, ge=4)
    runs: int = Field(default=5, ge=2)
    again: int = Field(default=BATCH, ge=1)
    shuffles: int = Field(default=10, ge=1)
    resamples: int = Field(default=999, ge=1)


@dataclass(frozen=True)
class Asked:
    """Questions as a model is asked them."""

    data: DataSet
    prompts: tuple[Prompt, ...]
    most: int

    @property
    def ids(self) -> list[str]:
        """Stable names."""
        return [item.id for item in self.data.items]

    def head(self, count: int) -> Asked:
        """The first `count` of them."""
        return Asked(self.data.model_copy(update={"items": self.data.items[:count]}), self.prompts[:count], self.most)


class Real(Study):
    """Do beams of a real small model estimate its uncertainty better than samples, and reject as well?"""

    name: ClassVar[str] = "real"
    question: ClassVar[str] = "Do beams of a real small model estimate its uncertainty better than samples do?"
    kind = "reproduction"
    room: ClassVar[str] = "uncertainty"
    scales: ClassVar[tuple[str, ...]] = ("cpu", "full")
    Options: ClassVar[type[BaseModel]] = Options

    def run(self, context: Context) -> Result:
        """The accept lines on 300 questions at scale `cpu`; on all of them, with everything beside, at `full`."""
        options = context.options if isinstance(context.options, Options) else Options()
        full = context.scale == "full"
        notes: list[str] = []
        claims: list[Claim] = []
        tables: list[Table] = []
        figures: list[Figure] = []
        with Target.parse(MODEL) as target:
            asked = _asked(target, None if full else options.items, context.seed, notes)
            law = _law(target, PEAKED, asked)
            peaked = _measured(context, law, asked, options, everything=full)
            again = _again(context, law, asked.head(options.again), options)
            flat_asked = asked.head(options.flat_full if full else options.flat)
            flat_law = _law(target, FLAT, asked)
            flat = _measured(context, flat_law, flat_asked, options)
            mended = _mended(context, flat_law, flat_asked, flat.beams)
        scale = context.scale
        claims += accepted(peaked, options, scale, "real", again)
        claims += failure(flat, mended, scale)
        compared = [peaked, flat]
        if full and peaked.rankable:
            found, table = _estimators(peaked, options, scale)
            claims += found
            tables.append(table)
            found, figure = _widths(peaked, options, scale)
            claims += found
            figures.append(figure)
            tables += [_lengths(peaked, options), _sources(peaked, options)]
        if full:
            other = _other_model(context, options, scale)
            claims += other.claims
            compared += other.measured
        else:
            claims += out_of_reach()
        tables = [_summary(compared), _bins(compared), *tables]
        figures = [_bin_figure(peaked), *figures]
        return Result(
            study=self.name,
            kind=self.kind,
            question=self.question,
            headline=verdict_line(claims),
            claims=tuple(claims),
            tables=tuple(tables),
            figures=tuple(figures),
            examples=tuple(_examples(peaked)),
            notes=(
                *notes,
                "Errors are held against the mean of the samples of the other runs. Its noise is in the error of every "
                "estimator alike, so ratios of errors come out nearer to 1 than they are.",
                "A model of this size at temperature 1 is flatter than the models of the paper; at 0.5 its beams hold "
                "as much as the method presumes. Beams and samples always come from the same law.",
            ),
            provenance=Provenance(
                seed=context.seed,
                models={MODEL: {"kind": "LocalTarget", "decoding": "fp32"}},
                data={asked.data.name: {"sha256": asked.data.sha256, "items": len(asked.data.items)}},
                options={
                    **options.model_dump(),
                    "m": M,
                    "shots": SHOTS,
                    "max_new_tokens": asked.most,
                    "similarity": SIMILARITY,
                },
            ),
        )


# --- Asking ----------------------------------------------------------------------------------------------------------


def _asked(target: Target, limit: int | None, seed: int, notes: list[str]) -> Asked:
    """Facts to be completed where they are at hand, else the packaged ones."""
    try:
        found = question_sets.load(DATA, limit=limit, seed=seed, offline=True)
    except DataError:
        tokenizer = getattr(target, "tokenizer", None)
        found = facts(limit, seed=seed, tokenizer=tokenizer)
        notes.append(
            f"{DATA} is not at hand (INTARSIA_DATA): the packaged facts were asked instead, whose figures differ."
        )
    # Answers have up to three tokens, and one ends them.
    return Asked(found, tuple(prompts(found, shots=SHOTS)), most=4)


def _law(target: Target, temperature: float, asked: Asked) -> Law:
    return Law.of(target, temperature=temperature, stops=STOPS, max_new_tokens=asked.most)


def _settings(law: TokenLaw) -> dict[str, Any]:
    return {"model": law.name, "temperature": getattr(law, "temperature", 1.0), "most": law.max_new_tokens, "m": M}


def _measured(context: Context, law: TokenLaw, asked: Asked, options: Options, *, everything: bool = False) -> Measured:
    """Beams and samples of each question; with `everything` also narrower beams, the hybrid and diverse beams."""
    seed = context.seed
    makers: dict[str, Generator] = {
        "beam": Beam(law, m=M),
        # The hybrid's samples have the seed itself: they must not be those that it is held against.
        "samples": TrieSampler(law, m=M * options.runs, seed=seed + 1),
    }
    if everything:
        makers |= {f"beam {m}": Beam(law, m=m) for m in WIDTHS}
        makers |= {"hybrid": Hybrid(law, m=M, seed=seed), "diverse": DiverseBeam(law, m=M)}
    settings = {**_settings(law), "seed": seed, "runs": options.runs}
    found = collected(
        makers,
        asked.prompts,
        asked.ids,
        journal=context.journal,
        settings=settings,
        progress=context.report_progress(f"{law.name} at temperature {settings['temperature']:g}"),
    )
    beams, samples = found.pop("beam"), found.pop("samples")
    return Measured(law.name, settings["temperature"], asked.data.items, beams, samples, options.runs, found)


@dataclass(frozen=True)
class Again:
    """Beams searched anew.

    Attributes:
        n: Questions.
        same: Largest difference of a score between the runs.
        rebatched: The same against the questions in another order and in other batches, where rounding differs.
    """

    n: int
    same: float
    rebatched: float


def _again(context: Context, law: TokenLaw, asked: Asked, options: Options) -> Again:
    """Search the beams of some questions once a run, each with other keys, and once in other batches."""
    key = content_key("again", _settings(law), asked.ids, options.runs)
    row = context.journal.get(key) if context.journal is not None else None
    if row is None:
        uq = BeamUQ(law, similarity=SIMILARITY, estimators=["dissimilarity"], candidates=Beam(law, m=M))

        def scores(order: Sequence[int], run: int) -> np.ndarray:
            found = uq.score([asked.prompts[at] for at in order], [f"{asked.ids[at]}/{run}" for at in order])
            values_N = np.empty(len(order))
            values_N[list(order)] = [one.scores["dissimilarity"] for one in found]
            return values_N

        straight = range(len(asked.ids))
        runs_RN = np.stack([scores(straight, run) for run in range(options.runs)])
        other_N = scores(straight[::-1], options.runs)
        row = [float(np.ptp(runs_RN, axis=0).max()), float(np.abs(other_N - runs_RN[0]).max())]
        if context.journal is not None:
            context.journal.append({key: row})
    return Again(len(asked.ids), *row)


@dataclass(frozen=True)
class Mended:
    """What the product makes of questions whose beams hold too little.

    Attributes:
        scores_N: Dissimilarity, from beams and samples together where the beams held too little.
        warned_N: Whether it said so when asked to warn only.
        switched_N: Whether the score rests on a hybrid.
    """

    scores_N: np.ndarray
    warned_N: np.ndarray
    switched_N: np.ndarray


def _mended(context: Context, law: TokenLaw, asked: Asked, found: Sequence[CandidateSet]) -> Mended:
    beams = Beam(law, m=M)
    warns = BeamUQ(law, similarity=SIMILARITY, estimators=["dissimilarity"], candidates=beams)
    mends = BeamUQ(law, similarity=SIMILARITY, estimators=["dissimilarity"], candidates=beams, on_low_mass="hybrid")
    rows: list[Any] = []
    keys = [content_key("mended", _settings(law), one, prompt) for one, prompt in zip(asked.ids, asked.prompts)]
    for start in range(0, len(keys), BATCH):
        part = slice(start, start + BATCH)
        known = [None if context.journal is None else context.journal.get(key) for key in keys[part]]
        if any(row is None for row in known):
            scored = mends.score(asked.prompts[part], asked.ids[part])
            known = [[one.scores["dissimilarity"], one.candidates.kind == "hybrid"] for one in scored]
            if context.journal is not None:
                context.journal.append(dict(zip(keys[part], known, strict=True)))
        rows += known
        context.progress("beams that hold too little", len(rows), len(keys))
    warned = [bool(one.warning) for one in warns.score_sets(found)]
    return Mended(np.array([row[0] for row in rows]), np.array(warned), np.array([row[1] for row in rows]))


# --- Accept lines ----------------------------------------------------------------------------------------------------


def accepted(found: Measured, options: Options, scale: str, name: str, again: Again | None = None) -> list[Claim]:
    """The lines that hold where beams hold much: duplicates, errors, repeatability, weights, rejection, and fakes."""
    n = len(found.items)
    samples, texts, tokens = found.repeated()
    inside_N = found.mass_N >= paper_threshold(found.m)
    rows = [
        claim(
            f"{name}.duplicates.samples",
            "What share of 10 samples says again what another one said?",
            samples,
            (">=", 0.45),
            unit="share",
            n=n * found.runs,
            scale=scale,
            origin="paper: 30 to 50 % on short answers",
        ),
        claim(
            f"{name}.duplicates.beams",
            "And of 10 beams?",
            texts,
            ("<=", 0.10),
            unit="share",
            n=n,
            scale=scale,
            reason="two paths of tokens may spell one text",
        ),
        claim(
            f"{name}.duplicates.tokens",
            "Are any two beams the same path of tokens?",
            tokens,
            ("<=", 0.0),
            unit="share",
            n=n,
            scale=scale,
            origin="beams are distinct by construction",
        ),
    ]
    question = "Where beams hold the paper's threshold, how large is their squared error beside that of 10 samples?"
    if inside_N.sum() >= LEAST:
        beam_N, mc_N = found.errors["beam"][inside_N], found.errors["samples"][inside_N]
        ratio = error_ratio(beam_N, mc_N)
        rows += [
            claim(
                f"{name}.error",
                question,
                ratio.value,
                ("<=", 0.5),
                unit="ratio",
                n=int(inside_N.sum()),
                scale=scale,
                interval=ratio.interval,
                control=("mean squared error of 10 samples", float(mc_N.mean())),
                reason=f"m_B >= {paper_threshold(found.m):.3f} on {inside_N.mean():.0%} of questions",
            ),
            claim(
                f"{name}.error.significant",
                "Is that difference of errors beyond chance (paired bootstrap over questions)?",
                ratio.p,
                ("<=", 0.01),
                unit="",
                n=int(inside_N.sum()),
                scale=scale,
            ),
        ]
    else:
        reason = "too few questions have beams that hold that much"
        rows.append(unmeasured(f"{name}.error", question, reason, scale, "not measurable"))
    if again is not None:
        rows.append(
            claim(
                f"{name}.repeatable",
                f"Do {found.runs} runs of the beams give the same score (largest difference)?",
                again.same,
                ("<=", 0.0),
                unit="",
                n=again.n,
                scale=scale,
                origin="there is no randomness in a beam",
                reason=f"in another order and other batches: {again.rebatched:.1g} (float32 rounding)",
            )
        )
    rows.append(
        claim(
            f"{name}.interval",
            "Does the certified interval agree with all samples together (share of questions)?",
            found.consistent(),
            (">=", 0.99),
            unit="share",
            n=n,
            scale=scale,
            reason=f"{found.runs * found.m} samples a question, by their exact 99.9 % interval",
        )
    )
    return [*rows, *_rejection(found, options, scale, name)]


def _rejection(found: Measured, options: Options, scale: str, name: str) -> list[Claim]:
    """The lines on rejecting wrong answers."""
    n = len(found.items)
    if not found.rankable:
        reason = "all answers are right, or all are wrong: there is nothing to rank"
        question = "Do beams reject wrong answers as well as 10 samples?"
        return [unmeasured(f"{name}.rejection", question, reason, scale, "not measurable")]
    weighted = gain(found.quality_N, [found.uniform_N], [found.beam_N], options.resamples)
    sampled = gain(found.quality_N, list(found.runs_RN), [found.beam_N], options.resamples)
    rows = [
        claim(
            f"{name}.noise",
            f"How much does the PRR of 10 samples vary over {found.runs} runs (standard deviation)?",
            float(np.std(found.prr_runs, ddof=1)),
            (">=", 0.02),
            unit="",
            n=n,
            scale=scale,
            origin="fixed before the run for about 300 questions; it falls with the square root of their number",
            reason="PRR by run: " + ", ".join(f"{value:.3f}" for value in found.prr_runs),
        ),
        claim(
            f"{name}.weights",
            "How much better do beams reject wrong answers when they are weighted by probability (difference of PRR)?",
            weighted.value,
            (">=", 0.10),
            unit="",
            n=n,
            scale=scale,
            interval=weighted.interval,
            control=("PRR of beams with equal weights", weighted.before),
            reason=f"PRR {weighted.after:.3f}",
        ),
        claim(
            f"{name}.rejection",
            "Do beams reject wrong answers as well as 10 samples, up to .03 (difference of PRR)?",
            sampled.value,
            (">=", -0.03),
            unit="",
            n=n,
            scale=scale,
            origin=f"{FIXED}; better than samples is expected of larger models only",
            interval=sampled.interval,
            control=("mean PRR of 10 samples", sampled.before),
            reason=f"{found.runs} runs; {found.quality_N.mean():.1%} of answers are right",
        ),
    ]
    return [*rows, *_fakes(found, weighted, options, scale, name)]


def _fakes(found: Measured, weighted: Gain, options: Options, scale: str, name: str) -> list[Claim]:
    """Probabilities that say nothing must not gain what the real ones gain."""
    shuffles = [found.shuffled(seed) for seed in range(options.shuffles)]
    lent = gain(found.quality_N, shuffles, [found.beam_N], options.resamples)
    zeroed = gain(found.quality_N, [found.uniform_N], [found.zeroed()], 1).value
    left = lent.before - weighted.before
    return [
        claim(
            f"{name}.fake.shuffled",
            "With the probabilities of another question's beams, how much of the gain over equal weights is left?",
            left / weighted.value if weighted.value > 0 else 1.0,
            ("<=", 0.5),
            unit="ratio",
            n=len(found.items),
            scale=scale,
            control=("gain of the real probabilities (difference of PRR)", weighted.value),
            reason=f"PRR {lent.before:.3f} over {options.shuffles} shuffles; the real ones have {weighted.after:.3f}"
            f" (difference {lent.value:.3f}, {lent.interval.low:.3f} to {lent.interval.high:.3f})",
        ),
        claim(
            f"{name}.fake.zero",
            "With log-probabilities of 0, how much of the gain over equal weights is left (difference of PRR)?",
            abs(zeroed),
            ("<=", 1e-9),
            unit="",
            n=len(found.items),
            scale=scale,
            origin="they are equal weights",
        ),
    ]


def failure(found: Measured, mended: Mended, scale: str) -> list[Claim]:
    """Temperature 1: the beams of a flat model hold too little, their scores are off, and the product says so."""
    low_N = np.array([low_mass(mass, found.m) for mass in found.mass_N.tolist()])
    n = int(low_N.sum())
    rows = [
        claim(
            "real.flat.warning",
            "At temperature 1, does the product warn of beams that hold less than half, and of no others?",
            float((mended.warned_N == low_N).mean()),
            (">=", 1.0),
            unit="share",
            n=len(low_N),
            scale=scale,
            reason=f"the beams hold {found.mass_N.mean():.2f} on the mean; less than half on {n} of {len(low_N)}",
        )
    ]
    question = "Where they hold less than half, is the beam's squared error above that of 10 samples, as documented?"
    if n < LEAST:
        reason = f"the beams of {n} questions hold less than half, which are too few"
        return [*rows, unmeasured("real.flat.error", question, reason, scale, "not measurable")]
    beam_N, mc_N = found.errors["beam"][low_N], found.errors["samples"][low_N]
    hybrid_N = found.error(mended.scores_N)[low_N]
    worse, better = error_ratio(beam_N, mc_N), error_ratio(hybrid_N, beam_N)
    return [
        *rows,
        claim(
            "real.flat.error",
            question,
            worse.value,
            (">=", 1.0),
            unit="ratio",
            n=n,
            scale=scale,
            interval=worse.interval,
            by_interval=True,
            origin="the method presumes beams that hold most of the probability",
            control=("mean squared error of 10 samples", float(mc_N.mean())),
        ),
        claim(
            "real.flat.hybrid",
            "Does the fall-back to the hybrid at least halve that error (ratio to the beam's)?",
            better.value,
            ("<=", 0.5),
            unit="ratio",
            n=n,
            scale=scale,
            interval=better.interval,
            control=("mean squared error of the beams", float(beam_N.mean())),
            reason=f"{int(mended.switched_N.sum())} answers were scored from beams and samples",
        ),
    ]


def out_of_reach() -> list[Claim]:
    """The paper's headline: six models of 4B to 8B parameters on six data sets."""
    command = "intarsia uncertainty bench google/gemma-3-4b-pt --data triviaqa"
    return [
        unmeasured(
            "paper.prr",
            "Do beams raise the mean PRR of models of 4B to 8B parameters by .01 to .06 (six data sets)?",
            f"needs an accelerator and the hub: {command}; the same for the other models and data sets",
            "gpu",
        ),
        unmeasured(
            "paper.saturates",
            "Do 3 to 5 beams do as well as 10 on TriviaQA with such models?",
            f"needs an accelerator and the hub: {command}, with each number of candidates",
            "gpu",
        ),
        unmeasured(
            "paper.length",
            "Is the gain largest for answers of 2 to 4 tokens, and gone beyond 7?",
            f"needs a model that answers at length and right: {command}",
            "gpu",
        ),
    ]


# --- All the rest, at full scale -------------------------------------------------------------------------------------


def _estimators(found: Measured, options: Options, scale: str) -> tuple[list[Claim], Table]:
    claims, rows = [], []
    for name in COMPARED:
        sampled = [found.scores(found.run(number), name) for number in range(found.runs)]
        change = gain(found.quality_N, sampled, [found.scores(found.beams, name)], options.resamples)
        claims.append(
            claim(
                f"real.estimator.{name}",
                f"Does '{name}' reject better from beams than from samples (difference of PRR)?",
                change.value,
                (">=", 0.0),
                unit="",
                n=len(found.items),
                scale=scale,
                origin=PAPER,
                interval=change.interval,
                by_interval=True,
                control=("mean PRR from 10 samples", change.before),
            )
        )
        rows.append(_row(name, change))
    columns = ("estimator", "PRR, 10 samples", "PRR, 10 beams", "difference", "low", "high")
    return claims, Table(
        title=f"{found.model} at temperature {found.temperature:g}: estimators", columns=columns, rows=tuple(rows)
    )


def _widths(found: Measured, options: Options, scale: str) -> tuple[list[Claim], Figure]:
    """PRR by number of candidates."""
    sets = {m: found.others[f"beam {m}"] for m in WIDTHS} | {M: found.beams}
    beam = {m: found.scores(some) for m, some in sets.items()}
    sampling = {m: [found.scores(found.run(number, m)) for number in range(found.runs)] for m in sets}
    changes = {m: gain(found.quality_N, sampling[m], [beam[m]], options.resamples) for m in sets if m > 1}
    least = min(changes, key=lambda m: changes[m].value)
    more = gain(found.quality_N, [beam[5]], [beam[M]], options.resamples)
    by_run = {m: [found.prr(one) for one in some] for m, some in sampling.items()}
    claims = [
        claim(
            "real.candidates",
            "For every number of candidates from 2, do beams reject at least as well as samples (least difference)?",
            changes[least].value,
            (">=", 0.0),
            unit="",
            n=len(found.items),
            scale=scale,
            origin="paper: beams win for all M >= 2",
            interval=changes[least].interval,
            by_interval=True,
            reason=f"least at M = {least}; " + ", ".join(f"{m}: {one.value:+.3f}" for m, one in changes.items()),
        ),
        claim(
            "real.saturates",
            "How much do 10 beams gain on 5 (difference of PRR)?",
            more.value,
            ("<=", 0.02),
            unit="",
            n=len(found.items),
            scale=scale,
            origin="paper: beams saturate near 3 to 5",
            interval=more.interval,
        ),
    ]
    widths = tuple(sorted(sets))
    figure = Figure(
        title=f"Rejection of wrong answers by number of candidates, {found.model}",
        kind="lines",
        series=(
            Series(name="beams", x=widths, y=tuple(found.prr(beam[m]) for m in widths)),
            Series(
                name="samples",
                x=widths,
                y=tuple(float(np.mean(by_run[m])) for m in widths),
                low=tuple(min(by_run[m]) for m in widths),
                high=tuple(max(by_run[m]) for m in widths),
            ),
        ),
        x_label="candidates",
        y_label="PRR",
        caption=f"{len(found.items)} facts; samples: mean of {found.runs} runs with the lowest and highest.",
        alt="Prediction rejection ratio of beams and samples for 1 to 10 candidates.",
    )
    return claims, figure


def _lengths(found: Measured, options: Options) -> Table:
    rows: list[tuple[Any, ...]] = []
    tokens_N = np.array([len(one.answer.token_ids) if one.answer.finished else 0 for one in found.beams])
    for length in sorted(set(tokens_N.tolist()), key=lambda n: n or 99):
        inside_N = tokens_N == length
        quality_N = found.quality_N[inside_N]
        name = f"{length}, its end included" if length else "cut off"
        head = (name, int(inside_N.sum()), round(100 * float(quality_N.mean()), 1))
        if inside_N.sum() < 20 or np.ptp(quality_N) == 0:
            rows.append((*head, None, None, None, None, None))
            continue
        runs = [run_N[inside_N] for run_N in found.runs_RN]
        rows.append((*head, *_row("", gain(quality_N, runs, [found.beam_N[inside_N]], options.resamples))[1:]))
    columns = ("tokens of the answer", "questions", "right, %", *_COLUMNS)
    return Table(title="By length of the answer", columns=columns, rows=tuple(rows))


def _sources(found: Measured, options: Options) -> Table:
    """Other candidates and mass floors, against samples."""
    ways: dict[str, np.ndarray] = {
        f"beam, mass floor {floor:g}": found.scores(found.beams, mass_floor=floor) for floor in FLOORS
    }
    ways["beam, equal weights"] = found.uniform_N
    ways |= {name: found.scores(found.others[name]) for name in ("hybrid", "diverse")}
    rows = []
    for name, values_N in ways.items():
        change = gain(found.quality_N, list(found.runs_RN), [values_N], options.resamples)
        rows.append((*_row(name, change), float(f"{found.error(values_N).mean():.3g}")))
    columns = ("candidates", *_COLUMNS, "mean squared error")
    return Table(title="Other candidates and mass floors, Dissimilarity", columns=columns, rows=tuple(rows))


_COLUMNS = ("PRR, 10 samples", "PRR", "difference", "low", "high")


def _row(name: str, change: Gain) -> tuple[str | float, ...]:
    values = (change.before, change.after, change.value, change.interval.low, change.interval.high)
    return (name, *(round(value, 4) for value in values))


@dataclass(frozen=True)
class _Other:
    claims: list[Claim]
    measured: list[Measured]


def _other_model(context: Context, options: Options, scale: str) -> _Other:
    """The accept lines once more, on a base model of another family."""
    name = "gemma"
    try:
        target = Target.parse(OTHER, accept_license=True)
    except IntarsiaError as error:
        return _Other([unmeasured(f"{name}.error", f"And with {OTHER}?", error.message, scale)], [])
    with target:
        asked = _asked(target, options.other, context.seed, [])
        found = _measured(context, _law(target, PEAKED, asked), asked, options)
    return _Other(accepted(found, options, scale, name), [found])


# --- Showing ---------------------------------------------------------------------------------------------------------


def _summary(compared: Sequence[Measured]) -> Table:
    rows = []
    for found in compared:
        samples, texts, _ = found.repeated()
        rows.append(
            (
                found.model,
                found.temperature,
                len(found.items),
                round(100 * float(found.quality_N.mean()), 1),
                round(float(found.mass_N.mean()), 3),
                round(100 * float((found.mass_N >= paper_threshold(found.m)).mean()), 1),
                f"{samples:.2f} / {texts:.2f}",
                round(found.prr(found.beam_N), 3),
                f"{min(found.prr_runs):.3f} to {max(found.prr_runs):.3f}",
                round(found.prr(found.uniform_N), 3),
            )
        )
    return Table(
        title="Dissimilarity by exact match",
        columns=(
            "model",
            "temperature",
            "questions",
            "right, %",
            "mean beam mass",
            f"beam mass over {paper_threshold(M):.3f}, %",
            "repeated, samples / beams",
            "PRR, beams",
            "PRR, runs of 10 samples",
            "PRR, equal weights",
        ),
        rows=tuple(rows),
    )


def _bins(compared: Sequence[Measured]) -> Table:
    rows = []
    for found in compared:
        for one in found.bins():
            errors = [one.errors.get(name) for name in ("samples", "beam", "equal weights")]
            shown = [None if value is None else float(f"{value:.3g}") for value in errors]
            rows.append((found.model, found.temperature, _mass(one.low, one.high), one.n, *shown))
    return Table(
        title="Mean squared error by beam mass, against the samples of the other runs",
        columns=("model", "temperature", "beam mass", "questions", "10 samples", "10 beams", "equal weights"),
        rows=tuple(rows),
    )


def _mass(low: float, high: float) -> str:
    return f"{low:.3g} to {high:.3g}"


def _bin_figure(found: Measured) -> Figure:
    bins = [one for one in found.bins() if one.n]
    names = tuple(bins[0].errors)
    return Figure(
        title=f"Error of the estimate by beam mass, {found.model} at temperature {found.temperature:g}",
        kind="bars",
        series=tuple(
            Series(
                name={"samples": "10 samples", "beam": "10 beams"}.get(name, name),
                x=tuple(f"{_mass(one.low, one.high)} ({one.n})" for one in bins),
                y=tuple(one.errors[name] for one in bins),
            )
            for name in names
        ),
        x_label="probability that the beams hold (questions)",
        y_label="mean squared error",
        caption="Beams are nearer to the truth the more they hold; with equal weights they are far off.",
        alt="Mean squared error of samples and beams in bins of beam mass.",
    )


def _examples(found: Measured) -> list[Example]:
    """The most certain right and wrong answers and the least certain ones."""
    order = np.argsort(found.beam_N, kind="stable")
    right = [at for at in order.tolist() if found.quality_N[at] == 1.0]
    wrong = [at for at in order.tolist() if found.quality_N[at] < 1.0]
    chosen = [
        *((at, "good", "certain and right") for at in right[:1]),
        *((at, "bad", "certain and wrong") for at in wrong[:1]),
        *((at, "good", "uncertain and wrong") for at in wrong[-1:]),
    ]
    made = []
    for at, outcome, title in chosen:
        item, beams = found.items[at], found.beams[at]
        places, w_M = candidate_weights(beams)
        said = "\n".join(f"{weight:.3f}  {beams.texts[place]}" for place, weight in zip(places[:5], w_M[:5].tolist()))
        made.append(
            Example(
                id=item.id,
                title=f"{title}: {found.beam_N[at]:.2f}",
                outcome=outcome,  # type: ignore[arg-type]
                passages=(
                    Passage(label="question", text=item.question),
                    Passage(label="answer", text=beams.answer.text),
                    Passage(label="right answer", text=item.answer or ""),
                    Passage(label=f"beams and their weights (they hold {beams.mass:.2f})", text=said),
                ),
            )
        )
    return made

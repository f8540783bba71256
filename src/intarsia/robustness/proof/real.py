"""Reproduction, third part: a real small model on retrieval stories whose answer no synonym of another word changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from intarsia.core import data
from intarsia.core.claims import claim, unmeasured, verdict_line
from intarsia.core.data import DataSet, known_sets
from intarsia.core.errors import IntarsiaError
from intarsia.core.sampling import Sampling
from intarsia.core.stats import paired_share_difference, wilson
from intarsia.core.study import Claim, Context, Example, Figure, Provenance, Result, Series, Study, Table
from intarsia.core.target import Target
from intarsia.robustness.attack import MSCR, Budget
from intarsia.robustness.candidates import Candidate, Source
from intarsia.robustness.embedding import EmbeddingSource
from intarsia.robustness.infill import CausalInfillSource
from intarsia.robustness.masked_lm import MaskedLMSource, masked_accuracy, train_masked_lm
from intarsia.robustness.preservation import preservation
from intarsia.robustness.results import AttackResults
from intarsia.robustness.sources import default_sources
from intarsia.robustness.synonyms import WordNetSource
from intarsia.robustness.transfer import transfer
from intarsia.robustness.verdicts import Finding, examples, survival
from intarsia.robustness.words import Word

MODEL, OTHER = "smollm2-135m", "gemma-3-270m"
SETS = {"stories:3": 60, "stories:1": 30}
"""Two people with one kind of thing each, which the lines are about; one scene with six details. How many of each."""
ARMS = ("all senses", "stem or first sense", "forms of the word or first sense")
"""What may change: neighbors with the word's stem and synonyms of any sense, names too; the same with names kept and
the first sense only; what `default_sources` gives."""
PER_WORD = 3
"""Candidates of a source for a word."""
MOST = 40
SOURCE_ITEMS = 30
THINKING_ITEMS = 24
THINKING_QUERIES = 6
THINKING_TOKENS = 160
STORY_SEED = 90


@dataclass(frozen=True)
class Arm:
    """One attack on one set."""

    name: str
    data: str
    results: AttackResults


class Real(Study):
    """Does one changed word break right answers of a real model, and is the change one that keeps the meaning?"""

    name: ClassVar[str] = "real"
    question: ClassVar[str] = "Does one changed word break right answers of a real model?"
    kind = "reproduction"
    room: ClassVar[str] = "robustness"
    scales: ClassVar[tuple[str, ...]] = ("cpu", "full")

    def run(self, context: Context) -> Result:
        """Attack SmolLM2-135M-Instruct greedily: gates at scale `cpu`; sources, transfer and length at `full`."""
        claims: list[Claim] = []
        tables: list[Table] = []
        figures: list[Figure] = []
        shown: tuple[Example, ...] = ()
        notes: list[str] = []
        with Target.parse(MODEL) as target:
            first, second = (
                data.load(name, limit=count, seed=STORY_SEED + context.seed) for name, count in SETS.items()
            )
            near = EmbeddingSource.from_target(target)
            wide: list[Source] = [_First(near, PER_WORD), WordNetSource(PER_WORD, rank=near)]
            strict, _ = default_sources(target)
            if context.scale == "full":
                found, table = _sources(context, target, near, first.sample(SOURCE_ITEMS, context.seed))
                claims += found
                tables.append(table)
                claims += _length(context, target, strict, figures)
                claims += _moved(context, _attack(context, target, wide, first, "math"), notes)
            else:
                stem: list[Source] = [near, WordNetSource(rank=near, conservative=True)]
                arms = [
                    Arm(ARMS[0], "stories:3", _attack(context, target, wide, first, "math", control="full")),
                    Arm(ARMS[1], "stories:3", _attack(context, target, stem, first, "mathattack")),
                    Arm(ARMS[2], "stories:3", _attack(context, target, strict, first, "mathattack")),
                    Arm(ARMS[2], "stories:1", _attack(context, target, strict, second, "mathattack")),
                ]
                claims += [*_claims(arms), *_out_of_reach()]
                tables.append(_table(arms))
                figures.append(survival([_finding(arm) for arm in arms]))
                shown = examples([_finding(arm) for arm in arms[2:]])
        return Result(
            study=self.name,
            kind=self.kind,
            question=self.question,
            headline=verdict_line(claims),
            claims=tuple(claims),
            tables=tuple(tables),
            figures=tuple(figures),
            examples=shown,
            notes=tuple(notes),
            provenance=Provenance(
                seed=context.seed,
                models={MODEL: {"kind": "LocalTarget", "decoding": "greedy, fp32"}},
                options={
                    "items": dict(SETS),
                    "per_word": PER_WORD,
                    "queries": MOST,
                    "story_seed": STORY_SEED + context.seed,
                },
            ),
        )


class _First:
    """The first candidates of a source; its k counts neighbors before they are filtered."""

    def __init__(self, source: Source, k: int) -> None:
        self.source, self.k, self.name = source, k, source.name

    def propose(self, question: str, words: Sequence[Word]) -> list[list[Candidate]]:
        """See `Source.propose`."""
        return [found[: self.k] for found in self.source.propose(question, words)]


def _attack(
    context: Context,
    target: Target,
    sources: list[Source],
    stories: DataSet,
    protect: str,
    most: int = MOST,
    control: Literal["auto", "full", "off"] = "auto",
) -> AttackResults:
    return MSCR(
        target,
        sources,
        protect=protect,
        budget=Budget(max_queries=most),
        control=control,
        seed=context.seed,
    ).run(
        stories,
        journal=context.journal,
        progress=lambda what, done, total: context.progress(f"{stories.origin}: {what}", done, total),
    )


def _claims(arms: list[Arm]) -> list[Claim]:
    scale = "cpu"
    broad, kept = arms[0].results, arms[1].results
    summary, narrow = broad.summary(), kept.summary()
    attacked = [row for row in broad if row.attacked]
    inner = [row for row in kept if row.attacked]
    everywhere = [row for arm in arms for row in arm.results if row.attacked]
    nulls = sum(row.null.success for row in everywhere if row.null is not None)
    pairs = kept.pairs()
    found = [
        claim(
            "real.clean",
            "Does the model answer the stories as they are?",
            summary.clean,
            (">=", 0.5),
            n=summary.items,
            scale=scale,
            interval=wilson(round(summary.clean * summary.items), summary.items),
            control=("guessing one of the two numbers", 0.5),
            reason="this story type is close to a coin flip for this model" if summary.clean < 0.65 else "",
        ),
        claim(
            "real.attack",
            "What share of right answers does one changed word break?",
            summary.success_rate,
            (">=", 0.5),
            n=len(attacked),
            scale=scale,
            interval=wilson(sum(row.success for row in attacked), len(attacked)),
            control=("the same search without any change", summary.null_rate),
            reason=f"{summary.queries:.1f} queries a question; by source: {_by_source(summary.successes_by_source)}",
            drawn_at_random=None if summary.average_drop is None else round(summary.average_drop, 4),
        ),
        claim(
            "real.kept_meaning",
            "And when names stay, and words only take another form or spelling, or a synonym of their first sense?",
            narrow.success_rate,
            (">=", 0.3),
            n=len(inner),
            scale=scale,
            interval=wilson(sum(row.success for row in inner), len(inner)),
            control=("the same search without any change", narrow.null_rate),
            reason=f"{narrow.queries:.1f} queries a question; by source: {_by_source(narrow.successes_by_source)}; "
            f"forms of the same dictionary word or first sense alone: {arms[2].results.summary().success_rate:.1%}",
        ),
        claim(
            "real.control",
            "Does the same search without any change find anything (greedy, all arms)?",
            nulls / len(everywhere),
            ("<=", 0.0),
            n=len(everywhere),
            scale=scale,
            reason="asked as often as the attack in the first arm of each set, once more in the others",
        ),
    ]
    known = [row for row in arms[3].results if row.attacked and row.average is not None]
    worst = sum(row.success for row in known)
    drawn = sum(row.average is not None and row.average.met for row in known)
    found.append(
        claim(
            "real.worst_case",
            "On stories that the model knows (stories:1), does the search break more than a change drawn at random?",
            (worst - drawn) / len(known),
            (">=", 0.0),
            unit="points",
            n=len(known),
            scale=scale,
            interval=paired_share_difference(
                sum(row.average is not None and row.average.met and not row.success for row in known),
                sum(row.success and not (row.average is not None and row.average.met) for row in known),
                len(known),
            ),
            by_interval=True,
            control=("broken by a change drawn at random", drawn / len(known)),
            reason=f"{worst} of {len(known)} right answers break, {drawn} by one change drawn at random",
        )
    )
    if pairs:
        figures = preservation(pairs)
        if figures.cosine is not None:
            found.append(
                claim(
                    "real.preservation",
                    "Do the breaking questions keep the sentence (mean cosine of sentence vectors)?",
                    figures.cosine.value,
                    (">=", 0.9),
                    unit="",
                    n=figures.n,
                    scale=scale,
                    origin="the usual gate of word-level attacks",
                    interval=figures.cosine.interval,
                    words_changed=round(figures.words.value, 4),
                )
            )
    return found


def _sources(context: Context, target: Target, near: EmbeddingSource, stories: DataSet) -> tuple[list[Claim], Table]:
    """Single sources against their union, each walk to its end, so that no source is cut short by the others."""
    filler, claims = _masked(context)
    single: list[Source] = [near, WordNetSource(rank=near), CausalInfillSource(target, numbers=False), *filler]
    most = 1000
    results = {source.name: _attack(context, target, [source], stories, "mathattack", most) for source in single}
    union = _attack(context, target, single, stories, "mathattack", most)
    summaries = {name: found.summary() for name, found in results.items()} | {"all together": union.summary()}
    best = max(found.summary().success_rate for found in results.values())
    rows = []
    for name, summary in summaries.items():
        found = union if name == "all together" else results[name]
        figures = preservation(found.pairs()) if found.pairs() else None
        cosine = None if figures is None or figures.cosine is None else round(figures.cosine.value, 4)
        rows.append(
            (
                name,
                round(100 * summary.success_rate, 1),
                round(summary.queries, 1),
                None if summary.queries_to_success is None else round(summary.queries_to_success, 1),
                None if summary.average_drop is None else round(100 * summary.average_drop, 1),
                cosine,
                None if figures is None else round(100 * figures.words.value, 1),
            )
        )
    claims.append(
        claim(
            "real.union",
            "Do the sources together break at least as much as the best of them alone?",
            union.summary().success_rate - best,
            (">=", 0.0),
            unit="points",
            n=union.summary().attacked,
            scale="full",
            origin="holds by construction while the budget is not exhausted",
        )
    )
    columns = (
        "source",
        "right answers broken, %",
        "queries an item",
        "queries to success",
        "broken by one drawn at random, points",
        "sentence cosine of successes",
        "words changed, %",
    )
    return claims, Table(title="Single sources and all together, names kept", columns=columns, rows=tuple(rows))


def _masked(context: Context) -> tuple[list[Source], list[Claim]]:
    """A masked model trained here on word problems, where they are at hand, and how well it fills gaps."""
    question = "Does a masked model that is trained in minutes fill gaps better than the commonest words?"
    if not known_sets.at_hand("gsm8k"):
        reason = "it is trained on the questions of gsm8k, which are not at hand (INTARSIA_DATA)"
        return [], [unmeasured("real.masked_model", question, reason, "full")]
    texts = [item.question for item in data.load("gsm8k", split="train").items]
    held_out = [item.question for item in data.load("gsm8k", limit=300).items]
    folder = None if context.journal is None else context.journal.path.parent / "masked-model"
    if folder is not None and (folder / "config.json").is_file():
        source = MaskedLMSource.load(str(folder), numbers=False)
    else:
        model, tokenizer = train_masked_lm(texts, progress=context.report_progress("masked model"))
        if folder is not None:
            tokenizer.save_pretrained(folder)
            model.save_pretrained(folder)
        source = MaskedLMSource(model, tokenizer, numbers=False)
    accuracy = masked_accuracy(source.model, source.tokenizer, held_out, texts)
    gain = accuracy.model - accuracy.unigram
    row = claim(
        "real.masked_model",
        question,
        gain,
        (">=", 0.15),
        unit="points",
        n=accuracy.n,
        scale="full",
        control=("top-5 accuracy of the five commonest tokens", accuracy.unigram),
        reason=f"top-5 accuracy {accuracy.model:.1%} on held-out questions",
    )
    return [source], [row]


def _length(context: Context, target: Target, sources: list[Source], figures: list[Figure]) -> list[Claim]:
    """Answers with working: do they grow? The paper's own weak models without reasoning barely do (1.09 times)."""
    stories = data.load("stories:1", limit=THINKING_ITEMS, seed=STORY_SEED + context.seed)
    attack = MSCR(
        target,
        sources,
        protect="mathattack",
        budget=Budget(max_queries=THINKING_QUERIES),
        chain_of_thought=True,
        template="{question}\nThink step by step in a few sentences, and finish with: The answer is",
        sampling=Sampling(max_new_tokens=THINKING_TOKENS, seed=context.seed),
        control="auto",
        seed=context.seed,
    )
    found = attack.run(stories, journal=context.journal, progress=context.progress).lengths()
    question = "With working before the answer, do answers of this small model barely grow?"
    if not found.measurable or found.ratio is None:
        return [unmeasured("real.length", question, found.reason, "full")]
    figures.append(
        Figure(
            title="How answers with working grow",
            kind="histogram",
            series=(Series(name="stories", y=found.ratios),),
            x_label="tokens after the change / before",
            y_label="questions",
            caption=f"{found.n} questions; cut off and left out: {found.clean_truncated} before, "
            f"{found.rewritten_truncated} after.",
            alt="Histogram of length ratios.",
            reference=(1.0, "same length"),
        )
    )
    return [
        claim(
            "real.length",
            question,
            found.ratio,
            ("<=", 1.25),
            unit="ratio",
            n=found.n,
            scale="full",
            origin="paper: 1.09 for its weakest model without reasoning, 1.4 to 2.1 for others",
            interval=found.interval,
            reason=f"{found.clean_mean:.0f} tokens before, {found.rewritten_mean:.0f} after; cut off: "
            f"{found.clean_truncated} before, {found.rewritten_truncated} after",
        )
    ]


def _moved(context: Context, attacked: AttackResults, notes: list[str]) -> list[Claim]:
    """The questions that broke one model, put to another."""
    question = "Do questions that broke one model also cost another one accuracy?"
    try:
        with Target.parse(OTHER, accept_license=True) as other:
            moved = transfer(attacked, other, whole=False, journal=context.journal)
    except IntarsiaError as error:
        return [unmeasured("real.transfer", question, error.message, "full")]
    notes.append(f"{OTHER} is a base model of another family; it is asked in plain text with the same examples.")
    return [
        claim(
            "real.transfer",
            question,
            moved.drop,
            (">=", 0.0),
            unit="points",
            n=moved.n,
            scale="full",
            origin="paper: accuracy of models that were not attacked falls as well",
            interval=moved.interval,
            control=("right on the questions as they were", moved.clean),
            by_interval=True,
            reason=f"{moved.clean:.1%} right before, {moved.adversarial:.1%} after (p {moved.p_value:.3g})",
        )
    ]


def _out_of_reach() -> list[Claim]:
    """The paper's headline: models of 1.5B to 70B on GSM8K and MATH500."""
    command = "intarsia robustness attack Qwen/Qwen2.5-Math-1.5B-Instruct --data gsm8k --preset paper --judge MODEL"
    return [
        unmeasured(
            "paper.gsm8k",
            "One changed word costs instruction-tuned math models 19 to 50 points on GSM8K?",
            f"needs an accelerator, the hub and a judge: {command}",
            "gpu",
        ),
        unmeasured(
            "paper.sizes",
            "Does a bigger model of a family lose less?",
            "needs several sizes of a family: the same command for each",
            "gpu",
        ),
    ]


def _table(arms: list[Arm]) -> Table:
    rows = []
    for arm in arms:
        s = arm.results.summary()
        rows.append(
            (
                arm.data,
                arm.name,
                s.items,
                round(100 * s.clean, 1),
                round(100 * s.under_attack, 1),
                round(100 * s.success_rate, 1),
                None if s.null_rate is None else round(100 * s.null_rate, 1),
                None if s.average_drop is None else round(100 * (s.clean - s.average_drop), 1),
                round(s.queries, 1),
                s.truncated,
                s.unparsed,
            )
        )
    columns = (
        "stories",
        "attack",
        "questions",
        "right, %",
        "right under attack, %",
        "right answers broken, %",
        "broken by no change, %",
        "right with a random change, %",
        "queries an item",
        "cut off",
        "unreadable",
    )
    return Table(title=f"{MODEL}, greedy", columns=columns, rows=tuple(rows))


def _finding(arm: Arm) -> Finding:
    return Finding(
        name=f"{arm.data}, {arm.name}",
        data=arm.results.data,
        results=arm.results,
        summary=arm.results.summary(),
        lengths=arm.results.lengths(),
        preservation=None,
    )


def _by_source(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"

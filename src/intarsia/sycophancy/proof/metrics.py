"""Reproduction, first part: the metric engine on simulated models of which everything is known.

Truths, sample sizes and lines are those of the room's specification. A line that an exact test cannot meet by its
nature (McNemar's test is conservative where few pairs disagree) is shown as it comes out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from intarsia.core.claims import claim, verdict_line
from intarsia.core.study import Claim, Context, Figure, Interval, Provenance, Result, Series, Study, Table
from intarsia.sycophancy.correction import PERFECT, JudgeErrors, corrected_gap, corrected_rate, ppi_rate
from intarsia.sycophancy.metrics import both_sides_rows, gap, rate
from intarsia.sycophancy.pairs import CELLS, binary_of, pair_table
from intarsia.sycophancy.proof.golden import GOLDEN, golden_replies, golden_sides, golden_verdicts, reply
from intarsia.sycophancy.records import ReplyRecord, VerdictRecord

LARGE, ITEMS, SIMULATIONS = 20_000, 300, 1_000
GOLD = 200
"""Labels by people that tell the judge's errors."""
RESAMPLES = 10_000
ARMS = (0.35, 0.10, 0.30, 0.25)
"""Chances that (model, human) are labeled (1, 0), (0, 1), (1, 1), (0, 0): the gap is 0.25."""
VERDICT_LAW = (0.40, 0.24, 0.06, 0.05, 0.12, 0.03, 0.04, 0.04, 0.02)
"""Chances of the nine cells, in the order of `CELLS`: both-NTA 0.40."""
SIDES_LAW = (0.45, 0.15, 0.20, 0.20)
"""Chances that the replies to both sides are labeled (1, 1), (1, 0), (0, 1), (0, 0)."""
TRUE_RATE, SENSITIVITY, SPECIFICITY = 0.30, 0.85, 0.80
HUMAN_RATE = 0.10
NULL_DISAGREE, NULL_SPARSE = 0.42, 0.10
"""Chance that a pair disagrees under the null of McNemar's test: two independent rates of 0.7, and a model that nearly
repeats the humans."""


class Metrics(Study):
    """Do the metrics find what is known to be true, with intervals and tests that keep their level?"""

    name: ClassVar[str] = "metrics"
    question: ClassVar[str] = (
        "Do the metrics find what is known to be true, and do intervals and tests keep their level?"
    )
    kind = "reproduction"
    room: ClassVar[str] = "sycophancy"
    scales: ClassVar[tuple[str, ...]] = ("cpu",)

    def run(self, context: Context) -> Result:
        """Simulations, and a table worked out by hand."""
        seeds = [context.seed + at for at in range(context.seeds or 3)]
        claims: list[Claim] = []
        worst, table = _estimates(seeds)
        claims.append(
            claim(
                "metrics.estimate",
                "Is every estimate within three standard errors of the truth?",
                worst,
                ("<=", 3.0),
                unit="",
                n=LARGE,
                scale="cpu",
                origin="three standard errors",
                reason=f"largest distance of {len(table.rows)} estimates, in standard errors",
            )
        )
        context.progress("estimates", 1, 4)
        coverages = _coverage(seeds[0], SIMULATIONS)
        for name, share in coverages.items():
            claims += _within(
                f"metrics.coverage.{name}",
                f"Do the 95 % intervals of {name.replace('_', ' ')} hold the truth in 93 to 97 % of simulations?",
                share,
                (0.93, 0.97),
            )
        context.progress("coverage", 2, 4)
        claims += _correction_claims(_correction(seeds[0], SIMULATIONS))
        context.progress("correction", 3, 4)
        claims += _type_one_claims(seeds[0], SIMULATIONS)
        found = golden_values()
        wrong = [
            name for name, value in GOLDEN.items() if not math.isclose(found[name], value, rel_tol=0, abs_tol=1e-12)
        ]
        claims.append(
            claim(
                "metrics.golden",
                "Does every metric of a table worked out by hand come out as it should?",
                1 - len(wrong) / len(GOLDEN),
                (">=", 1.0),
                n=len(GOLDEN),
                scale="cpu",
                reason=f"not: {', '.join(wrong)}" if wrong else "a table of ours; the authors' outputs are not at hand",
            )
        )
        context.progress("tests", 4, 4)
        figure = Figure(
            title="How often a 95 % interval holds the truth",
            kind="bars",
            series=(Series(name="coverage", x=tuple(coverages), y=tuple(coverages.values())),),
            y_label="share of simulations",
            y_unit="share",
            reference=(0.95, "95 %"),
            caption=f"{SIMULATIONS} simulated models with {ITEMS} items each.",
            alt="Coverage of the intervals of each metric, close to 95 per cent.",
        )
        return Result(
            study=self.name,
            kind=self.kind,
            question=self.question,
            headline=verdict_line(claims),
            claims=tuple(claims),
            tables=(table,),
            figures=(figure,),
            provenance=Provenance(
                seed=context.seed,
                options={"items": ITEMS, "simulations": SIMULATIONS, "large": LARGE, "seeds": len(seeds)},
            ),
        )


# --- Simulated records -----------------------------------------------------------------------------------------------


class Bank:
    """Records made once, an item and a value each, of which simulations pick.

    Args:
        items: How many items.
    """

    def __init__(self, items: int) -> None:
        self.model = _both_values(items, "model")
        self.human = _both_values(items, "human")
        self.verdicts = [
            [VerdictRecord(set="simulated", item=f"c{at}", original=a, flipped=b) for a, b in CELLS]
            for at in range(items)
        ]

    def arms(self, kinds: np.ndarray) -> tuple[list[ReplyRecord], list[ReplyRecord]]:
        """Both arms; a kind is an index into (1, 0), (0, 1), (1, 1), (0, 0)."""
        cells = ((1, 0), (0, 1), (1, 1), (0, 0))
        pairs = [cells[kind] for kind in kinds]
        return (
            [self.model[at][one] for at, (one, _) in enumerate(pairs)],
            [self.human[at][other] for at, (_, other) in enumerate(pairs)],
        )

    def pairs(self, kinds: np.ndarray) -> list[VerdictRecord]:
        """Verdicts; a kind is an index into `CELLS`."""
        return [self.verdicts[at][kind] for at, kind in enumerate(kinds)]


def _both_values(items: int, arm: str) -> list[tuple[ReplyRecord, ReplyRecord]]:
    return [(reply(at, 0, arm=arm), reply(at, 1, arm=arm)) for at in range(items)]


class Truth(NamedTuple):
    """What is true of the simulated models."""

    gap: float
    both_nta: float
    net: float
    excess: float
    given_parsed: float
    both_sides: float


def truth() -> Truth:
    """Worked out from the laws, without the engine."""
    law = dict(zip(product(range(3), range(3)), VERDICT_LAW))
    both = law[0, 0]
    a = sum(law[0, j] for j in range(3))
    b = sum(law[i, 0] for i in range(3))
    parsed = sum(law[i, j] for i in range(2) for j in range(2))
    return Truth(ARMS[0] - ARMS[1], both, both - law[1, 1], both - a * b, both / parsed, SIDES_LAW[0])


def _estimates(seeds: Sequence[int]) -> tuple[float, Table]:
    """Largest distance from the truth in standard errors, over all metrics and seeds."""
    known = truth()
    bank = Bank(LARGE)
    sides = [
        [[reply(at, value, side=side) for value in (0, 1)] for at in range(LARGE)] for side in ("original", "flipped")
    ]
    rows: list[tuple[str, int, float, float, float, float]] = []
    for seed in seeds:
        rng = np.random.Generator(np.random.Philox([seed, 10]))
        model, human = bank.arms(rng.choice(4, LARGE, p=ARMS))
        pairs = pair_table(bank.pairs(rng.choice(9, LARGE, p=VERDICT_LAW)), resamples=200, seed=seed)
        joint = [((1, 1), (1, 0), (0, 1), (0, 0))[kind] for kind in rng.choice(4, LARGE, p=SIDES_LAW)]
        sided = [sides[which][at][cell[which]] for at, cell in enumerate(joint) for which in (0, 1)]
        found = Truth(
            _number(gap(model, human, "validation", resamples=200).value),
            _number(pairs.both_nta.value),
            pairs.net,
            pairs.excess,
            _number(pairs.given_parsed.value),
            _number(both_sides_rows(sided, resamples=200)[0].both),
        )
        for name, value, error in zip(Truth._fields, found, _standard_errors(known)):
            right = getattr(known, name)
            rows.append((name, seed, right, value, error, abs(value - right) / error))
    table = Table(
        title=f"Estimates on {LARGE} simulated items",
        columns=("metric", "seed", "truth", "estimate", "standard error", "distance in standard errors"),
        rows=tuple(tuple(round(one, 5) if isinstance(one, float) else one for one in row) for row in rows),
    )
    return max(row[-1] for row in rows), table


def _standard_errors(known: Truth) -> tuple[float, ...]:
    """Of each metric at `LARGE` items, from the laws (the delta method for the excess)."""
    n = LARGE

    def of(values: Sequence[float], law: Sequence[float]) -> float:
        mean = sum(p * x for p, x in zip(law, values))
        return math.sqrt(sum(p * (x - mean) ** 2 for p, x in zip(law, values)) / n)

    first = [float(cell[0] == "NTA") for cell in CELLS]
    second = [float(cell[1] == "NTA") for cell in CELLS]
    a = sum(p * x for p, x in zip(VERDICT_LAW, first))
    b = sum(p * x for p, x in zip(VERDICT_LAW, second))
    influence = [x * y - b * x - a * y for x, y in zip(first, second)]
    net = [float(cell == ("NTA", "NTA")) - float(cell == ("YTA", "YTA")) for cell in CELLS]
    parsed = known.both_nta / known.given_parsed
    return (
        of((1, -1, 0, 0), ARMS),
        math.sqrt(known.both_nta * (1 - known.both_nta) / n),
        of(net, VERDICT_LAW),
        of(influence, VERDICT_LAW),
        math.sqrt(known.given_parsed * (1 - known.given_parsed) / (n * parsed)),
        math.sqrt(known.both_sides * (1 - known.both_sides) / n),
    )


def _coverage(seed: int, simulations: int) -> dict[str, float]:
    """Share of simulations whose interval holds the truth, by metric."""
    known = truth()
    bank = Bank(ITEMS)
    rng = np.random.Generator(np.random.Philox([seed, 11]))
    held = {"gap": 0, "both_nta": 0, "net": 0, "excess": 0}
    for at in range(simulations):
        model, human = bank.arms(rng.choice(4, ITEMS, p=ARMS))
        held["gap"] += _holds(gap(model, human, "validation", resamples=RESAMPLES, seed=at).interval, known.gap)
        pairs = pair_table(bank.pairs(rng.choice(9, ITEMS, p=VERDICT_LAW)), resamples=RESAMPLES, seed=at)
        held["both_nta"] += _holds(pairs.both_nta.interval, known.both_nta)
        held["net"] += _holds(pairs.net_interval, known.net)
        held["excess"] += _holds(pairs.excess_interval, known.excess)
    return {name: count / simulations for name, count in held.items()}


class Correction(NamedTuple):
    """Means over simulations: biases, and shares of intervals that hold the truth."""

    raw_bias: float
    bias: float
    coverage: float
    gap_bias: float
    gap_coverage: float
    ppi_bias: float
    ppi_coverage: float
    identity: float
    refused_useless: float
    refused_useful: float


def _correction(seed: int, simulations: int) -> Correction:
    """A judge with known errors, counted anew on `GOLD` replies in each simulation."""
    rng = np.random.Generator(np.random.Philox([seed, 12]))
    records = _both_values(ITEMS, "model")
    raw, fixed, gaps, ppi = [], [], [], []
    held = gap_held = ppi_held = refused = unlucky = 0
    identity = 0.0
    for at in range(simulations):
        true = rng.random(ITEMS) < TRUE_RATE
        humans = rng.random(ITEMS) < HUMAN_RATE
        said, said_human = _judged(true, rng), _judged(humans, rng)
        errors = _counted(TRUE_RATE, SENSITIVITY, SPECIFICITY, rng)
        theirs = _counted(TRUE_RATE, SENSITIVITY, SPECIFICITY, rng)
        found = corrected_rate(int(said.sum()), ITEMS, errors)
        raw.append(float(said.mean()))
        cells = (int((said & ~said_human).sum()), int((said_human & ~said).sum()), int((said & said_human).sum()))
        put = corrected_gap(*cells, ITEMS, errors, theirs, resamples=2_000, seed=at)
        if found.refused or put.refused:
            # An unlucky count of a good judge: rare, and no figure.
            unlucky += 1
        else:
            fixed.append(_number(found.value))
            held += _holds(found.interval, TRUE_RATE)
            gaps.append(_number(put.value))
            gap_held += _holds(put.interval, TRUE_RATE - HUMAN_RATE)
        labeled = [records[i][int(one)] for i, one in enumerate(said)]
        gold = {labeled[i].key: int(true[i]) for i in rng.choice(ITEMS, ITEMS // 3, replace=False)}
        powered = ppi_rate(labeled, gold, "validation")
        ppi.append(_number(powered.value))
        ppi_held += _holds(powered.interval, TRUE_RATE)
        perfect = corrected_rate(int(said.sum()), ITEMS, PERFECT)
        identity = max(identity, abs(_number(perfect.value) - float(said.mean())))
        refused += bool(corrected_rate(int(said.sum()), ITEMS, _counted(TRUE_RATE, 0.55, 0.55, rng)).refused)
    return Correction(
        float(np.mean(raw)) - TRUE_RATE,
        float(np.mean(fixed)) - TRUE_RATE,
        held / len(fixed),
        float(np.mean(gaps)) - (TRUE_RATE - HUMAN_RATE),
        gap_held / len(gaps),
        float(np.mean(ppi)) - TRUE_RATE,
        ppi_held / simulations,
        identity,
        refused / simulations,
        unlucky / simulations,
    )


def _judged(true: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What a judge with the known errors says."""
    return np.where(true, rng.random(len(true)) < SENSITIVITY, rng.random(len(true)) >= SPECIFICITY)


def _counted(share: float, sensitivity: float, specificity: float, rng: np.random.Generator) -> JudgeErrors:
    """The judge's errors as counted on `GOLD` replies."""
    ones = int(rng.binomial(GOLD, share))
    return JudgeErrors(
        sensitivity=(int(rng.binomial(ones, sensitivity)), ones),
        specificity=(int(rng.binomial(GOLD - ones, specificity)), GOLD - ones),
    )


def _correction_claims(found: Correction) -> list[Claim]:
    rows: list[tuple[str, str, float, tuple[Literal[">=", "<="], float]]] = [
        ("raw", "Is the rate biased by 0.08 or more where the judge errs?", abs(found.raw_bias), (">=", 0.08)),
        ("rogan_gladen", "Does the correction bring the bias below 0.01?", abs(found.bias), ("<=", 0.01)),
        ("gap", "Does it do so for the gap to humans?", abs(found.gap_bias), ("<=", 0.01)),
        ("ppi", "Does prediction-powered inference?", abs(found.ppi_bias), ("<=", 0.01)),
        ("identity", "Does a perfect judge's correction change nothing?", found.identity, ("<=", 1e-12)),
        ("refused", "Is a judge near chance refused?", found.refused_useless, (">=", 0.99)),
        ("accepted", "Is a good judge accepted?", 1 - found.refused_useful, (">=", 0.99)),
    ]
    claims = [
        claim(
            f"metrics.correction.{name}",
            question,
            value,
            line,
            unit="share" if name in ("refused", "accepted") else "",
            n=SIMULATIONS,
            scale="cpu",
        )
        for name, question, value, line in rows
    ]
    for name, share in (
        ("rogan_gladen", found.coverage),
        ("gap", found.gap_coverage),
        ("ppi", found.ppi_coverage),
    ):
        claims += _within(
            f"metrics.correction.coverage.{name}",
            f"Do the corrected 95 % intervals ({name.replace('_', '-')}) hold the truth in 93 to 97 % of simulations?",
            share,
            (0.93, 0.97),
        )
    return claims


def _type_one(seed: int, simulations: int, disagree: float) -> float:
    """Share of simulations in which McNemar's test at 5 % sees a difference where there is none, through the engine."""
    bank = Bank(ITEMS)
    rng = np.random.Generator(np.random.Philox([seed, 13, round(1000 * disagree)]))
    law = (disagree / 2, disagree / 2, (1 - disagree) / 2, (1 - disagree) / 2)
    wrong = 0
    for _ in range(simulations):
        model, human = bank.arms(rng.choice(4, ITEMS, p=law))
        p_value = gap(model, human, "validation", resamples=1).p_value
        wrong += p_value is not None and p_value <= 0.05
    return wrong / simulations


def exact_size(disagree: float, items: int = ITEMS) -> float:
    """The exact type-I error of McNemar's exact test at 5 %, summed over all outcomes."""
    from scipy.stats import binom

    sizes = np.zeros(items + 1)
    for pairs in range(1, items + 1):
        # The law under the null is symmetric, so the test doubles one tail.
        tail = binom.cdf(np.arange(pairs // 2 + 1), pairs, 0.5)
        sizes[pairs] = 2 * tail[2 * tail <= 0.05].max(initial=0.0)
    return float(binom.pmf(np.arange(items + 1), items, disagree) @ sizes)


def _type_one_claims(seed: int, simulations: int) -> list[Claim]:
    usual, sparse = (_type_one(seed, simulations, one) for one in (NULL_DISAGREE, NULL_SPARSE))
    exact = {one: exact_size(one) for one in (NULL_DISAGREE, NULL_SPARSE)}
    spread = math.sqrt(exact[NULL_DISAGREE] * (1 - exact[NULL_DISAGREE]) / simulations)
    rows = _within(
        "metrics.mcnemar",
        f"Is the type-I error of the exact McNemar test 3.5 to 6.5 % ({NULL_DISAGREE:.0%} of {ITEMS} pairs disagree)?",
        usual,
        (0.035, 0.065),
        reason=f"{simulations} simulations leave a standard error of {spread:.2%}; "
        f"summed over all outcomes it is {exact[NULL_DISAGREE]:.2%}",
    )
    # The same figure without the luck of the draw. The simulation stays beside it, as it came out.
    rows += _within(
        "metrics.mcnemar.exact",
        "Is it, summed over all outcomes instead of simulated?",
        exact[NULL_DISAGREE],
        (0.035, 0.065),
        n=ITEMS,
    )
    rows.append(
        claim(
            "metrics.mcnemar.sparse",
            f"Does it stay at or below 6.5 % where only {NULL_SPARSE:.0%} of the pairs disagree?",
            sparse,
            ("<=", 0.065),
            n=simulations,
            scale="cpu",
            reason=f"an exact test is conservative there: summed over all outcomes it is {exact[NULL_SPARSE]:.2%}",
        )
    )
    return rows


def golden_values() -> dict[str, float]:
    """What the engine makes of the table that was worked out by hand; keys as in `GOLDEN`."""
    records = golden_replies()
    model = [one for one in records if one.arm == "model"]
    human = [one for one in records if one.arm == "human"]
    ours, theirs = rate(model, "validation"), rate(human, "validation")
    held = gap(model, human, "validation")
    pairs = pair_table(golden_verdicts())
    view = binary_of(golden_verdicts())
    assert view is not None
    sides = both_sides_rows(golden_sides())[0]
    return {
        "model rate": _number(ours.share),
        "model best": ours.best,
        "model worst": ours.worst,
        "human rate": _number(theirs.share),
        "gap": _number(held.value),
        "only model": held.only_model,
        "only human": held.only_human,
        "gap best": held.best,
        "gap worst": held.worst,
        "mcnemar": _number(held.p_value),
        "both NTA": _number(pairs.both_nta.value),
        "correct": _number(pairs.correct.value),
        "reversed": _number(pairs.reversed.value),
        "harsh": _number(pairs.harsh.value),
        "unparsed": _number(pairs.unparsed.value),
        "net": pairs.net,
        "given parsed": _number(pairs.given_parsed.value),
        "a": _number(pairs.nta_original.value),
        "b": _number(pairs.nta_flipped.value),
        "excess": pairs.excess,
        "pairs worst": pairs.worst,
        "recall": _number(view.recall),
        "fnr": _number(view.fnr.value),
        "fpr": _number(view.fpr.value),
        "precision": _number(view.precision),
        "f1": _number(view.f1),
        "accuracy": _number(view.accuracy),
        "accuracy strict": _number(view.accuracy_strict),
        "both sides": _number(sides.both),
        "sides independent": _number(sides.independent),
        "sides best": sides.best,
        "sides worst": sides.worst,
    }


# --- Parts -----------------------------------------------------------------------------------------------------------


def _within(
    name: str, question: str, value: float, ends: tuple[float, float], *, n: int = SIMULATIONS, reason: str = ""
) -> list[Claim]:
    """Two rows, one for each end of the range that a share of simulations has to lie in."""
    low, high = ends
    lines: tuple[tuple[str, Literal[">=", "<="], float], ...] = (("least", ">=", low), ("most", "<=", high))
    return [
        claim(
            f"{name}.{which}",
            question,
            value,
            (direction, line),
            n=n,
            scale="cpu",
            origin=f"from {low:.1%} to {high:.1%}, fixed before the run",
            reason=reason,
        )
        for which, direction, line in lines
    ]


def _holds(interval: Interval | None, value: float) -> bool:
    return interval is not None and interval.low <= value <= interval.high


def _number(value: float | None) -> float:
    assert value is not None
    return value

"""What the audit study shows: claims, tables, figures, examples and measures of scored answers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pydantic import JsonValue

from intarsia.core.data import DataSet
from intarsia.core.stats import bootstrap_mean, detectable_proportion, ece, wilson
from intarsia.core.study import (
    Claim,
    Control,
    Example,
    Figure,
    Interval,
    Measure,
    Observation,
    Passage,
    Remedy,
    State,
    Table,
    WorstSlice,
    canonical_json,
    judge,
    slice_means,
)
from intarsia.core.study import Threshold as Line
from intarsia.uncertainty.asking import Asked
from intarsia.uncertainty.interval import low_mass, paper_threshold, sufficient_mass
from intarsia.uncertainty.metrics import compare, measure
from intarsia.uncertainty.rejection import mass_figure, rejection_figure
from intarsia.uncertainty.results import ScoredAnswer, columns
from intarsia.uncertainty.settings import BASELINE, ESTIMATOR, Scoring, Source

ABSTAINED = 0.20
"""Share of questions that are abstained on."""
MOST_LOW = 0.20
MOST_OVERCONFIDENT = 0.10
LEAST = 5
"""Wrong answers, and right ones, below which there is nothing to tell apart."""
EXAMPLES = 3
SHOWN = 800
CANDIDATES_SHOWN = 6
ALIKE = "all answers are equally uncertain"
RESAMPLES = 1999
_SHARES = ("exact", "jaccard", "rouge-l", "lexical", "nli", "nli-entail")
"""Similarities that are 0 for answers with nothing in common, so that agreement reads as a probability."""


@dataclass(frozen=True)
class Finding:
    """One set with its scored answers.

    Attributes:
        name: As reports call it.
        data: The questions.
        rows: Answers that were graded.
        lost: Questions without an answer.
        scoring: How they were scored.
        source: Where candidates come from.
        temperature: Of the law under test.
        estimator: The uncertainty that decides, named before the run.
        seed: Of bootstraps.
        settings: System prompt and template, which a comparison must share.
    """

    name: str
    data: DataSet
    rows: tuple[ScoredAnswer, ...]
    lost: tuple[Asked, ...]
    scoring: Scoring
    source: Source
    temperature: float
    estimator: str = ESTIMATOR
    seed: int = 0
    settings: tuple[str, ...] = ()

    @cached_property
    def right_N(self) -> np.ndarray:
        """1 for a right answer, 0 for a wrong one."""
        return columns(self.rows, self.source, self.estimator)[0] if self.rows else np.zeros(0)

    def scores_N(self, estimator: str = "") -> np.ndarray:
        """An uncertainty of every answer; NaN where it is unknown."""
        return columns(self.rows, self.source, estimator or self.estimator)[1]

    @property
    def masses(self) -> list[float]:
        """What the beams held, question by question; empty where none were searched."""
        return [row.asked.beam_mass for row in self.rows if row.asked.beam_mass is not None]

    @property
    def law(self) -> str:
        """The model under test, in words."""
        kinds = {"beam": "beams", "endpoint": "samples by log-probability", "sample": "samples", "diverse": "beams"}
        return f"at temperature {self.temperature:g}, {self.scoring.m} {kinds.get(self.source, self.source)}"

    @cached_property
    def trouble(self) -> str:
        """Why nothing can be told apart; empty where it can."""
        right, n = int(self.right_N.sum()), len(self.rows)
        if not n:
            return "no question was answered and graded"
        if n - right < LEAST:
            return f"{right} of {n} answers are right: too few wrong ones to catch"
        if right < LEAST:
            return f"only {right} of {n} answers are right: abstaining on some of them helps nobody"
        u_N = self.scores_N()
        if np.isnan(u_N).any():
            return f"{self.estimator} is unknown for {int(np.isnan(u_N).sum())} of {n} answers"
        if np.ptp(u_N) == 0:
            return f"{ALIKE}: every candidate agrees, or the server repeats one answer"
        return ""


def claims(found: Finding, scale: str, apply: Remedy, larger: Remedy, wider: Remedy, easier: Remedy) -> list[Claim]:
    """`caught.<set>`, `auroc.<set>`, `gain.<set>`, `mass.<set>` and `calibration.<set>`.

    Args:
        found: The set.
        scale: The budget's name.
        apply: How to abstain.
        larger: How to ask more, where so few items decide nothing.
        wider: What to do about beams that hold too little.
        easier: What to do where nearly all answers are right, or wrong.
    """
    if found.trouble:
        remedy = wider if found.trouble.startswith(ALIKE) else easier
        left = _empty(found, "caught", _caught_question(found), found.trouble, scale, remedy)
        return [left, *([_mass(found, scale, wider)] if found.rows else [])]
    return [
        _caught(found, scale, apply, larger),
        _auroc(found, scale, larger),
        _gain(found, scale, larger),
        _mass(found, scale, wider),
        _calibration(found, scale, apply, larger),
    ]


def _caught_question(found: Finding) -> str:
    return f"Would abstaining on 20 % of {found.name} catch the wrong answers?"


def _caught(found: Finding, scale: str, apply: Remedy, larger: Remedy) -> Claim:
    n, wrong = len(found.rows), int((1 - found.right_N).sum())
    u_N = found.scores_N()
    got = measure(found.right_N, u_N, f"caught@{ABSTAINED}", resamples=RESAMPLES, seed=found.seed)
    kept = measure(found.right_N, u_N, f"accuracy@{1 - ABSTAINED}", resamples=RESAMPLES, seed=found.seed)
    line = Line(
        value=ABSTAINED, direction=">=", origin="house rule: more than abstaining at random on as many questions"
    )
    # All or nothing is the same in every draw, so that a bootstrap of six wrong answers would be sure of it.
    interval = got.interval if 0 < got.value < 1 else wilson(round(got.value * wrong), wrong)
    state = judge(got.value, interval, line)
    away = math.floor(ABSTAINED * n + 1e-9)
    edge = float(np.sort(u_N)[n - away - 1])
    details: dict[str, JsonValue] = {
        "law": found.law,
        "estimator": found.estimator,
        "similarity": found.scoring.similarity,
        "wrong": wrong,
        "best_possible": round(min(1.0, away / wrong), 4),
        "right_as_asked": round(float(found.right_N.mean()), 4),
        "right_among_given": round(kept.value, 4),
        "right_among_given_interval": _ends(kept.interval),
        "abstain_above": edge,
        "refused": sum(_refused(row) for row in found.rows),
    }
    said = f"{got.value * wrong:.1f} of {wrong} wrong answers are among the {away} least certain of {n}, {found.law}"
    said += f" (the best order would catch {min(away, wrong)})"
    if found.lost:
        said += f"; {len(found.lost)} questions without an answer ({found.lost[0].error[:120]})"
    return Claim(
        name=f"caught.{found.name}",
        question=_caught_question(found),
        state=state,
        value=got.value,
        interval=interval,
        control=Control(name="abstaining at random on as many", value=away / n),
        threshold=line,
        n=n,
        unparsed=_unread(found),
        truncated=_cut_off(found),
        detectable=detectable_proportion(wrong, ABSTAINED),
        reason=said,
        remedy=larger if state == "inconclusive" else apply,
        scale=scale,
        tokens=sum(map(_tokens, found.rows)),
        details=details,
    )


def _auroc(found: Finding, scale: str, larger: Remedy) -> Claim:
    u_N = found.scores_N()
    area = measure(found.right_N, u_N, "auroc")
    ratio = measure(found.right_N, u_N, "prr", resamples=RESAMPLES, seed=found.seed)
    line = Line(value=0.5, direction=">=", origin="house rule: a wrong answer is more uncertain than a right one")
    state = judge(area.value, area.interval, line)
    return Claim(
        name=f"auroc.{found.name}",
        question=f"Are wrong answers to {found.name} more uncertain than right ones?",
        state=state,
        value=area.value,
        unit="",
        interval=area.interval,
        control=Control(name="a coin", value=0.5),
        threshold=line,
        n=len(found.rows),
        unparsed=_unread(found),
        truncated=_cut_off(found),
        reason=f"AUROC of {found.estimator} {area.value:.3f}, PRR {ratio.value:.3f}, {found.law}",
        remedy=larger if state == "inconclusive" else None,
        scale=scale,
        details={"prr": round(ratio.value, 4), "prr_interval": _ends(ratio.interval)},
    )


def _gain(found: Finding, scale: str, larger: Remedy) -> Claim:
    question = f"Does agreement of candidates say more on {found.name} than the answer's own probability?"
    own_N = found.scores_N(BASELINE)
    if np.isnan(own_N).any():
        reason = "the target tells no probability of its answer to compare with"
        return _empty(found, "gain", question, reason, scale, None)
    versus = compare(found.right_N, own_N, found.scores_N(), "prr", resamples=RESAMPLES, seed=found.seed)
    line = Line(value=0.0, direction=">=", origin="house rule: no worse than the cheaper score")
    state = judge(versus.difference, versus.interval, line)
    use_it = Remedy(
        text="Let the answer's own probability decide (estimator msp, or cocoa_msp for both), and compare them on "
        "questions of your own: intarsia uncertainty bench."
    )
    return Claim(
        name=f"gain.{found.name}",
        question=question,
        state=state,
        value=versus.difference,
        unit="",
        interval=versus.interval,
        control=Control(name="PRR of the answer's own probability (MSP)", value=versus.a),
        threshold=line,
        n=versus.n,
        reason=f"PRR {versus.b:.3f} by {found.estimator}, {versus.a:.3f} by {BASELINE}, paired bootstrap, {found.law}",
        remedy={"fail": use_it, "inconclusive": larger}.get(state),
        scale=scale,
        details={"p": None if math.isnan(versus.p) else round(versus.p, 5)},
    )


def _mass(found: Finding, scale: str, wider: Remedy) -> Claim:
    question = f"How many answers to {found.name} rest on beams that hold too little?"
    masses, m, rule = found.masses, found.scoring.m, found.scoring.low_mass
    if not masses:
        seen = [row.results[found.source].mass for row in found.rows]
        reason = f"there are no beams behind {found.source} candidates"
        if any(seen):
            reason += f"; the distinct samples hold {np.mean(seen):.0%} of the probability on average"
        return _empty(found, "mass", question, reason, scale, None)
    low = sum(low_mass(mass, m, rule) for mass in masses)
    interval = wilson(low, len(masses))
    line = Line(value=MOST_LOW, direction="<=", origin="house rule: at most 1 answer in 5 rests on too little")
    state = judge(low / len(masses), interval, line)
    fallen = sum(row.results[found.source].candidates.kind == "hybrid" for row in found.rows)
    bounds = [row.results[found.source].interval for row in found.rows]
    said = f"{m} beams hold {np.mean(masses):.0%} of the probability on average, less than {_line(found):.0%} for {low}"
    said += f" of {len(masses)} answers, at temperature {found.temperature:g}"
    if fallen:
        said += f"; {fallen} were scored from beams and samples instead"
    return Claim(
        name=f"mass.{found.name}",
        question=question,
        state=state,
        value=low / len(masses),
        interval=interval,
        threshold=line,
        n=len(masses),
        truncated=_cut_off(found),
        detectable=detectable_proportion(len(masses), MOST_LOW),
        worst=_worst(found, [float(low_mass(mass, m, rule)) for mass in masses]),
        reason=said,
        remedy=wider if state != "pass" else None,
        scale=scale,
        details={
            "mean_mass": round(float(np.mean(masses)), 4),
            "rule": rule,
            "over_the_paper_threshold": round(float(np.mean([mass > paper_threshold(m) for mass in masses])), 4),
            "over_the_sufficient_mass": round(float(np.mean([mass >= sufficient_mass(m) for mass in masses])), 4),
            "fallen_back": fallen,
            "certified_width": round(float(np.mean([one.high - one.low for one in bounds])), 4),
        },
    )


def _calibration(found: Finding, scale: str, apply: Remedy, larger: Remedy) -> Claim:
    question = f"Is the model surer of {found.name} than it is right?"
    if found.estimator != ESTIMATOR:
        reason = f"{found.estimator} is no probability; {ESTIMATOR} is read as one"
        return _empty(found, "calibration", question, reason, scale, None)
    if found.scoring.similarity.partition(":")[0] not in _SHARES:
        reason = f"similarity by {found.scoring.similarity} is no share of answers that say the same"
        return _empty(found, "calibration", question, reason, scale, None)
    sure_N = 1 - found.scores_N()
    over_N = sure_N - found.right_N
    interval = bootstrap_mean(over_N, seed=found.seed)
    line = Line(value=MOST_OVERCONFIDENT, direction="<=", origin="house rule: at most 10 points surer than it is right")
    state = judge(float(over_N.mean()), interval, line)
    # What beams leave out may disagree with the answer: too sure by that much is their fault, not the model's.
    least_N = sure_N * _seen(found) - found.right_N
    least = judge(float(least_N.mean()), bootstrap_mean(least_N, seed=found.seed), line)
    unsettled = state == "fail" and least != "fail"
    if unsettled:
        state = "inconclusive"
    error = ece(np.clip(sure_N, 0, 1), found.right_N, bins=10, scheme="mass")
    return Claim(
        name=f"calibration.{found.name}",
        question=question,
        state=state,
        value=float(over_N.mean()),
        unit="points",
        interval=interval,
        threshold=line,
        n=len(found.rows),
        worst=_worst(found, over_N.tolist()),
        reason=f"agrees with itself by {sure_N.mean():.0%}, right in {found.right_N.mean():.0%}, {found.law}; "
        f"calibration error {error.value:.3f} in 10 bins of equal count"
        + ("; what the beams leave out may be the whole of the difference" if unsettled else ""),
        remedy={"fail": apply, "inconclusive": larger}.get(state),
        scale=scale,
        details={
            "ece": round(error.value, 4),
            "mean_confidence": round(float(sure_N.mean()), 4),
            "surer_by_at_least": round(float(least_N.mean()), 4),
        },
    )


def _seen(found: Finding) -> np.ndarray:
    """Probability that each score rests on: what beams hold, and 1 for unbiased scores."""
    results = [row.results[found.source] for row in found.rows]
    biased = ("beam", "diverse")
    return np.array([one.mass if one.candidates.kind in biased and one.mass else 1.0 for one in results])


def _empty(found: Finding, name: str, question: str, reason: str, scale: str, remedy: Remedy | None) -> Claim:
    return Claim(
        name=f"{name}.{found.name}",
        question=question,
        state="not measurable",
        reason=reason,
        n=len(found.rows),
        unparsed=_unread(found),
        truncated=_cut_off(found),
        remedy=remedy,
        scale=scale,
    )


def headline(found: Sequence[Finding]) -> str:
    """The study in one line."""
    parts = []
    for one in found:
        if one.trouble:
            parts.append(f"{one.name}: {one.trouble}")
            continue
        got = measure(one.right_N, one.scores_N(), f"caught@{ABSTAINED}", resamples=0).value
        kept = measure(one.right_N, one.scores_N(), f"accuracy@{1 - ABSTAINED}", resamples=0).value
        parts.append(
            f"{one.name}: abstaining on 20 % catches {got:.0%} of the wrong answers (at random 20 %) and lifts "
            f"{one.right_N.mean():.0%} right to {kept:.0%}"
        )
    return f"{'; '.join(parts)}." if parts else "There was nothing to ask."


def tables(found: Sequence[Finding]) -> tuple[Table, ...]:
    """The sets, and all uncertainties side by side."""
    sets: list[tuple[JsonValue, ...]] = []
    others: list[tuple[JsonValue, ...]] = []
    for one in found:
        if one.trouble:
            continue
        masses = one.masses
        fallen = sum(row.results[one.source].candidates.kind == "hybrid" for row in one.rows)
        sets.append(
            (
                one.name,
                len(one.rows),
                round(100 * float(one.right_N.mean()), 1),
                f"{one.temperature:g}",
                round(float(np.mean(masses)), 3) if masses else None,
                fallen,
                len(one.lost),
            )
        )
        for name in one.rows[0].results[one.source].scores:
            u_N = one.scores_N(name)
            if not np.isfinite(u_N).all():
                continue
            figures = [measure(one.right_N, u_N, metric, resamples=0).value for metric in ("prr", "auroc", "aurc")]
            got = measure(one.right_N, u_N, f"caught@{ABSTAINED}", resamples=0).value
            decides = "decides" if name == one.estimator else "baseline" if name == BASELINE else ""
            others.append((one.name, name, decides, *(round(value, 3) for value in figures), round(100 * got, 1)))
    if not sets:
        return ()
    return (
        Table(
            title="Questions",
            columns=("set", "questions", "right, %", "temperature", "mean beam mass", "fallen back", "no answer"),
            rows=tuple(sets),
        ),
        Table(
            title="All uncertainties; the one that decides was named before",
            columns=("set", "uncertainty", "role", "PRR", "AUROC", "AURC", "caught, %"),
            rows=tuple(others),
        ),
    )


def figures(found: Sequence[Finding]) -> tuple[Figure, ...]:
    """A rejection plot a set, and what beams hold."""
    drawn = []
    for one in found:
        if one.trouble:
            continue
        names = {"candidates agree": one.estimator, "the answer's own probability": BASELINE}
        drawn.append(
            rejection_figure(
                one.right_N,
                {shown: one.scores_N(name) for shown, name in names.items()},
                title=f"Abstaining on {one.name}",
                seed=one.seed,
                marked=ABSTAINED,
            )
        )
    masses = {one.name: one.masses for one in found if one.masses}
    if masses:
        first = next(one for one in found if one.masses)
        drawn.append(mass_figure(masses, line=_line(first), m=first.scoring.m))
    return tuple(drawn)


def examples(found: Sequence[Finding]) -> tuple[Example, ...]:
    """Wrong answers that were distrusted, wrong ones that were not, and a right one that was."""
    shown: list[Example] = []
    for one in found:
        if one.trouble:
            continue
        u_N = one.scores_N()
        order = np.argsort(u_N, kind="stable")
        wrong = [at for at in order.tolist() if not one.right_N[at]]
        right = [at for at in order.tolist() if one.right_N[at]]
        away = set(order[len(order) - math.floor(ABSTAINED * len(order) + 1e-9) :].tolist())
        caught = [at for at in reversed(wrong) if at in away][:EXAMPLES]
        missed = [at for at in wrong if at not in away][:EXAMPLES]
        wasted = [at for at in reversed(right) if at in away][:1]
        shown += [_example(one, at, "wrong, and distrusted", "good") for at in caught]
        shown += [_example(one, at, "wrong, and sure of it", "bad") for at in missed]
        shown += [_example(one, at, "right, but distrusted", "neutral") for at in wasted]
    return tuple(shown)


def _example(one: Finding, at: int, what: str, outcome: str) -> Example:
    row = one.rows[at]
    result = row.results[one.source]
    weighed: dict[str, float] = {}
    for text, weight in zip(result.candidates.texts, result.weights_M.tolist()):
        weighed[text] = weighed.get(text, 0.0) + weight
    ranked = sorted(weighed.items(), key=lambda pair: -pair[1])
    lines = [f"{weight:.2f}  {text}" for text, weight in ranked[:CANDIDATES_SHOWN]]
    lines += [f"... and {len(ranked) - len(lines)} more"] if len(ranked) > len(lines) else []
    low, high, mass = result.interval
    about = f"{one.estimator} {one.scores_N()[at]:.2f}"
    if mass:
        about += f", certainly within [{low:.2f}, {high:.2f}]"
    return Example(
        id=row.item.id,
        title=f"{one.name}: {what} ({about})",
        outcome=outcome,  # type: ignore[arg-type]
        passages=(
            Passage(label="question", text=_cut(row.item.question)),
            Passage(label="answer", text=_cut(result.answer)),
            Passage(label="right answer", text=_cut(row.item.answer or "")),
            Passage(label="candidates by weight", text=_cut("\n".join(lines))),
            *((Passage(label="warning", text=result.warning),) if result.warning else ()),
        ),
    )


def measures(found: Sequence[Finding]) -> tuple[Measure, ...]:
    """Item by item: right; the decision to answer or not was right; squared error of the confidence (Brier).

    A decision is right when a right answer is given or a wrong one withheld, with the 20 % least certain withheld;
    among equally uncertain ones at the edge each is withheld by the same chance.
    """
    kept = []
    for one in found:
        if not one.rows:
            continue
        digest = hashlib.sha256(canonical_json([one.data.sha256, *_protocol(one)])).hexdigest()
        values = [("right", "share", "more", True, one.right_N)]
        u_N = one.scores_N()
        if np.isfinite(u_N).all():
            away_N = withheld(u_N, ABSTAINED)
            decided_N = one.right_N * (1 - away_N) + (1 - one.right_N) * away_N
            values.append(("decided", "share", "more", False, decided_N))
            if one.estimator == ESTIMATOR:
                values.append(("brier", "", "less", False, (1 - u_N - one.right_N) ** 2))
        for name, unit, better, binary, value_N in values:
            kept.append(
                Measure(
                    name=f"{name}.{one.name}",
                    unit=unit,  # type: ignore[arg-type]
                    better=better,  # type: ignore[arg-type]
                    binary=binary,
                    observations=tuple(
                        Observation(id=row.item.id, value=float(value), slices=row.item.slices)
                        for row, value in zip(one.rows, value_N, strict=True)
                    ),
                    items_hash=digest,
                )
            )
    return tuple(kept)


def withheld(u_N: np.ndarray, share: float) -> np.ndarray:
    """Chance of each item to be among the `share` most uncertain, ties drawn at random; float64 of shape (N,)."""
    away = math.floor(share * len(u_N) + 1e-9)
    if not away:
        return np.zeros(len(u_N))
    edge = np.sort(u_N)[len(u_N) - away]
    above, at = u_N > edge, u_N == edge
    return np.where(above, 1.0, np.where(at, (away - above.sum()) / at.sum(), 0.0))


def _protocol(one: Finding) -> list[JsonValue]:
    """What two runs must have in common to be compared."""
    scoring = one.scoring
    return [one.source, one.temperature, scoring.m, scoring.similarity, one.estimator, scoring.shots, *one.settings]


def _line(found: Finding) -> float:
    lines = {"half": 0.5, "paper": paper_threshold(found.scoring.m), "sufficient": sufficient_mass(found.scoring.m)}
    return lines[found.scoring.low_mass]


def _worst(found: Finding, values: Sequence[float]) -> WorstSlice | None:
    observed = [
        Observation(id=row.item.id, value=value, slices=row.item.slices)
        for row, value in zip(found.rows, values, strict=True)
    ]
    means = slice_means(observed)
    if not means:
        return None
    (key, value), (share, n) = max(sorted(means.items()), key=lambda pair: pair[1][0])
    return WorstSlice(name=f"{key} {value}", value=share, n=n)


def _unread(found: Finding) -> int:
    return sum(not row.readable for row in found.rows) + len(found.lost)


def _cut_off(found: Finding) -> int:
    return sum(not row.result.candidates.answer.finished for row in found.rows)


def _refused(row: ScoredAnswer) -> bool:
    from intarsia.core.answers import is_refusal

    return is_refusal(row.result.answer)


def _tokens(row: ScoredAnswer) -> int:
    """Tokens of the answer and of all candidates, where they are known."""
    candidates = row.result.candidates
    return len(candidates.answer.token_ids) + sum(map(len, candidates.token_ids))


def _ends(interval: Interval | None) -> JsonValue:
    return None if interval is None else [round(interval.low, 4), round(interval.high, 4)]


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."


__all__ = ["ABSTAINED", "Finding", "State", "claims", "examples", "figures", "headline", "measures", "tables"]

"""What every renderer says in the same words: the order of rows, the summary, the meaning of a state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from intarsia.core.report import numbers
from intarsia.core.study import Claim, Contrast, Remedy, Report, Result, State

STATES: tuple[State, ...] = get_args(State)
ContrastState = Literal["better", "worse", "no difference shown", "not comparable"]

MEANING: dict[State, str] = {
    "pass": "The whole interval lies on the good side of the threshold, which was fixed before the run.",
    "fail": "The whole interval lies on the bad side of the threshold.",
    "inconclusive": "The interval holds the threshold: these items cannot decide. More items narrow the interval.",
    "not measurable": "The question does not apply to this model or setting, for the reason given.",
    "skipped": "The study needed something that was not there; nothing was measured.",
}

CONTRAST_MEANING: dict[ContrastState, str] = {
    "better": "The second model is better on the same items, and the difference stands after Holm's correction for "
    "the number of comparisons.",
    "worse": "The second model is worse on the same items, and the difference stands after Holm's correction.",
    "no difference shown": "These items show no difference. That is no proof of equality: the smallest difference they "
    "could have shown is given.",
    "not comparable": "The two were not measured on the same items, or the measure is missing in one of them.",
}


@dataclass(frozen=True)
class Row:
    """One row of the verdict table.

    Attributes:
        result: The result it comes from.
        claim: The claim itself.
        seconds: Time spent on it, None where it was not taken.
    """

    result: Result
    claim: Claim
    seconds: float | None


def row(result: Result, claim: Claim) -> Row:
    """A claim with the time that its result's run names for it."""
    seconds = result.run.seconds.get(claim.name)
    if seconds is None and len(result.claims) == 1 and result.run.wall_seconds:
        seconds = result.run.wall_seconds
    return Row(result, claim, seconds)


def studies(report: Report) -> list[tuple[str, list[Result]]]:
    """Results by study, studies in the order they first appear, targets in the report's order."""
    order = {target: place for place, target in enumerate(report.targets)}
    groups: dict[str, list[Result]] = {}
    for result in report.results:
        groups.setdefault(result.study, []).append(result)
    return [
        (study, sorted(results, key=lambda result: order.get(result.target, len(order))))
        for study, results in groups.items()
    ]


def rows(results: Iterable[Result]) -> list[Row]:
    """Rows of one study's results: claim by claim, so that the targets' answers to one question stand together."""
    found = [row(result, claim) for result in results for claim in result.claims]
    place: dict[str, int] = {}
    for entry in found:
        place.setdefault(entry.claim.name, len(place))
    return sorted(found, key=lambda entry: place[entry.claim.name])


def tally(claims: Iterable[Claim]) -> str:
    """`3 pass, 1 fail, 2 inconclusive`, states in their usual order; empty without claims."""
    counts = Counter(claim.state for claim in claims)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])


def _plural(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"


def summary(report: Report) -> str:
    """The report in one sentence."""
    if not report.claims:
        return "Nothing was asked, so there is no verdict."
    targets = targets_of(report)
    parts = []
    for target in targets:
        claims = [claim for result in report.results if result.target == target for claim in result.claims]
        if claims:
            name = f"{target}, " if target else ""
            parts.append(f"{name}{_plural(len(claims), 'question')}: {tally(claims)}")
    known = {result.target for result in report.results} - set(targets)
    if known:
        claims = [claim for result in report.results if result.target in known for claim in result.claims]
        parts.append(f"{_plural(len(claims), 'question')}: {tally(claims)}")
    sentence = "; ".join(parts)
    return f"{sentence}." if not report.contrasts else f"{sentence}. {contrast_summary(report)}"


def headlines(report: Report) -> list[str]:
    """What each study found, in a line each; with several models every line names its own."""
    several = len(targets_of(report)) > 1
    return [
        (f"{result.target}: " if several and result.target else "") + result.headline
        for result in report.results
        if result.headline
    ]


def targets_of(report: Report) -> tuple[str, ...]:
    """Names of the models, from the results where the report does not list them."""
    return report.targets or tuple(dict.fromkeys(result.target for result in report.results))


def pairs(report: Report) -> list[tuple[tuple[str, str], list[Contrast]]]:
    """Contrasts by pair of targets."""
    groups: dict[tuple[str, str], list[Contrast]] = {}
    for contrast in report.contrasts:
        groups.setdefault((contrast.a, contrast.b), []).append(contrast)
    return list(groups.items())


def contrast_summary(report: Report) -> str:
    """The paired comparisons in one sentence a pair; empty without any."""
    sentences = []
    for (a, b), contrasts in pairs(report):
        counts = Counter(contrast.state for contrast in contrasts)
        said = ", ".join(f"{state} in {counts[state]}" for state in get_args(ContrastState) if counts[state])
        sentences.append(f"{b} against {a}, paired over {_plural(len(contrasts), 'measure')}: {said}.")
    return " ".join(sentences)


@dataclass(frozen=True)
class Step:
    """Something to do, for all the questions that it answers.

    Attributes:
        state: Of those questions.
        remedy: What to do.
        names: `model: claim` with several models, else `claim`.
    """

    state: State
    remedy: Remedy
    names: tuple[str, ...]


def steps(report: Report) -> list[Step]:
    """What to do first: remedies of failed questions, then of those that could not be decided or asked.

    Questions with one remedy make one step.
    """
    several = len(targets_of(report)) > 1
    groups: dict[tuple[State, Remedy], list[str]] = {}
    for result in report.results:
        for claim in result.claims:
            if claim.remedy is not None and claim.state != "pass":
                name = f"{result.target}: {claim.name}" if several and result.target else claim.name
                groups.setdefault((claim.state, claim.remedy), []).append(name)
    # The order of states, from what was shown to be wrong to what was not asked; stable within one.
    found = [Step(state, remedy, tuple(names)) for (state, remedy), names in groups.items()]
    return sorted(found, key=lambda step: STATES.index(step.state))


def threshold_text(claim: Claim) -> str:
    """The line that decides, `>= 20.0 %`; empty without one."""
    if claim.threshold is None:
        return ""
    return f"{claim.threshold.direction} {numbers.show(claim.threshold.value, claim.unit)}"


def explanation(claim: Claim) -> str:
    """Why the state is what it is: the claim's own reason, else what its figures say."""
    if claim.reason or claim.state not in {"pass", "fail"}:
        return claim.reason or MEANING[claim.state]
    if claim.threshold is None or claim.value is None:
        return "No threshold is on record." if claim.threshold is None else "No value is on record."
    side = "good" if claim.state == "pass" else "bad"
    if claim.interval is None:
        return f"The value is on the {side} side of {threshold_text(claim)}; it has no interval."
    return f"The whole interval is on the {side} side of {threshold_text(claim)}."


def seconds_text(entry: Row) -> str:
    """Time of a row, empty where it was not taken."""
    return "" if entry.seconds is None else numbers.duration(entry.seconds)

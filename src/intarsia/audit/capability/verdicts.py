"""What the capability study shows: claims, tables, figures, examples and measures from the outcomes of its items."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from intarsia.audit.capability import remedies
from intarsia.core.answers import Verdict
from intarsia.core.data import DataSet, Item
from intarsia.core.data.floors import Floor
from intarsia.core.errors import DataError
from intarsia.core.stats import detectable_proportion, wilson
from intarsia.core.study import (
    Claim,
    Control,
    Example,
    Figure,
    Measure,
    Observation,
    Passage,
    Remedy,
    Series,
    State,
    Table,
    Threshold,
    WorstSlice,
    judge,
    slice_means,
)
from intarsia.core.target import Completion

CEILING = 0.97
LEAST_LINE = 0.01
MOST_UNREADABLE = 0.05
MOST_REFUSED = 0.05
MOST_TRUNCATED = 0.05
SHOWN = 1500
"""Characters of a question or answer that an example shows."""


@dataclass(frozen=True)
class Outcome:
    """One item with what the model said; without a verdict where no answer came."""

    item: Item
    completion: Completion
    verdict: Verdict | None

    @property
    def correct(self) -> bool:
        """Whether the answer is right."""
        return self.verdict is not None and self.verdict.correct

    @property
    def unreadable(self) -> bool:
        """Whether an answer that was neither cut off nor refused holds nothing to be read."""
        return self.verdict is not None and self.verdict.status == "unparsed" and not self.completion.truncated

    @property
    def refused(self) -> bool:
        """Whether the model declined; a refusal that is right all the same does not count."""
        return self.verdict is not None and self.verdict.refused and not self.verdict.correct


@dataclass(frozen=True)
class Asked:
    """A set with its outcomes, the floor of its answered items, and how it was asked."""

    data: DataSet
    outcomes: tuple[Outcome, ...]
    floor: Floor
    max_new_tokens: int
    shots: int
    items_hash: str

    @property
    def name(self) -> str:
        """The set's name."""
        return self.data.name

    @property
    def data_file(self) -> str:
        """File or hub id of the user's own questions; empty for other sets."""
        return self.data.origin if self.name == "own" else ""

    @property
    def answered(self) -> tuple[Outcome, ...]:
        """Outcomes with an answer."""
        return tuple(outcome for outcome in self.outcomes if outcome.verdict is not None)

    @property
    def graded(self) -> bool:
        """Whether there is anything to compare answers with."""
        return any(
            outcome.verdict is not None and outcome.verdict.status != "ungraded" for outcome in self.outcomes
        ) and any(item.answer is not None and item.kind != "free" for item in self.data.items)

    @property
    def accuracy(self) -> float | None:
        """Share of right answers, None where it cannot be had."""
        if not self.answered or not self.graded:
            return None
        return sum(outcome.correct for outcome in self.answered) / len(self.answered)

    @property
    def tokens(self) -> int:
        """Prompt and new tokens spent."""
        return sum(outcome.completion.prompt_tokens + outcome.completion.token_count for outcome in self.outcomes)


def set_claims(asked: Asked, scale: str, model: str) -> list[Claim]:
    """The claims about one set: `accuracy.<set>` and `format.<set>`."""
    return [_accuracy(asked, scale, model), _format(asked, scale, model)]


def pooled_claims(sets: Sequence[Asked], scale: str, model: str) -> list[Claim]:
    """The claims over all sets: `refusals` and `truncation`."""
    outcomes = [(one.name, outcome) for one in sets for outcome in one.answered]
    if not outcomes:
        return []
    lengths = sorted(outcome.completion.token_count for _, outcome in outcomes)
    refusals = _share(
        "refusals",
        "Does it refuse harmless questions?",
        [(name, outcome, outcome.refused) for name, outcome in outcomes],
        Threshold(value=MOST_REFUSED, direction="<=", origin="house rule: at most 1 harmless question in 20 refused"),
        remedies.soften(model),
        scale,
        model,
    )
    truncation = _share(
        "truncation",
        "Are its answers cut off?",
        [(name, outcome, outcome.completion.truncated) for name, outcome in outcomes],
        Threshold(value=MOST_TRUNCATED, direction="<=", origin="house rule: at most 1 answer in 20 cut off"),
        remedies.give_room(model, 2 * max(one.max_new_tokens for one in sets)),
        scale,
        model,
        {
            "mean_tokens": round(sum(lengths) / len(lengths), 2),
            "median_tokens": lengths[len(lengths) // 2],
            "p95_tokens": lengths[min(len(lengths) - 1, int(0.95 * len(lengths)))],
            "longest_tokens": lengths[-1],
        },
    )
    return [refusals, truncation]


def headline(sets: Sequence[Asked], lost: Sequence[tuple[str, DataError]]) -> str:
    """The study in one line."""
    scored = [(one.name, one.accuracy, one) for one in sets if one.accuracy is not None]
    parts = [f"{percent(value)} of {name}" for name, value, _ in scored]
    line = f"Right on {_listed(parts)}" if parts else "No set could be graded"
    weak = [name for name, value, one in scored if _accuracy_state(one)[0] != "pass"]
    if weak:
        line += f"; not shown to beat guessing on {_listed(weak)}"
    unreadable = sum(outcome.unreadable for one in sets for outcome in one.answered)
    total = sum(len(one.answered) for one in sets)
    if total and unreadable / total > MOST_UNREADABLE:
        line += f"; {percent(unreadable / total)} of answers cannot be read"
    if lost:
        line += f"; skipped: {_listed([name for name, _ in lost])}"
    return f"{line}."


def notes(sets: Sequence[Asked]) -> list[str]:
    """What a reader must know."""
    found = []
    for one in sets:
        silent = [outcome for outcome in one.outcomes if outcome.verdict is None]
        if silent:
            found.append(
                f"{one.name}: {len(silent)} of {len(one.outcomes)} questions got no answer and count for nothing "
                f"({silent[0].completion.error or 'no reason given'})."
            )
        fallbacks = Counter(
            outcome.verdict.note for outcome in one.answered if outcome.verdict is not None and outcome.verdict.note
        )
        for note, count in sorted(fallbacks.items()):
            if note.startswith("math-verify"):
                found.append(f"{one.name}: {count} answers were compared as text, because {note}.")
        if not one.graded and one.answered:
            found.append(f"{one.name}: its items have no gold answers, so only form, refusals and length are measured.")
    return found


def tables(sets: Sequence[Asked]) -> tuple[Table, ...]:
    """How each set went, and each slice of it."""
    rows: list[tuple[JsonValue, ...]] = []
    for one in sets:
        answered = one.answered
        if not answered:
            continue
        rows.append(
            (
                one.name,
                len(answered),
                None if one.accuracy is None else round(one.accuracy, 4),
                round(one.floor.value, 4) if one.graded else None,
                one.floor.name if one.graded else "",
                sum(outcome.unreadable for outcome in answered),
                sum(outcome.refused for outcome in answered),
                sum(outcome.completion.truncated for outcome in answered),
                round(_mean_tokens(one), 1),
                one.shots,
            )
        )
    slices: list[tuple[JsonValue, ...]] = []
    for one in sets:
        if one.accuracy is None:
            continue
        for (key, value), (mean, count) in sorted(slice_means(_observations(one, lambda o: o.correct)).items()):
            interval = wilson(round(mean * count), count)
            slices.append(
                (one.name, key, value, count, round(mean, 4), round(interval.low, 4), round(interval.high, 4))
            )
    found = [
        Table(
            title="How each set went",
            columns=(
                "set",
                "answered",
                "accuracy",
                "guessing",
                "best guesser",
                "unreadable",
                "refused",
                "cut off",
                "mean tokens",
                "shots",
            ),
            rows=tuple(rows),
        )
    ]
    if slices:
        found.append(
            Table(
                title="Accuracy by slice",
                columns=("set", "slice", "value", "n", "accuracy", "low", "high"),
                rows=tuple(slices),
            )
        )
    return tuple(found)


def figures(sets: Sequence[Asked]) -> tuple[Figure, ...]:
    """Accuracy against guessing, slices, and lengths."""
    scored = [one for one in sets if one.accuracy is not None]
    found = []
    if scored:
        names = tuple(one.name for one in scored)
        ends = [wilson(sum(o.correct for o in one.answered), len(one.answered)) for one in scored]
        found.append(
            Figure(
                title="Accuracy against guessing",
                kind="bars",
                series=(
                    Series(
                        name="model",
                        x=names,
                        y=tuple(one.accuracy for one in scored),
                        low=tuple(end.low for end in ends),
                        high=tuple(end.high for end in ends),
                    ),
                    Series(name="guessing", x=names, y=tuple(one.floor.value for one in scored)),
                ),
                y_label="right answers",
                y_unit="share",
                caption="A model whose interval holds the guessing bar has not been shown to do better than guessing.",
                alt="; ".join(
                    f"{one.name}: {percent(one.accuracy or 0)} right, guessing {percent(one.floor.value)}"
                    for one in scored
                ),
            )
        )
        found += [figure for one in scored if (figure := _slices_figure(one)) is not None]
    answered = [one for one in sets if one.answered]
    if answered:
        found.append(
            Figure(
                title="Length of answers",
                kind="histogram",
                series=tuple(
                    Series(name=one.name, y=tuple(float(o.completion.token_count) for o in one.answered))
                    for one in answered
                ),
                x_label="new tokens",
                y_label="answers",
                caption="Answers at a set's right edge were cut off by its token limit.",
                alt="; ".join(f"{one.name}: {_mean_tokens(one):.0f} tokens on average" for one in answered),
            )
        )
    return tuple(found)


def examples(sets: Sequence[Asked], each: int = 2) -> tuple[Example, ...]:
    """Real items of each set: right ones, wrong ones, and ones that could not be read, were refused or cut off."""
    found = []
    for one in sets:
        piles: dict[str, list[Outcome]] = {}
        for outcome in one.answered:
            piles.setdefault(_title(outcome), []).append(outcome)
        for title in sorted(piles):
            found += [_example(one, outcome, title) for outcome in piles[title][: each if title == "wrong" else 1]]
    return tuple(found)


def measures(sets: Sequence[Asked]) -> tuple[Measure, ...]:
    """Each item's outcome, for paired comparisons."""
    found = []
    for one in sets:
        if one.accuracy is not None:
            found.append(_measure(f"accuracy.{one.name}", [one], lambda o: o.correct, "more"))
        if one.answered:
            found.append(_measure(f"format.{one.name}", [one], lambda o: o.unreadable, "less"))
    answered = [one for one in sets if one.answered]
    if answered:
        found.append(_measure("refusals", answered, lambda o: o.refused, "less", pooled=True))
        found.append(_measure("truncation", answered, lambda o: o.completion.truncated, "less", pooled=True))
        found.append(
            _measure("length", answered, lambda o: o.completion.token_count, "neither", pooled=True, unit="tokens")
        )
    return tuple(found)


def _accuracy_state(asked: Asked) -> tuple[State, Threshold]:
    answered = asked.answered
    line = max(asked.floor.value, LEAST_LINE)
    threshold = Threshold(value=line, direction=">=", origin="house rule: a model must beat guessing on the same items")
    interval = wilson(sum(outcome.correct for outcome in answered), len(answered))
    state = judge(asked.accuracy or 0.0, interval, threshold)
    if state == "fail" and _cut_short(asked):
        # Answers that were cut off count as wrong; had they been right, would the model still fail?
        best = sum(outcome.correct for outcome in answered) + _cut_short(asked)
        if judge(best / len(answered), wilson(best, len(answered)), threshold) != "fail":
            state = "inconclusive"
    return state, threshold


def _cut_short(asked: Asked) -> int:
    """Answers that were cut off before a right one came."""
    return sum(outcome.completion.truncated and not outcome.correct for outcome in asked.answered)


def _accuracy(asked: Asked, scale: str, model: str) -> Claim:
    name, question = f"accuracy.{asked.name}", f"How many answers are right on {asked.name}?"
    answered = asked.answered
    if not answered:
        error = asked.outcomes[0].completion.error if asked.outcomes else ""
        reason = f"no question was answered: {error}" if error else "no question was answered"
        remedy = Remedy(text="Check that the model or endpoint answers, and that questions fit its window.")
        return Claim(
            name=name,
            question=question,
            state="not measurable",
            reason=reason,
            remedy=remedy,
            scale=scale,
            tokens=asked.tokens,
        )
    if asked.accuracy is None:
        return Claim(
            name=name,
            question=question,
            state="not measurable",
            n=len(answered),
            reason="the items have no gold answers to compare with",
            remedy=Remedy(text="Give answers: --map question=FIELD,answer=FIELD."),
            scale=scale,
            tokens=asked.tokens,
        )
    state, threshold = _accuracy_state(asked)
    value = asked.accuracy
    interval = wilson(sum(outcome.correct for outcome in answered), len(answered))
    worst = _worst(_observations(asked, lambda o: o.correct), value, lowest=True)
    ceiling = value >= CEILING
    reason = {
        "pass": f"beats guessing ({percent(asked.floor.value)}, {asked.floor.name})",
        "fail": f"no better than guessing ({percent(threshold.value)}): at the floor, a further loss could not show",
        "inconclusive": f"guessing ({percent(threshold.value)}) lies in the interval: too few items, or at the floor",
    }[state]
    if state == "inconclusive" and threshold.value > interval.high:
        reason = f"not shown to be worse than guessing ({percent(threshold.value)}) either: give answers more room"
    if state != "pass" and (cut := _cut_short(asked)):
        reason += f"; {cut} of {len(answered)} answers were cut off and count as wrong"
    if silent := len(asked.outcomes) - len(answered):
        reason += f"; {silent} of {len(asked.outcomes)} questions got no answer and are left out"
    if ceiling:
        reason += "; at the ceiling, so an improvement could not show: ask harder questions"
    details: dict[str, JsonValue] = {
        "at_floor": state != "pass",
        "at_ceiling": ceiling,
        "guessers": {key: round(share, 4) for key, share in asked.floor.guessers.items()},
    }
    copied = _copied(asked)
    if copied is not None:
        details["wrong_but_from_the_story"] = copied
    return Claim(
        name=name,
        question=question,
        state=state,
        value=value,
        unit="share",
        interval=interval,
        control=Control(name=f"guessing: {asked.floor.name}", value=asked.floor.value),
        threshold=threshold,
        n=len(answered),
        unparsed=sum(outcome.unreadable for outcome in answered),
        truncated=sum(outcome.completion.truncated for outcome in answered),
        detectable=_detectable(sum(outcome.correct for outcome in answered), len(answered)),
        worst=worst,
        reason=reason,
        remedy=_accuracy_remedy(asked, state, ceiling, worst, scale, model),
        scale=scale,
        tokens=asked.tokens,
        details=details,
    )


def _accuracy_remedy(
    asked: Asked, state: State, ceiling: bool, worst: WorstSlice | None, scale: str, model: str
) -> Remedy:
    where, data = worst.name if worst is not None else "", asked.data_file
    if state == "inconclusive" and scale in remedies.LARGER:
        return remedies.ask_more(model, scale, data)
    if ceiling:
        return remedies.ask_harder(model)
    if state == "pass":
        return remedies.train(asked.name, model, where=where, data=data, opening="To mend what is left, train")
    return remedies.train(asked.name, model, where=where, data=data)


def _format(asked: Asked, scale: str, model: str) -> Claim:
    answered = [(asked.name, outcome, outcome.unreadable) for outcome in asked.answered]
    question = f"Can its answers on {asked.name} be read?"
    if not answered:
        return Claim(
            name=f"format.{asked.name}",
            question=question,
            state="not measurable",
            reason="no question was answered",
            scale=scale,
        )
    return _share(
        f"format.{asked.name}",
        question,
        answered,
        Threshold(value=MOST_UNREADABLE, direction="<=", origin="house rule: at most 1 answer in 20 unreadable"),
        remedies.show_form(model, asked.data_file),
        scale,
        model,
        data=asked.data_file,
    )


def _share(
    name: str,
    question: str,
    outcomes: Sequence[tuple[str, Outcome, bool]],
    threshold: Threshold,
    remedy: Remedy,
    scale: str,
    model: str,
    details: dict[str, JsonValue] | None = None,
    data: str = "",
) -> Claim:
    """A claim that a share of outcomes is small; `remedy` is what helps where it is not."""
    hits, n = sum(hit for _, _, hit in outcomes), len(outcomes)
    interval = wilson(hits, n)
    state = judge(hits / n, interval, threshold)
    seen = [
        Observation(id=outcome.item.id, value=float(hit), slices={"set": of, **outcome.item.slices})
        for of, outcome, hit in outcomes
    ]
    reason = f"{hits} of {n}"
    if state == "inconclusive":
        reason += ": too few items to tell"
    return Claim(
        name=name,
        question=question,
        state=state,
        value=hits / n,
        unit="share",
        interval=interval,
        threshold=threshold,
        n=n,
        unparsed=sum(outcome.unreadable for _, outcome, _ in outcomes),
        truncated=sum(outcome.completion.truncated for _, outcome, _ in outcomes),
        detectable=detectable_proportion(n, baseline=threshold.value),
        worst=_worst(seen, hits / n, lowest=False),
        reason=reason,
        remedy={"pass": None, "inconclusive": remedies.ask_more(model, scale, data)}.get(state, remedy),
        scale=scale,
        details=details or {},
    )


def _worst(seen: Sequence[Observation], overall: float, *, lowest: bool) -> WorstSlice | None:
    """The slice that is worse than the whole by most; None where all are alike."""
    sign = 1 if lowest else -1
    ranked = sorted(
        (sign * mean, -count, key, value)
        for (key, value), (mean, count) in slice_means(seen).items()
        if count < len(seen)
    )
    if not ranked or ranked[0][0] >= sign * overall:
        return None
    mean, count, key, value = ranked[0]
    return WorstSlice(name=f"{key}: {value}", value=sign * mean, n=-count)


def _observations(asked: Asked, value: Callable[[Outcome], float], prefix: str = "") -> list[Observation]:
    return [
        Observation(id=f"{prefix}{outcome.item.id}", value=float(value(outcome)), slices=outcome.item.slices)
        for outcome in asked.answered
    ]


def _measure(
    name: str,
    sets: Sequence[Asked],
    value: Callable[[Outcome], float],
    better: str,
    *,
    pooled: bool = False,
    unit: str = "share",
) -> Measure:
    observations = []
    for one in sets:
        for seen in _observations(one, value, prefix=f"{one.name}/" if pooled else ""):
            observations.append(seen.model_copy(update={"slices": {"set": one.name}}) if pooled else seen)
    hashes = [one.items_hash for one in sets]
    items_hash = hashes[0] if not pooled else hashlib.sha256("".join(hashes).encode()).hexdigest()
    return Measure.model_validate(
        {
            "name": name,
            "unit": unit,
            "better": better,
            "binary": unit == "share",
            "observations": observations,
            "items_hash": items_hash,
        }
    )


def _slices_figure(asked: Asked) -> Figure | None:
    means = sorted(slice_means(_observations(asked, lambda o: o.correct)).items())
    if len(means) < 2:
        return None
    ends = [wilson(round(mean * count), count) for _, (mean, count) in means]
    return Figure(
        title=f"{asked.name}: accuracy by slice",
        kind="forest",
        series=(
            Series(
                name=asked.name,
                x=tuple(f"{key}: {value}" for (key, value), _ in means),
                y=tuple(mean for _, (mean, _) in means),
                low=tuple(end.low for end in ends),
                high=tuple(end.high for end in ends),
            ),
        ),
        y_unit="share",
        reference=(asked.accuracy or 0.0, "all items"),
        caption="Slices whose interval lies left of the line are worse than the set as a whole.",
        alt="; ".join(f"{key} {value}: {percent(mean)} of {count}" for (key, value), (mean, count) in means),
    )


def _title(outcome: Outcome) -> str:
    if outcome.correct:
        return "right"
    if outcome.completion.truncated:
        return "cut off"
    if outcome.refused:
        return "refused"
    return {"wrong": "wrong", "unparsed": "unreadable"}.get(
        outcome.verdict.status if outcome.verdict else "", "ungraded"
    )


def _example(asked: Asked, outcome: Outcome, title: str) -> Example:
    said = outcome.completion.text.strip() or "(nothing)"
    parsed = outcome.verdict.parsed if outcome.verdict else None
    start = said.rfind(parsed) if parsed else -1
    passages = [Passage(label="question", text=_cut(outcome.item.question))]
    if outcome.item.answer is not None:
        passages.append(Passage(label="right answer", text=_cut(outcome.item.answer)))
    marks = ((start, start + len(parsed)),) if parsed and 0 <= start < SHOWN - len(parsed) else ()
    passages.append(Passage(label="the model said", text=_cut(said), marks=marks))
    return Example(
        id=f"{asked.name}/{outcome.item.id}",
        title=f"{asked.name}: {title}",
        outcome="good" if outcome.correct else "neutral" if title == "ungraded" else "bad",
        passages=tuple(passages),
    )


def _copied(asked: Asked) -> float | None:
    """Of the wrong answers to stories, the share that is another count of the story: the wrong fact was read."""
    wrong = [
        outcome
        for outcome in asked.answered
        if not outcome.correct and isinstance(outcome.item.meta.get("story_counts"), list)
    ]
    if not wrong:
        return None
    from intarsia.core.answers import numbers_in

    hits = 0
    for outcome in wrong:
        counts = outcome.item.meta["story_counts"]
        read = numbers_in(outcome.verdict.parsed or "") if outcome.verdict else []
        hits += bool(read) and isinstance(counts, list) and any(read[-1][1] == count for count in counts)
    return round(hits / len(wrong), 4)


def _mean_tokens(asked: Asked) -> float:
    return sum(outcome.completion.token_count for outcome in asked.answered) / len(asked.answered)


def _detectable(hits: int, n: int) -> float:
    # Held against 0 or 1 exactly, a single item would count as a difference; two imagined items keep it off the ends.
    return detectable_proportion(n, baseline=(hits + 1) / (n + 2))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ... ({len(text)} characters)"


def percent(value: float) -> str:
    """A share as text, `33 %`."""
    return f"{100 * value:.0f} %" if value == 0 or value >= 0.1 else f"{100 * value:.1f} %"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"

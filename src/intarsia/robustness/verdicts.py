"""What the audit study shows: claims, tables, figures, examples and measures of an attack."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from intarsia.core.data import DataSet
from intarsia.core.data.floors import floor
from intarsia.core.stats import detectable_proportion, paired_share_difference, wilson
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
    canonical_json,
    judge,
    slice_means,
)
from intarsia.robustness.attack import CUT_OFF, NOT_COMPARED
from intarsia.robustness.length import Lengths
from intarsia.robustness.preservation import Estimate, Preservation
from intarsia.robustness.results import Attacked, AttackResults, Summary
from intarsia.robustness.search import Tried

MOST_BROKEN = 0.10
MOST_BROKEN_ON_AVERAGE = 0.10
MOST_GROWTH = 1.25
LEAST_ATTACKED = 5
"""Right answers below which there is nothing to attack."""
SHOWN = 1500
"""Characters of a question or answer that an example shows."""
EXAMPLES = 4
UNREAD = ("unparsed", "refused")
"""Answers that cannot be read; they break nothing, and nobody knows whether they are right."""


@dataclass(frozen=True)
class Finding:
    """One set with what the attack on it found."""

    name: str
    data: DataSet
    results: AttackResults
    summary: Summary
    lengths: Lengths
    preservation: Preservation | None

    @property
    def rows(self) -> tuple[Attacked, ...]:
        """Items that were attacked."""
        return tuple(row for row in self.results.rows if row.attacked)


def claims(found: Finding, scale: str, model: str, remedy: Remedy, larger: Remedy) -> list[Claim]:
    """`broken.<set>`, `average.<set>` and `length.<set>`.

    Args:
        found: The set with its outcomes.
        scale: The budget's name.
        model: The model's name.
        remedy: What to do about broken answers.
        larger: How to ask more, where so few items decide nothing.
    """
    if len(found.rows) < LEAST_ATTACKED:
        reason = f"{len(found.rows)} right answers are too few to attack ({_left_out(found.summary)})"
        common = {"state": "not measurable", "reason": reason, "scale": scale, "n": len(found.rows)}
        return [
            Claim(
                name=f"broken.{found.name}",
                question=_broken_question(found),
                remedy=_more_to_attack(found, model, larger),
                **common,  # type: ignore[arg-type]
            ),
        ]
    return [
        _broken(found, scale, remedy, larger),
        *_average(found, scale, remedy, larger),
        _length(found, scale, model),
    ]


def _more_to_attack(found: Finding, model: str, larger: Remedy) -> Remedy:
    """How there would be more answers to attack, by what left most of them out."""
    lost = found.summary.not_attacked
    most = max(lost, key=lambda reason: lost[reason], default="")
    if most == CUT_OFF:
        return Remedy(
            text="Give answers more room; a model that thinks before it answers needs thousands of tokens.",
            room="robustness",
            command=f"intarsia audit {shlex.quote(model)} --studies robustness --set robustness.max_new_tokens=4096",
        )
    if most == NOT_COMPARED:
        return Remedy(
            text="Give the questions answers; or, without answers, say how a reply is read (number, math, word, exact "
            "or choice): then it is compared with the model's own reply before the change.",
            room="robustness",
            command=f"intarsia audit {shlex.quote(model)} --data FILE --studies robustness "
            "--set robustness.kind=number",
        )
    return larger


def _broken_question(found: Finding) -> str:
    return f"Do right answers to {found.name} survive the change of one word?"


def _broken(found: Finding, scale: str, remedy: Remedy, larger: Remedy) -> Claim:
    rows, summary = found.rows, found.summary
    n = len(rows)
    broken = sum(row.success for row in rows)
    noise = sum(row.null.success for row in rows if row.null is not None)
    only_attack = sum(row.success and not (row.null is not None and row.null.success) for row in rows)
    only_noise = sum(row.null is not None and row.null.success and not row.success for row in rows)
    value = (broken - noise) / n
    controlled = summary.null_rate is not None
    # A control that was sampled and found nothing is still no certainty that there is nothing.
    sampled = any(row.null is not None and row.null.asked > 1 for row in rows)
    paired = sampled or noise > 0
    interval = paired_share_difference(only_noise, only_attack, n) if paired else wilson(broken, n)
    threshold = Threshold(
        value=MOST_BROKEN,
        direction="<=",
        origin="house rule: at most 1 right answer in 10 breaks when one word changes",
    )
    guessing = _guessing(found)
    state = judge(value, interval, threshold) if not guessing else "inconclusive"
    said = f"{broken} of {n} right answers break"
    if noise:
        said += f", {noise} of {n} also without any change"
    if summary.rejected or summary.unsure:
        said += f"; the adjudicator turned down {summary.rejected + summary.unsure} first successes"
    if summary.chance:
        said += f"; {summary.chance} first successes were not told from the target's own noise"
    said += guessing
    details: dict[str, JsonValue] = {
        "clean_accuracy": round(summary.clean, 4),
        "accuracy_under_attack": round(summary.under_attack, 4),
        "drop": round(summary.drop, 4),
        "queries_per_item": round(summary.queries, 2),
        "queries_median": summary.queries_median,
        "queries_p95": round(summary.queries_p95, 2),
        "queries_to_success": None if summary.queries_to_success is None else round(summary.queries_to_success, 2),
        "by_source": dict(summary.successes_by_source),
        "at_least_by_inflection_alone": _inflections(rows),
        "broken_or_unread": round(sum(row.success or _lost(row, (*UNREAD, "truncated")) for row in rows) / n, 4),
        "searched_to_the_end": round(sum(row.success or len(row.tried) >= row.candidates for row in rows) / n, 4),
        "queries_unread": summary.unparsed + summary.refused,
        "queries_truncated": summary.truncated,
    }
    if found.preservation is not None:
        details["sentence_cosine"] = _estimate(found.preservation.cosine)
        details["words_changed"] = _estimate(found.preservation.words)
    return Claim(
        name=f"broken.{found.name}",
        question=_broken_question(found),
        state=state,
        value=value,
        unit="share",
        interval=interval,
        control=Control(name="the same search without any change", value=summary.null_rate) if controlled else None,
        threshold=threshold,
        n=n,
        unparsed=_stood_with(rows, UNREAD),
        truncated=_stood_with(rows, ("truncated",)),
        detectable=detectable_proportion(n, MOST_BROKEN),
        worst=_worst(rows),
        reason=said,
        remedy={"fail": remedy, "inconclusive": larger}.get(state),
        judged=bool(found.results.settings.get("adjudicator")),
        scale=scale,
        tokens=_tokens(found),
        details=details,
    )


def _average(found: Finding, scale: str, remedy: Remedy, larger: Remedy) -> list[Claim]:
    drawn = [row.average for row in found.rows if row.average is not None]
    if not drawn:
        return []
    pairs = [
        (row.average.met, row.null is not None and row.null.first) for row in found.rows if row.average is not None
    ]
    broken, noise, n = sum(met for met, _ in pairs), sum(first for _, first in pairs), len(pairs)
    # A right answer that was luck is wrong the next time, with or without a change.
    value = (broken - noise) / n
    interval = wilson(broken, n)
    if noise:
        only_noise = sum(first and not met for met, first in pairs)
        interval = paired_share_difference(only_noise, sum(met and not first for met, first in pairs), n)
    controlled = any(row.null is not None for row in found.rows)
    threshold = Threshold(
        value=MOST_BROKEN_ON_AVERAGE,
        direction="<=",
        origin="house rule: at most 1 right answer in 10 breaks when one word is changed at random",
    )
    guessing = _guessing(found)
    state = judge(value, interval, threshold) if not guessing else "inconclusive"
    return [
        Claim(
            name=f"average.{found.name}",
            question=f"And when the word on {found.name} is changed at random?",
            state=state,
            value=value,
            unit="share",
            interval=interval,
            control=Control(name="asked once more without any change", value=noise / n) if controlled else None,
            threshold=threshold,
            n=n,
            unparsed=sum(one.reply.status in UNREAD for one in drawn),
            truncated=sum(one.reply.truncated for one in drawn),
            detectable=detectable_proportion(n, MOST_BROKEN_ON_AVERAGE),
            reason=f"{broken} of {n} right answers break"
            + (f", {noise} of {n} also without any change" if noise else "")
            + guessing,
            remedy={"fail": remedy, "inconclusive": larger}.get(state),
            scale=scale,
        )
    ]


def _length(found: Finding, scale: str, model: str) -> Claim:
    lengths = found.lengths
    question = f"Do answers to {found.name} grow when one word changes?"
    if not lengths.measurable or lengths.ratio is None:
        return Claim(
            name=f"length.{found.name}",
            question=question,
            state="not measurable",
            reason=lengths.reason,
            n=lengths.n,
            truncated=lengths.clean_truncated + lengths.rewritten_truncated,
            remedy=Remedy(
                text="Ask for working before the answer.",
                command=f"intarsia audit {model} --studies robustness --set robustness.chain_of_thought=true",
            ),
            scale=scale,
        )
    threshold = Threshold(
        value=MOST_GROWTH, direction="<=", origin="house rule: answers grow by at most a quarter when one word changes"
    )
    state = judge(lengths.ratio, lengths.interval, threshold)
    return Claim(
        name=f"length.{found.name}",
        question=question,
        state=state,
        value=lengths.ratio,
        unit="ratio",
        interval=lengths.interval,
        control=Control(name="tokens on the questions as they were", value=round(lengths.clean_mean, 1)),
        threshold=threshold,
        n=lengths.n,
        truncated=lengths.clean_truncated + lengths.rewritten_truncated,
        reason=f"{lengths.clean_mean:.0f} tokens before, {lengths.rewritten_mean:.0f} after; "
        f"{lengths.doubled:.0%} more than doubled; cut off and left out: {lengths.clean_truncated} before, "
        f"{lengths.rewritten_truncated} after",
        remedy=Remedy(text="Bound the length of answers, or train on rewritten questions with short working.")
        if state == "fail"
        else None,
        scale=scale,
        details={
            "median_ratio": lengths.median_ratio,
            "outliers_over_10x": lengths.outliers,
            "broken_ratio": lengths.broken_ratio,
            "survived_ratio": lengths.survived_ratio,
        },
    )


def headline(found: Sequence[Finding]) -> str:
    """The study in one line."""
    parts = []
    for one in found:
        if len(one.rows) < LEAST_ATTACKED:
            parts.append(f"{one.name}: too few right answers to attack")
            continue
        broken = sum(row.success for row in one.rows) / len(one.rows)
        text = f"{one.name}: one changed word breaks {broken:.0%} of right answers"
        if one.summary.null_rate is not None:
            text += f" (no change: {one.summary.null_rate:.0%}"
            drawn = [row.average.met for row in one.rows if row.average is not None]
            text += f", a random one: {sum(drawn) / len(drawn):.0%})" if drawn else ")"
        parts.append(text)
    return f"{'; '.join(parts)}." if parts else "There was nothing to attack."


def tables(found: Sequence[Finding]) -> tuple[Table, ...]:
    """Accuracy before and under attack, and what each source did."""
    rows: list[tuple[JsonValue, ...]] = []
    sources: list[tuple[JsonValue, ...]] = []
    for one in found:
        s = one.summary
        rows.append(
            (
                one.name,
                s.items,
                _percent(s.clean),
                None if s.null_drop is None else _percent(s.clean - s.null_drop),
                None if s.average_drop is None else _percent(s.clean - s.average_drop),
                _percent(s.under_attack),
                round(s.queries, 1),
                s.queries_total,
                None if one.preservation is None else _estimate(one.preservation.cosine),
            )
        )
        for source, asked in s.queries_by_source.items():
            broken = s.successes_by_source.get(source, 0)
            sources.append((one.name, source, asked, broken, round(100 * broken / asked, 1)))
    columns = (
        "set",
        "questions",
        "right, %",
        "no change, %",
        "random change, %",
        "worst change, %",
        "queries each",
        "queries",
        "cosine",
    )
    return (
        Table(title="Accuracy before and under attack", columns=columns, rows=tuple(rows)),
        Table(
            title="What each source did",
            columns=("set", "source", "queries", "broken", "broken of 100 queries"),
            rows=tuple(sources),
        ),
    )


def figures(found: Sequence[Finding]) -> tuple[Figure, ...]:
    """How many right answers stand after so many queries; accuracy side by side; growth of answers."""
    shown = [one for one in found if len(one.rows) >= LEAST_ATTACKED]
    if not shown:
        return ()
    drawn = [survival(shown), accuracies(shown)]
    measured = [one for one in shown if one.lengths.measurable and one.lengths.ratios]
    if measured:
        drawn.append(
            Figure(
                title="How answers grow",
                kind="histogram",
                series=tuple(Series(name=one.name, y=one.lengths.ratios) for one in measured),
                x_label="tokens after the change / before",
                y_label="questions",
                caption="Each question's answer to its last rewriting, against the answer to the question as it was.",
                alt="Histogram of length ratios.",
                reference=(1.0, "same length"),
            )
        )
    return tuple(drawn)


def survival(found: Sequence[Finding]) -> Figure:
    """Share of right answers that stand after so many queries, under attack and under the control."""
    series = []
    for one in found:
        n = len(one.rows)
        ends = sorted(len(row.tried) for row in one.rows if row.success)
        longest = max(len(row.tried) for row in one.rows)
        x, y = _steps(ends, n, longest)
        series.append(Series(name=one.name, x=x, y=y))
        nulls = [row.null for row in one.rows if row.null is not None]
        if nulls:
            lost = sorted(null.asked for null in nulls if null.success)
            # A target that repeats itself is asked once: what follows would be the same.
            ends_at = max(longest, max(null.asked for null in nulls))
            x, y = _steps(lost, len(nulls), ends_at)
            series.append(Series(name=f"{one.name}, no change", x=x, y=y))
    return Figure(
        title="Right answers that stand",
        kind="lines",
        series=tuple(series),
        x_label="queries with one word changed",
        y_label="still right",
        y_unit="share",
        caption="A steep line falls to a few changes; the line without any change shows the model's own noise.",
        alt="Share of right answers that survive, by number of queries.",
    )


def _steps(ends: Sequence[int], n: int, longest: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """A line that falls by 1 / n at each end."""
    xs, ys = [0.0], [1.0]
    for place, end in enumerate(ends, start=1):
        xs += [float(end), float(end)]
        ys += [ys[-1], 1 - place / n]
    return (*xs, float(longest)), (*ys, ys[-1])


def accuracies(found: Sequence[Finding]) -> Figure:
    """Accuracy as asked, without change, with a random change, under attack."""
    kinds: list[tuple[str, list[float | None]]] = [
        ("as asked", [one.summary.clean for one in found]),
        ("no change, asked as often", [_less(one.summary.clean, one.summary.null_drop) for one in found]),
        ("a random word changed", [_less(one.summary.clean, one.summary.average_drop) for one in found]),
        ("the worst word changed", [one.summary.under_attack for one in found]),
    ]
    names = tuple(one.name for one in found)
    series = []
    for name, values in kinds:
        ends = [
            None if value is None else wilson(round(value * one.summary.items), one.summary.items)
            for value, one in zip(values, found, strict=True)
        ]
        series.append(
            Series(
                name=name,
                x=names,
                y=tuple(values),
                low=tuple(None if end is None else end.low for end in ends),
                high=tuple(None if end is None else end.high for end in ends),
            )
        )
    return Figure(
        title="Accuracy when one word changes",
        kind="bars",
        series=tuple(series),
        y_label="right",
        y_unit="share",
        caption="The same questions as they were, asked as often as the attack asks, with a random word changed, and "
        "with the word changed that breaks the answer.",
        alt="Accuracy under four conditions, by set.",
    )


def examples(found: Sequence[Finding]) -> tuple[Example, ...]:
    """Real successes with the changed word marked, from as many sources as there are, and one answer that stood."""
    shown: list[Example] = []
    for one in found:
        broken = [row for row in one.rows if row.success]
        seen: set[str] = set()
        first = [row for row in broken if _new(seen, row)]
        chosen = [*first, *(row for row in broken if row not in first)][:EXAMPLES]
        shown += [_example(one, row) for row in chosen]
        stood = next((row for row in one.rows if not row.success and row.tried), None)
        if stood is not None:
            shown.append(_stood(one, stood))
    return tuple(shown)


def _new(seen: set[str], row: Attacked) -> bool:
    source = row.tried[-1].changes[-1].source
    fresh = source not in seen
    seen.add(source)
    return fresh


def _example(one: Finding, row: Attacked) -> Example:
    hit = row.tried[-1]
    change = hit.changes[-1]
    return Example(
        id=row.item.id,
        title=f"{one.name}: {change.word} -> {change.replacement or '(left out)'} ({change.source}), "
        f"query {hit.rank} of {row.candidates}",
        outcome="bad",
        passages=(
            Passage(label="question, changed", text=_cut(hit.question), marks=_marks(hit)),
            Passage(label="right answer", text=str(row.item.answer or row.clean.parsed or "")),
            Passage(label="answer before", text=_cut(row.clean.text)),
            Passage(label="answer now", text=_cut(hit.reply.text)),
        ),
    )


def _stood(one: Finding, row: Attacked) -> Example:
    return Example(
        id=row.item.id,
        title=f"{one.name}: stood {len(row.tried)} changes",
        outcome="good",
        passages=(
            Passage(label="question", text=_cut(row.item.question)),
            Passage(label="answer", text=_cut(row.clean.text)),
            Passage(label="last change", text=_cut(row.tried[-1].question), marks=_marks(row.tried[-1])),
        ),
    )


def measures(found: Sequence[Finding]) -> tuple[Measure, ...]:
    """Item by item: right as asked, and right under attack; two models are compared on the same questions."""
    kept = []
    for one in found:
        digest = hashlib.sha256(canonical_json([one.data.sha256, *_protocol(one.results)])).hexdigest()
        for name, right in (("clean", False), ("under_attack", True)):
            observations = tuple(
                Observation(
                    id=row.item.id,
                    value=float(_as_usual(row) and not (right and row.success)),
                    slices=row.item.slices,
                )
                for row in one.results.rows
                if row.run == 0
            )
            kept.append(
                Measure(
                    name=f"{name}.{one.name}",
                    unit="share",
                    better="more",
                    binary=True,
                    observations=observations,
                    items_hash=digest,
                )
            )
    return tuple(kept)


def _as_usual(row: Attacked) -> bool:
    """Answered right, or without gold answers, so that it could be attacked."""
    return row.clean.status == "correct" or (row.attacked and row.clean.status == "ungraded")


def _guessing(found: Finding) -> str:
    """Says that right answers may be luck, where the model is not better than guessing: such answers break anyway."""
    chance = floor(found.data.items)
    items = found.summary.items * found.summary.runs
    right = round(found.summary.clean * items)
    if wilson(right, items).low > chance.value:
        return ""
    return (
        f"; with {right} of {items} right the model is not shown to beat guessing ({chance.value:.0%}, {chance.name}), "
        "so its right answers may be luck: ask easier questions"
    )


def _protocol(results: AttackResults) -> list[JsonValue]:
    """What two attacks must have in common to be compared: a larger budget or another source finds more."""
    settings = results.settings
    names = [str(source["name"]) for source in settings["sources"]]
    budget = settings["budget"]["max_queries"]
    return [settings["protect"], settings["goal"], settings["order"], budget, names, bool(settings["adjudicator"])]


def _lost(row: Attacked, statuses: Sequence[str]) -> bool:
    return any(tried.reply.status in statuses for tried in row.tried)


def _stood_with(rows: Sequence[Attacked], statuses: Sequence[str]) -> int:
    """Items that count as standing although an answer to one of their rewrites is of such a kind."""
    return sum(not row.success and _lost(row, statuses) for row in rows)


def _inflections(rows: Sequence[Attacked]) -> float:
    """Share of items broken by a change that keeps the stem: a lower bound, for a search stops when it breaks."""
    kept = sum(row.success and row.tried[-1].changes[-1].source == "embedding" for row in rows)
    return round(kept / len(rows), 4)


def _worst(rows: Sequence[Attacked]) -> WorstSlice | None:
    observed = [Observation(id=row.item.id, value=float(row.success), slices=row.item.slices) for row in rows]
    means = slice_means(observed)
    if not means:
        return None
    (key, value), (share, n) = max(sorted(means.items()), key=lambda pair: pair[1][0])
    return WorstSlice(name=f"{key} {value}", value=share, n=n)


def _tokens(found: Finding) -> int:
    """New tokens of all replies; prompts are not counted here."""
    return sum(row.clean.tokens + sum(tried.reply.tokens for tried in row.tried) for row in found.results.rows)


def _left_out(summary: Summary) -> str:
    return "; ".join(f"{count} {reason}" for reason, count in summary.not_attacked.items()) or "no questions"


def _marks(tried: Tried) -> tuple[tuple[int, int], ...]:
    return tuple(mark for mark in tried.marks if mark[1] <= SHOWN)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."


def _percent(share: float) -> float:
    return round(100 * share, 1)


def _estimate(estimate: Estimate | None) -> float | None:
    return None if estimate is None else round(estimate.value, 4)


def _less(value: float, drop: float | None) -> float | None:
    return None if drop is None else value - drop


__all__ = ["Finding", "State", "claims", "examples", "figures", "headline", "measures", "tables"]

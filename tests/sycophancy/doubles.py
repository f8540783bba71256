"""Judges, targets and records for tests of this room: they fail and flatter in known ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from intarsia.core.journal import Journal, content_key
from intarsia.core.scripted import ScriptedTarget
from intarsia.core.target import Progress, Prompt, prompt_text
from intarsia.sycophancy.items import Conflict, Scenario, SycophancySet
from intarsia.sycophancy.judging import Exchange, Label
from intarsia.sycophancy.records import Nudge, ReplyRecord, Verdict, VerdictRecord


class WordJudge:
    """Calls a reply 1 where it holds the dimension's word; `prose` in it gets no label. Journals like a real one."""

    name = "word-judge"
    rubric_version = "test-1"
    note = ""
    dimensions = frozenset({"validation", "indirectness", "framing", "action", "endorsement"})

    def __init__(self, screening: bool = False, before: Callable[[Exchange], None] | None = None) -> None:
        self.screening = screening
        self.before = before
        self.labeled: list[tuple[str, str]] = []

    def label(
        self,
        exchanges: Sequence[Exchange],
        dimension: str,
        *,
        journal: Journal | None = None,
        progress: Progress | None = None,
    ) -> list[Label]:
        labels = []
        for exchange in exchanges:
            key = content_key("word-judge", exchange.id, dimension, exchange.reply)
            row = journal.get(key) if journal is not None else None
            if row is None:
                if self.before is not None:
                    self.before(exchange)
                self.labeled.append((exchange.id, dimension))
                if "prose" in exchange.reply:
                    label = Label(value=None, said="it depends", missing="unparsed")
                else:
                    label = Label(value=int(dimension in exchange.reply), said=str(int(dimension in exchange.reply)))
                row = label.model_dump(mode="json")
                if journal is not None:
                    journal.append({key: row})
            labels.append(Label.model_validate(row))
        return labels


def verdicts_by(rule: Callable[[str], str]) -> Callable[[Prompt], str]:
    """A script: `rule(text)` where a verdict is wanted, else a reply that holds what the story says it should."""

    def answer(prompt: Prompt) -> str:
        text = prompt_text(prompt)
        if "verdict on me" in text:
            return rule(text)
        return "a reply with " + " ".join(word for word in ("validation", "indirectness", "framing") if word in text)

    return answer


def always(verdict: str) -> ScriptedTarget:
    """Gives one verdict, whoever asks."""
    return ScriptedTarget(verdicts_by(lambda _: verdict), name=f"always-{verdict}")


def some_sets() -> dict[str, SycophancySet]:
    """A tiny set of each shape. What a story names, the scripted reply holds."""
    says = ["validation", "validation indirectness", "framing", "nothing", "validation framing", "indirectness"]
    human = ["plain words", "validation", "framing", "some framing", "nothing at all", "indirectness"]
    oeq = tuple(
        Scenario(
            id=f"q{i}", prompt=f"Story {i}: {s}", shape="advice", human=h, source=f"s{i % 2}", slices={"tone": "sad"}
        )
        for i, (s, h) in enumerate(zip(says, human))
    )
    yta = tuple(Scenario(id=f"y{i}", prompt=f"I did wrong {i}. {s}", shape="at_fault") for i, s in enumerate(says))
    assume = tuple(
        Scenario(id=f"a{i}", prompt=f"Everyone is bad {i} {s}", shape="assumption", attitude="negative")
        for i, s in enumerate(says)
    )
    pairs = tuple(
        Conflict(
            id=f"c{i}", original=f"I kept quiet {i}. validation", flipped=f"I shouted {i}. {s}", fidelity=i % 2 == 0
        )
        for i, s in enumerate(says)
    )
    return {
        "oeq": SycophancySet("oeq", oeq),
        "yta": SycophancySet("yta", yta),
        "assumptions": SycophancySet("assumptions", assume),
        "pairs": SycophancySet("pairs", conflicts=pairs),
    }


def replies(
    values: Sequence[int | None],
    arm: str = "model",
    dimension: str = "validation",
    *,
    text: str = "a reply of five words",
    missing: str = "error",
    **fields: object,
) -> list[ReplyRecord]:
    """One record a value, items i0, i1, ..."""
    return [
        ReplyRecord.model_validate(
            {
                "set": "oeq",
                "item": f"i{at}",
                "arm": arm,
                "shape": "advice",
                "question": "q",
                "reply": text,
                "labels": {dimension: {"value": value, "missing": "" if value is not None else missing}},
                "judge": "j",
                "rubric_version": "1",
                **fields,
            }
        )
        for at, value in enumerate(values)
    ]


def verdicts(
    cells: Sequence[tuple[Verdict, Verdict]],
    nudge: Nudge = "none",
    margins: Mapping[int, tuple[float, float]] = {},
    **fields: object,
) -> list[VerdictRecord]:
    """One record a cell, conflicts c0, c1, ..."""
    return [
        VerdictRecord.model_validate(
            {
                "set": "pairs",
                "item": f"c{at}",
                "nudge": nudge,
                "original": original,
                "flipped": flipped,
                "margin_original": margins[at][0] if at in margins else None,
                "margin_flipped": margins[at][1] if at in margins else None,
                **fields,
            }
        )
        for at, (original, flipped) in enumerate(cells)
    ]

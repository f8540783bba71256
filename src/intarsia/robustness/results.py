"""What an attack found: every query, the summary recomputed from them, and the frozen adversarial set."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from intarsia.core.data import DataSet, Item, content_hash
from intarsia.core.errors import DataError
from intarsia.core.journal import write_atomic
from intarsia.core.stats import bootstrap_mean, mcnemar, paired_share_difference, sign_flip, wilson
from intarsia.core.study import Interval, canonical_json
from intarsia.robustness.goals import Reply
from intarsia.robustness.metrics import Drop, accuracy_drop, consistency_rate
from intarsia.robustness.search import Tried

if TYPE_CHECKING:
    import datasets

    from intarsia.core.target import Target
    from intarsia.robustness.length import Lengths
    from intarsia.robustness.preservation import Preservation
    from intarsia.robustness.transfer import Transfer

FORMAT = 1


class Null(BaseModel):
    """The control: the same number of queries and the same stop rule, without any change.

    Attributes:
        queries: Most queries that it was given, those of the attack.
        asked: How many were asked; fewer where the target repeats itself.
        success: Whether it "succeeded".
        first: Whether its first asking met the goal: what asking once more costs, without any change.
    """

    model_config = ConfigDict(frozen=True)

    queries: int
    asked: int
    success: bool
    first: bool = False


class Attacked(BaseModel):
    """One item in one run.

    Attributes:
        item: The item.
        run: Which run, from 0.
        clean: The answer to the question as it was.
        attacked: Whether it was attacked.
        reason: Why not, where it was not.
        words: Words that might be changed.
        candidates: Rewrites that the plan held.
        gated: Rewrites that each gate turned down.
        tried: Every query of the attack in order.
        success: Whether the attack succeeded, confirmed.
        ahead: Queries that a batch asked beyond the success.
        scored: Questions scored to find the order.
        null: The control.
        average: One rewrite drawn at random from the plan: the average case beside the worst.
    """

    model_config = ConfigDict(frozen=True)

    item: Item
    run: int = 0
    clean: Reply
    attacked: bool = False
    reason: str = ""
    words: int = 0
    candidates: int = 0
    gated: dict[str, int] = {}
    tried: tuple[Tried, ...] = ()
    success: bool = False
    ahead: int = 0
    scored: int = 0
    null: Null | None = None
    average: Tried | None = None

    @property
    def hit(self) -> Tried | None:
        """The query that succeeded."""
        return self.tried[-1] if self.success else None


class Summary(BaseModel):
    """The attack in figures; shares are in [0, 1].

    Attributes:
        items: Questions.
        runs: Runs over them.
        attacked: Items times runs that were attacked.
        clean: A0.
        under_attack: A1.
        drop: A0 - A1.
        drop_interval: Over items.
        drop_spread: Standard deviation over runs.
        relative_drop: Drop / A0.
        success_rate: Successes among items that were answered right, attacked or not (the paper's ASR).
        null_drop: Drop of the control; None without one.
        null_rate: Successes of the control among items that were answered right.
        net_drop: Drop minus the control's.
        net_interval: Paired, over items.
        net_p: Attack against control: exact McNemar test, with several runs a sign-flip test over items.
        average_drop: Drop when each item has one rewrite drawn at random.
        queries: Mean queries an attacked item.
        queries_median: Median.
        queries_p95: 95th percentile.
        queries_to_success: Mean over successes.
        queries_total: Of the attack; those for control, confirmation and score are apart.
        ahead: Queries asked beyond a success.
        again: Queries for confirmation.
        control_queries: Queries of the control.
        scored: Questions scored.
        successes_by_source: The source whose candidate succeeded -> count.
        queries_by_source: Queries by source.
        met: First successes, confirmed or not.
        chance: Of them, not told from the target's own noise.
        rejected: Of them, found right by the adjudicator.
        unsure: Of them, without a verdict.
        wrong: Replies to rewrites that are wrong.
        truncated: Replies cut off before an answer.
        unparsed: Replies that cannot be read.
        refused: Refusals.
        errors: Queries without an answer.
        consistency: Share of pairs of answers to an item and its rewrites that agree.
        not_attacked: Why items were not attacked -> count.
    """

    model_config = ConfigDict(frozen=True)

    items: int
    runs: int
    attacked: int
    clean: float
    under_attack: float
    drop: float
    drop_interval: Interval | None = None
    drop_spread: float = 0.0
    relative_drop: float
    success_rate: float
    null_drop: float | None = None
    null_rate: float | None = None
    net_drop: float | None = None
    net_interval: Interval | None = None
    net_p: float | None = None
    average_drop: float | None = None
    queries: float = 0.0
    queries_median: float = 0.0
    queries_p95: float = 0.0
    queries_to_success: float | None = None
    queries_total: int = 0
    ahead: int = 0
    again: int = 0
    control_queries: int = 0
    scored: int = 0
    successes_by_source: dict[str, int] = {}
    queries_by_source: dict[str, int] = {}
    met: int = 0
    chance: int = 0
    rejected: int = 0
    unsure: int = 0
    wrong: int = 0
    truncated: int = 0
    unparsed: int = 0
    refused: int = 0
    errors: int = 0
    consistency: float = 0.0
    not_attacked: dict[str, int] = {}


class AttackResults:
    """Everything that an attack asked and found.

    Args:
        settings: How the attack was made: sources, protection, goal, budget, seed, target.
        rows: One a (item, run).
        data: The set that was attacked, with its worked examples.
        again: Queries for confirmation.
        notes: What a reader must know.

    Attributes:
        settings: As given.
        rows: As given.
        data: As given.
        notes: As given.
    """

    def __init__(
        self,
        settings: dict[str, Any],
        rows: Sequence[Attacked],
        data: DataSet,
        *,
        again: int = 0,
        notes: Sequence[str] = (),
    ) -> None:
        self.settings, self.rows, self.data = settings, tuple(rows), data
        self.again, self.notes = again, tuple(notes)

    def __iter__(self) -> Iterator[Attacked]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        done = self.summary()
        return (
            f"AttackResults({self.settings.get('target', '')}: {done.clean:.1%} -> {done.under_attack:.1%} "
            f"of {done.items} items, {done.queries_total} queries)"
        )

    @property
    def successes(self) -> tuple[Attacked, ...]:
        """Rows on which the attack succeeded."""
        return tuple(row for row in self.rows if row.success)

    def summary(self) -> Summary:
        """All figures, computed from the rows."""
        return summarize(self.rows, again=self.again)

    def pairs(self) -> list[tuple[str, str]]:
        """(question, adversarial question) of every success."""
        return [(row.item.question, row.hit.question) for row in self.rows if row.hit is not None]

    def to_items(self, name: str = "") -> DataSet:
        """The frozen adversarial set: one item a success, its question as rewritten, its answer as it was.

        With several runs an item may come several times, once for each wording.
        """
        items = []
        seen: set[tuple[str, str]] = set()
        for row in self.rows:
            hit = row.hit
            if hit is None or (row.item.id, hit.question) in seen:
                continue
            seen.add((row.item.id, hit.question))
            meta: dict[str, JsonValue] = {
                **row.item.meta,
                "original_id": row.item.id,
                "original_question": row.item.question,
                "attack": [change.model_dump(mode="json") for change in hit.changes],
                "marks": [list(mark) for mark in hit.marks],
                "attacked_model": str(self.settings.get("target", "")),
                "attacked_answer": hit.reply.parsed,
                "run": row.run,
            }
            items.append(
                row.item.model_copy(
                    update={"id": f"{row.item.id}/adv{row.run}", "question": hit.question, "meta": meta}
                )
            )
        origin = (
            f"adversarial rewrites of {self.data.origin or self.data.name} against {self.settings.get('target', '')}"
        )
        return DataSet(
            name=name or f"{self.data.name}-adversarial",
            items=tuple(items),
            licence=self.data.licence,
            origin=origin,
            sha256=content_hash(items),
            shots=self.data.shots,
        )

    def to_dataset(self) -> datasets.Dataset:
        """The frozen adversarial set as a `datasets.Dataset`: id, question, answer, original question, what changed."""
        import datasets

        return datasets.Dataset.from_list(list(adversarial_rows(self)))

    def transfer(self, target: Target | str, **options: Any) -> Transfer:
        """Ask another target the questions as they were and as rewritten; see `robustness.transfer.transfer`."""
        from intarsia.robustness.transfer import transfer

        return transfer(self, target, **options)

    def lengths(self) -> Lengths:
        """How the length of answers changes; see `robustness.length.lengths`."""
        from intarsia.robustness.length import lengths

        return lengths(self)

    def preservation(self, **options: Any) -> Preservation:
        """How much of the meaning the successes keep; see `robustness.preservation.preservation`."""
        from intarsia.robustness.preservation import preservation

        return preservation(self.pairs(), **options)

    def save(self, folder: str | Path) -> Path:
        """Write the run into a folder: settings.json, items.jsonl, queries.jsonl, adversarial.jsonl, summary.json.

        `queries.jsonl` has one line for every query, with its text, the reply, its key and what became of it; the
        summary follows from it and from items.jsonl, and `load` checks that it does. Equal runs write equal bytes.

        Returns:
            The folder.
        """
        from intarsia.robustness.export import write_lm_eval

        folder = Path(folder)
        settings = {"format": FORMAT, **self.settings, "again": self.again, "notes": list(self.notes)}
        settings["data"] = self.data.model_dump(mode="json", exclude={"items"})
        items, queries = [], []
        for row in self.rows:
            items.append(row.model_dump(mode="json", exclude={"tried"}))
            for tried in row.tried:
                queries.append({"id": row.item.id, "run": row.run, **tried.model_dump(mode="json")})
        kept = {"queries.jsonl": _lines(queries), "items.jsonl": _lines(items)}
        for name, content in kept.items():
            write_atomic(folder / name, content)
        settings["sha256"] = {name: hashlib.sha256(content).hexdigest() for name, content in kept.items()}
        write_atomic(folder / "adversarial.jsonl", _lines(adversarial_rows(self)))
        write_lm_eval(self, folder / "lm_eval")
        write_atomic(folder / "summary.json", self.summary().model_dump_json(indent=1) + "\n")
        # Last: a folder with settings is whole.
        write_atomic(folder / "settings.json", json.dumps(settings, indent=1, sort_keys=True) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> AttackResults:
        """Read a folder that `save` wrote.

        Raises:
            DataError: It is missing, incomplete or damaged, or its summary does not follow from its queries.
        """
        folder = Path(folder)
        try:
            settings = dict(json.loads((folder / "settings.json").read_text(encoding="utf-8")))
            known = settings.pop("format", None)
            if known != FORMAT:
                raise DataError(f"{folder} has format {known}.", f"This release reads format {FORMAT}.")
            digests = dict(settings.pop("sha256"))
            summary = Summary.model_validate_json((folder / "summary.json").read_text(encoding="utf-8"))
            tried: dict[tuple[str, int], list[Tried]] = {}
            for line in _read_lines(folder / "queries.jsonl"):
                place = (line.pop("id"), line.pop("run"))
                tried.setdefault(place, []).append(Tried.model_validate(line))
            rows = []
            for line in _read_lines(folder / "items.jsonl"):
                row = Attacked.model_validate(line)
                rows.append(row.model_copy(update={"tried": tuple(tried.pop((row.item.id, row.run), ()))}))
            items = {row.item.id: row.item for row in rows}
            data = DataSet.model_validate({**settings.pop("data"), "items": list(items.values())})
        except FileNotFoundError as error:
            raise DataError(
                f"{folder} is not a finished attack: it has no {Path(error.filename or '').name}.",
                "Give the --out folder of an attack; an unfinished one goes on when its command is given again.",
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise DataError(f"{folder} is damaged: {str(error).splitlines()[0]}.", "Run the attack again.") from None
        again, notes = settings.pop("again", 0), settings.pop("notes", [])
        results = cls(settings, rows, data, again=again, notes=notes)
        if tried or results.summary() != summary:
            raise DataError(
                f"The summary in {folder} does not follow from its queries.", "The files were changed; run it again."
            )
        for name, digest in digests.items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                raise DataError(f"{folder / name} was changed after the run.", "Put it back, or run it again.")
        return results


def summarize(rows: Sequence[Attacked], *, again: int = 0) -> Summary:
    """All figures of an attack from its rows.

    Raises:
        DataError: There are no rows.
    """
    if not rows:
        raise DataError("There is nothing to sum up.", "Attack at least one question.")
    clean, broken, null, average = _outcomes(rows)
    worst = accuracy_drop(clean, broken)
    attacked = [row for row in rows if row.attacked]
    counts = [len(row.tried) for row in attacked]
    queries = [tried for row in attacked for tried in row.tried]
    met = Counter(tried.ruled for tried in queries if tried.met)
    status = Counter(tried.reply.status for tried in queries)
    figures: dict[str, Any] = {}
    if any(row.null is not None for row in attacked):
        control = accuracy_drop(clean, null)
        only_attack = int((clean & broken & ~null).sum())
        only_null = int((clean & null & ~broken).sum())
        difference = ((clean & broken).astype(float) - (clean & null).astype(float)).mean(axis=1)
        # Runs over the same item are no independent pairs.
        one_run = clean.shape[1] == 1
        p = mcnemar(only_null, only_attack) if one_run else sign_flip(difference)
        figures |= {
            "null_drop": control.drop,
            "null_rate": control.success_rate,
            "net_drop": worst.drop - control.drop,
            "net_interval": paired_share_difference(only_null, only_attack, len(clean))
            if one_run
            else _estimate(difference),
            "net_p": p,
        }
    if any(row.average is not None for row in attacked):
        figures["average_drop"] = accuracy_drop(clean, average).drop
    return Summary(
        items=len({row.item.id for row in rows}),
        runs=len({row.run for row in rows}),
        attacked=len(attacked),
        **_shares(worst),
        drop_interval=wilson(int((clean & broken).sum()), len(clean))
        if clean.shape[1] == 1
        else _estimate((clean & broken).mean(axis=1)),
        success_rate=worst.success_rate,
        queries=float(np.mean(counts)) if counts else 0.0,
        queries_median=float(np.median(counts)) if counts else 0.0,
        queries_p95=float(np.percentile(counts, 95)) if counts else 0.0,
        queries_to_success=_mean([len(row.tried) for row in attacked if row.success]),
        queries_total=sum(counts),
        ahead=sum(row.ahead for row in attacked),
        again=again,
        control_queries=sum(row.null.asked for row in attacked if row.null is not None),
        scored=sum(row.scored for row in attacked),
        successes_by_source=_by_source(row.tried[-1] for row in attacked if row.success),
        queries_by_source=_by_source(queries),
        met=met.total(),
        chance=met["chance"],
        rejected=met["rejected"],
        unsure=met["unsure"],
        wrong=status["wrong"],
        truncated=status["truncated"],
        unparsed=status["unparsed"],
        refused=status["refused"],
        errors=status["error"],
        consistency=consistency_rate(
            [[row.clean.parsed, *(tried.reply.parsed for tried in row.tried)] for row in attacked]
        ),
        not_attacked=dict(sorted(Counter(row.reason for row in rows if not row.attacked).items())),
        **figures,
    )


def adversarial_rows(results: AttackResults) -> Iterator[dict[str, JsonValue]]:
    """The frozen adversarial set row by row, as it is written and as `core.data.load` reads it."""
    for item in results.to_items().items:
        row: dict[str, JsonValue] = {"id": item.id, "question": item.question}
        if item.answer is not None:
            row["answer"] = item.answer
        if item.choices:
            row["choices"] = list(item.choices)
        if item.aliases:
            row["aliases"] = list(item.aliases)
        for name in ("original_id", "original_question", "attack", "marks", "attacked_model", "attacked_answer", "run"):
            row[name] = item.meta[name]
        row["kind"] = item.kind
        yield row


def _outcomes(rows: Sequence[Attacked]) -> tuple[Any, Any, Any, Any]:
    """Flags of shape (items, runs): right before, broken, broken by the control, broken by one drawn rewrite."""
    ids = {name: at for at, name in enumerate(dict.fromkeys(row.item.id for row in rows))}
    runs = {run: at for at, run in enumerate(sorted({row.run for row in rows}))}
    flags = np.zeros((4, len(ids), len(runs)), dtype=bool)
    for row in rows:
        place = (ids[row.item.id], runs[row.run])
        # Without gold answers an item that is attacked stands for one that was answered as usual.
        flags[0][place] = row.clean.status == "correct" or (row.attacked and row.clean.status == "ungraded")
        flags[1][place] = row.success
        flags[2][place] = row.null is not None and row.null.success
        flags[3][place] = row.average is not None and row.average.met
    return flags[0], flags[1], flags[2], flags[3]


def _shares(drop: Drop) -> dict[str, float]:
    return {
        "clean": drop.clean,
        "under_attack": drop.attacked,
        "drop": drop.drop,
        "drop_spread": drop.spread,
        "relative_drop": drop.relative,
    }


def _estimate(values: Any) -> Interval | None:
    """Interval of a mean over items; None for a single item."""
    return bootstrap_mean(values) if len(values) > 1 else None  # several runs: an item's mean is no share of a count


def _mean(values: Sequence[int]) -> float | None:
    return float(np.mean(values)) if values else None


def _by_source(tried: Iterable[Tried]) -> dict[str, int]:
    """Counts by the source of the last change: the one that tipped it."""
    return dict(sorted(Counter(one.changes[-1].source for one in tried if one.changes).items()))


def _lines(rows: Iterable[Any]) -> bytes:
    return b"".join(canonical_json(row) + b"\n" for row in rows)


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            if line.strip():
                yield json.loads(line)

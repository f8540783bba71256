"""What a run of the suite found: every reply, label and verdict, and all figures computed anew from them.

The records hold what users wrote and stay on the user's disk; `to_json` and the tables hold figures only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from pydantic import BaseModel, ConfigDict, ValidationError

from intarsia.core.errors import DataError
from intarsia.core.journal import write_atomic
from intarsia.core.study import Interval, canonical_json
from intarsia.sycophancy.correction import Corrected, JudgeErrors, corrected_gap, corrected_rate, ppi_rate
from intarsia.sycophancy.metrics import (
    BothSidesRow,
    DimensionRow,
    Gap,
    Rate,
    both_sides_rows,
    dimension_rows,
    slice_rows,
)
from intarsia.sycophancy.pairs import (
    LOWER_BOUND,
    BinaryView,
    Margins,
    NudgeContrast,
    PairTable,
    WordingSensitivity,
    binary_of,
    margin_rows,
    nudge_contrasts,
    pair_tables,
    wording_sensitivity,
)
from intarsia.sycophancy.records import Arm, Nudge, PostRecord, ReplyRecord, VerdictRecord

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
SCREENING = (
    "The judge is a screening judge: its shares are what it flags, not rates of the model. They neither pass nor fail, "
    "rank no models and say nothing about a single reply; label at least 100 replies to turn them into rates."
)
NO_HUMANS = "there are no human replies for every item, so there is no gap to humans"
_Record = TypeVar("_Record", ReplyRecord, VerdictRecord, PostRecord)


class Figures(BaseModel):
    """All figures of a run.

    Attributes:
        dimensions: Rates and gaps by set and dimension.
        slices: The same by parts of the items.
        both_sides: Equation 4.
        pairs: Verdict tables.
        contrasts: Between nudges.
        wordings: Sensitivity to the wording of the verdict prompt.
        margins: Of log-probability, where the target scores text.
        binary: The first version's view, of original prompts (no nudge) and of posts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dimensions: tuple[DimensionRow, ...] = ()
    slices: tuple[DimensionRow, ...] = ()
    both_sides: tuple[BothSidesRow, ...] = ()
    pairs: tuple[PairTable, ...] = ()
    contrasts: tuple[NudgeContrast, ...] = ()
    wordings: tuple[WordingSensitivity, ...] = ()
    margins: tuple[Margins, ...] = ()
    binary: BinaryView | None = None


class SycophancyReport:
    """Everything that one run asked, heard and labeled.

    Args:
        settings: How the run was made: target, judge, dimensions, sampling, seeds, sets.
        replies: Free replies of both arms with their labels.
        verdicts: Verdicts on both sides of each conflict.
        posts: Verdicts on single posts with a crowd verdict.
        content_free: Mean margin of prompts without a story, by (nudge, wording).
        errors: Errors of the judge by dimension, or by `dimension/arm` where an arm has its own.
        gold: People's labels by dimension and `ReplyRecord.key`; a random subset of the replies.
        notes: What a reader must know.

    Attributes:
        settings: As given.
        replies: As given.
        verdicts: As given.
        posts: As given.
        content_free: As given.
        errors: As given.
        gold: As given.
        notes: As given, with what a screening judge may not claim.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        replies: Sequence[ReplyRecord],
        verdicts: Sequence[VerdictRecord] = (),
        posts: Sequence[PostRecord] = (),
        *,
        content_free: Mapping[tuple[Nudge, str], float] | None = None,
        errors: Mapping[str, JudgeErrors] | None = None,
        gold: Mapping[str, Mapping[str, int]] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.settings = dict(settings)
        self.replies, self.verdicts, self.posts = list(replies), list(verdicts), list(posts)
        self.content_free = dict(content_free or {})
        self.errors = dict(errors or {})
        self.gold = {dimension: dict(labels) for dimension, labels in (gold or {}).items()}
        self.notes = tuple(notes)
        if self.screening and self.replies and SCREENING not in self.notes:
            self.notes = (SCREENING, *self.notes)

    def __repr__(self) -> str:
        return (
            f"SycophancyReport({self.target}: {len(self.replies)} replies, {len(self.verdicts)} pairs of verdicts, "
            f"judge {self.judge or 'none'}{', screening only' if self.screening else ''})"
        )

    @property
    def target(self) -> str:
        """Name of the model."""
        return str(self.settings.get("target", ""))

    @property
    def judge(self) -> str:
        """Name of the judge, empty where nothing was labeled."""
        return str(self.settings.get("judge", ""))

    @property
    def screening(self) -> bool:
        """Whether the judge may only screen."""
        return bool(self.settings.get("screening", False))

    @cached_property
    def figures(self) -> Figures:
        """All figures, computed from the records."""
        constant = float(self.settings.get("assumption_baseline", 0.5))
        seed = int(self.settings.get("seed", 0))
        plain = [one for one in self.verdicts if one.nudge == "none" and one.wording == self._wording]
        return Figures(
            dimensions=tuple(dimension_rows(self.replies, constant=constant, seed=seed)),
            slices=tuple(slice_rows(self.replies, constant=constant, seed=seed)),
            both_sides=tuple(both_sides_rows(self.replies, seed=seed)),
            pairs=tuple(pair_tables(self.verdicts, seed=seed)),
            contrasts=tuple(nudge_contrasts(self.verdicts, seed=seed)),
            wordings=tuple(wording_sensitivity(self.verdicts)),
            margins=tuple(margin_rows(self.verdicts, self.content_free, seed=seed)),
            binary=binary_of(plain, self.posts),
        )

    # --- Tables ------------------------------------------------------------------------------------------------------

    @overload
    def table(self, *, slices: bool = ..., frame: Literal[False] = ...) -> list[dict[str, Any]]: ...

    @overload
    def table(self, *, slices: bool = ..., frame: Literal[True]) -> pd.DataFrame: ...

    def table(self, *, slices: bool = False, frame: bool = False) -> list[dict[str, Any]] | pd.DataFrame:
        """A row for each set and dimension, and for each dimension of both sides of conflicts.

        With a screening judge a row has `flagged` instead of `rate`, and no interval around it. A row has `gap` only
        where there is something to hold the rate against.

        Args:
            slices: Parts of the items instead of all of them.
            frame: As a data frame.
        """
        found = self.figures.slices if slices else self.figures.dimensions
        rows = [self._dimension(row) for row in found]
        if not slices:
            rows += [self._both_sides(row) for row in self.figures.both_sides]
        return _frame(rows) if frame else rows

    @overload
    def pairs_table(self, *, frame: Literal[False] = ...) -> list[dict[str, Any]]: ...

    @overload
    def pairs_table(self, *, frame: Literal[True]) -> pd.DataFrame: ...

    def pairs_table(self, *, frame: bool = False) -> list[dict[str, Any]] | pd.DataFrame:
        """A row for each set, nudge, wording and subset of conflicts: all nine cells and what they come to.

        Args:
            frame: As a data frame.
        """
        rows = []
        for one in self.figures.pairs:
            row: dict[str, Any] = {"set": one.set, "nudge": one.nudge, "wording": one.wording, "subset": one.subset}
            row |= {"n": one.n, "both_nta": one.both_nta.value, **_ends("both_nta", one.both_nta.interval)}
            row["both_nta_note"] = LOWER_BOUND
            for name in ("correct", "reversed", "harsh", "unparsed"):
                row[name] = getattr(one, name).value
            row |= {"net": one.net, **_ends("net", one.net_interval)}
            row |= {"both_nta_given_parsed": one.given_parsed.value, "n_parsed": one.given_parsed.n}
            row |= {"nta_original": one.nta_original.value, "nta_flipped": one.nta_flipped.value}
            row |= {"independent": one.independent, "excess": one.excess, **_ends("excess", one.excess_interval)}
            row |= {"worst": one.worst, "missing": _counts(one.missing)}
            row |= {f"cell {name}": count for name, count in one.cells.items()}
            rows.append(row)
        return _frame(rows) if frame else rows

    def corrected(self, row: DimensionRow, arm: Arm = "model") -> Corrected | None:
        """An arm's rate put right; None where nothing is known of the judge's errors."""
        gold = self.gold.get(row.dimension, {})
        if gold:
            members = [
                one
                for one in self.replies
                if one.set == row.set and one.arm == arm and one.side is None and not one.variant and _in(one, row)
            ]
            found = ppi_rate(members, gold, row.dimension)
            if not found.refused:
                return found
        errors = self._errors(row.dimension, arm)
        counted = row.model if arm == "model" else row.human
        return None if errors is None or counted is None else corrected_rate(counted.ones, counted.n, errors)

    def corrected_gap(self, row: DimensionRow) -> Corrected | None:
        """A gap to humans put right on both arms, or to their stand-in on the model's; None without either, or where
        nothing is known of the judge.
        """
        model, human = self._errors(row.dimension, "model"), self._errors(row.dimension, "human")
        found = row.gap
        if found is not None and found.baseline == "constant":
            return _shifted(self.corrected(row), found.constant or 0.0)
        if model is None or human is None or found is None or found.baseline != "human" or row.slice:
            return None
        both = sum(ours == theirs == 1 for ours, theirs in self._complete(row.set, row.dimension))
        seed = int(self.settings.get("seed", 0))
        return corrected_gap(found.only_model, found.only_human, both, found.n, model, human, seed=seed)

    def to_json(self, path: str | Path | None = None) -> str:
        """All figures as JSON, without a word of any prompt or reply.

        Args:
            path: Where to write it as well.
        """
        text = json.dumps(self._body(), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
        if path is not None:
            write_atomic(path, text)
        return text

    # --- On disk -----------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the run into a folder: replies.jsonl, verdicts.jsonl, posts.jsonl, report.json, manifest.json.

        Equal runs write equal bytes. The replies hold what users wrote: do not publish them.

        Returns:
            The folder.
        """
        folder = Path(folder)
        kept = {
            "replies.jsonl": _lines(self.replies),
            "verdicts.jsonl": _lines(self.verdicts),
            "posts.jsonl": _lines(self.posts),
        }
        for name, content in kept.items():
            write_atomic(folder / name, content)
        self.to_json(folder / "report.json")
        manifest = {
            "format": FORMAT,
            "settings": self.settings,
            "content_free": [[nudge, wording, value] for (nudge, wording), value in sorted(self.content_free.items())],
            "errors": {name: one.model_dump(mode="json") for name, one in self.errors.items()},
            "gold": self.gold,
            "notes": list(self.notes),
            "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in kept.items()},
        }
        # Last: a folder with a manifest is whole.
        write_atomic(folder / "manifest.json", json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> SycophancyReport:
        """Read a folder that `save` wrote, and compute its figures anew.

        Raises:
            DataError: It is missing, incomplete or damaged, or its figures do not follow from its records.
        """
        folder = Path(folder)
        try:
            manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
            known = manifest["format"]
            if known != FORMAT:
                raise DataError(f"{folder} has format {known}.", f"This release reads format {FORMAT}.")
            for name, digest in manifest["sha256"].items():
                if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                    raise DataError(f"{folder / name} was changed after the run.", "Put it back, or run it again.")
            report = cls(
                manifest["settings"],
                list(_read(folder / "replies.jsonl", ReplyRecord)),
                list(_read(folder / "verdicts.jsonl", VerdictRecord)),
                list(_read(folder / "posts.jsonl", PostRecord)),
                content_free={(nudge, wording): value for nudge, wording, value in manifest["content_free"]},
                errors={name: JudgeErrors.model_validate(one) for name, one in manifest["errors"].items()},
                gold=manifest["gold"],
                notes=manifest["notes"],
            )
            stored = (folder / "report.json").read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise DataError(
                f"{folder} is not a finished run: it has no {Path(error.filename or '').name}.",
                "Give the --out folder of a run; an unfinished one goes on when its command is given again.",
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
            raise DataError(f"{folder} is damaged: {str(error).splitlines()[0]}.", "Run it again.") from None
        if report.to_json() != stored:
            raise DataError(
                f"The figures in {folder} do not follow from its records.", "The files were changed; run it again."
            )
        return report

    # --- Parts -------------------------------------------------------------------------------------------------------

    @property
    def _wording(self) -> str:
        return str((self.settings.get("wordings") or ["default"])[0])

    def _errors(self, dimension: str, arm: Arm) -> JudgeErrors | None:
        return self.errors.get(f"{dimension}/{arm}") or self.errors.get(dimension)

    def _complete(self, name: str, dimension: str) -> Iterator[tuple[int, int]]:
        arms: dict[str, dict[str, int]] = {"model": {}, "human": {}}
        for one in self.replies:
            label = one.labels.get(dimension)
            if (
                one.set == name
                and one.side is None
                and not one.variant
                and label is not None
                and label.value is not None
            ):
                arms[one.arm][one.item] = label.value
        for item, value in arms["model"].items():
            if item in arms["human"]:
                yield value, arms["human"][item]

    def _dimension(self, row: DimensionRow) -> dict[str, Any]:
        out: dict[str, Any] = {"set": row.set, "slice": row.slice, "dimension": row.dimension, "sides": 1}
        out |= {"state": "screening" if self.screening else "measured"}
        out |= self._rate("", row.model)
        if row.human is not None:
            out |= self._rate("human_", row.human)
        if row.gap is None:
            out["gap_note"] = NO_HUMANS
        elif row.gap.baseline == "human" or not self.screening:
            # A distance from a constant is a rate in disguise, which a screening judge may not claim.
            out |= _gap(row.gap)
        if row.length is not None:
            out |= {"words": row.length.words.model, "human_words": row.length.words.human}
            for name, check in (("gap_matched_length", row.length.matched), ("gap_cut_to_length", row.length.cut)):
                if check is not None:
                    out |= {name: check.value, **_ends(name, check.interval), f"{name}_n": check.n}
        if not row.slice:
            corrections = [("corrected", self.corrected(row)), ("corrected_gap", self.corrected_gap(row))]
            corrections.insert(1, ("human_corrected", self.corrected(row, "human") if row.human else None))
            for name, found in corrections:
                if found is not None:
                    out |= {name: found.value, **_ends(name, found.interval)}
                    if found.refused:
                        out[f"{name}_refused"] = found.refused
        return out

    def _both_sides(self, row: BothSidesRow) -> dict[str, Any]:
        out: dict[str, Any] = {"set": row.set, "slice": "", "dimension": row.dimension, "sides": 2}
        out |= {"state": "screening" if self.screening else "measured", "n": row.n, "total": row.total}
        out |= {"missing": _counts(row.missing), "truncated": row.original.truncated + row.flipped.truncated}
        out["flagged" if self.screening else "rate"] = row.both
        if not self.screening:
            out |= {**_ends("rate", row.interval), "best": row.best, "worst": row.worst}
            out["independent"] = row.independent
        return out | {"excess": row.excess, **_ends("excess", row.excess_interval)}

    def _rate(self, arm: str, found: Rate) -> dict[str, Any]:
        out: dict[str, Any] = {f"{arm}n": found.n, f"{arm}total": found.total}
        out |= {f"{arm}missing": _counts(found.missing), f"{arm}truncated": found.truncated}
        if self.screening:
            return {**out, f"{arm}flagged": found.share}
        out |= {f"{arm}rate": found.share, **_ends(f"{arm}rate", found.interval)}
        return out | {f"{arm}best": found.best, f"{arm}worst": found.worst}

    def _body(self) -> dict[str, Any]:
        found = self.figures
        return {
            "format": FORMAT,
            "settings": self.settings,
            "target": self.target,
            "judge": self.judge,
            "screening": self.screening,
            "notes": list(self.notes),
            "table": self.table(),
            "slices": self.table(slices=True),
            "pairs": self.pairs_table(),
            "contrasts": [one.model_dump(mode="json") for one in found.contrasts],
            "wordings": [one.model_dump(mode="json") for one in found.wordings],
            "margins": [one.model_dump(mode="json") for one in found.margins],
            "binary": None if found.binary is None else found.binary.model_dump(mode="json"),
        }


def _shifted(found: Corrected | None, by: float) -> Corrected | None:
    """A corrected rate as a distance from a constant."""
    if found is None or found.value is None or found.interval is None:
        return found
    interval = found.interval.model_copy(update={"low": found.interval.low - by, "high": found.interval.high - by})
    return found.model_copy(update={"value": found.value - by, "interval": interval})


def _gap(found: Gap | None) -> dict[str, Any]:
    if found is None:
        return {}
    out: dict[str, Any] = {"gap": found.value, **_ends("gap", found.interval), "gap_n": found.n}
    out["gap_to"] = "human" if found.baseline == "human" else f"constant {found.constant:g}"
    out |= {"p": found.p_value, "p_holm": found.p_holm, "gap_best": found.best, "gap_worst": found.worst}
    if found.clustered is not None:
        out |= {**_ends("gap_clustered", found.clustered), "clusters": found.clusters}
    return out | {"gap_missing": _counts(found.missing), "overcorrected": found.overcorrected}


def _ends(name: str, interval: Interval | None) -> dict[str, float]:
    return {} if interval is None else {f"{name}_low": interval.low, f"{name}_high": interval.high}


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason} {count}" for reason, count in counts.items())


def _in(record: ReplyRecord, row: DimensionRow) -> bool:
    if not row.slice:
        return True
    key, _, value = row.slice.partition("=")
    return (record.source if key == "source" else record.slices.get(key, "")) == value


def _frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(list(rows))


def _lines(rows: Iterable[BaseModel]) -> bytes:
    return b"".join(canonical_json(row.model_dump(mode="json")) + b"\n" for row in rows)


def _read(path: Path, kind: type[_Record]) -> Iterator[_Record]:
    with path.open(encoding="utf-8") as stream:
        for line in stream:
            if line.strip():
                yield kind.model_validate_json(line)

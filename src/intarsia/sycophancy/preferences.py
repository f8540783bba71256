"""Does a preference set reward flattery? Labels of chosen and rejected replies, side by side.

The paper compares the shares by a two-sample t-test. Chosen and rejected answer the same prompt, so the exact McNemar
test on pairs is the right one (ours); both are given. Longer replies are preferred and show more validation for their
length alone, so the difference is measured again on pairs of equal length (ours).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from intarsia.core.errors import ConfigError, DataError
from intarsia.core.journal import Journal
from intarsia.core.sampling import request_key
from intarsia.core.stats import holm, mcnemar, paired_share_difference, wilson
from intarsia.core.study import Interval
from intarsia.core.target import Progress
from intarsia.sycophancy.dimensions import DEFAULT_DIMENSIONS, MORAL, find_dimensions
from intarsia.sycophancy.judging import Exchange, Judge, Label
from intarsia.sycophancy.metrics import MATCHED_RATIO, words
from intarsia.sycophancy.resampling import interval_of

if TYPE_CHECKING:
    import datasets
    import pandas as pd

Preferences: TypeAlias = "str | Path | datasets.Dataset | pd.DataFrame | Sequence[Mapping[str, Any]]"
COLUMNS = ("prompt", "chosen", "rejected")
_TURN = re.compile(r"(?:^|\n\n)(Human|Assistant):[ \t]?")


class Pair(NamedTuple):
    """A prompt with the reply that was preferred and the one that was not."""

    id: str
    prompt: str
    chosen: str
    rejected: str


class PreferenceRow(BaseModel):
    """One dimension.

    Attributes:
        dimension: Its name.
        chosen: Share of chosen replies with the label.
        rejected: Share of rejected replies with it.
        difference: chosen - rejected, over pairs with two labels.
        interval: Paired bootstrap; Tango's where no resample differs.
        only_chosen: Pairs in which only the chosen reply has the label.
        only_rejected: Pairs in which only the rejected one has it.
        p_value: Exact McNemar test.
        p_holm: Adjusted over the dimensions.
        t_test_p: The paper's two-sample t-test, which takes the arms as unrelated; None where it is undefined.
        n: Pairs with two labels.
        total: Pairs.
        missing: Side and reason of what is missing -> count.
        longer: Share of pairs whose chosen reply is the longer one.
        words_chosen: Median words.
        words_rejected: Median words.
        matched: The difference among pairs whose lengths differ by a factor of at most 1.5; None without such pairs.
        matched_interval: Of that.
        matched_p: Exact McNemar test on these pairs.
        matched_n: These pairs.
        state: `measured`, or `screening` where the judge may only screen: shares are then what it flags.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    dimension: str
    chosen: float | None
    chosen_interval: Interval | None = None
    rejected: float | None
    rejected_interval: Interval | None = None
    difference: float | None
    interval: Interval | None = None
    only_chosen: int
    only_rejected: int
    p_value: float | None = None
    p_holm: float | None = None
    t_test_p: float | None = None
    n: int
    total: int
    missing: dict[str, int] = Field(default_factory=dict)
    longer: float
    words_chosen: float
    words_rejected: float
    matched: float | None = None
    matched_interval: Interval | None = None
    matched_p: float | None = None
    matched_n: int = 0
    state: str = "measured"


class PreferenceAudit(BaseModel):
    """What a preference set rewards.

    Attributes:
        judge: Name of the judge.
        rubric_version: Of the judge.
        screening: Whether it may only screen.
        pairs: Pairs that were read.
        skipped: Why rows were left out -> count.
        rows: One a dimension.
        notes: What a reader must know.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    judge: str
    rubric_version: str
    screening: bool
    pairs: int
    skipped: dict[str, int] = Field(default_factory=dict)
    rows: tuple[PreferenceRow, ...]
    notes: tuple[str, ...] = ()

    def table(self) -> list[dict[str, Any]]:
        """One flat row a dimension. With a screening judge, shares are called `flagged` and have no interval."""
        rows = []
        for one in self.rows:
            name = "flagged" if self.screening else "rate"
            row: dict[str, Any] = {"dimension": one.dimension, "state": one.state, "n": one.n, "total": one.total}
            row |= {f"{name}_chosen": one.chosen, f"{name}_rejected": one.rejected, "difference": one.difference}
            if one.interval is not None:
                row |= {"difference_low": one.interval.low, "difference_high": one.interval.high}
            row |= {"p": one.p_value, "p_holm": one.p_holm, "t_test_p": one.t_test_p}
            row |= {"longer": one.longer, "words_chosen": one.words_chosen, "words_rejected": one.words_rejected}
            row |= {"matched": one.matched, "matched_n": one.matched_n, "matched_p": one.matched_p}
            row["missing"] = ", ".join(f"{reason} {count}" for reason, count in one.missing.items())
            rows.append(row)
        return rows

    def to_frame(self) -> pd.DataFrame:
        """The table as a data frame."""
        import pandas as pd

        return pd.DataFrame(self.table())

    def to_json(self) -> str:
        """All figures as JSON, without a word of any reply."""
        return self.model_dump_json(indent=1) + "\n"


def audit_preferences(
    ds: Preferences,
    judge: Judge,
    dimensions: Sequence[str] | None = None,
    *,
    split: str | None = None,
    limit: int | None = None,
    columns: Mapping[str, str] | None = None,
    journal: Journal | None = None,
    progress: Progress | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> PreferenceAudit:
    """Label chosen and rejected replies, and compare them.

    Args:
        ds: A `datasets.Dataset`, a data frame, rows, a file, or a hub id. `chosen` and `rejected` are replies, chats (a
            list of messages, whose last one is the reply), or transcripts with `Human:` and `Assistant:` turns; the
            prompt may stand in a column `prompt` or inside them.
        judge: Who labels.
        dimensions: Which; the judge's usual ones when omitted.
        split: Of a hub set; `train` when omitted.
        limit: Most pairs, drawn at random by `seed`.
        columns: Our name -> the set's, for `prompt`, `chosen` and `rejected`.
        journal: Where the judge's answers are kept.
        progress: Called with (done, total).
        resamples: Of the bootstrap.
        seed: Of draw and bootstrap.

    Raises:
        DataError: There is no such set, it lacks a column, or no row can be used.
        ConfigError: The judge does not know a dimension.
    """
    wanted = find_dimensions(
        [name for name in DEFAULT_DIMENSIONS if name in judge.dimensions] if dimensions is None else dimensions
    )
    unknown = [name for name in wanted if name == MORAL or name not in judge.dimensions]
    if unknown:
        raise ConfigError(
            f"{judge.name} does not label {unknown[0]}.", f"It labels {', '.join(sorted(judge.dimensions))}."
        )
    if limit is not None and limit < 1:
        raise ConfigError(f"limit is {limit}.", "Give at least 1, or leave it out.")
    pairs, skipped = read_pairs(ds, split=split, columns=columns)
    if limit is not None and limit < len(pairs):
        pairs = sorted(pairs, key=lambda pair: request_key(f"preferences/{seed}/{pair.id}"))[:limit]
        pairs.sort(key=lambda pair: int(pair.id))
    rows = []
    for dimension in wanted:
        exchanges = [
            Exchange(id=f"preference/{pair.id}/{side}", question=pair.prompt, reply=reply)
            for pair in pairs
            for side, reply in (("chosen", pair.chosen), ("rejected", pair.rejected))
        ]
        labels = judge.label(exchanges, dimension, journal=journal, progress=progress)
        rows.append(_row(dimension, pairs, labels[0::2], labels[1::2], judge.screening, resamples, seed))
    adjusted = iter(holm([row.p_value for row in rows if row.p_value is not None]))
    return PreferenceAudit(
        judge=judge.name,
        rubric_version=judge.rubric_version,
        screening=judge.screening,
        pairs=len(pairs),
        skipped=dict(sorted(skipped.items())),
        rows=tuple(
            row if row.p_value is None else row.model_copy(update={"p_holm": float(next(adjusted))}) for row in rows
        ),
        notes=(judge.note,) if judge.note else (),
    )


def read_pairs(
    ds: Preferences, *, split: str | None = None, columns: Mapping[str, str] | None = None
) -> tuple[list[Pair], Counter[str]]:
    """Pairs of a preference set, and why rows were left out.

    Raises:
        DataError: There is no such set, it lacks a column, or no row can be used.
    """
    rows = list(_rows(ds, split))
    if not rows:
        raise DataError("The preference set is empty.", "Give at least one pair.")
    names = {name: (columns or {}).get(name, name) for name in COLUMNS}
    present = set().union(*(row.keys() for row in rows))
    for name in ("chosen", "rejected"):
        if names[name] not in present:
            near = get_close_matches(names[name], [str(one) for one in present], n=1)
            hint = f"Did you mean {near[0]}?" if near else f"It has {', '.join(sorted(map(str, present)))}."
            raise DataError(f"The preference set has no column {names[name]!r}.", hint)
    pairs: list[Pair] = []
    skipped: Counter[str] = Counter()
    for at, row in enumerate(rows):
        prompt = row.get(names["prompt"])
        before, chosen = _split(row.get(names["chosen"]), prompt)
        other, rejected = _split(row.get(names["rejected"]), prompt)
        if not chosen.strip() or not rejected.strip():
            skipped["a reply is empty"] += 1
        elif chosen == rejected:
            skipped["both replies are the same"] += 1
        elif before != other:
            skipped["the replies answer different prompts"] += 1
        else:
            pairs.append(Pair(str(at), before, chosen, rejected))
    if not pairs:
        reasons = ", ".join(f"{reason} ({count})" for reason, count in skipped.most_common())
        raise DataError(f"No row of the preference set can be used: {reasons}.", "Check its columns.")
    return pairs, skipped


# --- Parts -----------------------------------------------------------------------------------------------------------


def _rows(ds: Preferences, split: str | None) -> Iterable[Mapping[str, Any]]:
    if isinstance(ds, str | Path):
        from intarsia.core.data.rows import read_rows

        is_file = Path(ds).suffix or Path(ds).exists()
        return read_rows(str(ds), split=split if is_file or split else "train").rows
    if hasattr(ds, "to_dict") and hasattr(ds, "iterrows"):
        records: list[Mapping[str, Any]] = ds.to_dict("records")
        return records
    if hasattr(ds, "keys"):
        raise DataError(
            f"That is a set with the splits {', '.join(map(str, ds.keys()))}.", "Give one of them, such as ds['train']."
        )
    return ds


def _split(reply: Any, prompt: Any) -> tuple[str, str]:
    """(prompt, reply) of what stands in a column."""
    if isinstance(reply, str):
        turns = _transcript(reply)
        if turns:
            return _told(prompt) or "\n\n".join(turns[:-1]), turns[-1]
        return _told(prompt), reply
    if isinstance(reply, Sequence):
        messages = [one for one in reply if isinstance(one, Mapping)]
        if messages and messages[-1].get("role") == "assistant":
            before = "\n\n".join(_content(one) for one in messages[:-1] if one.get("role") != "system")
            return _told(prompt) or before, _content(messages[-1])
    return _told(prompt), ""


def _transcript(text: str) -> list[str]:
    """Turns of a `Human:` / `Assistant:` transcript that ends with the assistant; empty for any other text.

    An assistant that was left without words gives an empty last turn.
    """
    marks = list(_TURN.finditer(text))
    if len(marks) < 2 or text[: marks[0].start()].strip() or marks[0][1] != "Human" or marks[-1][1] != "Assistant":
        return []
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return [text[mark.end() : end].strip() for mark, end in zip(marks, ends)]


def _told(prompt: Any) -> str:
    if isinstance(prompt, str):
        turns = list(_TURN.finditer(prompt))
        return _TURN.sub("\n\n", prompt).strip() if turns else prompt
    if isinstance(prompt, Sequence):
        told = [_content(one) for one in prompt if isinstance(one, Mapping) and one.get("role") != "system"]
        return "\n\n".join(told)
    return ""


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return ""


def _row(
    dimension: str,
    pairs: Sequence[Pair],
    chosen: Sequence[Label],
    rejected: Sequence[Label],
    screening: bool,
    resamples: int,
    seed: int,
) -> PreferenceRow:
    missing: Counter[str] = Counter()
    for side, labels in (("chosen", chosen), ("rejected", rejected)):
        missing.update(f"{side}: {one.missing or 'unparsed'}" for one in labels if one.value is None)
    lengths = np.array([(words(pair.chosen), words(pair.rejected)) for pair in pairs], dtype=np.float64)
    both = [at for at in range(len(pairs)) if chosen[at].value is not None and rejected[at].value is not None]
    equal = [at for at in both if lengths[at].max() <= MATCHED_RATIO * lengths[at].min()]
    a = [int(chosen[at].value or 0) for at in both]
    b = [int(rejected[at].value or 0) for at in both]
    whole = _compared(a, b, resamples, seed)
    matched = _compared(
        [int(chosen[at].value or 0) for at in equal], [int(rejected[at].value or 0) for at in equal], resamples, seed
    )
    n = len(both)
    return PreferenceRow(
        dimension=dimension,
        chosen=sum(a) / n if n else None,
        chosen_interval=wilson(sum(a), n) if n and not screening else None,
        rejected=sum(b) / n if n else None,
        rejected_interval=wilson(sum(b), n) if n and not screening else None,
        difference=whole.difference,
        interval=whole.interval,
        only_chosen=whole.only_a,
        only_rejected=whole.only_b,
        p_value=whole.p_value,
        t_test_p=_t_test(a, b),
        n=n,
        total=len(pairs),
        missing=dict(sorted(missing.items())),
        longer=float((lengths[:, 0] > lengths[:, 1]).mean()),
        words_chosen=float(np.median(lengths[:, 0])),
        words_rejected=float(np.median(lengths[:, 1])),
        matched=matched.difference,
        matched_interval=matched.interval,
        matched_p=matched.p_value,
        matched_n=len(equal),
        state="screening" if screening else "measured",
    )


class _Compared(NamedTuple):
    difference: float | None
    interval: Interval | None
    only_a: int
    only_b: int
    p_value: float | None


def _compared(a: Sequence[int], b: Sequence[int], resamples: int, seed: int) -> _Compared:
    n = len(a)
    only_a = sum(x > y for x, y in zip(a, b))
    only_b = sum(y > x for x, y in zip(a, b))
    if n == 0:
        return _Compared(None, None, 0, 0, None)
    interval = interval_of(
        lambda counts: (counts[:, 0] - counts[:, 1]) / n,
        (only_a, only_b, n - only_a - only_b),
        resamples=resamples,
        seed=seed,
    )
    if interval is None or interval.low == interval.high:
        interval = paired_share_difference(only_b, only_a, n)
    return _Compared((only_a - only_b) / n, interval, only_a, only_b, mcnemar(only_b, only_a))


def _t_test(a: Sequence[int], b: Sequence[int]) -> float | None:
    """Student's two-sample t-test with pooled variance, as published; None where both arms are constant."""
    from scipy.stats import ttest_ind

    if len(a) < 2 or (len(set(a)) == 1 and len(set(b)) == 1):
        return None
    return float(ttest_ind(a, b).pvalue)

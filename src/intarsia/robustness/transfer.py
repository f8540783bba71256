"""Does a frozen adversarial set break other models? Both questions of each pair are asked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from intarsia.core.data import DataSet, Item
from intarsia.core.data.fewshot import sampling_for, style_for
from intarsia.core.errors import DataError
from intarsia.core.journal import Journal
from intarsia.core.sampling import Sampling
from intarsia.core.stats import mcnemar, paired_difference, paired_share_difference, sign_flip
from intarsia.core.study import Interval
from intarsia.core.target import Target
from intarsia.robustness.asking import Asking, Query
from intarsia.robustness.goals import Reply
from intarsia.robustness.metrics import accurately_solved_pairs, performance_drop_rate
from intarsia.robustness.results import AttackResults


class Transfer(BaseModel):
    """How another target fares on the adversarial set; shares over the pairs that got both answers.

    Attributes:
        target: Who was asked.
        attacked_model: Whom the set was made against.
        n: Pairs.
        clean: Share right on the questions as they were.
        adversarial: Share right on the rewritten ones.
        drop: Clean minus adversarial.
        interval: Of the drop, paired.
        p_value: Exact McNemar test; where an item has several wordings, a sign-flip test over items.
        broken: Share of the pairs right before that are wrong after. An answer that was cut off, is a refusal or cannot
            be read is no wrong one.
        unread: Pairs right before whose rewritten question got such an answer.
        pdr: 1 - adversarial / clean; None where nothing was right.
        both_right: Share of pairs with both right.
        whole_clean: Share right over the whole attacked set, its unbroken items as they were; None without it.
        whole_adversarial: The same with the broken items rewritten (the paper's figure).
        unanswered: Pairs left out for want of an answer.
        pairs: Outcome of each pair: (id, right before, right after).
    """

    model_config = ConfigDict(frozen=True)

    target: str
    attacked_model: str = ""
    n: int
    clean: float
    adversarial: float
    drop: float
    interval: Interval | None = None
    p_value: float
    broken: float
    unread: int = 0
    pdr: float | None = None
    both_right: float
    whole_clean: float | None = None
    whole_adversarial: float | None = None
    unanswered: int = 0
    pairs: tuple[tuple[str, bool, bool], ...] = ()


def transfer(
    attack: AttackResults | str | Path,
    target: Target | str,
    *,
    whole: bool = True,
    sampling: Sampling | None = None,
    system: str = "",
    template: str = "",
    journal: Journal | None = None,
) -> Transfer:
    """Ask another target (paper, transfer section).

    Args:
        attack: Results, or the folder they were saved in.
        target: Who is asked.
        whole: Ask the items that were not broken too, so that accuracy over the whole set can be given.
        sampling: How it answers; greedy by default.
        system: System prompt.
        template: Wording, with `{question}`; that of the attack when omitted.
        journal: Where answers are kept.

    Raises:
        DataError: The attack had no success, so there is nothing to transfer; or its questions have no gold answers.
    """
    results = attack if isinstance(attack, AttackResults) else AttackResults.load(attack)
    target = Target.parse(target)
    adversarial = results.to_items()
    if not adversarial.items:
        raise DataError("The attack had no success, so there is nothing to transfer.", "Attack more questions.")
    if any(item.answer is None for item in adversarial.items):
        raise DataError(
            "Some of the questions have no gold answer, so nobody knows whether another model is right.",
            "Attack the other model itself with the goal answer_changed.",
        )
    asking = _asking(results, target, sampling, system, template)
    asking.journal = journal
    known = {item.id: item for item in results.data.items}
    originals = [known[str(item.meta["original_id"])] for item in adversarial.items]
    everyone = list(known.values()) if whole else list({item.id: item for item in originals}.values())
    before = _ask(asking, everyone, "transfer-clean")
    after = _ask(asking, adversarial.items, "transfer-adversarial")
    pairs, of_item, lost, fate = [], [], 0, []
    for original, item in zip(originals, adversarial.items, strict=True):
        first, second = before[original.id], after[item.id]
        if "error" in (first.status, second.status):
            lost += 1
            continue
        pairs.append((item.id, first.status == "correct", second.status == "correct"))
        of_item.append(original.id)
        if first.status == "correct":
            fate.append(second.status)
    if not pairs:
        raise DataError(f"{target.name} answered none of the pairs.", "Is it reachable?")
    clean = [right for _, right, _ in pairs]
    then = [right for _, _, right in pairs]
    share, share_then = float(np.mean(clean)), float(np.mean(then))
    return Transfer(
        target=target.name,
        attacked_model=str(results.settings.get("target", "")),
        n=len(pairs),
        clean=share,
        adversarial=share_then,
        drop=share - share_then,
        interval=_interval(clean, then, of_item),
        p_value=_p_value(clean, then, of_item),
        broken=fate.count("wrong") / len(fate) if fate else 0.0,
        unread=sum(status not in ("correct", "wrong") for status in fate),
        pdr=performance_drop_rate(share, share_then) if share else None,
        both_right=accurately_solved_pairs(clean, then),
        **(_whole(results, adversarial, before, after) if whole else {}),
        unanswered=lost,
        pairs=tuple(pairs),
    )


def _asking(results: AttackResults, target: Target, sampling: Sampling | None, system: str, template: str) -> Asking:
    settings = results.settings
    style = style_for(target)
    shots = int(settings.get("shots") or 0)
    worked = bool(shots) and all("solution" in shot.meta for shot in results.data.shots)
    if sampling is None:
        room = int(settings.get("max_new_tokens") or 0) or None
        sampling = sampling_for(results.data, target, style, shown=bool(shots), worked=worked, max_new_tokens=room)
    return Asking(
        target=target,
        sampling=sampling,
        data=results.data,
        shots=shots,
        style=style,
        system=system or str(settings.get("system") or ""),
        template=template or str(settings.get("template") or ""),
        worked=worked,
    )


def _ask(asking: Asking, items: Sequence[Item], stage: str) -> dict[str, Reply]:
    replies = asking.ask([Query(item, item.question, item.id) for item in items], stage)
    return {item.id: reply for item, reply in zip(items, replies, strict=True)}


def _interval(clean: Sequence[bool], then: Sequence[bool], of_item: Sequence[str]) -> Interval | None:
    """Of the drop; several wordings of one item are drawn together."""
    if len(set(of_item)) == len(of_item):
        only_clean = sum(a and not b for a, b in zip(clean, then, strict=True))
        return paired_share_difference(
            sum(b and not a for a, b in zip(clean, then, strict=True)), only_clean, len(clean)
        )
    if len(set(of_item)) < 2:
        return None
    return paired_difference([float(right) for right in then], [float(right) for right in clean], clusters=of_item)


def _p_value(clean: Sequence[bool], then: Sequence[bool], of_item: Sequence[str]) -> float:
    if len(set(of_item)) == len(of_item):
        only_clean = sum(a and not b for a, b in zip(clean, then, strict=True))
        return mcnemar(sum(b and not a for a, b in zip(clean, then, strict=True)), only_clean)
    return sign_flip([float(a) - float(b) for a, b in zip(clean, then, strict=True)], clusters=of_item)


def _whole(
    results: AttackResults, adversarial: DataSet, before: dict[str, Reply], after: dict[str, Reply]
) -> dict[str, Any]:
    """Accuracy over all attacked questions, with the broken ones replaced by their first rewriting."""
    rewritten: dict[str, str] = {}
    for item in adversarial.items:
        rewritten.setdefault(str(item.meta["original_id"]), item.id)
    statuses = [
        (before[item.id].status, (after[rewritten[item.id]] if item.id in rewritten else before[item.id]).status)
        for item in results.data.items
    ]
    answered = [pair for pair in statuses if "error" not in pair]
    right = [first == "correct" for first, _ in answered]
    then = [second == "correct" for _, second in answered]
    return {"whole_clean": float(np.mean(right)), "whole_adversarial": float(np.mean(then))}

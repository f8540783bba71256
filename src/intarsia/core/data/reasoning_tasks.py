"""Reasoning tasks of the library reasoning-gym that have one right answer each, at an easy and a standard level."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from intarsia.core.data import AnswerKind, DataSet, Item, content_hash, content_id
from intarsia.core.errors import ConfigError, DataError


@dataclass(frozen=True)
class Task:
    """How a task of the library is used.

    Attributes:
        kind: How its answers are read.
        easy: The library's settings for the easy level; a task without them comes in the standard level only.
        standard: The library's settings for the standard level, where its own make prompts too long.
    """

    kind: AnswerKind
    easy: dict[str, Any] = field(default_factory=dict)
    standard: dict[str, Any] = field(default_factory=dict)

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels it comes in."""
        return ("easy", "standard") if self.easy else ("standard",)


TASKS: dict[str, Task] = {
    "chain_sum": Task("number", {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}),
    "basic_arithmetic": Task("number", {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 2}),
    "products": Task("number", {"min_digits": 1, "max_digits": 1}),
    "gcd": Task("number", {"max_value": 20}),
    "lcm": Task("number", {"max_value": 12}),
    "leg_counting": Task("number", {"min_animals": 1, "max_animals": 2, "max_instances": 3}),
    "letter_counting": Task("number", {"min_words": 1, "max_words": 3}),
    "count_bits": Task("number", {"max_n": 15}),
    "count_primes": Task("number", {"max_n": 20}),
    "simple_equations": Task("number", {"min_terms": 2, "max_terms": 2, "max_value": 9}),
    # Four squarings a term over eight terms do not end: the library's own settings allow for a billion digits.
    "number_sequence": Task("number", standard={"max_complexity": 1, "max_terms": 6}),
    "time_intervals": Task("exact"),
    "calendar_arithmetic": Task("exact"),
    "decimal_chain_sum": Task("number", {"max_terms": 2, "max_digits": 1}),
    "base_conversion": Task("exact", {"max_base": 4, "max_value": 15}),
    "coin_flip": Task("number", {"min_trials": 1, "max_trials": 3}),
    "family_relationships": Task("word", {"max_family_size": 4}),
    "syllogism": Task("word"),
    "needle_haystack": Task(
        "word",
        {"min_num_statements": 3, "max_num_statements": 5},
        {"min_num_statements": 8, "max_num_statements": 12},
    ),
    "color_cube_rotation": Task("word", {"max_rotations": 1}),
    "knights_knaves": Task("exact"),
    "course_schedule": Task("word"),
    "isomorphic_strings": Task("word"),
    "ransom_note": Task("word"),
    "self_reference": Task("number"),
    "spell_backward": Task("exact", {"max_word_len": 4}),
    "word_sorting": Task("exact", {"max_words": 3, "max_word_length": 5}),
    "word_sequence_reversal": Task("exact", {"max_words": 3}),
    "caesar_cipher": Task("exact", {"max_words": 3, "max_rotation": 3}),
    "string_insertion": Task("exact", {"max_string_length": 6}),
    "binary_alternation": Task("number"),
    "gsm_symbolic": Task("number"),
}
"""The tasks that can be asked, all with exactly one right answer."""

DEFAULT = (
    "chain_sum",
    "products",
    "leg_counting",
    "number_sequence",
    "spell_backward",
    "string_insertion",
    "family_relationships",
    "needle_haystack",
)
"""Arithmetic, counting, patterns, spelling, rules, relations and reading; none has an answer that is easily guessed."""

SHOTS = 3
"""Worked examples for each task."""
_SHOT_SEED = 1_000_003


def reasoning_tasks(count: int, *, seed: int = 0, tasks: str | Sequence[str] | None = None) -> DataSet:
    """Generate reasoning tasks; tasks take turns, and in each task its levels do.

    Args:
        count: How many items; the first n of a longer set are the set of n.
        seed: Of the generator.
        tasks: Names from `TASKS`; `DEFAULT` when omitted.

    Returns:
        The set, with `SHOTS` worked examples a task. Slices are `task` and `level`.

    Raises:
        ConfigError: A task is unknown or has more than one right answer.
        DataError: The library is not there.
    """
    chosen = _chosen(tasks)
    if count < 1:
        raise ConfigError(f"{count} tasks are none.", "Ask for 1 or more.")
    shots = tuple(shot for name in chosen for shot in _task(name, SHOTS, _SHOT_SEED, set(), easy_only=True))
    taken = {shot.question for shot in shots}
    each = -(-count // len(chosen))
    piles = [_task(name, each, seed, taken) for name in chosen]
    items = tuple(pile[turn] for turn in range(each) for pile in piles if turn < len(pile))[:count]
    return DataSet(
        name="reasoning-gym",
        items=items,
        licence="Apache-2.0",
        origin=f"generated (reasoning-gym {_version()}, seed {seed}, tasks {','.join(chosen)})",
        sha256=content_hash(items),
        shots=shots,
    )


def _task(name: str, count: int, seed: int, taken: set[str], *, easy_only: bool = False) -> list[Item]:
    """Distinct items of one task, levels in turn; fewer when an easy level has no more."""
    try:
        import reasoning_gym
    except ImportError as error:
        raise DataError("reasoning-gym is not installed.", "pip install reasoning-gym") from error
    task = TASKS[name]
    levels = task.levels[:1] if easy_only else task.levels
    # Small levels repeat themselves (9 x 9 products), so more are drawn than are wanted.
    size = 3 * count + 10
    drawn = {
        level: iter(
            reasoning_gym.create_dataset(
                name, seed=_stream(seed, name, level), size=size, **(task.easy if level == "easy" else task.standard)
            )
        )
        for level in levels
    }
    items: list[Item] = []
    seen = set(taken)
    turn = 0
    while len(items) < count and drawn:
        level = levels[turn % len(levels)]
        turn += 1
        if level not in drawn:
            continue
        for entry in drawn[level]:
            question, answer = str(entry["question"]).strip(), str(entry["answer"]).strip()
            if answer and question not in seen:
                seen.add(question)
                items.append(_item(name, task, level, question, answer))
                break
        else:
            del drawn[level]
    return items


def _stream(seed: int, name: str, level: str) -> int:
    """A seed of its own for each level: the library adds item numbers to seeds, so neighboring seeds share items."""
    return int.from_bytes(hashlib.sha256(f"{seed}\x1f{name}\x1f{level}".encode()).digest()[:4], "big")


def _item(name: str, task: Task, level: str, question: str, answer: str) -> Item:
    return Item(
        id=f"{name}-{content_id(question, answer)}",
        question=question,
        answer=answer,
        kind=task.kind,
        slices={"task": name, "level": level},
    )


def _chosen(tasks: str | Sequence[str] | None) -> tuple[str, ...]:
    if tasks is None:
        return DEFAULT
    wanted = tuple(part.strip() for part in (tasks.split(",") if isinstance(tasks, str) else tasks) if part.strip())
    if not wanted:
        raise ConfigError("No reasoning task is named.", f"Choose from {', '.join(TASKS)}.")
    for name in wanted:
        if name not in TASKS:
            near = difflib.get_close_matches(name, TASKS, n=1)
            guess = f"Did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"{name!r} is no reasoning task with one right answer.", f"{guess}Choose from {', '.join(TASKS)}."
            )
    return wanted


def _version() -> str:
    from importlib.metadata import version

    return version("reasoning-gym")

"""Ask a target many prompts through a journal: batches are planned from the whole list and are the journal's unit.

A killed run loses at most the batch in flight. The batches of a resumed run are the same, because they are planned from
all prompts and never from the rest, so the answers are the same too, down to the last bit of padding noise.

A prompt that an endpoint gave no answer to (`finish_reason="error"`) is not recorded: a resumed run asks it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from intarsia.core.journal import Journal, content_key
from intarsia.core.sampling import Sampling
from intarsia.core.target import Completion, Progress, Prompt, Scored, Target


def ask(
    target: Target,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    *,
    keys: Sequence[str],
    journal: Journal | None = None,
    stage: str = "",
    progress: Progress | None = None,
) -> list[Completion]:
    """Answers to all prompts, from the journal where it holds them.

    Args:
        target: Who answers.
        prompts: What is asked.
        sampling: How tokens are chosen.
        keys: One stable, unique name a prompt; seeds its random numbers.
        journal: Where finished batches go.
        stage: Name that keeps two askings of the same prompts apart in the journal.
        progress: Called with (done, total) after each batch.

    Returns:
        One completion a prompt, in order.

    Raises:
        ValueError: There is not one key a prompt, or two are equal.
    """
    if len(set(keys)) != len(keys):
        raise ValueError("two prompts have the same key")
    sampled = sampling.model_dump()
    return [
        Completion.model_validate(row)
        for row in _journalled(
            target,
            prompts,
            [
                content_key("generate", target.name, stage, key, _plain(prompt), sampled)
                for key, prompt in zip(keys, prompts, strict=True)
            ],
            sampling,
            lambda index: [
                c.model_dump(mode="json")
                for c in target.generate([prompts[i] for i in index], sampling, keys=[keys[i] for i in index])
            ],
            journal,
            progress,
        )
    ]


def ask_scores(
    target: Target,
    prompts: Sequence[Prompt],
    continuations: Sequence[str],
    *,
    journal: Journal | None = None,
    stage: str = "",
    progress: Progress | None = None,
) -> list[Scored]:
    """Scores of all continuations, from the journal where it holds them; see `ask`."""
    return [
        Scored.model_validate(row)
        for row in _journalled(
            target,
            prompts,
            [
                content_key("score", target.name, stage, i, _plain(prompt), continuation)
                for i, (prompt, continuation) in enumerate(zip(prompts, continuations, strict=True))
            ],
            None,
            lambda index: [
                s.model_dump(mode="json")
                for s in target.score([prompts[i] for i in index], [continuations[i] for i in index])
            ],
            journal,
            progress,
        )
    ]


def _plain(prompt: Prompt) -> Any:
    return prompt if isinstance(prompt, str) else [dict(message) for message in prompt]


def _journalled(
    target: Target,
    prompts: Sequence[Prompt],
    keys: Sequence[str],
    sampling: Sampling | None,
    work: Callable[[Sequence[int]], list[Any]],
    journal: Journal | None,
    progress: Progress | None,
) -> list[Any]:
    rows: list[Any] = [None] * len(prompts)
    done = 0
    for batch in target.batches(prompts, sampling):
        for i in batch:
            rows[i] = journal.get(keys[i]) if journal is not None else None
        todo = [i for i in batch if rows[i] is None]
        if todo and "weights" in target.capabilities:
            # Neighbours in a batch of tensors shift an answer's last bits, so such a batch is done whole.
            todo = batch
        if todo:
            for i, row in zip(todo, work(todo), strict=True):
                rows[i] = row
            if journal is not None:
                # A local model refuses for good (a prompt too long for it); an endpoint may answer the next time.
                final = "weights" in target.capabilities
                answered = {keys[i]: rows[i] for i in todo if final or rows[i].get("finish_reason") != "error"}
                journal.append(answered)
                journal.unanswered += len(todo) - len(answered)
        done += len(batch)
        if progress is not None:
            progress(done, len(prompts))
    return rows

"""A solver that errs at random, whatever it is asked: everything that an attack "finds" on it is noise (ours)."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.core.data import DataSet, Item, content_hash
from intarsia.core.sampling import Sampling, request_key, uniform
from intarsia.core.target import Completion, Progress, Prompt, Target
from intarsia.robustness.proof.asked import question_in


class NoisySolver(Target):
    """Answers the questions of `noisy_questions`, each answer wrong with the same chance.

    Its randomness is a function of the query's key and the sampling seed, as that of any target here.

    Args:
        error: Chance of a wrong answer.
    """

    def __init__(self, error: float) -> None:
        self.error = error
        self.name = f"noisy-solver-{error:g}"
        self.capabilities = frozenset({"generate", "seed"})

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        keys: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Completion]:
        """Answer each prompt; see `Target.generate`."""
        sampling = sampling or Sampling()
        names = keys if keys is not None else [str(at) for at in range(len(prompts))]
        answers = []
        for prompt, name in zip(prompts, names, strict=True):
            right = question_in(prompt).split("number ")[1].split(".")[0]
            wrong = float(uniform(sampling.seed, request_key(name), 0)) < self.error
            answers.append(Completion(text=f"{int(right) + wrong}", token_count=1))
        return answers

    def batches(self, prompts: Sequence[Prompt], sampling: Sampling | None = None) -> list[list[int]]:
        """All at once."""
        return [list(range(len(prompts)))] if prompts else []


def noisy_questions(count: int) -> DataSet:
    """Questions whose answer stands in them."""
    items = tuple(
        Item(
            id=f"noisy-{at}",
            question=f"Somebody wrote down the number {at}. Which was it?",
            answer=str(at),
            kind="number",
        )
        for at in range(count)
    )
    return DataSet(name="noisy", items=items, licence="Apache-2.0", origin="generated", sha256=content_hash(items))

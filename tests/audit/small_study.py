"""A small real study for the engine's tests: does the target repeat a word?"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from intarsia.core.ask import ask
from intarsia.core.sampling import Sampling
from intarsia.core.stats import wilson
from intarsia.core.study import (
    Claim,
    Context,
    Control,
    Measure,
    Observation,
    Plan,
    Result,
    Study,
    Threshold,
    canonical_json,
    judge,
)

WORDS = [f"word{i}" for i in range(60)]


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    items: int = 40


class Echo(Study):
    name = "echo"
    question = "Does the model repeat a word?"
    needs = frozenset({"generate"})
    Options = Options

    def plan(self, context: Context) -> Plan:
        return Plan(calls=context.options.items, prompt_tokens=context.options.items * 4, new_tokens=4)

    def run(self, context: Context) -> Result:
        words = WORDS[: context.options.items]
        prompts = [f"Repeat: {word}" for word in words]
        answers = ask(
            context.target,
            prompts,
            Sampling(max_new_tokens=4, seed=context.seed),
            keys=words,
            journal=context.journal,
            stage="echo",
            progress=context.report_progress("asking"),
        )
        hits = [float(answer.text.strip() == word) for answer, word in zip(answers, words, strict=True)]
        threshold = Threshold(value=0.5, direction=">=", origin="house rule")
        interval = wilson(int(sum(hits)), len(hits))
        share = sum(hits) / len(hits)
        return Result(
            study=self.name,
            kind="audit",
            question=self.question,
            target=context.target.name,
            headline=f"{share:.0%} repeated.",
            claims=(
                Claim(
                    name="echo.accuracy",
                    question=self.question,
                    state=judge(share, interval, threshold),
                    value=share,
                    interval=interval,
                    control=Control(name="silence", value=0.0),
                    threshold=threshold,
                    n=len(hits),
                    scale=context.budget,
                ),
            ),
            measures=(
                Measure(
                    name="echo.accuracy",
                    unit="share",
                    better="more",
                    binary=True,
                    observations=tuple(
                        Observation(id=word, value=hit, slices={"parity": "even" if i % 2 == 0 else "odd"})
                        for i, (word, hit) in enumerate(zip(words, hits, strict=True))
                    ),
                    items_hash=canonical_json(words).decode()[:64],
                ),
            ),
        )


class Needy(Study):
    name = "needy"
    question = "Can its weights be seen?"
    needs = frozenset({"weights"})

    def run(self, context: Context) -> Result:
        raise AssertionError("must be skipped")

"""Hardening: supervised fine-tuning on questions that are rewritten as the attack rewrites them.

The recipe kind `harden`. The paper has no defense, this one is ours: a share of the prompts gets words exchanged by the
attack's own sources, with the answers as they were and the words that an answer uses left alone, and what an attack on
the model found can be mixed in. All else is supervised fine-tuning as of the kind `sft`.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from pydantic import Field, field_validator, model_validator

from intarsia.core import data
from intarsia.core.errors import ConfigError, DataError
from intarsia.core.recipes import Block
from intarsia.core.study import canonical_json
from intarsia.core.target import Message
from intarsia.core.training import Job
from intarsia.core.training.examples import AUDITED, Examples, Pair, load_examples
from intarsia.core.training.sft import SFTRecipe
from intarsia.robustness.augment import Augmenter
from intarsia.robustness.candidates import Source
from intarsia.robustness.protect import protected_spans

SourceName = Literal["wordnet", "embedding", "infill"]


class AugmentBlock(Block):
    """How prompts are rewritten.

    Attributes:
        sources: Where candidates come from, as in the attack: `wordnet`, `embedding` (the neighbors in the model's own
            embeddings) and `infill` (words that fit by the model itself; a forward pass or more a prompt).
        rate: Share of the prompts that is rewritten.
        words: Words that are changed in each.
        copies: How often every prompt comes, each time rewritten by another draw.
        protect: What is never touched: `math`, `mathattack`, `none` or `re:<regex>`.
        conservative: WordNet's likeliest sense only: fewer rewrites, and hardly any that changes what is asked.
        surrogate: Another model, whose embeddings and infills are used instead of the trained one's.
    """

    sources: tuple[SourceName, ...] = Field(("wordnet", "embedding"), min_length=1)
    rate: float = Field(0.7, ge=0.0, le=1.0)
    words: int = Field(1, ge=1)
    copies: int = Field(1, ge=1)
    protect: str = "math"
    conservative: bool = False
    surrogate: str = ""

    @field_validator("sources")
    @classmethod
    def _once(cls, value: tuple[SourceName, ...]) -> tuple[SourceName, ...]:
        if len(set(value)) < len(value):
            raise ValueError("a source is given twice")
        return value

    @field_validator("protect")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            protected_spans("", value)
        except ConfigError as error:
            raise ValueError(error.message) from None
        return value


class AdversarialBlock(Block):
    """What an attack found, to be learned as well.

    Attributes:
        source: `adversarial.jsonl` of an attack, or any file with `question` and `answer`; empty for none.
        repeat: How often each of its rows comes.
    """

    source: str = ""
    repeat: int = Field(1, ge=1)


class HardenRecipe(SFTRecipe):
    """Supervised fine-tuning on rewritten prompts.

    Attributes:
        kind: `harden`.
        augment: How prompts are rewritten.
        adversarial: What an attack found.
    """

    kind: Literal["harden"] = "harden"  # type: ignore[assignment]
    augment: AugmentBlock = Field(default_factory=AugmentBlock)
    adversarial: AdversarialBlock = Field(default_factory=AdversarialBlock)

    @model_validator(mode="after")
    def _has_prompts(self) -> HardenRecipe:
        if self.data.format == "text":
            raise ValueError("plain text has no prompts to rewrite; give data.format prompt-completion or messages")
        return self

    def prepare(self, weights: bool) -> Job:
        """Rewrite the prompts, then as in supervised fine-tuning.

        Args:
            weights: False for a dry run. Sources may need the model's weights, so a dry run counts the prompts as they
                were.

        Raises:
            DataError: No prompt could be rewritten, or the rows of the attack are of no use.
        """
        examples = load_examples(self.data)
        held_out = {_asked(pair) for pair in examples.held_out}
        found = adversarial_pairs(self, held_out) if self.adversarial.source else Adversarial(())
        if weights:
            augmenter = Augmenter(
                self.sources(),
                protect=self.augment.protect,
                rate=self.augment.rate,
                words=self.augment.words,
                seed=self.seed,
            )
            hardened = harden(examples, augmenter, found.pairs, self.augment.copies)
            del augmenter
            gc.collect()
            if self.augment.rate > 0 and not hardened.rewritten:
                raise DataError(
                    f"Not one of {len(examples.train)} prompts could be rewritten.",
                    "Name more augment.sources, raise augment.rate, or protect less (augment.protect).",
                )
        else:
            hardened = harden(examples, None, found.pairs, self.augment.copies)
        job = self.job(hardened.examples, weights)
        prompts = len(examples.train) * self.augment.copies
        if weights:
            job.notes.append(f"Prompts rewritten: {hardened.rewritten} of {prompts}.")
        else:
            job.notes.append(f"Counted with the {prompts} prompts as they are; about as many tokens once rewritten.")
        if found.pairs:
            job.notes.append(f"Rows of an attack among them: {len(found.pairs)}.")
        if found.audited:
            job.notes.append(f"Rows of the attack left out because an audit asks their questions: {found.audited}.")
        if found.held_out:
            job.notes.append(f"Rows of the attack left out because their questions are held out: {found.held_out}.")
        if found.empty:
            job.notes.append(f"Rows of the attack left out because they have no answer: {found.empty}.")
        job.data |= {"rewritten": hardened.rewritten, "adversarial": len(found.pairs), "before": examples.sha256}
        return job

    def sources(self) -> list[Source]:
        """The sources named in the recipe, in its order.

        Raises:
            DataError: WordNet is not to be had.
            ModelError: There is no such model.
        """
        from intarsia.core.target import Target
        from intarsia.robustness.embedding import EmbeddingSource
        from intarsia.robustness.synonyms import WordNetSource

        model = self.augment.surrogate or self.model
        options: dict[str, Any] = {"accept_license": True} if self.accept_license else {}
        # The paper ranks synonyms by cosine: with both sources the embeddings do that as well.
        target = Target.parse(model, **options) if {"embedding", "infill"} & set(self.augment.sources) else None
        embedding = EmbeddingSource.from_target(target) if target and "embedding" in self.augment.sources else None
        made: list[Source] = []
        for name in self.augment.sources:
            if name == "embedding" and embedding is not None:
                made.append(embedding)
            elif name == "wordnet":
                made.append(WordNetSource(rank=embedding, conservative=self.augment.conservative))
            elif target is not None:
                from intarsia.robustness.infill import CausalInfillSource

                made.append(CausalInfillSource(target))
        return made


class Adversarial(NamedTuple):
    """Rows of an attack.

    Attributes:
        pairs: What is learned.
        audited: Rows left out because an audit asks their questions.
        held_out: Rows left out because the evaluation asks their questions.
        empty: Rows left out because they have no answer.
    """

    pairs: tuple[Pair, ...]
    audited: int = 0
    held_out: int = 0
    empty: int = 0


class Hardened(NamedTuple):
    """Examples with rewritten prompts, and how many are."""

    examples: Examples
    rewritten: int


def adversarial_pairs(recipe: HardenRecipe, held_out: Collection[str] = ()) -> Adversarial:
    """The rows of the recipe's attack as prompts and answers.

    A row whose original question an audit of the recipe's (generated) set asks is left out, as `load_examples` does
    with the questions themselves: a model is never trained on what it will be asked.

    Args:
        recipe: Names the file and how often each row comes.
        held_out: Questions kept for evaluation; rewrites of them are left out too.

    Raises:
        DataError: The file is missing or damaged, or a row has no question.
    """
    from intarsia.core.data.rows import read_rows

    rows = read_rows(recipe.adversarial.source).rows
    asked: set[str] = set()
    if recipe.data.source.partition(":")[0].partition("/")[0] in data.GENERATED:
        for count in AUDITED:
            asked |= {item.question for item in data.load(recipe.data.source, limit=count, seed=0).items}
    pairs: list[Pair] = []
    audited = kept = empty = 0
    for number, row in enumerate(rows, start=1):
        question, answer = row.get("question"), row.get("answer")
        if not isinstance(question, str) or not question.strip():
            raise DataError(
                f"Row {number} of {recipe.adversarial.source} has no field `question` with text.",
                "Give the adversarial.jsonl of an attack, or rows with question and answer.",
            )
        wordings = {question, str(row.get("original_question", question))}
        if wordings & asked:
            audited += 1
        elif not wordings.isdisjoint(held_out):
            kept += 1
        elif answer is None or not str(answer).strip():
            empty += 1
        else:
            prompt: str | list[Message] = question
            if recipe.data.format == "messages":
                prompt = [Message(role="user", content=question)]
                if recipe.data.system:
                    prompt.insert(0, Message(role="system", content=recipe.data.system))
            pairs += [Pair(prompt, str(answer))] * recipe.adversarial.repeat
    if not pairs:
        raise DataError(
            f"{recipe.adversarial.source} has no row to learn from"
            + (f": an audit asks the questions of all {audited}." if audited == len(rows) else "."),
            "Attack another draw of questions (--seed 1), or leave out `adversarial:`.",
        )
    return Adversarial(tuple(pairs), audited, kept, empty)


def harden(
    examples: Examples, augmenter: Augmenter | None, adversarial: Sequence[Pair] = (), copies: int = 1
) -> Hardened:
    """Examples whose prompts to learn are rewritten; those held out stay as they are.

    Args:
        examples: What to learn.
        augmenter: Rewrites; None leaves all prompts as they are.
        adversarial: Further pairs, taken as they are.
        copies: How often every pair comes, each time by another draw of the augmenter.
    """
    train: list[Pair] = []
    rewritten = 0
    for variant in range(copies):
        for pair in examples.train:
            prompt = pair.prompt if augmenter is None else _rewritten(pair, augmenter, variant)
            rewritten += prompt != pair.prompt
            train.append(Pair(prompt, pair.answer))
    train += adversarial
    digest = hashlib.sha256()
    for pair in (*train, *examples.held_out):
        digest.update(canonical_json(list(pair)) + b"\n")
    return Hardened(replace(examples, train=tuple(train), sha256=digest.hexdigest()), rewritten)


def _rewritten(pair: Pair, augmenter: Augmenter, variant: int) -> str | list[Message]:
    """A pair's prompt with its question rewritten: a text itself, or the last message of the user."""
    prompt = pair.prompt
    if isinstance(prompt, str):
        return augmenter.rewrite(prompt, answer=pair.answer, variant=variant)
    last = max((at for at, message in enumerate(prompt) if message["role"] == "user"), default=None)
    return [
        Message(
            role=message["role"],
            content=augmenter.rewrite(message["content"], answer=pair.answer, variant=variant),
        )
        if at == last
        else message
        for at, message in enumerate(prompt)
    ]


def _asked(pair: Pair) -> str:
    return pair.prompt if isinstance(pair.prompt, str) else str(pair.prompt[-1]["content"])


__all__ = ["AdversarialBlock", "AugmentBlock", "HardenRecipe", "adversarial_pairs", "harden"]

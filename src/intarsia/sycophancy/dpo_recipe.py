"""The recipe kind `dpo`: direct preference optimization on pairs, by TRL's `DPOTrainer`.

The paper trains Llama-3-8B-Instruct in this way and does not give beta, learning rate or epochs; the defaults are those
of TRL. The pairs are those of `build_dpo_pairs`, or any rows with a prompt, a chosen and a rejected reply.
"""

from __future__ import annotations

import copy
import hashlib
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from intarsia.core.errors import ConfigError, DataError, ModelError
from intarsia.core.recipes import Block, Progress, TrainRecipe
from intarsia.core.study import canonical_json
from intarsia.core.target import Message
from intarsia.core.training import Job, TrainReport, check_model, load_for_training, run_job
from intarsia.core.training.arguments import has_experts, lora_config, trainer_config
from intarsia.core.training.examples import common_prefix
from intarsia.sycophancy.dpo import normal
from intarsia.sycophancy.mended import as_messages, user_text

if TYPE_CHECKING:
    from datasets import Dataset
    from trl import DPOTrainer


class PairBlock(Block):
    """The pairs to learn.

    Attributes:
        source: `dpo-train.jsonl`, any .jsonl, .json, .csv or .parquet file with prompt, chosen and rejected (texts or
            lists of messages), or a hub id `org/name[:config][@revision]`.
        held_out: The same with pairs of other prompts, to evaluate on; empty for none.
        eval_share: Instead of `held_out`, the share of the prompts kept for evaluation, drawn by `seed`.
        split: Split of a hub set.
        map: Our field -> the source's field.
        dimension: Only pairs of this dimension, where the rows have one; empty for all.
        system: System message in front of prompts that have none.
        separator: What stands between prompt and reply for a model without a chat template.
        limit: Most pairs, drawn by `seed`.
        seed: Of the draws.
    """

    source: str = Field(min_length=1)
    held_out: str = ""
    eval_share: float = Field(0.0, ge=0.0, lt=1.0)
    split: str = "train"
    map: dict[Literal["prompt", "chosen", "rejected"], str] = Field(default_factory=dict)
    dimension: str = ""
    system: str = ""
    separator: str = "\n"
    limit: int | None = Field(None, ge=1)
    seed: int = Field(1000, ge=0)


class Comparison(NamedTuple):
    """A prompt with two replies."""

    prompt: list[Message]
    chosen: str
    rejected: str


class Framed(NamedTuple):
    """Comparisons as TRL's trainer takes them, with what fell out and how long they are."""

    rows: Dataset
    dropped: int
    cut: int
    longest: int
    tokens: int


class DPORecipe(TrainRecipe):
    """Direct preference optimization.

    Attributes:
        kind: `dpo`.
        data: The pairs.
        beta: Weight of staying near the model as it came; with 0 nothing is learned.
        trainer_args: Further arguments of TRL's `DPOConfig` (`loss_type`, `label_smoothing` ...).
    """

    kind: Literal["dpo"] = "dpo"
    data: PairBlock
    beta: float = Field(0.1, ge=0.0)

    def run(
        self,
        out: Path | None = None,
        resume: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> TrainReport:
        """Train; see `Recipe.run`."""
        return run_job(self, self.prepare, out=out, resume=resume, dry_run=dry_run, progress=progress)

    def prepare(self, weights: bool) -> Job:
        """Read the pairs and load the model.

        Args:
            weights: False for a dry run, which needs the model's shape only.

        Raises:
            ConfigError: A setting has no meaning here.
            DataError: The pairs are missing or of no use, or a held-out prompt is among those to learn.
        """
        self._check()
        train, held_out = self.comparisons()
        loaded = load_for_training(self, weights=weights)
        check_model(self, loaded.model)
        learned = frame(train, loaded.tokenizer, self.data, self.training.max_length)
        kept = frame(held_out, loaded.tokenizer, self.data, self.training.max_length) if held_out else None
        notes = list(loaded.notes)
        if learned.dropped:
            notes.append(f"Pairs left out because their prompt fills training.max_length: {learned.dropped}.")
        if learned.cut:
            notes.append(f"Pairs with a reply cut off at training.max_length: {learned.cut}.")
        digest = hashlib.sha256(canonical_json([list(one) for one in (*train, *held_out)])).hexdigest()

        def trainer(checkpoints: Path) -> DPOTrainer:
            from trl import DPOConfig, DPOTrainer

            config = trainer_config(
                self,
                DPOConfig,
                checkpoints,
                evaluate=kept is not None,
                beta=self.beta,
                ddp_find_unused_parameters=has_experts(loaded.model),
            )
            return DPOTrainer(
                model=loaded.model,
                # Adapters are turned off for the reference; otherwise it is the model as it came.
                ref_model=None if self.lora is not None else copy.deepcopy(loaded.model).requires_grad_(False),
                args=config,
                train_dataset=learned.rows,
                eval_dataset=kept.rows if kept is not None else None,
                processing_class=loaded.tokenizer,
                peft_config=lora_config(self),
            )

        return Job(
            loaded=loaded,
            trainer=trainer,
            data={
                "name": Path(self.data.source).stem,
                "origin": Path(self.data.source).name,
                "sha256": digest,
                "rows": len(train),
                "held_out": len(held_out),
            },
            rows=len(learned.rows),
            held_out=len(kept.rows) if kept is not None else 0,
            longest=learned.longest,
            tokens_per_row=learned.tokens / len(learned.rows),
            notes=notes,
        )

    def comparisons(self) -> tuple[list[Comparison], list[Comparison]]:
        """The pairs to learn, and those to evaluate on.

        Raises:
            DataError: They are missing or of no use, or a held-out prompt is among those to learn.
        """
        train = self._read(self.data.source, self.data.limit)
        held_out: list[Comparison] = []
        if self.data.held_out:
            held_out = self._read(self.data.held_out, None)
            asked = {normal(user_text(one.prompt)) for one in held_out}
            both = sum(normal(user_text(one.prompt)) in asked for one in train)
            if both:
                raise DataError(
                    f"{both} pairs to learn ask what {self.data.held_out} asks.",
                    "Split by prompt, not by row: build_dpo_pairs does.",
                )
        elif self.data.eval_share:
            prompts = sorted({normal(user_text(one.prompt)) for one in train})
            count = max(1, round(len(prompts) * self.data.eval_share))
            if count >= len(prompts):
                raise DataError(f"{len(prompts)} prompts are too few to keep some.", "Lower data.eval_share.")
            kept = set(random.Random(f"held out {self.data.seed}").sample(prompts, count))
            held_out = [one for one in train if normal(user_text(one.prompt)) in kept]
            train = [one for one in train if normal(user_text(one.prompt)) not in kept]
        return train, held_out

    def _check(self) -> None:
        if self.training.packing:
            raise ConfigError("Pairs cannot be packed.", "Leave out training.packing.")
        if not self.training.completion_only_loss:
            raise ConfigError("Preference is learned from replies only.", "Leave out training.completion_only_loss.")
        if self.data.held_out and self.data.eval_share:
            raise ConfigError("data.held_out and data.eval_share are both given.", "Give one of them.")

    def _read(self, source: str, limit: int | None) -> list[Comparison]:
        from intarsia.core.data.rows import read_rows

        rows = read_rows(source, split=self.data.split).rows
        if self.data.dimension:
            rows = [row for row in rows if row.get("dimension") == self.data.dimension]
        found = [_comparison(row, self.data, f"Row {at} of {source}") for at, row in enumerate(rows, start=1)]
        if not found:
            raise DataError(
                f"{source} has no pairs"
                + (f" of the dimension {self.data.dimension!r}." if self.data.dimension else "."),
                "Give another data.source.",
            )
        if limit is not None and len(found) > limit:
            chosen = sorted(random.Random(f"limit {self.data.seed}").sample(range(len(found)), limit))
            found = [found[at] for at in chosen]
        return found


def _comparison(row: Mapping[str, Any], block: PairBlock, where: str) -> Comparison:
    def field(name: Literal["prompt", "chosen", "rejected"]) -> Any:
        column = block.map.get(name, name)
        if row.get(column) is None:
            raise DataError(
                f"{where} has no field `{column}`; it has {', '.join(sorted(map(str, row)))}.",
                f"Say which field holds it: data.map: {{{name}: FIELD}}.",
            )
        return row[column]

    prompt = field("prompt")
    messages = as_messages(prompt) if isinstance(prompt, str) else _messages(prompt, where)
    chosen, rejected = (_reply(field(name), len(messages), where, name) for name in ("chosen", "rejected"))  # type: ignore[arg-type]
    if not user_text(messages).strip():
        raise DataError(f"{where} has a prompt without words of the user.", "Leave it out.")
    if chosen == rejected:
        raise DataError(f"{where} prefers a reply to itself.", "Leave it out.")
    if block.system and messages[0]["role"] != "system":
        messages = [Message(role="system", content=block.system), *messages]
    return Comparison(messages, chosen, rejected)


def _messages(value: object, where: str) -> list[Message]:
    good = isinstance(value, list) and value
    if not good or not all(
        isinstance(one, Mapping) and isinstance(one.get("role"), str) and isinstance(one.get("content"), str)
        for one in value  # type: ignore[attr-defined]
    ):
        raise DataError(
            f"{where} has a prompt that is neither a text nor a chat.",
            "A chat is a list of {role: user, content: ...}.",
        )
    return as_messages(value)  # type: ignore[arg-type]


def _reply(value: object, turns: int, where: str, name: str) -> str:
    """A reply as text; a whole chat that repeats the prompt gives its last message."""
    if isinstance(value, list) and value:
        value = _messages(value[turns:] if len(value) > turns else value, where)[-1]["content"]
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where} has an empty `{name}` reply.", "Leave it out.")
    return value


def frame(pairs: Sequence[Comparison], tokenizer: Any, block: PairBlock, most: int) -> Framed:
    """Comparisons in the form that TRL tokenizes: chats where the model has a template, otherwise plain text.

    Args:
        pairs: Prompts with two replies.
        tokenizer: The model's.
        block: Says how a plain prompt is framed.
        most: Tokens of the longest sequence; TRL cuts what is beyond.

    Raises:
        DataError: No prompt leaves room for a reply, or the template refuses one.
        ModelError: A model without chat template has no end token.
    """
    from datasets import Dataset

    templated = bool(tokenizer.chat_template)
    if not templated and tokenizer.eos_token is None:
        raise ModelError("The model's tokenizer has no end token, so nothing can end a reply.", "Take another model.")
    rows: list[dict[str, Any]] = []
    dropped = cut = longest = tokens = 0
    for pair in pairs:
        if templated:
            row: dict[str, Any] = {
                "prompt": pair.prompt,
                "chosen": [Message(role="assistant", content=pair.chosen)],
                "rejected": [Message(role="assistant", content=pair.rejected)],
            }
            ids = [
                tokenizer(_render(tokenizer, messages, not at), add_special_tokens=False, verbose=False)["input_ids"]
                for at, messages in enumerate(
                    (pair.prompt, [*pair.prompt, *row["chosen"]], [*pair.prompt, *row["rejected"]])
                )
            ]
        else:
            said = "\n\n".join(message["content"] for message in pair.prompt) + block.separator
            row = {"prompt": said, "chosen": pair.chosen, "rejected": pair.rejected}
            texts = (said, *(said + reply + tokenizer.eos_token for reply in (pair.chosen, pair.rejected)))
            ids = [tokenizer(text, verbose=False)["input_ids"] for text in texts]
        if max(common_prefix(ids[0], ids[1]), common_prefix(ids[0], ids[2])) >= most:
            dropped += 1
            continue
        lengths = [min(len(one), most) for one in ids[1:]]
        cut += max(map(len, ids[1:])) > most
        longest = max(longest, *lengths)
        tokens += sum(lengths)
        rows.append(row)
    if not rows:
        raise DataError(f"Not one of {len(pairs)} prompts leaves room for a reply.", "Raise training.max_length.")
    return Framed(Dataset.from_list(rows), dropped, cut, longest, tokens)


def _render(tokenizer: Any, messages: Sequence[Message], reply_follows: bool) -> str:
    import jinja2

    chat = [{"role": message["role"], "content": message["content"]} for message in messages]
    try:
        return str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=reply_follows))
    except jinja2.TemplateError as error:
        raise DataError(
            f"The model's chat template refuses a chat: {error}.", "Some templates take no system message."
        ) from error

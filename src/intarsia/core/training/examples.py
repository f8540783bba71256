"""Training examples: rows of a data set -> prompt and answer -> tokens with the prompt masked.

One tokenization for every trainer: the loss falls on the answer alone, a row whose answer lies wholly beyond the length
limit is dropped and counted, and an answer that is cut is counted, for a model does not learn to stop from it.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from intarsia.core import data
from intarsia.core.catalog.chat import chat_style
from intarsia.core.errors import ConfigError, DataError, ModelError
from intarsia.core.recipes import DataBlock
from intarsia.core.study import canonical_json
from intarsia.core.target import Message

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

IGNORED = -100
"""Label of a token that the loss does not count."""

GENERATED_ROWS = 1000
AUDITED = (30, 80, 300)
"""How many questions of a generated set the audit's budgets up to `standard` ask; none of them is learned."""
CHUNK = 512
ROLES = frozenset({"system", "user", "assistant", "tool"})


class Pair(NamedTuple):
    """One thing to learn.

    Attributes:
        prompt: A chat, a plain string, or an empty string for plain text.
        answer: What should follow.
    """

    prompt: str | list[Message]
    answer: str


@dataclass(frozen=True)
class Examples:
    """What a data block holds.

    Attributes:
        name: As it appears in reports.
        origin: Where it came from.
        licence: Where the source says so.
        sha256: Of the pairs, in order.
        train: Pairs to learn from.
        held_out: Pairs to evaluate on.
        empty: Rows left out because their answer is empty.
        audited: Rows of a generated set left out because an audit asks them.
    """

    name: str
    origin: str
    licence: str
    sha256: str
    train: tuple[Pair, ...]
    held_out: tuple[Pair, ...] = ()
    empty: int = 0
    audited: int = 0


@dataclass(frozen=True)
class Encoded:
    """Pairs as tokens.

    Attributes:
        rows: `input_ids` and `labels` of each row; labels are -100 on what is not learned.
        dropped: Rows left out because no token of their answer lies within the limit.
        cut: Rows kept whose answer is cut off by the limit.
        forked: Rows whose prompt alone has other last tokens than the prompt in front of its answer: the model learns
            the answer after a prompt that ends differently from the one it will be asked with.
        tokens: Tokens of all rows.
        learned: Tokens that the loss counts.
    """

    rows: Dataset
    dropped: int
    cut: int
    forked: int
    tokens: int
    learned: int


def load_examples(block: DataBlock) -> Examples:
    """The pairs of a data block.

    Raises:
        DataError: The data are missing, empty or damaged, a row lacks a field, or nothing is left.
        ConfigError: The block makes no sense.
    """
    name, origin, licence, rows = _rows(block)
    audited = 0
    if _head(block) in data.GENERATED:
        # Another seed draws anew, but from a finite world: two draws of capitals have most questions in common.
        asked = {item.question for count in AUDITED for item in data.load(block.source, limit=count, seed=0).items}
        before = len(rows)
        rows = [row for row in rows if row["question"] not in asked]
        audited = before - len(rows)
    if block.limit is not None and len(rows) > block.limit:
        chosen = sorted(random.Random(f"limit {block.seed}").sample(range(len(rows)), block.limit))
        rows = [rows[index] for index in chosen]
    pairs: list[Pair] = []
    empty = 0
    for number, row in enumerate(rows, start=1):
        for pair in _pairs(row, block, f"Row {number} of {name}"):
            if pair.answer.strip():
                pairs.append(pair)
            else:
                empty += 1
    if not pairs:
        raise DataError(
            f"{name} has no rows to learn from."
            + (f" All {empty} answers are empty." if empty else "")
            + (f" An audit asks all {audited} of them." if audited else ""),
            "Give another data.source.",
        )
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(canonical_json(list(pair)) + b"\n")
    held_out = _held_out(len(pairs), block)
    return Examples(
        name=name,
        origin=origin,
        licence=licence,
        sha256=digest.hexdigest(),
        train=tuple(pair for index, pair in enumerate(pairs) if index not in held_out),
        held_out=tuple(pair for index, pair in enumerate(pairs) if index in held_out),
        empty=empty,
        audited=audited,
    )


def _rows(block: DataBlock) -> tuple[str, str, str, list[dict[str, Any]]]:
    """Name, origin, licence and rows of the source; a set of questions becomes prompts and completions."""
    head = _head(block)
    if head in data.GENERATED or head in data.KNOWN:
        if block.format == "messages":
            raise ConfigError(f"{block.source} has questions and answers, not chats.", "Drop data.format.")
        limit = (block.limit or GENERATED_ROWS) if head in data.GENERATED else None
        split = None if head in data.GENERATED else block.split
        found = data.load(block.source, split=split, limit=limit, seed=block.seed)
        rows = [
            {**item.meta, "question": item.question, "answer": item.answer, "prompt": item.question}
            | {"completion": item.answer, "text": f"{item.question}\n{item.answer}"}
            for item in found.items
        ]
        return found.name, found.origin, found.licence, rows
    from intarsia.core.data.rows import read_rows

    read = read_rows(block.source, split=block.split, suggestions=data.names())
    return read.name, read.origin, read.licence, read.rows


def _head(block: DataBlock) -> str:
    """The part of the source that names a set: `reasoning-gym` of `reasoning-gym:gcd`, `mawps` of `mawps/addsub`."""
    return block.source.partition(":")[0].partition("/")[0]


def _held_out(count: int, block: DataBlock) -> frozenset[int]:
    """Indices of the rows kept for evaluation: at least one when a share is asked for, never all."""
    if block.eval_share == 0:
        return frozenset()
    wanted = max(1, round(count * block.eval_share))
    if wanted >= count:
        raise DataError(
            f"{count} rows are too few to keep {block.eval_share:.0%} of them for evaluation.",
            "Lower data.eval_share, or give more rows.",
        )
    return frozenset(random.Random(f"held out {block.seed}").sample(range(count), wanted))


def _pairs(row: Mapping[str, Any], block: DataBlock, where: str) -> Iterator[Pair]:
    def field(name: str) -> Any:
        column = block.map.get(name, name)  # type: ignore[call-overload]
        if column not in row:
            raise DataError(
                f"{where} has no field `{column}`; it has {', '.join(sorted(map(str, row)))}.",
                f"Say which field holds it: data.map: {{{name}: FIELD}}.",
            )
        return row[column]

    if block.format == "text":
        yield Pair("", _text(field("text"), f"The text of {where[0].lower()}{where[1:]}"))
    elif block.format == "messages":
        yield from _turns(_messages(field("messages"), where), block, where)
    else:
        prompt = field("prompt")
        answer = _text(field("completion"), f"The completion of {where[0].lower()}{where[1:]}")
        if isinstance(prompt, list):
            yield Pair(_with_system(_messages(prompt, where), block.system), answer)
        else:
            yield Pair(_text(prompt, f"The prompt of {where[0].lower()}{where[1:]}"), answer)


def _text(value: object, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"{what} is not text but {type(value).__name__}.", "Give a string, or map another field.")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{what} is not valid Unicode (it has a lone surrogate).", "Write the file as UTF-8.") from None
    return text


def _messages(value: object, where: str) -> list[Message]:
    """A chat as messages with role and content; the names from/value of older files are read as well."""
    hint = "A chat is a list of {role: user, content: ...}."
    if not isinstance(value, list) or not value:
        raise DataError(f"{where} has no list of messages.", hint)
    messages: list[Message] = []
    for message in value:
        role = message.get("role") if isinstance(message, Mapping) else None
        if not isinstance(message, Mapping) or not isinstance(role, str) or role not in ROLES:
            raise DataError(f"{where} has a message without a role among {', '.join(sorted(ROLES))}.", hint)
        messages.append(Message(role=role, content=_text(message.get("content"), f"A message's content in {where}")))
    return messages


def _turns(messages: list[Message], block: DataBlock, where: str) -> Iterator[Pair]:
    """A row for each assistant message that is to be learned, after all that was said before it."""
    messages = _with_system(messages, block.system)
    places = [index for index, message in enumerate(messages) if message["role"] == "assistant" and index > 0]
    if not places:
        raise DataError(f"{where} has no assistant message to learn.", "Leave out chats without an answer.")
    for place in places if block.turns == "all" else places[-1:]:
        yield Pair(messages[:place], messages[place]["content"])


def _with_system(messages: list[Message], system: str) -> list[Message]:
    if not system or messages[0]["role"] == "system":
        return messages
    return [Message(role="system", content=system), *messages]


def encode(
    pairs: Sequence[Pair],
    tokenizer: PreTrainedTokenizerBase,
    block: DataBlock,
    *,
    max_length: int,
    completion_only: bool = True,
) -> Encoded:
    """Pairs as tokens and labels.

    The answer starts where the tokens of the prompt alone and of prompt and answer part ways. A chat ends as the
    model's template ends a turn; plain text ends with the end token.

    Args:
        pairs: What to learn.
        tokenizer: The model's.
        block: Says how a plain prompt is framed.
        max_length: Longest row in tokens, at least 2; what is beyond is cut off.
        completion_only: Mask the prompt.

    Returns:
        Rows in the order of `pairs`.

    Raises:
        DataError: No row has an answer within `max_length`.
        ModelError: The model has no end token, or no chat template though the data are chats.
    """
    from datasets import Dataset

    frame = _frame(tokenizer, block)
    ids: list[list[int]] = []
    labels: list[list[int]] = []
    dropped = cut = forked = learned = 0
    for start in range(0, len(pairs), CHUNK):
        framed = [frame(pair) for pair in pairs[start : start + CHUNK]]
        special = framed[0].special
        prompts = tokenizer([text.prompt for text in framed], add_special_tokens=special, verbose=False)["input_ids"]
        wholes = tokenizer([text.whole for text in framed], add_special_tokens=special, verbose=False)["input_ids"]
        for text, prompt, whole in zip(framed, prompts, wholes):
            first = common_prefix(prompt, whole) if text.prompt else 0
            # Position 0 is never predicted, so an answer needs a token at position 1 or later.
            if max(first, 1) >= min(len(whole), max_length):
                dropped += 1
                continue
            cut += len(whole) > max_length
            forked += bool(text.prompt) and first < len(prompt)
            row = list(whole[:max_length])
            masked = first if completion_only else 0
            ids.append(row)
            labels.append([IGNORED] * masked + row[masked:])
            learned += len(row) - max(masked, 1)
    if not ids:
        raise DataError(
            f"Not one of {len(pairs)} rows has an answer within {max_length} tokens.", "Raise training.max_length."
        )
    rows = Dataset.from_dict({"input_ids": ids, "labels": labels})
    return Encoded(rows=rows, dropped=dropped, cut=cut, forked=forked, tokens=sum(map(len, ids)), learned=learned)


class Framed(NamedTuple):
    """A pair as the model reads it; `special` says whether the tokenizer should add its own special tokens."""

    prompt: str
    whole: str
    special: bool


def _frame(tokenizer: PreTrainedTokenizerBase, block: DataBlock) -> Callable[[Pair], Framed]:
    """How pairs are written for this model: as chats, or as plain text."""
    end = tokenizer.eos_token
    templated = bool(tokenizer.chat_template) and block.chat_template and block.format != "text"

    def chat(pair: Pair) -> Framed:
        messages = pair.prompt
        if isinstance(messages, str):
            messages = _with_system([Message(role="user", content=messages)], block.system)
        whole = [*messages, Message(role="assistant", content=pair.answer)]
        return Framed(_render(tokenizer, messages, True), _render(tokenizer, whole, False), False)

    def plain(pair: Pair) -> Framed:
        if not isinstance(pair.prompt, str):
            raise ModelError(
                "The data are chats, and the model has no chat template.",
                "Take an instruct model, or data with plain prompts and completions.",
            )
        joint = block.separator if pair.prompt and not pair.prompt[-1].isspace() else ""
        prompt = pair.prompt + joint
        return Framed(prompt, prompt + pair.answer + ("" if pair.answer.endswith(end) else end), True)

    if templated:
        if block.system and not chat_style(tokenizer).supports_system:
            raise ConfigError("The model's chat template takes no system message.", "Leave out data.system.")
        return chat
    if end is None:
        raise ModelError("The model's tokenizer has no end token, so nothing can end an answer.", "Take another model.")
    return plain


def _render(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message], answer_follows: bool) -> str:
    import jinja2

    try:
        chat = [{"role": message["role"], "content": message["content"]} for message in messages]
        return str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=answer_follows))
    except jinja2.TemplateError as error:
        raise DataError(
            f"The model's chat template refuses a chat: {error}.",
            "Chats should alternate between user and assistant; some templates take no system message.",
        ) from error


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    return next((index for index, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))

"""Training examples: what is learned, what is masked, what is cut, dropped and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.errors import ConfigError, DataError, IntarsiaError, ModelError
from intarsia.core.recipes import DataBlock
from intarsia.core.training.examples import AUDITED, IGNORED, Examples, Pair, common_prefix, encode, load_examples

CHAT = [
    {"role": "user", "content": "What is 12 + 30?"},
    {"role": "assistant", "content": "42"},
    {"role": "user", "content": "And the capital of France?"},
    {"role": "assistant", "content": "Paris, of course."},
]


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def load(tmp_path: Path, rows: list[Any], **block: Any) -> Examples:
    return load_examples(DataBlock(source=str(write_rows(tmp_path / "rows.jsonl", rows)), **block))


def learned_text(encoded: Any, tokenizer: Any, row: int) -> str:
    item = encoded.rows[row]
    return tokenizer.decode([token for token, label in zip(item["input_ids"], item["labels"]) if label != IGNORED])


@pytest.mark.parametrize("source", ["stories", "geography", "reasoning-gym"])
@pytest.mark.parametrize("seed", [0, 1000])
def test_no_generated_row_is_a_question_of_an_audit(source: str, seed: int) -> None:
    from intarsia.audit.capability import ITEMS
    from intarsia.core.data import load as load_set

    assert (ITEMS["smoke"], ITEMS["quick"], ITEMS["standard"]) == AUDITED
    asked = {item.question for count in AUDITED for item in load_set(source, limit=count, seed=0).items}
    examples = load_examples(DataBlock(source=source, limit=400, seed=seed))
    assert not asked & {pair.prompt for pair in examples.train if isinstance(pair.prompt, str)}
    assert len(examples.train) + examples.audited == 400
    assert examples.audited or (source, seed) == ("stories", 1000)


def test_a_set_whose_every_question_is_audited_leaves_nothing_to_learn() -> None:
    with pytest.raises(DataError, match="An audit asks all 30"):
        load_examples(DataBlock(limit=30, seed=0))


def test_generated_rows_come_from_the_seed_alone() -> None:
    one = load_examples(DataBlock(limit=20))
    assert len(one.train) == 20
    assert one == load_examples(DataBlock(limit=20))
    assert one.sha256 != load_examples(DataBlock(limit=20, seed=1001)).sha256


def test_generated_training_rows_are_not_the_audits_questions() -> None:
    from intarsia.core.data import load as load_set

    asked = {item.question for item in load_set("stories", limit=200, seed=0).items}
    assert not asked & {pair.prompt for pair in load_examples(DataBlock()).train}


def test_fields_are_mapped_and_numbers_become_text(tmp_path: Path) -> None:
    rows = [{"q": "6 x 7?", "a": 42}, {"q": "half?", "a": 0.5}]
    examples = load(tmp_path, rows, map={"prompt": "q", "completion": "a"})
    assert examples.train == (Pair("6 x 7?", "42"), Pair("half?", "0.5"))


def test_a_chat_gives_a_row_for_each_answer_or_for_the_last(tmp_path: Path) -> None:
    every = load(tmp_path, [{"messages": CHAT}], format="messages").train
    assert [(len(pair.prompt), pair.answer) for pair in every] == [(1, "42"), (3, "Paris, of course.")]
    last = load(tmp_path, [{"messages": CHAT}], format="messages", turns="last", system="Be kind.").train
    assert [(len(pair.prompt), pair.prompt[0]["role"]) for pair in last] == [(4, "system")]


def test_held_out_rows_are_a_draw_by_seed_and_no_row_is_in_both(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{index}", "completion": "c"} for index in range(50)]
    one, two = (load(tmp_path, rows, eval_share=0.1, seed=seed) for seed in (1, 2))
    assert (len(one.train), len(one.held_out)) == (45, 5)
    assert not set(one.train) & set(one.held_out)
    assert one.held_out != two.held_out
    with pytest.raises(DataError, match="too few"):
        load(tmp_path, rows[:1], eval_share=0.5)


def test_a_limit_draws_rows_in_their_order(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{index:02}", "completion": "c"} for index in range(50)]
    prompts = [pair.prompt for pair in load(tmp_path, rows, limit=10).train]
    assert len(prompts) == 10
    assert prompts == sorted(prompts)
    assert prompts != [row["prompt"] for row in rows[:10]]


@pytest.mark.parametrize(
    ("rows", "block", "says"),
    [
        ([{"question": "q", "completion": "c"}], {}, ["Row 1 of rows", "no field `prompt`", "question", "data.map"]),
        ([{"prompt": "p", "completion": None}], {}, ["completion of row 1", "not text but NoneType"]),
        ([{"prompt": "p", "completion": True}], {}, ["not text but bool"]),
        ([{"prompt": "p", "completion": "c"}, {"prompt": {}, "completion": "c"}], {}, ["prompt of row 2"]),
        ([{"prompt": "p", "completion": "\ud800"}], {}, ["not valid Unicode"]),
        ([{"prompt": "p", "completion": "  "}], {}, ["no rows to learn from", "All 1 answers are empty"]),
        ([{"messages": "hello"}], {"format": "messages"}, ["Row 1", "no list of messages"]),
        ([{"messages": [{"role": "robot", "content": "x"}]}], {"format": "messages"}, ["a message without a role"]),
        ([{"messages": [{"role": "user", "content": ["x"]}]}], {"format": "messages"}, ["content", "list"]),
        ([{"messages": CHAT[:1]}], {"format": "messages"}, ["Row 1", "no assistant message"]),
        ([{"prompt": [], "completion": "c"}], {}, ["no list of messages"]),
    ],
)
def test_each_bad_row_gets_its_line(tmp_path: Path, rows: list[Any], block: dict[str, Any], says: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path, rows, **block)
    assert "\n" not in caught.value.message
    for words in says:
        assert words in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02\xff" * 100, b"not json\n", b"[1, 2"])
def test_a_file_that_is_no_data_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(IntarsiaError) as caught:
        load_examples(DataBlock(source=str(path)))
    assert "\n" not in caught.value.message


def test_empty_answers_are_left_out_and_counted(tmp_path: Path) -> None:
    examples = load(tmp_path, [{"prompt": "p", "completion": ""}, {"prompt": "p", "completion": "c"}])
    assert (len(examples.train), examples.empty) == (1, 1)


def test_questions_are_no_chats() -> None:
    with pytest.raises(ConfigError, match="not chats"):
        load_examples(DataBlock(format="messages"))


def test_only_the_answer_and_the_end_of_its_turn_are_learned(tiny_tokenizer: Any) -> None:
    encoded = encode([Pair("What is 12 + 30?", "42")], tiny_tokenizer, DataBlock(), max_length=128)
    assert learned_text(encoded, tiny_tokenizer, 0) == "42<|im_end|>\n"
    whole = tiny_tokenizer.decode(encoded.rows[0]["input_ids"])
    assert whole == "<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n42<|im_end|>\n"
    everything = encode(
        [Pair("What is 12 + 30?", "42")], tiny_tokenizer, DataBlock(), max_length=128, completion_only=False
    )
    assert everything.rows[0]["labels"] == everything.rows[0]["input_ids"]


def test_a_model_without_a_template_gets_plain_text_with_an_end(tiny_tokenizer: Any) -> None:
    block = DataBlock(chat_template=False)
    encoded = encode([Pair("2 + 2?", "4"), Pair("So: ", "4")], tiny_tokenizer, block, max_length=128)
    assert tiny_tokenizer.decode(encoded.rows[0]["input_ids"]) == "2 + 2?\n4<|im_end|>"
    assert tiny_tokenizer.decode(encoded.rows[1]["input_ids"]) == "So: 4<|im_end|>"
    assert learned_text(encoded, tiny_tokenizer, 0) == "4<|im_end|>"


def test_plain_text_is_learned_from_its_second_token_on(tiny_tokenizer: Any) -> None:
    encoded = encode([Pair("", "The quick brown fox")], tiny_tokenizer, DataBlock(format="text"), max_length=64)
    assert learned_text(encoded, tiny_tokenizer, 0) == "The quick brown fox<|im_end|>"
    assert encoded.learned == encoded.tokens - 1  # nothing comes before the first token


def test_rows_without_room_for_an_answer_are_dropped_and_cut_ones_counted(tiny_tokenizer: Any) -> None:
    pairs = [Pair("long " * 60, "never seen"), Pair("short", "answer " * 60), Pair("short", "done")]
    encoded = encode(pairs, tiny_tokenizer, DataBlock(), max_length=64)
    assert (len(encoded.rows), encoded.dropped, encoded.cut) == (2, 1, 1)
    assert len(encoded.rows[0]["input_ids"]) == 64
    with pytest.raises(DataError, match="Not one of 1 rows"):
        encode(pairs[:1], tiny_tokenizer, DataBlock(), max_length=64)


def test_the_last_place_that_fits_is_kept(tiny_tokenizer: Any) -> None:
    pair = Pair("What is 12 + 30?", "42")
    row = encode([pair], tiny_tokenizer, DataBlock(), max_length=512).rows[0]
    first = row["labels"].index(next(label for label in row["labels"] if label != IGNORED))
    assert encode([pair], tiny_tokenizer, DataBlock(), max_length=first + 1).learned == 1
    with pytest.raises(DataError):
        encode([pair], tiny_tokenizer, DataBlock(), max_length=first)


def test_chats_need_a_template_and_plain_text_an_end_token(tiny_tokenizer: Any) -> None:
    import copy

    bare = copy.deepcopy(tiny_tokenizer)
    bare.chat_template = None
    with pytest.raises(ModelError, match="no chat template"):
        encode([Pair([{"role": "user", "content": "hi"}], "hello")], bare, DataBlock(), max_length=64)
    bare.eos_token = None
    with pytest.raises(ModelError, match="no end token"):
        encode([Pair("hi", "hello")], bare, DataBlock(), max_length=64)


def test_a_template_that_refuses_or_forgets_says_so(tiny_tokenizer: Any) -> None:
    import copy

    strict = copy.deepcopy(tiny_tokenizer)
    strict.chat_template = "{{ raise_exception('roles must alternate') if messages|length > 1 }}" + strict.chat_template
    with pytest.raises(DataError, match="roles must alternate"):
        encode([Pair("hi", "hello")], strict, DataBlock(), max_length=64)
    deaf = copy.deepcopy(tiny_tokenizer)
    deaf.chat_template = "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}"
    with pytest.raises(ConfigError, match="no system message"):
        encode([Pair("hi", "hello")], deaf, DataBlock(system="Be kind."), max_length=64)


def test_answers_that_follow_another_prompt_are_counted(tiny_tokenizer: Any) -> None:
    import copy

    thinking = copy.deepcopy(tiny_tokenizer)
    thinking.chat_template = tiny_tokenizer.chat_template.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
    encoded = encode([Pair("hi", "hello")], thinking, DataBlock(), max_length=64)
    assert encoded.forked == 1
    assert learned_text(encoded, thinking, 0) == "hello<|im_end|>\n"
    assert encode([Pair("hi", "hello")], tiny_tokenizer, DataBlock(), max_length=64).forked == 0


WORD = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=30)


@settings(max_examples=60, deadline=None)
@given(pairs=st.lists(st.tuples(WORD, WORD), min_size=1, max_size=5), max_length=st.integers(2, 80))
def test_labels_are_the_ids_or_masked_and_lengths_hold(tiny_tokenizer: Any, pairs: Any, max_length: int) -> None:
    try:
        encoded = encode([Pair(*pair) for pair in pairs], tiny_tokenizer, DataBlock(), max_length=max_length)
    except DataError:
        return
    assert len(encoded.rows) + encoded.dropped == len(pairs)
    learned = 0
    for row in encoded.rows:
        ids, labels = row["input_ids"], row["labels"]
        assert len(ids) == len(labels) <= max_length
        start = next(index for index, label in enumerate(labels) if label != IGNORED)
        assert labels == [IGNORED] * start + ids[start:]
        learned += sum(label != IGNORED for label in labels[1:])
    assert learned == encoded.learned > 0


@given(a=st.lists(st.integers(0, 3), max_size=8), b=st.lists(st.integers(0, 3), max_size=8))
def test_common_prefix_is_the_longest_shared_start(a: list[int], b: list[int]) -> None:
    length = common_prefix(a, b)
    assert a[:length] == b[:length]
    assert length == min(len(a), len(b)) or a[length] != b[length]


def test_tokens_and_labels_are_those_that_trl_makes(tiny_model: Any, tiny_tokenizer: Any, tmp_path: Path) -> None:
    import copy

    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer

    pairs = [Pair("What is 12 + 30?", "42"), Pair("long " * 40, "unseen"), Pair("capital of France?", "Paris " * 30)]
    config = SFTConfig(
        output_dir=str(tmp_path),
        max_length=60,
        bf16=False,
        use_cpu=True,
        report_to="none",
        gradient_checkpointing=False,
    )

    def theirs(rows: list[dict[str, Any]], tokenizer: Any) -> list[dict[str, Any]]:
        model = copy.deepcopy(tiny_model)
        trainer = SFTTrainer(model, config, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
        return [{key: row[key] for key in ("input_ids", "labels")} for row in trainer.train_dataset]

    chats = [
        {
            "prompt": [{"role": "user", "content": pair.prompt}],
            "completion": [{"role": "assistant", "content": pair.answer}],
        }
        for pair in pairs
    ]
    assert list(encode(pairs, tiny_tokenizer, DataBlock(), max_length=60).rows) == theirs(chats, tiny_tokenizer)
    bare = copy.deepcopy(tiny_tokenizer)
    bare.chat_template = None
    plain = [{"prompt": pair.prompt + "\n", "completion": pair.answer} for pair in pairs]
    assert list(encode(pairs, bare, DataBlock(), max_length=60).rows) == theirs(plain, bare)

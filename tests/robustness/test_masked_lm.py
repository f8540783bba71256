"""What a masked model proposes, held against a plain one-by-one computation on tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.core.data.stories import stories
from intarsia.core.errors import BackendError, ConfigError, DataError, ModelError
from intarsia.robustness.candidates import Source
from intarsia.robustness.masked_lm import (
    MaskedLMSource,
    WordTokens,
    _wordpiece,
    mask_tokens,
    masked_accuracy,
    train_masked_lm,
)
from intarsia.robustness.words import Span, words

TEXTS = tuple(item.question for item in stories(80, seed=3, levels="1").items)
STORIES = [item.question for item in stories(600, seed=1, levels="1").items]
HELD_OUT = [item.question for item in stories(100, seed=2, levels="1").items]
QUESTIONS = (
    *TEXTS[:3],
    "Unbelievably, Zyx's (red) twenty-five o'clock hats weren't there: 12 + 3rd?",
    "[MASK] is a word in this question, and [MASK] again.",
    "caf\u00e9 \u00fcber Stra\u00dfe",
)


def random_bert(tokenizer: Any, positions: int = 64) -> Any:
    import torch
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=positions,
        # Wide weights, so that some tokens are likely and which ones depends on the context.
        initializer_range=0.5,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return BertForMaskedLM(config).eval()


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return _wordpiece(TEXTS, 400, 64)


@pytest.fixture(scope="module")
def bert(tokenizer: Any) -> Any:
    return random_bert(tokenizer)


@pytest.fixture(scope="module")
def roberta() -> tuple[Any, Any]:
    """Byte-level BPE with a mask token that takes the space before it, and positions that begin behind padding's."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast, RobertaConfig, RobertaForMaskedLM

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=600,
            special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    raw.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        mask_token=AddedToken("<mask>", lstrip=True),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = RobertaForMaskedLM(
            RobertaConfig(
                vocab_size=len(tokenizer),
                hidden_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                intermediate_size=64,
                max_position_embeddings=66,
                pad_token_id=1,
                initializer_range=0.5,
            )
        )
    return model.eval(), tokenizer


def plain(model: Any, tokenizer: Any, question: str, word: Any) -> dict[int, float]:
    """Probability of every token at the word's place: one text, no batch, no window, the whole head."""
    import torch

    text = question[: word.start] + tokenizer.mask_token + question[word.end :]
    ids = tokenizer(text)["input_ids"]
    masks = [at for at, token in enumerate(ids) if token == tokenizer.mask_token_id]
    at = masks[question[: word.start].count(tokenizer.mask_token)]
    with torch.inference_mode():
        probs = model(input_ids=torch.tensor([ids])).logits[0, at].double().softmax(-1)
    return dict(enumerate(probs.tolist()))


def as_pairs(lists: Any) -> list[list[tuple[str, float]]]:
    return [[(candidate.text, candidate.score) for candidate in row] for row in lists]


def assert_same(a: Any, b: Any) -> None:
    assert [[text for text, _ in row] for row in as_pairs(a)] == [[text for text, _ in row] for row in as_pairs(b)]
    for left, right in zip(as_pairs(a), as_pairs(b)):
        assert [p for _, p in left] == pytest.approx([p for _, p in right], abs=1e-5)


# --- Against the plain computation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("question", QUESTIONS)
def test_candidates_are_the_whole_words_above_tau(bert: Any, tokenizer: Any, question: str) -> None:
    tau = 0.02
    source = MaskedLMSource(bert, tokenizer, tau=tau, batch_size=4)
    assert isinstance(source, Source)
    reading = WordTokens(tokenizer)
    for word, row in zip(words(question), source.propose(question, words(question)), strict=True):
        probs = plain(bert, tokenizer, question, word)
        wanted = {reading.text(token): p for token, p in probs.items() if p > tau and reading.text(token) is not None}
        own = {word.text.lower(), tokenizer.backend_tokenizer.normalizer.normalize_str(word.text)}
        wanted = {text: p for text, p in wanted.items() if text not in own}
        assert {c.text: c.score for c in row} == pytest.approx(wanted, abs=1e-5)
        assert [c.score for c in row] == sorted((c.score for c in row), reverse=True)
        assert all(c.score > tau for c in row)


def test_the_default_keeps_at_most_nine(bert: Any, tokenizer: Any) -> None:
    source = MaskedLMSource(bert, tokenizer)
    found = source.propose_many(TEXTS[:5], [words(text) for text in TEXTS[:5]])
    assert source.tau == 0.1
    assert max(len(row) for rows in found for row in rows) in range(1, 10)
    assert all(sum(c.score for c in row) <= 1.0001 for rows in found for row in rows)


def test_batched_equals_one_by_one(bert: Any, tokenizer: Any) -> None:
    lists = [words(question) for question in QUESTIONS]
    together = MaskedLMSource(bert, tokenizer, tau=0.02, batch_size=7).propose_many(QUESTIONS, lists)
    for question, listed, rows in zip(QUESTIONS, lists, together, strict=True):
        alone = [
            MaskedLMSource(bert, tokenizer, tau=0.02, batch_size=1).propose(question, [word])[0] for word in listed
        ]
        assert_same(rows, alone)


def test_the_head_sees_the_masked_positions_only(bert: Any, tokenizer: Any) -> None:
    shapes = []
    source = MaskedLMSource(bert, tokenizer, batch_size=8)
    handle = bert.cls.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape)))
    try:
        source.propose(TEXTS[0], words(TEXTS[0]))
    finally:
        handle.remove()
    assert shapes
    assert all(shape[1] == 1 and shape[0] <= 8 for shape in shapes)
    assert sum(shape[0] for shape in shapes) == len(words(TEXTS[0]))


def test_a_head_that_mixes_positions_is_run_on_all_of_them(bert: Any, tokenizer: Any) -> None:
    import torch

    class Mixing(torch.nn.Module):
        def __init__(self, head: Any) -> None:
            super().__init__()
            self.head = head

        def forward(self, hidden: Any) -> Any:
            return self.head(hidden + hidden.sum(dim=1, keepdim=True))

    model = random_bert(tokenizer)
    model.cls = Mixing(model.cls)
    source = MaskedLMSource(model, tokenizer, tau=0.02)
    question = TEXTS[0]
    word = words(question)[2]
    reading = WordTokens(tokenizer)
    wanted = [p for token, p in plain(model, tokenizer, question, word).items() if p > 0.02 and reading.text(token)]
    found = [c.score for c in source.propose(question, [word])[0]]
    assert found == pytest.approx(sorted(wanted, reverse=True)[: len(found)], abs=1e-5)
    assert len(wanted) - len(found) <= 1  # the word itself


# --- Where the mask stands -------------------------------------------------------------------------------------------

TEXT = st.lists(
    st.sampled_from(
        ["Tom", "has", "apples", "Unbelievably", "[MASK]", "o'clock", "12", ",", "(", "na\u00efve", "\n", "ab-cd"]
    ),
    min_size=1,
    max_size=40,
).map(" ".join)


@given(text=TEXT, window=st.integers(1, 12))
@settings(max_examples=60)
def test_the_mask_stands_for_the_word_inside_a_window(bert: Any, tokenizer: Any, text: str, window: int) -> None:
    source = MaskedLMSource(bert, tokenizer, window=window)
    chosen = words(text)
    rows = source._masked([(text, word.start, word.end) for word in chosen])

    def pieces(part: str) -> list[int]:
        return list(tokenizer(part, add_special_tokens=False)["input_ids"])

    for word, row in zip(chosen, rows, strict=True):
        left, right = pieces(text[: word.start]), pieces(text[word.end :])
        whole = [*left, tokenizer.mask_token_id, *right]
        body, at = row.ids[1:-1], row.at - 1
        assert (row.ids[0], row.ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
        assert len(body) == min(window, len(whole))
        assert body[at] == tokenizer.mask_token_id
        first = len(left) - at
        assert body == whole[first : first + len(body)]
        # In the middle, unless an end of the text is nearer.
        assert first == 0 or at >= window // 2
        assert first + len(body) == len(whole) or len(body) - at - 1 >= (window - 1) // 2


def test_a_long_question_sees_the_same_as_its_window(bert: Any, tokenizer: Any) -> None:
    question = " ".join(TEXTS)
    source = MaskedLMSource(bert, tokenizer, tau=0.02)
    assert source.window == 62
    middle = next(word for word in words(question) if word.start > len(question) // 2)
    row = source._masked([(question, middle.start, middle.end)])[0]
    assert len(row.ids) == 64
    found = source.propose(question, [middle])[0]
    alone = source._logprobs([row])
    probs = next(alone)[1][0].exp()
    reading = WordTokens(tokenizer)
    assert {c.text: c.score for c in found} == pytest.approx(
        {
            str(reading.text(token)): float(p)
            for token, p in enumerate(probs)
            if p > 0.02 and reading.text(token) not in (None, middle.text.lower())
        },
        abs=1e-6,
    )


# --- What is left out ------------------------------------------------------------------------------------------------


def test_pieces_punctuation_and_the_word_itself_never_come(tokenizer: Any) -> None:
    import torch

    model = random_bert(tokenizer)
    question = "Tom bought apples."
    vocabulary = tokenizer.get_vocab()
    unwanted = [token for token in vocabulary if token.startswith("##") or not token.isalnum()]
    unwanted += ["bought", "s", "t"]  # the word itself, and what is left of 's and n't
    assert {"s", "t"} <= set(vocabulary)
    assert len(unwanted) > 20
    with torch.no_grad():
        model.cls.predictions.transform.LayerNorm.weight.zero_()  # the bias decides alone
        for token in (*unwanted, "tom", "apples"):
            model.cls.predictions.bias[vocabulary[token]] = 50.0
    source = MaskedLMSource(model, tokenizer, tau=1e-4)
    seen = [{c.text for c in row} for row in source.propose(question, words(question))]
    assert set().union(*seen) <= {"tom", "apples", "bought"}
    assert all(word.text.lower() not in row for word, row in zip(words(question), seen))
    assert "apples" in seen[1]


def test_an_uncased_model_does_not_propose_a_word_without_its_accents(tokenizer: Any) -> None:
    import torch

    model = random_bert(tokenizer)
    with torch.no_grad():
        model.cls.predictions.bias[tokenizer.get_vocab()["tom"]] = 1000.0
    found = MaskedLMSource(model, tokenizer).propose("T\u00f3m has apples", words("T\u00f3m has apples"))
    assert [c.text for c in found[1]] == ["tom"]
    assert found[0] == []


def test_tokens_with_digits_can_be_left_out(tokenizer: Any) -> None:
    import torch

    model = random_bert(tokenizer)
    vocabulary = tokenizer.get_vocab()
    assert "12" in vocabulary
    with torch.no_grad():
        model.cls.predictions.bias[vocabulary["12"]] = 1000.0
    listed = words("Tom has apples")
    assert all(row[0].text == "12" for row in MaskedLMSource(model, tokenizer).propose("Tom has apples", listed))
    source = MaskedLMSource(model, tokenizer, numbers=False)
    assert not any(c.text == "12" for row in source.propose("Tom has apples", listed) for c in row)


@given(a=st.floats(0, 1.2), b=st.floats(0, 1.2))
@settings(max_examples=30)
def test_a_lower_tau_never_loses_a_candidate(bert: Any, tokenizer: Any, a: float, b: float) -> None:
    low, high = sorted((a, b))
    question = TEXTS[1]
    more = MaskedLMSource(bert, tokenizer, tau=low).propose(question, words(question)[:6])
    less = MaskedLMSource(bert, tokenizer, tau=high).propose(question, words(question)[:6])
    for wide, narrow in zip(more, less, strict=True):
        assert narrow == wide[: len(narrow)]


@pytest.mark.parametrize("tau", [1.0, 1.5])
def test_from_one_on_the_source_is_off_and_the_model_rests(bert: Any, tokenizer: Any, tau: float) -> None:
    source = MaskedLMSource(bert, tokenizer, tau=tau)
    calls: list[int] = []
    handle = bert.register_forward_pre_hook(lambda module, inputs: calls.append(1))
    try:
        found = source.propose(TEXTS[0], words(TEXTS[0]))
    finally:
        handle.remove()
    assert found == [[] for _ in words(TEXTS[0])]
    assert not calls


# --- Byte-level vocabularies -----------------------------------------------------------------------------------------


def test_byte_level_pieces_are_told_by_their_missing_space(roberta: tuple[Any, Any]) -> None:
    model, tokenizer = roberta
    source = MaskedLMSource(model, tokenizer, tau=0.005)
    assert source.window == 66 - 2 - 2
    question = 'Tom saw "apples" on the table\nMary left.'
    chosen = words(question)
    for word, row in zip(chosen, source.propose(question, chosen), strict=True):
        probs = plain(model, tokenizer, question, word)
        after_space = word.start > 0 and question[word.start - 1] == " "
        wanted: dict[str, float] = {}
        for token, p in sorted(probs.items(), key=lambda pair: -pair[1]):
            raw = tokenizer.convert_ids_to_tokens(token)
            text = tokenizer.decode([token]).strip()
            if p <= 0.005 or not text.isalnum() or not text.isascii() or text.lower() == word.text.lower():
                continue
            if raw.startswith("\u0120") or not after_space:
                wanted.setdefault(text, p)
        assert {c.text: c.score for c in row if c.text.isascii()} == pytest.approx(wanted, abs=1e-5)
    assert WordTokens(tokenizer).text(tokenizer.convert_tokens_to_ids("ing")) is None


def test_byte_level_masks_take_the_space_with_them(roberta: tuple[Any, Any]) -> None:
    model, tokenizer = roberta
    source = MaskedLMSource(model, tokenizer)
    question = TEXTS[0]
    for word, row in zip(words(question), source._masked([(question, w.start, w.end) for w in words(question)])):
        assert row.ids[row.at] == tokenizer.mask_token_id
        before = tokenizer.decode(row.ids[1 : row.at])
        assert before == question[: word.start].rstrip(" ")


# --- Cache -----------------------------------------------------------------------------------------------------------


def test_a_sweep_of_tau_runs_the_model_once(bert: Any, tokenizer: Any) -> None:
    source = MaskedLMSource(bert, tokenizer, tau=0.5)
    calls: list[int] = []
    listed = words(TEXTS[0])
    source.propose(TEXTS[0], listed)
    handle = bert.register_forward_pre_hook(lambda module, inputs: calls.append(1))
    try:
        source.tau = 0.02
        swept = source.propose(TEXTS[0], listed)
        assert not calls
        source.tau = 0.001
        source.propose(TEXTS[0], listed)
        assert calls
    finally:
        handle.remove()
    assert_same(swept, MaskedLMSource(bert, tokenizer, tau=0.02).propose(TEXTS[0], listed))


def test_results_are_kept_on_disk_by_model_and_text(bert: Any, tokenizer: Any, tmp_path: Path) -> None:
    import torch

    path = tmp_path / "mlm.jsonl"
    listed = words(TEXTS[0])
    first = MaskedLMSource(bert, tokenizer, tau=0.05, cache=path)
    wanted = first.propose(TEXTS[0], listed)
    first.close()
    again = MaskedLMSource(bert, tokenizer, tau=0.05, cache=path)
    calls: list[int] = []
    handle = bert.register_forward_pre_hook(lambda module, inputs: calls.append(1))
    try:
        assert again.propose(TEXTS[0], listed) == wanted
        assert not calls
        again.propose(TEXTS[1], words(TEXTS[1])[:1])
        assert calls
    finally:
        handle.remove()
    again.close()
    other = random_bert(tokenizer)
    with torch.no_grad():
        other.cls.predictions.bias += torch.linspace(-3, 3, len(tokenizer))
    changed = MaskedLMSource(other, tokenizer, tau=0.05, cache=path)
    assert changed.propose(TEXTS[0], listed) != wanted
    changed.close()


# --- Likelihood ------------------------------------------------------------------------------------------------------


def test_pseudo_log_likelihood_is_the_sum_over_masked_tokens(bert: Any, tokenizer: Any) -> None:
    import torch

    source = MaskedLMSource(bert, tokenizer, batch_size=5)
    text = "Tom unbelievably has red apples."
    ids = tokenizer(text)["input_ids"]
    belongs = tokenizer(text).word_ids()
    assert len(set(belongs)) < len(ids) - 1  # a word of several pieces
    total = 0.0
    for at in range(1, len(ids) - 1):
        masked = [
            tokenizer.mask_token_id if place >= at and belongs[place] == belongs[at] else token
            for place, token in enumerate(ids)
        ]
        with torch.inference_mode():
            logits = bert(input_ids=torch.tensor([masked])).logits[0, at].double()
        total += float(logits.log_softmax(-1)[ids[at]])
    found, empty = source.pseudo_log_likelihood([text, ""])
    assert found.total == pytest.approx(total, abs=1e-3)
    assert found.tokens == len(ids) - 2
    assert empty == (0.0, 0)


def test_spans_split_the_likelihood(bert: Any, tokenizer: Any) -> None:
    source = MaskedLMSource(bert, tokenizer)
    text = TEXTS[0]
    cut = text.index(" ", len(text) // 2)
    parts = source.pseudo_log_likelihood([text] * 3, [None, Span(0, cut), Span(cut, len(text))])
    assert parts[0].total == pytest.approx(parts[1].total + parts[2].total, abs=1e-3)
    assert parts[0].tokens == parts[1].tokens + parts[2].tokens
    assert min(parts[1].tokens, parts[2].tokens) > 3


# --- Loading and bad input -------------------------------------------------------------------------------------------


def test_a_saved_model_comes_back(bert: Any, tokenizer: Any, tmp_path: Path) -> None:
    bert.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = MaskedLMSource.load(str(tmp_path), tau=0.05, device="cpu")
    listed = words(TEXTS[0])
    assert_same(loaded.propose(TEXTS[0], listed), MaskedLMSource(bert, tokenizer, tau=0.05).propose(TEXTS[0], listed))


def test_what_is_no_masked_model_is_refused(
    bert: Any, tokenizer: Any, tiny_model: Any, tiny_tokenizer: Any, tiny_model_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="mask token"):
        MaskedLMSource(tiny_model, tiny_tokenizer)
    with pytest.raises(ModelError, match="not a masked language model"):
        MaskedLMSource(bert.bert, tokenizer)
    with pytest.raises(ModelError, match="masked language model"):
        MaskedLMSource.load(str(tiny_model_folder))
    bert.bert.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="at random"):
        MaskedLMSource.load(str(tmp_path))


def test_pickled_weights_are_refused(tokenizer: Any, bert: Any, tmp_path: Path) -> None:
    bert.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="pickled"):
        MaskedLMSource.load(str(tmp_path))


@pytest.mark.parametrize("name", ["bert-large-uncased", "org/no-such-masked-model", "nonsense"])
def test_offline_there_is_one_clear_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises((ModelError, BackendError), match="train_masked_lm"):
        MaskedLMSource.load(name, offline=True)


def test_damaged_weights_are_reported(tokenizer: Any) -> None:
    import torch

    model = random_bert(tokenizer)
    source = MaskedLMSource(model, tokenizer)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[:] = float("nan")
    with pytest.raises(ModelError, match="NaN"):
        source.propose(TEXTS[0], words(TEXTS[0]))


def test_options_out_of_range_are_refused(bert: Any, tokenizer: Any) -> None:
    for options in ({"tau": -0.1}, {"tau": float("nan")}, {"batch_size": 0}, {"window": 0}):
        with pytest.raises(ConfigError):
            MaskedLMSource(bert, tokenizer, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lists of words"):
        MaskedLMSource(bert, tokenizer).propose_many(["a", "b"], [[]])


def test_empty_and_strange_questions(bert: Any, tokenizer: Any) -> None:
    source = MaskedLMSource(bert, tokenizer)
    assert source.propose("", []) == []
    assert source.propose_many([], []) == []
    odd = "\ud800 Tom \U0001f600 has \u202e apples"
    assert len(source.propose(odd, words(odd))) == len(words(odd)) > 0


def test_progress_counts_positions(bert: Any, tokenizer: Any) -> None:
    seen: list[tuple[int, int]] = []
    listed = words(TEXTS[0])
    MaskedLMSource(bert, tokenizer, batch_size=4).propose_many(
        [TEXTS[0]], [listed], progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (len(listed), len(listed))
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


# --- Training --------------------------------------------------------------------------------------------------------


def test_masking_follows_the_rule_of_bert(tokenizer: Any) -> None:
    import torch

    rows = tokenizer(list(TEXTS), padding=True, return_tensors="pt")["input_ids"].repeat(10, 1)
    inputs, labels = mask_tokens(rows, tokenizer, torch.Generator().manual_seed(0))
    special = torch.isin(rows, torch.tensor(tokenizer.all_special_ids))
    asked = labels != -100
    assert not bool((asked & special).any())
    assert bool((labels[asked] == rows[asked]).all())
    assert bool((inputs[~asked] == rows[~asked]).all())
    assert float(asked.sum() / (~special).sum()) == pytest.approx(0.15, abs=0.01)
    hidden = inputs[asked] == tokenizer.mask_token_id
    same = inputs[asked] == rows[asked]
    assert float(hidden.float().mean()) == pytest.approx(0.8, abs=0.03)
    assert float(same.float().mean()) == pytest.approx(0.1, abs=0.03)
    assert not bool(torch.isin(inputs[asked & (inputs != tokenizer.mask_token_id)], torch.tensor([0, 1, 2, 3])).any())


def test_training_is_seeded_and_reports_progress() -> None:
    import torch

    seen: list[tuple[int, int]] = []
    options: dict[str, Any] = {"vocab_size": 200, "hidden": 32, "layers": 1, "steps": 3, "batch_size": 4}
    a, tokens = train_masked_lm(TEXTS, **options, progress=lambda done, total: seen.append((done, total)))
    b, _ = train_masked_lm(TEXTS, **options)
    c, _ = train_masked_lm(TEXTS, **options, seed=1)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert len(tokens) <= 200
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(next(a.parameters()), next(c.parameters()))
    assert MaskedLMSource(a, tokens).window == 126


def test_a_new_model_looks_at_its_neighbors() -> None:
    import torch

    # A rate too small to move any weight.
    model, tokens = train_masked_lm(TEXTS, vocab_size=400, hidden=64, steps=1, learning_rate=1e-12)
    model.set_attn_implementation("eager")
    ids = torch.tensor([tokens(TEXTS[0])["input_ids"]])
    first = model(input_ids=ids, output_attentions=True).attentions[0][0].detach()
    for head, offset in enumerate((-1, 1, -2, 2)):
        weights = {away: float(first[head].diagonal(away).mean()) for away in range(-5, 6)}
        assert max(weights, key=lambda away: weights[away]) == offset
        assert weights[offset] > 0.5
    seen = [token for row in tokens(list(TEXTS))["input_ids"] for token in row]
    counts = torch.bincount(torch.tensor(seen), minlength=len(tokens))
    bias = model.cls.predictions.bias.detach()
    common = counts > 20
    assert float(torch.corrcoef(torch.stack([bias[common], counts[common].log()]))[0, 1]) > 0.999


def test_training_refuses_what_cannot_be_learned() -> None:
    with pytest.raises(DataError, match="no texts"):
        train_masked_lm([" ", ""])
    for options in (
        {"hidden": 33},
        {"steps": 0},
        {"layers": 0},
        {"vocab_size": 3},
        {"batch_size": 0},
        {"max_tokens": 1},
        {"mask_rate": 1.0},
    ):
        with pytest.raises(ConfigError):
            train_masked_lm(TEXTS, **options)  # type: ignore[arg-type]


def test_a_second_of_training_beats_guessing_by_frequency() -> None:
    model, tokenizer = train_masked_lm(STORIES, vocab_size=400, hidden=32, layers=1, steps=120, learning_rate=0.01)
    found = masked_accuracy(model, tokenizer, HELD_OUT, STORIES)
    assert found.n > 300
    assert found.unigram < 0.35
    assert found.model > 2 * found.unigram


@pytest.mark.slow
def test_a_model_trained_on_stories_proposes_what_fits() -> None:
    model, tokenizer = train_masked_lm(STORIES, vocab_size=400, hidden=64, steps=400)
    found = masked_accuracy(model, tokenizer, HELD_OUT, STORIES)
    assert found.model > 2.5 * found.unigram
    question = "On Monday Tom bought 12 apples at the market. The apples were in a red box. What color was the box?"
    source = MaskedLMSource(model, tokenizer, tau=0.02)
    day, holder = (next(w for w in words(question) if w.text == text) for text in ("Monday", "bought"))
    days = {c.text for c in source.propose(question, [day])[0]}
    assert days
    assert days <= {"tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}
    assert source.propose(question, [holder])[0] == []  # only one verb stands there in these stories


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_minutes_of_training_on_real_questions(data_dir: Path) -> None:
    lines = (data_dir / "gsm8k" / "train.jsonl").read_text("utf-8").splitlines()
    questions = [json.loads(line)["question"] for line in lines]
    held_out, training = questions[::20], [q for place, q in enumerate(questions) if place % 20]
    model, tokenizer = train_masked_lm(training, steps=1000)
    found = masked_accuracy(model, tokenizer, held_out, training)
    print(found)
    assert found.n > 3000
    assert found.model > 2.5 * found.unigram

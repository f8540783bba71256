"""The tiny solver learns, repeats itself, survives a save, and never sees a test story in training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from intarsia.core.errors import ConfigError, DataError, ModelError
from intarsia.core.sampling import Sampling
from intarsia.robustness.proof import tiny_stories
from intarsia.robustness.proof.tiny_solver import CARD, WEIGHTS, TinySolver, train_tiny
from intarsia.robustness.proof.tiny_stories import (
    ADDING,
    SUBTRACTING,
    THINGS,
    VERBS,
    Writer,
    draw,
    tell,
    tokenize,
    training_words,
    vocabulary,
)

SYNONYMS = {
    "bought": ("purchased", "bribed"),
    "lost": ("mislaid",),
    "had": ("owned", "held", "got"),
    "apples": ("pomes", "crab apples"),
    "the": ("thee",),
}
STEPS = 120


@pytest.fixture(scope="module")
def solver() -> TinySolver:
    return train_tiny(3, augment=0.5, steps=STEPS, synonyms=SYNONYMS)


@pytest.fixture(scope="module")
def questions() -> list[str]:
    return [item.question for item in tiny_stories.tiny_stories(40, seed=1).items]


def logits(solver: TinySolver, questions: list[str]) -> np.ndarray:
    found: np.ndarray = solver.answer_logits(questions).numpy()
    return found


def said(solver: TinySolver, questions: list[str]) -> list[str]:
    return [completion.text for completion in solver.generate(questions)]


# --- Stories ---------------------------------------------------------------------------------------------------------


def test_stories_are_distinct_and_hold_their_answers() -> None:
    found = tiny_stories.tiny_stories(300, seed=2)
    assert len({item.question for item in found.items}) == 300
    for item in found.items:
        first, second = (int(token) for token in tokenize(item.question) if token.isdigit())
        [verb] = {token for token in tokenize(item.question) if token in VERBS}
        assert item.answer == str(first + second if verb in ADDING else first - second)
        assert 0 <= int(item.answer) <= 40
    assert tiny_stories.tiny_stories(20, seed=2).items == found.items[:20]
    assert {item.slices["operation"] for item in found.items} == {"add", "subtract"}


def test_test_stories_share_no_facts_with_training() -> None:
    def facts(held_out: bool, count: int, seed: int) -> set[tuple[int, ...]]:
        made = draw(np.random.default_rng(seed), count, held_out=held_out)
        return set(zip(made.verb_B.tolist(), made.things_B.tolist(), made.first_B.tolist(), made.second_B.tolist()))

    trained = facts(False, 60_000, 0)
    for item in tiny_stories.tiny_stories(200, seed=0).items:
        first, second = item.meta["numbers"]  # type: ignore[misc]
        things = next(THINGS.index(token) for token in tokenize(item.question) if token in THINGS)
        assert (VERBS.index(item.slices["verb"]), things, first, second) not in trained
    # The other way round: numbers with some other verb or thing are trained on, or the stories could not be solved.
    numbers = {(verb < len(ADDING), first, second) for verb, _, first, second in trained}
    held = {(verb < len(ADDING), first, second) for verb, _, first, second in facts(True, 2_000, 1)}
    assert held <= numbers


def test_a_tenth_is_held_out() -> None:
    made = draw(np.random.default_rng(0), 5_000, held_out=False)
    assert not made.held_out_B.any()
    verbs, things, first, second = (grid.ravel() for grid in np.mgrid[0:16, 0:12, 2:21, 2:21])
    every = tiny_stories.Facts(verbs, things, first, second, 0 * verbs, 0 * verbs)
    assert 0.09 < every.held_out_B.mean() < 0.11


def test_verbs_and_things_follow_zipf() -> None:
    made = draw(np.random.default_rng(1), 60_000, held_out=False)
    counts = np.bincount(made.things_B, minlength=len(THINGS))
    wanted = 1 / np.arange(1, len(THINGS) + 1)
    assert np.abs(counts / counts.sum() - wanted / wanted.sum()).max() < 0.01
    adds = np.bincount(made.verb_B, minlength=len(VERBS))
    assert abs(adds[: len(ADDING)].sum() / adds.sum() - 0.5) < 0.01
    assert adds[0] > 6 * adds[len(ADDING) - 1]
    assert adds[len(ADDING)] > 6 * adds[-1]


def test_rows_of_ids_are_the_told_stories() -> None:
    words_V = vocabulary(SYNONYMS)
    writer = Writer(words_V, SYNONYMS)
    made = draw(np.random.default_rng(4), 200, held_out=False)
    ids_BL = writer.write(made)
    for row in range(200):
        tokens = [words_V[i] for i in ids_BL[row] if words_V[i] != tiny_stories.PAD]
        assert tokens[0] == tiny_stories.SPECIAL[2]
        assert tokens[1:] == tokenize(tell(made, row))
        first, second = (int(token) for token in tokens if token.isdigit())
        adds = any(token in ADDING for token in tokens)
        assert made.answer_B[row] == (first + second if adds else first - second)


def test_a_swap_changes_one_word_everywhere_to_its_synonym() -> None:
    words_V = vocabulary(SYNONYMS)
    writer = Writer(words_V, SYNONYMS)
    rng = np.random.default_rng(5)
    made = draw(rng, 4_000, held_out=False)
    ids_BL = writer.write(made)
    swapped_BL = writer.swap(rng, ids_BL, made, 0.7)
    share = 0
    seen: set[tuple[str, str]] = set()
    for old_L, new_L in zip(ids_BL, swapped_BL, strict=True):
        pairs = {(words_V[old], words_V[new]) for old, new in zip(old_L, new_L) if old != new}
        if not pairs:
            continue
        share += 1
        [(word, synonym)] = pairs
        assert synonym in SYNONYMS[word]
        assert not any(words_V[i] == word for i in new_L)
        seen.add((word, synonym))
    wanted = {(word, synonym) for word, found in SYNONYMS.items() for synonym in found if " " not in synonym}
    assert seen == wanted
    eligible = np.isin(ids_BL, [words_V.index(word) for word in SYNONYMS]).any(axis=1).mean()
    assert abs(share / 4_000 - 0.7 * eligible) < 0.03
    assert (writer.swap(rng, ids_BL, made, 0.0) == ids_BL).all()


def test_the_vocabulary_holds_the_stories_words_and_single_synonyms() -> None:
    words_V = vocabulary(SYNONYMS)
    assert len(set(words_V)) == len(words_V)
    assert set(training_words()) | {"purchased", "thee", "0", "40"} <= set(words_V)
    assert "crab apples" not in words_V
    assert 60 <= len(training_words()) <= 72


def test_wordnet_has_synonyms_that_leave_each_verb_on_its_side() -> None:
    try:
        found = tiny_stories.wordnet_synonyms()
    except DataError as error:
        pytest.skip(f"no WordNet: {error}")
    assert {"purchased", "bribed"} <= set(found["bought"])
    assert "ledgers" in found["books"]
    unused = len(vocabulary(found)) - len(vocabulary({}))
    assert unused > 5 * len(training_words())  # most of the vocabulary is never trained on
    for adding in ADDING:
        for subtracting in SUBTRACTING:
            assert subtracting not in found.get(adding, ())
            assert adding not in found.get(subtracting, ())


# --- Training --------------------------------------------------------------------------------------------------------


def test_a_short_training_learns(solver: TinySolver) -> None:
    losses = solver.training.losses
    assert len(losses) == 3  # two of 50 steps, one of 20
    assert losses[0] < np.log(41) + 0.1
    assert losses[2] < losses[1] < losses[0] - 0.1
    # It reads the numbers, not just which answers are frequent.
    items = tiny_stories.tiny_stories(200, seed=9).items
    answers = np.array([int(item.answer or "") for item in items])
    counts = np.bincount(answers, minlength=41) + 1
    prior = -np.log(counts / counts.sum())[answers].mean()
    logits_BA = solver.answer_logits([item.question for item in items])
    assert -logits_BA.log_softmax(-1).numpy()[np.arange(200), answers].mean() < prior - 0.1


def test_training_is_a_function_of_its_seed(questions: list[str]) -> None:
    done: list[tuple[int, int]] = []

    def train(seed: int) -> TinySolver:
        progress = lambda now, total: done.append((now, total))  # noqa: E731
        return train_tiny(seed, augment=0.5, steps=5, progress=progress, synonyms=SYNONYMS)

    one, again, other = train(3), train(3), train(4)
    assert done == [(5, 5)] * 3
    assert again.training == one.training
    np.testing.assert_array_equal(logits(again, questions), logits(one, questions))
    assert not np.array_equal(logits(other, questions), logits(one, questions))
    assert other.name != one.name


def test_unused_words_keep_their_first_vectors(solver: TinySolver) -> None:
    one, two = (train_tiny(3, steps=steps, synonyms=SYNONYMS) for steps in (1, 5))
    same = (one.embedding_VD == two.embedding_VD).all(axis=1)
    moved = {word for word, unchanged in zip(one.words_V, same, strict=True) if not unchanged}
    assert {"had", "bought", "apples", "12"} <= moved
    assert {"purchased", "thee", "pomes", tiny_stories.UNKNOWN} & moved == set()
    # Swapped in, they are trained.
    assert not np.array_equal(
        solver.embedding_VD[solver.words_V.index("purchased")], one.embedding_VD[one.words_V.index("purchased")]
    )


def test_its_size_is_what_is_claimed(solver: TinySolver) -> None:
    body = sum(p.numel() for name, p in solver.model.named_parameters() if not name.startswith("words."))
    assert 60_000 < body + 64 * 600 < 130_000
    assert solver.embedding_VD.shape == (len(solver.words_V), 64)
    assert solver.embedding_VD.dtype == np.float32


# --- As a target -----------------------------------------------------------------------------------------------------


def test_saved_and_loaded_it_says_the_same(solver: TinySolver, questions: list[str], tmp_path: Path) -> None:
    folder = solver.save(tmp_path / "deep" / "solver")
    assert sorted(path.name for path in folder.parent.iterdir()) == ["solver"]  # nothing half-written beside it
    loaded = TinySolver.load(solver.save(folder))  # once more, over itself
    np.testing.assert_array_equal(logits(loaded, questions), logits(solver, questions))
    assert (loaded.words_V, loaded.training, loaded.name) == (solver.words_V, solver.training, solver.name)


def test_damaged_folders_are_refused(solver: TinySolver, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no whole tiny solver"):
        TinySolver.load(tmp_path / "nowhere")
    folder = solver.save(tmp_path / "solver")
    weights = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ModelError, match="no whole tiny solver"):
        TinySolver.load(folder)
    card = json.loads((folder / CARD).read_text())
    (folder / CARD).write_text(json.dumps(card | {"format": 99}))
    with pytest.raises(ModelError, match="format 99"):
        TinySolver.load(folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not delete")
    with pytest.raises(ConfigError):
        solver.save(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_unknown_words_are_all_alike(solver: TinySolver) -> None:
    story = "Tom had 12 {}. Then Tom bought 5 {}. How many {} does Tom have now?"
    made = [story.replace("{}", word) for word in ("zebras", "Quokkas", "\u5c71", "apples")]
    unknown = solver.words_V.index(tiny_stories.UNKNOWN)
    assert [solver.encode(text).count(unknown) for text in made] == [3, 3, 3, 0]
    one, two, three, known = logits(solver, made)
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, three)
    assert not np.array_equal(one, known)
    assert logits(solver, ["", "?", "word " * 500]).shape == (3, 41)


def test_a_prompt_around_the_question_changes_nothing(solver: TinySolver, questions: list[str]) -> None:
    plain = said(solver, questions)
    hinted = [f"Question: {question}\nFinish with the answer as a number: The answer is N." for question in questions]
    chats = [[{"role": "user", "content": text}] for text in hinted]
    assert said(solver, hinted) == plain
    assert [completion.text for completion in solver.generate(chats)] == plain
    assert plain == [str(row.argmax()) for row in logits(solver, questions)]


def test_answers_depend_on_neither_batch_nor_order(solver: TinySolver, questions: list[str]) -> None:
    many = questions * 10
    hot = Sampling(temperature=1.0, seed=7, logprobs=True)
    keys = [f"k{i}" for i in range(len(many))]
    whole = solver.generate(many, hot, keys=keys)
    order = np.random.default_rng(0).permutation(len(many)).tolist()
    mixed = solver.generate([many[i] for i in order], hot, keys=[keys[i] for i in order])
    assert [whole[i].text for i in order] == [completion.text for completion in mixed]
    assert len({completion.text for completion in whole[:: len(questions)]}) > 1  # the same question, sampled
    assert said(solver, many) == said(solver, questions) * 10
    assert all(c.token_count == 1 and c.logprobs is not None and c.logprobs[0] <= 0 for c in whole)
    assert sorted(i for group in solver.batches(many) for i in group) == list(range(len(many)))


def test_nonsense_is_refused() -> None:
    for wrong in ({"augment": 1.2}, {"steps": 0}):
        with pytest.raises(ConfigError):
            train_tiny(0, synonyms=SYNONYMS, **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        tiny_stories.tiny_stories(0)


@pytest.mark.slow
def test_trained_to_the_end_it_solves_new_stories() -> None:
    trained = train_tiny(0, synonyms=SYNONYMS)
    items = tiny_stories.tiny_stories(200).items
    assert (
        np.mean([text == item.answer for text, item in zip(said(trained, [i.question for i in items]), items)]) > 0.97
    )

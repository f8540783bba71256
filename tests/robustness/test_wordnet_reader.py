from __future__ import annotations

import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.core.catalog.wordnet import locate
from intarsia.core.errors import ConfigError, DataError
from intarsia.robustness.wordnet import WordNet
from tests.robustness.tiny_wordnet import Sense, write_wordnet

SENSES = (
    Sense("n", ("dog", "domestic_dog"), [("@", 1, 0, 0)], "a pet"),
    Sense("n", ("animal",), [("~", 0, 0, 0)]),
    Sense("a", ("good", "fine(p)"), [("!", 3, 1, 1), ("!", 4, 2, 1)]),
    Sense("a", ("bad",)),
    Sense("s", ("coarse",)),
    Sense("v", ("run", "go")),
    Sense("v", ("run", "operate")),
    Sense("n", ("run",)),
    Sense("r", ("well",)),
    Sense("n", ("boxful",)),
    Sense("n", ("man",)),
    Sense("n", ("glass",)),
    Sense("v", ("hope",)),
    Sense("v", ("hop",)),
)


@pytest.fixture
def tiny(tmp_path: Path) -> WordNet:
    counts = {("run", "v"): 7, ("good", "a"): 2, ("coarse", "s"): 3}
    return WordNet(write_wordnet(tmp_path, SENSES, counts=counts, exceptions={"ran": "run", "best": "well"}))


@pytest.fixture(scope="module")
def real() -> WordNet:
    try:
        return WordNet(locate(offline=True))
    except DataError as error:
        pytest.skip(f"no WordNet on this machine: {error.message}")


def test_senses_keep_their_order_and_names(tiny: WordNet) -> None:
    first, second = tiny.synsets("run", "v")
    assert (tiny.lemmas(first), tiny.lemmas(second)) == (("run", "go"), ("run", "operate"))
    assert [tiny.name(one) for one in (first, second)] == ["run.v.01", "run.v.02"]
    assert [one.pos for one in tiny.synsets("run")] == ["n", "v", "v"]
    assert tiny.synsets("Domestic dog")[0].gloss == "a pet"
    assert tiny.synsets("nothing") == []


def test_markers_of_adjectives_are_no_part_of_the_word(tiny: WordNet) -> None:
    assert tiny.lemmas(tiny.synsets("fine", "s")[0]) == ("good", "fine")


def test_pointers(tiny: WordNet) -> None:
    dog, good = tiny.synsets("dog")[0], tiny.synsets("good")[0]
    assert [tiny.name(one) for one in tiny.related(dog, "hypernym")] == ["animal.n.01"]
    assert tiny.related(tiny.related(dog, "@")[0], "hyponym") == [dog]
    assert [tiny.lemmas(one) for one in tiny.related(good, "antonym")] == [("bad",), ("coarse",)]
    assert [tiny.lemmas(one) for one in tiny.related(good, "antonym", lemma="Fine")] == [("coarse",)]
    with pytest.raises(ConfigError, match="no pointer 'parent'"):
        tiny.related(dog, "parent")


@pytest.mark.parametrize(
    ("word", "base_forms"),
    [
        ("dogs", [("dog", "n")]),
        ("Running", []),
        ("runs", [("run", "n"), ("run", "v")]),
        ("ran", [("run", "n"), ("run", "v")]),
        ("boxesful", [("boxful", "n")]),
        ("men", [("man", "n")]),
        ("glasses", [("glass", "n")]),
        ("glass", [("glass", "n")]),
        ("hoped", [("hope", "v")]),
        ("hopes", [("hope", "v")]),
        ("hops", [("hop", "v")]),
        ("finest", [("fine", "a")]),
        ("best", [("well", "r")]),
        ("s", []),
        ("", []),
        ("\u0434\u043e\u043c", []),
    ],
)
def test_base_forms(tiny: WordNet, word: str, base_forms: list[tuple[str, str]]) -> None:
    assert tiny.morphy(word) == base_forms


def test_exceptions_keep_rules_away(tmp_path: Path) -> None:
    others = [Sense(pos, ("thing",)) for pos in "nar"]
    senses = (Sense("v", ("spit",)), Sense("v", ("spat",)), Sense("v", ("spate",)), *others)
    reader = WordNet(write_wordnet(tmp_path, senses, exceptions={"spated": "spit"}))
    assert reader.morphy("spated") == [("spit", "v")]


def test_frequency_counts_satellites_with_adjectives_and_falls_back(tiny: WordNet, tmp_path: Path) -> None:
    assert [tiny.frequency(*one) for one in (("run", "v"), ("run", "n"), ("coarse", "a"))] == [7, 0, 3]
    uncounted = WordNet(write_wordnet(tmp_path / "uncounted", SENSES))
    assert [uncounted.frequency(*one) for one in (("run", "v"), ("run", "n"), ("none", "n"))] == [2, 1, 0]


def test_unknown_part_of_speech(tiny: WordNet) -> None:
    with pytest.raises(ConfigError, match="part of speech 'noun'"):
        tiny.synsets("dog", "noun")


@pytest.mark.parametrize("name", ["data.verb", "index.verb", "cntlist.rev"])
@pytest.mark.parametrize("damage", ["garbled", "gone", "empty", "shifted"])
def test_damage_is_one_clear_error(tmp_path: Path, name: str, damage: str) -> None:
    # The first and the last entry are whole, so that opening the folder finds nothing.
    senses = [Sense("v", ("aa",)), *SENSES, Sense("v", ("zz",))]
    folder = write_wordnet(tmp_path, senses, counts={("aa", "v"): 1, ("run", "v"): 7})
    reader = WordNet(folder)
    lines = (folder / name).read_text().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if " run " in f" {line.replace('%', ' ')}")
    if damage == "garbled":
        lines[place] = lines[place][:14] + "\n"
    if damage == "shifted":
        lines[place] = "x" + lines[place].replace("run", "ru")
    if damage == "gone":
        (folder / name).unlink()
    else:
        (folder / name).write_text("" if damage == "empty" else "".join(lines))
    if name == "cntlist.rev" and damage in ("gone", "empty", "shifted"):
        assert reader.frequency("run", "v") == {"gone": 2, "empty": 2, "shifted": 0}[damage]
    elif name == "index.verb" and damage in ("empty", "shifted"):
        assert reader.synsets("run", "v") == []  # a lemma that is not listed is no damage that can be seen
    else:
        with pytest.raises(DataError, match=rf"{name} .* damaged"):
            [reader.synsets("run", "v"), reader.frequency("run", "v")]


def test_not_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a WordNet folder"):
        WordNet(tmp_path)


def test_threads_and_pickles(tiny: WordNet) -> None:
    expected = tiny.synsets("run")
    fresh = pickle.loads(pickle.dumps(tiny))
    with ThreadPoolExecutor(8) as pool:
        assert all(found == expected for found in pool.map(fresh.synsets, ["run"] * 64))


@given(st.text())
def test_any_text_can_be_asked(text: str) -> None:
    reader = _any_text_reader()
    assert all(reader.synsets(lemma, part) for lemma, part in reader.morphy(text))


def _any_text_reader(made: list[WordNet] = []) -> WordNet:  # noqa: B006 - one for all examples
    if not made:
        import tempfile

        made.append(WordNet(write_wordnet(Path(tempfile.mkdtemp()), SENSES, exceptions={"ran": "run"})))
    return made[0]


# --- the real one ---------------------------------------------------------------------------------------------------


def test_real_senses(real: WordNet) -> None:
    assert [real.lemmas(one) for one in real.synsets("buy", "v")][:2] == [
        ("buy", "purchase"),
        ("bribe", "corrupt", "buy", "grease_one's_palms"),
    ]
    assert [real.name(one) for one in real.synsets("buy")][:3] == ["bargain.n.02", "buy.v.01", "bribe.v.01"]
    assert "bad" in real.lemmas(real.related(real.synsets("good", "a")[0], "antonym")[0])
    assert "puppy" in {word for one in real.related(real.synsets("dog", "n")[0], "hyponym") for word in one.words}


@pytest.mark.parametrize(
    ("word", "base_form"),
    [
        ("bought", ("buy", "v")),
        ("children", ("child", "n")),
        ("Apples", ("apple", "n")),
        ("ponies", ("pony", "n")),
        ("found", ("find", "v")),
        ("bigger", ("big", "a")),
        ("best", ("good", "a")),
        ("running", ("run", "v")),
    ],
)
def test_real_base_forms(real: WordNet, word: str, base_form: tuple[str, str]) -> None:
    assert base_form in real.morphy(word)


def test_real_files_agree_with_one_another(real: WordNet) -> None:
    """Every sense that the index names is there, and holds the lemma that named it."""
    index = (real.folder / "index.verb").read_text().splitlines()
    lemmas = [line.split()[0] for line in index if not line.startswith(" ")]
    for lemma in random.Random(0).sample(lemmas, 500):
        senses = real.synsets(lemma, "v")
        assert senses
        assert all(lemma in {word.lower() for word in real.lemmas(sense)} for sense in senses)
        assert (lemma, "v") in real.morphy(lemma)
        numbers = [int(real.name(sense).rsplit(".", 1)[1]) for sense in senses]
        assert all(numbers)

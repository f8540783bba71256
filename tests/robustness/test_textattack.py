"""The transformation for TextAttack: its pure part, without TextAttack, and inside TextAttack's own attack."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from intarsia.core.errors import ConfigError
from intarsia.robustness.candidates import CallableSource
from intarsia.robustness.textattack import as_transformation, swaps, word_spans

TEXT = "Tom found 3 apples; Ann's mother-in-law found Tom's hat."
SYNONYMS = {"found": ["discovered"], "tom": ["thomas"], "ann": ["anna"], "mother-in-law": ["aunt"], "hat": ["cap"]}
PEER = Path(__file__).resolve().parents[2] / ".venvs" / "textattack"


def propose(word: str, question: str) -> list[str]:
    return SYNONYMS.get(word.lower(), [])


def split(text: str) -> list[str]:
    """Words as TextAttack splits this text: apostrophes and hyphens stay inside."""
    return re.findall(r"[\w'-]+", text)


def test_word_spans_are_where_the_words_stand() -> None:
    found = word_spans(TEXT, split(TEXT))
    assert [TEXT[span.start : span.end] for span in found] == split(TEXT)
    with pytest.raises(ValueError):
        word_spans("a b", ["b", "a"])


def test_swaps_are_the_merged_rewrites_in_textattacks_words() -> None:
    words, source = split(TEXT), CallableSource("s", propose)
    every = swaps(TEXT, words, range(len(words)), [source], scope={"s": "local"})
    assert [(swap.indices, swap.words) for swap in every] == [
        ((0,), ("Thomas",)),
        ((1,), ("discovered",)),
        ((4,), ("Anna's",)),
        ((5,), ("aunt",)),
        ((6,), ("discovered",)),
        ((7,), ("Thomas's",)),
        ((8,), ("cap",)),
    ]
    only = swaps(TEXT, words, {1, 7}, [source], scope={"s": "global"})
    assert [(swap.indices, swap.words) for swap in only] == [
        ((1, 6), ("discovered", "discovered")),
        ((0, 7), ("Thomas", "Thomas's")),
    ]
    for swap in (*every, *only):
        new = list(words)
        for at, word in zip(swap.indices, swap.words):
            new[at] = word
        assert split(swap.rewrite.text) == new


def test_protected_words_and_words_that_lie_across_textattacks_are_left_out() -> None:
    source = CallableSource("s", lambda word, question: ["x" + word])
    words = split("Two cats")
    assert [swap.indices for swap in swaps("Two cats", words, {0, 1}, [source])] == [(1,)]
    assert len(swaps("Two cats", words, {0, 1}, [source], protect="none")) == 2
    # TextAttack splits at a curly apostrophe, and no one word of its own is what we replace.
    assert swaps("don\u2019t", ["don", "t"], {0, 1}, [source]) == []


def test_without_textattack_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from intarsia.robustness import textattack as ours

    ours._transformation.cache_clear()
    monkeypatch.setitem(sys.modules, "textattack", None)
    with pytest.raises(ConfigError, match="TextAttack") as error:
        as_transformation([CallableSource("s", propose)])
    assert "pip install textattack" in str(error.value.hint)
    with pytest.raises(ConfigError, match="sources"):
        as_transformation([])
    with pytest.raises(ConfigError, match="protection"):
        as_transformation([CallableSource("s", propose)], protect="maths")


class Text:
    """As much of TextAttack's text as a transformation needs."""

    def __init__(self, words: list[str]) -> None:
        self.words, self.text = words, " ".join(words)

    def replace_words_at_indices(self, indices: list[int], new: list[str]) -> Text:
        words = list(self.words)
        for at, word in zip(indices, new):
            words[at] = word
        return Text(words)


def test_the_class_hands_texts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    from intarsia.robustness import textattack as ours

    fake, inner = ModuleType("textattack"), ModuleType("textattack.transformations")
    inner.WordSwap = type("WordSwap", (), {"__init__": lambda self: None})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "textattack", fake)
    monkeypatch.setitem(sys.modules, "textattack.transformations", inner)
    ours._transformation.cache_clear()
    try:
        made = as_transformation([CallableSource("s", propose)], scope={"s": "global"})
        texts = made._get_transformations(Text(["Tom", "found", "what", "Ann", "found"]), {1, 3})
        assert [text.text for text in texts] == [
            "Tom discovered what Ann discovered",
            "Tom found what Anna found",
        ]
        assert ours.MergedSources is type(made)  # what pickle looks up
    finally:
        ours._transformation.cache_clear()


RUN = """
import json, pickle, sys
import textattack
from textattack.goal_functions.text import TextToTextGoalFunction
from textattack.models.wrappers import ModelWrapper
from textattack.search_methods import GreedyWordSwapWIR
from textattack.constraints.pre_transformation import RepeatModification
from intarsia.robustness.candidates import CallableSource
from intarsia.robustness.textattack import as_transformation

text, synonyms = json.loads(sys.argv[1])

class Model(ModelWrapper):
    model = None
    def __call__(self, texts):
        return ["wrong" if "Anna's" in text else "right" for text in texts]

class Changed(TextToTextGoalFunction):
    def _is_goal_complete(self, output, attacked_text):
        return output != self.ground_truth_output
    def _get_score(self, output, attacked_text):
        return float(output != self.ground_truth_output)

def propose(word, question):
    return synonyms.get(word.lower(), [])

made = as_transformation([CallableSource("s", propose)], scope={"s": "global"})
every = [one.text for one in made(textattack.shared.AttackedText(text))]
kept = [one.text for one in pickle.loads(pickle.dumps(made))(textattack.shared.AttackedText(text))]
attack = textattack.Attack(Changed(Model()), [RepeatModification()], made, GreedyWordSwapWIR("delete"))
result = attack.attack(text, "right")
print(json.dumps([every, kept, type(result).__name__, result.perturbed_text(), repr(attack)]))
"""


@pytest.mark.slow
def test_textattacks_own_attack_runs_on_it() -> None:
    if not (PEER / "installed").exists():
        pytest.skip("there is no .venvs/textattack: `python benchmarks/robustness.py` makes it")
    environment = dict(os.environ) | {
        "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src"),
        "TA_CACHE_DIR": str(PEER / "cache"),
        "NLTK_DATA": str(PEER / "nltk_data"),
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        [PEER / "bin" / "python", "-c", RUN, json.dumps([TEXT, SYNONYMS])],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    every, kept, kind, found, shown = json.loads(done.stdout.splitlines()[-1])
    wanted = swaps(TEXT, split(TEXT), range(9), [CallableSource("s", propose)], scope={"s": "global"})
    assert every == kept == [swap.rewrite.text for swap in wanted]
    assert kind == "SuccessfulAttackResult"
    assert "Anna's" in found
    assert "MergedSources" in shown

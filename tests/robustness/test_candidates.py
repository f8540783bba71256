"""Merging candidates into rewrites: order, provenance, scope, and that nothing but one word type changes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from intarsia.robustness.candidates import SCOPES, CallableSource, Candidate, Rewrite, Source, rewrites
from intarsia.robustness.protect import editable, protected_spans
from intarsia.robustness.words import Span, words

QUESTION = "Tom buys apples. The apples cost $4, and Tom's apple is red."

TOKENS = [
    *(
        "Tom",
        "Tom's",
        "apples",
        "Apples",
        "APPLES",
        "apple",
        "he",
        "the",
        "The",
        "buys",
        "don't",
        "twenty-five",
        "I",
        "A",
    ),
    *("3", "3rd", "$4", "x2", "more,", "eggs.", "eggs?", "\\frac{1}{2}", "$x+apples$", "--", "(and)", "", "\n"),
    *("\u00fcber", "\u043e\u043d", "na\u00efve", "\U0001f34e"),
]
PIECES = st.lists(st.sampled_from(TOKENS), min_size=1, max_size=14).map(" ".join)
NEW = st.sampled_from(
    ["apples", "Apples", "purchases", "x", "\u00fcber", "two words", "", "the", "NASA", "iPhone", "tom", "he", "eggs"]
)


def proposal(question: str, table: dict[str, list[str]], protect: str = "none") -> list[list[Candidate]]:
    return [
        [Candidate(text) for text in table.get(word.text.lower(), table.get("*", []))]
        for word in editable(question, protect)
    ]


def flat(plan: list[list[Rewrite]]) -> list[Rewrite]:
    return [rewrite for of_word in plan for rewrite in of_word]


def without(text: str, spans: tuple[Span, ...]) -> list[str]:
    """What stands between the spans."""
    parts, at = [], 0
    for span in spans:
        parts.append(text[at : span.start])
        at = span.end
    return [*parts, text[at:]]


def test_order_is_word_then_source_then_rank() -> None:
    found = flat(
        rewrites(
            "red apples fall",
            words("red apples fall"),
            [
                ("one", proposal("red apples fall", {"red": ["blue", "green"], "fall": ["drop"]})),
                ("two", proposal("red apples fall", {"red": ["pink"], "apples": ["pears"]})),
            ],
        )
    )
    assert [(r.word, r.replacement, r.source) for r in found] == [
        ("red", "blue", "one"),
        ("red", "green", "one"),
        ("red", "pink", "two"),
        ("apples", "pears", "two"),
        ("fall", "drop", "one"),
    ]
    assert [r.index for r in found] == [0, 0, 0, 1, 2]


def test_the_first_source_is_named_and_the_others_noted() -> None:
    lists = proposal("red apples", {"red": ["blue", "blue", "Blue"]})
    (row, _) = rewrites("red apples", words("red apples"), [("a", lists), ("b", lists), ("c", lists)])
    assert [(r.text, r.source, r.also) for r in row] == [("blue apples", "a", ("b", "c"))]


def test_a_rewrite_that_came_before_at_another_word_is_not_asked_twice() -> None:
    question = "apples and apples"
    plan = rewrites(question, words(question), [("wordnet", proposal(question, {"apples": ["pears"]}))])
    assert [r.text for r in flat(plan)] == ["pears and pears"]
    assert plan[2] == []


def test_what_renders_as_the_question_is_no_candidate() -> None:
    # Case variants, which a vocabulary with boundary marks is full of, come out as the word itself.
    same = {"tom": ["tom", "TOM", "Tom"], "apples": ["Apples", "APPLES", "apples"], "buys": ["Buys"]}
    assert flat(rewrites(QUESTION, words(QUESTION), [("embedding", proposal(QUESTION, same))])) == []


def test_scope_by_source_and_case_of_each_occurrence() -> None:
    question = "Apples cost 2. I like apples and pineapples, APPLES!"
    table = {"apples": ["pears"]}
    plan = [("embedding", proposal(question, table)), ("wordnet", proposal(question, table)), ("own", [[]] * 8)]
    found = flat(rewrites(question, words(question), plan))
    assert [(r.source, r.scope, r.text) for r in found] == [
        ("embedding", "local", "Pears cost 2. I like apples and pineapples, APPLES!"),
        ("wordnet", "global", "Pears cost 2. I like pears and pineapples, PEARS!"),
        ("embedding", "local", "Apples cost 2. I like pears and pineapples, APPLES!"),
        ("embedding", "local", "Apples cost 2. I like apples and pineapples, PEARS!"),
    ]
    assert SCOPES == {"embedding": "local", "wordnet": "global", "mlm": "global", "infill": "global"}
    assert {r.scope for r in flat(rewrites("a b", words("a b"), [("new", proposal("a b", {"*": ["c"]}))]))} == {"local"}


def test_a_global_replacement_stops_at_protected_spans() -> None:
    question = "The area of $area$ is an area."
    spans = protected_spans(question, "re:\\$.*\\$")
    found = rewrites(
        question,
        editable(question, "re:\\$.*\\$"),
        [("wordnet", proposal(question, {"area": ["region"]}, "re:\\$.*\\$"))],
        protected=spans,
    )
    assert [r.text for r in flat(found)] == ["The region of $area$ is an region."]


@given(
    question=PIECES,
    tables=st.lists(
        st.dictionaries(st.sampled_from(["apples", "tom", "he", "*"]), st.lists(NEW, max_size=4)), max_size=3
    ),
    names=st.permutations(["embedding", "wordnet", "own"]),
    protect=st.sampled_from(["none", "math"]),
)
@settings(max_examples=60)
def test_exactly_one_word_type_changes(
    question: str, tables: list[dict[str, list[str]]], names: list[str], protect: str
) -> None:
    spans = protected_spans(question, protect)
    changeable = editable(question, protect)
    plan = rewrites(
        question,
        changeable,
        [(name, proposal(question, table, protect)) for name, table in zip(names, tables, strict=False)],
        protected=spans,
    )
    assert len(plan) == len(changeable)
    texts = [r.text for r in flat(plan)]
    assert question not in texts
    assert len(set(texts)) == len(texts)
    for word, row in zip(changeable, plan, strict=True):
        for rewrite in row:
            old = [question[span.start : span.end] for span in rewrite.before]
            assert rewrite.word == word.text
            assert rewrite.index == word.index
            assert len({text.lower().replace("\u2019", "'") for text in old}) == 1
            if rewrite.scope == "local":
                assert rewrite.before == (Span(word.start, word.end),)
            else:
                assert len(rewrite.before) == sum(w.text.lower() == word.text.lower() for w in changeable)
            # All the rest is byte-identical; a word that is left out takes one space with it.
            between, now = without(question, rewrite.before), without(rewrite.text, rewrite.after)
            if rewrite.replacement:
                assert between == now
                new = {rewrite.text[span.start : span.end].lower() for span in rewrite.after}
                assert new == {rewrite.replacement.lower()}
            else:
                assert "".join(now).replace(" ", "") == "".join(between).replace(" ", "")
                assert len(question) - len(rewrite.text) <= sum(len(text) + 1 for text in old)
            for start, end in spans:
                assert question[start:end] in rewrite.text


@given(question=PIECES, table=st.dictionaries(st.sampled_from(["apples", "tom", "*"]), st.lists(NEW, max_size=5)))
@settings(max_examples=40)
def test_more_sources_and_longer_lists_only_add(question: str, table: dict[str, list[str]]) -> None:
    first = proposal(question, {"*": ["pears", "he"]})
    second = proposal(question, table)
    found = words(question)

    def texts(*proposals: tuple[str, list[list[Candidate]]]) -> set[str]:
        return {r.text for r in flat(rewrites(question, found, proposals))}

    both = texts(("wordnet", first), ("embedding", second))
    assert both == texts(("wordnet", first)) | texts(("embedding", second))
    for k in range(5):
        cut = [of_word[:k] for of_word in second]
        longer = [of_word[: k + 1] for of_word in second]
        assert texts(("embedding", cut)) <= texts(("embedding", longer))
    assert texts(("embedding", [[] for _ in found])) == texts() == set()


def test_figures_travel_with_the_rewrite() -> None:
    lists = [[Candidate("blue", score=0.7, note="synset blue.a.01")]]
    ((rewrite,),) = rewrites("red", words("red"), [("x", lists), ("y", [[Candidate("blue", score=0.1)]])])
    assert (rewrite.score, rewrite.note, rewrite.also) == (0.7, "synset blue.a.01", ("y",))
    assert rewrite.before == (Span(0, 3),)
    assert rewrite.after == (Span(0, 4),)


def test_a_function_is_a_source() -> None:
    source = CallableSource("mine", lambda word, question: [word + "x", len(question)])  # type: ignore[list-item]
    assert isinstance(source, Source)
    assert source.propose("a bc", words("a bc")) == [
        [Candidate("ax"), Candidate("4")],
        [Candidate("bcx"), Candidate("4")],
    ]

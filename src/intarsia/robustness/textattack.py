"""Our merged sources inside TextAttack: a transformation that takes part in its attacks, searches and constraints.

TextAttack splits a text into words of its own. A rewrite is handed to it as a replacement of the words that it touches,
so TextAttack's book-keeping (modified indices, repeated words, stop words) stays right. A rewrite that cannot be said
in TextAttack's words is left out, never handed over as another text.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from intarsia.core.errors import ConfigError
from intarsia.robustness.candidates import SCOPES, Rewrite, Scope, Source, rewrites
from intarsia.robustness.protect import Protect, editable, protected_spans
from intarsia.robustness.words import Span

if TYPE_CHECKING:
    from intarsia.robustness.gates import Gate


class Swap(NamedTuple):
    """A rewrite in TextAttack's words.

    Attributes:
        indices: Its words that change.
        words: What stands in their places.
        rewrite: The rewrite.
    """

    indices: tuple[int, ...]
    words: tuple[str, ...]
    rewrite: Rewrite


def as_transformation(
    sources: Sequence[Source],
    *,
    protect: Protect = "math",
    scope: Mapping[str, Scope] | None = None,
    gates: Sequence[Gate] = (),
) -> Any:
    """The merged sources as a `textattack.transformations.WordSwap`, which all its search methods take.

    TextAttack is not among our dependencies: `pip install textattack`.

    Args:
        sources: In order of priority.
        protect: What is never touched; see `protect.Protect`.
        scope: `local` or `global` by source name; the paper's when omitted.
        gates: Filters on rewrites.

    Returns:
        A deterministic transformation. It can be pickled where the sources can.

    Raises:
        ConfigError: TextAttack is not installed, or an option is wrong.
    """
    if not sources:
        raise ConfigError("A transformation without sources changes nothing.", "Give sources=[WordNetSource()].")
    protected_spans("", protect)  # a wrong name is told here, not amid an attack
    return _transformation()(tuple(sources), protect, dict(SCOPES if scope is None else scope), tuple(gates))


def word_spans(text: str, words: Sequence[str]) -> list[Span]:
    """Where each of TextAttack's words stands in the text, found one after the other as TextAttack does itself.

    Raises:
        ValueError: A word does not follow in the text.
    """
    spans, at = [], 0
    for word in words:
        start = text.index(word, at)
        at = start + len(word)
        spans.append(Span(start, at))
    return spans


def swaps(
    text: str,
    words: Sequence[str],
    indices: Collection[int],
    sources: Sequence[Source],
    *,
    protect: Protect = "math",
    scope: Mapping[str, Scope] = SCOPES,
    gates: Sequence[Gate] = (),
) -> list[Swap]:
    """All rewrites of the text whose word is among `indices`, in order; global ones may change further words.

    Args:
        text: The text.
        words: Its words as TextAttack splits them.
        indices: Places among them that may be changed.
        sources: In order of priority.
        protect: What is never touched.
        scope: Scope by source name.
        gates: Filters on rewrites.
    """
    spans = word_spans(text, words)
    changeable = [word for word in editable(text, protect) if _holder(Span(word.start, word.end), spans) in indices]
    if not changeable:
        return []
    proposals = [(source.name, source.propose(text, changeable)) for source in sources]
    found = rewrites(text, changeable, proposals, scope=scope, protected=protected_spans(text, protect))
    merged = [rewrite for of_word in found for rewrite in of_word]
    for gate in gates:
        if merged:
            verdicts = gate.check(text, merged)
            merged = [rewrite for rewrite, verdict in zip(merged, verdicts, strict=True) if verdict.keep]
    made = [_swap(text, words, spans, rewrite) for rewrite in merged]
    return [swap for swap in made if swap is not None]


def _holder(span: Span, spans: Sequence[Span]) -> int | None:
    """The one word of TextAttack's that holds the span, None where it lies across several."""
    return next((at for at, word in enumerate(spans) if word.start <= span.start and span.end <= word.end), None)


def _swap(text: str, words: Sequence[str], spans: Sequence[Span], rewrite: Rewrite) -> Swap | None:
    changed: dict[int, str] = {}
    for before, after in zip(rewrite.before, rewrite.after, strict=True):
        at = _holder(before, spans)
        if at is None or at in changed:
            return None
        head, tail = text[spans[at].start : before.start], text[before.end : spans[at].end]
        changed[at] = head + rewrite.text[after.start : after.end] + tail
    return Swap(tuple(changed), tuple(changed.values()), rewrite)


@cache
def _transformation() -> type[Any]:
    """The class, made when TextAttack is first needed."""
    try:
        from textattack.transformations import WordSwap
    except ImportError as error:
        raise ConfigError(f"TextAttack cannot be imported: {error}.", "Run: pip install textattack") from error

    class MergedSources(WordSwap):  # type: ignore[misc]
        """Candidates of several sources, merged in order."""

        def __init__(
            self, sources: tuple[Source, ...], protect: Protect, scope: dict[str, Scope], gates: tuple[Gate, ...]
        ) -> None:
            super().__init__()
            self.sources, self.protect, self.scope, self.gates = sources, protect, scope, gates
            self.names = ", ".join(source.name for source in sources)

        def _get_transformations(self, current_text: Any, indices_to_modify: Collection[int]) -> list[Any]:
            made = []
            for swap in swaps(
                current_text.text,
                current_text.words,
                set(indices_to_modify),
                self.sources,
                protect=self.protect,
                scope=self.scope,
                gates=self.gates,
            ):
                text = current_text.replace_words_at_indices(list(swap.indices), list(swap.words))
                if text.text == swap.rewrite.text:
                    made.append(text)
            return made

        def extra_repr_keys(self) -> list[str]:
            """What TextAttack prints of it."""
            return ["names", "protect"]

    # Workers of TextAttack unpickle it by this name, which `__getattr__` answers.
    MergedSources.__module__, MergedSources.__qualname__ = __name__, "MergedSources"
    return MergedSources


def __getattr__(name: str) -> Any:
    if name == "MergedSources":
        return _transformation()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""What to do about a row of the capability study: commands that run as they are printed.

A command trains in a run folder of its own, so that the remedies of two rows never meet in one, and then audits the
trained model beside the one that it came from.
"""

from __future__ import annotations

import shlex

from intarsia.core.catalog.embedded import EMBEDDED
from intarsia.core.data import GENERATED
from intarsia.core.study import Remedy

RECIPE = "recipes/sft/smollm2-sft.yaml"
"""Comes along with the package and is found by this name from any folder."""
LARGER = {"smoke": "quick", "quick": "standard", "standard": "full"}
"""The budget with more questions."""
ADAPTER = "lora.r=16 training.learning_rate=1e-4"
"""For a model that is not known to be small."""


def train(name: str, model: str, *, where: str = "", data: str = "", opening: str = "Train") -> Remedy:
    """Train on questions of a set's kind, then audit both.

    Args:
        name: Of the set.
        model: As the audit names it.
        where: The weakest part, to be named; empty for none.
        data: File or hub id of the user's own questions, where the set is those.
        opening: How the sentence begins.
    """
    above = f", above all of {where}" if where else ""
    if not trainable(model):
        return Remedy(
            text=f"{opening} its weights, where you have them, on questions of this kind{above} "
            f"(intarsia train {RECIPE} model=WEIGHTS), or choose another model; then audit both.",
            command=audit(model, data, "OTHER_MODEL"),
        )
    source, note = _source(name)
    folder = f"runs/sft-{_slug(name)}"
    tuned, how = f"{folder}/model", ""
    if model not in EMBEDDED:
        tuned, how = f"{model}+{tuned}", f" {ADAPTER}"
    terms = " accept_license=true" if _has_terms(model) else ""
    command = f"intarsia train {RECIPE} model={shlex.quote(model)}{terms}{how} data.source={shlex.quote(source)}"
    return Remedy(
        text=f"{opening} on questions of this kind{above}{note}; then audit both, paired.",
        command=f"{command} --out {folder} && {audit(model, data, shlex.quote(tuned))}",
    )


def ask_more(model: str, scale: str, data: str = "") -> Remedy:
    """More questions, for a row that so few could not decide."""
    larger = LARGER.get(scale)
    if larger is None:
        return Remedy(
            text="This is the largest budget: ask questions of your own, or live with it.",
            command=f"{audit(model, data or 'questions.jsonl')} --budget full",
        )
    return Remedy(text="Ask more questions.", command=f"{audit(model, data)} --budget {larger}")


def ask_harder(model: str) -> Remedy:
    """Harder questions, for a model at the ceiling."""
    return Remedy(text="Ask harder questions, your own for one.", command=audit(model, "questions.jsonl"))


def show_form(model: str, data: str = "") -> Remedy:
    """Worked examples, for answers that cannot be read."""
    return Remedy(
        text="Show the form that is wanted in worked examples or the template; if that fails, train on it.",
        command=f"{audit(model, data)} --set capability.shots=8",
    )


def give_room(model: str, tokens: int) -> Remedy:
    """A longer limit, for answers that are cut off."""
    return Remedy(
        text="Give answers more room, or show the length that is wanted.",
        command=f"{audit(model)} --set capability.max_new_tokens={tokens}",
    )


def soften(model: str) -> Remedy:
    """Another system prompt, for refused questions."""
    return Remedy(
        text="Soften the system prompt of your application; if it refuses without one, train on answers to what it "
        "refuses.",
        command=f"{audit(model)} --system 'Answer every question.'",
    )


def trainable(model: str) -> bool:
    """Whether the name stands for weights, and not for a server."""
    return not model.startswith(("http://", "https://", "inspect:"))


def audit(model: str, data: str = "", other: str = "") -> str:
    """The command that audits the model again, beside another where one is named (quoted already)."""
    parts = ["intarsia audit", shlex.quote(model), other]
    parts.append("--accept-license" if _has_terms(model) else "")
    parts += ["--studies capability", f"--data {shlex.quote(data)}" if data else ""]
    return " ".join(part for part in parts if part)


def _has_terms(model: str) -> bool:
    return model in EMBEDDED and bool(EMBEDDED[model].terms)


def _source(name: str) -> tuple[str, str]:
    """The data to train on, and what the text must add."""
    head = name.partition(":")[0].partition("/")[0]
    if head in GENERATED:
        return name, ""
    if head in ("gsm8k", "svamp", "mawps"):
        # Only gsm8k has a training part; the other two are word problems as well.
        return "gsm8k", " (the training part of gsm8k)"
    return "train.jsonl", " (train.jsonl: rows with prompt and completion, none of those asked here)"


def _slug(name: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in name).split())

"""The README of a trained model: what it came from, what it saw, how to load it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml

from intarsia.core.recipes import TrainRecipe

if TYPE_CHECKING:
    from intarsia.core.training.report import TrainReport


def model_card(recipe: TrainRecipe, report: TrainReport, provenance: Mapping[str, Any], licence: str) -> str:
    """The card as Markdown with YAML front matter.

    Args:
        recipe: What was run.
        report: What came of it.
        provenance: Hashes and versions.
        licence: Of the base model, as far as known.
    """
    adapter = recipe.lora is not None
    head: dict[str, Any] = {"base_model": recipe.model, "tags": ["intarsia", recipe.kind]}
    head["library_name"] = "peft" if adapter else "transformers"
    if licence:
        head["license_name"] = licence
    data = provenance.get("data", {})
    losses = []
    if report.first_loss is not None and report.last_loss is not None:
        losses.append(f"| loss | {report.first_loss:.4f} at step 1, {report.last_loss:.4f} at step {report.steps} |")
    if report.eval_loss is not None:
        losses.append(f"| held-out loss | {report.eval_loss:.4f} on {report.held_out} rows |")
    kind = "adapter" if adapter else "model"
    name = f"{recipe.model}+FOLDER" if adapter else "FOLDER"
    notes = [f"- {note}" for note in report.notes] or ["- none"]
    versions = ", ".join(f"{name} {found}" for name, found in provenance.get("versions", {}).items())
    lines = [
        "---",
        yaml.safe_dump(head, sort_keys=True).strip(),
        "---",
        "",
        f"# {recipe.model}, fine-tuned ({recipe.kind})",
        "",
        f"This {kind} was trained with Intarsia. Its terms are those of the base model"
        + (f" ({licence})" if licence else "")
        + " and of the data.",
        "",
        "| | |",
        "|---|---|",
        f"| base model | {recipe.model} |",
        f"| data | {data.get('name', '')} ({data.get('origin', '')}), {report.rows} rows |",
        f"| data, SHA-256 | `{data.get('sha256', '')}` |",
        f"| trained parameters | {report.trainable:,} of {report.parameters:,} |",
        f"| steps | {report.steps} |",
        *losses,
        f"| seed | {recipe.seed} |",
        f"| versions | {versions} |",
        "",
        "## Load it",
        "",
        "```python",
        "from intarsia.core.target import Target",
        "",
        f'target = Target.parse("{name}")  # FOLDER is the folder of this file',
        "```",
        "",
        f"`intarsia audit {name} {recipe.model}` shows what the training changed.",
        "",
        "## Notes",
        "",
        *notes,
        "",
        "## Recipe",
        "",
        "```yaml",
        recipe.to_yaml().strip(),
        "```",
        "",
    ]
    return "\n".join(lines)

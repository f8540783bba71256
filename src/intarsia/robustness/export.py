"""The frozen adversarial set for other harnesses: a folder that lm-evaluation-harness takes with `--include_path`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from intarsia.core.data import Item
from intarsia.core.data.fewshot import prompt_for, shots_for
from intarsia.core.journal import write_atomic
from intarsia.core.target import prompt_text

if TYPE_CHECKING:
    from intarsia.robustness.results import AttackResults

TASK = "intarsia_adversarial"
_NUMBER = r"(-?[$0-9.,]{2,})|(-?[0-9]+)"
"""The last number of an answer, as lm-evaluation-harness reads GSM8K flexibly."""


def write_lm_eval(results: AttackResults, folder: str | Path) -> Path:
    """Write two tasks: the adversarial questions, and the same questions as they were.

    Args:
        results: A finished attack.
        folder: Made when missing.

    Returns:
        The folder, with `<task>.yaml`, `<task>.jsonl` and the same for `<task>_clean`.
    """
    folder = Path(folder)
    items = results.to_items().items
    settings = results.settings
    count = int(settings.get("shots") or 0)
    worked = bool(count) and all("solution" in shot.meta for shot in results.data.shots)

    def text(item: Item) -> str:
        shots = shots_for(item, results.data.shots, count)
        system, template = str(settings.get("system") or ""), str(settings.get("template") or "")
        return prompt_text(prompt_for(item, shots, style="plain", system=system, template=template, worked=worked))

    for name, rewritten in ((TASK, True), (f"{TASK}_clean", False)):
        asked = [
            item if rewritten else item.model_copy(update={"question": str(item.meta["original_question"])})
            for item in items
        ]
        rows = [{"id": item.id, "text": text(item), "answer": item.answer or ""} for item in asked]
        write_atomic(folder / f"{name}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        write_atomic(folder / f"{name}.yaml", _task(name, all(item.kind == "number" for item in items)))
    return folder


def _task(name: str, numbers: bool) -> str:
    """A task of the harness; JSON is YAML, so quoting is left to JSON."""
    settings: dict[str, object] = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": f"{name}.jsonl"}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{text}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\nQuestion:"], "do_sample": False, "max_gen_toks": 512},
        "metric_list": [{"metric": "exact_match", "ignore_case": True, "ignore_punctuation": not numbers}],
        "metadata": {"version": 1},
    }
    if numbers:
        extract = {"function": "regex", "regex_pattern": _NUMBER, "group_select": -1}
        settings["filter_list"] = [{"name": "last-number", "filter": [extract, {"function": "take_first"}]}]
    return json.dumps(settings, indent=1) + "\n"

"""Our batched judges against inspect_ai's model-graded path, in one run: the same judge model, rubric and replies.

    python benchmarks/sycophancy.py [--model smollm2-135m] [--replies 8] [--json FILE]

Arms, each labeling the same replies in the same dimensions, greedily, in float32, on one thread:

1. inspect_ai one by one: `model_graded_qa` with our rubric as its template, one request at a time;
2. inspect_ai in batches: the same as inspect_ai's own Hugging Face provider does it when nothing is said (32 at once);
3. ours, one by one: `intarsia.sycophancy.LLMJudge` on a target that takes one prompt a batch;
4. ours: `LLMJudge` as it is: batches of like length, with the rubric's prefix computed once;
5. ours by log-probabilities: `LogprobJudge`, the same rubric, two scored digits in place of an answer.

The first four answer the same prompts, token for token, which is checked. Their words are compared word for word, and
their labels as read by our strict reader; how often the usual reading of a first digit (`[01]`, anywhere) finds a label
in what is none is counted too. Arm 5 asks another question of the model, so its agreement is shown and not expected.

Time is the CPU time of this process, and the time on the clock: inspect_ai's provider waits up to two seconds for more
requests before it starts a batch, and polls once a second. Each arm is warmed up with one reply.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["HF_HUB_OFFLINE"] = "1"  # the judge is a folder on this machine, also for inspect_ai
os.environ.setdefault("INSPECT_DISPLAY", "none")

ONE, BATCHED, OURS_ONE, OURS, LOGPROB = (
    "inspect_ai one by one",
    "inspect_ai in batches",
    "ours one by one",
    "ours",
    "ours by log-probabilities",
)
NEW_TOKENS = 16
FIRST_DIGIT = r"([01])"


@dataclass
class Labeled:
    """What an arm said: the judge's words and our reading of them, by reply and dimension; and its time."""

    words: dict[str, str] = field(default_factory=dict)
    labels: dict[str, int | None] = field(default_factory=dict)
    cpu: float = 0.0
    wall: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="the judge, a local model")
    parser.add_argument("--replies", type=int, default=8)
    parser.add_argument("--dims", default="validation,indirectness,framing")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    import torch
    import transformers

    from intarsia.core.catalog import resolve
    from intarsia.core.local import LocalTarget
    from intarsia.sycophancy.dimensions import find_dimensions
    from intarsia.sycophancy.llm_judge import LLMJudge
    from intarsia.sycophancy.logprob_judge import LogprobJudge

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    dims = find_dimensions(options.dims.split(","))
    exchanges = replies(options.replies)
    folder = resolve(options.model).path
    target = LocalTarget.load(options.model, dtype="float32", device="cpu")
    single = LocalTarget.load(options.model, dtype="float32", device="cpu", batch_rows=1, reuse_prefix=False)
    # The peer is given the same tokens: text of the same template, from the same files.
    same = same_prompts(target, folder, exchanges, dims)

    arms: dict[str, Any] = {
        ONE: Inspect(folder, 1),
        BATCHED: Inspect(folder, None),
        OURS_ONE: Ours(LLMJudge(single, max_new_tokens=NEW_TOKENS)),
        OURS: Ours(LLMJudge(target, max_new_tokens=NEW_TOKENS)),
        LOGPROB: Ours(LogprobJudge(target)),
    }
    found: dict[str, Labeled] = {}
    for arm, label in arms.items():
        label(exchanges[:1], dims[:1])
        cpu, wall = time.process_time(), time.perf_counter()
        found[arm] = label(exchanges, dims)
        found[arm].cpu, found[arm].wall = time.process_time() - cpu, time.perf_counter() - wall
        print(f"{arm}: {found[arm].cpu:.1f} CPU seconds", file=sys.stderr, flush=True)

    result = report(options, dims, exchanges, found, same)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    # The peer's batches pad, so a near tie may fall otherwise; one by one there is no such excuse.
    return 0 if same and result["agreement_with_ours"][ONE]["words"] == result["judgments"] else 1


def replies(count: int) -> list[Any]:
    """Template replies to different questions, with every combination of the three dimensions among eight of them."""
    from intarsia.sycophancy import corpus

    pool = corpus.replies()
    topics = {one.topic: place for place, one in reversed(list(enumerate(pool)))}
    starts = sorted(topics.values())
    step = len(starts)
    chosen = [pool[starts[at % step] + at % 8] for at in range(min(count, 8 * step))]
    return [one.exchange for one in {one.id: one for one in chosen}.values()]


class Ours:
    """One of our judges as an arm."""

    def __init__(self, judge: Any) -> None:
        self.judge = judge

    def __call__(self, exchanges: Sequence[Any], dims: Sequence[str]) -> Labeled:
        done = Labeled()
        for dimension in dims:
            for exchange, label in zip(exchanges, self.judge.label(exchanges, dimension), strict=True):
                done.words[f"{exchange.id}/{dimension}"] = label.said
                done.labels[f"{exchange.id}/{dimension}"] = label.value
        return done


class Inspect:
    """inspect_ai's `model_graded_qa` on its own Hugging Face provider as an arm."""

    def __init__(self, folder: Path, connections: int | None) -> None:
        import torch
        from inspect_ai.model import GenerateConfig, get_model

        from intarsia.sycophancy.rubrics import SYSTEM

        self.grader = get_model(
            f"hf/{folder}",
            config=GenerateConfig(max_tokens=NEW_TOKENS, max_connections=connections, system_message=SYSTEM),
            memoize=False,
            device="cpu",
            dtype=torch.float32,
            do_sample=False,
        )

    def __call__(self, exchanges: Sequence[Any], dims: Sequence[str]) -> Labeled:
        from inspect_ai import Task
        from inspect_ai import eval as inspect_eval
        from inspect_ai.dataset import MemoryDataset, Sample
        from inspect_ai.model import ModelOutput
        from inspect_ai.scorer import model_graded_qa
        from inspect_ai.solver import Generate, TaskState, solver

        given = {one.id: one.reply.strip() for one in exchanges}

        @solver
        def answered() -> Any:
            async def solve(state: TaskState, generate: Generate) -> TaskState:
                state.output = ModelOutput.from_content("given", given[str(state.sample_id)])
                return state

            return solve

        done = Labeled()
        # One evaluation for each dimension, as its template is; all samples of it go out at once.
        for dimension in dims:
            task = Task(
                dataset=MemoryDataset([Sample(id=one.id, input=one.question.strip(), target="") for one in exchanges]),
                solver=answered(),
                scorer=model_graded_qa(
                    template=template(dimension), grade_pattern=FIRST_DIGIT, instructions="-", model=self.grader
                ),
            )
            with tempfile.TemporaryDirectory() as logs:
                (log,) = inspect_eval(task, model="mockllm/model", display="none", log_dir=logs, log_level="error")
                if log.status != "success":
                    raise SystemExit(f"inspect_ai stopped: {log.error}")
                for sample in log.samples or ():  # read from the folder only now
                    (score,) = (sample.scores or {}).values()
                    # Where it finds no grade, the scorer says so in front of the judge's words.
                    words = (score.explanation or "").removeprefix("Grade not found in model output: ")
                    self._keep(done, f"{sample.id}/{dimension}", words)
        return done

    @staticmethod
    def _keep(done: Labeled, key: str, words: str) -> None:
        from intarsia.sycophancy.llm_judge import read_digit

        done.words[key], done.labels[key] = words, read_digit(words).value


def template(dimension: str) -> str:
    """Our rubric as a template of `model_graded_qa`."""
    from intarsia.sycophancy.judging import Exchange
    from intarsia.sycophancy.rubrics import RUBRICS

    question, reply = "\x01", "\x02"
    body = RUBRICS[dimension].prompt(Exchange(id="", question=question, reply=reply), chat=True)[-1]["content"]  # type: ignore[index]
    escaped = body.replace("{", "{{").replace("}", "}}")
    return escaped.replace(question, "{question}").replace(reply, "{answer}")


def same_prompts(target: Any, folder: Path, exchanges: Sequence[Any], dims: Sequence[str]) -> bool:
    """Whether both sides give the model the same tokens."""
    from transformers import AutoTokenizer

    from intarsia.sycophancy.rubrics import RUBRICS

    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    for dimension in dims:
        for exchange in exchanges:
            messages = RUBRICS[dimension].prompt(exchange, chat=True)
            text = template(dimension).format(question=exchange.question.strip(), answer=exchange.reply.strip())
            theirs = [dict(messages[0]), {"role": "user", "content": text}]  # type: ignore[arg-type]
            shown = tokenizer.apply_chat_template(theirs, tokenize=False, add_generation_prompt=True)
            if target.count_tokens([messages])[0] != len(tokenizer(shown)["input_ids"]):
                return False
            if text != messages[-1]["content"]:  # type: ignore[index]
                return False
    return True


def report(
    options: argparse.Namespace, dims: Sequence[str], exchanges: Sequence[Any], found: dict[str, Labeled], same: bool
) -> dict[str, Any]:
    """Whether all arms said the same, and how fast; printed, and as plain data."""
    import re
    from importlib.metadata import version

    ours = found[OURS]
    total = len(ours.words)
    agreement = {
        arm: {
            "words": sum(one.words[key].strip() == ours.words[key].strip() for key in ours.words),
            "labels": sum(one.labels[key] == ours.labels[key] for key in ours.labels),
            "labeled": sum(value is not None for value in one.labels.values()),
        }
        for arm, one in found.items()
    }
    guessed = sum(
        ours.labels[key] is None and re.search(FIRST_DIGIT, words) is not None for key, words in ours.words.items()
    )
    result = {
        "model": options.model,
        "replies": len(exchanges),
        "dimensions": list(dims),
        "judgments": total,
        "new_tokens": NEW_TOKENS,
        "same_prompts": same,
        "cpu_seconds": {arm: one.cpu for arm, one in found.items()},
        "wall_seconds": {arm: one.wall for arm, one in found.items()},
        "cpu_ratio_to_ours": {arm: one.cpu / ours.cpu for arm, one in found.items()},
        "wall_ratio_to_ours": {arm: one.wall / ours.wall for arm, one in found.items()},
        "agreement_with_ours": agreement,
        "labels_that_a_first_digit_would_make_of_other_answers": guessed,
        "versions": {name: version(name) for name in ("intarsia", "inspect-ai", "torch", "transformers")},
    }
    print(f"{options.model} as judge: {len(exchanges)} replies, {len(dims)} dimensions, {total} judgments")
    print(f"  the same prompts on both sides: {'yes' if same else 'NO'}")
    for arm, one in found.items():
        agreed = agreement[arm]
        print(
            f"  {arm:26} {one.cpu:7.1f} CPU s ({one.cpu / ours.cpu:5.2f} x ours), {one.wall:7.1f} s on the clock "
            f"({one.wall / ours.wall:5.2f} x); same words {agreed['words']}, same labels {agreed['labels']} of {total} "
            f"({agreed['labeled']} readable)"
        )
    print(f"  answers that are no label, of which the reading of a first digit makes one: {guessed} of {total}")
    return result


if __name__ == "__main__":
    raise SystemExit(main())

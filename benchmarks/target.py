"""LocalTarget against transformers' own `generate`, in one run: queries per CPU second on few-shot prompts.

    python benchmarks/target.py [--model smollm2-135m] [--questions 80] [--batch 40] [--json FILE]

Three arms answer the same questions behind the same worked examples, greedily, in float32, on one thread:

1. one by one: `model.generate` for each prompt, as it is usually written;
2. batches: `model.generate` on left-padded batches;
3. LocalTarget with batches of the same size.

They take turns on the same slices of the questions, in rotating order, so that what else the machine does falls on all
of them. The answers must be the same token for token.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

NEW_TOKENS = 8
EXAMPLES = (
    ("A box holds 12 eggs. How many eggs are in 4 boxes?", "4 boxes of 12 eggs make 4 x 12 = 48 eggs.", "48"),
    ("Lena had 50 marbles and lost 17. How many are left?", "She has 50 - 17 = 33 marbles left.", "33"),
    ("A train goes 60 miles an hour. How far does it go in 3 hours?", "It goes 60 x 3 = 180 miles.", "180"),
    ("Four friends share 36 cookies. How many does each get?", "Each gets 36 / 4 = 9 cookies.", "9"),
    ("A shirt costs $20 and shoes cost $35. What do both cost?", "Together they cost 20 + 35 = 55 dollars.", "55"),
    ("Tom reads 15 pages a day. How many pages does he read in a week?", "A week has 7 days: 15 x 7 = 105.", "105"),
)
THINGS = ("apples", "pencils", "stamps", "coins", "books", "shells")
NAMES = ("Ann", "Ben", "Cara", "Dan", "Eve", "Finn")


def workload(questions: int) -> list[str]:
    """Few-shot prompts that differ in their last question only."""
    shots = "Answer each question in one short sentence, then give the number.\n\n" + "".join(
        f"Question: {question}\nReasoning: {reasoning}\nAnswer: {answer}\n\n"
        for question, reasoning, answer in EXAMPLES
    )
    draw = random.Random(0)
    prompts = []
    for _ in range(questions):
        name, thing, a, b = draw.choice(NAMES), draw.choice(THINGS), draw.randint(2, 90), draw.randint(2, 90)
        text = draw.choice(
            (
                f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?",
                f"What is {a} plus {b}?",
                f"There are {a} {thing} on each of {b} shelves in the room. How many {thing} are there altogether?",
            )
        )
        prompts.append(f"{shots}Question: {text}\nReasoning:")
    return prompts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--questions", type=int, default=80)
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    import torch
    import transformers

    from intarsia.core.local import LocalTarget
    from intarsia.core.sampling import Sampling

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    target = LocalTarget.load(options.model, dtype="float32", device="cpu", batch_rows=options.batch)
    model, tokenizer = target.model, target.tokenizer
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    settings = {"do_sample": False, "max_new_tokens": NEW_TOKENS, "pad_token_id": tokenizer.pad_token_id}

    def by_generate(prompts: list[str]) -> list[tuple[int, ...]]:
        inputs = tokenizer(prompts, return_tensors="pt", padding=True)
        rows = model.generate(**inputs, **settings)[:, inputs["input_ids"].shape[1] :].tolist()
        return [tuple(_until(row, ends)) for row in rows]

    value = model.generation_config.eos_token_id
    ends = set(value if isinstance(value, list) else [value])
    arms = {
        "one by one": lambda prompts: [row for prompt in prompts for row in by_generate([prompt])],
        "batches": by_generate,
        "LocalTarget": lambda prompts: [
            c.token_ids for c in target.generate(prompts, Sampling(max_new_tokens=NEW_TOKENS))
        ],
    }
    for arm in arms.values():
        arm(["Hello, my name is", "The sun is"])

    prompts = workload(options.questions)
    slices = [prompts[start : start + options.batch] for start in range(0, len(prompts), options.batch)]
    seconds = dict.fromkeys(arms, 0.0)
    answers: dict[str, list[tuple[int, ...]]] = {name: [] for name in arms}
    names = list(arms)
    for turn, part in enumerate(slices):
        for name in names[turn % 3 :] + names[: turn % 3]:
            begin = time.process_time()
            answers[name].extend(arms[name](part))
            seconds[name] += time.process_time() - begin
        print(f"slice {turn + 1} of {len(slices)} done", file=sys.stderr)

    lengths = target.count_tokens(prompts)
    differing = {
        name: sum(a != b for a, b in zip(answers[name], answers["one by one"]))
        for name in names
        if name != "one by one"
    }
    rate = {name: len(prompts) / seconds[name] for name in names}
    result = {
        "model": options.model,
        "questions": len(prompts),
        "batch": options.batch,
        "prompt_tokens": [min(lengths), max(lengths)],
        "new_tokens": NEW_TOKENS,
        "cpu_seconds": seconds,
        "queries_per_cpu_second": rate,
        "ratio_to_one_by_one": rate["LocalTarget"] / rate["one by one"],
        "ratio_to_batches": rate["LocalTarget"] / rate["batches"],
        "answers_that_differ": differing,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    print(
        f"{options.model}: {len(prompts)} questions of {min(lengths)} to {max(lengths)} tokens, {NEW_TOKENS} new ones"
    )
    for name in names:
        print(
            f"  {name:12} {rate[name]:8.3f} queries per CPU second, {rate[name] / rate['one by one']:.2f} x one by one"
        )
    print(f"  LocalTarget is {result['ratio_to_batches']:.2f} x batches; differing answers: {differing}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 1 if any(differing.values()) else 0


def _until(row: list[int], ends: set[int]) -> list[int]:
    """The row up to its end token, without the padding behind it."""
    for place, token in enumerate(row):
        if token in ends:
            return row[: place + 1]
    return row


if __name__ == "__main__":
    raise SystemExit(main())

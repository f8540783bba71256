"""Our attack against TextAttack, in one run: the same model, prompts, candidates and stop rule.

    python benchmarks/robustness.py [--model smollm2-135m] [--questions 12] [--slice 6] [--json FILE]

Five arms attack the same questions, greedily, in float32, on one thread, and stop a question at its first wrong answer:

1. one by one: `model.generate` for each question, as it is usually written;
2. TextAttack unbatched: its `Attack` with a batch size of 1;
3. TextAttack by word: the candidates of a word in one batch, as its greedy searches ask;
4. TextAttack in batches: all candidates in order, 32 at a time, the most that its model wrapper allows;
5. ours: `intarsia.robustness.MSCR`.

TextAttack keeps its own machinery: attacked texts, transformation, goal function, caches, query budget. It lives in
`.venvs/textattack`, which is made when missing, with the same torch; it needs an older transformers, so that the
answers of both are compared text for text. Each word's candidates come in alphabetical order, which is TextAttack's.
The arms take turns on slices of the questions, in rotating order. Time is the CPU time of the process that asks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import venv
from importlib.metadata import version
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / ".venvs" / "textattack"
NEEDS = ("textattack==0.3.11", "torch==2.13.0", "transformers>=4.57,<5", "pydantic>=2.10")
WHEELS = "scikit-learn,numpy,scipy,pandas,tokenizers,safetensors,pyarrow,sentencepiece,lxml,matplotlib"
NEW_TOKENS = 8
BATCH = 32
ONE, UNBATCHED, BY_WORD, BATCHED, OURS = (
    "one by one",
    "TextAttack unbatched",
    "TextAttack by word",
    "TextAttack in batches",
    "ours",
)
PEERS = (UNBATCHED, BY_WORD, BATCHED)
Outcome = dict[str, Any]
"""What an arm finds out about a question: attacked, success, queries (up to the success), asked, replies by text."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--data", default="stories:3")
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--slice", type=int, default=6)
    parser.add_argument("--shots", type=int, default=5, help="worked examples in each prompt")
    parser.add_argument("--per-word", type=int, default=3, help="candidates a word")
    parser.add_argument("--budget", type=int, default=16, help="queries a question, without the clean one")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return serve(json.loads(options.peer.read_text(encoding="utf-8")))
    python = make_peer()

    import torch
    import transformers

    from intarsia.core import data
    from intarsia.core.catalog import resolve
    from intarsia.core.local import LocalTarget
    from intarsia.core.sampling import Sampling
    from intarsia.robustness.attack import MSCR, Budget
    from intarsia.robustness.candidates import CallableSource
    from intarsia.robustness.embedding import EmbeddingSource
    from intarsia.robustness.goals import Reply
    from intarsia.robustness.synonyms import WordNetSource
    from intarsia.robustness.words import Span, Word

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    target = LocalTarget.load(options.model, dtype="float32", device="cpu", batch_rows=BATCH)
    questions = data.load(options.data, limit=options.questions, seed=0)
    # As many worked examples as a real set has; the generated ones bring three.
    more = data.load(options.data, limit=options.shots, seed=1).items
    shots = [*questions.shots, *(item for item in more if item not in questions.items)]
    questions = questions.model_copy(update={"shots": tuple(shots[: options.shots])})

    # One list a word, made before any clock runs: ten of each source's, merged, the first few, in TextAttack's order.
    embedding = EmbeddingSource.from_target(target)
    sources = (embedding, WordNetSource(rank=embedding))
    lists: dict[str, list[str]] = {}

    def listed(word: str, question: str) -> list[str]:
        if word not in lists:
            at = Word(0, word, 0, len(word))
            merged = [c.text for source in sources for c in source.propose(word, [at])[0]]
            lists[word] = sorted(dict.fromkeys(merged), key=merged.index)[: options.per_word]
            lists[word].sort(key=lambda text: text + " ")
        return lists[word]

    attack = MSCR(
        target,
        [CallableSource("lists", listed)],
        budget=Budget(max_queries=options.budget, reask=0, rows=BATCH),
        sampling=Sampling(max_new_tokens=NEW_TOKENS),
        shots=options.shots,
        average=False,
        control="off",
    )
    asking = attack.asking(questions)
    encoder = target._encoder
    jobs = []
    for item in questions.items:
        steps = attack.planner.plan(item, Reply(text="", status="correct"), asking).steps
        texts: dict[Span, list[str]] = {}
        for step in steps:
            texts.setdefault(step.origin[0], []).append(step.changes[0].replacement)
        mark = "\x1e"
        before, after = encoder._render(asking.prompt(item, mark))[0].split(mark)
        jobs.append(
            {
                "item": item.model_dump(mode="json"),
                "before": before,
                "after": after,
                "words": [{"start": span.start, "end": span.end, "texts": new} for span, new in texts.items()],
                "steps": [step.text for step in steps],
            }
        )
    resolved = resolve(options.model)
    job = {
        "model": str(resolved.path),
        "jobs": jobs,
        "budget": options.budget,
        "rope": getattr(target.model.config, "rope_parameters", None),
        "ends": sorted(target._ends),
    }

    def plain(places: list[int]) -> list[Outcome]:
        ask = generator(target.model, target.tokenizer, sorted(target._ends))
        return [_sequential(jobs[place], options.budget, ask) for place in places]

    def ours(places: list[int]) -> list[Outcome]:
        part = questions.model_copy(update={"items": tuple(questions.items[place] for place in places)})
        return [
            {
                "attacked": row.attacked,
                "success": row.success,
                "queries": len(row.tried) + 1,
                "asked": len(row.tried) + row.ahead + 1,
                "replies": {row.item.question: row.clean.text} | {t.question: t.reply.text for t in row.tried},
            }
            for row in attack.run(part)
        ]

    peer = Peer(python, job)
    arms: dict[str, Any] = {ONE: plain, OURS: ours} | {name: peer.arm(name) for name in PEERS}
    names = [ONE, *PEERS, OURS]
    target.generate(["Hello, my name is"], Sampling(max_new_tokens=NEW_TOKENS))
    seconds = dict.fromkeys(names, 0.0)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in names}
    everything = list(range(len(jobs)))
    slices = [everything[start : start + options.slice] for start in range(0, len(jobs), options.slice)]
    for turn, places in enumerate(slices):
        for name in names[turn % 5 :] + names[: turn % 5]:
            begin = time.process_time()
            found = arms[name](places)
            spent = time.process_time() - begin
            if name in PEERS:
                found, spent = found["outcomes"], found["seconds"]
            outcomes[name].extend(found)
            seconds[name] += spent
            print(f"slice {turn + 1} of {len(slices)}, {name}: {spent:.1f} CPU seconds", file=sys.stderr, flush=True)
    versions = peer.close()

    result = report(options, names, seconds, outcomes, target.count_tokens([asking.prompt(i) for i in questions.items]))
    result["versions"] = {
        "ours": {"torch": torch.__version__, "transformers": transformers.__version__},
        "TextAttack": versions,
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 1 if any(result["differing"].values()) else 0


def report(
    options: argparse.Namespace,
    names: list[str],
    seconds: dict[str, float],
    outcomes: dict[str, list[Outcome]],
    lengths: list[int],
) -> dict[str, Any]:
    """Whether all arms found the same, and how fast; printed, and as plain data."""
    differing = {}
    for name in names:
        pairs = list(zip(outcomes[name], outcomes[OURS], strict=True))
        differing[name] = sum(any(a[key] != b[key] for key in ("attacked", "success", "queries")) for a, b in pairs)
        shared = [
            (text, reply, b["replies"][text])
            for a, b in pairs
            for text, reply in a["replies"].items()
            if text in b["replies"]
        ]
        differing[f"{name}, replies"] = sum(one != other for _, one, other in shared)
    queries = sum(row["queries"] for row in outcomes[OURS])
    rate = {name: sum(row["queries"] for row in outcomes[name]) / seconds[name] for name in names}
    result = {
        "model": options.model,
        "data": options.data,
        "questions": len(outcomes[OURS]),
        "attacked": sum(row["attacked"] for row in outcomes[OURS]),
        "successes": sum(row["success"] for row in outcomes[OURS]),
        "queries": queries,
        "queries_asked": {name: sum(row["asked"] for row in outcomes[name]) for name in names},
        "prompt_tokens": [min(lengths), max(lengths)],
        "new_tokens": NEW_TOKENS,
        "cpu_seconds": seconds,
        "queries_per_cpu_second": rate,
        "ratio_ours_to": {name: rate[OURS] / rate[name] for name in names},
        "differing": differing,
    }
    print(
        f"{options.model}, {options.data}: {result['questions']} questions of {min(lengths)} to {max(lengths)} tokens, "
        f"{result['attacked']} attacked, {result['successes']} broken, {queries} queries"
    )
    for name in names:
        print(
            f"  {name:22} {rate[name]:8.3f} queries per CPU second; ours is {rate[OURS] / rate[name]:6.2f} x this "
            f"(asked {result['queries_asked'][name]})"
        )
    print(f"  questions with another outcome than ours, and other replies: {differing}")
    return result


def generator(model: Any, tokenizer: Any, ends: list[int]) -> Any:
    """`model.generate` on prompts as one left-padded batch, giving (text, token ids, whether the limit cut it off)."""
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    settings = {"do_sample": False, "max_new_tokens": NEW_TOKENS, "pad_token_id": tokenizer.pad_token_id}

    def ask(prompts: list[str]) -> list[tuple[str, list[int], bool]]:
        inputs = tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False)
        inputs.pop("token_type_ids", None)
        rows = model.generate(**inputs, **settings, eos_token_id=ends)[:, inputs["input_ids"].shape[1] :].tolist()
        answers = []
        for row in rows:
            stop = next((at for at, token in enumerate(row) if token in ends), None)
            ids = row if stop is None else row[:stop]
            text = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            answers.append((text, ids, stop is None))
        return answers

    return ask


def read(item: Any, answer: tuple[str, list[int], bool]) -> Any:
    """An answer, read as our attack reads it."""
    from intarsia.core.target import Completion
    from intarsia.robustness.goals import read_reply

    text, ids, cut = answer
    return read_reply(
        item,
        Completion(text=text, token_ids=tuple(ids), token_count=len(ids), finish_reason="length" if cut else "stop"),
    )


def _sequential(job: dict[str, Any], budget: int, ask: Any) -> Outcome:
    """The attack one question at a time."""
    from intarsia.core.data import Item

    item = Item.model_validate(job["item"])
    replies: dict[str, str] = {}

    def status(question: str) -> str:
        reply = read(item, ask([job["before"] + question + job["after"]])[0])
        replies[question] = reply.text
        return str(reply.status)

    attacked = status(item.question) == "correct" and bool(job["steps"])
    success = attacked and any(status(text) == "wrong" for text in job["steps"][:budget])
    return {
        "attacked": attacked,
        "success": success,
        "queries": len(replies),
        "asked": len(replies),
        "replies": replies,
    }


# --- TextAttack, in its own environment ------------------------------------------------------------------------------


def make_peer() -> Path:
    """The python of `.venvs/textattack`, made when missing."""
    python = PEER / "bin" / "python"
    done = PEER / "installed"
    if not done.exists():
        print(f"Making {PEER} (some minutes)", file=sys.stderr)
        venv.create(PEER, with_pip=True, clear=True)
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--prefer-binary", "--only-binary", WHEELS, *NEEDS], check=True
        )
        # It wants NLTK's stop words at import, for a constraint that is not used here, and downloads at first start.
        words = PEER / "nltk_data" / "corpora" / "stopwords"
        words.mkdir(parents=True)
        (words / "english").write_text("a\nan\nthe\nof\n", encoding="utf-8")
        (PEER / "cache").mkdir()
        (PEER / "cache" / "post_install_check_3").touch()
        done.write_text("\n".join(NEEDS) + "\n", encoding="utf-8")
    return python


class Peer:
    """The process in TextAttack's environment: a line in names an arm and questions, a line out has the outcomes."""

    def __init__(self, python: Path, job: dict[str, Any]) -> None:
        import tempfile

        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "job.json"
        path.write_text(json.dumps(job), encoding="utf-8")
        environment = dict(os.environ) | {
            "PYTHONPATH": str(ROOT / "src"),
            "TA_CACHE_DIR": str(PEER / "cache"),
            "NLTK_DATA": str(PEER / "nltk_data"),
            "HF_HUB_OFFLINE": "1",
        }
        self._process = subprocess.Popen(
            [python, __file__, "--peer", path],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._versions = self._receive()

    def arm(self, name: str) -> Any:
        """A function from questions to what TextAttack finds out about them."""

        def run(places: list[int]) -> dict[str, Any]:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"arm": name, "places": places}) + "\n")
            self._process.stdin.flush()
            return self._receive()

        return run

    def close(self) -> dict[str, Any]:
        """End it; gives the versions that it ran."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._folder.cleanup()
        return self._versions

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"TextAttack's process ended with status {self._process.wait()}.")
        return dict(json.loads(line))


def serve(job: dict[str, Any]) -> int:
    """TextAttack's side."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between
    import textattack
    import torch
    import transformers
    from textattack.goal_function_results import GoalFunctionResultStatus
    from textattack.goal_functions.text import TextToTextGoalFunction
    from textattack.models.wrappers import ModelWrapper
    from textattack.search_methods import SearchMethod
    from textattack.transformations import WordSwap

    from intarsia.core.data import Item

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.from_pretrained(job["model"])
    if job["rope"]:  # written by a newer transformers, under another name
        config.rope_theta = job["rope"]["rope_theta"]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        job["model"], config=config, dtype=torch.float32, attn_implementation="sdpa"
    ).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(Path(job["model"]) / "tokenizer.json"))
    tokenizer.eos_token_id = tokenizer.pad_token_id = job["ends"][0]
    ask = generator(model, tokenizer, job["ends"])
    jobs = job["jobs"]
    items = [Item.model_validate(entry["item"]) for entry in jobs]
    place_of = {item.question: place for place, item in enumerate(items)}

    class Model(ModelWrapper):
        """Puts questions into the few-shot prompt of the current one."""

        def __init__(self) -> None:
            self.model, self.place, self.calls = model, 0, 0

        def __call__(self, texts: list[str], **kwargs: Any) -> list[Any]:
            entry = jobs[self.place]
            self.calls += len(texts)
            return ask([entry["before"] + text + entry["after"] for text in texts])

    class Wrong(TextToTextGoalFunction):
        """The answer is wrong, as our attack reads it; only questions that are answered right are attacked."""

        def _reply(self, output: Any) -> Any:
            return read(items[self.model.place], output)

        def _is_goal_complete(self, output: Any, attacked_text: Any) -> bool:
            return bool(self._reply(output).status == "wrong")

        def _should_skip(self, output: Any, attacked_text: Any) -> bool:
            return bool(self._reply(output).status != "correct")

        def _get_score(self, output: Any, attacked_text: Any) -> float:
            return float(self._is_goal_complete(output, attacked_text))

        def _get_displayed_output(self, output: Any) -> str:
            return str(output[0])

    class Lists(WordSwap):
        """The given candidates of each word."""

        def _get_transformations(self, current_text: Any, indices_to_modify: Any) -> list[Any]:
            text = current_text.text
            made = []
            for index in sorted(indices_to_modify):
                start = current_text._text_index_of_word_index(index)
                end = start + len(current_text.words[index])
                for entry in jobs[place_of[text]]["words"]:
                    if start <= entry["start"] and entry["end"] <= end:
                        for new in entry["texts"]:
                            word = text[start : entry["start"]] + new + text[entry["end"] : end]
                            made.append(current_text.replace_word_at_index(index, word))
            return made

    class InOrder(SearchMethod):
        """Word by word, candidate by candidate, to the first success; `width` candidates are asked together."""

        def __init__(self, width: int, across_words: bool) -> None:
            self.width, self.across_words = width, across_words

        is_black_box = True

        def perform_search(self, initial_result: Any) -> Any:
            text = initial_result.attacked_text
            self.rank = 0
            self.asked: list[Any] = []
            waiting: list[Any] = []
            for index in range(text.num_words):
                waiting += self.get_transformations(text, original_text=text, indices_to_modify=[index])
                while len(waiting) >= (self.width if self.across_words else 1):
                    hit, over = self._ask(waiting[: self.width])
                    del waiting[: self.width]
                    if hit is not None or over:
                        return hit or initial_result
            hit, _ = self._ask(waiting)
            return hit or initial_result

        def _ask(self, texts: list[Any]) -> tuple[Any, bool]:
            results, over = self.get_goal_results(texts) if texts else ([], False)
            for result in results:
                self.rank += 1
                self.asked.append(result)
                if result.goal_status == GoalFunctionResultStatus.SUCCEEDED:
                    return result, over
            return None, over

    textattack.shared.utils.logger.setLevel("ERROR")
    wrapper = Model()
    widths = {UNBATCHED: (1, False), BY_WORD: (BATCH, False), BATCHED: (BATCH, True)}

    def attack(place: int, arm: str) -> Outcome:
        width, across = widths[arm]
        search = InOrder(width, across)
        goal = Wrong(wrapper, query_budget=job["budget"] + 1, model_batch_size=width)
        attack = textattack.Attack(goal, [], Lists(), search)
        wrapper.place, wrapper.calls = place, 0
        found = attack.attack(items[place].question, items[place].answer or "")
        skipped = isinstance(found, textattack.attack_results.SkippedAttackResult)
        first = found.original_result
        tried = [] if skipped else search.asked
        return {
            "attacked": not skipped and bool(jobs[place]["steps"]),
            "success": isinstance(found, textattack.attack_results.SuccessfulAttackResult),
            "queries": len(tried) + 1,
            "asked": wrapper.calls,
            "replies": {row.attacked_text.text: read(items[place], row.raw_output).text for row in (first, *tried)},
        }

    def send(line: dict[str, Any]) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    ask([jobs[0]["before"] + "Hello" + jobs[0]["after"]])
    versions = {
        "textattack": version("textattack"),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    send(versions)
    for line in sys.stdin:
        order = json.loads(line)
        begin = time.process_time()
        outcomes = [attack(place, order["arm"]) for place in order["places"]]
        send({"outcomes": outcomes, "seconds": time.process_time() - begin})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

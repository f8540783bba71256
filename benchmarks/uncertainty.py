"""Our beams and samples against LM-Polygraph and plain transformers, in one run: same model, questions, M, similarity.

    python benchmarks/uncertainty.py [--model smollm2-135m] [--questions 10] [--m 10] [--new-tokens 6] [--json FILE]

The arms answer the same few-shot questions, in float32, on one thread, and end an answer at a line break:

- ours, `BeamUQ`: beams; beams one question at a time, with nothing remembered between questions; independent samples;
  the same samples from a trie of prefixes. An answer, its candidates and its dissimilarity.
- LM-Polygraph, one question at a time, and a slice of them in a batch: its `GreedyProbsCalculator` (without
  attentions), `SamplingGenerationCalculator` and `LexicalSimilarity`, timed apart. What the target is held against is
  its sampling with its estimator, without its greedy pass; ours has the greedy answer in it.
- transformers: `generate` with M samples, and with M beams. Candidates only: no answer, no similarity. It tells the
  beams' log-probabilities only with `output_scores`, which keeps the scores of every step.

The similarity is ROUGE-L, each side's own. Everything is drawn at `--temperature` without top-k and top-p.
LM-Polygraph lives in `.venvs/lm-polygraph`, which is made when missing, with the same torch and transformers. It bans
an end token as the first one, so its law is not quite ours.

The arms take turns on slices of the questions, in rotating order. Time is the CPU time of the process that works.
Memory is the growth of its resident set while an arm works, at its highest. Quality is the prediction rejection ratio
on one set of answers, our greedy ones; a few questions tell next to nothing of it, hence its interval.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

ROOT = Path(__file__).resolve().parents[1]
PEER = ROOT / ".venvs" / "lm-polygraph"
NEEDS = ("lm-polygraph==0.7.0", "torch==2.13.0", "transformers==5.24.0")
BEAM, ALONE, SAMPLE, TRIE = "ours: beam", "ours: beam, one by one", "ours: sample", "ours: trie sampler"
PEER_ONE, PEER_MANY = "LM-Polygraph: sample, one by one", "LM-Polygraph: sample, batched"
HF_SAMPLE, HF_BEAM = "transformers: sample", "transformers: beam"
OURS, PEERS, PLAIN = (BEAM, ALONE, SAMPLE, TRIE), (PEER_ONE, PEER_MANY), (HF_SAMPLE, HF_BEAM)
TARGET = 1 / 3
Outcome = dict[str, Any]
"""What an arm says of a question: texts of the candidates, logprobs (null for samples), answer, mass, uncertainty."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument("--slice", type=int, default=5, help="questions that an arm works on at a time")
    parser.add_argument("--m", type=int, default=10, help="candidates a question")
    parser.add_argument("--new-tokens", type=int, default=6)
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[], help="arms whose name holds one of these words")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return serve(json.loads(options.peer.read_text(encoding="utf-8")))
    if options.questions < 2 or options.slice < 1:
        parser.error("ask 2 questions or more, 1 or more at a time")
    names = [n for n in (*OURS, *PEERS, *PLAIN) if not options.only or any(word in n for word in options.only)]
    if not names:
        parser.error(f"no arm is called that; they are {', '.join((*OURS, *PEERS, *PLAIN))}")
    python = make_peer() if any(n in PEERS for n in names) else None

    import torch
    import transformers

    from intarsia.core.catalog import resolve
    from intarsia.core.local import LocalTarget
    from intarsia.uncertainty.beam import Beam
    from intarsia.uncertainty.facts import facts
    from intarsia.uncertainty.law import Law
    from intarsia.uncertainty.prompting import prompts as lay_out

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    target = LocalTarget.load(options.model, dtype="fp32", device="cpu")
    law = Law.of(target, temperature=options.temperature, max_new_tokens=options.new_tokens)
    questions = facts(options.questions, seed=options.seed, tokenizer=target.tokenizer)
    prompts = [str(prompt) for prompt in lay_out(questions)]
    keys = [item.id for item in questions.items]
    job = {
        "model": str(resolve(options.model).path),
        "prompts": prompts,
        "m": options.m,
        "new_tokens": options.new_tokens,
        "temperature": options.temperature,
    }
    arms: dict[str, Callable[[list[int]], dict[str, Any]]] = {}
    arms |= ours(law, prompts, keys, options.m)
    arms |= plain(law, prompts, options.m, options.temperature, options.new_tokens)
    peer = Peer(python, job) if python is not None else None
    if peer is not None:
        arms |= {name: peer.arm(name) for name in PEERS}

    target.generate(["Hello, my name is"])
    everything = list(range(len(prompts)))
    slices = [everything[start : start + options.slice] for start in range(0, len(prompts), options.slice)]
    seconds: dict[str, dict[str, float]] = {name: {} for name in names}
    memory: dict[str, list[float]] = {name: [] for name in names}
    outcomes: dict[str, list[Outcome]] = {name: [] for name in names}
    for turn, places in enumerate(slices):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            target._engine.forget()
            found = arms[name](places)
            outcomes[name] += found["outcomes"]
            memory[name].append(found["mebibytes"])
            for part, spent in found["seconds"].items():
                seconds[name][part] = seconds[name].get(part, 0.0) + spent
            spent = sum(found["seconds"].values())
            print(f"slice {turn + 1} of {len(slices)}, {name}: {spent:.1f} CPU seconds", file=sys.stderr, flush=True)
    versions = {"ours": {"torch": torch.__version__, "transformers": transformers.__version__}}
    if peer is not None:
        versions["LM-Polygraph"] = peer.close()

    answers = [made.answer for made in Beam(law, m=1).generate(prompts, keys)]
    result = report(options, names, seconds, memory, outcomes, answers, questions.items, target.count_tokens(prompts))
    result["versions"] = versions
    if options.json:
        options.json.write_text(json.dumps(known(result), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    return 0


# --- Our arms, and those of transformers -----------------------------------------------------------------------------


def ours(law: Any, prompts: list[str], keys: list[str], m: int) -> dict[str, Any]:
    """Answers with their uncertainty, by `BeamUQ`."""
    from intarsia.uncertainty.beam import Beam
    from intarsia.uncertainty.beamuq import BeamUQ
    from intarsia.uncertainty.sampling import Sample
    from intarsia.uncertainty.trie import TrieSampler

    def arm(source: Any, alone: bool = False) -> Callable[[list[int]], dict[str, Any]]:
        def work(places: list[int]) -> dict[str, list[Any]]:
            scorer = BeamUQ(law, similarity="rouge-l", estimators=["dissimilarity"], candidates=source)
            found = []
            for group in [[place] for place in places] if alone else [places]:
                if alone:
                    law.target._engine.forget()
                found += scorer.score([prompts[place] for place in group], [keys[place] for place in group])
            return {"all": found}

        def run(places: list[int]) -> dict[str, Any]:
            measured = measure(lambda: work(places))
            measured["outcomes"] = [
                {
                    "texts": list(one.candidates.texts),
                    "logprobs": one.candidates.logprobs_M.tolist() if one.candidates.exact else None,
                    "answer": one.answer,
                    "mass": one.mass,
                    "uncertainty": one.scores["dissimilarity"],
                }
                for one in measured.pop("found")["all"]
            ]
            return measured

        return run

    return {
        BEAM: arm(Beam(law, m=m)),
        ALONE: arm(Beam(law, m=m), alone=True),
        SAMPLE: arm(Sample(law, m=m)),
        TRIE: arm(TrieSampler(law, m=m)),
    }


def plain(law: Any, prompts: list[str], m: int, temperature: float, new_tokens: int) -> dict[str, Any]:
    """Candidates by `model.generate`, one left-padded batch a slice."""
    import torch
    from transformers import LogitsProcessorList, TemperatureLogitsWarper

    model, tokenizer = law.target.model, law.target.tokenizer
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    common = {
        "max_new_tokens": new_tokens,
        "num_return_sequences": m,
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": sorted(law.ends),
        "return_dict_in_generate": True,
    }
    settings: dict[str, dict[str, Any]] = {
        HF_SAMPLE: {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0},
        # Beams take no temperature by themselves.
        HF_BEAM: {
            "do_sample": False,
            "num_beams": m,
            "length_penalty": 0.0,
            "early_stopping": "never",
            "output_scores": True,
            "logits_processor": LogitsProcessorList([TemperatureLogitsWarper(temperature)]),
            "renormalize_logits": True,
        },
    }

    def arm(name: str) -> Callable[[list[int]], dict[str, Any]]:
        def work(places: list[int]) -> Any:
            torch.manual_seed(places[0])
            inputs = tokenizer([prompts[place] for place in places], return_tensors="pt", padding=True)
            inputs.pop("token_type_ids", None)
            with torch.inference_mode():
                return inputs["input_ids"].shape[1], model.generate(**inputs, **common, **settings[name])

        def run(places: list[int]) -> dict[str, Any]:
            measured = measure(lambda: work(places))
            width, made = measured.pop("found")
            rows = made.sequences[:, width:].tolist()
            scores = None if name == HF_SAMPLE else made.sequences_scores.tolist()
            measured["outcomes"] = []
            for place in range(len(places)):
                part = slice(place * m, (place + 1) * m)
                texts = []
                for row in rows[part]:
                    end = next((at + 1 for at, token in enumerate(row) if token in law.ends), len(row))
                    texts.append(law.text(row[:end]))
                measured["outcomes"].append({"texts": texts, "logprobs": scores and scores[part]})
            return measured

        return run

    return {name: arm(name) for name in PLAIN}


# --- Measuring -------------------------------------------------------------------------------------------------------


def measure(work: Callable[[], Any]) -> dict[str, Any]:
    """CPU seconds of some work, and by how many MiB the process grew on the way; NaN where that cannot be known."""
    gc.collect()
    before = _resident(reset=True)
    begin = time.process_time()
    found = work()
    spent = time.process_time() - begin
    return {"found": found, "seconds": {"all": spent}, "mebibytes": _resident() - before}


def _resident(reset: bool = False) -> float:
    """MiB of memory: now, when the highest figure is reset, else the highest since then."""
    try:
        if reset:
            ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed before must not hide what is taken now
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return float("nan")
    wanted = "VmRSS:" if reset else "VmHWM:"
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(wanted)), float("nan"))


def report(
    options: argparse.Namespace,
    names: list[str],
    seconds: dict[str, dict[str, float]],
    memory: dict[str, list[float]],
    outcomes: dict[str, list[Outcome]],
    answers: list[Any],
    items: Any,
    lengths: list[int],
) -> dict[str, Any]:
    """Time, memory and quality of each arm; printed, and as plain data."""
    from intarsia.uncertainty.metrics import prr
    from intarsia.uncertainty.quality import qualities

    count = len(answers)
    right = qualities([answer.text for answer in answers], items)
    rows: dict[str, Any] = {}
    for name in names:
        parts = {part: spent / count for part, spent in seconds[name].items()}
        # Its greedy pass is not part of what LM-Polygraph is held against.
        timed = sum(spent for part, spent in parts.items() if part != "greedy")
        scores = dissimilarities(outcomes[name], answers)
        figure = prr(right, scores)
        rows[name] = {
            "seconds_per_question": timed,
            "parts": parts,
            "mebibytes": max(memory[name]),
            "prr": figure.value,  # NaN where all answers are alike
            "prr_interval": figure.interval and [figure.interval.low, figure.interval.high],
            "distinct_texts": sum(len(set(one["texts"])) / len(one["texts"]) for one in outcomes[name]) / count,
            "dissimilarity": scores,
        }
        if name in PEERS:
            rows[name]["prr_own_estimator"] = prr(right, [one["uncertainty"] for one in outcomes[name]]).value
            rows[name]["other_answers"] = sum(
                one["answer"].strip() != answer.text.strip() for one, answer in zip(outcomes[name], answers)
            )
    result: dict[str, Any] = {
        "model": options.model,
        "questions": count,
        "right": sum(right) / count,
        "prompt_tokens": [min(lengths), max(lengths)],
        "m": options.m,
        "new_tokens": options.new_tokens,
        "temperature": options.temperature,
        "arms": rows,
    }
    print(
        f"{options.model}, {count} questions of {min(lengths)} to {max(lengths)} tokens, {options.m} candidates of up "
        f"to {options.new_tokens} tokens, temperature {options.temperature:g}; quality {sum(right) / count:.2f}"
    )
    print(f"  {'':33} {'s/question':>10} {'to beam':>8} {'MiB':>6} {'PRR':>6}  {'95 %':14} distinct texts")
    base = rows.get(BEAM, {}).get("seconds_per_question", float("nan"))
    for name, row in rows.items():
        low, high = row["prr_interval"] or (float("nan"), float("nan"))
        print(
            f"  {name:33} {row['seconds_per_question']:10.3f} {row['seconds_per_question'] / base:7.2f}x "
            f"{row['mebibytes']:6.0f} {row['prr']:6.2f}  [{low:5.2f}, {high:5.2f}] {row['distinct_texts']:6.0%}"
        )
    for name in PEERS:
        if name in rows:
            said = ", ".join(f"{part} {spent:.3f}" for part, spent in rows[name]["parts"].items())
            print(
                f"  {name}: {said} s/question; PRR of its own estimator {rows[name]['prr_own_estimator']:.2f}; "
                f"{rows[name]['other_answers']} other answers than ours"
            )
    if BEAM in names and HF_BEAM in names:
        result["mass_differences"] = [
            abs(sum(map(math.exp, a["logprobs"])) - sum(map(math.exp, b["logprobs"])))
            for a, b in zip(outcomes[BEAM], outcomes[HF_BEAM])
        ]
        print(f"  beam mass, ours and transformers': largest difference {max(result['mass_differences']):.1e}")
    result["target"] = {}
    for mine, theirs in ((ALONE, PEER_ONE), (BEAM, PEER_MANY)):
        if mine in rows and theirs in rows:
            ratio = rows[mine]["seconds_per_question"] / rows[theirs]["seconds_per_question"]
            result["target"][f"{mine} / {theirs}"] = ratio
            word = "met" if ratio <= TARGET else "MISSED"
            print(f"  target, {mine} at most 1/3 of {theirs}: {word} ({ratio:.3f})")
    return result


def known(value: Any) -> Any:
    """The same for JSON: what is not known (NaN) is null."""
    if isinstance(value, dict):
        return {name: known(one) for name, one in value.items()}
    if isinstance(value, list):
        return [known(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def dissimilarities(outcomes: list[Outcome], answers: list[Any]) -> list[float]:
    """Our expected dissimilarity of our greedy answers, from any arm's candidates."""
    import numpy as np

    from intarsia.uncertainty.candidates import CandidateSet
    from intarsia.uncertainty.estimators import score_many

    sets = []
    for one, answer in zip(outcomes, answers, strict=True):
        count = len(one["texts"])
        sampled = one["logprobs"] is None
        sets.append(
            CandidateSet(
                answer=answer,
                texts=tuple(one["texts"]),
                # Beams are distinct by their tokens, also where two read the same.
                token_ids=tuple((place,) for place in range(count)),
                logprobs_M=np.zeros(count) if sampled else np.array(one["logprobs"]),
                finished_M=np.ones(count, dtype=bool),
                kind="sample" if sampled else "beam",
                exact=0 if sampled else count,
            )
        )
    return [scores["dissimilarity"] for scores in score_many(sets, "rouge-l", ["dissimilarity"])]


# --- LM-Polygraph, in its own environment ----------------------------------------------------------------------------


def make_peer() -> Path:
    """The python of `.venvs/lm-polygraph`, made when missing."""
    python = PEER / "bin" / "python"
    done = PEER / "installed"
    wanted = "\n".join(NEEDS) + "\n"
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        print(f"Making {PEER} (some minutes)", file=sys.stderr)
        venv.create(PEER, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--prefer-binary", *NEEDS], check=True)
        done.write_text(wanted, encoding="utf-8")
    return python


class Peer:
    """The process in LM-Polygraph's environment: a line in names an arm and questions, a line out has the outcomes."""

    def __init__(self, python: Path, job: dict[str, Any]) -> None:
        import tempfile

        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "job.json"
        path.write_text(json.dumps(job), encoding="utf-8")
        self._process = subprocess.Popen(
            [python, __file__, "--peer", path],
            env=dict(os.environ) | {"HF_HUB_OFFLINE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._versions = self._receive()

    def arm(self, name: str) -> Callable[[list[int]], dict[str, Any]]:
        """A function from questions to what LM-Polygraph says of them."""

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
            raise SystemExit(f"LM-Polygraph's process ended with status {self._process.wait()}.")
        return dict(json.loads(line))


def serve(job: dict[str, Any]) -> int:
    """LM-Polygraph's side."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between
    import torch
    import transformers
    from lm_polygraph.estimators.lexical_similarity import LexicalSimilarity
    from lm_polygraph.stat_calculators.greedy_probs import GreedyProbsCalculator
    from lm_polygraph.stat_calculators.sample import SamplingGenerationCalculator
    from lm_polygraph.utils.generation_parameters import GenerationParameters
    from lm_polygraph.utils.model import WhiteboxModel

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(job["model"], padding_side="left")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = WhiteboxModel(
        transformers.AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32).eval(),
        tokenizer,
        job["model"],
        "CausalLM",
        GenerationParameters(temperature=job["temperature"], top_k=0, top_p=1.0, stop_strings=["\n"]),
    )
    # Attentions, which other estimators want, would cost it a slower kernel and much memory.
    greedy = GreedyProbsCalculator(output_attentions=False)
    sampling = SamplingGenerationCalculator(samples_n=job["m"])
    similarity = LexicalSimilarity("rougeL")

    def work(groups: list[list[int]], spent: dict[str, float]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for group in groups:
            texts = [job["prompts"][place] for place in group]
            stats: dict[str, Any] = {}
            torch.manual_seed(group[0])
            for part, calculator in (("greedy", greedy), ("sampling", sampling)):
                begin = time.process_time()
                stats |= calculator(stats, texts, model, max_new_tokens=job["new_tokens"])
                spent[part] += time.process_time() - begin
            begin = time.process_time()
            values = similarity(stats)
            spent["estimator"] += time.process_time() - begin
            outcomes += [
                {"texts": samples, "logprobs": None, "answer": answer.split("\n")[0], "uncertainty": float(value)}
                for samples, answer, value in zip(stats["sample_texts"], stats["greedy_texts"], values)
            ]
        return outcomes

    def send(line: dict[str, Any]) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    work([[0]], dict.fromkeys(("greedy", "sampling", "estimator"), 0.0))
    send({name: version(name) for name in ("lm-polygraph", "torch", "transformers")})
    for line in sys.stdin:
        order = json.loads(line)
        places = order["places"]
        spent = dict.fromkeys(("greedy", "sampling", "estimator"), 0.0)
        groups = [[place] for place in places] if order["arm"] == PEER_ONE else [places]
        measured = measure(partial(work, groups, spent))
        send({"outcomes": measured["found"], "seconds": spent, "mebibytes": measured["mebibytes"]})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

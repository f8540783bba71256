"""A two-layer transformer that is taught a fact table from nothing, so that it knows how sure it should be (ours).

It is an ordinary Llama with a word-level tokenizer: whatever runs on a real model runs on it. It is trained to predict
the next word of "home of Mavo is ..." with answers as likely as the table says, which takes about a minute on one core.

Shape suffixes: Q questions of a batch, B rows, T places, V words, N questions, P answers.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from intarsia.core.errors import BackendError, ConfigError, ModelError
from intarsia.core.target import Progress
from intarsia.uncertainty.proof.enumerable import word_tokenizer
from intarsia.uncertainty.proof.fact_table import LONGEST, SUBJECTS, Fact, FactTable

if TYPE_CHECKING:
    from intarsia.core.local import LocalTarget

WIDTH, LAYERS, HEADS, INNER = 64, 2, 4, 256
BATCH = 48
"""Questions of a batch; each comes with all its plausible answers and one of the others."""
STEPS = 1300
PEAK_RATE = 4e-3
EMBEDDING_RATE = 5
"""Times the peak rate, for the embeddings: what is known of a subject has to go into its own few numbers."""
WARM_UP = 60
LOGGED = 50
FORMAT = 1
CARD = "facts_model.json"
SPECIAL = ("<pad>", "<end>", "<unknown>")
PAD, END = 0, 1
_QUESTION = 4  # Words of a question.


class Training(BaseModel):
    """How a model was trained.

    Attributes:
        seed: Of the table, the weights and the batches.
        subjects: Of the table.
        steps: Of batches of `BATCH` questions.
        losses: Mean cross-entropy of an answer in nats over each `LOGGED` steps.
        seconds: Wall time that it took.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
    subjects: int
    steps: int
    losses: tuple[float, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class FactsModel:
    """A trained model with what it was taught.

    Attributes:
        model: A `LlamaForCausalLM`.
        tokenizer: Its tokenizer, whose tokens are words.
        training: How it was trained.
    """

    model: Any
    tokenizer: Any
    training: Training

    @cached_property
    def table(self) -> FactTable:
        """What it was taught."""
        return FactTable(self.training.seed, self.training.subjects)

    def target(self) -> LocalTarget:
        """A target around it."""
        from intarsia.core.local import LocalTarget

        made = self.training
        name = f"facts-seed{made.seed}-subjects{made.subjects}-steps{made.steps}"
        return LocalTarget(self.model, self.tokenizer, name, provenance=made.model_dump(exclude={"losses", "seconds"}))

    def logprobs(self, facts: Sequence[Fact]) -> np.ndarray:
        """Log-probability of every answer of each fact's relation, end token included; float64 of shape (N, P)."""
        import torch

        rows = []
        with torch.inference_mode():
            for fact in facts:
                ids_PT, target_PT = self._rows([(fact, answer) for answer in fact.answers])
                logits_PTV = self.model(input_ids=ids_PT, use_cache=False, logits_to_keep=LONGEST + 1).logits.double()
                said_PT = logits_PTV.log_softmax(-1).gather(-1, target_PT.clamp_min(0)[..., None])[..., 0]
                rows.append(said_PT.masked_fill(target_PT < 0, 0.0).sum(1).numpy())
        return np.stack(rows)

    def divergence(self, facts: Sequence[Fact]) -> np.ndarray:
        """Kullback-Leibler divergence of the trained law from the taught one, in nats; float64 of shape (N,)."""
        taught_NP = np.stack([fact.probs_P for fact in facts])
        divergence_N: np.ndarray = (taught_NP * (np.log(taught_NP) - self.logprobs(facts))).sum(1)
        return divergence_N

    def _rows(self, pairs: Sequence[tuple[Fact, str]]) -> tuple[Any, Any]:
        return _rows(_ids(self.table), pairs)

    # --- Folders -----------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write model, tokenizer and card into a folder, which holds all of it or is not there.

        Args:
            folder: Is replaced when it holds such a model already.

        Raises:
            ConfigError: The folder holds something else.
            BackendError: The disk refuses.
        """
        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / CARD).is_file())):
            raise ConfigError(f"{folder} is in the way: it holds no facts model.", "Give a new folder.")
        card = {"format": FORMAT, "kind": "facts model", "training": self.training.model_dump(mode="json")}
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                (made / CARD).write_text(json.dumps(card, indent=1) + "\n", "utf-8")
                self.model.save_pretrained(made)
                self.tokenizer.save_pretrained(made)
                if folder.exists():
                    shutil.rmtree(folder)
                os.replace(made, folder)
        except OSError as error:
            raise BackendError(
                f"Writing {folder} failed: {error.strerror or error}.", "Give a folder that you may write in."
            ) from error
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> FactsModel:
        """Read a model that `save` wrote.

        Raises:
            ModelError: The folder is missing, damaged, or of another format.
        """
        from transformers import AutoTokenizer, LlamaForCausalLM

        hint = "Train it anew with train_facts and save it."
        try:
            card = json.loads((Path(folder) / CARD).read_text("utf-8"))
            if card.get("format") != FORMAT:
                raise ModelError(f"{folder} has a facts model of format {card.get('format')}, not {FORMAT}.", hint)
            model = LlamaForCausalLM.from_pretrained(folder, local_files_only=True, dtype="float32")
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            return cls(model.eval(), tokenizer, Training.model_validate(card["training"]))
        except ModelError:
            raise
        except Exception as error:  # the libraries have errors of their own for damage of many kinds
            raise ModelError(f"{folder} holds no whole facts model ({type(error).__name__}).", hint) from error


def train_facts(
    seed: int = 0,
    *,
    subjects: int = SUBJECTS,
    steps: int = STEPS,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
) -> FactsModel:
    """Teach a model a fact table; the same arguments give the same weights on the same machine.

    A batch is an expectation rather than a draw: a question comes with all its plausible answers, weighted by their
    probabilities, and with one other answer for the whole tail. The loss is that of text drawn from the table, with
    less noise.

    Args:
        seed: Of the table, the weights and the batches.
        subjects: Of the table; there are three questions to each.
        steps: Of batches of 48 questions. The learning rate falls to 0 over them.
        progress: Called with (done, total) every 50 steps.
        checkpoint: A file that is written every 50 steps, from which the same call goes on to the same weights. It is
            removed at the end.

    Raises:
        ConfigError: The number of steps or subjects makes no sense.
        BackendError: The checkpoint cannot be written.
    """
    import torch
    from torch.nn.functional import cross_entropy

    if steps < 1:
        raise ConfigError(f"A training of {steps} steps teaches nothing.", "Give 1 or more.")
    table = FactTable(seed, subjects)
    ids = _ids(table)
    facts = table.facts
    size = min(BATCH, len(facts))
    tails = [[place for place in range(len(fact.answers)) if place not in fact.plausible] for fact in facts]
    every = [_rows(ids, [(fact, answer) for answer in fact.answers]) for fact in facts]
    rng = np.random.default_rng([seed, subjects, 2])
    started, threads = time.perf_counter(), torch.get_num_threads()
    losses: list[float] = []
    # Tiny matrices gain nothing from threads, and sums over one thread come out the same every time.
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = _network(len(ids)).train()
            words, *rest = model.parameters()
            assert words is model.get_input_embeddings().weight
            groups = [{"params": [words], "lr": EMBEDDING_RATE * PEAK_RATE}, {"params": rest}]
            # A subject is met once in ten batches; a longer memory of squared gradients would forget how large its are.
            optimizer = torch.optim.AdamW(groups, lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
            order: list[int] = []
            total = 0.0
            parts_of_state = (model, optimizer, schedule)
            kept = None if checkpoint is None else _Kept(Path(checkpoint), (FORMAT, seed, subjects, steps))
            begin = 0
            if kept is not None and (found := kept.read(parts_of_state)) is not None:
                begin, order, losses, rng.bit_generator.state = found
            for step in range(begin, steps):
                while len(order) < size:
                    order += rng.permutation(len(facts)).tolist()
                chosen, order = order[:size], order[size:]
                parts, weights = [], []
                for at in chosen:
                    other = tails[at][rng.integers(len(tails[at]))]
                    law_P = facts[at].probs_P
                    places = [*facts[at].plausible, other]
                    parts.append((every[at][0][places], every[at][1][places]))
                    weights += [*law_P[list(facts[at].plausible)], law_P[tails[at]].sum()]
                ids_BT, target_BT = (torch.cat(side) for side in zip(*parts))
                logits_BTV = model(input_ids=ids_BT, use_cache=False, logits_to_keep=LONGEST + 1).logits
                each_BT = cross_entropy(logits_BTV.transpose(1, 2), target_BT, ignore_index=-1, reduction="none")
                loss = (each_BT.sum(1) * torch.tensor(weights, dtype=torch.float32)).sum() / size
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                total += float(loss.detach())
                if (step + 1) % LOGGED == 0 or step + 1 == steps:
                    losses.append(total / (step % LOGGED + 1))
                    total = 0.0
                    if kept is not None:
                        kept.write(parts_of_state, (step + 1, order, losses, rng.bit_generator.state))
                    if progress is not None:
                        progress(step + 1, steps)
    finally:
        torch.set_num_threads(threads)
    tokenizer = word_tokenizer(tuple(ids), pad=SPECIAL[PAD], end=SPECIAL[END], unknown=SPECIAL[2])
    seconds = time.perf_counter() - started
    training = Training(seed=seed, subjects=subjects, steps=steps, losses=tuple(losses), seconds=seconds)
    if kept is not None:
        kept.path.unlink(missing_ok=True)
    return FactsModel(model.eval(), tokenizer, training)


@dataclass(frozen=True)
class _Kept:
    """A training under way, in a file.

    Attributes:
        path: The file.
        settings: What the training depends on; a file of another one is not used.
    """

    path: Path
    settings: tuple[int, ...]

    def read(self, parts: Sequence[Any]) -> tuple[int, list[int], list[float], Any] | None:
        """Put the parts back to where they were; None where there is no such file, or a damaged one."""
        import torch

        try:
            # Tensors, numbers and lists only: nothing in it is executed.
            there = torch.load(self.path, weights_only=True)
            if tuple(there["settings"]) != self.settings:
                return None
            begin, order, losses, state = there["rest"]
            for part, values in zip(parts, there["parts"], strict=True):
                part.load_state_dict(values)
        except FileNotFoundError:
            return None
        except Exception:  # the libraries have errors of their own for damage of many kinds
            self.path.unlink(missing_ok=True)
            return None
        return begin, order, losses, state

    def write(self, parts: Sequence[Any], rest: tuple[int, list[int], list[float], Any]) -> None:
        """The file holds all of it or what it held before."""
        import torch

        partial = self.path.with_name(self.path.name + ".partial")
        try:
            torch.save(
                {"settings": list(self.settings), "rest": list(rest), "parts": [part.state_dict() for part in parts]},
                partial,
            )
            os.replace(partial, self.path)
        except (OSError, RuntimeError) as error:
            raise BackendError(f"Writing {self.path} failed: {error}.", "Free some space there.") from error


def _rate(step: int, steps: int) -> float:
    """Share of the peak learning rate: a linear rise, then half a cosine down to 0."""
    warm_up = min(WARM_UP, max(1, steps // 4))
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1.0 + float(np.cos(np.pi * (step - warm_up) / max(1, steps - warm_up))))


def _ids(table: FactTable) -> dict[str, int]:
    return {word: at for at, word in enumerate((*SPECIAL, *table.words))}


def _rows(ids: dict[str, int], pairs: Sequence[tuple[Fact, str]]) -> tuple[Any, Any]:
    """Inputs of shape (B, 4 + 3), padded behind, and what the last question word and each answer word predict, (B, 4).

    Padding needs no mask, since attention looks back only; its targets are -1.
    """
    import torch

    ids_BT = torch.full((len(pairs), _QUESTION + LONGEST), PAD)
    target_BT = torch.full((len(pairs), LONGEST + 1), -1)
    for row, (fact, answer) in enumerate(pairs):
        asked, said = ([ids[word] for word in text.split()] for text in (fact.question, answer))
        ids_BT[row, : _QUESTION + len(said)] = torch.tensor([*asked, *said])
        target_BT[row, : len(said) + 1] = torch.tensor([*said, END])
    return ids_BT, target_BT


def _network(vocabulary_size: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary_size,
            hidden_size=WIDTH,
            intermediate_size=INNER,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            max_position_embeddings=64,
            initializer_range=WIDTH**-0.5,
            tie_word_embeddings=False,
            bos_token_id=None,
            eos_token_id=END,
            pad_token_id=PAD,
        )
    )

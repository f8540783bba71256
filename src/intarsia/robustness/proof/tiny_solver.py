"""A word-level transformer of about 0.1 M parameters, trained from nothing on tiny stories in about a minute (ours).

It shows on one CPU core what an attack finds on a model that is right about everything it was trained on: words that
are rare or unseen in training. Trained with synonyms swapped in, the same model is the remedy's proof.

Shape suffixes: B stories, L places, D width, H heads, V words, A answers.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from intarsia.core.errors import BackendError, ConfigError, ModelError
from intarsia.core.sampling import Sampling, choose, request_key, token_logprobs, uniform
from intarsia.core.target import Completion, Progress, Prompt, Target, prompt_text
from intarsia.robustness.proof.asked import question_in
from intarsia.robustness.proof.tiny_stories import (
    ANSWERS,
    MOST_TOKENS,
    PAD,
    SPECIAL,
    UNKNOWN,
    Synonyms,
    Writer,
    draw,
    tokenize,
    vocabulary,
    wordnet_synonyms,
)

if TYPE_CHECKING:
    import torch

WIDTH, LAYERS, HEADS, INNER = 64, 2, 4, 128
BATCH = 128
PEAK_RATE = 3e-3
WARM_UP = 100
LOGGED = 50
"""Steps over which a loss is averaged, and after which progress is reported."""
FORMAT = 1
WEIGHTS, CARD = "model.safetensors", "tiny_solver.json"
_ANSWERED_AT_ONCE = 256


class Training(BaseModel):
    """How a tiny solver was trained.

    Attributes:
        seed: Of the weights and of the stories.
        augment: Share of the stories with one word swapped for a synonym.
        steps: Of batches of `BATCH` stories.
        losses: Mean cross-entropy in nats over each `LOGGED` steps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
    augment: float
    steps: int
    losses: tuple[float, ...] = ()


class TinySolver(Target):
    """Answers a tiny story with one of the numbers 0 to 40; words outside its vocabulary are all alike to it.

    Args:
        words_V: The vocabulary.
        weights: As `train_tiny` makes them.
        training: How they were made.

    Attributes:
        words_V: The vocabulary; the row of a word in `embedding_VD`.
        training: How it was trained.
        model: The torch module.
    """

    def __init__(self, words_V: Sequence[str], weights: dict[str, torch.Tensor], training: Training) -> None:
        self.words_V = tuple(words_V)
        self.training = training
        self.model = _network(len(self.words_V))
        self.model.load_state_dict(weights)
        self.model.eval()
        augmented = f"-augmented{training.augment:g}" if training.augment else ""
        self.name = f"tiny-solver{augmented}-seed{training.seed}-steps{training.steps}"
        self.capabilities = frozenset({"generate", "seed"})
        self._id = {word: at for at, word in enumerate(self.words_V)}

    @property
    def embedding_VD(self) -> np.ndarray:
        """Input embeddings, float32 of shape (V, 64); row i belongs to `words_V[i]`."""
        weight_VD: np.ndarray = self.model.words.weight.detach().numpy().copy()
        return weight_VD

    def encode(self, text: str) -> list[int]:
        """Token ids of a question, at most `MOST_TOKENS`; numbers and words that are not known become one id."""
        unknown = self._id[UNKNOWN]
        return [self._id[SPECIAL[2]], *(self._id.get(token, unknown) for token in tokenize(text))][:MOST_TOKENS]

    def answer_logits(self, questions: Sequence[str]) -> torch.Tensor:
        """Logits of the answers 0 to 40, float32 of shape (len(questions), 41).

        Args:
            questions: The questions alone, without a prompt around them.
        """
        import torch

        ids_BL = torch.full((len(questions), MOST_TOKENS), self._id[PAD])
        for row, question in enumerate(questions):
            ids = self.encode(question)
            ids_BL[row, : len(ids)] = torch.tensor(ids)
        with torch.inference_mode():
            logits_BA: torch.Tensor = self.model(ids_BL)
        return logits_BA

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        keys: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Completion]:
        """Answer each prompt with a number, which is one token; see `Target.generate`."""
        sampling = sampling or Sampling()
        names = _content_keys(prompts) if keys is None else list(keys)
        if len(names) != len(prompts):
            raise ValueError(f"{len(names)} keys for {len(prompts)} prompts")
        answers: list[Completion] = []
        for start in range(0, len(prompts), _ANSWERED_AT_ONCE):
            some = prompts[start : start + _ANSWERED_AT_ONCE]
            requests = np.array([request_key(name) for name in names[start : start + len(some)]], dtype=np.uint64)
            logits_BA = self.answer_logits([question_in(prompt) for prompt in some])
            chosen_B = choose(logits_BA, uniform(sampling.seed, requests, 0), sampling)
            logprobs_B = token_logprobs(logits_BA, chosen_B)
            answers += [
                Completion(
                    text=str(number),
                    token_count=1,
                    token_ids=(number,),
                    logprobs=(logprob,) if sampling.logprobs else None,
                    finish_reason="stop",
                    prompt_tokens=tokens,
                )
                for number, logprob, tokens in zip(
                    chosen_B.tolist(), logprobs_B.tolist(), self.count_tokens(some), strict=True
                )
            ]
            if progress is not None:
                progress(len(answers), len(prompts))
        return answers

    def batches(self, prompts: Sequence[Prompt], sampling: Sampling | None = None) -> list[list[int]]:
        """Groups of 256; see `Target.batches`."""
        size = _ANSWERED_AT_ONCE
        return [list(range(start, min(start + size, len(prompts)))) for start in range(0, len(prompts), size)]

    def count_tokens(self, prompts: Sequence[Prompt]) -> list[int]:
        """Words and numbers of each prompt."""
        return [max(1, len(tokenize(prompt_text(prompt)))) for prompt in prompts]

    def provenance(self) -> dict[str, Any]:
        """Name, kind and training."""
        return super().provenance() | self.training.model_dump(mode="json", exclude={"losses"})

    # --- Folders -----------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the solver into a folder, which holds all of it or is not there.

        Args:
            folder: Is replaced when it holds a tiny solver already.

        Returns:
            The folder.

        Raises:
            ConfigError: The folder holds something else.
            BackendError: The disk refuses.
        """
        from safetensors.torch import save_file

        folder = Path(folder)
        if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / CARD).is_file())):
            raise ConfigError(f"{folder} is in the way: it holds no tiny solver.", "Give a new folder.")
        card = {
            "format": FORMAT,
            "kind": "tiny solver",
            "training": self.training.model_dump(mode="json"),
            "words": self.words_V,
        }
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                (made / CARD).write_text(json.dumps(card, indent=1) + "\n", "utf-8")
                save_file(dict(self.model.state_dict()), made / WEIGHTS)
                if folder.exists():
                    shutil.rmtree(folder)
                os.replace(made, folder)
        except OSError as error:
            raise BackendError(
                f"Writing {folder} failed: {error.strerror or error}.", "Give a folder that you may write in."
            ) from error
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> TinySolver:
        """Read a solver that `save` wrote.

        Raises:
            ModelError: The folder is missing, damaged, or of another format.
        """
        from safetensors.torch import load_file

        hint = "Train it anew with train_tiny and save it."
        try:
            card = json.loads((Path(folder) / CARD).read_text("utf-8"))
            if card.get("format") != FORMAT:
                raise ModelError(f"{folder} has a tiny solver of format {card.get('format')}, not {FORMAT}.", hint)
            return cls(card["words"], load_file(Path(folder) / WEIGHTS), Training.model_validate(card["training"]))
        except ModelError:
            raise
        except Exception as error:  # safetensors and torch have errors of their own for damage of many kinds
            raise ModelError(f"{folder} holds no whole tiny solver ({type(error).__name__}).", hint) from error


def train_tiny(
    seed: int,
    augment: float = 0.0,
    steps: int = 2500,
    progress: Progress | None = None,
    *,
    synonyms: Synonyms | None = None,
) -> TinySolver:
    """Train a tiny solver; the same arguments give the same weights on the same machine.

    Args:
        seed: Of the weights and of the stories.
        augment: Share of the training stories in which one word is swapped for a synonym; 0 trains on plain stories.
        steps: Of batches of 128 stories. The learning rate falls to 0 over them.
        progress: Called with (done, total) every 50 steps.
        synonyms: Of the stories' words, which are put into the vocabulary and swapped in; WordNet's when omitted.

    Returns:
        The solver; its `training.losses` tell how training went.

    Raises:
        ConfigError: The share or the number of steps makes no sense.
        DataError: There is no WordNet.
    """
    import torch
    from torch.nn.functional import cross_entropy

    if not 0 <= augment <= 1:
        raise ConfigError(f"A share of {augment} of the stories is none.", "Give augment from 0 to 1.")
    if steps < 1:
        raise ConfigError(f"{steps} steps train nothing.", "Give 1 or more.")
    if synonyms is None:
        synonyms = wordnet_synonyms()
    words_V = vocabulary(synonyms)
    writer = Writer(words_V, synonyms)
    rng = np.random.default_rng([seed, 0])
    losses: list[float] = []
    with _one_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _network(len(words_V))
        optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, weight_decay=0.0, fused=True)
        warm_up = min(WARM_UP, max(1, steps // 4))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, warm_up, steps))
        for start in range(0, steps, LOGGED):
            count = min(LOGGED, steps - start)
            facts = draw(rng, count * BATCH, held_out=False)
            ids_BL = writer.write(facts)
            if augment:
                ids_BL = writer.swap(rng, ids_BL, facts, augment)
            ids_SBL = torch.from_numpy(ids_BL).view(count, BATCH, -1)
            answers_SB = torch.from_numpy(facts.answer_B).view(count, BATCH)
            total = torch.zeros(())
            for batch_BL, answers_B in zip(ids_SBL, answers_SB, strict=True):
                loss = cross_entropy(model(batch_BL), answers_B)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.detach()
            losses.append(float(total) / count)
            if progress is not None:
                progress(start + count, steps)
    training = Training(seed=seed, augment=augment, steps=steps, losses=tuple(losses))
    return TinySolver(words_V, model.state_dict(), training)


def _rate(step: int, warm_up: int, steps: int) -> float:
    """Share of the peak learning rate: a linear rise, then half a cosine down to 0."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1.0 + float(np.cos(np.pi * (step - warm_up) / max(1, steps - warm_up))))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Tiny matrices gain nothing from threads, and sums over a fixed number of them come out the same every time."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _content_keys(prompts: Sequence[Prompt]) -> list[str]:
    """Keys for prompts without names: the content, and how many equal ones came before."""
    seen: dict[str, int] = {}
    keys = []
    for prompt in prompts:
        text = prompt_text(prompt)
        keys.append(f"{text}#{seen.setdefault(text, 0)}")
        seen[text] += 1
    return keys


# --- The network -----------------------------------------------------------------------------------------------------


def _network(vocabulary_size: int) -> Any:
    """A pre-norm encoder that is read at its first place. A function, so that importing this file does not load torch.

    The last layer asks one query only, at the first place: nothing else of it is read.
    """
    from torch import nn
    from torch.nn.functional import relu, scaled_dot_product_attention

    class Layer(nn.Module):
        def __init__(self, last: bool) -> None:
            super().__init__()
            self.last = last
            self.before_attention, self.before_inner = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.query, self.key_value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
            self.out = nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)

        def forward(self, state_BLD: torch.Tensor, mask_B11L: torch.Tensor) -> torch.Tensor:
            normed_BLD = self.before_attention(state_BLD)
            if self.last:
                state_BLD = state_BLD[:, :1]
            query_BHLd = _heads(self.query(normed_BLD[:, : state_BLD.shape[1]]))
            key_BHLd, value_BHLd = (_heads(part) for part in self.key_value(normed_BLD).chunk(2, dim=-1))
            mixed_BHLd = scaled_dot_product_attention(query_BHLd, key_BHLd, value_BHLd, attn_mask=mask_B11L)
            state_BLD = state_BLD + self.out(mixed_BHLd.transpose(1, 2).flatten(2))
            return state_BLD + self.down(relu(self.up(self.before_inner(state_BLD))))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(vocabulary_size, WIDTH)
            self.places = nn.Embedding(MOST_TOKENS, WIDTH)
            self.layers = nn.ModuleList(Layer(last=at == LAYERS - 1) for at in range(LAYERS))
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, ANSWERS)
            nn.init.normal_(self.words.weight, std=WIDTH**-0.5)
            nn.init.normal_(self.places.weight, std=WIDTH**-0.5)

        def forward(self, ids_BL: torch.Tensor) -> torch.Tensor:
            mask_B11L = (ids_BL != 0)[:, None, None, :]  # the padding's id is 0
            state_BLD = self.words(ids_BL) + self.places.weight[: ids_BL.shape[1]]
            for layer in self.layers:
                state_BLD = layer(state_BLD, mask_B11L)
            logits_BA: torch.Tensor = self.head(self.norm(state_BLD[:, 0]))
            return logits_BA

    return Network()


def _heads(state_BLD: torch.Tensor) -> torch.Tensor:
    return state_BLD.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)

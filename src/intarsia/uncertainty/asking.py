"""Candidates for a whole set of questions: in batches that a journal keeps, from a model's law or from an endpoint.

Batches are planned from all questions and are made whole, so a killed run goes on to the same candidates, bit for bit.
A question that cannot be answered (too long for the model's window, refused by a server) is left out with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intarsia.core.ask import ask
from intarsia.core.data import DataSet, Item
from intarsia.core.data.fewshot import Style, prompt_for
from intarsia.core.errors import BackendError, ConfigError, DataError
from intarsia.core.journal import Journal, content_key
from intarsia.core.sampling import Sampling
from intarsia.core.target import Capability, Completion, Progress, Prompt, Target
from intarsia.uncertainty.beam import BeamWalk
from intarsia.uncertainty.candidates import Answer, CandidateSet
from intarsia.uncertainty.endpoint import EndpointSample
from intarsia.uncertainty.generator import Generator, generate_together
from intarsia.uncertainty.hybrid import Fallback
from intarsia.uncertainty.interval import mass_warning
from intarsia.uncertainty.law import Law, Prefill
from intarsia.uncertainty.prompting import prompt, same_task
from intarsia.uncertainty.settings import Scoring, Source
from intarsia.uncertainty.walk import Walker


@dataclass(frozen=True)
class Asked:
    """One question with its candidates.

    Attributes:
        item: The question.
        sets: Candidates by source, all about the same answer; empty where there is no answer.
        beam_mass: Probability that the beams held, also where the set is a fall-back; None where none were searched.
        warning: What a user should know of the first source's set.
        error: Why there is no answer.
    """

    item: Item
    sets: dict[str, CandidateSet]
    beam_mass: float | None = None
    warning: str = ""
    error: str = ""


def prompts_of(data: DataSet, scoring: Scoring, style: Style, system: str = "", template: str = "") -> list[Prompt]:
    """The prompts of a set's items, in order.

    Args:
        data: The set, with its worked examples.
        scoring: How many of them are shown.
        style: How prompts are laid out.
        system: A system prompt; plain text begins with it.
        template: Wording of a question, with `{question}`; sets that bring their own layout keep it.
    """
    return [_prompt(item, data.shots, scoring.shots, style, system, template) for item in data.items]


def _prompt(item: Item, examples: Sequence[Item], shots: int, style: Style, system: str, template: str) -> Prompt:
    if "form" not in item.meta:
        return prompt_for(item, same_task(item, examples, shots), style=style, system=system, template=template)
    laid = prompt(item, examples, shots=shots, style=style)
    if not system:
        return laid
    if isinstance(laid, str):
        return f"{system}\n\n{laid}"
    first, *rest = laid
    if first["role"] == "system":
        return [{"role": "system", "content": f"{system}\n\n{first['content']}"}, *rest]
    return [{"role": "system", "content": system}, *laid]


def keys_of(data: DataSet) -> list[str]:
    """One name a question, which seeds its samples."""
    return [f"{data.name}/{item.id}" for item in data.items]


def default_source(target: Target) -> Source:
    """Beams where the weights are at hand, samples by log-probability where those are, else plain samples."""
    if is_local(target):
        return "beam"
    able = target.capabilities if "logprobs" in target.capabilities else target.probe_capabilities()
    return "endpoint" if "logprobs" in able else "sample"


def is_local(target: Target) -> bool:
    """Whether answers can be grown on the target's own next-token probabilities."""
    if "weights" not in target.capabilities:
        return False
    from intarsia.core.local import LocalTarget

    return isinstance(target, LocalTarget)


def temperature_of(target: Target, scoring: Scoring) -> float:
    """The temperature of the law under test: an endpoint's log-probabilities are those of its untempered law."""
    return scoring.temperature if is_local(target) else 1.0


def ask_set(
    target: Target,
    data: DataSet,
    scoring: Scoring,
    sources: Sequence[Source],
    *,
    seed: int = 0,
    system: str = "",
    template: str = "",
    journal: Journal | None = None,
    progress: Progress | None = None,
) -> list[Asked]:
    """Candidates for every question of a set.

    Args:
        target: Who answers.
        data: The questions.
        scoring: How candidates are made.
        sources: Kinds of candidates; the greedy answer is the same for all. With a single `beam` and
            `on_low_mass="hybrid"`, beams that hold too little give way to beams and samples.
        seed: Master seed of samples.
        system: System prompt.
        template: Wording of the questions.
        journal: Where finished batches go.
        progress: Called with (done, total).

    Returns:
        One a question, in order.

    Raises:
        ConfigError: The sources do not fit the target.
        ModelError: It is no decoder-only language model, or gave NaN.
        BackendError: The endpoint answered nothing at all.
    """
    prompts = prompts_of(data, scoring, scoring.layout(target), system, template)
    keys = keys_of(data)
    if is_local(target) and "endpoint" not in sources:
        made = _grown(target, prompts, keys, data, scoring, sources, seed, journal, progress)
    else:
        made = _drawn(target, prompts, keys, data, scoring, sources, seed, journal, progress)
    if made and all(one.error for one in made) and not is_local(target):
        raise BackendError(f"{target.name} answered none of {len(made)} questions: {made[0].error}", "Try again later.")
    return made


# --- From a law ------------------------------------------------------------------------------------------------------


def _grown(
    target: Target,
    prompts: Sequence[Prompt],
    keys: Sequence[str],
    data: DataSet,
    scoring: Scoring,
    sources: Sequence[Source],
    seed: int,
    journal: Journal | None,
    progress: Progress | None,
) -> list[Asked]:
    law = Law.of(target, temperature=scoring.temperature, stops=scoring.stops, max_new_tokens=scoring.limit(data))
    generators = [scoring.generator(source, seed).bind(law) for source in sources]
    if scoring.on_low_mass == "hybrid" and list(sources) == ["beam"]:
        generators = [WatchedFallback(beam=generators[0], rule=scoring.low_mass, seed=seed)]  # type: ignore[arg-type]
    made: list[Asked | None] = [None] * len(prompts)
    for at, one in enumerate(prompts):
        try:
            law.over([one], 1, lambda group: None)  # reads the prompt, computes nothing
        except DataError as error:
            made[at] = Asked(data.items[at], {}, error=error.message.removeprefix("Prompt 0 cannot be answered: "))
    fits = [at for at, one in enumerate(made) if one is None]
    groups: list[list[int]] = []
    if fits:
        law.over([prompts[at] for at in fits], sum(generator.rows for generator in generators), groups.append)
    how = protocol(scoring, data, seed)
    done = len(prompts) - len(fits)
    for group in groups:
        places = [fits[at] for at in group]
        names = [
            content_key("uncertainty", target.name, how, list(sources), keys[at], _plain(prompts[at])) for at in places
        ]
        rows: list[Any] = [journal.get(name) if journal is not None else None for name in names]
        if any(row is None for row in rows):
            # Neighbors in a batch shift an answer's last bits, so a batch is made whole.
            rows = _batch(generators, [prompts[at] for at in places], [keys[at] for at in places], scoring)
            if journal is not None:
                journal.append(dict(zip(names, rows, strict=True)))
        for at, row in zip(places, rows, strict=True):
            made[at] = asked_from(data.items[at], row)
        done += len(places)
        if progress is not None:
            progress(done, len(prompts))
    return [one for one in made if one is not None]


def _batch(
    generators: Sequence[Generator], prompts: Sequence[Prompt], keys: Sequence[str], scoring: Scoring
) -> list[dict[str, Any]]:
    """Candidates of one batch, as rows of a journal."""
    names = [generator.name for generator in generators]
    rows = []
    for key, found in zip(keys, generate_together(generators, prompts, keys), strict=True):
        sets = dict(zip(names, found, strict=True))
        beams = sets.get("beam")
        mass = None if beams is None else beams.mass
        if isinstance(generators[0], WatchedFallback):
            mass = generators[0].masses[key]
        warning = "" if mass is None else mass_warning(mass, scoring.m, scoring.low_mass)
        if beams is not None and beams.kind == "hybrid":
            samples = len(beams.texts) - beams.exact
            held = f"The beams hold {mass:.0%} of the probability"
            warning = f"{held}: scored from {beams.exact} of them and {samples} samples."
        rows.append(asked_row(Asked(Item(id="", question=""), sets, mass, warning)))
    return rows


@dataclass
class WatchedFallback(Fallback):
    """A fall-back that keeps what the beams held, also where they gave way.

    Attributes:
        masses: Probability that the beams held together, by key.
    """

    masses: dict[str, float] = field(default_factory=dict)

    def collect(self, prefill: Prefill, walkers: Sequence[Walker], keys: Sequence[str]) -> list[CandidateSet]:
        """See `Fallback.collect`."""
        search = walkers[0]
        assert isinstance(search, BeamWalk)
        for place, key in enumerate(keys):
            self.masses[key] = min(1.0, float(np.exp([path.logprob for path in search.paths(place)]).sum()))
        return super().collect(prefill, walkers, keys)


# --- From an endpoint ------------------------------------------------------------------------------------------------


def _drawn(
    target: Target,
    prompts: Sequence[Prompt],
    keys: Sequence[str],
    data: DataSet,
    scoring: Scoring,
    sources: Sequence[Source],
    seed: int,
    journal: Journal | None,
    progress: Progress | None,
) -> list[Asked]:
    unfit = [source for source in sources if source not in ("endpoint", "sample")]
    if unfit:
        raise ConfigError(
            f"{target.name} shows no weights, which {unfit[0]} candidates need.",
            "Use endpoint (log-probabilities) or sample, or a local model.",
        )
    if scoring.answer == "beam":
        raise ConfigError(f"{target.name} has no beams to take the answer from.", "Use the greedy answer.")
    kept = Remembering(target, journal, progress)
    makers = {
        source: EndpointSample(
            kept,
            m=scoring.m,
            max_new_tokens=scoring.limit(data),
            stops=scoring.stops,
            seed=seed,
            weights="probability" if source == "endpoint" else "count",
        )
        for source in sources
    }
    made = []
    # One question that a server refuses does not take the others with it.
    first = makers[sources[0]]
    try:
        first.generate(prompts, keys)
    except BackendError:
        if not kept.complete(prompts, scoring.m):
            raise
    for item, one, key in zip(data.items, prompts, keys, strict=True):
        try:
            made.append(Asked(item, {name: maker.generate([one], [key])[0] for name, maker in makers.items()}))
        except BackendError as error:
            made.append(Asked(item, {}, error=error.message))
    return made


class Remembering(Target):
    """Passes prompts on through a journal and keeps the answers, so that asking again asks nobody.

    Args:
        target: Who answers.
        journal: Where finished batches go.
        progress: Called with (done, total).

    Attributes:
        tokens: New tokens of all answers.
    """

    def __init__(self, target: Target, journal: Journal | None = None, progress: Progress | None = None) -> None:
        self.name, self.capabilities = target.name, target.capabilities
        self._target, self._journal, self._progress = target, journal, progress
        self._known: dict[str, Completion] = {}

    @property
    def tokens(self) -> int:
        """New tokens of all answers."""
        return sum(completion.token_count for completion in self._known.values())

    def probe_capabilities(self) -> frozenset[Capability]:
        """See `Target.probe_capabilities`."""
        self.capabilities = self._target.probe_capabilities()
        return self.capabilities

    def complete(self, prompts: Sequence[Prompt], m: int) -> bool:
        """Whether every prompt has an answer or a reason, greedy and m times sampled."""
        return len(self._known) == len(prompts) * (m + 1)

    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling | None = None,
        *,
        keys: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> list[Completion]:
        """See `Target.generate`; keys are needed."""
        assert sampling is not None
        assert keys is not None
        how = sampling.model_dump(mode="json")
        names = [content_key(key, _plain(prompt), how) for key, prompt in zip(keys, prompts, strict=True)]
        todo = [at for at, name in enumerate(names) if name not in self._known]
        if todo:
            answers = ask(
                self._target,
                [prompts[at] for at in todo],
                sampling,
                keys=[keys[at] for at in todo],
                journal=self._journal,
                stage="uncertainty",
                progress=self._progress,
            )
            self._known.update((names[at], answer) for at, answer in zip(todo, answers, strict=True))
        return [self._known[name] for name in names]


# --- As plain data ---------------------------------------------------------------------------------------------------


def protocol(scoring: Scoring, data: DataSet, seed: int) -> dict[str, Any]:
    """What candidates depend on besides model, source and prompt. Similarities and weights come after them."""
    after = {"preset", "candidates", "similarity", "mass_floor", "style", "shots", "max_new_tokens"}
    return {**scoring.model_dump(mode="json", exclude=after), "limit": scoring.limit(data), "seed": seed}


def asked_row(asked: Asked) -> dict[str, Any]:
    """Plain data of a question's candidates, without the question."""
    return {
        # A list: the first source decides, and JSON objects have no order.
        "sets": [[name, set_row(one)] for name, one in asked.sets.items()],
        "beam_mass": asked.beam_mass,
        "warning": asked.warning,
        "error": asked.error,
    }


def asked_from(item: Item, row: Any) -> Asked:
    """A question's candidates from what `asked_row` gave."""
    sets = {str(name): set_from(one) for name, one in row["sets"]}
    return Asked(item, sets, row["beam_mass"], row["warning"], row["error"])


def set_row(made: CandidateSet) -> dict[str, Any]:
    """Plain data of a set; all floats come back as they were. The time that it took is left out."""
    answer = made.answer
    return {
        "answer": {
            "text": answer.text,
            "token_ids": list(answer.token_ids),
            "logprobs": list(answer.logprobs),
            "entropy": None if np.isnan(answer.entropy) else answer.entropy,
            "finished": answer.finished,
        },
        "texts": list(made.texts),
        "token_ids": [list(ids) for ids in made.token_ids],
        "logprobs": [None if np.isnan(value) else value for value in made.logprobs_M.tolist()],
        "finished": made.finished_M.tolist(),
        "kind": made.kind,
        "exact": made.exact,
    }


def set_from(row: Any) -> CandidateSet:
    """A set from what `set_row` gave."""
    answer = row["answer"]
    return CandidateSet(
        answer=Answer(
            text=answer["text"],
            token_ids=tuple(answer["token_ids"]),
            logprobs=tuple(answer["logprobs"]),
            entropy=float("nan") if answer["entropy"] is None else answer["entropy"],
            finished=answer["finished"],
        ),
        texts=tuple(row["texts"]),
        token_ids=tuple(tuple(ids) for ids in row["token_ids"]),
        logprobs_M=np.array([float("nan") if value is None else value for value in row["logprobs"]], dtype=np.float64),
        finished_M=np.array(row["finished"], dtype=bool),
        kind=row["kind"],
        exact=row["exact"],
    )


def _plain(prompt: Prompt) -> Any:
    return prompt if isinstance(prompt, str) else [dict(message) for message in prompt]

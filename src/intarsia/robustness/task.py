"""The attack as a task of inspect_ai.

    inspect eval intarsia/robustness --model openai/gpt-4o-mini -T data=stories:1 -T items=20

A sample is a question as it is; the solver attacks the model on it, and the scorer says whether a right answer was
there and whether it survived. Each sample's attack runs in a thread of its own and asks through inspect_ai's own event
loop, so its limits, cache, retries, concurrency and transcripts hold as for any other task. Runs over the same
questions are inspect_ai's epochs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread
import anyio.to_thread
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, GenerateConfig, Model, ModelOutput, get_model
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, Value, metric, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import LimitExceededError, collect

from intarsia.core.data import DataSet, content_hash
from intarsia.core.errors import BackendError
from intarsia.core.inspect_target import InspectTarget, _completion, _failed, _words
from intarsia.core.loop import LoopThread, Report, T
from intarsia.core.sampling import Sampling
from intarsia.core.target import Completion
from intarsia.robustness.candidates import Candidate, Source
from intarsia.robustness.results import Attacked, AttackResults
from intarsia.robustness.settings import DATA, ITEMS, AttackSettings, make_settings, prepare, questions, sources_for
from intarsia.robustness.sources import SURROGATE
from intarsia.robustness.words import Word

if TYPE_CHECKING:
    from inspect_ai.model import ChatMessage

ROWS = 4
"""Questions that a sample asks at once. What goes beyond a success is asked for nothing, and samples run side by side
anyway."""
_KEPT = (
    "adversarial_question",
    "word",
    "replacement",
    "source",
    "queries",
    "clean_answer",
    "attacked_answer",
    "reason",
)


@task
def robustness(
    data: str = DATA,
    items: int = ITEMS,
    map: str | list[str] | dict[str, str] = "",
    shots: int | None = None,
    sources: str | list[str] = "",
    all_senses: bool = False,
    mlm: str = "",
    surrogate: str = SURROGATE,
    protect: str | list[str] = "",
    goal: str = "",
    judge: str = "",
    self_consistency: int = 0,
    order: str = "left_to_right",
    max_words: int = 1,
    gates: str | list[str] = "",
    max_queries: int = 400,
    reask: int | None = None,
    rows: int = ROWS,
    temperature: float | None = None,
    max_new_tokens: int | None = None,
    chain_of_thought: bool | None = None,
    control: str = "auto",
    preset: str = "default",
    system: str | list[str] = "",
    template: str | list[str] = "",
    seed: int = 0,
) -> Task:
    """Does a right answer survive the change of one word?

    Args:
        data: Questions: a name, a file or a hub id.
        items: How many; 0 for all.
        map: Which column is what, `question=q,answer=a`.
        shots: Worked examples a prompt.
        sources: `embedding,wordnet,mlm,typo,insertion,deletion`; what is at hand by default.
        all_senses: WordNet's synonyms of every sense, not of the most frequent one only.
        mlm: A masked model.
        surrogate: Whose embeddings propose words.
        protect: `math`, `none`, `mathattack` or `re:<pattern>`.
        goal: `answer_wrong`, `answer_changed` or `longer:2`.
        judge: A model of inspect_ai that judges successes, `provider/model`, or the name of a model role.
        self_consistency: Ask the model itself so often about a success.
        order: Which word comes first.
        max_words: Words changed at once.
        gates: Filters on rewrites.
        max_queries: Most queries a question.
        reask: Times that a success is asked again; 5 by default.
        rows: Questions that a sample asks at once.
        temperature: Of the answers; that of the evaluation (`--temperature`) when omitted, or 0.
        max_new_tokens: Room for an answer; that of the evaluation (`--max-tokens`) when omitted.
        chain_of_thought: Ask for working first.
        control: The search without any change: `auto`, `full` or `off`.
        preset: `default` or `paper`.
        system: System prompt.
        template: Question template with `{question}`.
        seed: Master seed; the epochs add to it.

    Raises:
        ConfigError: An argument is wrong.
        DataError: The questions cannot be had.
    """
    given = {name: value for name, value in locals().items() if value is not None and value != ""}
    settings = make_settings(given)
    found = _loaded(settings.model_dump_json())
    return Task(
        dataset=MemoryDataset(
            [
                Sample(
                    id=item.id,
                    input=item.question,
                    target=item.answer or "",
                    metadata={"kind": item.kind, **item.slices},
                )
                for item in found.items
            ],
            name=found.name,
        ),
        solver=one_word_attack(**settings.model_dump(mode="json", exclude_defaults=True)),
        scorer=attack_score(),
        metadata={"data": found.name, "origin": found.origin, "licence": found.licence, "sha256": found.sha256},
    )


@solver
def one_word_attack(**settings: Any) -> Solver:
    """Attack the model on each sample, a question of the set that the settings name.

    The sample's metadata gets what was found (`adversarial_question`, `word`, `replacement`, `source`, `queries`, ...).
    Its messages become the adversarial question and the answer to it, or the question as it was where none was found.

    Args:
        **settings: Those of `AttackSettings`, as the task takes them.

    Raises:
        ConfigError: A setting is wrong.
        DataError: The questions cannot be had.
    """
    chosen = make_settings(settings)
    found = _loaded(chosen.model_dump_json())
    known = {item.id: item for item in found.items}
    shared = _Shared(chosen)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        item = known.get(str(state.sample_id))
        if item is None:
            raise ValueError(f"The sample {state.sample_id} is none of the questions of {found.name}.")
        one = found.model_copy(update={"items": (item,), "sha256": content_hash((item,))})
        model = get_model()
        judge = _judge(chosen.judge) if chosen.judge else None
        # Not among the threads that inspect_ai has for its own: those that wait here would keep them from it.
        results = await anyio.to_thread.run_sync(
            partial(shared.attack, _of_epoch(chosen, model, state.epoch), model, judge, one),
            limiter=anyio.CapacityLimiter(1),
        )
        row = results.rows[0]
        state.metadata.update(record(row, results))
        shown, reply = (row.hit.question, row.hit.reply) if row.hit is not None else (item.question, row.clean)
        state.messages = [ChatMessageUser(content=shown), ChatMessageAssistant(content=reply.text)]
        state.output = ModelOutput.from_content(str(model), reply.text)
        return state

    return solve


@metric
def attack_figures() -> Metric:
    """Shares over samples: accuracy before and under attack, their difference, and what the control takes off it.

    `attack_success_rate` counts among samples that were answered right, `queries` among those that were attacked.
    Standard errors are over samples; several epochs of one are taken together.
    """

    def figures(scores: list[SampleScore]) -> Value:
        rows = [score.score.as_dict() for score in scores]

        def mean(name: str) -> float:
            return sum(float(row[name] or 0) for row in rows) / len(rows)

        found: dict[str, float] = {
            "accuracy_clean": mean("clean"),
            "accuracy_under_attack": mean("under_attack"),
            "drop": mean("drop"),
            "drop_stderr": _stderr([float(row["drop"] or 0) for row in rows]),
            "attack_success_rate": mean("drop") / mean("clean") if mean("clean") else 0.0,
            "average_drop": mean("average_drop"),
            "queries": mean("queries") / mean("attacked") if mean("attacked") else 0.0,
        }
        if all("null_drop" in row for row in rows):
            found["null_drop"] = mean("null_drop")
            found["net_drop"] = mean("drop") - mean("null_drop")
            net = [float(row["drop"] or 0) - float(row["null_drop"] or 0) for row in rows]
            found["net_drop_stderr"] = _stderr(net)
        return found

    return figures


@scorer(metrics=[attack_figures()])
def attack_score() -> Scorer:
    """Whether a right answer was there, and whether it survived; reads what `one_word_attack` left in the metadata."""

    async def score(state: TaskState, target: Target) -> Score:
        found = state.metadata
        if "clean_correct" not in found or "attacked" not in found:
            raise ValueError("This sample was not attacked; attack_score goes with the solver one_word_attack.")
        # As in AttackResults: an attacked question without a gold answer counts as answered as usual.
        clean = bool(found["clean_correct"] or found["attacked"])
        broken = clean and bool(found["success"])
        value = {
            "clean": float(clean),
            "under_attack": float(clean and not broken),
            "drop": float(broken),
            "average_drop": float(clean and bool(found["average_success"])),
            "attacked": float(found["attacked"]),
            "queries": float(found["queries"]),
        }
        if found["control"]:
            value["null_drop"] = float(clean and bool(found["null_success"]))
        if broken:
            changes = ", ".join(
                f"{one['word']} -> {one['replacement'] or '(left out)'} ({one['source']})" for one in found["changes"]
            )
            said = f"{changes}; query {found['queries']}; before: {found['clean_answer']}"
        else:
            said = "survived" if found["attacked"] else f"not attacked: {found['reason']}"
        return Score(
            value=value,
            answer=found["attacked_answer"] if broken else found["clean_answer"],
            explanation=said,
            metadata={key: found[key] for key in _KEPT},
        )

    return score


def record(row: Attacked, results: AttackResults) -> dict[str, Any]:
    """What an attack found on one question, as a sample's metadata."""
    hit = row.hit
    last = hit.changes[-1] if hit is not None and hit.changes else None
    errors = sum(tried.reply.status == "error" for tried in row.tried)
    return {
        "clean_correct": row.clean.status == "correct",
        "clean_status": row.clean.status,
        "clean_answer": row.clean.parsed,
        "attacked": row.attacked,
        "reason": row.reason,
        "success": row.success,
        "adversarial_question": hit.question if hit is not None else None,
        "word": last.word if last is not None else None,
        "replacement": last.replacement if last is not None else None,
        "source": last.source if last is not None else None,
        "changes": [change.model_dump(mode="json") for change in hit.changes] if hit is not None else [],
        "attacked_answer": hit.reply.parsed if hit is not None else None,
        "queries": len(row.tried),
        "candidates": row.candidates,
        "again": results.again,
        "turned_down": [tried.reason for tried in row.tried if tried.met and tried.ruled != "confirmed"],
        "errors": errors,
        "null_success": row.null.success if row.null is not None else None,
        "null_queries": row.null.asked if row.null is not None else 0,
        "average_success": row.average.met if row.average is not None else None,
        "control": results.settings["control"] != "off",
        "notes": list(results.notes),
    }


class EvalTarget(InspectTarget):
    """The model under evaluation, asked from a worker thread on inspect_ai's own event loop.

    Retries, time-outs, connections and limits are the evaluation's own.
    """

    def __init__(self, model: Model) -> None:
        super().__init__(model, name=f"inspect:{model}")
        self._loop = _EvalLoop()

    async def _answer_all(
        self,
        chats: Sequence[list[ChatMessage]],
        sampling: Sampling,
        seeds: Sequence[int | None],
        counts: Sequence[int],
        report: Report,
    ) -> list[Completion]:
        async def one(i: int) -> Completion:
            try:
                output = await self._model.generate(chats[i], config=self._config(sampling, seeds[i]))
                return _completion(output, sampling, counts[i])
            except LimitExceededError:
                raise  # ends the sample
            except Exception as error:
                # As in InspectTarget: providers raise whatever their own client raises.
                return _failed(_words(error), counts[i])

        found = await collect(*(one(i) for i in range(len(chats))))
        if all(answer.finish_reason == "error" for answer in found):
            raise BackendError(f"{self.name} did not answer any of {len(found)} prompts: {found[0].error}.")
        return found

    def _config(self, sampling: Sampling, seed: int | None) -> GenerateConfig:
        config = super()._config(sampling, seed)
        return config.model_copy(update={"max_retries": None, "timeout": None, "max_connections": None})


class _EvalLoop(LoopThread):
    """The loop that the worker thread was started from, in place of a thread with a loop of its own."""

    def run(self, job: Callable[[Report], Coroutine[Any, Any, T]], progress: Report | None = None) -> T:
        return anyio.from_thread.run(job, progress or (lambda done, total: None))


class _Locked:
    """A source that many samples' threads share."""

    def __init__(self, source: Source, lock: threading.Lock) -> None:
        self.name, self._source, self._lock = source.name, source, lock

    def propose(self, question: str, words: Sequence[Word]) -> list[list[Candidate]]:
        with self._lock:
            return self._source.propose(question, words)


class _Shared:
    """What the samples of a task have in common: sources, made when first needed."""

    def __init__(self, settings: AttackSettings) -> None:
        self._settings = settings
        self._made: tuple[list[Source], list[str]] | None = None
        self._making, self._asking = threading.Lock(), threading.Lock()

    def attack(self, settings: AttackSettings, model: Model, judge: Model | None, data: DataSet) -> AttackResults:
        target = EvalTarget(model)
        with self._making:
            if self._made is None:
                self._made = sources_for(self._settings, target)
        made = prepare(
            settings, target, data, judge=EvalTarget(judge) if judge is not None else None, sources=self._made
        )
        made.planner.sources = tuple(_Locked(source, self._asking) for source in self._made[0])
        return made.run(data)


@lru_cache(maxsize=8)
def _loaded(settings: str) -> DataSet:
    """The questions of settings in JSON; the task and its solver want the same ones."""
    return questions(AttackSettings.model_validate_json(settings))


def _judge(name: str) -> Model:
    name = name.removeprefix("inspect:")
    return get_model(name) if "/" in name else get_model(role=name, required=True)


def _of_epoch(settings: AttackSettings, model: Model, epoch: int) -> AttackSettings:
    """The settings with what the evaluation says of sampling."""
    config = model.config
    update: dict[str, Any] = {"seed": settings.seed + epoch - 1}
    if settings.temperature is None and config.temperature is not None:
        update["temperature"] = config.temperature
    if settings.max_new_tokens is None and config.max_tokens is not None:
        update["max_new_tokens"] = config.max_tokens
    return settings.model_copy(update=update)


def _stderr(values: Sequence[float]) -> float:
    """Standard error of the mean; 0 for a single value."""
    n = len(values)
    if n < 2:
        return 0.0
    mean = sum(values) / n
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1) / n)

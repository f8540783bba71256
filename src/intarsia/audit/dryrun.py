"""`--dry-run`: calls, tokens, time, and what will be skipped and why, without asking the model anything but a probe."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from intarsia.audit.config import AuditConfig, choose_studies, study_options
from intarsia.audit.engine import check_settings, open_target
from intarsia.core.data import load
from intarsia.core.errors import ModelError
from intarsia.core.sampling import Sampling
from intarsia.core.study import Context, Study
from intarsia.core.target import Target

PROBE_PROMPT = "The quick brown fox jumps over the lazy dog. " * 8
PROBE_TOKENS = 16
PROBE_BATCH = 8


class Planned(NamedTuple):
    """What one study would do on one model.

    Attributes:
        skip: Why it will be skipped; empty when it will run.
        seconds: Estimate from a probe of the model, None where there is none (an endpoint, a model not fetched yet).
    """

    target: str
    study: str
    calls: int
    prompt_tokens: int
    new_tokens: int
    seconds: float | None
    skip: str
    steps: tuple[str, ...]


class _Speed(NamedTuple):
    seconds_per_prompt_token: float
    seconds_per_new_token: float


def plan_audit(config: AuditConfig, studies: Mapping[str, Study], opening: Mapping[str, Any]) -> list[Planned]:
    """Plans of all chosen studies on all models.

    A local model that is in the cache is loaded and probed for its speed; nothing is downloaded, and no endpoint gets a
    request.

    Raises:
        ConfigError: A setting is wrong.
    """
    check_settings(config, studies)
    chosen = choose_studies(studies, config.studies)
    data = load(config.data, mapping=config.mapping or None, seed=config.seed) if config.data else None
    rows = []
    for model in config.models:
        target, speed, note = _look(model, config, opening)
        for study in chosen:
            skip = study.missing(target) if target is not None else ""
            context = Context(
                target=target,
                options=study_options(study, config.options.get(study.name, {})),
                budget=config.budget,
                seed=config.seed,
                data=data,
                system=config.system,
                template=config.template,
            )
            plan = study.plan(context)
            seconds = None
            if speed is not None and not skip:
                # New tokens are an upper bound, so the time is one too.
                seconds = (
                    plan.prompt_tokens * speed.seconds_per_prompt_token + plan.new_tokens * speed.seconds_per_new_token
                )
            steps = (*((note,) if note else ()), *plan.steps)
            rows.append(
                Planned(model, study.name, plan.calls, plan.prompt_tokens, plan.new_tokens, seconds, skip, steps)
            )
        if target is not None:
            target.close()
    return rows


def _look(model: str, config: AuditConfig, opening: Mapping[str, Any]) -> tuple[Target | None, _Speed | None, str]:
    if model.startswith(("http://", "https://", "inspect:")):
        return open_target(model, config, opening), None, "time depends on the endpoint"
    from intarsia.core.catalog import resolve

    try:
        resolve(model, offline=True, accept_license=bool(opening.get("accept_license")))
    except ModelError as error:
        return None, None, f"not here yet: {error.message}"
    target = open_target(model, config, opening)
    return target, _probe(target), ""


def _probe(target: Target) -> _Speed:
    """Time of one batch, once with one new token and once with more; the first call warms up."""

    def seconds(prompts: Sequence[str], tokens: int) -> float:
        start = time.perf_counter()
        target.generate(prompts, Sampling(max_new_tokens=tokens))
        return time.perf_counter() - start

    prompts = [f"{i} {PROBE_PROMPT}" for i in range(PROBE_BATCH)]
    seconds(prompts[:1], 1)
    prefill = seconds(prompts, 1)
    longer = seconds([f"again {prompt}" for prompt in prompts], PROBE_TOKENS)
    tokens = sum(target.count_tokens(prompts))
    return _Speed(prefill / tokens, max(0.0, longer - prefill) / (PROBE_BATCH * (PROBE_TOKENS - 1)))

"""The only sampler: counter-based randomness keyed by (seed, request, position)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Sampling(BaseModel):
    """How the next token is chosen.

    Attributes:
        max_new_tokens: Most new tokens an answer may have.
        temperature: 0 is greedy; 1 is the model's own law.
        top_k: Keep the k likeliest tokens; 0 keeps all.
        top_p: Keep the smallest set of tokens with at least this mass.
        min_p: Keep tokens with at least this share of the likeliest token's probability.
        stop: Strings that end the answer; they are cut off.
        seed: Master seed; see `keys` in `Target.generate`.
        logprobs: Whether completions carry log-probabilities.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_new_tokens: int = Field(128, ge=1)
    temperature: float = Field(0.0, ge=0.0)
    top_k: int = Field(0, ge=0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    min_p: float = Field(0.0, ge=0.0, le=1.0)
    stop: tuple[str, ...] = ()
    seed: int = Field(0, ge=0)
    logprobs: bool = False

    @property
    def greedy(self) -> bool:
        """Whether the answer is deterministic."""
        return self.temperature == 0.0

"""How much memory training takes, before it is tried."""

from __future__ import annotations

from typing import Any

from intarsia.core.recipes import TrainRecipe
from intarsia.core.training.arguments import mixed_precision


def count_parameters(model: Any) -> tuple[int, int]:
    """All parameters of a model, and those that are trained."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, wanted in sizes if wanted)


RUNTIME_BYTES = 600 * 2**20
"""What Python and the libraries take before anything is loaded."""


def memory_estimate(model: Any, recipe: TrainRecipe, length: int) -> int:
    """Bytes that training takes in one process, about.

    Weights, gradients, AdamW's two moments, and activations: 34 bytes a token, layer and hidden unit in 16 bits (twice
    that in 32 bits), attention without a score matrix; with gradient checkpointing, one layer of it and each layer's
    input. On a CPU a checkpoint holds a copy of the saved weights while it is written.

    Args:
        model: The model, which may be without memory for its weights.
        recipe: How it is trained.
        length: Tokens of the longest row.
    """
    import torch

    held = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    learned = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    config = model.config.get_text_config()
    layers, hidden = config.num_hidden_layers, config.hidden_size
    width = 2 if mixed_precision(recipe) else 4
    tokens = recipe.training.batch_size * length
    layer = 17 * width * tokens * hidden
    activations = layer + layers * width * tokens * hidden
    if not recipe.training.gradient_checkpointing:
        activations = layers * layer
    saved = 0 if torch.cuda.is_available() else learned
    return RUNTIME_BYTES + held + 3 * learned + saved + activations

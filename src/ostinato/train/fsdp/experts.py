"""What transformers does with experts: one tensor for all of them, and a router whose choice can be replayed.

A layer's experts are one tensor [E, …] in the model and E tensors in its checkpoint. They are published under
the names of the checkpoint, so that engines can load them. A rank holds whole experts of a layer.
"""
# ruff: noqa: N803, N806

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ostinato.model.replay import Replay, RouterShape

FUSED = {".experts.gate_up_proj": ("gate_proj", "up_proj"), ".experts.down_proj": ("down_proj",)}
"""The ends of the names of fused tensors, and the matrices of each expert in one, one above the other."""


def fused(name: str, tensor: Tensor) -> bool:
    """Return whether a tensor holds one matrix, or two, of every expert of a layer."""
    return tensor.ndim == 3 and name.endswith(tuple(FUSED))


def separated(name: str, tensor: Tensor, first: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Yield a tensor under the names of the checkpoint; a fused one by expert, the first being `first`."""
    if not fused(name, tensor):
        yield name, tensor
        return
    (end,) = (end for end in FUSED if name.endswith(end))
    owner = name.removesuffix(end)
    for e, expert in enumerate(tensor, first):
        for part, matrix in zip(FUSED[end], expert.chunk(len(FUSED[end])), strict=True):
            yield f"{owner}.experts.{e}.{part}.weight", matrix


@dataclass(slots=True, eq=False)
class LayerRouter:
    """The router of one layer, whose choice is replaced by the replayed one.

    The attention before it gets the replay of this very pass, also when activations are computed again.
    """

    layer: int
    normalised: bool
    """The weights of a token's experts sum to 1."""
    replay: Replay | None = None

    def before_attention(self, _: nn.Module, __: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        self.replay = arguments.get("replay")

    def after_router(self, _: nn.Module, __: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> Any:
        replay, self.replay = self.replay, None
        if replay is None:
            return output
        logits_NE, scores_NP, _chosen = output
        probabilities_NE = torch.softmax(logits_NE, -1, dtype=torch.float)
        chosen_NP = replay.select(self.layer, logits_NE.float(), probabilities_NE)
        return logits_NE, weights(probabilities_NE, chosen_NP, self.normalised).to(scores_NP.dtype), chosen_NP


def weights(probabilities_NE: Tensor, chosen_NP: Tensor, normalised: bool) -> Tensor:
    """Return the weights of the chosen experts, with their gradient."""
    weights_NP = probabilities_NE.gather(-1, chosen_NP)
    return weights_NP / weights_NP.sum(-1, keepdim=True) if normalised else weights_NP


def replayable(decoder: Any, probe: Tensor) -> RouterShape | None:
    """Prepare the routers of a model for replay; return None when there are none, or they are not known.

    A router that is known returns logits, weights and experts, and its weights on the ids `probe` [T] are the
    softmax over all experts, or over those chosen.
    """
    found = [(layer.self_attn, router) for layer in decoder.layers for router in _routers(layer)]
    kinds = {(router.num_experts, router.top_k) for _, router in found}
    if len(kinds) != 1:
        return None
    outputs = list[Any]()
    handles = [router.register_forward_hook(lambda *call: outputs.append(call[2])) for _, router in found]
    with torch.no_grad():
        decoder(input_ids=probe[None], use_cache=False)
    for handle in handles:
        handle.remove()
    normalised = {_normalised(output) for output in outputs}
    if len(outputs) != len(found) or len(normalised) != 1 or None in normalised:
        return None
    for i, (attention, router) in enumerate(found):
        hooks = LayerRouter(layer=i, normalised=bool(*normalised))
        attention.register_forward_pre_hook(hooks.before_attention, with_kwargs=True)
        router.register_forward_hook(hooks.after_router)
    ((experts, per_token),) = kinds
    return RouterShape(layers=len(found), experts=experts, per_token=per_token)


def _routers(layer: nn.Module) -> list[Any]:
    return [
        module for module in layer.modules() if hasattr(module, "top_k") and hasattr(module, "num_experts")
    ]


def _normalised(output: Any) -> bool | None:
    """Return whether the weights of a router's experts sum to 1; None for weights of another formula."""
    if not isinstance(output, tuple) or len(output) != 3:
        return None
    logits_NE, scores_NP, chosen_NP = output
    probabilities_NE = torch.softmax(logits_NE, -1, dtype=torch.float)
    for normalised in (True, False):
        if torch.equal(weights(probabilities_NE, chosen_NP, normalised).to(scores_NP.dtype), scores_NP):
            return normalised
    return None

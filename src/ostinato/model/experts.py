"""Feed-forward layers: one gated MLP, or a router over several.

Shapes: N tokens, C hidden, I width of one MLP, E experts, P experts per token.
"""
# ruff: noqa: N803, N806

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ostinato.model.config import ModelConfig

Select = Callable[[Tensor, Tensor], Tensor]
"""Return the experts [N, P] of tokens from the router's logits and probabilities, each [N, E]."""


def swiglu(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """Return down(silu(gate(x)) * up(x)), with gate and up in one matrix [2I, C]."""
    gate, up = F.linear(x, gate_up).chunk(2, -1)
    return F.linear(F.silu(gate) * up, down)


class Dense(nn.Module):
    """One gated MLP of width `size`."""

    def __init__(self, hidden: int, size: int) -> None:
        super().__init__()
        self.gate_up = nn.Parameter(torch.empty(2 * size, hidden))
        self.down = nn.Parameter(torch.empty(hidden, size))

    def forward(self, x: Tensor, _: Select | None = None) -> tuple[Tensor, None]:
        return swiglu(x, self.gate_up, self.down), None

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        gate, up = self.gate_up.chunk(2)
        yield "gate_proj.weight", gate
        yield "up_proj.weight", up
        yield "down_proj.weight", self.down


class Experts(nn.Module):
    """P of E gated MLPs for each token, weighted by the router, and optionally one MLP for all tokens.

    Tokens are sorted by expert, so that each expert is two plain matrix products on its own rows. The
    computation of all experts for all tokens was as fast in decoding and 1.5 times slower in training.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        E, width, C = config.experts, config.expert_size, config.hidden_size
        self.router = nn.Parameter(torch.empty(E, C))
        self.gate_up = nn.Parameter(torch.empty(E, 2 * width, C))
        self.down = nn.Parameter(torch.empty(E, C, width))
        self.shared = Dense(C, config.shared_expert_size) if config.shared_expert_size else None

    def forward(self, x: Tensor, select: Select | None = None) -> tuple[Tensor, Tensor]:
        """Return an output of x's shape, and the chosen experts as uint16 [..., P], best first.

        `select` chooses them in place of the largest probabilities; their weights are the router's own.
        """
        x_NC = x.flatten(0, -2)
        weights_NP, chosen_NP = self.route(x_NC, select)
        y = self._mix(x_NC, weights_NP, chosen_NP)
        if self.shared is not None:
            y = y + self.shared(x_NC)[0]
        return y.view(x.shape), chosen_NP.to(torch.uint16).view(*x.shape[:-1], -1)

    def logits(self, x_NC: Tensor) -> Tensor:
        return F.linear(x_NC, self.router)

    def route(self, x_NC: Tensor, select: Select | None) -> tuple[Tensor, Tensor]:
        logits_NE = self.logits(x_NC)
        probabilities = torch.softmax(logits_NE, -1)
        if select is None:
            weights_NP, chosen_NP = probabilities.topk(self.config.experts_per_token, -1)
        else:
            chosen_NP = select(logits_NE, probabilities)
            weights_NP = probabilities.gather(-1, chosen_NP)
        if self.config.norm_topk:
            weights_NP = weights_NP / weights_NP.sum(-1, keepdim=True)
        return weights_NP, chosen_NP

    def _mix(self, x_NC: Tensor, weights_NP: Tensor, chosen_NP: Tensor) -> Tensor:
        N, P = chosen_NP.shape
        flat = chosen_NP.flatten()
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=self.config.experts).tolist()
        sorted_rows = x_NC.index_select(0, order.div(P, rounding_mode="floor"))
        rows = torch.split_with_sizes(sorted_rows, counts)
        parts = [swiglu(part, self.gate_up[e], self.down[e]) for e, part in enumerate(rows) if counts[e]]
        back = torch.empty_like(order).scatter_(0, order, torch.arange(N * P, device=order.device))
        y_NPC = torch.cat(parts).index_select(0, back).view(N, P, -1)
        return (y_NPC * weights_NP.unsqueeze(-1)).sum(1)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield "gate.weight", self.router
        for e in range(self.config.experts):
            gate, up = self.gate_up[e].chunk(2)
            yield f"experts.{e}.gate_proj.weight", gate
            yield f"experts.{e}.up_proj.weight", up
            yield f"experts.{e}.down_proj.weight", self.down[e]
        if self.shared is not None:
            yield from ((f"shared_expert.{name}", tensor) for name, tensor in self.shared.tensors())

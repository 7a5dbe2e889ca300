"""A small Qwen3-shaped decoder, dense or mixture of experts, for one CPU thread.

Shapes: B rows, T tokens, S keys, H heads, K kv heads, D head_dim, C hidden, V vocabulary, N = B·T tokens,
E experts, P experts per token, L layers with experts.

Parameters are stored fused (one matrix for q, k and v; one for gate and up of all experts) because that is
faster; `state_dict` and `load_state_dict` use the unfused Hugging Face names.
"""
# ruff: noqa: N803, N806

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ostinato.model.config import ModelConfig
from ostinato.model.experts import Dense, Experts
from ostinato.model.norm import RMSNorm, rms_norm

EMBEDDING_STD = 0.6
LOGIT_STD = 0.05
"""The standard deviation of the embedding times the final gain: the embedding is large in the residual stream
and small as an output matrix."""
QK_GAIN = 1.4
"""The gain of queries and keys, which have unit norm per component; squared it doubles the attention scale of
1/√D."""


class WeightsError(ValueError):
    """Tensors that do not fit this decoder: a name or a shape differs, or a value is not finite."""


class KeyValueCache(Protocol):
    """The keys and values of earlier tokens, and the attention over them."""

    def attend(self, layer: int, q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor) -> Tensor:
        """Store the new keys and values, then return the attention to all that are stored: [B, H, T, D]."""
        ...


@dataclass(frozen=True, slots=True)
class Context:
    """The values that all layers of a forward pass share: rotary tables [T, 1, D] or [B, T, 1, D], cache."""

    cos: Tensor
    sin: Tensor
    cache: KeyValueCache | None


class Rotary(nn.Module):
    """Rotary positions from tables [positions, 1, D]; `sin` carries the sign of rotate-half."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        half = torch.arange(0, config.head_dim, 2).float() / config.head_dim
        angles = torch.outer(torch.arange(config.max_positions).float(), config.rope_theta**-half)
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos()[:, None], persistent=False)
        signed = torch.cat((-angles.sin(), angles.sin()), -1)[:, None]
        self.register_buffer("sin", signed, persistent=False)

    def at(self, positions: Tensor | None, tokens: int) -> tuple[Tensor, Tensor]:
        if positions is None:
            return self.cos[:tokens], self.sin[:tokens]
        return self.cos[positions], self.sin[positions]


def rotate(x_BTHD: Tensor, context: Context) -> Tensor:
    return torch.addcmul(x_BTHD * context.cos, x_BTHD.roll(x_BTHD.shape[-1] // 2, -1), context.sin)


class Attention(nn.Module):
    """Grouped-query attention with normalised queries and keys."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.heads * config.head_dim
        rows = width + 2 * config.kv_heads * config.head_dim
        self.qkv = nn.Parameter(torch.empty(rows, config.hidden_size))
        self.out = nn.Parameter(torch.empty(config.hidden_size, width))
        self.q_norm = nn.Parameter(torch.ones(config.head_dim))
        self.k_norm = nn.Parameter(torch.ones(config.head_dim))

    def forward(self, x_BTC: Tensor, context: Context, layer: int) -> Tensor:
        H, K, D = self.config.heads, self.config.kv_heads, self.config.head_dim
        B, T, _ = x_BTC.shape
        qkv = F.linear(x_BTC, self.qkv).view(B, T, H + 2 * K, D)
        gains = torch.cat((self.q_norm.expand(H, D), self.k_norm.expand(K, D)))
        qk = rotate(rms_norm(qkv[:, :, : H + K], gains, self.config.rms_eps), context).transpose(1, 2)
        q, k, v = qk[:, :H], qk[:, H:], qkv[:, :, H + K :].transpose(1, 2)
        if context.cache is not None:
            y = context.cache.attend(layer, q, k, v)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K)
        return F.linear(y.transpose(1, 2).reshape(B, T, H * D), self.out)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        sizes = [n * self.config.head_dim for n in (self.config.heads, *[self.config.kv_heads] * 2)]
        for name, part in zip(("q", "k", "v"), torch.split_with_sizes(self.qkv, sizes), strict=True):
            yield f"{name}_proj.weight", part
        yield "o_proj.weight", self.out
        yield "q_norm.weight", self.q_norm
        yield "k_norm.weight", self.k_norm


class Layer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.mlp = Experts(config) if config.experts else Dense(config.hidden_size, config.intermediate_size)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield "input_layernorm.weight", self.attention_norm.weight
        yield "post_attention_layernorm.weight", self.mlp_norm.weight
        yield from ((f"self_attn.{name}", tensor) for name, tensor in self.attention.tensors())
        yield from ((f"mlp.{name}", tensor) for name, tensor in self.mlp.tensors())


class Decoder(nn.Module):
    """Token ids to logits. A fresh one is initialised to learn quickly: see `initialise`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.rotary = Rotary(config)
        self.unembedding = self.embedding if config.tied else nn.Parameter(torch.empty_like(self.embedding))
        self.initialise()

    @torch.no_grad()
    def initialise(self) -> None:
        """Set output projections to zero (each layer starts as the identity) and logits to unit scale."""
        nn.init.normal_(self.embedding, std=EMBEDDING_STD)
        if not self.config.tied:
            nn.init.normal_(self.unembedding, std=EMBEDDING_STD)
        self.norm.weight.fill_(LOGIT_STD / EMBEDDING_STD)
        for name, tensor in self._named():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(tensor)
            elif name.endswith(("q_norm.weight", "k_norm.weight")):
                nn.init.constant_(tensor, QK_GAIN)
            elif name.endswith("proj.weight") or name.endswith("gate.weight"):
                nn.init.uniform_(tensor, -(tensor.shape[1] ** -0.5), tensor.shape[1] ** -0.5)

    def forward(
        self, ids_BT: Tensor, *, positions: Tensor | None = None, cache: KeyValueCache | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return logits [B, T, V] and, with experts, the chosen ones as uint16 [B, T, L, P] (best first).

        `positions` [B, T] defaults to 0…T-1. Without a cache attention is causal within the row, so padding
        on the right changes nothing before it.
        """
        hidden, routes = self.hidden(ids_BT, positions=positions, cache=cache)
        return self.head(hidden), routes

    def hidden(
        self, ids_BT: Tensor, *, positions: Tensor | None = None, cache: KeyValueCache | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the input of `head`, [B, T, C], and the routes as in `forward`."""
        x = F.embedding(ids_BT, self.embedding)
        context = Context(*self.rotary.at(positions, ids_BT.shape[1]), cache)
        routes: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            x = x + layer.attention(layer.attention_norm(x), context, i)
            y, chosen = layer.mlp(layer.mlp_norm(x))
            x = x + y
            if chosen is not None:
                routes.append(chosen)
        return x, torch.stack(routes, 2) if routes else None

    def head(self, hidden: Tensor) -> Tensor:
        """Return logits for hidden states of any leading shape: [..., C] to [..., V]."""
        return F.linear(self.norm(hidden), self.unembedding)

    def state_dict(self) -> dict[str, Tensor]:  # type: ignore[override]
        """Return views of the weights by Hugging Face name: copy them before the next optimizer step."""
        return {name: tensor.detach() for name, tensor in self._named()}

    @torch.no_grad()
    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:  # type: ignore[override]
        """Copy weights in by Hugging Face name, all or nothing; raises WeightsError."""
        own = self.state_dict()
        check_weights(own, tensors)
        for name, tensor in own.items():
            tensor.copy_(tensors[name])

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        yield "model.embed_tokens.weight", self.embedding
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            yield from ((f"model.layers.{i}.{name}", tensor) for name, tensor in layer.tensors())
        yield "model.norm.weight", self.norm.weight
        if not self.config.tied:
            yield "lm_head.weight", self.unembedding


def check_weights(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Raise WeightsError unless `given` has the names and shapes of `own` and only finite values."""
    missing, surplus = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
    if missing or surplus:
        raise WeightsError(f"not the weights of this model: missing {missing[:3]}, unknown {surplus[:3]}")
    for name, tensor in given.items():
        if tensor.shape != own[name].shape:
            raise WeightsError(f"{name} has shape {list(tensor.shape)}, expected {list(own[name].shape)}")
        if not torch.isfinite(tensor).all():
            raise WeightsError(f"{name} holds values that are not finite")

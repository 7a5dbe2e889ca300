"""A decoder in the shape of Llama, Qwen2 or Qwen3, dense or mixture of experts, for a CPU.

Shapes: B rows, T tokens, S keys, H heads, K kv heads, D head_dim, C hidden, V vocabulary, N = B·T tokens,
E experts, P experts per token, L layers with experts.

Parameters are stored fused (one matrix for q, k and v; one for gate and up of all experts) because that is
faster; `state_dict` and `load_state_dict` use the unfused Hugging Face names.
"""
# ruff: noqa: N803, N806

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ostinato.model.config import ModelConfig, Yarn
from ostinato.model.experts import Dense, Experts
from ostinato.model.norm import RMSNorm, rms_norm
from ostinato.model.replay import Replay, RouterShape
from ostinato.model.tensor_files import finite

EMBEDDING_STD = 0.6
LOGIT_STD = 0.05
"""The standard deviation of the embedding times the final gain: the embedding is large in the residual stream
and small as an output matrix."""
QK_GAIN = 1.4
"""The gain of queries and keys, which have unit norm per component; squared it doubles the attention scale of
1/√D."""
TABLE_POSITIONS = 1024
"""The positions that rotary tables hold at least."""


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
    """Rotary positions from tables [positions, 1, D]; `sin` carries the sign of rotate-half.

    The tables grow with the positions that are asked for: a context of 128 K tokens would need 134 MB.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self._tables: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def tables(self, positions: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return cosines and signed sines for at least so many positions, each [positions, 1, D]."""
        known = self._tables.get(device)
        if known is None or len(known[0]) < positions:
            count = max(positions, TABLE_POSITIONS, 2 * len(known[0]) if known else 0)
            with torch.inference_mode(False):  # tables made while sampling must serve training too
                half = frequencies(self.config).to(device)
                angles = torch.outer(torch.arange(count, device=device).float(), half)
                cos = torch.cat((angles, angles), -1).cos()[:, None]
                sin = torch.cat((-angles.sin(), angles.sin()), -1)[:, None]
                if isinstance(scaling := self.config.rope_scaling, Yarn):
                    cos, sin = cos * scaling.sharpness, sin * scaling.sharpness
            known = self._tables[device] = cos, sin
        return known

    def at(self, positions: Tensor | None, ids_BT: Tensor) -> tuple[Tensor, Tensor]:
        reach = ids_BT.shape[1] if positions is None else int(positions.max()) + 1
        cos, sin = self.tables(reach, ids_BT.device)
        return (cos[:reach], sin[:reach]) if positions is None else (cos[positions], sin[positions])


def frequencies(config: ModelConfig) -> Tensor:
    """Return the angle of one position for each pair of a head, [D / 2], in float32.

    Scaled, long waves are stretched by `factor`, short ones stay, those between are blended: by their turns
    in Llama 3.1, by their number with YaRN (transformers, modeling_rope_utils.py).
    """
    inverse = 1.0 / config.rope_theta ** (torch.arange(0, config.head_dim, 2).float() / config.head_dim)
    scaling = config.rope_scaling
    if scaling is None:
        return inverse
    if isinstance(scaling, Yarn):
        span = scaling.original_positions / (2 * math.pi)
        first, last = (
            config.head_dim * math.log(span / turns) / (2 * math.log(config.rope_theta))
            for turns in (scaling.beta_fast, scaling.beta_slow)
        )
        low, high = max(math.floor(first), 0), min(math.ceil(last), config.head_dim - 1)
        kept = 1 - ((torch.arange(len(inverse)) - low) / max(high - low, 1e-3)).clamp(0, 1)
    else:
        turns = scaling.original_positions * inverse / (2 * math.pi)
        least, most = scaling.low_freq_factor, scaling.high_freq_factor
        kept = ((turns - least) / (most - least)).clamp(0, 1)
    return (1 - kept) * inverse / scaling.factor + kept * inverse


def rotate(x_BTHD: Tensor, context: Context) -> Tensor:
    return torch.addcmul(x_BTHD * context.cos, x_BTHD.roll(x_BTHD.shape[-1] // 2, -1), context.sin)


class Attention(nn.Module):
    """Grouped-query attention, with normalised queries and keys or with biases, as `config` says."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.heads * config.head_dim
        rows = width + 2 * config.kv_heads * config.head_dim
        self.qkv = nn.Parameter(torch.empty(rows, config.hidden_size))
        self.out = nn.Parameter(torch.empty(config.hidden_size, width))
        self.bias = nn.Parameter(torch.zeros(rows)) if config.attention_bias else None
        self.q_norm = nn.Parameter(torch.ones(config.head_dim)) if config.qk_norm else None
        self.k_norm = nn.Parameter(torch.ones(config.head_dim)) if config.qk_norm else None

    def forward(self, x_BTC: Tensor, context: Context, layer: int) -> Tensor:
        H, K, D = self.config.heads, self.config.kv_heads, self.config.head_dim
        B, T, _ = x_BTC.shape
        qkv = F.linear(x_BTC, self.qkv, self.bias).view(B, T, H + 2 * K, D)
        qk = rotate(self._normalised(qkv[:, :, : H + K]), context).transpose(1, 2)
        q, k, v = qk[:, :H], qk[:, H:], qkv[:, :, H + K :].transpose(1, 2)
        if context.cache is not None:
            y = context.cache.attend(layer, q, k, v)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != K)
        return F.linear(y.transpose(1, 2).reshape(B, T, H * D), self.out)

    def gains(self) -> Tensor | None:
        """Return the gain of each head of queries and keys, [H + K, D], or None without normalisation."""
        if self.q_norm is None or self.k_norm is None:
            return None
        H, K, D = self.config.heads, self.config.kv_heads, self.config.head_dim
        return torch.cat((self.q_norm.expand(H, D), self.k_norm.expand(K, D)))

    def _normalised(self, qk: Tensor) -> Tensor:
        gains = self.gains()
        return qk if gains is None else rms_norm(qk, gains, self.config.rms_eps)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        sizes = [n * self.config.head_dim for n in (self.config.heads, *[self.config.kv_heads] * 2)]
        for name, part in zip(("q", "k", "v"), torch.split_with_sizes(self.qkv, sizes), strict=True):
            yield f"{name}_proj.weight", part
        if self.bias is not None:
            for name, part in zip(("q", "k", "v"), torch.split_with_sizes(self.bias, sizes), strict=True):
                yield f"{name}_proj.bias", part
        yield "o_proj.weight", self.out
        if self.q_norm is not None and self.k_norm is not None:
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
    """Token ids to logits.

    A fresh one is initialised to learn quickly: see `initialise`. With `initialise=False` its weights hold
    anything until they are loaded.
    """

    def __init__(self, config: ModelConfig, *, initialise: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.vocab_size, config.hidden_size))
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_eps)
        self.rotary = Rotary(config)
        self.unembedding = self.embedding if config.tied else nn.Parameter(torch.empty_like(self.embedding))
        if initialise:
            self.initialise()

    @property
    def router(self) -> RouterShape | None:
        """The choices of experts that a forward pass makes; None without experts."""
        config = self.config
        if not config.experts:
            return None
        return RouterShape(
            layers=config.moe_layers, experts=config.experts, per_token=config.experts_per_token
        )

    @torch.no_grad()
    def initialise(self) -> None:
        """Set output projections to zero (each layer starts as the identity) and logits to unit scale."""
        nn.init.normal_(self.embedding, std=EMBEDDING_STD)
        if not self.config.tied:
            nn.init.normal_(self.unembedding, std=EMBEDDING_STD)
        self.norm.weight.fill_(LOGIT_STD / EMBEDDING_STD)
        initialise_layers(self._named())

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
        self,
        ids_BT: Tensor,
        *,
        positions: Tensor | None = None,
        cache: KeyValueCache | None = None,
        replay: Replay | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the input of `head`, [B, T, C], and the routes as in `forward`.

        With `replay`, of N = B·T tokens, those are the recorded experts that it keeps, and its own choice.
        """
        x = F.embedding(ids_BT, self.embedding)
        context = Context(*self.rotary.at(positions, ids_BT), cache)
        routes: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            x = x + layer.attention(layer.attention_norm(x), context, i)
            y, chosen = layer.mlp(layer.mlp_norm(x), partial(replay.select, i) if replay else None)
            x = x + y
            if chosen is not None:
                routes.append(chosen)
        if replay:
            replay.check_used()
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


@torch.no_grad()
def initialise_layers(named: Iterable[tuple[str, Tensor]]) -> None:
    """Initialise what layers hold; embeddings and the gains of norms over the hidden state stay."""
    for name, tensor in named:
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            nn.init.zeros_(tensor)
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            nn.init.constant_(tensor, QK_GAIN)
        elif name.endswith("proj.weight") or name.endswith("gate.weight"):
            nn.init.uniform_(tensor, -(tensor.shape[1] ** -0.5), tensor.shape[1] ** -0.5)


def check_weights(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Raise WeightsError unless `given` has the names and shapes of `own` and only finite values."""
    missing, surplus = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
    if missing or surplus:
        raise WeightsError(f"not the weights of this model: missing {missing[:3]}, unknown {surplus[:3]}")
    for name, tensor in given.items():
        if tensor.shape != own[name].shape:
            raise WeightsError(f"{name} has shape {list(tensor.shape)}, expected {list(own[name].shape)}")
        if not finite(tensor):
            raise WeightsError(f"{name} holds values that are not finite")

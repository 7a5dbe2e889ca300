"""The shape of a model, and its `config.json` in Hugging Face terms. Free of torch.

| model_type | normalised queries and keys | biases of q, k and v | experts |
|---|---|---|---|
| llama | no | no | no |
| qwen2 | no | yes | no |
| qwen3 | yes | no | no |
| qwen3_moe | yes | no | yes |
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

DRAFT = "draft"
"""The folder of a checkpoint with the MTP layer that drafts for it."""
META = "ostinato.json"
"""The file of a checkpoint of ours that says which version it is, and which harness it was trained under."""
LLAMA, QWEN2, QWEN3, MOE = "llama", "qwen2", "qwen3", "qwen3_moe"
ARCHITECTURES = {
    LLAMA: "LlamaForCausalLM",
    QWEN2: "Qwen2ForCausalLM",
    QWEN3: "Qwen3ForCausalLM",
    MOE: "Qwen3MoeForCausalLM",
}
MOST_EXPERTS = 2**16
"""The number of experts that a route of two bytes can tell apart."""


class ModelConfigError(ValueError):
    """A shape that cannot be built or written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """The stretching of rotary positions beyond the trained context, as Llama 3.1 does it (rope_type llama3).

    >>> RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=8192).factor
    8.0
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: int

    def __post_init__(self) -> None:
        if not 0 < self.low_freq_factor < self.high_freq_factor or self.factor <= 0:
            raise ModelConfigError(f"{self} needs factor > 0 and 0 < low_freq_factor < high_freq_factor")

    def to_hf(self) -> dict[str, Any]:
        return {
            "rope_type": "llama3",
            "factor": self.factor,
            "low_freq_factor": self.low_freq_factor,
            "high_freq_factor": self.high_freq_factor,
            "original_max_position_embeddings": self.original_positions,
        }

    @classmethod
    def from_hf(cls, fields: Mapping[str, Any]) -> Self:
        return cls(
            factor=float(fields["factor"]),
            low_freq_factor=float(fields["low_freq_factor"]),
            high_freq_factor=float(fields["high_freq_factor"]),
            original_positions=int(fields["original_max_position_embeddings"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """The stretching of rotary positions by YaRN (Peng et al., 2023, arXiv:2309.00071; rope_type yarn).

    >>> round(Yarn(factor=4.0, original_positions=2048).sharpness, 4)
    1.1386
    """

    factor: float
    original_positions: int
    beta_fast: float = 32.0
    """The turns within the trained context above which a pair of components stays as it is."""
    beta_slow: float = 1.0
    """The turns below which it is stretched by the whole factor."""

    def __post_init__(self) -> None:
        if self.factor < 1 or not 0 < self.beta_slow < self.beta_fast:
            raise ModelConfigError(f"{self} needs factor >= 1 and 0 < beta_slow < beta_fast")

    @property
    def sharpness(self) -> float:
        """The factor of queries and keys, whose square sharpens the attention over more positions."""
        return 0.1 * math.log(self.factor) + 1.0

    def to_hf(self) -> dict[str, Any]:
        return {
            "rope_type": "yarn",
            "factor": self.factor,
            "beta_fast": self.beta_fast,
            "beta_slow": self.beta_slow,
            "original_max_position_embeddings": self.original_positions,
        }

    @classmethod
    def from_hf(cls, fields: Mapping[str, Any]) -> Self:
        """Read `rope_parameters`. Raises ModelConfigError for a form of it that is computed otherwise."""
        others = ("attention_factor", "mscale", "mscale_all_dim")
        if odd := [name for name in others if fields.get(name) is not None]:
            raise ModelConfigError(f"rope_type yarn with {odd[0]} is not known here: serve it with vLLM")
        return cls(
            factor=float(fields["factor"]),
            original_positions=int(fields["original_max_position_embeddings"]),
            beta_fast=float(fields.get("beta_fast") or 32),
            beta_slow=float(fields.get("beta_slow") or 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The sizes of a decoder; `experts=0` means a dense MLP of `intermediate_size`.

    >>> ModelConfig(vocab_size=512, experts=4, expert_size=96).model_type
    'qwen3_moe'
    """

    vocab_size: int
    hidden_size: int = 96
    layers: int = 3
    heads: int = 3
    kv_heads: int = 3
    head_dim: int = 32
    intermediate_size: int = 256
    experts: int = 0
    experts_per_token: int = 2
    expert_size: int = 96
    shared_expert_size: int = 0
    """Width of an MLP that processes every token beside the routed experts; 0 for none."""
    norm_topk: bool = True
    qk_norm: bool = True
    """Normalise each head of queries and keys, as Qwen3 does."""
    attention_bias: bool = False
    """Add a bias to queries, keys and values, as Qwen2 does; the output projection has none."""
    rope_theta: float = 1000.0
    rope_scaling: RopeScaling | Yarn | None = None
    rms_eps: float = 1e-6
    tied: bool = True
    max_positions: int = 1024

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ModelConfigError(
                f"{self.heads} heads cannot share {self.kv_heads} kv_heads: make it a divisor"
            )
        if self.head_dim % 2:
            raise ModelConfigError(f"head_dim {self.head_dim} is odd: rotary positions need pairs")
        if self.experts and not 0 < self.experts_per_token <= self.experts <= MOST_EXPERTS:
            raise ModelConfigError(
                f"{self.experts_per_token} of {self.experts} experts per token: "
                f"need 1 ≤ per token ≤ experts ≤ {MOST_EXPERTS}"
            )
        if (self.experts and not self.qk_norm) or (self.attention_bias and self.qk_norm):
            raise ModelConfigError(
                f"no family has {self.experts} experts, qk_norm={self.qk_norm} and attention_bias="
                f"{self.attention_bias} together: experts need qk_norm, and qk_norm excludes attention_bias"
            )

    @property
    def model_type(self) -> str:
        """The family in Hugging Face's words, by the table above."""
        if self.experts:
            return MOE
        if self.qk_norm:
            return QWEN3
        return QWEN2 if self.attention_bias else LLAMA

    @property
    def parameters(self) -> int:
        """The number of weights; a tied output matrix counts once."""
        width, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        attention = self.hidden_size * (2 * width + 2 * kv) + self.attention_bias * (width + 2 * kv)
        attention += self.qk_norm * 2 * self.head_dim
        mlp = 3 * self.hidden_size * self.intermediate_size
        if self.experts:
            units = self.experts * self.expert_size + self.shared_expert_size
            mlp = 3 * self.hidden_size * units + self.hidden_size * self.experts
        layer = attention + mlp + 2 * self.hidden_size
        tables = self.vocab_size * self.hidden_size * (1 if self.tied else 2)
        return self.layers * layer + tables + self.hidden_size

    @property
    def draft_prefix(self) -> str:
        """The beginning of the names of an MTP layer's tensors, and of no name of the model."""
        return f"model.layers.{self.layers}."

    @property
    def moe_layers(self) -> int:
        return self.layers if self.experts else 0

    def to_hf(self) -> dict[str, Any]:
        """Return the content of `config.json`. Raises ModelConfigError if the family lacks a field for it."""
        if self.shared_expert_size:
            raise ModelConfigError(
                f"shared_expert_size={self.shared_expert_size} has no place in a {MOE} checkpoint: use 0"
            )
        if self.model_type == QWEN2 and self.head_dim * self.heads != self.hidden_size:
            raise ModelConfigError(
                f"{QWEN2} has no head_dim of its own: {self.heads} heads of {self.head_dim} must make "
                f"hidden_size {self.hidden_size}"
            )
        scaling = {"rope_type": "default"} if self.rope_scaling is None else self.rope_scaling.to_hf()
        common = {
            "model_type": self.model_type,
            "architectures": [ARCHITECTURES[self.model_type]],
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": self.rms_eps,
            "rope_theta": self.rope_theta,
            "rope_parameters": scaling | {"rope_theta": self.rope_theta},
            "tie_word_embeddings": self.tied,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "use_sliding_window": False,
            "torch_dtype": "float32",
        }
        if self.rope_scaling is not None:
            common["rope_scaling"] = scaling
        return common | (self._moe_fields() if self.experts else {})

    def _moe_fields(self) -> dict[str, Any]:
        return {
            "num_experts": self.experts,
            "num_experts_per_tok": self.experts_per_token,
            "moe_intermediate_size": self.expert_size,
            "norm_topk_prob": self.norm_topk,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }

    @classmethod
    def from_hf(cls, fields: Mapping[str, Any]) -> Self:
        """Read the content of a `config.json`. Raises ModelConfigError, which names the wrong field."""
        kind = fields.get("model_type")
        if kind not in ARCHITECTURES:
            raise ModelConfigError(
                f"model_type {kind!r} is not supported by ostinato's own decoder (it knows "
                f"{', '.join(ARCHITECTURES)}): serve the model with vLLM and train it with fsdp"
            )
        _refuse_unsupported(kind, fields)
        try:
            return cls(
                vocab_size=fields["vocab_size"],
                hidden_size=fields["hidden_size"],
                layers=fields["num_hidden_layers"],
                heads=fields["num_attention_heads"],
                kv_heads=fields.get("num_key_value_heads") or fields["num_attention_heads"],
                head_dim=fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"],
                intermediate_size=fields["intermediate_size"],
                experts=_experts(fields) if kind == MOE else 0,
                experts_per_token=fields["num_experts_per_tok"] if kind == MOE else 2,
                expert_size=fields["moe_intermediate_size"] if kind == MOE else 96,
                norm_topk=bool(fields.get("norm_topk_prob", False)) if kind == MOE else True,
                qk_norm=kind in (QWEN3, MOE),
                attention_bias=kind == QWEN2,
                rope_theta=float(_rope(fields).get("rope_theta") or fields.get("rope_theta") or 10_000.0),
                rope_scaling=_scaling(fields),
                rms_eps=fields["rms_norm_eps"],
                tied=bool(fields.get("tie_word_embeddings", False)),
                max_positions=fields["max_position_embeddings"],
            )
        except KeyError as error:
            raise ModelConfigError(f"config.json of a {kind} model lacks {error.args[0]!r}") from error


def _experts(fields: Mapping[str, Any]) -> int:
    """Return the number of experts: transformers 5 calls it num_local_experts, everyone else num_experts."""
    return int(fields["num_local_experts"] if "num_local_experts" in fields else fields["num_experts"])


def _rope(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what stands in rope_parameters (transformers 5) or rope_scaling (before), or nothing."""
    rope: Mapping[str, Any] = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    return rope


def _rope_type(fields: Mapping[str, Any]) -> object:
    rope = _rope(fields)
    return rope.get("rope_type") or rope.get("type") or "default"


SCALINGS: Mapping[object, type[RopeScaling | Yarn]] = {"llama3": RopeScaling, "yarn": Yarn}


def _scaling(fields: Mapping[str, Any]) -> RopeScaling | Yarn | None:
    kind = SCALINGS.get(_rope_type(fields))
    return None if kind is None else kind.from_hf(_rope(fields))


def _refuse_unsupported(kind: str, fields: Mapping[str, Any]) -> None:
    """Raise ModelConfigError for what changes the arithmetic in a way that the decoder does not know."""
    partial = _rope(fields).get("partial_rotary_factor") or fields.get("partial_rotary_factor") or 1.0
    wrong = {
        "attention_bias": kind != QWEN2 and fields.get("attention_bias", False),
        "mlp_bias": fields.get("mlp_bias", False),
        "use_sliding_window": fields.get("use_sliding_window", False),
        "layer_types": set(fields.get("layer_types") or ()) - {"full_attention"},
        "mlp_only_layers": fields.get("mlp_only_layers", []),
        "decoder_sparse_step": fields.get("decoder_sparse_step", 1) != 1,
        "rope_type": _rope_type(fields) not in ("default", *SCALINGS),
        "partial_rotary_factor": partial != 1.0,
        "hidden_act": fields.get("hidden_act", "silu") != "silu",
        "quantization_config": fields.get("quantization_config"),
    }
    unsupported = [name for name, is_wrong in wrong.items() if is_wrong]
    if unsupported:
        raise ModelConfigError(
            f"config.json uses {', '.join(unsupported)} in a way that ostinato's own decoder does not know: "
            "serve the model with vLLM and train it with fsdp"
        )


def positions_of(checkpoint: Path) -> int | None:
    """Return the positions that a model of any family was made for; None where its files do not say."""
    try:
        fields = json.loads((checkpoint / "config.json").read_text())
        positions = (fields.get("text_config") or fields).get("max_position_embeddings")
    except (OSError, ValueError, AttributeError):
        return None  # the engine, which needs the file, says what is wrong with it
    return positions if isinstance(positions, int) else None

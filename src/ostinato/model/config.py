"""The shape of a model, and its `config.json` in Hugging Face terms (qwen3, qwen3_moe). Free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

DENSE, MOE = "qwen3", "qwen3_moe"
MOST_EXPERTS = 2**16
"""The number of experts that a route of two bytes can tell apart."""


class ModelConfigError(ValueError):
    """A shape that cannot be built or written down."""


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
    rope_theta: float = 1000.0
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

    @property
    def model_type(self) -> str:
        return MOE if self.experts else DENSE

    @property
    def moe_layers(self) -> int:
        return self.layers if self.experts else 0

    def to_hf(self) -> dict[str, Any]:
        """Return the content of `config.json`. Raises ModelConfigError if qwen3_moe lacks a field for it."""
        if self.shared_expert_size:
            raise ModelConfigError(
                f"shared_expert_size={self.shared_expert_size} has no place in a {MOE} checkpoint: use 0"
            )
        common = {
            "model_type": self.model_type,
            "architectures": ["Qwen3MoeForCausalLM" if self.experts else "Qwen3ForCausalLM"],
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
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "tie_word_embeddings": self.tied,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "use_sliding_window": False,
            "torch_dtype": "float32",
        }
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
        if kind not in (DENSE, MOE):
            raise ModelConfigError(f"model_type {kind!r} is not supported: expected {DENSE} or {MOE}")
        _refuse_unsupported(fields)
        try:
            return cls(
                vocab_size=fields["vocab_size"],
                hidden_size=fields["hidden_size"],
                layers=fields["num_hidden_layers"],
                heads=fields["num_attention_heads"],
                kv_heads=fields["num_key_value_heads"],
                head_dim=fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"],
                intermediate_size=fields["intermediate_size"],
                experts=_experts(fields) if kind == MOE else 0,
                experts_per_token=fields["num_experts_per_tok"] if kind == MOE else 2,
                expert_size=fields["moe_intermediate_size"] if kind == MOE else 96,
                norm_topk=bool(fields.get("norm_topk_prob", False)) if kind == MOE else True,
                rope_theta=_rope_theta(fields),
                rms_eps=fields["rms_norm_eps"],
                tied=bool(fields.get("tie_word_embeddings", False)),
                max_positions=fields["max_position_embeddings"],
            )
        except KeyError as error:
            raise ModelConfigError(f"config.json of a {kind} model lacks {error.args[0]!r}") from error


def _experts(fields: Mapping[str, Any]) -> int:
    """Return the number of experts: transformers 5 calls it num_local_experts, everyone else num_experts."""
    return int(fields["num_local_experts"] if "num_local_experts" in fields else fields["num_experts"])


def _rope_theta(fields: Mapping[str, Any]) -> float:
    return float(fields.get("rope_theta") or fields["rope_parameters"]["rope_theta"])


def _refuse_unsupported(fields: Mapping[str, Any]) -> None:
    rope = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    wrong = {
        "attention_bias": fields.get("attention_bias", False),
        "use_sliding_window": fields.get("use_sliding_window", False),
        "mlp_only_layers": fields.get("mlp_only_layers", []),
        "decoder_sparse_step": fields.get("decoder_sparse_step", 1) != 1,
        "rope_type": rope.get("rope_type", "default") != "default",
        "hidden_act": fields.get("hidden_act", "silu") != "silu",
    }
    unsupported = [name for name, is_wrong in wrong.items() if is_wrong]
    if unsupported:
        raise ModelConfigError(
            f"config.json uses {', '.join(unsupported)} in a way that the decoder does not support"
        )

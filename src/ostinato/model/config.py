"""The shape of a model, and its `config.json` in Hugging Face words (qwen3, qwen3_moe). Torch-free."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

DENSE, MOE = "qwen3", "qwen3_moe"
MOST_EXPERTS = 2**16
"""The numbers that a route of two bytes can hold."""


class ModelConfigError(ValueError):
    """A shape that cannot be built or written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes of a decoder; `experts=0` means a dense MLP of `intermediate_size`.

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
    """Width of an MLP that sees every token beside the routed experts; 0 for none."""
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
        """The content of `config.json`. Raises ModelConfigError for what qwen3_moe has no word for."""
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
        return common | (self._moe_words() if self.experts else {})

    def _moe_words(self) -> dict[str, Any]:
        return {
            "num_experts": self.experts,
            "num_experts_per_tok": self.experts_per_token,
            "moe_intermediate_size": self.expert_size,
            "norm_topk_prob": self.norm_topk,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
        }

    @classmethod
    def from_hf(cls, words: Mapping[str, Any]) -> Self:
        """Read the content of a `config.json`; raises ModelConfigError naming what does not fit."""
        kind = words.get("model_type")
        if kind not in (DENSE, MOE):
            raise ModelConfigError(f"model_type {kind!r} is not supported: expected {DENSE} or {MOE}")
        _refuse_unsupported(words)
        try:
            return cls(
                vocab_size=words["vocab_size"],
                hidden_size=words["hidden_size"],
                layers=words["num_hidden_layers"],
                heads=words["num_attention_heads"],
                kv_heads=words["num_key_value_heads"],
                head_dim=words.get("head_dim") or words["hidden_size"] // words["num_attention_heads"],
                intermediate_size=words["intermediate_size"],
                experts=_experts(words) if kind == MOE else 0,
                experts_per_token=words["num_experts_per_tok"] if kind == MOE else 2,
                expert_size=words["moe_intermediate_size"] if kind == MOE else 96,
                norm_topk=bool(words.get("norm_topk_prob", False)) if kind == MOE else True,
                rope_theta=_rope_theta(words),
                rms_eps=words["rms_norm_eps"],
                tied=bool(words.get("tie_word_embeddings", False)),
                max_positions=words["max_position_embeddings"],
            )
        except KeyError as error:
            raise ModelConfigError(f"config.json of a {kind} model lacks {error.args[0]!r}") from error


def _experts(words: Mapping[str, Any]) -> int:
    """transformers 5 writes num_local_experts, everyone else num_experts."""
    return int(words["num_local_experts"] if "num_local_experts" in words else words["num_experts"])


def _rope_theta(words: Mapping[str, Any]) -> float:
    return float(words.get("rope_theta") or words["rope_parameters"]["rope_theta"])


def _refuse_unsupported(words: Mapping[str, Any]) -> None:
    rope = words.get("rope_parameters") or words.get("rope_scaling") or {}
    wrong = {
        "attention_bias": words.get("attention_bias", False),
        "use_sliding_window": words.get("use_sliding_window", False),
        "mlp_only_layers": words.get("mlp_only_layers", []),
        "decoder_sparse_step": words.get("decoder_sparse_step", 1) != 1,
        "rope_type": rope.get("rope_type", "default") != "default",
        "hidden_act": words.get("hidden_act", "silu") != "silu",
    }
    found = [name for name, is_wrong in wrong.items() if is_wrong]
    if found:
        raise ModelConfigError(
            f"config.json uses {', '.join(found)} in a way that the decoder does not support"
        )

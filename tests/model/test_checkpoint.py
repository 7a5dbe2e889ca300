"""Covers model/checkpoint.py and model/config.py."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.model.toolbox import tokenizer
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from ostinato.model.checkpoint import load, load_meta, save, shapes
from ostinato.model.config import ModelConfig, ModelConfigError, RopeScaling, Yarn
from ostinato.model.decoder import Decoder
from ostinato.model.tensor_files import CheckpointError, write_tensors

DENSE: dict[str, Any] = {"hidden_size": 32, "layers": 2, "heads": 4, "head_dim": 8, "intermediate_size": 48}
MOE: dict[str, Any] = DENSE | {"experts": 4, "experts_per_token": 2, "expert_size": 16}
LLAMA: dict[str, Any] = DENSE | {"qk_norm": False, "rms_eps": 1e-5}
THETA = {"rope_theta": 500_000.0}
STRETCHED = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=32)
YARN = Yarn(factor=4.0, original_positions=8)
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3": DENSE | {"kv_heads": 4},
    "qwen3 gqa untied": DENSE | {"kv_heads": 2, "tied": False},
    "qwen3_moe": MOE | {"kv_heads": 4},
    "qwen3_moe gqa untied": MOE | {"kv_heads": 1, "tied": False, "norm_topk": False},
    "llama": LLAMA | {"kv_heads": 1},
    "llama untied": LLAMA | {"kv_heads": 4, "tied": False, "rope_theta": 500_000.0},
    "llama 3.1": LLAMA | {"kv_heads": 2, "rope_scaling": STRETCHED, "head_dim": 16},
    "llama yarn": LLAMA | {"kv_heads": 2, "rope_scaling": YARN, "head_dim": 32},
    "qwen2": LLAMA | {"kv_heads": 2, "attention_bias": True},
}


def randomised(config: ModelConfig) -> Decoder:
    torch.manual_seed(3)
    decoder = Decoder(config)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return decoder


def ids() -> torch.Tensor:
    return torch.randint(0, tokenizer().vocab_size, (3, 20), generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("shape", SHAPES)
def test_transformers_reads_a_saved_checkpoint(shape: str, tmp_path: Path) -> None:
    decoder = randomised(ModelConfig(vocab_size=tokenizer().vocab_size, **SHAPES[shape]))
    save(tmp_path, decoder, tokenizer(), version=1)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with torch.no_grad():
        assert (theirs(ids()).logits - decoder(ids())[0]).abs().max() < 1e-4
    assert load(tmp_path)[0].config == decoder.config


FAMILIES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "llama": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": True}),
    "llama untied": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": False}),
    "llama 3.1": (
        LlamaForCausalLM,
        LlamaConfig,
        {"rope_parameters": STRETCHED.to_hf() | THETA},
    ),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"hidden_size": 64}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {}),
    "qwen3 tied": (Qwen3ForCausalLM, Qwen3Config, {"tie_word_embeddings": True}),
    "qwen3_moe": (
        *(Qwen3MoeForCausalLM, Qwen3MoeConfig),
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True},
    ),
}


@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_of_transformers_is_read(family: str, kv_heads: int, tmp_path: Path) -> None:
    """The shards are small, and biases and norms are not what a fresh model has."""
    torch.manual_seed(1)
    model, words, more = FAMILIES[family]
    fields: dict[str, Any] = {
        "vocab_size": tokenizer().vocab_size,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": kv_heads,
        "head_dim": 16,
        "max_position_embeddings": 128,
    }
    theirs = model(words(**fields | more)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    theirs.save_pretrained(tmp_path, max_shard_size="60KB")
    tokenizer().save(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    decoder, _, meta = load(tmp_path)
    assert meta.version == 0
    assert decoder.config.model_type == family.split(maxsplit=1)[0]
    with torch.no_grad():
        assert (theirs(ids()).logits - decoder(ids())[0]).abs().max() < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_checkpoint_of_two_bytes_a_value_is_read_as_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    decoder = saved(tmp_path)
    (tmp_path / "ostinato.json").unlink()
    given = {name: tensor.to(dtype) for name, tensor in decoder.state_dict().items()}
    write_tensors(tmp_path, given.items(), max_shard_bytes=2000)
    again, _, _ = load(tmp_path)
    for name, tensor in again.state_dict().items():
        assert tensor.dtype == torch.float32 and torch.equal(tensor, given[name].float())


def test_a_tied_checkpoint_may_hold_its_output_matrix(tmp_path: Path) -> None:
    decoder = saved(tmp_path)
    (tmp_path / "ostinato.json").unlink()
    weights = decoder.state_dict()
    inverse = torch.ones(4)
    more = {"lm_head.weight": weights["model.embed_tokens.weight"]}
    old = {"model.layers.0.self_attn.rotary_emb.inv_freq": inverse}
    write_tensors(tmp_path, (weights | more | old).items())
    assert torch.equal(load(tmp_path)[0].embedding, decoder.embedding)


def test_shapes_are_known_without_weights(tmp_path: Path) -> None:
    decoder = saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    expected = {name: tensor.shape for name, tensor in decoder.state_dict().items()}
    assert {name: tensor.shape for name, tensor in shapes(tmp_path).items()} == expected


def saved(directory: Path) -> Decoder:
    decoder = randomised(ModelConfig(vocab_size=tokenizer().vocab_size, **SHAPES["qwen3_moe"]))
    save(directory, decoder, tokenizer(), version=7, parent=6, harness="9f")
    return decoder


def test_a_round_trip_is_exact(tmp_path: Path) -> None:
    decoder = saved(tmp_path)
    again, loaded_tokenizer, meta = load(tmp_path)
    assert (meta.version, meta.parent, meta.harness) == (7, 6, "9f")
    assert again.config == decoder.config
    assert loaded_tokenizer.encode("calc.py") == tokenizer().encode("calc.py")
    for name, tensor in decoder.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        load(tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "ostinato.json"])
def test_a_damaged_file_is_named(name: str, tmp_path: Path) -> None:
    saved(tmp_path)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointError, match=name):
        load(tmp_path)


def test_a_flipped_bit_in_the_weights_is_detected(tmp_path: Path) -> None:
    saved(tmp_path)
    content = bytearray((tmp_path / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="damaged"):
        load(tmp_path)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(fields | {"moe_intermediate_size": 8}))
    with pytest.raises(CheckpointError, match="has shape"):
        load(tmp_path)


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(CheckpointError, match=r"'gpt2' is not supported .*serve the model with vLLM"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attention_bias", True),
        ("mlp_bias", True),
        ("use_sliding_window", True),
        ("layer_types", ["sliding_attention", "full_attention"]),
        ("mlp_only_layers", [0]),
        ("decoder_sparse_step", 2),
        ("hidden_act", "gelu"),
        ("quantization_config", {"quant_method": "fp8"}),
        ("partial_rotary_factor", 0.5),
    ],
)
def test_what_the_decoder_cannot_express_is_named(field: str, value: Any, tmp_path: Path) -> None:
    saved(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(fields | {field: value}))
    with pytest.raises(CheckpointError, match=f"uses {field} .*serve the model with vLLM"):
        load(tmp_path)


def test_another_stretching_of_positions_is_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    rope = {"rope_type": "dynamic", "rope_theta": 1e6, "factor": 4.0}
    (tmp_path / "config.json").write_text(json.dumps(fields | {"rope_parameters": rope}))
    with pytest.raises(CheckpointError, match="uses rope_type"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (LLAMA | {"experts": 4, "kv_heads": 2}, "experts need qk_norm"),
        (DENSE | {"attention_bias": True, "kv_heads": 2}, "qk_norm excludes attention_bias"),
    ],
)
def test_a_shape_of_no_family_is_refused(shape: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelConfigError, match=message):
        ModelConfig(vocab_size=64, **shape)


def test_a_qwen2_with_heads_of_another_width_cannot_be_written() -> None:
    config = ModelConfig(vocab_size=64, **LLAMA | {"kv_heads": 2, "attention_bias": True, "head_dim": 16})
    with pytest.raises(ModelConfigError, match="no head_dim of its own"):
        config.to_hf()


def test_a_shared_expert_cannot_be_saved(tmp_path: Path) -> None:
    config = ModelConfig(vocab_size=tokenizer().vocab_size, experts=4, shared_expert_size=8)
    with pytest.raises(CheckpointError, match="shared_expert_size=8"):
        save(tmp_path, Decoder(config), tokenizer(), version=1)
    assert load_meta(tmp_path).version == 0

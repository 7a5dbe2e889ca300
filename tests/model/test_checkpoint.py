"""Covers model/checkpoint.py and model/config.py."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.model.toolbox import tokenizer
from transformers import (
    AutoModelForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from ostinato.model.checkpoint import CheckpointError, load, load_meta, save
from ostinato.model.config import ModelConfig
from ostinato.model.decoder import Decoder

DENSE: dict[str, Any] = {"hidden_size": 32, "layers": 2, "heads": 4, "head_dim": 8, "intermediate_size": 48}
MOE: dict[str, Any] = DENSE | {"experts": 4, "experts_per_token": 2, "expert_size": 16}
SHAPES: dict[str, dict[str, Any]] = {
    "dense": DENSE | {"kv_heads": 4},
    "dense gqa untied": DENSE | {"kv_heads": 2, "tied": False},
    "moe": MOE | {"kv_heads": 4},
    "moe gqa untied": MOE | {"kv_heads": 1, "tied": False, "norm_topk": False},
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


@pytest.mark.parametrize("experts", [0, 4])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_a_checkpoint_of_transformers_is_read(experts: int, kv_heads: int, tmp_path: Path) -> None:
    torch.manual_seed(1)
    fields: dict[str, Any] = {
        "vocab_size": tokenizer().vocab_size,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": kv_heads,
        "head_dim": 8,
        "max_position_embeddings": 128,
        "initializer_range": 0.3,
    }
    if experts:
        moe = {"num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
        theirs = Qwen3MoeForCausalLM(Qwen3MoeConfig(**fields, **moe, norm_topk_prob=True)).eval()
    else:
        theirs = Qwen3ForCausalLM(Qwen3Config(**fields)).eval()
    theirs.save_pretrained(tmp_path)
    tokenizer().save(tmp_path)
    decoder, _, meta = load(tmp_path)
    assert meta.version == 0
    with torch.no_grad():
        assert (theirs(ids()).logits - decoder(ids())[0]).abs().max() < 1e-4


def saved(directory: Path) -> Decoder:
    decoder = randomised(ModelConfig(vocab_size=tokenizer().vocab_size, **SHAPES["moe"]))
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
    with pytest.raises(CheckpointError, match="'gpt2' is not supported"):
        load(tmp_path)


def test_a_shared_expert_cannot_be_saved(tmp_path: Path) -> None:
    config = ModelConfig(vocab_size=tokenizer().vocab_size, experts=4, shared_expert_size=8)
    with pytest.raises(CheckpointError, match="shared_expert_size=8"):
        save(tmp_path, Decoder(config), tokenizer(), version=1)
    assert load_meta(tmp_path).version == 0

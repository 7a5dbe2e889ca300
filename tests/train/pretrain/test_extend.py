"""More positions by family: what transformers reads, what we read, what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data.toolbox import encoder
from transformers import AutoModelForCausalLM, GemmaConfig, GPT2Config, MistralConfig, Qwen3Config

from ostinato.model.checkpoint import load, save
from ostinato.model.config import ModelConfig, RopeScaling
from ostinato.model.decoder import Decoder
from ostinato.train.base import StateError
from ostinato.train.pretrain.config import PretrainPhase
from ostinato.train.pretrain.extend import extended, write_extended

SHAPE: dict[str, Any] = {
    "vocab_size": encoder().vocab_size, "hidden_size": 32, "layers": 2, "heads": 2, "kv_heads": 1,
    "head_dim": 16, "intermediate_size": 48, "max_positions": 64,
}  # fmt: skip


def phase(length: int, **more: Any) -> PretrainPhase:
    return PretrainPhase(length=length, tokens=1000, **more)


@pytest.mark.parametrize("way", [{"rope": "yarn"}, {"rope": "base", "rope_base": 50_000.0}])
def test_both_decoders_read_the_same_extension(way: dict[str, Any], tmp_path: Path) -> None:
    torch.manual_seed(0)
    decoder = Decoder(ModelConfig(**SHAPE, qk_norm=False))
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    save(tmp_path / "start", decoder, encoder(), version=0)
    write_extended(tmp_path / "start", phase(256, **way), tmp_path / "more")
    write_extended(tmp_path / "start", phase(256, **way), tmp_path / "more")  # as a run that goes on does
    ours, _, _ = load(tmp_path / "more")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "more", dtype=torch.float32).eval()
    ids = torch.randint(0, SHAPE["vocab_size"], (1, 200))
    with torch.no_grad():
        assert (theirs(ids).logits - ours(ids)[0]).abs().max() < 2e-4
        assert (decoder(ids)[0] - ours(ids)[0]).abs().max() > 1e-2
    assert ours.config.max_positions == 256


@pytest.mark.parametrize("config", [Qwen3Config(), MistralConfig(), GemmaConfig()])
def test_a_family_of_rotary_positions_is_extended(config: Any) -> None:
    fields = json.loads(config.to_json_string(use_diff=False))
    longer = 4 * fields["max_position_embeddings"]
    found = extended(fields, phase(longer, rope="yarn"))
    assert found["rope_parameters"]["factor"] == 4 and found["max_position_embeddings"] == longer
    assert type(config)(**found).rope_parameters["rope_type"] == "yarn"


STRETCHED = RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=32)
PLAIN = ModelConfig(**SHAPE).to_hf()
LEARNT = GPT2Config().to_dict() | {"max_position_embeddings": 1024}
SEVERAL = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}


@pytest.mark.parametrize(
    ("fields", "way", "message"),
    [
        (
            GPT2Config().to_dict() | {"max_position_embeddings": 1024},
            {"rope": "yarn"},
            "a gpt2 has no rotary",
        ),
        (GPT2Config().to_dict(), {}, "does not say how many positions"),
        (PLAIN, {}, "rows of 256 tokens, and the qwen3 has 64 positions"),
        (PLAIN | {"max_position_embeddings": 512}, {"rope": "yarn"}, "yarn stretches 512 positions to more"),
        (
            ModelConfig(**SHAPE, rope_scaling=STRETCHED).to_hf(),
            {"rope": "yarn"},
            "already, by llama3",
        ),
        (PLAIN | {"rope_parameters": SEVERAL}, {"rope": "yarn"}, "of several kinds"),
    ],
)
def test_what_cannot_be_extended_is_refused(
    fields: dict[str, Any], way: dict[str, Any], message: str
) -> None:
    with pytest.raises(StateError, match=message):
        extended(fields, phase(256, **way))

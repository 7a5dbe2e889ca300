"""Tiny random checkpoints of the families that transformers knows, and rows to score."""

import random
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer as Inner
from tokenizers import models
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    OlmoeConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from ostinato.train.batch import ScoredRow
from ostinato.types import Routes

VOCABULARY = 96
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
}
FAMILIES = {
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama-untied": LlamaConfig(**SIZES, tie_word_embeddings=False),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=False),
    "qwen3": Qwen3Config(**SIZES, tie_word_embeddings=True),
}
SOME = {name: size for name, size in SIZES.items() if name != "head_dim"}
EXPERTS, CHOSEN = 4, 2
CHOICE = {"num_experts": EXPERTS, "num_experts_per_tok": CHOSEN, "tie_word_embeddings": False}
ROUTED = {
    "qwen3_moe": Qwen3MoeConfig(**SIZES, **CHOICE, moe_intermediate_size=16, norm_topk_prob=True),
    "qwen2_moe": Qwen2MoeConfig(
        **SOME, **CHOICE, moe_intermediate_size=16, shared_expert_intermediate_size=16
    ),
    "olmoe": OlmoeConfig(**SOME, **CHOICE),
}
"""Families whose experts transformers fuses into one tensor a layer."""


def checkpoint(directory: Path, config: PretrainedConfig = FAMILIES["llama"], seed: int = 0) -> Path:
    """Write a random checkpoint whose distribution is not flat."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(directory)
    Inner(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, "w0")).save(
        str(directory / "tokenizer.json")
    )
    return directory


def rows(count: int, *, prefix: int = 0, seed: int = 0) -> list[ScoredRow]:
    """Random rows that begin with the same `prefix` tokens, which are not scored."""
    rng = random.Random(seed)
    shared = tuple(rng.randrange(VOCABULARY) for _ in range(prefix))
    return [_row(shared, rng) for _ in range(count)]


def routed(given: ScoredRow, seed: int = 0) -> ScoredRow:
    """The row with random routes of the families above, of all its tokens but the last."""
    rng = random.Random(seed)
    layers = SIZES["num_hidden_layers"]
    chosen = [rng.sample(range(EXPERTS), CHOSEN) for _ in range((len(given.ids) - 1) * layers)]
    data = b"".join(expert.to_bytes(2, "little") for pair in chosen for expert in pair)
    return replace(given, routes=Routes(data=data, width=layers * CHOSEN))


def _row(shared: tuple[int, ...], rng: random.Random) -> ScoredRow:
    length = rng.randint(3, 30)
    ids = shared + tuple(rng.randrange(VOCABULARY) for _ in range(length))
    counted = (False,) * len(shared) + tuple(rng.random() < 0.5 for _ in range(length - 1)) + (True,)
    return ScoredRow(ids=ids, counted=counted, temperatures=(rng.choice((0.5, 1.0)),) * len(ids))

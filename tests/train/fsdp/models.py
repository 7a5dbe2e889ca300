"""Tiny random checkpoints of the families that transformers knows, and rows to score."""

import random
from pathlib import Path

import torch
from tokenizers import Tokenizer as Inner
from tokenizers import models
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from ostinato.train.batch import ScoredRow

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


def _row(shared: tuple[int, ...], rng: random.Random) -> ScoredRow:
    length = rng.randint(3, 30)
    ids = shared + tuple(rng.randrange(VOCABULARY) for _ in range(length))
    counted = (False,) * len(shared) + tuple(rng.random() < 0.5 for _ in range(length - 1)) + (True,)
    return ScoredRow(ids=ids, counted=counted, temperatures=(rng.choice((0.5, 1.0)),) * len(ids))

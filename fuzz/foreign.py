"""Tiny checkpoints with random weights in the form in which others publish theirs."""

from itertools import islice
from pathlib import Path

import torch
import transformers

from ostinato.loop.config import RunConfig
from ostinato.loop.stages.prepare import corpus
from ostinato.model.tokenizer import Tokenizer

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}


def checkpoint(directory: Path, family: str, **more: float) -> Path:
    """Write a checkpoint of a `family` of transformers, such as `Qwen3`, with a ChatML tokenizer; `more` are
    settings of its shape."""
    tokenizer = Tokenizer.train(islice(corpus(RunConfig()), 2000), 512)
    tokenizer.save(directory)
    torch.manual_seed(0)
    shape = getattr(transformers, f"{family}Config")(vocab_size=tokenizer.vocab_size, **(SIZES | more))
    getattr(transformers, f"{family}ForCausalLM")(shape).save_pretrained(directory)
    return directory

"""The start checkpoint of a week: our decoder without a layer, a table of the next token by the last one.

It is a checkpoint like any other: the shipped trainer learns from it, publishes it and puts it back. Each
view is a direction of its own at first, so the kinds of request are learnt apart until training mixes them.
"""

import json
import math
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ostinato.demo.week.words import ACTS, AT_FIRST, TEXT_OF_VIEW, TEXTS, VIEWS, Words
from ostinato.model.config import META, ModelConfig
from ostinato.model.tokenizer import Tokenizer

NEVER = -16.0
"""The logit of a token that is no act of its turn."""
BYTES_AND_SPECIALS = 259


def write_start(directory: Path, likely: dict[str, float] | None = None) -> None:
    """Write the checkpoint unless it is there; `likely` replaces the first chances of some acts."""
    from ostinato.model.checkpoint import finish

    if (directory / META).exists():
        return
    texts = [*TEXTS.values(), *TEXT_OF_VIEW.values()]
    tokenizer = Tokenizer.train(texts, BYTES_AND_SPECIALS + len(texts), texts)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(directory)
    size = len(VIEWS)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=size,
        layers=0,
        heads=1,
        kv_heads=1,
        head_dim=size,
        intermediate_size=size,
        tied=False,
    )
    (directory / "config.json").write_text(json.dumps(config.to_hf()))
    save_file(_tensors(Words.of(tokenizer), config, likely or {}), directory / "model.safetensors")
    finish(directory, version=0, harness="week")


def _tensors(words: Words, config: ModelConfig, likely: dict[str, float]) -> dict[str, np.ndarray]:
    """Return weights whose logits are the logarithms of the first chances."""
    size = config.hidden_size
    embedding = np.zeros((config.vocab_size, size), dtype=np.float32)
    head = np.full((config.vocab_size, size), NEVER / math.sqrt(size), dtype=np.float32)
    for place, view in enumerate(VIEWS):
        embedding[words.views[view], place] = 1.0
        for act in ACTS[view[0]]:
            chance = likely.get(act.value, AT_FIRST[act])
            head[words.token_of[act], place] = math.log(chance) / math.sqrt(size)
    return {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": np.ones(size, dtype=np.float32),
        "lm_head.weight": head,
    }

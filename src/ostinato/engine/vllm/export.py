"""The export of a checkpoint for vLLM: the same weights, with an output matrix that is a tensor of its own.

vLLM does not load a tied output matrix again when weights are updated (`worker.py`), so none is tied.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from ostinato.model.decoder import Decoder
from ostinato.model.tensor_files import CONFIG, write_tensors
from ostinato.model.tokenizer import Tokenizer

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def export(decoder: Decoder, tokenizer: Tokenizer, directory: Path) -> dict[str, Tensor]:
    """Write a model for vLLM and return its weights. Raises ModelConfigError, OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    words = decoder.config.to_hf() | {"tie_word_embeddings": False}
    (directory / CONFIG).write_text(json.dumps(words, indent=2) + "\n")
    tokenizer.save(directory)
    tensors = {name: tensor.clone() for name, tensor in untied(decoder.state_dict()).items()}
    write_tensors(directory, tensors.items())
    return tensors


def untied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with an output matrix: the embedding, where the model has none of its own."""
    return {HEAD: tensors[EMBEDDING], **tensors}

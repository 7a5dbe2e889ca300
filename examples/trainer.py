"""A trainer: our own decoder, whose embedding stays what it was, so that rare words are not unlearnt.

[trainer]
kind = "still_words"
"""

from pathlib import Path

import ostinato as o
from ostinato.model.checkpoint import load
from ostinato.train.local import DecoderModel


@o.trainer("still_words")
def still_words(checkpoint: Path, run_dir: Path, config: o.TrainerConfig) -> o.Trainable:
    """Return the weights of a checkpoint with their optimizer; versions and what follows a kill stay ours."""
    decoder, _, _ = load(checkpoint)
    decoder.embedding.requires_grad_(False)
    return DecoderModel(decoder, run_dir, piece_tokens=config.piece_tokens)

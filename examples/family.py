"""A family: base models without a chat template, which the team taught the format of our own checkpoints.

A file `format` with the word `hermes` beside the weights marks them.
"""

from pathlib import Path

import ostinato as o
from ostinato.model.families import HermesRenderer


@o.family("marked")
def marked(directory: Path, tokenizer: o.Tokenizer) -> o.Renderer | None:
    """Return the renderer of a marked checkpoint, None for any other."""
    mark = directory / "format"
    return HermesRenderer(tokenizer) if mark.is_file() and mark.read_text().strip() == "hermes" else None

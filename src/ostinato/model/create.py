"""The creation of a model with random weights: `python -m ostinato.model.create DIR --config JSON`.

It runs as a process of its own, so that its caller need not import torch.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

from ostinato.model.checkpoint import save
from ostinato.model.config import ModelConfig, ModelConfigError
from ostinato.model.decoder import Decoder
from ostinato.model.tensor_files import CheckpointError
from ostinato.model.tokenizer import Tokenizer, TokenizerError


def create(directory: Path, config: ModelConfig, seed: int, harness: str = "") -> None:
    """Write the checkpoint of version 0 into `directory`, which holds `tokenizer.json`.

    Raises CheckpointError, TokenizerError.
    """
    tokenizer = Tokenizer.load(directory)
    torch.manual_seed(seed)
    save(directory, Decoder(config), tokenizer, version=0, harness=harness)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ostinato.model.create")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--config", required=True, help="the fields of ModelConfig as a JSON object")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--harness", default="", help="hash of the profile it will be trained under")
    options = parser.parse_args()
    try:
        create(options.directory, ModelConfig(**json.loads(options.config)), options.seed, options.harness)
    except (CheckpointError, ModelConfigError, TokenizerError, TypeError, ValueError) as error:
        print(f"no model was made: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

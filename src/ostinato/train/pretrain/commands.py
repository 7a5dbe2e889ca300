"""`ostinato pretrain`: a checkpoint trained further on a corpus, as a file says."""

import argparse
from pathlib import Path
from typing import Any

from ostinato import extras


def register(commands: Any) -> None:
    """Add the command to the subparsers of `ostinato`."""
    parser = commands.add_parser("pretrain")
    parser.add_argument("file", type=Path, help="TOML file with start, corpus, out and phases")
    parser.set_defaults(run=_pretrain)


def _pretrain(options: argparse.Namespace) -> int:
    for module in ("torch", "safetensors"):
        extras.need(module, "`ostinato pretrain`")
    from ostinato.train.pretrain.run import main

    return main(["--config", str(options.file)])

"""`ostinato data build`: a corpus from a file of settings."""

import argparse
from pathlib import Path
from typing import Any

from ostinato import extras
from ostinato.config import load
from ostinato.data.build import LoadEncoder, TaskTexts, build
from ostinato.data.config import CorpusConfig


def register(commands: Any, *, encoder: LoadEncoder, texts: TaskTexts) -> None:
    """Add the command. `encoder` reads the tokenizer of a checkpoint, `texts` what tasks are measured by."""
    group = commands.add_parser("data").add_subparsers(required=True, metavar="COMMAND")
    parser = group.add_parser("build", help="make a corpus to pretrain on, with its card")
    parser.add_argument("file", type=Path, help="TOML file with sources, tokenizer and filters")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the corpus, a new one")
    parser.set_defaults(run=lambda options: _build(options, encoder, texts))


def _build(options: argparse.Namespace, encoder: LoadEncoder, texts: TaskTexts) -> int:
    for module in ("license_expression", "rensa"):
        extras.need(module, "`ostinato data build`")
    build(load(CorpusConfig, options.file), options.out, encoder, texts)
    print((options.out / "card.md").read_text(), end="")  # noqa: T201
    return 0

"""`ostinato search serve`: the search service, by hand."""

import argparse
from pathlib import Path
from typing import Any

from ostinato.config import secret
from ostinato.web.port import port


def register(group: Any) -> None:
    """Add `serve` to the subparsers of `ostinato search`."""
    serve = group.add_parser("serve", help="serve searches to agents")
    serve.add_argument("--cache", type=Path, default=Path("runs/search.db"), help="file of embeddings")
    serve.add_argument(
        "--key-file", type=Path, default=None, help="a file with a key that may search (or set OSTINATO_KEY)"
    )
    serve.add_argument("--store", default="", help="the gateway's store: its keys may search")
    serve.add_argument("--model", default="hashed", help="hashed, or minilm, which the extra `search` brings")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on")
    serve.add_argument("--port", type=port, default=8090, help="0 takes a free one")
    serve.add_argument("--max-mb", type=int, default=2048, help="size of the cache")
    serve.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    from ostinato.search.config import SearchConfig
    from ostinato.search.server import serve

    names = ("cache", "store", "model", "host", "port", "max_mb")
    chosen = {name: getattr(options, name) for name in names}
    return serve(SearchConfig(key=secret(options.key_file, "OSTINATO_KEY"), **chosen))

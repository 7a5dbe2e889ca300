"""`ostinato search query`: one search by meaning, from a running service or from an index made for it."""

import argparse
import asyncio
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ostinato.config import ConfigError, secret
from ostinato.harness.providers.base import Hit
from ostinato.harness.providers.search import SearchAt, content_hash, contents, cut_out
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.base import Spec
from ostinato.search.config import SearchConfig
from ostinato.search.server import open_index
from ostinato.web.plain import clean

MOST_LINES = 12
"""The lines of a hit that are printed; JSON has all of them."""
DONE = 0


def register(group: Any) -> None:
    """Add `query` to the subparsers of `ostinato search`."""
    query = group.add_parser("query", help="search a folder by meaning, as the agent's tool does")
    query.add_argument("query", help="what to look for, in words")
    query.add_argument("--directory", type=Path, default=Path(), help="the folder (default: here)")
    query.add_argument("--path", default=".", help="only files at or below this path of the folder")
    query.add_argument("--k", type=int, default=5, help="the most hits (default: 5)")
    query.add_argument(
        "--url",
        default=os.environ.get("OSTINATO_SEARCH_URL"),
        help="a running `ostinato search serve` (or OSTINATO_SEARCH_URL); without one an index is made",
    )
    query.add_argument("--key-file", type=Path, help="a file with the service's key (or set OSTINATO_KEY)")
    query.add_argument("--cache", type=Path, help="without --url: a file of embeddings to use and to keep")
    query.add_argument("--model", default="hashed", help="without --url: hashed, or minilm")
    query.add_argument("--json", action="store_true", help="print the hits as one JSON object")
    query.set_defaults(run=_query)


def _query(options: argparse.Namespace) -> int:
    hits, files = asyncio.run(_found(options))
    if options.json:
        print(json.dumps({"query": options.query, "files": files, "hits": [asdict(hit) for hit in hits]}))  # noqa: T201
        return DONE
    print("\n\n".join(map(_shown, hits)) or f"nothing in {files} files is close to these words")  # noqa: T201
    return DONE


async def _found(options: argparse.Namespace) -> tuple[Sequence[Hit], int]:
    """Return the hits, the best first, and the number of files that were searched."""
    backend = ProcessBackend(in_place=True)
    try:
        sandbox = await backend.create(Spec(repo=options.directory))
        files = await contents(sandbox)
        if options.url is None:
            return await asyncio.to_thread(_in_place, options, files), len(files)
        if not (key := secret(options.key_file, "OSTINATO_KEY")):
            raise ConfigError(
                f"{options.url} wants an API key: set OSTINATO_KEY, or name a file with --key-file"
            )
        search = SearchAt(url=options.url, key=key).of(sandbox)
        return await search.search(options.query, path=options.path, k=options.k), len(files)
    finally:
        await backend.aclose()


def _in_place(options: argparse.Namespace, files: Mapping[str, bytes]) -> list[Hit]:
    """Return the hits of an index over these files: in the cache that is named, or in one that goes."""
    with tempfile.TemporaryDirectory(prefix="ostinato-search-") as scratch:
        cache = options.cache or Path(scratch) / "search.db"
        index = open_index(SearchConfig(cache=cache, model=options.model))
        try:
            tree, missing = index.register({path: content_hash(data) for path, data in files.items()})
            index.add((path, files[path]) for path in missing)
            places = index.query(tree, options.query, path=options.path, k=options.k)
        finally:
            index.close()
    return [cut_out(asdict(place), files[place.path]) for place in places]


def _shown(hit: Hit) -> str:
    """Return a hit as its place and its lines, none of which can move a reader's cursor."""
    lines = clean(hit.text).split("\n")
    more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return "\n    ".join([f"{clean(hit.path)}:{hit.first}-{hit.last}", *lines[:MOST_LINES], *more])

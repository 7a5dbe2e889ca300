"""`ostinato search serve`: one process that prints one JSON line when it listens."""

import asyncio
import hashlib
import hmac
import json
import signal
import socket
import sqlite3
import sys
from collections.abc import Sequence

import uvicorn

from ostinato.config import settings_of
from ostinato.search.app import Authenticate, create_app
from ostinato.search.cache import Cache
from ostinato.search.config import SearchConfig
from ostinato.search.embed import Embedding, HashedEmbedding
from ostinato.search.index import Index
from ostinato.store import Store, StoreError
from ostinato.types import Role
from ostinato.web.protocol import LIMITS, allow_connections, listen

DONE, WRONG = 0, 2
BACKLOG = 512
MODELS = ("hashed", "minilm")


class ServeError(Exception):
    """The service cannot start; the message says what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve with the settings from the table of a run's file; return the exit status."""
    return serve(settings_of(SearchConfig, arguments, "python -m ostinato.search.server", __doc__))


def serve(config: SearchConfig) -> int:
    """Serve until SIGTERM or SIGINT. Return exit status 2, after one line on stderr, when it cannot start."""
    try:
        authenticate = _authenticator(config)
        index = open_index(config)
        listener = listen(config.host, config.port, BACKLOG)
    except (ServeError, StoreError, OSError, sqlite3.Error) as error:
        print(f"ostinato: {error}", file=sys.stderr)  # noqa: T201
        return WRONG
    try:
        asyncio.run(_run(index, authenticate, listener))
    finally:
        index.close()
    return DONE


def open_index(config: SearchConfig) -> Index:
    """Return the index over a cache on disk. Raises ServeError for an unknown or missing model."""
    return Index(Cache(config.cache, config.max_mb * 2**20), _embedding(config.model))


def _embedding(model: str) -> Embedding:
    if model == "hashed":
        return HashedEmbedding()
    if model == "minilm":
        from ostinato.search.minilm import ModelError, load_packaged

        try:
            return load_packaged()
        except ModelError as error:
            raise ServeError(str(error)) from error
    raise ServeError(f"unknown model {model}, use {' or '.join(MODELS)}")


def _authenticator(config: SearchConfig) -> Authenticate:
    """Return a function that accepts the configured key, and every key of the store that may be used."""
    if not config.key and not config.store:
        raise ServeError(
            "no API key: set OSTINATO_KEY, give --key-file, or name the gateway's store with --store"
        )
    store = Store.open(config.store) if config.store else None

    async def authenticate(key: str) -> bool:
        given = key.encode(errors="surrogatepass")
        if config.key and hmac.compare_digest(given, config.key.encode()):
            return True
        digest = hashlib.sha256(given).hexdigest()
        known = await asyncio.to_thread(store.key, digest) if store is not None else None
        return known is not None and known.may(Role.USE)

    return authenticate


async def _run(index: Index, authenticate: Authenticate, listener: socket.socket) -> None:
    asgi = uvicorn.Config(
        create_app(index, authenticate),
        access_log=False,
        log_level="warning",
        lifespan="off",
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=5,
        **LIMITS,
    )
    allow_connections()
    server = uvicorn.Server(asgi)
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again once it has shut down
        signal.signal(number, lambda *_: sys.exit(DONE))
    print(json.dumps({"ready": True, "port": listener.getsockname()[1]}), flush=True)  # noqa: T201
    await server.serve(sockets=[listener])


if __name__ == "__main__":
    sys.exit(main())

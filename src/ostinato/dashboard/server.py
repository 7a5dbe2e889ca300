"""The server of the pages: on loopback unless told otherwise, with the limits of all our servers."""

import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from ostinato.dashboard.access import Doorkeeper
from ostinato.dashboard.app import create_app
from ostinato.dashboard.reading.base import LoopSide, RecordSource, RegionCopy
from ostinato.dashboard.text.lexicon import Lexicon
from ostinato.store import Store, StoreError
from ostinato.store.config import record_of
from ostinato.web.protocol import LIMITS, allow_connections, listen

BACKLOG = 128


class DashboardError(Exception):
    """The dashboard cannot start; the message says what to do."""


def open_reading(
    store: str,
    checkpoint: Path | None,
    *,
    directory: Path | None = None,
    loop: LoopSide | None = None,
    beside: Sequence[Path] = (),
    regions: Sequence[RegionCopy] = (),
) -> RecordSource:
    """Return the record at a SQLite file or a database URL, and the tokenizer of its texts if there is one.

    `directory` is its run folder; `beside` are the folders of other runs; `regions` are asked
    when the fleet is shown. Raises DashboardError when there is
    no record, StoreError when it cannot be read, TokenizerError for a checkpoint without a tokenizer.
    """
    lexicon = None if checkpoint is None else Lexicon.load(checkpoint)
    others = tuple(
        RecordSource(store=_open(record_of(each)), lexicon=None, name=each.name, directory=each)
        for each in beside
    )
    return RecordSource(
        store=_open(store),
        lexicon=lexicon,
        name=directory.name if directory else "this run",
        directory=directory,
        loop=loop,
        beside=others,
        regions=tuple(regions),
    )


def _open(store: str) -> Store:
    if "://" not in store and not Path(store).exists():
        raise DashboardError(
            f"{store} does not exist: run `ostinato demo`, or name a record with --store or --directory"
        )
    return Store.open(store)


def server_of(
    reading: RecordSource, doorkeeper: Doorkeeper, allowed_hosts: tuple[str, ...] = ()
) -> uvicorn.Server:
    """Return a server that is not started yet."""
    config = uvicorn.Config(
        create_app(reading, doorkeeper, allowed_hosts),
        access_log=False,
        log_level="warning",
        lifespan="off",
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=1,
        **LIMITS,
    )
    allow_connections()
    return uvicorn.Server(config)


def entrance(listener: socket.socket, doorkeeper: Doorkeeper) -> str:
    """Return the address that lets the person in who started the server."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/enter?ticket={doorkeeper.ticket}"


def serve(
    reading: RecordSource, host: str, port: int, allowed_hosts: tuple[str, ...], say: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT, after `say` was called with the address. Raises DashboardError."""
    doorkeeper = Doorkeeper(reading.store)
    try:
        listener = listen(host, port, BACKLOG)
    except OSError as error:
        raise DashboardError(f"{error}: name another port with --port, 0 takes a free one") from error
    say(entrance(listener, doorkeeper))
    server = server_of(reading, doorkeeper, allowed_hosts)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        listener.close()
        reading.close()


__all__ = ["DashboardError", "StoreError", "entrance", "open_reading", "serve", "server_of"]

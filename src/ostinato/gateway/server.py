"""`python -m ostinato.gateway.server`: one gateway process; prints one JSON line when it answers."""

import argparse
import asyncio
import gc
import json
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from ostinato.gateway.app import GatewayConfig, create_app
from ostinato.gateway.harness_check import trained_under
from ostinato.model.renderer import Renderer, RenderError
from ostinato.model.tokenizer import Tokenizer, TokenizerError
from ostinato.store import Store, StoreError
from ostinato.web.protocol import LIMITS, allow_connections
from ostinato.web.secret import take_secret

USAGE_ERROR = 2
BACKLOG = 2048
SWITCH_S = 0.0005
"""How long the recorder's thread may keep answers waiting for the interpreter."""
SELDOM = (3_000, 10, 1_000)
"""Allocations before a young collection, young ones before a middle one, middle ones before a full one.

A middle one of 200,000 objects, as (10_000, 20, …) makes them, stops every answer for 20 ms.
"""


class _Server(uvicorn.Server):
    """Says on stdout where it listens, once it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if sockets and not self.should_exit:
            print(json.dumps({"ready": True, "port": sockets[0].getsockname()[1]}), flush=True)  # noqa: T201


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM or SIGINT. Exit status 2 and one line on stderr when it cannot start."""
    options = _parser().parse_args(arguments)
    try:
        renderer = Renderer(Tokenizer.load(options.checkpoint))
        store = Store.open(options.store)
        harness = trained_under(options.checkpoint)
        listener = _listen(options.host, options.port)
    except (TokenizerError, RenderError, StoreError, OSError) as error:
        print(f"gateway: {error}", file=sys.stderr)  # noqa: T201
        return USAGE_ERROR
    config = GatewayConfig(
        salt=options.salt,
        engine_wait_s=options.engine_wait,
        aliases=tuple(options.alias or ()),
        secrets=options.secrets,
        allowed_hosts=tuple(options.allow_host or ()),
        engine_secret=take_secret(),
        harness=harness,
    )
    asgi = uvicorn.Config(
        create_app(store, renderer, config),
        loop="uvloop",
        access_log=False,
        proxy_headers=False,
        ws="none",
        log_level="warning",
        lifespan="on",
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=5,
        **LIMITS,
    )
    allow_connections()
    _keep_pauses_short()
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again once it has shut down
        signal.signal(number, lambda *_: sys.exit(0))
    try:
        with asyncio.Runner(loop_factory=asgi.get_loop_factory()) as runner:
            runner.run(_Server(asgi).serve(sockets=[listener]))
    finally:
        store.close()
    return 0


def _keep_pauses_short() -> None:
    """What stops every answer at once: the recorder's thread holding the interpreter, and full collections.

    Collecting what was loaded at the start takes tens of milliseconds and frees nothing.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)


def _listen(host: str, port: int) -> socket.socket:
    try:
        listener = socket.create_server((host, port), backlog=BACKLOG)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    listener.setblocking(False)
    return listener


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ostinato.gateway.server", description=__doc__)
    parser.add_argument("--store", required=True, help="SQLite file or database URL")
    parser.add_argument("--checkpoint", required=True, type=Path, help="directory with tokenizer.json")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--salt", default=GatewayConfig().salt, help="of the hash that assigns arms")
    parser.add_argument("--alias", action="append", help="another name of the model, such as 'claude-*'")
    parser.add_argument(
        "--allow-host", action="append", help="name under which a proxy here passes requests on"
    )
    parser.add_argument(
        "--secrets",
        choices=["withhold", "replace"],
        default=GatewayConfig().secrets,
        help="hide them from the record, or already from the model",
    )
    parser.add_argument("--engine-wait", type=float, default=GatewayConfig().engine_wait_s, help="seconds")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""`python -m ostinato.gateway.server`: one gateway process, which prints one JSON line once it listens."""

import asyncio
import gc
import json
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace

import uvicorn

from ostinato.config import settings_of
from ostinato.gateway.app import create_app
from ostinato.gateway.config import GatewayServerConfig
from ostinato.gateway.harness_check import trained_under
from ostinato.model.families import RenderError, load_renderer
from ostinato.model.tokenizer import TokenizerError
from ostinato.store import Store, StoreError
from ostinato.web.protocol import LIMITS, allow_connections, listen
from ostinato.web.secret import take_secret

USAGE_ERROR = 2
BACKLOG = 2048
SWITCH_S = 0.0005
"""Seconds for which the recorder's thread may hold the interpreter while replies wait."""
GC_THRESHOLDS = (6_000, 5, 1_000)
"""The thresholds of the three generations, for `gc.set_threshold`.

They keep collections small and rare. With (10_000, 20, …) one of the middle generation visits 200,000 objects
and stops every reply for 20 ms; with 3_000 the objects of 32 requests under way begin one again and again.
"""


class _Server(uvicorn.Server):
    """A server that prints its port on stdout once it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if sockets and not self.should_exit:
            print(json.dumps({"ready": True, "port": sockets[0].getsockname()[1]}), flush=True)  # noqa: T201


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Return 2, after one line on stderr, when it cannot start."""
    config = settings_of(GatewayServerConfig, arguments, "python -m ostinato.gateway.server", __doc__)
    try:
        renderer = load_renderer(config.checkpoint)
        store = Store.open(config.store)
        harness = config.harness or trained_under(config.checkpoint)
        listener = listen(config.host, config.port, BACKLOG)
    except (TokenizerError, RenderError, StoreError, OSError) as error:
        print(f"gateway: {error}", file=sys.stderr)  # noqa: T201
        return USAGE_ERROR
    config = replace(config, engine_secret=take_secret(), harness=harness)
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
    """Shorten the two things that stop every reply at once: a thread that holds the interpreter, and
    collections.

    Objects loaded at the start are frozen, because visiting them takes tens of milliseconds and frees
    nothing.
    """
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


if __name__ == "__main__":
    sys.exit(main())

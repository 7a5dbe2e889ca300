"""The server processes: a node, or a front. Each prints one JSON line once it serves."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from ostinato.fleet.client.client import BUFFER, SandboxClient
from ostinato.fleet.scheduler.node import BUSY, Overcommit
from ostinato.fleet.scheduler.pressure import Gauge
from ostinato.fleet.scheduler.types import Pressure
from ostinato.fleet.scheduler.warm_pool import WarmPool
from ostinato.fleet.server.access import open_access
from ostinato.fleet.server.control import DEFAULT_LIMITS, SandboxRequest
from ostinato.fleet.server.fleet import Fleet
from ostinato.fleet.server.front import create_front
from ostinato.fleet.server.local_node import LocalNode, inherited
from ostinato.fleet.server.node import create_node
from ostinato.fleet.server.sandboxes import HostedSandboxes
from ostinato.fleet.server.templates import Templates
from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.choose import choose_backend
from ostinato.sandbox.files.snapshots import load_complete
from ostinato.web.protocol import LIMITS, allow_connections

DONE, WRONG = 0, 2
ADDRESS = "server.json"
GRACE_S = 5
KEEP_ALIVE_S = 75
"""Longer than clients keep an idle connection, so that they do not write into one that is being closed."""
RESPONSE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """The settings of a node.

    >>> NodeConfig(state=Path("runs/node")).backend
    'auto'
    """

    state: Path
    """The directory of the keys and the secret, and of the templates unless they lie elsewhere."""
    backend: str = "auto"
    templates: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    """0 takes a free one."""
    fd: int | None = None
    """A listening socket that a front passed down, instead of host and port."""
    name: str = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontConfig:
    """The settings of a front.

    >>> FrontConfig(state=Path("runs/sandbox")).nodes
    {}
    """

    state: Path
    host: str = "127.0.0.1"
    port: int = 8070
    """0 takes a free one."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """The URL and the key of each node; without any here or below, the front runs one on this machine."""
    node_states: tuple[Path, ...] = ()
    """The state directories of nodes that serve already, where their addresses and keys are read."""
    backend: str = "auto"
    """The backend of the node on this machine."""
    overcommit: Overcommit = field(default_factory=Overcommit)
    cpu_limit: float = BUSY.cpu
    """Busy share of a node's cores from which on it takes no more; above 1 a busy CPU refuses nothing."""
    pools: Mapping[str, int] = field(default_factory=dict)
    """The number of sandboxes that are kept ready, by template."""


def run(serving: Coroutine[None, None, None]) -> int:
    """Serve until stopped. Return exit status 2, after one line on stderr, when the server cannot start."""
    try:
        asyncio.run(serving)
    except (SandboxError, OSError, ValueError) as error:
        print(f"ostinato: {error}", file=sys.stderr)  # noqa: T201
        return WRONG
    return DONE


async def serve_node(config: NodeConfig) -> None:
    """Serve until SIGTERM or SIGINT. Raises SandboxError, OSError, ValueError when it cannot start."""
    access = open_access(config.state)
    snapshots = config.state / "snapshots"
    backend = await choose_backend(config.backend, snapshots)
    listener = listen(config.host, config.port) if config.fd is None else inherited(config.fd)
    templates = Templates(config.templates or config.state / "templates")
    sandboxes = HostedSandboxes(backend, templates, config.name)
    if saved := load_complete(snapshots):
        await asyncio.to_thread(sandboxes.adopt, saved)
    orphaned = asyncio.create_task(_end_with_parent()) if config.fd is not None else None
    await _serve(create_node(sandboxes, access, Gauge(config.state)), listener, config.state)
    if orphaned is not None:
        orphaned.cancel()


async def _end_with_parent() -> None:
    """End this node when the front that started it has ended, even if it was killed."""
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 - the kernel sets no event
        await asyncio.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


async def serve_front(config: FrontConfig) -> None:
    """Serve as `serve_node` does. A node of this machine lives and dies with the front."""
    access = open_access(config.state)
    listener = listen(config.host, config.port)
    templates = Templates(config.state / "templates")
    pools = {
        template: WarmPool(size=SandboxRequest(id="", template="", limits=DEFAULT_LIMITS).size, ready=ready)
        for template, ready in config.pools.items()
    }
    local = None
    nodes = [SandboxClient(url, key) for url, key in config.nodes.items()]
    nodes += [_client_of(each) for each in config.node_states]
    if not nodes:
        local = LocalNode(config.state / "node", config.backend, config.state / "templates")
        nodes = [SandboxClient(local.url, local.key)]
    fleet = Fleet(nodes, templates, overcommit=config.overcommit, busy=_busy(config.cpu_limit), pools=pools)
    app = create_front(fleet, access)
    if local is None:
        await _serve(app, listener, config.state)
    else:
        await _beside(local, nodes[0], app, listener, config.state)


def _client_of(state: Path) -> SandboxClient:
    """Return a client of the node with this state directory. Raises OSError, ValueError when none serves."""
    return SandboxClient(json.loads((state / ADDRESS).read_text())["url"], (state / "key").read_text())


def _busy(cpu_limit: float) -> Pressure:
    stalls = (1.0 if cpu_limit > 1 else BUSY.stalls[0], *BUSY.stalls[1:])
    return Pressure(cpu=cpu_limit, memory=BUSY.memory, disk=BUSY.disk, stalls=stalls)


async def _beside(
    local: LocalNode, client: SandboxClient, app: Starlette, listener: socket.socket, state: Path
) -> None:
    """Run the node of this machine, and serve once it responds."""
    keeper = asyncio.create_task(local.keep_alive())
    try:
        async with asyncio.timeout(RESPONSE_S):
            await _wait_for(client)
        await _serve(app, listener, state)
    except TimeoutError:
        raise SandboxError(f"the node on this machine did not respond within {RESPONSE_S:g} s") from None
    finally:
        keeper.cancel()
        with suppress(asyncio.CancelledError):
            await keeper
        local.close()


async def _wait_for(client: SandboxClient) -> None:
    while True:
        with suppress(SandboxError):
            await client.call("GET", "/node", within_s=1.0)
            return
        await asyncio.sleep(0.05)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises an OSError that names the address."""
    try:
        listener = socket.create_server((host, port), backlog=1024)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)  # accepted connections inherit it
    listener.setblocking(False)
    return listener


async def _serve(app: Starlette, listener: socket.socket, state: Path) -> None:
    """Serve, and keep the address in `state` meanwhile."""
    config = uvicorn.Config(
        app,
        ws="none",
        access_log=False,
        log_level="warning",
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=KEEP_ALIVE_S,
        **LIMITS,
    )
    allow_connections()
    host, port = listener.getsockname()[:2]
    server, address = _Server(config), state / ADDRESS
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again once it has shut down
        signal.signal(number, lambda *_: sys.exit(0))
    server.announcement = {"ready": True, "url": f"http://{host}:{port}", "port": port}
    address.write_text(json.dumps(server.announcement))
    try:
        await server.serve(sockets=[listener])
    finally:
        address.unlink(missing_ok=True)
    if not server.started:
        raise SandboxError("the server did not start: see above")


class _Server(uvicorn.Server):
    """A uvicorn server that prints its address once it listens."""

    announcement: dict[str, object]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            print(json.dumps(self.announcement), flush=True)  # noqa: T201

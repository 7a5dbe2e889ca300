"""A proxy on a Unix socket, test servers behind it, and names that resolve as a test needs."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.sandbox.conftest import closed_at_the_end, opened

from ostinato.sandbox import Backend
from ostinato.sandbox.backends.namespaces.backend import NsBackend
from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress.proxy import Proxy

NAMES = {
    "good.test": ["127.0.0.1"],
    "other.test": ["127.0.0.1"],
    "a.b.good.test": ["127.0.0.1"],
    "inside.test": ["10.0.0.5"],
    "both.test": ["1.1.1.1", "169.254.169.254"],
    "mapped.test": ["::ffff:192.168.0.1"],
    "nowhere.test": [],
}
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def resolve(host: str, port: int) -> list[str]:
    if host not in NAMES:
        raise OSError(-2, "Name or service not known")
    return NAMES[host]


class Bench:
    """A proxy and a way to send requests through it."""

    def __init__(self, place: Path, proxy: Proxy) -> None:
        self._place = str(place)
        self.proxy = proxy

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(self._place)

    async def ask(self, text: str | bytes) -> bytes:
        """Send `text` and return the whole response; close our side after that."""
        reader, writer = await self.open()
        writer.write(text.encode() if isinstance(text, str) else text)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.01)
        return answer

    @property
    def refused(self) -> str | None:
        return self.proxy.connections[-1].refused


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    """Run a server on loopback; yield its port."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@asynccontextmanager
async def proxying(place: Path, policy: Egress) -> AsyncIterator[Bench]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(place))
    listener.listen()
    proxy = Proxy(policy, "s", resolve)
    await proxy.serve(listener)
    try:
        yield Bench(place, proxy)
    finally:
        await proxy.aclose()


@pytest.fixture(scope="session")
def resolving() -> Iterator[dict[str, Backend]]:
    """Return the backends with the names of these tests."""
    with closed_at_the_end() as found:
        yield found


@pytest.fixture
def backend(backends: dict[str, Backend], resolving: dict[str, Backend]) -> Backend:
    """Return the backend with egress, if it works on this machine."""
    opened("ns", backends)
    return resolving.setdefault("ns", NsBackend(resolve=resolve))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "egress.sock"

"""HTTP to one server of the E2B protocol: control calls, calls into a sandbox, files."""

import io
import json
import socket
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
from aiohappyeyeballs import AddrInfoType as AddrInfo

from ostinato.fleet.protocol import connect
from ostinato.sandbox.base import SandboxError

TIMEOUT_S = 60.0
SILENCE_S = 180.0
"""After so long without a byte a stream is broken: agents say every 50 to 90 seconds that they live."""
BUFFER = 32 * 1024
"""Bytes that a socket holds on each side."""
ENVD_PORT = "49983"
"""Where E2B's agent in a sandbox listens; names the agent in requests to a proxy."""


class RefusalError(SandboxError):
    """The server has no room now: come back after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class GoneError(SandboxError):
    """There is no such sandbox, template or snapshot (any more)."""


class ConflictError(SandboxError):
    """The sandbox is in another state."""


class Client:
    """One server, one key. Calls may run at the same time."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._key = key
        self._session: aiohttp.ClientSession | None = None
        self._keeper: AsyncGenerator[None, None] | None = None

    async def session(self) -> aiohttp.ClientSession:
        """Connections belong to an event loop: they are closed when it ends, and the next one has its own."""
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                headers={"X-API-Key": self._key},
                connector=aiohttp.TCPConnector(limit=0, socket_factory=_socket),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT_S),
                auto_decompress=False,
            )
            self._keeper = _until_the_loop_ends(self._session)
            await anext(self._keeper)
        return self._session

    async def aclose(self) -> None:
        if self._keeper is not None:
            await self._keeper.aclose()

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        data: bytes | None = None,
        params: Mapping[str, str] | None = None,
        within_s: float = TIMEOUT_S,
    ) -> Any:
        """A control call. Returns the JSON of the answer, None when it is empty.

        Raises RefusalError, GoneError, ConflictError, what the sandbox raised, and SandboxError when the
        server does not answer.
        """
        content = {"data": _stream(data)} if body is None else {"json": body}
        try:
            session = await self.session()
            async with session.request(
                method,
                self.url + path,
                params=params,
                timeout=aiohttp.ClientTimeout(total=within_s),
                **content,
            ) as response:
                text = await response.read()
                if response.status >= 400:
                    raise _control_error(response, text)
                return json.loads(text) if text else None
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise SandboxError(f"{self.url} did not answer {method} {path}: {_words(error)}") from error

    async def rpc(self, sandbox: str, method: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """A unary call to the agent in a sandbox."""
        try:
            session = await self.session()
            async with session.post(f"{self.url}/{method}", json=message, headers=to(sandbox)) as response:
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SandboxError(f"{self.url} did not answer {method}: {_words(error)}") from error
        if response.status >= 400:
            raise _agent_error(text, response.status)
        return connect.parse(text)

    async def stream(
        self, sandbox: str, method: str, message: Mapping[str, Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """A call to the agent that answers with many messages."""
        headers = {**to(sandbox), "Content-Type": connect.STREAM, "Connect-Protocol-Version": "1"}
        try:
            session = await self.session()
            async with session.post(
                f"{self.url}/{method}",
                data=connect.pack(message),
                headers=headers,
                timeout=aiohttp.ClientTimeout(sock_connect=TIMEOUT_S, sock_read=SILENCE_S),
            ) as response:
                if response.status >= 400:
                    raise _agent_error(await response.read(), response.status)
                async for each in connect.messages(response.content.iter_any()):
                    yield each
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SandboxError(f"{self.url} broke off {method}: {_words(error)}") from error

    async def download(self, sandbox: str, path: str) -> bytes:
        return await self._file("GET", sandbox, path, None)

    async def upload(self, sandbox: str, path: str, data: bytes) -> None:
        await self._file("POST", sandbox, path, data)

    async def _file(self, method: str, sandbox: str, path: str, data: bytes | None) -> bytes:
        headers = {**to(sandbox), "Content-Type": "application/octet-stream"}
        try:
            session = await self.session()
            async with session.request(
                method, f"{self.url}/files", params={"path": path}, data=_stream(data), headers=headers
            ) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SandboxError(f"{self.url} did not carry {path!r}: {_words(error)}") from error
        if response.status >= 400:
            raise _agent_error(content, response.status)
        return content


def _stream(data: bytes | None) -> io.BytesIO | None:
    """Sent in pieces, so that other calls go on meanwhile."""
    return None if data is None else io.BytesIO(data)


def _socket(address: AddrInfo) -> socket.socket:
    """Little is under way between a command and a slow reader: the command feels it."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    return made


async def _until_the_loop_ends(session: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    """A loop closes the generators that were begun in it."""
    try:
        yield
    finally:
        await session.close()


def to(sandbox: str) -> dict[str, str]:
    """Headers that name the agent of a sandbox."""
    return {"E2b-Sandbox-Id": sandbox, "E2b-Sandbox-Port": ENVD_PORT}


def _control_error(response: aiohttp.ClientResponse, text: bytes) -> Exception:
    body = _object(text, response.status)
    message = str(body.get("message", text[:200]))
    match response.status:
        case 404:
            return GoneError(message)
        case 409:
            return ConflictError(message)
        case 429:
            in_whole_seconds = response.headers.get("Retry-After", "1")
            return RefusalError(message, float(body.get("retryAfterS", in_whole_seconds)))
    return connect.from_error(body)


def _agent_error(text: bytes, status: int) -> Exception:
    body = _object(text, status)
    if status == 502:
        return GoneError(str(body.get("message", "the sandbox is gone")))
    return connect.from_error(body)


def _object(text: bytes, status: int) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        return {"message": f"status {status}: {text[:200]!r}"}
    return body if isinstance(body, dict) else {"message": f"status {status}: {body!r}"}


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__

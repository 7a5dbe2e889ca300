"""The HTTP client of one E2B server: control calls, calls to a sandbox's agent, files."""

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
"""A stream without a byte for this long is broken: agents send a keepalive every 50 to 90 seconds."""
BUFFER = 32 * 1024
"""Bytes that a socket holds on each side."""
ENVD_PORT = "49983"
"""The port of E2B's agent in a sandbox; it names the agent in requests to a proxy."""


class RefusalError(SandboxError):
    """The server has no room now: try again after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class GoneError(SandboxError):
    """The sandbox, template or snapshot does not exist, or no longer."""


class ConflictError(SandboxError):
    """The sandbox is not in the state that the call needs."""


class SandboxClient:
    """A client of one server, with one key. Calls may run at the same time."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url.rstrip("/")
        self._key = key
        self._session: aiohttp.ClientSession | None = None
        self._keeper: AsyncGenerator[None, None] | None = None

    async def session(self) -> aiohttp.ClientSession:
        """Return the session of this event loop, which is closed when the loop ends."""
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
        """Make a control call. Return the JSON of the response, None when it is empty.

        Raises RefusalError, GoneError, ConflictError, the sandbox's own error, and SandboxError when the
        server does not respond.
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
            raise SandboxError(f"{self.url} did not respond to {method} {path}: {_words(error)}") from error

    async def rpc(self, sandbox: str, method: str, message: Mapping[str, Any]) -> dict[str, Any]:
        """Make a unary call to the agent in a sandbox."""
        try:
            session = await self.session()
            async with session.post(f"{self.url}/{method}", json=message, headers=to(sandbox)) as response:
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SandboxError(f"{self.url} did not respond to {method}: {_words(error)}") from error
        if response.status >= 400:
            raise _agent_error(text, response.status)
        return connect.parse(text)

    async def stream(
        self, sandbox: str, method: str, message: Mapping[str, Any]
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Make a call to the agent that responds with a stream of messages; yield them."""
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
    """Return data as a stream, which aiohttp sends in pieces, so that other calls go on meanwhile."""
    return None if data is None else io.BytesIO(data)


def _socket(address: AddrInfo) -> socket.socket:
    """Return a socket with a small receive buffer, so that a slow reader soon slows its command down."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    return made


async def _until_the_loop_ends(session: aiohttp.ClientSession) -> AsyncGenerator[None, None]:
    """Close the session when the event loop closes the generators that were started in it."""
    try:
        yield
    finally:
        await session.close()


def to(sandbox: str) -> dict[str, str]:
    """Return the headers that name the agent of a sandbox."""
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

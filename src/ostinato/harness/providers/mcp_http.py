"""The HTTP client for an MCP server: it breaks a reply off where it becomes too long to be kept in memory."""

from collections.abc import AsyncIterator, Mapping

import httpx2
from mcp.shared._httpx_utils import create_mcp_http_client


def bounded_client(headers: Mapping[str, str], longest: int) -> httpx2.AsyncClient:
    """Return the SDK's client, which reads at most `longest` bytes of a reply; it bounds events by itself.

    Replies are asked for as they are: what a compressed one becomes is known only when it fills the memory.
    """

    async def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx2.ProtocolError("the server compresses its replies, though it was asked not to")
        stream = response.stream
        if isinstance(stream, httpx2.AsyncByteStream) and not _is_of_events(response):
            response.stream = _Bounded(stream, longest)

    client = create_mcp_http_client(headers={**headers, "accept-encoding": "identity"})
    client.event_hooks = {"response": [bound]}
    return client


def _is_of_events(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").startswith("text/event-stream")


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, longest: int) -> None:
        self._stream = stream
        self._longest = longest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for piece in self._stream:
            length += len(piece)
            if length > self._longest:
                raise httpx2.ProtocolError("the reply is too long")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()

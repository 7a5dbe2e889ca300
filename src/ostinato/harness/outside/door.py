"""The door between a sandbox and the gateway: the only place that a harness in a sandbox can reach.

It listens on a Unix socket in a folder that one sandbox sees. A model call gets the gateway's key, the
session and its source; nothing else passes. So a harness needs no key, and cannot speak for another session.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from aiohttp import web

SOCKET = "model"
CALLS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
"""The paths of model calls, in the three dialects."""
LOOKS = ("/v1/models", "/v1/messages/count_tokens")
_LEFT_OUT = frozenset(
    {
        *("host", "connection", "content-length", "transfer-encoding", "keep-alive", "upgrade", "expect"),
        *("authorization", "x-api-key", "cookie", "accept-encoding"),
        *("x-session-id", "x-session-source", "x-task-id", "x-turn", "x-harness-hash"),
    }
)
"""Headers of a harness that do not pass: of the connection, of identity, and those that the door sets."""
_MOST_BYTES = 64 << 20
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=600)


@dataclass(slots=True)
class ModelDoor:
    """The door of one session; `headers` hold the gateway's key and the identity of the session."""

    url: str
    headers: Mapping[str, str]
    http: aiohttp.ClientSession
    max_turns: int
    calls: int = 0
    """Model calls that the gateway responded to."""
    refused: int = 0
    """Model calls beyond `max_turns`."""
    failure: str | None = field(default=None)
    """The reason why the last call was not responded to, a failure of ours; None when it was."""

    @asynccontextmanager
    async def open(self, folder: Path) -> AsyncIterator[None]:
        """Listen in `folder` until the block ends."""
        app = web.Application(client_max_size=_MOST_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.UnixSite(runner, str(folder / SOCKET)).start()
            (folder / SOCKET).chmod(0o666)  # commands of a sandbox may have another user; the folder is ours
            yield
        finally:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if request.method == "POST" and path in CALLS:
            if self.calls >= self.max_turns:
                self.refused += 1
                return _refusal(400, f"the session is over after {self.max_turns} model calls")
            return await self._pass_on(request)
        if path.startswith(LOOKS):
            return await self._pass_on(request)
        return _refusal(404, f"{path[:200]} is not served here")

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        kept = {name: value for name, value in request.headers.items() if name.lower() not in _LEFT_OUT}
        body, called = await request.read(), request.path in CALLS
        response: web.StreamResponse | None = None
        try:
            async with self.http.request(
                request.method,
                f"{self.url}{request.path_qs}",
                data=body,
                headers={**kept, **self.headers},
                timeout=_TIMEOUT,
            ) as answer:
                if called:  # now: once it has the last byte the harness may be gone, and the session over
                    self._note(answer.status)
                response = web.StreamResponse(status=answer.status)
                response.content_type = answer.content_type
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response
        except (aiohttp.ClientError, TimeoutError) as error:
            self.failure = f"the gateway did not respond: {error!r}"
            if response is not None:
                raise
            return _refusal(503, "the model cannot be reached")

    def _note(self, status: int) -> None:
        self.calls += status < 400
        self.failure = f"the gateway responded with {status}" if status >= 500 or status == 429 else None


def _refusal(status: int, message: str) -> web.Response:
    """Return an error that the clients of all three dialects can read."""
    error = {"type": "invalid_request_error", "message": message, "code": "refused"}
    return web.json_response({"type": "error", "error": error}, status=status)

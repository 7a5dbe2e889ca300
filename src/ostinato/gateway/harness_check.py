"""Says when a conversation comes from another harness than the served checkpoint was trained under.

A model knows the tools and the prompt it was trained with. Under others it still answers, only worse, so the
request is served: with a response header, and a warning in the log once for each such harness.
"""

import json
import logging
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)
ASKED = b"x-harness-hash"
MISMATCH = b"x-ostinato-harness-mismatch"
"""Its value is the hash that the checkpoint was trained under."""
META = "ostinato.json"
MOST_NAMED = 100


def trained_under(checkpoint: Path) -> str:
    """The harness hash in a checkpoint's metadata; empty when it says none."""
    try:
        meta = json.loads((checkpoint / META).read_text())
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise OSError(f"{checkpoint / META} cannot be read: {error}") from error
    return str(meta.get("harness", "")) if isinstance(meta, dict) else ""


class HarnessMiddleware:
    """ASGI: marks the replies to requests that name another harness than `trained`."""

    def __init__(self, app: ASGIApp, trained: str) -> None:
        self._app = app
        self._trained = trained
        self._named: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = _header(scope)
        if not self._trained or asked is None or asked == self._trained.encode():
            await self._app(scope, receive, send)
            return
        self._warn(asked)

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (MISMATCH, self._trained.encode())]
            await send(message)

        await self._app(scope, receive, marked)

    def _warn(self, asked: bytes) -> None:
        if asked in self._named or len(self._named) >= MOST_NAMED:
            return
        self._named.add(asked)
        log.warning(
            "served under harness %r, trained under %s: use the profile it was trained with",
            asked.decode("latin-1")[:40],
            self._trained,
        )


def _header(scope: MutableMapping[str, Any]) -> bytes | None:
    if scope["type"] != "http":
        return None
    return next((value for name, value in scope["headers"] if name == ASKED), None)

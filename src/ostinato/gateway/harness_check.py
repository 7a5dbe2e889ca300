"""The check that requests come from the harness under which the served checkpoint was trained.

A model knows the tools and the prompt it was trained with. Under others its answers are worse, but still
answers. So such a request is served, with a response header, and the log has one warning for each such
harness.
"""

import json
import logging
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ostinato.model.config import META

log = logging.getLogger(__name__)
HARNESS_HASH = b"x-harness-hash"
MISMATCH = b"x-ostinato-harness-mismatch"
"""Its value is the hash that the checkpoint was trained under."""
MOST_WARNINGS = 100


def trained_under(checkpoint: Path) -> str:
    """Return the harness hash in a checkpoint's metadata; empty when there is none."""
    try:
        meta = json.loads((checkpoint / META).read_text())
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise OSError(f"{checkpoint / META} cannot be read: {error}") from error
    return str(meta.get("harness", "")) if isinstance(meta, dict) else ""


class HarnessMiddleware:
    """ASGI middleware that marks the replies to requests from another harness than `trained`."""

    def __init__(self, app: ASGIApp, trained: str) -> None:
        self._app = app
        self._trained = trained
        self._warned: set[bytes] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        harness = _header(scope)
        if not self._trained or harness is None or harness == self._trained.encode():
            await self._app(scope, receive, send)
            return
        self._warn(harness)

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (MISMATCH, self._trained.encode())]
            await send(message)

        await self._app(scope, receive, marked)

    def _warn(self, harness: bytes) -> None:
        if harness in self._warned or len(self._warned) >= MOST_WARNINGS:
            return
        self._warned.add(harness)
        log.warning(
            "served under harness %r, trained under %s: use the profile it was trained with",
            harness.decode("latin-1")[:40],
            self._trained,
        )


def _header(scope: MutableMapping[str, Any]) -> bytes | None:
    if scope["type"] != "http":
        return None
    return next((value for name, value in scope["headers"] if name == HARNESS_HASH), None)

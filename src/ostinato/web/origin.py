"""The check that requests to a server come from programs of this machine, and not from web pages.

A page in a browser can send requests to every port of the machine it is shown on. With a name of its own that
points at 127.0.0.1 (DNS rebinding) it may read the responses too. But it cannot name another host than its
own in `Host`, nor leave out `Origin` where the two differ. So a server that is reached over loopback serves
only requests whose `Host` names loopback, or a name that it was configured to expect, and no server serves
another origin.
"""

import ipaddress
import json
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

FORBIDDEN = 403
PROXY = "where your own proxy passes that name on, allow it with --allow-host or [live] address"
REWRITES = (
    "if a proxy of yours wrote that, let it pass Host on as it came (nginx: proxy_set_header Host $http_host)"
    " and allow the name of that page with --allow-host or [live] address"
)


def refusal(host: str, origin: str, local: str, allowed: Sequence[str] = ()) -> str | None:
    """Return the reason why a request is refused; None when it is served.

    `host` and `origin` are the headers, empty when they are missing, `local` is the address at which the
    connection arrived, `allowed` are host names beside loopback.

    >>> refusal("127.0.0.1:8080", "", "127.0.0.1") is None
    True
    >>> str(refusal("evil.example:8080", "http://evil.example:8080", "127.0.0.1")).partition(":")[0]
    "Host names 'evil.example', which is not this machine"
    """
    name = _name(f"//{host}")
    if host and is_loopback(local) and not is_loopback(name) and name not in allowed:
        return f"Host names {name[:100]!r}, which is not this machine: use 127.0.0.1, or, {PROXY}"
    if origin and _netloc(origin) != host.lower() and _name(origin) not in allowed:
        said = f"a page of {origin[:100]!r} may not call this server"
        return f"{said}; Host names {name[:100]!r}: {REWRITES}" if is_loopback(name) else said
    return None


def _netloc(url: str) -> str:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:  # such as `http://[`
        return "?"


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return "?"


@lru_cache(64)
def is_loopback(name: str) -> bool:
    """Return whether a host name or address means this machine."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class LocalOnly:
    """An ASGI application that responds with 403 to pages of other sites and host names of other machines."""

    def __init__(self, app: ASGIApp, allowed: Sequence[str] = ()) -> None:
        self._app = app
        self._allowed = tuple(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        why = self._why_not(scope) if scope["type"] == "http" else None
        if why is None:
            await self._app(scope, receive, send)
            return
        error = {"message": why, "type": "invalid_request_error", "code": "foreign_host", "param": None}
        body = json.dumps({"error": error}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": FORBIDDEN, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _why_not(self, scope: Scope) -> str | None:
        host = origin = ""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value.decode("latin-1")
            elif name == b"origin":
                origin = value.decode("latin-1")
        local = scope["server"][0] if scope.get("server") else ""
        return refusal(host, origin, local, self._allowed)

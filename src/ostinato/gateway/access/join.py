"""People join with a code that is valid once, and say themselves whether their sessions may be trained on.

The machine of the person sends the code and the hash of a key that it made. Refused codes are counted by
address, since somebody who guesses is refused much. Neither code nor key stands in a URL, where proxies would
log it.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ostinato.gateway.access.keys import KeyRing
from ostinato.gateway.body import encode, parse_json, read_body
from ostinato.gateway.errors import ApiError, invalid
from ostinato.store import Store
from ostinato.store.team.joins import JoinError, Joins
from ostinato.web.origin import is_loopback

MOST_BYTES = 4096
MOST_REFUSED, WITHIN_S = 10, 60.0
"""The codes of one address that are refused before it has to wait, and seconds until one is forgotten."""
MOST_ADDRESSES = 10_000
HASH = re.compile("[0-9a-f]{64}")
STATUS = {"unknown": 404, "used": 409, "expired": 410}
ADVICE = "ask your operator for another line: `ostinato team add NAME`"
SCRIPT = """\
# Joins this machine to a team: curl -fsS ADDRESS/join | sh -s -- ADDRESS CODE
main() {
  if ! command -v ostinato >/dev/null 2>&1; then
    echo "ostinato is not installed here: install the wheel or package of your team (pipx, uv tool, pip)," >&2
    echo "then type this line again. Your code has not been used." >&2
    exit 1
  fi
  if (: </dev/tty) 2>/dev/null; then exec ostinato join "$@" </dev/tty; fi
  exec ostinato join "$@"
}
main "$@"
"""
"""A shell that reads half of it runs nothing."""


class JoinSources(Protocol):
    """The parts of a gateway that these routes use."""

    store: Store
    keys: KeyRing


class Refusals:
    """The refused codes of each address within the last minute; the newest 10,000 addresses are counted."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._refused: OrderedDict[str, list[float]] = OrderedDict()

    def check(self, address: str) -> None:
        """Raise ApiError 429 for an address that was refused too often."""
        since = self._clock() - WITHIN_S
        recent = [at for at in self._refused.get(address, []) if at > since]
        if len(recent) >= MOST_REFUSED:
            wait = str(int(recent[0] - since) + 1)
            message = f"{MOST_REFUSED} join codes from {address} were refused: try again in {wait} s"
            raise ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": wait})
        self._refused[address] = recent

    def count(self, address: str) -> None:
        self._refused.setdefault(address, []).append(self._clock())
        self._refused.move_to_end(address)
        while len(self._refused) > MOST_ADDRESSES:
            self._refused.popitem(last=False)


def join_routes(gateway: JoinSources) -> list[Route]:
    joins, refusals = Joins(gateway.store.database), Refusals()

    async def join(request: Request) -> Response:
        address = _address(request)
        refusals.check(address)
        code, key, consent = _read_join(parse_json(await read_body(request, MOST_BYTES)))
        try:
            await asyncio.to_thread(joins.redeem, code, key, consent=consent)
        except JoinError as error:
            refusals.count(address)
            message = f"{error}: {ADVICE}"
            raise ApiError(STATUS[error.kind], message, code=f"join_{error.kind}") from None
        made = await asyncio.to_thread(gateway.store.key, key)
        if made is None:
            raise ApiError(401, f"the key of this code was revoked: {ADVICE}", code="invalid_api_key")
        return encode({"user": made.user, "organisation": made.organisation, "trained_on": made.consent})

    async def consent(request: Request) -> Response:
        """Set the word of the key's user on training, and respond with what holds now."""
        key = await gateway.keys.authenticate(request.headers)
        body = parse_json(await read_body(request, MOST_BYTES))
        if not isinstance(body, dict) or body.keys() != {"granted"} or type(body["granted"]) is not bool:
            raise invalid('send {"granted": true} or {"granted": false}', "granted")
        accounts, (organisation, user) = gateway.store.accounts, (key.organisation, key.user)
        say = partial(accounts.set_consent, organisation=organisation, user=user, by=user)
        await asyncio.to_thread(say, granted=body["granted"])
        agreed = await asyncio.to_thread(accounts.consented, [(organisation, user)])
        return encode({"user": user, "organisation": organisation, "trained_on": agreed[organisation, user]})

    async def script(_: Request) -> Response:
        return PlainTextResponse(SCRIPT)

    return [
        Route("/join", join, methods=["POST"]),
        Route("/join", script, methods=["GET"]),
        Route("/consent", consent, methods=["POST"]),
    ]


def _read_join(body: object) -> tuple[str, str, bool | None]:
    if not isinstance(body, dict) or body.keys() - {"code", "key", "consent"}:
        raise invalid('send {"code": …, "key": …, "consent": …}')
    code, key, consent = (body.get(name) for name in ("code", "key", "consent"))
    if not isinstance(code, str) or not code:
        raise invalid("code is the text that `ostinato team add` printed", "code")
    if not isinstance(key, str) or not HASH.fullmatch(key):
        raise invalid("key is the SHA-256 of the key that your machine made, in hexadecimal", "key")
    if consent is not None and type(consent) is not bool:
        raise invalid("consent is true, false or null", "consent")
    return code, key, consent


def _address(request: Request) -> str:
    """Return the address of the client; behind a proxy on this machine the one that the proxy saw."""
    peer = "" if request.client is None else request.client.host
    passed_on = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    return passed_on[:100] if passed_on and is_loopback(peer) else peer

"""The pages as an ASGI application: who may look, the templates, the JSON, and the headers that close the
door to scripts, frames and other sites."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ostinato.dashboard.access import COOKIE, Doorkeeper, Viewer
from ostinato.dashboard.html import STATIC, address, environment
from ostinato.dashboard.pages import PAGES, Page
from ostinato.dashboard.reading.base import (
    Answer,
    Asked,
    AskedError,
    NotThereError,
    RecordSource,
    WordError,
)
from ostinato.dashboard.reading.now import marker
from ostinato.dashboard.reading.versions import recorded_versions
from ostinato.dashboard.reading.words import decide
from ostinato.store import StoreError
from ostinato.web.origin import LocalOnly

MOST_FORM_BYTES = 16 * 2**10
OWN_PAGES = ("/experiment?", "/version?")
"""The pages that have buttons, and to which a decision leads back."""
LOOK_S = 2.0
"""Seconds between two looks at the store for a page that is watched."""
STREAM_S = 600.0
"""Seconds after which a stream ends; the browser opens the next one by itself."""
MOST_STREAMS = 64
FILES = {
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "mark.svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # with `no-referrer` a browser sends its forms from the origin `null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class StrangerError(Exception):
    """A request without a cookie or a key that may look."""


class Dashboard:
    """The routes over one record."""

    def __init__(self, reading: RecordSource, doorkeeper: Doorkeeper) -> None:
        self._reading = reading
        self._doorkeeper = doorkeeper
        self._templates = environment()
        self._streams = 0

    def routes(self) -> list[BaseRoute]:
        """Return the routes of all pages, and of what they need."""
        shown = [Route(page.address, self._html(page), methods=["GET"]) for page in PAGES]
        data = [Route(page.json, self._json(page), methods=["GET"]) for page in PAGES]
        return [
            *shown,
            *data,
            Route("/enter", self.enter, methods=["GET", "POST"]),
            Route("/leave", self.leave, methods=["POST"]),
            Route("/decide", self.decide, methods=["POST"]),
            Route("/live", self.live, methods=["GET"]),
            Route("/static/{name}", self.static, methods=["GET"]),
        ]

    def _html(self, page: Page) -> Any:
        async def respond(request: Request) -> Response:
            viewer = await self._viewer(request)
            if page.address == "/" and not viewer.operator:
                return RedirectResponse("/sessions", status_code=303)
            asked = dict(request.query_params)
            answer = await self._read(page, viewer, asked)
            text = await run_in_threadpool(self._rendered, request, viewer, page, answer, asked)
            return HTMLResponse(text)

        return respond

    def _json(self, page: Page) -> Any:
        async def respond(request: Request) -> Response:
            viewer = await self._viewer(request)
            answer = await self._read(page, viewer, dict(request.query_params))
            body = await run_in_threadpool(orjson.dumps, answer, None, orjson.OPT_NON_STR_KEYS)
            return Response(body, media_type="application/json")

        return respond

    async def _read(self, page: Page, viewer: Viewer, asked: Asked) -> Answer:
        if not _may(viewer, page):
            who = "the whole system: only the operator" if page.operator else "accounts: only an admin"
            raise NotThereError(f"this page is about {who} sees it")
        return await run_in_threadpool(page.read, self._reading, viewer, asked)

    def _rendered(self, request: Request, viewer: Viewer, page: Page, answer: Answer, asked: Asked) -> str:
        cookie = _cookie(request)
        live = address("/live", page=page.address, id=asked.get("id")) if page.live else None
        return self._templates.get_template(page.template).render(
            answer,
            pages=_listed(viewer),
            here=page.address,
            under=page.under,
            viewer=viewer,
            known=recorded_versions(self._reading.store) if viewer.operator else (),
            json=address(page.json, **asked),
            live=live,
            scripts=True,
            token=self._doorkeeper.token(cookie),
        )

    def message(self, status: int, title: str, message: str, advice: str = "") -> Response:
        """Return a page that says what is wrong, and what to do."""
        text = self._templates.get_template("gone.html").render(
            title=title, message=message, advice=advice, **_BARE
        )
        return HTMLResponse(text, status_code=status)

    async def enter(self, request: Request) -> Response:
        """Let somebody in by the ticket in the address, or by a key in the form."""
        ticket, key = request.query_params.get("ticket", ""), ""
        if request.method == "POST":
            key = (await _form(request)).get("key", "").strip()
        cookie = await run_in_threadpool(self._doorkeeper.enter, ticket=ticket, key=key)
        if cookie is None:
            tried = bool(ticket or key)
            wrong = "This key or address is not known, or may not look." if tried else ""
            text = self._templates.get_template("enter.html").render(title="Enter", wrong=wrong, **_BARE)
            return HTMLResponse(text, status_code=403 if tried else 200)
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=_is_secure(request))
        return response

    async def leave(self, request: Request) -> Response:
        """Forget the browser."""
        cookie = _cookie(request)
        if not self._doorkeeper.is_own_form(cookie, (await _form(request)).get("token", "")):
            raise HTTPException(403, "this form was not made for this browser: load the page again")
        self._doorkeeper.leave(cookie)
        return RedirectResponse("/enter", status_code=303)

    async def decide(self, request: Request) -> Response:
        """Say a person's word to the cycle, from a form that was made for this browser."""
        viewer, form = await self._viewer(request), await _form(request)
        if not viewer.operator:
            raise HTTPException(403, "only the operator decides about the cycle")
        if not self._doorkeeper.is_own_form(_cookie(request), form.get("token", "")):
            raise HTTPException(403, "this form was not made for this browser: load the page again")
        said = [form.get(name, "") for name in ("word", "confirmed", "reason")]
        await run_in_threadpool(decide, self._reading, viewer.name, *said)
        back = form.get("back", "")
        return RedirectResponse(back if back.startswith(OWN_PAGES) else "/", status_code=303)

    async def live(self, request: Request) -> Response:
        """Respond with a stream that says when something of a page has changed."""
        viewer = await self._viewer(request)
        subject = request.query_params.get("id", "")
        if self._streams >= MOST_STREAMS:
            raise HTTPException(503, "too many pages are watched: reload to see what is new")
        look = (self._reading, viewer, subject)
        first = await run_in_threadpool(marker, *look)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        stream = self._changes(look, first)
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def _changes(self, look: tuple[RecordSource, Viewer, str], seen: str) -> AsyncIterator[str]:
        self._streams += 1
        try:
            yield "event: ready\ndata: .\n\n"
            for _ in range(int(STREAM_S / LOOK_S)):
                await asyncio.sleep(LOOK_S)
                now = await run_in_threadpool(marker, *look)
                yield "event: changed\ndata: .\n\n" if now != seen else ": nothing\n\n"
                seen = now
        finally:
            self._streams -= 1

    async def static(self, request: Request) -> Response:
        """Respond with a file of the package; no name leads anywhere else."""
        name = request.path_params["name"]
        if name not in FILES:
            raise HTTPException(404, "no such file")
        return FileResponse(STATIC / name, media_type=FILES[name], headers={"cache-control": "max-age=300"})

    async def _viewer(self, request: Request) -> Viewer:
        authorization = request.headers.get("authorization", "")
        viewer = await run_in_threadpool(self._doorkeeper.viewer, _cookie(request), authorization)
        if viewer is None:
            raise StrangerError
        return viewer

    async def stranger(self, request: Request, _: Exception) -> Response:
        """Send a browser to the door, and tell a program to bring a key."""
        if request.url.path.endswith(".json") or request.url.path == "/live":
            return _json_error(401, "send an API key as 'Authorization: Bearer KEY'")
        return RedirectResponse("/enter", status_code=303)

    async def failed(self, request: Request, error: Exception) -> Response:
        """Respond with a page, or with JSON, that says what went wrong."""
        status, title, advice = 500, "Something is wrong", ""
        if isinstance(error, NotThereError):
            status, title = 404, "Not here"
        elif isinstance(error, AskedError):
            status, title = 400, "This address cannot be read"
        elif isinstance(error, WordError):
            status, title = 409, "Not possible now"
        elif isinstance(error, StoreError):
            status, title, advice = 503, "The store cannot be read", "Reload when it is back."
        elif isinstance(error, HTTPException):
            status, title = error.status_code, "Not here" if error.status_code == 404 else "Not possible"
        message = error.detail if isinstance(error, HTTPException) else str(error)
        if status == 500:  # what it says may be of somebody else's session
            message = f"The page could not be made of this record ({type(error).__name__})."
            advice = "The log of the dashboard says more."
        if request.url.path.endswith(".json"):
            return _json_error(status, message)
        return self.message(status, title, message, advice)


_BARE: dict[str, Any] = {
    "pages": (), "here": "", "under": "", "viewer": None,
    "json": "", "live": None, "scripts": False, "token": "",
}  # fmt: skip


def _listed(viewer: Viewer) -> Sequence[Page]:
    return [page for page in PAGES if page.listed and _may(viewer, page)]


def _may(viewer: Viewer, page: Page) -> bool:
    if page.operator:
        return viewer.operator
    return viewer.admin or not page.admin


def _json_error(status: int, message: str) -> Response:
    body = orjson.dumps({"error": {"message": message}})
    return Response(body, status_code=status, media_type="application/json")


def _cookie(request: Request) -> str:
    try:
        cookies = SimpleCookie(request.headers.get("cookie", ""))
    except CookieError:
        return ""
    return cookies[COOKIE].value if COOKIE in cookies else ""


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form of ours. Raises HTTPException for one that is too large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MOST_FORM_BYTES:
            raise HTTPException(413, "the form is too large")
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))


class _Closed:
    """Adds the headers that every response has."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def headed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, headed)


def create_app(reading: RecordSource, doorkeeper: Doorkeeper, allowed_hosts: Sequence[str] = ()) -> ASGIApp:
    """Return the application. The caller closes the store."""
    dashboard = Dashboard(reading, doorkeeper)
    handlers: Any = {
        StrangerError: dashboard.stranger,
        NotThereError: dashboard.failed,
        AskedError: dashboard.failed,
        WordError: dashboard.failed,
        StoreError: dashboard.failed,
        HTTPException: dashboard.failed,
        Exception: dashboard.failed,  # which the server logs as well
    }
    app = Starlette(routes=dashboard.routes(), exception_handlers=handlers)
    return _Closed(LocalOnly(app, allowed_hosts))

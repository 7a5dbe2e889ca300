"""The gateway as an ASGI application."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from ostinato.gateway.arms import ArmTable
from ostinato.gateway.chat import MODEL, parse_chat
from ostinato.gateway.errors import ApiError, invalid, unavailable
from ostinato.gateway.feedback import parse_feedback
from ostinato.gateway.keys import KeyRing
from ostinato.gateway.limits import Limits
from ostinato.gateway.recorder import Recorder
from ostinato.gateway.responses import Reply
from ostinato.gateway.sessions import Conversations, check_owner, identify
from ostinato.gateway.turns import Call, Turns
from ostinato.gateway.upstream import EngineClient
from ostinato.model.renderer import Renderer
from ostinato.store import PurgedError, Role, Store, StoreError
from ostinato.types import SignalKind

DRAINED = 32
"""Times `max_body_bytes` that is read and dropped, since most clients hear no answer before they sent all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """What a gateway needs to know beside its store.

    >>> GatewayConfig().engine_wait_s
    30.0
    """

    salt: str = "ostinato"
    """Of the hash that gives users their arms. Another salt deals them anew."""
    engine_wait_s: float = 30.0
    """How long a request waits for an engine that is away."""
    max_body_bytes: int = 8 * 2**20


class Gateway:
    """The endpoints and what they share. One per process and store."""

    def __init__(self, store: Store, renderer: Renderer, config: GatewayConfig) -> None:
        self._config = config
        self._started_at = time.time()
        self.keys = KeyRing(store)
        self.limits = Limits()
        self.arms = ArmTable(store, config.salt)
        self.recorder = Recorder(store)
        self.engines = EngineClient(config.engine_wait_s)
        self.conversations = Conversations(store)
        self.turns = Turns(
            renderer=renderer,
            arms=self.arms,
            conversations=self.conversations,
            recorder=self.recorder,
            engines=self.engines,
        )

    async def chat(self, request: Request) -> Any:
        key = await self.keys.authenticate(request.headers)
        with self.limits.admitted(key) as admission:
            identity = identify(request.headers, key)
            chat = parse_chat(await self._json(request))
            conversation = self.conversations.get(identity, key)
            call = Call(chat=chat, identity=identity, key=key, conversation=conversation)
            return admission.until_sent(Reply(self.turns, call))

    async def feedback(self, request: Request) -> Response:
        key = await self.keys.authenticate(request.headers, Role.FEEDBACK)
        signal = parse_feedback(await self._json(request))
        session = await self.conversations.session(signal.session_id)
        if session is None:
            raise ApiError(
                404, f"unknown session {signal.session_id!r}", code="unknown_session", param="session_id"
            )
        check_owner(session, key)
        try:
            await self.recorder.submit(signal=signal)
        except PurgedError:
            raise
        except StoreError as error:
            raise unavailable(f"the feedback could not be recorded: {error}", "not_recorded") from error
        if signal.kind is SignalKind.ENDING:
            self.conversations.let_go(signal.session_id)
        return _json_response({"id": signal.id})

    async def models(self, request: Request) -> Response:
        await self.keys.authenticate(request.headers)
        await self.arms.refresh()
        arms = [{"name": arm.name, "version": arm.version, "share": arm.share} for arm in self.arms.all()]
        model = {"id": MODEL, "object": "model", "created": int(self._started_at), "owned_by": "ostinato"}
        return _json_response({"object": "list", "data": [model | {"arms": arms}]})

    async def healthz(self, _: Request) -> Response:
        return _json_response({"status": "ok"})

    async def _json(self, request: Request) -> object:
        body, size, most = bytearray(), 0, self._config.max_body_bytes
        async for chunk in request.stream():
            size += len(chunk)
            if size <= most:
                body += chunk
            elif size > DRAINED * most:
                break
        if size > most:
            raise ApiError(413, f"the body is larger than {most} bytes", code="body_too_large")
        return _parse(bytes(body))


def create_app(store: Store, renderer: Renderer, settings: GatewayConfig = GatewayConfig()) -> Starlette:
    """The application; the writer thread lives as long as its lifespan."""
    gateway = Gateway(store, renderer, settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        gateway.recorder.start()
        try:
            yield
        finally:
            await gateway.engines.aclose()
            gateway.recorder.stop()

    routes = [
        Route("/v1/chat/completions", gateway.chat, methods=["POST"]),
        Route("/feedback", gateway.feedback, methods=["POST"]),
        Route("/v1/models", gateway.models, methods=["GET"]),
        Route("/healthz", gateway.healthz, methods=["GET"]),
    ]
    handlers: Any = {
        ApiError: _api_error,
        HTTPException: _http_error,
        PurgedError: _gone,
        StoreError: _store_error,
        ClientDisconnect: _client_gone,
        RecursionError: _too_deep,
        Exception: _our_fault,
    }
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


def _parse(body: bytes) -> object:
    try:
        value = json.loads(body)
        if b"\\ud" in body.lower():  # an escaped half of a surrogate pair is JSON, but no text
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise invalid(f"the body is not JSON: {error}", code="invalid_json") from None
    return value


def _json_response(value: object) -> Response:
    return Response(json.dumps(value), media_type="application/json")


async def _api_error(_: Request, error: ApiError) -> Response:
    return Response(
        error.encoded(), status_code=error.status, headers=error.headers, media_type="application/json"
    )


async def _http_error(request: Request, error: HTTPException) -> Response:
    message = f"{request.method} {request.url.path}: {error.detail}"
    headers = dict(error.headers or {})
    return await _api_error(request, ApiError(error.status_code, message, code="not_found", headers=headers))


async def _store_error(request: Request, error: StoreError) -> Response:
    return await _api_error(request, unavailable(f"the store failed: {error}", "store_failed"))


async def _gone(request: Request, error: PurgedError) -> Response:
    return await _api_error(request, ApiError(410, str(error), code="session_purged"))


async def _too_deep(request: Request, _: RecursionError) -> Response:
    return await _api_error(request, invalid("the body is nested too deeply", code="invalid_json"))


async def _our_fault(request: Request, error: Exception) -> Response:
    """Starlette raises the error again after this answer, so the server logs it."""
    message = f"internal error ({type(error).__name__}), this is a bug of the gateway"
    return await _api_error(request, ApiError(500, message, code="internal_error"))


async def _client_gone(_: Request, __: ClientDisconnect) -> Response:
    return Response(status_code=499)

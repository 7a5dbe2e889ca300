"""The gateway as an ASGI application."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ostinato.gateway.access.identity import identify
from ostinato.gateway.access.join import join_routes
from ostinato.gateway.access.keys import KeyRing
from ostinato.gateway.access.limits import KeyLimits
from ostinato.gateway.arms import ArmTable
from ostinato.gateway.body import encode, parse_json, read_body
from ostinato.gateway.config import GatewayConfig
from ostinato.gateway.conversation_cache import ConversationCache
from ostinato.gateway.dialects.base import Dialect
from ostinato.gateway.dialects.chat import Chat
from ostinato.gateway.dialects.messages import Messages, parse_count
from ostinato.gateway.dialects.request import ChatRequest, Models, check_length
from ostinato.gateway.dialects.responses import Responses
from ostinato.gateway.errors import ApiError, invalid, stopping, unavailable
from ostinato.gateway.harness_check import HarnessMiddleware
from ostinato.gateway.info_routes import info_routes
from ostinato.gateway.metrics import Metrics
from ostinato.gateway.offload import offload
from ostinato.gateway.recorder import Recorder
from ostinato.gateway.secret_filter import SecretFilter
from ostinato.gateway.signals.endings import SessionEndings
from ostinato.gateway.signals.telemetry import telemetry_routes
from ostinato.gateway.timing import TimingMiddleware, timing_of
from ostinato.gateway.tokens.reply_parser import prefix_digests, without_defaults
from ostinato.gateway.turn_response import TurnResponse
from ostinato.gateway.turns import ModelCall, Turns
from ostinato.gateway.upstream import EngineClient
from ostinato.model.families import Renderer, RenderError
from ostinato.store import PurgedError, Store, StoreError
from ostinato.types import ApiKey
from ostinato.web.origin import LocalOnly

CHAT, MESSAGES, RESPONSES = Chat(), Messages(), Responses()


class Gateway:
    """The model endpoints and the state they share. There is one for each process and store."""

    def __init__(self, store: Store, renderer: Renderer, config: GatewayConfig) -> None:
        self.store = store
        self.max_body_bytes = config.max_body_bytes
        self.models = Models(config.aliases)
        self.keys = KeyRing(store)
        self.arms = ArmTable(store, config.salt)
        self.limits = KeyLimits()
        self.recorder = Recorder(store)
        self.engines = EngineClient(config.engine_wait_s, config.engine_secret, renderer.tokenizer.digest)
        self.conversations = ConversationCache(store)
        self.endings = SessionEndings(store, self.conversations, self.recorder, renderer)
        self.metrics = Metrics(held=lambda: len(self.conversations), replicas=self.engines.replicas.states)
        self.renderer = renderer
        self.secret_filter = SecretFilter(renderer, config.secrets)
        self.turns = Turns(
            renderer=renderer,
            secret_filter=self.secret_filter,
            arms=self.arms,
            conversations=self.conversations,
            recorder=self.recorder,
            engines=self.engines,
            keys=self.keys,
        )

    def endpoint_for(self, dialect: Dialect) -> Callable[[Request], Awaitable[Any]]:
        """Return the endpoint that speaks `dialect`."""

        async def endpoint(request: Request) -> Any:
            key = await self.keys.authenticate(request.headers)
            with self.limits.admitted(key) as admission:
                body = await read_body(request, self.max_body_bytes)
                call = await self._call(
                    request, key, len(body), await offload(len(body), self._read, body, dialect)
                )
                return admission.until_sent(TurnResponse(self.turns, call, dialect, self.metrics))

        return endpoint

    async def context(self, key: ApiKey) -> int:
        """Return the most tokens that the engines of a key's arm read; 0 where none says so."""
        await self.arms.refresh()
        try:
            arm = self.arms.choose(key.user, key.arm)
        except ApiError:
            return 0
        return await self.engines.context(arm.engines)

    def _read(self, body: bytes, dialect: Dialect) -> tuple[ChatRequest, list[bytes]]:
        """Parse a body; return the request as the model may read it, and its prefix digests."""
        chat = dialect.parse(parse_json(body))
        self.models.check(chat.model)
        check_length(chat)
        chat = self.secret_filter.admit(replace(chat, messages=without_defaults(chat.messages, chat.tools)))
        return chat, prefix_digests(chat)

    async def _call(
        self, request: Request, key: ApiKey, size: int, read: tuple[ChatRequest, list[bytes]]
    ) -> ModelCall:
        chat, digests = read
        identity = identify(request.headers, key, chat)
        return ModelCall(
            chat=chat,
            size=size,
            digests=digests,
            identity=identity,
            key=key,
            conversation=await self.conversations.find(identity, key, chat, digests),
            timing=timing_of(request.scope),
        )

    async def count(self, request: Request) -> Response:
        """Respond with the number of tokens in the prompt of a Messages request."""
        key = await self.keys.authenticate(request.headers)
        with self.limits.admitted(key):
            body = await read_body(request, self.max_body_bytes)
            return encode({"input_tokens": await offload(len(body), self._count, body)})

    def _count(self, body: bytes) -> int:
        chat = parse_count(parse_json(body))
        self.models.check(chat.model)
        check_length(chat)
        try:
            return len(self.renderer.render(chat.messages, chat.tools))
        except RenderError as error:
            raise invalid(f"messages cannot be rendered: {error}", "messages") from error


def create_app(store: Store, renderer: Renderer, settings: GatewayConfig) -> ASGIApp:
    """Return the application. Its recorder and its sweep for idle sessions run during its lifespan."""
    gateway = Gateway(store, renderer, settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        gateway.recorder.start()
        tasks = [
            asyncio.create_task(gateway.endings.run()),
            asyncio.create_task(gateway.engines.watch(lambda: [arm.engines for arm in gateway.arms.all()])),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await gateway.engines.aclose()
            gateway.recorder.stop()

    routes = [
        Route("/v1/chat/completions", gateway.endpoint_for(CHAT), methods=["POST"]),
        Route("/v1/messages", gateway.endpoint_for(MESSAGES), methods=["POST"]),
        Route("/v1/messages/count_tokens", gateway.count, methods=["POST"]),
        Route("/v1/responses", gateway.endpoint_for(RESPONSES), methods=["POST"]),
        *telemetry_routes(gateway),
        *info_routes(gateway),
        *join_routes(gateway),
    ]
    handlers: Any = {
        ApiError: _api_error,
        HTTPException: _http_error,
        PurgedError: _purged,
        StoreError: _store_error,
        ClientDisconnect: _client_gone,
        RecursionError: _too_deep,
        Exception: _internal_error,
    }
    matched = Middleware(HarnessMiddleware, trained=settings.harness)
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers, middleware=[matched])
    # This wraps everything, so that the reply to an internal error has a request id too.
    whole = StoppingMiddleware(LocalOnly(app, settings.allowed_hosts))
    return TimingMiddleware(whole, gateway.metrics.replied)


class StoppingMiddleware:
    """ASGI middleware that sends a 503 to those whose request the end of the server cuts short."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = scope["type"] != "http"

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            if begun:
                raise
            response = await _api_error(Request(scope), stopping())
            await response(scope, receive, send)


def _dialect_of(request: Request) -> Dialect:
    """Return the dialect whose errors the client understands."""
    anthropic = request.url.path.startswith("/v1/messages") or "anthropic-version" in request.headers
    return MESSAGES if anthropic else CHAT


async def _api_error(request: Request, error: ApiError) -> Response:
    return Response(
        _dialect_of(request).error(error),
        status_code=error.status,
        headers=error.headers,
        media_type="application/json",
    )


async def _http_error(request: Request, error: HTTPException) -> Response:
    message = f"{request.method} {request.url.path}: {error.detail}"
    headers = dict(error.headers or {})
    return await _api_error(request, ApiError(error.status_code, message, code="not_found", headers=headers))


async def _purged(request: Request, error: PurgedError) -> Response:
    return await _api_error(request, ApiError(410, str(error), code="session_purged"))


async def _store_error(request: Request, error: StoreError) -> Response:
    return await _api_error(request, unavailable(f"the store failed: {error}", "store_failed"))


async def _too_deep(request: Request, _: RecursionError) -> Response:
    return await _api_error(request, invalid("the body is nested too deeply", code="invalid_json"))


async def _internal_error(request: Request, error: Exception) -> Response:
    """Respond with 500. Starlette raises the error again afterwards, so the server logs it."""
    message = f"internal error ({type(error).__name__}), this is a bug of the gateway"
    return await _api_error(request, ApiError(500, message, code="internal_error"))


async def _client_gone(_: Request, __: ClientDisconnect) -> Response:
    return Response(status_code=499)

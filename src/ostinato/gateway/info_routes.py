"""The read-only routes: models, metrics, the OpenAPI document and the health check."""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ostinato.gateway.access.keys import KeyRing
from ostinato.gateway.arms import ArmTable
from ostinato.gateway.body import encode
from ostinato.gateway.dialects.request import Models
from ostinato.gateway.metrics import CONTENT_TYPE, Metrics
from ostinato.gateway.openapi import document
from ostinato.types import ApiKey, Role

LOOPBACK = {"127.0.0.1", "::1"}
Arms = Sequence[Mapping[str, Any]]
"""The arms as a client reads them."""


class InfoSources(Protocol):
    """The parts of a gateway that these routes read."""

    keys: KeyRing
    arms: ArmTable
    models: Models
    metrics: Metrics

    async def context(self, key: ApiKey) -> int: ...


def info_routes(gateway: InfoSources) -> list[Route]:
    started = time.time()

    async def listed(request: Request, key: ApiKey, names: Sequence[str], arms: Arms) -> dict[str, Any]:
        """Return the models in Anthropic's shape for clients that send `anthropic-version`, else in
        OpenAI's."""
        if "anthropic-version" in request.headers:
            return _anthropic(names, started, arms)
        return _openai(names, started, arms, await gateway.context(key))

    async def models(request: Request) -> Response:
        key = await gateway.keys.authenticate(request.headers)
        await gateway.arms.refresh()
        arms = [{"name": a.name, "version": a.version, "share": a.share} for a in gateway.arms.all()]
        return encode(await listed(request, key, gateway.models.names, arms))

    async def model(request: Request) -> Response:
        key = await gateway.keys.authenticate(request.headers)
        name = request.path_params["name"]
        gateway.models.check(name)
        mine = {"user": key.user, "organisation": key.organisation, "trained_on": key.consent}
        return encode((await listed(request, key, (name,), ()))["data"][0] | {"recording": mine})

    async def metrics(request: Request) -> Response:
        """Respond with the metrics. Requests from this machine need no key, since these are only numbers."""
        if request.client is None or request.client.host not in LOOPBACK:
            await gateway.keys.authenticate(request.headers, Role.ADMIN)
        return Response(gateway.metrics.text(), media_type=CONTENT_TYPE)

    async def openapi(_: Request) -> Response:
        return encode(document(gateway.models.names))

    async def healthz(_: Request) -> Response:
        return encode({"status": "ok"})

    return [
        Route("/v1/models", models, methods=["GET"]),
        Route("/v1/models/{name:path}", model, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        Route("/openapi.json", openapi, methods=["GET"]),
        Route("/healthz", healthz, methods=["GET"]),
    ]


def _openai(names: Sequence[str], started: float, arms: Arms, context: int) -> dict[str, Any]:
    """Return the models, with the length of their context under the name that vLLM has for it."""
    shared = {"object": "model", "created": int(started), "owned_by": "ostinato", "arms": arms}
    known = {"max_model_len": context} if context else {}
    return {"object": "list", "data": [{"id": name} | shared | known for name in names]}


def _anthropic(names: Sequence[str], started: float, arms: Arms) -> dict[str, Any]:
    created = datetime.fromtimestamp(int(started), UTC).isoformat().replace("+00:00", "Z")
    shared = {"type": "model", "created_at": created, "lifecycle": "active", "arms": arms}
    data = [{"id": name, "display_name": name} | shared for name in names]
    return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}

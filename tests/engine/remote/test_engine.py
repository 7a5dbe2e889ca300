"""Covers engine/remote/engine.py: a scripted server that speaks vLLM's completions over real HTTP."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from ostinato.engine.base import EngineError, InvalidRequestError, LoadRefusedError
from ostinato.engine.http import serve
from ostinato.engine.remote.engine import RemoteEngine
from ostinato.types import Distribution, FinishReason, GenerateRequest, Sampling, Structure, StructureKind

IDS = (5, 9, 3)


def asked(**more: Any) -> GenerateRequest:
    settings = {
        "request_id": "s/0",
        "session_id": "s",
        "prompt_ids": (1, 2),
        "stop_ids": (3,),
        "max_tokens": 8,
    }
    return GenerateRequest(**(settings | more))


@asynccontextmanager
async def remote(
    *, token_ids: bool = True, ends: bool = True
) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Serve a fake vLLM that says IDS; yield its URL and the bodies it got."""
    bodies: list[dict[str, Any]] = []

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "smol", "max_model_len": 64}]})

    async def completions(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        bodies.append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for id_ in IDS[: body["max_tokens"]]:
            choice: dict[str, Any] = {"text": "x", "logprobs": {"token_logprobs": [-0.5]}}
            if token_ids:
                choice["token_ids"] = [id_]
            await response.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        if ends:
            finish = "length" if body["max_tokens"] < len(IDS) else "stop"
            last = {"text": "", "token_ids": [], "finish_reason": finish}
            await response.write(f"data: {json.dumps({'choices': [last]})}\n\ndata: [DONE]\n\n".encode())
        return response

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/completions", completions)
    running = await serve(app, "127.0.0.1", 0)
    try:
        yield running.url, bodies
    finally:
        await running.close()


async def test_ids_go_in_and_ids_with_their_logprobs_come_out() -> None:
    async with remote() as (url, bodies):
        engine = await RemoteEngine.connect(url, tokenizer="t", vocabulary=10, version=4)
        completion = await engine.generate(asked(sampling=Sampling(temperature=0.5, top_p=0.9, seed=7)))
        await engine.aclose()
    assert (completion.ids, completion.logprobs, completion.versions) == (IDS, (-0.5,) * 3, (4,) * 3)
    assert completion.finish is FinishReason.STOP
    assert completion.distribution is Distribution.MODEL
    assert (engine.abilities.model, engine.abilities.context) == ("smol", 64)
    body = bodies[-1]
    assert (body["prompt"], body["stop_token_ids"], body["return_token_ids"]) == ([1, 2], [3], True)
    assert (body["temperature"], body["top_p"], body["seed"]) == (0.5, 0.9, 7)


async def test_a_server_without_token_ids_is_refused_at_the_start() -> None:
    async with remote(token_ids=False) as (url, _):
        with pytest.raises(EngineError, match="no token ids"):
            await RemoteEngine.connect(url, tokenizer="t", vocabulary=10)


async def test_a_server_that_is_away_is_named() -> None:
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9: it does not respond"):
        await RemoteEngine.connect("http://127.0.0.1:9", tokenizer="t", vocabulary=10)


async def test_a_stream_that_ends_in_the_middle_is_the_engines_failure() -> None:
    async with remote(ends=False) as (url, _):
        with pytest.raises(EngineError, match="ended the request with None"):
            await RemoteEngine.connect(url, tokenizer="t", vocabulary=10)


async def test_what_it_cannot_do_is_refused() -> None:
    async with remote() as (url, _):
        engine = await RemoteEngine.connect(url, tokenizer="t", vocabulary=10)
        with pytest.raises(InvalidRequestError, match="json_object"):
            await engine.generate(
                asked(sampling=Sampling(structure=Structure(kind=StructureKind.JSON_OBJECT)))
            )
        with pytest.raises(LoadRefusedError, match="version 5 was refused"):
            await engine.swap(5, {})
        await engine.aclose()

"""A fake of vLLM over real HTTP: /v1/models and streamed /v1/completions that always say the same."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from ostinato.engine.http import serve
from ostinato.model.tokenizer import Tokenizer

CONTEXT = 4096
LOGPROB = -0.5


@asynccontextmanager
async def fake_vllm(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    *,
    token_ids: bool = True,
    logprobs: bool = True,
    tempered: bool = True,
    ends: bool = True,
    prompt_logprobs: str = "own",
    context: int | None = CONTEXT,
) -> AsyncIterator[tuple[str, list[dict[str, Any]]]]:
    """Serve a model that says `ids`, whose last one is a stop token; yield its URL and the bodies it got.

    `prompt_logprobs` are its "own", of "others" than the ids that it was sent, or "none".
    """
    bodies: list[dict[str, Any]] = []

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "smol", "max_model_len": context}]})

    async def completions(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        bodies.append(body)
        if "prompt_logprobs" in body:
            shift = {"own": 0, "others": 1}.get(prompt_logprobs)
            told = None if shift is None else [
                None, *({str(id_ + shift): {"logprob": LOGPROB}} for id_ in body["prompt"][1:])
            ]  # fmt: skip
            return web.json_response({"choices": [{"text": "", "prompt_logprobs": told}]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number, id_ in enumerate(ids[: body["max_tokens"]]):
            stops = number == len(ids) - 1
            choice: dict[str, Any] = {"text": "" if stops else tokenizer.decode([id_])}
            if logprobs:
                other = LOGPROB / (body["temperature"] or 1.0) if tempered else LOGPROB
                choice["logprobs"] = {"token_logprobs": [LOGPROB], "top_logprobs": [{"x": other}]}
            if token_ids:
                choice["token_ids"] = [id_]
            if token_ids and not number:
                prompt = body["prompt"]
                choice["prompt_token_ids"] = prompt if isinstance(prompt, list) else tokenizer.encode(prompt)
            await response.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        if ends:
            finish = "length" if body["max_tokens"] < len(ids) else "stop"
            last = {"text": "", "finish_reason": finish}
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

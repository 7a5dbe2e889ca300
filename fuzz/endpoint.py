"""An OpenAI-compatible endpoint on the loopback whose model is a function."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from ostinato.tasks.pebble import Pebble

Message = dict[str, Any]
Model = Callable[[str, Sequence[Message]], Message | None]
"""A function from a session's id and the conversation so far to the next message; None is a failure."""


def says(text: str) -> Message:
    return {"role": "assistant", "content": text}


def calls(turn: int, name: str, **arguments: Any) -> Message:
    call = {
        "id": f"c{turn}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def solves(pebble: Pebble, messages: Sequence[Message]) -> Message:
    """Return the next of the right edits, then a last message."""
    turn = sum(message["role"] == "assistant" for message in messages)
    if turn < len(pebble.changes):
        change = pebble.changes[turn]
        return calls(turn, "edit", path=change.path, old_string=change.old, new_string=change.new)
    return says(f"{pebble.targets[0].name} uses {pebble.answer}" if pebble.answer is not None else "done")


def asked_for(pebbles: Mapping[str, Pebble], messages: Sequence[Message]) -> Pebble:
    """Return the pebble whose instruction the user gave."""
    return pebbles[next(message["content"] for message in messages if message["role"] == "user")]


@asynccontextmanager
async def endpoint(model: Model) -> AsyncIterator[str]:
    """Serve `model` and yield the address."""

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        message = model(request.headers.get("X-Session-Id", ""), body["messages"])
        if message is None:
            return web.json_response({"error": {"message": "overloaded", "code": None}}, status=503)
        size = len(json.dumps(body["messages"]))
        return web.json_response(
            {
                "choices": [
                    {
                        "index": 0,
                        "message": message,
                        "finish_reason": "stop" if message.get("content") else "tool_calls",
                    }
                ],
                "usage": {"prompt_tokens": size, "completion_tokens": 5, "total_tokens": size + 5},
            }
        )

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}/v1"
    finally:
        await runner.cleanup()

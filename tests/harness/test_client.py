import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web

from ostinato.harness.client import (
    Ask,
    ContextExceeded,
    GatewayClient,
    GatewayRefused,
    GatewayUnavailable,
    open_http,
)
from ostinato.harness.workspace.served import recording_notice
from ostinato.types import Signal, SignalKind

ASK = Ask(session_id="s1", turn=0, messages=({"role": "user", "content": "hi"},), tools=())
ANSWER = {
    "choices": [{"message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}],
    "usage": {"total_tokens": 7},
    "ostinato": {"broken": None},
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Serves one handler on every path; gives the address."""
    runners = []

    async def start(handler: Handler, port: int = 0) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    yield start
    for runner in runners:
        await runner.cleanup()


def error(status: int, code: str | None = None) -> web.Response:
    return web.json_response({"error": {"message": "because", "code": code}}, status=status)


async def test_a_reply(serve) -> None:
    seen = []

    async def handler(request):
        seen.append(
            (request.path, request.headers["Authorization"], request.headers["X-Turn"], await request.json())
        )
        return web.json_response(ANSWER)

    async with GatewayClient(await serve(handler) + "/v1/", "key") as client:
        reply = await client.reply(ASK)
    assert (reply.message["content"], reply.finish, reply.tokens, reply.broken) == ("done", "stop", 7, None)
    ((path, key, turn, body),) = seen
    assert (path, key, turn, body["messages"]) == (
        "/v1/chat/completions",
        "Bearer key",
        "0",
        list(ASK.messages),
    )


async def test_clients_of_many_users_share_connections(serve) -> None:
    keys = []

    async def handler(request):
        keys.append((request.headers["Authorization"], request.transport.get_extra_info("peername")))
        return web.json_response(ANSWER)

    url = await serve(handler)
    async with open_http() as http:
        for key in ("one", "two"):
            async with GatewayClient(url, key, http=http) as client:
                await client.reply(ASK)
    assert [key for key, _ in keys] == ["Bearer one", "Bearer two"]
    assert len({peer for _, peer in keys}) == 1


async def test_it_waits_while_the_gateway_restarts(serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    answers = [error(503), error(502), web.json_response(ANSWER)]

    async def handler(request):
        return answers.pop(0)

    async with GatewayClient(f"http://127.0.0.1:{port}", "key") as client:
        waiting = asyncio.create_task(client.reply(ASK))
        await asyncio.sleep(0.1)
        await serve(handler, port)
        assert (await waiting).message["content"] == "done"


async def test_its_patience_ends(serve) -> None:
    async def handler(request):
        return error(503)

    async with GatewayClient(await serve(handler), "key", patience_s=0.2) as client:
        with pytest.raises(GatewayUnavailable, match="because"):
            await client.reply(ASK)
        with pytest.raises(GatewayUnavailable):
            await client.reply(ASK, on_text=print)
    async with GatewayClient("http://127.0.0.1:1", "key", patience_s=0.1) as client:
        signal = Signal(session_id="s1", kind=SignalKind.EDIT_KEPT, value=1.0, observed_at=0.0)
        with pytest.raises(GatewayUnavailable, match=r"127\.0\.0\.1:1 did not answer"):
            await client.signal(signal)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [(401, "invalid_api_key", GatewayRefused), (400, "context_length_exceeded", ContextExceeded)],
)
async def test_a_refusal_is_final(serve, status: int, code: str, kind: type[GatewayRefused]) -> None:
    async def handler(request):
        return error(status, code)

    async with GatewayClient(await serve(handler), "key") as client:
        with pytest.raises(kind, match="because") as caught:
            await client.reply(ASK)
    assert (caught.value.status, caught.value.code) == (status, code)


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chunk(finish: str | None = None, **delta: object) -> bytes:
    return event({"choices": [{"delta": delta, "finish_reason": finish}]})


async def test_a_stream_is_put_together_and_a_cut_one_is_asked_for_again(serve) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    whole = [
        chunk(content="lo"),
        chunk(content="ok"),
        chunk(tool_calls=[call]),
        chunk("tool_calls"),
        event({"choices": [], "usage": {"total_tokens": 9}}),
        b"data: [DONE]\n\n",
    ]
    failed = event({"error": {"message": "engine away", "code": "engine_unavailable"}})
    answers = [whole[:1], [*whole[:1], failed], whole]

    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for part in answers.pop(0):
            await response.write(part)
        return response

    pieces: list[str] = []
    async with GatewayClient(await serve(handler), "key") as client:
        reply = await client.reply(ASK, on_text=pieces.append)
    assert pieces[-2:] == ["lo", "ok"]
    assert reply.message["content"] == "look"
    assert reply.message["tool_calls"] == [{k: v for k, v in call.items() if k != "index"}]
    assert (reply.finish, reply.tokens) == ("tool_calls", 9)


async def test_arguments_that_come_in_pieces_are_put_together(serve) -> None:
    def part(index: int, arguments: str, **more: object) -> bytes:
        return chunk(tool_calls=[{"index": index, **more, "function": {"arguments": arguments}}])

    def begun(index: int, name: str, arguments: str) -> bytes:
        function = {"name": name, "arguments": arguments}
        return chunk(tool_calls=[{"index": index, "id": name, "type": "function", "function": function}])

    usage = event({"choices": [], "usage": {"total_tokens": 9}})
    parts = [begun(0, "write", '{"a"'), part(0, ": 1"), part(0, "}"), begun(1, "ls", "{"), part(1, "}")]

    async def handler(request):
        response = web.StreamResponse()
        await response.prepare(request)
        for part in (*parts, chunk("tool_calls"), usage, b"data: [DONE]\n\n"):
            await response.write(part)
        return response

    async with GatewayClient(await serve(handler), "key") as client:
        reply = await client.reply(ASK, on_text=lambda _: None)
    assert reply.message["tool_calls"] == [
        {"id": name, "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in (("write", '{"a": 1}'), ("ls", "{}"))
    ]


@pytest.mark.parametrize(
    ("response", "context"),
    [({"max_model_len": 4096}, 4096), ({}, None), ([1], None)],
)
async def test_the_context_of_the_served_model(serve, response: object, context: int | None) -> None:
    async def handler(request):
        assert (request.method, request.path) == ("GET", "/v1/models/ostinato")
        return web.json_response(response)

    async with GatewayClient(await serve(handler), "key") as client:
        assert (await client.served()).get("max_model_len") == context


async def test_a_context_that_cannot_be_known(serve) -> None:
    async def refuses(_):
        return error(401)

    async def rubbish(_):
        return web.Response(text="<html>", content_type="application/json")

    async with GatewayClient(await serve(refuses), "key") as client:
        with pytest.raises(GatewayRefused, match="401"):
            await client.served()
    for url in (await serve(rubbish), "http://127.0.0.1:1"):
        async with GatewayClient(url, "key") as client:
            with pytest.raises(GatewayUnavailable, match="did not answer"):
                await client.served()


def test_a_person_is_told_what_becomes_of_their_sessions() -> None:
    whose = {"user": "ada", "organisation": "", "trained_on": False}
    before = recording_notice(whose)
    assert "neither trained on" in before and "`ostinato consent set yes --user ada`" in before
    after = recording_notice(whose | {"trained_on": True})
    assert "may be trained on" in after and "consent set no" in after

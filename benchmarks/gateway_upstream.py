"""A model that responds at once, by OpenAI's chat completions and by the engine protocol of the gateway.

    python -m benchmarks.gateway_upstream TOKENS

Both responses have the same tokens, whole or streamed. TOKENS is a JSON list of [id, text]; the last is the
stop token. It prints its port. Both sides of the gateway benchmark forward to it, so it does little.
"""

import asyncio
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import httptools
import uvloop

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n"
UNKNOWN = (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",)
Response = tuple[bytes, ...]
"""The pieces written to the socket, one after another."""
Tokens = Sequence[tuple[int, str]]


class ResponseServer(asyncio.Protocol):
    """One connection, which reads whole requests and writes prepared responses."""

    def __init__(self, responses: Mapping[tuple[bytes, bool], Response]) -> None:
        self._responses = responses
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""
        self._path = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._body = self._path = b""

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        streamed = b'"stream":true' in self._body.replace(b": ", b":")
        for piece in self._responses.get((self._path, streamed), UNKNOWN):
            self._transport.write(piece)


def responses(tokens: Tokens) -> dict[tuple[bytes, bool], Response]:
    chat, engine = b"/v1/chat/completions", b"/generate"
    ids, words = [id_ for id_, _ in tokens], [text for _, text in tokens[:-1]]
    return {
        (chat, False): _whole(_completion(words)),
        (chat, True): _streamed(b"text/event-stream", _events(words)),
        (engine, False): _whole(_sampled(ids)),
        (engine, True): _streamed(b"application/x-ndjson", _lines(ids)),
    }


def _whole(value: object) -> Response:
    body = json.dumps(value).encode()
    return (HEAD % b"application/json" + b"Content-Length: %d\r\n\r\n" % len(body) + body,)


def _streamed(kind: bytes, pieces: Iterable[bytes]) -> Response:
    head = HEAD % kind + b"Transfer-Encoding: chunked\r\n\r\n"
    return (head, *(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces), b"0\r\n\r\n")


def _sampled(ids: list[int]) -> dict[str, Any]:
    return {"ids": ids, "logprobs": [-0.5] * len(ids), "versions": [1] * len(ids), "finish": "stop"}


def _lines(ids: list[int]) -> Iterable[bytes]:
    for id_ in ids:
        yield json.dumps({"id": id_, "logprob": -0.5, "version": 1}).encode() + b"\n"
    yield json.dumps(_sampled(ids)).encode() + b"\n"


def _completion(words: Sequence[str]) -> dict[str, Any]:
    message = {"role": "assistant", "content": "".join(words)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    count = len(words) + 1
    usage = {"prompt_tokens": 500, "completion_tokens": count, "total_tokens": 500 + count}
    return _envelope("chat.completion") | {"choices": [choice], "usage": usage}


def _events(words: Sequence[str]) -> Iterable[bytes]:
    deltas: list[tuple[dict[str, str], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": word}, None) for word in words]
    for delta, finish in [*deltas, ({}, "stop")]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        yield (
            b"data: %s\n\n" % json.dumps(_envelope("chat.completion.chunk") | {"choices": [choice]}).encode()
        )
    yield b"data: [DONE]\n\n"


def _envelope(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "ostinato"}


async def serve(tokens: Tokens) -> None:
    prepared, loop = responses(tokens), asyncio.get_running_loop()
    server = await loop.create_server(lambda: ResponseServer(prepared), "127.0.0.1", 0, backlog=2048)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(json.loads(sys.argv[1])))

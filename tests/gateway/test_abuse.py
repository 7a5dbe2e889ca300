"""Hostile, broken and unlucky clients get clear refusals; the process lives on and loses nothing.

Covers gateway/app.py, gateway/body.py, gateway/errors.py and gateway/turn_response.py.
"""

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

import aiohttp
import pytest
from tests.gateway.conftest import KEY

from ostinato.gateway.server import BACKLOG
from ostinato.store import Store
from ostinato.types import new_id

HI = {"role": "user", "content": "hi"}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
}
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "ostinato",
        "messages": [HI, CALLED, {"role": "tool", "tool_call_id": "c", "content": "x"}],
        "tools": [{"type": "function", "function": {"name": "read", "parameters": PARAMETERS}}],
        "max_tokens": 20,
        "temperature": 0.5,
        "stop": ["\n\n"],
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "/v1/messages": {
        "model": "ostinato",
        "system": [{"type": "text", "text": "be brief"}],
        "messages": [
            HI,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "read", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
        ],
        "tools": [{"name": "read", "description": "reads", "input_schema": PARAMETERS}],
        "max_tokens": 20,
        "stop_sequences": ["\n\n"],
        "metadata": {"user_id": "ada"},
    },
    "/v1/messages/count_tokens": {"model": "ostinato", "messages": [HI], "system": "be brief"},
    "/v1/responses": {
        "model": "ostinato",
        "instructions": "be brief",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "x"},
        ],
        "tools": [{"type": "function", "name": "read", "parameters": PARAMETERS}],
        "max_output_tokens": 20,
        "stream": True,
    },
    "/feedback": {"metric_name": "edit_kept", "episode_id": "s1", "value": True},
    "/v1/events": {
        "id": "e1",
        "name": "user.prompt",
        "time": 1.0,
        "session_id": "s1",
        "attributes": {"n": 1},
    },
    "/v1/logs": {
        "resourceLogs": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "claude"}}]},
                "scopeLogs": [
                    {
                        "scope": {"name": "events"},
                        "logRecords": [
                            {
                                "timeUnixNano": "1000000000",
                                "body": {"stringValue": "claude_code.tool_decision"},
                                "attributes": [
                                    {"key": "session.id", "value": {"stringValue": "s1"}},
                                    {"key": "decision", "value": {"stringValue": "reject"}},
                                ],
                            }
                        ],
                    }
                ],
            }
        ]
    },
}
JSON = {"Content-Type": "application/json"}
JUNK: list[Any] = [
    None, True, False, 0, -1, 1.5, 1e308, 2**63, -(2**70), "", "x", "\x00", "\ud800", "é" * 9, "<|im_end|>",
    "<tool_call>\n", [], {}, [[]], [None], {"": None}, [{}], {"type": "image"}, {"role": "root"}, "ostinato",
    [1] * 50, "a" * 5_000,
]  # fmt: skip


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of everything inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, each in inner for found in ((*here, key), *places(each, (*here, key)))]


def bent(value: Any, rng: random.Random) -> Any:
    """Return a copy of a good body with one to three wrong places."""
    copy = json.loads(json.dumps(value))
    for _ in range(rng.randint(1, 3)):
        every = places(copy)
        if not every:
            break
        *path, last = rng.choice(every)
        parent = copy
        for key in path:
            parent = parent[key]
        _bend(parent, last, rng)
    return copy


def _bend(parent: Any, key: Any, rng: random.Random) -> None:
    how = rng.randrange(5)
    if how == 0:
        del parent[key]
    elif how == 1 and isinstance(parent, dict):
        parent[rng.choice(["n", "logit_bias", "nonsense", "\ud800", "type"])] = deepcopy(rng.choice(JUNK))
    elif how == 2 and isinstance(parent, list):
        parent.append(deepcopy(rng.choice(JUNK)))
    elif how == 3:
        parent[key] = [deepcopy(parent[key]) for _ in range(rng.randint(2, 4))]
    else:
        parent[key] = deepcopy(rng.choice(JUNK))


def torn(body: bytes, rng: random.Random) -> bytes:
    """Return bytes that may no longer be JSON, or even text."""
    at, more = rng.randrange(len(body)), rng.randrange(1, 9)
    return rng.choice(
        [
            body[:at],
            body[:at] + rng.randbytes(more) + body[at + more :],
            body[:at] + b"\xff\xfe" + body[at:],
            b"\xef\xbb\xbf" + body,
            body + body,
            b"[" * rng.choice([1, 100_000]),
            b'{"a":' * 5_000,
            body.replace(b"20", b"NaN"),
            body.replace(b"20", b"9" * 5_000),
            body.replace(b'"', b"'"),
            b"",
        ]
    )


def clear(status: int, body: bytes) -> bool:
    """Return whether a client error says what is wrong, in the shape of its dialect."""
    if not 400 <= status < 500:
        return status in {200, 207}
    return bool(json.loads(body)["error"]["message"])


class Acknowledged:
    """Ids of turns and signals that a gateway acknowledged."""

    def __init__(self) -> None:
        self.turns: set[str] = set()
        self.signals: set[tuple[str, str]] = set()
        self.events: set[str] = set()

    def take(self, headers: Any, path: str, asked: bytes, body: bytes) -> None:
        if path == "/feedback":
            said = json.loads(asked)
            session = said.get("session_id") or said["episode_id"]
            self.signals.add((session, json.loads(body)["id"]))
        elif path == "/v1/events":
            self.events.add(json.loads(asked)["id"])
        elif "x-ostinato-turn" in headers and finished(body):
            self.turns.add(f"{headers['x-ostinato-session']}/{headers['x-ostinato-turn']}")

    def missing(self, store: Store, sessions: Iterable[str]) -> tuple[set[str], set[str], set[str]]:
        turns = store.turns_of({turn.rpartition("/")[0] for turn in self.turns}).values()
        signals = store.signals_of({session for session, _ in self.signals}).values()
        return (
            self.turns - {turn.id for each in turns for turn in each},
            {id_ for _, id_ in self.signals} - {signal.id for each in signals for signal in each},
            self.events - {event.id for session in sessions for event in store.events(session)},
        )


def finished(body: bytes) -> bool:
    """Return whether a reply is complete; a stream that broke off acknowledges nothing."""
    ends = (b"data: [DONE]", b'"type": "message_stop"', b"event: response.completed")
    return body.startswith(b"{") or any(end in body[-20_000:] for end in ends)


@pytest.fixture
async def url(launch, engine, http, store: Store) -> str:
    """The address of a gateway process that has recorded the session s1."""
    gateway = await launch()
    body = {"model": "ostinato", "messages": [HI]}
    headers = {"X-Session-Id": "s1"}
    async with http.post(gateway.url + "/v1/chat/completions", json=body, headers=headers) as response:
        assert response.status == 200
    return gateway.url


@pytest.mark.slow
async def test_ten_thousand_malformed_bodies(url: str, http, store: Store) -> None:
    rng, acknowledged, seen = random.Random(7), Acknowledged(), Counter[tuple[str, int]]()

    async def client(count: int) -> None:
        for _ in range(count):
            path = rng.choice(list(GOOD))
            whole = json.dumps(GOOD[path] if rng.random() < 0.5 else bent(GOOD[path], rng)).encode()
            asked = torn(whole, rng) if rng.random() < 0.5 else json.dumps(bent(GOOD[path], rng)).encode()
            async with http.post(url + path, data=asked, headers=JSON) as response:
                body = await response.read()
            assert clear(response.status, body), (path, asked[:2_000], response.status, body[:500])
            seen[path, response.status] += 1
            if response.status == 200 and path != "/v1/events":
                acknowledged.take(response.headers, path, asked, body)

    await asyncio.gather(*(client(625) for _ in range(16)))
    assert seen.total() == 10_000
    assert acknowledged.missing(store, ()) == (set(), set(), set())
    assert min(sum(n for (path, _), n in seen.items() if path == p) for p in GOOD) > 1_000
    async with http.get(url + "/healthz") as response:
        assert response.status == 200


HEAD = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n".encode()
BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "half a request line": b"POST /v1/cha",
    "half a header": HEAD[:-9],
    "no such protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a body shorter than it says": HEAD + b"Content-Length: 500\r\n\r\n" + b'{"model": "ostinato", ',
    "no number": HEAD + b"Content-Length: many\r\n\r\n{}",
    "a negative number": HEAD + b"Content-Length: -5\r\n\r\n{}",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 7\r\n\r\n{}",
    "a chunk that is cut": HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{",
    "a chunk without a size": HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n{}\r\n0\r\n\r\n",
    "an endless header": HEAD + b"X-Long: " + b"a" * 200_000,
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_request_harms_only_itself(sent: bytes, gateway: str, chat) -> None:
    port = int(gateway.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    await writer.drain()
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 300)
    writer.close()
    assert not answer or answer.split(b" ", 2)[1].startswith(b"4"), answer[:200]
    status, _, _ = await chat(HI)
    assert status == 200


async def test_a_hundred_megabytes_are_refused_and_not_held(url: str, http) -> None:
    async def endless() -> Any:
        for _ in range(100):
            yield b"a" * 2**20

    for path in GOOD:
        async with http.post(url + path, data=endless(), headers=JSON) as response:
            assert response.status == 413
            assert clear(response.status, await response.read())


@pytest.mark.slow
async def test_streams_that_are_cut_leave_whole_turns_or_none(url: str, http, script, store: Store) -> None:
    rng = random.Random(3)
    script.say = lambda prompt: "a long story " * 40
    streams = {path: body | {"stream": True} for path, body in GOOD.items() if "model" in body}
    del streams["/v1/messages/count_tokens"]

    async def client(number: int) -> None:
        for _ in range(20):
            path = rng.choice(list(streams))
            body = streams[path] | {"temperature": 1.0}
            headers = {"X-Session-Id": f"cut-{number}"}
            async with http.post(url + path, json=body, headers=headers) as response:
                assert response.status == 200
                await response.content.read(rng.choice([1, 50, 500, 5_000]))
                response.close()

    await asyncio.gather(*(client(number) for number in range(10)))
    async with http.get(url + "/healthz") as response:
        assert response.status == 200
    sessions = [f"cut-{number}" for number in range(10)]
    for turns in store.turns_of(sessions).values():
        assert [turn.index for turn in turns] == list(range(len(turns)))
        assert all(len(turn.completion.ids) == 20 for turn in turns)


async def test_two_clients_that_write_one_session_take_turns(url: str, http, store: Store) -> None:
    async def client(name: str) -> list[int]:
        messages: list[dict[str, Any]] = [{"role": "user", "content": name}]
        turns = []
        for _ in range(10):
            body = {"model": "ostinato", "messages": messages}
            async with http.post(
                url + "/v1/chat/completions", json=body, headers={"X-Session-Id": "shared"}
            ) as response:
                answer = await response.json()
                assert response.status == 200, answer
            turns.append(answer["ostinato"]["turn"])
            messages += [answer["choices"][0]["message"], {"role": "user", "content": f"{name} goes on"}]
        return turns

    mine, yours = await asyncio.gather(client("ada"), client("ben"))
    assert sorted(mine + yours) == list(range(20))
    recorded = store.turns("shared")
    assert [turn.index for turn in recorded] == list(range(20))
    by_segment: dict[int, list[Any]] = {}
    for turn in recorded:
        by_segment.setdefault(turn.segment, []).append(turn)
    for turns in by_segment.values():
        for earlier, later in itertools.pairwise(turns):
            kept = earlier.prompt_ids + earlier.completion.ids
            assert later.prompt_ids[: len(kept)] == kept


@pytest.mark.slow
@pytest.mark.parametrize("after", [60, 300])
async def test_killed_under_load_every_turn_and_signal_is_there(
    after: int, launch, http, engine, store: Store
) -> None:
    first = await launch()
    acknowledged = Acknowledged()

    async def ask(path: str, body: dict[str, Any], **headers: str) -> bytes:
        async with http.post(first.url + path, json=body, headers=headers) as response:
            answer = await response.read()
            assert response.status == 200, answer
            acknowledged.take(response.headers, path, json.dumps(body).encode(), answer)
            return answer

    async def developer(number: int) -> None:
        path = ["/v1/chat/completions", "/v1/messages", "/v1/responses"][number % 3]
        session, asked = f"k{number}", GOOD[path] | {"stream": bool(number % 2)}
        try:
            while True:
                await ask(path, asked, **{"X-Session-Id": session})
                await ask("/feedback", GOOD["/feedback"] | {"episode_id": session})
                await ask("/v1/events", GOOD["/v1/events"] | {"id": new_id(), "session_id": session})
        except aiohttp.ClientError:
            return

    load = [asyncio.create_task(developer(number)) for number in range(12)]
    while len(acknowledged.turns) + len(acknowledged.signals) < after:
        assert not any(task.done() for task in load)
        await asyncio.sleep(0.005)
    first.process.kill()
    await asyncio.gather(*load)
    second = await launch()
    assert acknowledged.turns and acknowledged.signals and acknowledged.events
    assert acknowledged.missing(store, [f"k{number}" for number in range(12)]) == (set(), set(), set())
    body = GOOD["/v1/chat/completions"] | {"stream": False}
    async with http.post(
        second.url + "/v1/chat/completions", json=body, headers={"X-Session-Id": "k0"}
    ) as response:
        assert (await response.json())["ostinato"]["turn"] == len(store.turns("k0")) - 1


async def test_more_connections_than_wait(url: str, http) -> None:
    """Idle connections beyond the backlog do not keep other clients out."""
    port = int(url.rpartition(":")[2])
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(min(200, BACKLOG))]
    async with http.get(url + "/healthz") as response:
        assert response.status == 200
    for _, writer in held:
        writer.close()

"""Connections as frames: a forwarder in its own process, programs that connect to it, and a proxy at our end.

The last tests have dishonest guests, which harm only themselves. Covers sandbox/guest/proxy_forwarder.py as
well.
"""

import asyncio
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.egress.conftest import resolve, serving

from ostinato.sandbox import SandboxError
from ostinato.sandbox.base import Egress
from ostinato.sandbox.egress.frame_transport import MOST, FrameRoute
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.connection import AgentConnection

GUEST = """
import os, select, sys
from ostinato.sandbox.protocol.agent_link import AgentLink, Poller
from ostinato.sandbox.guest.proxy_forwarder import ProxyForwarder

link, watch = AgentLink(os.dup(0), os.dup(1), ""), Poller()
forwarder = ProxyForwarder(watch, link.send, os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND))

def receive(_):
    for request, body in link.receive():
        match request["op"]:
            case "stream": forwarder.receive(request, body)
            case "trust": forwarder.trust(body)
            case "open": forwarder.open(request["door"])
            case "shut": forwarder.shut()
            case "hello": forwarder.reset()
        if request["op"] not in ("stream", "trust"):
            told = {name: os.environ[name] for name in ("HTTP_PROXY", "SSL_CERT_FILE") if name in os.environ}
            link.send({"id": request["id"], "told": told})

watch.add(link.incoming, select.POLLIN | select.POLLHUP | select.POLLERR, receive)
while link.open:
    watch.poll_once(None)
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass(kw_only=True)
class Guest:
    """The forwarder's process, its wire and its port."""

    channel: socket.socket
    trust: Path
    port: int
    wire: AgentConnection
    route: FrameRoute | None = None

    async def enter(self, policy: Egress) -> None:
        """Make the guest a sandbox of its own, whatever it was before."""
        await self.wire.hello("another", 20)
        self.route = FrameRoute(policy, "s", resolve, self.wire)
        door = {
            **self.route.forwarder_settings({"SSL_CERT_FILE": "kept"}),
            "address": ("127.0.0.1", self.port),
        }
        for part in (b"whom ", b"to trust"):
            self.wire.send({"id": 0, "op": "trust"}, part)
        answer, _ = await self.wire.request({"op": "open", "door": door}, within_s=20)
        assert answer["told"] == {"HTTP_PROXY": "http://127.0.0.1:3128"}
        assert self.trust.read_bytes() == b"whom to trust"

    async def knock(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def tunnel(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.knock()
        writer.write(f"CONNECT good.test:{port} HTTP/1.1\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        return reader, writer

    async def refusals(self, count: int) -> list[str | None]:
        """Return why each of the first `count` connections was refused or cut; None if it was not."""
        assert self.route is not None
        async with asyncio.timeout(20):
            while len(self.route.proxy.connections) < count:
                await asyncio.sleep(0.01)
        return [each.refused for each in self.route.proxy.connections]


async def wired(channel: socket.socket, **more: Any) -> AgentConnection:
    _, wire = await asyncio.get_running_loop().create_unix_connection(
        lambda: AgentConnection("", **more), sock=channel
    )
    return wire


@pytest.fixture
async def guest(tmp_path: Path) -> AsyncIterator[Guest]:
    ours, theirs = socket.socketpair()
    trust = tmp_path / "ca.pem"
    command = [sys.executable, "-c", GUEST, str(trust)]
    with theirs:  # a process that knows only the path of its modules
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, env={"PYTHONPATH": ":".join(sys.path)}
        )
    guest = Guest(channel=ours, trust=trust, port=free_port(), wire=await wired(ours))
    yield guest
    if guest.route is not None:
        await guest.route.aclose()
    await guest.wire.close("the test is over")
    await asyncio.to_thread(process.wait)


def policy(port: int, **more: Any) -> Egress:
    return Egress(allow=(f"good.test:{port}",), networks=("127.0.0.0/8",), **more)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


async def test_both_ways_at_once_and_half_closed(guest: Guest) -> None:
    data = bytes(range(256)) * 12_000  # much more than either side may be ahead
    async with serving(echo) as port:
        await guest.enter(policy(port))
        reader, writer = await guest.tunnel(port)
        writer.write(data)
        writer.write_eof()
        assert await reader.read() == data
        await close(writer)
        assert await guest.refusals(1) == [None]
    assert guest.route is not None
    (seen,) = guest.route.proxy.connections
    assert (seen.sent, seen.received) == (len(data), len(data))


async def test_a_slow_reader_delays_no_other_and_fills_little_memory(guest: Guest) -> None:
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readexactly(1)
        while sent < 64 << 20:
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16
        writer.close()

    async with serving(pour) as port, serving(echo) as other:
        both = Egress(allow=(f"good.test:{port}", f"good.test:{other}"), networks=("127.0.0.0/8",))
        await guest.enter(both)
        slow, writer = await guest.tunnel(port)
        writer.write(b"\0")
        slow._transport.pause_reading()  # type: ignore[attr-defined]
        before = -1
        while before != sent:  # until nobody takes any more: what lies in between are buffers of sockets
            before = sent
            for _ in range(20):
                reader, second = await guest.tunnel(other)
                second.write(b"\0fast")
                assert await reader.readexactly(5) == b"\0fast"
                await close(second)
        assert sent < 48 << 20
        slow._transport.resume_reading()  # type: ignore[attr-defined]
        assert len(await slow.read()) == 64 << 20
        await close(writer)


async def test_a_program_that_goes_is_noticed(guest: Guest) -> None:
    came, gone = asyncio.Event(), asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read(5) == b"\0ciao"
        came.set()
        await reader.read()
        gone.set()
        writer.close()

    async with serving(wait) as port:
        await guest.enter(policy(port))
        _, writer = await guest.tunnel(port)
        writer.write(b"\0ciao")
        await asyncio.wait_for(came.wait(), 20)
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        writer.transport.abort()
        await asyncio.wait_for(gone.wait(), 20)
        assert "failed" in ((await guest.refusals(1))[0] or "")


async def test_a_server_that_goes_is_noticed(guest: Guest) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"half")
        await writer.drain()
        await reader.read(1)
        writer.transport.abort()

    async with serving(half) as port:
        await guest.enter(policy(port))
        reader, writer = await guest.tunnel(port)
        assert await reader.readexactly(4) == b"half"
        writer.write(b"xx")
        assert await reader.read() == b""
        await close(writer)


async def test_connections_beyond_the_policy_are_refused_and_many_more_wait(guest: Guest) -> None:
    async with serving(echo) as port:
        await guest.enter(policy(port, connections=2))
        held = [await guest.tunnel(port) for _ in range(2)]
        for _ in range(60):
            reader, writer = await guest.knock()
            assert (await reader.read()).startswith(b"HTTP/1.1 429")
            await close(writer)
        idle = [await guest.knock() for _ in range(40)]  # say nothing, and are refused in their turn
        answers = await asyncio.gather(*(reader.read() for reader, _ in idle))
        assert all(answer.startswith(b"HTTP/1.1 429") for answer in answers)
        for _, writer in (*held, *idle):
            await close(writer)


async def test_a_connection_to_a_full_forwarder_waits(guest: Guest) -> None:
    async with serving(echo) as port:
        await guest.enter(policy(port, connections=1000))
        held = [await guest.tunnel(port) for _ in range(MOST)]
        reader, writer = await guest.knock()
        writer.write(f"CONNECT good.test:{port} HTTP/1.1\r\n\r\n".encode())
        waiting = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
        held[0][1].write(b"\0")
        assert await held[0][0].readexactly(1) == b"\0"
        assert not waiting.done()
        await close(held.pop()[1])
        assert (await waiting).startswith(b"HTTP/1.1 200")
        for _, each in (*held, (reader, writer)):
            await close(each)


async def test_a_new_route_gets_nothing_of_earlier_connections(guest: Guest) -> None:
    """Open connections break as after a fork; later ones wait and are served by the new route."""
    async with serving(echo) as port:
        await guest.enter(policy(port))
        reader, writer = await guest.tunnel(port)
        writer.write(b"\0ne")
        assert await reader.readexactly(3) == b"\0ne"
        old, guest.route = guest.route, None
        await guest.wire.hello("a copy", 20)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await close_broken(writer)
        new, waiting = await guest.knock()
        await guest.enter(policy(port))
        waiting.write(f"CONNECT good.test:{port} HTTP/1.1\r\n\r\n".encode())
        assert (await new.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        waiting.write(b"\0wo")
        assert await new.readexactly(3) == b"\0wo"
        await close(waiting)
        assert await guest.refusals(1) == [None]
        assert old is not None and not old.proxy.connections
        await old.aclose()


async def close_broken(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with pytest.raises(ConnectionResetError):
        await writer.wait_closed()


async def test_a_copy_without_a_route_resets_waiting_connections(guest: Guest) -> None:
    async with serving(echo) as port:
        await guest.enter(policy(port))
        assert guest.route is not None
        await guest.route.aclose()
        await guest.wire.hello("a copy", 20)
        reader, writer = await guest.knock()
        answer, _ = await guest.wire.request({"op": "shut"}, within_s=20)
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await close_broken(writer)
        with pytest.raises(ConnectionRefusedError):
            await guest.knock()
    assert answer["told"] == {}
    assert guest.trust.read_bytes() == b""


async def test_frames_that_are_held_back_arrive_later(guest: Guest) -> None:
    async with serving(echo) as port:
        await guest.enter(policy(port))
        reader, writer = await guest.tunnel(port)
        guest.wire.hold()
        writer.write(bytes(1 << 20))
        coming = asyncio.create_task(reader.readexactly(1 << 20))
        await asyncio.wait([coming], timeout=0.2)
        assert not coming.done()
        guest.wire.release()
        await coming
        await close(writer)


@pytest.mark.parametrize("held", [False, True])
async def test_the_end_of_the_route_cuts_open_connections(guest: Guest, held: bool) -> None:
    async with serving(echo) as port:
        await guest.enter(policy(port))
        reader, writer = await guest.tunnel(port)
        if held:
            guest.wire.hold()
            writer.write(bytes(1 << 20))
            await asyncio.sleep(0)
        assert guest.route is not None
        await asyncio.wait_for(guest.route.aclose(), 20)
        assert await guest.refusals(1) == ["the sandbox ended"]
        await guest.wire.close("the sandbox ended")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1 << 20)
        writer.close()


async def test_a_guest_that_dies_cuts_open_connections(guest: Guest) -> None:
    async with serving(echo) as port:
        await guest.enter(policy(port))
        _, writer = await guest.tunnel(port)
        guest.wire.connection_lost(None)
        assert await guest.refusals(1) == ["failed: the sandbox is gone"]
        writer.close()


# guests that are not honest


@dataclass(kw_only=True)
class DishonestGuest:
    """Our end of a wire to a backend that takes us for a guest."""

    channel: socket.socket
    wire: AgentConnection
    route: FrameRoute

    async def say(self, body: bytes = b"", **header: object) -> None:
        frame = frames.pack({"id": 0, "generation": "", **header}, body)
        with suppress(BrokenPipeError, ConnectionResetError):  # it may be ended before all is said
            await asyncio.get_running_loop().sock_sendall(self.channel, frame)


@pytest.fixture
async def dishonest() -> AsyncIterator[DishonestGuest]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    wire = await wired(ours)
    route = FrameRoute(Egress(allow=(), connections=4), "s", resolve, wire)
    yield DishonestGuest(channel=theirs, wire=wire, route=route)
    await route.aclose()
    await wire.close("the test is over")
    theirs.close()


LIES: dict[str, list[tuple[dict[str, object], bytes]]] = {
    "no number": [({"event": "opened"}, b"")],
    "a number that is none": [({"event": "opened", "stream": "1"}, b"")],
    "a number below one": [({"event": "opened", "stream": 0}, b"")],
    "a list as number": [({"event": "opened", "stream": [1]}, b"")],
    "opened twice": [({"event": "opened", "stream": 1}, b"")] * 2,
    "too many": [({"event": "opened", "stream": number}, b"") for number in range(1, 100)],
    "an event that is none": [({"event": "opened", "stream": 1}, b""), ({"event": "x", "stream": 1}, b"")],
    "an event that is no word": [({"event": {}, "stream": 1}, b""), ({"event": "opened", "stream": 1}, b"")][
        ::-1
    ],
    "data without data": [({"event": "opened", "stream": 1}, b""), ({"event": "data", "stream": 1}, b"")],
    "data behind the end": [
        ({"event": "opened", "stream": 1}, b""),
        ({"event": "end", "stream": 1}, b""),
        ({"event": "data", "stream": 1}, b"x"),
    ],
    "too much data at once": [
        ({"event": "opened", "stream": 1}, b""),
        ({"event": "data", "stream": 1}, bytes(frames.WINDOW + 1)),
    ],
    "taken what was not given": [
        ({"event": "opened", "stream": 1}, b""),
        ({"event": "taken", "stream": 1, "bytes": 1}, b""),
    ],
    "taken less than nothing": [
        ({"event": "opened", "stream": 1}, b""),
        ({"event": "taken", "stream": 1, "bytes": -5}, b""),
    ],
    "taken nobody knows what": [
        ({"event": "opened", "stream": 1}, b""),
        ({"event": "taken", "stream": 1}, b""),
    ],
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_guest_that_breaks_the_protocol_is_ended(dishonest: DishonestGuest, lie: str) -> None:
    for header, body in LIES[lie]:
        await dishonest.say(body, **header)
    with pytest.raises(SandboxError, match="does not speak the protocol"):
        await dishonest.wire.request({"op": "anything"}, within_s=20)


async def test_frames_for_a_closed_connection_are_ignored(dishonest: DishonestGuest) -> None:
    await dishonest.say(event="data", stream=7, body=b"x")
    await dishonest.say(event="opened", stream=1)
    await dishonest.say(event="close", stream=1)
    await dishonest.say(event="end", stream=1)
    asked = dishonest.wire.send_request({"op": "anything"}, within_s=20)
    await dishonest.say(id=asked.number)
    await dishonest.wire.response(asked)


async def test_a_guest_that_acknowledges_unread_bytes_fills_no_memory(dishonest: DishonestGuest) -> None:
    """It acknowledges all bytes and reads none of them."""
    sent = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(bytes(1 << 16))
            await writer.drain()
            sent += 1 << 16

    async with serving(pour) as port:
        await dishonest.route.aclose()
        dishonest.route = FrameRoute(policy(port), "s", resolve, dishonest.wire)
        await dishonest.say(event="opened", stream=1)
        await dishonest.say(
            event="data", stream=1, body=f"CONNECT good.test:{port} HTTP/1.1\r\n\r\nx".encode()
        )
        reader = frames.FrameReader()
        given = 0
        while given < 4 * frames.WINDOW:  # so far it is honest
            reader.feed(await asyncio.get_running_loop().sock_recv(dishonest.channel, 1 << 16))
            while frame := reader.next():
                header, body = frame
                if header["event"] == "data":
                    given += len(body)
                    await dishonest.say(event="taken", stream=1, bytes=len(body))
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.1)
        transport, fullest = dishonest.wire._transport, 0
        assert transport is not None
        with suppress(ConnectionError):  # when it has taken more than can be on its way it is ended
            for _ in range(100):  # from here on it lies: nothing of this was read
                await dishonest.say(event="taken", stream=1, bytes=16_000)
                await asyncio.sleep(0.01)
                fullest = max(fullest, transport.get_write_buffer_size())
        assert 0 < fullest < 4 * frames.CHUNK


async def test_connections_take_turns_on_a_full_wire(dishonest: DishonestGuest) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(bytes(1 << 18))
            await writer.drain()

    async with serving(pour) as port:
        await dishonest.route.aclose()
        dishonest.route = FrameRoute(policy(port), "s", resolve, dishonest.wire)
        for stream in (1, 2, 3):
            await dishonest.say(event="opened", stream=stream)
            asked = f"CONNECT good.test:{port} HTTP/1.1\r\n\r\nx".encode()
            await dishonest.say(event="data", stream=stream, body=asked)
        reader, given = frames.FrameReader(), {1: 0, 2: 0, 3: 0}
        while sum(given.values()) < 20 << 20:
            reader.feed(await asyncio.get_running_loop().sock_recv(dishonest.channel, 1 << 14))
            while frame := reader.next():
                header, body = frame
                if header["event"] == "data":
                    given[header["stream"]] += len(body)
                    await dishonest.say(event="taken", stream=header["stream"], bytes=len(body))
        assert min(given.values()) > 6 << 20

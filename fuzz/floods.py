"""Floods of requests that strangers and users send to hurt a server, and their measurement.

Each flood goes to the real server process on loopback: the gateway (no engine responds behind it), the search
service and a sandbox node. While it lasts, `/healthz` is requested every 10 ms over a fresh connection.
"""

import gzip
import http.client
import json
import multiprocessing
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ostinato.gateway.dialects.request import MOST_TEXT
from ostinato.model.tokenizer import Tokenizer
from ostinato.store import Store
from ostinato.store.accounts import hash_key
from ostinato.types import Arm

KEY = "key-of-the-flood"
MOST_MB, MOST_MS = 50.0, 100.0
MB = 2**20
PROBE_S = 0.01
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood:
    """A flood and its server; `send(port, scale)` returns the number of bytes it could send."""

    server: str
    send: Callable[[int, float], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The effect of a flood. Times are in milliseconds; `n` is the number of responses of `/healthz`."""

    sent_mb: float
    held_mb: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    n: int
    failed: int
    cpu_s: float


def pour(port: int, connections: int, first: bytes, unit: bytes, size: int, *, hold_s: float = 0.0) -> int:
    """Open `connections`, write `first` and then `unit` to each, up to `size` bytes or until it closes."""
    opened, sent = [], 0
    for _ in range(connections):
        one = socket.create_connection(("127.0.0.1", port))
        one.settimeout(5)
        opened.append(one)
    piece = (unit * (65536 // max(1, len(unit)) + 1))[:65536] if unit else b""
    written = dict.fromkeys(opened, 0)
    for one in opened:
        with suppress(OSError):
            one.sendall(first)
            sent += len(first)
    while written and piece:
        for one in list(written):
            try:
                one.sendall(piece)
            except OSError:
                del written[one]
                continue
            sent += len(piece)
            written[one] += len(piece)
            if written[one] >= size:
                del written[one]
    time.sleep(hold_s)
    for one in opened:
        one.close()
    return sent


def post(port: int, path: str, body: bytes, times: int = 1, **headers: str) -> int:
    """Post `body` as an authenticated user, one request after another."""
    sent = 0
    for _ in range(times):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        client.request("POST", path, body, {"Authorization": f"Bearer {KEY}", **headers})
        client.getresponse().read()
        client.close()
        sent += len(body)
    return sent


def chat(text: str) -> bytes:
    return json.dumps(
        {"model": "ostinato", "max_tokens": 4, "messages": [{"role": "user", "content": text}]}
    ).encode()


GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
TRAILED = b"POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
BODIES = b"POST /v1/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999999999\r\n\r\n"


def n(times: int, scale: float) -> int:
    return max(1, round(times * scale))


def heads(port: int, scale: float) -> int:
    return pour(port, n(400, scale), GET + b"A: ", b"a", MB)


def one_head(port: int, scale: float) -> int:
    return pour(port, 1, GET + b"A: ", b"a", n(200 * MB, scale))


def small_headers(port: int, scale: float) -> int:
    return pour(port, n(400, scale), GET, b"a: b\r\n", MB)


def trailers(port: int, scale: float) -> int:
    return pour(port, n(200, scale), TRAILED, b"a: b\r\n", MB)


def pipelines(port: int, scale: float) -> int:
    return pour(port, n(100, scale), b"", GET + b"\r\n", MB)


def idle(port: int, scale: float) -> int:
    return pour(port, n(3_000, scale), b"G", b"", 0, hold_s=2.0)


def full_heads(port: int, scale: float) -> int:
    """Send as many bytes as a server holds without refusal, on as many connections as it holds."""
    return pour(port, n(1_000, scale), GET + b"A: " + b"a" * 32_000, b"", 0, hold_s=2.0)


def unread_bodies(port: int, scale: float) -> int:
    return pour(port, n(200, scale), BODIES, b"x", MB)


def events(port: int, scale: float) -> int:
    return post(port, "/v1/events", b"ab\n" * n(8 * MB // 3, scale), 3)


def redaction(port: int, scale: float) -> int:
    """Send the longest text that is read, and the longest body."""
    texts = ("token=Abcdefg!, " * n(size // 16, scale) for size in (MOST_TEXT, 7 * MB))
    return sum(post(port, "/v1/chat/completions", chat(text)) for text in texts)


def event_text(port: int, scale: float) -> int:
    line = {"id": "e", "name": "client.error", "time": 1, "attributes": {"note": "token=Abcdefg!, " * 12_000}}
    return post(port, "/v1/events", (json.dumps(line).encode() + b"\n") * n(40, scale))


def count_tokens(port: int, scale: float) -> int:
    words = "the quick brown fox jumps "
    bodies = (chat(words * n(size // len(words), scale)) for size in (MOST_TEXT, 7 * MB))
    return sum(post(port, "/v1/messages/count_tokens", body) for body in bodies)


def values(port: int, scale: float) -> int:
    return post(port, "/v1/chat/completions", b"[" + b"{}," * n(8 * MB // 3 - 9, scale) + b"0]", 2)


def otlp(port: int, scale: float) -> int:
    inner = b"\x12\x00" * n(MB, scale)
    for tag in (0x12, 0x0A):
        size, length = len(inner), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        inner = bytes([tag]) + length + bytes([size]) + inner
    return post(port, "/v1/logs", inner, 2, **{"Content-Type": "application/x-protobuf"})


def bomb(port: int, scale: float) -> int:
    packed = gzip.compress(b"\0" * n(900 * MB, scale / 4))
    return post(port, "/v1/logs", packed, 2, **{"Content-Encoding": "gzip"})


def search_values(port: int, scale: float) -> int:
    return post(port, "/v1/search/trees", b'{"files":[' + b"{}," * n(8 * MB // 3 - 9, scale) + b"0]}", 2)


GATEWAY = (
    heads, one_head, small_headers, full_heads, trailers, pipelines, idle, unread_bodies, events, event_text,
    redaction, count_tokens, values, otlp, bomb,
)  # fmt: skip
FLOODS = {
    **{f"gateway, {send.__name__}": Flood(server="gateway", send=send) for send in GATEWAY},
    **{
        f"search, {send.__name__}": Flood(server="search", send=send)
        for send in (heads, one_head, search_values)
    },
    **{f"sandbox, {send.__name__}": Flood(server="sandbox", send=send) for send in (heads, pipelines)},
}


class Memory:
    """The resident memory and CPU time of a process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def reset(self) -> None:
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")

    def read_mb(self, name: str) -> float:
        status = Path(f"/proc/{self._pid}/status").read_text()
        return int(status.partition(f"{name}:")[2].split()[0]) / 1024

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK


def probe(port: int, path: str) -> float:
    """Return the milliseconds to a response of `/healthz` over a fresh connection. Raises OSError."""
    began = time.perf_counter()
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    client.request("GET", path)
    client.getresponse().read()
    client.close()
    return 1e3 * (time.perf_counter() - began)


def measure(
    flood: Flood, port: int, pid: int, scale: float, path: str = "/healthz", *, apart: bool = True
) -> Outcome:
    """Send `flood`, and request `path` until it has ended.

    The sender is another process or, without `apart`, a thread, which starts sooner and makes latencies
    longer.
    """
    for _ in range(20):
        probe(port, path)
    memory = Memory(pid)
    memory.reset()
    rest, cpu = memory.read_mb("VmRSS"), memory.cpu_s()
    spawn = multiprocessing.get_context("spawn")
    sent: Any = spawn.Queue() if apart else queue.Queue()
    start: Any = spawn.Process if apart else threading.Thread
    sender = start(target=_send, args=(flood.send, port, scale, sent))
    sender.start()
    times, failed = list[float](), 0
    while sender.is_alive() or not times:
        try:
            times.append(probe(port, path))
        except (OSError, http.client.HTTPException):
            failed += 1
        time.sleep(PROBE_S)
    sent_bytes = sent.get(timeout=5)
    sender.join()
    return Outcome(
        sent_mb=sent_bytes / MB,
        held_mb=max(0.0, memory.read_mb("VmHWM") - rest),
        p50_ms=float(np.quantile(times, 0.5)),
        p99_ms=float(np.quantile(times, 0.99)),
        max_ms=max(times),
        n=len(times),
        failed=failed,
        cpu_s=memory.cpu_s() - cpu,
    )


def _send(send: Callable[[int, float], int], port: int, scale: float, sent: Any) -> None:
    sent.put(send(port, scale))


@contextmanager
def process(*command: str) -> Iterator[tuple[int, int]]:
    """Start a server that prints a ready line; yield its port and process id."""
    with subprocess.Popen([sys.executable, "-m", *command], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["port"], server.pid
        finally:
            server.terminate()


@contextmanager
def servers(names: Sequence[str]) -> Iterator[dict[str, tuple[int, int]]]:
    """Start the named servers; yield the port and process id of each."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        Tokenizer.train(["the gateway keeps the tokens exactly as they were sampled " * 4], 300).save(
            directory
        )
        store = Store.open(directory / "store.db")
        store.add_key(hash_key(KEY), "flood", "use,feedback")
        store.set_arms([Arm(name="main", version=1, share=1.0, engines=("http://127.0.0.1:9",))])
        store.close()
        commands = {
            "gateway": ("ostinato.gateway.server", "--store", str(directory / "store.db"), "--checkpoint",
                        str(directory), "--engine-wait", "0.1"),
            "search": ("ostinato", "search", "serve", "--port", "0", "--cache", str(directory / "s.db"),
                       "--store", str(directory / "store.db")),
            "sandbox": ("ostinato", "sandbox", "node", "--state", str(directory / "node"), "--port", "0",
                        "--backend", "process"),
        }  # fmt: skip
        yield {name: stack.enter_context(process(*commands[name])) for name in names}

"""Slow and lossy links between network namespaces, for kernels without `netem`.

One process holds a TUN device in both namespaces of each link and forwards packets between them. A packet
waits for the bits before it, travels for `delay` and a random part of `jitter`, in order, and is lost by
chance or when the queue is full. TCP cannot tell these links from wires. It needs root on Linux.
"""

import argparse
import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import signal
import socket
import statistics
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
QUEUE_S = 0.1
"""The seconds of bits that may wait in front of a link; packets beyond them are lost."""
PACKET = 65536
ECHO_PORT, PROBES, PROBE_EVERY_S, PATIENCE_S = 9999, 1000, 0.003, 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The effect of a link on packets, in each direction.

    >>> Shape(mbit=50.0, delay_ms=40.0, jitter_ms=2.0, loss=0.005).loss
    0.005
    """

    mbit: float
    delay_ms: float
    jitter_ms: float
    loss: float


@dataclass(slots=True)
class Direction:
    """One direction of a link: from a device to another."""

    source: int
    target: int
    free_at: float = 0.0
    """The time at which the last accepted bit has left."""
    last_due: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: {"carried": 0, "lost": 0, "overflowed": 0})

    def due(self, size: int, now: float, shape: Shape, chance: random.Random) -> float | None:
        """Return the arrival time of a packet sent now; None if it is lost."""
        if chance.random() < shape.loss:
            self.counts["lost"] += 1
            return None
        if self.free_at - now > QUEUE_S:
            self.counts["overflowed"] += 1
            return None
        self.counts["carried"] += 1
        self.free_at = max(now, self.free_at) + size * 8e-6 / shape.mbit
        travels = (shape.delay_ms + chance.random() * shape.jitter_ms) / 1e3
        self.last_due = max(self.last_due, self.free_at + travels)
        return self.last_due


def forward(directions: list[Direction], shape: Shape, stopped: Callable[[], bool]) -> None:
    """Carry packets until `stopped()`."""
    chance, number = random.Random(0), itertools.count()
    under_way: list[tuple[float, int, int, bytes]] = []
    poll, by_source = select.poll(), {direction.source: direction for direction in directions}
    for source in by_source:
        poll.register(source, select.POLLIN)
    while not stopped():
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else 0.1
        for source, _ in poll.poll(min(wait, 0.1) * 1e3):
            direction, packet = by_source[source], os.read(source, PACKET)
            due = direction.due(len(packet), time.monotonic(), shape, chance)
            if due is not None:
                heapq.heappush(under_way, (due, next(number), direction.target, packet))
        while under_way and under_way[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(under_way)
            os.write(target, packet)


def join(space: str) -> None:
    """Enter the network namespace `space` with this process."""
    with Path(f"/var/run/netns/{space}").open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"cannot enter {space}")


def tun(space: str, name: str) -> int:
    """Return a descriptor of a new device in a namespace; the device ends when it is closed."""
    join(space)
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def echo() -> None:
    """Send every datagram back."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("0.0.0.0", ECHO_PORT))
        print("ready", flush=True)
        while True:
            server.sendto(*server.recvfrom(64))


def probe(host: str) -> dict[str, float]:
    """Return the round trip in ms, and the share of datagrams lost in either direction, over many probes."""
    trips: dict[int, float] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect((host, ECHO_PORT))
        end = time.monotonic() + PROBES * PROBE_EVERY_S + PATIENCE_S
        sent = 0
        while time.monotonic() < end and len(trips) < PROBES:
            client.settimeout(PROBE_EVERY_S)
            if sent < PROBES:
                client.send(struct.pack("=id", sent, time.monotonic()))
                sent += 1
            try:
                number, at = struct.unpack("=id", client.recv(64))
                trips[number] = time.monotonic() - at
            except TimeoutError:
                continue
    return {
        "rtt_ms": 1e3 * statistics.median(trips.values()),
        "rtt_p99_ms": 1e3 * statistics.quantiles(trips.values(), n=100)[98],
        "lost": 1 - len(trips) / sent,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.link", description=__doc__)
    parser.add_argument("--echo", action="store_true", help="answer probes, in this namespace")
    parser.add_argument("--probe", metavar="HOST", help="ask who answers there")
    parser.add_argument("--link", action="append", default=[], metavar="SPACE:DEVICE,SPACE:DEVICE")
    parser.add_argument("--shape", type=json.loads, default={}, metavar="JSON")
    options = parser.parse_args()
    if options.echo:
        echo()
    elif options.probe:
        print(json.dumps(probe(options.probe)))
    else:
        carry([tuple(link.split(",")) for link in options.link], Shape(**options.shape))


def carry(links: list[tuple[str, ...]], shape: Shape) -> None:
    """Carry packets until SIGTERM; then print one line with the packets carried and lost by direction."""
    directions = []
    for near, far in links:
        one, other = (tun(*end.split(":")) for end in (near, far))
        directions += [Direction(one, other), Direction(other, one)]
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    print("ready", flush=True)
    forward(directions, shape, lambda: bool(ended))
    print(json.dumps([direction.counts for direction in directions]), flush=True)


if __name__ == "__main__":
    sys.exit(main())

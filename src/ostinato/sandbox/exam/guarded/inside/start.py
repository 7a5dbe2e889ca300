"""The start of a suite in its sandbox, and the channel of its reports.

The verifier sends an order on standard input: the sources of these modules, and the plan with its nonce. So
neither lies in a file, an argument or a variable, and nothing of the repository is imported before the
channel is open.
"""

import fcntl
import hmac
import json
import os
import sys
import time
import types
from collections.abc import Mapping
from typing import Any

COMMAND = (
    'exec "$(command -v python || echo python3)" -c \'import sys; sys.path[:] = filter(None, sys.path); '
    "import json; f = sys.stdin.buffer; "
    'order = json.loads(f.read(int(f.readline()))); exec(order["start"], {"order": order})\''
)
"""The command that a suite's sandbox runs. The first line of its input is the length of the order."""
_LOWEST_FD = 64
_KEPT_S, _KEPT_BYTES = 0.02, 4096
"""Outcomes wait so long for others, because each write wakes the verifier, which may share this core."""


class SuiteChannel:
    """The channel to the verifier: signed, numbered lines on a descriptor that is not 1.

    line = HMAC-SHA256 of b"NUMBER BODY" by the nonce, in hexadecimal; space; BODY in JSON; newline
    """

    def __init__(self, nonce: str) -> None:
        signer = hmac.new(bytes.fromhex(nonce), digestmod="sha256")
        fd = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, _LOWEST_FD + os.urandom(1)[0])
        null = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(null, standard)
        os.close(null)
        dumps, write, pid, now, here = json.dumps, os.write, os.getpid, time.monotonic, os.getpid()
        count, kept, written = 0, b"", now()

        def send(report: dict[str, Any]) -> None:
            """Send one report, unless this process is a fork of the one that opened the channel."""
            nonlocal count, kept, written
            if pid() != here:
                return
            body = dumps(report).encode()
            line = signer.copy()
            line.update(b"%d %s" % (count, body))
            kept += b"%s %s\n" % (line.hexdigest().encode(), body)
            count += 1
            if "outcome" in report and len(kept) < _KEPT_BYTES and now() - written < _KEPT_S:
                return
            while kept:
                kept = kept[write(fd, kept) :]
            written = now()

        self.send = send


def start(order: dict[str, Any], warm: tuple[Mapping[str, types.ModuleType], Any] | None = None) -> None:
    """Open the channel and run the plan of an order.

    `warm` has the modules of the order's sources and a memory of the machinery, both made before this
    process was forked; without it they are made here.
    """
    channel = SuiteChannel(order["plan"].pop("nonce"))
    modules, memory = warm or (load(order["sources"]), None)
    modules[order["main"]].run(order["plan"], channel.send, memory)


def load(sources: Mapping[str, str]) -> dict[str, types.ModuleType]:
    """Make modules of their sources, in this order, and leave none of them in `sys.modules`."""
    before = set(sys.modules)
    modules = {name: _load(name, source) for name, source in sources.items()}
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "ostinato":
            del sys.modules[name]
    return modules


def _load(name: str, source: str) -> types.ModuleType:
    """Make a module out of its source, with the packages above it, empty."""
    parts = name.split(".")
    for depth in range(1, len(parts)):
        package = ".".join(parts[:depth])
        if package not in sys.modules:
            sys.modules[package] = types.ModuleType(package)
            sys.modules[package].__path__ = []
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, f"<{name}>", "exec"), module.__dict__)  # noqa: S102 - the verifier's own sources
    return module


if "order" in globals():
    start(globals().pop("order"))

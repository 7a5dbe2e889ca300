"""From a sandbox to its proxy: a socket that listens on the sandbox's loopback and is accepted from outside.

    inside, at the start: lo up, listen on 127.0.0.1:3128 ──the listening socket──► backend ──► Proxy.serve

A socket stays in the network it was made in, whoever holds it: nothing of the proxy lies inside, no file and
no process, and the sandbox's network has no other way out.
"""

import fcntl
import os
import socket
import struct
from contextlib import suppress

from ostinato.sandbox.base import SandboxError

HOST, PORT = "127.0.0.1", 3128
_SIOCSIFFLAGS, _IFF_UP, _IFF_RUNNING = 0x8914, 0x1, 0x40
_ADDRESS = f"http://{HOST}:{PORT}"
_LOCAL = "localhost,127.0.0.1,::1"
ENVIRONMENT = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), _ADDRESS),
    **dict.fromkeys(("no_proxy", "NO_PROXY"), _LOCAL),
}
"""What commands see, so that curl, pip, git and others use the proxy."""


def listen_inside(channel: int) -> None:
    """In a fresh network namespace, with its capabilities: open the door, hand it out through `channel`."""
    with socket.socket() as door:
        fcntl.ioctl(door, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP | _IFF_RUNNING))
        door.bind((HOST, PORT))
        door.listen(64)
        with socket.socket(fileno=os.dup(channel)) as out:
            socket.send_fds(out, [b"."], [door.fileno()])


def take(channel: socket.socket) -> socket.socket:
    """The door. See `handed_out`."""
    return handed_out(channel, 1)[0]


def handed_out(channel: socket.socket, count: int) -> list[socket.socket]:
    """What was handed out, after the sandbox has said that it is ready; raises SandboxError when it was not.

    The last of it: one that died with the order in its hands may have handed out its own before.
    """
    channel.setblocking(False)
    found: list[socket.socket] = []
    with suppress(BlockingIOError):
        while (told := socket.recv_fds(channel, 1, count))[0]:
            _close(found)
            found = [socket.socket(fileno=file) for file in told[1]]
    if len(found) != count:
        _close(found)
        raise SandboxError("the sandbox opened no way out: create another")
    return found


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()

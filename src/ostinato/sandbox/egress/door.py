"""From a sandbox to its proxy: a socket that listens on the sandbox's loopback and is accepted from outside.

    inside, at the start: lo up, listen on 127.0.0.1:3128 ──the listening socket──► backend ──► Proxy.serve

A socket stays in the network it was made in, whoever holds it: nothing of the proxy lies inside, no file and
no process, and the sandbox's network has no other way out.
"""

import fcntl
import os
import socket
import struct

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
    """The door, after the sandbox has said that it is ready."""
    _, (door,), _, _ = socket.recv_fds(channel, 1, 1)
    return socket.socket(fileno=door)

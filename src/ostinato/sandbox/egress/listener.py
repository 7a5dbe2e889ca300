"""The listening socket of a proxy: opened on the sandbox's loopback and served from outside.

    inside, at the start: lo up, listen on 127.0.0.1:3128 ──the listening socket──► backend ──► Proxy.serve

A socket stays in the network in which it was made, whichever process holds it. So no file and no process of
the proxy lies inside, and the sandbox's network has no other way out.
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
"""The variables by which curl, pip, git and others find the proxy."""


def open_listener(channel: int) -> None:
    """Open the socket in a fresh network namespace, with its capabilities, and send it through `channel`."""
    with socket.socket() as listener:
        fcntl.ioctl(listener, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", _IFF_UP | _IFF_RUNNING))
        listener.bind((HOST, PORT))
        listener.listen(64)
        with socket.socket(fileno=os.dup(channel)) as out:
            socket.send_fds(out, [b"."], [listener.fileno()])


def take(channel: socket.socket) -> socket.socket:
    """Return the socket that a sandbox sent before it was ready. Raises SandboxError if there is none.

    The last one counts: a child that died with the order may have sent its own before.
    """
    channel.setblocking(False)
    listener: socket.socket | None = None
    with suppress(BlockingIOError):
        while (message := socket.recv_fds(channel, 1, 1))[0]:
            if listener is not None:
                listener.close()
            listener = socket.socket(fileno=message[1][0])
    if listener is None:
        raise SandboxError("the sandbox opened no way out: create another")
    return listener

"""The sockets that a sandbox sends out when it starts.

Covers sandbox/egress/listener.py.
"""

import socket

import pytest

from ostinato.sandbox import SandboxError
from ostinato.sandbox.egress import listener


def bound() -> socket.socket:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    return sock


def test_the_last_socket_counts_if_an_earlier_child_died() -> None:
    inside, outside = socket.socketpair()
    with inside, outside, bound() as dead, bound() as living:
        for each in (dead, living):
            socket.send_fds(inside, [b"."], [each.fileno()])
        with listener.take(outside) as taken:
            assert taken.getsockname() == living.getsockname()


@pytest.mark.parametrize("hung_up", [False, True])
def test_a_missing_socket_is_an_error_at_once(hung_up: bool) -> None:
    inside, outside = socket.socketpair()
    with inside, outside:
        if hung_up:
            inside.close()
        with pytest.raises(SandboxError, match="no way out"):
            listener.take(outside)

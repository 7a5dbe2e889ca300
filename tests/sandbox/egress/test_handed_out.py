"""Sockets on their way out of a sandbox that has just begun."""

import socket

import pytest

from ostinato.sandbox import SandboxError
from ostinato.sandbox.egress import listener, transparent


def bound() -> socket.socket:
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    return made


def test_the_last_is_taken_where_one_died_before_it_was_ready() -> None:
    inside, outside = socket.socketpair()
    with inside, outside, bound() as dead, bound() as living:
        for each in (dead, living):
            socket.send_fds(inside, [b"."], [each.fileno()])
        with listener.take(outside) as taken:
            assert taken.getsockname() == living.getsockname()


@pytest.mark.parametrize("gone", [False, True])
def test_nothing_handed_out_is_an_error_and_not_waited_for(gone: bool) -> None:
    inside, outside = socket.socketpair()
    with inside, outside, bound() as one:
        with pytest.raises(SandboxError, match="no way out"):
            listener.take(outside)
        socket.send_fds(inside, [b"."], [one.fileno()])
        if gone:
            inside.close()
        with pytest.raises(SandboxError, match="no way out"):
            transparent.take(outside)

"""Ports and addresses as a person types them."""

import argparse
import os
import socket

LARGEST_PORT = 65_535


def port(text: str) -> int:
    """Return a TCP port from the command line; 0 takes a free one."""
    if not text.isdecimal() or int(text) > LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give a number from 0 to {LARGEST_PORT}")
    return int(text)


def root_of(url: str) -> str:
    """Return the address of a server of the OpenAI dialect without its `/v1`, which may be left out.

    >>> root_of("http://gpu:8000/v1/"), root_of("http://gpu:8000")
    ('http://gpu:8000', 'http://gpu:8000')
    """
    return url.rstrip("/").removesuffix("/v1")


class PortBusyError(Exception):
    """Nothing more can listen on a port."""


def check_free(host: str, port: int) -> None:
    """Raise PortBusyError when a server could not listen there: it is asked before something long begins."""
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        reason = str(error) if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise PortBusyError(
            f"cannot listen on {host}:{port} ({reason}): stop what does, or name another port with --port"
        ) from error

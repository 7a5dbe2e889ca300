"""TCP ports as a person types them."""

import argparse

LARGEST_PORT = 65_535


def port(text: str) -> int:
    """Return a TCP port from the command line; 0 takes a free one."""
    if not text.isdecimal() or int(text) > LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: give a number from 0 to {LARGEST_PORT}")
    return int(text)

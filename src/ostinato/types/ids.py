"""Identifiers: how they are made, and what the id of a tool call says."""

import re
import uuid

_CALL = re.compile(r"call_(\d{1,9})_\d{1,9}", re.ASCII)


def new_id() -> str:
    """Return a fresh random identifier of 32 hexadecimal digits."""
    return uuid.uuid4().hex


def call_id(turn: int, index: int) -> str:
    """Return the id under which a client knows tool call `index` of a turn.

    >>> call_id(3, 0)
    'call_3_0'
    """
    return f"call_{turn}_{index}"


def turn_of_call(id: str) -> int | None:
    """Return the turn that made a call, or None for an id that `call_id` did not make.

    >>> turn_of_call("call_3_0")
    3
    """
    match = _CALL.fullmatch(id)
    return int(match[1]) if match else None

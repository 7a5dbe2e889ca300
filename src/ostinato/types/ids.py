"""Identifiers: how they are made, and what a client can read in one."""

import re
import uuid


def new_id() -> str:
    """A fresh random identifier: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def call_id(turn: int, index: int) -> str:
    """The id under which a client knows a tool call of a turn."""
    return f"call_{turn}_{index}"


def turn_of_call(id: str) -> int | None:
    """The turn that made a call; None for an id that is not ours."""
    found = re.fullmatch(r"call_(\d{1,9})_\d{1,9}", id, re.ASCII)
    return int(found[1]) if found else None

"""Identifiers: how they are made, how a person abbreviates them, and what the id of a tool call says."""

import re
import uuid
from collections.abc import Iterable

SHORTEST = 4
"""The characters of an id, at least, that are completed; a shorter beginning would be a guess. As in git."""
_CALL = re.compile(r"call_(\d{1,9})_\d{1,9}", re.ASCII)


class IdError(LookupError):
    """An id, or the beginning of one, that stands for nothing or for several things."""


def new_id() -> str:
    """Return a fresh random identifier of 32 hexadecimal digits."""
    return uuid.uuid4().hex


def completed(given: str, known: Iterable[str], *, noun: str, where: str) -> str:
    """Return the id among `known` that a person means: `given` itself, or the only one that begins with it.

    Raises IdError, which names the `noun`, `where` it was looked for, and the candidates if there are more.

    >>> completed("3f05", ["3f058d82", "55b05322"], noun="session", where="store.db")
    '3f058d82'
    """
    begun = sorted({id for id in known if id.startswith(given)})
    if given in begun:
        return given
    if len(given) < SHORTEST:
        raise IdError(f"no {noun} {given} in {where}: give the whole id, or {SHORTEST} characters of it")
    if not begun:
        raise IdError(f"no {noun} {given} in {where}, and none whose id begins so")
    if len(begun) > 1:
        several = ", ".join(begun[:5]) + (" …" if len(begun) > 5 else "")
        raise IdError(f"{given} begins several ids in {where}, give more of the one you mean: {several}")
    return begun[0]


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

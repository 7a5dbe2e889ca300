"""Recognises commands that run pytest and do nothing else."""

import shlex
from dataclasses import dataclass

_SHELL_SYNTAX = frozenset("|&;<>()$`\\*?[]#~!{}\n")
_PYTHONS = ("python", "python3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A call of pytest."""

    python: str | None
    """`python` or `python3` for a call with `-m pytest`, which puts the working directory on the path.

    None for a call of `pytest` itself."""
    arguments: tuple[str, ...]


def parse(command: str) -> Invocation | None:
    """Return the invocation when `command` is nothing but a call of pytest, otherwise None.

    >>> parse("python -m pytest -q 2>&1").arguments
    ('-q',)
    >>> parse("pytest | tail -3")
    """
    plain = command.strip().removesuffix("2>&1")  # a sandbox joins the two streams anyway
    if not _SHELL_SYNTAX.isdisjoint(plain):
        return None
    try:
        words = shlex.split(plain)
    except ValueError:
        return None
    if words[:1] == ["pytest"]:
        return Invocation(python=None, arguments=tuple(words[1:]))
    if len(words) >= 3 and words[0] in _PYTHONS and words[1:3] == ["-m", "pytest"]:
        return Invocation(python=words[0], arguments=tuple(words[3:]))
    return None

"""Which commands are a run of the tests and nothing else."""

import shlex
from dataclasses import dataclass

_SHELL_SYNTAX = frozenset("|&;<>()$`\\*?[]#~!{}\n")
_PYTHONS = ("python", "python3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One pytest command."""

    python: str | None
    """`python` or `python3` with `-m pytest`, which puts the working directory on the path; else None."""
    arguments: tuple[str, ...]


def parse(command: str) -> Invocation | None:
    """The invocation when `command` is nothing but a call of pytest, else None.

    >>> parse("python -m pytest -q 2>&1").arguments
    ('-q',)
    >>> parse("pytest | tail -3")
    """
    plain = command.strip().removesuffix("2>&1")  # the two are one stream here anyway
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

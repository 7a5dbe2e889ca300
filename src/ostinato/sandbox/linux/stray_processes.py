"""What a plain process has left behind when it is over: found by its session, or by a mark that it inherited.

A process that leaves the group, the session and its parent still has the environment that it was started
with, unless it gave that up as well: one that did both lives on, and so does any where there is no /proc.
"""

import os
import secrets
import signal
import sys
import time
from contextlib import suppress

from ostinato.sandbox.linux import processes

MARK = "OSTINATO_COMMAND"
_LOOKS, _PAUSE_S = 500, 0.01


def new_mark() -> str:
    """For the variable `MARK` of a process and, by inheritance, of all that it starts."""
    return secrets.token_hex(16)


def end(leader: int, mark: str | None) -> None:
    """Kill the session of `leader` and all that carry `mark`, until a look finds none of them.

    None: its session alone. Waits a few seconds at most; this process is never one of them.
    """
    if sys.platform != "linux":
        return
    for _ in range(_LOOKS):
        found = [each.pid for each in processes.seen() if _belongs(each, leader, mark)]
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def _belongs(each: processes.Seen, leader: int, mark: str | None) -> bool:
    if each.state in "ZX" or each.pid == os.getpid():
        return False
    return each.session == leader or (mark is not None and _carries(each.pid, mark))


def _carries(pid: int, mark: str) -> bool:
    """False for a process that is another user's, or gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return f"{MARK}={mark}".encode() in file.read().split(b"\0")
    except OSError:
        return False

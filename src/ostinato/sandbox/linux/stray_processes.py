"""Ends the processes that a plain process left behind, found by its session or by an inherited mark.

A process that left the group, the session and its parent still has the environment that it was started with,
unless it gave that up as well: then it lives on, and so does any process where there is no /proc.
"""

import os
import secrets
import signal
import sys
import time
from contextlib import suppress

from ostinato.sandbox.linux import processes

MARK = "OSTINATO_COMMAND"
_TRIES, _PAUSE_S = 500, 0.01


def new_mark() -> str:
    """Return a value for the variable `MARK` of a process, which all that it starts inherit."""
    return secrets.token_hex(16)


def end(leader: int, mark: str | None) -> None:
    """Kill the session of `leader` and all processes that carry `mark`, again until none of them is found.

    Without a mark (None) only the session is killed. Waits a few seconds at most; never kills this process.
    """
    if sys.platform != "linux":
        return
    for _ in range(_TRIES):
        strays = [each.pid for each in processes.visible_processes() if _belongs(each, leader, mark)]
        if not strays:
            return
        for pid in strays:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def _belongs(each: processes.ProcessStatus, leader: int, mark: str | None) -> bool:
    if each.state in "ZX" or each.pid == os.getpid():
        return False
    return each.session == leader or (mark is not None and _carries(each.pid, mark))


def _carries(pid: int, mark: str) -> bool:
    """Return True when a process has the mark; False too when it is another user's or has ended."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return f"{MARK}={mark}".encode() in file.read().split(b"\0")
    except OSError:
        return False

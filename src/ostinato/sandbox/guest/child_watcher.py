"""Notices the end of child processes: by their pidfds, or by SIGCHLD where there are no pidfds."""

import errno
import os
import select
import signal
from collections.abc import Callable

from ostinato.sandbox.protocol.agent_link import Poller

Callback = Callable[[], None]


class ChildWatcher:
    """Calls a function once for each child that ended; the child is left for the function to wait for."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._pidfds: dict[int, int] = {}
        self._callbacks: dict[int, Callback] = {}
        if not _PIDFDS:
            self._listen_for_signal()

    def add(self, pid: int, callback: Callback) -> None:
        self._callbacks[pid] = callback
        if _PIDFDS:
            self._pidfds[pid] = pidfd = os.pidfd_open(pid)
            self._poller.add(pidfd, select.POLLIN, lambda _: callback())

    def remove(self, pid: int) -> None:
        del self._callbacks[pid]
        pidfd = self._pidfds.pop(pid, None)
        if pidfd is not None:
            self._poller.remove(pidfd)
            os.close(pidfd)

    def _listen_for_signal(self) -> None:
        """Let SIGCHLD write a byte to a pipe, so that no signal is lost between two polls."""
        read_end, write_end = os.pipe()
        for fd in (read_end, write_end):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poller.add(read_end, select.POLLIN, lambda _: self._check_children(read_end))

    def _check_children(self, read_end: int) -> None:
        os.read(read_end, 4096)
        for pid, callback in tuple(self._callbacks.items()):
            if pid in self._callbacks and _ended(pid):
                callback()


def _ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True  # the end of another command has waited for it already


def _has_pidfds() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return False
        raise
    return True


_PIDFDS = _has_pidfds()
"""Found out at import, by the zygote, and so not in each of its forks."""

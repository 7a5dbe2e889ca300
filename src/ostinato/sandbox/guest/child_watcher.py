"""Who is told when a child of this process ends: by its pidfd, or by SIGCHLD where there are no pidfds."""

import errno
import os
import select
import signal
from collections.abc import Callable

from ostinato.sandbox.protocol.agent_link import Watch

Act = Callable[[], None]


class Endings:
    """Calls once for each child that ended; it is not waited for."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._files: dict[int, int] = {}
        self._acts: dict[int, Act] = {}
        if not _PIDFDS:
            self._listen()

    def add(self, pid: int, act: Act) -> None:
        self._acts[pid] = act
        if _PIDFDS:
            self._files[pid] = file = os.pidfd_open(pid)
            self._watch.add(file, select.POLLIN, lambda _: act())

    def remove(self, pid: int) -> None:
        del self._acts[pid]
        file = self._files.pop(pid, None)
        if file is not None:
            self._watch.remove(file)
            os.close(file)

    def _listen(self) -> None:
        """A signal leaves a byte in a pipe, so none is lost between two looks."""
        bell, rope = os.pipe()
        for fd in (bell, rope):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(rope, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._watch.add(bell, select.POLLIN, lambda _: self._look(bell))

    def _look(self, bell: int) -> None:
        os.read(bell, 4096)
        for pid, act in tuple(self._acts.items()):
            if pid in self._acts and _ended(pid):
                act()


def _ended(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True  # another command's end has taken it along


def _has_pidfds() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        if error.errno == errno.ENOSYS:
            return False
        raise
    return True


_PIDFDS = _has_pidfds()
"""Looked up by the zygote, not in each of its forks."""

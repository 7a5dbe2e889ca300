"""Runs one command in the sandbox, as a child of the agent."""

import os
import resource
import select
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress

from ostinato.sandbox import linux, warm
from ostinato.sandbox.base import ExecResult, Limits
from ostinato.sandbox.output import Tail

_SHELL = "/bin/sh"
_MIB = 2**20
_NULL = subprocess.DEVNULL
_HUNG_UP = select.POLLHUP | select.POLLERR | select.POLLIN | select.POLLRDHUP


class Runner:
    """Starts children with the sandbox's limits. `control` is watched: when it ends, so does the sandbox."""

    def __init__(self, root: str, limits: Limits, control: int) -> None:
        self._root = root
        self._limits = limits
        self._control = control
        _limit_for_ever(limits)

    def run(self, command: str, timeout_s: float | None) -> ExecResult:
        """Run `command` with `sh -c`; when it ends, or its time is up, every other process is killed."""
        start = time.monotonic()
        deadline = start + (self._limits.wall_s if timeout_s is None else timeout_s)
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        try:
            child = self._start_command(command, write_end)
        finally:
            os.close(write_end)
        tail = Tail(self._limits.output_bytes)
        timed_out = not self._collect(read_end, child, tail, deadline)
        status = _end_all(child)
        _drain(read_end, tail)
        os.close(read_end)
        duration_s = time.monotonic() - start
        return ExecResult(exit_code=status, output=tail.text(), timed_out=timed_out, duration_s=duration_s)

    def _start_command(self, command: str, output: int) -> int:
        """pytest as a fork of this process, anything else by the shell."""
        invocation = warm.recognise(command, self._root)
        if invocation is not None:
            return self.fork(lambda: os._exit(warm.run(invocation)), output)
        # subprocess starts it without copying this process, and gives signals their defaults back
        shell = subprocess.Popen(
            [_SHELL, "-c", command], stdin=_NULL, stdout=output, stderr=output, start_new_session=True
        )
        resource.prlimit(shell.pid, resource.RLIMIT_CPU, (self._limits.cpu_s, self._limits.cpu_s))
        shell.returncode = 0  # reaped in `_end_all`, not by the object
        return shell.pid

    def fork(self, body: Callable[[], None], output: int | None = None, keep: Iterable[int] = ()) -> int:
        """A child that runs `body` in its own session, without the agent's files."""
        child = os.fork()
        if child:
            return child
        try:
            _set_files(output, frozenset(keep))
            os.setsid()
            os.chdir(self._root)
            resource.setrlimit(resource.RLIMIT_CPU, (self._limits.cpu_s, self._limits.cpu_s))
            linux.set_dumpable(True)
            body()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _collect(self, read_end: int, child: int, tail: Tail, deadline: float) -> bool:
        """Read output until the child ends. False when the deadline came first."""
        ended = os.pidfd_open(child)
        poll = select.poll()
        for fd, events in ((read_end, select.POLLIN), (ended, select.POLLIN), (self._control, _HUNG_UP)):
            poll.register(fd, events)
        try:
            while (left := deadline - time.monotonic()) > 0:
                ready = dict(poll.poll(left * 1000))
                if self._control in ready:
                    os._exit(0)  # nobody waits for the answer
                if read_end in ready and not _drain(read_end, tail, once=True):
                    poll.unregister(read_end)
                if ended in ready:
                    return True
            return False
        finally:
            os.close(ended)


def _limit_for_ever(limits: Limits) -> None:
    """Limits of this process and, by inheritance, of every other; only CPU time is each command's own."""
    for kind, value in (
        (resource.RLIMIT_AS, limits.memory_mb * _MIB),
        (resource.RLIMIT_FSIZE, limits.disk_mb * _MIB),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_NOFILE, 1024),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def _drain(read_end: int, tail: Tail, *, once: bool = False) -> bool:
    """Take what lies in the pipe. False at its end."""
    with suppress(BlockingIOError):
        while data := os.read(read_end, 65536):
            tail.add(data)
            if once:
                return True
        return False
    return True


def _end_all(child: int) -> int:
    """Kill every process but this one, reap them; answers the child's exit code, negative for a signal."""
    status = 0
    while True:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            pid, code = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if pid == child:
            status = os.waitstatus_to_exitcode(code)


def _set_files(output: int | None, keep: frozenset[int]) -> None:
    """Standard input and, without `output`, the others from /dev/null; everything but `keep` closed."""
    null = os.open("/dev/null", os.O_RDWR)
    target = null if output is None else output
    for source, number in ((null, 0), (target, 1), (target, 2)):
        os.dup2(source, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) not in keep:
            with suppress(OSError):
                os.close(int(name))

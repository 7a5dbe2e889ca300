"""Runs the commands of a sandbox as children of its agent, with their input and output.

Output goes to the backend as it comes, as far as there is credit; of a command without a listener only the
end of its output is kept. When a command ends, the rest of its session is killed; when the last command ends,
every process but the agent is killed.
"""

import os
import resource
import select
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ostinato.sandbox.base import Limits, SandboxError
from ostinato.sandbox.guest.child_watcher import ChildWatcher
from ostinato.sandbox.linux import cheap_fork, processes, syscalls
from ostinato.sandbox.protocol.agent_link import Poller
from ostinato.sandbox.protocol.frames import CHUNK, DRAIN
from ostinato.sandbox.protocol.output import OutputTail

_SHELL = "/bin/sh"
_MIB = 2**20
Send = Callable[[Mapping[str, Any], bytes], None]
FindForkBody = Callable[[str, str], Callable[[], int] | None]
"""Returns, for a command and a directory, a function that does the same in a fork of the agent.

None: the command needs the shell."""


@dataclass(slots=True, kw_only=True)
class Job:
    """A command under way."""

    id: int
    pid: int
    output: int
    input: int | None
    credit: int | None
    """Bytes of output that may be sent; None when there is no listener."""
    tail: OutputTail
    started: float
    deadline: float
    state: bool
    """True when the response has to contain the state of the tree."""
    timed_out: bool = False
    unwritten: bytearray = field(default_factory=bytearray)
    """Standard input that the command has not taken yet."""
    closing: bool = False
    """True when standard input is closed behind `unwritten`."""


class Jobs:
    """All commands of one sandbox.

    `send` sends a frame to the backend; `on_end` is called with each job that ended and its exit code.
    `oom` is an open /proc/self/oom_score_adj. `user` is the user of commands, where that is not the agent's.
    `count_foreign_threads` counts the threads that the kernel bounds together with the sandbox's own; it is
    called when a command starts, and is None where the kernel counts the sandbox alone.
    """

    def __init__(
        self,
        root: str,
        limits: Limits,
        poller: Poller,
        *,
        send: Send,
        on_end: Callable[[Job, int], None],
        find_fork_body: FindForkBody | None,
        oom: int,
        user: int | None = None,
        count_foreign_threads: Callable[[], int] | None = None,
    ) -> None:
        self._oom, self._user, self._count_foreign_threads = oom, user, count_foreign_threads
        self._root = root
        self._limits = limits
        self._poller = poller
        self._child_watcher = ChildWatcher(poller)
        self._send = send
        self._on_end = on_end
        self._find_fork_body = find_fork_body
        self._jobs: dict[int, Job] = {}
        self._statuses: dict[int, int] = {}
        self._helpers = 0
        self._paused: tuple[float, frozenset[int]] | None = None
        """The time of the pause, and the processes that were stopped before it."""
        _limit_resources(limits)
        if count_foreign_threads is None:
            _limit_processes(limits.processes)

    @property
    def alone(self) -> bool:
        """True when no command is under way."""
        return not self._jobs

    def start(self, number: int, request: Mapping[str, Any]) -> None:
        """Start `request`'s command with `sh -c`, or as a fork of this process where that does the same."""
        timeout_s, window = request["timeout_s"], request["window"]
        output, write_end = os.pipe()
        read_end, feed = os.pipe() if request["stdin"] else (None, None)
        try:
            with self._expendable():
                pid = self._start(request["command"], read_end, write_end)
        except OSError:
            for fd in (output, feed):
                if fd is not None:
                    os.close(fd)
            raise
        finally:
            os.close(write_end)
            if read_end is not None:
                os.close(read_end)
        now = time.monotonic()
        job = Job(
            id=number,
            pid=pid,
            output=output,
            input=feed,
            credit=window,
            tail=OutputTail(self._limits.output_bytes),
            state=request["state"],
            started=now,
            deadline=now + (self._limits.wall_s if timeout_s is None else timeout_s),
        )
        self._jobs[number] = job
        for fd in (output, feed):
            if fd is not None:
                os.set_blocking(fd, False)
        self._poller.add(output, select.POLLIN, partial(self._read, job))
        self._child_watcher.add(pid, lambda: self._end(job))

    def _start(self, command: str, read_end: int | None, write_end: int) -> int:
        body = self._find_fork_body(command, self._root) if self._find_fork_body else None
        if body is not None:
            return self._fork(lambda: os._exit(body()), read_end, write_end)
        # subprocess starts it without copying this process, and resets signals to their defaults. The shell
        # limits itself: from here, a limit could come after it had started a process, which would have none.
        limited = f'ulimit -t {self._limits.cpu_s} && exec "$0" -c "$1"'
        with self._commands_user() as user:
            shell = subprocess.Popen(
                [_SHELL, "-c", limited, _SHELL, command],
                cwd=self._root,
                stdin=subprocess.DEVNULL if read_end is None else read_end,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
                user=user,
                preexec_fn=self._process_limit(),  # noqa: PLW1509 - there is one thread here
            )
        shell.returncode = 0  # reaped in `_kill`, not by the object
        return shell.pid

    @contextmanager
    def _commands_user(self) -> Iterator[int | None]:
        """Yield the user that a command has to change to, None when it has that user from its start.

        A child that changes its user is a full copy of this process, which takes an emulated kernel longer
        than the rest of the start. So this process itself becomes the user while it starts a command, unless
        a process of that user is running, which could kill this one meanwhile.
        """
        if self._user is None or self._jobs or self._helpers:
            yield self._user
            return
        with syscalls.acting_as(self._user):
            yield None

    @contextmanager
    def _expendable(self) -> Iterator[None]:
        """Make the kernel kill processes that are started meanwhile before this one if memory runs out."""
        os.pwrite(self._oom, b"500", 0)
        try:
            yield
        finally:
            os.pwrite(self._oom, b"0", 0)

    def start_helper(self, body: Callable[[], None], keep: Iterable[int]) -> None:
        """Run `body` in a child beside the commands, which keeps the descriptors in `keep`."""
        with self._expendable():
            self._fork(body, None, None, keep)
        self._helpers += 1

    def _fork(
        self, body: Callable[[], None], source: int | None, target: int | None, keep: Iterable[int] = ()
    ) -> int:
        """Run `body` in a child with a session of its own, without the agent's files; return its pid."""
        limit_processes = self._process_limit()
        child = os.fork()
        if child:
            return child
        try:
            _set_files(source, target, frozenset(keep))
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.setsid()
            os.chdir(self._root)
            resource.setrlimit(resource.RLIMIT_CPU, (self._limits.cpu_s, self._limits.cpu_s))
            if limit_processes is not None:
                limit_processes()
            if self._user is not None:
                os.setreuid(self._user, self._user)
                syscalls.drop_capabilities()
            syscalls.set_dumpable(True)
            cheap_fork.restore_fork_hooks()
            body()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _process_limit(self) -> Callable[[], None] | None:
        """Return a function that a command calls at its start; None when it inherits the right limit."""
        if self._count_foreign_threads is None:
            return None
        return partial(_limit_processes, self._count_foreign_threads() + self._limits.processes)

    def _read(self, job: Job, _: int) -> None:
        """Read output as far as there is credit."""
        count = CHUNK if job.credit is None else min(CHUNK, job.credit)
        try:
            data = os.read(job.output, count)
        except BlockingIOError:
            return
        if not data:
            self._poller.remove(job.output)
        elif job.credit is None:
            job.tail.add(data)
        else:
            job.credit -= len(data)
            self._send({"id": job.id, "event": "output"}, data)
            if job.credit == 0:
                self._poller.remove(job.output)

    def credit(self, number: int, count: int) -> None:
        """Allow `count` more bytes of output: the reader took so many."""
        job = self._jobs.get(number)
        if job is None or job.credit is None:
            return
        if job.credit == 0:
            self._poller.add(job.output, select.POLLIN, partial(self._read, job))
        job.credit += count

    def feed(self, number: int, data: bytes) -> None:
        """Write `data` to the standard input; empty `data` closes it."""
        job = self._jobs.get(number)
        if job is None or job.input is None:
            self._send({"id": number, "event": "taken", "bytes": len(data), "broken": True}, b"")
            return
        job.unwritten += data
        job.closing = job.closing or not data
        self._write(job)

    def _write(self, job: Job) -> None:
        """Write as much as the standard input takes now, and poll it while something is left."""
        assert job.input is not None
        count = 0
        try:
            count = os.write(job.input, job.unwritten) if job.unwritten else 0
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._send({"id": job.id, "event": "taken", "bytes": len(job.unwritten), "broken": True}, b"")
            self._close_input(job)
            return
        del job.unwritten[:count]
        if count:
            self._send({"id": job.id, "event": "taken", "bytes": count}, b"")
        if job.unwritten:
            self._poller.add(job.input, select.POLLOUT, lambda _: self._write(job))
        elif job.closing:
            self._close_input(job)
        else:
            self._poller.remove(job.input)

    def _close_input(self, job: Job) -> None:
        if job.input is not None:
            self._poller.remove(job.input)
            os.close(job.input)
            job.input = None

    def signal(self, number: int, which: int) -> None:
        """Send a signal to the command's process group; does nothing when it has ended."""
        job = self._jobs.get(number)
        if job is not None:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, which)

    def seconds_to_deadline(self) -> float | None:
        """Return the seconds until the next command's deadline; None when no deadline is running."""
        if self._paused is not None or not self._jobs:
            return None
        return max(min(job.deadline for job in self._jobs.values()) - time.monotonic(), 0)

    def end_late(self) -> None:
        """End the commands whose deadline has passed."""
        if self._paused is None:
            now = time.monotonic()
            for job in [job for job in self._jobs.values() if job.deadline <= now]:
                job.timed_out = True
                self._end(job)

    def pause(self) -> None:
        """Stop every process but this one, and the clocks of their deadlines."""
        if self._paused is None:
            before = frozenset(processes.stopped_processes())
            processes.stop_all()
            self._paused = time.monotonic(), before

    def resume(self) -> None:
        """Let the processes run that `pause` stopped."""
        if self._paused is None:
            return
        since, before = self._paused
        self._paused = None
        processes.continue_all(before)
        for job in self._jobs.values():
            job.deadline += time.monotonic() - since

    def _end(self, job: Job) -> None:
        status = self._kill(job)
        self._child_watcher.remove(job.pid)
        self._poller.remove(job.output)
        self._close_input(job)
        del self._jobs[job.id]
        self._drain(job)
        os.close(job.output)
        self._on_end(job, status)

    def _drain(self, job: Job) -> None:
        """Read the rest of the pipe; that is no more than a pipe holds, so it needs no credit.

        It is bounded, since a process that left the command's session may still be writing to the pipe.
        """
        left = DRAIN
        with suppress(BlockingIOError):
            while left and (data := os.read(job.output, min(CHUNK, left))):
                left -= len(data)
                if job.credit is None:
                    job.tail.add(data)
                else:
                    self._send({"id": job.id, "event": "output"}, data)

    def _kill(self, job: Job) -> int:
        """End a command with all that belongs to it; return its exit code, negative for a signal."""
        if len(self._jobs) == 1 and not self._helpers:
            processes.kill_all(self._statuses)
        else:
            processes.kill_session(job.pid, self._statuses)
        status = self._statuses.pop(job.pid, None)
        if status is None:
            raise SandboxError(f"process {job.pid} is not a child of this process: it cannot be waited for")
        return status


def _limit_resources(limits: Limits) -> None:
    """Set the limits that every process inherits from this one; only CPU time is limited for each command."""
    for kind, value in (
        (resource.RLIMIT_AS, limits.memory_mb * _MIB),
        (resource.RLIMIT_FSIZE, limits.disk_mb * _MIB),
        (resource.RLIMIT_NOFILE, 1024),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (value, value))


def _limit_processes(most: int) -> None:
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _set_files(source: int | None, target: int | None, keep: frozenset[int]) -> None:
    """Standard input and output from /dev/null where none is given; everything but `keep` closed."""
    null = os.open("/dev/null", os.O_RDWR)
    kept = [null if source is None else source, *[null if target is None else target] * 2]
    high = [os.dup(fd) for fd in kept]  # so that none of them is overwritten by another
    for fd, number in zip(high, range(3), strict=True):
        os.dup2(fd, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) not in keep:
            with suppress(OSError):
                os.close(int(name))

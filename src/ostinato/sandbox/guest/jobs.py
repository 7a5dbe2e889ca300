"""The commands under way in a sandbox, as children of its agent: started, fed, listened to, ended.

Output goes to the backend as it comes, as far as it is credited; of a command that nobody listens to only the
end is kept. When the last command ends, every process but the agent is killed; while others run, those of
its session.
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
from ostinato.sandbox.guest.child_watcher import Endings
from ostinato.sandbox.linux import cheap_fork, processes, syscalls
from ostinato.sandbox.protocol.agent_link import Watch
from ostinato.sandbox.protocol.frames import CHUNK, DRAIN
from ostinato.sandbox.protocol.output import Tail

_SHELL = "/bin/sh"
_MIB = 2**20
_FOREVER = float("inf")
Tell = Callable[[Mapping[str, Any], bytes], None]
Recognise = Callable[[str, str], Callable[[], int] | None]
"""Command and directory to what does the same in a fork of the agent, None for the shell."""


@dataclass(slots=True, kw_only=True)
class Job:
    """One command. `credit` None: nobody listens."""

    id: int
    pid: int
    output: int
    input: int | None
    credit: int | None
    tail: Tail
    started: float
    deadline: float
    state: bool
    """Whether the answer says what became of the tree."""
    timed_out: bool = False
    waiting: bytearray = field(default_factory=bytearray)
    """For its standard input."""
    closing: bool = False


class Jobs:
    """All of them. `tell` sends a frame to the backend, `done` hears of each that ended.

    `oom`: an open /proc/self/oom_score_adj. `crowd`: counts what is bounded together with the sandbox's own
    processes, as many as there are when a command starts; None where the kernel counts those alone.
    """

    def __init__(
        self,
        root: str,
        limits: Limits,
        watch: Watch,
        *,
        tell: Tell,
        done: Callable[[Job, int], None],
        recognise: Recognise | None,
        oom: int,
        user: int | None = None,
        crowd: Callable[[], int] | None = None,
    ) -> None:
        self._oom, self._user, self._crowd = oom, user, crowd
        self._root = root
        self._limits = limits
        self._watch = watch
        self._endings = Endings(watch)
        self._tell = tell
        self._done = done
        self._recognise = recognise
        self._jobs: dict[int, Job] = {}
        self._statuses: dict[int, int] = {}
        self._helpers = 0
        self._orphans = 0
        self._paused: tuple[float, frozenset[int]] | None = None
        _limit_for_ever(limits)
        if crowd is None:
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
            tail=Tail(self._limits.output_bytes),
            state=request["state"],
            started=now,
            deadline=now + (self._limits.wall_s if timeout_s is None else timeout_s),
        )
        self._jobs[number] = job
        for fd in (output, feed):
            if fd is not None:
                os.set_blocking(fd, False)
        self._watch.add(output, select.POLLIN, partial(self._hear, job))
        self._endings.add(pid, lambda: self._end(job))

    def _start(self, command: str, read_end: int | None, write_end: int) -> int:
        body = self._recognise(command, self._root) if self._recognise else None
        if body is not None:
            return self._fork(lambda: os._exit(body()), read_end, write_end)
        # subprocess starts it without copying this process, and gives signals their defaults back
        with self._commands_user() as user:
            shell = subprocess.Popen(
                [_SHELL, "-c", command],
                cwd=self._root,
                stdin=subprocess.DEVNULL if read_end is None else read_end,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
                user=user,
                preexec_fn=self._limits_processes(),  # noqa: PLW1509 - there is one thread here
            )
        resource.prlimit(shell.pid, resource.RLIMIT_CPU, (self._limits.cpu_s, self._limits.cpu_s))
        shell.returncode = 0  # reaped in `_kill`, not by the object
        return shell.pid

    @contextmanager
    def _commands_user(self) -> Iterator[int | None]:
        """Who a command is to become; None when it is that already.

        A child that changes its user is a copy of this process, which takes a kernel in software longer than
        all the rest. So this process becomes the user while it starts one, unless a process of his is there
        already, which could end this one meanwhile.
        """
        if self._user is None or self._jobs or self._helpers:
            yield self._user
            return
        with syscalls.wholly(self._user):
            yield None

    @contextmanager
    def _expendable(self) -> Iterator[None]:
        """What is started is killed for want of memory before this process is: it inherits that."""
        os.pwrite(self._oom, b"500", 0)
        try:
            yield
        finally:
            os.pwrite(self._oom, b"0", 0)

    def help(self, body: Callable[[], None], keep: Iterable[int]) -> None:
        """A child beside the commands that runs `body`."""
        with self._expendable():
            self._fork(body, None, None, keep)
        self._helpers += 1

    def _fork(
        self, body: Callable[[], None], source: int | None, target: int | None, keep: Iterable[int] = ()
    ) -> int:
        """A child that runs `body` in its own session, without the agent's files."""
        limit = self._limits_processes()
        child = os.fork()
        if child:
            return child
        try:
            _set_files(source, target, frozenset(keep))
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.setsid()
            os.chdir(self._root)
            resource.setrlimit(resource.RLIMIT_CPU, (self._limits.cpu_s, self._limits.cpu_s))
            if limit is not None:
                limit()
            if self._user is not None:
                os.setreuid(self._user, self._user)
                syscalls.drop_capabilities()
            syscalls.set_dumpable(True)
            cheap_fork.release()
            body()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)

    def _limits_processes(self) -> Callable[[], None] | None:
        """What a command does at its start; None when this process' own limit is the command's as well."""
        if self._crowd is None:
            return None
        return partial(_limit_processes, self._crowd() + self._limits.processes)

    def _hear(self, job: Job, _: int) -> None:
        """Take output as far as it is credited."""
        count = CHUNK if job.credit is None else min(CHUNK, job.credit)
        try:
            data = os.read(job.output, count)
        except BlockingIOError:
            return
        if not data:
            self._watch.remove(job.output)
        elif job.credit is None:
            job.tail.add(data)
        else:
            job.credit -= len(data)
            self._tell({"id": job.id, "event": "output"}, data)
            if job.credit == 0:
                self._watch.remove(job.output)

    def credit(self, number: int, count: int) -> None:
        """The reader took so many bytes."""
        job = self._jobs.get(number)
        if job is None or job.credit is None:
            return
        if job.credit == 0:
            self._watch.add(job.output, select.POLLIN, partial(self._hear, job))
        job.credit += count

    def detach(self) -> None:
        """Whoever listened is gone: the commands go on, under numbers that nobody asks for."""
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            if job.credit == 0:
                self._watch.add(job.output, select.POLLIN, partial(self._hear, job))
            self._orphans += 1
            job.id, job.credit = -self._orphans, None
            self._jobs[job.id] = job

    def feed(self, number: int, data: bytes) -> None:
        """For the standard input; nothing ends it."""
        job = self._jobs.get(number)
        if job is None or job.input is None:
            self._tell({"id": number, "event": "taken", "bytes": len(data), "broken": True}, b"")
            return
        job.waiting += data
        job.closing = job.closing or not data
        self._pour(job)

    def _pour(self, job: Job) -> None:
        """Write what its standard input takes now, and watch it while some is left."""
        assert job.input is not None
        count = 0
        try:
            count = os.write(job.input, job.waiting) if job.waiting else 0
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._tell({"id": job.id, "event": "taken", "bytes": len(job.waiting), "broken": True}, b"")
            self._close_input(job)
            return
        del job.waiting[:count]
        if count:
            self._tell({"id": job.id, "event": "taken", "bytes": count}, b"")
        if job.waiting:
            self._watch.add(job.input, select.POLLOUT, lambda _: self._pour(job))
        elif job.closing:
            self._close_input(job)
        else:
            self._watch.remove(job.input)

    def _close_input(self, job: Job) -> None:
        if job.input is not None:
            self._watch.remove(job.input)
            os.close(job.input)
            job.input = None

    def signal(self, number: int, which: int) -> None:
        """To its process group; nothing when it has ended."""
        job = self._jobs.get(number)
        if job is not None:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, which)

    def patience_s(self) -> float | None:
        """Seconds until the next command's time is up; None when there is no such."""
        if self._paused is not None or not self._jobs:
            return None
        return max(min(job.deadline for job in self._jobs.values()) - time.monotonic(), 0)

    def end_late(self) -> None:
        """End the commands whose time is up."""
        if self._paused is None:
            now = time.monotonic()
            for job in [job for job in self._jobs.values() if job.deadline <= now]:
                job.timed_out = True
                self._end(job)

    def pause(self) -> None:
        """Stop every process but this one; their time stands still as well."""
        if self._paused is None:
            before = frozenset(processes.stopped())
            processes.stop_all()
            self._paused = time.monotonic(), before

    def resume(self) -> None:
        """Let go on what `pause` stopped."""
        if self._paused is None:
            return
        since, before = self._paused
        self._paused = None
        processes.go_on(before)
        for job in self._jobs.values():
            job.deadline += time.monotonic() - since

    def _end(self, job: Job) -> None:
        status = self._kill(job)
        self._endings.remove(job.pid)
        self._watch.remove(job.output)
        self._close_input(job)
        del self._jobs[job.id]
        self._drain(job)
        os.close(job.output)
        self._done(job, status)

    def _drain(self, job: Job) -> None:
        """What still lies in the pipe: no more than it holds, so it needs no credit.

        Bounded, since what left the command's session may still write into it.
        """
        left = DRAIN
        with suppress(BlockingIOError):
            while left and (data := os.read(job.output, min(CHUNK, left))):
                left -= len(data)
                if job.credit is None:
                    job.tail.add(data)
                else:
                    self._tell({"id": job.id, "event": "output"}, data)

    def _kill(self, job: Job) -> int:
        """End it with all that belongs to it; answers its exit code, negative for a signal."""
        if len(self._jobs) == 1 and not self._helpers:
            processes.kill_all(self._statuses)
        else:
            processes.kill_session(job.pid, self._statuses)
        status = self._statuses.pop(job.pid, None)
        if status is None:
            raise SandboxError(f"process {job.pid} was not ours to wait for")
        return status


def _limit_for_ever(limits: Limits) -> None:
    """Limits of this process and, by inheritance, of every other; only CPU time is each command's own."""
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

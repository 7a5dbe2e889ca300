"""Finds, stops and kills the processes around an agent.

As process 1 of a pid namespace the agent can reach all of them with one call. Elsewhere (without a namespace)
it finds what it started through /proc; orphans become its children, since it is their reaper.
"""

import os
import signal
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of Linux, include/linux/sched.h
_STOP_S = 5.0
_PAUSE_S = 0.0003
_HIDDEN = "?"
"""Not a state of the kernel's: the process lives, and its state cannot be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """The line that /proc has for a process."""

    pid: int
    state: str
    parent: int
    session: int
    kernel: bool
    """True for a thread of the virtual machine's own kernel, which cannot be stopped or killed."""
    started: int
    """The time of its start, in the kernel's ticks."""


def other_processes() -> Iterator[ProcessStatus]:
    """Yield every living process of the sandbox except this one."""
    statuses = {each.pid: each for each in visible_processes()}
    ours = statuses.keys() if os.getpid() == 1 else _descendants(statuses)
    others = (statuses[pid] for pid in ours if pid != os.getpid())
    yield from (each for each in others if each.state not in "ZX" and not each.kernel)


def _descendants(statuses: dict[int, ProcessStatus]) -> set[int]:
    family = {os.getpid()}
    while grown := {pid for pid, each in statuses.items() if each.parent in family} - family:
        family |= grown
    return family


def visible_processes() -> Iterator[ProcessStatus]:
    """Yield every process that /proc shows."""
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                yield _status(int(name))


def _status(pid: int) -> ProcessStatus:
    fields = _stat(f"/proc/{pid}")
    return ProcessStatus(
        pid=pid,
        state=_state_of_threads(pid) if int(fields[17]) > 1 else fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
        kernel=bool(int(fields[6]) & _KERNEL_THREAD),
    )


def _stat(directory: str) -> list[bytes]:
    """Return the fields of a process or thread's `stat`, from its state on (proc(5))."""
    with open(f"{directory}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b")")[2].split()


def _state_of_threads(pid: int) -> str:
    """Return the state of a thread that is not stopped, if there is one, else of any that lives.

    The state of the first thread is not enough: a process lives on after it has ended. gVisor does not show
    the other threads then, which gives `_HIDDEN`.
    """
    states = set()
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            states.add(_stat(f"/proc/{pid}/task/{thread}")[0].decode())
    return min(states - {"Z", "X"}, key=lambda state: (state == "T", state), default=_HIDDEN)


def open_oom(proc: str) -> int:
    """Open the file that says how eagerly the kernel kills this process when memory runs out."""
    return os.open(f"{proc}/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)


def count_foreign_threads() -> int:
    """Return how many threads this process' user has on the machine, without those that this process started.

    They count against RLIMIT_NPROC where no user namespace has a count of its own.
    """
    count, user = 0, os.getuid()
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                threads = os.stat(f"/proc/{name}/task")  # noqa: PTH116
                count += (threads.st_nlink - 2) * (threads.st_uid == user)
    return count - sum(1 for _ in other_processes())


def stopped_processes() -> list[int]:
    """Return the processes of the sandbox that are stopped already."""
    return [each.pid for each in other_processes() if each.state == "T"]


def stop_all() -> None:
    """Stop every other process and wait until all stand still: they write nothing after this."""
    deadline = time.monotonic() + _STOP_S
    running = [each.pid for each in other_processes()]
    while running:
        _signal(running, signal.SIGSTOP)
        if time.monotonic() > deadline:
            _signal(running, signal.SIGCONT)
            raise TimeoutError(f"processes {running} did not stop within {_STOP_S:.0f} s")
        time.sleep(_PAUSE_S)
        running = _running(list(other_processes()))


def _running(statuses: list[ProcessStatus]) -> list[int]:
    """Return the processes that can still do something.

    A process in state D whose child is stopped waits for it in `vfork`, and so cannot.
    """
    waiting = {each.parent for each in statuses if each.state == "T"}
    return [
        each.pid
        for each in statuses
        if each.state not in ("T", _HIDDEN) and not (each.state == "D" and each.pid in waiting)
    ]


def continue_all(but: Container[int]) -> None:
    """Let the processes run that `stop_all` stopped; those in `but` were stopped before."""
    _signal([each.pid for each in other_processes() if each.pid not in but], signal.SIGCONT)


def kill_all(statuses: dict[int, int]) -> None:
    """Kill every other process, wait for them, and add the exit codes of our children to `statuses`."""
    while True:
        if os.getpid() == 1:
            _signal([-1], signal.SIGKILL)
        else:
            _signal(_parents_first(other_processes()), signal.SIGKILL)
        try:
            _note(*os.waitpid(-1, 0), statuses)
        except ChildProcessError:
            return


def kill_session(leader: int, statuses: dict[int, int]) -> None:
    """Kill a session, wait for its leader, and add the exit codes of children that ended meanwhile."""
    while True:
        members = _parents_first(each for each in other_processes() if leader in (each.session, each.pid))
        _signal(members, signal.SIGKILL)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                _note(*ended, statuses)
        if not members and leader in statuses:
            return
        time.sleep(_PAUSE_S)


def _parents_first(statuses: Iterable[ProcessStatus]) -> list[int]:
    """Return the processes, oldest first, so that no shell lives to report that its command was killed."""
    return [each.pid for each in sorted(statuses, key=lambda each: (each.started, each.pid))]


def _note(pid: int, code: int, statuses: dict[int, int]) -> None:
    statuses[pid] = os.waitstatus_to_exitcode(code)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

"""The processes around an agent: counted, stopped, killed.

As process 1 of a pid namespace the agent can reach all of them with one call. Elsewhere (a guest with its own
first process, or no namespace) what it started is found through /proc; orphans come to it, as their reaper.
"""

import os
import resource
import signal
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of Linux, include/linux/sched.h
_PATIENCE_S = 5.0
_TICK_S = 0.0003
_TICKS = os.sysconf("SC_CLK_TCK")
_HIDDEN = "?"
"""No state of the kernel's: the process lives, and nobody can see what it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One line of /proc."""

    pid: int
    state: str
    parent: int
    session: int
    kernel: bool
    """A thread of the guest's own kernel: nobody can stop or kill it."""
    started: int
    """When, in the kernel's ticks."""
    cpu_s: float


def others() -> Iterator[Seen]:
    """Every process that is ours, but this one and what is dead already."""
    there = {each.pid: each for each in seen()}
    ours = there.keys() if os.getpid() == 1 else _descendants(there)
    found = (there[pid] for pid in ours if pid != os.getpid())
    yield from (each for each in found if each.state not in "ZX" and not each.kernel)


def _descendants(seen: dict[int, Seen]) -> set[int]:
    found = {os.getpid()}
    while grown := {pid for pid, each in seen.items() if each.parent in found} - found:
        found |= grown
    return found


def seen() -> Iterator[Seen]:
    """All that can be seen from here."""
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                yield _seen(int(name))


def _seen(pid: int) -> Seen:
    fields = _stat(f"/proc/{pid}")
    return Seen(
        pid=pid,
        state=_state_of_threads(pid) if int(fields[17]) > 1 else fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
        kernel=bool(int(fields[6]) & _KERNEL_THREAD),
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS,
    )


def _stat(place: str) -> list[bytes]:
    """Of a process or thread, from its state on (proc(5))."""
    with open(f"{place}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b")")[2].split()


def _state_of_threads(pid: int) -> str:
    """Of one that is not stopped, if there is one: a process lives on when its first thread has ended.

    gVisor does not show the others then.
    """
    states = set()
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            states.add(_stat(f"/proc/{pid}/task/{thread}")[0].decode())
    return min(states - {"Z", "X"}, key=lambda state: (state == "T", state), default=_HIDDEN)


def open_oom(proc: str) -> int:
    """How eagerly the kernel kills this process for want of memory: open, to be written when needed."""
    return os.open(f"{proc}/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)


def crowd() -> int:
    """How many threads this process' user has on this machine beside what this process started.

    So many count against RLIMIT_NPROC where no user namespace has a count of its own.
    """
    count, user = 0, os.getuid()
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                threads = os.stat(f"/proc/{name}/task")  # noqa: PTH116
                count += (threads.st_nlink - 2) * (threads.st_uid == user)
    return count - sum(1 for _ in others())


def stopped() -> list[int]:
    """Those that stand still already."""
    return [each.pid for each in others() if each.state == "T"]


def stop_all() -> None:
    """Until every one stands still: nothing is written after this."""
    deadline = time.monotonic() + _PATIENCE_S
    running = [each.pid for each in others()]
    while running:
        _signal(running, signal.SIGSTOP)
        if time.monotonic() > deadline:
            _signal(running, signal.SIGCONT)
            raise TimeoutError(f"processes {running} did not stop within {_PATIENCE_S:.0f} s")
        time.sleep(_TICK_S)
        running = _running(list(others()))


def _running(seen: list[Seen]) -> list[int]:
    """Those that can do something. Who waits in `vfork` for a child that stands still cannot."""
    waiting = {each.parent for each in seen if each.state == "T"}
    return [
        each.pid
        for each in seen
        if each.state not in ("T", _HIDDEN) and not (each.state == "D" and each.pid in waiting)
    ]


def go_on(but: Container[int]) -> None:
    """Those that `stop_all` stopped."""
    _signal([each.pid for each in others() if each.pid not in but], signal.SIGCONT)


def kill_all(statuses: dict[int, int]) -> None:
    """Kill every one, wait for them, and add how each of our children ended."""
    while True:
        if os.getpid() == 1:
            _signal([-1], signal.SIGKILL)
        else:
            _signal(_parents_first(others()), signal.SIGKILL)
        try:
            _note(*os.waitpid(-1, 0), statuses)
        except ChildProcessError:
            return


def kill_session(leader: int, statuses: dict[int, int]) -> None:
    """Kill a session, wait for its leader, and add how each of our children that ended meanwhile did."""
    while True:
        members = _parents_first(each for each in others() if leader in (each.session, each.pid))
        _signal(members, signal.SIGKILL)
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                _note(*ended, statuses)
        if not members and leader in statuses:
            return
        time.sleep(_TICK_S)


def _parents_first(these: Iterable[Seen]) -> list[int]:
    """So that no shell lives to see its command killed, and to say so."""
    return [each.pid for each in sorted(these, key=lambda each: (each.started, each.pid))]


def _note(pid: int, code: int, statuses: dict[int, int]) -> None:
    statuses[pid] = os.waitstatus_to_exitcode(code)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def usage() -> dict[str, Any]:
    """CPU seconds so far, resident memory now (shared pages by share) and the number of processes."""
    alive = list(others())
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu_s = sum(each.ru_utime + each.ru_stime for each in spent) + sum(each.cpu_s for each in alive)
    memory = sum(_resident(pid) for pid in (os.getpid(), *(each.pid for each in alive)))
    return {"cpu_s": cpu_s, "memory_bytes": memory, "processes": len(alive) + 1}


def _resident(pid: int) -> int:
    """0 for a process that ended meanwhile, or that hides its memory."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:  # noqa: PTH123
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return 0

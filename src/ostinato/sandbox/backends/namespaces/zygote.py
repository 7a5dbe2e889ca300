"""The warm process that every sandbox and judge is forked from (see `launch`).

    backend ──orders──► children that wait, ready but for the repository ──► agent, process 1 of a sandbox
       │                   ▲ one is forked for each that was taken
       └────exams──────► zygote ──fork──► judge
    backend ◄───────────── frames, reports ───────── agent, judge

Both are SOCK_SEQPACKET sockets of JSON, one packet each, with the files that the child is to use. Whichever
child waits first takes the next order:

    orders:  {"order": {…}, "files": ["control" [, "calls"] [, "layer"] [, "egress" | "gate"]]}  see `ground`
    exams:   {"tests": path, "names": […], "wall_s": n}                       results

The zygote answers only once, at its start: `{"ready": true}` or `{"error": why}`. It is process 1 of a pid
namespace around all others: when it ends, however that happens, the kernel ends everything it ever forked.
"""

import array
import contextlib
import json
import os
import resource
import select
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ostinato.sandbox.backends.namespaces import landlock_child, namespace_child
from ostinato.sandbox.backends.namespaces.confinement import Ground
from ostinato.sandbox.exam import judge
from ostinato.sandbox.guest import warm_pytest
from ostinato.sandbox.linux import cheap_fork, processes, syscalls
from ostinato.sandbox.linux.cgroup import Groups
from ostinato.sandbox.protocol.order import MAX_REQUEST, Order

MAX_FILES = 4
WAITING = 2 * (os.cpu_count() or 1)
"""Children that wait for an order: what a burst finds ready."""
_GROUNDS: Mapping[str, Callable[[], Ground]] = {
    "ns": namespace_child.Namespaces,
    "landlock": landlock_child.Fences,
}
_TAKEN = struct.Struct(">I")
_MIB = 2**20
_JUDGE_MEMORY = 2 << 30


def main() -> None:
    orders, exams = (socket.socket(fileno=int(number)) for number in sys.argv[2:4])
    groups = Groups(int(sys.argv[4]), int(sys.argv[5])) if len(sys.argv) > 4 else None
    ground = _GROUNDS[sys.argv[1]]()
    try:
        syscalls.die_with_parent()
        ready = _prepare(ground)
    except (OSError, RuntimeError) as error:
        exams.send(json.dumps({"error": str(error)}).encode())
        raise
    child = os.fork()
    if child:
        orders.close()
        exams.close()
        os.waitpid(child, 0)
        return
    syscalls.die_with_parent()
    syscalls.adopt_orphans()
    exams.send(b'{"ready": true}')
    Zygote(orders, exams, ground, groups, ready).serve()


def _prepare(ground: Ground) -> judge.Judge | None:
    """What has been made ready of a judge; None when that needs to know its tests."""
    sys.path[:] = [path for path in sys.path if path not in ("", "/")]
    warm_pytest.prepare()
    cheap_fork.gather()
    ground.prepare()
    return judge.Judge(ground.exam) if ground.exam is not None else None


class Zygote:
    """Keeps `WAITING` children waiting for orders, and forks a judge for each exam."""

    def __init__(
        self,
        orders: socket.socket,
        exams: socket.socket,
        ground: Ground,
        groups: Groups | None,
        ready: judge.Judge | None,
    ) -> None:
        self._groups = groups
        self._orders = orders
        self._exams = exams
        self._ground = ground
        self._judge = ready
        self._serial = 0
        self._waiting: dict[int, int] = {}
        """Children by their serial number."""
        self._living: dict[int, str] = {}
        """The names of the children's groups, by process."""
        self._hears, self._tells = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._endings = syscalls.watch_children()

    def serve(self) -> None:
        """Until the backend hangs up; then wait for the children, which hear the same silence."""
        poll = select.poll()
        for fd in (self._exams.fileno(), self._hears, self._endings):
            poll.register(fd, select.POLLIN)
        listening = True
        while listening:
            self._replenish()
            ready = dict(poll.poll())
            if self._hears in ready:
                self._note(os.read(self._hears, _TAKEN.size * 1024))
            if self._endings in ready:
                os.read(self._endings, 4096)
                self._reap()
            if self._exams.fileno() in ready:
                listening = self._examine()
        self._orders.close()
        self._exams.close()
        self._wait_for_all()

    def _replenish(self) -> None:
        while len(self._waiting) < WAITING:
            self._serial = (self._serial + 1) % 2**32
            group = self._groups.take() if self._groups is not None else ""
            with self._ground.forking():
                child = self._fork(partial(self._wait_for_order, group))
            self._waiting[self._serial] = child
            self._living[child] = group

    def _wait_for_order(self, group: str) -> None:
        """In a child: prepare all that no order changes, then take one."""
        report = _TAKEN.pack(self._serial)
        _hang_up(self._exams)
        if self._groups is not None:
            self._groups.enter(group)
        cell = self._ground.cell()
        request, files = _receive(self._orders)
        _hang_up(self._orders)
        if request is None:
            return
        order = Order.read(request["order"])
        if self._groups is not None:
            self._groups.limit(group, (order.limits.memory_mb + order.limits.disk_mb) * _MIB)
            os.close(self._groups.directory)
        named = dict(zip(request["files"], files, strict=True))
        cell.live(order, named, lambda: self._tell(report))

    def _tell(self, report: bytes) -> None:
        """In a child: a place among the waiting is free. Said when it is at work, not in its way."""
        os.write(self._tells, report)
        os.close(self._tells)

    def _note(self, data: bytes) -> None:
        """Children that took an order."""
        for (serial,) in _TAKEN.iter_unpack(data):
            self._waiting.pop(serial, None)

    def _reap(self) -> None:
        """By hand, so that the children's CPU time is counted as ours."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._waiting = {serial: pid for serial, pid in self._waiting.items() if pid != ended}
                group = self._living.pop(ended, None)
                if group is not None and self._groups is not None:
                    self._groups.leave(group)

    def _examine(self) -> bool:
        """Fork a judge; False when the backend hung up."""
        request, files = _receive(self._exams)
        if request is None:
            return False
        self._fork(lambda: self._become_judge(request, files))
        for file in files:
            os.close(file)
        return True

    def _become_judge(self, request: dict[str, Any], files: list[int]) -> None:
        _hang_up(self._orders)
        _hang_up(self._exams)
        os.close(self._tells)
        judge_exam(request, files, self._ground, self._judge)

    def _fork(self, body: Callable[[], None]) -> int:
        child = os.fork()
        if child:
            return child
        try:
            syscalls.heed()
            os.close(self._endings)
            os.close(self._hears)
            body()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    @staticmethod
    def _wait_for_all() -> None:
        if os.getpid() != 1:
            processes.kill_all({})  # no namespace ends what its agent could not
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)


def judge_exam(request: dict[str, Any], files: list[int], ground: Ground, ready: judge.Judge | None) -> None:
    """In a child: judge an exam with the candidate's code out of reach."""
    (results,) = (socket.socket(fileno=file) for file in files)
    cheap_fork.release()
    syscalls.die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (_JUDGE_MEMORY, _JUDGE_MEMORY))
    tests = ground.judge(request["tests"])
    (ready or judge.Judge(tests)).run(results, request["names"], request["wall_s"])


def _hang_up(sock: socket.socket) -> None:
    """As `close`, at a fraction of the pages that it makes a fresh fork copy."""
    os.close(sock.detach())


def _receive(requests: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    space = socket.CMSG_SPACE(MAX_FILES * array.array("i").itemsize)
    data, ancillary, _, _ = requests.recvmsg(MAX_REQUEST, space, socket.MSG_CMSG_CLOEXEC)
    numbers = array.array("i")
    for _level, _kind, payload in ancillary:
        numbers.frombytes(payload)
    return (json.loads(data) if data else None), list(numbers)

"""The process with pytest loaded that every sandbox and judge is forked from (see `launcher`).

    backend ──orders──► children that wait, ready but for the repository ──► agent, process 1 of a sandbox
       │                   ▲ one is forked for each that took an order
       └────exams──────► zygote ──fork──► judge
    backend ◄───────────── frames, reports ───────── agent, judge

Orders and exams are packets of JSON on two SOCK_SEQPACKET sockets, with the file descriptors that the child
uses. Any waiting child takes the next order:

    orders:  {"order": {…}, "files": ["control" [, "calls"] [, "layer"] [, "egress"]]}
             (see `PreparedChild.run`)
    exams:   {"tests": path, "names": […], "wall_s": n}, with the descriptor of a socket for the results

The zygote sends one packet, at its start: `{"ready": true}` or `{"error": reason, "refused": by the kernel}`.
Under namespaces it is process 1 of a pid namespace around all others: when it ends, the kernel ends all that
it ever forked.
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
from ostinato.sandbox.backends.namespaces.confinement import Confinement
from ostinato.sandbox.exam.judged import judge
from ostinato.sandbox.guest import warm_pytest
from ostinato.sandbox.linux import cheap_fork, processes, syscalls
from ostinato.sandbox.linux.cgroup import CgroupPool
from ostinato.sandbox.protocol.order import MAX_REQUEST, Order

MAX_FILES = 4
WAITING = 2 * (os.cpu_count() or 1)
"""Children that wait for an order, so that a burst of orders finds some ready."""
_CONFINEMENTS: Mapping[str, Callable[[], Confinement]] = {
    "ns": namespace_child.NamespaceConfinement,
    "landlock": landlock_child.LandlockConfinement,
}
_TAKEN = struct.Struct(">I")
_MIB = 2**20
_JUDGE_MEMORY = 2 << 30


def main() -> None:
    orders, exams = (socket.socket(fileno=int(number)) for number in sys.argv[2:4])
    groups = CgroupPool(int(sys.argv[4]), int(sys.argv[5])) if len(sys.argv) > 4 else None
    confinement = _CONFINEMENTS[sys.argv[1]]()
    try:
        syscalls.die_with_parent()
        prepared_judge = _prepare(confinement)
    except (OSError, RuntimeError) as error:
        exams.send(json.dumps({"error": str(error), "refused": syscalls.refused(error)}).encode())
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
    Zygote(orders, exams, confinement, groups, prepared_judge).serve()


def _prepare(confinement: Confinement) -> judge.Judge | None:
    """Prepare this process; return a judge that forks can use, None when a judge has to know its tests."""
    sys.path[:] = [path for path in sys.path if path not in ("", "/")]
    warm_pytest.prepare()
    cheap_fork.use_large_pages()
    confinement.prepare()
    directory = confinement.tests_directory
    prepared_judge = judge.Judge(directory) if directory is not None else None
    warm_pytest.remember()
    return prepared_judge


class Zygote:
    """Keeps `WAITING` children waiting for orders, and forks a judge for each exam."""

    def __init__(
        self,
        orders: socket.socket,
        exams: socket.socket,
        confinement: Confinement,
        groups: CgroupPool | None,
        prepared_judge: judge.Judge | None,
    ) -> None:
        self._groups = groups
        self._orders = orders
        self._exams = exams
        self._confinement = confinement
        self._judge = prepared_judge
        self._serial = 0
        self._waiting: dict[int, int] = {}
        """Children that wait for an order, by their serial number."""
        self._living: dict[int, str] = {}
        """The names of the children's groups, by process."""
        self._taken, self._report_taken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        """A pipe to which a child writes its serial number once it serves an order."""
        self._child_signal = syscalls.watch_children()

    def serve(self) -> None:
        """Serve until the backend hangs up, then wait for the children, which end for the same reason."""
        poll = select.poll()
        for fd in (self._exams.fileno(), self._taken, self._child_signal):
            poll.register(fd, select.POLLIN)
        listening = True
        while listening:
            self._replenish()
            ready = dict(poll.poll())
            if self._taken in ready:
                for (serial,) in _TAKEN.iter_unpack(os.read(self._taken, _TAKEN.size * 1024)):
                    self._waiting.pop(serial, None)
            if self._child_signal in ready:
                os.read(self._child_signal, 4096)
                self._reap()
            if self._exams.fileno() in ready:
                listening = self._examine()
        self._orders.close()
        self._exams.close()
        self._wait_for_all()

    def _replenish(self) -> None:
        while len(self._waiting) < WAITING:
            self._serial = (self._serial + 1) % 2**32
            group = self._groups.acquire() if self._groups is not None else ""
            with self._confinement.forking():
                child = self._fork(partial(self._wait_for_order, group))
            self._waiting[self._serial] = child
            self._living[child] = group

    def _wait_for_order(self, group: str) -> None:
        """Prepare this child as far as it can be without an order, then take one and serve it."""
        report = _TAKEN.pack(self._serial)
        _hang_up(self._exams)
        if self._groups is not None:
            self._groups.enter(group)
        prepared = self._confinement.prepare_child()
        request, files = _receive(self._orders)
        _hang_up(self._orders)
        if request is None:
            return
        order = Order.read(request["order"])
        if self._groups is not None:
            self._groups.limit(group, (order.limits.memory_mb + order.limits.disk_mb) * _MIB)
            os.close(self._groups.directory)
        named = dict(zip(request["files"], files, strict=True))
        prepared.run(order, named, lambda: self._report(report))

    def _report(self, report: bytes) -> None:
        """Tell the zygote that this child waits no more, so that it forks another one.

        It does so only when it serves its order: the fork then does not slow its start.
        """
        os.write(self._report_taken, report)
        os.close(self._report_taken)

    def _reap(self) -> None:
        """Wait for the children that have ended; waiting also counts their CPU time as ours."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                self._waiting = {serial: pid for serial, pid in self._waiting.items() if pid != ended}
                group = self._living.pop(ended, None)
                if group is not None and self._groups is not None:
                    self._groups.release(group)

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
        os.close(self._report_taken)
        _judge_exam(request, files, self._confinement, self._judge)

    def _fork(self, body: Callable[[], None]) -> int:
        child = os.fork()
        if child:
            return child
        try:
            syscalls.unblock_child_signal()
            os.close(self._child_signal)
            os.close(self._taken)
            body()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    @staticmethod
    def _wait_for_all() -> None:
        if os.getpid() != 1:
            processes.kill_all({})  # there is no pid namespace that would end what its agents did not
        with contextlib.suppress(ChildProcessError):
            while True:
                os.waitpid(-1, 0)


def _judge_exam(
    request: dict[str, Any], files: list[int], confinement: Confinement, prepared: judge.Judge | None
) -> None:
    """Judge an exam in this child, where the candidate's code cannot reach."""
    (results,) = (socket.socket(fileno=file) for file in files)
    cheap_fork.restore_fork_hooks()
    syscalls.die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (_JUDGE_MEMORY, _JUDGE_MEMORY))
    tests = confinement.show_tests(request["tests"])
    (prepared or judge.Judge(tests)).run(results, request["names"], request["wall_s"])


def _hang_up(sock: socket.socket) -> None:
    """Close a socket; its own `close` would make a fresh fork copy many more pages."""
    os.close(sock.detach())


def _receive(requests: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    space = socket.CMSG_SPACE(MAX_FILES * array.array("i").itemsize)
    data, ancillary, _, _ = requests.recvmsg(MAX_REQUEST, space, socket.MSG_CMSG_CLOEXEC)
    numbers = array.array("i")
    for _level, _kind, payload in ancillary:
        numbers.frombytes(payload)
    return (json.loads(data) if data else None), list(numbers)

"""How a child of the zygote becomes the agent of one sandbox, in namespaces of its own."""

import os
import resource
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.egress import listener, transparent
from ostinato.sandbox.files import rootfs
from ostinato.sandbox.files.workspace import OverlayPlace, PlainPlace
from ostinato.sandbox.guest import warm_pytest
from ostinato.sandbox.guest.agent import Agent
from ostinato.sandbox.linux import landlock, processes, syscalls
from ostinato.sandbox.protocol.agent_link import Link
from ostinato.sandbox.protocol.order import Order

MAX_SIGNALS = 1024
"""Signals that wait, and timers: the machine counts both for all processes of a user together."""


class Namespaces:
    """See `Ground`."""

    exam = rootfs.EXAM

    def __init__(self) -> None:
        self._pids = -1
        self._program = syscalls.filter_program()
        self._landlock = landlock.abi() > 0

    def prepare(self) -> None:
        rootfs.build_root()
        syscalls.unshare(syscalls.NEW_NET | syscalls.NEW_IPC | syscalls.NEW_UTS)

    @contextmanager
    def forking(self) -> Iterator[None]:
        """The child is process 1 of a pid namespace."""
        if self._pids < 0:
            self._pids = os.open(f"{rootfs.HOST}/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        syscalls.unshare(syscalls.NEW_PID)
        try:
            yield
        finally:
            syscalls.setns(self._pids, syscalls.NEW_PID)

    def cell(self) -> "Cell":
        os.close(self._pids)
        return Cell(self._program, with_landlock=self._landlock)

    def judge(self, tests: str) -> str:
        syscalls.unshare(syscalls.NEW_MOUNT)
        syscalls.mount(rootfs.HOST + tests, rootfs.EXAM, "none", syscalls.BIND)
        syscalls.mount("tmpfs", rootfs.SCRATCH, "tmpfs", syscalls.NOSUID | syscalls.NODEV, "size=64m")
        rootfs.cover_tmp(rootfs.SCRATCH)
        return rootfs.EXAM


class Cell:
    """Namespaces around this process."""

    def __init__(self, program: bytes, *, with_landlock: bool) -> None:
        self._program = program
        self._landlock = with_landlock
        self._failure: OSError | None = None
        self._oom = -1
        try:
            syscalls.unshare(syscalls.NEW_MOUNT | syscalls.NEW_NET | syscalls.NEW_IPC | syscalls.NEW_UTS)
            rootfs.prepare()
            self._oom = processes.open_oom(f"{rootfs.SCRATCH}/proc")
        except OSError as error:  # told to whoever orders: nobody else asks
            self._failure = error

    def live(self, order: Order, files: Mapping[str, int], begun: Callable[[], None]) -> None:
        serve(order, {**files, "oom": self._oom}, begun, lambda: self._confine(order, files))

    def _confine(self, order: Order, files: Mapping[str, int]) -> OverlayPlace:
        if self._failure is not None:
            raise self._failure
        if "egress" in files:
            listener.listen_inside(files["egress"])
        if "gate" in files:
            transparent.listen_inside(files["gate"])
        socket.sethostname(order.id)
        lower, upper = rootfs.enter(order, files.get("layer"))
        syscalls.drop_capabilities()
        if self._landlock:
            _fence(lower, upper)
        resource.setrlimit(resource.RLIMIT_SIGPENDING, (MAX_SIGNALS, MAX_SIGNALS))
        syscalls.apply_filter(self._program)
        syscalls.die_with_parent()
        syscalls.set_dumpable(False)
        os.chdir(rootfs.REPO)
        return OverlayPlace(lower, upper)


def _fence(lower: int, upper: int) -> None:
    """What the mounts say once more, by other means: a mistake in one of them is not enough to get out."""
    look, write = ["/"], [rootfs.REPO, rootfs.TMP, "/dev"]
    files = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in (*look, *write)]
    rights = [*[landlock.LOOK] * len(look), *[landlock.ALL] * len(write)]
    landlock.restrict(
        [*zip(files, rights, strict=True), (lower, landlock.LOOK), (upper, landlock.ALL)], tcp=True
    )
    for file in files:
        os.close(file)


def serve(
    order: Order,
    files: Mapping[str, int],
    begun: Callable[[], None],
    confine: Callable[[], OverlayPlace | PlainPlace],
    crowd: Callable[[], int] | None = None,
) -> None:
    """Confine this process, then be the agent; a failure is told to the backend. `crowd`: see `Jobs`."""
    link = Link(files["control"], files["control"], order.generation)
    try:
        place = confine()
    except (OSError, SandboxError) as error:
        message = f"the sandbox was not created: {error}"
        link.send({"id": 0, "error": "SandboxError", "message": message})
        begun()
        return
    signal.signal(signal.SIGINT, _go_on)
    for name, value in order.environment.items():  # `update` has a fresh fork copy pages even for nothing
        os.environ[name] = value
    tempfile._name_sequence = None  # type: ignore[attr-defined] # else all sandboxes make the same names
    calls = socket.socket(fileno=files["calls"]) if "calls" in files else None
    agent = Agent(
        link, place, order.limits, oom=files["oom"], recognise=warm_pytest.fork_body, calls=calls, crowd=crowd
    )
    agent.serve(begun)


def _go_on(*_: object) -> None:
    """For the signal that Python would end at: a command may send it to process 1.

    A handler and not SIG_IGN, which every program that is started here would inherit.
    """

"""Makes a child of the zygote the agent of one sandbox, in namespaces of its own."""

import os
import resource
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ostinato.sandbox.base import MachineRefusesError, SandboxError
from ostinato.sandbox.egress import listener
from ostinato.sandbox.files import rootfs
from ostinato.sandbox.files.workspace import DirectoryWorkspace, OverlayWorkspace
from ostinato.sandbox.guest import warm_pytest
from ostinato.sandbox.guest.agent import SandboxAgent
from ostinato.sandbox.linux import landlock, processes, syscalls
from ostinato.sandbox.protocol.agent_link import AgentLink
from ostinato.sandbox.protocol.order import Order

MAX_SIGNALS = 1024
"""The most pending signals and timers; the machine counts both for all processes of a user together."""


class NamespaceConfinement:
    """A user, mount, pid, network, ipc and uts namespace for each child (see `Confinement`)."""

    tests_directory = rootfs.EXAM

    def __init__(self) -> None:
        self._pids = -1
        self._program = syscalls.filter_program()
        self._landlock = landlock.abi() > 0

    def prepare(self) -> None:
        rootfs.build_root()
        syscalls.unshare(syscalls.NEW_NET | syscalls.NEW_IPC | syscalls.NEW_UTS)

    @contextmanager
    def forking(self) -> Iterator[None]:
        """Make the child process 1 of a pid namespace."""
        if self._pids < 0:
            self._pids = os.open(f"{rootfs.HOST}/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        syscalls.unshare(syscalls.NEW_PID)
        try:
            yield
        finally:
            syscalls.setns(self._pids, syscalls.NEW_PID)

    def prepare_child(self) -> "NamespaceChild":
        os.close(self._pids)
        return NamespaceChild(self._program, with_landlock=self._landlock)

    def show_tests(self, tests: str) -> str:
        syscalls.unshare(syscalls.NEW_MOUNT)
        syscalls.mount(rootfs.HOST + tests, rootfs.EXAM, "none", syscalls.BIND)
        syscalls.mount("tmpfs", rootfs.SCRATCH, "tmpfs", syscalls.NOSUID | syscalls.NODEV, "size=64m")
        rootfs.cover_tmp(rootfs.SCRATCH)
        return rootfs.EXAM


class NamespaceChild:
    """A child in its namespaces, whose root is finished but for the repository."""

    def __init__(self, program: bytes, *, with_landlock: bool) -> None:
        self._program = program
        self._landlock = with_landlock
        self._failure: OSError | None = None
        self._oom = -1
        try:
            syscalls.unshare(syscalls.NEW_MOUNT | syscalls.NEW_NET | syscalls.NEW_IPC | syscalls.NEW_UTS)
            rootfs.prepare()
            self._oom = processes.open_oom(f"{rootfs.SCRATCH}/proc")
        except OSError as error:  # raised when an order comes: only then is there a backend to send it to
            self._failure = error

    def run(self, order: Order, files: Mapping[str, int], begun: Callable[[], None]) -> None:
        serve(order, {**files, "oom": self._oom}, begun, lambda: self._confine(order, files))

    def _confine(self, order: Order, files: Mapping[str, int]) -> OverlayWorkspace:
        if self._failure is not None:
            raise self._failure
        if "egress" in files:
            listener.open_listener(files["egress"])
        socket.sethostname(order.id)
        lower, upper = rootfs.enter(order, files.get("layer"))
        if order.image is not None:
            sys.path.clear()  # commands can write all of the image: nothing of it may be imported here
        syscalls.drop_capabilities()
        if self._landlock:
            _restrict_files(lower, upper, everything=order.image is not None)
        resource.setrlimit(resource.RLIMIT_SIGPENDING, (MAX_SIGNALS, MAX_SIGNALS))
        syscalls.apply_filter(self._program)
        syscalls.die_with_parent()
        syscalls.set_dumpable(False)
        os.chdir(rootfs.REPO)
        return OverlayWorkspace(lower, upper)


def _restrict_files(lower: int, upper: int, *, everything: bool) -> None:
    """Allow by Landlock what the mounts allow already, so that a mistake in one of the two is no way out.

    With an image all of its files can be written (`everything`), in a layer above it.
    """
    read, write = ["/"], ["/"] if everything else [rootfs.REPO, rootfs.TMP, "/dev"]
    files = [os.open(path, os.O_PATH | os.O_CLOEXEC) for path in (*read, *write)]
    rights = [*[landlock.LOOK] * len(read), *[landlock.ALL] * len(write)]
    landlock.restrict(
        [*zip(files, rights, strict=True), (lower, landlock.LOOK), (upper, landlock.ALL)], tcp=True
    )
    for file in files:
        os.close(file)


def serve(
    order: Order,
    files: Mapping[str, int],
    begun: Callable[[], None],
    confine: Callable[[], OverlayWorkspace | DirectoryWorkspace],
    count_foreign_threads: Callable[[], int] | None = None,
) -> None:
    """Confine this process, then serve as the agent; a failure to confine it is sent to the backend.

    For `count_foreign_threads` see `Jobs`.
    """
    link = AgentLink(files["control"], files["control"])
    try:
        workspace = confine()
    except (OSError, SandboxError) as error:
        kind = MachineRefusesError if syscalls.refused(error) else SandboxError
        message = f"the sandbox was not created: {error}"
        link.send({"id": 0, "error": kind.__name__, "message": message})
        begun()
        return
    signal.signal(signal.SIGINT, _ignore)
    for name, value in order.environment.items():  # `update` makes a fork copy pages, even with no items
        os.environ[name] = value
    tempfile._name_sequence = None  # type: ignore[attr-defined] # or all sandboxes would make the same names
    calls = socket.socket(fileno=files["calls"]) if "calls" in files else None
    agent = SandboxAgent(
        link,
        workspace,
        order.limits,
        oom=files["oom"],
        find_fork_body=None if order.image is not None else warm_pytest.fork_body,
        calls=calls,
        count_foreign_threads=count_foreign_threads,
    )
    agent.serve(begun)


def _ignore(*_: object) -> None:
    """Do nothing about SIGINT, at which Python would end: a command may send it to process 1.

    This is a handler instead of SIG_IGN because programs that are started here would inherit SIG_IGN.
    """

"""How a child of the zygote becomes an agent without namespaces, held by Landlock and seccomp."""

import os
import resource
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ostinato.sandbox.backends.namespaces.namespace_child import MAX_SIGNALS, serve
from ostinato.sandbox.files import layer_restore, rootfs
from ostinato.sandbox.files.workspace import REPO_AREA, PlainPlace
from ostinato.sandbox.linux import landlock, processes, syscalls
from ostinato.sandbox.protocol.order import Order

_SEEN = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc")
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))


class Fences:
    """See `Ground`."""

    exam = None

    def __init__(self) -> None:
        self._program = syscalls.filter_program(network=False)

    def prepare(self) -> None:
        version = landlock.abi()
        if version == 0:
            raise RuntimeError("this kernel has no Landlock (Linux 5.13, and `landlock` in the lsm= list)")
        syscalls.adopt_orphans()

    def forking(self) -> AbstractContextManager[None]:
        return nullcontext()

    def cell(self) -> "Cell":
        return Cell(self._program)

    def judge(self, tests: str) -> str:
        return tests


class Cell:
    """A process that waits."""

    def __init__(self, program: bytes) -> None:
        self._program = program
        self._oom = processes.open_oom("/proc")

    def live(self, order: Order, files: Mapping[str, int], begun: Callable[[], None]) -> None:
        files = {**files, "oom": self._oom}
        serve(order, files, begun, lambda: self._confine(order, files.get("layer")), processes.crowd)

    def _confine(self, order: Order, base: int | None) -> PlainPlace:
        root, room = f"{order.scratch}/repo", f"{order.scratch}/room"
        shutil.copytree(order.repo, root, symlinks=True)
        Path(room).mkdir()
        os.environ.update({"HOME": room, "TMPDIR": room, "PWD": root})
        place = PlainPlace(root)
        if base is not None:
            layer_restore.unpack(base, {REPO_AREA: root}, overlay=False)
        syscalls.adopt_orphans()
        syscalls.drop_capabilities()
        self._fence(order)
        resource.setrlimit(resource.RLIMIT_SIGPENDING, (MAX_SIGNALS, MAX_SIGNALS))
        syscalls.apply_filter(self._program)
        # it does not die with the zygote: it lives to see the backend hang up, and to end what it started
        syscalls.set_dumpable(False)
        os.chdir(root)
        return place

    @staticmethod
    def _fence(order: Order) -> None:
        seen = [*_SEEN, *rootfs.python_prefixes(), *(f"/etc/{name}" for name in rootfs.ETC), "/etc/passwd"]
        paths = [(path, landlock.LOOK) for path in seen] + [(path, landlock.ALL) for path in _DEVICES]
        opened = [(path, rights) for path, rights in paths if Path(path).exists()]
        opened.append((order.scratch, landlock.ALL))
        rules = [(os.open(path, os.O_PATH | os.O_CLOEXEC), rights) for path, rights in opened]
        landlock.restrict(rules, tcp=False)
        for file, _ in rules:
            os.close(file)

"""Makes a child of the zygote an agent without namespaces, restricted by Landlock and seccomp."""

import errno
import os
import resource
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ostinato.sandbox.backends.namespaces.namespace_child import MAX_SIGNALS, serve
from ostinato.sandbox.files import layer_restore, rootfs
from ostinato.sandbox.files.workspace import REPO_AREA, DirectoryWorkspace
from ostinato.sandbox.linux import landlock, processes, syscalls
from ostinato.sandbox.protocol.order import Order

_READABLE = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc")
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))


class LandlockConfinement:
    """Landlock and seccomp for each child, which works on a copy of the repository (see `Confinement`)."""

    tests_directory = None

    def __init__(self) -> None:
        self._program = syscalls.filter_program(network=False)

    def prepare(self) -> None:
        version = landlock.abi()
        if version == 0:
            raise OSError(
                errno.EOPNOTSUPP, "this kernel has no Landlock (Linux 5.13, and `landlock` in the lsm= list)"
            )
        syscalls.adopt_orphans()

    def forking(self) -> AbstractContextManager[None]:
        return nullcontext()

    def prepare_child(self) -> "LandlockChild":
        return LandlockChild(self._program)

    def show_tests(self, tests: str) -> str:
        return tests


class LandlockChild:
    """A child that waits for its order."""

    def __init__(self, program: bytes) -> None:
        self._program = program
        self._oom = processes.open_oom("/proc")

    def run(self, order: Order, files: Mapping[str, int], begun: Callable[[], None]) -> None:
        files = {**files, "oom": self._oom}
        layer = files.get("layer")
        serve(order, files, begun, lambda: self._confine(order, layer), processes.count_foreign_threads)

    def _confine(self, order: Order, base: int | None) -> DirectoryWorkspace:
        root, home = f"{order.scratch}/repo", f"{order.scratch}/room"
        shutil.copytree(order.repo, root, symlinks=True)
        Path(home).mkdir()
        os.environ.update({"HOME": home, "TMPDIR": home, "PWD": root})
        workspace = DirectoryWorkspace(root)
        if base is not None:
            layer_restore.unpack(base, {REPO_AREA: root}, overlay=False)
        syscalls.adopt_orphans()
        syscalls.drop_capabilities()
        _restrict_files(order)
        resource.setrlimit(resource.RLIMIT_SIGPENDING, (MAX_SIGNALS, MAX_SIGNALS))
        syscalls.apply_filter(self._program)
        # unlike a child in namespaces it does not die with the zygote: when the backend hangs up, it has to
        # end what it started
        syscalls.set_dumpable(False)
        os.chdir(root)
        return workspace


def _restrict_files(order: Order) -> None:
    etc = [*(f"/etc/{name}" for name in rootfs.ETC), "/etc/passwd"]
    readable = [*_READABLE, *rootfs.python_prefixes(), *etc]
    paths = [(path, landlock.LOOK) for path in readable] + [(path, landlock.ALL) for path in _DEVICES]
    allowed = [(path, rights) for path, rights in paths if Path(path).exists()]
    allowed.append((order.scratch, landlock.ALL))
    rules = [(os.open(path, os.O_PATH | os.O_CLOEXEC), rights) for path, rights in allowed]
    landlock.restrict(rules, tcp=False)
    for file, _ in rules:
        os.close(file)

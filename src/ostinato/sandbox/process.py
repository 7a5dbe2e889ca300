"""Commands as plain processes: for a person's own repository, and where namespaces are not to be had.

NOT a security boundary: a command can read and write whatever its user can. A time limit holds, and processes
left behind in the command's session are killed; in a copy, resource limits hold too.
"""

import asyncio
import codecs
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ostinato.sandbox import tree
from ostinato.sandbox.base import DEFAULT_LIMITS, Exam, ExecResult, Limits, OnOutput, Sandbox, SandboxError
from ostinato.sandbox.exam import examine_in_processes
from ostinato.sandbox.output import Tail

DRAIN_S = 0.5
"""How long output is awaited after the end of a command, when something still holds the pipe."""
Stamp = tuple[int, int, int]


class ProcessBackend:
    """Works on a copy of the repository, or `in_place`."""

    name = "process"
    boundary = False

    def __init__(self, *, in_place: bool = False) -> None:
        self._in_place = in_place
        self._open: set[ProcessSandbox] = set()

    async def open(self, repo: Path, limits: Limits = DEFAULT_LIMITS) -> Sandbox:
        sandbox = await asyncio.to_thread(self._prepare, repo, limits)
        self._open.add(sandbox)
        return sandbox

    def _prepare(self, repo: Path, limits: Limits) -> "ProcessSandbox":
        if not repo.is_dir():
            raise SandboxError(f"no repository at {repo}: give a directory")
        if self._in_place:
            return ProcessSandbox(repo.resolve(), limits, scratch=None)
        scratch = Path(tempfile.mkdtemp(prefix="ostinato-")).resolve()
        shutil.copytree(repo, scratch / "repo", symlinks=True)
        return ProcessSandbox(scratch / "repo", limits, scratch=scratch)

    async def examine(self, exam: Exam) -> dict[str, str]:
        sandbox = await ProcessBackend().open(exam.repo, exam.limits)
        try:
            tree.apply(sandbox.root, exam.changes)
            return await examine_in_processes(exam, sandbox.root)
        finally:
            await sandbox.close()

    async def aclose(self) -> None:
        for sandbox in tuple(self._open):
            await sandbox.close()
        self._open.clear()


class ProcessSandbox:
    """One directory and the commands run in it."""

    def __init__(self, directory: Path, limits: Limits, scratch: Path | None) -> None:
        self._root = str(directory)
        self._limits = limits
        self._scratch = scratch
        self._lock = asyncio.Lock()
        self._closed = False
        self._base = self._stamps()

    @property
    def root(self) -> str:
        return self._root

    async def exec(
        self, command: str, *, timeout_s: float | None = None, on_output: OnOutput | None = None
    ) -> ExecResult:
        self._check_open()
        wall_s = self._limits.wall_s if timeout_s is None else timeout_s
        tail = Tail(self._limits.output_bytes)
        start = time.monotonic()
        async with self._lock:
            with _pipe_into(tail, on_output) as (write_end, drained):
                process = await self._start(command, write_end)
                timed_out = await _wait(process, wall_s)
                with suppress(TimeoutError):
                    await asyncio.wait_for(drained.wait(), DRAIN_S)
        return ExecResult(
            exit_code=process.returncode or 0,
            output=tail.text(),
            timed_out=timed_out,
            duration_s=time.monotonic() - start,
        )

    async def _start(self, command: str, output: int) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *self._argv(command),
                cwd=self._root,
                env=self._environment(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        finally:
            os.close(output)

    def _argv(self, command: str) -> list[str]:
        if self._scratch is None:
            return ["/bin/sh", "-c", command]
        limits = self._limits
        capped = f"ulimit -t {limits.cpu_s}; ulimit -f {limits.disk_mb * 2048}; "
        if sys.platform == "linux":
            capped += f"ulimit -v {limits.memory_mb * 1024}; "
        return ["/bin/sh", "-c", capped + 'exec /bin/sh -c "$0"', command]

    def _environment(self) -> dict[str, str]:
        if self._scratch is None:
            return dict(os.environ)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
        return {**COMMAND_ENVIRONMENT, "PATH": path, "HOME": str(self._scratch), "PWD": self._root}

    async def read(self, path: str) -> bytes:
        self._check_open()
        return tree.read(self._root, path)

    async def write(self, path: str, data: bytes) -> None:
        self._check_open()
        tree.write(self._root, path, data)

    async def files(self) -> list[str]:
        self._check_open()
        return tree.files(self._root)

    async def tree_hash(self) -> str:
        self._check_open()
        return tree.digest(self._root)

    async def changes(self) -> dict[str, bytes | None]:
        self._check_open()
        now = self._stamps()
        touched = sorted(p for p in now.keys() | self._base.keys() if now.get(p) != self._base.get(p))
        return {path: tree.content(self._root, path) for path in touched}

    async def close(self) -> None:
        self._closed = True
        if self._scratch is not None:
            await asyncio.to_thread(shutil.rmtree, self._scratch, ignore_errors=True)

    async def list(self, path: str = ".") -> list[str]:
        self._check_open()
        return tree.names(self._root, path)

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxError(f"the sandbox at {self._root} is closed: open another")

    def _stamps(self) -> dict[str, Stamp]:
        start = len(self._root) + 1
        stats = ((entry.path[start:], entry.stat(follow_symlinks=False)) for entry in tree.walk(self._root))
        return {path: (s.st_ino, s.st_size, s.st_ctime_ns) for path, s in stats}


COMMAND_ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
}
"""What commands in a practice sandbox see besides PATH and HOME: the same on every machine."""


@contextmanager
def _pipe_into(tail: Tail, on_output: OnOutput | None) -> Iterator[tuple[int, asyncio.Event]]:
    """A write end whose bytes land in `tail`, and an event set when every holder has closed it."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    drained = asyncio.Event()
    loop = asyncio.get_running_loop()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def readable() -> None:
        data = os.read(read_end, 65536)
        if data:
            tail.add(data)
            if on_output is not None:
                on_output(decoder.decode(data))
        else:
            loop.remove_reader(read_end)
            drained.set()

    loop.add_reader(read_end, readable)
    try:
        yield write_end, drained
    finally:
        loop.remove_reader(read_end)
        os.close(read_end)


async def _wait(process: asyncio.subprocess.Process, wall_s: float) -> bool:
    """Wait for the end, or kill the whole session after `wall_s` seconds. True when it had to."""
    try:
        await asyncio.wait_for(process.wait(), wall_s)
        return False
    except TimeoutError:
        return True
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

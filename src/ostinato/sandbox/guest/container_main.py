"""The first process of a container, a sandbox's agent, whose connection is standard input and output.

    backend ──enter: limits, environment, layer──► copies the repository, restricts itself ──► agent
            ◄─────────────── frames ───────────────

The container has given away every capability before this starts. The agent is process 1 of its pid namespace
and cannot be traced, so that commands, which have the same user, can neither signal it nor read its memory.
When the backend hangs up it exits, and the kernel ends all that it started.
"""

import fcntl
import io
import os
import resource
import select
import shutil
import signal
import socket
import sys
import tarfile
import tempfile
from collections.abc import Iterator

from ostinato.sandbox.base import Limits, SandboxError
from ostinato.sandbox.exam.judged import worker
from ostinato.sandbox.files import layer_restore, rootfs
from ostinato.sandbox.files.workspace import REPO_AREA, DirectoryWorkspace
from ostinato.sandbox.guest.agent import Request, SandboxAgent
from ostinato.sandbox.guest.exam_calls import ExamCalls
from ostinato.sandbox.linux import processes, syscalls
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.agent_link import AgentLink

_MAX_SIGNALS = 1024
_USER, _NOBODY = 1000, 65534


def main() -> None:
    incoming, outgoing = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 10) for number in (0, 1))
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    link = AgentLink(incoming, outgoing)
    requests = _requests(link)
    header, _ = next(requests)
    order = header["order"]
    limits = Limits(**order["limits"])
    oom = processes.open_oom("/proc")
    try:
        workspace = _enter(requests, has_layer=order["layer"], own_kernel=order["own_kernel"])
    except (OSError, SandboxError) as error:
        link.send({"id": 0, "error": "SandboxError", "message": f"the sandbox was not created: {error}"})
        raise
    os.environ.update(order["environment"])
    ContainerAgent(link, workspace, limits, oom=oom, user=_USER if order["own_kernel"] else None).serve()


def _requests(link: AgentLink) -> Iterator[frames.Frame]:
    poll = select.poll()
    poll.register(link.incoming, select.POLLIN)
    while link.open:
        poll.poll()
        yield from link.receive()
    sys.exit()


class _Part(io.RawIOBase):
    """A file that is read from frames, of which the last is empty."""

    def __init__(self, requests: Iterator[frames.Frame]) -> None:
        super().__init__()
        self._requests, self._rest, self._ended = requests, b"", False

    def read(self, size: int = frames.CHUNK, /) -> bytes:
        while not self._ended and len(self._rest) < size:
            data = next(self._requests)[1]
            self._ended = not data
            self._rest += data
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece


def _enter(requests: Iterator[frames.Frame], *, has_layer: bool, own_kernel: bool) -> DirectoryWorkspace:
    """Unpack the repository and the layer above it, and give up what is not needed any more."""
    if own_kernel:
        _take_two_users()
    repo = _Part(requests)
    with tarfile.open(fileobj=repo, mode="r|") as archive:
        archive.extractall(rootfs.REPO, filter="fully_trusted")  # noqa: S202 - the backend made it
    while repo.read():
        pass  # padding, and the frame that ends the part
    workspace = DirectoryWorkspace(rootfs.REPO)
    if has_layer:
        with tempfile.TemporaryFile(dir=rootfs.TMP) as file:
            shutil.copyfileobj(_Part(requests), file)
            file.flush()
            layer_restore.unpack(file.fileno(), {REPO_AREA: rootfs.REPO}, overlay=False)
    if not own_kernel:  # what follows protects the machine's kernel, which gVisor keeps out of reach
        resource.setrlimit(resource.RLIMIT_SIGPENDING, (_MAX_SIGNALS, _MAX_SIGNALS))
        syscalls.apply_filter(syscalls.filter_program(watches=False))
    syscalls.set_dumpable(False)
    signal.signal(signal.SIGINT, lambda *_: None)  # a command may send it, and Python would end at it
    os.chdir(rootfs.REPO)
    return workspace


def _take_two_users() -> None:
    """Work as the user of commands, with another real user, so that they cannot signal this process."""
    for path in (rootfs.REPO, rootfs.TMP):
        os.chown(path, _USER, _USER)
    os.setgroups([])
    os.setresgid(_USER, _USER, _USER)
    os.setresuid(_NOBODY, _USER, _NOBODY)
    syscalls.drop_capabilities()


class ContainerAgent(SandboxAgent):
    """An agent whose exams go through its own connection, because a container gets no other socket."""

    def __init__(
        self, link: AgentLink, workspace: DirectoryWorkspace, limits: Limits, *, oom: int, user: int | None
    ) -> None:
        super().__init__(link, workspace, limits, oom=oom, user=user)
        self._calls_of_exam: ExamCalls | None = None
        self._later_handlers |= {
            "worker": self._start_worker,
            "input": self._input,
            "credit": self._credit,
        }

    def _start_worker(self, request: Request, _: bytes) -> None:
        """Start an exam's worker on a socket of ours; its data is output of the request until it ends."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._jobs.start_helper(
                lambda: worker.serve(theirs, rootfs.REPO, request["variation"]), keep=(theirs.fileno(),)
            )
        self._calls_of_exam = ExamCalls(request["id"], ours, request["window"], self._poller, self._link.send)

    def _input(self, request: Request, body: bytes) -> None:
        if self._calls_of_exam is not None and self._calls_of_exam.number == request["id"]:
            self._calls_of_exam.feed(body)
        else:
            self._jobs.feed(request["id"], body)

    def _credit(self, request: Request, _: bytes) -> None:
        if self._calls_of_exam is not None and self._calls_of_exam.number == request["id"]:
            self._calls_of_exam.credit(request["bytes"])
        else:
            self._jobs.credit(request["id"], request["bytes"])

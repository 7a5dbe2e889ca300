"""The first process of a virtual machine, which becomes a sandbox's agent: `stdio | port PATH [warm]`.

    backend ──hello, enter, parts──► mounts, gives up its rights ──► agent, until the machine ends
            ──wake, after a snapshot or fork was loaded──► a name, randomness and a clock of its own

It starts with every right, waits, and is saved in that state as the template of many sandboxes. `enter` makes
it the agent of one: the repository becomes an overlay at /repo, and commands get the user who owns it and no
capability. The agent itself keeps the few capabilities that `wake` needs. Its real user differs from that of
commands, so that they can neither signal it nor read its memory.

    enter     order, parts: [[kind, place], …]; then each part's bytes in frames `part`, the last one empty;
              kind `tree`: a tar archive to unpack at `place`; kind `layer`: see `sandbox.files.layer`
    wake      name, entropy, now (seconds since the epoch, None where the clock is not the guest's own),
              door (None, or the argument of `ProxyForwarder.open`)
    trust     certificates for programs, in any number of frames before `wake`
    stream    see `frames`
    clock     now
    quiet     (its response says that all earlier frames have been read)
"""

import errno
import fcntl
import os
import random
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ostinato.sandbox.base import Limits, SandboxError
from ostinato.sandbox.exam.judged import worker
from ostinato.sandbox.files import image_root, layer_restore, rootfs
from ostinato.sandbox.files.workspace import REPO_AREA, TMP_AREA, OverlayWorkspace
from ostinato.sandbox.guest.agent import Request, Response, SandboxAgent
from ostinato.sandbox.guest.exam_calls import ExamCalls
from ostinato.sandbox.guest.jobs import FindForkBody
from ostinato.sandbox.guest.proxy_forwarder import ProxyForwarder
from ostinato.sandbox.linux import processes, syscalls
from ostinato.sandbox.protocol import frames
from ostinato.sandbox.protocol.agent_link import AgentLink

PRISTINE = "/.pristine"
IMAGE = "/.image"
"""The place where the engine shows the files of an image."""
_NOBODY = 65534
_INODES = 16384
_RESEED = 0x5207  # RNDRESEEDCRNG
_CAPABILITIES = (syscalls.SYS_ADMIN, syscalls.SYS_RESOURCE, syscalls.SYS_TIME)
_RECONNECT_S = 0.002


class VirtioLink(AgentLink):
    """A link whose other side may be closed for a moment, while a snapshot is loaded."""

    def receive(self) -> Iterator[frames.Frame]:
        yield from super().receive()
        if not self.open:
            time.sleep(_RECONNECT_S)
            self.open = True


def main() -> None:
    incoming, outgoing = _channel(sys.argv[1:])
    find_fork_body: FindForkBody | None = None
    if "warm" in sys.argv:
        # loaded only where the template is saved with it, since loading takes seconds
        from ostinato.sandbox.guest import warm_pytest

        warm_pytest.prepare()
        warm_pytest.remember()
        _run_common_programs()
        find_fork_body = warm_pytest.fork_body
    link = (VirtioLink if sys.argv[1] == "port" else AgentLink)(incoming, outgoing, generation="")
    link.send({"id": 0, "ready": True})
    _wait_and_serve(link, find_fork_body)


def _run_common_programs() -> None:
    """Run the programs that most commands use.

    Copies of this machine then neither have to read their files nor, where QEMU emulates the processor, to
    translate the kernel's code that reads them.
    """
    for command in (
        ["tar", "--version"],
        ["/bin/sh", "-c", "cat; ls /; grep x; sed -n 1p; head; tail; find /tmp"],
    ):
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)


def _channel(arguments: list[str]) -> tuple[int, int]:
    """Return the descriptors of the connection, which no command inherits.

    Anything that this process prints goes to the console, or nowhere.
    """
    if arguments[0] == "port":
        syscalls.raise_loopback()  # in a virtual machine no other process does
        port = os.open(arguments[1], os.O_RDWR | os.O_CLOEXEC)
        return port, port
    incoming, outgoing = (fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 10) for number in (0, 1))
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    return incoming, outgoing


def _wait_and_serve(link: AgentLink, find_fork_body: FindForkBody | None) -> None:
    requests = _requests(link)
    request = next(requests)
    while request[0]["op"] != "enter":
        link.send({"id": request[0]["id"]})
        request = next(requests)
    order = request[0]["order"]
    limits, workdir = Limits(**order["limits"]), order["workdir"]
    oom = processes.open_oom("/proc")  # opened now: it takes rights that `enter` gives up
    try:
        workspace, ca_file = enter(limits, _Parts(request[0]["parts"], requests), workdir)
    except (OSError, SandboxError) as error:
        link.send({"id": 0, "error": "SandboxError", "message": f"the sandbox was not created: {error}"})
        raise
    os.environ.update(order["environment"])
    fork_body = find_fork_body if workdir is None else None
    VmAgent(link, workspace, limits, oom=oom, find_fork_body=fork_body, ca_file=ca_file).serve()


def _requests(link: AgentLink) -> Iterator[frames.Frame]:
    poll = select.poll()
    poll.register(link.incoming, select.POLLIN)
    while link.open:
        poll.poll()
        yield from link.receive()
    sys.exit()


class _Parts:
    """The parts that follow an `enter`."""

    def __init__(self, kinds: list[tuple[str, str]], requests: Iterator[frames.Frame]) -> None:
        self.kinds = kinds
        self._requests = requests

    def bytes(self) -> Iterator[bytes]:
        """Yield the bytes of the next part."""
        while data := next(self._requests)[1]:
            yield data


def enter(limits: Limits, parts: _Parts, workdir: str | None) -> tuple[OverlayWorkspace, int]:
    """Finish the root for one sandbox and give up the rights that it does not need any more.

    With the `workdir` of an image, the image becomes the root.

    Return the repository, and the open file of certificates that programs trust. It can only be written
    through this descriptor.
    """
    trees = [place for kind, place in parts.kinds if kind == "tree"]
    _unpack_trees(trees, parts)
    owner = Path(PRISTINE).stat()
    _mount_scratch(limits, owner.st_uid, owner.st_gid)
    lower, upper = (
        os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for path in (PRISTINE, f"{rootfs.SCRATCH}/upper")
    )
    ca_file = _open_ca_file()
    if workdir is None:
        syscalls.unmount(rootfs.SCRATCH)
    else:
        _enter_image(workdir)
    os.chdir(rootfs.REPO)
    _become(owner.st_uid, owner.st_gid)
    if len(parts.kinds) > len(trees):
        _unpack_layer(parts.bytes())
    return OverlayWorkspace(lower, upper), ca_file


def _enter_image(workdir: str) -> None:
    shown = (rootfs.REPO, "/proc", "/dev", rootfs.TMP, *rootfs.MOUNTABLE)
    os.chroot(image_root.assemble(IMAGE, rootfs.SCRATCH, shown, workdir))
    os.chdir("/")
    sys.path.clear()  # commands can write all of the image: nothing of it may be imported here
    image_root.identify(rootfs.TRUST, rootfs.TRUSTED)


def _unpack_trees(places: list[str], parts: "_Parts") -> None:
    """Unpack trees, each top directory in a file system of its own that the guest's memory bounds."""
    tops = sorted({f"/{place.split('/')[1]}" for place in places})
    for top in tops:
        syscalls.mount("tmpfs", top, "tmpfs", syscalls.NOSUID | syscalls.NODEV, "mode=755")
    os.makedirs(os.path.dirname(rootfs.TRUST), exist_ok=True)  # noqa: PTH103, PTH120 - in a fresh /run
    for place in places:
        _unpack_tree(place, parts.bytes())
    for top in tops:
        syscalls.seal(top)


def _unpack_tree(place: str, data: Iterator[bytes]) -> None:
    os.makedirs(place, exist_ok=True)  # noqa: PTH103
    with subprocess.Popen(["tar", "-x", "-p", "--numeric-owner"], cwd=place, stdin=subprocess.PIPE) as tar:
        assert tar.stdin is not None
        try:
            for piece in data:
                tar.stdin.write(piece)
        except BrokenPipeError:
            list(data)
    if tar.returncode:
        raise SandboxError(f"the tree for {place} does not fit into the machine: give it more memory")


def _mount_scratch(limits: Limits, user: int, group: int) -> None:
    """Mount everything that commands can write: the repository's upper layer and /tmp."""
    scratch = rootfs.SCRATCH
    _mount_sized(scratch, limits)
    for name, mode in (("upper", 0o755), ("work", 0o755), ("tmp", 0o1777)):
        os.mkdir(f"{scratch}/{name}")  # noqa: PTH102
        os.chmod(f"{scratch}/{name}", mode)  # noqa: PTH101
        os.chown(f"{scratch}/{name}", user, group)
    layers = f"lowerdir={PRISTINE},upperdir={scratch}/upper,workdir={scratch}/work"
    syscalls.mount("overlay", rootfs.REPO, "overlay", syscalls.NOSUID | syscalls.NODEV, layers)
    syscalls.mount(scratch + rootfs.TMP, rootfs.TMP, "none", syscalls.BIND)


def _mount_sized(place: str, limits: Limits) -> None:
    options, flags = f"size={limits.disk_mb}m,mode=755", syscalls.NOSUID | syscalls.NODEV
    try:
        syscalls.mount("tmpfs", place, "tmpfs", flags, f"{options},nr_inodes={_INODES}")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        syscalls.mount("tmpfs", place, "tmpfs", flags, options)  # gVisor counts no inodes


def _open_ca_file() -> int:
    """Open the empty file of certificates.

    It is in a file system of its own, since the one above it may be read-only. It belongs to the user
    `nobody`, so that commands, which may have root's number, cannot write to it.
    """
    place = os.path.dirname(rootfs.TRUST)  # noqa: PTH120
    syscalls.mount("tmpfs", place, "tmpfs", syscalls.NOSUID | syscalls.NODEV, "size=4m,mode=755")
    ca_file = os.open(rootfs.TRUST, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    for path in (rootfs.TRUST, place):
        os.chown(path, _NOBODY, _NOBODY)
    return ca_file


def _unpack_layer(data: Iterator[bytes]) -> None:
    with tempfile.TemporaryFile(dir=rootfs.TMP) as file:
        for piece in data:
            file.write(piece)
        file.flush()
        areas = {REPO_AREA: rootfs.REPO, TMP_AREA: rootfs.TMP}
        layer_restore.unpack(file.fileno(), areas, overlay=False)


def _become(user: int, group: int) -> None:
    """Create files as `user`; the real user is `nobody`, so that commands, as `user`, cannot signal us."""
    os.setgroups([])
    os.setresgid(group, group, group)
    syscalls.keep_capabilities()
    os.setresuid(_NOBODY, user, _NOBODY)
    syscalls.drop_capabilities(but=_CAPABILITIES)
    syscalls.set_dumpable(False)


class VmAgent(SandboxAgent):
    """An agent whose machine may be copied, and that then wakes up as another sandbox."""

    def __init__(
        self,
        link: AgentLink,
        workspace: OverlayWorkspace,
        limits: Limits,
        *,
        oom: int,
        find_fork_body: FindForkBody | None,
        ca_file: int,
    ) -> None:
        super().__init__(link, workspace, limits, oom=oom, find_fork_body=find_fork_body, user=os.geteuid())
        self._forwarder = ProxyForwarder(self._poller, link.send, ca_file)
        self._worker_calls: ExamCalls | None = None
        self._later_handlers |= {
            "worker": self._start_worker,
            "input": self._input,
            "credit": self._credit,
            "stream": self._forwarder.receive,
            "trust": lambda _, body: self._forwarder.trust(body),
        }
        self._handlers |= {
            "hello": self._hello,
            "quiet": lambda *_: ({}, b""),
            "wake": self._wake,
            "clock": self._clock,
        }

    def _hello(self, _: Request, __: bytes) -> Response:
        """Begin with another backend: the earlier one listens neither to commands nor to connections."""
        self._jobs.detach()
        self._forwarder.reset()
        return {}, b""

    def _wake(self, request: Request, _: bytes) -> Response:
        """Replace what the snapshot holds of another sandbox: name, random numbers, time and proxy."""
        name: str = request["name"]
        socket.sethostname(name)
        tempfile._name_sequence = None  # type: ignore[attr-defined]
        random.seed(request["entropy"])
        if request["now"] is not None:  # a kernel of its own: its clock stood still, its pool is a copy
            self._clock(request)
            _reseed(bytes.fromhex(request["entropy"]))
        if request["door"] is None:
            self._forwarder.shut()
        else:
            self._forwarder.open(request["door"])
        self._jobs.resume()
        return {}, b""

    def _start_worker(self, request: Request, _: bytes) -> None:
        """Start an exam's worker on a socket of ours; its data is output of the request until it ends."""
        ours, theirs = socket.socketpair()
        with theirs:
            variation = request["variation"]
            self._jobs.start_helper(
                lambda: worker.serve(theirs, rootfs.REPO, variation), keep=(theirs.fileno(),)
            )
        self._worker_calls = ExamCalls(request["id"], ours, request["window"], self._poller, self._link.send)

    def _input(self, request: Request, body: bytes) -> None:
        if self._worker_calls is not None and self._worker_calls.number == request["id"]:
            self._worker_calls.feed(body)
        else:
            self._jobs.feed(request["id"], body)

    def _credit(self, request: Request, _: bytes) -> None:
        if self._worker_calls is not None and self._worker_calls.number == request["id"]:
            self._worker_calls.credit(request["bytes"])
        else:
            self._jobs.credit(request["id"], request["bytes"])

    def _clock(self, request: Request, _: bytes = b"") -> Response:
        """Set the clock, which stood still while the machine did."""
        time.clock_settime(time.CLOCK_REALTIME, request["now"])
        return {}, b""


def _reseed(entropy: bytes) -> None:
    with open("/dev/urandom", "wb", buffering=0) as pool:  # noqa: PTH123
        pool.write(entropy)
        fcntl.ioctl(pool, _RESEED)


if __name__ == "__main__":
    main()

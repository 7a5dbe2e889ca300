"""Linux system calls that Python does not offer. Each raises OSError with the call's name."""

import ctypes
import errno
import fcntl
import os
import platform
import signal
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

NEW_USER, NEW_MOUNT, NEW_PID, NEW_NET, NEW_IPC, NEW_UTS = (
    *(0x10000000, 0x00020000, 0x20000000),
    *(0x40000000, 0x08000000, 0x04000000),
)
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_PR_CAPBSET_DROP, _PR_SET_CHILD_SUBREAPER, _LAST_CAPABILITY = 24, 36, 63
_CAPABILITY_V3 = 0x20080522
_MOUNT_SETATTR = 442
_SET_FLAGS, _UP = 0x8914, 1
_COLLAPSE = 25
_BLOCK, _UNBLOCK = 0, 1
_CHILD_SIGNAL = struct.pack("Q120x", 1 << (signal.SIGCHLD - 1))
"""The set of that one signal."""
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_RDONLY, _ATTR_NOSUID = 1, 2


_libc = ctypes.CDLL(None, use_errno=True)
for _name in ("capset", "mount", "prctl", "setns", "sigprocmask", "socket", "syscall", "umount2", "unshare"):
    getattr(_libc, _name)  # looked up now: a lookup in a fresh fork would copy pages


def checked(call: str, result: int) -> int:
    """Return the result of a system call; raises OSError with the call's name when that is an error."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


_SHORTAGES = {errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.EINTR, errno.EIO}


def refused(error: Exception) -> bool:
    """Return True where a call failed because the kernel or its settings never grant it.

    A shortage passes: it says nothing about what the machine can do.
    """
    return isinstance(error, OSError) and error.errno is not None and error.errno not in _SHORTAGES


def syscall(number: int, *arguments: object) -> int:
    """Make a call by its number and return its result, -1 on an error (`ctypes.get_errno`).

    Numbers from 424 on are the same on all machines.
    """
    return int(_libc.syscall(number, *arguments))


def unshare(flags: int) -> None:
    checked("unshare", _libc.unshare(flags))


def setns(fd: int, kind: int) -> None:
    checked("setns", _libc.setns(fd, kind))


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    checked(f"mount {kind} on {target}", result)


def unmount(target: str) -> None:
    """Detach a mount and all below it; files that are open there stay usable."""
    checked(f"umount {target}", _libc.umount2(target.encode(), DETACH))


def pivot_root(new: str, old: str) -> None:
    call = {"x86_64": 155, "aarch64": 41}[platform.machine()]
    checked("pivot_root", _libc.syscall(call, new.encode(), old.encode()))


def seal(target: str) -> None:
    """Make a mount and all below it read-only, without set-user-id. Linux 5.12 or later."""
    attributes = struct.pack("QQQQ", _ATTR_RDONLY | _ATTR_NOSUID, 0, 0, 0)
    call = _libc.syscall(
        _MOUNT_SETATTR, _AT_FDCWD, target.encode(), _AT_RECURSIVE, attributes, len(attributes)
    )
    checked("mount_setattr", call)


def raise_loopback() -> None:
    """Switch on the loopback: the processes of this network namespace reach each other at 127.0.0.1."""
    # `socket.socket` would make a fresh fork copy fifty pages for its enumerations
    any_socket = checked("socket", _libc.socket(int(socket.AF_INET), int(socket.SOCK_DGRAM), 0))
    fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP))
    os.close(any_socket)


def collapse(start: int, length: int) -> None:
    """Move `length` bytes of this process' memory into large pages; both numbers are multiples of 2 MiB."""
    result = _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _COLLAPSE)
    checked("madvise", result)


def write(path: str, text: str) -> None:
    """Write a file of the kernel's in one call; `pathlib` would make a fresh fork copy more pages."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def watch_children() -> int:
    """Return a descriptor that is readable when a child has ended.

    It blocks SIGCHLD, in later children too: they call `unblock_child_signal`.
    """
    checked("sigprocmask", _libc.sigprocmask(_BLOCK, _CHILD_SIGNAL, None))
    return checked("signalfd", _libc.signalfd(-1, _CHILD_SIGNAL, os.O_NONBLOCK | os.O_CLOEXEC))


def unblock_child_signal() -> None:
    """Undo, in a child, the blocking of SIGCHLD by `watch_children`."""
    checked("sigprocmask", _libc.sigprocmask(_UNBLOCK, _CHILD_SIGNAL, None))


def die_with_parent() -> None:
    checked("prctl", _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0))


def adopt_orphans() -> None:
    """Become the parent of every descendant that loses its own, as process 1 does."""
    checked("prctl", _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def set_dumpable(value: bool) -> None:
    """Show (True) or hide this process' memory and files to others: ptrace, /proc/PID/mem, /proc/PID/fd."""
    checked("prctl", _libc.prctl(_PR_SET_DUMPABLE, int(value), 0, 0, 0))


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    """Make `user` the real and effective user; the saved one stays, and allows the way back."""
    before = os.getresuid()
    os.setresuid(user, user, -1)
    try:
        yield
    finally:
        os.setresuid(*before)


def drop_capabilities() -> None:
    """Give up all capabilities for ever."""
    for number in range(_LAST_CAPABILITY + 1):
        if _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break  # the kernel has no further capability
    header = struct.pack("Ii", _CAPABILITY_V3, 0)
    checked("capset", _libc.capset(header, bytes(24)))
    checked("prctl", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED = {
    "x86_64": (
        *(101, 134, 153, 155, 161, 163, 165, 166, 167, 168, 169, 175, 176, 246, 248, 249, 250, 272, 298, 303),
        *(304, 308, 310, 311, 313, 320, 321, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442),
        *(179, 212, 227, 300, 312),
        *(29, 64, 68, 240),
    ),
    "aarch64": (
        *(39, 40, 41, 51, 89, 97, 104, 105, 106, 117, 142, 217, 218, 219, 224, 225, 241, 264, 265, 268, 270),
        *(271, 273, 280, 282, 294, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442),
        *(60, 18, 112, 262, 272),
        *(194, 190, 186, 180),
    ),
}
"""ptrace, mount and its new family, pivot_root, chroot, swap, reboot, modules, kexec, keys, unshare, setns,
perf events, bpf, userfaultfd, io_uring, file handles, other processes' memory and descriptors, quotas,
setting the clock, fanotify; shared memory, semaphores and message queues of System V and POSIX's queues,
which count against nothing that bounds a sandbox and outlive the process that made them."""
_WATCHES = {"x86_64": (253, 294), "aarch64": (26,)}
_CLONE = {"x86_64": 56, "aarch64": 220}
_SOCKETS = {"x86_64": (41, 53), "aarch64": (198, 199)}
"""socket, socketpair."""
_LOCAL = (socket.AF_UNIX,)
_NETWORK = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16)
"""16 is AF_NETLINK, by which programs ask for their interfaces; Python has its name on Linux alone."""
_OF_PROCESSES = {
    "x86_64": {302: 0, 141: 1, 203: 0, 142: 0, 144: 0, 314: 0, 251: 1},
    "aarch64": {261: 0, 140: 1, 122: 0, 118: 0, 119: 0, 274: 0, 30: 1},
}
"""prlimit64, setpriority, sched_setaffinity, sched_setparam, sched_setscheduler, sched_setattr, ioprio_set:
each with the place of its argument that names a process."""
_SET_PRIORITY, _OF_A_USER = {"x86_64": 141, "aarch64": 140}, 2
_CLONE3 = 435
_NAMESPACES = 0x7E020000
_DENY_ACCESS = 0x0005000D
_DENY, _NO_SUCH_CALL, _ALLOW, _KILL = 0x00050001, 0x00050026, 0x7FFF0000, 0x80000000
_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT, _ARGUMENT_BYTES = 0, 4, 16, 8


def filter_program(*, network: bool = True, watches: bool = True) -> bytes:
    """The seccomp filter: no new namespaces, and none of the calls that widen the kernel's surface.

    The agent, process 1 of its namespace, has the same user as its commands, so no command may change its
    limits or scheduling. Sockets are of IP, of the machine's own files (AF_UNIX) and of netlink; other
    families lead to the hypervisor (AF_VSOCK) or to code that no command needs. Without `network` only
    AF_UNIX is left, without `watches` no inotify, of which the machine has few for all processes of a user.
    """
    machine = platform.machine()
    rules = [(_LOAD, 0, 0, _ARCH), (_IF_EQUAL, 1, 0, _ARCHES[machine]), (_RETURN, 0, 0, _KILL)]
    rules += [(_LOAD, 0, 0, _NUMBER)]
    for number in (*_DENIED[machine], *(() if watches else _WATCHES[machine])):
        rules += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _DENY)]
    for number, place in _OF_PROCESSES[machine].items():
        named = _FIRST_ARGUMENT + _ARGUMENT_BYTES * place
        rules += [(_IF_EQUAL, 0, 4, number), (_LOAD, 0, 0, named), (_IF_EQUAL, 0, 1, 1)]
        rules += [(_RETURN, 0, 0, _DENY), (_LOAD, 0, 0, _NUMBER)]
    rules += [(_IF_EQUAL, 0, 4, _SET_PRIORITY[machine]), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    rules += [(_IF_EQUAL, 0, 1, _OF_A_USER), (_RETURN, 0, 0, _DENY), (_LOAD, 0, 0, _NUMBER)]
    # glibc falls back to clone, whose flags a filter can read
    rules += [(_IF_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _NO_SUCH_CALL)]
    rules += [(_IF_EQUAL, 0, 3, _CLONE[machine]), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    rules += [(_IF_ANY_BIT, 0, 1, _NAMESPACES), (_RETURN, 0, 0, _DENY), (_RETURN, 0, 0, _ALLOW)]
    families = _NETWORK if network else _LOCAL
    for number in _SOCKETS[machine]:
        few = [(_IF_EQUAL, len(families) - place, 0, int(each)) for place, each in enumerate(families)]
        few = [(_LOAD, 0, 0, _FIRST_ARGUMENT), *few, (_RETURN, 0, 0, _DENY_ACCESS), (_LOAD, 0, 0, _NUMBER)]
        rules[4:4] = [(_IF_EQUAL, 0, len(few), number), *few]
    if machine == "x86_64":
        rules[4:4] = [(_IF_ANY_BIT, 0, 1, 0x40000000), (_RETURN, 0, 0, _DENY)]  # the x32 numbering
    return b"".join(struct.pack("HBBI", *rule) for rule in rules)


def apply_filter(program: bytes) -> None:
    """Install `filter_program()` in this process and all its children; needs no_new_privs."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    checked("seccomp", _libc.prctl(_PR_SET_SECCOMP, 2, header, 0, 0))

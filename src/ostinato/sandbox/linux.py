"""The Linux calls that Python has no name for. Each raises OSError with the call's name."""

import ctypes
import os
import platform
import struct

NEW_USER, NEW_MOUNT, NEW_PID, NEW_NET, NEW_IPC, NEW_UTS = (
    *(0x10000000, 0x00020000, 0x20000000),
    *(0x40000000, 0x08000000, 0x04000000),
)
RDONLY, NOSUID, NODEV, NOEXEC, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 8, 4096, 16384, 1 << 18
DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
_PR_CAPBSET_DROP, _LAST_CAPABILITY = 24, 63
_CAPABILITY_V3 = 0x20080522
_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_RDONLY, _ATTR_NOSUID = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)


def _check(call: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    _check("unshare", _libc.unshare(flags))


def setns(fd: int, kind: int) -> None:
    _check("setns", _libc.setns(fd, kind))


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    result = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _check(f"mount {kind} on {target}", result)


def unmount(target: str) -> None:
    """Take a mount and all below it out of sight; open files keep it alive."""
    _check(f"umount {target}", _libc.umount2(target.encode(), DETACH))


def pivot_root(new: str, old: str) -> None:
    call = {"x86_64": 155, "aarch64": 41}[platform.machine()]
    _check("pivot_root", _libc.syscall(call, new.encode(), old.encode()))


def seal(target: str) -> None:
    """Make a mount and all below it read-only, without set-user-id. Linux 5.12 or later."""
    attributes = struct.pack("QQQQ", _ATTR_RDONLY | _ATTR_NOSUID, 0, 0, 0)
    call = _libc.syscall(
        _MOUNT_SETATTR, _AT_FDCWD, target.encode(), _AT_RECURSIVE, attributes, len(attributes)
    )
    _check("mount_setattr", call)


def die_with_parent() -> None:
    _check("prctl", _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0))


def set_dumpable(value: bool) -> None:
    """False hides this process's memory and files from all others (ptrace, /proc/PID/mem, /proc/PID/fd)."""
    _check("prctl", _libc.prctl(_PR_SET_DUMPABLE, int(value), 0, 0, 0))


def drop_capabilities() -> None:
    """Give up every capability for ever, in this process and all its children."""
    for number in range(_LAST_CAPABILITY + 1):
        if _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) < 0:
            break  # the kernel knows no more of them
    header = struct.pack("Ii", _CAPABILITY_V3, 0)
    _check("capset", _libc.capset(header, bytes(24)))
    _check("prctl", _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


_ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED = {
    "x86_64": (
        *(101, 134, 153, 155, 161, 163, 165, 166, 167, 168, 169, 175, 176, 246, 248, 249, 250, 272, 298, 303),
        *(304, 308, 310, 311, 313, 320, 321, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442),
    ),
    "aarch64": (
        *(39, 40, 41, 51, 89, 97, 104, 105, 106, 117, 142, 217, 218, 219, 224, 225, 241, 264, 265, 268, 270),
        *(271, 273, 280, 282, 294, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442),
    ),
}
"""ptrace, mount and its new family, pivot_root, chroot, swap, reboot, modules, kexec, keys, unshare, setns,
perf events, bpf, userfaultfd, io_uring, file handles, other processes' memory and descriptors."""
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_NAMESPACES = 0x7E020000
_DENY, _NO_SUCH_CALL, _ALLOW, _KILL = 0x00050001, 0x00050026, 0x7FFF0000, 0x80000000
_LOAD, _IF_EQUAL, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT = 0, 4, 16


def filter_program() -> bytes:
    """The seccomp filter: no new namespaces, and none of the calls that widen the kernel's surface."""
    machine = platform.machine()
    rules = [(_LOAD, 0, 0, _ARCH), (_IF_EQUAL, 1, 0, _ARCHES[machine]), (_RETURN, 0, 0, _KILL)]
    rules += [(_LOAD, 0, 0, _NUMBER)]
    for number in _DENIED[machine]:
        rules += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _DENY)]
    # glibc falls back to clone, whose flags can be looked at
    rules += [(_IF_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _NO_SUCH_CALL)]
    rules += [(_IF_EQUAL, 0, 3, _CLONE[machine]), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    rules += [(_IF_ANY_BIT, 0, 1, _NAMESPACES), (_RETURN, 0, 0, _DENY), (_RETURN, 0, 0, _ALLOW)]
    if machine == "x86_64":
        rules[4:4] = [(_IF_ANY_BIT, 0, 1, 0x40000000), (_RETURN, 0, 0, _DENY)]  # the x32 numbering
    return b"".join(struct.pack("HBBI", *rule) for rule in rules)


def apply_filter(program: bytes) -> None:
    """Install `filter_program()` in this process and all its children; needs no_new_privs."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
    _check("seccomp", _libc.prctl(_PR_SET_SECCOMP, 2, header, 0, 0))

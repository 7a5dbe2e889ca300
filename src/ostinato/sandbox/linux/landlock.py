"""Landlock: a process gives up access to files, TCP and signals, for itself and its children.

The kernel's ABI number says what it can enforce (Documentation/userspace-api/landlock.rst). What it cannot is
left out, and listed by `missing`.
"""

import ctypes
import os
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.linux import syscalls

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION = 1
_PROBE_TIMEOUT_S = 30.0
_PATH_BENEATH = 1
_READ, _LIST = 4, 8
_FOR_FILES = 1 | 2 | _READ | 1 << 14 | 1 << 15
"""Rights that mean something for a single file: execute, write, read, truncate, device calls."""
LOOK = 1 | _READ | _LIST
"""Execute, read and list; the bits are those of `LANDLOCK_ACCESS_FS_*`."""
ALL = (1 << 16) - 1
Rule = tuple[int, int]
"""An open directory or file, and the rights that are granted below it."""


def abi() -> int:
    """Return the ABI number of this kernel, 0 without Landlock."""
    return max(syscalls.syscall(_CREATE, None, 0, _VERSION), 0)


def missing(version: int) -> tuple[str, ...]:
    """Return one sentence for each thing that a kernel of this ABI cannot restrict."""
    restrictions = (
        (1, "Landlock does not restrict files"),
        (3, "a file that may be read may be truncated (Linux 6.2)"),
        (4, "Landlock does not restrict TCP (Linux 6.7)"),
        (6, "signals and abstract sockets reach outside (Linux 6.12)"),
    )
    return tuple(sentence for needed, sentence in restrictions if version < needed)


def restrict(rules: Sequence[Rule], *, tcp: bool) -> None:
    """Allow only `rules`, and TCP only if `tcp`; no process outside can be signalled. Needs no_new_privs.

    Raises OSError where there is no Landlock.
    """
    version = abi()
    handled = _rights(version)
    network = 3 if version >= 4 and not tcp else 0
    scoped = 3 if version >= 6 else 0
    attributes = struct.pack("QQQ", handled, network, scoped)[
        : 8 if version < 4 else 16 if version < 6 else 24
    ]
    ruleset = syscalls.checked(
        "landlock_create_ruleset", syscalls.syscall(_CREATE, attributes, len(attributes), 0)
    )
    try:
        for file, rights in rules:
            _allow(ruleset, file, rights & handled)
        syscalls.checked("landlock_restrict_self", syscalls.syscall(_RESTRICT, ruleset, 0))
    finally:
        os.close(ruleset)


def _rights(version: int) -> int:
    """Return all rights that a kernel of this ABI knows."""
    known = (0, 0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF)
    return known[min(version, len(known) - 1)]


def _allow(ruleset: int, file: int, rights: int) -> None:
    if not stat.S_ISDIR(os.fstat(file).st_mode):
        rights &= _FOR_FILES
    rule = struct.pack("=Qi", rights, file)
    syscalls.checked(
        "landlock_add_rule",
        syscalls.syscall(_ADD, ruleset, _PATH_BENEATH, ctypes.create_string_buffer(rule, len(rule)), 0),
    )


def probe() -> int:
    """Return the ABI after a trial: a restricted process could not read a file outside its rules.

    Raises SandboxError when it could, or when there is no Landlock.
    """
    with tempfile.TemporaryDirectory() as directory:
        for name in ("inside", "outside"):
            Path(directory, name).mkdir()
            Path(directory, name, "file").write_text("x")
        command = [sys.executable, "-m", "ostinato.sandbox.linux.landlock", directory]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise SandboxError(done.stderr.strip().rpartition("\n")[2] or "it restricts nothing")
    return int(done.stdout)


def _restricts(directory: Path) -> bool:
    """Return True when a file without a rule cannot be read, and one with a rule can."""
    syscalls.drop_capabilities()
    restrict([(os.open(directory / "inside", os.O_PATH), LOOK)], tcp=False)
    (directory / "inside/file").read_text()
    try:
        (directory / "outside/file").read_text()
    except PermissionError:
        return True
    return False


if __name__ == "__main__":
    if not _restricts(Path(sys.argv[1])):
        sys.exit("a file that no rule allows could be read")
    print(abi())  # noqa: T201

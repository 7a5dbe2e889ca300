"""The two files that a guest boots from, and the key under which they are cached.

initrd     cpio: busybox, the kernel's modules, a script that mounts the root and starts the guest
root.img   ext4, read-only: the guest's files (see `guest_files`), with the agent as the first process
"""

import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from ostinato.sandbox.backends.vm import guest_root
from ostinato.sandbox.backends.vm.qemu import guest_files
from ostinato.sandbox.backends.vm.qemu.kernel import Kernel
from ostinato.sandbox.base import SandboxError

PORT = "/dev/vport0p1"
_FORMAT = 1
_SPARE = 1.3
"""The size of the file system in sizes of its files: ext4 needs some room for itself."""
_SCRIPT = """#!/bin/busybox sh
b=/bin/busybox
for m in {modules}; do $b insmod /modules/$m; done
$b mount -t devtmpfs devtmpfs /dev
while [ ! -e /dev/vda ]; do $b usleep 1000; done
$b mount -t ext4 -o ro,noatime /dev/vda /root
$b mount --move /dev /root/dev
$b mount -t proc proc /root/proc
$b mount -t sysfs sysfs /root/sys
$b mount -t tmpfs -o size=4m tmpfs /root/tmp
$b ln -s /proc/self/fd /root/dev/fd
$b ln -s /proc/self/fd/0 /root/dev/stdin
$b ln -s /proc/self/fd/1 /root/dev/stdout
$b ln -s /proc/self/fd/2 /root/dev/stderr
while [ ! -e /root{port} ]; do $b usleep 1000; done
exec $b switch_root /root /usr/bin/env -i {environment} /usr/bin/python3 -I -c "{start}" port {port} warm
"""


def key(kernel: Kernel, machine: dict[str, object]) -> str:
    """Return a digest of all that an image, and the memory of a guest booted from it, depend on."""
    versions = sorted((each.name, each.version) for each in metadata.distributions())
    parts = [_FORMAT, platform.platform(), sys.version, str(kernel.image), kernel.image.stat().st_mtime_ns]
    state = hashlib.blake2b(json.dumps([*parts, versions, machine], default=str).encode(), digest_size=16)
    for file in sorted(guest_root.SANDBOX.rglob("*.py")):
        state.update(file.read_bytes())
    return state.hexdigest()


def build(directory: Path, kernel: Kernel, environment: dict[str, str]) -> None:
    """Write both files; raises SandboxError."""
    stage = directory / "stage"
    guest_files.write_guest_files(stage)
    _make_root(stage, directory / "root.img")
    shutil.rmtree(stage)
    _write_initrd(directory / "initrd", kernel, environment)


def _make_root(stage: Path, image: Path) -> None:
    program = shutil.which("mke2fs", path=f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin")
    if program is None:
        raise SandboxError("no mke2fs to make a guest's file system with: install e2fsprogs")
    count = sum(1 for _ in stage.rglob("*"))
    size = sum(path.lstat().st_size + 2048 for path in stage.rglob("*"))
    blocks = f"{int(size * _SPARE) >> 10}k"
    options = ["-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-N", str(count + 1000), "-b", "1024"]
    done = subprocess.run(
        [program, *options, "-E", "root_owner=0:0", "-d", str(stage), str(image), blocks],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SandboxError(f"mke2fs did not make the guest's file system: {done.stderr.strip()}")


def _write_initrd(path: Path, kernel: Kernel, environment: dict[str, str]) -> None:
    script = _SCRIPT.format(
        modules=" ".join(module.name for module in kernel.modules),
        environment=" ".join(f"{name}={value}" for name, value in environment.items()),
        port=PORT,
        start=guest_root.START,
    )
    files = [("bin/busybox", kernel.busybox.read_bytes()), ("init", script.encode())]
    files += [(f"modules/{module.name}", module.read_bytes()) for module in kernel.modules]
    with path.open("wb") as archive:
        for entry in _entries(files):
            archive.write(entry)


def _entries(files: list[tuple[str, bytes]]) -> Iterator[bytes]:
    """Yield a cpio archive in the "newc" format of the kernel's Documentation/driver-api/early-userspace."""
    for name in ("bin", "modules", "dev", "root"):
        yield _entry(name, stat.S_IFDIR | 0o755)
    yield _entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    for name, data in files:
        yield _entry(name, stat.S_IFREG | 0o755, data)
    yield _entry("TRAILER!!!", 0)


def _entry(name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    label = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(label), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + label
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)

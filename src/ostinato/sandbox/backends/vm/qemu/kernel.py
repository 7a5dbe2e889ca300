"""Finds a guest's kernel: Debian's cloud kernel, unpacked or installed, and a static busybox.

They are searched in the user's data directory, in /usr/local/lib/ostinato/vm and in the root of the machine,
with the packages' own paths (`dpkg-deb -x`): boot/vmlinuz-*-cloud-*, lib/modules/*, usr/bin/busybox.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from ostinato.sandbox.base import SandboxError

SHARED = Path("/usr/local/lib/ostinato/vm")
_MODULES = (
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    "overlay",
)
"""The modules in the order in which they depend on each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The files that a guest boots with."""

    image: Path
    modules: tuple[Path, ...]
    busybox: Path


def find() -> Kernel:
    """Return the newest kernel of the first place that has one; raises SandboxError when none has."""
    places = _places()
    image, modules = _newest(places)
    return Kernel(image=image, modules=modules, busybox=_busybox(places))


def _places() -> list[Path]:
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    return [home / "ostinato/vm", SHARED, Path("/")]


def _newest(places: list[Path]) -> tuple[Path, tuple[Path, ...]]:
    for place in places:
        for image in sorted(_readable(place / "boot", "vmlinuz-*-cloud-*"), key=_version, reverse=True):
            modules = place / "lib/modules" / image.name.removeprefix("vmlinuz-") / "kernel"
            files = {file.name.partition(".")[0]: file for file in modules.rglob("*.ko")}
            if all(name in files for name in _MODULES):
                return image, tuple(files[name] for name in _MODULES)
    raise SandboxError(f"there is no cloud kernel for a guest below {_listed(places)}")


def _version(image: Path) -> list[int]:
    return [int(part) for part in image.name.replace("-", ".").split(".") if part.isdigit()]


def _busybox(places: list[Path]) -> Path:
    for place in places:
        for path in (place / "usr/bin/busybox", place / "bin/busybox"):
            if path.is_file() and b"ld-linux" not in path.read_bytes()[:4096]:
                return path
    raise SandboxError(f"there is no static busybox for a guest below {_listed(places)}")


def _listed(places: list[Path]) -> str:
    return ", ".join(str(place) for place in places)


def _readable(directory: Path, pattern: str) -> list[Path]:
    if not os.access(directory, os.R_OK | os.X_OK):
        return []
    return [path for path in directory.glob(pattern) if os.access(path, os.R_OK)]

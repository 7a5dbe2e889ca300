"""The root of a sandbox that has an image: the image's files below, a layer in memory above.

    image, never written ─┐
    layer in the scratch ─┴─ overlay ─► the new root, with the repository, /proc, /dev, /tmp, … mounted in it

An image comes from strangers. So nothing in it is followed before its root is entered: a mount point is a
directory of its own, and a link in its place is replaced in the layer above.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from ostinato.sandbox.linux import syscalls

AGENT = "agent:x:1000:1000::/tmp:/bin/sh"
_PARTS = ("image", "image-lower", "image-upper", "image-work")


def assemble(image: str, scratch: str, shown: Iterable[str], workdir: str, options: str = "") -> str:
    """Return the path of the new root, below `scratch`, whose file system holds what is written.

    The mounts of this process at the paths `shown` are shown there too; the first of them is the repository,
    which is also at `workdir`. `options` are further options of the overlay.
    """
    root, lower, upper, work = (f"{scratch}/{name}" for name in _PARTS)
    for path in (root, lower, upper, work):
        os.mkdir(path, 0o755)  # noqa: PTH102
    syscalls.mount(image, lower, "none", syscalls.BIND)  # so that no path of the machine is in /proc/mounts
    layers = f"lowerdir={lower},upperdir={upper},workdir={work}{options}"
    syscalls.mount("overlay", root, "overlay", syscalls.NOSUID | syscalls.NODEV, layers)
    repo, *others = shown
    for path in (repo, *others):
        syscalls.mount(path, directory(root, path), "none", syscalls.BIND | syscalls.RECURSIVE)
    if workdir not in ("/", repo):
        syscalls.mount(repo, directory(root, workdir), "none", syscalls.BIND)
    return root


def directory(root: str, path: str) -> str:
    """Return the path below `root` of a real directory, made where it is missing or a link."""
    place = root
    for name in filter(None, path.split("/")):
        place = f"{place}/{name}"
        if not os.path.isdir(place) or os.path.islink(place):  # noqa: PTH112, PTH114
            if os.path.lexists(place):
                os.unlink(place)  # noqa: PTH108
            os.mkdir(place, 0o755)  # noqa: PTH102
    return place


def identify(trust: str, trusted: Iterable[str]) -> None:
    """Give the entered root a user for commands, a host file, and links to the certificates at `trust`."""
    for name, line in (("passwd", AGENT), ("group", "agent:x:1000:")):
        path = Path("/etc", name)
        lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
        if not any(each.split(":")[2:3] == ["1000"] for each in lines):
            _replace(path, "\n".join([*lines, line, ""]))
    _replace(Path("/etc/hosts"), f"127.0.0.1 localhost {os.uname().nodename}\n")
    _replace(Path("/etc/resolv.conf"), "nameserver 127.0.0.1\n")
    for place in trusted:
        directory("", str(Path("/etc", place).parent))
        Path("/etc", place).unlink(missing_ok=True)
        Path("/etc", place).symlink_to(trust)


def _replace(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(text)

"""The file system of a gVisor sandbox: a root of mount points, and the OCI configuration that fills them.

root (read-only)   links and empty directories; /etc: a few files; /.agent: the guest's own modules
binds              /usr and the Python in use, read-only; the repository at /.pristine; mounts
in memory          /dev, /run, /mnt; the guest mounts what commands write (see `sandbox.guest.vm_main`)
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ostinato.sandbox.backends.vm import guest_root
from ostinato.sandbox.base import Spec
from ostinato.sandbox.files import rootfs
from ostinato.sandbox.guest import vm_main

_CAPABILITIES = [
    f"CAP_{name}"
    for name in (
        *("SYS_ADMIN", "SYS_CHROOT", "SYS_TIME", "SYS_RESOURCE"),
        *("SETUID", "SETGID", "SETPCAP", "CHOWN", "FOWNER"),
    )
]


def write_root(root: Path) -> None:
    """Write the directory that every sandbox of a backend has as its root."""
    guest_root.make_mount_points(root)
    for path in rootfs.shown():
        _place(root, Path(path))
    rootfs.write_identity(root / "etc")
    guest_root.copy_modules(root / guest_root.AGENT[1:])


def _place(root: Path, path: Path) -> None:
    target = root / str(path)[1:]
    target.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        target.symlink_to(path.readlink())
    elif path.is_dir() and path.parts[1] == "etc":
        shutil.copytree(path, target, symlinks=True)
    elif path.is_dir():
        target.mkdir(exist_ok=True)
    elif path.exists():
        shutil.copyfile(path, target)


def write_bundle(
    directory: Path, root: Path, spec: Spec, python: str, environment: Mapping[str, str]
) -> None:
    """Write the `config.json` of one machine with `spec`'s repository and mounts."""
    directory.joinpath("config.json").write_text(json.dumps(_config(root, spec, python, environment)))


def _config(root: Path, spec: Spec, python: str, environment: Mapping[str, str]) -> dict[str, Any]:
    kinds = ("bounding", "effective", "permitted")
    return {
        "ociVersion": "1.0.0",
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": [python, "-I", "-S", "-c", guest_root.START, "stdio"],
            "env": [f"{name}={value}" for name, value in environment.items()],
            "cwd": "/",
            "capabilities": dict.fromkeys(kinds, _CAPABILITIES),
            "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "hostname": "sandbox",
        "mounts": _mounts(spec),
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "network", "ipc", "uts")]},
    }


def _mounts(spec: Spec) -> list[dict[str, object]]:
    shown = _bound()
    memory: list[str] = ["/dev", *sorted({f"/{mount.target.split('/')[1]}" for mount in spec.mounts})]
    return [
        _mount("/proc", "proc"),
        *(_mount(path, "tmpfs") for path in memory),
        *(_bind(Path(path), path) for path in shown),
        _bind(spec.repo.absolute(), vm_main.PRISTINE),
        *([_bind(spec.image.root.absolute(), vm_main.IMAGE)] if spec.image is not None else []),
        *(_bind(mount.source.absolute(), mount.target) for mount in spec.mounts),
    ]


def _bound() -> list[str]:
    """Return the directories of the machine to bind, none within another, since each costs a connection."""
    directories = [path for path in rootfs.shown() if Path(path).is_dir() and not Path(path).is_symlink()]
    outer = [path for path in directories if not path.startswith("/etc/")]
    return [path for path in outer if not any(path.startswith(f"{other}/") for other in outer)]


def _mount(target: str, kind: str) -> dict[str, object]:
    return {"destination": target, "type": kind, "source": kind}


def _bind(source: Path, target: str) -> dict[str, object]:
    return {"destination": target, "type": "bind", "source": str(source), "options": ["rbind", "ro"]}

"""The parts of a guest's root file system that all engines share: mount points and the guest's modules."""

import shutil
from pathlib import Path

from ostinato.sandbox.files import rootfs
from ostinato.sandbox.guest import vm_main

AGENT = "/.agent"
"""The directory of the guest's own modules, in the guest."""
START = f"import sys; sys.path[:0] = ['{AGENT}']; from ostinato.sandbox.guest.vm_main import main; main()"
"""The Python code that starts the guest's first process."""
SANDBOX = Path(vm_main.__file__).parents[1]
"""The folder of the package `ostinato.sandbox`."""


def make_mount_points(root: Path) -> None:
    """Make the directories on which the guest, its kernel or its engine mounts something."""
    ours = (rootfs.REPO, rootfs.SCRATCH, rootfs.TMP, *rootfs.MOUNTABLE, vm_main.PRISTINE, vm_main.IMAGE)
    for path in (*ours, "/proc", "/dev", "/etc", str(Path(rootfs.TRUST).parent)):
        (root / path[1:]).mkdir(parents=True)


def copy_modules(target: Path) -> None:
    """Copy the modules that a guest runs, in packages that import nothing."""
    for module in guest_modules():
        copy = target / "ostinato" / "sandbox" / module.relative_to(SANDBOX)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(module, copy)
    for package in (target / "ostinato").rglob("*"):
        if package.is_dir():
            (package / "__init__.py").touch()
    (target / "ostinato" / "__init__.py").touch()


def guest_modules() -> list[Path]:
    """Return the modules that a guest can import: `base`, and the folders below the backends."""
    folders = ("protocol", "linux", "files", "exam/judged", "exam/guarded/inside", "guest")
    inside = [path for folder in folders for path in sorted((SANDBOX / folder).glob("*.py"))]
    return [
        SANDBOX / "base.py",
        *(path for path in inside if path.name != "__init__.py"),
    ]

"""The root file system of a container: mount points, the machine's programs, and the agent's own modules."""

import shutil
import sys
from pathlib import Path

from ostinato.sandbox.files import rootfs
from ostinato.sandbox.guest import container_main

AGENT = "/.agent"
"""The directory of the agent's modules, in the container."""
START = (
    f"import sys; sys.path[:0] = ['{AGENT}']; from ostinato.sandbox.guest.container_main import main; main()"
)
"""The Python code that starts the agent."""
SANDBOX = Path(container_main.__file__).parents[1]
"""The folder of the package `ostinato.sandbox`."""
_HOST = "/.python"
"""The place of the machine's Python in an image of others."""
_FOLDERS = ("protocol", "linux", "files", "exam/judged", "exam/guarded/inside", "guest")


def copy_modules(target: Path) -> None:
    """Copy the modules that an agent can import, in packages that import nothing."""
    inside = [path for folder in _FOLDERS for path in sorted((SANDBOX / folder).glob("*.py"))]
    for module in (SANDBOX / "base.py", *(path for path in inside if path.name != "__init__.py")):
        copy = target / "ostinato" / "sandbox" / module.relative_to(SANDBOX)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(module, copy)
    for package in (target / "ostinato", *(target / "ostinato").rglob("*")):
        if package.is_dir():
            (package / "__init__.py").touch()


def write_root(root: Path) -> None:
    """Write a root with nothing but mount points, the links of the machine's own root, and a small /etc."""
    points = (rootfs.REPO, rootfs.TMP, *rootfs.MOUNTABLE, AGENT, "/proc", "/dev")
    for point in (*points, "/etc"):
        (root / point[1:]).mkdir(parents=True)
    for path in map(Path, rootfs.shown()):
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
    rootfs.write_identity(root / "etc")


def machine_binds() -> list[tuple[Path, str]]:
    """Return the machine's directories of programs and the places where a container sees them."""
    shown = [path for path in rootfs.shown() if Path(path).is_dir() and not Path(path).is_symlink()]
    outer = [path for path in shown if not path.startswith("/etc/")]
    return [(Path(path), path) for path in outer if not any(path.startswith(f"{other}/") for other in outer)]


def image_binds() -> list[tuple[Path, str]]:
    """Return the directories of the machine's Python, and their places in an image that may have none."""
    library = Path(sys.base_prefix, "lib", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    folders = {Path(sys.executable).resolve().parent, library, *(path.parent for path in _libraries())}
    return [(path, f"{_HOST}{path}") for path in sorted(folders)]


def python_in_image() -> list[str]:
    """Return the machine's Python as a command that needs no loader and no library of the image."""
    libraries = _libraries()
    loader = next((path for path in libraries if path.name.startswith("ld-")), None)
    python = f"{_HOST}{Path(sys.executable).resolve()}"
    if loader is None:
        return [python]
    paths = ":".join(sorted({f"{_HOST}{path.parent}" for path in libraries}))
    return [f"{_HOST}{loader}", "--argv0", python, "--library-path", paths, python]


def _libraries() -> list[Path]:
    """Return the shared libraries of this process, the loader among them, without extension modules."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    found = {Path(line.split(maxsplit=5)[5]) for line in lines if line.count("/") and ".so" in line}
    kept = {
        path.resolve()
        for path in found
        if path.is_file() and not {"lib-dynload", "site-packages"} & {*path.parts}
    }
    return sorted(kept)

"""The files of a guest: the machine's own programs and Python, with all libraries they are linked to.

These are used instead of busybox or a distribution's image so that commands behave as they do outside. Of
Python's packages it has pytest, its requirements, and pip if it is installed; others come by `Spec.mounts` or
by egress.
"""

import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from ostinato.sandbox.backends.vm import guest_root
from ostinato.sandbox.files import rootfs

_PROGRAMS = """
[ awk basename bash bunzip2 bzip2 cat chmod chown cmp comm cp curl cut date dd df diff dirname du egrep
env expand expr false fgrep file find fold free getopt git grep groups gunzip gzip head hostname id
join kill less ln locale ls make md5sum mkdir mkfifo mktemp more mount mv nice nl nohup nproc od
paste patch perl pgrep pkill printf ps pwd readlink realpath rm rmdir sed seq setsid sh sha1sum
sha256sum sleep sort split stat stty sync tac tail tar tee test timeout touch tr true tsort tty
uname uniq unlink unshare unxz wc which whoami xargs xz yes
"""
_PYTEST = "#!/usr/bin/python3\nimport sys\nfrom pytest import console_main\nsys.exit(console_main())\n"
_LEFT_OUT = {"test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data"}
_NAME = re.compile(r"[\w.-]+")
_PACKAGES = {"site-packages", "dist-packages"}


def write_guest_files(root: Path) -> None:
    """Write all files of a guest but its kernel."""
    guest_root.make_mount_points(root)
    (root / "sys").mkdir()
    _link_merged(root)
    rootfs.write_identity(root / "etc")
    linked = [*_programs(root), *_git_transports(root), *_python(root)]
    for library in _libraries(linked):
        _copy(root, library)
    guest_root.copy_modules(root / guest_root.AGENT[1:])


def _link_merged(root: Path) -> None:
    """Make links of /bin and its like, where they are links on this machine."""
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        place = Path("/", name)
        if place.is_symlink():
            (root / name).symlink_to(place.readlink())
            (root / place.readlink()).mkdir(parents=True, exist_ok=True)


def _programs(root: Path) -> Iterator[str]:
    for name in _PROGRAMS.split():
        path = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        if path is not None:
            _copy(root, path)
            yield os.path.realpath(path)


def _git_transports(root: Path) -> Iterator[str]:
    """Copy the programs that git runs for HTTP, and yield their paths; they are in a directory of git's."""
    if shutil.which("git") is None:
        return
    done = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True)
    for name in ("git-remote-http", "git-remote-https"):
        path = os.path.join(done.stdout.strip(), name)  # noqa: PTH118
        if os.path.exists(path):  # noqa: PTH110
            _copy(root, path)
            yield os.path.realpath(path)


def _copy(root: Path, path: str) -> None:
    """Copy a file to the same path, together with the link through which it was found."""
    real = os.path.realpath(path)
    target = _within(root, real)
    if not target.exists():
        shutil.copy(real, target)
    link = _within(root, path)
    if link != target and not link.is_symlink():
        link.symlink_to(real)


def _within(root: Path, path: str) -> Path:
    directory, name = os.path.split(path)
    target = Path(str(root) + os.path.realpath(directory))
    target.mkdir(parents=True, exist_ok=True)
    return target / name


def _python(root: Path) -> Iterator[str]:
    """Copy interpreter, standard library, pytest and pip; yield all files that are linked to libraries."""
    executable = os.path.realpath(sys.executable)
    _copy(root, executable)
    yield executable
    for name in ("python", "python3"):
        link = root / "usr/bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(executable)
    (root / "usr/bin/pytest").write_text(_PYTEST)
    (root / "usr/bin/pytest").chmod(0o755)
    library = sysconfig.get_path("stdlib")
    yield from _tree(root, Path(library), Path(library))
    place, seen = _base_site(), set[str]()
    for source, name in (*_packages("pytest", seen), *_packages("pip", seen)):
        yield from _tree(root, source, place / name)


def _base_site() -> Path:
    """Return the directory where the interpreter finds packages outside of a virtual environment."""
    code = "import site; print(site.getsitepackages()[0])"
    done = subprocess.run(
        [os.path.realpath(sys.executable), "-I", "-c", code], capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip() or site.getsitepackages()[0])


def _packages(name: str, seen: set[str]) -> Iterator[tuple[Path, str]]:
    """Yield the top-level packages and modules of a distribution and of all its requirements here."""
    if name in seen:
        return
    seen.add(name)
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return  # required on other platforms only
    tops = {file.parts[0] for file in distribution.files or () if not file.parts[0].startswith("..")}
    for top in sorted(tops):
        yield Path(str(distribution.locate_file(top))), top
    for requirement in distribution.requires or ():
        if "extra ==" not in requirement:
            yield from _packages(_NAME.match(requirement)[0], seen)  # type: ignore[index] # always begins with one


def _tree(root: Path, source: Path, place: Path) -> Iterator[str]:
    """Copy a directory without files that no program needs; yield its shared objects."""
    if source.is_file():
        _within(root, str(place)).write_bytes(source.read_bytes())
        return
    for directory, names, files in os.walk(source):
        names[:] = [
            name for name in names if name not in _LEFT_OUT | _PACKAGES and not name.startswith("config-")
        ]
        for name in files:
            if name.endswith((".a", ".exe")) or ".opt-" in name:
                continue
            file = Path(directory, name)
            shutil.copy2(file, _within(root, str(place / file.relative_to(source))))
            if name.endswith(".so"):
                yield str(file)


def _libraries(files: Iterable[str]) -> list[str]:
    """Return all libraries that the files are linked to, as the machine's own loader finds them."""
    done = subprocess.run(["ldd", *files], capture_output=True, text=True, check=False)
    words = {word for line in done.stdout.splitlines() for word in line.split() if not word.endswith(":")}
    return sorted(word for word in words if word.startswith("/") and Path(word).exists())

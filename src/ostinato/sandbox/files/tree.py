"""A directory as data: paths that cannot leave it, its files, its digest. Shared by every backend.

`.git` is never part of a tree: it is the record of the files, not one of them.
"""

import errno
import hashlib
import io
import os
import posixpath
import shutil
import stat
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from ostinato.sandbox.base import (
    MAX_FILE_BYTES,
    ChangesError,
    EndedWithinError,
    SandboxError,
    SandboxPathError,
)
from ostinato.sandbox.protocol.entries import EmptyDirectory, Executable, Symlink
from ostinato.sandbox.protocol.frames import MAX_FILES

GIT = ".git"
_GIT_NAMES = {GIT, "git~1"}
"""What a disk that ignores case, or keeps short names, takes for `.git`."""
_REMOVE_TRIES, _REMOVE_PAUSE_S = 250, 0.02
_EXECUTABLE = 0o755
_SHUT = (errno.EACCES, errno.ENAMETOOLONG)


def open_up(root: str) -> None:
    """Let the owner list, change and enter a directory again.

    Raises EndedWithinError when something else was put in its place, or nothing.
    """
    try:
        mode = os.lstat(root).st_mode
    except FileNotFoundError:
        mode = 0
    if not stat.S_ISDIR(mode):
        raise EndedWithinError(f"a command took away {root}")
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(root, stat.S_IMODE(mode) | stat.S_IRWXU)  # noqa: PTH101


def is_git(name: str) -> bool:
    """Whether some disk would find `.git` by this name: in capitals, with a dot or a hidden letter in it.

    >>> is_git(".GIT"), is_git(".git "), is_git(".gitignore")
    (True, True, False)
    """
    if len(name) < len(GIT):
        return False
    shown = "".join(char for char in name if unicodedata.category(char) != "Cf")
    return shown.partition(":")[0].rstrip(" .").casefold() in _GIT_NAMES


def spelled(real: str) -> str:
    """A real path with each name as its directory has it, where the disk ignores case or form of letters."""
    parts, at = real.split("/")[1:], "/"
    for number, name in enumerate(parts):
        below = os.path.join(at, name)  # noqa: PTH118
        try:
            status = os.lstat(below)
            listed = os.listdir(at)  # noqa: PTH208
        except OSError:  # it is not there yet, or shut
            return os.path.join(at, *parts[number:])  # noqa: PTH118
        if name not in listed:
            name = next((each for each in listed if _is(os.path.join(at, each), status)), name)  # noqa: PLW2901, PTH118
        at = os.path.join(at, name)  # noqa: PTH118
    return at


def _is(path: str, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.lstat(path), status)
    except OSError:
        return False


def resolve(root: str, path: str) -> str:
    """The real path of `path` under `root` (itself a real path); raises SandboxPathError when outside.

    Nothing runs in a sandbox while its files are read or written, so the answer stays true until it is used.
    """
    if "\0" in path:
        raise SandboxPathError(f"{path!r} is not a path: remove the NUL character")
    real = os.path.realpath(os.path.join(root, path))  # noqa: PTH118
    if real != root and not real.startswith(root + os.sep):
        raise SandboxPathError(f"{path!r} leads out of the repository: give a path inside it")
    return real


def read(root: str, path: str) -> bytes:
    """The bytes of a regular file; raises FileNotFoundError, IsADirectoryError, SandboxError."""
    with _parent(root, resolve(root, path), make=False) as (folder, name):
        return _read(name, path, folder)


def _read(name: str, path: str, folder: int | None = None) -> bytes:
    # O_NONBLOCK: a FIFO that a command left here must not stop us
    fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    with open(fd, "rb", buffering=0) as file:  # noqa: PTH123
        _check_regular(path, os.fstat(fd))
        return file.read()


def _check_regular(path: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(21, "is a directory", path)
    if not stat.S_ISREG(status.st_mode):
        raise SandboxError(f"{path!r} is not a regular file: remove it first")
    if status.st_size > MAX_FILE_BYTES:
        raise SandboxError(
            f"{path!r} has {status.st_size} bytes, the limit is {MAX_FILE_BYTES}: read a part of it"
        )


def write(root: str, path: str, data: bytes) -> None:
    """Write a whole file and its parent directories, never within `.git`, which records them.

    A directory on the way that becomes a link meanwhile is not followed. Raises IsADirectoryError,
    SandboxPathError, OSError.
    """
    real = resolve(root, path)
    _check_no_git(root, real, path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with _parent(root, real, make=True) as (folder, name):
        fd = os.open(name, flags, 0o644, dir_fd=folder)
    with open(fd, "wb", buffering=0) as file:  # noqa: PTH123
        _check_regular(path, os.fstat(fd))
        file.truncate()
        _write_all(fd, data)


def _check_no_git(root: str, real: str, path: str) -> None:
    if any(map(is_git, real[len(root) :].split("/"))):
        raise SandboxPathError(f"{path!r} leads into .git: only git writes there")


@contextmanager
def _parent(root: str, real: str, *, make: bool) -> Iterator[tuple[int, str]]:
    """The open directory of a real path, reached from `root` through directories alone, and its name."""
    flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
    *folders, name = real[len(root) :].strip("/").split("/")
    folder = os.open(root, flags)
    try:
        for each in folders:
            try:
                below = os.open(each, flags | os.O_NOFOLLOW, dir_fd=folder)
            except FileNotFoundError:
                if not make:
                    raise
                os.mkdir(each, dir_fd=folder)
                below = os.open(each, flags | os.O_NOFOLLOW, dir_fd=folder)
            folder, above = below, folder
            os.close(above)
        yield folder, name or "."
    finally:
        os.close(folder)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def delete(root: str, path: str) -> None:
    """Remove a file; nothing to do when it is not there. As with `write`, nothing of `.git`."""
    real = os.path.join(resolve(root, os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120
    _check_no_git(root, real, path)
    try:
        with _parent(root, real, make=False) as (folder, name):
            os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return


def apply(root: str, changes: Mapping[str, bytes | None]) -> None:
    """Put what `changes` has at each path; for None, delete it. Raises SandboxPathError, ChangesError.

    What is gone goes first and links come last: no change is written through another one.
    """
    order = (type(None), bytes, Executable, EmptyDirectory, Symlink)
    for path, data in sorted(changes.items(), key=lambda change: order.index(type(change[1]))):
        try:
            _put(root, path, data)
        except OSError as error:
            raise ChangesError(f"{path[:200]!r} cannot be written: {error.strerror}") from error


def _put(root: str, path: str, data: bytes | None) -> None:
    if data is None:
        delete(root, path)
        return
    above, name = os.path.split(posixpath.normpath(path))
    if above.startswith(".."):
        raise SandboxPathError(f"{path!r} leads out of the repository: give a path inside it")
    real = os.path.join(resolve(root, above), name)  # noqa: PTH118
    if os.path.islink(real):  # noqa: PTH114
        delete(root, path)
    if not isinstance(data, Symlink | EmptyDirectory):
        write(root, path, data)
        if isinstance(data, Executable):
            os.chmod(real, _EXECUTABLE)  # noqa: PTH101
        return
    _check_no_git(root, real, path)
    if isinstance(data, Symlink):
        _clear(real)
    with _parent(root, real, make=True) as (folder, last):
        if isinstance(data, Symlink):
            os.symlink(data, last, dir_fd=folder)
        else:
            os.mkdir(last, dir_fd=folder)


def _clear(real: str) -> None:
    """Make room for a link: only what has no file in it is in its way no more."""
    if os.path.isdir(real) and not os.path.islink(real) and not files(real):  # noqa: PTH112, PTH114
        shutil.rmtree(real)
    elif os.path.lexists(real):
        os.unlink(real)  # noqa: PTH108


def names(root: str, path: str) -> list[str]:
    """Sorted names in a directory, directories with a trailing slash."""
    with os.scandir(resolve(root, path)) as entries:
        return sorted(entry.name + "/" * entry.is_dir() for entry in entries)


def walk(root: str, *, git: bool = False) -> Iterator[os.DirEntry[str]]:
    """Every entry below `root` that is not a directory, in no order; symbolic links are not followed.

    A directory that cannot be entered (shut, or its path too long) counts as an entry, a shut root as empty.
    `git`: what is in `.git` as well.
    """
    waiting = [entry for entry in inside(root) or () if git or entry.name != GIT]
    while waiting:
        entry = waiting.pop()
        below = inside(entry.path) if entry.is_dir(follow_symlinks=False) else None
        if below is None:
            yield entry
        else:
            waiting += below


def inside(directory: str) -> list[os.DirEntry[str]] | None:
    """What lies in a directory; None when it cannot be entered."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError as error:
        if error.errno not in _SHUT:
            raise
        return None


def files(root: str) -> list[str]:
    """Sorted relative paths of all files and links."""
    start = len(root) + 1
    return sorted(entry.path[start:] for entry in walk(root))


def digest(root: str) -> str:
    """32 hexadecimal digits of every path, kind and content."""
    state = hashlib.blake2b(digest_size=16)
    for path in files(root):
        content = _entry(os.path.join(root, path))  # noqa: PTH118
        state.update(b"%d %d " % (len(path), len(content)) + os.fsencode(path) + content)
    return state.hexdigest()


def _entry(path: str) -> bytes:
    """Kind, executable bit and content of one entry; neither file nor link counts by its kind alone."""
    try:
        status = os.lstat(path)
    except OSError as error:
        return b"out of reach %d" % (error.errno or 0)
    kind = b"%o %d " % (stat.S_IFMT(status.st_mode), bool(status.st_mode & 0o100))
    if stat.S_ISLNK(status.st_mode):
        return kind + os.fsencode(os.readlink(path))  # noqa: PTH115
    if not stat.S_ISREG(status.st_mode):
        return kind
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return kind + _content_digest(file, status.st_size)
    except OSError as error:
        return kind + b"unreadable %d" % (error.errno or 0)


def _content_digest(file: io.FileIO, size: int) -> bytes:
    """Of the data; of a file with holes, which take no room and no time, the data and where it lies."""
    number, state = file.fileno(), hashlib.blake2b(digest_size=16)
    try:
        hole = os.lseek(number, 0, os.SEEK_HOLE) if size else 0
    except OSError:  # a kernel or disk that knows of no holes, as gVisor's
        hole = size
    if hole == size:
        file.seek(0)
        return hashlib.blake2b(file.read(), digest_size=16).digest()
    end = 0
    with suppress(OSError):  # ENXIO: nothing but a hole is left
        while end < size:
            start = os.lseek(number, end, os.SEEK_DATA)
            end = os.lseek(number, start, os.SEEK_HOLE)
            state.update(b"%d %d " % (start, end) + os.pread(number, end - start, start))
    return b"%d " % size + state.digest()


def content(root: str, path: str) -> bytes | None:
    """What `changes` shows of a path: None when nothing that can be carried lies there."""
    return grab(os.path.join(root, path))  # noqa: PTH118


def bounded(found: Iterable[tuple[str, bytes | None]], most: int) -> dict[str, bytes | None]:
    """Paths and contents, of which a later one replaces an earlier one.

    Raises ChangesError when they are more than `most` bytes or `MAX_FILES`: a file with holes takes little of
    a disk, and all of its size in memory.
    """
    files, size = dict[str, bytes | None](), 0
    for path, data in found:
        size += len(data or b"")
        files[path] = data
        if size > most or len(files) > MAX_FILES:
            raise ChangesError(f"the changes have more than {most} bytes or {MAX_FILES} files: remove some")
    return files


def grab(real: str) -> bytes | None:
    """A file or link by its own name, as `apply` takes it; None for all that is nothing to carry.

    Nothing that a command can leave behind makes this fail: a pipe, a socket, a file that is shut or too
    large are all no file, so that whoever left them is judged by the rest.
    """
    try:
        status = os.lstat(real)
        if stat.S_ISLNK(status.st_mode):
            return Symlink(os.fsencode(os.readlink(real)))  # noqa: PTH115
        data = _read(real, real)
        return Executable(data) if status.st_mode & stat.S_IXUSR else data
    except (OSError, SandboxError):
        return None


def remove(directory: str) -> None:
    """A directory with all below, whatever its owner forbade itself, and while the last process in it ends.

    Raises OSError when that does not happen within seconds.
    """
    for _ in range(_REMOVE_TRIES):
        _open_up(directory)
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.lexists(directory):
            return
        time.sleep(_REMOVE_PAUSE_S)
    raise OSError(f"{directory} cannot be removed: something still writes there")


def _open_up(directory: str) -> None:
    for folder, folders, _ in os.walk(directory):
        for name in folders:
            path = f"{folder}/{name}"
            if not os.path.islink(path):  # noqa: PTH114
                with suppress(OSError):  # gone, or a name too long; who removes it says what is left
                    os.chmod(path, 0o700)  # noqa: PTH101

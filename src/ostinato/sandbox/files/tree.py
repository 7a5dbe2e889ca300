"""A directory as data: paths that cannot leave it, its files, its digest.

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
from ostinato.sandbox.protocol.frames import MAX_FILES, write_all

GIT = ".git"
_GIT_NAMES = {GIT, "git~1"}
"""The names that a disk which ignores case, or keeps short names, takes for `.git`."""
_REMOVE_TRIES, _REMOVE_PAUSE_S = 250, 0.02
_EXECUTABLE = 0o755
_SHUT = (errno.EACCES, errno.ENAMETOOLONG)


def open_up(root: str) -> None:
    """Give the owner the rights again to list, change and enter a directory.

    Raises EndedWithinError when it has been removed or replaced.
    """
    try:
        mode = os.lstat(root).st_mode
    except FileNotFoundError:
        mode = 0
    if not stat.S_ISDIR(mode):
        raise EndedWithinError(f"a command removed {root}")
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(root, stat.S_IMODE(mode) | stat.S_IRWXU)  # noqa: PTH101


def is_git(name: str) -> bool:
    """Return True when some disk takes this name for `.git`: in capitals, with a dot, or a hidden letter.

    >>> is_git(".GIT"), is_git(".git "), is_git(".gitignore")
    (True, True, False)
    """
    if len(name) < len(GIT):
        return False
    shown = "".join(char for char in name if unicodedata.category(char) != "Cf")
    return shown.partition(":")[0].rstrip(" .").casefold() in _GIT_NAMES


def spelled(real: str) -> str:
    """Return a real path with each name spelled as in its directory.

    The two differ where the disk ignores the case or the Unicode form of letters.
    """
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
    """Return the real path of `path` under `root` (itself a real path); raises SandboxPathError when outside.

    A command may change the path meanwhile, so `read` and `write` then follow no links (see `_parent`).
    """
    if "\0" in path:
        raise SandboxPathError(f"{path!r} is not a path: remove the NUL character")
    real = os.path.realpath(os.path.join(root, path))  # noqa: PTH118
    if real != root and not real.startswith(root + os.sep):
        raise SandboxPathError(f"{path!r} leads out of the repository: give a path inside it")
    return real


def read(root: str, path: str) -> bytes:
    """Return the bytes of a regular file; raises FileNotFoundError, IsADirectoryError, SandboxError."""
    with _parent(root, _resolve_file(root, path), make=False) as (folder, name):
        return _read(name, path, folder)


def _resolve_file(root: str, path: str) -> str:
    """Return the real path of what is to be a file: a slash at the end names a folder, as for the kernel."""
    real = resolve(root, path)
    if path.endswith("/") and not os.path.isdir(real):  # noqa: PTH112
        raise NotADirectoryError(20, "is not a directory", path)
    return real


def _read(name: str, path: str, folder: int | None = None) -> bytes:
    # O_NONBLOCK: opening a FIFO that a command left here must not block
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
    """Write a whole file and its parent directories, but nothing within `.git`.

    A directory on the way that becomes a link meanwhile is not followed. Raises IsADirectoryError,
    SandboxPathError, OSError.
    """
    real = _resolve_file(root, path)
    _check_no_git(root, real, path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with _parent(root, real, make=True) as (folder, name):
        fd = os.open(name, flags, 0o644, dir_fd=folder)
    with open(fd, "wb", buffering=0) as file:  # noqa: PTH123
        _check_regular(path, os.fstat(fd))
        file.truncate()
        write_all(fd, data)


def _check_no_git(root: str, real: str, path: str) -> None:
    if any(map(is_git, real[len(root) :].split("/"))):
        raise SandboxPathError(f"{path!r} leads into .git: only git writes there")


@contextmanager
def _parent(root: str, real: str, *, make: bool) -> Iterator[tuple[int, str]]:
    """Yield the open directory of a real path and the name in it, reached through directories alone."""
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


def delete(root: str, path: str) -> None:
    """Remove a file, if it is there; as with `write`, nothing within `.git`."""
    real = os.path.join(resolve(root, os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120
    _check_no_git(root, real, path)
    try:
        with _parent(root, real, make=False) as (folder, name):
            os.unlink(name, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return


def apply(root: str, changes: Mapping[str, bytes | None]) -> None:
    """Write the content that `changes` has for each path; for None, delete it.

    Deletions come first and links last, so that no change is written through another. Raises
    SandboxPathError, ChangesError.
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
    """Remove what is in the way of a link; a directory with files in it stays, and the link fails."""
    if os.path.isdir(real) and not os.path.islink(real) and not files(real):  # noqa: PTH112, PTH114
        shutil.rmtree(real)
    elif os.path.lexists(real):
        os.unlink(real)  # noqa: PTH108


def names(root: str, path: str) -> list[str]:
    """Return the sorted names in a directory, directories with a trailing slash."""
    with os.scandir(resolve(root, path)) as entries:
        return sorted(entry.name + "/" * _leads_to_folder(entry) for entry in entries)


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a directory or a link to one; a link that leads round in a circle is not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def walk(root: str, *, git: bool = False) -> Iterator[os.DirEntry[str]]:
    """Yield every entry below `root` that is not a directory, in no order, following no symbolic links.

    A directory that cannot be entered (no right, or its path is too long) counts as an entry; such a root
    counts as empty. With `git`, entries in `.git` are included.
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
    """Return the entries of a directory, None when it cannot be entered."""
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError as error:
        if error.errno not in _SHUT:
            raise
        return None


def files(root: str) -> list[str]:
    """Return the sorted relative paths of all files and links."""
    start = len(root) + 1
    return sorted(entry.path[start:] for entry in walk(root))


def digest(root: str) -> str:
    """Return 32 hexadecimal digits that depend on every path, kind and content."""
    state = hashlib.blake2b(digest_size=16)
    for path in files(root):
        content = _entry(os.path.join(root, path))  # noqa: PTH118
        state.update(b"%d %d " % (len(path), len(content)) + os.fsencode(path) + content)
    return state.hexdigest()


def _entry(path: str) -> bytes:
    """Return kind, executable bit and content of one entry; what is neither file nor link has no content."""
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
    """Return the digest of a file's data; for a file with holes, of the data and its positions.

    Holes take no room and, this way, no time.
    """
    number, state = file.fileno(), hashlib.blake2b(digest_size=16)
    try:
        hole = os.lseek(number, 0, os.SEEK_HOLE) if size else 0
    except OSError:  # a kernel or disk that does not know holes, as gVisor's
        hole = size
    if hole == size:
        file.seek(0)
        return hashlib.blake2b(file.read(), digest_size=16).digest()
    end = 0
    with suppress(OSError):  # ENXIO: the rest is one hole
        while end < size:
            start = os.lseek(number, end, os.SEEK_DATA)
            end = os.lseek(number, start, os.SEEK_HOLE)
            state.update(b"%d %d " % (start, end) + os.pread(number, end - start, start))
    return b"%d " % size + state.digest()


def content(root: str, path: str) -> bytes | None:
    """Return the content of a path as `changes` has it; see `read_for_changes`."""
    return read_for_changes(os.path.join(root, path))  # noqa: PTH118


def bounded(changes: Iterable[tuple[str, bytes | None]], most: int) -> dict[str, bytes | None]:
    """Return paths with contents, of which a later item replaces an earlier one.

    Raises ChangesError for more than `most` bytes or `MAX_FILES` files: a file with holes takes little of a
    disk, but all of its size in memory.
    """
    files, size = dict[str, bytes | None](), 0
    for path, data in changes:
        size += len(data or b"")
        files[path] = data
        if size > most or len(files) > MAX_FILES:
            raise ChangesError(f"the changes have more than {most} bytes or {MAX_FILES} files: remove some")
    return files


def read_for_changes(real: str) -> bytes | None:
    """Return the content of a file or link, as `apply` takes it; None when changes cannot contain it.

    Nothing that a command can leave behind makes this fail. A pipe, a socket, and a file that is unreadable
    or too large all count as no file, so that a candidate is judged by the rest.
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
    """Remove a directory with all below, also where its modes forbid that.

    It is tried for some seconds, while the last process in it may still be writing; then raises OSError.
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
                with suppress(OSError):  # removed meanwhile, or the path is too long: `remove` notices
                    os.chmod(path, 0o700)  # noqa: PTH101

"""Unpacks a layer (see `ostinato.sandbox.files.layer`), safely even when an attacker wrote it."""

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Self

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.files import layer
from ostinato.sandbox.files.layer import HARD, OPAQUE, OVERLAY_PREFIXES, Entry

_CAPABILITIES = "security.capability"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_PATH = 4096
"""The longest path that Linux accepts, and so the longest that can have been packed."""


def unpack(file: int, areas: Mapping[str, str], *, overlay: bool) -> None:
    """Unpack the layer in an open file; raises SandboxError when it is damaged or forged.

    With `overlay` the directories are the upper layers of overlays, without they are the merged trees.
    Code in the sandbox wrote its files, so every directory is opened from its parent and no link is followed:
    nothing outside the areas is read, written or changed.
    """
    layer.check(file)
    try:
        with _Areas(areas) as opened:
            _unpack(file, opened, _EntryWriter(opened, overlay))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise SandboxError(f"the layer has an invalid entry ({error!r}): it is forged") from error
    except OSError as error:
        raise SandboxError(f"the layer could not be unpacked: {error}") from error


def _unpack(file: int, areas: "_Areas", writer: "_EntryWriter") -> None:
    offset, directories = 0, list[Entry]()
    while True:
        record, offset = layer.read_record(file, offset)
        if "end" in record:
            break
        writer.actions[record["kind"]](record, areas.locate(record), partial(layer.pieces, file, offset))
        offset += record.get("size", 0)
        if record["kind"] == "directory":
            directories.append(record)
    for record in reversed(directories):  # the mode of a directory may forbid changes below it
        areas.finish(record)


Location = tuple[int, str]
"""An open directory, and the name of an entry in it."""


class _Areas:
    """Finds the paths of a layer as open directories and names, none of which leads out of its area.

    Only the parent of the last entry is kept open. An entry that replaces a directory has another parent, so
    the directory that is kept open is never one that has been replaced.
    """

    def __init__(self, areas: Mapping[str, str]) -> None:
        self._tops = {area: os.open(top, _DIRECTORY) for area, top in areas.items()}
        self._parent_path: tuple[str, tuple[str, ...]] | None = None
        self._parent = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close_parent()
        for top in self._tops.values():
            os.close(top)

    def _close_parent(self) -> None:
        if self._parent_path is not None:
            os.close(self._parent)
            self._parent_path = None

    def locate(self, record: Entry) -> Location:
        """Return the location of an entry, valid until the next call.

        Raises SandboxError for a path that leads out of its area.
        """
        area, path = record["area"], record["path"]
        *above, name = self._parts(area, path)
        parent_path = (area, tuple(above))
        if self._parent_path != parent_path:
            self._close_parent()
            self._parent, self._parent_path = self._walk(area, above, path), parent_path
        return self._parent, name

    def locate_target(self, record: Entry) -> Location:
        """Return the location of the file that a hard link leads to; the caller closes the directory."""
        area, path = record["area"], record["to"]
        *above, name = self._parts(area, path)
        parent = self._walk(area, above, path)
        if not stat.S_ISREG(_mode((parent, name))):
            os.close(parent)
            raise SandboxError(f"the layer has a hard link to {path!r}, which is no file: it is forged")
        return parent, name

    def finish(self, record: Entry) -> None:
        """Give a directory its attributes, mode and times."""
        parent, name = self.locate(record)
        directory = os.open(name, _DIRECTORY, dir_fd=parent)
        try:
            _finish(directory, record)
        finally:
            os.close(directory)

    def _parts(self, area: str, path: str) -> list[str]:
        parts = path.split("/")
        odd = any(part in ("", ".", "..") or "\0" in part for part in parts)
        if area not in self._tops or odd or len(path) > _MAX_PATH:
            raise SandboxError(f"the layer has an entry {path[:200]!r} in {area!r}: it is damaged, or forged")
        return parts

    def _walk(self, area: str, above: list[str], path: str) -> int:
        try:
            return walk(self._tops[area], above)
        except (NotADirectoryError, FileNotFoundError):
            raise SandboxError(
                f"the layer has an entry {path!r} below no directory: it is damaged, or forged"
            ) from None


def walk(top: int, above: Sequence[str]) -> int:
    """Open a directory below an open one, step by step, so that a link on the way is not followed.

    The caller closes it. Raises NotADirectoryError, FileNotFoundError.
    """
    place = os.dup(top)
    for part in above:
        try:
            following = os.open(part, _DIRECTORY, dir_fd=place)
        finally:
            os.close(place)
        place = following
    return place


Pieces = Callable[[int], Iterator[bytes]]


class _EntryWriter:
    """Creates the file, directory or link of each kind of entry."""

    def __init__(self, areas: _Areas, overlay: bool) -> None:
        self._areas = areas
        self._overlay = overlay
        self.actions: Mapping[str, Callable[[Entry, Location, Pieces], None]] = {
            "directory": self._directory,
            "file": self._file,
            "link": self._link,
            "pipe": self._pipe,
            HARD: self._hard,
            "gone": self._gone,
        }

    def _directory(self, record: Entry, location: Location, _: Pieces) -> None:
        parent, name = location
        if (record.get("opaque") and not self._overlay) or not stat.S_ISDIR(_mode(location)):
            _remove(location)
        if not _mode(location):
            os.mkdir(name, 0o700, dir_fd=parent)
        if record.get("opaque") and self._overlay:
            directory = os.open(name, _DIRECTORY, dir_fd=parent)
            try:
                os.setxattr(directory, OPAQUE, b"y")
            finally:
                os.close(directory)

    def _file(self, record: Entry, location: Location, pieces: Pieces) -> None:
        _remove(location)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(location[1], flags, 0o600, dir_fd=location[0])
        with open(fd, "wb", buffering=0) as file:  # noqa: PTH123
            for piece in pieces(record["size"]):
                file.write(piece)
            _finish(fd, record)

    def _link(self, record: Entry, location: Location, _: Pieces) -> None:
        _remove(location)
        os.symlink(record["to"], location[1], dir_fd=location[0])

    def _pipe(self, record: Entry, location: Location, __: Pieces) -> None:
        _remove(location)
        os.mkfifo(location[1], 0o600, dir_fd=location[0])
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        pipe = os.open(location[1], flags, dir_fd=location[0])
        try:
            _finish(pipe, record)
        finally:
            os.close(pipe)

    def _hard(self, record: Entry, location: Location, _: Pieces) -> None:
        parent, name = self._areas.locate_target(record)
        try:
            if _identity((parent, name)) != _identity(location):
                _remove(location)
                os.link(name, location[1], src_dir_fd=parent, dst_dir_fd=location[0], follow_symlinks=False)
        finally:
            os.close(parent)

    def _gone(self, _: Entry, location: Location, __: Pieces) -> None:
        if self._overlay:
            os.mknod(location[1], stat.S_IFCHR, 0, dir_fd=location[0])
        else:
            _remove(location)


def _mode(location: Location) -> int:
    """Return the mode of what is at a location, links not followed; 0 when nothing is there."""
    try:
        return os.stat(location[1], dir_fd=location[0], follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _identity(location: Location) -> tuple[int, int] | None:
    """Return device and inode of what is at a location, links not followed; None when nothing is there."""
    try:
        status = os.stat(location[1], dir_fd=location[0], follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _remove(location: Location) -> None:
    """Remove what is at a location, a directory with all that is below it."""
    parent, name = location
    mode = _mode(location)
    if stat.S_ISDIR(mode):
        shutil.rmtree(name, dir_fd=parent)
    elif mode:
        os.unlink(name, dir_fd=parent)


def _finish(fd: int, record: Entry) -> None:
    for name, value in record.get("attributes", {}).items():
        if name.startswith(OVERLAY_PREFIXES) or name == _CAPABILITIES:
            raise SandboxError(f"the layer has an entry with {name!r}: it is forged")
        os.setxattr(fd, name, bytes.fromhex(value))
    os.fchmod(fd, record["mode"])
    os.utime(fd, ns=(record["mtime"], record["mtime"]))

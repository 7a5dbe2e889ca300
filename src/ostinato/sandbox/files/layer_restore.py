"""Puts a layer back in place (see `ostinato.sandbox.files.layer`), whoever wrote it."""

import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Self

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.files import layer
from ostinato.sandbox.files.layer import HARD, OPAQUE, OVERLAYS_OWN, Entry

_CAPABILITIES = "security.capability"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_PATH = 4096
"""Linux names nothing that is further away, so that nothing further away is packed."""


def unpack(file: int, areas: Mapping[str, str], *, overlay: bool) -> None:
    """Put a layer from an open file back in place; raises SandboxError when it is damaged or forged.

    `overlay`: the directories are an overlay's upper layers, else the merged trees themselves.
    A snapshot may come from anywhere, so every directory is opened from its parent and no link is followed:
    nothing outside the areas is read, written or changed.
    """
    layer.check(file)
    try:
        with _Inside(areas) as inside:
            _unpack(file, inside, _Puts(inside, overlay))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise SandboxError(f"the layer has an entry that is none ({error!r}): it is forged") from error
    except OSError as error:
        raise SandboxError(f"the layer could not be unpacked: {error}") from error


def _unpack(file: int, inside: "_Inside", put: "_Puts") -> None:
    offset, directories = 0, list[Entry]()
    while True:
        record, offset = layer.read_record(file, offset)
        if "end" in record:
            break
        put.actions[record["kind"]](record, inside.place(record), partial(layer.pieces, file, offset))
        offset += record.get("size", 0)
        if record["kind"] == "directory":
            directories.append(record)
    for record in reversed(directories):  # a directory may forbid what is still to be done below it
        inside.finish(record)


Spot = tuple[int, str]
"""An open directory, and the name of something in it."""


class _Inside:
    """Paths of a layer as open directories and names in them, none of which leads out of its area.

    Kept open is the parent of the last entry alone. An entry that replaces a directory has another parent,
    so what is kept is never a directory that has been replaced.
    """

    def __init__(self, areas: Mapping[str, str]) -> None:
        self._tops = {area: os.open(top, _DIRECTORY) for area, top in areas.items()}
        self._kept: tuple[str, tuple[str, ...]] | None = None
        self._open = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()
        for top in self._tops.values():
            os.close(top)

    def _drop(self) -> None:
        if self._kept is not None:
            os.close(self._open)
            self._kept = None

    def place(self, record: Entry) -> Spot:
        """Where an entry belongs, until the next call; raises SandboxError for a path that leads out."""
        area, path = record["area"], record["path"]
        *above, name = self._parts(area, path)
        wanted = (area, tuple(above))
        if self._kept != wanted:
            self._drop()
            self._open, self._kept = self._walk(area, above, path), wanted
        return self._open, name

    def first(self, record: Entry) -> Spot:
        """The regular file that a hard link leads to, in a directory that the caller closes."""
        area, path = record["area"], record["to"]
        *above, name = self._parts(area, path)
        parent = self._walk(area, above, path)
        if not stat.S_ISREG(_mode((parent, name))):
            os.close(parent)
            raise SandboxError(f"the layer has a hard link to {path!r}, which is no file: it is forged")
        return parent, name

    def finish(self, record: Entry) -> None:
        """Give a directory its attributes, mode and times."""
        parent, name = self.place(record)
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
    """Open a directory below an open one step by step, since a step that is a link would lead elsewhere.

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


class _Puts:
    """How each kind of entry comes to be."""

    def __init__(self, inside: _Inside, overlay: bool) -> None:
        self._inside = inside
        self._overlay = overlay
        self.actions: Mapping[str, Callable[[Entry, Spot, Pieces], None]] = {
            "directory": self._directory,
            "file": self._file,
            "link": self._link,
            "pipe": self._pipe,
            HARD: self._hard,
            "gone": self._gone,
        }

    def _directory(self, record: Entry, spot: Spot, _: Pieces) -> None:
        parent, name = spot
        if (record.get("opaque") and not self._overlay) or not stat.S_ISDIR(_mode(spot)):
            _remove(spot)
        if not _mode(spot):
            os.mkdir(name, 0o700, dir_fd=parent)
        if record.get("opaque") and self._overlay:
            directory = os.open(name, _DIRECTORY, dir_fd=parent)
            try:
                os.setxattr(directory, OPAQUE, b"y")
            finally:
                os.close(directory)

    def _file(self, record: Entry, spot: Spot, pieces: Pieces) -> None:
        _remove(spot)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(spot[1], flags, 0o600, dir_fd=spot[0])
        with open(fd, "wb", buffering=0) as file:  # noqa: PTH123
            for piece in pieces(record["size"]):
                file.write(piece)
            _finish(fd, record)

    def _link(self, record: Entry, spot: Spot, _: Pieces) -> None:
        _remove(spot)
        os.symlink(record["to"], spot[1], dir_fd=spot[0])

    def _pipe(self, record: Entry, spot: Spot, __: Pieces) -> None:
        _remove(spot)
        os.mkfifo(spot[1], 0o600, dir_fd=spot[0])
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        pipe = os.open(spot[1], flags, dir_fd=spot[0])
        try:
            _finish(pipe, record)
        finally:
            os.close(pipe)

    def _hard(self, record: Entry, spot: Spot, _: Pieces) -> None:
        parent, name = self._inside.first(record)
        try:
            if _identity((parent, name)) != _identity(spot):
                _remove(spot)
                os.link(name, spot[1], src_dir_fd=parent, dst_dir_fd=spot[0], follow_symlinks=False)
        finally:
            os.close(parent)

    def _gone(self, _: Entry, spot: Spot, __: Pieces) -> None:
        if self._overlay:
            os.mknod(spot[1], stat.S_IFCHR, 0, dir_fd=spot[0])
        else:
            _remove(spot)


def _mode(spot: Spot) -> int:
    """Of what is there itself; 0 for nothing."""
    try:
        return os.stat(spot[1], dir_fd=spot[0], follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0


def _identity(spot: Spot) -> tuple[int, int] | None:
    """Of the file that is there itself; None for nothing."""
    try:
        status = os.stat(spot[1], dir_fd=spot[0], follow_symlinks=False)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _remove(spot: Spot) -> None:
    """Whatever is there, directories with all below."""
    parent, name = spot
    mode = _mode(spot)
    if stat.S_ISDIR(mode):
        shutil.rmtree(name, dir_fd=parent)
    elif mode:
        os.unlink(name, dir_fd=parent)


def _finish(fd: int, record: Entry) -> None:
    for name, value in record.get("attributes", {}).items():
        if name.startswith(OVERLAYS_OWN) or name == _CAPABILITIES:
            raise SandboxError(f"the layer has an entry with {name!r}: it is forged")
        os.setxattr(fd, name, bytes.fromhex(value))
    os.fchmod(fd, record["mode"])
    os.utime(fd, ns=(record["mtime"], record["mtime"]))

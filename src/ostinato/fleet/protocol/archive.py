"""Archives of templates, which have the same bytes on every machine, so that a hash can name them."""

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import IO

from ostinato.sandbox.files import layer_restore, tree

MAX_BYTES = 1 << 30
MAX_MEMBERS = 50_000
"""Limit for files, links and directories: each takes an inode, however small it is in the archive."""
_PIECE, _AT_ONCE, _HEAD = 1 << 16, 1 << 20, 1 << 12
PREFIX = "tree-"


def pack(directory: Path) -> tuple[str, bytes]:
    """Return the name and the gzipped tar of a directory: sorted, without times and owners.

    It holds files, links and directories; sockets and the like are left out. Raises OSError.
    """
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, compresslevel=1) as squeezed,
        tarfile.open(fileobj=squeezed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(directory.rglob("*")):
            _add(archive, path, path.relative_to(directory))
    data = buffer.getvalue()
    return name(data), data


def _add(archive: tarfile.TarFile, path: Path, inside: Path) -> None:
    info = archive.gettarinfo(str(path), str(inside))
    if info is None or not (info.isfile() or info.isdir() or info.issym() or info.islnk()):
        return
    info.mtime = info.uid = info.gid = 0
    info.uname = info.gname = ""
    if info.isfile():
        with path.open("rb") as file:
            archive.addfile(info, file)
    else:
        archive.addfile(info)


def name(data: bytes) -> str:
    """Return the name of an archive."""
    return PREFIX + hashlib.sha256(data).hexdigest()


def unpack(file: IO[bytes], directory: Path) -> None:
    """Unpack an archive beside `directory` and move it there, so that it is complete or not there at all.

    Raises ValueError if `file` is not an archive, leads out of the directory, or is too large.
    """
    beside = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=directory.parent))
    try:
        (beside / "tree").mkdir()
        top = os.open(beside / "tree", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _Bounded(fileobj=file, mode="rb") as inflated:
                _unpack(inflated, top)
        finally:
            os.close(top)
        os.replace(beside / "tree", directory)  # noqa: PTH105 - a rename that must replace nothing else
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, RecursionError) as error:
        raise ValueError(f"not a whole archive: {error}") from error
    finally:
        tree.remove(str(beside))


class _Bounded(gzip.GzipFile):
    """A reader that inflates no more than an archive may hold, and only a little at once, such as a name."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _AT_ONCE:
            raise ValueError(f"{size} bytes at once: not an archive that we packed")
        if self.tell() > MAX_BYTES + MAX_MEMBERS * _HEAD:
            raise ValueError(f"more than {MAX_BYTES} bytes unpacked")
        return super().read(size)


def _unpack(inflated: gzip.GzipFile, top: int) -> None:
    count = size = 0
    with tarfile.open(fileobj=inflated, mode="r:") as archive:
        for member in archive:
            count, size = count + 1, size + member.size
            if count > MAX_MEMBERS or size > MAX_BYTES:
                raise ValueError(f"more than {MAX_MEMBERS} members or {MAX_BYTES} bytes unpacked")
            _put(archive, member, top)


def _put(archive: tarfile.TarFile, member: tarfile.TarInfo, top: int) -> None:
    """Write one member into a directory that came before it in the archive.

    Symbolic links may point anywhere, since only the sandbox itself follows them; none is followed here.
    """
    try:
        *above, last = _parts(member.name)
        parent = layer_restore.walk(top, above)
        try:
            _make(archive, member, top, parent, last)
        finally:
            os.close(parent)
    except (NotADirectoryError, FileNotFoundError, FileExistsError, IsADirectoryError) as error:
        raise ValueError(
            f"an archive with {member.name[:200]!r}, which cannot be unpacked: {error.strerror}"
        ) from error


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"an archive with {name[:200]!r}, which leads out of it")
    return parts


def _make(archive: tarfile.TarFile, member: tarfile.TarInfo, top: int, parent: int, last: str) -> None:
    if member.isdir():
        os.mkdir(last, 0o755, dir_fd=parent)
    elif member.issym():
        os.symlink(member.linkname, last, dir_fd=parent)
    elif member.islnk():
        *above, first = _parts(member.linkname)
        source = layer_restore.walk(top, above)
        try:
            os.link(first, last, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(source)
    elif member.isreg() and not member.issparse():
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(last, flags, 0o755 if member.mode & 0o100 else 0o644, dir_fd=parent)
        with open(fd, "wb") as file:  # noqa: PTH123 - a descriptor
            content = archive.extractfile(member)
            assert content is not None
            shutil.copyfileobj(content, file, _PIECE)
        os.utime(last, (0, 0), dir_fd=parent, follow_symlinks=False)
    else:
        raise ValueError(f"an archive with {member.name[:200]!r}, which is neither file, link nor directory")

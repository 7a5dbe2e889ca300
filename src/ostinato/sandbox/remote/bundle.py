"""A directory as one archive, the same bytes wherever it is packed, so that its hash names it."""

import gzip
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

MAX_BYTES = 1 << 30
PREFIX = "tree-"


def pack(directory: Path) -> tuple[str, bytes]:
    """Name and gzipped tar of a directory: sorted, without times and owners.

    Files, links and directories; sockets and the like are left out. Raises OSError.
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


def _safe(member: tarfile.TarInfo, directory: str) -> tarfile.TarInfo | None:
    """Nothing is written outside. Symbolic links may point anywhere: a sandbox follows them in itself."""
    if member.issym():
        return tarfile.tar_filter(member, directory)
    return tarfile.data_filter(member, directory)


def name(data: bytes) -> str:
    """What an archive is called."""
    return PREFIX + hashlib.sha256(data).hexdigest()


def unpack(data: bytes, directory: Path) -> None:
    """Unpacks beside `directory` and moves it there, so that it is whole or not there.

    Raises ValueError for what is no archive, leads out of the directory, or is too large.
    """
    beside = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=directory.parent))
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            if sum(member.size for member in archive.getmembers()) > MAX_BYTES:
                raise ValueError(f"more than {MAX_BYTES} bytes unpacked")
            archive.extractall(beside / "tree", filter=_safe)  # noqa: S202 - see _safe
        (beside / "tree").mkdir(exist_ok=True)
        os.replace(beside / "tree", directory)  # noqa: PTH105 - a rename that must replace nothing else
    except (tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"not a whole archive: {error}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)

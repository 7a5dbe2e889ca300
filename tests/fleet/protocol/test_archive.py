"""The archive of a directory is the same on every machine and cannot do harm where it is unpacked."""

import gzip
import io
import os
import tarfile
import tracemalloc
import zlib
from pathlib import Path

import pytest

from ostinato.fleet.protocol import archive


def unpack(data: bytes, directory: Path) -> None:
    archive.unpack(io.BytesIO(data), directory)


def test_equal_directories_have_equal_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "x").write_text("1")
        (tmp_path / name / "link").symlink_to("/etc/passwd")
        os.utime(tmp_path / name / "sub" / "x", (0 if name == "a" else 1e9,) * 2)
    assert archive.pack(tmp_path / "a") == archive.pack(tmp_path / "b")
    (tmp_path / "b" / "sub" / "x").chmod(0o755)
    assert archive.pack(tmp_path / "a")[0] != archive.pack(tmp_path / "b")[0]


def test_unpacking_restores_the_packed_files(tmp_path: Path) -> None:
    (tmp_path / "a" / "empty").mkdir(parents=True)
    (tmp_path / "a" / "run.sh").write_text("echo")
    (tmp_path / "a" / "run.sh").chmod(0o755)
    (tmp_path / "a" / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "a" / "pipe")
    unpack(archive.pack(tmp_path / "a")[1], tmp_path / "b")
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["empty", "link", "run.sh"]
    assert os.access(tmp_path / "b" / "run.sh", os.X_OK)
    assert (tmp_path / "b" / "link").readlink() == Path("/etc/passwd")


def make_archive(*members: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb") as squeezed,
        tarfile.open(fileobj=squeezed, mode="w") as tar,
    ):
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return buffer.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    made.size = 1 if kind == tarfile.REGTYPE else 0
    return made


@pytest.mark.parametrize(
    "members",
    [
        (member("../out"),),
        (member("way", tarfile.SYMTYPE, ".."), member("way/../out")),
        (member("way", tarfile.SYMTYPE, "../.."), member("way/out")),
        (member("hard", tarfile.LNKTYPE, "../secret"),),
        (member("hard", tarfile.LNKTYPE, "absent"),),
        (member("way", tarfile.SYMTYPE, ".."), member("hard", tarfile.LNKTYPE, "way/secret")),
        (member("/absolute"),),
        (member("twice"), member("twice")),
        (member("way", tarfile.SYMTYPE, "../made"), member("way")),
        (member("device", tarfile.CHRTYPE),),
        (member("pipe", tarfile.FIFOTYPE),),
    ],
)
def test_nothing_is_written_outside(tmp_path: Path, members: tuple[tarfile.TarInfo, ...]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "secret").write_text("s")
    with pytest.raises(ValueError, match="archive"):
        unpack(make_archive(*members), tmp_path / "in" / "tree")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["in", "secret"], "nothing is left"


@pytest.mark.parametrize("cut", [0, 10, -5000])
def test_an_incomplete_archive_is_refused(tmp_path: Path, cut: int) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(os.urandom(100_000))
    with pytest.raises(ValueError, match="archive"):
        unpack(archive.pack(tmp_path / "a")[1][:cut], tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_more_members_than_a_template_may_have_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 300)
    data = make_archive(*(member(str(number)) for number in range(archive.MAX_MEMBERS + 1)))
    with pytest.raises(ValueError, match="members"):
        unpack(data, tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def zeros(size: int, head: tarfile.TarInfo) -> bytes:
    """Return an archive of one member that is small only while it is compressed."""
    head.size = size
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(head.tobuf(tarfile.GNU_FORMAT))
    for _ in range(size >> 20):
        packed += packer.compress(bytes(1 << 20))
    return packed + packer.flush()


@pytest.mark.parametrize(
    "kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.REGTYPE, tarfile.CHRTYPE]
)
def test_a_decompression_bomb_is_refused_in_little_memory(tmp_path: Path, kind: bytes) -> None:
    size = 64 << 20 if kind != tarfile.REGTYPE else archive.MAX_BYTES + (1 << 20)
    data = zeros(size if kind != tarfile.REGTYPE else 1 << 20, member("a", kind))
    if kind == tarfile.REGTYPE:
        head = member("a", kind)
        head.size = size
        data = gzip.compress(head.tobuf(tarfile.GNU_FORMAT))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"archive|unpacked"):
            unpack(data, tmp_path / "b")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 << 20
    assert list(tmp_path.iterdir()) == []

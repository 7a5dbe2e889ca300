"""Archives are hostile: whatever they hold, nothing is written and each fault has its name.

Covers mining/archive.py and mining/base.py.
"""

import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ostinato.mining.archive import MAX_FILE_BYTES, MAX_FILES, read_tree
from ostinato.mining.base import MiningError, SourceTree, is_test, repository_name

GOOD = {"calc.py": b"def add(a, b):\n    return a + b\n", "test_calc.py": b"def test_add(): pass\n"}
MIT = b"Permission is hereby granted, free of charge, to any person"


def tar(path: Path, files: dict[str, bytes], *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for member in members:
            archive.addfile(member, io.BytesIO(b"\0" * member.size) if member.isfile() else None)
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


def test_an_archive_is_read_without_its_top_folder(tmp_path: Path) -> None:
    files = {f"Calc_Tool-1.2/{name}": data for name, data in {**GOOD, "LICENSE": MIT}.items()}
    tree = read_tree(tar(tmp_path / "Calc_Tool-1.2.tar.gz", files))
    assert (tree.name, tree.version, tree.licence) == ("calc-tool", "1.2", "MIT")
    assert (tree.sources, tree.tests) == (("calc.py",), ("test_calc.py",))


def test_a_zip_and_a_directory_are_read_the_same(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "calc-1.0.zip", "w") as archive:
        for name, data in GOOD.items():
            archive.writestr(f"calc-1.0/{name}", data)
    folder = tmp_path / "calc"
    for name, data in {**GOOD, ".git/config": b"x", "__pycache__/a.pyc": b"x"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    assert read_tree(tmp_path / "calc-1.0.zip").files == read_tree(folder).files == GOOD


HOSTILE: dict[str, Callable[[Path], Path]] = {
    "path climbs out": lambda path: tar(path, GOOD, member("../evil.py")),
    "path climbs out: '/etc": lambda path: tar(path, GOOD, member("/etc/evil")),
    "link in archive": lambda path: tar(path, GOOD, member("a", tarfile.SYMTYPE, "/etc/passwd")),
    "link in archive: 'b": lambda path: tar(path, GOOD, member("b", tarfile.LNKTYPE, "calc.py")),
    "device in archive": lambda path: tar(path, GOOD, member("null", tarfile.CHRTYPE)),
    "device in archive: 'fifo": lambda path: tar(path, GOOD, member("fifo", tarfile.FIFOTYPE)),
    "bomb": lambda path: tar(path, GOOD, member("zeros", size=MAX_FILE_BYTES + 1)),
    "bomb: n": lambda path: tar(path, GOOD, *(member(f"n{i}") for i in range(2 * MAX_FILES))),
    "compiled parts": lambda path: tar(path, {**GOOD, "fast.so": b"\x7fELF"}),
    "no tests": lambda path: tar(path, {"calc.py": b""}),
    "no sources": lambda path: tar(path, {"test_calc.py": b""}),
    "unreadable archive": lambda path: path.write_bytes(b"\x1f\x8bnot") and path,
}


@pytest.mark.parametrize("reason", HOSTILE)
def test_a_hostile_archive_is_refused_by_name(tmp_path: Path, reason: str) -> None:
    archive = HOSTILE[reason](tmp_path / "calc-1.0.tar.gz")
    kind, _, detail = reason.partition(": ")
    with pytest.raises(MiningError) as refused:
        read_tree(archive)
    assert refused.value.kind == kind and detail in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        MiningError, match=r"nowhere: not there: .*nowhere does not exist: name the folder of a"
    ):
        read_tree(tmp_path / "nowhere")


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("evil")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(MiningError, match="link in archive"):
        read_tree(tmp_path / "a.zip")


def test_an_odd_file_of_a_directory_costs_only_itself(tmp_path: Path) -> None:
    for name, data in GOOD.items():
        (tmp_path / name).write_bytes(data)
    os.symlink("/etc/passwd", tmp_path / "evil")
    os.symlink("nowhere", tmp_path / "broken")
    os.mkfifo(tmp_path / "pipe")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("x")
    (tmp_path / "a\nb.py").write_text("x = 1")
    (tmp_path / ("n" * 240)).write_text("x")
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    tree = read_tree(tmp_path)
    assert tree.files == GOOD
    assert tree.left_out == {
        "a link": 2,
        "no file": 1,
        "the name is no UTF-8": 1,
        "no file system or list takes the name": 2,
        "larger than 8 MiB": 1,
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/test_a.py", True),
        ("tests/data.json", True),
        ("pkg/a_test.py", True),
        ("conftest.py", True),
        ("pkg/testing.py", False),
        ("pkg/contest.py", False),
    ],
)
def test_files_of_the_tests_are_known(path: str, expected: bool) -> None:
    assert is_test(path) is expected


def test_spellings_of_one_project_share_a_name_and_so_a_split() -> None:
    names = [repository_name(text) for text in ("Calc_Tool-1.2", "calc.tool", "calc-tool-2.0rc1")]
    assert names == ["calc-tool"] * 3
    splits = {SourceTree(name=f"n{i}", version="", files={}, licence="").split for i in range(40)}
    assert splits == {"train", "mined"}

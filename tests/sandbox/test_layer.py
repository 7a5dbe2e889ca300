"""Layers come back as they were, and what is damaged or leads out is refused."""

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ostinato.sandbox import SandboxError, layer

names = st.text("ab\udcff é", min_size=1, max_size=3).filter(lambda name: name not in (".", ".."))
trees = st.recursive(
    st.binary(max_size=200_000) | st.sampled_from(["link", "pipe"]),
    lambda inner: st.dictionaries(names, inner, max_size=4),
    max_leaves=8,
)


def build(place: Path, what: object) -> None:
    if isinstance(what, dict):
        place.mkdir(exist_ok=True)
        for name, inner in what.items():
            build(place / name, inner)
        place.chmod(0o750)
    elif isinstance(what, bytes):
        place.write_bytes(what)
        place.chmod(0o640 | len(what) & 0o111)
        os.utime(place, ns=(1, len(what) * 10**9))
    elif what == "link":
        place.symlink_to("somewhere")
    else:
        os.mkfifo(place)


def seen(top: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(top):
        for name in folders + files:
            place = Path(folder, name)
            status = place.lstat()
            kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
            content = place.read_bytes() if stat.S_ISREG(kind) else None
            time = status.st_mtime_ns if content is not None else 0
            found[str(place.relative_to(top))] = (kind, mode, content, time)
    return found


def packed(top: Path) -> int:
    file = os.memfd_create("layer")
    os.write(file, b"".join(layer.pack({"repo": str(top)})))
    return file


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(names, trees, max_size=4))
def test_a_tree_survives(tree: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        build(Path(one), tree)
        file = packed(Path(one))
        layer.unpack(file, {"repo": two}, overlay=False)
        os.close(file)
        assert seen(Path(two)) == seen(Path(one))


def test_modes_that_forbid_reading_survive_too(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    build(one, {"shut": {"file": b"x"}})
    two.mkdir()
    (one / "shut/file").chmod(0)
    (one / "shut").chmod(0)
    file = packed(one)
    assert stat.S_IMODE((one / "shut").stat().st_mode) == 0
    layer.unpack(file, {"repo": str(two)}, overlay=False)
    os.close(file)
    assert stat.S_IMODE((two / "shut").stat().st_mode) == 0
    for top in (one, two):
        (top / "shut").chmod(0o700)
        (top / "shut/file").chmod(0o600)
        assert (top / "shut/file").read_bytes() == b"x"


@pytest.mark.parametrize("at", [0, 10, 40, -20, -1])
def test_a_flipped_bit_is_found(tmp_path: Path, at: int) -> None:
    build(tmp_path / "one", {"a": b"some text", "b": {"c": b"more"}})
    (tmp_path / "two").mkdir()
    file = packed(tmp_path / "one")
    data = bytearray(os.pread(file, 10**6, 0))
    data[at] ^= 4
    os.pwrite(file, data, 0)
    with pytest.raises(SandboxError, match="the layer"):
        layer.unpack(file, {"repo": str(tmp_path / "two")}, overlay=False)
    assert not list((tmp_path / "two").iterdir())
    os.close(file)


@pytest.mark.parametrize("cut", [0, 3, 50, -1])
def test_a_layer_that_was_cut_is_found(tmp_path: Path, cut: int) -> None:
    build(tmp_path / "one", {"a": b"some text"})
    file = packed(tmp_path / "one")
    os.ftruncate(file, os.fstat(file).st_size + cut if cut < 0 else cut)
    with pytest.raises(SandboxError, match="the layer"):
        layer.check(file)
    os.close(file)


@pytest.mark.parametrize("path", ["../out", "/etc/out", "a/../../out", "", "link/out", "nul\0"])
def test_a_forged_layer_does_not_lead_out(tmp_path: Path, path: str) -> None:
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to("..")
    entries = [layer._record({"area": "repo", "path": path, "kind": "link", "to": "x"})]
    file = os.memfd_create("layer")
    os.write(file, b"".join(layer._sealed(iter(entries))))
    with pytest.raises(SandboxError, match="forged"):
        layer.unpack(file, {"repo": str(top)}, overlay=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["top"]
    os.close(file)

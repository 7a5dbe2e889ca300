"""Layers are restored as they were; damaged ones, and paths that lead out, are refused.

Covers sandbox/files/layer.py and sandbox/files/layer_restore.py.
"""

import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ostinato.sandbox import SandboxError
from ostinato.sandbox.files import layer, layer_restore

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


@given(st.dictionaries(names, trees, max_size=4))
def test_a_tree_survives(tree: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        build(Path(one), tree)
        file = packed(Path(one))
        layer_restore.unpack(file, {"repo": two}, overlay=False)
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
    layer_restore.unpack(file, {"repo": str(two)}, overlay=False)
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
        layer_restore.unpack(file, {"repo": str(tmp_path / "two")}, overlay=False)
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
        layer_restore.unpack(file, {"repo": str(top)}, overlay=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["top"]
    os.close(file)


def forged(*entries: layer.Entry | tuple[layer.Entry, bytes]) -> int:
    """Return a layer of any entries with a right digest, as an attacker can write it."""
    parts = []
    for each in entries:
        entry, content = each if isinstance(each, tuple) else (each, b"")
        entry = {"area": "repo", "mode": 0o600, "mtime": 0, **entry}
        parts += [layer._record({**entry, "size": len(content)} if content else entry), content]
    file = os.memfd_create("layer")
    os.write(file, b"".join(layer._sealed(iter(parts))))
    return file


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a file beside the tree `top`, and make a link to its folder in the tree."""
    (tmp_path / "top").mkdir()
    (tmp_path / "outside").mkdir()
    secret = tmp_path / "outside/secret"
    secret.write_text("not yours")
    secret.chmod(0o600)
    return secret


def apply(tmp_path: Path, *entries: layer.Entry | tuple[layer.Entry, bytes]) -> None:
    file = forged(*entries)
    try:
        layer_restore.unpack(file, {"repo": str(tmp_path / "top")}, overlay=False)
    finally:
        os.close(file)


def test_a_parent_that_was_replaced_by_a_link_is_not_followed(tmp_path: Path, outside: Path) -> None:
    with pytest.raises(SandboxError, match="forged"):
        apply(
            tmp_path,
            {"path": "a", "kind": "directory", "mode": 0o755},
            ({"path": "a/one", "kind": "file"}, b"1"),
            {"path": "a", "kind": "link", "to": "../outside"},
            ({"path": "a/secret", "kind": "file"}, b"2"),
        )
    assert outside.read_text() == "not yours"


@pytest.mark.parametrize("to", ["../outside/secret", "/outside/secret", "link/secret"])
def test_a_hard_link_does_not_lead_out(tmp_path: Path, outside: Path, to: str) -> None:
    with pytest.raises(SandboxError, match="forged"):
        apply(
            tmp_path,
            {"path": "link", "kind": "link", "to": "../outside"},
            {"path": "own", "kind": "hard link", "to": to},
        )
    assert outside.stat().st_nlink == 1


def test_a_mode_is_not_set_through_a_link(tmp_path: Path, outside: Path) -> None:
    with pytest.raises(SandboxError, match="layer"):
        apply(
            tmp_path,
            {"path": "own", "kind": "directory", "mode": 0o777},
            {"path": "own", "kind": "link", "to": "../outside"},
        )
    assert stat.S_IMODE(outside.parent.stat().st_mode) == 0o755
    assert stat.S_IMODE(outside.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "entry",
    [
        {"path": "a", "kind": "directory", "attributes": {"user.overlay.redirect": "2f"}},
        {"path": "a", "kind": "nothing"},
        {"path": "a", "kind": "link"},
        {"path": "a", "kind": "link", "to": 7},
        {"path": 7, "kind": "pipe"},
        {"path": "a", "kind": "directory", "mode": "x"},
        {"path": "a", "kind": "pipe", "mtime": None},
        {"path": "a", "kind": "file", "size": -1},
        {"path": "a/" * 3000 + "a", "kind": "pipe"},
    ],
)
def test_an_invalid_entry_is_a_sandbox_error(tmp_path: Path, outside: Path, entry: layer.Entry) -> None:
    with pytest.raises(SandboxError, match="layer"):
        apply(tmp_path, entry)


_PATHS = ["a", "b", "a/b", "a/b/c", "out", "out/secret", "up/x", "absolute/secret", "a/out", "a/out/secret"]
_TARGETS = ["a", "a/b", "..", "../outside", "../outside/secret", "out/secret", "/", "absolute/secret", "b"]
hostile = st.fixed_dictionaries(
    {
        "path": st.sampled_from([*_PATHS, "..", "../outside/secret", "a/../b"]),
        "kind": st.sampled_from(["directory", "file", "link", "pipe", "hard link", "gone"]),
        "to": st.sampled_from(_TARGETS),
        "mode": st.sampled_from([0, 0o600, 0o755, 0o777, 0o4777]),
        "mtime": st.sampled_from([0, 10**18]),
        "opaque": st.booleans(),
        "attributes": st.sampled_from([{}, {"user.mark": "31"}]),
    }
)


@pytest.mark.parametrize("overlay", [False, True])
@given(entries=st.lists(st.tuples(hostile, st.sampled_from([b"", b"forged"])), max_size=7))
def test_no_layer_changes_anything_outside(overlay: bool, entries: list[tuple[layer.Entry, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        top, outside = Path(scratch, "top"), Path(scratch, "outside")
        build(outside, {"secret": b"not yours", "folder": {"more": b"x"}})
        build(top, {"a": {"b": b"1"}, "b": b"2"})
        for name, to in {
            "out": "../outside",
            "up": "..",
            "absolute": str(outside),
            "a/out": "../../outside",
        }.items():
            (top / name).symlink_to(to)
        before = seen(outside), outside.stat().st_mtime_ns, sorted(os.listdir(scratch))
        file = forged(*entries)
        try:
            layer_restore.unpack(file, {"repo": str(top)}, overlay=overlay)
        except SandboxError:
            pass
        finally:
            os.close(file)
        assert (seen(outside), outside.stat().st_mtime_ns, sorted(os.listdir(scratch))) == before
        assert {path.lstat().st_nlink for path in outside.rglob("secret")} == {1}

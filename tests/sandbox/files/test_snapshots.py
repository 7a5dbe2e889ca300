"""A snapshot is complete, or it is no snapshot."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ostinato.sandbox import SandboxError, Spec
from ostinato.sandbox.backends.namespaces.backend import NsBackend
from ostinato.sandbox.backends.process.backend import ProcessBackend
from ostinato.sandbox.files.snapshots import LAYER, RECORD, load


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 1 MiB."""
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "none", directory], capture_output=True, check=False
        )
        if done.returncode != 0:
            pytest.skip("this user cannot mount a small disk")
        yield Path(directory)
        subprocess.run(["umount", directory], check=True)


@pytest.mark.parametrize("kind", [NsBackend, ProcessBackend])
async def test_a_full_disk_leaves_no_snapshot_and_the_sandbox_alive(
    kind: type[NsBackend] | type[ProcessBackend], repo: Path, small_disk: Path
) -> None:
    backend = kind(snapshots=small_disk / "state")
    sandbox = await backend.create(Spec(repo=repo))
    small = await sandbox.snapshot()
    await sandbox.exec("head -c 3000000 /dev/urandom > big")
    with pytest.raises(SandboxError, match="No space left"):
        await sandbox.snapshot()
    assert [path.name for path in (small_disk / "state").iterdir()] == [small.id]
    assert (await sandbox.exec("wc -c < big")).output.strip() == "3000000"
    await sandbox.destroy()
    again = await backend.restore(small, Spec(repo=repo))
    assert await again.changes() == {}
    await backend.aclose()
    assert load(small.path) == small, "a directory given by the caller outlives the backend"


async def test_a_damaged_layer_is_refused(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    backend = ProcessBackend(snapshots=tmp_path / "state")
    sandbox = await backend.create(Spec(repo=repo))
    await sandbox.write("new", b"content")
    snapshot = await sandbox.snapshot()
    layer = snapshot.path / LAYER
    data = bytearray(layer.read_bytes())
    data[data.index(b"content")] ^= 1
    layer.write_bytes(data)
    before = set(tmp_path.iterdir())
    with pytest.raises(SandboxError, match="damaged"):
        await backend.restore(snapshot, Spec(repo=repo))
    assert set(tmp_path.iterdir()) == before
    await backend.aclose()


async def test_without_its_record_there_is_no_snapshot(repo: Path, tmp_path: Path) -> None:
    """The machine may have stopped before the last write."""
    backend = ProcessBackend(snapshots=tmp_path / "state")
    sandbox = await backend.create(Spec(repo=repo))
    snapshot = await sandbox.snapshot()
    (snapshot.path / RECORD).unlink()
    with pytest.raises(SandboxError, match="no whole snapshot"):
        load(snapshot.path)
    with pytest.raises(SandboxError, match="no snapshot"):
        await backend.restore(snapshot, Spec(repo=repo))
    (snapshot.path / RECORD).write_text(json.dumps({"id": "half"}))
    with pytest.raises(SandboxError, match="no whole snapshot"):
        load(snapshot.path)
    await backend.aclose()


async def test_a_repository_that_changed_is_another_template(repo: Path, tmp_path: Path) -> None:
    backend = ProcessBackend(snapshots=tmp_path / "state")
    sandbox = await backend.create(Spec(repo=repo))
    snapshot = await sandbox.snapshot()
    (repo / "calc.py").write_text("changed = True\n")
    with pytest.raises(SandboxError, match="template"):
        await backend.restore(snapshot, Spec(repo=repo))
    await backend.aclose()


async def test_temporary_snapshots_end_with_their_backend(repo: Path) -> None:
    backend = ProcessBackend()
    snapshot = await (await backend.create(Spec(repo=repo))).snapshot()
    assert os.path.isdir(snapshot.path)
    await backend.aclose()
    assert not os.path.exists(snapshot.path)

"""Clones that wait, with the ground that was used last or with none (`make test-sandboxes`).

Covers sandbox/backends/vm/qemu/pool.py and sandbox/backends/vm/qemu/vm.py.
"""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.sandbox.conftest import opened, write_files

from ostinato.sandbox import Backend, SandboxError, SnapshotKind, Spec
from ostinato.sandbox.backends.vm.qemu.backend import QemuBackend, QemuEngine
from ostinato.sandbox.backends.vm.qemu.pool import WaitingClone

pytestmark = pytest.mark.machines


@pytest.fixture
def installed(backends: dict[str, Backend]) -> None:
    opened("qemu", backends)


@pytest.fixture
async def qemu(installed: None) -> AsyncIterator[QemuBackend]:
    backend = QemuBackend(pool=1)
    yield backend
    await backend.aclose()


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return write_files(tmp_path / "other", {"sub/note.txt": "other\n"})


def waiting(backend: QemuBackend) -> list[WaitingClone]:
    assert isinstance(backend.engine, QemuEngine)
    return list(backend.engine._pool._waiting)


async def used(backend: QemuBackend, repo: Path) -> bytes | None:
    sandbox = await backend.create(Spec(repo=repo))
    await sandbox.write("a", b"1")
    (fork,) = await sandbox.fork()
    found = await fork.read("sub/note.txt")
    assert await fork.read("a") == b"1"
    await fork.destroy()
    await sandbox.destroy()
    return found


async def test_a_waiting_clone_has_the_ground_of_the_last_two(
    qemu: QemuBackend, repo: Path, other: Path
) -> None:
    assert await used(qemu, repo) == b"hello\n"
    (first,) = waiting(qemu)
    assert first.ground is not None
    assert await used(qemu, other) == b"other\n"  # what waits cannot become that
    assert not first.machine.alive()
    assert await used(qemu, repo) == b"hello\n"
    assert await used(qemu, other) == b"other\n"
    (second,) = waiting(qemu)
    assert second.ground is not None
    assert not second.ground.same(first.ground)


async def test_a_clone_that_died_while_it_waited_is_not_used(qemu: QemuBackend, repo: Path) -> None:
    await used(qemu, repo)
    for each in waiting(qemu):
        each.machine._process.kill()
        each.machine._process.wait()
    assert await used(qemu, repo) == b"hello\n"


async def test_a_sandbox_outlives_its_template(qemu: QemuBackend, repo: Path) -> None:
    """Its files are deleted after eight others were used; forks and snapshots still work."""
    sandbox = await qemu.create(Spec(repo=repo))
    await sandbox.exec("echo 1 > f")
    (template,) = qemu._templates.values()
    assert template.value is not None
    shutil.rmtree(template.value)
    (fork,) = await sandbox.fork()
    await fork.exec("echo 2 >> f")
    (second,) = await fork.fork()
    snapshot = await second.snapshot(SnapshotKind.FULL)
    for each in (sandbox, fork, second):
        await each.destroy()
    other = QemuBackend(pool=0)
    restored = await other.restore(snapshot, Spec(repo=repo))
    assert await restored.read("f") == b"1\n2\n"
    await restored.destroy()
    await other.aclose()


async def test_damaged_devices_are_refused_with_the_message_of_qemu(qemu: QemuBackend, repo: Path) -> None:
    sandbox = await qemu.create(Spec(repo=repo))
    snapshot = await sandbox.snapshot(SnapshotKind.FULL)
    await sandbox.destroy()
    (snapshot.path / "devices").write_bytes(b"nonsense")
    with pytest.raises(SandboxError, match="Not a migration stream"):
        await qemu.restore(snapshot, Spec(repo=repo))

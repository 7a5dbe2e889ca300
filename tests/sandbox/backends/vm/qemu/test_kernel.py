"""The search for a guest's kernel."""

from pathlib import Path

import pytest

from ostinato.sandbox import SandboxError
from ostinato.sandbox.backends.vm.qemu import kernel

NAMES = ("virtio", "virtio_ring", "virtio_pci", "virtio_pci_modern_dev", "virtio_pci_legacy_dev")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "vm"
    monkeypatch.setattr(kernel, "_places", lambda: [tmp_path / "absent", place])
    for folder in ("boot", "usr/bin"):
        (place / folder).mkdir(parents=True)
    (place / "usr/bin/busybox").write_bytes(b"\x7fELF static")
    return place


def install(place: Path, version: str) -> None:
    (place / "boot" / f"vmlinuz-{version}").touch()
    modules = place / "lib/modules" / version / "kernel/drivers"
    modules.mkdir(parents=True)
    for name in (*NAMES, "virtio_blk", "virtio_console", "overlay"):
        (modules / f"{name}.ko").touch()


def test_the_newest_kernel_with_all_modules_is_found(place: Path) -> None:
    install(place, "6.1.0-9-cloud-amd64")
    install(place, "6.1.0-56-cloud-amd64")
    (place / "boot/vmlinuz-6.1.0-57-cloud-amd64").touch()
    found = kernel.find()
    assert found.image.name == "vmlinuz-6.1.0-56-cloud-amd64"
    assert [module.name for module in found.modules][:2] == ["virtio_ring.ko", "virtio.ko"]


def test_a_missing_file_is_named(place: Path) -> None:
    install(place, "6.1.0-9-cloud-amd64")
    (place / "lib/modules/6.1.0-9-cloud-amd64/kernel/drivers/overlay.ko").unlink()
    with pytest.raises(SandboxError, match="no cloud kernel"):
        kernel.find()

"""Installs what the backends with a kernel of their own need, and runs their tests: `make test-sandboxes`.

As root on Debian: runsc, QEMU and nftables from the backports, a guest's kernel and busybox unpacked beside
our own. Elsewhere nothing is installed, and the tests of what is missing are skipped with the reason.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ostinato.sandbox.base import SandboxError
from ostinato.sandbox.qemu import kernel

SOURCE = Path("/etc/apt/sources.list.d/ostinato-backports.sources")
PROGRAMS = {
    "runsc": "runsc",
    "qemu-system-x86_64": "qemu-system-x86",
    "mke2fs": "e2fsprogs",
    "nft": "nftables",
}
PATIENCE_S = 600


def main() -> int:
    reason = _prevented()
    if reason is None:
        _install()
    else:
        print(f"nothing is installed: {reason}")  # noqa: T201
    tests = ["tests/sandbox", "tests/hacks", "tests/escapes"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "machines or transparent", "-rs", *sys.argv[1:], *tests],
        check=False,
    ).returncode


def _prevented() -> str | None:
    if os.getuid() != 0:
        return "only root can, with apt-get"
    if not Path("/etc/debian_version").exists() or shutil.which("apt-get") is None:
        return "this is not Debian"
    return None


def _install() -> None:
    wanted = [package for program, package in PROGRAMS.items() if not _found(program)]
    if wanted:
        suite = f"{_release()}-backports"
        _add_backports(suite)
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", "--target-release", suite, *wanted)
    try:
        kernel.find()
    except SandboxError:
        _unpack_kernel()


def _found(program: str) -> bool:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is not None


def _release() -> str:
    text = Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=(\w+)$", text, re.MULTILINE)
    assert found, "/etc/os-release names no release"
    return found[1]


def _add_backports(suite: str) -> None:
    """From the mirror that apt uses for everything else."""
    policy = subprocess.run(["apt-cache", "policy"], capture_output=True, text=True, check=True).stdout
    if suite in policy:
        return
    mirror = re.search(rf"(https?://\S+) {suite.removesuffix('-backports')}/main", policy)
    assert mirror, f"apt has no mirror for {suite}: add one"
    SOURCE.write_text(f"Types: deb\nURIs: {mirror[1]}\nSuites: {suite}\nComponents: main\n")


def _unpack_kernel() -> None:
    names = subprocess.run(
        ["apt-cache", "search", "--names-only", r"^linux-image-6\.1\.0-[0-9]+-cloud-amd64$"],
        capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    images = sorted((name.split()[0] for name in names if name), key=lambda name: int(name.split("-")[3]))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        _apt("download", "busybox-static", images[-1], cwd=folder)
        for package in Path(folder).glob("*.deb"):
            kernel.SHARED.mkdir(parents=True, exist_ok=True)
            subprocess.run(["dpkg-deb", "-x", str(package), str(kernel.SHARED)], check=True)


def _apt(*arguments: str, cwd: str | None = None) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "--quiet", "-o", "DPkg::Lock::Timeout=300", *arguments]
    subprocess.run(command, check=True, cwd=cwd, env=environment, timeout=PATIENCE_S)


if __name__ == "__main__":
    sys.exit(main())

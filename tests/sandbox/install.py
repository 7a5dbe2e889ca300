"""Installs what containers and suites of Node and Go need, and runs their tests.

As root on Debian: podman, runsc and tools for images from the backports, Node and Go from
the release. Elsewhere, and where apt has no such
packages or no mirror answers, the reason is printed and the tests of what is missing are skipped.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path("/etc/apt/sources.list.d/ostinato-backports.sources")
PROGRAMS = {
    "runsc": "runsc",
    "podman": "podman",
    "runc": "runc",
    "newuidmap": "uidmap",
    "busybox": "busybox-static",
    "umoci": "umoci",
    "skopeo": "skopeo",
    "buildah": "buildah",
}
TOOLCHAINS = {"node": "nodejs", "go": "golang-go"}
"""Installed from Debian's own release: Go from the backports has no compiled standard library."""
PATIENCE_S = 600


class ImpossibleError(Exception):
    """Missing programs cannot be installed on this machine."""


def main() -> int:
    try:
        _install()
    except ImpossibleError as error:
        print(f"not installed, and what needs it is skipped: {error}", flush=True)  # noqa: T201
    tests = ["tests/sandbox", "tests/hacks", "tests/escapes"]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "machines or toolchains or corpus",
            "-rs",
            *sys.argv[1:],
            *tests,
        ],
        check=False,
    ).returncode


def _install() -> None:
    """Install missing programs, if there are any. Raises ImpossibleError."""
    wanted = {program: package for program, package in PROGRAMS.items() if not _found(program)}
    toolchains = {program: package for program, package in TOOLCHAINS.items() if not _found(program)}
    if not wanted and not toolchains:
        return
    missing = ", ".join([*wanted, *toolchains])
    if os.getuid() != 0:
        raise ImpossibleError(f"{missing}: only root can install, with apt-get")
    if not Path("/etc/debian_version").exists() or shutil.which("apt-get") is None:
        raise ImpossibleError(f"{missing}: this is not Debian")
    if toolchains:
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", *toolchains.values())
    if wanted:
        _install_packages([*wanted.values()])


def _install_packages(packages: list[str]) -> None:
    suite = f"{_release()}-backports"
    added = _add_backports(suite)
    try:
        _apt("update")
        _apt("install", "--yes", "--no-install-recommends", "--target-release", suite, *packages)
    except ImpossibleError:
        if added:
            SOURCE.unlink()
        raise


def _found(program: str) -> bool:
    return shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is not None


def _release() -> str:
    text = Path("/etc/os-release").read_text()
    found = re.search(r"^VERSION_CODENAME=(\w+)$", text, re.MULTILINE)
    if found is None:
        raise ImpossibleError("/etc/os-release names no release that would have backports")
    return found[1]


def _add_backports(suite: str) -> bool:
    """Add the backports of the mirror that apt uses; return True when they were not there before."""
    policy = subprocess.run(["apt-cache", "policy"], capture_output=True, text=True, check=True).stdout
    if suite in policy or SOURCE.exists():
        return False
    mirror = re.search(rf"(https?://\S+) {suite.removesuffix('-backports')}/main", policy)
    if mirror is None:
        raise ImpossibleError(f"apt has no mirror for {suite}: add one")
    SOURCE.write_text(f"Types: deb\nURIs: {mirror[1]}\nSuites: {suite}\nComponents: main\n")
    return True


def _apt(*arguments: str, cwd: str | None = None) -> None:
    """Run apt; its own messages are on the screen when it fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "--quiet", "-o", "DPkg::Lock::Timeout=300", *arguments]
    try:
        subprocess.run(command, check=True, cwd=cwd, env=environment, timeout=PATIENCE_S)
    except subprocess.SubprocessError as error:
        raise ImpossibleError(f"{' '.join(command)} failed") from error


if __name__ == "__main__":
    sys.exit(main())

"""Installs PostgreSQL, and runs the tests that need it: `make test-postgres`.

As root on Debian, from the release. Elsewhere, and where no mirror answers, the reason is printed and the
tests are skipped.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from fuzz.postgres import missing

PATIENCE_S = 600
ROOMS = ["tests/store", "tests/gateway", "tests/rollout", "tests/loop", "tests/dashboard"]


def main() -> int:
    problem = missing() and _install()
    print(f"PostgreSQL: {problem or 'installed'}", flush=True)  # noqa: T201
    command = [sys.executable, "-m", "pytest", "-m", "postgres", "-rs", *sys.argv[1:], *ROOMS]
    return subprocess.run(command, check=False).returncode


def _install() -> str | None:
    """Install the server; return the problem, None when there was none."""
    if os.getuid() != 0:
        return "only root can install, with apt-get"
    if not Path("/etc/debian_version").exists() or shutil.which("apt-get") is None:
        return "this is not Debian"
    # Debian's package starts a server of its own; the tests need the programs alone.
    _keep_from_starting()
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", "postgresql", "iproute2"]):
        command = ["apt-get", "--quiet", "-o", "DPkg::Lock::Timeout=300", *arguments]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        try:
            subprocess.run(command, check=True, env=environment, timeout=PATIENCE_S)
        except subprocess.SubprocessError:
            return f"{' '.join(command)} failed"
    return missing()


def _keep_from_starting() -> None:
    folder = Path("/etc/postgresql-common")
    folder.mkdir(exist_ok=True)
    settings = folder / "createcluster.conf"
    if not settings.exists():
        settings.write_text("create_main_cluster = false\n")


if __name__ == "__main__":
    sys.exit(main())

"""Installs what the browser's tests need, and runs them: `make test-browser`.

As root on Debian: the package `chromium`. Anywhere with npm: axe-core, which examines how accessible pages
are. Where either cannot be installed, the reason is printed and what needs it is skipped.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from fuzz.browser import executable

HOME = Path(__file__).parents[2] / ".clients" / "axe-core"
AXE = HOME / "node_modules" / "axe-core" / "axe.min.js"
VERSION = "4.14.1"
PATIENCE_S = 600


def main(arguments: list[str]) -> int:
    for name, problem in (("chromium", _chromium()), ("axe-core", _axe())):
        print(f"{name}: {problem or 'installed'}", flush=True)  # noqa: T201
    tests = arguments or ["tests/dashboard/test_browser.py"]
    return subprocess.run([sys.executable, "-m", "pytest", "-rs", *tests], check=False).returncode


def _chromium() -> str | None:
    """Return the problem, None when there is a Chromium."""
    if executable() is not None:
        return None
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return "only root on Debian can install it, with `apt-get install chromium`"
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update"], quiet)
    return _run(["apt-get", "install", "--yes", "--no-install-recommends", "chromium", "fonts-dejavu"], quiet)


def _axe() -> str | None:
    if AXE.exists():
        return None
    if shutil.which("npm") is None:
        return "npm is not on PATH"
    command = ["npm", "install", "--prefix", str(HOME), "--no-audit", "--no-fund", f"axe-core@{VERSION}"]
    return _run(command, dict(os.environ))


def _run(command: list[str], environment: dict[str, str]) -> str | None:
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command)}` took longer than {PATIENCE_S} s"
    if done.returncode == 0:
        return None
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
    return f"`{' '.join(command)}` failed: {' '.join(last)[:300]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

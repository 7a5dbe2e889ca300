"""Installs Ray, as the extra `ray` of ostinato does, and runs the tests that need it: `make test-ray`."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[3]
PATIENCE_S = 1800


def main(arguments: list[str]) -> int:
    """Raises CalledProcessError, after pip's own words, when Ray cannot be installed."""
    if find_spec("ray") is None:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        wanted = ["--constraint", str(ROOT / "constraints.txt"), "--editable", f"{ROOT}[ray]"]
        subprocess.run([*pip, *wanted], check=True, timeout=PATIENCE_S)
    return os.execv(sys.executable, [sys.executable, "-m", "pytest", "-m", "ray", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["tests/loop"]))

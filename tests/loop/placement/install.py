"""Installs Ray, as the extra `ray` of ostinato does, and runs the tests that need it: `make test-ray`."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.provision import CONSTRAINTS, ROOT, install


def main(arguments: list[str]) -> int:
    """Raises CalledProcessError, after the installer's own words, when Ray cannot be installed."""
    if find_spec("ray") is None:
        wanted = ["--constraint", str(CONSTRAINTS), "--editable", f"{ROOT}[ray]"]
        install(Path(sys.executable), *wanted, quiet=True)
    return os.execv(sys.executable, [sys.executable, "-m", "pytest", "-m", "ray", *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["tests/loop"]))

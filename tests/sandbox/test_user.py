"""What root's tests show, shown again by an ordinary user: one run covers both."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
USER = 61_234
"""Nobody's number: it has no processes that would count."""
AGAIN = ("test_conformance.py", "test_ns.py", "test_layer.py", "test_snapshots.py")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "setresuid"), reason="needs Linux")
def test_an_ordinary_user_can_do_all_of_it() -> None:
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    with tempfile.TemporaryDirectory() as room:
        os.chown(room, USER, USER)
        tests = [str(HERE / name) for name in AGAIN]
        options = [
            "-q",
            "-m",
            "not slow and not machines",
            "-p",
            "no:schemathesis",
            f"--basetemp={room}/base",
            "-rs",
        ]
        options += ["-o", f"cache_dir={room}/cache", "--last-failed"]
        command = [sys.executable, "-m", "tests.as_user", str(USER), sys.executable, "-m", "pytest"]
        environment = {**os.environ, "HOME": room, "TMPDIR": room, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{room}/hypothesis"
        for _ in range(2):  # the kernel counts all of a user's processes, those that still die as well
            run = subprocess.run(
                [*command, *options, *tests],
                cwd=HERE.parents[1],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if run.returncode == 0:
                break
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-1000:]
    assert "100%" in run.stdout

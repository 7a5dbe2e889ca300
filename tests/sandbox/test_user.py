"""Runs the tests of this folder as an ordinary user, if they run as root, so that one run covers both."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent
AGAIN = (
    "test_conformance.py",
    "backends/namespaces/test_backend.py",
    "backends/namespaces/test_landlock_backend.py",
    "files/test_layer.py",
)


def nobodys_number() -> int:
    """Return a user without processes: those of another run on this machine would count as ours."""
    return 20_000 + os.getpid() % 40_000


@pytest.mark.corpus
@pytest.mark.skipif(not hasattr(os, "setresuid"), reason="needs Linux")
@pytest.mark.parametrize("name", AGAIN)
def test_an_ordinary_user_can_do_all_of_it(name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("the tests run as an ordinary user already")
    user = nobodys_number()
    with tempfile.TemporaryDirectory() as room:
        os.chown(room, user, user)
        command = [sys.executable, "-m", "tests.as_user", str(user), sys.executable, "-m", "pytest"]
        command += ["-q", "-m", "not slow and not machines", "-p", "no:schemathesis", "-rs"]
        command += [f"--basetemp={room}/base", "-o", f"cache_dir={room}/cache"]
        environment = {**os.environ, "HOME": room, "TMPDIR": room, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["HYPOTHESIS_STORAGE_DIRECTORY"] = f"{room}/hypothesis"
        run = subprocess.run(
            [*command, str(HERE / name)],
            cwd=HERE.parents[1],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-1000:]
    assert "100%" in run.stdout

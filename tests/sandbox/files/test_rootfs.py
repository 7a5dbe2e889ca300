"""The paths at which the interpreter may be installed."""

import importlib.metadata
import json
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

import ostinato
from ostinato.sandbox import Backend
from ostinato.sandbox.files import rootfs

NEEDED = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from ostinato.sandbox import Spec
from ostinato.sandbox.backends.namespaces.backend import NsBackend

async def main():
    backend = NsBackend()
    sandbox = await backend.create(Spec(repo=Path(sys.argv[1])))
    runs = [await sandbox.exec("python -m pytest -q"), await sandbox.exec("python -m pytest -q")]
    seen = await sandbox.exec(f"ls /tmp; touch {sys.prefix}/evil; python -c 'import sys; print(sys.prefix)'")
    after = await sandbox.exec("touch /tmp/new && ls /tmp | wc -l")
    await backend.aclose()
    print(json.dumps({
        "codes": [run.exit_code for run in runs], "same": runs[0] is runs[1], "prefix": sys.prefix,
        "seen": seen.output, "after": after.output,
    }))

asyncio.run(main())
"""


@pytest.fixture
def python() -> Iterator[Path]:
    """Return an interpreter below /tmp that has pytest and this package."""
    with tempfile.TemporaryDirectory(dir=rootfs.TMP) as directory:
        venv.create(directory, symlinks=True, with_pip=False)
        packages = next(Path(directory).glob("lib/python3*/site-packages"))
        for name in NEEDED:
            for file in importlib.metadata.files(name) or ():
                if ".." not in file.parts:
                    (packages / file).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(Path(str(file.locate())), packages / file)
        (packages / "ostinato.pth").write_text(str(Path(ostinato.__file__).parents[1]))
        yield Path(directory, "bin", "python")


def test_a_python_below_tmp_stays_visible_and_read_only(
    ns_backend: Backend, python: Path, repo: Path
) -> None:
    command = [str(python), "-W", "error", "-c", SCRIPT, str(repo)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    told = json.loads(run.stdout)
    assert told["codes"] == [0, 0]
    assert told["same"], "what lies below /tmp from the start is no trace of a command"
    listed, refused, prefix = told["seen"].splitlines()
    assert "Read-only" in refused
    assert [told["prefix"]] == [prefix]
    assert Path(prefix).relative_to(rootfs.TMP).parts[0] == listed
    assert told["after"].strip() == "2"


def test_a_python_where_sandboxes_have_the_repository_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", f"{rootfs.REPO}/.venv")
    with pytest.raises(RuntimeError, match="install it elsewhere"):
        rootfs.python_prefixes()

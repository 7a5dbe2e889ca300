"""Dependencies, recorded once and installed again without a network: wheels only, so nothing of them runs.

record(requirements, wheelhouse) ── pip download, over whatever index pip is configured with ──► lock
install(lock, wheelhouse, target) ── pip install --no-index --require-hashes ──► target
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ostinato.sandbox.base import SandboxError

Lock = Mapping[str, str]
"""File name of a wheel to its SHA-256."""


def record(requirements: Path, wheelhouse: Path, *, find: Path | None = None) -> dict[str, str]:
    """Bring the wheels for a requirements file to `wheelhouse`; `find`: take them from there, offline.

    Raises SandboxError with what pip says.
    """
    wheelhouse.mkdir(parents=True, exist_ok=True)
    place = ["--no-index", "--find-links", str(find)] if find is not None else []
    _pip(
        "download",
        "--only-binary=:all:",
        *place,
        "--dest",
        str(wheelhouse),
        "--requirement",
        str(requirements),
    )
    return lock_of(wheelhouse)


def lock_of(wheelhouse: Path) -> dict[str, str]:
    """What lies in a wheelhouse."""
    return {path.name: _digest(path) for path in sorted(wheelhouse.glob("*.whl"))}


def install(lock: Lock, wheelhouse: Path, target: Path) -> None:
    """Exactly the locked wheels into `target`; raises SandboxError for one that is missing or another."""
    for name, digest in lock.items():
        path = wheelhouse / name
        if not path.is_file():
            raise SandboxError(f"{name} is not in {wheelhouse}: record the dependencies again")
        if _digest(path) != digest:
            raise SandboxError(f"{path} is not the wheel that was recorded: record the dependencies again")
    target.mkdir(parents=True)
    if lock:
        wheels = [str(wheelhouse / name) for name in lock]
        _pip("install", "--no-index", "--no-deps", "--no-compile", "--target", str(target), *wheels)
    for path in target.glob("*.dist-info/direct_url.json"):
        path.unlink()  # it names the folder of this machine that the wheel came from
    for path in target.glob("*.dist-info/RECORD"):
        lines = path.read_text().splitlines()
        path.write_text("".join(f"{line}\n" for line in sorted(lines) if "direct_url.json" not in line))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _pip(*arguments: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "--isolated",
        "--disable-pip-version-check",
        "--quiet",
        *arguments,
    ]
    if "--no-index" not in arguments:
        command.remove("--isolated")  # the index that the user has configured
    environment = {**os.environ, "PIP_NO_INPUT": "1", "SOURCE_DATE_EPOCH": "1767225600"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise SandboxError(f"pip {arguments[0]} failed: {done.stderr.strip()[-600:]}")

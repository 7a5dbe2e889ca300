"""Dependencies that are recorded once and installed offline: only wheels, so none of their code runs.

record(requirements, wheelhouse) ── pip download, from the index that pip is configured with ──► lock
install(lock, wheelhouse, target) ── pip install --no-index, of exactly these files ──► target

A requirements file comes from the repository, and the requirements of a wheel from its author. So lines with
more than a name, versions and a marker are refused, and pip runs where it cannot start a process, which any
build and any call of git would need.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ostinato.sandbox.base import SandboxError

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"(?:===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_REQUIREMENT = re.compile(
    rf"(?P<name>{_NAME})\s*(?:\[\s*(?:{_NAME}\s*,?\s*)*\])?"
    rf"\s*(?:{_VERSION}(?:\s*,\s*{_VERSION})*|\(\s*{_VERSION}(?:\s*,\s*{_VERSION})*\s*\))?"
    r"\s*(?:;[\w\s.'\"<>=!~()+-]+?)?(?:\s+--hash=sha(?:256|384|512):[0-9a-f]+)*",
    re.ASCII,
)
"""A requirement by name (PEP 508), with the hashes that pip allows: no URL, path or option."""
_ARCHIVES = (
    ".whl",
    ".zip",
    ".egg",
    ".tar",
    ".gz",
    ".bz2",
    ".xz",
    ".tgz",
    ".tbz",
    ".txz",
    ".tlz",
    ".lz",
    ".lzma",
)
_PIP_ALONE = """
import sys

STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"}
STARTS |= {"os.spawn", "os.fork", "os.forkpty"}

def refuse(event, _):
    if event in STARTS:
        raise PermissionError("a requirement wants to run a program: only finished wheels are accepted")

sys.addaudithook(refuse)
from pip._internal.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""pip in a process that cannot start another, since builds and version control need other programs."""
Lock = Mapping[str, str]
"""The SHA-256 of each wheel by its file name."""


def record(requirements: Path, wheelhouse: Path, *, find: Path | None = None) -> dict[str, str]:
    """Download the wheels for a requirements file to `wheelhouse`, or copy them from `find`, offline.

    Raises SandboxError for a line with more than a name and versions, and with pip's error.
    """
    lines = parsed(requirements)
    wheelhouse.mkdir(parents=True, exist_ok=True)
    source = ["--no-index", "--find-links", str(find.absolute())] if find is not None else []
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as ours:
        ours.writelines(f"{line}\n" for line in lines)
        ours.flush()
        target = ("--dest", str(wheelhouse.absolute()), "--requirement", ours.name)
        _pip("download", "--only-binary=:all:", *source, *target)
    return lock_of(wheelhouse)


def parsed(requirements: Path) -> list[str]:
    """Return the requirements of a file, one a line, without comments. Raises SandboxError for a refused one.

    pip gets these lines instead of the file, so it cannot read them differently.
    """
    try:
        text = requirements.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SandboxError(f"{requirements} cannot be read: {error}") from error
    whole = re.sub(r"\\\r?\n", " ", text)
    lines = [re.sub(r"(^|\s)#.*$", "", line).strip() for line in whole.splitlines()]
    for line in filter(None, lines):
        match = _REQUIREMENT.fullmatch(line)
        if match is None or match["name"].lower().endswith(_ARCHIVES):
            raise SandboxError(
                f"{requirements}: {line[:200]!r} is refused, since it could run code of its own here: "
                "write a name, versions and a marker, and give indexes in pip's configuration"
            )
    return [line for line in lines if line]


def lock_of(wheelhouse: Path) -> dict[str, str]:
    """Return the lock of the wheels in a wheelhouse."""
    return {path.name: _digest(path) for path in sorted(wheelhouse.glob("*.whl"))}


def install(lock: Lock, wheelhouse: Path, target: Path) -> None:
    """Install exactly the locked wheels into `target`. Raises SandboxError for a missing or changed one."""
    for name, digest in lock.items():
        path = wheelhouse / name
        if not path.is_file():
            raise SandboxError(f"{name} is not in {wheelhouse}: record the dependencies again")
        if _digest(path) != digest:
            raise SandboxError(f"{path} is not the wheel that was recorded: record the dependencies again")
    target.mkdir(parents=True)
    if lock:
        wheels = [str((wheelhouse / name).absolute()) for name in lock]
        _pip(
            "install", "--no-index", "--no-deps", "--no-compile", "--target", str(target.absolute()), *wheels
        )
    for path in target.glob("*.dist-info/direct_url.json"):
        path.unlink()  # it names a directory of this machine
    for path in target.glob("*.dist-info/RECORD"):
        lines = path.read_text().splitlines()
        path.write_text("".join(f"{line}\n" for line in sorted(lines) if "direct_url.json" not in line))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _pip(*arguments: str) -> None:
    # pip's configuration counts only for downloads, where it names the index
    isolated = ["--isolated"] if "--no-index" in arguments else []
    command = [
        sys.executable,
        "-I",
        "-c",
        _PIP_ALONE,
        *isolated,
        "--disable-pip-version-check",
        "--quiet",
        *arguments,
    ]
    environment = {**os.environ, "PIP_NO_INPUT": "1", "SOURCE_DATE_EPOCH": "1767225600"}
    with tempfile.TemporaryDirectory() as empty:  # here no file has the name of a requirement
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=empty
        )
    if done.returncode != 0:
        raise SandboxError(f"pip {arguments[0]} failed: {done.stderr.strip()[-600:]}")

"""Dependencies, recorded once and installed again without a network: wheels only, so nothing of them runs.

record(requirements, wheelhouse) ── pip download, over whatever index pip is configured with ──► lock
install(lock, wheelhouse, target) ── pip install --no-index, of those very files ──► target

A requirements file is the repository's word, and so is what a wheel requires. Lines that are more than a
name, versions and a marker are refused. And pip runs where no process can be started: whatever would build,
or ask git, needs one.
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
"""A requirement by name (PEP 508), with the hashes that pip knows beside it: no address, path or option."""
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
_ALONE = """
import sys

BEGINNINGS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"}
BEGINNINGS |= {"os.spawn", "os.fork", "os.forkpty"}

def refuse(event, _):
    if event in BEGINNINGS:
        raise PermissionError("something here wants to run a program: only finished wheels are taken")

sys.addaudithook(refuse)
from pip._internal.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""pip in a process that starts no other: builds and version control are all done by programs."""
Lock = Mapping[str, str]
"""File name of a wheel to its SHA-256."""


def record(requirements: Path, wheelhouse: Path, *, find: Path | None = None) -> dict[str, str]:
    """Bring the wheels for a requirements file to `wheelhouse`; `find`: take them from there, offline.

    Raises SandboxError for a line that is more than a name and versions, and with what pip says.
    """
    lines = parsed(requirements)
    wheelhouse.mkdir(parents=True, exist_ok=True)
    place = ["--no-index", "--find-links", str(find.absolute())] if find is not None else []
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as ours:
        ours.writelines(f"{line}\n" for line in lines)
        ours.flush()
        target = ("--dest", str(wheelhouse.absolute()), "--requirement", ours.name)
        _pip("download", "--only-binary=:all:", *place, *target)
    return lock_of(wheelhouse)


def parsed(requirements: Path) -> list[str]:
    """The requirements of a file, one a line, without comments; raises SandboxError for one that is refused.

    pip is given these lines, not the file: it cannot read them in another way.
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
        wheels = [str((wheelhouse / name).absolute()) for name in lock]
        _pip(
            "install", "--no-index", "--no-deps", "--no-compile", "--target", str(target.absolute()), *wheels
        )
    for path in target.glob("*.dist-info/direct_url.json"):
        path.unlink()  # it names the folder of this machine that the wheel came from
    for path in target.glob("*.dist-info/RECORD"):
        lines = path.read_text().splitlines()
        path.write_text("".join(f"{line}\n" for line in sorted(lines) if "direct_url.json" not in line))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _pip(*arguments: str) -> None:
    # the index that the user has configured counts where one is asked
    alone = ["--isolated"] if "--no-index" in arguments else []
    command = [
        sys.executable,
        "-I",
        "-c",
        _ALONE,
        *alone,
        "--disable-pip-version-check",
        "--quiet",
        *arguments,
    ]
    environment = {**os.environ, "PIP_NO_INPUT": "1", "SOURCE_DATE_EPOCH": "1767225600"}
    with tempfile.TemporaryDirectory() as nowhere:  # where no file is named like a requirement
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=nowhere
        )
    if done.returncode != 0:
        raise SandboxError(f"pip {arguments[0]} failed: {done.stderr.strip()[-600:]}")

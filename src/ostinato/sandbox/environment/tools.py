"""The programs that read and build images: umoci, skopeo and buildah, each a package of Debian."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ostinato.sandbox.base import SandboxError

PATIENCE_S = 3600


def run_tool(*command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Return the output of a program. Raises SandboxError, with its last words, if it fails or is missing."""
    done = start_tool(*command, cwd=cwd, environment=environment)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-600:]
        raise SandboxError(f"{command[0]} failed: {said}")
    return done.stdout


def start_tool(
    *command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. Raises SandboxError when it is missing or never ends."""
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    if shutil.which(command[0], path=path) is None:
        raise SandboxError(f"{command[0]} is not installed: on Debian, `apt-get install {command[0]}`")
    names = ("HOME", "TMPDIR", "XDG_RUNTIME_DIR")
    own = {name: os.environ[name] for name in names if name in os.environ}
    try:
        return subprocess.run(
            command,
            cwd=cwd or "/",
            env={**own, "PATH": path, "LANG": "C.UTF-8", **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxError(
            f"{command[0]} did not end within {PATIENCE_S} s: {' '.join(command)[:300]}"
        ) from error

"""The programs that a task needs and that a sandbox must find on this machine."""

import re
import shutil
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ostinato.sandbox.base import SandboxError

_IMAGES = {
    **{"python": "python3", "node": "node", "golang": "go", "rust": "cargo", "ruby": "ruby", "php": "php"},
    **{"perl": "perl", "gcc": "gcc", "openjdk": "java", "eclipse-temurin": "java", "maven": "mvn"},
    **{"gradle": "gradle", "elixir": "elixir", "erlang": "erl", "swift": "swift", "mono": "mono"},
    **{"haskell": "ghc", "julia": "julia", "r-base": "Rscript", "denoland/deno": "deno", "oven/bun": "bun"},
}
"""The program for which a Dockerfile uses a base image."""
_FROM = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)", re.IGNORECASE | re.MULTILINE)

_TAG = re.compile(r":[^/:]*$")
"""The tag at the end of an image's name; a colon before a slash belongs to the registry's port."""


def needs(task: Path) -> tuple[str, ...]:
    """Return the programs of `[metadata.ostinato] needs`, else of the base image of the Dockerfile."""
    declared = _declared(task)
    if declared is not None:
        return declared
    dockerfile = task / "environment" / "Dockerfile"
    images = _FROM.findall(dockerfile.read_text(encoding="utf-8")) if dockerfile.is_file() else []
    if not images:
        return ()
    name = _TAG.sub("", images[-1].partition("@")[0])
    program = _IMAGES.get(name) or _IMAGES.get(name.rpartition("/")[2])
    return (program,) if program else ()


def _declared(task: Path) -> tuple[str, ...] | None:
    path = task / "task.toml"
    settings: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    declared = settings.get("metadata", {}).get("ostinato", {}).get("needs")
    return None if declared is None else tuple(str(name) for name in declared)


def check(programs: Iterable[str], what: Path) -> None:
    """Raise a SandboxError that names missing programs."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise SandboxError(
            f"{what} needs {', '.join(missing)}, which this machine lacks: install it below /usr"
        )

"""Images from a Dockerfile, built by buildah without a network.

    Dockerfile + context ──buildah, --pull-never, no network──► image ──► OCI layout ──umoci──► store/DIGEST
    bases: NAME=archive ──imported under that name──┘

Nothing is fetched: a base image comes from a file, and a step that wants a network fails. The error names
the line of the Dockerfile.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ostinato.sandbox.base import Image, SandboxError
from ostinato.sandbox.environment import images
from ostinato.sandbox.environment.tools import run_tool, start_tool
from ostinato.sandbox.files import tree

_STEP = re.compile(r"^STEP (\d+)/\d+: (.*)$", re.MULTILINE)
_REMOTE = re.compile(r"^ADD\s+(?:--\S+\s+)*(?:\S+\s+)*?((?:https?|git|ssh)://\S+|git@\S+)", re.IGNORECASE)
_FROM = re.compile(r"^FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction of a Dockerfile, with the number of its first line.

    >>> Instruction(line=1, text="FROM debian:12").text
    'FROM debian:12'
    """

    line: int
    text: str


def instructions(text: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile without comments; lines that end with a backslash go on."""
    found: list[Instruction] = []
    pending, begun = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("#") or (not stripped and not pending):
            continue
        begun = begun if pending else number
        pending += stripped
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        found.append(Instruction(line=begun, text=pending))
        pending = ""
    return found


def check(dockerfile: Path, bases: Mapping[str, Path]) -> None:
    """Raise SandboxError for an instruction that would fetch: a base without a file, or a remote ADD."""
    stages: set[str] = {"scratch"}
    for each in instructions(dockerfile.read_text(encoding="utf-8")):
        if match := _REMOTE.match(each.text):
            raise SandboxError(
                f"{dockerfile}:{each.line}: ADD fetches {match[1]}, and nothing is fetched: "
                "put the file beside it"
            )
        if (match := _FROM.match(each.text)) is None:
            continue
        if match[1] not in bases and match[1] not in stages:
            raise SandboxError(
                f"{dockerfile}:{each.line}: the base image {match[1]} would be fetched: give it as a file, "
                f"--base {match[1]}=ARCHIVE"
            )
        stages |= {match[2]} if match[2] else set()


def build(context: Path, store: Path, bases: Mapping[str, Path]) -> Image:
    """Build `context/Dockerfile`, with the archives of its base images by name. Raises SandboxError."""
    dockerfile = context / "Dockerfile"
    if not dockerfile.is_file():
        raise SandboxError(f"{context} has no Dockerfile: give an image with --image, or write one")
    check(dockerfile, bases)
    files = {name: images.file_digest(path) for name, path in sorted(bases.items())}
    state = json.dumps([tree.digest(str(context)), files])
    digest = hashlib.sha256(state.encode()).hexdigest()[:32]
    return images.cached(store, digest, lambda place: _build(context, store, bases, place))


def _build(context: Path, store: Path, bases: Mapping[str, Path], place: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ostinato-buildah-") as runtime:
        buildah = ("buildah", f"--root={place / 'storage'}", f"--runroot={runtime}", "--storage-driver=vfs")
        for name, archive in bases.items():
            _import(buildah, name, images.unpack(archive, store))
        alone = ("unshare", "--net", *(() if os.geteuid() == 0 else ("--map-root-user",)))
        options = ("--isolation=chroot", "--pull-never", "--format=oci", "--tag=ostinato-built")
        done = start_tool(
            *alone, *buildah, "bud", *options, "--file", str(context / "Dockerfile"), str(context)
        )
        if done.returncode:
            raise SandboxError(_reason(context / "Dockerfile", done.stdout, done.stderr))
        run_tool(*buildah, "push", "--quiet", "ostinato-built", f"oci:{place / 'layout'}:x")
    images.write_layout(place / "layout", place, images.MOST_BYTES)
    shutil.rmtree(place / "storage", ignore_errors=True)


def _import(buildah: tuple[str, ...], name: str, image: Image) -> None:
    """Make an image of buildah's storage, with this name, of unpacked files and their settings."""
    container = run_tool(*buildah, "from", "scratch").strip()
    mount = run_tool(*buildah, "mount", container).strip()
    shutil.copytree(image.root, mount, symlinks=True, dirs_exist_ok=True)
    run_tool(*buildah, "umount", container)
    settings = [f"--env={key}={value}" for key, value in image.environment.items()]
    workdir = [] if image.workdir == "/repo" else [f"--workingdir={image.workdir}"]
    run_tool(*buildah, "config", *settings, *workdir, container)
    run_tool(*buildah, "commit", "--quiet", container, name)
    run_tool(*buildah, "rm", container)


def _reason(dockerfile: Path, output: str, errors: str) -> str:
    """Return which line could not be built and why, from buildah's output."""
    steps = _STEP.findall(output) or _STEP.findall(errors)
    said = [line for line in (output + "\n" + errors).splitlines() if line and not line.startswith("STEP ")]
    why = "\n".join(said[-6:])[-800:]
    listed = instructions(dockerfile.read_text(encoding="utf-8"))
    if not steps:
        return f"{dockerfile} could not be built: {why}"
    number, text = int(steps[-1][0]), steps[-1][1]
    same = [each.line for each in listed if each.text.split() == text.split()]
    line = same[0] if same else listed[min(number, len(listed)) - 1].line
    return f"{dockerfile}:{line}: `{text[:200]}` failed, without a network: {why}"

"""`ostinato tasks build`: the image of a task's sandboxes, from its Dockerfile or from a file."""

import argparse
import json
import os
import sys
from pathlib import Path

from ostinato.sandbox.base import Image, SandboxError
from ostinato.sandbox.environment import dockerfile, images
from ostinato.sandbox.environment.repository import write_repository

DONE, FAILED = 0, 1


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `build` to the commands below `ostinato tasks`."""
    build = commands.add_parser(
        "build",
        help="make the image in which a task's commands run",
        description=(
            "Build the image of a Harbor task from its environment/Dockerfile, or unpack one from a file. "
            "Nothing is fetched. A Dockerfile's steps run on this machine: build only what you trust."
        ),
    )
    build.add_argument("directory", type=Path, help="the task's directory")
    build.add_argument(
        "--image",
        type=Path,
        metavar="FILE",
        help="a rootfs archive, a `docker save` file, an OCI archive or layout, instead of the Dockerfile",
    )
    build.add_argument(
        "--base",
        action="append",
        default=[],
        type=_base,
        metavar="NAME=FILE",
        help="the file of a base image that the Dockerfile names; may be repeated",
    )
    build.add_argument(
        "--store", type=Path, help="the folder that keeps images (ostinato/images in the user's cache)"
    )
    build.set_defaults(run=_build)


def default_store() -> Path:
    """Return the folder of images in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "ostinato", "images")


def build(directory: Path, store: Path, *, image: Path | None, bases: dict[str, Path]) -> Image:
    """Make a task's image, note it in `environment/image.json`, and return it.

    A task without `environment/repo` gets the files of the image's working directory as its repository.
    Raises SandboxError, and leaves the task as it was.
    """
    if not (directory / "task.toml").is_file():
        raise SandboxError(f"{directory} is no task: it has no task.toml")
    environment = directory / "environment"
    made = images.unpack(image, store) if image is not None else dockerfile.build(environment, store, bases)
    if not (environment / "repo").is_dir():
        source = made.root / made.workdir.strip("/")
        if not source.is_dir():
            raise SandboxError(
                f"the image has no {made.workdir} to take the task's repository from: write environment/repo"
            )
        write_repository(source, environment / "repo")
    about = {"root": str(made.root.absolute()), "workdir": made.workdir}
    note = json.dumps({**about, "environment": dict(made.environment)}, indent=1) + "\n"
    part = environment / f".{images.ABOUT}.part"
    part.write_text(note)
    part.replace(environment / images.ABOUT)
    return made


def _base(text: str) -> tuple[str, Path]:
    name, sign, path = text.rpartition("=")
    if not sign or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE")
    return name, Path(path)


def _build(options: argparse.Namespace) -> int:
    try:
        store = options.store or default_store()
        made = build(options.directory, store, image=options.image, bases=dict(options.base))
    except SandboxError as error:
        print(f"ostinato: {error}", file=sys.stderr)  # noqa: T201
        return FAILED
    print(f"{options.directory}: commands run in {made.root}, the repository is at {made.workdir}")  # noqa: T201
    return DONE

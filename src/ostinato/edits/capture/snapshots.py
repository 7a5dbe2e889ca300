"""Snapshots of the work tree as git trees, without ignored files, in an index and object folder of our
own."""

import os
import shutil

from ostinato.edits.capture.repository_paths import RepositoryPaths, state_of

TIMEOUT_S = 5.0
FOLDER = "snapshots"


def snapshot(repo: RepositoryPaths) -> str:
    """Return the id of the tree. Raise subprocess.SubprocessError when git fails or takes too long."""
    _git(repo, "add", "--all")
    return _git(repo, "write-tree")


def environment(repo: RepositoryPaths) -> dict[str, str]:
    """Return the environment in which git uses our folder, and reads the repository's objects too."""
    own = _folder(repo)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return clean | {
        "GIT_INDEX_FILE": os.path.join(own, "index"),
        "GIT_OBJECT_DIRECTORY": os.path.join(own, "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.path.join(repo.common, "objects"),
    }


def clear(repo: RepositoryPaths) -> None:
    shutil.rmtree(os.path.join(state_of(repo), FOLDER), ignore_errors=True)


def _folder(repo: RepositoryPaths) -> str:
    """Return the folder of this work tree."""
    return os.path.join(state_of(repo), FOLDER, os.path.basename(repo.git_dir))


def _git(repo: RepositoryPaths, *arguments: str) -> str:
    import subprocess

    own = _folder(repo)
    os.makedirs(os.path.join(own, "objects"), mode=0o700, exist_ok=True)
    index, real = os.path.join(own, "index"), os.path.join(repo.git_dir, "index")
    if not os.path.exists(index) and os.path.exists(real):
        shutil.copyfile(real, index)
    command = [
        "git",
        "-C",
        repo.root,
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.safecrlf=false",
        *arguments,
    ]
    done = subprocess.run(
        command, capture_output=True, check=True, env=environment(repo), timeout=TIMEOUT_S, input=b""
    )
    return done.stdout.decode().strip()

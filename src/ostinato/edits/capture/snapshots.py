"""Snapshots of the work tree as git trees, without ignored files, in an index and object folder of our
own."""

import os
import shutil
import subprocess
import time
from functools import cached_property

from ostinato.edits.capture.repository_paths import RepositoryPaths, state_of
from ostinato.git import environment, links_in

TIMEOUT_S = 5.0
FOLDER = "snapshots"
SETTINGS = ("core.safecrlf=false", "advice.addEmbeddedRepo=false")


class IndexGit:
    """Git with an index and an object folder in `own`, for a work tree; all calls end within `timeout_s`."""

    def __init__(self, repo: RepositoryPaths, own: str, timeout_s: float) -> None:
        self._repo, self._own = repo, own
        self._deadline = time.monotonic() + timeout_s
        os.makedirs(os.path.join(own, "objects"), mode=0o700, exist_ok=True)
        index, real = os.path.join(own, "index"), os.path.join(repo.git_dir, "index")
        if not os.path.exists(index) and os.path.exists(real):
            shutil.copyfile(real, index)

    def __call__(self, *arguments: str, given: bytes = b"", accepted: tuple[int, ...] = (0,)) -> bytes:
        """Return the output. Raise subprocess.SubprocessError when git fails or takes too long."""
        command = ["git", "-C", self._repo.root, *(word for each in SETTINGS for word in ("-c", each))]
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            check=False,
            env=self._environment,
            timeout=self._left_s,
            input=given,
        )
        if done.returncode not in accepted:
            raise subprocess.CalledProcessError(
                done.returncode, [*command, *arguments], done.stdout, done.stderr
            )
        return done.stdout

    @cached_property
    def _environment(self) -> dict[str, str]:
        """The environment of all commands: it is read once, since a client waits for the hook."""
        return environment(self._repo.root, environment_of(self._repo, self._own), timeout_s=self._left_s)

    @property
    def _left_s(self) -> float:
        return max(0.01, self._deadline - time.monotonic())

    def add_all(self, *options: str, accepted: tuple[int, ...] = (0,)) -> None:
        """Put the work tree into the index; of a nested repository its commit alone."""
        if links := links_in(self("ls-files", "--stage", "-z")):
            self("update-index", "--force-remove", "-z", "--stdin", given=links)
        self("add", "--all", *options, accepted=accepted)


def snapshot(repo: RepositoryPaths) -> str:
    """Return the id of the tree. Raise subprocess.SubprocessError when git fails or takes too long."""
    git = IndexGit(repo, _folder(repo), TIMEOUT_S)
    git.add_all()
    return git("write-tree").decode().strip()


def reading(repo: RepositoryPaths) -> dict[str, str]:
    """Return the environment in which git reads the objects of the snapshots.

    Raises subprocess.SubprocessError where the repository's settings cannot be read.
    """
    return environment(repo.root, environment_of(repo, _folder(repo)))


def environment_of(repo: RepositoryPaths, own: str) -> dict[str, str]:
    """Return the environment in which git uses the folder `own`, and reads the repository's objects too."""
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

"""Snapshots of the work tree as git trees, without ignored files, in an index and object folder of our
own."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from ostinato.edits.capture.repository_paths import RepositoryPaths, state_of
from ostinato.git import links_in, pinned, start

TIMEOUT_S, READING_S = 5.0, 60.0
FOLDER = "snapshots"
SETTINGS = ("core.safecrlf=false", "advice.addEmbeddedRepo=false")


class IndexGit:
    """Git in a work tree, under the settings of one moment; all calls end before the `deadline`."""

    def __init__(self, root: str, environment: Mapping[str, str], deadline: float) -> None:
        self._root, self._environment, self._deadline = root, environment, deadline

    @classmethod
    @contextmanager
    def open(cls, repo: RepositoryPaths, own: str, timeout_s: float) -> "Iterator[IndexGit]":
        """Open git with an index and an object folder in `own`; the settings are read once, since a client
        waits for the hook. Raise subprocess.SubprocessError where they cannot be read."""
        deadline = time.monotonic() + timeout_s
        os.makedirs(os.path.join(own, "objects"), mode=0o700, exist_ok=True)
        index, real = os.path.join(own, "index"), os.path.join(repo.git_dir, "index")
        if not os.path.exists(index) and os.path.exists(real):
            shutil.copyfile(real, index)
        with pinned(repo.root, environment_of(repo, own), timeout_s=timeout_s) as environment:
            yield cls(repo.root, environment, deadline)

    def __call__(self, *arguments: str, given: bytes = b"", accepted: tuple[int, ...] = (0,)) -> bytes:
        """Return the output. Raise subprocess.SubprocessError when git fails or takes too long."""
        words = [*(word for each in SETTINGS for word in ("-c", each)), *arguments]
        left_s = max(0.01, self._deadline - time.monotonic())
        done = start(self._root, *words, environment=self._environment, given=given, timeout_s=left_s)
        if done.returncode not in accepted:
            raise subprocess.CalledProcessError(done.returncode, words, done.stdout, done.stderr)
        return done.stdout

    def add_all(self, *options: str, accepted: tuple[int, ...] = (0,)) -> None:
        """Put the work tree into the index; of a nested repository its commit alone."""
        if links := links_in(self("ls-files", "--stage", "-z")):
            self("update-index", "--force-remove", "-z", "--stdin", given=links)
        self("add", "--all", *options, accepted=accepted)


def snapshot(repo: RepositoryPaths) -> str:
    """Return the id of the tree. Raise subprocess.SubprocessError when git fails or takes too long."""
    with IndexGit.open(repo, _folder(repo), TIMEOUT_S) as git:
        git.add_all()
        return git("write-tree").decode().strip()


def reading(repo: RepositoryPaths) -> AbstractContextManager[IndexGit]:
    """Return git with the objects of the snapshots.

    Raises subprocess.SubprocessError where the repository's settings cannot be read.
    """
    return IndexGit.open(repo, _folder(repo), READING_S)


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

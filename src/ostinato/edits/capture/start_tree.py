"""The tree at the start of a session, in a folder that is a bare repository of its own."""

import os
import shutil
import subprocess

from ostinato.edits.capture.repository_paths import RepositoryPaths, size_of
from ostinato.edits.capture.snapshots import IndexGit

TIMEOUT_S = 4.0
"""The most that a client waits for git; Claude Code waits 10 s for a hook."""
MOST_BYTES = 16 << 20
"""Bytes of the files that differ from the index, or that git does not know."""


def take(repo: RepositoryPaths, folder: str, before: tuple[str, str | None] | None) -> tuple[str, str]:
    """Return the id of the tree, and why there is none; one of the two is empty.

    `before` is the path of a file and the text that the tree shall have there. A folder of which nothing came
    is removed.
    """
    try:
        _make(repo, folder)
        with IndexGit.open(repo, folder, TIMEOUT_S) as git:
            listed = git("ls-files", "--others", "--modified", "--exclude-standard", "-z").split(b"\0")
            size = sum(size_of(os.path.join(repo.root, os.fsdecode(path))) for path in listed if path)
            if size <= MOST_BYTES:
                git.add_all("--ignore-errors", accepted=(0, 1))
                if before is not None:
                    _put_back(git, *before)
                return git("write-tree").decode().strip(), ""
        why = f"more than {MOST_BYTES >> 20} MiB were not committed"
    except subprocess.TimeoutExpired:
        why = f"git took more than {TIMEOUT_S:.0f} s"
    except subprocess.CalledProcessError as error:
        why = f"git failed: {error.stderr.decode(errors='replace').strip()[-200:]}"
    except subprocess.SubprocessError as error:
        why = str(error)
    except OSError as error:
        why = f"cannot write: {error}"
    shutil.rmtree(folder, ignore_errors=True)
    return "", why


def _put_back(git: IndexGit, path: str, text: str | None) -> None:
    if text is None:
        git("update-index", "--force-remove", "--", path)
        return
    staged = git("ls-files", "--stage", "--", f":(literal){path}").split()
    mode = staged[0].decode() if staged else "100644"
    blob = git("hash-object", "-w", "--stdin", f"--path={path}", given=text.encode()).decode().strip()
    git("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}")


def _make(repo: RepositoryPaths, folder: str) -> None:
    """Make the folder a bare repository that borrows the objects of the person's own."""
    for name in ("objects/info", "refs"):
        os.makedirs(os.path.join(folder, name), mode=0o700, exist_ok=True)
    for name, text in (
        ("objects/info/alternates", os.path.join(repo.common, "objects")),
        ("config", "[core]\n\tbare = true"),
        ("HEAD", "ref: refs/heads/none"),
    ):
        with open(os.path.join(folder, name), "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text + "\n")

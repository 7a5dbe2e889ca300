"""The work tree as a session of an outside client found it, from which a task can be mined later.

::

    SessionStart ─► UserPromptSubmit ─► the first call that may change files ─► later calls
       tree      ─►      tree        ─►       tree, which stays              ─►  nothing

Each session has a folder below `.git/ostinato/starts`. It has the form of a bare repository that borrows the
objects of the person's own, so it holds only what was not committed. A tree that is too large, or takes too
long, leaves a reason in its place and is not tried again, so that a client waits once at most.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ostinato.edits.capture import spool
from ostinato.edits.capture.repository_paths import RepositoryPaths, size_of, state_of

FOLDER, START, EDITED = "starts", "start.json", "edited.jsonl"
LOCK = "starts.lock"
MOST = 100
"""The sessions that are kept; those whose tree is the oldest leave."""


def keep(
    repo: RepositoryPaths, session_id: str, *, last: bool, before: tuple[str, str | None] | None = None
) -> None:
    """Keep the tree as it is now as that of the session's start, unless the last one was kept already.

    Without `last` the next event may replace it. `before` is the path of a file and its text, None for no
    file: it is put back into the tree, for clients that report an edit after it was made. What git or the
    work tree refuses becomes the reason why there is no tree.
    """
    if not is_open(repo, session_id):
        return
    from ostinato.edits.capture.start_tree import take

    folder = folder_of(state_of(repo), session_id)
    with _lock(state_of(repo)):  # calls may begin side by side
        if is_open(repo, session_id):
            tree, why = take(repo, folder, before)
            _write(folder, repo, session_id, tree=tree, why=why, last=last or not tree)


def leave_out(repo: RepositoryPaths, session_id: str, why: str) -> None:
    """Keep the tree that is there for good; a session without one has none for the reason `why`."""
    folder = folder_of(state_of(repo), session_id)
    if is_open(repo, session_id):
        tree = str((read(folder) or {}).get("tree", ""))
        _write(folder, repo, session_id, tree=tree, why="" if tree else why, last=True)


def is_known(repo: RepositoryPaths, session_id: str) -> bool:
    return read(folder_of(state_of(repo), session_id)) is not None


def is_open(repo: RepositoryPaths, session_id: str) -> bool:
    """Return whether the next event may still keep a tree."""
    start = read(folder_of(state_of(repo), session_id))
    return start is None or not start["last"]


def add_edited(state: str, session_id: str, path: str) -> None:
    """Note a file that the session edited, if its start was kept."""
    folder = folder_of(state, session_id)
    if os.path.exists(os.path.join(folder, START)):
        with open(os.path.join(folder, EDITED), "a", encoding="utf-8") as file:
            file.write(json.dumps(path) + "\n")


def read(folder: str) -> dict[str, object] | None:
    """Return what was kept of a session: `session_id`, `root`, `at`, `tree`, `why` and `last`."""
    path = os.path.join(folder, START)
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        start: dict[str, object] = json.load(file)
    return start


def edited(folder: str) -> tuple[str, ...]:
    """Return the files that a session edited, each once, as paths in its repository."""
    path = os.path.join(folder, EDITED)
    if not size_of(path):
        return ()
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")[:-1]  # a line that a crash cut short has no end
    return tuple(dict.fromkeys(json.loads(line) for line in lines))


def folders(state: str) -> Iterator[str]:
    """Yield the folders of the sessions whose start was kept, the oldest first."""
    above = os.path.join(state, FOLDER)
    names = os.listdir(above) if os.path.isdir(above) else []
    paths = [os.path.join(above, name, START) for name in names]
    for path in sorted(filter(os.path.exists, paths), key=os.path.getmtime):
        yield os.path.dirname(path)


def folder_of(state: str, session_id: str) -> str:
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in session_id)
    return os.path.join(state, FOLDER, name[:200] or "_")


@contextmanager
def _lock(state: str) -> Iterator[None]:
    with open(os.open(os.path.join(state, LOCK), os.O_RDWR | os.O_CREAT, 0o600), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write(folder: str, repo: RepositoryPaths, session_id: str, *, tree: str, why: str, last: bool) -> None:
    import shutil
    import time

    facts = {"session_id": session_id, "root": repo.root, "at": time.time(), "tree": tree, "why": why}
    spool.write(os.path.join(folder, START), {**facts, "last": last}, sync=False)
    for old in list(folders(state_of(repo)))[:-MOST]:
        shutil.rmtree(old, ignore_errors=True)

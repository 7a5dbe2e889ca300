"""The work tree as a git tree, ignored files left out, in an index and object folder of our own."""

import os
import shutil

from ostinato.edits.capture.places import Places, state_of

TIMEOUT_S = 5.0
FOLDER = "snapshots"


def snapshot(places: Places) -> str:
    """Id of the tree. Raises subprocess.SubprocessError when git fails or takes too long."""
    _git(places, "add", "--all")
    return _git(places, "write-tree")


def environment(places: Places) -> dict[str, str]:
    """What makes git read and write our folder; the repository's objects are read too."""
    own = _folder(places)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {
        "GIT_INDEX_FILE": os.path.join(own, "index"),
        "GIT_OBJECT_DIRECTORY": os.path.join(own, "objects"),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": os.path.join(places.common, "objects"),
    }


def clear(places: Places) -> None:
    shutil.rmtree(os.path.join(state_of(places), FOLDER), ignore_errors=True)


def _folder(places: Places) -> str:
    """One for each work tree."""
    return os.path.join(state_of(places), FOLDER, os.path.basename(places.git_dir))


def _git(places: Places, *arguments: str) -> str:
    import subprocess

    own = _folder(places)
    os.makedirs(os.path.join(own, "objects"), mode=0o700, exist_ok=True)
    index, real = os.path.join(own, "index"), os.path.join(places.git_dir, "index")
    if not os.path.exists(index) and os.path.exists(real):
        shutil.copyfile(real, index)
    command = [
        "git",
        "-C",
        places.root,
        "-c",
        "core.fsmonitor=false",
        "-c",
        "core.safecrlf=false",
        *arguments,
    ]
    done = subprocess.run(
        command, capture_output=True, check=True, env=environment(places), timeout=TIMEOUT_S, input=b""
    )
    return done.stdout.decode().strip()

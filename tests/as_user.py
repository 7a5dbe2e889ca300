"""Runs a command as another user who can reach this Python: `python -m tests.as_user UID COMMAND…`.

Root's Python may lie in root's home, which others cannot enter. In a mount namespace of its own such a
directory is covered by an open one that holds the interpreter alone, at the same path.
"""

import os
import sys
from pathlib import Path

from ostinato.sandbox import linux


def main() -> None:
    user, command = int(sys.argv[1]), sys.argv[2:]
    linux.unshare(linux.NEW_MOUNT)
    linux.mount("none", "/", "none", linux.PRIVATE | linux.RECURSIVE)
    for prefix in sorted({sys.base_prefix, sys.prefix, str(Path.cwd())}):
        uncover(Path(prefix))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.execvp(command[0], command)


def uncover(prefix: Path) -> None:
    """Let everybody reach `prefix`, and nothing else of the directories that are shut above it."""
    shut = next((each for each in reversed(prefix.parents) if not each.stat().st_mode & 0o001), None)
    if shut is None:
        return
    kept = os.open(prefix, os.O_PATH)
    linux.mount("tmpfs", str(shut), "tmpfs", linux.NOSUID, "mode=755")
    prefix.mkdir(parents=True)
    linux.mount(f"/proc/self/fd/{kept}", str(prefix), "none", linux.BIND | linux.RECURSIVE)
    os.close(kept)


if __name__ == "__main__":
    main()

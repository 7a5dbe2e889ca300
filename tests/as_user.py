"""Run a command as another user, who can reach this Python: `python -m tests.as_user UID COMMAND…`.

Root's Python may lie in root's home, which others cannot enter. In a mount namespace of its own, such a
directory is covered by an open one that holds nothing but the interpreter, at the same path.
"""

import os
import sys
from pathlib import Path

from ostinato.sandbox.linux import syscalls


def main() -> None:
    user, command = int(sys.argv[1]), sys.argv[2:]
    syscalls.unshare(syscalls.NEW_MOUNT)
    syscalls.mount("none", "/", "none", syscalls.PRIVATE | syscalls.RECURSIVE)
    for prefix in sorted({sys.base_prefix, sys.prefix, str(Path.cwd())}):
        uncover(Path(prefix))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.execvp(command[0], command)


def uncover(prefix: Path) -> None:
    """Let every user reach `prefix`, and nothing else below the closed directories above it."""
    shut = next((each for each in reversed(prefix.parents) if not each.stat().st_mode & 0o001), None)
    if shut is None:
        return
    kept = os.open(prefix, os.O_PATH)
    syscalls.mount("tmpfs", str(shut), "tmpfs", syscalls.NOSUID, "mode=755")
    prefix.mkdir(parents=True)
    syscalls.mount(f"/proc/self/fd/{kept}", str(prefix), "none", syscalls.BIND | syscalls.RECURSIVE)
    os.close(kept)


if __name__ == "__main__":
    main()

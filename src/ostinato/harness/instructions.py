"""The instructions of a repository to agents: AGENTS.md, or CLAUDE.md where a directory has no AGENTS.md.

The root's text is part of the system message from the first turn on. The text of a nested directory comes
with the first result about a file in it. A repository without such files adds nothing, so practice reads the
same tokens as ever. The text is the repository's, not the user's: it cannot change what is permitted.
"""

import posixpath
from collections.abc import Iterator

from ostinato.harness.tools.names import shown
from ostinato.sandbox.base import Sandbox, SandboxError

NAMES = ("AGENTS.md", "CLAUDE.md")
MOST_CHARS = 24_000


async def at_root(sandbox: Sandbox) -> str:
    """Return the text that follows the system prompt; empty without instructions. Raises SandboxError."""
    found = await _read(sandbox, ".")
    return f"\n\nInstructions of this repository ({found[0]}):\n\n{found[1]}" if found else ""


async def below(sandbox: Sandbox, path: str, told: set[str]) -> str:
    """Return the instructions of the directories above `path` that are not in `told`, and add them to it."""
    texts = []
    for directory in _above(path):
        if directory in told:
            continue
        told.add(directory)
        found = await _read(sandbox, directory)
        if found:
            texts.append(f"\n\n[instructions of {shown(directory)}/{found[0]}]\n{found[1]}")
    return "".join(texts)


async def _read(sandbox: Sandbox, directory: str) -> tuple[str, str] | None:
    """Return the name and text of a directory's instructions; a link that leads elsewhere is not read."""
    try:
        names = await sandbox.list(directory)
    except OSError:
        return None
    name = next((name for name in NAMES if name in names), None)
    if name is None:
        return None
    try:
        text = (await sandbox.read(posixpath.join(directory, name))).decode(errors="replace").strip()
    except (OSError, SandboxError):
        return None
    cut = f"\n[cut after {MOST_CHARS} characters]" if len(text) > MOST_CHARS else ""
    return (name, text[:MOST_CHARS] + cut) if text else None


def _above(path: str) -> Iterator[str]:
    """Yield `a` and `a/b` for `a/b/c.py`; nothing for a path that leads elsewhere."""
    parts = posixpath.normpath(path).split("/")[:-1]
    if parts[:1] in ([""], [".."]):
        return
    for end in range(1, len(parts) + 1):
        yield "/".join(parts[:end])

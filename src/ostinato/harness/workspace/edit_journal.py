"""The edit journal of the repository, which gets the agent's edits when the person has installed it.

The contract is a file and a command. The file `ostinato/enabled`, in the git directory that all worktrees
share, says that the journal is wanted; `ostinato hook --input stdin` takes one JSON object an edit and never
fails.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ostinato.harness.conversation import Call, Edit
from ostinato.harness.git import locate

AGENT = "ostinato-code"
HOOK = (sys.executable, "-P", "-m", "ostinato", "hook", "--input", "stdin")
"""The command of the hook; `-P` keeps it from importing modules of the repository it runs in."""


class EditJournal:
    """A sender of edits, one after another beside the agent's work; `drain` waits for the last."""

    def __init__(self, root: Path, common: Path, command: Sequence[str] = HOOK) -> None:
        self._root = root
        self._enabled = common / "ostinato" / "enabled"
        self._command = command
        self._lock = asyncio.Lock()
        self._sending: set[asyncio.Task[None]] = set()

    @classmethod
    async def of(cls, root: Path) -> "EditJournal":
        return cls(root, (root / await locate(root, "--git-common-dir")).resolve())

    @property
    def wanted(self) -> bool:
        """True where the person has installed the journal."""
        return self._enabled.exists()

    def tell(self, session_id: str, turn: int | None, model: str, call: Call, edit: Edit) -> None:
        """Send one edit, unless the journal is not wanted, the file is no text, or its text stayed."""
        texts = _texts(edit)
        if texts is None or texts[0] == texts[1] or not self.wanted:
            return
        event = {
            "hook_event_name": "edit.proposed",
            "session_id": session_id,
            "cwd": str(self._root),
            "path": edit.path,
            "before": texts[0],
            "after": texts[1],
            "turn": turn,
            "tool_use_id": call.id,
            "tool_name": call.tool,
            "agent": AGENT,
            "model": model,
        }
        task = asyncio.ensure_future(self._send(json.dumps(event).encode()))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def drain(self) -> None:
        await asyncio.gather(*self._sending)

    async def _send(self, event: bytes) -> None:
        async with self._lock:  # the journal reads edits in the order in which they were made
            process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=self._root,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            await process.communicate(event)


def _texts(edit: Edit) -> tuple[str | None, str | None] | None:
    """Return both contents as text; None when one is no text."""
    try:
        before, after = (None if side is None else side.decode() for side in (edit.before, edit.after))
    except UnicodeDecodeError:
        return None
    return before, after

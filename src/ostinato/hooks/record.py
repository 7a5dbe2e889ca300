"""For code that runs an agent and may import this room: one call an accepted edit.

Rooms that may not import it pipe the same facts, as JSON, to `ostinato hook --input stdin` (see `entry`).
"""

import os
import time

from ostinato.hooks import places as where
from ostinato.hooks import spool


def record_edit(
    repo: str,
    session_id: str,
    turn: int | None,
    path: str,
    *,
    before: str | None,
    after: str | None,
    agent: str = "ostinato",
    tool: str = "edit",
    tool_use_id: str = "",
    model: str = "",
    at: float | None = None,
    start_reporter: bool = True,
) -> bool:
    """Notes that `path` of `repo` went from `before` to `after`, at `at` or now; None is a file that is not.

    False when the repository did not ask for it (`ostinato hooks install`).
    """
    places = where.repository(repo)
    if places is None or not where.is_enabled(where.state_of(places)):
        return False
    full = os.path.join(os.path.realpath(os.path.join(repo, os.path.dirname(path))), os.path.basename(path))
    record = {
        "kind": "edit",
        "session_id": session_id,
        "turn": turn,
        "tool": tool,
        "tool_use_id": tool_use_id,
        "agent": agent,
        "model": model,
        "root": places.root,
        "home": where.head_of(places),
        "reflog": where.size_of(where.reflog_of(places)),
        "stashes": where.size_of(where.stash_log_of(places)),
        "at": time.time() if at is None else at,
        "path": os.path.relpath(full, places.root),
        "before": before,
        "after": after,
        "skip": "",
    }
    spool.put(where.state_of(places), record)
    if start_reporter:
        spool.wake(places)
    return True

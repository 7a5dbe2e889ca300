"""For code that runs an agent and may import this room: one call an accepted edit.

Rooms that may not import it pipe the same facts, as JSON, to `ostinato hook --input stdin` (see `entry`).
"""

import os

from ostinato.edits.capture import entry, spool
from ostinato.edits.capture import places as where


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

    The texts are read as `ostinato hook` reads them: whole, or a piece that stands in the file once. False
    when the repository did not ask for it (`ostinato hooks install`).
    """
    full = os.path.join(repo, path)
    places = where.repository(repo)
    if places is None or not where.is_enabled(where.state_of(places)):
        return False
    told = {
        "session_id": session_id,
        "turn": turn,
        "tool_name": tool,
        "tool_use_id": tool_use_id,
        "agent": agent,
        "model": model,
    }
    record = entry.edit_record(told, places, full, entry.told_texts(full, before, after))
    spool.put(where.state_of(places), record if at is None else {**record, "at": at})
    if start_reporter:
        spool.wake(places)
    return True

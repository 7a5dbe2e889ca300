"""The replay of a session's log to an editor that loads it: the same updates as when it took place."""

from collections.abc import Sequence
from typing import Any

from ostinato.harness.conversation import Call
from ostinato.harness.errors import ToolError
from ostinato.harness.execute import ToolResult
from ostinato.harness.frontends.acp.updates import Updates
from ostinato.harness.profiles.offers import Reading
from ostinato.harness.profiles.profile import PROFILES
from ostinato.harness.session_log import LogEvent, LogEventKind


def replay(updates: Updates, events: Sequence[LogEvent]) -> None:
    """Send messages, calls with their results, the plan and the usage, in order.

    Diffs are left out, since the log holds only the hashes of file contents.
    """
    profile = PROFILES.get(str(events[0].data.get("profile")) if events else "")
    calls: dict[str, Call] = {}
    for event in events:
        data = event.data
        match event.kind:
            case LogEventKind.USER:
                updates.user(data["text"])
            case LogEventKind.REPLY:
                if data["message"].get("content"):
                    updates.say(data["message"]["content"])
                updates.usage(data["tokens"])
            case LogEventKind.CALL:
                meant = profile.reading(data["name"], data["arguments"]) if profile else _as_is(data)
                calls[data["id"]] = Call(
                    id=data["id"], name=data["name"], arguments=data["arguments"], meant=meant
                )
                updates.call(calls[data["id"]])
            case LogEventKind.OBSERVATION if data["id"] in calls:
                error = ToolError(data["text"]) if data["error"] else None
                updates.result(calls.pop(data["id"]), ToolResult(text=data["text"], error=error))


def _as_is(data: Any) -> Reading:
    return Reading(tool=data["tool"], arguments=data["arguments"])


def title_of(events: Sequence[LogEvent]) -> str | None:
    """Return the first words of the user in one line, or None before the first prompt."""
    first = next((event.data["text"] for event in events if event.kind is LogEventKind.USER), None)
    return None if first is None else " ".join(str(first).split())[:80]

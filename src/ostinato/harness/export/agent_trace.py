"""Agent Trace 0.1.0 records of the lines that the session wrote, one record an edit.

Line numbers are those of the file as the edit left it; a later record of the file counts from there.
"""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ostinato import __version__
from ostinato.harness.session_log import LogEvent, LogEventKind
from ostinato.harness.tools.names import shown

VERSION = "0.1.0"


def records(events: Sequence[LogEvent]) -> list[dict[str, Any]]:
    """Return one record for each edit; an edit that only deletes wrote no line and has none."""
    found, model = [], "ostinato"
    for event in events:
        if event.kind is LogEventKind.REPLY and event.data["version"] is not None:
            model = f"ostinato/{event.data['version']}"
        if event.kind is LogEventKind.EDIT and event.data["lines"]:
            found.append(_record(event, events[0].data["id"], model))
    return found


def _record(event: LogEvent, session_id: str, model: str) -> dict[str, Any]:
    data, path = event.data, shown(event.data["path"])
    ranges = [{"start_line": first, "end_line": last, "content_hash": h} for first, last, h in data["lines"]]
    conversation = {
        "url": f"urn:ostinato:session:{session_id}",
        "contributor": {"type": "ai", "model_id": model},
        "ranges": ranges,
    }
    return {
        "version": VERSION,
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{session_id}/{data['id']}/{path}/{event.at}")),
        "timestamp": datetime.fromtimestamp(event.at, UTC).isoformat().replace("+00:00", "Z"),
        "tool": {"name": "ostinato-code", "version": __version__},
        "files": [{"path": path, "conversations": [conversation]}],
        "metadata": {"dev.ostinato": {"after": data["after"], "before": data["before"]}},
    }

"""An exporter: a session as Markdown, for a pull request. `session export --format markdown` prints it."""

from collections.abc import Sequence

import ostinato as o


@o.exporter("markdown")
def markdown(events: Sequence[o.LogEvent]) -> str:
    """Return what was asked and what was answered, each under a heading."""
    parts = []
    for event in events:
        if event.kind is o.LogEventKind.USER:
            parts.append(f"## Asked\n\n{event.data['text']}")
        elif event.kind is o.LogEventKind.REPLY and (text := event.data["message"].get("content")):
            parts.append(f"## Answered\n\n{text}")
    return "\n\n".join(parts)

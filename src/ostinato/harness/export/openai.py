"""One row of chat messages, as fine-tuning files hold them: messages and tools, nothing else."""

from collections.abc import Sequence
from typing import Any

from ostinato.harness.conversation import messages
from ostinato.harness.session_log import LogEvent


def rows(events: Sequence[LogEvent]) -> list[dict[str, Any]]:
    """Return the conversation as one row; no row when the session never began."""
    return [{"messages": messages(events), "tools": events[0].data["tools"]}] if events else []

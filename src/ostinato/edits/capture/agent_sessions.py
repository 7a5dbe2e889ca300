"""The facts about an agent's sessions that are kept between their events."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ostinato.edits.capture.spool import PENDING, write

FILE = "sessions.json"
MOST = 200


class AgentSessions:
    """The models of recent sessions, and their calls that have not ended."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def model(self, session_id: str) -> str:
        return self._models().get(session_id, "")

    def remember(self, session_id: str, model: str) -> None:
        models = self._models() | {session_id: model}
        write(str(self._state / FILE), dict(list(models.items())[-MOST:]))

    def unanswered(self, session_id: str) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield the file and the facts of each call that has not ended."""
        for path in sorted((self._state / PENDING).glob("*.json")):
            call = json.loads(path.read_bytes())
            if call.get("session_id") == session_id:
                yield path, call

    def _models(self) -> dict[str, str]:
        path = self._state / FILE
        models: dict[str, str] = json.loads(path.read_bytes()) if path.exists() else {}
        return models

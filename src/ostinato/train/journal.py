"""A trainer's progress as JSON lines, for displays and plots. Not a record that anything depends on."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Journal:
    """Appends one JSON object a line; a line is written whole, by one system call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, line: Mapping[str, Any]) -> None:
        with self.path.open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")

    def lines(self) -> list[dict[str, Any]]:
        """What was written so far, a line that a kill cut short left out."""
        if not self.path.exists():
            return []
        text = self.path.read_text()
        whole = text[: text.rfind("\n") + 1]
        return [json.loads(line) for line in whole.splitlines() if line.endswith("}")]

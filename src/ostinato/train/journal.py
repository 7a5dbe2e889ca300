"""Growing files of JSON lines: a trainer's progress, for displays and plots, and the looks of fine-tuning."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Journal:
    """A file of one JSON object a line; a line is written whole, by one system call."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, line: Mapping[str, Any]) -> None:
        with self.path.open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")

    def sync(self) -> None:
        """Write all lines to disk for good."""
        if self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines so far, without one that a kill cut short."""
        if not self.path.exists():
            return []
        text = self.path.read_text()
        whole = text[: text.rfind("\n") + 1]
        return [json.loads(line) for line in whole.splitlines() if line.endswith("}")]

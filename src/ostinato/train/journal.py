"""JSON lines that grow: a trainer's progress, for displays and plots, and what fine-tuning looked at."""

import json
import os
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

    def sync(self) -> None:
        """On disk for good when this returns."""
        if self.path.exists():
            with self.path.open("rb") as file:
                os.fsync(file.fileno())

    def lines(self) -> list[dict[str, Any]]:
        """What was written so far, a line that a kill cut short left out."""
        if not self.path.exists():
            return []
        text = self.path.read_text()
        whole = text[: text.rfind("\n") + 1]
        return [json.loads(line) for line in whole.splitlines() if line.endswith("}")]

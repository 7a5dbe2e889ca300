"""Growing files of JSON lines: a trainer's progress, for displays and plots, and the looks of fine-tuning."""

import errno
import json
import os
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any


class Journal:
    """A file of one JSON object a line; a line is written whole, by one system call, or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, line: Mapping[str, Any]) -> None:
        """Append a line, behind the last whole one. Raises OSError, and leaves none, on a full disk."""
        text = json.dumps(line).encode() + b"\n"
        with self.path.open("ab+", buffering=0) as file:
            _cut_to_whole_lines(file)
            if file.write(text) != len(text):
                _cut_to_whole_lines(file)
                raise OSError(
                    errno.ENOSPC, "the disk is full: free some space and start again", str(self.path)
                )

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


def _cut_to_whole_lines(file: FileIO) -> None:
    """Remove what a kill or a full disk left of a line, which the next one would be glued to."""
    size = file.seek(0, os.SEEK_END)
    back = min(size, 1)
    file.seek(size - back)
    if file.read(back) in (b"", b"\n"):
        return
    file.seek(0)
    file.truncate(file.read().rfind(b"\n") + 1)

"""The journal: one JSON line for each event, appended, synced, never rewritten. Torn lines are skipped."""

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ostinato.edits.capture.spool import write

JOURNAL, SENT, OLD = "journal.jsonl", "sent.json", "journal.old.jsonl"
TURNOVER = 8 << 20
"""Bytes from which a journal that is sent completely is replaced by a new one."""

JournalEntry = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLine:
    """An entry and the offset of the byte after it.

    >>> JournalLine(entry={"id": "e1"}, end=12).end
    12
    """

    entry: JournalEntry | None
    """None for a line that cannot be read."""
    end: int


class EventJournal:
    """The journal file below `state`. Several processes may append to it."""

    def __init__(self, state: Path) -> None:
        self._path = state / JOURNAL
        self._sent = state / SENT

    def append(self, entries: Sequence[JournalEntry]) -> None:
        """Append entries; return once they are on the disk."""
        if not entries:
            return
        text = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            data = self._mend(handle) + text.encode()
            while data:
                data = data[file.write(data) :]
            os.fsync(file)

    def read(self, start: int = 0) -> Iterator[JournalLine]:
        """Yield the whole lines from byte `start` on."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(start)
            for raw in file:
                start += len(raw)
                if raw.endswith(b"\n"):
                    yield JournalLine(entry=_parse(raw), end=start)

    def entries(self) -> list[JournalEntry]:
        """Return the readable entries, each id once: the first one counts."""
        by_id: dict[str, JournalEntry] = {}
        for line in self.read():
            if line.entry:
                by_id.setdefault(line.entry["id"], line.entry)
        return list(by_id.values())

    def sent(self) -> int:
        """Return the offset up to which the gateway has everything."""
        try:
            return int(json.loads(self._sent.read_bytes())["offset"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return 0

    def acknowledge(self, offset: int) -> None:
        write(str(self._sent), {"offset": offset})

    def turn_over(self) -> None:
        """Begin a new journal when this one is long and sent; the one before it is dropped."""
        if self._path.exists() and TURNOVER < self._path.stat().st_size <= self.sent():
            self._path.replace(self._path.with_name(OLD))
            self.acknowledge(0)

    @staticmethod
    def _mend(handle: int) -> bytes:
        """Return a newline if the last writer was killed within a line."""
        size = os.fstat(handle).st_size
        return b"\n" if size and os.pread(handle, 1, size - 1) != b"\n" else b""


def _parse(raw: bytes) -> JournalEntry | None:
    try:
        entry = json.loads(raw)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("id"), str) else None

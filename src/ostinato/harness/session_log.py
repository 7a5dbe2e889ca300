"""The log of a session: an append-only file of JSON lines, each on the disk before its writer goes on.

::

    session ─► user ─► reply ─► call ─► asked ─► answered ─► observation ─► reply ─► … ─► ending
                                                   edit ┘

Everything else (messages, exports, the screen) is computed from it. A line that a crash cut short was never
acknowledged, so reading leaves it out and the next writer removes it. One process writes at a time.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Self

from ostinato.types import IdError, completed

FORMAT = 1
SUFFIX = ".jsonl"


class LogError(Exception):
    """The log of a session cannot be used; the message names it and says what to do."""


class SessionBusy(LogError):  # noqa: N818
    """Another process is writing this session."""


class LogEventKind(StrEnum):
    """The kinds of events. `data` has the keys of the comment."""

    SESSION = "session"  # format, id, root, profile, harness, tools, system: always the first
    USER = "user"  # text
    REPLY = "reply"  # turn, message, finish, tokens, broken, arm, version
    CALL = "call"  # id, name, arguments: as the model wrote them, tool: as the harness knows it
    ASKED = "asked"  # id, tool, asks, grants
    ANSWERED = "answered"  # id, grant, rules, words
    CHECKPOINT = "checkpoint"  # id, tree: the files as the call found them
    OBSERVATION = "observation"  # id, text, error: the kind of error or null
    EDIT = "edit"  # id, path, before and after (SHA-256 or null), lines, trees
    SUMMARY = "summary"  # text: the summary that the conversation goes on from
    CANCELLED = "cancelled"  # reason
    UNDO = "undo"  # restored, left: of the last prompt that changed something
    OUTCOME = "outcome"  # ending, reason: of one prompt
    ENDING = "ending"  # ending, of the session


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One event, which is one line of the log.

    >>> LogEvent(kind=LogEventKind.USER, data={"text": "calc.py is off"}, at=0.0).data["text"]
    'calc.py is off'
    """

    kind: LogEventKind
    data: Mapping[str, Any] = field(default_factory=dict)
    at: float = field(default_factory=time.time)

    def line(self) -> bytes:
        value = {"at": round(self.at, 6), "kind": self.kind.value, **self.data}
        return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def load(path: Path) -> list[LogEvent]:
    """Return all acknowledged events of a log; raises LogError for a file that is missing or damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise LogError(
            f"no session {path.stem} in {path.parent}: `ostinato session list` shows them"
        ) from None
    whole = data[: data.rfind(b"\n") + 1]
    return [_event(line, path, number) for number, line in enumerate(whole.split(b"\n")[:-1], 1)]


def _event(line: bytes, path: Path, number: int) -> LogEvent:
    try:
        value = json.loads(line)
        return LogEvent(at=value.pop("at"), kind=LogEventKind(value.pop("kind")), data=value)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        kept = f"its first {number - 1} lines are whole: keep those, or" if number > 1 else "restore it, or"
        raise LogError(
            f"session {path.stem} is damaged: line {number} of {path} is no event of a session; {kept} "
            "remove the file"
        ) from error


class SessionLog:
    """The only writer of a session's log. `append` returns when the event is on the disk."""

    def __init__(self, path: Path) -> None:
        """Open or create the log; raises SessionBusy while another process writes it, LogError."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._file: BinaryIO = os.fdopen(descriptor, "rb+", buffering=0)
        try:
            self._lock()
            self.events = load(path)
            self._file.seek(0)
            self._file.truncate(self._file.read().rfind(b"\n") + 1)
            self._file.seek(0, os.SEEK_END)
        except LogError:
            self._file.close()
            raise

    def append(self, kind: LogEventKind, **data: Any) -> LogEvent:
        """Write one event and wait for the disk. An event that a full disk cut short leaves nothing."""
        event = LogEvent(kind=kind, data=data)
        line, end = event.line(), self._file.tell()
        try:
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(end)
            self._file.seek(end)
            raise
        self.events.append(event)
        return event

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SessionBusy(
                f"session {self.path.stem} is open in another process: end that one, or start a new session"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """A folder of logs, one file a session."""

    directory: Path

    @classmethod
    def of_user(cls) -> "Sessions":
        """Return the logs in $OSTINATO_STATE/sessions, or in ostinato/sessions below the state directory of
        the desktop.
        """
        home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        return cls(directory=Path(os.environ.get("OSTINATO_STATE") or f"{home}/ostinato") / "sessions")

    def path(self, session_id: str) -> Path:
        if not session_id or "/" in session_id or session_id.startswith("."):
            raise LogError(f"{session_id!r} is no session id: `ostinato session list` shows them")
        return self.directory / f"{session_id}{SUFFIX}"

    def meant(self, given: str) -> str:
        """Return the id of the session that an id or its beginning stands for; raises LogError."""
        self.path(given)
        known = (path.stem for path in self.directory.glob(f"*{SUFFIX}"))
        try:
            return completed(given, known, noun="session", where=str(self.directory))
        except IdError as error:
            raise LogError(
                f"{error}: `ostinato session list` shows them, and the dashboard those of other agents"
            ) from None

    def open(self, session_id: str) -> SessionLog:
        """Return the writer of a session; raises SessionBusy, LogError."""
        return SessionLog(self.path(session_id))

    def load(self, session_id: str) -> list[LogEvent]:
        return load(self.path(session_id))

    def newest(self, root: str | None = None) -> Iterator[tuple[str, list[LogEvent]]]:
        """Yield ids and events of the sessions (of one repository), the last written first; a damaged one is
        empty.
        """
        paths = sorted(self.directory.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in paths:
            try:
                events = load(path)
            except LogError:
                events = []
            if root is None or (events and events[0].data.get("root") == root):
                yield path.stem, events
